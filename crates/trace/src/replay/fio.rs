//! A trace's reads and writes for `fio`, which knows other systems' ways to read and write as well: as jobs that are like it, or exactly as
//! they were.
//!
//! A job is what one process did, in numbers: how large its requests were, how many of them reads, how many went on where the last one ended,
//! on how many files of what size, and how long it paused in between. Of pauses it says the mean, which is not much where their variance has
//! no bound: what a system makes of bursts only [`iolog`] shows. (Thesis §9.7)

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::plan::Plan;
use super::step::{Action, PathId, Step};

/// `fio` takes so many sizes of requests.
const MOST_SIZES: usize = 60;

/// Its smallest request.
const LEAST_BYTES: u64 = 512;

/// Shorter pauses are none: calls are not back to back either.
const LEAST_PAUSE_NS: u64 = 10_000;

/// The format of a log that `fio` replays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogVersion {
    /// For `fio` from 1.17 on: times in whole milliseconds, from when `fio` starts. Its manual says microseconds since the last pause, and
    /// the program does otherwise.
    #[default]
    Two,
    /// For `fio` from 3.31 on: times in microseconds.
    Three,
}

/// One direction of one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// How often.
    pub requests: u64,
    /// How much in all.
    pub bytes: u64,
    /// How many went on where the last request of the same file ended, in whichever direction.
    pub sequential: u64,
    /// By size, a power of two: as many.
    pub sizes: BTreeMap<u64, u64>,
}

/// What one process did with the content of files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// Its number.
    pub process: u32,
    /// What it is called.
    pub name: Vec<u8>,
    /// What it read.
    pub read: Flow,
    /// What it wrote.
    pub written: Flow,
    /// How many files.
    pub files: u64,
    /// The length of the smallest and of the largest.
    pub file_bytes: (u64, u64),
    /// The mean pause between the beginnings of two requests.
    pub pause_ns: u64,
    /// How often it had what it wrote brought to where it is kept.
    pub syncs: u64,
}

impl Job {
    const fn requests(&self) -> u64 {
        self.read.requests + self.written.requests
    }

    /// Which part went on where the last one ended.
    pub fn sequential_share(&self) -> f64 {
        (self.read.sequential + self.written.sequential) as f64 / self.requests().max(1) as f64
    }
}

/// A request's size as `fio` is told it: the power of two that is nearest above.
fn size_class(bytes: u64) -> u64 {
    bytes.clamp(LEAST_BYTES, 1 << 30).next_power_of_two()
}

/// What is read or written, how much, where, and in which direction.
fn request(step: &Step) -> Option<(u64, u64, bool)> {
    let moved = u64::try_from(step.result).ok().filter(|&bytes| bytes > 0)?;
    match step.action {
        Action::Read { at, .. } => Some((at.offset(), moved, false)),
        Action::Write { at, .. } => Some((at.offset(), moved, true)),
        _ => None,
    }
}

/// The jobs of all processes that read or wrote.
pub fn jobs(plan: &Plan) -> Vec<Job> {
    #[derive(Default)]
    struct State {
        job: Job,
        contents: BTreeSet<u32>,
        first_ns: u64,
        last_ns: u64,
    }
    let mut all: BTreeMap<u32, State> = BTreeMap::new();
    let mut next_offset: HashMap<(u32, u32), u64> = HashMap::new();
    for step in plan.in_order() {
        let Some(slot) = step.action.slot() else { continue };
        if let (Action::Sync(_), Some(state)) = (step.action, all.get_mut(&step.process)) {
            state.job.syncs += 1;
        }
        let Some((offset, bytes, is_write)) = request(step) else { continue };
        let state = all.entry(step.process).or_default();
        if state.job.requests() == 0 {
            state.first_ns = step.start_ns;
        }
        state.last_ns = step.start_ns;
        let content = plan.slot(slot).content;
        state.contents.insert(content);
        let flow = if is_write { &mut state.job.written } else { &mut state.job.read };
        flow.requests += 1;
        flow.bytes = flow.bytes.saturating_add(bytes);
        *flow.sizes.entry(size_class(bytes)).or_default() += 1;
        // From the beginning is where the first one ended.
        let expected = next_offset.insert((step.process, content), offset.saturating_add(bytes)).unwrap_or(0);
        flow.sequential += u64::from(offset == expected);
    }
    let finished = all.into_iter().map(|(process, state)| {
        let sizes = state.contents.iter().map(|&content| plan.sizes[content as usize]);
        Job {
            process,
            name: plan.programs.get(&process).cloned().unwrap_or_default(),
            files: state.contents.len() as u64,
            file_bytes: sizes.fold((u64::MAX, 0), |(least, most), size| (size.min(least), size.max(most))),
            pause_ns: (state.last_ns - state.first_ns) / (state.job.requests() - 1).max(1),
            ..state.job
        }
    });
    finished.collect()
}

/// Writes a job file: `fio FILE --directory=DIRECTORY` runs it.
pub fn job_file(plan: &Plan, to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "; One job for each process that read or wrote: run it with --directory=DIRECTORY.")?;
    writeln!(to, "[global]\nioengine=psync\nfallocate=none\nfile_service_type=random\n")?;
    for job in jobs(plan) {
        write_job(&job, to)?;
    }
    Ok(())
}

fn write_job(job: &Job, to: &mut impl Write) -> io::Result<()> {
    // A file of which nothing fits in is of no use to `fio`.
    let largest_request = job.read.sizes.keys().chain(job.written.sizes.keys()).copied();
    let largest_request = largest_request.max().unwrap_or(LEAST_BYTES);
    let least = job.file_bytes.0.next_multiple_of(LEAST_BYTES).max(largest_request);
    let most = job.file_bytes.1.next_multiple_of(LEAST_BYTES).max(least);
    writeln!(to, "[{}-{}]", plain(&job.name), job.process)?;
    // Less than one in a hundred cannot be said.
    let is_sequential = job.sequential_share() > 0.99;
    let direction = match (job.read.requests > 0, job.written.requests > 0, is_sequential) {
        (true, true, true) => "readwrite",
        (true, true, false) => "randrw",
        (true, false, true) => "read",
        (true, false, false) => "randread",
        (false, _, true) => "write",
        (false, _, false) => "randwrite",
    };
    writeln!(to, "readwrite={direction}")?;
    if job.read.requests > 0 && job.written.requests > 0 {
        writeln!(to, "rwmixread={}", percent(job.read.requests, job.requests()))?;
    }
    if !is_sequential {
        let of_each = |flow: &Flow| percent(flow.requests - flow.sequential, flow.requests);
        writeln!(to, "percentage_random={},{}", of_each(&job.read), of_each(&job.written))?;
    }
    writeln!(to, "bssplit={},{}", split(&job.read.sizes), split(&job.written.sizes))?;
    writeln!(to, "nrfiles={}\nfilesize={least}-{most}", job.files)?;
    writeln!(to, "io_size={}", job.read.bytes.saturating_add(job.written.bytes).max(largest_request))?;
    if job.pause_ns >= LEAST_PAUSE_NS {
        writeln!(to, "thinktime={}us", job.pause_ns / 1000)?;
    }
    if let Some(writes) = job.written.requests.checked_div(job.syncs) {
        writeln!(to, "fsync={}", writes.max(1))?;
    }
    writeln!(to)
}

fn percent(part: u64, whole: u64) -> u64 {
    (part * 100 + whole / 2).checked_div(whole).unwrap_or(0)
}

/// Sizes with their shares, which must be a hundred together.
fn split(sizes: &BTreeMap<u64, u64>) -> String {
    let whole: u64 = sizes.values().sum();
    let mut shares: Vec<(u64, u64)> =
        sizes.iter().map(|(&size, &count)| (size, count * 100 / whole)).collect();
    shares.retain(|(_, share)| *share > 0);
    shares.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
    shares.truncate(MOST_SIZES);
    let rest = 100 - shares.iter().map(|(_, share)| share).sum::<u64>();
    match shares.first_mut() {
        Some((_, most)) => *most += rest,
        // Of many sizes each may be less than one in a hundred; and of none, any will do.
        None => shares.push((sizes.keys().next_back().copied().unwrap_or(LEAST_BYTES), 100)),
    }
    shares.sort_unstable();
    shares.iter().map(|(size, share)| format!("{size}/{share}")).collect::<Vec<_>>().join(":")
}

/// A name as `fio` reads it: of one word, and without what it takes for its own.
fn plain(name: &[u8]) -> String {
    let kept = name.iter().map(|&byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) { char::from(byte) } else { '_' }
    });
    let name: String = kept.collect();
    if name.is_empty() { "process".to_owned() } else { name }
}

/// The steps that are in a log, and the files that they need.
fn logged(plan: &Plan) -> (Vec<&Step>, BTreeSet<PathId>) {
    let path = |step: &Step| Some(plan.slot(step.action.slot()?).path);
    let steps = plan.in_order();
    let used: BTreeSet<PathId> =
        steps.iter().filter(|step| request(step).is_some()).filter_map(|step| path(step)).collect();
    let is_logged = |step: &&Step| {
        let is_sync =
            matches!(step.action, Action::Sync(_)) && path(step).is_some_and(|path| used.contains(&path));
        request(step).is_some() || is_sync
    };
    (steps.into_iter().filter(is_logged).collect(), used)
}

/// What a file is called in a log, which knows no directories: the trace's names may hold anything.
fn name_in_log(path: PathId) -> String {
    format!("file-{}", path.0)
}

/// Makes the files that a log of this plan needs, each as long as it ever was, and with a hole in it: `fio` makes none itself, and finds
/// nothing to read in an empty one. What is there already stays as it is, and is an error.
pub fn make_files(plan: &Plan, directory: &Path) -> io::Result<()> {
    let mut sizes: BTreeMap<PathId, u64> = BTreeMap::new();
    for step in logged(plan).0 {
        if let (Some(slot), Some((offset, bytes, _))) = (step.action.slot(), request(step)) {
            let slot = plan.slot(slot);
            let end = if i64::try_from(offset).is_ok() { offset.saturating_add(bytes) } else { 0 };
            let size = sizes.entry(slot.path).or_default();
            *size = plan.sizes[slot.content as usize].max(end).max(*size);
        }
    }
    for (path, size) in sizes {
        File::create_new(directory.join(name_in_log(path)))?.set_len(size)?;
    }
    Ok(())
}

/// Writes a log for `fio --read_iolog=FILE`: all reads, writes and syncs of the plan in their order, on files in a directory that
/// [`make_files`] makes there. Its name may hold no spaces.
pub fn iolog(plan: &Plan, directory: &str, version: LogVersion, to: &mut impl Write) -> io::Result<()> {
    if directory.chars().any(char::is_whitespace) {
        let why = format!("{directory:?} holds spaces, at which fio would end it; name another directory");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut log = Log { to, version, directory: directory.trim_end_matches('/'), last_ms: 0 };
    let number = match version {
        LogVersion::Two => 2,
        LogVersion::Three => 3,
    };
    writeln!(log.to, "fio version {number} iolog")?;
    let (steps, used) = logged(plan);
    for path in used {
        log.about(0, path, "add")?;
    }
    // A path may be open several times, and `fio` opens it once.
    let mut is_open: BTreeSet<PathId> = BTreeSet::new();
    for step in steps {
        let Some(slot) = step.action.slot() else { continue };
        let path = plan.slot(slot).path;
        let now_us = step.start_ns / 1000;
        let what = match request(step) {
            None => "sync 0 0".to_owned(),
            Some((offset, ..)) if i64::try_from(offset).is_err() => continue, // nobody knows where
            Some((offset, bytes, true)) => format!("write {offset} {bytes}"),
            Some((offset, bytes, false)) => format!("read {offset} {bytes}"),
        };
        if is_open.insert(path) {
            log.about(now_us, path, "open")?;
        }
        log.about(now_us, path, &what)?;
    }
    for path in is_open {
        log.about(plan.recorded_ns / 1000, path, "close")?;
    }
    log.to.flush()
}

struct Log<'a, W> {
    to: &'a mut W,
    version: LogVersion,
    directory: &'a str,
    last_ms: u64,
}

impl<W: Write> Log<'_, W> {
    fn about(&mut self, now_us: u64, path: PathId, what: &str) -> io::Result<()> {
        let (directory, name) = (self.directory, name_in_log(path));
        if self.version == LogVersion::Three {
            // After a time of nothing `fio` would not wait.
            return writeln!(self.to, "{} {directory}/{name} {what}", now_us + 1);
        }
        let now_ms = now_us / 1000;
        if now_ms > self.last_ms && what != "close" {
            // For a pause, too, a file has to be named.
            writeln!(self.to, "{directory}/{name} wait {now_ms} 0")?;
            self.last_ms = now_ms;
        }
        writeln!(self.to, "{directory}/{name} {what}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_sizes_are_a_hundred_together() {
        let of = |sizes: &[(u64, u64)]| split(&sizes.iter().copied().collect());
        assert_eq!(of(&[(4096, 1), (8192, 2)]), "4096/33:8192/67");
        assert_eq!(of(&[(4096, 1), (8192, 1000)]), "8192/100");
        assert_eq!(of(&[]), "512/100");
        assert_eq!((size_class(0), size_class(513), size_class(4096)), (512, 1024, 4096));
    }

    #[test]
    fn names_are_plain() {
        assert_eq!((plain(b"a b]\n\xff.x"), plain(b"")), ("a_b___.x".to_owned(), "process".to_owned()));
    }
}
