//! Processes that a machine needs, which end with whoever has started them.

#![expect(unsafe_code, reason = "what is said between fork and exec is said by calls that have no safe form")]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Has a program be in a cgroup from its beginning, if it is to be in one, hear no key of a terminal's, and end with the thread that starts it.
pub(crate) fn bind(command: &mut Command, cgroup: Option<&Path>) -> io::Result<()> {
    let members = cgroup.map(|cgroup| File::options().write(true).open(cgroup.join("cgroup.procs")));
    let members = members.transpose()?;
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec it makes system calls alone.
    unsafe {
        command.pre_exec(move || {
            libc::setpgid(0, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // A guest's memory is nobody's to keep.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            if libc::getppid() != parent.as_raw_nonzero().get() {
                return Err(ErrorKind::Interrupted.into());
            }
            if let Some(members) = &members {
                let zero = b"0";
                if libc::write(members.as_raw_fd(), zero.as_ptr().cast(), 1) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Ok(())
}
