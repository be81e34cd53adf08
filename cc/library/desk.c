#include "wrap.h"

#include "desk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../access/comb_signals.h"
#include "reach.h"

struct comb_sheet {
    struct comb_sheet *next;
    size_t unused; /* keeps what follows aligned for anything */
    char room[];
};

static void *sheet(struct comb_desk *desk, size_t bytes)
{
    struct comb_sheet *more = malloc(sizeof *more + bytes);
    /* The program asked libc for something that needs no memory there, so there is no error to return. */
    if (!more) {
        fputs("comb: no memory for a copy of what a libc function works on\n", stderr);
        abort();
    }
    more->next = desk->sheets;
    desk->sheets = more;
    return more->room;
}

void *comb_desk_room(struct comb_desk *desk, size_t bytes)
{
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (rounded < bytes || rounded > COMB_DESK_BYTES - desk->used)
        return sheet(desk, bytes);
    void *room = desk->room + desk->used;
    desk->used += rounded;
    return room;
}

void comb_desk_clear(struct comb_desk *desk)
{
    for (struct comb_sheet *next; desk->sheets; desk->sheets = next) {
        next = desk->sheets->next;
        free(desk->sheets);
    }
}

void *comb_own(struct comb_desk *desk, const void *from, size_t bytes)
{
    if (!from || !bytes || !comb_is_shared(from))
        return (void *)from;
    void *own = comb_desk_room(desk, bytes);
    comb_copy_from(own, from, bytes);
    return own;
}

const char *comb_own_text_most(struct comb_desk *desk, const char *from, size_t most)
{
    if (!from || !comb_is_shared(from))
        return from;
    size_t length = comb_length(from, most);
    char *own = comb_desk_room(desk, length + 1);
    comb_copy_from(own, from, length);
    own[length] = 0;
    return own;
}

const char *comb_own_text(struct comb_desk *desk, const char *from)
{
    return comb_own_text_most(desk, from, SIZE_MAX - 1);
}

const wchar_t *comb_own_wide(struct comb_desk *desk, const wchar_t *from)
{
    if (!from || !comb_is_shared(from))
        return from;
    return comb_own(desk, from, (comb_lib_wcslen(from) + 1) * sizeof *from);
}

const sigset_t *comb_own_signals(struct comb_desk *desk, const sigset_t *from)
{
    if (!from)
        return NULL;
    sigset_t *own = comb_desk_room(desk, sizeof *own);
    memcpy(own, comb_own(desk, from, sizeof *own), sizeof *own);
    comb_spare_ours(own);
    return own;
}

char **comb_own_texts(struct comb_desk *desk, char *const *from)
{
    if (!from)
        return NULL;
    size_t count = 0;
    while (comb_pointer(from + count))
        count++;
    char **own = comb_desk_room(desk, (count + 1) * sizeof *own);
    comb_copy_from(own, from, (count + 1) * sizeof *own);
    for (size_t at = 0; at < count; at++)
        own[at] = (char *)comb_own_text(desk, own[at]);
    own[count] = NULL;
    return own;
}

void *comb_own_room(struct comb_desk *desk, void *to, size_t bytes)
{
    if (!to || !comb_is_shared(to))
        return to;
    char *own = comb_desk_room(desk, bytes);
    memset(own, 0, bytes < 16 ? bytes : 16);
    return own;
}

void comb_give_back(void *to, const void *own, size_t bytes)
{
    if (to == own || !to || !bytes)
        return;
    int error = errno;
    comb_copy_to(to, own, bytes);
    errno = error;
}

size_t comb_text_bytes(const char *own, int is_good)
{
    return own && is_good ? strlen(own) + 1 : 0;
}
