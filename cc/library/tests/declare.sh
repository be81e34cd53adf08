# Declarations of the wrappers named in the list $1.
echo '/* Made by tests/declare.sh. */'
echo '#include "../every.h"'
while read -r name; do
    case $name in
    _Z*) ;; # of C++
    stdin | stdout | stderr) echo "extern FILE *comb_lib_$name;" ;;
    *) echo "extern __typeof__($name) comb_lib_$name;" ;;
    esac
done < "$1"
for name in malloc calloc aligned_alloc realloc free; do
    echo "extern __typeof__($name) comb_lib_$name;"
done
