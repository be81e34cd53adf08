//! Names of regions on a host, and where each lies in the heap: a file a name, in the runtime directory.
//!
//! A home writes and removes its own; whoever attaches reads. A file whose home is gone says which cell a region was lost with, until that cell
//! is started again.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::{ADDRESSES, Mode, Owner};
use crate::terms::Allocation;

/// Where the files are, in the runtime directory.
pub const DIRECTORY: &str = "regions";
/// Held while addresses are chosen.
const LOCK: &str = ".lock";
/// Between two regions nobody has memory: a store beyond the end of one meets nothing. And what is marked together is not of two.
const APART: u64 = 2 << 20;
const LONGEST_NAME: usize = 64;

/// A region as its name's file tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The cell that it lives in.
    pub cell: u32,
    /// In which life of that cell.
    pub incarnation: u64,
    /// Whose it is.
    pub owner: Owner,
    /// Who may do what with it.
    pub mode: Mode,
    /// Its place and shape.
    pub allocation: Allocation,
    /// Where its last checkpoint is, if there is any: what becomes of it when it is lost.
    #[serde(default)]
    pub saved: Option<PathBuf>,
}

/// Why a name is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no name for a region: up to 64 letters, digits, dots, dashes and underscores, not a dot or dash first"
)]
pub struct NameError(String);

/// Why the register cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// As it says.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It is taken.
    #[error("there is a region {0} already: `comb region rm {0}` removes it")]
    Taken(String),
    /// There are so many already.
    #[error("no {0} addresses in a row are left for regions")]
    NoAddresses(u64),
    /// The system refuses.
    #[error("cannot use {path}: {source}")]
    System {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what a home writes.
    #[error("{0} is damaged: `comb down` and `comb up` begin anew")]
    Damaged(PathBuf),
}

/// The names of one host.
#[derive(Clone, Debug)]
pub struct Register {
    directory: PathBuf,
}

/// Whether a name can be one.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_good = (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(is_known)
        && !name.starts_with(['.', '-']);
    if is_good { Ok(()) } else { Err(NameError(name.chars().take(LONGEST_NAME).collect())) }
}

/// Where a cell's home hears who wants to come in.
pub fn door(runtime: &Path, cell: u32) -> PathBuf {
    runtime.join(format!("cell-{cell}.door"))
}

impl Register {
    /// That of the agent whose runtime directory this is.
    pub fn of(runtime: &Path) -> Self {
        Self { directory: runtime.join(DIRECTORY) }
    }

    fn system(path: &Path) -> impl FnOnce(std::io::Error) -> RegisterError + '_ {
        move |source| RegisterError::System { path: path.to_owned(), source }
    }

    /// All regions, by name.
    pub fn all(&self) -> Result<Vec<Entry>, RegisterError> {
        let listed = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(Self::system(&self.directory))?,
        };
        let mut entries = Vec::new();
        for file in listed.flatten() {
            if let Some(name) = file.file_name().to_str().filter(|name| check_name(name).is_ok())
                && let Some(entry) = self.find(name)?
            {
                entries.push(entry);
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// The region of that name.
    pub fn find(&self, name: &str) -> Result<Option<Entry>, RegisterError> {
        check_name(name)?;
        let path = self.directory.join(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(Self::system(&path))?,
        };
        let entry: Option<Entry> = serde_json::from_str(&text).ok();
        entry.filter(|entry| entry.name == name).map(Some).ok_or(RegisterError::Damaged(path))
    }

    /// Gives a region a name, and so many addresses; `make` is told where they begin.
    pub(crate) fn enter(
        &self,
        name: &str,
        span: u64,
        make: impl FnOnce(u64) -> Entry,
    ) -> Result<Entry, RegisterError> {
        check_name(name)?;
        let _locked = self.lock()?;
        let entries = self.all()?;
        if entries.iter().any(|entry| entry.name == name) {
            return Err(RegisterError::Taken(name.to_owned()));
        }
        let offset = free(&entries, span).ok_or(RegisterError::NoAddresses(span))?;
        let entry = make(offset);
        self.write(&entry)?;
        Ok(entry)
    }

    fn write(&self, entry: &Entry) -> Result<(), RegisterError> {
        let (fresh, path) = (self.directory.join(".new"), self.directory.join(&entry.name));
        let text = serde_json::to_vec_pretty(entry).expect("plain data");
        std::fs::write(&fresh, text).map_err(Self::system(&fresh))?;
        std::fs::rename(&fresh, &path).map_err(Self::system(&path))
    }

    /// A region is of another generation, or lives elsewhere. To be called by its home.
    pub(crate) fn renew(&self, entry: &Entry) -> Result<(), RegisterError> {
        let _locked = self.lock()?;
        self.write(entry)
    }

    /// A name is free. To be called by the region's home, or when that is gone.
    pub fn remove(&self, name: &str) -> Result<(), RegisterError> {
        check_name(name)?;
        let path = self.directory.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Self::system(&path)(error)),
            _ => Ok(()),
        }
    }

    /// What earlier lives of a cell have left.
    pub(crate) fn of_cell(&self, cell: u32) -> Result<Vec<Entry>, RegisterError> {
        Ok(self.all()?.into_iter().filter(|entry| entry.cell == cell).collect())
    }

    /// Forgets what a cell has.
    pub(crate) fn clear_of(&self, cell: u32) -> Result<(), RegisterError> {
        let _locked = self.lock()?;
        for entry in self.of_cell(cell)? {
            self.remove(&entry.name)?;
        }
        Ok(())
    }

    fn lock(&self) -> Result<File, RegisterError> {
        std::fs::create_dir_all(&self.directory).map_err(Self::system(&self.directory))?;
        let path = self.directory.join(LOCK);
        let file = File::options().create(true).append(true).open(&path).map_err(Self::system(&path))?;
        let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive);
        locked.map_err(|error| Self::system(&path)(error.into()))?;
        Ok(file)
    }
}

/// The first addresses in a row that no region has.
fn free(entries: &[Entry], span: u64) -> Option<u64> {
    let length = span.checked_add(APART)?.checked_next_multiple_of(APART)?;
    let mut taken: Vec<(u64, u64)> = entries
        .iter()
        .filter_map(|entry| {
            let span = entry.allocation.layout().ok()?.span();
            Some((entry.allocation.offset, (span + APART).next_multiple_of(APART)))
        })
        .collect();
    taken.sort_unstable();
    let mut begin = ADDRESSES.start;
    for (offset, length_there) in taken {
        if offset.checked_sub(begin)? >= length {
            return Some(begin);
        }
        begin = offset + length_there;
    }
    (ADDRESSES.end.checked_sub(begin)? >= length).then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Terms;

    fn register(name: &str) -> Register {
        let runtime = std::env::temp_dir().join(format!("comb-register-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&runtime);
        std::fs::create_dir_all(&runtime).unwrap();
        Register::of(&runtime)
    }

    fn entry(name: &str, cell: u32, bytes: u64, offset: u64) -> Entry {
        let terms = Terms::default();
        let allocation = Allocation { offset, bytes, generation: 1, creator: cell, terms, image: 0 };
        let owner = Owner { user: 1, group: 1 };
        Entry {
            name: name.to_owned(),
            cell,
            incarnation: 1,
            owner,
            mode: Mode::default(),
            allocation,
            saved: None,
        }
    }

    #[test]
    fn a_name_is_one_region_and_addresses_are_its_own() {
        let register = register("names");
        assert_eq!(register.all().unwrap(), []);
        let enter =
            |name: &str, bytes: u64| register.enter(name, bytes, |offset| entry(name, 1, bytes, offset));
        let a = enter("a", 5 << 20).unwrap();
        let b = enter("b", 4096).unwrap();
        let c = enter("c", 1 << 40).unwrap();
        assert!(matches!(enter("a", 4096), Err(RegisterError::Taken(_))));
        assert!(matches!(enter("d", 1 << 43), Err(RegisterError::NoAddresses(_))));
        assert_eq!(a.allocation.offset, ADDRESSES.start);
        assert!(b.allocation.offset >= a.allocation.offset + (5 << 20) + 4096);
        assert!(c.allocation.offset > b.allocation.offset);
        assert_eq!(register.find("b").unwrap(), Some(b.clone()));
        register.remove("a").unwrap();
        assert_eq!(enter("e", 1 << 20).unwrap().allocation.offset, ADDRESSES.start, "free again");
        let mut of_two = entry("f", 2, 4096, 0);
        of_two = register
            .enter("f", 4096, |offset| Entry {
                allocation: Allocation { offset, ..of_two.allocation },
                saved: None,
                ..of_two
            })
            .unwrap();
        register.clear_of(1).unwrap();
        assert_eq!(register.all().unwrap(), [of_two]);
        std::fs::remove_dir_all(register.directory.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_leads_elsewhere_is_no_name() {
        for name in ["", ".", "..", "../x", "a/b", ".lock", "-f", "ä", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["a", "matrix-2", "A_b.c", &"x".repeat(64)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_damaged_file_is_told() {
        let register = register("damaged");
        std::fs::create_dir_all(&register.directory).unwrap();
        std::fs::write(register.directory.join("x"), "{").unwrap();
        assert!(matches!(register.find("x"), Err(RegisterError::Damaged(_))));
        std::fs::remove_dir_all(register.directory.parent().unwrap()).unwrap();
    }
}
