//! What is said of a query that has no answer, as comb says it: docs/commands.md has numbers and kinds.

use std::process::ExitCode;

use comb_trace::store::StoreError;
use datafusion::error::DataFusionError;

/// Whose fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nobody's, or ours.
    Failed,
    /// What was asked makes no sense.
    Usage,
    /// It asks to change something.
    Refused,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 5,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Refused => "refused",
        }
    }
}

/// One line, without `comb:` before it.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    kind: Kind,
    closed_pipe: bool,
}

impl Failure {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { text: text.into(), kind, closed_pipe: false }
    }

    /// Says it. Whoever has closed our output has read enough.
    pub(crate) fn tell(&self, is_json: bool) -> ExitCode {
        if self.closed_pipe {
            return ExitCode::SUCCESS;
        }
        if is_json {
            let (code, kind) = (self.kind.code(), self.kind.name());
            eprintln!("{}", serde_json::json!({ "error": self.text, "code": code, "kind": kind }));
        } else {
            eprintln!("comb: {}", self.text);
        }
        ExitCode::from(self.kind.code())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let closed_pipe = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self { text: error.to_string(), kind: Kind::Failed, closed_pipe }
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        match error.find_root() {
            // Of our own tables: it explains itself.
            DataFusionError::External(cause) if cause.is::<StoreError>() => {
                Self::new(Kind::Failed, cause.to_string())
            }
            DataFusionError::SQL(cause, _) => Self::new(Kind::Usage, one_line(&cause.to_string())),
            DataFusionError::Plan(text) | DataFusionError::Configuration(text) => {
                Self::new(Kind::Usage, one_line(text))
            }
            root @ (DataFusionError::SchemaError(..) | DataFusionError::NotImplemented(_)) => {
                Self::new(Kind::Usage, one_line(&root.message()))
            }
            DataFusionError::ResourcesExhausted(text) => {
                let advice = "it does not fit in the memory it may take, which --memory says";
                Self::new(Kind::Failed, format!("{advice}: {}", one_line(text)))
            }
            root => Self::new(Kind::Failed, one_line(&root.strip_backtrace())),
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
