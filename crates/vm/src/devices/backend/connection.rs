//! What one front-end has said, and the messages by which it says it.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    FrontendReq, MAX_MSG_SIZE, VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result as Answer, VhostUserBackendReqHandlerMut,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::QueueT;
use vm_memory::{GuestAddress, GuestMemoryRegion, GuestRegionMmap, MmapRegion};

use super::ring::{Kick, Memory, Ring, never_waits};
use super::{Offer, Port, Token, Turn};

/// Regions of memory that a guest may have: what a QEMU guest has is a handful, and a slot of memory that is plugged in is one more.
const MEMORY_SLOTS: usize = 32;
/// Messages that are taken in one turn.
const MESSAGES_A_TURN: usize = 64;
const HEADER_BYTES: usize = 12;
const NEEDS_REPLY: u32 = 8;
const IS_REPLY: u32 = 4 | 1;

/// Why a front-end is sent away.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It has said what it may not.
    #[error("the engine has said what it may not: {0}")]
    Message(#[from] Error),
    /// It asks, and does not take the answers.
    #[error("the engine does not read what it is answered")]
    Deaf,
    /// What it says that it has kept for the device is nothing that the device knows.
    #[error("what the engine has kept: {0}")]
    Kept(#[source] io::Error),
    /// Its socket fails.
    #[error("the engine's socket: {0}")]
    Socket(#[from] io::Error),
}

impl From<rustix::io::Errno> for Fault {
    fn from(error: rustix::io::Errno) -> Self {
        Fault::Socket(error.into())
    }
}

/// A piece of guest memory: where the guest has it, and where the engine has.
struct Mapping {
    guest: u64,
    engine: u64,
    bytes: u64,
}

/// What one front-end has said.
pub struct Connection {
    port: Port,
    epoll: Arc<OwnedFd>,
    offer: Offer,
    features: u64,
    memory: Arc<Memory>,
    mappings: Vec<Mapping>,
    pub(super) rings: Vec<Ring>,
    started: Vec<u16>,
    kept: Option<File>,
}

impl Connection {
    pub(super) fn new(port: Port, epoll: &Arc<OwnedFd>, offer: Offer) -> Self {
        Self {
            port,
            epoll: Arc::clone(epoll),
            offer,
            features: 0,
            memory: Arc::default(),
            mappings: Vec::new(),
            rings: Vec::new(),
            started: Vec::new(),
            kept: None,
        }
    }

    /// The features that its driver uses.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The rings that have started since this was asked last.
    pub(super) fn take_news(&mut self) -> impl Iterator<Item = u16> + use<> {
        mem::take(&mut self.started).into_iter()
    }

    /// What the engine has kept, if it has said so since this was asked last.
    pub(super) fn take_kept(&mut self) -> Option<File> {
        self.kept.take()
    }

    fn offered(&self) -> u64 {
        self.offer.features
            | 1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn ring(&mut self, index: u32) -> Answer<&mut Ring> {
        if index >= self.offer.rings.into() {
            return Err(Error::InvalidParam);
        }
        while self.rings.len() <= index as usize {
            let ring = Ring::new(self.offer.ring_size, Arc::clone(&self.memory));
            self.rings.push(ring.map_err(|_| Error::BackendInternalError)?);
        }
        Ok(&mut self.rings[index as usize])
    }

    fn set_memory(&mut self, memory: Memory) {
        self.memory = Arc::new(memory);
        self.rings.iter_mut().for_each(|ring| ring.set_memory(&self.memory));
    }

    /// Where the guest has what the engine has there.
    fn guest_address(&self, engine: u64) -> Answer<u64> {
        let within = |mapping: &Mapping| {
            let offset = engine.checked_sub(mapping.engine).filter(|offset| *offset < mapping.bytes)?;
            Some(mapping.guest + offset)
        };
        self.mappings.iter().find_map(within).ok_or(Error::InvalidParam)
    }

    /// The driver is told at once: it may have missed that of those before us.
    fn set_call(&mut self, index: u32, file: Option<File>) -> Answer<()> {
        let file = file.map(never_waits).transpose().map_err(refused)?;
        let ring = self.ring(index)?;
        ring.call = file;
        if ring.is_running() {
            ring.call();
        }
        Ok(())
    }

    fn set_enabled(&mut self, index: u32, is_enabled: bool) -> Answer<()> {
        let ring = self.ring(index)?;
        ring.is_enabled = is_enabled;
        if ring.is_running() {
            self.started.extend(u16::try_from(index));
        }
        Ok(())
    }
}

fn refused(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(error))
}

fn unknown<T>() -> Answer<T> {
    Err(Error::InvalidOperation("it was not offered"))
}

/// Maps guest memory. The engine must not be able to take any of it away again: to touch it then would be the end of this process. So what is not sealed, as memory
/// over a file of the host's is not, is no memory of the guest's here: a request that lies there is refused, as one that lies nowhere is.
fn map(region: &VhostUserMemoryRegion, file: File) -> Answer<Option<(GuestRegionMmap<()>, Mapping)>> {
    if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Ok(None);
    }
    let mapped: MmapRegion<()> = region.mmap_region(file)?;
    let mapped = GuestRegionMmap::new(mapped, GuestAddress(region.guest_phys_addr));
    let (guest, engine, bytes) = (region.guest_phys_addr, region.user_addr, region.memory_size);
    Ok(Some((mapped.ok_or(Error::InvalidParam)?, Mapping { guest, engine, bytes })))
}

impl VhostUserBackendReqHandlerMut for Connection {
    fn set_owner(&mut self) -> Answer<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Answer<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Answer<()> {
        self.rings.clear();
        self.features = 0;
        Ok(())
    }

    fn get_features(&mut self) -> Answer<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> Answer<()> {
        if features & !self.offered() != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        for index in 0..u32::from(self.offer.rings) {
            self.ring(index)?.queue.set_event_idx(features & 1 << VIRTIO_RING_F_EVENT_IDX != 0);
            if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
                self.set_enabled(index, true)?;
            }
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Answer<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mapped: Answer<Vec<_>> =
            regions.iter().zip(files).map(|(region, file)| map(region, file)).collect();
        let (mut mapped, mappings): (Vec<_>, Vec<_>) = mapped?.into_iter().flatten().unzip();
        if mapped.is_empty() && !regions.is_empty() {
            return Err(refused("guest memory is not sealed against shrinking (memory-backend-memfd is)"));
        }
        mapped.sort_by_key(GuestMemoryRegion::start_addr);
        self.set_memory(Memory::from_regions(mapped).map_err(refused)?);
        self.mappings = mappings;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Answer<()> {
        let size = u16::try_from(size).map_err(|_| Error::InvalidParam)?;
        self.ring(index)?.queue.try_set_size(size).map_err(refused)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Answer<()> {
        let descriptors = GuestAddress(self.guest_address(descriptors)?);
        let (used, available) = (self.guest_address(used)?, self.guest_address(available)?);
        let queue = &mut self.ring(index)?.queue;
        let set = queue.try_set_desc_table_address(descriptors);
        let set = set.and_then(|()| queue.try_set_used_ring_address(GuestAddress(used)));
        set.and_then(|()| queue.try_set_avail_ring_address(GuestAddress(available))).map_err(refused)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Answer<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.ring(index)?.queue.set_next_avail(base);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Answer<VhostUserVringState> {
        Ok(VhostUserVringState::new(index, self.ring(index)?.stop().into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Answer<()> {
        let file = file.ok_or(Error::InvalidOperation("a ring that is to be polled"))?;
        let ring = self.ring(index.into())?;
        // The one before must be watched no more before this one is: they may be the same.
        ring.kick = None;
        let token = Token::Ring(self.port, index.into()).number();
        let kick = Kick::new(file, &self.epoll, token).map_err(refused)?;
        self.ring(index.into())?.start(kick).map_err(refused)?;
        self.started.push(index.into());
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Answer<()> {
        self.set_call(index.into(), file)
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Answer<()> {
        self.ring(index.into())?.error = file.map(never_waits).transpose().map_err(refused)?;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Answer<VhostUserProtocolFeatures> {
        let mut features = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        features.set(VhostUserProtocolFeatures::CONFIG, !self.offer.configuration.is_empty());
        features.set(VhostUserProtocolFeatures::INFLIGHT_SHMFD, self.offer.keepsake.is_some());
        Ok(features)
    }

    fn set_protocol_features(&mut self, features: u64) -> Answer<()> {
        let offered = self.get_protocol_features()? | VhostUserProtocolFeatures::REPLY_ACK;
        if features & !offered.bits() != 0 {
            return Err(Error::FeatureMismatch);
        }
        Ok(())
    }

    fn get_queue_num(&mut self) -> Answer<u64> {
        Ok(self.offer.rings.into())
    }

    fn set_vring_enable(&mut self, index: u32, is_enabled: bool) -> Answer<()> {
        self.set_enabled(index, is_enabled)
    }

    fn get_config(&mut self, offset: u32, bytes: u32, _: VhostUserConfigFlags) -> Answer<Vec<u8>> {
        let (offset, bytes) = (offset as usize, bytes as usize);
        // A driver may know more fields than there are: they are empty.
        let held = self.offer.configuration.iter().copied().chain(std::iter::repeat(0));
        Ok(held.skip(offset).take(bytes).collect())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Answer<()> {
        unknown()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Answer<()> {
        unknown()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Answer<File> {
        unknown()
    }

    /// The protocol has this for requests that are on their way. Here there are none, for rings are served in order; so the engine keeps something else.
    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Answer<(VhostUserInflight, File)> {
        let Some(keepsake) = &self.offer.keepsake else { return unknown() };
        let file = keepsake.file.try_clone().map_err(refused)?;
        let (mmap_offset, end) = (keepsake.scratch.start, keepsake.scratch.end);
        Ok((VhostUserInflight { mmap_size: end - mmap_offset, mmap_offset, ..*asked }, file))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, file: File) -> Answer<()> {
        self.kept = Some(file);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Answer<u64> {
        Ok(MEMORY_SLOTS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Answer<Option<VhostUserMemoryRegionBase>> {
        if self.mappings.len() >= MEMORY_SLOTS {
            return Err(Error::InvalidParam);
        }
        let Some((mapped, mapping)) = map(region, file)? else { return Ok(None) };
        self.set_memory(self.memory.insert_region(Arc::new(mapped)).map_err(refused)?);
        self.mappings.push(mapping);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Answer<()> {
        let address = GuestAddress(region.guest_phys_addr);
        if !self.mappings.iter().any(|mapping| mapping.guest == region.guest_phys_addr) {
            return Ok(());
        }
        let (memory, _) = self.memory.remove_region(address, region.memory_size).map_err(refused)?;
        self.set_memory(memory);
        self.mappings.retain(|mapping| mapping.guest != region.guest_phys_addr);
        Ok(())
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Answer<Option<File>> {
        unknown()
    }

    fn check_device_state(&mut self) -> Answer<()> {
        unknown()
    }

    fn get_shmem_config(&mut self) -> Answer<VhostUserShMemConfig> {
        unknown()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Answer<()> {
        unknown()
    }
}

/// A front-end's socket, and what came by it.
pub(super) struct Line {
    socket: UnixStream,
    requests: BackendReqHandler<Mutex<Connection>>,
    /// What has been said is with `requests` only while a message is understood: otherwise the device has it, without a lock.
    lent: Arc<Mutex<Connection>>,
    pub(super) connection: Connection,
}

impl Line {
    pub(super) fn new(socket: UnixStream, connection: Connection) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        let placeholder = Connection::new(connection.port, &connection.epoll, connection.offer.clone());
        let lent = Arc::new(Mutex::new(placeholder));
        let requests = BackendReqHandler::from_stream(socket.try_clone()?, Arc::clone(&lent));
        Ok(Self { socket, requests, lent, connection })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.socket)
    }

    /// Takes the messages that are there as a whole, as many as one may have in one turn; `None` at their end.
    pub(super) fn hear(&mut self) -> Result<Option<Turn>, Fault> {
        for _ in 0..MESSAGES_A_TURN {
            let mut header = [0; HEADER_BYTES];
            let seen = match recv(&self.socket, &mut header, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(None),
                Err(rustix::io::Errno::CONNRESET) => return Ok(None),
                Err(rustix::io::Errno::AGAIN) => return Ok(Some(Turn::Done)),
                seen => seen?.0,
            };
            let [request, flags, bytes] = [0, 4, 8]
                .map(|at| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
            if seen == HEADER_BYTES && bytes as usize > MAX_MSG_SIZE {
                return Err(Error::OversizedMsg.into());
            }
            let there = rustix::io::ioctl_fionread(&self.socket)?;
            if seen < HEADER_BYTES || there < HEADER_BYTES as u64 + u64::from(bytes) {
                return if self.has_ended()? {
                    Err(Error::PartialMessage.into())
                } else {
                    Ok(Some(Turn::Done))
                };
            }
            if !self.is_ready(PollFlags::OUT)? {
                return Err(Fault::Deaf);
            }
            if request == FrontendReq::SET_VRING_ENABLE as u32 && bytes == 8 {
                self.enable(flags & NEEDS_REPLY != 0)?;
            } else {
                self.understand()?;
            }
        }
        Ok(Some(Turn::Again))
    }

    fn is_ready(&self, flags: PollFlags) -> Result<bool, Fault> {
        let mut asked = [PollFd::new(&self.socket, flags)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(asked[0].revents().intersects(flags))
    }

    fn has_ended(&self) -> Result<bool, Fault> {
        self.is_ready(PollFlags::RDHUP | PollFlags::HUP)
    }

    fn understand(&mut self) -> Result<(), Fault> {
        let swap = |connection: &mut Connection| {
            mem::swap(&mut *self.lent.lock().unwrap_or_else(PoisonError::into_inner), connection);
        };
        swap(&mut self.connection);
        let understood = self.requests.handle_request();
        swap(&mut self.connection);
        Ok(understood?)
    }

    /// QEMU enables rings before it has said that it uses the messages that enable rings, which `requests` does not understand.
    fn enable(&mut self, needs_reply: bool) -> Result<(), Fault> {
        let mut message = [0; HEADER_BYTES + 8];
        recv(&self.socket, &mut message, RecvFlags::DONTWAIT)?;
        let [.., a, b, c, d, e, f, g, h] = message;
        let (index, is_enabled) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
        self.connection.set_enabled(index, is_enabled != 0)?;
        if needs_reply {
            let words = [FrontendReq::SET_VRING_ENABLE as u32, IS_REPLY, 8, 0, 0].map(u32::to_ne_bytes);
            send(&self.socket, words.as_flattened(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }
}
