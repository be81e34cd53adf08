//! What moves the bytes of an interface's work: out of registered memory into its channel, and between registered memory
//! and the peer's windows. Private memory is read and written where it is.

use super::descriptor::{Span, WorkError};
use super::memory::{Memory, pieces};
use super::message::{self, DATA_HEADER_BYTES, DataHeader};
use crate::channel::ChannelKey;
use crate::endpoint::{Endpoint, PostError};
use crate::ring::INLINE_BYTES;
use crate::window::RemoteWindow;

/// Pieces that a fragment is gathered from in place, its header counted. Of more, a copy is made first.
const MOST_PIECES: usize = 8;

const CHECKED: &str = "spans are checked when they are posted, and their memory stays until they are done";

/// See the [module](self).
pub(super) struct Mover<'a> {
    pub(super) endpoint: &'a mut Endpoint,
    pub(super) channel: ChannelKey,
    pub(super) memory: &'a mut Memory,
    /// For what is not private, or in too many pieces.
    pub(super) buffer: &'a mut Vec<u8>,
}

impl Mover<'_> {
    /// Sends a message from `sent_bytes` on, which it moves up. A message that the channel takes at once, and that brings
    /// nothing else, goes without a header.
    #[inline]
    pub(super) fn send(
        &mut self,
        header: &DataHeader,
        spans: &[Span],
        sent_bytes: &mut usize,
    ) -> Result<(), PostError> {
        let total = header.total as usize;
        if header.immediate.is_none() && total <= INLINE_BYTES {
            return self.send_whole(spans, total);
        }
        self.send_long(header, spans, sent_bytes)
    }

    #[inline(never)]
    fn send_long(
        &mut self,
        header: &DataHeader,
        spans: &[Span],
        sent_bytes: &mut usize,
    ) -> Result<(), PostError> {
        let total = header.total as usize;
        let longest = self.endpoint.longest_message(self.channel).ok_or(PostError::NoChannel)?;
        // A quarter of what the channel takes at once, so that the receiver copies one fragment while we write another;
        // but never smaller than a slot.
        let longest = (longest / 4).max(INLINE_BYTES);
        if header.immediate.is_none() && total <= longest {
            return self.send_whole(spans, total);
        }
        loop {
            let bytes = (longest - DATA_HEADER_BYTES).min(total - *sent_bytes);
            let offset = u32::try_from(*sent_bytes).expect("less than the total");
            let header = DataHeader { offset, ..*header }.encode();
            self.send_gathered(message::DATA, &header, spans, *sent_bytes, bytes)?;
            *sent_bytes += bytes;
            if *sent_bytes == total {
                return Ok(());
            }
        }
    }

    #[inline]
    fn send_whole(&mut self, spans: &[Span], total: usize) -> Result<(), PostError> {
        if let [span] = spans
            && let Some(message) = self.memory.private(*span).expect(CHECKED)
        {
            return self.endpoint.post(self.channel, message::WHOLE, message);
        }
        self.send_gathered(message::WHOLE, &[], spans, 0, total)
    }

    /// Sends the bytes from `at` on, behind a header.
    fn send_gathered(
        &mut self,
        kind: u8,
        header: &[u8],
        spans: &[Span],
        at: usize,
        bytes: usize,
    ) -> Result<(), PostError> {
        let Self { endpoint, channel, memory, buffer } = self;
        let mut parts: [&[u8]; MOST_PIECES] = [&[]; MOST_PIECES];
        parts[0] = header;
        let mut count = 1;
        for (piece, _) in pieces(spans, at, bytes) {
            let content = memory.private(piece).expect(CHECKED);
            let (Some(content), Some(part)) = (content, parts.get_mut(count)) else {
                buffer.resize(bytes, 0);
                memory.gather(spans, at, buffer).expect(CHECKED);
                return endpoint.post_gathered(*channel, kind, &[header, buffer]);
            };
            *part = content;
            count += 1;
        }
        endpoint.post_gathered(*channel, kind, &parts[..count])
    }

    /// Writes the spans into a window of the peer's, one after the other.
    pub(super) fn write(
        &mut self,
        window: &RemoteWindow,
        offset: usize,
        spans: &[Span],
    ) -> Result<(), WorkError> {
        let Self { endpoint, memory, buffer, .. } = self;
        let mut to = offset;
        for &span in spans {
            match memory.private(span)? {
                Some(content) => endpoint.put(window, to, content)?,
                None => {
                    buffer.resize(span.bytes, 0);
                    memory.read(span.memory, span.offset, buffer)?;
                    endpoint.put(window, to, buffer)?;
                }
            }
            to = to.saturating_add(span.bytes);
        }
        Ok(())
    }

    /// Reads from a window of the peer's into the spans, one after the other.
    pub(super) fn read(
        &mut self,
        window: &RemoteWindow,
        offset: usize,
        spans: &[Span],
    ) -> Result<(), WorkError> {
        let Self { endpoint, memory, buffer, .. } = self;
        let mut from = offset;
        for &span in spans {
            match memory.private_mut(span)? {
                Some(into) => endpoint.get(window, from, into)?,
                None => {
                    buffer.resize(span.bytes, 0);
                    endpoint.get(window, from, buffer)?;
                    memory.write(span.memory, span.offset, buffer)?;
                }
            }
            from = from.saturating_add(span.bytes);
        }
        Ok(())
    }
}
