//! A process beside the launcher that cleans up where the launcher is killed and cannot.
//!
//! The kernel kills the components then, but not what these have started: a shell is killed, and the program that it runs stays.
//! The guard does nothing until its pipe ends, which it does however the launcher ends; one that ends well says so before.
#![expect(unsafe_code, reason = "a process that goes on without a program of its own")]

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};

use super::MOST_COMPONENTS;

/// The launcher ends by itself. A directory of that name may soon be somebody else's.
const ALL_IS_WELL: i32 = 0;
/// With a number that a component says itself, before its program begins: we may be killed before we can say it.
const BEGINS: i32 = 1 << 30;
/// Its program did not begin.
const DID_NOT_BEGIN: i32 = i32::MIN;

/// What a component says of itself on [`Guard::words`]. A system call, and nothing else.
pub(super) fn announce(words: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let word = rustix::process::getpid().as_raw_nonzero().get() | BEGINS;
    rustix::io::write(words, &word.to_ne_bytes()).map(drop)
}

/// The guard of one crew. Dropped, it ends and touches nothing: whoever drops it has cleaned up, or is about to.
#[derive(Debug)]
pub(super) struct Guard {
    /// What it is told: a group's number to watch it, the number below zero to forget it, or [`ALL_IS_WELL`]. `None` at its end.
    words: Option<OwnedFd>,
    process: Pid,
}

impl Guard {
    /// Starts one. If we are killed it removes these files, then that directory, and these with all that is in them.
    pub(super) fn start(
        files: &[std::path::PathBuf],
        directory: &Path,
        trees: &[&Path],
    ) -> std::io::Result<Self> {
        let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(std::io::Error::other);
        let files = files.iter().map(|file| name(file)).collect::<Result<Vec<_>, _>>()?;
        let directory = name(directory)?;
        let trees = trees.iter().map(|tree| name(tree)).collect::<Result<Vec<_>, _>>()?;
        let removal = Removal::of(&trees);
        let (ears, words) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child has this thread alone, and others may have held locks: `guard` takes none and allocates nothing. It
        // never returns, so nothing that this process owns is dropped twice.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()),
            // SAFETY: as above; the descriptor is open, and the child's alone.
            0 => unsafe { guard(ears.as_raw_fd(), &files, &directory, removal.as_ref()) },
            number => {
                let process = Pid::from_raw(number).expect("a child has a number");
                Ok(Self { words: Some(words), process })
            }
        }
    }

    /// Where a component says that it begins.
    pub(super) fn words(&self) -> Option<BorrowedFd<'_>> {
        self.words.as_ref().map(AsFd::as_fd)
    }

    /// The component that began last did not come to its program.
    pub(super) fn give_up(&self) {
        self.tell(DID_NOT_BEGIN);
    }

    /// From now on this group ends with us.
    pub(super) fn watch(&self, group: u32) {
        self.tell(group.cast_signed());
    }

    /// The group is gone, and its number may be given to others.
    pub(super) fn forget(&self, group: u32) {
        self.tell(-group.cast_signed());
    }

    fn tell(&self, word: i32) {
        // Four bytes are not torn. One that was killed is missed only when we are killed, too.
        let _ = self.words.as_ref().map(|words| rustix::io::write(words, &word.to_ne_bytes()));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.tell(ALL_IS_WELL);
        self.words = None;
        let _ = rustix::process::waitpid(Some(self.process), WaitOptions::empty());
    }
}

/// The words of a command that removes directories. They are put together before the guard is made, which allocates nothing.
struct Removal<'a> {
    words: Vec<*const libc::c_char>,
    _trees: std::marker::PhantomData<&'a CString>,
}

impl<'a> Removal<'a> {
    const PROGRAMS: [&'static CStr; 2] = [c"/bin/rm", c"/usr/bin/rm"];

    fn of(trees: &'a [CString]) -> Option<Self> {
        let words = [c"rm", c"-rf", c"--"].into_iter().chain(trees.iter().map(CString::as_c_str));
        let words = words.map(CStr::as_ptr).chain([std::ptr::null()]).collect();
        (!trees.is_empty()).then_some(Self { words, _trees: std::marker::PhantomData })
    }
}

/// The guard's life.
///
/// # Safety
///
/// Only in a process that was forked for it. `ears` is open.
unsafe fn guard(ears: i32, files: &[CString], directory: &CStr, removal: Option<&Removal<'_>>) -> ! {
    let mut groups = [0_i32; MOST_COMPONENTS as usize];
    let mut begins = 0;
    // SAFETY: system calls that are allowed after a fork, with memory of this stack and strings that the child has a copy of.
    unsafe {
        // What ends the launcher from a terminal must not end this one.
        libc::setpgid(0, 0);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"comb-guard".as_ptr());
        // Nothing else stays open because of us: not the other end of our own pipe, nor anybody's output.
        libc::dup2(ears, 0);
        libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32);
        loop {
            let mut word = 0_i32;
            let bytes = libc::read(0, (&raw mut word).cast(), size_of::<i32>());
            if bytes < 0 && *libc::__errno_location() == libc::EINTR {
                continue;
            }
            if bytes != 4 {
                break;
            }
            if word == ALL_IS_WELL {
                libc::_exit(0);
            }
            if word == DID_NOT_BEGIN || word >= BEGINS {
                begins = if word == DID_NOT_BEGIN { 0 } else { word - BEGINS };
                continue;
            }
            // The one that begins is that one, or has been forgotten.
            begins = 0;
            let (from, to) = if word > 0 { (0, word) } else { (-word, 0) };
            if let Some(place) = groups.iter_mut().find(|place| **place == from) {
                *place = to;
            }
        }
        for group in groups.into_iter().chain([begins]).filter(|group| *group > 1) {
            libc::kill(-group, libc::SIGKILL);
        }
        for file in files {
            libc::unlink(file.as_ptr());
        }
        libc::rmdir(directory.as_ptr());
        for program in removal.iter().flat_map(|_| Removal::PROGRAMS) {
            let words = removal.map_or(std::ptr::null(), |removal| removal.words.as_ptr());
            libc::execve(program.as_ptr(), words, [std::ptr::null()].as_ptr());
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn what_is_watched_ends_with_a_launcher_that_says_nothing_and_what_is_forgotten_does_not() {
        let directory = std::env::temp_dir().join(format!("comb-guard-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("file");
        std::fs::write(&file, "").unwrap();
        let tree = std::env::temp_dir().join(format!("comb-guard-tree-{}", std::process::id()));
        std::fs::create_dir_all(tree.join("deep")).unwrap();
        let start = || Guard::start(std::slice::from_ref(&file), &directory, &[&tree]).unwrap();
        let sleep = || Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let (mut watched, forgotten) = (sleep(), sleep());

        let dismissed = start();
        dismissed.watch(watched.id());
        drop(dismissed);
        assert!(tree.exists() && file.exists() && watched.try_wait().unwrap().is_none(), "all is well");

        let mut guard = start();
        guard.watch(watched.id());
        guard.watch(forgotten.id());
        guard.forget(forgotten.id());
        let (mut begins, gave_up) = (sleep(), sleep());
        guard.tell(gave_up.id().cast_signed() | BEGINS);
        guard.give_up();
        guard.tell(begins.id().cast_signed() | BEGINS);
        // As a death does.
        guard.words = None;
        drop(guard);
        assert!(!watched.wait().unwrap().success());
        assert!(!begins.wait().unwrap().success());
        assert!(!directory.exists() && !tree.exists());
        for mut spared in [forgotten, gave_up] {
            assert!(spared.try_wait().unwrap().is_none());
            spared.kill().unwrap();
            spared.wait().unwrap();
        }
    }
}
