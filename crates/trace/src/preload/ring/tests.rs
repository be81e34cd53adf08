use std::collections::BTreeMap;

use super::*;
use crate::event::{Identity, append_text};

const HEADER: &str = include_str!("../../../preload/ring.h");

fn ring(cells: usize) -> Ring {
    Ring::new(Memory::new(bytes(cells)).unwrap(), cells)
}

/// What a writer does: reserves, and says where. Nobody else writes meanwhile.
fn reserve(ring: &Ring, thread: u64, cells: u64) -> Option<u64> {
    let head = ring.word(WORD_HEAD).load(Ordering::Acquire);
    let last = head + cells - 1;
    if ring.word(ring.cell(last)).load(Ordering::Acquire) != ring.lap(last) {
        return None;
    }
    ring.word(ring.cell(head)).store(state(RESERVED, head, thread, cells), Ordering::Release);
    ring.word(WORD_HEAD).store(head + cells, Ordering::Release);
    Some(head)
}

fn state(kind: u64, position: u64, thread: u64, cells: u64) -> u64 {
    kind << STATE_BIT | (position & ((1 << POSITION_BITS) - 1)) << POSITION_BIT | thread << THREAD_BIT | cells
}

fn write(ring: &Ring, position: u64, cells: u64, record: &[u8]) {
    for (at, bytes) in record.chunks(CELL_ROOM).enumerate() {
        let mut room = [0; CELL_ROOM];
        room[..bytes.len()].copy_from_slice(bytes);
        for (word, bytes) in room.chunks(8).enumerate() {
            let number = u64::from_ne_bytes(bytes.try_into().unwrap());
            let cell = ring.cell(position + at as u64);
            ring.word(cell + 1 + word).store(number, Ordering::Relaxed);
        }
    }
    ring.word(ring.cell(position)).store(state(PUBLISHED, position, 1, cells), Ordering::Release);
}

fn record(number: u64, text: &str) -> Vec<u8> {
    let mut behind = Vec::new();
    if !text.is_empty() {
        append_text(&mut behind, Identity::default(), text.as_bytes());
    }
    let text_bytes = u16::try_from(behind.len()).unwrap();
    let event = Event { operation: Operation::Open as u8, text_bytes, argument: number, ..Event::default() };
    [event.as_bytes(), &behind].concat()
}

fn put(ring: &Ring, number: u64, text: &str) -> bool {
    let record = record(number, text);
    let cells = record.len().div_ceil(CELL_ROOM) as u64;
    let Some(position) = reserve(ring, 1, cells) else { return false };
    write(ring, position, cells, &record);
    true
}

fn fetched(ring: &mut Ring) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    ring.fetch(usize::MAX, &mut |event, behind| {
        let text = texts(behind).next().map_or("", |(_, text)| std::str::from_utf8(text).unwrap());
        all.push((event.argument, text.to_owned()));
    });
    all
}

#[test]
fn the_numbers_are_the_header_s() {
    let lines = HEADER.lines().filter_map(|line| line.trim().strip_prefix("RING_")?.split_once(" = "));
    let there: BTreeMap<&str, u64> =
        lines.map(|(name, number)| (name, number.split(',').next().unwrap().parse().unwrap())).collect();
    let here = [
        ("HEADER_BYTES", HEADER_BYTES as u64),
        ("NAMED", NAMED as u64),
        ("CELL_BYTES", CELL_BYTES as u64),
        ("CELL_ROOM", CELL_ROOM as u64),
        ("WORD_MAGIC", WORD_MAGIC as u64),
        ("WORD_CELLS", WORD_CELLS as u64),
        ("WORD_HEAD", WORD_HEAD as u64),
        ("WORD_LOST", WORD_LOST as u64),
        ("FREE", 0),
        ("RESERVED", RESERVED),
        ("PUBLISHED", PUBLISHED),
        ("STATE_BIT", u64::from(STATE_BIT)),
        ("POSITION_BIT", u64::from(POSITION_BIT)),
        ("POSITION_BITS", u64::from(POSITION_BITS)),
        ("THREAD_BIT", u64::from(THREAD_BIT)),
        ("THREAD_BITS", u64::from(THREAD_BITS)),
    ];
    assert_eq!(there, BTreeMap::from(here));
    assert!(HEADER.contains(&format!("{MAGIC:#x}ull")));
}

#[test]
fn records_come_in_order_over_many_laps_whatever_their_length() {
    let mut ring = ring(64);
    let mut put_in = 0;
    for lap in 0..500_usize {
        let mut expected = Vec::new();
        for more in 0..lap % 7 {
            let text = "x".repeat((lap * 37 + more * 101) % 600);
            if put(&ring, put_in, &text) {
                expected.push((put_in, text));
            }
            put_in += 1;
        }
        assert_eq!(ring.counters().recorded, ring.handed_over + expected.len() as u64);
        assert_eq!(fetched(&mut ring), expected);
    }
    assert_eq!(ring.spoilt, 0);
}

#[test]
fn a_full_ring_takes_nothing_and_goes_on_when_it_was_read() {
    let mut ring = ring(8);
    assert_eq!((0..20).filter(|&number| put(&ring, number, "")).count(), 8);
    assert_eq!(fetched(&mut ring).len(), 8);
    assert!(put(&ring, 20, ""));
    assert_eq!(fetched(&mut ring), [(20, String::new())]);
}

#[test]
fn whoever_was_killed_in_the_middle_of_a_record_is_waited_for_and_then_passed_over() {
    // No thread has this number: the kernel's largest is below.
    let dead = (1 << THREAD_BITS) - 1;
    let mut ring = ring(64);
    assert!(put(&ring, 1, "before"));
    let position = reserve(&ring, dead, 3).unwrap();
    assert!(put(&ring, 2, "behind"));
    assert_eq!(fetched(&mut ring), [(1, "before".to_owned())]);
    assert!(fetched(&mut ring).is_empty(), "it could still come");
    ring.waiting = ring.waiting.map(|(position, since)| (position, since - LONGEST_ABSENCE));
    assert_eq!(fetched(&mut ring), [(2, "behind".to_owned())]);
    assert_eq!((ring.counters().lost, ring.waiting), (1, None));
    assert_ne!(ring.found(position), Found::Reserved(Reservation { thread: 1, cells: 3 }));
}

#[test]
fn whoever_is_alive_is_waited_for_longer_but_not_for_ever() {
    let mut ring = ring(64);
    reserve(&ring, u64::from(std::process::id()), 1).unwrap();
    assert!(put(&ring, 1, "behind"));
    assert!(fetched(&mut ring).is_empty());
    ring.waiting = ring.waiting.map(|(position, since)| (position, since - LONGEST_ABSENCE));
    assert!(fetched(&mut ring).is_empty());
    ring.waiting = ring.waiting.map(|(position, since)| (position, since - LONGEST_SILENCE));
    assert_eq!(fetched(&mut ring).len(), 1);
}

/// It was killed between the two steps of a reservation: the head stands where it stood.
#[test]
fn a_reservation_that_did_not_move_the_head_is_passed_over_too() {
    let mut ring = ring(64);
    let position = reserve(&ring, (1 << THREAD_BITS) - 1, 3).unwrap();
    ring.word(WORD_HEAD).store(position, Ordering::Relaxed);
    assert!(fetched(&mut ring).is_empty());
    ring.waiting = ring.waiting.map(|(position, since)| (position, since - LONGEST_ABSENCE));
    assert!(fetched(&mut ring).is_empty());
    assert!(put(&ring, 1, ""));
    assert_eq!(fetched(&mut ring).len(), 1);
    assert_eq!(ring.counters().lost, 1, "and nothing else was");
}

#[test]
fn what_makes_no_sense_is_counted_and_the_next_record_is_read() {
    let mut ring = ring(64);
    for spoil in [
        |event: &mut Event| event.operation = 200,
        |event: &mut Event| event.text_bytes = 7,
        |event: &mut Event| event.text_bytes = u16::MAX,
    ] {
        let mut event = Event { operation: Operation::Open as u8, ..Event::default() };
        spoil(&mut event);
        let position = reserve(&ring, 1, 1).unwrap();
        write(&ring, position, 1, event.as_bytes());
    }
    assert!(put(&ring, 1, "good"));
    assert_eq!(fetched(&mut ring), [(1, "good".to_owned())]);
    assert_eq!(ring.counters().lost, 3);
}

#[test]
fn a_ring_that_is_scribbled_over_is_in_order_again_when_that_has_ended() {
    let mut ring = ring(64);
    let words = ring.memory.words().len();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..20_000 {
        for _ in 0..next() % 4 {
            let number = match next() % 4 {
                0 => next(),
                1 => state(next() % 4, ring.tail + next() % 4, 1, next() % 80),
                2 => ring.tail + next() % 64,
                _ => u64::MAX,
            };
            // Mostly there where it hurts.
            let word = match next() % 3 {
                0 => usize::try_from(next() % 32).unwrap(),
                1 => ring.cell(ring.tail + next() % 3),
                _ => FIRST_CELL + usize::try_from(next()).unwrap() % (words - FIRST_CELL),
            };
            ring.word(word).store(number, Ordering::Relaxed);
        }
        ring.fetch(1 << 10, &mut |_, _| ());
        // Nobody waits here.
        ring.waiting = ring.waiting.map(|(position, since)| (position, since - LONGEST_SILENCE));
        ring.counters();
    }
    for _ in 0..200 {
        ring.fetch(1 << 10, &mut |_, _| ());
        ring.waiting = ring.waiting.map(|(position, since)| (position, since - LONGEST_SILENCE));
    }
    assert!(put(&ring, 1, "good"));
    assert_eq!(fetched(&mut ring), [(1, "good".to_owned())]);
}
