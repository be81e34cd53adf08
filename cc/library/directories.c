/* Directories. A DIR is libc's, of the cell that opened it, and what readdir returns is in its memory. */
#include "every.h"

#include <errno.h>

#include "reach.h"

COMB_WRAP(DIR *, opendir, TEXT(path));

/* The directory takes the descriptor over, so both are of one cell. */
DIR *comb_lib_fdopendir(int descriptor)
{
    unsigned cell = COMB_NO_CELL;
    int here = comb_descriptor_here(descriptor, &cell);
    if (comb_is_here(cell))
        return fdopendir(here);
    errno = EXDEV;
    return NULL;
}
COMB_SAME_TYPE(fdopendir);

int comb_lib_dirfd(DIR *directory)
{
    return comb_descriptor_given(dirfd(directory));
}
COMB_SAME_TYPE(dirfd);

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
int comb_lib_readdir_r(DIR *restrict directory, struct dirent *restrict to, struct dirent **restrict result)
{
    struct dirent own, *found;
    int answer = readdir_r(directory, &own, &found);
    if (answer == 0 && found)
        comb_copy_to(to, &own, offsetof(struct dirent, d_name) + strlen(own.d_name) + 1);
    comb_set_pointer(result, answer == 0 && found ? to : NULL);
    return answer;
}
COMB_SAME_TYPE(readdir_r);
COMB_ALIAS(readdir64_r, readdir_r);
#pragma clang diagnostic pop

/* The list and its entries are the program's to free. Its functions get entries where they will be. */
static struct dirent *program_entry(const struct dirent *entry)
{
    size_t bytes = offsetof(struct dirent, d_name) + strlen(entry->d_name) + 1;
    struct dirent *made = comb_lib_malloc(bytes);
    if (made)
        comb_copy_to(made, entry, bytes);
    return made;
}

static int scan(DIR *directory, struct dirent ***list, int (*chosen)(const struct dirent *),
                int (*order)(const struct dirent **, const struct dirent **))
{
    struct dirent **made = NULL, *entry;
    size_t count = 0, room = 0;
    while ((entry = readdir(directory))) {
        if (chosen && !chosen(entry))
            continue;
        if (count == room) {
            room = room ? 2 * room : 16;
            struct dirent **larger = realloc(made, room * sizeof *made);
            if (!larger)
                abort();
            made = larger;
        }
        made[count++] = program_entry(entry);
    }
    closedir(directory);
    if (order && count)
        qsort(made, count, sizeof *made, (__compar_fn_t)order);
    struct dirent **of_program = comb_lib_malloc((count + !count) * sizeof *made);
    comb_copy_to(of_program, made, count * sizeof *made);
    free(made);
    comb_set_pointer(list, of_program);
    return (int)count;
}

int comb_lib_scandir(const char *restrict path, struct dirent ***restrict list, int (*chosen)(const struct dirent *),
                     int (*order)(const struct dirent **, const struct dirent **))
{
    COMB_DESK(desk);
    DIR *directory = opendir(comb_own_text(&desk, path));
    return directory ? scan(directory, list, chosen, order) : -1;
}
COMB_SAME_TYPE(scandir);
COMB_ALIAS(scandir64, scandir);

static int by_name(const struct dirent **one, const struct dirent **other, int (*compare)(const char *, const char *))
{
    COMB_DESK(desk);
    const struct dirent *left = comb_pointer(one), *right = comb_pointer(other);
    return compare(comb_own_text(&desk, left->d_name), comb_own_text(&desk, right->d_name));
}

int comb_lib_alphasort(const struct dirent **one, const struct dirent **other)
{
    return by_name(one, other, strcoll);
}
COMB_SAME_TYPE(alphasort);
COMB_ALIAS(alphasort64, alphasort);

int comb_lib_versionsort(const struct dirent **one, const struct dirent **other)
{
    return by_name(one, other, strverscmp);
}
COMB_SAME_TYPE(versionsort);
COMB_ALIAS(versionsort64, versionsort);

/* The program's function gets paths and structures of libc's; no memory of the program's is held meanwhile. */
COMB_WRAP(int, ftw, TEXT(path), VALUE(__ftw_func_t, visit), VALUE(int, descriptors));
COMB_ALIAS(ftw64, ftw);
COMB_WRAP(int, nftw, TEXT(path), VALUE(__nftw_func_t, visit), VALUE(int, descriptors), VALUE(int, flags));
COMB_ALIAS(nftw64, nftw);
