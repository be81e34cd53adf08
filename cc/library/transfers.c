/* read and write and their kin: they may wait, so bytes go through private memory. */
#include "wrap.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <fcntl.h>
#include <unistd.h>

#include "reach.h"
#include "services.h"

/* No more is moved by one system call: what is longer goes on in a loop where that cannot wait, which is the case for
 * regular files alone; elsewhere the program gets a short count, as it may from any kernel. */
enum { AT_ONCE = 1 << 20 };

extern __typeof__(fstat) comb_lib_fstat;

static int is_regular(int descriptor)
{
    struct stat status;
    return comb_lib_fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

/* Every one of these is a read or write at a place: `offset` -1 is where the file stands. */
struct transfer {
    int descriptor, flags, is_write;
    off_t offset;
};

static ssize_t move_here(const struct transfer *transfer, void *own, size_t bytes)
{
    struct iovec one = {own, bytes};
    int here = comb_descriptor_here(transfer->descriptor, &(unsigned){COMB_NO_CELL});
    if (!transfer->flags && transfer->offset < 0)
        return transfer->is_write ? write(here, own, bytes) : read(here, own, bytes);
    if (!transfer->flags)
        return transfer->is_write ? pwrite(here, own, bytes, transfer->offset)
                                  : pread(here, own, bytes, transfer->offset);
    return transfer->is_write ? pwritev2(here, &one, 1, transfer->offset, transfer->flags)
                              : preadv2(here, &one, 1, transfer->offset, transfer->flags);
}

static long move_there(long descriptor, long flags, long is_write, long offset, void *own, long bytes)
{
    struct transfer transfer = {(int)descriptor, (int)flags, (int)is_write, offset};
    return move_here(&transfer, own, (size_t)bytes);
}

static ssize_t move(const struct transfer *transfer, void *own, size_t bytes)
{
    unsigned cell = COMB_NO_CELL;
    comb_descriptor_here(transfer->descriptor, &cell);
    if (comb_is_here(cell))
        return move_here(transfer, own, bytes);
    struct comb_part parts[] = {
        {.value = transfer->descriptor}, {.value = transfer->flags},
        {.value = transfer->is_write},   {.value = transfer->offset},
        {.own = own, .in = transfer->is_write ? bytes : 0, .out = transfer->is_write ? 0 : bytes},
        {.value = (long)bytes}};
    return comb_forward(cell, (void (*)(void))move_there, parts, 6);
}

/* Between a private piece and the program's memory, which may be in several parts. */
struct place {
    const struct iovec *parts;
    int count;
    size_t done; /* of the first part */
};

static void exchange(struct place *place, char *own, size_t bytes, int is_write)
{
    while (bytes) {
        char *there = (char *)place->parts->iov_base + place->done;
        size_t left = place->parts->iov_len - place->done, piece = left < bytes ? left : bytes;
        if (is_write)
            comb_copy_from(own, there, piece);
        else
            comb_copy_to(there, own, piece);
        own += piece, bytes -= piece, place->done += piece;
        if (piece == left)
            place->parts++, place->done = 0;
    }
}

static ssize_t transfer_all(struct transfer transfer, const struct iovec *parts, int count)
{
    size_t total = 0;
    for (int at = 0; at < count; at++)
        total += parts[at].iov_len;
    if (total > SSIZE_MAX) {
        errno = EINVAL;
        return -1;
    }
    unsigned cell = COMB_NO_CELL;
    comb_descriptor_here(transfer.descriptor, &cell);
    if (count == 1 && total && !comb_is_shared(parts->iov_base) && comb_is_here(cell))
        return move(&transfer, parts->iov_base, total);
    COMB_DESK(desk);
    size_t most = comb_is_here(cell) ? AT_ONCE : COMB_CALL_PIECE, room = total < most ? total : most;
    char *own = comb_desk_room(&desk, room);
    struct place place = {parts, count, 0};
    size_t done = 0;
    do {
        size_t piece = total - done < room ? total - done : room;
        if (transfer.is_write)
            exchange(&place, own, piece, 1);
        ssize_t moved = move(&transfer, own, piece);
        if (moved < 0)
            return done ? (ssize_t)done : -1;
        int error = errno;
        if (!transfer.is_write)
            exchange(&place, own, (size_t)moved, 0);
        errno = error;
        done += (size_t)moved;
        if (transfer.offset >= 0)
            transfer.offset += moved;
        if ((size_t)moved < piece)
            break;
    } while (done < total && is_regular(transfer.descriptor));
    return (ssize_t)done;
}

static ssize_t transfer_one(struct transfer transfer, const void *memory, size_t bytes)
{
    struct iovec one = {(void *)memory, bytes};
    return transfer_all(transfer, &one, 1);
}

ssize_t comb_lib_read(int descriptor, void *to, size_t bytes)
{
    return transfer_one((struct transfer){descriptor, 0, 0, -1}, to, bytes);
}
COMB_SAME_TYPE(read);

ssize_t comb_lib_write(int descriptor, const void *from, size_t bytes)
{
    return transfer_one((struct transfer){descriptor, 0, 1, -1}, from, bytes);
}
COMB_SAME_TYPE(write);

/* A place before the beginning is an error of its own, and not "where the file stands". */
#define AT_PLACE(offset)   \
    if ((offset) < 0) {    \
        errno = EINVAL;    \
        return -1;         \
    }

ssize_t comb_lib_pread(int descriptor, void *to, size_t bytes, off_t offset)
{
    AT_PLACE(offset)
    return transfer_one((struct transfer){descriptor, 0, 0, offset}, to, bytes);
}
COMB_SAME_TYPE(pread);
COMB_ALIAS(pread64, pread);

ssize_t comb_lib_pwrite(int descriptor, const void *from, size_t bytes, off_t offset)
{
    AT_PLACE(offset)
    return transfer_one((struct transfer){descriptor, 0, 1, offset}, from, bytes);
}
COMB_SAME_TYPE(pwrite);
COMB_ALIAS(pwrite64, pwrite);

static ssize_t transfer_parts(struct transfer transfer, const struct iovec *parts, int count)
{
    if (count < 0 || count > IOV_MAX) {
        errno = EINVAL;
        return -1;
    }
    COMB_DESK(desk);
    return transfer_all(transfer, comb_own(&desk, parts, (size_t)count * sizeof *parts), count);
}

ssize_t comb_lib_readv(int descriptor, const struct iovec *parts, int count)
{
    return transfer_parts((struct transfer){descriptor, 0, 0, -1}, parts, count);
}
COMB_SAME_TYPE(readv);

ssize_t comb_lib_writev(int descriptor, const struct iovec *parts, int count)
{
    return transfer_parts((struct transfer){descriptor, 0, 1, -1}, parts, count);
}
COMB_SAME_TYPE(writev);

ssize_t comb_lib_preadv(int descriptor, const struct iovec *parts, int count, off_t offset)
{
    AT_PLACE(offset)
    return transfer_parts((struct transfer){descriptor, 0, 0, offset}, parts, count);
}
COMB_SAME_TYPE(preadv);
COMB_ALIAS(preadv64, preadv);

ssize_t comb_lib_pwritev(int descriptor, const struct iovec *parts, int count, off_t offset)
{
    AT_PLACE(offset)
    return transfer_parts((struct transfer){descriptor, 0, 1, offset}, parts, count);
}
COMB_SAME_TYPE(pwritev);
COMB_ALIAS(pwritev64, pwritev);

ssize_t comb_lib_preadv2(int descriptor, const struct iovec *parts, int count, off_t offset, int flags)
{
    return transfer_parts((struct transfer){descriptor, flags, 0, offset}, parts, count);
}
COMB_SAME_TYPE(preadv2);
COMB_ALIAS(preadv64v2, preadv2);

ssize_t comb_lib_pwritev2(int descriptor, const struct iovec *parts, int count, off_t offset, int flags)
{
    return transfer_parts((struct transfer){descriptor, flags, 1, offset}, parts, count);
}
COMB_SAME_TYPE(pwritev2);
COMB_ALIAS(pwritev64v2, pwritev2);

COMB_WRAP_AT(ssize_t, sendfile, DESCRIPTOR(to), DESCRIPTOR(from), INOUT(off_t, offset), VALUE(size_t, bytes));
COMB_ALIAS(sendfile64, sendfile);
COMB_WRAP_AT(ssize_t, copy_file_range, DESCRIPTOR(from), INOUT(off64_t, from_offset), DESCRIPTOR(to),
             INOUT(off64_t, to_offset), VALUE(size_t, bytes), VALUE(unsigned, flags));
COMB_WRAP_AT(ssize_t, splice, DESCRIPTOR(from), INOUT(off64_t, from_offset), DESCRIPTOR(to), INOUT(off64_t, to_offset),
             VALUE(size_t, bytes), VALUE(unsigned, flags));
COMB_WRAP_AT(ssize_t, tee, DESCRIPTOR(from), DESCRIPTOR(to), VALUE(size_t, bytes), VALUE(unsigned, flags));

/* Random bytes come in pieces, so that no room as long as the request is needed. */
ssize_t comb_lib_getrandom(void *to, size_t bytes, unsigned flags)
{
    char own[256];
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < sizeof own ? bytes - done : sizeof own;
        ssize_t got = getrandom(own, piece, flags);
        if (got < 0)
            return done ? (ssize_t)done : -1;
        comb_copy_to((char *)to + done, own, (size_t)got);
        done += (size_t)got;
    }
    return (ssize_t)bytes;
}
COMB_SAME_TYPE(getrandom);

COMB_WRAP(int, getentropy, FILLED(void, to, bytes <= 256 ? bytes : 0, answer == 0 ? bytes : 0), VALUE(size_t, bytes));
