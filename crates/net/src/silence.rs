//! Peers that are there and do not move.
//!
//! The end of a process is told by the kernel. A process that is stopped, or hangs, is told by nothing: its endpoint
//! just leaves messages unread. Each endpoint shows that it moves by a tick in its control words, which it advances
//! whenever it looks around and before and after it sleeps. A peer is silent if messages for it stay unread for longer
//! than [`crate::EndpointOptions::silence_limit`] and neither its tick nor its count of messages read changes meanwhile.
//! A peer that has nothing to read is never silent, and one that reads slowly is not either: it moves.
//!
//! Nothing of this is on the way of a message. An endpoint with a limit asks its peers to announce each message that
//! they read, which they otherwise do only now and then.

use std::time::Instant;

use crate::endpoint::Endpoint;
use crate::life::Cause;

impl Endpoint {
    /// Shows every peer that this endpoint moves.
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        for channel in self.channels.iter_mut().flatten() {
            channel.tick(self.ticks);
        }
    }

    /// Ends the lives of the peers that have been silent for too long; `look_for_ends` then tells of them.
    pub(crate) fn look_for_silence(&mut self) {
        let Some(limit) = self.shared.options().silence_limit else { return };
        let now = Instant::now();
        for channel in self.channels.iter_mut().flatten() {
            if channel.is_silent(now, limit) {
                channel.life().end(Cause::Silent(limit));
            }
        }
    }
}
