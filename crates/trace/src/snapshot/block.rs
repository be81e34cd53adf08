//! Records in few bytes: what is as it was in the record before, or follows from the rest, becomes a zero in a column of zeros.
//!
//! There is one description of that, `pass`, which both sides walk: it cannot be written in one way and read in another. Most of what is
//! left is fractions of seconds, which nobody can guess.

use thiserror::Error;

use super::{Attributes, Directory, Inside};
use crate::varint::{NumberFault, folded, read_number, unfolded, write_number};

/// As many records are compressed together, at most.
pub const MOST_RECORDS: usize = 1 << 14;

/// No block of ours is larger when it is unpacked: as many of the longest names, and every number at its longest.
const MOST_BLOCK_BYTES: usize = 64 << 20;

/// The longest path, which only a root's record holds.
const MOST_NAME_BYTES: usize = 1 << 16;

/// A snapshot waits for the disk, and hardly for this.
const COMPRESSION_LEVEL: i32 = 6;

/// In front of a block: how many records are in it, and the length that it has unpacked.
const HEAD_BYTES: usize = 8;

/// A block that was not written by us, or was damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CorruptBlock {
    /// It is no compressed data, or claims to be larger than any of ours.
    #[error("it cannot be unpacked")]
    Packing,
    /// A column ends too early, or has more than what belongs to its records.
    #[error("a column has not the length that it should have")]
    Length,
    /// A number is larger than what it stands for can be.
    #[error("a number is out of range")]
    Range,
}

impl From<NumberFault> for CorruptBlock {
    fn from(fault: NumberFault) -> Self {
        match fault {
            NumberFault::Length => Self::Length,
            NumberFault::Range => Self::Range,
        }
    }
}

/// A file as it is written down: its path follows from what stands before it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Record {
    /// In its directory; of a root, the whole path.
    pub(super) name: Vec<u8>,
    pub(super) attributes: Attributes,
    pub(super) directory: Option<Directory>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Column {
    NameShared,
    NameRest,
    NameBytes,
    Mode,
    User,
    Group,
    Links,
    Device,
    Inode,
    Size,
    Allocated,
    ModifiedSeconds,
    ModifiedFraction,
    ChangedSeconds,
    ChangedFraction,
    HasBirth,
    BornSeconds,
    BornFraction,
    AccessedSeconds,
    AccessedFraction,
    Files,
    Directories,
    Inside,
}

const COLUMNS: usize = Column::Inside as usize + 1;

/// Who walks along `pass`: writing what it is handed, or handing over what it reads.
trait Side {
    fn number(&mut self, column: Column, value: &mut u64, guess: u64) -> Result<(), CorruptBlock>;
    fn name(&mut self, name: &mut Vec<u8>, previous: &[u8]) -> Result<(), CorruptBlock>;
}

/// Takes one record over to the other side.
fn pass(record: &mut Record, previous: &Record, side: &mut impl Side) -> Result<(), CorruptBlock> {
    side.name(&mut record.name, &previous.name)?;
    let (is, was) = (&mut record.attributes, &previous.attributes);
    narrow(side, Column::Mode, &mut is.mode, was.mode)?;
    narrow(side, Column::User, &mut is.user, was.user)?;
    narrow(side, Column::Group, &mut is.group, was.group)?;
    narrow(side, Column::Links, &mut is.links, 1)?;
    narrow(side, Column::Device, &mut is.file.device, was.file.device)?;
    side.number(Column::Inode, &mut is.file.inode, was.file.inode)?;
    side.number(Column::Size, &mut is.size, 0)?;
    let whole_pages = is.size.checked_next_multiple_of(4096).unwrap_or(u64::MAX);
    side.number(Column::Allocated, &mut is.allocated_bytes, whole_pages)?;
    let modified = [Column::ModifiedSeconds, Column::ModifiedFraction];
    time(side, modified, &mut is.modified_ns, was.modified_ns)?;
    time(side, [Column::ChangedSeconds, Column::ChangedFraction], &mut is.changed_ns, was.changed_ns)?;
    let mut has_birth = u64::from(is.born_ns.is_some());
    side.number(Column::HasBirth, &mut has_birth, 1)?;
    if has_birth != 0 {
        let born = is.born_ns.get_or_insert_default();
        time(side, [Column::BornSeconds, Column::BornFraction], born, is.changed_ns)?;
    }
    // Who was never read since.
    let first_access = is.born_ns.unwrap_or(is.changed_ns);
    time(side, [Column::AccessedSeconds, Column::AccessedFraction], &mut is.accessed_ns, first_access)?;
    if is.is_directory() {
        let directory = record.directory.get_or_insert_default();
        side.number(Column::Files, &mut directory.files, 0)?;
        side.number(Column::Directories, &mut directory.directories, 0)?;
        let mut inside = directory.inside as u64;
        side.number(Column::Inside, &mut inside, 0)?;
        let known = usize::try_from(inside).ok().and_then(|index| Inside::ALL.get(index));
        directory.inside = *known.ok_or(CorruptBlock::Range)?;
    }
    Ok(())
}

fn narrow(side: &mut impl Side, column: Column, value: &mut u32, guess: u32) -> Result<(), CorruptBlock> {
    let mut wide = u64::from(*value);
    side.number(column, &mut wide, guess.into())?;
    *value = u32::try_from(wide).map_err(|_| CorruptBlock::Range)?;
    Ok(())
}

const SECOND_NS: i64 = 1_000_000_000;

/// Seconds apart from their fractions: what was unpacked from an archive has only the former.
fn time(side: &mut impl Side, columns: [Column; 2], value: &mut i64, guess: i64) -> Result<(), CorruptBlock> {
    let split = |time: i64| [time.div_euclid(SECOND_NS), time.rem_euclid(SECOND_NS)].map(|part| part as u64);
    let ([mut seconds, mut fraction], [guessed_seconds, guessed_fraction]) = (split(*value), split(guess));
    side.number(columns[0], &mut seconds, guessed_seconds)?;
    side.number(columns[1], &mut fraction, guessed_fraction)?;
    // The earliest time of all begins in a second that does not fit.
    let whole = i128::from(seconds as i64) * i128::from(SECOND_NS) + i128::from(fraction as i64);
    *value = i64::try_from(whole).map_err(|_| CorruptBlock::Range)?;
    Ok(())
}

/// Turns records into blocks.
#[derive(Default)]
pub(super) struct BlockWriter {
    columns: Columns,
    previous: Record,
    records: u32,
}

#[derive(Default)]
struct Columns([Vec<u8>; COLUMNS]);

impl BlockWriter {
    /// Adds one. What it is given is as it was afterwards.
    pub(super) fn add(&mut self, mut record: Record) {
        pass(&mut record, &self.previous, &mut self.columns)
            .expect("writing down what is there does not fail");
        self.previous = record;
        self.records += 1;
    }

    /// Whether [`Self::take`] should be called before anything more is added.
    pub(super) const fn is_full(&self) -> bool {
        self.records as usize >= MOST_RECORDS
    }

    /// Puts the block of all that has been added behind some bytes; nothing if that is nothing.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        if self.records == 0 {
            return None;
        }
        let mut plain = Vec::new();
        for column in &mut self.columns.0 {
            write_number(&mut plain, column.len() as u64);
            plain.append(column);
        }
        let mut block = Vec::with_capacity(HEAD_BYTES + plain.len() / 2);
        block.extend_from_slice(&self.records.to_le_bytes());
        block.extend_from_slice(&u32::try_from(plain.len()).expect("a block is short").to_le_bytes());
        block.extend(zstd::bulk::compress(&plain, COMPRESSION_LEVEL).expect("memory can be compressed"));
        self.records = 0;
        self.previous = Record::default();
        Some(block)
    }
}

impl Side for Columns {
    fn number(&mut self, column: Column, value: &mut u64, guess: u64) -> Result<(), CorruptBlock> {
        write_number(&mut self.0[column as usize], folded(value.wrapping_sub(guess)));
        Ok(())
    }

    fn name(&mut self, name: &mut Vec<u8>, previous: &[u8]) -> Result<(), CorruptBlock> {
        let shared = name.iter().zip(previous).take_while(|(is, was)| is == was).count();
        write_number(&mut self.0[Column::NameShared as usize], shared as u64);
        write_number(&mut self.0[Column::NameRest as usize], (name.len() - shared) as u64);
        self.0[Column::NameBytes as usize].extend_from_slice(&name[shared..]);
        Ok(())
    }
}

struct ReadColumns<'a>([&'a [u8]; COLUMNS]);

impl Side for ReadColumns<'_> {
    fn number(&mut self, column: Column, value: &mut u64, guess: u64) -> Result<(), CorruptBlock> {
        *value = guess.wrapping_add(unfolded(read_number(&mut self.0[column as usize])?));
        Ok(())
    }

    fn name(&mut self, name: &mut Vec<u8>, previous: &[u8]) -> Result<(), CorruptBlock> {
        let mut count = |column: Column| -> Result<usize, CorruptBlock> {
            usize::try_from(read_number(&mut self.0[column as usize])?).map_err(|_| CorruptBlock::Range)
        };
        let (shared, rest) = (count(Column::NameShared)?, count(Column::NameRest)?);
        if shared.saturating_add(rest) > MOST_NAME_BYTES {
            return Err(CorruptBlock::Range);
        }
        let bytes = &mut self.0[Column::NameBytes as usize];
        let (new, after) = bytes.split_at_checked(rest).ok_or(CorruptBlock::Length)?;
        *bytes = after;
        name.clear();
        name.extend_from_slice(previous.get(..shared).ok_or(CorruptBlock::Range)?);
        name.extend_from_slice(new);
        Ok(())
    }
}

/// The records of a block, in the order in which they were written.
pub(super) fn read_block(block: &[u8]) -> Result<Vec<Record>, CorruptBlock> {
    let (head, packed) = block.split_at_checked(HEAD_BYTES).ok_or(CorruptBlock::Length)?;
    let number = |range| u32::from_le_bytes(<[u8; 4]>::try_from(&head[range]).expect("four bytes")) as usize;
    let (count, bytes) = (number(0..4), number(4..8));
    if count > MOST_RECORDS || bytes > MOST_BLOCK_BYTES {
        return Err(CorruptBlock::Range);
    }
    // By pieces, so that who claims much and has little gets little.
    let mut plain = Vec::new();
    let unpacked = zstd::stream::read::Decoder::new(packed).map_err(|_| CorruptBlock::Packing)?;
    let mut unpacked = std::io::Read::take(unpacked, bytes as u64 + 1);
    std::io::Read::read_to_end(&mut unpacked, &mut plain).map_err(|_| CorruptBlock::Packing)?;
    if plain.len() != bytes {
        return Err(CorruptBlock::Packing);
    }
    let mut columns = ReadColumns([&[]; COLUMNS]);
    let mut rest = plain.as_slice();
    for column in &mut columns.0 {
        let length = usize::try_from(read_number(&mut rest)?).map_err(|_| CorruptBlock::Range)?;
        (*column, rest) = rest.split_at_checked(length).ok_or(CorruptBlock::Length)?;
    }
    let mut records = Vec::with_capacity(count);
    let none = Record::default();
    for _ in 0..count {
        let mut record = Record::default();
        pass(&mut record, records.last().unwrap_or(&none), &mut columns)?;
        records.push(record);
    }
    if rest.is_empty() && columns.0.iter().all(|column| column.is_empty()) {
        Ok(records)
    } else {
        Err(CorruptBlock::Length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::Identity;

    fn any_record() -> impl Strategy<Value = Record> {
        let numbers = (any::<[u32; 5]>(), any::<[u64; 3]>(), any::<[i64; 3]>(), any::<Option<i64>>());
        let directory = (any::<u64>(), any::<u64>(), 0_usize..4);
        (prop::collection::vec(any::<u8>(), 0..300), numbers, directory).prop_map(
            |(
                name,
                ([mode, user, group, links, device], [inode, size, allocated_bytes], times, born_ns),
                of,
            )| {
                let [modified_ns, accessed_ns, changed_ns] = times;
                let file = Identity { inode, device, generation: 0 };
                let attributes = Attributes {
                    mode,
                    user,
                    group,
                    links,
                    file,
                    size,
                    allocated_bytes,
                    modified_ns,
                    accessed_ns,
                    changed_ns,
                    born_ns,
                };
                let directory = Directory { files: of.0, directories: of.1, inside: Inside::ALL[of.2] };
                Record { name, attributes, directory: attributes.is_directory().then_some(directory) }
            },
        )
    }

    fn block_of(records: &[Record]) -> Vec<u8> {
        let mut writer = BlockWriter::default();
        for record in records {
            writer.add(record.clone());
        }
        writer.take().unwrap()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(records in prop::collection::vec(any_record(), 1..40)) {
            prop_assert_eq!(read_block(&block_of(&records)).unwrap(), records);
        }

        #[test]
        fn whatever_is_read_is_refused_or_understood(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0_u8..9) {
            let mut block = vec![count, 0, 0, 0];
            block.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
            block.extend(zstd::bulk::compress(&bytes, 1).unwrap());
            let _ = read_block(&block);
        }
    }

    #[test]
    fn extreme_times_are_kept() {
        for time in [i64::MIN, -1, 0, i64::MAX] {
            let attributes = Attributes { modified_ns: time, born_ns: Some(time), ..Attributes::default() };
            let record = Record { name: vec![255; 255], attributes, directory: None };
            assert_eq!(read_block(&block_of(std::slice::from_ref(&record))).unwrap(), [record]);
        }
    }

    #[test]
    fn a_block_that_says_more_than_it_has_is_refused() {
        let mut block = block_of(&[Record::default(), Record::default()]);
        block[0] = 1;
        assert_eq!(read_block(&block), Err(CorruptBlock::Length));
        block[0] = 3;
        assert_eq!(read_block(&block), Err(CorruptBlock::Length));
        block[4] ^= 1;
        assert_eq!(read_block(&block), Err(CorruptBlock::Packing));
    }
}
