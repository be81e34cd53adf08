//! The directories between a root and where the walk is.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::CWD;
use rustix::io::Errno;

use super::{Attributes, look_at, open_folder};
use crate::event::Identity;

/// So many directories are held open at most; a tree may be deeper than a process may have files open.
const MOST_OPEN: usize = 128;

/// An entry that is still to be written down.
pub(super) struct Child {
    /// As it is written, if that is not its real name.
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_name: CString,
    pub(super) attributes: Attributes,
}

impl Child {
    /// What it is called in the snapshot, which is in the order of these.
    pub(super) fn stored_name(&self) -> &[u8] {
        self.name.as_deref().unwrap_or(self.real_name.to_bytes())
    }
}

/// A directory that has been entered.
pub(super) struct Level {
    real_name: Vec<u8>,
    file: Identity,
    folder: Option<OwnedFd>,
    children: std::vec::IntoIter<Child>,
}

impl Level {
    pub(super) fn new(real_name: Vec<u8>, file: Identity, folder: OwnedFd, children: Vec<Child>) -> Self {
        let is_needed = children.iter().any(|child| child.attributes.is_directory());
        Self { real_name, file, folder: is_needed.then_some(folder), children: children.into_iter() }
    }
}

/// From the root down to where the walk is.
#[derive(Default)]
pub(super) struct Levels(Vec<Level>);

impl Levels {
    pub(super) fn push(&mut self, level: Level) {
        self.0.push(level);
        // The one that is needed last.
        if let Some(above) = self.0.len().checked_sub(MOST_OPEN) {
            self.0[above].folder = None;
        }
    }

    /// What comes next; directories in which nothing is left are left. `None` at the end of the tree.
    pub(super) fn next_child(&mut self) -> Option<Child> {
        loop {
            match self.0.last_mut()?.children.next() {
                Some(child) => return Some(child),
                None => self.0.pop(),
            };
        }
    }

    /// The directory in which the last child was found. It is opened again if need be, and if it is still where it was.
    pub(super) fn folder(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        if self.0.last().is_some_and(|level| level.folder.is_none()) {
            self.open_again()?;
        }
        Ok(self.0.last().and_then(|level| level.folder.as_ref()).ok_or(Errno::NOENT)?.as_fd())
    }

    /// Opens the last one, and those above that are needed next with it: else each of them would be looked for from the root.
    fn open_again(&mut self) -> Result<(), Errno> {
        let kept_from = self.0.len().saturating_sub(MOST_OPEN - 1);
        let mut passed: Option<OwnedFd> = None;
        for at in 0..self.0.len() {
            let (above, level) = self.0.split_at_mut(at);
            let level = &mut level[0];
            let above = passed.as_ref().or_else(|| above.last()?.folder.as_ref());
            let folder = match above {
                None => open_folder(CWD, level.real_name.as_slice())?,
                Some(above) => open_folder(above, level.real_name.as_slice())?,
            };
            if look_at(&folder, c"")?.file != level.file {
                return Err(Errno::NOENT);
            }
            passed = None;
            if at < kept_from {
                passed = Some(folder);
            } else {
                level.folder = Some(folder);
            }
        }
        Ok(())
    }
}
