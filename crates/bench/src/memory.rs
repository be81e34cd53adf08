//! `comb bench memory`: memory shared at block grain, beside private memory, threads, and a plain page cache over Open MPI.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comb_region::launch::{Launch, Output};
use comb_region::task::Share;
use serde_json::Value;

use crate::cell_region::Cell;
use crate::jacobi;
use crate::memory_side::PART;
use crate::net::median;
use crate::program::peers_folder;
use crate::report::{Goal, Row, print};
use crate::two_hosts::{PRODUCTS, STENCILS, TwoHosts};

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
    let measured = measure(full, !json)?;
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

/// A name here, and what `pages.sh` is told: the implementation, and its settings.
type PageProgram = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// One source on three implementations.
const PAGES: &[PageProgram] = &[
    (THREADS, "threads", &[]),
    (STACHE, "comb", &[("COMB_RUN", "--share copy")]),
    (RELEASE, "comb", &[("COMB_RUN", "--share copy"), ("COMB_SHARING", "release")]),
    (BY_BLOCKS, "openmpi-pages", &[("PAGES_HOMES", "block")]),
    (IN_TURN, "openmpi-pages", &[("PAGES_HOMES", "robin")]),
];
pub(crate) const THREADS: &str = "pages, threads";
pub(crate) const STACHE: &str = "pages, ours, stache";
const RELEASE: &str = "pages, ours, release";
pub(crate) const BY_BLOCKS: &str = "pages, Open MPI, homes by blocks";
pub(crate) const IN_TURN: &str = "pages, Open MPI, homes in turn";
const TWO_HOSTS: &str = "two hosts";
const PAGES_ITERATIONS: &str = "100";

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

    fn rows(&self) -> Vec<Row> {
        let row = |claim: &str,
                   ours: Option<f64>,
                   unit: &'static str,
                   peer: &str,
                   theirs: Option<f64>,
                   ratio: Option<f64>,
                   goal: Goal| Row {
            claim: claim.to_owned(),
            ours,
            unit,
            peer: peer.to_owned(),
            theirs,
            ratio,
            goal,
            note: String::new(),
        };
        let by = |ours: Option<f64>, theirs: Option<f64>| Some(ours? / theirs?);
        let beside = |claim: &str, ours: &str, unit: &'static str, peer: &str, theirs: &str, goal: Goal| {
            let (ours, theirs) = (self.one(ours), self.one(theirs));
            row(claim, ours, unit, peer, theirs, by(ours, theirs), goal)
        };
        let plain = |claim: &str, ours: &str, unit: &'static str, goal: Goal, scale: f64| {
            let ours = self.one(ours).map(|value| value * scale);
            row(claim, ours, unit, "", None, ours, goal)
        };
        let mut rows = Vec::new();
        for (share, way) in [("Auto", "import"), ("Copy", "copy")] {
            for what in ["loads", "stores"] {
                for size in ["256 KB", "64 MB"] {
                    let goal = if share == "Auto" { Goal::AtMost(1.01) } else { Goal::None };
                    let name = format!("hits {share}: {what} by private, {size}");
                    rows.push(plain(
                        &format!("{way}, hits: {what} of {size} by private memory"),
                        &name,
                        "×",
                        goal,
                        1.0,
                    ));
                }
            }
        }
        rows.extend([
            beside(
                "import, first load of a page",
                "first_touch Auto: first load",
                "ns",
                "plain mapping",
                "first_touch Auto: first load, plain",
                Goal::AtMost(1.5),
            ),
            beside(
                "import, first store to a page",
                "first_touch Auto: first store",
                "ns",
                "plain mapping",
                "first_touch Auto: first store, plain",
                Goal::AtMost(1.5),
            ),
            plain("copy, read miss of 4 KB", "misses Copy: read miss, median", "µs", Goal::AtMost(8.0), 1e-3),
            plain("copy, write upgrade", "misses Copy: upgrade, median", "µs", Goal::AtMost(6.0), 1e-3),
            plain(
                "copy, read miss of an object of 128 B, mmu",
                "misses Copy: read miss of an object, median",
                "µs",
                Goal::None,
                1e-3,
            ),
            beside(
                "a fault until it is handled",
                "delivery Auto: fault delivered, page",
                "ns",
                "by mprotect",
                "delivery without userfaultfd: fault delivered, page",
                Goal::None,
            ),
            plain("copy, write miss of 4 KB", "misses Copy: write miss, median", "µs", Goal::None, 1e-3),
            beside(
                "copy, read miss beside the raw round trip",
                "misses Copy: read miss, median",
                "ns",
                "32 B there, 4 KB back",
                "misses Copy: raw round trip of a page",
                Goal::None,
            ),
        ]);
        rows.extend([
            plain(
                "cell region, import, hits: loads by private memory",
                "cell region: loads by private",
                "×",
                Goal::AtMost(1.01),
                1.0,
            ),
            plain(
                "cell region, import, hits: stores by private memory",
                "cell region: stores by private",
                "×",
                Goal::AtMost(1.01),
                1.0,
            ),
            plain(
                "cell region, import, first load of a page that another has stored to",
                "cell region: first load, stored by others",
                "µs",
                Goal::AtMost(1.0),
                1e-3,
            ),
            plain(
                "… of a page that was never touched",
                "cell region: first load, in runs",
                "µs",
                Goal::AtMost(1.0),
                1e-3,
            ),
            beside(
                "… that, beside a plain mapping",
                "cell region: first load, in runs",
                "ns",
                "plain mapping",
                "cell region: first load, fresh, plain",
                Goal::None,
            ),
            plain(
                "cell region, import, first store to a page",
                "cell region: first store, median",
                "µs",
                Goal::AtMost(10.0),
                1e-3,
            ),
            plain(
                "cell region, copy, read miss of 4 KB",
                "cell region: read miss by copy, median",
                "µs",
                Goal::AtMost(8.0),
                1e-3,
            ),
        ]);
        for (block, message) in [(4096, 4096), (65536, 61440)] {
            let (theirs, peer) =
                (format!("bulk Copy: stream of messages of {message}"), format!("messages of {message} B"));
            let goal = if block == 65536 { Goal::AtLeast(0.7) } else { Goal::None };
            for (how, name, goal) in [("read", "reading", goal), ("read again", "reading again", Goal::None)]
            {
                let claim = format!("copy, {how} in order, blocks of {block} B");
                let ours = format!("bulk Copy: sequential {name}, blocks of {block}");
                rows.push(beside(&claim, &ours, "MB/s", &peer, &theirs, goal));
            }
        }
        rows.extend([
            beside(
                "Jacobi 1024², 2 cells, import",
                "jacobi Auto: jacobi, an iteration",
                "µs",
                "2 threads",
                "threads",
                Goal::AtMost(1.05),
            ),
            beside(
                "Jacobi 1024², 2 cells, copy",
                "jacobi Copy: jacobi, an iteration",
                "µs",
                "2 threads",
                "threads",
                Goal::None,
            ),
        ]);
        rows.extend(self.page_rows());
        rows.extend(self.two_host_rows());
        rows.extend([
            beside(
                "128 B objects beside others', 1 in 100 changes is of another's, mmu",
                "objects Copy: changes of objects, its own, Mmu",
                "1/s",
                "page",
                "objects Copy: changes of objects, its own, Page",
                Goal::AtLeast(3.0),
            ),
            beside(
                "128 B objects that both change as often, mmu",
                "objects Copy: changes of objects, any, Mmu",
                "1/s",
                "page",
                "objects Copy: changes of objects, any, Page",
                Goal::AtLeast(3.0),
            ),
            plain(
                "… their hits, mmu by page",
                "objects Copy: hits of 4096 objects, Mmu by Page",
                "×",
                Goal::None,
                1.0,
            ),
            plain(
                "1 TiB reserved, 1 GiB touched: metadata at home",
                "metadata Copy: metadata of a terabyte, at home of what is away",
                "MB",
                Goal::AtMost(30.0),
                1.0,
            ),
            plain(
                "… and at a client that has copies of it",
                "metadata Copy: metadata of a terabyte, at a client",
                "MB",
                Goal::AtMost(30.0),
                1.0,
            ),
        ]);
        rows
    }

    /// Namespaces with a cable: what a second host gains, and what its misses cost.
    fn two_host_rows(&self) -> Vec<Row> {
        let note = self.missing.get(TWO_HOSTS).cloned().unwrap_or_default();
        let row = |claim: String, ours: &str, unit: &'static str, peer: &str, theirs: &str, goal: Goal| {
            let (ours, theirs) = (self.one(ours), self.one(theirs));
            let by = |ours: Option<f64>, theirs: Option<f64>| Some(ours? / theirs?);
            let is_speed_up = unit == "µs";
            let ratio = if is_speed_up { by(theirs, ours) } else { by(ours, theirs) };
            Row { claim, ours, unit, peer: peer.to_owned(), theirs, ratio, goal, note: note.clone() }
        };
        let mut rows = Vec::new();
        for (what, sizes) in [("product", PRODUCTS), ("stencil", STENCILS)] {
            for size in sizes {
                let is_largest = sizes.last() == Some(&size);
                let goal = if is_largest { Goal::AtLeast(1.6) } else { Goal::None };
                let alone = format!("one host: {what} {size}");
                let mut beside = |how: &str, ours: &str, goal: Goal| {
                    let (claim, ours) =
                        (format!("{what} of {size}², {how}"), format!("{ours}: {what} {size}"));
                    rows.push(row(claim, &ours, "µs", "one core", &alone, goal));
                };
                beside("two hosts of a core each", "two hosts", goal);
                if is_largest {
                    beside("both cores of one host, import", "both cores", Goal::None);
                }
            }
        }
        let (miss, raw) =
            ("two hosts, misses: read miss, median", "two hosts, misses: raw round trip of a page");
        rows.push(row(
            "two hosts, read miss of 4 KB".to_owned(),
            miss,
            "ns",
            "32 B there, 4 KB back",
            raw,
            Goal::AtMost(1.5),
        ));
        for (block, message) in [(4096, 4096), (65536, 61440)] {
            let ours = format!("two hosts, bulk: sequential reading, blocks of {block}");
            let theirs = format!("two hosts, bulk: stream of messages of {message}");
            let goal = if block == 65536 { Goal::AtLeast(0.7) } else { Goal::None };
            let claim = format!("two hosts, read in order, blocks of {block} B");
            rows.push(row(claim, &ours, "MB/s", &format!("messages of {message} B"), &theirs, goal));
        }
        rows
    }

    /// The same source, ours by copy beside threads and the page cache.
    fn page_rows(&self) -> Vec<Row> {
        let goal = Goal::AtLeast(5.0);
        let rows = [
            (STACHE, "2 threads", THREADS, Goal::None),
            (STACHE, "page cache, homes in turn", IN_TURN, goal),
            (STACHE, "page cache, homes by blocks", BY_BLOCKS, goal),
            (RELEASE, "page cache, homes in turn", IN_TURN, Goal::None),
            (RELEASE, "page cache, homes by blocks", BY_BLOCKS, Goal::None),
        ];
        let row = |(ours, peer, theirs, goal): (&str, &str, &str, Goal)| {
            let sharing = ours.trim_start_matches("pages, ours, ");
            let note = [ours, theirs].into_iter().filter_map(|name| self.missing.get(name));
            let note = note.map(String::as_str).collect::<Vec<_>>().join("; ");
            let (ours, theirs) = (self.one(ours), self.one(theirs));
            Row {
                claim: format!("Jacobi 1024², one source in C, copy, {sharing}"),
                ours,
                unit: "µs",
                peer: peer.to_owned(),
                theirs,
                // How many times faster ours is.
                ratio: theirs.zip(ours).map(|(theirs, ours)| theirs / ours),
                goal,
                note,
            }
        };
        rows.into_iter().map(row).collect()
    }
}

fn cycles_a_nanosecond() -> Option<f64> {
    let processors = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let megahertz = processors.lines().find_map(|line| line.strip_prefix("cpu MHz"))?;
    Some(megahertz.trim_start_matches([' ', '\t', ':']).parse::<f64>().ok()? / 1e3)
}

/// The mean time of an iteration in microseconds, and the checksum; or why there is none.
fn page_program(implementation: &str, settings: &[(&str, &str)]) -> Result<(f64, String), String> {
    let folder = peers_folder().ok_or("benches/peers is not here: run from the repository")?;
    let ours = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(folder.join("pages.sh"))
        .args([implementation, "2", "jacobi", "1024", PAGES_ITERATIONS])
        .env("COMB", ours)
        .env("TIME_LIMIT_S", "10")
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    read_page_program(implementation, &output.stdout).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it printed nothing").to_owned();
        format!("{implementation} failed: {said}")
    })?
}

/// The line that it printed. None if it is no such line.
fn read_page_program(implementation: &str, printed: &[u8]) -> Option<Result<(f64, String), String>> {
    let line: Value =
        printed.split(|&byte| byte == b'\n').find_map(|line| serde_json::from_slice(line).ok())?;
    if let Some(reason) = line["missing"].as_str() {
        return Some(Err(format!("{implementation}: {reason}")));
    }
    Some(Ok((line["seconds_each"].as_f64()? * 1e6, line["checksum"].as_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_programs_line_is_read_and_a_missing_one_is_named() {
        let line = br#"{"program":"jacobi","seconds_each":0.000191455,"checksum":"2a2b7e13d4e958a2"}"#;
        let (took, checksum) = read_page_program("threads", line).unwrap().unwrap();
        assert_eq!((took.round(), checksum.as_str()), (191.0, "2a2b7e13d4e958a2"));
        let missing = read_page_program("comb", br#"{"peer":"comb","missing":"not built"}"#).unwrap();
        assert_eq!(missing.unwrap_err(), "comb: not built");
        assert!(read_page_program("comb", b"mpirun: no").is_none());
    }

    #[test]
    fn what_was_not_measured_is_in_the_table_and_met_by_nobody() {
        let measured = Measured {
            missing: [(IN_TURN.to_owned(), "not built".to_owned())].into(),
            ..Measured::default()
        };
        let rows = measured.page_rows();
        let row = rows.iter().find(|row| row.peer.contains("in turn")).unwrap();
        assert_eq!((row.met(), row.note.as_str()), (Some(false), "not built"));
    }
}
