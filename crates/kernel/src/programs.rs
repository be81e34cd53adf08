//! Programs of a few instructions, to try a supervisor with.
#![expect(unsafe_code, reason = "programs that are assembled here, and run elsewhere")]

use std::arch::global_asm;

/// Makes call 39 again and again.
pub const CALLS: &[u8] = &[0xb8, 39, 0, 0, 0, 0x0f, 5, 0xeb, 0xf7];

/// Stores `rax` where `rdi` points, page after page.
pub const FAULTS: &[u8] = &[0x48, 0x89, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xeb, 0xf4];

/// Counts `rdi` down in the word at `rsi`, makes a call, and does it again.
pub const WORKS: &[u8] = &[0x48, 0x89, 0x3e, 0x48, 0xff, 0x0e, 0x75, 0xfb, 0x0f, 5, 0xeb, 0xf4];

/// What [`messages`] calls if a signal is not translated: its address is in `rsi`.
pub const SIGNAL: u64 = 1000;
/// And what it calls at its end.
pub const END: u64 = 60;

/// Signals an address and waits for an answer, so many times; or waits, and answers.
///
/// It begins with these: `rdi`: its ring ([`crate::thread::Area::ring_address`]); `rsi`: the address to signal; `rdx`: its space's translations
/// ([`crate::space::TRANSLATIONS_ADDRESS`]); `r9`: how many times; `rbp`: 1 if it begins by waiting, and a stack. When it ends, `rbx` has how many signals it was
/// given, and `r15` the last one.
pub fn messages() -> &'static [u8] {
    // SAFETY: the program below, from its first byte to its last.
    unsafe {
        let length =
            (&raw const comb_program_messages_end).addr() - (&raw const comb_program_messages_start).addr();
        std::slice::from_raw_parts(&raw const comb_program_messages_start, length)
    }
}

unsafe extern "C" {
    static comb_program_messages_start: u8;
    static comb_program_messages_end: u8;
}

global_asm!(
    ".pushsection .rodata.comb_program_messages, \"a\", @progbits",
    ".globl comb_program_messages_start",
    "comb_program_messages_start:",
    "test rbp, rbp",
    "jnz 5f",
    "1:",
    "mov rax, rsi",
    "shr rax, 12",
    "mov rcx, rax",
    "and ecx, 63",
    "shl ecx, 5",
    "lea rcx, [rdx + rcx + 1024]",
    "cmp [rcx], rax",
    "jne 4f",
    "mov r10, [rcx + 24]",
    "cmp r10, [rdx + 4096]",
    "jne 4f",
    "mov r11, [rcx + 16]",
    "mov r8, [rcx + 8]",
    "shl r8, 12",
    "mov r10, rsi",
    "and r10d, 4095",
    "or r8, r10",
    "2:",
    "mov rax, [r11]",
    "movzx r10d, al",
    "cmp qword ptr [r11 + r10 * 8 + 1024], 0",
    "jne 4f",
    "lea r14, [rax + 1]",
    "lock cmpxchg [r11], r14",
    "jne 2b",
    "xchg [r11 + r10 * 8 + 1024], r8",
    // Whoever sleeps is woken.
    "cmp dword ptr [r11 + 128], 0",
    "je 7f",
    "mov dword ptr [r11 + 128], 0",
    "push rdi",
    "push rsi",
    "push rdx",
    "lea rdi, [r11 + 128]",
    "call [rdx + 8]",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "jmp 7f",
    "4:",
    "mov eax, 1000",
    "push rcx",
    "push r11",
    "syscall",
    "pop r11",
    "pop rcx",
    "7:",
    "dec r9",
    "jz 8f",
    // And now it waits.
    "5:",
    "mov r12d, 1000",
    "9:",
    "mov rax, [rdi + 64]",
    "movzx eax, al",
    "mov r8, [rdi + rax * 8 + 1024]",
    "test r8, r8",
    "jnz 6f",
    "pause",
    "dec r12d",
    "jnz 9b",
    // It says that it sleeps, looks once more, and does.
    "mov ecx, 1",
    "xchg dword ptr [rdi + 128], ecx",
    "cmp qword ptr [rdi + rax * 8 + 1024], 0",
    "jne 5b",
    "push rdi",
    "push rsi",
    "push rdx",
    "mov esi, 1",
    "lea rax, [rdi + 128]",
    "mov rdi, rax",
    "call [rdx]",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "jmp 5b",
    "6:",
    "mov r15, r8",
    "mov qword ptr [rdi + rax * 8 + 1024], 0",
    "inc qword ptr [rdi + 64]",
    "inc rbx",
    "jmp 1b",
    "8:",
    "mov eax, 60",
    "syscall",
    "ud2",
    ".globl comb_program_messages_end",
    "comb_program_messages_end:",
    ".popsection",
);
