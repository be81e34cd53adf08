/* Regions, worksharing without loops, synchronisation, data clauses. */

#include "check.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int threads; /* Of a region that says nothing else. */

static void regions(void) {
    int seen[64] = {0}, sizes = 0;
    CHECK(!omp_in_parallel());
    CHECK_EQUAL(omp_get_num_threads(), 1);
    CHECK_EQUAL(omp_get_thread_num(), 0);
#pragma omp parallel
    {
        seen[omp_get_thread_num()]++;
#pragma omp atomic
        sizes += omp_get_num_threads();
    }
    CHECK_EQUAL(sizes, threads * threads);
    for (int i = 0; i < 64; i++) {
        CHECK_EQUAL(seen[i], i < threads);
    }
}

/* The pool grows, shrinks, and grows again. */
static void sizes(void) {
    static const int wanted[] = {2, 5, 1, 3, 8, 2, 9, 9, 4, 1, 16, 2};
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int count = 0, sum = 0, was_parallel = 0;
#pragma omp parallel num_threads(wanted[i]) reduction(+ : count, sum)
        {
            count++;
            sum += omp_get_thread_num();
            if (omp_get_thread_num() == 0) {
                was_parallel = omp_in_parallel();
            }
        }
        CHECK_EQUAL(count, wanted[i]);
        CHECK_EQUAL(sum, wanted[i] * (wanted[i] - 1) / 2);
        CHECK_EQUAL(was_parallel, wanted[i] > 1);
    }
    omp_set_num_threads(3);
    CHECK_EQUAL(omp_get_max_threads(), 3);
    int count = 0;
#pragma omp parallel reduction(+ : count)
    count += omp_get_num_threads() == 3 && omp_get_max_threads() == 3;
    CHECK_EQUAL(count, 3);
    /* What is set inside of a region ends with it. */
#pragma omp parallel
    omp_set_num_threads(5);
    CHECK_EQUAL(omp_get_max_threads(), 3);
    omp_set_num_threads(threads);
}

static void nesting(void) {
    int wrong = 0, inner = 0;
#pragma omp parallel num_threads(3) reduction(+ : wrong, inner)
    {
        int outer = omp_get_thread_num();
        wrong += omp_get_level() != 1 || omp_get_active_level() != 1;
#pragma omp parallel num_threads(4) reduction(+ : wrong, inner)
        {
            inner++;
            wrong += omp_get_level() != 2 || omp_get_active_level() != 1;
            wrong += omp_get_num_threads() != 1 || omp_get_thread_num() != 0;
            wrong += omp_get_ancestor_thread_num(1) != outer || omp_get_team_size(1) != 3;
            wrong += omp_get_ancestor_thread_num(0) != 0 || omp_get_ancestor_thread_num(3) != -1;
#pragma omp for schedule(dynamic)
            for (int i = 0; i < 10; i++) {
                inner += 10;
            }
#pragma omp single
            inner += 1000;
        }
        wrong += omp_get_level() != 1 || omp_get_num_threads() != 3;
    }
    CHECK_EQUAL(wrong, 0);
    CHECK_EQUAL(inner, 3 * 1101);
    int serial = 0;
#pragma omp parallel if (threads > 100) reduction(+ : serial)
    serial += omp_get_num_threads() + 10 * omp_get_level() + 100 * omp_in_parallel();
    CHECK_EQUAL(serial, 11);
    CHECK_EQUAL(omp_get_level(), 0);
}

/* More captured variables than machines have registers, and more than any program has. */
static void many_variables(void) {
    int a0 = 0, a1 = 1, a2 = 2, a3 = 3, a4 = 4, a5 = 5, a6 = 6, a7 = 7, a8 = 8, a9 = 9, wrong = 0;
    int b0 = 0, b1 = 1, b2 = 2, b3 = 3, b4 = 4, b5 = 5, b6 = 6, b7 = 7, b8 = 8, b9 = 9;
    double c0 = 0, c1 = 1, c2 = 2, c3 = 3, c4 = 4, c5 = 5, c6 = 6, c7 = 7, c8 = 8, c9 = 9;
    char d0 = 0, d1 = 1, d2 = 2, d3 = 3, d4 = 4, d5 = 5, d6 = 6, d7 = 7, d8 = 8, d9 = 9;
    short e0 = 0, e1 = 1, e2 = 2, e3 = 3;
#pragma omp parallel reduction(+ : wrong)
    wrong += a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 != 45;
#pragma omp parallel reduction(+ : wrong) firstprivate(c0, c1, c2, d0, d1, d2)
    {
        wrong += a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 != 45;
        wrong += b0 + b1 + b2 + b3 + b4 + b5 + b6 + b7 + b8 + b9 != 45;
        wrong += c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 != 45;
        wrong += d0 + d1 + d2 + d3 + d4 + d5 + d6 + d7 + d8 + d9 != 45;
        wrong += e0 + e1 * 10 + e2 * 100 + e3 * 1000 != 3210;
    }
    CHECK_EQUAL(wrong, 0);
}

static void once(void) {
    int singles = 0, masters = 0, masked = 0, sections[5] = {0}, wrong = 0;
#pragma omp parallel reduction(+ : wrong)
    for (int round = 0; round < 50; round++) {
        int gift = -1;
#pragma omp single nowait
        {
#pragma omp atomic
            singles++;
        }
#pragma omp single copyprivate(gift)
        gift = round;
        wrong += gift != round;
#pragma omp master
        masters++;
#pragma omp masked filter(omp_get_num_threads() - 1)
        masked++;
#pragma omp sections
        {
#pragma omp section
            sections[0]++;
#pragma omp section
            sections[1]++;
#pragma omp section
            sections[2]++;
#pragma omp section
            sections[3]++;
#pragma omp section
            sections[4]++;
        }
    }
    CHECK_EQUAL(wrong, 0);
    CHECK_EQUAL(singles, 50);
    CHECK_EQUAL(masters, 50);
    CHECK_EQUAL(masked, 50);
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(sections[i], 50);
    }
}

/* Nobody passes a barrier before all have come to it. */
static void barriers(void) {
    static int stamps[64];
    int wrong = 0;
    memset(stamps, 0, sizeof stamps);
#pragma omp parallel reduction(+ : wrong)
    for (int round = 1; round <= 100; round++) {
        stamps[omp_get_thread_num()] = round;
#pragma omp barrier
        for (int i = 0; i < omp_get_num_threads(); i++) {
            wrong += stamps[i] != round;
        }
#pragma omp barrier
    }
    CHECK_EQUAL(wrong, 0);
}

static void exclusion(void) {
    long unnamed = 0, named = 0, by_lock = 0, by_nested = 0, wide = 0;
    long double sum = 0;
    omp_lock_t lock;
    omp_nest_lock_t nested;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nested);
#pragma omp parallel
    for (int i = 0; i < 300; i++) {
#pragma omp critical
        unnamed++;
#pragma omp critical(other)
        named += 2;
#pragma omp critical(third) hint(omp_sync_hint_contended)
        sum += 0.5L;
        omp_set_lock(&lock);
        by_lock++;
        omp_unset_lock(&lock);
        omp_set_nest_lock(&nested);
        omp_set_nest_lock(&nested);
        by_nested++;
        omp_unset_nest_lock(&nested);
        by_nested++;
        omp_unset_nest_lock(&nested);
        long before;
#pragma omp atomic capture
        {
            before = wide;
            wide += 3;
        }
        (void)before;
#pragma omp flush
    }
    CHECK_EQUAL(unnamed, 300 * threads);
    CHECK_EQUAL(named, 600 * threads);
    CHECK_EQUAL(sum, 150 * threads);
    CHECK_EQUAL(by_lock, 300 * threads);
    CHECK_EQUAL(by_nested, 600 * threads);
    CHECK_EQUAL(wide, 900 * threads);
    omp_set_lock(&lock);
    CHECK_EQUAL(omp_test_nest_lock(&nested), 1);
    CHECK_EQUAL(omp_test_nest_lock(&nested), 2);
    int got = 0;
#pragma omp parallel num_threads(2) reduction(+ : got)
    if (omp_get_thread_num() == 1) {
        got += omp_test_lock(&lock) + omp_test_nest_lock(&nested);
    }
    CHECK_EQUAL(got, 0);
    omp_unset_nest_lock(&nested);
    omp_unset_nest_lock(&nested);
    omp_unset_lock(&lock);
    CHECK(omp_test_lock(&lock));
    omp_unset_lock(&lock);
    omp_destroy_lock(&lock);
    omp_destroy_nest_lock(&nested);
}

struct extremes {
    int least, most;
};

static void merge(struct extremes *into, const struct extremes *other) {
    into->least = other->least < into->least ? other->least : into->least;
    into->most = other->most > into->most ? other->most : into->most;
}

#pragma omp declare reduction(extremes : struct extremes : merge(&omp_out, &omp_in))                                   \
    initializer(omp_priv = {1000, -1000})

static void reductions(void) {
    int sum = 5, product = 1, all = 1, any = 0, least = 99, most = -99, bits = 0, counts[4] = {1, 1, 1, 1};
    double real = 0;
    struct extremes found = {1000, -1000};
#pragma omp parallel for reduction(+ : sum, real, counts) reduction(* : product) reduction(&& : all)                   \
    reduction(|| : any) reduction(min : least) reduction(max : most) reduction(| : bits) reduction(extremes : found)
    for (int i = 0; i < 60; i++) {
        sum += i;
        real += 0.25;
        counts[i % 4]++;
        product *= i % 20 == 7 ? 3 : 1;
        all = all && i >= 0;
        any = any || i == 59;
        least = i < least ? i : least;
        most = i > most ? i : most;
        bits |= 1 << i % 20;
        struct extremes own = {i - 30, i - 30};
        merge(&found, &own);
    }
    CHECK_EQUAL(sum, 5 + 1770);
    CHECK_EQUAL(real * 4, 60);
    CHECK_EQUAL(product, 27);
    CHECK_EQUAL(all * 2 + any, 3);
    CHECK_EQUAL(least, 0);
    CHECK_EQUAL(most, 59);
    CHECK_EQUAL(bits, (1 << 20) - 1);
    CHECK_EQUAL(counts[0] + counts[1] + counts[2] + counts[3], 64);
    CHECK_EQUAL(found.least, -30);
    CHECK_EQUAL(found.most, 29);
}

static int per_thread = 7;
#pragma omp threadprivate(per_thread)

static void private_variables(void) {
    int wrong = 0, first = 40, shared_before = 0;
    per_thread = 11;
#pragma omp parallel copyin(per_thread) firstprivate(first) reduction(+ : wrong, shared_before)
    {
        shared_before += first;
        first += omp_get_thread_num();
        wrong += per_thread != 11;
        per_thread = 100 + omp_get_thread_num();
    }
    CHECK_EQUAL(shared_before, 40 * threads);
    CHECK_EQUAL(per_thread, 100);
    /* It lasts from region to region, as the threads do. */
#pragma omp parallel reduction(+ : wrong)
    wrong += per_thread != 100 + omp_get_thread_num();
    CHECK_EQUAL(wrong, 0);
}

/* Cancellation is off, so that nothing happens. */
static void cancellation_is_off(void) {
    int sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 100; i++) {
        sum++;
#pragma omp cancel for if (i == 3)
    }
    CHECK_EQUAL(sum, 100);
}

static void teams(void) {
    int sum = 0, in_team = 0;
#pragma omp teams distribute parallel for reduction(+ : sum)
    for (int i = 0; i < 1000; i++) {
        sum += i;
    }
    CHECK_EQUAL(sum, 499500);
#pragma omp teams num_teams(1) reduction(+ : in_team)
    {
#pragma omp distribute dist_schedule(static, 7)
        for (int i = 0; i < 50; i++) {
            in_team += 1;
        }
    }
    CHECK_EQUAL(in_team, 50);
}

static void queries(void) {
    CHECK(omp_get_num_procs() >= 1);
    CHECK(omp_get_thread_limit() >= threads);
    CHECK(omp_get_wtick() > 0);
    double before = omp_get_wtime();
    usleep(2000);
    double passed = omp_get_wtime() - before;
    CHECK(passed >= 0.002 && passed < 60);
    omp_sched_t kind;
    int chunk;
    omp_set_schedule(omp_sched_guided, 5);
    omp_get_schedule(&kind, &chunk);
    CHECK_EQUAL(kind, omp_sched_guided);
    CHECK_EQUAL(chunk, 5);
    CHECK_EQUAL(omp_get_cancellation(), 0);
    CHECK_EQUAL(omp_get_num_teams(), 1);
}

int main(void) {
    threads = omp_get_max_threads();
    const char *asked = getenv("OMP_NUM_THREADS");
    CHECK(!asked || atoi(asked) == threads);
    regions();
    sizes();
    nesting();
    many_variables();
    once();
    barriers();
    exclusion();
    reductions();
    private_variables();
    cancellation_is_off();
    teams();
    queries();
    return failures != 0;
}
