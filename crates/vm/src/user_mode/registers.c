// What the engine (user-mode Linux 6.1) has wrong of hosts whose registers do not fit into what it keeps of them, such as those with AMX: the host takes
// all of a program's registers or none. In front of its C library: it is given the rest as the host has it.

#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

// As the processor lays them out: which parts are there is said behind the first 512 bytes.
enum { PARTS_AT = 512, PARTS = 64 };

typedef long call(int request, pid_t process, void *address, void *data);

// Those parts that end behind so many bytes.
static uint64_t parts_beyond(size_t bytes)
{
    uint64_t beyond = 0;
    for (unsigned part = 2; part < PARTS; part++) {
        unsigned size = 0, at = 0, kind = 0, none = 0;
        __cpuid_count(0xd, part, size, at, kind, none);
        if (size && at + size > bytes)
            beyond |= UINT64_C(1) << part;
    }
    return beyond;
}

__attribute__((visibility("default"))) long ptrace(enum __ptrace_request request, ...)
{
    static call *next;
    // Its kernel is one thread.
    static unsigned char all[1 << 16] __attribute__((aligned(64)));
    static uint64_t beyond;
    static size_t beyond_bytes;

    va_list rest;
    va_start(rest, request);
    pid_t process = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *);
    void *data = va_arg(rest, void *);
    va_end(rest);
    if (!next)
        next = (call *)dlsym(RTLD_NEXT, "ptrace");
    if (request != PTRACE_SETREGSET || (uintptr_t)address != NT_X86_XSTATE)
        return next(request, process, address, data);

    const struct iovec *given = data;
    struct iovec whole = {all, sizeof all};
    if (next(PTRACE_GETREGSET, process, address, &whole))
        return -1;
    if (whole.iov_len <= given->iov_len || given->iov_len < PARTS_AT + sizeof beyond)
        return next(request, process, address, data);
    if (beyond_bytes != given->iov_len) {
        beyond = parts_beyond(given->iov_len);
        beyond_bytes = given->iov_len;
    }
    uint64_t there, are;
    memcpy(&there, all + PARTS_AT, sizeof there);
    memcpy(all, given->iov_base, given->iov_len);
    memcpy(&are, all + PARTS_AT, sizeof are);
    are = (are & ~beyond) | (there & beyond);
    memcpy(all + PARTS_AT, &are, sizeof are);
    return next(PTRACE_SETREGSET, process, address, &whole);
}
