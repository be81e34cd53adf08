/*
 * Molecular dynamics of water, after SPLASH's: in every step, every molecule acts on every other one within half the
 * box. The molecules are those of the model SPC/Fw (Wu, Tepper and Voth): three charges on springs, which repel and
 * attract each other.
 *
 * Each thread owns a run of molecules and computes their pairs with the half of all molecules that follow. So it finds
 * forces on others' molecules too: it accumulates them apart and then adds them, molecule by molecule, under that
 * molecule's lock.
 */
#include "program.h"

#include <math.h>
#include <pthread.h>

struct input {
    int molecules, steps;
};

static const struct input input_of[SIZES] = {{64, 40}, {1728, 25}, {12167, 3}, {256, 10}};

/* Of a molecule: oxygen first. */
enum { ATOMS = 3, AXES = 3 };

typedef double vectors[ATOMS][AXES];

/* Ångström, femtoseconds, atomic masses, elementary charges, kilocalories a mole. */
static const double mass[ATOMS] = {15.9994, 1.008, 1.008}, charge[ATOMS] = {-0.82, 0.41, 0.41};
static const double bond_length = 1.012, bond_stiffness = 1059.162;
static const double angle_at_rest = 113.24 * 3.14159265358979323846 / 180, angle_stiffness = 75.90;
static const double repulsion_length = 3.165492, repulsion_depth = 0.1554253;
static const double coulomb = 332.0637, boltzmann = 1.987204e-3;
/* An acceleration in Å / fs² is this times force by mass. */
static const double acceleration_unit = 4.184e-4;
static const double step_fs = 0.5, temperature = 300, volume_of_molecule = 29.9;

/* On lines apart: what everybody adds to, and what everybody reads and its owner changes. */
struct molecule {
    _Alignas(LINE_BYTES) vectors force;
    pthread_mutex_t lock;
    _Alignas(LINE_BYTES) vectors position;
    vectors velocity;
};

static struct input input;
static double box, cutoff;
static struct molecule *molecules;
/* Each thread's own sum of forces on all molecules, in this step. */
static vectors **forces_of_threads;
static pthread_mutex_t energy_lock = PTHREAD_MUTEX_INITIALIZER;
/* After the first step and after the last. */
static double first_energy, last_energy, last_kinetic_energy;

static void prepare(enum program_size size)
{
    input = input_of[size];
    box = cbrt(input.molecules * volume_of_molecule);
    cutoff = box / 2;
    first_energy = last_energy = last_kinetic_energy = 0;
    molecules = program_allocate((size_t)input.molecules, sizeof *molecules);
    forces_of_threads = program_allocate((size_t)program_threads, sizeof *forces_of_threads);
}

/* A number of the normal distribution (Box and Muller). */
static double random_normal(uint64_t seed)
{
    return sqrt(-2 * log(1 - random_unit(2 * seed))) * cos(2 * 3.14159265358979323846 * random_unit(2 * seed + 1));
}

/* A random direction, and one perpendicular to it. */
static void random_frame(uint64_t seed, double *along, double *across)
{
    double length = 0, overlap = 0, width = 0;
    for (int axis = 0; axis < AXES; axis++) {
        along[axis] = random_normal(seed + (uint64_t)axis);
        across[axis] = random_normal(seed + AXES + (uint64_t)axis);
        length += along[axis] * along[axis];
        overlap += along[axis] * across[axis];
    }
    for (int axis = 0; axis < AXES; axis++) {
        across[axis] -= along[axis] * overlap / length;
        width += across[axis] * across[axis];
    }
    for (int axis = 0; axis < AXES; axis++) {
        along[axis] /= sqrt(length);
        across[axis] /= sqrt(width);
    }
}

/* On a lattice (some of its places stay empty if the molecules do not fill a cube), turned at random, with random
 * velocities. */
static void set_up_molecule(int index)
{
    struct molecule *molecule = &molecules[index];
    uint64_t seed = 32 * (uint64_t)index;
    long side = (long)ceil(cbrt(input.molecules) - 1e-9), place = side * side * side * index / input.molecules;
    double centre[AXES] = {(double)(place % side), (double)(place / side % side), (double)(place / side / side)};
    double along[AXES], across[AXES];
    random_frame(seed, along, across);
    for (int atom = 0; atom < ATOMS; atom++) {
        double forward = atom == 0 ? 0 : bond_length * cos(angle_at_rest / 2);
        double aside = atom == 0 ? 0 : bond_length * sin(angle_at_rest / 2) * (atom == 1 ? 1 : -1);
        for (int axis = 0; axis < AXES; axis++) {
            molecule->position[atom][axis] = (centre[axis] + 0.5) * box / (double)side + forward * along[axis]
                + aside * across[axis];
            molecule->velocity[atom][axis] = random_normal(seed + 8 + (uint64_t)(atom * AXES + axis))
                * sqrt(boltzmann * temperature * acceleration_unit / mass[atom]);
            molecule->force[atom][axis] = 0;
        }
    }
    pthread_mutex_init(&molecule->lock, NULL);
}

/* Half a step's acceleration. */
static void push(struct molecule *molecule)
{
    for (int atom = 0; atom < ATOMS; atom++) {
        for (int axis = 0; axis < AXES; axis++)
            molecule->velocity[atom][axis] += 0.5 * step_fs * acceleration_unit * molecule->force[atom][axis]
                / mass[atom];
    }
}

static void move(struct molecule *molecule)
{
    for (int atom = 0; atom < ATOMS; atom++) {
        for (int axis = 0; axis < AXES; axis++) {
            molecule->position[atom][axis] += step_fs * molecule->velocity[atom][axis];
            molecule->force[atom][axis] = 0;
        }
    }
}

static double dot(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* The springs of both bonds and of the angle between. Returns their energy. */
static double bend(const struct molecule *molecule, vectors force)
{
    double bond[2][AXES], length[2], energy = 0;
    for (int side = 0; side < 2; side++) {
        for (int axis = 0; axis < AXES; axis++)
            bond[side][axis] = molecule->position[side + 1][axis] - molecule->position[0][axis];
        length[side] = sqrt(dot(bond[side], bond[side]));
        double stretch = length[side] - bond_length;
        energy += 0.5 * bond_stiffness * stretch * stretch;
        for (int axis = 0; axis < AXES; axis++) {
            double pull = bond_stiffness * stretch * bond[side][axis] / length[side];
            force[side + 1][axis] -= pull;
            force[0][axis] += pull;
        }
    }
    double cosine = dot(bond[0], bond[1]) / (length[0] * length[1]);
    double turn = acos(cosine) - angle_at_rest;
    double torque = angle_stiffness * turn / sqrt(1 - cosine * cosine);
    for (int side = 0; side < 2; side++) {
        for (int axis = 0; axis < AXES; axis++) {
            double slope = (bond[1 - side][axis] / length[1 - side] - cosine * bond[side][axis] / length[side])
                / length[side];
            force[side + 1][axis] += torque * slope;
            force[0][axis] -= torque * slope;
        }
    }
    return energy + 0.5 * angle_stiffness * turn * turn;
}

/* How much of a pair's energy counts at this distance of their oxygens, and how that changes: all until 0.8 of the
 * cutoff, none from there on. */
static double fade(double distance, double *slope)
{
    double start = 0.8 * cutoff, part = (distance - start) / (cutoff - start);
    *slope = 0;
    if (part <= 0)
        return 1;
    *slope = -6 * part * (1 - part) / (cutoff - start);
    return 1 - part * part * (3 - 2 * part);
}

/* Adds the forces of two molecules on each other, the second one's nearest image of all boxes around. Returns their
 * energy. */
static double attract(const struct molecule *first, const struct molecule *second, vectors force_on_first,
                      vectors force_on_second)
{
    double shift[AXES], between[AXES];
    for (int axis = 0; axis < AXES; axis++) {
        double apart = first->position[0][axis] - second->position[0][axis];
        shift[axis] = box * rint(apart / box);
        between[axis] = apart - shift[axis];
    }
    double square = dot(between, between);
    if (square >= cutoff * cutoff)
        return 0;
    double distance = sqrt(square), slope, share = fade(distance, &slope);
    double sixth = pow(repulsion_length * repulsion_length / square, 3);
    double energy = 4 * repulsion_depth * (sixth * sixth - sixth);
    double oxygens = share * 24 * repulsion_depth * (2 * sixth * sixth - sixth) / square;
    for (int atom = 0; atom < ATOMS; atom++) {
        for (int other = 0; other < ATOMS; other++) {
            double apart[AXES];
            for (int axis = 0; axis < AXES; axis++)
                apart[axis] = first->position[atom][axis] - second->position[other][axis] - shift[axis];
            double inverse_square = 1 / dot(apart, apart);
            double charges = coulomb * charge[atom] * charge[other] * sqrt(inverse_square);
            energy += charges;
            for (int axis = 0; axis < AXES; axis++) {
                double push_apart = share * charges * inverse_square * apart[axis];
                force_on_first[atom][axis] += push_apart;
                force_on_second[other][axis] -= push_apart;
            }
        }
    }
    oxygens -= slope * energy / distance;
    for (int axis = 0; axis < AXES; axis++) {
        force_on_first[0][axis] += oxygens * between[axis];
        force_on_second[0][axis] -= oxygens * between[axis];
    }
    return share * energy;
}

/* How many molecules after this one it is paired with: of an even number, the opposite one belongs to the first of
 * both only. */
static int partners_of(int index)
{
    bool even = input.molecules % 2 == 0;
    return even && index >= input.molecules / 2 ? input.molecules / 2 - 1 : input.molecules / 2;
}

/* Forces of all pairs that begin with an own molecule, summed apart. Returns their energy. */
static double find_forces(struct range own, vectors *sums)
{
    double energy = 0;
    for (int index = 0; index < input.molecules; index++) {
        for (int atom = 0; atom < ATOMS; atom++)
            sums[index][atom][0] = sums[index][atom][1] = sums[index][atom][2] = 0;
    }
    for (int index = (int)own.first; index < own.end; index++) {
        energy += bend(&molecules[index], sums[index]);
        for (int step = 1; step <= partners_of(index); step++) {
            int other = (index + step) % input.molecules;
            energy += attract(&molecules[index], &molecules[other], sums[index], sums[other]);
        }
    }
    return energy;
}

static bool is_zero(vectors sum)
{
    for (int atom = 0; atom < ATOMS; atom++) {
        if (sum[atom][0] != 0 || sum[atom][1] != 0 || sum[atom][2] != 0)
            return false;
    }
    return true;
}

/* From the own molecules on, so that the threads do not all begin with the same. */
static void add_forces(struct range own, vectors *sums)
{
    for (int step = 0; step < input.molecules; step++) {
        int index = (int)((own.first + step) % input.molecules);
        struct molecule *molecule = &molecules[index];
        if (is_zero(sums[index]))
            continue;
        pthread_mutex_lock(&molecule->lock);
        for (int atom = 0; atom < ATOMS; atom++) {
            for (int axis = 0; axis < AXES; axis++)
                molecule->force[atom][axis] += sums[index][atom][axis];
        }
        pthread_mutex_unlock(&molecule->lock);
    }
}

static double kinetic_energy(struct range own)
{
    double energy = 0;
    for (long index = own.first; index < own.end; index++) {
        for (int atom = 0; atom < ATOMS; atom++)
            energy += 0.5 * mass[atom] * dot(molecules[index].velocity[atom], molecules[index].velocity[atom])
                / acceleration_unit;
    }
    return energy;
}

static void add_energy(int step, double potential, double kinetic)
{
    pthread_mutex_lock(&energy_lock);
    if (step == 0)
        first_energy += potential + kinetic;
    if (step == input.steps - 1) {
        last_energy += potential + kinetic;
        last_kinetic_energy += kinetic;
    }
    pthread_mutex_unlock(&energy_lock);
}

static void part(int thread)
{
    struct range own = own_share(input.molecules, thread);
    vectors *sums = forces_of_threads[thread] = program_allocate((size_t)input.molecules, sizeof *sums);
    for (long index = own.first; index < own.end; index++)
        set_up_molecule((int)index);
    program_start(thread);
    for (int step = 0; step < input.steps; step++) {
        for (long index = own.first; index < own.end; index++) {
            if (step > 0)
                push(&molecules[index]);
            move(&molecules[index]);
        }
        program_barrier();
        double potential = find_forces(own, sums);
        add_forces(own, sums);
        program_barrier();
        for (long index = own.first; index < own.end; index++)
            push(&molecules[index]);
        add_energy(step, potential, kinetic_energy(own));
    }
    program_stop(thread);
}

/*
 * The same on one thread. Forces of several threads on one molecule are added as they come, and sums of floating-point
 * numbers depend on the order: the difference, of about 1e-16 of each force, grows as molecules knock against each
 * other, for so few steps to less than a billionth of an Ångström. And energy must stay what it was, up to what the
 * length of the steps costs: that finds faults in forces that both computations have.
 */
static bool check(void)
{
    struct molecule *of_threads = molecules;
    double energy = last_energy, drift = fabs(last_energy - first_energy), kinetic = last_kinetic_energy;
    program_compute_alone();
    for (int index = 0; index < input.molecules; index++) {
        for (int atom = 0; atom < ATOMS; atom++) {
            for (int axis = 0; axis < AXES; axis++) {
                double result = of_threads[index].position[atom][axis];
                double expected = molecules[index].position[atom][axis];
                if (!(fabs(result - expected) <= 1e-9))
                    return program_differs("coordinate %d of atom %d of molecule %d is %.17g, not %.17g within 1e-9",
                                           axis, atom, index, result, expected);
            }
        }
    }
    if (!(fabs(energy - last_energy) <= 1e-9 * fabs(energy)))
        return program_differs("the energy is %.17g, not %.17g within a billionth", energy, last_energy);
    if (!(drift <= 0.002 * kinetic))
        return program_differs("the energy changes by %g, more than 0.2%% of its kinetic part %g", drift, kinetic);
    return true;
}

int main(int argc, char **argv)
{
    static const struct program water = {
        .name = "water",
        .computes = "molecular dynamics of water, every molecule with every other one",
        .inputs = {"64 molecules, 40 steps", "1728 molecules, 25 steps", "12167 molecules, 3 steps",
                   "256 molecules, 10 steps (Blizzard)"},
        .prepare = prepare,
        .part = part,
        .check = check,
    };
    return program_main(&water, argc, argv);
}
