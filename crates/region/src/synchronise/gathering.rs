//! Barriers of threads, wherever they are: each thread tells the barrier's home that it is there, and all are told when as many are.
//!
//! A barrier is nothing but those who wait at it. So it may be used again at once, and with another number of threads when nobody waits.

use super::locking::Holder;

#[derive(Default, Debug)]
pub(super) struct Gathering {
    here: Vec<Holder>,
    threads: u64,
}

/// What becomes of one who comes.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Came {
    Waits,
    /// It was the last, and these may go on, itself behind all others.
    All(Vec<Holder>),
    /// Others wait for another number of threads.
    Misfit,
}

impl Gathering {
    pub(super) fn come(&mut self, who: Holder, threads: u64) -> Came {
        if !self.here.is_empty() && threads != self.threads {
            return Came::Misfit;
        }
        self.threads = threads;
        self.here.push(who);
        if (self.here.len() as u64) < threads {
            Came::Waits
        } else {
            Came::All(std::mem::take(&mut self.here))
        }
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.here.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_go_on_when_as_many_have_come_and_the_next_round_begins() {
        let mut gathering = Gathering::default();
        let who = |token| Holder { rank: 2, token };
        for round in [0, 10, 20] {
            assert_eq!(gathering.come(who(round), 3), Came::Waits);
            assert_eq!(gathering.come(who(round + 1), 2), Came::Misfit);
            assert_eq!(gathering.come(who(round + 1), 3), Came::Waits);
            assert!(!gathering.is_forgotten());
            assert_eq!(
                gathering.come(who(round + 2), 3),
                Came::All(vec![who(round), who(round + 1), who(round + 2)])
            );
            assert!(gathering.is_forgotten());
        }
        assert_eq!(gathering.come(who(7), 1), Came::All(vec![who(7)]), "nobody waits: another number");
    }
}
