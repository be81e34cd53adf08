/*
 * Gravity between many bodies, by the method of Barnes and Hut, after SPLASH's program: in every step an octree is
 * built around the bodies, and each body is drawn by far parts of the tree as wholes.
 *
 * All threads build the one tree, each by putting in the bodies that it owns; a cell of the tree is changed under a
 * lock, and allocated by whoever needs it. Centres of mass are found from the leaves up, by whoever comes last. Then
 * bodies are shared out anew along the tree, in portions that cost the same (costzones, by Singh and others): that
 * keeps a thread's bodies together in space. Everybody reads most of the tree, and no two threads read the same parts
 * of it.
 */
#include "tree.h"

#include <math.h>

struct input {
    int bodies, steps;
};

static const struct input input_of[SIZES] = {{500, 3}, {32768, 16}, {131072, 16}, {8192, 4}};

static const double step_time = 0.025;

static struct input input;
static struct body *bodies;
/* The bodies that each thread moves and puts into the tree, in this step: numbers of bodies. Each thread allocates
 * its own. */
static int32_t **owned;

static void prepare(enum program_size size)
{
    input = input_of[size];
    bodies = program_allocate((size_t)input.bodies, sizeof *bodies);
    owned = program_allocate((size_t)program_threads, sizeof *owned);
    tree_prepare(bodies, input.bodies);
}

/* Plummer's model of a globular cluster, in the units of Hénon. */
static void set_up_body(int index)
{
    struct body *body = &bodies[index];
    uint64_t seed = 64 * (uint64_t)index;
    double radius = 1 / sqrt(pow(0.999 * random_unit(seed) + 1e-9, -2.0 / 3) - 1);
    uint64_t attempt = seed + 2;
    double part, chance;
    do {
        part = random_unit(attempt++);
        chance = 0.1 * random_unit(attempt++);
    } while (chance > part * part * pow(1 - part * part, 3.5));
    double speed = part * sqrt(2) * pow(1 + radius * radius, -0.25);
    double scale = 3 * 3.14159265358979323846 / 16;
    for (int kind = 0; kind < 2; kind++) {
        double cosine = 2 * random_unit(~(seed + (uint64_t)kind)) - 1, sine = sqrt(1 - cosine * cosine);
        double turn = 2 * 3.14159265358979323846 * random_unit(~(seed + 2 + (uint64_t)kind));
        double direction[AXES] = {sine * cos(turn), sine * sin(turn), cosine};
        for (int axis = 0; axis < AXES; axis++) {
            if (kind == 0)
                body->position[axis] = scale * radius * direction[axis];
            else
                body->velocity[axis] = speed / sqrt(scale) * direction[axis];
        }
    }
    for (int axis = 0; axis < AXES; axis++)
        body->acceleration[axis] = 0;
    body->mass = 1.0 / input.bodies;
    body->cost = 1;
}

static void move(struct body *body)
{
    for (int axis = 0; axis < AXES; axis++) {
        body->velocity[axis] += step_time * body->acceleration[axis];
        body->position[axis] += step_time * body->velocity[axis];
    }
}

/* Half the side of the cube around the origin that holds all own bodies: a power of two, so that all cells' middles
 * are exact. */
static double find_half_side(const int32_t *own, int count)
{
    double furthest = 1;
    for (int place = 0; place < count; place++) {
        for (int axis = 0; axis < AXES; axis++)
            furthest = fmax(furthest, fabs(bodies[own[place]].position[axis]));
    }
    return exp2(floor(log2(furthest)) + 1);
}

/* The first share is a run of bodies. Returns how many it is. */
static int set_up(int thread)
{
    struct range share = own_share(input.bodies, thread);
    owned[thread] = program_allocate((size_t)input.bodies, sizeof *owned[thread]);
    for (int index = (int)share.first; index < share.end; index++) {
        set_up_body(index);
        owned[thread][index - share.first] = index;
    }
    return (int)(share.end - share.first);
}

static void part(int thread)
{
    int count = set_up(thread);
    int32_t *own = owned[thread];
    program_start(thread);
    for (int step = 0; step < input.steps; step++) {
        tree_build(thread, program_largest(thread, find_half_side(own, count)), own, count);
        count = tree_take_share(thread, own);
        /* Costs are read until all have their share, and written from then on. */
        program_barrier();
        for (int place = 0; place < count; place++) {
            struct body *body = &bodies[own[place]];
            for (int axis = 0; axis < AXES; axis++)
                body->acceleration[axis] = 0;
            body->cost = tree_attract(body);
        }
        program_barrier();
        for (int place = 0; place < count; place++)
            move(&bodies[own[place]]);
    }
    program_stop(thread);
}

/* How far the last step's accelerations are from those without a tree, of all bodies together. For a sample: it
 * takes time with the square of their number. The tree's cells are wholes without a shape, so some per cent are the
 * method's. */
static bool check_accuracy(void)
{
    double error = 0, all = 0;
    int sample = input.bodies < 500 ? 1 : input.bodies / 500;
    for (int index = 0; index < input.bodies; index++) {
        for (int axis = 0; axis < AXES; axis++)
            bodies[index].position[axis] -= step_time * bodies[index].velocity[axis];
    }
    for (int index = 0; index < input.bodies; index += sample) {
        struct body exact = bodies[index];
        for (int axis = 0; axis < AXES; axis++)
            exact.acceleration[axis] = 0;
        for (int other = 0; other < input.bodies; other++)
            add_attraction(&exact, bodies[other].position, bodies[other].mass);
        for (int axis = 0; axis < AXES; axis++) {
            error += pow(bodies[index].acceleration[axis] - exact.acceleration[axis], 2);
            all += pow(exact.acceleration[axis], 2);
        }
    }
    if (!(error < 0.04 * 0.04 * all))
        return program_differs("the tree's attractions are wrong by %g %%", 100 * sqrt(error / all));
    return true;
}

/* The same on one thread, which is the same to the last bit: the tree is determined by where bodies are, and sums go
 * along it. */
static bool check(void)
{
    const struct body *results = bodies;
    program_compute_alone();
    for (int index = 0; index < input.bodies; index++) {
        for (int axis = 0; axis < AXES; axis++) {
            if (results[index].position[axis] != bodies[index].position[axis])
                return program_differs("coordinate %d of body %d is %.17g, not %.17g", axis, index,
                                       results[index].position[axis], bodies[index].position[axis]);
        }
    }
    return check_accuracy();
}

int main(int argc, char **argv)
{
    static const struct program barnes = {
        .name = "barnes",
        .computes = "gravity between bodies, by an octree",
        .inputs = {"500 bodies, 3 steps", "32,768 bodies, 16 steps", "131,072 bodies, 16 steps",
                   "8,192 bodies, 4 steps (Blizzard; steps as in SPLASH)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&barnes, argc, argv);
}
