//! Which frame may follow which in a trace.

use super::refusal::PeerFault;
use crate::codec::BlockHead;
use crate::framing;
use crate::trace_file::{Moment, kind};

/// A trace as far as it has come. What is in its head and its blocks is not looked at: unpacking what a stranger packed costs memory, and who
/// packs nonsense spoils their own trace, which its readers notice.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Order {
    frames: u64,
    blocks: u32,
    is_ended: bool,
}

impl Order {
    /// How many frames have come.
    pub(super) const fn frames(self) -> u64 {
        self.frames
    }

    /// Whether the last one has.
    pub(super) const fn is_ended(self) -> bool {
        self.is_ended
    }

    /// Takes the next frame, if it is one and may stand here.
    pub(super) fn take(&mut self, frame: &[u8]) -> Result<(), PeerFault> {
        let (kind, body) = framing::unframed(frame).ok_or(PeerFault::Damaged)?;
        self.take_checked(kind, body)
    }

    /// The same for a frame whose checksum is known to be right.
    pub(super) fn take_checked(&mut self, kind: u8, body: &[u8]) -> Result<(), PeerFault> {
        if self.is_ended || (self.frames == 0) != (kind == kind::HEAD) {
            return Err(PeerFault::Order);
        }
        match kind {
            kind::HEAD => {}
            kind::EVENTS => {
                let (block, _) = BlockHead::split(body).map_err(|_| PeerFault::Damaged)?;
                // The encoder forgets all from time to time, and begins with 0 again.
                if block.place != 0 && block.place != self.blocks {
                    return Err(PeerFault::Order);
                }
                self.blocks = block.place.wrapping_add(1);
            }
            kind::MOMENT | kind::END => {
                postcard::from_bytes::<Moment>(body).map_err(|_| PeerFault::Damaged)?;
                self.is_ended = kind == kind::END;
            }
            _ => return Err(PeerFault::Order),
        }
        self.frames += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encoder;
    use crate::event::Event;
    use crate::trace_file::{Frame, Head, framed};

    #[test]
    fn frames_come_in_the_order_in_which_a_trace_can_be_read() {
        let head = framed(&Frame::Head(Box::<Head>::default()));
        let end = framed(&Frame::End(Moment::default()));
        let moment = framed(&Frame::Moment(Moment::default()));
        let mut encoder = Encoder::default();
        let [first, second, third] = std::array::from_fn(|_| {
            encoder.add(&Event { operation: 3, ..Event::default() }, &[]);
            framed(&Frame::Events(encoder.take().unwrap()))
        });
        let last = |frames: &[&[u8]]| {
            let mut order = Order::default();
            let (last, before) = frames.split_last().unwrap();
            before.iter().for_each(|frame| order.take(frame).unwrap());
            order.take(last)
        };
        assert_eq!(last(&[&head, &first, &moment, &second, &third, &end]), Ok(()));
        assert_eq!(last(&[&head, &first, &second, &first, &second]), Ok(()));
        assert_eq!(last(&[&moment]), Err(PeerFault::Order));
        assert_eq!(last(&[&head, &head]), Err(PeerFault::Order));
        assert_eq!(last(&[&head, &end, &moment]), Err(PeerFault::Order));
        assert_eq!(last(&[&head, &first, &third]), Err(PeerFault::Order));
        assert_eq!(last(&[&head, &first[..first.len() - 1]]), Err(PeerFault::Damaged));
        assert_eq!(last(&[&head, &framed(&Frame::Events(vec![0; 15]))]), Err(PeerFault::Damaged));
    }
}
