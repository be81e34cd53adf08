//! A virtual subnet in a thread of the test's, and guests on it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};

use comb_types::Dice;
use comb_vm::devices::backend::Memory;
use comb_vm::devices::switch::gateway::Outside;
use comb_vm::devices::switch::running::{Options, serve};
use vm_memory::{Bytes, GuestAddress};

use crate::engine::{BUFFERS, Engine, Piece, Place, RING_SIZE, wait_until};

pub(crate) const RECEIVING: usize = 0;
pub(crate) const SENDING: usize = 1;
/// Where the sender's address stands of what is sent from the first place.
pub(crate) const SOURCE: GuestAddress = GuestAddress(SENT + HEADER as u64 + 6);

const MEMORY: usize = 4 << 20;
const BUFFER: u32 = 2048;
const BUFFER_COUNT: u16 = RING_SIZE - 4;
const SENT: u64 = 0x20_0000;
const SENT_BYTES: u64 = 0x1_2000;
/// Each has four descriptors.
const MOST_SENT: u64 = 15;
const HEADER: usize = 12;
const EVENT_IDX: u64 = 1 << 29;

/// The address of the port with this number.
pub(crate) fn address(port: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, port]
}

pub(crate) fn frame(to: [u8; 6], source: [u8; 6], bytes: &[u8]) -> Vec<u8> {
    [&to[..], &source, &[0x88, 0xb5], bytes].concat()
}

/// So many bytes of TCP in one frame, with the header that says that they are to be cut.
pub(crate) fn large(to: [u8; 6], source: [u8; 6], count: u16) -> ([u8; HEADER], Vec<u8>) {
    let [high, low] = (count + 40).to_be_bytes();
    let ip = [0x45, 0, high, low, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let tcp = [0, 80, 1, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    let bytes = (0..count).map(|at| (at % 251).to_le_bytes()[0]);
    let frame = [&to[..], &source, &[8, 0], &ip, &tcp].concat().into_iter().chain(bytes).collect();
    let [size, more] = 1448_u16.to_le_bytes();
    ([1, 1, 54, 0, size, more, 34, 0, 16, 0, 0, 0], frame)
}

/// A switch with its directory.
pub(crate) struct Subnet(Place);

impl Subnet {
    /// With ports `guest0`, `guest1` and so on.
    pub(crate) fn new(test: &str, ports: u8) -> Self {
        Self::with_gateway(test, ports, None)
    }

    pub(crate) fn with_gateway(test: &str, ports: u8, gateway: Option<Outside>) -> Self {
        let place = Place::new(&format!("subnet-{test}"));
        let port = |port| format!("guest{port}=52:54:00:00:00:{port:02x}").parse().expect("a port");
        let options = Options {
            directory: place.path(""),
            ports: (0..ports).map(port).collect(),
            gateway,
            subnet: None,
        };
        std::thread::spawn(move || serve(&options).expect("it serves"));
        Self(place)
    }

    pub(crate) fn socket(&self, port: u8) -> PathBuf {
        self.0.path(&format!("guest{port}.socket"))
    }

    pub(crate) fn guest(&self, port: u8) -> Guest {
        self.guest_without(0, port)
    }

    /// A guest whose driver does not know these features.
    pub(crate) fn guest_without(&self, features: u64, port: u8) -> Guest {
        let mut guest =
            Guest::new(Engine::connect_without(features, &self.socket(port), MEMORY, 2), features);
        guest.give_buffers(BUFFER_COUNT);
        guest
    }

    pub(crate) fn guest_without_buffers(&self, port: u8) -> Guest {
        Guest::new(Engine::connect(&self.socket(port), MEMORY, 2), 0)
    }

    /// What the switch answers.
    pub(crate) fn ask(&self, line: &str) -> String {
        let mut stream = None;
        wait_until("the switch can be asked", || {
            stream = UnixStream::connect(self.0.path("control")).ok();
            stream.is_some()
        });
        let mut stream = stream.expect("it is there");
        writeln!(stream, "{line}").expect("it is heard");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.trim_end().to_owned()
    }

    pub(crate) fn counter(&self, port: u8, counter: &str) -> u64 {
        self.counter_of(&format!("guest{port}"), counter)
    }

    pub(crate) fn counter_of(&self, port: &str, counter: &str) -> u64 {
        let counters: serde_json::Value = serde_json::from_str(&self.ask("counters")).expect("counters");
        counters[port][counter].as_u64().expect("a number")
    }
}

/// A guest at a port.
pub(crate) struct Guest {
    engine: Engine,
    has_events: bool,
    /// What was put into each ring, and what came back from the one for sending.
    put: [u16; 2],
    sent: u64,
    back: u64,
}

impl Guest {
    fn new(mut engine: Engine, without: u64) -> Self {
        engine.start(RECEIVING, 0);
        engine.start(SENDING, 0);
        Self { engine, has_events: without & EVENT_IDX == 0, put: [0; 2], sent: 0, back: 0 }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.engine.memory
    }

    /// Gives so many buffers more. Nobody is told of them: frames come to who has buffers.
    pub(crate) fn give_buffers(&mut self, count: u16) {
        self.give_buffers_of(BUFFER, count);
    }

    pub(crate) fn give_buffers_of(&mut self, bytes: u32, count: u16) {
        for _ in 0..count {
            let at = BUFFERS + u64::from(self.put[RECEIVING] % RING_SIZE) * u64::from(BUFFER);
            self.engine.offer(RECEIVING, &[Piece::Write(at, bytes)]);
            self.put[RECEIVING] = self.put[RECEIVING].wrapping_add(1);
        }
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.send_with(&[0; HEADER], frame);
    }

    /// Sends a frame with this header, in pieces.
    pub(crate) fn send_with(&mut self, header: &[u8; HEADER], frame: &[u8]) {
        self.send_from(self.sent % MOST_SENT, header, frame);
    }

    /// Sends a frame from always the same place, where nothing may be on its way.
    pub(crate) fn send_from_first_place(&mut self, frame: &[u8]) {
        self.send_from(0, &[0; HEADER], frame);
    }

    fn send_from(&mut self, place: u64, header: &[u8; HEADER], frame: &[u8]) {
        while self.sent - self.back >= MOST_SENT {
            self.wait_for_sent();
        }
        let at = SENT + place * SENT_BYTES;
        self.engine.memory.write_slice(header, GuestAddress(at)).expect("memory");
        self.engine.memory.write_slice(frame, GuestAddress(at + HEADER as u64)).expect("memory");
        let mut pieces = vec![Piece::Read(at, 12)];
        let mut from = 0;
        for to in [frame.len().min(20), frame.len() / 2, frame.len()] {
            let to = to.max(from);
            let length = (to - from).try_into().expect("a frame is short");
            pieces.push(Piece::Read(at + (HEADER + from) as u64, length));
            from = to;
        }
        self.engine.offer(SENDING, &pieces);
        self.is_sent();
    }

    /// Sends a frame in a chain whose last descriptor is this: address, length, flags and the next one.
    pub(crate) fn send_with_last(
        &mut self,
        frame: &[u8],
        (address, length, flags, next): (u64, u32, u16, u16),
    ) {
        let at = SENT + self.sent % MOST_SENT * SENT_BYTES;
        let first = self.put[SENDING] % (RING_SIZE / 4) * 4;
        let whole = [&[0; HEADER][..], frame].concat();
        self.engine.memory.write_slice(&whole, GuestAddress(at)).expect("memory");
        let bytes = whole.len().try_into().expect("a frame is short");
        self.engine.set_descriptor(SENDING, first, at, bytes, 1, first + 1);
        self.engine.set_descriptor(SENDING, first + 1, address, length, flags, next);
        self.engine.offer_head(SENDING, first);
        self.is_sent();
    }

    /// Sends a frame in an indirect table with a descriptor for each of its bytes.
    pub(crate) fn send_in_pieces(&mut self, frame: &[u8]) {
        let (header, bytes) = (SENT, SENT + HEADER as u64);
        let table = SENT + SENT_BYTES;
        self.wait_until_sent();
        self.engine.memory.write_slice(&[0; HEADER], GuestAddress(header)).expect("memory");
        self.engine.memory.write_slice(frame, GuestAddress(bytes)).expect("memory");
        for number in 0..=frame.len() as u64 {
            let (at, length) = if number == 0 { (header, 12_u32) } else { (bytes + number - 1, 1) };
            let flags = u64::from(number < frame.len() as u64);
            let entry = [at, u64::from(length) | flags << 32 | (number + 1) << 48].map(u64::to_le_bytes);
            self.engine
                .memory
                .write_slice(entry.as_flattened(), GuestAddress(table + number * 16))
                .expect("memory");
        }
        let first = self.put[SENDING] % (RING_SIZE / 4) * 4;
        let length = (u32::try_from(frame.len()).expect("a frame is short") + 1) * 16;
        self.engine.set_descriptor(SENDING, first, table, length, 4, 0);
        self.engine.offer_head(SENDING, first);
        self.is_sent();
    }

    fn is_sent(&mut self) {
        self.sent += 1;
        self.put[SENDING] = self.put[SENDING].wrapping_add(1);
        if self.is_told_to_kick(SENDING) {
            self.engine.kick_anyway(SENDING);
        }
    }

    /// Whether the switch wants to be told of what was put into a ring last.
    pub(crate) fn is_told_to_kick(&self, ring: usize) -> bool {
        fence(Ordering::SeqCst);
        if self.has_events {
            let event = self.engine.word(ring, 0x8004 + u64::from(RING_SIZE) * 8);
            event == self.put[ring].wrapping_sub(1)
        } else {
            self.engine.word(ring, 0x8000) & 1 == 0
        }
    }

    fn wait_for_sent(&mut self) {
        self.engine.wait(SENDING);
        self.back += 1;
    }

    pub(crate) fn wait_until_sent(&mut self) {
        while self.back < self.sent {
            self.wait_for_sent();
        }
    }

    /// The next frame that comes, with its header.
    pub(crate) fn receive(&mut self) -> ([u8; HEADER], Vec<u8>) {
        let first = self.engine.wait(RECEIVING);
        self.received(first)
    }

    /// The next frame, if it is there already.
    pub(crate) fn try_receive(&mut self) -> Option<([u8; HEADER], Vec<u8>)> {
        let first = self.engine.take(RECEIVING)?;
        Some(self.received(first))
    }

    fn received(&mut self, mut buffer: (u16, u32)) -> ([u8; HEADER], Vec<u8>) {
        let mut bytes = Vec::new();
        let mut buffers = 0;
        loop {
            let (head, written) = buffer;
            let from = bytes.len();
            bytes.resize(from + written as usize, 0);
            let at = GuestAddress(BUFFERS + u64::from(head) * u64::from(BUFFER));
            self.engine.memory.read_slice(&mut bytes[from..], at).expect("memory");
            buffers += 1;
            if buffers == u16::from_le_bytes([bytes[10], bytes[11]]) {
                break;
            }
            assert_eq!(written, BUFFER, "only the last buffer is not full");
            buffer = self.engine.take(RECEIVING).expect("all buffers of a frame come at once");
        }
        self.give_buffers(buffers);
        let frame = bytes.split_off(HEADER);
        (bytes.try_into().expect("a header"), frame)
    }

    /// Writes what may not be into both rings. No frame of a right sender is in it.
    pub(crate) fn write_nonsense(&mut self, dice: &mut Dice) {
        const ADDRESSES: [u64; 6] = [BUFFERS, MEMORY as u64 - 8, u64::MAX - 8, 0, 0x8000, 0x1_0000];
        const LENGTHS: [u32; 6] = [16, 12, 4096, 0, u32::MAX, 1 << 20];
        let engine = &mut self.engine;
        for ring in [RECEIVING, SENDING] {
            let mut number = |below: u16| u16::try_from(dice.below(below.into())).expect("it is below");
            for descriptor in 0..RING_SIZE {
                let (address, length) = (ADDRESSES[usize::from(number(6))], LENGTHS[usize::from(number(6))]);
                engine.set_descriptor(ring, descriptor, address, length, number(8), number(80));
            }
            let table: Vec<u8> = (0..64).map(|_| [0, 1, 2, 3, 16, 0xff][usize::from(number(6))]).collect();
            engine.memory.write_slice(&table, GuestAddress(BUFFERS)).expect("memory");
            for _ in 0..number(8) {
                engine.offer_head(ring, number(70));
            }
            if number(32) == 0 {
                engine.set_word(ring, 0x4002, number(u16::MAX));
            }
            engine.kick_anyway(ring);
        }
    }
}
