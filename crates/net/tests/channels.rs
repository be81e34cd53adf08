//! Channels between endpoints of one process, through a real agent: what users rely on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use comb_net::transport::{Capabilities, SendError, Transport};
use comb_net::{
    Agent, Breach, Cause, Endpoint, EndpointOptions, Geometry, InProcess, Payload, PostError, RequestError,
    TIMER_EVENT, TransportCounters,
};

const SOON: Duration = Duration::from_secs(10);

struct Pair {
    agent: InProcess,
    alice: Endpoint,
    bob: Endpoint,
    to_bob: comb_net::ChannelKey,
    to_alice: comb_net::ChannelKey,
}

fn pair_with(options: EndpointOptions) -> Pair {
    let agent = InProcess::start();
    let alice: Agent = agent.connect("alice").unwrap();
    let bob = agent.connect("bob").unwrap();
    let mut alice = alice.endpoint_with("desk", options).unwrap();
    let mut bob = bob.endpoint_with("desk", options).unwrap();
    let to_bob = alice.open("bob/desk").unwrap();
    let to_alice = bob.accept(SOON).expect("alice opened a channel");
    Pair { agent, alice, bob, to_bob, to_alice }
}

fn pair() -> Pair {
    pair_with(EndpointOptions::default())
}

#[test]
fn messages_of_every_length_arrive_whole_and_in_order() {
    every_length(pair());
}

#[test]
fn read_only_rings_carry_the_same() {
    every_length(pair_with(EndpointOptions { trap_wild_stores: true, ..EndpointOptions::default() }));
}

fn every_length(pair: Pair) {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice, .. } = pair;
    let content: Vec<u8> = (0..21_000_u32).map(|i| (i * 31 + i / 251).to_le_bytes()[0]).collect();
    let mut buffer = vec![0; 20_480];
    // So often that the longer ones are written both through the cache and past it.
    let longer = [1000, 1016, 1024, 2047, 2048, 2049, 4096, 8191, 20_480].repeat(16);
    for (number, bytes) in (0..200).chain(longer).enumerate() {
        // Never what stands there from the one before.
        let message = &content[number..number + bytes];
        alice.send(to_bob, 7, message).unwrap();
        let got = bob.receive_within(&mut buffer, SOON).unwrap().expect("sent before");
        assert_eq!((got.channel, got.kind, got.bytes), (to_alice, 7, bytes));
        assert_eq!(buffer[..bytes], *message);
        bob.send_gathered(to_alice, 8, &[&message[..bytes / 3], &[], &message[bytes / 3..]]).unwrap();
        let got = alice.receive_within(&mut buffer, SOON).unwrap().expect("sent before");
        assert_eq!((got.channel, got.kind, got.bytes), (to_bob, 8, bytes));
        assert_eq!(buffer[..bytes], *message, "gathered");
    }
    let error = alice.send(to_bob, 7, &vec![0; 20_481]).unwrap_err();
    assert_eq!(error, PostError::TooLong { bytes: 20_481, limit: 20_480 });
}

#[test]
fn a_full_ring_pushes_back_and_a_waiting_sender_goes_on_when_the_reader_reads() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, .. } = pair();
    let mut sent = 0_u64;
    while alice.send(to_bob, 0, &sent.to_le_bytes()).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 64, "as many as there are slots");
    assert!(matches!(alice.send(to_bob, 0, b"x"), Err(PostError::Full(peer)) if peer == "bob/desk"));
    assert!(matches!(
        alice.send_within(to_bob, 0, &[b"x"], Duration::from_millis(5)),
        Err(PostError::Full(_))
    ));
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4000];
        let mut received = 0_u64;
        while received < 20_000 {
            if let Some(got) = bob.receive_within(&mut buffer, SOON).unwrap() {
                assert_eq!(buffer[..8], received.to_le_bytes(), "in order, {} bytes", got.bytes);
                received += 1;
            }
        }
    });
    while sent < 20_000 {
        // Lengths on both sides of the slot's limit, so that room in the payload area is waited for too.
        let filler = vec![0_u8; (sent % 40) as usize * 100];
        alice.send_within(to_bob, 0, &[&sent.to_le_bytes(), &filler], SOON).unwrap();
        sent += 1;
    }
    reader.join().unwrap();
}

#[test]
fn closing_tells_the_peer_after_it_read_what_was_sent() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice, .. } = pair();
    alice.send(to_bob, 0, b"last words").unwrap();
    alice.close(to_bob);
    assert_eq!(alice.send(to_bob, 0, b"more"), Err(PostError::NoChannel), "the key is stale");
    let mut buffer = [0; 64];
    let got = bob.receive_within(&mut buffer, SOON).unwrap().expect("sent before the close");
    assert_eq!(&buffer[..got.bytes], b"last words");
    let ended = bob.receive_within(&mut buffer, SOON).unwrap_err();
    assert_eq!(ended.channel, to_alice);
    assert_eq!(ended.peer, "alice/desk");
    assert!(matches!(ended.cause, Cause::Left(_)), "{ended}");
    assert_eq!(bob.receive(&mut buffer), Ok(None), "an end is told once");
}

/// An endpoint looks for ends now and then even while every poll finds a message: often enough here to meet each of the
/// two in the midst of the other.
#[test]
fn an_end_that_is_seen_among_messages_is_told_after_the_last() {
    let Pair { agent: _agent, mut alice, mut bob, .. } = pair();
    for _ in 0..20 {
        let to_bob = alice.open("bob/desk").unwrap();
        let to_alice = bob.accept(SOON).expect("opened above");
        for number in 0..60_u64 {
            alice.send(to_bob, 0, &number.to_le_bytes()).unwrap();
        }
        alice.close(to_bob);
        let mut buffer = [0; 8];
        for number in 0..60_u64 {
            assert!(bob.receive(&mut buffer).unwrap().is_some(), "message {number} was sent before the end");
            assert_eq!(u64::from_le_bytes(buffer), number);
        }
        assert_eq!(bob.receive_within(&mut buffer, SOON).unwrap_err().channel, to_alice);
    }
}

#[test]
fn a_close_is_seen_without_the_agent() {
    let Pair { agent, mut alice, mut bob, to_bob, .. } = pair();
    drop(agent);
    alice.send(to_bob, 0, b"x").unwrap();
    alice.close(to_bob);
    let mut buffer = [0; 64];
    assert_eq!(bob.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 1);
    assert!(matches!(bob.receive_within(&mut buffer, SOON).unwrap_err().cause, Cause::Left(_)));
    assert!(matches!(alice.open("bob/desk"), Err(RequestError::AgentAway)));
}

#[test]
fn a_key_of_a_closed_channel_is_stale_though_its_place_is_taken() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, .. } = pair();
    alice.close(to_bob);
    let again = alice.open("bob/desk").unwrap();
    assert_eq!(alice.send(to_bob, 0, b"x"), Err(PostError::NoChannel));
    alice.send(again, 0, b"y").unwrap();
    let mut buffer = [0; 8];
    loop {
        match bob.receive_within(&mut buffer, SOON) {
            Ok(Some(got)) => break assert_eq!(got.bytes, 1),
            Ok(None) => panic!("nothing came"),
            Err(ended) => assert!(matches!(ended.cause, Cause::Left(_))),
        }
    }
}

#[test]
fn a_thousand_channels_on_one_endpoint_all_deliver() {
    let agent = InProcess::start();
    let mut hub = agent.connect("hub").unwrap().endpoint("in").unwrap();
    let spokes = agent.connect("spokes").unwrap();
    let small = Geometry { slots: 8, payload_bytes: 0 };
    let options = EndpointOptions { geometry: small, ..EndpointOptions::default() };
    let mut out = spokes.endpoint_with("out", options).unwrap();
    let keys: Vec<_> = (0..1000).map(|_| out.open("hub/in").unwrap()).collect();
    for (number, &key) in keys.iter().enumerate() {
        out.send(key, 1, &number.to_le_bytes()).unwrap();
    }
    let mut buffer = [0; 8];
    let mut seen = vec![false; 1000];
    for _ in 0..1000 {
        let got = hub.receive_within(&mut buffer, SOON).unwrap().expect("a thousand were sent");
        let number = usize::from_le_bytes(buffer);
        assert!(!std::mem::replace(&mut seen[number], true), "{number} came twice");
        hub.send(got.channel, 2, &buffer).unwrap();
    }
    for _ in 0..1000 {
        let got = out.receive_within(&mut buffer, SOON).unwrap().expect("a thousand answers");
        assert_eq!(got.channel, keys[usize::from_le_bytes(buffer)], "each answer on its own channel");
    }
}

/// Whoever sleeps often has its peers pay for the fence that others pay themselves.
#[test]
fn those_who_sleep_often_and_those_who_do_not_wake_each_other() {
    let often = EndpointOptions { sleeps_often: true, ..EndpointOptions::default() };
    for (ours, theirs) in [(often, EndpointOptions::default()), (often, often)] {
        let agent = InProcess::start();
        let mut alice = agent.connect("alice").unwrap().endpoint_with("desk", ours).unwrap();
        let mut bob = agent.connect("bob").unwrap().endpoint_with("desk", theirs).unwrap();
        let to_bob = alice.open("bob/desk").unwrap();
        let to_alice = bob.accept(SOON).expect("alice opened a channel");
        let mut buffer = [0; 4];
        let bob = std::thread::spawn(move || {
            for round in 0..1000_u32 {
                assert!(bob.receive_within(&mut buffer, SOON).unwrap().is_some(), "round {round}");
                bob.send(to_alice, 0, &buffer).unwrap();
            }
        });
        for round in 0..1000_u32 {
            alice.send(to_bob, 0, &round.to_le_bytes()).unwrap();
            assert!(alice.receive_within(&mut buffer, SOON).unwrap().is_some(), "round {round}");
            assert_eq!(u32::from_le_bytes(buffer), round);
        }
        bob.join().unwrap();
    }
}

/// A receiver keeps its count to itself until it is worth a cache line. One that took a message and went to sleep, without
/// finding in between that no other was there, kept it for as long as it slept: the sender waited for room that was there.
#[test]
fn who_goes_to_sleep_owes_no_room() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, .. } = pair();
    alice.send(to_bob, 0, &[1; 4096]).unwrap();
    assert!(bob.poll_once(|_| ()).unwrap());
    assert!(
        matches!(alice.send(to_bob, 0, &[2; 20_480]), Err(PostError::Full(_))),
        "too little to be announced"
    );
    bob.wait(Duration::from_millis(1));
    alice.send(to_bob, 0, &[2; 20_480]).unwrap();
}

/// Alice with sixteen channels to bob: with one more, bob looks at flags.
fn almost_too_many() -> (Pair, Vec<comb_net::ChannelKey>) {
    let mut pair = pair();
    let mut keys = vec![pair.to_bob];
    while keys.len() < 16 {
        keys.push(pair.alice.open("bob/desk").unwrap());
        pair.bob.accept(SOON).expect("opened above");
    }
    (pair, keys)
}

/// Who looks at flags looks besides at the channel that it asked on. An answer there at every look keeps nobody waiting.
#[test]
fn who_always_has_an_answer_hides_no_other() {
    let (Pair { agent: _agent, mut alice, mut bob, .. }, keys) = almost_too_many();
    alice.open("bob/desk").unwrap();
    bob.accept(SOON).expect("opened above");
    assert_eq!(bob.poll(|_| ()).unwrap(), 0);
    let answering = keys[3];
    alice.send(answering, 0, b"first").unwrap();
    let to_answering = bob.receive(&mut []).unwrap().expect("it is there").channel;
    (0..30).for_each(|_| alice.send(answering, 0, b"answer").unwrap());
    for round in 0..100 {
        alice.send(answering, 0, b"answer").unwrap();
        alice.send(keys[4 + round % 8], 0, b"other").unwrap();
        let mut next = || {
            bob.send(to_answering, 0, b"question").unwrap();
            bob.receive(&mut []).unwrap().expect("there are answers in any case").bytes
        };
        assert!([next(), next()].contains(&5), "in round {round}");
        (0..2).for_each(|_| assert!(alice.receive(&mut []).unwrap().is_some()));
    }
}

/// Flags tell only of what comes after they were demanded: what had come before was found when its turn came, many polls
/// later.
#[test]
fn what_came_before_flags_were_demanded_is_found_at_once() {
    let (Pair { agent: _agent, mut alice, mut bob, .. }, keys) = almost_too_many();
    alice.send(keys[5], 0, b"before").unwrap();
    alice.open("bob/desk").unwrap();
    bob.accept(SOON).expect("opened above");
    assert_eq!(bob.poll(|_| ()).unwrap(), 1);
}

/// A flag that was never raised says the same as one that says that 256 messages were read.
#[test]
fn what_came_before_flags_were_demanded_is_found_to_the_last() {
    let (Pair { agent: _agent, mut alice, mut bob, .. }, keys) = almost_too_many();
    let mut buffer = [0; 8];
    for _ in 0..240 {
        alice.send(keys[5], 0, b"read").unwrap();
        assert!(bob.receive(&mut buffer).unwrap().is_some());
    }
    for _ in 0..60 {
        alice.send(keys[5], 0, b"before").unwrap();
    }
    alice.open("bob/desk").unwrap();
    bob.accept(SOON).expect("opened above");
    for number in 0..60 {
        assert!(bob.receive(&mut buffer).unwrap().is_some(), "message {number} is there");
    }
}

/// A flag that is raised for a channel which is not installed yet was taken for that of the one before it in its place.
#[test]
fn what_comes_before_its_channel_is_installed_is_found_at_once() {
    let (Pair { agent: _agent, mut alice, mut bob, to_alice, .. }, _keys) = almost_too_many();
    alice.open("bob/desk").unwrap();
    bob.accept(SOON).expect("opened above");
    bob.close(to_alice);
    let again = alice.open("bob/desk").unwrap();
    alice.send(again, 0, b"early").unwrap();
    // Takes the flag; and installs the channel only if word of it came before.
    let first = bob.poll(|_| ()).unwrap();
    bob.accept(SOON).expect("opened above");
    assert_eq!(first + bob.poll(|_| ()).unwrap(), 1);
}

/// The flag of a long ring says the same again after 256 messages.
#[test]
fn messages_that_a_flag_cannot_tell_of_are_found_at_once() {
    let (Pair { agent, alice: _alice, mut bob, .. }, _keys) = almost_too_many();
    let geometry = Geometry { slots: 512, payload_bytes: 0 };
    let options = EndpointOptions { geometry, ..EndpointOptions::default() };
    let mut carol = agent.connect("carol").unwrap().endpoint_with("desk", options).unwrap();
    let to_bob = carol.open("bob/desk").unwrap();
    bob.accept(SOON).expect("opened above");
    assert_eq!(bob.poll(|_| ()).unwrap(), 0);
    for number in 0..300_u64 {
        carol.send(to_bob, 0, &number.to_le_bytes()).unwrap();
    }
    let mut buffer = [0; 8];
    for number in 0..300_u64 {
        assert!(bob.receive(&mut buffer).unwrap().is_some(), "message {number} is there");
        assert_eq!(u64::from_le_bytes(buffer), number);
    }
}

/// As long as one channel raises no flags, all are looked at. What was read so was not compared with flags afterwards.
#[test]
fn flags_are_trusted_again_only_after_a_look_at_every_channel() {
    let (Pair { agent: _agent, mut alice, mut bob, .. }, keys) = almost_too_many();
    alice.open("bob/desk").unwrap();
    bob.accept(SOON).expect("opened above");
    assert_eq!(bob.poll(|_| ()).unwrap(), 0);
    let (here, _there) = comb_net::pair_for_tests(Geometry::default());
    let attached = bob.attach("elsewhere", here).unwrap();
    for _ in 0..255 {
        alice.send(keys[5], 0, b"x").unwrap();
        assert!(bob.receive(&mut [0; 8]).unwrap().is_some());
    }
    bob.close(attached);
    alice.send(keys[5], 0, b"message 256").unwrap();
    assert_eq!(bob.poll(|_| ()).unwrap(), 1);
}

/// A transport that counts the looks at it.
struct Looked {
    looks: Arc<AtomicU32>,
    has_message: bool,
}

impl Transport for Looked {
    fn capabilities(&self) -> Capabilities {
        Capabilities { longest_message: 100, can_lose: true }
    }
    fn send(&mut self, _: u8, _: &[&[u8]]) -> Result<(), SendError> {
        Err(SendError::Full)
    }
    fn receive(&mut self, _: &mut dyn FnMut(u8, Payload<'_>)) -> Result<bool, Breach> {
        Ok(false)
    }
    fn is_idle(&mut self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed);
        !self.has_message
    }
    fn has_room(&mut self) -> bool {
        false
    }
    fn close(&mut self) {}
    fn peer_closed(&self) -> bool {
        false
    }
    fn counters(&self) -> TransportCounters {
        TransportCounters::default()
    }
}

/// Who waited for one thing while a channel to another host had a message looked at no other such channel: its peer heard
/// nothing for so long, and in the end took the process for dead.
#[test]
fn whoever_waits_for_something_else_is_heard_on_every_channel() {
    let Pair { agent: _agent, mut alice, .. } = pair();
    let looks: [Arc<AtomicU32>; 3] = Default::default();
    let keys: Vec<_> = looks
        .iter()
        .zip([true, false, false])
        .map(|(looks, has_message)| {
            alice.attach("far", Box::new(Looked { looks: Arc::clone(looks), has_message })).unwrap()
        })
        .collect();
    let all_were_looked_at = |what: &str| {
        for (number, looks) in looks.iter().enumerate() {
            let looks = looks.swap(0, Ordering::Relaxed);
            assert!(looks > 0, "nobody looked at channel {number} while it {what}");
        }
    };
    assert_eq!(alice.accept(Duration::from_millis(5)), None);
    all_were_looked_at("waited for a channel");
    let outcome = alice.send_within(keys[1], 0, &[b"x"], Duration::from_millis(200));
    assert!(matches!(outcome, Err(PostError::Full(_))));
    all_were_looked_at("waited for room");
}

#[test]
fn a_process_talks_to_itself() {
    let agent = InProcess::start();
    let process = agent.connect("solo").unwrap();
    let mut one = process.endpoint("one").unwrap();
    let mut two = process.endpoint("two").unwrap();
    let there = one.open("solo/two").unwrap();
    let back = two.accept(SOON).unwrap();
    one.send(there, 1, b"to myself").unwrap();
    let mut buffer = [0; 16];
    assert_eq!(two.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 9);
    two.close(back);
    assert_eq!(one.receive_within(&mut buffer, SOON).unwrap_err().channel, there);
}

/// Whoever polls looks at its mail while it computes: it is woken only when a sender has waited for long, and not for what it has read.
#[test]
fn who_polls_is_not_woken_at_once_and_in_the_end_after_all() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, .. } =
        pair_with(EndpointOptions { events: true, sleeps_often: true, ..EndpointOptions::default() });
    let mut buffer = [0; 8];
    let took_event = |bob: &Endpoint| {
        let mut space = [std::mem::MaybeUninit::uninit(); 4];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let (events, _) =
            rustix::event::epoll::wait(bob.event_descriptor().unwrap(), &mut space, Some(&none)).unwrap();
        events.iter().any(|event| event.data.u64() != TIMER_EVENT)
    };
    assert_eq!(bob.receive(&mut buffer), Ok(None));
    for round in 0..50_u64 {
        assert!(bob.arm_to_ask(true), "round {round}");
        took_event(&bob);
        alice.send(to_bob, 0, &round.to_le_bytes()).unwrap();
        assert!(bob.has_mail() && !took_event(&bob), "its mail is enough");
        match round % 3 {
            // It looks in time.
            0 => {
                bob.disarm();
                assert!(!bob.has_mail());
                assert_eq!(bob.receive(&mut buffer).unwrap().unwrap().bytes, 8);
                assert!(bob.arm_to_ask(true));
                alice.ring_unread();
                alice.ring_owed();
                assert!(!took_event(&bob), "it has read");
            }
            1 => alice.ring_unread(),
            _ => alice.ring_owed(),
        }
        if round % 3 != 0 {
            assert!(took_event(&bob), "nobody comes");
            bob.disarm();
            assert_eq!(bob.receive(&mut buffer).unwrap().unwrap().bytes, 8);
        }
        assert_eq!(buffer, round.to_le_bytes());
        bob.disarm();
    }
    assert!(bob.arm_to_ask(false));
    alice.send(to_bob, 0, b"x").unwrap();
    assert!(took_event(&bob), "it polls no more");
}

#[test]
fn an_event_loop_is_woken() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, .. } =
        pair_with(EndpointOptions { events: true, ..EndpointOptions::default() });
    let mut buffer = [0; 8];
    for round in 0..50_u64 {
        assert_eq!(bob.receive(&mut buffer), Ok(None));
        assert!(bob.arm());
        alice.send(to_bob, 0, &round.to_le_bytes()).unwrap();
        let descriptor = bob.event_descriptor().unwrap();
        let mut waiting = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut waiting, Some(&limit)), Ok(1));
        bob.disarm();
        assert_eq!(bob.receive(&mut buffer).unwrap().unwrap().bytes, 8);
        assert_eq!(buffer, round.to_le_bytes());
        // Takes the edge, as an event loop's epoll_wait does.
        let mut space = [std::mem::MaybeUninit::uninit(); 4];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = rustix::event::epoll::wait(bob.event_descriptor().unwrap(), &mut space, Some(&none));
    }
    assert!(bob.arm());
    alice.send(to_bob, 0, b"early").unwrap();
    bob.disarm();
    alice.send(to_bob, 0, b"x").unwrap();
    assert!(!bob.arm(), "something is there already");
}

#[test]
fn who_may_not_is_told_why() {
    let Pair { agent: _agent, mut alice, bob: _bob, .. } = pair();
    let refused = |outcome: Result<_, RequestError>, words: &str| {
        let error = outcome.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(alice.open("carol/desk"), "no process \"carol\"");
    refused(alice.open("bob/chair"), "no endpoint \"chair\"");
    refused(alice.open("bob"), "say process/endpoint");
    let taken = _agent.connect("bob").unwrap_err().to_string();
    assert!(taken.contains("is taken"), "{taken}");
    let bad = _agent.connect("b o b").unwrap_err().to_string();
    assert!(bad.contains("is no name"), "{bad}");
}

/// A peer that opened as soon as the agent knew the name was told "the endpoint was closed": the thread that asked for
/// the endpoint had not put it into the watcher's book yet. Here the test is the agent, and offers a channel right
/// behind its answer; the offer lacks its descriptors, which is the reason for which it may be refused.
#[test]
fn an_offer_right_behind_the_answer_finds_the_new_endpoint() {
    use comb_net::agent::Identity;
    use comb_net::agent::protocol::{Reply, Request, Side, receive, send};
    use comb_types::{ChannelId, EndpointId};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let client = std::thread::spawn(move || {
        let agent = Agent::over(theirs, "maker").unwrap();
        (0..50).map(|number| agent.endpoint(&format!("e{number}")).unwrap()).collect::<Vec<_>>()
    });
    let you = Identity { name: "maker".into(), pid: std::process::id(), uid: 0 };
    assert!(matches!(receive::<Request>(&ours).unwrap().0, Request::Hello { .. }));
    send(&ours, &Reply::Welcome { you: you.clone() }, &[]).unwrap();
    let mut reasons = Vec::new();
    let mut next = 1;
    while reasons.len() < 50 {
        match receive::<Request>(&ours).unwrap().0 {
            Request::CreateEndpoint { request, .. } => {
                let endpoint = EndpointId(next);
                next += 1;
                send(&ours, &Reply::EndpointCreated { request, endpoint }, &[]).unwrap();
                let side = Side {
                    geometry: Geometry::default(),
                    bell_index: 0,
                    event: false,
                    asymmetric_fences: false,
                };
                let offer = Reply::Offer {
                    channel: ChannelId(next),
                    endpoint,
                    from: you.clone(),
                    from_endpoint: "out".into(),
                    side,
                    bell_channels: 1,
                };
                send(&ours, &offer, &[]).unwrap();
            }
            Request::Refuse { reason, .. } => reasons.push(reason),
            other => panic!("{other:?}"),
        }
    }
    for reason in reasons {
        assert!(reason.contains("descriptors are missing"), "{reason}");
    }
    drop(ours);
    drop(client.join().unwrap());
}
