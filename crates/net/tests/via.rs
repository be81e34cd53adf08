//! Virtual interfaces between two endpoints, through a real agent.

mod lossy;

use std::time::Duration;

use comb_net::via::{
    Completion, Descriptor, InterfaceKey, InterfaceOptions, Interfaces, Loss, MemoryError, MemoryHandle,
    PairError, Reliability, Side, Span, SubmitError, Tag, WorkError,
};
use comb_net::{Access, AccessError, Endpoint, EndpointOptions, Geometry, InProcess};

const SOON: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(1);

/// One side: its interfaces, one of them connected, and 200,000 bytes of registered memory.
struct Party {
    via: Interfaces,
    key: InterfaceKey,
    tag: Tag,
    memory: MemoryHandle,
}

const MEMORY_BYTES: usize = 200_000;

impl Party {
    fn new(agent: &InProcess, name: &str, reliability: Reliability) -> Self {
        Self::with(agent, name, reliability, EndpointOptions::default())
    }

    fn with(agent: &InProcess, name: &str, reliability: Reliability, options: EndpointOptions) -> Self {
        Self::over(agent.connect(name).unwrap().endpoint_with("desk", options).unwrap(), reliability)
    }

    fn over(endpoint: Endpoint, reliability: Reliability) -> Self {
        let mut via = Interfaces::new(endpoint);
        let tag = via.new_tag();
        let memory = via.register(vec![0; MEMORY_BYTES], tag);
        let key = via.new_interface(InterfaceOptions { reliability, ..InterfaceOptions::new(tag) });
        Self { via, key, tag, memory }
    }

    fn span(&self, offset: usize, bytes: usize) -> Span {
        Span { memory: self.memory, offset, bytes }
    }

    fn send(&mut self, offset: usize, bytes: usize) {
        let span = self.span(offset, bytes);
        self.via.post_send(self.key, Descriptor::send(&[span])).unwrap();
    }

    fn receive(&mut self, offset: usize, bytes: usize) {
        let span = self.span(offset, bytes);
        self.via.post_receive(self.key, Descriptor::receive(&[span])).unwrap();
    }

    fn done(&mut self, side: Side) -> Completion {
        self.via.done_within(self.key, side, SOON).expect("a completion")
    }

    fn content(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.via.read(self.memory, offset, &mut content).unwrap();
        assert_eq!(self.via.memory(self.memory).unwrap()[offset..offset + bytes], content, "seen in place");
        content
    }
}

fn connect(alice: &mut Party, bob: &mut Party) {
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| bob.via.accept(bob.key, SOON).unwrap());
        alice.via.connect(alice.key, "bob/desk", SOON).unwrap();
        assert_eq!(accepting.join().unwrap(), "alice/desk");
    });
}

fn pair(reliability: Reliability) -> (InProcess, Party, Party) {
    let agent = InProcess::start();
    let mut alice = Party::new(&agent, "alice", reliability);
    let mut bob = Party::new(&agent, "bob", reliability);
    connect(&mut alice, &mut bob);
    (agent, alice, bob)
}

fn lost(completion: &Completion, by: &str) -> Loss {
    match &completion.outcome {
        Err(WorkError::Lost { peer, loss }) if peer == by => loss.clone(),
        other => panic!("{other:?} is no loss of {by}"),
    }
}

#[test]
fn messages_of_every_length_are_gathered_and_scattered() {
    for reliability in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
        let (_agent, mut alice, mut bob) = pair(reliability);
        let data: Vec<u8> = (0..MEMORY_BYTES).map(|i| u8::try_from(i % 253).unwrap()).collect();
        alice.via.write(alice.memory, 0, &data).unwrap();
        for bytes in [0, 1, 40, 41, 57, 5_000, 20_480, 30_000, 100_000] {
            let (one, two) = (alice.span(7, bytes / 3), alice.span(50_000, bytes - bytes / 3));
            let (three, four) = (bob.span(100, bytes / 5), bob.span(60_000, MEMORY_BYTES - 60_000));
            bob.via.post_receive(bob.key, Descriptor::receive(&[three, four])).unwrap();
            let message = Descriptor::send(&[one, two]).with_immediate(77);
            let work = alice.via.post_send(alice.key, message).unwrap();
            let got = loop {
                // In one thread: a long message goes on when the receiver has made room.
                alice.via.progress();
                bob.via.progress();
                if let Some(got) = bob.via.take_done(bob.key, Side::Receive) {
                    break got;
                }
            };
            assert_eq!((got.outcome, got.immediate), (Ok(bytes), Some(77)), "{reliability:?}");
            let sent = [&data[7..7 + bytes / 3], &data[50_000..50_000 + bytes - bytes / 3]].concat();
            let came = [bob.content(100, bytes / 5), bob.content(60_000, bytes - bytes / 5)].concat();
            assert!(sent == came, "{bytes} bytes");
            let done = alice.done(Side::Send);
            assert_eq!((done.work, done.outcome), (work, Ok(bytes)));
        }
    }
}

#[test]
fn a_channel_of_eight_slots_and_nothing_else_carries_long_messages() {
    let agent = InProcess::start();
    let geometry = Geometry { slots: 8, payload_bytes: 0 };
    let options = EndpointOptions { geometry, ..EndpointOptions::default() };
    let mut alice = Party::with(&agent, "alice", Reliability::Reception, options);
    let mut bob = Party::with(&agent, "bob", Reliability::Reception, options);
    connect(&mut alice, &mut bob);
    alice.via.write(alice.memory, 0, &[5; 1000]).unwrap();
    bob.receive(0, 1000);
    alice.send(0, 1000);
    while bob.via.take_done(bob.key, Side::Receive).is_none() {
        alice.via.progress();
        bob.via.progress();
    }
    assert_eq!(bob.content(0, 1001), [&[5; 1000][..], &[0]].concat());
    assert_eq!(alice.done(Side::Send).outcome, Ok(1000));
}

#[test]
fn a_thousand_messages_wait_for_room_and_come_in_order() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Reception);
    for number in 0..1000 {
        bob.receive(number * 8, 8);
    }
    let sender = std::thread::spawn(move || {
        for number in 0..1000_usize {
            alice.via.write(alice.memory, number * 8, &number.to_le_bytes()).unwrap();
            alice.send(number * 8, 8);
        }
        for _ in 0..1000 {
            assert_eq!(alice.done(Side::Send).outcome, Ok(8));
        }
    });
    for number in 0..1000 {
        let done = bob.done(Side::Receive);
        assert_eq!((done.work.0, done.outcome), (number as u64, Ok(8)));
        assert_eq!(bob.content(number * 8, 8), number.to_le_bytes());
    }
    // The last acknowledgements wait for room as well.
    while !sender.is_finished() {
        bob.via.progress();
        std::thread::yield_now();
    }
    sender.join().unwrap();
}

#[test]
fn unreliable_drops_what_finds_no_place_and_counts_it() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Unreliable);
    alice.send(0, 30_000);
    for _ in 0..20 {
        // More than the channel takes at once: the rest follows when bob has dropped the beginning.
        alice.via.progress();
        bob.via.progress();
    }
    assert_eq!(alice.done(Side::Send).outcome, Ok(30_000));
    assert_eq!(bob.via.dropped(bob.key), Some(1));
    bob.receive(0, 10);
    alice.send(0, 11);
    let done = bob.done(Side::Receive);
    assert_eq!(done.outcome, Err(WorkError::TooLong { bytes: 11, room: 10 }));
    assert_eq!(bob.via.dropped(bob.key), Some(2));
    bob.receive(0, 10);
    alice.send(0, 10);
    assert_eq!(bob.done(Side::Receive).outcome, Ok(10), "the connection goes on");
}

#[test]
fn reliable_breaks_on_both_sides_when_there_is_no_place() {
    let missing = [(None, Loss::NoDescriptor), (Some(10), Loss::TooLong)];
    let levels = [Reliability::Delivery, Reliability::Reception];
    for (reliability, (room, loss)) in
        levels.into_iter().flat_map(|level| missing.clone().map(|case| (level, case)))
    {
        let (_agent, mut alice, mut bob) = pair(reliability);
        if let Some(room) = room {
            bob.receive(0, room);
        }
        alice.receive(0, 100);
        alice.send(0, 11);
        if reliability == Reliability::Delivery {
            assert_eq!(alice.done(Side::Send).outcome, Ok(11), "it was on its way");
        }
        if room.is_some() {
            bob.receive(20, 5);
            let done = bob.done(Side::Receive);
            assert_eq!(done.outcome, Err(WorkError::TooLong { bytes: 11, room: 10 }));
            assert_eq!(lost(&bob.done(Side::Receive), "alice/desk"), loss);
        } else {
            bob.via.progress();
        }
        assert_eq!(lost(&alice.done(Side::Receive), "bob/desk"), loss);
        if reliability == Reliability::Reception {
            assert_eq!(lost(&alice.done(Side::Send), "bob/desk"), loss, "it was not received");
        }
        for party in [(&mut alice, "bob/desk"), (&mut bob, "alice/desk")] {
            party.0.send(0, 1);
            assert_eq!(lost(&party.0.done(Side::Send), party.1), loss, "later sends fail too");
        }
        connect(&mut alice, &mut bob);
        bob.receive(0, 10);
        alice.send(0, 10);
        assert_eq!(bob.done(Side::Receive).outcome, Ok(10), "the pair can be made anew");
    }
}

#[test]
fn reliable_reception_completes_only_when_the_receiver_has_it() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Reception);
    bob.receive(0, 100);
    let span = alice.span(0, 50);
    let work = alice.via.post_send(alice.key, Descriptor::send(&[span])).unwrap();
    for _ in 0..10 {
        alice.via.progress();
        assert!(!alice.via.is_complete(alice.key, Side::Send, work), "bob has not looked");
    }
    bob.done(Side::Receive);
    assert_eq!(alice.done(Side::Send).outcome, Ok(50));
    assert!(alice.via.is_complete(alice.key, Side::Send, work));
}

/// Over a network that loses one frame in ten, doubles and swaps others: what each level promises, it promises here too.
#[test]
fn every_level_keeps_its_promise_over_a_network_that_loses() {
    const MESSAGES: usize = 400;
    for reliability in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
        let agent = InProcess::start();
        let (here, there) = lossy::pair(0x5eed);
        let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
        let mut bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
        let to_bob = alice.attach("bob/desk", Box::new(here)).unwrap();
        bob.attach("alice/desk", Box::new(there)).unwrap();
        let (mut alice, mut bob) = (Party::over(alice, reliability), Party::over(bob, reliability));
        // The last message, longer than a frame, too.
        let long = MESSAGES * 8;
        for number in 0..MESSAGES {
            bob.receive(number * 8, 8);
        }
        bob.receive(long, 5000);
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| bob.via.accept(bob.key, SOON).unwrap());
            alice.via.connect_over(alice.key, to_bob, SOON).unwrap();
            assert_eq!(accepting.join().unwrap(), "alice/desk");
        });
        for number in 0..MESSAGES {
            alice.via.write(alice.memory, number * 8, &number.to_le_bytes()).unwrap();
            alice.send(number * 8, 8);
        }
        alice.via.write(alice.memory, long, &[9; 5000]).unwrap();
        alice.send(long, 5000);
        let (mut sent, mut received) = (0, 0);
        while sent <= MESSAGES || received <= MESSAGES {
            alice.via.progress();
            bob.via.progress();
            while let Some(done) = bob.via.take_done(bob.key, Side::Receive) {
                assert_eq!((done.work.0, done.outcome.is_ok()), (received as u64, true), "{reliability:?}");
                received += 1;
            }
            while let Some(done) = alice.via.take_done(alice.key, Side::Send) {
                assert!(done.outcome.is_ok(), "{reliability:?}");
                sent += 1;
            }
            let early = reliability == Reliability::Reception && sent > received;
            assert!(!early, "{sent} sends are complete and {received} messages are there");
        }
        for number in 0..MESSAGES {
            assert_eq!(bob.content(number * 8, 8), number.to_le_bytes(), "each once, in order");
        }
        assert_eq!(bob.content(long, 5000), [9; 5000]);
        // And what is on purpose: no descriptor. It breaks the connection, or does not.
        alice.receive(0, 8);
        alice.send(0, 8);
        let until = std::time::Instant::now() + SOON;
        let broken = loop {
            alice.via.progress();
            bob.via.progress();
            if let Some(done) = alice.via.take_done(alice.key, Side::Receive) {
                break Some(lost(&done, "bob/desk"));
            }
            if bob.via.dropped(bob.key) == Some(1) {
                break None;
            }
            assert!(std::time::Instant::now() < until, "neither dropped nor broken");
        };
        let expected = (reliability != Reliability::Unreliable).then_some(Loss::NoDescriptor);
        assert_eq!(broken, expected, "{reliability:?}");
    }
}

#[test]
fn a_removed_interface_is_gone_with_its_connection_and_its_completions() {
    let agent = InProcess::start();
    let mut alice = Party::new(&agent, "alice", Reliability::Delivery);
    let mut bob = Party::new(&agent, "bob", Reliability::Delivery);
    let queue = bob.via.new_queue();
    let told = InterfaceOptions { receive_queue: Some(queue), ..InterfaceOptions::new(bob.tag) };
    let first = std::mem::replace(&mut bob.key, bob.via.new_interface(told));
    connect(&mut alice, &mut bob);
    bob.receive(0, 10);
    bob.receive(0, 10);
    alice.receive(0, 10);
    alice.send(0, 10);
    while !bob.via.is_complete(bob.key, Side::Receive, comb_net::via::WorkId(0)) {
        bob.via.progress();
    }
    assert_eq!(bob.via.deregister(bob.memory), Err(MemoryError::InUse));
    bob.via.remove_interface(bob.key);
    assert_eq!(bob.via.take_from(queue), None, "nor what was complete");
    assert_eq!(bob.via.take_done(bob.key, Side::Receive), None);
    assert_eq!(bob.via.peer(bob.key), None);
    let span = bob.span(0, 10);
    let gone = bob.via.post_receive(bob.key, Descriptor::receive(&[span]));
    assert_eq!(gone, Err(SubmitError::NoInterface));
    let gone = bob.via.connect(bob.key, "alice/desk", AT_ONCE).unwrap_err();
    assert!(matches!(gone, PairError::NoInterface), "{gone}");
    assert!(matches!(lost(&alice.done(Side::Receive), "bob/desk"), Loss::Ended(_)));
    // Its place is taken by another, to which the old key does not lead.
    let next = bob.via.new_interface(told);
    assert_eq!(bob.via.take_done(bob.key, Side::Receive), None);
    bob.key = next;
    connect(&mut alice, &mut bob);
    bob.receive(0, 10);
    alice.send(0, 10);
    assert_eq!(bob.via.from_queue_within(queue, SOON).unwrap().outcome, Ok(10));
    bob.via.remove_queue(queue);
    bob.receive(0, 10);
    alice.send(0, 10);
    assert_eq!(bob.done(Side::Receive).outcome, Ok(10), "without its completion queue");
    for key in [first, next] {
        bob.via.remove_interface(key);
    }
    assert_eq!(bob.via.deregister(bob.memory).unwrap().len(), MEMORY_BYTES);
}

#[test]
fn one_completion_queue_tells_of_many_interfaces() {
    let agent = InProcess::start();
    let mut server = Interfaces::new(agent.connect("server").unwrap().endpoint("desk").unwrap());
    let tag = server.new_tag();
    let queue = server.new_queue();
    let memory = server.register(vec![0; 300], tag);
    let mut clients = Vec::new();
    let mut keys = Vec::new();
    for number in 0..3_u8 {
        let options = InterfaceOptions { receive_queue: Some(queue), ..InterfaceOptions::new(tag) };
        let key = server.new_interface(options);
        let span = Span { memory, offset: usize::from(number) * 100, bytes: 100 };
        server.post_receive(key, Descriptor::receive(&[span])).unwrap();
        let mut client = Party::new(&agent, &format!("client{number}"), Reliability::Delivery);
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| server.accept(key, SOON).unwrap());
            client.via.connect(client.key, "server/desk", SOON).unwrap();
            assert_eq!(accepting.join().unwrap(), format!("client{number}/desk"));
        });
        keys.push(key);
        clients.push(client);
    }
    assert_eq!(server.take_from(queue), None);
    for number in [2_usize, 0, 1] {
        clients[number].send(0, number + 1);
        let done = server.from_queue_within(queue, SOON).unwrap();
        assert_eq!((done.interface, done.outcome), (keys[number], Ok(number + 1)));
    }
    assert_eq!(server.from_queue_within(queue, AT_ONCE), None);
    drop(clients.remove(0));
    for key in &keys {
        let span = Span { memory, offset: 0, bytes: 100 };
        server.post_receive(*key, Descriptor::receive(&[span])).unwrap();
    }
    let done = server.from_queue_within(queue, SOON).unwrap();
    assert_eq!(done.interface, keys[0]);
    lost(&done, "client0/desk");
}

#[test]
fn descriptors_with_wrong_memory_complete_with_an_error_and_send_nothing() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Delivery);
    bob.receive(0, 100);
    let other = alice.via.new_tag();
    let foreign = alice.via.register(vec![0; 10], other);
    let gone = alice.via.register(vec![3; 10], alice.tag);
    assert_eq!(alice.via.deregister(gone), Ok(vec![3; 10]));
    let good = alice.span(0, 8);
    for (bad, error) in [
        (Span { memory: foreign, offset: 0, bytes: 10 }, MemoryError::Tag),
        (Span { memory: gone, offset: 0, bytes: 10 }, MemoryError::Handle),
        (
            alice.span(MEMORY_BYTES - 9, 10),
            MemoryError::Range { offset: MEMORY_BYTES - 9, bytes: 10, registered: MEMORY_BYTES },
        ),
    ] {
        for side in [Side::Send, Side::Receive] {
            match side {
                Side::Send => alice.via.post_send(alice.key, Descriptor::send(&[good, bad])).unwrap(),
                Side::Receive => alice.via.post_receive(alice.key, Descriptor::receive(&[bad])).unwrap(),
            };
            assert_eq!(alice.done(side).outcome, Err(error.into()));
        }
    }
    bob.via.progress();
    assert_eq!(bob.via.take_done(bob.key, Side::Receive), None, "nothing came");
    assert_eq!(alice.via.deregister(gone), Err(MemoryError::Handle));
    assert_eq!(bob.via.deregister(bob.memory), Err(MemoryError::InUse));
}

#[test]
fn rdma_moves_bytes_without_the_peer() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Delivery);
    let inbox = bob.via.register_window(bob.key, 5000, Access::Put).unwrap();
    let shelf = bob.via.register_window(bob.key, 100, Access::Get).unwrap();
    let (inbox_number, shelf_number) =
        (bob.via.window_number(inbox).unwrap(), bob.via.window_number(shelf).unwrap());
    bob.via.write(shelf, 10, b"on the shelf").unwrap();
    for number in [inbox_number, shelf_number] {
        alice.via.take_window(alice.key, number, SOON).unwrap();
    }
    alice.via.write(alice.memory, 0, &[9; 3000]).unwrap();

    let (one, two) = (alice.span(0, 1000), alice.span(1500, 500));
    alice.via.post_send(alice.key, Descriptor::rdma_write(&[one, two], inbox_number, 3000)).unwrap();
    assert_eq!(alice.done(Side::Send).outcome, Ok(1500));
    let mut content = vec![0; 1501];
    bob.via.read(inbox, 2999, &mut content).unwrap();
    assert_eq!((content[0], &content[1..]), (0, &[9; 1500][..]));

    bob.receive(0, 0);
    let write = Descriptor::rdma_write(&[one], inbox_number, 0).with_immediate(5);
    alice.via.post_send(alice.key, write).unwrap();
    let notice = bob.done(Side::Receive);
    assert_eq!((notice.outcome, notice.immediate), (Ok(1000), Some(5)));

    let (three, four) = (alice.span(100, 2), alice.span(200, 10));
    alice.via.post_send(alice.key, Descriptor::rdma_read(&[three, four], shelf_number, 10)).unwrap();
    assert_eq!(alice.done(Side::Send).work.0, 1);
    assert_eq!(alice.done(Side::Send).outcome, Ok(12));
    assert_eq!([alice.content(100, 2), alice.content(200, 10)].concat(), b"on the shelf");

    let attempt = |alice: &mut Party, descriptor| {
        alice.via.post_send(alice.key, descriptor).unwrap();
        match alice.done(Side::Send).outcome {
            Err(WorkError::Access(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let error = attempt(&mut alice, Descriptor::rdma_write(&[one], shelf_number, 0));
    assert!(matches!(error, AccessError::Direction { .. }), "{error}");
    let error = attempt(&mut alice, Descriptor::rdma_write(&[one], inbox_number, 4001));
    assert!(matches!(error, AccessError::Range { .. }), "{error}");
    let error = attempt(&mut alice, Descriptor::rdma_read(&[one], 99, 0));
    assert_eq!(error, AccessError::Unknown(99));
    bob.via.deregister(inbox).unwrap();
    let error = attempt(&mut alice, Descriptor::rdma_write(&[one], inbox_number, 0).with_immediate(1));
    assert!(matches!(error, AccessError::Withdrawn { .. }), "{error}");
    bob.receive(0, 10);
    alice.send(0, 10);
    assert_eq!(bob.done(Side::Receive).outcome, Ok(10), "the connection goes on");
}

#[test]
fn an_rdma_read_is_refused_on_an_unreliable_interface() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Unreliable);
    let shelf = bob.via.register_window(bob.key, 100, Access::Get).unwrap();
    let number = bob.via.window_number(shelf).unwrap();
    alice.via.take_window(alice.key, number, SOON).unwrap();
    let span = alice.span(0, 10);
    alice.via.post_send(alice.key, Descriptor::rdma_read(&[span], number, 0)).unwrap();
    assert_eq!(alice.done(Side::Send).outcome, Err(WorkError::Unreliable));
}

#[test]
fn a_lost_peer_completes_everything_with_its_name() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Reception);
    bob.receive(0, 10);
    alice.receive(0, 10);
    alice.receive(10, 10);
    alice.send(0, 10);
    alice.send(0, 10);
    drop(bob);
    for side in [Side::Receive, Side::Receive, Side::Send, Side::Send] {
        let loss = lost(&alice.done(side), "bob/desk");
        assert!(matches!(loss, Loss::Ended(_)), "{loss}");
    }
    assert_eq!(alice.via.peer(alice.key), Some("bob/desk"));
}

#[test]
fn a_disconnected_peer_reads_what_was_sent_before() {
    let (_agent, mut alice, mut bob) = pair(Reliability::Delivery);
    bob.receive(0, 10);
    bob.receive(0, 10);
    alice.receive(0, 10);
    alice.send(0, 10);
    alice.via.disconnect(alice.key);
    assert_eq!(lost(&alice.done(Side::Receive), "bob/desk"), Loss::Disconnected);
    assert_eq!(bob.done(Side::Receive).outcome, Ok(10));
    assert!(matches!(lost(&bob.done(Side::Receive), "alice/desk"), Loss::Ended(_)));
}

#[test]
fn pairs_that_cannot_be_made_say_why() {
    let agent = InProcess::start();
    let mut alice = Party::new(&agent, "alice", Reliability::Delivery);
    let mut bob = Party::new(&agent, "bob", Reliability::Reception);
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| bob.via.accept(bob.key, SOON).unwrap_err());
        for error in [alice.via.connect(alice.key, "bob/desk", SOON).unwrap_err(), accepting.join().unwrap()]
        {
            assert!(matches!(&error, PairError::Refused { .. }), "{error}");
            let words = error.to_string();
            assert!(words.contains("Delivery") && words.contains("Reception"), "{words}");
        }
    });
    let nobody = alice.via.connect(alice.key, "bob/desk", AT_ONCE).unwrap_err();
    assert!(matches!(nobody, PairError::TimedOut(_)), "{nobody}");
    let nobody = alice.via.connect(alice.key, "carol/desk", AT_ONCE).unwrap_err();
    assert!(matches!(nobody, PairError::Request(_)), "{nobody}");
    let span = alice.span(0, 1);
    let send = |alice: &mut Party| alice.via.post_send(alice.key, Descriptor::send(&[span]));
    assert_eq!(send(&mut alice), Err(SubmitError::NotConnected));
    let wrong = alice.via.post_send(alice.key, Descriptor::receive(&[span]));
    assert_eq!(wrong, Err(SubmitError::WrongQueue));
    for _ in 0..1024 {
        alice.receive(0, 1);
    }
    let full = alice.via.post_receive(alice.key, Descriptor::receive(&[span]));
    assert_eq!(full, Err(SubmitError::Full(1024)));
}
