#!/bin/sh
# Runs the programs in pages/ on every implementation that is built, with 1, 2 and 3 ranks and sizes at which ranks share pages: each rank must
# find what one alone computes (--check), and all checksums must be the same.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cases='jacobi:1 jacobi:37 jacobi:201 product:5 product:131 stencil:3 stencil:31'
iterations=5
failures=0
runs=0

checksum_of() { sed -n 's/.*"checksum":"\([0-9a-f]*\)".*/\1/p'; }

# expect CHECKSUM WHAT NAME COUNT PROGRAM SIZE
expect() {
    expected=$1 what=$2
    shift 2
    runs=$((runs + 1))
    if ! line=$("$here/pages.sh" "$@" "$iterations" --check); then
        echo "pages_test: $what: $*: failed" >&2
    elif [ "$(printf '%s\n' "$line" | checksum_of)" != "$expected" ]; then
        echo "pages_test: $what: $*: checksum is not $expected: $line" >&2
    else
        return 0
    fi
    failures=$((failures + 1))
}

implementations=$(make --no-print-directory -s -C "$here" list-pages)
case $implementations in
*threads*) ;;
*)
    echo "pages_test: not built: run make in benches/peers" >&2
    exit 1
    ;;
esac

for each in $cases; do
    program=${each%%:*} size=${each##*:}
    expected=$("$here/pages.sh" threads 1 "$program" "$size" "$iterations" | checksum_of)
    for count in 1 2 3; do
        for name in $implementations; do
            case $name in
            openmpi-pages)
                for homes in block robin; do
                    for window in allocate create; do
                        export PAGES_HOMES=$homes PAGES_WINDOW=$window
                        expect "$expected" "homes=$homes window=$window" "$name" "$count" "$program" "$size"
                    done
                done
                ;;
            comb)
                for sharing in stache release; do
                    export COMB_SHARING=$sharing
                    expect "$expected" "sharing=$sharing" "$name" "$count" "$program" "$size"
                done
                ;;
            *) expect "$expected" "" "$name" "$count" "$program" "$size" ;;
            esac
        done
    done
done
echo "pages_test: $runs runs of $(echo "$implementations" | tr '\n' ' '), $failures failures"
[ "$failures" = 0 ]
