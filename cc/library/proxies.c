/* Files of other cells: a proxy is a FILE of libc's whose bytes are fetched from the opener, and brought to it, in pieces.
 *
 * What is written stays in the proxy until it is full, flushed or settled; what was read ahead goes back to the opener when
 * the thread lets others go on. So a file looks as if all used it in the order in which the program lets them. */
#include "wrap.h"

#include "files.h"

#include <errno.h>
#include <pthread.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

#include "reach.h"
#include "services.h"

struct proxy {
    struct proxy *next;
    FILE *stream; /* the program's */
    uint64_t serial;
    unsigned cell;
    FILE *there; /* the opener's: an address that means nothing here */
    FILE *here;
};

static pthread_mutex_t proxies_lock = PTHREAD_MUTEX_INITIALIZER;
static struct proxy *proxies;

/* The opener's side. */

struct request {
    FILE *file;
    size_t bytes; /* to read */
};

/* Waits for one byte, and then gives what is there without waiting again. */
long comb_serve_file_read(const void *in, size_t in_bytes, void *out, size_t out_room, size_t *out_bytes)
{
    struct request request;
    *out_bytes = 0;
    if (in_bytes != sizeof request) {
        errno = EPROTO;
        return -1;
    }
    memcpy(&request, in, sizeof request);
    size_t most = request.bytes < out_room ? request.bytes : out_room;
    FILE *file = request.file;
    flockfile(file);
    int first = most ? getc_unlocked(file) : EOF;
    if (first != EOF) {
        size_t ready = (size_t)(file->_IO_read_end - file->_IO_read_ptr);
        size_t more = ready < most - 1 ? ready : most - 1;
        *(char *)out = (char)first;
        *out_bytes = 1 + fread_unlocked((char *)out + 1, 1, more, file);
    }
    int failed = first == EOF && ferror_unlocked(file);
    funlockfile(file);
    return failed ? -1 : (long)*out_bytes;
}

long comb_serve_file_write(const void *in, size_t in_bytes, void *out, size_t out_room, size_t *out_bytes)
{
    struct request request;
    (void)out, (void)out_room;
    *out_bytes = 0;
    if (in_bytes < sizeof request) {
        errno = EPROTO;
        return -1;
    }
    memcpy(&request, in, sizeof request);
    return (long)fwrite((const char *)in + sizeof request, 1, in_bytes - sizeof request, request.file);
}

static long seek_there(FILE *file, long offset, long from)
{
    return fseeko(file, offset, (int)from) == 0 ? ftello(file) : -1;
}

/* Bytes that another cell has read ahead and not used. A file that cannot seek keeps as many as there were. */
static long unread_there(FILE *file, const unsigned char *bytes, long count)
{
    if (fseeko(file, -count, SEEK_CUR) == 0)
        return 0;
    while (count > 0)
        ungetc(bytes[--count], file);
    return 0;
}

/* This side. */

static ssize_t read_there(void *cookie, char *own, size_t bytes)
{
    struct proxy *proxy = cookie;
    struct request request = {proxy->there, bytes};
    size_t got;
    return comb_call(proxy->cell, COMB_SERVICE_FILE_READ, &request, sizeof request, own,
                     bytes < COMB_CALL_PIECE ? bytes : COMB_CALL_PIECE, &got);
}

static ssize_t write_there(void *cookie, const char *own, size_t bytes)
{
    struct proxy *proxy = cookie;
    struct request request = {proxy->there, 0};
    COMB_DESK(desk);
    size_t piece = bytes < COMB_CALL_PIECE ? bytes : COMB_CALL_PIECE, nothing;
    char *message = comb_desk_room(&desk, sizeof request + piece);
    memcpy(message, &request, sizeof request);
    memcpy(message + sizeof request, own, piece);
    long written = comb_call(proxy->cell, COMB_SERVICE_FILE_WRITE, message, sizeof request + piece, NULL, 0, &nothing);
    return written < 0 ? 0 : written;
}

static int seek_from_here(void *cookie, off64_t *offset, int from)
{
    struct proxy *proxy = cookie;
    struct comb_part parts[] = {{.value = (long)proxy->there}, {.value = *offset}, {.value = from}};
    long answer = comb_forward(proxy->cell, (void (*)(void))seek_there, parts, 3);
    if (answer >= 0)
        *offset = answer;
    return answer < 0 ? -1 : 0;
}

static void begin(struct proxy *proxy)
{
    cookie_io_functions_t functions = {.read = read_there, .write = write_there, .seek = seek_from_here};
    proxy->here = fopencookie(proxy, "r+", functions);
    if (!proxy->here) {
        fputs("comb: no memory for a file of another cell\n", stderr);
        abort();
    }
    /* Standard error is to be seen at once. */
    if (proxy->there == stderr)
        setvbuf(proxy->here, NULL, _IONBF, 0);
}

FILE *comb_proxy_of(FILE *stream, const struct comb_file *file)
{
    pthread_mutex_lock(&proxies_lock);
    struct proxy *proxy = proxies;
    while (proxy && proxy->stream != stream)
        proxy = proxy->next;
    if (!proxy) {
        proxy = calloc(1, sizeof *proxy);
        if (!proxy) {
            fputs("comb: no memory for a file of another cell\n", stderr);
            abort();
        }
        proxy->stream = stream;
        proxy->next = proxies;
        proxies = proxy;
    }
    if (!proxy->here || proxy->serial != file->serial || proxy->there != file->real) {
        /* The file that it was for has been closed elsewhere, after all was settled. */
        if (proxy->here) {
            __fpurge(proxy->here);
            fclose(proxy->here);
        }
        proxy->serial = file->serial, proxy->cell = file->cell, proxy->there = file->real;
        begin(proxy);
    }
    FILE *here = proxy->here;
    pthread_mutex_unlock(&proxies_lock);
    return here;
}

void comb_proxy_close(FILE *stream)
{
    pthread_mutex_lock(&proxies_lock);
    struct proxy **at = &proxies;
    while (*at && (*at)->stream != stream)
        at = &(*at)->next;
    struct proxy *proxy = *at;
    if (proxy)
        *at = proxy->next;
    pthread_mutex_unlock(&proxies_lock);
    if (proxy) {
        fclose(proxy->here);
        free(proxy);
    }
}

static void settle(struct proxy *proxy)
{
    FILE *here = proxy->here;
    flockfile(here);
    size_t ahead = __freading(here) ? (size_t)(here->_IO_read_end - here->_IO_read_ptr) : 0;
    if (ahead) {
        struct comb_part parts[] = {
            {.value = (long)proxy->there}, {.own = here->_IO_read_ptr, .in = ahead}, {.value = (long)ahead}};
        comb_forward(proxy->cell, (void (*)(void))unread_there, parts, 3);
        __fpurge(here);
    } else if (__fpending(here)) {
        fflush_unlocked(here);
    }
    funlockfile(here);
}

void comb_library_settle(void)
{
    int error = errno;
    pthread_mutex_lock(&proxies_lock);
    for (struct proxy *proxy = proxies; proxy; proxy = proxy->next)
        settle(proxy);
    pthread_mutex_unlock(&proxies_lock);
    errno = error;
}
