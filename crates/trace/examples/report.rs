//! Writes a report on the recordings in a directory: `report DIRECTORY FOLDER`.

use std::path::Path;
use std::time::Instant;

use comb_trace::report::{self, Content};
use comb_trace::store::ensure_tables;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("report DIRECTORY FOLDER".into());
    };
    let (directory, folder) = (Path::new(&directory), Path::new(&folder));
    ensure_tables(directory, &mut |_| {})?;
    let began = Instant::now();
    let report = report::make(directory, None, &Content::default())?;
    report::write(&report, folder)?;
    println!("{} operations in {:?}", report.about.operations, began.elapsed());
    Ok(())
}
