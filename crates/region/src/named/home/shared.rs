//! One region at its home.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use comb_coherence::stache::Stache;
use comb_coherence::{Access, Block, CellId, Message, PeerError, Protocol};
use comb_memory::{Exports, Published};

use super::body::{At, Attachment, Body, Leave, Snapshot, Waiter};
use super::discarding::Doubtful;
use super::forking::{Ancestors, Forks};
use super::loaning::Provenance;
use crate::named::door::Status;
use crate::named::register::Entry;
use crate::named::{GRANTED, LOST, NO_MEMORY, REFUSED};
use crate::peers::Peers;
use crate::terms::Sharing;
use crate::wire::{Head, Kind};

/// The most blocks that an importer is shown at once.
pub(in crate::named) const MOST_SHOWN_BYTES: u64 = 2 << 20;

/// So many take a fraction of a millisecond, and in between others are served.
const BLOCKS_GOT_AT_ONCE: u64 = 64;

/// A region, with its protocol.
pub(super) struct Shared {
    pub(super) entry: Entry,
    pub(super) body: Body,
    protocol: Stache,
    next_importer: u32,
    /// What an importer was given just now, after it had waited.
    pub(super) given: Option<u64>,
    /// While it stands still for a checkpoint: rights that were asked for meanwhile.
    pub(super) is_frozen: bool,
    pub(super) late: Vec<Late>,
    pub(super) saved: crate::named::saving::Saved,
    /// What processes could store to that are gone, for as long as their cells may turn out to have failed.
    pub(super) doubtful: Vec<Doubtful>,
    /// Where its frames are from.
    pub(super) provenance: Provenance,
    /// How often it was asked for a block.
    misses: u64,
}

/// A message that has to wait.
pub(super) struct Late {
    pub(super) from: u32,
    pub(super) head: Head,
    pub(super) kind: Kind,
}

impl Shared {
    pub(super) fn new(entry: Entry, exports: Exports, published: Option<Arc<Published>>) -> Self {
        let allocation = entry.allocation;
        let layout = allocation.layout().expect("checked before it got a name");
        let protocol = protocol_of(&entry);
        let body = Body {
            allocation,
            layout,
            exports,
            access: BTreeMap::new(),
            lost: BTreeMap::new(),
            attachments: BTreeMap::new(),
            waiting: Vec::new(),
            ready: Vec::new(),
            changed: BTreeSet::new(),
            used: BTreeSet::new(),
            snapshot: None,
            ancestors: None,
            forks: Forks::new(published),
        };
        let saved = crate::named::saving::Saved::default();
        Self {
            entry,
            body,
            protocol,
            next_importer: 0,
            given: None,
            is_frozen: false,
            late: Vec::new(),
            saved,
            doubtful: Vec::new(),
            provenance: Provenance::default(),
            misses: 0,
        }
    }

    /// Lets somebody in: its number.
    pub(super) fn attach(&mut self, mut attachment: Attachment, imports: bool) -> u32 {
        if imports {
            self.next_importer += 1;
            attachment.importer = Some(self.next_importer);
        }
        let mut numbers = 1..;
        let number = numbers.find(|number| !self.body.attachments.contains_key(number)).expect("one is free");
        self.protocol.on_peer_birth(CellId(number));
        self.body.attachments.insert(number, attachment);
        number
    }

    /// The attachment of a peer.
    pub(super) fn number_of(&self, rank: u32) -> Option<u32> {
        let attachments = &self.body.attachments;
        attachments.iter().find(|(_, one)| one.rank == Some(rank)).map(|(&number, _)| number)
    }

    /// Somebody is gone, and what only it had.
    pub(super) fn detach(&mut self, peers: &mut Peers, number: u32) {
        let could_store_to = self.writable_by(number);
        let Some(attachment) = self.body.attachments.remove(&number) else { return };
        if attachment.leaves.is_none() {
            self.doubtful.extend(attachment.cell.map(|cell| Doubtful::now(cell, could_store_to)));
        }
        let is_other = |waiter: &Waiter| match *waiter {
            Waiter::Thread { of, .. } | Waiter::Leaving { of } => of != number,
            Waiter::Saving => true,
        };
        self.body.waiting.retain(|(_, waiter)| is_other(waiter));
        self.body.ready.retain(|(_, waiter)| is_other(waiter));
        match attachment.importer {
            Some(importer) => self.body.exports.dismiss(importer),
            None => self.protocol.on_peer_death(&mut At::new(&mut self.body, peers), CellId(number)),
        }
        self.settle(peers);
    }

    /// The blocks that a process can store to at this moment, in the home's frames or in a copy that it has alone.
    pub(super) fn writable_by(&self, number: u32) -> Vec<u64> {
        let Some(attachment) = self.body.attachments.get(&number) else { return Vec::new() };
        let block_bytes = self.body.block_bytes();
        match attachment.importer {
            Some(importer) => self.body.exports.granted_to(importer).map(|at| at / block_bytes).collect(),
            None => self.protocol.owned_by(CellId(number)).into_iter().map(|block| block.0).collect(),
        }
    }

    /// All of it is at home, and nobody is attached.
    pub(super) fn begin_anew(&mut self) {
        self.protocol = protocol_of(&self.entry);
        self.body.access.clear();
        self.body.lost.clear();
        self.body.waiting.clear();
        self.body.ready.clear();
        self.late.clear();
        self.given = None;
    }

    pub(super) fn hear(
        &mut self,
        peers: &mut Peers,
        number: u32,
        message: Message<'_>,
    ) -> Result<(), PeerError> {
        if message.block.0 < self.body.layout.blocks() {
            self.body.get_from_ancestors(message.block.0);
        }
        self.misses += u64::from(Stache::is_question(message.kind));
        let loss = self.body.lost.get(&message.block.0).copied();
        let mut at = At::new(&mut self.body, peers);
        if let Some(loss) = loss {
            self.protocol.lose(&mut at, message.block, loss);
        }
        let heard = self.protocol.on_message(&mut at, CellId(number), message);
        drop(at);
        self.settle(peers);
        match heard {
            Err(PeerError::Dead(_)) => Ok(()),
            heard => heard,
        }
    }

    pub(super) fn describe(&self, kind: u8) -> String {
        self.protocol.describe(kind)
    }

    /// An importer's thread was stopped.
    pub(super) fn want(&mut self, peers: &mut Peers, number: u32, head: &Head) {
        let [token, _, block, word] = *head;
        let (is_store, wishes) = (word & 1 == 1, word >> 1);
        let may_store = self.body.attachments[&number].to_store;
        if is_store && !may_store {
            return self.answer(peers, number, token, REFUSED, 0);
        }
        self.misses += 1;
        self.settle_thread(peers, Block(block), (number, token), is_store, wishes);
        // It has not waited.
        self.given = None;
        self.settle(peers);
    }

    /// Has a block brought home for somebody.
    pub(super) fn await_block(&mut self, peers: &mut Peers, block: Block, waiter: Waiter, is_store: bool) {
        self.body.waiting.push((block, waiter));
        let mut at = At::new(&mut self.body, peers);
        if is_store {
            self.protocol.on_write_fault(&mut at, block);
        } else {
            self.protocol.on_read_fault(&mut at, block);
        }
    }

    /// Deals with those who need not wait any more, or must begin to.
    pub(super) fn settle(&mut self, peers: &mut Peers) {
        while let Some((block, waiter)) = self.body.ready.pop() {
            match waiter {
                Waiter::Thread { of, token, is_store, wishes } => {
                    self.settle_thread(peers, block, (of, token), is_store, wishes);
                }
                Waiter::Leaving { of } => self.leave_if_nothing_is_left(peers, of),
                Waiter::Saving => {}
            }
        }
    }

    fn settle_thread(
        &mut self,
        peers: &mut Peers,
        block: Block,
        (of, token): (u32, u64),
        is_store: bool,
        wishes: u64,
    ) {
        self.body.get_from_ancestors(block.0);
        if self.body.lost.contains_key(&block.0) {
            return self.answer(peers, of, token, LOST, 0);
        }
        if !self.body.right(block.0).allows(is_store) {
            let waiter = Waiter::Thread { of, token, is_store, wishes };
            return self.await_block(peers, block, waiter, is_store);
        }
        let Some(importer) = self.body.attachments.get(&of).and_then(|one| one.importer) else { return };
        let mut range = self.body.range(block.0);
        let granted = if is_store {
            self.body.changes(block.0);
            self.body.exports.grant(importer, range.clone()).map(|()| range.end)
        } else {
            let most = wishes.clamp(1, MOST_SHOWN_BYTES / self.body.block_bytes());
            let end = (block.0 + most).min(self.body.layout.blocks());
            let is_shown =
                |&block: &u64| self.body.right(block) != Access::Invalid && self.body.is_got(block);
            let shown = (block.0..end).take_while(is_shown).last().unwrap_or(block.0);
            range.end = self.body.range(shown).end;
            self.body.exports.show(importer, range.clone())
        };
        match granted {
            Ok(end) => {
                self.given = Some(block.0);
                let shown = (end - range.start).div_ceil(self.body.block_bytes());
                self.answer(peers, of, token, GRANTED, shown);
            }
            Err(_) => self.answer(peers, of, token, NO_MEMORY, 0),
        }
    }

    fn answer(&self, peers: &mut Peers, number: u32, token: u64, outcome: u64, value: u64) {
        if let Some(rank) = self.body.attachments.get(&number).and_then(|attachment| attachment.rank) {
            peers.send(rank, Kind::May, &[token, outcome, value, 0], &[]);
        }
    }

    /// Somebody says goodbye: what it alone has comes home first.
    pub(super) fn leave(&mut self, peers: &mut Peers, number: u32, token: u64) {
        self.body.attachments.get_mut(&number).expect("it has spoken").leaves =
            Some(Leave { token, rounds: 2 });
        self.leave_if_nothing_is_left(peers, number);
    }

    fn leave_if_nothing_is_left(&mut self, peers: &mut Peers, number: u32) {
        let mine = Waiter::Leaving { of: number };
        loop {
            if self.body.waiting.iter().chain(&self.body.ready).any(|(_, waiter)| *waiter == mine) {
                return;
            }
            let leaves =
                self.body.attachments.get_mut(&number).and_then(|attachment| attachment.leaves.as_mut());
            let Some(Leave { token, rounds }) = leaves else { return };
            if *rounds == 0 {
                let token = *token;
                self.answer(peers, number, token, GRANTED, 0);
                return self.detach(peers, number);
            }
            *rounds -= 1;
            let away: Vec<u64> = self.away().collect();
            for block in away {
                self.await_block(peers, Block(block), mine, false);
            }
        }
    }

    /// Blocks that others have alone.
    pub(super) fn away(&self) -> impl Iterator<Item = u64> + '_ {
        let is_away = |&(&block, &access): &(&u64, &Access)| {
            access == Access::Invalid && !self.body.lost.contains_key(&block)
        };
        self.body.access.iter().filter(is_away).map(|(&block, _)| block)
    }

    // ── checkpoints ──

    /// No right is given from now on to those who have copies, and what they have alone is asked for.
    pub(super) fn freeze(&mut self, peers: &mut Peers) {
        self.is_frozen = true;
        self.is_home(peers);
    }

    /// Whether nobody else has anything alone. Who had asked before it froze may be given a block that was home already: that is asked for
    /// once more.
    pub(super) fn is_home(&mut self, peers: &mut Peers) -> bool {
        if self.body.waiting.iter().any(|(_, waiter)| *waiter == Waiter::Saving) {
            return false;
        }
        let away: Vec<u64> = self.away().collect();
        for &block in &away {
            self.await_block(peers, Block(block), Waiter::Saving, false);
        }
        self.settle(peers);
        away.is_empty()
    }

    /// It stands still: this is the moment. `is_whole`: of all that was ever used, not of what has changed alone.
    /// What it is of.
    pub(super) fn begin_snapshot(&mut self, is_whole: bool) -> BTreeSet<u64> {
        self.get_all_from_ancestors();
        let end = self.body.layout.frame_bytes();
        self.body.exports.revoke(&(0..end));
        let changed = std::mem::take(&mut self.body.changed);
        let left = if is_whole { self.body.used.clone() } else { changed };
        let lost = &self.body.lost;
        let left: BTreeSet<u64> = left.into_iter().filter(|block| !lost.contains_key(block)).collect();
        self.body.snapshot = Some(Snapshot { left: left.clone(), kept: BTreeMap::new() });
        left
    }

    /// What is saved, or forked too often, has all of its own. Some blocks from `from` on; where to go on, if there are more.
    pub(super) fn get_some_from_ancestors(&mut self, from: u64) -> Option<u64> {
        self.body.ancestors.as_ref()?;
        let (end, blocks) = (from + BLOCKS_GOT_AT_ONCE, self.body.layout.blocks());
        (from..end.min(blocks)).for_each(|block| self.body.get_from_ancestors(block));
        (end < blocks).then_some(end)
    }

    /// The same of all that are left: few, if they were got before.
    pub(super) fn get_all_from_ancestors(&mut self) {
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.get_some_from_ancestors(from);
        }
    }

    /// Rights may be given again. What was asked for meanwhile.
    pub(super) fn thaw(&mut self) -> Vec<Late> {
        self.is_frozen = false;
        self.body.waiting.retain(|(_, waiter)| *waiter != Waiter::Saving);
        std::mem::take(&mut self.late)
    }

    /// The next blocks of the snapshot, at most so many.
    pub(super) fn next_of_snapshot(&mut self, most: usize) -> Vec<(u64, Vec<u8>)> {
        let Some(snapshot) = &mut self.body.snapshot else { return Vec::new() };
        let mut next = Vec::new();
        while next.len() < most
            && let Some((block, content)) = snapshot.kept.pop_first()
        {
            next.push((block, content));
        }
        let room = most - next.len();
        let blocks: Vec<u64> = snapshot.left.iter().copied().take(room).collect();
        for block in blocks {
            self.body.snapshot.as_mut().expect("just seen").left.remove(&block);
            let content = self.body.content(block);
            next.push((block, content));
        }
        next
    }

    /// It was not written: what it was to contain has still changed since the last one.
    pub(super) fn give_snapshot_up(&mut self, blocks: impl IntoIterator<Item = u64>) {
        if let Some(snapshot) = self.body.snapshot.take() {
            self.body.changed.extend(snapshot.left);
            self.body.changed.extend(snapshot.kept.into_keys());
        }
        self.body.changed.extend(blocks);
    }

    pub(super) fn status(&self, own: u32) -> Status {
        let count = |imports: bool| {
            let alike = |one: &&Attachment| one.importer.is_some() == imports;
            u32::try_from(self.body.attachments.values().filter(alike).count()).unwrap_or(u32::MAX)
        };
        Status {
            name: self.entry.name.clone(),
            importers: count(true),
            copiers: count(false),
            granted: self.body.exports.grants() as u64,
            away: self.away().count() as u64,
            lost: self.body.lost.len() as u64,
            waiting: self.body.waiting.iter().filter(|(_, waiter)| waiter.is_thread()).count() as u64,
            resident_bytes: self.body.exports.resident_bytes(),
            ancestors: self.body.ancestors.iter().flat_map(Ancestors::cells).collect(),
            nodes: self.body.forks.count() as u64,
            memory_home: self.provenance.borrowed_from(own),
            processes: self.body.attachments.values().map(|attachment| attachment.process).collect(),
            held: self.held_elsewhere(own),
            misses: self.misses,
        }
    }

    fn held_elsewhere(&self, own: u32) -> Vec<(u32, u64)> {
        let mut held = BTreeMap::new();
        for (&number, attachment) in &self.body.attachments {
            if let Some(cell) = attachment.cell.filter(|&cell| cell != own) {
                *held.entry(cell).or_default() += self.writable_by(number).len() as u64;
            }
        }
        held.retain(|_, blocks| *blocks > 0);
        held.into_iter().collect()
    }

    pub(super) fn forget_dead(&mut self) {
        self.body.exports.forget_dead();
    }
}

fn protocol_of(entry: &Entry) -> Stache {
    match entry.allocation.terms.sharing {
        Sharing::Migratory => Stache::migratory(),
        _ => Stache::new(),
    }
}

impl super::Filled for Shared {
    /// Before anybody is attached.
    fn refill(&mut self, at: u64, content: &[u8]) {
        let block = at / self.body.block_bytes();
        self.body.used.insert(block);
        self.body.forks.wants(block);
        self.body.exports.copy_in(at, content);
    }
}
