//! Reads what programs put into the memory that they share with the recorder. `preload/ring.h` says the same in C; a test compares the two.
//!
//! There are many who write, and this one who reads. It believes nothing: where the next record starts is known here alone, each word is
//! looked at once, and what does not make sense is counted and thrown away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use zerocopy::{FromBytes, IntoBytes};

use super::memory::Memory;
use crate::Operation;
use crate::event::{Event, MOST_TEXT_BYTES, TextHead, texts};
use crate::source::Counters;

const MAGIC: u64 = 0x3167_6e69_726d_6f63;
const HEADER_BYTES: usize = 4096;
const NAMED: usize = 65536;
const CELL_BYTES: usize = 128;
const CELL_ROOM: usize = 120;

const WORD_MAGIC: usize = 0;
const WORD_CELLS: usize = 1;
const WORD_HEAD: usize = 8;
const WORD_LOST: usize = 16;

const RESERVED: u64 = 1;
const PUBLISHED: u64 = 2;
const STATE_BIT: u32 = 62;
const POSITION_BIT: u32 = 32;
const POSITION_BITS: u32 = 30;
const THREAD_BIT: u32 = 8;
const THREAD_BITS: u32 = 24;

const FIRST_CELL: usize = (HEADER_BYTES + NAMED * 8) / 8;
const CELL_WORDS: usize = CELL_BYTES / 8;

/// No record has more: two texts of the longest.
const MOST_RECORD_BYTES: usize = size_of::<Event>() + 2 * (size_of::<TextHead>() + MOST_TEXT_BYTES);

/// A thread that has reserved a record and is not there any more has been killed in between. Not at once: the number of a thread in a
/// namespace of its own is not known here, and the thread may be there all the same.
const LONGEST_ABSENCE: Duration = Duration::from_secs(1);

/// And one that is there has been stopped, or is another of the same number. Nobody else's records can be read as long as it is waited for.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);

/// How much memory a ring of so many cells needs.
pub(super) const fn bytes(cells: usize) -> usize {
    HEADER_BYTES + NAMED * 8 + cells * CELL_BYTES
}

/// What a cell's state says of a record that starts there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reservation {
    thread: u32,
    cells: u64,
}

/// What is found where the next record should start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// Nothing yet.
    Free,
    /// Somebody is writing it.
    Reserved(Reservation),
    /// It is there.
    Published(Reservation),
    /// Nobody who follows the rules has left that.
    Nonsense,
}

/// The reader's side.
pub(super) struct Ring {
    memory: Memory,
    cells: u64,
    /// Where the next record starts, counted from the first.
    tail: u64,
    handed_over: u64,
    /// Records that were reserved and never came, or made no sense.
    spoilt: u64,
    /// Who is waited for at the tail, and since when.
    waiting: Option<(u64, Instant)>,
    record: Vec<u64>,
}

impl Ring {
    /// Makes a ring of fresh memory, which is all zeros.
    pub(super) fn new(memory: Memory, cells: usize) -> Self {
        assert!(cells.is_power_of_two() && memory.words().len() * 8 >= bytes(cells));
        // Which are free for the first lap.
        let ring = Self {
            memory,
            cells: cells as u64,
            tail: 0,
            handed_over: 0,
            spoilt: 0,
            waiting: None,
            record: Vec::with_capacity(MOST_RECORD_BYTES / 8 + CELL_WORDS),
        };
        ring.word(WORD_CELLS).store(cells as u64, Ordering::Relaxed);
        ring.word(WORD_MAGIC).store(MAGIC, Ordering::Release);
        ring
    }

    /// Where other processes find it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.descriptor())
    }

    /// Hands over what is there, at most so many.
    pub(super) fn fetch(&mut self, most: usize, sink: &mut dyn FnMut(&Event, &[u8])) -> usize {
        let mut fetched = 0;
        // Also those that make no sense: somebody could go on making them.
        for _ in 0..most {
            match self.found(self.tail) {
                Found::Published(Reservation { cells, .. }) => {
                    self.copy(cells);
                    self.free(cells);
                    match checked(self.record.as_bytes()) {
                        Some((event, texts)) => {
                            sink(event, texts);
                            self.handed_over += 1;
                            fetched += 1;
                        }
                        None => self.spoilt += 1,
                    }
                }
                Found::Reserved(reservation) => {
                    if !self.is_given_up(reservation) {
                        break;
                    }
                    self.free(reservation.cells);
                    self.spoilt += 1;
                }
                Found::Free => {
                    // Nobody moves the head past a cell that is free, and none but this one makes it so.
                    if self.word(WORD_HEAD).load(Ordering::Acquire) == self.tail
                        || self.found(self.tail) != Found::Free
                    {
                        break;
                    }
                    self.spoilt += 1;
                    self.clear();
                    break;
                }
                Found::Nonsense => {
                    self.spoilt += 1;
                    self.clear();
                    break;
                }
            }
        }
        fetched
    }

    /// What was seen so far: those that wait at the moment are among them.
    pub(super) fn counters(&self) -> Counters {
        let (mut waiting, mut position) = (0, self.tail);
        while position < self.tail + self.cells
            && let Found::Published(Reservation { cells, .. }) = self.found(position)
        {
            waiting += 1;
            position += cells;
        }
        Counters {
            recorded: self.handed_over + waiting,
            lost: self.word(WORD_LOST).load(Ordering::Relaxed).saturating_add(self.spoilt),
            foreign: 0,
        }
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        &self.memory.words()[word]
    }

    /// The first word of the cell at a position: its state.
    fn cell(&self, position: u64) -> usize {
        let index = usize::try_from(position % self.cells).expect("a ring fits into memory");
        FIRST_CELL + index * CELL_WORDS
    }

    /// Where the lap of a position starts: that stands in the cell while it is free.
    const fn lap(&self, position: u64) -> u64 {
        position & !(self.cells - 1)
    }

    fn found(&self, position: u64) -> Found {
        let state = self.word(self.cell(position)).load(Ordering::Acquire);
        if state == self.lap(position) {
            return Found::Free;
        }
        let reservation = Reservation {
            thread: u32::try_from(state >> THREAD_BIT & ((1 << THREAD_BITS) - 1)).expect("24 bits"),
            cells: state & ((1 << THREAD_BIT) - 1),
        };
        let most = (MOST_RECORD_BYTES.div_ceil(CELL_ROOM) as u64).min(self.cells);
        let is_here = (state >> POSITION_BIT ^ position) & ((1 << POSITION_BITS) - 1) == 0;
        if !is_here || !(1..=most).contains(&reservation.cells) {
            return Found::Nonsense;
        }
        match state >> STATE_BIT {
            RESERVED => Found::Reserved(reservation),
            PUBLISHED => Found::Published(reservation),
            _ => Found::Nonsense,
        }
    }

    /// Takes a record out of its cells, word by word: from here on it does not change any more.
    fn copy(&mut self, cells: u64) {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        for position in self.tail..self.tail + cells {
            let first = self.cell(position) + 1;
            let words = &self.memory.words()[first..first + CELL_ROOM / 8];
            record.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
        }
        self.record = record;
    }

    /// Gives cells back, for the next lap, one after the other: who finds the last one free takes it that all are.
    fn free(&mut self, cells: u64) {
        // Whoever reserved it may not have come to that.
        let _ = self.word(WORD_HEAD).compare_exchange(
            self.tail,
            self.tail + cells,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        for position in self.tail..self.tail + cells {
            let next_lap = self.lap(position + self.cells);
            self.word(self.cell(position)).store(next_lap, Ordering::Release);
        }
        self.tail += cells;
        self.waiting = None;
    }

    /// Whether a record that has been reserved will never come. Asked again and again as long as it is not there.
    fn is_given_up(&mut self, reservation: Reservation) -> bool {
        let waiting_since = match self.waiting {
            Some((position, since)) if position == self.tail => since,
            _ => self.waiting.insert((self.tail, Instant::now())).1,
        };
        let silence = waiting_since.elapsed();
        silence >= LONGEST_SILENCE || silence >= LONGEST_ABSENCE && !exists(reservation.thread)
    }

    /// Makes all cells free, from the tail on. Who is writing at the moment finds another state than it left, and has lost its record.
    fn clear(&mut self) {
        for position in self.tail..self.tail + self.cells {
            self.word(self.cell(position)).store(self.lap(position), Ordering::Release);
        }
        self.word(WORD_HEAD).store(self.tail, Ordering::Release);
        self.word(WORD_CELLS).store(self.cells, Ordering::Relaxed);
        self.waiting = None;
    }
}

fn exists(thread: u32) -> bool {
    std::path::Path::new("/proc").join(thread.to_string()).exists()
}

/// An event, and its texts as far as they are texts: nothing that could not be written down.
fn checked(record: &[u8]) -> Option<(&Event, &[u8])> {
    let (event, rest) = Event::ref_from_prefix(record).ok()?;
    let behind = rest.get(..usize::from(event.text_bytes))?;
    Operation::of_number(event.operation)?;
    let (mut bytes, mut count) = (0, 0);
    for (_, text) in texts(behind) {
        if text.len() > MOST_TEXT_BYTES {
            return None;
        }
        bytes += size_of::<TextHead>() + text.len();
        count += 1;
    }
    (bytes == behind.len() && count <= 2).then_some((event, behind))
}

#[cfg(test)]
mod tests;
