/*
 * Ray tracing of balls on balls (the recursive scene of Haines's SPD), with shadows and reflections, after SPLASH-2's
 * raytrace.
 *
 * Everybody reads the scene and a grid of cells that says which balls are where, and nobody writes it. The image is in
 * tiles, and each thread has a queue of its own ones; some tiles are much more work than others, so who has none left
 * steals half of what is left in another thread's queue.
 */
#include "program.h"

#include <math.h>
#include <pthread.h>

struct input {
    /* Pixels on a side of the image; how often balls are put on balls. */
    int side, generations;
};

static const struct input input_of[SIZES] = {{48, 2}, {1024, 4}, {2048, 4}, {256, 4}};

enum { TILE = 8, TILE_PIXELS = TILE * TILE };
/* Light goes from ball to ball so often at most. */
enum { REFLECTIONS = 4 };
enum { NO_BALL = -1, FLOOR = -2 };
enum { LIGHTS = 3, AXES = 3 };

struct vector {
    double at[AXES];
};

struct ball {
    struct vector centre;
    double radius;
};

struct ray {
    struct vector from, direction;
};

struct hit {
    double distance;
    int ball;
};

/* Tiles that are not computed yet. On lines of its own: its owner looks at it all the time. */
struct queue {
    _Alignas(LINE_BYTES) pthread_mutex_t lock;
    long first, end;
};

static const struct vector lights[LIGHTS] = {{{4, 3, 6}}, {{-3, 4, 5}}, {{1, -5, 7}}};
static const struct vector eye = {{2.1, 1.3, 1.7}};

static struct input input;
static struct ball *balls;
static int ball_count;
/* The grid: so many cells along each axis of a cube around the balls, and the balls in each cell one after the
 * other. */
static int grid_side;
static double grid_start[AXES], grid_step;
static int *first_in_cell, *in_cells;
/* True while the check looks at all balls for each ray. */
static bool without_grid;
/* Pixels as red, green, blue, by tiles. */
static uint32_t *image;
static long tiles_along;
/* Each thread allocates its own. */
static struct queue **queues;

static inline struct vector sum(struct vector a, double factor, struct vector b)
{
    return (struct vector){{a.at[0] + factor * b.at[0], a.at[1] + factor * b.at[1], a.at[2] + factor * b.at[2]}};
}

static inline double dot(struct vector a, struct vector b)
{
    return a.at[0] * b.at[0] + a.at[1] * b.at[1] + a.at[2] * b.at[2];
}

static inline struct vector cross(struct vector a, struct vector b)
{
    return (struct vector){{a.at[1] * b.at[2] - a.at[2] * b.at[1], a.at[2] * b.at[0] - a.at[0] * b.at[2],
                            a.at[0] * b.at[1] - a.at[1] * b.at[0]}};
}

static inline struct vector unit(struct vector a)
{
    return sum((struct vector){{0, 0, 0}}, 1 / sqrt(dot(a, a)), a);
}

/* A ball and nine of a third of its size on it, the top of which is turned this way: six around its waist, three
 * nearer the top. */
static void put_balls(struct vector centre, double radius, struct vector top, int generations)
{
    balls[ball_count++] = (struct ball){centre, radius};
    if (generations == 0)
        return;
    struct vector other = fabs(top.at[2]) < 0.9 ? (struct vector){{0, 0, 1}} : (struct vector){{1, 0, 0}};
    struct vector across = unit(cross(top, other)), along = cross(top, across);
    for (int child = 0; child < 9; child++) {
        double turn = 3.14159265358979323846 / 3 * (child < 6 ? child : 2 * (child - 6) + 0.5);
        double rise = child < 6 ? 0 : 0.8164965809277260, width = child < 6 ? 1 : 0.5773502691896258;
        struct vector up = unit(sum(sum(sum((struct vector){{0, 0, 0}}, rise, top), width * cos(turn), across),
                                    width * sin(turn), along));
        put_balls(sum(centre, radius * 4 / 3, up), radius / 3, up, generations - 1);
    }
}

/* Which cells a ball reaches along an axis. */
static struct range cells_of(const struct ball *ball, int axis)
{
    double from = (ball->centre.at[axis] - ball->radius - grid_start[axis]) / grid_step;
    double to = (ball->centre.at[axis] + ball->radius - grid_start[axis]) / grid_step;
    /* A little more, so that rounding never keeps a ball out of a cell. */
    long first = (long)fmax(0, from - 1e-6), end = (long)(to + 1e-6) + 1;
    return (struct range){first, end < grid_side ? end : grid_side};
}

/* Counts each cell's balls in first_in_cell; or, once it says where each cell ends, puts them there from the end on,
 * until it says where each begins. */
static void visit_cells(bool put)
{
    for (int ball = 0; ball < ball_count; ball++) {
        struct range x = cells_of(&balls[ball], 0), y = cells_of(&balls[ball], 1), z = cells_of(&balls[ball], 2);
        for (long k = z.first; k < z.end; k++) {
            for (long j = y.first; j < y.end; j++) {
                for (long i = x.first; i < x.end; i++) {
                    int *place = &first_in_cell[(k * grid_side + j) * grid_side + i];
                    if (put)
                        in_cells[--*place] = ball;
                    else
                        ++*place;
                }
            }
        }
    }
}

static void make_grid(void)
{
    double widest = 0;
    for (int axis = 0; axis < AXES; axis++) {
        grid_start[axis] = INFINITY;
        for (int ball = 0; ball < ball_count; ball++)
            grid_start[axis] = fmin(grid_start[axis], balls[ball].centre.at[axis] - balls[ball].radius);
        grid_start[axis] -= 1e-3;
        for (int ball = 0; ball < ball_count; ball++)
            widest = fmax(widest, balls[ball].centre.at[axis] + balls[ball].radius - grid_start[axis]);
    }
    grid_side = (int)(3 * cbrt(ball_count));
    grid_step = (widest + 1e-3) / grid_side;
    long cells = (long)grid_side * grid_side * grid_side;
    first_in_cell = program_allocate_zeros((size_t)cells + 1, sizeof *first_in_cell);
    visit_cells(false);
    for (long cell = 1; cell <= cells; cell++)
        first_in_cell[cell] += first_in_cell[cell - 1];
    in_cells = program_allocate((size_t)first_in_cell[cells], sizeof *in_cells);
    visit_cells(true);
}

static void prepare(enum program_size size)
{
    input = input_of[size];
    int count = 1;
    for (int generation = 0, latest = 1; generation < input.generations; generation++)
        count += latest *= 9;
    balls = program_allocate((size_t)count, sizeof *balls);
    ball_count = 0;
    put_balls((struct vector){{0, 0, 0.5}}, 0.5, (struct vector){{0, 0, 1}}, input.generations);
    make_grid();
    tiles_along = input.side / TILE;
    image = program_allocate((size_t)(tiles_along * tiles_along), TILE_PIXELS * sizeof *image);
    queues = program_allocate((size_t)program_threads, sizeof *queues);
}

/* How far along the ray a ball is, or infinity. Not nearer than `least`: a reflected ray must not meet the ball that
 * it comes from. */
static double distance_to(const struct ball *ball, const struct ray *ray)
{
    const double least = 1e-9;
    struct vector to_centre = sum(ball->centre, -1, ray->from);
    double middle = dot(to_centre, ray->direction);
    double square = ball->radius * ball->radius - dot(to_centre, to_centre) + middle * middle;
    if (square < 0)
        return INFINITY;
    double half = sqrt(square);
    if (middle - half > least)
        return middle - half;
    return middle + half > least ? middle + half : INFINITY;
}

static void meet(struct hit *hit, int ball, const struct ray *ray)
{
    double distance = distance_to(&balls[ball], ray);
    if (distance < hit->distance)
        *hit = (struct hit){distance, ball};
}

/* Where the ray enters the grid; infinity if it passes by. */
static double enter_grid(const struct ray *ray)
{
    double enter = 0, leave = INFINITY;
    for (int axis = 0; axis < AXES; axis++) {
        double inverse = 1 / ray->direction.at[axis];
        double one = (grid_start[axis] - ray->from.at[axis]) * inverse;
        double other = (grid_start[axis] + grid_side * grid_step - ray->from.at[axis]) * inverse;
        enter = fmax(enter, fmin(one, other));
        leave = fmin(leave, fmax(one, other));
    }
    return enter < leave ? enter : INFINITY;
}

/* The nearest ball, by walking from cell to cell along the ray until one is nearer than the cell's end (Amanatides
 * and Woo). */
static struct hit walk_grid(const struct ray *ray)
{
    struct hit nearest = {INFINITY, NO_BALL};
    double enter = enter_grid(ray), next[AXES], step[AXES];
    int cell[AXES], direction[AXES];
    if (enter == INFINITY)
        return nearest;
    for (int axis = 0; axis < AXES; axis++) {
        double along = ray->direction.at[axis];
        double inside = (ray->from.at[axis] + enter * along - grid_start[axis]) / grid_step;
        cell[axis] = inside < 0 ? 0 : inside >= grid_side ? grid_side - 1 : (int)inside;
        direction[axis] = along < 0 ? -1 : 1;
        step[axis] = along == 0 ? INFINITY : grid_step / fabs(along);
        double border = grid_start[axis] + (cell[axis] + (along < 0 ? 0 : 1)) * grid_step;
        next[axis] = along == 0 ? INFINITY : (border - ray->from.at[axis]) / along;
    }
    for (;;) {
        long index = ((long)cell[2] * grid_side + cell[1]) * grid_side + cell[0];
        for (int place = first_in_cell[index]; place < first_in_cell[index + 1]; place++)
            meet(&nearest, in_cells[place], ray);
        int axis = next[0] < next[1] ? (next[0] < next[2] ? 0 : 2) : (next[1] < next[2] ? 1 : 2);
        if (nearest.distance <= next[axis])
            return nearest;
        cell[axis] += direction[axis];
        if (cell[axis] < 0 || cell[axis] >= grid_side)
            return nearest;
        next[axis] += step[axis];
    }
}

static struct hit find_hit(const struct ray *ray)
{
    struct hit nearest = {INFINITY, NO_BALL};
    if (!without_grid)
        nearest = walk_grid(ray);
    for (int ball = 0; without_grid && ball < ball_count; ball++)
        meet(&nearest, ball, ray);
    double to_floor = -ray->from.at[2] / ray->direction.at[2];
    if (to_floor > 1e-9 && to_floor < nearest.distance)
        nearest = (struct hit){to_floor, FLOOR};
    return nearest;
}

/* How much light a point gets from those lights that it sees. */
static double light_at(struct vector point, struct vector outward)
{
    double light = 0.1;
    for (int index = 0; index < LIGHTS; index++) {
        struct vector way = sum(lights[index], -1, point);
        double distance = sqrt(dot(way, way));
        struct ray ray = {sum(point, 1e-7, outward), unit(way)};
        double slant = dot(outward, ray.direction);
        if (slant > 0 && find_hit(&ray).distance > distance)
            light += 0.3 * slant;
    }
    return light;
}

static struct vector sky(struct vector direction)
{
    double up = fmax(0, direction.at[2]);
    return (struct vector){{0.3 + 0.2 * up, 0.4 + 0.3 * up, 0.6 + 0.4 * up}};
}

static struct vector color_along(const struct ray *ray, int reflections)
{
    struct hit hit = find_hit(ray);
    if (hit.ball == NO_BALL)
        return sky(ray->direction);
    struct vector point = sum(ray->from, hit.distance, ray->direction), color, outward = {{0, 0, 1}};
    if (hit.ball == FLOOR) {
        bool dark = ((long)floor(2 * point.at[0]) + (long)floor(2 * point.at[1])) % 2 != 0;
        color = dark ? (struct vector){{0.3, 0.3, 0.2}} : (struct vector){{0.9, 0.8, 0.6}};
    } else {
        outward = unit(sum(point, -1, balls[hit.ball].centre));
        color = (struct vector){{0.8, 0.6, 0.4}};
    }
    double mirror = hit.ball == FLOOR ? 0.1 : 0.5;
    struct vector result = sum((struct vector){{0, 0, 0}}, (1 - mirror) * light_at(point, outward), color);
    if (reflections == 0)
        return result;
    struct ray reflected = {sum(point, 1e-7, outward),
                            unit(sum(ray->direction, -2 * dot(ray->direction, outward), outward))};
    return sum(result, mirror, color_along(&reflected, reflections - 1));
}

static uint32_t pixel(int row, int column)
{
    struct vector forward = unit(sum((struct vector){{0, 0, 0.55}}, -1, eye));
    struct vector right = unit(cross(forward, (struct vector){{0, 0, 1}})), up = cross(right, forward);
    double across = (column + 0.5) / input.side - 0.5, above = 0.5 - (row + 0.5) / input.side;
    struct ray ray = {eye, unit(sum(sum(forward, across, right), above, up))};
    struct vector color = color_along(&ray, REFLECTIONS);
    uint32_t bytes = 0;
    for (int part = 0; part < AXES; part++)
        bytes = bytes << 8 | (uint32_t)(255 * fmin(1, color.at[part]));
    return bytes;
}

static void trace_tile(long tile)
{
    int row = (int)(tile / tiles_along) * TILE, column = (int)(tile % tiles_along) * TILE;
    for (int index = 0; index < TILE_PIXELS; index++)
        image[tile * TILE_PIXELS + index] = pixel(row + index / TILE, column + index % TILE);
}

/* The first tile of the own queue, or -1. */
static long take_tile(struct queue *queue)
{
    long tile = -1;
    pthread_mutex_lock(&queue->lock);
    if (queue->first < queue->end)
        tile = queue->first++;
    pthread_mutex_unlock(&queue->lock);
    return tile;
}

/* The last half of another's tiles, rounded up: one at a time, the two would fetch the queue from each other for each. */
static struct range steal_tiles(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct range stolen = {queue->end - (queue->end - queue->first + 1) / 2, queue->end};
    queue->end = stolen.first;
    pthread_mutex_unlock(&queue->lock);
    return stolen;
}

/* From its own queue, then from whose comes next. One round is enough: what it does not find there, somebody has who
 * will compute it. */
static long next_tile(int thread)
{
    struct queue *own = queues[thread];
    long tile = take_tile(own);
    for (int step = 1; tile < 0 && step < program_threads; step++) {
        struct range stolen = steal_tiles(queues[(thread + step) % program_threads]);
        if (stolen.first == stolen.end)
            continue;
        tile = stolen.first;
        pthread_mutex_lock(&own->lock);
        own->first = stolen.first + 1;
        own->end = stolen.end;
        pthread_mutex_unlock(&own->lock);
    }
    return tile;
}

static void part(int thread)
{
    struct range own = own_share(tiles_along * tiles_along, thread);
    struct queue *queue = queues[thread] = program_allocate(1, sizeof *queue);
    pthread_mutex_init(&queue->lock, NULL);
    queue->first = own.first;
    queue->end = own.end;
    for (long index = own.first * TILE_PIXELS; index < own.end * TILE_PIXELS; index++)
        image[index] = 0;
    program_start(thread);
    for (long tile; (tile = next_tile(thread)) >= 0;)
        trace_tile(tile);
    program_stop(thread);
}

/* Every pixel again on one thread, and then some pixels (all of a small image) without the grid. Equal to the last
 * bit: a pixel depends on no other. */
static bool check(void)
{
    const uint32_t *result = image;
    long pixels = tiles_along * tiles_along * TILE_PIXELS;
    program_compute_alone();
    for (long index = 0; index < pixels; index++) {
        if (result[index] != image[index])
            return program_differs("pixel %ld of tile %ld is %06x, not %06x", index % TILE_PIXELS, index / TILE_PIXELS,
                                   result[index], image[index]);
    }
    without_grid = true;
    long step = pixels < 4000 ? 1 : pixels / 500;
    for (long index = 0; index < pixels; index += step) {
        long tile = index / TILE_PIXELS, inside = index % TILE_PIXELS;
        uint32_t expected = pixel((int)(tile / tiles_along * TILE + inside / TILE),
                                  (int)(tile % tiles_along * TILE + inside % TILE));
        if (result[index] != expected)
            return program_differs("pixel %ld of tile %ld is %06x, but without the grid %06x", inside, tile,
                                   result[index], expected);
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct program raytrace = {
        .name = "raytrace",
        .computes = "an image of mirroring balls on balls, by tiles that threads steal from each other",
        .inputs = {"48 x 48 pixels, 91 balls", "1024 x 1024 pixels, 7381 balls", "2048 x 2048 pixels, 7381 balls",
                   "256 x 256 pixels, 7381 balls (SPLASH-2's balls4)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&raytrace, argc, argv);
}
