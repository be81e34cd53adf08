//! Which interface has an address, and who has the address on the other side.
#![expect(unsafe_code, reason = "getifaddrs hands out a linked list of C structures")]

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// An Ethernet interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) address: [u8; 6],
}

/// "Discard" (RFC 863): nobody listens, and the question alone makes the kernel ask for the address.
const DISCARD_PORT: u16 = 9;

impl Interface {
    /// The one that has `local`.
    pub(super) fn of(local: Ipv4Addr) -> Option<Self> {
        let list = List::get()?;
        let name = list.entries().find(|entry| ipv4(entry) == Some(local)).map(name)?;
        list.entries().filter(|entry| self::name(entry) == name).find_map(|entry| {
            let (index, address) = ethernet(entry)?;
            Some(Self { name: name.clone(), index, address })
        })
    }
}

struct List(*mut libc::ifaddrs);

impl List {
    fn get() -> Option<Self> {
        let mut first = std::ptr::null_mut();
        // SAFETY: writes one pointer to `first`.
        (unsafe { libc::getifaddrs(&raw mut first) } == 0).then_some(Self(first))
    }

    fn entries(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        // SAFETY: the list is whole and unchanged until it is freed, when `self` goes.
        let at = |entry: *mut libc::ifaddrs| unsafe { entry.as_ref() };
        std::iter::successors(at(self.0), move |entry| at(entry.ifa_next))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: from `getifaddrs`, freed once.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

fn name(entry: &libc::ifaddrs) -> String {
    // SAFETY: the name of an entry is a string that lives as long as the list.
    unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned()
}

fn family(entry: &libc::ifaddrs) -> Option<i32> {
    // SAFETY: null, or an address that lives as long as the list; every address begins with its family.
    unsafe { entry.ifa_addr.as_ref() }.map(|address| i32::from(address.sa_family))
}

fn ipv4(entry: &libc::ifaddrs) -> Option<Ipv4Addr> {
    (family(entry)? == libc::AF_INET).then(|| {
        // SAFETY: an address of this family is a `sockaddr_in`.
        let address = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in>() };
        Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr))
    })
}

fn ethernet(entry: &libc::ifaddrs) -> Option<(u32, [u8; 6])> {
    if family(entry)? != libc::AF_PACKET {
        return None;
    }
    // SAFETY: an address of this family is a `sockaddr_ll`.
    let address = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_ll>() };
    let index = u32::try_from(address.sll_ifindex).ok()?;
    let ethernet = address.sll_hatype == libc::ARPHRD_ETHER && address.sll_halen == 6;
    ethernet.then(|| (index, *address.sll_addr.first_chunk().expect("eight bytes")))
}

/// The hardware address of a host on the interface's link.
pub(super) fn neighbour(host: Ipv4Addr, interface: &str, limit: Duration) -> Option<[u8; 6]> {
    let started = Instant::now();
    let mut asked = false;
    loop {
        // Of this thread, not of the process: threads can be in different network namespaces.
        let table = std::fs::read_to_string("/proc/thread-self/net/arp").ok()?;
        if let Some(address) = look_up(&table, host, interface) {
            return Some(address);
        }
        if started.elapsed() >= limit {
            return None;
        }
        if !asked {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
            let _ = socket.send_to(&[], (host, DISCARD_PORT));
            asked = true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lines of address, type, flags, hardware address, mask, interface; flag 2: complete.
fn look_up(table: &str, host: Ipv4Addr, interface: &str) -> Option<[u8; 6]> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let address: Ipv4Addr = words.next()?.parse().ok()?;
        let flags = u32::from_str_radix(words.nth(1)?.trim_start_matches("0x"), 16).ok()?;
        let hardware = words.next()?;
        let found = address == host && words.nth(1)? == interface && flags & 2 != 0;
        found.then(|| parse_hardware(hardware)).flatten()
    })
}

fn parse_hardware(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
10.9.0.2         0x1         0x2         0a:1b:2c:3d:4e:5f     *        v0
10.9.0.3         0x1         0x0         00:00:00:00:00:00     *        v0
";

    #[test]
    fn only_complete_entries_of_the_right_interface_count() {
        let host = |last| Ipv4Addr::new(10, 9, 0, last);
        assert_eq!(look_up(TABLE, host(2), "v0"), Some([0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f]));
        assert_eq!(look_up(TABLE, host(2), "v1"), None);
        assert_eq!(look_up(TABLE, host(3), "v0"), None, "not answered yet");
        assert_eq!(look_up(TABLE, host(4), "v0"), None);
        assert_eq!(look_up("", host(2), "v0"), None);
    }

    #[test]
    fn the_loopback_is_no_ethernet() {
        assert_eq!(Interface::of(Ipv4Addr::LOCALHOST), None);
        assert_eq!(Interface::of(Ipv4Addr::new(203, 0, 113, 77)), None, "nobody has this address");
    }
}
