//! A model of what was recorded: one pass over each table of facts.

mod reuse;
mod rows;

use std::collections::BTreeMap;
use std::path::Path;

use foldhash::{HashMap, HashSet};

use self::rows::{Fact, Session};
use super::model::{Births, Directories, Format, Kinds, Model};
use super::variable::Variable;
use crate::event::flag;
use crate::history::{Access, Pattern};
use crate::lifetimes::{Death, Done, Lifetimes};
use crate::statistics::reservoir::Reservoir;
use crate::statistics::sample::Sample;
use crate::store::{INSTANCE, StoreError, TRACE, TableReader, named};
use crate::{Class, Operation};

/// Opens of one user on one machine that lie farther apart are of two periods of activity. A program that waits for a disk waits some ten
/// milliseconds, and nine of ten opens came within thirty of another (Thesis §9.8.1); what pauses three times as long waits for a clock, for
/// another machine, or for somebody who thinks.
const SILENCE_NS: u64 = 100_000_000;

/// Where tails end. No call moves more than the first; a disk of the second's size is large; no user waits for longer than the third; and of a
/// year's recording nothing is made up that takes longer than the fourth.
const MOST_REQUEST_BYTES: u64 = 0x7fff_f000;
const MOST_FILE_BYTES: u64 = 1 << 40;
const DAY_NS: u64 = 86_400_000_000_000;
const YEAR_NS: u64 = 365 * DAY_NS;
const MOST_OPENS: u64 = 100_000_000;
const MOST_OPERATIONS: u64 = 1_000_000;
const MOST_IN_DIRECTORY: u64 = 1_000_000;

/// Of a file's mode, its type, and that of regular ones.
const TYPE: i64 = 0o170_000;
const REGULAR: i64 = 0o100_000;

/// Values as they come by, or a random part of them.
#[derive(Default)]
struct Values(Reservoir);

impl Values {
    fn add(&mut self, value: i64) {
        self.0.add(value.max(0) as f64);
    }

    fn seen(&self) -> u64 {
        self.0.seen()
    }

    fn variable(self, most: u64) -> Variable {
        Variable::of(&Sample::new(self.0.into_kept()), most)
    }
}

/// All that is measured.
#[derive(Default)]
struct Measured {
    /// By machine and user, when files were opened.
    opened_ns: BTreeMap<(i64, i64), Vec<i64>>,
    opens: u64,
    failed_opens: u64,
    path_questions: u64,
    /// Sessions that emptied a new file: they are part of that file's life, and no arrivals.
    of_births: HashSet<i64>,
    /// Sessions that wrote a whole file.
    of_whole_writes: HashSet<i64>,
    /// Opens of files that were there, by file.
    reused: HashMap<i64, u64>,
    /// Sessions in which a read found the end.
    of_ends: HashSet<i64>,
    whole_reads: u64,
    end_reads: u64,
    lifetimes: Lifetimes,
    overwritten_ns: Values,
    deleted_ns: Values,
    /// Of a session that goes on: which way its last request went, and when that ended.
    going: HashMap<i64, (usize, i64)>,
    kinds: BTreeMap<(i64, i64), u64>,
    whole_writes: u64,
    truncating: u64,
    writing: u64,
    synced: u64,
    control_operations: Values,
    control_open_ns: Values,
    sequential_operations: Values,
    random_operations: Values,
    bytes: [Values; 2],
    gap_ns: [Values; 2],
    held_ns: Values,
    data_service_ns: Values,
    other_service_ns: Values,
    file_bytes: Values,
    new_file_bytes: Values,
    new_file_operations: Values,
    directories: HashMap<String, i64>,
    /// Regular files whose size has not been seen.
    unseen: HashSet<i64>,
}

impl Model {
    /// Measures the tables of recordings: the folder that [`store`](crate::store) makes.
    pub fn of(tables: &Path) -> Result<Self, StoreError> {
        let mut measured = Measured::default();
        measured.read_whole_writes(tables)?;
        measured.read_trace(tables)?;
        measured.read_files(tables)?;
        measured.read_sessions(tables)?;
        if measured.opens == 0 || measured.kinds.is_empty() {
            let error = "no file is opened in it, so there is no workload to measure".to_owned();
            return Err(StoreError::Table { path: tables.to_path_buf(), error });
        }
        Ok(measured.model())
    }
}

impl Measured {
    fn read_trace(&mut self, tables: &Path) -> Result<(), StoreError> {
        TableReader::open(tables, TRACE)?.read(&Fact::COLUMNS, &mut |columns, _| {
            let rows = 0..columns[0].len();
            rows.filter_map(|row| Fact::of(columns, row)).for_each(|fact| self.see(&fact));
        })
    }

    fn see(&mut self, fact: &Fact) {
        if fact.operation.class() == Class::Data && !fact.has_failed {
            self.see_data(fact);
        } else if matches!(fact.operation.class(), Class::Session | Class::Directory | Class::Control) {
            self.other_service_ns.add(fact.duration_ns);
        }
        match fact.operation {
            Operation::Open if fact.has_failed => self.failed_opens += 1,
            Operation::Open if fact.instance != 0 => self.see_open(fact),
            Operation::Close => _ = self.going.remove(&fact.instance),
            Operation::Status | Operation::Access | Operation::ReadLink if fact.instance == 0 => {
                self.path_questions += 1;
            }
            Operation::Rename | Operation::Delete | Operation::Link if !fact.has_failed => {
                self.see_end(&fact.done());
            }
            _ => {}
        }
    }

    /// An operation that may end a new file; whether it did.
    fn see_end(&mut self, done: &Done) -> bool {
        let Some(ended) = self.lifetimes.see(done) else { return false };
        let lived_ns = i64::try_from(ended.lived_ns).unwrap_or(i64::MAX);
        match ended.death {
            Death::Overwritten => self.overwritten_ns.add(lived_ns),
            Death::Deleted => self.deleted_ns.add(lived_ns),
            Death::Nameless => {}
        }
        true
    }

    fn see_open(&mut self, fact: &Fact) {
        let done = fact.done();
        if self.see_end(&done) {
            self.of_births.insert(fact.instance);
            return;
        }
        self.opens += 1;
        self.opened_ns.entry((fact.machine, fact.user)).or_default().push(fact.start_ns);
        if !done.is_birth() {
            *self.reused.entry(fact.file).or_default() += 1;
        }
    }

    fn see_data(&mut self, fact: &Fact) {
        let is_write = fact.operation == Operation::Write
            || (fact.operation == Operation::Transfer && fact.has_flag(flag::SECOND));
        let direction = usize::from(is_write);
        if !self.of_whole_writes.contains(&fact.instance) {
            self.bytes[direction].add(if is_write { fact.moved_bytes } else { fact.asked_bytes });
        }
        self.data_service_ns.add(fact.duration_ns);
        // A read that finds the end is none of those that follow each other.
        if fact.moved_bytes == 0 {
            self.of_ends.insert(fact.instance);
            return;
        }
        // What was done in the other direction meanwhile is no gap.
        if let Some((last, end_ns)) = self.going.insert(fact.instance, (direction, fact.end_ns()))
            && last == direction
        {
            self.gap_ns[direction].add(fact.start_ns.saturating_sub(end_ns));
        }
    }

    fn read_whole_writes(&mut self, tables: &Path) -> Result<(), StoreError> {
        const COLUMNS: [&str; 3] = ["instance_id", "access", "pattern"];
        TableReader::open(tables, INSTANCE)?.read(&COLUMNS, &mut |columns, _| {
            let rows = columns[0].iter().zip(&columns[1]).zip(&columns[2]);
            let whole = rows.filter(|((_, access), pattern)| is_whole_write(**access, **pattern));
            self.of_whole_writes.extend(whole.map(|((instance, _), _)| *instance));
        })
    }

    fn read_sessions(&mut self, tables: &Path) -> Result<(), StoreError> {
        TableReader::open(tables, INSTANCE)?.read(&Session::COLUMNS, &mut |columns, _| {
            let sessions = (0..columns[0].len()).map(|row| Session::of(columns, row));
            // Of what was open before nobody knows how it began.
            sessions.filter(|session| session.is_seen_from_its_open).for_each(|it| self.see_session(&it));
        })
    }

    fn see_session(&mut self, session: &Session) {
        let Session { access, pattern, .. } = *session;
        let is_control = access == Access::None as i64;
        if is_control {
            self.control_operations.add(session.controls);
        }
        if session.has_ended {
            let times = if is_control { &mut self.control_open_ns } else { &mut self.held_ns };
            times.add(session.open_ns.saturating_sub(session.data_ns));
        }
        if session.writes > 0 {
            self.writing += 1;
            self.synced += u64::from(session.syncs > 0);
        }
        let (operations, is_whole_write) =
            (session.reads.saturating_add(session.writes), is_whole_write(access, pattern));
        if is_whole_write {
            self.new_file_bytes.add(session.closed_size_bytes);
            self.new_file_operations.add(operations);
        } else if !session.is_created && self.unseen.remove(&session.file) {
            self.file_bytes.add(session.opened_size_bytes);
        }
        if pattern == Pattern::Sequential as i64 {
            self.sequential_operations.add(operations);
        } else if pattern == Pattern::Random as i64 {
            self.random_operations.add(operations);
        }
        if access == Access::ReadOnly as i64 && pattern == Pattern::WholeFile as i64 {
            self.whole_reads += 1;
            self.end_reads += u64::from(self.of_ends.contains(&session.instance));
        }
        if self.of_births.contains(&session.instance) {
            return;
        }
        *self.kinds.entry((access, pattern)).or_default() += 1;
        if is_whole_write {
            self.whole_writes += 1;
            self.truncating += u64::from(!session.is_created);
        }
    }

    /// Of opened regular files: where they lie.
    fn read_files(&mut self, tables: &Path) -> Result<(), StoreError> {
        const COLUMNS: [&str; 4] = ["file_id", "inode", "mode", "path"];
        TableReader::open(tables, named("file"))?.read(&COLUMNS, &mut |numbers, texts| {
            for (row, path) in texts[0].iter().enumerate() {
                let of = |column: usize| numbers[column][row];
                if of(1) == 0 || of(2) & TYPE != REGULAR {
                    continue;
                }
                self.unseen.insert(of(0));
                if let Some((directory, _)) = path.rsplit_once('/') {
                    *self.directories.entry(directory.to_owned()).or_default() += 1;
                }
            }
        })
    }

    /// Periods of activity, gaps within them, and silences.
    fn periods(&mut self) -> [Variable; 3] {
        let [mut active, mut gaps, mut silences] = <[Values; 3]>::default();
        for opened_ns in self.opened_ns.values_mut() {
            opened_ns.sort_unstable();
            let mut opens = 1;
            for pair in opened_ns.windows(2) {
                let gap_ns = pair[1].saturating_sub(pair[0]);
                if u64::try_from(gap_ns).is_ok_and(|gap_ns| gap_ns > SILENCE_NS) {
                    silences.add(gap_ns);
                    active.add(opens);
                    opens = 1;
                } else {
                    gaps.add(gap_ns);
                    opens += 1;
                }
            }
            active.add(opens);
        }
        // Where nobody was ever silent, a silence is as short as one can be.
        if silences.seen() == 0 {
            silences.add(i64::try_from(SILENCE_NS + 1).unwrap_or(i64::MAX));
        }
        [active.variable(MOST_OPENS), gaps.variable(SILENCE_NS), silences.variable(YEAR_NS)]
    }

    fn model(mut self) -> Model {
        let [active_opens, open_gap_ns, silent_ns] = self.periods();
        let per_open = |count: u64| count as f64 / self.opens as f64;
        let share = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
        let kind = |access: Access, pattern: Pattern| {
            share(self.kinds.get(&(access as i64, pattern as i64)).copied().unwrap_or(0), self.opens)
        };
        let [read_bytes, write_bytes] = self.bytes;
        let [read_gap_ns, write_gap_ns] = self.gap_ns;
        let (files, depth) = directory_shape(&self.directories);
        let kinds = Kinds {
            control: kind(Access::None, Pattern::None),
            read_nothing: kind(Access::ReadOnly, Pattern::None),
            read_whole: kind(Access::ReadOnly, Pattern::WholeFile),
            read_sequential: kind(Access::ReadOnly, Pattern::Sequential),
            read_random: kind(Access::ReadOnly, Pattern::Random),
            write_whole: kind(Access::WriteOnly, Pattern::WholeFile),
            write_sequential: kind(Access::WriteOnly, Pattern::Sequential),
            write_random: kind(Access::WriteOnly, Pattern::Random),
            both_whole: kind(Access::ReadWrite, Pattern::WholeFile),
            both_sequential: kind(Access::ReadWrite, Pattern::Sequential),
            both_random: kind(Access::ReadWrite, Pattern::Random),
        };
        let made = self.lifetimes.made;
        Model {
            format: Format,
            about: format!("measured of {} opens", self.opens),
            sources: u32::try_from(self.opened_ns.len()).unwrap_or(u32::MAX).clamp(1, super::MOST_SOURCES),
            silence_ns: SILENCE_NS,
            active_opens,
            open_gap_ns,
            silent_ns,
            kinds,
            failed_opens: per_open(self.failed_opens),
            path_questions: per_open(self.path_questions),
            control_operations: self.control_operations.variable(MOST_OPERATIONS),
            control_open_ns: self.control_open_ns.variable(YEAR_NS),
            sequential_operations: self.sequential_operations.variable(MOST_OPERATIONS),
            random_operations: self.random_operations.variable(MOST_OPERATIONS),
            read_bytes: read_bytes.variable(MOST_REQUEST_BYTES),
            write_bytes: write_bytes.variable(MOST_REQUEST_BYTES),
            read_gap_ns: read_gap_ns.variable(DAY_NS),
            write_gap_ns: write_gap_ns.variable(DAY_NS),
            held_ns: self.held_ns.variable(YEAR_NS),
            end_reads: share(self.end_reads, self.whole_reads),
            synced_writes: share(self.synced, self.writing),
            data_service_ns: self.data_service_ns.variable(DAY_NS),
            other_service_ns: self.other_service_ns.variable(DAY_NS),
            file_bytes: self.file_bytes.variable(MOST_FILE_BYTES),
            reuse: reuse::of(self.reused.into_values()),
            births: Births {
                truncating: share(self.truncating, self.whole_writes),
                bytes: self.new_file_bytes.variable(MOST_FILE_BYTES),
                operations: self.new_file_operations.variable(MOST_OPERATIONS),
                overwritten: share(self.overwritten_ns.seen(), made),
                deleted: share(self.deleted_ns.seen(), made),
                overwritten_ns: self.overwritten_ns.variable(YEAR_NS),
                deleted_ns: self.deleted_ns.variable(YEAR_NS),
            },
            directories: Directories { files, depth },
        }
    }
}

const fn is_whole_write(access: i64, pattern: i64) -> bool {
    access == Access::WriteOnly as i64 && pattern == Pattern::WholeFile as i64
}

/// Of directories: how many files each has, and how deep it lies.
fn directory_shape(directories: &HashMap<String, i64>) -> (Variable, Variable) {
    let [mut files, mut depth] = <[Values; 2]>::default();
    for (directory, count) in directories {
        files.add(*count);
        depth.add(i64::try_from(directory.matches('/').count()).unwrap_or(i64::MAX));
    }
    (files.variable(MOST_IN_DIRECTORY), depth.variable(MOST_IN_DIRECTORY))
}
