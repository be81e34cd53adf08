#!/usr/bin/env bash
# Builds random programs by a compiler to test and by a plain one, and wants the same output.
#   compare.sh [--bare] FROM TO COMPILER [OPTION…]
#     FROM, TO    the first and the last seed
#     COMPILER    the one to test, with options of its own. The plain one is $PLAIN, or cc
#     $RUN        what runs its programs, such as "comb run -n 3 --"; nothing at first
# Programs that differ stay in the directory that is named at the end.
set -uo pipefail
# LLVM's verifier looks at what the pass makes.
export COMB_VERIFY=1
here=$(cd "$(dirname "$0")" && pwd)
bare=()
if [ "${1:-}" = --bare ]; then bare=(--bare); shift; fi
[ $# -ge 3 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
from=$1 to=$2
shift 2

(cd "$here" && cargo build --quiet -p comb-fuzz-programs) || exit 1
programs=${CARGO_TARGET_DIR:-$here/../../target}/debug/comb-fuzz-programs
work=$(mktemp -d)
failures=0
for seed in $(seq "$from" "$to"); do
  name=$work/$seed
  "$programs" "${bare[@]}" --seed "$seed" > "$name.c"
  "${PLAIN:-cc}" -w -std=gnu11 -O1 -pthread "$name.c" -o "$name.plain" 2> "$name.said" \
    || { echo "seed $seed: the plain compiler fails: $(head -1 "$name.said")"; exit 1; }
  timeout 60 "$name.plain" > "$name.expected" || { echo "seed $seed: the plain program fails"; exit 1; }
  wrong=
  if ! "$@" -w -std=gnu11 -pthread "$name.c" -o "$name.tested" 2> "$name.said"; then
    wrong="does not compile: $(head -1 "$name.said")"
  else
    # shellcheck disable=SC2086  # words on purpose
    timeout 60 ${RUN:-} "$name.tested" > "$name.found" 2> "$name.said"
    status=$?
    if [ "$status" -ne 0 ]; then
      wrong="status $status: $(tail -1 "$name.said")"
    elif ! cmp -s "$name.expected" "$name.found"; then
      wrong="differs: $(diff "$name.expected" "$name.found" | sed -n 2p)"
    fi
  fi
  if [ -n "$wrong" ]; then
    echo "seed $seed: $wrong"
    failures=$((failures + 1))
  else
    rm -f "$name".*
  fi
done
echo "$((to - from + 1)) programs, $failures failures"
if [ "$failures" -gt 0 ]; then
  echo "they are in $work"
  exit 1
fi
rmdir "$work"
