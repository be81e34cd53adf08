//! The Cache Kernel's tables and claims, each with what was measured for it.

use super::Measured;
use crate::items::item;
use crate::reproduce::Item;

const SIZES: [(&str, f64, f64); 4] = [
    ("kernel", 2160.0, 16.0),
    ("address space", 60.0, 64.0),
    ("thread", 532.0, 256.0),
    ("memory mapping", 16.0, 65_536.0),
];
/// In microseconds, on a 68040 of 25 MHz: load, load with writeback, unload.
pub(super) const TIMES: [(&str, [f64; 3]); 4] = [
    ("mapping", [45.0, 145.0, 160.0]),
    ("thread", [113.0, 489.0, 206.0]),
    ("address space", [101.0, 229.0, 152.0]),
    ("kernel", [244.0, 291.0, 80.0]),
];
const NAMES: [&str; 3] = ["load", "load with writeback", "unload"];

/// All of them; without numbers of ours, if nothing was measured.
pub(crate) fn items(measured: &Measured) -> Vec<Item> {
    let row = |name: &str, value: f64, unit| item("cache-kernel", name, value, unit);
    let unsaid = |name: &str| item("cache-kernel", name, None, "×");
    let mut rows = Vec::new();
    for (index, (object, bytes, places)) in SIZES.into_iter().enumerate() {
        let size = row(&format!("Table 1, {object}, size"), bytes, "B").ours(measured.bytes[index]);
        rows.push(match object {
            "thread" => {
                size.note("its state is in its area: 32 KB of addresses, of which some 16 are touched")
            }
            "address space" => size.note("its mappings' entries are the host's kernel's"),
            _ => size,
        });
        rows.push(
            row(&format!("Table 1, {object}, places in the cache"), places, "").ours(measured.places[index]),
        );
    }
    for ((object, paper), ours) in TIMES.into_iter().zip(measured.times) {
        for ((name, paper), ours) in NAMES.into_iter().zip(paper).zip(ours) {
            rows.push(row(&format!("Table 2, {object}, {name}"), paper, "µs").ours(ours));
        }
        if object == "mapping" {
            rows.push(
                row("Table 2, mapping, optimised, load", 67.0, "µs")
                    .ours(measured.fault.zip(measured.call).map(|(fault, call)| fault - call))
                    .note("a fault with the load, without what a call takes"),
            );
        }
    }
    let [memory, all] = measured.lines;
    let [of_mappings, of_threads, of_spaces] = measured.thrashing.factors();
    rows.extend([
        row("§5.1, virtual memory code", 1500.0, "lines")
            .ours(memory)
            .note("lines that are neither empty nor comments; the V kernel: 13,087; SunOS 4.1.2: 14,400"),
        row("§5.1, all code", 14_958.0, "lines").ours(all).note("40 % of the paper's is the PROM's monitor and boot support"),
        row("§5.1, binary and data", 139.0, "KB").pending("it is one program with all else of Comb"),
        row("§5.2, space of mapping descriptors by what they map", 0.4, "%")
            .ours(measured.share)
            .note("16 bytes of 4096, as the paper's; with its part of the indexes 20"),
        unsaid("§5.2, a turn with twice as many pages as places, by one with half as many")
            .ours(of_mappings)
            .note("the paper has no number: a program with less locality than the cache has places for is slow anyway, it says"),
        unsaid("§5.2, the same of threads").ours(of_threads),
        unsaid("§5.2, the same of spaces").ours(of_spaces),
        row("§5.2, Mp3d, slower for particles on too many pages, most", 25.0, "%")
            .ours(measured.locality.map(|is| (is.over_all / is.in_order - 1.0) * 100.0))
            .note("a step of the same molecules scattered over 7,680 pages, by one that goes over them in their order in memory; there is room for all of them, and for their mappings. The paper's processors do not read ahead"),
        unsaid("§5.2, Mp3d, particles scattered over all pages, by such scattered over four at a time")
            .ours(measured.locality.map(|is| is.over_all / is.over_few))
            .note("what the number of pages takes where the processor can read ahead in neither; what it is with more pages than places for mappings is said above, of turns"),
        row("§5.3, trap to the emulator (getpid)", 37.0, "µs").shorter(
            measured.call,
            measured.by_ptrace,
            "baseline: ptrace; 12 more than Mach 2.5, says the paper",
        ),
        row("§5.3, signal to a thread on another processor", 71.0, "µs")
            .ours(measured.message)
            .note("to one that spins, there and not back; the paper's: 44 there, 27 back"),
        row("§5.3, page fault", 99.0, "µs")
            .ours(measured.fault)
            .classic(measured.native_fault)
            .note("baseline: the host's own fault, which no other process decides; the paper's: 32 to the application kernel, 67 to load and go on"),
    ]);
    rows
}
