//! Files of pages: what stands before them, then the pages, each behind its place, then a number made of all that.
//!
//! In a directory of such files, the file `current` says which number is valid.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) const PAGE: usize = 4096;

/// Why there is no checkpoint, or no beginning from one.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Nobody said where.
    #[error("no directory for checkpoints was named: comb run --checkpoint DIRECTORY")]
    NoDirectory,
    /// The system refuses.
    #[error("{doing} {path}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another component has failed.
    #[error("component {0} could not write its part; the checkpoint before this one is still valid")]
    Other(u64),
    /// Another component has failed.
    #[error("component {0} could not read its part of the checkpoint")]
    OtherRead(u64),
    /// What was to be saved is gone.
    #[error(
        "pages of the region were discarded meanwhile, for a cell has failed; the checkpoint before this one is still valid"
    )]
    Discarded,
    /// There is none.
    #[error("there is no checkpoint in {0}: the file `current` is missing")]
    Nothing(PathBuf),
    /// It is no checkpoint's file, or a damaged one.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Of a task of another shape.
    #[error(
        "the checkpoint in {path} is of {found} components, and this task has {count}: start as many as then"
    )]
    Count {
        /// Where.
        path: PathBuf,
        /// Then.
        found: u32,
        /// Now.
        count: u32,
    },
}

pub(crate) fn system<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(std::io::Error) -> CheckpointError + 'a {
    move |source| CheckpointError::System { doing, path: path.to_owned(), source }
}

/// A number for a page's content: two lanes of multiply and fold.
pub(crate) fn fold(bytes: &[u8]) -> u64 {
    let mix = |lane: u64, word: u64| {
        let product = u128::from(lane ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let folded = product as u64 ^ (product >> 64) as u64;
        folded.rotate_left(23)
    };
    let (mut one, mut other) = (0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344);
    for pair in bytes.as_chunks::<16>().0 {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| pair[at + index]));
        (one, other) = (mix(one, word(0)), mix(other, word(8)));
    }
    let rest = bytes.len() % 16;
    for &byte in &bytes[bytes.len() - rest..] {
        one = mix(one, u64::from(byte) + 1);
    }
    mix(one, other) ^ bytes.len() as u64
}

pub(crate) fn file_of(directory: &Path, rank: u32, number: u64) -> PathBuf {
    directory.join(format!("{rank}.{number}.pages"))
}

/// A file that is being written.
pub(crate) struct Writer {
    path: PathBuf,
    to: BufWriter<File>,
    sum: u64,
}

impl Writer {
    pub(crate) fn begin(
        path: PathBuf,
        magic: [u8; 8],
        head: &impl Serialize,
    ) -> Result<Self, CheckpointError> {
        let file = File::create(&path).map_err(system("cannot write", &path))?;
        let mut writer = Self { path, to: BufWriter::with_capacity(1 << 20, file), sum: 0 };
        let head = postcard::to_stdvec(head).expect("plain data");
        writer.write(&magic)?;
        writer.write(&(head.len() as u64).to_le_bytes())?;
        writer.write(&head)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.sum = self.sum.rotate_left(1) ^ fold(bytes);
        self.to.write_all(bytes).map_err(system("cannot write", &self.path))
    }

    /// The next page.
    pub(crate) fn put(&mut self, place: u64, content: &[u8]) -> Result<(), CheckpointError> {
        self.write(&place.to_le_bytes())?;
        self.write(content)
    }

    /// All pages are written; and on the disk when this returns.
    pub(crate) fn finish(mut self) -> Result<(), CheckpointError> {
        let finish = || -> std::io::Result<()> {
            self.to.write_all(&self.sum.to_le_bytes())?;
            self.to.flush()?;
            self.to.get_ref().sync_all()
        };
        let mut finish = finish;
        finish().map_err(system("cannot write", &self.path))
    }
}

/// The number of the checkpoint that is valid.
pub(crate) fn current(directory: &Path) -> Result<u64, CheckpointError> {
    let path = directory.join("current");
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CheckpointError::Nothing(directory.to_owned()),
        _ => system("cannot read", &path)(error),
    })?;
    text.trim().parse().map_err(|_| CheckpointError::Damaged { path, what: "it holds no number" })
}

/// From now on this one is valid.
pub(crate) fn name(directory: &Path, number: u64) -> Result<(), CheckpointError> {
    let (fresh, path) = (directory.join("current.new"), directory.join("current"));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&fresh)?;
        writeln!(file, "{number}")?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(system("cannot write", &path))
}

/// A file as it is read.
pub(crate) struct Reader<H> {
    path: PathBuf,
    from: BufReader<File>,
    pub(crate) head: H,
    left: u64,
    sum: u64,
}

impl<H: for<'a> Deserialize<'a>> Reader<H> {
    pub(crate) fn open(
        path: PathBuf,
        magic: [u8; 8],
        pages: impl FnOnce(&H) -> u64,
    ) -> Result<Self, CheckpointError> {
        let file = File::open(&path).map_err(system("cannot read", &path))?;
        let file_bytes = file.metadata().map_err(system("cannot read", &path))?.len();
        let damaged = |what| CheckpointError::Damaged { path: path.clone(), what };
        let mut from = BufReader::with_capacity(1 << 20, file);
        let mut sum = 0_u64;
        let mut take = |bytes: &mut [u8]| {
            from.read_exact(bytes).map_err(|_| damaged("it ends too early"))?;
            sum = sum.rotate_left(1) ^ fold(bytes);
            Ok(())
        };
        let (mut found, mut length) = ([0; 8], [0; 8]);
        take(&mut found)?;
        if found != magic {
            return Err(damaged("it is no part of a checkpoint"));
        }
        take(&mut length)?;
        let length =
            usize::try_from(u64::from_le_bytes(length)).ok().filter(|&length| length as u64 <= file_bytes);
        let mut head = vec![0; length.ok_or_else(|| damaged("its head has no length that could be"))?];
        take(&mut head)?;
        let head: H = postcard::from_bytes(&head).map_err(|_| damaged("its head cannot be read"))?;
        let left = pages(&head);
        Ok(Self { path, from, head, left, sum })
    }

    /// It is not what it should be.
    pub(crate) fn damaged(&self, what: &'static str) -> CheckpointError {
        CheckpointError::Damaged { path: self.path.clone(), what }
    }

    /// The next page; after the last, none, if all of them were as they were written.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, CheckpointError> {
        let damaged = |what| CheckpointError::Damaged { path: self.path.clone(), what };
        let mut take =
            |bytes: &mut [u8]| self.from.read_exact(bytes).map_err(|_| damaged("it ends too early"));
        let mut frame = [0; 8];
        take(&mut frame)?;
        if self.left == 0 {
            return if u64::from_le_bytes(frame) == self.sum {
                Ok(None)
            } else {
                Err(damaged("its sum is wrong"))
            };
        }
        let mut content = vec![0; PAGE];
        take(&mut content)?;
        self.sum = (self.sum.rotate_left(1) ^ fold(&frame)).rotate_left(1) ^ fold(&content);
        self.left -= 1;
        Ok(Some((u64::from_le_bytes(frame), content)))
    }
}
