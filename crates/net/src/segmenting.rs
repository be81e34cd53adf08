//! Several frames in one system call, taken apart again by the kernel of the receiver, or by the network's card: the way through both kernels is
//! most of what a frame costs.
#![expect(unsafe_code, reason = "setsockopt of UDP_SEGMENT has no safe wrapper")]

use std::os::fd::{AsFd, AsRawFd};

const SOL_UDP: libc::c_int = 17;
const UDP_SEGMENT: libc::c_int = 103;

/// From now on what is sent in one piece goes out as frames of so many bytes, the last of which may be shorter; 0: as one, as ever. Whether this
/// kernel does so (Linux 4.18 does).
pub(crate) fn send_in_frames_of(socket: impl AsFd, bytes: u16) -> bool {
    let bytes = libc::c_int::from(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "four bytes")]
    let length = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as the call takes; the kernel reads `length` bytes of `bytes`.
    let outcome = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), SOL_UDP, UDP_SEGMENT, (&raw const bytes).cast(), length)
    };
    outcome == 0
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use comb_types::ChannelId;

    use super::*;
    use crate::datagram::Session;
    use crate::retransmit::Reliable;
    use crate::seal::Direction;
    use crate::transport::Transport;
    use crate::udp::{self, UdpTransport};

    const SOON: Duration = Duration::from_secs(10);

    fn sockets() -> [OwnedFd; 2] {
        let any = "127.0.0.1:0".parse().expect("an address");
        let [(a, at_a), (b, at_b)] = [udp::bind(any).expect("a socket"), udp::bind(any).expect("a socket")];
        udp::connect(&a, at_b).and_then(|()| udp::connect(&b, at_a)).expect("connected");
        [a, b]
    }

    fn end(socket: OwnedFd, direction: Direction) -> UdpTransport {
        UdpTransport::new(socket, Session::plain(ChannelId(7), direction)).expect("a transport")
    }

    fn next(from: &mut dyn Transport) -> Vec<u8> {
        let (since, mut came) = (Instant::now(), None);
        while came.is_none() {
            from.receive(&mut |_, payload| came = Some(payload.to_vec()))
                .expect("a peer that keeps the rules");
            assert!(since.elapsed() < SOON, "nothing comes");
        }
        came.expect("just seen")
    }

    #[test]
    fn what_is_sent_at_once_comes_in_the_frames_that_it_was() {
        let [a, b] = sockets();
        let (mut from, mut to) = (end(a, Direction::FromConnector), end(b, Direction::FromAcceptor));
        let longest = from.capabilities().longest_message;
        // Whole ones, more than the kernel takes at once, and shorter ones among them.
        let lengths: Vec<usize> =
            (0..100).map(|number| if number % 60 == 59 { number } else { longest }).chain([3, 2]).collect();
        for lengths in lengths.chunks(51) {
            from.begin_burst();
            for &bytes in lengths {
                let content = u8::try_from(bytes % 251).expect("a byte");
                from.send(1, &[&vec![content; bytes]]).expect("room");
            }
            from.end_burst();
            for &bytes in lengths {
                let content = u8::try_from(bytes % 251).expect("a byte");
                assert_eq!(next(&mut to), vec![content; bytes]);
            }
        }
        from.begin_burst();
        from.send(1, &[&vec![9; longest]]).expect("room");
        assert!(to.is_idle(), "it waits for the others");
        from.end_burst();
        assert_eq!(next(&mut to).len(), longest);
    }

    /// As on a way whose packets are shorter than the frames: there the kernel refuses, too.
    #[test]
    fn where_frames_cannot_be_sent_at_once_they_go_one_by_one() {
        let [a, b] = sockets();
        let yes: libc::c_int = 1;
        // SAFETY: the descriptor is open; the kernel reads the four bytes of `yes`.
        let outcome = unsafe {
            libc::setsockopt(a.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, (&raw const yes).cast(), 4)
        };
        assert_eq!(outcome, 0, "packets without checksums, which no kernel sends several of at once");
        let mut from = Reliable::over(Box::new(end(a, Direction::FromConnector)));
        let mut to = Reliable::over(Box::new(end(b, Direction::FromAcceptor)));
        for content in 0..3 {
            from.send(1, &[&vec![content; 60_000]]).expect("room");
            assert_eq!(next(&mut to), vec![content; 60_000]);
            // What it says of its messages makes room for the next.
            let since = Instant::now();
            while from.counters().outstanding > 0 {
                assert!(from.is_idle() && to.is_idle());
                assert!(since.elapsed() < SOON, "nothing is acknowledged");
            }
        }
    }
}
