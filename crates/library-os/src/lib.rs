//! A library operating system: what a program is linked with to be all that runs in a virtual machine. (SPLASHOS, Disco §4.4)
//!
//! The program's `main` becomes a function that runs when the host asks for it, in the same address space as what serves the host. Linux is below, for its drivers: as the
//! first process of a machine this sets up what a machine has, takes its memory, and never leaves. As any other process the program is as it was.

mod files;
mod machine;
mod memory;
mod program;
mod wrapped;

/// By which a program shows that it was linked with this: what begins it refers to it.
static MARK: [u8; comb_guest::LIBRARY_OS_MARK.len()] = *comb_guest::LIBRARY_OS_MARK;
