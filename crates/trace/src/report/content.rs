//! What file trees say. (Thesis §9.5)

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::snapshot::{Totals, difference};

/// So much of the changes is in the place that they name, or more.
const MOST_CHANGES: f64 = 0.75;

/// What two snapshots say of content. The thesis' observations on it need them.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// What share of bytes is in programs, libraries and fonts.
    pub program_share: Option<f64>,
    /// Where most changes are, and what share.
    pub changes: Option<(String, f64)>,
    /// The share of files whose last change is after their last access.
    pub unreliable_share: Option<f64>,
}

/// A snapshot cannot be read, or not be compared.
#[derive(Debug, Error)]
#[error("{path}: {reason}")]
pub struct ContentError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

fn failed(path: &Path, reason: &impl ToString) -> ContentError {
    ContentError { path: path.to_path_buf(), reason: reason.to_string() }
}

fn open(path: &Path) -> Result<BufReader<File>, ContentError> {
    File::open(path).map(BufReader::new).map_err(|error| failed(path, &error))
}

impl Content {
    /// Of a snapshot before and one after what was recorded; either may be missing, and then less can be said.
    pub fn of(before: Option<&Path>, after: Option<&Path>) -> Result<Self, ContentError> {
        let mut content = Self::default();
        if let Some(path) = after.or(before) {
            let (totals, _) = Totals::read(open(path)?).map_err(|error| failed(path, &error))?;
            let programs =
                totals.by_type.iter().filter(|(kind, _)| kind.category == "program" || kind.kind == "font");
            let bytes = programs.fold(0_u64, |sum, (_, amount)| sum.saturating_add(amount.bytes));
            content.program_share = super::groups::share(bytes, totals.files.bytes);
            content.unreliable_share = (totals.files.files > 0).then(|| totals.share_modified_after_access());
        }
        if let (Some(before), Some(after)) = (before, after) {
            let found =
                difference(open(before)?, open(after)?, |_| {}).map_err(|error| failed(after, &error))?;
            let last = found.by_place.down_to(MOST_CHANGES).last().cloned();
            content.changes = last.map(|step| (String::from_utf8_lossy(&step.path).into_owned(), step.share));
        }
        Ok(content)
    }
}
