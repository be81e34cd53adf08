/*
 * Fourier transform of complex numbers in six steps, as Bailey described it and SPLASH-2 has it.
 *
 * The numbers are a square matrix by rows, and each thread owns some rows. A transform of the whole is: transpose;
 * transform each row; multiply by roots of unity; transpose; transform each row; transpose. The transposes are the
 * point of the program: in each, every thread reads a patch of every other thread's rows, once.
 */
#include "program.h"

#include <math.h>

struct complex_number {
    double real, imaginary;
};

struct input {
    int bits;
    /* Forward and back by turns, so an odd number ends with the transform of the input. */
    int transforms;
};

static const struct input input_of[SIZES] = {{12, 3}, {20, 41}, {22, 40}, {16, 1}};

/* So many numbers of a row are written while so many rows are read: both stay in the nearest cache. */
enum { PATCH = 8 };

static struct input input;
/* Of a row, and of rows. */
static long side;
/* Rows of the matrix, those of its transpose, and the roots of unity by which step three multiplies. Each thread
 * allocates its own rows. */
static struct complex_number **matrix, **turned, **twiddles;

static struct complex_number number(long index)
{
    uint64_t seed = 2 * (uint64_t)index;
    return (struct complex_number){random_unit(seed) - 0.5, random_unit(seed + 1) - 0.5};
}

/* e to the power of -2 pi i times this fraction. */
static struct complex_number root(long numerator, long denominator)
{
    double angle = -2 * 3.14159265358979323846 * (double)numerator / (double)denominator;
    return (struct complex_number){cos(angle), sin(angle)};
}

static inline struct complex_number product(struct complex_number a, struct complex_number b)
{
    return (struct complex_number){a.real * b.real - a.imaginary * b.imaginary,
                                   a.real * b.imaginary + a.imaginary * b.real};
}

static struct complex_number **allocate_rows_table(void)
{
    return program_allocate((size_t)side, sizeof(struct complex_number *));
}

static void prepare(enum program_size size)
{
    input = input_of[size];
    side = 1L << (input.bits / 2);
    matrix = allocate_rows_table();
    turned = allocate_rows_table();
    twiddles = allocate_rows_table();
}

static void set_up(struct range own)
{
    size_t numbers = (size_t)((own.end - own.first) * side);
    struct complex_number *own_matrix = program_allocate(numbers, sizeof *own_matrix);
    struct complex_number *own_turned = program_allocate_zeros(numbers, sizeof *own_turned);
    struct complex_number *own_twiddles = program_allocate(numbers, sizeof *own_twiddles);
    for (long row = own.first; row < own.end; row++) {
        long offset = (row - own.first) * side;
        matrix[row] = own_matrix + offset;
        turned[row] = own_turned + offset;
        twiddles[row] = own_twiddles + offset;
        for (long column = 0; column < side; column++) {
            matrix[row][column] = number(row * side + column);
            turned[row][column] = (struct complex_number){0, 0};
            twiddles[row][column] = root(row * column, side * side);
        }
    }
}

static void transpose(struct complex_number **from, struct complex_number **to, struct range own)
{
    for (long patch = 0; patch < side; patch += PATCH) {
        for (long row = own.first; row < own.end; row++) {
            for (long column = patch; column < patch + PATCH && column < side; column++)
                to[row][column] = from[column][row];
        }
    }
}

/* Every number to the place whose bits are those of its own place, backwards. */
static void reverse_bits(struct complex_number *row, long length)
{
    for (long place = 0, reversed = 0; place < length; place++) {
        if (place < reversed) {
            struct complex_number other = row[place];
            row[place] = row[reversed];
            row[reversed] = other;
        }
        long bit = length >> 1;
        for (; reversed & bit; bit >>= 1)
            reversed ^= bit;
        reversed |= bit;
    }
}

/* Cooley and Tukey's transform in place; `roots` are the first half of the `length` roots of unity. */
static void transform(struct complex_number *row, long length, const struct complex_number *roots)
{
    reverse_bits(row, length);
    for (long half = 1; half < length; half *= 2) {
        long stride = length / (2 * half);
        for (long first = 0; first < length; first += 2 * half) {
            for (long k = 0; k < half; k++) {
                struct complex_number *low = &row[first + k], *high = low + half;
                struct complex_number turn = product(*high, roots[k * stride]);
                *high = (struct complex_number){low->real - turn.real, low->imaginary - turn.imaginary};
                *low = (struct complex_number){low->real + turn.real, low->imaginary + turn.imaginary};
            }
        }
    }
}

static struct complex_number *make_roots(long length)
{
    struct complex_number *roots = program_allocate((size_t)length / 2, sizeof *roots);
    for (long k = 0; k < length / 2; k++)
        roots[k] = root(k, length);
    return roots;
}

static void multiply(struct complex_number *row, const struct complex_number *factors)
{
    for (long column = 0; column < side; column++)
        row[column] = product(row[column], factors[column]);
}

/* Back is forward between two conjugations, and divided by the length. */
static void conjugate(struct range own, double scale)
{
    for (long row = own.first; row < own.end; row++) {
        for (long column = 0; column < side; column++) {
            matrix[row][column].real *= scale;
            matrix[row][column].imaginary *= -scale;
        }
    }
}

/* In and out in `matrix`. */
static void six_steps(struct range own, const struct complex_number *roots)
{
    program_barrier();
    transpose(matrix, turned, own);
    for (long row = own.first; row < own.end; row++) {
        transform(turned[row], side, roots);
        multiply(turned[row], twiddles[row]);
    }
    program_barrier();
    transpose(turned, matrix, own);
    for (long row = own.first; row < own.end; row++)
        transform(matrix[row], side, roots);
    program_barrier();
    transpose(matrix, turned, own);
    program_barrier();
    for (long row = own.first; row < own.end; row++) {
        for (long column = 0; column < side; column++)
            matrix[row][column] = turned[row][column];
    }
}

static void part(int thread)
{
    struct range own = own_share(side, thread);
    set_up(own);
    /* A copy for each thread: it is small and read all the time. */
    const struct complex_number *roots = make_roots(side);
    program_start(thread);
    for (int count = 0; count < input.transforms; count++) {
        bool back = count % 2 == 1;
        if (back)
            conjugate(own, 1);
        six_steps(own, roots);
        if (back)
            conjugate(own, 1 / (double)(side * side));
    }
    program_stop(thread);
}

/*
 * One transform of the whole, without matrix and transposes. It adds the same numbers in another order, so it is equal
 * within a tolerance: rounding errors grow with the logarithm of the length and with the number of transforms, to about
 * 1e-15 of the largest number in each of them.
 */
static bool check(void)
{
    long length = side * side;
    struct complex_number *expected = program_allocate((size_t)length, sizeof *expected);
    double largest = 0;
    for (long index = 0; index < length; index++)
        expected[index] = number(index);
    transform(expected, length, make_roots(length));
    for (long index = 0; index < length; index++)
        largest = fmax(largest, hypot(expected[index].real, expected[index].imaginary));
    double tolerance = 4e-15 * input.transforms * largest;
    for (long index = 0; index < length; index++) {
        struct complex_number result = matrix[index / side][index % side];
        double difference = hypot(result.real - expected[index].real, result.imaginary - expected[index].imaginary);
        if (!(difference <= tolerance))
            return program_differs("number %ld is %.17g%+.17gi, not %.17g%+.17gi within %.1e", index, result.real,
                                   result.imaginary, expected[index].real, expected[index].imaginary, tolerance);
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct program fft = {
        .name = "fft",
        .computes = "Fourier transform of complex numbers in six steps, three of them transposes",
        .inputs = {"4,096 numbers, 3 transforms", "1,048,576 numbers, 41 transforms", "4,194,304 numbers, 40 transforms",
                   "65,536 numbers, 1 transform (SPLASH-2)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&fft, argc, argv);
}
