/* Opening, closing, and what a stream is. */
#include "wrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "files.h"
#include "reach.h"
#include "undeclared.h"

FILE *comb_lib_fopen(const char *restrict path, const char *restrict mode)
{
    COMB_DESK(desk);
    return comb_file_made(fopen(comb_own_text(&desk, path), comb_own_text(&desk, mode)));
}
COMB_SAME_TYPE(fopen);
COMB_ALIAS(fopen64, fopen);

static FILE *open_descriptor(int descriptor, const char *mode)
{
    return comb_file_made(fdopen(comb_descriptor_here(descriptor, &(unsigned){COMB_NO_CELL}), mode));
}

FILE *comb_lib_fdopen(int descriptor, const char *mode)
{
    COMB_DESK(desk);
    unsigned cell = COMB_NO_CELL;
    const char *own = comb_own_text(&desk, mode);
    comb_descriptor_here(descriptor, &cell);
    if (comb_is_here(cell))
        return open_descriptor(descriptor, own);
    struct comb_part parts[] = {{.value = descriptor}, {.own = (void *)own, .in = comb_text_bytes(own, 1)}};
    long answer = comb_forward(cell, (void (*)(void))open_descriptor, parts, 2);
    return answer == -1 ? NULL : (FILE *)answer;
}
COMB_SAME_TYPE(fdopen);

FILE *comb_lib_tmpfile(void)
{
    return comb_file_made(tmpfile());
}
COMB_SAME_TYPE(tmpfile);
COMB_ALIAS(tmpfile64, tmpfile);

int comb_lib_fclose(FILE *stream)
{
    struct comb_file file = comb_file_behind(stream);
    int answer;
    if (file.cell == comb_cell()) {
        answer = fclose(file.real);
    } else {
        comb_proxy_close(stream);
        struct comb_part parts[] = {{.value = (long)file.real}};
        answer = (int)comb_forward(file.cell, (void (*)(void))fclose, parts, 1);
    }
    comb_file_gone(stream);
    return answer;
}
COMB_SAME_TYPE(fclose);

/* libc's FILE stays the same, so the program's does. */
FILE *comb_lib_freopen(const char *restrict path, const char *restrict mode, FILE *restrict stream)
{
    COMB_DESK(desk);
    const char *own_path = comb_own_text(&desk, path), *own_mode = comb_own_text(&desk, mode);
    struct comb_file file = comb_file_behind(stream);
    if (file.cell == comb_cell())
        return freopen(own_path, own_mode, file.real) ? stream : NULL;
    comb_proxy_close(stream);
    struct comb_part parts[] = {{.own = (void *)own_path, .in = comb_text_bytes(own_path, 1)},
                                {.own = (void *)own_mode, .in = comb_text_bytes(own_mode, 1)},
                                {.value = (long)file.real}};
    long answer = comb_forward(file.cell, (void (*)(void))freopen, parts, 3);
    return answer == 0 || answer == -1 ? NULL : stream;
}
COMB_SAME_TYPE(freopen);
COMB_ALIAS(freopen64, freopen);

extern void comb_library_settle(void);

int comb_lib_fflush(FILE *stream)
{
    if (!stream) {
        comb_library_settle();
        return fflush(NULL);
    }
    struct comb_file file = comb_file_behind(stream);
    return file.cell == comb_cell() ? fflush(file.real) : comb_proxy_flush(stream);
}
COMB_SAME_TYPE(fflush);

int comb_lib_fflush_unlocked(FILE *stream)
{
    return comb_lib_fflush(stream);
}
COMB_SAME_TYPE(fflush_unlocked);

static long number_there(FILE *file)
{
    return comb_descriptor_given(fileno(file));
}

int comb_lib_fileno(FILE *stream)
{
    struct comb_file file = comb_file_behind(stream);
    struct comb_part parts[] = {{.value = (long)file.real}};
    return (int)(file.cell == comb_cell() ? number_there(file.real)
                                          : comb_forward(file.cell, (void (*)(void))number_there, parts, 1));
}
COMB_SAME_TYPE(fileno);
COMB_ALIAS(fileno_unlocked, fileno);

/* The program's buffer is not used: libc would write to it whenever it likes. */
int comb_lib_setvbuf(FILE *restrict stream, char *restrict buffer, int mode, size_t bytes)
{
    (void)buffer;
    struct comb_file file = comb_file_behind(stream);
    if (file.cell == comb_cell())
        return setvbuf(file.real, NULL, mode, bytes);
    struct comb_part parts[] = {{.value = (long)file.real}, {.value = 0}, {.value = mode}, {.value = (long)bytes}};
    int outcome = (int)comb_forward(file.cell, (void (*)(void))setvbuf, parts, 4);
    comb_proxy_close(stream); /* the next one is like the opener's */
    return outcome;
}
COMB_SAME_TYPE(setvbuf);

void comb_lib_setbuffer(FILE *restrict stream, char *restrict buffer, size_t bytes)
{
    comb_lib_setvbuf(stream, NULL, buffer ? _IOFBF : _IONBF, bytes);
}
COMB_SAME_TYPE(setbuffer);

void comb_lib_setbuf(FILE *restrict stream, char *restrict buffer)
{
    comb_lib_setbuffer(stream, buffer, BUFSIZ);
}
COMB_SAME_TYPE(setbuf);

void comb_lib_setlinebuf(FILE *stream)
{
    comb_lib_setvbuf(stream, NULL, _IOLBF, 0);
}
COMB_SAME_TYPE(setlinebuf);

/* All that is libc's own function on this cell's FILE. */
#define ON_FILE(result, name)                     \
    result comb_lib_##name(FILE *stream)          \
    {                                             \
        return name(comb_file_here(stream));      \
    }                                             \
    COMB_SAME_TYPE(name)
ON_FILE(long, ftell);
ON_FILE(off_t, ftello);
ON_FILE(off64_t, ftello64);
ON_FILE(void, rewind);
ON_FILE(int, feof);
ON_FILE(int, ferror);
ON_FILE(void, clearerr);
ON_FILE(int, feof_unlocked);
ON_FILE(int, ferror_unlocked);
ON_FILE(void, clearerr_unlocked);
ON_FILE(void, flockfile);
ON_FILE(int, ftrylockfile);
ON_FILE(void, funlockfile);
ON_FILE(size_t, __fbufsize);
ON_FILE(int, __freading);
ON_FILE(int, __fwriting);
ON_FILE(int, __freadable);
ON_FILE(int, __fwritable);
ON_FILE(int, __flbf);
ON_FILE(void, __fpurge);
ON_FILE(size_t, __fpending);

int comb_lib_fseek(FILE *stream, long offset, int from)
{
    return fseek(comb_file_here(stream), offset, from);
}
COMB_SAME_TYPE(fseek);
COMB_ALIAS(fseeko, fseek);
COMB_ALIAS(fseeko64, fseek);

int comb_lib___fsetlocking(FILE *stream, int type)
{
    return __fsetlocking(comb_file_here(stream), type);
}
COMB_SAME_TYPE(__fsetlocking);

int comb_lib_fwide(FILE *stream, int mode)
{
    return fwide(comb_file_here(stream), mode);
}
COMB_SAME_TYPE(fwide);

int comb_lib_fgetpos(FILE *restrict stream, fpos_t *restrict place)
{
    fpos_t own;
    int answer = fgetpos(comb_file_here(stream), &own);
    if (answer == 0)
        comb_copy_to(place, &own, sizeof own);
    return answer;
}
COMB_SAME_TYPE(fgetpos);

int comb_lib_fsetpos(FILE *stream, const fpos_t *place)
{
    fpos_t own;
    comb_copy_from(&own, place, sizeof own);
    return fsetpos(comb_file_here(stream), &own);
}
COMB_SAME_TYPE(fsetpos);

int comb_lib_fgetpos64(FILE *restrict stream, fpos64_t *restrict place)
{
    return comb_lib_fgetpos(stream, (fpos_t *)place);
}
COMB_SAME_TYPE(fgetpos64);

int comb_lib_fsetpos64(FILE *stream, const fpos64_t *place)
{
    return comb_lib_fsetpos(stream, (const fpos_t *)place);
}
COMB_SAME_TYPE(fsetpos64);
