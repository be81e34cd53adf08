//! Files of the host's, for a program: what is below `/host` it gets over the line, when it opens it, and reads then as any file. Nothing is written there.
//!
//! As with NFS, each question says all: which file, and from where. There is no state at the host that could be lost.

#![expect(unsafe_code, reason = "names and modes are C's")]

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use comb_guest::wire::FromGuest;
use rustix::event::{EventfdFlags, eventfd};

const PLACE: &[u8] = b"/host/";

/// One question, and its answer.
#[derive(Default)]
struct Desk {
    number: u32,
    question: Option<(Vec<u8>, u64)>,
    answer: Option<Result<Vec<u8>, i32>>,
}

static DESK: Mutex<Desk> = Mutex::new(Desk { number: 0, question: None, answer: None });
static ANSWERED: Condvar = Condvar::new();
/// One file at a time.
static TURN: Mutex<()> = Mutex::new(());
static WANTS: OnceLock<Option<OwnedFd>> = OnceLock::new();

fn desk() -> MutexGuard<'static, Desk> {
    DESK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bell() -> Option<&'static OwnedFd> {
    WANTS.get_or_init(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()).as_ref()
}

/// Can be read from when there is a question.
pub(crate) fn wants() -> Option<BorrowedFd<'static>> {
    bell().map(AsFd::as_fd)
}

/// For the host.
pub(crate) fn question() -> Option<FromGuest> {
    let _ = rustix::io::read(bell()?, &mut [0; 8]);
    let mut desk = desk();
    let (path, at) = desk.question.take()?;
    Some(FromGuest::File { number: desk.number, path, at })
}

/// From the host.
pub(crate) fn answer(number: u32, found: Result<Vec<u8>, i32>) {
    let mut desk = desk();
    if number == desk.number {
        desk.answer = Some(found);
        ANSWERED.notify_all();
    }
}

fn ask(path: &[u8], at: u64) -> io::Result<Vec<u8>> {
    let mut desk = desk();
    desk.number = desk.number.wrapping_add(1);
    desk.question = Some((path.to_vec(), at));
    if let Some(bell) = bell() {
        rustix::io::write(bell, &1_u64.to_ne_bytes())?;
    }
    loop {
        if let Some(answer) = desk.answer.take() {
            return answer.map_err(io::Error::from_raw_os_error);
        }
        desk = ANSWERED.wait(desk).unwrap_or_else(PoisonError::into_inner);
    }
}

/// All of a file, in memory.
fn fetch(path: &[u8]) -> io::Result<File> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = File::from(rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::empty())?);
    let mut at = 0;
    loop {
        let some = ask(path, at)?;
        if some.is_empty() {
            file.rewind()?;
            return Ok(file);
        }
        file.write_all(&some)?;
        at += some.len() as u64;
    }
}

/// Which of the host's a name means, if it means one.
///
/// # Safety
///
/// It is a text that ends.
unsafe fn of_host<'a>(path: *const c_char) -> Option<&'a [u8]> {
    if std::process::id() != 1 || path.is_null() {
        return None;
    }
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(path) }.to_bytes().strip_prefix(PLACE)
}

fn fails(error: &io::Error) {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
}

/// Opens a file if it is the host's.
///
/// # Safety
///
/// The path is a text that ends.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: by the caller.
    let path = unsafe { of_host(path)? };
    let is_to_read = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & libc::O_TRUNC == 0;
    let opened = if is_to_read { fetch(path) } else { Err(io::Error::from_raw_os_error(libc::EROFS)) };
    Some(opened.map_or_else(
        |error| {
            fails(&error);
            -1
        },
        IntoRawFd::into_raw_fd,
    ))
}

/// The same, as a stream.
///
/// # Safety
///
/// Path and mode are texts that end.
pub(crate) unsafe fn stream(path: *const c_char, mode: *const c_char) -> Option<*mut libc::FILE> {
    // SAFETY: by the caller.
    let (path, letters) = unsafe { (of_host(path)?, CStr::from_ptr(mode).to_bytes()) };
    let is_to_read = letters.starts_with(b"r") && !letters.contains(&b'+');
    let opened = if is_to_read { fetch(path) } else { Err(io::Error::from_raw_os_error(libc::EROFS)) };
    match opened {
        // SAFETY: a descriptor that is nobody else's, and the caller's mode.
        Ok(file) => Some(unsafe { libc::fdopen(file.into_raw_fd(), mode) }),
        Err(error) => {
            fails(&error);
            Some(std::ptr::null_mut())
        }
    }
}
