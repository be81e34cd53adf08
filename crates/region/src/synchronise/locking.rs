//! One lock at its home: who has it, who waits for it, and who waits for one of its conditions.
//!
//! First come, first served, readers beside each other. Who waits no longer than until a deadline says itself that it is late; only here is
//! it known whether it had been given the lock, or notified, before. So each wait ends once, and no notification is spent on one that has left.

use std::collections::{BTreeMap, VecDeque};

use super::{BUSY, GRANTED, LATE, LENT, Mistake};

/// How a lock is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Beside others, in its turn.
    Read,
    /// Beside others who have it, also if somebody waits who wants it alone: for who may have it already.
    ReadBeside,
    /// Alone.
    Write,
}

/// A thread that has a lock or waits for it: of which component, and the component's number for that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    pub(super) rank: u32,
    pub(super) token: u64,
}

/// Why somebody is in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wants {
    /// It came for the lock. `at_once`: it does not wait for others, only to hear whether somebody has it.
    Lock { alone: bool, at_once: bool },
    /// It waited for a condition, and wants back what it had, alone.
    Back { is_late: bool },
}

/// What becomes of a wait when its time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Late {
    /// It is over: who waited does not get the lock.
    Left,
    /// It has been answered, or will be when the lock is had.
    Stays,
}

/// The lock is lent to the component of the writer, which has it or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Loan {
    is_recalled: bool,
}

#[derive(Default)]
pub(super) struct Lock {
    writer: Option<Holder>,
    loan: Option<Loan>,
    readers: Vec<Holder>,
    queue: VecDeque<(Holder, Wants)>,
    conditions: BTreeMap<u64, VecDeque<Holder>>,
}

impl Lock {
    /// Whether nobody has to do with it any more.
    pub(super) fn is_forgotten(&self) -> bool {
        self.writer.is_none()
            && self.readers.is_empty()
            && self.queue.is_empty()
            && self.conditions.is_empty()
    }

    /// Whether somebody who came now would have it at once.
    pub(super) fn may_have(&self, mode: Mode) -> bool {
        self.writer.is_none()
            && match mode {
                Mode::Read => self.queue.is_empty(),
                Mode::ReadBeside => true,
                Mode::Write => self.queue.is_empty() && self.readers.is_empty(),
            }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.loan.is_some()
    }

    /// The component that it is to be demanded from: once, when others have come.
    pub(super) fn recall(&mut self) -> Option<u32> {
        let loan = self.loan.as_mut().filter(|loan| !loan.is_recalled && !self.queue.is_empty())?;
        loan.is_recalled = true;
        self.writer.map(|writer| writer.rank)
    }

    /// The loan is over. The thread with this token has the lock still; with 0, none.
    pub(super) fn come_home(&mut self, who: Holder) -> Result<(), Mistake> {
        if !self.is_lent() || self.writer.is_none_or(|writer| writer.rank != who.rank) {
            return Err(Mistake::NotHeld);
        }
        self.loan = None;
        self.writer = (who.token != 0).then_some(who);
        Ok(())
    }

    pub(super) fn come(&mut self, who: Holder, mode: Mode, at_once: bool) {
        let entry = (who, Wants::Lock { alone: mode == Mode::Write, at_once });
        // Only readers do not have to wait behind others.
        if mode == Mode::ReadBeside && self.may_have(mode) {
            self.queue.push_front(entry);
        } else {
            self.queue.push_back(entry);
        }
    }

    pub(super) fn give_back(&mut self, who: Holder) -> Result<(), Mistake> {
        if self.writer == Some(who) && !self.is_lent() {
            self.writer = None;
            return Ok(());
        }
        let at = self.readers.iter().position(|&reader| reader == who).ok_or(Mistake::NotHeld)?;
        self.readers.swap_remove(at);
        Ok(())
    }

    /// Who has it gives it back until a condition is notified. From then on it has another token.
    pub(super) fn await_condition(
        &mut self,
        held: Holder,
        condition: u64,
        who: Holder,
    ) -> Result<(), Mistake> {
        self.give_back(held)?;
        self.conditions.entry(condition).or_default().push_back(who);
        Ok(())
    }

    pub(super) fn notify(&mut self, condition: u64, how_many: u64) {
        let Some(waiting) = self.conditions.get_mut(&condition) else { return };
        let how_many = usize::try_from(how_many).unwrap_or(usize::MAX).min(waiting.len());
        let notified = waiting.drain(..how_many).map(|who| (who, Wants::Back { is_late: false }));
        self.queue.extend(notified);
        if waiting.is_empty() {
            self.conditions.remove(&condition);
        }
    }

    /// Its time is over, as far as it knows.
    pub(super) fn is_late(&mut self, who: Holder) -> Result<Late, Mistake> {
        if let Some(at) = self.queue.iter().position(|&(waiting, _)| waiting == who) {
            // Who was notified gets the lock as if it had never looked at a clock.
            if matches!(self.queue[at].1, Wants::Back { .. }) {
                return Ok(Late::Stays);
            }
            self.queue.remove(at);
            return Ok(Late::Left);
        }
        let waits = |waiting: &VecDeque<Holder>| waiting.iter().position(|&waiting| waiting == who);
        let found =
            self.conditions.iter().find_map(|(&condition, waiting)| Some((condition, waits(waiting)?)));
        if let Some((condition, at)) = found {
            let waiting = self.conditions.get_mut(&condition).expect("just seen");
            waiting.remove(at);
            if waiting.is_empty() {
                self.conditions.remove(&condition);
            }
            self.queue.push_back((who, Wants::Back { is_late: true }));
            return Ok(Late::Stays);
        }
        // The answer is on its way.
        let has = self.writer == Some(who) || self.readers.contains(&who);
        if has { Ok(Late::Stays) } else { Err(Mistake::NotHeld) }
    }

    /// Gives it to whoever is first in the queue, and to readers behind a reader. Each is told what has come of it. `borrower`: who may be lent it,
    /// if nobody else has to do with it.
    pub(super) fn serve(&mut self, borrower: Option<Holder>, mut told: impl FnMut(Holder, u64)) {
        if self.is_lent() {
            return;
        }
        while let Some(&(who, wants)) = self.queue.front() {
            let (alone, outcome) = match wants {
                Wants::Lock { alone, .. } => (alone, GRANTED),
                Wants::Back { is_late } => (true, if is_late { LATE } else { GRANTED }),
            };
            if self.writer.is_some() || alone && !self.readers.is_empty() {
                break;
            }
            self.queue.pop_front();
            let is_lent =
                alone && Some(who) == borrower && self.queue.is_empty() && self.conditions.is_empty();
            if is_lent {
                self.loan = Some(Loan { is_recalled: false });
            }
            if alone {
                self.writer = Some(who);
            } else {
                self.readers.push(who);
            }
            told(who, if is_lent { LENT } else { outcome });
        }
        self.queue.retain(|&(who, wants)| {
            let is_refused = matches!(wants, Wants::Lock { at_once: true, .. });
            if is_refused {
                told(who, BUSY);
            }
            !is_refused
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn who(token: u64) -> Holder {
        Holder { rank: 1, token }
    }

    /// Who is given the lock now, and whether it is told that it is late.
    fn served(lock: &mut Lock) -> Vec<(u64, bool)> {
        let mut served = Vec::new();
        lock.serve(None, |who, outcome| {
            assert!([GRANTED, LATE].contains(&outcome), "{outcome}");
            served.push((who.token, outcome == LATE));
        });
        served
    }

    #[test]
    fn readers_come_in_turn_or_beside_those_who_read() {
        let mut lock = Lock::default();
        for (token, mode) in [(1, Mode::Read), (2, Mode::Write), (3, Mode::Read)] {
            lock.come(who(token), mode, false);
        }
        assert_eq!(served(&mut lock), [(1, false)]);
        assert!(!lock.may_have(Mode::Read) && lock.may_have(Mode::ReadBeside) && !lock.may_have(Mode::Write));
        lock.come(who(4), Mode::ReadBeside, false);
        assert_eq!(served(&mut lock), [(4, false)], "past the one who waits to have it alone");
        lock.give_back(who(1)).expect("it has it");
        assert_eq!(served(&mut lock), []);
        lock.give_back(who(4)).expect("it has it");
        assert_eq!(served(&mut lock), [(2, false)]);
        assert!(!lock.may_have(Mode::ReadBeside));
        lock.give_back(who(2)).expect("it has it");
        assert_eq!(served(&mut lock), [(3, false)]);
        lock.give_back(who(3)).expect("it has it");
        assert!(lock.is_forgotten());
    }

    #[test]
    fn who_is_late_for_a_lock_leaves_and_others_move_up() {
        let mut lock = Lock::default();
        lock.come(who(1), Mode::Write, false);
        assert_eq!(served(&mut lock), [(1, false)]);
        lock.come(who(2), Mode::Write, false);
        lock.come(who(3), Mode::Write, false);
        assert_eq!(lock.is_late(who(2)), Ok(Late::Left));
        assert_eq!(lock.is_late(who(2)), Err(Mistake::NotHeld), "it does not wait any more");
        // The answer and its word have met on the way.
        assert_eq!(lock.is_late(who(1)), Ok(Late::Stays));
        lock.give_back(who(1)).expect("it has it");
        assert_eq!(served(&mut lock), [(3, false)]);
    }

    /// A notification that came before the word of the late one is its own; one that comes after it is another's.
    #[test]
    fn no_notification_is_lost_to_one_that_is_late() {
        const CONDITION: u64 = 9;
        let mut lock = Lock::default();
        let wait = |lock: &mut Lock, token: u64| {
            lock.come(who(token), Mode::Write, false);
            assert_eq!(served(lock), [(token, false)]);
            lock.await_condition(who(token), CONDITION, who(token + 10)).expect("it has it");
        };
        wait(&mut lock, 1);
        wait(&mut lock, 2);
        lock.come(who(3), Mode::Write, false);
        assert_eq!(served(&mut lock), [(3, false)]);
        // The first one is notified, and late before it has the lock.
        lock.notify(CONDITION, 1);
        assert_eq!(lock.is_late(who(11)), Ok(Late::Stays));
        // The second one is late first: the notification after that finds nobody, and is not kept.
        assert_eq!(lock.is_late(who(12)), Ok(Late::Stays));
        assert_eq!(lock.is_late(who(12)), Ok(Late::Stays), "said twice, it is the same");
        lock.notify(CONDITION, 1);
        lock.give_back(who(3)).expect("it has it");
        assert_eq!(served(&mut lock), [(11, false)]);
        lock.give_back(who(11)).expect("it has it");
        assert_eq!(served(&mut lock), [(12, true)]);
        lock.give_back(who(12)).expect("it has it");
        assert!(lock.is_forgotten());
    }

    /// What threads of a lock know and do, each one thing at a time.
    #[derive(Default)]
    struct Threads {
        lock: Lock,
        /// Who has it, and whether alone.
        have: Vec<(u64, bool)>,
        /// Who waits for the lock, or for a condition.
        come: BTreeSet<u64>,
        waiting: BTreeSet<u64>,
        next: u64,
        notified: u64,
        woken: u64,
    }

    impl Threads {
        fn serve(&mut self) {
            let mut served = Vec::new();
            self.lock.serve(None, |who, outcome| served.push((who.token, outcome == LATE)));
            for (token, is_late) in served {
                let has_waited = self.waiting.remove(&token);
                assert!(has_waited || self.come.remove(&token), "{token} is told twice, or has left");
                assert!(!is_late || has_waited);
                self.woken += u64::from(has_waited && !is_late);
                let alone = self.lock.writer == Some(who(token));
                self.have.push((token, alone));
            }
            assert!(self.have.len() <= 1 || self.have.iter().all(|&(_, alone)| !alone), "{:?}", self.have);
        }

        fn step(&mut self, what: u8, which: usize) {
            let chosen = |set: &BTreeSet<u64>| set.iter().nth(which % set.len().max(1)).copied();
            self.next += 1;
            match what {
                0..=3 => {
                    let mode = [Mode::Read, Mode::ReadBeside, Mode::Write, Mode::Write][usize::from(what)];
                    let is_free = self.lock.may_have(mode);
                    self.lock.come(who(self.next), mode, false);
                    self.come.insert(self.next);
                    self.serve();
                    assert_eq!(is_free, self.have.iter().any(|&(token, _)| token == self.next));
                }
                4 if !self.have.is_empty() => {
                    let (token, _) = self.have.swap_remove(which % self.have.len());
                    self.lock.give_back(who(token)).expect("it has it");
                }
                5 => {
                    if let [(token, true)] = self.have[..] {
                        self.have.clear();
                        let held = who(token);
                        self.lock.await_condition(held, which as u64 % 2, who(self.next)).expect("it has it");
                        self.waiting.insert(self.next);
                    }
                }
                6 => {
                    let condition = which as u64 % 2;
                    let there = self.lock.conditions.get(&condition).map_or(0, VecDeque::len) as u64;
                    self.lock.notify(condition, which as u64 % 3);
                    self.notified += there.min(which as u64 % 3);
                }
                7 => {
                    if let Some(token) = chosen(&self.come) {
                        assert_eq!(self.lock.is_late(who(token)), Ok(Late::Left));
                        self.come.remove(&token);
                    }
                }
                _ => {
                    if let Some(token) = chosen(&self.waiting) {
                        assert_eq!(self.lock.is_late(who(token)), Ok(Late::Stays));
                    }
                }
            }
            self.serve();
        }
    }

    proptest! {
        /// Whatever threads do in whatever order: who may not have it beside others has it alone, each is told once, and as many have been notified as
        /// were notified.
        #[test]
        fn all_are_told_once_and_no_notification_is_lost(
            steps in prop::collection::vec((0..9_u8, 0..7_usize), 1..60),
        ) {
            let mut threads = Threads::default();
            for (what, which) in steps {
                threads.step(what, which);
            }
            // All who still wait for a condition are late, and all who have it give it back.
            while !(threads.have.is_empty() && threads.come.is_empty() && threads.waiting.is_empty()) {
                let before = (threads.have.len(), threads.waiting.len());
                threads.step(8, 0);
                threads.step(4, 0);
                prop_assert!(before != (0, 0), "nobody gets it: {:?}", threads.come);
            }
            prop_assert_eq!(threads.woken, threads.notified);
            prop_assert!(threads.lock.is_forgotten());
        }
    }
}
