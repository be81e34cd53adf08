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

    /// An answer. It is what the peer alleges: one that answers what was never asked is a liar, `false`.
    pub(crate) fn pong(&mut self, beat: &[u64], now_ns: u64) -> bool {
        let &[number, sent_ns] = beat else { return false };
        if number == 0 || number > self.sent || sent_ns > now_ns {
            return false;
        }
        self.round_trips += 1;
        self.last_round_trip_ns = now_ns - sent_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_and_a_lie_does_not() {
        let mut pulse = Pulse::default();
        let beat = pulse.ping(1000);
        assert!(pulse.pong(&beat, 5000));
        assert_eq!((pulse.round_trips, pulse.last_round_trip_ns), (1, 4000));
        assert!(!Pulse::default().pong(&beat, 5000), "never asked");
        assert!(!pulse.pong(&beat, 999), "answered before it was asked");
        assert!(!pulse.pong(&[0, 0], 5000) && !pulse.pong(&[1], 5000));
        assert_eq!(pulse.round_trips, 1);
    }
}
