//! A stream of frames to a program that has a network, as `passt` has without privileges.
//!
//! It is what QEMU's `-netdev stream` speaks: each frame after its length, in four bytes. Nothing can be left undone in it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::super::subnet::LONGEST_FRAME;

/// What waits until the other side takes it; what comes on top is lost.
const MOST_WAITING: usize = 1 << 20;
/// What is read at once.
const READ: usize = 256 << 10;
const PREFIX: usize = 4;

/// A stream of frames.
pub struct Stream {
    stream: UnixStream,
    /// What was read, from `begin` to `end`.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    waiting: Vec<u8>,
    is_open: bool,
}

impl Stream {
    /// To the program that listens there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).and_then(Self::new)
    }

    /// By this stream.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, bytes: vec![0; READ], begin: 0, end: 0, waiting: Vec::new(), is_open: true })
    }

    /// Whether anybody is there.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Sends a frame, if not too many wait already.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        if !self.is_open || self.waiting.len() > MOST_WAITING {
            return false;
        }
        self.waiting.extend(u32::try_from(frame.len()).expect("a frame is short").to_be_bytes());
        self.waiting.extend_from_slice(frame);
        true
    }

    /// Writes what waits, as far as there is room. To be called after some were sent, and when there is room again.
    pub fn flush(&mut self) {
        let mut written = 0;
        while self.is_open && written < self.waiting.len() {
            match self.stream.write(&self.waiting[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
        }
        self.waiting.drain(..written);
    }

    /// The next frame that came, if one is there as a whole.
    pub fn receive(&mut self) -> Option<&mut [u8]> {
        loop {
            let read = &self.bytes[self.begin..self.end];
            if let Some(prefix) = read.first_chunk::<PREFIX>() {
                let length = u32::from_be_bytes(*prefix) as usize;
                if length > LONGEST_FRAME {
                    self.is_open = false;
                    return None;
                }
                if read.len() >= PREFIX + length {
                    let begin = self.begin + PREFIX;
                    self.begin = begin + length;
                    return Some(&mut self.bytes[begin..begin + length]);
                }
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Reads more, if there is more.
    fn read(&mut self) -> bool {
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        match self.stream.read(&mut self.bytes[self.end..]) {
            Ok(0) => self.is_open = false,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => self.is_open = false,
        }
        self.is_open
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::fuzz::Fuzz;

    fn pair() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Stream::new(ours).expect("a stream"), theirs)
    }

    #[test]
    fn frames_that_come_in_pieces_are_whole() {
        let (mut stream, mut theirs) = pair();
        let bytes = [&[0, 0, 0, 20][..], &[7; 20], &[0, 0, 0, 15], &[8; 15]].concat();
        for byte in &bytes[..30] {
            assert!(stream.receive().is_none_or(|frame| frame == [7; 20]));
            theirs.write_all(&[*byte]).expect("room");
        }
        assert_eq!(stream.receive(), None);
        theirs.write_all(&bytes[30..]).expect("room");
        assert_eq!(stream.receive(), Some(&mut [8; 15][..]));
        assert_eq!(stream.receive(), None);
        assert!(stream.is_open());
        drop(theirs);
        assert_eq!(stream.receive(), None);
        assert!(!stream.is_open());
    }

    #[test]
    fn whatever_comes_frames_are_as_long_as_is_said() {
        let mut fuzz = Fuzz::start("whatever_comes_frames_are_as_long_as_is_said", 1);
        while fuzz.goes_on() {
            let (mut stream, mut theirs) = pair();
            let mut bytes = Vec::new();
            for _ in 0..1 + fuzz.dice.below(8) {
                let most = [100, 100, 100, 10_000][fuzz.dice.index(4)];
                let length = fuzz.dice.below(most);
                bytes.extend(length.to_be_bytes());
                bytes.resize(bytes.len() + length as usize, fuzz.dice.roll().to_le_bytes()[0]);
            }
            fuzz.mutate(&mut bytes);
            theirs.write_all(&bytes).expect("room");
            drop(theirs);
            let mut rest = &bytes[..];
            while let Some(frame) = stream.receive() {
                let (length, after) = rest.split_first_chunk::<PREFIX>().expect("a length");
                let length = u32::from_be_bytes(*length) as usize;
                assert_eq!(frame, &after[..length]);
                rest = &after[length..];
            }
            assert!(!stream.is_open());
            if let Some((length, after)) = rest.split_first_chunk::<PREFIX>() {
                let length = u32::from_be_bytes(*length) as usize;
                assert!(length > after.len() || length > LONGEST_FRAME);
            }
        }
    }

    #[test]
    fn a_length_that_no_frame_has_ends_it() {
        let (mut stream, mut theirs) = pair();
        theirs.write_all(&[0xff; 8]).expect("room");
        assert_eq!(stream.receive(), None);
        assert!(!stream.is_open());
        assert!(!stream.send(&[1; 20]));
    }

    #[test]
    fn what_nobody_takes_waits_and_then_is_lost() {
        let (mut stream, mut theirs) = pair();
        let mut sent = 0;
        while stream.send(&[1; 1000]) {
            stream.flush();
            sent += 1;
        }
        theirs.set_nonblocking(true).expect("a socket");
        let (mut got, mut bytes) = (0, vec![0; 1 << 16]);
        while got < sent * 1004 {
            match theirs.read(&mut bytes) {
                Ok(count) => got += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    stream.flush();
                }
            }
        }
        assert!(sent * 1004 > MOST_WAITING);
        assert!(stream.send(&[1; 1000]));
    }
}
