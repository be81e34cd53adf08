//! Where a host keeps what outlives `comb down` and the machine's next start: its key, and who belongs to the comb.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a comb is called that has no other name.
const DEFAULT_NAME: &str = "comb";

/// The directory of one comb's state. That it exists is another question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Below `$COMB_STATE_DIR`, else `/var/lib/comb` for root, else `$XDG_STATE_HOME/comb`, else `~/.local/state/comb`: a directory for
    /// each comb, called as `$COMB_NAME` is.
    pub fn from_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let is_root = rustix::process::geteuid().is_root();
        let base = set("COMB_STATE_DIR").unwrap_or_else(|| match (set("XDG_STATE_HOME"), set("HOME")) {
            _ if is_root => PathBuf::from("/var/lib/comb"),
            (Some(state), _) => state.join("comb"),
            (None, Some(home)) => home.join(".local/state/comb"),
            (None, None) => PathBuf::from("/var/lib/comb"),
        });
        let name = std::env::var("COMB_NAME").ok().filter(|name| comb_net::hosts::KnownHosts::is_name(name));
        Self::at(&base, name.as_deref().unwrap_or(DEFAULT_NAME))
    }

    /// That of the comb with this name.
    pub fn at(base: &Path, comb: &str) -> Self {
        // The agent changes to `/`: the path must not depend on where it is read.
        let base = std::path::absolute(base).unwrap_or_else(|_| base.to_owned());
        Self { path: base.join(comb) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, closed to others; or checks the one that is there: whoever can write here can speak in this host's name.
    pub fn create(&self) -> Result<(), String> {
        let says =
            |error: std::io::Error| format!("cannot use {} for the state: {error}", self.path.display());
        if let Some(base) = self.path.parent() {
            std::fs::create_dir_all(base).map_err(says)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(says(error)),
            _ => {}
        }
        let found = std::fs::symlink_metadata(&self.path).map_err(says)?;
        let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
        if !ours || found.mode() & 0o077 != 0 {
            let path = self.path.display();
            return Err(format!(
                "{path} holds this host's key and is to be a directory of yours that is closed to others \
                 (`chmod 700 {path}`); or set COMB_STATE_DIR to another"
            ));
        }
        Ok(())
    }

    /// The host's secret key.
    pub fn key_file(&self) -> PathBuf {
        self.path.join("host.key")
    }

    /// Who belongs to the comb, with their keys.
    pub fn hosts_file(&self) -> PathBuf {
        self.path.join("hosts.json")
    }
}

impl std::fmt::Display for StateDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_made_closed_and_an_open_one_is_refused() {
        let base = std::env::temp_dir().join(format!("comb-state-test-{}", std::process::id()));
        let state = StateDirectory::at(&base, "room");
        state.create().expect("it can be made");
        state.create().expect("it is ours");
        assert_eq!(std::fs::metadata(base.join("room")).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(base.join("room"), std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(state.create().unwrap_err().contains("chmod 700"));
        std::fs::remove_dir_all(base).unwrap();
    }
}
