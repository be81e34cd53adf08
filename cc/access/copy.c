/* Copies between shared and private memory, in pieces that a fence can wait for. */
#include "comb_access.h"
#include "comb_state.h"

#include <string.h>

/* A fence waits for one piece: some 200 ns. */
#define PIECE_BYTES 4096

struct comb_range comb_images[COMB_IMAGES_MOST];
int comb_image_count;

static size_t piece_of(size_t bytes)
{
    return bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
}

void comb_copy_from(void *own, const void *shared, size_t bytes)
{
    while (bytes > 0) {
        size_t piece = piece_of(bytes);
        comb_pin(&(struct comb_need){shared, piece, 0}, 1);
        memcpy(own, shared, piece);
        comb_unpin();
        own = (char *)own + piece;
        shared = (const char *)shared + piece;
        bytes -= piece;
    }
}

void comb_copy_to(void *shared, const void *own, size_t bytes)
{
    while (bytes > 0) {
        size_t piece = piece_of(bytes);
        comb_pin(&(struct comb_need){shared, piece, 1}, 1);
        memcpy(shared, own, piece);
        comb_unpin();
        own = (const char *)own + piece;
        shared = (char *)shared + piece;
        bytes -= piece;
    }
}

size_t comb_length(const char *shared, size_t most)
{
    size_t length = 0;
    while (length < most) {
        /* No further than the string's own block: the next one may be another's, or no memory at all. */
        size_t block = (size_t)1 << COMB_STATE_SHIFT;
        size_t piece = block - (uintptr_t)(shared + length) % block;
        if (piece > most - length)
            piece = most - length;
        comb_pin(&(struct comb_need){shared + length, piece, 0}, 1);
        size_t here = strnlen(shared + length, piece);
        comb_unpin();
        length += here;
        if (here < piece)
            return length;
    }
    return most;
}

int comb_is_shared(const void *address)
{
    uintptr_t number = (uintptr_t)address;
    if (number >= COMB_HEAP_START && number < COMB_HEAP_END)
        return 1;
    for (int index = 0; index < comb_image_count; index++)
        if (number >= comb_images[index].start && number < comb_images[index].end)
            return 1;
    return 0;
}
