//! A kernel in a process of its own.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use self::granted::Granted;
use crate::calls::Calls;
use crate::frames::GROUP_FRAMES;
use crate::host::{self, Shared};
use crate::objects::{
    Access, FRAMES_IN_GROUP, Mapping, Refused, SpaceId, SpaceLoad, ThreadId, ThreadLoad, Writeback,
};
use crate::server::LOOK;
use crate::space::{Bell, SpaceError};
use crate::stub::layout::{AREA_BYTES, MOST_THREADS};
use crate::supervisor::{CallError, State};
use crate::thread::Area;
use crate::wire::{
    ANSWERED, ASKED, Answer, CLOSED, COUNTER_BYTES, Failure, Gone, KERNEL_SLEEPS, Request, SUPERVISOR_SLEEPS,
    TOLD, TURN, WAITING, groups_of_word, put, receive_descriptors, take,
};

const GROUP_BYTES: usize = GROUP_FRAMES as usize * 4096;

/// A kernel's side of its counter.
#[derive(Debug)]
pub struct Client {
    counter: Shared,
    wakes: OwnedFd,
    socket: UnixStream,
    /// Where it hears of its next counter, if it can be swapped out.
    line: Option<UnixStream>,
    bell: Bell,
    memory: Arc<Shared>,
    granted: Granted,
    /// How many times it has heard of page groups.
    told: u32,
    /// How long it waits for an answer before it sleeps.
    spins: u32,
    areas: BTreeMap<SpaceId, Shared>,
    threads: BTreeMap<ThreadId, (SpaceId, u32)>,
}

/// What comes first by a counter's socket.
struct Opened {
    socket: UnixStream,
    counter: Shared,
    wakes: OwnedFd,
    bell: Bell,
    count: usize,
    groups: Vec<(u32, OwnedFd)>,
}

impl Opened {
    fn by(socket: UnixStream) -> Result<Self, Errno> {
        let (count, descriptors) = receive_descriptors(&socket)?;
        let [counter, wakes, bell] = <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| Errno::PROTO)?;
        let count = usize::try_from(count).map_err(|_| Errno::PROTO)?;
        let mut groups = Vec::new();
        loop {
            let (word, files) = receive_descriptors(&socket)?;
            if word == u64::MAX {
                break;
            }
            groups.extend(groups_of_word(word).ok_or(Errno::PROTO)?.zip(files));
        }
        let counter = Shared::map(counter.as_fd(), COUNTER_BYTES)?;
        Ok(Self { socket, counter, wakes, bell: Bell::of(bell)?, count, groups })
    }
}

impl Client {
    /// Over what [`crate::server::Server::open`] returned.
    pub fn new(socket: UnixStream, spins: u32) -> Result<Self, Errno> {
        let Opened { socket, counter, wakes, bell, count, groups } = Opened::by(socket)?;
        let memory = Arc::new(Shared::reserve(count.checked_mul(GROUP_BYTES).ok_or(Errno::PROTO)?)?);
        let (granted, areas, threads) = (Granted::new(count), BTreeMap::new(), BTreeMap::new());
        let (told, line) = (0, None);
        let mut client =
            Self { counter, wakes, socket, line, bell, memory, granted, told, spins, areas, threads };
        groups.into_iter().try_for_each(|(group, file)| client.give(group, &file))?;
        Ok(client)
    }

    /// Of a kernel whose counter comes by a line, and after it others, each time that it was swapped out and in again.
    pub fn by_line(line: UnixStream, spins: u32) -> Result<Self, Errno> {
        let (socket, _) = line::receive(&line)?;
        Ok(Self { line: Some(line), ..Self::new(socket, spins)? })
    }

    fn give(&mut self, group: u32, file: &OwnedFd) -> Result<(), Errno> {
        let own = self.granted.give(group).ok_or(Errno::PROTO)?;
        self.memory.put(own as usize * GROUP_BYTES, GROUP_BYTES, file.as_fd())
    }

    /// What comes by the socket beside what was asked for: page groups that it has from now on, or not any more.
    fn hear_of_groups(&mut self, word: u64, files: &[OwnedFd]) -> Result<(), Errno> {
        self.told = self.told.wrapping_add(1);
        let groups = groups_of_word(word).ok_or(Errno::PROTO)?;
        if files.is_empty() {
            for own in groups.filter_map(|group| self.granted.take(group)).collect::<Vec<_>>() {
                self.memory.remove(own as usize * GROUP_BYTES, GROUP_BYTES)?;
            }
            return Ok(());
        }
        groups.zip(files).try_for_each(|(group, file)| self.give(group, file))
    }

    /// Whatever it was told of page groups, it has heard.
    fn hear(&mut self) -> Result<(), CallError> {
        while self.counter.word(TOLD).load(Acquire) != self.told {
            let (word, files) = receive_descriptors(&self.socket).map_err(|_| CallError::NoSupervisor)?;
            self.hear_of_groups(word, &files).map_err(|_| CallError::NoSupervisor)?;
        }
        Ok(())
    }

    /// The descriptor that comes by the socket under this name, and what else there is to hear.
    fn receive(&mut self, name: u64) -> Result<OwnedFd, CallError> {
        loop {
            let (word, files) = receive_descriptors(&self.socket).map_err(|_| CallError::NoSupervisor)?;
            if word == name {
                self.hear()?;
                return files.into_iter().next().ok_or(CallError::NoSupervisor);
            }
            self.hear_of_groups(word, &files).map_err(|_| CallError::NoSupervisor)?;
        }
    }

    fn is_closed(&self) -> bool {
        self.counter.word(CLOSED).load(Acquire) != 0
    }

    /// This kernel is not loaded any more: waits until it is, and goes on at its new counter. If it never is: there is no supervisor.
    fn reload(&mut self) -> Result<(), CallError> {
        let line = self.line.as_ref().ok_or(CallError::NoSupervisor)?;
        let (socket, moved) = line::receive(line).map_err(|_| CallError::NoSupervisor)?;
        // What it was told before counts: those are the groups that are meant.
        let _ = self.hear();
        let opened = Opened::by(socket).map_err(|_| CallError::NoSupervisor)?;
        if opened.count != self.granted.count() {
            return Err(CallError::NoSupervisor);
        }
        (self.socket, self.counter, self.wakes) = (opened.socket, opened.counter, opened.wakes);
        (self.bell, self.told) = (opened.bell, 0);
        self.areas.clear();
        self.threads.clear();
        let change = |client: &mut Self| {
            for own in client.granted.swap(&moved) {
                client.memory.remove(own as usize * GROUP_BYTES, GROUP_BYTES)?;
            }
            opened.groups.iter().try_for_each(|(group, file)| client.give(*group, file))
        };
        change(self).map_err(|error: Errno| SpaceError::Host { action: "map memory", error }.into())
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, CallError> {
        if self.is_closed() {
            self.reload()?;
            return Err(CallError::Reloaded);
        }
        let answer = self.ask_once(request)?;
        // What comes with these by the socket comes before what there is to hear.
        if !matches!(answer, Answer::Space(_) | Answer::Kernel(_)) {
            self.hear()?;
        }
        Ok(answer)
    }

    fn ask_once(&mut self, request: &Request) -> Result<Answer, CallError> {
        put(&self.counter, request).ok_or(CallError::NoSupervisor)?;
        let turn = self.counter.word(TURN);
        turn.store(ASKED, SeqCst);
        if self.counter.word(SUPERVISOR_SLEEPS).load(SeqCst) != 0 {
            let _ = rustix::io::write(&self.wakes, &1_u64.to_ne_bytes());
        }
        let mut spins = self.spins;
        while turn.load(Acquire) != ANSWERED {
            if spins > 0 {
                spins -= 1;
                std::hint::spin_loop();
                continue;
            }
            self.counter.word(KERNEL_SLEEPS).swap(1, SeqCst);
            if turn.load(SeqCst) != ANSWERED {
                host::wait(turn, ASKED, Some(LOOK));
            }
            self.counter.word(KERNEL_SLEEPS).swap(0, AcqRel);
            if turn.load(Acquire) != ANSWERED && (self.is_closed() || self.is_alone()) {
                self.reload()?;
                return Err(CallError::Reloaded);
            }
        }
        match take(&self.counter) {
            None | Some(Answer::NotUnderstood) => Err(CallError::NoSupervisor),
            Some(Answer::Failed(failure)) => Err(match failure {
                Failure::Refused(refused) => CallError::Refused(refused),
                Failure::SpaceGone => CallError::Space(SpaceError::Gone),
                Failure::BadAddress => CallError::Space(SpaceError::BadAddress),
                Failure::Host(error) => CallError::Space(SpaceError::Host {
                    action: "do what was asked of the supervisor",
                    error: Errno::from_raw_os_error(error),
                }),
                Failure::Crowded => CallError::Crowded,
                Failure::BadState => CallError::BadState,
                Failure::NoProcess => CallError::NoProcess,
            }),
            Some(answer) => Ok(answer),
        }
    }

    #[cfg(test)]
    pub(crate) fn memory_for_tests(&self) -> &Shared {
        &self.memory
    }

    fn take_gone(&mut self) -> Result<Option<Gone>, CallError> {
        match self.ask(&Request::TakeWriteback)? {
            Answer::Writeback(gone) => Ok(gone),
            _ => Err(CallError::NoSupervisor),
        }
    }

    fn is_alone(&self) -> bool {
        let mut wait = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut wait, Some(&now)).is_ok_and(|events| events > 0)
    }

    fn ask_for_nothing(&mut self, request: &Request) -> Result<(), CallError> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            _ => Err(CallError::NoSupervisor),
        }
    }
}

impl Calls for Client {
    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn memory(&self) -> NonNull<u8> {
        self.memory.at(0)
    }

    fn kept_memory(&self) -> Arc<Shared> {
        self.memory.clone()
    }

    fn may_write(&self, group: u32) -> bool {
        self.granted.has(group)
    }

    fn groups(&self) -> u32 {
        u32::try_from(self.granted.count()).expect("it came as one")
    }

    fn area(&self, thread: ThreadId) -> Result<Area<'_>, CallError> {
        let stale = CallError::Refused(Refused::StaleThread(thread));
        let &(space, area) = self.threads.get(&thread).ok_or(stale)?;
        Ok(Area::within(self.areas.get(&space).ok_or(stale)?, area))
    }

    fn load_space(&mut self, load: SpaceLoad) -> Result<SpaceId, CallError> {
        let Answer::Space(space) = self.ask(&Request::LoadSpace(load))? else {
            return Err(CallError::NoSupervisor);
        };
        let areas = self.receive(space.to_word())?;
        let bytes = usize::try_from(AREA_BYTES * MOST_THREADS).expect("it is small");
        let areas = Shared::map(areas.as_fd(), bytes)
            .map_err(|error| CallError::Space(SpaceError::Host { action: "map memory", error }))?;
        self.areas.retain(|other, _| other.slot() != space.slot());
        self.areas.insert(space, areas);
        Ok(space)
    }

    fn load_thread(&mut self, load: ThreadLoad, state: &State, spins: u32) -> Result<ThreadId, CallError> {
        let request = Request::LoadThread { load, state: Box::new(state.clone()), spins };
        let Answer::Thread { thread, area } = self.ask(&request)? else {
            return Err(CallError::NoSupervisor);
        };
        if u64::from(area) >= MOST_THREADS {
            return Err(CallError::NoSupervisor);
        }
        self.threads.retain(|other, _| other.slot() != thread.slot());
        self.threads.insert(thread, (load.space, area));
        Ok(thread)
    }

    fn load_mappings(&mut self, first: &Mapping, count: u32) -> Result<(), CallError> {
        let mut done = 0;
        let real = |client: &Self, frame, wanted| {
            client.granted.real_frame(frame).ok_or(Refused::NoAccess { frame, wanted })
        };
        while done < count {
            let next = first.neighbour(done);
            let in_group = |frame: u64| FRAMES_IN_GROUP - frame % FRAMES_IN_GROUP;
            let in_group = next.copy_of.map_or(u64::MAX, in_group).min(in_group(next.frame));
            let some = (count - done).min(u32::try_from(in_group).expect("at most a group"));
            let wanted = if first.writable { Access::ReadWrite } else { Access::Read };
            let frame = real(self, next.frame, wanted)?;
            let copy_of = next.copy_of.map(|source| real(self, source, Access::Read)).transpose()?;
            let first = Mapping { frame, copy_of, ..next };
            self.ask_for_nothing(&Request::LoadMappings { first, count: some })?;
            done += some;
        }
        Ok(())
    }

    fn make_copy(&mut self, space: SpaceId, page: u64) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::MakeCopy { space, page })
    }

    fn forbid_writes(&mut self, space: SpaceId, page: u64, pages: u64) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::ForbidWrites { space, page, pages })
    }

    fn unload_mappings(&mut self, space: SpaceId, page: u64, pages: u64) -> Result<u32, CallError> {
        match self.ask(&Request::UnloadMappings { space, page, pages })? {
            Answer::Count(count) => Ok(count),
            _ => Err(CallError::NoSupervisor),
        }
    }

    fn unload_thread(&mut self, thread: ThreadId) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::UnloadThread(thread))
    }

    fn unload_space(&mut self, space: SpaceId) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::UnloadSpace(space))?;
        self.areas.remove(&space);
        self.threads.retain(|_, (of, _)| *of != space);
        Ok(())
    }

    fn interrupt(&mut self, thread: ThreadId) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::Interrupt(thread))
    }

    fn signal(&mut self, space: SpaceId, address: u64) -> Result<u32, CallError> {
        match self.ask(&Request::Signal { space, address })? {
            Answer::Count(count) => Ok(count),
            _ => Err(CallError::NoSupervisor),
        }
    }

    fn redirect(&mut self, space: SpaceId, page: u64, thread: ThreadId) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::Redirect { space, page, thread })
    }

    fn look_around(&mut self) {
        // The server does.
    }

    fn keep_on(&mut self, thread: ThreadId, processor: Option<u32>) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::KeepOn { thread, processor })
    }

    fn used(&mut self, thread: ThreadId) -> Result<Option<Duration>, CallError> {
        match self.ask(&Request::Used(thread))? {
            Answer::Used(used) => Ok(used),
            _ => Err(CallError::NoSupervisor),
        }
    }

    fn set_priority(&mut self, thread: ThreadId, priority: u8) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::SetPriority { thread, priority })
    }

    fn set_own_priority(&mut self, priority: u8) -> Result<(), CallError> {
        self.ask_for_nothing(&Request::SetOwnPriority(priority))
    }

    fn take_writeback(&mut self) -> Result<Option<Writeback<Box<State>>>, CallError> {
        if self.is_closed() {
            self.reload()?;
        }
        self.hear()?;
        if self.counter.word(WAITING).load(Acquire) == 0 {
            return Ok(None);
        }
        let Some(gone) = self.take_gone()? else { return Ok(None) };
        let waiting = if let Gone::Kernel { waiting, .. } = gone { waiting } else { 0 };
        let mut writeback = Writeback::from(gone);
        match &mut writeback {
            Writeback::Mapping { frame, .. } => *frame = self.granted.own_frame(*frame),
            Writeback::Kernel { waiting: unheard, .. } => {
                for _ in 0..waiting {
                    unheard.extend(self.take_gone()?.map(Writeback::from));
                }
            }
            Writeback::Thread { .. } | Writeback::Space { .. } => {}
        }
        Ok(Some(writeback))
    }
}

mod first;
mod granted;
pub mod line;
