//! What agents say, byte by byte, and a stream that says it.

use std::io::{self, Read, Write};
use std::time::Duration;

use comb_trace::collect::Stream;
use comb_trace::trace_file::{Frame, Head, framed};

pub(crate) const MAGIC: &[u8] = b"comb collect";
pub(crate) const HELLO: u8 = 1;
pub(crate) const OPEN: u8 = 3;
pub(crate) const FRAME: u8 = 5;

/// Says what it has, and does not listen.
pub(crate) struct Scripted<R>(R);

impl<R> Scripted<R> {
    pub(crate) const fn new(script: R) -> Self {
        Self(script)
    }
}

impl<R: Read> Read for Scripted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R> Write for Scripted<R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<R: Read> Stream for Scripted<R> {
    fn set_patience(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    let sum = crc32fast::hash(body) ^ u32::from(kind);
    [&[kind][..], &length.to_le_bytes(), &sum.to_le_bytes(), body].concat()
}

pub(crate) fn hello(machine: &str) -> Vec<u8> {
    let name = [&[1, 1, u8::try_from(machine.len()).unwrap()][..], machine.as_bytes()].concat();
    [MAGIC, &message(HELLO, &name)].concat()
}

/// Of the recording with this number, from its beginning.
pub(crate) fn open(recording: u8) -> Vec<u8> {
    message(OPEN, &[recording, 0, 0])
}

pub(crate) fn frame(sequence: u64, frame: &Frame) -> Vec<u8> {
    message(FRAME, &[&sequence.to_le_bytes()[..], &framed(frame)].concat())
}

pub(crate) fn head() -> Frame {
    Frame::Head(Box::<Head>::default())
}
