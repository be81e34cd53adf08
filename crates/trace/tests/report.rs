//! What a report says of recordings that are known event by event.

use std::fs;
use std::path::PathBuf;

use comb_trace::Operation;
use comb_trace::codec::Encoder;
use comb_trace::event::{Event, Identity};
use comb_trace::report::{self, By, Content, Group};
use comb_trace::store::ensure_tables;
use comb_trace::trace_file::{Frame, Head, Moment, Process, framed, write_magic};

/// A folder of its own, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-trace-report-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A recording of a machine on which process 1 belongs to user 1000, who has this name.
    fn recording(&self, machine: &str, user: &str, events: &[Event]) {
        let process = Process { number: 1, user: 1000, name: b"one".to_vec(), ..Process::default() };
        let head = Head {
            machine: machine.to_owned(),
            users: vec![(1000, user.to_owned())],
            processes: vec![process],
            ..Head::default()
        };
        let mut encoder = Encoder::default();
        events.iter().for_each(|event| encoder.add(event, &[]));
        let mut bytes = Vec::new();
        write_magic(&mut bytes).unwrap();
        bytes.extend(framed(&Frame::Head(Box::new(head))));
        bytes.extend(framed(&Frame::Events(encoder.take().unwrap())));
        bytes.extend(framed(&Frame::End(Moment::default())));
        fs::write(self.0.join(format!("{machine}.trace")), bytes).unwrap();
    }

    fn groups(&self, by: By) -> Vec<Group> {
        ensure_tables(&self.0, &mut |_| {}).unwrap();
        report::make(&self.0, Some(by), &Content::default()).unwrap().groups
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MILLISECOND_NS: u64 = 1_000_000;

/// Each begins where the first number says, in ms.
fn event(operation: Operation, start_ms: u64, handle: u64, result: i64) -> Event {
    Event {
        operation: operation as u8,
        process: 1,
        thread: 1,
        descriptor: i32::try_from(handle).unwrap(),
        handle,
        file: Identity { inode: handle, device: 1, generation: 1 },
        mode: 0o100_644,
        size: 100,
        start_ns: start_ms * MILLISECOND_NS,
        result,
        asked: result.unsigned_abs(),
        ..Event::default()
    }
}

#[test]
fn the_same_number_is_somebody_else_on_another_machine() {
    let place = Place::new("users");
    place.recording("alpha", "ann", &[event(Operation::Read, 1, 3, 100)]);
    place.recording("beta", "bob", &[event(Operation::Read, 1, 3, 40), event(Operation::Read, 2, 3, 2)]);
    let groups = place.groups(By::User);
    let found: Vec<_> =
        groups.iter().map(|group| (group.name.as_str(), group.operations, group.read_bytes)).collect();
    assert_eq!(found, [("bob on beta", 2, 42), ("ann on alpha", 1, 100)]);
}

#[test]
fn a_session_whose_open_or_close_was_not_seen_has_no_length() {
    let place = Place::new("lengths");
    let events = [
        // Open before, and closed.
        event(Operation::Read, 1, 3, 100),
        event(Operation::Close, 2, 3, 0),
        // Open still.
        event(Operation::Open, 3, 4, 4),
        event(Operation::Read, 4, 4, 100),
        // All of it.
        event(Operation::Open, 10, 5, 5),
        event(Operation::Read, 20, 5, 100),
        event(Operation::Close, 30, 5, 0),
    ];
    place.recording("alpha", "ann", &events);
    let groups = place.groups(By::User);
    let [group] = &groups[..] else { panic!("one user: {groups:?}") };
    assert_eq!((group.name.as_str(), group.sessions, group.data_sessions), ("ann", 3, 3));
    // To half a percent, as all that is read off a histogram.
    let milliseconds = [group.open_ms_50, group.open_ms_90].map(Option::unwrap);
    assert!(milliseconds.iter().all(|found| (found - 20.0).abs() < 0.1), "{milliseconds:?}");
}
