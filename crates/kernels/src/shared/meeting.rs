//! How cells of one host that share memory find each other: in a directory, where each takes the first number that is free.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comb_types::CellId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use super::Stream;

/// Before what a cell says of itself: what it is, and which edition.
const MAGIC: &[u8; 16] = b"comb shared 0001";

/// A line is no longer than that.
const MOST_SAID: u32 = 65_536;

/// Who has a number is there to be talked to by then, or is not waiting any more.
const BEGINNING: Duration = Duration::from_secs(2);

/// Who has come says who it is by then.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// Why cells do not come together.
#[derive(Debug, Error)]
pub enum MeetingError {
    /// The directory cannot be used.
    #[error("{}: {error}", path.display())]
    Directory {
        /// What of it.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// As many as were said are there.
    #[error("all {cells} cells are there already, in {}", directory.display())]
    Full {
        /// So many.
        cells: u32,
        /// Where.
        directory: PathBuf,
    },
    /// They have met, and this one was not among them.
    #[error("the cells in {} have begun without this one", .0.display())]
    TooLate(PathBuf),
    /// Another says something else of what is shared.
    #[error("cell {} shares {there}, and this one {here}", cell.0)]
    Different {
        /// Who.
        cell: CellId,
        /// What it says.
        there: String,
        /// What is said here.
        here: String,
    },
    /// Who has come is not what it should be.
    #[error("cell {}: {error}", cell.0)]
    Peer {
        /// Who.
        cell: CellId,
        /// Why not.
        error: io::Error,
    },
}

/// A cell that has met all others.
#[derive(Debug)]
pub struct Met {
    /// Its number.
    pub me: CellId,
    /// Its lines to them.
    pub stream: Stream,
    /// Its number is its own as long as this is there.
    pub number: Number,
}

/// A number that no other cell of a directory has meanwhile.
#[derive(Debug)]
pub struct Number {
    _lock: File,
}

/// A socket's name, as long as somebody listens there.
struct Listening {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn lock_of(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("cell-{number}"))
}

fn socket_of(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("cell-{number}.socket"))
}

/// What a cell says first: its number, and what all are to say alike.
fn introduction(me: u32, said: &str) -> Vec<u8> {
    let length = u32::try_from(said.len()).expect("what is shared is said in a line");
    [MAGIC, &me.to_le_bytes()[..], &length.to_le_bytes()[..], said.as_bytes()].concat()
}

fn hear_introduction(mut line: &UnixStream) -> io::Result<(u32, String)> {
    let strange = || io::Error::new(ErrorKind::InvalidData, "it does not say who it is");
    line.set_read_timeout(Some(INTRODUCTION))?;
    let peer = rustix::net::sockopt::socket_peercred(line)?;
    if peer.uid != rustix::process::geteuid() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "it is another user's"));
    }
    let mut head = [0; 24];
    line.read_exact(&mut head)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let (number, length) = (word(16), word(20));
    if head[..16] != MAGIC[..] || length > MOST_SAID {
        return Err(strange());
    }
    let mut said = vec![0; length as usize];
    line.read_exact(&mut said)?;
    line.set_read_timeout(None)?;
    Ok((number, String::from_utf8(said).map_err(|_| strange())?))
}

/// Waits until so many cells, all of one user, have come to a directory, which say the same of what they share. While it waits, it tells about once a second how many are missing.
///
pub fn meet(
    directory: &Path,
    cells: u32,
    said: &str,
    mut missing: impl FnMut(u32),
) -> Result<Met, MeetingError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| MeetingError::Directory { path, error }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
    let (me, lock) = take_number(directory, cells)?;
    let path = socket_of(directory, me);
    // Who had the number before may have left it.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(failed(&path))?;
    listener.set_nonblocking(true).map_err(failed(&path))?;
    let listening = Listening { listener, path };
    let check = |cell: u32, there: String| {
        let cell = CellId(cell);
        let here = said.to_owned();
        if there == here { Ok(()) } else { Err(MeetingError::Different { cell, there, here }) }
    };
    let mut lines = BTreeMap::new();
    for number in 0..me {
        let line = call(directory, number)?;
        let peer = |error| MeetingError::Peer { cell: CellId(number), error };
        (&line).write_all(&introduction(me, said)).map_err(peer)?;
        let (_, there) = hear_introduction(&line).map_err(peer)?;
        check(number, there)?;
        lines.insert(CellId(number), line);
    }
    let mut told = Instant::now();
    while lines.len() + 1 < cells as usize {
        let mut comes = [PollFd::new(&listening.listener, PollFlags::IN)];
        let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = poll(&mut comes, Some(&second));
        if told.elapsed() >= Duration::from_secs(1) {
            missing(cells - 1 - u32::try_from(lines.len()).expect("not more than cells"));
            told = Instant::now();
        }
        let Ok((line, _)) = listening.listener.accept() else { continue };
        // Who does not get so far is not there, and may come again.
        let Ok((number, there)) = hear_introduction(&line) else { continue };
        if (&line).write_all(&introduction(me, said)).is_err() || number <= me || number >= cells {
            continue;
        }
        check(number, there)?;
        lines.insert(CellId(number), line);
    }
    drop(listening);
    let stream = Stream::new(lines).map_err(failed(directory))?;
    Ok(Met { me: CellId(me), stream, number: Number { _lock: lock } })
}

fn take_number(directory: &Path, cells: u32) -> Result<(u32, File), MeetingError> {
    for number in 0..cells {
        let path = lock_of(directory, number);
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = open.map_err(|error| MeetingError::Directory { path: path.clone(), error })?;
        match flock(lock.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok((number, lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(MeetingError::Directory { path, error: error.into() }),
        }
    }
    Err(MeetingError::Full { cells, directory: directory.to_owned() })
}

/// A line to a cell with a lower number, which has it, and listens or is about to.
fn call(directory: &Path, number: u32) -> Result<UnixStream, MeetingError> {
    let since = Instant::now();
    loop {
        match UnixStream::connect(socket_of(directory, number)) {
            Ok(line) => return Ok(line),
            Err(_) if since.elapsed() < BEGINNING => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return Err(MeetingError::TooLate(directory.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("comb-meeting-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn all_who_come_have_numbers_and_lines_and_who_comes_later_is_told() {
        let directory = directory("all");
        let meeting: Vec<_> = (0..3)
            .map(|_| {
                let directory = directory.clone();
                std::thread::spawn(move || meet(&directory, 3, "board=4096", drop))
            })
            .collect();
        let mut met: Vec<Met> = meeting.into_iter().map(|one| one.join().unwrap().unwrap()).collect();
        let mut numbers: Vec<u32> = met.iter().map(|one| one.me.0).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(met.iter().all(|one| one.stream.descriptors().count() == 2));
        let late = meet(&directory, 3, "board=4096", drop);
        assert!(matches!(late, Err(MeetingError::Full { cells: 3, .. })), "{late:?}");
        // A number that is free again is not one of those who have met.
        met.retain(|one| one.me.0 != 2);
        let late = meet(&directory, 3, "board=4096", drop);
        assert!(matches!(late, Err(MeetingError::TooLate(_))), "{late:?}");
        drop(met);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn who_shares_something_else_is_told_what() {
        let directory = directory("else");
        let first = {
            let directory = directory.clone();
            std::thread::spawn(move || meet(&directory, 2, "board=4096", drop))
        };
        let has_socket = || socket_of(&directory, 0).exists() || socket_of(&directory, 1).exists();
        while !has_socket() && !first.is_finished() {
            std::thread::yield_now();
        }
        let second = meet(&directory, 2, "board=8192", drop).unwrap_err().to_string();
        let first = first.join().unwrap().unwrap_err().to_string();
        let mut said = [first, second];
        said.sort();
        assert_eq!(
            said,
            [
                "cell 0 shares board=4096, and this one board=8192",
                "cell 1 shares board=8192, and this one board=4096"
            ]
        );
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn who_does_not_say_who_it_is_is_not_counted() {
        let directory = directory("strange");
        let first = {
            let directory = directory.clone();
            std::thread::spawn(move || meet(&directory, 2, "board=4096", drop))
        };
        while !socket_of(&directory, 0).exists() && !first.is_finished() {
            std::thread::yield_now();
        }
        for nonsense in
            [b"".as_slice(), &[7; 400], &introduction(0, "board=4096"), &introduction(9, "board=4096")]
        {
            let mut line = UnixStream::connect(socket_of(&directory, 0)).unwrap();
            line.write_all(nonsense).unwrap();
        }
        let second = meet(&directory, 2, "board=4096", drop).unwrap();
        assert_eq!((first.join().unwrap().unwrap().me, second.me), (CellId(0), CellId(1)));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
