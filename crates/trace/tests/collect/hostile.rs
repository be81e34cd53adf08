//! Agents that are none: they spoil what is theirs, and nothing else.

use std::io::{self, Cursor, Read};

use comb_trace::codec::Encoder;
use comb_trace::collect::{Collector, Limits, PeerFault, Refusal, ServeError};
use comb_trace::event::Event;
use comb_trace::trace_file::{Frame, Moment};
use comb_types::Dice;

use super::known::{Folder, read_all};
use super::scripted::{FRAME, HELLO, MAGIC, Scripted, frame, head, hello, message, open};

fn served(collector: &Collector, script: &[u8]) -> Result<u64, ServeError> {
    let stream = Scripted::new(Cursor::new(script));
    collector.serve(stream, "somebody", |_| {}).map(|served| served.frames)
}

fn fault(collector: &Collector, script: &[u8]) -> PeerFault {
    match served(collector, script) {
        Err(ServeError::Peer { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_does_not_keep_to_the_protocol_is_told_in_what() {
    let folder = Folder::new();
    let collector = Collector::new(folder.path(), Limits::default()).unwrap();
    let after_open = |rest: &[u8]| [&hello("one"), &open(9)[..], rest].concat();
    assert_eq!(fault(&collector, b"GET / HTTP/1.1\r\n\r\n"), PeerFault::Foreign);
    let huge = [&[FRAME][..], &[0xff; 8]].concat();
    assert_eq!(fault(&collector, &after_open(&huge)), PeerFault::Size);
    assert_eq!(fault(&collector, &[MAGIC, &huge].concat()), PeerFault::Turn);
    assert_eq!(fault(&collector, &[MAGIC, &open(1)].concat()), PeerFault::Turn);
    assert_eq!(fault(&collector, &[hello("one"), hello("one")].concat()), PeerFault::Kind);
    assert_eq!(fault(&collector, &after_open(&frame(1, &head()))), PeerFault::Gap);
    assert_eq!(
        fault(&collector, &after_open(&frame(0, &Frame::Moment(Moment::default())))),
        PeerFault::Order
    );
    let twice = [frame(0, &head()), frame(1, &head())].concat();
    assert_eq!(fault(&collector, &after_open(&twice)), PeerFault::Order);
    let damaged = message(FRAME, &[&0_u64.to_le_bytes()[..], &[3, 1, 0, 0, 0, 9, 9, 9, 9, 7]].concat());
    assert_eq!(fault(&collector, &after_open(&damaged)), PeerFault::Damaged);
    // Nothing of that is in a file.
    let read = read_all(folder.path());
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].path.metadata().unwrap().len(), 12);
}

#[test]
fn a_frame_that_comes_twice_is_there_once() {
    let folder = Folder::new();
    let collector = Collector::new(folder.path(), Limits::default()).unwrap();
    let moment = || frame(1, &Frame::Moment(Moment::default()));
    let sent = [hello("one"), open(1), frame(0, &head()), moment(), frame(0, &head()), moment()].concat();
    let sent = [sent, frame(2, &Frame::End(Moment::default()))].concat();
    assert_eq!(served(&collector, &sent).unwrap(), 3);
    let read = read_all(folder.path());
    assert!(read.len() == 1 && read[0].fault.is_none(), "{:?}", read[0].fault);
}

#[test]
fn a_version_of_another_time_is_told_ours() {
    let folder = Folder::new();
    let collector = Collector::new(folder.path(), Limits::default()).unwrap();
    let refused = served(&collector, &[MAGIC, &message(HELLO, &[7, 9, 1, b'x'])].concat());
    assert!(matches!(
        refused,
        Err(ServeError::Refused { refusal: Refusal::Version { lowest: 1, highest: 1 }, .. })
    ));
}

#[test]
fn a_machine_s_name_is_no_path() {
    let folder = Folder::new();
    let within = folder.path().join("within");
    let collector = Collector::new(&within, Limits::default()).unwrap();
    for (number, name) in ["../../etc/x", "/etc/x", "..", "", "a\0b", "~/x", "-rf *"].into_iter().enumerate()
    {
        let number = u8::try_from(number).unwrap();
        served(&collector, &[hello(name), open(number), frame(0, &head())].concat()).unwrap();
    }
    assert_eq!(read_all(&within).len(), 7);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A trace without an end.
struct Endless {
    ready: Cursor<Vec<u8>>,
    sequence: u64,
    encoder: Encoder,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ready.position() == self.ready.get_ref().len() as u64 {
            (0..1000).for_each(|number| {
                self.encoder.add(&Event { operation: 3, start_ns: number, ..Event::default() }, &[]);
            });
            let block = Frame::Events(self.encoder.take().unwrap());
            self.ready = Cursor::new(frame(self.sequence, &block));
            self.sequence += 1;
        }
        self.ready.read(buffer)
    }
}

#[test]
fn who_sends_without_end_is_refused_when_the_room_is_used_up() {
    let folder = Folder::new();
    let limits = Limits { most_bytes: 200_000, most_peer_bytes: 100_000, ..Limits::default() };
    let collector = Collector::new(folder.path(), limits).unwrap();
    let sent_by = |recording, peer| {
        let begin = [hello("one"), open(recording), frame(0, &head())].concat();
        let endless = Endless { ready: Cursor::new(begin), sequence: 1, encoder: Encoder::default() };
        collector.serve(Scripted::new(endless.take(4 << 20)), peer, |_| {})
    };
    let is_full = |sent| matches!(sent, Err(ServeError::Refused { refusal: Refusal::Full, .. }));
    assert!(is_full(sent_by(1, "one")));
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(is_full(sent_by(2, "one")), "not even a file");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
    // Others have their share.
    assert!(is_full(sent_by(3, "another")));
    let read = read_all(folder.path());
    assert!(read.len() == 2 && read.iter().all(|read| read.numbers.len() >= 1000));
    let bytes: u64 = read.iter().map(|read| read.path.metadata().unwrap().len()).sum();
    assert!(bytes <= 200_000, "{bytes}");
}

#[test]
fn more_agents_than_may_be_are_told_so() {
    let folder = Folder::new();
    let limits = Limits { most_agents: 0, ..Limits::default() };
    let collector = Collector::new(folder.path(), limits).unwrap();
    let refused = served(&collector, &hello("one"));
    assert!(matches!(refused, Err(ServeError::Refused { refusal: Refusal::Busy, .. })));
    assert_eq!(collector.agents(), 0);
}

#[test]
fn whatever_comes_files_are_good_up_to_their_end() {
    let mut dice = Dice::new(1);
    let mut encoder = Encoder::default();
    let mut blocks = (0..3_u64).map(|number| {
        encoder.add(&Event { operation: 3, start_ns: number, ..Event::default() }, &[]);
        Frame::Events(encoder.take().unwrap())
    });
    let frames = [head(), blocks.next().unwrap(), blocks.next().unwrap(), Frame::End(Moment::default())];
    for _ in 0..300 {
        let folder = Folder::new();
        let collector = Collector::new(folder.path(), Limits::default()).unwrap();
        let mut parts = vec![hello("one"), open(1)];
        parts.extend(frames.iter().enumerate().map(|(number, one)| frame(number as u64, one)));
        let at = dice.index(parts.len());
        let other = dice.index(parts.len());
        match dice.below(3) {
            0 => parts.swap(at, other),
            1 => {
                let byte = dice.index(parts[at].len());
                parts[at][byte] ^= 1 << dice.below(8);
            }
            _ => {
                // What is wrong lies behind a checksum that is right.
                let mut body = parts[at].split_off(if at == 0 { 21 } else { 9 });
                let byte = dice.index(body.len());
                body[byte] ^= 1 << dice.below(8);
                let kind = if at == 0 { HELLO } else { parts[at][0] };
                parts[at] = [if at == 0 { MAGIC } else { &[] }, &message(kind, &body)].concat();
            }
        }
        let _ = served(&collector, &parts.concat());
        for read in read_all(folder.path()) {
            assert!(read.fault.is_none_or(|fault| fault.to_string().contains("cut off")));
            assert!(read.numbers.iter().copied().eq(0..read.numbers.len() as u64));
        }
    }
}
