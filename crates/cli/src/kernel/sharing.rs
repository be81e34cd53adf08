//! Memory that programs share with those of other cells: what is said of it, and how cells come together.

use std::path::PathBuf;

use clap::Args;
use comb_kernels::shared::{Number, meet};
use comb_unix::Sharing;

use crate::failure::Failure;
use crate::output::Output;
use crate::run::memory;

/// Cells beyond that are not worth what each page's traffic costs.
const MOST_CELLS: u32 = 64;

#[derive(Debug, Args)]
pub(super) struct Share {
    /// Share memory with the programs of other cells: a file /dev/shm/NAME of this size, that they map. Cells are further runs of this command
    #[arg(long = "share", value_name = "NAME=SIZE", requires = "cells", requires = "meet", value_parser = file)]
    files: Vec<(String, u64)>,
    /// How many cells share it, this one included
    #[arg(long, value_name = "COUNT", requires = "files", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CELLS)))]
    cells: Option<u32>,
    /// The directory where they meet, which is made if it is not there: nothing runs before all have come
    #[arg(long, value_name = "DIRECTORY", requires = "files")]
    meet: Option<PathBuf>,
}

fn file(text: &str) -> Result<(String, u64), &'static str> {
    let wrong = "say a name and a number of bytes, such as board=4M";
    let (name, size) = text.split_once('=').ok_or(wrong)?;
    let is_name = !name.is_empty() && name.len() <= 200 && !name.contains('/') && !name.starts_with('.');
    let bytes = memory(size).map_err(|_| wrong)?;
    if !is_name {
        return Err("the name is one of a file below /dev/shm: without a slash, and without a dot in front");
    }
    let whole = bytes.checked_next_multiple_of(4096).ok_or(wrong)?;
    Ok((name.to_owned(), whole))
}

impl Share {
    /// Waits for the other cells, if memory is to be shared. The number is this cell's as long as it is there.
    pub(super) fn meet(&self, memory: u64, output: Output) -> Result<Option<(Sharing, Number)>, Failure> {
        let (Some(cells), Some(directory)) = (self.cells, &self.meet) else { return Ok(None) };
        let names: Vec<&str> = self.files.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            return Err(Failure::usage(format!("--share: {} is there twice", twice.1)));
        }
        let bytes = self.files.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        if bytes > memory / 2 {
            let [shared, all] = [bytes, memory].map(crate::table::bytes);
            let said =
                format!("--share: {shared} are more than half of all memory, which is {all}: --memory");
            return Err(Failure::usage(said));
        }
        let said: Vec<String> = self.files.iter().map(|(name, bytes)| format!("{name}={bytes}")).collect();
        let mut told = None;
        let missing = |count| {
            if told.replace(count) != Some(count) {
                let cells = if count == 1 { "cell" } else { "cells" };
                output.warn(format!("waits for {count} more {cells} to come to {}", directory.display()));
            }
        };
        let said = format!("{} among {cells}", said.join(", "));
        let met = meet(directory, cells, &said, missing)
            .map_err(|error| Failure::new(format!("--meet: {error}")))?;
        let sharing = Sharing { me: met.me, cells, stream: met.stream, files: self.files.clone() };
        Ok(Some((sharing, met.number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_names_and_whole_pages() {
        assert_eq!(file("board=1"), Ok(("board".to_owned(), 4096)));
        assert_eq!(file("a=b=4M").ok(), None);
        for wrong in ["board", "board=", "board=0", "=4M", "a/b=4M", "..=4M"] {
            assert!(file(wrong).is_err(), "{wrong}");
        }
    }
}
