//! The emulator as an application kernel: what it asks of a machine, done by a supervisor.
//!
//! A supervisor is a cache. What it has replaced is loaded again when it is needed: spaces by an empty one, whose pages come back by their
//! faults, threads in the state in which they were written back. The emulator does not notice, and its numbers for both stay as they are.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use comb_kernel::calls::Calls;
use comb_kernel::frames::GROUP_FRAMES;
use comb_kernel::objects::{
    self, Mapping, Refused, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad, Writeback,
};
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::{CallError, State};
use comb_kernel::thread::{self, Stop, Touch};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::machine::{Access, Event, Frame, Machine, Registers, Rights};
use crate::watching::Watch;

/// Threads ring, but a hostile one can silence the bell for others of its own emulator. So all are looked at this often.
const LOOK_AROUND: Duration = Duration::from_millis(50);

/// While descriptors of the host are waited for, they are looked at this often at first, and then less.
const FIRST_POLL: Duration = Duration::from_micros(100);
const LAST_POLL: Duration = Duration::from_millis(4);

/// A space, by the emulator's own number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Space(u32);

/// A thread, by the emulator's own number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Thread(u32);

#[derive(Debug)]
enum Whereabouts {
    Loaded(ThreadId),
    WrittenBack(Box<State>),
    Ended,
}

/// Of those that the emulator knows, 0 to 31.
const MIDDLE_PRIORITY: u8 = 16;

#[derive(Debug)]
struct Entry {
    space: u32,
    whereabouts: Whereabouts,
    /// Nobody has stopped it yet, as far as the emulator has been told.
    runs: bool,
    /// As it was when it stopped, with what the emulator has changed since.
    registers: Registers,
    /// The only processor on which it runs.
    kept_on: Option<u32>,
    priority: u8,
}

/// A kernel of a supervisor, which is this emulator.
#[derive(Debug)]
pub struct Supervised<C> {
    calls: C,
    /// By their numbers.
    spaces: Vec<Option<SpaceId>>,
    threads: Vec<Entry>,
    /// Who has a slot of the supervisor's.
    by_slot: Vec<u32>,
    /// Who may have stopped.
    rung: VecDeque<u32>,
    granted_groups: u32,
    /// More memory was wanted than there is.
    is_exhausted: bool,
    /// How long a thread and the emulator wait for each other before they sleep.
    spins: u32,
    /// How many threads run, as far as the emulator has been told.
    running: usize,
    /// For how many resumptions none but the one that was resumed has run.
    alone: u32,
    processors: CpuSet,
    /// Where the emulator stays, and keeps its thread, while only one runs at a time.
    stays_on: Option<u32>,
    watch: Option<Watch>,
}

/// After so many resumptions of one thread at a time, there is nothing to be gained from other processors, and to wake somebody there takes long.
const ALONE: u32 = 32;

impl<C: Calls> Supervised<C> {
    /// The kernel whose calls these are, with room for so many threads at a time.
    pub fn new(calls: C, sizes: Sizes, spins: u32) -> Self {
        Self {
            calls,
            spaces: Vec::new(),
            threads: Vec::new(),
            by_slot: vec![u32::MAX; sizes.threads as usize],
            rung: VecDeque::new(),
            granted_groups: 0,
            is_exhausted: false,
            spins,
            running: 0,
            alone: 0,
            processors: sched_getaffinity(None).unwrap_or_default(),
            stays_on: None,
            watch: None,
        }
    }

    /// Whether programs wanted more memory than there is.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Where a thread is to run that is about to.
    fn choose_processor(&mut self, number: u32) {
        self.alone = if self.running > 0 { 0 } else { self.alone.saturating_add(1) };
        let is_to_stay = self.spins == 0 && self.alone >= ALONE;
        if is_to_stay != self.stays_on.is_some() {
            self.stays_on = is_to_stay.then(|| u32::try_from(sched_getcpu()).ok()).flatten();
            let mut own = self.processors;
            if let Some(processor) = self.stays_on {
                own = CpuSet::new();
                own.set(processor as usize);
            }
            let _ = sched_setaffinity(None, &own);
        }
        let wanted = self.stays_on;
        let entry = &mut self.threads[number as usize];
        if entry.kept_on != wanted
            && let Whereabouts::Loaded(thread) = entry.whereabouts
        {
            entry.kept_on = wanted;
            let _ = self.ask(|calls| calls.keep_on(thread, wanted));
        }
    }

    /// What the supervisor has written back is kept until it is loaded again.
    fn hear(&mut self) {
        while let Ok(Some(writeback)) = self.calls.take_writeback() {
            match writeback {
                Writeback::Mapping { .. } | Writeback::Kernel { .. } => {}
                Writeback::Space { tag } => {
                    if let Some(space) =
                        usize::try_from(tag.0).ok().and_then(|number| self.spaces.get_mut(number))
                    {
                        *space = None;
                    }
                }
                Writeback::Thread { tag, state } => {
                    let number = u32::try_from(tag.0).expect("tags are numbers of threads");
                    let entry = &mut self.threads[number as usize];
                    if !matches!(entry.whereabouts, Whereabouts::Ended) {
                        entry.whereabouts = Whereabouts::WrittenBack(state);
                        self.rung.push_back(number);
                    }
                }
            }
        }
    }

    /// Asks the supervisor until it has no objection that time or a writeback resolves.
    fn ask<T>(&mut self, mut call: impl FnMut(&mut C) -> Result<T, CallError>) -> Result<T, CallError> {
        loop {
            let result = call(&mut self.calls);
            self.hear();
            match result {
                Err(CallError::Refused(Refused::Behind { .. })) => {}
                other => return other,
            }
        }
    }

    fn space(&mut self, space: u32) -> Result<SpaceId, CallError> {
        if let Some(loaded) = self.spaces[space as usize] {
            return Ok(loaded);
        }
        let load = SpaceLoad { tag: Tag(space.into()), locked: false };
        let loaded = self.ask(|calls| calls.load_space(load))?;
        self.spaces[space as usize] = Some(loaded);
        Ok(loaded)
    }

    /// Loads a thread that is not, in this state. It is stopped.
    fn load(&mut self, number: u32, state: &State) -> Result<ThreadId, CallError> {
        let Entry { space, priority, .. } = self.threads[number as usize];
        let space = self.space(space)?;
        let load = ThreadLoad { tag: Tag(number.into()), space, priority, locked: false };
        let spins = self.spins;
        let loaded = self.ask(|calls| calls.load_thread(load, state, spins))?;
        self.by_slot[usize::from(loaded.slot())] = number;
        let entry = &mut self.threads[number as usize];
        entry.whereabouts = Whereabouts::Loaded(loaded);
        // A runner of the host may be one that was kept somewhere before.
        entry.kept_on = None;
        let _ = self.ask(|calls| calls.keep_on(loaded, None));
        Ok(loaded)
    }

    fn add(&mut self, space: u32, state: &State) -> Option<Thread> {
        let number = u32::try_from(self.threads.len()).ok()?;
        let registers = told(state);
        let whereabouts = Whereabouts::WrittenBack(Box::default());
        self.threads.push(Entry {
            space,
            whereabouts,
            runs: false,
            registers,
            kept_on: None,
            priority: USUAL_PRIORITY,
        });
        match self.load(number, state) {
            Ok(_) => Some(Thread(number)),
            Err(_) => {
                self.threads[number as usize].whereabouts = Whereabouts::Ended;
                None
            }
        }
    }

    /// A stopped thread's state, with the registers that the emulator has given it.
    fn state(&self, number: u32) -> Option<State> {
        let entry = &self.threads[number as usize];
        let vectors = match &entry.whereabouts {
            Whereabouts::Loaded(thread) => self.calls.area(*thread).ok()?.vectors()?,
            Whereabouts::WrittenBack(state) => state.vectors.clone(),
            Whereabouts::Ended => return None,
        };
        let (registers, segments) = given(&entry.registers);
        Some(State { registers, segments, vectors, ..new_state() })
    }

    /// The event of a thread that has stopped, if it has and nobody has been told.
    fn event_of(&mut self, number: u32) -> Option<Event<Thread>> {
        let entry = &mut self.threads[number as usize];
        if !entry.runs {
            return None;
        }
        let stop = match &entry.whereabouts {
            Whereabouts::Ended => return None,
            Whereabouts::Loaded(thread) => {
                let area = self.calls.area(*thread).ok()?;
                if !area.is_stopped() {
                    return None;
                }
                let registers = area.registers();
                entry.registers = told(&State {
                    registers: registers.unwrap_or_default(),
                    segments: area.segments(),
                    ..State::default()
                });
                registers.and(area.stop())
            }
            Whereabouts::WrittenBack(state) => {
                entry.registers = told(state);
                if state.stop == Some(Stop::Interrupted) {
                    // Only the supervisor wanted that.
                    self.resume(Thread(number));
                    return None;
                }
                state.stop
            }
        };
        self.threads[number as usize].runs = false;
        self.running -= 1;
        let thread = Thread(number);
        Some(match stop {
            Some(Stop::Call { is_foreign: false }) => Event::Call { thread },
            Some(Stop::Call { is_foreign: true }) => {
                Event::Exception { thread, signal: libc::SIGSYS, code: 0, address: 0 }
            }
            Some(Stop::Fault { address, touch }) => {
                let access = match touch {
                    Touch::Read => Access::Read,
                    Touch::Write => Access::Write,
                    Touch::Execute => Access::Execute,
                };
                Event::Fault { thread, address, access }
            }
            Some(Stop::Exception { signal, code, address }) => {
                Event::Exception { thread, signal, code, address }
            }
            Some(Stop::Interrupted | Stop::Begins) => Event::Interrupted { thread },
            // It has harmed itself.
            None => Event::Exception { thread, signal: libc::SIGKILL, code: 0, address: 0 },
        })
    }
}

/// What a thread begins with, of which the emulator wants to know how much it uses.
fn new_state() -> State {
    State { used: Some(Duration::ZERO), ..State::default() }
}

/// A state's registers, as the emulator knows them.
fn told(state: &State) -> Registers {
    let thread::Registers {
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        flags,
    } = state.registers;
    let [fs_base, gs_base] = state.segments;
    Registers {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        rip,
        rflags: flags,
        rsp,
        fs_base,
        gs_base,
    }
}

/// And the other way around.
fn given(registers: &Registers) -> (thread::Registers, [u64; 2]) {
    let &Registers {
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
        rip,
        rflags: flags,
        rsp,
        fs_base,
        gs_base,
    } = registers;
    let general = thread::Registers {
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        flags,
    };
    (general, [fs_base, gs_base])
}

/// Where things are in an image of vector registers.
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
const FEATURES_AT: usize = 472;
const HEADER: usize = 512;

fn word<const N: usize>(image: &[u8], at: usize) -> Option<[u8; N]> {
    image.get(at..at + N)?.try_into().ok()
}

/// An image that the processor takes where it takes this one, with as much of another as can be.
fn acceptable(own: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let mask = match u32::from_le_bytes(word(own, MXCSR_MASK)?) {
        0 => 0xffbf,
        mask => mask,
    };
    if u32::from_le_bytes(word(other, MXCSR)?) & !mask != 0 {
        return None;
    }
    if own.len() <= HEADER + 64 {
        let mut image = own.to_vec();
        image[..464].copy_from_slice(other.get(..464)?);
        return Some(image);
    }
    let features = u64::from_le_bytes(word(own, FEATURES_AT)?);
    let wanted = u64::from_le_bytes(word(other, HEADER)?);
    let is_plain = other.get(HEADER + 8..HEADER + 64)?.iter().all(|byte| *byte == 0);
    if other.len() < own.len() || wanted & !features != 0 || !is_plain {
        return None;
    }
    let mut image = other[..own.len()].to_vec();
    // What says how long it is, and its end, are the host's.
    image[464..512].copy_from_slice(&own[464..512]);
    let end = own.len() - 4;
    image[end..].copy_from_slice(&own[end..]);
    Some(image)
}

/// The vector state that a program begins with.
fn first_vectors() -> Vec<u8> {
    let mut image = vec![0; HEADER];
    image[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
    image[MXCSR..MXCSR + 4].copy_from_slice(&0x1f80_u32.to_le_bytes());
    image
}

impl<C: Calls> Machine for Supervised<C> {
    type Space = Space;
    type Thread = Thread;

    fn addresses(&self) -> Range<u64> {
        0x1_0000..comb_kernel::space::PROGRAMS_END
    }

    fn memory(&self) -> NonNull<u8> {
        self.calls.memory()
    }

    fn grant(&mut self) -> Option<Range<u32>> {
        loop {
            let group = self.granted_groups;
            if group >= self.calls.groups() {
                self.is_exhausted = true;
                return None;
            }
            self.granted_groups += 1;
            if self.calls.may_write(group) {
                return Some(group * GROUP_FRAMES..(group + 1) * GROUP_FRAMES);
            }
        }
    }

    fn load_space(&mut self) -> Option<Space> {
        let number = u32::try_from(self.spaces.len()).ok()?;
        self.spaces.push(None);
        self.space(number).ok().map(|_| Space(number))
    }

    fn end_space(&mut self, space: Space) {
        if let Some(loaded) = self.spaces[space.0 as usize] {
            let _ = self.ask(|calls| calls.unload_space(loaded));
        }
    }

    fn map(&mut self, space: Space, page: u64, frame: Frame, count: u64, rights: Rights) {
        let Ok(loaded) = self.space(space.0) else { return };
        let mapping = Mapping {
            writable: rights.write,
            executable: rights.execute,
            // The emulator has its own idea of what was modified.
            stored: rights.write,
            ..Mapping::read(loaded, page, frame.0.into())
        };
        let count = u32::try_from(count).expect("what is mapped at once is not much");
        // Whatever is not loaded now is loaded at its next fault.
        let _ = self.ask(|calls| calls.load_mappings(&mapping, count));
    }

    fn forbid_writes(&mut self, space: Space, page: u64, count: u64, _rights: Rights) {
        if let Some(loaded) = self.spaces[space.0 as usize] {
            let _ = self.ask(|calls| calls.forbid_writes(loaded, page, count));
        }
    }

    fn unmap(&mut self, space: Space, page: u64, count: u64) {
        if let Some(loaded) = self.spaces[space.0 as usize] {
            let _ = self.ask(|calls| calls.unload_mappings(loaded, page, count));
        }
    }

    fn load_thread(&mut self, space: Space, registers: &Registers) -> Option<Thread> {
        let (registers, segments) = given(registers);
        self.add(space.0, &State { registers, segments, ..new_state() })
    }

    fn fork_thread(&mut self, of: Thread, space: Space) -> Option<Thread> {
        let state = self.state(of.0)?;
        self.add(space.0, &state)
    }

    fn registers(&mut self, thread: Thread) -> &mut Registers {
        &mut self.threads[thread.0 as usize].registers
    }

    fn vector_state(&mut self, thread: Thread) -> Vec<u8> {
        let vectors = self.state(thread.0).map(|state| state.vectors).unwrap_or_default();
        if vectors.is_empty() { first_vectors() } else { vectors }
    }

    fn set_vector_state(&mut self, thread: Thread, image: &[u8]) -> bool {
        let own = self.vector_state(thread);
        let Some(image) = acceptable(&own, image) else { return false };
        match &mut self.threads[thread.0 as usize].whereabouts {
            Whereabouts::Loaded(loaded) => {
                let area = self.calls.area(*loaded);
                area.is_ok_and(|area| area.set_vectors(&image).is_some())
            }
            Whereabouts::WrittenBack(state) => {
                state.vectors = image;
                true
            }
            Whereabouts::Ended => false,
        }
    }

    fn resume(&mut self, thread: Thread) {
        let number = thread.0;
        if !self.threads[number as usize].runs {
            self.choose_processor(number);
            self.running += 1;
        }
        let entry = &mut self.threads[number as usize];
        entry.runs = true;
        let (registers, segments) = given(&entry.registers);
        let loaded = match &entry.whereabouts {
            Whereabouts::Loaded(loaded) => Some(*loaded),
            Whereabouts::WrittenBack(state) => {
                let (vectors, used) = (state.vectors.clone(), state.used);
                let state = State { registers, segments, vectors, used, ..State::default() };
                self.load(number, &state).ok()
            }
            Whereabouts::Ended => return,
        };
        let area = loaded.and_then(|loaded| self.calls.area(loaded).ok());
        let is_set = area.is_some_and(|area| {
            area.set_segments(segments);
            let is_set = area.set_registers(&registers).is_some();
            if is_set {
                area.resume();
            }
            is_set
        });
        if !is_set {
            // It cannot go on: its next event says so.
            self.threads[number as usize].whereabouts = Whereabouts::WrittenBack(Box::default());
            self.rung.push_back(number);
        }
    }

    fn interrupt(&mut self, thread: Thread) {
        let entry = &self.threads[thread.0 as usize];
        if let (true, Whereabouts::Loaded(loaded)) = (entry.runs, &entry.whereabouts) {
            let loaded = *loaded;
            let is_running = self.calls.area(loaded).is_ok_and(|area| !area.is_stopped());
            if is_running {
                let _ = self.ask(|calls| calls.interrupt(loaded));
            }
        }
    }

    fn prefer(&mut self, thread: Thread, priority: u8) {
        // The host's weights differ by a quarter from one to the next, so a few of ours are one of its own.
        let priority = USUAL_PRIORITY - MIDDLE_PRIORITY / 4 + priority / 4;
        let entry = &mut self.threads[thread.0 as usize];
        if priority == entry.priority {
            return;
        }
        entry.priority = priority;
        if let Whereabouts::Loaded(loaded) = entry.whereabouts {
            // If it is not loaded any more, it will be with this one.
            let _ = self.ask(|calls| calls.set_priority(loaded, priority));
        }
    }

    fn end_thread(&mut self, thread: Thread) {
        let entry = &mut self.threads[thread.0 as usize];
        self.running -= usize::from(entry.runs);
        entry.runs = false;
        let whereabouts = std::mem::replace(&mut entry.whereabouts, Whereabouts::Ended);
        if let Whereabouts::Loaded(loaded) = whereabouts {
            let _ = self.ask(|calls| calls.unload_thread(loaded));
        }
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>) {
        if self.watch.is_none() {
            self.watch = Watch::new(self.calls.bell().ringer()).ok();
        }
        // Where it cannot be watched, it is looked at from time to time.
        if let Some(watch) = &self.watch {
            let _ = watch.add(descriptor);
        }
    }

    fn used(&mut self, thread: Thread) -> Duration {
        if let Whereabouts::Loaded(loaded) = self.threads[thread.0 as usize].whereabouts
            && let Ok(used) = self.ask(|calls| calls.used(loaded))
        {
            return used.unwrap_or_default();
        }
        match &self.threads[thread.0 as usize].whereabouts {
            Whereabouts::WrittenBack(state) => state.used.unwrap_or_default(),
            // It has harmed itself, and its space is gone.
            Whereabouts::Loaded(_) | Whereabouts::Ended => Duration::ZERO,
        }
    }

    fn next_event(&mut self, until: Option<Instant>, descriptors: &mut [libc::pollfd]) -> Event<Thread> {
        let mut slice = FIRST_POLL;
        loop {
            while let Some(number) = self.rung.pop_front() {
                if let Some(event) = self.event_of(number) {
                    return event;
                }
            }
            if !descriptors.is_empty() && crate::polled::is_any_ready(descriptors) {
                return Event::Ready;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Event::Timeout;
            }
            let mut limit = left.unwrap_or(LOOK_AROUND).min(LOOK_AROUND);
            if !descriptors.is_empty() {
                if self.running == 0 {
                    // Nobody is there to ring.
                    crate::polled::wait(descriptors, limit);
                    limit = Duration::ZERO;
                } else {
                    limit = limit.min(slice);
                    slice = (slice * 2).min(LAST_POLL);
                }
            }
            let Self { calls, rung, by_slot, spins, .. } = self;
            let has_rung = calls.bell().listen(*spins, Some(limit), |slot| {
                rung.extend(by_slot.get(slot as usize).filter(|number| **number != u32::MAX));
            });
            if !has_rung {
                self.calls.look_around();
                self.hear();
                let running = self.threads.iter().enumerate().filter(|(_, entry)| entry.runs);
                self.rung.extend(running.filter_map(|(number, _)| u32::try_from(number).ok()));
            }
        }
    }
}

const _: () = assert!(objects::FRAMES_IN_GROUP.is_multiple_of(16));
