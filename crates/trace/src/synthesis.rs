//! Workloads that nobody had, with what real ones have: heavy tails, and users who are active and silent in turn. (Thesis §9.7, conclusion 3)
//!
//! A load whose sizes and pauses have a finite variance smooths out at coarser scales, and flatters whatever is tried with it. So a [`Model`] is
//! measured of a recording: of each quantity its distribution as it was found, and where its tail is heavy a power law that goes on beyond
//! what was seen. What is generated of it is a *trace*: it is replayed, reported on, stored in tables and given to `fio` like any other.
//!
//! | file | the one idea in it |
//! |---|---|
//! | `variable` | how a quantity is distributed, tail and all |
//! | `model` | what is known of a workload, as a file that people read and change |
//! | `measuring` | a model of what was recorded |
//! | `thesis` | a model of what the thesis says |
//! | `generation` | what happens when |
//! | `session` | what is asked next of an open file |
//! | `files` | which file, how long, where, and how it ends |
//!
//! Many sources whose periods are heavy-tailed make, together, a load that is bursty at all time scales; `sources` says how many.
//!
//! What a model leaves out: programs that begin and end, mappings, directories that are listed, renames, appends, and that what reads a large
//! file asks for more at a time.
//!
//! ```no_run
//! # use comb_trace::synthesis::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut model = Model::of("week/tables".as_ref())?;
//! model.write(std::fs::File::create("week.json")?)?;
//! model.sources *= 10;
//! write_trace(&model, 1, Amount::Sessions(100_000), std::fs::File::create("ten-weeks.trace")?)?;
//! # Ok(())
//! # }
//! ```

mod files;
mod generation;
mod measuring;
mod model;
mod session;
mod thesis;
mod variable;

use std::io::{self, Write};

pub use self::generation::{Amount, Generation, Synthesized};
pub use self::model::{Births, Directories, Format, Kinds, MOST_SOURCES, Model, ModelFileError, Reuse};
pub use self::variable::{Tail, Variable};

use crate::codec::Encoder;
use crate::trace_file::{Frame, Head, Moment, Process, framed, write_magic};

/// Made-up times begin with this century: a trace is the same whenever it is made.
const BEGAN_WALL_NS: u64 = 946_684_800_000_000_000;

/// The numbers of users begin here.
const FIRST_USER: u32 = 1000;

/// Events of a model that [passes its check](Model::check), the same for the same seed.
pub fn generate(model: &Model, seed: u64, amount: Amount) -> Generation {
    Generation::new(model, seed, amount)
}

/// Generates a trace and writes it as a recorder would have. Returns how many events it has.
pub fn write_trace(model: &Model, seed: u64, amount: Amount, mut to: impl Write) -> io::Result<u64> {
    write_magic(&mut to)?;
    let began = Moment { wall_ns: BEGAN_WALL_NS, ..Moment::default() };
    to.write_all(&framed(&Frame::Head(Box::new(head(model, seed, began)))))?;
    let mut encoder = Encoder::default();
    let (mut recorded, mut last_ns) = (0, 0);
    for Synthesized { event, texts } in generate(model, seed, amount) {
        encoder.add(&event, &texts);
        recorded += 1;
        last_ns = event.start_ns.saturating_add(event.duration_ns).max(last_ns);
        if encoder.is_full()
            && let Some(block) = encoder.take()
        {
            to.write_all(&framed(&Frame::Events(block)))?;
        }
    }
    if let Some(block) = encoder.take() {
        to.write_all(&framed(&Frame::Events(block)))?;
    }
    let end =
        Moment { monotonic_ns: last_ns, wall_ns: BEGAN_WALL_NS.saturating_add(last_ns), recorded, ..began };
    to.write_all(&framed(&Frame::End(end)))?;
    to.flush()?;
    Ok(recorded)
}

fn head(model: &Model, seed: u64, began: Moment) -> Head {
    let sources = 0..model.sources;
    let process = |source| Process {
        number: generation::FIRST_PROCESS + source,
        user: FIRST_USER + source,
        name: format!("source-{source}").into_bytes(),
        ..Process::default()
    };
    Head {
        machine: "nowhere".to_owned(),
        mechanism: "synthesis".to_owned(),
        lacks: vec!["nobody did this: it was made up of a model".to_owned()],
        command: [format!("seed {seed}"), model.about.clone()].map(String::into_bytes).to_vec(),
        users: sources.clone().map(|source| (FIRST_USER + source, format!("user-{source}"))).collect(),
        processes: sources.map(process).collect(),
        began,
        ..Head::default()
    }
}
