/* Molecules in a wind tunnel, moved step by step, whose data are a file (after MP3D of SPLASH, see apps/mp3d). A step goes over all molecules in their order; each is in a
 * cell, by which it meets who was there before it. What a molecule has to know of that one is copied into the cell, so that nobody looks for it among all others: page
 * locality by copying (Cache Kernel, section 5.2).
 *
 * Molecules that come one after the other lie so in the file, or are scattered over some pages of it. What is computed is the same.
 *
 *   mp3d make FILE MOLECULES [PAGES]
 *   mp3d run FILE STEPS ADVICE
 */
#include "host.h"

enum { ALONG_X = 64, ALONG_Y = 32, ALONG_Z = 16, CELLS = ALONG_X * ALONG_Y * ALONG_Z };

/* The first page of the file. The kernel of this program reads it as well. */
struct header {
    u64 magic, molecules, first_cell_page, cell_pages, first_molecule_page, molecule_pages;
    /* So many molecules are in each other's places, and as far apart is each from the one before it; behind the last is the first. */
    u64 group, stride;
};

struct molecule {
    double position[3], velocity[3];
    u32 cell, collisions;
    u64 seed;
};

struct cell {
    double velocity[3];
    u64 visitor, visits;
    i64 momentum;
    u64 unused[2];
};

static const u64 magic = 0x3130646433706dul;
static const double along[3] = {ALONG_X, ALONG_Y, ALONG_Z};

static u64 pages(u64 bytes) { return (bytes + PAGE - 1) / PAGE; }

static double unit(u64 seed) { return (double)(mix(seed) >> 11) * 0x1p-53; }

/* Without a factor in common, so that each has a place of its own; and such that those that are near in time are apart. */
static u64 stride_of(u64 group)
{
    for (u64 stride = group * 5 / 8 | 1; stride < group; stride += 2) {
        u64 a = group, b = stride;
        while (b != 0) {
            u64 rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
    return 1;
}

/* Where a molecule is: in the group that begins there, so far behind its beginning. */
struct place {
    u64 first, offset;
};

static struct place next(const struct header *header, struct place place)
{
    u64 rest = header->molecules - place.first;
    /* What is left at the end, and is no group, is in order. */
    u64 group = header->group < rest ? header->group : rest;
    place.offset += group == header->group ? header->stride : 1;
    if (place.offset >= group)
        place.offset -= group;
    if (place.offset == 0)
        place.first += group;
    return place;
}

static int make(const char *path, u64 molecules, u64 scattered_pages)
{
    struct header header = {.magic = magic, .molecules = molecules, .first_cell_page = 1};
    u64 group = scattered_pages * (PAGE / sizeof(struct molecule));
    header.group = group == 0 || group > molecules ? molecules : group;
    header.stride = scattered_pages == 0 ? 1 : stride_of(header.group);
    header.cell_pages = pages(CELLS * sizeof(struct cell));
    header.first_molecule_page = header.first_cell_page + header.cell_pages;
    header.molecule_pages = pages(molecules * sizeof(struct molecule));
    u64 bytes = (header.first_molecule_page + header.molecule_pages) * PAGE;
    u8 *file = map_file(open_file(path, &bytes), bytes);
    *(struct header *)file = header;
    struct molecule *all = (struct molecule *)(file + header.first_molecule_page * PAGE);
    struct place place = {0, 0};
    for (u64 i = 0; i < molecules; i++, place = next(&header, place)) {
        struct molecule *molecule = &all[place.first + place.offset];
        for (u64 axis = 0; axis < 3; axis++) {
            molecule->position[axis] = unit(i * 8 + axis) * along[axis];
            molecule->velocity[axis] = 0.1 * (unit(i * 8 + 4 + axis) - 0.5) + (axis == 0 ? 0.5 : 0);
        }
        molecule->cell = 0;
        molecule->collisions = 0;
        molecule->seed = i;
    }
    keep(file, bytes);
    return 0;
}

/* Moves one molecule; whatever leaves the tunnel at one end comes in at the other, and walls throw back. */
static void move(struct molecule *molecule)
{
    for (int axis = 0; axis < 3; axis++) {
        double at = molecule->position[axis] + molecule->velocity[axis];
        if (axis == 0) {
            if (at >= along[0])
                at -= along[0];
            if (at < 0)
                at += along[0];
        } else if (at < 0 || at >= along[axis]) {
            molecule->velocity[axis] = -molecule->velocity[axis];
            at = molecule->position[axis];
        }
        molecule->position[axis] = at;
    }
    u32 x = (u32)molecule->position[0], y = (u32)molecule->position[1], z = (u32)molecule->position[2];
    molecule->cell = (z * ALONG_Y + y) * ALONG_X + x;
}

static void meet(struct molecule *molecule, struct cell *cell, u64 i, u64 step)
{
    cell->visits++;
    cell->momentum += (i64)(molecule->velocity[0] * 0x1p20);
    if (cell->visitor != 0 && (mix(molecule->seed ^ step << 40) & 7) == 0) {
        for (int axis = 0; axis < 3; axis++) {
            double other = cell->velocity[axis];
            cell->velocity[axis] = molecule->velocity[axis];
            molecule->velocity[axis] = other;
        }
        molecule->collisions++;
    } else {
        for (int axis = 0; axis < 3; axis++)
            cell->velocity[axis] = molecule->velocity[axis];
    }
    cell->visitor = i + 1;
}

static int simulate(const char *path, u64 steps, u64 has_advice)
{
    u64 bytes = 0;
    int opened = open_file(path, &bytes);
    u8 *file = map_file(opened, bytes);
    struct header header = *(struct header *)file;
    if (header.magic != magic || header.stride == 0 || header.group == 0)
        fail("no file of this program's");
    struct cell *cells = (struct cell *)(file + header.first_cell_page * PAGE);
    struct molecule *all = (struct molecule *)(file + header.first_molecule_page * PAGE);
    if (has_advice)
        advise((u8 *)all, header.molecule_pages * PAGE, ADVICE_SEQUENTIAL);
    u64 sum = 0;
    for (u64 step = 0; step < steps; step++) {
        struct place place = {0, 0};
        for (u64 i = 0; i < header.molecules; i++, place = next(&header, place)) {
            struct molecule *molecule = &all[place.first + place.offset];
            move(molecule);
            meet(molecule, &cells[molecule->cell], i, step);
            sum = (sum ^ molecule->cell) * 0x100000001b3ul + molecule->collisions;
        }
        for (u64 i = 0; i < CELLS; i++)
            sum += (u64)cells[i].momentum ^ cells[i].visits;
    }
    keep(file, bytes);
    say_result(sum);
    return 0;
}

int run(int count, char **arguments)
{
    if ((count == 4 || count == 5) && is(arguments[1], "make"))
        return make(arguments[2], number(arguments[3]), count == 5 ? number(arguments[4]) : 0);
    if (count == 5 && is(arguments[1], "run"))
        return simulate(arguments[2], number(arguments[3]), number(arguments[4]));
    fail("usage: mp3d make FILE MOLECULES [PAGES] | mp3d run FILE STEPS ADVICE");
    return 2;
}
