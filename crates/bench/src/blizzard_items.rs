//! What the Blizzard paper says (Schoinas and others, ASPLOS 1994), each with what was measured for it.

use crate::items::{NO_NUMBER, item};
use crate::memory::{BY_BLOCKS, IN_TURN, Measured, STACHE, THREADS};
use crate::reproduce::Item;

const PAPER: &str = "blizzard";
const COMPILER: &str = "comes with the compiler, which puts lookups in";
const PROGRAMS: &str = "the six programs come with the compiler";
const HISTORY: &str = "history: hardware of 1994 or before";

/// All rows, in the paper's order.
pub(crate) fn blizzard(m: &Measured) -> Vec<Item> {
    let mut rows = grain(m);
    rows.extend(table_2_of_others());
    rows.extend(table_2_of_blizzard(m));
    rows.extend(prose_of_section_2());
    rows.extend(figure_1());
    rows.extend(section_3(m));
    rows.extend(table_4());
    rows.extend(prose_of_section_3_5());
    rows.extend(what_we_have_of_table_4(m));
    rows
}

fn row(name: &str, value: impl Into<Option<f64>>, unit: &'static str) -> Item {
    item(PAPER, name, value, unit)
}

fn history(name: &str, value: f64, unit: &'static str, note: &str) -> Item {
    row(name, value, unit).note(format!("{HISTORY}; {note}"))
}

fn grain(m: &Measured) -> Vec<Item> {
    let rate = |guard| m.one(&format!("objects Copy: changes of objects, its own, {guard}"));
    vec![
        row("§1, fine grain, least", 32.0, "B")
            .ours(Some(128.0))
            .note("set by the state table: a byte for each 128 B"),
        row("§1, fine grain, most", 128.0, "B")
            .ours(Some(128.0))
            .note("blocks of 128 B to 64 KB, by allocation"),
        row(
            "§1, each stores into its own of neighbouring objects of 128 B, mmu (E) beside page (P)",
            None,
            "1/s",
        )
        .ours(rate("Mmu"))
        .classic(rate("Page"))
        .note(format!("baseline: page; {NO_NUMBER}")),
    ]
}

/// Block, lookup without and with an action (where two are given, for local and remote addresses), invocation, remote miss. In cycles.
type System = (&'static str, f64, [f64; 2], Option<[f64; 2]>, f64, Option<f64>);

const OTHERS: [System; 7] = [
    ("Alewife", 8.0, [0.0, 1.0], Some([10.0, 13.0]), 0.0, Some(30.0)),
    ("KSR-1", 128.0, [0.0, 10.0], None, 0.0, Some(200.0)),
    ("DASH", 16.0, [0.0, 10.0], Some([20.0, 0.0]), 0.0, Some(100.0)),
    ("FLASH", 128.0, [0.0, 4.0], Some([14.0, 0.0]), 0.0, Some(100.0)),
    ("Typhoon", 32.0, [0.0, 3.0], None, 2.0, Some(100.0)),
    ("Munin", 4096.0, [0.0, 50.0], None, 0.0, None),
    ("TreadMarks", 4096.0, [0.0, 50.0], None, 2600.0, Some(110_000.0)),
];

fn table_2(system: &str, column: &str, value: impl Into<Option<f64>>, unit: &'static str) -> Item {
    row(&format!("Table 2, {system}, {column}"), value, unit)
}

fn table_2_of_others() -> Vec<Item> {
    let mut rows = Vec::new();
    for (system, bytes, [no_action, action], other, invocation, miss) in OTHERS {
        let past = |column: &str, value: f64, unit| table_2(system, column, value, unit).note(HISTORY);
        rows.push(past("block", bytes, "B"));
        rows.push(past("lookup, no action", no_action, "cycles"));
        rows.push(past("lookup, action needed", action, "cycles"));
        if let Some([action, by_processor]) = other {
            rows.push(past("lookup, action needed, the other of two", action, "cycles"));
            if by_processor > 0.0 {
                rows.push(past("invocation, on the processor itself", by_processor, "cycles"));
            }
        }
        if system == "Munin" {
            rows.push(past("invocation", 2010.0, "µs").note(format!("{HISTORY}; the table gives 2.01 ms")));
        } else {
            rows.push(past("invocation", invocation, "cycles"));
        }
        let note = if miss.is_some() { HISTORY.to_owned() } else { format!("{HISTORY}; the table has ??") };
        rows.push(table_2(system, "remote miss", miss, "cycles").note(note));
    }
    rows
}

/// Of S, E and ES; and P, which the table does not have: it is what TreadMarks and Munin are.
fn table_2_of_blizzard(m: &Measured) -> Vec<Item> {
    let in_cycles = |name: &str| Some(m.one(name)? * m.cycles_a_nanosecond?);
    let hits = |guard: &str, name: &str| match m.one(name) {
        Some(ratio) => format!("no instruction is added; loads that hit: {ratio:.3} × {guard}"),
        None => "no instruction is added".to_owned(),
    };
    let one_cost = "is within the invocation: the MMU finds out while it translates";
    let raw = in_cycles("misses Copy: raw round trip of a page");
    let invoked = |guard: &str| in_cycles(&format!("delivery Auto: fault delivered, {guard}"));
    let by_mprotect =
        |guard: &str| in_cycles(&format!("delivery without userfaultfd: fault delivered, {guard}"));
    let from_load = "from the load to the handler's first instruction; baseline: stopped by mprotect";
    let mut rows = vec![
        table_2("Blizzard-S", "block", 32.0, "B").pending(COMPILER),
        table_2("Blizzard-S", "lookup, no action", 18.0, "cycles").pending(COMPILER),
        table_2("Blizzard-S", "lookup, action needed", 18.0, "cycles").pending(COMPILER),
        table_2("Blizzard-S", "invocation", 25.0, "cycles").pending(COMPILER),
        table_2("Blizzard-S", "remote miss", 6000.0, "cycles").pending(COMPILER),
        table_2("Blizzard-E", "block", 32.0, "B").ours(Some(128.0)).note("mmu: 128 B to 2 KB"),
        table_2("Blizzard-E", "lookup, no action", 0.0, "cycles")
            .ours(Some(0.0))
            .note(hits("as many in whole pages", "objects Copy: hits of 4096 objects, Mmu by Page")),
        table_2("Blizzard-E", "lookup, action needed", 10.0, "cycles").note(one_cost),
        table_2("Blizzard-E, stores beside read-only blocks", "lookup, no action", 230.0, "cycles")
            .ours(Some(0.0))
            .note("mmu: each block has a page of addresses, so that no other's right is in the way"),
        table_2("Blizzard-E, stores beside read-only blocks", "lookup, action needed", 230.0, "cycles")
            .note(one_cost),
        table_2("Blizzard-E", "invocation", 250.0, "cycles").shorter(
            invoked("mmu"),
            by_mprotect("mmu"),
            from_load,
        ),
        table_2("Blizzard-E", "remote miss", 6000.0, "cycles")
            .ours(in_cycles("misses Copy: read miss of an object, median"))
            .classic(raw)
            .note("mmu, 128 B, by copy; baseline: 32 B there and 4 KB back over the same channels"),
        table_2("Blizzard-ES", "block", 32.0, "B").pending(COMPILER),
        table_2("Blizzard-ES, loads", "lookup, no action", 0.0, "cycles").pending(COMPILER),
        table_2("Blizzard-ES, loads", "lookup, action needed", 10.0, "cycles").pending(COMPILER),
        table_2("Blizzard-ES, loads", "invocation", 250.0, "cycles").pending(COMPILER),
        table_2("Blizzard-ES, stores", "lookup, no action", 18.0, "cycles").pending(COMPILER),
        table_2("Blizzard-ES, stores", "lookup, action needed", 18.0, "cycles").pending(COMPILER),
        table_2("Blizzard-ES, stores", "invocation", 25.0, "cycles").pending(COMPILER),
        table_2("Blizzard-ES", "remote miss", 6000.0, "cycles").pending(COMPILER),
    ];
    let p = |column: &str, unit| table_2("page (P), not in the table", column, None, unit);
    rows.extend([
        p("block", "B").ours(Some(4096.0)).note("page: 4 to 64 KB; as Munin and TreadMarks"),
        p("lookup, no action", "cycles")
            .ours(Some(0.0))
            .note(hits("private memory's", "hits Auto: loads by private, 256 KB")),
        p("invocation", "cycles").shorter(
            invoked("page"),
            by_mprotect("page"),
            &format!("{from_load}; TreadMarks: 2600"),
        ),
        p("remote miss", "cycles").ours(in_cycles("misses Copy: read miss, median")).classic(raw).note(
            "4 KB, by copy; baseline: 32 B there and 4 KB back over the same channels; TreadMarks: 110,000",
        ),
        p("remote miss, in time", "µs")
            .ours(m.one("misses Copy: read miss, median").map(|ns| ns / 1e3))
            .classic(m.one("misses Copy: raw round trip of a page").map(|ns| ns / 1e3)),
        p("write upgrade, in time", "µs")
            .ours(m.one("misses Copy: upgrade, median").map(|ns| ns / 1e3))
            .note(NO_NUMBER),
    ]);
    rows
}

fn prose_of_section_2() -> Vec<Item> {
    let simulated = "of the simulated machine";
    vec![
        history(
            "§2.1, lock bits of the IBM 801 and RS/6000, block",
            128.0,
            "B",
            "they lack the three states",
        ),
        history("§2.1, NIM6133, tag of a block of 32 B", 4.0, "bits", "written 1 of 16, in the check bits"),
        history("§2.1, NIM6133, double word with its tag", 80.0, "bits", "64 of data"),
        history("§2.3, TreadMarks, send of the least message", 3200.0, "cycles", "80 µs"),
        history("§2.3, TreadMarks, send of the least message, in time", 80.0, "µs", "3200 cycles"),
        history("§2.3, Blizzard-E, of its invocation a workaround's", 50.0, "cycles", "of 250"),
        history(
            "§2.3, Blizzard, least packet that carries a block",
            40.0,
            "B",
            "address, program counter, block of 32 B",
        ),
        history("§2.3, CM-5, longest packet", 20.0, "B", "a block takes several"),
        history("§2.3, packets that need no buffer", 80.0, "%", "those that come in order"),
        history("§2.5, cache", 64.0, "KB", simulated),
        history("§2.5, line and block", 32.0, "B", simulated),
        history("§2.5, local miss", 29.0, "cycles", simulated),
        history("§2.5, TLB", 64.0, "entries", simulated),
        history("§2.5, TLB miss", 25.0, "cycles", simulated),
        history("§2.5, message interrupt", 100.0, "cycles", simulated),
    ]
}

fn figure_1() -> Vec<Item> {
    let what = "simulation; wants the programs with lookups of any cost, which come with the compiler";
    vec![
        row("Figure 1, two programs by lookup and invocation", None, "ratio").pending(what),
        row("§2.5, ideal by realistic, least", 2.2, "ratio").pending(what),
        row("§2.5, ideal by realistic, most", 2.8, "ratio").pending(what),
        row("§2.5, Barnes, invocation that costs less …", 1000.0, "cycles").pending(what),
        row("§2.5, … than a lookup of", 5.0, "cycles").pending(what),
    ]
}

fn section_3(m: &Measured) -> Vec<Item> {
    let state = "a byte for each 128 B of frames, which the compiler's lookup is to read";
    let megabytes = |place: &str| m.one(&format!("metadata Copy: metadata of a terabyte, {place}"));
    vec![
        history("§3.1, CM-5, clock", 33.0, "MHz", "SPARC"),
        history("§3.1, CM-5, cache of a node", 64.0, "KB", "direct-mapped, unified"),
        history("§3.1, CM-5, memory of a node, most", 128.0, "MB", ""),
        row("§3.2, Blizzard-S, instructions of a lookup", 15.0, "instr.").pending(COMPILER),
        row("§3.2, Blizzard-S, a lookup that hits", 18.0, "cycles").pending(COMPILER),
        row("§3.2, Blizzard-S, block", 32.0, "B").pending(COMPILER),
        row("§3.2, state of a block", 2.0, "bits").ours(Some(8.0)).note(state),
        row("§3.2, state by data", 100.0 * 2.0 / 8.0 / 32.0, "%").ours(Some(100.0 / 128.0)).note(state),
        row(
            "§3.2, tables are reserved and made on demand: 1 TiB, of which 1 GiB is touched, at home",
            None,
            "MB",
        )
        .ours(megabytes("at home of what is away"))
        .note(NO_NUMBER),
        row("… at a client", None, "MB").ours(megabytes("at a client")).note(NO_NUMBER),
        row("§3.3, Blizzard-E, words of a block with bad check bits, least", 2.0, "words").note(HISTORY),
        row("§3.3, Blizzard-E, store through the kernel to a read-write block", 230.0, "cycles")
            .ours(Some(0.0))
            .note("mmu: such stores do not stop"),
        row("§3.5, nodes", 32.0, "nodes").ours(Some(2.0)).note("this machine has two cores"),
        row("§3.5, block of the measured programs", 128.0, "B").ours(Some(128.0)).note("and 4 KB, by page"),
    ]
}

/// Name, input, seconds on E, S, ES, P and the KSR-1, and the latter four relative to E as printed.
type Program = (&'static str, &'static str, [f64; 5], [f64; 4]);

const SIX: [Program; 6] = [
    ("Appbt", "32³, 10 iterations", [137.0, 177.0, 142.0, 732.0, 38.0], [1.29, 1.04, 5.35, 0.28]),
    ("Barnes", "8192 bodies", [48.0, 60.0, 51.0, 288.0, 7.0], [1.27, 1.07, 6.05, 0.14]),
    ("Mp3d", "24000 molecules, 50 iterations", [134.0, 132.0, 147.0, 716.0, 24.0], [0.98, 1.09, 5.33, 0.18]),
    ("Ocean", "386×386, 8 days", [81.0, 111.0, 82.0, 380.0, 34.0], [1.37, 1.01, 4.67, 0.42]),
    ("Tomcatv", "1026², 50 iterations", [78.0, 162.0, 87.0, 478.0, 94.0], [2.08, 1.11, 6.12, 1.20]),
    ("Water", "256 molecules, 10 iterations", [57.0, 83.0, 62.0, 99.0, 16.0], [1.47, 1.09, 1.74, 0.28]),
];
const SYSTEMS: [&str; 5] = ["Blizzard-E", "Blizzard-S", "Blizzard-ES", "Blizzard-P", "KSR-1"];

fn table_4() -> Vec<Item> {
    let mut rows = Vec::new();
    for (program, input, seconds, relative) in SIX {
        let relative = [1.0].into_iter().chain(relative);
        for ((system, seconds), relative) in SYSTEMS.into_iter().zip(seconds).zip(relative) {
            let of = |what: &str, value: f64, unit| {
                let row = row(&format!("Table 4, {program}, {system}{what}"), value, unit);
                if system == "KSR-1" {
                    row.note(format!("{HISTORY}; {input} (Table 3)"))
                } else {
                    row.pending(&format!("{PROGRAMS}; {input} (Table 3)"))
                }
            };
            rows.push(of("", seconds, "s"));
            rows.push(of(", by Blizzard-E", relative, "ratio"));
        }
    }
    rows
}

fn prose_of_section_3_5() -> Vec<Item> {
    let pending = |name: &str, value: f64| row(name, value, "%").pending(PROGRAMS);
    let ksr = |name: &str, value: f64, unit, note: &str| history(name, value, unit, note);
    vec![
        pending("§3.5, Blizzard-S slower than E, least", 27.0),
        pending("§3.5, Blizzard-S slower than E, most", 108.0),
        pending("§3.5, Mp3d, Blizzard-S faster than E", 2.0)
            .note(format!("pending: {PROGRAMS}; the abstract: slightly faster to two times slower")),
        pending("§3.5, Blizzard-P slower than E, least", 74.0),
        pending("§3.5, Blizzard-P slower than E, most", 512.0),
        ksr("§3.5, KSR-1 slower than E, most", 20.0, "%", "Tomcatv"),
        ksr("§3.5, KSR-1 faster than E, most", 7.0, "times", "almost"),
        ksr("§1, KSR-1 faster than E, three programs, least", 2.4, "times", "Ocean"),
        ksr("§1, KSR-1 faster than E, three programs, most", 3.6, "times", "Appbt, Water"),
        ksr("§1, KSR-1 faster than E, two programs, least", 6.0, "times", "Barnes, Mp3d"),
        ksr("§3.5, Appbt, Ocean, Water: KSR-1 faster than E, most", 4.0, "times", "as its floating point is"),
        ksr("§3.5, KSR-1, clock", 20.0, "MHz", "two instructions at once"),
    ]
}

/// Until there are the six: a program with a regular exchange, on the systems that we have.
fn what_we_have_of_table_4(m: &Measured) -> Vec<Item> {
    let jacobi = |name: &str, ours: &str, classic: &str, note: &str| {
        row(&format!("for Table 4, Jacobi 1024², an iteration, {name}"), None, "µs").shorter(
            m.one(ours),
            m.one(classic),
            note,
        )
    };
    vec![
        jacobi("page (P), import", "jacobi Auto: jacobi, an iteration", "threads", "baseline: two threads"),
        jacobi("page (P), copy", "jacobi Copy: jacobi, an iteration", "threads", "baseline: two threads"),
        jacobi("one source in C, copy, beside two threads", STACHE, THREADS, ""),
        jacobi("… beside a page cache, homes in turn", STACHE, IN_TURN, "the cache: over Open MPI"),
        jacobi(
            "… beside a page cache, homes by blocks",
            STACHE,
            BY_BLOCKS,
            "the cache: over Open MPI, at its best",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_null_or_holds_by_construction() {
        for item in blizzard(&Measured::default()) {
            let is_constant = matches!(item.measured, Some(value) if [0.0, 2.0, 8.0, 128.0, 4096.0, 100.0 / 128.0].contains(&value));
            assert!(item.measured.is_none() || is_constant, "{}: {:?}", item.item, item.measured);
            assert_eq!(item.baseline, None, "{}", item.item);
        }
    }

    /// What the paper says of its tables in words.
    #[test]
    fn tables_and_words_agree() {
        for (program, _, seconds, relative) in SIX {
            for (of_system, relative) in seconds[1..].iter().zip(relative) {
                // Seconds are printed whole.
                let (least, most) =
                    ((of_system - 0.5) / (seconds[0] + 0.5), (of_system + 0.5) / (seconds[0] - 0.5));
                assert!((least - 0.005..=most + 0.005).contains(&relative), "{program}: {relative}");
            }
        }
        let most = |system: usize| SIX.iter().map(|program| program.3[system]).fold(0.0, f64::max);
        assert_eq!((most(0), most(2), most(3)), (2.08, 6.12, 1.20));
    }

    #[test]
    fn every_pending_row_says_what_it_waits_for() {
        let rows = blizzard(&Measured::default());
        let pending: Vec<_> = rows.iter().filter(|row| row.note.contains("pending")).collect();
        assert!(pending.len() > 60, "{}", pending.len());
        assert!(pending.iter().all(|row| row.measured.is_none() && row.note.contains("compiler")));
    }
}
