//! A program's file, and how it begins: static ones of one address, which need no more than to be put there.

use std::path::Path;
use std::sync::Arc;

use comb_kernel::thread::Registers;
use rustix::io::Errno;
use thiserror::Error;

use crate::memory::{Anonymous, Clock, FaultError, Overlap, PAGE_BYTES, Paged, Resources, Rights, Segments};

const PAGE: u64 = PAGE_BYTES as u64;
const HEADER_BYTES: usize = 56;
/// What is above is not a program's to choose.
const HIGHEST_END: u64 = 1 << 40;
const STACK_PAGES: u64 = 16;
/// The page above a program's stack.
const STACK_END: u64 = HIGHEST_END / PAGE + STACK_PAGES;

/// Why a file cannot be run.
#[derive(Debug, Error)]
pub enum LoadError {
    /// It is not such a file.
    #[error("not a static program for x86-64: {0}")]
    Unsound(&'static str),
    /// Two pieces are in one page, or where the stack is.
    #[error(transparent)]
    Overlap(#[from] Overlap),
    /// What it was given does not fit on its stack.
    #[error("its arguments have more than {} bytes", STACK_PAGES * PAGE / 2)]
    Arguments,
    /// No memory for it.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The host has no place for pages that go.
    #[error("no file for pages that go can be made: {0}")]
    Swap(Errno),
}

/// A piece of a file: so many of its bytes, and zeros behind them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    address: u64,
    bytes: std::ops::Range<usize>,
    memory: u64,
    rights: Rights,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(number))
}

/// Its first instruction, and its pieces.
fn parse(file: &[u8]) -> Result<(u64, Vec<Piece>), LoadError> {
    let unsound = LoadError::Unsound;
    let is_known = file.starts_with(b"\x7fELF\x02\x01\x01")
        && number::<2>(file, 16) == Some(2)
        && number::<2>(file, 18) == Some(62)
        && number::<2>(file, 54) == Some(HEADER_BYTES as u64);
    if !is_known {
        return Err(unsound("its header"));
    }
    let read = |at| number::<8>(file, at).ok_or(unsound("it is too short"));
    let (entry, headers) = (read(24)?, read(32)?);
    let count = number::<2>(file, 56).ok_or(unsound("it is too short"))?;
    let mut pieces = Vec::new();
    for index in 0..count {
        let at = index.checked_mul(HEADER_BYTES as u64).and_then(|at| at.checked_add(headers));
        let at = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < file.len());
        let at = at.ok_or(unsound("it is too short"))?;
        let kind = number::<4>(file, at).ok_or(unsound("it is too short"))?;
        if kind == 3 {
            return Err(unsound("it needs an interpreter"));
        }
        if kind != 1 || read(at + 40)? == 0 {
            continue;
        }
        let flags = number::<4>(file, at + 4).ok_or(unsound("it is too short"))?;
        let (offset, address, bytes, memory) =
            (read(at + 8)?, read(at + 16)?, read(at + 32)?, read(at + 40)?);
        let end = offset.checked_add(bytes).filter(|end| *end <= file.len() as u64);
        let is_sound = bytes <= memory
            && address >= 16 * PAGE
            && address.checked_add(memory).is_some_and(|end| end <= HIGHEST_END);
        let (Some(end), true) = (end, is_sound) else { return Err(unsound("one of its pieces")) };
        let within = |value: u64| usize::try_from(value).expect("within the file");
        let rights = Rights { write: flags & 2 != 0, execute: flags & 1 != 0 };
        pieces.push(Piece { address, bytes: within(offset)..within(end), memory, rights });
    }
    if pieces.is_empty() { Err(unsound("nothing to load")) } else { Ok((entry, pieces)) }
}

/// Pages that a program has before it asks for more.
pub fn pages(file: &[u8]) -> Result<u64, LoadError> {
    let of = |piece: &Piece| (piece.address % PAGE + piece.memory).div_ceil(PAGE);
    Ok(STACK_PAGES + parse(file)?.1.iter().map(of).sum::<u64>())
}

/// Puts a program into a space, with its arguments: the state of its first thread. All its own pages can be in frames at once. Nevertheless there is a file of this directory
/// for those that go.
pub fn load(
    file: &[u8],
    arguments: &[&str],
    segments: &mut Segments,
    resources: &mut Resources,
    directory: &Path,
) -> Result<Registers, LoadError> {
    let (entry, pieces) = parse(file)?;
    let mut add = |first, pages, beginning, rights| {
        let backing = Anonymous::new(pages, beginning, directory).map_err(LoadError::Swap)?;
        let most = u32::try_from(pages).unwrap_or(u32::MAX);
        let segment = Paged::new(Arc::new(backing), Box::new(Clock::default()), most);
        Ok::<(), LoadError>(segments.add(first, rights, Box::new(segment))?)
    };
    for Piece { address, bytes, memory, rights } in pieces {
        let before = address % PAGE;
        let mut beginning = vec![0; usize::try_from(before).expect("less than a page")];
        beginning.extend_from_slice(&file[bytes]);
        add(address / PAGE, (before + memory).div_ceil(PAGE), beginning, rights)?;
    }
    add(STACK_END - STACK_PAGES, STACK_PAGES, Vec::new(), Rights { write: true, execute: false })?;
    // Strings on top, below them their addresses, as every program finds them.
    let mut top = STACK_END * PAGE;
    let mut words = vec![arguments.len() as u64];
    let bytes: usize = arguments.iter().map(|argument| argument.len() + 9).sum();
    if bytes as u64 > STACK_PAGES * PAGE / 2 {
        return Err(LoadError::Arguments);
    }
    for argument in arguments {
        let text = [argument.as_bytes(), &[0]].concat();
        top -= text.len() as u64;
        segments.write(resources, top, &text)?;
        words.push(top);
    }
    // No more arguments, no environment, and nothing else to know.
    words.extend([0; 4]);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let rsp = (top - bytes.len() as u64) & !15;
    segments.write(resources, rsp, &bytes)?;
    Ok(Registers { rip: entry, rsp, ..Registers::default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::programs;

    #[test]
    fn files_of_this_kind_are_understood() {
        for file in [programs::MP3D, programs::DATABASE] {
            let (entry, pieces) = parse(file).expect("a static program");
            let code = pieces.iter().find(|piece| piece.rights.execute).expect("a program has code");
            assert!(!code.rights.write && (code.address..code.address + code.memory).contains(&entry));
        }
    }

    #[test]
    fn others_are_refused() {
        assert!(matches!(parse(b"#!/bin/sh\n"), Err(LoadError::Unsound("its header"))));
        let mut movable = programs::MP3D.to_vec();
        movable[16] = 3;
        assert!(matches!(parse(&movable), Err(LoadError::Unsound("its header"))));
        assert!(matches!(parse(&programs::MP3D[..100]), Err(LoadError::Unsound("it is too short"))));
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_sound(changes in proptest::collection::vec((0usize..400, any::<u8>()), 0..12)) {
            let mut file = programs::DATABASE.to_vec();
            for (at, byte) in changes {
                file[at] = byte;
            }
            if let Ok((_, pieces)) = parse(&file) {
                for piece in pieces {
                    prop_assert!(piece.bytes.end <= file.len() && piece.bytes.len() as u64 <= piece.memory);
                    prop_assert!(piece.address >= 16 * PAGE && piece.address + piece.memory <= HIGHEST_END);
                }
            }
        }
    }
}
