//! A source whose events are known, and what is found of them.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use comb_trace::collect::Beginning;
use comb_trace::event::{Event, Identity};
use comb_trace::source::{Counters, Source};
use comb_trace::trace_file::{Head, Listener, Moment, TraceFileError, read_trace};
use comb_types::Dice;

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comb-collect-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sees so many events at each look. Their numbers go on from where the last one's ended.
struct Known {
    next: Arc<AtomicU64>,
    events_a_look: usize,
    is_looked: bool,
    seen: u64,
    dice: Dice,
}

pub(crate) fn begin(next: &Arc<AtomicU64>, events_a_look: usize) -> Beginning {
    let dice = Dice::new(next.load(Ordering::Relaxed));
    let source = Known { next: Arc::clone(next), events_a_look, is_looked: false, seen: 0, dice };
    Beginning { source: Box::new(source), head: Head::default() }
}

impl Source for Known {
    fn name(&self) -> &'static str {
        "known"
    }

    fn lacks(&self) -> Vec<String> {
        Vec::new()
    }

    fn start(&mut self, _: std::process::Command) -> io::Result<Child> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn follow(&mut self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn fetch(&mut self, most: usize, sink: &mut dyn FnMut(&Event, &[u8])) -> usize {
        // Every other time there is nothing, or a look would never end.
        self.is_looked = !self.is_looked;
        let count = if self.is_looked { self.events_a_look.min(most) } else { 0 };
        for _ in 0..count {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // Nothing that could be packed well.
            let file = Identity { inode: self.dice.roll(), device: 1, generation: 1 };
            sink(&Event { operation: 3, start_ns: number, file, ..Event::default() }, &[]);
        }
        self.seen += count as u64;
        count
    }

    fn counters(&self) -> Counters {
        Counters { recorded: self.seen, ..Counters::default() }
    }
}

/// What a recording's file has.
pub(crate) struct Read {
    pub(crate) path: PathBuf,
    pub(crate) head: Head,
    pub(crate) numbers: Vec<u64>,
    pub(crate) fault: Option<TraceFileError>,
}

impl Listener for Read {
    fn head(&mut self, head: &Head) {
        self.head = head.clone();
    }

    fn event(&mut self, event: &Event, _: &[u8]) {
        self.numbers.push(event.start_ns);
    }

    fn moment(&mut self, _: &Moment) {}
}

/// The recordings in a directory, in the order in which they began.
pub(crate) fn read_all(folder: &Path) -> Vec<Read> {
    let paths = comb_trace::store::recordings(folder).unwrap();
    let read = paths.into_iter().map(|path| {
        let file = BufReader::new(File::open(&path).unwrap());
        let mut read = Read { path, head: Head::default(), numbers: Vec::new(), fault: None };
        read.fault = read_trace(file, &mut read).err();
        read
    });
    let mut read: Vec<_> = read.collect();
    read.sort_by_key(|read| read.head.began.wall_ns);
    read
}
