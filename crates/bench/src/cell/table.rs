//! What was measured, as rows: beside what, what is wanted, and what Hive had.

use super::measured::Measured;
use super::programs::{CELLS, PROGRAMS};
use super::{PARTS, Part};
use crate::report::{Goal, Row};

pub(super) fn rows(measured: &Measured, only: Option<Part>) -> Vec<Row> {
    let table = Table { measured };
    let parts = PARTS.into_iter().filter(|part| only.is_none_or(|only| only == *part));
    parts.flat_map(|part| table.part(part)).collect()
}

struct Table<'a> {
    measured: &'a Measured,
}

/// Nanoseconds in them.
const MICROSECOND: f64 = 1e-3;
const MILLISECOND: f64 = 1e-6;

impl Table<'_> {
    fn part(&self, part: Part) -> Vec<Row> {
        let mut rows = match part {
            Part::Careful => self.careful(),
            Part::Firewall => self.firewall(),
            Part::Rpc => self.calls(),
            Part::Fault => self.faults(),
            Part::Recovery => self.recovery(),
            Part::Rest => self.rest(),
            Part::Programs => self.programs(),
        };
        if let Some(why) = self.measured.why_not(part) {
            let why = why.lines().next().unwrap_or_default();
            rows.iter_mut().filter(|row| row.ours.is_none()).for_each(|row| why.clone_into(&mut row.note));
        }
        rows
    }

    /// A number of its own, in a unit of which one of the samples' has so many.
    fn row(
        &self,
        claim: &str,
        name: &str,
        (unit, scale): (&'static str, f64),
        goal: Goal,
        history: &str,
    ) -> Row {
        let ours = self.measured.median(name).map(|value| value * scale);
        let notes = [history.to_owned(), self.measured.scatter(name, scale)];
        let notes: Vec<String> = notes.into_iter().filter(|note| !note.is_empty()).collect();
        Row {
            claim: claim.to_owned(),
            ours,
            unit,
            peer: String::new(),
            theirs: None,
            ratio: ours,
            goal,
            note: notes.join("; "),
        }
    }

    /// Beside another of the same run.
    fn beside(&self, row: Row, peer: &str, theirs: Option<f64>) -> Row {
        let ratio = row.ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
        Row { peer: peer.to_owned(), theirs, ratio, ..row }
    }

    fn careful(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (bytes, goal) in
            [(8, Goal::AtMost(5.0)), (64, Goal::AtMost(5.0)), (256, Goal::None), (4096, Goal::None)]
        {
            let history =
                if bytes == 8 { "Hive: 1160 with its section, of which 700 are a cache miss" } else { "" };
            rows.push(self.row(
                &format!("careful read, {bytes} B"),
                &format!("read {bytes} B"),
                ("ns", 1.0),
                goal,
                history,
            ));
        }
        let ns = |claim, name| self.row(claim, name, ("ns", 1.0), Goal::None, "");
        rows.extend([
            ns("… 8 B with a section of its own", "section and read 8 B"),
            ns("… the tick", "tick"),
            ns("an update by the cell itself, 8 B", "update 8 B"),
            self.row(
                "careful read of memory that is gone",
                "dead",
                ("µs", MICROSECOND),
                Goal::AtMost(5.0),
                "",
            ),
        ]);
        rows
    }

    fn firewall(&self) -> Vec<Row> {
        let us = |claim: &str, name: &str, goal| self.row(claim, name, ("µs", MICROSECOND), goal, "");
        // Each pair ran by turns: the ratio is that of pairs, not of medians.
        let by_plain = |claim: &str, what: &str, history: &str| {
            let in_us =
                |way: &str| self.measured.median(&format!("{way} {what}")).map(|value| value * MICROSECOND);
            let pairs =
                self.row(claim, &format!("guarded by plain {what}"), ("µs", 1.0), Goal::None, history);
            Row { ours: in_us("guarded"), theirs: in_us("plain"), peer: "plain mapping".to_owned(), ..pairs }
        };
        let late = self.row(
            "stores that land after a revoke has returned",
            "late stores",
            ("", 1.0),
            Goal::AtMost(0.0),
            "",
        );
        let trials = self.measured.median("trials").unwrap_or_default();
        vec![
            us("grant", "grant", Goal::AtMost(3.0)),
            us("grant, from the store that is stopped until it goes on", "first store", Goal::AtMost(10.0)),
            us("revoke 1 page", "revoke 1", Goal::AtMost(20.0)),
            us("revoke 1000 contiguous pages", "revoke 1000", Goal::AtMost(300.0)),
            us("revoke 500 pages that do not touch", "revoke apart", Goal::None),
            us("take 1 page away, with its content", "take", Goal::None),
            Row { note: format!("{trials} revokes under stores"), ..late },
            by_plain(
                "guarded: stores that miss the cache, there and back",
                "store that misses",
                "Hive: 1.063 (pmake), 1.044 (ocean) for a miss; here two of them and two loads",
            ),
            by_plain(
                "guarded: first store to a page",
                "first store",
                "a question to the home, beside a fault that the kernel resolves",
            ),
            by_plain(
                "guarded: a program from its first store to its end",
                "whole",
                "Hive: little overall effect; Jacobi 1024², two processes",
            ),
            by_plain("guarded: its iterations, pages granted", "iterations", ""),
        ]
    }

    fn calls(&self) -> Vec<Row> {
        let us = |claim: &str, name: &str, goal, history: &str| {
            self.row(claim, name, ("µs", MICROSECOND), goal, history)
        };
        let in_us = |name: &str| self.measured.median(name).map(|value| value * MICROSECOND);
        let null = us(
            "null call, there and back",
            "null call",
            Goal::AtMost(2.0),
            "Hive: 7.2 µs, of which 2 are its SIPS",
        );
        let bare = us("… beside the bare cache line", "null call", Goal::None, "");
        let socket = us("… beside a Unix socket, spinning", "null call", Goal::None, "");
        let asleep = us("… beside a Unix socket, sleeping", "null call", Goal::None, "");
        let queued =
            us("queued null call", "queued call", Goal::AtMost(1.0), "Hive: 34 µs, 4.7 × its null call");
        let allowed = in_us("null call").zip(in_us("wake-up")).map(|(null, wake)| 3.0 * null + wake);
        vec![
            null,
            self.beside(bare, "bare cache line", in_us("bare")),
            self.beside(socket, "spinning socket", in_us("spinning socket")),
            self.beside(asleep, "socket", in_us("socket")),
            self.beside(queued, "3 null + 1 wake-up", allowed),
            us("wake-up of a thread on the other core", "wake-up", Goal::None, ""),
            us("call with 40 B, by value", "call with 40 B", Goal::None, "Hive: 9.6 µs for a common request"),
            us("call with 1 KB, by value", "call with 1 KB", Goal::None, ""),
            us("call with 16 KB, by reference", "call with 16 KB", Goal::None, ""),
        ]
    }

    fn faults(&self) -> Vec<Row> {
        let us = |claim: &str, name: &str, goal, history: &str| {
            self.row(claim, name, ("µs", MICROSECOND), goal, history)
        };
        let in_us = |name: &str| self.measured.median(name).map(|value| value * MICROSECOND);
        let share = self.row(
            "part of a batch's time that is remote faults",
            "share of a batch",
            ("%", 100.0),
            Goal::None,
            "40 processes, 256 pages each",
        );
        vec![
            self.beside(
                us(
                    "fault that hits in the home, reading",
                    "remote fault",
                    Goal::AtMost(5.0),
                    "Hive: 50.7 µs, 7.4 × a local one",
                ),
                "local fault",
                in_us("local fault"),
            ),
            us("… of it: the kernel stops the thread, and it goes on", "stopped", Goal::None, ""),
            us("… of it: the home makes the entries of 64 KB", "shown", Goal::None, ""),
            self.beside(
                us("a page in order, 64 KB at a time", "remote page", Goal::AtMost(2.5), ""),
                "local page",
                in_us("local page"),
            ),
            Row { ratio: None, ..share },
        ]
    }

    fn recovery(&self) -> Vec<Row> {
        let ms = |claim: &str, name: &str, goal, history: &str| {
            self.row(claim, name, ("ms", MILLISECOND), goal, history)
        };
        let most = |row: Row, name: &str| {
            let most = self
                .measured
                .most(name)
                .map_or(String::new(), |most| format!("; at most {:.1}", most * MILLISECOND));
            Row { note: format!("{}{most}", row.note), ..row }
        };
        let busy = self
            .measured
            .median("runnable a core")
            .map_or(String::new(), |busy| format!("{busy:.1} runnable threads a core meanwhile"));
        let entered = |fault: &str, goal, history: &str| {
            let name = format!("{fault} entered");
            most(
                ms(
                    &format!("{fault}: until the last cell enters recovery"),
                    &name,
                    Goal::AtMost(goal),
                    history,
                ),
                &name,
            )
        };
        let resumed = |fault: &str, history: &str| {
            let name = format!("{fault} resumed");
            most(ms(&format!("{fault}: until the last cell goes on"), &name, Goal::None, history), &name)
        };
        let whole = |fault: &str| {
            let name = format!("{fault} recovery");
            most(
                ms(
                    &format!("{fault}: from the first cell in recovery to the last that goes on"),
                    &name,
                    Goal::AtMost(25.0),
                    "Hive: 40–80 ms",
                ),
                &name,
            )
        };
        let fence = |pages: usize, goal| {
            let found = self.measured.median(&format!("pages of {pages}")).unwrap_or_default();
            let row = ms(
                &format!("fence and discard of {pages} pages"),
                &format!("fence of {pages}"),
                Goal::AtMost(goal),
                "",
            );
            Row { note: format!("{}; {found} pages discarded", row.note), ..row }
        };
        vec![
            entered("crash", 5.0, &format!("Hive: 16–21 ms in the mean, 45 at most; {busy}")),
            resumed("crash", ""),
            whole("crash"),
            entered("hang", 25.0, ""),
            resumed("hang", ""),
            whole("hang"),
            fence(42, 1.0),
            fence(550, 5.0),
            self.row("false suspicions beside 32 hogs", "false suspicions", ("", 1.0), Goal::AtMost(0.0), ""),
        ]
    }

    fn rest(&self) -> Vec<Row> {
        vec![
            self.row("a cell at rest, part of a core", "core at rest", ("%", 100.0), Goal::AtMost(0.5), ""),
            self.beside(
                self.row(
                    "… beside a process that only wakes as often as it ticks",
                    "core at rest",
                    ("%", 100.0),
                    Goal::None,
                    "",
                ),
                "as many wake-ups",
                self.measured.median("core for wake-ups").map(|share| share * 100.0),
            ),
            self.row("a cell at rest, memory (Pss)", "memory at rest", ("MB", 1e-6), Goal::AtMost(20.0), ""),
        ]
    }

    fn programs(&self) -> Vec<Row> {
        let slower = |claim: String, name: String, goal: Goal, history: &str| {
            let row = self.row(&claim, &name, ("×", 1.0), goal, history);
            let digits = 3;
            let bounds = self.measured.quantile(&name, 0.0).zip(self.measured.quantile(&name, 1.0));
            let bounds =
                bounds.map_or(String::new(), |(least, most)| format!("{least:.digits$}–{most:.digits$}; "));
            Row { note: format!("{bounds}{history}"), ..row }
        };
        let mut rows = Vec::new();
        for name in PROGRAMS {
            for cells in CELLS {
                let history = match (name, cells) {
                    ("ocean", 1 | 2) => "Hive: 1.01",
                    ("ocean", 4) => "Hive: 0.99",
                    ("raytrace", 1 | 2) => "Hive: 1.00",
                    ("raytrace", 4) => "Hive: 1.01",
                    _ => "",
                };
                let goal = if cells == 4 { Goal::AtMost(1.01) } else { Goal::None };
                let claim = format!("{name}, {cells} cells by threads of one process");
                rows.push(slower(claim, format!("{name} on {cells} by threads"), goal, history));
            }
            let claim = format!("{name}, 4 components in cells by the same outside");
            rows.push(slower(claim, format!("{name} in cells by outside"), Goal::AtMost(1.01), ""));
        }
        for (what, claim) in
            [("empty", "processes that do nothing"), ("computing", "processes that compute for 50 ms")]
        {
            let history = "Hive: 1.11 for pmake";
            rows.push(slower(
                format!("{claim}, in cells by comb run outside"),
                format!("{what} in cells by outside"),
                Goal::AtMost(1.08),
                history,
            ));
            rows.push(slower(
                format!("{claim}, in cells by fork and exec"),
                format!("{what} in cells by plain"),
                Goal::None,
                "",
            ));
            let plain = self.row(
                &format!("{claim}, by fork and exec"),
                &format!("{what} plain"),
                ("ms", MILLISECOND),
                Goal::None,
                "",
            );
            rows.push(Row { ratio: None, ..plain });
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_lost_and_says_why() {
        let mut measured = Measured::default();
        measured.lacks(Part::Rpc, "no second core".to_owned());
        let rows = rows(&measured, Some(Part::Rpc));
        let null = &rows[0];
        assert_eq!((null.ours, null.met(), null.note.as_str()), (None, Some(false), "no second core"));
    }

    #[test]
    fn every_part_has_a_goal() {
        for part in PARTS {
            let has_goal = rows(&Measured::default(), Some(part)).iter().any(|row| row.goal != Goal::None);
            assert!(has_goal, "{part:?}");
        }
    }
}
