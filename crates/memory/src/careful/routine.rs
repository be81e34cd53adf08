//! The instructions that touch a peer's memory: all of them, so that the handler of faults knows where they are.
#![expect(unsafe_code, reason = "loads from memory that another process changes or takes away")]

use super::Taken;

// to: rdi, content: rsi, bytes: rdx, the epoch word: rcx, what was seen: r8, tag word and sequence word: r9. Returns 0, or 1 if something was not there. Loads are not made out of
// order, as the processor has it, so they are in the protocol's: sequence word, tag word, content, sequence word, epoch word. Nothing is pushed, so
// that the landing finds its caller.
std::arch::global_asm!(
    ".pushsection .text.comb_memory_careful_read,\"ax\",@progbits",
    ".hidden comb_memory_careful_read",
    ".hidden comb_memory_careful_read_lands",
    ".globl comb_memory_careful_read",
    ".globl comb_memory_careful_read_lands",
    ".p2align 6",
    "comb_memory_careful_read:",
    "mov rax, [r9 + 8]",
    "mov r10, [r9]",
    "mov [r8], rax",
    "mov [r8 + 8], r10",
    "cmp rdx, 32",
    "jb 3f",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "add rsi, 32",
    "add rdi, 32",
    "sub rdx, 32",
    "cmp rdx, 32",
    "jae 2b",
    "3:",
    "cmp rdx, 8",
    "jb 5f",
    "4:",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "cmp rdx, 8",
    "jae 4b",
    "5:",
    "test rdx, rdx",
    "je 7f",
    "6:",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jne 6b",
    "7:",
    "mov rax, [r9 + 8]",
    "mov r10, [rcx]",
    "mov [r8 + 16], rax",
    "mov [r8 + 24], r10",
    "xor eax, eax",
    "ret",
    "comb_memory_careful_read_lands:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn comb_memory_careful_read(
        to: *mut u8,
        content: *const u8,
        bytes: usize,
        epoch: *const u64,
        taken: *mut Taken,
        front: *const u64,
    ) -> usize;
    fn comb_memory_careful_read_lands();
}

/// Where a thread goes on that was stopped there. None: not our instruction.
pub(crate) fn landing(instruction: usize) -> Option<usize> {
    let start = comb_memory_careful_read as *const () as usize;
    let landing = comb_memory_careful_read_lands as *const () as usize;
    (start..landing).contains(&instruction).then_some(landing)
}

/// Where something is to be copied from.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    /// Of tag word and sequence word.
    pub(super) front: usize,
    pub(super) content: usize,
    /// Of the epoch word.
    pub(super) epoch: usize,
}

/// Copies a record's content, and what is to be seen around it. None: something is not there; then what is in `into` is part of the content, or
/// what was there before.
///
/// # Safety
/// These are words, and `content` as many bytes as `into` has, within mappings of a file to be read, and this process has made sure of [`landing`]s. The
/// file may be changed and shortened meanwhile.
#[inline]
pub(super) unsafe fn take(from: Addresses, into: &mut [u8]) -> Option<Taken> {
    let mut taken = Taken { before: 0, tag: 0, after: 0, epoch: 0 };
    let content = std::ptr::with_exposed_provenance(from.content);
    let epoch = std::ptr::with_exposed_provenance(from.epoch);
    let front = std::ptr::with_exposed_provenance(from.front);
    // SAFETY: the caller's promise; what is stored to is ours.
    let is_gone = unsafe {
        comb_memory_careful_read(into.as_mut_ptr(), content, into.len(), epoch, &raw mut taken, front)
    };
    (is_gone == 0).then_some(taken)
}
