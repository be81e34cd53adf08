//! Does what a sender left undone, for receivers that do not: checksums are summed up, and what is large is cut into frames.

use super::offloads::{Large, TCP_CHECKSUM, Undone};

/// A large frame becomes no more frames than so many. As TCP cuts on Ethernet they are 45, and 122 with the least that every host takes.
pub const MOST_SEGMENTS: usize = 128;

const FIN_AND_PUSH: u8 = 0x09;
const WINDOW_REDUCED: u8 = 0x80;
const TCP: u8 = 6;

/// Gives all frames that this one becomes when nothing is left undone, until one is not taken, and says whether all were. `whole` is the frame, and `undone`
/// fits it. None are given if it became too many.
pub fn finish(whole: &mut [u8], undone: Undone, mut give: impl FnMut(&mut [u8]) -> bool) -> bool {
    match undone {
        Undone::Nothing => give(whole),
        Undone::Checksum { start, offset } => {
            let (start, offset) = (usize::from(start), usize::from(offset));
            // Of what is not summed up, the sender has put the sum there.
            let sum = fold(sum_up(&whole[start..]));
            // A checksum of nothing means to UDP that there is none.
            let sum = if sum == 0xffff { 0xffff } else { !sum };
            whole[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
            give(whole)
        }
        Undone::Segments(large) => cut(whole, large, give),
    }
}

fn cut(whole: &[u8], large: Large, mut give: impl FnMut(&mut [u8]) -> bool) -> bool {
    let (headers, bytes) = whole.split_at(usize::from(large.bytes));
    let pieces = bytes.chunks(usize::from(large.size));
    let last = pieces.len() - 1;
    let mut frame = Vec::with_capacity(headers.len() + usize::from(large.size));
    last < MOST_SEGMENTS
        && pieces.enumerate().all(|(number, piece)| {
            frame.clear();
            frame.extend_from_slice(headers);
            frame.extend_from_slice(piece);
            write_headers(&mut frame, large, number, number == last);
            give(&mut frame)
        })
}

/// Makes the headers of the large frame those of its piece with this number.
fn write_headers(frame: &mut [u8], large: Large, number: usize, is_last: bool) {
    let (ip, tcp) =
        frame[usize::from(large.network)..].split_at_mut(usize::from(large.transport - large.network));
    let length = u16::try_from(tcp.len()).expect("a piece is shorter than a packet");
    let header = u16::try_from(ip.len()).expect("a header is short");
    let addresses = if large.sixth {
        ip[4..6].copy_from_slice(&(length + header - 40).to_be_bytes());
        8..40
    } else {
        ip[2..4].copy_from_slice(&(length + header).to_be_bytes());
        let first = u16::from_be_bytes([ip[4], ip[5]]);
        let number = u16::try_from(number).expect("they are few");
        ip[4..6].copy_from_slice(&first.wrapping_add(number).to_be_bytes());
        ip[10..12].fill(0);
        let sum = !fold(sum_up(ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        12..20
    };
    let first = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let before = u32::try_from(number * usize::from(large.size)).expect("a packet is short");
    tcp[4..8].copy_from_slice(&first.wrapping_add(before).to_be_bytes());
    if !is_last {
        tcp[13] &= !FIN_AND_PUSH;
    }
    if number > 0 {
        tcp[13] &= !WINDOW_REDUCED;
    }
    let at = usize::from(TCP_CHECKSUM);
    tcp[at..at + 2].fill(0);
    let sum = !fold(sum_up(&ip[addresses]) + u64::from(TCP) + u64::from(length) + sum_up(tcp));
    tcp[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The sum of all words of 16 bits. (RFC 1071)
fn sum_up(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let rest = words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8);
    rest + words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>()
}

/// The sum in one word: what is more is added again.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("it was folded")
}

#[cfg(test)]
mod tests {
    use super::super::offloads::HEAD;
    use super::super::offloads::frames::{ALL, large};
    use super::*;
    use proptest::prelude::*;

    fn finished(header: &[u8; 12], frame: &[u8]) -> Vec<Vec<u8>> {
        let undone =
            Undone::check(header, ALL, &frame[..frame.len().min(HEAD)], frame.len()).expect("it fits");
        let mut frames = Vec::new();
        let is_all = finish(&mut frame.to_vec(), undone, |frame| {
            frames.push(frame.to_vec());
            true
        });
        assert_eq!(is_all, !frames.is_empty());
        frames
    }

    /// Whether a receiver finds the checksum of TCP right.
    fn is_right(frame: &[u8], sixth: bool) -> bool {
        let (addresses, tcp) = if sixth { (22..54, 54) } else { (26..34, 34) };
        let length = (frame.len() - tcp) as u64;
        fold(sum_up(&frame[addresses]) + 6 + length + sum_up(&frame[tcp..])) == 0xffff
    }

    #[test]
    fn a_checksum_is_that_of_a_packet_from_a_book() {
        // The header of RFC 1071's kind that textbooks sum up to b861.
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(!fold(sum_up(&header)), 0xb861);
        let mut frame = [&[2; 14][..], &header].concat();
        finish(&mut frame, Undone::Checksum { start: 14, offset: 10 }, |_| true);
        assert_eq!(frame[24..26], [0xb8, 0x61]);
    }

    #[test]
    fn a_checksum_is_never_nothing() {
        let mut frame = vec![0; 42];
        frame[34..36].fill(0xff);
        finish(&mut frame, Undone::Checksum { start: 34, offset: 6 }, |_| true);
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }

    #[test]
    fn what_would_become_too_many_frames_becomes_none() {
        let (header, frame) = large(false, 8, &[1; 8 * MOST_SEGMENTS]);
        assert_eq!(finished(&header, &frame).len(), MOST_SEGMENTS);
        let (header, frame) = large(false, 8, &[1; 8 * MOST_SEGMENTS + 1]);
        assert!(finished(&header, &frame).is_empty());
    }

    #[test]
    fn what_is_not_taken_ends_it() {
        let (header, mut frame) = large(false, 1000, &[1; 5000]);
        let undone = Undone::check(&header, ALL, &frame[..HEAD], frame.len()).expect("it fits");
        let mut given = 0;
        assert!(!finish(&mut frame, undone, |_| {
            given += 1;
            given < 3
        }));
        assert_eq!(given, 3);
    }

    #[test]
    fn flags_of_the_first_and_of_the_last_are_only_theirs() {
        let (header, frame) = large(false, 1000, &[1; 2001]);
        let flags: Vec<_> = finished(&header, &frame).iter().map(|frame| frame[47]).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]);
    }

    proptest! {
        #[test]
        fn cut_frames_are_right_and_together_what_was_sent(
            bytes in proptest::collection::vec(any::<u8>(), 1..5000), size in 50..1500u16, sixth: bool,
        ) {
            let (header, frame) = large(sixth, size, &bytes);
            let (ip, tcp) = (14, if sixth { 54 } else { 34 });
            let mut together = Vec::new();
            for (number, frame) in finished(&header, &frame).iter().enumerate() {
                prop_assert!(is_right(frame, sixth));
                let length = usize::from(u16::from_be_bytes(if sixth { [frame[18], frame[19]] } else { [frame[16], frame[17]] }));
                prop_assert_eq!(length, frame.len() - if sixth { tcp } else { ip });
                if !sixth {
                    prop_assert_eq!(fold(sum_up(&frame[14..34])), 0xffff);
                    let id = u16::from_be_bytes([frame[18], frame[19]]);
                    prop_assert_eq!(id, 0xfffe_u16.wrapping_add(u16::try_from(number).expect("few")));
                }
                let at = u32::from_be_bytes([frame[tcp + 4], frame[tcp + 5], frame[tcp + 6], frame[tcp + 7]]);
                prop_assert_eq!(at.wrapping_sub(0xffff_fff0) as usize, together.len());
                together.extend_from_slice(&frame[tcp + 20..]);
            }
            prop_assert_eq!(together, bytes);
        }
    }
}
