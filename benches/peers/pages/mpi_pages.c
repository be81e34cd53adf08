/*
 * A plain page cache over Open MPI's one-sided communication: the memory shared by software that one writes in an afternoon, without Comb. The
 * ranks are processes that mpirun starts.
 *
 * - Every allocation has one address in all ranks, and one MPI window. Each rank has memory for the whole of it, mapped twice: as the window, for
 *   MPI to read and write at any time, and at the common address, where mprotect says what the program may. Only stores to touched pages cost memory.
 * - Each page has a home, where it is always readable and writable: a load or store to it costs nothing. PAGES_HOMES=block (the default)
 *   gives each rank one run of every allocation, the very part that the programs' ranks initialise and store to: the best there is for them.
 *   PAGES_HOMES=robin deals pages out in turn, as one does who knows nothing of the program; each page then has protection of its own, and
 *   beyond 32,000 of them in an allocation Linux has no more (vm.max_map_count).
 * - A load or store of another page raises SIGSEGV; the handler fetches the page (MPI_Get and one flush, all under one
 *   MPI_Win_lock_all), and one mprotect opens it. A first store also keeps a twin; if it is the first use, one fault does for both.
 * - At a barrier what differs from the twins, by words of 8 bytes, is put home: all runs of all pages first, then one flush for each target.
 *   Then all that was cached is dropped, with one mprotect for each stretch without a home page, and MPI_Barrier follows.
 *
 * There is no directory, so nobody knows who has a copy: every page that is used again is fetched again after each barrier, also one that nobody
 * has changed. Nothing is fetched before it is needed. One thread in each rank.
 *
 * PAGES_WINDOW=allocate (the default) has Open MPI allocate the window: between processes of one machine that is a shared file, and a get a
 * memcpy (osc sm). It is the fastest of those tried, and for one machine only. PAGES_WINDOW=create gives it our memory: a get is then
 * process_vm_readv (osc rdma over btl vader) or a message (osc pt2pt). pages.sh chooses what fits.
 * PAGES_COUNTS=1 has each rank say at its end how often it did what.
 */
#define _GNU_SOURCE
#include "shared.h"

#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    PAGE_WORDS = PAGE_BYTES / 8,
    AREAS_AT_MOST = 16,
    RANKS_AT_MOST = 1024,
};

/* Far from where Linux puts mappings by itself. Each area starts at a multiple of AREA_BYTES from here. */
#define HEAP ((unsigned char *)0x200000000000)
#define AREA_BYTES ((size_t)1 << 36)

enum state { ABSENT, READABLE, CHANGED };

/* One allocation. */
struct area {
    unsigned char *heap, *window_memory; /* the same memory: the program's view and MPI's */
    unsigned char *twins;                /* at the same offsets; only those of changed pages cost memory */
    size_t pages;
    MPI_Win window;
    MPI_Aint *starts; /* of each rank: where its window's first page begins */
    uint8_t *states; /* enum state; a page homed here stays ABSENT, and never faults */
    size_t lowest, highest; /* no page before the one or from the other on is cached */
};

static struct area areas[AREAS_AT_MOST];
static size_t area_count;
static int own_rank, ranks = 1;
static bool deal_out, create_windows;
static struct sigaction action_before;
static size_t fetched, stored_first, runs_put, words_put, barriers;

const char *implementation(void)
{
    return "openmpi-pages";
}

const char *setting(void)
{
    static char text[64];
    snprintf(text, sizeof text, "homes=%s window=%s", deal_out ? "robin" : "block", create_windows ? "create" : "allocate");
    return text;
}

int rank(void)
{
    return own_rank;
}

int count(void)
{
    return ranks;
}

/* Rank r has pages pages·r/ranks to pages·(r+1)/ranks, rounded down. */
static int home(const struct area *area, size_t page)
{
    return deal_out ? (int)(page % (size_t)ranks) : (int)(((page + 1) * (size_t)ranks - 1) / area->pages);
}

static void protect(const struct area *area, size_t page, size_t pages, int rights)
{
    if (mprotect(area->heap + page * PAGE_BYTES, pages * PAGE_BYTES, rights) != 0)
        fail("mprotect of %zu pages: %s", pages, strerror(errno));
}

static void fetch(struct area *area, size_t page)
{
    int target = home(area, page);
    size_t offset = page * PAGE_BYTES;
    MPI_Get(area->window_memory + offset, PAGE_BYTES, MPI_BYTE, target, area->starts[target] + (MPI_Aint)offset, PAGE_BYTES, MPI_BYTE,
            area->window);
    MPI_Win_flush(target, area->window);
    area->states[page] = READABLE;
    area->lowest = page < area->lowest ? page : area->lowest;
    area->highest = page + 1 > area->highest ? page + 1 : area->highest;
    fetched++;
}

static void keep_twin(struct area *area, size_t page)
{
    memcpy(area->twins + page * PAGE_BYTES, area->window_memory + page * PAGE_BYTES, PAGE_BYTES);
    area->states[page] = CHANGED;
    stored_first++;
}

/* A store, as far as the processor tells. Where it does not, a first store takes two faults. */
static bool is_store(const ucontext_t *context)
{
#ifdef __x86_64__
    return context->uc_mcontext.gregs[REG_ERR] & 2;
#else
    (void)context;
    return false;
#endif
}

/* Only the program's own loads and stores raise it: MPI is never given an address of the heap, so this never interrupts MPI. */
static void on_fault(int signal_number, siginfo_t *information, void *context)
{
    unsigned char *address = information->si_addr;
    for (size_t i = 0; i < area_count; i++) {
        struct area *area = &areas[i];
        if (address < area->heap || address >= area->heap + area->pages * PAGE_BYTES)
            continue;
        size_t page = (size_t)(address - area->heap) / PAGE_BYTES;
        bool store = area->states[page] == READABLE || is_store(context);
        if (area->states[page] == ABSENT)
            fetch(area, page);
        if (store)
            keep_twin(area, page);
        protect(area, page, 1, store ? PROT_READ | PROT_WRITE : PROT_READ);
        return;
    }
    /* A fault of the program's own: it comes again, and Open MPI's handler tells of it. */
    sigaction(signal_number, &action_before, NULL);
}

static void put_run(struct area *area, int target, size_t first_word, size_t end_word)
{
    size_t offset = first_word * 8;
    int bytes = (int)(end_word - first_word) * 8;
    MPI_Put(area->window_memory + offset, bytes, MPI_BYTE, target, area->starts[target] + (MPI_Aint)offset, bytes, MPI_BYTE, area->window);
    runs_put++;
    words_put += end_word - first_word;
}

static void put_changes(struct area *area, size_t page, int target)
{
    const uint64_t *now = (const uint64_t *)area->window_memory, *twin = (const uint64_t *)area->twins;
    size_t word = page * PAGE_WORDS, end = word + PAGE_WORDS;
    while (word < end) {
        while (word < end && now[word] == twin[word])
            word++;
        size_t first = word;
        while (word < end && now[word] != twin[word])
            word++;
        if (word > first)
            put_run(area, target, first, word);
    }
}

static void put_all_changes(struct area *area)
{
    static bool is_target[RANKS_AT_MOST];
    for (size_t page = area->lowest; page < area->highest; page++)
        if (area->states[page] == CHANGED) {
            int target = home(area, page);
            put_changes(area, page, target);
            is_target[target] = true;
        }
    for (int target = 0; target < ranks; target++)
        if (is_target[target]) {
            MPI_Win_flush(target, area->window);
            is_target[target] = false;
        }
}

/* Protects again what is protected already rather than call mprotect once more: only pages homed here must be left out. */
static void drop_all(struct area *area)
{
    size_t page = area->lowest;
    while (page < area->highest) {
        while (page < area->highest && area->states[page] == ABSENT)
            page++;
        size_t first = page, end = page;
        for (; page < area->highest && home(area, page) != own_rank; page++)
            if (area->states[page] != ABSENT) {
                area->states[page] = ABSENT;
                end = page + 1;
            }
        if (end > first)
            protect(area, first, end - first, PROT_NONE);
    }
    area->lowest = area->pages;
    area->highest = 0;
}

void barrier(void)
{
    for (size_t i = 0; i < area_count; i++)
        if (areas[i].highest > 0) {
            put_all_changes(&areas[i]);
            drop_all(&areas[i]);
        }
    for (size_t i = 0; i < area_count; i++)
        MPI_Win_sync(areas[i].window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < area_count; i++)
        MPI_Win_sync(areas[i].window);
    barriers++;
}

double sum(double value)
{
    double values[RANKS_AT_MOST];
    barrier();
    MPI_Allgather(&value, 1, MPI_DOUBLE, values, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    double total = 0;
    for (int i = 0; i < ranks; i++)
        total += values[i];
    return total;
}

static void *mapped(void *address, size_t bytes, int rights, int flags, int file)
{
    void *memory = mmap(address, bytes, rights, flags, file, 0);
    if (memory == MAP_FAILED)
        fail("no memory for %zu bytes: %s", bytes, strerror(errno));
    return memory;
}

/* Our memory, mapped twice, the one as a window. */
static MPI_Aint create_window(struct area *area, size_t bytes)
{
    int file = memfd_create("pages", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
        fail("no memory for %zu bytes: %s", bytes, strerror(errno));
    area->window_memory = mapped(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    mapped(area->heap, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED_NOREPLACE, file);
    close(file);
    MPI_Win_create(area->window_memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &area->window);
    return 0;
}

/* Open MPI's memory, and a second mapping of it: mremap of the first 0 bytes of a shared mapping leaves the old one where it is. The window
 * need not start with a page. */
static MPI_Aint allocate_window(struct area *area, size_t bytes)
{
    unsigned char *memory;
    MPI_Win_allocate((MPI_Aint)(bytes + PAGE_BYTES), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &area->window);
    size_t start = -(uintptr_t)memory % PAGE_BYTES;
    area->window_memory = memory + start;
    if (mremap(area->window_memory, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, area->heap) == MAP_FAILED)
        fail("Open MPI's window is not shared memory here (%s); PAGES_WINDOW=create needs none", strerror(errno));
    protect(area, 0, area->pages, PROT_NONE);
    return (MPI_Aint)start;
}

static void open_home_pages(const struct area *area)
{
    for (size_t first = 0; first < area->pages;) {
        size_t end = first + 1;
        while (end < area->pages && home(area, end) == home(area, first))
            end++;
        if (home(area, first) == own_rank)
            protect(area, first, end - first, PROT_READ | PROT_WRITE);
        first = end;
    }
}

void *allocate(size_t bytes)
{
    if (area_count == AREAS_AT_MOST || bytes > AREA_BYTES)
        fail("more than %d allocations, or more than %zu bytes in one", AREAS_AT_MOST, AREA_BYTES);
    struct area *area = &areas[area_count];
    area->pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    area->lowest = area->pages;
    area->heap = HEAP + area_count * AREA_BYTES;
    size_t whole = area->pages * PAGE_BYTES;
    /* What Open MPI allocates for one rank alone is not shared, and there is nobody to fetch from. */
    MPI_Aint start = create_windows || ranks == 1 ? create_window(area, whole) : allocate_window(area, whole);
    area->starts = calloc((size_t)ranks, sizeof *area->starts);
    area->twins = mapped(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    area->states = calloc(area->pages, 1);
    if (area->starts == NULL || area->states == NULL)
        fail("no memory for %zu pages", area->pages);
    MPI_Allgather(&start, 1, MPI_AINT, area->starts, 1, MPI_AINT, MPI_COMM_WORLD);
    open_home_pages(area);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, area->window);
    area_count++;
    MPI_Barrier(MPI_COMM_WORLD);
    return area->heap;
}

/* Whether NAME says `other`, not `usual`. */
static bool is_set_to(const char *name, const char *usual, const char *other)
{
    const char *value = getenv(name);
    if (value == NULL || *value == '\0' || strcmp(value, usual) == 0)
        return false;
    if (strcmp(value, other) != 0)
        fail("%s is neither %s nor %s", name, usual, other);
    return true;
}

int run_on_all(int (*part)(const void *), const void *argument)
{
    deal_out = is_set_to("PAGES_HOMES", "block", "robin");
    create_windows = is_set_to("PAGES_WINDOW", "allocate", "create");
    if (sysconf(_SC_PAGESIZE) != PAGE_BYTES)
        fail("pages are not %d bytes here", PAGE_BYTES);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a rank does not outlive mpirun, whatever ends that */
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_AT_MOST)
        fail("more than %d ranks", RANKS_AT_MOST);

    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &action_before);
    int code = part(argument);
    if (getenv("PAGES_COUNTS") != NULL)
        fprintf(stderr, "%s: rank %d: %zu barriers, %zu pages fetched, %zu stored to, %zu runs of %zu words put home\n", implementation(), own_rank,
                barriers, fetched, stored_first, runs_put, words_put);
    for (size_t i = 0; i < area_count; i++) {
        MPI_Win_unlock_all(areas[i].window);
        MPI_Win_free(&areas[i].window);
    }
    MPI_Finalize();
    return code;
}
