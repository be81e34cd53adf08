//! The file that says which hosts belong together.

use super::{BadKey, PublicKey};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Names of hosts and their keys, one to a line:
///
/// ```text
/// # the room in the basement
/// alpha = ed25519:3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c
/// beta  = ed25519:fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025
/// beta  = ed25519:278117fc144c72340f67d0f2316e8386ceffbf2b2428c9c51fef7c597f1d426e   # from May on
/// ```
///
/// One host may have several keys, so that a new one can be announced before it is used. One key cannot have
/// several hosts: a connection must say who is there.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    file: PathBuf,
    hosts: Vec<(String, PublicKey)>,
}

/// Why a file of known hosts was not taken. A file that is half right is not used at all: what it lacks would
/// be noticed when it is needed.
#[derive(Debug, Error)]
pub enum KnownHostsError {
    /// It cannot be read.
    #[error("known hosts {file}: {error}")]
    File {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A line is wrong.
    #[error("known hosts {file}, line {line}: {problem}")]
    Line {
        /// Which.
        file: PathBuf,
        /// Counted from one.
        line: usize,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with a line of a file of known hosts.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Problem {
    /// No equals sign.
    #[error("expected NAME = KEY")]
    NotAPair,
    /// Not a name.
    #[error("a name is 1 to 64 letters, digits, dots, hyphens and underscores")]
    BadName,
    /// Not a key.
    #[error("{0}")]
    BadKey(BadKey),
    /// The key stands above for another host.
    #[error("this key belongs to {name} already")]
    KeyOfAnother {
        /// Which host.
        name: String,
    },
}

const LONGEST_NAME: usize = 64;

impl KnownHosts {
    /// Reads the file.
    pub fn load(file: &Path) -> Result<KnownHosts, KnownHostsError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| KnownHostsError::File { file: file.to_owned(), error })?;
        KnownHosts::parse(&text, file)
    }

    /// Takes the text of `file`, whose name is used in messages only.
    pub fn parse(text: &str, file: &Path) -> Result<KnownHosts, KnownHostsError> {
        let mut known = KnownHosts { file: file.to_owned(), hosts: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let entry = line.split_once('#').map_or(line, |(entry, _comment)| entry).trim();
            if !entry.is_empty() {
                known.add(entry).map_err(|problem| KnownHostsError::Line {
                    file: file.to_owned(),
                    line: number + 1,
                    problem,
                })?;
            }
        }
        Ok(known)
    }

    /// These hosts, as they are to be listed in `file`. What has no name, or a key of another, is left out.
    pub fn of<'a>(file: &Path, hosts: impl IntoIterator<Item = (&'a str, PublicKey)>) -> KnownHosts {
        let mut known = KnownHosts { file: file.to_owned(), hosts: Vec::new() };
        for (name, key) in hosts {
            let _ = known.add(&format!("{name} = {key}"));
        }
        known
    }

    /// Whether a host may be called so.
    pub fn is_name(name: &str) -> bool {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
        (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain)
    }

    /// The file that these came from: where an unknown key would have to be entered.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whose key this is.
    pub fn name_of(&self, key: &PublicKey) -> Option<&str> {
        self.hosts.iter().find(|(_, known)| known == key).map(|(name, _)| name.as_str())
    }

    /// The keys that a host may prove itself by.
    pub fn keys_of(&self, name: &str) -> impl Iterator<Item = PublicKey> {
        self.hosts.iter().filter(move |(known, _)| known == name).map(|(_, key)| *key)
    }

    /// All names with their keys, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, PublicKey)> {
        self.hosts.iter().map(|(name, key)| (name.as_str(), *key))
    }

    fn add(&mut self, entry: &str) -> Result<(), Problem> {
        let (name, key) = entry.split_once('=').ok_or(Problem::NotAPair)?;
        let (name, key) = (name.trim(), key.trim().parse::<PublicKey>().map_err(Problem::BadKey)?);
        if !KnownHosts::is_name(name) {
            return Err(Problem::BadName);
        }
        match self.name_of(&key) {
            Some(other) if other != name => Err(Problem::KeyOfAnother { name: other.to_owned() }),
            Some(_) => Ok(()),
            None => {
                self.hosts.push((name.to_owned(), key));
                Ok(())
            }
        }
    }
}
