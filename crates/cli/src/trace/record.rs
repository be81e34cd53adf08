//! `comb trace record`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use comb_host::signals;
use comb_trace::kernel::{Kernel, KernelError};
use comb_trace::preload::Preload;
use comb_trace::privacy::Privacy;
use comb_trace::recorder::{RecordError, Recorder, Summary, TraceFile};
use comb_trace::source::Source;
use comb_trace::store::RECORDING_ENDING;
use comb_trace::trace_file::{Head, Process};
use comb_trace::{machine, store};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::table;

const EXAMPLES: &str = "\
Examples:
  comb trace record -- make -j8                what make and all that it starts do
  comb trace record -p 1234                    a process that runs, and its children, until it ends or Ctrl-C
  comb trace record -a --for 10m --to week     all processes, for ten minutes; another recording in the same directory
  comb trace record --hash-names -- ./mailer   names of files say nothing to others

The exit status is that of the command. A recording can be read while it goes on, and up to the last second if it was cut off.";

/// How calls are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Mechanism {
    /// From within the kernel; if that is not permitted or not there, and a command is recorded, by a library
    #[default]
    Auto,
    /// From within the kernel: complete; needs root
    Kernel,
    /// By a library that programs load: needs no privileges, and does not see all
    Preload,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Record {
    /// Record all processes of this machine
    #[arg(short, long, conflicts_with_all = ["process", "command"])]
    all: bool,
    /// Record a process that runs, and its children
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    process: Option<u32>,
    /// Where the recording goes: a directory, which may hold several [default: comb-trace-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// End the recording after this time, such as 90s, 10m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// Write names of files as hashes, by a key that is thrown away
    #[arg(long)]
    hash_names: bool,
    /// How calls are seen
    #[arg(long, value_enum, default_value_t)]
    mechanism: Mechanism,
    /// Say nothing but what goes wrong
    #[arg(short, long)]
    quiet: bool,
    /// The command to record
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 0,
    };
    let number = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds))
        .filter(|&seconds| seconds > 0);
    number
        .map(Duration::from_secs)
        .ok_or_else(|| "a time is a number of s, m, h or d, such as 10m".to_owned())
}

impl Record {
    pub(crate) fn run(self, output: Output) -> Outcome {
        if !self.all && self.process.is_none() && self.command.is_empty() {
            return Err(Failure::usage(
                "whose files? comb trace record -- COMMAND, or -p PID, or -a for all processes",
            ));
        }
        let mut source = self.source(output)?;
        let directory = self.to.clone().unwrap_or_else(|| format!("comb-trace-{}", date_and_time()).into());
        let path = new_recording(&directory)?;
        let file = TraceFile::create(&path)?;
        if let Some(process) = self.process {
            source.follow(process).map_err(|error| match error.raw_os_error() {
                Some(code) if code == rustix::io::Errno::SRCH.raw_os_error() => {
                    Failure::not_found(format!("there is no process {process}"))
                }
                _ => Failure::new(format!("process {process} cannot be followed: {error}")),
            })?;
        }
        let head = Head {
            command: self.command.iter().cloned().map(OsString::into_vec).collect(),
            processes: if self.command.is_empty() { recorded(self.process) } else { Vec::new() },
            ..Head::default()
        };
        let privacy = if self.hash_names { Privacy::hashed() } else { Privacy::none() };
        let mut recorder = Recorder::new(source, file, privacy, head)?;
        let told = signals::catch()?;
        let child = match self.command.split_first() {
            None => None,
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments);
                let started = recorder.source().start(command).map_err(|error| {
                    let _ = std::fs::remove_file(&path);
                    let _ = std::fs::remove_dir(&directory);
                    Failure::not_found(format!("{}: {error}", program.display()))
                });
                Some(started?)
            }
        };
        let (ending, result) = self.follow(&mut recorder, child, told);
        let summary = match result {
            Ok(()) => recorder.finish(),
            Err(error) => {
                output.warn(&error);
                Ok(recorder.summary())
            }
        };
        match summary {
            Ok(summary) => self.say(output, &directory, &summary)?,
            Err(error) => output.warn(&error),
        }
        Ok(ending.map_or(ExitCode::SUCCESS, exit_code))
    }

    fn source(&self, output: Output) -> Result<Box<dyn Source>, Failure> {
        let has_command = !self.command.is_empty();
        let refusal = if self.mechanism == Mechanism::Preload {
            None
        } else {
            match Kernel::attach(self.all) {
                Ok(kernel) => return Ok(Box::new(kernel)),
                Err(error) if self.mechanism == Mechanism::Kernel || !has_command => {
                    return Err(not_from_kernel(&error));
                }
                Err(error) => Some(error),
            }
        };
        if !has_command {
            return Err(Failure::usage(
                "programs load the library when they start: comb trace record --mechanism preload -- COMMAND",
            ));
        }
        let preload = Preload::new().map_err(|error| Failure::new(error.to_string()))?;
        if let Some(error) = refusal {
            let error = error.to_string();
            output.warn(format!("not all can be seen ({error}): recording by a library that programs load; comb trace report says what it misses"));
        }
        Ok(Box::new(preload))
    }

    /// Records until there is nothing more to record. After an error the command goes on, unrecorded.
    fn follow(
        &self,
        recorder: &mut Recorder<TraceFile>,
        mut child: Option<Child>,
        told: &std::os::fd::OwnedFd,
    ) -> (Option<ExitStatus>, Result<(), RecordError>) {
        let since = Instant::now();
        let mut result = Ok(());
        loop {
            let pause = match &result {
                Ok(()) => recorder.step().unwrap_or_else(|error| {
                    result = Err(error);
                    Duration::ZERO
                }),
                Err(_) => Duration::from_millis(50),
            };
            if let Some(child) = &mut child
                && let Ok(Some(status)) = child.try_wait()
            {
                return (Some(status), result);
            }
            let is_over = self.limit.is_some_and(|limit| since.elapsed() >= limit)
                || self.process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists())
                || (child.is_none() && result.is_err());
            if is_over && child.is_none() {
                return (None, result);
            }
            if is_over && let Some(child) = &child {
                signal(child, Signal::TERM);
            }
            let pause = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
            if matches!(poll(&mut [PollFd::new(told, PollFlags::IN)], Some(&pause)), Ok(1..))
                && let Some(came) = signals::take()
            {
                match &child {
                    // The terminal has told the command itself.
                    Some(_) if came == Signal::INT => {}
                    Some(child) => signal(child, came),
                    None => return (None, result),
                }
            }
        }
    }

    fn say(&self, output: Output, directory: &Path, summary: &Summary) -> Result<(), Failure> {
        let lost = summary.counters.lost;
        let foreign = summary.counters.foreign;
        if foreign > 0 {
            output.warn(format!("{foreign} calls of 32-bit programs are not in the recording"));
        }
        if lost > 0 {
            output.warn(format!("{lost} events were lost: they came faster than they could be written"));
        }
        if self.quiet {
            return Ok(());
        }
        let object = json!({
            "directory": directory, "events": summary.written, "bytes": summary.bytes, "lost": lost, "foreign": foreign,
            "seconds_in_kernel": summary.time_taken.map(|time| time.as_secs_f64()),
        });
        let place = directory.display();
        let (events, bytes) = (summary.written, table::bytes(summary.bytes));
        // The command's own output is the command's.
        if output.is_json() {
            eprintln!("{object}");
        } else {
            eprintln!("comb: {events} events in {bytes}, {lost} lost: {place} (comb trace report {place})");
        }
        Ok(())
    }
}

/// Who is there of those that are recorded: a process and its descendants, or all but this one.
pub(super) fn recorded(process: Option<u32>) -> Vec<Process> {
    match process {
        Some(process) => {
            let wanted = machine::descendants(process);
            machine::processes(|process| wanted.contains(&process))
        }
        None => machine::processes(|process| process != std::process::id()),
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(process, signal);
    }
}

pub(super) fn not_from_kernel(error: &KernelError) -> Failure {
    let kind = if matches!(error, KernelError::NotPermitted) { Kind::Refused } else { Kind::Failed };
    Failure::of(kind, format!("nothing can be recorded from within the kernel: {error}"))
}

/// What shells make of it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn date_and_time() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let [_, second, minute, hour, _, day, month, year] = store::calendar(i64::try_from(seconds).unwrap_or(0));
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// A file that is not there yet, named after this machine.
fn new_recording(directory: &Path) -> Result<PathBuf, Failure> {
    let (machine, _) = machine::names();
    let machine: String = machine.chars().map(|letter| if letter == '/' { '_' } else { letter }).collect();
    let time = date_and_time();
    let names = std::iter::once(format!("{machine}-{time}"))
        .chain((2..1000).map(|number| format!("{machine}-{time}-{number}")));
    let mut paths = names.map(|name| directory.join(name).with_extension(RECORDING_ENDING));
    paths
        .find(|path| !path.exists())
        .ok_or_else(|| Failure::new(format!("{}: too many recordings", directory.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_nonsense_is_not() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for nonsense in ["", "0", "h", "1w", "-1s", "99999999999999999999d"] {
            assert!(duration(nonsense).is_err(), "{nonsense}");
        }
    }
}
