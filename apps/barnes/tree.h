/*
 * The octree around the bodies, by which each of them feels all others. The threads build it together, and share its
 * bodies out along it.
 */
#ifndef TREE_H
#define TREE_H

#include "program.h"

enum { AXES = 3 };

struct body {
    double position[AXES], mass;
    double velocity[AXES], acceleration[AXES];
    /* How many attractions were computed for it in the last step. */
    long cost;
};

/* Allocates the tree for so many bodies. Only the main thread runs. */
void tree_prepare(struct body *bodies, int count);

/* Puts each thread's own bodies into a new tree, and finds all centres of mass: a barrier, and called by all
 * threads. The tree's cube has twice this half side around the origin; a power of two makes all borders exact. */
void tree_build(int thread, double half_side, const int32_t *own, int own_count);

/* Writes the numbers of the bodies in a thread's share to `own`, and returns how many there are: in all shares
 * together each body is once, and those of a share are near each other and cost as much as those of any other share.
 * Costs must not change meanwhile. */
int tree_take_share(int thread, int32_t *own);

/* Adds to a body's acceleration what all others do to it. Returns how many attractions were computed. */
long tree_attract(struct body *body);

/* The same of one body, or of several as one. */
void add_attraction(struct body *body, const double *centre, double mass);

#endif
