//! Where the measured processes meet, and how one starts the others.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Removes a folder when its standard input ends. Who is killed with us may have written there until a moment ago.
const SWEEP: &str = r#"cat; rm -rf -- "$0" || { sleep 1; rm -rf -- "$0"; }"#;

/// A folder that is gone with the run, however that ends: somebody outside our process group waits for our end.
pub(crate) struct Folder {
    path: PathBuf,
    sweeper: Child,
}

impl Folder {
    pub(crate) fn create(path: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir(&path)?;
        let mut sweeper = Command::new("sh");
        sweeper.args(["-c", SWEEP]).arg(&path).process_group(0);
        let sweeper = sweeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { path, sweeper })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

/// A folder for the agent's socket.
pub(crate) struct Room(Folder);

impl Room {
    pub(crate) fn create() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("comb-bench-{}", std::process::id()));
        Folder::create(path).map(Self)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn agent(&self) -> PathBuf {
        self.join("agent")
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
