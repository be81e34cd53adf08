//! Asks the kernel of a network interface, as `ip link` does. (`/sys/class/net` shows the interfaces of whoever mounted it, which in a
//! container need not be ours.)

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A name is shorter than this.
const LONGEST_NAME: usize = 15;

/// What the kernel says of one interface fits into a page.
const LONGEST_ANSWER: usize = 1 << 14;

/// Header of each message, and of what it says of an interface.
const HEADER: usize = 16;
const INTERFACE: usize = 16;

// From `linux/netlink.h`, `linux/rtnetlink.h`, `linux/if.h`.
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NAME: u16 = 3;
const UP: u32 = 1;
const RUNNING: u32 = 1 << 6;
const LOWER_UP: u32 = 1 << 16;
const NO_DEVICE: i32 = -19;

/// A question and its answer at a time.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    number: u32,
    answer: Box<[u8]>,
}

impl Netlink {
    /// In the network namespace of this thread, for good.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self { socket, number: 0, answer: vec![0; LONGEST_ANSWER].into() })
    }

    /// Whether something can go out and come in there. `None`: the kernel did not say.
    pub(super) fn is_up(&mut self, interface: &str) -> Option<bool> {
        self.number = self.number.wrapping_add(1);
        let question = question(interface, self.number)?;
        rustix::net::send(&self.socket, &question, SendFlags::empty()).ok()?;
        // The kernel has answered when the question is sent. What else there is was asked before.
        while let Ok((_, length)) = rustix::net::recv(&self.socket, &mut self.answer[..], RecvFlags::TRUNC) {
            let answer = self.answer.get(..length)?;
            if number(answer, 8) == Some(self.number) {
                return is_up(answer);
            }
        }
        None
    }
}

/// None if there can be no such name.
fn question(interface: &str, number: u32) -> Option<Vec<u8>> {
    let name = interface.as_bytes();
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(&0) {
        return None;
    }
    let attribute = u16::try_from(4 + name.len() + 1).ok()?;
    let length = HEADER + INTERFACE + usize::from(attribute).next_multiple_of(4);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).ok()?.to_ne_bytes());
    bytes.extend(GET_LINK.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    // From whom: the kernel knows. Of which interface: it has a name.
    bytes.resize(HEADER + INTERFACE, 0);
    bytes.extend(attribute.to_ne_bytes());
    bytes.extend(NAME.to_ne_bytes());
    bytes.extend(name);
    bytes.resize(length, 0);
    Some(bytes)
}

fn is_up(answer: &[u8]) -> Option<bool> {
    match short(answer, 4)? {
        NEW_LINK => {
            let flags = number(answer, HEADER + 8)?;
            Some([UP, RUNNING, LOWER_UP].iter().all(|flag| flags & flag != 0))
        }
        // It was taken out.
        ERROR if number(answer, HEADER)?.cast_signed() == NO_DEVICE => Some(false),
        _ => None,
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_its_own_interfaces() {
        let mut netlink = Netlink::open().expect("every system has it");
        assert_eq!(netlink.is_up("nosuchinterface"), Some(false));
        assert_eq!(netlink.is_up("a name that is too long"), None);
        assert_eq!(netlink.is_up(""), None);
        let flags = std::fs::read_to_string("/sys/class/net/lo/flags").expect("there is a loopback");
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).expect("a number");
        assert_eq!(netlink.is_up("lo"), Some(flags & UP != 0));
    }

    /// Of each of the three flags alone, an answer; and answers that are cut off.
    #[test]
    fn all_flags_are_needed_and_what_is_no_answer_says_nothing() {
        let answer = |kind: u16, flags: u32| {
            let mut bytes = vec![0; HEADER + INTERFACE];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[HEADER + 8..HEADER + 12].copy_from_slice(&flags.to_ne_bytes());
            bytes
        };
        assert_eq!(is_up(&answer(NEW_LINK, UP | RUNNING | LOWER_UP)), Some(true));
        for lacking in [UP, RUNNING, LOWER_UP] {
            assert_eq!(is_up(&answer(NEW_LINK, (UP | RUNNING | LOWER_UP) & !lacking)), Some(false));
        }
        assert_eq!(is_up(&answer(GET_LINK, u32::MAX)), None);
        assert_eq!(is_up(&answer(ERROR, 0)), None);
        let whole = answer(NEW_LINK, u32::MAX);
        assert!((0..HEADER + 12).all(|length| is_up(&whole[..length]).is_none()));
    }
}
