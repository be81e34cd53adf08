//! Blocks: stores into a region of the peer, and gets from one, in fragments of what the channel takes at once.
//!
//! A region is memory of its owner alone. Fragments are copied in, so an offset that a peer sends is an allegation that
//! is checked before the copy, and a region can be handed to several peers. Direct access without the copy is what
//! windows are for. (Thesis §2.3.6, §2.5)

use super::ActiveMessages;
use super::handlers::{Stored, StoredHandler};
use super::peers::{Peers, count};
use super::wire::{ARGUMENTS, GET, GOT, Head, Message, STORE};
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

/// Names a block that was sent: [`ActiveMessages::is_stored`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Store {
    channel: ChannelKey,
    /// Which request its last fragment was, counted from 1.
    request: u64,
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
    /// Polls as [`ActiveMessages::request`] does. Returns when the last fragment is sent and `data` can be used again, not
    /// when it has come: that is told by [`ActiveMessages::is_stored`]. The region's handler runs before that of the
    /// next request to this peer.
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
    ) -> Result<Store, ActiveError> {
        let head = Head { number: region, arguments: count(arguments), ..Head::default() };
        let fragment = self.fragment(channel, STORE_WORDS)?;
        let mut at = 0;
        loop {
            let end = data.len().min(at + fragment);
            let last = end == data.len();
            let mut words = [offset + at as u64, offset, 0, 0, 0, 0];
            words[2..2 + arguments.len()].copy_from_slice(arguments);
            let words = &words[..2 + arguments.len()];
            let head = Head { last, ..head };
            self.post_request(channel, Message { kind: STORE, head, words, data: &data[at..end] })?;
            if last {
                let request = self.peers.book(channel).map_or(0, |book| book.sent);
                return Ok(Store { channel, request });
            }
            at = end;
        }
    }

    /// As [`ActiveMessages::store`], and `then` is called by the poll that learns that the block is in the peer's region and
    /// was handled there. It is dropped if the channel ends before.
    pub fn store_then(
        &mut self,
        channel: ChannelKey,
        region: u16,
        offset: u64,
        arguments: &[u64],
        data: &[u8],
        then: impl FnOnce(&mut S) + Send + 'static,
    ) -> Result<Store, ActiveError> {
        let store = self.store(channel, region, offset, arguments, data)?;
        self.storing.push_back((store, Box::new(then)));
        Ok(store)
    }

    /// Whether a stored block is in the peer's region, and its handler has run. Looks at what earlier polls have learnt.
    /// `Err`: the channel is gone, and nobody will ever know.
    pub fn is_stored(&mut self, store: Store) -> Result<bool, ActiveError> {
        let stored = self.peers.book(store.channel).is_some_and(|book| book.handled() >= store.request);
        let lives = self.peers.endpoint.channel(store.channel).is_some();
        if stored || lives { Ok(stored) } else { Err(ActiveError::NoChannel) }
    }

    /// Polls until [`ActiveMessages::is_stored`].
    pub fn await_stored(&mut self, store: Store) -> Result<(), ActiveError> {
        // A channel that ends meanwhile ends the wait, whatever this says.
        self.poll_until(store.channel, |this| this.is_stored(store).unwrap_or(false))
    }

    /// Polls until the peers have handled all that was sent to them, requests and blocks: Split-C's end of a phase, on the
    /// sender's side.
    pub fn sync(&mut self) -> Result<(), ActiveError> {
        for channel in self.peers.awaited() {
            self.poll_until(channel, |this| this.outstanding(channel) == 0)?;
        }
        Ok(())
    }

    /// Calls the handlers of blocks that are stored by now.
    #[cold]
    pub(super) fn complete_stores(&mut self) {
        for (store, then) in std::mem::take(&mut self.storing) {
            match self.is_stored(store) {
                Ok(true) => then(&mut self.state),
                Ok(false) => self.storing.push_back((store, then)),
                Err(_) => {}
            }
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
            let words = &[offset + at as u64, length as u64, tag];
            self.post_request(channel, Message { kind: GET, head, words, data: &[] })?;
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
#[inline(never)]
pub(super) fn stored<S>(
    regions: &mut super::handlers::Table<Option<Region<S>>>,
    state: &mut S,
    head: Head,
    taken: Taken<'_>,
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
#[inline(never)]
pub(super) fn asked<S>(
    regions: &mut super::handlers::Table<Option<Region<S>>>,
    peers: &mut Peers,
    head: Head,
    taken: Taken<'_>,
) -> Result<bool, Breach> {
    if taken.bytes != 32 {
        return Err(Breach::Form("a get has three words"));
    }
    let region = regions
        .get(head.number)
        .filter(|region| region.access != Access::Store)
        .ok_or(Breach::Form("a get from a region that is not there for it"))?;
    let [_, offset, length, tag, ..] = *taken.words;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let bytes =
        range(offset, length, region.bytes.len()).ok_or(Breach::Form("a get that leaves its region"))?;
    let data = &region.bytes[bytes];
    match peers.reply(taken.channel, Message { kind: GOT, head: Head::default(), words: &[tag], data }) {
        Err(PostError::TooLong { .. }) => Err(Breach::Form("a get of more than the channel takes at once")),
        _ => Ok(true),
    }
}

/// Takes one fragment that we asked for.
#[inline(never)]
pub(super) fn got(getting: &mut Getting, taken: Taken<'_>, content: &[u8]) -> Result<(), Breach> {
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
