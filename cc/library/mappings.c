/* mmap for memory and for reading files: the program gets memory that all cells share, with the file's content copied in. What
 * cannot be had this way (a shared mapping to write a file through, a fixed address) fails as where the kernel refuses it. */
#include "every.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "reach.h"

/* A program that runs alone has libc's mappings: its memory is libc's, too. */
static int is_alone(void)
{
    return !comb_runtime.fetch && !comb_runtime.stack;
}

/* Stands just before each mapping. */
struct mapping {
    uint64_t mark;
    void *memory; /* as it was allocated */
    size_t bytes;
};

static const uint64_t MARK = 0x6d61707065642e21;
enum { PAGE = 4096, PIECE = 64 << 10 };

static int has_mapping(const void *start, struct mapping *mapping)
{
    if ((uintptr_t)start % PAGE || !comb_is_shared(start))
        return 0;
    comb_copy_from(mapping, (const struct mapping *)start - 1, sizeof *mapping);
    return mapping->mark == MARK;
}

static char *map_memory(size_t bytes)
{
    char *memory = comb_lib_calloc(1, bytes + sizeof(struct mapping) + PAGE);
    if (!memory)
        return NULL;
    uintptr_t start = ((uintptr_t)memory + sizeof(struct mapping) + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    struct mapping mapping = {MARK, memory, bytes};
    comb_copy_to((struct mapping *)start - 1, &mapping, sizeof mapping);
    return (char *)start;
}

static void unmap(const struct mapping *mapping, void *start)
{
    uint64_t nothing = 0;
    comb_copy_to(&((struct mapping *)start - 1)->mark, &nothing, sizeof nothing);
    comb_lib_free(mapping->memory);
}

/* Where the file ends, zeros follow. */
static int copy_file(char *to, size_t bytes, int descriptor, off_t offset)
{
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < PIECE ? bytes - done : PIECE;
        ssize_t got = comb_lib_pread(descriptor, to + done, piece, offset + (off_t)done);
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return 0;
}

void *comb_lib_mmap(void *wanted, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    if (is_alone())
        return mmap(wanted, bytes, protection, flags, descriptor, offset);
    static int has_said_so;
    if ((protection & PROT_EXEC || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) && !has_said_so) {
        has_said_so = 1;
        fputs("comb: mmap() with PROT_EXEC or at a fixed address is not supported in a task: code is each component's own, and "
              "addresses are shared\n", stderr);
    }
    int writes_through = (flags & MAP_TYPE) != MAP_PRIVATE && protection & PROT_WRITE && !(flags & MAP_ANONYMOUS);
    if (!bytes || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) || protection & PROT_EXEC) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (writes_through) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    char *start = map_memory(bytes);
    if (!start) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (!(flags & MAP_ANONYMOUS) && copy_file(start, bytes, descriptor, offset) != 0) {
        int error = errno;
        struct mapping mapping;
        if (has_mapping(start, &mapping))
            unmap(&mapping, start);
        errno = error;
        return MAP_FAILED;
    }
    return start;
}
COMB_SAME_TYPE(mmap);
COMB_ALIAS(mmap64, mmap);

/* A part of a mapping stays until the whole is unmapped. */
int comb_lib_munmap(void *start, size_t bytes)
{
    struct mapping mapping;
    if (!comb_is_shared(start))
        return munmap(start, bytes);
    if (has_mapping(start, &mapping) && bytes >= mapping.bytes)
        unmap(&mapping, start);
    return 0;
}
COMB_SAME_TYPE(munmap);

void *comb_lib_mremap(void *start, size_t bytes, size_t wanted, int flags, ...)
{
    struct mapping mapping;
    if (is_alone()) {
        va_list arguments;
        va_start(arguments, flags);
        /* Read by libc only where the flags say that it is there. */
        void *place = va_arg(arguments, void *);
        va_end(arguments);
        return mremap(start, bytes, wanted, flags, place);
    }
    if (!has_mapping(start, &mapping) || flags & ~MREMAP_MAYMOVE) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (wanted <= mapping.bytes)
        return start;
    char *larger = flags & MREMAP_MAYMOVE ? map_memory(wanted) : NULL;
    if (!larger) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    comb_lib_memcpy(larger, start, bytes < mapping.bytes ? bytes : mapping.bytes);
    unmap(&mapping, start);
    return larger;
}
COMB_SAME_TYPE(mremap);

/* Rights to shared memory are Comb's: what asks for less than all cannot be had, and advice is not needed. */
int comb_lib_mprotect(void *start, size_t bytes, int protection)
{
    if (!comb_is_shared(start))
        return mprotect(start, bytes, protection);
    if ((protection & (PROT_READ | PROT_WRITE)) == (PROT_READ | PROT_WRITE))
        return 0;
    static int has_said_so;
    if (!has_said_so) {
        has_said_so = 1;
        fputs("comb: mprotect() of shared memory is not supported in a task: rights to it are how components share it\n", stderr);
    }
    errno = EACCES;
    return -1;
}
COMB_SAME_TYPE(mprotect);

#define NOT_FOR_SHARED(name, ...)                                     \
    int comb_lib_##name(__VA_ARGS__)                                  \
    {                                                                 \
        return comb_is_shared(start) ? 0 : name(start, bytes, how);   \
    }                                                                 \
    COMB_SAME_TYPE(name)
NOT_FOR_SHARED(madvise, void *start, size_t bytes, int how);
NOT_FOR_SHARED(posix_madvise, void *start, size_t bytes, int how);
NOT_FOR_SHARED(msync, void *start, size_t bytes, int how);

int comb_lib_mlock(const void *start, size_t bytes)
{
    return comb_is_shared(start) ? 0 : mlock(start, bytes);
}
COMB_SAME_TYPE(mlock);

int comb_lib_munlock(const void *start, size_t bytes)
{
    return comb_is_shared(start) ? 0 : munlock(start, bytes);
}
COMB_SAME_TYPE(munlock);
