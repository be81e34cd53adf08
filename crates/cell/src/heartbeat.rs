//! The only thing that cells have to say to each other so far: are you there? Yes.

/// A question: sixteen bytes that come back as they are.
pub(crate) const PING: u8 = 1;
/// Its answer.
pub(crate) const PONG: u8 = 2;
/// Length of both.
pub(crate) const BEAT_BYTES: usize = 16;

/// What a cell counted of its heartbeats.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pulse {
    sent: u64,
    pub(crate) round_trips: u64,
    pub(crate) last_round_trip_ns: u64,
}

impl Pulse {
    /// The next question.
    pub(crate) fn ping(&mut self, now_ns: u64) -> [u8; BEAT_BYTES] {
        self.sent += 1;
        let mut beat = [0; BEAT_BYTES];
        beat[..8].copy_from_slice(&self.sent.to_le_bytes());
        beat[8..].copy_from_slice(&now_ns.to_le_bytes());
        beat
    }

    /// An answer. It is what the peer alleges: one that answers what was never asked is a liar, `false`.
    pub(crate) fn pong(&mut self, beat: &[u8; BEAT_BYTES], now_ns: u64) -> bool {
        let number = u64::from_le_bytes(beat[..8].try_into().expect("eight bytes"));
        let sent_ns = u64::from_le_bytes(beat[8..].try_into().expect("eight bytes"));
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
        assert!(!pulse.pong(&[0; BEAT_BYTES], 5000));
        assert_eq!(pulse.round_trips, 1);
    }
}
