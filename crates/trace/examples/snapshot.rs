//! Takes a snapshot of file trees, and tells what they hold: `snapshot FILE DIRECTORY…`; or compares two: `snapshot --compare OLD NEW`.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;
use std::time::Instant;

use comb_trace::snapshot::{Options, Totals, difference, take};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(first) = arguments.next() else {
        return Err("snapshot FILE DIRECTORY…, or snapshot --compare OLD NEW".into());
    };
    let rest: Vec<PathBuf> = arguments.collect();
    match &rest[..] {
        [old, new] if first.as_os_str() == "--compare" => compare(old, new),
        _ => of_trees(&first, &rest),
    }
}

fn of_trees(path: &PathBuf, roots: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let taken = take(roots, &Options::default(), &mut BufWriter::new(File::create_new(path)?))?;
    let seconds = began.elapsed().as_secs_f64();
    let entries = taken.end.files + taken.end.directories;
    println!("{:?} in {seconds:.3} s", taken.end);
    println!(
        "{:.0} entries a second, {:.1} bytes of each",
        entries as f64 / seconds,
        taken.bytes as f64 / entries as f64
    );
    let began = Instant::now();
    let (totals, _) = Totals::read(BufReader::new(File::open(path)?))?;
    println!("added up in {:.3} s: {:?}", began.elapsed().as_secs_f64(), totals.files);
    for (category, amount) in totals.by_category() {
        println!("  {category}: {} files, {} bytes", amount.files, amount.bytes);
    }
    println!(
        "changed after they were last read: {:.1} %; deepest {}; largest {}",
        totals.share_modified_after_access() * 100.0,
        totals.deepest.0,
        totals.largest.first().map_or(0, |(size, _)| *size)
    );
    Ok(())
}

fn compare(old: &PathBuf, new: &PathBuf) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let found = difference(BufReader::new(File::open(old)?), BufReader::new(File::open(new)?), |_| {})?;
    println!("compared in {:.3} s", began.elapsed().as_secs_f64());
    println!(
        "files {:?}, directories {:?}, unchanged {}",
        found.files, found.directories, found.unchanged_files
    );
    for step in found.by_place.down_to(0.5) {
        println!("  {:.0} % in {}", step.share * 100.0, String::from_utf8_lossy(&step.path));
    }
    Ok(())
}
