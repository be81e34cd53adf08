//! What misses the caches of a machine's processors, page by page: what FLASH's hardware counts (Disco §4.2.3), of any program in any guest.
//!
//! The machine's processors are translated, and a plug-in of the translator's has a cache for each (`misses/watcher.c`). Time passes by instructions, whoever executes them: of so many
//! processors each is so much slower, to timers. Not recorded: what devices access. Processors take turns, for up to milliseconds of that time: lines that several write are taken away less often than where all run at once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

const WATCHER: &str = include_str!("misses/watcher.c");

/// Where things are in the file: `struct file` of the watcher.
const STATE: u64 = 0;
const COUNT: u64 = 16;
const INSTRUCTIONS: u64 = 24;
const MOST_PROCESSORS: usize = 64;
const MISSES: u64 = INSTRUCTIONS + 8 * MOST_PROCESSORS as u64;
const MISS_BYTES: usize = 16;
const RECORDS: u32 = 1;
const IS_FULL: u32 = 2;

/// Why nothing is recorded.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The watcher is not compiled.
    #[error("the C compiler, {0}, does not make a plug-in for the engine: {1}")]
    Compiler(&'static str, String),
    /// The host.
    #[error("{0}: {1}")]
    Host(PathBuf, io::Error),
}

/// Records what a machine misses.
#[derive(Debug)]
pub struct Watcher {
    file: File,
    path: PathBuf,
    option: String,
}

/// One miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    /// How many instructions its processor had executed since recording began.
    pub at: u64,
    /// The page's number.
    pub page: u64,
    /// Whose cache it was.
    pub processor: u32,
    /// Whether it was a store, to a line that it had not or not alone.
    pub is_store: bool,
}

/// What was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recorded {
    /// All misses, in the order of how far their processors had come by then: all are taken to have run for the same time.
    pub misses: Vec<Miss>,
    /// How many instructions each processor has executed.
    pub instructions: Vec<u64>,
}

impl Watcher {
    /// Makes one in a directory: caches of so many kilobytes, and room for so many misses.
    pub fn new(directory: &Path, cache_kb: u32, room: usize) -> Result<Self, WatchError> {
        let [source, library, path] = ["watcher.c", "watcher.so", "misses"].map(|name| directory.join(name));
        let host = |path: &Path| {
            let path = path.to_owned();
            move |error| WatchError::Host(path, error)
        };
        std::fs::write(&source, WATCHER).map_err(host(&source))?;
        let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"];
        let made = Command::new("cc").args(flags).args([&library, &source]).output();
        let made = made.map_err(|error| WatchError::Compiler("cc", error.to_string()))?;
        if !made.status.success() {
            return Err(WatchError::Compiler("cc", String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).map_err(host(&path))?;
        file.set_len(MISSES + (room * MISS_BYTES) as u64).map_err(host(&path))?;
        let option = format!("{},into={},cache={cache_kb}", library.display(), path.display());
        Ok(Self { file, path, option })
    }

    /// For [`Hardware::watcher`](crate::hardware::Hardware::watcher).
    pub fn option(&self) -> String {
        self.option.clone()
    }

    /// From now on, for caches have had time to fill.
    pub fn begin(&self) -> Result<(), WatchError> {
        self.set_state(RECORDS)
    }

    /// No more.
    pub fn end(&self) -> Result<(), WatchError> {
        self.set_state(IS_FULL)
    }

    /// Whether there is no room for more.
    pub fn is_full(&self) -> Result<bool, WatchError> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, STATE).map_err(|error| self.failed(error))?;
        Ok(u32::from_ne_bytes(bytes) == IS_FULL)
    }

    fn set_state(&self, state: u32) -> Result<(), WatchError> {
        self.file.write_all_at(&state.to_ne_bytes(), STATE).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> WatchError {
        WatchError::Host(self.path.clone(), error)
    }

    fn word(&self, at: u64) -> Result<u64, WatchError> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| self.failed(error))?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// All of it, when the machine has ended.
    pub fn recorded(&self) -> Result<Recorded, WatchError> {
        let length = self.file.metadata().map_err(|error| self.failed(error))?.len();
        let room = length.saturating_sub(MISSES) / MISS_BYTES as u64;
        let count = usize::try_from(self.word(COUNT)?.min(room)).expect("no more than is in memory");
        let mut bytes = vec![0; count * MISS_BYTES];
        self.file.read_exact_at(&mut bytes, MISSES).map_err(|error| self.failed(error))?;
        let (pairs, _) = bytes.as_chunks::<MISS_BYTES>();
        let misses = pairs.iter().filter_map(Miss::read).collect();
        let all = (0..MOST_PROCESSORS as u64).map(|number| self.word(INSTRUCTIONS + 8 * number));
        let mut instructions = all.collect::<Result<Vec<_>, _>>()?;
        let used = instructions.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        instructions.truncate(used);
        let mut recorded = Recorded { misses, instructions };
        recorded.sort();
        Ok(recorded)
    }
}

impl Recorded {
    fn sort(&mut self) {
        let Self { misses, instructions } = self;
        misses.sort_by(|one, other| {
            let part = |miss: &Miss| part_of(miss, instructions);
            part(one).total_cmp(&part(other))
        });
    }

    /// How many misses there were before each processor had executed a part of its instructions.
    pub fn before(&self, part: f64) -> usize {
        self.misses.partition_point(|miss| part_of(miss, &self.instructions) < part)
    }
}

/// How far its processor had come, of what it has executed in all.
fn part_of(miss: &Miss, instructions: &[u64]) -> f64 {
    let all = instructions.get(miss.processor as usize).copied().unwrap_or(0).max(1);
    miss.at as f64 / all as f64
}

impl Miss {
    /// None: its place was taken, and it was not written.
    fn read(bytes: &[u8; MISS_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let [at, what] = [words[0], words[1]].map(u64::from_ne_bytes);
        let [is_store, processor, ..] = what.to_le_bytes();
        (what != 0).then_some(Self {
            at,
            page: what >> 16,
            processor: processor.into(),
            is_store: is_store == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_watcher_writes_is_read_in_the_order_of_how_far_processors_had_come() {
        let directory = std::env::temp_dir().join(format!("comb-vm-misses-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let watcher = Watcher::new(&directory, 256, 4).unwrap();
        assert!(watcher.option().ends_with("/misses,cache=256"), "{}", watcher.option());
        assert!(!watcher.is_full().unwrap());
        watcher.begin().unwrap();
        let write = |at: u64, word: u64| watcher.file.write_all_at(&word.to_ne_bytes(), at).unwrap();
        // One more than there is room for, and a place that was taken and not written.
        write(COUNT, 5);
        for (processor, instructions) in [(0, 100), (1, 1000)] {
            write(INSTRUCTIONS + 8 * processor, instructions);
        }
        for (index, at, page, processor, store) in
            [(0, 50, 7, 0, 1), (1, 400, 1 << 40, 1, 0), (3, 900, 8, 1, 0)]
        {
            write(MISSES + 16 * index, at);
            write(MISSES + 16 * index + 8, page << 16 | processor << 8 | store);
        }
        watcher.end().unwrap();
        assert!(watcher.is_full().unwrap());
        let recorded = watcher.recorded().unwrap();
        let miss = |at, page, processor, is_store| Miss { at, page, processor, is_store };
        assert_eq!(
            recorded.misses,
            [miss(400, 1 << 40, 1, false), miss(50, 7, 0, true), miss(900, 8, 1, false)]
        );
        assert_eq!((recorded.before(0.5), recorded.before(0.4), recorded.before(2.0)), (1, 0, 3));
        assert_eq!(recorded.instructions, [100, 1000]);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
