//! The frames that the machine has granted: which are free, and how many hold each of the others.
//!
//! They are handed out as runs from blocks of 16, because contiguous pages on contiguous frames are mapped by one call below.

use crate::machine::{Frame, Machine};
use std::collections::BTreeSet;

/// Frames in a block, and pages around a fault that are looked at together.
pub(crate) const BLOCK: u64 = 16;

/// Which frames are free, and the count of holders of every other.
#[derive(Default)]
pub(crate) struct Frames {
    /// One bit for each frame of each block that is held. Blocks that were never granted are full.
    used: Vec<u16>,
    /// Blocks with no frame held. A block is here exactly once.
    whole: Vec<u32>,
    /// Blocks with some frames held and some free.
    partial: BTreeSet<u32>,
    holders: Vec<u32>,
    held: u64,
    granted: u64,
}

impl Frames {
    /// A run of at most `count` frames, each with one holder: all of them in one block, fewer if memory is short. What is in them is
    /// not defined.
    pub(crate) fn take(&mut self, machine: &mut impl Machine, count: u64) -> Option<(Frame, u64)> {
        let count = count.clamp(1, BLOCK);
        if count == 1
            && let Some(&block) = self.partial.first()
        {
            return Some((self.take_from(block, 1), 1));
        }
        if self.whole.is_empty() {
            self.grow(machine);
        }
        if let Some(block) = self.whole.pop() {
            return Some((self.take_from(block, count), count));
        }
        let block = *self.partial.first()?;
        Some((self.take_from(block, 1), 1))
    }

    fn take_from(&mut self, block: u32, count: u64) -> Frame {
        let used = &mut self.used[block as usize];
        let start = used.trailing_ones();
        for index in start..start + count as u32 {
            *used |= 1 << index;
            self.holders[(block * BLOCK as u32 + index) as usize] = 1;
        }
        self.held += count;
        if *used == u16::MAX {
            self.partial.remove(&block);
        } else {
            self.partial.insert(block);
        }
        Frame(block * BLOCK as u32 + start)
    }

    fn grow(&mut self, machine: &mut impl Machine) {
        let Some(range) = machine.grant() else { return };
        assert!(
            range.start % BLOCK as u32 == 0 && range.end % BLOCK as u32 == 0,
            "a grant of frames is made of blocks"
        );
        self.granted += u64::from(range.end - range.start);
        let blocks = range.start / BLOCK as u32..range.end / BLOCK as u32;
        if self.used.len() < blocks.end as usize {
            self.used.resize(blocks.end as usize, u16::MAX);
            self.holders.resize(range.end as usize, 0);
        }
        for block in blocks.rev() {
            self.used[block as usize] = 0;
            self.whole.push(block);
        }
    }

    /// One more holder.
    pub(crate) fn hold(&mut self, frame: Frame) {
        assert!(self.holders[frame.0 as usize] > 0, "a free frame has no holders to join");
        self.holders[frame.0 as usize] += 1;
    }

    /// One holder less. The last one must have unmapped the frame before: it may be handed out again at once.
    pub(crate) fn release(&mut self, frame: Frame) {
        let holders = &mut self.holders[frame.0 as usize];
        assert!(*holders > 0, "a free frame has no holder");
        *holders -= 1;
        if *holders > 0 {
            return;
        }
        self.held -= 1;
        let block = frame.0 / BLOCK as u32;
        let used = &mut self.used[block as usize];
        *used &= !(1 << (frame.0 % BLOCK as u32));
        if *used == 0 {
            self.partial.remove(&block);
            self.whole.push(block);
        } else {
            self.partial.insert(block);
        }
    }

    /// How many hold the frame.
    pub(crate) fn holders(&self, frame: Frame) -> u32 {
        self.holders[frame.0 as usize]
    }

    /// Frames that somebody holds.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Frames that the machine has granted so far.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_frame_is_handed_out_twice(steps in proptest::collection::vec((0u8..3, 1u64..20, any::<u16>()), 1..300)) {
            let mut machine = Fake::new(256);
            let mut frames = Frames::default();
            let mut model: Vec<(u32, u32)> = Vec::new();
            for (kind, count, pick) in steps {
                if kind == 0 || model.is_empty() {
                    let Some((first, got)) = frames.take(&mut machine, count) else {
                        prop_assert_eq!(frames.held(), 256);
                        continue;
                    };
                    prop_assert!(got >= 1 && got <= count.min(BLOCK));
                    for frame in first.0..first.0 + got as u32 {
                        prop_assert!(!model.iter().any(|&(other, _)| other == frame));
                        model.push((frame, 1));
                    }
                } else {
                    let at = pick as usize % model.len();
                    if kind == 1 {
                        frames.hold(Frame(model[at].0));
                        model[at].1 += 1;
                    } else {
                        frames.release(Frame(model[at].0));
                        model[at].1 -= 1;
                        if model[at].1 == 0 {
                            model.swap_remove(at);
                        }
                    }
                }
                prop_assert_eq!(frames.held(), model.len() as u64);
                for &(frame, holders) in &model {
                    prop_assert_eq!(frames.holders(Frame(frame)), holders);
                }
            }
        }
    }
}
