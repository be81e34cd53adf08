//! What a command could not do: one line for people, with what to do about it, and an exit status for scripts.

use std::process::ExitCode;

use comb_host::control::ControlError;
use comb_host::{DirectoryError, daemon::DaemonError};
use comb_region::named::AskError;
use comb_region::named::register::RegisterError;

/// A command's outcome: its exit status, or why it has failed.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// What scripts tell failures apart by. Numbers and names stay what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Everything that is none of the others.
    Failed,
    /// What was asked for makes no sense: arguments, environment, configuration.
    Usage,
    /// No comb is running here.
    NotRunning,
    /// There is no cell, task, region or host of that name.
    NotFound,
    /// Whoever was asked may not do it or does not want to.
    Refused,
    /// Nobody has answered in time.
    NoAnswer,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Failed, Self::Usage, Self::NotRunning, Self::NotFound, Self::Refused, Self::NoAnswer];

    /// Of another comb command's exit status.
    pub(crate) fn of_code(code: i32) -> Self {
        Self::ALL.into_iter().find(|kind| i32::from(kind.code()) == code).unwrap_or(Self::Failed)
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotRunning => 3,
            Self::NotFound => 4,
            Self::Refused => 5,
            Self::NoAnswer => 6,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NotRunning => "not_running",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::NoAnswer => "no_answer",
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
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::of(Kind::Failed, text)
    }

    pub(crate) fn of(kind: Kind, text: impl Into<String>) -> Self {
        Self { text: text.into(), kind, closed_pipe: false }
    }

    /// What was asked for makes no sense.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::of(Kind::Usage, text)
    }

    /// There is none of that name.
    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self::of(Kind::NotFound, text)
    }

    /// The same of another kind.
    pub(crate) fn into_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same with what it was about before it.
    pub(crate) fn about(self, what: impl std::fmt::Display) -> Self {
        Self { text: format!("{what}: {}", self.text), ..self }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Standard output was closed while we wrote, as `head` does.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.closed_pipe
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind.code())
    }

    /// For programs.
    pub(crate) fn object(&self) -> serde_json::Value {
        serde_json::json!({ "error": self.text, "code": self.kind.code(), "kind": self.kind.name() })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Errors explain themselves; only what kind they are is to be added.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let closed_pipe = (&error as &dyn std::error::Error)
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        Self { text: error.to_string(), kind: kind(&error), closed_pipe }
    }
}

/// By the first in the chain of causes that says so.
fn kind(error: &(dyn std::error::Error + 'static)) -> Kind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(kind) = own_kind(error) {
            return kind;
        }
        cause = error.source();
    }
    Kind::Failed
}

fn own_kind(error: &(dyn std::error::Error + 'static)) -> Option<Kind> {
    if let Some(error) = error.downcast_ref::<ControlError>() {
        return match error {
            ControlError::NoAgent(_) => Some(Kind::NotRunning),
            ControlError::Refused(_) => Some(Kind::Refused),
            ControlError::Silent(_) => Some(Kind::NoAnswer),
            ControlError::Protocol(_) | ControlError::System(_) => None,
        };
    }
    if let Some(error) = error.downcast_ref::<DirectoryError>() {
        return match error {
            DirectoryError::NotOurs { .. } | DirectoryError::Open { .. } => Some(Kind::Refused),
            DirectoryError::NoDirectory(_) | DirectoryError::TooLong { .. } | DirectoryError::Name(_) => {
                Some(Kind::Usage)
            }
            // What the system says is its source.
            DirectoryError::System { source, .. } => own_kind(source),
        };
    }
    // Transparent ones have the source of what they contain, and not that itself.
    if let Some(DaemonError::Directory(error)) = error.downcast_ref::<DaemonError>() {
        return own_kind(error);
    }
    if let Some(error) = error.downcast_ref::<AskError>() {
        return match error {
            AskError::NoRegion(_) => Some(Kind::NotFound),
            AskError::Refused(_) => Some(Kind::Refused),
            AskError::Register(error) => own_kind(error),
            AskError::NoHome { .. } | AskError::Strange { .. } => None,
        };
    }
    if let Some(error) = error.downcast_ref::<RegisterError>() {
        return match error {
            RegisterError::Name(_) => Some(Kind::Usage),
            RegisterError::Taken(_) => Some(Kind::Refused),
            RegisterError::System { source, .. } => own_kind(source),
            RegisterError::NoAddresses(_) | RegisterError::Damaged(_) => None,
        };
    }
    if let Some(error) = error.downcast_ref::<comb_vm::control::AskError>() {
        return Some(match error {
            comb_vm::control::AskError::None(_) => Kind::NotFound,
            comb_vm::control::AskError::Refused(_) => Kind::Refused,
            comb_vm::control::AskError::Gone(..) | comb_vm::control::AskError::Silent(_) => Kind::NoAnswer,
        });
    }
    if let Some(comb_vm::image::ImageError::None(..)) = error.downcast_ref::<comb_vm::image::ImageError>() {
        return Some(Kind::NotFound);
    }
    if let Some(comb_vm::snapshot::SnapshotError::None(_)) =
        error.downcast_ref::<comb_vm::snapshot::SnapshotError>()
    {
        return Some(Kind::NotFound);
    }
    if let Some(comb_vm::files::shelf::ShelfError::None(_)) =
        error.downcast_ref::<comb_vm::files::shelf::ShelfError>()
    {
        return Some(Kind::NotFound);
    }
    if let Some(error) = error.downcast_ref::<comb_vm::segment::SegmentError>() {
        return match error {
            comb_vm::segment::SegmentError::None(_) => Some(Kind::NotFound),
            comb_vm::segment::SegmentError::NotOurs(_) => Some(Kind::Refused),
            _ => None,
        };
    }
    let refused = |kind| matches!(kind, std::io::ErrorKind::PermissionDenied).then_some(Kind::Refused);
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        return refused(error.kind());
    }
    error.downcast_ref::<rustix::io::Errno>().and_then(|error| refused(error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_their_causes() {
        let of = |error: ControlError| Failure::from(error).kind();
        assert_eq!(of(ControlError::NoAgent("/run/comb".into())), Kind::NotRunning);
        assert_eq!(of(ControlError::Silent("/run/comb".into())), Kind::NoAnswer);
        assert_eq!(of(ControlError::System(rustix::io::Errno::ACCESS)), Kind::Refused);
        assert_eq!(of(ControlError::System(rustix::io::Errno::NOMEM)), Kind::Failed);
        let foreign = DirectoryError::NotOurs { path: "/run/comb".into(), owner: 7 };
        assert_eq!(Failure::from(DaemonError::Directory(foreign)).kind(), Kind::Refused);
    }

    #[test]
    fn programs_are_told_sentence_code_and_kind() {
        let object = Failure::not_found("there is no cell 9").object();
        let expected = serde_json::json!({ "error": "there is no cell 9", "code": 4, "kind": "not_found" });
        assert_eq!(object, expected);
    }
}
