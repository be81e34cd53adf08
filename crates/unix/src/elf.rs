//! What an ELF file says about how to load it. Files are the programs' own and may hold anything: all that does not fit together is
//! an error, and nothing is believed that was not checked.

use crate::errno::{ENOEXEC, Errno};
use crate::machine::{PAGE_BYTES, Rights};
use std::ops::Range;

/// Bytes of the header of a file.
pub(crate) const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// Linux reads no more than a page of program headers.
const MOST_PROGRAM_HEADERS: usize = PAGE_BYTES as usize / PROGRAM_HEADER_BYTES;
/// Addresses in files are below the top of the lower half, so that sums of two do not wrap.
const ADDRESS_END: u64 = 1 << 47;

/// One piece to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    /// Where it goes, before the base is added.
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) file_bytes: u64,
    /// At least as many as `file_bytes`; the rest are zeroes.
    pub(crate) memory_bytes: u64,
    pub(crate) rights: Rights,
}

/// A file that can be loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Image {
    /// Where it begins to run, before the base is added.
    pub(crate) entry: u64,
    /// Whether it can be loaded anywhere.
    pub(crate) movable: bool,
    /// In the order of their addresses, without overlaps.
    pub(crate) loads: Vec<Load>,
    /// Where in the file the name of its interpreter is.
    pub(crate) interpreter: Option<Range<u64>>,
    /// Where its program headers are in memory, before the base is added; 0 if they are not loaded.
    pub(crate) headers_address: u64,
    pub(crate) header_count: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Errno> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes).ok_or(ENOEXEC)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Errno> {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes).ok_or(ENOEXEC)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Errno> {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes).ok_or(ENOEXEC)
}

/// Where in the file the program headers are, from its first `HEADER_BYTES` bytes.
pub(crate) fn headers(header: &[u8]) -> Result<Range<u64>, Errno> {
    let kind = u16_at(header, 16)?;
    let known = header.starts_with(b"\x7fELF\x02\x01\x01")
        && (kind == 2 || kind == 3)
        && u16_at(header, 18)? == 62
        && u16_at(header, 54)? as usize == PROGRAM_HEADER_BYTES;
    let count = u16_at(header, 56)? as usize;
    let start = u64_at(header, 32)?;
    if !known || count == 0 || count > MOST_PROGRAM_HEADERS || start >= ADDRESS_END {
        return Err(ENOEXEC);
    }
    Ok(start..start + (count * PROGRAM_HEADER_BYTES) as u64)
}

/// What the file says, from its header and its program headers.
pub(crate) fn parse(header: &[u8], program_headers: &[u8]) -> Result<Image, Errno> {
    let range = headers(header)?;
    let mut image = Image {
        entry: u64_at(header, 24)?,
        movable: u16_at(header, 16)? == 3,
        loads: Vec::new(),
        interpreter: None,
        headers_address: 0,
        header_count: (range.end - range.start) / PROGRAM_HEADER_BYTES as u64,
    };
    if program_headers.len() as u64 != range.end - range.start {
        return Err(ENOEXEC);
    }
    let mut previous_end = 0;
    for entry in program_headers.chunks_exact(PROGRAM_HEADER_BYTES) {
        let (offset, address) = (u64_at(entry, 8)?, u64_at(entry, 16)?);
        let (file_bytes, memory_bytes) = (u64_at(entry, 32)?, u64_at(entry, 40)?);
        match u32_at(entry, 0)? {
            1 => {
                let flags = u32_at(entry, 4)?;
                let in_bounds =
                    [offset, address, file_bytes, memory_bytes].iter().all(|&value| value < ADDRESS_END);
                if memory_bytes == 0 && in_bounds {
                    continue;
                }
                if !in_bounds
                    || file_bytes > memory_bytes
                    || address % PAGE_BYTES != offset % PAGE_BYTES
                    || address - address % PAGE_BYTES < previous_end
                    || address + memory_bytes > ADDRESS_END
                {
                    return Err(ENOEXEC);
                }
                previous_end = (address + memory_bytes).next_multiple_of(PAGE_BYTES);
                if offset <= range.start && range.end <= offset + file_bytes {
                    image.headers_address = address + (range.start - offset);
                }
                let rights = Rights { read: flags & 4 != 0, write: flags & 2 != 0, execute: flags & 1 != 0 };
                image.loads.push(Load { address, offset, file_bytes, memory_bytes, rights });
            }
            3 if image.interpreter.is_none() => {
                if offset >= ADDRESS_END || !(2..=libc::PATH_MAX as u64).contains(&file_bytes) {
                    return Err(ENOEXEC);
                }
                image.interpreter = Some(offset..offset + file_bytes);
            }
            _ => {}
        }
    }
    if image.loads.is_empty() || image.entry >= ADDRESS_END {
        return Err(ENOEXEC);
    }
    Ok(image)
}

impl Image {
    /// The whole pages from its first to its last piece, before the base is added.
    pub(crate) fn extent(&self) -> Range<u64> {
        let first = self.loads.first().map_or(0, |load| load.address);
        let last = self.loads.last().map_or(0, |load| load.address + load.memory_bytes);
        first - first % PAGE_BYTES..last.next_multiple_of(PAGE_BYTES)
    }
}

/// A file with one piece to load, for tests.
#[cfg(test)]
pub(crate) fn sample(kind: u16, entry: u64, address: u64, code: &[u8]) -> Vec<u8> {
    let mut file = vec![0u8; PAGE_BYTES as usize];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &kind.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(24, &entry.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &1u16.to_le_bytes());
    put(64, &1u32.to_le_bytes());
    put(68, &7u32.to_le_bytes());
    put(64 + 16, &address.to_le_bytes());
    put(64 + 32, &(PAGE_BYTES + code.len() as u64).to_le_bytes());
    put(64 + 40, &(PAGE_BYTES + code.len() as u64 + 10_000).to_le_bytes());
    file.extend_from_slice(code);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(file: &[u8]) -> Result<Image, Errno> {
        let range = headers(file)?;
        let headers = file.get(range.start as usize..range.end as usize).ok_or(ENOEXEC)?;
        parse(&file[..HEADER_BYTES], headers)
    }

    #[test]
    fn a_sound_file_is_read() {
        let image = parsed(&sample(3, 0x1000, 0, b"code")).expect("a sound file");
        assert!(image.movable);
        assert_eq!((image.entry, image.headers_address, image.header_count), (0x1000, 64, 1));
        assert_eq!(image.loads.len(), 1);
        assert_eq!(image.extent(), 0..0x4000);
        let fixed = parsed(&sample(2, 0x401000, 0x400000, b"code")).expect("a sound file");
        assert!(!fixed.movable);
        assert_eq!(fixed.headers_address, 0x400040);
    }

    #[test]
    fn this_very_program_is_read() {
        let file = std::fs::read("/proc/self/exe").expect("the test's own file");
        let image = parsed(&file).expect("a file that runs");
        assert!(image.loads.len() >= 2);
        let interpreter = image.interpreter.expect("a dynamic program");
        let name = &file[interpreter.start as usize..interpreter.end as usize];
        assert!(name.ends_with(b".so.2\0"));
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_sound(changes in proptest::collection::vec((0usize..176, any::<u8>()), 0..12)) {
            let mut file = sample(2, 0x401000, 0x400000, b"code");
            for (at, byte) in changes {
                file[at] = byte;
            }
            if let Ok(image) = parsed(&file) {
                let mut end = 0;
                for load in &image.loads {
                    prop_assert!(load.file_bytes <= load.memory_bytes);
                    prop_assert_eq!(load.address % PAGE_BYTES, load.offset % PAGE_BYTES);
                    prop_assert!(load.address >= end && load.address + load.memory_bytes <= ADDRESS_END);
                    end = load.address + load.memory_bytes;
                }
                prop_assert!(image.extent().start < image.extent().end);
                if let Some(range) = image.interpreter {
                    prop_assert!(range.end - range.start <= libc::PATH_MAX as u64);
                }
            }
        }
    }
}
