//! Operations that have something in common: a user, a process, a category. Ranges over machines and users come of these, and drill-downs.

use super::Group;
use crate::history::{Access, Pattern};
use crate::statistics::histogram::{By as Weigh, LogHistogram};

/// What a drill-down goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Categories of files.
    Category,
    /// Kinds of files, a level below.
    Type,
    /// Programs, by name.
    Process,
    /// Users.
    User,
    /// Machines.
    Machine,
    /// Hours.
    Hour,
    /// Operations.
    Operation,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Category, Self::Type, Self::Process, Self::User, Self::Machine, Self::Hour, Self::Operation];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Category => "category",
            Self::Type => "type",
            Self::Process => "process",
            Self::User => "user",
            Self::Machine => "machine",
            Self::Hour => "hour",
            Self::Operation => "operation",
        }
    }
}

/// How often, and how many bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Moved {
    pub(super) sessions: u64,
    pub(super) bytes: u64,
}

/// What is known of a group.
#[derive(Default)]
pub(super) struct Gathering {
    pub(super) operations: u64,
    pub(super) errors: u64,
    pub(super) sessions: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    /// By access and pattern: see [`Access`] and [`Pattern`].
    pub(super) moved: [[Moved; 4]; 4],
    pub(super) open_ns: Option<Box<LogHistogram>>,
}

impl Gathering {
    /// A session, and how long it was open, if that is known.
    pub(super) fn add_session(&mut self, access: usize, pattern: usize, bytes: u64, open_ns: Option<u64>) {
        self.sessions += 1;
        let moved = &mut self.moved[access.min(3)][pattern.min(3)];
        moved.sessions += 1;
        moved.bytes = moved.bytes.saturating_add(bytes);
        if access != Access::None as usize
            && let Some(open_ns) = open_ns
        {
            self.open_ns.get_or_insert_with(|| Box::new(LogHistogram::new())).record(open_ns, 1);
        }
    }

    /// Sessions and bytes of an access, in all patterns or one.
    pub(super) fn moved(&self, access: Option<Access>, pattern: Option<Pattern>) -> Moved {
        let mut sum = Moved::default();
        for by_access in [Access::ReadOnly, Access::WriteOnly, Access::ReadWrite] {
            for by_pattern in [Pattern::None, Pattern::WholeFile, Pattern::Sequential, Pattern::Random] {
                if access.is_none_or(|access| access == by_access)
                    && pattern.is_none_or(|pattern| pattern == by_pattern)
                {
                    let moved = self.moved[by_access as usize][by_pattern as usize];
                    sum.sessions += moved.sessions;
                    sum.bytes = sum.bytes.saturating_add(moved.bytes);
                }
            }
        }
        sum
    }

    /// Puts another group's into this.
    pub(super) fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.sessions += other.sessions;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        for (row, others) in self.moved.iter_mut().zip(&other.moved) {
            for (moved, other) in row.iter_mut().zip(others) {
                moved.sessions += other.sessions;
                moved.bytes = moved.bytes.saturating_add(other.bytes);
            }
        }
        if let Some(other) = &other.open_ns {
            self.open_ns.get_or_insert_with(|| Box::new(LogHistogram::new())).merge(other);
        }
    }

    /// For a report.
    pub(super) fn group(&self, name: String) -> Group {
        let data = self.moved(None, None).sessions;
        let share = |pattern| share(self.moved(None, Some(pattern)).sessions, data);
        let quantile = |p| Some(self.open_ns.as_ref()?.quantile(Weigh::Count, p)? / 1e6);
        Group {
            name,
            operations: self.operations,
            errors: self.errors,
            sessions: self.sessions,
            data_sessions: data,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            whole_file_share: share(Pattern::WholeFile),
            random_share: share(Pattern::Random),
            open_ms_50: quantile(0.5),
            open_ms_90: quantile(0.9),
        }
    }
}

/// A part of a whole, if there is one.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = part as f64 / whole as f64;
    (whole > 0).then_some(share)
}
