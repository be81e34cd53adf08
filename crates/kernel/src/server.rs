//! A supervisor in a process of its own, which serves kernels in others.
//!
//! All kernels are served by one thread, one request at a time, in turn. None can stop it: a request is copied and checked, an answer needs nothing of
//! who gets it, and a kernel that dies is unloaded.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::frames::GROUP_FRAMES;
use crate::host::{self, Shared};
use crate::objects::{Access, KernelId};
use crate::stub::layout::AREA_BYTES;
use crate::supervisor::{CallError, Supervisor};
use crate::wire::{
    ANSWERED, ASKED, Answer, COUNTER_BYTES, Failure, Gone, KERNEL_SLEEPS, MOST_DESCRIPTORS, Request,
    SUPERVISOR_SLEEPS, TURN, WAITING, put, send_descriptors, take,
};

/// Where one kernel asks.
#[derive(Debug)]
struct Counter {
    kernel: KernelId,
    memory: Shared,
    /// The kernel wakes the supervisor by it.
    wakes: OwnedFd,
    socket: UnixStream,
}

/// A supervisor and the kernels that it serves.
#[derive(Debug)]
pub struct Server {
    supervisor: Supervisor,
    counters: Vec<Counter>,
}

const _: () = assert!(AREA_BYTES * 2 <= COUNTER_BYTES as u64);

impl Server {
    /// One that serves nobody yet.
    pub fn new(supervisor: Supervisor) -> Self {
        Self { supervisor, counters: Vec::new() }
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
        self.send_groups(&socket, kernel)?;
        self.counters.push(Counter { kernel, memory, wakes, socket });
        Ok(other)
    }

    /// The memory that a kernel may write. After it comes a number that is none of a group.
    fn send_groups(&self, socket: &UnixStream, kernel: KernelId) -> Result<(), Errno> {
        let frames = self.supervisor.frames();
        let descriptor = self.supervisor.objects().kernel(kernel).map_err(|_| Errno::INVAL)?;
        let count = frames.len() / GROUP_FRAMES;
        let mut first = 0;
        while first < count {
            let may_write = |group: u32| {
                descriptor.groups.of_frame(u64::from(group) * u64::from(GROUP_FRAMES)) == Access::ReadWrite
            };
            let neighbours = (first..count).take(MOST_DESCRIPTORS).take_while(|group| may_write(*group));
            let files = neighbours.map(|group| frames.group(group)).collect::<Result<Vec<_>, Errno>>()?;
            if files.is_empty() {
                first += 1;
                continue;
            }
            send_descriptors(socket, first.into(), &files)?;
            first += u32::try_from(files.len()).expect("few");
        }
        send_descriptors(socket, u64::MAX, &[])
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

    /// Serves who has asked; whether anybody had.
    pub fn serve(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.counters.len() {
            let turn = self.counters[index].memory.word(TURN);
            if turn.load(Acquire) != ASKED {
                continue;
            }
            any = true;
            let answer = match take(&self.counters[index].memory) {
                Some(request) => self.answer(index, request),
                None => Answer::NotUnderstood,
            };
            let counter = &self.counters[index];
            if put(&counter.memory, &answer).is_none() {
                put(&counter.memory, &Answer::NotUnderstood).expect("it is short");
            }
            self.tell_of_writebacks();
            let counter = &self.counters[index];
            counter.memory.word(TURN).store(ANSWERED, SeqCst);
            if counter.memory.word(KERNEL_SLEEPS).load(SeqCst) != 0 {
                host::wake(counter.memory.word(TURN));
            }
        }
        any
    }

    /// What one kernel asked for may have displaced what others had.
    fn tell_of_writebacks(&self) {
        for counter in &self.counters {
            let found = self.supervisor.objects().waiting().find(|(kernel, _)| *kernel == counter.kernel);
            let waiting = found.map_or(0, |(_, waiting)| u32::try_from(waiting).unwrap_or(u32::MAX));
            counter.memory.word(WAITING).store(waiting, Release);
        }
    }

    fn answer(&mut self, index: usize, request: Request) -> Answer {
        self.perform(index, request).unwrap_or_else(|error| Answer::Failed(Failure::from(error)))
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
            Request::TakeWriteback => {
                let writeback = supervisor.take_writeback(kernel)?;
                Answer::Writeback(writeback.and_then(Gone::of))
            }
        })
    }

    /// Until somebody asks, or is gone. Who is, is unloaded.
    fn sleep(&mut self) {
        for counter in &self.counters {
            counter.memory.word(SUPERVISOR_SLEEPS).swap(1, SeqCst);
        }
        let has_asked = |counter: &Counter| counter.memory.word(TURN).load(SeqCst) == ASKED;
        if !self.counters.iter().any(has_asked) {
            let mut waits: Vec<PollFd<'_>> = Vec::new();
            for counter in &self.counters {
                waits.push(PollFd::new(&counter.wakes, PollFlags::IN));
                waits.push(PollFd::new(&counter.socket, PollFlags::RDHUP));
            }
            // Not without end: a supervisor looks at its kernels now and then, whatever they say.
            let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut waits, Some(&limit));
        }
        for counter in &self.counters {
            counter.memory.word(SUPERVISOR_SLEEPS).swap(0, AcqRel);
            let _ = rustix::io::read(&counter.wakes, &mut [0; 8]);
        }
        self.bury();
        self.supervisor.sweep();
        self.tell_of_writebacks();
    }

    /// Unloads who is gone.
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
                while let Ok(Some(_)) = self.supervisor.take_writeback(first) {}
            }
        }
    }
}

/// How long a kernel waits before it asks itself whether there is a supervisor.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
