//! Whoever sees what programs do with files. There are several ways to see it, and one is as good as the others to those who write it down.

use std::io;
use std::process::{Child, Command};
use std::time::Duration;

use crate::event::Event;

/// What was seen and what was not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Events that were handed over, or wait to be.
    pub recorded: u64,
    /// Events for which there was no room.
    pub lost: u64,
    /// Calls of 32-bit programs, which have other numbers and are not understood.
    pub foreign: u64,
}

/// A way to see what programs do with files. It sees nothing before it is told whom to look at.
pub trait Source {
    /// Its name, as a trace's head has it.
    fn name(&self) -> &'static str;

    /// What it does not see on this machine, in sentences.
    fn lacks(&self) -> Vec<String>;

    /// Starts a program, and sees all that it and its descendants do from its first instruction on.
    fn start(&mut self, command: Command) -> io::Result<Child>;

    /// Sees all that a running process and its descendants do from now on.
    fn follow(&mut self, process: u32) -> io::Result<()>;

    /// Hands over what has been seen since the last time, in the order in which it ended; at most so many events. Returns how many.
    fn fetch(&mut self, most: usize, sink: &mut dyn FnMut(&Event, &[u8])) -> usize;

    /// What was seen so far.
    fn counters(&self) -> Counters;

    /// How much time it has taken from those that it looks at, if there is somebody to tell.
    fn time_taken(&self) -> Option<Duration> {
        None
    }
}
