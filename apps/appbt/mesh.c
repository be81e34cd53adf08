#include "mesh.h"

/* In which block an index along an axis is. */
struct place {
    int block;
    long inside;
};

static int side_points;
/* How many blocks there are along each axis, a thread for each. */
static int blocks_along[AXES];
static struct block *blocks;
static struct place *places[AXES];

/* As many blocks as threads, as cubic as can be: the sum of their numbers along the axes is least. */
static void choose_blocks(void)
{
    int least = program_threads + 3;
    for (int x = 1; x <= program_threads; x++) {
        for (int y = 1; y <= program_threads / x; y++) {
            int z = program_threads / (x * y);
            if (x * y * z != program_threads || x + y + z >= least)
                continue;
            least = x + y + z;
            blocks_along[0] = x;
            blocks_along[1] = y;
            blocks_along[2] = z;
        }
    }
}

void mesh_prepare(int side)
{
    side_points = side;
    choose_blocks();
    blocks = program_allocate((size_t)program_threads, sizeof *blocks);
    for (int axis = 0; axis < AXES; axis++) {
        places[axis] = program_allocate((size_t)side, sizeof *places[axis]);
        for (int block = 0; block < blocks_along[axis]; block++) {
            struct range own = share_of(side, block, blocks_along[axis]);
            for (long index = own.first; index < own.end; index++)
                places[axis][index] = (struct place){block, index - own.first};
        }
    }
}

static int thread_of(int x, int y, int z)
{
    return (z * blocks_along[1] + y) * blocks_along[0] + x;
}

static void find_block(int thread, int *at)
{
    at[0] = thread % blocks_along[0];
    at[1] = thread / blocks_along[0] % blocks_along[1];
    at[2] = thread / (blocks_along[0] * blocks_along[1]);
}

void mesh_set_up(int thread)
{
    struct block *block = &blocks[thread];
    size_t count = 1;
    int at[AXES];
    find_block(thread, at);
    for (int axis = 0; axis < AXES; axis++) {
        block->own[axis] = share_of(side_points, at[axis], blocks_along[axis]);
        count *= (size_t)(block->own[axis].end - block->own[axis].first);
    }
    block->points = program_allocate_zeros(count, sizeof *block->points);
}

const struct block *block_of(int thread)
{
    return &blocks[thread];
}

int thread_beside(int thread, int axis, int distance)
{
    int at[AXES];
    find_block(thread, at);
    at[axis] += distance;
    return at[axis] < 0 || at[axis] == blocks_along[axis] ? -1 : thread_of(at[0], at[1], at[2]);
}

struct point *point(const long *at)
{
    struct place x = places[0][at[0]], y = places[1][at[1]], z = places[2][at[2]];
    const struct block *block = &blocks[thread_of(x.block, y.block, z.block)];
    long length_x = block->own[0].end - block->own[0].first, length_y = block->own[1].end - block->own[1].first;
    return &block->points[(z.inside * length_y + y.inside) * length_x + x.inside];
}

struct point *beside(const long *at, int axis, int distance)
{
    long there[AXES] = {at[0], at[1], at[2]};
    there[axis] += distance;
    return point(there);
}
