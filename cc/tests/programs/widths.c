/* Every width and kind of scalar, aligned and not, also with values that look like the flag. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct all {
    int8_t i8;
    uint8_t u8;
    int16_t i16;
    uint16_t u16;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    float f;
    double d;
    long double e;
    __int128 w;
    _Bool b;
    void *p;
    unsigned bits3 : 3, bits13 : 13, bits29 : 29;
    long long bits40 : 40, bits24 : 24;
    _Complex double c;
};

struct __attribute__((packed)) packed {
    char c;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    double d;
    float f;
    long double e;
};

static struct all one = {.i32 = 5};
struct packed packs[40];

__attribute__((noinline)) static void fill(struct all *a, uint64_t v)
{
    a->i8 = (int8_t)v, a->u8 = (uint8_t)(v >> 1), a->i16 = (int16_t)v, a->u16 = (uint16_t)(v >> 3);
    a->i32 = (int32_t)v, a->u32 = (uint32_t)(v >> 5), a->i64 = (int64_t)v, a->u64 = v * 77;
    a->f = (float)v, a->d = (double)v, a->e = v / 3.0L, a->w = (__int128)v * v;
    a->b = v & 1, a->p = a, a->bits3 = v & 7, a->bits13 = v & 8191, a->bits29 = v & 0xfffffff;
    a->bits40 = (long long)(v & 0x7fffffffff), a->bits24 = v & 0x7fffff, a->c = v + 2.0i;
}

__attribute__((noinline)) static uint64_t sum(const struct all *a)
{
    uint64_t s = (uint64_t)a->i8 + a->u8 + (uint64_t)a->i16 + a->u16 + (uint64_t)a->i32 + a->u32 + (uint64_t)a->i64 + a->u64;
    s += (uint64_t)(a->f / 2) + (uint64_t)(a->d / 4) + (uint64_t)a->e + (uint64_t)(a->w >> 3) + a->b + (a->p == a);
    s += a->bits3 + a->bits13 + a->bits29 + (uint64_t)a->bits40 + (uint64_t)a->bits24;
    return s + (uint64_t)__real__ a->c + (uint64_t)__imag__ a->c;
}

__attribute__((noinline)) static uint64_t flags(uint8_t *b, uint16_t *h, uint32_t *w, uint64_t *l, double *d)
{
    *b = 0xf1, *h = 0xf1f1, *w = 0xf1f1f1f1, *l = 0xf1f1f1f1f1f1f1f1;
    __builtin_memcpy(d, l, 8);
    return *b + *h + *w + *l + (*d < 0);
}

int main(void)
{
    struct all *many = calloc(300, sizeof *many);
    uint64_t total = 0, v = 1;
    for (int round = 0; round < 100; round++)
        for (int i = 0; i < 300; i++) {
            v = v * 6364136223846793005ULL + 1442695040888963407ULL;
            fill(&many[i], v >> 20);
            total += sum(&many[(i * 7) % 300]);
        }
    fill(&one, 12345);
    total += sum(&one);
    for (int round = 0; round < 1000; round++)
        for (int i = 0; i < 40; i++) {
            struct packed *p = &packs[i];
            p->c = (char)i, p->u16 += (uint16_t)(i * round), p->u32 += (uint32_t)i * 70001u, p->u64 += 1ull << (i % 60);
            p->d += i * 0.5, p->f += 1, p->e += 0.25L;
            total += (uint64_t)p->c + p->u16 + p->u32 + p->u64 + (uint64_t)p->d + (uint64_t)p->f + (uint64_t)p->e;
        }
    char *heap = malloc(1024);
    for (int i = 0; i < 20000; i++)
        total += flags((uint8_t *)heap + i % 128, (uint16_t *)(heap + 256), (uint32_t *)(heap + 384), (uint64_t *)(heap + 512),
                       (double *)(heap + 640));
    printf("%lu\n", total);
    return 0;
}
