/*
 * Watches the processors of a machine that QEMU translates: each has a cache of its own, and what misses it goes into a file, with the page and the processor. A
 * plug-in of QEMU 7 or later; what it uses of their interface is declared here, for Debian has no header of it.
 *
 *   -plugin misses.so,into=FILE,cache=KILOBYTES
 *
 * FILE is as `struct file` says. Caches are of two ways, with lines of 128 bytes, and coherent. A line is known by where it is in the machine's memory; one that is
 * executed by where it is in the host's: code that is changed while it runs is not noticed, and a page that is both read and executed is two.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* QEMU's, as its qemu-plugin.h of version 1 of the interface has them. */
typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
typedef struct qemu_info_t qemu_info_t;
typedef void (*on_execution)(unsigned processor, void *with);
typedef void (*on_access)(unsigned processor, qemu_plugin_meminfo_t what, uint64_t address, void *with);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, on_execution, int flags, void *with);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, on_access, int flags, int which, void *with);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
extern void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
extern struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t, uint64_t address);
extern bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);
enum { NO_REGISTERS = 0, LOADS_AND_STORES = 3 };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { PROCESSORS = 64, WAYS = 2, LINE_SHIFT = 7, PAGE_SHIFT = 12 };

struct miss {
    /* How many instructions its processor had executed. */
    uint64_t at;
    /* The page's number, then a byte with the processor, then one that is 1 for a store. */
    uint64_t what;
};

enum { CACHES_FILL, RECORDS, IS_FULL };

struct file {
    /* Whoever started the machine sets it to RECORDS; it becomes IS_FULL by itself. */
    _Atomic uint32_t state;
    uint32_t unused;
    uint64_t room;
    _Atomic uint64_t count;
    /* While it records. */
    uint64_t instructions[PROCESSORS];
    struct miss misses[];
};

struct line {
    uint64_t line;
    uint32_t version;
    bool is_there;
};

struct processor {
    struct line *sets;
    /* What was accessed last is there still. */
    uint64_t last_executed, last_loaded, last_stored;
    uint64_t instructions;
} __attribute__((aligned(128)));

static struct file *file;
static struct processor processors[PROCESSORS];
static uint64_t set_count;

/* Of each line: a version, which changes with its writer, and in the last byte who has it alone, if anybody has. */
enum { NOBODY = 0, SEVERAL = 255 };
static const uint64_t LINES = UINT64_C(1) << 27;
static _Atomic uint32_t *lines;

static void missed(unsigned number, uint64_t page, bool is_store)
{
    if (atomic_load_explicit(&file->state, memory_order_relaxed) != RECORDS)
        return;
    uint64_t index = atomic_fetch_add_explicit(&file->count, 1, memory_order_relaxed);
    if (index >= file->room) {
        atomic_store(&file->state, IS_FULL);
        return;
    }
    file->misses[index] = (struct miss){processors[number].instructions, page << 16 | number << 8 | is_store};
}

/* Of the ways of a set the first was used last. */
static struct line *find(struct processor *own, uint64_t line)
{
    struct line *ways = &own->sets[line % set_count * WAYS];
    for (int way = 0; way < WAYS; way++) {
        if (ways[way].is_there && ways[way].line == line) {
            struct line found = ways[way];
            memmove(ways + 1, ways, (size_t)way * sizeof *ways);
            ways[0] = found;
            return ways;
        }
    }
    return NULL;
}

static struct line *install(struct processor *own, uint64_t line, uint32_t version)
{
    struct line *ways = &own->sets[line % set_count * WAYS];
    /* An old copy of the same line goes. */
    int way = 0;
    while (way < WAYS - 1 && !(ways[way].is_there && ways[way].line == line))
        way++;
    memmove(ways + 1, ways, (size_t)way * sizeof *ways);
    ways[0] = (struct line){line, version, true};
    return ways;
}

static void touched(unsigned number, uint64_t line, bool is_store)
{
    struct processor *own = &processors[number];
    if (line >= LINES)
        return;
    uint64_t page = line >> (PAGE_SHIFT - LINE_SHIFT);
    struct line *found = find(own, line);
    uint32_t word = atomic_load_explicit(&lines[line], memory_order_relaxed);
    while (true) {
        uint32_t version = word >> 8, owner = word & 255;
        bool is_there = found && found->version == version, is_own = owner == number + 1;
        if (is_there && (is_own || !is_store))
            return;
        if (is_store && !is_own)
            version = (version + 1) & 0xffffff;
        uint32_t then = version << 8 | (is_store || is_own || owner == NOBODY ? number + 1 : SEVERAL);
        if (then != word && !atomic_compare_exchange_weak_explicit(&lines[line], &word, then, memory_order_relaxed, memory_order_relaxed))
            continue;
        install(own, line, version);
        missed(number, page, is_store);
        return;
    }
}

static void executed(unsigned number, void *with)
{
    struct processor *own = &processors[number];
    uint64_t line = (uint64_t)with >> 8;
    if (atomic_load_explicit(&file->state, memory_order_relaxed) == RECORDS) {
        own->instructions += (uint64_t)with & 255;
        file->instructions[number] = own->instructions;
    }
    if (line == own->last_executed)
        return;
    own->last_executed = line;
    if (!find(own, line)) {
        install(own, line, 0);
        missed(number, line >> (PAGE_SHIFT - LINE_SHIFT), false);
    }
}

static void accessed(unsigned number, qemu_plugin_meminfo_t what, uint64_t address, void *with)
{
    (void)with;
    struct qemu_plugin_hwaddr *place = qemu_plugin_get_hwaddr(what, address);
    if (place && !qemu_plugin_hwaddr_is_io(place))
        touched(number, qemu_plugin_hwaddr_phys_addr(place) >> LINE_SHIFT, qemu_plugin_mem_is_store(what));
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t first = 0, next; first < count; first = next) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, first);
        uint64_t line = (uint64_t)qemu_plugin_insn_haddr(instruction) >> LINE_SHIFT;
        for (next = first; next < count; next++) {
            struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, next);
            if ((uint64_t)qemu_plugin_insn_haddr(one) >> LINE_SHIFT != line)
                break;
            qemu_plugin_register_vcpu_mem_cb(one, accessed, NO_REGISTERS, LOADS_AND_STORES, NULL);
        }
        /* No line has as many instructions as a byte counts. */
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, executed, NO_REGISTERS, (void *)(line << 8 | (next - first)));
    }
}

static int fails(const char *what)
{
    perror(what);
    return 1;
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    const char *path = NULL;
    uint64_t kilobytes = 0;
    for (int index = 0; index < argc; index++) {
        if (strncmp(argv[index], "into=", 5) == 0)
            path = argv[index] + 5;
        else if (strncmp(argv[index], "cache=", 6) == 0)
            kilobytes = strtoull(argv[index] + 6, NULL, 10);
    }
    set_count = (kilobytes << 10 >> LINE_SHIFT) / WAYS;
    if (!path || set_count == 0) {
        fputs("misses: say into=FILE,cache=KILOBYTES\n", stderr);
        return 1;
    }
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    struct stat is;
    if (descriptor < 0 || fstat(descriptor, &is) != 0)
        return fails(path);
    file = mmap(NULL, (size_t)is.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    lines = mmap(NULL, LINES * sizeof *lines, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file == MAP_FAILED || lines == MAP_FAILED)
        return fails("mmap");
    close(descriptor);
    if ((size_t)is.st_size < sizeof *file) {
        fputs("misses: the file has no room\n", stderr);
        return 1;
    }
    file->room = ((size_t)is.st_size - sizeof *file) / sizeof(struct miss);
    for (int number = 0; number < PROCESSORS; number++) {
        processors[number].sets = calloc(set_count * WAYS, sizeof(struct line));
        if (!processors[number].sets)
            return fails("calloc");
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
