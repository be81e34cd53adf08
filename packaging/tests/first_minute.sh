#!/bin/bash
# What the README's first minute does, with an installed comb.
set -euo pipefail

# expect TEXT COMMAND…: it succeeds and says that.
expect() {
  local text=$1 said
  shift
  if ! said=$("$@" 2>&1) || ! grep -qE -- "$text" <<<"$said"; then
    printf 'first_minute: "%s" was to say "%s", and said:\n%s\n' "$*" "$text" "$said" >&2
    exit 1
  fi
}

# eventually TEXT COMMAND…: it says that within 20 seconds.
eventually() {
  local text=$1 said
  shift
  for _ in $(seq 200); do
    said=$("$@" 2>&1 || true)
    if grep -qE -- "$text" <<<"$said"; then return; fi
    sleep 0.1
  done
  printf 'first_minute: "%s" was to say "%s" in the end, and said:\n%s\n' "$*" "$text" "$said" >&2
  exit 1
}

all_up() { comb ps | grep -cE '^ *[0-9]+ .*\bup\b'; }

expect '^comb [0-9]' comb --version
expect 'kernel +ok' comb doctor
expect '^4 cells are up' comb up --cells 4
expect '^4$' all_up
# It dies with the cell that is killed below, and says so.
comb run -n 3 -- sleep 60 2>/dev/null &
sleeper=$!
eventually 'sleep' comb task ls
expect 'cell 2 \(process [0-9]+\) killed; 3 of 3 peers noticed' comb cell kill 2
eventually '^4$' all_up
expect 'started again|begins|started' comb log
# A program in C: its components compute on two shared grids, at barriers, and libcomb is where the package has it.
expect '.' comb run -n 2 -- /tmp/jacobi
expect '.' comb run -n 2 --share copy -- /tmp/jacobi
comb region create tally --size 1M >/dev/null
expect 'run 1 of tally' /tmp/tally
expect 'run 2 of tally' /tmp/tally
expect '^ended 4 cells' comb down
wait $sleeper || true
expect 'nothing is running' comb down
/tmp/nothing_runs.sh
