//! What every way of sending is put through: the same payloads, the same batches, the same clock as the peers'
//! programs (`benches/peers/peer.h`), so that rows differ only in how a message travels.
//!
//! A payload is a run of 8-byte words, first, first + 1, … The sender writes it in full for each message, the receiver
//! adds it up in full and stops if the sum is wrong.

use std::time::{Duration, Instant};

/// Two processes, one message at a time each way.
pub(crate) trait Way {
    /// Writes one payload and sends it.
    fn send(&mut self, bytes: usize, first: u64);
    /// Waits, spinning, for one message, reads it in full and returns its first word.
    fn receive(&mut self, bytes: usize) -> u64;
}

const ROUND_TRIPS_PER_BATCH: u64 = 100;
const WARM_UP: Duration = Duration::from_millis(10);
/// How long a test of the benchmark takes.
pub(crate) const MEASURED: Duration = Duration::from_millis(90);
const STREAMS_PER_TEST: u32 = 5;

/// Writes a payload.
#[inline]
pub(crate) fn write_payload(into: &mut [u8], first: u64) {
    // Shorter than a word: its low bytes.
    if into.len() < 8 {
        into.copy_from_slice(&first.to_le_bytes()[..into.len()]);
        return;
    }
    for (index, word) in into.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = (first + index as u64).to_le_bytes();
    }
}

/// Reads a payload in full and checks it.
#[inline]
pub(crate) fn read_payload(payload: &[u8]) -> u64 {
    if payload.len() < 8 {
        let mut word = [0; 8];
        word[..payload.len()].copy_from_slice(payload);
        return u64::from_le_bytes(word);
    }
    let words = payload.as_chunks::<8>().0;
    let count = words.len() as u64;
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let first = words.first().map_or(0, |word| u64::from_le_bytes(*word));
    let expected = count.wrapping_mul(first).wrapping_add(count * count.saturating_sub(1) / 2);
    assert_eq!(sum, expected, "a message of {} bytes arrived damaged", payload.len());
    first
}

/// Nanoseconds of a round trip, over batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub(crate) median_ns: f64,
    pub(crate) p10_ns: f64,
}

impl RoundTrip {
    pub(crate) fn of(mut batches_ns: Vec<f64>) -> Self {
        batches_ns.sort_by(f64::total_cmp);
        Self { median_ns: batches_ns[batches_ns.len() / 2], p10_ns: batches_ns[batches_ns.len() / 10] }
    }
}

/// The side that asks, and holds the clock; with how long a test is to take.
pub(crate) struct Asker<'a, W: Way>(pub(crate) &'a mut W, pub(crate) Duration);

impl<W: Way> Asker<'_, W> {
    fn announce(&mut self, count: u64) {
        self.0.send(8, count);
        assert_eq!(self.0.receive(8), count);
    }

    /// Measures round trips of messages of that length.
    pub(crate) fn round_trip(&mut self, bytes: usize) -> RoundTrip {
        let fitting = self.fitting(self.1, |this, count| this.time_round_trips(bytes, count).0);
        let count = fitting.next_multiple_of(ROUND_TRIPS_PER_BATCH);
        let (_, batches) = self.time_round_trips(bytes, count);
        self.announce(0);
        RoundTrip::of(batches)
    }

    fn time_round_trips(&mut self, bytes: usize, count: u64) -> (Duration, Vec<f64>) {
        self.announce(count);
        let start = Instant::now();
        let mut batches = Vec::with_capacity(usize::try_from(count / ROUND_TRIPS_PER_BATCH).unwrap_or(0));
        let mut batch_start = start;
        for number in 0..count {
            self.0.send(bytes, number);
            assert_eq!(self.0.receive(bytes), number + 1, "an answer to another message");
            if (number + 1).is_multiple_of(ROUND_TRIPS_PER_BATCH) {
                let now = Instant::now();
                batches.push((now - batch_start).as_secs_f64() * 1e9 / ROUND_TRIPS_PER_BATCH as f64);
                batch_start = now;
            }
        }
        (batch_start - start, batches)
    }

    /// Messages a second, one way: the median of several streams.
    pub(crate) fn messages_per_second(&mut self, bytes: usize) -> f64 {
        let count = self.fitting(self.1 / STREAMS_PER_TEST, |this, count| this.time_stream(bytes, count));
        let mut streams: Vec<Duration> =
            (0..STREAMS_PER_TEST).map(|_| self.time_stream(bytes, count)).collect();
        self.announce(0);
        streams.sort();
        count as f64 / streams[streams.len() / 2].as_secs_f64()
    }

    fn time_stream(&mut self, bytes: usize, count: u64) -> Duration {
        self.announce(count);
        let start = Instant::now();
        for number in 0..count {
            self.0.send(bytes, number);
        }
        assert_eq!(self.0.receive(8), count);
        start.elapsed()
    }

    /// Warms up with more and more messages; how many fill the time.
    fn fitting(&mut self, wanted: Duration, timed: impl Fn(&mut Self, u64) -> Duration) -> u64 {
        let mut count = 1000;
        loop {
            let took = timed(self, count);
            if took >= WARM_UP {
                let fitting = count as f64 * wanted.as_secs_f64() / took.as_secs_f64();
                #[expect(clippy::cast_possible_truncation, reason = "messages in a tenth of a second")]
                return fitting as u64 + 1;
            }
            count *= 2;
        }
    }
}

/// The side that answers.
pub(crate) struct Answerer<'a, W: Way>(pub(crate) &'a mut W);

impl<W: Way> Answerer<'_, W> {
    /// The other side of [`Asker::round_trip`].
    pub(crate) fn round_trip(&mut self, bytes: usize) {
        while let Some(count) = self.announced() {
            for number in 0..count {
                assert_eq!(self.0.receive(bytes), number);
                self.0.send(bytes, number + 1);
            }
        }
    }

    /// The other side of [`Asker::messages_per_second`].
    pub(crate) fn stream(&mut self, bytes: usize) {
        while let Some(count) = self.announced() {
            for number in 0..count {
                assert_eq!(self.0.receive(bytes), number);
            }
            self.0.send(8, count);
        }
    }

    /// How many messages come next; none after the last.
    fn announced(&mut self) -> Option<u64> {
        let count = self.0.receive(8);
        self.0.send(8, count);
        (count > 0).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_tells_its_first_word() {
        for bytes in [4, 8, 12, 64, 4164] {
            let mut payload = vec![0xff; bytes];
            write_payload(&mut payload, 70_000);
            assert_eq!(read_payload(&payload), 70_000, "{bytes} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "damaged")]
    fn a_damaged_payload_is_noticed() {
        let mut payload = [0; 64];
        write_payload(&mut payload, 1);
        payload[9] ^= 1;
        read_payload(&payload);
    }
}
