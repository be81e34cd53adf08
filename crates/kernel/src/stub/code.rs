//! The code itself. It is copied into a page of its own, so that it must not refer to anything but what is within it, and to addresses that
//! are the same in every space.
#![expect(unsafe_code, reason = "code without a stack, in a process without memory, is not Rust's")]

use std::arch::global_asm;

use super::filters;
use super::layout::*;
use crate::space::MESSAGE;

global_asm!(
    ".pushsection .rodata.comb_stub, \"a\", @progbits",
    ".balign 64",
    ".globl comb_stub_start",
    "comb_stub_start:",
    // The mapper begins: all else that this process had goes.
    "xor esp, esp",
    "xor edi, edi",
    "movabs rsi, {stub_start}",
    "mov eax, 11", // munmap
    "syscall",
    "movabs rdi, {stub_end}",
    "movabs rsi, {top}",
    "sub rsi, rdi",
    "mov eax, 11",
    "syscall",
    "mov edi, 1", // a filter
    "xor esi, esi",
    "movabs rdx, {mapper_filter}",
    "mov eax, 317", // seccomp
    "syscall",
    "test eax, eax",
    "jnz 9f",
    "xor r12d, r12d",
    "movabs rbx, {orders}",
    "movabs r14, {results}",
    // Until there are orders.
    "2:",
    "mov eax, dword ptr [rbx + {orders_sequence}]",
    "cmp eax, r12d",
    "jne 3f",
    "mov rdi, rbx",
    "xor esi, esi", // wait
    "mov edx, r12d",
    "xor r10d, r10d",
    "mov eax, 202", // futex
    "syscall",
    "jmp 2b",
    // One after the other.
    "3:",
    "mov r12d, eax",
    "xor r15d, r15d",
    "mov r13d, dword ptr [rbx + {orders_count}]",
    "lea rbp, [rbx + {orders_calls}]",
    "4:",
    "test r13d, r13d",
    "jz 5f",
    "mov rax, [rbp]",
    "mov rdi, [rbp + 8]",
    "mov rsi, [rbp + 16]",
    "mov rdx, [rbp + 24]",
    "mov r10, [rbp + 32]",
    "mov r8, [rbp + 40]",
    "mov r9, [rbp + 48]",
    "syscall",
    // Of what comes back from a clone, a new thread has a stack.
    "cmp rsp, {unfinished}",
    "ja 6f",
    "mov r15, rax",
    "mov rcx, [rbp + 56]",
    "cmp rcx, {any}",
    "je 7f",
    "cmp rax, rcx",
    "je 7f",
    // One that is not finished does all that it is told, or ends.
    "test esp, esp",
    "jnz 9f",
    "jmp 5f",
    "7:",
    "add rbp, {order_bytes}",
    "dec r13d",
    "jmp 4b",
    // Which orders, and the last result, as a position of a file: programs of the space have no descriptors, and no such call.
    "5:",
    "xor esp, esp",
    "mov edi, dword ptr [rbx + {orders_report}]",
    "mov esi, r12d",
    "shl rsi, 32",
    "mov eax, r15d",
    "or rsi, rax",
    "xor edx, edx",
    "mov eax, 8", // lseek
    "syscall",
    "mov eax, r12d",
    "xchg dword ptr [r14 + {results_done}], eax",
    "cmp dword ptr [rbx + {orders_awaited}], 0",
    "je 2b",
    "lea rdi, [r14 + {results_done}]",
    "mov esi, 1", // wake
    "mov edx, 1",
    "mov eax, 202",
    "syscall",
    "jmp 2b",
    "9:",
    "mov edi, 1",
    "mov eax, 231", // exit_group
    "syscall",
    "ud2",
    // A program's thread begins: it gets a stack for its stops, no descriptors, and the narrower filter, and is stopped.
    "6:",
    "mov r15, rsp",
    "and r15, {area_mask}",
    "lea rdi, [r15 + {area_alternate}]",
    "xor esi, esi",
    "mov eax, 131", // sigaltstack
    "syscall",
    "xor edi, edi",
    "mov esi, -1",
    "mov edx, 2", // its own table from now on
    "mov eax, 436", // close_range
    "syscall",
    "test eax, eax",
    "jnz 9b",
    "mov edi, 1",
    "xor esi, esi",
    "movabs rdx, {thread_filter}",
    "mov eax, 317",
    "syscall",
    "test eax, eax",
    "jnz 9b",
    "jmp 11f",
    ".globl comb_stub_threads",
    "comb_stub_threads:",
    // Where signals arrive: their number, what is known of them, and the state that they interrupted.
    "10:",
    "mov r15, rsp",
    "and r15, {area_mask}",
    "rdfsbase rax",
    "mov [r15 + {area_fs}], rax",
    "rdgsbase rax",
    "mov [r15 + {area_gs}], rax",
    // A message has come, or the signal function has ended: these do not stop it.
    "cmp edi, {message}",
    "je 17f",
    "cmp edi, {illegal}",
    "jne 20f",
    "lea rax, [rip + comb_stub_end_of_function]",
    "cmp [rdx + {frame_rip}], rax",
    "jne 20f",
    "cmp dword ptr [r15 + {area_in_function}], 0",
    "je 20f",
    "mov rdx, [r15 + {area_interrupted}]",
    "jmp 18f",
    "17:",
    // Who is in the function looks when it ends.
    "cmp dword ptr [r15 + {area_in_function}], 0",
    "jne 19f",
    "mov [r15 + {area_interrupted}], rdx",
    "18:",
    "mov r10, [r15 + {area_function}]",
    "test r10, r10",
    "jz 21f",
    "mov rax, [r15 + {ring_head}]",
    "movzx eax, al",
    "lea r8, [r15 + rax * 8 + {ring_slots}]",
    "mov r9, [r8]",
    "test r9, r9",
    "jz 21f",
    "mov qword ptr [r8], 0",
    "inc qword ptr [r15 + {ring_head}]",
    // It begins with the state that was interrupted, but for where it is, on what stack, and what it is given.
    "mov eax, 1",
    "xchg dword ptr [r15 + {area_in_function}], eax",
    "mov rsi, rdx",
    "lea rdi, [r15 + {area_call}]",
    "mov ecx, {frame_words}",
    "rep movsq",
    "lea rax, [r15 + {area_stack}]",
    "mov [r15 + {call_stack}], rax",
    "mov qword ptr [r15 + {call_stack} + 16], {stack_bytes}",
    "mov [r15 + {call_rdi}], r9",
    "lea rax, [rip + comb_stub_end_of_function]",
    "mov [r15 + {call_rsi}], rax",
    "mov rax, [r15 + {call_rsp}]",
    "sub rax, 128",
    "and rax, -16",
    "mov [r15 + {call_rsp}], rax",
    "mov [r15 + {call_rip}], r10",
    "mov qword ptr [r15 + {call_flags}], 0x202",
    "lea rsp, [r15 + {area_call}]",
    "mov eax, 15",
    "syscall",
    // There is nothing more. Who puts something into the ring and then sees it in its function must be sure that it looks again.
    "21:",
    "xor eax, eax",
    "xchg dword ptr [r15 + {area_in_function}], eax",
    "test r10, r10",
    "jz 19f",
    "cmp qword ptr [r8], 0",
    "jne 18b",
    "19:",
    "mov rsp, rdx",
    "mov eax, 15",
    "syscall",
    "20:",
    "mov dword ptr [r15 + {area_signal}], edi",
    "mov [r15 + {area_information}], rsi",
    "mov [r15 + {area_frame}], rdx",
    "11:",
    "mov dword ptr [r15 + {area_state}], {stopped}",
    "movabs rbx, {bell}",
    "mov ecx, dword ptr [r15 + {area_number}]",
    "lock bts qword ptr [rbx + {bell_rung}], rcx",
    "cmp dword ptr [rbx + {bell_sleeps}], 0",
    "je 12f",
    "mov dword ptr [rbx + {bell_sleeps}], 0",
    "lea rdi, [rbx + {bell_sleeps}]",
    "mov esi, 1",
    "mov edx, 1",
    "mov eax, 202",
    "syscall",
    "12:",
    "mov r12d, dword ptr [r15 + {area_spins}]",
    "13:",
    "mov eax, dword ptr [r15 + {area_state}]",
    "cmp eax, {stopped}",
    "jne 15f",
    "test r12d, r12d",
    "jz 14f",
    "dec r12d",
    "pause",
    "jmp 13b",
    "14:",
    "mov eax, 1",
    "xchg dword ptr [r15 + {area_sleeps}], eax",
    "mov eax, dword ptr [r15 + {area_state}]",
    "cmp eax, {stopped}",
    "jne 15f",
    "lea rdi, [r15 + {area_state}]",
    "xor esi, esi",
    "mov edx, {stopped}",
    "xor r10d, r10d",
    "mov eax, 202",
    "syscall",
    "jmp 14b",
    "15:",
    "mov dword ptr [r15 + {area_sleeps}], 0",
    "cmp eax, {ends}",
    "je 16f",
    "mov dword ptr [r15 + {area_state}], {runs}",
    "mov rax, [r15 + {area_fs}]",
    "wrfsbase rax",
    "mov rax, [r15 + {area_gs}]",
    "wrgsbase rax",
    "mov rsp, [r15 + {area_frame}]",
    "mov eax, 15", // rt_sigreturn
    "syscall",
    "16:",
    "xor edi, edi",
    "mov eax, 60", // exit
    "syscall",
    "ud2",
    // What programs call: to wait while a word has a value, and to wake who waits there.
    ".globl comb_stub_wait",
    "comb_stub_wait:",
    "mov edx, esi",
    "xor esi, esi",
    "xor r10d, r10d",
    "mov eax, 202",
    "syscall",
    "ret",
    ".globl comb_stub_wake",
    "comb_stub_wake:",
    "mov esi, 1",
    "mov edx, 1",
    "mov eax, 202",
    "syscall",
    "ret",
    // What signal functions end with.
    ".globl comb_stub_end_of_function",
    "comb_stub_end_of_function:",
    "ud2",
    ".globl comb_stub_end",
    "comb_stub_end:",
    ".popsection",
    stub_start = const STUB_START,
    stub_end = const STUB_END,
    top = const TOP,
    mapper_filter = const filters::MAPPER_PROGRAM,
    thread_filter = const filters::THREAD_PROGRAM,
    orders = const ORDERS,
    results = const RESULTS,
    orders_sequence = const ORDERS_SEQUENCE,
    orders_count = const ORDERS_COUNT,
    orders_calls = const ORDERS_CALLS,
    orders_awaited = const ORDERS_AWAITED,
    order_bytes = const ORDER_BYTES,
    results_done = const RESULTS_DONE,
    orders_report = const ORDERS_REPORT,
    any = const ANY.cast_signed(),
    unfinished = const UNFINISHED,
    area_mask = const -(AREA_BYTES.cast_signed()),
    area_state = const AREA_STATE,
    area_sleeps = const AREA_SLEEPS,
    area_number = const AREA_NUMBER,
    area_spins = const AREA_SPINS,
    area_signal = const AREA_SIGNAL,
    area_frame = const AREA_FRAME,
    area_information = const AREA_INFORMATION,
    area_fs = const AREA_FS,
    area_gs = const AREA_GS,
    area_alternate = const AREA_ALTERNATE,
    area_function = const AREA_FUNCTION,
    area_in_function = const AREA_IN_FUNCTION,
    area_interrupted = const AREA_INTERRUPTED,
    area_call = const AREA_CALL,
    area_stack = const AREA_STACK,
    stack_bytes = const AREA_STACK_BYTES,
    call_stack = const AREA_CALL + FRAME_STACK,
    call_rdi = const AREA_CALL + FRAME_GENERAL + 8 * 8,
    call_rsi = const AREA_CALL + FRAME_GENERAL + 9 * 8,
    call_rsp = const AREA_CALL + FRAME_GENERAL + 15 * 8,
    call_rip = const AREA_CALL + FRAME_GENERAL + 16 * 8,
    call_flags = const AREA_CALL + FRAME_GENERAL + 17 * 8,
    frame_rip = const FRAME_GENERAL + 16 * 8,
    frame_words = const FRAME_BYTES / 8,
    ring_head = const AREA_RING + RING_HEAD,
    ring_slots = const AREA_RING + RING_SLOTS,
    message = const MESSAGE,
    illegal = const libc::SIGILL,
    bell = const BELL,
    bell_sleeps = const BELL_SLEEPS,
    bell_rung = const BELL_RUNG,
    stopped = const STOPPED,
    runs = const RUNS,
    ends = const ENDS,
);

unsafe extern "C" {
    static comb_stub_start: u8;
    static comb_stub_threads: u8;
    static comb_stub_wait: u8;
    static comb_stub_wake: u8;
    static comb_stub_end_of_function: u8;
    static comb_stub_end: u8;
}

fn offsets() -> [usize; 3] {
    let [start, threads, end] =
        [&raw const comb_stub_start, &raw const comb_stub_threads, &raw const comb_stub_end]
            .map(|place| place.addr());
    [0, threads - start, end - start]
}

/// Where programs wait and wake, and where their signal functions end, in every space.
pub(crate) fn entries() -> [u64; 3] {
    let start = (&raw const comb_stub_start).addr();
    [&raw const comb_stub_wait, &raw const comb_stub_wake, &raw const comb_stub_end_of_function]
        .map(|place| TEXT + (place.addr() - start) as u64)
}

/// Where signals arrive, in every space.
pub(crate) fn handler() -> u64 {
    TEXT + offsets()[1] as u64
}

/// The pages of code and constants.
pub(crate) fn text() -> Vec<u8> {
    let [_, threads, end] = offsets();
    assert!(end <= PAGE, "the stub's code fits in a page");
    // SAFETY: bytes of this program that nobody writes, as many as the code has.
    let code = unsafe { std::slice::from_raw_parts(&raw const comb_stub_start, end) };
    let mut text = code.to_vec();
    text.resize(PAGE, 0xcc);
    let own = TEXT..TEXT + end as u64;
    let threads = TEXT + threads as u64..TEXT + end as u64;
    text.extend(filters::constants(own, threads));
    text.resize(2 * PAGE, 0);
    text
}
