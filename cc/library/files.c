#include "wrap.h"

#include "files.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "reach.h"

/* Standard streams are cell 0's, at the same address in all cells. They stand in private memory, and never change. */
static struct comb_file standard[3];

FILE *comb_lib_stdin = &standard[0].shape;
FILE *comb_lib_stdout = &standard[1].shape;
FILE *comb_lib_stderr = &standard[2].shape;

static int standard_index(FILE *stream)
{
    size_t distance = (size_t)((char *)stream - (char *)standard);
    return distance < sizeof standard ? (int)(distance / sizeof *standard) : -1;
}

static FILE *standard_here(int index)
{
    return index == 0 ? stdin : index == 1 ? stdout : stderr;
}

struct comb_file comb_file_behind(FILE *stream)
{
    struct comb_file file = {.real = stream, .cell = comb_cell()};
    int index = standard_index(stream);
    if (index >= 0) {
        /* libc's three have the same addresses in all cells, as all code and data of libraries. */
        file.real = standard_here(index);
        file.cell = 0;
    } else if (comb_is_shared(stream)) {
        size_t behind_shape = offsetof(struct comb_file, real);
        comb_copy_from(&file.real, (char *)stream + behind_shape, sizeof file - behind_shape);
    }
    return file;
}

FILE *comb_file_here(FILE *stream)
{
    struct comb_file file = comb_file_behind(stream);
    return file.cell == comb_cell() ? file.real : comb_proxy_of(stream, &file);
}

FILE *comb_file_made(FILE *real)
{
    static _Atomic uint64_t serials;
    if (!real)
        return NULL;
    struct comb_file file = {.real = real, .cell = comb_cell(), .serial = ++serials};
    struct comb_file *made = comb_lib_malloc(sizeof file);
    if (!made) {
        fclose(real);
        return NULL;
    }
    /* A program that runs alone has libc's memory, and needs no more than libc's FILE. */
    if (!comb_is_shared(made)) {
        comb_lib_free(made);
        return real;
    }
    comb_copy_to(made, &file, sizeof file);
    return &made->shape;
}

void comb_file_gone(FILE *stream)
{
    if (standard_index(stream) < 0 && comb_is_shared(stream))
        comb_lib_free(stream);
}
