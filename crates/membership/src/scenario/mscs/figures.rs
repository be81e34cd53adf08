//! The figures of chapter 7, measured here.
