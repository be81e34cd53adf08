//! What a command could not do: one line for people, with what to do about it.

use std::process::ExitCode;

/// A command's outcome: its exit status, or one line on stderr and exit status 1.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// One line, without `comb:` before it.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    closed_pipe: bool,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), closed_pipe: false }
    }

    /// Standard output was closed while we wrote, as `head` does.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.closed_pipe
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Errors explain themselves; nothing is to be added.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &dyn std::error::Error = &error;
        let closed_pipe = any
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        Self { text: error.to_string(), closed_pipe }
    }
}
