//! The little of SNMP that a trap about a port needs: version 2c (RFC 1901, RFC 3416), in the basic encoding rules of ASN.1.

/// What a switch says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trap {
    /// A port has lost its link.
    LinkDown(u32),
    /// It has one again.
    LinkUp(u32),
    /// It has begun anew: what it said before is over.
    Start,
}

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const TRAP: u8 = 0xa7;

const VERSION_2C: u32 = 1;

/// Names of objects, as they are sent.
const TRAP_NAME: &[u8] = &[0x2b, 6, 1, 6, 3, 1, 1, 4, 1, 0];
const COLD_START: &[u8] = &[0x2b, 6, 1, 6, 3, 1, 1, 5, 1];
const WARM_START: &[u8] = &[0x2b, 6, 1, 6, 3, 1, 1, 5, 2];
const LINK_DOWN: &[u8] = &[0x2b, 6, 1, 6, 3, 1, 1, 5, 3];
const LINK_UP: &[u8] = &[0x2b, 6, 1, 6, 3, 1, 1, 5, 4];
const PORT_NUMBER: &[u8] = &[0x2b, 6, 1, 2, 1, 2, 2, 1, 1];

/// What a packet says, if it is such a trap of this community. Of anything else: nothing.
pub(crate) fn read(packet: &[u8], community: &[u8]) -> Option<Trap> {
    let mut message = Reader(packet).within(SEQUENCE)?;
    let is_ours = message.number()? == VERSION_2C && message.take(OCTETS)? == community;
    let mut trap = message.within(TRAP).filter(|_| is_ours)?;
    // The number of the request, and what went wrong with it: a trap has none of it.
    for _ in 0..3 {
        trap.take(INTEGER)?;
    }
    let mut values = trap.within(SEQUENCE)?;
    let (mut name, mut port) = (None, None);
    while !values.0.is_empty() {
        let mut value = values.within(SEQUENCE)?;
        let object = value.take(OBJECT)?;
        if object == TRAP_NAME {
            name = Some(value.take(OBJECT)?);
        } else if object.starts_with(PORT_NUMBER) {
            port = Some(value.number()?);
        }
    }
    match name? {
        LINK_DOWN => port.map(Trap::LinkDown),
        LINK_UP => port.map(Trap::LinkUp),
        COLD_START | WARM_START => Some(Trap::Start),
        _ => None,
    }
}

/// What is left of a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The content of the next piece, which must be of this kind.
    fn take(&mut self, kind: u8) -> Option<&'a [u8]> {
        let (&[tag, length], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match length {
            0..=0x7f => (usize::from(length), rest),
            0x81 => rest.split_first().map(|(&length, rest)| (usize::from(length), rest))?,
            0x82 => {
                rest.split_first_chunk().map(|(&two, rest)| (usize::from(u16::from_be_bytes(two)), rest))?
            }
            // No packet is so long.
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        (tag == kind).then_some(content)
    }

    fn within(&mut self, kind: u8) -> Option<Self> {
        self.take(kind).map(Self)
    }

    /// A number that is not negative.
    fn number(&mut self) -> Option<u32> {
        let bytes = self.take(INTEGER)?;
        let is_sound = (1..=5).contains(&bytes.len()) && bytes[0] < 0x80;
        let number = bytes.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        u32::try_from(number).ok().filter(|_| is_sound)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let length = match u8::try_from(length) {
            Ok(short @ 0..=0x7f) => vec![short],
            Ok(longer) => vec![0x81, longer],
            Err(_) => [&[0x82][..], &u16::try_from(length).expect("a packet").to_be_bytes()].concat(),
        };
        [&[kind], &length[..], content].concat()
    }

    fn value(object: &[u8], content: &[u8]) -> Vec<u8> {
        piece(SEQUENCE, &[&piece(OBJECT, object)[..], content].concat())
    }

    fn packet(community: &[u8], values: &[Vec<u8>]) -> Vec<u8> {
        let zero = piece(INTEGER, &[0]);
        let trap = [&zero[..], &zero, &zero, &piece(SEQUENCE, &values.concat())].concat();
        let version = piece(INTEGER, &[1]);
        piece(SEQUENCE, &[&version[..], &piece(OCTETS, community), &piece(TRAP, &trap)].concat())
    }

    /// As a switch sends it: how long it has been up, what happened, and to which port.
    pub(crate) fn link(name_end: u8, port: u16) -> Vec<u8> {
        let up_time = value(&[0x2b, 6, 1, 2, 1, 1, 3, 0], &piece(0x43, &[1, 2, 3]));
        let name = value(TRAP_NAME, &piece(OBJECT, &[&LINK_UP[..8], &[name_end]].concat()));
        let port = [&[0][..], &port.to_be_bytes()].concat();
        let number = value(&[PORT_NUMBER, &[9]].concat(), &piece(INTEGER, &port));
        let state = value(&[0x2b, 6, 1, 2, 1, 2, 2, 1, 8, 9], &piece(INTEGER, &[2]));
        packet(b"public", &[up_time, name, number, state])
    }

    #[test]
    fn ports_that_go_down_and_up_are_read() {
        assert_eq!(read(&link(3, 10_007), b"public"), Some(Trap::LinkDown(10_007)));
        assert_eq!(read(&link(4, 7), b"public"), Some(Trap::LinkUp(7)));
        assert_eq!(read(&link(1, 7), b"public"), Some(Trap::Start));
        assert_eq!(read(&link(5, 7), b"public"), None, "somebody has the wrong password");
        assert_eq!(read(&link(3, 7), b"private"), None);
    }

    /// Put together here by hand, byte by byte, from RFC 3416 and X.690, not by the code above.
    #[test]
    fn a_packet_as_it_is_on_the_wire() {
        let packet = [
            0x30, 0x49, 0x02, 0x01, 0x01, 0x04, 0x06, b'p', b'u', b'b', b'l', b'i', b'c', 0xa7, 0x3c, 0x02,
            0x04, 0x12, 0x34, 0x56, 0x78, 0x02, 0x01, 0x00, 0x02, 0x01, 0x00, 0x30, 0x2e, 0x30, 0x0d, 0x06,
            0x08, 0x2b, 0x06, 0x01, 0x02, 0x01, 0x01, 0x03, 0x00, 0x43, 0x01, 0x2a, 0x30, 0x17, 0x06, 0x0a,
            0x2b, 0x06, 0x01, 0x06, 0x03, 0x01, 0x01, 0x04, 0x01, 0x00, 0x06, 0x09, 0x2b, 0x06, 0x01, 0x06,
            0x03, 0x01, 0x01, 0x05, 0x03, 0x30, 0x04, 0x06, 0x00, 0x05, 0x00,
        ];
        assert_eq!(read(&packet, b"public"), None, "it does not say which port");
        let mut with_port = packet.to_vec();
        with_port.truncate(packet.len() - 6);
        with_port.extend([0x30, 0x0f, 0x06, 0x0a, 0x2b, 6, 1, 2, 1, 2, 2, 1, 1, 3, 0x02, 0x01, 0x03]);
        for outer in [1, 14, 28] {
            with_port[outer] += 11;
        }
        assert_eq!(read(&with_port, b"public"), Some(Trap::LinkDown(3)));
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let of = |bytes: &[u8]| Reader(&piece(INTEGER, bytes)).number();
        assert_eq!(
            [of(&[7]), of(&[0, 0xff]), of(&[0, 0xff, 0xff, 0xff, 0xff])],
            [Some(7), Some(255), Some(u32::MAX)]
        );
        assert_eq!([of(&[]), of(&[0x80]), of(&[1, 0, 0, 0, 0]), of(&[0; 6])], [None; 4]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes, b"public");
        }

        /// One byte is another, or the end is missing: it is no trap, or it is one about some port.
        #[test]
        fn any_harm_is_survived(at in 0_usize..80, byte: u8, length in 0_usize..90) {
            let mut packet = link(3, 7);
            let place = at % packet.len();
            packet[place] = byte;
            read(&packet, b"public");
            let whole = link(3, 7);
            if length < whole.len() {
                prop_assert_eq!(read(&whole[..length], b"public"), None);
            }
        }
    }
}
