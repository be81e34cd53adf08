/* Vectors of 8, 16 and 32 bytes, aligned and across blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef float f2 __attribute__((vector_size(8)));
typedef float f4 __attribute__((vector_size(16)));
typedef double d4 __attribute__((vector_size(32)));
typedef int i4 __attribute__((vector_size(16)));
typedef unsigned char b16 __attribute__((vector_size(16)));
typedef float u4 __attribute__((vector_size(16), aligned(4)));
typedef short h8 __attribute__((vector_size(16), aligned(2)));
typedef unsigned char c16 __attribute__((vector_size(16), aligned(1)));

__attribute__((noinline)) static void add(f4 *a, const f4 *b) { *a += *b; }
__attribute__((noinline)) static void add_pair(f2 *a, const f2 *b) { *a += *b; }
__attribute__((noinline)) static void add_wide(d4 *a, const d4 *b) { *a += *b; }
__attribute__((noinline)) static void add_any(u4 *a, const u4 *b) { *a += *b; }
__attribute__((noinline)) static void add_short(h8 *a, const h8 *b) { *a += *b; }
__attribute__((noinline)) static void add_byte(c16 *a, const c16 *b) { *a += *b; }

int main(void)
{
    char *memory = malloc(8192);
    char *base = (char *)(((unsigned long)memory + 127) & -128ul);
    memset(base, 0, 4096);
    for (int i = 0; i < 1024; i++)
        ((float *)base)[i] = (float)(i % 97);
    for (int round = 0; round < 20000; round++) {
        add((f4 *)(base + round % 60 * 16), (f4 *)(base + 1024));
        add_pair((f2 *)(base + round % 60 * 8), (f2 *)(base + 1024));
        add_any((u4 *)(base + round % 300 * 4), (u4 *)(base + 1028));
        if (round % 100 == 0)
            for (int i = 0; i < 1024; i++)
                ((float *)base)[i] = (float)((int)((float *)base)[i] % 97);
    }
    double sum = 0;
    for (int i = 0; i < 1024; i++)
        sum += ((float *)base)[i];
    memset(base, 1, 4096);
    for (int i = 0; i < 512; i++)
        ((double *)base)[i] = i;
    for (int round = 0; round < 5000; round++)
        add_wide((d4 *)(base + round % 30 * 32), (d4 *)(base + 2048));
    for (int i = 0; i < 512; i++)
        sum += ((double *)base)[i];
    memset(base, 0xf1, 4096);
    for (int round = 0; round < 20000; round++) {
        add_short((h8 *)(base + round % 600 * 2), (h8 *)(base + 2050));
        add_byte((c16 *)(base + round % 1200), (c16 *)(base + 2051));
    }
    unsigned long hash = 0;
    for (int i = 0; i < 4096; i++)
        hash = hash * 31 + (unsigned char)base[i];
    printf("%f %lu\n", sum, hash);
    return 0;
}
