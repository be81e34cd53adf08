//! Frames as they lie in the memory of guests: each is copied once, from the sender's pieces into the receiver's.

use std::sync::Arc;

use vm_memory::{GuestMemory, Permissions, VolatileSlice};

use super::offloads::{HEAD, HEADER, Undone};
use super::subnet::{LONGEST_FRAME, Refused};
use crate::devices::backend::{Chain, Memory, Ring};

/// A frame lies in no more pieces than so many, here as there. The largest is in 43 of the buffers that Linux has for receiving.
pub const MOST_DESCRIPTORS: usize = 128;

/// A piece of memory that a guest may write to at any time.
type Piece<'m> = VolatileSlice<'m>;

/// A frame to be passed on. How it begins is ours: what was checked of it stays so, whatever its guest writes now.
pub struct Frame<'m> {
    /// What its sender says of it.
    pub header: [u8; HEADER],
    head: [u8; HEAD],
    rest: Vec<Piece<'m>>,
    length: usize,
}

impl<'m> Frame<'m> {
    /// What a guest made available as a frame, and how many descriptors were looked at.
    pub fn sent(chain: Chain, memory: &'m Memory) -> (Result<Self, Refused>, usize) {
        let (pieces, descriptors) = pieces(chain, memory, Permissions::Read);
        (pieces.ok_or(Refused::Malformed).and_then(Self::of), descriptors)
    }

    fn of(mut rest: Vec<Piece<'m>>) -> Result<Self, Refused> {
        let length: usize = rest.iter().map(Piece::len).sum();
        let length = length.checked_sub(HEADER).filter(|length| *length <= LONGEST_FRAME);
        let length = length.ok_or(Refused::Malformed)?;
        let (mut header, mut head) = ([0; HEADER], [0; HEAD]);
        take(&mut rest, &mut header);
        take(&mut rest, &mut head);
        Ok(Self { header, head, rest, length })
    }

    /// A frame that is in our memory as a whole.
    pub fn whole(header: [u8; HEADER], bytes: &'m mut [u8]) -> Self {
        let (length, mut head) = (bytes.len(), [0; HEAD]);
        let mut rest = vec![Piece::from(bytes)];
        take(&mut rest, &mut head);
        Self { header, head, rest, length }
    }

    /// How it begins.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.length.min(HEAD)]
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A copy of all of it.
    pub fn copy_to(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(self.head());
        bytes.resize(self.length, 0);
        let mut at = self.head().len();
        for piece in &self.rest {
            at += piece.copy_to(&mut bytes[at..]);
        }
    }

    /// Puts it into the buffers of a receiver, who takes this undone, one after the other if they may be merged. If there are not enough of them, nothing is done.
    pub fn put(&mut self, ring: &mut Ring, are_merged: bool, undone: Undone) -> bool {
        let memory = Arc::clone(ring.memory());
        let Some((buffers, room)) = self.room(ring, &memory, are_merged) else { return false };
        let mut header = undone.header(u16::try_from(buffers.len()).expect("they are few"));
        let mut room = Room { pieces: room, next: 0 };
        room.fill(Piece::from(&mut header[..]));
        let length = self.head().len();
        room.fill(Piece::from(&mut self.head[..length]));
        self.rest.iter().for_each(|piece| room.fill(*piece));
        ring.put_all(&buffers);
        true
    }

    /// The buffers for it, each with how much of it goes there, and their pieces.
    #[expect(clippy::type_complexity, reason = "a list each")]
    fn room<'r>(
        &self,
        ring: &mut Ring,
        memory: &'r Memory,
        are_merged: bool,
    ) -> Option<(Vec<(u16, u32)>, Vec<Piece<'r>>)> {
        let (mut buffers, mut room, mut descriptors) = (Vec::new(), Vec::new(), 0);
        let mut missing = HEADER + self.length;
        while missing > 0 && (are_merged || buffers.is_empty()) && descriptors < MOST_DESCRIPTORS {
            let Some(chain) = ring.take() else { break };
            let index = chain.head_index();
            let (pieces, count) = pieces(chain, memory, Permissions::Write);
            let length: usize = pieces.iter().flatten().map(Piece::len).sum();
            // A buffer has room for the header at least. (Virtio §5.1.6.3.1)
            let Some(mut pieces) = pieces.filter(|_| length >= HEADER) else {
                ring.damaged();
                return None;
            };
            let used = length.min(missing);
            buffers.push((index, u32::try_from(used).expect("a frame is short")));
            room.append(&mut pieces);
            missing -= used;
            descriptors += count;
        }
        if missing > 0 {
            buffers.iter().for_each(|_| ring.untake());
            return None;
        }
        Some((buffers, room))
    }
}

/// Where a frame goes to.
struct Room<'m> {
    pieces: Vec<Piece<'m>>,
    next: usize,
}

impl Room<'_> {
    fn fill(&mut self, mut from: Piece<'_>) {
        while let Some(to) = self.pieces.get_mut(self.next).filter(|_| !from.is_empty()) {
            let count = from.len().min(to.len());
            from.copy_to_volatile_slice(*to);
            from = rest_of(from, count);
            *to = rest_of(*to, count);
            self.next += usize::from(to.is_empty());
        }
    }
}

fn rest_of(piece: Piece<'_>, from: usize) -> Piece<'_> {
    piece.offset(from).expect("it is within the piece")
}

/// Takes bytes off the front.
fn take(pieces: &mut Vec<Piece<'_>>, bytes: &mut [u8]) {
    let (mut at, mut gone) = (0, 0);
    for piece in pieces.iter_mut() {
        let count = piece.copy_to(&mut bytes[at..]);
        at += count;
        *piece = rest_of(*piece, count);
        if !piece.is_empty() {
            break;
        }
        gone += 1;
    }
    pieces.drain(..gone);
}

/// The pieces of a chain, if it is one: it has an end, is not too long, lies in the guest's memory, and all of it is for this. And how many descriptors were
/// looked at.
fn pieces(chain: Chain, memory: &Memory, access: Permissions) -> (Option<Vec<Piece<'_>>>, usize) {
    let (mut pieces, mut count, mut has_end) = (Vec::new(), 0, false);
    for descriptor in chain {
        count += 1;
        if count > MOST_DESCRIPTORS || descriptor.is_write_only() != (access == Permissions::Write) {
            return (None, count);
        }
        let Ok(slices) = memory.get_slices(descriptor.addr(), descriptor.len() as usize, access) else {
            return (None, count);
        };
        for slice in slices {
            match slice {
                Ok(slice) => pieces.push(slice),
                Err(_) => return (None, count),
            }
        }
        // A chain that breaks off, as its next descriptor can not be, looks like one that ends.
        has_end = !descriptor.has_next();
    }
    (has_end.then_some(pieces), count)
}
