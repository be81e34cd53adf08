#!/usr/bin/env bash
# Compiles each program with plain clang and with combcc, and wants the same output: alone, and while a thief takes its blocks.
#   run.sh [PROGRAM…]    PROGRAM: a file of tests/programs; default all
set -euo pipefail
# LLVM's verifier looks at what the pass makes.
export COMB_VERIFY=1
cd "$(dirname "$0")/.."
clang=${COMB_CLANG:-clang-19}
combcc=${COMBCC:-${CARGO_TARGET_DIR:-$PWD/../target}/debug/combcc}
levels=${LEVELS:-0 2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -x "$combcc" ] || { echo "run.sh: $combcc is missing; cargo build -p comb-cc"; exit 1; }
# `++` in its name makes it the C++ compiler.
ln -s "$combcc" "$work/combcc"
ln -s "$combcc" "$work/combcc++"

# thief ACCESS DEFINES: a library directory whose runtime steals.
thief() {
  local library=$work/thief-$1
  mkdir -p "$library"
  cp build/comb/libcombpass.so build/comb/comb.ld "$library"
  cp tests/alone/covered.txt "$library/covered.txt"
  local source
  for source in thief heap copies; do
    "$clang" -std=gnu11 -D_GNU_SOURCE -O2 -Iaccess $2 -c "tests/alone/$source.c" -o "$library/$source.o"
  done
  ar rcs "$library/libcombrt.a" "$library"/*.o build/objects/access/*.o
  rm "$library"/*.o
}
thief check -DTHIEF_HYBRID=0
thief hybrid -DTHIEF_HYBRID=1

# A library directory for programs that run alone, with the same short list.
alone=$work/alone
mkdir -p "$alone"
cp build/comb/libcombpass.so build/comb/comb.ld "$alone"
grep -v pthread tests/alone/covered.txt | grep mem > "$alone/covered.txt"
for source in start copies; do
  "$clang" -std=gnu11 -D_GNU_SOURCE -O2 -Iaccess -c "tests/alone/$source.c" -o "$alone/$source.o"
done
ar rcs "$alone/libcombrt.a" "$alone"/*.o build/objects/access/*.o
rm "$alone"/*.o

failures=0
runs=0
fetches=0

# same NAME COMMAND…: its output must be the expected one.
same() {
  local name=$1 output status=0
  shift
  output=$(timeout 60 "$@" 2>"$work/errors") || status=$?
  runs=$((runs + 1))
  if [ "$status" -ne 0 ] || [ "$output" != "$expected" ]; then
    echo "FAILED $name: status $status, '$output' instead of '$expected'; $(tail -2 "$work/errors")"
    failures=$((failures + 1))
  fi
  local fetched
  fetched=$(sed -n 's/^thief: .* stolen, \([0-9]*\) fetched$/\1/p' "$work/errors")
  fetches=$((fetches + ${fetched:-0}))
}

programs=("$@")
[ ${#programs[@]} -gt 0 ] || programs=(tests/programs/*.c tests/programs/*.cpp)
for program in "${programs[@]}"; do
  name=$(basename "$program")
  plain=("$clang") comb=("$work/combcc")
  case $name in *.cpp) plain=("$clang" --driver-mode=g++) comb=("$work/combcc++") ;; esac
  # A program may begin with flags of its own, which count more.
  read -ra own < <(sed -n '1s|^/\* flags: \([^*]*\).*|\1|p' "$program") || true
  for level in $levels; do
    flags=("-O$level" "${own[@]}" -mcx16 -fwrapv -w "$program" -lm -lpthread)
    "${plain[@]}" "${flags[@]}" -o "$work/plain"
    expected=$("$work/plain")
    for access in check hybrid page; do
      COMB_CC_LIBRARY=$alone "${comb[@]}" "--access=$access" "${flags[@]}" -o "$work/alone.out"
      same "$name -O$level $access alone" "$work/alone.out"
    done
    for access in check hybrid; do
      COMB_CC_LIBRARY=$work/thief-$access "${comb[@]}" "--access=$access" "${flags[@]}" -o "$work/stolen.out"
      same "$name -O$level $access stolen" "$work/stolen.out"
    done
  done
done

echo "$runs runs, $fetches blocks fetched back, $failures failures"
[ "$fetches" -gt 0 ] || { echo "the thief stole nothing"; exit 1; }
[ "$failures" -eq 0 ]
