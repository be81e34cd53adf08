//! Ways for letters to go.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use comb_types::CellId;

use super::Letter;
use super::letter::MOST_BYTES;

/// Carries letters between cells: each once, those from one cell to another in their order.
pub trait Transport {
    /// Sends a letter, at the latest when [`Self::flush`] is called. An error: that cell is gone, as far as can be told from here.
    fn send(&mut self, to: CellId, letter: &Letter) -> io::Result<()>;

    /// Has all letters on their way that there is room for. Whoever is gone is told of by [`Self::receive`].
    fn flush(&mut self);

    /// Takes the next letter that has come, and from whom, if there is one. An error: what a cell sends is none, or it is gone.
    fn receive(&mut self) -> Result<Option<(CellId, Letter)>, (CellId, io::Error)>;
}

/// Between kernels of one process.
#[derive(Debug)]
pub struct Local {
    me: CellId,
    to: Vec<Sender<(CellId, Letter)>>,
    from: Receiver<(CellId, Letter)>,
}

impl Local {
    /// One for each of so many cells.
    pub fn new(cells: u32) -> Vec<Self> {
        let (to, from): (Vec<_>, Vec<_>) = (0..cells).map(|_| channel()).unzip();
        let with = |(me, from)| Self { me: CellId(me), to: to.clone(), from };
        (0..).zip(from).map(with).collect()
    }
}

impl Transport for Local {
    fn send(&mut self, to: CellId, letter: &Letter) -> io::Result<()> {
        let to = self.to.get(to.0 as usize).ok_or(ErrorKind::NotFound)?;
        to.send((self.me, letter.clone())).map_err(|_| ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) {}

    fn receive(&mut self) -> Result<Option<(CellId, Letter)>, (CellId, io::Error)> {
        match self.from.try_recv() {
            Ok(came) => Ok(Some(came)),
            // It has a way to itself, so that it is never the last.
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(None),
        }
    }
}

/// Between processes: a stream for each other cell.
#[derive(Debug, Default)]
pub struct Stream {
    lines: BTreeMap<CellId, Line>,
    /// This cell's programs have ended.
    has_ended: bool,
}

#[derive(Debug)]
struct Line {
    socket: UnixStream,
    came: Vec<u8>,
    /// What has not been sent, or the socket has had no room for.
    goes: VecDeque<u8>,
    /// Its cell's programs have ended.
    has_ended: bool,
}

/// What stands where a letter's length does, when its sender's programs have ended: it goes on to serve.
const ENDED: u32 = u32::MAX;

impl Stream {
    /// Over these.
    pub fn new(sockets: impl IntoIterator<Item = (CellId, UnixStream)>) -> io::Result<Self> {
        let mut lines = BTreeMap::new();
        for (cell, socket) in sockets {
            socket.set_nonblocking(true)?;
            lines.insert(cell, Line { socket, came: Vec::new(), goes: VecDeque::new(), has_ended: false });
        }
        Ok(Self { lines, has_ended: false })
    }

    /// What becomes ready when letters come, and whether there are any that it has no room for yet.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.lines.values().map(|line| (line.socket.as_fd(), !line.goes.is_empty()))
    }

    /// Has nothing to do with a cell any more.
    pub fn close(&mut self, cell: CellId) {
        self.lines.remove(&cell);
    }

    /// Tells the others that the programs of this cell have ended. It is theirs as before.
    pub fn tell_end(&mut self) {
        self.has_ended = true;
        self.lines.values_mut().for_each(|line| line.goes.extend(ENDED.to_le_bytes()));
    }

    /// Whether no other cell has programs that could need this one.
    pub fn have_others_ended(&self) -> bool {
        self.lines.values().all(|line| line.has_ended)
    }
}

impl Line {
    fn push(&mut self) -> io::Result<()> {
        while !self.goes.is_empty() {
            match self.socket.write(self.goes.as_slices().0) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.goes.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<Option<Letter>> {
        self.push()?;
        loop {
            if let Some((head, rest)) = self.came.split_first_chunk() {
                let length = u32::from_le_bytes(*head);
                if length == ENDED {
                    self.has_ended = true;
                    self.came.drain(..4);
                    continue;
                }
                let length = length as usize;
                if length > MOST_BYTES {
                    return Err(io::Error::new(ErrorKind::InvalidData, "a letter that is too long"));
                }
                if let Some(bytes) = rest.get(..length) {
                    let letter = Letter::from_bytes(bytes)
                        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                    self.came.drain(..4 + length);
                    return Ok(Some(letter));
                }
            }
            let mut some = [0; 32_768];
            match self.socket.read(&mut some) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.came.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Transport for Stream {
    fn send(&mut self, to: CellId, letter: &Letter) -> io::Result<()> {
        let line = self.lines.get_mut(&to).ok_or(ErrorKind::NotFound)?;
        let bytes = letter.to_bytes();
        line.goes.extend(u32::try_from(bytes.len()).expect("letters are short").to_le_bytes());
        line.goes.extend(bytes);
        Ok(())
    }

    fn flush(&mut self) {
        for line in self.lines.values_mut() {
            // It comes up again where letters are taken.
            let _ = line.push();
        }
    }

    fn receive(&mut self) -> Result<Option<(CellId, Letter)>, (CellId, io::Error)> {
        for (&cell, line) in &mut self.lines {
            match line.take() {
                Ok(Some(letter)) => return Ok(Some((cell, letter))),
                Ok(None) => {}
                Err(error) => {
                    // Where both have ended, either may go.
                    let may_go = self.has_ended && line.has_ended;
                    self.lines.remove(&cell);
                    return if may_go { self.receive() } else { Err((cell, error)) };
                }
            }
        }
        Ok(None)
    }
}
