//! What was measured of compiled programs, as rows: beside what, and what is wanted.

use super::programs::{ALL, Compiler, Ran};
use super::{HOSTS_COMPILERS, Measured, PARTS, Part, What, has_a_goal, mean};
use crate::report::{Goal, Row};

fn row(claim: String, unit: &'static str) -> Row {
    let (peer, note) = (String::new(), String::new());
    Row { claim, ours: None, unit, peer, theirs: None, ratio: None, goal: Goal::None, note }
}

impl Measured {
    /// Of one part, or of all.
    pub(super) fn rows(&self, only: Option<Part>) -> Vec<Row> {
        let rows = |part: Part| match part {
            Part::Accesses => self.primitive_rows(),
            Part::Hits => self.hits(),
            Part::Import => ALL.iter().map(|name| self.import(name)).collect(),
            Part::Copies => self.copies(),
            Part::Hosts => self.two_hosts(),
            Part::Many => ALL.iter().map(|name| self.many(name)).collect(),
            Part::Compiling => vec![self.compile_time()],
        };
        PARTS.into_iter().filter(|&part| only.is_none_or(|only| only == part)).flat_map(rows).collect()
    }

    /// Seconds of ours beside theirs, ours by theirs.
    fn beside(
        &self,
        claim: String,
        name: &'static str,
        (what, compiler): (What, Compiler),
        (other, others): (What, Compiler),
        goal: Goal,
    ) -> Row {
        Row {
            ours: self.seconds(what, name, compiler),
            peer: format!("{others}"),
            theirs: self.seconds(other, name, others),
            ratio: self.by(name, (what, compiler), (other, others)),
            goal,
            note: self.why_not(what, name, compiler),
            ..row(claim, "s")
        }
    }

    fn primitive_rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (compiler, access) in
            [(Compiler::Check, "load"), (Compiler::Check, "store"), (Compiler::Hybrid, "store")]
        {
            rows.push(Row {
                ours: self.primitive(compiler, access),
                peer: "plain".to_owned(),
                theirs: self.primitive(Compiler::Plain, access),
                ratio: self.lookup(compiler, access),
                note: self.missing.get(&format!("lookup {compiler}")).cloned().unwrap_or_default(),
                ..row(format!("a {access} in the cache, {compiler}; ratio: what is added"), "ns")
            });
        }
        for (compiler, bytes, goal) in [
            (Compiler::Fine, "128 B", Goal::AtMost(3.0)),
            (Compiler::Check, "1 KB", Goal::None),
            (Compiler::Hybrid, "4 KB", Goal::None),
            (Compiler::Page, "4 KB", Goal::None),
        ] {
            for (name, claim, goal) in [("read", "read miss", goal), ("upgrade", "upgrade", Goal::None)] {
                let ours = self.primitive(compiler, name).map(|nanoseconds| nanoseconds / 1e3);
                let note = self.missing.get(&format!("misses {compiler}")).cloned().unwrap_or_default();
                rows.push(Row {
                    ours,
                    ratio: ours,
                    goal,
                    note,
                    ..row(format!("copy, {claim} of {bytes}, {compiler}"), "µs")
                });
            }
        }
        for (name, claim, most) in [
            ("found", "a miss that finds the right there after all: the way into the handler and back", 0.3),
            ("fence", "fence beside a thread that computes", 15.0),
        ] {
            let ours = self.primitive(Compiler::Check, name).map(|nanoseconds| nanoseconds / 1e3);
            rows.push(Row {
                ours,
                ratio: ours,
                goal: Goal::AtMost(most),
                note: self.missing.get("checked").cloned().unwrap_or_default(),
                ..row(claim.to_owned(), "µs")
            });
        }
        rows
    }

    fn hits(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (compiler, mean_goal, worst_goal) in
            [(Compiler::Check, 1.20, Goal::AtMost(1.40)), (Compiler::Hybrid, 1.10, Goal::None)]
        {
            let each = ALL.map(|name| self.by(name, (What::Hits, compiler), (What::Hits, Compiler::Plain)));
            // Of nine of ten nothing is said.
            let all: Option<Vec<f64>> = each.into_iter().collect();
            let worst = all.as_ref().and_then(|all| all.iter().copied().reduce(f64::max));
            let claim = |which: &str| format!("hits, {compiler}, {which}");
            rows.push(Row {
                ratio: all.as_deref().and_then(mean),
                goal: Goal::AtMost(mean_goal),
                peer: "plain".to_owned(),
                ..row(claim("geometric mean of ten"), "×")
            });
            rows.push(Row {
                ratio: worst,
                goal: worst_goal,
                peer: "plain".to_owned(),
                ..row(claim("worst"), "×")
            });
            let one = |name| {
                let (ours, theirs) = ((What::Hits, compiler), (What::Hits, Compiler::Plain));
                self.beside(claim(name), name, ours, theirs, Goal::None)
            };
            rows.extend(ALL.iter().map(|name| one(name)));
        }
        rows
    }

    fn import(&self, name: &'static str) -> Row {
        let (ours, theirs) = ((What::Import, Compiler::Page), (What::Threads, Compiler::Plain));
        let claim = format!("import, 2 components, {name}");
        Row { peer: "2 threads".to_owned(), ..self.beside(claim, name, ours, theirs, Goal::AtMost(1.02)) }
    }

    /// Check beside page, theirs by ours; the others for the record.
    fn copies(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for name in ALL {
            let goal = if has_a_goal(name) { Goal::AtLeast(2.0) } else { Goal::None };
            let [check, page] =
                [Compiler::Check, Compiler::Page].map(|compiler| self.least(What::Copy, name, compiler));
            let is_bound = matches!(page, Some(Ran::Unfinished(_)));
            rows.push(Row {
                ours: check.map(Ran::at_least),
                peer: "page".to_owned(),
                theirs: page.map(Ran::at_least),
                ratio: match (check, page) {
                    (Some(Ran::Seconds(check)), Some(page)) => Some(page.at_least() / check),
                    _ => None,
                },
                goal,
                note: if is_bound {
                    "page did not end: at least".to_owned()
                } else {
                    self.why_not(What::Copy, name, Compiler::Check)
                },
                ..row(format!("copy, 2 components, check, {name}"), "s")
            });
            for compiler in [Compiler::Fine, Compiler::Hybrid, Compiler::Mmu] {
                let ran = self.least(What::Copy, name, compiler);
                let unfinished = matches!(ran, Some(Ran::Unfinished(_)));
                rows.push(Row {
                    ours: ran.map(Ran::at_least),
                    note: if unfinished {
                        "did not end".to_owned()
                    } else {
                        self.why_not(What::Copy, name, compiler)
                    },
                    ..row(format!("copy, 2 components, {compiler}, {name}"), "s")
                });
            }
        }
        rows
    }

    /// One host by two: each program by each compiler, and the third best of the programs, each by what is best for it.
    fn two_hosts(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut gains = Vec::new();
        for name in ALL {
            let speed_up = |compiler| self.by(name, (What::OneHost, compiler), (What::TwoHosts, compiler));
            rows.extend(HOSTS_COMPILERS.map(|compiler| self.on_two(name, compiler, speed_up(compiler))));
            gains.extend(HOSTS_COMPILERS.into_iter().filter_map(speed_up).reduce(f64::max));
        }
        gains.sort_by(|one, other| other.total_cmp(one));
        rows.push(Row {
            ratio: gains.get(2).copied(),
            peer: "one host".to_owned(),
            goal: Goal::AtLeast(1.6),
            ..row("two hosts of one core, the third best".to_owned(), "×")
        });
        rows
    }

    fn on_two(&self, name: &'static str, compiler: Compiler, gain: Option<f64>) -> Row {
        let ran = self.least(What::TwoHosts, name, compiler);
        Row {
            ours: ran.map(Ran::at_least),
            peer: "one host".to_owned(),
            theirs: self.seconds(What::OneHost, name, compiler),
            ratio: gain,
            note: match (self.missing.get("two hosts"), ran) {
                (Some(reason), _) => reason.clone(),
                (None, Some(Ran::Unfinished(_))) => "did not end".to_owned(),
                (None, _) => self.why_not(What::TwoHosts, name, compiler),
            },
            ..row(format!("two hosts of one core, {name} by {compiler}"), "s")
        }
    }

    fn many(&self, name: &'static str) -> Row {
        let ran = self.least(What::Many, name, Compiler::Check);
        let is_right = match ran {
            Some(Ran::Seconds(_)) => 1.0,
            _ => 0.0,
        };
        Row {
            ours: ran.map(Ran::at_least),
            ratio: Some(is_right),
            goal: Goal::AtLeast(1.0),
            note: self.why_not(What::Many, name, Compiler::Check),
            ..row(format!("32 components, {name} is right"), "s")
        }
    }

    fn compile_time(&self) -> Row {
        let [ours, theirs] =
            [Compiler::Check, Compiler::Plain].map(|compiler| self.compile_seconds(compiler));
        Row {
            ours,
            peer: "clang".to_owned(),
            theirs,
            ratio: ours.zip(theirs).map(|(ours, theirs)| ours / theirs),
            goal: Goal::AtMost(1.5),
            ..row("compile time of all ten, check".to_owned(), "s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(ran: &[(What, Compiler, Ran)], names: &[&'static str]) -> Measured {
        let mut measured = Measured::default();
        for name in names {
            for (what, compiler, ran) in ran {
                measured.ran.entry((*what, *name, *compiler)).or_default().push(*ran);
            }
        }
        measured
    }

    fn find(rows: &[Row], claim: &str) -> Row {
        rows.iter().find(|row| row.claim == claim).unwrap_or_else(|| panic!("no row {claim:?}")).clone()
    }

    #[test]
    fn nothing_is_met_that_was_not_measured() {
        let rows = Measured::default().rows(None);
        assert!(rows.iter().all(|row| row.met() != Some(true)));
        assert!(rows.iter().filter_map(Row::met).count() > 25);
    }

    #[test]
    fn a_mean_is_of_all_programs_or_of_none() {
        let ran = [
            (What::Hits, Compiler::Plain, Ran::Seconds(1.0)),
            (What::Hits, Compiler::Check, Ran::Seconds(1.1)),
        ];
        let claim = "hits, check, geometric mean of ten";
        let ratio = find(&with(&ran, &ALL).rows(None), claim).ratio.unwrap();
        assert!((ratio - 1.1).abs() < 1e-9);
        assert_eq!(find(&with(&ran, &ALL[1..]).rows(None), claim).ratio, None);
    }

    #[test]
    fn what_did_not_end_is_a_bound_for_the_peer_and_nothing_for_us() {
        let claim = "copy, 2 components, check, mp3d";
        let slow_page = [
            (What::Copy, Compiler::Check, Ran::Seconds(2.0)),
            (What::Copy, Compiler::Page, Ran::Unfinished(60.0)),
        ];
        let row = find(&with(&slow_page, &["mp3d"]).rows(None), claim);
        assert_eq!((row.ratio, row.met()), (Some(30.0), Some(true)));
        assert!(row.note.contains("at least"));
        let slow_check = [
            (What::Copy, Compiler::Check, Ran::Unfinished(60.0)),
            (What::Copy, Compiler::Page, Ran::Seconds(2.0)),
        ];
        assert_eq!(find(&with(&slow_check, &["mp3d"]).rows(None), claim).met(), Some(false));
    }

    #[test]
    fn three_programs_have_to_gain_by_a_second_host() {
        let ran = [
            (What::OneHost, Compiler::Page, Ran::Seconds(1.7)),
            (What::TwoHosts, Compiler::Page, Ran::Seconds(1.0)),
        ];
        let claim = "two hosts of one core, the third best";
        assert_eq!(find(&with(&ran, &["lu", "fft"]).rows(None), claim).met(), Some(false));
        assert_eq!(find(&with(&ran, &["lu", "fft", "water"]).rows(None), claim).met(), Some(true));
    }

    #[test]
    fn on_two_hosts_each_program_has_a_row_for_each_compiler_also_what_did_not_end() {
        let ran = [
            (What::OneHost, Compiler::Page, Ran::Seconds(1.7)),
            (What::TwoHosts, Compiler::Page, Ran::Unfinished(30.0)),
        ];
        let rows = with(&ran, &["fft"]).rows(Some(Part::Hosts));
        assert_eq!(rows.len(), ALL.len() * HOSTS_COMPILERS.len() + 1);
        let row = find(&rows, "two hosts of one core, fft by page");
        assert_eq!((row.ours, row.ratio, row.note.as_str()), (Some(30.0), None, "did not end"));
    }

    #[test]
    fn parts_are_all_there_is_and_have_no_row_in_common() {
        let claims =
            |only| Measured::default().rows(only).into_iter().map(|row| row.claim).collect::<Vec<_>>();
        let of_parts: Vec<_> = PARTS.into_iter().flat_map(|part| claims(Some(part))).collect();
        assert_eq!(of_parts, claims(None));
        let different: std::collections::BTreeSet<_> = of_parts.iter().collect();
        assert_eq!(different.len(), of_parts.len());
    }
}
