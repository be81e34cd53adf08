//! Snapshots: all of a machine as it was at a moment, in a directory of its own, from which it goes on as often as one likes. (Disco §7.3)

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hardware::Hardware;
use crate::names::Name;

/// All snapshots of a user.
#[derive(Clone, Debug)]
pub struct Snapshots {
    directory: PathBuf,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    directory: PathBuf,
    /// Of what.
    pub of: Of,
}

/// What a snapshot is of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Of {
    /// The machine's name.
    pub machine: String,
    /// Its image, which is still needed.
    pub image: String,
    /// Its hardware.
    pub hardware: Hardware,
}

/// Why there is none.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// Nothing has this name.
    #[error("there is no snapshot `{0}`: `comb vm snapshots` lists them")]
    None(Name),
    /// Something has.
    #[error("there is a snapshot `{0}` already")]
    Exists(Name),
    /// What is there is none.
    #[error("the snapshot in {0} is broken: {1}")]
    Broken(PathBuf, String),
    /// The host.
    #[error("{0}: {1}")]
    Host(PathBuf, io::Error),
}

const DESCRIPTION: &str = "snapshot.json";

impl Snapshots {
    /// Those in a directory, which is made when it is needed.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// All, with their names.
    pub fn list(&self) -> Vec<(Name, Snapshot)> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<Name>().ok());
        let mut all: Vec<_> = names.filter_map(|name| Some((name.clone(), self.open(&name).ok()?))).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// The one with this name.
    pub fn open(&self, name: &Name) -> Result<Snapshot, SnapshotError> {
        let directory = self.directory.join(name.as_str());
        if !directory.exists() {
            return Err(SnapshotError::None(name.clone()));
        }
        let broken = |why: &dyn std::fmt::Display| SnapshotError::Broken(directory.clone(), why.to_string());
        let text = std::fs::read(directory.join(DESCRIPTION)).map_err(|error| broken(&error))?;
        let of = serde_json::from_slice(&text).map_err(|error| broken(&error))?;
        let snapshot = Snapshot { directory: directory.clone(), of };
        if !snapshot.state().exists() || !snapshot.root().exists() {
            return Err(broken(&"it has no state, or no root"));
        }
        Ok(snapshot)
    }

    /// Makes one: `save` has the machine write its state into a directory.
    pub fn make<E: From<SnapshotError>>(
        &self,
        name: &Name,
        of: &Of,
        save: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Snapshot, E> {
        let (place, new) = (self.directory.join(name.as_str()), self.directory.join(format!(".{name}.new")));
        if place.exists() {
            return Err(SnapshotError::Exists(name.clone()).into());
        }
        let host = |error| SnapshotError::Host(new.clone(), error);
        // Half a snapshot that somebody has left behind.
        let _ = std::fs::remove_dir_all(&new);
        std::fs::create_dir_all(&new).map_err(host)?;
        let made = save(&new).and_then(|()| {
            let text = serde_json::to_vec_pretty(of).expect("plain data");
            std::fs::write(new.join(DESCRIPTION), text).map_err(host)?;
            Ok(std::fs::rename(&new, &place).map_err(host)?)
        });
        if let Err(error) = made {
            let _ = std::fs::remove_dir_all(&new);
            return Err(error);
        }
        Ok(self.open(name)?)
    }

    /// Removes one.
    pub fn remove(&self, name: &Name) -> Result<(), SnapshotError> {
        let snapshot = self.directory.join(name.as_str());
        if !snapshot.exists() {
            return Err(SnapshotError::None(name.clone()));
        }
        std::fs::remove_dir_all(&snapshot).map_err(|error| SnapshotError::Host(snapshot, error))
    }
}

/// Files in a snapshot's directory.
pub(crate) fn state_in(directory: &Path) -> PathBuf {
    directory.join("state")
}

pub(crate) fn root_in(directory: &Path) -> PathBuf {
    directory.join("root")
}

impl Snapshot {
    /// Where its files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the machine stood, with its memory.
    pub fn state(&self) -> PathBuf {
        state_in(&self.directory)
    }

    /// Its root file system then.
    pub fn root(&self) -> PathBuf {
        root_in(&self.directory)
    }

    /// How much it takes.
    pub fn bytes(&self) -> u64 {
        let bytes = |path| std::fs::metadata(path).map_or(0, |found| found.len());
        bytes(self.state()) + bytes(self.root())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_snapshot_is_none_and_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("comb-vm-snapshot-{}", std::process::id()));
        let snapshots = Snapshots::at(directory.clone());
        let name: Name = "before".parse().unwrap();
        let of = Of { machine: "a".into(), image: "small".into(), hardware: Hardware::default() };
        let fails = |_: &Path| Err(SnapshotError::None("x".parse().unwrap()));
        snapshots.make(&name, &of, fails).unwrap_err();
        assert!(matches!(snapshots.open(&name), Err(SnapshotError::None(_))));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        let without = |_: &Path| Ok::<(), SnapshotError>(());
        let error = snapshots.make(&name, &of, without).unwrap_err();
        assert!(error.to_string().contains("it has no state, or no root"), "{error}");
        snapshots.remove(&name).unwrap();
        let saves = |at: &Path| {
            let files = [(state_in(at), "all"), (root_in(at), "root")];
            files
                .iter()
                .try_for_each(|(path, text)| std::fs::write(path, text))
                .map_err(|error| SnapshotError::Host(at.into(), error))
        };
        let made = snapshots.make(&name, &of, saves).unwrap();
        assert_eq!((made.of.clone(), made.bytes()), (of.clone(), 7));
        assert!(matches!(snapshots.make(&name, &of, saves), Err(SnapshotError::Exists(_))));
        assert_eq!(snapshots.list(), [(name, made)]);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
