//! Traces that are made up, event by event.

use comb_trace::Operation;
use comb_trace::codec::Encoder;
use comb_trace::event::{Event, Identity, append_text, flag};
use comb_trace::trace_file::{Frame, Moment, framed, write_magic};

pub(crate) const CREATE: u64 = 0o100;
pub(crate) const EXCLUSIVE: u64 = 0o200;
pub(crate) const READ_WRITE: u64 = 0o2;
pub(crate) const CUT: u64 = 0o1000;

/// A trace that grows by one event at a time, each a microsecond after the one before.
pub(crate) struct MadeTrace {
    encoder: Encoder,
    now_ns: u64,
    thread: u32,
}

/// A file that is open.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) file: Identity,
    handle: u64,
    descriptor: i32,
}

pub(crate) const fn file(inode: u64) -> Identity {
    Identity { inode, device: 1, generation: 1 }
}

impl MadeTrace {
    pub(crate) fn new() -> Self {
        Self { encoder: Encoder::default(), now_ns: 1_000_000_000, thread: 1 }
    }

    /// From here on this thread acts, which is a process of its own.
    pub(crate) fn by(&mut self, thread: u32) -> &mut Self {
        self.thread = thread;
        self
    }

    /// Nothing happens for a while.
    pub(crate) fn pause(&mut self, pause_ns: u64) {
        self.now_ns += pause_ns;
    }

    pub(crate) fn add(&mut self, operation: Operation, event: Event, given: &[(Identity, &[u8])]) {
        let mut behind = Vec::new();
        for (base, text) in given {
            append_text(&mut behind, *base, text);
        }
        self.now_ns += 1000;
        let event = Event {
            operation: operation as u8,
            text_bytes: u16::try_from(behind.len()).unwrap(),
            thread: self.thread,
            process: self.thread,
            start_ns: self.now_ns,
            duration_ns: 500,
            ..event
        };
        self.encoder.add(&event, &behind);
    }

    pub(crate) fn name(&mut self, of: Identity, path: &str) {
        let mut parts: Vec<u8> = Vec::new();
        for part in path.split('/').filter(|part| !part.is_empty()).rev() {
            parts.extend_from_slice(part.as_bytes());
            parts.push(0);
        }
        self.add(Operation::Name, Event { file: of, ..none() }, &[(Identity::default(), &parts)]);
    }

    /// A call that has paths.
    pub(crate) fn paths(&mut self, operation: Operation, paths: &[&str], argument: u64, result: i64) {
        let given: Vec<_> = paths.iter().map(|path| (Identity::default(), path.as_bytes())).collect();
        self.add(operation, Event { argument, result, ..none() }, &given);
    }

    pub(crate) fn open(
        &mut self,
        of: Identity,
        descriptor: i32,
        argument: u64,
        size: u64,
        is_made: bool,
    ) -> Opened {
        let handle = 0xffff_0000 + self.now_ns;
        let event = Event {
            descriptor,
            result: descriptor.into(),
            argument,
            handle,
            file: of,
            size,
            mode: 0o100_644,
            flags: if is_made { flag::CREATED } else { 0 },
            ..none()
        };
        self.add(Operation::Open, event, &[]);
        Opened { file: of, handle, descriptor }
    }

    /// A call on an open file, which is of this size afterwards.
    pub(crate) fn on(&mut self, operation: Operation, open: Opened, event: Event) {
        let Opened { file, handle, descriptor } = open;
        self.add(operation, Event { file, handle, descriptor, mode: 0o100_644, ..event }, &[]);
    }

    pub(crate) fn write(&mut self, open: Opened, offset: u64, bytes: u64) {
        let size = offset + bytes;
        let event = Event { offset, asked: bytes, result: i64::try_from(bytes).unwrap(), size, ..none() };
        self.on(Operation::Write, open, event);
    }

    pub(crate) fn read(&mut self, open: Opened, offset: u64, asked: u64, size: u64) {
        let result = i64::try_from(size.saturating_sub(offset).min(asked)).unwrap();
        self.on(Operation::Read, open, Event { offset, asked, result, size, ..none() });
    }

    pub(crate) fn close(&mut self, open: Opened) {
        self.on(Operation::Close, open, none());
    }

    /// The trace as it would be in a file.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_magic(&mut bytes).unwrap();
        bytes.extend(framed(&Frame::Head(Box::default())));
        bytes.extend(framed(&Frame::Events(self.encoder.take().unwrap())));
        bytes.extend(framed(&Frame::End(Moment::default())));
        bytes
    }
}

pub(crate) fn none() -> Event {
    Event { descriptor: -1, ..Event::default() }
}
