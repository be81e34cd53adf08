//! The recorder in the kernel against what programs did: their own count, strace's, and what is known of processes and files.
//!
//! Needs root, and a kernel that takes the recorder; elsewhere each test says that it did not run. Whatever else keeps the recorder from
//! being attached is a failure.

mod cache;
mod calls;
mod filters;
mod loss;
mod rings;
mod scene;
mod sessions;
mod strace;
