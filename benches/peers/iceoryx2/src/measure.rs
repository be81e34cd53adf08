//! The same tests in the same order as in `peer.h`.

use std::{error::Error, time::Instant};

use iceoryx2::{node::Node, prelude::ipc};

use crate::line::{Line, Side};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUND_TRIP_BYTES: [usize; 4] = [8, 56, 1024, 4096];
const RATE_BYTES: usize = 64;
const BANDWIDTH_BYTES: [usize; 2] = [1024, 4096];
const WORD_BYTES: usize = 8;

const ROUND_TRIPS_PER_BATCH: u64 = 100;
const BATCHES_AT_MOST: u64 = 16_384;
const STREAMS_PER_TEST: usize = 5;
const WARM_UP_NS: u64 = 10_000_000;
const MEASURED_NS: u64 = 90_000_000;

/// One message is under way at a time, and the same memory serves again: 8% faster than with two places.
const ROUND_TRIP_DEPTH: usize = 1;
/// As many as the other peers have under way; 16 to 1024 make no difference.
const STREAM_DEPTH: usize = 64;

/// Every line of every test, open before the first of them runs.
pub struct Lines {
    control: Line,
    round_trips: Vec<Line>,
    rate: Line,
    bandwidths: Vec<Line>,
}

impl Lines {
    pub fn open(node: &Node<ipc::Service>, side: Side) -> Outcome<Lines> {
        let round_trip = |bytes| Line::open(node, side, "round_trip", bytes / WORD_BYTES, ROUND_TRIP_DEPTH);
        let stream = |bytes| Line::open(node, side, "stream", bytes / WORD_BYTES, STREAM_DEPTH);
        Ok(Lines {
            control: Line::open(node, side, "control", 1, ROUND_TRIP_DEPTH)?,
            round_trips: ROUND_TRIP_BYTES.into_iter().map(round_trip).collect::<Outcome<_>>()?,
            rate: stream(RATE_BYTES)?,
            bandwidths: BANDWIDTH_BYTES.into_iter().map(stream).collect::<Outcome<_>>()?,
        })
    }

    pub fn connect(&self) -> Outcome<()> {
        let mut all = self.round_trips.iter().chain(&self.bandwidths).chain([&self.control, &self.rate]);
        all.try_for_each(Line::connect)
    }

    /// Says how many messages come, times them, prints.
    pub fn ask(&mut self, version: &str) -> Outcome<()> {
        let print = |test: &str, bytes: usize, results: String| {
            println!(
                r#"{{"peer":"iceoryx2","version":"{version}","test":"{test}","bytes":{bytes},{results}}}"#
            );
        };
        let control = &mut self.control;
        for line in &mut self.round_trips {
            let (median_ns, p10_ns) = test_round_trip(control, line)?;
            let results = format!(r#""median_ns":{median_ns:.1},"p10_ns":{p10_ns:.1}"#);
            print("round_trip", line.words() * WORD_BYTES, results);
        }
        let per_second = messages_per_second(control, &mut self.rate)?;
        print("rate", RATE_BYTES, format!(r#""per_second":{per_second:.0}"#));
        for line in &mut self.bandwidths {
            let bytes = line.words() * WORD_BYTES;
            let bytes_per_second = messages_per_second(control, line)? * bytes as f64;
            print("bandwidth", bytes, format!(r#""bytes_per_second":{bytes_per_second:.0}"#));
        }
        Ok(())
    }

    /// The same tests from the other side, each until a count of 0.
    pub fn answer(&mut self) -> Outcome<()> {
        let control = &mut self.control;
        for line in &mut self.round_trips {
            answer_round_trips(control, line)?;
        }
        answer_streams(control, &self.rate)?;
        for line in &self.bandwidths {
            answer_streams(control, line)?;
        }
        Ok(())
    }
}

fn expect(first: u64, expected: u64) {
    assert_eq!(first, expected, "a message arrived in place of another");
}

fn elapsed_ns(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

fn announce(control: &mut Line, count: u64) -> Outcome<()> {
    control.send(count)?;
    expect(control.receive()?, count);
    Ok(())
}

/// Returns the time each batch took.
fn time_round_trips(control: &mut Line, line: &mut Line, batches: u64) -> Outcome<Vec<u64>> {
    let mut batches_ns = Vec::with_capacity(batches as usize);
    announce(control, batches * ROUND_TRIPS_PER_BATCH)?;
    for batch in 0..batches {
        let start = Instant::now();
        for i in batch * ROUND_TRIPS_PER_BATCH..(batch + 1) * ROUND_TRIPS_PER_BATCH {
            line.send(i)?;
            line.loan_ahead()?;
            expect(line.receive()?, i + 1);
        }
        batches_ns.push(elapsed_ns(start));
    }
    Ok(batches_ns)
}

fn time_stream(control: &mut Line, line: &mut Line, count: u64) -> Outcome<u64> {
    announce(control, count)?;
    let start = Instant::now();
    for i in 0..count {
        line.send(i)?;
    }
    expect(control.receive()?, count);
    Ok(elapsed_ns(start))
}

/// Warms up with more and more messages and returns how many fill `wanted_ns`.
fn fitting_count(start: u64, wanted_ns: u64, mut timed: impl FnMut(u64) -> Outcome<u64>) -> Outcome<u64> {
    let mut count = start;
    loop {
        let ns = timed(count)?;
        if ns >= WARM_UP_NS {
            return Ok(count * wanted_ns / ns + 1);
        }
        count *= 2;
    }
}

fn test_round_trip(control: &mut Line, line: &mut Line) -> Outcome<(f64, f64)> {
    let batches =
        fitting_count(10, MEASURED_NS, |batches| Ok(time_round_trips(control, line, batches)?.iter().sum()))?;
    let mut batches_ns = time_round_trips(control, line, batches.min(BATCHES_AT_MOST))?;
    announce(control, 0)?;
    batches_ns.sort_unstable();
    let round_trip_ns = |batch_ns: u64| batch_ns as f64 / ROUND_TRIPS_PER_BATCH as f64;
    Ok((round_trip_ns(batches_ns[batches_ns.len() / 2]), round_trip_ns(batches_ns[batches_ns.len() / 10])))
}

/// The median of several streams: one that another process disturbed does not count.
fn messages_per_second(control: &mut Line, line: &mut Line) -> Outcome<f64> {
    let count = fitting_count(1000, MEASURED_NS / STREAMS_PER_TEST as u64, |count| {
        time_stream(control, line, count)
    })?;
    let mut streams_ns =
        (0..STREAMS_PER_TEST).map(|_| time_stream(control, line, count)).collect::<Outcome<Vec<_>>>()?;
    announce(control, 0)?;
    streams_ns.sort_unstable();
    Ok(count as f64 * 1e9 / streams_ns[STREAMS_PER_TEST / 2] as f64)
}

fn announced(control: &mut Line) -> Outcome<u64> {
    let count = control.receive()?;
    control.send(count)?;
    Ok(count)
}

fn answer_round_trips(control: &mut Line, line: &mut Line) -> Outcome<()> {
    loop {
        let count = announced(control)?;
        if count == 0 {
            return Ok(());
        }
        for i in 0..count {
            line.loan_ahead()?;
            expect(line.receive()?, i);
            line.send(i + 1)?;
        }
    }
}

fn answer_streams(control: &mut Line, line: &Line) -> Outcome<()> {
    loop {
        let count = announced(control)?;
        if count == 0 {
            return Ok(());
        }
        for i in 0..count {
            expect(line.receive()?, i);
        }
        control.send(count)?;
    }
}
