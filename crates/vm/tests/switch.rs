//! Guests on a virtual subnet: they come by real sockets, and their drivers are played by the test.

mod engine;
mod guest;

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comb_types::fuzz::Fuzz;
use comb_vm::devices::switch::frames::MOST_DESCRIPTORS;
use comb_vm::devices::switch::gateway::Outside;
use comb_vm::devices::switch::offloads::{HEAD, RECEIVERS, SENDERS, Undone};
use engine::{Place, wait_until};
use guest::{RECEIVING, SENDING, SOURCE, Subnet, address, frame, large};
use vm_memory::Bytes;

const EVERYBODY: [u8; 6] = [0xff; 6];
const MERGED: u64 = 1 << 15;
const EVENT_IDX: u64 = 1 << 29;

#[test]
fn a_frame_goes_to_whom_it_is_for_and_to_everybody_if_it_is_for_everybody() {
    let subnet = Subnet::new("ways", 3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|port| subnet.guest(port));
    for round in 0..200_u32 {
        let bytes = round.to_le_bytes().repeat(10);
        a.send(&frame(address(1), address(0), &bytes));
        a.send(&frame(EVERYBODY, address(0), &bytes));
        assert_eq!(b.receive().1, frame(address(1), address(0), &bytes));
        assert_eq!(b.receive().1, frame(EVERYBODY, address(0), &bytes));
        assert_eq!(c.receive().1, frame(EVERYBODY, address(0), &bytes));
        c.send(&frame(address(0), address(2), &bytes));
        assert_eq!(a.receive().1, frame(address(0), address(2), &bytes));
    }
    let length = frame(EVERYBODY, address(0), &[0; 40]).len() as u64;
    assert_eq!(subnet.counter(0, "sent"), 400);
    assert_eq!(subnet.counter(0, "sent_bytes"), 400 * length);
    assert_eq!(subnet.counter(1, "received"), 400);
    assert_eq!(subnet.counter(2, "received_bytes"), 200 * length);
}

#[test]
fn frames_of_all_drivers_arrive() {
    let subnet = Subnet::new("drivers", 2);
    for without in [0, EVENT_IDX, MERGED, EVENT_IDX | MERGED | RECEIVERS] {
        let (mut a, mut b) = (subnet.guest_without(EVENT_IDX, 0), subnet.guest_without(without, 1));
        for length in [0, 1, 100, 1500] {
            a.send(&frame(address(1), address(0), &vec![7; length]));
            assert_eq!(b.receive().1, frame(address(1), address(0), &vec![7; length]));
            b.send(&frame(address(0), address(1), &vec![8; length]));
            assert_eq!(a.receive().1, frame(address(0), address(1), &vec![8; length]));
        }
    }
}

#[test]
fn who_says_to_be_somebody_else_is_not_heard() {
    let subnet = Subnet::new("forged", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    for source in [address(1), address(9), EVERYBODY] {
        a.send(&frame(address(1), source, b"forged"));
        a.send(&frame(EVERYBODY, source, b"forged"));
    }
    a.send(&frame(address(7), address(0), b"to nobody"));
    a.send(&frame(address(1), address(0), b"true"));
    assert_eq!(b.receive().1, frame(address(1), address(0), b"true"));
    assert_eq!(b.try_receive(), None);
    assert_eq!(subnet.counter(0, "forged"), 6);
    assert_eq!(subnet.counter(0, "unknown"), 1);
    assert_eq!(subnet.counter(0, "malformed"), 0);
}

#[test]
fn what_is_no_frame_is_counted() {
    let subnet = Subnet::new("malformed", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    a.send(&frame(address(1), address(0), &[])[..13]);
    a.send(&frame(address(1), address(0), &vec![1; 65535 + 5]));
    a.send_with(&[1, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0], &frame(address(1), address(0), &[1; 100]));
    a.send_with(&[0, 1, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0], &frame(address(1), address(0), &[1; 100]));
    let longest = frame(address(1), address(0), &vec![1; 65535 + 4]);
    a.send(&longest);
    assert!(b.receive().1 == longest);
    assert_eq!(subnet.counter(0, "malformed"), 4);
}

#[test]
fn a_chain_that_does_not_end_is_no_frame() {
    let subnet = Subnet::new("endless", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    // The next descriptor is none; it is the one before; it lies in nobody's memory; it is for receiving.
    for last in [(0, 8, 1, 70), (0, 8, 1, 0), (u64::MAX - 4, 8, 0, 0), (0, 8, 2, 0)] {
        a.send_with_last(&frame(address(1), address(0), b"endless"), last);
    }
    a.wait_until_sent();
    assert_eq!(b.try_receive(), None);
    assert_eq!(subnet.counter(0, "malformed"), 4);
    a.send(&frame(address(1), address(0), b"with an end"));
    assert_eq!(b.receive().1, frame(address(1), address(0), b"with an end"));
}

#[test]
fn a_frame_lies_in_many_pieces_and_not_in_too_many() {
    let subnet = Subnet::new("pieces", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    let sent = frame(address(1), address(0), &[9; MOST_DESCRIPTORS]);
    a.send_in_pieces(&sent[..MOST_DESCRIPTORS]);
    a.send_in_pieces(&sent[..MOST_DESCRIPTORS - 1]);
    assert_eq!(b.receive().1, sent[..MOST_DESCRIPTORS - 1]);
    assert_eq!(subnet.counter(0, "malformed"), 1);
}

#[test]
fn buffers_without_room_for_a_header_stop_their_ring() {
    let subnet = Subnet::new("small", 2);
    let (mut a, mut b) = (subnet.guest(0), subnet.guest_without_buffers(1));
    b.give_buffers_of(11, 60);
    for _ in 0..3 {
        a.send(&frame(address(1), address(0), b"large for it"));
    }
    a.wait_until_sent();
    assert_eq!(b.try_receive(), None);
    assert_eq!((subnet.counter(1, "damaged"), subnet.counter(1, "lost")), (1, 3));
    // And what would take more buffers than a frame has is lost.
    drop(b);
    let mut b = subnet.guest_without_buffers(1);
    b.give_buffers_of(12, 60);
    a.send(&frame(address(1), address(0), &[1; 1500]));
    a.send(&frame(address(1), address(0), &[1; 10]));
    a.wait_until_sent();
    assert_eq!((subnet.counter(1, "received"), subnet.counter(1, "lost")), (1, 4));
}

#[test]
fn a_frame_lies_in_one_buffer_for_who_does_not_merge_them() {
    let subnet = Subnet::new("unmerged", 2);
    let (mut a, mut b) = (subnet.guest(0), subnet.guest_without(MERGED, 1));
    a.send(&frame(address(1), address(0), &[1; 3000]));
    a.send(&frame(address(1), address(0), &[2; 2000]));
    assert_eq!(b.receive().1, frame(address(1), address(0), &[2; 2000]));
    assert_eq!(subnet.counter(1, "lost"), 1);
}

#[test]
fn what_is_large_arrives_as_one() {
    let subnet = Subnet::new("large", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    let (header, sent) = large(address(1), address(0), 64_000);
    for _ in 0..50 {
        a.send_with(&header, &sent);
        let (said, received) = b.receive();
        assert!(received == sent);
        // All but the number of buffers, which is the receiver's.
        assert_eq!(said[..10], header[..10]);
        assert!(said[10] > 1);
    }
}

#[test]
fn what_is_large_is_cut_for_who_does_not_take_it() {
    let subnet = Subnet::new("cut", 2);
    for without in [RECEIVERS, RECEIVERS | MERGED] {
        let (mut a, mut b) = (subnet.guest(0), subnet.guest_without(without, 1));
        let (header, sent) = large(address(1), address(0), 50_000);
        a.send_with(&header, &sent);
        let mut bytes = Vec::new();
        while bytes.len() < 50_000 {
            let (said, piece) = b.receive();
            assert_eq!(said[..2], [0, 0]);
            assert!(piece.len() <= 1514);
            bytes.extend_from_slice(&piece[54..]);
        }
        assert!(bytes == sent[54..]);
        // A checksum that is left undone is summed up: what is there then sums up to what is all ones.
        let mut summed = frame(address(1), address(0), &[3; 100]);
        summed[30..32].fill(0);
        a.send_with(&[1, 0, 0, 0, 0, 0, 14, 0, 16, 0, 0, 0], &summed);
        let received = b.receive().1;
        let sum: u32 =
            received[14..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(subnet.counter(1, "lost"), 0);
    }
}

#[test]
fn who_has_no_buffers_loses_its_own_frames_only() {
    let subnet = Subnet::new("buffers", 3);
    let [mut a, mut c] = [0, 2].map(|port| subnet.guest(port));
    let mut b = subnet.guest_without_buffers(1);
    for round in 0..100_u8 {
        a.send(&frame(address(1), address(0), &[round]));
        a.send(&frame(EVERYBODY, address(0), &[round]));
        a.send(&frame(address(2), address(0), &[round]));
        assert_eq!(c.receive().1, frame(EVERYBODY, address(0), &[round]));
        assert_eq!(c.receive().1, frame(address(2), address(0), &[round]));
    }
    assert_eq!(subnet.counter(1, "lost"), 200);
    // One buffer is not enough for a large frame, and is still there for a small one.
    b.give_buffers(1);
    let (header, sent) = large(address(1), address(0), 60_000);
    a.send_with(&header, &sent);
    a.send(&frame(address(1), address(0), b"small"));
    assert_eq!(b.receive().1, frame(address(1), address(0), b"small"));
    assert_eq!(subnet.counter(1, "lost"), 201);
    assert_eq!(subnet.counter(1, "received"), 1);
}

#[test]
fn a_guest_goes_and_comes_again() {
    let subnet = Subnet::new("again", 2);
    let mut a = subnet.guest(0);
    for round in 0..10_u8 {
        let mut b = subnet.guest(1);
        a.send(&frame(address(1), address(0), &[round]));
        assert_eq!(b.receive().1, frame(address(1), address(0), &[round]));
        // Nobody else may be at its port meanwhile.
        let mut other = UnixStream::connect(subnet.socket(1)).expect("the socket is there");
        assert_eq!(other.read(&mut [0]).expect("an end"), 0);
        b.send(&frame(address(0), address(1), &[round]));
        assert_eq!(a.receive().1, frame(address(0), address(1), &[round]));
    }
    assert_eq!(subnet.counter(1, "sent_away"), 0);
}

#[test]
fn a_port_can_be_added_while_the_switch_runs() {
    let subnet = Subnet::new("added", 1);
    assert_eq!(subnet.ask("port guest1=52:54:00:00:00:01"), "ok");
    assert!(subnet.ask("port guest2=52:54:00:00:00:01").contains("the port guest1 has the address"));
    assert!(subnet.ask("port ../guest=52:54:00:00:00:03").contains("a port's name"));
    assert!(subnet.ask("port guest3").contains("is not NAME=MAC"));
    assert!(subnet.ask("more").contains("is neither"));
    // What no socket can be made for is no port either.
    std::fs::create_dir(subnet.socket(3)).expect("a directory");
    assert!(subnet.ask("port guest3=52:54:00:00:00:03").contains("guest3.socket"));
    std::fs::remove_dir(subnet.socket(3)).expect("it is empty");
    assert_eq!(subnet.ask("port guest3=52:54:00:00:00:03"), "ok");
    let [mut a, mut b, mut c] = [0, 1, 3].map(|port| subnet.guest(port));
    a.send(&frame(address(3), address(0), b"hello"));
    a.send(&frame(address(1), address(0), b"hello"));
    assert_eq!(b.receive().1, frame(address(1), address(0), b"hello"));
    assert_eq!(c.receive().1, frame(address(3), address(0), b"hello"));
}

#[test]
fn what_is_for_others_goes_outside_and_comes_from_there() {
    let place = Place::new("outside");
    let listener = UnixListener::bind(place.path("stream")).expect("a socket");
    let subnet = Subnet::with_gateway("gateway", 2, Some(Outside::Stream(place.path("stream"))));
    let (mut outside, _) = listener.accept().expect("the switch comes");
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    let read = |outside: &mut UnixStream| {
        let mut length = [0; 4];
        outside.read_exact(&mut length).expect("a length");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        outside.read_exact(&mut frame).expect("a frame");
        frame
    };
    a.send(&frame(address(9), address(0), b"out"));
    assert_eq!(read(&mut outside), frame(address(9), address(0), b"out"));
    a.send(&frame(EVERYBODY, address(0), b"all"));
    assert_eq!(read(&mut outside), frame(EVERYBODY, address(0), b"all"));
    assert_eq!(b.receive().1, frame(EVERYBODY, address(0), b"all"));
    let (header, sent) = large(address(9), address(0), 40_000);
    a.send_with(&header, &sent);
    let mut bytes = Vec::new();
    while bytes.len() < 40_000 {
        bytes.extend_from_slice(&read(&mut outside)[54..]);
    }
    assert!(bytes == sent[54..]);
    for (to, source) in [(1, 0), (8, 9), (1, 9)] {
        let frame = frame(address(to), address(source), b"in");
        outside.write_all(&u32::try_from(frame.len()).expect("short").to_be_bytes()).expect("room");
        outside.write_all(&frame).expect("room");
    }
    assert_eq!(b.receive().1, frame(address(1), address(9), b"in"));
    assert_eq!(subnet.counter_of("gateway", "forged"), 1);
    assert_eq!(subnet.counter_of("gateway", "unknown"), 1);
    drop(outside);
    a.send(&frame(address(9), address(0), b"nobody is there"));
    wait_until("it is lost", || subnet.counter_of("gateway", "lost") == 1);
    a.send(&frame(address(1), address(0), b"inside"));
    assert_eq!(b.receive().1, frame(address(1), address(0), b"inside"));
}

#[test]
fn the_network_of_the_host_is_reached_by_a_tap_device() {
    const TEST: &str = "the_network_of_the_host_is_reached_by_a_tap_device";
    let within = |arguments: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net"]).args(arguments).env(TEST, "within").status()
    };
    if std::env::var_os(TEST).is_none() {
        if !within(&["ip", "tuntap", "add", "dev", "probe", "mode", "tap"])
            .is_ok_and(|status| status.success())
        {
            return eprintln!("{TEST} did not run: here are no TAP devices in a network of one's own");
        }
        let this = std::env::current_exe().expect("this test");
        let this = this.to_str().expect("a path of letters");
        assert!(within(&[this, "--exact", TEST, "--nocapture"]).expect("it runs").success());
        return;
    }
    let subnet = Subnet::with_gateway("tap", 1, Some(Outside::Tap("outside0".to_owned())));
    let mut a = subnet.guest(0);
    for line in [
        "addr add 10.9.0.1/24 dev outside0",
        "link set outside0 up",
        "neigh add 10.9.0.2 lladdr 52:54:00:00:00:00 dev outside0",
    ] {
        assert!(Command::new("ip").args(line.split(' ')).status().expect("ip").success(), "{line}");
    }
    let host = UdpSocket::bind("10.9.0.1:7000").expect("its address");
    host.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    host.send_to(b"from the host", "10.9.0.2:7001").expect("there is a way");
    let received = loop {
        let (_, received) = a.receive();
        if received.ends_with(b"from the host") {
            break received;
        }
    };
    // The way back: addresses and ports change places, which changes no checksum.
    let swapped = [6..12, 0..6, 12..26, 30..34, 26..30, 36..38, 34..36, 38..received.len()];
    let answer: Vec<u8> = swapped.into_iter().flat_map(|range| received[range].iter().copied()).collect();
    a.send_with(&[1, 0, 0, 0, 0, 0, 34, 0, 6, 0, 0, 0], &answer);
    let mut bytes = [0; 100];
    let (length, from) = host.recv_from(&mut bytes).expect("an answer");
    assert_eq!((&bytes[..length], from.to_string().as_str()), (&b"from the host"[..], "10.9.0.2:7001"));
}

/// Two guests exchange frames until they are told to stop, and each arrives.
fn exchange(subnet: &Subnet, stop: &AtomicBool) -> u32 {
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    let mut round = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        let bytes = round.to_le_bytes().repeat(1 + round as usize % 300);
        a.send(&frame(address(1), address(0), &bytes));
        b.send(&frame(address(0), address(1), &bytes));
        assert!(b.receive().1 == frame(address(1), address(0), &bytes));
        assert!(a.receive().1 == frame(address(0), address(1), &bytes));
        round += 1;
    }
    round
}

#[test]
fn whatever_a_guest_writes_into_its_rings_all_frames_of_others_arrive() {
    let subnet = Subnet::new("hostile", 3);
    let stop = AtomicBool::new(false);
    let mut fuzz = Fuzz::start("whatever_a_guest_writes_into_its_rings_all_frames_of_others_arrive", 3);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| exchange(&subnet, &stop));
        while fuzz.goes_on() && !others.is_finished() {
            let mut bad = subnet.guest_without(if fuzz.dice.below(2) == 0 { MERGED } else { 0 }, 2);
            for _ in 0..40 {
                bad.write_nonsense(&mut fuzz.dice);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let rounds = u64::from(others.join().expect("all of theirs arrived"));
        println!("{rounds} frames in each direction meanwhile");
        assert!(rounds > 0);
        for port in [0, 1] {
            assert_eq!(subnet.counter(port, "sent"), rounds);
            assert_eq!(subnet.counter(port, "lost") + subnet.counter(port, "malformed"), 0);
        }
        assert!(subnet.counter(2, "malformed") > 0 && subnet.counter(2, "damaged") > 0);
    });
    assert_eq!(subnet.counter(2, "sent_away"), 0);
}

#[test]
fn whatever_is_said_of_a_frame_what_its_receiver_hears_fits_it() {
    let subnet = Subnet::new("said", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    let mut fuzz = Fuzz::start("whatever_is_said_of_a_frame_what_its_receiver_hears_fits_it", 2);
    let (mut sent, mut received) = (0, 0);
    while fuzz.goes_on() {
        let (header, mut said) = large(address(1), address(0), [60, 200, 1449, 5000][fuzz.dice.index(4)]);
        let mut header = header.to_vec();
        if fuzz.dice.below(2) == 0 {
            fuzz.mutate(&mut header);
            header.resize(12, 0);
        } else {
            let mut after = said.split_off(12);
            after.truncate(80);
            fuzz.mutate(&mut after);
            said.extend(after);
        }
        a.send_with(&header.try_into().expect("a header"), &said);
        a.wait_until_sent();
        sent += 1;
        if let Some((header, frame)) = b.try_receive() {
            assert!(frame == said);
            let undone = Undone::check(&header, SENDERS, &frame[..frame.len().min(HEAD)], frame.len());
            assert!(undone.is_ok_and(|undone| undone.header(u16::from_le_bytes([header[10], header[11]])) == header));
            received += 1;
        }
    }
    assert_eq!(subnet.counter(0, "malformed"), sent - received);
    assert_eq!(subnet.counter(1, "received"), received);
}

#[test]
fn frames_of_others_arrive_while_one_floods() {
    let subnet = Subnet::new("flood", 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| exchange(&subnet, &stop));
        // To somebody who takes nothing, forged, malformed: a ring that is always full.
        let _deaf = subnet.guest_without_buffers(3);
        let mut bad = subnet.guest(2);
        let frames = [
            frame(address(3), address(2), &[1; 1500]),
            frame(address(3), address(0), &[1; 1500]),
            vec![0; 5],
        ];
        for _ in 0..3000 {
            for frame in &frames {
                bad.send(frame);
            }
            assert!(!others.is_finished());
        }
        bad.wait_until_sent();
        stop.store(true, Ordering::Relaxed);
        let rounds = u64::from(others.join().expect("all of theirs arrived"));
        println!("{rounds} frames in each direction meanwhile");
        assert_eq!(subnet.counter(0, "sent"), rounds);
        assert_eq!(subnet.counter(0, "lost") + subnet.counter(1, "lost"), 0);
    });
    for counter in ["forged", "malformed"] {
        assert_eq!(subnet.counter(2, counter), 3000);
    }
    assert_eq!(subnet.counter(3, "lost"), 3000);
}

#[test]
fn who_calls_everybody_all_the_time_is_not_always_heard() {
    let subnet = Subnet::new("storm", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    let (mut sent, mut received) = (0, 0);
    while subnet.counter(0, "excess") < 100 {
        for _ in 0..50 {
            a.send(&frame(EVERYBODY, address(0), b"storm"));
        }
        a.wait_until_sent();
        sent += 50;
        received += std::iter::from_fn(|| b.try_receive()).count() as u64;
    }
    assert!(received > 250);
    assert_eq!(subnet.counter(0, "excess"), sent - received);
    a.send(&frame(address(1), address(0), b"for one"));
    assert_eq!(b.receive().1, frame(address(1), address(0), b"for one"));
}

#[test]
fn what_a_guest_changes_after_it_was_checked_is_not_passed_on() {
    let subnet = Subnet::new("changed", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest(port));
    let stop = AtomicBool::new(false);
    let good = frame(address(1), address(0), &[5; 600]);
    let memory = a.memory().clone();
    let (mut heard, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        // The sender's address is another's every other moment.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for source in [address(9), address(0)] {
                    memory.write_slice(&source, SOURCE).expect("memory");
                }
            }
        });
        while heard < 50 || refused < 50 {
            a.send_from_first_place(&good);
            a.wait_until_sent();
            match b.try_receive() {
                Some((_, frame)) => {
                    assert_eq!(frame[6..12], address(0));
                    heard += 1;
                }
                None => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(subnet.counter(0, "forged"), refused);
    assert_eq!(subnet.counter(0, "sent"), heard);
}

#[test]
fn a_receiver_is_not_asked_to_tell_of_its_buffers() {
    let subnet = Subnet::new("quiet", 2);
    let [mut a, mut b] = [0, 1].map(|port| subnet.guest_without(EVENT_IDX, port));
    a.send(&frame(address(1), address(0), b"one"));
    b.receive();
    assert!(!b.is_told_to_kick(RECEIVING));
    wait_until("nothing more is there", || a.is_told_to_kick(SENDING));
}
