//! A cable on which everything takes a while: each frame is taken off one end and put on the other a little later.
#![expect(unsafe_code, reason = "packet sockets, which no crate of ours wraps")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "small numbers, in the types of the kernel's structures"
)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A frame as the kernel hands large ones on before it cuts them, with what it says of that.
const LONGEST_FRAME: usize = 1 << 17;
/// No frame waits longer for this thread than that.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Ends with the last of it.
pub(crate) struct SlowCable {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SlowCable {
    /// Between two devices of this thread's namespace.
    pub(crate) fn between(devices: [&str; 2], delay: Duration) -> io::Result<Self> {
        let ends = [end_of(devices[0])?, end_of(devices[1])?];
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || carry(&ends, delay, &until));
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for SlowCable {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(ends: &[OwnedFd; 2], delay: Duration, is_over: &AtomicBool) {
    let mut under_way: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
    let mut frame = vec![0; LONGEST_FRAME];
    while !is_over.load(Ordering::Relaxed) {
        for (from, frames) in under_way.iter_mut().enumerate() {
            while let Some(bytes) = take(&ends[from], &mut frame) {
                frames.push_back((Instant::now() + delay, frame[..bytes].to_vec()));
            }
            while let Some((_, frame)) = frames.pop_front_if(|(due, _)| *due <= Instant::now()) {
                put(&ends[1 - from], &frame);
            }
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// All that comes out of a device, and a way in.
fn end_of(device: &str) -> io::Result<OwnedFd> {
    const ALL: u16 = (libc::ETH_P_ALL as u16).to_be();
    let name = std::ffi::CString::new(device)?;
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: plain calls on a descriptor that is ours, with structures of the sizes that are given.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?);
        let is_on: i32 = 1;
        for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_VNET_HDR] {
            let length = size_of_val(&is_on) as u32;
            check(libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw const is_on).cast(),
                length,
            ))?;
        }
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL;
        address.sll_ifindex = check(libc::if_nametoindex(name.as_ptr()) as i32)?;
        check(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32))?;
        Ok(socket)
    }
}

/// The next frame, if there is one, behind what the kernel says of its cutting.
fn take(from: &OwnedFd, frame: &mut [u8]) -> Option<usize> {
    // SAFETY: as much as there is room for.
    let bytes = unsafe { libc::recv(from.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
    usize::try_from(bytes).ok()
}

/// What there is no room for is lost, as on any cable.
fn put(to: &OwnedFd, frame: &[u8]) {
    // SAFETY: a whole frame.
    unsafe { libc::send(to.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
}
