//! Two drivers on one network, with kernels and a program as their clients. The time is this test's.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::frames::Frame;
use comb_kernel::objects::{Mapping, Sizes, SpaceLoad, Tag, ThreadLoad};
use comb_kernel::programs;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::space::TRANSLATIONS_ADDRESS;
use comb_kernel::supervisor::{State, Supervisor};
use comb_kernel::thread::{Area, Registers};
use comb_kernels::communication::{Channel, Message, Pages, Place, Shape, map_end, open_end};
use comb_kernels::network::{Counts, NetWire, Network, Packet, Quota, Wire, WireError};
use comb_net::InProcess;

const LIMIT: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const ENOUGH: Quota = Quota { bytes: u64::MAX };

fn shape() -> Shape {
    Shape::new(16, 64).unwrap()
}

fn kernel() -> Direct {
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 2).unwrap();
    Direct::new(supervisor, kernel)
}

/// Both ends of a channel: the driver's, and the client's.
fn ends(calls: &Direct, first: u32) -> [Channel; 2] {
    let [a, b] = [first, first + 8].map(|first| Pages::new(calls, first, shape().pages()).unwrap());
    [Channel::open(shape(), a.clone(), b.clone()), Channel::open(shape(), b, a)]
}

/// Two ends of a network channel.
fn wires() -> [NetWire; 2] {
    let agent = InProcess::start();
    let [mut one, mut other] =
        ["one", "other"].map(|name| agent.connect(name).unwrap().endpoint("wire").unwrap());
    let to = one.open("other/wire").unwrap();
    let from = other.accept(LIMIT).unwrap();
    [NetWire::new(one, to), NetWire::new(other, from)]
}

#[test]
fn a_packet_goes_to_a_program_on_another_host_and_its_answer_comes_back() {
    let now = Instant::now();
    let [one, other] = wires();
    let (mut here, mut there) = (Network::new(one, SECOND, now), Network::new(other, SECOND, now));
    let mut calls = kernel();
    // The program answers to port 2.
    let [driver, mut client] = ends(&calls, 128);
    here.connect(2, driver, None, ENOUGH);

    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 2).unwrap();
    supervisor.frames().write(Frame(0), 0, programs::doubles());
    let mut calls_there = Direct::new(supervisor, kernel);
    let space = calls_there.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
    let code = Mapping { executable: true, ..Mapping::read(space, 0x400, 0) };
    calls_there.load_mappings(&code, 1).unwrap();
    calls_there.load_mappings(&Mapping { writable: true, ..Mapping::read(space, 0x500, 1) }, 1).unwrap();
    let registers = Registers {
        rip: 0x40_0000,
        rsp: 0x50_1000,
        rdi: Area::ring_address(0),
        rsi: 0x900_0000,
        rdx: TRANSLATIONS_ADDRESS,
        r9: 15,
        ..Registers::default()
    };
    let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked: false };
    let thread = calls_there.load_thread(load, &State { registers, ..State::default() }, 0).unwrap();
    let [drivers, own] = [128, 160].map(|first| Pages::new(&calls_there, first, shape().pages()).unwrap());
    let place = Place { space, thread, own: 0x9000, other: 0xa000 };
    open_end(shape(), &own);
    map_end(&mut calls_there, &place, &own, &drivers).unwrap();
    there.connect(5, Channel::open(shape(), drivers, own), Some(place), ENOUGH);
    calls_there.area(thread).unwrap().resume();

    for number in 0..40_u64 {
        // A request as the program knows them: the call's number, whatever is called, and the argument.
        let request = [number.to_le_bytes(), [0; 8], (number * 3).to_le_bytes()].concat();
        client.send(5, &request).unwrap();
        let since = Instant::now();
        let answer = loop {
            here.turn(now, &mut calls).unwrap();
            there.turn(now, &mut calls_there).unwrap();
            calls_there.bell().listen(0, Some(Duration::from_micros(100)), |_| {});
            let area = calls_there.area(thread).unwrap();
            if area.is_stopped() {
                assert_eq!(area.registers().unwrap().rax, programs::SIGNAL);
                area.resume();
            }
            if let Some(answer) = client.receive().unwrap() {
                break answer;
            }
            assert!(since.elapsed() < LIMIT, "no answer to {number}");
        };
        let expected = [&number.to_le_bytes()[..], &[0; 4], &(number * 6).to_le_bytes()].concat();
        assert_eq!(answer, Message { kind: 5, bytes: expected });
    }
    let counts = Counts { sent: 40, received: 40, ..Counts::default() };
    assert_eq!((here.counts(2), there.counts(5)), (Some(counts), Some(counts)));
}

/// A wire that gives back what it was given.
#[derive(Default)]
struct Loop {
    packets: VecDeque<Packet>,
    is_full: bool,
}

impl Wire for Loop {
    fn send(&mut self, packet: &Packet) -> Result<bool, WireError> {
        if !self.is_full {
            self.packets.push_back(Packet::from_bytes(&packet.to_bytes()).unwrap());
        }
        Ok(!self.is_full)
    }

    fn receive(&mut self) -> Result<Option<Packet>, WireError> {
        Ok(self.packets.pop_front())
    }
}

#[test]
fn who_uses_more_than_it_may_is_disconnected_until_the_period_is_over() {
    let began = Instant::now();
    let mut calls = kernel();
    let mut network = Network::new(Loop::default(), SECOND, began);
    let [driver, mut greedy] = ends(&calls, 0);
    // Three packets of twenty bytes with their headers, and a bit.
    network.connect(1, driver, None, Quota { bytes: 70 });
    let [driver, mut modest] = ends(&calls, 32);
    network.connect(2, driver, None, ENOUGH);
    for _ in 0..10 {
        greedy.send(2, &[7; 12]).unwrap();
    }
    assert!(network.turn(began, &mut calls).unwrap());
    // The fourth has passed as well: who was over its quota is known when it was.
    let received = |client: &mut Channel| std::iter::from_fn(|| client.receive().unwrap()).count();
    assert_eq!(received(&mut modest), 4);
    assert!(!network.is_connected(1) && network.is_connected(2));
    // Nothing comes to it, either; others do not notice.
    modest.send(1, b"are you there?").unwrap();
    modest.send(2, b"I am").unwrap();
    network.turn(began + SECOND / 2, &mut calls).unwrap();
    assert_eq!((received(&mut greedy), received(&mut modest)), (0, 1));
    assert_eq!(network.counts(1), Some(Counts { sent: 4, received: 0, dropped: 1, disconnections: 1 }));
    // Three periods later it is connected again, for one more.
    assert_eq!(network.next_timeout(), began + SECOND);
    network.turn(began + SECOND * 7 / 2, &mut calls).unwrap();
    assert_eq!(network.next_timeout(), began + 4 * SECOND);
    assert_eq!(received(&mut modest), 4);
    assert!(!network.is_connected(1));
    network.turn(began + 4 * SECOND, &mut calls).unwrap();
    assert_eq!(received(&mut modest), 2);
    assert!(network.is_connected(1));
    assert_eq!(network.disconnect(1).unwrap().disconnections, 2);
    // A packet to a port that is nobody's is nobody's.
    modest.send(1, b"gone").unwrap();
    network.turn(began + 4 * SECOND, &mut calls).unwrap();
}

#[test]
fn a_client_that_does_not_take_loses_and_a_wire_without_room_does_not() {
    let now = Instant::now();
    let mut calls = kernel();
    let mut network = Network::new(Loop { is_full: true, ..Loop::default() }, SECOND, now);
    let [driver, mut client] = ends(&calls, 0);
    network.connect(1, driver, None, ENOUGH);
    let [driver, mut lazy] = ends(&calls, 32);
    network.connect(2, driver, None, ENOUGH);
    for number in 0..16_u8 {
        client.send(2, &[number]).unwrap();
    }
    network.turn(now, &mut calls).unwrap();
    assert_eq!(network.counts(1).unwrap().sent, 0);
    // One was taken out of the channel, and waits.
    client.send(2, &[16]).unwrap();
    network.wire().is_full = false;
    network.turn(now, &mut calls).unwrap();
    client.send(2, &[17]).unwrap();
    network.turn(now, &mut calls).unwrap();
    let counts = network.counts(2).unwrap();
    assert_eq!((network.counts(1).unwrap().sent, counts.received, counts.dropped), (18, 16, 2));
    for number in 0..16_u8 {
        assert_eq!(lazy.receive().unwrap().unwrap(), Message { kind: 1, bytes: vec![number] });
    }
    // Who has closed its channel is named.
    drop(lazy);
    network.turn(now, &mut calls).unwrap();
    assert_eq!(network.ended().map(|(port, _)| port).collect::<Vec<_>>(), [2]);
}
