#!/bin/sh
# Compiles each program of tests/programs with combcc and runs it alone, and spread over components that import and that have copies, by check also of the
# smallest blocks; all must print the same.
#   COMBCC=path COMB=path runtime/tests/run.sh [ACCESS...]
# A program's text is in NAME.expected, whose last line is "status N"; libraries/NAME.c or .cpp becomes a shared library of its own. COUNTS says on how many components; HOSTS, if set, is a list for `comb run --hosts`.
set -u
# LLVM's verifier looks at what the pass makes.
export COMB_VERIFY=1
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
built=${CARGO_TARGET_DIR:-$root/target}/debug
COMBCC=${COMBCC:-$built/combcc}
COMB=${COMB:-$built/comb}
for tool in "$COMBCC" "$COMB"; do
    [ -x "$tool" ] || { echo "run.sh: $tool is missing: cargo build -p comb-cc -p comb-cli -p comb-capi"; exit 1; }
done
COUNTS=${COUNTS:-4}
accesses=${*:-check page}
out=$(mktemp -d "${TMPDIR:-/tmp}/comb-runtime.XXXXXX") || exit 1
trap 'rm -r "$out"' EXIT
ln -s "$(realpath "$COMBCC")" "$out/combc++"
failures=0

# $1: what is run, for people; the rest: the command.
compare() {
    what=$1
    shift
    timeout 120 "$@" > "$out/text" 2> "$out/errors"
    echo "status $?" >> "$out/text"
    if ! diff "$expected" "$out/text" > "$out/difference"; then
        echo "FAILED: $what"
        cat "$out/difference" "$out/errors"
        failures=$((failures + 1))
    fi
}

# What the runtime defines for programs, and the list that the compiler goes by, are the same names.
nm "$here"/../../build/objects/runtime/*.o | awk '$2 == "T" && $3 ~ /^comb_lib_/ { print substr($3, 10) }' | LC_ALL=C sort > "$out/names"
if ! diff "$here/../covered.txt" "$out/names"; then
    echo "FAILED: covered.txt is not what the runtime covers"
    failures=1
fi

for access in $accesses; do
    for source in "$here"/programs/*.c "$here"/programs/*.cpp; do
        name=$(basename "$source" | sed 's/\..*//')
        expected=${source%.*}.expected
        program=$out/$name.$access
        case $source in
        *.cpp) compiler=$out/combc++ standard=-std=gnu++20 ;;
        *) compiler=$COMBCC standard=-std=gnu17 ;;
        esac
        linked=
        library=$here/libraries/$(basename "$source")
        if [ -f "$library" ]; then
            linked=$out/lib$name.$access.so
            # As meson links: nothing may be left to be found.
            if ! "$compiler" $standard --access="$access" -O2 -fPIC -shared -Wl,--no-undefined "$library" -o "$linked" 2> "$out/errors"; then
                echo "FAILED: the library of $name does not compile with $access"
                cat "$out/errors"
                failures=$((failures + 1))
                continue
            fi
        fi
        # shellcheck disable=SC2086
        if ! "$compiler" $standard --access="$access" -O2 "$source" $linked -lm -o "$program" 2> "$out/errors"; then
            echo "FAILED: $name does not compile with $access"
            cat "$out/errors"
            failures=$((failures + 1))
            continue
        fi
        compare "$name ($access) alone" "$program"
        for count in $COUNTS; do
            compare "$name ($access) on $count by import" "$COMB" run -n "$count" -- "$program"
            compare "$name ($access) on $count by copies" "$COMB" run -n "$count" --share copy -- "$program"
        done
        # A library has the blocks of its program.
        if [ "$access" = check ] && [ -z "$linked" ]; then
            "$compiler" $standard --access=check --block=128 -O2 "$source" -lm -o "$program.fine" 2> "$out/errors" \
                || { echo "FAILED: $name with small blocks"; failures=$((failures + 1)); }
            compare "$name ($access) on 3 by copies of 128 bytes" "$COMB" run -n 3 --share copy -- "$program.fine"
        fi
        if [ -n "${HOSTS:-}" ]; then
            # shellcheck disable=SC2086
            compare "$name ($access) on hosts" "$COMB" run --hosts "$HOSTS" --shell "${HOST_SHELL:-env}" -- "$program"
        fi
    done
done
# Where threads begin.
"$COMBCC" -O2 "$here/spread.c" -o "$out/spread" || failures=$((failures + 1))
for way in home:AAAAAAAA round-robin:BCDABCDA fill:2:ABBCCDDA; do
    letters=${way##*:}
    expected=$out/letters
    printf '%s\nstatus 0\n' "$letters" > "$expected"
    compare "threads spread by ${way%:*}" "$COMB" run -n 4 --spread "${way%:*}" -- "$out/spread"
done
# Which core they go on on.
if ! "${CC:-cc}" -D_GNU_SOURCE -O2 "$here/cores.c" "$here/../cores.c" -o "$out/cores" || ! "$out/cores"; then
    echo "FAILED: cores"
    failures=$((failures + 1))
fi
[ $failures -eq 0 ] && echo "all of runtime/tests is right ($accesses)"
exit $((failures > 0))
