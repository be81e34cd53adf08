//! Signals: what is pending, who is told, and what each does when nobody has said otherwise.

use crate::errno::{EAGAIN, EINVAL, EPERM, ESRCH, Errno};
use crate::layouts::{Action, SignalInformation, SignalStack, Timespec};
use crate::machine::Machine;
use crate::processes::State;
use crate::unix::{Caller, Unix};
use crate::waiting::{Id, Interruption, Key, Outcome, Wait};

/// Signals are numbered from 1 to this.
pub(crate) const SIGNALS: i32 = 64;
/// Real-time signals that wait for one process or thread at most: a program cannot fill the emulator's memory with them.
const MOST_QUEUED: usize = 1024;

pub(crate) const DEFAULT: u64 = 0;
pub(crate) const IGNORE: u64 = 1;

/// The bit of a signal in a mask.
pub(crate) fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals that nobody can block, handle or ignore.
pub(crate) fn unstoppable() -> u64 {
    bit(libc::SIGKILL) | bit(libc::SIGSTOP)
}

/// What a signal does by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    End,
    EndWithCore,
    Nothing,
    Halt,
    GoOn,
}

/// What the signal does when its action is the default one.
pub(crate) fn effect(signal: i32) -> Effect {
    match signal {
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH => Effect::Nothing,
        libc::SIGCONT => Effect::GoOn,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Effect::Halt,
        libc::SIGQUIT
        | libc::SIGILL
        | libc::SIGTRAP
        | libc::SIGABRT
        | libc::SIGBUS
        | libc::SIGFPE
        | libc::SIGSEGV
        | libc::SIGXCPU
        | libc::SIGXFSZ
        | libc::SIGSYS => Effect::EndWithCore,
        _ => Effect::End,
    }
}

/// Signals that have been sent and not been delivered.
#[derive(Clone, Default, Debug)]
pub(crate) struct Pending {
    waiting: Vec<SignalInformation>,
}

impl Pending {
    /// The set of them.
    pub(crate) fn set(&self) -> u64 {
        self.waiting.iter().fold(0, |set, information| set | bit(information.number))
    }

    fn add(&mut self, information: SignalInformation) -> Result<(), Errno> {
        let real_time = information.number >= 32;
        if !real_time && self.set() & bit(information.number) != 0 {
            return Ok(());
        }
        if real_time && self.waiting.len() >= MOST_QUEUED {
            return Err(EAGAIN);
        }
        self.waiting.push(information);
        Ok(())
    }

    /// Takes the first of those with the lowest number in the set.
    pub(crate) fn take(&mut self, set: u64) -> Option<SignalInformation> {
        let number =
            self.waiting.iter().map(|one| one.number).filter(|&number| set & bit(number) != 0).min()?;
        let at = self.waiting.iter().position(|one| one.number == number)?;
        Some(self.waiting.remove(at))
    }

    fn drop_all(&mut self, set: u64) {
        self.waiting.retain(|one| set & bit(one.number) == 0);
    }
}

/// What is told about a signal that the emulator raises itself.
pub(crate) fn information(number: i32, code: i32) -> SignalInformation {
    SignalInformation { number, code, ..SignalInformation::default() }
}

/// What is told about a signal that a process sent.
fn sent_by(number: i32, code: i32, process: Id, user: u32) -> SignalInformation {
    let mut information = information(number, code);
    information.rest[0] = u64::from(process as u32) | u64::from(user) << 32;
    information
}

/// What is told about a child.
pub(crate) fn of_child(code: i32, child: Id, user: u32, status: i32) -> SignalInformation {
    let mut information = sent_by(libc::SIGCHLD, code, child, user);
    information.rest[1] = u64::from(status as u32);
    information
}

/// What is told about an instruction that failed.
pub(crate) fn of_fault(number: i32, code: i32, address: u64) -> SignalInformation {
    let mut information = information(number, code);
    information.rest[0] = address;
    information
}

fn checked(signal: i32) -> Result<i32, Errno> {
    if (1..=SIGNALS).contains(&signal) { Ok(signal) } else { Err(EINVAL) }
}

impl<M: Machine> Unix<M> {
    fn is_ignored(&self, process: Id, signal: i32) -> bool {
        let Some(process) = self.processes.get(&process) else { return true };
        match process.actions.borrow()[signal as usize - 1].handler {
            IGNORE => true,
            DEFAULT => effect(signal) == Effect::Nothing,
            _ => false,
        }
    }

    /// Sends a signal to a process, or to one of its threads.
    pub(crate) fn post(
        &mut self,
        process: Id,
        thread: Option<Id>,
        information: SignalInformation,
    ) -> Result<(), Errno> {
        let signal = information.number;
        let Some(target) = self.processes.get_mut(&process).filter(|process| process.ended.is_none()) else {
            return Ok(());
        };
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU]
            .into_iter()
            .fold(0, |set, one| set | bit(one));
        let cancelled = match signal {
            libc::SIGCONT => stops,
            _ if stops & bit(signal) != 0 => bit(libc::SIGCONT),
            _ => 0,
        };
        target.pending.drop_all(cancelled);
        let threads = target.threads.clone();
        for thread in &threads {
            if let Some(thread) = self.threads.get_mut(thread) {
                thread.pending.drop_all(cancelled);
            }
        }
        if signal == libc::SIGCONT {
            self.go_on(process);
        }
        let candidates: Vec<Id> = thread.map_or(threads, |thread| vec![thread]);
        let blocked = |unix: &Self, id: &Id| {
            unix.threads.get(id).is_none_or(|thread| thread.blocked_really() & bit(signal) != 0)
        };
        let open: Vec<Id> = candidates.iter().copied().filter(|id| !blocked(self, id)).collect();
        let awaited = candidates
            .iter()
            .any(|id| self.threads.get(id).is_some_and(|thread| thread.awaits & bit(signal) != 0));
        if self.is_ignored(process, signal) && !open.is_empty() && !awaited {
            return Ok(());
        }
        match thread {
            Some(thread) => match self.threads.get_mut(&thread) {
                Some(thread) => thread.pending.add(information)?,
                None => return Err(ESRCH),
            },
            None => match self.processes.get_mut(&process) {
                Some(process) => process.pending.add(information)?,
                None => return Ok(()),
            },
        }
        self.wakes.wake(Key::Signals(process));
        let waits =
            |id: &&Id| self.threads.get(id).is_some_and(|thread| matches!(thread.state, State::Waiting(_)));
        let Some(&chosen) = open.iter().find(waits).or(open.first()) else { return Ok(()) };
        self.notice(chosen);
        Ok(())
    }

    /// Sees to it that a thread comes to take its signals.
    pub(crate) fn notice(&mut self, id: Id) {
        let Some(thread) = self.threads.get(&id) else { return };
        match thread.state {
            State::Running => self.memory.machine.interrupt(thread.machine),
            State::Waiting(_) => self.interrupt_wait(id),
            State::Halted | State::Faulted { .. } if self.deliverable(id) & bit(libc::SIGKILL) != 0 => {
                self.leave(id);
            }
            State::Halted | State::Faulted { .. } | State::Stopped => {}
        }
    }

    /// The set of signals that would be delivered to the thread now.
    pub(crate) fn deliverable(&self, id: Id) -> u64 {
        let Some(thread) = self.threads.get(&id) else { return 0 };
        let Some(process) = self.processes.get(&thread.process) else { return 0 };
        (thread.pending.set() | process.pending.set()) & !(thread.mask & !unstoppable())
    }

    /// Sends a signal that the thread cannot do without: if it blocks or ignores it, its process ends.
    pub(crate) fn force(&mut self, id: Id, information: SignalInformation) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        let bit = bit(information.number);
        let Some(process) = self.processes.get_mut(&thread.process) else { return };
        let action = &mut process.actions.borrow_mut()[information.number as usize - 1];
        if thread.mask & bit != 0 || action.handler == IGNORE {
            action.handler = DEFAULT;
            thread.mask &= !bit;
        }
        // Standard signals are never too many.
        let _ = thread.pending.add(information);
    }

    fn sent(&self, who: Caller, signal: i32, code: i32) -> SignalInformation {
        sent_by(signal, code, who.process, self.user())
    }

    /// The processes that a number given to `kill` means.
    fn meant(&self, who: Caller, target: i32) -> Vec<Id> {
        let group = match target {
            0 => self.processes.get(&who.process).map_or(0, |process| process.group),
            1.. => return if self.processes.contains_key(&target) { vec![target] } else { Vec::new() },
            -1 => {
                let all = self.processes.keys().copied();
                return all.filter(|&id| id != who.process && id != crate::processes::INIT).collect();
            }
            _ => target.checked_neg().unwrap_or(0),
        };
        self.processes.values().filter(|process| process.group == group).map(|process| process.id).collect()
    }

    pub(crate) fn call_kill(&mut self, who: Caller, target: i32, signal: i32) -> Outcome {
        let meant = self.meant(who, target);
        if meant.is_empty() {
            return Err(ESRCH.into());
        }
        if signal != 0 {
            checked(signal)?;
            let information = self.sent(who, signal, libc::SI_USER);
            for process in meant {
                self.post(process, None, information)?;
            }
        }
        Ok(0)
    }

    /// `tkill` without a process, `tgkill` with one.
    pub(crate) fn call_thread_kill(
        &mut self,
        who: Caller,
        process: Option<Id>,
        thread: Id,
        signal: i32,
    ) -> Outcome {
        if thread <= 0 || process.is_some_and(|process| process <= 0) {
            return Err(EINVAL.into());
        }
        let owner = self.threads.get(&thread).map(|thread| thread.process).ok_or(ESRCH)?;
        if process.is_some_and(|process| process != owner) {
            return Err(ESRCH.into());
        }
        if signal != 0 {
            checked(signal)?;
            let information = self.sent(who, signal, libc::SI_TKILL);
            self.post(owner, Some(thread), information)?;
        }
        Ok(0)
    }

    /// `rt_sigqueueinfo`, and with a thread `rt_tgsigqueueinfo`.
    pub(crate) fn call_queue(
        &mut self,
        who: Caller,
        process: Id,
        thread: Option<Id>,
        signal: i32,
        at: u64,
    ) -> Outcome {
        let mut information: SignalInformation = self.memory.read(who.space, at)?;
        information.number = checked(signal)?;
        // Only the kernel may say that a signal came from the kernel.
        if (information.code >= 0 || information.code == libc::SI_TKILL) && process != who.process {
            return Err(EPERM.into());
        }
        if !self.processes.contains_key(&process) {
            return Err(ESRCH.into());
        }
        if let Some(thread) = thread
            && self.threads.get(&thread).is_none_or(|thread| thread.process != process)
        {
            return Err(ESRCH.into());
        }
        self.post(process, thread, information)?;
        Ok(0)
    }

    pub(crate) fn call_action(
        &mut self,
        who: Caller,
        signal: i32,
        new: u64,
        old: u64,
        bytes: u64,
    ) -> Outcome {
        checked(signal)?;
        if bytes != 8 {
            return Err(EINVAL.into());
        }
        let process = self.process(who.process);
        let actions = process.actions.clone();
        let before = actions.borrow()[signal as usize - 1];
        if new != 0 {
            if unstoppable() & bit(signal) != 0 {
                return Err(EINVAL.into());
            }
            let mut action: Action = self.memory.read(who.space, new)?;
            action.mask &= !unstoppable();
            actions.borrow_mut()[signal as usize - 1] = action;
            if self.is_ignored(who.process, signal) {
                let process = self.process_mut(who.process);
                process.pending.drop_all(bit(signal));
                for id in process.threads.clone() {
                    if let Some(thread) = self.threads.get_mut(&id) {
                        thread.pending.drop_all(bit(signal));
                    }
                }
            }
        }
        if old != 0 {
            self.memory.write(who.space, old, &before)?;
        }
        Ok(0)
    }

    pub(crate) fn call_mask(&mut self, who: Caller, how: i32, new: u64, old: u64, bytes: u64) -> Outcome {
        if bytes != 8 {
            return Err(EINVAL.into());
        }
        let before = self.thread(who.thread).mask;
        if new != 0 {
            let set: u64 = self.memory.read(who.space, new)?;
            let mask = match how {
                libc::SIG_BLOCK => before | set,
                libc::SIG_UNBLOCK => before & !set,
                libc::SIG_SETMASK => set,
                _ => return Err(EINVAL.into()),
            };
            self.thread_mut(who.thread).mask = mask & !unstoppable();
        }
        if old != 0 {
            self.memory.write(who.space, old, &before)?;
        }
        Ok(0)
    }

    pub(crate) fn call_pending(&mut self, who: Caller, set: u64) -> Outcome {
        let thread = self.thread(who.thread);
        let pending = (thread.pending.set() | self.process(who.process).pending.set()) & thread.mask;
        self.memory.write(who.space, set, &pending)?;
        Ok(0)
    }

    /// Takes another mask for the length of a call. It is taken back when the call returns, after handlers have run.
    pub(crate) fn mask_for_call(&mut self, who: Caller, set: u64, bytes: u64) -> Result<(), Errno> {
        if set == 0 || self.thread(who.thread).progress.begun {
            return Ok(());
        }
        if bytes != 8 {
            return Err(EINVAL);
        }
        let mask: u64 = self.memory.read(who.space, set)?;
        let thread = self.thread_mut(who.thread);
        thread.saved_mask = Some(thread.mask);
        thread.mask = mask & !unstoppable();
        Ok(())
    }

    pub(crate) fn call_suspend(&mut self, who: Caller, set: u64, bytes: u64) -> Outcome {
        self.mask_for_call(who, set, bytes)?;
        Err(Wait::until(None).into())
    }

    pub(crate) fn call_alternate_stack(&mut self, who: Caller, new: u64, old: u64) -> Outcome {
        let stack = self.thread(who.thread).stack;
        let sp = self.registers(who.thread).rsp;
        let on_it = stack.flags & libc::SS_DISABLE == 0 && sp > stack.base && sp - stack.base <= stack.bytes;
        let replacement = if new == 0 {
            None
        } else {
            let wanted: SignalStack = self.memory.read(who.space, new)?;
            // SS_AUTODISARM is a flag besides the mode.
            match wanted.flags & !i32::MIN {
                libc::SS_DISABLE => Some(SignalStack { flags: libc::SS_DISABLE, ..SignalStack::default() }),
                0 | libc::SS_ONSTACK if wanted.bytes < 2048 => return Err(crate::errno::ENOMEM.into()),
                0 | libc::SS_ONSTACK => Some(SignalStack { flags: 0, ..wanted }),
                _ => return Err(EINVAL.into()),
            }
        };
        if on_it && replacement.is_some() {
            return Err(EPERM.into());
        }
        if old != 0 {
            let flags = match stack.bytes {
                0 => libc::SS_DISABLE,
                _ if on_it => libc::SS_ONSTACK,
                _ => stack.flags,
            };
            let shown = SignalStack { flags, ..stack };
            self.memory.write(who.space, old, &shown)?;
        }
        if let Some(stack) = replacement {
            self.thread_mut(who.thread).stack = stack;
        }
        Ok(0)
    }

    /// Waits for a signal of a set, without a handler (`rt_sigtimedwait`).
    pub(crate) fn call_timed_wait(
        &mut self,
        who: Caller,
        set: u64,
        told: u64,
        timeout: u64,
        bytes: u64,
    ) -> Outcome {
        if bytes != 8 {
            return Err(EINVAL.into());
        }
        let set: u64 = self.memory.read(who.space, set)?;
        let set = set & !unstoppable();
        let until = if timeout == 0 {
            None
        } else {
            let timeout: Timespec = self.memory.read(who.space, timeout)?;
            Some(self.deadline(who, timeout)?)
        };
        let taken = match self.thread_mut(who.thread).pending.take(set) {
            None => self.process_mut(who.process).pending.take(set),
            taken => taken,
        };
        if let Some(information) = taken {
            self.thread_mut(who.thread).awaits = 0;
            if told != 0 {
                self.memory.write(who.space, told, &information)?;
            }
            return Ok(information.number as u64);
        }
        if until.is_some_and(|until| until <= std::time::Instant::now()) {
            self.thread_mut(who.thread).awaits = 0;
            return Err(EAGAIN.into());
        }
        self.thread_mut(who.thread).awaits = set;
        let mut wait = Wait::key(Key::Signals(who.process));
        wait.until = until;
        wait.interruption = Interruption::Fail;
        Err(wait.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_signals_wait_once_and_others_in_order() {
        let mut pending = Pending::default();
        for (number, code) in [(40, 1), (15, 2), (40, 3), (15, 4), (2, 5)] {
            pending.add(information(number, code)).expect("room");
        }
        assert_eq!(pending.take(!bit(2)).map(|one| (one.number, one.code)), Some((15, 2)));
        assert_eq!(pending.take(!0).map(|one| (one.number, one.code)), Some((2, 5)));
        assert_eq!(pending.take(!0).map(|one| (one.number, one.code)), Some((40, 1)));
        assert_eq!(pending.take(!0).map(|one| (one.number, one.code)), Some((40, 3)));
        assert_eq!(pending.take(!0).map(|one| one.number), None);
    }

    #[test]
    fn a_program_cannot_queue_without_bound() {
        let mut pending = Pending::default();
        for _ in 0..MOST_QUEUED {
            pending.add(information(50, 0)).expect("room");
        }
        assert_eq!(pending.add(information(50, 0)), Err(EAGAIN));
        assert_eq!(pending.add(information(9, 0)), Ok(()));
    }
}
