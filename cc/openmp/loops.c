/* Loops whose iterations are shared out: beforehand (static), or while they run (dispatch), and their ordered parts.
 *
 * Inside, iterations are counted from 0, and the program's variable is computed modulo 2^64: signed and unsigned ones
 * of both widths are the same then, until they are handed back. */

#include "omp.h"
#include "team.h"

/* How clang names schedules. The ordered kinds are 32 above. */
enum {
    STATIC_CHUNKED = 33,
    STATIC = 34,
    DYNAMIC = 35,
    GUIDED = 36,
    RUNTIME = 37,
    AUTO = 38,
    STATIC_BALANCED_CHUNKED = 45,
    GUIDED_SIMD = 46,
    RUNTIME_SIMD = 47,
    ORDERED = 32,
    ORDERED_FIRST = 65,
    ORDERED_LAST = 70,
    DISTRIBUTE_CHUNKED = 91,
    DISTRIBUTE = 92,
    MODIFIERS = 1 << 29 | 1 << 30, /* Monotonic and not: here a thread's chunks always come in order. */
};

/* Iterations from `first` to `last`, both included, by `step`. */
static uint64_t iterations(uint64_t first, uint64_t last, int64_t step, bool is_empty) {
    if (is_empty) {
        return 0;
    }
    return step > 0 ? (last - first) / (uint64_t)step + 1 : (first - last) / -(uint64_t)step + 1;
}

/* The part of thread `number` of `size` when each gets one block: `from` to `end`, the end excluded. */
static void block_of(uint64_t count, unsigned number, unsigned size, uint64_t *from, uint64_t *end) {
    uint64_t each = count / size, more = count % size;
    *from = number * each + (number < more ? number : more);
    *end = *from + each + (number < more);
}

/* What a static loop gives a thread: its first chunk, and the way to its next. Iterations; `end` is excluded. */
struct static_part {
    uint64_t from, end, stride;
    bool has_last;
};

static struct static_part static_part(int schedule, uint64_t count, uint64_t chunk) {
    const struct region *region = current_region();
    unsigned size = region->team->size, number = region->number;
    struct static_part part = {.stride = count};
    chunk = chunk > 0 ? chunk : 1;
    switch (schedule & ~MODIFIERS) {
    case DISTRIBUTE: /* Over teams, of which there is one. */
        part.end = count;
        part.has_last = true;
        return part;
    case DISTRIBUTE_CHUNKED:
        size = 1;
        number = 0;
        break;
    case STATIC_CHUNKED:
        break;
    case STATIC_BALANCED_CHUNKED: { /* One block for each, of whole chunks. */
        uint64_t each = (count + size - 1) / size;
        chunk = (each + chunk - 1) / chunk * chunk;
        break;
    }
    default:
        block_of(count, number, size, &part.from, &part.end);
        part.has_last = part.end == count && part.from < part.end;
        return part;
    }
    part.from = number * chunk;
    part.end = part.from + chunk;
    part.stride = size * chunk;
    part.has_last = (count - 1) / chunk % size == number;
    return part;
}

/* The first chunk of a thread may end behind the loop, or begin there: clang looks. */
#define STATIC_INIT(name, type, signed_type)                                                                           \
    void name(struct place *place, int32_t thread, int32_t schedule, int32_t *is_last, type *lower, type *upper,       \
              signed_type *stride, signed_type step, signed_type chunk) {                                              \
        (void)place, (void)thread;                                                                                     \
        bool is_empty = step > 0 ? *upper < *lower : *lower < *upper;                                                  \
        uint64_t count = iterations((uint64_t)*lower, (uint64_t)*upper, step, is_empty);                               \
        if (count == 0) {                                                                                              \
            *is_last = 0;                                                                                              \
            *stride = step;                                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        struct static_part part = static_part(schedule, count, chunk > 0 ? (uint64_t)chunk : 0);                       \
        uint64_t first = (uint64_t)*lower, by = (uint64_t)(int64_t)step;                                               \
        *is_last = part.has_last;                                                                                      \
        *lower = (type)(first + part.from * by);                                                                       \
        *upper = (type)(first + part.end * by - by);                                                                   \
        *stride = (signed_type)(part.stride * by);                                                                     \
    }

STATIC_INIT(__kmpc_for_static_init_4, int32_t, int32_t)
STATIC_INIT(__kmpc_for_static_init_4u, uint32_t, int32_t)
STATIC_INIT(__kmpc_for_static_init_8, int64_t, int64_t)
STATIC_INIT(__kmpc_for_static_init_8u, uint64_t, int64_t)

void __kmpc_for_static_fini(struct place *place, int32_t thread) { (void)place, (void)thread; }

/* The schedule that the loop has in the end, without modifiers, and its chunk. */
static int settled(int schedule, uint64_t *chunk) {
    schedule &= ~MODIFIERS;
    if (schedule >= ORDERED_FIRST && schedule <= ORDERED_LAST) {
        schedule -= ORDERED;
    }
    if (schedule == RUNTIME || schedule == RUNTIME_SIMD) {
        omp_sched_t kind;
        int wanted;
        omp_get_schedule(&kind, &wanted);
        *chunk = (uint64_t)wanted;
        switch ((int)kind) {
        case omp_sched_dynamic:
            schedule = DYNAMIC;
            break;
        case omp_sched_guided:
            schedule = GUIDED;
            break;
        default:
            schedule = wanted > 0 ? STATIC_CHUNKED : STATIC;
        }
    }
    *chunk = *chunk > 0 ? *chunk : 1;
    switch (schedule) {
    case STATIC_CHUNKED:
    case STATIC_BALANCED_CHUNKED:
        return STATIC_CHUNKED;
    case DYNAMIC:
        return DYNAMIC;
    case GUIDED:
    case GUIDED_SIMD:
        return GUIDED;
    default:
        return STATIC;
    }
}

/* The place of loop `number` among those that the team is in. Whoever comes first makes it ready; who is too far ahead
 * waits until the last has left the loop that was there. */
static struct shared_loop *enter_loop(struct team *team, uint64_t number) {
    struct shared_loop *loop = &team->loops[number % LOOPS_AT_ONCE];
    pthread_mutex_lock(&team->mutex);
    while (loop->number != number && atomic_load(&loop->left) != 0) {
        pthread_cond_wait(&team->changed, &team->mutex);
    }
    if (loop->number != number) {
        loop->number = number;
        loop->ordered_next = 0;
        atomic_store(&loop->next, 0);
        atomic_store(&loop->left, team->size);
    }
    pthread_mutex_unlock(&team->mutex);
    return loop;
}

static void leave_loop(struct team *team, struct shared_loop *loop) {
    if (atomic_fetch_sub(&loop->left, 1) == 1) {
        pthread_mutex_lock(&team->mutex);
        pthread_cond_broadcast(&team->changed);
        pthread_mutex_unlock(&team->mutex);
    }
}

static void begin_loop(int schedule, uint64_t first, int64_t step, uint64_t count, uint64_t chunk) {
    struct region *region = current_region();
    region->loop = (struct own_loop){.first = first, .step = (uint64_t)step, .count = count, .chunk = chunk};
    region->loop.schedule = settled(schedule, &region->loop.chunk);
    region->loop.shared = enter_loop(region->team, ++region->loop_count);
}

/* The next iterations for this thread, the end excluded; false when there are none. */
static bool next_chunk(const struct region *region, struct own_loop *loop, uint64_t *from, uint64_t *end) {
    unsigned size = region->team->size;
    switch (loop->schedule) {
    case STATIC:
        block_of(loop->count, region->number, size, from, end);
        return loop->position++ == 0 && *from < *end;
    case STATIC_CHUNKED:
        *from = (loop->position++ * size + region->number) * loop->chunk;
        *end = *from + loop->chunk;
        break;
    case DYNAMIC:
        *from = atomic_fetch_add(&loop->shared->next, loop->chunk);
        *end = *from + loop->chunk;
        break;
    default: { /* Guided: half of an equal share of what is left. */
        uint64_t next = atomic_load(&loop->shared->next), take;
        do {
            if (next >= loop->count) {
                return false;
            }
            take = (loop->count - next) / (2 * (uint64_t)size);
            take = take > loop->chunk ? take : loop->chunk;
        } while (!atomic_compare_exchange_weak(&loop->shared->next, &next, next + take));
        *from = next;
        *end = next + take;
    }
    }
    *end = *end < loop->count ? *end : loop->count;
    return *from < loop->count;
}

#define DISPATCH(suffix, type, signed_type)                                                                            \
    void __kmpc_dispatch_init_##suffix(struct place *place, int32_t thread, int32_t schedule, type lower, type upper,  \
                                       signed_type step, signed_type chunk) {                                          \
        (void)place, (void)thread;                                                                                     \
        bool is_empty = step > 0 ? upper < lower : lower < upper;                                                      \
        uint64_t count = iterations((uint64_t)lower, (uint64_t)upper, step, is_empty);                                 \
        begin_loop(schedule, (uint64_t)lower, step, count, chunk > 0 ? (uint64_t)chunk : 0);                           \
    }                                                                                                                  \
                                                                                                                       \
    int32_t __kmpc_dispatch_next_##suffix(struct place *place, int32_t thread, int32_t *is_last, type *lower,          \
                                          type *upper, signed_type *step) {                                            \
        (void)place, (void)thread;                                                                                     \
        struct region *region = current_region();                                                                      \
        struct own_loop *loop = &region->loop;                                                                         \
        uint64_t from, end;                                                                                            \
        if (!next_chunk(region, loop, &from, &end)) {                                                                  \
            leave_loop(region->team, loop->shared);                                                                    \
            return 0;                                                                                                  \
        }                                                                                                              \
        loop->ordered_at = from;                                                                                       \
        *is_last = end == loop->count;                                                                                 \
        *lower = (type)(loop->first + from * loop->step);                                                              \
        *upper = (type)(loop->first + (end - 1) * loop->step);                                                         \
        *step = (signed_type)loop->step;                                                                               \
        return 1;                                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    /* Behind every iteration of an ordered loop. */                                                                   \
    void __kmpc_dispatch_fini_##suffix(struct place *place, int32_t thread) {                                          \
        (void)place, (void)thread;                                                                                     \
        end_iteration();                                                                                               \
    }

/* Ordered parts run one after the other, in the order of iterations. */
static void wait_for_turn(struct team *team, const struct own_loop *loop) {
    pthread_mutex_lock(&team->mutex);
    while (loop->shared->ordered_next != loop->ordered_at) {
        pthread_cond_wait(&team->changed, &team->mutex);
    }
    pthread_mutex_unlock(&team->mutex);
}

static void give_turn(struct team *team, struct own_loop *loop) {
    pthread_mutex_lock(&team->mutex);
    loop->shared->ordered_next++;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}

void __kmpc_ordered(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    struct region *region = current_region();
    wait_for_turn(region->team, &region->loop);
}

void __kmpc_end_ordered(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    struct region *region = current_region();
    region->loop.ordered_done = true;
    give_turn(region->team, &region->loop);
}

/* An iteration need not have an ordered part: its turn goes by all the same. */
static void end_iteration(void) {
    struct region *region = current_region();
    if (!region->loop.ordered_done) {
        wait_for_turn(region->team, &region->loop);
        give_turn(region->team, &region->loop);
    }
    region->loop.ordered_done = false;
    region->loop.ordered_at++;
}

DISPATCH(4, int32_t, int32_t)
DISPATCH(4u, uint32_t, int32_t)
DISPATCH(8, int64_t, int64_t)
DISPATCH(8u, uint64_t, int64_t)

/* A thread leaves a loop when it finds nothing left: nothing remains to be done here. */
void __kmpc_dispatch_deinit(struct place *place, int32_t thread) { (void)place, (void)thread; }

void __kmpc_doacross_init(struct place *place, int32_t thread, int32_t dimensions, const void *bounds) {
    (void)place, (void)thread, (void)dimensions, (void)bounds;
    refuse("'ordered(n)' with dependences between iterations is not supported");
}

/* Never reached: that it begins is refused. */
void __kmpc_doacross_wait(struct place *place, int32_t thread, const int64_t *iteration) {
    (void)place, (void)thread, (void)iteration;
}

void __kmpc_doacross_post(struct place *place, int32_t thread, const int64_t *iteration) {
    (void)place, (void)thread, (void)iteration;
}

void __kmpc_doacross_fini(struct place *place, int32_t thread) { (void)place, (void)thread; }
