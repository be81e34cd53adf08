//! How a path that a program gives is found: below the root that the user chose, never outside of it, and beside it the trees that
//! the emulator makes up itself.
//!
//! The host follows links and `..` with the root as its limit (`openat2`). What it finds on a file system that controls the host
//! or the emulator, such as `/proc`, is not there for a program.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{EACCES, EINVAL, ELOOP, ENOENT, ENOTDIR, Errno};
use crate::host;
use crate::machine::Machine;
use crate::unix::{Caller, Unix};
use crate::virtual_files::Node;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// As many links as Linux follows in one path.
const MOST_LINKS: usize = 40;
/// What a path may be long.
pub(crate) const MOST_PATH_BYTES: usize = libc::PATH_MAX as usize - 1;

/// The magic numbers of file systems that are no place for files: proc, sysfs, debugfs, tracefs, securityfs, both cgroups, bpf,
/// devpts, configfs, efivarfs, pstore, binfmt_misc, nsfs.
const FORBIDDEN_FILE_SYSTEMS: [i64; 14] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0xcafe_4a11,
    0x1cd1,
    0x6265_6570,
    0xde5e_81e4,
    0x6165_676c,
    0x4249_4e4d,
    0x6e73_6673,
];

/// The directories of the host that programs see.
pub(crate) struct Mounts {
    root: OwnedFd,
    root_name: Vec<u8>,
    /// What programs see as `/dev/shm`, of this emulator alone.
    shared: Option<(OwnedFd, Vec<u8>)>,
}

/// Where a path leads.
pub(crate) enum Located {
    /// Into a directory of the host; the path is relative to it.
    Host { root: RawFd, path: Vec<u8> },
    /// To something that the emulator makes up, with its path from the root.
    Virtual { node: Node, path: Vec<u8> },
}

/// The parts of a path with `.` and `..` taken as text. Good only to see whether a path leads to a tree of the emulator's own.
fn parts(path: &[u8]) -> Vec<&[u8]> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts
}

/// A path from the root, out of its parts.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut path = Vec::new();
    for part in parts {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}

impl Mounts {
    pub(crate) fn new(root: &[u8]) -> Result<Mounts, Errno> {
        let root = host::open_directory(root)?;
        let mut root_name = host::path_of(root.as_raw_fd())?;
        if root_name == b"/" {
            root_name.clear();
        }
        Ok(Mounts { root, root_name, shared: host::make_temporary_directory().ok() })
    }

    /// Makes a file below `/dev/shm`, of this length.
    pub(crate) fn make_shared(&self, name: &[u8], bytes: u64) -> Result<OwnedFd, Errno> {
        let (directory, _) = self.shared.as_ref().ok_or(ENOENT)?;
        if name.is_empty() || name.contains(&b'/') || parts(name).is_empty() {
            return Err(EINVAL);
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let file = host::open_in_root(directory.as_raw_fd(), name, flags, 0o600)?;
        host::truncate_open(file.as_raw_fd(), i64::try_from(bytes).map_err(|_| EINVAL)?)?;
        Ok(file)
    }

    /// What programs call a directory of the host.
    fn name_of(&self, descriptor: RawFd) -> Result<Vec<u8>, Errno> {
        let name = host::path_of(descriptor)?;
        if let Some((_, shared)) = &self.shared
            && let Some(rest) = name.strip_prefix(shared.as_slice())
            && (rest.is_empty() || rest[0] == b'/')
        {
            return Ok([b"/dev/shm", rest].concat());
        }
        match name.strip_prefix(self.root_name.as_slice()) {
            Some(b"") => Ok(b"/".to_vec()),
            Some(rest) if rest[0] == b'/' => Ok(rest.to_vec()),
            _ => Err(ENOENT),
        }
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        use std::os::unix::ffi::OsStrExt;
        if let Some((_, name)) = &self.shared {
            // It may be gone already; nobody else looks for it.
            let _ = std::fs::remove_dir_all(std::ffi::OsStr::from_bytes(name));
        }
    }
}

/// Refuses what lies on a file system of the host's that is no place for files.
pub(crate) fn check_file_system(descriptor: RawFd) -> Result<(), Errno> {
    let kind = host::statfs(descriptor)?.f_type;
    if FORBIDDEN_FILE_SYSTEMS.contains(&kind) { Err(ENOENT) } else { Ok(()) }
}

impl<M: Machine> Unix<M> {
    /// A path out of the memory of a program.
    pub(crate) fn path_argument(&mut self, who: Caller, at: u64) -> Result<Vec<u8>, Errno> {
        self.memory.read_string(who.space, at, MOST_PATH_BYTES)
    }

    /// The name of a directory as programs see it.
    pub(crate) fn directory_name(&self, file: &OpenFile) -> Result<Vec<u8>, Errno> {
        match &file.kind {
            Kind::Directory { host } | Kind::Path { host } => self.mounts.name_of(host.as_raw_fd()),
            Kind::Listing(listing) => Ok(listing.path.clone()),
            _ => Err(ENOTDIR),
        }
    }

    /// What programs call the file behind a descriptor of the host.
    pub(crate) fn host_name(&self, descriptor: RawFd) -> Result<Vec<u8>, Errno> {
        self.mounts.name_of(descriptor)
    }

    /// The working directory's name.
    pub(crate) fn working_directory(&self, who: Caller) -> Result<Vec<u8>, Errno> {
        let directory = Rc::clone(&self.process(who.process).place.borrow().directory);
        let name = self.directory_name(&directory)?;
        if name.ends_with(b" (deleted)") { Err(ENOENT) } else { Ok(name) }
    }

    /// A path from the root for one that may be relative to a directory.
    fn absolute(&self, who: Caller, directory: i32, path: &[u8]) -> Result<Vec<u8>, Errno> {
        if path.is_empty() {
            return Err(ENOENT);
        }
        if path[0] == b'/' {
            return Ok(path.to_vec());
        }
        let mut base = if directory == libc::AT_FDCWD {
            self.working_directory(who)?
        } else {
            let file = self.file(who, directory)?;
            self.directory_name(&file)?
        };
        base.push(b'/');
        base.extend_from_slice(path);
        Ok(base)
    }

    /// Where a path leads. `follow` says whether the last part may be a link that is followed, of those that the emulator makes up.
    pub(crate) fn locate(
        &self,
        who: Caller,
        directory: i32,
        path: &[u8],
        follow: bool,
    ) -> Result<Located, Errno> {
        let mut path = self.absolute(who, directory, path)?;
        for _ in 0..MOST_LINKS {
            let parts = parts(&path);
            match parts.as_slice() {
                [b"dev", b"shm", rest @ ..] if self.mounts.shared.is_some() => {
                    let root = self.mounts.shared.as_ref().map_or(-1, |(root, _)| root.as_raw_fd());
                    return Ok(Located::Host { root, path: joined(rest) });
                }
                [b"dev" | b"proc", ..] => match self.node(who, &parts)? {
                    (Node::Link(target), rest) if follow || !rest.is_empty() => {
                        let mut next = target;
                        for part in rest {
                            next.push(b'/');
                            next.extend_from_slice(part);
                        }
                        path = next;
                    }
                    (node, []) => return Ok(Located::Virtual { node, path: joined(&parts) }),
                    _ => return Err(ENOTDIR),
                },
                _ => return Ok(Located::Host { root: self.mounts.root.as_raw_fd(), path }),
            }
        }
        Err(ELOOP)
    }

    /// A hold on what a path leads to in the host's tree.
    pub(crate) fn hold(&self, root: RawFd, path: &[u8], follow: bool) -> Result<OwnedFd, Errno> {
        let flags = libc::O_PATH | if follow { 0 } else { libc::O_NOFOLLOW };
        let held = host::open_in_root(root, path, flags, 0)?;
        check_file_system(held.as_raw_fd())?;
        Ok(held)
    }

    /// The directory in which the last part of a path is or is to be, and that part.
    pub(crate) fn parent(
        &self,
        who: Caller,
        directory: i32,
        path: &[u8],
    ) -> Result<(OwnedFd, Vec<u8>), Errno> {
        let (root, path) = match self.locate(who, directory, path, false)? {
            Located::Host { root, path } => (root, path),
            Located::Virtual { .. } => return Err(EACCES),
        };
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let mut name = path[start..end].to_vec();
        if name.is_empty() {
            return Err(EINVAL);
        }
        let parent = if start == 0 { b"/".as_slice() } else { &path[..start] };
        let held = host::open_in_root(root, parent, libc::O_PATH | libc::O_DIRECTORY, 0)?;
        check_file_system(held.as_raw_fd())?;
        if end < path.len() {
            // That it is to be a directory is for the host to say.
            name.push(b'/');
        }
        Ok((held, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_taken_as_text() {
        assert_eq!(joined(&parts(b"/a/./b//../c/")), b"/a/c".to_vec());
        assert_eq!(joined(&parts(b"/../../proc/self")), b"/proc/self".to_vec());
        assert_eq!(joined(&parts(b"/..")), b"/".to_vec());
    }
}
