/* Calls of all kinds, and objects on the stack whose address goes elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct big {
    long a[12];
    double b[3];
};

struct pair {
    int x, y;
};

static struct big *global_big;
static int *escaped;
static jmp_buf there;

__attribute__((noinline)) static long by_value(struct big b, int k) { return b.a[k % 12] + (long)b.b[k % 3]; }
__attribute__((noinline)) static struct big make(int k)
{
    struct big b;
    for (int i = 0; i < 12; i++)
        b.a[i] = i * k;
    b.b[0] = k, b.b[1] = 2 * k, b.b[2] = 3;
    return b;
}
__attribute__((noinline)) static struct pair small(struct pair p) { return (struct pair){p.y, p.x + 1}; }

__attribute__((noinline)) static void keep(int *p) { escaped = p; }

static struct big *escaped_big;
__attribute__((noinline)) static void keep_big(struct big *p) { escaped_big = p; }

__attribute__((noinline)) static long recurse(int depth)
{
    int own[5] = {depth, depth + 1, depth + 2};
    keep(own);
    if (depth == 0)
        return *escaped;
    long below = recurse(depth - 1);
    own[3] += own[1];
    return below + own[3] + own[0];
}

__attribute__((noinline)) static long sum(int count, ...)
{
    va_list list, copy;
    va_start(list, count);
    va_copy(copy, list);
    long total = 0;
    for (int i = 0; i < count; i++)
        total += i % 2 ? (long)va_arg(list, double) : va_arg(list, int);
    total += va_arg(copy, int);
    va_end(copy);
    va_end(list);
    return total;
}

__attribute__((noinline)) static long variable_length(int n)
{
    long total = 0;
    for (int round = 0; round < 50; round++) {
        int array[n + round + 2];
        for (int i = 0; i < n + round + 2; i++)
            array[i] = i;
        keep(array + round);
        total += escaped[1];
        {
            char *more = __builtin_alloca(100 + (size_t)round);
            memset(more, round, 100);
            keep((int *)more);
            total += *escaped & 0xff;
        }
    }
    return total;
}

__attribute__((noinline)) static void fall(int depth)
{
    int own = depth;
    keep(&own);
    if (depth == 0)
        longjmp(there, 7);
    fall(depth - 1);
}

__attribute__((noinline)) static long jump(int depth)
{
    int own = 5;
    keep(&own);
    volatile int turns = 0;
    int value = setjmp(there);
    turns++;
    if (turns < 5)
        fall(depth);
    int *mine = &own;
    keep(mine);
    return value + turns + *escaped;
}

__attribute__((noinline)) static int decide(int k)
{
    switch (k % 11) {
    case 0: return 3;
    case 1: return 1;
    case 2: return 4;
    case 3: return global_big->a[1] & 7;
    case 4: return 5;
    case 5: return 9;
    case 6: return (int)global_big->b[1];
    default: return k;
    }
}

__attribute__((noinline)) static int interpret(const unsigned char *code)
{
    static void *const labels[] = {&&add, &&twice, &&store, &&stop};
    int value = 1;
    goto *labels[*code];
add:
    value += 3;
    goto *labels[*++code];
twice:
    value *= 2;
    goto *labels[*++code];
store:
    *escaped = value;
    goto *labels[*++code];
stop:
    return value;
}

static long apply(long (*f)(int), int n) { return f(n); }

int main(int count, char **arguments)
{
    long total = count + (arguments[0] != NULL);
    global_big = malloc(sizeof *global_big);
    unsigned char *code = malloc(10);
    static const unsigned char program[] = {0, 1, 1, 2, 0, 3};
    memcpy(code, program, sizeof program);
    for (int i = 0; i < 2000; i++) {
        *global_big = make(i);
        total += by_value(*global_big, i) + sum(5, i, 2.5, i + 1, 3.5, 9);
        struct pair p = small((struct pair){i, 2});
        total += p.x * p.y + decide(i);
        total += apply(i % 2 ? recurse : variable_length, i % 30);
        int local = 0;
        keep(&local);
        total += interpret(code) + local;
        total += jump(i % 9);
        struct big copy = *global_big;
        keep_big(&copy);
        total += escaped_big->a[2];
    }
    printf("%ld\n", total);
    return 0;
}
