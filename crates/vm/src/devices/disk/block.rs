//! A disk as a virtio device: requests of a guest's driver, one after the other.
#![expect(clippy::cast_possible_truncation, reason = "constants that are small")]

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Instant;

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR,
    VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};

use super::overlay::{Overlay, SCRATCH};
use super::request::Request;
use super::telling::Telling;
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
