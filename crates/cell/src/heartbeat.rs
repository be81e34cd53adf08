//! The simplest thing that cells have to say to each other: are you there? Yes.

/// What a cell counted of its heartbeats.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pulse {
    sent: u64,
    pub(crate) round_trips: u64,
    pub(crate) last_round_trip_ns: u64,
}

impl Pulse {
    /// The next question: words that come back as they are.
    pub(crate) fn ping(&mut self, now_ns: u64) -> [u64; 2] {
        self.sent += 1;
        [self.sent, now_ns]
    }

    /// An answer, and when it was asked for. It is what the peer alleges: one that answers what was never asked is a liar, `None`.
    pub(crate) fn pong(&mut self, beat: &[u64], now_ns: u64) -> Option<u64> {
        let &[number, sent_ns] = beat else { return None };
        if number == 0 || number > self.sent || sent_ns > now_ns {
            return None;
        }
        self.round_trips += 1;
        self.last_round_trip_ns = now_ns - sent_ns;
        Some(sent_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_and_a_lie_does_not() {
        let mut pulse = Pulse::default();
        let beat = pulse.ping(1000);
        assert_eq!(pulse.pong(&beat, 5000), Some(1000));
        assert_eq!((pulse.round_trips, pulse.last_round_trip_ns), (1, 4000));
        assert_eq!(Pulse::default().pong(&beat, 5000), None, "never asked");
        assert_eq!(pulse.pong(&beat, 999), None, "answered before it was asked");
        assert_eq!((pulse.pong(&[0, 0], 5000), pulse.pong(&[1], 5000)), (None, None));
        assert_eq!(pulse.round_trips, 1);
    }
}
