//! Which file it was.

use foldhash::HashMap;

use crate::event::Identity;
use crate::file_type::FileType;
use crate::trace_file::Mount;

/// The number of a file in a history: from 0, without gaps. A file that is deleted and made anew is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// What is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct File {
    /// Where it is, or was last; empty if nobody said.
    pub path: Vec<u8>,
    /// Which it is, if somebody opened it.
    pub identity: Option<Identity>,
    /// Its type and permissions, when last seen.
    pub mode: u32,
    /// By how many names it is known.
    names: u32,
}

/// All of them.
#[derive(Default)]
pub struct Files {
    files: Vec<File>,
    by_identity: HashMap<Identity, FileId>,
    by_path: HashMap<Box<[u8]>, FileId>,
    systems: HashMap<u32, String>,
}

/// A path of its parts, which come innermost first, each ended by a zero.
pub(super) fn path_of_parts(parts: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parts.len() + 1);
    let parts: Vec<&[u8]> = parts.split(|&byte| byte == 0).filter(|part| !part.is_empty()).collect();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

/// A path without `.`, `..` and doubled slashes; as text alone, for links are not known here.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut whole = Vec::with_capacity(path.len());
    for part in parts {
        whole.push(b'/');
        whole.extend_from_slice(part);
    }
    if whole.is_empty() {
        whole.push(b'/');
    }
    whole
}

impl Files {
    /// All files, in the order of their numbers.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// What kind of file it is.
    pub fn file_type(&self, id: FileId) -> FileType {
        let file = &self.files[id.0 as usize];
        FileType::of(&file.path, self.system(id), file.mode)
    }

    /// The type of file system that it is on, if that is known.
    pub fn system(&self, id: FileId) -> &str {
        let device = self.files[id.0 as usize].identity.map(|identity| identity.device);
        device.and_then(|device| self.systems.get(&device)).map_or("", String::as_str)
    }

    pub(super) fn know_mounts(&mut self, mounts: &[Mount]) {
        self.systems.extend(mounts.iter().map(|mount| (mount.device, mount.kind.clone())));
    }

    fn add(&mut self, path: Vec<u8>, identity: Option<Identity>, mode: u32) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).expect("fewer files than numbers"));
        if let Some(identity) = identity {
            self.by_identity.insert(identity, id);
        }
        let names = u32::from(!path.is_empty());
        if names > 0 {
            self.by_path.insert(path.as_slice().into(), id);
        }
        self.files.push(File { path, identity, mode, names });
        id
    }

    /// Somebody says what a file is called.
    pub(super) fn name(&mut self, identity: Identity, path: Vec<u8>, mode: u32) {
        if let Some(&id) = self.by_identity.get(&identity) {
            let file = &mut self.files[id.0 as usize];
            if file.path.is_empty() {
                file.path.clone_from(&path);
            }
            if self.by_path.insert(path.into(), id) != Some(id) {
                self.files[id.0 as usize].names += 1;
            }
            return;
        }
        // Known by its name so far, or as what had this number when nobody could tell which file of this number it was.
        let nameless = Identity { generation: 0, ..identity };
        let known = self.by_path.get(path.as_slice()).or_else(|| self.by_identity.get(&nameless)).copied();
        match known.filter(|id| self.files[id.0 as usize].identity.is_none_or(|known| known == nameless)) {
            Some(id) => {
                let file = &mut self.files[id.0 as usize];
                (file.identity, file.mode) = (Some(identity), mode);
                self.by_identity.insert(identity, id);
            }
            None => {
                self.add(path, Some(identity), mode);
            }
        }
    }

    /// The file of this identity.
    pub(super) fn of_identity(&mut self, identity: Identity, mode: u32) -> FileId {
        let known = self.by_identity.get(&identity).copied();
        let id = known.unwrap_or_else(|| self.add(Vec::new(), Some(identity), mode));
        if mode != 0 {
            self.files[id.0 as usize].mode = mode;
        }
        id
    }

    /// The file that is called so now.
    pub(super) fn of_path(&mut self, path: &[u8]) -> FileId {
        if let Some(&id) = self.by_path.get(path) {
            return id;
        }
        self.add(path.to_vec(), None, 0)
    }

    /// A path as a program gave it, made whole.
    pub(super) fn path(&self, base: Identity, text: &[u8]) -> Vec<u8> {
        let directory = self.by_identity.get(&base).map(|id| self.files[id.0 as usize].path.as_slice());
        match directory {
            Some(directory) if !text.starts_with(b"/") => normal(&[directory, b"/", text].concat()),
            _ => normal(text),
        }
    }

    /// A name is gone, and with the last one the file.
    pub(super) fn delete(&mut self, path: &[u8]) {
        let Some(id) = self.by_path.remove(path) else { return };
        let file = &mut self.files[id.0 as usize];
        file.names = file.names.saturating_sub(1);
    }

    /// How many names it has: none once it has been deleted.
    pub fn names(&self, id: FileId) -> u32 {
        self.files[id.0 as usize].names
    }

    /// A name becomes another one; the file that was called so before, if there was one.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> Option<FileId> {
        let moved = self.of_path(from);
        self.by_path.remove(from);
        let replaced = self.by_path.insert(to.into(), moved).filter(|&replaced| replaced != moved);
        self.files[moved.0 as usize].path = to.to_vec();
        if let Some(replaced) = replaced {
            let file = &mut self.files[replaced.0 as usize];
            file.names = file.names.saturating_sub(1);
        }
        // What is in a directory moves along; only names that were told are known, and few directories are renamed.
        if self.files[moved.0 as usize].mode & 0o170_000 == 0o040_000 {
            self.move_children(from, to);
        }
        replaced
    }

    /// Two files change their names; the one that had the second. What is in directories moves along.
    pub(super) fn exchange(&mut self, one: &[u8], other: &[u8]) -> FileId {
        let [first, second] = [one, other].map(|path| self.of_path(path));
        self.by_path.insert(other.into(), first);
        self.by_path.insert(one.into(), second);
        // By way of a name that no file has.
        let nowhere = [one, b"/\0".as_slice()].concat();
        self.move_children(one, &nowhere);
        self.move_children(other, one);
        self.move_children(&nowhere, other);
        second
    }

    fn move_children(&mut self, from: &[u8], to: &[u8]) {
        let prefix = [from, b"/"].concat();
        let inside: Vec<Box<[u8]>> =
            self.by_path.keys().filter(|path| path.starts_with(&prefix)).cloned().collect();
        for path in inside {
            if let Some(id) = self.by_path.remove(&path) {
                let moved = [to, b"/", &path[prefix.len()..]].concat();
                self.files[id.0 as usize].path.clone_from(&moved);
                self.by_path.insert(moved.into(), id);
            }
        }
    }

    /// A file has one more name; the file that is called so from now on.
    pub(super) fn link(&mut self, from: &[u8], to: &[u8]) -> FileId {
        let id = self.of_path(from);
        if self.by_path.insert(to.into(), id) != Some(id) {
            self.files[id.0 as usize].names += 1;
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_of_parts_and_without_detours() {
        assert_eq!(path_of_parts(b"libc.so.6\0lib\0usr\0"), b"/usr/lib/libc.so.6");
        assert_eq!(path_of_parts(b""), b"/");
        assert_eq!(normal(b"/a/./b//../c/"), b"/a/c");
        assert_eq!(normal(b"/../.."), b"/");
    }

    #[test]
    fn a_file_is_the_same_by_name_and_by_number_and_another_once_it_is_deleted() {
        let mut files = Files::default();
        let identity = |inode, generation| Identity { inode, device: 1, generation };
        let by_path = files.of_path(b"/a/x");
        files.name(identity(7, 3), b"/a/x".to_vec(), 0o100_644);
        assert_eq!(files.of_identity(identity(7, 3), 0o100_644), by_path);
        files.delete(b"/a/x");
        assert_eq!(files.names(by_path), 0);
        files.name(identity(7, 4), b"/a/x".to_vec(), 0o100_644);
        assert_ne!(files.of_path(b"/a/x"), by_path, "the same number, given to another file");
        files.name(identity(2, 0), b"/a".to_vec(), 0o040_755);
        assert_eq!(files.path(identity(2, 0), b"../b/y"), b"/b/y");
        assert_eq!(files.path(identity(2, 0), b"/b/y"), b"/b/y");
    }

    #[test]
    fn files_that_change_places_take_along_what_is_in_them() {
        let mut files = Files::default();
        let [a, b] = [b"/a", b"/b"].map(|path| files.of_path(path));
        let [in_a, in_b] = [b"/a/x", b"/b/y"].map(|path| files.of_path(path));
        assert_eq!(files.exchange(b"/a", b"/b"), b);
        assert_eq!([b"/b", b"/a"].map(|path| files.of_path(path)), [a, b]);
        assert_eq!([b"/b/x", b"/a/y"].map(|path| files.of_path(path)), [in_a, in_b]);
        assert_eq!([a, b, in_a, in_b].map(|file| files.names(file)), [1; 4]);
    }

    #[test]
    fn renaming_moves_names_and_says_what_was_replaced() {
        let mut files = Files::default();
        let (old, new) = (files.of_path(b"/a"), files.of_path(b"/a.tmp"));
        assert_eq!(files.rename(b"/a.tmp", b"/a"), Some(old));
        assert_eq!((files.of_path(b"/a"), files.names(old), files.names(new)), (new, 0, 1));
        assert_eq!(files.files()[new.0 as usize].path, b"/a");
        let linked = files.link(b"/a", b"/b");
        assert_eq!((linked, files.names(new)), (new, 2));
    }
}
