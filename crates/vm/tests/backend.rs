//! Engines come to a device and go, and say what they may and what they may not; their guests write what they like into the rings. The device gives back what
//! it reads, in capitals.

#![expect(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

mod engine;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comb_types::fuzz::Fuzz;
use comb_vm::devices::backend::{Device, Fault, Offer, Port, Ports, Turn};
use engine::{BUFFERS, Engine, Piece, Place, RING_SIZE, Served, memory, regions, wait_until};

use vhost::VhostBackend;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const CONFIGURATION: &[u8] = b"sixteen bytes it";
const MEMORY: usize = 2 << 20;

/// What the device has seen.
#[derive(Default)]
struct Seen {
    here: Vec<Port>,
    faults: Vec<String>,
}

#[derive(Clone, Default)]
struct Capitals(Arc<Mutex<Seen>>);

impl Device for Capitals {
    fn connected(&mut self, port: Port, socket: usize) -> Option<Offer> {
        assert_eq!(socket, 0);
        let mut seen = self.0.lock().expect("a lock");
        assert!(!seen.here.contains(&port), "a port is given once");
        seen.here.push(port);
        Some(Offer {
            features: 0,
            rings: 2,
            ring_size: RING_SIZE,
            configuration: CONFIGURATION.to_vec(),
            keepsake: None,
        })
    }

    fn serve(&mut self, ports: &mut Ports, port: Port, ring: usize) -> Turn {
        let ring = ports.ring(port, ring).expect("it is here");
        for _ in 0..RING_SIZE {
            let Some(chain) = ring.take() else {
                ring.notify();
                return if ring.rearm() { Turn::Again } else { Turn::Done };
            };
            let (head, memory) = (chain.head_index(), chain.memory().clone());
            let mut bytes = Vec::new();
            for piece in chain.clone().readable() {
                let mut read = vec![0; piece.len().min(4096) as usize];
                if memory.read_slice(&mut read, piece.addr()).is_ok() {
                    bytes.extend(read.to_ascii_uppercase());
                }
            }
            let mut written = 0;
            for piece in chain.writable() {
                let count = bytes.len().min(piece.len() as usize);
                if memory.write_slice(&bytes[..count], piece.addr()).is_ok() {
                    bytes.drain(..count);
                    written += count;
                }
            }
            ring.put(head, written.try_into().expect("a few bytes"));
        }
        ring.notify();
        Turn::Again
    }

    fn disconnected(&mut self, port: Port, why: Result<(), Fault>) {
        let mut seen = self.0.lock().expect("a lock");
        seen.here.retain(|here| *here != port);
        seen.faults.extend(why.err().map(|fault| fault.to_string()));
    }
}

/// Has words turned into capitals.
fn ask(engine: &mut Engine, ring: usize, words: &str) -> String {
    put(engine, ring, words);
    engine.kick(ring);
    answer(engine, ring)
}

fn buffers(ring: usize) -> (u64, u64) {
    let first = BUFFERS + ring as u64 * 8192;
    (first, first + 4096)
}

fn put(engine: &mut Engine, ring: usize, words: &str) {
    let (from, to) = buffers(ring);
    engine.memory.write_slice(words.as_bytes(), GuestAddress(from)).expect("memory");
    engine.memory.write_slice(&[0; 32], GuestAddress(to)).expect("memory");
    engine.offer(ring, &[Piece::Read(from, words.len() as u32), Piece::Write(to, 32)]);
}

fn answer(engine: &mut Engine, ring: usize) -> String {
    let (_, written) = engine.wait(ring);
    let mut words = vec![0; written as usize];
    engine.memory.read_slice(&mut words, GuestAddress(buffers(ring).1)).expect("memory");
    String::from_utf8(words).expect("words")
}

#[test]
fn engines_have_their_own_memory_and_their_own_rings() {
    let place = Place::new("own");
    let socket = place.path("socket");
    let device = Capitals::default();
    let _served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let mut engines = [(); 3].map(|()| Engine::connect(&socket, MEMORY, 2));
    for engine in &mut engines {
        assert_eq!(engine.configuration(16), CONFIGURATION);
        assert_eq!(engine.front.get_queue_num().expect("a number"), 2);
        engine.start(0, 0);
        engine.start(1, 0);
    }
    for round in 0..200 {
        for (at, engine) in engines.iter_mut().enumerate() {
            let words = format!("words {round} of {at}");
            assert_eq!(ask(engine, round % 2, &words), words.to_uppercase());
        }
    }
    let [_, _, last] = engines;
    drop(last);
    wait_until("it has gone", || device.0.lock().expect("a lock").here.len() == 2);
    assert!(device.0.lock().expect("a lock").faults.is_empty());
}

#[test]
fn a_ring_stops_and_goes_on_where_it_stood() {
    let place = Place::new("stops");
    let socket = place.path("socket");
    let _served = Served::new(Capitals::default(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 2);
    engine.start(0, 0);
    assert_eq!(ask(&mut engine, 0, "one"), "ONE");
    assert_eq!(engine.stop(0), 1);
    put(&mut engine, 0, "two");
    engine.kick(0);
    assert_eq!(engine.configuration(1), CONFIGURATION[..1], "it has taken what was said before");
    assert_eq!(engine.take(0), None);
    engine.start(0, 1);
    assert_eq!(answer(&mut engine, 0), "TWO");
    // Nobody is there when this comes.
    drop(std::mem::replace(
        &mut engine.front,
        Frontend::from_stream(UnixStream::pair().expect("a pair").0, 1),
    ));
    put(&mut engine, 0, "three");
    engine.kick(0);
    engine.reconnect(&socket);
    assert_eq!(answer(&mut engine, 0), "THREE");
    assert_eq!(ask(&mut engine, 1, "four"), "FOUR");
}

/// A driver that was not told of a chain by a device that died then waited for ever.
#[test]
fn a_driver_hears_of_what_it_may_have_missed() {
    let place = Place::new("missed");
    let socket = place.path("socket");
    let _served = Served::new(Capitals::default(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 2);
    put(&mut engine, 0, "before");
    engine.start_unheard(0, 0);
    wait_until("it is served", || engine.done(0) == 1);
    engine.hear(0);
    engine.wait_for_call(0);
    assert_eq!(answer(&mut engine, 0), "BEFORE");
}

#[test]
fn memory_that_can_be_taken_away_is_refused() {
    let place = Place::new("sealed");
    let socket = place.path("socket");
    let device = Capitals::default();
    let _served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let engine = Engine::connect(&socket, MEMORY, 2);
    let other = memory(MEMORY, false);
    let _ = engine.front.set_mem_table(&regions(&other));
    wait_until("it is sent away", || device.0.lock().expect("a lock").here.is_empty());
    assert!(device.0.lock().expect("a lock").faults[0].contains("sealed"));
}

/// A guest may have other memory besides, over a file of the host's: what lies there is refused, and all else goes on.
#[test]
fn memory_over_a_file_is_none_of_the_device_s() {
    let place = Place::new("over-a-file");
    let socket = place.path("socket");
    let device = Capitals::default();
    let _served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 2);
    let file = rustix::fs::memfd_create("root", rustix::fs::MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&file, MEMORY as u64).expect("its length");
    let file = vm_memory::FileOffset::new(file.into(), 0);
    let root: vm_memory::GuestMemoryMmap<()> =
        vm_memory::GuestMemoryMmap::from_ranges_with_files([(GuestAddress(1 << 32), MEMORY, Some(file))])
            .expect("a mapping");
    let mut all = regions(&engine.memory);
    all.extend(regions(&root));
    engine.front.set_mem_table(&all).expect("both are taken");
    engine.start(0, 0);
    root.write_slice(b"the root's", GuestAddress(1 << 32)).expect("memory");
    engine.offer(0, &[Piece::Read(1 << 32, 10), Piece::Write(buffers(0).1, 32)]);
    engine.kick(0);
    assert_eq!(answer(&mut engine, 0), "", "nothing of it is read");
    assert_eq!(ask(&mut engine, 0, "goes on"), "GOES ON");
}

/// As many chains as are served in one turn: the device has to look again by itself, for it has not said that it wants to hear of the next one.
#[test]
fn a_ring_may_be_full() {
    let place = Place::new("full");
    let socket = place.path("socket");
    let _served = Served::new(Capitals::default(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 1);
    engine.start(0, 0);
    for _ in 0..50 {
        for _ in 0..RING_SIZE {
            engine.offer(0, &[Piece::Read(BUFFERS, 8)]);
        }
        engine.kick(0);
        let heads: Vec<_> = (0..RING_SIZE).map(|_| engine.wait(0).0).collect();
        assert!(heads.is_sorted(), "in the order in which they were offered");
    }
}

#[test]
fn a_ring_stands_when_its_memory_is_gone() {
    let place = Place::new("gone");
    let socket = place.path("socket");
    let _served = Served::new(Capitals::default(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 1);
    let mut other = Engine::connect(&socket, MEMORY, 1);
    engine.start(0, 0);
    other.start(0, 0);
    let here = regions(&engine.memory);
    let mut elsewhere = here.clone();
    elsewhere[0].guest_phys_addr = 1 << 40;
    engine.front.set_mem_table(&elsewhere).expect("memory");
    put(&mut engine, 0, "nobody");
    engine.kick_anyway(0);
    assert_eq!(ask(&mut other, 0, "the other"), "THE OTHER");
    assert_eq!(engine.take(0), None);
    engine.front.set_mem_table(&here).expect("memory");
    assert_eq!(engine.stop(0), 0);
    engine.start(0, 0);
    assert_eq!(answer(&mut engine, 0), "NOBODY");
}

#[test]
fn memory_comes_and_goes() {
    let place = Place::new("slots");
    let socket = place.path("socket");
    let device = Capitals::default();
    let _served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let mut front = Frontend::from_stream(UnixStream::connect(&socket).expect("it is there"), 2);
    let features = front.get_features().expect("features");
    let offered = front.get_protocol_features().expect("protocol features");
    front.set_protocol_features(offered).expect("protocol features");
    front.set_features(features).expect("features");
    front.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
    let slots = front.get_max_mem_slots().expect("a number");
    let shared = memory(4096 * (slots as usize + 1), true);
    let region = |slot: u64| {
        let mut region = regions(&shared)[0];
        region.guest_phys_addr = slot * 4096;
        region.userspace_addr += slot * 4096;
        region.mmap_offset = slot * 4096;
        region.memory_size = 4096;
        region
    };
    for slot in (0..slots).rev() {
        front.add_mem_region(&region(slot)).expect("a region");
    }
    front.remove_mem_region(&region(1)).expect("a region");
    front.add_mem_region(&region(slots)).expect("a region");
    front.add_mem_region(&region(1)).expect_err("they are all taken");
    wait_until("it is sent away", || device.0.lock().expect("a lock").here.is_empty());
}

/// A device once waited for the rest of a message, and nobody else was served meanwhile.
#[test]
fn half_a_message_keeps_nobody_waiting() {
    let place = Place::new("half");
    let socket = place.path("socket");
    let device = Capitals::default();
    let _served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 2);
    engine.start(0, 0);
    for (before, length) in [1, 11, 12, 19].into_iter().enumerate() {
        let mut half = UnixStream::connect(&socket).expect("it is there");
        let message = [2_u32, 1, 8, 0, 0].map(u32::to_ne_bytes);
        half.write_all(&message.as_flattened()[..length]).expect("it is taken");
        assert_eq!(ask(&mut engine, 0, "meanwhile"), "MEANWHILE");
        drop(half);
        wait_until("it is sent away", || device.0.lock().expect("a lock").faults.len() > before);
    }
    let faults = &device.0.lock().expect("a lock").faults;
    assert_eq!(faults.len(), 4);
    assert!(faults.iter().all(|fault| fault.contains("partial")), "{faults:?}");
}

#[test]
fn one_that_does_not_listen_is_sent_away() {
    let place = Place::new("deaf");
    let socket = place.path("socket");
    let device = Capitals::default();
    let _served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 2);
    engine.start(0, 0);
    let mut deaf = UnixStream::connect(&socket).expect("it is there");
    deaf.set_write_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let message = [1_u32, 1, 0].map(u32::to_ne_bytes);
    while deaf.write_all(message.as_flattened()).is_ok() {}
    assert_eq!(ask(&mut engine, 0, "meanwhile"), "MEANWHILE");
    wait_until("it is sent away", || device.0.lock().expect("a lock").here.len() == 1);
    assert!(device.0.lock().expect("a lock").faults[0].contains("does not read"));
}

#[test]
fn whatever_an_engine_says_others_are_served() {
    let place = Place::new("messages");
    let socket = place.path("socket");
    let device = Capitals::default();
    let _served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let mut good = Engine::connect(&socket, MEMORY, 2);
    good.start(0, 0);
    let message = |request: u32, words: &[u32]| {
        let mut message = [request, 1, words.len() as u32 * 4].map(u32::to_ne_bytes).as_flattened().to_vec();
        message.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        message
    };
    let said = [
        message(1, &[]),
        message(15, &[]),
        message(16, &[0x1_8209, 0]),
        message(3, &[]),
        message(2, &[0x7000_0000, 1]),
        message(8, &[0, 64]),
        message(10, &[0, 7]),
        message(9, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        message(11, &[0, 0]),
        message(12, &[0x100, 0]),
        message(13, &[0x100, 0]),
        message(18, &[0, 1]),
        message(24, &[0, 4, 0, 0]),
        message(5, &[1, 0, 0, 0, 4096, 0, 0, 0, 0, 0]),
        message(37, &[0, 0, 0, 0, 4096, 0, 0, 0, 0, 0]),
    ];
    let mut fuzz = Fuzz::start("whatever_an_engine_says_others_are_served", 3);
    while fuzz.goes_on() {
        let mut stream = UnixStream::connect(&socket).expect("it is there");
        stream.set_nonblocking(true).expect("a flag");
        let mut bytes: Vec<u8> = said[..4].concat();
        (0..fuzz.dice.below(6)).for_each(|_| bytes.extend(&said[fuzz.dice.index(said.len())]));
        fuzz.mutate(&mut bytes);
        let mut fds = rustix::net::SendAncillaryBuffer::new(&mut []);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let file = std::fs::File::open("/dev/null").expect("a file");
        let descriptors = [file.as_fd()];
        if fuzz.dice.below(2) == 0 {
            fds = rustix::net::SendAncillaryBuffer::new(&mut space);
            fds.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors));
        }
        let pieces = [std::io::IoSlice::new(&bytes)];
        let _ = rustix::net::sendmsg(&stream, &pieces, &mut fds, rustix::net::SendFlags::NOSIGNAL);
        assert_eq!(ask(&mut good, 0, "others"), "OTHERS");
        let _ = stream.read(&mut [0; 4096]);
    }
    wait_until("only one is left", || device.0.lock().expect("a lock").here.len() == 1);
}

#[test]
fn whatever_a_guest_writes_into_a_ring_others_are_served() {
    let place = Place::new("rings");
    let socket = place.path("socket");
    let device = Capitals::default();
    let served = Served::new(device.clone(), std::slice::from_ref(&socket));
    let mut good = Engine::connect(&socket, MEMORY, 2);
    good.start(0, 0);
    let mut fuzz = Fuzz::start("whatever_a_guest_writes_into_a_ring_others_are_served", 3);
    while fuzz.goes_on() {
        let mut bad = Engine::connect(&socket, MEMORY, 1);
        bad.start(0, fuzz.dice.below(3).try_into().expect("a small number"));
        for _ in 0..20 {
            for descriptor in 0..RING_SIZE {
                let address = [BUFFERS, MEMORY as u64 - 8, u64::MAX - 8, 0, 0x8000][fuzz.dice.index(5)];
                let bytes = [16, 4096, 0, u32::MAX, 1 << 20][fuzz.dice.index(5)];
                let flags = fuzz.dice.below(8).try_into().expect("a small number");
                let next = fuzz.dice.below(80).try_into().expect("a small number");
                bad.set_descriptor(0, descriptor, address, bytes, flags, next);
            }
            for _ in 0..fuzz.dice.below(8) {
                bad.offer_head(0, fuzz.dice.below(70).try_into().expect("a small number"));
            }
            if fuzz.dice.below(16) == 0 {
                bad.set_word(0, 0x4002, fuzz.dice.below(1 << 16).try_into().expect("a word"));
            }
            bad.kick_anyway(0);
        }
        assert_eq!(ask(&mut good, 0, "others"), "OTHERS");
    }
    drop(good);
    drop(served.end());
    assert!(
        device.0.lock().expect("a lock").faults.is_empty(),
        "what a guest does is not the engine's fault"
    );
}

/// A device that has a descriptor of its own: what comes there goes to all guests.
struct Speaker {
    socket: UnixStream,
    here: Vec<Port>,
}

impl Device for Speaker {
    fn connected(&mut self, port: Port, _: usize) -> Option<Offer> {
        self.here.push(port);
        Some(Offer { features: 0, rings: 1, ring_size: RING_SIZE, configuration: Vec::new(), keepsake: None })
    }

    fn serve(&mut self, _: &mut Ports, _: Port, _: usize) -> Turn {
        Turn::Done
    }

    fn ready(&mut self, ports: &mut Ports, name: u32) -> Turn {
        assert_eq!(name, 7);
        let mut letter = [0];
        self.socket.read_exact(&mut letter).expect("it can be read");
        for port in &self.here {
            let ring = ports.ring(*port, 0).expect("it has one");
            let chain = ring.take().expect("there is room");
            // It is looked at first, and taken then.
            ring.untake();
            assert_eq!(ring.take().map(|again| again.head_index()), Some(chain.head_index()));
            let piece = chain.clone().writable().next().expect("a piece");
            chain.memory().write_slice(&letter, piece.addr()).expect("memory");
            ring.put(chain.head_index(), 1);
            ring.notify();
        }
        Turn::Done
    }

    fn disconnected(&mut self, port: Port, _: Result<(), Fault>) {
        self.here.retain(|here| *here != port);
    }
}

#[test]
fn what_comes_by_a_descriptor_of_the_devices_own_goes_to_all() {
    let place = Place::new("speaker");
    let socket = place.path("socket");
    let (mut microphone, own) = UnixStream::pair().expect("a pair");
    let watched = own.try_clone().expect("a descriptor");
    let speaker = Speaker { socket: own, here: Vec::new() };
    let _served = Served::with(speaker, std::slice::from_ref(&socket), |backend| {
        backend.watch(&watched, 7).expect("it is watched");
    });
    let mut engines = [(); 2].map(|()| Engine::connect(&socket, MEMORY, 1));
    for engine in &mut engines {
        engine.start(0, 0);
        for at in 0..3 {
            engine.offer(0, &[Piece::Write(BUFFERS + at, 1)]);
        }
    }
    microphone.write_all(b"abc").expect("it is heard");
    for engine in &mut engines {
        (0..3).for_each(|_| assert_eq!(engine.wait(0).1, 1));
        let mut heard = [0; 3];
        engine.memory.read_slice(&mut heard, GuestAddress(BUFFERS)).expect("memory");
        assert_eq!(&heard, b"abc");
    }
}

#[test]
fn a_ring_that_its_guest_has_damaged_stands_until_it_is_set_up_anew() {
    let place = Place::new("damaged");
    let socket = place.path("socket");
    let _served = Served::new(Capitals::default(), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 2);
    engine.start(0, 0);
    engine.start(1, 0);
    let error = EventFd::new(EFD_NONBLOCK).expect("an eventfd");
    engine.front.set_vring_err(0, &error).expect("an error");
    engine.set_word(0, 0x4002, 1000);
    engine.kick_anyway(0);
    wait_until("it is said to be damaged", || error.read().is_ok());
    assert_eq!(ask(&mut engine, 1, "the other"), "THE OTHER");
    engine.set_word(0, 0x4002, 0);
    put(&mut engine, 0, "again");
    engine.kick_anyway(0);
    assert_eq!(ask(&mut engine, 1, "the other"), "THE OTHER");
    assert_eq!(engine.take(0), None);
    assert_eq!(engine.stop(0), 0);
    engine.start(0, 0);
    assert_eq!(answer(&mut engine, 0), "AGAIN");
}
