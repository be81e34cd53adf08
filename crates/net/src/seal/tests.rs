use super::*;

const SECRET: [u8; SECRET_BYTES] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 31,
];
const CHANNEL: ChannelId = ChannelId(0x0403_0201);
const SEALING: [Suite; 2] = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];
const ALL: [Suite; 3] = [Suite::Plain, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];
const LONGEST: usize = 100;

fn key(suite: Suite, direction: Direction) -> SealKey {
    SealKey::new(suite, direction, SECRET)
}

fn sealer(suite: Suite) -> Sealer {
    Sealer::new(key(suite, Direction::FromConnector), CHANNEL, Version(1))
}

fn opener(suite: Suite) -> Opener {
    Opener::new(key(suite, Direction::FromConnector), CHANNEL, LONGEST)
}

fn seal(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; payload.len() + 64];
    let bytes = sealer.seal(7, 0x80, &[payload], &mut frame).unwrap();
    frame.truncate(bytes);
    frame
}

fn only(reason: Refused) -> Dropped {
    let mut dropped = Dropped::default();
    dropped.count(reason);
    dropped
}

#[test]
fn opens_what_was_sealed() {
    for suite in ALL {
        let (mut sealer, mut opener) = (sealer(suite), opener(suite));
        for counter in 0..3 {
            let mut frame = vec![0; 200];
            let bytes = sealer.seal(7, 0x80, &[b"gathered ", b"", b"from parts"], &mut frame).unwrap();
            assert_eq!(bytes, 19 + suite.overhead_bytes());
            assert_eq!(channel_of(&frame), Some(CHANNEL));
            let hidden = frame.windows(8).all(|window| window != b"gathered");
            assert_eq!(hidden, suite != Suite::Plain);
            let payload = &mut b"gathered from parts".to_owned()[..];
            assert_eq!(
                opener.open(&mut frame[..bytes]),
                Ok(Opened { kind: 7, flags: 0x80, counter, payload })
            );
        }
        assert_eq!(opener.dropped().total(), 0);
    }
}

#[test]
fn a_payload_written_in_place() {
    let (mut sealer, mut opener) = (sealer(Suite::Aes256Gcm), opener(Suite::Aes256Gcm));
    let mut frame = [0; 64];
    frame[HEADER_BYTES..HEADER_BYTES + 5].copy_from_slice(b"there");
    let bytes = sealer.seal_in_place(1, 0, 5, &mut frame).unwrap();
    assert_eq!(opener.open(&mut frame[..bytes]).unwrap().payload, b"there");
    let mut empty = seal(&mut sealer, b"");
    assert_eq!(opener.open(&mut empty).unwrap().payload, b"");
}

/// Frames as they were first sealed, written down once and checked then with another implementation. Later
/// versions must open them for as long as version 1 is one of their neighbours.
#[test]
fn recorded_frames_of_version_1() {
    let plain: &[u8] = b"\x01\x00\x07\x80\x01\x02\x03\x04\x00\x00\x00\x00\x00\x00\x00\x00comb";
    let aes: &[u8] = b"\
        \x01\x01\x07\x80\x01\x02\x03\x04\x00\x00\x00\x00\x00\x00\x00\x00\
        \x6d\xd3\xd8\xbc\x50\xd5\x61\x28\x59\x84\x36\x07\x50\x95\xe3\xce\xe9\x44\xba\x8b";
    let chacha: &[u8] = b"\
        \x01\x02\x07\x80\x01\x02\x03\x04\x00\x00\x00\x00\x00\x00\x00\x00\
        \x7b\xd7\x2f\x53\x4f\xd2\x0c\x42\x0c\x4f\xd6\xf8\xa4\xa5\x60\xae\x7e\x86\xcb\x2d";
    for (suite, recorded) in ALL.into_iter().zip([plain, aes, chacha]) {
        let mut frame = recorded.to_vec();
        let opened = opener(suite).open(&mut frame);
        let payload = &mut b"comb".to_owned()[..];
        assert_eq!(opened, Ok(Opened { kind: 7, flags: 0x80, counter: 0, payload }), "{suite:?}");
        assert_eq!(
            seal(&mut sealer(suite), b"comb"),
            recorded,
            "{suite:?}: we seal the version that we record"
        );
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for suite in SEALING {
        let genuine = seal(&mut sealer(suite), b"payload");
        let mut opener = opener(suite);
        for position in 0..genuine.len() {
            for bit in 0..8 {
                let mut frame = genuine.clone();
                frame[position] ^= 1 << bit;
                let refused = opener.open(&mut frame).unwrap_err();
                let expected: &[Refused] = match position {
                    0 => &[Refused::Version],
                    4..8 => &[Refused::UnknownChannel],
                    _ => &[Refused::Forged],
                };
                assert!(expected.contains(&refused), "byte {position}, bit {bit}: {refused:?}");
            }
        }
        assert_eq!(opener.dropped().total(), genuine.len() as u64 * 8);
        // The window has not moved: forgers cannot make genuine frames look old.
        assert!(opener.open(&mut genuine.clone()).is_ok());
    }
}

#[test]
fn every_truncation_is_noticed() {
    for suite in SEALING {
        let genuine = seal(&mut sealer(suite), b"payload");
        for bytes in 0..genuine.len() {
            let mut opener = opener(suite);
            let expected = if bytes < suite.overhead_bytes() { Refused::Truncated } else { Refused::Forged };
            assert_eq!(opener.open(&mut genuine[..bytes].to_vec()), Err(expected), "{bytes} bytes");
            assert_eq!(opener.dropped(), only(expected));
        }
    }
    let genuine = seal(&mut sealer(Suite::Plain), b"payload");
    for bytes in 0..HEADER_BYTES {
        assert_eq!(opener(Suite::Plain).open(&mut genuine[..bytes].to_vec()), Err(Refused::Truncated));
        assert_eq!(channel_of(&genuine[..bytes]), None);
    }
}

#[test]
fn longer_than_agreed_is_refused_unopened() {
    for suite in ALL {
        let (mut sealer, mut opener) = (sealer(suite), opener(suite));
        assert!(opener.open(&mut seal(&mut sealer, &[0; LONGEST])).is_ok());
        assert_eq!(opener.open(&mut seal(&mut sealer, &[0; LONGEST + 1])), Err(Refused::Oversized));
        assert_eq!(opener.dropped(), only(Refused::Oversized));
        let mut longer = seal(&mut sealer, b"payload");
        longer.push(0);
        assert_eq!(opener.open(&mut longer).is_err(), suite != Suite::Plain, "plain frames prove nothing");
    }
}

#[test]
fn each_frame_is_taken_once_in_any_order() {
    for suite in ALL {
        let (mut sealer, mut opener) = (sealer(suite), opener(suite));
        let frames: Vec<Vec<u8>> =
            (0..3000u32).map(|number| seal(&mut sealer, &number.to_le_bytes())).collect();
        // Within the window any order is as good as another; 997 has no divisor in common with 1024.
        for place in 0..1024 {
            let number = place * 997 % 1024;
            let opened = opener.open(&mut frames[number].clone()).map(|opened| opened.counter);
            assert_eq!(opened, Ok(number as u64));
        }
        for frame in &frames[..1024] {
            assert_eq!(opener.open(&mut frame.clone()), Err(Refused::Replayed));
        }
        assert!(opener.open(&mut frames[2999].clone()).is_ok());
        assert!(opener.open(&mut frames[2999 - 1023].clone()).is_ok(), "the oldest in the window");
        assert_eq!(
            opener.open(&mut frames[2999 - 1024].clone()),
            Err(Refused::Replayed),
            "genuine, but too old"
        );
        let expected = Dropped { replayed: 1025, ..Dropped::default() };
        assert_eq!(opener.dropped(), expected);
    }
}

#[test]
fn only_the_other_end_can_seal() {
    for suite in SEALING {
        let mut frame = seal(&mut sealer(suite), b"payload");
        let other_way = key(suite, Direction::FromAcceptor);
        assert_eq!(
            Opener::new(other_way, CHANNEL, LONGEST).open(&mut frame.clone()),
            Err(Refused::Forged),
            "a frame sent back to its author"
        );
        let mut secret = SECRET;
        secret[31] ^= 1;
        let other_secret = SealKey::new(suite, Direction::FromConnector, secret);
        let mut opener = Opener::new(other_secret, CHANNEL, LONGEST);
        assert_eq!(opener.open(&mut frame), Err(Refused::Forged));
        assert_eq!(opener.dropped(), only(Refused::Forged));
    }
}

/// The dangerous one of these is "plain where sealed was agreed".
#[test]
fn another_suite_than_agreed_is_refused() {
    for agreed in ALL {
        for used in ALL.into_iter().filter(|used| *used != agreed) {
            let mut frame = seal(&mut sealer(used), &[0; 30]);
            assert_eq!(opener(agreed).open(&mut frame), Err(Refused::Forged), "{used:?} for {agreed:?}");
        }
    }
}

#[test]
fn versions_and_channels_that_are_not_ours() {
    for suite in ALL {
        let newer = Version(Version::CURRENT.0 + 1);
        let mut from_newer = Sealer::new(key(suite, Direction::FromConnector), CHANNEL, newer);
        let mut opener = opener(suite);
        // The newer end speaks our version after the handshake; its own we cannot know.
        assert_eq!(opener.open(&mut seal(&mut from_newer, b"x")), Err(Refused::Version));
        let mut zeros = [0; 64];
        assert_eq!(opener.open(&mut zeros), Err(Refused::Version), "version 0 never existed");
        let elsewhere = ChannelId(CHANNEL.0 + 1);
        let mut to_another = Sealer::new(key(suite, Direction::FromConnector), elsewhere, Version(1));
        assert_eq!(opener.open(&mut seal(&mut to_another, b"x")), Err(Refused::UnknownChannel));
        assert_eq!(opener.dropped(), Dropped { version: 2, unknown_channel: 1, ..Dropped::default() });
    }
}

#[test]
fn no_room_uses_up_no_counter() {
    for suite in ALL {
        let mut sealer = sealer(suite);
        let needed = 5 + suite.overhead_bytes();
        let mut short = vec![0; needed - 1];
        let refused = Err(SealError::NoRoom { needed, available: needed - 1 });
        assert_eq!(sealer.seal(0, 0, &[b"12345"], &mut short), refused);
        assert_eq!(sealer.seal_in_place(0, 0, 5, &mut short), refused);
        assert_eq!(sealer.remaining(), FRAMES_PER_KEY);
        assert_eq!(sealer.seal(0, 0, &[b"12345"], &mut vec![0; needed]), Ok(needed));
        assert_eq!(sealer.remaining(), FRAMES_PER_KEY - 1);
    }
}

#[test]
fn a_key_is_used_up_at_last() {
    for suite in ALL {
        let mut sealer = sealer(suite);
        sealer.next_counter = FRAMES_PER_KEY - 1;
        assert_eq!(sealer.remaining(), 1);
        assert_eq!(opener(suite).open(&mut seal(&mut sealer, b"last")).unwrap().counter, FRAMES_PER_KEY - 1);
        let mut frame = [0; 64];
        assert_eq!(sealer.seal(0, 0, &[b"more"], &mut frame), Err(SealError::Exhausted));
        assert_eq!((sealer.remaining(), frame), (0, [0; 64]));
        // Nor does the other end take one from an end that does not stop.
        sealer.next_counter = FRAMES_PER_KEY;
        let header = Header { counter: u64::MAX, ..Header::from_bytes(&[0; HEADER_BYTES]) };
        let header = Header { version: 1, suite: suite as u8, channel: CHANNEL, ..header };
        let mut frame = [&header.to_bytes()[..], &[0; 40]].concat();
        assert_eq!(opener(suite).open(&mut frame), Err(Refused::Forged));
    }
}

#[test]
fn no_two_frames_share_a_nonce() {
    let bytes = |direction, counter| *SealKey::nonce(direction, counter).as_ref();
    let mut nonces: Vec<[u8; 12]> = [Direction::FromConnector, Direction::FromAcceptor]
        .into_iter()
        .flat_map(|direction| [0, 1, 255, 256, 1 << 35].map(|counter| bytes(direction, counter)))
        .collect();
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), 10);
    for suite in SEALING {
        let mut sealer = sealer(suite);
        assert_ne!(seal(&mut sealer, b"same")[HEADER_BYTES..], seal(&mut sealer, b"same")[HEADER_BYTES..]);
    }
}

#[test]
fn both_ends_choose_the_same_suite() {
    for (here, there) in ALL.into_iter().flat_map(|here| ALL.map(|there| (here, there))) {
        assert_eq!(here.agree(there), there.agree(here));
        assert!(here == there || here.agree(there) != Suite::Plain, "nobody is talked out of sealing");
    }
    assert_eq!(Suite::Aes256Gcm.agree(Suite::Aes256Gcm), Suite::Aes256Gcm);
    assert_ne!(Suite::preferred(), Suite::Plain);
    assert!((0..=255).all(|byte| Suite::from_byte(byte).is_none_or(|suite| suite as u8 == byte)));
    assert!(ALL.into_iter().all(|suite| Suite::from_byte(suite as u8) == Some(suite)));
}

#[test]
fn secrets_stay_out_of_logs() {
    let key = SealKey::new(Suite::Aes256Gcm, Direction::FromAcceptor, [0xab; SECRET_BYTES]);
    let text = format!("{key:?}");
    assert_eq!(text, "SealKey { suite: Aes256Gcm, direction: FromAcceptor, .. }");
}

/// Bytes of all kinds, half of them under a header that gets past the first questions. The plain suite takes
/// what looks right; the others take nothing.
#[test]
fn random_bytes_open_nothing() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    for suite in ALL {
        let mut opener = opener(suite);
        for round in 0..20_000 {
            let bytes = usize::from(random()) % 200;
            let mut frame: Vec<u8> = (0..bytes).map(|_| random()).collect();
            if round % 2 == 0 && bytes >= HEADER_BYTES {
                frame[..2].copy_from_slice(&[1, suite as u8]);
                frame[4..8].copy_from_slice(&CHANNEL.0.to_le_bytes());
                frame[12..16].fill(0);
            }
            let opened = opener.open(&mut frame).is_ok();
            assert!(!opened || suite == Suite::Plain);
        }
        let dropped = opener.dropped();
        assert!(
            dropped.version > 1000 && dropped.truncated > 1000 && dropped.oversized > 1000,
            "{dropped:?}"
        );
        assert!(dropped.forged > 1000 || suite == Suite::Plain, "{dropped:?}");
    }
}
