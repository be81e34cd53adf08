//! What commands, agents and cells of version 1 say to each other, as it was recorded. A later version must still read it, and say it so to its neighbour.

use comb_cell::supervision::{CellElsewhere, Order, Recovered, Report, Steps, TaskHere};
use comb_net::agent::protocol;
use comb_types::Version;
use serde::{Deserialize, Serialize};

use crate::control::{Down, Killed, Reply, Request, WentOn};
use crate::events::{Event, What};
use crate::state::{CellState, ProcessName, STATE_VERSION, State};
use crate::tasks::{Seat, TaskRecord, Wanted};

/// Words of one kind.
struct Words<T>(&'static str, Vec<T>);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

impl<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug> Words<T> {
    /// Compares with what was recorded, in the order of the file.
    fn check(&self, recorded: &mut impl Iterator<Item = &'static str>) {
        for (place, word) in self.1.iter().enumerate() {
            let now = format!("{} {place} {}", self.0, hex(&protocol::encode(word).unwrap()));
            let line = recorded.next().unwrap_or_default();
            assert_eq!(now, line, "{word:?} is not said as version 1 does");
            let mut said = bytes(line.rsplit(' ').next().unwrap());
            assert_eq!(protocol::decode::<T>(&said).unwrap(), *word);
            // A neighbour's are read as ours are; who is further away is told so.
            said[0] = Version::CURRENT.0 + 1;
            assert_eq!(protocol::decode::<T>(&said).unwrap(), *word);
            said[0] = Version::CURRENT.0 + 2;
            let far = protocol::decode::<T>(&said).unwrap_err().to_string();
            assert!(far.contains("version"), "{far}");
        }
    }
}

fn task() -> TaskRecord {
    let wanted = Wanted {
        task: 77,
        program: vec!["./ocean".to_owned(), "-p4".to_owned()],
        components: 2,
        cells: vec![1, 3],
        restarts: 1,
        cores: 2,
        gang: true,
    };
    let seat = |cell, process| Seat { cell, cgroup: Some("/sys/fs/cgroup/comb/cell-1".into()), process };
    TaskRecord { wanted, seats: vec![seat(1, 100), seat(3, 101)], since_s: 1_700_000_000 }
}

fn recovered() -> Recovered {
    let steps = Steps {
        hint_ns: Some(11),
        alert_ns: Some(12),
        verdict_ns: Some(13),
        cut_off_ns: Some(15),
        first_barrier_ns: Some(16),
        discarded_ns: Some(17),
        second_barrier_ns: None,
    };
    Recovered {
        epoch: 4,
        dead: vec![2],
        entered_ns: 14,
        resumed_ns: 19,
        fenced_ns: 1,
        discarded_pages: 7,
        regions: vec!["tally".to_owned()],
        steps,
    }
}

fn requests() -> Words<Request> {
    let program = "/usr/bin/comb".into();
    Words(
        "request",
        vec![
            Request::Status,
            Request::AwaitUp,
            Request::Kill { cell: 2, hold: true },
            Request::Start { cell: 2 },
            Request::Hang { cell: 3 },
            Request::Drain { cell: 3, drain: true },
            Request::Restart { cell: 300 },
            Request::Add { cells: 2 },
            Request::Succeed { program },
            Request::Place(task().wanted),
            Request::Resume(task()),
            Request::Tasks,
            Request::EndTask { task: 77, signal: 15 },
            Request::Recoveries,
            Request::Down,
            Request::Leave,
            Request::RemoveHost { name: "beta".to_owned() },
            Request::RotateKey { force: false },
        ],
    )
}

fn replies() -> Words<Reply> {
    let went_on = WentOn { cell: 1, entered_ns: 2000, resumed_ns: 3000, discarded_pages: 7 };
    let killed = Killed { cell: 2, pid: 9, peers: 2, noticed: vec![(1, 900)], recovered: vec![went_on] };
    let (pid, incarnation) = (70_000, 3);
    Words(
        "reply",
        vec![
            Reply::Up { channels: 6, agent_pid: 42 },
            Reply::Killed(killed),
            Reply::Started { pid, incarnation, channels: 3, channels_expected: 3, took_ns: 1_000_000 },
            Reply::Added { first: 5, count: 2, took_ns: 5 },
            Reply::Done,
            Reply::Placed { seats: task().seats },
            Reply::Tasks(vec![task()]),
            Reply::TaskTold,
            Reply::Recoveries(vec![(1, recovered())]),
            Reply::Down(Down { ended: 4, killed: 0, directory_removed: true }),
            Reply::Refused("there is no cell 9".to_owned()),
        ],
    )
}

fn reports() -> Words<Report> {
    let cause = "its process 9 ended".to_owned();
    Words(
        "report",
        vec![
            Report::Hello { cell: 1, incarnation: 2, linked: vec![2, 3], is_member: true },
            Report::Linked { peer: 2 },
            Report::Noticed { peer: 2, at_ns: 1_000_000_007, cause },
            Report::Shows,
            Report::Failed { cell: 2, incarnation: 1, finding: "its tick stands still".to_owned() },
            Report::Recovered(recovered()),
            Report::Restart { cell: 2 },
            Report::Stranded { why: "nobody lets it in".to_owned() },
            Report::Policy { incarnation: 3 },
            Report::Alive { round_trips: 12, last_round_trip_ns: 31_000, received: vec![(2, 40), (3, 41)] },
        ],
    )
}

fn orders() -> Words<Order> {
    let here = TaskHere { task: 77, components: 2, cores: 2, is_gang: true, processes: vec![100, 101] };
    let beta = CellElsewhere { cell: 5, host: "beta".to_owned(), is_up: true, is_host_heard: true };
    Words(
        "order",
        vec![
            Order::Peers { cells: vec![1, 2, 4] },
            Order::Ended { cell: 2, pid: 9, killed_at_ns: Some(5) },
            Order::Shows { cell: 2, incarnation: 3, pid: 70_000 },
            Order::Hints { incarnation: 3 },
            Order::Tasks { tasks: vec![here] },
            Order::End,
            Order::Leave,
            Order::Elsewhere { cells: vec![beta] },
        ],
    )
}

#[test]
fn what_version_1_says_is_said_and_read() {
    let mut recorded = include_str!("recorded_v1.txt").lines();
    requests().check(&mut recorded);
    replies().check(&mut recorded);
    reports().check(&mut recorded);
    orders().check(&mut recorded);
    assert_eq!(recorded.next(), None);
}

/// What was written down by the first version, before some of what is there today.
#[test]
fn what_version_1_has_written_down_is_read() {
    let state = r#"{"version":1,"agent":{"pid":5,"start_ticks":6},"cgroup":null,"cells":[{"cell":1,"incarnation":2,"process":{"pid":7,"start_ticks":8},"ended":null}]}"#;
    let read: State = serde_json::from_str(state).unwrap();
    let process = Some(ProcessName { pid: 7, start_ticks: 8 });
    let cell =
        CellState { cell: 1, incarnation: 2, process, ended: None, is_held: false, is_draining: false };
    assert_eq!((read.version, read.cells), (STATE_VERSION, vec![cell]));
    let event =
        r#"{"seq":3,"at_ms":1,"at_ns":2,"kind":"cell_up","cell":2,"incarnation":4,"text":"cell 2 is up"}"#;
    let read: Event = serde_json::from_str(event).unwrap();
    assert_eq!((read.seq, &read.what), (3, &What::CellUp { cell: 2, incarnation: 4 }));
    assert_eq!(serde_json::to_string(&read).unwrap(), event);
}
