/*
 * The mesh of points in a cube, cut into blocks in three dimensions, one for each thread.
 */
#ifndef MESH_H
#define MESH_H

#include "gas.h"
#include "program.h"

struct point {
    double state[PARTS];
    /* What remains of its equation; while they are solved, how its state changes. */
    double change[PARTS];
    /* What keeps the target a steady flow. */
    double forcing[PARTS];
    /* After elimination: the point is its `change`, less this matrix times the next point on the line. */
    double next[PARTS][PARTS];
};

struct block {
    struct point *points;
    struct range own[AXES];
};

/* Cuts a cube of so many points on a side into blocks. Only the main thread runs. */
void mesh_prepare(int side);

/* Allocates a thread's block: zeros. Other threads' points are there after a barrier only. */
void mesh_set_up(int thread);

/* A thread's block, with the points that it has of the cube's faces. */
const struct block *block_of(int thread);

/* The thread whose block is beside a thread's along an axis, before (-1) or after it (1); -1 if that is where the
 * cube ends. */
int thread_beside(int thread, int axis, int distance);

/* A point, by its place along each axis. */
struct point *point(const long *at);

/* The neighbour of a point along an axis. */
struct point *beside(const long *at, int axis, int distance);

#endif
