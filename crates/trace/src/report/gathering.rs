//! One pass over each table of facts.

use std::collections::BTreeMap;
use std::path::Path;

use foldhash::HashMap;

use super::groups::{By, Gathering};
use super::lifetimes::{Done, Lifetimes};
use super::samples::Samples;
use super::{About, Group, Machine};
use crate::event::flag;
use crate::file_type::FileType;
use crate::history::open_flag;
use crate::statistics::histogram::LogHistogram;
use crate::store::{INSTANCE, StoreError, TRACE, TableReader, named};
use crate::{Class, Operation};

/// The two lengths of interval that the older studies take averages over. (Thesis §9.6.1)
pub(super) const SHORT_INTERVAL_NS: i64 = 10_000_000_000;
pub(super) const LONG_INTERVALS: i64 = 60;

/// Directions of data.
pub(super) const READ: usize = 0;
pub(super) const WRITE: usize = 1;

/// Requests by the way they go. NT tells packets from direct calls; here it is whether the page cache had everything. (Thesis §9.10)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    CachedRead,
    MissedRead,
    Write,
    PageIn,
}

/// File systems that are kept elsewhere.
const REMOTE: &[&str] = &["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "afs", "virtiofs"];

/// How often something was tried, and how often it failed, by error.
#[derive(Default)]
pub(super) struct Tried {
    pub(super) times: u64,
    pub(super) errors: BTreeMap<i64, u64>,
}

impl Tried {
    fn add(&mut self, error: i64) {
        self.times += 1;
        if error != 0 {
            *self.errors.entry(error).or_default() += 1;
        }
    }

    pub(super) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// All that is gathered.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) about: About,
    pub(super) samples: Samples,
    pub(super) lifetimes: Lifetimes,
    /// By machine and user.
    pub(super) by_user: BTreeMap<(i64, i64), Gathering>,
    /// Bytes of each machine and user in each short interval.
    pub(super) activity: HashMap<(i64, i64, i64), u64>,
    /// Lengths of sequential runs, read and written: by number and by bytes.
    pub(super) runs: [LogHistogram; 2],
    /// Sizes of opened files, by access.
    pub(super) sizes: [LogHistogram; 3],
    /// Sizes of opened files, weighed by how often each was read and written.
    pub(super) sizes_by_operations: LogHistogram,
    /// Reads that ask for a page or a sector.
    pub(super) reads_of_usual_size: u64,
    /// How long files were open: with data on local and on remote file systems, without, and by access.
    pub(super) open_local: LogHistogram,
    pub(super) open_remote: LogHistogram,
    pub(super) open_control: LogHistogram,
    pub(super) open_by_access: [LogHistogram; 3],
    /// Between opens: for data and for control.
    pub(super) gap_data: LogHistogram,
    pub(super) gap_control: LogHistogram,
    pub(super) service: [LogHistogram; 4],
    pub(super) requested: [LogHistogram; 4],
    /// When operations began.
    pub(super) opens_ns: Vec<u64>,
    pub(super) seconds: BTreeMap<i64, u64>,
    pub(super) seconds_with_opens: BTreeMap<(i64, i64), ()>,
    pub(super) opens: Tried,
    pub(super) controls: Tried,
    pub(super) reads: Tried,
    pub(super) writes: Tried,
    pub(super) missed_reads: u64,
    pub(super) missed_writes: u64,
    pub(super) page_ins: u64,
    pub(super) missed_page_ins: u64,
    pub(super) data_sessions: u64,
    pub(super) control_sessions: u64,
    pub(super) read_sessions: u64,
    pub(super) read_sessions_of_one_miss: u64,
    pub(super) single_read_sessions: u64,
    pub(super) write_sessions: u64,
    pub(super) synced_write_sessions: u64,
    pub(super) write_through_sessions: u64,
    pub(super) temporary_sessions: u64,
    pub(super) sequential_advice: u64,
    pub(super) reused: Reuse,
    /// Bytes moved in sessions with at least so many, and in all.
    pub(super) session_sizes: LogHistogram,
    groups: BTreeMap<i64, Gathering>,
    by: Option<By>,
    names: HashMap<i64, String>,
}

/// How often the same file is opened again. (Thesis §9.8.1)
#[derive(Default)]
pub(super) struct Reuse {
    /// By file: how often it was opened for reading, writing, both.
    pub(super) opens: HashMap<i64, [u32; 3]>,
}

/// What is going on in a session.
#[derive(Default)]
struct Going {
    next_offset: i64,
    run: Option<(usize, u64)>,
    read_end_ns: i64,
    write_end_ns: i64,
}

/// What a program has done.
#[derive(Default)]
struct ProgramUse {
    opens: u64,
    libraries: u64,
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

impl Gathered {
    /// Of all tables.
    pub(super) fn of(tables: &Path, by: Option<By>) -> Result<Self, StoreError> {
        let mut gathered = Self { by, ..Self::default() };
        gathered.read_machines(tables)?;
        let programs = gathered.read_programs(tables)?;
        gathered.read_names(tables)?;
        let remote = remote_files(tables)?;
        gathered.read_trace(tables, &programs)?;
        gathered.read_instances(tables, &programs, &remote)?;
        let per_second: Vec<u64> = gathered.seconds.values().copied().collect();
        per_second.into_iter().for_each(|operations| gathered.samples.operations_per_second.add(operations));
        Ok(gathered)
    }

    fn read_machines(&mut self, tables: &Path) -> Result<(), StoreError> {
        let wanted = ["lost", "clock_step_ns", "machine", "kernel", "mechanism", "lacks", "command"];
        let about = &mut self.about;
        TableReader::open(tables, named("machine"))?.read(&wanted, &mut |numbers, texts| {
            for row in 0..numbers[0].len() {
                about.lost = about.lost.saturating_add(unsigned(numbers[0][row]));
                about.machines.push(Machine {
                    name: texts[0][row].clone(),
                    kernel: texts[1][row].clone(),
                    mechanism: texts[2][row].clone(),
                    lacks: texts[3][row].clone(),
                    command: texts[4][row].clone(),
                    clock_step_ns: numbers[1][row],
                });
            }
        })
    }

    /// The numbers of program names, for they are what a drill-down by process goes by.
    fn read_programs(&mut self, tables: &Path) -> Result<HashMap<i64, i64>, StoreError> {
        let mut of_program = HashMap::default();
        let mut numbers_of: HashMap<String, i64> = HashMap::default();
        let (samples, names, by) = (&mut self.samples, &mut self.names, self.by);
        let wanted = ["process_id", "lifetime_ns", "process"];
        TableReader::open(tables, named("process"))?.read(&wanted, &mut |numbers, texts| {
            for row in 0..numbers[0].len() {
                let next = i64::try_from(numbers_of.len()).unwrap_or(i64::MAX);
                let number = *numbers_of.entry(texts[0][row].clone()).or_insert(next);
                if by == Some(By::Process) {
                    names.entry(number).or_insert_with(|| texts[0][row].clone());
                }
                of_program.insert(numbers[0][row], number);
                if numbers[1][row] >= 0 {
                    samples.program_ns.add(unsigned(numbers[1][row]));
                }
            }
        })?;
        Ok(of_program)
    }

    fn read_names(&mut self, tables: &Path) -> Result<(), StoreError> {
        match self.by {
            Some(By::User) => {
                let names = &mut self.names;
                TableReader::open(tables, named("user"))?.read(&["user_id", "user"], &mut |numbers, texts| {
                    names.extend(numbers[0].iter().copied().zip(texts[0].iter().cloned()));
                })
            }
            _ => Ok(()),
        }
    }

    fn name_of(&self, key: i64) -> String {
        let kind = |key: i64| usize::try_from(key).ok().and_then(|place| FileType::all().get(place));
        let name = match self.by {
            Some(By::Category) => kind(key).map(|kind| kind.category.to_owned()),
            Some(By::Type) => kind(key).map(|kind| kind.kind.to_owned()),
            Some(By::Operation) => u8::try_from(key)
                .ok()
                .and_then(Operation::of_number)
                .map(|operation| operation.name().to_owned()),
            Some(By::Machine) => usize::try_from(key)
                .ok()
                .and_then(|place| self.about.machines.get(place))
                .map(|machine| machine.name.clone()),
            Some(By::Hour) => {
                let [_, _, _, hour, _, day, month, year] = crate::store::calendar(key.saturating_mul(3600));
                Some(format!("{year:04}-{month:02}-{day:02} {hour:02}:00"))
            }
            _ => self.names.get(&key).cloned(),
        };
        name.unwrap_or_else(|| "?".to_owned())
    }

    fn key(
        &self,
        machine: i64,
        start_ns: i64,
        operation: i64,
        program: i64,
        user: i64,
        kind: i64,
    ) -> Option<i64> {
        Some(match self.by? {
            By::Category => first_of_category(kind),
            By::Type => kind,
            By::Process => program,
            By::User => user,
            By::Machine => machine,
            By::Hour => start_ns.div_euclid(3_600_000_000_000),
            By::Operation => operation,
        })
    }

    /// The groups, the busiest first.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> =
            self.groups.iter().map(|(&key, gathering)| gathering.group(self.name_of(key))).collect();
        groups.sort_by(|one, other| other.operations.cmp(&one.operations).then(one.name.cmp(&other.name)));
        groups
    }

    fn read_trace(&mut self, tables: &Path, programs: &HashMap<i64, i64>) -> Result<(), StoreError> {
        const COLUMNS: [&str; 17] = [
            "machine_id",
            "start",
            "duration_ns",
            "operation_id",
            "process_id",
            "user_id",
            "file_id",
            "type_id",
            "other_file_id",
            "instance_id",
            "error",
            "offset",
            "asked_bytes",
            "moved_bytes",
            "argument",
            "size_bytes",
            "flags",
        ];
        let mut going: HashMap<i64, Going> = HashMap::default();
        let mut uses: HashMap<i64, ProgramUse> = HashMap::default();
        let mut span = (i64::MAX, i64::MIN);
        TableReader::open(tables, TRACE)?.read(&COLUMNS, &mut |columns, _| {
            for row in 0..columns[0].len() {
                let fact = Fact::of(columns, row);
                span =
                    (span.0.min(fact.start_ns), span.1.max(fact.start_ns.saturating_add(fact.duration_ns)));
                self.see(&fact, programs, &mut going, &mut uses);
            }
        })?;
        for going in going.into_values() {
            self.end_run(going.run);
        }
        for program in uses.into_values() {
            self.samples.program_opens.add(program.opens);
            if program.libraries > 0 {
                self.samples.program_libraries.add(program.libraries);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let seconds = span.1.saturating_sub(span.0).max(0) as f64 / 1e9;
        self.about.seconds = if self.about.operations == 0 { 0.0 } else { seconds };
        Ok(())
    }

    fn see(
        &mut self,
        fact: &Fact,
        programs: &HashMap<i64, i64>,
        going: &mut HashMap<i64, Going>,
        uses: &mut HashMap<i64, ProgramUse>,
    ) {
        let Some(operation) = u8::try_from(fact.operation).ok().and_then(Operation::of_number) else {
            return;
        };
        self.about.operations += 1;
        *self.seconds.entry(fact.start_ns.div_euclid(1_000_000_000)).or_default() += 1;
        let program = programs.get(&fact.program).copied().unwrap_or(-1);
        let user = self.by_user.entry((fact.machine, fact.user)).or_default();
        user.operations += 1;
        user.errors += u64::from(fact.error != 0);
        let key = self.key(fact.machine, fact.start_ns, fact.operation, program, fact.user, fact.kind);
        if let Some(key) = key {
            let group = self.groups.entry(key).or_default();
            group.operations += 1;
            group.errors += u64::from(fact.error != 0);
        }
        match operation.class() {
            Class::Data => self.see_data(fact, operation, going, key),
            Class::Control | Class::Directory => self.controls.add(fact.error),
            _ => {}
        }
        match operation {
            Operation::Open => {
                self.opens.add(fact.error);
                if fact.error == 0 {
                    self.opens_ns.push(unsigned(fact.start_ns));
                    self.seconds_with_opens
                        .insert((fact.machine, fact.start_ns.div_euclid(1_000_000_000)), ());
                    uses.entry(fact.program).or_default().opens += 1;
                    let access = usize::try_from(fact.argument & open_flag::ACCESS).unwrap_or(0).min(2);
                    if fact.file >= 0 {
                        self.reused.opens.entry(fact.file).or_default()[access] += 1;
                    }
                }
            }
            Operation::Close => {
                if let Some(going) = going.remove(&fact.instance) {
                    self.end_run(going.run);
                }
            }
            Operation::Map if fact.error == 0 && fact.offset == 0 => {
                let is_library = usize::try_from(fact.kind)
                    .ok()
                    .and_then(|at| FileType::all().get(at))
                    .is_some_and(|kind| kind.kind == "library");
                uses.entry(fact.program).or_default().libraries += u64::from(is_library);
            }
            Operation::PageIn => {
                self.page_ins += 1;
                self.missed_page_ins += u64::from(fact.flags & flag::MISS != 0);
                self.requested[Way::PageIn as usize].record(unsigned(fact.moved), 1);
            }
            Operation::Advise if fact.argument == SEQUENTIAL_ADVICE => self.sequential_advice += 1,
            _ => {}
        }
        if fact.error == 0 {
            self.lifetimes.see(&Done {
                operation,
                end_ns: unsigned(fact.start_ns.saturating_add(fact.duration_ns)),
                process: fact.program,
                file: fact.file,
                other_file: fact.other_file,
                argument: fact.argument,
                size: unsigned(fact.size),
                flags: fact.flags,
            });
        }
    }

    fn see_data(
        &mut self,
        fact: &Fact,
        operation: Operation,
        going: &mut HashMap<i64, Going>,
        key: Option<i64>,
    ) {
        let is_written = operation == Operation::Write
            || (operation == Operation::Transfer && fact.flags & flag::SECOND != 0);
        let is_missed = fact.flags & flag::MISS != 0;
        if is_written {
            self.writes.add(fact.error);
            self.missed_writes += u64::from(is_missed);
        } else {
            self.reads.add(fact.error);
            self.missed_reads += u64::from(is_missed);
        }
        if fact.error != 0 {
            return;
        }
        let way = match (is_written, is_missed) {
            (true, _) => Way::Write,
            (false, false) => Way::CachedRead,
            (false, true) => Way::MissedRead,
        };
        self.service[way as usize].record(unsigned(fact.duration_ns), 1);
        self.requested[way as usize].record(unsigned(fact.asked), 1);
        let moved = unsigned(fact.moved);
        let interval = fact.start_ns.div_euclid(SHORT_INTERVAL_NS);
        let active = self.activity.entry((fact.machine, fact.user, interval)).or_default();
        *active = active.saturating_add(moved);
        let groups =
            [self.by_user.get_mut(&(fact.machine, fact.user)), key.and_then(|key| self.groups.get_mut(&key))];
        for group in groups.into_iter().flatten() {
            let sum = if is_written { &mut group.written_bytes } else { &mut group.read_bytes };
            *sum = sum.saturating_add(moved);
        }
        let direction = if is_written { WRITE } else { READ };
        self.reads_of_usual_size += u64::from(!is_written && matches!(fact.asked, 512 | 4096));
        let variable = if is_written { &mut self.samples.write_bytes } else { &mut self.samples.read_bytes };
        variable.add(unsigned(fact.asked));
        if fact.instance == 0 || moved == 0 {
            return;
        }
        let session = going.entry(fact.instance).or_default();
        let end_ns = fact.start_ns.saturating_add(fact.duration_ns);
        let last_ns = if is_written { &mut session.write_end_ns } else { &mut session.read_end_ns };
        if *last_ns != 0 {
            let gap = unsigned(fact.start_ns.saturating_sub(*last_ns));
            (if is_written { &mut self.samples.write_gap_ns } else { &mut self.samples.read_gap_ns })
                .add(gap);
        }
        *last_ns = end_ns;
        let ended = match &mut session.run {
            Some((run_direction, bytes))
                if *run_direction == direction && session.next_offset == fact.offset =>
            {
                *bytes = bytes.saturating_add(moved);
                None
            }
            run => run.replace((direction, moved)),
        };
        session.next_offset = fact.offset.saturating_add(fact.moved);
        self.end_run(ended);
    }

    fn end_run(&mut self, run: Option<(usize, u64)>) {
        if let Some((direction, bytes)) = run {
            self.runs[direction].record(bytes, bytes);
            self.samples.run_bytes.add(bytes);
        }
    }

    fn read_instances(
        &mut self,
        tables: &Path,
        programs: &HashMap<i64, i64>,
        remote: &foldhash::HashSet<i64>,
    ) -> Result<(), StoreError> {
        const COLUMNS: [&str; 18] = [
            "machine_id",
            "opened",
            "open_ns",
            "process_id",
            "user_id",
            "file_id",
            "type_id",
            "open_flags",
            "seen_from_its_open",
            "ending",
            "access",
            "pattern",
            "opened_size_bytes",
            "closed_size_bytes",
            "reads",
            "read_bytes",
            "writes",
            "written_bytes",
        ];
        let mut opened: Vec<(i64, i64, bool)> = Vec::new();
        let reader = TableReader::open(tables, INSTANCE)?;
        let mut columns_wanted = COLUMNS.to_vec();
        columns_wanted.extend(["missed_reads", "syncs"]);
        reader.read(&columns_wanted, &mut |columns, _| {
            for (row, _) in columns[0].iter().enumerate() {
                let of = |column: usize| columns[column][row];
                self.about.sessions += 1;
                let (machine, user, kind) = (of(0), of(4), of(6));
                let access = usize::try_from(of(10)).unwrap_or(0);
                let pattern = usize::try_from(of(11)).unwrap_or(0);
                let bytes = unsigned(of(15)).saturating_add(unsigned(of(17)));
                // Of what was open before, or still is, nobody knows how long it is.
                let open_ns = (of(8) == 1 && of(9) != 0).then(|| unsigned(of(2)));
                let program = programs.get(&of(3)).copied().unwrap_or(-1);
                let key = self.key(machine, of(1), (Operation::Open as u8).into(), program, user, kind);
                let user_group = Some(self.by_user.entry((machine, user)).or_default());
                let key_group = key.map(|key| self.groups.entry(key).or_default());
                for group in [user_group, key_group].into_iter().flatten() {
                    group.add_session(access, pattern, bytes, open_ns.unwrap_or(0));
                }
                let has_data = access != 0;
                if of(8) == 1 {
                    opened.push((machine, of(1), has_data));
                }
                if has_data {
                    self.data_sessions += 1;
                    let size = unsigned(of(12).max(of(13)));
                    self.sizes_by_operations.record(size, unsigned(of(14)).saturating_add(unsigned(of(16))));
                    self.sizes[access.min(3) - 1].record(size, bytes);
                    self.samples.file_bytes.add(size);
                    self.samples.session_bytes.add(bytes);
                    self.samples.session_operations.add(unsigned(of(14)).saturating_add(unsigned(of(16))));
                    self.session_sizes.record(bytes, bytes);
                    if let Some(open_ns) = open_ns {
                        let place = if remote.contains(&of(5)) {
                            &mut self.open_remote
                        } else {
                            &mut self.open_local
                        };
                        place.record(open_ns, 1);
                        self.open_by_access[access.min(3) - 1].record(open_ns, 1);
                        self.samples.data_session_ns.add(open_ns);
                    }
                    if of(14) > 0 {
                        self.read_sessions += 1;
                        self.read_sessions_of_one_miss += u64::from(of(18) <= 1);
                        self.single_read_sessions += u64::from(of(14) == 1);
                    }
                    if of(16) > 0 {
                        self.write_sessions += 1;
                        self.synced_write_sessions += u64::from(of(19) > 0);
                        let flags = of(7).cast_unsigned();
                        self.write_through_sessions +=
                            u64::from(flags & (open_flag::SYNCHRONOUS | open_flag::DIRECT) != 0);
                        self.temporary_sessions +=
                            u64::from(flags & open_flag::TEMPORARY == open_flag::TEMPORARY);
                    }
                } else {
                    self.control_sessions += 1;
                    if let Some(open_ns) = open_ns {
                        self.open_control.record(open_ns, 1);
                        self.samples.control_session_ns.add(open_ns);
                    }
                }
            }
        })?;
        self.see_gaps(opened);
        for lifetime in std::mem::take(&mut self.lifetimes.ended) {
            self.samples.lifetime_ns.add(lifetime.lived_ns);
            self.lifetimes.ended.push(lifetime);
        }
        Ok(())
    }

    fn see_gaps(&mut self, mut opened: Vec<(i64, i64, bool)>) {
        opened.sort_unstable();
        for pair in opened.windows(2) {
            let [(machine, before_ns, _), (same, now_ns, has_data)] = *pair else { continue };
            if machine != same {
                continue;
            }
            let gap = unsigned(now_ns.saturating_sub(before_ns));
            self.samples.open_gap_ns.add(gap);
            (if has_data { &mut self.gap_data } else { &mut self.gap_control }).record(gap, 1);
        }
    }
}

/// `POSIX_FADV_SEQUENTIAL`.
const SEQUENTIAL_ADVICE: u64 = 2;

/// Kinds of a category share the number of its first.
fn first_of_category(kind: i64) -> i64 {
    let all = FileType::all();
    let category = usize::try_from(kind).ok().and_then(|place| all.get(place)).map(|kind| kind.category);
    let first = category.and_then(|category| all.iter().position(|kind| kind.category == category));
    first.and_then(|first| i64::try_from(first).ok()).unwrap_or(-1)
}

fn remote_files(tables: &Path) -> Result<foldhash::HashSet<i64>, StoreError> {
    let mut remote = foldhash::HashSet::default();
    TableReader::open(tables, named("file"))?.read(&["file_id", "file_system"], &mut |numbers, texts| {
        let rows = numbers[0].iter().zip(&texts[0]);
        remote.extend(rows.filter(|(_, system)| REMOTE.contains(&system.as_str())).map(|(file, _)| *file));
    })?;
    Ok(remote)
}

/// A row of the table of operations, as far as it is needed here.
struct Fact {
    machine: i64,
    start_ns: i64,
    duration_ns: i64,
    operation: i64,
    program: i64,
    user: i64,
    file: i64,
    kind: i64,
    other_file: i64,
    instance: i64,
    error: i64,
    offset: i64,
    asked: i64,
    moved: i64,
    argument: u64,
    size: i64,
    flags: u8,
}

impl Fact {
    fn of(columns: &[Vec<i64>], row: usize) -> Self {
        let of = |column: usize| columns[column][row];
        Self {
            machine: of(0),
            start_ns: of(1),
            duration_ns: of(2),
            operation: of(3),
            program: of(4),
            user: of(5),
            file: of(6),
            kind: of(7),
            other_file: of(8),
            instance: of(9),
            error: of(10),
            offset: of(11),
            asked: of(12),
            moved: of(13),
            argument: of(14).cast_unsigned(),
            size: of(15),
            flags: u8::try_from(of(16)).unwrap_or(0),
        }
    }
}
