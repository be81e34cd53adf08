#![expect(unsafe_code, reason = "calls of the host by libc")]
//! The calls of the host that the emulator makes for itself, each with its error as a number.
//!
//! Nothing here decides what a program may do; that is done before.

use crate::errno::{EINVAL, Errno, last};
use std::ffi::CString;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

fn checked(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

fn counted(result: isize) -> Result<u64, Errno> {
    u64::try_from(result).map_err(|_| last())
}

fn owned(descriptor: libc::c_int) -> Result<OwnedFd, Errno> {
    let descriptor = checked(descriptor)?;
    // SAFETY: the host has just given this descriptor to us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn terminated(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_| EINVAL)
}

/// Where the host shows what one of our own descriptors is open on.
pub(crate) fn descriptor_path(descriptor: RawFd) -> CString {
    CString::new(format!("/proc/self/fd/{descriptor}")).expect("no zero in a number")
}

/// Types of the host's that a program gets as bytes.
///
/// # Safety
/// Every byte of a value that began as zeroes is initialized.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: structures of integers that the host fills in; what it leaves out was zeroed by us.
unsafe impl Plain for libc::stat {}
// SAFETY: as above.
unsafe impl Plain for libc::statx {}
// SAFETY: as above.
unsafe impl Plain for libc::statfs {}
// SAFETY: as above.
unsafe impl Plain for libc::rusage {}
// SAFETY: as above.
unsafe impl Plain for libc::sysinfo {}
// SAFETY: as above.
unsafe impl Plain for libc::utsname {}

/// A value with all bytes zero.
pub(crate) fn zeroes<T: Plain>() -> T {
    // SAFETY: all of them are made of integers, for which zero is a value.
    unsafe { zeroed() }
}

/// The bytes of a value that began as zeroes.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> Vec<u8> {
    // SAFETY: the bytes are initialized, as `Plain` promises, and live as long as `value`.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }.to_vec()
}

pub(crate) fn stat(descriptor: RawFd) -> Result<libc::stat, Errno> {
    let mut value = zeroes();
    // SAFETY: `value` is as large as the host writes; the empty path makes it look at the descriptor.
    checked(unsafe { libc::fstatat(descriptor, c"".as_ptr(), &raw mut value, libc::AT_EMPTY_PATH) })?;
    Ok(value)
}

pub(crate) fn statx(descriptor: RawFd, mask: u32) -> Result<libc::statx, Errno> {
    let mut value = zeroes();
    // SAFETY: as for `stat`.
    checked(unsafe { libc::statx(descriptor, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut value) })?;
    Ok(value)
}

pub(crate) fn statfs(descriptor: RawFd) -> Result<libc::statfs, Errno> {
    let mut value = zeroes();
    // SAFETY: `value` is as large as the host writes.
    checked(unsafe { libc::fstatfs(descriptor, &raw mut value) })?;
    Ok(value)
}

pub(crate) fn duplicate(descriptor: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: no memory is involved.
    owned(unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) })
}

/// Opens below a directory that is the root for all links and `..` on the way.
pub(crate) fn open_in_root(root: RawFd, path: &[u8], flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    let path = terminated(path)?;
    // SAFETY: a structure of integers.
    let mut how: libc::open_how = unsafe { zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.mode = u64::from(mode);
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path ends with zero, and the structure has the size that is given.
    let result = unsafe {
        libc::syscall(libc::SYS_openat2, root, path.as_ptr(), &raw const how, size_of::<libc::open_how>())
    };
    owned(i32::try_from(result).unwrap_or(-1))
}

/// Opens again, with other flags, what a descriptor is open on.
pub(crate) fn reopen(descriptor: RawFd, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the path ends with zero.
    owned(unsafe { libc::open(descriptor_path(descriptor).as_ptr(), flags | libc::O_CLOEXEC) })
}

/// Opens a directory of the host by its name there.
pub(crate) fn open_directory(path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = terminated(path)?;
    // SAFETY: the path ends with zero.
    owned(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) })
}

/// A directory of our own in the host's memory file system, or in its temporary directory.
pub(crate) fn make_temporary_directory() -> Result<(OwnedFd, Vec<u8>), Errno> {
    let mut tried = Err(EINVAL);
    for base in ["/dev/shm", "/tmp"] {
        let template = terminated(format!("{base}/comb-unix-XXXXXX").as_bytes())?;
        let raw = template.into_raw();
        // SAFETY: `raw` is a string of our own that `mkdtemp` changes in place without making it longer.
        let (made, path) = unsafe { (!libc::mkdtemp(raw).is_null(), CString::from_raw(raw)) };
        if made {
            tried = open_directory(path.as_bytes()).map(|opened| (opened, path.into_bytes()));
            break;
        }
        tried = Err(last());
    }
    tried
}

fn link_text(directory: RawFd, path: &std::ffi::CStr) -> Result<Vec<u8>, Errno> {
    let mut text = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the host writes at most the length that is given.
    let bytes =
        counted(unsafe { libc::readlinkat(directory, path.as_ptr(), text.as_mut_ptr().cast(), text.len()) })?;
    text.truncate(bytes as usize);
    Ok(text)
}

/// What a symbolic link says that a descriptor was opened on.
pub(crate) fn read_link(descriptor: RawFd) -> Result<Vec<u8>, Errno> {
    link_text(descriptor, c"")
}

/// The host's name for what a descriptor is open on.
pub(crate) fn path_of(descriptor: RawFd) -> Result<Vec<u8>, Errno> {
    link_text(libc::AT_FDCWD, &descriptor_path(descriptor))
}

pub(crate) fn make_directory(parent: RawFd, name: &[u8], mode: u32) -> Result<(), Errno> {
    let name = terminated(name)?;
    // SAFETY: the name ends with zero.
    checked(unsafe { libc::mkdirat(parent, name.as_ptr(), mode) })?;
    // The emulator's own mask is not the program's.
    // SAFETY: as above.
    checked(unsafe { libc::fchmodat(parent, name.as_ptr(), mode, 0) })?;
    Ok(())
}

/// Makes a regular file, a FIFO or a socket.
pub(crate) fn make_node(parent: RawFd, name: &[u8], mode: u32) -> Result<(), Errno> {
    let name = terminated(name)?;
    // SAFETY: the name ends with zero.
    checked(unsafe { libc::mknodat(parent, name.as_ptr(), mode, 0) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fchmodat(parent, name.as_ptr(), mode & 0o7777, 0) })?;
    Ok(())
}

pub(crate) fn unlink(parent: RawFd, name: &[u8], directory: bool) -> Result<(), Errno> {
    let name = terminated(name)?;
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: the name ends with zero.
    checked(unsafe { libc::unlinkat(parent, name.as_ptr(), flags) }).map(drop)
}

pub(crate) fn rename(from: RawFd, old: &[u8], to: RawFd, new: &[u8], flags: u32) -> Result<(), Errno> {
    let (old, new) = (terminated(old)?, terminated(new)?);
    // SAFETY: both names end with zero.
    checked(unsafe { libc::renameat2(from, old.as_ptr(), to, new.as_ptr(), flags) }).map(drop)
}

pub(crate) fn symlink(target: &[u8], parent: RawFd, name: &[u8]) -> Result<(), Errno> {
    let (target, name) = (terminated(target)?, terminated(name)?);
    // SAFETY: both names end with zero.
    checked(unsafe { libc::symlinkat(target.as_ptr(), parent, name.as_ptr()) }).map(drop)
}

/// Gives one more name to what a descriptor is open on.
pub(crate) fn link(descriptor: RawFd, parent: RawFd, name: &[u8]) -> Result<(), Errno> {
    let name = terminated(name)?;
    let from = descriptor_path(descriptor);
    // SAFETY: both names end with zero.
    checked(unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), parent, name.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    })
    .map(drop)
}

/// Gives one more name to a file, or to a symbolic link as such, that has a name already.
pub(crate) fn link_by_name(from: RawFd, old: &[u8], to: RawFd, new: &[u8]) -> Result<(), Errno> {
    let (old, new) = (terminated(old)?, terminated(new)?);
    // SAFETY: both names end with zero.
    checked(unsafe { libc::linkat(from, old.as_ptr(), to, new.as_ptr(), 0) }).map(drop)
}

pub(crate) fn change_mode(descriptor: RawFd, mode: u32) -> Result<(), Errno> {
    // SAFETY: the path ends with zero.
    checked(unsafe { libc::chmod(descriptor_path(descriptor).as_ptr(), mode & 0o7777) }).map(drop)
}

pub(crate) fn change_owner(descriptor: RawFd, user: u32, group: u32) -> Result<(), Errno> {
    // SAFETY: the empty path makes the host look at the descriptor.
    checked(unsafe { libc::fchownat(descriptor, c"".as_ptr(), user, group, libc::AT_EMPTY_PATH) }).map(drop)
}

pub(crate) fn may_access(descriptor: RawFd, mode: i32) -> Result<(), Errno> {
    // SAFETY: the path ends with zero.
    checked(unsafe { libc::faccessat(libc::AT_FDCWD, descriptor_path(descriptor).as_ptr(), mode, 0) })
        .map(drop)
}

/// Sets the times of access and change; `None` for now.
pub(crate) fn set_times(descriptor: RawFd, times: Option<[(i64, i64); 2]>) -> Result<(), Errno> {
    let times = times.map(|times| times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec }));
    let pointer = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
    // SAFETY: the pointer is null or to two times, and the empty path makes the host look at the descriptor.
    let result = unsafe { libc::utimensat(descriptor, c"".as_ptr(), pointer, libc::AT_EMPTY_PATH) };
    checked(result).map(drop)
}

/// Cuts or extends the file behind a descriptor that may be open on its path only.
pub(crate) fn truncate(descriptor: RawFd, size: i64) -> Result<(), Errno> {
    // SAFETY: the path ends with zero.
    checked(unsafe { libc::truncate(descriptor_path(descriptor).as_ptr(), size) }).map(drop)
}

pub(crate) fn truncate_open(descriptor: RawFd, size: i64) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    checked(unsafe { libc::ftruncate(descriptor, size) }).map(drop)
}

pub(crate) fn allocate(descriptor: RawFd, mode: i32, offset: i64, bytes: i64) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    checked(unsafe { libc::fallocate(descriptor, mode, offset, bytes) }).map(drop)
}

pub(crate) fn synchronize(descriptor: RawFd, data_only: bool) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    checked(unsafe { if data_only { libc::fdatasync(descriptor) } else { libc::fsync(descriptor) } })
        .map(drop)
}

pub(crate) fn seek(descriptor: RawFd, offset: i64, whence: i32) -> Result<u64, Errno> {
    // SAFETY: no memory is involved.
    let at = unsafe { libc::lseek(descriptor, offset, whence) };
    u64::try_from(at).map_err(|_| last())
}

/// Reads at an offset into pieces of frames, which the caller has just gathered.
pub(crate) fn read_at(descriptor: RawFd, pieces: &[libc::iovec], offset: u64) -> Result<u64, Errno> {
    let offset = i64::try_from(offset).map_err(|_| EINVAL)?;
    // SAFETY: the pieces lie in granted frames, where every byte pattern is fine.
    counted(unsafe { libc::preadv(descriptor, pieces.as_ptr(), pieces.len() as i32, offset) })
}

/// Writes at an offset from pieces of frames.
pub(crate) fn write_at(descriptor: RawFd, pieces: &[libc::iovec], offset: u64) -> Result<u64, Errno> {
    let offset = i64::try_from(offset).map_err(|_| EINVAL)?;
    // SAFETY: the pieces lie in granted frames.
    counted(unsafe { libc::pwritev(descriptor, pieces.as_ptr(), pieces.len() as i32, offset) })
}

/// Reads into pieces of frames.
pub(crate) fn read(descriptor: RawFd, pieces: &[libc::iovec]) -> Result<u64, Errno> {
    // SAFETY: as for `read_at`.
    counted(unsafe { libc::readv(descriptor, pieces.as_ptr(), pieces.len() as i32) })
}

/// Writes from pieces of frames.
pub(crate) fn write(descriptor: RawFd, pieces: &[libc::iovec]) -> Result<u64, Errno> {
    // SAFETY: as for `write_at`.
    counted(unsafe { libc::writev(descriptor, pieces.as_ptr(), pieces.len() as i32) })
}

/// Reads into memory of our own.
pub(crate) fn read_own(descriptor: RawFd, into: &mut [u8], offset: u64) -> Result<u64, Errno> {
    let offset = i64::try_from(offset).map_err(|_| EINVAL)?;
    // SAFETY: the host writes at most the length that is given.
    counted(unsafe { libc::pread(descriptor, into.as_mut_ptr().cast(), into.len(), offset) })
}

/// Reads what is there from a stream into memory of our own.
pub(crate) fn read_stream(descriptor: RawFd, into: &mut [u8]) -> Result<u64, Errno> {
    // SAFETY: the host writes at most the length that is given.
    counted(unsafe { libc::read(descriptor, into.as_mut_ptr().cast(), into.len()) })
}

/// Writes from memory of our own.
pub(crate) fn write_own(descriptor: RawFd, from: &[u8]) -> Result<u64, Errno> {
    // SAFETY: the host reads at most the length that is given.
    counted(unsafe { libc::write(descriptor, from.as_ptr().cast(), from.len()) })
}

/// Directory entries as `getdents64` gives them.
pub(crate) fn directory_entries(descriptor: RawFd, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut entries = vec![0u8; bytes];
    // SAFETY: the host writes at most the length that is given.
    let result =
        unsafe { libc::syscall(libc::SYS_getdents64, descriptor, entries.as_mut_ptr(), entries.len()) };
    entries.truncate(counted(result as isize)? as usize);
    Ok(entries)
}

/// What is ready now, of the given descriptors.
pub(crate) fn poll_now(descriptors: &mut [libc::pollfd]) -> Result<(), Errno> {
    // SAFETY: the host writes to as many entries as there are.
    checked(unsafe { libc::poll(descriptors.as_mut_ptr(), descriptors.len() as u64, 0) }).map(drop)
}

/// What of `events` one descriptor is ready for now.
pub(crate) fn ready(descriptor: RawFd, events: i16) -> i16 {
    let mut polled = [libc::pollfd { fd: descriptor, events, revents: 0 }];
    match poll_now(&mut polled) {
        Ok(()) => polled[0].revents,
        Err(_) => libc::POLLERR,
    }
}

/// Asks a device for a small value; only for the requests that `terminals` names.
pub(crate) fn device_value(descriptor: RawFd, request: u64, value: &mut [u8; 64]) -> Result<(), Errno> {
    // SAFETY: none of the requests that are named writes or reads more than 64 bytes.
    checked(unsafe { libc::ioctl(descriptor, request, value.as_mut_ptr()) }).map(drop)
}

pub(crate) fn is_terminal(descriptor: RawFd) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::isatty(descriptor) == 1 }
}

pub(crate) fn random(into: &mut [u8]) {
    let mut done = 0;
    while done < into.len() {
        // SAFETY: the host writes at most the length that is given.
        let result = unsafe { libc::getrandom(into[done..].as_mut_ptr().cast(), into.len() - done, 0) };
        match counted(result) {
            Ok(bytes) => done += bytes as usize,
            Err(error) => assert_eq!(error, crate::errno::EINTR, "random numbers are always to be had"),
        }
    }
}

/// What a clock of the host shows.
pub(crate) fn clock(clock: i32) -> Result<Duration, Errno> {
    let mut value = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `value` is as large as the host writes.
    checked(unsafe { libc::clock_gettime(clock, &raw mut value) })?;
    Ok(Duration::new(value.tv_sec.max(0) as u64, value.tv_nsec as u32))
}

/// How finely a clock of the host goes.
pub(crate) fn clock_step(clock: i32) -> Result<Duration, Errno> {
    let mut value = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `value` is as large as the host writes.
    checked(unsafe { libc::clock_getres(clock, &raw mut value) })?;
    Ok(Duration::new(value.tv_sec.max(0) as u64, value.tv_nsec as u32))
}

pub(crate) fn system_information() -> libc::sysinfo {
    let mut value = zeroes();
    // SAFETY: `value` is as large as the host writes; it fails for no valid pointer.
    unsafe { libc::sysinfo(&raw mut value) };
    value
}

pub(crate) fn system_name() -> libc::utsname {
    let mut value = zeroes();
    // SAFETY: `value` is as large as the host writes; it fails for no valid pointer.
    unsafe { libc::uname(&raw mut value) };
    value
}

/// Real user, effective user, real group, effective group.
pub(crate) fn identity() -> [u32; 4] {
    // SAFETY: no memory is involved.
    unsafe { [libc::getuid(), libc::geteuid(), libc::getgid(), libc::getegid()] }
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: no memory is involved.
    owned(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) })
}

pub(crate) fn socket_pair(family: i32, kind: i32, protocol: i32) -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut pair = [0; 2];
    // SAFETY: the host writes two descriptors.
    checked(unsafe {
        libc::socketpair(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol, pair.as_mut_ptr())
    })?;
    Ok((owned(pair[0])?, owned(pair[1])?))
}

pub(crate) fn bind(descriptor: RawFd, address: &[u8]) -> Result<(), Errno> {
    // SAFETY: the host reads at most the length that is given.
    checked(unsafe { libc::bind(descriptor, address.as_ptr().cast(), address.len() as u32) }).map(drop)
}

pub(crate) fn connect(descriptor: RawFd, address: &[u8]) -> Result<(), Errno> {
    // SAFETY: the host reads at most the length that is given.
    checked(unsafe { libc::connect(descriptor, address.as_ptr().cast(), address.len() as u32) }).map(drop)
}

pub(crate) fn listen(descriptor: RawFd, waiting: i32) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    checked(unsafe { libc::listen(descriptor, waiting) }).map(drop)
}

pub(crate) fn shut_down(descriptor: RawFd, how: i32) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    checked(unsafe { libc::shutdown(descriptor, how) }).map(drop)
}

/// An address of a socket as the host writes it.
type Address = Vec<u8>;

fn with_address(
    call: impl FnOnce(*mut libc::sockaddr, *mut libc::socklen_t) -> i32,
) -> Result<(i32, Address), Errno> {
    let mut address = vec![0u8; size_of::<libc::sockaddr_storage>()];
    let mut bytes = address.len() as libc::socklen_t;
    let result = checked(call(address.as_mut_ptr().cast(), &raw mut bytes))?;
    address.truncate(bytes as usize);
    Ok((result, address))
}

pub(crate) fn accept(descriptor: RawFd) -> Result<(OwnedFd, Address), Errno> {
    let (accepted, address) = with_address(|address, bytes| {
        // SAFETY: the host writes at most `bytes` of the address.
        unsafe { libc::accept4(descriptor, address, bytes, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) }
    })?;
    Ok((owned(accepted)?, address))
}

pub(crate) fn own_address(descriptor: RawFd) -> Result<Address, Errno> {
    // SAFETY: the host writes at most `bytes` of the address.
    with_address(|address, bytes| unsafe { libc::getsockname(descriptor, address, bytes) })
        .map(|(_, address)| address)
}

pub(crate) fn peer_address(descriptor: RawFd) -> Result<Address, Errno> {
    // SAFETY: the host writes at most `bytes` of the address.
    with_address(|address, bytes| unsafe { libc::getpeername(descriptor, address, bytes) })
        .map(|(_, address)| address)
}

/// Sends from pieces of frames without waiting.
pub(crate) fn send(
    descriptor: RawFd,
    pieces: &mut [libc::iovec],
    to: &[u8],
    flags: i32,
) -> Result<u64, Errno> {
    let mut address = to.to_vec();
    // SAFETY: a structure of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    if !address.is_empty() {
        message.msg_name = address.as_mut_ptr().cast();
        message.msg_namelen = address.len() as u32;
    }
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    // SAFETY: address and pieces outlive the call.
    counted(unsafe {
        libc::sendmsg(descriptor, &raw const message, flags | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    })
}

/// Receives into pieces of frames without waiting: how many bytes, from whom, and the flags of the message.
pub(crate) fn receive(
    descriptor: RawFd,
    pieces: &mut [libc::iovec],
    flags: i32,
) -> Result<(u64, Address, i32), Errno> {
    let mut address = vec![0u8; size_of::<libc::sockaddr_storage>()];
    // SAFETY: a structure of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = address.as_mut_ptr().cast();
    message.msg_namelen = address.len() as u32;
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    // SAFETY: address and pieces outlive the call, and the pieces lie in granted frames.
    let bytes = counted(unsafe { libc::recvmsg(descriptor, &raw mut message, flags | libc::MSG_DONTWAIT) })?;
    address.truncate(message.msg_namelen as usize);
    Ok((bytes, address, message.msg_flags))
}

pub(crate) fn socket_option(
    descriptor: RawFd,
    level: i32,
    name: i32,
    bytes: usize,
) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0u8; bytes];
    let mut length = bytes as libc::socklen_t;
    // SAFETY: the host writes at most `length` bytes.
    checked(unsafe {
        libc::getsockopt(descriptor, level, name, value.as_mut_ptr().cast(), &raw mut length)
    })?;
    value.truncate(length as usize);
    Ok(value)
}

pub(crate) fn set_socket_option(descriptor: RawFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: the host reads at most the length that is given.
    let result =
        unsafe { libc::setsockopt(descriptor, level, name, value.as_ptr().cast(), value.len() as u32) };
    checked(result).map(drop)
}

/// Whether a standard descriptor of the emulator is open.
pub(crate) fn standard(descriptor: RawFd) -> Option<OwnedFd> {
    duplicate(descriptor).ok().filter(|copy| stat(copy.as_raw_fd()).is_ok())
}

/// What the host's kernel told the emulator when it began.
pub(crate) fn auxiliary(kind: u64) -> u64 {
    // SAFETY: no memory is involved.
    unsafe { libc::getauxval(kind) }
}

/// Says whether all writes go to the end of the file.
pub(crate) fn set_append(descriptor: RawFd, append: bool) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    let flags = checked(unsafe { libc::fcntl(descriptor, libc::F_GETFL) })?;
    let flags = if append { flags | libc::O_APPEND } else { flags & !libc::O_APPEND };
    // SAFETY: no memory is involved.
    checked(unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags) }).map(drop)
}

/// A file without a name.
pub(crate) fn memory_file() -> Result<OwnedFd, Errno> {
    // SAFETY: the name ends with zero.
    owned(unsafe { libc::memfd_create(c"comb-unix".as_ptr(), libc::MFD_CLOEXEC) })
}

/// As many descriptors as one message carries on Linux.
pub(crate) const MOST_PASSED: usize = 253;

/// Room for a control message with so many descriptors, aligned as the host wants it.
fn control_room(count: usize) -> Vec<u64> {
    // SAFETY: it only computes.
    let bytes = unsafe { libc::CMSG_SPACE((count * size_of::<RawFd>()) as u32) };
    vec![0; (bytes as usize).div_ceil(8)]
}

/// Sends from pieces of frames without waiting, with descriptors of our own.
pub(crate) fn send_with(
    descriptor: RawFd,
    pieces: &mut [libc::iovec],
    passed: &[OwnedFd],
    flags: i32,
) -> Result<u64, Errno> {
    let mut control = control_room(passed.len());
    // SAFETY: a structure of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len() * 8;
    // SAFETY: the room is aligned and large enough for one header with all descriptors, and all of it outlives the call.
    counted(unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of_val(passed) as u32) as usize;
        message.msg_controllen = (*header).cmsg_len;
        let data = libc::CMSG_DATA(header).cast::<RawFd>();
        for (index, passed) in passed.iter().enumerate() {
            data.add(index).write_unaligned(passed.as_raw_fd());
        }
        libc::sendmsg(descriptor, &raw const message, flags | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    })
}

/// What came with a message.
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) address: Vec<u8>,
    pub(crate) flags: i32,
    pub(crate) passed: Vec<OwnedFd>,
}

/// Receives into pieces of frames without waiting, with the descriptors that come along.
pub(crate) fn receive_with(
    descriptor: RawFd,
    pieces: &mut [libc::iovec],
    flags: i32,
) -> Result<Received, Errno> {
    let mut address = vec![0u8; size_of::<libc::sockaddr_storage>()];
    let mut control = control_room(MOST_PASSED);
    // SAFETY: a structure of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = address.as_mut_ptr().cast();
    message.msg_namelen = address.len() as u32;
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len() * 8;
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: address, room and pieces outlive the call, and the pieces lie in granted frames.
    let bytes = counted(unsafe { libc::recvmsg(descriptor, &raw mut message, flags) })?;
    let mut passed = Vec::new();
    // SAFETY: the host has filled in headers that lie within the room, and each descriptor in them is new and ours.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(current) = header.as_ref() {
            if current.cmsg_level == libc::SOL_SOCKET && current.cmsg_type == libc::SCM_RIGHTS {
                let count = (current.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                passed.extend((0..count).map(|index| OwnedFd::from_raw_fd(data.add(index).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    address.truncate(message.msg_namelen as usize);
    Ok(Received { bytes, address, flags: message.msg_flags, passed })
}
