//! Shelves: directories of files that machines have in common. All read the host's one copy, as memory of theirs that a file is under. (Disco §4.2.6, Figure 5)
//!
//! A shelf has *editions*. One is brought out from a directory of the host's or of a guest's, by the host alone: no guest can write what others read. What is the same as
//! in the edition before is not written again; what is new goes where nothing is that a guest still sees. So an edition never changes, and who has a file of it open
//! keeps that.

pub mod edition;
pub mod erofs;
pub mod machine;
mod room;
pub mod shelf;

pub use room::Extent;
