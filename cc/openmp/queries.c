/* What a program may ask and set: threads, levels, time, and what never changes here. */

#include "environment.h"
#include "omp.h"
#include "team.h"

#include <time.h>

void omp_set_num_threads(int threads) { settings()->threads = threads > 0 ? threads : 1; }

int omp_get_num_threads(void) { return (int)current_region()->team->size; }

int omp_get_max_threads(void) {
    int limit = environment()->thread_limit;
    int threads = settings()->threads ? settings()->threads : environment()->threads;
    return threads < limit ? threads : limit;
}

int omp_get_thread_num(void) { return (int)current_region()->number; }

int omp_get_num_procs(void) { return processors(); }

int omp_get_thread_limit(void) { return environment()->thread_limit; }

int omp_in_parallel(void) { return omp_get_active_level() > 0; }

int omp_get_level(void) { return current_region()->team->level; }

int omp_get_active_level(void) { return current_region()->team->active_level; }

void omp_set_schedule(omp_sched_t kind, int chunk) {
    settings()->schedule = (int)((unsigned)kind & ~(unsigned)omp_sched_monotonic);
    settings()->chunk = chunk > 0 ? chunk : 0;
}

void omp_get_schedule(omp_sched_t *kind, int *chunk) {
    bool is_set = settings()->schedule != 0;
    *kind = (omp_sched_t)(is_set ? settings()->schedule : environment()->schedule);
    *chunk = is_set ? settings()->chunk : environment()->chunk;
}

/* The region of this thread at that level. A thread of the pool has none outside of the one that it was called into:
 * those have teams of one. */
static const struct region *region_at(int level) {
    const struct region *region = current_region();
    while (region && region->team->level > level) {
        region = region->outer;
    }
    return region && region->team->level == level ? region : NULL;
}

int omp_get_ancestor_thread_num(int level) {
    if (level < 0 || level > omp_get_level()) {
        return -1;
    }
    const struct region *region = region_at(level);
    return region ? (int)region->number : 0;
}

int omp_get_team_size(int level) {
    if (level < 0 || level > omp_get_level()) {
        return -1;
    }
    const struct region *region = region_at(level);
    return region ? (int)region->team->size : 1;
}

/* Teams have the size that was asked for, and regions inside of regions have one thread: nothing to set. */
void omp_set_dynamic(int is_dynamic) { (void)is_dynamic; }

int omp_get_dynamic(void) { return 0; }

void omp_set_nested(int is_nested) { (void)is_nested; }

int omp_get_nested(void) { return 0; }

void omp_set_max_active_levels(int levels) { (void)levels; }

int omp_get_max_active_levels(void) { return 1; }

int omp_get_supported_active_levels(void) { return 1; }

int omp_get_cancellation(void) { return 0; }

omp_proc_bind_t omp_get_proc_bind(void) { return omp_proc_bind_false; }

int omp_get_num_places(void) { return 0; }

int omp_in_final(void) { return 0; }

int omp_get_max_task_priority(void) { return 0; }

int omp_get_num_teams(void) { return 1; }

int omp_get_team_num(void) { return 0; }

int omp_get_num_devices(void) { return 0; }

int omp_get_default_device(void) { return 0; }

void omp_set_default_device(int device) { (void)device; }

int omp_get_initial_device(void) { return 0; }

int omp_is_initial_device(void) { return 1; }

double omp_get_wtime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double omp_get_wtick(void) {
    struct timespec tick;
    clock_getres(CLOCK_MONOTONIC, &tick);
    return (double)tick.tv_sec + (double)tick.tv_nsec / 1e9;
}
