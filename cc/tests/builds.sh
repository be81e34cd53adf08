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
