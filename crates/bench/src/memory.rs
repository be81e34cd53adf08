//! `comb bench memory`: memory shared at block grain, beside private memory, threads, and a plain page cache over Open MPI.

mod page_program;
mod table;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comb_region::launch::{Launch, Output};
use comb_region::task::Share;
use serde_json::Value;

pub(crate) use self::page_program::{BY_BLOCKS, IN_TURN, STACHE, THREADS};
use self::page_program::{PAGES, page_program};
use crate::cell_region::Cell;
use crate::jacobi;
use crate::memory_side::PART;
use crate::net::median;
use crate::report::{print, shows_progress};
use crate::two_hosts::TwoHosts;

const ROUNDS: usize = 3;
const FULL_ROUNDS: usize = 7;
/// In the quick form no round begins later. One takes 6 s on an idle machine, and several times as long where others want its cores.
const LAST_ROUND_BEGINS: Duration = Duration::from_secs(25);

const NOTES: &str = "\
Import: all components are on one host and share page frames. Copy: each has its own, as on several hosts; the home spins for its messages, the
client is in its signal handler. Private memory and threads have small pages, too: what large ones save is lost to all shared memory alike.
First load: of pages that have content, beside a shared mapping of the same that any program makes. Bulk: read once from begin to end, beside messages
between the same two processes, each copied out. Jacobi's threads meet at a spinning barrier. The page cache and who stands beside it run one source,
benches/peers/pages; its pages live where they are stored to (homes by blocks: its best case), or are dealt out in turn, as without knowledge of the program.
Two hosts are network namespaces with a cable; their components are bound to a core each. Where both virtual cores are threads of one, a second gives little: that
is what the rows of both cores of one host are for.";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Values = BTreeMap<String, Vec<f64>>;

/// Runs the benchmark and prints its table.
pub fn run(full: bool, json: bool) -> Outcome<()> {
    let measured = measure(full, shows_progress(json))?;
    print(&measured.rows(), json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
}

/// Runs all parts, several times.
pub(crate) fn measure(full: bool, talks: bool) -> Outcome<Measured> {
    let mut measured = Measured { cycles_a_nanosecond: cycles_a_nanosecond(), ..Measured::default() };
    let rounds = if full { FULL_ROUNDS } else { ROUNDS };
    let started = Instant::now();
    for round in 1..=rounds {
        if round > 1 && !full && started.elapsed() > LAST_ROUND_BEGINS {
            break;
        }
        for (part, components, share) in PARTS {
            // Sizes do not vary.
            if *part == "metadata" && round > 1 {
                continue;
            }
            if talks {
                eprint!("\rround {round} of {rounds}: {part:20}");
            }
            measured.take(part, *components, *share, None)?;
        }
        measured.take("delivery", 1, Share::Auto, Some("userfaultfd"))?;
        measured.take_cell_region()?;
        if round == 1 || full {
            measured.take_two_hosts()?;
        }
        let (took, sum) = jacobi::by_threads(2);
        measured.values.entry("threads".to_owned()).or_default().push(took);
        if let Some(theirs) = measured.one("jacobi Auto: jacobi, checksum")
            && theirs.to_bits() != sum.to_bits()
        {
            return Err(format!("Jacobi came to {theirs} by components and to {sum} by threads").into());
        }
        measured.pages()?;
    }
    if talks {
        eprint!("\r{:60}\r", "");
    }
    Ok(measured)
}

/// What lookups in compiled code stand on, in nanoseconds: `found`, a miss that finds the right there after all, and `fence`.
pub(crate) fn checked() -> Outcome<BTreeMap<String, f64>> {
    let mut measured = Measured::default();
    for _ in 0..ROUNDS {
        measured.take("checked", 2, Share::Copy, None)?;
    }
    let named = ["found", "fence"]
        .map(|name| Some((name.to_owned(), measured.one(&format!("checked {:?}: {name}", Share::Copy))?)));
    Ok(named.into_iter().flatten().collect())
}

fn launch(part: &str) -> Outcome<Launch> {
    Ok(Launch::new(std::env::current_exe()?)
        .arguments(["bench-side", "memory"])
        .environment(PART, part)
        .output(Output::Collected)
        .without_input())
}

/// Names, components, and how they share.
const PARTS: &[(&str, u32, Share)] = &[
    ("hits", 1, Share::Auto),
    ("hits", 2, Share::Copy),
    ("first_touch", 2, Share::Auto),
    ("misses", 2, Share::Copy),
    ("bulk", 2, Share::Copy),
    ("jacobi", 2, Share::Auto),
    ("jacobi", 2, Share::Copy),
    ("objects", 2, Share::Copy),
    ("metadata", 2, Share::Copy),
    ("delivery", 1, Share::Auto),
];

const TWO_HOSTS: &str = "two hosts";
/// What was measured, by names; and why something was not.
#[derive(Default)]
pub(crate) struct Measured {
    values: Values,
    missing: BTreeMap<String, String>,
    /// By the clock rate that the kernel names.
    pub(crate) cycles_a_nanosecond: Option<f64>,
}

impl Measured {
    /// Runs a part, if need be without a mechanism of the kernel.
    fn take(&mut self, part: &str, components: u32, share: Share, without: Option<&str>) -> Outcome<()> {
        let mut launch = launch(part)?.components(components).share(share);
        if let Some(without) = without {
            launch = launch.environment("COMB_WITHOUT", without);
        }
        let of = without.map_or_else(|| format!("{share:?}"), |without| format!("without {without}"));
        self.run(&format!("{part} {of}"), &launch)
    }

    /// With a home in this process.
    fn take_cell_region(&mut self) -> Outcome<()> {
        let cell = Cell::begin()?;
        let launch = launch("cell_region")?.components(1).environment("COMB_RUNTIME_DIR", cell.directory());
        self.run("cell region", &launch)
    }

    /// Network namespaces with a cable between.
    fn take_two_hosts(&mut self) -> Outcome<()> {
        let hosts = match TwoHosts::begin() {
            Ok(hosts) => hosts,
            Err(reason) => {
                self.missing.insert(TWO_HOSTS.to_owned(), reason);
                return Ok(());
            }
        };
        self.run("one host", &hosts.on(launch("two_hosts")?, 1))?;
        // With nothing to be sent: what the second core can give at all.
        self.run("both cores", &launch("two_hosts")?.components(2))?;
        for (part, name) in
            [("two_hosts", "two hosts"), ("misses", "two hosts, misses"), ("bulk", "two hosts, bulk")]
        {
            self.run(name, &hosts.on(launch(part)?, 2))?;
        }
        Ok(())
    }

    fn run(&mut self, name: &str, launch: &Launch) -> Outcome<()> {
        let outcome = launch.start()?.wait();
        if !outcome.is_success() {
            let said: Vec<_> =
                outcome.printed.iter().map(|said| String::from_utf8_lossy(&said.error)).collect();
            return Err(format!("{name} has failed: {}", said.concat().trim()).into());
        }
        for line in outcome.printed.iter().flat_map(|said| said.output.split(|&byte| byte == b'\n')) {
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            if let (Some(test), Some(value)) = (line["test"].as_str(), line["value"].as_f64()) {
                self.values.entry(format!("{name}: {test}")).or_default().push(value);
            }
        }
        // What ended gives its memory back.
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    /// Jacobi's iteration of benches/peers/pages, by each implementation. Who is missing is named; who computes something else is an error.
    fn pages(&mut self) -> Outcome<()> {
        let mut checksums: Vec<(&str, String)> = Vec::new();
        for (name, implementation, settings) in PAGES {
            match page_program(implementation, settings) {
                Ok((microseconds, checksum)) => {
                    self.values.entry((*name).to_owned()).or_default().push(microseconds);
                    checksums.push((name, checksum));
                }
                Err(reason) => _ = self.missing.insert((*name).to_owned(), reason),
            }
        }
        match checksums.windows(2).find(|two| two[0].1 != two[1].1) {
            Some(two) => Err(format!("{} and {} came to different numbers", two[0].0, two[1].0).into()),
            None => Ok(()),
        }
    }

    /// The median of all rounds.
    pub(crate) fn one(&self, name: &str) -> Option<f64> {
        self.values.get(name).and_then(|values| median(values))
    }
}

fn cycles_a_nanosecond() -> Option<f64> {
    let processors = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let megahertz = processors.lines().find_map(|line| line.strip_prefix("cpu MHz"))?;
    Some(megahertz.trim_start_matches([' ', '\t', ':']).parse::<f64>().ok()? / 1e3)
}
