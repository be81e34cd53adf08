//! How a cell fails when it is told to, so that all others show that they carry on. (Hive §7.4)
//!
//! A cell does so only if it was started for it, and nothing of this is in the way of one that was not. It is done by the supervisor's own thread
//! between two turns of its loop, as its own bugs would be: pointers that lead astray, stores to anywhere, messages that mean nothing, lies, and a loop that
//! does not come round any more. What can be done to a cell from outside (it is killed, or stopped) is not here.

use std::ops::Range;
use std::time::{Duration, Instant};

use comb_containment::alerts::{self, Finding};
use comb_containment::recovery;
use comb_memory::careful::{CarefulError, careful};
use comb_memory::{Far, Published};
use comb_net::{Endpoint, kinds};
use comb_region::named::shown::{MOST_NODES, NodeShown, RegionShown, RegionsShown, Seen, walk};
use comb_types::{CellId, Dice};
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::containing::Message;
use crate::links::{CALL, COMPLETION, CONTAINMENT, HEARTBEAT, Links};
use crate::shown::Others;

/// For so long, and until somebody wakes it.
const ALARMS_ARE_LATE: Duration = Duration::from_millis(100);

/// Where a pointer leads that is corrupt. (Hive §7.4)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Astray {
    /// To a random address in the same cell.
    SameCell,
    /// To a random address in another cell.
    OtherCell(u32),
    /// One word behind where it should.
    OneWordOff,
    /// To what it is part of.
    ToItself,
}

/// How a cell is to fail. What is random in it depends on the seed, and on what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Fault {
    /// A pointer in the list of its regions is corrupt.
    AddressMap {
        /// How.
        astray: Astray,
        /// Of which region.
        seed: u64,
    },
    /// A pointer in a node of a copy-on-write tree is corrupt.
    CopyOnWriteTree {
        /// How.
        astray: Astray,
        /// Of which node: to its parent, or to its places.
        seed: u64,
    },
    /// So many stores to anywhere in what it shows to others.
    WildStores {
        /// How many words.
        count: u32,
        /// Which, and where.
        seed: u64,
    },
    /// So many messages that mean nothing, to each other cell.
    BadMessages {
        /// Where they go.
        way: BadWay,
        /// How many.
        count: u32,
        /// Which.
        seed: u64,
    },
    /// It says of all others that they have failed, or that they say so.
    Lies {
        /// How many.
        count: u32,
        /// Which.
        seed: u64,
    },
    /// Its loop goes on for ever.
    Loops,
    /// Its loop waits for what never comes.
    Sleeps,
    /// Nothing is wrong with it, but for a tenth of a second no alarm of its comes: as where the host of a virtual machine takes the processor away that it
    /// sleeps on.
    LateAlarm,
    /// It takes all memory that it can get.
    Exhausts {
        /// How much that is, beyond what it has.
        bytes: u64,
    },
}

/// Where messages go that mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BadWay {
    /// To a handler, by number: those that there are, and others.
    Handlers,
    /// As answers to calls.
    Answers,
    /// As any bytes on the channel, whatever layer they are for.
    Wire,
    /// To the endpoint of the group.
    Group,
}

/// By what a cell fails.
pub(crate) struct Means<'a> {
    pub(crate) published: &'a Published,
    pub(crate) links: &'a mut Links,
    pub(crate) group: &'a mut Endpoint,
    /// No wait is ended by an alarm before.
    pub(crate) alarms_from: &'a mut Instant,
}

/// All is found that is needed to fail.
#[derive(Debug)]
pub(crate) enum Prepared {
    Store(u64, Vec<u8>),
    Other(Fault),
}

/// Finds what is needed to fail so. An error if that is not there.
pub(crate) fn prepare(
    fault: &Fault,
    published: &Published,
    regions: Option<Far<RegionsShown>>,
    others: &Others,
) -> Result<Prepared, String> {
    match *fault {
        Fault::AddressMap { astray, seed } => {
            let mut dice = Dice::new(seed);
            let all = regions_shown(published, regions)?;
            if all.is_empty() {
                return Err("it has no region".to_owned());
            }
            let (at, region) = all[dice.index(all.len())];
            let field = at.offset() + std::mem::offset_of!(RegionShown, next) as u64;
            Ok(corrupt(field, at, region.next, astray, published, &mut dice))
        }
        Fault::CopyOnWriteTree { astray, seed } => {
            let mut dice = Dice::new(seed);
            let all = nodes_shown(published, regions)?;
            if all.is_empty() {
                return Err("none of its regions was forked".to_owned());
            }
            let (at, node) = all[dice.index(all.len())];
            if dice.happens(500_000) {
                let field = at.offset() + std::mem::offset_of!(NodeShown, parent) as u64;
                let corrupted = corrupt(field, at, node.parent, astray, published, &mut dice);
                // The life of that cell is part of the pointer: else it would lead to one that is over, which is no fault.
                let life = match astray {
                    Astray::OtherCell(cell) => others.life(CellId(cell)),
                    Astray::SameCell | Astray::ToItself => Some(published.incarnation()),
                    Astray::OneWordOff => None,
                };
                Ok(match (corrupted, life) {
                    (Prepared::Store(field, mut bytes), Some(life)) => {
                        bytes.extend(life.0.to_le_bytes());
                        Prepared::Store(field, bytes)
                    }
                    (corrupted, _) => corrupted,
                })
            } else {
                let field = at.offset() + std::mem::offset_of!(NodeShown, places) as u64;
                Ok(corrupt(field, at, node.places, astray, published, &mut dice))
            }
        }
        other => Ok(Prepared::Other(other)),
    }
}

fn regions_shown(
    published: &Published,
    list: Option<Far<RegionsShown>>,
) -> Result<Vec<(Far<RegionShown>, RegionShown)>, String> {
    let list = list.ok_or("it shows no regions")?;
    let mut all = Vec::new();
    let see = |seen| {
        if let Seen::Region(at, region) = seen {
            all.push((at, region));
        }
    };
    let walked: Result<(), CarefulError> = careful(published, |c| walk(c, list, see));
    walked.map(|()| all).map_err(|error| error.to_string())
}

fn nodes_shown(
    published: &Published,
    list: Option<Far<RegionsShown>>,
) -> Result<Vec<(Far<NodeShown>, NodeShown)>, String> {
    let mut all: Vec<(Far<NodeShown>, NodeShown)> = Vec::new();
    for (_, region) in regions_shown(published, list)? {
        let mut at = region.newest;
        for _ in 0..MOST_NODES {
            if at.is_none() || at.cell() != published.cell() || all.iter().any(|&(known, _)| known == at) {
                break;
            }
            let node = careful(published, |c| c.read(at)).map_err(|error| error.to_string())?;
            all.push((at, node));
            at = node.parent;
        }
    }
    Ok(all)
}

/// A pointer that stands there, in a structure that begins at `of`.
fn corrupt<T, S>(
    field: u64,
    of: Far<S>,
    now: Far<T>,
    astray: Astray,
    published: &Published,
    dice: &mut Dice,
) -> Prepared {
    // Half of all random addresses are where something is.
    let limit = if dice.happens(500_000) { published.used_bytes() } else { published.used_bytes() << 16 };
    let random = dice.roll() % limit;
    let (cell, offset) = match astray {
        Astray::SameCell => (published.cell(), random),
        Astray::OtherCell(cell) => (CellId(cell), random),
        Astray::OneWordOff => {
            let cell = if now.is_none() { published.cell() } else { now.cell() };
            (cell, now.offset() + 8)
        }
        Astray::ToItself => (of.cell(), of.offset()),
    };
    let wrong: Far<T> = Far::alleged(cell, offset);
    Prepared::Store(field, wrong.as_bytes().to_vec())
}

/// Fails.
pub(crate) fn commit(prepared: Prepared, means: &mut Means<'_>) {
    match prepared {
        Prepared::Store(at, bytes) => means.published.corrupt(at, &bytes),
        Prepared::Other(fault) => means.commit(fault),
    }
}

impl Means<'_> {
    fn commit(&mut self, fault: Fault) {
        match fault {
            Fault::AddressMap { .. } | Fault::CopyOnWriteTree { .. } => unreachable!("prepared as a store"),
            Fault::WildStores { count, seed } => self.store_wildly(count, &mut Dice::new(seed)),
            Fault::BadMessages { way, count, seed } => self.send_badly(way, count, &mut Dice::new(seed)),
            Fault::Lies { count, seed } => self.lie(count, &mut Dice::new(seed)),
            Fault::Loops => loop {
                std::hint::spin_loop();
            },
            Fault::Sleeps => loop {
                std::thread::park();
            },
            Fault::LateAlarm => *self.alarms_from = Instant::now() + ALARMS_ARE_LATE,
            Fault::Exhausts { bytes } => exhaust(bytes),
        }
    }

    fn store_wildly(&self, count: u32, dice: &mut Dice) {
        for _ in 0..count {
            let used = self.published.used_bytes();
            let limit = if dice.happens(750_000) { used } else { used << 8 };
            let at = dice.roll() % limit / 8 * 8;
            // A small number now and then: more of what there is looks like that.
            let word = if dice.happens(300_000) { dice.roll() % 65536 } else { dice.roll() };
            self.published.corrupt(at, &word.to_le_bytes());
        }
    }

    fn send_badly(&mut self, way: BadWay, count: u32, dice: &mut Dice) {
        let cells: Vec<CellId> = self.links.linked().collect();
        for _ in 0..count {
            for &cell in &cells {
                match way {
                    BadWay::Handlers => self.request_badly(cell, dice),
                    BadWay::Answers => {
                        let words = words(dice);
                        if dice.happens(500_000) {
                            self.links.send(cell, COMPLETION, &words, &bytes(dice, 0..64));
                        } else {
                            let number = [HEARTBEAT, CALL][dice.index(2)];
                            // As the head of an active message packs it: the handler, and how many words.
                            let head = u64::from(number) | (words.len() as u64) << 32;
                            let reply = *kinds::ACTIVE.start() + 1;
                            let mut message = head.to_le_bytes().to_vec();
                            message.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                            self.links.send_garbage(cell, reply, &message);
                        }
                    }
                    BadWay::Wire => {
                        let kind = dice.roll().to_le_bytes()[0];
                        self.links.send_garbage(cell, kind, &bytes(dice, 0..300));
                    }
                    BadWay::Group => {}
                }
            }
            if way == BadWay::Group {
                let channels: Vec<_> = self.group.channels().collect();
                for channel in channels {
                    let kind = if dice.happens(800_000) { 0 } else { dice.roll().to_le_bytes()[0] & 0x7f };
                    let _ = self.group.send(channel, kind, &bytes(dice, 0..400));
                }
            }
        }
    }

    fn request_badly(&mut self, cell: CellId, dice: &mut Dice) {
        let known = [HEARTBEAT, CONTAINMENT, CALL, COMPLETION];
        let handler = if dice.happens(900_000) {
            known[dice.index(known.len())]
        } else {
            u16::from(dice.roll().to_le_bytes()[0])
        };
        let words = words(dice);
        self.links.send(cell, handler, &words, &bytes(dice, 0..300));
    }

    /// To each cell something else.
    fn lie(&mut self, count: u32, dice: &mut Dice) {
        let cells: Vec<CellId> = self.links.linked().collect();
        let findings = [
            Finding::Silent,
            Finding::Gone,
            Finding::Late,
            Finding::Corrupt,
            Finding::Leaving,
            Finding::Slander,
        ];
        for _ in 0..count {
            let (suspect, finding) = (cells[dice.index(cells.len())], findings[dice.index(findings.len())]);
            let message = match dice.below(10) {
                0..6 => Message::Alert(alerts::Message::Raise { suspect, finding }),
                6..9 => {
                    Message::Alert(alerts::Message::Vote { suspect, finding, agrees: dice.happens(500_000) })
                }
                _ => {
                    let barrier = [recovery::Barrier::First, recovery::Barrier::Second][dice.index(2)];
                    let (epoch, asks) = (dice.roll() % 64, dice.happens(500_000));
                    Message::Recovery(recovery::Message::Reached { epoch, barrier, asks })
                }
            };
            let message = postcard::to_allocvec(&message).expect("plain data");
            for &cell in
                cells.iter().filter(|&&cell| cell != suspect || dice.happens(200_000)).collect::<Vec<_>>()
            {
                self.links.send(cell, CONTAINMENT, &[], &message);
            }
        }
    }
}

fn words(dice: &mut Dice) -> Vec<u64> {
    let count = dice.below(5);
    (0..count).map(|_| if dice.happens(400_000) { dice.roll() % 256 } else { dice.roll() }).collect()
}

fn bytes(dice: &mut Dice, length: Range<u32>) -> Vec<u8> {
    let length = length.start + dice.below(length.end - length.start);
    (0..length).map(|_| dice.roll().to_le_bytes()[0]).collect()
}

/// Until there is none left that this process may have: a limit of its own stands for the machine's.
fn exhaust(bytes: u64) {
    let has = std::fs::read_to_string("/proc/self/statm").ok();
    let pages: u64 = has.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0);
    let most = pages * rustix::param::page_size() as u64 + bytes;
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    let _ = rustix::process::setrlimit(Resource::As, limit);
    let mut taken: Vec<Vec<u8>> = Vec::new();
    let mut piece = 1 << 20;
    while piece >= 64 {
        let mut more = Vec::new();
        if more.try_reserve_exact(piece).is_err() || taken.try_reserve(1).is_err() {
            piece /= 2;
            continue;
        }
        more.resize(piece, 1_u8);
        taken.push(more);
    }
    // It has it for ever.
    std::mem::forget(taken);
}
