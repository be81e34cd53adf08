//! The command in another place.

use std::path::Path;
use std::process::Command;

/// Puts it there, by another process: what this one has open to write, a program that another test starts has open for a moment as well, and
/// nobody can run it meanwhile.
pub(crate) fn copy(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_comb")).arg(to).status();
    assert!(copied.unwrap().success(), "{}", to.display());
}
