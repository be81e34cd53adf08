#!/usr/bin/env bash
# What checks cost where nothing is missing: kernels by combcc against plain clang -O2, in one run.
set -euo pipefail
cd "$(dirname "$0")/../.."
combcc=${COMBCC:-${CARGO_TARGET_DIR:-$PWD/../target}/debug/combcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang-19 -O2 tests/speed/kernels.c -o "$work/plain"
for access in check hybrid; do "$combcc" -O2 --access=$access tests/speed/kernels.c -o "$work/$access"; done
for turn in 1 2 3; do
  for name in plain check hybrid; do "$work/$name" >> "$work/$name.txt"; done
done
awk 'FILENAME ~ /plain.txt/ { if (!($1 in plain) || $2 < plain[$1]) plain[$1] = $2; sum[$1] = $3 }
     FILENAME ~ /check.txt/ { if (!($1 in check) || $2 < check[$1]) check[$1] = $2; if (sum[$1] != $3) print "DIFFERS", $1 }
     FILENAME ~ /hybrid.txt/ { if (!($1 in hybrid) || $2 < hybrid[$1]) hybrid[$1] = $2 }
     END { printf "%-12s %8s %8s %8s\n", "kernel", "plain us", "check", "hybrid"
           for (k in plain) { x = check[k] / plain[k]; y = hybrid[k] / plain[k]; lx += log(x); ly += log(y); n++
             printf "%-12s %8.0f %8.2f %8.2f\n", k, plain[k] / 1000, x, y }
           printf "%-12s %8s %8.2f %8.2f\n", "geomean", "", exp(lx / n), exp(ly / n) }' "$work"/plain.txt "$work"/check.txt "$work"/hybrid.txt
