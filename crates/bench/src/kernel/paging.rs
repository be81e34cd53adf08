//! Programs whose data are larger than memory, under kernels that page for them, beside the host's paging in as much memory (Cache Kernel §3).

use std::path::Path;

use comb_kernels::measure::{Measured, OWN_BYTES, Work, measure};

use super::row;
use crate::net::median;
use crate::report::{Goal, Row};

/// On a disk, where `/tmp` may be in memory.
pub(super) const PLACE: &str = "/var/tmp";

/// How many times as fast.
const GOAL: f64 = 1.25;

pub(super) fn rows(count: usize, say: &dyn Fn(&str)) -> Vec<Row> {
    let works = [("a simulation", Work::MP3D), ("a database", Work::DATABASE)];
    works.into_iter().flat_map(|(name, work)| of(name, measure(work, Path::new(PLACE), count, say))).collect()
}

fn of(name: &str, measured: Result<Measured, Box<dyn std::error::Error>>) -> Vec<Row> {
    let claim = format!("{name} with twice the data that memory holds, under its own kernel");
    let measured = match measured {
        Ok(measured) => measured,
        Err(why) => {
            let goal = Goal::AtLeast(GOAL);
            return vec![Row { goal, note: format!("not measured: {why}"), ..row(&claim, None, "s") }];
        }
    };
    let ours = median(&measured.ours);
    let ways = [("the host's paging", &measured.host), ("the same, with advice", &measured.advised)];
    let times = ways.map(|(peer, times)| (peer, median(times)));
    let best = times.iter().filter_map(|(_, time)| *time).reduce(f64::min);
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let peak =
        measured.peak_bytes.map_or(String::new(), |bytes| format!(", of which it had {}", mebibytes(bytes)));
    let note = format!(
        "{} of data; the host's way in a memory cgroup of {}, ours with page groups for as much, in one of {} more{peak}; both from cold caches to the end of msync; the goal is for the faster of the host's two",
        mebibytes(measured.file_bytes),
        mebibytes(measured.memory_bytes),
        mebibytes(OWN_BYTES),
    );
    let mut rows: Vec<Row> = times
        .map(|(peer, theirs)| Row {
            peer: peer.to_owned(),
            theirs,
            ratio: theirs.zip(ours).map(|(theirs, ours)| theirs / ours),
            goal: if theirs == best { Goal::AtLeast(GOAL) } else { Goal::None },
            ..row(&claim, ours, "s")
        })
        .into();
    rows[0].note = note;
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goal_is_for_the_faster_of_the_hosts_ways() {
        let times = |ours, host, advised| Measured {
            ours: vec![ours],
            host: vec![host],
            advised: vec![advised],
            ..Measured::default()
        };
        let met = |measured| of("it", Ok(measured)).iter().map(Row::met).collect::<Vec<_>>();
        assert_eq!(met(times(1.0, 9.0, 1.2)), [None, Some(false)]);
        assert_eq!(met(times(1.0, 1.3, 2.0)), [Some(true), None]);
        let failed = of("it", Err("there is no disk".into()));
        assert_eq!((failed.len(), failed[0].met()), (1, Some(false)));
        assert_eq!(failed[0].note, "not measured: there is no disk");
    }
}
