//! Emulated endpoints (thesis §2.3.5): the interface of real ones over one that they share, and no way past it.
#![expect(clippy::cast_possible_truncation, reason = "byte patterns are cut out of counters")]

use std::time::Duration;

use comb_net::emulated::{EmulatedEndpoint, Emulator, WINDOW_MESSAGES};
use comb_net::transport::Transport;
use comb_net::{Breach, Cause, ChannelKey, Geometry, InProcess, PostError, pair_for_tests};

const SOON: Duration = Duration::from_secs(10);

fn emulators() -> (InProcess, Emulator, Emulator) {
    let agent = InProcess::start();
    let emulator = |name: &str| Emulator::new(agent.connect(name).unwrap().endpoint("shared").unwrap());
    let (here, there) = (emulator("here"), emulator("there"));
    (agent, here, there)
}

/// Opens while the other emulator is serviced, as its own programs would.
fn open(from: &mut EmulatedEndpoint, to: &mut EmulatedEndpoint) -> (ChannelKey, ChannelKey) {
    let address = to.address();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| from.open(&address, SOON).unwrap());
        let accepted = to.accept(SOON).unwrap();
        (opened.join().unwrap(), accepted)
    })
}

#[test]
fn messages_go_and_come_and_each_endpoint_gets_its_own() {
    let (_agent, here, there) = emulators();
    let mut pairs: Vec<_> = (0..20)
        .map(|number| {
            let mut one = here.endpoint(&format!("one{number}")).unwrap();
            let mut two = there.endpoint(&format!("two{number}")).unwrap();
            let (to_two, to_one) = open(&mut one, &mut two);
            assert_eq!(two.peer(to_one).unwrap(), format!("here/shared#one{number}"));
            (one, two, to_two, to_one)
        })
        .collect();
    let mut buffer = [0; 5000];
    for round in 0..5_u8 {
        for (number, (one, _, to_two, _)) in pairs.iter_mut().enumerate() {
            one.send(*to_two, round, &vec![number as u8; number * 40]).unwrap();
        }
        for (number, (_, two, _, to_one)) in pairs.iter_mut().enumerate() {
            let got = two.receive_within(&mut buffer, SOON).unwrap().unwrap();
            assert_eq!((got.channel, got.kind, got.bytes), (*to_one, round, number * 40));
            assert!(buffer[..got.bytes].iter().all(|&byte| usize::from(byte) == number));
            assert_eq!(two.receive(&mut buffer), Ok(None));
            two.send(*to_one, round, b"back").unwrap();
        }
        for (one, ..) in &mut pairs {
            let mut came = 0;
            while came == 0 {
                came = one.poll(|delivery| assert_eq!(delivery.payload.to_vec(), b"back")).unwrap();
            }
        }
    }
    assert_eq!((here.strays(), there.strays()), (0, 0));
}

#[test]
fn one_that_does_not_receive_holds_back_its_own_sender_only() {
    let (_agent, here, there) = emulators();
    let (mut one, mut two) = (here.endpoint("one").unwrap(), there.endpoint("two").unwrap());
    let (mut three, mut four) = (here.endpoint("three").unwrap(), there.endpoint("four").unwrap());
    let (to_two, _) = open(&mut one, &mut two);
    let (to_four, _) = open(&mut three, &mut four);
    let mut sent = 0_u32;
    while one.send(to_two, 0, &sent.to_le_bytes()).is_ok() {
        sent += 1;
        there.service();
    }
    assert_eq!(sent, WINDOW_MESSAGES);
    assert!(matches!(one.send(to_two, 0, b"x"), Err(PostError::Full(peer)) if peer == "there/shared#two"));
    let mut buffer = [0; 4];
    for number in 0..200_u32 {
        three.send(to_four, 0, &number.to_le_bytes()).unwrap();
        four.receive_within(&mut buffer, SOON).unwrap().unwrap();
        assert_eq!(buffer, number.to_le_bytes());
        here.service();
    }
    for number in 0..1000_u32 {
        two.receive_within(&mut buffer, SOON).unwrap().unwrap();
        assert_eq!(buffer, number.to_le_bytes(), "in order");
        if one.send(to_two, 0, &sent.to_le_bytes()).is_ok() {
            sent += 1;
        }
        while sent <= number + 1 {
            one.send(to_two, 0, &sent.to_le_bytes()).unwrap();
            sent += 1;
        }
    }
}

#[test]
fn who_is_not_there_is_said_so() {
    let (_agent, here, there) = emulators();
    let mut one = here.endpoint("one").unwrap();
    let mut refused = |to: &str, words: &str| {
        let error = std::thread::scope(|scope| {
            let opened = scope.spawn(|| one.open(to, Duration::from_secs(2)));
            while !opened.is_finished() {
                there.service();
            }
            opened.join().unwrap().unwrap_err().to_string()
        });
        assert!(error.contains(words), "{error}");
    };
    refused("there/shared#nobody", "no emulated endpoint \"nobody\"");
    refused("there/shared", "say process/endpoint#name");
    refused("nowhere/shared#x", "no process \"nowhere\"");
    assert!(here.endpoint("one").unwrap_err().to_string().contains("is taken"));
    assert!(here.endpoint("a#b").unwrap_err().to_string().contains("is no name"));
    drop(one);
    here.endpoint("one").unwrap();
}

#[test]
fn closing_tells_the_peer_after_it_read_what_was_sent() {
    let (_agent, here, there) = emulators();
    let (mut one, mut two) = (here.endpoint("one").unwrap(), there.endpoint("two").unwrap());
    let (to_two, to_one) = open(&mut one, &mut two);
    one.send(to_two, 0, b"last words").unwrap();
    one.close(to_two);
    assert_eq!(one.send(to_two, 0, b"more"), Err(PostError::NoChannel));
    let mut buffer = [0; 16];
    assert_eq!(two.receive_within(&mut buffer, SOON).unwrap().unwrap().bytes, 10);
    let ended = two.receive_within(&mut buffer, SOON).unwrap_err();
    assert_eq!((ended.channel, ended.peer.as_str()), (to_one, "here/shared#one"));
    assert_eq!(two.receive(&mut buffer), Ok(None));
    // An emulator that goes ends what its endpoints had.
    let (_, to_one) = open(&mut one, &mut two);
    drop((one, here));
    assert_eq!(two.receive_within(&mut buffer, SOON).unwrap_err().channel, to_one);
}

#[test]
fn a_key_of_one_endpoint_is_no_use_to_another() {
    let (_agent, here, there) = emulators();
    let (mut one, mut two) = (here.endpoint("one").unwrap(), there.endpoint("two").unwrap());
    let mut thief = here.endpoint("thief").unwrap();
    let (to_two, _) = open(&mut one, &mut two);
    assert_eq!(thief.send(to_two, 0, b"x"), Err(PostError::NoChannel));
    thief.close(to_two);
    one.send(to_two, 0, b"still open").unwrap();
}

/// Two emulators, and one that is none: it has no endpoint, which would refuse kinds that are reserved, and writes what it
/// likes to the second.
fn emulators_and_mallory() -> (InProcess, Emulator, Emulator, Box<dyn Transport>) {
    let agent = InProcess::start();
    let shared = |name: &str| agent.connect(name).unwrap().endpoint("shared").unwrap();
    let (here, mut there) = (shared("here"), shared("there"));
    let (mallory, theirs) = pair_for_tests(Geometry::default());
    there.attach("mallory/raw", theirs).unwrap();
    let (here, there) = (Emulator::new(here), Emulator::new(there));
    (agent, here, there, mallory)
}

/// An emulator that makes up sub-addresses, credit or messages loses its real channel; the conversations of others go on.
#[test]
fn an_emulator_that_breaks_a_rule_is_cut_off() {
    let number = |number: u32| number.to_le_bytes().to_vec();
    let cases = [
        (0xB0, vec![1, 2], "shorter than its header"),
        (0xB0, [number(1), vec![9, b'x']].concat(), "without names"),
        (0xB3, vec![], "shorter than its header"),
        (0xB6, number(1), "message kind 182"),
        (0x05, number(1), "message kind 5"),
        // The first channel of the victim has the sub-address 1: index 0, first epoch.
        (0xB3, [number(1), vec![0]].concat(), "a sub-address that belongs to another channel"),
        (0xB5, number(1), "a sub-address that belongs to another channel"),
    ];
    for (kind, message, rule) in cases {
        let (_agent, here, there, mut mallory) = emulators_and_mallory();
        let (mut one, mut two) = (here.endpoint("one").unwrap(), there.endpoint("two").unwrap());
        let (to_two, _) = open(&mut one, &mut two);
        // An honest channel first, so that there is something to lose.
        mallory.send(0xB0, &[&number(77), &[3], b"twome"]).unwrap();
        let accepted = two.accept(SOON).unwrap();
        mallory.send(kind, &[&message]).unwrap();
        let ended = two.receive_within(&mut [0; 8], SOON).unwrap_err();
        assert_eq!((ended.channel, ended.peer.as_str()), (accepted, "mallory/raw#me"));
        assert!(matches!(ended.cause, Cause::Breach(_)) && ended.to_string().contains(rule), "{ended}");
        one.send(to_two, 0, b"x").unwrap();
        assert_eq!(two.receive_within(&mut [0; 8], SOON).unwrap().unwrap().bytes, 1);
    }
}

/// Each question of a peer that reads no answers left one more of them in our memory.
#[test]
fn an_emulator_that_asks_and_never_reads_is_cut_off() {
    let (_agent, here, there, mut mallory) = emulators_and_mallory();
    let (mut one, mut two) = (here.endpoint("one").unwrap(), there.endpoint("two").unwrap());
    let (to_two, _) = open(&mut one, &mut two);
    mallory.send(0xB0, &[&77_u32.to_le_bytes(), &[3], b"twome"]).unwrap();
    let accepted = two.accept(SOON).unwrap();
    let mut questions = 0;
    let ended = loop {
        // For an endpoint that is not there.
        while questions < 10_000 && mallory.send(0xB0, &[&78_u32.to_le_bytes(), &[3], b"tenme"]).is_ok() {
            questions += 1;
        }
        match two.receive(&mut [0; 8]) {
            Err(ended) => break ended,
            Ok(got) => assert!(got.is_none() && questions < 10_000, "{questions} questions: not noticed"),
        }
    };
    assert_eq!(ended.channel, accepted);
    assert!(ended.to_string().contains("whose answers it does not read"), "{ended}");
    one.send(to_two, 0, b"x").unwrap();
    assert_eq!(two.receive_within(&mut [0; 8], SOON).unwrap().unwrap().bytes, 1);
}

#[test]
fn an_emulator_that_ignores_the_window_or_invents_credit_is_cut_off() {
    for flood in [true, false] {
        let (_agent, _here, there, mut mallory) = emulators_and_mallory();
        let mut two = there.endpoint("two").unwrap();
        mallory.send(0xB0, &[&77_u32.to_le_bytes(), &[3], b"twome"]).unwrap();
        two.accept(SOON).unwrap();
        let mut rule = "credit for messages that were not sent";
        if flood {
            rule = "more messages to an emulated endpoint than its window";
            for _ in 0..=WINDOW_MESSAGES {
                mallory.send(0xB3, &[&[1, 0, 0, 0, 0]]).unwrap();
            }
        } else {
            mallory.send(0xB4, &[&1_u32.to_le_bytes(), &1_u32.to_le_bytes()]).unwrap();
        }
        let ended = loop {
            match two.receive_within(&mut [0; 8], Duration::from_secs(2)) {
                Err(ended) => break ended,
                Ok(got) => assert!(got.is_some(), "{rule}: not noticed"),
            }
        };
        assert_eq!(ended.cause, Cause::Breach(Breach::Form(rule)));
    }
}
