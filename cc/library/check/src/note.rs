//! How objects were compiled: all of a program must be for the same access.

use std::fmt;
use std::path::PathBuf;

use crate::objects::{ObjectError, read_all};

/// The text of a note: version, access mode and block size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access(String);

impl Access {
    /// The notes of one section; a linker puts those of several objects behind each other, each ended by a zero.
    pub(crate) fn all_of(section: &[u8]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for text in section.split(|&byte| byte == 0).filter(|text| !text.is_empty()) {
            let access = Self(String::from_utf8_lossy(text).into_owned());
            if !all.contains(&access) {
                all.push(access);
            }
        }
        all
    }

    /// What is behind a word of it and an equals sign.
    fn word(&self, name: &str) -> Option<&str> {
        self.0.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The access mode's name.
    pub fn mode(&self) -> Option<&str> {
        self.word("access")
    }

    /// The size of a block.
    pub fn block_bytes(&self) -> Option<u64> {
        self.word("block")?.parse().ok()
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Two objects of one link that do not go together.
#[derive(Debug, PartialEq, Eq)]
pub struct Mixture {
    /// The first instrumented object of the link.
    pub file: String,
    /// How it was compiled.
    pub access: Access,
    /// One that was compiled in another way.
    pub other_file: String,
    /// Namely so.
    pub other_access: Access,
}

impl fmt::Display for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, access, other_file, other_access } = self;
        write!(f, "{file} is compiled for `{access}`, {other_file} for `{other_access}`")
    }
}

/// How the first of these that was instrumented was compiled, and its name.
pub fn first_access(files: &[PathBuf]) -> Result<Option<(String, Access)>, ObjectError> {
    let objects = read_all(files)?;
    let noted = objects.iter().find_map(|object| Some((object.name.clone(), object.access.first()?.clone())));
    Ok(noted)
}

/// Every object that was compiled for another access than the first.
pub fn mixtures(files: &[PathBuf]) -> Result<Vec<Mixture>, ObjectError> {
    let objects = read_all(files)?;
    let mut notes =
        objects.iter().flat_map(|object| object.access.iter().map(move |access| (object, access)));
    let Some((first, access)) = notes.next() else { return Ok(Vec::new()) };
    let others = notes.filter(|(_, other)| *other != access);
    Ok(others
        .map(|(object, other)| Mixture {
            file: first.name.clone(),
            access: access.clone(),
            other_file: object.name.clone(),
            other_access: other.clone(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_several_objects_behind_each_other() {
        let section =
            b"comb 1 access=check block=128\0comb 1 access=page block=4096\0comb 1 access=check block=128\0";
        let all: Vec<_> = Access::all_of(section).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["comb 1 access=check block=128", "comb 1 access=page block=4096"]);
        assert!(Access::all_of(b"").is_empty());
        let all = Access::all_of(section);
        assert_eq!((all[1].mode(), all[1].block_bytes()), (Some("page"), Some(4096)));
    }
}
