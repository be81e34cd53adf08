//! Whole scenarios on the fake machine.
