//! One piece of a program: memory, and what the threads do with it.

/// C text for each place where a piece takes part. Everything may use `mix`, `THREADS`, `PHASES` and names of its own.
#[derive(Default)]
pub(crate) struct Piece {
    /// Types, variables and functions.
    pub(crate) globals: String,
    /// Statements of `main` before the threads begin.
    pub(crate) setup: String,
    /// Declarations and statements at the start of each thread, with `self`. What is declared there lives to its end.
    pub(crate) thread: String,
    /// Statements for each phase, with `self` (the thread's number) and `hash` (a `uint64_t` to read and to change).
    pub(crate) phases: Vec<String>,
    /// Statements of `main` after the threads have ended, with `hash`.
    pub(crate) finish: String,
}
