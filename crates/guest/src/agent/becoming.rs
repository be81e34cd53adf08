//! What a guest does to itself: who it is, and its end.

#![expect(
    unsafe_code,
    reason = "the host's kernel is told of a random seed, the time and an address by calls that have no safe form"
)]

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::wire::Become;

const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

#[repr(C)]
struct Entropy {
    bits: i32,
    bytes: i32,
    content: [u8; 32],
}

/// Becomes whoever the host says, as far as this guest's kernel permits: what it does not is as it was. Whether it has
/// taken the seed.
pub(super) fn become_who(who: &Become) -> bool {
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
    if let (Some(mac), Some(device)) = (who.mac, network_device()) {
        set_address(&device, mac);
    }
    is_seeded
}

/// The first one that is no loopback.
fn network_device() -> Option<String> {
    let devices = std::fs::read_dir("/sys/class/net").ok()?;
    let mut names: Vec<String> =
        devices.filter_map(|device| device.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names.into_iter().find(|name| name != "lo" && name.len() < libc::IFNAMSIZ)
}

fn set_address(device: &str, mac: [u8; 6]) {
    // SAFETY: all zeroes are a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: of a union that is all zeroes.
    let address = unsafe { &mut request.ifr_ifru.ifru_hwaddr };
    address.sa_family = libc::ARPHRD_ETHER;
    for (to, from) in address.sa_data.iter_mut().zip(mac) {
        *to = from as libc::c_char;
    }
    // SAFETY: it makes a descriptor, which is closed below, and reads a request that is whole.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket >= 0 {
            libc::ioctl(socket, libc::SIOCSIFHWADDR, &raw const request);
            libc::close(socket);
        }
    }
}

/// Ends the guest in good order, if its first process knows how, and at once if not.
pub(super) fn power_off() {
    if std::process::Command::new("poweroff").spawn().is_err() {
        rustix::fs::sync();
        let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    }
}
