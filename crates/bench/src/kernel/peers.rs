//! What else stops programs, or serves them: the host itself, and ptrace.
#![expect(unsafe_code, reason = "another process is traced")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{Outcome, rounds};

/// On which this process may run.
pub(super) fn processors() -> Outcome<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// This thread, and what it starts, runs there and nowhere else.
pub(super) fn stay_on(processors: &[usize]) -> Outcome<()> {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&processor| set.set(processor));
    Ok(sched_setaffinity(None, &set)?)
}

/// Microseconds for a word to get from one processor to the other: half of a round trip of two threads.
pub(super) fn bare_line(processors: &[usize]) -> Outcome<Option<f64>> {
    const TIMES: u64 = 100_000;
    #[repr(align(128))]
    struct Line(AtomicU64);
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let turn = |own: usize| {
        stay_on(&processors[own..=own]).map_err(|error| error.to_string())?;
        let since = Instant::now();
        for time in 1..=TIMES {
            if own == 0 {
                lines[0].0.store(time, Ordering::Release);
            }
            while lines[1 - own].0.load(Ordering::Acquire) < time {
                std::hint::spin_loop();
            }
            if own == 1 {
                lines[1].0.store(time, Ordering::Release);
            }
        }
        Ok::<f64, String>(since.elapsed().as_secs_f64() * 1e6 / (2.0 * 100_000.0))
    };
    let took = std::thread::scope(|scope| {
        let other = scope.spawn(|| turn(1));
        let own = scope.spawn(|| turn(0)).join();
        other.join().ok();
        own
    });
    Ok(took.ok().and_then(Result::ok))
}

/// Microseconds for a call of the host.
pub(super) fn native_calls(times: u32) -> Option<f64> {
    let since = Instant::now();
    for _ in 0..times {
        // SAFETY: asks for a number.
        std::hint::black_box(unsafe { libc::syscall(libc::SYS_getpid) });
    }
    Some(since.elapsed().as_secs_f64() * 1e6 / f64::from(times))
}

/// Microseconds for the host's own fault on a page of shared memory that has its frame.
pub(super) fn native_faults(count: usize) -> Outcome<Option<f64>> {
    const PAGES: usize = 4096;
    let file = rustix::fs::memfd_create("comb-bench-faults", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, (PAGES * 4096) as u64)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (PAGES * 4096) as u64)?;
    rounds(count, || {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: new addresses.
        let start =
            unsafe { mmap(std::ptr::null_mut(), PAGES * 4096, protection, flags, &file, 0) }?.cast::<u8>();
        let since = Instant::now();
        for page in 0..PAGES {
            // SAFETY: within the mapping.
            unsafe { start.add(page * 4096).write_volatile(1) };
        }
        let took = since.elapsed().as_secs_f64() * 1e6 / 4096.0;
        // SAFETY: mapped above, and nobody has it.
        unsafe { munmap(start.cast(), PAGES * 4096) }?;
        Ok(took)
    })
}

/// Microseconds for a call of a process whose calls are all emulated by way of ptrace. Nothing, where that is not permitted.
pub(super) fn ptrace_calls(times: u32, count: usize) -> Outcome<Option<f64>> {
    // SAFETY: the child makes calls and nothing else until it is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            loop {
                libc::syscall(libc::SYS_getpid);
            }
        }
    }
    if child < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let stop = || {
        let mut status = 0;
        // SAFETY: waits for our own child.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        waited == child && libc::WIFSTOPPED(status)
    };
    let next = || {
        // SAFETY: our own child, which is stopped.
        let goes_on = unsafe { libc::ptrace(libc::PTRACE_SYSEMU, child, 0, 0) } == 0;
        let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        let is_stopped = goes_on && stop();
        // SAFETY: as above; the registers are only written and handed back.
        let is_answered = is_stopped
            && unsafe {
                libc::ptrace(libc::PTRACE_GETREGS, child, 0, registers.as_mut_ptr()) == 0 && {
                    (*registers.as_mut_ptr()).rax = 1;
                    libc::ptrace(libc::PTRACE_SETREGS, child, 0, registers.as_ptr()) == 0
                }
            };
        if is_answered { Ok(()) } else { Err("ptrace does not go on".into()) }
    };
    let result = if stop() { rounds(count, || super::each(times, next)) } else { Ok(None) };
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    Ok(result.unwrap_or(None))
}
