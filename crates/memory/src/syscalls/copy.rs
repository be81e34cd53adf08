//! Copies and touches that end where a fault cannot be served, instead of ending the process.
//!
//! Each is one instruction that may fault. If it does, the fault's handler serves it as any other; if it cannot, it goes on at
//! [`landing`], and the caller hears how far the copy came. (Hive §4.1: careful reference)
#![expect(unsafe_code, reason = "accesses to addresses that a program gave, which may be bad")]

use crate::software;

std::arch::global_asm!(
    ".pushsection .text.comb_memory_copy,\"ax\",@progbits",
    ".hidden comb_memory_copy",
    ".globl comb_memory_copy",
    // (to, from, bytes) -> bytes that are missing. A fault leaves in rcx what is still to do.
    "comb_memory_copy:",
    "mov rcx, rdx",
    ".hidden comb_memory_copy_faults",
    ".globl comb_memory_copy_faults",
    "comb_memory_copy_faults:",
    "rep movsb",
    ".hidden comb_memory_copy_lands",
    ".globl comb_memory_copy_lands",
    "comb_memory_copy_lands:",
    "mov rax, rcx",
    "ret",
    // (at) -> 0, or 1 if that cannot be stored to. A store that changes nothing, whoever else stores meanwhile.
    ".hidden comb_memory_touch",
    ".globl comb_memory_touch",
    "comb_memory_touch:",
    "xor eax, eax",
    ".hidden comb_memory_touch_faults",
    ".globl comb_memory_touch_faults",
    "comb_memory_touch_faults:",
    "lock or byte ptr [rdi], 0",
    "ret",
    ".hidden comb_memory_touch_lands",
    ".globl comb_memory_touch_lands",
    "comb_memory_touch_lands:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn comb_memory_copy(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn comb_memory_copy_faults();
    fn comb_memory_copy_lands();
    fn comb_memory_touch(at: *mut u8) -> usize;
    fn comb_memory_touch_faults();
    fn comb_memory_touch_lands();
}

/// Where a thread goes on that was stopped at `instruction` by a fault that cannot be served. None: not our instruction.
pub fn landing(instruction: usize) -> Option<usize> {
    let address = |label: unsafe extern "C" fn()| label as *const () as usize;
    if instruction == address(comb_memory_copy_faults) {
        return Some(address(comb_memory_copy_lands));
    }
    (instruction == address(comb_memory_touch_faults)).then(|| address(comb_memory_touch_lands))
}

/// Copies from an address that may be shared, or bad. Gives back how many bytes were copied.
pub fn load(from: usize, into: &mut [u8]) -> usize {
    in_pieces(from, into.len(), false, |done, bytes| {
        // SAFETY: `into` is ours; a bad `from` ends the copy by way of `landing`.
        unsafe { comb_memory_copy(into[done..].as_mut_ptr(), (from + done) as *const u8, bytes) }
    })
}

/// Copies to an address that may be shared, or bad. Gives back how many bytes were copied.
///
/// # Safety
/// `to` and what follows is memory that the caller was given to write, or no memory at all.
pub unsafe fn store(bytes: &[u8], to: usize) -> usize {
    in_pieces(to, bytes.len(), true, |done, piece| {
        // SAFETY: by the caller; a bad `to` ends the copy by way of `landing`.
        unsafe { comb_memory_copy((to + done) as *mut u8, bytes[done..].as_ptr(), piece) }
    })
}

/// Moves bytes from or to a place, with the right to a piece of it at a time where that has to be looked for. `copy` is told how many are done
/// and how many are next, and says how many of those are missing. How many were moved.
fn in_pieces(
    place: usize,
    bytes: usize,
    is_store: bool,
    mut copy: impl FnMut(usize, usize) -> usize,
) -> usize {
    let mut done = 0;
    while done < bytes {
        let here = place.wrapping_add(done);
        // What is not shared, nobody takes.
        let piece = if software::is_needed() && super::is_shared(here) {
            (bytes - done).min(software::PIECE_BYTES - here % software::PIECE_BYTES)
        } else {
            bytes - done
        };
        let missing = if piece > software::PIECE_BYTES {
            copy(done, piece)
        } else {
            software::with_right(here as *const u8, piece, is_store, || copy(done, piece)).unwrap_or(piece)
        };
        done += piece - missing;
        if missing > 0 {
            break;
        }
    }
    done
}

/// Whether a byte can be loaded; if it can, this thread had the right to when that was done.
pub(super) fn touch_load(at: usize) -> bool {
    load(at, &mut [0]) == 1
}

/// Whether a byte can be stored to; if it can, this thread had the right to when that was done. Its value stays.
pub(super) fn touch_store(at: usize) -> bool {
    // SAFETY: writes back what is there, atomically; a bad address ends it by way of `landing`.
    let touch = || unsafe { comb_memory_touch(at as *mut u8) == 0 };
    software::with_right(at as *const u8, 1, true, touch).unwrap_or(false)
}

/// A value of plain bytes at an address that may be bad.
pub(super) fn load_u32(at: usize) -> Option<u32> {
    let mut bytes = [0; 4];
    (load(at, &mut bytes) == 4).then(|| u32::from_ne_bytes(bytes))
}

/// As [`load_u32`], for as many words as there is room for.
pub(super) fn load_words(at: usize, words: &mut [usize]) -> Option<()> {
    let bytes = size_of_val(words);
    // SAFETY: words are plain bytes, any of which may be.
    let into = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), bytes) };
    (load(at, into) == bytes).then_some(())
}

/// Stores to where a program asked for a result.
pub(super) fn give(bytes: &[u8], to: usize) -> bool {
    // SAFETY: the program named this place for the kernel to write these bytes to, which we do in its stead.
    unsafe { store(bytes, to) == bytes.len() }
}
