//! Where everything of one agent is: sockets, state, lock, log. Whoever may write here may command the agent, so
//! the directory is the user's own and closed to all others.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A socket's address takes 107 bytes and our longest file name is `control.sock`.
const LONGEST_PATH_BYTES: usize = 107 - "/control.sock".len();

/// Names of regions are files in it.
const REGIONS: &str = "regions";

/// The names of all files that we ever make there, besides cells' doors. Nothing else is removed.
const FILES: [&str; 8] = [
    "agent.sock",
    "control.sock",
    "cells.sock",
    "keep.sock",
    "agent.json",
    "agent.json.new",
    "agent.lock",
    "comb.log",
];

/// Why there is no runtime directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Somebody else made it, perhaps to trap us.
    #[error("{path} belongs to user {owner}, not to you: set COMB_RUNTIME_DIR to a directory of your own")]
    NotOurs {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others could reach the sockets.
    #[error("{path} is open to other users (mode {mode:o}): run `chmod 700 {path}`")]
    Open {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file, or a symbolic link, which could lead anywhere.
    #[error("{0} is not a directory: remove it, or set COMB_RUNTIME_DIR to another path")]
    NoDirectory(PathBuf),
    /// Sockets in it could not be bound.
    #[error(
        "{path} is too long for a socket's address, by {excess} bytes: set COMB_RUNTIME_DIR to a shorter path"
    )]
    TooLong {
        /// Which.
        path: PathBuf,
        /// Bytes too many.
        excess: usize,
    },
    /// The system refused.
    #[error(
        "cannot use {path} as runtime directory: {source}. Set COMB_RUNTIME_DIR to a directory you can write"
    )]
    System {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A runtime directory's path. That it exists is another question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuntimeDirectory {
    path: PathBuf,
}

impl RuntimeDirectory {
    /// `$COMB_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/comb`, else `/tmp/comb-<uid>`.
    pub fn from_environment() -> Result<Self, DirectoryError> {
        let uid = rustix::process::getuid().as_raw();
        Self::choose(std::env::var_os("COMB_RUNTIME_DIR"), std::env::var_os("XDG_RUNTIME_DIR"), uid)
    }

    /// The one with this path, whatever the environment says.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, DirectoryError> {
        // The agent changes to `/`, so that it holds no file system: the path must not depend on where it is read.
        let path = path.into();
        let path = std::path::absolute(&path).map_err(|source| DirectoryError::System { path, source })?;
        let bytes = path.as_os_str().len();
        match bytes.checked_sub(LONGEST_PATH_BYTES) {
            None | Some(0) => Ok(Self { path }),
            Some(excess) => Err(DirectoryError::TooLong { path, excess }),
        }
    }

    fn choose(
        ours: Option<std::ffi::OsString>,
        xdg: Option<std::ffi::OsString>,
        uid: u32,
    ) -> Result<Self, DirectoryError> {
        // Set to nothing is as good as not set.
        let set = |value: Option<std::ffi::OsString>| value.filter(|v| !v.is_empty()).map(PathBuf::from);
        let path = set(ours)
            .or_else(|| set(xdg).map(|xdg| xdg.join("comb")))
            .unwrap_or_else(|| PathBuf::from(format!("/tmp/comb-{uid}")));
        Self::at(path)
    }

    /// Makes it, closed to others; or checks the one that is there.
    pub fn create(&self) -> Result<(), DirectoryError> {
        match std::fs::DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(self.system(error)),
            _ => self.check().map(drop),
        }
    }

    /// Whether it is there, ours, and closed to others. `Ok(false)`: it is not there.
    pub fn check(&self) -> Result<bool, DirectoryError> {
        let path = self.path.clone();
        let found = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            found => found.map_err(|error| self.system(error))?,
        };
        if !found.is_dir() {
            return Err(DirectoryError::NoDirectory(path));
        }
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(DirectoryError::NotOurs { path, owner: found.uid() });
        }
        let mode = found.mode() & 0o7777;
        // Where others may command they pass through, to the one socket that is open to them.
        if mode & 0o066 != 0 {
            return Err(DirectoryError::Open { path, mode });
        }
        Ok(true)
    }

    /// The same for who only asks: somebody else's will do if it was named by its path, for its owner may have listed us.
    pub fn check_to_ask(&self) -> Result<bool, DirectoryError> {
        match self.check() {
            Err(DirectoryError::NotOurs { .. }) if std::env::var_os("COMB_RUNTIME_DIR").is_some() => Ok(true),
            checked => checked,
        }
    }

    /// Lets others through to the socket for commands. All else in it is closed to them by its own mode.
    pub fn let_others_ask(&self) -> std::io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
        for file in FILES.map(|file| self.path.join(file)) {
            if file.exists() {
                mode(&file, 0o600)?;
            }
        }
        mode(&self.control_socket(), 0o666)?;
        mode(&self.path, 0o711)
    }

    /// Removes our files and the directory. `Ok(false)`: files of somebody else's making keep it there.
    pub fn remove(&self) -> Result<bool, DirectoryError> {
        for file in FILES {
            match std::fs::remove_file(self.path.join(file)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(self.system(error)),
                _ => {}
            }
        }
        for file in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if file.file_name().to_str().is_some_and(is_door) {
                let _ = std::fs::remove_file(file.path());
            }
        }
        let _ = std::fs::remove_dir_all(self.path.join(REGIONS));
        match std::fs::remove_dir(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.system(error)),
            _ => Ok(true),
        }
    }

    fn system(&self, source: std::io::Error) -> DirectoryError {
        DirectoryError::System { path: self.path.clone(), source }
    }

    /// Its path, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the agent brokers channels.
    pub fn agent_socket(&self) -> PathBuf {
        self.path.join("agent.sock")
    }

    /// Where the agent hears `comb` commands.
    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Where the agent hears its cells.
    pub fn cells_socket(&self) -> PathBuf {
        self.path.join("cells.sock")
    }

    /// What a restarted agent has to know.
    pub fn state_file(&self) -> PathBuf {
        self.path.join("agent.json")
    }

    /// Locked by the agent as long as it lives.
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("agent.lock")
    }

    /// What the agent and its cells have to say.
    pub fn log_file(&self) -> PathBuf {
        self.path.join("comb.log")
    }
}

/// Where a cell hears who wants to use its memory, such as `cell-3.door`.
fn is_door(file: &str) -> bool {
    let number = file.strip_prefix("cell-").and_then(|file| file.strip_suffix(".door"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

impl std::fmt::Display for RuntimeDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn choose(ours: Option<&str>, xdg: Option<&str>) -> Result<PathBuf, DirectoryError> {
        RuntimeDirectory::choose(ours.map(Into::into), xdg.map(Into::into), 1000).map(|found| found.path)
    }

    fn scratch(name: &str) -> RuntimeDirectory {
        let path = std::env::temp_dir().join(format!("comb-directory-{}-{name}", std::process::id()));
        RuntimeDirectory { path }
    }

    #[test]
    fn the_first_that_is_set_is_taken() {
        assert_eq!(choose(Some("/a"), Some("/x")).unwrap(), Path::new("/a"));
        assert_eq!(choose(None, Some("/x")).unwrap(), Path::new("/x/comb"));
        assert_eq!(choose(Some(""), Some("")).unwrap(), Path::new("/tmp/comb-1000"));
        assert!(choose(Some("here"), None).unwrap().is_absolute());
    }

    #[test]
    fn a_path_too_long_for_sockets_is_refused_early() {
        let longest = format!("/{}", "a".repeat(LONGEST_PATH_BYTES - 1));
        assert!(choose(Some(&longest), None).is_ok());
        let error = choose(Some(&format!("{longest}aaa")), None).unwrap_err();
        assert!(matches!(error, DirectoryError::TooLong { excess: 3, .. }), "{error}");
    }

    #[test]
    fn it_is_made_closed_and_removed_with_what_we_put_there() {
        let directory = scratch("made");
        assert!(!directory.check().unwrap());
        directory.create().unwrap();
        assert_eq!(std::fs::metadata(directory.path()).unwrap().mode() & 0o7777, 0o700);
        std::fs::write(directory.log_file(), "text").unwrap();
        std::fs::write(directory.path().join("cell-2.door"), "").unwrap();
        std::fs::create_dir(directory.path().join(REGIONS)).unwrap();
        std::fs::write(directory.path().join(REGIONS).join("name"), "").unwrap();
        directory.create().expect("it is ours");
        assert!(directory.remove().unwrap());
        assert!(!directory.check().unwrap());
        assert!(directory.remove().unwrap(), "not there is as good as removed");
    }

    #[test]
    fn what_others_may_enter_is_refused() {
        let directory = scratch("open");
        directory.create().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
        let error = directory.create().unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        directory.create().expect("others pass through, and see nothing");
        std::fs::remove_dir(directory.path()).unwrap();
    }

    #[test]
    fn a_link_or_a_file_is_refused() {
        let directory = scratch("link");
        std::os::unix::fs::symlink("/tmp", directory.path()).unwrap();
        assert!(matches!(directory.create(), Err(DirectoryError::NoDirectory(_))));
        std::fs::remove_file(directory.path()).unwrap();
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let directory = scratch("foreign");
        directory.create().unwrap();
        let foreign = directory.path().join("thesis.tex");
        std::fs::write(&foreign, "years of work").unwrap();
        assert!(!directory.remove().unwrap());
        assert!(foreign.exists());
        std::fs::remove_dir_all(directory.path()).unwrap();
    }
}
