//! A log on a simulated disk: records with a checksum each, in one file until a snapshot takes the place of all of them.
//!
//! What a crash has torn is short, or ends in zeros; what was whole once and is spoiled is not. The first may be cut off: nothing was
//! said that rests on it. The second may have been acknowledged, so a log with such a record in it is given up.

use comb_sim::{Disk, DiskError};

use super::super::one_order::hash;

/// Files are told apart by a number that grows.
const NAME: &str = "log.";
/// Is never zero, so a frame with it behind it was written to its end.
const END: u8 = 0xE7;
/// Length, its complement, the checksum, and the mark.
const HEADER_BYTES: usize = 17;

/// What became of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spoiled {
    /// A record that was whole is not what was written.
    Rotten,
}

#[derive(Debug)]
pub(super) struct DiskLog {
    file: u64,
    /// Removed when the present one is on the disk.
    former: Vec<u64>,
}

fn name(file: u64) -> String {
    format!("{NAME}{file}")
}

/// Header and body, each with the mark at its end.
fn frame(record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).expect("a record is short");
    let (sum, marks) = (hash(record).to_le_bytes(), [END]);
    [&length.to_le_bytes()[..], &(!length).to_le_bytes(), &sum, &marks, record, &marks].concat()
}

/// Whether a frame that is not right was never written to its end.
fn is_torn(frame: &[u8], bytes: usize) -> bool {
    frame.len() < bytes || frame[bytes - 1] == 0
}

/// A record, and what is behind it.
type Next<'a> = (Vec<u8>, &'a [u8]);

/// The next record; none where the log was torn.
fn read(bytes: &[u8]) -> Result<Option<Next<'_>>, Spoiled> {
    let spoiled = |length| if is_torn(bytes, length) { Ok(None) } else { Err(Spoiled::Rotten) };
    let word = |at: usize| {
        bytes.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
    };
    let (Some(length), Some(complement)) = (word(0), word(4)) else { return Ok(None) };
    if length != !complement || bytes.get(HEADER_BYTES - 1) != Some(&END) {
        return spoiled(HEADER_BYTES);
    }
    let all = HEADER_BYTES + length as usize + 1;
    let Some(record) = bytes.get(HEADER_BYTES..all - 1) else { return Ok(None) };
    if bytes.get(all - 1) != Some(&END) || hash(record).to_le_bytes() != bytes[8..16] {
        return spoiled(all);
    }
    Ok(Some((record.to_vec(), &bytes[all..])))
}

impl DiskLog {
    /// The log that is there, or an empty one; and its records.
    pub(super) fn open(disk: &mut Disk) -> Result<(Self, Vec<Vec<u8>>), Spoiled> {
        let numbers = disk.names().filter_map(|name| name.strip_prefix(NAME)?.parse().ok());
        let mut files: Vec<u64> = numbers.collect();
        files.sort_unstable();
        while let Some(file) = files.pop() {
            let content = disk.read(&name(file)).unwrap_or_default();
            let mut records = Vec::new();
            let mut rest = &content[..];
            while let Some((record, behind)) = read(rest)? {
                records.push(record);
                rest = behind;
            }
            disk.truncate(&name(file), content.len() - rest.len());
            // The first record says how many take the place of what was before.
            let first = records.first().map_or(0, |first| first[0]);
            if records.len() > usize::from(first) && !records.is_empty() {
                records.remove(0);
                return Ok((Self { file, former: files }, records));
            }
            disk.remove(&name(file));
        }
        let mut log = Self { file: 0, former: Vec::new() };
        // A disk has room for the first byte, or there is no node.
        let _ = log.replace(disk, &[]);
        Ok((log, Vec::new()))
    }

    /// All is forgotten.
    pub(super) fn remove(disk: &mut Disk) {
        let names: Vec<_> = disk.names().map(str::to_owned).collect();
        names.iter().for_each(|name| disk.remove(name));
    }

    pub(super) fn append(&self, disk: &mut Disk, record: &[u8]) -> Result<(), DiskError> {
        disk.append(&name(self.file), &frame(record))
    }

    /// In another file, so that a crash leaves the one or the other.
    pub(super) fn replace(&mut self, disk: &mut Disk, records: &[Vec<u8>]) -> Result<(), DiskError> {
        self.former.push(self.file);
        self.file += 1;
        self.append(disk, &[u8::try_from(records.len()).expect("a snapshot and little more")])?;
        records.iter().try_for_each(|record| self.append(disk, record))
    }

    /// Everything that was written is on the disk.
    pub(super) fn synced(&mut self, disk: &mut Disk) {
        self.former.drain(..).for_each(|file| disk.remove(&name(file)));
    }
}
