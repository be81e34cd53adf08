/*
 * What a compressible gas does at one place: Euler's equations.
 */
#ifndef GAS_H
#define GAS_H

/* Of a point: density, three momenta, energy. */
enum { AXES = 3, PARTS = 5, ENERGY = PARTS - 1 };

/* What flows through a face across this axis. */
void find_flux(const double *state, int axis, double *flux);

/* How that changes with the state. */
void find_flux_change(const double *state, int axis, double matrix[PARTS][PARTS]);

/* The state of a gas with this density, pressure and speed. */
void find_state(double density, double pressure, const double *speed, double *state);

#endif
