//! What a sender leaves undone in a frame, as the header before the frame says: checksums, and that TCP cuts what it sends into frames. From guest to
//! guest it stays undone, and what is large goes as one. What a sender says is checked against the frame, and said anew to the receiver.

use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6,
    VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_ECN, VIRTIO_NET_HDR_GSO_NONE, VIRTIO_NET_HDR_GSO_TCPV4,
    VIRTIO_NET_HDR_GSO_TCPV6,
};

use super::subnet::{ETHERNET_HEADER, Refused};

/// The length of the header that stands before each frame (`virtio_net_hdr_v1`).
pub const HEADER: usize = 12;
/// What is looked at of a frame, at most. It holds all headers of a large one.
pub const HEAD: usize = 256;
/// The place of the checksum in TCP's header.
pub const TCP_CHECKSUM: u16 = 16;
/// TCP sends no less in a frame, but for the last. (Linux's `TCP_MIN_GSO_SIZE`)
const LEAST_SEGMENT: u16 = 8;

/// Features of virtio, one bit each.
pub type Features = u64;

const fn bits(features: &[u32]) -> Features {
    let (mut bits, mut i) = (0, 0);
    while i < features.len() {
        bits |= 1 << features[i];
        i += 1;
    }
    bits
}

/// What senders may leave undone.
pub const SENDERS: Features =
    bits(&[VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_ECN]);
/// What receivers may take undone.
pub const RECEIVERS: Features = bits(&[
    VIRTIO_NET_F_GUEST_CSUM,
    VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_ECN,
]);

/// What is left undone in a frame; it fits the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undone {
    /// Nothing.
    Nothing,
    /// A checksum is to be written.
    Checksum {
        /// It is of all bytes from here on.
        start: u16,
        /// It stands so many bytes after the start.
        offset: u16,
    },
    /// TCP's bytes are to be sent in frames of their own, and those have no checksums.
    Segments(Large),
}

/// A frame with more of TCP's bytes than one frame has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Large {
    /// Whether it is of the sixth version of IP, and not of the fourth.
    pub sixth: bool,
    /// Whether it says that the sender reacted to congestion; the first frame of many says so then.
    pub congestion: bool,
    /// How many bytes of TCP a frame has.
    pub size: u16,
    /// Where IP's header begins.
    pub network: u16,
    /// Where TCP's header begins.
    pub transport: u16,
    /// Where TCP's bytes begin.
    pub bytes: u16,
}

impl Undone {
    /// What this header says of a frame of this length that begins like this, by a sender with these features.
    pub fn check(
        header: &[u8; HEADER],
        features: Features,
        head: &[u8],
        length: usize,
    ) -> Result<Self, Refused> {
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (flags, kind, header_length, size) = (header[0], header[1], word(2), word(4));
        let (start, offset) = (word(6), word(8));
        let fits = |holds: bool| if holds { Ok(()) } else { Err(Refused::Malformed) };
        if u32::from(flags) & VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 {
            fits(u32::from(kind) == VIRTIO_NET_HDR_GSO_NONE)?;
            return Ok(Undone::Nothing);
        }
        fits(features & 1 << VIRTIO_NET_F_CSUM != 0)?;
        fits(usize::from(start) >= ETHERNET_HEADER && usize::from(header_length) <= length)?;
        fits(usize::from(start) + usize::from(offset) + 2 <= length)?;
        let congestion = u32::from(kind) & VIRTIO_NET_HDR_GSO_ECN != 0;
        fits(!congestion || features & 1 << VIRTIO_NET_F_HOST_ECN != 0)?;
        let sixth = match u32::from(kind) & !VIRTIO_NET_HDR_GSO_ECN {
            VIRTIO_NET_HDR_GSO_NONE => {
                fits(!congestion)?;
                return Ok(Undone::Checksum { start, offset });
            }
            VIRTIO_NET_HDR_GSO_TCPV4 if features & 1 << VIRTIO_NET_F_HOST_TSO4 != 0 => false,
            VIRTIO_NET_HDR_GSO_TCPV6 if features & 1 << VIRTIO_NET_F_HOST_TSO6 != 0 => true,
            _ => return Err(Refused::Malformed),
        };
        fits(size >= LEAST_SEGMENT && offset == TCP_CHECKSUM)?;
        let (network, bytes) = layout(head, sixth, start).ok_or(Refused::Malformed)?;
        fits(usize::from(bytes) < length)?;
        Ok(Undone::Segments(Large { sixth, congestion, size, network, transport: start, bytes }))
    }

    /// The header that says so to the receiver, of a frame in so many buffers.
    pub fn header(self, buffers: u16) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let mut put = |at: usize, word: u16| header[at..at + 2].copy_from_slice(&word.to_le_bytes());
        put(10, buffers);
        let (start, offset) = match self {
            Undone::Nothing => return header,
            Undone::Checksum { start, offset } => (start, offset),
            Undone::Segments(large) => {
                put(2, large.bytes);
                put(4, large.size);
                (large.transport, TCP_CHECKSUM)
            }
        };
        put(6, start);
        put(8, offset);
        let byte = |flags: u32| flags.to_le_bytes()[0];
        header[0] = byte(VIRTIO_NET_HDR_F_NEEDS_CSUM);
        if let Undone::Segments(large) = self {
            let kind = if large.sixth { VIRTIO_NET_HDR_GSO_TCPV6 } else { VIRTIO_NET_HDR_GSO_TCPV4 };
            header[1] = byte(kind | if large.congestion { VIRTIO_NET_HDR_GSO_ECN } else { 0 });
        }
        header
    }

    /// Whether a receiver with these features takes a frame with this undone.
    pub fn is_taken_by(self, features: Features) -> bool {
        let needed = match self {
            Undone::Nothing => 0,
            Undone::Checksum { .. } => 1 << VIRTIO_NET_F_GUEST_CSUM,
            Undone::Segments(large) => {
                let segments = if large.sixth { VIRTIO_NET_F_GUEST_TSO6 } else { VIRTIO_NET_F_GUEST_TSO4 };
                let congestion = if large.congestion { 1 << VIRTIO_NET_F_GUEST_ECN } else { 0 };
                1 << VIRTIO_NET_F_GUEST_CSUM | 1 << segments | congestion
            }
        };
        features & needed == needed
    }
}

/// Where IP's header begins and where TCP's bytes do, if TCP's header begins there.
fn layout(head: &[u8], sixth: bool, transport: u16) -> Option<(u16, u16)> {
    const IP: [[u8; 2]; 2] = [[8, 0], [0x86, 0xdd]];
    const TAGS: [[u8; 2]; 2] = [[0x81, 0], [0x88, 0xa8]];
    const TCP: u8 = 6;
    let mut network = 14;
    while network < 22 && TAGS.iter().any(|tag| head.get(network - 2..network) == Some(tag)) {
        network += 4;
    }
    let transport_at = usize::from(transport);
    let ip = head.get(network..transport_at)?;
    if head[network - 2..network] != IP[usize::from(sixth)] {
        return None;
    }
    let fits = match sixth {
        false => ip.len() >= 20 && ip[0] >> 4 == 4 && usize::from(ip[0] & 15) * 4 == ip.len() && ip[9] == TCP,
        // Between the header and TCP's there may be others.
        true => ip.len() >= 40 && ip[0] >> 4 == 6 && (ip.len() > 40 || ip[6] == TCP),
    };
    let tcp = head.get(transport_at..transport_at + 20)?;
    let length = u16::from(tcp[12] >> 4) * 4;
    let bytes = transport + length;
    (fits && length >= 20 && usize::from(bytes) <= HEAD).then_some((u16::try_from(network).ok()?, bytes))
}

/// Frames for tests.
#[cfg(test)]
pub(crate) mod frames {
    use super::*;

    pub(crate) const ALL: Features = SENDERS | RECEIVERS;

    /// A frame of TCP with these bytes, and its header as a sender says it.
    pub(crate) fn large(sixth: bool, size: u16, bytes: &[u8]) -> ([u8; HEADER], Vec<u8>) {
        let mut frame = vec![2; 12];
        let length = u16::try_from(20 + bytes.len()).expect("IP knows such a length").to_be_bytes();
        if sixth {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length);
            frame.extend([6, 64]);
            frame.extend([0x20; 32]);
        } else {
            let length = u16::try_from(40 + bytes.len()).expect("IP knows such a length").to_be_bytes();
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(length);
            frame.extend([0xff, 0xfe, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let start = u16::try_from(frame.len()).expect("short");
        // Ports, the number of the first byte, that of the answer, length and flags (CWR, ACK, PSH, FIN), window.
        frame.extend([0, 80, 1, 2, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x50, 0x99, 1, 0, 0, 0, 0, 0]);
        let undone =
            Large { sixth, congestion: false, size, network: 14, transport: start, bytes: start + 20 };
        frame.extend(bytes);
        (Undone::Segments(undone).header(0), frame)
    }
}

#[cfg(test)]
mod tests {
    use super::frames::{ALL, large};
    use super::*;
    use proptest::prelude::*;

    fn check(header: &[u8; HEADER], frame: &[u8]) -> Result<Undone, Refused> {
        Undone::check(header, ALL, &frame[..frame.len().min(HEAD)], frame.len())
    }

    #[test]
    fn what_is_said_of_a_frame_is_said_to_its_receiver() {
        for sixth in [false, true] {
            let (mut header, frame) = large(sixth, 1400, &[1; 60000]);
            header[1] |= 0x80;
            let undone = check(&header, &frame).expect("it fits");
            header[10] = 7;
            assert_eq!(undone.header(7), header);
            assert!(undone.is_taken_by(RECEIVERS));
            let version = if sixth { VIRTIO_NET_F_GUEST_TSO6 } else { VIRTIO_NET_F_GUEST_TSO4 };
            for feature in [VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, version] {
                assert!(!undone.is_taken_by(RECEIVERS & !(1 << feature)), "{feature}");
            }
        }
        let undone = check(&[1, 0, 0, 0, 0, 0, 34, 0, 6, 0, 0, 0], &[2; 42]).expect("it fits");
        assert_eq!(undone, Undone::Checksum { start: 34, offset: 6 });
        assert_eq!(undone.header(1), [1, 0, 0, 0, 0, 0, 34, 0, 6, 0, 1, 0]);
        assert!(!undone.is_taken_by(RECEIVERS & !(1 << VIRTIO_NET_F_GUEST_CSUM)));
        assert_eq!(check(&[0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], &[2; 42]), Ok(Undone::Nothing));
    }

    #[test]
    fn nothing_is_left_undone_that_was_not_agreed_on() {
        let (header, frame) = large(false, 1400, &[1; 6000]);
        for feature in [VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4] {
            let undone = Undone::check(&header, ALL & !(1 << feature), &frame[..HEAD], frame.len());
            assert_eq!(undone, Err(Refused::Malformed), "{feature}");
        }
    }

    #[test]
    fn a_header_that_does_not_fit_its_frame_is_refused() {
        let (good, frame) = large(false, 1400, &[1; 6000]);
        assert!(check(&good, &frame).is_ok());
        // No checksum, of UDP, of TCP over the sixth version, congestion without segments, longer than the frame, no size, another place.
        let wrong: [(usize, u8); 8] = [(0, 0), (1, 3), (1, 4), (1, 0x80), (3, 0xff), (5, 0), (6, 35), (8, 6)];
        for (at, byte) in wrong {
            let mut header = good;
            header[at] = byte;
            if at == 5 {
                header[4] = 7;
            }
            assert_eq!(check(&header, &frame), Err(Refused::Malformed), "{at}: {byte}");
        }
        // The type, IP's version, its header's length, its protocol, TCP's header's length.
        for (at, byte) in [(12, 9), (14, 0x55), (14, 0x46), (23, 17), (46, 0x40)] {
            let mut frame = frame.clone();
            frame[at] = byte;
            assert_eq!(check(&good, &frame), Err(Refused::Malformed), "{at}: {byte}");
        }
        for length in [33, 53, 54] {
            assert_eq!(check(&good, &frame[..length]), Err(Refused::Malformed), "{length}");
        }
    }

    #[test]
    fn a_large_frame_may_be_of_a_virtual_lan() {
        let (mut header, mut frame) = large(true, 1400, &[1; 6000]);
        frame.splice(12..12, [0x81, 0, 0, 5]);
        header[6] += 4;
        header[2] += 4;
        let undone = check(&header, &frame).expect("it fits");
        assert!(
            matches!(undone, Undone::Segments(Large { network: 18, transport: 58, bytes: 78, .. })),
            "{undone:?}"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_said_all_that_is_taken_lies_within_the_frame(
            said: [u8; HEADER], place in 0..70u8, wrong in proptest::collection::vec((0..80usize, any::<u8>()), 0..3),
            sixth: bool, tcp: bool, length in 0..3000usize,
        ) {
            let (good, mut frame) = large(sixth, 1400, &[1; 3000]);
            let mut header = if tcp { good } else { said };
            if !tcp {
                header[0] |= 1;
                header[7] = 0;
                header[6] = place;
            }
            for (at, byte) in wrong {
                frame[at] = byte;
            }
            frame.truncate(length);
            let undone = check(&header, &frame);
            if let Ok(Undone::Checksum { start, offset }) = undone {
                prop_assert!(usize::from(start) + usize::from(offset) + 2 <= frame.len());
            }
            if let Ok(Undone::Segments(large)) = undone {
                prop_assert!(large.network >= 14 && large.transport >= large.network + 20);
                prop_assert!(large.bytes >= large.transport + 20 && usize::from(large.bytes) < frame.len());
            }
            if let Ok(undone) = undone {
                prop_assert_eq!(check(&undone.header(1), &frame), Ok(undone));
            }
        }
    }
}
