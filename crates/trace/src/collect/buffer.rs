//! The frames of a recording that are not known to be on the collector's disk.

use std::collections::VecDeque;

use super::refusal::PeerFault;
use super::wire;
use crate::codec::BlockHead;
use crate::framing;
use crate::trace_file::kind;

/// A recording on its way. A frame's sequence number is how many frames there are before it.
pub(super) struct Buffer {
    pub(super) recording: u64,
    pub(super) began_wall_ns: u64,
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// So many frames are on the collector's disk, and no longer here.
    acknowledged: u64,
    /// The next that is to be sent.
    next: u64,
    is_ended: bool,
}

impl Buffer {
    pub(super) const fn new(recording: u64, began_wall_ns: u64) -> Self {
        let frames = VecDeque::new();
        Self { recording, began_wall_ns, frames, bytes: 0, acknowledged: 0, next: 0, is_ended: false }
    }

    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.is_ended = frame[0] == kind::END;
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Whether its last frame is here, or gone.
    pub(super) const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether all of it is on the collector's disk.
    pub(super) fn is_delivered(&self) -> bool {
        self.is_ended && self.frames.is_empty()
    }

    /// How many events are in what is here.
    pub(super) fn events(&self) -> u64 {
        let blocks = self.frames.iter().filter(|frame| frame[0] == kind::EVENTS);
        let heads = blocks.filter_map(|frame| BlockHead::split(&frame[framing::HEAD_BYTES..]).ok());
        heads.map(|(head, _)| u64::from(head.events)).sum()
    }

    /// The collector has so many frames: the next one is sent next.
    pub(super) fn resume(&mut self, frames: u64) -> Result<(), PeerFault> {
        self.next = self.acknowledged + self.frames.len() as u64;
        self.acknowledge(frames)?;
        self.next = frames;
        Ok(())
    }

    /// The first so many frames are on its disk.
    pub(super) fn acknowledge(&mut self, frames: u64) -> Result<(), PeerFault> {
        if !(self.acknowledged..=self.next).contains(&frames) {
            return Err(PeerFault::Invented);
        }
        while self.acknowledged < frames {
            self.bytes -= self.frames.pop_front().expect("what was sent is here").len();
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// The next frame to be sent, as a message.
    pub(super) fn transmit(&mut self) -> Option<Vec<u8>> {
        let at = usize::try_from(self.next - self.acknowledged).expect("what was sent is here");
        let message = wire::frame_message(self.next, self.frames.get(at)?);
        self.next += 1;
        Some(message)
    }
}
