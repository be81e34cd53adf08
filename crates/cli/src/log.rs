//! `comb log`: what the agent and the cells have written down.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comb_host::RuntimeDirectory;

use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;

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
    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        directory.check()?;
        let file = match File::open(directory.log_file()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = format!("there is no log in {directory}: `comb up` starts one");
                return Err(Failure::of(Kind::NotRunning, text));
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
            write_line(line, output, &mut out)?;
        }
        if self.follow {
            follow(&mut reader, output, &mut out)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Copies what is added to the log until it is removed.
pub(crate) fn follow(
    reader: &mut BufReader<File>,
    output: Output,
    out: &mut impl Write,
) -> std::io::Result<()> {
    loop {
        // Asked first: what was written before the log was removed is still read.
        let removed = reader.get_ref().metadata()?.nlink() == 0;
        while let Some(line) = next_line(reader)? {
            write_line(&line, output, out)?;
        }
        out.flush()?;
        if removed {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// As it is; or an object of when, who and what.
fn write_line(line: &[u8], output: Output, out: &mut impl Write) -> std::io::Result<()> {
    if !output.is_json() {
        return out.write_all(line);
    }
    let line = String::from_utf8_lossy(line);
    writeln!(out, "{}", object(line.trim_end()))
}

fn object(line: &str) -> serde_json::Value {
    // What the system itself writes there, such as why a process was ended, has no time.
    let parts = line.split_once(' ').filter(|(time, _)| time.ends_with('Z') && time.contains('T'));
    let (time, rest) = parts.map_or((None, line), |(time, rest)| (Some(time), rest));
    let (who, what) = match rest.split_once(": ") {
        Some((who, what)) if time.is_some() => (Some(who), what),
        _ => (None, rest),
    };
    serde_json::json!({ "time": time, "who": who, "what": what })
}

/// A line with its end. Lines are written whole, so that a part of one is the end of the file.
fn next_line(reader: &mut BufReader<File>) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let bytes = reader.read_until(b'\n', &mut line)?;
    Ok((bytes > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_when_who_and_what() {
        let of_cell = object("2026-01-02T03:04:05.678Z cell 3: cell 2 is gone: I go on");
        let expected = serde_json::json!({
            "time": "2026-01-02T03:04:05.678Z", "who": "cell 3", "what": "cell 2 is gone: I go on"
        });
        assert_eq!(of_cell, expected);
        let of_nobody = object("thread 'main' panicked at: no");
        assert_eq!(of_nobody["what"], "thread 'main' panicked at: no");
        assert!(of_nobody["time"].is_null() && of_nobody["who"].is_null());
    }
}
