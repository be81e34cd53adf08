//! How long new files live. (Thesis §9.6.3)

use foldhash::HashMap;

use crate::Operation;
use crate::event::flag;
use crate::history::open_flag;

/// How a new file ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Death {
    /// It was emptied by an open, or another file took its name. NT has the former alone.
    Overwritten,
    /// Its last name was deleted.
    Deleted,
    /// It never had a name.
    Nameless,
}

/// A new file that is no more.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Lifetime {
    pub(crate) death: Death,
    pub(crate) lived_ns: u64,
    /// Since it was last closed; nothing if it was open.
    pub(crate) since_close_ns: Option<u64>,
    pub(crate) bytes: u64,
    /// Whether the process that made it ended it.
    pub(crate) by_its_maker: bool,
    /// How often it was opened in between.
    pub(crate) opens: u32,
}

struct Alive {
    born_ns: u64,
    closed_ns: Option<u64>,
    maker: i64,
    bytes: u64,
    names: u32,
    opens: u32,
}

/// Files that were made and are still there.
#[derive(Default)]
pub(crate) struct Lifetimes {
    alive: HashMap<i64, Alive>,
    /// How many were made.
    pub(crate) made: u64,
}

/// What of an operation matters here.
pub(crate) struct Done {
    pub(crate) operation: Operation,
    pub(crate) end_ns: u64,
    pub(crate) process: i64,
    pub(crate) file: i64,
    pub(crate) other_file: i64,
    pub(crate) argument: u64,
    pub(crate) size: u64,
    pub(crate) flags: u8,
}

impl Done {
    /// Whether an open empties a file that was there.
    const fn empties(&self) -> bool {
        self.flags & flag::CREATED == 0 && self.argument & open_flag::TRUNCATE != 0
    }

    const fn is_nameless(&self) -> bool {
        self.argument & open_flag::TEMPORARY == open_flag::TEMPORARY
    }

    /// Whether an open makes a file, or an old one anew.
    pub(crate) const fn is_birth(&self) -> bool {
        self.flags & flag::CREATED != 0 || self.empties() || self.is_nameless()
    }
}

impl Lifetimes {
    /// How many new files were there at the end: their lifetimes are not known.
    pub(crate) fn still_alive(&self) -> usize {
        self.alive.len()
    }

    /// An operation that succeeded, and what it ended.
    pub(crate) fn see(&mut self, done: &Done) -> Option<Lifetime> {
        match done.operation {
            Operation::Open => return self.open(done),
            Operation::Close => {
                if let Some(alive) = self.alive.get_mut(&done.file) {
                    alive.closed_ns = Some(done.end_ns);
                    alive.bytes = alive.bytes.max(done.size);
                }
            }
            Operation::Write => {
                if let Some(alive) = self.alive.get_mut(&done.file) {
                    alive.bytes = alive.bytes.max(done.size);
                }
            }
            Operation::Link => {
                if let Some(alive) = self.alive.get_mut(&done.file) {
                    alive.names += 1;
                }
            }
            Operation::Rename if done.other_file >= 0 => {
                return self.end(done.other_file, done, Death::Overwritten);
            }
            Operation::Delete => {
                let is_last = self.alive.get_mut(&done.file).is_some_and(|alive| {
                    alive.names = alive.names.saturating_sub(1);
                    alive.names == 0
                });
                if is_last {
                    return self.end(done.file, done, Death::Deleted);
                }
            }
            _ => {}
        }
        None
    }

    fn open(&mut self, done: &Done) -> Option<Lifetime> {
        let ended = if done.empties() { self.end(done.file, done, Death::Overwritten) } else { None };
        if done.is_birth() {
            self.made += 1;
            let alive = Alive {
                born_ns: done.end_ns,
                closed_ns: None,
                maker: done.process,
                bytes: 0,
                names: u32::from(!done.is_nameless()),
                opens: 0,
            };
            self.alive.insert(done.file, alive);
        } else if let Some(alive) = self.alive.get_mut(&done.file) {
            alive.opens += 1;
            alive.closed_ns = None;
        }
        ended
    }

    fn end(&mut self, file: i64, done: &Done, death: Death) -> Option<Lifetime> {
        let alive = self.alive.remove(&file)?;
        Some(Lifetime {
            death: if alive.names == 0 && death == Death::Overwritten { Death::Nameless } else { death },
            lived_ns: done.end_ns.saturating_sub(alive.born_ns),
            since_close_ns: alive.closed_ns.map(|closed_ns| done.end_ns.saturating_sub(closed_ns)),
            bytes: alive.bytes,
            by_its_maker: alive.maker == done.process,
            opens: alive.opens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(operation: Operation, end_ns: u64, file: i64) -> Done {
        Done { operation, end_ns, process: 1, file, other_file: -1, argument: 0, size: 10, flags: 0 }
    }

    fn made(end_ns: u64, file: i64) -> Done {
        Done { flags: flag::CREATED, ..done(Operation::Open, end_ns, file) }
    }

    #[test]
    fn a_file_is_deleted_with_its_last_name() {
        let mut lifetimes = Lifetimes::default();
        for done in [
            made(100, 7),
            done(Operation::Close, 150, 7),
            done(Operation::Link, 160, 7),
            done(Operation::Delete, 170, 7),
        ] {
            assert_eq!(lifetimes.see(&done), None, "it has another name");
        }
        let ended = lifetimes.see(&Done { process: 2, ..done(Operation::Delete, 180, 7) });
        let expected = Lifetime {
            death: Death::Deleted,
            lived_ns: 80,
            since_close_ns: Some(30),
            bytes: 10,
            by_its_maker: false,
            opens: 0,
        };
        assert_eq!(ended, Some(expected));
        assert_eq!((lifetimes.made, lifetimes.still_alive()), (1, 0));
    }

    #[test]
    fn a_file_is_overwritten_by_being_emptied_and_by_losing_its_name() {
        let mut lifetimes = Lifetimes::default();
        let all = [
            made(100, 7),
            Done { argument: open_flag::TRUNCATE, ..done(Operation::Open, 104, 7) },
            made(110, 8),
            Done { other_file: 7, ..done(Operation::Rename, 120, 8) },
        ];
        let ended = all.iter().filter_map(|done| lifetimes.see(done));
        let lived: Vec<_> = ended.map(|ended| (ended.death, ended.lived_ns)).collect();
        assert_eq!(lived, [(Death::Overwritten, 4), (Death::Overwritten, 16)]);
        assert_eq!(lifetimes.still_alive(), 1);
    }

    #[test]
    fn old_files_have_no_lifetime() {
        let mut lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.see(&done(Operation::Open, 100, 7)), None);
        assert_eq!(lifetimes.see(&done(Operation::Delete, 110, 7)), None);
    }
}
