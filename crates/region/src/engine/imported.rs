//! Memory whose page frames another process has, with the rights to them: the home of a named region, or the lead of this host's components. What a
//! thread may not do here is asked for there.

use std::sync::Arc;

use comb_coherence::Loss;
use comb_memory::Reason;

use super::faults::{Stopped, Waited};
use super::{Engine, Shape, locate};
use crate::named::{GRANTED, LOST, NO_MEMORY, REFUSED};
use crate::waiting::Slot;
use crate::wire::Kind;

/// What an importer would like to be shown at once, at most.
const MOST_SHOWN_BYTES: u64 = 2 << 20;

/// Whom to ask, and how threads go through it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Imported {
    of: u32,
    /// Behind what was shown last.
    next: u64,
    /// How much that was.
    window: u64,
}

impl Imported {
    pub(crate) fn of(rank: u32) -> Self {
        Self { of: rank, next: u64::MAX, window: 0 }
    }

    /// Whom to ask.
    pub(super) fn lead(&self) -> u32 {
        self.of
    }
}

/// What a guest would have its lead do, as if it were its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Hint {
    /// Ask for blocks to load.
    Load,
    /// Ask for blocks to store.
    Store,
    /// Offer blocks to others.
    Push,
    /// Give blocks another home.
    Move,
}

pub(super) const HINTS: [Hint; 4] = [Hint::Load, Hint::Store, Hint::Push, Hint::Move];
/// For whom a hint is that is for all.
pub(super) const ALL: u64 = u64::MAX;

impl Engine {
    /// A thread asks.
    pub(super) fn want(&mut self, address: usize, is_store: bool, slot: &Arc<Slot>) -> Stopped {
        let Some((entry, block)) = locate(&mut self.entries, address) else { return Stopped::NoMemory };
        let shape = &mut entry.shape;
        let Some(imported) = shape.imported else { return Stopped::NoMemory };
        let (offset, most) = (shape.allocation.offset, MOST_SHOWN_BYTES / shape.layout.block_bytes() as u64);
        let wishes = if is_store || block.0 != imported.next {
            1
        } else {
            (imported.window * 2).clamp(2, most.max(2))
        };
        slot.begin(1);
        let token = self.core.token_about(Some(offset), imported.of, slot);
        self.core.say(
            imported.of,
            Kind::Want,
            &[token, offset, block.0, u64::from(is_store) | wishes << 1],
            &[],
        );
        Stopped::Waits
    }

    /// What has become of a thread that asked.
    pub(super) fn shown(&mut self, address: usize, is_store: bool, [outcome, told]: [u64; 2]) -> Waited {
        let Some((entry, block)) = locate(&mut self.entries, address) else { return Waited::Again };
        let Shape { imported: Some(imported), homes, layout, lost, .. } = &mut entry.shape else {
            return Waited::Again;
        };
        let (count, home) = unpack(told);
        match outcome {
            GRANTED => {
                if !is_store {
                    let end = block.0.saturating_add(count).clamp(block.0 + 1, layout.blocks());
                    *imported = Imported { next: end, window: end - block.0, ..*imported };
                }
                if let Some(home) = home {
                    homes.learn(homes.extent(block.0), home);
                    self.core.depend_on(home);
                }
                let of = imported.of;
                self.core.depend_on(of);
                Waited::Served
            }
            LOST => {
                lost.insert(block.0, Loss::Nowhere);
                Waited::Again
            }
            REFUSED => Waited::Refused(Reason::Other("its home refuses")),
            NO_MEMORY => Waited::Refused(Reason::Other("there is no memory left where it lives")),
            // Nobody has answered.
            _ => Waited::Again,
        }
    }

    /// Leaves it to the lead, where memory is its. How many blocks that is about; none if it is this component's own matter.
    pub(super) fn hint(
        &mut self,
        hint: Hint,
        address: usize,
        bytes: usize,
        whom: Option<u32>,
    ) -> Option<usize> {
        let (entry, first) = locate(&mut self.entries, address)?;
        let of = entry.shape.imported?.of;
        let last = entry.shape.layout.block_at(address + bytes.saturating_sub(1)).unwrap_or(first);
        let at = (address - comb_memory::HEAP_START) as u64;
        let whom = whom.map_or(ALL, u64::from);
        self.core.say(of, Kind::Hint, &[hint as u64, at, bytes as u64, whom], &[]);
        usize::try_from(last.0 + 1 - first.0).ok()
    }
}

/// How many blocks are shown, and where the first lives, in a word.
pub(super) fn pack(count: u64, home: u32) -> u64 {
    count & u64::from(u32::MAX) | (u64::from(home) + 1) << 32
}

fn unpack(told: u64) -> (u64, Option<u32>) {
    let home = (told >> 32).checked_sub(1).and_then(|home| u32::try_from(home).ok());
    (told & u64::from(u32::MAX), home)
}
