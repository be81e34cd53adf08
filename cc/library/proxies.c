/* Files of other cells: a proxy is a FILE of libc's whose bytes are fetched from the opener, and brought to it, in pieces.
 *
 * What is written stays in the proxy until it is full, flushed or settled; what was read ahead goes back to the opener when
 * the thread lets others go on. So a file looks as if all used it in the order in which the program lets them. A line
 * goes to the opener whole, where others write to the file too, and at once if it would come out at once there. */
#include "wrap.h"

#include "files.h"

#include <errno.h>
#include <pthread.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reach.h"
#include "services.h"

struct proxy {
    struct proxy *next;
    FILE *stream; /* the program's */
    uint64_t serial;
    unsigned cell;
    FILE *there; /* the opener's: an address that means nothing here */
    FILE *here;
    /* The beginning of a line whose end is still to come. Under the lock of `here`. */
    char *line;
    size_t line_bytes, line_room;
    int is_unbuffered;
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

static size_t send_there(struct proxy *proxy, const char *own, size_t bytes)
{
    struct request request = {proxy->there, 0};
    COMB_DESK(desk);
    size_t nothing;
    char *message = comb_desk_room(&desk, sizeof request + bytes);
    memcpy(message, &request, sizeof request);
    memcpy(message + sizeof request, own, bytes);
    long written = comb_call(proxy->cell, COMB_SERVICE_FILE_WRITE, message, sizeof request + bytes, NULL, 0, &nothing);
    return written < 0 ? 0 : (size_t)written;
}

/* How many of these bytes are ready to go: as many whole lines as one call takes, or a part of one that is longer. */
static size_t whole_lines(const char *own, size_t bytes)
{
    size_t most = bytes < COMB_CALL_PIECE ? bytes : COMB_CALL_PIECE;
    const char *end = memrchr(own, '\n', most);
    if (end)
        return (size_t)(end + 1 - own);
    return most < bytes ? most : 0;
}

/* Sends what was kept, the last line too if `is_all`. What the opener does not take is lost, as what a disk does not take: -1. */
static int send_kept(struct proxy *proxy, int is_all)
{
    size_t sent = 0;
    int outcome = 0;
    while (sent < proxy->line_bytes && !outcome) {
        const char *from = proxy->line + sent;
        size_t left = proxy->line_bytes - sent, ready = whole_lines(from, left);
        if (!ready && !is_all)
            break;
        if (!ready)
            ready = left;
        outcome = send_there(proxy, from, ready) == ready ? 0 : -1;
        sent += ready;
    }
    if (outcome)
        sent = proxy->line_bytes;
    proxy->line_bytes -= sent;
    if (sent)
        memmove(proxy->line, proxy->line + sent, proxy->line_bytes);
    return outcome;
}

static ssize_t read_there(void *cookie, char *own, size_t bytes)
{
    struct proxy *proxy = cookie;
    send_kept(proxy, 1);
    struct request request = {proxy->there, bytes};
    size_t got;
    return comb_call(proxy->cell, COMB_SERVICE_FILE_READ, &request, sizeof request, own,
                     bytes < COMB_CALL_PIECE ? bytes : COMB_CALL_PIECE, &got);
}

static ssize_t write_there(void *cookie, const char *own, size_t bytes)
{
    struct proxy *proxy = cookie;
    if (proxy->line_room - proxy->line_bytes < bytes) {
        size_t room = proxy->line_bytes + bytes + BUFSIZ;
        char *larger = realloc(proxy->line, room);
        if (!larger)
            return 0;
        proxy->line = larger, proxy->line_room = room;
    }
    memcpy(proxy->line + proxy->line_bytes, own, bytes);
    proxy->line_bytes += bytes;
    return send_kept(proxy, proxy->is_unbuffered) == 0 ? (ssize_t)bytes : 0;
}

static int seek_from_here(void *cookie, off64_t *offset, int from)
{
    struct proxy *proxy = cookie;
    send_kept(proxy, 1);
    struct comb_part parts[] = {{.value = (long)proxy->there}, {.value = *offset}, {.value = from}};
    long answer = comb_forward(proxy->cell, (void (*)(void))seek_there, parts, 3);
    if (answer >= 0)
        *offset = answer;
    return answer < 0 ? -1 : 0;
}

/* How the opener's FILE is buffered: setvbuf()'s words. libc decides that of a terminal when it is first written to. */
static int mode_of(FILE *file)
{
    if (file->_flags & 2 /* _IO_UNBUFFERED */)
        return _IONBF;
    int descriptor = fileno(file);
    return __flbf(file) || (!file->_IO_buf_base && descriptor >= 0 && isatty(descriptor)) ? _IOLBF : _IOFBF;
}

static void begin(struct proxy *proxy)
{
    cookie_io_functions_t functions = {.read = read_there, .write = write_there, .seek = seek_from_here};
    proxy->here = fopencookie(proxy, "r+", functions);
    if (!proxy->here) {
        fputs("comb: no memory for a file of another cell\n", stderr);
        abort();
    }
    struct comb_part parts[] = {{.value = (long)proxy->there}};
    int mode = (int)comb_forward(proxy->cell, (void (*)(void))mode_of, parts, 1);
    if (mode == _IOLBF || mode == _IONBF)
        setvbuf(proxy->here, NULL, mode, 0);
    proxy->is_unbuffered = mode == _IONBF;
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
            proxy->line_bytes = 0;
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
        fflush(proxy->here);
        send_kept(proxy, 1);
        fclose(proxy->here);
        free(proxy->line);
        free(proxy);
    }
}

/* All of it is the opener's when this returns, and nothing of it in the opener's buffer. */
static int flush(struct proxy *proxy)
{
    flockfile(proxy->here);
    int is_wrong = fflush_unlocked(proxy->here) | send_kept(proxy, 1);
    funlockfile(proxy->here);
    struct comb_part parts[] = {{.value = (long)proxy->there}};
    is_wrong |= (int)comb_forward(proxy->cell, (void (*)(void))fflush, parts, 1);
    return is_wrong ? EOF : 0;
}

int comb_proxy_flush(FILE *stream)
{
    struct comb_file file = comb_file_behind(stream);
    comb_proxy_of(stream, &file);
    pthread_mutex_lock(&proxies_lock);
    struct proxy *proxy = proxies;
    while (proxy && proxy->stream != stream)
        proxy = proxy->next;
    int outcome = proxy ? flush(proxy) : 0;
    pthread_mutex_unlock(&proxies_lock);
    return outcome;
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
    send_kept(proxy, 1);
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
