/* Loops of many shapes: what can be checked in strips, and what cannot. */
#include <stdio.h>
#include <stdlib.h>

enum { N = 3000, M = 40 };
static double matrix[M][M], other[M][M], product[M][M];
static int histogram[256];
static unsigned short codes[N];
static unsigned char bytes[N];

__attribute__((noinline)) static void saxpy(double *y, const double *x, double a, long n)
{
    for (long i = 0; i < n; i++)
        y[i] += a * x[i];
}

__attribute__((noinline)) static void stencil(double *to, const double *from, int n)
{
    for (int i = 1; i < n - 1; i++)
        to[i] = 0.25 * from[i - 1] + 0.5 * from[i] + 0.25 * from[i + 1];
}

__attribute__((noinline)) static void reverse(int *a, int n)
{
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        int t = a[i];
        a[i] = a[j];
        a[j] = t;
    }
}

__attribute__((noinline)) static void strided(int *a, int n, int stride)
{
    for (int i = 0; i < n; i += stride)
        a[i] = a[i] * 3 + i;
}

__attribute__((noinline)) static void multiply(void)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++) {
            double sum = 0;
            for (int k = 0; k < M; k++)
                sum += matrix[i][k] * other[k][j];
            product[i][j] = sum;
        }
}

__attribute__((noinline)) static int conditional(int *a, const int *b, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        if (b[i] & 4) {
            a[i] = b[i];
            count++;
        }
    return count;
}

__attribute__((noinline)) static void gather(int *a, const int *index, const int *b, int n)
{
    for (int i = 0; i < n; i++)
        a[index[i]] += b[index[n - 1 - i]];
}

__attribute__((noinline)) static long find(const int *a, int n, int wanted)
{
    for (long i = 0; i < n; i++)
        if (a[i] == wanted)
            return i;
    return -1;
}

__attribute__((noinline)) static unsigned long length(const char *s)
{
    const char *e = s;
    while (*e)
        e++;
    return (unsigned long)(e - s);
}

__attribute__((noinline)) static void count(const unsigned char *b, int n)
{
    for (int i = 0; i < n; i++)
        histogram[b[i]]++;
}

__attribute__((noinline)) static void prefix(long *a, int n)
{
    for (int i = 1; i < n; i++)
        a[i] += a[i - 1];
}

__attribute__((noinline)) static void shift(unsigned char *a, int n)
{
    for (int i = n - 1; i > 0; i--)
        a[i] = a[i - 1];
}

struct node {
    struct node *next;
    int value;
};

__attribute__((noinline)) static long walk(struct node *list)
{
    long sum = 0;
    for (; list; list = list->next)
        sum += list->value++;
    return sum;
}

__attribute__((noinline)) static void transpose(double *a, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            double t = a[i * n + j];
            a[i * n + j] = a[j * n + i];
            a[j * n + i] = t;
        }
}

__attribute__((noinline)) static void widen(unsigned *a, const unsigned short *b, const unsigned char *c, unsigned n)
{
    for (unsigned i = 0; i != n; i++)
        a[i] = b[i] * c[i];
}

int main(void)
{
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y), d = 0;
    int *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b), *index = malloc(N * sizeof *index);
    unsigned *wide = malloc(N * sizeof *wide);
    long *sums = malloc(N * sizeof *sums), total = 0;
    char *text = malloc(2000);
    for (int i = 0; i < N; i++) {
        x[i] = i, y[i] = N - i, a[i] = i * 31, b[i] = i * 17 % 1001, index[i] = i * 7 % N, sums[i] = i & 3;
        bytes[i] = (unsigned char)(i * i), codes[i] = (unsigned short)(i * 77);
    }
    for (int i = 0; i < 2000; i++)
        text[i] = (char)(i < 1999 ? 'a' + i % 20 : 0);
    struct node *list = NULL;
    for (int i = 0; i < 500; i++) {
        struct node *node = malloc(sizeof *node);
        *node = (struct node){list, i};
        list = node;
    }
    for (int round = 0; round < 60; round++) {
        saxpy(y, x, 1e-3 * round, N - round);
        stencil(x, y, N);
        reverse(a, N - round % 5);
        strided(a, N, 1 + round % 40);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < M; j++)
                matrix[i][j] = x[i * M + j] * 1e-4, other[j][i] = y[i + j];
        multiply();
        transpose(&product[0][0], M);
        total += conditional(a, b, N);
        gather(b, index, a, N);
        total += find(a, N, a[N - 1 - round]);
        total += (long)length(text + round);
        count(bytes, N);
        prefix(sums, N);
        shift(bytes, N - round);
        widen(wide, codes, bytes, N);
        total += walk(list) + (long)wide[round * 3];
        d += product[round % M][3] + x[round];
    }
    for (int i = 0; i < N; i++)
        total += a[i] + b[i] + (sums[i] & 0xffff) + histogram[i % 256];
    printf("%ld %.6f\n", total, d);
    return 0;
}
