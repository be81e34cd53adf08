/* Stores that can be done together, and some that must not be: fields of records that lie across blocks, of arrays of records, in
 * several arrays at once, with loads, other types and changes between them; copies of a few bytes; small matrices whose rows are
 * left out by turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 900
#define SIDE 5

struct record {
    double place[3];
    float weight;
    int kind;
    struct record *next;
    short small[3];
    char name[5];
    unsigned char flag;
    long count;
};

struct matrices {
    double left[SIDE][SIDE], change[SIDE];
};

static struct record *records;
static long *places;
static unsigned char *bytes;

/* Fields of one element of an array; the element is not known before. */
__attribute__((noinline)) static void set(long index, double x, int kind)
{
    records[index].place[0] = x;
    records[index].place[1] = x + 1;
    records[index].place[2] = 2 * x;
    records[index].weight = (float)x;
    records[index].kind = kind;
    records[index].next = records;
    records[index].small[0] = (short)kind;
    records[index].small[2] = -7;
    records[index].name[1] = 'a';
    records[index].flag = (unsigned char)kind;
    records[index].count = -1;
}

/* Two fields, that may lie in two blocks. */
__attribute__((noinline)) static void link_to(struct record *record, struct record *next, long count)
{
    record->next = next;
    record->count = count;
}

/* `b` may be `a`. */
__attribute__((noinline)) static void pass_over(long *a, long *b)
{
    a[0] = 17;
    long found = b[0];
    a[3] = found + 1;
}

/* What is loaded in between may be what was just stored, or not; and the later of two stores counts. */
__attribute__((noinline)) static long entangle(long *a, long *b, struct record *of)
{
    a[0] = 3;
    a[1] = 5;
    long found = b[0];
    a[2] = found + 1;
    of->count = found;
    of->place[1] = of->place[0];
    of->place[0] = 0.25;
    a[1] = b[1] + 1;
    a[1] = b[1] + 2;
    of->count += a[2];
    b[2] = a[2] ^ 9;
    *(volatile long *)&a[3] = b[2];
    a[4] = b[3];
    return found + a[0] + b[2];
}

/* Counts and moves: stores in two arrays, where no compiler foresees. */
__attribute__((noinline)) static void permute(const long *from, long *next, long *to, long count)
{
    for (long index = 0; index < count; index++)
        to[next[from[index] & 15]++] = from[index] * 3;
}

__attribute__((noinline)) static void copy_some(unsigned char *to, const unsigned char *from)
{
    memcpy(to, from, 24);
    memmove(to + 40, to + 33, 40);
    memcpy(to + 100, from + 3, 63);
    memset(to + 170, 5, 48);
    memcpy(to + 230, from + 1, 17);
}

/* Gauss and Jordan's: one row is left out each time, and another array is changed with it. */
__attribute__((noinline)) static void eliminate(double matrix[SIDE][SIDE], struct matrices *of)
{
    double own[SIDE][SIDE];
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++)
            own[row][column] = matrix[row][column] + (row == column);
    for (int k = 0; k < SIDE; k++) {
        double inverse = 1 / own[k][k];
        for (int column = k + 1; column < SIDE; column++)
            own[k][column] *= inverse;
        for (int column = 0; column < SIDE; column++)
            of->left[k][column] *= inverse;
        of->change[k] *= inverse;
        for (int row = 0; row < SIDE; row++) {
            double factor = own[row][k];
            if (row == k)
                continue;
            for (int column = k + 1; column < SIDE; column++)
                own[row][column] -= factor * own[k][column];
            for (int column = 0; column < SIDE; column++)
                of->left[row][column] -= factor * of->left[k][column];
            of->change[row] -= factor * of->change[k];
        }
    }
}

static double sum_of_records(void)
{
    double sum = 0;
    for (long index = 0; index < RECORDS; index++) {
        const struct record *record = &records[index];
        sum += record->place[0] + 3 * record->place[1] + 5 * record->place[2] + record->weight + record->kind + record->small[0] +
               record->small[2] + record->name[1] + record->flag + (double)record->count + (double)(record->next - records);
    }
    return sum;
}

int main(void)
{
    records = calloc(RECORDS, sizeof *records);
    places = calloc(RECORDS * 8, sizeof *places);
    bytes = calloc(RECORDS, 300);
    struct matrices *matrices = calloc(RECORDS, sizeof *matrices);
    long entangled = 0;
    for (int turn = 0; turn < 60; turn++) {
        for (long index = 0; index < RECORDS; index++)
            set((index * 7 + turn) % RECORDS, (double)index / 8, turn + (int)index);
        for (long index = 0; index + 8 < RECORDS * 8; index += 5) {
            places[index] = index;
            /* The same, beside each other, and apart. */
            pass_over(&places[index], &places[turn & 1 ? index : index / 3]);
            link_to(&records[index % RECORDS], &records[index / 8], places[index + 3]);
            entangled += entangle(&places[index], &places[turn % 3 == 0 ? index : turn % 3 == 1 ? index + 1 : index / 2], &records[index % RECORDS]);
        }
        /* Long enough for the thief to come in between. */
        for (long index = 0; index < 50000; index++) {
            link_to(&records[index % 11], &records[index % RECORDS], index + turn);
            /* What lies behind the second field is fetched first: that would bring back what was there before. */
            entangled += *(volatile int *)&records[index % 11 + 1].kind;
            entangled += records[index % 11].count;
        }
        long next[16], from[128];
        for (long index = 0; index < 128; index++)
            from[index] = places[index * 3] + index * index;
        long *shared_next = &places[RECORDS * 7];
        for (long digit = 0; digit < 16; digit++)
            next[digit] = 128 * digit;
        memcpy(shared_next, next, sizeof next);
        permute(from, shared_next, places + 1000, 128);
        for (long index = 0; index + 1 < RECORDS; index++) {
            for (int byte = 0; byte < 64; byte++)
                bytes[index * 300 + 240 + byte % 50] = (unsigned char)(index + byte * turn);
            copy_some(&bytes[index * 300], &bytes[index * 300 + 200]);
        }
        for (long index = 0; index < RECORDS; index++) {
            double start[SIDE][SIDE];
            for (int row = 0; row < SIDE; row++)
                for (int column = 0; column < SIDE; column++) {
                    start[row][column] = 1.0 / (1 + row + column + index % 3);
                    matrices[index].left[row][column] = row - column * 0.5 + turn;
                }
            matrices[index].change[index % SIDE] = (double)index;
            eliminate(start, &matrices[index]);
        }
    }
    double solved = 0;
    for (long index = 0; index < RECORDS; index++)
        for (int row = 0; row < SIDE; row++)
            for (int column = 0; column < SIDE; column++)
                solved += matrices[index].left[row][column] * (1 + column) + matrices[index].change[row];
    long placed = 0, copied = 0;
    for (long index = 0; index < RECORDS * 8; index++)
        placed = placed * 31 + places[index];
    for (long index = 0; index < RECORDS * 300; index++)
        copied = copied * 31 + bytes[index];
    printf("%.9g %ld %ld %ld %.9g\n", sum_of_records(), entangled, placed, copied, solved);
    return 0;
}
