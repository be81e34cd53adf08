/*
 * Currents in an ocean basin: the wind turns an ocean of two layers on a rotating, curved earth. It is the problem of
 * SPLASH's ocean, written down from the quasi-geostrophic equations.
 *
 * In each step, the potential vorticity of both layers is carried along by their currents (Arakawa's Jacobian) and
 * turned by wind and friction; then the stream functions follow from it by two elliptic equations, of the layers' mean
 * and of their difference, solved by red-black relaxation. Each thread owns a strip of rows and reads one row of each
 * neighbour in every sweep: two barriers, and two rows from next door, for each of many sweeps.
 */
#include "program.h"

#include <math.h>

struct input {
    /* Points on a side of the basin, with its coast. */
    int side;
    int days;
};

static const struct input input_of[SIZES] = {{34, 1}, {258, 4}, {770, 1}, {386, 8}};

enum { LAYERS = 2, STEPS_A_DAY = 6 };

/* Metres and seconds. The upper layer is one of 1000 m, the lower one of 4000. */
static const double spacing = 20e3, step_seconds = 86400.0 / STEPS_A_DAY;
static const double coriolis = 1e-4, coriolis_slope = 2e-11;
static const double reduced_gravity = 0.02, depth[LAYERS] = {1000, 4000};
static const double viscosity = 1000, bottom_friction = 1e-7;
static const double wind_stress = 1e-4;

/* A sweep is the last when no point is further from its equation than this part of the largest right side. */
static const double tolerance = 1e-3;
/* Far more than is ever needed. */
enum { SWEEPS_AT_MOST = 5000 };

static struct input input;
/* Each of the grids is a table of rows, and each thread allocates its own rows of all of them. */
static double **stream[LAYERS];
static double **vorticity[LAYERS];
/* How fast the vorticity changes, in this step and in the one before. */
static double **change[LAYERS][2];
/* What the equations are solved for: the layers' mean, weighted by depth, and their difference. They keep the last
 * step's solution to start from. */
static double **mean, **difference;
static double **right_side;
/* For people who change the program: what the relaxation costs. */
static long sweeps;

static double coupling(int layer)
{
    return coriolis * coriolis / (reduced_gravity * depth[layer]);
}

static double **allocate_table(void)
{
    return program_allocate((size_t)input.side, sizeof(double *));
}

static void prepare(enum program_size size)
{
    input = input_of[size];
    sweeps = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        stream[layer] = allocate_table();
        vorticity[layer] = allocate_table();
        change[layer][0] = allocate_table();
        change[layer][1] = allocate_table();
    }
    mean = allocate_table();
    difference = allocate_table();
    right_side = allocate_table();
}

static void set_up_rows(double **grid, struct range own)
{
    double *rows = program_allocate((size_t)((own.end - own.first) * input.side), sizeof *rows);
    for (long row = own.first; row < own.end; row++) {
        grid[row] = rows + (row - own.first) * input.side;
        for (int column = 0; column < input.side; column++)
            grid[row][column] = 0;
    }
}

/* The ocean is at rest. */
static void set_up(struct range own)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        set_up_rows(stream[layer], own);
        set_up_rows(vorticity[layer], own);
        set_up_rows(change[layer][0], own);
        set_up_rows(change[layer][1], own);
    }
    set_up_rows(mean, own);
    set_up_rows(difference, own);
    set_up_rows(right_side, own);
}

/* Arakawa's Jacobian of stream function and vorticity at a point: of nine points, and so that neither energy nor
 * enstrophy is made. */
static double jacobian(double **p, double **q, long i, int j)
{
    const double *p0 = p[i - 1], *p1 = p[i], *p2 = p[i + 1], *q0 = q[i - 1], *q1 = q[i], *q2 = q[i + 1];
    double plain = (p1[j + 1] - p1[j - 1]) * (q2[j] - q0[j]) - (p2[j] - p0[j]) * (q1[j + 1] - q1[j - 1]);
    double along_p = p1[j + 1] * (q2[j + 1] - q0[j + 1]) - p1[j - 1] * (q2[j - 1] - q0[j - 1])
        - p2[j] * (q2[j + 1] - q2[j - 1])
        + p0[j] * (q0[j + 1] - q0[j - 1]);
    double along_q = q2[j] * (p2[j + 1] - p2[j - 1]) - q0[j] * (p0[j + 1] - p0[j - 1])
        - q1[j + 1] * (p2[j + 1] - p0[j + 1])
        + q1[j - 1] * (p2[j - 1] - p0[j - 1]);
    return (plain + along_p + along_q) / (12 * spacing * spacing);
}

static double laplacian(double **grid, long row, int column)
{
    const double *here = grid[row];
    return (grid[row + 1][column] + grid[row - 1][column] + here[column + 1] + here[column - 1] - 4 * here[column])
        / (spacing * spacing);
}

/* The wind's turning of the upper layer at this row: westerlies in the middle, trade winds and polar easterlies at
 * the sides. */
static double wind_curl(long row)
{
    double length = (input.side - 1) * spacing, turn = 2 * 3.14159265358979323846;
    return -wind_stress * turn / (length * depth[0]) * sin(turn * (double)row / (input.side - 1));
}

/* How fast vorticity changes: the currents carry it, and the planet's, along; the sea-bed brakes, wind and eddies
 * turn. */
static void find_changes(struct range inner, int turn)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        double **p = stream[layer], **q = vorticity[layer];
        for (long row = inner.first; row < inner.end; row++) {
            double wind = layer == 0 ? wind_curl(row) : 0;
            for (int column = 1; column < input.side - 1; column++) {
                double planet = coriolis_slope * (p[row][column + 1] - p[row][column - 1]) / (2 * spacing);
                double eddies = viscosity * laplacian(q, row, column);
                double brake = layer == 1 ? bottom_friction * laplacian(p, row, column) : 0;
                change[layer][turn][row][column] = wind + eddies - brake - planet - jacobian(p, q, row, column);
            }
        }
    }
}

/* Adams and Bashforth's step, with the changes of this step and of the last; there is none before the first. */
static void change_vorticity(struct range inner, int turn, bool first_step)
{
    double now = first_step ? 1 : 1.5, before = first_step ? 0 : -0.5;
    for (int layer = 0; layer < LAYERS; layer++) {
        for (long row = inner.first; row < inner.end; row++) {
            const double *newer = change[layer][turn][row], *older = change[layer][1 - turn][row];
            for (int column = 1; column < input.side - 1; column++)
                vorticity[layer][row][column] += step_seconds * (now * newer[column] + before * older[column]);
        }
    }
}

/* One colour's points of one row: each goes beyond what would satisfy its equation. Returns how far the worst was
 * from it. */
static double relax_row(double **solution, long row, int first_column, double screening, double beyond)
{
    double *here = solution[row];
    const double *below = solution[row - 1], *above = solution[row + 1], *right = right_side[row];
    double worst = 0, diagonal = 4 + screening, step = beyond / diagonal;
    for (int column = first_column; column < input.side - 1; column += 2) {
        double residual = below[column] + above[column] + here[column - 1] + here[column + 1] - diagonal * here[column]
            - right[column];
        here[column] += step * residual;
        worst = fmax(worst, fabs(residual));
    }
    return worst;
}

static double relax(double **solution, struct range inner, int colour, double screening, double beyond)
{
    double worst = 0;
    for (long row = inner.first; row < inner.end; row++)
        worst = fmax(worst, relax_row(solution, row, 1 + (int)((row + colour) % 2), screening, beyond));
    return worst;
}

/* Solves laplacian(solution) - screening * solution = right_side, both times spacing squared; the coast is zero. A
 * point's neighbours are all of the other colour: whoever is first, the result is the same. */
static void solve(double **solution, struct range inner, int thread, double screening, double largest_right_side)
{
    double radius = 4 * cos(3.14159265358979323846 / (input.side - 1)) / (4 + screening);
    double beyond = 2 / (1 + sqrt(1 - radius * radius));
    largest_right_side = program_largest(thread, largest_right_side);
    for (int sweep = 0; sweep < SWEEPS_AT_MOST; sweep++) {
        double worst = relax(solution, inner, 0, screening, beyond);
        program_barrier();
        worst = fmax(worst, relax(solution, inner, 1, screening, beyond));
        if (thread == 0)
            sweeps++;
        if (program_largest(thread, worst) <= tolerance * largest_right_side)
            return;
    }
}

/* The stream functions that belong to this vorticity. */
static void find_streams(struct range inner, int thread)
{
    double all = coupling(0) + coupling(1), upper = coupling(1) / all, lower = coupling(0) / all;
    double square = spacing * spacing, largest = 0;
    for (long row = inner.first; row < inner.end; row++) {
        for (int column = 1; column < input.side - 1; column++) {
            right_side[row][column] = square * (upper * vorticity[0][row][column] + lower * vorticity[1][row][column]);
            largest = fmax(largest, fabs(right_side[row][column]));
        }
    }
    solve(mean, inner, thread, 0, largest);
    largest = 0;
    for (long row = inner.first; row < inner.end; row++) {
        for (int column = 1; column < input.side - 1; column++) {
            right_side[row][column] = square * (vorticity[0][row][column] - vorticity[1][row][column]);
            largest = fmax(largest, fabs(right_side[row][column]));
        }
    }
    solve(difference, inner, thread, all * square, largest);
    for (long row = inner.first; row < inner.end; row++) {
        for (int column = 1; column < input.side - 1; column++) {
            stream[0][row][column] = mean[row][column] + lower * difference[row][column];
            stream[1][row][column] = mean[row][column] - upper * difference[row][column];
        }
    }
}

static void part(int thread)
{
    struct range own = own_share(input.side, thread);
    struct range inner = {own.first > 1 ? own.first : 1, own.end < input.side - 1 ? own.end : input.side - 1};
    set_up(own);
    program_start(thread);
    for (int step = 0; step < input.days * STEPS_A_DAY; step++) {
        find_changes(inner, step % 2);
        program_barrier();
        change_vorticity(inner, step % 2, step == 0);
        find_streams(inner, thread);
        program_barrier();
    }
    program_stop(thread);
}

/* Whether the upper layer flows at a speed that an ocean's wind can make in these days. What a fault makes is zero,
 * far more, or no number. */
static bool check_speed(void)
{
    double fastest = 0;
    for (int row = 1; row < input.side - 1; row++) {
        for (int column = 1; column < input.side; column++)
            fastest = fmax(fastest, fabs(stream[0][row][column] - stream[0][row][column - 1]) / spacing);
    }
    if (!(fastest > 1e-4 && fastest < 1))
        return program_differs("the fastest current makes %g metres a second", fastest);
    return true;
}

/* The same on one thread, which is the same to the last bit: only largest values are made of several threads'
 * numbers, never sums. */
static bool check(void)
{
    double **of_threads[LAYERS] = {stream[0], stream[1]};
    long sweeps_of_threads = sweeps;
    if (!check_speed())
        return false;
    program_compute_alone();
    if (sweeps_of_threads != sweeps)
        return program_differs("%ld sweeps, not %ld", sweeps_of_threads, sweeps);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int row = 0; row < input.side; row++) {
            for (int column = 0; column < input.side; column++) {
                double result = of_threads[layer][row][column], expected = stream[layer][row][column];
                if (result != expected)
                    return program_differs("layer %d's stream at %d, %d is %.17g, not %.17g", layer, row, column,
                                           result, expected);
            }
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct program ocean = {
        .name = "ocean",
        .computes = "currents that the wind makes in an ocean of two layers",
        .inputs = {"34 x 34 points, 1 day", "258 x 258 points, 4 days", "770 x 770 points, 1 day",
                   "386 x 386 points, 8 days (Blizzard)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&ocean, argc, argv);
}
