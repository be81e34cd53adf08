/* Tasks. The thread that meets one runs it at once, to its end: a schedule that OpenMP allows. Every dependence on an
 * earlier task then holds by itself, and nothing is left for a taskwait. */

#include "team.h"

#include <stddef.h>
#include <stdlib.h>

/* What clang keeps of a task. Behind it are the task's own copies of variables, whose size clang tells. */
struct task {
    void *shared; /* Pointers to the variables that it shares. */
    int32_t (*body)(int32_t thread, struct task *task);
    int32_t part; /* Of an untied task: where it goes on. */
    void *destructors;
    void *priority;
    /* Of a taskloop only: */
    uint64_t lower, upper;
    int64_t step;
    int32_t has_last;
    void *reductions;
};

enum { HAS_DESTRUCTORS = 8, IS_DETACHABLE = 64 };

/* What we keep of it, before it. */
struct kept_task {
    int32_t flags;
    _Alignas(16) struct task task;
};

static struct kept_task *kept(struct task *task) {
    return (struct kept_task *)((char *)task - offsetof(struct kept_task, task));
}

/* `bytes` counts the part above and the copies behind it; the shared pointers come after them. */
struct task *__kmpc_omp_task_alloc(struct place *place, int32_t thread, int32_t flags, size_t bytes,
                                   size_t shared_bytes, int32_t (*body)(int32_t, struct task *)) {
    (void)place, (void)thread;
    if (flags & IS_DETACHABLE) {
        refuse("'detach' of tasks is not supported");
    }
    size_t own = (bytes + 15) / 16 * 16;
    struct kept_task *task = shared_zeros(offsetof(struct kept_task, task) + own + shared_bytes);
    task->flags = flags;
    task->task.body = body;
    task->task.shared = (char *)&task->task + own;
    return &task->task;
}

static void run_and_free(int32_t thread, struct task *task) {
    task->body(thread, task);
    if (kept(task)->flags & HAS_DESTRUCTORS) {
        ((int32_t(*)(int32_t, struct task *))task->destructors)(thread, task);
    }
    free(kept(task));
}

/* An untied task comes back here from within itself, with the part where it goes on. */
int32_t __kmpc_omp_task(struct place *place, int32_t thread, struct task *task) {
    (void)place;
    if (task->part != 0) {
        task->body(thread, task);
    } else {
        run_and_free(thread, task);
    }
    return 0;
}

int32_t __kmpc_omp_task_with_deps(struct place *place, int32_t thread, struct task *task, int32_t count, void *list,
                                  int32_t other_count, void *other_list) {
    (void)count, (void)list, (void)other_count, (void)other_list;
    return __kmpc_omp_task(place, thread, task);
}

/* A task whose if clause says no is run by clang's code itself, between these two. */
void __kmpc_omp_task_begin_if0(struct place *place, int32_t thread, struct task *task) {
    (void)place, (void)thread, (void)task;
}

void __kmpc_omp_task_complete_if0(struct place *place, int32_t thread, struct task *task) {
    (void)place, (void)thread;
    if (kept(task)->flags & HAS_DESTRUCTORS) {
        ((int32_t(*)(int32_t, struct task *))task->destructors)(thread, task);
    }
    free(kept(task));
}

void __kmpc_omp_wait_deps(struct place *place, int32_t thread, int32_t count, void *list, int32_t other_count,
                          void *other_list) {
    (void)place, (void)thread, (void)count, (void)list, (void)other_count, (void)other_list;
}

void __kmpc_omp_taskwait_deps_51(struct place *place, int32_t thread, int32_t count, void *list, int32_t other_count,
                                 void *other_list, int32_t has_no_wait) {
    (void)place, (void)thread, (void)count, (void)list, (void)other_count, (void)other_list, (void)has_no_wait;
}

int32_t __kmpc_omp_taskwait(struct place *place, int32_t thread) {
    (void)place, (void)thread;
    return 0;
}

int32_t __kmpc_omp_taskyield(struct place *place, int32_t thread, int32_t part) {
    (void)place, (void)thread, (void)part;
    return 0;
}

void __kmpc_taskgroup(struct place *place, int32_t thread) { (void)place, (void)thread; }

void __kmpc_end_taskgroup(struct place *place, int32_t thread) { (void)place, (void)thread; }

/* One task for all iterations: more would be run one after the other. */
void __kmpc_taskloop(struct place *place, int32_t thread, struct task *task, int32_t is_deferred, uint64_t *lower,
                     uint64_t *upper, int64_t step, int32_t has_no_group, int32_t schedule, uint64_t grain,
                     void *duplicate) {
    (void)place, (void)is_deferred, (void)has_no_group, (void)schedule, (void)grain, (void)duplicate;
    task->lower = *lower;
    task->upper = *upper;
    task->step = step;
    task->has_last = 1;
    run_and_free(thread, task);
}

void __kmpc_taskloop_5(struct place *place, int32_t thread, struct task *task, int32_t is_deferred, uint64_t *lower,
                       uint64_t *upper, int64_t step, int32_t has_no_group, int32_t schedule, uint64_t grain,
                       int32_t modifier, void *duplicate) {
    (void)modifier;
    __kmpc_taskloop(place, thread, task, is_deferred, lower, upper, step, has_no_group, schedule, grain, duplicate);
}

/* Reductions over tasks: all that take part run one after the other in this thread, so each may add to the variable
 * itself, and there are no parts to be put together. */
void *__kmpc_taskred_init(int32_t thread, int32_t count, void *variables) {
    (void)thread, (void)count;
    return variables;
}

void *__kmpc_taskred_modifier_init(struct place *place, int32_t thread, int32_t is_worksharing, int32_t count,
                                   void *variables) {
    (void)place, (void)is_worksharing;
    return __kmpc_taskred_init(thread, count, variables);
}

void __kmpc_task_reduction_modifier_fini(struct place *place, int32_t thread, int32_t is_worksharing) {
    (void)place, (void)thread, (void)is_worksharing;
}

void *__kmpc_task_reduction_get_th_data(int32_t thread, void *group, void *variable) {
    (void)thread, (void)group;
    return variable;
}
