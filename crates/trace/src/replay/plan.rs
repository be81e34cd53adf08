//! From a trace to what is to be done.

mod actions;
mod room;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use foldhash::fast::RandomState;

use self::room::Room;
use super::descriptors::{Descriptors, SlotId};
use super::namespace::{Kind, Namespace, NodeId, Origin, Prior, ROOT};
use super::order::{At, Order, Thing, Workers};
use super::step::{Action, PathId, Step};
use crate::Operation;
use crate::event::{Event, Identity, flag, texts};
use crate::file_type;
use crate::trace_file::{Head, Listener, Moment, TraceFileError, read_trace};

/// So many threads replay at once, unless told otherwise: of more in the trace, several are done by one.
pub const MOST_WORKERS: u16 = 64;

/// Why an operation of a trace is not done again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Left {
    /// It was about a pipe, a socket, a device, or nothing that was open.
    NoFile,
    /// The kernel makes up what is in that file.
    OfKernel,
    /// Nobody told what the directory is called from which its path starts.
    Unnamed,
    /// A trace says that it was done, but not with what: which attribute, which control.
    NotRecorded,
    /// It was interrupted, or would have had to wait.
    Interrupted,
    /// The kernel does it by itself.
    OfItself,
}

impl Left {
    /// In words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoFile => "about no file",
            Self::OfKernel => "about a file that the kernel makes up",
            Self::Unnamed => "below a directory whose name is not in the trace",
            Self::NotRecorded => "with what is not recorded",
            Self::Interrupted => "interrupted, or would have waited",
            Self::OfItself => "done by the kernel by itself",
        }
    }
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// What it was called when it was opened.
    pub(super) path: PathId,
    pub(super) content: u32,
}

/// What is to be there before a replay, and what is to be done.
#[derive(Default)]
pub struct Plan {
    pub(super) workers: Vec<Vec<Step>>,
    pub(super) paths: Vec<Box<[u8]>>,
    pub(super) slots: Vec<Slot>,
    pub(super) priors: Vec<Prior>,
    /// What there is in the end.
    pub(super) present: Vec<Box<[u8]>>,
    /// Of each file the most that it was long.
    pub(super) sizes: Vec<u64>,
    pub(super) programs: BTreeMap<u32, Vec<u8>>,
    pub(super) room_bytes: u64,
    pub(super) recorded_ns: u64,
    pub(super) left: BTreeMap<(Operation, Left), u64>,
    pub(super) are_names_hashed: bool,
    fault: Option<TraceFileError>,
}

impl Plan {
    /// Reads a trace whole. One that was cut off or damaged is good up to there; see [`Self::fault`]. It takes about 120 bytes of memory for
    /// each operation.
    pub fn read(trace: impl Read, most_workers: u16) -> Result<Self, TraceFileError> {
        let mut planner = Planner::new(most_workers);
        let fault = match read_trace(trace, &mut planner) {
            Ok(()) => None,
            Err(error) if error.leaves_good_part() => Some(error),
            Err(error) => return Err(error),
        };
        Ok(Self { fault, ..planner.finish() })
    }

    /// How many operations are to be done.
    pub fn operations(&self) -> u64 {
        self.workers.iter().flatten().filter(|step| step.is_recorded).count() as u64
    }

    /// How many threads do them.
    pub const fn threads(&self) -> usize {
        self.workers.len()
    }

    /// How many files and directories must be there before.
    pub const fn prior_files(&self) -> usize {
        self.priors.len()
    }

    /// How much room what is written takes at most at one time.
    pub const fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// Operations that are not done again, and why.
    pub const fn left(&self) -> &BTreeMap<(Operation, Left), u64> {
        &self.left
    }

    /// Where the trace was cut off or damaged.
    pub const fn fault(&self) -> Option<&TraceFileError> {
        self.fault.as_ref()
    }

    pub(super) fn path(&self, path: PathId) -> &[u8] {
        &self.paths[path.0 as usize]
    }

    pub(super) fn slot(&self, slot: SlotId) -> &Slot {
        &self.slots[slot.0 as usize]
    }

    /// All that is done, in the order of the trace.
    pub(super) fn in_order(&self) -> Vec<&Step> {
        let mut all: Vec<&Step> = self.workers.iter().flatten().collect();
        all.sort_by_key(|step| step.number);
        all
    }
}

/// Follows a trace.
struct Planner {
    plan: Plan,
    names: Namespace,
    descriptors: Descriptors,
    order: Order,
    workers: Workers,
    room: Room,
    path_ids: HashMap<Box<[u8]>, PathId, RandomState>,
    path_parents: Vec<Option<PathId>>,
    contents: HashMap<Identity, u32, RandomState>,
    /// Files through which pages are touched, and where that was done last.
    mapped: HashMap<Identity, (SlotId, At), RandomState>,
    of_kernel: HashMap<u32, bool, RandomState>,
    kernel_places: Vec<Vec<u8>>,
    last_of_process: HashMap<u32, At, RandomState>,
    /// What a new thread waits for: what its maker did before.
    begun_after: HashMap<u32, At, RandomState>,
    first_ns: Option<u64>,
    number: u64,
    has_page_ins: bool,
}

impl Planner {
    fn new(most_workers: u16) -> Self {
        Self {
            plan: Plan::default(),
            names: Namespace::default(),
            descriptors: Descriptors::default(),
            order: Order::default(),
            workers: Workers::new(most_workers),
            room: Room::default(),
            path_ids: HashMap::default(),
            path_parents: Vec::new(),
            contents: HashMap::default(),
            mapped: HashMap::default(),
            of_kernel: HashMap::default(),
            kernel_places: Vec::new(),
            last_of_process: HashMap::default(),
            begun_after: HashMap::default(),
            first_ns: None,
            number: 0,
            has_page_ins: true,
        }
    }

    fn finish(mut self) -> Plan {
        // Nobody touches these any more: they are closed by who did it last, when all others have.
        let mut mapped: Vec<(SlotId, At)> = self.mapped.into_values().collect();
        mapped.sort_by_key(|(slot, _)| *slot);
        for (slot, At { worker, position }) in mapped {
            let steps = &mut self.plan.workers[usize::from(worker)];
            let last = steps[position as usize].clone();
            let at = At { worker, position: u32::try_from(steps.len()).expect("steps are counted") };
            self.order.touch(at, Thing::Open(slot.0), true);
            let after = self.order.take(at);
            let operation = Operation::Close;
            steps.push(Step { operation, action: Action::Close(slot), is_recorded: false, after, ..last });
        }
        self.plan.room_bytes = self.room.most_bytes();
        self.plan.present = self.names.present().map(Vec::into_boxed_slice).collect();
        self.plan.priors = self.names.into_priors();
        self.plan
    }

    /// Adds a step, which uses these things together with others or alone.
    fn push(
        &mut self,
        event: &Event,
        operation: Operation,
        action: Action,
        is_recorded: bool,
        uses: &[(Thing, bool)],
    ) -> At {
        let worker = self.workers.of(event.thread);
        let index = usize::from(worker);
        if self.plan.workers.len() <= index {
            self.plan.workers.resize_with(index + 1, Vec::new);
        }
        let position = u32::try_from(self.plan.workers[index].len())
            .expect("a worker has fewer than four thousand million steps");
        let at = At { worker, position };
        for &(thing, alone) in uses {
            self.order.touch(at, thing, alone);
        }
        // Whoever uses a name uses all above it.
        for &(thing, _) in uses {
            let Thing::Name(name) = thing else { continue };
            let mut above = self.path_parents[name as usize];
            while let Some(PathId(path)) = above {
                self.order.touch(at, Thing::Name(path), false);
                above = self.path_parents[path as usize];
            }
        }
        if let Some(before) = self.begun_after.remove(&event.thread) {
            self.order.wait_for(before);
        }
        let first_ns = *self.first_ns.get_or_insert(event.start_ns);
        let start_ns = event.start_ns.saturating_sub(first_ns);
        self.plan.recorded_ns = self.plan.recorded_ns.max(start_ns.saturating_add(event.duration_ns));
        let after = self.order.take(at);
        let (process, result, number) = (event.process, event.result, self.number);
        self.plan.workers[index].push(Step {
            operation,
            action,
            is_recorded,
            process,
            start_ns,
            result,
            number,
            after,
        });
        self.last_of_process.insert(event.process, at);
        at
    }

    fn path(&mut self, at: NodeId) -> PathId {
        let path = self.names.path(at);
        self.path_id(path.into_boxed_slice())
    }

    fn path_id(&mut self, path: Box<[u8]>) -> PathId {
        if let Some(&known) = self.path_ids.get(&path) {
            return known;
        }
        let parent = match path.iter().rposition(|&byte| byte == b'/') {
            Some(end) => Some(self.path_id(path[..end].into())),
            None if *path != *b"." => Some(self.path_id((*b".").into())),
            None => None,
        };
        let new =
            PathId(u32::try_from(self.plan.paths.len()).expect("paths are fewer than four thousand million"));
        self.plan.paths.push(path.clone());
        self.path_parents.push(parent);
        self.path_ids.insert(path, new);
        new
    }

    fn content(&mut self, file: Identity) -> u32 {
        let next = u32::try_from(self.plan.sizes.len()).expect("files are fewer than four thousand million");
        let content = *self.contents.entry(file).or_insert(next);
        if content == next {
            self.plan.sizes.push(0);
        }
        content
    }

    /// Where a text of an event leads; why nowhere.
    fn target(&mut self, base: Identity, text: &[u8]) -> Result<NodeId, Left> {
        // No system call takes such a path.
        if text.is_empty() || text.contains(&0) {
            return Err(Left::NoFile);
        }
        let base = if text.starts_with(b"/") { ROOT } else { self.base(base)? };
        let at = self.names.follow(base, text);
        if self.is_place_of_kernel(at) { Err(Left::OfKernel) } else { Ok(at) }
    }

    fn base(&mut self, directory: Identity) -> Result<NodeId, Left> {
        if !directory.is_some() {
            return Err(Left::Unnamed);
        }
        self.names.base(directory).ok_or(Left::Unnamed)
    }

    fn is_place_of_kernel(&self, at: NodeId) -> bool {
        let path = self.names.path(at);
        self.kernel_places.iter().any(|place| {
            path.strip_prefix(place.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    }

    fn is_file_of_kernel(&self, file: Identity) -> bool {
        self.of_kernel.get(&file.device).is_some_and(|&is_so| is_so)
    }

    /// Something is there; who made it unseen is replaced.
    fn is_there(&mut self, event: &Event, at: NodeId, kind: Option<Kind>, size: Option<u64>) {
        if self.names.is_there(at, kind, size) == Origin::Unexplained {
            self.appear(event, at, kind == Some(Kind::Directory), size.unwrap_or(0));
        }
    }

    fn make(&mut self, event: &Event, at: NodeId) {
        if self.names.make(at) == Origin::Unexplained {
            self.appear(event, self.names.parent(at), true, 0);
        }
    }

    fn appear(&mut self, event: &Event, at: NodeId, is_directory: bool, size: u64) {
        let path = self.path(at);
        let action = Action::Appear { path, is_directory, size };
        self.push(event, Operation::Make, action, false, &[(Thing::Name(path.0), true)]);
    }

    fn close(&mut self, event: &Event, slots: Vec<SlotId>) {
        for slot in slots {
            self.push_close(event, slot, false);
        }
    }

    fn push_close(&mut self, event: &Event, slot: SlotId, is_recorded: bool) {
        let content = self.plan.slot(slot).content;
        let uses = [(Thing::Open(slot.0), true), (Thing::Content(content), false)];
        self.push(event, Operation::Close, Action::Close(slot), is_recorded, &uses);
    }

    /// A new place for an open file.
    fn add_slot(&mut self, slot: SlotId, path: PathId, file: Identity) {
        assert_eq!(slot.0 as usize, self.plan.slots.len(), "descriptors count as we do");
        let content = self.content(file);
        self.plan.slots.push(Slot { path, content });
    }
}

impl Listener for Planner {
    fn head(&mut self, head: &Head) {
        for mount in &head.mounts {
            let is_so = file_type::is_of_kernel(&mount.kind);
            self.of_kernel.insert(mount.device, is_so);
            let place: Vec<u8> = mount.place.iter().copied().skip_while(|&byte| byte == b'/').collect();
            if is_so && !place.is_empty() {
                self.kernel_places.push(place);
            }
        }
        self.has_page_ins = !head.lacks.iter().any(|what| what.contains("mapped"));
        self.plan.are_names_hashed = head.are_names_hashed;
        for process in &head.processes {
            self.plan.programs.insert(process.number, process.name.clone());
            for (_, file, path) in &process.open {
                let at = self.names.follow(ROOT, path);
                self.names.bind(at, *file);
            }
        }
    }

    fn event(&mut self, event: &Event, behind: &[u8]) {
        self.number += 1;
        let Some(operation) = Operation::of_number(event.operation) else { return };
        match operation {
            Operation::Name => {
                if let Some((_, parts)) = texts(behind).next() {
                    self.names.name(event.file, parts);
                }
            }
            Operation::ProcessBegins => {
                let parent = u32::try_from(event.argument).unwrap_or(0);
                self.descriptors.begin(parent, event.process, event.flags & flag::SHARES != 0);
                if let Some(&before) = self.last_of_process.get(&parent) {
                    self.begun_after.insert(event.thread, before);
                }
                self.program(event, behind);
            }
            Operation::ProcessEnds => {
                let closed = self.descriptors.end(event.process);
                self.close(event, closed);
                self.workers.end(event.thread);
            }
            Operation::Execute if event.result >= 0 => {
                let closed = self.descriptors.execute(event.process);
                self.close(event, closed);
                self.program(event, behind);
                self.act(event, operation, behind);
            }
            _ => self.act(event, operation, behind),
        }
    }

    fn moment(&mut self, _moment: &Moment) {}
}

impl Planner {
    /// What a process is called.
    fn program(&mut self, event: &Event, behind: &[u8]) {
        if let Some((_, name)) = texts(behind).next() {
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            self.plan.programs.insert(event.process, name.to_vec());
        }
    }

    /// An operation, with what it needs.
    fn act(&mut self, event: &Event, operation: Operation, behind: &[u8]) {
        const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
        let interrupted = [rustix::io::Errno::INTR, rustix::io::Errno::AGAIN];
        let is_interrupted = RESTARTS.contains(&event.result)
            || interrupted.iter().any(|error| event.result == -i64::from(error.raw_os_error()));
        let result =
            if is_interrupted { Err(Left::Interrupted) } else { self.plan_one(event, operation, behind) };
        if let Err(why) = result {
            *self.plan.left.entry((operation, why)).or_default() += 1;
        }
    }
}
