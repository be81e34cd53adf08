//! What an importer could do to get past its home's marks: each way is really gone, by a process of its own, and the home looks at its frames.
//!
//! Where it is Comb's filter of system calls that stops it, an importer is *covered*; where it is the kernel, it is not, and calls what it likes.
#![expect(unsafe_code, reason = "the ways past a guard are system calls and raw stores")]
#![expect(clippy::cast_possible_truncation, reason = "registers, of one machine")]

mod descriptors;
mod forks;
mod holes;
mod kernel_writes;
mod mappings;
mod parties;
mod races;
mod references;
mod ring;
