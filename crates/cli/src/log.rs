//! `comb log`: what the agent and the cells have written down.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comb_host::RuntimeDirectory;

use crate::failure::{Failure, Outcome};

/// How often a followed log is looked at: less than a reader perceives.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Go on printing what is added, until the cells are taken down
    #[arg(short, long)]
    follow: bool,
    /// Only the last LINES lines
    #[arg(short = 'n', long)]
    lines: Option<usize>,
}

impl Log {
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        directory.check()?;
        let file = match File::open(directory.log_file()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Failure::new(format!("there is no log in {directory}: `comb up` starts one")));
            }
            file => file?,
        };
        let mut reader = BufReader::new(file);
        let mut out = std::io::stdout().lock();
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut reader)? {
            lines.push(line);
        }
        let from = self.lines.map_or(0, |wanted| lines.len().saturating_sub(wanted));
        for line in &lines[from..] {
            out.write_all(line)?;
        }
        if self.follow {
            follow(&mut reader, &mut out)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Copies what is added to the log until it is removed.
pub(crate) fn follow(reader: &mut BufReader<File>, out: &mut impl Write) -> std::io::Result<()> {
    loop {
        // Asked first: what was written before the log was removed is still read.
        let removed = reader.get_ref().metadata()?.nlink() == 0;
        while let Some(line) = next_line(reader)? {
            out.write_all(&line)?;
        }
        out.flush()?;
        if removed {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// A line with its end. Lines are written whole, so that a part of one is the end of the file.
fn next_line(reader: &mut BufReader<File>) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let bytes = reader.read_until(b'\n', &mut line)?;
    Ok((bytes > 0).then_some(line))
}
