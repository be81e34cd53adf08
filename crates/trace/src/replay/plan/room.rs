//! How much room a replay takes on a disk.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::event::Identity;

/// What is written and not deleted, at any time of the trace, and how much that was at most.
#[derive(Default)]
pub(super) struct Room {
    /// At most so much of each file takes room: what was written to it, and no more than it is long.
    taken: HashMap<Identity, u64, RandomState>,
    now_bytes: u64,
    most_bytes: u64,
}

impl Room {
    pub(super) const fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// So much was written or set aside; afterwards the file was so long.
    pub(super) fn take(&mut self, file: Identity, bytes: u64, size: u64) {
        let before = self.taken.get(&file).copied().unwrap_or(0);
        self.set(file, before.saturating_add(bytes).min(size.max(bytes)));
    }

    /// It was cut to this length.
    pub(super) fn cut(&mut self, file: Identity, size: u64) {
        let before = self.taken.get(&file).copied().unwrap_or(0);
        self.set(file, before.min(size));
    }

    fn set(&mut self, file: Identity, bytes: u64) {
        let before = self.taken.insert(file, bytes).unwrap_or(0);
        self.now_bytes = self.now_bytes.saturating_sub(before).saturating_add(bytes);
        self.most_bytes = self.most_bytes.max(self.now_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_twice_or_cut_off_takes_room_once_or_none() {
        let file = |inode| Identity { inode, ..Identity::default() };
        let mut room = Room::default();
        room.take(file(1), 100, 100);
        room.take(file(1), 100, 100);
        assert_eq!(room.most_bytes(), 100);
        room.cut(file(1), 0);
        room.take(file(2), 50, 1_000_000);
        assert_eq!(room.most_bytes(), 100);
        room.take(file(3), u64::MAX, u64::MAX);
        assert_eq!(room.most_bytes(), u64::MAX);
    }
}
