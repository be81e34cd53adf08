/* A task of one cell with a thief: a thread that takes blocks away at random moments, as other cells would, and destroys what was in
 * them. A program that was compiled rightly does not notice. Heap, image and shared stacks can be stolen from. */
#include "comb_access.h"
#include "comb_state.h"
#include "comb_thread.h"
#include "thief.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define THREADS_MOST 64
#define STACK_BYTES (256UL << 10)
/* Blocks that were fetched lately are stolen again with more likelihood: they are the ones in use. */
#define RECENT 64
#define PAGE 4096UL

int comb_main(int count, char **arguments, char **environment);

/* There is one component. */
int comb_runs_constructors(void)
{
    return 1;
}
extern char comb_image_start[], comb_image_end[];

static struct comb_thread *threads[THREADS_MOST];
static int thread_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Memory that can be stolen: the program sees it at its address, the thief at another, and keeps what it took in a third place. */
struct range {
    char *start, *alias, *kept;
    size_t bytes;
} ranges[2];

static size_t block_bytes;
static int is_hybrid;
static uintptr_t recent[RECENT];
static unsigned recent_count;
static unsigned long stolen_count, fetched_count, poll_count;

static void fail(const char *what)
{
    perror(what);
    _exit(99);
}

static struct range *range_of(uintptr_t address)
{
    for (int index = 0; index < 2; index++)
        if (address - (uintptr_t)ranges[index].start < ranges[index].bytes)
            return &ranges[index];
    return NULL;
}

static void set_state(uintptr_t block, uint8_t state)
{
    for (size_t offset = 0; offset < block_bytes; offset += 1 << COMB_STATE_SHIFT)
        *comb_state_of(block + offset) = state;
}

static void fence(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0) != 0)
        fail("membarrier");
    for (int index = 0; index < thread_count; index++) {
        uint64_t pins = __atomic_load_n(&threads[index]->pins, __ATOMIC_SEQ_CST);
        while (pins % 2 == 1 && __atomic_load_n(&threads[index]->pins, __ATOMIC_SEQ_CST) == pins)
            __builtin_ia32_pause();
    }
}

static void steal(struct range *range, uintptr_t block, int only_stores)
{
    uint8_t state = *comb_state_of(block);
    if (state == COMB_INVALID || (state == COMB_LOADS && only_stores))
        return;
    stolen_count++;
    set_state(block, only_stores ? COMB_LOADS : COMB_INVALID);
    size_t offset = block - (uintptr_t)range->start;
    if (only_stores) {
        fence();
        memcpy(range->kept + offset, range->alias + offset, block_bytes);
        return;
    }
    /* Loads of a page end with its protection, and stores do with the fence. */
    fence();
    if (is_hybrid && mprotect((void *)block, block_bytes, PROT_NONE) != 0)
        fail("mprotect");
    memcpy(range->kept + offset, range->alias + offset, block_bytes);
    for (size_t word = 0; word < block_bytes; word += 8)
        *(volatile uint64_t *)(range->alias + offset + word) = 0x0101010101010101ULL * COMB_FLAG;
}

static void fetch_block(struct range *range, uintptr_t block, int is_store)
{
    uint8_t state = *comb_state_of(block);
    size_t offset = block - (uintptr_t)range->start;
    if (state == COMB_INVALID) {
        for (size_t word = 0; word < block_bytes; word += 8)
            *(volatile uint64_t *)(range->alias + offset + word) = *(uint64_t *)(range->kept + offset + word);
        if (is_hybrid && mprotect((void *)block, block_bytes, PROT_READ | PROT_WRITE) != 0)
            fail("mprotect");
    }
    if (state == COMB_INVALID || is_store)
        set_state(block, is_store ? COMB_LOADS_AND_STORES : COMB_LOADS);
    recent[recent_count++ % RECENT] = block;
}

/* As what gets blocks and serves others may: nothing is left as it was of what a called function need not keep. */
static void spoil_registers(void)
{
#define SPOIL(number) "pcmpeqd %%xmm" #number ", %%xmm" #number "\n"
    __asm__ volatile(SPOIL(0) SPOIL(1) SPOIL(2) SPOIL(3) SPOIL(4) SPOIL(5) SPOIL(6) SPOIL(7) SPOIL(8) SPOIL(9) SPOIL(10) SPOIL(11) SPOIL(12)
                         SPOIL(13) SPOIL(14) SPOIL(15) "fninit"
                     :
                     :
                     : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                       "xmm14", "xmm15");
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroall");
#undef SPOIL
}

static void fetch(void *address, size_t bytes, int is_store, void *instruction)
{
    (void)instruction;
    struct range *range = range_of((uintptr_t)address);
    if (!range) {
        fprintf(stderr, "thief: a miss at %p, which cannot be stolen\n", address);
        _exit(98);
    }
    pthread_mutex_lock(&lock);
    fetched_count++;
    uintptr_t last = (uintptr_t)address + bytes - 1;
    for (uintptr_t block = (uintptr_t)address & -block_bytes; block <= last; block += block_bytes)
        fetch_block(range, block, is_store);
    pthread_mutex_unlock(&lock);
    spoil_registers();
}

static void poll(void)
{
    *(volatile char *)COMB_MAIL = 0;
    __atomic_fetch_add(&poll_count, 1, __ATOMIC_RELAXED);
    spoil_registers();
}

static uint64_t random_number(void)
{
    static uint64_t state = 88172645463325252ULL;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void *be_thief(void *nothing)
{
    (void)nothing;
    for (;;) {
        pthread_mutex_lock(&lock);
        struct range *range = &ranges[random_number() % 2];
        size_t bytes = range == &ranges[0] ? thief_heap_used() : range->bytes;
        uintptr_t block = (uintptr_t)range->start + random_number() % (bytes + 1);
        if (recent_count > RECENT && random_number() % 4 != 0) {
            block = recent[random_number() % RECENT];
            range = range_of(block);
        }
        block &= -block_bytes;
        if (block - (uintptr_t)range->start < range->bytes)
            steal(range, block, random_number() % 4 == 0);
        pthread_mutex_unlock(&lock);
        *(volatile char *)COMB_MAIL = 1;
        nanosleep(&(struct timespec){0, (long)(random_number() % 20000)}, NULL);
    }
    return NULL;
}

/* With `hybrid`, loads notice by the MMU. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    int is_store = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    uintptr_t address = (uintptr_t)info->si_addr;
    if (!is_hybrid || !range_of(address)) {
        fprintf(stderr, "thief: the program faults at %p\n", info->si_addr);
        _exit(97);
    }
    void *instruction = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    int was_pinned = comb_thread.pins & 1;
    comb_thread.pins += (uint64_t)was_pinned;
    fetch((void *)address, 1, is_store, instruction);
    comb_thread.pins += (uint64_t)was_pinned;
    if (was_pinned)
        comb_restore_noted(address, 1, is_store, instruction);
}

void thief_enter_thread(void)
{
    pthread_mutex_lock(&lock);
    if (thread_count == THREADS_MOST)
        fail("too many threads");
    threads[thread_count++] = &comb_thread;
    pthread_mutex_unlock(&lock);
}

void thief_leave_thread(void)
{
    pthread_mutex_lock(&lock);
    for (int index = 0; index < thread_count; index++)
        if (threads[index] == &comb_thread)
            threads[index] = threads[--thread_count];
    pthread_mutex_unlock(&lock);
}

static char *stack(size_t *bytes)
{
    *bytes = STACK_BYTES;
    return thief_allocate(STACK_BYTES);
}

static void share(struct range *range, char *start, size_t bytes)
{
    /* A program without variables has an empty image. */
    if (bytes == 0)
        return;
    int frames = memfd_create("frames", 0);
    if (frames < 0 || ftruncate(frames, (off_t)bytes) != 0)
        fail("memfd");
    *range = (struct range){.start = start, .bytes = bytes};
    range->alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, frames, 0);
    range->kept = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start != (char *)COMB_HEAP_START)
        memcpy(range->alias, start, bytes);
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, frames, 0) != start)
        fail("mmap");
    close(frames);
}

static void start(void)
{
    is_hybrid = THIEF_HYBRID;
    block_bytes = is_hybrid ? PAGE : 128;
    if (mmap((void *)COMB_STATE_TABLE, COMB_STATE_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
        fail("mmap of the state table");
    if (mmap((void *)COMB_MAIL_PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
        MAP_FAILED)
        fail("mmap of the mail");
    comb_rseq_offset = (uint64_t)__rseq_offset;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) != 0)
        fail("membarrier");
    share(&ranges[0], (char *)COMB_HEAP_START, THIEF_HEAP_BYTES);
    share(&ranges[1], comb_image_start, (size_t)(comb_image_end - comb_image_start));
    comb_images[comb_image_count++] = (struct comb_range){(uintptr_t)comb_image_start, (uintptr_t)comb_image_end};
    comb_runtime.fetch = fetch;
    comb_runtime.stack = stack;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = start;

static void tell(void)
{
    fprintf(stderr, "thief: %lu stolen, %lu fetched\n", stolen_count, fetched_count);
}

int main(int count, char **arguments, char **environment)
{
    thief_enter_thread();
    atexit(tell);
    pthread_t thief;
    if (pthread_create(&thief, NULL, be_thief, NULL) != 0)
        fail("pthread_create");
    return comb_main(count, arguments, environment);
}
