//! The memory that one stopped system call works with: a stack, the signal frame's copy, and private memory for buffers. A fault
//! that has no room on its own stack is served on such a stack, too.
//!
//! None of it belongs to a thread, for a thread's own storage may not exist yet (a thread being made) or be somebody else's (a child
//! by `vfork`). A call takes one from the pool and gives it back. Who leaves a system call by `longjmp` out of a signal handler keeps it
//! for ever; that is memory lost, and nothing else.
#![expect(unsafe_code, reason = "mappings, and memory without an owner")]

use std::sync::atomic::{AtomicPtr, Ordering};

use super::stub::raw;

/// Ours, and that of signal handlers that interrupt a blocking call. Touched memory alone costs.
const STACK_BYTES: usize = 256 * 1024;
/// The largest that processors of today save, with AMX's tiles, is 12 KB.
const FRAME_BYTES: usize = 28 * 1024;
/// Buffers up to this are reused, larger ones are mapped for one call.
pub(super) const BUFFER_BYTES: usize = 1024 * 1024;
const PAGE_BYTES: usize = 4096;
/// For signals that come while a call is dealt with that a handler on the thread's own signal stack made.
const SIGNAL_STACK_BYTES: usize = 128 * 1024;
const BYTES: usize =
    PAGE_BYTES + STACK_BYTES + PAGE_BYTES + FRAME_BYTES + BUFFER_BYTES + PAGE_BYTES + SIGNAL_STACK_BYTES;

/// More calls at once than this map anew.
const POOLED: usize = 32;
/// As many as the page that holds them has room for, about.
const EXTRA: usize = 160;
const _: () = assert!(size_of::<Scratch>() <= PAGE_BYTES);

static POOL: [AtomicPtr<Scratch>; POOLED] = [const { AtomicPtr::new(std::ptr::null_mut()) }; POOLED];

#[repr(C)]
pub(crate) struct Scratch {
    /// Where the stack begins. First, for the signal's entry reads it.
    stack_top: usize,
    mapping: usize,
    frame_bytes: usize,
    /// How much of the buffers is taken.
    used: usize,
    /// The thread's own signal stack, if the call was made by a handler on it. See `signal`.
    pub(super) interrupted_stack: Option<[usize; 3]>,
    /// Mappings for this call alone: where, and how long. The first `extras` are there.
    extra: [(usize, usize); EXTRA],
    extras: usize,
}

impl Scratch {
    /// One of the pool or a new one; none if memory is out.
    pub(crate) fn take() -> Option<&'static mut Self> {
        for slot in &POOL {
            if slot.load(Ordering::Relaxed).is_null() {
                continue;
            }
            let taken = slot.swap(std::ptr::null_mut(), Ordering::Acquire);
            if !taken.is_null() {
                // SAFETY: what is in a slot is a live `Scratch` that nobody else has; `swap` gave it to us alone.
                return Some(unsafe { &mut *taken });
            }
        }
        let mapping = map(BYTES)?;
        // Below each of the stacks a guard.
        for guard in [mapping, mapping + BYTES - SIGNAL_STACK_BYTES - PAGE_BYTES] {
            // SAFETY: a page of the new mapping.
            unsafe { raw(libc::SYS_mprotect, [guard, PAGE_BYTES, libc::PROT_NONE as usize, 0, 0, 0]) };
        }
        let stack_top = mapping + PAGE_BYTES + STACK_BYTES;
        let scratch = stack_top as *mut Self;
        // Field by field: as a whole it would stand on the signal's stack first, which is short.
        // SAFETY: a page of its own above the stack, aligned, and ours; new memory is zero, and so are `extra`'s pairs.
        unsafe {
            (&raw mut (*scratch).stack_top).write(stack_top);
            (&raw mut (*scratch).mapping).write(mapping);
            (&raw mut (*scratch).frame_bytes).write(0);
            (&raw mut (*scratch).used).write(0);
            (&raw mut (*scratch).interrupted_stack).write(None);
            (&raw mut (*scratch).extras).write(0);
            Some(&mut *scratch)
        }
    }

    /// Back to the pool. Nothing that was reserved may be used any more.
    pub(crate) fn give_back(&'static mut self) {
        self.release();
        let this: *mut Self = self;
        for slot in &POOL {
            if slot.compare_exchange(std::ptr::null_mut(), this, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
        // SAFETY: nobody has it; we run on the signal's stack, not on the one in here.
        unsafe { raw(libc::SYS_munmap, [(*this).mapping, BYTES, 0, 0, 0, 0]) };
    }

    /// Everything reserved is free again.
    pub(super) fn release(&mut self) {
        self.used = 0;
        for &(address, bytes) in self.extra.iter().take(self.extras) {
            // SAFETY: mapped by `reserve` for this call, which is over.
            unsafe { raw(libc::SYS_munmap, [address, bytes, 0, 0, 0, 0]) };
        }
        self.extras = 0;
    }

    /// Private memory that begins at the same place within a page as `like`, for direct transfers ask for alignment. Its content is
    /// whatever it is. `alone`: in pages that are never written again, for the kernel may send from them later.
    pub(super) fn reserve(&mut self, bytes: usize, like: usize, alone: bool) -> Option<&'static mut [u8]> {
        let within = like % PAGE_BYTES;
        // Small ones need no more than what a processor likes.
        let within = if bytes < 512 { within % 64 } else { within };
        let grain = if bytes < 512 { 64 } else { PAGE_BYTES };
        let start = self.used.next_multiple_of(grain) + within;
        let end = start.checked_add(bytes)?;
        let address = if end <= BUFFER_BYTES && !alone {
            self.used = end;
            self.frame() + FRAME_BYTES + start
        } else {
            let free = self.extra.get_mut(self.extras)?;
            let whole = bytes.checked_add(within)?.checked_next_multiple_of(PAGE_BYTES)?.max(PAGE_BYTES);
            *free = (map(whole)?, whole);
            self.extras += 1;
            free.0 + within
        };
        // SAFETY: mapped, given out once until `release`, and plain bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) })
    }

    /// Private words, all zero.
    pub(super) fn reserve_words(&mut self, count: usize) -> Option<&'static mut [usize]> {
        let bytes = self.reserve(count.checked_mul(8)?, 0, false)?;
        bytes.fill(0);
        // SAFETY: as many bytes as `count` words have, aligned for `like` was 0, all of them set, and nobody else's.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), count) })
    }

    /// Where the copy of the signal frame stands.
    pub(super) fn frame(&self) -> usize {
        self.stack_top + PAGE_BYTES
    }

    /// Keeps the frame at `from`; false if it is too long.
    ///
    /// # Safety
    /// `from` is a signal frame of so many bytes.
    pub(super) unsafe fn keep_frame(&mut self, from: usize, bytes: usize) -> bool {
        if bytes > FRAME_BYTES {
            return false;
        }
        self.frame_bytes = bytes;
        // SAFETY: by the caller, and there is room.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, self.frame() as *mut u8, bytes) };
        true
    }

    /// Where the stack begins, which grows downwards.
    pub(crate) fn stack_top(&self) -> usize {
        self.stack_top
    }

    /// A signal stack, as the kernel takes it: address, flags, bytes.
    pub(crate) fn signal_stack(&self) -> [usize; 3] {
        [self.frame() + FRAME_BYTES + BUFFER_BYTES + PAGE_BYTES, 0, SIGNAL_STACK_BYTES]
    }

    /// Puts the frame back.
    ///
    /// # Safety
    /// `to` is where it was taken from, above the stack pointer of this thread.
    pub(super) unsafe fn restore_frame(&self, to: usize) {
        // SAFETY: by the caller.
        unsafe { std::ptr::copy_nonoverlapping(self.frame() as *const u8, to as *mut u8, self.frame_bytes) };
    }
}

fn map(bytes: usize) -> Option<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new mapping, wherever the kernel likes.
    let mapped = unsafe { raw(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) };
    usize::try_from(mapped).ok()
}

/// Bytes of private memory as the kernel left them.
pub(super) fn read_back(at: usize, bytes: usize) -> &'static [u8] {
    // SAFETY: callers name memory that they reserved, that is still theirs, and that no `&mut` is used of any more.
    unsafe { std::slice::from_raw_parts(at as *const u8, bytes) }
}
