//! The subnets of a host, as machines' monitors have them: each is a switch, a process which begins with the first machine that joins and ends after the last has left.

#![expect(unsafe_code, reason = "what is said between fork and exec is said by calls that have no safe form")]

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::devices::switch::control::{Joined, WayOut};
use crate::devices::switch::running::CONTROL_SOCKET;
use crate::names::Name;

/// A switch has answered by then whoever asks it how it is.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How soon it is seen that it has.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// What a switch says is taken up to this, and not believed beyond.
const MOST_LINE_BYTES: usize = 1 << 16;

/// Why a machine is on no subnet.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The switch does not let it in, and says why.
    #[error("the subnet {0} does not let it in: {1}")]
    Refused(Name, String),
    /// There is no switch, and none begins.
    #[error("the switch of the subnet {0} does not begin")]
    None(Name),
    /// The host.
    #[error("{0}: {1}")]
    Host(PathBuf, io::Error),
}

/// The directories of subnets, and the program that is their switch.
#[derive(Clone, Debug)]
pub struct Subnets {
    directory: PathBuf,
    program: PathBuf,
}

/// What a machine asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Who.
    pub machine: &'a Name,
    /// Whether its engine shows its memory.
    pub shows_memory: bool,
    /// What it wants to reach.
    pub way: &'a WayOut,
    /// The port that it had before.
    pub number: Option<u8>,
}

impl Subnets {
    /// There. The program is called with `vm-switch` and what a switch is to be.
    pub fn at(directory: PathBuf, program: PathBuf) -> Self {
        Self { directory, program }
    }

    /// The program, which also serves disks.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Those that there are.
    pub fn names(&self) -> Vec<Name> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<Name>().ok());
        let mut names: Vec<Name> = names.filter(|name| self.control(name).exists()).collect();
        names.sort();
        names
    }

    fn control(&self, name: &Name) -> PathBuf {
        self.directory.join(name.as_str()).join(CONTROL_SOCKET)
    }

    /// What a switch says to a line; nothing: there is none.
    pub fn ask(&self, name: &Name, line: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(self.control(name))?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        writeln!(stream, "{line}")?;
        let mut said = String::new();
        BufReader::new(io::Read::take(stream, MOST_LINE_BYTES as u64)).read_line(&mut said)?;
        Ok(said)
    }

    /// Joins one, which begins if it is not there, within so long.
    pub fn join(&self, name: &Name, wish: Wish<'_>, limit: Duration) -> Result<Membership, JoinError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(|error| JoinError::Host(self.directory.clone(), error))?;
        let until = Instant::now() + limit;
        let mut switch = None;
        while Instant::now() < until {
            if let Ok(line) = UnixStream::connect(self.control(name))
                && let Some(joined) = ask_for_port(&line, name, wish, limit)?
            {
                line.set_nonblocking(true).map_err(|error| JoinError::Host(self.control(name), error))?;
                return Ok(Membership { joined, line, came: Vec::new(), switch });
            }
            if let Some(lock) = self.lock(name)? {
                switch = Some(self.start(name, &lock)?);
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Err(JoinError::None(name.clone()))
    }

    /// Only who has this is a subnet's switch, for as long as it lives.
    fn lock(&self, name: &Name) -> Result<Option<File>, JoinError> {
        let path = self.directory.join(format!("{name}.lock"));
        let of = |error| JoinError::Host(path.clone(), error);
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(of)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(of(error.into())),
        }
    }

    fn start(&self, name: &Name, lock: &File) -> Result<Child, JoinError> {
        let mut command = Command::new(&self.program);
        command.arg("vm-switch").arg("--directory").arg(self.directory.join(name.as_str()));
        command.args(["--subnet", name.as_str()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let lock = lock.as_raw_fd();
        // SAFETY: between fork and exec it makes system calls alone.
        unsafe {
            command.pre_exec(move || {
                // It is nobody's child, and keeps the lock.
                libc::setsid();
                libc::fcntl(lock, libc::F_SETFD, 0);
                Ok(())
            });
        }
        command.spawn().map_err(|error| JoinError::Host(self.program.clone(), error))
    }
}

/// Nothing: it has just ended.
fn ask_for_port(
    mut line: &UnixStream,
    name: &Name,
    wish: Wish<'_>,
    limit: Duration,
) -> Result<Option<Joined>, JoinError> {
    let by = if wish.shows_memory { "memory" } else { "stream" };
    let _ = line.set_read_timeout(Some(limit));
    let mut said = Vec::new();
    let number = wish.number.map_or_else(|| "any".to_owned(), |number| number.to_string());
    if writeln!(line, "join {} {by} {} {number}", wish.machine, wish.way).is_err() {
        return Ok(None);
    }
    // A byte at a time: what follows is for later.
    let mut byte = [0];
    while said.len() < MOST_LINE_BYTES && byte != *b"\n" {
        match io::Read::read(&mut line, &mut byte) {
            Ok(1) => said.push(byte[0]),
            _ => return Ok(None),
        }
    }
    match serde_json::from_slice(&said) {
        Ok(joined) => Ok(Some(joined)),
        Err(_) => Err(JoinError::Refused(name.clone(), String::from_utf8_lossy(&said).trim().to_owned())),
    }
}

/// A machine's place on a subnet, which it has for as long as this is there.
#[derive(Debug)]
pub struct Membership {
    /// Where and who it is there.
    pub joined: Joined,
    line: UnixStream,
    came: Vec<u8>,
    /// The switch, if it was this that started it.
    switch: Option<Child>,
}

/// Who else is there, by name.
pub type Names = Vec<(String, Ipv4Addr)>;

impl Membership {
    /// What has been said since: the last of it counts. An error: the switch has gone.
    pub fn hear(&mut self) -> io::Result<Option<Names>> {
        let mut some = [0; 4096];
        loop {
            match io::Read::read(&mut self.line, &mut some) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.came.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            if self.came.len() > MOST_LINE_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        let whole = self.came.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.came.drain(..whole).collect();
        Ok(lines.split(|&byte| byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok()))
    }
}

impl AsFd for Membership {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // One that has ended is waited for, so that nothing is left of it.
        if let Some(switch) = &mut self.switch {
            let _ = switch.try_wait();
        }
    }
}
