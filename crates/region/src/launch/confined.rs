//! What runs in a cell may signal and debug its own task, and no other process: neither another cell's supervisor nor the home of a region that it
//! uses, whoever its user is.
//!
//! By Landlock, which binds a thread and all processes that it starts from then on, root's too. A user of each cell's own would do the same for
//! root alone, and take a program's files from it.
#![expect(unsafe_code, reason = "system calls that no library has")]

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use comb_types::mechanism::Mechanism;

/// In the kernel's uapi/linux/landlock.h.
const VERSION: u32 = 1 << 0;
const SCOPE_SIGNAL: u64 = 1 << 1;
/// The first that knows scopes.
const FIRST_VERSION: libc::c_long = 6;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct Ruleset {
    handled_files: u64,
    handled_network: u64,
    scoped: u64,
}

/// Whether this kernel can do so, and was not told not to.
pub fn can_confine() -> bool {
    // SAFETY: asks for a version, and reads nothing.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Ruleset>(), 0_usize, VERSION)
    };
    version >= FIRST_VERSION && !Mechanism::Landlock.is_switched_off()
}

/// Confines the calling thread, and all processes that it starts, to each other. Without the mechanism nothing changes.
pub(super) fn confine() -> Result<()> {
    if !can_confine() {
        return Ok(());
    }
    let ruleset = Ruleset { handled_files: 0, handled_network: 0, scoped: SCOPE_SIGNAL };
    // SAFETY: the kernel reads the structure, of that length, and opens a descriptor.
    let opened = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const ruleset, size_of::<Ruleset>(), 0_u32)
    };
    let number = i32::try_from(opened).ok().filter(|number| *number >= 0).ok_or_else(Error::last_os_error)?;
    // SAFETY: just opened, and nobody else's.
    let ruleset = unsafe { OwnedFd::from_raw_fd(number) };
    // SAFETY: both change what this thread may do, and no memory.
    let restrict = || unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    if restrict() == 0 {
        return Ok(());
    }
    // Whoever is not root has to give up first that a program it starts could be.
    rustix::thread::set_no_new_privs(true)?;
    match restrict() {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, test_kill_process};
    use std::process::{Child, Command};

    fn number(child: &Child) -> Pid {
        Pid::from_child(child)
    }

    /// By a process that a confined thread has started.
    fn says(script: &str) -> String {
        String::from_utf8(Command::new("sh").args(["-c", script]).output().unwrap().stdout).unwrap()
    }

    #[test]
    fn who_is_confined_neither_signals_nor_debugs_who_is_not_and_is_signalled_by_all() {
        if !can_confine() {
            return println!("skipped: no Landlock that knows scopes");
        }
        let mut outside = Command::new("sleep").arg("1000").spawn().unwrap();
        let outsider = outside.id();
        let confined = std::thread::spawn(move || {
            confine().unwrap();
            // One within: it is there for whoever confines.
            let inside = Command::new("sleep").arg("1000").spawn().unwrap();
            let tries = format!(
                "kill -9 {outsider} || echo signal; true < /proc/{outsider}/mem || echo memory; kill {} && echo within",
                inside.id()
            );
            let said = says(&tries);
            let unscoped = Command::new("sleep").arg("1000").spawn().unwrap();
            (said, inside, unscoped)
        });
        let (said, mut inside, mut other) = confined.join().unwrap();
        assert_eq!(said, "signal\nmemory\nwithin\n");
        assert!(!inside.wait().unwrap().success());
        assert!(outside.try_wait().unwrap().is_none(), "it lives");
        // From outside all is as ever.
        assert_eq!(test_kill_process(number(&other)), Ok(()));
        for child in [&mut other, &mut outside] {
            rustix::process::kill_process(number(child), Signal::KILL).unwrap();
            assert!(!child.wait().unwrap().success());
        }
    }
}
