//! A trace in a file, or on its way to another machine: frames, each with a checksum, so that one that was cut off is good up to the cut.
//!
//! The first frame says of what machine the trace is and how it was made; then come blocks of events (see [`crate::codec`]) and, every
//! second or so, what the clocks showed and how much has been lost; the last one says that the recording ended as it should.

use std::io::{self, Read, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::codec::{CorruptBlock, Decoder};
use crate::event::{Event, Identity};
use crate::framing::{self, Format, FrameReader, FramingFault};

/// A trace: its head, its blocks of events, moments in between, and its end.
pub(crate) const FORMAT: Format = Format { magic: b"comb trace\n1", last_kind: kind::END };

/// What frames of a trace are called in the file.
pub(crate) mod kind {
    pub(crate) const HEAD: u8 = 1;
    pub(crate) const EVENTS: u8 = 2;
    pub(crate) const MOMENT: u8 = 3;
    pub(crate) const END: u8 = 4;
}

/// What the clocks showed, and the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moment {
    /// The clock that is never set, which all events go by.
    pub monotonic_ns: u64,
    /// The clock on the wall: whoever sets it makes a step here, and nowhere else.
    pub wall_ns: u64,
    /// How many events have been recorded.
    pub recorded: u64,
    /// How many were lost because nobody fetched them in time, or the disk was full.
    pub lost: u64,
    /// How many calls of 32-bit programs were not understood.
    pub foreign: u64,
}

/// A file system that is mounted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mount {
    /// As the kernel numbers it.
    pub device: u32,
    /// Its type: `ext4`, `nfs`.
    pub kind: String,
    /// Where it is mounted.
    pub place: Vec<u8>,
}

/// A process that was there when the recording began.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// Who started it.
    pub parent: u32,
    /// Whose it is.
    pub user: u32,
    /// What it is called: bytes, for a program chooses them.
    pub name: Vec<u8>,
    /// The files that it has open: descriptor, file, path.
    pub open: Vec<(i32, Identity, Vec<u8>)>,
}

/// Why nothing was recorded on a machine for a while, though its agent was there. (Thesis §9.3)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
pub enum SuspensionCause {
    /// No collector was there, or it did not answer.
    #[error("the collector could not be reached")]
    Unreachable,
    /// It took less than what was recorded.
    #[error("the collector was too slow")]
    Slow,
    /// It had no room on its disk.
    #[error("the collector had no room")]
    Full,
    /// It had not what it had acknowledged, or took offence at what was sent.
    #[error("the collector did not go on with the recording before")]
    Refused,
}

/// That this recording goes on after another one of the same agent, and what lies between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Suspension {
    /// When the recording before ended. This one began when its head says.
    pub from: Moment,
    /// Why.
    pub cause: SuspensionCause,
    /// The number in the name of the recording before.
    pub after: u64,
    /// How many events of that recording may never have reached the collector.
    pub undelivered: u64,
}

impl Suspension {
    /// How long nothing was recorded, before a recording that began then.
    pub const fn silence(&self, began: &Moment) -> Duration {
        Duration::from_nanos(began.monotonic_ns.saturating_sub(self.from.monotonic_ns))
    }
}

/// Of what machine a trace is, and how it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Head {
    /// The machine's name.
    pub machine: String,
    /// Its kernel.
    pub kernel: String,
    /// How calls were seen.
    pub mechanism: String,
    /// What that mechanism does not see here, in sentences; nothing if it sees all that this page promises.
    pub lacks: Vec<String>,
    /// Whether names are given as hashes.
    pub are_names_hashed: bool,
    /// What was recorded: a command with its arguments, or nothing where it was processes that were there.
    pub command: Vec<Vec<u8>>,
    /// Names of users.
    pub users: Vec<(u32, String)>,
    /// File systems.
    pub mounts: Vec<Mount>,
    /// Processes that were there.
    pub processes: Vec<Process>,
    /// When it began.
    pub began: Moment,
    /// If it goes on after a suspension: which. It stands behind all else, and only if there is one: traces of before are read as ever.
    #[serde(skip)]
    pub suspension: Option<Suspension>,
}

/// A part of a trace.
#[derive(Debug)]
pub enum Frame {
    /// The first one, and no other.
    Head(Box<Head>),
    /// A block of events, for [`Decoder::read`].
    Events(Vec<u8>),
    /// What clocks and counters showed in between.
    Moment(Moment),
    /// The recording ended here, by intention.
    End(Moment),
}

/// Why a trace cannot be read, or not any further.
#[derive(Debug, Error)]
pub enum TraceFileError {
    /// It is something else.
    #[error("this is no trace of comb")]
    Foreign,
    /// It was written by another version.
    #[error("this trace has format {0:?}, and this comb reads format '1'")]
    OtherFormat(char),
    /// It ends in the middle of a frame; what came before is good.
    #[error("the trace was cut off after {good_bytes} bytes; what came before is good")]
    Cut {
        /// How much is good.
        good_bytes: u64,
    },
    /// A frame is not as it was written; what came before is good.
    #[error("the trace is damaged after {good_bytes} bytes ({what}); what came before is good")]
    Damaged {
        /// How much is good.
        good_bytes: u64,
        /// In what way.
        what: String,
    },
    /// It could not be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl TraceFileError {
    /// Whether what has been read so far counts all the same.
    pub const fn leaves_good_part(&self) -> bool {
        matches!(self, Self::Cut { .. } | Self::Damaged { .. })
    }
}

/// What stands in front of every trace.
pub fn write_magic(to: &mut impl Write) -> io::Result<u64> {
    to.write_all(FORMAT.magic)?;
    Ok(FORMAT.magic.len() as u64)
}

/// A frame as bytes.
pub fn framed(frame: &Frame) -> Vec<u8> {
    let moment =
        |moment: &Moment, bytes| postcard::to_extend(moment, bytes).expect("a moment can be encoded");
    match frame {
        Frame::Head(head) => framing::framed(kind::HEAD, |bytes| {
            let bytes = postcard::to_extend(head, bytes).expect("a head can be encoded");
            match &head.suspension {
                None => bytes,
                Some(suspension) => {
                    postcard::to_extend(suspension, bytes).expect("a suspension can be encoded")
                }
            }
        }),
        Frame::Events(block) => framing::framed(kind::EVENTS, |bytes| [bytes.as_slice(), block].concat()),
        Frame::Moment(shown) => framing::framed(kind::MOMENT, |bytes| moment(shown, bytes)),
        Frame::End(shown) => framing::framed(kind::END, |bytes| moment(shown, bytes)),
    }
}

/// The head of a trace, as [`framed`] wrote it.
fn head(body: &[u8]) -> postcard::Result<Head> {
    let (mut head, behind) = postcard::take_from_bytes::<Head>(body)?;
    if !behind.is_empty() {
        head.suspension = Some(postcard::from_bytes(behind)?);
    }
    Ok(head)
}

/// Reads a trace frame by frame.
pub struct TraceReader<R>(FrameReader<R>);

impl<R: Read> TraceReader<R> {
    /// Begins, if it is a trace.
    pub fn new(from: R) -> Result<Self, TraceFileError> {
        Ok(Self(FrameReader::new(from, FORMAT)?))
    }

    /// How many bytes were good so far.
    pub const fn good_bytes(&self) -> u64 {
        self.0.good_bytes()
    }

    /// The next frame; `None` after the last. A trace that simply ends without an end was cut off.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, TraceFileError> {
        let good_bytes = self.good_bytes();
        let Some((kind, body)) = self.0.next_frame()? else { return Ok(None) };
        let frame = match kind {
            kind::HEAD => head(&body).map(|head| Frame::Head(Box::new(head))),
            kind::EVENTS => Ok(Frame::Events(body)),
            kind::MOMENT => postcard::from_bytes(&body).map(Frame::Moment),
            _ => postcard::from_bytes(&body).map(Frame::End),
        };
        frame.map(Some).map_err(|_| TraceFileError::Damaged {
            good_bytes,
            what: "a frame cannot be understood".to_owned(),
        })
    }
}

impl From<FramingFault> for TraceFileError {
    fn from(fault: FramingFault) -> Self {
        match fault {
            FramingFault::Foreign => Self::Foreign,
            FramingFault::OtherFormat(version) => Self::OtherFormat(version),
            FramingFault::Cut { good_bytes } => Self::Cut { good_bytes },
            FramingFault::Damaged { good_bytes, what } => Self::Damaged { good_bytes, what },
            FramingFault::Io(error) => Self::Io(error),
        }
    }
}

/// Whoever wants to know what a trace holds.
pub trait Listener {
    /// Comes first, once.
    fn head(&mut self, head: &Head);
    /// Each event with its texts, in the order in which they ended.
    fn event(&mut self, event: &Event, texts: &[u8]);
    /// What clocks and counters showed.
    fn moment(&mut self, moment: &Moment);
}

/// Reads all of a trace. An error that [leaves a good part](TraceFileError::leaves_good_part) comes after that part has been handed over.
pub fn read_trace(from: impl Read, listener: &mut impl Listener) -> Result<(), TraceFileError> {
    let mut reader = TraceReader::new(from)?;
    let mut decoder = Decoder::default();
    let mut has_head = false;
    loop {
        let good_bytes = reader.good_bytes();
        let damaged = |what: String| TraceFileError::Damaged { good_bytes, what };
        match reader.next_frame()? {
            None => return Ok(()),
            Some(Frame::Head(head)) if !has_head => {
                has_head = true;
                listener.head(&head);
            }
            Some(_) if !has_head => return Err(damaged("it does not begin as a trace does".to_owned())),
            Some(Frame::Head(_)) => return Err(damaged("it begins twice".to_owned())),
            Some(Frame::Events(block)) => {
                let read = decoder.read(&block, |event, texts| listener.event(event, texts));
                read.map_err(|error: CorruptBlock| damaged(format!("a block of events: {error}")))?;
            }
            Some(Frame::Moment(moment) | Frame::End(moment)) => listener.moment(&moment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encoder;

    #[derive(Default)]
    struct Heard {
        machine: String,
        events: Vec<Event>,
        moments: Vec<Moment>,
    }

    impl Listener for Heard {
        fn head(&mut self, head: &Head) {
            self.machine.clone_from(&head.machine);
        }
        fn event(&mut self, event: &Event, _texts: &[u8]) {
            self.events.push(*event);
        }
        fn moment(&mut self, moment: &Moment) {
            self.moments.push(*moment);
        }
    }

    fn trace() -> Vec<u8> {
        let mut bytes = Vec::new();
        write_magic(&mut bytes).unwrap();
        bytes.extend(framed(&Frame::Head(Box::new(Head { machine: "one".to_owned(), ..Head::default() }))));
        let mut encoder = Encoder::default();
        for block in 0..2 {
            for number in 0..10 {
                encoder.add(&Event { operation: 3, start_ns: block * 10 + number, ..Event::default() }, &[]);
            }
            bytes.extend(framed(&Frame::Events(encoder.take().unwrap())));
        }
        bytes.extend(framed(&Frame::End(Moment { recorded: 20, ..Moment::default() })));
        bytes
    }

    #[test]
    fn a_trace_is_read_up_to_where_it_was_cut() {
        let whole = trace();
        let mut counts = Vec::new();
        for length in 0..whole.len() {
            let mut heard = Heard::default();
            let error = read_trace(&whole[..length], &mut heard).unwrap_err();
            match length {
                0..12 => assert!(matches!(error, TraceFileError::Foreign), "{error}"),
                _ => assert!(
                    error.leaves_good_part() && error.to_string().contains("cut off"),
                    "{length}: {error}"
                ),
            }
            counts.push(heard.events.len());
        }
        counts.dedup();
        assert_eq!(counts, [0, 10, 20]);
        let mut heard = Heard::default();
        read_trace(&whole[..], &mut heard).unwrap();
        assert_eq!((heard.machine.as_str(), heard.events.len(), heard.moments[0].recorded), ("one", 20, 20));
    }

    #[test]
    fn a_head_is_read_with_and_without_a_suspension() {
        let suspension =
            Suspension { from: Moment::default(), cause: SuspensionCause::Slow, after: 7, undelivered: 9 };
        for suspension in [None, Some(suspension)] {
            let written = Head { machine: "one".to_owned(), suspension, ..Head::default() };
            let frame = framed(&Frame::Head(Box::new(written.clone())));
            assert_eq!(head(&frame[framing::HEAD_BYTES..]).unwrap(), written);
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let whole = trace();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            assert!(read_trace(&bytes[..], &mut Heard::default()).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_is_no_trace_and_what_is_of_another_time_are_told_apart() {
        let of = |bytes: &[u8]| read_trace(bytes, &mut Heard::default()).unwrap_err().to_string();
        assert_eq!(of(b"PAR1 and so on and on"), "this is no trace of comb");
        assert_eq!(of(b""), "this is no trace of comb");
        assert_eq!(
            of(b"comb trace\n2 and so on"),
            "this trace has format '2', and this comb reads format '1'"
        );
    }
}
