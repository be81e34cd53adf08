# Whether the lists and the library $1 say the same: each covered name is defined, each wrapper is in the list, no name is
# in two lists, and each wrapper is called by a scene, or has a reason in tests/untested.txt.
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    if [ -s "$2" ]; then
        echo "$1:" $(cat "$2")
        bad=1
    fi
}

nm "$1" 2>/dev/null | awk '$2 ~ /[TDBW]/ && $3 ~ /^comb_lib_/ { print substr($3, 10) }' | sort -u > "$work/defined"
sort -u covered.txt > "$work/covered"
cut -f1 advice.txt | sort > "$work/advice"
sort covered.txt safe.txt "$work/advice" | uniq -d > "$work/twice"
# A scene calls C(name), or gives the name to a macro that does, or makes names of three precisions.
{
    cat tests/*.c | grep -oE '\b(C|WHOLE|WHOLE_L|FLOATING|FLOATING_L)\([a-z_A-Z0-9]*\)' | sed 's/.*(\(.*\))/\1/'
    for end in '' f l; do
        cat tests/*.c | grep -o 'C([a-z]*##end[#_r]*)' | sed "s/C(\([a-z]*\)##end\(.*\))/\1$end\2/; s/##//"
    done
} | sort -u > "$work/called"
cut -f1 tests/untested.txt | sort > "$work/untested"
sort -u "$work/called" "$work/untested" > "$work/accounted"

comm -23 "$work/covered" "$work/defined" > "$work/missing"
complain "covered, but not defined" "$work/missing"
comm -13 "$work/covered" "$work/defined" > "$work/unlisted"
complain "defined, but not in covered.txt" "$work/unlisted"
complain "in two lists" "$work/twice"
comm -23 "$work/covered" "$work/accounted" > "$work/silent"
complain "neither called by a scene nor in tests/untested.txt" "$work/silent"
comm -12 "$work/called" "$work/untested" > "$work/both"
complain "called, and in tests/untested.txt" "$work/both"
awk -F '\t' 'NF != 2 || $2 == "" { print $1 }' advice.txt tests/untested.txt > "$work/mute"
complain "without a word behind the name" "$work/mute"
[ $bad = 0 ] && echo "lists: $(wc -l < covered.txt) covered, $(wc -l < safe.txt) safe, $(wc -l < advice.txt) with advice," \
    "$(wc -l < "$work/untested") untested"
exit $bad
