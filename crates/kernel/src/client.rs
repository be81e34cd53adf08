//! A kernel in a process of its own.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::calls::Calls;
use crate::frames::GROUP_FRAMES;
use crate::host::{self, Shared};
use crate::objects::{Mapping, SpaceId, SpaceLoad, ThreadId, ThreadLoad, Writeback};
use crate::server::LOOK;
use crate::space::{Bell, SpaceError};
use crate::stub::layout::{AREA_BYTES, MOST_THREADS};
use crate::supervisor::{CallError, State};
use crate::thread::Area;
use crate::wire::{
    ANSWERED, ASKED, Answer, COUNTER_BYTES, Failure, KERNEL_SLEEPS, Request, SUPERVISOR_SLEEPS, TURN,
    WAITING, put, receive_descriptors, take,
};

const GROUP_BYTES: usize = GROUP_FRAMES as usize * 4096;

/// A kernel's side of its counter.
#[derive(Debug)]
pub struct Client {
    counter: Shared,
    wakes: OwnedFd,
    socket: UnixStream,
    bell: Bell,
    memory: Arc<Shared>,
    /// Which page groups it was granted.
    granted: Vec<bool>,
    /// How long it waits for an answer before it sleeps.
    spins: u32,
    areas: BTreeMap<SpaceId, Shared>,
    threads: BTreeMap<ThreadId, (SpaceId, u32)>,
}

impl Client {
    /// Over what [`crate::server::Server::open`] returned.
    pub fn new(socket: UnixStream, spins: u32) -> Result<Self, Errno> {
        let (groups, descriptors) = receive_descriptors(&socket)?;
        let [counter, wakes, bell] = <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| Errno::PROTO)?;
        let count = usize::try_from(groups).map_err(|_| Errno::PROTO)?;
        let memory = Arc::new(Shared::reserve(count.checked_mul(GROUP_BYTES).ok_or(Errno::PROTO)?)?);
        let mut granted = vec![false; count];
        loop {
            let (first, files) = receive_descriptors(&socket)?;
            if first == u64::MAX {
                break;
            }
            let first = usize::try_from(first).map_err(|_| Errno::PROTO)?;
            for (group, file) in (first..).zip(&files) {
                *granted.get_mut(group).ok_or(Errno::PROTO)? = true;
                memory.put(group * GROUP_BYTES, GROUP_BYTES, file.as_fd())?;
            }
        }
        let counter = Shared::map(counter.as_fd(), COUNTER_BYTES)?;
        let (areas, threads) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { counter, wakes, socket, bell: Bell::of(bell)?, memory, granted, spins, areas, threads })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, CallError> {
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
            if turn.load(Acquire) != ANSWERED && self.is_alone() {
                return Err(CallError::NoSupervisor);
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
            }),
            Some(answer) => Ok(answer),
        }
    }

    #[cfg(test)]
    pub(crate) fn memory_for_tests(&self) -> &Shared {
        &self.memory
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
        self.granted.get(group as usize).is_some_and(|granted| *granted)
    }

    fn groups(&self) -> u32 {
        u32::try_from(self.granted.len()).expect("it came as one")
    }

    fn area(&self, thread: ThreadId) -> Result<Area<'_>, CallError> {
        let stale = CallError::Refused(crate::objects::Refused::StaleThread(thread));
        let &(space, area) = self.threads.get(&thread).ok_or(stale)?;
        Ok(Area::within(self.areas.get(&space).ok_or(stale)?, area))
    }

    fn load_space(&mut self, load: SpaceLoad) -> Result<SpaceId, CallError> {
        let Answer::Space(space) = self.ask(&Request::LoadSpace(load))? else {
            return Err(CallError::NoSupervisor);
        };
        let areas = loop {
            let (word, files) = receive_descriptors(&self.socket).map_err(|_| CallError::NoSupervisor)?;
            if word == space.to_word() {
                break files.into_iter().next().ok_or(CallError::NoSupervisor)?;
            }
        };
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
        while done < count {
            let some = (count - done).min(GROUP_FRAMES);
            self.ask_for_nothing(&Request::LoadMappings { first: first.neighbour(done), count: some })?;
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

    fn take_writeback(&mut self) -> Result<Option<Writeback<Box<State>>>, CallError> {
        if self.counter.word(WAITING).load(Acquire) == 0 {
            return Ok(None);
        }
        match self.ask(&Request::TakeWriteback)? {
            Answer::Writeback(gone) => Ok(gone.map(Into::into)),
            _ => Err(CallError::NoSupervisor),
        }
    }
}
