//! Recorded words, words out of bounds, and any bytes.

use super::*;
use comb_types::Dice;

fn key() -> Key {
    Key(format!("ed25519:{}", "3d".repeat(32)).parse().unwrap())
}

fn member() -> Member {
    let (name, address) = ("beta".to_owned(), "10.0.0.2:7170".parse().unwrap());
    Member { name, key: key(), next_key: None, address, first: 5, count: 2, since_s: 300 }
}

fn cell() -> CellWord {
    CellWord {
        cell: 5,
        incarnation: 2,
        state: CellState::Up,
        is_member: true,
        pid: 300,
        channels: 3,
        uptime_ms: 1000,
        cpu_ms: 20,
        memory_bytes: 1 << 20,
        round_trips: 9,
    }
}

/// One of each.
fn words() -> Vec<Word> {
    let killed =
        KilledWord { pid: 300, peers: 1, noticed: vec![(6, 400)], recovered: vec![(6, 500, 600, 7)] };
    let started =
        Answered::Started { pid: 300, incarnation: 3, channels: 3, channels_expected: 3, took_ns: 400 };
    let asks = [
        Asked::Kill { cell: 5, hold: true },
        Asked::Start { cell: 5 },
        Asked::Restart { cell: 5 },
        Asked::Numbers { count: 4 },
        Asked::PutOut { name: "beta".into() },
        Asked::NextKey(key()),
    ];
    let answers = [
        Ok(Answered::Done),
        Ok(Answered::Killed(killed)),
        Ok(started),
        Ok(Answered::Numbers { first: 9 }),
        Err("no".into()),
    ];
    let ended = CellWord { cell: 6, state: CellState::Ended("killed".into()), is_member: false, ..cell() };
    let mut words = vec![
        Word::Beat,
        Word::Members { members: vec![member()], out: vec![("gamma".into(), key())] },
        Word::Cells { counter: 7, cells: vec![cell(), ended] },
        Word::Switched,
        Word::Leave,
    ];
    words.extend(asks.map(|ask| Word::Ask { number: 3, uid: Some(1000), ask }));
    words.extend(answers.map(|answer| Word::Answer { number: 3, answer }));
    words
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Openings and words of version 1 as they were recorded. A later version must still read them.
#[test]
fn recorded_words_are_still_read() {
    let join = Join {
        secret: Some("5ec".into()),
        name: "beta".into(),
        is_name_meant: true,
        address: "0.0.0.0:7170".parse().unwrap(),
        cells: 2,
    };
    let admitted = Reception::Admitted { you: "beta".into(), by: "alpha".into(), members: vec![member()] };
    let mut now = vec![
        hexadecimal(&opening_of(1, &Greeting::Line)),
        hexadecimal(&opening_of(1, &Greeting::Join(join))),
        hexadecimal(&opening_of(1, &Reception::Welcome)),
        hexadecimal(&opening_of(1, &admitted)),
        hexadecimal(&opening_of(1, &Reception::Refused("no".into()))),
        hexadecimal(&opening_of(1, &Greeting::Shell(Shell { uid: 1000 }))),
        hexadecimal(&opening_of(1, &Greeting::Machine(Shell { uid: 1000 }))),
    ];
    now.extend(words().iter().map(|word| hexadecimal(&word.bytes())));
    let recorded: Vec<&str> = include_str!("recorded_v1.txt").lines().collect();
    assert_eq!(now, recorded, "what is said now is not what version 1 says");
    for (word, line) in words().into_iter().zip(&recorded[7..]) {
        let bytes: Vec<u8> =
            (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect();
        assert_eq!(Word::read(&bytes), Ok(word));
    }
}

#[test]
fn neighbours_speak_and_others_are_told_whom_to_upgrade() {
    for version in [PROTOCOL, PROTOCOL + 1] {
        assert_eq!(read_opening(&opening_of(version, &Greeting::Line)), Ok(Greeting::Line));
    }
    let later = read_opening::<Greeting>(&opening_of(PROTOCOL + 2, &Greeting::Line)).unwrap_err();
    assert_eq!(later.of("beta"), format!("host beta runs protocol 3, this one {PROTOCOL}: upgrade this one"));
    let none = read_opening::<Greeting>(&opening_of(0, &Greeting::Line)).unwrap_err();
    assert_eq!(none.of("beta"), format!("host beta runs protocol 0, this one {PROTOCOL}: upgrade beta"));
    for senseless in
        [&b""[..], b"hosts", b"hosts\x01", b"hosts\x01\x00", b"hosts\x01\x00\x09", b"HOSTS\x01\x00\x00"]
    {
        assert_eq!(read_opening::<Greeting>(senseless), Err(Unheard::Senseless), "{senseless:?}");
    }
}

#[test]
fn what_is_out_of_bounds_is_a_lie() {
    let long = "x".repeat(LONGEST_SENTENCE + 1);
    let lies = [
        Word::Cells { counter: 1, cells: vec![cell(); MOST_CELLS as usize + 1] },
        Word::Cells { counter: 1, cells: vec![CellWord { cell: 0, ..cell() }] },
        Word::Cells { counter: 1, cells: vec![CellWord { cell: 65, ..cell() }] },
        Word::Cells { counter: 1, cells: vec![CellWord { state: CellState::Ended(long.clone()), ..cell() }] },
        Word::Cells {
            counter: 1,
            cells: vec![CellWord { state: CellState::Ended("\x1b[2J".into()), ..cell() }],
        },
        Word::Members { members: vec![Member { first: 60, count: 20, ..member() }], out: Vec::new() },
        Word::Members { members: vec![Member { name: "a b".into(), ..member() }], out: Vec::new() },
        Word::Members { members: Vec::new(), out: vec![(long.clone(), key())] },
        Word::Ask { number: 1, uid: None, ask: Asked::Kill { cell: 65, hold: false } },
        Word::Ask { number: 1, uid: None, ask: Asked::Numbers { count: 0 } },
        Word::Ask { number: 1, uid: None, ask: Asked::PutOut { name: long.clone() } },
        Word::Answer { number: 1, answer: Err(long) },
    ];
    for lie in lies {
        assert!(Word::read(&lie.bytes()).is_err(), "{lie:?}");
    }
    assert!(Word::read(&vec![0; LONGEST_WORD + 1]).is_err());
    assert_eq!(plain("a\nb"), "a b");
    assert_eq!(plain(&"ä".repeat(LONGEST_SENTENCE)).len(), LONGEST_SENTENCE);
}

/// Whatever comes is a word within its bounds or none; nothing panics, and nothing is made that is longer than what came.
#[test]
fn any_bytes_are_a_word_or_none() {
    let mut dice = Dice::new(7);
    let mut byte = |most: usize| dice.index(most);
    let recorded: Vec<Vec<u8>> = words().iter().map(Word::bytes).collect();
    let (mut read, mut refused) = (0, 0);
    for round in 0..60_000 {
        let mut bytes: Vec<u8> = if round % 2 == 0 {
            let mut bytes = recorded[byte(recorded.len())].clone();
            for _ in 0..=byte(4) {
                let at = byte(bytes.len());
                match byte(3) {
                    0 => bytes[at] = u8::try_from(byte(256)).expect("a byte"),
                    1 => bytes.insert(at, u8::try_from(byte(256)).expect("a byte")),
                    _ if bytes.len() > 1 => drop(bytes.remove(at)),
                    _ => {}
                }
            }
            bytes
        } else {
            (0..byte(80)).map(|_| u8::try_from(byte(256)).expect("a byte")).collect()
        };
        match Word::read(&bytes) {
            Ok(word) => {
                read += 1;
                assert_eq!(word.check(), Ok(()));
                // It says no more than it said.
                assert_eq!(Word::read(&word.bytes()), Ok(word));
            }
            Err(_) => refused += 1,
        }
        bytes.splice(0..0, *b"hosts\x01\x00");
        let _ = read_opening::<Greeting>(&bytes);
        let _ = read_opening::<Reception>(&bytes);
    }
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}
