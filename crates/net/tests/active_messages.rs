//! Active messages between two endpoints: what the thesis promises (§2.5), and what a peer that keeps no promise does.
#![expect(clippy::cast_possible_truncation, reason = "byte patterns are cut out of counters")]

mod lossy;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use comb_net::active::{Access, ActiveError, ActiveMessages, ActiveOptions, REQUESTS_BETWEEN_POLLS};
use comb_net::transport::Transport;
use comb_net::{
    Breach, Cause, ChannelKey, Endpoint, EndpointOptions, Geometry, InProcess, kinds, pair_for_tests,
};

const SOON: Duration = Duration::from_secs(10);

const ADD: u16 = 0;
const NOTE: u16 = 1;
const ECHO: u16 = 2;
const SUM: u16 = 0;
const ECHOED: u16 = 1;

/// What handlers saw.
#[derive(Debug, Default)]
struct Seen {
    notes: Vec<u64>,
    sums: Vec<u64>,
    echoes: Vec<Vec<u8>>,
    stored: Vec<(usize, Vec<u8>, Vec<u64>)>,
}

type Active = ActiveMessages<Seen>;

fn with_handlers(endpoint: Endpoint, options: ActiveOptions) -> Active {
    let mut active = ActiveMessages::with(endpoint, Seen::default(), options);
    active.on_request(ADD, |_, request| {
        let sum = request.arguments().iter().sum();
        request.reply(SUM, &[sum], &[]).unwrap();
    });
    active.on_request(NOTE, |seen: &mut Seen, request| seen.notes.push(request.arguments()[0]));
    active.on_request(ECHO, |_, request| {
        let payload = request.payload().to_vec();
        let arguments = request.arguments();
        request.reply(ECHOED, arguments, &payload).unwrap();
    });
    active.on_reply(SUM, |seen: &mut Seen, reply| seen.sums.push(reply.arguments[0]));
    active.on_reply(ECHOED, |seen: &mut Seen, reply| seen.echoes.push(reply.payload.to_vec()));
    active
}

struct Pair {
    _agent: InProcess,
    alice: Active,
    bob: Active,
    to_bob: ChannelKey,
    to_alice: ChannelKey,
}

fn pair_with(options: ActiveOptions, geometry: Geometry) -> Pair {
    let agent = InProcess::start();
    let of_size = EndpointOptions { geometry, ..Default::default() };
    let mut alice = agent.connect("alice").unwrap().endpoint_with("desk", of_size).unwrap();
    let mut bob = agent.connect("bob").unwrap().endpoint_with("desk", of_size).unwrap();
    let to_bob = alice.open("bob/desk").unwrap();
    let to_alice = bob.accept(SOON).unwrap();
    let (alice, bob) = (with_handlers(alice, options), with_handlers(bob, options));
    Pair { _agent: agent, alice, bob, to_bob, to_alice }
}

fn pair() -> Pair {
    pair_with(ActiveOptions::default(), Geometry::default())
}

/// Polls both sides in turn until there is nothing more to do.
fn settle(alice: &mut Active, bob: &mut Active) {
    // An idle poll tells the other side of room, and the next one uses it.
    let mut idle = 0;
    while idle < 3 {
        idle = if alice.poll().unwrap() + bob.poll().unwrap() > 0 { 0 } else { idle + 1 };
    }
}

#[test]
fn a_request_calls_its_handler_and_the_reply_calls_another() {
    let Pair { _agent, mut alice, mut bob, to_bob, .. } = pair();
    for arguments in [&[][..], &[7], &[1, 2, 3, 4]] {
        alice.request(to_bob, ADD, arguments, &[]).unwrap();
    }
    assert_eq!(alice.outstanding(to_bob), 3);
    settle(&mut alice, &mut bob);
    assert_eq!(alice.state().sums, [0, 7, 10]);
    assert_eq!(alice.outstanding(to_bob), 0, "a reply completes its request");
}

#[test]
fn payloads_of_every_length_arrive_whole_beside_every_number_of_arguments() {
    let Pair { _agent, mut alice, mut bob, to_bob, .. } = pair();
    let message: Vec<u8> = (0..10_000_u32).map(|i| (i * 31 + i / 251) as u8).collect();
    for arguments in 0..=4 {
        for bytes in (0..70).chain([1000, 2048, 10_000]) {
            alice.request(to_bob, ECHO, &[1, 2, 3, 4][..arguments], &message[..bytes]).unwrap();
            settle(&mut alice, &mut bob);
            assert_eq!(alice.state_mut().echoes.pop().unwrap(), message[..bytes], "{arguments} arguments");
        }
    }
    let too_long = alice.request(to_bob, ECHO, &[], &vec![0; 20_480]);
    assert_eq!(too_long, Err(ActiveError::TooLong { bytes: 20_488, limit: 20_480 }));
    assert_eq!(alice.outstanding(to_bob), 0, "what was not sent is not waited for");
}

#[test]
fn requests_without_a_reply_are_acknowledged_and_the_window_holds_back() {
    let Pair { _agent, mut alice, mut bob, to_bob, .. } = pair();
    for note in 0..16 {
        alice.try_request(to_bob, NOTE, &[note], &[]).unwrap();
    }
    assert_eq!(alice.try_request(to_bob, NOTE, &[16], &[]), Err(ActiveError::Busy));
    bob.poll().unwrap();
    assert_eq!(bob.state().notes, (0..16).collect::<Vec<_>>());
    alice.poll().unwrap();
    assert_eq!(alice.outstanding(to_bob), 0);
    let acknowledgements = alice.endpoint().counters(to_bob).unwrap().received;
    assert!(acknowledgements <= 2, "{acknowledgements} messages acknowledge 16 requests");
    alice.try_request(to_bob, NOTE, &[16], &[]).unwrap();
}

/// A window of requests and one of replies may stand unread in a ring, and as much again be read and not yet announced.
#[test]
#[should_panic(expected = "a window of 17 with 64 slots")]
fn fewer_than_four_slots_for_each_request_of_the_window_are_refused() {
    pair_with(ActiveOptions { window: 17, ..ActiveOptions::default() }, Geometry::default());
}

#[test]
fn a_peer_that_completes_nothing_is_waited_for_no_longer_than_the_patience() {
    let options = ActiveOptions { patience: Duration::from_millis(20), ..ActiveOptions::default() };
    let Pair { _agent, mut alice, bob: _bob, to_bob, .. } = pair_with(options, Geometry::default());
    for note in 0..16 {
        alice.request(to_bob, NOTE, &[note], &[]).unwrap();
    }
    assert_eq!(alice.request(to_bob, NOTE, &[16], &[]), Err(ActiveError::Busy));
}

/// Two sides that send as fast as they can and poll only when they must: each handles the other's requests while its
/// own window is full, so both get through. Payloads are large enough that the payload area, too, is full.
#[test]
fn two_sides_that_flood_each_other_both_get_through() {
    const REQUESTS: u64 = 20_000;
    let Pair { _agent, alice, bob, to_bob, to_alice } = pair();
    let done = AtomicU32::new(0);
    let flood = |mut active: Active, channel: ChannelKey| {
        for number in 0..REQUESTS {
            let handler = if number % 3 == 0 { ECHO } else { NOTE };
            let payload = vec![number as u8; (number % 5) as usize * 700];
            active.request(channel, handler, &[number], &payload).unwrap();
        }
        while active.outstanding(channel) > 0 {
            active.poll_within(SOON).unwrap();
        }
        // Who is done first goes on handling what the other sends.
        done.fetch_add(1, Ordering::SeqCst);
        while done.load(Ordering::SeqCst) < 2 {
            active.poll_within(Duration::from_millis(1)).unwrap();
        }
        active
    };
    let (alice, bob) = std::thread::scope(|scope| {
        let other = scope.spawn(|| flood(bob, to_alice));
        (flood(alice, to_bob), other.join().unwrap())
    });
    for active in [&alice, &bob] {
        let notes: Vec<u64> = (0..REQUESTS).filter(|number| number % 3 != 0).collect();
        assert_eq!(active.state().notes, notes, "each once, in order");
        assert_eq!(active.state().echoes.len() as u64, REQUESTS.div_ceil(3));
        for (number, echo) in (0..).step_by(3).zip(&active.state().echoes) {
            assert_eq!(*echo, vec![number as u8; (number % 5) as usize * 700]);
        }
    }
}

/// A full window of replies that fill the payload area many times over, to a requester that reads nothing meanwhile.
#[test]
fn a_reply_handler_never_waits_for_room() {
    let Pair { _agent, mut alice, mut bob, to_bob, .. } = pair();
    for number in 0..16_u8 {
        while alice.try_request(to_bob, ECHO, &[], &[number; 8000]).is_err() {
            // Bob handles, and alice reads none of his answers.
            bob.poll().unwrap();
        }
    }
    bob.poll().unwrap();
    assert_eq!(alice.outstanding(to_bob), 16);
    settle(&mut alice, &mut bob);
    let echoes: Vec<u8> = alice.state().echoes.iter().map(|echo| echo[7999]).collect();
    assert_eq!(echoes, (0..16).collect::<Vec<u8>>());
}

#[test]
fn blocks_are_stored_whole_and_got_back() {
    for payload_bytes in [0, 4096, 20 << 10] {
        let Pair { _agent, mut alice, mut bob, to_bob, .. } =
            pair_with(ActiveOptions::default(), Geometry { slots: 64, payload_bytes });
        if payload_bytes == 0 {
            // 56 bytes a message leave nothing beside seven words.
            assert!(matches!(alice.store(to_bob, 3, 0, &[], b"x"), Err(ActiveError::TooLong { .. })));
            continue;
        }
        bob.add_region(3, vec![0; 300_000], Access::StoreAndGet, |seen: &mut Seen, stored| {
            seen.stored.push((stored.offset, stored.bytes.to_vec(), stored.arguments.to_vec()));
        });
        let block: Vec<u8> = (0..200_000_u32).map(|i| (i * 7 + i / 255) as u8).collect();
        let server = std::thread::spawn(move || {
            while bob.state().notes.is_empty() {
                bob.poll_within(SOON).unwrap();
            }
            bob
        });
        alice.store(to_bob, 3, 99, &[5, 6], &block).unwrap();
        alice.store(to_bob, 3, 299_999, &[], b"!").unwrap();
        alice.store(to_bob, 3, 300_000, &[1, 2, 3, 4], b"").unwrap();
        let mut back = vec![0; 200_100];
        alice.get(to_bob, 3, 98, &mut back).unwrap();
        assert_eq!(back[1..200_001], block);
        alice.get(to_bob, 3, 300_000, &mut []).unwrap();
        alice.request(to_bob, NOTE, &[0], &[]).unwrap();
        let mut bob = server.join().unwrap();
        assert_eq!(bob.region(3).unwrap()[299_999], b'!');
        let stored = &bob.state().stored;
        assert_eq!(stored.len(), 3, "once a block");
        assert_eq!(stored[0], (99, block, vec![5, 6]));
        assert_eq!(stored[1], (299_999, b"!".to_vec(), vec![]));
        assert_eq!(stored[2], (300_000, vec![], vec![1, 2, 3, 4]));
    }
}

/// The answers to "is it there?" of one side, while the other looks when it is told to.
#[test]
fn a_sender_learns_when_its_block_is_stored() {
    let Pair { _agent, mut alice, mut bob, to_bob, .. } = pair();
    bob.add_region(3, vec![0; 100_000], Access::Store, |seen: &mut Seen, stored| {
        seen.stored.push((stored.offset, stored.bytes.to_vec(), vec![]));
    });
    let server = std::thread::spawn(move || {
        while bob.state().stored.is_empty() {
            bob.poll_within(SOON).unwrap();
        }
        bob
    });
    // In many fragments: the window makes alice wait for all but the last few.
    let long = alice.store(to_bob, 3, 0, &[], &[7; 100_000]).unwrap();
    alice.await_stored(long).unwrap();
    assert_eq!(alice.is_stored(long), Ok(true));
    let mut bob = server.join().unwrap();
    assert_eq!(bob.state().stored.len(), 1, "whoever knows that it is stored knows that it was handled");

    let then = |number| move |seen: &mut Seen| seen.notes.push(number);
    let first = alice.store_then(to_bob, 3, 0, &[], b"first", then(1)).unwrap();
    alice.request(to_bob, ADD, &[1], &[]).unwrap();
    let second = alice.store_then(to_bob, 3, 5, &[], b"second", then(2)).unwrap();
    for _ in 0..10 {
        alice.poll().unwrap();
        assert_eq!(
            (alice.is_stored(first), alice.is_stored(second)),
            (Ok(false), Ok(false)),
            "bob has not looked"
        );
    }
    bob.extract(1).unwrap();
    alice.poll().unwrap();
    assert_eq!((alice.is_stored(first), alice.is_stored(second)), (Ok(true), Ok(false)));
    assert_eq!(alice.state().notes, [1]);
    bob.poll().unwrap();
    alice.sync().unwrap();
    assert_eq!((alice.is_stored(first), alice.is_stored(second)), (Ok(true), Ok(true)));
    assert_eq!(alice.state().notes, [1, 2]);
    assert_eq!(alice.outstanding(to_bob), 0, "all of it");

    let lost = alice.store_then(to_bob, 3, 0, &[], b"lost", then(3)).unwrap();
    drop(bob);
    assert!(matches!(alice.await_stored(lost), Err(ActiveError::Ended(_))));
    assert_eq!(alice.is_stored(lost), Err(ActiveError::NoChannel));
    assert_eq!(alice.is_stored(first), Ok(true), "what is known stays known");
    assert_eq!(alice.sync(), Ok(()), "nothing is awaited of who is gone");
    assert_eq!(alice.state().notes, [1, 2]);
}

/// A sender that stays within its windows never has to wait, and so once never looked at what came for it.
#[test]
fn who_only_sends_serves_its_peers_nevertheless() {
    let Pair { _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    bob.add_region(3, vec![0; 100], Access::Store, |_, _| {});
    for note in 0..3 {
        bob.request(to_alice, NOTE, &[note], &[]).unwrap();
    }
    for note in 0..=u64::from(REQUESTS_BETWEEN_POLLS) {
        assert_eq!(alice.state().notes.len(), 0, "not before every request");
        alice.request(to_bob, NOTE, &[note], &[]).unwrap();
    }
    assert_eq!(alice.state().notes, [0, 1, 2]);
    settle(&mut alice, &mut bob);
    bob.request(to_alice, NOTE, &[3], &[]).unwrap();
    for _ in 0..=REQUESTS_BETWEEN_POLLS {
        alice.store(to_bob, 3, 0, &[], b"x").unwrap();
    }
    assert_eq!(alice.state().notes, [0, 1, 2, 3], "stores look as well");
}

#[test]
fn extract_handles_as_many_bytes_as_it_is_told() {
    let Pair { _agent, mut alice, mut bob, to_bob, .. } = pair();
    for note in 0..10 {
        alice.request(to_bob, NOTE, &[note], &[0; 1000]).unwrap();
    }
    assert_eq!(bob.extract(2000).unwrap(), 2);
    assert_eq!(bob.extract(1).unwrap(), 1, "one, however long");
    assert_eq!(bob.extract(0).unwrap(), 0);
    assert_eq!(bob.state().notes, [0, 1, 2]);
    assert_eq!(bob.extract(usize::MAX).unwrap(), 7);
}

fn victim() -> (InProcess, Endpoint) {
    let agent = InProcess::start();
    let bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    (agent, bob)
}

/// A peer without an endpoint, which would refuse kinds that are reserved: it writes what it likes.
fn by_hand(victim: &mut Endpoint, peer: &str) -> Box<dyn Transport> {
    let (ours, theirs) = pair_for_tests(Geometry::default());
    victim.attach(peer, theirs).unwrap();
    ours
}

/// What a peer says wrong, and the rule that its end names.
#[test]
fn a_peer_that_breaks_a_rule_loses_its_channel_and_nobody_else_does() {
    let number = |number: u64| number.to_le_bytes().to_vec();
    let word = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let active = *kinds::ACTIVE.start();
    let cases = [
        (active, number(77), "a request for a handler that is not registered"),
        (active, vec![1, 2, 3], "shorter than its first word"),
        (active, number(5 << 32), "more than four arguments"),
        (active, number(1 | 2 << 32), "shorter than its arguments"),
        (active, number(1 << 41), "bits set that mean nothing"),
        (active + 1, number(0), "the peer acknowledged 1 messages beyond the 0 outstanding"),
        (active + 2, number(3 << 16), "the peer acknowledged 3 messages beyond the 0 outstanding"),
        (active + 3, word(&[9, 0, 0]), "a region that is not there"),
        (active + 3, word(&[3 | 1 << 40, 99, 0, 7, 7]), "leaves its region"),
        (active + 3, word(&[3, u64::MAX, 0, 7]), "leaves its region"),
        (active + 3, word(&[3 | 1 << 40, 0, 50, 7]), "leaves its region"),
        (active + 3, word(&[3]), "shorter than its own description"),
        (active + 4, word(&[3, 0, 1, 0]), "a region that is not there"),
        (active + 4, word(&[4, 90, 11, 0]), "leaves its region"),
        (active + 4, word(&[4, 0]), "a get has three words"),
        (active + 5, word(&[0, 0]), "beyond the 0 outstanding"),
        (active + 6, number(0), "message kind 134"),
        (7, number(0), "message kind 7"),
    ];
    for (kind, bytes, rule) in cases {
        let (_agent, mut bob) = victim();
        let (mut good, mut bad) = (by_hand(&mut bob, "alice/desk"), by_hand(&mut bob, "mallory/desk"));
        let mut victim = with_handlers(bob, ActiveOptions::default());
        victim.add_region(3, vec![0; 100], Access::Store, |_, _| {});
        victim.add_region(4, vec![0; 100], Access::Get, |_, _| {});
        bad.send(kind, &[&bytes]).unwrap();
        good.send(active, &[&word(&[u64::from(NOTE) | 1 << 32, 5])]).unwrap();
        let ended = loop {
            match victim.poll_within(SOON) {
                Ok(0) => panic!("{rule}: not noticed"),
                Ok(_) => {}
                Err(ended) => break ended,
            }
        };
        assert_eq!(ended.peer, "mallory/desk");
        assert!(matches!(ended.cause, Cause::Breach(_)), "{ended}");
        assert!(ended.to_string().contains(rule), "{ended} does not say {rule:?}");
        good.send(active, &[&word(&[u64::from(NOTE) | 1 << 32, 6])]).unwrap();
        while victim.state().notes != [5, 6] {
            assert!(victim.poll_within(SOON).unwrap() > 0, "the other peer is still served");
        }
    }
}

/// What looks like the answer that is waited for, and is of another layer. Over shared memory, where most messages take a
/// short way.
#[test]
fn a_message_of_another_kind_is_no_answer() {
    let (agent, bob) = victim();
    let mut mallory = agent.connect("mallory").unwrap().endpoint("desk").unwrap();
    let to_bob = mallory.open("bob/desk").unwrap();
    let mut victim = with_handlers(bob, ActiveOptions::default());
    let to_mallory = victim.accept(SOON).unwrap();
    victim.request(to_mallory, ADD, &[1], &[]).unwrap();
    for kind in [0, 7] {
        mallory.send(to_bob, kind, &u64::from(ADD).to_le_bytes()).unwrap();
    }
    let ended = victim.poll_within(SOON).unwrap_err();
    assert_eq!(ended.cause, Cause::Breach(Breach::Kind(0)));
    assert!(victim.state().sums.is_empty(), "it calls no handler");
}

#[test]
fn a_peer_that_ignores_the_window_is_cut_off() {
    let (_agent, mut bob) = victim();
    let mut alice = by_hand(&mut bob, "alice/desk");
    let options = ActiveOptions { window: 4, ..ActiveOptions::default() };
    let mut victim = with_handlers(bob, options);
    // Answers that find no room are what a greedy requester could make us keep.
    let mut echo = u64::from(ECHO).to_le_bytes().to_vec();
    echo.resize(5000, 1);
    let ended = (0..1000).find_map(|_| {
        let _ = alice.send(*kinds::ACTIVE.start(), &[&echo]);
        victim.poll().err()
    });
    let ended = ended.expect("noticed long before so many answers are kept");
    let rule = Breach::Form("more requests are outstanding than the window allows");
    assert_eq!(ended.cause, Cause::Breach(rule));
}

#[test]
fn the_end_of_a_peer_ends_the_wait_for_it() {
    let Pair { _agent, mut alice, bob, to_bob, .. } = pair();
    for note in 0..16 {
        alice.request(to_bob, NOTE, &[note], &[]).unwrap();
    }
    drop(bob);
    let outcome = alice.request(to_bob, NOTE, &[16], &[]);
    assert!(matches!(&outcome, Err(ActiveError::Ended(ended)) if ended.channel == to_bob), "{outcome:?}");
    assert_eq!(alice.request(to_bob, NOTE, &[17], &[]), Err(ActiveError::NoChannel));
    assert_eq!(alice.poll(), Ok(0), "an end is told once");
}

#[test]
fn over_a_network_that_loses_every_request_runs_once_and_in_order() {
    const REQUESTS: u64 = 3000;
    let agent = InProcess::start();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mut bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    let (here, there) = lossy::pair(0x5eed);
    let to_bob = alice.attach("bob/desk", Box::new(here)).unwrap();
    bob.attach("alice/desk", Box::new(there)).unwrap();
    let mut alice = with_handlers(alice, ActiveOptions::default());
    let mut bob = with_handlers(bob, ActiveOptions::default());
    let server = std::thread::spawn(move || {
        while bob.state().notes.len() as u64 + bob.state().sums.len() as u64 <= REQUESTS / 2 {
            bob.poll_within(Duration::from_micros(200)).unwrap();
        }
        // The last acknowledgement may be lost, too.
        let until = std::time::Instant::now() + Duration::from_millis(300);
        while std::time::Instant::now() < until {
            bob.poll_within(Duration::from_micros(200)).unwrap();
        }
        bob
    });
    for number in 0..REQUESTS {
        alice.request(to_bob, if number % 2 == 0 { ADD } else { NOTE }, &[number], &[]).unwrap();
    }
    alice.request(to_bob, NOTE, &[u64::MAX], &[]).unwrap();
    let until = std::time::Instant::now() + SOON;
    while alice.outstanding(to_bob) > 0 && std::time::Instant::now() < until {
        alice.poll_within(Duration::from_micros(200)).unwrap();
    }
    assert_eq!(alice.state().sums, (0..REQUESTS).step_by(2).collect::<Vec<_>>());
    let notes: Vec<_> = (1..REQUESTS).step_by(2).chain([u64::MAX]).collect();
    assert_eq!(server.join().unwrap().state().notes, notes);
}

/// A block that is stored is stored: whoever is told so finds the peer's handler run, whatever frames were lost.
#[test]
fn over_a_network_that_loses_stores_are_told_of_when_they_are_there() {
    const BLOCKS: u64 = 60;
    let agent = InProcess::start();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mut bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    let (here, there) = lossy::pair(0x57073);
    let to_bob = alice.attach("bob/desk", Box::new(here)).unwrap();
    bob.attach("alice/desk", Box::new(there)).unwrap();
    let mut alice = with_handlers(alice, ActiveOptions::default());
    let mut bob = with_handlers(bob, ActiveOptions::default());
    let stored = std::sync::Arc::new(AtomicU32::new(0));
    let counted = std::sync::Arc::clone(&stored);
    bob.add_region(3, vec![0; 10_000], Access::Store, move |_, block| {
        assert!(block.bytes.iter().all(|&byte| u64::from(byte) == block.arguments[0]));
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Bounded, so that a failure on the other side is seen.
            let until = std::time::Instant::now() + SOON;
            while !over.load(Ordering::SeqCst) && std::time::Instant::now() < until {
                bob.poll_within(Duration::from_micros(200)).unwrap();
            }
        });
        for number in 0..BLOCKS {
            let told = std::sync::Arc::clone(&stored);
            let then = move |seen: &mut Seen| {
                assert!(u64::from(told.load(Ordering::SeqCst)) > number);
                seen.notes.push(number);
            };
            let block = vec![number as u8; 1 + 150 * number as usize];
            let store = alice.store_then(to_bob, 3, 0, &[number], &block, then).unwrap();
            if number % 3 == 0 {
                alice.await_stored(store).unwrap();
                assert_eq!(u64::from(stored.load(Ordering::SeqCst)), number + 1);
            }
        }
        alice.sync().unwrap();
        over.store(true, Ordering::SeqCst);
    });
    assert_eq!(u64::from(stored.load(Ordering::SeqCst)), BLOCKS);
    assert_eq!(alice.state().notes, (0..BLOCKS).collect::<Vec<_>>(), "each told once, in order");
}
