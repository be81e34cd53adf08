//! Two recordings that were written by hand, and what is in them.

use comb_trace::Operation;
use comb_trace::codec::Encoder;
use comb_trace::event::{Event, Identity, append_text, flag};
use comb_trace::trace_file::{Frame, Head, Moment, Process, framed, write_magic};
use serde_json::{Value, json};

/// A second before a leap year's March.
pub(crate) const BEGAN_WALL_NS: u64 = 1_709_251_199_000_000_000;

/// What a test knows of recordings.
pub(crate) struct Known {
    /// Of trace, instance, machine, process, user, time.
    pub(crate) rows: [u64; 6],
    pub(crate) opens: u64,
    /// After the beginning, the first operation.
    pub(crate) first_ns: u64,
    pub(crate) classes: Value,
    /// By machine and process.
    pub(crate) bytes: Value,
    /// By the process's name: bytes and operations.
    pub(crate) by_name: [(&'static str, u64, u64); 2],
    /// Access, pattern, how many, bytes read, bytes written.
    pub(crate) sessions: Value,
    pub(crate) failures: Value,
    /// Year, month, day, weekday, hour, minute, second, how many operations.
    pub(crate) seconds: Value,
    pub(crate) users: Value,
    pub(crate) paths: Vec<&'static str>,
    pub(crate) lifetimes: Value,
}

/// A program's name, and a file's, with bytes that are no text, and with what quotes and ends lines elsewhere.
const BUILDER: &[u8] = b"bu\xffild";
const BUILDER_READ: &str = "bu\\xffild";
const NOTE: &[u8] = b"na\xefve, 'quoted'\n\"\xc3\xbc\".txt";
const NOTE_READ: &str = "/home/anna/na\\xefve, 'quoted'\n\"ü\".txt";

const EDITOR: u32 = 10;
const BUILD: u32 = 11;

pub(crate) fn of_alpha() -> Known {
    Known {
        rows: [22, 5, 1, 2, 2, 2],
        opens: 6,
        first_ns: 2000,
        classes: json!([["control", 1], ["data", 8], ["directory", 1], ["paging", 1], ["session", 11]]),
        bytes: json!([["alpha", BUILDER_READ, 2268], ["alpha", "editor", 9196]]),
        by_name: [(BUILDER_READ, 2268, 9), ("editor", 9196, 13)],
        sessions: json!([
            [0, 0, 1, 0, 0],
            [1, 1, 1, 5000, 0],
            [1, 2, 1, 100, 0],
            [2, 1, 1, 0, 1500],
            [3, 3, 1, 512, 256]
        ]),
        failures: json!([["open", 2, 1], ["rename", 17, 1]]),
        seconds: json!([[2024, 2, 29, 4, 23, 59, 59, 13], [2024, 3, 1, 5, 0, 0, 0, 9]]),
        users: json!([["alpha", "anna"], ["alpha", "root"]]),
        paths: vec!["/home/anna/missing", NOTE_READ, "/tmp/out.o", "/var/lib/x.db"],
        lifetimes: json!([[BUILDER_READ, 1_499_999_000], ["editor", -1]]),
    }
}

/// Of both recordings together: they have a second, a path, the number of a user and that of a process in common.
pub(crate) fn of_both() -> Known {
    Known {
        rows: [25, 6, 2, 3, 3, 2],
        opens: 7,
        first_ns: 2000,
        classes: json!([["control", 1], ["data", 9], ["directory", 1], ["paging", 1], ["session", 13]]),
        bytes: json!([["alpha", BUILDER_READ, 2268], ["alpha", "editor", 9196], ["beta", "editor", 7]]),
        by_name: [(BUILDER_READ, 2268, 9), ("editor", 9203, 16)],
        sessions: json!([
            [0, 0, 1, 0, 0],
            [1, 1, 2, 5007, 0],
            [1, 2, 1, 100, 0],
            [2, 1, 1, 0, 1500],
            [3, 3, 1, 512, 256]
        ]),
        failures: json!([["open", 2, 1], ["rename", 17, 1]]),
        seconds: json!([[2024, 2, 29, 4, 23, 59, 59, 16], [2024, 3, 1, 5, 0, 0, 0, 9]]),
        users: json!([["alpha", "anna"], ["alpha", "root"], ["beta", "otto"]]),
        paths: vec!["/home/anna/missing", NOTE_READ, "/tmp/out.o", "/tmp/out.o", "/var/lib/x.db"],
        lifetimes: json!([[BUILDER_READ, 1_499_999_000], ["editor", -1], ["editor", -1]]),
    }
}

/// A recording that grows by an event at a time.
struct Recording {
    bytes: Vec<u8>,
    encoder: Encoder,
    began_ns: u64,
}

/// A file that is open.
#[derive(Clone, Copy)]
struct Opened {
    process: u32,
    event: Event,
}

const fn file(inode: u64) -> Identity {
    Identity { inode, device: 1, generation: 1 }
}

const fn nothing() -> Event {
    let file = Identity { inode: 0, device: 0, generation: 0 };
    Event {
        operation: 0,
        flags: 0,
        text_bytes: 0,
        thread: 0,
        process: 0,
        descriptor: -1,
        start_ns: 0,
        duration_ns: 0,
        result: 0,
        asked: 0,
        argument: 0,
        handle: 0,
        file,
        offset: 0,
        size: 0,
        mode: 0,
        pages: 0,
    }
}

impl Recording {
    fn new(machine: &str, began_ns: u64, users: &[(u32, &str)]) -> Self {
        let editor = Process { number: EDITOR, user: 1000, name: b"editor".to_vec(), ..Process::default() };
        let head = Head {
            machine: machine.to_owned(),
            users: users.iter().map(|(number, name)| (*number, (*name).to_owned())).collect(),
            processes: vec![editor],
            began: Moment { monotonic_ns: began_ns, wall_ns: BEGAN_WALL_NS, ..Moment::default() },
            ..Head::default()
        };
        let mut bytes = Vec::new();
        write_magic(&mut bytes).expect("memory");
        bytes.extend(framed(&Frame::Head(Box::new(head))));
        Self { bytes, encoder: Encoder::default(), began_ns }
    }

    fn add(&mut self, at_ns: u64, process: u32, operation: Operation, event: Event, given: &[&[u8]]) {
        let mut behind = Vec::new();
        given.iter().for_each(|text| append_text(&mut behind, Identity::default(), text));
        let event = Event {
            operation: operation as u8,
            text_bytes: u16::try_from(behind.len()).expect("short names"),
            thread: process,
            process,
            start_ns: self.began_ns + at_ns,
            duration_ns: 100,
            ..event
        };
        self.encoder.add(&event, &behind);
    }

    fn name(&mut self, at_ns: u64, of: Identity, parts: &[&[u8]]) {
        let parts = parts.iter().flat_map(|part| [*part, b"\0"].concat()).collect::<Vec<u8>>();
        self.add(at_ns, EDITOR, Operation::Name, Event { file: of, ..nothing() }, &[&parts]);
    }

    fn open(
        &mut self,
        at_ns: u64,
        process: u32,
        of: Identity,
        argument: u64,
        size: u64,
        flags: u8,
    ) -> Opened {
        let event = Event { descriptor: 3, handle: at_ns, file: of, mode: 0o100_644, ..nothing() };
        self.add(at_ns, process, Operation::Open, Event { result: 3, argument, size, flags, ..event }, &[]);
        Opened { process, event }
    }

    /// So many bytes are moved from there on; afterwards the file is so long.
    fn data(&mut self, at_ns: u64, of: Opened, operation: Operation, offset: u64, moved: u64, size: u64) {
        let event = Event { offset, asked: moved.max(64), result: moved.cast_signed(), size, ..of.event };
        self.add(at_ns, of.process, operation, event, &[]);
    }

    fn close(&mut self, at_ns: u64, of: Opened) {
        self.add(at_ns, of.process, Operation::Close, of.event, &[]);
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.extend(framed(&Frame::Events(self.encoder.take().expect("events"))));
        self.bytes.extend(framed(&Frame::End(Moment::default())));
        self.bytes
    }
}

/// A recording of five sessions, two failures and a page.
pub(crate) fn alpha() -> Vec<u8> {
    const LATER: u64 = 1_000_000_000;
    let mut it = Recording::new("alpha", 5_000_000_000, &[(1000, "anna"), (0, "root")]);
    let (note, object, database) = (file(1), file(2), file(3));
    let begins = Event { argument: EDITOR.into(), asked: 0, ..nothing() };
    it.add(1000, BUILD, Operation::ProcessBegins, begins, &[BUILDER]);
    it.name(1000, note, &[NOTE, b"anna", b"home"]);
    it.name(1000, object, &[b"out.o", b"tmp"]);
    it.name(1000, database, &[b"x.db", b"lib", b"var"]);
    // All of a file, and the read that finds its end.
    let open = it.open(2000, EDITOR, note, 0, 5000, 0);
    it.data(3000, open, Operation::Read, 0, 4096, 5000);
    it.data(4000, open, Operation::Read, 4096, 904, 5000);
    it.data(5000, open, Operation::Read, 5000, 0, 5000);
    it.close(6000, open);
    it.add(7000, EDITOR, Operation::Open, Event { result: -2, ..nothing() }, &[b"/home/anna/missing"]);
    // A new file.
    let open = it.open(8000, BUILD, object, 0o1101, 0, flag::CREATED);
    it.data(9000, open, Operation::Write, 0, 1000, 1000);
    it.data(10_000, open, Operation::Write, 1000, 500, 1500);
    it.close(11_000, open);
    // Here and there, into the next second.
    let open = it.open(12_000, BUILD, database, 2, 100_000, 0);
    it.data(13_000, open, Operation::Read, 8192, 512, 100_000);
    it.data(14_000, open, Operation::Write, 0, 256, 100_000);
    it.close(LATER, open);
    // The beginning of a file.
    let open = it.open(LATER + 1000, EDITOR, database, 0, 100_000, 0);
    it.data(LATER + 2000, open, Operation::Read, 0, 100, 100_000);
    it.close(LATER + 3000, open);
    // Nothing is moved.
    let open = it.open(LATER + 4000, EDITOR, note, 0, 5000, 0);
    it.add(LATER + 5000, EDITOR, Operation::Status, open.event, &[]);
    it.close(LATER + 6000, open);
    let failed = Event { result: -17, ..nothing() };
    it.add(LATER + 7000, BUILD, Operation::Rename, failed, &[b"/tmp/out.o", b"/home/anna"]);
    let page = Event { file: database, asked: 4096, result: 4096, size: 100_000, ..nothing() };
    it.add(LATER + 8000, EDITOR, Operation::PageIn, page, &[]);
    it.add(LATER + LATER / 2, BUILD, Operation::ProcessEnds, nothing(), &[]);
    it.finish()
}

/// A recording of one session, on another machine at the same time.
pub(crate) fn beta() -> Vec<u8> {
    let mut it = Recording::new("beta", 9_000_000_000, &[(1000, "otto")]);
    it.name(1000, file(2), &[b"out.o", b"tmp"]);
    let open = it.open(2500, EDITOR, file(2), 0, 7, 0);
    it.data(3500, open, Operation::Read, 0, 7, 7);
    it.close(4500, open);
    it.finish()
}
