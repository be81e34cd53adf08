//! A part of a task on another host of the comb, without any other way in: its agent starts it, in one of its cells, and what the part reads
//! and writes goes over a TLS session between the two.
//!
//! ```text
//! comb run ─ pipes ─ comb host shell beta ══ TLS, by this host's key ══ agent of beta ─ pipes ─ comb run-part
//! ```
//!
//! It is no shell: an agent starts the part of a task, or what takes a machine up that comes from another host, and nothing else, as its own
//! user, for that user of another host.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use comb_net::hosts::{SecureStream, StreamError};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use super::Book;
use super::words::{self, Greeting, Reception};
use crate::state_directory::StateDirectory;

/// What is started: a part of a task.
pub const PART: &str = "run-part";

/// What is started for a machine that comes: it goes on by itself when that has come.
const MACHINE: [&str; 2] = ["vm-monitor", "--receives"];

/// What an agent starts for another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// A part of a task.
    Part,
    /// What takes up a machine.
    Machine,
}
/// So much goes over at once.
pub(super) const MOST_BYTES: usize = 16 << 10;
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// What a part that was told to end, by the end of its input, needs for that.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Of a shell: what it ran was cut off.
const CUT_OFF: i32 = 255;

/// Who wants a part started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shell {
    /// The user, on the host that asks.
    pub uid: u32,
}

/// Where it is to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seat {
    /// The cell's cgroup, where there are any.
    pub(crate) cgroup: Option<PathBuf>,
    /// What goes into its environment.
    pub(crate) runtime: PathBuf,
}

/// What goes over, either way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Piece {
    /// Of the input, or of the output.
    Bytes(Vec<u8>),
    /// Of what it has to say of errors.
    Error(Vec<u8>),
    /// There is no more input.
    End,
    /// It has ended with this status.
    Ended(i32),
}

pub(super) fn say(stream: &mut SecureStream, piece: &Piece) -> Result<(), StreamError> {
    stream.send(&postcard::to_allocvec(piece).expect("plain data"))
}

/// The next piece that is there; none if there is none now. `Err`: no more will come.
fn hear(stream: &mut SecureStream) -> Result<Option<Piece>, ()> {
    match stream.receive(Some(Duration::ZERO)) {
        Ok(Some(bytes)) => postcard::from_bytes(bytes).map(Some).map_err(drop),
        Err(StreamError::TimedOut) => Ok(None),
        Ok(None) | Err(_) => Err(()),
    }
}

/// Whoever reads slowly, a terminal say, is waited for.
fn wait_for_slow_readers(stream: &SecureStream) {
    let _ = set_socket_timeout(stream, Timeout::Send, None);
}

/// What can be read without waiting, once poll has said that there is something. `None`: it is at its end.
fn some_of(source: &mut impl Read, space: &mut [u8]) -> Option<usize> {
    loop {
        match source.read(space) {
            Ok(0) => return None,
            Ok(read) => return Some(read),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

// ── the agent's side ──

/// Starts a program in its seat. A sentence if that cannot be.
pub(super) fn start(program: Program, seat: &Seat) -> Result<Child, String> {
    let mut command = Command::new("/proc/self/exe");
    match program {
        Program::Part => command.arg0("comb").arg(PART),
        Program::Machine => command.arg0("comb").args(MACHINE),
    };
    command.env("COMB_RUNTIME_DIR", &seat.runtime).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("the part cannot be started: {error}"))?;
    if let Some(cgroup) = &seat.cgroup
        && let Err(error) = std::fs::write(cgroup.join("cgroup.procs"), child.id().to_string())
    {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("the part cannot be put into its cell: {error}"));
    }
    Ok(child)
}

/// Passes on what a part and its launcher have for each other, until one of them has ended.
pub(super) fn serve(mut stream: SecureStream, mut child: Child) {
    wait_for_slow_readers(&stream);
    if pass_on(&mut stream, &mut child).is_err() {
        // Its launcher is gone: so is its input, which it takes for its end.
        drop(child.stdin.take());
        if let Some(process) = crate::process::open_number(child.id()) {
            crate::process::wait_for_end(&process, END_LIMIT);
        }
        let _ = child.kill();
    }
    let status = child.wait().ok();
    let code = status.and_then(|it| it.code().or_else(|| it.signal().map(|signal| 128 + signal)));
    let _ = say(&mut stream, &Piece::Ended(code.unwrap_or(CUT_OFF)));
    let _ = stream.close();
}

/// `Err`: the launcher is gone.
fn pass_on(stream: &mut SecureStream, child: &mut Child) -> Result<(), ()> {
    let (mut output, mut errors) = (child.stdout.take(), child.stderr.take());
    let mut space = vec![0; MOST_BYTES];
    while output.is_some() || errors.is_some() {
        while let Some(piece) = hear(stream)? {
            match piece {
                Piece::Bytes(bytes) => {
                    // One that reads no more has ended, or will.
                    let _ = child
                        .stdin
                        .as_mut()
                        .map(|input| input.write_all(&bytes).and_then(|()| input.flush()));
                }
                Piece::End => drop(child.stdin.take()),
                Piece::Error(_) | Piece::Ended(_) => return Err(()),
            }
        }
        let ready = {
            let pipes = [output.as_ref().map(AsFd::as_fd), errors.as_ref().map(AsFd::as_fd)];
            let mut waiting = vec![PollFd::new(&*stream, PollFlags::IN)];
            waiting.extend(pipes.iter().flatten().map(|pipe| PollFd::from_borrowed_fd(*pipe, PollFlags::IN)));
            // An interruption only makes it look early.
            let _ = rustix::event::poll(&mut waiting, None);
            let mut looked = waiting.iter().skip(1).map(|pipe| !pipe.revents().is_empty());
            pipes.map(|pipe| pipe.is_some() && looked.next().unwrap_or(false))
        };
        if ready[0] {
            output = forward(stream, output, &mut space, Piece::Bytes)?;
        }
        if ready[1] {
            errors = forward(stream, errors, &mut space, Piece::Error)?;
        }
    }
    Ok(())
}

fn forward<R: Read>(
    stream: &mut SecureStream,
    from: Option<R>,
    space: &mut [u8],
    piece: fn(Vec<u8>) -> Piece,
) -> Result<Option<R>, ()> {
    let Some(mut source) = from else { return Ok(None) };
    let Some(read) = some_of(&mut source, space) else { return Ok(None) };
    say(stream, &piece(space[..read].to_vec())).map_err(drop)?;
    Ok(Some(source))
}

// ── the launcher's side ──

/// Has a part started on a host of this comb, and passes on what this process reads and what that writes: its status. A sentence if there is
/// no such thing.
pub fn run(files: &StateDirectory, host: &str) -> Result<i32, String> {
    let book = Book::open(files)?;
    if book.member(host)?.name == book.own() {
        // It is here.
        let error = Command::new("/proc/self/exe").arg0("comb").arg(PART).exec();
        return Err(format!("the part cannot be started: {error}"));
    }
    Ok(stand_between(&mut greet(&book, host, Greeting::Shell)?))
}

/// A session with what an agent has started for this user.
pub(super) fn greet(
    book: &Book,
    host: &str,
    greeting: impl FnOnce(Shell) -> Greeting,
) -> Result<SecureStream, String> {
    let mut stream = book.connect(host, None)?;
    let text = |error: StreamError| format!("host {host}: {error}");
    let uid = rustix::process::getuid().as_raw();
    stream.send(&words::opening(&greeting(Shell { uid }))).map_err(text)?;
    let answer = stream.receive(Some(ANSWER_LIMIT)).map_err(text)?;
    let answer = answer.ok_or_else(|| format!("host {host} hung up without an answer"))?;
    match words::read_opening(answer).map_err(|unheard| unheard.of(host))? {
        Reception::Welcome => Ok(stream),
        Reception::Refused(why) => Err(format!("host {host}: {why}")),
        Reception::Admitted { .. } => Err(format!("host {host} answered something else")),
    }
}

fn stand_between(stream: &mut SecureStream) -> i32 {
    wait_for_slow_readers(stream);
    let (mut input, mut output, mut errors) =
        (Some(std::io::stdin().lock()), std::io::stdout(), std::io::stderr());
    let mut space = vec![0; MOST_BYTES];
    loop {
        loop {
            match hear(stream) {
                Ok(None) => break,
                Ok(Some(Piece::Ended(status))) => return status,
                Ok(Some(Piece::Bytes(bytes))) => {
                    if output.write_all(&bytes).and_then(|()| output.flush()).is_err() {
                        return CUT_OFF;
                    }
                }
                Ok(Some(Piece::Error(bytes))) => drop(errors.write_all(&bytes)),
                Ok(Some(Piece::End)) | Err(()) => return CUT_OFF,
            }
        }
        let is_ready = {
            let mut waiting = vec![PollFd::new(&*stream, PollFlags::IN)];
            waiting.extend(input.iter().map(|input| PollFd::new(input, PollFlags::IN)));
            let _ = rustix::event::poll(&mut waiting, None);
            waiting.get(1).is_some_and(|input| !input.revents().is_empty())
        };
        if is_ready && let Some(source) = &mut input {
            // Not by its buffer, which may have more than poll knows of.
            let piece = match rustix::io::read(source.as_fd(), &mut space) {
                Ok(0) | Err(_) => Piece::End,
                Ok(read) => Piece::Bytes(space[..read].to_vec()),
            };
            if piece == Piece::End {
                input = None;
            }
            if say(stream, &piece).is_err() {
                return CUT_OFF;
            }
        }
    }
}
