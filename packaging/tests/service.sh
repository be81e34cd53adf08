#!/bin/bash
# The agent as its unit has it run, as far as that goes without systemd: what ExecStart says, with the unit's variables,
# directory, and less rights; killed, and started again; ended by SIGTERM.
set -euo pipefail
unit=/lib/systemd/system/comb.service

setting() { sed -n "s/^$1=//p" "$unit"; }

caps=$(setting CapabilityBoundingSet | sed 's/CAP_/+/g; s/ /,/g' | tr '[:upper:]' '[:lower:]')
read -ra start <<<"$(setting ExecStart)"
export COMB_RUNTIME_DIR=/run/comb

start() {
  mkdir -p -m 700 /run/comb
  setpriv --no-new-privs --bounding-set "-all,$caps" --inh-caps -all "${start[@]}" >/dev/null &
  agent=$!
}

up() { comb ps 2>/dev/null | grep -cE '^ *[0-9]+ .*\bup\b' || true; }
await() {
  for _ in $(seq 200); do
    if [ "$(up)" = 4 ]; then return; fi
    sleep 0.1
  done
  comb ps >&2 || true
  echo 'service: 4 cells were to be up' >&2
  exit 1
}
cells() { comb ps -o json | tr -d " \n" | grep -o "\"pid\":[0-9]*" | sort; }

start
await
before=$(cells)
comb run -n 2 -- /tmp/jacobi >/dev/null
# The firewall of a region, whose home has the rights that the unit leaves it.
comb region create tally --size 1M >/dev/null
/tmp/tally | grep -q 'run 1 of tally'
kill -KILL $agent
wait $agent || true
start
await
after=$(cells)
if [ "$after" != "$before" ]; then
  printf 'service: the next agent was to take over the cells of the one that was killed; they were %s and are %s\n' "$before" "$after" >&2
  comb log >&2
  exit 1
fi
/tmp/tally | grep -q 'run 2 of tally'
# Without a word about where, root finds what its service runs.
env -u COMB_RUNTIME_DIR comb ps | grep -q /run/comb
kill -TERM $agent
wait $agent
/tmp/nothing_runs.sh
