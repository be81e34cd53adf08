//! The engine among the threads of a program: whoever waits drives it, and when nobody does, a thread that sleeps until something comes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use comb_memory::threads::{self, Away};
use comb_memory::{Fault, Verdict};
use rustix::event::epoll::Event;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::engine::{Engine, Fetch, OWN, Stopped, Waited};
use crate::gate::Gate;
use crate::inside::{self, Inside};
use crate::invocation;
use crate::peers::Peers;
use crate::priority;
use crate::spinning::{Learned, preemptions};
use crate::waiting::{self, Slot};

/// Who waits for longer than this sleeps. A wake-up costs 15–30 µs.
pub(crate) const LONGEST_SPIN: Duration = Duration::from_micros(50);
/// An answer within this is what is usual.
const SHORT_SPIN: Duration = Duration::from_micros(10);
/// A thread that polls has looked within this, unless it is where it does not.
const PATIENCE: Duration = Duration::from_micros(40);
/// What was kept is looked at again after this, come what may.
const LONGEST_DELAY: Duration = Duration::from_millis(1);
/// Who asks for one block asks for the next as soon as it has stored to that.
const NEXT_QUESTION: Duration = Duration::from_nanos(500);
/// A look at a clock takes as long as one or two for messages.
const LOOKS_A_CLOCK: u32 = 4;
/// Somebody wakes a sleeper. This is for the case that nobody does; not in debug builds, where a wake-up that is missed is a hang, and the
/// limits of the tests tell of it.
const LONGEST_SLEEP: Option<Duration> =
    if cfg!(debug_assertions) { None } else { Some(Duration::from_millis(100)) };

/// Nothing tells that a peer has read and that there is room again.
const BETWEEN_LOOKS_FOR_ROOM: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

pub(crate) struct Runtime {
    engine: Mutex<Engine>,
    /// Which thread has it: one that faults while it has it would wait for itself.
    owner: AtomicU64,
    /// Readable when something has come that nobody polls for.
    event: Option<OwnedFd>,
    /// Wakes the thread that attends, for what no message announces.
    kick: OwnedFd,
    /// Of a task on several hosts.
    gate: Option<Gate>,
    is_over: AtomicBool,
    /// Threads that drive at this moment; changed under the lock.
    drivers: AtomicUsize,
    /// Threads that sleep until somebody has driven: while they do, a core has less to do.
    asleep: AtomicUsize,
    /// Threads of the program look for mail while they compute.
    polls: AtomicBool,
    /// Those who send are told so at this moment.
    is_polled: AtomicBool,
    /// They have let something lie so long that the thread that attends was woken for it.
    are_deaf: AtomicBool,
    /// Of threads that wait, and of the one that attends.
    waits: Learned,
    attends: Learned,
}

/// The engine, while this thread has it.
pub(crate) struct Held<'a> {
    guard: MutexGuard<'a, Engine>,
    runtime: &'a Runtime,
    // Behind the guard: it is given up first.
    _inside: Inside,
}

impl std::ops::Deref for Held<'_> {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        &self.guard
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.guard
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(peers) = &mut self.guard.core.peers {
            peers.send_bundles();
        }
        self.runtime.owner.store(0, Ordering::Relaxed);
    }
}

/// The runtimes of this process, one of each kind: where its faults go.
static TASK: OnceLock<Arc<Runtime>> = OnceLock::new();
static HOMES: OnceLock<Arc<Runtime>> = OnceLock::new();

/// What a runtime is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// A task's memory: peers are its components.
    Task,
    /// Named regions: peers are the cells that they live in.
    Homes,
}

/// Threads that are made meanwhile take no signals but what their own instructions raise: a program's handlers run on its own threads, not
/// on one that has the engine.
#[expect(unsafe_code, reason = "signal masks, which no crate of ours wraps")]
fn without_signals<R>(make: impl FnOnce() -> R) -> R {
    const RAISED: [i32; 6] =
        [libc::SIGBUS, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP, libc::SIGILL, libc::SIGFPE];
    // SAFETY: sets of our own; only this thread's mask changes, and it gets back what it had.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for signal in RAISED {
            libc::sigdelset(&raw mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        let made = make();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        made
    }
}

fn is_timer_alone(events: &[Event]) -> bool {
    !events.is_empty() && events.iter().all(|event| event.data.u64() == comb_net::TIMER_EVENT)
}

#[expect(unsafe_code, reason = "the thread's own number, without a system call")]
fn this_thread() -> u64 {
    // SAFETY: has no preconditions, and may be called from signal handlers.
    unsafe { libc::pthread_self() as u64 }
}

impl Runtime {
    /// Starts it, for the whole life of the process.
    pub(crate) fn start(engine: Engine, whose: Whose) -> std::io::Result<Arc<Self>> {
        let event = engine
            .core
            .peers
            .as_ref()
            .and_then(|peers| peers.endpoint.event_descriptor().map(|fd| fd.try_clone_to_owned()));
        let event = event.transpose()?;
        let has_sockets = engine.core.peers.as_ref().is_some_and(Peers::are_elsewhere);
        let runtime = Arc::new(Self {
            engine: Mutex::new(engine),
            owner: AtomicU64::new(0),
            gate: match &event {
                Some(event) if has_sockets => Some(Gate::before(event)?),
                _ => None,
            },
            event,
            kick: rustix::event::eventfd(
                0,
                rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
            )?,
            is_over: AtomicBool::new(false),
            drivers: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            polls: AtomicBool::new(false),
            is_polled: AtomicBool::new(false),
            are_deaf: AtomicBool::new(false),
            waits: Learned::default(),
            attends: Learned::default(),
        });
        let place = match whose {
            Whose::Task => &TASK,
            Whose::Homes => &HOMES,
        };
        if place.set(Arc::clone(&runtime)).is_err() {
            return Err(std::io::Error::other("this process has joined a task already"));
        }
        if runtime.event.is_some() {
            let own = Arc::clone(&runtime);
            let attends = std::thread::Builder::new().name("comb-memory".to_owned());
            without_signals(move || attends.spawn(move || own.attend()))?;
        }
        Ok(runtime)
    }

    pub(crate) fn lock(&self) -> Held<'_> {
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            crate::driver::fail(
                &"a protocol's handler, or code that a signal has put into the middle of one, has touched shared memory",
            );
        }
        let inside = Inside::begin();
        let guard = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.owner.store(this_thread(), Ordering::Relaxed);
        Held { guard, runtime: self, _inside: inside }
    }

    fn try_lock(&self) -> Option<Held<'_>> {
        let inside = Inside::begin();
        let guard = self.engine.try_lock().ok()?;
        self.owner.store(this_thread(), Ordering::Relaxed);
        Some(Held { guard, runtime: self, _inside: inside })
    }

    /// From now on this thread drives, until [`Runtime::leave`]: nobody has to be woken for what comes.
    pub(crate) fn enter(&self) -> Held<'_> {
        self.take_part(self.lock())
    }

    fn take_part<'a>(&self, mut engine: Held<'a>) -> Held<'a> {
        // Until it leaves.
        inside::begin();
        if self.drivers.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(peers) = &mut engine.core.peers
        {
            peers.endpoint.disarm();
            if let Some(gate) = &self.gate {
                gate.close();
            }
        }
        engine
    }

    /// If nobody drives now, the next message wakes the thread that attends, or is seen by a thread that polls.
    pub(crate) fn leave(engine: Held<'_>) {
        if engine.runtime.polls.load(Ordering::Relaxed) && threads::is_known() {
            engine.runtime.are_deaf.store(false, Ordering::Relaxed);
            return Self::leave_to(engine, true);
        }
        Self::leave_to(engine, false);
    }

    /// `polls`: this thread will.
    fn leave_to(mut engine: Held<'_>, polls: bool) {
        let runtime = engine.runtime;
        let drivers = &runtime.drivers;
        // What finds no room is seen below.
        if let Some(peers) = &mut engine.core.peers {
            peers.send_bundles();
        }
        if drivers.load(Ordering::Relaxed) == 1 {
            let others_poll =
                runtime.polls.load(Ordering::Relaxed) && !runtime.are_deaf.load(Ordering::Relaxed);
            let polls = polls || others_poll && threads::others_compute();
            runtime.is_polled.store(polls, Ordering::Relaxed);
            while !engine.core.peers.as_mut().is_none_or(|peers| peers.endpoint.arm_to_ask(polls)) {
                engine.drive();
            }
            // Nobody is here any more to see who has not read.
            if let Some(peers) = &mut engine.core.peers {
                peers.endpoint.ring_owed();
            }
            if let Some(gate) = &engine.runtime.gate {
                gate.open();
            }
            if engine.is_owing() && polls {
                // This thread comes back to it, or whoever waits for it has the other one woken.
                if let Some(peers) = &mut engine.core.peers {
                    peers.endpoint.remind_within(LONGEST_DELAY);
                }
            } else if engine.is_owing() {
                let _ = rustix::io::write(&engine.runtime.kick, &1_u64.to_ne_bytes());
            }
        }
        drivers.fetch_sub(1, Ordering::Relaxed);
        inside::end();
    }

    /// Drives until the slot is done. To be called between enter and leave, without the lock.
    pub(crate) fn wait(&self, slot: &Slot) {
        self.wait_until((&self.waits, LONGEST_SPIN), || slot.is_done(), |limit| slot.sleep(limit));
    }

    /// The same for what no message brings, and with a spin of the caller's choice. `sleep` returns when it may be done, or after so long.
    pub(crate) fn wait_until(
        &self,
        (learned, longest_spin): (&Learned, Duration),
        is_done: impl Fn() -> bool,
        sleep: impl Fn(Option<Duration>),
    ) {
        let _away = Away::begin();
        while !is_done() {
            if self.spin(learned, longest_spin, &is_done) {
                return;
            }
            Self::leave_to(self.lock(), false);
            self.asleep(|| sleep(LONGEST_SLEEP));
            drop(self.enter());
        }
    }

    fn asleep<R>(&self, sleep: impl FnOnce() -> R) -> R {
        self.asleep.fetch_add(1, Ordering::Relaxed);
        let slept = sleep();
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        slept
    }

    /// As a system call waits: until the slot is done, the deadline has passed (ETIMEDOUT), or a signal's handler has run that
    /// ends such calls (EINTR). Not to be called between enter and leave.
    pub(crate) fn wait_as_told(&self, slot: &Slot, deadline: Option<Instant>) -> Result<(), Errno> {
        let away = Away::begin();
        let since = self.enter().core.report.is_some().then(Instant::now);
        let mut ended = Ok(());
        while ended.is_ok() && !slot.is_done() && !self.spin(&self.waits, LONGEST_SPIN, || slot.is_done()) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            Self::leave_to(self.lock(), false);
            let slept = self.asleep(|| slot.sleep_as_told(left));
            drop(self.enter());
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            ended = match slept {
                Err(Errno::INTR) => Err(Errno::INTR),
                _ if is_late => Err(Errno::TIMEDOUT),
                _ => Ok(()),
            };
        }
        let mut engine = self.lock();
        if let (Some(since), Some(report)) = (since, &mut engine.core.report) {
            report.synchronised(since.elapsed(), this_thread());
        }
        Self::leave(engine);
        drop(away);
        if slot.is_done() { Ok(()) } else { ended }
    }

    /// Drives until `is_done`, or until nothing has come for a while; for no while where that has not paid lately. Whether it is done.
    fn spin(&self, learned: &Learned, longest: Duration, is_done: impl Fn() -> bool) -> bool {
        if !learned.pays() {
            return self.try_lock().is_some_and(|mut engine| engine.drive()) && is_done();
        }
        let mut times = None;
        let mut before = None;
        loop {
            let mut came = false;
            for _ in 0..16 {
                let has_come = self.try_lock().is_some_and(|mut engine| engine.drive());
                if is_done() {
                    // A long spin may have kept from its core the very one that has ended it.
                    if longest > LONGEST_SPIN && before.is_some_and(|before| preemptions() != before) {
                        learned.learn(true);
                    }
                    return true;
                }
                came |= has_come;
                if !has_come {
                    std::hint::spin_loop();
                }
            }
            // Most waits are over before it is worth while to look at a clock.
            let now = Instant::now();
            let (since, ring_at) = times.get_or_insert((now, now + PATIENCE));
            if came {
                *since = now;
            }
            let waited = now - *since;
            if now >= *ring_at {
                self.ring_unread();
                *ring_at = now + PATIENCE;
            }
            if waited < SHORT_SPIN {
                continue;
            }
            let before = *before.get_or_insert_with(preemptions);
            if waited >= longest {
                learned.learn(preemptions() != before);
                return false;
            }
        }
    }

    fn ring_unread(&self) {
        if let Some(mut engine) = self.try_lock()
            && let Some(peers) = &mut engine.core.peers
        {
            peers.endpoint.ring_unread();
        }
    }

    /// Does something with the engine, and waits until that has come to its end.
    pub(crate) fn call<R>(&self, begin: impl FnOnce(&mut Engine, &Arc<Slot>) -> R) -> (R, [u64; 2]) {
        let mut engine = self.enter();
        let slot = engine.slot();
        let begun = begin(&mut engine, &slot);
        let since = engine.core.report.is_some().then(Instant::now);
        drop(engine);
        self.wait(&slot);
        let values = slot.values();
        let mut engine = self.lock();
        if let (Some(since), Some(report)) = (since, &mut engine.core.report) {
            report.synchronised(since.elapsed(), this_thread());
        }
        engine.slots.push(slot);
        Self::leave(engine);
        (begun, values)
    }

    /// The same, and after a deadline says that it is late. That, too, is waited for: whoever was asked says how it has ended.
    pub(crate) fn call_until<R>(
        &self,
        deadline: Instant,
        begin: impl FnOnce(&mut Engine, &Arc<Slot>) -> R,
        is_late: impl FnOnce(&mut Engine, &R),
    ) -> (R, [u64; 2]) {
        let mut engine = self.enter();
        let slot = engine.slot();
        let begun = begin(&mut engine, &slot);
        Self::leave(engine);
        // Handlers of signals run, and end no such wait.
        while self.wait_as_told(&slot, Some(deadline)) == Err(Errno::INTR) {}
        let mut engine = self.enter();
        if !slot.is_done() {
            is_late(&mut engine, &begun);
        }
        drop(engine);
        self.wait(&slot);
        let values = slot.values();
        let mut engine = self.lock();
        engine.slots.push(slot);
        Self::leave(engine);
        (begun, values)
    }

    /// Lets what has come be dealt with; for a program that computes for long and wants to be a quick home to others.
    pub(crate) fn poll(&self) {
        if let Some(mut engine) = self.try_lock() {
            engine.drive();
        }
    }

    /// From now on threads that check accesses look for mail at this page, and come here when there is some.
    pub(crate) fn begin_to_poll(&self, page: usize) -> std::io::Result<()> {
        let engine = self.lock();
        if let Some(peers) = &engine.core.peers {
            #[expect(unsafe_code, reason = "a page at an address of the program's own")]
            // SAFETY: nothing but mail is ever looked for there.
            unsafe {
                peers.endpoint.show_mail(page)?;
            }
            self.polls.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Serves those who have left mail, until none comes for a moment. By a thread that computes.
    pub(crate) fn look_at_mail(&self) {
        // Who has the engine reads what has come.
        let Some(engine) = self.try_lock() else { return };
        let _away = Away::begin();
        let mut engine = self.take_part(engine);
        // It has made the accesses that it was given something for.
        engine.let_go(this_thread());
        let mut since = Instant::now();
        while since.elapsed() < NEXT_QUESTION {
            for _ in 0..LOOKS_A_CLOCK {
                if engine.drive() {
                    since = Instant::now();
                }
                std::hint::spin_loop();
            }
        }
        Self::leave(engine);
    }

    /// The thread that drives when no other does.
    fn attend(&self) {
        let event = self.event.as_ref().expect("it is started with one").as_fd();
        priority::come_first();
        Self::leave(self.enter());
        let mut owes = false;
        while !self.is_over.load(Ordering::Acquire) {
            let source = self.gate.as_ref().map_or(event, |gate| gate.set.as_fd());
            let mut sources = [PollFd::new(&source, PollFlags::IN), PollFd::new(&self.kick, PollFlags::IN)];
            let limit = owes.then_some(&BETWEEN_LOOKS_FOR_ROOM);
            let _ = rustix::event::poll(&mut sources, limit);
            // Taken out of the set, or it would be readable for ever.
            let mut space = [std::mem::MaybeUninit::uninit(); 16];
            let _ = rustix::event::epoll::wait(source, &mut space, Some(&NO_TIME));
            let events = rustix::event::epoll::wait(event, &mut space, Some(&NO_TIME));
            let is_timer = events.is_ok_and(|(events, _)| is_timer_alone(events));
            let _ = rustix::io::read(&self.kick, &mut [0; 8]);
            let woken = waiting::woken();
            if !is_timer {
                // The next message finds the thread that attends at once, and the one after that looks whether somebody polls again.
                self.are_deaf.store(self.is_polled.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            let came = self.enter().drive();
            // Nothing is about to come because some time has passed.
            if came || !is_timer {
                // Threads that do not wait may be kept from this core.
                let is_needed = self.asleep.load(Ordering::Relaxed) == 0;
                // Who waits for something drives better, and who need not wait any more computes.
                self.spin(&self.attends, if is_needed { SHORT_SPIN } else { LONGEST_SPIN }, || {
                    waiting::woken() != woken
                        || self.drivers.load(Ordering::Relaxed) > 1
                        || self.is_over.load(Ordering::Relaxed)
                });
            }
            let engine = self.lock();
            owes = engine.is_owing();
            Self::leave(engine);
        }
    }

    /// Nobody attends any more.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// Gives the calling thread the rights to a range of addresses, as far as it is one allocation's: it had all of them when this returns. Somebody
    /// else may take them again soon, though not at once.
    pub(crate) fn fetch(&self, address: usize, bytes: usize, is_store: bool, instruction: usize) -> Verdict {
        let (_inside, _away) = (Inside::begin(), Away::begin());
        let mut fetch = Fetch::new(this_thread(), address, bytes, is_store);
        let mut engine = self.lock();
        if engine.has(&fetch) {
            engine.found(&fetch);
            return Verdict::Retry;
        }
        drop(engine);
        invocation::pay();
        engine = self.enter();
        let slot = engine.slot();
        let missing = engine.missing(address, bytes, is_store, instruction);
        let mut has_waited = false;
        let verdict = loop {
            match engine.fetch(&mut fetch, &slot) {
                Stopped::Served => break Verdict::Retry,
                Stopped::Again => {}
                Stopped::NoMemory => break Verdict::NotOurs,
                Stopped::Lost(reason) => break Verdict::Lost(reason),
                Stopped::Waits => {
                    has_waited = true;
                    drop(engine);
                    self.wait(&slot);
                    engine = self.lock();
                    match engine.fetched(&mut fetch, slot.values()) {
                        Waited::Served => break Verdict::Retry,
                        Waited::Again => {}
                        Waited::Refused(reason) => break Verdict::Lost(reason),
                    }
                }
            }
        };
        if let Some(missing) = missing.filter(|_| has_waited) {
            engine.has_come(&missing, this_thread());
        }
        engine.end_fetch(&fetch);
        engine.slots.push(slot);
        Self::leave(engine);
        verdict
    }

    /// Serves a thread that was stopped, on that very thread, in a signal handler.
    fn serve(&self, fault: Fault) -> Verdict {
        if fault.is_by_software {
            return self.fetch(fault.address, fault.bytes, fault.is_store, fault.instruction);
        }
        let (_inside, _away) = (Inside::begin(), Away::begin());
        invocation::pay();
        let mut engine = self.enter();
        let slot = engine.slot();
        let missing = engine.missing(fault.address, 1, fault.is_store, fault.instruction);
        let mut has_waited = false;
        let verdict = loop {
            match engine.fault(fault.address, fault.is_store, &slot) {
                Stopped::Served => break Verdict::Retry,
                Stopped::Again => {}
                Stopped::NoMemory => break Verdict::NotOurs,
                Stopped::Lost(reason) => break Verdict::Lost(reason),
                Stopped::Waits => {
                    has_waited = true;
                    drop(engine);
                    self.wait(&slot);
                    engine = self.lock();
                    match engine.waited(fault.address, fault.is_store, slot.values()) {
                        Waited::Served => {
                            engine.served(this_thread(), fault.address, &OWN);
                            break Verdict::Retry;
                        }
                        Waited::Again => {}
                        Waited::Refused(reason) => break Verdict::Lost(reason),
                    }
                }
            }
        };
        if let Some(missing) = missing.filter(|_| has_waited) {
            engine.has_come(&missing, this_thread());
        }
        engine.slots.push(slot);
        Self::leave(engine);
        verdict
    }
}

/// The task's, once this process has joined.
pub(crate) fn of_this_process() -> Option<&'static Runtime> {
    TASK.get().map(Arc::as_ref)
}

/// That of named regions, once some were attached.
pub(crate) fn of_homes() -> Option<&'static Runtime> {
    HOMES.get().map(Arc::as_ref)
}

/// Where `comb_memory` sends faults.
pub(crate) fn on_fault(fault: Fault) -> Verdict {
    let runtime = if crate::named::is_named(fault.address) { &HOMES } else { &TASK };
    runtime.get().map_or(Verdict::NotOurs, |runtime| runtime.serve(fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scene::owing;

    /// No message will tell of it, and the next timer is far. One runtime for a process: all of it is of one test.
    #[test]
    fn who_drives_last_wakes_somebody_for_what_is_left_to_do() {
        let runtime = Runtime::start(owing(80 << 20), Whose::Task).expect("started");
        let is_kicked = || rustix::io::read(&runtime.kick, &mut [0; 8]).is_ok();
        drop(runtime.enter());
        drop(runtime.enter());
        assert!(!is_kicked(), "somebody drives");
        Runtime::leave(runtime.lock());
        assert!(!is_kicked(), "somebody drives still");
        Runtime::leave(runtime.lock());
        assert!(is_kicked(), "nobody comes back to what was kept");
    }
}
