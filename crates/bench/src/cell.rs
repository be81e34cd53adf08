//! `comb bench cell`: what it costs that cells are apart, and how soon the others go on when one fails.

mod batch;
mod calls;
mod careful_reads;
mod comb;
mod failures;
mod firewall;
mod guarded;
pub(crate) mod measured;
mod pages;
pub(crate) mod programs;
mod rest;
pub(crate) mod role;
mod table;
pub(crate) mod writable;

use self::comb::Comb;
use self::measured::Measured;
use crate::report::{print, shows_progress};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const NOTES: &str = "\
Numbers are medians; what is compared takes turns in one run. Hive's figures are history: four simulated processors of 200 MHz, in 1995. Rows without a goal are for the record.
Careful: of a cell of the same process. Firewall: the importer, a process of its own, has the pages in use all the time. Rpc: both look for messages all the time, on two cores.
Fault: first loads of memory that is there, by a process that has not had it. Recovery: cells of a comb of its own, killed or stopped by signals; times begin just before the signal. Rest:
four cells without tasks, for ten seconds. Programs: threads are plain clang's, cells have a component each; processes of a batch run one after the other, a turn each.";

/// The cells of the comb that programs run on.
const CELLS: u32 = 4;

/// What can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Reading what other cells show.
    Careful,
    /// Rights to store to another cell's pages.
    Firewall,
    /// Calls between cells.
    Rpc,
    /// First loads of another cell's pages.
    Fault,
    /// Failures, from the fault until work goes on.
    Recovery,
    /// What cells take that have nothing to do.
    Rest,
    /// Programs and batches on cells.
    Programs,
}

pub(crate) const PARTS: [Part; 7] =
    [Part::Careful, Part::Firewall, Part::Rpc, Part::Fault, Part::Recovery, Part::Rest, Part::Programs];

/// Runs the benchmark, or one part of it, and prints its table.
pub fn run(only: Option<Part>, full: bool, json: bool) -> Outcome<()> {
    let measured = measure(only, full, shows_progress(json));
    print(&table::rows(&measured, only), json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
}

/// A part that fails is missing, and the rows say why; the others are measured all the same.
pub(crate) fn measure(only: Option<Part>, full: bool, talks: bool) -> Measured {
    let mut measured = Measured::default();
    for part in PARTS.into_iter().filter(|part| only.is_none_or(|only| only == *part)) {
        let say = |what: &str| {
            if talks {
                eprint!("\r{:60}", format!("{part:?}: {what}"));
            }
        };
        say("");
        if let Err(error) = measure_part(part, &mut measured, full, &say) {
            measured.lacks(part, error.to_string());
        }
    }
    if talks {
        eprint!("\r{:60}\r", "");
    }
    measured
}

fn measure_part(part: Part, measured: &mut Measured, full: bool, say: &dyn Fn(&str)) -> Outcome<()> {
    match part {
        Part::Careful => careful_reads::measure(measured),
        Part::Firewall => {
            firewall::measure(measured, full)?;
            guarded::measure(measured, full)
        }
        Part::Rpc => calls::measure(measured),
        Part::Fault => pages::measure(measured),
        Part::Recovery => failures::measure(measured, full, say),
        Part::Rest => rest::measure(measured),
        Part::Programs => {
            let comb = Comb::up(CELLS)?;
            batch::measure(measured, &comb, full, say)?;
            programs::measure(measured, &comb, full, say)
        }
    }
}
