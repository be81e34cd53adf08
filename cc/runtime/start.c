/* start.c: what a process is, alone or a component of a task, before any code of the program runs.
 *
 * In .preinit_array, which runs before the constructors of shared libraries: at join the images of the program
 * become shared memory, and what they contain at that moment must be the same in all components. Constructors of the
 * program then run once, in component 0; the others run those of ordinary libraries, which have data of their own in
 * each component, and stop at the first of the program's (wait_for_the_end). */
#include "start.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/rseq.h>
#include <unistd.h>

#include "calls.h"
#include "finish.h"
#include "images.h"
#include "runtime.h"

/* The compiler driver defines these at link time, as absolute symbols: the access mode, and the bytes of a block. */
extern const char comb_link_access[] __attribute__((weak));
extern const char comb_link_block_bytes[] __attribute__((weak));
extern const char comb_link_polls[] __attribute__((weak));

struct comb_here comb_here = {.place = {.count = 1, .hosts = 1, .imports = 1}};

/* One state byte for each 128 bytes of addresses below 2^47. */
static char *const table_start = (char *)0x2fe000000000;
static const size_t table_bytes = (size_t)1 << 40;

/* Nobody ever takes a right away from a program that runs alone: all its checks find zeros. Read only, so that it
 * never costs memory. */
static void map_table_of_zeros(void)
{
    void *table = mmap(table_start, table_bytes, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (table != table_start)
        comb_die("no addresses for the table of states: %s", strerror(errno));
}

/* Nobody ever writes to a program that runs alone, and libcomb puts its own page there in a task. */
static void map_mail_of_nobody(void)
{
    void *wanted = (void *)COMB_MAIL_PAGE;
    if (mmap(wanted, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != wanted)
        comb_die("no addresses for the page of mail: %s", strerror(errno));
}

/* Code and libraries lie at the same addresses in all components: a pointer to a function means the same in each. */
static void without_random_addresses(char **arguments, char **environment)
{
    int persona = personality(0xffffffff);
    if (persona != -1 && persona & ADDR_NO_RANDOMIZE)
        return;
    if (persona == -1 || personality((unsigned long)persona | ADDR_NO_RANDOMIZE) == -1)
        comb_die("addresses are random here, and may not be fixed: %s", strerror(errno));
    execve("/proc/self/exe", arguments, environment);
    comb_die("cannot start anew with fixed addresses: %s", strerror(errno));
}

static const char *variable(char **environment, const char *name)
{
    size_t length = strlen(name);
    for (; *environment; environment++)
        if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

static const struct comb_program *open_library(const char *path)
{
    if (!path)
        comb_die("COMB_LIBRARY is not set: the comb that started this task has no libcomb.so beside it or in ../lib, or "
                 "is older than this program");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        comb_die("%s", dlerror());
    void *symbol = dlsym(library, "comb_program");
    const struct comb_program *(*find)(unsigned) = (const struct comb_program *(*)(unsigned))symbol;
    const struct comb_program *program = find ? find(COMB_PROGRAM_VERSION) : NULL;
    if (!program)
        comb_die("%s is of another version than this program", path);
    return program;
}

static char *stack_for_another_thread(size_t *bytes)
{
    struct comb_stack stack;
    if (comb_stack_take(1 << 20, &stack))
        return NULL;
    *bytes = stack.bytes;
    return stack.top - stack.bytes;
}

static void join(const struct comb_program *program)
{
    const struct comb_images *images = comb_images_find();
    struct comb_terms_of_program terms = {
        .version = COMB_PROGRAM_VERSION,
        .access = (unsigned)(uintptr_t)comb_link_access,
        .block_bytes = (unsigned)(uintptr_t)comb_link_block_bytes,
        .images = images->count,
        .image = images->image,
        .build = images->build,
        .polls = comb_link_polls != NULL,
    };
    if (program->join(&terms, &comb_here.place))
        comb_die("%s", program->error());
    comb_here.program = program;
    for (unsigned i = 0; i < images->count; i++) {
        uintptr_t begin = (uintptr_t)images->image[i].start;
        comb_images[i] = (struct comb_range){begin, begin + images->image[i].bytes};
    }
    comb_image_count = (int)images->count;
    comb_here.access = terms.access;
    comb_here.by_messages = !comb_here.place.imports;
    comb_runtime.stack = stack_for_another_thread;
    if (comb_here.by_messages)
        comb_runtime.fetch = program->fetch, comb_runtime.poll = program->poll;
}

static void start(int count, char **arguments, char **environment)
{
    (void)count;
    map_mail_of_nobody();
    if (!variable(environment, "COMB_TASK")) {
        map_table_of_zeros();
    } else {
        without_random_addresses(arguments, environment);
        environ = environment; /* libc, which is not initialised so early, has not set it for libcomb */
        join(open_library(variable(environment, "COMB_LIBRARY")));
    }
    comb_rseq_offset = (uint64_t)__rseq_offset;
    comb_begin_main_thread();
    comb_begin_finish();
    if (comb_here.program)
        comb_begin_calls();
}

__attribute__((section(".preinit_array"), used)) static void (*const start_first)(int, char **, char **) = start;

/* Each constructor of compiled code asks. */
int comb_runs_constructors(void)
{
    return comb_here.place.rank == 0;
}

/* Constructors of this priority come before all of the program's own in the executable. */
__attribute__((constructor(101))) static void stop_unless_first(void)
{
    /* The compiler would otherwise run this itself, with the rank that the initialiser says: it knows of nothing
     * that runs before. */
    __asm__ volatile("" : : : "memory");
    if (!comb_here.place.rank)
        return;
    comb_make_streams();
    comb_wait_for_the_end();
}
