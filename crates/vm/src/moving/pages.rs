//! A machine's root as it differs from its image: memory of its engine's, over a file and private. It is in no state that the engine saves.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{MoveError, PART_BYTES};

/// A page, in bytes.
pub(crate) const PAGE: usize = 4096;

/// Of a page of a process: it is there; it is there, on a disk; it is a file's.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// So many pages are asked for at once.
const PAGES_AT_ONCE: usize = 64 << 10;

/// A part of a file that a process has mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    address: u64,
    offset: u64,
    bytes: u64,
}

/// A file in a process's memory.
#[derive(Debug)]
pub struct Mapped {
    memory: File,
    pagemap: File,
    places: Vec<Place>,
}

impl Mapped {
    /// That of a process which has this file mapped, from its beginning to its end.
    pub fn of(process: u32, file: &Path, bytes: u64) -> Result<Self, MoveError> {
        let host = |what: &'static str| move |error| MoveError::Host(format!("the engine's {what}"), error);
        let path = |name: &str| format!("/proc/{process}/{name}");
        let maps = std::fs::read(path("maps")).map_err(host("mappings"))?;
        // The kernel says it without links.
        let file = &std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let places = places(&maps, file);
        let whole: u64 = places.iter().map(|place| place.bytes).sum();
        if whole != bytes || places.windows(2).any(|two| two[0].offset + two[0].bytes != two[1].offset) {
            return Err(MoveError::Here(format!(
                "the engine has {whole} bytes of {} mapped, of {bytes}",
                file.display()
            )));
        }
        let memory = File::options().read(true).write(true).open(path("mem")).map_err(host("memory"))?;
        let pagemap = File::open(path("pagemap")).map_err(host("page map"))?;
        Ok(Self { memory, pagemap, places })
    }

    /// The place of something, and how much of it lies there.
    fn find(&self, at: u64, bytes: u64) -> Option<(u64, u64)> {
        let place =
            self.places.iter().find(|place| (place.offset..place.offset + place.bytes).contains(&at))?;
        Some((place.address + (at - place.offset), bytes.min(place.offset + place.bytes - at)))
    }

    /// Whether each page has been written to, since it was the file's.
    fn written(&self) -> io::Result<Vec<bool>> {
        let mut all = Vec::new();
        let mut entries = vec![0; 8 * PAGES_AT_ONCE];
        for place in &self.places {
            let pages = usize::try_from(place.bytes).expect("a part of memory") / PAGE;
            for begin in (0..pages).step_by(PAGES_AT_ONCE) {
                let some = &mut entries[..8 * PAGES_AT_ONCE.min(pages - begin)];
                self.pagemap.read_exact_at(some, (place.address / PAGE as u64 + begin as u64) * 8)?;
                all.extend(some.chunks_exact(8).map(|entry| {
                    let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                    entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
                }));
            }
        }
        Ok(all)
    }

    /// Reads what is there now. It may change meanwhile.
    fn read(&self, mut at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (address, here) = self.find(at, bytes.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
            let (some, rest) = bytes.split_at_mut(usize::try_from(here).expect("a part of it"));
            self.memory.read_exact_at(some, address)?;
            (at, bytes) = (at + here, rest);
        }
        Ok(())
    }

    /// Writes a part of another's, which is to lie within.
    pub fn write(&self, mut at: u64, mut bytes: &[u8]) -> Result<(), MoveError> {
        while !bytes.is_empty() {
            let outside = || MoveError::Nonsense(format!("a part of the root at {at}, where there is none"));
            let (address, here) = self.find(at, bytes.len() as u64).ok_or_else(outside)?;
            let (some, rest) = bytes.split_at(usize::try_from(here).expect("a part of it"));
            let fails = |error| MoveError::Host("the engine's memory".into(), error);
            self.memory.write_all_at(some, address).map_err(fails)?;
            (at, bytes) = (at + here, rest);
        }
        Ok(())
    }
}

/// Where a process has parts of a file, by what the kernel says of its memory; in the order of the file.
fn places(maps: &[u8], file: &Path) -> Vec<Place> {
    // The kernel writes a line's end in a name so.
    let name = String::from_utf8_lossy(file.as_os_str().as_bytes()).replace('\n', "\\012");
    let mut places: Vec<Place> = String::from_utf8_lossy(maps)
        .lines()
        .filter_map(|line| {
            let mut words = line.splitn(6, ' ');
            let range = words.next()?;
            let offset = words.nth(1)?;
            let path = words.nth(2)?.trim_start();
            let path = path.strip_suffix(" (deleted)").unwrap_or(path);
            let (begin, end) = range.split_once('-')?;
            let [begin, end, offset] = [begin, end, offset].map(|text| u64::from_str_radix(text, 16));
            let (begin, end, offset) = (begin.ok()?, end.ok()?, offset.ok()?);
            (path == name).then_some(Place { address: begin, offset, bytes: end.checked_sub(begin)? })
        })
        .collect();
    places.sort_by_key(|place| place.offset);
    places
}

/// What the other end has of a root, and what not yet.
#[derive(Debug)]
pub struct Differences {
    root: Mapped,
    /// What it begins with.
    base: File,
    /// Pages that nobody has written to are as they are there.
    is_over_base: bool,
    /// Of pages that were sent: what they were.
    sent: BTreeMap<u64, [u8; 32]>,
    is_first: bool,
}

impl Differences {
    /// Of a root from an image's. `is_over_base`: that is the file under it.
    pub fn new(root: Mapped, base: &Path, is_over_base: bool) -> Result<Self, MoveError> {
        let base = File::open(base).map_err(|error| MoveError::Host(base.display().to_string(), error))?;
        Ok(Self { root, base, is_over_base, sent: BTreeMap::new(), is_first: true })
    }

    /// Passes on whatever the other end has otherwise than it is now: how many bytes. While the machine runs, more is to come.
    pub fn round(
        &mut self,
        mut pass: impl FnMut(u64, &[u8]) -> Result<(), MoveError>,
    ) -> Result<u64, MoveError> {
        let host = |error| MoveError::Host("a machine's root".into(), error);
        let mut written = self.root.written().map_err(host)?;
        if std::mem::take(&mut self.is_first) && !self.is_over_base {
            written.fill(true);
        }
        let most = PART_BYTES / PAGE;
        let (mut now, mut base) = (vec![0; PART_BYTES], vec![0; PAGE]);
        let (mut page, mut bytes) = (0, 0);
        while page < written.len() {
            let count = written[page..].iter().take(most).take_while(|written| **written).count();
            if count == 0 {
                page += 1;
                continue;
            }
            let now = &mut now[..count * PAGE];
            self.root.read((page * PAGE) as u64, now).map_err(host)?;
            // Those that differ, as long runs as there are.
            let mut run = 0..0;
            for (index, content) in now.chunks_exact(PAGE).enumerate() {
                let number = (page + index) as u64;
                let digest = ring::digest::digest(&ring::digest::SHA256, content);
                let is_there = if let Some(known) = self.sent.get(&number) {
                    *known == digest.as_ref()
                } else {
                    self.base.read_exact_at(&mut base, number * PAGE as u64).map_err(host)?;
                    base == content
                };
                if is_there {
                    continue;
                }
                self.sent.insert(number, digest.as_ref().try_into().expect("its length"));
                if run.end != index {
                    pass_run(page, &run, now, &mut pass)?;
                    run = index..index;
                }
                run.end = index + 1;
                bytes += PAGE as u64;
            }
            pass_run(page, &run, now, &mut pass)?;
            page += count;
        }
        Ok(bytes)
    }
}

fn pass_run(
    page: usize,
    run: &std::ops::Range<usize>,
    content: &[u8],
    pass: &mut impl FnMut(u64, &[u8]) -> Result<(), MoveError>,
) -> Result<(), MoveError> {
    if run.is_empty() {
        return Ok(());
    }
    pass(((page + run.start) * PAGE) as u64, &content[run.start * PAGE..run.end * PAGE])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vm_memory::mmap::MmapRegion;
    use vm_memory::{Bytes, FileOffset, VolatileMemory};

    const BYTES: usize = 4 << 20;

    fn mapped(path: &Path) -> (MmapRegion<()>, Mapped) {
        let file = FileOffset::from_arc(Arc::new(File::open(path).unwrap()), 0);
        let (both, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        let region = MmapRegion::build(Some(file), BYTES, both, private).unwrap();
        (region, Mapped::of(std::process::id(), path, BYTES as u64).unwrap())
    }

    #[test]
    fn what_differs_is_passed_on_once_and_again_when_it_has_changed() {
        let directory = std::env::temp_dir().join(format!("comb-vm-pages-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (image, template, other) =
            (directory.join("image"), directory.join("template"), directory.join("other"));
        let content: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at / PAGE % 251).unwrap()).collect();
        std::fs::write(&image, &content).unwrap();
        std::fs::write(&other, &content).unwrap();
        // A template has begun, and written.
        let mut begun = content.clone();
        begun[5 * PAGE] ^= 1;
        std::fs::write(&template, &begun).unwrap();
        for (under, is_over_base, first) in [(&template, false, 4), (&image, true, 3)] {
            let (ours, root) = mapped(under);
            let (theirs, far) = mapped(&other);
            let slice = ours.as_volatile_slice();
            for page in [9, 10, 1000] {
                slice.write_slice(b"written", page * PAGE + 7).unwrap();
            }
            // What is written as it was is no difference.
            slice.write_slice(&content[20 * PAGE..21 * PAGE], 20 * PAGE).unwrap();
            let mut differences = Differences::new(root, &image, is_over_base).unwrap();
            let mut runs = Vec::new();
            let mut pass = |at: u64, bytes: &[u8]| {
                runs.push((at / PAGE as u64, bytes.len() / PAGE));
                far.write(at, bytes)
            };
            assert_eq!(differences.round(&mut pass).unwrap(), first * PAGE as u64);
            assert_eq!(differences.round(&mut pass).unwrap(), 0);
            slice.write_slice(b"again", 10 * PAGE).unwrap();
            slice.write_slice(b"late", 30 * PAGE).unwrap();
            assert_eq!(differences.round(&mut pass).unwrap(), 2 * PAGE as u64);
            let head = if is_over_base { 0 } else { 1 };
            assert_eq!(runs[head..], [(9, 2), (1000, 1), (10, 1), (30, 1)]);
            let all = |region: &MmapRegion<()>| {
                let mut bytes = vec![0; BYTES];
                region.as_volatile_slice().read_slice(&mut bytes, 0).unwrap();
                bytes
            };
            assert!(all(&ours) == all(&theirs), "{under:?}");
            assert!(matches!(far.write(BYTES as u64, b"x"), Err(MoveError::Nonsense(_))));
            assert!(matches!(far.write(BYTES as u64 - 1, b"xy"), Err(MoveError::Nonsense(_))));
        }
        // Files are as they were.
        assert!(std::fs::read(&other).unwrap() == content && std::fs::read(&template).unwrap() == begun);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn places_are_found_whatever_a_file_is_called() {
        let maps = b"7f00-8f00 rw-p 00001000 00:2a 99 /a b/root\n1000-2000 r--s 00000000 00:2a 99 /a b/root (deleted)\n\
                     9000-a000 rw-p 00000000 00:2a 98 /a b/root2\nb000-c000 rw-p 00000000 00:00 0\n";
        let at = |address, offset| Place { address, offset, bytes: 0x1000 };
        assert_eq!(places(maps, Path::new("/a b/root")), [at(0x1000, 0), at(0x7f00, 0x1000)]);
    }
}
