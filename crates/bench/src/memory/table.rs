//! What was measured, as rows: beside what, and what is wanted.

use super::page_program::{BY_BLOCKS, IN_TURN, RELEASE, STACHE, THREADS};
use super::{Measured, TWO_HOSTS};
use crate::memory_side::objects::{FEW, MANY, OF_OTHERS};
use crate::report::{Goal, Row};
use crate::two_hosts::{PRODUCTS, STENCILS};

impl Measured {
    pub(super) fn rows(&self) -> Vec<Row> {
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
        rows.push(beside(
            "… that, beside messages from memory into memory that is then read",
            "bulk Copy: sequential reading again, blocks of 65536",
            "MB/s",
            "messages of 61440 B, memory to memory",
            "bulk Copy: stream of messages of 61440, memory to memory",
            Goal::None,
        ));
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
        rows.extend(self.object_rows());
        rows.extend([
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

    /// What it is worth that neighbours in a page are guarded apart.
    fn object_rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (objects, how) in [(MANY, " in steps"), (FEW, "")] {
            for others in OF_OTHERS {
                let name = |guard: &str| {
                    self.one(&format!("objects Copy: changes of {objects} objects{how}, {others}, {guard}"))
                };
                let (ours, theirs) = (name("Mmu"), name("Page"));
                let part = match others {
                    0 => "no change".to_owned(),
                    others => format!("1 change in {}", 1000 / others),
                };
                rows.push(Row {
                    claim: format!(
                        "{objects} objects of 128 B among others'{how}, {part} is of others', mmu"
                    ),
                    ours,
                    unit: "1/s",
                    peer: "page".to_owned(),
                    theirs,
                    ratio: ours.zip(theirs).map(|(ours, theirs)| ours / theirs),
                    goal: Goal::AtLeast(3.0),
                    note: String::new(),
                });
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
