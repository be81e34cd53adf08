//! What a guest does to itself: who it is, and its end.

#![expect(
    unsafe_code,
    reason = "the guest's kernel is told of a random seed and the time by calls that have no safe form"
)]

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use super::network;
use crate::wire::{BEGINS_WITH_ONE, Become};

const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

#[repr(C)]
struct Entropy {
    bits: i32,
    bytes: i32,
    content: [u8; 32],
}

/// Brings in the processors that its kernel has not begun with, if it was told to begin with one.
pub fn use_all_processors() {
    let words = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    if !words.split_whitespace().any(|word| word == BEGINS_WITH_ONE) {
        return;
    }
    let all = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().filter_map(Result::ok);
    for online in all.map(|processor| processor.path().join("online")) {
        if fs::read_to_string(&online).is_ok_and(|is| is.trim() == "0") {
            let _ = fs::write(&online, "1");
        }
    }
}

/// Becomes whoever the host says, as far as this guest's kernel permits: what it does not is as it was. Whether it has
/// taken the seed.
pub(super) fn become_who(who: &Become) -> bool {
    use_all_processors();
    if !who.name.is_empty() {
        let _ = rustix::system::sethostname(who.name.as_bytes());
    }
    let mut is_seeded = false;
    if let Ok(random) = File::options().write(true).open("/dev/urandom") {
        let entropy = Entropy { bits: 256, bytes: 32, content: who.seed };
        // SAFETY: the first call reads a structure of this layout, the second nothing.
        is_seeded = unsafe {
            libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const entropy) == 0
                && libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG) == 0
        };
    }
    if who.time_ns > 0 {
        let [seconds, nanoseconds] = [who.time_ns / 1_000_000_000, who.time_ns % 1_000_000_000];
        let time = libc::timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i64 };
        // SAFETY: it reads a time.
        unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) };
    }
    if let Some(network) = &who.network {
        network::join(network);
    }
    is_seeded
}

/// Ends the guest in good order, if its first process knows how, and at once if not.
pub(super) fn power_off() {
    if std::process::Command::new("poweroff").spawn().is_err() {
        rustix::fs::sync();
        let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    }
}
