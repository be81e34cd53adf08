//! Runs threads, and has their stops answered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comb_kernel::objects::{Refused, Tag, ThreadId, ThreadLoad, Writeback};
use comb_kernel::space::SpaceError;
use comb_kernel::supervisor::{CallError, State};
use comb_kernel::thread::{Area, Registers, Stop, Touch};
use rustix::thread::sched_getcpu;
use thiserror::Error;

use super::{Answer, End, Handler, Scheduler, Stopped};
use crate::memory::{Arrival, FaultError, Resources, Segments};

/// As long it waits at most before it looks whether somebody is to give way.
const LOOK: Duration = Duration::from_millis(10);

/// How many threads run at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processors {
    /// One, on the processor of its kernel, which sleeps meanwhile.
    Own,
    /// So many, where the host puts them.
    Any(usize),
}

/// Why nothing runs any more.
#[derive(Debug, Error)]
pub enum DriverError {
    /// All threads wait, and nobody is there who could wake them.
    #[error("all {0} threads wait")]
    Stuck(usize),
    /// The supervisor refuses.
    #[error("the supervisor: {0}")]
    Calls(#[from] CallError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Ready,
    Runs(Instant),
    /// For a page that is on its way.
    Faults {
        address: u64,
        touch: Touch,
    },
    Waits,
}

#[derive(Debug)]
struct Thread {
    space: Tag,
    priority: u8,
    standing: Standing,
    loaded: Option<ThreadId>,
    /// Of one that is not loaded.
    state: State,
    /// It was let go on since its last stop was answered: the next one is new.
    goes: bool,
    /// It was unloaded before its stop was answered.
    unanswered: Option<Stop>,
    /// Where it was last.
    processor: Option<u32>,
}

/// Whether something was unloaded of which nobody has heard yet.
fn is_stale(error: CallError) -> bool {
    matches!(error, CallError::Refused(Refused::StaleSpace(_) | Refused::StaleThread(_)))
}

/// The threads and spaces of a kernel.
#[derive(Debug)]
pub struct Driver {
    /// The kernel's.
    pub resources: Resources,
    spaces: BTreeMap<Tag, Segments>,
    threads: BTreeMap<Tag, Thread>,
    scheduler: Box<dyn Scheduler>,
    processors: Processors,
    next_tag: u64,
    ended: BTreeMap<Tag, End>,
}

impl Driver {
    /// One without any yet.
    pub fn new(resources: Resources, scheduler: Box<dyn Scheduler>, processors: Processors) -> Self {
        let (spaces, threads, ended) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { resources, spaces, threads, scheduler, processors, next_tag: 1, ended }
    }

    fn tag(&mut self) -> Tag {
        self.next_tag += 1;
        Tag(self.next_tag - 1)
    }

    /// A space with nothing in it.
    pub fn add_space(&mut self) -> Tag {
        let tag = self.tag();
        self.spaces.insert(tag, Segments::new(tag));
        tag
    }

    /// What a space has, and the kernel's resources. Not of one that has ended.
    pub fn space(&mut self, space: Tag) -> Option<(&mut Segments, &mut Resources)> {
        Some((self.spaces.get_mut(&space)?, &mut self.resources))
    }

    /// A thread that is ready to run, in a space that is there.
    pub fn add_thread(&mut self, space: Tag, registers: Registers, priority: u8) -> Tag {
        let tag = self.tag();
        let state = State { registers, ..State::default() };
        let standing = Standing::Ready;
        let thread = Thread {
            space,
            priority,
            standing,
            loaded: None,
            state,
            goes: false,
            unanswered: None,
            processor: None,
        };
        self.threads.insert(tag, thread);
        self.scheduler.ready(tag, priority);
        tag
    }

    /// Runs until no thread is left: how each space has ended.
    pub fn run(&mut self, handler: &mut dyn Handler) -> Result<BTreeMap<Tag, End>, DriverError> {
        loop {
            self.hear()?;
            self.dispatch(handler)?;
            if self.threads.is_empty() {
                return Ok(std::mem::take(&mut self.ended));
            }
            let is_awaited = self.faulting().next().is_some();
            if self.running().next().is_none() && !is_awaited {
                return Err(DriverError::Stuck(self.threads.len()));
            }
            self.resources.set_awaited(is_awaited);
            let rang = self.resources.calls().bell().listen(0, Some(LOOK), |_| {});
            if !rang {
                // Whoever ended by itself does not ring.
                self.resources.calls().look_around();
            }
            self.hear()?;
            if is_awaited && (!rang || self.has_run()) {
                self.resources.next_round();
            }
            let faulting: Vec<Tag> = self.faulting().collect();
            for tag in faulting {
                self.fault_again(tag, handler)?;
            }
            let running: Vec<(Tag, Instant)> = self.running().collect();
            for (tag, since) in running {
                self.look(tag, since, handler)?;
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = (Tag, Instant)> {
        self.threads.iter().filter_map(|(tag, thread)| match thread.standing {
            Standing::Runs(since) => Some((*tag, since)),
            _ => None,
        })
    }

    /// Whether one of those that run has stopped again, or there are none.
    fn has_run(&mut self) -> bool {
        let Self { threads, resources, .. } = self;
        let mut running =
            threads.values().filter(|thread| matches!(thread.standing, Standing::Runs(_))).peekable();
        running.peek().is_none()
            || running
                .filter_map(|thread| thread.loaded)
                .any(|loaded| resources.calls().area(loaded).is_ok_and(Area::is_stopped))
    }

    fn faulting(&self) -> impl Iterator<Item = Tag> {
        let faults = |thread: &Thread| matches!(thread.standing, Standing::Faults { .. });
        self.threads.iter().filter(move |(_, thread)| faults(thread)).map(|(tag, _)| *tag)
    }

    /// Hears of all that was unloaded.
    fn hear(&mut self) -> Result<(), CallError> {
        while let Some(gone) = self.resources.take_writeback()? {
            match gone {
                Writeback::Mapping { space, page, modified, referenced, .. } => {
                    if let Some(segments) = self.spaces.get_mut(&space) {
                        segments.written_back(page, modified, referenced);
                    }
                }
                Writeback::Thread { tag, state } => self.unloaded(tag, *state),
                Writeback::Space { tag } => {
                    if let Some(segments) = self.spaces.get_mut(&tag) {
                        segments.space_written_back();
                    }
                }
                Writeback::Kernel { .. } => {}
            }
        }
        Ok(())
    }

    fn unloaded(&mut self, tag: Tag, state: State) {
        let Some(thread) = self.threads.get_mut(&tag) else { return };
        thread.loaded = None;
        match state.stop {
            None => {
                let space = thread.space;
                self.end(space, End::Harmed);
                return;
            }
            Some(stop) => {
                // A fault is repeated.
                let is_to_answer = matches!(stop, Stop::Call { .. } | Stop::Exception { .. });
                let is_new = std::mem::take(&mut thread.goes);
                thread.unanswered = thread.unanswered.or((is_to_answer && is_new).then_some(stop));
            }
        }
        thread.state = state;
        if let Standing::Runs(_) = thread.standing {
            thread.standing = Standing::Ready;
            self.scheduler.ready(tag, thread.priority);
        }
    }

    /// Has as many run as can.
    fn dispatch(&mut self, handler: &mut dyn Handler) -> Result<(), DriverError> {
        let most = match self.processors {
            Processors::Own => 1,
            Processors::Any(count) => count.max(1),
        };
        while self.running().count() < most {
            let Some(tag) = self.scheduler.next() else { return Ok(()) };
            let Some(thread) = self.threads.get_mut(&tag) else { continue };
            let (space, unanswered) = (thread.space, thread.unanswered.take());
            thread.standing = Standing::Runs(Instant::now());
            match self.load(tag) {
                Ok(()) => {}
                Err(CallError::Space(SpaceError::Gone)) => {
                    self.end(space, End::Harmed);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if !self.threads.contains_key(&tag) {
                continue;
            }
            match unanswered {
                Some(stop) => self.answer(tag, stop, handler)?,
                None => self.resume(tag)?,
            }
        }
        Ok(())
    }

    /// Loads a thread, if it is not, and its space before it.
    fn load(&mut self, tag: Tag) -> Result<(), CallError> {
        loop {
            // What was heard meanwhile may have ended it.
            let Some(thread) = self.threads.get_mut(&tag) else { return Ok(()) };
            if thread.loaded.is_some() {
                return Ok(());
            }
            let segments = self.spaces.get_mut(&thread.space).expect("a thread has a space");
            let space = segments.space(&mut self.resources)?;
            let load = ThreadLoad { tag, space, priority: thread.priority, locked: false };
            match self.resources.calls().load_thread(load, &thread.state, 0) {
                Ok(loaded) => {
                    (thread.loaded, thread.processor) = (Some(loaded), None);
                    return Ok(());
                }
                // It has gone, and nobody had heard of it yet. (§2)
                Err(error) if is_stale(error) => self.hear()?,
                Err(error) => return Err(error),
            }
        }
    }

    fn resume(&mut self, tag: Tag) -> Result<(), CallError> {
        let Some(thread) = self.threads.get_mut(&tag) else { return Ok(()) };
        let Some(loaded) = thread.loaded else { return Ok(()) };
        let mut result = Ok(());
        if self.processors == Processors::Own {
            let here = u32::try_from(sched_getcpu()).ok();
            if thread.processor != here {
                result = self.resources.calls().keep_on(loaded, here);
                thread.processor = here;
            }
        }
        match result.and_then(|()| self.resources.calls().area(loaded).map(Area::resume)) {
            Ok(()) => {
                thread.goes = true;
                Ok(())
            }
            Err(error) if is_stale(error) => self.hear(),
            result => result,
        }
    }

    /// Looks whether a thread that was to run does.
    fn look(&mut self, tag: Tag, since: Instant, handler: &mut dyn Handler) -> Result<(), DriverError> {
        // What happened to others may have ended it.
        let Some(thread) = self.threads.get(&tag) else { return Ok(()) };
        let (Some(loaded), Standing::Runs(_)) = (thread.loaded, thread.standing) else { return Ok(()) };
        let (space, priority) = (thread.space, thread.priority);
        let Ok(area) = self.resources.calls().area(loaded) else { return Ok(()) };
        if !area.is_stopped() {
            if self.scheduler.gives_way(tag, priority, since.elapsed()) {
                self.resources.calls().interrupt(loaded)?;
            }
            return Ok(());
        }
        match area.stop() {
            None => self.end(space, End::Harmed),
            Some(Stop::Interrupted | Stop::Begins) => self.goes_on(tag, true)?,
            Some(stop) => self.answer(tag, stop, handler)?,
        }
        Ok(())
    }

    /// A thread that was stopped goes on, now or when it is its turn.
    fn goes_on(&mut self, tag: Tag, must_queue: bool) -> Result<(), CallError> {
        // What it was answered may have ended it.
        let Some(thread) = self.threads.get_mut(&tag) else { return Ok(()) };
        let gives_way = match thread.standing {
            Standing::Runs(since) => {
                must_queue || self.scheduler.gives_way(tag, thread.priority, since.elapsed())
            }
            // Others have run meanwhile.
            Standing::Faults { .. } => true,
            Standing::Ready | Standing::Waits => return Ok(()),
        };
        if gives_way {
            thread.standing = Standing::Ready;
            self.scheduler.ready(tag, thread.priority);
            return Ok(());
        }
        self.resume(tag)
    }

    fn answer(&mut self, tag: Tag, stop: Stop, handler: &mut dyn Handler) -> Result<(), DriverError> {
        let Some(registers) = self.registers(tag, stop)? else { return Ok(()) };
        let failed = match stop {
            Stop::Fault { address, touch } => match self.fault(tag, address, touch)? {
                None => return Ok(()),
                failed => failed,
            },
            _ => None,
        };
        self.decide(tag, stop, failed, registers, handler)
    }

    /// The registers of a thread that has stopped. Nothing: it has ended, or its stop is answered when it is there again.
    fn registers(&mut self, tag: Tag, stop: Stop) -> Result<Option<Registers>, CallError> {
        let thread = self.threads.get_mut(&tag).expect("who is stopped is there");
        let space = thread.space;
        let Some(loaded) = thread.loaded else { return Ok(None) };
        thread.goes = false;
        let registers = match self.resources.calls().area(loaded) {
            Ok(area) => area.registers(),
            Err(error) if is_stale(error) => {
                self.threads.entry(tag).and_modify(|thread| thread.unanswered = Some(stop));
                self.hear()?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if registers.is_none() {
            self.end(space, End::Harmed);
        }
        Ok(registers)
    }

    /// Has a fault answered by the thread's segments. If others can run, it is not waited for what is slow. Why it cannot be, if it can not.
    fn fault(&mut self, tag: Tag, address: u64, touch: Touch) -> Result<Option<FaultError>, CallError> {
        let thread = &self.threads[&tag];
        let (space, is_again) = (thread.space, matches!(thread.standing, Standing::Faults { .. }));
        let has_others =
            self.threads.iter().any(|(other, it)| *other != tag && it.standing != Standing::Waits);
        let segments = self.spaces.get_mut(&space).expect("a thread has a space");
        let arrival = if is_again || has_others {
            self.resources.set_awaited(true);
            segments.begin_fault(&mut self.resources, address, touch)
        } else {
            segments.fault(&mut self.resources, address, touch).map(|()| Arrival::Here)
        };
        match arrival {
            Ok(Arrival::Here) => self.goes_on(tag, false)?,
            Ok(Arrival::OnItsWay) => {
                let standing = Standing::Faults { address, touch };
                self.threads.entry(tag).and_modify(|thread| thread.standing = standing);
            }
            // It will fault again.
            Err(FaultError::Calls(error)) if is_stale(error) => self.hear()?,
            Err(error) => return Ok(Some(error)),
        }
        Ok(None)
    }

    /// Something may have moved for which a thread waits.
    fn fault_again(&mut self, tag: Tag, handler: &mut dyn Handler) -> Result<(), DriverError> {
        // What happened to others may have ended it.
        let Some(thread) = self.threads.get(&tag) else { return Ok(()) };
        let Standing::Faults { address, touch } = thread.standing else { return Ok(()) };
        let Some(error) = self.fault(tag, address, touch)? else { return Ok(()) };
        if self.threads[&tag].loaded.is_none() {
            // It faults again when it is loaded.
            return Ok(self.goes_on(tag, true)?);
        }
        let stop = Stop::Fault { address, touch };
        let Some(registers) = self.registers(tag, stop)? else { return Ok(()) };
        self.decide(tag, stop, Some(error), registers, handler)
    }

    /// Has the kernel's handler say what becomes of a thread.
    fn decide(
        &mut self,
        tag: Tag,
        stop: Stop,
        failed: Option<FaultError>,
        registers: Registers,
        handler: &mut dyn Handler,
    ) -> Result<(), DriverError> {
        let space = self.threads[&tag].space;
        let segments = self.spaces.get_mut(&space).expect("a thread has a space");
        let (mut woken, mut begun) = (Vec::new(), Vec::new());
        let resources = &mut self.resources;
        let mut stopped = Stopped {
            thread: tag,
            space,
            registers,
            segments,
            resources,
            woken: &mut woken,
            begun: &mut begun,
        };
        let answer = match (failed, stop) {
            (Some(error), _) => handler.failed(&mut stopped, error),
            (None, Stop::Call { is_foreign: false }) => handler.call(&mut stopped),
            (None, stop) => handler.exception(&mut stopped, stop),
        };
        let registers = stopped.registers;
        for (registers, priority) in begun {
            self.add_thread(space, registers, priority);
        }
        for (other, result) in woken {
            self.wake(other, result)?;
        }
        match answer {
            Answer::Returns(result) => self.set(tag, &Registers { rax: result, ..registers })?,
            Answer::GoesOn => self.set(tag, &registers)?,
            Answer::Waits => {
                self.threads.entry(tag).and_modify(|thread| thread.standing = Standing::Waits);
                return Ok(());
            }
            Answer::Leaves => {
                self.leave(tag)?;
                return Ok(());
            }
            Answer::Ends(end) => {
                self.end(space, end);
                return Ok(());
            }
        }
        Ok(self.goes_on(tag, false)?)
    }

    /// Changes what a thread goes on with.
    fn set(&mut self, tag: Tag, registers: &Registers) -> Result<(), CallError> {
        let Some(thread) = self.threads.get_mut(&tag) else { return Ok(()) };
        let space = thread.space;
        if let Some(loaded) = thread.loaded {
            match self.resources.calls().area(loaded).map(|area| area.set_registers(registers)) {
                Ok(Some(())) => return Ok(()),
                Ok(None) => {
                    self.end(space, End::Harmed);
                    return Ok(());
                }
                Err(error) if is_stale(error) => self.hear()?,
                Err(error) => return Err(error),
            }
        }
        if let Some(thread) = self.threads.get_mut(&tag) {
            (thread.state.registers, thread.unanswered) = (*registers, None);
        }
        Ok(())
    }

    /// A thread that waited goes on: its call returned this. Whether it did wait.
    pub fn wake(&mut self, tag: Tag, result: u64) -> Result<bool, CallError> {
        let Some(thread) = self.threads.get_mut(&tag) else { return Ok(false) };
        if thread.standing != Standing::Waits {
            return Ok(false);
        }
        thread.standing = Standing::Ready;
        self.scheduler.ready(tag, thread.priority);
        let registers = match thread.loaded {
            None => Some(thread.state.registers),
            Some(loaded) => match self.resources.calls().area(loaded) {
                Ok(area) => area.registers(),
                Err(error) if is_stale(error) => {
                    self.hear()?;
                    self.threads.get(&tag).map(|thread| thread.state.registers)
                }
                Err(error) => return Err(error),
            },
        };
        match registers {
            Some(registers) => self.set(tag, &Registers { rax: result, ..registers })?,
            None => self.end_of(tag),
        }
        Ok(true)
    }

    fn end_of(&mut self, tag: Tag) {
        if let Some(space) = self.threads.get(&tag).map(|thread| thread.space) {
            self.end(space, End::Harmed);
        }
    }

    fn leave(&mut self, tag: Tag) -> Result<(), CallError> {
        let Some(thread) = self.threads.remove(&tag) else { return Ok(()) };
        self.scheduler.forget(tag);
        if let Some(loaded) = thread.loaded {
            match self.resources.calls().unload_thread(loaded) {
                Err(error) if !is_stale(error) => return Err(error),
                _ => {}
            }
        }
        if !self.threads.values().any(|other| other.space == thread.space) {
            self.end(thread.space, End::LastThread);
        }
        Ok(())
    }

    fn end(&mut self, space: Tag, end: End) {
        let of_space: Vec<Tag> =
            self.threads.iter().filter(|(_, thread)| thread.space == space).map(|(tag, _)| *tag).collect();
        for tag in of_space {
            self.threads.remove(&tag);
            self.scheduler.forget(tag);
        }
        if let Some(mut segments) = self.spaces.remove(&space) {
            // What it has left is unloaded with it; what cannot be given back is the supervisor's.
            let _ = segments.end(&mut self.resources);
            self.ended.insert(space, end);
        }
    }
}
