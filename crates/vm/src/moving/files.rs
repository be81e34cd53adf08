//! Files that go to another host: an image that it has not, and snapshots.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

use super::pages::PAGE;
use super::{Heard, MoveError, PART_BYTES, SILENCE_LIMIT, Talk, Word, hexadecimal};
use crate::image::{Image, ImageError, Images};
use crate::names::Name;

/// An image's.
pub const OF_IMAGE: [&str; 4] = ["version", "kernel", "initrd", "root"];

/// A snapshot's, beside its description.
pub const OF_SNAPSHOT: [&str; 2] = ["state", "root"];

/// No file is longer.
const MOST_FILE_BYTES: u64 = 1 << 42;

/// Of its digest, at the end of an image's name where another has that.
const DIGEST_DIGITS: usize = 8;

fn host(path: &Path) -> impl Fn(io::Error) -> MoveError {
    let path = path.display().to_string();
    move |error| MoveError::Host(path.clone(), error)
}

/// Hands out all pages of a file in which something is other than zero, many at a time.
fn walk(path: &Path, mut take: impl FnMut(u64, &[u8]) -> Result<(), MoveError>) -> Result<(), MoveError> {
    let fails = host(path);
    let file = File::open(path).map_err(&fails)?;
    let length = file.metadata().map_err(&fails)?.len();
    let mut space = vec![0; PART_BYTES];
    let mut at = 0;
    while at < length {
        let begin = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(begin) => begin / PAGE as u64 * PAGE as u64,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(fails(error.into())),
        };
        let some = &mut space[..usize::try_from((length - begin).min(PART_BYTES as u64)).expect("a part")];
        file.read_exact_at(some, begin).map_err(&fails)?;
        let mut run = 0..0;
        for (index, page) in some.chunks(PAGE).enumerate() {
            if page.iter().all(|&byte| byte == 0) {
                continue;
            }
            if run.end != index * PAGE {
                if !run.is_empty() {
                    take(begin + run.start as u64, &some[run])?;
                }
                run = index * PAGE..0;
            }
            run.end = index * PAGE + page.len();
        }
        if !run.is_empty() {
            take(begin + run.start as u64, &some[run])?;
        }
        at = begin + some.len() as u64;
    }
    Ok(())
}

/// Of all files of an image: images with the same are the same, wherever their files have holes.
pub fn digest(image: &Image) -> Result<String, MoveError> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for name in OF_IMAGE {
        let path = image.directory.join(name);
        let length = std::fs::metadata(&path).map_err(host(&path))?.len();
        context.update(&length.to_le_bytes());
        walk(&path, |at, bytes| {
            for (index, page) in bytes.chunks(PAGE).enumerate() {
                context.update(&(at + (index * PAGE) as u64).to_le_bytes());
                context.update(page);
            }
            Ok(())
        })?;
    }
    Ok(hexadecimal(context.finish().as_ref()))
}

/// Sends files of a directory.
pub fn send(talk: &mut Talk, directory: &Path, names: &[&str]) -> Result<(), MoveError> {
    for (number, name) in (0..).zip(names) {
        let path = directory.join(name);
        let bytes = std::fs::metadata(&path).map_err(host(&path))?.len();
        talk.say(&Word::File { number, bytes })?;
        walk(&path, |at, part| talk.pass_part(at, part))?;
        talk.say(&Word::FileEnds)?;
    }
    Ok(())
}

/// Takes files into a directory, where there are none of these names.
pub fn receive(talk: &mut Talk, directory: &Path, names: &[&str]) -> Result<(), MoveError> {
    for (expected, name) in (0..).zip(names) {
        let path = directory.join(name);
        let length = match talk.word(SILENCE_LIMIT)? {
            Word::File { number, bytes } if number == expected && bytes <= MOST_FILE_BYTES => bytes,
            other => return Err(MoveError::Nonsense(format!("{other:?} instead of a file"))),
        };
        let file = File::create_new(&path).map_err(host(&path))?;
        file.set_len(length).map_err(host(&path))?;
        loop {
            match talk.next(SILENCE_LIMIT)? {
                Heard::Part { at, bytes }
                    if at.checked_add(bytes.len() as u64).is_some_and(|end| end <= length) =>
                {
                    file.write_all_at(&bytes, at).map_err(host(&path))?;
                }
                Heard::Word(Word::FileEnds) => break,
                _ => return Err(MoveError::Nonsense("what is no part of a file".into())),
            }
        }
    }
    Ok(())
}

/// The image with this digest, if this host has it: by the name that is said, or by that and the digest's beginning.
pub fn find(images: &Images, name: &Name, wanted: &str) -> Result<Option<Image>, MoveError> {
    for name in [Ok(name.clone()), other_name(name, wanted)] {
        let found = name.map(|name| images.open(&name));
        if let Ok(Ok(image)) = found
            && digest(&image)? == wanted
        {
            return Ok(Some(image));
        }
    }
    Ok(None)
}

fn other_name(name: &Name, digest: &str) -> Result<Name, MoveError> {
    let begin: String = name.as_str().chars().take(40 - 1 - DIGEST_DIGITS).collect();
    let named = format!("{begin}-{}", &digest[..DIGEST_DIGITS]).parse::<Name>();
    named.map_err(|error| MoveError::Nonsense(error.to_string()))
}

/// Takes an image, which is to have this digest.
pub fn receive_image(
    talk: &mut Talk,
    images: &Images,
    name: &Name,
    wanted: &str,
) -> Result<Image, MoveError> {
    let name = if images.place(name).exists() { other_name(name, wanted)? } else { name.clone() };
    let place = images.place(&name);
    let new: PathBuf = place.with_file_name(format!(".{name}.{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&new);
    std::fs::create_dir_all(&new).map_err(host(&new))?;
    let received = receive(talk, &new, &OF_IMAGE).and_then(|()| {
        let arrived = Image {
            name: name.clone(),
            directory: new.clone(),
            kernel_version: String::new(),
            root_bytes: 0,
        };
        if digest(&arrived)? != wanted {
            return Err(MoveError::Nonsense("an image with another digest".into()));
        }
        // Another may have brought it meanwhile.
        std::fs::rename(&new, &place)
            .or_else(|error| if place.exists() { Ok(()) } else { Err(host(&place)(error)) })
    });
    let _ = std::fs::remove_dir_all(&new);
    received?;
    let image = images.open(&name).map_err(|error: ImageError| MoveError::Here(error.to_string()))?;
    if digest(&image)? != wanted {
        return Err(MoveError::Here(format!("image {name} is another here")));
    }
    Ok(image)
}
