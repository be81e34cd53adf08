/*
 * LU factorization of a dense matrix in blocks, without pivoting, as SPLASH-2's "contiguous" version has it.
 *
 * Blocks are dealt to the threads as on a chess board of threads, and each is allocated, and ever after written, by its
 * owner alone: owner computes. In step k the owner of diagonal block k factors it, the owners of row k and column k
 * solve with it, and all update the blocks right below with those. What is read of others is whole blocks, once each.
 */
#include "program.h"

/* SPLASH-2's size: a block of 2 KB. */
enum { BLOCK = 16, BLOCK_ELEMENTS = BLOCK * BLOCK };

static const int blocks_of[SIZES] = {10, 144, 320, 32};

static int blocks;
/* The board of threads: as near to a square as their number allows. */
static int board_rows, board_columns;
/* Blocks by columns; elements in a block by rows. */
static double **matrix;

/* Random elements, and a diagonal larger than its row's sum: such a matrix needs no pivoting. */
static double element(long row, long column)
{
    long size = (long)blocks * BLOCK;
    double random = random_unit((uint64_t)(row * size + column)) - 0.5;
    return row == column ? random + (double)size : random;
}

static double **block_at(int row, int column)
{
    return &matrix[(long)column * blocks + row];
}

static int owner(int row, int column)
{
    return row % board_rows * board_columns + column % board_columns;
}

static void prepare(enum program_size size)
{
    blocks = blocks_of[size];
    for (int rows = 1; rows * rows <= program_threads; rows++) {
        if (program_threads % rows == 0)
            board_rows = rows;
    }
    board_columns = program_threads / board_rows;
    matrix = program_allocate((size_t)blocks * (size_t)blocks, sizeof *matrix);
}

static void set_up_block(double *block, int block_row, int block_column)
{
    for (int row = 0; row < BLOCK; row++) {
        for (int column = 0; column < BLOCK; column++)
            block[row * BLOCK + column] = element((long)block_row * BLOCK + row, (long)block_column * BLOCK + column);
    }
}

/* All blocks of one thread in one piece of memory, column by column: what lies beside each other is then read by others
 * in the same step, and not while its owner still writes one of them. */
static void set_up(int thread)
{
    size_t own = 0;
    for (int row = 0; row < blocks; row++) {
        for (int column = 0; column < blocks; column++)
            own += owner(row, column) == thread;
    }
    double *next = program_allocate(own, BLOCK_ELEMENTS * sizeof *next);
    for (int column = 0; column < blocks; column++) {
        for (int row = 0; row < blocks; row++) {
            if (owner(row, column) != thread)
                continue;
            *block_at(row, column) = next;
            set_up_block(next, row, column);
            next += BLOCK_ELEMENTS;
        }
    }
}

/* Row `to` loses `factor` times row `from`, from this column on. */
static inline void subtract_row(double *to, const double *from, double factor, int first_column)
{
    for (int column = first_column; column < BLOCK; column++)
        to[column] -= factor * from[column];
}

static void factor_diagonal(double *diagonal)
{
    for (int k = 0; k < BLOCK; k++) {
        for (int row = k + 1; row < BLOCK; row++) {
            double factor = diagonal[row * BLOCK + k] /= diagonal[k * BLOCK + k];
            subtract_row(&diagonal[row * BLOCK], &diagonal[k * BLOCK], factor, k + 1);
        }
    }
}

/* A block below the diagonal one: its rows become the factors by which they are reduced. */
static void solve_below(double *block, const double *diagonal)
{
    for (int k = 0; k < BLOCK; k++) {
        for (int row = 0; row < BLOCK; row++) {
            double factor = block[row * BLOCK + k] /= diagonal[k * BLOCK + k];
            subtract_row(&block[row * BLOCK], &diagonal[k * BLOCK], factor, k + 1);
        }
    }
}

static void solve_right(double *block, const double *diagonal)
{
    for (int k = 0; k < BLOCK; k++) {
        for (int row = k + 1; row < BLOCK; row++)
            subtract_row(&block[row * BLOCK], &block[k * BLOCK], diagonal[row * BLOCK + k], 0);
    }
}

static void update(double *block, const double *left, const double *above)
{
    for (int row = 0; row < BLOCK; row++) {
        for (int k = 0; k < BLOCK; k++)
            subtract_row(&block[row * BLOCK], &above[k * BLOCK], left[row * BLOCK + k], 0);
    }
}

static void part(int thread)
{
    set_up(thread);
    program_start(thread);
    for (int k = 0; k < blocks; k++) {
        if (owner(k, k) == thread)
            factor_diagonal(*block_at(k, k));
        program_barrier();
        const double *diagonal = *block_at(k, k);
        for (int other = k + 1; other < blocks; other++) {
            if (owner(other, k) == thread)
                solve_below(*block_at(other, k), diagonal);
            if (owner(k, other) == thread)
                solve_right(*block_at(k, other), diagonal);
        }
        program_barrier();
        for (int column = k + 1; column < blocks; column++) {
            for (int row = k + 1; row < blocks; row++) {
                if (owner(row, column) == thread)
                    update(*block_at(row, column), *block_at(row, k), *block_at(k, column));
            }
        }
        /* No barrier: what the next step reads at first is its diagonal block, which its own owner has updated. */
    }
    program_stop(thread);
}

/* Gauss's elimination, row by row and without blocks. Every element is reduced by the same products in the same
 * order: equal to the last bit. */
static bool check(void)
{
    long size = (long)blocks * BLOCK;
    double *expected = program_allocate((size_t)(size * size), sizeof *expected);
    for (long row = 0; row < size; row++) {
        for (long column = 0; column < size; column++)
            expected[row * size + column] = element(row, column);
        for (long k = 0; k < row; k++) {
            double factor = expected[row * size + k] /= expected[k * size + k];
            for (long column = k + 1; column < size; column++)
                expected[row * size + column] -= factor * expected[k * size + column];
        }
    }
    for (long row = 0; row < size; row++) {
        for (long column = 0; column < size; column++) {
            const double *block = *block_at((int)(row / BLOCK), (int)(column / BLOCK));
            double result = block[row % BLOCK * BLOCK + column % BLOCK];
            if (result != expected[row * size + column])
                return program_differs("element %ld, %ld is %.17g, not %.17g", row, column, result,
                                       expected[row * size + column]);
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct program lu = {
        .name = "lu",
        .computes = "factors a dense matrix into a lower and an upper triangle, in blocks of 16 x 16",
        .inputs = {"160 x 160", "2304 x 2304", "5120 x 5120", "512 x 512 (SPLASH-2)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&lu, argc, argv);
}
