//! What it costs to compute in a machine of each engine, beside the same programs on the host alone (Disco §5.2, §6.2: Figure 6, Tables 2 and 3). All of them have the one
//! processor that the measuring thread is bound to.

mod programs;

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::time::Duration;

use comb_guest::wire::{Become, Command as GuestCommand, Ended};
use comb_vm::attached::Devices;
use comb_vm::engine::Engine;
use comb_vm::hardware::{Accelerator, Backing, Hardware, Root, Under};
use comb_vm::image::{Image, Images, Recipe};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::programs::Programs;
use super::{LIMIT, Outcome, Place, agent, kernel, row};
use crate::net::median;
use crate::report::{Goal, Row};

const MEMORY_BYTES: u64 = 512 << 20;

/// On a host that is busy, by a translator.
const RUN_LIMIT: Duration = Duration::from_secs(1200);

/// What Disco's four uniprocessor workloads are here (Table 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Workload {
    /// Eight files compiled, two at a time, and linked.
    Pmake,
    /// Two simulations side by side, of a gas and of water.
    Engineering,
    /// An image of balls.
    Raytrace,
    /// A database in memory that is asked what decision support asks.
    Database,
}

impl Workload {
    pub(crate) const ALL: [Self; 4] = [Self::Pmake, Self::Engineering, Self::Raytrace, Self::Database];
}

/// Where something is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Way {
    /// On the host itself.
    Host,
    /// In a machine, whose processor the host's kernel runs.
    Kvm,
    /// … user-mode Linux.
    Uml,
    /// … QEMU translates.
    Tcg,
}

impl Way {
    pub(crate) const ENGINES: [Self; 3] = [Self::Kvm, Self::Uml, Self::Tcg];

    fn accelerator(self) -> Option<Accelerator> {
        match self {
            Self::Host => None,
            Self::Kvm => Some(Accelerator::Kvm),
            Self::Uml => Some(Accelerator::Uml),
            Self::Tcg => Some(Accelerator::Tcg),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.accelerator().map_or("the host", Accelerator::as_str))
    }
}

/// How long something took, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Times {
    pub(crate) all: f64,
    pub(crate) user: f64,
    pub(crate) system: f64,
    /// Of the host's processors: what else the host does adds to all others, and not to this.
    pub(crate) taken: f64,
}

impl Times {
    /// When a processor waited: what is left.
    pub(crate) fn idle(&self) -> f64 {
        (self.all - self.user - self.system).max(0.0)
    }

    /// Of what `busybox time` says last.
    fn read(said: &str) -> Option<Self> {
        let line = said.lines().rev().find_map(|line| line.strip_prefix("took "))?;
        let mut words = line.split_whitespace().map(|word| word.parse::<f64>().ok());
        let [all, user, system] = [words.next()??, words.next()??, words.next()??];
        Some(Self { all, user, system, taken: user + system })
    }
}

/// What was found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Of all rounds.
    pub(crate) times: BTreeMap<(Workload, Way), Vec<Times>>,
    /// Of a service, in microseconds.
    pub(crate) services: BTreeMap<(String, Way), f64>,
    /// Why an engine is missing.
    pub(crate) missing: BTreeMap<Way, String>,
}

impl Measured {
    /// Of what is one number of each round.
    pub(crate) fn median(&self, workload: Workload, way: Way, of: impl Fn(&Times) -> f64) -> Option<f64> {
        median(&self.times.get(&(workload, way))?.iter().map(of).collect::<Vec<_>>())
    }

    /// That by the host's of the same round, of which the median.
    pub(crate) fn by_host(&self, workload: Workload, way: Way, of: impl Fn(&Times) -> f64) -> Option<f64> {
        let (host, ours) = (self.times.get(&(workload, Way::Host))?, self.times.get(&(workload, way))?);
        let ratios: Vec<f64> = host.iter().zip(ours).map(|(host, ours)| of(ours) / of(host)).collect();
        median(&ratios).filter(|ratio| ratio.is_finite())
    }

    /// A service's time by the host's.
    pub(crate) fn slowdown(&self, service: &str, way: Way) -> Option<f64> {
        let of = |way| self.services.get(&(service.to_owned(), way));
        Some(of(way)? / of(Way::Host)?)
    }
}

/// The calling thread, and all that it starts, has one processor for as long as this lives.
struct Bound(CpuSet);

impl Bound {
    fn to_one() -> Outcome<Self> {
        let before = sched_getaffinity(None)?;
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).ok_or("there is no processor")?;
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one)?;
        Ok(Self(before))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Runs workloads on the host and in machines of each engine that works here, by turns, and services if they are wanted.
pub(crate) fn measure(
    workloads: &[Workload],
    with_services: bool,
    rounds: usize,
    say: &dyn Fn(&str),
) -> Outcome<Measured> {
    let place = Place::new("engines");
    let tree = place.0.join("with");
    say("gathering a compiler");
    let programs = Programs::gather(&tree)?;
    let recipe =
        Recipe { agent: agent()?, with: Some(tree), kernel: kernel(), room_mb: 64, ..Recipe::default() };
    let image = Images::at(place.0.join("images")).build(&"engines".parse()?, &recipe, say)?;
    let mut measured = Measured::default();
    let _bound = Bound::to_one()?;
    let mut places = vec![(Way::Host, None)];
    for way in Way::ENGINES {
        say(&format!("a machine of {way} begins"));
        match begin(way, &image) {
            Ok(engine) => places.push((way, Some(engine))),
            Err(error) => drop(measured.missing.insert(way, error.to_string())),
        }
    }
    // In the first round what is run comes into memory.
    for round in 0..=rounds {
        for &workload in workloads {
            let Some(script) = programs.script(workload) else { continue };
            for (way, engine) in &mut places {
                say(&format!("{workload:?} on {way}, round {round} of {rounds}"));
                let before = engine.as_ref().map(|engine| taken_s(engine.process()));
                let said = run(engine.as_mut(), &programs, &["sh", "-c", &script])?;
                let mut times = Times::read(&said).ok_or_else(|| format!("{workload:?} on {way}: {said}"))?;
                if let (Some(engine), Some(before)) = (engine, before) {
                    times.taken = taken_s(engine.process()) - before;
                }
                if round > 0 {
                    measured.times.entry((workload, *way)).or_default().push(times);
                }
            }
        }
    }
    for (way, engine) in places.iter_mut().filter(|_| with_services) {
        say(&format!("services of a kernel on {way}"));
        let said = run(engine.as_mut(), &programs, &["sh", "-c", "./services"])?;
        for line in said.lines() {
            let took = line.split_once(' ').and_then(|(name, took)| Some((name, took.parse::<f64>().ok()?)));
            if let Some((name, took)) = took {
                measured.services.insert((name.to_owned(), *way), took);
            }
        }
    }
    Ok(measured)
}

/// How long processors have worked for a process and all that it has started, in seconds.
fn taken_s(process: u32) -> f64 {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/{process}/{what}")).unwrap_or_default();
    let stat = read("stat");
    // Behind its name, which may be anything: its own and those of what has ended, by user and by kernel.
    let words = stat.rsplit_once(')').map_or("", |parts| parts.1).split_whitespace();
    let ticks: u64 = words.skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum();
    let others = read(&format!("task/{process}/children"));
    let others = others.split_whitespace().filter_map(|word| word.parse().ok()).map(taken_s);
    #[expect(clippy::cast_precision_loss, reason = "a number of ticks")]
    let own = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    own + others.sum::<f64>()
}

fn begin(way: Way, image: &Image) -> Outcome<Engine> {
    let accelerator = way.accelerator().ok_or("the host has no engine")?;
    if accelerator == Accelerator::Kvm && Accelerator::of_host() != Accelerator::Kvm {
        return Err("this host has no KVM".into());
    }
    let hardware = Hardware { memory_bytes: MEMORY_BYTES, accelerator, ..Hardware::default() };
    let root = Root::Memory(image.directory.join("root"));
    let backing = Backing { ram: None, root, under: Under::Private, devices: Devices::default() };
    let mut engine = Engine::start(&hardware, image, &backing, false, None)?;
    engine.become_who(Become { name: way.to_string(), ..Become::default() }, LIMIT)?;
    Ok(engine)
}

/// What an applet of busybox's says in the folder of programs, and how long it took.
fn run(engine: Option<&mut Engine>, programs: &Programs, words: &[&str]) -> Outcome<String> {
    let all = [&["busybox", "time", "-f", "took %e %U %S", "busybox"], words].concat();
    let Some(engine) = engine else {
        let output = Command::new(all[0]).args(&all[1..]).current_dir(programs.of_host()).output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        return if output.status.success() { Ok(said) } else { Err(format!("{words:?}: {said}").into()) };
    };
    let arguments = all.iter().map(|word| word.as_bytes().to_vec()).collect();
    let directory = Programs::of_guest().as_os_str().as_encoded_bytes().to_vec();
    let (said, how) =
        engine.run(GuestCommand { arguments, directory, ..GuestCommand::default() }, RUN_LIMIT)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    if how == Ended::Exited(0) { Ok(said) } else { Err(format!("{words:?}: {how:?}: {said}").into()) }
}

/// A compile in a machine of each engine, by the same on the host: how much of the host's processors it takes.
pub(super) fn rows(rounds: usize, say: &dyn Fn(&str)) -> Vec<Row> {
    let measured = measure(&[Workload::Pmake], false, rounds, say);
    let claim = |way| format!("a compile in a machine of {way}, processor time by the same on the host");
    let made = |way: Way| match &measured {
        Err(error) => Row { note: error.to_string(), ..row(&claim(way), None, "s") },
        Ok(measured) => {
            let of = |way| measured.median(Workload::Pmake, way, |times| times.taken);
            let goal = if way == Way::Uml { Goal::AtMost(1.6) } else { Goal::None };
            let missing = measured.missing.get(&way).map(|why| format!("pending: {why}"));
            let slower = measured.by_host(Workload::Pmake, way, |times| times.all);
            Row {
                peer: "the host".into(),
                theirs: of(Way::Host),
                ratio: measured.by_host(Workload::Pmake, way, |times| times.taken),
                goal: if missing.is_some() { Goal::None } else { goal },
                note: missing.or(slower.map(|times| format!("{times:.2} × as long"))).unwrap_or_default(),
                ..row(&claim(way), of(way), "s")
            }
        }
    };
    Way::ENGINES.into_iter().map(made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_takes_is_with_what_it_has_started() {
        let own = std::process::id();
        let before = taken_s(own);
        let spins = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let mut child = Command::new("sh").args(["-c", &format!("({spins}); exit")]).spawn().unwrap();
        child.wait().unwrap();
        assert!(taken_s(own) > before, "{before}");
    }

    #[test]
    fn times_are_what_was_said_last_and_ratios_are_of_one_round() {
        let times = Times::read("took 9 9 9\nwarning\ntook 2.50 1.25 0.75\n").unwrap();
        assert_eq!((times, times.idle()), (Times { all: 2.5, user: 1.25, system: 0.75, taken: 2.0 }, 0.5));
        assert_eq!(Times::read("took 2.50 1.25\n"), None);
        let of = |all: &[f64]| all.iter().map(|&all| Times { all, ..Times::default() }).collect::<Vec<_>>();
        let mut measured = Measured::default();
        measured.times.insert((Workload::Pmake, Way::Host), of(&[1.0, 4.0, 2.0]));
        measured.times.insert((Workload::Pmake, Way::Uml), of(&[2.0, 6.0, 20.0]));
        let all = |times: &Times| times.all;
        assert_eq!(measured.by_host(Workload::Pmake, Way::Uml, all), Some(2.0));
        assert_eq!(measured.by_host(Workload::Pmake, Way::Tcg, all), None);
        assert_eq!(
            measured.by_host(Workload::Pmake, Way::Uml, |times| times.user),
            None,
            "nothing by nothing"
        );
    }
}
