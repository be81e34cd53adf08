//! `comb bench cc`: programs compiled for many cells, beside the same source compiled by clang alone.

pub(crate) mod figure_1;
pub(crate) mod programs;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use self::programs::{ALL, BLIZZARDS, Compiler, Ran, Way, Workshop};
use crate::memory;
use crate::net::median;
use crate::report::{print, shows_progress};
use crate::two_hosts::{TwoHosts, shell_command};

const ROUNDS: usize = 3;
const FULL_ROUNDS: usize = 7;

const NOTES: &str = "\
Each program tells what its parallel part took; compilers take turns, and the least of the rounds counts. Hits: one process, one thread, nothing is ever missed.
Import: two components of this host, which share page frames, with a thread each, beside two threads of one process. Copy: each component has copies of its own, as
on two hosts; blocks are 1 KB by check and 4 KB by page. What did not end within a minute is counted as a minute (32 components: five). 32 components on this machine's cores show that
the result is right, not how fast it is. Two hosts are network namespaces with a cable, bound to a core each, and the input is `large`; the ratio is one host's time by
theirs, and what they had not finished within 30 s was ended. Compile time is that of all ten programs, linked.";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Single loads, stores and misses.
    Accesses,
    /// Programs of one thread in one process.
    Hits,
    /// Programs on components that share page frames.
    Import,
    /// Programs on components with copies.
    Copies,
    /// Programs on two hosts beside one.
    Hosts,
    /// Programs on 32 components.
    Many,
    /// Compilers.
    Compiling,
}

const PARTS: [Part; 7] =
    [Part::Accesses, Part::Hits, Part::Import, Part::Copies, Part::Hosts, Part::Many, Part::Compiling];

/// Runs the benchmark, or one part of it, and prints its table.
pub fn run(only: Option<Part>, full: bool, json: bool) -> Outcome<()> {
    let measured = measure(only, full, shows_progress(json))?;
    print(&measured.rows(only), json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
}

/// What is measured of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum What {
    /// One process, one thread.
    Hits,
    /// One process, two threads.
    Threads,
    /// Two components that share page frames.
    Import,
    /// Two components with copies, the larger input that is worth it, if not the small one.
    Copy,
    /// On one host with one core.
    OneHost,
    /// On two of them.
    TwoHosts,
    /// Thirty-two components with copies; judged, not timed.
    Many,
}

/// What was measured, by what, program and compiler.
#[derive(Default)]
pub(crate) struct Measured {
    ran: BTreeMap<(What, &'static str, Compiler), Vec<Ran>>,
    compiled: BTreeMap<Compiler, Vec<Duration>>,
    /// Of single accesses, in nanoseconds.
    primitives: BTreeMap<(Compiler, String), f64>,
    /// What could not be measured, and why.
    missing: BTreeMap<String, String>,
}

/// The size at which programs are compared with plain clang's.
const HITS_SIZE: &str = "medium";
/// The size at which they are compared on two hosts: with the most to compute for each byte that is sent.
const HOSTS_SIZE: &str = "large";
/// What takes so much longer than on one host has lost, however long it takes.
const HOSTS_LIMIT_S: u32 = 30;
/// Sixteen components a core wait for each other's core now and then for half a minute: whether they are right is all that is asked.
const MANY_LIMIT_S: u32 = 300;

/// What programs on two hosts are compiled by. One more would take five minutes more.
const HOSTS_COMPILERS: [Compiler; 2] = [Compiler::Check, Compiler::Page];

/// What programs on components with copies are compiled by.
const COPIES: [Compiler; 5] =
    [Compiler::Check, Compiler::Fine, Compiler::Hybrid, Compiler::Mmu, Compiler::Page];

/// The size for two components with copies: the papers' input, but of ocean, which takes a minute by that alone.
pub(crate) fn copy_size(name: &str) -> &'static str {
    if name == "ocean" { "medium" } else { "paper" }
}

pub(crate) fn measure(only: Option<Part>, full: bool, talks: bool) -> Outcome<Measured> {
    let wants = |part: Part| only.is_none_or(|only| only == part);
    let shop = Workshop::open()?;
    let mut measured = Measured::default();
    let rounds = if full { FULL_ROUNDS } else { ROUNDS };
    let say = |text: &str| {
        if talks {
            eprint!("\r{text:60}");
        }
    };
    let compilers =
        [Compiler::Plain, Compiler::Check, Compiler::Fine, Compiler::Hybrid, Compiler::Mmu, Compiler::Page];
    for round in 1..=if wants(Part::Compiling) { rounds } else { 1 } {
        for compiler in compilers {
            // The others only have to be there.
            if round == 1 || matches!(compiler, Compiler::Plain | Compiler::Check) {
                say(&format!("compiling by {compiler}"));
                let took = shop.build(compiler)?;
                measured.compiled.entry(compiler).or_default().push(took);
            }
        }
    }
    if wants(Part::Accesses) {
        say("single loads and stores");
        measured.primitives(&shop);
    }
    for round in 1..=rounds {
        for name in ALL {
            say(&format!("round {round} of {rounds}: {name}"));
            if wants(Part::Hits) {
                measured.hit(&shop, name);
            }
            if wants(Part::Import) {
                measured.import_by_two(&shop, name);
            }
        }
    }
    if wants(Part::Copies) {
        measured.on_copies(&shop, ROUNDS, &say);
    }
    if wants(Part::Hosts) {
        measured.on_two_hosts(&shop, &say);
    }
    if wants(Part::Many) {
        measured.on_many(&shop, &say);
    }
    say("");
    if talks {
        eprint!("\r");
    }
    Ok(measured)
}

impl Measured {
    fn take(&mut self, shop: &Workshop, what: What, name: &'static str, compiler: Compiler, way: &Way) {
        let key = (what, name, compiler);
        // What has not ended once will not the next time.
        if matches!(self.ran.get(&key).and_then(|ran| ran.last()), Some(Ran::Unfinished(_))) {
            return;
        }
        match way.run(&shop.program(compiler, name)) {
            Ok(ran) => self.ran.entry(key).or_default().push(ran),
            Err(reason) => _ = self.missing.insert(format!("{what:?} {name} {compiler}"), reason),
        }
    }

    fn primitives(&mut self, shop: &Workshop) {
        let lookups = [Compiler::Plain, Compiler::Check, Compiler::Hybrid];
        // By mmu an array is in pages, too.
        let misses = [
            (Compiler::Fine, "128"),
            (Compiler::Check, "1024"),
            (Compiler::Hybrid, "4096"),
            (Compiler::Page, "4096"),
        ];
        let lookups = lookups.map(|compiler| (compiler, "lookup", vec![], ""));
        let launcher = || vec!["-n", "2", "--share", "copy", "--bind"];
        let misses = misses.map(|(compiler, bytes)| (compiler, "misses", launcher(), bytes));
        for (compiler, name, launcher, argument) in lookups.into_iter().chain(misses) {
            match shop.primitive(compiler, name, &launcher, argument) {
                Ok(numbers) => {
                    let named = numbers.into_iter().map(|(number, value)| ((compiler, number), value));
                    self.primitives.extend(named);
                }
                Err(reason) => _ = self.missing.insert(format!("{name} {compiler}"), reason),
            }
        }
        match memory::checked() {
            Ok(numbers) => {
                let named = numbers.into_iter().map(|(name, value)| ((Compiler::Check, name), value));
                self.primitives.extend(named);
            }
            Err(reason) => _ = self.missing.insert("checked".to_owned(), reason.to_string()),
        }
    }

    fn hit(&mut self, shop: &Workshop, name: &'static str) {
        for compiler in [Compiler::Plain, Compiler::Check, Compiler::Hybrid] {
            self.take(shop, What::Hits, name, compiler, &Way::alone(1, HITS_SIZE));
        }
    }

    fn import_by_two(&mut self, shop: &Workshop, name: &'static str) {
        self.take(shop, What::Threads, name, Compiler::Plain, &Way::alone(2, HITS_SIZE));
        self.take(shop, What::Import, name, Compiler::Page, &Way::task(2, 2, HITS_SIZE, &["--bind"]));
    }

    fn on_copies(&mut self, shop: &Workshop, rounds: usize, say: &dyn Fn(&str)) {
        for round in 1..=rounds {
            for name in ALL {
                for compiler in COPIES {
                    say(&format!("copies, round {round}: {name} by {compiler}"));
                    let way = Way::task(2, 2, copy_size(name), &["--share", "copy", "--bind"]);
                    self.take(shop, What::Copy, name, compiler, &way);
                }
            }
        }
    }

    fn on_many(&mut self, shop: &Workshop, say: &dyn Fn(&str)) {
        for name in ALL {
            say(&format!("32 components: {name}"));
            let mut way = Way::task(32, 32, "small", &["--share", "copy"]);
            way.checks = true;
            way.limit_s = MANY_LIMIT_S;
            self.take(shop, What::Many, name, Compiler::Check, &way);
        }
    }

    /// Of a single access, in nanoseconds: `load`, `store`, `read`, `upgrade`, and what they stand on, `found`, `fence`.
    pub(crate) fn primitive(&self, compiler: Compiler, name: &str) -> Option<f64> {
        self.primitives.get(&(compiler, name.to_owned())).copied()
    }

    /// What a lookup adds to an access, in nanoseconds.
    pub(crate) fn lookup(&self, compiler: Compiler, access: &str) -> Option<f64> {
        Some(self.primitive(compiler, access)? - self.primitive(Compiler::Plain, access)?)
    }

    /// Namespaces bound to one core each.
    fn on_two_hosts(&mut self, shop: &Workshop, say: &dyn Fn(&str)) {
        let hosts = match TwoHosts::begin() {
            Ok(hosts) => hosts,
            Err(reason) => {
                self.missing.insert("two hosts".to_owned(), reason);
                return;
            }
        };
        let script = shop.scratch().join("on-one-core.sh");
        if let Err(error) = std::fs::write(&script, hosts.shell_with_a_core_each()) {
            self.missing.insert("two hosts".to_owned(), error.to_string());
            return;
        }
        let shell = shell_command(&script);
        for name in ALL {
            for compiler in HOSTS_COMPILERS {
                say(&format!("two hosts: {name} by {compiler}"));
                for (what, count) in [(What::OneHost, 1), (What::TwoHosts, 2)] {
                    let names = hosts.names(count).join(",");
                    let threads = u32::try_from(count).unwrap_or(1);
                    let options = ["--hosts", &names, "--shell", &shell];
                    let mut way = Way::task(threads, threads, HOSTS_SIZE, &options);
                    if what == What::TwoHosts {
                        way.limit_s = HOSTS_LIMIT_S;
                    }
                    self.take(shop, what, name, compiler, &way);
                }
            }
        }
    }

    /// The least that it took.
    pub(crate) fn least(&self, what: What, name: &'static str, compiler: Compiler) -> Option<Ran> {
        let ran = self.ran.get(&(what, name, compiler))?;
        ran.iter().copied().min_by(|one, other| one.at_least().total_cmp(&other.at_least()))
    }

    fn seconds(&self, what: What, name: &'static str, compiler: Compiler) -> Option<f64> {
        match self.least(what, name, compiler)? {
            Ran::Seconds(seconds) => Some(seconds),
            Ran::Unfinished(_) => None,
        }
    }

    /// How long one takes by the other, each at its best.
    fn by(
        &self,
        name: &'static str,
        (what, compiler): (What, Compiler),
        (other, others): (What, Compiler),
    ) -> Option<f64> {
        Some(self.seconds(what, name, compiler)? / self.seconds(other, name, others)?)
    }

    fn compile_seconds(&self, compiler: Compiler) -> Option<f64> {
        let all: Vec<f64> = self.compiled.get(&compiler)?.iter().map(Duration::as_secs_f64).collect();
        median(&all)
    }

    /// Why a row has no number.
    fn why_not(&self, what: What, name: &str, compiler: Compiler) -> String {
        self.missing.get(&format!("{what:?} {name} {compiler}")).cloned().unwrap_or_default()
    }
}

/// Their geometric mean; none of none.
fn mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

/// Whether it is one of those that Blizzard's Table 4 compares by page and by check, and a goal is set for.
fn has_a_goal(name: &str) -> bool {
    BLIZZARDS.contains(&name) && name != "water"
}
