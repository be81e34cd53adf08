//! Quenching: a receiver stops the one flow that overruns it at its source, for the time of a lease.
//!
//! The rules are [`comb_congestion::quench`]; here is how they meet channels. What an endpoint has taken in and not dealt
//! with is its *backlog*; [`Endpoint::watch_backlog`] sets marks for that of each channel. Above the high mark the
//! channel's peer is told to stop, and its sends are refused as if its ring were full; at the low mark it is told to go
//! on. Within a machine a signal is a word in the receiver's memory, and a bit of its bell board says that there may be
//! one, so that a flow that nobody quenches pays nothing. To another host it travels as a message of the channel.

use std::time::Duration;

use comb_congestion::Flow;
use comb_congestion::quench::{
    Marks, Order, Overrun, PeerError, Quencher, QuencherInput, Signal, Source, SourceInput,
};

use crate::channel::ChannelKey;
use crate::clock;
use crate::endpoint::Endpoint;
use crate::payload::Payload;
use crate::ring::Breach;

/// How long a quenched source stands still unless told otherwise: many times what a busy thread lets pass between two
/// looks, and short for those whose receiver died.
const LEASE: Duration = Duration::from_millis(50);
/// A peer that asks for more stops us for longer than a dead receiver may.
const LONGEST_LEASE: Duration = Duration::from_secs(1);

/// The kind of a message that is a signal: to another host it travels among the messages of its channel.
pub(crate) const SIGNAL: u8 = *crate::kinds::CHANNEL.start() + 1;

/// The signal in such a message.
pub(crate) fn read(message: &Payload<'_>) -> Result<Signal, Breach> {
    let mut bytes = [0; 8];
    if message.len() != bytes.len() {
        return Err(Breach::Form("a quench signal of another length than eight bytes"));
    }
    message.copy_to(&mut bytes);
    Ok(unpack(u64::from_le_bytes(bytes)))
}

/// A signal in one word: the lease in microseconds, zero to go on, and its number.
pub(crate) fn pack(signal: Signal) -> u64 {
    let lease = match signal.order {
        Order::Quench { lease } => u32::try_from(lease.as_micros()).unwrap_or(u32::MAX),
        Order::Unquench => 0,
    };
    u64::from(lease) << 32 | u64::from(signal.number)
}

pub(crate) fn unpack(word: u64) -> Signal {
    #[expect(clippy::cast_possible_truncation, reason = "two fields of one word")]
    let (number, lease) = (word as u32, (word >> 32) as u32);
    let order = match lease {
        0 => Order::Unquench,
        micros => Order::Quench { lease: Duration::from_micros(micros.into()) },
    };
    Signal { number, order }
}

/// The sender's side of a channel.
#[derive(Debug)]
pub(crate) struct Pace {
    source: Source,
    quenches: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { source: Source::new(LONGEST_LEASE), quenches: 0 }
    }
}

impl Pace {
    /// Takes in what the receiver says.
    pub(crate) fn obey(&mut self, signal: Signal) -> Result<(), Breach> {
        self.source
            .handle(clock::now(), SourceInput::Signal(signal))
            .map_err(|PeerError::LeaseTooLong { .. }| Breach::Form("a quench for longer than a second"))?;
        self.quenches += u64::from(signal.order != Order::Unquench);
        Ok(())
    }

    pub(crate) fn may_send(&self) -> bool {
        self.source.may_send(clock::now())
    }

    /// Whether it was told to stop and not yet to go on, its lease apart.
    #[cfg(test)]
    pub(crate) fn is_stopped(&self) -> bool {
        self.source.next_timeout().is_some()
    }

    /// Signals to stop that were heard.
    pub(crate) fn quenches(&self) -> u64 {
        self.quenches
    }
}

/// The receiver's side: the backlogs of an endpoint's channels.
#[derive(Debug)]
pub(crate) struct Backlogs {
    quencher: Quencher,
    /// Whether the board says that some flow is quenched.
    announced: bool,
}

fn flow(channel: ChannelKey) -> Flow {
    Flow(channel.index)
}

impl Backlogs {
    pub(crate) fn open(&mut self, channel: ChannelKey) {
        self.quencher.open(flow(channel));
    }

    /// Whether the board is to say that some flow is quenched; `None`: it says what it should.
    fn announcement(&mut self) -> Option<bool> {
        let any = self.quencher.next_timeout().is_some();
        let was = std::mem::replace(&mut self.announced, any);
        (any || was).then_some(any)
    }
}

impl Endpoint {
    /// From now on the backlog of each channel is watched: [`Endpoint::took_in`] and [`Endpoint::dealt_with`] tell how
    /// long it is, in whatever unit the marks are meant. A flow whose backlog passes the high mark is stopped at its
    /// source until it is down to the low mark; no other flow is.
    ///
    /// For programs that take messages out of the channel before they can deal with them. One that deals with each as it
    /// comes needs nothing of this: what it leaves in the channel holds its sender back.
    ///
    /// Called again, it begins anew: all backlogs are empty, and who was stopped goes on.
    pub fn watch_backlog(&mut self, marks: Marks) {
        match &mut self.backlogs {
            Some(backlogs) => backlogs.quencher.begin_anew(marks),
            None => {
                let mut backlogs = Backlogs { quencher: Quencher::new(marks, LEASE), announced: false };
                self.channels().for_each(|channel| backlogs.open(channel));
                self.backlogs = Some(Box::new(backlogs));
            }
        }
        self.send_signals();
    }

    /// A message of that length was taken in and is to be dealt with later. `Err`: it is beyond the capacity that the
    /// marks give to one flow and does not count; a source that goes on like this does not listen.
    ///
    /// # Panics
    /// Without [`Endpoint::watch_backlog`].
    pub fn took_in(&mut self, channel: ChannelKey, bytes: u32) -> Result<(), Overrun> {
        if self.channel(channel).is_none() {
            return Ok(());
        }
        let arrived = QuencherInput::Arrived { flow: flow(channel), bytes };
        let outcome = self.quencher().handle(clock::now(), arrived);
        self.send_signals();
        outcome
    }

    /// A message that was taken in has been dealt with. Nothing happens if its channel has ended meanwhile.
    ///
    /// # Panics
    /// If more was dealt with than taken in, or without [`Endpoint::watch_backlog`].
    pub fn dealt_with(&mut self, channel: ChannelKey, bytes: u32) {
        if self.channel(channel).is_some() {
            let served = QuencherInput::Served { flow: flow(channel), bytes };
            self.quencher().handle(clock::now(), served).expect("only arrivals overrun");
            self.send_signals();
        }
    }

    fn quencher(&mut self) -> &mut Quencher {
        &mut self.backlogs.as_mut().expect("the backlog is watched").quencher
    }

    /// Renews the leases of the flows that are still to stand still. Whoever takes messages in calls this each time it
    /// polls.
    #[inline]
    pub fn tend_backlog(&mut self) {
        if let Some(backlogs) = &self.backlogs
            && let Some(due) = backlogs.quencher.next_timeout()
            && due <= clock::now()
        {
            self.quencher().handle(clock::now(), QuencherInput::Timeout).expect("only arrivals overrun");
            self.send_signals();
        }
    }

    fn send_signals(&mut self) {
        while let Some(backlogs) = &mut self.backlogs
            && let Some(transmit) = backlogs.quencher.poll_transmit()
        {
            if let Some(Some(channel)) = self.channels.get_mut(transmit.flow.0 as usize) {
                channel.signal(transmit.signal);
            }
            // Told on the board after it was told to the channel: who sees the bit finds the signal. Peers may wipe the
            // bit, so that it is set again with each signal.
            if let Some(any) = backlogs.announcement() {
                self.shared.bell().demand_obedience(any);
            }
        }
    }

    /// The channel has ended. If it was the last one that was quenched, senders need not look any more.
    pub(crate) fn forget_backlog(&mut self, channel: ChannelKey) {
        let Some(backlogs) = &mut self.backlogs else { return };
        backlogs.quencher.close(flow(channel));
        if let Some(any) = backlogs.announcement() {
            self.shared.bell().demand_obedience(any);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_signal_travels_in_a_word(word in any::<u64>()) {
            let signal = unpack(word);
            prop_assert_eq!(unpack(pack(signal)), signal);
        }
    }

    #[test]
    fn too_long_a_lease_is_a_breach() {
        let mut pace = Pace::default();
        let lease = LONGEST_LEASE + Duration::from_micros(1);
        assert!(pace.obey(Signal { number: 1, order: Order::Quench { lease } }).is_err());
        assert!(pace.may_send() && pace.quenches() == 0);
        pace.obey(Signal { number: 1, order: Order::Quench { lease: LONGEST_LEASE } }).unwrap();
        assert!(!pace.may_send());
        pace.obey(Signal { number: 2, order: Order::Unquench }).unwrap();
        assert!(pace.may_send());
    }
}
