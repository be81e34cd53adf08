//! Chapters 2 and 3 of the thesis, U-Net and VIA: both of the numbers that two processes take in turns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Item, ReproduceError, Reproduced};
use crate::cores::{Cores, Placement};
use crate::curves::{ROUND_TRIP_BYTES, STREAM_BYTES};
use crate::figure::{Curve, Drawing, Figure};
use crate::items;
use crate::net::median;
use crate::program::{Priority, Sample};

const ROUNDS: u32 = 3;
/// A round takes 8 s.
const ROUND_LIMIT_S: u32 = 15;
/// After this no further round begins: even if every round fails, all is to end within 45.
const LAST_ROUND_BEGINS: Duration = Duration::from_secs(28);
/// How long a round may wait for the cores to be far.
const SEEKING: Duration = Duration::from_secs(2);

/// What was measured, in one placement of the cores.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    values: BTreeMap<(String, String, u64), Vec<f64>>,
}

impl Measured {
    /// Of the placement that the most samples were taken in; none of the other is mixed in.
    fn of(samples: &[Sample]) -> (Option<Placement>, Self) {
        let placements = samples.iter().filter_map(|sample| sample.bare_ns).map(Placement::of);
        let (near, far): (Vec<_>, Vec<_>) = placements.partition(|placement| *placement == Placement::Near);
        let placement = match (near.len(), far.len()) {
            (0, 0) => None,
            (near, far) => Some(if near > far { Placement::Near } else { Placement::Far }),
        };
        let mut this = Self::default();
        for sample in samples {
            if sample.bare_ns.is_none_or(|bare| Some(Placement::of(bare)) == placement) {
                let key = (sample.peer.clone(), sample.test.clone(), sample.bytes);
                this.values.entry(key).or_default().push(sample.value);
            }
        }
        (placement, this)
    }

    pub(crate) fn value(&self, peer: &str, test: &str, bytes: usize) -> Option<f64> {
        median(self.values.get(&(peer.to_owned(), test.to_owned(), bytes as u64))?)
    }

    /// Of a round trip, in µs.
    pub(crate) fn round_trip(&self, peer: &str, bytes: usize) -> Option<f64> {
        self.microseconds(peer, "round_trip", bytes)
    }

    pub(crate) fn microseconds(&self, peer: &str, test: &str, bytes: usize) -> Option<f64> {
        self.value(peer, test, bytes).map(|ns| ns / 1000.0)
    }

    /// In 10⁶ bytes a second.
    pub(crate) fn megabytes(&self, peer: &str, bytes: usize) -> Option<f64> {
        self.value(peer, "bandwidth", bytes).map(|bytes| bytes / 1e6)
    }

    pub(crate) fn megabits(&self, peer: &str, bytes: usize) -> Option<f64> {
        self.megabytes(peer, bytes).map(|megabytes| megabytes * 8.0)
    }

    /// The highest bandwidth of a way, and the shortest message that reaches that share of it.
    pub(crate) fn peak(&self, peer: &str, share: f64) -> Option<(f64, usize)> {
        let points = STREAM_BYTES.iter().filter_map(|&bytes| Some((self.megabytes(peer, bytes)?, bytes)));
        let points: Vec<(f64, usize)> = points.collect();
        let peak = points.iter().map(|point| point.0).reduce(f64::max)?;
        points.iter().find(|point| point.0 >= share * peak).map(|point| (peak, point.1))
    }

    /// What a byte more costs in a round trip, by the ends of the curve, in µs.
    pub(crate) fn a_byte(&self, peer: &str, from: usize, to: usize) -> Option<f64> {
        let rise = self.round_trip(peer, to)? - self.round_trip(peer, from)?;
        Some(rise / (to - from) as f64)
    }

    fn curve(&self, label: &'static str, peer: &str, test: &str) -> Curve {
        let (lengths, by): (&[usize], f64) =
            if test == "bandwidth" { (&STREAM_BYTES, 1e6) } else { (&ROUND_TRIP_BYTES, 1e3) };
        let point = |&bytes: &usize| Some((bytes as f64, self.value(peer, test, bytes)? / by));
        Curve { label, points: lengths.iter().filter_map(point).collect() }
    }
}

/// Chapter 2.
pub(super) fn unet(talks: bool) -> Result<Reproduced, ReproduceError> {
    measure(items::unet, unet_figures, talks)
}

/// Chapter 3.
pub(super) fn via(talks: bool) -> Result<Reproduced, ReproduceError> {
    measure(items::via, via_figures, talks)
}

fn measure(
    items: fn(&Measured) -> Vec<Item>,
    figures: fn(&Measured) -> Vec<Drawing>,
    talks: bool,
) -> Result<Reproduced, ReproduceError> {
    let mut cores = Cores::new(Priority::highest_allowed());
    let started = Instant::now();
    let mut samples = Vec::new();
    let mut failure = None;
    for round in 1..=ROUNDS {
        if round > 1 && started.elapsed() > LAST_ROUND_BEGINS {
            break;
        }
        if talks {
            eprint!("\rround {round} of {ROUNDS}");
        }
        // Two machines of the paper's share no cache either.
        cores.seek(Placement::Far, SEEKING);
        match cores.priority().ours("curves", ROUND_LIMIT_S) {
            Ok(more) => samples.extend(more),
            Err(missing) => failure = Some(missing.reason),
        }
    }
    if talks {
        eprint!("\r{:60}\r", "");
    }
    if samples.is_empty() {
        return Err(ReproduceError::Nothing(failure.unwrap_or_else(|| "no samples".into())));
    }
    let (placement, measured) = Measured::of(&samples);
    let how = format!(
        "Two processes on cores 0 and 1 ({}), {}. Medians.",
        placement.map_or("placement unknown", Placement::name),
        cores.priority().describe()
    );
    Ok(Reproduced { how, items: items(&measured), drawings: figures(&measured) })
}

const MESSAGE: &str = "message, bytes";
const TIME: &str = "round trip, µs";
const RATE: &str = "MB/s";

fn drawing(measured: &Measured, figure: Figure, test: &str, ways: &[(&'static str, &str)]) -> Drawing {
    let curves = ways.iter().map(|(label, peer)| measured.curve(label, peer, test)).collect();
    Drawing { figure, curves, marks: Vec::new() }
}

fn unet_figures(measured: &Measured) -> Vec<Drawing> {
    let title = "Round trips (U-Net, Figure 2.3)";
    let times = Figure { name: "unet-figure-2-3", title, x: MESSAGE, y: TIME };
    let title = "Bandwidth (U-Net, Figure 2.4)";
    let rates = Figure { name: "unet-figure-2-4", title, x: MESSAGE, y: RATE };
    vec![
        drawing(
            measured,
            times,
            "round_trip",
            &[
                ("raw endpoint", "endpoint"),
                ("active message and reply", "active"),
                ("block there and back", "block"),
                ("Unix socket, spinning", "spinning socket"),
                ("Unix socket, sleeping", "socket"),
            ],
        ),
        drawing(
            measured,
            rates,
            "bandwidth",
            &[
                ("raw endpoint", "endpoint"),
                ("active messages, store", "store"),
                ("Unix socket, spinning", "spinning socket"),
                ("Unix socket, sleeping", "socket"),
            ],
        ),
    ]
}

fn via_figures(measured: &Measured) -> Vec<Drawing> {
    let title = "Calls and messages (VIA, Figure 3.1)";
    let times = Figure { name: "via-figure-3-1", title, x: MESSAGE, y: TIME };
    let title = "Bandwidth (beside VIA, Table 3.1)";
    let rates = Figure { name: "via-table-3-1", title, x: MESSAGE, y: RATE };
    vec![
        drawing(
            measured,
            times,
            "round_trip",
            &[
                ("call over a Unix socket", "socket call"),
                ("call over Comb", "call"),
                ("virtual interface, raw", "via"),
            ],
        ),
        drawing(
            measured,
            rates,
            "bandwidth",
            &[
                ("raw endpoint", "endpoint"),
                ("virtual interface", "via"),
                ("active messages, store", "store"),
                ("Unix socket, sleeping", "socket"),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(peer: &str, test: &str, bytes: u64, value: f64, bare_ns: f64) -> Sample {
        let (peer, test) = (peer.to_owned(), test.to_owned());
        Sample { peer, test, bytes, value, version: String::new(), bare_ns: Some(bare_ns), beside: None }
    }

    #[test]
    fn placements_are_not_mixed() {
        let samples = [
            sample("endpoint", "round_trip", 4, 500.0, 350.0),
            sample("endpoint", "round_trip", 4, 502.0, 360.0),
            sample("endpoint", "round_trip", 4, 160.0, 90.0),
        ];
        let (placement, measured) = Measured::of(&samples);
        assert_eq!(placement, Some(Placement::Far));
        assert_eq!(measured.round_trip("endpoint", 4), Some(0.502));
    }

    #[test]
    fn what_was_not_measured_is_null() {
        let (placement, measured) = Measured::of(&[]);
        assert_eq!(placement, None);
        for item in items::unet(&measured).into_iter().chain(items::via(&measured)) {
            assert_eq!((item.measured, item.baseline), (None, None), "{}", item.item);
        }
    }

    #[test]
    fn the_peak_is_reached_by_the_first_length_near_it() {
        let rates = [(4, 10e6), (64, 80e6), (512, 95e6), (4096, 100e6)];
        let samples = rates.map(|(bytes, rate)| sample("store", "bandwidth", bytes, rate, 350.0));
        let (_, measured) = Measured::of(&samples);
        assert_eq!(measured.peak("store", 0.9), Some((100.0, 512)));
    }
}
