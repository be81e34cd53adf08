//! Mutates what is read from files and tables, for a bounded time: traces with bits turned over, cut off, spliced, their checksums made
//! right again so that what lies behind is reached, blocks unpacked, changed and packed again, and tables. Whatever comes: no panic, no
//! memory beyond what is there to be read, and what came before the damage is handed over. What agents send to a collector is treated in the same
//! way: whatever it writes down of that can be read.
//!
//! `COMB_FUZZ_SECONDS` is the time of each test (1), `COMB_FUZZ_SEED` replays one. A failure prints its seed.

#[path = "collect/scripted.rs"]
mod scripted;

use std::fs;
use std::io::Cursor;

use comb_trace::codec::{Decoder, Encoder};
use comb_trace::collect::{Collector, Limits};
use comb_trace::event::{Event, Identity, append_text};
use comb_trace::history::{Chronicler, Fact, History, Instance, Known};
use comb_trace::report::{self, By, Content};
use comb_trace::store::{TABLES, TABLES_FOLDER, ensure_tables};
use comb_trace::trace_file::{Frame, Head, Mount, Process, framed, read_trace, write_magic};
use comb_types::Dice;
use comb_types::fuzz::Fuzz;

/// In front of a frame: kind, length, checksum. And of a block: its length unpacked, events, place.
const FRAME_HEAD_BYTES: usize = 9;
const BLOCK_HEAD_BYTES: usize = 16;
const MAGIC_BYTES: usize = 12;

/// Events of some sense: names, processes, sessions.
fn events(dice: &mut Dice, count: u32) -> Vec<(Event, Vec<u8>)> {
    let mut events = Vec::new();
    for number in 0..u64::from(count) {
        let operation = [1, 2, 3, 4, 5, 6, 7, 11, 16, 17, 18, 27, 28, 31, 64, 65, 66][dice.index(17)];
        let process = 1 + dice.below(4);
        let inode = u64::from(dice.below(6));
        let identity = Identity { inode, device: 1, generation: u32::from(inode > 0) };
        let mut behind = Vec::new();
        if matches!(operation, 1 | 11 | 16..=18 | 31 | 64 | 65) {
            let text: &[u8] = if operation == 64 { b"name\0place\0" } else { b"../some/\xffpath" };
            append_text(&mut behind, identity, text);
            if operation == 16 {
                append_text(&mut behind, Identity::default(), b"/another");
            }
        }
        let event = Event {
            operation,
            flags: dice.roll().to_le_bytes()[0],
            text_bytes: u16::try_from(behind.len()).unwrap(),
            thread: process + dice.below(2),
            process,
            descriptor: i32::try_from(dice.below(5)).unwrap() - 1,
            start_ns: 1_000_000 + number * 1000,
            duration_ns: u64::from(dice.below(900)),
            result: [0, 3, 4096, -2, i64::MAX, i64::MIN][dice.index(6)],
            asked: [0, 4096, u64::MAX][dice.index(3)],
            argument: [0, 2, 0o1102, u64::MAX][dice.index(4)],
            handle: u64::from(dice.below(5)),
            file: identity,
            offset: [0, 4096, u64::MAX][dice.index(3)],
            size: u64::from(dice.below(10_000)),
            mode: [0, 0o100_644, 0o040_755][dice.index(3)],
            pages: dice.below(3),
        };
        events.push((event, behind));
    }
    events
}

fn blocks(dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::default();
    (0..3)
        .map(|_| {
            events(dice, 200).iter().for_each(|(event, behind)| encoder.add(event, behind));
            encoder.take().unwrap()
        })
        .collect()
}

fn head() -> Head {
    Head {
        machine: "one".to_owned(),
        mounts: vec![Mount { device: 1, kind: "ext4".to_owned(), place: b"/".to_vec() }],
        processes: vec![Process {
            number: 1,
            name: b"\xff\xfe".to_vec(),
            open: vec![(0, Identity { inode: 1, device: 1, generation: 0 }, b"/x".to_vec())],
            ..Process::default()
        }],
        ..Head::default()
    }
}

fn frames(blocks: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let head = framed(&Frame::Head(Box::new(head())));
    let end = framed(&Frame::End(Default::default()));
    [head]
        .into_iter()
        .chain(blocks.into_iter().map(|block| framed(&Frame::Events(block))))
        .chain([end])
        .collect()
}

fn trace(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_magic(&mut bytes).unwrap();
    bytes.extend(frames.concat());
    bytes
}

#[derive(Default)]
struct Counting {
    facts: u64,
    instances: u64,
}

impl Chronicler for Counting {
    fn operation(&mut self, fact: &Fact, known: Known<'_>) {
        self.facts += 1;
        // What is told has a name and a program.
        assert!((fact.program.0 as usize) < known.processes.programs().len());
        assert!(fact.file.is_none_or(|file| (file.0 as usize) < known.files.files().len()));
    }
    fn instance(&mut self, _instance: &Instance, _known: Known<'_>) {
        self.instances += 1;
    }
}

fn read(bytes: &[u8]) -> u64 {
    let mut history = History::new(Counting::default());
    let _ = read_trace(bytes, &mut history);
    history.finish();
    history.chronicler.facts
}

#[test]
fn fuzz_bytes_of_a_trace() {
    let mut fuzz = Fuzz::start("bytes of a trace", 1);
    let blocks = blocks(&mut fuzz.dice);
    let whole = trace(&frames(blocks));
    let all = read(&whole);
    assert!(all > 300, "{all} operations");
    while fuzz.goes_on() {
        let mut bytes = whole.clone();
        fuzz.mutate(&mut bytes);
        assert!(read(&bytes) <= all);
    }
}

#[test]
fn fuzz_frames_whose_checksums_are_right() {
    let mut fuzz = Fuzz::start("frames whose checksums are right", 1);
    let blocks = blocks(&mut fuzz.dice);
    let frames = frames(blocks);
    while fuzz.goes_on() {
        let mut frames = frames.clone();
        let at = fuzz.dice.index(frames.len());
        let mut body = frames[at].split_off(FRAME_HEAD_BYTES);
        fuzz.mutate(&mut body);
        let kind = if fuzz.dice.below(10) == 0 { fuzz.dice.roll().to_le_bytes()[0] } else { frames[at][0] };
        let length = u32::try_from(body.len()).unwrap();
        let sum = crc32fast::hash(&body) ^ u32::from(kind);
        frames[at] = [&[kind][..], &length.to_le_bytes(), &sum.to_le_bytes(), &body].concat();
        if fuzz.dice.below(5) == 0 {
            let other = fuzz.dice.index(frames.len());
            frames.swap(at, other);
        }
        read(&trace(&frames));
    }
}

#[test]
fn fuzz_columns_of_a_block() {
    let mut fuzz = Fuzz::start("columns of a block", 1);
    let blocks = blocks(&mut fuzz.dice);
    while fuzz.goes_on() {
        let mut decoder = Decoder::default();
        let at = fuzz.dice.index(blocks.len());
        let before: u64 = blocks[..at].iter().map(|block| decoded(&mut decoder, block)).sum();
        assert_eq!(before, 200 * at as u64);
        let (block_head, packed) = blocks[at].split_at(BLOCK_HEAD_BYTES);
        let mut plain = zstd::stream::decode_all(packed).unwrap();
        fuzz.mutate(&mut plain);
        let mut block = block_head.to_vec();
        block[..8].copy_from_slice(&(plain.len() as u64).to_le_bytes());
        if fuzz.dice.below(4) == 0 {
            fuzz.mutate(&mut block);
            block.resize(BLOCK_HEAD_BYTES, 0);
        }
        block.extend(zstd::bulk::compress(&plain, 1).unwrap());
        decoded(&mut decoder, &block);
    }
}

fn decoded(decoder: &mut Decoder, block: &[u8]) -> u64 {
    let mut events = 0;
    let _ = decoder.read(block, |event, behind| {
        events += 1;
        assert_eq!(usize::from(event.text_bytes), behind.len());
    });
    events
}

/// The tables of recordings that mean nothing, with numbers as large as can be, and those tables damaged.
#[test]
fn fuzz_tables() {
    let mut fuzz = Fuzz::start("tables", 1);
    let folder = std::env::temp_dir().join(format!("comb-trace-fuzz-{}", std::process::id()));
    while fuzz.goes_on() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let blocks = blocks(&mut fuzz.dice);
        fs::write(folder.join("one.trace"), trace(&frames(blocks))).unwrap();
        ensure_tables(&folder, &mut |_| {}).unwrap();
        let by = By::ALL[fuzz.dice.index(By::ALL.len())];
        let report = report::make(&folder, Some(by), &Content::default()).unwrap();
        assert!(report.about.operations > 300 && !report.groups.is_empty());
        report::write(&report, &folder.join("report")).unwrap();
        for _ in 0..20 {
            let table = TABLES[fuzz.dice.index(TABLES.len())];
            let path = folder.join(TABLES_FOLDER).join(table.name).join("part-00000.parquet");
            let whole = fs::read(&path).unwrap();
            let mut bytes = whole.clone();
            fuzz.mutate(&mut bytes);
            let is_changed = bytes != whole;
            fs::write(&path, bytes).unwrap();
            // A table that nobody asks for may be as it is.
            let is_read = matches!(table.name, "trace" | "instance" | "machine" | "process" | "file");
            let made = report::make(&folder, Some(By::Process), &Content::default());
            assert!(
                made.is_err() || !(is_changed && is_read),
                "{} was changed, and nobody noticed",
                table.name
            );
            fs::write(&path, whole).unwrap();
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn fuzz_what_an_agent_sends() {
    let mut fuzz = Fuzz::start("what an agent sends", 1);
    let folder = std::env::temp_dir().join(format!("comb-trace-fuzz-agent-{}", std::process::id()));
    let blocks = blocks(&mut fuzz.dice);
    let mut parts = vec![scripted::hello("one"), scripted::open(1)];
    let frames = [scripted::head()]
        .into_iter()
        .chain(blocks.into_iter().map(Frame::Events))
        .chain([Frame::End(Default::default())]);
    parts.extend(frames.enumerate().map(|(number, frame)| scripted::frame(number as u64, &frame)));
    while fuzz.goes_on() {
        let _ = fs::remove_dir_all(&folder);
        let collector = Collector::new(&folder, Limits::default()).unwrap();
        let mut parts = parts.clone();
        let at = 1 + fuzz.dice.index(parts.len() - 1);
        match fuzz.dice.below(4) {
            0 => fuzz.mutate(&mut parts[at]),
            1 => {
                let other = fuzz.dice.index(parts.len());
                parts.swap(at, other);
            }
            // Behind a checksum that is right; and once more behind that of the frame in it.
            layers => {
                let mut body = parts[at].split_off(FRAME_HEAD_BYTES);
                if layers == 3 && body.len() > 17 {
                    let mut inner = body.split_off(17);
                    fuzz.mutate(&mut inner);
                    let inner = scripted::message(body[8], &inner);
                    body.truncate(8);
                    body.extend(inner);
                } else {
                    fuzz.mutate(&mut body);
                }
                parts[at] = scripted::message(parts[at][0], &body);
            }
        }
        let stream = scripted::Scripted::new(Cursor::new(parts.concat()));
        let _ = collector.serve(stream, "somebody", |_| {});
        drop(collector);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(path.parent(), Some(folder.as_path()));
            read(&fs::read(path).unwrap());
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_trace_of_nothing_but_its_beginning_has_nothing_in_it() {
    assert_eq!(read(&trace(&[])[..MAGIC_BYTES]), 0);
}
