//! What all files of this crate have in common: a few bytes that say what it is, and frames, each with a checksum, so that a file that was
//! cut off is good up to the cut.

use std::io::{self, Read};

/// In front of a frame: its kind, its length, its checksum.
pub(crate) const HEAD_BYTES: usize = 9;

/// No frame of ours is longer; who claims one damaged the file.
const MOST_FRAME_BYTES: usize = 512 << 20;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// What it begins with. The last character is the version.
    pub(crate) magic: &'static [u8],
    /// Its frames have the kinds from 1 to this one, which nothing follows.
    pub(crate) last_kind: u8,
}

/// Why a file cannot be read, or not any further. Whoever reads says it in the words of their kind of file.
#[derive(Debug)]
pub(crate) enum FramingFault {
    Foreign,
    OtherFormat(char),
    Cut { good_bytes: u64 },
    Damaged { good_bytes: u64, what: String },
    Io(io::Error),
}

impl From<io::Error> for FramingFault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A frame as bytes: what is in it is put behind the room for its head.
pub(crate) fn framed(kind: u8, put: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = put(vec![0; HEAD_BYTES]);
    let length = u32::try_from(bytes.len() - HEAD_BYTES).expect("a frame is short");
    let sum = sum_of(kind, &bytes[HEAD_BYTES..]);
    bytes[0] = kind;
    bytes[1..5].copy_from_slice(&length.to_le_bytes());
    bytes[5..9].copy_from_slice(&sum);
    bytes
}

/// The kind of a frame and the length of what is in it, as the bytes at its beginning claim; nothing if they are too few.
pub(crate) fn claimed(bytes: &[u8]) -> Option<(u8, usize)> {
    let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [kind, length @ .., _, _, _, _] = *head;
    Some((kind, u32::from_le_bytes(length) as usize))
}

/// The kind of a frame, and what is in it, if these bytes are one frame as it was written.
pub(crate) fn unframed(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (kind, length) = claimed(bytes)?;
    let (head, body) = bytes.split_at(HEAD_BYTES);
    let is_whole = body.len() == length && head[5..] == sum_of(kind, body);
    is_whole.then_some((kind, body))
}

fn sum_of(kind: u8, body: &[u8]) -> [u8; 4] {
    (crc32fast::hash(body) ^ u32::from(kind)).to_le_bytes()
}

/// Reads a file frame by frame.
pub(crate) struct FrameReader<R> {
    from: R,
    format: Format,
    good_bytes: u64,
    is_at_end: bool,
}

impl<R: Read> FrameReader<R> {
    /// Begins, if it is a file of this kind.
    pub(crate) fn new(mut from: R, format: Format) -> Result<Self, FramingFault> {
        let mut magic = vec![0; format.magic.len()];
        let last = magic.len() - 1;
        if fill(&mut from, &mut magic)? < magic.len() || magic[..last] != format.magic[..last] {
            return Err(FramingFault::Foreign);
        }
        if magic[last] != format.magic[last] {
            return Err(FramingFault::OtherFormat(magic[last].into()));
        }
        Ok(Self { from, format, good_bytes: magic.len() as u64, is_at_end: false })
    }

    /// How many bytes were good so far.
    pub(crate) const fn good_bytes(&self) -> u64 {
        self.good_bytes
    }

    /// The next frame, its kind and what is in it; `None` after the last. A file that simply ends without an end was cut off.
    pub(crate) fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, FramingFault> {
        if self.is_at_end {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        if fill(&mut self.from, &mut head)? < head.len() {
            return Err(FramingFault::Cut { good_bytes: self.good_bytes });
        }
        let (kind, length) = claimed(&head).expect("a head was read");
        if !(1..=self.format.last_kind).contains(&kind) || length > MOST_FRAME_BYTES {
            return Err(self.damaged("no frame begins so"));
        }
        // As much as there is, and not as much as is claimed.
        let mut body = Vec::new();
        (&mut self.from).take(length as u64).read_to_end(&mut body)?;
        if body.len() < length {
            return Err(FramingFault::Cut { good_bytes: self.good_bytes });
        }
        if sum_of(kind, &body) != head[5..] {
            return Err(self.damaged("the checksum of a frame is wrong"));
        }
        self.is_at_end = kind == self.format.last_kind;
        self.good_bytes += (HEAD_BYTES + length) as u64;
        Ok(Some((kind, body)))
    }

    fn damaged(&self, what: &str) -> FramingFault {
        FramingFault::Damaged { good_bytes: self.good_bytes, what: what.to_owned() }
    }
}

/// As `read_exact`, but tells how much there was.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
