#!/bin/bash
# Whether no process of comb runs, nor anything that it started, and its directories are gone. Processes that end get a moment.
set -euo pipefail

running() {
  for process in /proc/[0-9]*; do
    case $(readlink "$process/exe" 2>/dev/null || true) in
      /usr/bin/comb*) echo "${process#/proc/} $(tr '\0' ' ' 2>/dev/null <"$process/cmdline")" ;;
    esac
    if tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -q '^COMB_CELL='; then echo "${process#/proc/} in a cell"; fi
  done
}

for _ in $(seq 200); do
  left=$(running)
  [ -n "$left" ] || break
  sleep 0.05
done
if [ -n "$left" ]; then
  printf 'still runs:\n%s\n' "$left" >&2
  exit 1
fi
if compgen -G '/tmp/comb-*' >/dev/null || [ -e /run/comb ]; then
  ls -d /tmp/comb-* /run/comb >&2 2>/dev/null || true
  echo 'a directory was left behind' >&2
  exit 1
fi
if find /sys/fs/cgroup -type d -name 'comb-*' 2>/dev/null | grep .; then
  echo 'a cgroup was left behind' >&2
  exit 1
fi
