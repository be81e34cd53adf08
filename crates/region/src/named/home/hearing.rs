//! What attached processes say. All of it is an allegation: what is refused ends the channel of the one who said it, and has changed nothing.

use std::time::{Duration, Instant};

use comb_coherence::stache::Stache;
use comb_coherence::{Access, Block, Message, PeerError};

use super::shared::{Late, Shared};
use super::{Books, MESSAGES_A_TURN};
use crate::wire::{self, Head, Kind};

/// What a process said that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Mistake {
    #[error("a message that means nothing")]
    Nonsense,
    #[error("a region at {0:#x} that it is not attached to")]
    NotAttached(u64),
    #[error("block {0}, which the region does not have")]
    NoBlock(u64),
    #[error("{error} ({what}, region at {offset:#x})")]
    Protocol { error: PeerError, what: String, offset: u64 },
}

/// A block that an importer was just given stays given until it can have used it; messages about it wait.
pub(super) struct Held {
    offset: u64,
    block: u64,
    until: Instant,
    messages: Vec<(u32, Head, Vec<u8>)>,
    /// How often the same block had to be given again at once.
    times: u32,
}

/// From a grant to the access: an answer, its way, the return from a signal handler.
const SHORTEST_HOLD: Duration = Duration::from_micros(8);
/// Who comes back so soon was not quick enough, perhaps because it had no core.
const AT_ONCE: Duration = Duration::from_micros(100);
const LONGEST_HOLD: Duration = Duration::from_millis(2);
/// What one process may have waiting while a region stands still: as many as it has threads that can be stopped.
const MOST_LATE: usize = 65_536;

impl Books {
    /// Takes in what has come. Whether anything had.
    pub(super) fn turn(&mut self) -> bool {
        let mut came = self.release_held();
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..MESSAGES_A_TURN {
            let Some(arrival) = self.peers.receive(&mut buffer) else { break };
            came = true;
            self.hear(arrival.from, arrival.kind, &buffer);
        }
        self.buffer = buffer;
        self.peers.flush();
        while let Some(gone) = self.peers.take_gone() {
            came = true;
            self.gone(gone.rank);
        }
        came
    }

    pub(super) fn is_owing(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.messages.is_empty()) || self.peers.has_unsent()
    }

    fn gone(&mut self, rank: u32) {
        let Self { regions, peers, .. } = self;
        for region in regions.values_mut() {
            if let Some(number) = region.number_of(rank) {
                region.detach(peers, number);
            }
            region.late.retain(|late| late.from != rank);
        }
        peers.forget(rank);
    }

    fn hear(&mut self, from: u32, kind: u8, message: &[u8]) {
        if let Err(mistake) = self.take(from, kind, message) {
            eprintln!("comb: an attached process was cut off, for it spoke of {mistake}");
            self.peers.cut(from);
            self.gone(from);
        }
    }

    pub(super) fn take(&mut self, from: u32, kind: u8, message: &[u8]) -> Result<(), Mistake> {
        let (Some(kind), Some((head, content))) = (Kind::of(kind), wire::split(message)) else {
            return Err(Mistake::Nonsense);
        };
        match kind {
            Kind::Enter => self.take_enter(from, &head),
            Kind::Want => self.take_want(from, &head),
            Kind::Protocol => self.take_protocol(from, &head, content),
            Kind::Leave => {
                let (region, number) = attached(&mut self.regions, from, head[1])?;
                region.leave(&mut self.peers, number, head[0]);
                Ok(())
            }
            _ => Err(Mistake::Nonsense),
        }
    }

    fn take_enter(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [number, offset, proof, _] = *head;
        let unknown = Mistake::NotAttached(offset);
        let region = self.regions.get_mut(&offset).ok_or(unknown.clone())?;
        let is_there = region.number_of(from).is_some();
        let attachment =
            u32::try_from(number).ok().and_then(|number| region.body.attachments.get_mut(&number));
        let attachment = attachment.filter(|one| one.rank.is_none() && one.proof == proof && !is_there);
        attachment.ok_or(unknown)?.rank = Some(from);
        Ok(())
    }

    fn take_want(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [_, offset, block, word] = *head;
        let (region, number) = attached(&mut self.regions, from, offset)?;
        if region.body.attachments[&number].importer.is_none() {
            return Err(Mistake::NotAttached(offset));
        }
        if block >= region.body.layout.blocks() {
            return Err(Mistake::NoBlock(block));
        }
        let is_store = word & 1 == 1;
        if region.is_frozen && is_store {
            return put_off(region, Late { from, head: *head, kind: Kind::Want });
        }
        region.want(&mut self.peers, number, head);
        self.hold_given(offset);
        Ok(())
    }

    fn take_protocol(&mut self, from: u32, head: &Head, content: &[u8]) -> Result<(), Mistake> {
        let [word, offset, block, more] = *head;
        if let Some(held) = &mut self.held
            && (held.offset, held.block) == (offset, block)
            && Instant::now() < held.until
        {
            held.messages.push((from, *head, content.to_vec()));
            return Ok(());
        }
        let (region, number) = attached(&mut self.regions, from, offset)?;
        let is_copier = region.body.attachments[&number].importer.is_none();
        if !is_copier || word >> 32 != u64::from(region.body.allocation.generation) {
            return Err(Mistake::NotAttached(offset));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the first byte")]
        let kind = word as u8;
        if region.is_frozen && Stache::asks(kind).is_some() {
            return put_off(region, Late { from, head: *head, kind: Kind::Protocol });
        }
        let may_store = region.body.attachments[&number].to_store;
        if !may_store && Stache::asks(kind) == Some(Access::ReadWrite) {
            let what = region.describe(kind);
            return Err(Mistake::Protocol { error: PeerError::NotHeld(Block(block)), what, offset });
        }
        let message = Message { kind, block: Block(block), word: more, content };
        region.hear(&mut self.peers, number, message).map_err(|error| {
            let what = region.describe(kind);
            Mistake::Protocol { error, what, offset }
        })?;
        self.hold_given(offset);
        Ok(())
    }

    /// What had to wait while a region stood still.
    pub(super) fn hear_late(&mut self, late: Vec<Late>) {
        for Late { from, head, kind } in late {
            self.hear(from, kind as u8, &wire::pack(&head));
        }
    }

    /// An importer may have been given what another had: for a moment nobody takes it.
    fn hold_given(&mut self, offset: u64) {
        let Some(block) = self.regions.get_mut(&offset).and_then(|region| region.given.take()) else {
            return;
        };
        let now = Instant::now();
        let before = self.held.take();
        let times = match &before {
            Some(held) if (held.offset, held.block) == (offset, block) && now < held.until + AT_ONCE => {
                held.times + 1
            }
            _ => 0,
        };
        let until = now + LONGEST_HOLD.min(SHORTEST_HOLD * (1 << times.min(10)));
        self.held = Some(Held { offset, block, until, messages: Vec::new(), times });
        self.hear_kept(before);
    }

    fn release_held(&mut self) -> bool {
        let Some(held) = &mut self.held else { return false };
        if held.messages.is_empty() || Instant::now() < held.until {
            return false;
        }
        let messages = std::mem::take(&mut held.messages);
        let (offset, block, until, times) = (held.offset, held.block, held.until, held.times);
        self.hear_kept(Some(Held { offset, block, until, messages, times }));
        true
    }

    fn hear_kept(&mut self, held: Option<Held>) {
        for (from, head, content) in held.map(|held| held.messages).unwrap_or_default() {
            let message = [&wire::pack(&head)[..], &content].concat();
            self.hear(from, Kind::Protocol as u8, &message);
        }
    }
}

/// The region that a peer speaks of, and the peer's number there.
fn attached(
    regions: &mut std::collections::BTreeMap<u64, Shared>,
    from: u32,
    offset: u64,
) -> Result<(&mut Shared, u32), Mistake> {
    let region = regions.get_mut(&offset).ok_or(Mistake::NotAttached(offset))?;
    let number = region.number_of(from).ok_or(Mistake::NotAttached(offset))?;
    Ok((region, number))
}

fn put_off(region: &mut Shared, late: Late) -> Result<(), Mistake> {
    if region.late.len() >= MOST_LATE {
        return Err(Mistake::Nonsense);
    }
    region.late.push(late);
    Ok(())
}
