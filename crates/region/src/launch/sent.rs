//! A program's files that were sent to this host.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use super::LaunchError;
use super::conversation::Sent;
use super::files::{MODE, stays_within};
use super::tree::Tree;

/// Files on their way into a directory of their own.
pub(super) struct Unpacking {
    tree: Tree,
    /// The file that comes now, and what of it is still to come.
    open: Option<(File, u64, PathBuf)>,
    /// From now on a path may lead anywhere.
    has_links: bool,
}

impl Unpacking {
    pub(super) fn begin() -> std::result::Result<Self, LaunchError> {
        let tree = Tree::make().map_err(|error| failed(Path::new("their directory"), &error))?;
        Ok(Self { tree, open: None, has_links: false })
    }

    pub(super) fn take(&mut self, sent: Sent) -> std::result::Result<(), LaunchError> {
        let inside = self.tree.inside();
        let at = match &sent {
            Sent::Bytes(_) => self.open.as_ref().map(|(.., path)| path.clone()).unwrap_or_default(),
            Sent::Directory { path, .. } | Sent::File { path, .. } | Sent::Link { path, .. } => {
                PathBuf::from(path)
            }
        };
        self.try_to_take(&inside, sent).map_err(|error| failed(&at, &error))
    }

    fn try_to_take(&mut self, inside: &Path, sent: Sent) -> Result<()> {
        if let Sent::Bytes(bytes) = &sent {
            let Some((file, rest, _)) = &mut self.open else { return Err(ErrorKind::InvalidData.into()) };
            *rest = rest.checked_sub(bytes.len() as u64).ok_or(ErrorKind::InvalidData)?;
            return file.write_all(bytes);
        }
        self.end_file()?;
        if self.has_links && !matches!(sent, Sent::Link { .. }) {
            return Err(ErrorKind::InvalidData.into());
        }
        match sent {
            Sent::Bytes(_) => {}
            // Whose owner may not write into it could not be filled, nor removed.
            Sent::Directory { path, mode } => {
                let path = inside.join(plain(&path)?);
                DirBuilder::new().mode(0o700).create(&path)?;
                std::fs::set_permissions(path, Permissions::from_mode(mode & MODE | 0o700))?;
            }
            Sent::File { path, mode, length } => {
                let file_path = inside.join(plain(&path)?);
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file_path)?;
                file.set_permissions(Permissions::from_mode(mode & MODE))?;
                self.open = Some((file, length, path.into()));
            }
            Sent::Link { path, target } => {
                let path = plain(&path)?;
                if !stays_within(path, Path::new(&target)) {
                    return Err(Error::new(ErrorKind::InvalidData, "it leads out of what was sent"));
                }
                self.has_links = true;
                std::os::unix::fs::symlink(target, inside.join(path))?;
            }
        }
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        match self.open.take() {
            Some((_, rest, _)) if rest > 0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// All have come.
    pub(super) fn end(mut self) -> std::result::Result<Tree, LaunchError> {
        self.end_file().map_err(|error| failed(Path::new("a file"), &error))?;
        Ok(self.tree)
    }
}

/// A path to something below, and to nothing else.
fn plain(path: &OsStr) -> Result<&Path> {
    let path = Path::new(path);
    let is_plain = path.components().all(|component| matches!(component, Component::Normal(_)));
    if is_plain && path.components().next().is_some() {
        Ok(path)
    } else {
        Err(Error::new(ErrorKind::InvalidData, "it is no path to something below"))
    }
}

fn failed(path: &Path, error: &Error) -> LaunchError {
    let room = match error.kind() {
        ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::NotFound
        | ErrorKind::PermissionDenied => {
            ": make room there, or name another directory with TMPDIR in the start-up files of its shell"
        }
        _ => "",
    };
    LaunchError::Unpack(format!("cannot keep the files that are sent ({}: {error}){room}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::files::Files;

    #[test]
    fn files_come_as_they_were_with_their_modes_and_links() {
        let here = std::env::temp_dir().join(format!("comb-sent-{}", std::process::id()));
        std::fs::create_dir_all(here.join("data/empty")).unwrap();
        std::fs::write(here.join("data/numbers"), vec![7; 1_000_000]).unwrap();
        std::fs::set_permissions(here.join("data/numbers"), Permissions::from_mode(0o550)).unwrap();
        std::os::unix::fs::symlink("numbers", here.join("data/link")).unwrap();
        let mut unpacking = Unpacking::begin().unwrap();
        let files = Files::find(&["data".into()], &here).unwrap();
        assert_eq!(files.bytes, 1_000_000);
        let taken = files.send(|sent, _| unpacking.take(sent).map_err(Error::other));
        assert!(taken.is_ok());
        let tree = unpacking.end().unwrap();
        let data = tree.inside().join("data");
        assert_eq!(std::fs::read(data.join("link")).unwrap(), vec![7; 1_000_000]);
        assert_eq!(data.join("numbers").metadata().unwrap().permissions().mode() & 0o7777, 0o550);
        assert!(data.join("empty").is_dir());
        drop(tree);
        assert!(!data.exists());
        std::fs::remove_dir_all(here).unwrap();
    }

    #[test]
    fn what_would_be_written_elsewhere_is_refused() {
        let directory = |path: &str| Sent::Directory { path: path.into(), mode: 0o700 };
        let file = |path: &str| Sent::File { path: path.into(), mode: 0o600, length: 1 };
        let link = |path: &str, target: &str| Sent::Link { path: path.into(), target: target.into() };
        for sents in [
            &[file("../x")][..],
            &[file("/tmp/x")],
            &[file("")],
            &[directory("a"), directory("a/../../x")],
            &[link("a", "..")],
            &[link("a", "/etc")],
            &[link("a", "b"), file("a")],
            &[file("a"), Sent::Bytes(vec![1, 2])],
            &[Sent::Bytes(vec![1])],
            &[file("a"), file("b")],
        ] {
            let mut unpacking = Unpacking::begin().unwrap();
            let outcome: std::result::Result<(), _> =
                sents.iter().try_for_each(|sent| unpacking.take(sent.clone()));
            assert!(outcome.is_err(), "{sents:?}");
        }
        let mut unpacking = Unpacking::begin().unwrap();
        unpacking.take(file("a")).unwrap();
        assert!(unpacking.end().is_err(), "a byte is missing");
    }
}
