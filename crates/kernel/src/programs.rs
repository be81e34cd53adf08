//! Programs of a few instructions, to try a supervisor with.
#![expect(unsafe_code, reason = "programs that are assembled here, and run elsewhere")]

use std::arch::global_asm;

/// What is assembled from one label to another.
///
/// # Safety
/// Both are of one program, which is never changed, in this order.
unsafe fn between(start: *const u8, end: *const u8) -> &'static [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// Where [`hears`] writes what it hears.
pub const LOG_ADDRESS: u64 = 0x60_0000;

/// Computes until it has heard of some messages.
///
/// It begins with these: `r13`: of how many; `rbx`: with what it computes; a stack. At its end `rax` is [`END`], `rdi` how many steps it has computed, `rbx` and `r14` what
/// [`heard`] says of so many, and `r15` the same as `rbx`. Its signal function is [`HEARS_FUNCTION`] bytes behind its beginning: it writes all addresses
/// that it hears to [`LOG_ADDRESS`], after their number, and makes [`ASK`] if the lowest bit of an address is set.
pub fn hears() -> &'static [u8] {
    // SAFETY: the program below, from its first byte to its last.
    unsafe { between(&raw const comb_program_hears_start, &raw const comb_program_hears_end) }
}

/// Where the signal function of [`hears`] is, from its beginning.
pub const HEARS_FUNCTION: u64 = 64;
/// What that calls if it is told to.
pub const ASK: u64 = 1001;

/// What [`hears`] has computed after so many steps.
pub fn heard(steps: u64, begin: u64) -> [u64; 2] {
    (1..=steps).fold([begin, 0], |[at, sum], step| {
        let at = at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(step);
        [at, sum ^ at.rotate_left(7)]
    })
}

/// Makes call 39 again and again.
pub const CALLS: &[u8] = &[0xb8, 39, 0, 0, 0, 0x0f, 5, 0xeb, 0xf7];

/// Goes nowhere.
pub const COMPUTES: &[u8] = &[0xeb, 0xfe];

/// Stores `rax` where `rdi` points, page after page.
pub const FAULTS: &[u8] = &[0x48, 0x89, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xeb, 0xf4];

/// Stores `rax` where `rdi` points, makes a call, and does it again.
pub const STORES: &[u8] = &[0x48, 0x89, 0x07, 0x0f, 5, 0xeb, 0xf9];

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
    unsafe { between(&raw const comb_program_messages_start, &raw const comb_program_messages_end) }
}

/// An object that doubles numbers, at its end of a channel of 64 bytes a place (of the crate `comb-kernels`, in whose layout it reads and writes).
///
/// It begins with these: `rdi`: its ring; `rsi`: where its end is, which is open; `rdx`: its space's translations; `r9`: the number of places less one; `r13`: 0; and a stack. It waits for
/// signals of requests. After each reply it makes [`SIGNAL`], with the reply's address in `rsi`.
pub fn doubles() -> &'static [u8] {
    // SAFETY: the program below, from its first byte to its last.
    unsafe { between(&raw const comb_program_doubles_start, &raw const comb_program_doubles_end) }
}

unsafe extern "C" {
    static comb_program_doubles_start: u8;
    static comb_program_doubles_end: u8;
    static comb_program_hears_start: u8;
    static comb_program_hears_end: u8;
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

global_asm!(
    ".pushsection .rodata.comb_program_hears, \"a\", @progbits",
    ".globl comb_program_hears_start",
    "comb_program_hears_start:",
    "movabs r12, 0x5851f42d4c957f2d",
    "xor r14d, r14d",
    "1:",
    "inc rdi",
    "imul rbx, r12",
    "add rbx, rdi",
    "movq xmm7, rbx",
    "mov rcx, rbx",
    "rol rcx, 7",
    "xor r14, rcx",
    "cmp [0x600000], r13",
    "jb 1b",
    "movq r15, xmm7",
    "mov eax, 60",
    "syscall",
    ".org comb_program_hears_start + 64, 0xcc",
    "mov ebx, 0x600000",
    "mov rcx, [rbx]",
    "mov [rbx + rcx * 8 + 8], rdi",
    "inc qword ptr [rbx]",
    "test dil, 1",
    "jz 2f",
    "push rsi",
    "mov eax, 1001",
    "syscall",
    "pop rsi",
    // It leaves nothing as it was.
    "2:",
    "pcmpeqd xmm7, xmm7",
    "xor ebx, ebx",
    "mov rcx, -1",
    "mov rdi, -1",
    "xor r12d, r12d",
    "mov r14, -1",
    "std",
    "jmp rsi",
    ".globl comb_program_hears_end",
    "comb_program_hears_end:",
    ".popsection",
);

global_asm!(
    ".pushsection .rodata.comb_program_doubles, \"a\", @progbits",
    ".globl comb_program_doubles_start",
    "comb_program_doubles_start:",
    // The next signal, or sleep.
    "1:",
    "mov rax, [rdi + 64]",
    "movzx eax, al",
    "mov r8, [rdi + rax * 8 + 1024]",
    "test r8, r8",
    "jnz 2f",
    "mov ecx, 1",
    "xchg dword ptr [rdi + 128], ecx",
    "cmp qword ptr [rdi + rax * 8 + 1024], 0",
    "jne 1b",
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
    "jmp 1b",
    "2:",
    "mov qword ptr [rdi + rax * 8 + 1024], 0",
    "inc qword ptr [rdi + 64]",
    // The reply's place: length, kind, number; then the call's number, status and result.
    "mov r10, r13",
    "and r10, r9",
    "shl r10, 6",
    "lea r10, [rsi + r10 + 4096]",
    "mov dword ptr [r10], 20",
    "mov dword ptr [r10 + 4], 2",
    "mov [r10 + 8], r13",
    "mov rax, [r8 + 16]",
    "mov [r10 + 16], rax",
    "mov dword ptr [r10 + 24], 0",
    "mov rax, [r8 + 32]",
    "add rax, rax",
    "mov [r10 + 28], rax",
    // One more is taken, and one more written.
    "inc r13",
    "mov [rsi + 128], r13",
    "mov [rsi + 64], r13",
    "lock inc dword ptr [rsi + 200]",
    "push rsi",
    "mov rsi, r10",
    "mov eax, 1000",
    "syscall",
    "pop rsi",
    "jmp 1b",
    ".globl comb_program_doubles_end",
    "comb_program_doubles_end:",
    ".popsection",
);
