/* Characters, lines and blocks of streams. */
#include "wrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "files.h"
#include "reach.h"
#include "undeclared.h"

/* libc's own function on this cell's FILE, of one stream, and of the standard one. */
#define GETS_ONE(result, name)                                        \
    result comb_lib_##name(FILE *stream)                              \
    {                                                                 \
        return name(comb_file_here(stream));                          \
    }                                                                 \
    COMB_SAME_TYPE(name)
GETS_ONE(int, fgetc);
GETS_ONE(int, fgetc_unlocked);
GETS_ONE(int, getc_unlocked);
GETS_ONE(int, getw);
GETS_ONE(wint_t, fgetwc);
GETS_ONE(wint_t, fgetwc_unlocked);
COMB_ALIAS(getc, fgetc);
COMB_ALIAS(_IO_getc, fgetc);
COMB_ALIAS(getwc, fgetwc);
COMB_ALIAS(getwc_unlocked, fgetwc_unlocked);
/* What macros call when a FILE's buffer is empty, which that of ours always is. */
COMB_ALIAS(__uflow, fgetc);

#define PUTS_ONE(result, type, name)                                  \
    result comb_lib_##name(type character, FILE *stream)              \
    {                                                                 \
        return name(character, comb_file_here(stream));               \
    }                                                                 \
    COMB_SAME_TYPE(name)
PUTS_ONE(int, int, fputc);
PUTS_ONE(int, int, fputc_unlocked);
PUTS_ONE(int, int, putc_unlocked);
PUTS_ONE(int, int, putw);
PUTS_ONE(int, int, ungetc);
PUTS_ONE(wint_t, wchar_t, fputwc);
PUTS_ONE(wint_t, wchar_t, fputwc_unlocked);
PUTS_ONE(wint_t, wint_t, ungetwc);
COMB_ALIAS(putc, fputc);
COMB_ALIAS(_IO_putc, fputc);
COMB_ALIAS(putwc, fputwc);
COMB_ALIAS(putwc_unlocked, fputwc_unlocked);

int comb_lib___overflow(FILE *stream, int character)
{
    return fputc(character, comb_file_here(stream));
}
COMB_SAME_TYPE(__overflow);

#define GETS_STANDARD(result, name, from)                             \
    result comb_lib_##name(void)                                      \
    {                                                                 \
        return from(comb_file_here(comb_lib_stdin));                  \
    }                                                                 \
    COMB_SAME_TYPE(name)
extern FILE *comb_lib_stdin, *comb_lib_stdout, *comb_lib_stderr;
GETS_STANDARD(int, getchar, getc);
GETS_STANDARD(int, getchar_unlocked, getc_unlocked);
GETS_STANDARD(wint_t, getwchar, getwc);
GETS_STANDARD(wint_t, getwchar_unlocked, getwc_unlocked);

#define PUTS_STANDARD(result, type, name, to)                         \
    result comb_lib_##name(type character)                            \
    {                                                                 \
        return to(character, comb_file_here(comb_lib_stdout));        \
    }                                                                 \
    COMB_SAME_TYPE(name)
PUTS_STANDARD(int, int, putchar, putc);
PUTS_STANDARD(int, int, putchar_unlocked, putc_unlocked);
PUTS_STANDARD(wint_t, wchar_t, putwchar, putwc);
PUTS_STANDARD(wint_t, wchar_t, putwchar_unlocked, putwc_unlocked);

#define PUTS_TEXT(name, character, own)                                       \
    int comb_lib_##name(const character *restrict text, FILE *restrict stream) \
    {                                                                         \
        COMB_DESK(desk);                                                      \
        return name(own(&desk, text), comb_file_here(stream));                \
    }                                                                         \
    COMB_SAME_TYPE(name)
PUTS_TEXT(fputs, char, comb_own_text);
PUTS_TEXT(fputs_unlocked, char, comb_own_text);
PUTS_TEXT(fputws, wchar_t, comb_own_wide);
PUTS_TEXT(fputws_unlocked, wchar_t, comb_own_wide);

int comb_lib_puts(const char *text)
{
    COMB_DESK(desk);
    const char *own = comb_own_text(&desk, text);
    FILE *file = comb_file_here(comb_lib_stdout);
    flockfile(file);
    int answer = fputs_unlocked(own, file) == EOF || putc_unlocked('\n', file) == EOF ? EOF : (int)strlen(own) + 1;
    funlockfile(file);
    return answer;
}
COMB_SAME_TYPE(puts);

/* A line, of which libc only wrote what is given back. */
#define GETS_LINE(name, character, text_length)                                                \
    character *comb_lib_##name(character *restrict to, int room, FILE *restrict stream)        \
    {                                                                                          \
        COMB_DESK(desk);                                                                       \
        character *own = comb_own_room(&desk, to, room > 0 ? (size_t)room * sizeof *to : 0);   \
        character *answer = name(own, room, comb_file_here(stream));                           \
        comb_give_back(to, own, answer ? (text_length(own) + 1) * sizeof *to : 0);             \
        return answer ? to : NULL;                                                             \
    }                                                                                          \
    COMB_SAME_TYPE(name)

/* A line may hold zeros: how far libc wrote, the last zero of the room says, if there was none before. */
static size_t line_bytes(const char *own, size_t room)
{
    while (room && own[room - 1])
        room--;
    return room;
}

#define GETS_BYTES(name)                                                                       \
    char *comb_lib_##name(char *restrict to, int room, FILE *restrict stream)                  \
    {                                                                                          \
        COMB_DESK(desk);                                                                       \
        if (!comb_is_shared(to) || room <= 0)                                                  \
            return name(to, room, comb_file_here(stream));                                     \
        /* Ones, not zeros: the zero that ends the line is the last one. */                    \
        char *own = memset(comb_desk_room(&desk, (size_t)room), 1, (size_t)room);              \
        char *answer = name(own, room, comb_file_here(stream));                                \
        comb_give_back(to, own, answer ? line_bytes(own, (size_t)room) : 0);                   \
        return answer ? to : NULL;                                                             \
    }                                                                                          \
    COMB_SAME_TYPE(name)
GETS_BYTES(fgets);
GETS_BYTES(fgets_unlocked);
GETS_LINE(fgetws, wchar_t, wcslen);
GETS_LINE(fgetws_unlocked, wchar_t, wcslen);

/* libc reads the line into a buffer that this thread keeps; the program's grows as libc's would. */
ssize_t comb_lib_getdelim(char **restrict line, size_t *restrict room, int delimiter, FILE *restrict stream)
{
    static _Thread_local char *own;
    static _Thread_local size_t own_room;
    if (!line || !room) {
        errno = EINVAL;
        return -1;
    }
    ssize_t length = getdelim(&own, &own_room, delimiter, comb_file_here(stream));
    int error = errno;
    char *to = comb_pointer(line);
    size_t has;
    comb_copy_from(&has, room, sizeof has);
    /* Also at the end of the file there is a buffer afterwards. */
    size_t needed = length < 0 ? 1 : (size_t)length + 1;
    if (!to || has < needed) {
        size_t doubled = has * 2 > 120 ? has * 2 : 120;
        has = needed > doubled ? needed : doubled;
        char *larger = comb_lib_realloc(to, has);
        if (!larger)
            return -1;
        comb_set_pointer(line, to = larger);
        comb_copy_to(room, &has, sizeof has);
    }
    if (length >= 0)
        comb_copy_to(to, own, needed);
    errno = error;
    return length;
}
COMB_SAME_TYPE(getdelim);
COMB_ALIAS(__getdelim, getdelim);

ssize_t comb_lib_getline(char **restrict line, size_t *restrict room, FILE *restrict stream)
{
    return comb_lib_getdelim(line, room, '\n', stream);
}
COMB_SAME_TYPE(getline);

/* Blocks go through a piece of private memory; while they do, the stream is this thread's. */

enum { PIECE = 32 << 10 };

static size_t read_block(char *to, size_t bytes, FILE *file)
{
    if (!comb_is_shared(to))
        return fread_unlocked(to, 1, bytes, file);
    COMB_DESK(desk);
    size_t done = 0, room = bytes < PIECE ? bytes : PIECE;
    char *own = comb_desk_room(&desk, room);
    while (done < bytes) {
        size_t piece = bytes - done < room ? bytes - done : room;
        size_t got = fread_unlocked(own, 1, piece, file);
        comb_copy_to(to + done, own, got);
        done += got;
        if (got < piece)
            break;
    }
    return done;
}

static size_t write_block(const char *from, size_t bytes, FILE *file)
{
    if (!comb_is_shared(from))
        return fwrite_unlocked(from, 1, bytes, file);
    COMB_DESK(desk);
    size_t done = 0, room = bytes < PIECE ? bytes : PIECE;
    char *own = comb_desk_room(&desk, room);
    while (done < bytes) {
        size_t piece = bytes - done < room ? bytes - done : room;
        comb_copy_from(own, from + done, piece);
        size_t put = fwrite_unlocked(own, 1, piece, file);
        done += put;
        if (put < piece)
            break;
    }
    return done;
}

size_t comb_lib_fread_unlocked(void *restrict to, size_t bytes, size_t count, FILE *restrict stream)
{
    size_t total = bytes * count;
    size_t done = total ? read_block(to, total, comb_file_here(stream)) : 0;
    return done == total && total ? count : bytes ? done / bytes : 0;
}
COMB_SAME_TYPE(fread_unlocked);

size_t comb_lib_fwrite_unlocked(const void *restrict from, size_t bytes, size_t count, FILE *restrict stream)
{
    size_t total = bytes * count;
    size_t done = total ? write_block(from, total, comb_file_here(stream)) : 0;
    return done == total && total ? count : bytes ? done / bytes : 0;
}
COMB_SAME_TYPE(fwrite_unlocked);

size_t comb_lib_fread(void *restrict to, size_t bytes, size_t count, FILE *restrict stream)
{
    FILE *file = comb_file_here(stream);
    flockfile(file);
    size_t done = comb_lib_fread_unlocked(to, bytes, count, stream);
    funlockfile(file);
    return done;
}
COMB_SAME_TYPE(fread);

size_t comb_lib_fwrite(const void *restrict from, size_t bytes, size_t count, FILE *restrict stream)
{
    FILE *file = comb_file_here(stream);
    flockfile(file);
    size_t done = comb_lib_fwrite_unlocked(from, bytes, count, stream);
    funlockfile(file);
    return done;
}
COMB_SAME_TYPE(fwrite);
