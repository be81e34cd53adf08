/* What this library asks of other cells. */
#ifndef COMB_SERVICES_H
#define COMB_SERVICES_H

#include <stddef.h>

/* From 0 on; the runtime keeps its own apart from them. */
enum {
    COMB_SERVICE_FORWARD = 0,
    COMB_SERVICE_FILE_READ,
    COMB_SERVICE_FILE_WRITE,
};

/* No more bytes go one way with one call. */
enum { COMB_CALL_BYTES_MOST = 64 << 10, COMB_CALL_PIECE = 32 << 10 };

long comb_serve_forward(const void *in, size_t in_bytes, void *out, size_t out_room, size_t *out_bytes);

#endif
