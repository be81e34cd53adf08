//! Blocks: stores into a region of the peer, and gets from one, in fragments of what the channel takes at once.
//!
//! A region is memory of its owner alone. Fragments are copied in, so an offset that a peer sends is an allegation that
//! is checked before the copy, and a region can be handed to several peers. Direct access without the copy is what
//! windows are for. (Thesis §2.3.6, §2.5)

use super::ActiveMessages;
use super::handlers::{Stored, StoredHandler};
use super::peers::{Peers, count};
use super::wire::{ARGUMENTS, GET, GOT, Head, STORE};
use super::{ActiveError, Taken};
use crate::channel::ChannelKey;
use crate::endpoint::PostError;
use crate::ring::Breach;

/// Words before the data of a fragment: head, its offset, and the block's, and arguments.
const STORE_WORDS: usize = 3 + ARGUMENTS;
/// Words before the data of a fragment that was got: head and tag.
const GOT_WORDS: usize = 2;

/// What peers may do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Store into it.
    Store,
    /// Get from it.
    Get,
    /// Both.
    StoreAndGet,
}

/// Memory that peers may store into or get from.
pub(super) struct Region<S> {
    bytes: Vec<u8>,
    access: Access,
    on_stored: StoredHandler<S>,
}

/// The get that is under way; there is at most one, because who asks waits.
#[derive(Debug, Default)]
pub(super) struct Getting {
    from: Option<ChannelKey>,
    /// Which get it is: fragments of an earlier one, given up, may still come.
    number: u32,
    bytes: Vec<u8>,
    /// The fragments that are still to come, by the channel's fragment length.
    missing: Vec<bool>,
    missing_count: usize,
    fragment: usize,
}

impl<S> ActiveMessages<S> {
    /// Makes a region that peers name by `number`. `on_stored` is called when a block has come whole.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn add_region(
        &mut self,
        number: u16,
        bytes: Vec<u8>,
        access: Access,
        on_stored: impl FnMut(&mut S, Stored<'_>) + Send + 'static,
    ) {
        self.regions.set(number, Region { bytes, access, on_stored: Box::new(on_stored) });
    }

    /// A region's bytes as they are now.
    pub fn region(&mut self, number: u16) -> Option<&mut [u8]> {
        self.regions.get(number).map(|region| &mut *region.bytes)
    }

    /// Copies `data` to `offset` in a region of the peer; its handler is called with `arguments` when all is there.
    /// Polls while the window is full. Returns when the last fragment is sent, not when it has come: the region's
    /// handler runs later, and the next request to this peer after it.
    ///
    /// # Panics
    /// With more than four arguments.
    pub fn store(
        &mut self,
        channel: ChannelKey,
        region: u16,
        offset: u64,
        arguments: &[u64],
        data: &[u8],
    ) -> Result<(), ActiveError> {
        let head = Head { number: region, arguments: count(arguments), ..Head::default() };
        let fragment = self.fragment(channel, STORE_WORDS)?;
        let mut at = 0;
        loop {
            let end = data.len().min(at + fragment);
            let last = end == data.len();
            let mut words = [offset + at as u64, offset, 0, 0, 0, 0];
            words[2..2 + arguments.len()].copy_from_slice(arguments);
            let words = &words[..2 + arguments.len()];
            self.post_request(channel, STORE, Head { last, ..head }, words, &data[at..end])?;
            if last {
                return Ok(());
            }
            at = end;
        }
    }

    /// Fills `into` from `offset` in a region of the peer, with a window of fragments under way, and waits for all.
    /// Handlers run meanwhile.
    pub fn get(
        &mut self,
        channel: ChannelKey,
        region: u16,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), ActiveError> {
        let fragment = self.fragment(channel, GOT_WORDS)?;
        let fragments = into.len().div_ceil(fragment);
        let getting = &mut self.getting;
        getting.from = Some(channel);
        getting.number = getting.number.wrapping_add(1);
        getting.bytes.resize(into.len(), 0);
        getting.missing.clear();
        getting.missing.resize(fragments, true);
        getting.missing_count = fragments;
        getting.fragment = fragment;
        let number = getting.number;
        let outcome = self.get_fragments(channel, region, offset, into.len(), number);
        self.getting.from = None;
        outcome?;
        into.copy_from_slice(&self.getting.bytes);
        Ok(())
    }

    fn get_fragments(
        &mut self,
        channel: ChannelKey,
        region: u16,
        offset: u64,
        bytes: usize,
        number: u32,
    ) -> Result<(), ActiveError> {
        let head = Head { number: region, ..Head::default() };
        let fragment = self.getting.fragment;
        for index in 0..self.getting.missing.len() {
            let at = index * fragment;
            let length = fragment.min(bytes - at);
            let tag = u64::from(number) << 32 | index as u64;
            self.post_request(channel, GET, head, &[offset + at as u64, length as u64, tag], &[])?;
        }
        self.poll_until(channel, |this| this.getting.missing_count == 0)
    }

    fn fragment(&self, channel: ChannelKey, words: usize) -> Result<usize, ActiveError> {
        let longest = self.peers.endpoint.longest_message(channel).ok_or(ActiveError::NoChannel)?;
        // Several fragments in the payload area at once, so that one is filled while another is read; on a channel of
        // slots alone, what a slot has left.
        let whole = if longest / 4 > 2 * words * 8 { longest / 4 } else { longest };
        let fragment = whole.saturating_sub(words * 8);
        if fragment == 0 {
            Err(ActiveError::TooLong { bytes: words * 8 + 1, limit: longest })
        } else {
            Ok(fragment)
        }
    }
}

/// Takes one fragment into its region.
pub(super) fn stored<S>(
    regions: &mut super::handlers::Table<Option<Region<S>>>,
    state: &mut S,
    head: Head,
    taken: &Taken,
    content: &[u8],
) -> Result<(), Breach> {
    let arguments = usize::from(head.arguments);
    let data = content
        .get((3 + arguments) * 8..)
        .ok_or(Breach::Form("a stored block is shorter than its own description"))?;
    let region = regions
        .get(head.number)
        .filter(|region| region.access != Access::Get)
        .ok_or(Breach::Form("a store into a region that is not there for it"))?;
    let outside = Breach::Form("a store that leaves its region");
    let at = range(taken.words[1], data.len(), region.bytes.len()).ok_or(outside)?;
    let end = at.end;
    region.bytes[at].copy_from_slice(data);
    if head.last {
        let start = usize::try_from(taken.words[2]).ok().filter(|&start| start <= end).ok_or(outside)?;
        let arguments = &taken.words[3..3 + arguments];
        let bytes = &mut region.bytes[start..end];
        (region.on_stored)(state, Stored { from: taken.channel, arguments, offset: start, bytes });
    }
    Ok(())
}

/// Sends one fragment of a region.
pub(super) fn asked<S>(
    regions: &mut super::handlers::Table<Option<Region<S>>>,
    peers: &mut Peers,
    head: Head,
    taken: &Taken,
) -> Result<bool, Breach> {
    if taken.bytes != 32 {
        return Err(Breach::Form("a get has three words"));
    }
    let region = regions
        .get(head.number)
        .filter(|region| region.access != Access::Store)
        .ok_or(Breach::Form("a get from a region that is not there for it"))?;
    let [_, offset, length, tag, ..] = taken.words;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let bytes =
        range(offset, length, region.bytes.len()).ok_or(Breach::Form("a get that leaves its region"))?;
    match peers.reply(taken.channel, GOT, Head::default(), &[tag], &region.bytes[bytes]) {
        Err(PostError::TooLong { .. }) => Err(Breach::Form("a get of more than the channel takes at once")),
        _ => Ok(true),
    }
}

/// Takes one fragment that we asked for.
pub(super) fn got(getting: &mut Getting, taken: &Taken, content: &[u8]) -> Result<(), Breach> {
    let data = content.get(GOT_WORDS * 8..).ok_or(Breach::Form("a got fragment without its tag"))?;
    let tag = taken.words[1];
    #[expect(clippy::cast_possible_truncation, reason = "two fields of one word")]
    let (number, index) = ((tag >> 32) as u32, (tag as u32) as usize);
    if getting.from != Some(taken.channel) || getting.number != number {
        // Of a get that was given up.
        return Ok(());
    }
    let at = index.saturating_mul(getting.fragment);
    let expected = getting.fragment.min(getting.bytes.len().saturating_sub(at));
    let missing = getting.missing.get_mut(index).filter(|missing| **missing);
    let (Some(missing), true) = (missing, data.len() == expected) else {
        return Err(Breach::Form("a fragment that was not asked for"));
    };
    *missing = false;
    getting.missing_count -= 1;
    getting.bytes[at..at + expected].copy_from_slice(data);
    Ok(())
}

fn range(offset: u64, bytes: usize, limit: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(bytes)?;
    (end <= limit).then_some(start..end)
}
