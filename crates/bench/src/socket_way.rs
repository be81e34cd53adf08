//! The classic way: a Unix stream socket, with reads that sleep in the kernel or with reads that spin.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use crate::endpoint_way::LONGEST;
use crate::workload::{Way, read_payload, write_payload};

/// Method and length of a call, or length of its result.
const HEAD_BYTES: usize = 8;

pub(crate) struct SocketWay {
    stream: UnixStream,
    out: Vec<u8>,
    into: Vec<u8>,
}

impl SocketWay {
    pub(crate) fn new(stream: UnixStream, spins: bool) -> std::io::Result<Self> {
        stream.set_nonblocking(spins)?;
        Ok(Self { stream, out: vec![0; LONGEST], into: vec![0; LONGEST] })
    }

    pub(crate) fn set_spinning(&self, spins: bool) -> std::io::Result<()> {
        self.stream.set_nonblocking(spins)
    }

    fn write(&mut self, from: usize, to: usize) {
        let mut sent = from;
        while sent < to {
            match self.stream.write(&self.out[sent..to]) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn read(&mut self, bytes: usize) {
        let mut got = 0;
        while got < bytes {
            match self.stream.read(&mut self.into[got..bytes]) {
                Ok(0) => panic!("the other side left"),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A call as a program without a library makes it: head and text out, head and text back.
    pub(crate) fn call(&mut self, method: u32, text: &str) -> String {
        self.write_framed(method, text);
        self.read_framed().1
    }

    /// The other side of [`SocketWay::call`]: answers with the same text until method `stop` is called.
    pub(crate) fn serve(&mut self, stop: u32) {
        loop {
            let (method, text) = self.read_framed();
            self.write_framed(method, &text);
            if method == stop {
                return;
            }
        }
    }

    fn write_framed(&mut self, method: u32, text: &str) {
        let end = HEAD_BYTES + text.len();
        self.out[..4].copy_from_slice(&method.to_le_bytes());
        self.out[4..HEAD_BYTES].copy_from_slice(&u32::try_from(text.len()).expect("short").to_le_bytes());
        self.out[HEAD_BYTES..end].copy_from_slice(text.as_bytes());
        self.write(0, end);
    }

    fn read_framed(&mut self) -> (u32, String) {
        self.read(HEAD_BYTES);
        let word = |at: usize| u32::from_le_bytes(self.into[at..at + 4].try_into().expect("four"));
        let (method, bytes) = (word(0), word(4) as usize);
        self.read(bytes);
        (method, String::from_utf8(self.into[..bytes].to_vec()).expect("we sent text"))
    }
}

impl Way for SocketWay {
    fn send(&mut self, bytes: usize, first: u64) {
        write_payload(&mut self.out[..bytes], first);
        self.write(0, bytes);
    }

    fn receive(&mut self, bytes: usize) -> u64 {
        self.read(bytes);
        read_payload(&self.into[..bytes])
    }
}
