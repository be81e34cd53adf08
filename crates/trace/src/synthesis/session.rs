//! One made-up session: what is asked next of a file that is open.

use comb_types::Dice;

use super::model::{Kinds, Model};
use crate::history::{Access, Pattern};
use crate::statistics::distributions::uniform;

/// Of a whole file no more requests are made than this: larger ones instead. What reads a film does not read it in lines.
const MOST_OPERATIONS: u64 = 1 << 14;

/// And of a new file none that is larger: what writes much has a buffer of some size.
const MOST_WRITE_BYTES: u64 = 1 << 20;

/// No call moves more.
const MOST_REQUEST_BYTES: u64 = 0x7fff_f000;

/// How bytes are moved in a session, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    pub(super) access: Access,
    pub(super) pattern: Pattern,
}

impl Kind {
    pub(super) const WHOLE_WRITE: Self = Self { access: Access::WriteOnly, pattern: Pattern::WholeFile };

    /// In the order of the model's shares.
    const ALL: [Self; 11] = [
        Self { access: Access::None, pattern: Pattern::None },
        Self { access: Access::ReadOnly, pattern: Pattern::None },
        Self { access: Access::ReadOnly, pattern: Pattern::WholeFile },
        Self { access: Access::ReadOnly, pattern: Pattern::Sequential },
        Self { access: Access::ReadOnly, pattern: Pattern::Random },
        Self::WHOLE_WRITE,
        Self { access: Access::WriteOnly, pattern: Pattern::Sequential },
        Self { access: Access::WriteOnly, pattern: Pattern::Random },
        Self { access: Access::ReadWrite, pattern: Pattern::WholeFile },
        Self { access: Access::ReadWrite, pattern: Pattern::Sequential },
        Self { access: Access::ReadWrite, pattern: Pattern::Random },
    ];

    pub(super) fn draw(kinds: &Kinds, dice: &mut Dice) -> Self {
        let shares = kinds.shares();
        let mut left = uniform(dice) * shares.iter().sum::<f64>();
        let drawn = shares.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        Self::ALL[drawn.unwrap_or(0)]
    }

    pub(super) const fn is_whole_write(self) -> bool {
        matches!((self.access, self.pattern), (Access::WriteOnly, Pattern::WholeFile))
    }

    pub(super) const fn is_whole_read(self) -> bool {
        matches!((self.access, self.pattern), (Access::ReadOnly, Pattern::WholeFile))
    }

    /// Below this length a file cannot be used so: jumps need a place to jump to.
    pub(super) const fn least_bytes(self) -> u64 {
        match (self.access, self.pattern) {
            (_, Pattern::None) => 0,
            (Access::ReadWrite, _) | (_, Pattern::Random) => 4,
            (_, Pattern::Sequential) => 2,
            (_, Pattern::WholeFile) => 1,
        }
    }
}

/// How many operations a session of parts will have, and how long a file for that is, at least: of all requests to a disk most are of few long
/// sessions, and if one of those got a file of ten bytes, most requests would be for ten bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Room {
    operations: u64,
    pub(super) bytes: u64,
}

/// With jumps, a place is asked for so often.
const JUMPS_TO_A_PLACE: f64 = 16.0;

impl Room {
    /// Of requests that are usually so long.
    pub(super) fn draw(kind: Kind, usual_bytes: f64, model: &Model, dice: &mut Dice) -> Self {
        let (operations, often) = match kind.pattern {
            Pattern::Sequential => (&model.sequential_operations, 1.0),
            Pattern::Random => (&model.random_operations, JUMPS_TO_A_PLACE),
            _ => return Self { operations: 0, bytes: kind.least_bytes() },
        };
        let operations = operations.draw(dice).clamp(1, MOST_OPERATIONS);
        let bytes = super::variable::whole(operations as f64 * usual_bytes / often).min(MOST_ROOM_BYTES);
        Self { operations, bytes: bytes.max(kind.least_bytes()) }
    }
}

/// For longer sessions no longer file is looked for.
const MOST_ROOM_BYTES: u64 = 1 << 30;

/// A read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) is_write: bool,
    pub(super) offset: u64,
    pub(super) asked_bytes: u64,
    pub(super) moved_bytes: u64,
}

/// What is left to do in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// So many control operations, a pause before each and before the close.
    Control { left: u64, pause_ns: u64 },
    /// Reads and writes.
    Data(Data),
}

/// Reads and writes that are left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Data {
    kind: Kind,
    /// Where the last request ended.
    position: u64,
    /// Where a run ends.
    end: u64,
    done: u64,
    most: u64,
    /// How long it is held open after its last request.
    pub(super) held_ns: u64,
    pub(super) finds_end: bool,
    pub(super) is_synced: bool,
}

impl Data {
    /// Of a file of this size: of one that is written whole, the size that it gets.
    pub(super) fn new(kind: Kind, size: u64, room: Room, model: &Model, dice: &mut Dice) -> Self {
        let (mut position, mut most) = (0, MOST_OPERATIONS);
        match kind.pattern {
            // What is at the end of a file is nothing.
            Pattern::None => (position, most) = (size, 1),
            Pattern::WholeFile if kind.is_whole_write() => {
                most = model.births.operations.draw(dice).max(size.div_ceil(MOST_WRITE_BYTES));
            }
            Pattern::WholeFile => {}
            Pattern::Sequential => {
                // Not from the beginning: whatever it then reads, it is not the whole file.
                position = 1 + below(dice, size.saturating_sub(room.bytes).clamp(1, size / 2));
                most = room.operations;
            }
            Pattern::Random => most = room.operations,
        }
        let least = match kind {
            Kind { pattern: Pattern::Random, .. } | Kind { access: Access::ReadWrite, .. } => 2,
            _ => 1,
        };
        let mut most = most.clamp(least, MOST_OPERATIONS);
        if kind.access == Access::ReadWrite && kind.pattern != Pattern::Random {
            most = most.min(size - position);
        }
        Self { kind, position, end: size, done: 0, most, held_ns: 0, finds_end: false, is_synced: false }
    }

    /// The next request to a file of this size; nothing when there is none left.
    pub(super) fn next(&mut self, model: &Model, dice: &mut Dice) -> Option<Request> {
        let left = self.most.saturating_sub(self.done);
        if left == 0 {
            return None;
        }
        let is_write = self.is_write();
        let bytes = if is_write { &model.write_bytes } else { &model.read_bytes };
        let mut asked_bytes = bytes.draw(dice).clamp(1, MOST_REQUEST_BYTES);
        let offset = match self.kind.pattern {
            Pattern::Random => {
                // As far as that goes, not so near to the end that it is cut off there.
                let fits = asked_bytes.min(self.end / 2).max(1);
                self.jump(self.end - fits + 1, dice)
            }
            Pattern::None => self.position,
            _ if self.position >= self.end => return None,
            _ => self.position,
        };
        let rest = self.end.saturating_sub(offset);
        if self.kind.is_whole_write() {
            asked_bytes = rest.div_ceil(left).min(MOST_REQUEST_BYTES);
        } else if self.kind.pattern == Pattern::WholeFile {
            asked_bytes = asked_bytes.max(rest.div_ceil(left)).min(MOST_REQUEST_BYTES);
        }
        if self.kind.access == Access::ReadWrite && self.kind.pattern != Pattern::Random {
            // The other half is to be left for the other direction.
            asked_bytes = asked_bytes.min(self.until_turn(rest, left));
        }
        if is_write {
            asked_bytes = asked_bytes.min(rest.max(1));
        }
        let moved_bytes = asked_bytes.min(rest);
        self.position = offset + moved_bytes;
        self.done += 1;
        Some(Request { is_write, offset, asked_bytes, moved_bytes })
    }

    /// Whether a request would follow.
    pub(super) const fn has_more(&self) -> bool {
        let is_at_end = self.position >= self.end && !matches!(self.kind.pattern, Pattern::Random);
        self.done < self.most && !is_at_end
    }

    const fn is_write(&self) -> bool {
        match self.kind.access {
            Access::WriteOnly => true,
            Access::ReadWrite => match self.kind.pattern {
                Pattern::Random => self.done % 2 == 1,
                Pattern::WholeFile => self.position >= self.end / 2,
                _ => self.done * 2 >= self.most,
            },
            _ => false,
        }
    }

    /// How much may be asked of a run that changes its direction on the way.
    fn until_turn(&self, rest: u64, left: u64) -> u64 {
        match self.kind.pattern {
            Pattern::WholeFile if self.position < self.end / 2 => self.end / 2 - self.position,
            Pattern::WholeFile => rest,
            _ => (rest / left).max(1),
        }
    }

    /// Anywhere but where the last request ended.
    fn jump(&self, limit: u64, dice: &mut Dice) -> u64 {
        let offset = below(dice, limit);
        if self.done > 0 && offset == self.position { 0 } else { offset }
    }
}

/// A number below the limit; 0 if that is 0.
pub(super) fn below(dice: &mut Dice, limit: u64) -> u64 {
    let scaled = (u128::from(dice.roll()) * u128::from(limit)) >> 64;
    u64::try_from(scaled).expect("it is below the limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(kind: Kind, size: u64, seed: u64) -> Vec<Request> {
        let (model, mut dice) = (Model::thesis(), Dice::new(seed));
        let room = Room::draw(kind, 4096.0, &model, &mut dice);
        let mut data = Data::new(kind, size, room, &model, &mut dice);
        let mut requests = Vec::new();
        while let Some(request) = data.next(&model, &mut dice) {
            requests.push(request);
            let has_more = data.has_more();
            if !has_more {
                assert_eq!(data.next(&model, &mut dice), None);
                break;
            }
        }
        requests
    }

    #[test]
    fn sessions_are_of_the_kind_that_they_should_be() {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.access != Access::None) {
            for (seed, size) in [0, 1, 2, 3, 4, 5, 100, 4096, 70_000, 5_000_000, 1 << 40].iter().enumerate() {
                let size = (*size).max(kind.least_bytes());
                let made = requests(kind, size, seed as u64);
                let (reads, writes): (Vec<Request>, Vec<Request>) =
                    made.iter().copied().partition(|request| !request.is_write);
                let access = match (reads.is_empty(), writes.is_empty()) {
                    (false, true) => Access::ReadOnly,
                    (true, false) => Access::WriteOnly,
                    _ => Access::ReadWrite,
                };
                assert_eq!(access, kind.access, "{kind:?} {size}");
                let moved: u64 = made.iter().map(|request| request.moved_bytes).sum();
                let jumps = made
                    .windows(2)
                    .filter(|pair| pair[0].offset + pair[0].moved_bytes != pair[1].offset)
                    .count();
                let pattern = match (moved, jumps) {
                    (0, _) => Pattern::None,
                    (_, 0) if made[0].offset == 0 && moved >= size => Pattern::WholeFile,
                    (_, 0) => Pattern::Sequential,
                    _ => Pattern::Random,
                };
                assert_eq!(pattern, kind.pattern, "{kind:?} {size} {made:?}");
                assert!(made.iter().all(|request| request.offset + request.moved_bytes <= size));
            }
        }
    }
}
