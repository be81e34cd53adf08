//! What a region's protocol runs on at its home: frames that others import, and channels to those who have copies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use comb_coherence::{Access, Block, CellId, Content, Loss, Tempest};
use comb_memory::{Exports, Layout};

use super::forking::{Ancestors, Forks};
use crate::peers::Peers;
use crate::terms::Allocation;
use crate::wire::Kind;

/// The home among those who share a region; the others are counted from 1.
pub(super) const HOME: CellId = CellId(0);

/// Somebody has come in by the door, and may have a channel.
pub(super) struct Attachment {
    /// Its process, as far as peers know it. None: it has not said who it is yet.
    pub(super) rank: Option<u32>,
    /// What only it was told.
    pub(super) proof: u64,
    pub(super) process: u32,
    /// The cell that it runs in, if it runs in one.
    pub(super) cell: Option<u32>,
    pub(super) to_store: bool,
    /// Its number among importers. None: it has copies.
    pub(super) importer: Option<u32>,
    pub(super) leaves: Option<Leave>,
}

/// Somebody has said goodbye.
#[derive(Clone, Copy)]
pub(super) struct Leave {
    /// The question that it waits for an answer to.
    pub(super) token: u64,
    /// How often what is away is still to be asked for: what it had wanted before may be given to it behind the first time.
    pub(super) rounds: u8,
}

/// Who waits for a block here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiter {
    /// An importer's thread: whose, the number of its question, whether it is to store, how many blocks it would like to see.
    Thread { of: u32, token: u64, is_store: bool, wishes: u64 },
    /// Somebody who leaves gives back what it alone had.
    Leaving { of: u32 },
    /// A checkpoint is to be of one moment.
    Saving,
}

impl Waiter {
    pub(super) fn is_thread(&self) -> bool {
        matches!(self, Self::Thread { .. })
    }
}

/// A region but for its protocol.
pub(super) struct Body {
    pub(super) allocation: Allocation,
    pub(super) layout: Layout,
    pub(super) exports: Exports,
    /// What importers may do, where that is not everything.
    pub(super) access: BTreeMap<u64, Access>,
    pub(super) lost: BTreeMap<u64, Loss>,
    pub(super) attachments: BTreeMap<u32, Attachment>,
    pub(super) waiting: Vec<(Block, Waiter)>,
    /// Who need not wait any more; see what has become of it.
    pub(super) ready: Vec<(Block, Waiter)>,
    /// Blocks that somebody has been able to change since the last checkpoint, and ever.
    pub(super) changed: BTreeSet<u64>,
    pub(super) used: BTreeSet<u64>,
    pub(super) snapshot: Option<Snapshot>,
    /// Where blocks are looked for that are not here.
    pub(super) ancestors: Option<Ancestors>,
    /// What was forked from here.
    pub(super) forks: Forks,
}

/// A region's content at one moment, while it is written to files.
#[derive(Default)]
pub(super) struct Snapshot {
    /// What has not been written, and has not changed since that moment.
    pub(super) left: BTreeSet<u64>,
    /// What has changed since, as it was.
    pub(super) kept: BTreeMap<u64, Vec<u8>>,
}

impl Body {
    pub(super) fn block_bytes(&self) -> u64 {
        self.layout.block_bytes() as u64
    }

    /// Where a block is among the frames.
    pub(super) fn range(&self, block: u64) -> Range<u64> {
        let begin = block * self.block_bytes();
        begin..(begin + self.block_bytes()).min(self.layout.frame_bytes())
    }

    pub(super) fn right(&self, block: u64) -> Access {
        self.access.get(&block).copied().unwrap_or(Access::ReadWrite)
    }

    /// From now on a block may change: a checkpoint that has not come to it keeps what it is now.
    pub(super) fn changes(&mut self, block: u64) {
        if let Some(snapshot) = &self.snapshot
            && snapshot.left.contains(&block)
        {
            let content = self.content(block);
            let snapshot = self.snapshot.as_mut().expect("just seen");
            snapshot.left.remove(&block);
            snapshot.kept.insert(block, content);
        }
        self.changed.insert(block);
        self.used.insert(block);
        if self.forks.wants(block) {
            let content = self.content(block);
            // Without room nobody would know what its children have: this cell cannot go on.
            self.forks.put_aside(block, &content).unwrap_or_else(|error| {
                crate::driver::fail(&format!("no memory to put a block aside for a child: {error}"));
            });
        }
    }

    /// A block is here from now on, if it can be had: who touches it is told if not.
    pub(super) fn get_from_ancestors(&mut self, block: u64) {
        let Some(ancestors) = &mut self.ancestors else { return };
        if self.used.contains(&block) || self.lost.contains_key(&block) {
            return;
        }
        let range = block * self.layout.block_bytes() as u64..self.layout.frame_bytes();
        match ancestors.find(block, self.layout.block_bytes()) {
            Ok(None) => {}
            Ok(Some(content)) => {
                self.changed.insert(block);
                self.used.insert(block);
                self.forks.wants(block);
                let length =
                    usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(content.len());
                self.exports.copy_in(range.start, &content[..length]);
            }
            Err(error) => {
                eprintln!("comb: block {block} is lost: {error}");
                self.lost.insert(block, Loss::Home(CellId(error.suspect().cell)));
            }
        }
    }

    /// Whether a block is here, or nowhere: nobody has to look for it.
    pub(super) fn is_got(&self, block: u64) -> bool {
        self.used.contains(&block)
            || self.ancestors.as_ref().is_none_or(|ancestors| ancestors.has_looked(block))
    }

    pub(super) fn content(&mut self, block: u64) -> Vec<u8> {
        let range = self.range(block);
        let mut content = vec![0; usize::try_from(range.end - range.start).expect("a block")];
        self.exports.copy_out(range.start, &mut content);
        content.resize(self.layout.block_bytes(), 0);
        content
    }

    /// Makes a block what it was before it was changed by somebody who is not to be believed.
    pub(super) fn put_stable(&mut self, block: u64, content: &[u8]) {
        self.put(block, 0, content);
    }

    fn put(&mut self, block: u64, at: usize, bytes: &[u8]) {
        self.changes(block);
        let range = self.range(block);
        let begin = range.start + at as u64;
        // The last block may be longer than its frames.
        let length = usize::try_from(range.end.saturating_sub(begin)).unwrap_or(0).min(bytes.len());
        self.exports.copy_in(begin, &bytes[..length]);
    }
}

/// A region's protocol at work.
pub(super) struct At<'a> {
    pub(super) body: &'a mut Body,
    pub(super) peers: &'a mut Peers,
    /// What was taken from importers by this handler. Its content stays until the handler ends, and no longer.
    taken: Vec<u64>,
}

impl<'a> At<'a> {
    pub(super) fn new(body: &'a mut Body, peers: &'a mut Peers) -> Self {
        Self { body, peers, taken: Vec::new() }
    }
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        for block in self.taken.drain(..) {
            let begin = self.body.range(block).start;
            self.body.exports.drop_aside(begin);
        }
    }
}

impl Tempest for At<'_> {
    fn me(&self) -> CellId {
        HOME
    }

    fn home_of(&self, _block: Block) -> CellId {
        HOME
    }

    fn blocks(&self) -> u64 {
        self.body.layout.blocks()
    }

    fn block_bytes(&self) -> usize {
        self.body.layout.block_bytes()
    }

    fn access(&self, block: Block) -> Access {
        self.body.right(block.0)
    }

    fn set_access(&mut self, block: Block, access: Access) {
        let before = self.body.right(block.0);
        let range = self.body.range(block.0);
        match access {
            Access::Invalid if before != Access::Invalid => {
                self.body.changes(block.0);
                self.body.exports.take(&range).unwrap_or_else(|error| crate::driver::fail(&error));
                self.taken.push(block.0);
            }
            Access::ReadOnly if before == Access::ReadWrite => self.body.exports.revoke(&range),
            _ if before == Access::Invalid => {
                self.taken.retain(|&taken| taken != block.0);
                self.body.exports.put_back(&range);
            }
            _ => {}
        }
        if access == Access::ReadWrite {
            self.body.access.remove(&block.0);
        } else {
            self.body.access.insert(block.0, access);
        }
    }

    fn fill(&mut self, block: Block, content: &[u8]) {
        let range = self.body.range(block.0);
        if self.body.right(block.0) == Access::Invalid {
            self.taken.retain(|&taken| taken != block.0);
            let length = usize::try_from(range.end - range.start).unwrap_or(0).min(content.len());
            self.body.exports.keep_aside(range.start, &content[..length]);
        } else {
            self.body.put(block.0, 0, content);
        }
    }

    fn copy_out(&self, _block: Block, _into: &mut [u8]) {
        unreachable!("protocols that look at blocks have no named regions");
    }

    fn patch(&mut self, block: Block, offset: usize, bytes: &[u8]) {
        self.body.put(block.0, offset, bytes);
    }

    fn send(&mut self, to: CellId, kind: u8, block: Block, word: u64, content: Content<'_>) {
        let Some(rank) = self.body.attachments.get(&to.0).and_then(|attachment| attachment.rank) else {
            return;
        };
        let allocation = &self.body.allocation;
        let first = u64::from(kind) | u64::from(allocation.generation) << 32;
        let head = [first, allocation.offset, block.0, word];
        match content {
            Content::None => self.peers.send(rank, Kind::Protocol, &head, &[]),
            Content::Bytes(bytes) => self.peers.send(rank, Kind::Protocol, &head, bytes),
            Content::Block => {
                let content = self.body.content(block.0);
                self.peers.send(rank, Kind::Protocol, &head, &content);
            }
        }
    }

    fn resume(&mut self, block: Block) {
        let body = &mut *self.body;
        let ready = body.waiting.extract_if(.., |(of, _)| *of == block);
        body.ready.extend(ready);
    }

    fn synced(&mut self) {}

    fn lose(&mut self, block: Block, loss: Loss) {
        self.set_access(block, Access::Invalid);
        self.body.lost.insert(block.0, loss);
        self.resume(block);
    }
}
