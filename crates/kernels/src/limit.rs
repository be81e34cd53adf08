//! A group of processes of the host's that have so much memory together, and its page cache for them with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why there is none.
#[derive(Debug, Error)]
pub enum LimitError {
    /// The host has no memory controller that this process may use.
    #[error("no memory cgroup can be made here: {0}")]
    NoController(String),
    /// It has one, and refuses.
    #[error("{path}: {error}")]
    Host {
        /// What was read or written.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
}

/// One, gone at the end.
#[derive(Debug)]
pub struct Limit {
    path: PathBuf,
    peak: &'static str,
    /// Where this process was before.
    home: PathBuf,
}

/// Who is in a group.
const MEMBERS: &str = "cgroup.procs";

/// Where a kind of hierarchy is mounted, and where in it this process is.
fn hierarchy(kind: &str, option: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let is_it = |fields: &[&str]| {
        fields.get(2) == Some(&kind)
            && option
                .is_none_or(|option| fields.get(3).is_some_and(|all| all.split(',').any(|one| one == option)))
    };
    let mount =
        mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| is_it(fields))?;
    let mount = PathBuf::from(*mount.get(1)?);
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_own =
            option.map_or(controllers.is_empty(), |option| controllers.split(',').any(|one| one == option));
        is_own.then(|| path.trim_start_matches('/').to_owned())
    })?;
    let home = mount.join(own);
    Some((mount.clone(), if home.is_dir() { home } else { mount }))
}

impl Limit {
    /// One of so many bytes, below where this process is, or below the root.
    pub fn new(name: &str, bytes: u64) -> Result<Self, LimitError> {
        let kinds = [
            ("cgroup", Some("memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("cgroup2", None, "memory.max", "memory.peak"),
        ];
        let mut why = "none is mounted".to_owned();
        for (kind, option, limit, peak) in kinds {
            let Some((root, home)) = hierarchy(kind, option) else { continue };
            for parent in [&home, &root] {
                let path = parent.join(format!("comb-{name}-{}", std::process::id()));
                if let Err(error) = fs::create_dir(&path) {
                    why = format!("{}: {error}", path.display());
                    continue;
                }
                let made = Self { path, peak, home: home.clone() };
                match fs::write(made.path.join(limit), bytes.to_string()) {
                    Ok(()) => return Ok(made),
                    Err(error) => why = format!("{}: {error}", made.path.join(limit).display()),
                }
            }
        }
        Err(LimitError::NoController(why))
    }

    /// The file to which a process writes its number to be in it.
    pub fn members(&self) -> PathBuf {
        self.path.join(MEMBERS)
    }

    /// Has this process in it, until what this returns goes.
    pub fn enter(&self) -> Result<Inside<'_>, LimitError> {
        move_to(&self.path)?;
        Ok(Inside { home: &self.home })
    }

    /// The most that its processes have had at a time, if the host says so.
    pub fn peak_bytes(&self) -> Option<u64> {
        fs::read_to_string(self.path.join(self.peak)).ok()?.trim().parse().ok()
    }
}

fn move_to(path: &Path) -> Result<(), LimitError> {
    let path = path.join(MEMBERS);
    fs::write(&path, std::process::id().to_string()).map_err(|error| LimitError::Host { path, error })
}

impl Drop for Limit {
    fn drop(&mut self) {
        // Who is still in it has to end first; then it is an empty directory that somebody removes.
        let _ = fs::remove_dir(&self.path);
    }
}

/// This process is in a group.
#[derive(Debug)]
pub struct Inside<'a> {
    home: &'a Path,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Where it cannot go back it stays.
        let _ = move_to(self.home);
    }
}
