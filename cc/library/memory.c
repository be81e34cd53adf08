/* mem* and b*: in pieces under pins, with libc's own code on each piece. */
#include "wrap.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "pinned.h"

/* Two ranges are pinned together, at most COMB_PINNED_MOST in all. */
enum { PIECE = COMB_PINNED_MOST / 2 };

static void copy_piece(char *to, const char *from, size_t bytes)
{
    comb_hold_both(from, bytes, to, bytes, 1);
    memmove(to, from, bytes);
    comb_release();
}

static void copy_upwards(char *to, const char *from, size_t bytes)
{
    for (; bytes > PIECE; bytes -= PIECE, to += PIECE, from += PIECE)
        copy_piece(to, from, PIECE);
    copy_piece(to, from, bytes);
}

static void copy_downwards(char *to, const char *from, size_t bytes)
{
    for (; bytes > PIECE; bytes -= PIECE)
        copy_piece(to + bytes - PIECE, from + bytes - PIECE, PIECE);
    copy_piece(to, from, bytes);
}

void *comb_lib_memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    if (__builtin_expect(bytes > PIECE, 0)) {
        copy_upwards(to, from, bytes);
    } else if (bytes) {
        comb_hold_both(from, bytes, to, bytes, 1);
        memcpy(to, from, bytes);
        comb_release();
    }
    return to;
}
COMB_SAME_TYPE(memcpy);

void *comb_lib_memmove(void *to, const void *from, size_t bytes)
{
    if (!bytes)
        return to;
    /* As unsigned: `to` lies behind `from`, within what is still to be read. */
    if ((size_t)((char *)to - (const char *)from) < bytes)
        copy_downwards(to, from, bytes);
    else
        copy_upwards(to, from, bytes);
    return to;
}
COMB_SAME_TYPE(memmove);

void *comb_lib_mempcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    return (char *)comb_lib_memcpy(to, from, bytes) + bytes;
}
COMB_SAME_TYPE(mempcpy);
COMB_ALIAS(__mempcpy, mempcpy);

void comb_lib_bcopy(const void *from, void *to, size_t bytes)
{
    comb_lib_memmove(to, from, bytes);
}
COMB_SAME_TYPE(bcopy);

void *comb_lib_memset(void *to, int byte, size_t bytes)
{
    for (char *at = to; bytes;) {
        size_t piece = bytes < COMB_PINNED_MOST ? bytes : COMB_PINNED_MOST;
        comb_hold(at, piece, 1);
        memset(at, byte, piece);
        comb_release();
        at += piece, bytes -= piece;
    }
    return to;
}
COMB_SAME_TYPE(memset);

void comb_lib_bzero(void *to, size_t bytes)
{
    comb_lib_memset(to, 0, bytes);
}
COMB_SAME_TYPE(bzero);
COMB_ALIAS(explicit_bzero, bzero);

int comb_lib_memcmp(const void *one, const void *other, size_t bytes)
{
    for (const char *left = one, *right = other; bytes;) {
        size_t piece = comb_hold_runs(left, right, bytes);
        int order = memcmp(left, right, piece);
        comb_release();
        if (order)
            return order;
        left += piece, right += piece, bytes -= piece;
    }
    return 0;
}
COMB_SAME_TYPE(memcmp);
COMB_ALIAS(bcmp, memcmp);

void *comb_lib_memchr(const void *from, int byte, size_t bytes)
{
    for (const char *at = from; bytes;) {
        size_t piece = comb_hold_run(at, bytes);
        void *found = memchr(at, byte, piece);
        comb_release();
        if (found)
            return found;
        at += piece, bytes -= piece;
    }
    return NULL;
}
COMB_SAME_TYPE(memchr);

void *comb_lib_rawmemchr(const void *from, int byte)
{
    return comb_lib_memchr(from, byte, SIZE_MAX);
}
COMB_SAME_TYPE(rawmemchr);
COMB_ALIAS(__rawmemchr, rawmemchr);

void *comb_lib_memrchr(const void *from, int byte, size_t bytes)
{
    while (bytes) {
        size_t piece = bytes < PIECE ? bytes : PIECE;
        const char *at = (const char *)from + bytes - piece;
        comb_hold(at, piece, 0);
        void *found = memrchr(at, byte, piece);
        comb_release();
        if (found)
            return found;
        bytes -= piece;
    }
    return NULL;
}
COMB_SAME_TYPE(memrchr);

void *comb_lib_memccpy(void *restrict to, const void *restrict from, int byte, size_t bytes)
{
    const char *found = comb_lib_memchr(from, byte, bytes);
    size_t copied = found ? (size_t)(found - (const char *)from) + 1 : bytes;
    comb_lib_memcpy(to, from, copied);
    return found ? (char *)to + copied : NULL;
}
COMB_SAME_TYPE(memccpy);

static int begins_with(const char *text, const char *part, size_t bytes)
{
    return comb_lib_memcmp(text, part, bytes) == 0;
}

void *comb_lib_memmem(const void *text, size_t text_bytes, const void *part, size_t part_bytes)
{
    if (!part_bytes)
        return (void *)text;
    if (text_bytes < part_bytes)
        return NULL;
    char first;
    comb_copy_from(&first, part, 1);
    const char *at = text, *last = at + text_bytes - part_bytes;
    while (at <= last && (at = comb_lib_memchr(at, first, (size_t)(last - at) + 1))) {
        if (begins_with(at, part, part_bytes))
            return (void *)at;
        at++;
    }
    return NULL;
}
COMB_SAME_TYPE(memmem);

void *comb_lib_memfrob(void *memory, size_t bytes)
{
    char *at = memory;
    for (size_t left = bytes; left;) {
        size_t piece = left < COMB_PINNED_MOST ? left : COMB_PINNED_MOST;
        comb_hold(at, piece, 1);
        memfrob(at, piece);
        comb_release();
        at += piece, left -= piece;
    }
    return memory;
}
COMB_SAME_TYPE(memfrob);

void comb_lib_swab(const void *restrict from, void *restrict to, ssize_t bytes)
{
    char pair[2];
    for (const char *at = from; bytes > 1; bytes -= 2, at += 2, to = (char *)to + 2) {
        comb_copy_from(pair, at, 2);
        char swapped[2] = {pair[1], pair[0]};
        comb_copy_to(to, swapped, 2);
    }
}
extern __typeof__(comb_lib_swab) swab; /* <unistd.h> has it */
