//! A plug-in for uninterruptible power supplies. Each has a file with its status, as `upsc` of Network UPS Tools prints it, written
//! anew every few seconds; and it feeds some nodes.
//!
//! ```console
//! $ while upsc left@localhost > /tmp/left.new; do mv /tmp/left.new /tmp/left; sleep 5; done &
//! $ cargo run -p comb-group --example ups -- /tmp/left=1 /tmp/right=2     # a file, and the nodes that it feeds
//! view 1: [NodeId(0), NodeId(1), NodeId(2)]
//! node 1: Suspected
//! node 1: Alive
//! view 2: [NodeId(0), NodeId(1), NodeId(2)]
//! ```
//!
//! The left one runs low. Node 1 is asked, and answers: so it stays.
//!
//! Without a supply at hand: `echo "ups.status: OB LB" > /tmp/left`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use comb_group::NodeId;
use comb_group::environment::{Confidence, Environment, Kind, Notice, Notices};
use comb_membership::Time;

mod three;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// A status that nobody has written anew for so long says nothing about now.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// Its nodes have been told to shut down.
const SHUT_DOWN: Confidence = Confidence::per_mille(980);

struct Supply {
    status: PathBuf,
    nodes: Vec<NodeId>,
}

#[derive(Default)]
struct Supplies {
    supplies: Vec<Supply>,
    notices: Notices,
    next_look: Time,
}

impl Supplies {
    fn look(&mut self, now: Time) {
        self.next_look = now.saturating_add(BETWEEN_LOOKS);
        for supply in &self.supplies {
            let danger = read(&supply.status).as_deref().and_then(danger);
            supply.nodes.iter().for_each(|&node| self.notices.set(node, Kind::PowerFailure, danger));
        }
    }
}

/// A file is read in no time, so a plug-in may. What has to ask a network for its status does so in a thread of its own.
fn read(status: &Path) -> Option<String> {
    let written = std::fs::metadata(status).and_then(|file| file.modified()).ok()?;
    let is_fresh = written.elapsed().is_ok_and(|age| age < STALE_AFTER);
    is_fresh.then(|| std::fs::read_to_string(status).ok()).flatten()
}

/// How likely it is that whoever it feeds is gone within moments. On battery alone, a node is well for as long as that lasts.
fn danger(status: &str) -> Option<Confidence> {
    let words = status.lines().find_map(|line| line.strip_prefix("ups.status:"))?;
    let says = |word| words.split_whitespace().any(|it| it == word);
    match () {
        () if says("FSD") => Some(SHUT_DOWN),
        () if says("OB") && says("LB") => Some(Kind::PowerFailure.usual_confidence()),
        () => None,
    }
}

impl Environment for Supplies {
    fn poll_notice(&mut self, now: Time) -> Option<Notice> {
        if now >= self.next_look {
            self.look(now);
        }
        self.notices.poll_notice(now)
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.next_look)
    }
}

/// `FILE=NODE,NODE…`
fn supply(argument: &str) -> Option<Supply> {
    let (status, nodes) = argument.split_once('=')?;
    let nodes = nodes.split(',').map(|node| node.parse().map(NodeId)).collect::<Result<_, _>>().ok()?;
    Some(Supply { status: status.into(), nodes })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let supplies: Option<Vec<_>> = std::env::args().skip(1).map(|argument| supply(&argument)).collect();
    let supplies = supplies.filter(|all| !all.is_empty()).ok_or("usage: ups FILE=NODE,NODE… …")?;
    three::watch(Supplies { supplies, ..Supplies::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_battery_that_runs_low_and_a_shutdown_are_dangers() {
        let of = |status: &str| danger(&format!("ups.model: X\nups.status: {status}\nups.load: 3\n"));
        let usual = Some(Kind::PowerFailure.usual_confidence());
        let all = ["OL", "OL CHRG", "OB", "OB LB", "OB DISCHRG LB", "OL LB", "FSD OB LB", ""];
        assert_eq!(all.map(of), [None, None, None, usual, usual, None, Some(SHUT_DOWN), None]);
        assert_eq!(danger("battery.charge: 3\n"), None);
    }

    #[test]
    fn a_supply_is_told_of_until_it_is_well_or_nobody_knows() {
        let status = std::env::temp_dir().join(format!("comb-ups-{}", std::process::id()));
        let argument = format!("{}=1,2", status.display());
        let supplies = vec![supply(&argument).expect("a file and two nodes")];
        let mut supplies = Supplies { supplies, ..Supplies::default() };
        let mut second = 0;
        let mut next = |words: Option<&str>| {
            match words {
                Some(words) => std::fs::write(&status, format!("ups.status: {words}\n")).expect("room"),
                None => std::fs::remove_file(&status).expect("it is ours"),
            }
            second += 1;
            let now = Time::from_millis(second * 1000);
            let said = std::iter::from_fn(|| supplies.poll_notice(now));
            said.map(|notice| matches!(notice, Notice::Seen { .. })).collect::<Vec<_>>()
        };
        assert!(next(Some("OL")).is_empty());
        assert_eq!(next(Some("OB LB")), [true, true]);
        assert_eq!(next(Some("OL LB")), [false, false]);
        assert_eq!(next(Some("FSD")), [true, true]);
        assert_eq!(next(None), [false, false]);
        let old = std::fs::File::create(&status).expect("room");
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("it is ours");
        std::fs::write(&status, "ups.status: OB LB\n").expect("room");
        assert!(read(&status).is_some());
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("it is ours");
        assert_eq!(read(&status), None);
        std::fs::remove_file(&status).expect("it is ours");
    }

    #[test]
    fn arguments_that_are_none_are_refused() {
        assert!(["", "file", "file=", "file=x", "file=1,"].iter().all(|it| supply(it).is_none()));
    }
}
