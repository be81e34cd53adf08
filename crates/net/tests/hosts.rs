//! Channels between processes of two hosts, each with an agent of its own: over the loopback, and over a cable between
//! two network namespaces. How they end is in `hosts_ends.rs`.

use std::time::{Duration, Instant};

use comb_net::agent::{Hosts, Identity, Limits, Policy, SameUser};
use comb_net::via::{Descriptor, InterfaceOptions, Interfaces, Reliability, Side, Span};
use comb_net::{Cause, ChannelKey, Endpoint, EndpointOptions, InProcess, PostError, Received, RequestError};

#[path = "transports/namespaces.rs"]
mod namespaces;
mod room;

use namespaces::{ADDRESSES, Namespaces};
use room::Room;

const SOON: Duration = Duration::from_secs(10);
const EVENTS: EndpointOptions = EndpointOptions {
    channels: 64,
    events: true,
    sleeps_often: false,
    geometry: comb_net::Geometry { slots: 64, payload_bytes: 20 << 10 },
    trap_wild_stores: false,
    silence_limit: None,
    silence_limit_elsewhere: Duration::from_secs(10),
    looks_after: Duration::from_millis(100),
};

fn start(hosts: Hosts) -> InProcess {
    InProcess::among(Box::new(SameUser), Limits::default(), hosts).unwrap()
}

/// Alpha and beta, alpha knowing where beta is.
fn two_hosts() -> (InProcess, InProcess) {
    let room = Room::of(&["alpha", "beta"]);
    let beta = start(room.host("beta", "127.0.0.1", &[]));
    let alpha = start(room.host("alpha", "127.0.0.1", &[("beta", beta.door().unwrap())]));
    (alpha, beta)
}

struct Pair {
    alice: Endpoint,
    bob: Endpoint,
    to_bob: ChannelKey,
    to_alice: ChannelKey,
}

fn pair_with(alpha: &InProcess, beta: &InProcess, options: EndpointOptions) -> Pair {
    let mut alice = alpha.connect("alice").unwrap().endpoint_with("desk", options).unwrap();
    let mut bob = beta.connect("bob").unwrap().endpoint_with("desk", options).unwrap();
    let to_bob = alice.open("beta:bob/desk").unwrap();
    let to_alice = bob.accept(SOON).expect("alice opened a channel");
    Pair { alice, bob, to_bob, to_alice }
}

/// The next message. Its sender is there meanwhile, to send again what is lost: an AF_XDP socket at the end of a virtual cable takes no frames that
/// were sent at once, until its peer has found that out.
fn next(to: &mut Endpoint, from: &mut Endpoint, buffer: &mut [u8]) -> Received {
    let since = Instant::now();
    while since.elapsed() < SOON {
        if let Some(received) = to.receive(buffer).unwrap() {
            return received;
        }
        assert_eq!(from.receive(&mut []), Ok(None));
    }
    panic!("it was sent before");
}

fn every_length(Pair { mut alice, mut bob, to_bob, to_alice }: Pair) {
    assert_eq!(alice.peer(to_bob), Some("beta:bob/desk"));
    assert_eq!(bob.peer(to_alice), Some("alpha:alice/desk"));
    let message: Vec<u8> = (0..65_537_u32).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
    let mut buffer = vec![0; 70_000];
    // Around the lengths where a message takes one more frame, and up to the longest.
    for bytes in (0..100).chain(1380..1400).chain([2774, 2775, 2776, 10_000, 65_535, 65_536]) {
        alice.send(to_bob, 7, &message[..bytes]).unwrap();
        let got = next(&mut bob, &mut alice, &mut buffer);
        assert_eq!((got.channel, got.kind, got.bytes), (to_alice, 7, bytes));
        assert_eq!(buffer[..bytes], message[..bytes]);
        bob.send_gathered(to_alice, 8, &[&message[..bytes / 3], &message[bytes / 3..bytes]]).unwrap();
        let got = next(&mut alice, &mut bob, &mut buffer);
        assert_eq!((got.channel, got.kind, got.bytes), (to_bob, 8, bytes));
        assert_eq!(buffer[..bytes], message[..bytes], "gathered");
    }
    let error = alice.send(to_bob, 7, &message).unwrap_err();
    assert_eq!(error, PostError::TooLong { bytes: 65_537, limit: 65_536 });

    alice.send(to_bob, 0, b"last words").unwrap();
    alice.close(to_bob);
    assert_eq!(bob.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 10);
    let ended = bob.receive_within(&mut buffer, SOON).unwrap_err();
    assert_eq!((ended.channel, ended.peer.as_str()), (to_alice, "alpha:alice/desk"));
    assert!(matches!(ended.cause, Cause::Left(_)), "{ended}");
}

#[test]
fn processes_of_two_hosts_exchange_messages_of_every_length() {
    let (alpha, beta) = two_hosts();
    every_length(pair_with(&alpha, &beta, EVENTS));
}

#[test]
fn two_hosts_on_a_cable() {
    let namespaces = match Namespaces::make() {
        Ok(made) => made,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let room = Room::of(&["alpha", "beta"]);
    let beta = namespaces.within(1, || start(room.host("beta", ADDRESSES[1], &[])));
    let others = [("beta", beta.door().unwrap())];
    let alpha = namespaces.within(0, || start(room.host("alpha", ADDRESSES[0], &others)));
    every_length(pair_with(&alpha, &beta, EVENTS));
}

/// An interface's queue is taken where the host allows it, and only there; the two ends need not do the same.
#[cfg(feature = "xdp")]
#[test]
fn two_hosts_on_a_cable_past_the_kernels_protocols() {
    use namespaces::CABLE;
    for allowed in [[true, true], [true, false], [false, true]] {
        let namespaces = match Namespaces::make() {
            Ok(made) => made,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let room = Room::of(&["alpha", "beta"]);
        let allow = |hosts, end: usize| {
            let af_xdp = if allowed[end] { vec![CABLE.to_owned()] } else { vec!["v1".to_owned()] };
            start(comb_net::agent::Hosts { af_xdp, ..hosts })
        };
        let beta = namespaces.within(1, || allow(room.host("beta", ADDRESSES[1], &[]), 1));
        let others = [("beta", beta.door().unwrap())];
        let alpha = namespaces.within(0, || allow(room.host("alpha", ADDRESSES[0], &others), 0));
        // Whoever opens a queue must be where the interface is: a process and its watcher.
        let end = |agent: &InProcess, end, name| {
            namespaces.within(end, || agent.connect(name).unwrap().endpoint_with("desk", EVENTS).unwrap())
        };
        let (mut alice, mut bob) = (end(&alpha, 0, "alice"), end(&beta, 1, "bob"));
        let attached = || {
            [0, 1].map(|end| namespaces.ip(end, &["-d", "link", "show", CABLE]).unwrap().contains("prog/xdp"))
        };
        assert_eq!(attached(), [false; 2]);
        let to_bob = alice.open("beta:bob/desk").unwrap();
        let to_alice = bob.accept(SOON).unwrap();
        use comb_net::mechanism::{Mechanism, Probe};
        if Mechanism::AfXdp.is_available() {
            assert_eq!(attached(), allowed);
        }
        // A queue has one owner: this one goes the other way, and works as well.
        let second = alice.open("beta:bob/desk").unwrap();
        bob.accept(SOON).unwrap();
        alice.send(second, 9, b"beside it").unwrap();
        assert_eq!(bob.receive_within(&mut [0; 16], SOON).unwrap().unwrap().kind, 9);
        alice.close(second);
        assert!(bob.receive_within(&mut [0; 16], SOON).is_err());
        every_length(Pair { alice, bob, to_bob, to_alice });
    }
}

#[test]
fn hosts_that_both_run_plain_agree() {
    let room = Room::of(&["alpha", "beta"]);
    let plain = |hosts| start(Hosts { plain: true, ..hosts });
    let beta = plain(room.host("beta", "127.0.0.1", &[]));
    let alpha = plain(room.host("alpha", "127.0.0.1", &[("beta", beta.door().unwrap())]));
    every_length(pair_with(&alpha, &beta, EVENTS));
}

#[test]
fn a_sleeper_is_woken_and_local_channels_beside_it_too() {
    let (alpha, beta) = two_hosts();
    let Pair { mut alice, mut bob, to_bob, .. } = pair_with(&alpha, &beta, EVENTS);
    let mut carol = beta.connect("carol").unwrap().endpoint("desk").unwrap();
    let from_carol = carol.open("bob/desk").unwrap();
    bob.accept(SOON).unwrap();
    let sleeper = std::thread::spawn(move || {
        let mut buffer = [0; 8];
        let mut seen = Vec::new();
        while seen.len() < 40 {
            if bob.receive_within(&mut buffer, SOON).unwrap().is_some() {
                seen.push(buffer[0]);
            }
        }
        seen
    });
    for number in 0..20 {
        // Longer than any spin, shorter than the longest sleep.
        std::thread::sleep(Duration::from_millis(3));
        alice.send(to_bob, 0, &[number]).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        carol.send(from_carol, 0, &[100 + number]).unwrap();
    }
    let seen = sleeper.join().unwrap();
    assert!(seen.iter().filter(|n| **n < 100).copied().eq(0..20), "{seen:?}");
    assert!(seen.iter().filter(|n| **n >= 100).copied().eq(100..120), "{seen:?}");
}

#[test]
fn an_event_loop_hears_of_another_host() {
    let (alpha, beta) = two_hosts();
    let Pair { mut alice, mut bob, to_bob, .. } = pair_with(&alpha, &beta, EVENTS);
    let mut buffer = [0; 8];
    for number in 0..20 {
        assert_eq!(bob.receive(&mut buffer), Ok(None));
        while !bob.arm() {
            assert_eq!(bob.receive(&mut buffer), Ok(None), "only news can be there");
        }
        // Takes the edge of the channel's arrival, as an event loop does: only the message is to be heard of.
        let mut space = [std::mem::MaybeUninit::uninit(); 4];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let descriptor = bob.event_descriptor().unwrap();
        while !rustix::event::epoll::wait(descriptor, &mut space, Some(&none)).unwrap().0.is_empty() {}
        alice.send(to_bob, 0, &[number]).unwrap();
        let mut waiting = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut waiting, Some(&limit)), Ok(1));
        bob.disarm();
        let got = bob.receive_within(&mut buffer, SOON).unwrap().expect("it was announced");
        assert_eq!((got.bytes, buffer[0]), (1, number));
    }
}

/// Whether the descriptor of its events is readable within a time.
fn is_readable(endpoint: &Endpoint, limit: Duration) -> bool {
    let descriptor = endpoint.event_descriptor().unwrap();
    let mut waiting = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut waiting, Some(&limit.try_into().unwrap())) == Ok(1)
}

/// What the set of its events says, which it then says no more unless it is so still.
fn events(endpoint: &Endpoint) -> Vec<u64> {
    let mut space = [std::mem::MaybeUninit::uninit(); 16];
    let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    let descriptor = endpoint.event_descriptor().unwrap();
    let (events, _) = rustix::event::epoll::wait(descriptor, &mut space, Some(&none)).unwrap();
    events.iter().map(|event| event.data.u64()).collect()
}

#[test]
fn who_asks_after_arming_is_told_of_what_had_come_before() {
    let (alpha, beta) = two_hosts();
    let Pair { mut alice, mut bob, to_bob, .. } = pair_with(&alpha, &beta, EVENTS);
    let mut buffer = [0; 8];
    assert_eq!(bob.receive(&mut buffer), Ok(None));
    events(&bob);
    for number in 0..20 {
        alice.send(to_bob, 0, &[number]).unwrap();
        let in_socket = bob.arm_to_ask(false);
        assert!(in_socket, "nobody has taken it from the socket");
        assert!(is_readable(&bob, SOON), "its socket tells");
        // Looked at, it is not in the socket any more, of which nobody is told then.
        let since = Instant::now();
        while bob.arm() {
            assert!(since.elapsed() < SOON);
        }
        assert!(!bob.arm_to_ask(false), "it is in hand");
        bob.disarm();
        assert_eq!(bob.receive(&mut buffer).unwrap().map(|got| got.bytes), Some(1));
        assert_eq!(buffer[0], number);
    }
}

/// A timer that fires earlier than it need is left as it is: then it has to be set again once it has fired.
#[test]
fn who_waits_for_events_is_woken_to_acknowledge_what_it_has_taken() {
    let (alpha, beta) = two_hosts();
    let Pair { mut alice, mut bob, to_bob, .. } = pair_with(&alpha, &beta, EVENTS);
    let mut buffer = [0; 8];
    assert_eq!(bob.receive(&mut buffer), Ok(None));
    // That the channel is there.
    events(&bob);
    for number in 0..20 {
        alice.send(to_bob, 0, &[number]).unwrap();
        assert!(bob.receive_within(&mut buffer, SOON).unwrap().is_some());
        let since = Instant::now();
        while alice.counters(to_bob).unwrap().outstanding > 0 {
            // More than once, as who serves one after the other does.
            bob.arm_to_ask(false);
            bob.arm_to_ask(false);
            assert!(is_readable(&bob, SOON), "nobody else tells that something is due");
            assert!(events(&bob).contains(&comb_net::TIMER_EVENT));
            assert_eq!(bob.receive(&mut buffer), Ok(None));
            // It hears, and sends nothing again that would wake the other.
            assert_eq!(alice.receive(&mut buffer), Ok(None));
            assert!(since.elapsed() < SOON, "message {number} is never acknowledged");
        }
    }
}

#[test]
fn two_that_wait_for_each_other_in_vain_do_not_take_each_other_for_dead() {
    let (alpha, beta) = two_hosts();
    let options = EndpointOptions { silence_limit: Some(Duration::from_millis(400)), ..EVENTS };
    let Pair { mut alice, mut bob, to_bob, .. } = pair_with(&alpha, &beta, options);
    let wait = |end: &mut Endpoint| end.receive_within(&mut [0; 8], Duration::from_millis(1500));
    let waiting = std::thread::spawn(move || {
        let heard = wait(&mut bob);
        (bob, heard)
    });
    assert_eq!(wait(&mut alice), Ok(None));
    let (mut bob, heard) = waiting.join().unwrap();
    assert_eq!(heard, Ok(None));
    alice.send(to_bob, 0, b"still here").unwrap();
    assert_eq!(bob.receive_within(&mut [0; 16], SOON).unwrap().unwrap().bytes, 10);
    assert!(!alice.capabilities(to_bob).unwrap().can_lose);
}

/// Frames for a reader that does not read are lost in its host; the messages are not.
#[test]
fn a_reader_that_does_not_read_for_a_while_loses_nothing() {
    const MESSAGES: u32 = 3000;
    let (alpha, beta) = two_hosts();
    let Pair { mut alice, mut bob, to_bob, .. } = pair_with(&alpha, &beta, EVENTS);
    let filler = [7; 2000];
    let mut sent = 0_u32;
    while alice.send_gathered(to_bob, 1, &[&sent.to_le_bytes(), &filler]).is_ok() {
        sent += 1;
    }
    assert!(sent > 10, "there is a window");
    let full = alice.send_within(to_bob, 1, &[&sent.to_le_bytes(), &filler], Duration::from_millis(30));
    assert_eq!(full, Err(PostError::Full("beta:bob/desk".into())));
    let sender = std::thread::spawn(move || {
        for number in sent..MESSAGES {
            alice.send_within(to_bob, 1, &[&number.to_le_bytes(), &filler], SOON).unwrap();
        }
        // What the network lost last is said again after this.
        alice.close(to_bob);
        alice
    });
    let mut buffer = [0; 2100];
    for number in 0..MESSAGES {
        let got = bob.receive_within(&mut buffer, SOON).unwrap().expect("it was sent");
        assert_eq!((got.bytes, &buffer[..4]), (2004, &number.to_le_bytes()[..]));
        if number % 500 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let ended = bob.receive_within(&mut buffer, SOON).unwrap_err();
    assert!(matches!(ended.cause, Cause::Left(_)), "{ended}");
    sender.join().unwrap();
}

/// Their levels of reliability are the channel's: VIA promises each message once, or an error.
#[test]
fn virtual_interfaces_between_hosts_lose_nothing() {
    const MESSAGES: u8 = 60;
    const BYTES: usize = 30_000;
    let (alpha, beta) = two_hosts();
    let party = |agent: &InProcess, name| {
        let mut via = Interfaces::new(agent.connect(name).unwrap().endpoint_with("desk", EVENTS).unwrap());
        let tag = via.new_tag();
        let memory = via.register(vec![0; usize::from(MESSAGES) * BYTES], tag);
        let options = InterfaceOptions { reliability: Reliability::Reception, ..InterfaceOptions::new(tag) };
        let key = via.new_interface(options);
        let span = move |number: u8| Span { memory, offset: usize::from(number) * BYTES, bytes: BYTES };
        (via, key, memory, span)
    };
    let (mut alice, to_bob, out, filled) = party(&alpha, "alice");
    let (mut bob, to_alice, into, empty) = party(&beta, "bob");
    let receiver = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            bob.post_receive(to_alice, Descriptor::receive(&[empty(number)])).unwrap();
        }
        bob.accept(to_alice, SOON).unwrap();
        for number in 0..MESSAGES {
            let got = bob.done_within(to_alice, Side::Receive, SOON).expect("it was sent");
            assert_eq!(got.outcome, Ok(BYTES), "message {number}");
            let mut content = vec![0; BYTES];
            bob.read(into, empty(number).offset, &mut content).unwrap();
            assert!(content.iter().all(|byte| *byte == number), "message {number}");
            if number % 10 == 0 {
                // More than the network keeps comes meanwhile.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        bob
    });
    alice.connect(to_bob, "beta:bob/desk", SOON).unwrap();
    for number in 0..MESSAGES {
        alice.write(out, filled(number).offset, &vec![number; BYTES]).unwrap();
        alice.post_send(to_bob, Descriptor::send(&[filled(number)])).unwrap();
    }
    for _ in 0..MESSAGES {
        let sent = alice.done_within(to_bob, Side::Send, SOON).expect("bob takes it");
        assert_eq!(sent.outcome, Ok(BYTES));
    }
    receiver.join().unwrap();
}

#[test]
fn many_channels_to_another_host_all_deliver() {
    let (alpha, beta) = two_hosts();
    let mut hub = beta.connect("hub").unwrap().endpoint_with("in", EVENTS).unwrap();
    let mut out = alpha.connect("spokes").unwrap().endpoint_with("out", EVENTS).unwrap();
    let keys: Vec<_> = (0..40).map(|_| out.open("beta:hub/in").unwrap()).collect();
    for (number, &key) in keys.iter().enumerate() {
        out.send(key, 1, &number.to_le_bytes()).unwrap();
    }
    let mut buffer = [0; 8];
    let mut seen = [false; 40];
    for _ in 0..40 {
        let got = hub.receive_within(&mut buffer, SOON).unwrap().expect("forty were sent");
        let number = usize::from_le_bytes(buffer);
        assert!(!std::mem::replace(&mut seen[number], true), "{number} came twice");
        hub.send(got.channel, 2, &buffer).unwrap();
    }
    for _ in 0..40 {
        let got = out.receive_within(&mut buffer, SOON).unwrap().expect("forty answers");
        assert_eq!(got.channel, keys[usize::from_le_bytes(buffer)], "each answer on its own channel");
    }
}

#[test]
fn open_channels_outlive_both_agents_and_end_by_the_peers_silence() {
    let (alpha, beta) = two_hosts();
    let limit = Duration::from_millis(400);
    let options = EndpointOptions { silence_limit: Some(limit), ..EVENTS };
    let Pair { mut alice, mut bob, to_bob, to_alice } = pair_with(&alpha, &beta, options);
    drop((alpha, beta));
    let mut buffer = [0; 8];
    let started = Instant::now();
    while started.elapsed() < limit * 2 {
        alice.send(to_bob, 0, b"x").unwrap();
        assert!(bob.receive_within(&mut buffer, SOON).unwrap().is_some());
        bob.send(to_alice, 0, b"y").unwrap();
        assert!(alice.receive_within(&mut buffer, SOON).unwrap().is_some());
    }
    // Stopped for good, with its socket open: nobody says farewell and the network knows nothing of it.
    std::mem::forget(bob);
    let ended = loop {
        match alice.receive_within(&mut buffer, SOON) {
            Ok(got) => assert_eq!(got, None, "what could come?"),
            Err(ended) => break ended,
        }
    };
    assert_eq!((ended.channel, ended.cause), (to_bob, Cause::Silent(limit)));
}

fn refused<T>(outcome: Result<T, RequestError>, words: &[&str]) {
    let Err(error) = outcome else { panic!("it was allowed; expected {words:?}") };
    let error = error.to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error:?} lacks one of {words:?}");
}

#[test]
fn what_goes_wrong_between_hosts_names_the_host() {
    let room = Room::of(&["alpha", "beta", "gone"]);
    let beta = start(room.host("beta", "127.0.0.1", &[]));
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let others = [("beta", beta.door().unwrap()), ("gone", gone), ("delta", beta.door().unwrap())];
    let alpha = start(room.host("alpha", "127.0.0.1", &others));
    let mut alice = alpha.connect("alice").unwrap().endpoint_with("desk", EVENTS).unwrap();
    let bob = beta.connect("bob").unwrap();
    let _deaf = bob.endpoint("deaf").unwrap();

    refused(alice.open("gamma:bob/desk"), &["host gamma", "no address"]);
    refused(alice.open("gone:bob/desk"), &["host gone", "does not answer"]);
    refused(alice.open("beta:carol/desk"), &["host beta", "no process \"carol\""]);
    refused(alice.open("beta:bob/chair"), &["host beta", "no endpoint \"chair\""]);
    refused(alice.open("beta:bob"), &["host:process/endpoint"]);
    refused(alice.open(":bob/desk"), &["host:process/endpoint"]);
    refused(alice.open("beta:bob/deaf"), &["host beta", "EndpointOptions::events"]);
    // Beta's door, but not the host that we asked for.
    refused(alice.open("delta:bob/desk"), &["host delta"]);
    let mut without = alpha.connect("al").unwrap().endpoint("desk").unwrap();
    assert!(matches!(without.open("beta:bob/desk"), Err(RequestError::NeedsEvents)));
    let alone = InProcess::start();
    let mut lonely = alone.connect("al").unwrap().endpoint_with("desk", EVENTS).unwrap();
    refused(lonely.open("beta:bob/desk"), &["host beta", "no links to other hosts"]);
    // Nothing of all that is left behind.
    let listed = alpha.connect("looker").unwrap().list().unwrap();
    assert!(listed.iter().all(|process| process.channels == 0), "{listed:?}");
    let listed = beta.connect("looker").unwrap().list().unwrap();
    assert!(listed.iter().all(|process| process.channels == 0), "{listed:?}");
}

#[test]
fn a_host_that_is_not_known_is_not_let_in() {
    let (ours, theirs) = (Room::of(&["alpha", "beta"]), Room::of(&["mallory"]));
    let beta = start(ours.host("beta", "127.0.0.1", &[]));
    let mut mallory = theirs.host("mallory", "127.0.0.1", &[("beta", beta.door().unwrap())]);
    // It knows beta; beta does not know it.
    mallory.known = ours.known.clone();
    let mallory = start(mallory);
    let mut m = mallory.connect("m").unwrap().endpoint_with("desk", EVENTS).unwrap();
    let mut bob = beta.connect("bob").unwrap().endpoint_with("desk", EVENTS).unwrap();
    refused(m.open("beta:bob/desk"), &["host beta", "refused us"]);
    assert_eq!(bob.accept(Duration::from_millis(20)), None);
}

#[test]
fn one_plain_and_one_sealed_host_do_not_talk() {
    let room = Room::of(&["alpha", "beta"]);
    let beta = start(room.host("beta", "127.0.0.1", &[]));
    let others = [("beta", beta.door().unwrap())];
    let alpha = start(Hosts { plain: true, ..room.host("alpha", "127.0.0.1", &others) });
    let _bob = beta.connect("bob").unwrap().endpoint_with("desk", EVENTS).unwrap();
    let mut alice = alpha.connect("alice").unwrap().endpoint_with("desk", EVENTS).unwrap();
    refused(alice.open("beta:bob/desk"), &["host beta", "alpha does not seal", "beta does"]);
}

struct Nobody;

impl Policy for Nobody {
    fn may_open(&self, _: &Identity, _: &Identity, _: &str) -> Result<(), String> {
        Ok(())
    }
    fn may_leave(&self, from: &Identity, host: &str, _: &str) -> Result<(), String> {
        if host == "beta" { Ok(()) } else { Err(format!("{} may not go to {host}", from.name)) }
    }
    fn may_enter(&self, host: &str, from: &Identity, _: &Identity, _: &str) -> Result<(), String> {
        Err(format!("{} of {host} may not come in", from.name))
    }
}

#[test]
fn both_hosts_are_asked_whether_it_may_be() {
    let room = Room::of(&["alpha", "beta"]);
    let strict = |hosts| InProcess::among(Box::new(Nobody), Limits::default(), hosts).unwrap();
    let beta = strict(room.host("beta", "127.0.0.1", &[]));
    let alpha = strict(room.host("alpha", "127.0.0.1", &[("beta", beta.door().unwrap())]));
    let _bob = beta.connect("bob").unwrap().endpoint_with("desk", EVENTS).unwrap();
    let mut alice = alpha.connect("alice").unwrap().endpoint_with("desk", EVENTS).unwrap();
    refused(alice.open("gamma:bob/desk"), &["alice may not go to gamma"]);
    refused(alice.open("beta:bob/desk"), &["host beta", "alice of alpha may not come in"]);
}
