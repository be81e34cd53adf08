//! The one place whose system calls the filter lets through.
//!
//! It is a page at the same address in every process. Were it anywhere in the program, the filter that a program inherits from
//! the one that started it could take the new program's stub for ordinary code, and stop it for ever.
#![expect(unsafe_code, reason = "executable memory, and the system call instruction")]
#![expect(clippy::cast_possible_truncation, reason = "a long is as long as a pointer here")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::CoverError;

/// Behind the state table; no loader, allocator or stack comes here by itself.
pub(super) const PAGE: usize = 0x3100_0000_0000;
pub(super) const PAGE_BYTES: usize = 4096;

/// `syscall; ret`
const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];

/// Zero until the page is there.
static ENTRY: AtomicUsize = AtomicUsize::new(0);

std::arch::global_asm!(
    ".pushsection .text.comb_memory_syscall,\"ax\",@progbits",
    ".hidden comb_memory_syscall",
    ".globl comb_memory_syscall",
    "comb_memory_syscall:",
    "syscall",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn comb_memory_syscall();
}

/// A system call that is made as it stands, also on addresses of shared memory. Gives back what the kernel does: a negative
/// number is an error's. `errno` is left alone. For calls that return once and on the same stack.
///
/// # Safety
/// As the call itself.
#[inline]
pub unsafe fn raw(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let entry = match ENTRY.load(Ordering::Acquire) {
        0 => comb_memory_syscall as *const () as usize,
        entry => entry,
    };
    let result: libc::c_long;
    // SAFETY: `entry` is `syscall; ret`, which changes what is named here and nothing else of the registers. What the call does is
    // the caller's business.
    unsafe {
        std::arch::asm!(
            "call {entry}",
            entry = in(reg) entry,
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result as isize
}

/// Makes the page, once a process. A child by `fork` has it.
pub(super) fn map() -> Result<(), CoverError> {
    if ENTRY.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    let failed = |result: isize| CoverError::Stub(PAGE, error(result));
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as usize;
    // SAFETY: a new mapping that replaces none.
    let mapped = unsafe { raw(libc::SYS_mmap, [PAGE, PAGE_BYTES, protection, flags, usize::MAX, 0]) };
    if mapped.cast_unsigned() != PAGE {
        return Err(failed(if mapped < 0 { mapped } else { -(libc::EEXIST as isize) }));
    }
    // SAFETY: the page is ours, writable, and nobody knows of it yet.
    unsafe { std::ptr::copy_nonoverlapping(CODE.as_ptr(), PAGE as *mut u8, CODE.len()) };
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as usize;
    // SAFETY: as above.
    let protected = unsafe { raw(libc::SYS_mprotect, [PAGE, PAGE_BYTES, protection, 0, 0, 0]) };
    if protected < 0 {
        // SAFETY: as above.
        unsafe { raw(libc::SYS_munmap, [PAGE, PAGE_BYTES, 0, 0, 0, 0]) };
        return Err(failed(protected));
    }
    ENTRY.store(PAGE, Ordering::Release);
    Ok(())
}

/// What a negative result says.
pub(super) fn error(result: isize) -> io::Error {
    io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL))
}

/// Whether an address is in the page, which is not code that the filter covers.
pub(super) fn is_at(address: usize) -> bool {
    (PAGE..PAGE + PAGE_BYTES).contains(&address)
}
