//! Messages to a component of another host that are sent as one: a network costs far more for each than for their bytes. What one turn has said goes
//! together, one message behind the other: kind, length, head and content.

use crate::wire::{HEAD_BYTES, Kind};

/// What is sent together at most. The first of many is not to wait for long.
const MOST_BYTES: usize = 32 << 10;
const MOST_MESSAGES: u64 = 256;
/// Kind and length.
const LABEL_BYTES: usize = 5;

/// Messages that are about to be sent.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    bytes: Vec<u8>,
    messages: u64,
}

impl Bundle {
    /// Whether a message goes into any bundle; a longer one is sent alone.
    pub(crate) fn takes(content: &[u8], longest: usize) -> bool {
        HEAD_BYTES + LABEL_BYTES + HEAD_BYTES + content.len() <= longest.min(MOST_BYTES)
    }

    /// Adds one that a bundle takes, if it goes into this one with what is there.
    pub(crate) fn add(&mut self, kind: u8, head: &[u8; HEAD_BYTES], content: &[u8], longest: usize) -> bool {
        let bytes = HEAD_BYTES + content.len();
        let all = HEAD_BYTES + self.bytes.len() + LABEL_BYTES + bytes;
        if all > longest.min(MOST_BYTES) || self.messages == MOST_MESSAGES {
            return false;
        }
        self.bytes.push(kind);
        self.bytes.extend(u32::try_from(bytes).expect("short").to_le_bytes());
        self.bytes.extend(head);
        self.bytes.extend(content);
        self.messages += 1;
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.messages = 0;
    }

    /// What is to be sent: a kind, a head, and content. One message is itself.
    pub(crate) fn message(&self) -> (u8, [u8; HEAD_BYTES], &[u8]) {
        let alone = || {
            let (head, content) = self.bytes.get(LABEL_BYTES..)?.split_first_chunk()?;
            Some((self.bytes[0], *head, content))
        };
        let together = || (Kind::Together as u8, [0; HEAD_BYTES], &self.bytes[..]);
        if self.messages == 1 { alone().unwrap_or_else(together) } else { together() }
    }
}

/// Messages that have come together, and are taken one by one.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) from: u32,
    bytes: Vec<u8>,
    at: usize,
}

impl Opened {
    /// Opens what came, which is left in exchange for what it was taken in. Whether it is what a bundle may be: whole messages, none of them a
    /// bundle or a part of one.
    pub(crate) fn open(&mut self, from: u32, message: &mut Vec<u8>) -> bool {
        std::mem::swap(&mut self.bytes, message);
        (self.from, self.at) = (from, HEAD_BYTES);
        let mut messages = 0;
        while let Some((kind, message)) = self.peek() {
            let is_whole = Kind::of(kind).is_some_and(|known| known as u8 == kind && known != Kind::Together);
            messages += 1;
            if !is_whole || message.len() < HEAD_BYTES || messages > MOST_MESSAGES {
                break;
            }
            self.at += LABEL_BYTES + message.len();
        }
        let is_one = self.at == self.bytes.len() && messages > 0;
        self.at = if is_one { HEAD_BYTES } else { self.bytes.len() };
        is_one
    }

    fn peek(&self) -> Option<(u8, &[u8])> {
        let (label, rest) = self.bytes.get(self.at..)?.split_first_chunk::<LABEL_BYTES>()?;
        let bytes = u32::from_le_bytes([label[1], label[2], label[3], label[4]]);
        Some((label[0], rest.get(..usize::try_from(bytes).ok()?)?))
    }

    /// Whether some are left.
    pub(crate) fn has_more(&self) -> bool {
        self.at < self.bytes.len()
    }

    /// The next one, into a buffer; its kind.
    pub(crate) fn next(&mut self, buffer: &mut Vec<u8>) -> Option<u8> {
        let (kind, message) = self.peek()?;
        buffer.clear();
        buffer.extend(message);
        self.at += LABEL_BYTES + message.len();
        Some(kind)
    }

    /// Nothing more is to be taken.
    pub(crate) fn drop_rest(&mut self) {
        self.at = self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{PART, pack};

    const LONGEST: usize = 64 << 10;

    fn bundle(messages: &[(Kind, &[u8])]) -> Bundle {
        let mut bundle = Bundle::default();
        for (index, (kind, content)) in (0..).zip(messages) {
            assert!(bundle.add(*kind as u8, &pack(&[index, 0, 0, 7]), content, LONGEST));
        }
        bundle
    }

    fn came(bundle: &Bundle) -> Vec<u8> {
        let (kind, head, content) = bundle.message();
        assert_eq!(kind, Kind::Together as u8);
        [&head[..], content].concat()
    }

    #[test]
    fn what_is_sent_together_comes_one_by_one() {
        let messages = [(Kind::Protocol, &b"one"[..]), (Kind::Want, b""), (Kind::Protocol, &[9; 128])];
        let mut message = came(&bundle(&messages));
        let (mut opened, mut buffer) = (Opened::default(), Vec::new());
        assert!(opened.open(3, &mut message));
        for (index, (kind, content)) in (0..).zip(messages) {
            assert!(opened.has_more());
            assert_eq!(opened.next(&mut buffer), Some(kind as u8));
            assert_eq!(buffer, [&pack(&[index, 0, 0, 7])[..], content].concat());
        }
        assert!(!opened.has_more());
        assert_eq!(opened.next(&mut buffer), None);
    }

    #[test]
    fn one_is_sent_as_it_is_and_too_much_is_not_added() {
        let one = bundle(&[(Kind::Want, b"alone")]);
        assert_eq!(one.message(), (Kind::Want as u8, pack(&[0, 0, 0, 7]), &b"alone"[..]));
        let (mut full, head) = (Bundle::default(), pack(&[0; 4]));
        let mut count = 0;
        while full.add(Kind::Protocol as u8, &head, &[1; 1000], LONGEST) {
            count += 1;
        }
        assert_eq!(count, (MOST_BYTES - HEAD_BYTES) / (LABEL_BYTES + HEAD_BYTES + 1000));
        assert!(!Bundle::takes(&[0; MOST_BYTES], LONGEST) && !Bundle::takes(&[0; 200], 200));
        let mut many = Bundle::default();
        while many.add(Kind::Protocol as u8, &head, &[], LONGEST) {}
        assert_eq!(many.messages, MOST_MESSAGES);
        assert!(Opened::default().open(0, &mut came(&many)));
    }

    #[test]
    fn what_is_no_bundle_is_refused() {
        let good = came(&bundle(&[(Kind::Protocol, b"content"), (Kind::Want, b"")]));
        let refused = |mut message: Vec<u8>| {
            let mut opened = Opened::default();
            !opened.open(0, &mut message) && !opened.has_more()
        };
        for length in (0..good.len()).filter(|length| *length != HEAD_BYTES + LABEL_BYTES + HEAD_BYTES + 7) {
            assert!(refused(good[..length].to_vec()), "cut to {length} bytes");
        }
        for (at, wrong) in
            [(0, 0), (0, 99), (0, Kind::Together as u8), (0, PART | 1), (1, 31), (1, 200), (4, 255)]
        {
            let mut message = good.clone();
            message[HEAD_BYTES + at] = wrong;
            assert!(refused(message), "byte {at} is {wrong}");
        }
        assert!(refused([&good[..], &[1]].concat()));
    }

    #[test]
    fn nothing_that_comes_does_harm() {
        let mut random = 1_u64;
        for _ in 0..20_000 {
            let good =
                came(&bundle(&[(Kind::Protocol, b"content"), (Kind::Want, b""), (Kind::Hint, &[5; 40])]));
            let mut message = good;
            for _ in 0..3 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = usize::try_from(random >> 33).expect("31 bits") % message.len();
                message[at] = random.to_le_bytes()[3];
            }
            let (mut opened, mut buffer, mut count) = (Opened::default(), Vec::new(), 0);
            let is_one = opened.open(1, &mut message);
            while opened.next(&mut buffer).is_some() {
                assert!(buffer.len() >= HEAD_BYTES);
                count += 1;
            }
            assert_eq!(is_one, count > 0);
        }
    }
}
