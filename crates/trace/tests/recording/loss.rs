//! A program that is faster than whoever fetches: what is lost is counted, and nothing of what comes after it suffers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use comb_trace::Operation;
use comb_trace::kernel::{Kernel, Options};
use comb_trace::source::Source;

use crate::scene::{Recording, Scene, attach};

/// As many events of the shortest kind as fit in it are some hundreds.
const RING_BYTES: u32 = 1 << 16;

/// A program that does what it is told.
pub(crate) struct Told {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

pub(crate) fn command(program: &Path, what: &str, place: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(what).arg(place).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

impl Told {
    /// Has it answered that it is ready.
    pub(crate) fn new(mut child: Child) -> Self {
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut told = Self { child, to, from };
        told.answer();
        told
    }

    fn answer(&mut self) {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    pub(crate) fn say(&mut self, what: &str) {
        writeln!(self.to, "{what}").unwrap();
    }

    /// Has it do something, and waits until it has been done.
    fn tell(&mut self, what: &str) {
        self.say(what);
        self.answer();
    }

    pub(crate) fn number(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(mut self) {
        drop(self.to);
        assert!(self.child.wait().unwrap().success());
    }
}

/// What was recorded and what was lost since the last time.
struct Counted(u64, u64);

impl Counted {
    fn more(&mut self, kernel: &Kernel) -> (u64, u64) {
        let now = kernel.counters();
        let more = (now.recorded - self.0, now.lost - self.1);
        (self.0, self.1) = (now.recorded, now.lost);
        more
    }
}

#[test]
fn what_is_lost_is_counted_and_names_that_were_lost_are_told_again() {
    let Some(mut kernel) = attach(Options { ring_bytes: RING_BYTES, ..Options::default() }) else { return };
    let scene = Scene::new();
    let program = scene.compile("workers.c");
    let place = scene.place("place");
    let child = kernel.start(command(&program, "steadily", &place)).unwrap();
    let mut told = Told::new(child);
    let mut recording = Recording::new();
    let mut counted = Counted(0, 0);
    // Once before it counts: no page of the program is missing afterwards.
    for warm in ["r 10", "o warm", "c .", "a warm"] {
        told.tell(warm);
    }
    recording.fetch(&mut kernel);
    counted.more(&kernel);

    told.tell("r 100");
    assert_eq!(counted.more(&kernel), (100, 0));
    told.tell("r 20000");
    let (recorded, lost) = counted.more(&kernel);
    assert_eq!(recorded + lost, 20_000);
    assert!(lost > 19_000, "{lost}");
    // All of it is full: a name is lost, an open, a close; a change of directory with the names of both; and a path.
    std::fs::create_dir(place.join("folder")).unwrap();
    told.tell("o lost");
    assert_eq!(counted.more(&kernel), (0, 3));
    told.tell("c folder");
    assert_eq!(counted.more(&kernel), (0, 1));
    told.tell("a inside");
    assert_eq!(counted.more(&kernel), (0, 2), "the directory's name, and the path");

    let before = recording.seen.len();
    recording.fetch(&mut kernel);
    assert_eq!((recording.seen.len() - before) as u64, recorded + 100);
    let before = recording.seen.len();
    told.tell("o ../lost");
    told.tell("a inside");
    told.tell("r 50");
    recording.fetch(&mut kernel);
    let after = &recording.seen[before..];
    assert_eq!(counted.more(&kernel), (after.len() as u64, 0));
    let folder = place.join("folder").into_os_string().into_encoded_bytes();
    let inside = after.iter().find(|seen| seen.operation == Operation::Access).unwrap();
    assert_eq!(inside.path, [&folder[..], b"/inside"].concat());
    let lost = place.join("lost").into_os_string().into_encoded_bytes();
    let opened = after.iter().find(|seen| seen.operation == Operation::Open).unwrap();
    assert_eq!(opened.path, lost, "its name was told, for it had been lost");
    assert_eq!(after.iter().filter(|seen| seen.operation == Operation::Read).count(), 50);
    told.end();
}
