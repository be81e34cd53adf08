//! Programs in machines, and their consoles, at this terminal.

use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use comb_guest::wire::{self, Ended, WINDOW_BYTES};
use comb_host::signals;
use comb_vm::control::{Answer, Ask, Line, Machines};
use comb_vm::names::Name;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios};

use crate::failure::{Failure, Kind, Outcome};

/// Ctrl-], as telnet has it.
const LEAVES: u8 = 0x1d;

#[derive(Debug, Args)]
pub(super) struct Exec {
    /// In which machine
    machine: Name,
    /// Set a variable of its environment
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<String>,
    /// Where it begins, in the machine
    #[arg(short = 'C', long, value_name = "DIRECTORY", default_value = "/")]
    directory: std::ffi::OsString,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(super) struct Console {
    /// Of which machine
    machine: Name,
}

fn variable(text: &str) -> Result<String, &'static str> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("say NAME=VALUE"),
    }
}

/// What can be done now.
struct Ready {
    line: bool,
    input: bool,
    signal: bool,
}

fn wait(line: &Line, with_input: bool, signal: impl AsFd) -> Result<Ready, Failure> {
    let stdin = std::io::stdin();
    let mut polled = vec![PollFd::new(line.stream(), PollFlags::IN), PollFd::new(&signal, PollFlags::IN)];
    if with_input {
        polled.push(PollFd::new(&stdin, PollFlags::IN));
    }
    match poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready = |at: usize| polled.get(at).is_some_and(|polled| !polled.revents().is_empty());
    Ok(Ready { line: is_ready(0), signal: is_ready(1), input: is_ready(2) })
}

impl Exec {
    pub(super) fn run(self, machines: &Machines) -> Outcome {
        let mut line = machines.reach(&self.machine)?;
        let signal = signals::catch()?;
        let bytes = |word: &std::ffi::OsString| word.as_bytes().to_vec();
        line.say(&Ask::Exec(wire::Command {
            arguments: self.command.iter().map(bytes).collect(),
            environment: self.variables.iter().map(|variable| variable.as_bytes().to_vec()).collect(),
            directory: bytes(&self.directory),
        }))?;
        let (mut room, mut has_input) = (WINDOW_BYTES, true);
        let (mut out, mut errors) = (std::io::stdout(), std::io::stderr());
        let mut signalled = false;
        loop {
            let ready = wait(&line, has_input && room > 0, signal)?;
            if ready.signal
                && let Some(signal) = signals::take()
            {
                // The second time this ends, whatever the program does: it is killed then.
                if std::mem::replace(&mut signalled, true) {
                    return Ok(ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(1)));
                }
                line.say(&Ask::Signal(signal.as_raw()))?;
            }
            if ready.input {
                let mut some = vec![0; room.min(16_384)];
                let read = std::io::stdin().read(&mut some)?;
                some.truncate(read);
                (room, has_input) = (room - read, read > 0);
                line.say(&Ask::Input(some))?;
            }
            if !ready.line {
                continue;
            }
            let Some(mut answer) = line.hear(None)? else { continue };
            loop {
                match answer {
                    Answer::Output { is_error, bytes } => {
                        let to: &mut dyn Write = if is_error { &mut errors } else { &mut out };
                        to.write_all(&bytes).and_then(|()| to.flush())?;
                        line.say(&Ask::Taken(u32::try_from(bytes.len()).unwrap_or(0)))?;
                    }
                    Answer::Taken(bytes) => room += bytes as usize,
                    Answer::Ended(Ended::Exited(code)) => {
                        return Ok(ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1)));
                    }
                    Answer::Ended(Ended::Killed(signal)) => {
                        return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)));
                    }
                    Answer::Ended(Ended::NotRun(why)) => {
                        return Err(Failure::new(format!("{}: {why}", self.machine)));
                    }
                    Answer::Refused(why) => {
                        return Err(Failure::of(Kind::Refused, format!("{}: {why}", self.machine)));
                    }
                    _ => {}
                }
                match line.take()? {
                    Some(next) => answer = next,
                    None => break,
                }
            }
        }
    }
}

/// A terminal without its own meaning of keys, until this is dropped.
struct Raw(Option<Termios>);

impl Raw {
    fn begin() -> Self {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        let before = rustix::termios::tcgetattr(&stdin).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            let _ = rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &raw);
        }
        Self(before)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

impl Console {
    pub(super) fn run(self, machines: &Machines) -> Outcome {
        let mut line = machines.reach(&self.machine)?;
        line.say(&Ask::Console)?;
        let signal = signals::catch()?;
        let _raw = Raw::begin();
        let mut out = std::io::stdout();
        let mut has_input = true;
        loop {
            let ready = wait(&line, has_input, signal)?;
            if ready.signal && signals::take().is_some() {
                return Ok(ExitCode::SUCCESS);
            }
            if ready.input {
                let mut some = vec![0; 4096];
                let read = std::io::stdin().read(&mut some)?;
                some.truncate(read);
                has_input = read > 0;
                let leaves = some.iter().position(|&byte| byte == LEAVES);
                some.truncate(leaves.unwrap_or(some.len()));
                if !some.is_empty() {
                    line.say(&Ask::Input(some))?;
                }
                if leaves.is_some() {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            if ready.line {
                // The machine's end is that of its console.
                let Ok(Some(mut answer)) = line.hear(None) else { return Ok(ExitCode::SUCCESS) };
                loop {
                    if let Answer::Console(bytes) = answer {
                        out.write_all(&bytes).and_then(|()| out.flush())?;
                    }
                    match line.take()? {
                        Some(next) => answer = next,
                        None => break,
                    }
                }
            }
        }
    }
}
