//! What peers and clients may not do, one case each: the guilty one is named with the rule that it broke, and the others
//! go on.

mod evil_peer;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use comb_net::agent::policy::{Identity, Limits, Policy};
use comb_net::agent::protocol::{self, LONGEST_MESSAGE, Reply, Request, WindowTerms};
use comb_net::queues::{Queues, QueuesOptions};
use comb_net::{
    Breach, Cause, ChannelKey, Endpoint, EndpointOptions, Geometry, InProcess, PostError, RequestError,
};
use comb_types::{ChannelId, EndpointId};
use evil_peer::{
    BELL_CHANNELS, BOTH, CLOSED, CONSUMED, DESCRIPTOR, EvilChannel, EvilPeer, MAGIC, Memory, QUENCH,
    board_bytes, good_ring, pack,
};
use rustix::fs::{MemfdFlags, SealFlags};

const SOON: Duration = Duration::from_secs(20);

/// Alice has a channel to Bob, who is honest, and one to Mallory, who is not.
struct Scene {
    agent: InProcess,
    alice: Endpoint,
    bob: Endpoint,
    to_bob: ChannelKey,
    mallory: EvilPeer,
    channel: EvilChannel,
    to_mallory: ChannelKey,
}

fn scene() -> Scene {
    let agent = InProcess::start();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    let to_bob = alice.open("bob/desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let channel = mallory.open("alice/desk");
    let to_mallory = alice.accept(SOON).expect("mallory opened");
    Scene { agent, alice, bob, to_bob, mallory, channel, to_mallory }
}

impl Scene {
    /// Alice finds the breach, Bob's channel works.
    fn expect(mut self, breach: Breach) {
        let mut buffer = [0; 64];
        let ended = loop {
            match self.alice.receive_within(&mut buffer, SOON) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the breach was not found: {breach}"),
                Err(ended) => break ended,
            }
        };
        assert_eq!((ended.channel, ended.peer.as_str()), (self.to_mallory, "mallory/desk"));
        assert_eq!(ended.cause, Cause::Breach(breach));
        let text = ended.to_string();
        assert!(text.contains("mallory/desk") && text.contains("rule broken"), "{text}");
        assert_eq!(self.alice.send(self.to_mallory, 0, b"x"), Err(PostError::NoChannel));
        self.bob_is_well();
    }

    fn bob_is_well(&mut self) {
        let mut buffer = [0; 64];
        self.alice.send(self.to_bob, 3, b"still there?").unwrap();
        let got = self.bob.receive_within(&mut buffer, SOON).unwrap().expect("just sent");
        assert_eq!(&buffer[..got.bytes], b"still there?");
        self.bob.send(got.channel, 3, b"yes").unwrap();
        let got = self.alice.receive_within(&mut buffer, SOON).unwrap().expect("just sent");
        assert_eq!((got.channel, &buffer[..got.bytes]), (self.to_bob, &b"yes"[..]));
    }
}

// ── what stands in memory ──

#[test]
fn a_sequence_number_that_jumps() {
    let mut scene = scene();
    scene.channel.send(1);
    scene.channel.post(7, 8, 1, 0, 0);
    scene.expect(Breach::Sequence { expected: 2, found: 7 });
}

#[test]
fn an_inline_length_beyond_the_slot() {
    let mut scene = scene();
    scene.channel.post(1, 57, 1, 0, 0);
    scene.expect(Breach::InlineLength(57));
}

#[test]
fn a_descriptor_outside_the_payload_area() {
    for (offset, bytes) in [
        (0, 20_481),
        (20_480, 1),
        (20_472, 16),
        (4, 8),
        (u32::MAX, 8),
        (8, u32::MAX),
        (u32::MAX - 7, u32::MAX),
    ] {
        let mut scene = scene();
        scene.channel.post(1, DESCRIPTOR, 1, 0, u64::from(offset) | u64::from(bytes) << 32);
        scene.expect(Breach::Descriptor { offset, bytes, area_bytes: 20_480 });
    }
}

#[test]
fn an_acknowledgement_in_a_header_of_what_was_never_sent() {
    let mut scene = scene();
    scene.alice.send(scene.to_mallory, 0, b"one").unwrap();
    scene.channel.post(1, 0, 1, 2, 0);
    scene.expect(Breach::Acknowledgement { alleged: 2, outstanding: 1 });
}

#[test]
fn an_acknowledgement_in_a_control_word_of_what_was_never_sent() {
    let mut scene = scene();
    for _ in 0..64 {
        scene.alice.send(scene.to_mallory, 0, b"x").unwrap();
    }
    scene.channel.own.store(CONSUMED, 65);
    let error = scene.alice.send(scene.to_mallory, 0, b"x").unwrap_err();
    let PostError::Ended(ended) = error else { panic!("{error}") };
    assert_eq!(ended.cause, Cause::Breach(Breach::Acknowledgement { alleged: 65, outstanding: 64 }));
    scene.bob_is_well();
}

#[test]
fn a_count_that_goes_backwards_is_only_ever_a_full_ring() {
    let mut scene = scene();
    for _ in 0..64 {
        scene.alice.send(scene.to_mallory, 0, b"x").unwrap();
    }
    scene.channel.own.store(CONSUMED, u64::from(u32::MAX));
    assert!(matches!(scene.alice.send(scene.to_mallory, 0, b"x"), Err(PostError::Full(_))));
    scene.bob_is_well();
}

/// The lease is what bounds the harm of a quench.
#[test]
fn a_quench_for_longer_than_a_lease_may_be() {
    const QUENCHED: u64 = 16;
    let mut scene = scene();
    scene.channel.own.store(QUENCH, 1_000_001 << 32 | 1);
    scene.mallory.bell().store(0, QUENCHED);
    scene.alice.send(scene.to_mallory, 0, b"the one that sees it").unwrap();
    let error = scene.alice.send(scene.to_mallory, 0, b"x").unwrap_err();
    let PostError::Ended(ended) = error else { panic!("{error}") };
    assert_eq!(ended.cause, Cause::Breach(Breach::Form("a quench for longer than a second")));
    scene.bob_is_well();
}

/// When the flow that was quenched had ended, senders looked for signals until another was quenched and let go.
#[test]
fn a_quenched_flow_that_ends_leaves_no_notice_on_the_board() {
    const QUENCHED: u64 = 16;
    let mut scene = scene();
    scene.alice.watch_backlog(comb_net::Marks::new(1, 1, 2, 4).unwrap());
    for _ in 0..2 {
        scene.alice.took_in(scene.to_mallory, 1).unwrap();
    }
    assert_eq!(scene.channel.their_bell.load(0) & QUENCHED, QUENCHED);
    scene.alice.close(scene.to_mallory);
    assert_eq!(scene.channel.their_bell.load(0) & QUENCHED, 0);
    scene.bob_is_well();
}

/// A message that became longer after its length had been looked at counted for more than there was room for, which the
/// queues had asserted cannot be.
#[test]
fn messages_that_change_their_length_stop_no_queues() {
    const MESSAGES: u32 = 50;
    let agent = InProcess::start();
    let options = QueuesOptions { segment_bytes: 1000, ..QueuesOptions::default() };
    let mut queues = Queues::new(agent.connect("alice").unwrap().endpoint("desk").unwrap(), options);
    let mallory = EvilPeer::connect(&agent, "mallory");
    let mut channel = mallory.open("alice/desk");
    queues.accept(SOON).expect("mallory opened");
    let changing = std::thread::spawn(move || {
        for number in 1..=MESSAGES {
            let slot = channel.slot();
            let [short, long] = [8, 20_480_u64].map(|bytes| bytes << 32);
            channel.post(number, DESCRIPTOR, 1, 0, short);
            channel.sent = number;
            while channel.theirs.load(CONSUMED) < number.into() {
                channel.own.store(slot + 1, long);
                channel.own.store(slot + 1, short);
            }
        }
    });
    let started = Instant::now();
    while queues.state().received < MESSAGES as usize {
        queues.service().unwrap();
        assert!(started.elapsed() < SOON, "{:?}", queues.state());
    }
    changing.join().unwrap();
    assert_eq!(std::iter::from_fn(|| queues.pop()).count(), MESSAGES as usize);
}

#[test]
fn a_key_is_stale_after_a_breach_though_the_place_is_taken_again() {
    let mut scene = scene();
    scene.channel.post(9, 8, 1, 0, 0);
    let mut buffer = [0; 8];
    scene.alice.receive_within(&mut buffer, SOON).unwrap_err();
    let mut again = scene.mallory.open("alice/desk");
    let key = scene.alice.accept(SOON).unwrap();
    assert_ne!(key, scene.to_mallory);
    // The old channel's memory is still in Mallory's hands; nobody listens there.
    scene.channel.post(1, 8, 1, 0, 66);
    again.send(77);
    let got = scene.alice.receive_within(&mut buffer, SOON).unwrap().expect("sent");
    assert_eq!((got.channel, u64::from_le_bytes(buffer)), (key, 77));
    assert_eq!(scene.alice.send(scene.to_mallory, 0, b"x"), Err(PostError::NoChannel));
    scene.bob_is_well();
}

#[test]
fn a_closed_word_ends_the_channel_after_what_was_sent() {
    let mut scene = scene();
    scene.channel.send(5);
    scene.channel.own.store(CLOSED, u64::MAX);
    let mut buffer = [0; 8];
    assert_eq!(scene.alice.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 8);
    assert!(matches!(scene.alice.receive_within(&mut buffer, SOON).unwrap_err().cause, Cause::Left(_)));
    scene.bob_is_well();
}

/// A send that failed because the peer had left took with it what the peer had said before.
#[test]
fn a_send_that_finds_the_end_does_not_take_away_what_came_before() {
    let mut scene = scene();
    while scene.alice.send(scene.to_mallory, 0, b"x").is_ok() {}
    scene.channel.send(41);
    scene.channel.own.store(CLOSED, 1);
    let error = scene.alice.send(scene.to_mallory, 0, b"x").unwrap_err();
    assert!(matches!(error, PostError::Ended(_)), "{error}");
    let mut buffer = [0; 8];
    let got = scene.alice.receive_within(&mut buffer, SOON).unwrap().expect("sent before the end");
    assert_eq!((got.channel, u64::from_le_bytes(buffer)), (scene.to_mallory, 41));
    assert!(matches!(scene.alice.receive_within(&mut buffer, SOON).unwrap_err().cause, Cause::Left(_)));
}

/// One busy peer kept an endpoint from ever looking for news: a new channel was not taken, and the end of another was
/// not told, for as long as messages came.
#[test]
fn a_peer_that_always_has_a_message_hides_neither_arrivals_nor_ends() {
    let mut scene = scene();
    scene.bob.accept(SOON).unwrap();
    drop(scene.bob);
    let mut buffer = [0; 8];
    let mut told = None;
    for round in 0..100_000_u64 {
        scene.channel.send(round);
        match scene.alice.receive(&mut buffer) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("message {round} was there"),
            Err(ended) => {
                told = Some(ended);
                break;
            }
        }
    }
    assert_eq!(told.expect("bob's end is told while mallory talks").peer, "bob/desk");
}

/// With many channels one busy sender's place in the queue kept the board from being looked at.
#[test]
fn a_busy_channel_among_many_does_not_starve_one_whose_flag_was_wiped() {
    let agent = InProcess::start();
    let mut hub = agent.connect("hub").unwrap().endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let mut loud = mallory.open("hub/desk");
    let mut spokes = agent.connect("spokes").unwrap().endpoint("desk").unwrap();
    let keys: Vec<_> = (0..30).map(|_| spokes.open("hub/desk").unwrap()).collect();
    for _ in 0..31 {
        hub.accept(SOON).unwrap();
    }
    let mut buffer = [0; 8];
    // Mallory is heard, and from now on always has one more.
    loud.send(0);
    assert!(hub.receive_within(&mut buffer, SOON).unwrap().is_some());
    spokes.send(keys[17], 9, b"quiet").unwrap();
    // All flags are wiped but Mallory's own.
    for word in 128 / 8..loud.their_bell.words() {
        loud.their_bell.store(word, 0);
    }
    for round in 0..10_000_u64 {
        loud.send(round);
        let got = hub.receive(&mut buffer).unwrap();
        if got.is_some_and(|got| got.kind == 9) {
            return;
        }
    }
    panic!("the quiet one was never heard");
}

/// An event loop whose peers' events were suppressed by a scribble of a third waited for ever.
#[test]
fn a_wiped_board_does_not_leave_an_event_loop_asleep() {
    let agent = InProcess::start();
    let options = EndpointOptions { events: true, ..EndpointOptions::default() };
    let mut alice = agent.connect("alice").unwrap().endpoint_with("desk", options).unwrap();
    let mut bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    let to_alice = bob.open("alice/desk").unwrap();
    alice.accept(SOON).unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let board = mallory.open("alice/desk").their_bell;
    alice.accept(SOON).unwrap();
    let mut buffer = [0; 8];
    let wait = |alice: &Endpoint| {
        let descriptor = alice.event_descriptor().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); 4];
        let limit = rustix::time::Timespec { tv_sec: 20, tv_nsec: 0 };
        let (events, _) = rustix::event::epoll::wait(descriptor, &mut space, Some(&limit)).unwrap();
        assert!(!events.is_empty(), "the event loop slept over a message");
    };
    while alice.receive(&mut buffer).unwrap().is_some() || !alice.arm() {}
    wait(&alice);
    while !alice.arm() {
        assert_eq!(alice.receive(&mut buffer), Ok(None));
    }
    board.store(0, 0);
    bob.send(to_alice, 1, b"hello").unwrap();
    wait(&alice);
    assert_eq!(alice.receive(&mut buffer).unwrap().unwrap().bytes, 5);
}

/// The eventfd of a closed channel stayed in the endpoint's set, because the peer had a copy of it.
#[test]
fn a_former_peer_wakes_no_event_loop() {
    let agent = InProcess::start();
    let options = EndpointOptions { events: true, ..EndpointOptions::default() };
    let mut alice = agent.connect("alice").unwrap().endpoint_with("desk", options).unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let ring = good_ring(Geometry::default());
    mallory.ask_open("alice/desk", mallory.side(Geometry::default()), &[ring.fd.as_fd()]);
    let (Reply::Opened { side, .. }, with) = mallory.hear() else { panic!("not opened") };
    assert!(side.event);
    let key = alice.accept(SOON).unwrap();
    let events = |alice: &Endpoint, limit: Duration| {
        let limit = rustix::time::Timespec::try_from(limit).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); 4];
        rustix::event::epoll::wait(alice.event_descriptor().unwrap(), &mut space, Some(&limit))
            .unwrap()
            .0
            .len()
    };
    assert_eq!(events(&alice, SOON), 1, "of the channel that came, which may be told after it was accepted");
    rustix::io::write(&with[1], &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(events(&alice, Duration::ZERO), 1, "as long as it is a peer");
    alice.close(key);
    rustix::io::write(&with[1], &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(events(&alice, Duration::ZERO), 0);
}

/// The demand for flags is on the board, where any peer can wipe it. It is made again.
#[test]
fn a_wiped_demand_for_flags_is_repaired() {
    const MANY: u64 = 2;
    let agent = InProcess::start();
    let mut hub = agent.connect("hub").unwrap().endpoint("desk").unwrap();
    let mut spokes = agent.connect("spokes").unwrap().endpoint("desk").unwrap();
    let keys: Vec<_> = (0..100).map(|_| spokes.open("hub/desk").unwrap()).collect();
    for _ in &keys {
        hub.accept(SOON).unwrap();
    }
    let mallory = EvilPeer::connect(&agent, "mallory");
    let board = mallory.open("hub/desk").their_bell;
    hub.accept(SOON).unwrap();
    assert_eq!(board.load(0) & MANY, MANY, "flags are demanded");
    let mut buffer = [0; 8];
    assert_eq!(
        hub.receive(&mut buffer),
        Ok(None),
        "every ring was looked at, as when flags are first demanded"
    );
    for (round, &key) in keys.iter().enumerate() {
        for word in 0..board.words() {
            board.store(word, 0);
        }
        spokes.send(key, 1, &round.to_le_bytes()).unwrap();
        let got = hub.receive_within(&mut buffer, SOON).unwrap().expect("found without its flag");
        assert_eq!((got.bytes, usize::from_le_bytes(buffer)), (8, round));
    }
    let started = Instant::now();
    while board.load(0) & MANY == 0 {
        assert!(started.elapsed() < SOON, "the demand is not repaired");
        assert_eq!(hub.receive(&mut buffer), Ok(None));
    }
}

/// An open that failed while another channel came in left a gap, and the number at which flags were demanded was jumped
/// over.
#[test]
fn flags_are_demanded_though_places_fill_out_of_order() {
    const MANY: u64 = 2;
    let agent = InProcess::start();
    let mut hub = agent.connect("hub").unwrap().endpoint("desk").unwrap();
    let (mallory, trent) = (EvilPeer::connect(&agent, "mallory"), EvilPeer::connect(&agent, "trent"));
    let _first: Vec<_> = (0..16).map(|_| mallory.open("hub/desk")).collect();
    for _ in 0..16 {
        hub.accept(SOON).unwrap();
    }
    let opening = std::thread::spawn(move || (hub.open("trent/desk").is_err(), hub));
    let (Reply::Offer { channel, .. }, _) = trent.hear() else { panic!("no offer") };
    let came = mallory.open("hub/desk");
    trent.tell(&Request::Refuse { channel, reason: "no".into() }, &[]);
    let (refused, mut hub) = opening.join().unwrap();
    assert!(refused);
    hub.accept(SOON).unwrap();
    assert_eq!(came.their_bell.load(0) & MANY, MANY);
}

// ── what comes by the handshake ──

/// Mallory opens with this ring and is refused with these words.
fn refused_ring(geometry: Geometry, ring: &OwnedFd, words: &str) {
    let agent = InProcess::start();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    mallory.ask_open("alice/desk", mallory.side(geometry), &[ring.as_fd()]);
    refused(&mallory, words);
    // Nothing of it stays: the next one is taken.
    let mut channel = mallory.open("alice/desk");
    channel.send(1);
    alice.accept(SOON).unwrap();
    assert!(alice.receive_within(&mut [0; 8], SOON).unwrap().is_some());
}

/// A window of a page.
fn share_window(owner: &EvilPeer, channel: ChannelId, number: u32) -> Request {
    let endpoint = owner.endpoint;
    let window = WindowTerms { channel, endpoint, number, epoch: 1, bytes: 4096, writable: true };
    Request::ShareWindow { request: 7, window }
}

fn refused(mallory: &EvilPeer, words: &str) {
    let (reply, _) = mallory.hear();
    let Reply::Refused { reason, .. } = &reply else { panic!("{reply:?}, not: {words}") };
    assert!(reason.contains(words), "{reason:?} does not say: {words}");
}

#[test]
fn rings_without_the_seals_that_protect() {
    let geometry = Geometry::default();
    for (seals, words) in [
        (SealFlags::empty(), "lacks the seals"),
        (SealFlags::GROW | SealFlags::SEAL, "SHRINK"),
        (SealFlags::SHRINK | SealFlags::SEAL, "GROW"),
        (SealFlags::SHRINK | SealFlags::GROW, "SEAL"),
    ] {
        let ring = Memory::create(geometry.segment_bytes(), seals);
        refused_ring(geometry, &ring.fd, words);
    }
}

#[test]
fn rings_that_are_no_sealed_memory() {
    let geometry = Geometry::default();
    let (pipe, _writer) = std::io::pipe().unwrap();
    refused_ring(geometry, &OwnedFd::from(pipe), "not sealed shared memory");
    let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    refused_ring(geometry, &file, "not sealed shared memory");
    let unsealable = rustix::fs::memfd_create("comb-evil", MemfdFlags::CLOEXEC).unwrap();
    refused_ring(geometry, &unsealable, "lacks the seals");
}

#[test]
fn rings_of_another_size_than_their_geometry_says() {
    let geometry = Geometry::default();
    for bytes in [geometry.segment_bytes() - 4096, geometry.segment_bytes() + 4096] {
        refused_ring(geometry, &Memory::create(bytes, BOTH).fd, "bytes of shared memory and handed over");
    }
}

#[test]
fn rings_whose_first_words_say_something_else() {
    let geometry = Geometry::default();
    let other = Geometry { slots: 128, payload_bytes: 16 << 10 };
    assert_eq!(geometry.segment_bytes(), other.segment_bytes(), "only the words differ");
    for (magic, packed) in [(0, pack(geometry)), (MAGIC, pack(other)), (MAGIC ^ 1 << 63, pack(geometry))] {
        let ring = Memory::create(geometry.segment_bytes(), BOTH);
        ring.store(0, magic);
        ring.store(1, packed);
        refused_ring(geometry, &ring.fd, "does not start as the handshake said");
    }
}

#[test]
fn geometries_out_of_range() {
    let ring = good_ring(Geometry::default());
    for (slots, payload_bytes) in [
        (0, 4096),
        (4, 4096),
        (63, 4096),
        (1 << 15, 4096),
        (64, 4095),
        (64, (256 << 20) + 4096),
        (u32::MAX, u32::MAX),
    ] {
        refused_ring(Geometry { slots, payload_bytes }, &ring.fd, "outside the limits");
    }
}

#[test]
fn a_flag_beyond_the_board() {
    let agent = InProcess::start();
    let _alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let geometry = Geometry::default();
    let ring = good_ring(geometry);
    for bell_index in [BELL_CHANNELS, u32::MAX] {
        let side = protocol::Side { bell_index, ..mallory.side(geometry) };
        mallory.ask_open("alice/desk", side, &[ring.fd.as_fd()]);
        refused(&mallory, "on a bell board with 64");
    }
}

/// A write to what a peer calls its eventfd could wait for ever: a full pipe, for example.
#[test]
fn an_event_that_is_no_eventfd() {
    let agent = InProcess::start();
    let _alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let geometry = Geometry::default();
    let ring = good_ring(geometry);
    let (_reader, writer) = std::io::pipe().unwrap();
    let side = protocol::Side { event: true, ..mallory.side(geometry) };
    mallory.ask_open("alice/desk", side, &[ring.fd.as_fd(), writer.as_fd()]);
    refused(&mallory, "no eventfd");
}

/// An eventfd that blocks, and is full, held the sender until its owner read it.
#[test]
fn an_eventfd_that_blocks_and_is_full_holds_nobody() {
    const EVENTS: u64 = 4;
    let agent = InProcess::start();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let geometry = Geometry::default();
    let ring = good_ring(geometry);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let side = protocol::Side { event: true, ..mallory.side(geometry) };
    mallory.ask_open("alice/desk", side, &[ring.fd.as_fd(), event.as_fd()]);
    assert!(matches!(mallory.hear().0, Reply::Opened { .. }));
    let key = alice.accept(SOON).unwrap();
    mallory.bell().store(0, EVENTS);
    alice.send(key, 0, b"x").unwrap();
}

#[test]
fn descriptors_too_few_too_many() {
    let agent = InProcess::start();
    let _alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let geometry = Geometry::default();
    let ring = good_ring(geometry);
    let fd = ring.fd.as_fd();
    mallory.ask_open("alice/desk", mallory.side(geometry), &[]);
    refused(&mallory, "0 descriptors came where 1 belong");
    mallory.ask_open("alice/desk", mallory.side(geometry), &[fd, fd, fd]);
    refused(&mallory, "3 descriptors came where 1 belong");
    mallory.ask_open("alice/desk", protocol::Side { event: true, ..mallory.side(geometry) }, &[fd]);
    refused(&mallory, "1 descriptors came where 2 belong");
    let create = Request::CreateEndpoint { request: 3, name: "chair".into(), bell_channels: 8 };
    mallory.tell(&create, &[fd, fd]);
    refused(&mallory, "2 descriptors came where 1 belong");
}

#[test]
fn what_belongs_to_others_is_not_mallorys_to_take() {
    let mut scene = scene();
    // A second evil process, with an offer of Alice's open to it.
    let trent = EvilPeer::connect(&scene.agent, "trent");
    let mut alice = scene.alice;
    let opening = std::thread::spawn(move || (alice.open("trent/desk").map(drop), alice));
    let (Reply::Offer { channel: offered, .. }, _) = trent.hear() else { panic!("no offer") };
    let geometry = Geometry::default();
    let ring = good_ring(geometry);
    let fd = ring.fd.as_fd();
    let mallory = &scene.mallory;
    let accept = |channel| Request::Accept { channel, side: mallory.side(geometry) };
    mallory.tell(&accept(offered), &[fd]);
    refused(mallory, "was offered to somebody else");
    mallory.tell(&Request::Refuse { channel: offered, reason: "no".into() }, &[]);
    refused(mallory, "was offered to somebody else");
    mallory.tell(&Request::CloseChannel { channel: offered }, &[]);
    refused(mallory, "is not this process's");
    mallory.tell(&share_window(mallory, offered, 0), &[fd]);
    refused(mallory, "is not this process's");
    mallory.tell(&share_window(mallory, scene.channel.id, 256), &[fd]);
    refused(mallory, "at most 256 windows");
    mallory.tell(&Request::CloseEndpoint { endpoint: trent.endpoint }, &[]);
    refused(mallory, "is not this process's");
    let open = Request::Open {
        request: 5,
        endpoint: trent.endpoint,
        to: "bob/desk".into(),
        side: mallory.side(geometry),
    };
    mallory.tell(&open, &[fd]);
    refused(mallory, "is not this process's");
    // Its own channel, which is accepted already.
    mallory.tell(&accept(scene.channel.id), &[fd]);
    refused(mallory, "was accepted already");
    mallory.tell(&Request::Refuse { channel: scene.channel.id, reason: "no".into() }, &[]);
    refused(mallory, "was accepted already");
    // What is not there is gone, and whoever takes it is told so.
    mallory.tell(&accept(ChannelId(offered.0.wrapping_add(1000))), &[fd]);
    assert!(matches!(mallory.hear().0, Reply::PeerGone { .. }));
    // Others' channels are not claimed by saying that the agent was away.
    for channel in [offered, scene.channel.id] {
        let restore = Request::RestoreEndpoint {
            request: 6,
            name: "lair".into(),
            bell_channels: 1,
            channels: vec![(channel, "alice/desk".into())],
            geometry: Geometry::default(),
        };
        mallory.tell(&restore, &[Memory::create(board_bytes(1), BOTH).fd.as_fd()]);
        refused(mallory, "not this endpoint's to restore");
    }
    // The offer is still Trent's, who takes it twice.
    let side = trent.side(geometry);
    trent.tell(&Request::Accept { channel: offered, side: side.clone() }, &[fd]);
    trent.tell(&Request::Accept { channel: offered, side }, &[fd]);
    refused(&trent, "was accepted already");
    let (opened, alice) = opening.join().unwrap();
    opened.unwrap();
    scene.alice = alice;
    scene.bob_is_well();
}

/// A window shared before the peer had taken the channel came back to the one who shared it.
#[test]
fn a_window_on_a_channel_that_is_only_offered_goes_nowhere() {
    let agent = InProcess::start();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let trent = EvilPeer::connect(&agent, "trent");
    let geometry = Geometry::default();
    let ring = good_ring(geometry);
    mallory.ask_open("trent/desk", mallory.side(geometry), &[ring.fd.as_fd()]);
    let (Reply::Offer { channel, .. }, _) = trent.hear() else { panic!("no offer") };
    let memory = Memory::create(4096, BOTH);
    mallory.tell(&share_window(&mallory, channel, 0), &[memory.fd.as_fd()]);
    refused(&mallory, "has not taken the channel yet");
}

#[test]
fn limits_are_kept_and_named() {
    let limits = Limits { endpoints: 2, channels: 3, memory_bytes: 200 << 10, ..Limits::default() };
    let agent = InProcess::with(Box::new(comb_net::agent::SameUser), limits);
    let few = EndpointOptions { channels: 3, ..EndpointOptions::default() };
    let process = agent.connect("alice").unwrap();
    let mut alice = process.endpoint_with("one", few).unwrap();
    let _two = process.endpoint_with("two", few).unwrap();
    let says = |error: RequestError, words: &str| {
        assert!(error.to_string().contains(words), "{error} does not say: {words}");
    };
    says(process.endpoint_with("three", few).unwrap_err(), "limit of 2 endpoints");
    let other = agent.connect("bob").unwrap();
    says(other.endpoint("desk").unwrap_err(), "1 to 3 channels");
    let mut bob = other.endpoint_with("desk", few).unwrap();
    let large = EndpointOptions { geometry: Geometry { slots: 64, payload_bytes: 256 << 10 }, ..few };
    let mut greedy = other.endpoint_with("greedy", large).unwrap();
    says(greedy.open("alice/one").unwrap_err(), "bytes of shared memory a process is reached");
    // What was refused is not charged.
    for _ in 0..3 {
        alice.open("bob/desk").unwrap();
        bob.accept(SOON).unwrap();
    }
    says(alice.open("bob/desk").unwrap_err(), "all of its 3 channels");
    let third = agent.connect("carol").unwrap();
    let mut carol = third.endpoint_with("desk", few).unwrap();
    says(carol.open("bob/desk").unwrap_err(), "the peer's limit of 3 channels");
}

/// The accepter kept a channel that its own agent had refused, with nobody at the other end.
#[test]
fn an_accepter_beyond_its_memory_is_told_and_so_is_the_opener() {
    let limits = Limits { endpoints: 2, channels: 8, memory_bytes: 100 << 10, ..Limits::default() };
    let agent = InProcess::with(Box::new(comb_net::agent::SameUser), limits);
    let few = EndpointOptions { channels: 8, ..EndpointOptions::default() };
    let large = EndpointOptions { geometry: Geometry { slots: 64, payload_bytes: 256 << 10 }, ..few };
    let mut alice = agent.connect("alice").unwrap().endpoint_with("desk", few).unwrap();
    let mut bob = agent.connect("bob").unwrap().endpoint_with("desk", large).unwrap();
    let error = alice.open("bob/desk").unwrap_err().to_string();
    assert!(error.contains("bob") && error.contains("bytes of shared memory"), "{error}");
    assert_eq!(bob.receive_within(&mut [], SOON).unwrap_err().peer, "alice/desk");
    assert_eq!(bob.channels().count(), 0);
}

struct OnlyTuesdays;

impl Policy for OnlyTuesdays {
    fn may_open(&self, from: &Identity, to: &Identity, endpoint: &str) -> Result<(), String> {
        assert_eq!((from.pid, to.pid), (std::process::id(), std::process::id()), "vouched for by the kernel");
        Err(format!("{} talks to {}/{endpoint} on Tuesdays only", from.name, to.name))
    }
}

#[test]
fn a_policy_refuses_in_its_own_words() {
    let agent = InProcess::with(Box::new(OnlyTuesdays), Limits::default());
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let _bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    let error = alice.open("bob/desk").unwrap_err().to_string();
    assert_eq!(error, "alice talks to bob/desk on Tuesdays only");
}

// ── what clients say to their agent ──

/// Sends bytes as the first message; what the agent answers before it hangs up.
fn first_words(agent: &InProcess, bytes: &[u8]) -> Result<Reply, protocol::ProtocolError> {
    let socket = agent.socket().unwrap();
    let mut none = rustix::net::SendAncillaryBuffer::default();
    let parts = [std::io::IoSlice::new(bytes)];
    rustix::net::sendmsg(&socket, &parts, &mut none, rustix::net::SendFlags::NOSIGNAL).unwrap();
    let reply = protocol::receive::<Reply>(&socket)?.0;
    if !matches!(reply, Reply::Welcome { .. }) {
        let after = protocol::receive::<Reply>(&socket);
        assert!(matches!(after, Err(protocol::ProtocolError::Ended)), "it hangs up: {after:?}");
    }
    Ok(reply)
}

fn is_dismissed(agent: &InProcess, bytes: &[u8], words: &str) {
    match first_words(agent, bytes) {
        Ok(Reply::Refused { request: None, reason }) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}, not: {words}"),
    }
}

#[test]
fn versions_one_apart_are_served_and_others_are_told_both_numbers() {
    let agent = InProcess::start();
    let hello = |version| [&[version, 0, 5][..], b"alice"].concat();
    is_dismissed(&agent, &hello(0), "version 0 and we speak 1");
    is_dismissed(&agent, &hello(3), "version 3 and we speak 1");
    assert!(matches!(first_words(&agent, &hello(2)), Ok(Reply::Welcome { .. })), "a neighbour");
}

#[test]
fn a_connection_starts_with_one_hello() {
    let agent = InProcess::start();
    is_dismissed(&agent, &protocol::encode(&Request::List { request: 1 }).unwrap(), "starts with one Hello");
    let mallory = EvilPeer::connect(&agent, "mallory");
    mallory.tell(&Request::Hello { name: "again".into() }, &[]);
    refused(&mallory, "starts with one Hello");
    assert!(matches!(protocol::receive::<Reply>(&mallory.socket), Err(protocol::ProtocolError::Ended)));
}

#[test]
fn datagrams_that_are_no_message_end_their_connection_only() {
    let agent = InProcess::start();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    is_dismissed(&agent, &[1, 0xEE, 0xEE], "no message of this protocol");
    is_dismissed(&agent, &[1; LONGEST_MESSAGE + 1], "beyond the protocol's limits");
    is_dismissed(&agent, &[1; 100_000], "beyond the protocol's limits");
    assert!(matches!(first_words(&agent, &[]), Err(protocol::ProtocolError::Ended)), "empty is a farewell");
    let mut bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    alice.open("bob/desk").unwrap();
    bob.accept(SOON).unwrap();
}

#[test]
fn names_are_plain_and_unique() {
    let agent = InProcess::start();
    let _mallory = EvilPeer::connect(&agent, "mallory");
    for name in ["", "a/b", "a b", "a\n", "\u{fc}", &"x".repeat(129)] {
        let error = agent.connect(name).unwrap_err().to_string();
        assert!(error.contains("is no name"), "{error}");
    }
    assert!(agent.connect("mallory").unwrap_err().to_string().contains("is taken"));
    let process = agent.connect(&"x".repeat(128)).unwrap();
    let _desk = process.endpoint("desk").unwrap();
    assert!(process.endpoint("desk").unwrap_err().to_string().contains("has an endpoint \"desk\" already"));
    assert!(process.endpoint("a/b").unwrap_err().to_string().contains("is no name"));
}

/// An agent that waited for a client to read would stand still for all.
#[test]
fn a_client_that_never_reads_does_not_stop_the_agent() {
    let agent = InProcess::start();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let list = protocol::encode(&Request::List { request: 1 }).unwrap();
    let mut sent = 0;
    // Asks until the agent has hung up; never reads.
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        let mut none = rustix::net::SendAncillaryBuffer::default();
        let parts = [std::io::IoSlice::new(&list)];
        if rustix::net::sendmsg(&mallory.socket, &parts, &mut none, rustix::net::SendFlags::NOSIGNAL).is_err()
        {
            break;
        }
        sent += 1;
    }
    assert!(Instant::now() < until, "the agent gave the deaf client up, after {sent} requests");
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    assert!(alice.open("mallory/desk").unwrap_err().to_string().contains("no process"));
}

#[test]
fn a_peer_that_never_answers_is_named_to_the_opener_who_then_goes_on() {
    let agent = InProcess::start();
    let process = agent.connect("alice").unwrap();
    process.set_answer_limit(Duration::from_millis(100));
    let mut alice = process.endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let error = alice.open("mallory/desk").unwrap_err();
    assert!(matches!(&error, RequestError::NoAnswer { whose, .. } if whose == "mallory/desk"), "{error}");
    // The answer comes too late: the channel that it would make is marked as left, and its place is free again.
    let late = mallory.accept();
    assert_eq!(late.theirs.load(CLOSED), 1);
    assert_eq!(alice.channels().count(), 0);
    process.set_answer_limit(SOON);
    assert!(matches!(mallory.hear().0, Reply::PeerGone { .. }), "the late answer is answered");
    let accepting = std::thread::spawn(move || mallory.accept());
    alice.open("mallory/desk").unwrap();
    accepting.join().unwrap();
}

#[test]
fn an_opener_of_a_peer_that_dies_before_its_answer_is_told() {
    let agent = InProcess::start();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let dying = std::thread::spawn(move || {
        let (offer, _) = mallory.hear();
        assert!(matches!(offer, Reply::Offer { .. }));
    });
    let error = alice.open("mallory/desk").unwrap_err().to_string();
    assert!(error.contains("mallory (process") && error.contains("left"), "{error}");
    dying.join().unwrap();
}

#[test]
fn bell_boards_are_checked_like_rings() {
    let agent = InProcess::start();
    let mallory = EvilPeer::connect(&agent, "mallory");
    let create = |bell_channels| Request::CreateEndpoint { request: 9, name: "chair".into(), bell_channels };
    let unsealed = Memory::create(board_bytes(8), SealFlags::empty());
    mallory.tell(&create(8), &[unsealed.fd.as_fd()]);
    refused(&mallory, "lacks the seals");
    let small = Memory::create(4096, BOTH);
    mallory.tell(&create(8000), &[small.fd.as_fd()]);
    refused(&mallory, "bytes of shared memory and handed over");
    for channels in [0, 8193, u32::MAX] {
        mallory.tell(&create(channels), &[small.fd.as_fd()]);
        refused(&mallory, "an endpoint takes 1 to 8192 channels");
    }
    mallory.tell(&Request::CloseEndpoint { endpoint: EndpointId(77) }, &[]);
    refused(&mallory, "is not this process's");
}
