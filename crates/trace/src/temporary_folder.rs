//! A directory that is there for as long as a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comb-trace-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a directory for temporary files is there");
        Self(path.canonicalize().expect("it was just made"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
