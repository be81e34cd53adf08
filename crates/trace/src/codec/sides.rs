//! The two who walk along what an event is made of: one writes, one reads.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::CorruptBlock;
use super::memory::{COLUMNS, Field, Side, Whole};
use crate::event::{Identity, MOST_TEXT_BYTES, append_text};
use crate::varint::{NumberFault, folded, read_number, unfolded, write_number};

impl From<NumberFault> for CorruptBlock {
    fn from(fault: NumberFault) -> Self {
        match fault {
            NumberFault::Length => Self::Length,
            NumberFault::Range => Self::Range,
        }
    }
}

/// Writes down what it is handed.
#[derive(Default)]
pub(super) struct WritingSide {
    columns: [Vec<u8>; COLUMNS],
    bits: u16,
    threads: HashMap<(u32, u32), usize, RandomState>,
    handles: HashMap<u64, usize, RandomState>,
    files: HashMap<Identity, usize, RandomState>,
    texts: HashMap<Box<[u8]>, usize, RandomState>,
    /// The texts of the event that is being written.
    pub(super) behind: Vec<(Identity, Box<[u8]>)>,
}

impl WritingSide {
    /// All columns, each behind its length; they are empty afterwards.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.columns.iter().map(|column| column.len() + 4).sum());
        for column in &mut self.columns {
            write_number(&mut whole, column.len() as u64);
            whole.append(column);
        }
        whole
    }
}

impl Side for WritingSide {
    fn begin(&mut self) -> Result<(), CorruptBlock> {
        self.bits = 0;
        Ok(())
    }

    fn field(&mut self, field: Field, value: &mut u64, guess: u64) -> Result<(), CorruptBlock> {
        if *value != guess {
            self.bits |= 1 << field as u8;
            write_number(&mut self.columns[field as usize], folded(value.wrapping_sub(guess)));
        }
        Ok(())
    }

    fn whole(&mut self, column: Whole, value: &mut u64) -> Result<(), CorruptBlock> {
        write_number(&mut self.columns[column as usize], *value);
        Ok(())
    }

    fn end(&mut self) {
        let [lower, upper] = self.bits.to_le_bytes();
        self.columns[Whole::LowerBits as usize].push(lower);
        self.columns[Whole::UpperBits as usize].push(upper);
    }

    fn thread_index(&mut self, thread: (u32, u32), next: usize) -> usize {
        *self.threads.entry(thread).or_insert(next)
    }

    fn handle_index(&mut self, handle: u64, next: usize) -> usize {
        *self.handles.entry(handle).or_insert(next)
    }

    fn file_index(&mut self, file: Identity, next: usize) -> usize {
        *self.files.entry(file).or_insert(next)
    }

    fn texts(&self) -> usize {
        self.behind.len()
    }

    fn base(&self, number: usize) -> Identity {
        self.behind[number].0
    }

    fn text(&mut self, number: usize, _base: Identity) -> Result<(), CorruptBlock> {
        let text = std::mem::take(&mut self.behind[number].1);
        let next = self.texts.len();
        if let Some(&known) = self.texts.get(&text) {
            return self.whole(Whole::Text, &mut (known as u64));
        }
        self.whole(Whole::Text, &mut (next as u64))?;
        self.whole(Whole::Introduction, &mut (text.len() as u64))?;
        self.columns[Whole::TextBytes as usize].extend_from_slice(&text);
        self.texts.insert(text, next);
        Ok(())
    }

    fn known_texts(&self) -> usize {
        self.texts.len()
    }
}

/// Hands over what it reads.
pub(super) struct ReadingSide<'a> {
    columns: [&'a [u8]; COLUMNS],
    bits: u16,
    texts: &'a mut Vec<Box<[u8]>>,
    /// What is behind the event that is being read.
    pub(super) behind: Vec<u8>,
}

impl<'a> ReadingSide<'a> {
    pub(super) fn new(mut plain: &'a [u8], texts: &'a mut Vec<Box<[u8]>>) -> Result<Self, CorruptBlock> {
        let mut columns = [&[][..]; COLUMNS];
        for column in &mut columns {
            let bytes = usize::try_from(read_number(&mut plain)?).map_err(|_| CorruptBlock::Range)?;
            (*column, plain) = plain.split_at_checked(bytes).ok_or(CorruptBlock::Length)?;
        }
        if !plain.is_empty() {
            return Err(CorruptBlock::Length);
        }
        Ok(Self { columns, bits: 0, texts, behind: Vec::new() })
    }

    /// Whether nothing is left.
    pub(super) fn is_at_end(&self) -> bool {
        self.columns.iter().all(|column| column.is_empty())
    }

    fn byte(&mut self, column: Whole) -> Result<u8, CorruptBlock> {
        let column = &mut self.columns[column as usize];
        let (&byte, rest) = column.split_first().ok_or(CorruptBlock::Length)?;
        *column = rest;
        Ok(byte)
    }
}

impl Side for ReadingSide<'_> {
    fn begin(&mut self) -> Result<(), CorruptBlock> {
        self.bits = u16::from_le_bytes([self.byte(Whole::LowerBits)?, self.byte(Whole::UpperBits)?]);
        Ok(())
    }

    fn field(&mut self, field: Field, value: &mut u64, guess: u64) -> Result<(), CorruptBlock> {
        let is_there = self.bits & 1 << field as u8 != 0;
        let difference = if is_there { unfolded(read_number(&mut self.columns[field as usize])?) } else { 0 };
        *value = guess.wrapping_add(difference);
        Ok(())
    }

    fn whole(&mut self, column: Whole, value: &mut u64) -> Result<(), CorruptBlock> {
        *value = read_number(&mut self.columns[column as usize])?;
        Ok(())
    }

    fn end(&mut self) {}

    fn thread_index(&mut self, _thread: (u32, u32), _next: usize) -> usize {
        0
    }

    fn handle_index(&mut self, _handle: u64, _next: usize) -> usize {
        0
    }

    fn file_index(&mut self, _file: Identity, _next: usize) -> usize {
        0
    }

    fn texts(&self) -> usize {
        0
    }

    fn base(&self, _number: usize) -> Identity {
        Identity::default()
    }

    fn text(&mut self, _number: usize, base: Identity) -> Result<(), CorruptBlock> {
        let mut index = 0;
        self.whole(Whole::Text, &mut index)?;
        let index = usize::try_from(index).map_err(|_| CorruptBlock::Range)?;
        if index == self.texts.len() {
            let mut bytes = 0;
            self.whole(Whole::Introduction, &mut bytes)?;
            let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= MOST_TEXT_BYTES);
            let column = &mut self.columns[Whole::TextBytes as usize];
            let (text, rest) =
                column.split_at_checked(bytes.ok_or(CorruptBlock::Range)?).ok_or(CorruptBlock::Length)?;
            *column = rest;
            self.texts.push(text.into());
        }
        let text = self.texts.get(index).ok_or(CorruptBlock::Unknown)?;
        append_text(&mut self.behind, base, text);
        Ok(())
    }

    fn known_texts(&self) -> usize {
        self.texts.len()
    }
}
