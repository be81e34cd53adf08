//! The instructions that touch a peer's memory: all of them, so that the handler of faults knows where they are.
//!
//! Loads are not made out of order, as the processor has it, so they are in the protocol's: sequence word, tag word, content, sequence word,
//! epoch word. Nothing is pushed, so that a landing finds its caller.
#![expect(unsafe_code, reason = "loads from memory that another process changes or takes away")]

use super::{Gone, Taken};

/// What is put together to one piece of code, from `comb_memory_careful_read` to its landing.
macro_rules! routine {
    ($($name:literal: $copy:literal;)*) => {
        std::arch::global_asm!(
            ".pushsection .text.comb_memory_careful_read,\"ax\",@progbits",
            ".hidden comb_memory_careful_read",
            ".hidden comb_memory_careful_read_lands",
            ".globl comb_memory_careful_read",
            ".globl comb_memory_careful_read_lands",
            // to: rdi, content: rsi, bytes: rdx, the epoch word's address: rcx, what was seen: r8, the address of tag word and sequence word: r9.
            // Returns in rdx whether something was not there.
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
            "xor edx, edx",
            "ret",
            // to: rdi, content: rsi, the tag word that is expected: rdx, the epoch word that is: rcx, its address: r8, the address of tag word and
            // sequence word: r9. Returns in rax what is not as expected, and in rdx whether something was not there.
            $(
                ".p2align 4",
                concat!(".hidden ", $name),
                concat!(".globl ", $name),
                concat!($name, ":"),
                "mov r10, [r9 + 8]",
                "xor rdx, [r9]",
                $copy,
            )*
            ".p2align 4",
            "14:",
            "movups xmm0, [rsi + 48]",
            "movups [rdi + 48], xmm0",
            "13:",
            "movups xmm1, [rsi + 32]",
            "movups [rdi + 32], xmm1",
            "12:",
            "movups xmm0, [rsi + 16]",
            "movups [rdi + 16], xmm0",
            "11:",
            "movups xmm1, [rsi]",
            "movups [rdi], xmm1",
            "10:",
            "mov rax, [r9 + 8]",
            "xor rcx, [r8]",
            // Changed meanwhile, or odd before.
            "xor rax, r10",
            "and r10d, 1",
            "or rdx, rcx",
            "or rax, r10",
            "or rax, rdx",
            "xor edx, edx",
            "ret",
            "comb_memory_careful_read_lands:",
            "mov edx, 1",
            "ret",
            ".popsection",
        );
    };
}

routine! {
    "comb_memory_careful_read_1": "mov rax, [rsi]; mov [rdi], rax; jmp 10f";
    "comb_memory_careful_read_2": "jmp 11f";
    "comb_memory_careful_read_3": "mov rax, [rsi + 16]; mov [rdi + 16], rax; jmp 11f";
    "comb_memory_careful_read_4": "jmp 12f";
    "comb_memory_careful_read_5": "mov rax, [rsi + 32]; mov [rdi + 32], rax; jmp 12f";
    "comb_memory_careful_read_6": "jmp 13f";
    "comb_memory_careful_read_7": "mov rax, [rsi + 48]; mov [rdi + 48], rax; jmp 13f";
    "comb_memory_careful_read_8": "jmp 14f";
}

/// As a routine returns it.
#[repr(C)]
struct Returned {
    /// Of the words around the content, all bits that are not as expected.
    differs: u64,
    is_gone: u64,
}

/// One of those for a few words.
type Small = unsafe extern "C" fn(*mut u8, *const u8, u64, u64, *const u64, *const u64) -> Returned;

unsafe extern "C" {
    fn comb_memory_careful_read(
        to: *mut u8,
        content: *const u8,
        bytes: usize,
        epoch: *const u64,
        taken: *mut Taken,
        front: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_1(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_2(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_3(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_4(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_5(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_6(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_7(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
    fn comb_memory_careful_read_8(
        _: *mut u8,
        _: *const u8,
        _: u64,
        _: u64,
        _: *const u64,
        _: *const u64,
    ) -> Returned;
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

/// Copies a record's content, and what is to be seen around it. If something is not there, what is in `into` is part of the content, or what was
/// there before.
///
/// # Safety
/// These are words, and `content` as many bytes as `into` has, within mappings of a file to be read, and this process has made sure of [`landing`]s. The
/// file may be changed and shortened meanwhile.
#[inline]
pub(super) unsafe fn take(from: Addresses, into: &mut [u8]) -> Result<Taken, Gone> {
    let mut taken = Taken { before: 0, tag: 0, after: 0, epoch: 0 };
    let (content, epoch, front) = pointers(from);
    // SAFETY: the caller's promise; what is stored to is ours.
    let Returned { is_gone, .. } = unsafe {
        comb_memory_careful_read(into.as_mut_ptr(), content, into.len(), epoch, &raw mut taken, front)
    };
    if is_gone == 0 { Ok(taken) } else { Err(Gone::BusError) }
}

/// The same where a few words are wanted and it is known what should be around them. Whether it was; false also if there are more than a few.
///
/// # Safety
/// As for [`take`].
#[inline]
pub(super) unsafe fn take_if(
    from: Addresses,
    into: &mut [u8],
    tag_word: u64,
    epoch_word: u64,
) -> Result<bool, Gone> {
    let small: Small = match into.len() {
        8 => comb_memory_careful_read_1,
        16 => comb_memory_careful_read_2,
        24 => comb_memory_careful_read_3,
        32 => comb_memory_careful_read_4,
        40 => comb_memory_careful_read_5,
        48 => comb_memory_careful_read_6,
        56 => comb_memory_careful_read_7,
        64 => comb_memory_careful_read_8,
        _ => return Ok(false),
    };
    let (content, epoch, front) = pointers(from);
    // SAFETY: as above; this one copies as many bytes as `into` has.
    let Returned { differs, is_gone } =
        unsafe { small(into.as_mut_ptr(), content, tag_word, epoch_word, epoch, front) };
    if is_gone == 0 { Ok(differs == 0) } else { Err(Gone::BusError) }
}

#[inline]
fn pointers(from: Addresses) -> (*const u8, *const u64, *const u64) {
    let Addresses { front, content, epoch } = from;
    (
        std::ptr::with_exposed_provenance(content),
        std::ptr::with_exposed_provenance(epoch),
        std::ptr::with_exposed_provenance(front),
    )
}
