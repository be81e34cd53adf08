//! A directory with all that is in it, as a stream of frames: of this the host makes an edition of a shelf.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Of a file's content, in one frame.
const PIECE_BYTES: usize = 1 << 16;

/// What a stream says, in this order: what is to come; each entry, a directory before what is in it, and behind a file its content; the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Said {
    /// About so much follows: files may change meanwhile.
    Total {
        /// Files, directories and links.
        entries: u64,
        /// Of content.
        bytes: u64,
    },
    /// Something in the directory; the first is the directory itself, with an empty path.
    Entry(Entry),
    /// More of the file that was said last.
    Piece(Vec<u8>),
    /// There is no more.
    End,
}

/// A file, directory or link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Names from the directory on, with `/` between them.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Who may do what with it.
    pub mode: u16,
    /// Whose it is.
    pub user: u32,
    /// Of which group.
    pub group: u32,
    /// When it was changed: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// What an entry is. Others than these are left out, and hard links are files of their own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file, whose content follows.
    File {
        /// So long.
        bytes: u64,
    },
    /// A file as it is in the edition below, whose content does not follow.
    Same,
    /// A symbolic link.
    Link {
        /// To where.
        target: Vec<u8>,
    },
}

/// Says all that is in a directory. `changed`: what was changed of an edition lies there, and a file that does not is the same as in that one.
pub fn pack(
    directory: &Path,
    changed: Option<&Path>,
    mut say: impl FnMut(&Said) -> io::Result<()>,
) -> io::Result<()> {
    let mut entries = Vec::new();
    let mut bytes = 0;
    walk(directory, b"", &mut |path, found| {
        bytes += if found.is_file() { found.len() } else { 0 };
        entries.push(path.to_owned());
    })?;
    say(&Said::Total { entries: entries.len() as u64, bytes })?;
    for path in entries {
        let place = directory.join(OsStr::from_bytes(&path));
        match say_one(&place, path, changed, &mut say) {
            // It has gone since.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            said => said?,
        }
    }
    say(&Said::End)
}

/// Finds a directory and what is in it, each before what is in it, in the order of names.
fn walk(root: &Path, path: &[u8], found: &mut dyn FnMut(&[u8], &Metadata)) -> io::Result<()> {
    let place = if path.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(path)) };
    let metadata = if path.is_empty() { place.metadata()? } else { place.symlink_metadata()? };
    let is_directory = metadata.is_dir();
    if path.is_empty() && !is_directory {
        return Err(io::Error::new(ErrorKind::NotADirectory, "it is no directory"));
    }
    if !is_directory && !metadata.is_file() && !metadata.is_symlink() {
        return Ok(());
    }
    found(path, &metadata);
    if !is_directory {
        return Ok(());
    }
    let mut names = std::fs::read_dir(&place)?
        .map(|entry| entry.map(|entry| entry.file_name().into_vec()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let below = if path.is_empty() { name } else { [path, &name].join(&b'/') };
        match walk(root, &below, found) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            walked => walked?,
        }
    }
    Ok(())
}

fn say_one(
    place: &Path,
    path: Vec<u8>,
    changed: Option<&Path>,
    say: &mut dyn FnMut(&Said) -> io::Result<()>,
) -> io::Result<()> {
    let found = if path.is_empty() { place.metadata()? } else { place.symlink_metadata()? };
    let is_same = found.is_file()
        && changed.is_some_and(|changed| {
            !changed.join(OsStr::from_bytes(&path)).symlink_metadata().is_ok_and(|found| found.is_file())
        });
    let mut file = if found.is_file() && !is_same { Some(File::open(place)?) } else { None };
    let kind = match &file {
        Some(_) => Kind::File { bytes: found.len() },
        None if is_same => Kind::Same,
        None if found.is_symlink() => {
            Kind::Link { target: std::fs::read_link(place)?.into_os_string().into_vec() }
        }
        None => Kind::Directory,
    };
    say(&Said::Entry(Entry {
        path,
        kind,
        mode: u16::try_from(found.mode() & 0o7777).expect("twelve bits"),
        user: found.uid(),
        group: found.gid(),
        modified: (found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or(0)),
    }))?;
    let Some(file) = &mut file else { return Ok(()) };
    let mut left = found.len();
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let mut piece = vec![0; most];
        let read = file.read(&mut piece)?;
        // A file that has become shorter meanwhile ends in zeroes: its length has been said.
        piece.truncate(if read == 0 { most } else { read });
        left -= piece.len() as u64;
        say(&Said::Piece(piece))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_said_in_order_and_what_was_not_changed_is_not_said_again() {
        let place = std::env::temp_dir().join(format!("comb-guest-packing-{}", std::process::id()));
        let (directory, changed) = (place.join("all"), place.join("changed"));
        for path in [directory.join("b/c"), changed.join("b")] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(directory.join("b/long"), vec![7; PIECE_BYTES + 1]).unwrap();
        std::fs::write(directory.join("a"), "short").unwrap();
        std::os::unix::fs::symlink("b/long", directory.join("z")).unwrap();
        let said = |changed| {
            let mut all = Vec::new();
            pack(&directory, changed, |said| {
                all.push(match said {
                    Said::Total { entries, bytes } => format!("{entries} {bytes}"),
                    Said::Entry(entry) => {
                        format!("{} {:?}", String::from_utf8_lossy(&entry.path), entry.kind)
                    }
                    Said::Piece(bytes) => format!("+{}", bytes.len()),
                    Said::End => "end".to_owned(),
                });
                Ok(())
            })
            .unwrap();
            all
        };
        let mut wanted = vec![
            format!("6 {}", PIECE_BYTES + 6),
            " Directory".into(),
            "a File { bytes: 5 }".into(),
            "+5".into(),
            "b Directory".into(),
            "b/c Directory".into(),
            format!("b/long File {{ bytes: {} }}", PIECE_BYTES + 1),
            format!("+{PIECE_BYTES}"),
            "+1".into(),
            format!("z Link {{ target: {:?} }}", b"b/long"),
            "end".into(),
        ];
        assert_eq!(said(None), wanted);
        std::fs::write(changed.join("b/long"), "").unwrap();
        wanted.splice(2..4, ["a Same".to_owned()]);
        assert_eq!(said(Some(&changed)), wanted);
        assert!(pack(&directory.join("a"), None, |_| Ok(())).is_err());
        std::fs::remove_dir_all(place).unwrap();
    }
}
