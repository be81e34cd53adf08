//! Tables 9.2 and 9.3: what the older studies report. The thesis warns that such averages say little, and so do the ranges beside them.
//! (Thesis §9.6, §9.7)

use std::collections::BTreeMap;

use super::gathering::{Gathered, LONG_INTERVALS, SHORT_INTERVAL_NS};
use super::groups::{Gathering, share};
use super::{Row, Table, Value};
use crate::history::{Access, Pattern};

/// Who has fewer sessions says nothing of how much people differ.
const FEWEST_SESSIONS: u64 = 50;

impl Value {
    /// Of one number.
    pub(super) const fn of(value: Option<f64>) -> Self {
        Self { value, least: None, most: None }
    }

    /// Over all, with the range of the single ones.
    pub(super) fn with_range(value: Option<f64>, each: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (None, None);
        for one in each {
            least = Some(least.map_or(one, |least: f64| least.min(one)));
            most = Some(most.map_or(one, |most: f64| most.max(one)));
        }
        Self { value, least, most }
    }
}

fn row(what: impl Into<String>, unit: &'static str, here: Value) -> Row {
    Row { what: what.into(), unit, here, nt: None, sprite: None, bsd: None, note: String::new() }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn float(value: u64) -> f64 {
    value as f64
}

/// Mean and standard deviation.
fn mean_and_deviation(values: &[f64]) -> (Option<f64>, Option<f64>) {
    if values.is_empty() {
        return (None, None);
    }
    #[expect(clippy::cast_precision_loss, reason = "a count")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (Some(mean), Some(variance.sqrt()))
}

/// Table 9.2: how much each user moves.
pub(super) fn activity(gathered: &Gathered) -> Table {
    let mut rows = Vec::new();
    for (label, intervals) in [("10-minute", LONG_INTERVALS), ("10-second", 1)] {
        let mut bytes: BTreeMap<i64, BTreeMap<(i64, i64), u64>> = BTreeMap::new();
        for (&(machine, user, interval), &moved) in &gathered.activity {
            *bytes.entry(interval.div_euclid(intervals)).or_default().entry((machine, user)).or_default() +=
                moved;
        }
        #[expect(clippy::cast_precision_loss, reason = "a length of time")]
        let seconds = (intervals * SHORT_INTERVAL_NS) as f64 / 1e9;
        let kilobytes_per_second = |bytes: u64| float(bytes) / 1024.0 / seconds;
        let users: Vec<f64> = bytes.values().map(|users| float(users.len() as u64)).collect();
        let each: Vec<f64> =
            bytes.values().flat_map(BTreeMap::values).map(|&bytes| kilobytes_per_second(bytes)).collect();
        let whole: Vec<f64> = bytes
            .values()
            .map(|users| {
                kilobytes_per_second(users.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)))
            })
            .collect();
        let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
        let (users_mean, users_deviation) = mean_and_deviation(&users);
        let (mean, deviation) = mean_and_deviation(&each);
        let of = |what: &str| format!("{label} intervals: {what}");
        rows.push(row(of("users at work, at most"), "users", Value::of(most(&users))));
        rows.push(row(of("users at work, on average"), "users", Value::of(users_mean)));
        rows.push(row(of("standard deviation of that"), "users", Value::of(users_deviation)));
        let mut throughput = row(
            of("throughput of a user, on average"),
            "KB/s",
            Value::with_range(mean, each.iter().copied()),
        );
        if intervals == LONG_INTERVALS {
            (throughput.nt, throughput.sprite) = (Some("24".to_owned()), Some("8".to_owned()));
        }
        rows.push(throughput);
        rows.push(row(of("standard deviation of that"), "KB/s", Value::of(deviation)));
        rows.push(row(of("peak throughput of a user"), "KB/s", Value::of(most(&each))));
        rows.push(row(of("peak throughput of all"), "KB/s", Value::of(most(&whole))));
    }
    Table {
        number: "9.2",
        title: "What users do",
        note: "Bytes that calls read and wrote, without page-ins, over the intervals in which a user moved any. A user is at work on a \
               machine if some of their programs moved bytes. The thesis' text gives no other value of its table."
            .to_owned(),
        rows,
    }
}

/// Table 9.3: in which order files are read and written.
pub(super) fn patterns(gathered: &Gathered) -> Table {
    let mut all = Gathering::default();
    gathered.by_user.values().for_each(|user| all.merge(user));
    let enough: Vec<&Gathering> =
        gathered.by_user.values().filter(|user| user.moved(None, None).sessions >= FEWEST_SESSIONS).collect();
    let mut rows = Vec::new();
    let mut add =
        |what: String, part: &dyn Fn(&Gathering) -> Option<f64>, nt: Option<&str>, sprite: Option<&str>| {
            let percent = |part: Option<f64>| part.map(|part| part * 100.0);
            let here =
                Value::with_range(percent(part(&all)), enough.iter().filter_map(|user| percent(part(user))));
            let [nt, sprite] = [nt, sprite].map(|text| text.map(str::to_owned));
            rows.push(Row { nt, sprite, ..row(what, "%", here) });
        };
    for (access, name) in [
        (Access::ReadOnly, "read-only"),
        (Access::WriteOnly, "write-only"),
        (Access::ReadWrite, "read-write"),
    ] {
        let part = |user: &Gathering, of: fn(super::groups::Moved) -> u64| {
            share(of(user.moved(Some(access), None)), of(user.moved(None, None)))
        };
        add(format!("{name}: of all data sessions"), &|user| part(user, |moved| moved.sessions), None, None);
        add(format!("{name}: of all bytes"), &|user| part(user, |moved| moved.bytes), None, None);
        for (pattern, pattern_name) in [
            (Pattern::WholeFile, "whole file"),
            (Pattern::Sequential, "part of it, in order"),
            (Pattern::Random, "with jumps"),
        ] {
            let part = |user: &Gathering, of: fn(super::groups::Moved) -> u64| {
                share(of(user.moved(Some(access), Some(pattern))), of(user.moved(Some(access), None)))
            };
            let is_first = access == Access::ReadOnly && pattern == Pattern::WholeFile;
            let known = |text: &'static str| is_first.then_some(text);
            add(
                format!("{name}, {pattern_name}: of its sessions"),
                &|user| part(user, |moved| moved.sessions),
                known("68"),
                known("78"),
            );
            add(
                format!("{name}, {pattern_name}: of its bytes"),
                &|user| part(user, |moved| moved.bytes),
                None,
                None,
            );
        }
        let in_order = |user: &Gathering| {
            let moved = |pattern| user.moved(Some(access), Some(pattern)).bytes;
            share(
                moved(Pattern::WholeFile).saturating_add(moved(Pattern::Sequential)),
                user.moved(Some(access), None).bytes,
            )
        };
        let known = |text: &'static str| (access == Access::ReadOnly).then_some(text);
        add(format!("{name}, in order at all: of its bytes"), &in_order, known("58"), known("89"));
    }
    Table {
        number: "9.3",
        title: "In which order files are read and written",
        note: format!(
            "Sessions that moved bytes by calls. Whole file: from its first byte, in order, as many as it had at its close. The range is \
             that of single users on single machines with at least {FEWEST_SESSIONS} such sessions. What programs read through mappings \
             is not in it. The thesis' text gives no other value of its table."
        ),
        rows,
    }
}
