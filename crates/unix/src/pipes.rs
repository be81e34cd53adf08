//! Pipes, within the emulator.

use crate::errno::{EBUSY, EPERM, Errno};
use crate::waiting::{Key, Wakes};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// What a new pipe holds at most, as on Linux.
pub(crate) const CAPACITY: usize = 65536;
/// What a program may make it hold at most.
pub(crate) const MOST_CAPACITY: usize = 1 << 20;
/// So many bytes are written as one or not yet (`PIPE_BUF`).
pub(crate) const ATOMIC: usize = 4096;

/// A pipe: bytes on their way from writers to readers.
pub(crate) struct Pipe {
    pub(crate) number: u64,
    bytes: RefCell<VecDeque<u8>>,
    capacity: Cell<usize>,
    readers: Cell<u32>,
    writers: Cell<u32>,
    /// How often something was written, for those who look for news.
    pub(crate) changes: Cell<u64>,
    wakes: Rc<Wakes>,
}

/// Why nothing moves through a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stuck {
    /// Nobody reads any more.
    Broken,
    /// It is full or empty for now.
    NotNow,
}

/// What an open file holds of a pipe; the pipe is told when it goes.
pub(crate) struct End {
    pub(crate) pipe: Rc<Pipe>,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Pipe {
    /// An empty pipe without ends.
    pub(crate) fn new(number: u64, wakes: &Rc<Wakes>) -> Rc<Pipe> {
        Rc::new(Pipe {
            number,
            bytes: RefCell::default(),
            capacity: Cell::new(CAPACITY),
            readers: Cell::new(0),
            writers: Cell::new(0),
            changes: Cell::new(0),
            wakes: Rc::clone(wakes),
        })
    }

    fn changed(&self) {
        self.changes.set(self.changes.get() + 1);
        self.wakes.wake(Key::Object(self.number));
    }

    /// Bytes that wait to be read.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// Whether a write of a few bytes would find room.
    pub(crate) fn has_room(&self) -> bool {
        self.capacity.get() - self.waiting() >= ATOMIC
    }

    /// What it holds at most.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.get()
    }

    /// Lets it hold at least so many bytes at most. Nothing changes if it holds more already than it is to.
    pub(crate) fn set_capacity(&self, bytes: u64) -> Result<usize, Errno> {
        if bytes > MOST_CAPACITY as u64 {
            return Err(EPERM);
        }
        let capacity = (bytes as usize).max(ATOMIC).next_power_of_two();
        if capacity < self.waiting() {
            return Err(EBUSY);
        }
        self.capacity.set(capacity);
        self.changed();
        Ok(capacity)
    }

    /// Whether anybody can still write.
    pub(crate) fn is_written(&self) -> bool {
        self.writers.get() > 0
    }

    /// Whether anybody can still read.
    pub(crate) fn is_read(&self) -> bool {
        self.readers.get() > 0
    }

    /// Takes in bytes, as many as there is room for; a few are taken as one.
    pub(crate) fn put(&self, from: &[u8]) -> Result<usize, Stuck> {
        if !self.is_read() {
            return Err(Stuck::Broken);
        }
        let room = self.capacity.get() - self.waiting();
        let count = from.len().min(room);
        if count < from.len() && (from.len() <= ATOMIC || room == 0) {
            return Err(Stuck::NotNow);
        }
        self.bytes.borrow_mut().extend(&from[..count]);
        self.changed();
        Ok(count)
    }

    /// A copy of the first bytes, at most so many; none at the end of the stream.
    pub(crate) fn look(&self, most: usize) -> Result<Vec<u8>, Stuck> {
        let bytes = self.bytes.borrow();
        if bytes.is_empty() && self.is_written() {
            return Err(Stuck::NotNow);
        }
        Ok(bytes.iter().take(most).copied().collect())
    }

    /// Takes away the first bytes, which were copied before.
    pub(crate) fn consume(&self, count: usize) {
        self.bytes.borrow_mut().drain(..count);
        if count > 0 {
            self.changed();
        }
    }
}

impl End {
    /// One more hold on the pipe.
    pub(crate) fn new(pipe: &Rc<Pipe>, reads: bool, writes: bool) -> End {
        pipe.readers.set(pipe.readers.get() + u32::from(reads));
        pipe.writers.set(pipe.writers.get() + u32::from(writes));
        pipe.changed();
        End { pipe: Rc::clone(pipe), reads, writes }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let pipe = &self.pipe;
        pipe.readers.set(pipe.readers.get() - u32::from(self.reads));
        pipe.writers.set(pipe.writers.get() - u32::from(self.writes));
        pipe.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pipe() -> (Rc<Wakes>, End, End) {
        let wakes = Rc::new(Wakes::default());
        let pipe = Pipe::new(7, &wakes);
        let ends = (End::new(&pipe, true, false), End::new(&pipe, false, true));
        (wakes, ends.0, ends.1)
    }

    #[test]
    fn a_small_write_is_whole_or_waits() {
        let (_, reader, writer) = pipe();
        assert_eq!(writer.pipe.put(&vec![1; CAPACITY - 10]), Ok(CAPACITY - 10));
        assert_eq!(writer.pipe.put(&[2; 11]), Err(Stuck::NotNow));
        assert_eq!(writer.pipe.put(&[2; 10]), Ok(10));
        assert_eq!(writer.pipe.put(&[2; ATOMIC + 1]), Err(Stuck::NotNow));
        reader.pipe.consume(5);
        assert_eq!(writer.pipe.put(&[2; ATOMIC + 1]), Ok(5));
    }

    #[test]
    fn a_pipe_can_be_made_to_hold_more_or_less() {
        let (_, reader, writer) = pipe();
        assert_eq!(reader.pipe.set_capacity(5000), Ok(8192));
        assert_eq!(writer.pipe.put(&vec![0; 10_000]), Ok(8192));
        assert_eq!(reader.pipe.set_capacity(1), Err(EBUSY));
        assert_eq!(reader.pipe.set_capacity(u64::MAX), Err(EPERM));
        assert_eq!(reader.pipe.capacity(), 8192);
    }

    #[test]
    fn ends_that_go_are_noticed_and_wake_those_who_wait() {
        let (wakes, reader, writer) = pipe();
        let pipe = Rc::clone(&reader.pipe);
        writer.pipe.put(b"ab").expect("room");
        wakes.take();
        drop(writer);
        assert_eq!(wakes.take(), vec![Key::Object(7)]);
        assert_eq!(pipe.look(10), Ok(b"ab".to_vec()));
        pipe.consume(2);
        assert_eq!(pipe.look(10), Ok(Vec::new()));
        drop(reader);
        assert_eq!(pipe.put(b"x"), Err(Stuck::Broken));
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(steps in proptest::collection::vec((any::<bool>(), 1usize..30_000), 1..60)) {
            let (_, reader, writer) = pipe();
            let (mut put, mut got) = (0u32, 0u32);
            for (write, count) in steps {
                if write {
                    let bytes: Vec<u8> = (0..count as u32).map(|index| ((put + index) % 251) as u8).collect();
                    match writer.pipe.put(&bytes) {
                        Ok(done) => put += done as u32,
                        Err(stuck) => prop_assert_eq!(stuck, Stuck::NotNow),
                    }
                } else if let Ok(bytes) = reader.pipe.look(count) {
                    for &byte in &bytes {
                        prop_assert_eq!(u32::from(byte), got % 251);
                        got += 1;
                    }
                    reader.pipe.consume(bytes.len());
                } else {
                    prop_assert_eq!(put, got);
                }
                prop_assert_eq!(reader.pipe.waiting() as u32, put - got);
            }
        }
    }
}
