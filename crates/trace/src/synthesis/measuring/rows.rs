//! Rows of the tables of facts, as far as they are needed here.

use crate::Operation;
use crate::lifetimes::Done;

/// Of operations.
pub(super) struct Fact {
    pub(super) machine: i64,
    pub(super) start_ns: i64,
    pub(super) duration_ns: i64,
    pub(super) operation: Operation,
    pub(super) user: i64,
    pub(super) file: i64,
    pub(super) other_file: i64,
    pub(super) instance: i64,
    pub(super) has_failed: bool,
    pub(super) asked_bytes: i64,
    pub(super) moved_bytes: i64,
    pub(super) argument: i64,
    pub(super) flags: i64,
}

impl Fact {
    pub(super) const COLUMNS: [&str; 13] = [
        "machine_id",
        "start",
        "duration_ns",
        "operation_id",
        "user_id",
        "file_id",
        "other_file_id",
        "instance_id",
        "error",
        "asked_bytes",
        "moved_bytes",
        "argument",
        "flags",
    ];

    pub(super) fn of(columns: &[Vec<i64>], row: usize) -> Option<Self> {
        let of = |column: usize| columns[column][row];
        Some(Self {
            machine: of(0),
            start_ns: of(1),
            duration_ns: of(2),
            operation: Operation::of_number(u8::try_from(of(3)).ok()?)?,
            user: of(4),
            file: of(5),
            other_file: of(6),
            instance: of(7),
            has_failed: of(8) != 0,
            asked_bytes: of(9),
            moved_bytes: of(10),
            argument: of(11),
            flags: of(12),
        })
    }

    pub(super) const fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// What of it makes files or ends them.
    pub(super) fn done(&self) -> Done {
        Done {
            operation: self.operation,
            end_ns: self.end_ns().cast_unsigned(),
            process: 0,
            file: self.file,
            other_file: self.other_file,
            argument: self.argument.cast_unsigned(),
            size: 0,
            flags: u8::try_from(self.flags).unwrap_or(0),
        }
    }

    pub(super) const fn has_flag(&self, flag: u8) -> bool {
        self.flags & flag as i64 != 0
    }
}

/// Of sessions.
pub(super) struct Session {
    pub(super) instance: i64,
    pub(super) file: i64,
    pub(super) is_seen_from_its_open: bool,
    pub(super) has_ended: bool,
    pub(super) is_created: bool,
    pub(super) access: i64,
    pub(super) pattern: i64,
    pub(super) open_ns: i64,
    /// From the first byte that was moved to the last.
    pub(super) data_ns: i64,
    pub(super) opened_size_bytes: i64,
    pub(super) closed_size_bytes: i64,
    pub(super) reads: i64,
    pub(super) writes: i64,
    /// What was done that moved nothing.
    pub(super) controls: i64,
    pub(super) syncs: i64,
}

impl Session {
    pub(super) const COLUMNS: [&str; 17] = [
        "instance_id",
        "file_id",
        "seen_from_its_open",
        "ending",
        "created",
        "access",
        "pattern",
        "open_ns",
        "data_ns",
        "opened_size_bytes",
        "closed_size_bytes",
        "reads",
        "writes",
        "lists",
        "maps",
        "controls",
        "syncs",
    ];

    pub(super) fn of(columns: &[Vec<i64>], row: usize) -> Self {
        let of = |column: usize| columns[column][row];
        Self {
            instance: of(0),
            file: of(1),
            is_seen_from_its_open: of(2) != 0,
            has_ended: of(3) != 0,
            is_created: of(4) != 0,
            access: of(5),
            pattern: of(6),
            open_ns: of(7),
            data_ns: of(8),
            opened_size_bytes: of(9),
            closed_size_bytes: of(10),
            reads: of(11),
            writes: of(12),
            controls: of(13).saturating_add(of(14)).saturating_add(of(15)),
            syncs: of(16),
        }
    }
}
