//! `comb bench memory`: memory shared at block grain, beside private memory, threads, and a plain page cache over Open MPI.

use std::collections::BTreeMap;
use std::time::Duration;

use comb_region::launch::{Launch, Output};
use comb_region::task::Share;
use serde_json::Value;

use crate::jacobi;
use crate::memory_side::PART;
use crate::net::median;
use crate::report::{Goal, Row, print};

const ROUNDS: usize = 3;
const FULL_ROUNDS: usize = 7;

const NOTES: &str = "\
Import: all components are on one host and share page frames. Copy: each has its own, as on several hosts; the home spins for its messages, the
client is in its signal handler. Private memory and threads have small pages, too: what large ones save is lost to all shared memory alike.
First load: of pages that have content, beside a shared mapping of the same that any program makes. Bulk: read once from begin to end, beside messages
between the same two processes, each copied out. Jacobi's threads meet at a spinning barrier.";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Values = BTreeMap<String, Vec<f64>>;

/// Runs the benchmark and prints its table.
pub fn run(full: bool, json: bool) -> Outcome<()> {
    let mut measured = Measured::default();
    let rounds = if full { FULL_ROUNDS } else { ROUNDS };
    for round in 1..=rounds {
        for (part, components, share) in PARTS {
            if !json {
                eprint!("\rround {round} of {rounds}: {part:20}");
            }
            measured.take(part, *components, *share)?;
        }
        let (took, sum) = jacobi::by_threads(2);
        measured.values.entry("threads".to_owned()).or_default().push(took);
        if let Some(theirs) = measured.one("jacobi Auto: jacobi, checksum")
            && theirs.to_bits() != sum.to_bits()
        {
            return Err(format!("Jacobi came to {theirs} by components and to {sum} by threads").into());
        }
    }
    if !json {
        eprint!("\r{:60}\r", "");
    }
    print(&measured.rows(), json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
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
];

#[derive(Default)]
struct Measured {
    values: Values,
}

impl Measured {
    fn take(&mut self, part: &str, components: u32, share: Share) -> Outcome<()> {
        let launch = Launch::new(std::env::current_exe()?)
            .arguments(["bench-side", "memory"])
            .environment(PART, part)
            .components(components)
            .share(share)
            .output(Output::Collected)
            .without_input();
        let outcome = launch.start()?.wait();
        if !outcome.is_success() {
            let said: Vec<_> =
                outcome.printed.iter().map(|said| String::from_utf8_lossy(&said.error)).collect();
            return Err(format!("{part} ({share:?}) has failed: {}", said.concat().trim()).into());
        }
        for line in outcome.printed.iter().flat_map(|said| said.output.split(|&byte| byte == b'\n')) {
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            if let (Some(test), Some(value)) = (line["test"].as_str(), line["value"].as_f64()) {
                self.values.entry(format!("{part} {share:?}: {test}")).or_default().push(value);
            }
        }
        // What ended gives its memory back.
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    fn one(&self, name: &str) -> Option<f64> {
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
        for (block, message) in [(4096, 4096), (65536, 61440)] {
            rows.push(beside(
                &format!("copy, read in order, blocks of {block} B"),
                &format!("bulk Copy: sequential reading, blocks of {block}"),
                "MB/s",
                &format!("messages of {message} B"),
                &format!("bulk Copy: stream of messages of {message}"),
                if block == 65536 { Goal::AtLeast(0.7) } else { Goal::None },
            ));
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
            beside(
                "128 B objects that both change, mmu",
                "objects Copy: changes of objects, Mmu",
                "1/s",
                "page",
                "objects Copy: changes of objects, Page",
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
}
