/* flags: -O3 -march=native -ffast-math
 * Loops of which a condition decides what they touch: masked, gathered and scattered vector accesses, where the processor has them. */
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 3000 };
struct pair {
    short key;
    unsigned char flag;
    double weight;
};

__attribute__((noinline)) static void add_some(int *to, const int *from, const int *keys, int count)
{
    for (int i = 0; i < count; i++)
        if (keys[i] > 3)
            to[i] += from[i];
}

__attribute__((noinline)) static float sum_indexed(const float *from, const int *indices, int count)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        if (indices[i] & 1)
            sum += from[indices[i]];
    return sum;
}

__attribute__((noinline)) static void scatter(int *restrict to, const int *restrict indices, int count)
{
    for (int i = 0; i < count; i++)
        if (indices[i] & 1)
            to[indices[i]] = i;
}

__attribute__((noinline)) static double weigh(const struct pair *pairs, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        if (pairs[i].flag)
            sum += pairs[i].weight * pairs[i].key;
    return sum;
}

__attribute__((noinline)) static void double_some(double *numbers, const unsigned char *keys, int count)
{
    for (int i = 0; i < count; i++)
        if (keys[i] % 3 == 0)
            numbers[i] *= 2;
}

__attribute__((noinline)) static void mark_bytes(unsigned char *to, const unsigned char *keys, int count)
{
    for (int i = 0; i < count; i++)
        if (keys[i] == 0xf1)
            to[i] = 0xf1;
}

int main(void)
{
    int *numbers = malloc(COUNT * sizeof *numbers), *indices = malloc(COUNT * sizeof *indices), *keys = malloc(COUNT * sizeof *keys);
    float *singles = malloc(COUNT * sizeof *singles);
    double *doubles = malloc(COUNT * sizeof *doubles);
    unsigned char *bytes = malloc(COUNT), *marks = calloc(1, COUNT);
    struct pair *pairs = malloc(COUNT * sizeof *pairs);
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = i;
        indices[i] = i * 7 % COUNT;
        keys[i] = i % 11;
        singles[i] = (float)(i % 9);
        doubles[i] = i;
        bytes[i] = (unsigned char)(i * 13);
        pairs[i] = (struct pair){(short)(i % 100), i % 5 < 2, i % 7};
    }
    float sum = 0;
    double weight = 0;
    for (int round = 0; round < 300; round++) {
        int count = COUNT - round % 17;
        add_some(numbers, indices, keys, count);
        sum += sum_indexed(singles, indices, count) / 100;
        scatter(numbers, indices, count);
        weight += weigh(pairs, count);
        mark_bytes(marks, bytes, count);
        if (round < 8)
            double_some(doubles, bytes, count);
    }
    unsigned long hash = 0;
    for (int i = 0; i < COUNT; i++)
        hash = hash * 31 + (unsigned)numbers[i] + (unsigned long)doubles[i] + marks[i];
    printf("%.3f %.3f %lu\n", sum, weight, hash);
    return 0;
}
