/* Structures whose fields are accessed one after the other, small matrices, and loops within loops: accesses that are checked
 * together. Objects begin at any multiple of eight bytes, so that blocks end within them. */
#include <stdio.h>
#include <stdlib.h>

#define SIDE 5
#define BODIES 700

struct body {
    double place[3], speed[3], force[3], mass;
    long turns;
    int kind, touched;
    struct body *other;
    double matrix[SIDE][SIDE];
};

static struct body *bodies;
static long grid[64][6];

/* Loads and stores of one object, and loads of another that is known half-way only. */
__attribute__((noinline)) static void move(struct body *body, double step)
{
    body->place[0] += step * body->speed[0];
    body->place[1] += step * body->speed[1];
    body->place[2] += step * body->speed[2];
    struct body *other = body->other;
    double x = other->place[0] - body->place[0], y = other->place[1] - body->place[1], z = other->place[2] - body->place[2];
    double near = other->mass / (1 + x * x + y * y + z * z);
    body->force[0] = x * near;
    body->force[1] = y * near;
    body->force[2] = z * near;
    body->speed[0] += step * body->force[0] / body->mass;
    body->speed[1] += step * body->force[1] / body->mass;
    body->speed[2] += step * body->force[2] / body->mass;
    body->turns++;
    body->touched = other->kind + (int)body->turns;
    other->touched += body->kind;
}

/* Every element of three matrices, unrolled. */
__attribute__((noinline)) static void multiply(double out[SIDE][SIDE], double a[SIDE][SIDE], double b[SIDE][SIDE])
{
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++)
                sum += a[row][k] * b[k][column];
            out[row][column] = sum / (1 + sum * sum) + 0.5 * out[row][column];
        }
}

/* The place in the object is not known. */
__attribute__((noinline)) static void turn(struct body *body, long axis)
{
    body->matrix[1 + axis][0] += body->speed[axis];
    body->matrix[1 + axis][1] -= body->speed[axis];
    body->matrix[1 + axis][2] *= 0.5;
    body->matrix[0][1 + axis] += body->force[axis];
    body->matrix[4][1 + axis] = body->matrix[1 + axis][0] + body->matrix[1 + axis][1];
    body->place[axis] = 0.75 * body->place[axis];
}

/* An inner loop of few turns, in a loop of many: with a condition, and an early end. */
__attribute__((noinline)) static long spread(long (*rows)[6], int count, long limit)
{
    long sum = 0;
    for (int row = 0; row < count; row++) {
        for (int column = 0; column < 6; column++) {
            rows[row][column] = rows[row][column] * 3 % 1009 + row;
            if (rows[row][column] & 1)
                rows[row][column] += column;
        }
        sum += rows[row][5];
        if (sum > limit)
            break;
    }
    return sum;
}

int main(void)
{
    char *memory = calloc(BODIES + 1, sizeof *bodies);
    bodies = (struct body *)(memory + 8);
    for (int i = 0; i < BODIES; i++) {
        struct body *body = &bodies[i];
        for (int axis = 0; axis < 3; axis++)
            body->place[axis] = i * (axis + 1) % 17, body->speed[axis] = i % 7 - 3;
        body->mass = 1 + i % 5;
        body->kind = i % 3;
        body->other = &bodies[i * 31 % BODIES];
        for (int row = 0; row < SIDE; row++)
            for (int column = 0; column < SIDE; column++)
                body->matrix[row][column] = (row * 3 + column + i) % 11 / 11.0;
    }
    long total = 0;
    for (int round = 0; round < 1500; round++) {
        for (int i = 0; i < BODIES; i++) {
            move(&bodies[i], 0.01);
            turn(&bodies[i], (i + round) % 3);
            if (i % 8 == round % 8)
                multiply(bodies[i].matrix, bodies[(i + 1) % BODIES].matrix, bodies[i * 7 % BODIES].matrix);
        }
        total += spread(grid, 64 - round % 9, round % 2 ? 5000 : 1 << 30);
    }
    double sum = 0;
    long turns = 0;
    for (int i = 0; i < BODIES; i++) {
        for (int axis = 0; axis < 3; axis++)
            sum += bodies[i].place[axis] + bodies[i].speed[axis] * bodies[i].force[axis];
        for (int row = 0; row < SIDE; row++)
            for (int column = 0; column < SIDE; column++)
                sum += bodies[i].matrix[row][column];
        turns += bodies[i].turns + bodies[i].touched;
    }
    printf("%.12g %ld %ld\n", sum, turns, total);
    return 0;
}
