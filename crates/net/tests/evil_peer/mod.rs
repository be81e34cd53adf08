//! A peer that speaks the handshake by hand and then writes what it likes: everything that a process can do which has
//! the protocol's bytes and its own memory, and no respect. The layout of the memory is written down here a second time
//! on purpose: a change of it that nobody meant fails these tests.
#![expect(unsafe_code, reason = "scribbles over shared memory, as a bad peer does")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use comb_net::agent::protocol::{self, Reply, Request, Side};
use comb_net::{Geometry, InProcess};
use comb_types::{ChannelId, EndpointId};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

pub(crate) const PAGE: usize = 4096;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"comb\0\0\0\x03");
/// Control words, counted in words.
pub(crate) const CONSUMED: usize = 8;
pub(crate) const CLOSED: usize = 24;
pub(crate) const QUENCH: usize = 40;
/// The length byte of a header that says: look for a descriptor.
pub(crate) const DESCRIPTOR: u8 = 0xFF;

/// The seals of memory that both sides write.
pub(crate) const BOTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Mapped shared memory, all of it open to any store.
pub(crate) struct Memory {
    base: *mut u8,
    bytes: usize,
    pub(crate) fd: OwnedFd,
}

// SAFETY: an address range that is only accessed by atomics.
unsafe impl Send for Memory {}

impl Memory {
    pub(crate) fn create(bytes: usize, seals: SealFlags) -> Self {
        let fd =
            rustix::fs::memfd_create("comb-evil", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, bytes as u64).unwrap();
        let memory = Self::map(fd, bytes);
        rustix::fs::fcntl_add_seals(&memory.fd, seals).unwrap();
        memory
    }

    pub(crate) fn map(fd: OwnedFd, bytes: usize) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh address chosen by the kernel.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &fd, 0) };
        Self { base: base.unwrap().cast(), bytes, fd }
    }

    pub(crate) fn words(&self) -> usize {
        self.bytes / 8
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words());
        // SAFETY: within the mapping, aligned, and the memory keeps its size by its seals.
        unsafe { &*self.base.cast::<AtomicU64>().add(index) }
    }

    pub(crate) fn store(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::SeqCst);
    }

    pub(crate) fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::SeqCst)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; no reference outlives `self`.
        unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) }.unwrap();
    }
}

pub(crate) fn pack(geometry: Geometry) -> u64 {
    u64::from(geometry.slots) | u64::from(geometry.payload_bytes) << 32
}

/// A ring that is as it should be.
pub(crate) fn good_ring(geometry: Geometry) -> Memory {
    let ring = Memory::create(geometry.segment_bytes(), BOTH);
    ring.store(0, MAGIC);
    ring.store(1, pack(geometry));
    ring
}

pub(crate) fn board_bytes(channels: u32) -> usize {
    (128 + channels as usize).next_multiple_of(PAGE)
}

/// A bad process's connection to the agent.
pub(crate) struct EvilPeer {
    pub(crate) socket: OwnedFd,
    pub(crate) endpoint: EndpointId,
    bell: Memory,
}

/// One end of a channel, by hand.
pub(crate) struct EvilChannel {
    pub(crate) id: ChannelId,
    pub(crate) own: Memory,
    pub(crate) theirs: Memory,
    pub(crate) their_bell: Memory,
    pub(crate) geometry: Geometry,
    pub(crate) sent: u32,
}

pub(crate) const BELL_CHANNELS: u32 = 64;

impl EvilPeer {
    /// Says hello and makes the endpoint `name/desk`.
    pub(crate) fn connect(agent: &InProcess, name: &str) -> Self {
        let socket = agent.socket().unwrap();
        let limit = Some(Duration::from_secs(20));
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, limit)
            .unwrap();
        let bell = Memory::create(board_bytes(BELL_CHANNELS), BOTH);
        let mut peer = Self { socket, endpoint: EndpointId(0), bell };
        peer.tell(&Request::Hello { name: name.into() }, &[]);
        assert!(matches!(peer.hear().0, Reply::Welcome { .. }));
        let request =
            Request::CreateEndpoint { request: 1, name: "desk".into(), bell_channels: BELL_CHANNELS };
        peer.tell(&request, &[peer.bell.fd.as_fd()]);
        let Reply::EndpointCreated { endpoint, .. } = peer.hear().0 else { panic!("no endpoint") };
        peer.endpoint = endpoint;
        peer
    }

    pub(crate) fn tell(&self, request: &Request, with: &[BorrowedFd<'_>]) {
        protocol::send(&self.socket, request, with).unwrap();
    }

    pub(crate) fn hear(&self) -> (Reply, Vec<OwnedFd>) {
        protocol::receive(&self.socket).unwrap()
    }

    pub(crate) fn side(&self, geometry: Geometry) -> Side {
        Side { geometry, bell_index: 0, event: false, asymmetric_fences: true }
    }

    pub(crate) fn ask_open(&self, to: &str, side: Side, with: &[BorrowedFd<'_>]) {
        self.tell(&Request::Open { request: 2, endpoint: self.endpoint, to: to.into(), side }, with);
    }

    /// Opens a channel as it should be done. The other side may have events.
    pub(crate) fn open(&self, to: &str) -> EvilChannel {
        let geometry = Geometry::default();
        let own = good_ring(geometry);
        self.ask_open(to, self.side(geometry), &[own.fd.as_fd()]);
        // What is told of earlier channels comes in between.
        let mut heard = self.hear();
        while matches!(heard.0, Reply::PeerGone { .. }) {
            heard = self.hear();
        }
        match heard {
            (Reply::Opened { channel, side, bell_channels, .. }, with) => {
                EvilChannel::new(channel, own, geometry, &side, bell_channels, with)
            }
            (other, _) => panic!("not opened: {other:?}"),
        }
    }

    /// Waits for an offer and takes it as it should be done.
    pub(crate) fn accept(&self) -> EvilChannel {
        let (Reply::Offer { channel, side, bell_channels, .. }, with) = self.hear() else {
            panic!("no offer")
        };
        let geometry = Geometry::default();
        let own = good_ring(geometry);
        self.tell(&Request::Accept { channel, side: self.side(geometry) }, &[own.fd.as_fd()]);
        EvilChannel::new(channel, own, geometry, &side, bell_channels, with)
    }
}

impl EvilPeer {
    /// Its own board, which its peers write.
    pub(crate) fn bell(&self) -> &Memory {
        &self.bell
    }
}

impl EvilChannel {
    fn new(
        id: ChannelId,
        own: Memory,
        geometry: Geometry,
        side: &Side,
        bell_channels: u32,
        with: Vec<OwnedFd>,
    ) -> Self {
        let mut with = with.into_iter();
        let theirs = Memory::map(with.next().unwrap(), side.geometry.segment_bytes());
        if side.event {
            with.next().unwrap();
        }
        let their_bell = Memory::map(with.next().unwrap(), board_bytes(bell_channels));
        Self { id, own, theirs, their_bell, geometry, sent: 0 }
    }

    /// The first word of the slot that the next message goes to.
    pub(crate) fn slot(&self) -> usize {
        // A ring of up to 16 slots stands behind the control words, in their page.
        let ring = if self.geometry.slots <= 16 { 320 } else { PAGE / 8 };
        ring + (self.sent % self.geometry.slots) as usize * 8
    }

    /// Writes a message with any header.
    pub(crate) fn post(&mut self, sequence: u32, length: u8, kind: u8, acknowledged: u16, content: u64) {
        let slot = self.slot();
        self.own.store(slot + 1, content);
        let header = u64::from(sequence)
            | u64::from(length) << 32
            | u64::from(kind) << 40
            | u64::from(acknowledged) << 48;
        self.own.store(slot, header);
    }

    /// Writes a message as it should be.
    pub(crate) fn send(&mut self, content: u64) {
        self.post(self.sent + 1, 8, 1, 0, content);
        self.sent += 1;
    }
}
