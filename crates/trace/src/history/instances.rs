//! What was done between an open and its close.

use super::{Fact, FileId, ProgramId, open_flag};
use crate::event::{Event, flag};
use crate::{Class, Operation};

/// How bytes were moved in a session. (Thesis §9.6.2)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    /// Nothing was: the session was for control or directory operations.
    None,
    /// All operations read.
    ReadOnly,
    /// All operations wrote.
    WriteOnly,
    /// Some read, some wrote.
    ReadWrite,
}

/// In which order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Pattern {
    /// Nothing was moved.
    None,
    /// From the first byte to the last that the file had at its close, without a jump.
    WholeFile,
    /// Without a jump, but not all of it.
    Sequential,
    /// With jumps.
    Random,
}

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ending {
    /// It did not, as far as the trace goes.
    None,
    /// By a close.
    Close,
    /// With the process.
    Exit,
    /// By the execution of another program.
    Execute,
    /// It must have, but nobody saw how: events were lost.
    Unseen,
}

/// A row of the table of sessions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Instance {
    /// Its number, from 1.
    pub id: u64,
    /// With which file.
    pub file: Option<FileId>,
    /// Who opened it.
    pub program: ProgramId,
    /// When: the end of the open, or when it was first seen.
    pub opened_ns: u64,
    /// When its last descriptor was closed.
    pub closed_ns: u64,
    /// Whether the open was seen.
    pub is_seen_from_its_open: bool,
    /// How it ended.
    pub ending: Ending,
    /// Flags of the open.
    pub open_flags: u64,
    /// Whether the open made the file.
    pub is_created: bool,
    /// How long the file was when it was opened, and when it was last seen.
    pub opened_size: u64,
    /// See there.
    pub closed_size: u64,
    /// How often bytes were read, and how many.
    pub reads: u64,
    /// See there.
    pub read_bytes: u64,
    /// How often bytes were written, and how many.
    pub writes: u64,
    /// See there.
    pub written_bytes: u64,
    /// How many of all these bytes were moved by operations that began where the one before ended, or first of all.
    pub sequential_bytes: u64,
    /// How many times bytes were moved from one place on without a jump.
    pub runs: u64,
    /// How often a directory was read.
    pub lists: u64,
    /// How often the file was mapped.
    pub maps: u64,
    /// How many other operations there were.
    pub controls: u64,
    /// How many of them were syncs.
    pub syncs: u64,
    /// How many failed.
    pub errors: u64,
    /// How many reads had to wait for pages, and how many pages came.
    pub missed_reads: u64,
    /// See there.
    pub pages: u64,
    /// When bytes were moved first and last.
    pub first_data_ns: u64,
    /// See there.
    pub last_data_ns: u64,
    /// In which order.
    pub pattern: Pattern,
}

impl Instance {
    /// How bytes were moved.
    pub const fn access(&self) -> Access {
        match (self.reads > 0, self.writes > 0) {
            (false, false) => Access::None,
            (true, false) => Access::ReadOnly,
            (false, true) => Access::WriteOnly,
            (true, true) => Access::ReadWrite,
        }
    }

    /// How many bytes were moved.
    pub const fn moved_bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }
}

/// A session that goes on.
pub(super) struct Open {
    pub(super) instance: Instance,
    pub(super) handle: u64,
    descriptors: u32,
    next_offset: u64,
    starts_at_zero: bool,
}

impl Open {
    pub(super) fn new(
        id: u64,
        event: &Event,
        file: Option<FileId>,
        program: ProgramId,
        is_seen_from_its_open: bool,
    ) -> Self {
        let opened_ns = if is_seen_from_its_open {
            event.start_ns.saturating_add(event.duration_ns)
        } else {
            event.start_ns
        };
        let instance = Instance {
            id,
            file,
            program,
            opened_ns,
            closed_ns: 0,
            is_seen_from_its_open,
            ending: Ending::None,
            open_flags: if is_seen_from_its_open { event.argument } else { 0 },
            is_created: is_seen_from_its_open && event.flags & flag::CREATED != 0,
            opened_size: event.size,
            closed_size: event.size,
            reads: 0,
            read_bytes: 0,
            writes: 0,
            written_bytes: 0,
            sequential_bytes: 0,
            runs: 0,
            lists: 0,
            maps: 0,
            controls: 0,
            syncs: 0,
            errors: 0,
            missed_reads: 0,
            pages: 0,
            first_data_ns: 0,
            last_data_ns: 0,
            pattern: Pattern::None,
        };
        Self { instance, handle: event.handle, descriptors: 0, next_offset: 0, starts_at_zero: false }
    }

    pub(super) fn add_descriptor(&mut self) {
        self.descriptors += 1;
    }

    /// Whether it was the last.
    pub(super) fn drop_descriptor(&mut self) -> bool {
        self.descriptors = self.descriptors.saturating_sub(1);
        self.descriptors == 0
    }

    pub(super) fn learn(&mut self, fact: &Fact) {
        let instance = &mut self.instance;
        instance.closed_size = fact.size;
        if fact.error != 0 {
            instance.errors += 1;
            return;
        }
        match fact.operation.class() {
            Class::Data => self.learn_data(fact),
            _ => match fact.operation {
                Operation::List => instance.lists += 1,
                Operation::Map => instance.maps += 1,
                Operation::Sync => {
                    instance.syncs += 1;
                    instance.controls += 1;
                }
                _ => instance.controls += 1,
            },
        }
    }

    fn learn_data(&mut self, fact: &Fact) {
        let is_written = fact.operation == Operation::Write
            || (fact.operation == Operation::Transfer && fact.flags & flag::SECOND != 0);
        let instance = &mut self.instance;
        instance.pages = instance.pages.saturating_add(u64::from(fact.pages));
        if is_written {
            instance.writes += 1;
            instance.written_bytes = instance.written_bytes.saturating_add(fact.moved);
        } else {
            instance.reads += 1;
            instance.read_bytes = instance.read_bytes.saturating_add(fact.moved);
            instance.missed_reads += u64::from(fact.flags & flag::MISS != 0);
        }
        // The read that finds the end moves nothing, and is no part of a pattern.
        if fact.moved == 0 {
            return;
        }
        if instance.runs == 0 {
            instance.first_data_ns = fact.start_ns;
            self.starts_at_zero = fact.offset == 0;
            self.next_offset = fact.offset;
        }
        if fact.offset == self.next_offset && instance.runs > 0 {
            instance.sequential_bytes = instance.sequential_bytes.saturating_add(fact.moved);
        } else {
            if instance.runs == 0 {
                instance.sequential_bytes = instance.sequential_bytes.saturating_add(fact.moved);
            }
            instance.runs += 1;
        }
        instance.last_data_ns = fact.start_ns.saturating_add(fact.duration_ns);
        self.next_offset = fact.offset.saturating_add(fact.moved);
    }

    pub(super) fn ended(mut self, now_ns: u64, ending: Ending) -> Instance {
        let instance = &mut self.instance;
        instance.closed_ns = now_ns;
        instance.ending = ending;
        instance.pattern = match instance.runs {
            0 => Pattern::None,
            1 if self.starts_at_zero && instance.moved_bytes() >= instance.closed_size => Pattern::WholeFile,
            1 => Pattern::Sequential,
            _ => Pattern::Random,
        };
        self.instance
    }
}

impl Instance {
    /// Whether the open emptied a file that was there.
    pub const fn overwrites(&self) -> bool {
        self.open_flags & open_flag::TRUNCATE != 0 && !self.is_created
    }
}
