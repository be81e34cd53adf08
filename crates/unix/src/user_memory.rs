//! Copies between the emulator and the memory of programs. Every address and length comes from a program: what it may not touch
//! is an error, found page by page.

use crate::contents;
use crate::errno::{EFAULT, ENAMETOOLONG, Errno};
use crate::machine::{Access, Frame, Machine, PAGE_BYTES};
use crate::spaces::{Memory, Refusal, SpaceNumber};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// As many pieces as one call of the host takes (`UIO_MAXIOV`).
const MOST_PIECES: usize = 1024;

/// How much one call moves at most, so that a program cannot hold up all others with one: the rest is left to its next call, as
/// a short count always may.
pub(crate) const MOST_BYTES: u64 = 1 << 20;

/// A buffer in the memory of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl<M: Machine> Memory<M> {
    /// Copies from a program. Nothing can be said about `into` after an error.
    pub(crate) fn read_bytes(
        &mut self,
        space: SpaceNumber,
        address: u64,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < into.len() {
            let at = address.checked_add(done as u64).ok_or(EFAULT)?;
            let frame = self.reach(space, at, Access::Read)?;
            let offset = at % PAGE_BYTES;
            let bytes = (into.len() - done).min((PAGE_BYTES - offset) as usize);
            contents::read(&self.machine, frame, offset, &mut into[done..done + bytes]);
            done += bytes;
        }
        Ok(())
    }

    /// Copies to a program. A part may have been copied before an error.
    pub(crate) fn write_bytes(&mut self, space: SpaceNumber, address: u64, from: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < from.len() {
            let at = address.checked_add(done as u64).ok_or(EFAULT)?;
            let frame = self.reach(space, at, Access::Write)?;
            let offset = at % PAGE_BYTES;
            let bytes = (from.len() - done).min((PAGE_BYTES - offset) as usize);
            contents::write(&self.machine, frame, offset, &from[done..done + bytes]);
            done += bytes;
        }
        Ok(())
    }

    /// A value from a program.
    pub(crate) fn read<T: FromBytes + IntoBytes>(
        &mut self,
        space: SpaceNumber,
        address: u64,
    ) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.read_bytes(space, address, value.as_mut_bytes())?;
        Ok(value)
    }

    /// A value to a program.
    pub(crate) fn write<T: IntoBytes + Immutable>(
        &mut self,
        space: SpaceNumber,
        address: u64,
        value: &T,
    ) -> Result<(), Errno> {
        self.write_bytes(space, address, value.as_bytes())
    }

    /// Bytes up to a zero, which is not among them; at most `most` of them.
    pub(crate) fn read_string(
        &mut self,
        space: SpaceNumber,
        address: u64,
        most: usize,
    ) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        let mut at = address;
        loop {
            let frame = self.reach(space, at, Access::Read)?;
            let offset = at % PAGE_BYTES;
            let old = text.len();
            text.resize(old + (PAGE_BYTES - offset) as usize, 0);
            contents::read(&self.machine, frame, offset, &mut text[old..]);
            if let Some(end) = text[old..].iter().position(|&byte| byte == 0) {
                text.truncate(old + end);
                return if text.len() <= most { Ok(text) } else { Err(ENAMETOOLONG) };
            }
            if text.len() > most {
                return Err(ENAMETOOLONG);
            }
            at = (at - offset).checked_add(PAGE_BYTES).ok_or(EFAULT)?;
        }
    }

    /// The frames under buffers as pieces for a call of the host, neighbours joined. It ends early, with at least one byte, where the
    /// program has no access, and at the most that one call moves; the pieces hold until a mapping is changed.
    pub(crate) fn pieces(
        &mut self,
        space: SpaceNumber,
        buffers: &[Buffer],
        access: Access,
    ) -> Result<Vec<libc::iovec>, Errno> {
        let mut kept = BTreeSet::new();
        let mut may_wait = true;
        loop {
            let (pieces, ended) = self.pieces_here(space, buffers, access);
            if let (Some(Refusal::Elsewhere(wanted)), true) = (ended, may_wait) {
                // Those that were reached may have gone to other cells meanwhile.
                may_wait = self.fetch_also(&mut kept, wanted).is_ok();
                continue;
            }
            self.release(&kept);
            return match ended {
                Some(refusal) if pieces.is_empty() => Err(refusal.into()),
                _ => Ok(pieces),
            };
        }
    }

    /// The pieces as far as nothing has to come from another cell, and why they end before the buffers do.
    fn pieces_here(
        &mut self,
        space: SpaceNumber,
        buffers: &[Buffer],
        access: Access,
    ) -> (Vec<libc::iovec>, Option<Refusal>) {
        let mut pieces: Vec<libc::iovec> = Vec::new();
        let mut left = MOST_BYTES;
        for buffer in buffers {
            let mut done = 0;
            while done < buffer.bytes && left > 0 {
                let at = buffer.address.checked_add(done).ok_or(Refusal::Unmapped);
                let reached = at.and_then(|at| Ok((self.reach_here(space, at, access)?, at % PAGE_BYTES)));
                let (frame, offset) = match reached {
                    Ok(reached) => reached,
                    Err(refusal) => return (pieces, Some(refusal)),
                };
                let bytes = (buffer.bytes - done).min(PAGE_BYTES - offset).min(left);
                let piece = contents::piece(&self.machine, frame, offset, bytes);
                let full = pieces.len() == MOST_PIECES;
                match pieces.last_mut() {
                    Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == piece.iov_base => {
                        last.iov_len += piece.iov_len;
                    }
                    _ if full => return (pieces, None),
                    _ => pieces.push(piece),
                }
                done += bytes;
                left -= bytes;
            }
        }
        (pieces, None)
    }

    /// Copies a message to buffers, and says how many bytes found room.
    pub(crate) fn scatter(
        &mut self,
        space: SpaceNumber,
        buffers: &[Buffer],
        from: &[u8],
    ) -> Result<u64, Errno> {
        let mut done = 0;
        for buffer in buffers {
            let bytes = buffer.bytes.min((from.len() - done) as u64) as usize;
            match self.write_bytes(space, buffer.address, &from[done..done + bytes]) {
                Ok(()) => done += bytes,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done as u64)
    }

    /// Copies what is in buffers, at most so many bytes.
    pub(crate) fn gather(
        &mut self,
        space: SpaceNumber,
        buffers: &[Buffer],
        most: u64,
    ) -> Result<Vec<u8>, Errno> {
        let mut gathered = Vec::new();
        for buffer in buffers {
            let bytes = buffer.bytes.min(most - gathered.len() as u64) as usize;
            let old = gathered.len();
            gathered.resize(old + bytes, 0);
            if let Err(error) = self.read_bytes(space, buffer.address, &mut gathered[old..]) {
                gathered.truncate(old);
                return if old == 0 { Err(error) } else { Ok(gathered) };
            }
        }
        Ok(gathered)
    }

    /// The frame and offset of an aligned word.
    fn word_at(&mut self, space: SpaceNumber, address: u64, access: Access) -> Result<(Frame, u64), Errno> {
        if !address.is_multiple_of(4) {
            return Err(crate::errno::EINVAL);
        }
        Ok((self.reach(space, address, access)?, address % PAGE_BYTES))
    }

    /// What is in a word that threads use as an atomic.
    pub(crate) fn load_word(&mut self, space: SpaceNumber, address: u64) -> Result<u32, Errno> {
        let (frame, offset) = self.word_at(space, address, Access::Read)?;
        Ok(contents::word(&self.machine, frame, offset).load(Ordering::SeqCst))
    }

    /// Changes such a word, and says what was in it before.
    pub(crate) fn change_word(
        &mut self,
        space: SpaceNumber,
        address: u64,
        change: impl Fn(u32) -> u32,
    ) -> Result<u32, Errno> {
        let (frame, offset) = self.word_at(space, address, Access::Write)?;
        let word = contents::word(&self.machine, frame, offset);
        match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old))) {
            Ok(old) | Err(old) => Ok(old),
        }
    }
}
