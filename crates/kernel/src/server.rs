//! A supervisor in a process of its own, which serves kernels in others.
//!
//! All kernels are served by one thread, one request at a time, in turn. None can stop it: a request is copied and checked, an answer needs nothing of
//! who gets it, and a kernel that dies is unloaded.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::frames::GROUP_FRAMES;
use crate::host::{self, Shared};
use crate::objects::{Access, KernelId, Writeback};
use crate::scheduling::Class;
use crate::stub::layout::AREA_BYTES;
use crate::supervisor::{CallError, State, Supervisor};
use crate::wire::{
    ANSWERED, ASKED, Answer, CLOSED, COUNTER_BYTES, Failure, Gone, KERNEL_SLEEPS, MOST_DESCRIPTORS, Request,
    SUPERVISOR_SLEEPS, TOLD, TURN, WAITING, put, send_descriptors, take, understood, word_of_groups,
};

/// Where one kernel asks.
#[derive(Debug)]
struct Counter {
    kernel: KernelId,
    memory: Shared,
    /// The kernel wakes the supervisor by it.
    wakes: OwnedFd,
    socket: UnixStream,
    /// Page groups that it has been given or has lost, and of which it could not be told yet.
    untold: BTreeSet<u32>,
    /// Of a kernel of which the first has just heard: what that had not heard.
    handing: VecDeque<Writeback<Box<State>>>,
    /// What the first kernel has handed over for the next that it loads.
    handed: VecDeque<Writeback<Box<State>>>,
}

/// A supervisor and the kernels that it serves.
#[derive(Debug)]
pub struct Server {
    supervisor: Supervisor,
    counters: Vec<Counter>,
    /// Until when who has used up his share waits to be served.
    next_tick: Instant,
}

const _: () = assert!(AREA_BYTES * 2 <= COUNTER_BYTES as u64);

impl Server {
    /// One that serves nobody yet.
    pub fn new(supervisor: Supervisor) -> Self {
        Self { supervisor, counters: Vec::new(), next_tick: Instant::now() }
    }

    /// Its supervisor.
    pub fn supervisor(&mut self) -> &mut Supervisor {
        &mut self.supervisor
    }

    /// Opens a counter for a kernel that is loaded. Whoever has the other end is that kernel: see [`crate::client::Client`].
    pub fn open(&mut self, kernel: KernelId) -> Result<UnixStream, Errno> {
        let (socket, other) =
            UnixStream::pair().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let file = host::memory(c"comb-counter", COUNTER_BYTES as u64)?;
        let memory = Shared::map(file.as_fd(), COUNTER_BYTES)?;
        let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = self.supervisor.bell(kernel).map_err(|_| Errno::INVAL)?;
        let groups = self.supervisor.frames().len() / GROUP_FRAMES;
        send_descriptors(&socket, groups.into(), &[file.as_fd(), wakes.as_fd(), bell.file.as_fd()])?;
        let mut all: BTreeSet<u32> = (0..groups).filter(|group| self.may_write(kernel, *group)).collect();
        self.send_groups(&socket, kernel, &mut all, &mut 0)?;
        // After them comes a number that is none of a group.
        send_descriptors(&socket, u64::MAX, &[])?;
        let (untold, handing, handed) = (BTreeSet::new(), VecDeque::new(), VecDeque::new());
        self.counters.push(Counter { kernel, memory, wakes, socket, untold, handing, handed });
        Ok(other)
    }

    fn may_write(&self, kernel: KernelId, group: u32) -> bool {
        let frame = u64::from(group) * u64::from(GROUP_FRAMES);
        let objects = self.supervisor.objects();
        objects.kernel(kernel).is_ok_and(|descriptor| descriptor.groups.of_frame(frame) == Access::ReadWrite)
    }

    /// Tells a kernel of these page groups: their memory, if it may write it. Those that it was told of are taken out, and messages counted.
    fn send_groups(
        &self,
        socket: &UnixStream,
        kernel: KernelId,
        groups: &mut BTreeSet<u32>,
        sent: &mut u32,
    ) -> Result<(), Errno> {
        while let Some(&first) = groups.first() {
            let is_given = self.may_write(kernel, first);
            let next = (first..).zip(groups.iter().copied()).take(MOST_DESCRIPTORS);
            let like_it = |(expected, group): &(u32, u32)| {
                expected == group && self.may_write(kernel, *group) == is_given
            };
            let end = next.take_while(like_it).last().expect("the first is like itself").0 + 1;
            let memory = (first..end).filter(|_| is_given).map(|group| self.supervisor.frames().group(group));
            let memory = memory.collect::<Result<Vec<_>, Errno>>()?;
            let count = usize::try_from(end - first).expect("a few");
            send_descriptors(socket, word_of_groups(first, count), &memory)?;
            *groups = groups.split_off(&end);
            *sent += 1;
        }
        Ok(())
    }

    /// Tells kernels of the page groups that they have been given or have lost. Who has no room for it hears later.
    fn tell_of_groups(&mut self) {
        for index in 0..self.counters.len() {
            if self.counters[index].untold.is_empty() {
                continue;
            }
            let mut untold = std::mem::take(&mut self.counters[index].untold);
            let (counter, mut sent) = (&self.counters[index], 0);
            let _ = self.send_groups(&counter.socket, counter.kernel, &mut untold, &mut sent);
            counter.memory.word(TOLD).fetch_add(sent, SeqCst);
            self.counters[index].untold = untold;
        }
    }

    /// Serves until all kernels are gone. Looks at all counters so many times before it sleeps.
    pub fn run(&mut self, spins: u32) {
        while !self.counters.is_empty() {
            let mut looks = 0;
            while looks <= spins {
                looks = if self.serve() { 0 } else { looks + 1 };
                std::hint::spin_loop();
            }
            self.sleep();
        }
    }

    /// Has the host run this thread before those of all kernels, if it permits that: who runs kernels that can have real-time threads must be able to
    /// stop them.
    pub fn outrank() {
        Class::SUPERVISOR.apply(0);
    }

    /// Serves who has asked; whether anybody had. Who has used up his share is served once a tick.
    pub fn serve(&mut self) -> bool {
        let tick = self.supervisor.tick();
        let is_time = tick.is_none_or(|tick| {
            let now = Instant::now();
            let is_time = now >= self.next_tick;
            if is_time {
                self.next_tick = now + tick;
                self.supervisor.look_after_shares();
            }
            is_time
        });
        let mut any = false;
        for index in 0..self.counters.len() {
            let Counter { kernel, memory, .. } = &self.counters[index];
            let kernel = *kernel;
            if memory.word(TURN).load(Acquire) != ASKED || (!is_time && self.supervisor.is_demoted(kernel)) {
                continue;
            }
            any = true;
            let began = tick.map(|_| Instant::now());
            let request = take(&self.counters[index].memory);
            let answer = self.answer(index, request);
            let counter = &self.counters[index];
            if put(&counter.memory, &answer).is_none() {
                put(&counter.memory, &Answer::NotUnderstood).expect("it is short");
            }
            self.tell_of_groups();
            self.tell_of_writebacks();
            if let Some(began) = began {
                self.supervisor.charge_service(kernel, began.elapsed());
            }
            let counter = &self.counters[index];
            counter.memory.word(TURN).store(ANSWERED, SeqCst);
            if counter.memory.word(KERNEL_SLEEPS).load(SeqCst) != 0 {
                host::wake(counter.memory.word(TURN));
            }
        }
        if any {
            self.close_stale();
        }
        any
    }

    /// Kernels that are not loaded any more, by the first's word or because another took their place, have no counter: they are told so.
    fn close_stale(&mut self) {
        let objects = self.supervisor.objects();
        self.counters.retain(|counter| {
            let is_loaded = objects.kernel(counter.kernel).is_ok();
            if !is_loaded {
                counter.memory.word(CLOSED).store(1, SeqCst);
                host::wake(counter.memory.word(TURN));
            }
            is_loaded
        });
    }

    /// What one kernel asked for may have displaced what others had.
    fn tell_of_writebacks(&self) {
        for counter in &self.counters {
            let found = self.supervisor.objects().waiting().find(|(kernel, _)| *kernel == counter.kernel);
            let waiting = found.map_or(0, |(_, waiting)| u32::try_from(waiting).unwrap_or(u32::MAX));
            counter.memory.word(WAITING).store(waiting, Release);
        }
    }

    fn answer(&mut self, index: usize, request: Option<Request>) -> Answer {
        let Some(request) = request else { return Answer::NotUnderstood };
        self.perform(index, request).unwrap_or_else(|error| Answer::Failed(Failure::from(error)))
    }

    /// Answers what a kernel could have put at its counter, in bytes as they are there. Nothing: the kernel has no counter.
    pub fn answer_to(&mut self, kernel: KernelId, request: &[u8]) -> Option<Vec<u8>> {
        let index = self.counters.iter().position(|counter| counter.kernel == kernel)?;
        let answer = self.answer(index, understood(request));
        self.tell_of_groups();
        self.tell_of_writebacks();
        self.close_stale();
        postcard::to_stdvec(&answer).ok()
    }

    fn perform(&mut self, index: usize, request: Request) -> Result<Answer, CallError> {
        let Counter { kernel, socket, .. } = &self.counters[index];
        let (kernel, supervisor) = (*kernel, &mut self.supervisor);
        Ok(match request {
            Request::LoadSpace(load) => {
                let space = supervisor.load_space(kernel, load)?;
                let areas = supervisor.areas_of(space).expect("it was just loaded");
                if send_descriptors(socket, space.to_word(), &[areas]).is_err() {
                    // It has not taken earlier ones.
                    supervisor.unload_space(kernel, space)?;
                    return Err(CallError::Crowded);
                }
                Answer::Space(space)
            }
            Request::LoadThread { load, state, spins } => {
                let thread = supervisor.load_thread(kernel, load, &state, spins)?;
                Answer::Thread { thread, area: supervisor.area_number(thread).expect("it was just loaded") }
            }
            Request::LoadMappings { first, count } => {
                supervisor.load_mappings(kernel, &first, count.min(GROUP_FRAMES))?;
                Answer::Done
            }
            Request::MakeCopy { space, page } => {
                supervisor.make_copy(kernel, space, page)?;
                Answer::Done
            }
            Request::ForbidWrites { space, page, pages } => {
                supervisor.forbid_writes(kernel, space, page, pages)?;
                Answer::Done
            }
            Request::UnloadMappings { space, page, pages } => {
                Answer::Count(supervisor.unload_mappings(kernel, space, page, pages)?)
            }
            Request::UnloadThread(thread) => {
                supervisor.unload_thread(kernel, thread)?;
                Answer::Done
            }
            Request::UnloadSpace(space) => {
                supervisor.unload_space(kernel, space)?;
                Answer::Done
            }
            Request::Interrupt(thread) => {
                supervisor.interrupt(kernel, thread)?;
                Answer::Done
            }
            Request::Signal { space, address } => Answer::Count(supervisor.signal(kernel, space, address)?),
            Request::Redirect { space, page, thread } => {
                supervisor.redirect(kernel, space, page, thread)?;
                Answer::Done
            }
            Request::KeepOn { thread, processor } => {
                supervisor.keep_on(kernel, thread, processor)?;
                Answer::Done
            }
            Request::Used(thread) => Answer::Used(supervisor.thread_used(kernel, thread)?),
            Request::SetPriority { thread, priority } => {
                supervisor.set_priority(kernel, thread, priority)?;
                Answer::Done
            }
            Request::SetOwnPriority(priority) => {
                supervisor.set_own_priority(kernel, priority)?;
                Answer::Done
            }
            Request::TakeWriteback => {
                let next = match self.counters[index].handing.pop_front() {
                    Some(writeback) => Some(writeback),
                    None => supervisor.take_writeback(kernel)?,
                };
                Answer::Writeback(next.map(|writeback| {
                    let (gone, waiting) = Gone::of(writeback);
                    self.counters[index].handing.extend(waiting);
                    gone
                }))
            }
            Request::OfFirst(request) => return self.perform_first(index, request),
        })
    }

    /// Until somebody asks, or is gone. Who is, is unloaded.
    fn sleep(&mut self) {
        for counter in &self.counters {
            counter.memory.word(SUPERVISOR_SLEEPS).swap(1, SeqCst);
        }
        let has_asked = |counter: &Counter| {
            counter.memory.word(TURN).load(SeqCst) == ASKED && !self.supervisor.is_demoted(counter.kernel)
        };
        if !self.counters.iter().any(has_asked) {
            let mut waits: Vec<PollFd<'_>> = Vec::new();
            for counter in &self.counters {
                waits.push(PollFd::new(&counter.wakes, PollFlags::IN));
                waits.push(PollFd::new(&counter.socket, PollFlags::RDHUP));
            }
            // Not without end: a supervisor looks at its kernels now and then, whatever they say.
            let limit = self.supervisor.tick().unwrap_or(LOOK);
            let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
            let _ = poll(&mut waits, Some(&limit));
        }
        for counter in &self.counters {
            counter.memory.word(SUPERVISOR_SLEEPS).swap(0, AcqRel);
            let _ = rustix::io::read(&counter.wakes, &mut [0; 8]);
        }
        self.bury();
        self.close_stale();
        self.supervisor.sweep();
        self.tell_of_groups();
        self.tell_of_writebacks();
    }

    /// Unloads who is gone: the first kernel hears of it, if it is one that can.
    fn bury(&mut self) {
        let gone = |counter: &Counter| {
            let mut wait = [PollFd::new(&counter.socket, PollFlags::RDHUP)];
            let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut wait, Some(&now)).is_ok_and(|events| events > 0)
        };
        let first = self.supervisor.first();
        for index in (0..self.counters.len()).rev() {
            if gone(&self.counters[index]) {
                let kernel = self.counters.swap_remove(index).kernel;
                if kernel == first {
                    // Nobody could load anything any more.
                    self.counters.clear();
                    return;
                }
                let _ = self.supervisor.unload_kernel(first, kernel);
                let hears = self.counters.iter().any(|counter| counter.kernel == first);
                while !hears && let Ok(Some(_)) = self.supervisor.take_writeback(first) {}
            }
        }
    }
}

/// How long a kernel waits before it asks itself whether there is a supervisor.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

mod first;
#[cfg(test)]
mod tests;
