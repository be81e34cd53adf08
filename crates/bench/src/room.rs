//! Where the measured processes meet, and how one starts the others.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A folder for the agent's socket, gone with the run.
pub(crate) struct Room(PathBuf);

impl Room {
    pub(crate) fn create() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("comb-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Another process of the same measurement. It does not outlive this: what is dropped is killed.
pub(crate) struct Companion(Child);

impl Companion {
    /// Starts this program once more, as the side that answers.
    pub(crate) fn start(name: &str, arguments: &[&OsStr]) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        Ok(Self(command.args(["bench-side", name, "--answer"]).args(arguments).spawn()?))
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn finish(mut self) -> Result<(), Box<dyn std::error::Error>> {
        if self.0.wait()?.success() { Ok(()) } else { Err("an answering process failed".into()) }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // Both fail for one that has ended, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
