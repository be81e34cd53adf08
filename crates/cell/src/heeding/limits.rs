//! How far a cell follows a hint: so that a policy that lies can slow things down, and by how much is known.
//!
//! | what is hinted | is followed |
//! |---|---|
//! | a task is to wait | for a second at a stretch, then it runs for as long as a quarter of that at least; only tasks that asked for it |
//! | a task is to have these cores | if it asked for so many or more, and none of them is another's; a quarter of all cores stays for the others |
//! | the others are to keep away from them | threads that somebody else has bound stay where they are |
//! | memory is to be paged out | every ten seconds, while the task waits |
//! | memory is to be given back | 64 MB, once a second |
//!
//! Time is a span since some beginning, and passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hints::{Cores, TaskHint};

/// A task that waits keeps others waiting who want something of it: less than the shortest limit that anybody has for that, which is the five
/// seconds within which copies come home.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// However short the wait was.
const SHORTEST_RUN: Duration = Duration::from_millis(200);
/// Of a wait, what comes behind it at least.
const RUN_SHARE: u32 = 4;
/// What was paged out is in use again soon, if the hint was wrong.
const BETWEEN_PAGINGS: Duration = Duration::from_secs(10);
/// The kernel moves threads, and they lose what they had in caches.
const BETWEEN_BINDINGS: Duration = Duration::from_millis(200);
const BETWEEN_GIVINGS: Duration = Duration::from_secs(1);
pub(super) const MOST_GIVEN_BACK: u64 = 64 << 20;
/// A policy whose round stays the same for so long says nothing any more.
const STALE: Duration = Duration::from_secs(2);

/// Whether a task runs or waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    waits_since: Option<Duration>,
    /// When it may be made to wait again.
    runs_until: Duration,
}

impl Turn {
    pub(super) fn waits(&self) -> bool {
        self.waits_since.is_some()
    }

    /// It is hinted to wait, or not to. Whether it waits from now on; to be called again at [`Turn::next_due`] at the latest.
    pub(super) fn take(&mut self, now: Duration, is_to_wait: bool) -> bool {
        match self.waits_since {
            Some(since) if !is_to_wait || now >= since + LONGEST_WAIT => {
                self.waits_since = None;
                self.runs_until = now + SHORTEST_RUN.max(now.saturating_sub(since) / RUN_SHARE);
            }
            None if is_to_wait && now >= self.runs_until => self.waits_since = Some(now),
            _ => {}
        }
        self.waits()
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        self.waits_since.map(|since| since + LONGEST_WAIT)
    }
}

/// Something that is not to be done too often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seldom {
    between: Duration,
    next: Duration,
}

impl Seldom {
    pub(super) fn pagings() -> Self {
        Self { between: BETWEEN_PAGINGS, next: Duration::ZERO }
    }

    pub(super) fn bindings() -> Self {
        Self { between: BETWEEN_BINDINGS, next: Duration::ZERO }
    }

    pub(super) fn givings() -> Self {
        Self { between: BETWEEN_GIVINGS, next: Duration::ZERO }
    }

    /// Whether it is time. If so, it is done now.
    pub(super) fn is_time(&mut self, now: Duration) -> bool {
        let is_time = now >= self.next;
        if is_time {
            self.next = now + self.between;
        }
        is_time
    }
}

/// Whether the policy lives, by what it shows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pulse {
    last: Option<(u64, Duration)>,
}

impl Pulse {
    /// It shows such a round, or nothing can be read at this moment. Whether what was read last counts.
    pub(super) fn take(&mut self, now: Duration, round: Option<u64>) -> bool {
        if let Some(round) = round
            && self.last.is_none_or(|(last, _)| last != round)
        {
            self.last = Some((round, now));
        }
        self.last.is_some_and(|(_, at)| now < at + STALE)
    }
}

/// The cores that each task of a cell gets: what is hinted, as far as it can be so. `wanted` is how many each has asked for.
pub(super) fn cores(
    hints: &BTreeMap<u32, TaskHint>,
    wanted: &BTreeMap<u32, u32>,
    allowed: &Cores,
) -> BTreeMap<u32, Cores> {
    let hinted = |task: &u32| {
        let cores = hints.get(task).map(|hint| hint.cores);
        cores.filter(|cores| !cores.is_empty() && cores.is_within(allowed))
    };
    let own: BTreeMap<u32, Cores> = wanted
        .iter()
        .filter_map(|(task, &count)| {
            let cores = hinted(task)?;
            (count > 0 && cores.len() <= count as usize).then_some((*task, cores))
        })
        .collect();
    let all = own.values().fold(Cores::default(), |all, cores| all.with(cores));
    let sum: usize = own.values().map(Cores::len).sum();
    // The same core twice, or too few for the others: it cannot be told whose word is right.
    if sum != all.len() || all.len() + allowed.len().div_ceil(4) > allowed.len() {
        return BTreeMap::new();
    }
    let others = wanted.iter().filter(|(_, count)| **count == 0).filter_map(|(task, _)| {
        let cores = hinted(task)?;
        let is_enough = cores.len() >= allowed.len().div_ceil(4) && !cores.overlaps(&all);
        is_enough.then_some((*task, cores))
    });
    let mut cores: BTreeMap<u32, Cores> = others.collect();
    cores.extend(own);
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn nobody_waits_for_longer_than_the_limit_whatever_is_hinted() {
        // Always; never; every step another; and by a generator.
        let mut seed = 12345_u64;
        let mut dice = move |_: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 62 != 0
        };
        let hints: [&mut dyn FnMut(u64) -> bool; 4] =
            [&mut |_| true, &mut |_| false, &mut |at| at % 2 == 0, &mut dice];
        for (which, hint) in hints.into_iter().enumerate() {
            let (mut turn, mut waited, mut stretch) = (Turn::default(), 0, 0);
            for at in 0..100_000 {
                if turn.take(ms(at), hint(at)) {
                    (waited, stretch) = (waited + 1, stretch + 1);
                    assert!(stretch <= 1000, "hints {which}");
                } else {
                    stretch = 0;
                }
            }
            assert!(waited <= 80_001, "hints {which}: {waited} of 100000");
            assert_eq!(waited > 0, which != 1);
        }
    }

    #[test]
    fn a_turn_is_over_when_it_is_said_or_due() {
        let mut turn = Turn::default();
        assert!(turn.take(ms(10), true) && turn.take(ms(500), true));
        assert_eq!(turn.next_due(), Some(ms(1010)));
        assert!(!turn.take(ms(600), false));
        assert!(!turn.take(ms(799), true), "it has just begun to run");
        assert!(turn.take(ms(800), true));
        assert!(!turn.take(ms(1800), true));
        assert!(!turn.take(ms(2049), true) && turn.take(ms(2050), true), "a quarter of the wait");
    }

    #[test]
    fn a_policy_that_stands_still_says_nothing() {
        let mut pulse = Pulse::default();
        assert!(!pulse.take(ms(0), None));
        assert!(pulse.take(ms(0), Some(7)) && pulse.take(ms(1999), None) && pulse.take(ms(1999), Some(7)));
        assert!(!pulse.take(ms(2000), Some(7)) && pulse.take(ms(2001), Some(6)));
    }

    #[test]
    fn what_is_done_seldom_is_not_done_more_often() {
        let mut seldom = Seldom::pagings();
        let done = (0..60_000).filter(|&at| seldom.is_time(ms(at))).count();
        assert_eq!(done, 6);
    }

    fn set(cores: &[usize]) -> Cores {
        cores.iter().copied().collect()
    }

    #[track_caller]
    fn check(hinted: &[(u32, &[usize])], wanted: &[(u32, u32)], expected: &[(u32, &[usize])]) {
        let hint = |cores: &[usize]| TaskHint { cores: set(cores), ..TaskHint::default() };
        let hints = hinted.iter().map(|&(task, cores)| (task, hint(cores))).collect();
        let wanted = wanted.iter().copied().collect();
        let expected = expected.iter().map(|&(task, cores)| (task, set(cores))).collect::<BTreeMap<_, _>>();
        assert_eq!(cores(&hints, &wanted, &set(&[0, 1, 2, 3])), expected);
    }

    #[test]
    fn cores_are_given_as_far_as_that_can_be() {
        check(&[(1, &[3])], &[(1, 1), (2, 0)], &[(1, &[3])]);
        check(&[(1, &[3]), (2, &[0, 1, 2])], &[(1, 1), (2, 0)], &[(1, &[3]), (2, &[0, 1, 2])]);
        check(&[(1, &[2]), (2, &[3])], &[(1, 1), (2, 2)], &[(1, &[2]), (2, &[3])]);
        // It is no task of this cell.
        check(&[(9, &[3])], &[(1, 1)], &[]);
        // More than it asked for; every core for one; cores that are not there; none.
        check(&[(1, &[2, 3])], &[(1, 1)], &[]);
        check(&[(1, &[0, 1, 2, 3])], &[(1, 64)], &[]);
        check(&[(1, &[4]), (2, &[255])], &[(1, 1), (2, 0)], &[]);
        check(&[(1, &[]), (2, &[])], &[(1, 1), (2, 0)], &[]);
        // The same core for two, or what is another's.
        check(&[(1, &[2]), (2, &[2]), (3, &[0, 1])], &[(1, 1), (2, 1), (3, 0)], &[]);
        check(&[(1, &[2]), (3, &[0, 1, 2])], &[(1, 1), (3, 0)], &[(1, &[2])]);
        // Each in itself could be, all together cannot.
        check(&[(1, &[0, 1]), (2, &[2, 3])], &[(1, 2), (2, 2)], &[]);
    }
}
