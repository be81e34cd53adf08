/* Barrier, single, master, critical, reductions, copies of private variables, and what has no effect here. */

#include "environment.h"
#include "team.h"

#include <stdlib.h>
#include <string.h>

void __kmpc_barrier(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    team_barrier(current_region()->team);
}

void __kmpc_flush(struct place *place) {
    (void)place;
    atomic_thread_fence(memory_order_seq_cst);
}

/* The first to come. A thread counts the single constructs that it met, the team those that somebody entered. */
int32_t __kmpc_single(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    struct region *region = current_region();
    uint64_t met = region->singles++;
    return atomic_compare_exchange_strong(&region->team->singles, &met, met + 1);
}

void __kmpc_end_single(struct place *place, int32_t thread) { (void)place, (void)thread; }

/* Whoever was in the single construct shows its variables, and waits until all have copied them. */
void __kmpc_copyprivate(struct place *place, int32_t thread, size_t bytes, void *variables,
                        void (*copy)(void *to, void *from), int32_t was_in_single) {
    (void)place, (void)thread, (void)bytes;
    struct team *team = current_region()->team;
    if (was_in_single) {
        team->copied = variables;
    }
    team_barrier(team);
    if (!was_in_single) {
        copy(variables, team->copied);
    }
    team_barrier(team);
}

int32_t __kmpc_master(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    return current_region()->number == 0;
}

void __kmpc_end_master(struct place *place, int32_t thread) { (void)place, (void)thread; }

int32_t __kmpc_masked(struct place *place, int32_t thread, int32_t filter) {
    (void)place, (void)thread;
    return (int32_t)current_region()->number == filter;
}

void __kmpc_end_masked(struct place *place, int32_t thread) { (void)place, (void)thread; }

/* Clang gives every name of a critical section 32 bytes of zeros. The first of them come to point at a mutex. */
pthread_mutex_t *critical_mutex(void *name) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    _Atomic(pthread_mutex_t *) *known = name;
    pthread_mutex_t *mutex = atomic_load_explicit(known, memory_order_acquire);
    if (mutex) {
        return mutex;
    }
    pthread_mutex_lock(&making);
    mutex = atomic_load_explicit(known, memory_order_relaxed);
    if (!mutex) {
        mutex = shared_zeros(sizeof *mutex);
        pthread_mutex_init(mutex, NULL);
        atomic_store_explicit(known, mutex, memory_order_release);
    }
    pthread_mutex_unlock(&making);
    return mutex;
}

void __kmpc_critical(struct place *place, int32_t thread, void *name) {
    (void)place, (void)thread;
    pthread_mutex_lock(critical_mutex(name));
}

void __kmpc_critical_with_hint(struct place *place, int32_t thread, void *name, uint32_t hint) {
    (void)hint;
    __kmpc_critical(place, thread, name);
}

void __kmpc_end_critical(struct place *place, int32_t thread, void *name) {
    (void)place, (void)thread;
    pthread_mutex_unlock(critical_mutex(name));
}

/* Each thread in turn adds its part to the whole: 1 tells it so. */
int32_t __kmpc_reduce_nowait(struct place *place, int32_t thread, int32_t variables, size_t bytes, void *data,
                             void (*reduce)(void *to, void *from), void *name) {
    (void)variables, (void)bytes, (void)data, (void)reduce;
    __kmpc_critical(place, thread, name);
    return 1;
}

void __kmpc_end_reduce_nowait(struct place *place, int32_t thread, void *name) {
    __kmpc_end_critical(place, thread, name);
}

int32_t __kmpc_reduce(struct place *place, int32_t thread, int32_t variables, size_t bytes, void *data,
                      void (*reduce)(void *to, void *from), void *name) {
    return __kmpc_reduce_nowait(place, thread, variables, bytes, data, reduce, name);
}

void __kmpc_end_reduce(struct place *place, int32_t thread, void *name) {
    __kmpc_end_critical(place, thread, name);
    __kmpc_barrier(place, thread);
}

/* A thread's copy of a threadprivate variable. Clang asks for it only where it may not use thread-local variables, so
 * it need not be quick. The variable itself belongs to the first thread: copyin takes it from there. */
struct private_copy {
    struct private_copy *next;
    const void *original;
    _Alignas(16) char copy[];
};

static _Thread_local struct private_copy *private_copies;
static _Thread_local bool is_first_thread;

__attribute__((constructor)) static void mark_first_thread(void) { is_first_thread = true; }

/* What the variable was before anybody used it. Clang reserves a pointer for us for each variable: there it stands. */
static const void *first_content(const void *original, size_t bytes, void **reserved) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&making);
    if (!*reserved) {
        *reserved = shared_zeros(bytes);
        memcpy(*reserved, original, bytes);
    }
    void *content = *reserved;
    pthread_mutex_unlock(&making);
    return content;
}

void *__kmpc_threadprivate_cached(struct place *place, int32_t thread, void *original, size_t bytes, void **reserved) {
    (void)place, (void)thread;
    for (struct private_copy *copy = private_copies; copy; copy = copy->next) {
        if (copy->original == original) {
            return copy->copy;
        }
    }
    const void *content = first_content(original, bytes, reserved);
    if (is_first_thread) {
        return original;
    }
    struct private_copy *copy = shared_zeros(sizeof *copy + bytes);
    copy->next = private_copies;
    copy->original = original;
    memcpy(copy->copy, content, bytes);
    private_copies = copy;
    return copy->copy;
}

void __kmpc_threadprivate_register(struct place *place, void *data, void *(*construct)(void *),
                                   void *(*copy)(void *, void *), void (*destroy)(void *)) {
    (void)place, (void)data, (void)construct, (void)copy, (void)destroy;
    refuse("threadprivate objects with constructors need thread-local variables: compile with -fopenmp-use-tls");
}

/* Cancellation is off unless the environment asks for it. Off, these do nothing, as OpenMP says. */
int32_t __kmpc_cancel(struct place *place, int32_t thread, int32_t kind) {
    (void)place, (void)thread, (void)kind;
    if (environment()->may_cancel) {
        refuse("'cancel' is not supported: unset OMP_CANCELLATION");
    }
    return 0;
}

int32_t __kmpc_cancellationpoint(struct place *place, int32_t thread, int32_t kind) {
    (void)place, (void)thread, (void)kind;
    return 0;
}

int32_t __kmpc_cancel_barrier(struct place *place, int32_t thread) {
    __kmpc_barrier(place, thread);
    return 0;
}
