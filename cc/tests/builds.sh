#!/usr/bin/env bash
# Ways in which builds call combcc: links that do not say how objects were compiled, sources without a name, another build system's project.
#   COMBCC=path COMB=path tests/builds.sh
set -euo pipefail
# LLVM's verifier looks at what the pass makes.
export COMB_VERIFY=1
here=$(cd "$(dirname "$0")" && pwd)
built=${CARGO_TARGET_DIR:-$here/../../target}/debug
COMBCC=$(realpath "${COMBCC:-$built/combcc}")
COMB=${COMB:-$built/comb}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$COMBCC" "$work/combc++"
failures=0

# wants TEXT COMMAND…: what it prints, on either stream, contains the text.
wants() {
  local text=$1 said
  shift
  said=$(timeout 120 "$@" 2>&1) || true
  case $said in
  *"$text"*) ;;
  *) echo "FAILED: $*: $said, and not $text"; failures=$((failures + 1)) ;;
  esac
}
spread() { wants "$1" "$COMB" run -n 2 --share copy -- "$work/program"; }

for access in check hybrid mmu page; do
  "$COMBCC" -O2 --access=$access -c "$here/builds/sum.c" -o "$work/sum.o"
  "$COMBCC" "$work/sum.o" -o "$work/program"
  spread 4999950000
done
wants 'sum.o is compiled for --access=page, and this command says --access=check' "$COMBCC" --access=check "$work/sum.o" -o "$work/program"
"$COMBCC" -O2 --block=256 -c "$here/builds/sum.c" -o "$work/sum.o"
wants '--block=256, and this command says --block=128' "$COMBCC" --block=128 "$work/sum.o" -o "$work/program"

"$COMBCC" -O2 --access page -fopenmp -c "$here/builds/loop.c" -o "$work/loop.o"
"$COMBCC" "$work/loop.o" -o "$work/program"
spread 499500
"$COMBCC" "$work/loop.o" -fopenmp -lgomp -o "$work/program"
spread 499500

"$COMBCC" -x c - -o "$work/program" < "$here/builds/sum.c"
spread 4999950000

# What is said of what cannot be.
refused() {
  echo "$2" > "$work/refused.c"
  wants "$1" "$COMBCC" -O2 -c "$work/refused.c" -o "$work/refused.o"
}
refused 'inline assembly in load (' 'int load(int *at) { int found; __asm__("movl (%1), %0" : "=r"(found) : "r"(at)); return found; }'
refused 'inline assembly in store (' 'void store(int *at) { __asm__("movl $1, %0" : "=m"(*at)); }'
refused 'inline assembly in fill (' 'void fill(char *at) { long count = 8; __asm__("rep stosb" : "+D"(at), "+c"(count) : "a"(0) : "memory"); }'
refused 'inline assembly in segment (' 'int segment(void) { int found; __asm__("movl %%fs:0, %0" : "=r"(found)); return found; }'
"$work/combc++" -O2 "$here/builds/thrown.cpp" -o "$work/program"
wants 'caught away' "$work/program"
wants 'an exception cannot go to another component' "$COMB" run -n 2 -- "$work/program"
wants 'an exception cannot go to another component' "$COMB" run -n 2 --share copy -- "$work/program"

# --explain counts what became of a function's accesses: of two stores to one object one look is enough, and what stays in the function needs none.
cat > "$work/explained.c" << 'END'
struct pair { long first, second; };
void fill(struct pair *pair) { pair->first = 1; pair->second = 2; }
long own(long number) { long here[8]; for (int index = 0; index < 8; index++) here[index] = number * index; return here[number & 7]; }
long add(const long *numbers, long count) { long sum = 0; for (long index = 0; index < count; index++) sum += numbers[index]; return sum; }
int main(void) { return 0; }
END
explains() {
  "$COMBCC" -O2 -fno-vectorize -fno-slp-vectorize -fno-unroll-loops --explain -c "$work/explained.c" -o "$work/explained.o" 2> "$work/said"
  grep -q "^combcc: $1" "$work/said" || { echo "FAILED: --explain, not $1: $(cat "$work/said")"; failures=$((failures + 1)); }
}
explains 'fill: inserted checks of 0 loads, 1 stores, .* removed 1 as redundant, 0 as private; batched 0'
explains 'own: inserted checks of 0 loads, 0 stores, .* removed 0 as redundant, [1-9][0-9]* as private; batched 0; 0 stack'
explains 'add: .* batched [1-9]'
explains 'main: inserted checks of 0 loads'

# No word disturbs a configure script.
"$COMBCC" -O2 -fPIC -shared "$here/builds/sum.c" -o "$work/libsum.so" > "$work/said" 2>&1
[ ! -s "$work/said" ] || { echo "FAILED: a shared library: $(cat "$work/said")"; failures=$((failures + 1)); }

if command -v cmake > /dev/null; then
  export CC=$COMBCC CXX=$work/combc++
  cmake -S "$here/builds/cmake" -B "$work/cmake" > "$work/said" 2>&1 && cmake --build "$work/cmake" >> "$work/said" 2>&1 \
    || { tail -20 "$work/said"; failures=$((failures + 1)); }
  cp "$work/cmake/whole" "$work/program"
  wants '401 4950' "$work/program"
  spread '401 4950'
else
  echo 'builds.sh: no cmake here: its project is left out'
fi
[ "$failures" -eq 0 ] || exit 1
