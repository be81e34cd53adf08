//! `comb bench cc`: programs compiled for many cells, beside the same source compiled by clang alone.

pub(crate) mod figure_1;
pub(crate) mod programs;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use self::programs::{ALL, BLIZZARDS, Compiler, Ran, Way, Workshop};
use crate::memory;
use crate::net::median;
use crate::report::print;
use crate::two_hosts::TwoHosts;

const ROUNDS: usize = 3;
const FULL_ROUNDS: usize = 7;

const NOTES: &str = "\
Each program tells what its parallel part took; compilers take turns, and the least of the rounds counts. Hits: one process, one thread, nothing is ever missed.
Import: two components of this host, which share page frames, with a thread each, beside two threads of one process. Copy: each component has copies of its own, as
on two hosts; blocks are 128 B by check and 4 KB by page. What did not end within a minute is counted as a minute. 32 components on this machine's cores show that
the result is right, not how fast it is. Two hosts are network namespaces with a cable, bound to a core each. Compile time is that of all ten programs, linked.";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Runs the benchmark and prints its table.
pub fn run(full: bool, json: bool) -> Outcome<()> {
    let measured = measure(full, !json)?;
    print(&measured.rows(), json);
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

/// The size at which programs are compared on two hosts: the one at which the second core pays for what is sent.
const HOSTS_SIZE: &str = "medium";

/// The size for two components with copies: the papers' input, but of ocean, which takes a minute by that alone.
pub(crate) fn copy_size(name: &str) -> &'static str {
    if name == "ocean" { "medium" } else { "paper" }
}

pub(crate) fn measure(full: bool, talks: bool) -> Outcome<Measured> {
    let shop = Workshop::open()?;
    let mut measured = Measured::default();
    let rounds = if full { FULL_ROUNDS } else { ROUNDS };
    let say = |text: &str| {
        if talks {
            eprint!("\r{text:60}");
        }
    };
    let compilers = [Compiler::Plain, Compiler::Check, Compiler::Hybrid, Compiler::Mmu, Compiler::Page];
    for round in 1..=rounds {
        for compiler in compilers {
            // The others only have to be there.
            if round == 1 || matches!(compiler, Compiler::Plain | Compiler::Check) {
                say(&format!("compiling by {compiler}"));
                let took = shop.build(compiler)?;
                measured.compiled.entry(compiler).or_default().push(took);
            }
        }
    }
    say("single loads and stores");
    measured.primitives(&shop);
    for round in 1..=rounds {
        for name in ALL {
            say(&format!("round {round} of {rounds}: {name}"));
            for compiler in [Compiler::Plain, Compiler::Check, Compiler::Hybrid] {
                measured.take(&shop, What::Hits, name, compiler, &Way::alone(1, HOSTS_SIZE));
            }
            measured.take(&shop, What::Threads, name, Compiler::Plain, &Way::alone(2, HOSTS_SIZE));
            measured.take(
                &shop,
                What::Import,
                name,
                Compiler::Page,
                &Way::task(2, 2, HOSTS_SIZE, &["--bind"]),
            );
        }
    }
    for round in 1..=if full { ROUNDS } else { 1 } {
        for name in ALL {
            for compiler in [Compiler::Check, Compiler::Hybrid, Compiler::Mmu, Compiler::Page] {
                say(&format!("copies, round {round}: {name} by {compiler}"));
                let way = Way::task(2, 2, copy_size(name), &["--share", "copy", "--bind"]);
                measured.take(&shop, What::Copy, name, compiler, &way);
            }
        }
    }
    measured.on_two_hosts(&shop, &say);
    for name in ALL {
        say(&format!("32 components: {name}"));
        let mut way = Way::task(32, 32, "small", &["--share", "copy"]);
        way.checks = true;
        measured.take(&shop, What::Many, name, Compiler::Check, &way);
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
        let misses = [Compiler::Check, Compiler::Hybrid, Compiler::Mmu, Compiler::Page];
        let lookups = lookups.map(|compiler| (compiler, "lookup", vec![], ""));
        let misses = misses.map(|compiler| {
            let is_fine = matches!(compiler, Compiler::Check | Compiler::Mmu);
            let launcher = vec!["-n", "2", "--share", "copy", "--bind"];
            (compiler, "misses", launcher, if is_fine { "128" } else { "4096" })
        });
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

    /// Of a single access, in nanoseconds: `load`, `store`, `read`, `upgrade`, and what they stand on, `found`, `fence`.
    pub(crate) fn primitive(&self, compiler: Compiler, name: &str) -> Option<f64> {
        self.primitives.get(&(compiler, name.to_owned())).copied()
    }

    /// What a lookup adds to an access, in nanoseconds.
    pub(crate) fn lookup(&self, compiler: Compiler, access: &str) -> Option<f64> {
        Some(self.primitive(compiler, access)? - self.primitive(Compiler::Plain, access)?)
    }

    /// Namespaces bound to one core each; by page and by check, whichever is better for a program.
    fn on_two_hosts(&mut self, shop: &Workshop, say: &dyn Fn(&str)) {
        let hosts = match TwoHosts::begin() {
            Ok(hosts) => hosts,
            Err(reason) => {
                self.missing.insert("two hosts".to_owned(), reason);
                return;
            }
        };
        let shell = shop.scratch().join("on-one-core.sh");
        if let Err(error) = std::fs::write(&shell, hosts.shell_with_a_core_each()) {
            self.missing.insert("two hosts".to_owned(), error.to_string());
            return;
        }
        let shell = format!("sh {}", shell.display());
        for name in ALL {
            for compiler in [Compiler::Check, Compiler::Page] {
                say(&format!("two hosts: {name} by {compiler}"));
                for (what, count) in [(What::OneHost, 1), (What::TwoHosts, 2)] {
                    let names = hosts.names(count).join(",");
                    let threads = u32::try_from(count).unwrap_or(1);
                    let options = ["--hosts", &names, "--shell", &shell];
                    let way = Way::task(threads, threads, HOSTS_SIZE, &options);
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
