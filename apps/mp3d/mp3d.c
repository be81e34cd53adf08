/*
 * A rarefied gas in a wind tunnel at several times the speed of sound, after SPLASH's mp3d: molecules fly, bounce off
 * an obstacle, and collide with others in the same cell of space (Bird's Monte Carlo method).
 *
 * Each thread owns a run of molecules, wherever they fly: so it enters them in cells all over the tunnel, which others
 * have just written and will write next. Then each thread lets the molecules of a run of cells collide, whoever owns
 * them. Cells and molecules migrate from thread to thread, as the original's do: the point of the program is that it
 * has little locality.
 */
#include "program.h"

#include <math.h>
#include <stdatomic.h>

struct input {
    int molecules, steps;
    /* The tunnel is 28 x 12 x 7 times this many cells. */
    int scale;
};

static const struct input input_of[SIZES] = {{3000, 12, 1}, {190000, 60, 2}, {1500000, 40, 4}, {24000, 50, 1}};

enum { AXES = 3 };
enum { NOBODY = -1 };

/* Lengths are cells, times are steps. The wind is five times as fast as molecules in it are. */
static const double wind = 0.5, heat = 0.1;
/* The chance of a collision, of two that pass each other with a speed of one. */
static const double collision_chance = 2;
/* Momentum is summed in whole numbers of this size: their sums do not depend on the order. */
static const double momentum_unit = 0x1p-20;

struct molecule {
    double position[AXES], velocity[AXES];
    /* The cell it is in, and who entered before it. */
    int32_t cell, next;
};

struct cell {
    /* The molecule that entered last in this step. */
    _Atomic int32_t last;
    /* Over all steps: how many molecules were here, and their momentum along the wind. */
    _Atomic int32_t visits;
    _Atomic int64_t momentum;
};

static struct input input;
static int cells_along[AXES];
static struct range obstacle[AXES];
static int cells;
static struct molecule *molecules;
static struct cell *space;

static void prepare(enum program_size size)
{
    static const int along[AXES] = {28, 12, 7};
    static const struct range solid[AXES] = {{10, 14}, {4, 8}, {0, 7}};
    input = input_of[size];
    cells = 1;
    for (int axis = 0; axis < AXES; axis++) {
        cells_along[axis] = along[axis] * input.scale;
        cells *= cells_along[axis];
        obstacle[axis] = (struct range){solid[axis].first * input.scale, solid[axis].end * input.scale};
    }
    molecules = program_allocate((size_t)input.molecules, sizeof *molecules);
    space = program_allocate((size_t)cells, sizeof *space);
}

/* Every random number of the program is one of a molecule in a step. */
enum { NUMBERS_A_STEP = 32 };

static uint64_t seed_of(int molecule, int step)
{
    return ((uint64_t)step * (uint64_t)input.molecules + (uint64_t)molecule) * NUMBERS_A_STEP;
}

static double random_normal(uint64_t seed)
{
    return sqrt(-2 * log(1 - random_unit(seed))) * cos(2 * 3.14159265358979323846 * random_unit(seed + 1));
}

static bool in_obstacle_along(int axis, double position)
{
    return position >= (double)obstacle[axis].first && position < (double)obstacle[axis].end;
}

static bool in_obstacle(const double *position)
{
    return in_obstacle_along(0, position[0]) && in_obstacle_along(1, position[1]) && in_obstacle_along(2, position[2]);
}

/* Somewhere in the first `length` cells of the tunnel, with the wind's velocity. */
static void blow_in(struct molecule *molecule, double length, uint64_t seed)
{
    do {
        for (int axis = 0; axis < AXES; axis++)
            molecule->position[axis] = random_unit(seed++) * (axis == 0 ? length : cells_along[axis]);
    } while (in_obstacle(molecule->position));
    for (int axis = 0; axis < AXES; axis++, seed += 2)
        molecule->velocity[axis] = (axis == 0 ? wind : 0) + heat * random_normal(seed);
}

static int cell_of(const double *position)
{
    int index = 0;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        int along = (int)position[axis];
        int inside = along < 0 ? 0 : along >= cells_along[axis] ? cells_along[axis] - 1 : along;
        index = index * cells_along[axis] + inside;
    }
    return index;
}

/* It comes back into the tunnel from the walls beside, above and below; what leaves at the ends is blown in anew. */
static void fly(struct molecule *molecule, uint64_t seed)
{
    double to[AXES];
    for (int axis = 0; axis < AXES; axis++)
        to[axis] = molecule->position[axis] + molecule->velocity[axis];
    if (to[0] < 0 || to[0] >= cells_along[0]) {
        blow_in(molecule, wind, seed);
        return;
    }
    for (int axis = 1; axis < AXES; axis++) {
        if (to[axis] >= 0 && to[axis] < cells_along[axis])
            continue;
        to[axis] = to[axis] < 0 ? -to[axis] : 2 * cells_along[axis] - to[axis];
        molecule->velocity[axis] = -molecule->velocity[axis];
    }
    bool bounces = in_obstacle(to);
    for (int axis = 0; axis < AXES; axis++) {
        /* Off the face that it came through; it stays where it was for this step. */
        if (bounces && !in_obstacle_along(axis, molecule->position[axis]))
            molecule->velocity[axis] = -molecule->velocity[axis];
        else if (!bounces)
            molecule->position[axis] = to[axis];
    }
}

static int64_t momentum_of(const struct molecule *molecule)
{
    return (int64_t)(molecule->velocity[0] / momentum_unit);
}

/* Everybody enters molecules in all cells at once. What is read before the barrier is only the number of the one
 * before, so nothing has to be ordered. */
static void enter(int index)
{
    struct molecule *molecule = &molecules[index];
    molecule->cell = cell_of(molecule->position);
    struct cell *cell = &space[molecule->cell];
    molecule->next = atomic_exchange_explicit(&cell->last, index, memory_order_relaxed);
    atomic_fetch_add_explicit(&cell->visits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cell->momentum, momentum_of(molecule), memory_order_relaxed);
}

/* Both fly apart in a random direction, as fast as before and around the same centre. */
static void collide(struct molecule *first, struct molecule *second, double speed, uint64_t seed)
{
    double cosine = 2 * random_unit(seed) - 1, sine = sqrt(1 - cosine * cosine);
    double turn = 2 * 3.14159265358979323846 * random_unit(seed + 1);
    double direction[AXES] = {cosine, sine * cos(turn), sine * sin(turn)};
    for (int axis = 0; axis < AXES; axis++) {
        double centre = 0.5 * (first->velocity[axis] + second->velocity[axis]);
        first->velocity[axis] = centre + 0.5 * speed * direction[axis];
        second->velocity[axis] = centre - 0.5 * speed * direction[axis];
    }
}

/* Those in one cell are paired at random; the faster two pass each other, the likelier they meet. `inside` are their
 * numbers, in rising order. */
static void collide_pairs(int32_t *inside, int count, int step)
{
    for (int index = count - 1; index > 0; index--) {
        int other = (int)(random_bits(seed_of(inside[index], step) + 16) % (uint64_t)(index + 1));
        int32_t number = inside[index];
        inside[index] = inside[other];
        inside[other] = number;
    }
    for (int index = 0; index + 1 < count; index += 2) {
        struct molecule *first = &molecules[inside[index]], *second = &molecules[inside[index + 1]];
        uint64_t seed = seed_of(inside[index], step) + 20;
        double square = 0;
        for (int axis = 0; axis < AXES; axis++)
            square += pow(first->velocity[axis] - second->velocity[axis], 2);
        if (random_unit(seed) < collision_chance * sqrt(square))
            collide(first, second, sqrt(square), seed + 1);
    }
}

/* In which order molecules entered is chance: by their numbers it is the same in each run. */
static int list_inside(struct cell *cell, int32_t *inside)
{
    int count = 0;
    int32_t index = atomic_load_explicit(&cell->last, memory_order_relaxed);
    for (; index != NOBODY; index = molecules[index].next) {
        int place = count++;
        for (; place > 0 && inside[place - 1] > index; place--)
            inside[place] = inside[place - 1];
        inside[place] = index;
    }
    atomic_store_explicit(&cell->last, NOBODY, memory_order_relaxed);
    return count;
}

static void set_up(struct range own_molecules, struct range own_cells)
{
    for (long index = own_molecules.first; index < own_molecules.end; index++) {
        molecules[index].next = NOBODY;
        blow_in(&molecules[index], cells_along[0], random_bits((uint64_t)index));
    }
    for (long index = own_cells.first; index < own_cells.end; index++) {
        atomic_init(&space[index].last, NOBODY);
        atomic_init(&space[index].visits, 0);
        atomic_init(&space[index].momentum, 0);
    }
}

static void part(int thread)
{
    struct range own_molecules = own_share(input.molecules, thread), own_cells = own_share(cells, thread);
    int32_t *inside = program_allocate((size_t)input.molecules, sizeof *inside);
    set_up(own_molecules, own_cells);
    program_start(thread);
    for (int step = 0; step < input.steps; step++) {
        for (int index = (int)own_molecules.first; index < own_molecules.end; index++) {
            fly(&molecules[index], seed_of(index, step));
            enter(index);
        }
        program_barrier();
        for (long index = own_cells.first; index < own_cells.end; index++)
            collide_pairs(inside, list_inside(&space[index], inside), step);
        program_barrier();
    }
    program_stop(thread);
}

/* What the cells count, without threads, lists and atomics: in each step, molecules are sorted by cell. */
struct expectation {
    int32_t *visits;
    int64_t *momentum;
};

static void expect_step(int step, struct expectation expected, int32_t *end_of_cell, int32_t *by_cell)
{
    for (int cell = 0; cell <= cells; cell++)
        end_of_cell[cell] = 0;
    for (int index = 0; index < input.molecules; index++) {
        struct molecule *molecule = &molecules[index];
        fly(molecule, seed_of(index, step));
        molecule->cell = cell_of(molecule->position);
        expected.visits[molecule->cell]++;
        expected.momentum[molecule->cell] += momentum_of(molecule);
        end_of_cell[molecule->cell + 1]++;
    }
    for (int cell = 0; cell < cells; cell++)
        end_of_cell[cell + 1] += end_of_cell[cell];
    for (int index = 0; index < input.molecules; index++)
        by_cell[end_of_cell[molecules[index].cell]++] = index;
    for (int cell = 0; cell < cells; cell++) {
        int first = cell == 0 ? 0 : end_of_cell[cell - 1];
        collide_pairs(&by_cell[first], end_of_cell[cell] - first, step);
    }
}

static bool same_molecules(const struct molecule *results)
{
    for (int index = 0; index < input.molecules; index++) {
        for (int axis = 0; axis < AXES; axis++) {
            const struct molecule *result = &results[index], *expected = &molecules[index];
            double at = result->position[axis], speed = result->velocity[axis];
            if (at != expected->position[axis] || speed != expected->velocity[axis])
                return program_differs("molecule %d is at %.17g with speed %.17g along axis %d, not %.17g with %.17g",
                                       index, at, speed, axis, expected->position[axis], expected->velocity[axis]);
        }
    }
    return true;
}

/* The gas must pile up before the obstacle, and be thin behind it. */
static bool check_shock(const struct expectation *expected)
{
    long before = 0, behind = 0;
    for (int cell = 0; cell < cells; cell++) {
        int x = cell % cells_along[0], y = cell / cells_along[0] % cells_along[1];
        if (!in_obstacle_along(1, y))
            continue;
        before += x == obstacle[0].first - 1 ? expected->visits[cell] : 0;
        behind += x == obstacle[0].end ? expected->visits[cell] : 0;
    }
    if (before <= 2 * behind)
        return program_differs("no shock: %ld molecules before the obstacle, %ld behind", before, behind);
    return true;
}

/* Equal to the last bit: each molecule's way depends on random numbers of its own, and what is summed is whole
 * numbers. */
static bool check(void)
{
    const struct molecule *results = molecules;
    struct expectation expected = {
        .visits = program_allocate_zeros((size_t)cells, sizeof *expected.visits),
        .momentum = program_allocate_zeros((size_t)cells, sizeof *expected.momentum),
    };
    int32_t *end_of_cell = program_allocate((size_t)cells + 1, sizeof *end_of_cell);
    int32_t *by_cell = program_allocate((size_t)input.molecules, sizeof *by_cell);
    molecules = program_allocate((size_t)input.molecules, sizeof *molecules);
    for (int index = 0; index < input.molecules; index++)
        blow_in(&molecules[index], cells_along[0], random_bits((uint64_t)index));
    for (int step = 0; step < input.steps; step++)
        expect_step(step, expected, end_of_cell, by_cell);
    for (int cell = 0; cell < cells; cell++) {
        if (space[cell].visits != expected.visits[cell] || space[cell].momentum != expected.momentum[cell])
            return program_differs("cell %d counts %d molecules with momentum %lld, not %d with %lld", cell,
                                   space[cell].visits, (long long)space[cell].momentum, expected.visits[cell],
                                   (long long)expected.momentum[cell]);
    }
    return same_molecules(results) && check_shock(&expected);
}

int main(int argc, char **argv)
{
    static const struct program mp3d = {
        .name = "mp3d",
        .computes = "a rarefied gas that flows around an obstacle in a wind tunnel",
        .inputs = {"3,000 molecules, 12 steps", "190,000 molecules, 60 steps",
                   "1,500,000 molecules, 40 steps", "24,000 molecules, 50 steps (Blizzard)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&mp3d, argc, argv);
}
