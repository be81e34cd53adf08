#![expect(
    unsafe_code,
    reason = "the contents of frames lie in memory that threads of programs write at the same time"
)]
//! Access to what is in frames, by copies only: no reference into a frame is ever made, except to its words as atomics.

use crate::machine::{Frame, Machine, PAGE_BYTES};
use std::sync::atomic::AtomicU32;

/// Where a frame begins in the emulator's memory.
fn start(machine: &impl Machine, frame: Frame) -> *mut u8 {
    machine.memory().as_ptr().wrapping_add((u64::from(frame.0) * PAGE_BYTES) as usize)
}

/// A piece of a frame as the host's calls take it. It holds until the frame is released.
pub(crate) fn piece(machine: &impl Machine, frame: Frame, offset: u64, bytes: u64) -> libc::iovec {
    assert!(offset + bytes <= PAGE_BYTES, "a piece lies within its frame");
    libc::iovec {
        iov_base: start(machine, frame).wrapping_add(offset as usize).cast(),
        iov_len: bytes as usize,
    }
}

/// Fills `count` frames with zeroes.
pub(crate) fn clear(machine: &impl Machine, frame: Frame, count: u64) {
    // SAFETY: the caller holds the frames, which the machine has granted, and a run of frames is contiguous in `memory`.
    unsafe { start(machine, frame).write_bytes(0, (count * PAGE_BYTES) as usize) };
}

/// Fills the rest of a frame with zeroes.
pub(crate) fn clear_from(machine: &impl Machine, frame: Frame, offset: u64) {
    assert!(offset <= PAGE_BYTES, "within the frame");
    // SAFETY: as for `clear`, and the range ends with the frame.
    unsafe { start(machine, frame).add(offset as usize).write_bytes(0, (PAGE_BYTES - offset) as usize) };
}

/// Copies a whole frame.
pub(crate) fn copy(machine: &impl Machine, from: Frame, to: Frame) {
    assert_ne!(from, to, "a copy is another frame");
    // SAFETY: both frames are granted and held by the caller, and they do not overlap.
    unsafe { start(machine, to).copy_from_nonoverlapping(start(machine, from), PAGE_BYTES as usize) };
}

/// Copies bytes out of a frame.
pub(crate) fn read(machine: &impl Machine, frame: Frame, offset: u64, into: &mut [u8]) {
    assert!(offset + into.len() as u64 <= PAGE_BYTES, "within the frame");
    // SAFETY: the frame is granted, the range lies within it, and `into` is memory of the emulator's own, outside of all frames.
    unsafe {
        into.as_mut_ptr().copy_from_nonoverlapping(start(machine, frame).add(offset as usize), into.len());
    }
}

/// Copies bytes into a frame.
pub(crate) fn write(machine: &impl Machine, frame: Frame, offset: u64, from: &[u8]) {
    assert!(offset + from.len() as u64 <= PAGE_BYTES, "within the frame");
    // SAFETY: as for `read`, the other way round.
    unsafe { start(machine, frame).add(offset as usize).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
}

/// A word of a frame, for as long as the machine is not changed.
pub(crate) fn word<M: Machine>(machine: &M, frame: Frame, offset: u64) -> &AtomicU32 {
    assert!(offset + 4 <= PAGE_BYTES && offset.is_multiple_of(4), "a word is aligned and within the frame");
    // SAFETY: the memory is granted, aligned, and stays where it is; every bit pattern is a word, and others store to it only as
    // the processor does, which an atomic permits.
    unsafe { AtomicU32::from_ptr(start(machine, frame).add(offset as usize).cast()) }
}
