/*
 * Flow of a compressible gas in a cube, by the implicit method of NAS's pseudo-application BT (Beam and Warming's):
 * each iteration solves, along every line of the mesh in each of three directions, equations whose elements are
 * matrices of 5 x 5 (block tridiagonal).
 *
 * Each thread owns a block in three dimensions, so that every line goes through several threads. A sweep along lines is
 * a pipeline: a thread eliminates one plane of lines as soon as its neighbour before has done its own part of it, and
 * then passes the plane on; then back. What neighbours tell each other is small and often: a matrix and a vector for
 * each line.
 */
#include "mesh.h"

#include <math.h>
#include <pthread.h>

struct input {
    /* Points on a side of the cube, with its faces. */
    int side, iterations;
};

static const struct input input_of[SIZES] = {{10, 5}, {48, 15}, {96, 10}, {32, 10}};

enum { FORTH, BACK, WAYS };

/* How many planes a thread has passed on, in all iterations. */
struct gate {
    _Alignas(LINE_BYTES) pthread_mutex_t lock;
    pthread_cond_t passed;
    long planes;
};

static struct input input;
static double spacing, step_time, viscosity;
static struct gate (*gates)[AXES][WAYS];
/* The largest distance from the target, at first and in the end. */
static double first_error, last_error;

static void prepare(enum program_size size)
{
    input = input_of[size];
    spacing = 1.0 / (input.side - 1);
    /* Several times what a sound wave needs from point to point: it is what implicit methods are for. */
    step_time = 4 * spacing;
    /* As little as a mesh of this spacing needs for a flow slower than sound. */
    viscosity = spacing;
    mesh_prepare(input.side);
    gates = program_allocate((size_t)program_threads, sizeof *gates);
}

/* A smooth flow, which the iterations should find. */
static void target(const long *at, double *state)
{
    double x = (double)at[0] * spacing, y = (double)at[1] * spacing, z = (double)at[2] * spacing;
    double density = 1 + 0.1 * sin(1 + x) + 0.05 * y * y, pressure = 1 + 0.1 * cos(x + y + z);
    double speed[AXES] = {0.3 + 0.1 * x * y, 0.2 - 0.1 * z * z, 0.1 + 0.1 * x * y * z};
    find_state(density, pressure, speed, state);
}

/* At first, only the faces have the target's state, and between the faces across x it changes evenly. */
static void set_first_state(const long *at, double *state)
{
    long west[AXES] = {0, at[1], at[2]}, east[AXES] = {input.side - 1, at[1], at[2]};
    double in_west[PARTS], in_east[PARTS], share = (double)at[0] * spacing;
    bool on_face = false;
    for (int axis = 0; axis < AXES; axis++)
        on_face = on_face || at[axis] == 0 || at[axis] == input.side - 1;
    target(at, state);
    target(west, in_west);
    target(east, in_east);
    for (int part = 0; part < PARTS && !on_face; part++)
        state[part] = (1 - share) * in_west[part] + share * in_east[part];
}

/* How fast a point's state changes by flow and viscosity, without forcing. */
static void find_rate(const long *at, double *rate)
{
    const double *here = point(at)->state;
    for (int part = 0; part < PARTS; part++)
        rate[part] = 0;
    for (int axis = 0; axis < AXES; axis++) {
        const double *before = beside(at, axis, -1)->state, *after = beside(at, axis, 1)->state;
        double flux_before[PARTS], flux_after[PARTS];
        find_flux(before, axis, flux_before);
        find_flux(after, axis, flux_after);
        for (int part = 0; part < PARTS; part++) {
            rate[part] -= (flux_after[part] - flux_before[part]) / (2 * spacing);
            rate[part] += viscosity * (after[part] - 2 * here[part] + before[part]) / (spacing * spacing);
        }
    }
}

/* A thread's points inside the cube: the faces are given. */
static struct range inside(int thread, int axis)
{
    struct range own = block_of(thread)->own[axis];
    return (struct range){own.first > 1 ? own.first : 1, own.end < input.side - 1 ? own.end : input.side - 1};
}

/* One row of the equations along a line: how much it takes of the points before, here and after. */
static void find_equation(const long *at, int axis, double before[PARTS][PARTS], double here[PARTS][PARTS],
                          double after[PARTS][PARTS])
{
    double flow = step_time / (2 * spacing), spread = step_time * viscosity / (spacing * spacing);
    find_flux_change(beside(at, axis, -1)->state, axis, before);
    find_flux_change(beside(at, axis, 1)->state, axis, after);
    for (int row = 0; row < PARTS; row++) {
        for (int column = 0; column < PARTS; column++) {
            double diagonal = row == column ? 1 : 0;
            before[row][column] = -flow * before[row][column] - spread * diagonal;
            here[row][column] = (1 + 2 * spread) * diagonal;
            after[row][column] = flow * after[row][column] - spread * diagonal;
        }
    }
}

/* Solves for the columns of `right` and for `change` at once, by Gauss's elimination. The diagonal is strong enough
 * to need no pivoting. */
static void divide(double matrix[PARTS][PARTS], double right[PARTS][PARTS], double *change)
{
    for (int k = 0; k < PARTS; k++) {
        double inverse = 1 / matrix[k][k];
        for (int column = k + 1; column < PARTS; column++)
            matrix[k][column] *= inverse;
        for (int column = 0; column < PARTS; column++)
            right[k][column] *= inverse;
        change[k] *= inverse;
        for (int row = 0; row < PARTS; row++) {
            double factor = matrix[row][k];
            if (row == k)
                continue;
            for (int column = k + 1; column < PARTS; column++)
                matrix[row][column] -= factor * matrix[k][column];
            for (int column = 0; column < PARTS; column++)
                right[row][column] -= factor * right[k][column];
            change[row] -= factor * change[k];
        }
    }
}

/* Takes the point before out of a point's equation. The face before the first point does not change. */
static void eliminate(const long *at, int axis)
{
    struct point *own = point(at);
    const struct point *last = beside(at, axis, -1);
    double before[PARTS][PARTS], here[PARTS][PARTS];
    find_equation(at, axis, before, here, own->next);
    for (int row = 0; row < PARTS && at[axis] > 1; row++) {
        for (int k = 0; k < PARTS; k++) {
            for (int column = 0; column < PARTS; column++)
                here[row][column] -= before[row][k] * last->next[k][column];
            own->change[row] -= before[row][k] * last->change[k];
        }
    }
    divide(here, own->next, own->change);
}

/* Puts the solution of the point after in. */
static void substitute(const long *at, int axis)
{
    struct point *own = point(at);
    const struct point *after = beside(at, axis, 1);
    if (at[axis] == input.side - 2)
        return;
    for (int row = 0; row < PARTS; row++) {
        for (int column = 0; column < PARTS; column++)
            own->change[row] -= own->next[row][column] * after->change[column];
    }
}

static void pass_plane(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->planes++;
    pthread_cond_signal(&gate->passed);
    pthread_mutex_unlock(&gate->lock);
}

static void wait_for_plane(struct gate *gate, long planes)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->planes < planes)
        pthread_cond_wait(&gate->passed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

/* One thread's part of all lines along an axis, plane by plane. Blocks beside each other along the axis have the
 * same planes. */
static void sweep(int thread, int axis, int way, int iteration)
{
    int plane_axis = (axis + 1) % AXES, line_axis = (axis + 2) % AXES;
    struct range planes = inside(thread, plane_axis), lines = inside(thread, line_axis), along = inside(thread, axis);
    int before = thread_beside(thread, axis, way == FORTH ? -1 : 1);
    long done = iteration * (planes.end - planes.first);
    for (long plane = planes.first; plane < planes.end; plane++) {
        if (before >= 0)
            wait_for_plane(&gates[before][axis][way], ++done);
        for (long step = along.first; step < along.end; step++) {
            for (long line = lines.first; line < lines.end; line++) {
                long at[AXES];
                at[axis] = way == FORTH ? step : along.first + along.end - 1 - step;
                at[plane_axis] = plane;
                at[line_axis] = line;
                if (way == FORTH)
                    eliminate(at, axis);
                else
                    substitute(at, axis);
            }
        }
        pass_plane(&gates[thread][axis][way]);
    }
}

/* What a thread does with each of its points inside the cube. */
enum task { MAKE_FORCING, SET_FIRST_STATE, FIND_CHANGE, ADD_CHANGE, FIND_ERROR };

/* Returns the largest error for FIND_ERROR, zero for the others. */
static double do_point(const long *at, enum task task)
{
    struct point *own = point(at);
    double rate[PARTS], right[PARTS], largest = 0;
    if (task == SET_FIRST_STATE)
        set_first_state(at, own->state);
    if (task == MAKE_FORCING || task == FIND_CHANGE)
        find_rate(at, rate);
    if (task == FIND_ERROR)
        target(at, right);
    for (int part = 0; part < PARTS; part++) {
        if (task == MAKE_FORCING)
            own->forcing[part] = -rate[part];
        if (task == FIND_CHANGE)
            own->change[part] = step_time * (rate[part] + own->forcing[part]);
        if (task == ADD_CHANGE)
            own->state[part] += own->change[part];
        if (task == FIND_ERROR)
            largest = fmax(largest, fabs(own->state[part] - right[part]));
    }
    return largest;
}

static double do_points(int thread, enum task task)
{
    struct range x = inside(thread, 0), y = inside(thread, 1), z = inside(thread, 2);
    double largest = 0;
    for (long k = z.first; k < z.end; k++) {
        for (long j = y.first; j < y.end; j++) {
            for (long i = x.first; i < x.end; i++)
                largest = fmax(largest, do_point((long[AXES]){i, j, k}, task));
        }
    }
    return largest;
}

static void set_up_gates(int thread)
{
    for (int axis = 0; axis < AXES; axis++) {
        for (int way = 0; way < WAYS; way++) {
            struct gate *gate = &gates[thread][axis][way];
            pthread_mutex_init(&gate->lock, NULL);
            pthread_cond_init(&gate->passed, NULL);
            gate->planes = 0;
        }
    }
}

/* Every thread puts the target's state in its block; once all have, it finds the forcing that keeps the target
 * steady. */
static void set_up(int thread)
{
    set_up_gates(thread);
    mesh_set_up(thread);
    program_barrier();
    const struct range *own = block_of(thread)->own;
    for (long z = own[2].first; z < own[2].end; z++) {
        for (long y = own[1].first; y < own[1].end; y++) {
            for (long x = own[0].first; x < own[0].end; x++)
                target((long[AXES]){x, y, z}, point((long[AXES]){x, y, z})->state);
        }
    }
    program_barrier();
    do_points(thread, MAKE_FORCING);
    program_barrier();
    do_points(thread, SET_FIRST_STATE);
}

static void part(int thread)
{
    set_up(thread);
    double error = program_largest(thread, do_points(thread, FIND_ERROR));
    if (thread == 0)
        first_error = error;
    program_start(thread);
    for (int iteration = 0; iteration < input.iterations; iteration++) {
        do_points(thread, FIND_CHANGE);
        for (int axis = 0; axis < AXES; axis++) {
            sweep(thread, axis, FORTH, iteration);
            sweep(thread, axis, BACK, iteration);
            /* A neighbour may still need what the next axis would change. */
            program_barrier();
        }
        do_points(thread, ADD_CHANGE);
        error = program_largest(thread, do_points(thread, FIND_ERROR));
    }
    if (thread == 0)
        last_error = error;
    program_stop(thread);
}

static const double *state_of(long index)
{
    return point((long[AXES]){index % input.side, index / input.side % input.side,
                              index / input.side / input.side})->state;
}

/* The same on one thread, which is the same to the last bit: each line's equations are solved in one order, whoever
 * owns its parts. And the flow must come nearer to its target. */
static bool check(void)
{
    long count = (long)input.side * input.side * input.side;
    double (*results)[PARTS] = program_allocate((size_t)count, sizeof *results);
    for (long index = 0; index < count; index++) {
        for (int part = 0; part < PARTS; part++)
            results[index][part] = state_of(index)[part];
    }
    if (!(last_error < 0.5 * first_error))
        return program_differs("the flow is %g from its target, and was %g at first", last_error, first_error);
    program_compute_alone();
    for (long index = 0; index < count; index++) {
        for (int part = 0; part < PARTS; part++) {
            double result = results[index][part], expected = state_of(index)[part];
            if (result != expected)
                return program_differs("part %d of point %ld is %.17g, not %.17g", part, index, result, expected);
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct program appbt = {
        .name = "appbt",
        .computes = "flow of a compressible gas in a cube, by block tridiagonal equations along all lines",
        .inputs = {"10 x 10 x 10 points, 5 iterations", "48 x 48 x 48 points, 15 iterations",
                   "96 x 96 x 96 points, 10 iterations", "32 x 32 x 32 points, 10 iterations (Blizzard)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&appbt, argc, argv);
}
