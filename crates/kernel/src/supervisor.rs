//! The cache kernel itself: the tables of what is loaded, and the machine that does what they say.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::frames::{Frame, Frames, GROUP_FRAMES};
use crate::host::Rights;
use crate::objects::{
    Access, FRAMES_IN_GROUP, Groups, Hardware, KernelDescriptor, KernelId, KernelLoad, Loaded, Locks,
    Mapping, Objects, Receiver, Refused, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad, ThreadView,
    Writeback,
};
use crate::scheduling::{Class, Process, Thread};
use crate::shares::Meter;
use crate::space::{Bell, Common, Space, SpaceError};
use crate::thread::{Area, Registers, Stop};

mod grants;
mod processors;

/// Who is told to stop has this long. A thread that computes stops in microseconds, once it has a processor.
const PATIENCE: Duration = Duration::from_millis(500);

/// Who has not stopped by then has no processor.
const HURRY: Duration = Duration::from_millis(1);

/// Why a call of the supervisor did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CallError {
    /// The tables refuse it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The machine cannot. What was loaded for it is unloaded again, and written back.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// More threads than a space can have.
    #[error("the space has as many threads as it can have")]
    Crowded,
    /// A state that no thread can have had.
    #[error("no thread can have this state")]
    BadState,
    /// The supervisor was not told which process the kernel is.
    #[error("the kernel has no process that the supervisor knows of")]
    NoProcess,
    /// Who is asked is not there any more, or does not answer in a way that can be understood.
    #[error("the supervisor is gone")]
    NoSupervisor,
    /// The kernel itself was written back meanwhile, and is loaded again. Of all that it had loaded nothing is, which it hears of as of any writeback.
    #[error("the kernel was swapped out and in again")]
    Reloaded,
}

/// All that a thread needs to go on, in this space or another.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct State {
    /// General registers.
    pub registers: Registers,
    /// Where its segments are.
    pub segments: [u64; 2],
    /// Vector registers and the like, as in a signal frame. Empty: as they are at the beginning.
    pub vectors: Vec<u8>,
    /// Why it was stopped. Nothing: it has not run, or does not say, for its space has harmed itself.
    pub stop: Option<Stop>,
    /// The function that hears of messages while it computes, as [`Area::set_signal_function`] says. 0: none, it looks for them itself.
    pub signal_function: u64,
    /// Signals that it has not taken, as its ring has them.
    pub signals: Vec<u64>,
    /// With what it goes on when its signal function ends. Nothing: it is not in that.
    pub interrupted: Option<Interrupted>,
    /// How much of the processors it has used so far. Nothing: its kernel does not want to know, and nobody looks.
    pub used: Option<Duration>,
}

/// What a signal function has interrupted.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Interrupted {
    /// General registers.
    pub registers: Registers,
    /// Vector registers and the like, as of a state.
    pub vectors: Vec<u8>,
}

/// A space that is loaded, and its areas.
#[derive(Debug)]
struct Place {
    kernel: KernelId,
    space: Space,
    /// Areas whose thread is parked.
    free: Vec<u32>,
    /// The host's threads, by their area.
    threads: Vec<Thread>,
    /// It does not do what its code does, and was ended.
    is_harmed: bool,
}

impl Place {
    /// Waits until a thread has stopped, which it is about to: as soon as it has a processor. If others do not let it have one, it is preferred to them; its
    /// class comes back when it is loaded again.
    fn wait_until_stopped(&mut self, area: u32) {
        let since = Instant::now();
        while !Area::of(&self.space, area).is_stopped() && !self.is_harmed {
            match since.elapsed() {
                passed if passed > PATIENCE => Machine::harm(self),
                passed if passed > HURRY && self.space.has_ended() => Machine::harm(self),
                passed if passed > HURRY => {
                    self.threads[area as usize].prefer(Class::STOPPING, false);
                    std::thread::sleep(HURRY);
                }
                _ => std::thread::yield_now(),
            }
        }
        // It may only say that it has stopped.
        self.threads[area as usize].prefer(Class::NEW, false);
    }
}

#[derive(Clone, Copy, Debug)]
struct Runner {
    space: u16,
    area: u32,
    /// What it had used when it was loaded, and its host's thread.
    began: Option<[Duration; 2]>,
}

impl Runner {
    /// What it has used by now, if somebody wants to know.
    fn used(self, of_host: &Thread) -> Option<Duration> {
        let [before, began] = self.began?;
        let since = of_host.used().map_or(Duration::ZERO, |now| now.saturating_sub(began));
        Some(before.saturating_add(since))
    }
}

/// What is under the tables.
#[derive(Debug)]
struct Machine {
    frames: Frames,
    common: Common,
    /// By slot, as all that follows.
    spaces: Vec<Option<Place>>,
    threads: Vec<Option<Runner>>,
    meter: Meter,
    /// Those of the kernels that are no first ones have processes of their own.
    processes: Vec<(KernelId, Process)>,
}

impl Machine {
    fn place(&mut self, space: SpaceId) -> &mut Place {
        self.spaces[usize::from(space.slot())].as_mut().expect("what is loaded has a place")
    }

    /// A space has shown that it cannot be relied on: its process ends, and with it all that it could reach.
    fn harm(place: &mut Place) {
        place.is_harmed = true;
        place.space.end();
    }
}

impl Hardware for Machine {
    type State = Box<State>;

    fn stop(&mut self, thread: ThreadId) -> Box<State> {
        for place in self.spaces.iter_mut().flatten() {
            if !place.is_harmed && place.space.close_port(thread.to_word()).is_err() {
                Self::harm(place);
            }
        }
        // One that could not be started has none.
        let Some(runner) = self.threads[usize::from(thread.slot())].take() else { return Box::default() };
        let place = self.spaces[usize::from(runner.space)].as_mut().expect("a thread has a space");
        place.charge(&mut self.meter);
        if !Area::of(&place.space, runner.area).is_stopped() {
            let _ = place.space.interrupt(place.threads[runner.area as usize].number);
            place.wait_until_stopped(runner.area);
        }
        if place.is_harmed {
            return Box::default();
        }
        let Some(state) = Area::of(&place.space, runner.area).state() else {
            Self::harm(place);
            return Box::default();
        };
        place.free.push(runner.area);
        Box::new(State { used: runner.used(&place.threads[runner.area as usize]), ..state })
    }

    fn unmap(&mut self, space: SpaceId, first_page: u64, pages: u64, modified: &mut dyn FnMut(u64)) {
        let place = self.place(space);
        if !place.is_harmed && place.space.unmap(first_page, pages, modified).is_err() {
            Self::harm(place);
        }
        if place.is_harmed {
            place.space.all_stretches(first_page, pages, modified);
        }
    }

    fn end_space(&mut self, space: SpaceId) {
        self.spaces[usize::from(space.slot())] = None;
    }
}

/// What threads find at a page: until its copy is made, what it is to be a copy of.
fn seen_frame(mapping: &Mapping) -> u64 {
    mapping.copy_of.unwrap_or(mapping.frame)
}

/// A supervisor: one of a cell, whose error is that cell's end and no other's. (Cache Kernel §3)
#[derive(Debug)]
pub struct Supervisor {
    objects: Objects<Box<State>>,
    machine: Machine,
    /// The kernels' bells, by slot.
    bells: Vec<Option<Bell>>,
    first: KernelId,
    /// Until when what was used is charged.
    charged_until: Instant,
    /// Memory that is no group's now, by name.
    away: BTreeMap<Tag, VecDeque<OwnedFd>>,
}

impl Supervisor {
    /// One with so many page groups of memory, and its first kernel, which has them all.
    pub fn new(sizes: Sizes, groups: u32) -> Result<(Self, KernelId), CallError> {
        let host = |error| SpaceError::Host { action: "give memory", error };
        let frames = u64::from(groups) * FRAMES_IN_GROUP;
        let descriptor = KernelDescriptor {
            groups: Groups::new(frames, Access::ReadWrite),
            processor_shares: Vec::new(),
            maximum_priority: u8::MAX,
            locks: Locks {
                kernels: sizes.kernels / 4,
                spaces: sizes.spaces / 4,
                threads: sizes.threads / 4,
                mappings: sizes.mappings / 4,
            },
        };
        let (objects, first) = Objects::new(sizes, frames, Tag(0), descriptor)?;
        let machine = Machine {
            frames: Frames::new(groups).map_err(host)?,
            common: Common::new().map_err(host)?,
            spaces: (0..sizes.spaces).map(|_| None).collect(),
            threads: (0..sizes.threads).map(|_| None).collect(),
            meter: Meter::new(processors::count(), sizes.kernels),
            processes: Vec::new(),
        };
        let mut bells: Vec<Option<Bell>> = (0..sizes.kernels).map(|_| None).collect();
        bells[usize::from(first.slot())] = Some(Bell::new().map_err(host)?);
        let (charged_until, away) = (Instant::now(), BTreeMap::new());
        Ok((Self { objects, machine, bells, first, charged_until, away }, first))
    }

    /// The first kernel, which is always there.
    pub fn first(&self) -> KernelId {
        self.first
    }

    /// What is loaded, to be looked at.
    pub fn objects(&self) -> &Objects<Box<State>> {
        &self.objects
    }

    /// All frames.
    pub fn frames(&self) -> &Frames {
        &self.machine.frames
    }

    /// Where a kernel listens: its threads ring by the number of their slot.
    pub fn bell(&self, kernel: KernelId) -> Result<&Bell, CallError> {
        self.objects.kernel(kernel)?;
        Ok(self.bells[usize::from(kernel.slot())].as_ref().expect("what is loaded has a bell"))
    }

    /// Where a thread of the caller's is: its area, of those of its space.
    pub(crate) fn area_number(&self, thread: ThreadId) -> Option<u32> {
        self.machine.threads.get(usize::from(thread.slot()))?.map(|runner| runner.area)
    }

    /// The memory of a space's areas.
    pub(crate) fn areas_of(&self, space: SpaceId) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.machine.spaces.get(usize::from(space.slot()))?.as_ref()?.space.areas())
    }

    /// The thread that has a slot now.
    pub fn ringer(&self, number: u32) -> Option<Area<'_>> {
        let runner = (*self.machine.threads.get(number as usize)?)?;
        let place = self.machine.spaces[usize::from(runner.space)].as_ref()?;
        Some(Area::of(&place.space, runner.area))
    }

    /// What others keep of the tables does not hold any more, once something has gone.
    fn publish(&self) {
        self.machine.common.publish_version(self.objects.map_version());
    }

    /// Loads a kernel. Only the first can.
    pub fn load_kernel(
        &mut self,
        caller: KernelId,
        load: KernelLoad<Box<State>>,
    ) -> Result<KernelId, CallError> {
        let bell = Bell::new().map_err(|error| SpaceError::Host { action: "give memory", error })?;
        let shares = load.descriptor.processor_shares.clone();
        let kernel = self.objects.load_kernel(&mut self.machine, caller, load);
        self.publish();
        let kernel = kernel?;
        self.machine.meter.set(kernel, &shares);
        self.bells[usize::from(kernel.slot())] = Some(bell);
        Ok(kernel)
    }

    /// Unloads a kernel, with all that it has loaded. Only the first can.
    pub fn unload_kernel(&mut self, caller: KernelId, kernel: KernelId) -> Result<(), CallError> {
        self.objects.unload_kernel(&mut self.machine, caller, kernel)?;
        self.publish();
        self.machine.meter.close(kernel);
        self.machine.processes.retain(|(of, _)| *of != kernel);
        self.bells[usize::from(kernel.slot())] = None;
        Ok(())
    }

    /// Loads a space, with nothing in it.
    pub fn load_space(&mut self, caller: KernelId, load: SpaceLoad) -> Result<SpaceId, CallError> {
        self.bell(caller)?;
        let space = self.objects.load_space(&mut self.machine, caller, load);
        self.publish();
        let space = space?;
        let bell = self.bells[usize::from(caller.slot())].as_ref().expect("the caller has a bell");
        let made = Space::new(&self.machine.common, bell);
        let error = made.as_ref().err().copied();
        let place = made.ok().map(|space| Place {
            kernel: caller,
            space,
            free: Vec::new(),
            threads: Vec::new(),
            is_harmed: false,
        });
        self.machine.spaces[usize::from(space.slot())] = place;
        match error {
            None => Ok(space),
            Some(error) => {
                self.objects.unload_space(&mut self.machine, caller, space)?;
                Err(error.into())
            }
        }
    }

    /// Loads a thread, stopped in this state: [`Area::resume`] lets it go on.
    pub fn load_thread(
        &mut self,
        caller: KernelId,
        load: ThreadLoad,
        state: &State,
        spins: u32,
    ) -> Result<ThreadId, CallError> {
        if !Area::can_have(state) {
            return Err(CallError::BadState);
        }
        let thread = self.objects.load_thread(&mut self.machine, caller, load);
        self.publish();
        let thread = thread?;
        let number = thread.slot();
        let space = load.space.slot();
        let place = self.machine.spaces[usize::from(space)].as_mut().expect("what is loaded has a place");
        match Self::start(place, number, state, spins) {
            Ok(area) => {
                let thread_of_host = &mut place.threads[area as usize];
                let began = state.used.map(|before| [before, thread_of_host.used().unwrap_or_default()]);
                self.machine.threads[usize::from(number)] = Some(Runner { space, area, began });
                thread_of_host.priority = load.priority;
                place.prefer(area, &self.machine.meter);
                Ok(thread)
            }
            Err(error) => {
                self.objects.unload_thread(&mut self.machine, caller, thread)?;
                Err(error)
            }
        }
    }

    /// Stops a thread of the host's in an area, in this state.
    fn start(place: &mut Place, number: u16, state: &State, spins: u32) -> Result<u32, CallError> {
        if place.is_harmed {
            return Err(SpaceError::Gone.into());
        }
        let area = match place.free.pop() {
            Some(area) => {
                Area::of(&place.space, area).give(number.into(), spins);
                area
            }
            None => {
                if place.threads.len() as u64 >= crate::stub::layout::MOST_THREADS {
                    return Err(CallError::Crowded);
                }
                let area = u32::try_from(place.threads.len()).expect("few");
                let thread = place.space.add_thread(area, &state.registers, number.into(), spins)?;
                place.threads.push(Thread::new(place.space.process(), thread));
                area
            }
        };
        place.wait_until_stopped(area);
        if place.is_harmed {
            return Err(SpaceError::Gone.into());
        }
        let shown = Area::of(&place.space, area);
        if shown.set_state(state).is_none() {
            Machine::harm(place);
            return Err(SpaceError::Gone.into());
        }
        if !state.signals.is_empty() && shown.is_to_be_told() {
            place.space.tell_of_message(place.threads[area as usize].number)?;
        }
        Ok(area)
    }

    /// Loads mappings of neighbouring pages to neighbouring frames, of which the first is given. After an error, those before the one
    /// that it is about are loaded.
    pub fn load_mappings(&mut self, caller: KernelId, first: &Mapping, count: u32) -> Result<(), CallError> {
        let mut done = 0;
        while done < count {
            // As long as there is room, none of these takes another's; and a group's memory is mapped by itself.
            let room = self.objects.free_records() / 3;
            let next = first.neighbour(done);
            let in_group = u64::from(GROUP_FRAMES) - seen_frame(&next) % u64::from(GROUP_FRAMES);
            let some = (count - done).min(room.max(1)).min(u32::try_from(in_group).expect("at most a group"));
            done += self.load_some(caller, &next, some)?;
        }
        Ok(())
    }

    /// How many it did: some of them, or all.
    fn load_some(&mut self, caller: KernelId, first: &Mapping, count: u32) -> Result<u32, CallError> {
        // What is to become a copy is not stored to before it is one.
        let rights = Rights { write: first.writable && first.copy_of.is_none(), execute: first.executable };
        let mut changed = 0;
        while changed < count {
            if !self.objects.change_rights(caller, &first.neighbour(changed))? {
                break;
            }
            changed += 1;
        }
        if changed > 0 {
            let place = self.machine.place(first.space);
            if place.space.protect(first.page, changed.into(), |_| rights).is_err() {
                Machine::harm(place);
            }
            return Ok(changed);
        }
        let mut loaded = 0;
        let mut result = Ok(());
        for index in 0..count {
            match self.objects.load_mapping(&mut self.machine, caller, &first.neighbour(index)) {
                Ok(Loaded::Stays) => loaded += 1,
                // It comes back by its next fault.
                Ok(Loaded::Displaced) => break,
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            }
        }
        if loaded > 0 {
            let frame = Frame(u32::try_from(seen_frame(first)).expect("the tables have taken it"));
            let Machine { frames, spaces, .. } = &mut self.machine;
            let place = spaces[usize::from(first.space.slot())].as_mut().expect("the tables have found it");
            if let Err(error) =
                place.space.map_stored(frames, first.page, frame, loaded, rights, first.stored)
            {
                self.objects.unload_mappings(
                    &mut self.machine,
                    caller,
                    first.space,
                    first.page,
                    loaded.into(),
                )?;
                return Err(error.into());
            }
        }
        self.publish();
        result.map(|()| count)
    }

    /// Makes the copy that a page is to become, as its kernel asks for at the first store, and maps it. What is a copy already stays as it is. (§4.1)
    pub fn make_copy(&mut self, caller: KernelId, space: SpaceId, page: u64) -> Result<(), CallError> {
        if self.objects.space(space)?.kernel != caller {
            return Err(Refused::ForeignSpace(space).into());
        }
        let mapping = self.objects.mapping(space, page)?;
        let Some(source) = mapping.copy_of else { return Ok(()) };
        let (frame, wanted) = (mapping.frame, Access::ReadWrite);
        if self.objects.kernel(caller)?.groups.of_frame(frame) < wanted {
            return Err(Refused::NoAccess { frame, wanted }.into());
        }
        let [from, to] =
            [source, frame].map(|frame| Frame(u32::try_from(frame).expect("the tables have taken it")));
        let Machine { frames, spaces, .. } = &mut self.machine;
        let place = spaces[usize::from(space.slot())].as_mut().expect("what is loaded has a place");
        frames.copy(from, to);
        let rights = Rights { write: mapping.writable, execute: mapping.executable };
        let mapped = place
            .space
            .unmap(page, 1, &mut |_| {})
            .and_then(|()| place.space.map_stored(frames, page, to, 1, rights, true));
        match mapped {
            Ok(()) => Ok(self.objects.copied(space, page)?),
            Err(error) => {
                Machine::harm(place);
                Err(error.into())
            }
        }
    }

    /// Takes the right to store away from all that is mapped in a range.
    pub fn forbid_writes(
        &mut self,
        caller: KernelId,
        space: SpaceId,
        page: u64,
        pages: u64,
    ) -> Result<(), CallError> {
        self.objects.forbid_writes(caller, space, page, pages)?;
        let place = self.machine.place(space);
        if place.space.protect(page, pages, |rights| Rights { write: false, ..rights }).is_err() {
            Machine::harm(place);
        }
        Ok(())
    }

    /// Unloads what is mapped in a range: how much that was.
    pub fn unload_mappings(
        &mut self,
        caller: KernelId,
        space: SpaceId,
        page: u64,
        pages: u64,
    ) -> Result<u32, CallError> {
        let unloaded = self.objects.unload_mappings(&mut self.machine, caller, space, page, pages);
        self.publish();
        Ok(unloaded?)
    }

    /// Unloads a thread.
    pub fn unload_thread(&mut self, caller: KernelId, thread: ThreadId) -> Result<(), CallError> {
        let unloaded = self.objects.unload_thread(&mut self.machine, caller, thread);
        self.publish();
        Ok(unloaded?)
    }

    /// Unloads a space, with its threads and mappings.
    pub fn unload_space(&mut self, caller: KernelId, space: SpaceId) -> Result<(), CallError> {
        let unloaded = self.objects.unload_space(&mut self.machine, caller, space);
        self.publish();
        Ok(unloaded?)
    }

    /// Unloads spaces whose process has ended by itself: a program can bring that about. To be called now and then.
    pub fn sweep(&mut self) {
        let has_ended = |place: &Place| place.is_harmed || place.space.has_ended();
        let ended =
            self.machine.spaces.iter().enumerate().filter(|(_, place)| place.as_ref().is_some_and(has_ended));
        let slots: Vec<usize> = ended.map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(space) = self.objects.space_at(slot) else { continue };
            let Ok(view) = self.objects.space(space) else { continue };
            Machine::harm(self.machine.place(space));
            let _ = self.objects.unload_space(&mut self.machine, view.kernel, space);
        }
        self.publish();
    }

    /// Has a thread of the caller's run on this processor only, or on any that its space may run on.
    pub fn keep_on(
        &mut self,
        caller: KernelId,
        thread: ThreadId,
        processor: Option<u32>,
    ) -> Result<(), CallError> {
        let view = self.objects.thread(thread)?;
        if view.kernel != caller {
            return Err(Refused::ForeignThread(thread).into());
        }
        if let Some(runner) = self.machine.threads[usize::from(thread.slot())] {
            let place = self.machine.place(view.space);
            place.space.keep_on(place.threads[runner.area as usize].number, processor);
        }
        Ok(())
    }

    /// Delivers a message: an address of this space, as their own addresses, to all threads that are signalled by its page. To how many. If it is one, and has no
    /// signal function, threads of this space can do it themselves from now on, until something is unloaded. (§2.2, §4.1)
    pub fn signal(&mut self, caller: KernelId, space: SpaceId, address: u64) -> Result<u32, CallError> {
        if self.objects.space(space)?.kernel != caller {
            return Err(Refused::ForeignSpace(space).into());
        }
        let (page, offset) = (address >> 12, address & 0xfff);
        let receivers: Vec<Receiver> = self.objects.receivers(space, page)?.collect();
        let (mut delivered, mut has_function) = (0, false);
        for receiver in &receivers {
            let Some(runner) = self.machine.threads[usize::from(receiver.thread.slot())] else { continue };
            let Some(place) = &self.machine.spaces[usize::from(runner.space)] else { continue };
            let area = Area::of(&place.space, runner.area);
            delivered += u32::from(area.signal(receiver.page << 12 | offset));
            if area.is_to_be_told() && !place.is_harmed {
                // One that is gone hears nothing.
                let _ = place.space.tell_of_message(place.threads[runner.area as usize].number);
            }
            has_function |= area.has_signal_function();
        }
        if let [receiver] = receivers[..]
            && !has_function
            && let Some(runner) = self.machine.threads[usize::from(receiver.thread.slot())]
        {
            self.publish();
            let version = self.objects.map_version();
            let spaces = &mut self.machine.spaces;
            let areas = spaces[usize::from(runner.space)]
                .as_ref()
                .map(|place| place.space.areas().as_fd().try_clone_to_owned());
            let place = spaces[usize::from(space.slot())].as_mut().expect("what is loaded has a place");
            if let Some(Ok(areas)) = areas {
                let names = [receiver.page, receiver.thread.to_word(), version];
                if place.space.translate(page, names, areas.as_fd(), runner.area).is_err() {
                    Machine::harm(place);
                }
            }
        }
        Ok(delivered)
    }

    /// Has another thread hear of the messages of a page.
    pub fn redirect(
        &mut self,
        caller: KernelId,
        space: SpaceId,
        page: u64,
        thread: ThreadId,
    ) -> Result<(), CallError> {
        let redirected = self.objects.redirect(caller, space, page, thread);
        self.publish();
        Ok(redirected?)
    }

    /// Stops a thread of the caller's wherever it is: it rings.
    pub fn interrupt(&mut self, caller: KernelId, thread: ThreadId) -> Result<(), CallError> {
        let view = self.objects.thread(thread)?;
        if view.kernel != caller {
            return Err(Refused::ForeignThread(thread).into());
        }
        let number = usize::from(thread.slot());
        let runner = self.machine.threads[number].expect("what is loaded has a runner");
        let place = self.machine.place(view.space);
        Ok(place.space.interrupt(place.threads[runner.area as usize].number)?)
    }

    /// What is said of a thread that is loaded.
    pub fn thread(&self, thread: ThreadId) -> Result<ThreadView, CallError> {
        Ok(self.objects.thread(thread)?)
    }

    /// The area of a thread of the caller's.
    pub fn area(&self, caller: KernelId, thread: ThreadId) -> Result<Area<'_>, CallError> {
        let view = self.objects.thread(thread)?;
        if view.kernel != caller {
            return Err(Refused::ForeignThread(thread).into());
        }
        Ok(self.ringer(thread.slot().into()).expect("what is loaded has a runner"))
    }

    /// The oldest object that was unloaded and of which its owner has not heard.
    pub fn take_writeback(&mut self, kernel: KernelId) -> Result<Option<Writeback<Box<State>>>, CallError> {
        Ok(self.objects.take_writeback(kernel)?)
    }
}
