//! Puts everything in place: the stub, the handler, then the filter, which wants both.
#![expect(unsafe_code, reason = "prctl and seccomp")]

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use super::ranges::{self, Code};
use super::{CoverError, Coverage, SHARED, filter, signal, stub};

/// Code that filters of this process look at. A child by `fork` has the same filters and the same code.
static COVERED: Mutex<Vec<Code>> = Mutex::new(Vec::new());

pub(super) fn arm() -> Result<Coverage, CoverError> {
    // Whoever panicked in here changed nothing.
    let mut covered = COVERED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let is_first = covered.is_empty();
    if is_first {
        if has_ring() {
            return Err(CoverError::IoUring);
        }
        signal::install().map_err(CoverError::Signal)?;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(CoverError::Mappings)?;
    let code = ranges::covered(&maps, is_placed_by_chance());
    stub::map()?;
    let is_covered =
        |new: &Code| covered.iter().any(|old| old.is_own == new.is_own && old.contains_code_of(new));
    let new: Vec<Code> = code.into_iter().filter(|code| !is_covered(code)).collect();
    if !new.is_empty() {
        let program = filter::program(&SHARED, &new);
        // Last of all, so that no thread comes to be in between that nobody saw, or hardly any.
        if let Some(thread) = thread_that_blocks_signals() {
            return Err(CoverError::Blocked(thread));
        }
        install(&program)?;
        covered.extend(new);
    }
    Ok(Coverage { vectored: covered.iter().all(|code| code.is_own) })
}

/// For all threads at once.
fn install(program: &[libc::sock_filter]) -> Result<(), CoverError> {
    let failed = || CoverError::Filter(io::Error::last_os_error());
    // SAFETY: changes what later `execve`s may gain, and nothing else.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_usize, 0_usize, 0_usize, 0_usize) } != 0 {
        return Err(failed());
    }
    let length =
        u16::try_from(program.len()).map_err(|_| CoverError::Filter(io::ErrorKind::OutOfMemory.into()))?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // Without SPEC_ALLOW some kernels slow down all that the process does, for the sake of filters that hide secrets.
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the program is `len` instructions long, and the kernel checks it.
    match unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    } {
        0 => Ok(()),
        thread if thread > 0 => Err(CoverError::ThreadDiffers(thread)),
        _ => Err(failed()),
    }
}

/// Whether another program's code lies elsewhere.
fn is_placed_by_chance() -> bool {
    // SAFETY: asks, and changes nothing.
    let personality = unsafe { libc::personality(0xffff_ffff) };
    let is_off =
        std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").is_ok_and(|text| text.trim() == "0");
    personality & libc::ADDR_NO_RANDOMIZE == 0 && !is_off
}

/// A thread that would be killed where it is to be served.
fn thread_that_blocks_signals() -> Option<String> {
    // A new thread blocks all signals until it runs for the first time; on a busy machine that takes long.
    const LOOKS: usize = 1000;
    const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
    for _ in 1..LOOKS {
        blocking_thread()?;
        std::thread::sleep(BETWEEN_LOOKS);
    }
    blocking_thread()
}

fn blocking_thread() -> Option<String> {
    let blocks = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
        (mask & signal::KEPT != 0).then_some(())
    };
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let mut blocking = threads.filter_map(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        blocks(&status)?;
        Some(thread.file_name().to_string_lossy().into_owned())
    });
    blocking.next()
}

fn has_ring() -> bool {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else {
        return false;
    };
    let targets = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.into_iter().any(|target| target.as_os_str() == "anon_inode:[io_uring]")
}
