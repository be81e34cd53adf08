//! What has happened to a component's memory, in numbers for people and for programs that look for what they wait for.

/// See [`crate::Task::counts`]. Where page frames are shared nothing is counted, for nothing is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// How often a thread has waited for a block. What was asked for ahead of it and is there in time is no miss.
    pub misses: u64,
    /// Of how many bytes of others' memory this component has copies now.
    pub copies_bytes: u64,
    /// Copies that were given back because there were too many.
    pub evicted: u64,
    /// Blocks that have come to live here.
    pub moved_here: u64,
    /// Blocks that lived here and live elsewhere since.
    pub moved_away: u64,
}
