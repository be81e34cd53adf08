//! `comb reproduce mscs`: Figures 7.1, 7.2, 7.4 and 7.5 of the thesis, of the classic way and of ours.
//!
//! Both run in the seeded world, where each message waits for the processor as the thesis says, idle and loaded; and between
//! processes of this machine, where it waits as long as it does.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use comb_membership::scenario::Failure;
use comb_membership::scenario::mscs::figures::{self, Parameters};
use comb_membership::scenario::mscs::load::Load;
use comb_membership::scenario::mscs::ours::{self, Timers, Witnesses};

use crate::figure::{Curve, Drawing, Figure, Mark};
use crate::membership::{Members, OUTSTANDING, Outcome};
use crate::mscs_items;
use crate::net::median;
use crate::reproduce::{ReproduceError, Reproduced};

/// So far the thesis's figures go.
const LARGEST: u32 = 32;
const WORLD_NODES: [u32; 7] = [LARGEST, 24, 16, 12, 8, 4, 2];
const PROCESSES: [u32; 5] = [2, 4, 8, 16, 32];
pub(crate) const SEEDS: u64 = 5;
/// Of updates.
const SMALL: usize = 50;
const LARGE: usize = 2048;
/// How long processes send.
const RATE_S: f64 = 0.8;
const LATENCY_S: f64 = 0.6;
/// After which nobody has anything more to say of what was done before.
const QUIET: Duration = Duration::from_secs(2);

/// All that was measured: what it is, of how many nodes, and its value.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    series: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Measured {
    pub(crate) fn at(&self, what: &str, nodes: u32) -> Option<f64> {
        let points = self.series.get(what)?;
        points.iter().find(|(at, _)| *at == f64::from(nodes)).map(|(_, value)| *value)
    }

    fn add(&mut self, what: &str, nodes: u32, value: Option<f64>) {
        let Some(value) = value else { return };
        let points = self.series.entry(what.to_owned()).or_default();
        points.push((f64::from(nodes), value));
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }

    fn curve(&self, label: &'static str, what: &str) -> Curve {
        Curve { label, points: self.series.get(what).cloned().unwrap_or_default() }
    }
}

/// Measures all figures.
pub(crate) fn reproduce(talks: bool) -> Result<Reproduced, ReproduceError> {
    let says = |what: &str| {
        if talks {
            eprint!("\r{what:60}");
        }
    };
    let nothing = |error: &dyn std::fmt::Display| ReproduceError::Nothing(error.to_string());
    let mut measured = world(&says).map_err(|failure| nothing(&failure))?;
    for count in PROCESSES {
        says(&format!("{count} processes"));
        processes(&mut measured, count).map_err(|error| nothing(&error))?;
    }
    if talks {
        eprint!("\r{:60}\r", "");
    }
    Ok(Reproduced {
        how: format!(
            "In the seeded world, where a call takes 3-5 ms idle and 3 ms to 3 s loaded: medians of {SEEDS} seeds.\nBetween processes of this machine: one run. \
             Ours waits under load as long as the classic way does; idle with its own timers."
        ),
        items: mscs_items::mscs(&measured),
        drawings: drawings(&measured),
    })
}

fn world(says: &dyn Fn(&str)) -> Result<Measured, Failure> {
    let jobs: Vec<_> = [Load::Loaded, Load::Idle]
        .into_iter()
        .flat_map(|load| WORLD_NODES.map(|nodes| (nodes, load)))
        .collect();
    let (next, measured) = (AtomicUsize::new(0), Mutex::new(Ok(Measured::default())));
    let work = |says: &dyn Fn(&str)| {
        while let Some(&(nodes, load)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            says(&format!("the world: {nodes} nodes, {}", name(load)));
            let found = one_world(nodes, load);
            let Ok(mut measured) = measured.lock() else { return };
            match (found, &mut *measured) {
                (Ok(found), Ok(measured)) => {
                    found.into_iter().for_each(|(what, value)| measured.add(&what, nodes, value));
                }
                (Err(failure), _) => *measured = Err(failure),
                (Ok(_), Err(_)) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&|_| {}));
        work(says);
    });
    measured.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn name(load: Load) -> &'static str {
    if load == Load::Idle { "idle" } else { "loaded" }
}

type Found = Vec<(String, Option<f64>)>;

/// All that is measured of so many nodes.
fn one_world(nodes: u32, load: Load) -> Result<Found, Failure> {
    let mut found = Found::new();
    let mut add = |what: &str, value: Option<f64>| found.push((format!("{what} {}", name(load)), value));
    let of = |seed| Parameters { nodes, load, seed };
    let timers = if load == Load::Idle { Timers::Own } else { Timers::Classic };
    let (count, each) = if load == Load::Idle { (20, 10) } else { (5, 2) };

    let joins = seeds(|seed| figures::join(of(seed)))?;
    add("join classic", middle(joins.iter().map(|join| join.total.map(|time| time.as_secs_f64()))));
    add("joined classic", Some(joins.iter().filter(|join| join.total.is_some()).count() as f64));
    add("calls classic", middle(joins.iter().map(|join| Some(join.calls as f64))));
    let joins = ends(|seed| ours::join(of(seed), timers));
    let join_times = || joins.iter().map(|join| Some(join.as_ref()?.total?.as_secs_f64()));
    add("join ours", middle(join_times()));
    add("joined ours", Some(join_times().flatten().count() as f64));
    let joins = || joins.iter().flatten();
    // A call is two messages.
    add("calls ours", middle(joins().map(|join| Some(join.in_turn as f64 / 2.0))));
    add("all calls ours", middle(joins().map(|join| Some(join.messages as f64 / 2.0))));
    add("rounds ours", middle(joins().map(|join| Some(f64::from(join.rounds)))));
    if nodes == LARGEST && load == Load::Loaded {
        let hasty = ends(|seed| ours::join(of(seed), Timers::Own));
        let came_in = hasty.iter().flatten().filter(|join| join.total.is_some());
        add("joined hastily ours", Some(came_in.count() as f64));
    }

    // Of two, one cannot go on without a quorum resource.
    for failures in (1..=2).filter(|failures| nodes > 2 * failures) {
        let what = if failures == 1 { "one dead" } else { "two dead" };
        let regroups = seeds(|seed| figures::regroup(of(seed), failures))?;
        add(&format!("{what}, messages classic"), middle(regroups.iter().map(|it| Some(it.messages as f64))));
        add(
            &format!("{what}, time classic"),
            middle(regroups.iter().map(|it| Some(it.regroup.as_secs_f64()))),
        );
        add(
            &format!("{what}, failover classic"),
            middle(regroups.iter().map(|it| Some(it.failover.as_secs_f64()))),
        );
        let ways = [
            ("ours", Witnesses::One),
            ("ours, all notice", Witnesses::All),
            ("ours, nobody notices", Witnesses::Nobody),
        ];
        for (who, witnesses) in ways {
            let regroups = ends(|seed| ours::regroup(of(seed), timers, failures, witnesses));
            let ended = || regroups.iter().map(|it| it.filter(|it| it.total.is_some()));
            add(
                &format!("{what}, messages {who}"),
                middle(ended().map(|it| it.map(|it| it.messages as f64))),
            );
            let times = || ended().map(|it| Some(it?.total?.as_secs_f64()));
            add(&format!("{what}, time {who}"), middle(times()));
            add(&format!("{what}, ended {who}"), Some(times().flatten().count() as f64));
        }
    }

    for (what, bytes) in [("small", SMALL), ("large", LARGE)] {
        let level = comb_membership::order::Level::Majority;
        for who in ["classic", "ours"] {
            let updates = ends(|seed| match who {
                "classic" => figures::updates(of(seed), bytes, count),
                _ => ours::updates(of(seed), timers, level, bytes, count),
            });
            let updates = || updates.iter().copied();
            add(
                &format!("{what}, latency {who}"),
                middle(updates().map(|it| Some(it?.latency.as_secs_f64() * 1e3))),
            );
            let longest = updates().flatten().map(|it| it.longest.as_secs_f64()).reduce(f64::max);
            add(&format!("{what}, longest {who}"), longest);
            add(&format!("{what}, alone {who}"), middle(updates().map(|it| Some(it?.per_second))));
        }
    }
    let classic = seeds(|seed| figures::contended_updates_per_second(of(seed), SMALL, each))?;
    add("rate classic", median(&classic));
    let our_rate = ends(|seed| ours::contended_updates_per_second(of(seed), timers, SMALL, each));
    add("rate ours", median(&our_rate.iter().map(|rate| rate.unwrap_or(0.0)).collect::<Vec<_>>()));
    if nodes == LARGEST && load == Load::Idle {
        add("heartbeats classic", Some(figures::heartbeats_per_second(of(1))?));
    }
    Ok(found)
}

fn seeds<T>(run: impl Fn(u64) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    (1..=SEEDS).map(run).collect()
}

/// What did not come to its end is none.
fn ends<T>(run: impl Fn(u64) -> Result<T, Failure>) -> Vec<Option<T>> {
    (1..=SEEDS).map(|seed| run(seed).ok()).collect()
}

/// The median, where what did not come to its end counts as longer than all that did: none if most did not.
fn middle(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<_> = values.map(|value| value.unwrap_or(f64::INFINITY)).collect();
    median(&all).filter(|middle| middle.is_finite())
}

/// The last comes in, all send, one sends, and one dies.
fn processes(measured: &mut Measured, count: u32) -> Outcome<()> {
    let mut group = Members::start("ours", count - 1)?;
    let (start, end) = group.let_in_idle()?;
    measured.add("join ours processes", count, Some(end.saturating_sub(start) as f64 / 1e9));
    update(measured, &mut group, "ours", count, OUTSTANDING)?;
    death(measured, &mut group, count)?;
    group.end()?;
    let mut group = Members::start("classic", count - 1)?;
    let (start, end) = group.let_in_idle()?;
    measured.add("join classic processes", count, Some(end.saturating_sub(start) as f64 / 1e9));
    update(measured, &mut group, "classic", count, 1)?;
    death(measured, &mut group, count)?;
    group.end()
}

/// Of a group of so many, unless the other of two would have to wait: how long until all others go on, and by how many messages.
fn death(measured: &mut Measured, group: &mut Members, count: u32) -> Outcome<()> {
    if count <= 2 {
        return Ok(());
    }
    let who = group.way;
    std::thread::sleep(QUIET);
    let (before, victim) = (group.counts_of_each()?, group.members.len() / 2);
    measured.add(&format!("one dead, failover {who} processes"), count, Some(group.kill_one()? / 1e3));
    std::thread::sleep(QUIET);
    let lost = before.get(victim).map_or(0, |counts| counts.messages);
    let before: u64 = before.iter().map(|counts| counts.messages).sum();
    let after: u64 = group.counts_of_each()?.iter().map(|counts| counts.messages).sum();
    let messages = (after + lost).saturating_sub(before);
    measured.add(&format!("one dead, messages {who} processes"), count, Some(messages as f64));
    Ok(())
}

fn update(
    measured: &mut Measured,
    group: &mut Members,
    who: &str,
    count: u32,
    outstanding: usize,
) -> Outcome<()> {
    let all = group.load_for(count as usize, outstanding, RATE_S)?;
    measured.add(&format!("rate {who} processes"), count, Some(all.per_second));
    let one = group.load_for(1, 1, LATENCY_S)?;
    let milliseconds = one.p50_us.map(|us| us / 1e3);
    measured.add(&format!("small, latency {who} processes"), count, milliseconds);
    Ok(())
}

const NODES: &str = "nodes";

fn drawings(measured: &Measured) -> Vec<Drawing> {
    let drawing = |name, title, y, curves: &[(&'static str, &str)], marks: &[Mark]| Drawing {
        figure: Figure { name, title, x: NODES, y },
        curves: curves.iter().map(|(label, what)| measured.curve(label, what)).collect(),
        marks: marks.to_vec(),
    };
    let mark =
        |nodes: u32, low: f64, high: f64, says| Mark { at: Some((f64::from(nodes), (low, high))), says };
    let words = |says| Mark { at: None, says };
    vec![
        drawing(
            "mscs-figure-7-1-time",
            "The last node joins: time (MSCS, Figure 7.1)",
            "seconds",
            &[
                ("classic, idle", "join classic idle"),
                ("classic, loaded", "join classic loaded"),
                ("ours, idle", "join ours idle"),
                ("ours, loaded", "join ours loaded"),
                ("ours, processes", "join ours processes"),
                ("classic, processes", "join classic processes"),
            ],
            &[
                mark(31, 2.0, 4.0, "phase three alone, idle"),
                mark(
                    31,
                    60.0,
                    60.0,
                    "phase three alone under moderate load frequently takes longer than this",
                ),
                words(
                    "frequently nobody can join beyond 10-12 nodes under load; here a line ends where most joins take longer than 10 minutes",
                ),
            ],
        ),
        drawing(
            "mscs-figure-7-1-calls",
            "The last node joins: calls (MSCS, Figure 7.1)",
            "calls; of ours, two messages make one",
            &[
                ("classic, one after the other", "calls classic idle"),
                ("ours, one after the other", "calls ours idle"),
                ("ours, all", "all calls ours idle"),
            ],
            &[mark(32, 227.0, 227.0, "at least 10 + 7 n, one after the other")],
        ),
        drawing(
            "mscs-figure-7-2-messages",
            "Regroup: messages (MSCS, Figure 7.2)",
            "messages",
            &[
                ("classic, one dead, idle", "one dead, messages classic idle"),
                ("classic, one dead, loaded", "one dead, messages classic loaded"),
                ("classic, two dead, idle", "two dead, messages classic idle"),
                ("ours, one dead, idle", "one dead, messages ours idle"),
                ("ours, one dead, loaded", "one dead, messages ours loaded"),
                ("ours, two dead, idle", "two dead, messages ours idle"),
                ("classic, processes, kill -9", "one dead, messages classic processes"),
                ("ours, processes, kill -9", "one dead, messages ours processes"),
            ],
            &[
                mark(32, 10_000.0, 10_000.0, "one failure: around 10,000"),
                mark(32, 30_000.0, 40_000.0, "two failures: likely 30,000 to 40,000"),
            ],
        ),
        drawing(
            "mscs-figure-7-2-time",
            "Regroup: from the first suspicion on (MSCS, Figure 7.2)",
            "seconds",
            &[
                ("classic, idle", "one dead, time classic idle"),
                ("classic, loaded", "one dead, time classic loaded"),
                ("ours, one notices, idle", "one dead, time ours idle"),
                ("ours, all notice, idle", "one dead, time ours, all notice idle"),
                ("ours, one notices, loaded", "one dead, time ours loaded"),
                ("ours, all notice, loaded", "one dead, time ours, all notice loaded"),
                ("ours, processes, kill -9, until all go on", "one dead, failover ours processes"),
                ("classic, processes, kill -9, until all go on", "one dead, failover classic processes"),
            ],
            &[
                mark(32, 3.0, 3.0, "after one failure, on average"),
                words("seven seconds of silence come before; they are in the lines of kill -9"),
            ],
        ),
        drawing(
            "mscs-figure-7-4",
            "Latency of an update (MSCS, Figure 7.4)",
            "milliseconds",
            &[
                ("classic, idle", "small, latency classic idle"),
                ("classic, loaded", "small, latency classic loaded"),
                ("classic, processes", "small, latency classic processes"),
                ("ours, idle", "small, latency ours idle"),
                ("ours, loaded", "small, latency ours loaded"),
                ("ours, processes", "small, latency ours processes"),
            ],
            &[
                mark(10, 2000.0, 5000.0, "with 10 nodes under load frequently"),
                mark(32, 60_000.0, 60_000.0, "with 32 under load up to one minute"),
            ],
        ),
        drawing(
            "mscs-figure-7-5",
            "Updates of all nodes together (MSCS, Figure 7.5)",
            "updates a second",
            &[
                ("classic, idle", "rate classic idle"),
                ("classic, loaded", "rate classic loaded"),
                ("classic, processes", "rate classic processes"),
                ("ours, idle", "rate ours idle"),
                ("ours, loaded", "rate ours loaded"),
                ("ours, processes", "rate ours processes"),
            ],
            &[
                mark(32, 6.0, 6.0, "50 bytes: 6 a second"),
                mark(32, 4.0, 4.0, "2 Kbytes: 4 a second"),
                words("the protocol breaks down under load with more than 12 nodes"),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::COLOURS;

    #[test]
    fn what_mostly_does_not_end_has_no_median() {
        assert_eq!(middle([Some(1.0), None, Some(3.0)].into_iter()), Some(3.0));
        assert_eq!(middle([None, None, Some(3.0)].into_iter()), None);
    }

    #[test]
    fn every_curve_and_every_row_is_of_something_that_is_measured() {
        let mut measured = Measured::default();
        for load in [Load::Idle, Load::Loaded] {
            let found = one_world(5, load).expect("no rule is broken");
            found.into_iter().for_each(|(what, value)| measured.add(&what, 32, value));
        }
        measured.add("heartbeats classic idle", 32, Some(1.0));
        measured.add("joined hastily ours loaded", 32, Some(1.0));
        for who in ["ours", "classic"] {
            measured.add(&format!("rate {who} processes"), 32, Some(1.0));
            measured.add(&format!("small, latency {who} processes"), 32, Some(1.0));
            measured.add(&format!("join {who} processes"), 32, Some(1.0));
            measured.add(&format!("one dead, failover {who} processes"), 32, Some(1.0));
            measured.add(&format!("one dead, messages {who} processes"), 32, Some(1.0));
        }
        for drawing in drawings(&measured) {
            let name = drawing.figure.name;
            assert!(drawing.curves.len() <= COLOURS.len(), "{name}: two lines of one colour");
            for curve in drawing.curves {
                assert!(!curve.points.is_empty(), "{}: {}", drawing.figure.name, curve.label);
            }
        }
        for item in mscs_items::mscs(&measured) {
            assert!(item.measured.is_some() || item.baseline.is_some(), "{}", item.item);
        }
    }
}
