//! What the Blizzard paper says (Schoinas and others, ASPLOS 1994), each with what was measured for it.

use crate::cc::programs::{Compiler, Ran};
use crate::cc::{self, What, figure_1};
use crate::items::{NO_NUMBER, item};
use crate::memory::{BY_BLOCKS, IN_TURN, Measured, STACHE, THREADS};
use crate::reproduce::Item;

const PAPER: &str = "blizzard";
const HISTORY: &str = "history: hardware of 1994 or before";

/// All rows, in the paper's order: of memory, of compiled programs, and of the figure.
pub(crate) fn blizzard(m: &Measured, c: &cc::Measured, f: &figure_1::Measured) -> Vec<Item> {
    let mut rows = grain(m);
    rows.extend(table_2_of_others());
    rows.extend(table_2_of_blizzard(m, c));
    rows.extend(prose_of_section_2());
    rows.extend(figure_1_rows(f));
    rows.extend(section_3(m, c));
    rows.extend(table_4(c));
    rows.extend(prose_of_section_3_5(c));
    rows.extend(beside_table_4(m));
    rows
}

fn row(name: &str, value: impl Into<Option<f64>>, unit: &'static str) -> Item {
    item(PAPER, name, value, unit)
}

fn history(name: &str, value: f64, unit: &'static str, note: &str) -> Item {
    row(name, value, unit).note(format!("{HISTORY}; {note}"))
}

fn grain(m: &Measured) -> Vec<Item> {
    let rate = |guard| m.one(&format!("objects Copy: changes of 4096 objects in steps, 0, {guard}"));
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
fn table_2_of_blizzard(m: &Measured, c: &cc::Measured) -> Vec<Item> {
    let cycles = |nanoseconds: Option<f64>| Some(nanoseconds? * m.cycles_a_nanosecond?);
    let lookup = |compiler, access| cycles(c.lookup(compiler, access));
    let miss = |compiler, name| cycles(c.primitive(compiler, name));
    let added = "what a load that hits takes more, others under way beside it";
    let store = "what a store that hits takes more: its check and it are one restartable sequence";
    let with_invocation = "not measured apart: is within the invocation";
    let found = "a miss that finds the right there after all: into the handler, its lock, and back";
    let in_cycles = |name: &str| Some(m.one(name)? * m.cycles_a_nanosecond?);
    let hits = |guard: &str, name: &str| match m.one(name) {
        Some(ratio) => format!("no instruction is added; loads that hit: {ratio:.3} × {guard}"),
        None => "no instruction is added".to_owned(),
    };
    let one_cost = "not measured apart: is within the invocation, for the MMU finds out while it translates";
    let raw = in_cycles("misses Copy: raw round trip of a page");
    let invoked = |guard: &str| in_cycles(&format!("delivery Auto: fault delivered, {guard}"));
    let by_mprotect =
        |guard: &str| in_cycles(&format!("delivery without userfaultfd: fault delivered, {guard}"));
    let from_load = "from the load to the handler's first instruction; baseline: stopped by mprotect";
    let mut rows = vec![
        table_2("Blizzard-S", "block", 32.0, "B").ours(Some(128.0)).note("check: 128 B to 64 KB; 1 KB where nothing else is said"),
        table_2("Blizzard-S", "lookup, no action", 18.0, "cycles").ours(lookup(Compiler::Check, "load")).note(added),
        table_2("Blizzard-S, stores", "lookup, no action", 18.0, "cycles").ours(lookup(Compiler::Check, "store")).note(store),
        table_2("Blizzard-S", "lookup, action needed", 18.0, "cycles").note(with_invocation),
        table_2("Blizzard-S", "invocation", 25.0, "cycles").ours(miss(Compiler::Check, "found")).note(found),
        table_2("Blizzard-S", "remote miss", 6000.0, "cycles").ours(miss(Compiler::Fine, "read")).classic(raw).note(
            "check, 128 B, from the compiled load until it has its value, by copy; baseline: 32 B there and 4 KB back over the same channels",
        ),
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
        table_2("Blizzard-ES", "block", 32.0, "B").ours(Some(4096.0)).note("hybrid: 4 to 64 KB, since the MMU stops loads"),
        table_2("Blizzard-ES, loads", "lookup, no action", 0.0, "cycles").ours(Some(0.0)).note("no instruction is added"),
        table_2("Blizzard-ES, loads", "lookup, action needed", 10.0, "cycles").note(one_cost),
        table_2("Blizzard-ES, loads", "invocation", 250.0, "cycles").shorter(
            invoked("page"),
            by_mprotect("page"),
            from_load,
        ),
        table_2("Blizzard-ES, stores", "lookup, no action", 18.0, "cycles").ours(lookup(Compiler::Hybrid, "store")).note(store),
        table_2("Blizzard-ES, stores", "lookup, action needed", 18.0, "cycles").note(with_invocation),
        table_2("Blizzard-ES, stores", "invocation", 25.0, "cycles").ours(miss(Compiler::Check, "found")).note(found),
        table_2("Blizzard-ES", "remote miss", 6000.0, "cycles").ours(miss(Compiler::Hybrid, "read")).classic(raw).note("4 KB"),
        table_2("Blizzard-ES", "upgrade, not in the table", None, "cycles").ours(miss(Compiler::Hybrid, "upgrade")).note(
            "a store to a page that may be read: by the check, no fault",
        ),
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

fn figure_1_rows(f: &figure_1::Measured) -> Vec<Item> {
    let mut rows = Vec::new();
    for name in figure_1::PROGRAMS {
        for lookup in figure_1::LOOKUPS {
            for invocation in figure_1::INVOCATIONS {
                let name_of = format!(
                    "Figure 1, {name}, lookup + {lookup} cycles, invocation + {invocation} ns, by ideal"
                );
                rows.push(row(&name_of, None, "ratio").ours(f.by_ideal(name, lookup, invocation)).note(
                    "time by that of components that share page frames; a figure without numbers in the text",
                ));
            }
        }
    }
    let least = |ratios: Vec<f64>| ratios.into_iter().reduce(f64::min);
    let most = |ratios: Vec<f64>| ratios.into_iter().reduce(f64::max);
    let as_they_are = || figure_1::PROGRAMS.into_iter().filter_map(|name| f.by_ideal(name, 0, 0)).collect();
    let no_lookup = "ours has lookups, that of the paper none; nor is its ideal ours";
    rows.push(
        row("§2.5, ideal by realistic, least", 2.2, "ratio").ours(least(as_they_are())).note(no_lookup),
    );
    rows.push(row("§2.5, ideal by realistic, most", 2.8, "ratio").ours(most(as_they_are())).note(no_lookup));
    let costs = |lookup, invocation| {
        Some(100.0 * (f.by_ideal("barnes", lookup, invocation)? / f.by_ideal("barnes", 0, 0)? - 1.0))
    };
    let words = "1000 cycles more of invocation cost Barnes less than 5 more of lookup";
    rows.push(
        row("§2.5, Barnes, time that 400 ns more of invocation cost", None, "%")
            .ours(costs(0, 400))
            .note(words),
    );
    rows.push(row("§2.5, … and 5 cycles more of lookup", None, "%").ours(costs(5, 0)).note(words));
    rows
}

fn section_3(m: &Measured, c: &cc::Measured) -> Vec<Item> {
    let lookup = c.lookup(Compiler::Check, "load").zip(m.cycles_a_nanosecond).map(|(ns, cycles)| ns * cycles);
    let state = "a byte for each 128 B of frames, which the compiler's lookup is to read";
    let megabytes = |place: &str| m.one(&format!("metadata Copy: metadata of a terabyte, {place}"));
    vec![
        history("§3.1, CM-5, clock", 33.0, "MHz", "SPARC"),
        history("§3.1, CM-5, cache of a node", 64.0, "KB", "direct-mapped, unified"),
        history("§3.1, CM-5, memory of a node, most", 128.0, "MB", ""),
        row("§3.2, Blizzard-S, instructions of a lookup", 15.0, "instr.").ours(Some(2.0)).note(
            "check, of a load: what it found is compared with the flag, and a branch; a store takes more",
        ),
        row("§3.2, Blizzard-S, a lookup that hits", 18.0, "cycles").ours(lookup),
        row("§3.2, Blizzard-S, block", 32.0, "B").ours(Some(128.0)),
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
        row("§3.5, block of the measured programs", 128.0, "B")
            .ours(Some(1024.0))
            .note("by check; 4 KB by page"),
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

/// Whose programs are compiled how here; nothing stands for the KSR-1.
const COMPILERS: [Option<Compiler>; 5] =
    [Some(Compiler::Mmu), Some(Compiler::Check), Some(Compiler::Hybrid), Some(Compiler::Page), None];

/// The name of a program of the paper here.
fn here(program: &str) -> &'static str {
    cc::programs::BLIZZARDS.into_iter().find(|name| name.eq_ignore_ascii_case(program)).unwrap_or_default()
}

/// What a program takes on two components with copies; at least so much, where it was ended.
fn on_two(c: &cc::Measured, program: &str, compiler: Compiler) -> Option<Ran> {
    c.least(What::Copy, here(program), compiler)
}

/// By Blizzard-E.
fn relative(c: &cc::Measured, program: &str, compiler: Compiler) -> Option<f64> {
    match on_two(c, program, Compiler::Mmu)? {
        Ran::Seconds(by_e) => Some(on_two(c, program, compiler)?.at_least() / by_e),
        Ran::Unfinished(_) => None,
    }
}

fn table_4(c: &cc::Measured) -> Vec<Item> {
    let mut rows = Vec::new();
    for (program, input, seconds, of_paper) in SIX {
        let of_paper = [1.0].into_iter().chain(of_paper);
        for (((system, seconds), of_paper), compiler) in
            SYSTEMS.into_iter().zip(seconds).zip(of_paper).zip(COMPILERS)
        {
            let name = format!("Table 4, {program}, {system}");
            let (took, by_e) =
                (row(&name, seconds, "s"), row(&format!("{name}, by Blizzard-E"), of_paper, "ratio"));
            let Some(compiler) = compiler else {
                let note = format!("{HISTORY}; {input} (Table 3)");
                rows.extend([took.note(note.clone()), by_e.note(note)]);
                continue;
            };
            let ran = on_two(c, program, compiler);
            let ended =
                if matches!(ran, Some(Ran::Unfinished(_))) { "; ended after a minute: at least" } else { "" };
            let note = format!(
                "{compiler}, 2 components, {}; there 32 nodes, {input} (Table 3){ended}",
                if program == "Ocean" { "258×258, 4 days" } else { "the same input" }
            );
            rows.push(took.ours(ran.map(Ran::at_least)).note(note.clone()));
            rows.push(by_e.ours(relative(c, program, compiler)).note(note));
        }
        let fine = on_two(c, program, Compiler::Fine).map(Ran::at_least);
        rows.push(
            row(&format!("… {program}, check by blocks of 128 B"), None, "s").ours(fine).note(NO_NUMBER),
        );
    }
    rows
}

fn prose_of_section_3_5(c: &cc::Measured) -> Vec<Item> {
    let all = |compiler| SIX.into_iter().filter_map(move |(program, ..)| relative(c, program, compiler));
    let slower = |ratio: Option<f64>| ratio.map(|ratio| 100.0 * (ratio - 1.0));
    let but_mp3d = || {
        let programs = SIX.into_iter().filter(|(program, ..)| *program != "Mp3d");
        programs.filter_map(|(program, ..)| relative(c, program, Compiler::Check))
    };
    let percent = |name: &str, value: f64, ratio: Option<f64>| row(name, value, "%").ours(slower(ratio));
    let ksr = |name: &str, value: f64, unit, note: &str| history(name, value, unit, note);
    vec![
        percent("§3.5, Blizzard-S slower than E, least", 27.0, but_mp3d().reduce(f64::min))
            .note("without Mp3d"),
        percent("§3.5, Blizzard-S slower than E, most", 108.0, but_mp3d().reduce(f64::max))
            .note("without Mp3d"),
        row("§3.5, Mp3d, Blizzard-S faster than E", 2.0, "%")
            .ours(relative(c, "Mp3d", Compiler::Check).map(|ratio| 100.0 * (1.0 - ratio)))
            .note("the abstract: slightly faster to two times slower"),
        percent("§3.5, Blizzard-P slower than E, least", 74.0, all(Compiler::Page).reduce(f64::min)),
        percent("§3.5, Blizzard-P slower than E, most", 512.0, all(Compiler::Page).reduce(f64::max)),
        ksr("§3.5, KSR-1 slower than E, most", 20.0, "%", "Tomcatv"),
        ksr("§3.5, KSR-1 faster than E, most", 7.0, "times", "almost"),
        ksr("§1, KSR-1 faster than E, three programs, least", 2.4, "times", "Ocean"),
        ksr("§1, KSR-1 faster than E, three programs, most", 3.6, "times", "Appbt, Water"),
        ksr("§1, KSR-1 faster than E, two programs, least", 6.0, "times", "Barnes, Mp3d"),
        ksr("§3.5, Appbt, Ocean, Water: KSR-1 faster than E, most", 4.0, "times", "as its floating point is"),
        ksr("§3.5, KSR-1, clock", 20.0, "MHz", "two instructions at once"),
    ]
}

/// A program with a regular exchange beside other systems, which the six do not run on.
fn beside_table_4(m: &Measured) -> Vec<Item> {
    let jacobi = |name: &str, ours: &str, classic: &str, note: &str| {
        row(&format!("beside Table 4, Jacobi 1024², an iteration, {name}"), None, "µs").shorter(
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
        for item in blizzard(&Measured::default(), &cc::Measured::default(), &figure_1::Measured::default()) {
            let is_constant = matches!(item.measured, Some(value) if [0.0, 2.0, 8.0, 128.0, 1024.0, 4096.0, 100.0 / 128.0].contains(&value));
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
    fn every_program_of_the_paper_is_one_of_ours() {
        for (program, ..) in SIX {
            assert_eq!(here(program), program.to_lowercase());
        }
    }
}
