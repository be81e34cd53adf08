//! System calls of the host that no crate has, or not in this form.
#![expect(unsafe_code, reason = "memory is mapped and named by address")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::io::Errno;

/// What can be done with mapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rights {
    /// Stores.
    pub write: bool,
    /// Instructions.
    pub execute: bool,
}

impl Rights {
    /// Loads only.
    pub const READ: Self = Self { write: false, execute: false };
    /// Loads and stores.
    pub const WRITE: Self = Self { write: true, execute: false };

    /// As the host names them.
    pub(crate) fn bits(self) -> u64 {
        let of =
            |is_allowed: bool, bit: libc::c_int| if is_allowed { u64::from(bit.cast_unsigned()) } else { 0 };
        of(true, libc::PROT_READ) | of(self.write, libc::PROT_WRITE) | of(self.execute, libc::PROT_EXEC)
    }
}

fn check(result: libc::c_long) -> Result<usize, Errno> {
    if result < 0 {
        return Err(Errno::from_raw_os_error(
            std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        ));
    }
    Ok(usize::try_from(result).expect("it is not negative"))
}

/// Memory without a name, of this length.
pub(crate) fn memory(name: &std::ffi::CStr, bytes: u64) -> Result<OwnedFd, Errno> {
    const MFD_EXEC: libc::c_uint = 0x10;
    let create = |flags: libc::c_uint| {
        // SAFETY: the name lives during the call.
        check(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) })
    };
    // Programs are run out of it. Kernels before 6.3 do not know that one must say so.
    let file = create(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | MFD_EXEC)
        .or_else(|_| create(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING))?;
    // SAFETY: just made, and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(RawFd::try_from(file).expect("descriptors are small")) };
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

/// Memory of a file that this process sees, shared with others: nothing in it is ever a Rust object that others could break.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range; whoever uses what is there does so by atomics or by copies.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps all of a file of this length.
    pub(crate) fn map(file: BorrowedFd<'_>, bytes: usize) -> Result<Self, Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        // SAFETY: new addresses.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        }?;
        Ok(Self { start: NonNull::new(start.cast()).expect("a mapping has an address"), bytes })
    }

    /// Addresses for later.
    pub(crate) fn reserve(bytes: usize) -> Result<Self, Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        // SAFETY: new addresses.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Self { start: NonNull::new(start.cast()).expect("a mapping has an address"), bytes })
    }

    /// Puts a file's memory at a place within.
    pub(crate) fn put(&self, at: usize, bytes: usize, file: BorrowedFd<'_>) -> Result<(), Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        assert!(at + bytes <= self.bytes, "within what is reserved");
        // SAFETY: addresses that are this one's; what was there is no Rust object.
        unsafe {
            let to = self.start.as_ptr().add(at).cast();
            mmap(to, bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED, file, 0)
        }?;
        Ok(())
    }

    /// Takes away what is at a place within.
    pub(crate) fn remove(&self, at: usize, bytes: usize) -> Result<(), Errno> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        assert!(at + bytes <= self.bytes, "within what is reserved");
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as above.
        unsafe { mmap_anonymous(self.start.as_ptr().add(at).cast(), bytes, ProtFlags::empty(), flags) }?;
        Ok(())
    }

    /// The address of something within.
    pub(crate) fn at<T>(&self, offset: usize) -> NonNull<T> {
        assert!(
            offset + size_of::<T>() <= self.bytes && offset.is_multiple_of(align_of::<T>()),
            "within, and aligned"
        );
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.start.add(offset).cast() }
    }

    /// A word that others change.
    pub fn word(&self, offset: usize) -> &std::sync::atomic::AtomicU32 {
        // SAFETY: within a mapping that lives as long as this, and used as an atomic by all.
        unsafe { self.at::<std::sync::atomic::AtomicU32>(offset).as_ref() }
    }

    /// The same of a long word.
    pub fn long(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        // SAFETY: as above.
        unsafe { self.at::<std::sync::atomic::AtomicU64>(offset).as_ref() }
    }

    /// Copies what is there now, whoever changes it meanwhile.
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        assert!(offset.checked_add(to.len()).is_some_and(|end| end <= self.bytes), "within");
        // SAFETY: within the mapping; bytes, of which any value is one.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), to.as_mut_ptr(), to.len()) }
    }

    /// Writes there.
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= self.bytes), "within");
        // SAFETY: within the mapping, and nobody has a reference to it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr().add(offset), from.len()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped here, and all that was borrowed of it has ended.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Waits while a shared word has this value, and not longer than this: whether it was less.
pub fn wait(word: &std::sync::atomic::AtomicU32, value: u32, limit: Option<std::time::Duration>) -> bool {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a word that lives, and a time that does.
    let waited = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, limit) };
    waited == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes one who waits there.
pub fn wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: a word that lives.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// An ioctl with a structure that the kernel reads and writes. Returns what it returned.
///
/// # Safety
/// `argument` is of the type that the request is defined with, and the request does nothing to memory that Rust relies on.
pub(crate) unsafe fn ioctl<T>(file: impl AsFd, request: u32, argument: &mut T) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    check(unsafe {
        libc::syscall(
            libc::SYS_ioctl,
            file.as_fd().as_raw_fd(),
            u64::from(request),
            std::ptr::from_mut(argument),
        )
    })
}
