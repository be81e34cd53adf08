#include "tree.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHILDREN = 1 << AXES };
/* The first cell of thread 0 is the root of all. */
enum { ROOT = 0, NO_CELL = -1 };
/* More levels would only be needed for bodies closer than a double can tell. */
enum { LEVELS_AT_MOST = 64 };
/* Cells are locked by their numbers, several by one lock. */
enum { LOCKS = 256 };

/* A cell is a whole to a body that is further away than this many of its sides. */
static const double opening = 0.8;
/* Closer than this, attraction grows no more. */
static const double softening = 0.05;

/* What is in a child: nothing, a body, or a cell. Bodies are their number and one; cells are less than zero by their
 * number and one. */
typedef int32_t node;
enum { NOTHING = 0 };

struct cell {
    _Atomic node child[CHILDREN];
    /* Which cell it is in or NO_CELL; how many of its cells have no centre yet. */
    int32_t parent;
    _Atomic int32_t pending;
    double centre[AXES], mass;
    /* Of all bodies inside. */
    long cost;
    /* Its place in space, by its middle. */
    double middle[AXES], half_side;
};

static struct body *bodies;
static struct cell *cells;
static int cells_at_most;
/* The cells of each thread are a run of all; only as many as it needs are ever touched. */
static int *cells_used;
static pthread_mutex_t locks[LOCKS];

static node node_of_body(int body)
{
    return body + 1;
}

static node node_of_cell(int cell)
{
    return -cell - 1;
}

static bool is_cell(node of)
{
    return of < 0;
}

static struct cell *cell_of(node of)
{
    return &cells[-(of + 1)];
}

static struct body *body_of(node of)
{
    return &bodies[of - 1];
}

void tree_prepare(struct body *all_bodies, int count)
{
    /* Two bodies close together need a cell for each of the levels that they have in common. */
    cells_at_most = 2 * count + LEVELS_AT_MOST;
    bodies = all_bodies;
    cells = program_allocate((size_t)cells_at_most * (size_t)program_threads, sizeof *cells);
    cells_used = program_allocate((size_t)program_threads, LINE_BYTES);
    for (int lock = 0; lock < LOCKS; lock++)
        pthread_mutex_init(&locks[lock], NULL);
}

static int *used_by(int thread)
{
    return &cells_used[(size_t)thread * (LINE_BYTES / sizeof *cells_used)];
}

static int new_cell(int thread, int32_t parent, const double *middle, double half_side)
{
    int *used = used_by(thread);
    if (*used == cells_at_most) {
        fprintf(stderr, "barnes: a thread needs more than %d cells: two bodies are in the same place\n", cells_at_most);
        exit(1);
    }
    int index = thread * cells_at_most + (*used)++;
    struct cell *cell = &cells[index];
    for (int child = 0; child < CHILDREN; child++)
        atomic_init(&cell->child[child], NOTHING);
    atomic_init(&cell->pending, 0);
    cell->parent = parent;
    cell->half_side = half_side;
    for (int axis = 0; axis < AXES; axis++)
        cell->middle[axis] = middle[axis];
    return index;
}

static int child_towards(const struct cell *cell, const double *position)
{
    int child = 0;
    for (int axis = 0; axis < AXES; axis++)
        child |= (position[axis] >= cell->middle[axis]) << axis;
    return child;
}

/* A cell for that child of a cell, with the body that has been the child so far. */
static int split(int thread, int parent, int child, node old_body)
{
    const struct cell *around = &cells[parent];
    double middle[AXES], half_side = around->half_side / 2;
    for (int axis = 0; axis < AXES; axis++)
        middle[axis] = around->middle[axis] + (child >> axis & 1 ? half_side : -half_side);
    int index = new_cell(thread, parent, middle, half_side);
    atomic_init(&cells[index].child[child_towards(&cells[index], body_of(old_body)->position)], old_body);
    return index;
}

/* Goes down without locks, as most cells on the way are there to stay; locks only what it changes. A child that was
 * a body may have become a cell until the lock is there: then on it goes. */
static void put_in(int thread, int body)
{
    const double *position = bodies[body].position;
    for (int index = ROOT;;) {
        struct cell *cell = &cells[index];
        int child = child_towards(cell, position);
        node found = atomic_load_explicit(&cell->child[child], memory_order_acquire);
        if (!is_cell(found)) {
            pthread_mutex_t *lock = &locks[index % LOCKS];
            pthread_mutex_lock(lock);
            found = atomic_load_explicit(&cell->child[child], memory_order_acquire);
            bool is_free = found == NOTHING;
            if (!is_cell(found)) {
                found = is_free ? node_of_body(body) : node_of_cell(split(thread, index, child, found));
                atomic_store_explicit(&cell->child[child], found, memory_order_release);
            }
            pthread_mutex_unlock(lock);
            if (is_free)
                return;
        }
        index = (int)(cell_of(found) - cells);
    }
}

/* Centre and cost of a cell whose cells all have theirs. The children's order is that of space: the sums do not
 * depend on who built the tree. */
static void sum_up(struct cell *cell)
{
    cell->mass = 0;
    cell->cost = 0;
    for (int axis = 0; axis < AXES; axis++)
        cell->centre[axis] = 0;
    for (int child = 0; child < CHILDREN; child++) {
        node found = atomic_load_explicit(&cell->child[child], memory_order_relaxed);
        if (found == NOTHING)
            continue;
        const double *centre = is_cell(found) ? cell_of(found)->centre : body_of(found)->position;
        double mass = is_cell(found) ? cell_of(found)->mass : body_of(found)->mass;
        cell->cost += is_cell(found) ? cell_of(found)->cost : body_of(found)->cost;
        cell->mass += mass;
        for (int axis = 0; axis < AXES; axis++)
            cell->centre[axis] += mass * centre[axis];
    }
    for (int axis = 0; axis < AXES; axis++)
        cell->centre[axis] /= cell->mass;
}

static int count_cells_in(const struct cell *cell)
{
    int count = 0;
    for (int child = 0; child < CHILDREN; child++)
        count += is_cell(atomic_load_explicit(&cell->child[child], memory_order_relaxed));
    return count;
}

/* From each of its cells that has none inside, a thread goes up for as long as it is the last to come. */
static void find_centres(int thread)
{
    int first = thread * cells_at_most, end = first + *used_by(thread);
    for (int index = first; index < end; index++)
        atomic_store_explicit(&cells[index].pending, count_cells_in(&cells[index]), memory_order_relaxed);
    program_barrier();
    for (int index = first; index < end; index++) {
        if (count_cells_in(&cells[index]) > 0)
            continue;
        int up = index;
        do {
            sum_up(&cells[up]);
            up = cells[up].parent;
        } while (up != NO_CELL && atomic_fetch_sub_explicit(&cells[up].pending, 1, memory_order_acq_rel) == 1);
    }
}

void tree_build(int thread, double half_side, const int32_t *own, int own_count)
{
    static const double origin[AXES];
    *used_by(thread) = 0;
    if (thread == 0)
        new_cell(0, NO_CELL, origin, half_side);
    program_barrier();
    for (int place = 0; place < own_count; place++)
        put_in(thread, own[place]);
    program_barrier();
    find_centres(thread);
    program_barrier();
}

/* Takes those bodies below a node whose costs, added up along the tree, begin in a zone. `before` is the cost of all
 * that lies before the node, `own` where to write their numbers. Returns how many they are. */
static int take_zone(node from, long before, struct range zone, int32_t *own)
{
    int count = 0;
    long cost = is_cell(from) ? cell_of(from)->cost : body_of(from)->cost;
    if (before + cost <= zone.first || before >= zone.end)
        return 0;
    if (!is_cell(from)) {
        if (before < zone.first)
            return 0;
        *own = from - 1;
        return 1;
    }
    for (int child = 0; child < CHILDREN; child++) {
        node found = atomic_load_explicit(&cell_of(from)->child[child], memory_order_relaxed);
        if (found == NOTHING)
            continue;
        count += take_zone(found, before, zone, own + count);
        before += is_cell(found) ? cell_of(found)->cost : body_of(found)->cost;
    }
    return count;
}

int tree_take_share(int thread, int32_t *own)
{
    return take_zone(node_of_cell(ROOT), 0, own_share(cells[ROOT].cost, thread), own);
}

void add_attraction(struct body *body, const double *centre, double mass)
{
    double apart[AXES], square = softening * softening;
    for (int axis = 0; axis < AXES; axis++) {
        apart[axis] = centre[axis] - body->position[axis];
        square += apart[axis] * apart[axis];
    }
    double pull = mass / (square * sqrt(square));
    for (int axis = 0; axis < AXES; axis++)
        body->acceleration[axis] += pull * apart[axis];
}

static bool is_far(const struct body *body, const struct cell *cell)
{
    double square = 0, side = 2 * cell->half_side;
    for (int axis = 0; axis < AXES; axis++)
        square += (cell->centre[axis] - body->position[axis]) * (cell->centre[axis] - body->position[axis]);
    return side * side < opening * opening * square;
}

static long attract(struct body *body, node from)
{
    if (!is_cell(from)) {
        const struct body *other = body_of(from);
        if (other != body)
            add_attraction(body, other->position, other->mass);
        return 1;
    }
    const struct cell *cell = cell_of(from);
    if (is_far(body, cell)) {
        add_attraction(body, cell->centre, cell->mass);
        return 1;
    }
    long count = 0;
    for (int child = 0; child < CHILDREN; child++) {
        node found = atomic_load_explicit(&cell->child[child], memory_order_relaxed);
        if (found != NOTHING)
            count += attract(body, found);
    }
    return count;
}

long tree_attract(struct body *body)
{
    return attract(body, node_of_cell(ROOT));
}
