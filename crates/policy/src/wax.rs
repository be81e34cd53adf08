//! The program: says to the agent that it is the policy, is shown what all cells show, and decides a few times a second.
//!
//! It ends when a cell does that it has seen, and when its agent does: the next one begins with nothing but what is there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use comb_cell::hints::{Hints, Voice};
use comb_cell::shown::{Others, ShownError};
use comb_cell::superior::{Superior, Word};
use comb_cell::supervision::{Order, Report};
use comb_types::CellId;
use rustix::event::{PollFd, PollFlags};

use crate::decide::decide;
use crate::looking::{Lookout, Lost};

/// From one decision to the next.
const BETWEEN_DECISIONS: Duration = Duration::from_millis(200);
/// As long as one row of gangs runs. Three rows wait for no longer than cells have them wait.
const SLICE: Duration = Duration::from_millis(400);

/// Why the policy has ended.
#[derive(Debug, thiserror::Error)]
pub enum WaxError {
    /// No agent listens, or it does not want us.
    #[error("no agent takes this for its policy: `comb up` starts one that has its own")]
    NoAgent,
    /// Nothing can be published.
    #[error(transparent)]
    Shown(#[from] ShownError),
    /// It depends on all cells.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// A program that is the policy of an agent's cells.
#[derive(Debug)]
pub struct Policy {
    superior: Superior,
    voice: Voice,
    others: Others,
    is_over: bool,
}

impl Policy {
    /// Begins, where an agent has started this process to be that: `cells_socket` is where it hears its cells.
    pub fn begin(cells_socket: PathBuf, incarnation: u64) -> Result<Self, WaxError> {
        let voice = Voice::create(incarnation)?;
        let mut superior = Superior::at(cells_socket);
        if !superior.find(&Report::Policy { incarnation }, Some((&Report::Shows, voice.file()))) {
            return Err(WaxError::NoAgent);
        }
        Ok(Self { superior, voice, others: Others::default(), is_over: false })
    }

    /// What all cells show.
    pub fn others(&self) -> &Others {
        &self.others
    }

    /// Says this, in place of what was said before.
    pub fn say(&mut self, hints: Hints) {
        self.voice.say(hints);
    }

    /// Hears what the agent says, for so long. `false`: it is over.
    pub fn hear(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while !self.is_over {
            self.take_words();
            let left = until.saturating_duration_since(Instant::now());
            let Some(source) = self.superior.descriptor().filter(|_| !left.is_zero()) else { break };
            let left = left.try_into().expect("seconds");
            let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(source, PollFlags::IN)], Some(&left));
        }
        !self.is_over
    }

    fn take_words(&mut self) {
        while let Some(word) = self.superior.hear() {
            match word {
                Word::Order(Order::Shows { cell, incarnation, pid }, files) => {
                    if let Some(file) = files.first() {
                        // What cannot be looked at is of a cell that is gone already: the agent ends us.
                        let _ = self.others.see(CellId(cell), incarnation, pid, file);
                    }
                }
                Word::Order(Order::Ended { .. } | Order::End | Order::Leave, _) | Word::Away => {
                    self.is_over = true;
                }
                Word::Order(..) => {}
            }
        }
    }
}

/// Wax, until it is over.
pub fn run(cells_socket: PathBuf, incarnation: u64) -> Result<(), WaxError> {
    let mut policy = Policy::begin(cells_socket, incarnation)?;
    let (mut lookout, begun) = (Lookout::default(), Instant::now());
    while policy.hear(BETWEEN_DECISIONS) {
        let slice = begun.elapsed().as_millis() / SLICE.as_millis();
        let picture = lookout.look(policy.others(), u64::try_from(slice).unwrap_or(0))?;
        policy.say(decide(&picture));
    }
    Ok(())
}
