//! The system resource manager: the first kernel of a cell, which starts the others, grants them memory, processors and network in large units, and takes
//! back what they had when they end or are swapped out. (Cache Kernel §3)
//!
//! What it grants, the supervisor enforces, but for the network; how a kernel divides what it has is that kernel's affair.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use comb_kernel::calls::First;
use comb_kernel::client::line::hand_over;
use comb_kernel::objects::{
    Access, FRAMES_IN_GROUP, Groups, KernelDescriptor, KernelId, KernelLoad, Refused, Tag, Writeback,
};
use comb_kernel::supervisor::{CallError, State};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::book::{Allotment, Book, Capacity, Free, Overcommitted};
use self::meter::{Meter, Verdict};
pub use self::meter::{Network, NoNetwork};
use self::process::Process;
pub use self::process::own_line;
use self::saved::Saved;

mod book;
pub mod desk;
mod meter;
pub mod peers;
mod process;
mod saved;
pub mod words;

/// Why the manager did not do something. What a kernel had, it has, unless it says otherwise.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// There is none, or not any more.
    #[error("there is no kernel {}", .0.0)]
    NoKernel(Tag),
    /// It has to be swapped in first.
    #[error("kernel {} is swapped out", .0.0)]
    SwappedOut(Tag),
    /// It is not swapped out.
    #[error("kernel {} is not swapped out", .0.0)]
    NotSwappedOut(Tag),
    /// Its process has ended, or it has given up its counter. [`Manager::look_after`] tells.
    #[error("kernel {} has ended", .0.0)]
    Ended(Tag),
    /// There is not as much.
    #[error(transparent)]
    Overcommitted(#[from] Overcommitted),
    /// The supervisor refuses.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The host does.
    #[error("the host does not {action}: {error}")]
    Host {
        /// What it does not do.
        action: &'static str,
        /// Why.
        error: io::Error,
    },
}

fn host(action: &'static str) -> impl Fn(io::Error) -> ManagerError {
    move |error| ManagerError::Host { action, error }
}

type Waiting = VecDeque<Writeback<Box<State>>>;

#[derive(Debug)]
enum Standing {
    Loaded(KernelId),
    /// What its groups contained, and what it has yet to hear.
    Out(Saved, Waiting),
}

#[derive(Debug)]
struct Managed {
    name: String,
    process: Process,
    standing: Standing,
    meter: Meter,
    /// Since when it has no counter, by its own doing.
    given_up: Option<Instant>,
}

/// Who has given up its counter is about to end: it has this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// A kernel that has ended, and has nothing any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its tag.
    pub kernel: Tag,
    /// What it was started as.
    pub name: String,
    /// How its process did. One that gave up its counter and went on was killed.
    pub status: ExitStatus,
}

/// One that runs, or is swapped out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Running {
    /// Its tag.
    pub kernel: Tag,
    /// What it was started as.
    pub name: String,
    /// What it was granted.
    pub allotment: Allotment,
    /// Whether it is swapped out, and has nothing of it.
    pub is_out: bool,
}

/// The manager of one cell.
pub struct Manager<C> {
    calls: C,
    book: Book,
    kernels: BTreeMap<Tag, Managed>,
    /// Kernels that were written back, with what they had not heard.
    back: BTreeMap<Tag, Waiting>,
    /// Of whom nobody was told yet.
    ended: Vec<Ended>,
    started: u64,
    /// Where it keeps what was swapped out.
    directory: PathBuf,
    network: Box<dyn Network>,
}

/// Who was granted nothing of any processor has nothing: a supervisor takes it for all if none is named.
fn named(shares: &[u8]) -> Vec<u8> {
    if shares.is_empty() { vec![0] } else { shares.to_vec() }
}

/// Page groups as ranges of neighbours.
fn ranges(groups: &[u32]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for group in groups.iter().copied().map(u64::from) {
        match ranges.last_mut() {
            Some(last) if last.end == group => last.end += 1,
            _ => ranges.push(group..group + 1),
        }
    }
    ranges
}

impl<C: First> Manager<C> {
    /// One that has nobody to manage yet. It is the first kernel; of what it may grant, nobody has anything. What is swapped out goes into files of this
    /// directory.
    pub fn new(calls: C, capacity: Capacity, directory: PathBuf, network: Box<dyn Network>) -> Self {
        let (kernels, back, ended) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let book = Book::new(capacity);
        Self { calls, book, kernels, back, ended, started: 0, directory, network }
    }

    /// Its own calls, as those of any kernel.
    pub fn calls(&mut self) -> &mut C {
        &mut self.calls
    }

    /// Who has what.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// All kernels, swapped out or not.
    pub fn running(&self) -> Vec<Running> {
        let entry = |(kernel, managed): (&Tag, &Managed)| {
            let (allotment, is_in) = self.book.allotment(*kernel).expect("all are in the book");
            Running {
                kernel: *kernel,
                name: managed.name.clone(),
                allotment: allotment.clone(),
                is_out: !is_in,
            }
        };
        self.kernels.iter().map(entry).collect()
    }

    /// Starts a program as a kernel. Its standard input is its line, from which it gets its counter: [`own_line`], and
    /// [`comb_kernel::client::Client::by_line`].
    pub fn start(
        &mut self,
        name: &str,
        command: Command,
        allotment: &Allotment,
    ) -> Result<Tag, ManagerError> {
        self.started += 1;
        let kernel = Tag(self.started);
        let groups = self.book.enter(kernel, allotment)?;
        match self.begin(kernel, command, &groups) {
            Ok((process, id)) => {
                let standing = Standing::Loaded(id);
                let (name, meter, given_up) = (name.to_owned(), Meter::default(), None);
                let managed = Managed { name, process, standing, meter, given_up };
                self.kernels.insert(kernel, managed);
                Ok(kernel)
            }
            Err(error) => {
                self.hear()?;
                self.back.remove(&kernel);
                self.book.strike(kernel);
                Err(error)
            }
        }
    }

    fn begin(
        &mut self,
        kernel: Tag,
        command: Command,
        groups: &[u32],
    ) -> Result<(Process, KernelId), ManagerError> {
        let process = Process::start(command).map_err(host("start the program"))?;
        let id = self.load(kernel, &process, groups, VecDeque::new(), &[])?;
        Ok((process, id))
    }

    /// Loads a kernel, and tells its process where it is.
    fn load(
        &mut self,
        kernel: Tag,
        process: &Process,
        groups: &[u32],
        waiting: Waiting,
        moved: &[(u32, u32)],
    ) -> Result<KernelId, ManagerError> {
        let (allotment, _) = self.book.allotment(kernel).expect("it is in the book");
        let frames = u64::from(self.calls.groups()) * FRAMES_IN_GROUP;
        let mut granted = Groups::new(frames, Access::None);
        for range in ranges(groups) {
            granted.set(range, Access::ReadWrite);
        }
        let processor_shares = named(&allotment.processor_shares);
        let descriptor = KernelDescriptor {
            groups: granted,
            processor_shares,
            maximum_priority: allotment.maximum_priority,
            locks: allotment.locks,
        };
        let load = KernelLoad { tag: kernel, descriptor, locked: allotment.locked, waiting };
        let descriptor = process.descriptor().map_err(host("name a process"))?;
        let (id, counter) = self.calls.load_kernel(load)?;
        if let Err(error) = self.calls.charge_process(id, descriptor.as_fd()) {
            self.unload(kernel, id)?;
            return Err(error.into());
        }
        if let Err(error) = hand_over(&process.line, &counter, moved) {
            self.unload(kernel, id)?;
            return Err(ManagerError::Host { action: "hand over a counter", error: error.into() });
        }
        Ok(id)
    }

    /// Unloads a kernel: what it had not heard.
    fn unload(&mut self, kernel: Tag, id: KernelId) -> Result<Waiting, ManagerError> {
        match self.calls.unload_kernel(id) {
            // It was gone already.
            Ok(()) | Err(CallError::Refused(Refused::StaleKernel(_))) => {}
            Err(error) => return Err(error.into()),
        }
        self.hear()?;
        Ok(self.back.remove(&kernel).unwrap_or_default())
    }

    /// Takes the writebacks. Those of its own spaces nobody waits for: it has none.
    fn hear(&mut self) -> Result<(), ManagerError> {
        while let Some(writeback) = self.calls.take_writeback()? {
            if let Writeback::Kernel { tag, waiting, .. } = writeback {
                self.back.insert(tag, waiting);
            }
        }
        Ok(())
    }

    fn managed(&mut self, kernel: Tag) -> Result<&mut Managed, ManagerError> {
        self.kernels.get_mut(&kernel).ok_or(ManagerError::NoKernel(kernel))
    }

    fn loaded(&mut self, kernel: Tag) -> Result<KernelId, ManagerError> {
        match self.managed(kernel)?.standing {
            Standing::Loaded(id) => Ok(id),
            Standing::Out(..) => Err(ManagerError::SwappedOut(kernel)),
        }
    }

    /// Gives a kernel so many page groups more. It hears of them with its next call.
    pub fn grant(&mut self, kernel: Tag, groups: u32) -> Result<(), ManagerError> {
        let id = self.loaded(kernel)?;
        let more = self.book.add(kernel, groups)?;
        for range in ranges(&more) {
            if let Err(error) = self.calls.set_access(id, range, Access::ReadWrite) {
                self.take_groups(kernel, id, &more)?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Takes so many of its page groups from a kernel, the last that it has, or all, with what is in them. What it has mapped of them it hears as written back.
    pub fn take(&mut self, kernel: Tag, groups: u32) -> Result<(), ManagerError> {
        let id = self.loaded(kernel)?;
        let last = self.book.last(kernel, groups);
        self.take_groups(kernel, id, &last)
    }

    fn take_groups(&mut self, kernel: Tag, id: KernelId, groups: &[u32]) -> Result<(), ManagerError> {
        for range in ranges(groups) {
            self.calls.set_access(id, range, Access::None)?;
        }
        self.clear(groups)?;
        self.book.subtract(kernel, groups);
        Ok(())
    }

    /// What groups contained is gone, the host has their memory, and nobody has them. Before that they are not anybody else's.
    fn clear(&mut self, groups: &[u32]) -> Result<(), ManagerError> {
        Ok(self.calls.clear_groups(groups)?)
    }

    /// Changes a kernel's shares of the processors.
    pub fn set_processor_shares(&mut self, kernel: Tag, shares: &[u8]) -> Result<(), ManagerError> {
        let id = self.loaded(kernel)?;
        self.book.change(kernel, |has| has.processor_shares = shares.to_vec())?;
        Ok(self.calls.set_processor_shares(id, &named(shares))?)
    }

    /// Changes the highest priority that a kernel's threads can have.
    pub fn set_maximum_priority(&mut self, kernel: Tag, maximum: u8) -> Result<(), ManagerError> {
        let id = self.loaded(kernel)?;
        self.book.change(kernel, |has| has.maximum_priority = maximum)?;
        Ok(self.calls.set_maximum_priority(id, maximum)?)
    }

    /// Changes what a kernel may send and receive, in bytes a second.
    pub fn set_network(&mut self, kernel: Tag, bytes: u64) -> Result<(), ManagerError> {
        self.loaded(kernel)?;
        Ok(self.book.change(kernel, |has| has.network = bytes)?)
    }

    /// Cuts those off the network who use more of it than they were granted, and lets those in again who have waited for long enough. To be called now and
    /// then, with the time since the last call.
    pub fn look_at_network(&mut self, elapsed: Duration) {
        for (kernel, managed) in &mut self.kernels {
            let quota = self.book.allotment(*kernel).map_or(0, |(allotment, _)| allotment.network);
            match managed.meter.look(self.network.used(*kernel), quota, elapsed) {
                Verdict::Stays => {}
                Verdict::Disconnect => self.network.disconnect(*kernel),
                Verdict::Connect => self.network.connect(*kernel),
            }
        }
    }

    /// Hears of kernels that have ended, and takes back what they had. To be called now and then.
    ///
    /// No load displaces a kernel, for there are no more than can be loaded; so one that was written back unasked has given up its counter. If it does not end by
    /// itself, it is ended.
    pub fn look_after(&mut self) -> Result<Vec<Ended>, ManagerError> {
        self.hear()?;
        let mut over = Vec::new();
        for (kernel, managed) in &mut self.kernels {
            let has_ended = managed.process.ended().map_err(host("tell of a process"))?.is_some();
            if self.back.contains_key(kernel) {
                managed.given_up.get_or_insert_with(Instant::now);
            }
            if has_ended || managed.given_up.is_some_and(|since| since.elapsed() > PATIENCE) {
                over.push(*kernel);
            }
        }
        // Should one not be ended, the others are told of with the next call.
        for kernel in over {
            let ended = self.end(kernel)?;
            self.ended.push(ended);
        }
        Ok(std::mem::take(&mut self.ended))
    }

    /// Ends a kernel: its process, and all that it had.
    pub fn end(&mut self, kernel: Tag) -> Result<Ended, ManagerError> {
        let managed = self.managed(kernel)?;
        let status = managed.process.end().map_err(host("end a process"))?;
        let name = managed.name.clone();
        if let Standing::Loaded(id) = managed.standing {
            self.unload(kernel, id)?;
        }
        let groups = self.book.groups(kernel);
        self.clear(&groups)?;
        self.calls.forget_away(kernel)?;
        self.book.strike(kernel);
        self.kernels.remove(&kernel);
        Ok(Ended { kernel, name, status })
    }

    /// Swaps a kernel out: its process stops, its objects are unloaded, and what its memory contains goes to a file. What it had, others can have.
    pub fn swap_out(&mut self, kernel: Tag) -> Result<(), ManagerError> {
        let id = self.loaded(kernel)?;
        let path = self.directory.join(format!("kernel-{}-{}", std::process::id(), kernel.0));
        let process = &mut self.managed(kernel)?.process;
        process.stop().map_err(host("stop a process"))?;
        if process.ended().map_err(host("tell of a process"))?.is_some() {
            return Err(ManagerError::Ended(kernel));
        }
        let waiting = self.unload(kernel, id)?;
        let groups = self.book.groups(kernel);
        let calls = &mut self.calls;
        let saved = Saved::write(&path, groups.clone(), |frame, page| calls.read(frame, 0, page))
            .map_err(host("write what is swapped out"))
            .and_then(|saved| Ok(calls.put_away(kernel, &groups).map(|()| saved)?));
        match saved {
            Ok(saved) => {
                self.managed(kernel)?.standing = Standing::Out(saved, waiting);
                self.book.release(kernel);
                Ok(())
            }
            Err(error) => {
                self.resume(kernel, &groups, waiting, &[])?;
                Err(error)
            }
        }
    }

    /// Swaps a kernel in: it goes on where it was, in the page groups that are free now. It hears of all that it had loaded as of any writeback.
    pub fn swap_in(&mut self, kernel: Tag) -> Result<(), ManagerError> {
        let Standing::Out(..) = self.managed(kernel)?.standing else {
            return Err(ManagerError::NotSwappedOut(kernel));
        };
        self.keep_out(kernel)?;
        let groups = self.book.retake(kernel)?;
        let brought = self.bring_in(kernel, &groups);
        if brought.is_err() {
            self.keep_out(kernel)?;
        }
        brought
    }

    /// A kernel that is swapped out has no memory, even if it was about to have some.
    fn keep_out(&mut self, kernel: Tag) -> Result<(), ManagerError> {
        let groups = self.book.groups(kernel);
        self.calls.put_away(kernel, &groups)?;
        self.book.release(kernel);
        Ok(())
    }

    fn bring_in(&mut self, kernel: Tag, groups: &[u32]) -> Result<(), ManagerError> {
        let Some(Managed { standing: Standing::Out(saved, waiting), .. }) = self.kernels.get(&kernel) else {
            return Err(ManagerError::NotSwappedOut(kernel));
        };
        let calls = &mut self.calls;
        // The memory that its process has: what it was about to do there when it was stopped, it does.
        calls.put_back(kernel, groups)?;
        saved
            .read(groups, |frame, page| calls.write(frame, 0, page))
            .map_err(host("read what was swapped out"))?;
        let moved: Vec<(u32, u32)> = saved.groups.iter().copied().zip(groups.iter().copied()).collect();
        let mut waiting = waiting.clone();
        let now: BTreeMap<u32, u32> = moved.iter().copied().collect();
        for writeback in &mut waiting {
            if let Writeback::Mapping { frame, .. } = writeback
                && let Some(group) =
                    u32::try_from(*frame / FRAMES_IN_GROUP).ok().and_then(|group| now.get(&group))
            {
                *frame = u64::from(*group) * FRAMES_IN_GROUP + *frame % FRAMES_IN_GROUP;
            }
        }
        self.resume(kernel, groups, waiting, &moved)
    }

    /// Loads a kernel whose process is stopped, and lets it go on.
    fn resume(
        &mut self,
        kernel: Tag,
        groups: &[u32],
        waiting: Waiting,
        moved: &[(u32, u32)],
    ) -> Result<(), ManagerError> {
        let managed = self.kernels.remove(&kernel).ok_or(ManagerError::NoKernel(kernel))?;
        let loaded = self.load(kernel, &managed.process, groups, waiting, moved);
        let managed = self.kernels.entry(kernel).or_insert(managed);
        managed.standing = Standing::Loaded(loaded?);
        managed.process.go_on().map_err(host("let a process go on"))
    }
}
