/* Values that live in vector registers, and in those of the x87, while blocks are missed one after the other. */
#include <stdio.h>
#include <stdlib.h>

struct link {
    struct link *next;
    double weights[4];
    long double long_weight;
};

enum { COUNT = 300, ROUNDS = 20000 };

__attribute__((noinline)) static void sum_doubles(const struct link *link, double *result)
{
    /* Alone in a register each: neighbours do not do the same. */
    double a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, k = 11;
    for (; link; link = link->next) {
        a += link->weights[0];
        b -= link->weights[1] * a;
        c += link->weights[2] * b;
        d -= link->weights[3];
        e += d * link->weights[0];
        f = e - f / 2;
        g += f * link->weights[2];
        h = a * link->weights[3] - h / 4;
        i += h;
        j = (j + i) / 8;
        k += j - d;
    }
    *result = a + b + c + d + e + f + g + h + i + j + k;
}

__attribute__((noinline)) static void sum_long_doubles(const struct link *link, long double *result)
{
    long double a = 1, b = 2, c = 3;
    for (; link; link = link->next) {
        a += link->long_weight;
        b -= link->weights[1] * a;
        c += link->weights[2];
    }
    *result = a + b + c;
}

int main(void)
{
    struct link *links = calloc(COUNT, sizeof *links), *first = NULL;
    for (int i = 0; i < COUNT; i++) {
        /* In no order, so that no loop knows its addresses before. */
        struct link *link = &links[i * 7 % COUNT];
        for (int k = 0; k < 4; k++)
            link->weights[k] = (i * 4 + k) * 0x1p-12;
        link->long_weight = i * 0x1p-10L;
        link->next = first;
        first = link;
    }
    double sum = 0, *result = malloc(sizeof *result);
    long double long_sum = 0, *long_result = malloc(sizeof *long_result);
    for (int round = 0; round < ROUNDS; round++) {
        sum_doubles(first, result);
        sum_long_doubles(first, long_result);
        sum += *result;
        long_sum += *long_result;
    }
    printf("%.17g %.21Lg\n", sum, long_sum);
}
