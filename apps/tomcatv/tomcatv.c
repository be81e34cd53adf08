/*
 * Mesh generation by elliptic equations (Thompson, Thames and Mastin), the method of SPEC's tomcatv: a mesh between
 * given curves is moved until its coordinates satisfy Poisson's equation, by relaxation of one line after the other.
 *
 * Each thread owns a strip of rows. Most of what it computes is in arrays of its own; it reads one row of each
 * neighbour's mesh in each iteration, and a line's tridiagonal equations run along a row, so that they are its own too.
 */
#include "program.h"

#include <math.h>

struct input {
    int side, iterations;
};

static const struct input input_of[SIZES] = {{66, 30}, {1026, 80}, {3074, 45}, {1026, 50}};

static const double relaxation = 0.98;

/* What a thread computes for one point and nobody else reads. */
struct point {
    double residual_x, residual_y;
    double off_diagonal, diagonal;
};

static struct input input;
/* The mesh: a row of coordinates for each line. Each thread allocates its own. */
static double **mesh_x, **mesh_y;
/* How far the worst point is from its equation, before the first iteration and the last. */
static double first_residual, last_residual;

static void prepare(enum program_size size)
{
    input = input_of[size];
    mesh_x = program_allocate((size_t)input.side, sizeof *mesh_x);
    mesh_y = program_allocate((size_t)input.side, sizeof *mesh_y);
}

/* The first mesh: lines from a wavy bottom straight up to a flat top, and a wave inside that the iterations have to
 * smooth away. */
static void place_point(int row, int column)
{
    double across = column / (input.side - 1.0), up = row / (input.side - 1.0);
    double bottom = 0.15 * sin(3 * across) * across;
    double wave = 0.02 * sin(9 * across) * sin(3.14159265358979323846 * up) * sin(3.14159265358979323846 * across);
    mesh_x[row][column] = across + wave;
    mesh_y[row][column] = bottom + (1 - bottom) * up + wave;
}

static struct point *set_up(struct range own)
{
    size_t points = (size_t)((own.end - own.first) * input.side);
    double *x = program_allocate(points, sizeof *x), *y = program_allocate(points, sizeof *y);
    for (long row = own.first; row < own.end; row++) {
        mesh_x[row] = x + (row - own.first) * input.side;
        mesh_y[row] = y + (row - own.first) * input.side;
        for (int column = 0; column < input.side; column++)
            place_point((int)row, column);
    }
    return program_allocate_zeros(points, sizeof(struct point));
}

/* How far each inner point of a row is from its equation, and the equations of its line. Returns the largest
 * distance. */
static double find_residuals(long row, struct point *points)
{
    const double *x = mesh_x[row], *x_below = mesh_x[row - 1], *x_above = mesh_x[row + 1];
    const double *y = mesh_y[row], *y_below = mesh_y[row - 1], *y_above = mesh_y[row + 1];
    double largest = 0;
    for (int i = 1; i < input.side - 1; i++) {
        double x_up = x_above[i] - x_below[i], y_up = y_above[i] - y_below[i];
        double x_across = x[i + 1] - x[i - 1], y_across = y[i + 1] - y[i - 1];
        double along_up = 0.25 * (x_across * x_across + y_across * y_across);
        double along_across = 0.25 * (x_up * x_up + y_up * y_up);
        double mixed = 0.125 * (x_up * x_across + y_up * y_across);
        struct point *point = &points[i];
        point->off_diagonal = -along_across;
        point->diagonal = 2 * along_across + along_up * (2 / relaxation);
        point->residual_x = along_up * (x_above[i] - 2 * x[i] + x_below[i])
            + along_across * (x[i + 1] - 2 * x[i] + x[i - 1])
            - mixed * (x_above[i + 1] - x_above[i - 1] - x_below[i + 1] + x_below[i - 1]);
        point->residual_y = along_up * (y_above[i] - 2 * y[i] + y_below[i])
            + along_across * (y[i + 1] - 2 * y[i] + y[i - 1])
            - mixed * (y_above[i + 1] - y_above[i - 1] - y_below[i + 1] + y_below[i - 1]);
        largest = fmax(largest, fmax(fabs(point->residual_x), fabs(point->residual_y)));
    }
    return largest;
}

/* Solves a line's tridiagonal equations, for x and y at once, and moves its points. */
static void move_line(long row, struct point *points)
{
    int last = input.side - 2;
    for (int i = 2; i <= last; i++) {
        double factor = points[i].off_diagonal / points[i - 1].diagonal;
        points[i].diagonal -= factor * points[i - 1].off_diagonal;
        points[i].residual_x -= factor * points[i - 1].residual_x;
        points[i].residual_y -= factor * points[i - 1].residual_y;
    }
    double step_x = 0, step_y = 0;
    for (int i = last; i > 0; i--) {
        step_x = (points[i].residual_x - points[i].off_diagonal * step_x) / points[i].diagonal;
        step_y = (points[i].residual_y - points[i].off_diagonal * step_y) / points[i].diagonal;
        mesh_x[row][i] += step_x;
        mesh_y[row][i] += step_y;
    }
}

static void part(int thread)
{
    struct range own = own_share(input.side, thread);
    struct point *points = set_up(own);
    /* The first and the last row of all are given. */
    struct range inner = {own.first > 1 ? own.first : 1, own.end < input.side - 1 ? own.end : input.side - 1};
    program_start(thread);
    for (int iteration = 0; iteration < input.iterations; iteration++) {
        double largest = 0;
        for (long row = inner.first; row < inner.end; row++)
            largest = fmax(largest, find_residuals(row, &points[(row - own.first) * input.side]));
        /* Nobody moves a point before all have read it. */
        largest = program_largest(thread, largest);
        if (thread == 0 && iteration == 0)
            first_residual = largest;
        if (thread == 0)
            last_residual = largest;
        for (long row = inner.first; row < inner.end; row++)
            move_line(row, &points[(row - own.first) * input.side]);
        program_barrier();
    }
    program_stop(thread);
}

/* The same on one thread, which is the same to the last bit: all residuals are of the mesh before the iteration,
 * whoever finds them. */
static bool check(void)
{
    double **x = mesh_x, **y = mesh_y;
    double residual = last_residual;
    if (!(residual < first_residual))
        return program_differs("the mesh gets no better: %.17g from its equations, %.17g at first", residual,
                               first_residual);
    program_compute_alone();
    for (int row = 0; row < input.side; row++) {
        for (int column = 0; column < input.side; column++) {
            if (x[row][column] != mesh_x[row][column] || y[row][column] != mesh_y[row][column])
                return program_differs("point %d, %d is at %.17g, %.17g, not %.17g, %.17g", row, column, x[row][column],
                                       y[row][column], mesh_x[row][column], mesh_y[row][column]);
        }
    }
    if (residual != last_residual)
        return program_differs("the last residual is %.17g, not %.17g", residual, last_residual);
    return true;
}

int main(int argc, char **argv)
{
    static const struct program tomcatv = {
        .name = "tomcatv",
        .computes = "moves a mesh between given curves until it satisfies elliptic equations",
        .inputs = {"66 x 66 points, 30 iterations", "1026 x 1026 points, 80 iterations",
                   "3074 x 3074 points, 45 iterations", "1026 x 1026 points, 50 iterations (Blizzard)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&tomcatv, argc, argv);
}
