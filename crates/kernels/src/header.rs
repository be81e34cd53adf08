//! What the first page of a program's file says of the others. Anything may stand there.

use std::ops::Range;

use rustix::io::Errno;

use crate::memory::{Backing, File};

/// The numbers behind the one by which files of a program are known.
pub(crate) fn read<const N: usize>(file: &File, magic: u64) -> Result<[u64; N], Errno> {
    let mut bytes = vec![0; (N + 1) * 8];
    if file.read_usual(&mut bytes)? < bytes.len() {
        return Err(Errno::INVAL);
    }
    let mut words =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    if words.next() != Some(magic) {
        return Err(Errno::INVAL);
    }
    Ok(std::array::from_fn(|_| words.next().expect("as many as were read")))
}

/// Whether ranges of pages are within a file, and apart.
pub(crate) fn check(file: &File, ranges: &[&Range<u64>; 2]) -> Result<(), Errno> {
    let [a, b] = ranges;
    let is_within = ranges.iter().all(|range| range.start < range.end && range.end <= file.pages());
    if is_within && (a.end <= b.start || b.end <= a.start) { Ok(()) } else { Err(Errno::INVAL) }
}
