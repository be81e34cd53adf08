//! New files that end, as one can be generated: by the open of an old name that empties it, or by its deletion.

use foldhash::HashMap;

use super::Values;
use super::rows::Fact;
use crate::Operation;
use crate::event::flag;
use crate::history::open_flag;

/// What of an operation that succeeded matters here.
pub(super) struct Done {
    operation: Operation,
    end_ns: i64,
    file: i64,
    other_file: i64,
    is_birth: bool,
    empties: bool,
}

impl Done {
    pub(super) const fn of(fact: &Fact) -> Self {
        Self {
            operation: fact.operation,
            end_ns: fact.end_ns(),
            file: fact.file,
            other_file: fact.other_file,
            is_birth: is_birth(fact),
            empties: empties(fact),
        }
    }
}

const fn empties(fact: &Fact) -> bool {
    !fact.has_flag(flag::CREATED) && fact.argument.cast_unsigned() & open_flag::TRUNCATE != 0
}

/// Whether an open makes a file, or an old one anew.
pub(super) const fn is_birth(fact: &Fact) -> bool {
    fact.has_flag(flag::CREATED) || empties(fact)
}

struct Alive {
    born_ns: i64,
    names: u32,
}

/// New files, and how long those lived that are no more.
#[derive(Default)]
pub(super) struct Lives {
    alive: HashMap<i64, Alive>,
    pub(super) overwritten_ns: Values,
    pub(super) deleted_ns: Values,
}

impl Lives {
    /// How many there were.
    pub(super) fn made(&self) -> u64 {
        self.alive.len() as u64 + self.overwritten_ns.seen() + self.deleted_ns.seen()
    }

    /// Whether that was an open that emptied a new file.
    pub(super) fn see(&mut self, done: &Done) -> bool {
        match done.operation {
            Operation::Open if done.is_birth => {
                let was_new = done.empties && self.overwrite(done.file, done.end_ns);
                self.alive.insert(done.file, Alive { born_ns: done.end_ns, names: 1 });
                return was_new;
            }
            Operation::Rename => _ = self.overwrite(done.other_file, done.end_ns),
            Operation::Link => {
                if let Some(alive) = self.alive.get_mut(&done.file) {
                    alive.names += 1;
                }
            }
            Operation::Delete => {
                let is_last = self.alive.get_mut(&done.file).is_some_and(|alive| {
                    alive.names -= 1;
                    alive.names == 0
                });
                if is_last && let Some(alive) = self.alive.remove(&done.file) {
                    self.deleted_ns.add(done.end_ns.saturating_sub(alive.born_ns));
                }
            }
            _ => {}
        }
        false
    }

    fn overwrite(&mut self, file: i64, end_ns: i64) -> bool {
        let Some(alive) = self.alive.remove(&file) else { return false };
        self.overwritten_ns.add(end_ns.saturating_sub(alive.born_ns));
        true
    }
}
