//! What the Hive paper says (Chapin and others, SOSP 1995), each with what was measured for it.

use std::collections::BTreeMap;

use crate::cell::measured::Measured;
use crate::items::{NO_NUMBER, item};
use crate::reproduce::Item;
use crate::verdict::{HISTORY, History, Verdict};

const PAPER: &str = "hive";
const NO_FILES: &str = "not measured: cells have no file tree in common yet";

/// All rows, in the paper's order; `injected` is what `comb inject --full --json` has printed, if it has been run.
pub(crate) fn hive(m: &Measured, injected: Option<&str>) -> Vec<Item> {
    let mut rows = careful_references(m);
    rows.extend(firewall(m));
    rows.extend(table_5_2(m));
    rows.extend(calls(m));
    rows.extend(table_7_2(m));
    rows.extend(table_7_3(m));
    rows.extend(table_7_4(injected));
    rows.extend(recovery(m));
    rows
}

fn row(name: &str, value: impl Into<Option<f64>>, unit: &'static str) -> Item {
    item(PAPER, name, value, unit)
}

fn microseconds(m: &Measured, name: &str) -> Option<f64> {
    m.median(name).map(|nanoseconds| nanoseconds / 1e3)
}

fn milliseconds(nanoseconds: Option<f64>) -> Option<f64> {
    nanoseconds.map(|nanoseconds| nanoseconds / 1e6)
}

/// How much more than one, in percent.
fn percent_more(ratio: Option<f64>) -> Option<f64> {
    ratio.map(|ratio| (ratio - 1.0) * 100.0)
}

fn careful_references(m: &Measured) -> Vec<Item> {
    vec![
        row("§4.1, another cell's clock by a careful reference", 1.16, "µs")
            .ours(microseconds(m, "section and read 8 B"))
            .classic(microseconds(m, "null call"))
            .note("baseline: a call; the paper's has 0.7 µs of a cache miss in it, ours hits"),
    ]
}

fn firewall(m: &Measured) -> Vec<Item> {
    let more = |what: &str| percent_more(m.median(&format!("guarded by plain {what}")));
    let mean = |name: &str| {
        let all = m.all(name);
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let misses =
        "both ways two stores that miss the cache and two loads; here the MMU checks, whose entries stay";
    vec![
        row("§4.2, a remote write miss by the firewall, pmake", 6.3, "%").ours(more("store that misses")).note(misses),
        row("§4.2, a remote write miss by the firewall, ocean", 4.4, "%").ours(more("store that misses")).note(misses),
        row("§4.2, the first store to a page by the firewall", None, "%")
            .ours(more("first store"))
            .note(format!("beside a fault of a plain shared mapping; {NO_NUMBER}")),
        row("§4.2, a whole program by the firewall", None, "%")
            .ours(more("whole"))
            .note("Jacobi 1024², two processes; the paper: little overall effect"),
        row("§4.2, pages of a cell that others can store to, pmake, mean", 15.0, "")
            .ours(mean("writable, batch"))
            .note("every 20 ms for 5 s; here a batch of processes, four at a time, that share what one cell has"),
        row("§4.2, pages of a cell that others can store to, pmake, most", 42.0, "").ours(m.most("writable, batch")),
        row("§4.2, pages of a cell that others can store to, ocean, mean", 550.0, "")
            .ours(mean("writable, spanning"))
            .note("here Jacobi 1024² on four cells, whose memory is a region of one of them"),
    ]
}

fn table_5_2(m: &Measured) -> Vec<Item> {
    let total = |name: &str, value: f64| row(&format!("Table 5.2, {name}"), value, "µs");
    let mut rows = vec![
        total("local page fault", 6.9)
            .ours(microseconds(m, "local fault"))
            .note("a plain mapping of memory that is there"),
        total("remote page fault", 50.7)
            .ours(microseconds(m, "remote fault"))
            .classic(microseconds(m, "local fault"))
            .note("baseline: the local one; both bring 64 KB"),
    ];
    let parts = ["stopped", "shown", "null call", "bare"].map(|name| microseconds(m, name));
    let [stopped, shown, call, bare] = parts;
    let rest = microseconds(m, "remote fault").zip(shown.zip(call));
    let rest = rest.map(|(whole, (shown, call))| whole - shown - call);
    let stubs = call.zip(bare).map(|(call, bare)| call - bare);
    let none = "history: a fault here has nothing of the kind";
    let inside = "not measured apart: it is in what is left";
    rows.extend([
        total("client cell", 28.0).ours(rest).note("what is left of the whole without the other parts"),
        total("client cell, file system", 9.0).note(none),
        total("client cell, locking", 5.5).note(inside),
        total("client cell, miscellaneous VM", 8.7)
            .ours(stopped)
            .note("the kernel stops the thread by a signal, and it goes on"),
        total("client cell, import page", 4.8)
            .note("history: the home makes the entries in the client's page table"),
        total("data home", 5.4).ours(shown).note("its books are in what is left to the client"),
        total("data home, miscellaneous VM", 3.4).note(inside),
        total("data home, export page", 2.0).ours(shown).note("two ioctls for 64 KB"),
        total("RPC", 17.3).ours(call).note("a null call: question and answer are in the slots of messages"),
        total("RPC, stubs and subsystem", 4.9).ours(stubs),
        total("RPC, hardware message and interrupts", 4.7).ours(bare).note("a cache line there and one back"),
        total("RPC, copies through shared memory", 4.0).note(none),
        total("RPC, allocation of shared memory", 3.7).note(none),
    ]);
    rows.push(
        row("§5.2, remote faults, part of a batch's time", None, "%")
            .ours(m.median("share of a batch").map(|share| share * 100.0))
            .note("the paper: 13 % of what pmake is slower on four cells than on one"),
    );
    rows
}

fn calls(m: &Measured) -> Vec<Item> {
    let us = |name: &str, value: f64, sample: &str| {
        row(&format!("§6, {name}"), value, "µs").ours(microseconds(m, sample))
    };
    let by_null = |sample: &str| m.ratio(sample, "null call");
    vec![
        us("the message of a null RPC", 2.0, "bare").note("ours: a cache line there and one back"),
        us("null RPC", 7.2, "null call")
            .classic(microseconds(m, "spinning socket"))
            .note("baseline: a Unix socket; all spin"),
        row("§6, null RPC by its message", 7.2 / 2.0, "ratio").ours(m.ratio("null call", "bare")),
        us("RPC of a common request", 9.6, "call with 40 B").note("40 B of arguments, by value"),
        us("queued null RPC", 34.0, "queued call")
            .classic(microseconds(m, "socket"))
            .note("baseline: a Unix socket, both sleep"),
        row("§6, queued null RPC by the null RPC", 34.0 / 7.2, "ratio").ours(by_null("queued call")),
        row("§6, RPC with 16 KB of arguments by reference", None, "µs")
            .ours(microseconds(m, "call with 16 KB"))
            .note(NO_NUMBER),
    ]
}

fn table_7_2(m: &Measured) -> Vec<Item> {
    let mut rows = Vec::new();
    let programs = [("ocean", 6.07, [1.0, 1.0, -1.0]), ("raytrace", 4.35, [0.0, 0.0, 1.0])];
    for (name, seconds, slower) in programs {
        rows.push(
            row(&format!("Table 7.2, {name}, IRIX"), seconds, "s")
                .ours(m.median(&format!("{name} threads")))
                .note("four threads of one process, by clang; other inputs than the paper's"),
        );
        for (cells, value) in [1, 2, 4].into_iter().zip(slower) {
            rows.push(
                row(&format!("Table 7.2, {name}, slower on {cells} cells"), value, "%")
                    .ours(percent_more(m.median(&format!("{name} on {cells} by threads"))))
                    .note("four threads in all, by combcc --access=page"),
            );
        }
    }
    let pmake = "not measured: cells have no file tree in common yet; see the batch";
    rows.push(row("Table 7.2, pmake, IRIX", 5.77, "s").note(pmake));
    for (cells, value) in [(1, 1.0), (2, 10.0), (4, 11.0)] {
        rows.push(row(&format!("Table 7.2, pmake, slower on {cells} cells"), value, "%").note(pmake));
    }
    for (what, of) in [("that do nothing", "empty"), ("that compute for 50 ms", "computing")] {
        rows.push(
            row(&format!("beside Table 7.2, a batch of processes {what}, slower in cells"), None, "%")
                .ours(percent_more(m.median(&format!("{of} in cells by outside"))))
                .note("by the same command, comb run, outside of cells"),
        );
    }
    rows
}

fn table_7_3(m: &Measured) -> Vec<Item> {
    let mut rows = Vec::new();
    let files = [
        ("4 MB file read", "ms", [65.0, 76.2, 1.2]),
        ("4 MB file write/extend", "ms", [83.7, 87.3, 1.1]),
        ("open file", "µs", [148.0, 580.0, 3.9]),
    ];
    for (name, unit, [local, remote, ratio]) in files {
        let file = |what: &str, value: f64, unit| {
            row(&format!("Table 7.3, {name}, {what}"), value, unit).note(NO_FILES)
        };
        rows.extend([
            file("local", local, unit),
            file("remote", remote, unit),
            file("remote by local", ratio, "ratio"),
        ]);
    }
    let fault =
        |what: &str, value: f64, unit| row(&format!("Table 7.3, page fault that hits, {what}"), value, unit);
    rows.extend([
        fault("local", 6.9, "µs").ours(microseconds(m, "local fault")),
        fault("remote", 50.7, "µs").ours(microseconds(m, "remote fault")),
        fault("remote by local", 7.4, "ratio").ours(m.ratio("remote fault", "local fault")),
        row("beside Table 7.3, a page read in order, remote by local", None, "ratio")
            .ours(m.ratio("remote page", "local page"))
            .note("64 KB with each fault, both"),
    ]);
    rows
}

/// Of the lines that `comb inject --json` prints; what is none is left alone. Faults that the paper does not have come behind its own, without its numbers.
pub(crate) fn table_7_4(lines: Option<&str>) -> Vec<Item> {
    let mut found: BTreeMap<String, Vec<Verdict>> = BTreeMap::new();
    for line in lines.unwrap_or_default().lines() {
        if let Ok(verdict) = serde_json::from_str::<Verdict>(line) {
            found.entry(verdict.kind.clone()).or_default().push(verdict);
        }
    }
    let mut rows = Vec::new();
    for history in &HISTORY {
        let verdicts = found.remove(history.kind).unwrap_or_default();
        rows.extend(of_a_fault(history.name, Some(history), &verdicts));
    }
    for (name, verdicts) in found {
        rows.extend(of_a_fault(&name, None, &verdicts));
    }
    rows
}

fn of_a_fault(name: &str, history: Option<&History>, verdicts: &[Verdict]) -> [Item; 4] {
    let row = |what: &str, of: fn(&History) -> u32, unit| {
        let row = row(&format!("Table 7.4, {name}, {what}"), history.map(of).map(f64::from), unit);
        let row = Item {
            command: "comb inject --full --json > FILE; comb reproduce hive --injected FILE".to_owned(),
            ..row
        };
        if verdicts.is_empty() { row.pending("lines of comb inject --full --json") } else { row }
    };
    let entered: Vec<f64> = verdicts.iter().filter_map(|verdict| verdict.detected_ms).collect();
    let count = |items: usize| (!verdicts.is_empty()).then_some(items as f64);
    let mean = (!entered.is_empty()).then(|| entered.iter().sum::<f64>() / entered.len() as f64);
    let contained = verdicts.iter().filter(|verdict| verdict.contained).count();
    [
        row("tests", |history| history.tests, "").ours(count(verdicts.len())),
        row("contained", |history| history.tests, "").ours(count(contained)),
        row("until the last cell enters recovery, mean", |history| history.average_ms, "ms").ours(mean),
        row("until the last cell enters recovery, most", |history| history.longest_ms, "ms")
            .ours(entered.into_iter().reduce(f64::max)),
    ]
}

fn recovery(m: &Measured) -> Vec<Item> {
    let all = |share: f64| {
        let of = ["crash recovery", "hang recovery"].map(|name| milliseconds(m.quantile(name, share)));
        of.into_iter().flatten().reduce(if share < 0.5 { f64::min } else { f64::max })
    };
    let entered = |fault: &str| {
        row(&format!("beside Table 7.4, {fault}, until the last cell enters recovery"), None, "ms")
            .ours(milliseconds(m.median(&format!("{fault} entered"))))
            .note("`comb bench cell --only recovery`; the paper has no hangs, and an oracle in the place of agreement")
    };
    vec![
        row("§7.4, recovery, least", 40.0, "ms").ours(all(0.0)),
        row("§7.4, recovery, most", 80.0, "ms").ours(all(1.0)).note("without the restart of the cell"),
        entered("crash"),
        entered("hang"),
        row("beside §7.4, false suspicions under 32 hogs", None, "").ours(m.median("false suspicions")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_null() {
        for item in hive(&Measured::default(), None) {
            assert_eq!((item.measured, item.baseline), (None, None), "{}", item.item);
        }
    }

    /// As `comb inject --json` has printed them. A field that it does not print was once asked for here, and all lines were left alone without a word.
    const CONTAINED: &str = r#"{"kind":"node-random","workload":"R","cell":4,"seed":3002,"contained":true,"detected_ms":2.0,"recovered_ms":3.117,"discarded_pages":1}"#;
    const NOT_CONTAINED: &str = r#"{"kind":"node-random","workload":"P","cell":1,"seed":3003,"contained":false,"detected_ms":null,"recovered_ms":null,"discarded_pages":0,"why":"not at work again","log":"/tmp/comb-inject-node-random-3003.log"}"#;

    #[test]
    fn what_was_printed_is_what_is_printed_now() {
        for line in [CONTAINED, NOT_CONTAINED] {
            let verdict: Verdict = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&verdict).unwrap(), line);
        }
    }

    #[test]
    fn faults_become_rows_with_the_papers_numbers_where_it_has_any() {
        let slower = CONTAINED.replace("2.0", "4.0");
        let lies = CONTAINED.replace("2.0", "7.0").replace("node-random", "lies");
        let lines = [CONTAINED, &slower, NOT_CONTAINED, &lies, r#"{"seed":1}"#].join("\n");
        let rows = table_7_4(Some(&lines));
        let of = |name: &str| {
            let row = rows.iter().find(|row| row.item.contains(name)).unwrap();
            (row.paper_value, row.measured)
        };
        assert_eq!(of("random time (P), tests"), (Some(20.0), Some(3.0)));
        assert_eq!(of("random time (P), contained"), (Some(20.0), Some(2.0)));
        assert_eq!(of("random time (P), until the last cell enters recovery, mean"), (Some(21.0), Some(3.0)));
        assert_eq!(of("random time (P), until the last cell enters recovery, most"), (Some(45.0), Some(4.0)));
        assert_eq!(of("lies, until the last cell enters recovery, most"), (None, Some(7.0)));
        assert_eq!(of("process creation (P), tests"), (Some(20.0), None));
    }
}
