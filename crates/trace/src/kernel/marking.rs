//! Telling the recorder in the kernel which threads to look at. Their children are looked at as well, from their first instruction.
#![expect(
    unsafe_code,
    reason = "a system call that no crate wraps, and one that is made between fork and exec"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kernel's number for setting an element of a map.
const UPDATE_ELEMENT: libc::c_long = 2;

/// What the recorder keeps of a thread, `struct thread` in `bpf/record.bpf.c`, is no larger than this, and zero at first.
pub(super) const MOST_THREAD_BYTES: usize = 512;

/// How the kernel wants to be told.
#[repr(C)]
struct Update {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Marks a thread by its number.
pub(super) fn mark(marks: RawFd, thread: u32) -> io::Result<()> {
    // Threads have descriptors of their own from 6.9 on; before, only the first one of a process has, and that is enough for most.
    let open = |flags: libc::c_uint| {
        // SAFETY: no memory is passed.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, thread, flags) };
        i32::try_from(descriptor)
            .ok()
            .filter(|&descriptor| descriptor >= 0)
            .ok_or_else(io::Error::last_os_error)
    };
    let descriptor = match open(0) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
            open(libc::O_EXCL as libc::c_uint)
        }
        result => result,
    }?;
    // SAFETY: it was just opened, and nobody else has it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    set(marks, descriptor.as_raw_fd())
}

/// Has the program that is started mark itself, when it is a process of its own and nothing of it has run.
pub(super) fn mark_before_execution(command: &mut Command, marks: RawFd) {
    // SAFETY: between fork and exec it makes system calls, and neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            let descriptor = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
            let Ok(descriptor @ 0..) = i32::try_from(descriptor) else {
                return Err(io::Error::last_os_error());
            };
            let result = set(marks, descriptor);
            libc::close(descriptor);
            result
        });
    }
}

fn set(marks: RawFd, thread: RawFd) -> io::Result<()> {
    let value = [0_u64; MOST_THREAD_BYTES / 8];
    let update = Update {
        map: marks.cast_unsigned(),
        unused: 0,
        key: (&raw const thread) as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    // SAFETY: key and value are at least as long as the map says, and live until the call returns.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, UPDATE_ELEMENT, &raw const update, size_of::<Update>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
