//! Templates: a machine that has begun, as files under the memory of others. They continue where it stood, and what they change is their own. (Disco §4.2.5, of more than disks)

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use comb_guest::wire::{Become, Command};
use rustix::fs::{FlockOperation, flock};

use crate::attached::Devices;
use crate::engine::{Engine, EngineError};
use crate::hardware::{Backing, Hardware, Root, Under, memory_file};
use crate::image::Image;

/// A guest has begun by then, on a machine that does much else.
const BEGIN_LIMIT: Duration = Duration::from_secs(300);

/// What a guest does not use it tells of within two seconds, and it is in no file then.
const TELLING: Duration = Duration::from_millis(2_500);

/// What clones begin from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    directory: PathBuf,
}

/// How that for such hardware is called.
fn kind(hardware: &Hardware) -> String {
    let (megabytes, processors) = (hardware.memory_bytes >> 20, hardware.processors);
    let nodes = if hardware.nodes > 1 { format!("-{}-nodes", hardware.nodes) } else { String::new() };
    let room = if hardware.has_room() { format!("-{}M", hardware.most_bytes >> 20) } else { String::new() };
    format!("template-{megabytes}M{room}-{processors}-{}{nodes}", hardware.accelerator.as_str())
}

impl Template {
    /// That of an image for such hardware, if it has been made.
    pub fn there(image: &Image, hardware: &Hardware) -> Option<Self> {
        let directory = image.directory.join(kind(hardware));
        directory.exists().then_some(Self { directory })
    }

    /// That of an image for such hardware, which is made if it is not there yet: `says` hears of that.
    pub fn of(image: &Image, hardware: &Hardware, says: &mut dyn FnMut(&str)) -> Result<Self, EngineError> {
        let kind = kind(hardware);
        let (directory, new) = (image.directory.join(&kind), image.directory.join(format!(".{kind}.new")));
        let host = |error| EngineError::Host("the template", error);
        // One makes it, and others who want it wait.
        let lock = File::create(image.directory.join(format!(".{kind}.lock"))).map_err(host)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| host(error.into()))?;
        let template = Self { directory };
        if template.directory.exists() {
            return Ok(template);
        }
        says(&format!(
            "makes a template of {} with {} MB of memory",
            image.name,
            hardware.memory_bytes >> 20
        ));
        let _ = std::fs::remove_dir_all(&new);
        let made = make(image, hardware, &new)
            .and_then(|()| std::fs::rename(&new, &template.directory).map_err(host));
        if made.is_err() {
            let _ = std::fs::remove_dir_all(&new);
        }
        made.map(|()| template)
    }

    /// What is under a clone's memory.
    pub fn backing(&self) -> Backing {
        Backing {
            ram: Some(self.directory.join("ram")),
            root: Root::Memory(self.directory.join("root")),
            under: Under::Private,
            devices: Devices::default(),
        }
    }

    /// Where the machine stood.
    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }
}

fn make(image: &Image, hardware: &Hardware, directory: &Path) -> Result<(), EngineError> {
    let host = |error: io::Error| EngineError::Host("the template", error);
    std::fs::create_dir(directory).map_err(host)?;
    let (ram, root) = (directory.join("ram"), directory.join("root"));
    copy_with_holes(&image.directory.join("root"), &root).map_err(host)?;
    for (node, bytes) in (0..).zip(hardware.memory_of_nodes()) {
        File::create_new(memory_file(&ram, node)).and_then(|file| file.set_len(bytes)).map_err(host)?;
    }
    let backing = Backing {
        ram: Some(ram),
        root: Root::Memory(root),
        under: Under::Shared,
        devices: Devices::default(),
    };
    let mut engine = Engine::start(hardware, image, &backing, false, None)?;
    engine.become_who(Become { name: image.name.to_string(), ..Become::default() }, BEGIN_LIMIT)?;
    // Pages that are free lie together then, which are told of by the block; a guest that cannot do that has more of them in the file.
    let together = "echo 1 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory";
    let arguments = ["sh", "-c", together].map(|word| word.as_bytes().to_vec()).to_vec();
    engine.run(Command { arguments, ..Command::default() }, BEGIN_LIMIT)?;
    std::thread::sleep(TELLING);
    engine.save(&directory.join("state"), true)
}

/// Copies a file of which parts were never written, which it is to be in the copy, too.
fn copy_with_holes(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create_new(to)?);
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let begin = match rustix::fs::seek(&from, rustix::fs::SeekFrom::Data(at)) {
            Ok(begin) => begin,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&from, rustix::fs::SeekFrom::Hole(begin))?;
        let (mut from_at, mut to_at) = (begin, begin);
        while from_at < end {
            let left = usize::try_from(end - from_at).expect("a part of a file");
            if rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), left)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn a_copy_has_the_same_content_and_the_same_holes() {
        let directory = std::env::temp_dir().join(format!("comb-vm-template-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (one, other) = (directory.join("one"), directory.join("other"));
        let file = File::create(&one).unwrap();
        file.set_len(64 << 20).unwrap();
        for at in [0, 5 << 20, (64 << 20) - 4096] {
            file.write_all_at(&[7; 4096], at).unwrap();
        }
        copy_with_holes(&one, &other).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&other).unwrap());
        assert!(std::fs::metadata(&other).unwrap().blocks() < 1024);
        assert!(copy_with_holes(&one, &other).is_err());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
