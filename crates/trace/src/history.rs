//! What a trace means: whose each operation was, on which file, and in which session between an open and its close.
//!
//! Events say what the kernel saw, each for itself. Here they become a history: names are told once and looked up afterwards, descriptors
//! are followed through `dup`, `fork` and `exec`, and what was done between an open and the last close of its descriptors is summed up. The
//! thesis calls the two kinds of fact that result *trace* and *instance*. (Thesis §9.4)

mod descriptors;
mod files;
mod instances;
mod processes;

use foldhash::{HashMap, HashMapExt};

pub use self::files::{File, FileId, Files};
pub use self::instances::{Access, Ending, Instance, Pattern};
pub use self::processes::{Processes, Program, ProgramId};

use self::descriptors::{Change, Descriptors};
use self::instances::Open;
use crate::event::{Event, flag, texts};
use crate::trace_file::{Head, Listener, Moment};
use crate::{Class, Operation};

/// Flags of an open.
pub mod open_flag {
    /// What may be done: 0 read, 1 write, 2 both.
    pub const ACCESS: u64 = 0o3;
    /// The file is emptied.
    pub const TRUNCATE: u64 = 0o1000;
    /// Closed when another program is executed.
    pub const CLOSE_ON_EXECUTE: u64 = 0o2_000_000;
    /// A file without a name, that is gone when it is closed.
    pub const TEMPORARY: u64 = 0o20_000_000;
    /// Every write waits for the disk.
    pub const SYNCHRONOUS: u64 = 0o10_000;
    /// Past the page cache.
    pub const DIRECT: u64 = 0o40_000;
}

/// `fcntl` that sets whether a descriptor survives an execution, and `ioctl`s that do the same.
const SET_DESCRIPTOR_FLAGS: u64 = 2;
const SET_CLOSE_ON_EXECUTE: u64 = 0x5451;
const CLEAR_CLOSE_ON_EXECUTE: u64 = 0x5450;
/// `close_range` of a table that is not shared any more, and that closes at the next execution.
const CLOSE_RANGE_UNSHARE: u64 = 2;
const CLOSE_RANGE_ON_EXECUTE: u64 = 4;

/// `renameat2` that has two files change places.
const RENAME_EXCHANGE: u64 = 2;

/// What stands for the outermost parts of a name that is longer than any path may be.
const CUT: &[u8] = "/…".as_bytes();

/// A row of the table of operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fact {
    /// What was done.
    pub operation: Operation,
    /// When it began, on the clock that is never set.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Who did it.
    pub program: ProgramId,
    /// In which of its threads.
    pub thread: u32,
    /// With which file; `None` if with none, or nobody knows which.
    pub file: Option<FileId>,
    /// The file that a rename, a link or a transfer dealt with as well.
    pub other_file: Option<FileId>,
    /// In which session; 0 in none.
    pub instance: u64,
    /// By which descriptor.
    pub descriptor: i32,
    /// What it returned, if it succeeded.
    pub result: i64,
    /// The number of the error, if it did not. 0 is none.
    pub error: u16,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes were asked for.
    pub asked: u64,
    /// How many were moved.
    pub moved: u64,
    /// Flags, commands.
    pub argument: u64,
    /// How long the file was afterwards.
    pub size: u64,
    /// See [`flag`].
    pub flags: u8,
    /// How many pages came into the page cache for it.
    pub pages: u32,
}

/// What is known when something is taken down.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Of files.
    pub files: &'a Files,
    /// Of programs.
    pub processes: &'a Processes,
    /// And of the recording as a whole.
    pub head: &'a Head,
}

impl Known<'_> {
    /// The time on the wall at a time of the trace: as it went when the recording began.
    pub fn wall_ns(&self, monotonic_ns: u64) -> u64 {
        self.head.began.wall_ns.wrapping_add(monotonic_ns.wrapping_sub(self.head.began.monotonic_ns))
    }
}

/// Whoever takes a history down.
pub trait Chronicler {
    /// An operation, in the order in which they ended.
    fn operation(&mut self, fact: &Fact, known: Known<'_>);
    /// A session, when it has ended.
    fn instance(&mut self, instance: &Instance, known: Known<'_>);
}

/// Makes a history of a trace.
pub struct History<C> {
    /// Who takes it down.
    pub chronicler: C,
    /// All files so far.
    pub files: Files,
    /// All programs so far.
    pub processes: Processes,
    /// What the trace says of itself.
    pub head: Head,
    /// What clocks and counters showed last.
    pub last: Moment,
    /// The largest step that the clock on the wall made against the other one.
    pub clock_step_ns: i64,
    descriptors: Descriptors,
    open: HashMap<u64, Open>,
    handles: HashMap<u64, u64>,
    last_instance: u64,
    last_ns: u64,
}

impl<C: Chronicler> History<C> {
    /// An empty one.
    pub fn new(chronicler: C) -> Self {
        Self {
            chronicler,
            files: Files::default(),
            processes: Processes::default(),
            head: Head::default(),
            last: Moment::default(),
            clock_step_ns: 0,
            descriptors: Descriptors::default(),
            open: HashMap::new(),
            handles: HashMap::new(),
            last_instance: 0,
            last_ns: 0,
        }
    }

    /// The trace is over: sessions that are still going on are taken down as such.
    pub fn finish(&mut self) {
        let mut left: Vec<Open> = self.open.drain().map(|(_, open)| open).collect();
        left.sort_by_key(|open| open.instance.id);
        for open in left {
            self.take_down(&open.ended(self.last_ns, Ending::None));
        }
    }

    /// What is known now.
    pub fn known(&self) -> Known<'_> {
        Known { files: &self.files, processes: &self.processes, head: &self.head }
    }

    fn take_down(&mut self, instance: &Instance) {
        let known = Known { files: &self.files, processes: &self.processes, head: &self.head };
        self.chronicler.instance(instance, known);
    }

    fn begin_instance(
        &mut self,
        event: &Event,
        file: Option<FileId>,
        program: ProgramId,
        is_seen_from_its_open: bool,
    ) -> u64 {
        self.last_instance += 1;
        let id = self.last_instance;
        if let Some(old) = self.handles.insert(event.handle, id) {
            // Its close was not seen: this handle could not have been given anew otherwise.
            self.end_instance(old, event.start_ns, Ending::Unseen);
        }
        self.open.insert(id, Open::new(id, event, file, program, is_seen_from_its_open));
        id
    }

    fn end_instance(&mut self, id: u64, now_ns: u64, ending: Ending) {
        if let Some(open) = self.open.remove(&id) {
            if self.handles.get(&open.handle) == Some(&id) {
                self.handles.remove(&open.handle);
            }
            self.take_down(&open.ended(now_ns, ending));
        }
    }

    fn drop_descriptors(&mut self, dropped: &[u64], now_ns: u64, ending: Ending) {
        for &id in dropped {
            if let Some(open) = self.open.get_mut(&id)
                && open.drop_descriptor()
            {
                self.end_instance(id, now_ns, ending);
            }
        }
    }

    fn change_descriptors(&mut self, change: &Change, now_ns: u64, ending: Ending) {
        for id in &change.gained {
            if let Some(open) = self.open.get_mut(id) {
                open.add_descriptor();
            }
        }
        self.drop_descriptors(&change.dropped, now_ns, ending);
    }

    /// The session that an event belongs to: that of its handle, or a new one, if it was open before anything was recorded. A descriptor
    /// that came from another process in a message is seen here first, by its use.
    fn instance_of(&mut self, event: &Event, file: Option<FileId>, program: ProgramId) -> u64 {
        let known = self.handles.get(&event.handle).copied();
        let id = known.unwrap_or_else(|| self.begin_instance(event, file, program, false));
        if event.descriptor >= 0 && self.descriptors.get(event.process, event.descriptor) != Some(id) {
            self.hold(event.process, event.descriptor, id, false, event.start_ns, Ending::Unseen);
        }
        id
    }

    /// A descriptor stands for a session from now on. What it stood for before ends so, if this was its last one.
    fn hold(
        &mut self,
        process: u32,
        descriptor: i32,
        id: u64,
        closes_on_execute: bool,
        now_ns: u64,
        ending: Ending,
    ) {
        if descriptor < 0 {
            return;
        }
        if let Some(open) = self.open.get_mut(&id) {
            open.add_descriptor();
        }
        if let Some(replaced) = self.descriptors.set(process, descriptor, id, closes_on_execute) {
            self.drop_descriptors(&[replaced], now_ns, ending);
        }
    }

    fn process_begins(&mut self, event: &Event, behind: &[u8]) {
        let name = texts(behind).next().map_or(&[][..], |(_, text)| trimmed(text));
        let parent = u32::try_from(event.argument).unwrap_or(0);
        let user = u32::try_from(event.asked).unwrap_or(u32::MAX);
        self.processes.begin(event.process, event.thread, parent, user, name, event.start_ns);
        if event.thread == event.process {
            // One of this number whose end was not seen.
            let left = self.descriptors.end(event.process);
            self.drop_descriptors(&left, event.start_ns, Ending::Unseen);
            let change = self.descriptors.fork(parent, event.process, event.flags & flag::SHARES != 0);
            self.change_descriptors(&change, event.start_ns, Ending::Unseen);
        }
    }

    fn process_ends(&mut self, event: &Event) {
        let left = event.argument.checked_sub(1);
        if self.processes.end(event.process, event.thread, left, event.start_ns) {
            let dropped = self.descriptors.end(event.process);
            self.drop_descriptors(&dropped, event.start_ns, Ending::Exit);
        }
    }

    /// What becomes of descriptors by an operation that succeeded. The fact is told the session that an open or a close is about.
    fn follow_descriptors(&mut self, event: &Event, operation: Operation, fact: &mut Fact) {
        let now_ns = event.start_ns.saturating_add(event.duration_ns);
        let process = event.process;
        match operation {
            Operation::Open if event.flags & flag::NO_FILE == 0 => {
                let id = self.begin_instance(event, fact.file, fact.program, true);
                fact.instance = id;
                self.hold(
                    process,
                    event.descriptor,
                    id,
                    event.argument & open_flag::CLOSE_ON_EXECUTE != 0,
                    now_ns,
                    Ending::Unseen,
                );
            }
            Operation::Open => {
                let replaced = i32::try_from(event.result)
                    .ok()
                    .and_then(|descriptor| self.descriptors.remove(process, descriptor));
                self.drop_descriptors(replaced.as_slice(), now_ns, Ending::Unseen);
            }
            Operation::Close if event.handle != 0 => {
                let id = self.instance_of(event, fact.file, fact.program);
                fact.instance = id;
                self.descriptors.remove(process, event.descriptor);
                self.drop_descriptors(&[id], now_ns, Ending::Close);
            }
            Operation::Close => {
                let range = event.descriptor..=i32::try_from(event.argument).unwrap_or(i32::MAX);
                if event.asked & CLOSE_RANGE_UNSHARE != 0 {
                    let change = self.descriptors.unshare(process);
                    self.change_descriptors(&change, now_ns, Ending::Close);
                }
                if event.asked & CLOSE_RANGE_ON_EXECUTE == 0 {
                    let dropped = self.descriptors.remove_range(process, range);
                    self.drop_descriptors(&dropped, now_ns, Ending::Close);
                } else {
                    self.descriptors.close_range_on_execute(process, range);
                }
            }
            Operation::Duplicate => {
                let closes = event.asked & open_flag::CLOSE_ON_EXECUTE != 0;
                let descriptor = i32::try_from(event.result).unwrap_or(-1);
                if event.flags & flag::NO_FILE != 0 {
                    let replaced = self.descriptors.remove(process, descriptor);
                    self.drop_descriptors(replaced.as_slice(), now_ns, Ending::Close);
                } else if descriptor != event.descriptor {
                    self.hold(process, descriptor, fact.instance, closes, now_ns, Ending::Close);
                }
            }
            Operation::Control if event.argument == SET_CLOSE_ON_EXECUTE => {
                self.descriptors.close_on_execute(process, event.descriptor, true);
            }
            Operation::Control if event.argument == CLEAR_CLOSE_ON_EXECUTE => {
                self.descriptors.close_on_execute(process, event.descriptor, false);
            }
            Operation::Control if event.argument == SET_DESCRIPTOR_FLAGS => {
                self.descriptors.close_on_execute(process, event.descriptor, event.asked & 1 != 0);
            }
            Operation::Execute => {
                let change = self.descriptors.execute(process);
                self.change_descriptors(&change, now_ns, Ending::Execute);
            }
            _ => {}
        }
    }

    fn operation(&mut self, event: &Event, operation: Operation, behind: &[u8]) {
        let program = self.processes.current(event.process, event.thread, event.start_ns);
        let mut paths = texts(behind).filter(|(_, text)| !text.is_empty());
        let is_executed = operation == Operation::Execute && event.result >= 0;
        let [first, second] = if is_executed { [None, None] } else { [paths.next(), paths.next()] };
        let [first, second] =
            [first, second].map(|path| path.map(|(base, text)| self.files.path(base, text)));
        let mut fact = Fact {
            operation,
            start_ns: event.start_ns,
            duration_ns: event.duration_ns,
            program,
            thread: event.thread,
            file: None,
            other_file: None,
            instance: 0,
            descriptor: event.descriptor,
            result: event.result.max(0),
            error: u16::try_from(-event.result.clamp(-4095, 0)).unwrap_or(0),
            offset: event.offset,
            asked: event.asked,
            moved: 0,
            argument: event.argument,
            size: event.size,
            flags: event.flags,
            pages: event.pages,
        };
        fact.file = if event.file.is_some() {
            Some(self.files.of_identity(event.file, event.mode))
        } else {
            first.as_deref().map(|path| self.files.of_path(path))
        };
        if matches!(operation.class(), Class::Data | Class::Paging) {
            fact.moved = fact.result.unsigned_abs();
        }
        let is_about_descriptor =
            event.handle != 0 && !matches!(operation, Operation::Open | Operation::Close);
        if is_about_descriptor {
            fact.instance = self.instance_of(event, fact.file, program);
            if let Some(open) = self.open.get_mut(&fact.instance) {
                open.learn(&fact);
            }
        }
        if fact.error == 0 {
            self.follow_descriptors(event, operation, &mut fact);
            match (operation, first.as_deref(), second.as_deref()) {
                (Operation::Delete | Operation::RemoveDirectory, Some(path), _) => self.files.delete(path),
                (Operation::Rename, Some(from), Some(to)) if event.argument & RENAME_EXCHANGE != 0 => {
                    fact.other_file = Some(self.files.exchange(from, to));
                }
                (Operation::Rename, Some(from), Some(to)) => fact.other_file = self.files.rename(from, to),
                (Operation::Link, Some(from), Some(to)) => fact.other_file = Some(self.files.link(from, to)),
                _ => {}
            }
        }
        if is_executed {
            let name = texts(behind).next().map_or(&[][..], |(_, text)| trimmed(text));
            let now_ns = event.start_ns.saturating_add(event.duration_ns);
            let user = u32::try_from(event.argument).unwrap_or(u32::MAX);
            fact.program = self.processes.execute(event.process, event.thread, user, name, fact.file, now_ns);
        }
        let known = Known { files: &self.files, processes: &self.processes, head: &self.head };
        self.chronicler.operation(&fact, known);
    }
}

/// A name of the kernel's is as long as its field, and filled with zeros.
fn trimmed(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

impl<C: Chronicler> Listener for History<C> {
    fn head(&mut self, head: &Head) {
        self.files.know_mounts(&head.mounts);
        self.last_ns = head.began.monotonic_ns;
        for process in &head.processes {
            self.processes.was_there(process, head.began.monotonic_ns);
            for (_, identity, path) in &process.open {
                self.files.name(*identity, path.clone(), 0);
            }
        }
        self.head = head.clone();
    }

    fn event(&mut self, event: &Event, behind: &[u8]) {
        let Some(operation) = Operation::of_number(event.operation) else { return };
        self.last_ns = self.last_ns.max(event.start_ns.saturating_add(event.duration_ns));
        match operation {
            Operation::Name => {
                if let Some((_, parts)) = texts(behind).next() {
                    let mut path = files::path_of_parts(parts);
                    if event.result < 0 {
                        path.splice(..0, CUT.iter().copied());
                    }
                    self.files.name(event.file, path, event.mode);
                }
            }
            Operation::ProcessBegins => self.process_begins(event, behind),
            Operation::ProcessEnds => self.process_ends(event),
            _ => self.operation(event, operation, behind),
        }
    }

    fn moment(&mut self, moment: &Moment) {
        let expected = self.known().wall_ns(moment.monotonic_ns);
        let step_ns = moment.wall_ns.wrapping_sub(expected).cast_signed();
        if step_ns.unsigned_abs() > self.clock_step_ns.unsigned_abs() {
            self.clock_step_ns = step_ns;
        }
        self.last = *moment;
    }
}

#[cfg(test)]
mod tests;
