//! Unmodified x86-64 Linux programs on the cache kernel.
//!
//! `Unix` is an application kernel: it decides all that a UNIX kernel decides, and has a `Machine` below it carry that out. Each
//! process has a space of its own, whose calls and faults all come to the emulator. Files are the host's, below a directory that
//! the user chooses. (The cache kernel, §2.)
#![expect(
    clippy::cast_possible_truncation,
    reason = "arguments of a system call are the low parts of registers, as on Linux, and the host has 64 bits"
)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("programs for x86-64 Linux run on x86-64 Linux only");

mod calls;
mod contents;
mod control;
mod delivery;
mod descriptors;
mod elf;
mod epoll;
mod errno;
mod exec;
#[cfg(test)]
mod fake;
mod files;
mod frames;
mod futexes;
mod host;
mod layouts;
mod locks;
mod machine;
mod mappings;
mod names;
mod objects;
mod passing;
mod paths;
mod pipes;
mod polled;
mod polling;
mod processes;
mod regions;
#[cfg(test)]
mod scenarios;
mod scheduling;
mod sharing;
mod signals;
mod sockets;
mod spaces;
pub mod supervised;
mod swapping;
mod system;
mod threads;
mod timers;
pub mod traced;
mod transfers;
mod unix;
mod usage;
mod user_memory;
mod virtual_files;
mod waiting;
mod watching;

pub use machine::{Access, Event, Frame, Machine, PAGE_BYTES, Registers, Rights};
pub use sharing::Sharing;
pub use unix::{ExitStatus, Options, StartError, Unix};
