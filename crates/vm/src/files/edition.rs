//! An edition is brought out: what a stream says is checked, and laid where no guest looks yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

use comb_guest::files::SLOTS;
use comb_guest::packing::{Entry, Kind, Said};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate};

use super::erofs::{BLOCK_BYTES, Body, INODE_BYTES, MOST_TARGET_BYTES, Node, written};
use super::room::{Extent, Room};
use super::shelf::{Edition, Record, Shelf, ShelfError, Stored, block_of};

/// What it says of names is bounded, whoever says it.
const MOST_NAME_BYTES: usize = 255;
const MOST_PATH_BYTES: usize = 4096;
const MOST_BYTES_OF_PATHS: usize = 256 << 20;

/// An edition that is being written; nothing of it is seen before its end.
#[derive(Debug)]
pub struct Writing {
    shelf: Shelf,
    record: Record,
    slot: u32,
    room: Room,
    device: File,
    nodes: Vec<Node>,
    directories: HashMap<Vec<u8>, usize>,
    files: BTreeMap<Vec<u8>, Stored>,
    paths: HashSet<Vec<u8>>,
    open: Option<Open>,
    is_over: bool,
    new_bytes: u64,
    bytes_of_paths: usize,
    /// One at a time.
    _lock: File,
}

/// A file of which more is to come.
#[derive(Debug)]
struct Open {
    path: Vec<u8>,
    bytes: u64,
    came: u64,
    /// Where it lies in the edition before, as long as all that came is the same.
    before: Option<Extent>,
    /// Where it is written, once it is.
    new: Option<Extent>,
}

/// What has been brought out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BroughtOut {
    /// Its number.
    pub number: u64,
    /// In which slot.
    pub slot: u32,
    /// Files, directories and links.
    pub entries: u64,
    /// Of content.
    pub bytes: u64,
    /// Of these were not the same in the edition before.
    pub new_bytes: u64,
}

fn alleged(why: &str, path: &[u8]) -> ShelfError {
    ShelfError::Alleged(format!("{}: {why}", String::from_utf8_lossy(path)))
}

impl Writing {
    /// Begins one. `kept`: the slots whose editions guests still have, as bits.
    pub fn begin(shelf: &Shelf, kept: u32) -> Result<Self, ShelfError> {
        let lock = shelf.lock("lock", FlockOperation::LockExclusive, ShelfError::None)?;
        let mut record = shelf.record()?;
        let is_kept = |slot: u32| kept >> slot & 1 == 1 || record.current == Some(slot);
        let order = (0..SLOTS).map(|at| (record.current.map_or(0, |current| current + 1) + at) % SLOTS);
        let slot = order.into_iter().find(|&slot| !is_kept(slot));
        let slot = slot.ok_or_else(|| ShelfError::NoSlot(shelf.name.clone()))?;
        let gone: Vec<u32> = (0..SLOTS).filter(|&slot| !is_kept(slot)).collect();
        for slot in gone {
            record.editions[slot as usize] = None;
        }
        // Whoever looks for an edition from here on finds none that is about to go.
        shelf.note(&record)?;
        let used = record.editions.iter().flatten().flat_map(|edition| edition.files.values());
        let room = Room::without(record.content(), used.map(|file| file.extent));
        let path = shelf.device();
        let host = |error: io::Error| ShelfError::Host(path.clone(), error);
        let device = File::options().read(true).write(true).open(&path).map_err(host)?;
        // The host has it back, and what is not written of a block is zero.
        for free in room.free() {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let (at, bytes) = (u64::from(free.block) * BLOCK_BYTES, u64::from(free.blocks) * BLOCK_BYTES);
            fallocate(&device, hole, at, bytes).map_err(|error| host(error.into()))?;
        }
        Ok(Self {
            shelf: shelf.clone(),
            record,
            slot,
            room,
            device,
            nodes: Vec::new(),
            directories: HashMap::new(),
            files: BTreeMap::new(),
            paths: HashSet::new(),
            open: None,
            is_over: false,
            new_bytes: 0,
            bytes_of_paths: 0,
            _lock: lock,
        })
    }

    /// The number of the edition that was the last: what is said to be the same is as in that one.
    pub fn follows(&self) -> u64 {
        self.record.edition().map_or(0, |edition| edition.number)
    }

    /// What the stream says next.
    pub fn take(&mut self, said: Said) -> Result<(), ShelfError> {
        if self.is_over {
            return Err(ShelfError::Alleged("more was said after the end".into()));
        }
        match (said, self.open.is_some()) {
            (Said::Total { .. }, _) => Ok(()),
            (Said::Piece(bytes), true) => self.take_piece(&bytes),
            (Said::Entry(entry), false) => self.take_entry(entry),
            (Said::End, false) => {
                self.is_over = true;
                Ok(())
            }
            (Said::Piece(_), false) | (Said::Entry(_) | Said::End, true) => {
                Err(ShelfError::Alleged("a file is longer or shorter than was said".into()))
            }
        }
    }

    fn take_entry(&mut self, entry: Entry) -> Result<(), ShelfError> {
        let Entry { path, kind, mode, user, group, modified } = entry;
        let (parent, name) = self.place_of(&path)?;
        self.bytes_of_paths += path.len();
        let most_entries = self.record.slot_bytes / INODE_BYTES as u64;
        if self.nodes.len() as u64 >= most_entries || self.bytes_of_paths > MOST_BYTES_OF_PATHS {
            return Err(no_room(
                &self.shelf,
                &self.record,
                format!("more than {} entries", self.nodes.len()),
            ));
        }
        if !self.paths.insert(path.clone()) {
            return Err(alleged("it is there twice", &path));
        }
        let body = match kind {
            Kind::Directory => {
                self.directories.insert(path.clone(), self.nodes.len());
                Body::Directory
            }
            Kind::Link { target } => {
                if target.is_empty() || target.len() > MOST_TARGET_BYTES || target.contains(&0) {
                    return Err(alleged("a link leads nowhere", &path));
                }
                Body::Link(target)
            }
            Kind::Same => {
                let before = self.before(&path).ok_or_else(|| alleged("it was not there before", &path))?;
                self.files.insert(path, before);
                Body::File { bytes: before.bytes, extent: before.extent }
            }
            Kind::File { bytes } => {
                // Where it lies is known when all has come.
                self.files.insert(path.clone(), Stored { bytes, extent: Extent::default() });
                let before = self.before(&path).filter(|before| before.bytes == bytes);
                let before = before.map(|before| before.extent);
                if bytes > 0 {
                    self.open = Some(Open { path, bytes, came: 0, before, new: None });
                }
                Body::File { bytes, extent: Extent::default() }
            }
        };
        self.nodes.push(Node { parent, name, body, mode, user, group, modified });
        Ok(())
    }

    fn before(&self, path: &[u8]) -> Option<Stored> {
        self.record.edition()?.files.get(path).copied()
    }

    /// In which directory a path is, and its name there.
    fn place_of(&self, path: &[u8]) -> Result<(usize, Vec<u8>), ShelfError> {
        if path.is_empty() != self.nodes.is_empty() {
            return Err(alleged("the directory of all is the first", path));
        }
        if path.is_empty() {
            return Ok((0, Vec::new()));
        }
        let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let is_name = !name.is_empty() && name.len() <= MOST_NAME_BYTES && name != b"." && name != b"..";
        if !is_name || name.contains(&0) || path.len() > MOST_PATH_BYTES {
            return Err(alleged("it is no path", path));
        }
        let parent = self.directories.get(parent).ok_or_else(|| alleged("it is in no directory", path))?;
        Ok((*parent, name.to_vec()))
    }

    fn take_piece(&mut self, bytes: &[u8]) -> Result<(), ShelfError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let path = self.shelf.device();
        let host = |error| ShelfError::Host(path.clone(), error);
        if bytes.is_empty() || bytes.len() as u64 > open.bytes - open.came {
            return Err(alleged("it is longer than was said", &open.path));
        }
        let at = |extent: Extent| u64::from(extent.block) * BLOCK_BYTES;
        if let Some(before) = open.before {
            let mut same = vec![0; bytes.len()];
            self.device.read_exact_at(&mut same, at(before) + open.came).map_err(host)?;
            if same != bytes {
                open.before = None;
                let new = taken(&mut self.room, &self.shelf, &self.record, open.bytes)?;
                copy(&self.device, at(before), at(new), open.came).map_err(host)?;
                open.new = Some(new);
            }
        } else if open.new.is_none() {
            open.new = Some(taken(&mut self.room, &self.shelf, &self.record, open.bytes)?);
        }
        if let Some(new) = open.new {
            self.device.write_all_at(bytes, at(new) + open.came).map_err(host)?;
        }
        open.came += bytes.len() as u64;
        if open.came < open.bytes {
            return Ok(());
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let extent = open.new.or(open.before).expect("all of it has come");
        self.new_bytes += if open.new.is_some() { open.bytes } else { 0 };
        let stored = Stored { bytes: open.bytes, extent };
        self.files.insert(open.path, stored);
        let node = self.nodes.last_mut().expect("it was said");
        node.body = Body::File { bytes: stored.bytes, extent };
        Ok(())
    }

    /// Has it be the shelf's last edition, once its stream has come to the end.
    pub fn bring_out(self) -> Result<BroughtOut, ShelfError> {
        if !self.is_over || self.nodes.is_empty() {
            return Err(ShelfError::Alleged("what was to be said has no end".into()));
        }
        let Self { shelf, mut record, slot, device, nodes, files, .. } = self;
        let built_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let begin = record.slot_at(slot);
        let image = written(&nodes, block_of(begin), block_of(record.device_bytes - begin), built_s);
        if image.len() as u64 > record.slot_bytes {
            return Err(no_room(&shelf, &record, format!("{} entries", nodes.len())));
        }
        let path = shelf.device();
        device.write_all_at(&image, begin).map_err(|error| ShelfError::Host(path, error))?;
        let number = record.editions.iter().flatten().map(|edition| edition.number).max().unwrap_or(0) + 1;
        let edition = Edition { number, built_s, entries: nodes.len() as u64, files };
        let bytes = edition.bytes();
        record.editions[slot as usize] = Some(edition);
        record.current = Some(slot);
        shelf.note(&record)?;
        Ok(BroughtOut { number, slot, entries: nodes.len() as u64, bytes, new_bytes: self.new_bytes })
    }
}

fn no_room(shelf: &Shelf, record: &Record, what: String) -> ShelfError {
    let room = (u64::from(record.content().blocks) * BLOCK_BYTES) >> 20;
    ShelfError::NoRoom { name: shelf.name.clone(), what, room }
}

fn taken(room: &mut Room, shelf: &Shelf, record: &Record, bytes: u64) -> Result<Extent, ShelfError> {
    let blocks = u32::try_from(bytes.div_ceil(BLOCK_BYTES)).ok();
    let found = blocks.and_then(|blocks| Some(Extent { block: room.take(blocks)?, blocks }));
    found.ok_or_else(|| no_room(shelf, record, format!("a file of {} MB", bytes.div_ceil(1 << 20))))
}

fn copy(device: &File, from: u64, to: u64, bytes: u64) -> io::Result<()> {
    let mut some = vec![0; 1 << 16];
    let mut done = 0;
    while done < bytes {
        let most = usize::try_from(bytes - done).unwrap_or(some.len()).min(some.len());
        device.read_exact_at(&mut some[..most], from + done)?;
        device.write_all_at(&some[..most], to + done)?;
        done += most as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::shelf::Shelves;

    struct Place(std::path::PathBuf, Shelves);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("comb-vm-edition-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Self(path.clone(), Shelves::at(path))
        }

        fn shelf(&self, room: u64) -> Shelf {
            self.1.open_or_make(&"docs".parse().unwrap(), room, 10).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn entry(path: &str, kind: Kind) -> Said {
        let path = path.as_bytes().to_vec();
        Said::Entry(Entry { path, kind, mode: 0o644, user: 0, group: 0, modified: (1, 2) })
    }

    /// A directory with these files.
    fn stream(files: &[(&str, &[u8])]) -> Vec<Said> {
        let mut said = vec![Said::Total { entries: 9, bytes: 9 }, entry("", Kind::Directory)];
        for (name, content) in files {
            said.push(entry(name, Kind::File { bytes: content.len() as u64 }));
            said.extend(content.chunks(3000).map(|piece| Said::Piece(piece.to_vec())));
        }
        said.push(Said::End);
        said
    }

    fn bring_out(shelf: &Shelf, kept: u32, said: Vec<Said>) -> Result<BroughtOut, ShelfError> {
        let mut writing = Writing::begin(shelf, kept)?;
        said.into_iter().try_for_each(|said| writing.take(said))?;
        writing.bring_out()
    }

    fn content(shelf: &Shelf, slot: u32, path: &str) -> Vec<u8> {
        let edition = shelf.record().unwrap().editions[slot as usize].clone().unwrap();
        let file = edition.files[path.as_bytes()];
        let length = usize::try_from(file.bytes).unwrap();
        let mut bytes = vec![0; file.extent.blocks as usize * 4096];
        let device = File::open(shelf.device()).unwrap();
        device.read_exact_at(&mut bytes, u64::from(file.extent.block) * BLOCK_BYTES).unwrap();
        // What is behind a file in its last block is nobody's.
        assert!(bytes[length..].iter().all(|&byte| byte == 0));
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn what_is_the_same_stays_where_it_is_and_what_is_seen_never_changes() {
        let place = Place::new("same");
        let shelf = place.shelf(4 << 20);
        let (long, mut other) = (vec![1; 10_000], vec![1; 10_000]);
        other[9_000] = 2;
        let first = bring_out(&shelf, 0, stream(&[("a", &long), ("b", b"bee"), ("e", b"")])).unwrap();
        assert_eq!((first.number, first.slot, first.new_bytes, first.bytes), (1, 0, 10_003, 10_003));
        let second = bring_out(&shelf, 1, stream(&[("a", &other), ("b", b"bee")])).unwrap();
        assert_eq!((second.number, second.slot, second.new_bytes), (2, 1, 10_000));
        assert_eq!((content(&shelf, 0, "a"), content(&shelf, 1, "a")), (long, other.clone()));
        let places = shelf.record().unwrap().editions;
        let b = |slot: usize| places[slot].as_ref().unwrap().files[&b"b"[..]];
        assert_eq!(b(0), b(1));
        // Editions that somebody still has are in nobody's way, until there is no slot.
        for (kept, slot) in [(0b0011, 2), (0b0111, 3)] {
            assert_eq!(bring_out(&shelf, kept, stream(&[("c", b"c")])).unwrap().slot, slot);
        }
        assert!(matches!(bring_out(&shelf, 0b0111, stream(&[])), Err(ShelfError::NoSlot(_))));
        assert_eq!(content(&shelf, 1, "a"), other);
        let last = bring_out(&shelf, 0b0010, stream(&[("d", &[3; 5000])])).unwrap();
        assert_eq!((last.number, last.slot), (5, 0));
        assert_eq!((content(&shelf, 1, "a"), content(&shelf, 0, "d")), (other, vec![3; 5000]));
    }

    #[test]
    fn room_comes_back_and_what_does_not_fit_changes_nothing() {
        let place = Place::new("room");
        let shelf = place.shelf(2 << 20);
        for number in 1_u8..20 {
            let content = vec![number; 900_000];
            assert_eq!(bring_out(&shelf, 0, stream(&[("a", &content)])).unwrap().number, u64::from(number));
        }
        let error = bring_out(&shelf, 0, stream(&[("a", &[0; 3 << 20])])).unwrap_err();
        assert!(error.to_string().contains("`docs` has no room for a file of 3 MB"), "{error}");
        let record = shelf.record().unwrap();
        assert_eq!(record.edition().unwrap().number, 19);
        assert_eq!(content(&shelf, record.current.unwrap(), "a"), vec![19; 900_000]);
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let place = Place::new("refused");
        let shelf = place.shelf(1 << 20);
        bring_out(&shelf, 0, stream(&[("a", b"first")])).unwrap();
        let directory = || entry("", Kind::Directory);
        let file = |path: &str| entry(path, Kind::File { bytes: 2 });
        let strange = [
            vec![Said::End],
            vec![file("a"), Said::Piece(vec![1, 2]), Said::End],
            vec![directory()],
            vec![directory(), Said::End, Said::End],
            vec![directory(), file("a"), Said::End],
            vec![directory(), file("a"), Said::Piece(vec![1, 2, 3])],
            vec![directory(), file("a"), Said::Piece(Vec::new())],
            vec![directory(), Said::Piece(vec![1])],
            vec![directory(), file("../a")],
            vec![directory(), file("/a")],
            vec![directory(), file(".")],
            vec![directory(), file("no/a")],
            vec![directory(), file("a\0b")],
            vec![directory(), file(&"x".repeat(256))],
            vec![directory(), directory()],
            vec![directory(), entry("b", Kind::Directory), entry("b", Kind::Directory)],
            vec![directory(), entry("b", Kind::Same)],
            vec![directory(), entry("l", Kind::Link { target: vec![b'x'; 5000] })],
            vec![directory(), file("a"), Said::Piece(vec![1, 2]), file("a/b")],
            vec![directory(), entry("a", Kind::File { bytes: u64::MAX }), Said::Piece(vec![1])],
        ];
        for said in strange {
            let text = format!("{said:?}");
            assert!(bring_out(&shelf, 0, said).is_err(), "{text}");
        }
        assert_eq!(shelf.record().unwrap().edition().unwrap().number, 1);
        let same = vec![directory(), entry("a", Kind::Same), Said::End];
        assert_eq!(bring_out(&shelf, 0, same).unwrap().new_bytes, 0);
    }

    #[test]
    fn files_that_a_machine_has_are_not_removed() {
        let place = Place::new("removed");
        let shelf = place.shelf(1 << 20);
        let (used, writes) = (shelf.use_it().unwrap(), shelf.write_it().unwrap());
        assert!(matches!(place.1.remove(&shelf.name), Err(ShelfError::InUse(_))));
        assert!(matches!(shelf.write_it(), Err(ShelfError::HasWriter(_))));
        drop((used, writes));
        assert_eq!(place.1.list(), std::slice::from_ref(&shelf));
        place.1.remove(&shelf.name).unwrap();
        assert!(matches!(place.1.open(&shelf.name), Err(ShelfError::None(_))));
    }
}
