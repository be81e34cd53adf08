//! Copies that end with an error where what they copy is lost.
//!
//! A fault within the copy's few instructions, and nowhere else, is answered by going on behind them.

use std::ffi::c_void;
use std::ops::Range;

use super::{Reason, Verdict};
use crate::images;
use crate::software;
use crate::space::index;

/// Where a careful copy ended, and why. Bytes before it are copied, and perhaps some behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what was stored at {address:#x} is lost: {reason}")]
pub struct LostAt {
    /// What is lost.
    pub address: usize,
    /// Why.
    pub reason: Reason,
}

// to: rdi, from: rsi, bytes: rdx, where a loss is told: rcx. Returns how many bytes were copied. Eight bytes at once if there are
// eight, or if both sides are aligned: numbers are not torn. Nothing is pushed, so that the landing finds its caller.
std::arch::global_asm!(
    ".pushsection .text.comb_memory_careful_copy,\"ax\",@progbits",
    ".hidden comb_memory_careful_copy",
    ".hidden comb_memory_careful_copy_end",
    ".globl comb_memory_careful_copy",
    ".globl comb_memory_careful_copy_end",
    "comb_memory_careful_copy:",
    "mov r8, rcx",
    "mov r9, rdi",
    "cmp rdx, 8",
    "je 3f",
    "mov rax, rdi",
    "or rax, rsi",
    "test al, 7",
    "jne 2f",
    "mov rcx, rdx",
    "shr rcx, 3",
    "rep movsq",
    "and edx, 7",
    "2:",
    "mov rcx, rdx",
    "rep movsb",
    "jmp comb_memory_careful_copy_end",
    "3:",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rdi, 8",
    // The landing.
    "comb_memory_careful_copy_end:",
    "mov rax, rdi",
    "sub rax, r9",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn comb_memory_careful_copy(to: *mut u8, from: *const u8, bytes: usize, loss: *mut c_void) -> usize;
    fn comb_memory_careful_copy_end();
}

/// Copies shared memory, of whatever is there by now; an error if some of it is lost.
///
/// # Panics
/// If it is not memory of the heap. In the heap, addresses where nothing is allocated end the process.
pub fn careful_copy_from(shared: *const u8, into: &mut [u8]) -> Result<(), LostAt> {
    check(shared.addr(), into.len());
    let mut place = shared;
    for piece in pieces(shared.addr(), into.len()) {
        let (into, bytes) = (into[piece.clone()].as_mut_ptr(), piece.len());
        // SAFETY: within the heap there is no private memory of anybody, and `into` is part of a slice.
        let copied = || unsafe { copy(into, place, bytes) };
        lost(place, software::with_right(place, bytes, false, copied))?;
        place = place.wrapping_add(bytes);
    }
    Ok(())
}

/// What is copied together: whole words, and never much, for this thread may have to look first.
fn pieces(address: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let first = software::PIECE_BYTES - address % software::PIECE_BYTES;
    let mut start = 0;
    std::iter::from_fn(move || {
        let piece = start..bytes.min(if start == 0 { first } else { start + software::PIECE_BYTES });
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

fn lost(place: *const u8, copied: Result<Result<(), LostAt>, Verdict>) -> Result<(), LostAt> {
    let reason = match copied {
        Ok(copied) => return copied,
        Err(Verdict::Lost(reason)) => reason,
        Err(_) => Reason::Other("nothing is allocated there"),
    };
    Err(LostAt { address: place.addr(), reason })
}

/// Copies to shared memory; an error if some of it is lost. Bytes before that have been stored.
///
/// # Panics
/// If it is not memory of the heap. In the heap, addresses where nothing is allocated end the process.
pub fn careful_copy_to(bytes: &[u8], shared: *mut u8) -> Result<(), LostAt> {
    check(shared.addr(), bytes.len());
    let mut place = shared;
    for piece in pieces(shared.addr(), bytes.len()) {
        let bytes = &bytes[piece];
        // SAFETY: as above.
        let copied = || unsafe { copy(place, bytes.as_ptr(), bytes.len()) };
        lost(place, software::with_right(place, bytes.len(), true, copied))?;
        place = place.wrapping_add(bytes.len());
    }
    Ok(())
}

fn check(address: usize, bytes: usize) {
    let is_heap = images::covers(address, bytes);
    assert!(is_heap || bytes == 0, "{bytes} bytes at {address:#x} are not in the shared heap");
}

/// # Safety
/// Both sides may be copied, and do not overlap; what is in the heap may fault.
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<(), LostAt> {
    let mut loss: Option<LostAt> = None;
    // SAFETY: the caller's promise; the handler writes to `loss` while the routine runs, and only then.
    let copied = unsafe { comb_memory_careful_copy(to, from, bytes, (&raw mut loss).cast()) };
    if copied == bytes {
        return Ok(());
    }
    Err(loss.expect("the landing is reached early only with a loss"))
}

/// Lets a thread that was stopped within a careful copy go on at its end, with the loss. Whether it was one.
///
/// # Safety
/// `context` is that of the signal that is being handled.
pub(super) unsafe fn land(context: *mut c_void, address: usize, reason: Reason) -> bool {
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let start = comb_memory_careful_copy as *const () as usize;
    let end = comb_memory_careful_copy_end as *const () as usize;
    let at = index(registers[libc::REG_RIP as usize].cast_unsigned());
    if !(start..end).contains(&at) {
        return false;
    }
    let loss = index(registers[libc::REG_R8 as usize].cast_unsigned());
    // SAFETY: within the routine its fourth argument is kept there, which is on the stack of the thread that waits for us. The
    // first instructions, which set it, do not fault.
    unsafe {
        std::ptr::with_exposed_provenance_mut::<Option<LostAt>>(loss).write(Some(LostAt { address, reason }));
    };
    registers[libc::REG_RIP as usize] = end.cast_signed() as i64;
    true
}
