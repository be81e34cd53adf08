//! What tests make calls on.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "each is a system call as a C program makes it, on memory of the test's own or deliberately on none"
)]
#![expect(clippy::cast_possible_truncation, reason = "system calls' own types, of one machine")]

use std::ffi::CString;

use super::guarded::*;

pub(crate) fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

pub(crate) fn sockets(kind: i32) -> [i32; 2] {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    ends
}

pub(crate) fn file() -> i32 {
    let file = unsafe { libc::memfd_create(c"file".as_ptr(), 0) };
    assert!(file >= 0);
    file
}

pub(crate) fn put(descriptor: i32, bytes: &[u8]) {
    assert_eq!(unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) }, bytes.len() as isize);
}

pub(crate) fn got(descriptor: i32) -> Vec<u8> {
    let mut bytes = vec![0; 65536];
    let count = unsafe { libc::read(descriptor, bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(count.try_into().unwrap());
    bytes
}

pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 256) as u8).collect()
}

pub(crate) fn buffer(at: *mut u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast(), iov_len: bytes }
}

pub(crate) fn text(text: &str) -> *mut libc::c_char {
    let text = CString::new(text).unwrap();
    holding(text.as_bytes_with_nul()).cast()
}

pub(crate) fn read_into_missing() {
    let [from, to] = pipe();
    put(to, b"read");
    let into = missing(PAGE);
    assert_eq!(unsafe { libc::read(from, into.cast(), PAGE) }, 4);
    assert_eq!(content(into, 4), b"read");
}
