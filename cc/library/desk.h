/* A desk: private memory on which a wrapper lays out what libc is to read or write, for as long as one call lasts.
 *
 * libc's own loads and stores must not meet blocks that are not here, and it may wait for long, so nothing can be pinned
 * meanwhile. What is private already is handed on as it is. */
#ifndef COMB_DESK_H
#define COMB_DESK_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "../access/comb_access.h"

/* Enough for a path or a few structures; what is longer comes from libc's malloc. */
enum { COMB_DESK_BYTES = 640 };

struct comb_sheet;

struct comb_desk {
    size_t used;
    struct comb_sheet *sheets;
    _Alignas(16) char room[COMB_DESK_BYTES];
};

/* Cleared at the end of the wrapper, on every way out. */
#define COMB_DESK(desk)                                             \
    struct comb_desk desk __attribute__((cleanup(comb_desk_clear))); \
    desk.used = 0, desk.sheets = NULL

void comb_desk_clear(struct comb_desk *desk);

/* Room of its own, aligned for anything; never NULL. */
void *comb_desk_room(struct comb_desk *desk, size_t bytes);

/* What is at `from` as private memory: `from` itself, or a copy. NULL stays NULL. */
void *comb_own(struct comb_desk *desk, const void *from, size_t bytes);
const char *comb_own_text(struct comb_desk *desk, const char *from);
/* At most `most` characters; the copy ends with a zero character in any case. */
const char *comb_own_text_most(struct comb_desk *desk, const char *from, size_t most);
const wchar_t *comb_own_wide(struct comb_desk *desk, const wchar_t *from);
/* Signals that are to be blocked, without Comb's own: always a copy. */
const sigset_t *comb_own_signals(struct comb_desk *desk, const sigset_t *from);
/* Texts up to a NULL pointer, as for exec and getopt. */
char **comb_own_texts(struct comb_desk *desk, char *const *from);

/* Room for what libc will write to `to`: `to` itself, or memory with zeros in its first bytes. NULL stays NULL. */
void *comb_own_room(struct comb_desk *desk, void *to, size_t bytes);

/* What libc wrote goes where it belongs; nothing happens if that is where it wrote. Keeps errno. */
void comb_give_back(void *to, const void *own, size_t bytes);

/* strlen + 1 of text that libc wrote, or 0 where it failed. */
size_t comb_text_bytes(const char *own, int is_good);

#endif
