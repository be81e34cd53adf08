//! The pass over the table of operations.

use std::path::Path;

use foldhash::HashMap;

use super::{Common, Gathered, READ, SHORT_INTERVAL_NS, WRITE, Way, unsigned};
use crate::event::flag;
use crate::file_type::FileType;
use crate::history::open_flag;
use crate::lifetimes::Done;
use crate::store::{StoreError, TRACE, TableReader};
use crate::{Class, Operation};

/// `POSIX_FADV_SEQUENTIAL`.
const SEQUENTIAL_ADVICE: u64 = 2;

/// So many new files that are no more are kept for figures; of more, the rest counts as made alone.
const MOST_ENDED: usize = 1 << 21;

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

impl Gathered {
    pub(super) fn read_trace(
        &mut self,
        tables: &Path,
        programs: &HashMap<i64, i64>,
    ) -> Result<(), StoreError> {
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
        let of_user = self.by_user.entry((fact.machine, fact.user)).or_default();
        of_user.operations += 1;
        of_user.errors += u64::from(fact.error != 0);
        let Fact { machine, start_ns, operation: number, user, kind, .. } = *fact;
        let key = self.key(Common { machine, start_ns, operation: number, program, user, kind });
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
            let ended = self.lifetimes.see(&Done {
                operation,
                end_ns: unsigned(fact.start_ns.saturating_add(fact.duration_ns)),
                process: fact.program,
                file: fact.file,
                other_file: fact.other_file,
                argument: fact.argument,
                size: unsigned(fact.size),
                flags: fact.flags,
            });
            if let Some(ended) = ended {
                self.samples.lifetime_ns.add(ended.lived_ns);
                if self.ended.len() < MOST_ENDED {
                    self.ended.push(ended);
                }
            }
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
