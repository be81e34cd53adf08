//! From a recording into the tables.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use super::schema::{INSTANCE, TRACE, named};
use super::{StoreError, TableWriter};
use crate::Operation;
use crate::file_type::FileType;
use crate::history::{Chronicler, Fact, FileId, History, Instance, Known, ProgramId};
use crate::trace_file::{TraceFileError, read_trace};

/// How many things have been loaded: their numbers go on from recording to recording.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Loaded {
    /// Sessions.
    instances: i64,
    /// Files.
    files: i64,
    /// Programs.
    programs: i64,
}

/// Writes facts as they come. What goes wrong is kept until the end, for the one who reads has no use for it.
struct Loader {
    trace: TableWriter,
    instance: TableWriter,
    machine: i64,
    base: Loaded,
    instances: i64,
    seconds: BTreeSet<i64>,
    result: Result<(), StoreError>,
    /// Of each file that was met: its type, once its name is known.
    types: Vec<Option<i64>>,
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What does not fit is as large as can be.
fn large(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn second_of(wall_ns: i64) -> i64 {
    wall_ns.div_euclid(1_000_000_000)
}

impl Loader {
    fn file(&self, file: Option<FileId>) -> i64 {
        file.map_or(-1, |file| self.base.files + i64::from(file.0))
    }

    fn program(&self, program: ProgramId) -> i64 {
        self.base.programs + i64::from(program.0)
    }

    fn session(&self, instance: u64) -> i64 {
        if instance == 0 { 0 } else { self.base.instances + large(instance) }
    }

    fn type_of(&mut self, file: Option<FileId>, known: Known<'_>) -> i64 {
        let Some(file) = file else { return -1 };
        let at = file.0 as usize;
        if self.types.len() <= at {
            self.types.resize(at + 1, None);
        }
        if let Some(kind) = self.types[at] {
            return kind;
        }
        let kind = type_id(known.files.file_type(file));
        if !known.files.files()[at].path.is_empty() {
            self.types[at] = Some(kind);
        }
        kind
    }

    fn time(&mut self, known: Known<'_>, monotonic_ns: u64) -> i64 {
        let wall_ns = large(known.wall_ns(monotonic_ns));
        self.seconds.insert(second_of(wall_ns));
        wall_ns
    }

    fn note(&mut self, result: Result<(), StoreError>) {
        if self.result.is_ok() {
            self.result = result;
        }
    }
}

/// The number of a file type is that of its place among all.
fn type_id(kind: FileType) -> i64 {
    FileType::all().iter().position(|known| *known == kind).map_or(-1, signed)
}

/// The user of a program; -1 if that is not known.
fn user_of(program: ProgramId, known: Known<'_>) -> i64 {
    match known.processes.programs()[program.0 as usize].user {
        u32::MAX => -1,
        user => user.into(),
    }
}

impl Chronicler for Loader {
    fn operation(&mut self, fact: &Fact, known: Known<'_>) {
        let kind = self.type_of(fact.file, known);
        let start = self.time(known, fact.start_ns);
        let row = [
            self.machine,
            second_of(start),
            start,
            large(fact.duration_ns),
            (fact.operation as u8).into(),
            self.program(fact.program),
            user_of(fact.program, known),
            fact.thread.into(),
            self.file(fact.file),
            kind,
            self.file(fact.other_file),
            self.session(fact.instance),
            fact.descriptor.into(),
            fact.error.into(),
            fact.result,
            large(fact.offset),
            large(fact.asked),
            large(fact.moved),
            fact.argument.cast_signed(),
            large(fact.size),
            fact.flags.into(),
            fact.pages.into(),
        ];
        let result = self.trace.add(&row, &[]);
        self.note(result);
    }

    fn instance(&mut self, instance: &Instance, known: Known<'_>) {
        self.instances += 1;
        let kind = self.type_of(instance.file, known);
        let opened = self.time(known, instance.opened_ns);
        let row = [
            self.session(instance.id),
            self.machine,
            second_of(opened),
            opened,
            large(known.wall_ns(instance.closed_ns)),
            large(instance.closed_ns.saturating_sub(instance.opened_ns)),
            self.program(instance.program),
            user_of(instance.program, known),
            self.file(instance.file),
            kind,
            instance.open_flags.cast_signed(),
            instance.is_seen_from_its_open.into(),
            instance.is_created.into(),
            instance.ending as i64,
            instance.access() as i64,
            instance.pattern as i64,
            large(instance.opened_size),
            large(instance.closed_size),
            large(instance.reads),
            large(instance.read_bytes),
            large(instance.writes),
            large(instance.written_bytes),
            large(instance.sequential_bytes),
            large(instance.runs),
            large(instance.lists),
            large(instance.maps),
            large(instance.controls),
            large(instance.syncs),
            large(instance.errors),
            large(instance.missed_reads),
            large(instance.pages),
            large(instance.last_data_ns.saturating_sub(instance.first_data_ns)),
        ];
        let result = self.instance.add(&row, &[]);
        self.note(result);
    }
}

/// Loads one recording. The inner error is the recording's; all that came before it has been loaded. `told` are the seconds that stand in the
/// table of times: recordings of several machines have many in common, and one that stood there twice would double the facts that are joined
/// with it.
pub(super) fn load(
    recording: impl Read,
    tables: &Path,
    number: usize,
    loaded: &mut Loaded,
    told: &mut BTreeSet<i64>,
) -> Result<Result<(), TraceFileError>, StoreError> {
    let mut history = History::new(Loader {
        trace: TableWriter::create(tables, TRACE, number)?,
        instance: TableWriter::create(tables, INSTANCE, number)?,
        machine: signed(number),
        base: *loaded,
        instances: 0,
        seconds: BTreeSet::new(),
        result: Ok(()),
        types: Vec::new(),
    });
    let read = read_trace(recording, &mut history);
    history.finish();
    write_dimensions(&history, tables, number, *loaded)?;
    let mut times = TableWriter::create(tables, named("time"), number)?;
    for &second in &history.chronicler.seconds {
        if told.insert(second) {
            times.add(&calendar(second), &[])?;
        }
    }
    times.finish()?;
    loaded.files += signed(history.files.files().len());
    loaded.programs += signed(history.processes.programs().len());
    let loader = history.chronicler;
    loaded.instances += loader.instances;
    loader.result?;
    loader.trace.finish()?;
    loader.instance.finish()?;
    Ok(read)
}

fn write_dimensions(
    history: &History<Loader>,
    tables: &Path,
    number: usize,
    base: Loaded,
) -> Result<(), StoreError> {
    let machine = history.chronicler.machine;
    let known = history.known();
    let head = &history.head;

    let mut table = TableWriter::create(tables, named("machine"), number)?;
    let began = large(head.began.wall_ns);
    let ended = large(known.wall_ns(history.last.monotonic_ns.max(head.began.monotonic_ns)));
    let last = history.last;
    let suspension = head.suspension;
    let numbers = [
        machine,
        began,
        ended,
        large(last.recorded),
        large(last.lost),
        large(last.foreign),
        history.clock_step_ns,
        suspension.map_or(-1, |it| i64::try_from(it.silence(&head.began).as_nanos()).unwrap_or(i64::MAX)),
        suspension.map_or(-1, |it| large(it.undelivered)),
    ];
    let lacks = head.lacks.join("; ");
    let command = head.command.join(&b' ');
    let cause = suspension.map_or_else(String::new, |suspension| suspension.cause.to_string());
    let texts = [
        head.machine.as_bytes(),
        head.kernel.as_bytes(),
        head.mechanism.as_bytes(),
        lacks.as_bytes(),
        &command,
        cause.as_bytes(),
    ];
    table.add(&numbers, &texts)?;
    table.finish()?;

    let mut table = TableWriter::create(tables, named("user"), number)?;
    let seen: BTreeSet<u32> = known
        .processes
        .programs()
        .iter()
        .map(|program| program.user)
        .filter(|&user| user != u32::MAX)
        .collect();
    for user in seen {
        let name = head.users.iter().find(|(number, _)| *number == user);
        let name = name.map_or_else(|| user.to_string(), |(_, name)| name.clone());
        table.add(&[user.into(), machine], &[name.as_bytes()])?;
    }
    table.finish()?;

    let mut table = TableWriter::create(tables, named("process"), number)?;
    for (at, program) in known.processes.programs().iter().enumerate() {
        let id = |other: ProgramId| base.programs + i64::from(other.0);
        let began_ns = program.began_ns.unwrap_or(program.seen_ns);
        let lifetime = match (program.began_ns, program.ended_ns) {
            (Some(began), Some(ended)) => large(ended.saturating_sub(began)),
            _ => -1,
        };
        let numbers = [
            base.programs + signed(at),
            machine,
            program.process.into(),
            program.parent.map_or(-1, id),
            if program.user == u32::MAX { -1 } else { program.user.into() },
            program.executable.map_or(-1, |file| base.files + i64::from(file.0)),
            large(known.wall_ns(began_ns)),
            lifetime,
        ];
        table.add(&numbers, &[&program.name])?;
    }
    table.finish()?;

    let mut table = TableWriter::create(tables, named("file"), number)?;
    for (at, file) in known.files.files().iter().enumerate() {
        let id = FileId(u32::try_from(at).expect("its own number"));
        let identity = file.identity.unwrap_or_default();
        let numbers = [
            base.files + signed(at),
            machine,
            type_id(known.files.file_type(id)),
            identity.inode.cast_signed(),
            identity.device.into(),
            file.mode.into(),
        ];
        table.add(&numbers, &[&file.path, known.files.system(id).as_bytes()])?;
    }
    table.finish()
}

/// A second since 1970, taken apart: itself, second, minute, hour, weekday from 1 for Monday, day, month, year. In universal time, for
/// machines may stand anywhere.
pub fn calendar(second: i64) -> [i64; 8] {
    const DAY: i64 = 86_400;
    let (days, in_day) = (second.div_euclid(DAY), second.rem_euclid(DAY));
    // Years that begin in March, in eras of 400 of them: then the day that some years have more is the last of a year.
    let from_march = days + 719_468;
    let (era, in_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
    let year_in_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_in_era + year_in_era / 4 - year_in_era / 100);
    let month_from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_in_era + era * 400 + i64::from(month <= 2);
    // The first day of 1970 was a Thursday; Monday is 1.
    let weekday = (days + 3).rem_euclid(7) + 1;
    [second, in_day % 60, in_day / 60 % 60, in_day / 3600, weekday, day, month, year]
}

/// The tables that all recordings share.
pub(super) fn write_shared(tables: &Path) -> Result<(), StoreError> {
    let mut table = TableWriter::create(tables, named("operation"), 0)?;
    for operation in Operation::ALL {
        table.add(
            &[(operation as u8).into()],
            &[operation.name().as_bytes(), operation.class().name().as_bytes()],
        )?;
    }
    table.finish()?;
    let mut table = TableWriter::create(tables, named("file_type"), 0)?;
    for (number, kind) in FileType::all().iter().enumerate() {
        table.add(&[signed(number)], &[kind.kind.as_bytes(), kind.category.as_bytes()])?;
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_taken_apart() {
        assert_eq!(calendar(0), [0, 0, 0, 0, 4, 1, 1, 1970]);
        // date -u -d @951868799: Tue Feb 29 23:59:59 2000
        assert_eq!(calendar(951_868_799), [951_868_799, 59, 59, 23, 2, 29, 2, 2000]);
        assert_eq!(calendar(-1), [-1, 59, 59, 23, 3, 31, 12, 1969]);
    }
}
