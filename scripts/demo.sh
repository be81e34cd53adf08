#!/usr/bin/env bash
# Comb in a minute, on one machine: four cells, one killed, the others carry on, nothing left behind.
set -uo pipefail
cd "$(dirname "$0")/.."

comb=$(realpath -m "${CARGO_TARGET_DIR:-target}/release/comb")
[ -x "$comb" ] || { echo "demo: $comb is not built: run make demo" >&2; exit 1; }

# A runtime directory of its own: the demo neither meets nor stops cells that were up before it.
scratch=$(mktemp -d)
export COMB_RUNTIME_DIR=$scratch/runtime
down_is_due=no

# Process ids of our user whose program is this very binary, replaced by a new build or not.
comb_processes() {
  local link program
  for link in /proc/[0-9]*/exe; do
    program=$(readlink "$link" 2>/dev/null) || continue
    if [ "${program% (deleted)}" = "$comb" ] && [ -O "${link%/exe}" ]; then
      link=${link%/exe}
      echo "${link#/proc/}"
    fi
  done | sort
}
before=$(comb_processes)

fail() {
  printf '\ndemo: FAILED: %s\n' "$*" >&2
  exit 1
}

clean_up() {
  if [ "$down_is_due" = yes ]; then
    echo 'demo: taking the cells down' >&2
    "$comb" down >&2 || echo "demo: comb down failed as well; see $COMB_RUNTIME_DIR" >&2
  fi
  # A directory that is not empty is evidence: keep it.
  rmdir "$scratch" 2>/dev/null
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# step WHY COMMAND…: prints the command, runs it, ends the demo if it fails.
step() {
  printf '\n# %s\n$ comb %s\n' "$1" "${*:2}"
  "$comb" "${@:2}" || fail "comb ${*:2} (exit status $?)"
}

# What is left of this demo, one line each; nothing when all is gone.
leftovers() {
  comm -13 <(printf '%s\n' "$before") <(comb_processes) | sed 's/^/process /'
  [ ! -e "$COMB_RUNTIME_DIR" ] || echo "directory $COMB_RUNTIME_DIR"
}

down_is_due=yes
step 'Four cells: each one a unit of failure.' up --cells 4
[ -d "$COMB_RUNTIME_DIR" ] || fail "comb up made no runtime directory at $COMB_RUNTIME_DIR"
[ -n "$(leftovers | grep '^process')" ] || fail 'comb up left no process running'
step 'All four are there.' ps
step 'One of them dies, without a word to the others.' cell kill 2
sleep 0.5 # for the reader's eye and a busy machine; the cells need milliseconds
step 'Three carry on.' ps
step 'How the others noticed, and when.' log
step 'Enough.' down
down_is_due=no

# A process that answered the last request may still be on its way out.
for _ in $(seq 20); do
  left=$(leftovers)
  [ -n "$left" ] || break
  sleep 0.1
done
[ -z "$left" ] || fail "this is left after comb down:
$left"
printf '\ndemo: done; no process and no file is left.\n'
