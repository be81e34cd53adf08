/* Loops of every schedule, type and direction: each iteration runs once. */

#include "check.h"
#include <limits.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 1000 };

static int runs[MOST];

static void begin(void) { memset(runs, 0, sizeof runs); }

static void each_once(const char *what, int count) {
    for (int i = 0; i < MOST; i++) {
        if (runs[i] != (i < count)) {
            printf("%s, %d iterations: iteration %d ran %d times\n", what, count, i, runs[i]);
            failures++;
            return;
        }
    }
}

/* One function for each schedule, with loops of all types, forwards and backwards, of any length. */
#define SCHEDULE(name, ...)                                                                                            \
    static void name(int n) {                                                                                          \
        int last = -1;                                                                                                 \
        begin();                                                                                                       \
        _Pragma(#__VA_ARGS__) for (int i = 0; i < n; i++) {                                                            \
            runs[i]++;                                                                                                 \
            last = i;                                                                                                  \
        }                                                                                                              \
        each_once(#name " int", n);                                                                                    \
        CHECK_EQUAL(last, n - 1);                                                                                      \
        begin();                                                                                                       \
        _Pragma(#__VA_ARGS__) for (unsigned i = 5; i < 5 + 3 * (unsigned)n; i += 3) {                                  \
            runs[i / 3 - 1]++;                                                                                         \
            last = (int)i;                                                                                             \
        }                                                                                                              \
        each_once(#name " unsigned, up by 3", n);                                                                      \
        CHECK_EQUAL(last, 3 * n + 2);                                                                                  \
        begin();                                                                                                       \
        _Pragma(#__VA_ARGS__) for (int i = n; i > -n; i -= 2) {                                                        \
            runs[(n - i) / 2]++;                                                                                       \
            last = i;                                                                                                  \
        }                                                                                                              \
        each_once(#name " int, down by 2", n);                                                                         \
        CHECK_EQUAL(last, 2 - n);                                                                                      \
        begin();                                                                                                       \
        _Pragma(#__VA_ARGS__) for (long i = LONG_MAX - n; i < LONG_MAX; i++) {                                         \
            runs[i - (LONG_MAX - n)]++;                                                                                \
            last = (int)i;                                                                                             \
        }                                                                                                              \
        each_once(#name " long, to its end", n);                                                                       \
        begin();                                                                                                       \
        _Pragma(#__VA_ARGS__) for (uint64_t i = UINT64_MAX; i > UINT64_MAX - (uint64_t)n; i--) {                       \
            runs[UINT64_MAX - i]++;                                                                                    \
            last = (int)i;                                                                                             \
        }                                                                                                              \
        each_once(#name " unsigned long, down from its end", n);                                                       \
    }

SCHEDULE(by_default, omp parallel for lastprivate(last))
SCHEDULE(fixed, omp parallel for schedule(static) lastprivate(last))
SCHEDULE(fixed_1, omp parallel for schedule(static, 1) lastprivate(last))
SCHEDULE(fixed_7, omp parallel for schedule(static, 7) lastprivate(last))
SCHEDULE(vectors, omp parallel for simd schedule(simd : static, 5) lastprivate(last))
SCHEDULE(dynamic, omp parallel for schedule(dynamic) lastprivate(last))
SCHEDULE(dynamic_7, omp parallel for schedule(monotonic : dynamic, 7) lastprivate(last))
SCHEDULE(guided, omp parallel for schedule(guided) lastprivate(last))
SCHEDULE(guided_3, omp parallel for schedule(nonmonotonic : guided, 3) lastprivate(last))
SCHEDULE(by_runtime, omp parallel for schedule(runtime) lastprivate(last))
SCHEDULE(automatic, omp parallel for schedule(auto) lastprivate(last))

static void of_length(int n) {
    by_default(n);
    fixed(n);
    fixed_1(n);
    fixed_7(n);
    vectors(n);
    dynamic(n);
    dynamic_7(n);
    guided(n);
    guided_3(n);
    automatic(n);
    for (int kind = 1; kind <= 4; kind++) {
        omp_set_schedule((omp_sched_t)kind, kind == 3 ? 4 : kind - 1);
        by_runtime(n);
    }
}

/* Loops without a barrier: some threads are far ahead, and more loops are open than there are places for. */
static void without_barriers(void) {
    static int counts[40][64];
    int wrong = 0;
#pragma omp parallel reduction(+ : wrong)
    for (int round = 0; round < 40; round++) {
        counts[round][omp_get_thread_num()] = 0;
#pragma omp for schedule(dynamic, 3) nowait
        for (int i = 0; i < 50; i++) {
            counts[round][omp_get_thread_num()]++;
        }
#pragma omp for schedule(static) nowait
        for (int i = 0; i < 50; i++) {
            counts[round][omp_get_thread_num()] += 100;
        }
#pragma omp for schedule(guided) nowait
        for (int i = 0; i < 50; i++) {
            counts[round][omp_get_thread_num()] += 10000;
        }
    }
    for (int round = 0; round < 40; round++) {
        int sum = 0;
        for (int i = 0; i < omp_get_max_threads(); i++) {
            sum += counts[round][i];
        }
        CHECK_EQUAL(sum, 50 * 10101);
    }
    CHECK_EQUAL(wrong, 0);
}

/* Only some iterations have an ordered part; the order is that of iterations all the same. */
#define IN_ORDER(...)                                                                                                  \
    do {                                                                                                               \
        int at = 0, order[200];                                                                                        \
        _Pragma(#__VA_ARGS__) for (int i = 10; i < 210; i++) {                                                         \
            if (i % 3 != 0) {                                                                                          \
                _Pragma("omp ordered") { order[at++] = i; }                                                            \
            }                                                                                                          \
        }                                                                                                              \
        int wanted = 0;                                                                                                \
        for (int i = 10; i < 210; i++) {                                                                               \
            if (i % 3 != 0) {                                                                                          \
                CHECK_EQUAL(order[wanted], i);                                                                         \
                wanted++;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        CHECK_EQUAL(at, wanted);                                                                                       \
    } while (0)

static void ordered(void) {
    IN_ORDER(omp parallel for ordered);
    IN_ORDER(omp parallel for ordered schedule(static, 2));
    IN_ORDER(omp parallel for ordered schedule(dynamic));
    IN_ORDER(omp parallel for ordered schedule(dynamic, 5));
    IN_ORDER(omp parallel for ordered schedule(guided, 2));
    omp_set_schedule(omp_sched_dynamic, 3);
    IN_ORDER(omp parallel for ordered schedule(runtime));
}

static void collapsed(void) {
    static int cells[13][17];
    memset(cells, 0, sizeof cells);
#pragma omp parallel for collapse(2) schedule(dynamic, 4)
    for (int i = 0; i < 13; i++) {
        for (int j = 16; j >= 0; j--) {
            cells[i][j]++;
        }
    }
    int sum = 0;
    for (int i = 0; i < 13; i++) {
        for (int j = 0; j < 17; j++) {
            sum += cells[i][j] == 1;
        }
    }
    CHECK_EQUAL(sum, 13 * 17);
}

static void scan(void) {
    int running = 0, sums[100];
#pragma omp parallel for reduction(inscan, + : running)
    for (int i = 0; i < 100; i++) {
        running += i;
#pragma omp scan inclusive(running)
        sums[i] = running;
    }
    for (int i = 0; i < 100; i++) {
        CHECK_EQUAL(sums[i], i * (i + 1) / 2);
    }
}

/* Outside of a region, a loop has the one thread that there is. */
static void alone(void) {
    begin();
#pragma omp for schedule(dynamic, 3)
    for (int i = 0; i < 100; i++) {
        runs[i]++;
    }
    each_once("alone", 100);
}

int main(void) {
    static const int lengths[] = {1, 2, 3, 6, 7, 8, 20, 99, 1000};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        of_length(lengths[i]);
    }
    int none = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : none)
    for (int i = 5; i < 5; i++) {
        none++;
    }
    CHECK_EQUAL(none, 0);
    without_barriers();
    ordered();
    collapsed();
    scan();
    alone();
    return failures != 0;
}
