/* Loop kernels of parallel programs, each timed: what checks cost when everything is here.
 *   kernels        prints a line for each: name, nanoseconds, a sum that must not depend on the compiler */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 4096, M = 128, ROUNDS = 400 };

static double *a, *b, *c, *grid, *next;
static int *keys, *ranks, *heads;
static unsigned char *text;
struct body {
    double x[3], v[3], f[3], mass;
} *bodies;
struct node {
    struct node *left, *right, *list;
    long key, value;
} *nodes, *root;

static double triad(void)
{
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < N; i++)
            a[i] = b[i] + 0.5 * c[i];
    return a[N / 2];
}

static double dot(void)
{
    double sum = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < N; i++)
            sum += a[i] * b[i];
    return sum;
}

static double relax(void)
{
    for (int r = 0; r < ROUNDS / 4; r++) {
        for (int i = 1; i < M - 1; i++)
            for (int j = 1; j < M - 1; j++)
                next[i * M + j] = 0.2 * (grid[i * M + j] + grid[(i - 1) * M + j] + grid[(i + 1) * M + j] + grid[i * M + j - 1] +
                                         grid[i * M + j + 1]);
        double *t = grid;
        grid = next, next = t;
    }
    return grid[M * 5 + 5];
}

static double multiply(void)
{
    for (int i = 0; i < M; i++)
        for (int k = 0; k < M; k++) {
            double x = grid[i * M + k];
            for (int j = 0; j < M; j++)
                next[i * M + j] += x * grid[k * M + j];
        }
    return next[77];
}

static double factor(void)
{
    for (int k = 0; k < M - 1; k++)
        for (int i = k + 1; i < M; i++) {
            double l = grid[i * M + k] / (grid[k * M + k] + 2);
            for (int j = k + 1; j < M; j++)
                grid[i * M + j] -= l * grid[k * M + j];
        }
    return grid[M * M - 1];
}

static double attract(void)
{
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 256; i++)
            for (int j = 0; j < 256; j++) {
                double d[3], s = 0.01;
                for (int k = 0; k < 3; k++)
                    d[k] = bodies[j].x[k] - bodies[i].x[k], s += d[k] * d[k];
                double w = bodies[j].mass / (s * s);
                for (int k = 0; k < 3; k++)
                    bodies[i].f[k] += w * d[k];
            }
    return bodies[3].f[1];
}

static double histogram(void)
{
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < N; i++)
            ranks[keys[i]]++;
    return ranks[17];
}

static double chase(void)
{
    long sum = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (struct node *n = nodes; n; n = n->list)
            sum += n->value;
    return (double)sum;
}

static double search(void)
{
    long sum = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (long k = 0; k < 256; k++)
            for (struct node *n = root; n && n->key != k * 13; n = k * 13 < n->key ? n->left : n->right)
                sum += n->value++;
    return (double)sum;
}

static double bytes(void)
{
    unsigned hash = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < N; i++)
            hash = hash * 31 + text[i];
    return hash;
}

static double radix(void)
{
    for (int r = 0; r < ROUNDS / 4; r++) {
        memset(heads, 0, 257 * sizeof *heads);
        for (int i = 0; i < N; i++)
            heads[(keys[i] & 255) + 1]++;
        for (int i = 0; i < 256; i++)
            heads[i + 1] += heads[i];
        for (int i = 0; i < N; i++)
            ranks[heads[keys[i] & 255]++ % N] = keys[i];
    }
    return ranks[99];
}

static double advance(void)
{
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < 256; i++)
            for (int k = 0; k < 3; k++) {
                bodies[i].v[k] += 1e-9 * bodies[i].f[k];
                bodies[i].x[k] += 1e-9 * bodies[i].v[k];
            }
    return bodies[3].x[1];
}

static void insert(struct node *n)
{
    struct node **place = &root;
    while (*place)
        place = n->key < (*place)->key ? &(*place)->left : &(*place)->right;
    *place = n;
}

static void fill(void)
{
    a = calloc(N, sizeof *a), b = calloc(N, sizeof *b), c = calloc(N, sizeof *c);
    grid = calloc(M * M, sizeof *grid), next = calloc(M * M, sizeof *next);
    keys = calloc(N, sizeof *keys), ranks = calloc(N, sizeof *ranks), heads = calloc(257, sizeof *heads);
    text = calloc(N, 1), bodies = calloc(256, sizeof *bodies), nodes = calloc(N, sizeof *nodes);
    unsigned state = 1;
    for (int i = 0; i < N; i++) {
        state = state * 1103515245 + 12345;
        a[i] = i % 7, b[i] = i % 11, c[i] = i % 13, keys[i] = (int)(state >> 8) % N, text[i] = (unsigned char)(state >> 16);
        nodes[i] = (struct node){NULL, NULL, i + 1 < N ? &nodes[(i * 5 + 1) % N] : NULL, keys[i], i};
        nodes[i].list = i + 1 < N ? &nodes[i + 1] : NULL;
        insert(&nodes[i]);
    }
    for (int i = 0; i < M * M; i++)
        grid[i] = i % 17 * 0.1;
    for (int i = 0; i < 256; i++)
        bodies[i].mass = 1, bodies[i].x[0] = i, bodies[i].x[1] = i * 7 % 31, bodies[i].x[2] = i % 5;
}

static const struct {
    const char *name;
    double (*run)(void);
} kernels[] = {{"triad", triad},         {"dot", dot},     {"relax", relax},   {"multiply", multiply}, {"factor", factor}, {"attract", attract},
               {"histogram", histogram}, {"chase", chase}, {"search", search}, {"bytes", bytes},       {"radix", radix},   {"advance", advance}};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(void)
{
    fill();
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        double best = 1e18, result = 0;
        for (int turn = 0; turn < 7; turn++) {
            double start = now();
            result = kernels[k].run();
            double taken = now() - start;
            best = taken < best ? taken : best;
        }
        printf("%s %.0f %.6g\n", kernels[k].name, best, result);
    }
    return 0;
}
