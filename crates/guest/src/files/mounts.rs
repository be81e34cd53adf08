//! What is mounted where.

#![expect(unsafe_code, reason = "file systems are mounted by calls that have no safe form here")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What may be done with a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flags {
    ReadOnly,
    Writable,
}

impl Flags {
    fn bits(self) -> libc::c_ulong {
        let never = libc::MS_NOSUID | libc::MS_NODEV;
        match self {
            Self::ReadOnly => never | libc::MS_RDONLY,
            Self::Writable => never,
        }
    }
}

fn mount(from: &Path, to: &Path, kind: &str, flags: libc::c_ulong, options: &str) -> io::Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (from, to) = (text(from.as_os_str().as_bytes())?, text(to.as_os_str().as_bytes())?);
    let (kind, options) = (text(kind.as_bytes())?, text(options.as_bytes())?);
    // SAFETY: it reads four texts that end in a zero.
    let done =
        unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn read_only(device: &Path, place: &Path, kind: &str, options: &str) -> io::Result<()> {
    mount(device, place, kind, Flags::ReadOnly.bits(), options)
}

pub(super) fn writable(name: &str, place: &Path, kind: &str, options: &str) -> io::Result<()> {
    mount(Path::new(name), place, kind, Flags::Writable.bits(), options)
}

/// Changes what may be done with all of a file system; one that somebody writes to does not become read-only.
pub(super) fn change(place: &Path, flags: Flags) -> io::Result<()> {
    mount(Path::new("none"), place, "", libc::MS_REMOUNT | flags.bits(), "")
}

fn unmount(place: &Path, flags: libc::c_int) -> io::Result<()> {
    let place = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: it reads a text that ends in a zero.
    if unsafe { libc::umount2(place.as_ptr(), flags) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// If nobody has anything of it open.
pub(super) fn leave(place: &Path) -> io::Result<()> {
    unmount(place, libc::UMOUNT_NOFOLLOW)
}

/// Whoever has something of it open keeps it.
pub(super) fn leave_lazily(place: &Path) -> io::Result<()> {
    unmount(place, libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW)
}

/// Where something is mounted.
pub(super) fn all() -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mounts")?;
    Ok(text.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from).collect())
}
