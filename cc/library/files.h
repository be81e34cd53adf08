/* FILE* of a spread program: an object in memory that all cells share, which says which cell has libc's own FILE.
 *
 * On that cell a wrapper calls libc with it. On another it calls libc with a proxy: a FILE of this cell whose bytes come and
 * go in pieces by calls to the opener. So every wrapper of stdio is libc's function on comb_file_here(stream). */
#ifndef COMB_FILES_H
#define COMB_FILES_H

#include <stdint.h>
#include <stdio.h>

struct comb_file {
    /* What macros of <stdio.h> look at in a FILE: no room to read or write, so that they call __uflow and __overflow. */
    FILE shape;
    FILE *real;
    unsigned cell;
    /* Never used twice by one cell, so that a proxy is not taken for that of a later file at the same place. */
    uint64_t serial;
};

/* libc's FILE for the calling thread's cell. What is no stream of ours is libc's own already. */
FILE *comb_file_here(FILE *stream);

/* The program's FILE for one that libc has opened on this cell; NULL stays NULL, and so it is without memory. */
FILE *comb_file_made(FILE *real);

/* Forgets it, after libc has closed it. */
void comb_file_gone(FILE *stream);

/* The cell and FILE behind a stream of ours; the calling cell and itself for any other. */
struct comb_file comb_file_behind(FILE *stream);

/* proxies.c */
FILE *comb_proxy_of(FILE *stream, const struct comb_file *file);
void comb_proxy_close(FILE *stream);
int comb_proxy_flush(FILE *stream); /* of a stream of another cell */
long comb_serve_file_read(const void *in, size_t in_bytes, void *out, size_t out_room, size_t *out_bytes);
long comb_serve_file_write(const void *in, size_t in_bytes, void *out, size_t out_room, size_t *out_bytes);

#endif
