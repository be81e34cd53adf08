//! A disk as a virtio device: requests of a guest's driver, one after the other.
#![expect(clippy::cast_possible_truncation, reason = "constants that are small")]

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR,
    VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};

use super::overlay::{Overlay, SCRATCH};
use super::request::Request;
use super::{Disk, Failure, SECTOR_BYTES};
use crate::devices::backend::{Chain, Device, Fault, Keepsake, Offer, Port, Ports, Turn};

/// A driver has a ring for each processor at most, and all are served by one thread.
const RINGS: u16 = 8;
const RING_SIZE: u16 = 1024;
/// Pieces of memory in a request: what a ring of 128 has beside the header and the status, which is QEMU's size.
const SEGMENTS: u32 = 126;
/// Ranges of sectors in a request that discards or zeroes them.
const MOST_RANGES: usize = 16;
const RANGE_BYTES: usize = 16;
/// Requests that are served in one turn.
const REQUESTS_A_TURN: usize = 64;
/// What comes within this time comes soon: a guest that is translated takes as long from an answer to its next request.
const SOON: Duration = Duration::from_micros(400);
/// Who looks again so late had no processor meanwhile, and does not look for so long then.
const CROWDED_AFTER: Duration = Duration::from_millis(1);
const RESTS_FOR: Duration = Duration::from_millis(100);

/// What a guest has asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that were served.
    pub served: u64,
    /// Requests that can not be, or that are not known.
    pub refused: u64,
    /// Requests that the disk's files have failed.
    pub failed: u64,
}

/// When a driver is told that it has answers, and whether it has to tell of requests. To be told costs a guest more than to ask, so it is told of as many answers at
/// once as it was the last time, if their requests come soon: whoever asks for one after the other does not wait. To tell costs it as much: while what it
/// asks first comes soon after it was told, that is looked for.
#[derive(Clone, Copy, Default)]
struct Telling {
    /// Answers of which it was not told.
    untold: usize,
    /// Of so many it was told the last time.
    told: usize,
    /// When it was told, or asked, last.
    since: Option<Instant>,
    /// What it asked first came soon.
    is_quick: bool,
    /// When it was looked last for what it asks first.
    looked: Option<Instant>,
    /// Until then that is not looked for.
    rests: Option<Instant>,
}

impl Telling {
    /// Some more were answered, or none: whether the driver is to be told now, and whether more is to be looked for without being told.
    fn next(&mut self, answered: usize, now: Instant) -> (bool, bool) {
        // Who looks leaves the processor to others, and is not woken from that: where others have much to do, it is better to sleep.
        if self.looked.take().is_some_and(|looked| now.duration_since(looked) >= CROWDED_AFTER) {
            self.rests = Some(now + RESTS_FOR);
        }
        let is_soon = self.since.is_some_and(|since| now.duration_since(since) < SOON);
        if answered > 0 {
            if self.untold == 0 {
                self.is_quick = is_soon;
            }
            self.untold += answered;
            self.since = Some(now);
        }
        let looks_on = self.is_quick && self.rests.is_none_or(|until| now >= until);
        let (tells, looks) = match self.untold {
            0 => (false, looks_on && is_soon),
            untold if untold < self.told && (answered > 0 || is_soon) => return (false, true),
            untold => {
                (self.told, self.untold, self.since) = (untold, 0, Some(now));
                (true, looks_on)
            }
        };
        self.looked = looks.then_some(now);
        (tells, looks)
    }
}

/// A disk that is served to one engine at a time.
pub struct Block {
    disk: Disk,
    engine: Option<Port>,
    tellings: [Telling; RINGS as usize],
    /// What has been asked so far.
    pub counts: Counts,
}

impl Block {
    /// Serves this disk.
    pub fn new(disk: Disk) -> Self {
        Self { disk, engine: None, tellings: Default::default(), counts: Counts::default() }
    }

    fn offer(&self) -> Offer {
        let disk = &self.disk;
        let mut features = 1 << VIRTIO_BLK_F_SEG_MAX
            | 1 << VIRTIO_BLK_F_BLK_SIZE
            | 1 << VIRTIO_BLK_F_FLUSH
            | 1 << VIRTIO_BLK_F_MQ;
        features |= if disk.is_read_only {
            1 << VIRTIO_BLK_F_RO
        } else {
            1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES
        };
        let most = u32::try_from(disk.identity.sectors).unwrap_or(u32::MAX);
        // `virtio_blk_config`, as the specification has it.
        let mut configuration = Vec::new();
        configuration.extend(disk.identity.sectors.to_le_bytes());
        configuration.extend([0; 4]);
        configuration.extend(SEGMENTS.to_le_bytes());
        configuration.extend([0; 4]);
        configuration.extend((SECTOR_BYTES as u32).to_le_bytes());
        configuration.extend([0; 10]);
        configuration.extend(RINGS.to_le_bytes());
        configuration.extend([most, MOST_RANGES as u32, 1].map(u32::to_le_bytes).as_flattened());
        configuration.extend([most, MOST_RANGES as u32].map(u32::to_le_bytes).as_flattened());
        configuration.push(1);
        configuration.extend([0; 3]);
        let file = disk.overlay.as_ref().filter(|overlay| overlay.is_temporary()).map(Overlay::file);
        let keepsake = file.and_then(|file| file.try_clone().ok());
        let keepsake = keepsake.map(|file| Arc::new(Keepsake { file, scratch: SCRATCH }));
        Offer { features, rings: RINGS, ring_size: RING_SIZE, configuration, keepsake }
    }

    /// Does what is asked, and says how many bytes of the answer were written. Others wait behind it.
    fn answer(&mut self, chain: &Chain, waiting: &mut &[Chain], writes_through: bool) -> u32 {
        let mut request = match Request::of(chain) {
            Ok(request) => request,
            Err(status) => {
                self.counts.refused += 1;
                return status.map_or(0, |status| {
                    status.set(VIRTIO_BLK_S_IOERR as u8);
                    1
                });
            }
        };
        let wanted = request.wanted.bytes();
        let done = self.perform(&mut request, waiting, writes_through);
        let (status, count) = match &done {
            Ok(()) => (VIRTIO_BLK_S_OK, &mut self.counts.served),
            Err(Failure::Unsupported) => (VIRTIO_BLK_S_UNSUPP, &mut self.counts.refused),
            Err(Failure::Wrong) => (VIRTIO_BLK_S_IOERR, &mut self.counts.refused),
            Err(Failure::File(_)) => (VIRTIO_BLK_S_IOERR, &mut self.counts.failed),
        };
        *count += 1;
        request.status.set(status as u8);
        let written = if done.is_ok() { wanted - request.wanted.bytes() } else { 0 };
        u32::try_from(written + 1).unwrap_or(u32::MAX)
    }

    fn perform(
        &mut self,
        request: &mut Request<'_>,
        waiting: &mut &[Chain],
        writes_through: bool,
    ) -> Result<(), Failure> {
        let changes = match request.kind {
            VIRTIO_BLK_T_IN => return self.read(request, waiting),
            VIRTIO_BLK_T_FLUSH => return self.disk.flush(),
            VIRTIO_BLK_T_GET_ID => {
                let mut name = self.disk.name.clone().into_bytes();
                name.resize(VIRTIO_BLK_ID_BYTES as usize, 0);
                request.wanted.put(&name);
                return Ok(());
            }
            VIRTIO_BLK_T_OUT => self.disk.write(request.first, &mut request.given),
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => self.clear(request),
            _ => Err(Failure::Unsupported),
        };
        changes.and_then(|()| if writes_through { self.disk.flush() } else { Ok(()) })
    }

    /// What the others want comes from the disk at the same time: one after the other, a disk would be slow.
    fn read(&self, request: &mut Request<'_>, waiting: &mut &[Chain]) -> Result<(), Failure> {
        let has_waited = Cell::new(false);
        let fetch = || {
            has_waited.set(true);
            for request in waiting.iter().filter_map(|chain| Request::of(chain).ok()) {
                if request.kind == VIRTIO_BLK_T_IN {
                    self.disk.will_read(request.first, request.wanted.bytes());
                }
            }
        };
        let before_waiting: Option<&dyn Fn()> = if waiting.is_empty() { None } else { Some(&fetch) };
        let read = self.disk.read(request.first, &mut request.wanted, before_waiting);
        if has_waited.get() {
            *waiting = &[];
        }
        read
    }

    /// Discards ranges of sectors, or has them zero.
    fn clear(&mut self, request: &mut Request<'_>) -> Result<(), Failure> {
        let zeroes = request.kind == VIRTIO_BLK_T_WRITE_ZEROES;
        let count = usize::try_from(request.given.bytes()).unwrap_or(usize::MAX);
        let mut ranges = [0; MOST_RANGES * RANGE_BYTES];
        let ranges = ranges.get_mut(..count).ok_or(Failure::Wrong)?;
        request.given.take(ranges);
        let (ranges, []) = ranges.as_chunks::<RANGE_BYTES>() else { return Err(Failure::Wrong) };
        for [first @ .., a, b, c, d, e, f, g, h] in ranges {
            let first = u64::from_le_bytes(*first);
            let sectors = u32::from_le_bytes([*a, *b, *c, *d]).into();
            match (zeroes, u32::from_le_bytes([*e, *f, *g, *h])) {
                (true, 0 | 1) => self.disk.zero(first, sectors)?,
                (false, 0) => self.disk.discard(first, sectors)?,
                _ => return Err(Failure::Unsupported),
            }
        }
        Ok(())
    }
}

impl Device for Block {
    fn connected(&mut self, port: Port, _: usize) -> Option<Offer> {
        if self.engine.is_some() {
            eprintln!("{}: another engine has come, and is turned away", self.disk.name);
            return None;
        }
        // What the one before has written is gone with it; it has it still if it is the same one.
        if self.disk.overlay.as_ref().is_some_and(Overlay::is_temporary) {
            match Overlay::temporary(self.disk.identity) {
                Ok(overlay) => self.disk.overlay = Some(overlay),
                Err(flaw) => {
                    eprintln!("{}: no temporary overlay: {flaw}", self.disk.name);
                    return None;
                }
            }
        }
        self.engine = Some(port);
        self.tellings = Default::default();
        Some(self.offer())
    }

    fn kept(&mut self, _: Port, file: File) -> io::Result<()> {
        let Some(overlay) = self.disk.overlay.as_mut().filter(|overlay| overlay.is_temporary()) else {
            return Ok(());
        };
        let (own, other) = (overlay.file().metadata()?, file.metadata()?);
        if (own.dev(), own.ino()) != (other.dev(), other.ino()) {
            *overlay = Overlay::kept(file, self.disk.identity).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn serve(&mut self, ports: &mut Ports, port: Port, number: usize) -> Turn {
        let Some(connection) = ports.get(port) else { return Turn::Done };
        let writes_through = connection.features() & 1 << VIRTIO_BLK_F_FLUSH == 0;
        let Some(ring) = ports.ring(port, number) else { return Turn::Done };
        let chains: Vec<_> = std::iter::from_fn(|| ring.take()).take(REQUESTS_A_TURN).collect();
        let mut waiting = &chains[..];
        for chain in &chains {
            waiting = waiting.get(1..).unwrap_or_default();
            let written = self.answer(chain, &mut waiting, writes_through);
            ring.put(chain.head_index(), written);
        }
        let (tells, looks) = self.tellings[number].next(chains.len(), Instant::now());
        if tells {
            ring.notify();
        }
        if looks {
            ring.disarm();
            return Turn::Soon;
        }
        if chains.len() == REQUESTS_A_TURN || ring.rearm() { Turn::Again } else { Turn::Done }
    }

    fn disconnected(&mut self, port: Port, why: Result<(), Fault>) {
        if self.engine == Some(port) {
            self.engine = None;
        }
        if let Err(fault) = why {
            eprintln!("{}: {fault}", self.disk.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of so many answers at these times, in microseconds.
    #[track_caller]
    fn goes(telling: &mut Telling, begin: Instant, steps: &[(usize, u64, (bool, bool))]) {
        for &(answered, at, (tells, looks)) in steps {
            assert_eq!(telling.next(answered, begin + Duration::from_micros(at)), (tells, looks), "at {at}");
        }
    }

    const REST: (bool, bool) = (false, false);
    const LOOK: (bool, bool) = (false, true);
    const TELL: (bool, bool) = (true, false);
    const TELL_AND_LOOK: (bool, bool) = (true, true);

    #[test]
    fn a_driver_is_told_of_as_many_at_once_as_the_last_time_if_they_come_soon() {
        let (mut telling, begin) = (Telling::default(), Instant::now());
        goes(&mut telling, begin, &[(0, 0, REST), (1, 0, TELL), (1, 1000, TELL), (3, 2000, TELL)]);
        // Three come again, one by one.
        goes(
            &mut telling,
            begin,
            &[(1, 3000, LOOK), (0, 3350, LOOK), (1, 3390, LOOK), (0, 3780, LOOK), (1, 3785, TELL)],
        );
        // Two come, and no third: the next time two are enough.
        goes(&mut telling, begin, &[(2, 5000, LOOK), (0, 5399, LOOK), (0, 5400, TELL)]);
        goes(&mut telling, begin, &[(1, 6000, LOOK), (1, 6100, TELL), (0, 6101, REST)]);
    }

    #[test]
    fn a_driver_that_asks_soon_has_not_to_tell() {
        let (mut telling, begin) = (Telling::default(), Instant::now());
        goes(&mut telling, begin, &[(1, 0, TELL), (0, 1, REST), (1, 350, TELL_AND_LOOK)]);
        goes(&mut telling, begin, &[(0, 740, LOOK), (1, 745, TELL_AND_LOOK)]);
        // It does not any more, and then it does again.
        goes(
            &mut telling,
            begin,
            &[(0, 1145, REST), (1, 1900, TELL), (0, 1901, REST), (1, 2200, TELL_AND_LOOK)],
        );
    }

    #[test]
    fn nobody_looks_where_others_want_the_processor() {
        let (mut telling, begin) = (Telling::default(), Instant::now());
        goes(&mut telling, begin, &[(1, 0, TELL), (1, 100, TELL_AND_LOOK), (0, 150, LOOK)]);
        goes(&mut telling, begin, &[(1, 1150, TELL), (1, 1250, TELL), (0, 1251, REST), (1, 101_149, TELL)]);
        goes(&mut telling, begin, &[(1, 101_150, TELL_AND_LOOK)]);
    }
}
