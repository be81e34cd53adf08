//! Makes a workload up: `synthesize MODEL TRACE [SESSIONS [SEED [USERS]]]`. The model is `thesis`, a model's file, or a directory with
//! recordings, of which one is measured and written beside the trace. What comes is replayed, stored and reported on like a recording.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use comb_trace::store::{TABLES_FOLDER, ensure_tables};
use comb_trace::synthesis::{Amount, Model, write_trace};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(from), Some(trace)) = (arguments.first(), arguments.get(1)) else {
        return Err("synthesize MODEL TRACE [SESSIONS [SEED [USERS]]]".into());
    };
    let number = |at: usize, otherwise: u64| arguments.get(at).map_or(Ok(otherwise), |text| text.parse());
    let mut model = match Path::new(from) {
        path if from == "thesis" && !path.exists() => Model::thesis(),
        path if path.is_dir() => {
            ensure_tables(path, &mut |recording| println!("reading {}", recording.display()))?;
            let model = Model::of(&path.join(TABLES_FOLDER))?;
            let beside = Path::new(trace).with_extension("json");
            model.write(BufWriter::new(File::create(&beside)?))?;
            println!("the model is in {}", beside.display());
            model
        }
        path => Model::read(BufReader::new(File::open(path)?))?,
    };
    let (sessions, seed) = (number(2, 100_000)?, number(3, 1)?);
    model.sources = u32::try_from(number(4, model.sources.into())?)?;
    model.check()?;
    let to = BufWriter::with_capacity(1 << 20, File::create(trace)?);
    let events = write_trace(&model, seed, Amount::Sessions(sessions), to)?;
    println!("{sessions} sessions of {} users: {events} events in {trace}", model.sources);
    for (name, variable) in model.variables() {
        if let Some(tail) = variable.tail {
            println!("  {name}: α = {:.2}, up to {}", tail.alpha, tail.most);
        }
    }
    Ok(())
}
