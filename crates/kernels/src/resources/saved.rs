//! The content of a kernel's page groups, while it is swapped out.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use comb_kernel::objects::FRAMES_IN_GROUP;

const PAGE: usize = 4096;

/// A file that goes with this.
#[derive(Debug)]
pub(super) struct Saved {
    file: File,
    path: PathBuf,
    /// Which groups it was, in the order in which they are in the file.
    pub(super) groups: Vec<u32>,
}

fn frames(groups: &[u32]) -> impl Iterator<Item = u64> {
    groups
        .iter()
        .flat_map(|group| (0..FRAMES_IN_GROUP).map(move |frame| u64::from(*group) * FRAMES_IN_GROUP + frame))
}

impl Saved {
    /// Writes what these groups contain. Pages of zeros take no room.
    pub(super) fn write(path: &Path, groups: Vec<u32>, read: impl Fn(u64, &mut [u8])) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // From here on it goes if this fails.
        let saved = Self { file, path: path.to_owned(), groups };
        saved.file.set_len(saved.groups.len() as u64 * FRAMES_IN_GROUP * PAGE as u64)?;
        let mut page = [0; PAGE];
        for (frame, at) in frames(&saved.groups).zip((0..).step_by(PAGE)) {
            read(frame, &mut page);
            if page.iter().any(|byte| *byte != 0) {
                saved.file.write_all_at(&page, at)?;
            }
        }
        Ok(saved)
    }

    /// Puts it into other groups, which contain zeros.
    pub(super) fn read(&self, groups: &[u32], mut write: impl FnMut(u64, &[u8])) -> io::Result<()> {
        let mut page = [0; PAGE];
        for (frame, at) in frames(groups).zip((0..).step_by(PAGE)) {
            self.file.read_exact_at(&mut page, at)?;
            if page.iter().any(|byte| *byte != 0) {
                write(frame, &page);
            }
        }
        Ok(())
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
