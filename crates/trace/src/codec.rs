//! Events in few bytes: what is as it was to be expected is not written down.
//!
//! Most of an event follows from those before it: a read goes on where the last one ended, of a file whose length is known, through the
//! descriptor that it was opened with. `Memory` is what the one who writes and the one who reads both know at any time; of an event only
//! what differs from the guess is written, each field to a column of its own, so that a compressor finds like beside like.
//!
//! There is one description of that, `Memory::pass`, which both sides walk: it cannot be written in one way and read in another.

mod memory;
mod sides;

use thiserror::Error;

use self::memory::Memory;
use self::sides::{ReadingSide, WritingSide};
use crate::event::Event;

/// As many events are compressed together, at most.
pub const MOST_EVENTS: usize = 1 << 15;

/// When so many files or texts are known, all is forgotten: a recording may take weeks, and its memory may not.
const MOST_KNOWN: usize = 1 << 20;

/// No block of ours is larger when it is unpacked; who claims more lies. As many events with two texts of the longest each would be.
const MOST_BLOCK_BYTES: usize = 320 << 20;

/// Fast, and still good: what is compressed comes from programs that go on meanwhile.
const COMPRESSION_LEVEL: i32 = 1;

/// In front of a block: the length that it has unpacked, how many events are in it, and how many blocks before it have to be known.
const HEAD_BYTES: usize = 16;

/// A block that none of our encoders has written, or that has been damaged, or whose predecessor is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CorruptBlock {
    /// The block before it was not read.
    #[error("the one before it is missing")]
    Predecessor,
    /// It is no compressed data, or claims to be larger than any of ours.
    #[error("it cannot be unpacked")]
    Packing,
    /// A column ends too early, or has more than what belongs to its events.
    #[error("a column has not the length that it should have")]
    Length,
    /// It speaks of a file, a thread or a text that nothing before it has introduced.
    #[error("it names something that nothing before it has introduced")]
    Unknown,
    /// A number is larger than what it stands for can be.
    #[error("a number is out of range")]
    Range,
}

/// What stands in front of a block. It is what the block claims, and within the limits of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHead {
    plain_bytes: usize,
    pub(crate) events: u32,
    /// How many blocks before it have to be known.
    pub(crate) place: u32,
}

impl BlockHead {
    /// Takes it off the front of a block.
    pub(crate) fn split(block: &[u8]) -> Result<(Self, &[u8]), CorruptBlock> {
        let (head, packed) = block.split_at_checked(HEAD_BYTES).ok_or(CorruptBlock::Length)?;
        let number = |range| u32::from_le_bytes(<[u8; 4]>::try_from(&head[range]).expect("four bytes"));
        let bytes = u64::from_le_bytes(<[u8; 8]>::try_from(&head[..8]).expect("eight bytes"));
        let plain_bytes = usize::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes <= MOST_BLOCK_BYTES)
            .ok_or(CorruptBlock::Packing)?;
        let (events, place) = (number(8..12), number(12..16));
        if events as usize > MOST_EVENTS {
            return Err(CorruptBlock::Range);
        }
        Ok((Self { plain_bytes, events, place }, packed))
    }
}

/// Turns events into blocks.
#[derive(Default)]
pub struct Encoder {
    memory: Memory,
    side: WritingSide,
    events: usize,
    /// How many blocks have been taken since all was forgotten.
    place: u32,
}

impl Encoder {
    /// How many events are waiting to be taken as a block.
    pub fn len(&self) -> usize {
        self.events
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Whether [`Self::take`] should be called before anything more is added.
    pub fn is_full(&self) -> bool {
        self.events >= MOST_EVENTS
    }

    /// Adds an event with the texts behind it, as [`texts`](crate::event::texts) reads them; of more than two the first two.
    pub fn add(&mut self, event: &Event, behind: &[u8]) {
        self.events += 1;
        self.side.behind =
            crate::event::texts(behind).take(2).map(|(base, text)| (base, text.into())).collect();
        let mut event = *event;
        self.memory.pass(&mut event, &mut self.side).expect("writing down what is there does not fail");
    }

    /// The block of all that has been added since the last; `None` if that is nothing.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        if self.events == 0 {
            return None;
        }
        let plain = self.side.take();
        let mut block = Vec::with_capacity(HEAD_BYTES + plain.len() / 2);
        block.extend_from_slice(&(plain.len() as u64).to_le_bytes());
        block.extend_from_slice(
            &u32::try_from(self.events).expect("a block is taken before it is too large").to_le_bytes(),
        );
        block.extend_from_slice(&self.place.to_le_bytes());
        block.extend_from_slice(
            &zstd::bulk::compress(&plain, COMPRESSION_LEVEL).expect("memory can be compressed"),
        );
        self.events = 0;
        self.place += 1;
        if self.memory.known() > MOST_KNOWN {
            *self = Self::default();
        }
        Some(block)
    }
}

/// Turns blocks back into events, in the order in which they were written.
#[derive(Default)]
pub struct Decoder {
    memory: Memory,
    texts: Vec<Box<[u8]>>,
    place: u32,
}

impl Decoder {
    /// Hands the events of the next block over, each with the texts behind it. After an error nothing more can be read.
    pub fn read(&mut self, block: &[u8], mut sink: impl FnMut(&Event, &[u8])) -> Result<(), CorruptBlock> {
        let (BlockHead { plain_bytes: bytes, events, place }, packed) = BlockHead::split(block)?;
        if place == 0 {
            *self = Self::default();
        } else if place != self.place {
            return Err(CorruptBlock::Predecessor);
        }
        self.place = u32::MAX; // until all of it has been read
        // By pieces, so that who claims much and has little gets little.
        let mut plain = Vec::new();
        let unpacked = zstd::stream::read::Decoder::new(packed).map_err(|_| CorruptBlock::Packing)?;
        let mut unpacked = std::io::Read::take(unpacked, bytes as u64 + 1);
        std::io::Read::read_to_end(&mut unpacked, &mut plain).map_err(|_| CorruptBlock::Packing)?;
        if plain.len() != bytes {
            return Err(CorruptBlock::Packing);
        }
        let mut side = ReadingSide::new(&plain, &mut self.texts)?;
        for _ in 0..events {
            let mut event = Event::default();
            side.behind.clear();
            self.memory.pass(&mut event, &mut side)?;
            event.text_bytes = u16::try_from(side.behind.len()).map_err(|_| CorruptBlock::Range)?;
            sink(&event, &side.behind);
        }
        if !side.is_at_end() {
            return Err(CorruptBlock::Length);
        }
        self.place = place.wrapping_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
