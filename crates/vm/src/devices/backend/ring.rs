//! A ring of descriptors, which a guest's driver and the device share. All that is in it is the guest's word.

use std::fs::File;
use std::io::Write;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::OFlags;
use virtio_bindings::bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// The memory of a guest.
pub type Memory = GuestMemoryMmap<()>;

/// What a driver makes available at once: descriptors of pieces of its memory, to be read or to be written.
pub type Chain = DescriptorChain<Arc<Memory>>;

/// A ring of a front-end.
pub struct Ring {
    pub(super) queue: Queue,
    pub(super) memory: Arc<Memory>,
    pub(super) kick: Option<Kick>,
    pub(super) call: Option<File>,
    pub(super) error: Option<File>,
    pub(super) is_enabled: bool,
    is_broken: bool,
    /// How far the driver had been told, or did not want to be, when it was last looked at.
    told: u16,
}

impl Ring {
    pub(super) fn new(size: u16, memory: Arc<Memory>) -> Result<Self, virtio_queue::Error> {
        Ok(Self {
            queue: Queue::new(size)?,
            memory,
            kick: None,
            call: None,
            error: None,
            is_enabled: true,
            is_broken: false,
            told: 0,
        })
    }

    /// Whether the driver and the engine want it served. One that its driver has damaged is not, until it is set up anew.
    pub fn is_running(&self) -> bool {
        self.queue.ready() && self.is_enabled && !self.is_broken && self.kick.is_some()
    }

    /// Whether its driver has damaged it.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Where its chains lie.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The next chain that the driver has made available, if there is one.
    pub fn take(&mut self) -> Option<Chain> {
        if !self.is_running() {
            return None;
        }
        match self.queue.iter(Arc::clone(&self.memory)) {
            Ok(mut heads) => heads.next(),
            Err(_) => {
                self.damaged();
                None
            }
        }
    }

    /// The chain that was taken last has not been: it is the next one again.
    pub fn untake(&mut self) {
        self.queue.go_to_previous_position();
    }

    /// The driver has a chain back, into which so many bytes were written.
    pub fn put(&mut self, chain: u16, written: u32) {
        self.put_all(&[(chain, written)]);
    }

    /// The driver has chains back, each with how much was written into it. It sees all of them at once.
    pub fn put_all(&mut self, chains: &[(u16, u32)]) {
        const ENTRIES: u64 = 4;
        const ENTRY: u64 = 8;
        let (ring, size, mut next) = (self.queue.used_ring(), self.queue.size(), self.queue.next_used());
        let mut is_done = true;
        for &(chain, written) in chains {
            let at = ring.saturating_add(ENTRIES + u64::from(next % size) * ENTRY);
            let entry = (u64::from(written) << 32 | u64::from(chain)).to_le();
            is_done &= chain < size && self.memory.write_obj(entry, GuestAddress(at)).is_ok();
            next = next.wrapping_add(1);
        }
        let index = GuestAddress(ring.saturating_add(2));
        if is_done && self.memory.store(next.to_le(), index, Ordering::Release).is_ok() {
            self.queue.set_next_used(next);
        } else {
            self.damaged();
        }
    }

    /// Tells the driver that it has chains back, if it wants to know. To be called after some, when no more follow at once.
    pub fn notify(&mut self) {
        let next = self.queue.next_used();
        let told = mem::replace(&mut self.told, next);
        if told == next {
            return;
        }
        // What the driver wants must not be older than what it has back.
        fence(Ordering::SeqCst);
        let after_entries = 4 + 2 * u64::from(self.queue.size());
        let at = if self.queue.event_idx_enabled() { after_entries } else { 0 };
        let at = GuestAddress(self.queue.avail_ring().saturating_add(at));
        match self.memory.load::<u16>(at, Ordering::Relaxed).map(u16::from_le) {
            Ok(event) if self.queue.event_idx_enabled() => {
                if next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(told) {
                    self.call();
                }
            }
            Ok(flags) if u32::from(flags) & VRING_AVAIL_F_NO_INTERRUPT != 0 => {}
            Ok(_) => self.call(),
            Err(_) => self.damaged(),
        }
    }

    /// Does not want to be told of chains, until it is rearmed.
    pub fn disarm(&mut self) {
        if self.is_running() && self.queue.disable_notification(&*self.memory).is_err() {
            self.damaged();
        }
    }

    /// Wants to be told of the next chain. To be called when there are none; if there are some by now, that is said, and nobody else may say it.
    pub fn rearm(&mut self) -> bool {
        if !self.is_running() {
            return false;
        }
        self.queue.enable_notification(&*self.memory).unwrap_or_else(|_| {
            self.damaged();
            false
        })
    }

    pub(super) fn call(&mut self) {
        if let Some(call) = &mut self.call {
            // It is full only if the engine has not looked at it for very long.
            let _ = call.write(&1_u64.to_ne_bytes());
        }
    }

    /// Its driver has damaged it: it stands still until it is set up anew.
    pub fn damaged(&mut self) {
        self.is_broken = true;
        if let Some(error) = &mut self.error {
            let _ = error.write(&1_u64.to_ne_bytes());
        }
    }

    /// It starts, where the driver and the engine say that it stands.
    pub(super) fn start(&mut self, kick: Kick) -> Result<(), virtio_queue::Error> {
        self.queue.set_ready(true);
        if !self.queue.is_valid(&*self.memory) {
            self.queue.set_ready(false);
            return Err(virtio_queue::Error::QueueNotReady);
        }
        let used = self.queue.used_idx(&*self.memory, Ordering::Acquire)?;
        self.queue.set_next_used(used.0);
        self.told = used.0;
        self.is_broken = false;
        self.kick = Some(kick);
        Ok(())
    }

    /// It stops, and says where.
    pub(super) fn stop(&mut self) -> u16 {
        self.queue.set_ready(false);
        (self.kick, self.call) = (None, None);
        self.queue.next_avail()
    }

    /// The guest's memory is another now.
    pub(super) fn set_memory(&mut self, memory: &Arc<Memory>) {
        self.memory = Arc::clone(memory);
        if self.queue.ready() && !self.queue.is_valid(&**memory) {
            self.damaged();
        }
    }
}

/// A descriptor by which a driver says that there is something in a ring. It is never read: each write to it is an event of its own.
pub(super) struct Kick {
    file: File,
    epoll: Arc<OwnedFd>,
}

impl Kick {
    pub(super) fn new(file: File, epoll: &Arc<OwnedFd>, data: EventData) -> rustix::io::Result<Self> {
        epoll::add(epoll, &file, data, EventFlags::IN | EventFlags::ET)?;
        Ok(Self { file, epoll: Arc::clone(epoll) })
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        // The engine has it open too, so that it would be watched for ever.
        let _ = epoll::delete(&self.epoll, &self.file);
    }
}

/// A descriptor that is written without ever waiting.
pub(super) fn never_waits(file: File) -> rustix::io::Result<File> {
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
    Ok(file)
}
