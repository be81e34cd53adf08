//! Blizzard's Figure 1, on programs that run: what a lookup costs against what an invocation costs.

use std::collections::BTreeMap;

use super::programs::{Compiler, Ran, Way, Workshop};
use super::{Outcome, copy_size};
use crate::figure::{Curve, Drawing, Figure};

/// The two of the figure are not named but one, Barnes; the other here is one with regular exchange.
pub(crate) const PROGRAMS: [&str; 2] = ["barnes", "ocean"];

/// What a lookup costs more, in cycles.
pub(crate) const LOOKUPS: [u32; 4] = [0, 5, 10, 20];

/// What an invocation costs more, in nanoseconds.
pub(crate) const INVOCATIONS: [u32; 3] = [0, 100, 400];

const ROUNDS: usize = 3;

/// The variable that makes each miss cost so many nanoseconds more.
const INVOCATION_VARIABLE: &str = "COMB_INVOCATION_COST";

/// Seconds.
#[derive(Default)]
pub(crate) struct Measured {
    /// By program, lookup and invocation.
    realistic: BTreeMap<(&'static str, u32, u32), f64>,
    /// Where nothing is ever looked up nor missed: components that share page frames.
    ideal: BTreeMap<&'static str, f64>,
}

/// Compiles the programs anew for each cost, and runs them on two components with copies.
pub(crate) fn measure(talks: bool) -> Outcome<Measured> {
    let shop = Workshop::open()?;
    let mut measured = Measured::default();
    shop.build(Compiler::Page)?;
    for lookup in LOOKUPS {
        shop.build(Compiler::Lookup(lookup))?;
    }
    for _ in 0..ROUNDS {
        for name in PROGRAMS {
            let shared = Way::task(2, 2, copy_size(name), &["--bind"]);
            let took = finished(shared.run(&shop.program(Compiler::Page, name))?);
            note_least(measured.ideal.entry(name).or_insert(f64::INFINITY), took);
            for (lookup, invocation) in points() {
                if talks {
                    eprint!("\rFigure 1: {name}, lookup {lookup}, invocation {invocation}      ");
                }
                let mut way = Way::task(2, 2, copy_size(name), &["--share", "copy", "--bind"]);
                way.variables = vec![(INVOCATION_VARIABLE, invocation.to_string())];
                let took = finished(way.run(&shop.program(Compiler::Lookup(lookup), name))?);
                let least = measured.realistic.entry((name, lookup, invocation)).or_insert(f64::INFINITY);
                note_least(least, took);
            }
        }
    }
    if talks {
        eprint!("\r{:60}\r", "");
    }
    Ok(measured)
}

fn points() -> impl Iterator<Item = (u32, u32)> {
    LOOKUPS.into_iter().flat_map(|lookup| INVOCATIONS.map(|invocation| (lookup, invocation)))
}

fn finished(ran: Ran) -> f64 {
    match ran {
        Ran::Seconds(seconds) => seconds,
        Ran::Unfinished(_) => f64::INFINITY,
    }
}

fn note_least(least: &mut f64, took: f64) {
    *least = least.min(took);
}

impl Measured {
    /// How many times as long as where nothing is looked up or missed.
    pub(crate) fn by_ideal(&self, name: &'static str, lookup: u32, invocation: u32) -> Option<f64> {
        let ratio = self.realistic.get(&(name, lookup, invocation))? / self.ideal.get(name)?;
        ratio.is_finite().then_some(ratio)
    }

    /// A line for each program and invocation, over what is added to a lookup.
    pub(crate) fn drawing(&self) -> Drawing {
        const LABELS: [[&str; INVOCATIONS.len()]; PROGRAMS.len()] = [
            ["Barnes, invocation as it is", "Barnes, + 100 ns", "Barnes, + 400 ns"],
            ["Ocean, invocation as it is", "Ocean, + 100 ns", "Ocean, + 400 ns"],
        ];
        let mut curves = Vec::new();
        for (name, labels) in PROGRAMS.into_iter().zip(LABELS) {
            for (invocation, label) in INVOCATIONS.into_iter().zip(labels) {
                // The axis is logarithmic: one cycle more stands for none.
                let point =
                    |lookup: u32| Some((f64::from(lookup.max(1)), self.by_ideal(name, lookup, invocation)?));
                curves.push(Curve { label, points: LOOKUPS.into_iter().filter_map(point).collect() });
            }
        }
        Figure {
            name: "blizzard-figure-1",
            title: "Lookup and invocation (Blizzard, Figure 1), two components with copies",
            x: "cycles added to each lookup (1: none)",
            y: "time by that of shared page frames",
        }
        .of(curves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_is_no_point() {
        let mut measured = Measured::default();
        measured.ideal.insert("barnes", 0.5);
        measured.realistic.insert(("barnes", 0, 0), 1.5);
        measured.realistic.insert(("barnes", 5, 0), finished(Ran::Unfinished(60.0)));
        assert_eq!(measured.by_ideal("barnes", 0, 0), Some(3.0));
        assert_eq!(measured.by_ideal("barnes", 5, 0), None);
        assert_eq!(measured.drawing().curves[0].points, [(1.0, 3.0)]);
    }
}
