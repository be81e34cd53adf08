//! Processes and their threads: who belongs to whom, how each begins and ends, and who is told.

use crate::descriptors::{OpenFile, SharedTable};
use crate::errno::{ECHILD, EINVAL, EPERM, ESRCH, Errno};
use crate::layouts::{Action, Limit, SignalStack};
use crate::machine::Machine;
use crate::signals::{DEFAULT, IGNORE, Pending, of_child};
use crate::spaces::SpaceNumber;
use crate::unix::{Caller, Unix};
use crate::usage::{Used, usage};
use crate::waiting::{Id, Interruption, Key, Outcome, Progress, Stop, Wait};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The process that takes in those whose parents are gone. It is the emulator itself and has no threads.
pub(crate) const INIT: Id = 1;

/// Threads of all processes together: a program that makes more gets `EAGAIN`.
pub(crate) const MOST_THREADS: usize = 4096;

/// `SA_NOCLDWAIT` and `SA_NOCLDSTOP`.
const NO_WAIT: u64 = 2;
const NO_STOP_TOLD: u64 = 1;

/// What a thread is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It runs in user mode.
    Running,
    /// The emulator is busy with it.
    Stopped,
    /// Its call waits.
    Waiting(Wait),
    /// The page that it touched is on its way from another cell.
    Faulted { address: u64, access: crate::machine::Access },
    /// Its process was halted by a signal.
    Halted,
}

/// A thread of a program.
pub(crate) struct Thread<M: Machine> {
    pub(crate) process: Id,
    pub(crate) machine: M::Thread,
    pub(crate) state: State,
    pub(crate) mask: u64,
    /// What the mask is to be again when the call is over that changed it for its length.
    pub(crate) saved_mask: Option<u64>,
    /// Signals that `rt_sigtimedwait` is waiting for.
    pub(crate) awaits: u64,
    pub(crate) pending: Pending,
    pub(crate) stack: SignalStack,
    /// Where a zero is stored, and a waiter woken, when it ends.
    pub(crate) clear_at: u64,
    pub(crate) robust_list: (u64, u64),
    /// Number and arguments of its last call.
    pub(crate) call: (u64, [u64; 6]),
    pub(crate) progress: Progress,
    /// The processor's error code of its last fault.
    pub(crate) fault_error: u64,
    pub(crate) name: [u8; 16],
    /// What it used of the processors while it was another of the machine's.
    pub(crate) used_before: Duration,
}

impl<M: Machine> Thread<M> {
    /// A thread that has not made a call yet.
    pub(crate) fn new(process: Id, machine: M::Thread) -> Self {
        Thread {
            process,
            machine,
            state: State::Stopped,
            mask: 0,
            saved_mask: None,
            awaits: 0,
            pending: Pending::default(),
            stack: SignalStack::default(),
            clear_at: 0,
            robust_list: (0, 0),
            call: (0, [0; 6]),
            progress: Progress::default(),
            fault_error: 0,
            name: [0; 16],
            used_before: Duration::ZERO,
        }
    }

    /// The signals that are blocked now or will be again when its call is over.
    pub(crate) fn blocked_really(&self) -> u64 {
        self.mask
    }
}

/// Where a process is in the tree of files, and with which rights it makes files.
#[derive(Clone)]
pub(crate) struct Where {
    pub(crate) directory: Rc<OpenFile>,
    pub(crate) mask: u32,
}

/// Actions for all signals, which threads and some processes share.
pub(crate) type Actions = Rc<RefCell<[Action; 64]>>;

/// A process.
pub(crate) struct Process {
    pub(crate) id: Id,
    pub(crate) parent: Id,
    pub(crate) group: Id,
    pub(crate) session: Id,
    pub(crate) space: SpaceNumber,
    pub(crate) table: SharedTable,
    pub(crate) place: Rc<RefCell<Where>>,
    pub(crate) actions: Actions,
    pub(crate) pending: Pending,
    pub(crate) threads: Vec<Id>,
    /// The status for its parent, once it has ended.
    pub(crate) ended: Option<i32>,
    /// The signal that tells its parent.
    pub(crate) exit_signal: i32,
    pub(crate) halted: bool,
    /// A change of `halted` that the parent has not asked for yet, as a status.
    pub(crate) news: Option<i32>,
    pub(crate) executed: bool,
    pub(crate) executable: Vec<u8>,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) environment: Vec<Vec<u8>>,
    pub(crate) limits: [Limit; 16],
    /// The real-time interval timer: when, and how often after that.
    pub(crate) alarm: Option<(Instant, Duration)>,
    /// The thread of the parent that waits until this process has a space of its own.
    pub(crate) parting: bool,
    pub(crate) begun: Instant,
    pub(crate) used: Used,
}

/// What a parent may ask for.
#[derive(Clone, Copy)]
struct Question {
    ended: bool,
    halted: bool,
    continued: bool,
    /// The state is left for another question.
    look_only: bool,
}

/// What a parent is told.
struct Answer {
    child: Id,
    status: i32,
    /// It has, and those that it has waited for.
    used: Duration,
}

impl<M: Machine> Unix<M> {
    /// A thread that is known to be there, as the caller of a call is.
    pub(crate) fn thread(&self, id: Id) -> &Thread<M> {
        self.threads.get(&id).expect("a thread stays until it is taken out of all tables at once")
    }

    pub(crate) fn thread_mut(&mut self, id: Id) -> &mut Thread<M> {
        self.threads.get_mut(&id).expect("a thread stays until it is taken out of all tables at once")
    }

    /// A process that is known to be there, as the caller's is.
    pub(crate) fn process(&self, id: Id) -> &Process {
        self.processes.get(&id).expect("a process stays until its parent has asked for its end")
    }

    pub(crate) fn process_mut(&mut self, id: Id) -> &mut Process {
        self.processes.get_mut(&id).expect("a process stays until its parent has asked for its end")
    }

    /// Takes a thread out of all tables.
    fn drop_thread(&mut self, id: Id) {
        self.forget_wait(id);
        let used = self.used_by_thread(id);
        let Some(thread) = self.threads.remove(&id) else { return };
        self.by_machine.remove(&thread.machine);
        self.memory.machine.end_thread(thread.machine);
        if let Some(process) = self.processes.get_mut(&thread.process) {
            process.threads.retain(|&other| other != id);
            process.used.before += used;
        }
    }

    /// One thread ends by its own wish; the last one takes its process along.
    pub(crate) fn end_thread(&mut self, id: Id, status: i32) {
        let Some(who) = self.caller(id) else { return };
        self.leave_robust_list(who);
        let clear_at = self.thread(id).clear_at;
        if clear_at != 0 && self.memory.write(who.space, clear_at, &0u32).is_ok() {
            self.wake_waiters(who, clear_at, 1, u32::MAX);
        }
        if self.process(who.process).threads.len() > 1 {
            self.drop_thread(id);
        } else {
            self.end_process(who.process, status);
        }
    }

    /// A process ends with a status as `wait4` shows it.
    pub(crate) fn end_process(&mut self, id: Id, status: i32) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.ended.is_none()) else {
            return;
        };
        process.ended = Some(status);
        process.alarm = None;
        let (space, parent, signal) = (process.space, process.parent, process.exit_signal);
        for thread in process.threads.clone() {
            self.drop_thread(thread);
        }
        self.close_all(id);
        self.part(id);
        self.memory.release_space(space);
        let children: Vec<Id> =
            self.processes.values().filter(|child| child.parent == id).map(|child| child.id).collect();
        for child in children {
            self.process_mut(child).parent = INIT;
            if self.process(child).ended.is_some() {
                self.processes.remove(&child);
            }
        }
        if id == self.first {
            self.end = Some(status);
        }
        self.tell_parent(id, parent, signal, status);
    }

    fn tell_parent(&mut self, id: Id, parent: Id, signal: i32, status: i32) {
        let Some(told) = self.processes.get(&parent) else {
            self.processes.remove(&id);
            return;
        };
        let action = told.actions.borrow()[libc::SIGCHLD as usize - 1];
        let unwanted = signal == libc::SIGCHLD && (action.handler == IGNORE || action.flags & NO_WAIT != 0);
        if parent == INIT || unwanted {
            self.processes.remove(&id);
        }
        self.wakes.wake(Key::Children(parent));
        if (1..=crate::signals::SIGNALS).contains(&signal) {
            let (code, value) = if status & 0x7f == 0 {
                (libc::CLD_EXITED, status >> 8)
            } else {
                (libc::CLD_KILLED, status & 0x7f)
            };
            let mut information = of_child(code, id, self.user(), value);
            information.number = signal;
            // One more of the same signal is no loss.
            let _ = self.post(parent, None, information);
        }
    }

    /// A process that vfork made no longer uses its parent's space.
    pub(crate) fn part(&mut self, id: Id) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if std::mem::take(&mut process.parting) {
            self.wakes.wake(Key::Parting(id));
        }
    }

    /// All threads but one end, as before an exec. The one that stays gets the number of the process.
    pub(crate) fn end_other_threads(&mut self, who: Caller) -> Caller {
        for other in self.process(who.process).threads.clone() {
            if other != who.thread {
                self.drop_thread(other);
            }
        }
        if who.thread != who.process
            && let Some(thread) = self.threads.remove(&who.thread)
        {
            self.by_machine.insert(thread.machine, who.process);
            self.threads.insert(who.process, thread);
            self.process_mut(who.process).threads = vec![who.process];
        }
        Caller { thread: who.process, ..who }
    }

    /// A signal halts a process.
    pub(crate) fn halt(&mut self, id: Id, signal: i32) {
        let process = self.process_mut(id);
        if process.halted {
            return;
        }
        process.halted = true;
        process.news = Some(signal << 8 | 0x7f);
        for thread in process.threads.clone() {
            let thread = self.thread(thread);
            if thread.state == State::Running {
                self.memory.machine.interrupt(thread.machine);
            }
        }
        self.tell_change(id, libc::CLD_STOPPED, signal);
    }

    /// A halted process goes on.
    pub(crate) fn go_on(&mut self, id: Id) {
        let process = self.process_mut(id);
        if !process.halted {
            return;
        }
        process.halted = false;
        process.news = Some(0xffff);
        let threads = process.threads.clone();
        self.tell_change(id, libc::CLD_CONTINUED, libc::SIGCONT);
        for thread in threads {
            if self.threads.get(&thread).is_some_and(|thread| thread.state == State::Halted) {
                self.leave(thread);
            }
        }
    }

    fn tell_change(&mut self, id: Id, code: i32, signal: i32) {
        let parent = self.process(id).parent;
        self.wakes.wake(Key::Children(parent));
        let Some(told) = self.processes.get(&parent) else { return };
        if told.actions.borrow()[libc::SIGCHLD as usize - 1].flags & NO_STOP_TOLD == 0 && parent != INIT {
            let information = of_child(code, id, self.user(), signal);
            // One more of the same signal is no loss.
            let _ = self.post(parent, None, information);
        }
    }

    /// Looks for a child that there is something to tell about, or says how to wait for it.
    fn ask(
        &mut self,
        who: Caller,
        meant: impl Fn(&Process) -> bool,
        question: Question,
        hang: bool,
    ) -> Result<Option<Answer>, Stop> {
        let mut any = false;
        let mut found = None;
        for child in self.processes.values().filter(|child| child.parent == who.process && meant(child)) {
            any = true;
            let status = match child.ended {
                Some(status) if question.ended => Some(status),
                Some(_) => None,
                None => child
                    .news
                    .filter(|&news| if news == 0xffff { question.continued } else { question.halted }),
            };
            if let Some(status) = status {
                found = Some((child.id, status));
                break;
            }
        }
        match found {
            Some((child, status)) => {
                let used = self.used_by_family(child);
                if !question.look_only {
                    if self.process(child).ended.is_some() {
                        self.processes.remove(&child);
                        self.process_mut(who.process).used.by_children += used;
                    } else {
                        self.process_mut(child).news = None;
                    }
                }
                Ok(Some(Answer { child, status, used }))
            }
            None if !any => Err(ECHILD.into()),
            None if !hang => Ok(None),
            None => Err(Wait::key(Key::Children(who.process)).into()),
        }
    }

    pub(crate) fn call_wait4(
        &mut self,
        who: Caller,
        target: i32,
        status_at: u64,
        options: i32,
        usage_at: u64,
    ) -> Outcome {
        let known = libc::WNOHANG
            | libc::WUNTRACED
            | libc::WCONTINUED
            | libc::__WALL
            | libc::__WCLONE
            | libc::__WNOTHREAD;
        if options & !known != 0 {
            return Err(EINVAL.into());
        }
        let question = Question {
            ended: true,
            halted: options & libc::WUNTRACED != 0,
            continued: options & libc::WCONTINUED != 0,
            look_only: false,
        };
        let own = self.process(who.process).group;
        let meant = |child: &Process| match target {
            -1 => true,
            0 => child.group == own,
            1.. => child.id == target,
            _ => target.checked_neg() == Some(child.group),
        };
        let Some(answer) = self.ask(who, meant, question, options & libc::WNOHANG == 0)? else {
            return Ok(0);
        };
        if status_at != 0 {
            self.memory.write(who.space, status_at, &answer.status)?;
        }
        if usage_at != 0 {
            self.memory.write_bytes(who.space, usage_at, &crate::host::bytes_of(&usage(answer.used)))?;
        }
        Ok(answer.child as u64)
    }

    pub(crate) fn call_wait_id(
        &mut self,
        who: Caller,
        kind: i32,
        target: i32,
        told_at: u64,
        options: i32,
        usage_at: u64,
    ) -> Outcome {
        let question = Question {
            ended: options & libc::WEXITED != 0,
            halted: options & libc::WSTOPPED != 0,
            continued: options & libc::WCONTINUED != 0,
            look_only: options & libc::WNOWAIT != 0,
        };
        if !(question.ended || question.halted || question.continued) {
            return Err(EINVAL.into());
        }
        let own = self.process(who.process).group;
        let kind = kind as libc::idtype_t;
        if !matches!(kind, libc::P_ALL | libc::P_PID | libc::P_PGID) {
            return Err(EINVAL.into());
        }
        let meant = |child: &Process| match kind {
            libc::P_ALL => true,
            libc::P_PID => child.id == target,
            _ => child.group == if target == 0 { own } else { target },
        };
        let answer = self.ask(who, meant, question, options & libc::WNOHANG == 0)?;
        if told_at != 0 {
            let information = match &answer {
                None => crate::layouts::SignalInformation::default(),
                Some(Answer { child, status, .. }) => {
                    let (child, status) = (*child, *status);
                    let (code, value) = match status {
                        0xffff => (libc::CLD_CONTINUED, libc::SIGCONT),
                        _ if status & 0xff == 0x7f => (libc::CLD_STOPPED, status >> 8),
                        _ if status & 0x7f == 0 => (libc::CLD_EXITED, status >> 8),
                        _ => (libc::CLD_KILLED, status & 0x7f),
                    };
                    of_child(code, child, self.user(), value)
                }
            };
            self.memory.write(who.space, told_at, &information)?;
        }
        if let (Some(answer), true) = (answer, usage_at != 0) {
            self.memory.write_bytes(who.space, usage_at, &crate::host::bytes_of(&usage(answer.used)))?;
        }
        Ok(0)
    }

    pub(crate) fn call_set_group(&mut self, who: Caller, target: i32, group: i32) -> Outcome {
        let target = if target == 0 { who.process } else { target };
        let group = if group == 0 { target } else { group };
        if group < 0 {
            return Err(EINVAL.into());
        }
        let own_session = self.process(who.process).session;
        let process = self.processes.get(&target).ok_or(ESRCH)?;
        if target != who.process && process.parent != who.process {
            return Err(ESRCH.into());
        }
        if process.session != own_session || process.session == process.id {
            return Err(EPERM.into());
        }
        if target != who.process && process.executed {
            return Err(crate::errno::EACCES.into());
        }
        let exists = |other: &Process| other.group == group && other.session == own_session;
        if group != target && !self.processes.values().any(exists) {
            return Err(EPERM.into());
        }
        self.process_mut(target).group = group;
        Ok(0)
    }

    pub(crate) fn call_get_group(&mut self, who: Caller, target: i32, session: bool) -> Outcome {
        let target = if target == 0 { who.process } else { target };
        let process = self.processes.get(&target).ok_or(ESRCH)?;
        Ok(if session { process.session } else { process.group } as u64)
    }

    pub(crate) fn call_new_session(&mut self, who: Caller) -> Outcome {
        let id = who.process;
        if self.processes.values().any(|process| process.group == id) {
            return Err(EPERM.into());
        }
        let process = self.process_mut(id);
        (process.group, process.session) = (id, id);
        Ok(id as u64)
    }

    /// Makes the caller wait until its child has a space of its own. The child's number comes back then.
    pub(crate) fn wait_for_parting(&mut self, child: Id) -> Outcome {
        if self.processes.get(&child).is_none_or(|child| !child.parting) {
            return Ok(child as u64);
        }
        let mut wait = Wait::key(Key::Parting(child));
        wait.interruption = Interruption::Ignore;
        Err(wait.into())
    }

    /// The number for a new process or thread. Numbers are given in order and come again only after very many.
    pub(crate) fn new_id(&mut self) -> Result<Id, Errno> {
        if self.threads.len() >= MOST_THREADS || self.processes.len() >= 2 * MOST_THREADS {
            return Err(crate::errno::EAGAIN);
        }
        loop {
            self.last_id = if self.last_id >= 4_000_000 { 300 } else { self.last_id + 1 };
            let id = self.last_id;
            let taken = |process: &Process| process.id == id || process.group == id || process.session == id;
            if !self.threads.contains_key(&id) && !self.processes.values().any(taken) {
                return Ok(id);
            }
        }
    }
}

/// The limits that the first process has.
pub(crate) fn first_limits() -> [Limit; 16] {
    let endless = Limit { current: u64::MAX, most: u64::MAX };
    let mut limits = [endless; 16];
    limits[libc::RLIMIT_STACK as usize] = Limit { current: crate::spaces::STACK_BYTES, most: u64::MAX };
    limits[libc::RLIMIT_NOFILE as usize] =
        Limit { current: 1024, most: crate::descriptors::MOST_DESCRIPTORS };
    limits[libc::RLIMIT_NPROC as usize] = Limit { current: MOST_THREADS as u64, most: MOST_THREADS as u64 };
    limits[libc::RLIMIT_CORE as usize] = Limit { current: 0, most: u64::MAX };
    limits
}

/// Actions as a new program finds them, if none was ignored before.
pub(crate) fn first_actions() -> Actions {
    Rc::new(RefCell::new([Action { handler: DEFAULT, ..Action::default() }; 64]))
}

/// All processes by number.
pub(crate) type Processes = BTreeMap<Id, Process>;
