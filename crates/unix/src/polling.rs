//! `poll` and `select`: which of several descriptors a program could use without waiting.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{EBADF, EINVAL, Errno};
use crate::host;
use crate::layouts::{Polled, Timespec};
use crate::machine::Machine;
use crate::unix::{Caller, Unix};
use crate::waiting::{Interruption, Key, Outcome, Wait};
use std::rc::Rc;
use std::time::Instant;

const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
const READS: i16 = libc::POLLIN | libc::POLLRDNORM;
const WRITES: i16 = libc::POLLOUT | libc::POLLWRNORM;

impl<M: Machine> Unix<M> {
    /// What of `events` a file is ready for now; and what to wait for until that changes.
    pub(crate) fn readiness(&self, file: &OpenFile, events: i16, wait: &mut Wait) -> i16 {
        let mut earlier = |until: Option<Instant>| {
            wait.until = match (wait.until, until) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        };
        let ready = match &file.kind {
            Kind::Stream { host } | Kind::Socket { host, .. } => {
                use std::os::fd::AsRawFd;
                wait.descriptors.push((host.as_raw_fd(), events));
                host::ready(host.as_raw_fd(), events)
            }
            Kind::Pipe(end) => {
                wait.keys.push(Key::Object(end.pipe.number));
                let mut ready = 0;
                if end.reads {
                    if end.pipe.waiting() > 0 {
                        ready |= READS;
                    }
                    if !end.pipe.is_written() {
                        ready |= libc::POLLHUP;
                    }
                }
                if end.writes {
                    if end.pipe.has_room() {
                        ready |= WRITES;
                    }
                    if !end.pipe.is_read() {
                        ready |= libc::POLLERR;
                    }
                }
                ready
            }
            Kind::Counter { number, value, .. } => {
                wait.keys.push(Key::Object(*number));
                let mut ready = 0;
                if value.get() > 0 {
                    ready |= READS;
                }
                if value.get() < u64::MAX - 1 {
                    ready |= WRITES;
                }
                ready
            }
            Kind::Timer(timer) => {
                wait.keys.push(Key::Object(timer.number));
                earlier(timer.next());
                if timer.has_passed(Instant::now()) { READS } else { 0 }
            }
            Kind::Epoll(epoll) => {
                wait.keys.push(Key::Object(epoll.number));
                // One level only: a set in a set in a set is never ready, and no program builds a ring.
                let mut inner = Wait::until(None);
                let ready = epoll.ready_now(&mut inner, |file, events, wait| match file.kind {
                    Kind::Epoll(_) => 0,
                    _ => self.readiness(file, events, wait),
                });
                wait.keys.extend(inner.keys);
                wait.descriptors.extend(inner.descriptors);
                earlier(inner.until);
                if ready { READS } else { 0 }
            }
            Kind::Regular { .. }
            | Kind::Directory { .. }
            | Kind::Device(_)
            | Kind::Text(_)
            | Kind::Listing(_) => READS | WRITES,
            Kind::Path { .. } => libc::POLLNVAL,
        };
        ready & (events | ALWAYS)
    }

    /// Polls; `until` is `Some(None)` for no waiting at all.
    fn poll_all(
        &mut self,
        who: Caller,
        polled: &mut [(Option<Rc<OpenFile>>, i16, i16)],
        timeout: Option<Timespec>,
    ) -> Result<u64, crate::waiting::Stop> {
        let deadline = timeout.map(|timeout| self.deadline(who, timeout)).transpose()?;
        let mut wait = Wait::until(None);
        let mut count = 0;
        for (file, events, returned) in polled.iter_mut() {
            if let Some(file) = file {
                *returned = self.readiness(file, *events, &mut wait);
            }
            count += u64::from(*returned != 0);
        }
        if count > 0 || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(count);
        }
        wait.until = match (wait.until, deadline) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        wait.interruption = Interruption::Fail;
        Err(wait.into())
    }

    pub(crate) fn call_poll(
        &mut self,
        who: Caller,
        at: u64,
        count: u64,
        timeout: Option<Timespec>,
    ) -> Outcome {
        if count > crate::descriptors::MOST_DESCRIPTORS {
            return Err(EINVAL.into());
        }
        let mut given = Vec::new();
        for index in 0..count {
            given.push(self.memory.read::<Polled>(who.space, at.wrapping_add(index * 8))?);
        }
        let mut polled: Vec<_> = given
            .iter()
            .map(|one| match self.file(who, one.descriptor) {
                Ok(file) => (Some(file), one.events, 0),
                Err(_) if one.descriptor < 0 => (None, 0, 0),
                Err(_) => (None, 0, libc::POLLNVAL),
            })
            .collect();
        let ready = self.poll_all(who, &mut polled, timeout)?;
        for (index, (one, (_, _, returned))) in given.iter().zip(&polled).enumerate() {
            let told = Polled { returned: *returned, ..*one };
            self.memory.write(who.space, at.wrapping_add(index as u64 * 8), &told)?;
        }
        Ok(ready)
    }

    pub(crate) fn call_select(
        &mut self,
        who: Caller,
        count: i32,
        sets: [u64; 3],
        timeout: Option<Timespec>,
    ) -> Outcome {
        if count < 0 {
            return Err(EINVAL.into());
        }
        let count = (count as usize).min(crate::descriptors::MOST_DESCRIPTORS as usize);
        let words = count.div_ceil(64);
        let mut given: Vec<Vec<u64>> = Vec::new();
        for set in sets {
            let mut bits = vec![0u64; words];
            if set != 0 {
                for (index, word) in bits.iter_mut().enumerate() {
                    *word = self.memory.read(who.space, set.wrapping_add(index as u64 * 8))?;
                }
            }
            given.push(bits);
        }
        let wanted = [READS, WRITES, libc::POLLPRI];
        let shown = [READS | libc::POLLHUP | libc::POLLERR, WRITES | libc::POLLERR, libc::POLLPRI];
        let has = |set: usize, descriptor: usize| given[set][descriptor / 64] >> (descriptor % 64) & 1 != 0;
        let mut polled = Vec::new();
        let mut descriptors = Vec::new();
        for descriptor in 0..count {
            let events =
                (0..3).filter(|&set| has(set, descriptor)).fold(0, |events, set| events | wanted[set]);
            if events != 0 {
                let file = self.file(who, descriptor as i32).map_err(|_: Errno| EBADF)?;
                polled.push((Some(file), events, 0));
                descriptors.push(descriptor);
            }
        }
        // What is told of a hang-up that was not asked for must not end the call: it is asked for again with what it is shown for.
        self.poll_all(who, &mut polled, timeout)?;
        let mut told = vec![vec![0u64; words]; 3];
        let mut ready = 0;
        for (&descriptor, (_, _, returned)) in descriptors.iter().zip(&polled) {
            for set in 0..3 {
                if has(set, descriptor) && returned & shown[set] != 0 {
                    told[set][descriptor / 64] |= 1 << (descriptor % 64);
                    ready += 1;
                }
            }
        }
        for (set, bits) in sets.iter().zip(&told) {
            if *set != 0 {
                for (index, word) in bits.iter().enumerate() {
                    self.memory.write(who.space, set.wrapping_add(index as u64 * 8), word)?;
                }
            }
        }
        Ok(ready)
    }
}
