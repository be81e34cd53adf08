//! How soon memory goes from a machine that has plenty to one that is short of it, and what machines take that have nothing to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use comb_guest::wire::{Command, Ended};
use comb_policy::mover::Mover;
use comb_vm::control::{Answer, Ask, Machines, Shown, proportional_bytes};
use comb_vm::engine::Engine;
use comb_vm::hardware::Hardware;
use comb_vm::monitor::{Beginning, End, Order, Seat, Told, User, run};
use comb_vm::names::Name;
use comb_vm::subnets::Subnets;

use super::{LIMIT, Outcome, World, at_most, row};
use crate::net::median;
use crate::report::Row;

const MB: u64 = 1 << 20;

/// What a machine begins with, and the most that it may have.
const LEAST: u64 = 128 * MB;
const MOST: u64 = 640 * MB;

/// What the two have together: one begins with what the other does not need.
const ALL: u64 = LEAST + MOST;

/// What a program wants, a piece after the other.
const WANTED_MB: u64 = 300;

/// A program is given so much at once.
const STEP_MB: u64 = 4;

/// With less that its programs could have a guest is short of memory.
const SHORT: u64 = 32 * MB;

/// So much is to go from one to the other.
const MOVED: u64 = 200 * MB;

const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
const BETWEEN_TURNS: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;

/// Nobody: the machine runs outside of all cells.
struct Nobody;

impl User for Nobody {
    fn seat(&mut self, _replaced: u32) -> Result<Option<Seat>, String> {
        Ok(None)
    }

    fn tell(&mut self, _told: Told) {}
}

/// A machine with its monitor, which is a thread here.
struct Machine<'scope> {
    machines: &'scope Machines,
    name: Name,
    monitor: ScopedJoinHandle<'scope, Result<End, String>>,
}

impl<'scope> Machine<'scope> {
    fn begin(
        world: &'scope World,
        beginning: &Beginning,
        machines: &'scope Machines,
        name: &str,
        threads: &'scope Scope<'scope, '_>,
    ) -> Outcome<Self> {
        let name: Name = name.parse()?;
        let subnets = Subnets::at(world.place.0.join("nets"), std::env::current_exe()?);
        let order =
            Order::new(name.clone(), world.image.clone(), beginning.clone(), with_range(world), subnets);
        let monitor =
            threads.spawn(move || run(machines, &order, &mut Nobody).map_err(|error| error.to_string()));
        let machine = Self { machines, name, monitor };
        machine.wait_until(|shown| shown.begun_us.is_some() && shown.guest.total_bytes > 0)?;
        Ok(machine)
    }

    fn show(&self) -> Outcome<Shown> {
        Ok(self.machines.reach(&self.name)?.show()?)
    }

    fn wait_until(&self, is_so: impl Fn(&Shown) -> bool) -> Outcome<Shown> {
        let until = Instant::now() + LIMIT;
        loop {
            match self.show() {
                Ok(shown) if is_so(&shown) => return Ok(shown),
                _ if self.monitor.is_finished() || Instant::now() > until => {
                    return Err(format!("{} has not come to it", self.name).into());
                }
                _ => std::thread::sleep(BETWEEN_LOOKS),
            }
        }
    }

    fn set(&self, bytes: u64) -> Outcome<()> {
        self.machines.reach(&self.name)?.ask(&Ask::SetMemory { bytes })?;
        self.wait_until(|shown| shown.memory.bytes == bytes)?;
        Ok(())
    }

    fn within(&self, script: &str) -> Outcome<()> {
        within(self.machines, &self.name, script)
    }
}

/// Runs a line of a shell, until it is over.
fn within(machines: &Machines, name: &Name, script: &str) -> Outcome<()> {
    let arguments = ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
    let mut line = machines.reach(name)?;
    line.say(&Ask::Exec(Command { arguments, ..Command::default() }))?;
    line.say(&Ask::Input(Vec::new()))?;
    let mut said = Vec::new();
    loop {
        match line.hear(Some(LIMIT))? {
            Some(Answer::Output { bytes, .. }) => {
                line.say(&Ask::Taken(u32::try_from(bytes.len())?))?;
                said.extend(bytes);
            }
            Some(Answer::Ended(Ended::Exited(0))) => return Ok(()),
            Some(Answer::Taken(_)) => {}
            other => return Err(format!("{script}: {other:?}: {}", String::from_utf8_lossy(&said)).into()),
        }
    }
}

fn with_range(world: &World) -> Hardware {
    Hardware { memory_bytes: LEAST, most_bytes: MOST, ..world.hardware.clone() }
}

/// Files of a guest's memory, as a program's: written so much at a time, with a moment between.
fn takes(mb: u64) -> String {
    let step = format!("dd if=/dev/zero of=/dev/shm/kept-$at bs=1M count={STEP_MB} 2>/dev/null || exit 1");
    format!(
        "mount -o remount,size=2G /dev/shm; at=0; while [ $at -lt {mb} ]; do {step}; at=$((at + {STEP_MB})); sleep 0.02; done; rm /dev/shm/kept-*"
    )
}

/// What was measured in one round.
struct Moved {
    took_s: f64,
    /// What the host had given to the two together, at most, and to the first at the end.
    host_mb: f64,
    giver_mb: f64,
}

fn mb(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of megabytes")]
    let mb = bytes as f64 / f64::from(1 << 20);
    mb
}

fn round(world: &World, beginning: &Beginning, number: usize) -> Outcome<Moved> {
    let machines = Machines::at(world.place.0.join(format!("moving-{number}")));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let moved = moving(world, beginning, &machines, &is_over, threads);
        is_over.store(true, Ordering::Relaxed);
        // Their monitors are threads that are waited for.
        for name in machines.names() {
            let _ = machines.reach(&name).and_then(|mut line| line.ask(&Ask::Kill));
        }
        moved
    })
}

fn moving<'scope>(
    world: &'scope World,
    beginning: &Beginning,
    machines: &'scope Machines,
    is_over: &'scope AtomicBool,
    threads: &'scope Scope<'scope, '_>,
) -> Outcome<Moved> {
    let plenty = Machine::begin(world, beginning, machines, "plenty", threads)?;
    let short = Machine::begin(world, beginning, machines, "short", threads)?;
    // It has used all that it has, and does not any more.
    plenty.set(MOST)?;
    plenty.within(&takes(WANTED_MB))?;
    threads.spawn(|| {
        let mut mover = Mover::new(machines.clone(), Some(ALL));
        while !is_over.load(Ordering::Relaxed) {
            mover.turn();
            std::thread::sleep(BETWEEN_TURNS);
        }
    });
    let begun = short.show()?;
    let since = Instant::now();
    let name = short.name.clone();
    let program =
        threads.spawn(move || within(machines, &name, &takes(WANTED_MB)).map_err(|error| error.to_string()));
    let (mut host_mb, mut short_since, mut took_s) = (0.0_f64, None, None);
    while took_s.is_none() && since.elapsed() < LIMIT {
        let (gives, gets) = (plenty.show()?, short.show()?);
        let both = [&gives, &gets].map(|shown| proportional_bytes(shown.engine).unwrap_or(0));
        host_mb = host_mb.max(mb(both[0] + both[1]));
        if gets.guest.available_bytes < SHORT {
            short_since.get_or_insert_with(Instant::now);
        }
        let is_moved = gets.memory.bytes >= begun.memory.bytes + MOVED && gives.memory.went_bytes >= MOVED;
        took_s = is_moved.then(|| short_since.unwrap_or(since).elapsed().as_secs_f64());
        if program.is_finished() && took_s.is_none() {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    program.join().map_err(|_| "a program was not run")??;
    let giver_mb = mb(proportional_bytes(plenty.show()?.engine).unwrap_or(0));
    Ok(Moved { took_s: took_s.ok_or("memory does not move")?, host_mb, giver_mb })
}

/// What a process has used of processors' time.
fn used_s(engine: &Engine) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", engine.process()))?;
    let first = text.split_whitespace().next().ok_or("no time")?.parse::<f64>()?;
    let mut all = first / 1e9;
    for thread in std::fs::read_dir(format!("/proc/{}/task", engine.process()))? {
        let thread = thread?;
        if thread.file_name().to_str() == Some(&engine.process().to_string()) {
            continue;
        }
        let text = std::fs::read_to_string(thread.path().join("schedstat"))?;
        all += text.split_whitespace().next().ok_or("no time")?.parse::<f64>()? / 1e9;
    }
    Ok(all)
}

/// The part of a core that a guest takes which has nothing to do and is asked ten times a second how it is, as a monitor asks.
fn idle(world: &World, beginning: &comb_vm::template::Template) -> Outcome<f64> {
    use comb_guest::wire::{FromGuest, ToGuest};
    let mut engine = world.clone_of(beginning, "idle")?;
    let mut parts = Vec::new();
    for number in 1..=ROUNDS as u64 {
        let (since, before) = (Instant::now(), used_s(&engine)?);
        for at in 0..30 {
            engine.say(&ToGuest::Ping { number: number * 100 + at })?;
            while !matches!(engine.hear(Instant::now() + LIMIT)?, Some(FromGuest::Pong { .. }) | None) {}
            std::thread::sleep(Duration::from_millis(100));
        }
        parts.push((used_s(&engine)? - before) / since.elapsed().as_secs_f64());
    }
    Ok(median(&parts).unwrap_or(f64::NAN))
}

pub(super) fn rows(world: &World, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let template = world.template(say)?;
    say("a machine that has nothing to do");
    let idle = idle(world, &template)?;
    let template = comb_vm::template::Template::of(&world.image, &with_range(world), &mut |line| say(line))?;
    let beginning = Beginning::Template(template);
    let mut moved = Vec::new();
    for number in 1..=ROUNDS {
        say(&format!("memory moves, round {number} of {ROUNDS}"));
        moved.push(round(world, &beginning, number)?);
    }
    let of = |of: fn(&Moved) -> f64| median(&moved.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let claim =
        format!("from a guest being short until {} MB have come from a machine with plenty", MOVED / MB);
    let took = at_most(&claim, of(|moved| moved.took_s), "s", 3.0);
    let note = format!(
        "a program that takes {WANTED_MB} MB, {STEP_MB} at a time; each machine has {} to {} MB, the two {} MB together",
        LEAST / MB,
        MOST / MB,
        ALL / MB
    );
    let host = Row {
        note: format!(
            "at most, while it moved; for the giver alone at the end {:.0}",
            of(|moved| moved.giver_mb)
        ),
        ..row("… and the host has for the two", Some(of(|moved| moved.host_mb)), "MB")
    };
    let idle = at_most("what an idle machine takes of a core", idle, "", 0.05);
    Ok(vec![Row { note, ..took }, host, idle])
}
