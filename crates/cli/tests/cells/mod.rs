//! Cells of a test's own, by the real command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// For what takes milliseconds on an idle machine. A test that runs into this has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Cells in a directory of a test's own. Whatever the test leaves is ended and removed when this is dropped.
pub(crate) struct Comb {
    /// For all that a test needs besides.
    pub(crate) scratch: PathBuf,
    /// What commands find in their environment, and all that they start.
    pub(crate) variables: Vec<(&'static str, OsString)>,
}

impl Comb {
    /// None are started yet.
    pub(crate) fn new(name: &str) -> Self {
        let scratch = std::env::temp_dir().join(format!("comb-test-{}-{name}", std::process::id()));
        // An earlier process of that number was killed.
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir(&scratch).unwrap();
        Self { scratch, variables: Vec::new() }
    }

    /// Where they are; it is there as long as they are.
    pub(crate) fn directory(&self) -> PathBuf {
        self.scratch.join("run")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command.args(arguments).env("COMB_RUNTIME_DIR", self.directory()).env_remove("COMB_WITHOUT");
        // Whoever runs tests may have a configuration of their own.
        command.env("COMB_CONFIG", "/dev/null");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that is to succeed; its output.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "comb {arguments:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The agent, the policy and the cells, all of one moment.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        self.list(&["host", "ls"]).remove(0)
    }

    /// The same of an agent that may not be there.
    pub(crate) fn status_if_any(&self) -> Option<Value> {
        let output = self.run(&["host", "ls", "-o", "json"]);
        Some(serde_json::from_slice::<Value>(&output.stdout).ok()?[0].take())
    }

    /// What a command lists as JSON.
    #[track_caller]
    pub(crate) fn list(&self, arguments: &[&str]) -> Vec<Value> {
        serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory().join("comb.log")).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if since.elapsed() > LIMIT {
                panic!("waited for {what}:\n{}\n{:?}", self.log(), self.status_if_any());
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

impl Drop for Comb {
    fn drop(&mut self) {
        let _ = self.run(&["down"]);
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}
