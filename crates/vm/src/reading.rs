//! Files of the host's that a machine's guest may read: what is below one directory. What it asks for is an allegation, of whatever length and name.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use comb_guest::wire::MOST_FILE_BYTES;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// What is in a file from there on, as much as is said at once; nothing at its end. Or the number of an error.
pub(crate) fn read(directory: Option<&Path>, path: &[u8], at: u64) -> Result<Vec<u8>, i32> {
    let directory = directory.ok_or(libc::ENOENT)?;
    look(directory, path, at).map_err(|error| error.raw_os_error())
}

fn look(directory: &Path, path: &[u8], at: u64) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let directory = rustix::fs::open(directory, flags | OFlags::DIRECTORY | OFlags::PATH, Mode::empty())?;
    // Whatever links there are, the file is below.
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(&directory, path, flags, Mode::empty(), below)?);
    let found = file.metadata().map_err(|_| Errno::IO)?;
    if !found.is_file() {
        return Err(if found.is_dir() { Errno::ISDIR } else { Errno::ACCESS });
    }
    let mut bytes = vec![0; MOST_FILE_BYTES];
    let error = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    let read = file.read_at(&mut bytes, at).map_err(error)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_below_is_read_and_nothing_else() {
        let directory = std::env::temp_dir().join(format!("comb-vm-reading-{}", std::process::id()));
        let shown = directory.join("shown");
        std::fs::create_dir_all(shown.join("more")).unwrap();
        std::fs::write(directory.join("secret"), "no").unwrap();
        let long: Vec<u8> = (0..1_u32 << 15).flat_map(u32::to_le_bytes).collect();
        std::fs::write(shown.join("more/long"), &long).unwrap();
        symlink("more/long", shown.join("link")).unwrap();
        symlink("../secret", shown.join("out")).unwrap();
        symlink("/etc/passwd", shown.join("passwords")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, shown.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .unwrap();
        let of = |path: &[u8], at| read(Some(&shown), path, at);
        for path in [&b"more/long"[..], b"link"] {
            assert_eq!(of(path, 0).unwrap(), long[..MOST_FILE_BYTES]);
            assert_eq!(of(path, MOST_FILE_BYTES as u64).unwrap(), long[MOST_FILE_BYTES..]);
            assert!(of(path, long.len() as u64).unwrap().is_empty());
        }
        for path in [&b"../secret"[..], b"out", b"passwords", b"/etc/passwd", b"more/../../secret"] {
            assert_eq!(of(path, 0), Err(libc::EXDEV), "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(of(b"none", 0), Err(libc::ENOENT));
        assert_eq!(of(b"more", 0), Err(libc::EISDIR));
        assert_eq!(of(b"pipe", 0), Err(libc::EACCES));
        assert_eq!(of(b"a\0b", 0), Err(libc::EINVAL));
        assert_eq!(of(b"link", u64::MAX), Err(libc::EINVAL));
        assert_eq!(read(None, b"link", 0), Err(libc::ENOENT));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
