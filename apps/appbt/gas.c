#include "gas.h"

static const double heat_ratio = 1.4;

/* What flow depends on besides the state itself. */
struct motion {
    double speed[AXES], square, pressure;
};

static struct motion motion_of(const double *state)
{
    struct motion motion = {.square = 0};
    for (int axis = 0; axis < AXES; axis++) {
        motion.speed[axis] = state[1 + axis] / state[0];
        motion.square += motion.speed[axis] * motion.speed[axis];
    }
    motion.pressure = (heat_ratio - 1) * (state[ENERGY] - 0.5 * state[0] * motion.square);
    return motion;
}

void find_flux(const double *state, int axis, double *flux)
{
    struct motion motion = motion_of(state);
    for (int part = 0; part < PARTS; part++)
        flux[part] = state[part] * motion.speed[axis];
    flux[1 + axis] += motion.pressure;
    flux[ENERGY] += motion.pressure * motion.speed[axis];
}

void find_flux_change(const double *state, int axis, double matrix[PARTS][PARTS])
{
    struct motion motion = motion_of(state);
    double through = motion.speed[axis], less = heat_ratio - 1, enthalpy = (state[ENERGY] + motion.pressure) / state[0];
    for (int row = 0; row < PARTS; row++) {
        for (int column = 0; column < PARTS; column++)
            matrix[row][column] = 0;
    }
    matrix[0][1 + axis] = 1;
    for (int row = 0; row < AXES; row++) {
        matrix[1 + row][0] = -motion.speed[row] * through;
        matrix[1 + row][1 + row] += through;
        matrix[1 + row][1 + axis] += motion.speed[row];
        matrix[1 + axis][1 + row] -= less * motion.speed[row];
        matrix[ENERGY][1 + row] = -less * motion.speed[row] * through;
    }
    matrix[1 + axis][0] += 0.5 * less * motion.square;
    matrix[1 + axis][ENERGY] = less;
    matrix[ENERGY][0] = through * (0.5 * less * motion.square - enthalpy);
    matrix[ENERGY][1 + axis] += enthalpy;
    matrix[ENERGY][ENERGY] = heat_ratio * through;
}

void find_state(double density, double pressure, const double *speed, double *state)
{
    state[0] = density;
    state[ENERGY] = pressure / (heat_ratio - 1);
    for (int axis = 0; axis < AXES; axis++) {
        state[1 + axis] = density * speed[axis];
        state[ENERGY] += 0.5 * density * speed[axis] * speed[axis];
    }
}
