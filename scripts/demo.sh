#!/usr/bin/env bash
# Comb in a minute, on one machine: four cells with programs in them; one is killed, the others carry on, what was lost is started again, nothing is left
# behind.
set -uo pipefail
cd "$(dirname "$0")/.."

comb=$(realpath -m "${CARGO_TARGET_DIR:-target}/release/comb")
heat_program=$(realpath -m "${CARGO_TARGET_DIR:-target}/release/examples/heat")
for program in "$comb" "$heat_program"; do
  [ -x "$program" ] || { echo "demo: $program is not built: run make demo" >&2; exit 1; }
done

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

# Twelve small programs, three in each cell: each says a word after a while, if it lives.
start_small_ones() {
  local cell number
  for cell in 1 2 3 4; do
    for number in 1 2 3; do
      "$comb" run -n 1 --cells "$cell" -- sh -c 'sleep 2; echo done' >"$scratch/small-$cell-$number" 2>&1 &
    done
  done
}

down_is_due=yes
step 'Four cells: each one a unit of failure.' up --cells 4
[ -d "$COMB_RUNTIME_DIR" ] || fail "comb up made no runtime directory at $COMB_RUNTIME_DIR"
[ -n "$(leftovers | grep '^process')" ] || fail 'comb up left no process running'
step 'Memory with a name, that lives in one of them.' region create progress --size 64K --cell 1

heat="run -n 4 --checkpoint $scratch/heat --restart -- $heat_program 500 5 progress"
printf '\n# A parallel program across all four, which writes checkpoints and how far it is; and a dozen small ones beside it.\n$ comb %s &\n' "$heat"
# shellcheck disable=SC2086 # words
"$comb" $heat >"$scratch/heat.out" 2>&1 &
heat_process=$!
start_small_ones
sleep 1 # for the first checkpoints
step 'What runs, and on which cells each depends.' task ls
step 'One cell dies, without a word to the others.' cell kill 2
step 'The others go on; what it could have damaged is gone; and it is started again.' ps
step 'Each step, and when.' log -n 14

printf '\n# The parallel program was lost with the cell, and goes on from its last checkpoint.\n'
wait "$heat_process" || fail "the parallel program ended with status $?: $(cat "$scratch/heat.out")"
cat "$scratch/heat.out"
grep -q 'as it should be' "$scratch/heat.out" || fail 'its result is wrong'
wait
living=$(grep -l '^done$' "$scratch"/small-[134]-* | wc -l)
lost=$(grep -L '^done$' "$scratch"/small-2-* | wc -l)
printf '\n# Of the dozen small programs %s have lived, and %s were lost with cell 2.\n' "$living" "$lost"
[ "$living" = 9 ] && [ "$lost" = 3 ] || fail 'others than those in cell 2 have suffered'

step 'Enough.' down
down_is_due=no
rm -rf "$scratch"/heat "$scratch"/heat.out "$scratch"/small-*

# A process that answered the last request may still be on its way out.
for _ in $(seq 20); do
  left=$(leftovers)
  [ -n "$left" ] || break
  sleep 0.1
done
[ -z "$left" ] || fail "this is left after comb down:
$left"
printf '\ndemo: done; no process and no file is left.\n'
