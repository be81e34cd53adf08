//! Counts how often it was run, in a named region: `comb up`, `comb region create tally --size 1M`, then this, as often as you like.

use std::process::ExitCode;

use comb_region::Task;
use comb_region::named::Attaching;

fn main() -> ExitCode {
    match count() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tally: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "tally".to_owned());
    let task = Task::join()?;
    let region = task.attach(&name, &Attaching::default())?;
    let runs = region.array::<u64>(0, 1).ok_or("it is too small")?;
    let mut count = [0];
    // An error, not the end of the process, if its cell has died.
    runs.read(0, &mut count)?;
    runs.write(0, &[count[0] + 1])?;
    println!("run {} of {name}, in cell {}", count[0] + 1, region.cell());
    Ok(())
}
