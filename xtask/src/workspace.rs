//! Where the workspace is, what is in it, and how its cargo is called.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that hold protocols, and the types they speak in: pure, so they build for every processor, and the
/// simulator and the model checker can run them. A new protocol crate is added here.
pub(crate) const PROTOCOL_CRATES: &[&str] =
    &["comb-types", "comb-congestion", "comb-sim", "comb-membership", "comb-coherence", "comb-containment"];

/// The processor, besides this one, for which the protocol crates must build.
pub(crate) const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";

/// The repository's root. Cargo tells a program that it runs where its package is; what was so when the program was
/// compiled can belong to another checkout with the same target directory.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().expect("xtask is a directory in the workspace").to_path_buf()
}

/// A command that runs in the workspace's root, as if called from a shell: without what cargo told this program about
/// this program's own package. Build scripts of dependencies look at these variables, and would run anew each time
/// that `cargo xtask` and plain `cargo` take turns.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let ours = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
        if ours.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// `cargo ARGUMENTS…`, as `command` has it.
pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = command("cargo");
    command.args(arguments);
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |path| root().join(path))
}

/// `-p NAME` for each protocol crate.
pub(crate) fn protocol_packages() -> impl Iterator<Item = &'static str> {
    PROTOCOL_CRATES.iter().flat_map(|&name| ["-p", name])
}

/// The repository's files, relative to its root: what git tracks, and what is new and not ignored.
pub(crate) fn files() -> Result<Vec<String>, String> {
    let listing = command("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"])
        .output()
        .map_err(|error| format!("git is needed to list the repository's files: {error}"))?;
    if !listing.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr).trim()));
    }
    let mut files = Vec::new();
    for name in listing.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8(name.to_vec()).map_err(|_| "a file's name is not UTF-8".to_owned())?;
        // Tracked, but deleted here and not yet committed so.
        if root().join(&name).exists() {
            files.push(name);
        }
    }
    Ok(files)
}
