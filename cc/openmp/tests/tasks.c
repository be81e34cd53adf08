/* Tasks: each runs once, before whoever waits for it goes on, and after those that it depends on. */

#include "check.h"
#include <omp.h>

static long fibonacci(int n) {
    long left, right;
    if (n < 2) {
        return n;
    }
#pragma omp task shared(left)
    left = fibonacci(n - 1);
#pragma omp task shared(right) if (n > 10)
    right = fibonacci(n - 2);
#pragma omp taskwait
    return left + right;
}

static void recursion(void) {
    long found = 0;
#pragma omp parallel
#pragma omp single
    found = fibonacci(16);
    CHECK_EQUAL(found, 987);
}

static void from_all_threads(void) {
    int runs = 0, threads = omp_get_max_threads();
#pragma omp parallel
    for (int i = 0; i < 20; i++) {
#pragma omp task firstprivate(i)
        {
#pragma omp atomic
            runs += i;
        }
    }
    CHECK_EQUAL(runs, 190 * threads);
}

static void dependences(void) {
    int a = 0, b = 0, c = 0;
#pragma omp parallel
#pragma omp single
    {
#pragma omp task depend(out : a)
        a = 5;
#pragma omp task depend(in : a) depend(out : b)
        b = a * 2;
#pragma omp task depend(in : a, b) depend(inout : c)
        c = a + b;
#pragma omp taskwait depend(in : c)
        c += 100;
    }
    CHECK_EQUAL(c, 115);
}

static void groups(void) {
    int sum = 0, last = -1, cells[50];
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskgroup task_reduction(+ : sum)
        {
            for (int i = 0; i < 10; i++) {
#pragma omp task in_reduction(+ : sum)
                sum += i;
            }
        }
#pragma omp taskloop grainsize(7) lastprivate(last) firstprivate(sum)
        for (int i = 0; i < 50; i++) {
            cells[i] = i + sum;
            last = i;
        }
#pragma omp taskloop num_tasks(3) reduction(+ : sum)
        for (long i = 100; i > 0; i -= 3) {
            sum += 1;
        }
    }
    CHECK_EQUAL(sum, 45 + 34);
    CHECK_EQUAL(last, 49);
    for (int i = 0; i < 50; i++) {
        CHECK_EQUAL(cells[i], i + 45);
    }
    int by_region = 0, threads = omp_get_max_threads();
#pragma omp parallel reduction(task, + : by_region)
    {
#pragma omp task in_reduction(+ : by_region)
        by_region += 3;
        by_region += 1;
    }
    CHECK_EQUAL(by_region, 4 * threads);
}

/* An untied task goes on where it was left, after the tasks that it made in between. */
static void untied(void) {
    int steps = 0;
#pragma omp parallel
#pragma omp single
#pragma omp task untied shared(steps)
    {
        steps = steps * 10 + 1;
#pragma omp task shared(steps)
        steps = steps * 10 + 2;
#pragma omp taskyield
#pragma omp taskwait
        steps = steps * 10 + 3;
    }
    CHECK_EQUAL(steps, 123);
}

int main(void) {
    recursion();
    from_all_threads();
    dependences();
    groups();
    untied();
    return failures != 0;
}
