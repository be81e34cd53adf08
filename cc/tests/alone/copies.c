/* What the compiler itself calls, for a program that runs alone or under the thief. */
#include "comb_access.h"

#include <stdint.h>
#include <string.h>

void *comb_lib_memcpy(void *to, const void *from, size_t bytes);
void *comb_lib_memmove(void *to, const void *from, size_t bytes);
void *comb_lib_memset(void *to, int byte, size_t bytes);

/* Source and target together fit in one batch. */
#define PIECE_BYTES 4096

static void copy_piece(char *to, const char *from, size_t bytes)
{
    comb_pin((struct comb_need[]){{from, bytes, 0}, {to, bytes, 1}}, 2);
    memmove(to, from, bytes);
    comb_unpin();
}

void *comb_lib_memmove(void *to, const void *from, size_t bytes)
{
    int is_upwards = (uintptr_t)to <= (uintptr_t)from;
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        size_t offset = is_upwards ? done : bytes - done - piece;
        copy_piece((char *)to + offset, (const char *)from + offset, piece);
        done += piece;
    }
    return to;
}

void *comb_lib_memcpy(void *to, const void *from, size_t bytes)
{
    return comb_lib_memmove(to, from, bytes);
}

void *comb_lib_memset(void *to, int byte, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        comb_pin(&(struct comb_need){(char *)to + done, piece, 1}, 1);
        memset((char *)to + done, byte, piece);
        comb_unpin();
        done += piece;
    }
    return to;
}
