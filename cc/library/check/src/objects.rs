//! ELF files and archives of them: what each object needs, what it defines, and whether combcc made it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use object::read::archive::ArchiveFile;
use object::read::{File, Object as _, ObjectSection as _, ObjectSymbol as _};
use object::{FileKind, ObjectKind};

use crate::note::Access;

/// Where combcc writes how it compiled.
const NOTE_SECTION: &str = ".comb.note";

/// Why a file of a link could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// There is no such file, or it cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is neither an ELF file nor an archive of them, or it is damaged.
    #[error("{path}: {error}", path = path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        error: object::read::Error,
    },
}

/// One object of a link.
#[derive(Debug)]
pub(crate) struct Object {
    /// As people look for it: `libparts.a(one.o)` for a member.
    pub(crate) name: String,
    /// Only counts when something needs what it defines.
    pub(crate) is_member: bool,
    /// Already linked: what it needs has been looked at when it was made.
    pub(crate) is_linked: bool,
    /// What combcc noted; empty for a plain object.
    pub(crate) access: Vec<Access>,
    pub(crate) defined: BTreeSet<String>,
    pub(crate) needed: BTreeSet<String>,
}

impl Object {
    pub(crate) fn is_instrumented(&self) -> bool {
        !self.access.is_empty()
    }
}

/// All objects of these files. Texts that are linker scripts in truth (`libc.so` is one) have none.
pub(crate) fn read_all(files: &[PathBuf]) -> Result<Vec<Object>, ObjectError> {
    let mut objects = Vec::new();
    for path in files {
        read(path, &mut objects)?;
    }
    Ok(objects)
}

fn read(path: &Path, objects: &mut Vec<Object>) -> Result<(), ObjectError> {
    let content = fs::read(path).map_err(|error| ObjectError::Read { path: path.to_path_buf(), error })?;
    let malformed = |error| ObjectError::Malformed { path: path.to_path_buf(), error };
    let name = path.display().to_string();
    match FileKind::parse(&*content) {
        Ok(FileKind::Archive) => {
            let archive = ArchiveFile::parse(&*content).map_err(malformed)?;
            for member in archive.members() {
                let member = member.map_err(malformed)?;
                let data = member.data(&*content).map_err(malformed)?;
                let member_name = format!("{name}({})", String::from_utf8_lossy(member.name()));
                objects.push(Object { is_member: true, ..one(member_name, data).map_err(malformed)? });
            }
            Ok(())
        }
        Err(_) if content.is_ascii() => Ok(()),
        _ => {
            objects.push(one(name, &content).map_err(malformed)?);
            Ok(())
        }
    }
}

fn one(name: String, content: &[u8]) -> Result<Object, object::read::Error> {
    let file = File::parse(content)?;
    let mut object = Object {
        name,
        is_member: false,
        is_linked: file.kind() != ObjectKind::Relocatable,
        access: Vec::new(),
        defined: BTreeSet::new(),
        needed: BTreeSet::new(),
    };
    if let Some(section) = file.section_by_name(NOTE_SECTION) {
        object.access = Access::all_of(section.data()?);
    }
    let symbols = if object.is_linked { file.dynamic_symbols() } else { file.symbols() };
    for symbol in symbols {
        let Ok(name) = symbol.name() else { continue };
        if name.is_empty() || symbol.is_local() {
            continue;
        }
        // A version behind the name is the dynamic linker's business.
        let name = name.split('@').next().unwrap_or(name).to_owned();
        if symbol.is_undefined() {
            object.needed.insert(name);
        } else {
            object.defined.insert(name);
        }
    }
    Ok(object)
}
