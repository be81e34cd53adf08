//! Moves memory between machines: asks their monitors how they are, decides, and tells them.
//!
//! Each monitor has one, and one of them does it: the others wait until that one has ended, and begin with nothing but what there is. A monitor does what it is told within what its machine was
//! made with, and refuses the rest.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use comb_vm::control::{Answer, Ask, Line, Machines, Shown, State};
use comb_vm::names::Name;
use rustix::fs::{FlockOperation, flock};

use crate::looking::host_memory;
use crate::moving::{MachineState, MemoryPicture, share};

/// Guests are asked as often by their monitors.
const BETWEEN_TURNS: Duration = Duration::from_millis(100);

/// Who has not answered by then is not waited for.
const ANSWER_LIMIT: Duration = Duration::from_millis(100);

/// Parts of time are of so long a time at least.
const MEASURED_OVER: Duration = Duration::from_millis(500);

/// A machine that was told to have less, and has had the same for so long, does not give it.
const GIVES_WITHIN: Duration = Duration::from_secs(2);

/// This part of the host's memory stays for others.
const HOST_PART: u64 = 16;

/// Asks monitors, and tells them.
#[derive(Debug)]
pub struct Mover {
    machines: Machines,
    /// What all machines may have together; none: what the host can give.
    most_bytes: Option<u64>,
    seen: BTreeMap<Name, Seen>,
}

/// A machine that was seen.
#[derive(Debug)]
struct Seen {
    line: Line,
    /// So many answers are awaited that say how it is.
    awaited: u32,
    shown: Option<Shown>,
    /// What the guest's kernel does not count as memory, when nothing was on its way last.
    uncounted_bytes: u64,
    /// What it uses.
    used_bytes: u64,
    /// When what it had, or was to have, was last another amount.
    changed: Instant,
    /// What it was to have became less then; or what it had, while it was to have as much as before.
    is_less: bool,
    /// What its guest had counted, and when.
    counted: Option<(Instant, u64, u64)>,
    stalled_permille: u64,
    idle_permille: u64,
}

/// Does it for as long as this process runs, when nobody else does.
pub fn run(machines: Machines, most_bytes: Option<u64>) -> std::io::Result<()> {
    let directory = File::open(machines.directory())?;
    flock(&directory, FlockOperation::LockExclusive)?;
    let mut mover = Mover::new(machines, most_bytes);
    loop {
        std::thread::sleep(BETWEEN_TURNS);
        mover.turn();
    }
}

impl Mover {
    /// Of these machines.
    pub fn new(machines: Machines, most_bytes: Option<u64>) -> Self {
        Self { machines, most_bytes, seen: BTreeMap::new() }
    }

    /// Asks all, and tells those of whom something is decided.
    pub fn turn(&mut self) {
        self.ask();
        let picture = self.picture();
        for (name, bytes) in share(&picture) {
            let Some(seen) = name.parse().ok().and_then(|name: Name| self.seen.get_mut(&name)) else {
                continue;
            };
            // Whoever has gone is not there the next time.
            let _ = seen.line.say(&Ask::SetMemory { bytes });
        }
    }

    fn ask(&mut self) {
        let names = self.machines.names();
        self.seen.retain(|name, _| names.contains(name));
        for name in names {
            if !self.seen.contains_key(&name)
                && let Ok(line) = self.machines.reach(&name)
            {
                self.seen.insert(name, Seen::new(line));
            }
        }
        let until = Instant::now() + ANSWER_LIMIT;
        // One that does not answer is not asked more and more.
        self.seen.retain(|_, seen| seen.awaited > 0 || seen.ask());
        self.seen.retain(|_, seen| seen.hear(until));
    }

    fn picture(&self) -> MemoryPicture {
        let all = || self.seen.iter().filter_map(|(name, seen)| Some((name, seen, seen.shown.as_ref()?)));
        let held: u64 = all().map(|(_, _, shown)| shown.memory.bytes.max(shown.memory.wanted_bytes)).sum();
        let machines = all().filter_map(|(name, seen, shown)| seen.state(name, shown)).collect();
        let (host_bytes, free_bytes) = host_memory();
        let free = i128::from(free_bytes) - i128::from(host_bytes / HOST_PART);
        let promised: u64 = all().map(|(_, _, shown)| promised(shown)).sum();
        let within = self.most_bytes.map_or(i128::MAX, |most| i128::from(most) - i128::from(held));
        let bytes = |amount: i128| u64::try_from(amount).unwrap_or(0);
        MemoryPicture {
            machines,
            spare_bytes: bytes(within.min(free - i128::from(promised)).min(i128::from(u64::MAX))),
            short_bytes: bytes(-within.min(free)),
        }
    }
}

/// What a machine may take of the host's memory at any time: it has it, and has not touched it yet.
fn promised(shown: &Shown) -> u64 {
    let path = Path::new("/proc").join(shown.engine.to_string()).join("statm");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let resident = pages.saturating_mul(rustix::param::page_size() as u64);
    shown.memory.bytes.max(shown.memory.wanted_bytes).saturating_sub(resident)
}

impl Seen {
    fn new(line: Line) -> Self {
        Self {
            line,
            awaited: 0,
            shown: None,
            uncounted_bytes: 0,
            used_bytes: 0,
            changed: Instant::now(),
            is_less: false,
            counted: None,
            stalled_permille: 0,
            idle_permille: 0,
        }
    }

    /// Whether it can be asked.
    fn ask(&mut self) -> bool {
        self.awaited += 1;
        self.line.say(&Ask::Show).is_ok()
    }

    /// Takes what it answers until then. Whether it is there.
    fn hear(&mut self, until: Instant) -> bool {
        while self.awaited > 0 {
            let left = until.saturating_duration_since(Instant::now());
            match self.line.hear(Some(left.max(Duration::from_millis(1)))) {
                Ok(Some(Answer::Shown(shown))) => {
                    self.awaited -= 1;
                    self.take(*shown);
                }
                // What it was told it does, or not: what it has says so.
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn take(&mut self, shown: Shown) {
        let now = Instant::now();
        let before = self.shown.as_ref().filter(|before| before.engine == shown.engine);
        let had = before.map(|before| (before.memory.wanted_bytes, before.memory.bytes));
        let has = (shown.memory.wanted_bytes, shown.memory.bytes);
        if had != Some(has) {
            self.is_less = had.is_some_and(|had| has < had);
            self.changed = now;
        }
        if shown.memory.bytes == shown.memory.wanted_bytes && now > self.changed + MEASURED_OVER {
            self.uncounted_bytes = shown.memory.bytes.saturating_sub(shown.guest.total_bytes);
        }
        let used = shown.guest.total_bytes.saturating_sub(shown.guest.available_bytes);
        let used = used.saturating_add(self.uncounted_bytes);
        // A guest puts memory aside before its engine has it back, counts it as used until then, and says so a while later: as long as it gives, it uses no more than before.
        let gives = self.is_less && self.changed.elapsed() < GIVES_WITHIN;
        self.used_bytes = if gives { self.used_bytes.min(used) } else { used };
        let (stalled, idle) = (shown.guest.stalled_us, shown.guest.idle_ms.saturating_mul(1000));
        let (at, stalled_before, idle_before) = *self.counted.get_or_insert((now, stalled, idle));
        let span = now - at;
        if span >= MEASURED_OVER {
            let permille = |counted: u64| {
                let part = u128::from(counted).saturating_mul(1000) / span.as_micros().max(1);
                u64::try_from(part).unwrap_or(u64::MAX)
            };
            self.stalled_permille = permille(stalled.saturating_sub(stalled_before));
            let processors = u64::from(shown.hardware.processors.max(1));
            self.idle_permille = permille(idle.saturating_sub(idle_before)) / processors;
            self.counted = Some((now, stalled, idle));
        }
        self.shown = Some(shown);
    }

    /// The machine, if its memory comes and goes and its guest answers.
    fn state(&self, name: &Name, shown: &Shown) -> Option<MachineState> {
        if !shown.hardware.has_room() || shown.state != State::Up || shown.guest.total_bytes == 0 {
            return None;
        }
        Some(MachineState {
            name: name.to_string(),
            least_bytes: *shown.hardware.may_have().start(),
            most_bytes: *shown.hardware.may_have().end(),
            bytes: shown.memory.bytes,
            wanted_bytes: shown.memory.wanted_bytes,
            is_giving: self.changed.elapsed() < GIVES_WITHIN,
            available_bytes: shown.memory.bytes.saturating_sub(self.used_bytes),
            stalled_permille: self.stalled_permille,
            idle_permille: self.idle_permille,
        })
    }
}
