use super::*;
use crate::shm::{Geometry, pair_for_tests};

/// Small enough that the network is often full, which counts as a loss.
const NARROW: Geometry = Geometry { slots: 64, payload_bytes: 8192 };
const SOON: Duration = Duration::from_secs(10);

fn reliable(link: Box<dyn Transport>) -> Reliable {
    Reliable::over(link)
}

fn pair() -> (Reliable, Reliable) {
    let (a, b) = pair_for_tests(NARROW);
    (reliable(a), reliable(b))
}

fn take(end: &mut Reliable) -> Option<(u8, Vec<u8>)> {
    let mut taken = None;
    end.receive(&mut |kind, payload| taken = Some((kind, payload.to_vec()))).unwrap();
    taken
}

/// Until the condition holds; both ends are looked at meanwhile.
fn until(
    a: &mut Reliable,
    b: &mut Reliable,
    mut condition: impl FnMut(&mut Reliable, &mut Reliable) -> bool,
) {
    let started = Instant::now();
    while !condition(a, b) {
        assert!(started.elapsed() < SOON, "it does not come to that");
    }
}

#[test]
fn a_frame_against_the_rules_is_a_breach_that_names_the_rule() {
    let (frame, window) = (8192, 128_u8);
    let head = |flags, sequence, acknowledged| [1, flags, 0, 0, sequence, 0, 0, 0, acknowledged, 0, 0, 0];
    let piece = |flags, sequence, bytes: usize| [&head(flags, sequence, 0)[..], &vec![7; bytes]].concat();
    let full = frame - HEADER_BYTES;
    let cases: [(&[Vec<u8>], &str); 9] = [
        (&[vec![1; 11]], "shorter than its header"),
        (&[vec![9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]], "version"),
        (&[vec![1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]], "mean nothing"),
        (&[head(0, 0, 1).to_vec()], "never sent"),
        (&[piece(1, window, 1)], "beyond the window"),
        (&[piece(5, 0, 100)], "not as long as agreed"),
        (&[piece(5, 0, 0)], "not as long as agreed"),
        (&[piece(1, 0, 0)], "without a kind"),
        (&(0..9).map(|number| piece(5, number, full)).collect::<Vec<_>>(), "longer than agreed"),
    ];
    for (frames, rule) in cases {
        // Whoever looks first finds it, and whoever receives is told.
        for look_first in [false, true] {
            let (mut attacker, victim) = pair_for_tests(NARROW);
            let mut victim = reliable(victim);
            let mut outcome = Ok(false);
            for frame in frames {
                attacker.send(FRAME, &[frame]).unwrap();
                assert!(!look_first || victim.is_idle() == (frame != frames.last().unwrap()));
                outcome = victim.receive(&mut |_, _| panic!("nothing of it is a message"));
            }
            let breach = outcome.unwrap_err().to_string();
            assert!(breach.contains(rule), "{breach:?} does not say {rule:?}");
        }
    }
    let (mut attacker, victim) = pair_for_tests(NARROW);
    attacker.send(7, &[b"no frame"]).unwrap();
    assert_eq!(reliable(victim).receive(&mut |_, _| {}), Err(Breach::Kind(7)));
}

#[test]
fn a_sender_in_need_of_room_learns_of_the_breach_that_keeps_it_waiting() {
    let (mut attacker, victim) = pair_for_tests(NARROW);
    let mut victim = reliable(victim);
    attacker.send(7, &[b"no frame"]).unwrap();
    let refusal = loop {
        if let Err(refusal) = victim.send(1, &[b"x"]) {
            break refusal;
        }
    };
    assert_eq!(refusal, SendError::Breach(Breach::Kind(7)), "or it would try again and again");
    assert!(victim.has_room(), "or it would wait for ever");
    assert_eq!(victim.receive(&mut |_, _| {}), Err(Breach::Kind(7)));
}

/// A network that keeps more than a window, as hosts have it.
#[cfg(feature = "hosts")]
fn wide_pair() -> (Reliable, Reliable) {
    use crate::datagram::Session;
    use crate::seal::Direction;
    use crate::udp::{UdpTransport, bind, connect};
    let any = "127.0.0.1:0".parse().unwrap();
    let ((a, at_a), (b, at_b)) = (bind(any).unwrap(), bind(any).unwrap());
    connect(&a, at_b).unwrap();
    connect(&b, at_a).unwrap();
    let end = |socket, direction| {
        let session = Session::plain(comb_types::ChannelId(1), direction);
        reliable(Box::new(UdpTransport::new(socket, session).unwrap()))
    };
    (end(a, Direction::FromConnector), end(b, Direction::FromAcceptor))
}

#[cfg(feature = "hosts")]
#[test]
fn what_is_not_taken_stays_with_its_sender() {
    let (mut a, mut b) = wide_pair();
    let message = |number: u32| [&number.to_le_bytes()[..], &[3; 4000]].concat();
    let mut from_b = 0_u32;
    while b.send(2, &[&message(from_b)]).is_ok() {
        from_b += 1;
    }
    // B wants room and A wants its messages taken: neither takes any, and both are held to their bounds.
    let mut from_a = 0_u32;
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(100) {
        from_a += u32::from(a.send(1, &[&message(from_a)]).is_ok());
        from_b += u32::from(b.send(2, &[&message(from_b)]).is_ok());
        for end in [&a, &b] {
            assert!(end.held_bytes <= MOST_HELD_BYTES + LONGEST_MESSAGE);
            assert!(end.protocol.unacknowledged() <= WINDOW);
        }
    }
    assert!(b.held_bytes >= MOST_HELD_BYTES, "or this test shows nothing");
    let (mut at_a, mut at_b) = (0, 0);
    until(&mut a, &mut b, |a, b| {
        for (end, kind, arrived) in [(a, 2, &mut at_a), (b, 1, &mut at_b)] {
            if let Some(got) = take(end) {
                assert_eq!((got.0, got.1 == message(*arrived)), (kind, true));
                *arrived += 1;
            }
        }
        (at_a, at_b) == (from_b, from_a)
    });
    assert_eq!((a.held_bytes, b.held_bytes), (0, 0));
}

#[test]
fn the_next_message_tells_its_length_and_stays() {
    let (mut a, mut b) = pair();
    assert_eq!(b.next_length(), Ok(None));
    a.send(1, &[&[5; 20_000]]).unwrap();
    until(&mut a, &mut b, |a, b| {
        a.is_idle();
        b.next_length() == Ok(Some(20_000))
    });
    assert_eq!(b.next_length(), Ok(Some(20_000)));
    assert_eq!(take(&mut b), Some((1, vec![5; 20_000])));
    assert_eq!(b.next_length(), Ok(None));
}

#[test]
fn a_close_waits_for_what_was_sent_before_and_then_is_one() {
    let (mut a, mut b) = pair();
    assert!(a.next_timeout().is_none());
    // Nobody takes the frames, so all but the first are lost.
    for number in 0..20 {
        a.send(number, &[&[number; 5000]]).unwrap();
    }
    assert!(a.next_timeout().is_some());
    a.close();
    assert!(!a.settle() && !b.peer_closed());
    let mut arrived = 0;
    until(&mut a, &mut b, |a, b| {
        if let Some(got) = take(b) {
            assert_eq!(got, (arrived, vec![arrived; 5000]));
            arrived += 1;
        }
        assert!(arrived == 20 || !b.peer_closed(), "the end came before the last message");
        a.settle()
    });
    assert!(b.peer_closed() && arrived == 20);
}

#[test]
fn a_peer_that_closed_makes_no_one_wait() {
    let (mut a, mut b) = pair();
    a.send(1, &[b"never read"]).unwrap();
    b.close();
    assert!(b.settle());
    a.close();
    assert!(a.settle(), "nobody is there to hear it");
    assert_eq!(a.cause().unwrap().to_string(), "it closed the channel");
}

#[test]
fn a_silent_peer_ends_the_channel_and_its_senders_do_not_wait() {
    let (a, _b) = pair_for_tests(NARROW);
    let limit = Duration::from_millis(150);
    let agreement = Agreement { silence_limit: limit, ..Agreement::usual(8192) };
    let mut a = Reliable::agreed(a, agreement).unwrap();
    a.send(1, &[b"hello?"]).unwrap();
    let started = Instant::now();
    while !a.peer_closed() {
        assert!(a.is_idle() && started.elapsed() < SOON);
    }
    assert_eq!(a.cause(), Some(Cause::Silent(limit)));
    assert_eq!(a.send(1, &[b"hello?"]), Err(SendError::Full), "the end is told by the cause");
    assert!(a.has_room(), "nobody waits for it");
    a.close();
    assert!(a.settle());
}

/// Acknowledgements that had come and nobody had looked for did not count: who sent once in a long while and received
/// nothing took its peer for dead.
#[test]
fn who_only_sends_and_rarely_hears_that_its_peer_is_there() {
    let (a, b) = pair_for_tests(NARROW);
    let limit = Duration::from_millis(150);
    let end = |link| Reliable::agreed(link, Agreement { silence_limit: limit, ..Agreement::usual(8192) });
    let (mut a, mut b) = (end(a).unwrap(), end(b).unwrap());
    for number in 0..3 {
        a.send(number, &[b"x"]).unwrap();
        until(&mut a, &mut b, |_, b| take(b) == Some((number, b"x".to_vec())));
        std::thread::sleep(limit);
        b.is_idle();
    }
    a.send(3, &[b"x"]).unwrap();
    assert_eq!((a.cause(), a.protocol.unacknowledged()), (None, 1));
}

#[test]
fn an_agreement_that_cannot_be_kept_is_refused() {
    let good = Agreement::usual(1400);
    assert_eq!((good.window, good.longest_message), (WINDOW, LONGEST_MESSAGE));
    assert_eq!(good.check(1400), Ok(()));
    for (agreement, frame) in [
        (good, HEADER_BYTES),
        (good, 0),
        (good, usize::MAX),
        (Agreement { window: 0, ..good }, 1400),
        (Agreement { window: u32::MAX, ..good }, 1400),
        // 47 pieces of 1388 bytes are 65,236.
        (Agreement { window: 47, ..good }, 1400),
        (Agreement { longest_message: LONGEST_MESSAGE + 1, ..good }, 1400),
        (Agreement { longest_message: usize::MAX, ..good }, 1400),
    ] {
        assert!(agreement.check(frame).is_err(), "{agreement:?} over {frame}");
    }
    assert_eq!(Agreement { window: 48, ..good }.check(1400), Ok(()));
    // Whatever the network carries, the usual one can be kept.
    for frame in [13, 64, 1000, 9000, 65_475, 1 << 20] {
        assert_eq!(Agreement::usual(frame).check(frame), Ok(()), "{frame}");
    }
}
