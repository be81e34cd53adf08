//! System calls on memory whose pages are missing, each test in a process of its own.

mod calls;
mod guarded;
mod other_calls;
mod processes;
mod transfers;
mod unused;
