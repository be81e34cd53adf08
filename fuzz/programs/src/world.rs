//! What all parts of one program know, and the dice that they share.

use comb_types::Dice;

/// Which functions a program calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// The C library's, with mutexes, conditions, barriers.
    Library,
    /// Only `malloc` and its kin, `memcpy`, `memmove`, `memset`, and `pthread_create` and `pthread_join`, besides a `printf` of
    /// numbers at the end: threads wait for each other in loops around atomics. For a compiler whose library is not there yet.
    Bare,
}

/// One program while it is made up.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) calls: Calls,
    pub(crate) threads: u32,
    pub(crate) phases: u32,
    names: u32,
}

/// What the threads do with the memory of a piece in one phase.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Each thread writes what it owns; nobody looks at what another owns.
    Write,
    /// Everybody may read everything, nobody writes.
    Read,
    /// One thread may do anything, nobody else touches it.
    Alone,
}

impl World {
    pub(crate) fn new(seed: u64, calls: Calls) -> Self {
        let mut dice = Dice::new(seed);
        let threads = 2 + dice.below(4);
        let phases = 3 + dice.below(3);
        Self { dice, calls, threads, phases, names: 0 }
    }

    /// A name that no other part of the program has.
    pub(crate) fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}{}", self.names)
    }

    pub(crate) fn is_bare(&self) -> bool {
        self.calls == Calls::Bare
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: u32) -> bool {
        self.dice.below(times) == 0
    }

    /// A number of the range, its end included.
    pub(crate) fn between(&mut self, least: u32, most: u32) -> u32 {
        least + self.dice.below(most - least + 1)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.dice.index(choices.len())]
    }

    /// What happens to a piece, phase by phase: what is written is read soon after, by others.
    pub(crate) fn roles(&mut self) -> Vec<Role> {
        let mut roles: Vec<Role> = Vec::new();
        for _ in 0..self.phases {
            let role = match roles.last() {
                None => self.one_of(&[Role::Write, Role::Write, Role::Read]),
                Some(Role::Write) => self.one_of(&[Role::Read, Role::Read, Role::Write]),
                Some(_) => self.one_of(&[Role::Write, Role::Write, Role::Read, Role::Alone]),
            };
            roles.push(role);
        }
        roles
    }

    /// C for the number of the thread whose turn it is, when every thread takes the turn of another: all differ.
    pub(crate) fn turn(&mut self) -> String {
        match self.dice.below(self.threads) {
            0 => "self".to_owned(),
            by => format!("(self + {by}) % THREADS"),
        }
    }
}
