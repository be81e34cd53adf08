//! What a virtual machine has written to a disk that it shares: its sectors, and a map of them, in a file. (Disco §4.2.5)
//!
//! A sector that was modified lies in the file where it lies on the disk, behind the maps; the rest of the file is a hole. A map has a bit for each sector, in
//! leaves of one sector each with a checksum: a leaf is written as a whole or not at all, also when the power fails, and bits are only ever added.
//!
//! There are two maps, for two kinds of death. A process may be killed, and then all that it wrote to the file is there: so a sector is in the map *of this boot*
//! before its write is acknowledged. The host may go down, and then what was not flushed may be there or not, in any order: so a sector gets into the *flushed*
//! map when its data are known to be on the disk, and the map of another boot counts for nothing.
//!
//! A temporary overlay is such a file without a name: there is no boot that it could outlive, so that nothing of it is ever flushed.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, fallocate, fdatasync, flock, seek};
use rustix::io::Errno;

use super::pieces::Pieces;
use super::ranges::Ranges;
use super::{OpenError, SECTOR_BYTES};

const MAGIC: [u8; 16] = *b"Comb overlay 1\r\n";
const HEADER_BYTES: usize = 512;
/// Before it there are the header's page, and one in which whoever keeps the file may write.
const MAPS: u64 = 8192;
/// The page in which whoever keeps a temporary overlay's file may write.
pub(super) const SCRATCH: Range<u64> = 4096..8192;
const LEAF_BYTES: usize = 512;
/// The rest of a leaf is its checksum.
const LEAF_BITS_BYTES: usize = LEAF_BYTES - 4;
const LEAF_SECTORS: u64 = LEAF_BITS_BYTES as u64 * 8;
/// What is read of a map at once.
const CHUNK_BYTES: u64 = 128 << 10;

/// The disk that an overlay belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) sectors: u64,
    /// A checksum of its beginning.
    pub(super) fingerprint: u32,
}

/// The name of the time since the host started.
pub(super) type Boot = [u8; 36];

/// The one that is now.
pub(super) fn boot() -> io::Result<Boot> {
    let mut boot = [0; 36];
    File::open("/proc/sys/kernel/random/boot_id")?.read_exact_at(&mut boot, 0)?;
    Ok(boot)
}

/// Why a file is not taken as an overlay.
#[derive(Debug, thiserror::Error)]
pub(super) enum Flaw {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("another has it in use")]
    InUse,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it belongs to another base")]
    OtherBase,
}

impl From<Errno> for Flaw {
    fn from(error: Errno) -> Self {
        Flaw::File(error.into())
    }
}

#[derive(Clone, Copy)]
enum Map {
    Flushed,
    OfThisBoot,
}

/// Where things are in the file.
#[derive(Clone, Copy, Debug)]
struct Shape {
    sectors: u64,
    leaves: u64,
    data: u64,
}

impl Shape {
    fn of(sectors: u64) -> Option<Self> {
        let leaves = sectors.div_ceil(LEAF_SECTORS);
        let data = (MAPS + leaves * 2 * LEAF_BYTES as u64).next_multiple_of(4096);
        let end = sectors.checked_mul(SECTOR_BYTES)?.checked_add(data)?;
        i64::try_from(end).ok()?;
        Some(Self { sectors, leaves, data })
    }

    fn map(&self, map: Map) -> u64 {
        match map {
            Map::Flushed => MAPS,
            Map::OfThisBoot => MAPS + self.leaves * LEAF_BYTES as u64,
        }
    }

    fn sector(&self, sector: u64) -> u64 {
        self.data + sector * SECTOR_BYTES
    }

    fn file_bytes(&self) -> u64 {
        self.sector(self.sectors)
    }

    fn leaf_sectors(&self, leaf: u64) -> Range<u64> {
        leaf * LEAF_SECTORS..((leaf + 1) * LEAF_SECTORS).min(self.sectors)
    }
}

/// The overlay of one virtual machine over one disk.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    shape: Shape,
    modified: Ranges,
    /// Leaves that the flushed map does not have as they are.
    unflushed: BTreeSet<u64>,
    is_temporary: bool,
}

impl Overlay {
    /// One that is gone when nobody has it any more.
    pub(super) fn temporary(disk: Identity) -> Result<Self, Flaw> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?);
        format(&file, disk, &boot()?)?;
        Self::of_file(file, disk, &boot()?, true)
    }

    /// One that was given to somebody to keep ([`Self::file`]).
    pub(super) fn kept(file: File, disk: Identity) -> Result<Self, Flaw> {
        Self::of_file(file, disk, &boot()?, true)
    }

    /// One that stays. It is made if there is none.
    pub(super) fn open(path: &Path, disk: Identity) -> Result<Self, OpenError> {
        let open = || OpenOptions::new().read(true).write(true).open(path);
        let opened = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => make(path, disk).and_then(|()| Ok(open()?)),
            opened => opened.map_err(Flaw::from),
        };
        let overlay = opened.and_then(|file| Self::of_file(file, disk, &boot()?, false));
        overlay.map_err(|flaw| OpenError::new(path, flaw))
    }

    pub(super) fn of_file(file: File, disk: Identity, boot: &Boot, is_temporary: bool) -> Result<Self, Flaw> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Flaw::InUse),
            locked => locked?,
        }
        let mut head = [0; HEADER_BYTES];
        match file.read_exact_at(&mut head, 0) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(Flaw::Damaged("it has no header"));
            }
            read => read?,
        }
        let boot_then = head[28..64].try_into().map_err(|_| Flaw::Damaged("its header"))?;
        if head[..16] != MAGIC {
            return Err(Flaw::Damaged("it is no overlay"));
        }
        if head != header(&disk, &boot_then) {
            let checksum = head[508..] == crc32fast::hash(&head[..508]).to_le_bytes();
            return Err(if checksum { Flaw::OtherBase } else { Flaw::Damaged("its header") });
        }
        let shape = Shape::of(disk.sectors).ok_or(Flaw::Damaged("its length"))?;
        if file.metadata()?.len() != shape.file_bytes() {
            return Err(Flaw::Damaged("its length"));
        }
        let mut overlay =
            Self { file, shape, modified: Ranges::default(), unflushed: BTreeSet::new(), is_temporary };
        overlay.load(Map::Flushed)?;
        if boot_then == *boot {
            overlay.load(Map::OfThisBoot)?;
        } else {
            // If the host goes down amidst this, it is another boot again.
            let map = shape.map(Map::OfThisBoot);
            punch(&overlay.file, map..map + shape.leaves * LEAF_BYTES as u64)?;
            overlay.file.write_all_at(&header(&disk, boot), 0)?;
        }
        Ok(overlay)
    }

    /// Reads a map, in a time that depends on the size of the disk and on nothing else.
    fn load(&mut self, map: Map) -> Result<(), Flaw> {
        let start = self.shape.map(map);
        let end = start + self.shape.leaves * LEAF_BYTES as u64;
        let mut chunk = Vec::new();
        let mut at = start;
        while at < end {
            match seek(&self.file, SeekFrom::Data(at)) {
                // As there may be data in the middle of a leaf.
                Ok(data) => at = at.max(data - data % LEAF_BYTES as u64),
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            }
            let bytes = CHUNK_BYTES.min(end.saturating_sub(at));
            chunk.resize(usize::try_from(bytes).map_err(io::Error::other)?, 0);
            self.file.read_exact_at(&mut chunk, at)?;
            for (number, leaf) in ((at - start) / LEAF_BYTES as u64..).zip(chunk.as_chunks().0) {
                self.load_leaf(map, number, leaf)?;
            }
            at += bytes;
        }
        Ok(())
    }

    fn load_leaf(&mut self, map: Map, number: u64, leaf: &[u8; LEAF_BYTES]) -> Result<(), Flaw> {
        if *leaf == [0; LEAF_BYTES] {
            return Ok(());
        }
        let bits = &leaf[..LEAF_BITS_BYTES];
        if leaf[LEAF_BITS_BYTES..] != leaf_checksum(number, bits) {
            return Err(Flaw::Damaged("its map"));
        }
        let sectors = self.shape.leaf_sectors(number);
        let bit = |sector: u64| {
            let at = sector - number * LEAF_SECTORS;
            bits.get(usize::try_from(at / 8).ok()?).map(|byte| byte >> (at % 8) & 1 == 1)
        };
        let mut at = sectors.start;
        while let Some(is_modified) = bit(at) {
            let end = (at..).find(|sector| bit(*sector) != Some(is_modified)).unwrap_or(at);
            if is_modified && end > sectors.end {
                return Err(Flaw::Damaged("its map has more sectors than the disk"));
            }
            if is_modified && !self.modified.contains(&(at..end)) {
                self.modified.insert(at..end);
                if let Map::OfThisBoot = map {
                    self.unflushed.insert(number);
                }
            }
            at = end;
        }
        Ok(())
    }

    fn put_leaf(&self, map: Map, number: u64) -> io::Result<()> {
        let mut leaf = [0; LEAF_BYTES];
        let sectors = self.shape.leaf_sectors(number);
        for (run, _) in self.modified.runs(sectors.clone()).filter(|(_, is_modified)| *is_modified) {
            for at in run.start - sectors.start..run.end - sectors.start {
                leaf[usize::try_from(at / 8).map_err(io::Error::other)?] |= 1 << (at % 8);
            }
        }
        let checksum = leaf_checksum(number, &leaf[..LEAF_BITS_BYTES]);
        leaf[LEAF_BITS_BYTES..].copy_from_slice(&checksum);
        self.file.write_all_at(&leaf, self.shape.map(map) + number * LEAF_BYTES as u64)
    }

    /// The file that it is in.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it goes with those who have it.
    pub(super) fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// The parts of a range of sectors, and whether they are here.
    pub(super) fn runs(&self, sectors: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> + '_ {
        self.modified.runs(sectors)
    }

    /// Where in the file a sector lies that is here.
    pub(super) fn offset(&self, sector: u64) -> u64 {
        self.shape.sector(sector)
    }

    /// Writes sectors. They are here from now on.
    pub(super) fn write(&mut self, sectors: Range<u64>, from: &mut Pieces<'_>) -> io::Result<()> {
        let bytes = (sectors.end - sectors.start) * SECTOR_BYTES;
        from.write(&self.file, self.shape.sector(sectors.start), bytes)?;
        self.are_here(sectors)
    }

    /// Sectors are zeros from now on.
    pub(super) fn zero(&mut self, sectors: Range<u64>) -> io::Result<()> {
        punch(&self.file, self.shape.sector(sectors.start)..self.shape.sector(sectors.end))?;
        self.are_here(sectors)
    }

    fn are_here(&mut self, sectors: Range<u64>) -> io::Result<()> {
        if self.modified.contains(&sectors) {
            return Ok(());
        }
        let leaves = sectors.start / LEAF_SECTORS..sectors.end.div_ceil(LEAF_SECTORS);
        self.modified.insert(sectors);
        self.unflushed.extend(leaves.clone());
        leaves.into_iter().try_for_each(|leaf| self.put_leaf(Map::OfThisBoot, leaf))
    }

    /// All that was written is there whatever happens. If this fails, nothing is known of what was written since it was called last, and it is not to be called again.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.is_temporary {
            return Ok(());
        }
        fdatasync(&self.file)?;
        if self.unflushed.is_empty() {
            return Ok(());
        }
        for leaf in std::mem::take(&mut self.unflushed) {
            self.put_leaf(Map::Flushed, leaf)?;
        }
        Ok(fdatasync(&self.file)?)
    }
}

fn header(disk: &Identity, boot: &Boot) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..16].copy_from_slice(&MAGIC);
    header[16..24].copy_from_slice(&disk.sectors.to_le_bytes());
    header[24..28].copy_from_slice(&disk.fingerprint.to_le_bytes());
    header[28..64].copy_from_slice(boot);
    let checksum = crc32fast::hash(&header[..508]);
    header[508..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// It is also of the leaf's place, so that none is taken for another.
fn leaf_checksum(number: u64, bits: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(bits);
    hasher.finalize().to_le_bytes()
}

fn format(file: &File, disk: Identity, boot: &Boot) -> io::Result<()> {
    let shape = Shape::of(disk.sectors).ok_or(ErrorKind::FileTooLarge)?;
    file.write_all_at(&header(&disk, boot), 0)?;
    file.set_len(shape.file_bytes())
}

/// Makes an overlay's file: it is there as a whole, or not at all. If another has made it meanwhile, that is it.
fn make(path: &Path, disk: Identity) -> Result<(), Flaw> {
    let mut unfinished = PathBuf::from(path).into_os_string();
    unfinished.push(format!(".{}", std::process::id()));
    let file = File::create(&unfinished)?;
    let made = format(&file, disk, &boot()?).and_then(|()| file.sync_all());
    let made = made.and_then(|()| match std::fs::hard_link(&unfinished, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    std::fs::remove_file(&unfinished)?;
    made?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    Ok(File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?)
}

/// Has a range of a file read as zeros, and take no room.
pub(super) fn punch(file: &File, range: Range<u64>) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if range.is_empty() {
        return Ok(());
    }
    Ok(fallocate(file, flags, range.start, range.end - range.start)?)
}
