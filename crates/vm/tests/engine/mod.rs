//! An engine, and the driver of its guest, played by a test.

#![expect(dead_code, reason = "not every test says all that an engine can say")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comb_vm::devices::backend::{Backend, Device, Memory};
use rustix::fs::{MemfdFlags, SealFlags};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Descriptors of a ring.
pub(crate) const RING_SIZE: u16 = 64;
/// The first address that no ring has.
pub(crate) const BUFFERS: u64 = 0x10_0000;
const RING_BYTES: u64 = 0x1_0000;
const EVENT_IDX: u64 = 1 << 29;
/// Far more than anything here takes.
const LONGEST: Duration = Duration::from_secs(60);

/// Where a test has its sockets and files. It goes with all that is in it.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-vm-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A device that serves in a thread of the test's.
pub(crate) struct Served<D> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<D>>,
}

impl<D: Device + Send + 'static> Served<D> {
    pub(crate) fn new(device: D, sockets: &[PathBuf]) -> Self {
        Self::with(device, sockets, |_| {})
    }

    /// With what it needs beside the sockets.
    pub(crate) fn with(device: D, sockets: &[PathBuf], needs: impl FnOnce(&mut Backend<D>)) -> Self {
        let mut backend = Backend::new(device).expect("a backend");
        needs(&mut backend);
        sockets.iter().for_each(|socket| backend.listen(socket).expect("a socket"));
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                backend.turn(Some(Duration::from_millis(20))).expect("a turn");
            }
            backend.device
        });
        Self { stop, thread: Some(thread) }
    }

    pub(crate) fn end(mut self) -> D {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("it did not panic")
    }
}

impl<D> Drop for Served<D> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits until it is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONGEST, "{what}: not after {LONGEST:?}");
        std::thread::yield_now();
    }
}

/// Memory that can be shared with a device.
pub(crate) fn memory(bytes: usize, is_sealed: bool) -> GuestMemoryMmap<()> {
    let file = rustix::fs::memfd_create("guest", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&file, bytes as u64).expect("its length");
    if is_sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
    }
    let file = FileOffset::new(file.into(), 0);
    Memory::from_ranges_with_files([(GuestAddress(0), bytes, Some(file))]).expect("a mapping")
}

/// A piece of a chain.
#[derive(Clone, Copy)]
pub(crate) enum Piece {
    /// The device reads it.
    Read(u64, u32),
    /// The device writes it.
    Write(u64, u32),
}

struct DriverRing {
    kick: EventFd,
    call: EventFd,
    told: Epoll,
    next_descriptor: u16,
    available: u16,
    kicked: u16,
    used: u16,
}

/// An engine with a guest.
pub(crate) struct Engine {
    pub(crate) front: Frontend,
    pub(crate) memory: GuestMemoryMmap<()>,
    rings: Vec<DriverRing>,
    without: u64,
    kept: Option<(VhostUserInflight, File)>,
}

impl Engine {
    /// Comes to a device, with memory, and with rings that do not run yet.
    pub(crate) fn connect(socket: &Path, memory_bytes: usize, rings: usize) -> Self {
        Self::connect_without(0, socket, memory_bytes, rings)
    }

    /// The same, by a driver that does not know these features.
    pub(crate) fn connect_without(without: u64, socket: &Path, memory_bytes: usize, rings: usize) -> Self {
        let rings = (0..rings).map(|_| {
            let [kick, call] = [(); 2].map(|()| EventFd::new(EFD_NONBLOCK).expect("an eventfd"));
            let told = Epoll::new().expect("an epoll");
            let event = EpollEvent::new(EventSet::IN, 0);
            told.ctl(ControlOperation::Add, call.as_raw_fd(), event).expect("it is watched");
            DriverRing { kick, call, told, next_descriptor: 0, available: 0, kicked: 0, used: 0 }
        });
        let memory = memory(memory_bytes, true);
        let rings = rings.collect();
        let mut engine = Self { front: front(socket), memory, rings, without, kept: None };
        engine.introduce();
        engine
    }

    /// Comes again: the guest has not noticed anything.
    pub(crate) fn reconnect(&mut self, socket: &Path) {
        self.front = front(socket);
        self.introduce();
        for ring in 0..self.rings.len() {
            let used = self.word(ring, 0x8002);
            self.start(ring, used);
        }
    }

    fn introduce(&mut self) {
        let features = self.front.get_features().expect("features");
        self.front.set_owner().expect("an owner");
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0 {
            let offered = self.front.get_protocol_features().expect("protocol features");
            self.front.set_protocol_features(offered).expect("protocol features");
            if offered.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD) {
                let asked = VhostUserInflight { num_queues: 1, queue_size: RING_SIZE, ..Default::default() };
                let front = &mut self.front;
                let kept =
                    self.kept.get_or_insert_with(|| front.get_inflight_fd(&asked).expect("a keepsake"));
                front.set_inflight_fd(&kept.0, kept.1.as_raw_fd()).expect("it is what it was");
            }
        }
        self.front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        self.front.set_features(features & !self.without).expect("features");
        self.front.set_mem_table(&regions(&self.memory)).expect("memory");
    }

    /// Has a ring run, from where it stands.
    pub(crate) fn start(&mut self, ring: usize, base: u16) {
        self.start_unheard(ring, base);
        self.hear(ring);
        self.front.set_vring_enable(ring, true).expect("enabled");
    }

    /// Has a ring run, and is not told of what becomes of it.
    pub(crate) fn start_unheard(&mut self, ring: usize, base: u16) {
        self.front.set_vring_num(ring, RING_SIZE).expect("a size");
        self.front.set_vring_base(ring, base).expect("a base");
        self.front.set_vring_addr(ring, &self.addresses(ring)).expect("addresses");
        self.front.set_vring_kick(ring, &self.rings[ring].kick).expect("a kick");
    }

    /// Is told from now on.
    pub(crate) fn hear(&mut self, ring: usize) {
        self.front.set_vring_call(ring, &self.rings[ring].call).expect("a call");
    }

    /// Has a ring stop, and says where.
    pub(crate) fn stop(&mut self, ring: usize) -> u16 {
        self.front.get_vring_base(ring).expect("a base").try_into().expect("a number of the ring")
    }

    pub(crate) fn configuration(&mut self, bytes: u32) -> Vec<u8> {
        let asked = vec![0; bytes as usize];
        self.front.get_config(0, bytes, VhostUserConfigFlags::empty(), &asked).expect("configuration").1
    }

    fn addresses(&self, ring: usize) -> VringConfigData {
        let start = self.memory.get_host_address(GuestAddress(ring as u64 * RING_BYTES)).expect("memory");
        let start = start as u64;
        VringConfigData {
            queue_max_size: RING_SIZE,
            queue_size: RING_SIZE,
            flags: 0,
            desc_table_addr: start,
            avail_ring_addr: start + 0x4000,
            used_ring_addr: start + 0x8000,
            log_addr: None,
        }
    }

    /// What stands in a ring there.
    pub(crate) fn word(&self, ring: usize, offset: u64) -> u16 {
        let address = GuestAddress(ring as u64 * RING_BYTES + offset);
        u16::from_le(self.memory.load(address, Ordering::Acquire).expect("a word"))
    }

    /// Writes into a ring what may not be there.
    pub(crate) fn set_word(&self, ring: usize, offset: u64, value: u16) {
        let address = GuestAddress(ring as u64 * RING_BYTES + offset);
        self.memory.store(value.to_le(), address, Ordering::Release).expect("a word");
    }

    /// Puts a chain into a ring.
    pub(crate) fn offer(&mut self, ring: usize, pieces: &[Piece]) -> u16 {
        let head = self.rings[ring].next_descriptor;
        for (at, piece) in pieces.iter().enumerate() {
            let number = self.rings[ring].next_descriptor;
            let next = (number + 1) % RING_SIZE;
            let (address, bytes, writes) = match *piece {
                Piece::Read(address, bytes) => (address, bytes, 0),
                Piece::Write(address, bytes) => (address, bytes, 2),
            };
            let flags = writes | u16::from(at + 1 < pieces.len());
            self.set_descriptor(ring, number, address, bytes, flags, next);
            self.rings[ring].next_descriptor = next;
        }
        self.offer_head(ring, head);
        head
    }

    pub(crate) fn set_descriptor(
        &self,
        ring: usize,
        number: u16,
        address: u64,
        bytes: u32,
        flags: u16,
        next: u16,
    ) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&address.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        descriptor[14..].copy_from_slice(&next.to_le_bytes());
        let at = GuestAddress(ring as u64 * RING_BYTES + u64::from(number) * 16);
        self.memory.write_slice(&descriptor, at).expect("a descriptor");
    }

    /// Makes a descriptor available, whatever it is.
    pub(crate) fn offer_head(&mut self, ring: usize, head: u16) {
        let available = self.rings[ring].available;
        self.set_word(ring, 0x4004 + u64::from(available % RING_SIZE) * 2, head);
        self.rings[ring].available = available.wrapping_add(1);
        self.set_word(ring, 0x4002, self.rings[ring].available);
    }

    /// Tells the device of what is new, if it wants to know (avail_event).
    pub(crate) fn kick(&mut self, ring: usize) {
        fence(Ordering::SeqCst);
        let wanted = self.word(ring, 0x8004 + u64::from(RING_SIZE) * 8);
        let new = self.rings[ring].available;
        let old = std::mem::replace(&mut self.rings[ring].kicked, new);
        if new.wrapping_sub(wanted).wrapping_sub(1) < new.wrapping_sub(old) {
            self.kick_anyway(ring);
        }
    }

    pub(crate) fn kick_anyway(&mut self, ring: usize) {
        self.rings[ring].kick.write(1).expect("a kick");
    }

    /// The next chain that comes back, with how much was written. None if there is none.
    pub(crate) fn take(&mut self, ring: usize) -> Option<(u16, u32)> {
        let used = self.rings[ring].used;
        if self.word(ring, 0x8002) == used {
            return None;
        }
        let at = GuestAddress(ring as u64 * RING_BYTES + 0x8004 + u64::from(used % RING_SIZE) * 8);
        let entry: [u32; 2] = self.memory.read_obj(at).expect("an entry");
        self.rings[ring].used = used.wrapping_add(1);
        Some((u32::from_le(entry[0]).try_into().expect("a descriptor"), u32::from_le(entry[1])))
    }

    /// The next chain that comes back: the device has to tell of it.
    pub(crate) fn wait(&mut self, ring: usize) -> (u16, u32) {
        loop {
            if let Some(taken) = self.take(ring) {
                return taken;
            }
            // It wants to be told of the next one (used_event).
            self.set_word(ring, 0x4004 + u64::from(RING_SIZE) * 2, self.rings[ring].used);
            fence(Ordering::SeqCst);
            if let Some(taken) = self.take(ring) {
                return taken;
            }
            self.wait_for_call(ring);
        }
    }
}

impl Engine {
    /// Waits until the device tells of something.
    pub(crate) fn wait_for_call(&mut self, ring: usize) {
        let (told, call) = (&self.rings[ring].told, &self.rings[ring].call);
        let longest = LONGEST.as_millis().try_into().expect("a number");
        let count = told.wait(longest, &mut [EpollEvent::default()]).expect("events");
        assert!(count == 1, "the device does not tell of a chain");
        let _ = call.read();
    }

    /// How many chains have come back that were not taken yet.
    pub(crate) fn done(&self, ring: usize) -> u16 {
        self.word(ring, 0x8002).wrapping_sub(self.rings[ring].used)
    }

    /// Kicks, and takes what comes back.
    pub(crate) fn wait_after_kick(&mut self, ring: usize) -> (u16, u32) {
        self.kick(ring);
        self.wait(ring)
    }

    /// Says that it has kept this file for the device.
    pub(crate) fn keep(&mut self, file: &File) {
        let kept =
            VhostUserInflight { mmap_size: 4096, num_queues: 1, queue_size: RING_SIZE, ..Default::default() };
        // It may be gone by the time when it would be answered.
        let _ = self.front.set_inflight_fd(&kept, file.as_raw_fd());
    }

    /// Waits until the device does not answer any more.
    pub(crate) fn wait_until_gone(&mut self) {
        wait_until("the device sends it away", || self.front.get_features().is_err());
    }
}

/// Comes to a device. As an engine does, it comes again if it is turned away: a process that is being started has all that this one has open, for a moment, so that
/// the engine before may seem to be there still.
fn front(socket: &Path) -> Frontend {
    let mut front = None;
    wait_until("a device is there", || {
        front = UnixStream::connect(socket).ok().and_then(|stream| {
            stream.set_read_timeout(Some(LONGEST)).expect("a timeout");
            let front = Frontend::from_stream(stream, 16);
            front.get_features().is_ok().then_some(front)
        });
        front.is_some()
    });
    front.expect("it is there")
}

/// How an engine tells of memory.
pub(crate) fn regions(memory: &GuestMemoryMmap<()>) -> Vec<VhostUserMemoryRegionInfo> {
    memory
        .iter()
        .map(|region| {
            assert!(region.file_offset().is_some());
            VhostUserMemoryRegionInfo::from_guest_region(region).expect("a file")
        })
        .collect()
}
