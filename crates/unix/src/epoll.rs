//! Sets of descriptors that are polled together (`epoll`).
//!
//! Nothing is recorded while nobody waits: readiness is looked up when it is asked for. An edge is seen as a file that was not ready
//! when last looked at, or that was used or got something new since it was last told of.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{EBADF, EEXIST, EINVAL, ELOOP, ENOENT, EPERM};
use crate::layouts::{EpollEvent, Timespec};
use crate::machine::Machine;
use crate::unix::{Caller, Unix};
use crate::waiting::{Interruption, Key, Outcome, Wait};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Instant;

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;

struct Watched {
    file: Weak<OpenFile>,
    events: u32,
    data: u64,
    /// What was told last, with the state of news then; nothing if it is to be told when it is ready.
    told: Option<(i16, u64)>,
    /// A one-shot watch that was told.
    spent: bool,
}

/// A set of watched descriptors.
pub(crate) struct Epoll {
    pub(crate) number: u64,
    watched: RefCell<BTreeMap<(i32, u64), Watched>>,
}

/// A number that changes with everything that happens to a file.
fn news(file: &OpenFile) -> u64 {
    let more = match &file.kind {
        Kind::Pipe(end) => end.pipe.changes.get(),
        Kind::Counter { value, .. } => value.get(),
        _ => 0,
    };
    file.used.get().wrapping_add(more.wrapping_mul(1 << 20))
}

impl Epoll {
    pub(crate) fn new(number: u64) -> Epoll {
        Epoll { number, watched: RefCell::default() }
    }

    /// Whether anything would be told, and what to wait for.
    pub(crate) fn ready_now(
        &self,
        wait: &mut Wait,
        mut readiness: impl FnMut(&OpenFile, i16, &mut Wait) -> i16,
    ) -> bool {
        let watched = self.watched.borrow();
        watched.values().filter(|watched| !watched.spent).any(|watched| {
            watched
                .file
                .upgrade()
                .is_some_and(|file| readiness(&file, (watched.events & 0xffff) as i16, wait) != 0)
        })
    }

    /// What is to be told now, at most so many; and what to wait for.
    fn collect(
        &self,
        most: usize,
        wait: &mut Wait,
        mut readiness: impl FnMut(&OpenFile, i16, &mut Wait) -> i16,
    ) -> Vec<EpollEvent> {
        let mut watched = self.watched.borrow_mut();
        watched.retain(|_, one| one.file.strong_count() > 0);
        let mut events = Vec::new();
        for one in watched.values_mut() {
            let Some(file) = one.file.upgrade() else { continue };
            if one.spent || events.len() >= most {
                continue;
            }
            let mut own = Wait::until(None);
            let ready = readiness(&file, (one.events & 0xffff) as i16, &mut own);
            let state = news(&file);
            if one.events & EDGE != 0
                && one.told.is_some_and(|(told, then)| ready & !told == 0 && then == state)
                && ready != 0
            {
                // It is still what was told: only the emulator's own things say when they change, the host's are looked at when used.
                wait.keys.extend(own.keys);
                continue;
            }
            wait.keys.extend(own.keys);
            wait.descriptors.extend(own.descriptors);
            wait.until = match (wait.until, own.until) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            one.told = (ready != 0).then_some((ready, state));
            if ready != 0 {
                events.push(EpollEvent { events: ready as u16 as u32, data: one.data });
                one.spent = one.events & ONCE != 0;
            }
        }
        events
    }
}

impl<M: Machine> Unix<M> {
    pub(crate) fn call_epoll_create(&mut self, who: Caller, flags: i32) -> Outcome {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(EINVAL.into());
        }
        let number = self.new_number();
        let file = self.new_file(Kind::Epoll(Epoll::new(number)), libc::O_RDWR);
        self.install(who, file, flags & libc::EPOLL_CLOEXEC != 0)
    }

    pub(crate) fn call_epoll_control(
        &mut self,
        who: Caller,
        set: i32,
        operation: i32,
        descriptor: i32,
        at: u64,
    ) -> Outcome {
        let (set, file) = (self.file(who, set)?, self.file(who, descriptor)?);
        let Kind::Epoll(epoll) = &set.kind else { return Err(EINVAL.into()) };
        if Rc::ptr_eq(&set, &file) {
            return Err(EINVAL.into());
        }
        if matches!(
            file.kind,
            Kind::Regular { .. } | Kind::Directory { .. } | Kind::Text(_) | Kind::Listing(_)
        ) {
            return Err(EPERM.into());
        }
        if let Kind::Epoll(inner) = &file.kind
            && inner
                .watched
                .borrow()
                .values()
                .any(|one| one.file.upgrade().is_some_and(|file| matches!(file.kind, Kind::Epoll(_))))
        {
            return Err(ELOOP.into());
        }
        let event = match operation {
            libc::EPOLL_CTL_DEL => EpollEvent::default(),
            _ => self.memory.read(who.space, at)?,
        };
        let key = (descriptor, file.number);
        let mut watched = epoll.watched.borrow_mut();
        // A descriptor that was closed and given again is another one.
        watched.retain(|_, one| one.file.strong_count() > 0);
        let new = Watched {
            file: Rc::downgrade(&file),
            events: event.events,
            data: event.data,
            told: None,
            spent: false,
        };
        match operation {
            libc::EPOLL_CTL_ADD if watched.contains_key(&key) => return Err(EEXIST.into()),
            libc::EPOLL_CTL_MOD if !watched.contains_key(&key) => return Err(ENOENT.into()),
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => drop(watched.insert(key, new)),
            libc::EPOLL_CTL_DEL => drop(watched.remove(&key).ok_or(ENOENT)?),
            _ => return Err(EINVAL.into()),
        }
        drop(watched);
        self.wakes.wake(Key::Object(epoll.number));
        Ok(0)
    }

    pub(crate) fn call_epoll_wait(
        &mut self,
        who: Caller,
        set: i32,
        at: u64,
        most: i32,
        timeout: Option<Timespec>,
    ) -> Outcome {
        let most = usize::try_from(most).ok().filter(|&most| most > 0).ok_or(EINVAL)?;
        let file = self.file(who, set)?;
        let Kind::Epoll(epoll) = &file.kind else {
            return Err(if file.host().is_some() { EBADF } else { EINVAL }.into());
        };
        let deadline = timeout.map(|timeout| self.deadline(who, timeout)).transpose()?;
        let mut wait = Wait::until(None);
        let events = epoll.collect(most, &mut wait, |file, events, wait| self.readiness(file, events, wait));
        if !events.is_empty() {
            for (index, event) in events.iter().enumerate() {
                self.memory.write(who.space, at.wrapping_add(index as u64 * 12), event)?;
            }
            return Ok(events.len() as u64);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(0);
        }
        wait.keys.push(Key::Object(epoll.number));
        wait.until = match (wait.until, deadline) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        wait.interruption = Interruption::Fail;
        Err(wait.into())
    }
}
