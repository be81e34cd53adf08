//! Which channels of an endpoint with many are to be looked at next.

use crate::endpoint::CHANNELS_LOOKED_AT;

/// Channels that are known to have something, when there are too many to look at each.
#[derive(Debug, Default)]
pub(crate) struct Flagged {
    pub(crate) queue: std::collections::VecDeque<usize>,
    /// Which are in the queue: each once, however often its flag comes up.
    queued: Vec<bool>,
    /// Taken from the queue since the board was last looked at.
    pub(crate) taken: usize,
    /// Whether peers were told to raise flags.
    pub(crate) demanded: bool,
}

impl Flagged {
    pub(crate) fn push(&mut self, index: usize) {
        if self.queued.len() <= index {
            self.queued.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.queued[index], true) {
            self.queue.push_back(index);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        let index = self.queue.pop_front()?;
        self.queued[index] = false;
        self.taken += 1;
        Some(index)
    }

    /// Whether it is time to look at the board: a queue that busy channels keep filled must not hide it.
    pub(crate) fn is_stale(&self) -> bool {
        self.queue.is_empty() || self.taken >= CHANNELS_LOOKED_AT
    }
}
