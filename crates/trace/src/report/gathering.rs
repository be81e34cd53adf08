//! One pass over each table of facts: `operations.rs` sees the one, `sessions.rs` the other.

mod operations;
mod sessions;

use std::collections::BTreeMap;
use std::path::Path;

use foldhash::HashMap;

use super::groups::{By, Gathering};
use super::samples::Samples;
use super::{About, Group, Machine, Suspension};
use crate::Operation;
use crate::file_type::FileType;
use crate::lifetimes::{Lifetime, Lifetimes};
use crate::statistics::histogram::LogHistogram;
use crate::store::{StoreError, TableReader, named};

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
    /// New files that are no more.
    pub(super) ended: Vec<Lifetime>,
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
    /// Of a drill-down by user: its number, by machine and user.
    users: HashMap<(i64, i64), i64>,
}

/// How often the same file is opened again. (Thesis §9.8.1)
#[derive(Default)]
pub(super) struct Reuse {
    /// By file: how often it was opened for reading, writing, both.
    pub(super) opens: HashMap<i64, [u32; 3]>,
}

/// What operations and sessions have in common, and what a drill-down may go by.
#[derive(Clone, Copy)]
struct Common {
    machine: i64,
    start_ns: i64,
    operation: i64,
    /// The number of the program's name.
    program: i64,
    user: i64,
    kind: i64,
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
        gathered.read_users(tables)?;
        let remote = remote_files(tables)?;
        gathered.read_trace(tables, &programs)?;
        gathered.read_instances(tables, &programs, &remote)?;
        let per_second: Vec<u64> = gathered.seconds.values().copied().collect();
        per_second.into_iter().for_each(|operations| gathered.samples.operations_per_second.add(operations));
        Ok(gathered)
    }

    fn read_machines(&mut self, tables: &Path) -> Result<(), StoreError> {
        let numbers = ["lost", "clock_step_ns", "suspended_ns", "undelivered"];
        let texts = ["machine", "kernel", "mechanism", "lacks", "command", "suspension"];
        let wanted = [&numbers[..], &texts].concat();
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
                    suspension: (numbers[2][row] >= 0).then(|| Suspension {
                        #[expect(clippy::cast_precision_loss, reason = "for people")]
                        seconds: numbers[2][row] as f64 / 1e9,
                        cause: texts[5][row].clone(),
                        undelivered: unsigned(numbers[3][row]),
                    }),
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

    /// The numbers of users, for the same number is somebody else on another machine.
    fn read_users(&mut self, tables: &Path) -> Result<(), StoreError> {
        if self.by != Some(By::User) {
            return Ok(());
        }
        let (users, names, machines) = (&mut self.users, &mut self.names, &self.about.machines);
        let wanted = ["user_id", "machine_id", "user"];
        TableReader::open(tables, named("user"))?.read(&wanted, &mut |numbers, texts| {
            for ((&user, &machine), name) in numbers[0].iter().zip(&numbers[1]).zip(&texts[0]) {
                let number = i64::try_from(users.len()).unwrap_or(i64::MAX);
                users.insert((machine, user), number);
                let place = usize::try_from(machine).ok().and_then(|place| machines.get(place));
                let name = match place {
                    Some(place) if machines.len() > 1 => format!("{name} on {}", place.name),
                    _ => name.clone(),
                };
                names.insert(number, name);
            }
        })
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

    fn key(&self, of: Common) -> Option<i64> {
        Some(match self.by? {
            By::Category => first_of_category(of.kind),
            By::Type => of.kind,
            By::Process => of.program,
            By::User => self.users.get(&(of.machine, of.user)).copied().unwrap_or(-1),
            By::Machine => of.machine,
            By::Hour => of.start_ns.div_euclid(3_600_000_000_000),
            By::Operation => of.operation,
        })
    }

    /// The groups, the busiest first.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> =
            self.groups.iter().map(|(&key, gathering)| gathering.group(self.name_of(key))).collect();
        groups.sort_by(|one, other| other.operations.cmp(&one.operations).then(one.name.cmp(&other.name)));
        groups
    }
}

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
