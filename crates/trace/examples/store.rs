//! Makes tables of the recordings in a directory, and tells how often each operation was done: `store DIRECTORY`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use comb_trace::Operation;
use comb_trace::store::{TABLES_FOLDER, TRACE, TableReader, ensure_tables};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).ok_or("store DIRECTORY")?;
    let directory = Path::new(&directory);
    let began = Instant::now();
    for (path, error) in ensure_tables(directory, &mut |path| eprintln!("{}", path.display()))? {
        eprintln!("{}: {error}", path.display());
    }
    eprintln!("tables in {:?}", began.elapsed());
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    let reader = TableReader::open(&directory.join(TABLES_FOLDER), TRACE)?;
    reader.read(&["operation_id"], &mut |numbers, _| {
        for operation in &numbers[0] {
            *counts.entry(*operation).or_default() += 1;
        }
    })?;
    for (number, count) in counts {
        let operation = u8::try_from(number).ok().and_then(Operation::of_number);
        println!("{:<22}{count:>12}", operation.map_or("unknown", Operation::name));
    }
    Ok(())
}
