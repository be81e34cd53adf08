//! Where everything of one agent is: sockets, state, lock, log. Whoever may write here may command the agent, so
//! the directory is the user's own and closed to all others.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::comb_name::{BadName, CombName};

/// A socket's address takes 107 bytes and our longest file name is `control.sock`.
const LONGEST_PATH_BYTES: usize = 107 - "/control.sock".len();

/// Where the comb of a service is.
const OF_SERVICE: &str = "/run/comb";

/// Names of regions are files in it.
const REGIONS: &str = "regions";

/// The names of all files that we ever make there, besides cells' doors. Nothing else is removed.
const FILES: [&str; 12] = [
    "agent.sock",
    "control.sock",
    "cells.sock",
    "keep.sock",
    "agent.json",
    "agent.json.new",
    "agent.lock",
    "comb.log",
    "events.jsonl",
    "events.jsonl.1",
    "dashboard.json",
    "dashboard.html",
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
    /// `COMB_NAME` is none.
    #[error("COMB_NAME: {0}")]
    Name(#[from] BadName),
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
    /// `$COMB_RUNTIME_DIR`, else that of the comb that is called `$COMB_NAME`, else that of the one without a name.
    pub fn from_environment() -> Result<Self, DirectoryError> {
        if let Some(path) = set("COMB_RUNTIME_DIR") {
            return Self::at(path);
        }
        let name = set("COMB_NAME").map(|name| name.to_string_lossy().parse::<CombName>()).transpose()?;
        Self::of(name.as_ref())
    }

    /// That of a comb of this user's, by its name, whatever `$COMB_RUNTIME_DIR` says: `$XDG_RUNTIME_DIR/comb`, else for root
    /// `/run/comb`, else `/tmp/comb-<uid>`, each with `-<name>` behind.
    pub fn of(name: Option<&CombName>) -> Result<Self, DirectoryError> {
        let (parent, mut file) = place();
        if let Some(name) = name {
            file = format!("{file}-{name}");
        }
        Self::at(parent.join(file))
    }

    /// Those of this user where an agent is or was, with their combs' names: where they are looked for, and the one that
    /// `$COMB_RUNTIME_DIR` says.
    pub fn all() -> Result<Vec<(Option<CombName>, Self)>, DirectoryError> {
        let (parent, first) = place();
        let mut all: Vec<(Option<CombName>, Self)> = Vec::new();
        for file in std::fs::read_dir(&parent).into_iter().flatten().flatten() {
            let file = file.file_name();
            let Some(rest) = file.to_str().and_then(|file| file.strip_prefix(&first)) else { continue };
            let name = match rest.strip_prefix('-').map(str::parse) {
                Some(Ok(name)) => Some(name),
                None if rest.is_empty() => None,
                _ => continue,
            };
            all.push((name, Self::at(parent.join(file))?));
        }
        if let Some(path) = set("COMB_RUNTIME_DIR") {
            let said = Self::at(path)?;
            if all.iter().all(|(_, known)| *known != said) {
                all.push((None, said));
            }
        }
        // Of others, or of nobody: not ours to tell of.
        all.retain(|(_, directory)| {
            directory.check().unwrap_or(false)
                && (directory.lock_file().exists() || directory.state_file().exists())
        });
        all.sort_by(|(one, here), (other, there)| (one, &here.path).cmp(&(other, &there.path)));
        Ok(all)
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

    /// What has happened, for programs.
    pub fn events_file(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// The same of before, when that file became long.
    pub fn events_before_file(&self) -> PathBuf {
        self.path.join("events.jsonl.1")
    }

    /// Where the dashboard listens, and what it wants to hear.
    pub fn dashboard_file(&self) -> PathBuf {
        self.path.join("dashboard.json")
    }
}

/// A variable's value. Set to nothing is as good as not set.
fn set(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where combs' directories are, and what that of the one without a name is called there.
fn place() -> (PathBuf, String) {
    let uid = rustix::process::getuid().as_raw();
    // Who is root of a user namespace only has another's /run.
    let run_is_ours = uid == 0 && std::fs::metadata("/run").is_ok_and(|run| run.uid() == 0);
    // A service manager makes it for a service of this user's, who is to find that.
    let service = std::fs::symlink_metadata(OF_SERVICE);
    let has_service = service.is_ok_and(|found| found.is_dir() && found.uid() == uid);
    choose(set("XDG_RUNTIME_DIR").filter(|_| !has_service), uid, run_is_ours || has_service)
}

fn choose(xdg: Option<PathBuf>, uid: u32, run_is_ours: bool) -> (PathBuf, String) {
    match xdg {
        Some(xdg) => (xdg, "comb".to_owned()),
        None if run_is_ours => ("/run".into(), "comb".to_owned()),
        None => ("/tmp".into(), format!("comb-{uid}")),
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

    fn scratch(name: &str) -> RuntimeDirectory {
        let path = std::env::temp_dir().join(format!("comb-directory-{}-{name}", std::process::id()));
        RuntimeDirectory { path }
    }

    #[test]
    fn the_first_that_is_set_is_taken() {
        let path = |xdg: Option<&str>, uid, run_is_ours| {
            let (parent, file) = choose(xdg.map(Into::into), uid, run_is_ours);
            parent.join(file)
        };
        assert_eq!(path(Some("/x"), 0, true), Path::new("/x/comb"));
        assert_eq!(path(None, 0, true), Path::new("/run/comb"));
        assert_eq!(path(None, 0, false), Path::new("/tmp/comb-0"));
        assert_eq!(path(None, 1000, false), Path::new("/tmp/comb-1000"));
        assert!(RuntimeDirectory::at("here").unwrap().path.is_absolute());
    }

    #[test]
    fn a_path_too_long_for_sockets_is_refused_early() {
        let longest = format!("/{}", "a".repeat(LONGEST_PATH_BYTES - 1));
        assert!(RuntimeDirectory::at(&longest).is_ok());
        let error = RuntimeDirectory::at(format!("{longest}aaa")).unwrap_err();
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
