//! Disks, as engines and their guests have them: each has what it wrote, and nobody has what another wrote. The processes that serve them are killed at any time.

#![expect(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

mod engine;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use comb_types::Dice;
use comb_types::fuzz::Fuzz;
use comb_vm::devices::disk::{Block, Disk, OpenError, Writes};
use engine::{BUFFERS, Engine, Piece, Place, RING_SIZE, Served, wait_until};
use vhost::VhostBackend;
use vm_memory::{Bytes, GuestAddress};

const MEMORY: usize = 4 << 20;
const SECTORS: u64 = 10_000;
const SECTOR: usize = 512;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const OK: u8 = 0;
const ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;
/// Nobody has written a status.
const NONE: u8 = 77;

/// A base of which each sector says which one it is.
fn base(place: &Place) -> (PathBuf, Vec<u8>) {
    let content: Vec<u8> = (0..SECTORS)
        .flat_map(|sector| [0xba5e << 32 | sector; SECTOR / 8])
        .flat_map(u64::to_le_bytes)
        .collect();
    let path = place.path("base");
    fs::write(&path, &content).expect("a file");
    (path, content)
}

fn block(base: &Path, writes: &Writes) -> Block {
    Block::new(Disk::open(base, writes).expect("a disk"))
}

/// A place in guest memory for each request that is on its way.
fn slot(number: u64) -> u64 {
    BUFFERS + number * 0x1_0000
}

/// Puts a request into the ring.
fn put(engine: &mut Engine, number: u64, kind: u32, first: u64, data: &[Piece]) -> u16 {
    let mut header = [0; 17];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..16].copy_from_slice(&first.to_le_bytes());
    header[16] = NONE;
    engine.memory.write_slice(&header, GuestAddress(slot(number))).expect("memory");
    let mut pieces = vec![Piece::Read(slot(number), 16)];
    pieces.extend(data);
    pieces.push(Piece::Write(slot(number) + 16, 1));
    engine.offer(0, &pieces)
}

fn status(engine: &Engine, number: u64) -> u8 {
    engine.memory.read_obj(GuestAddress(slot(number) + 16)).expect("memory")
}

/// Has a request served.
fn ask(engine: &mut Engine, kind: u32, first: u64, data: &[Piece]) -> (u8, u32) {
    put(engine, 0, kind, first, data);
    engine.kick(0);
    let (_, written) = engine.wait(0);
    (status(engine, 0), written)
}

fn read(engine: &mut Engine, first: u64, sectors: u64) -> Vec<u8> {
    let bytes = sectors as u32 * SECTOR as u32;
    // Not in one piece, and not in pieces of whole sectors.
    let data = [Piece::Write(slot(1), 100), Piece::Write(slot(1) + 4096, bytes - 100)];
    assert_eq!(ask(engine, IN, first, &data), (OK, bytes + 1));
    let mut content = vec![0; bytes as usize];
    engine.memory.read_slice(&mut content[..100], GuestAddress(slot(1))).expect("memory");
    engine.memory.read_slice(&mut content[100..], GuestAddress(slot(1) + 4096)).expect("memory");
    content
}

fn write(engine: &mut Engine, first: u64, content: &[u8]) {
    engine.memory.write_slice(content, GuestAddress(slot(1))).expect("memory");
    assert_eq!(ask(engine, OUT, first, &[Piece::Read(slot(1), content.len() as u32)]), (OK, 1));
}

/// What discards and zeroes say.
fn ranges(engine: &mut Engine, kind: u32, ranges: &[(u64, u32, u32)]) -> u8 {
    let mut bytes = Vec::new();
    for (first, sectors, flags) in ranges {
        bytes.extend(first.to_le_bytes());
        bytes.extend(sectors.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
    }
    engine.memory.write_slice(&bytes, GuestAddress(slot(1))).expect("memory");
    ask(engine, kind, 0, &[Piece::Read(slot(1), bytes.len() as u32)]).0
}

fn vm(socket: &Path) -> Engine {
    let mut engine = Engine::connect(socket, MEMORY, 1);
    engine.start(0, 0);
    engine
}

#[test]
fn virtual_machines_share_a_base_and_not_what_they_write() {
    let place = Place::new("share");
    let (base, content) = base(&place);
    let kinds =
        [Writes::Overlay(place.path("overlay")), Writes::Temporary, Writes::Temporary, Writes::Refused];
    let served = [0, 1, 2, 3].map(|at| {
        let socket = place.path(&format!("socket{at}"));
        (Served::new(block(&base, &kinds[at]), std::slice::from_ref(&socket)), vm(&socket))
    });
    let [(one_served, mut one), (_two, mut two), (_three, mut three), (refuses, mut reader)] = served;
    assert_eq!(one.configuration(8), SECTORS.to_le_bytes());
    write(&mut one, 7, &[1; 3 * SECTOR]);
    write(&mut two, 8, &[2; 3 * SECTOR]);
    let expected = |at: usize, bytes: &[u8]| {
        let mut expected = content[6 * SECTOR..12 * SECTOR].to_vec();
        expected[at * SECTOR..at * SECTOR + bytes.len()].copy_from_slice(bytes);
        expected
    };
    assert_eq!(read(&mut one, 6, 6), expected(1, &[1; 3 * SECTOR]));
    assert_eq!(read(&mut two, 6, 6), expected(2, &[2; 3 * SECTOR]));
    assert_eq!(read(&mut three, 6, 6), expected(0, &[]));
    assert_eq!(read(&mut reader, 6, 6), expected(0, &[]));
    assert_eq!(ask(&mut reader, OUT, 6, &[Piece::Read(slot(1), 512)]).0, ERROR);
    assert_eq!(ask(&mut reader, FLUSH, 0, &[]), (OK, 1));
    // In the middle of what was written, so that ranges are split; and at the end.
    write(&mut one, 8, &[3; SECTOR]);
    write(&mut one, SECTORS - 1, &[4; SECTOR]);
    assert_eq!(read(&mut one, 7, 3), [[1; SECTOR], [3; SECTOR], [1; SECTOR]].as_flattened());
    assert_eq!(read(&mut one, SECTORS - 2, 2)[SECTOR..], [4; SECTOR]);
    let id = ask(&mut one, GET_ID, 0, &[Piece::Write(slot(1), 20)]);
    assert_eq!(id, (OK, 21));
    let mut name = [0; 20];
    one.memory.read_slice(&mut name, GuestAddress(slot(1))).expect("memory");
    assert_eq!(&name[..5], b"base\0");
    drop(one);
    assert_eq!(one_served.end().counts.refused, 0);
    assert_eq!(refuses.end().counts.refused, 1);
    assert!(fs::read(&base).expect("a file") == content, "nobody has written to the base");
}

#[test]
fn zeroes_and_discards() {
    let place = Place::new("zeroes");
    let (base, content) = base(&place);
    let own = place.path("own");
    fs::write(&own, &content).expect("a file");
    let kinds = [(&base, Writes::Overlay(place.path("overlay"))), (&own, Writes::Exclusive)];
    for (at, (file, writes)) in kinds.iter().enumerate() {
        let socket = place.path(&format!("socket{at}"));
        let _served = Served::new(block(file, writes), std::slice::from_ref(&socket));
        let mut vm = vm(&socket);
        write(&mut vm, 100, &[9; 8 * SECTOR]);
        assert_eq!(ranges(&mut vm, WRITE_ZEROES, &[(99, 2, 0), (105, 9, 1)]), OK);
        let after = read(&mut vm, 98, 17);
        assert_eq!(after[..SECTOR], content[98 * SECTOR..99 * SECTOR]);
        assert_eq!(after[SECTOR..3 * SECTOR], [0; 2 * SECTOR]);
        assert_eq!(after[3 * SECTOR..7 * SECTOR], [9; 4 * SECTOR]);
        assert_eq!(after[7 * SECTOR..16 * SECTOR], [0; 9 * SECTOR]);
        assert_eq!(after[16 * SECTOR..], content[114 * SECTOR..115 * SECTOR]);
        assert_eq!(ranges(&mut vm, DISCARD, &[(0, SECTORS as u32, 0)]), OK);
        assert_eq!(read(&mut vm, 101, 4), [0; 4 * SECTOR], "what was its own is gone");
        for (wrong, status) in [
            ((SECTORS, 1, 0), ERROR),
            ((SECTORS - 1, 2, 0), ERROR),
            ((u64::MAX, 2, 0), ERROR),
            ((0, 1, 2), UNSUPPORTED),
        ] {
            assert_eq!(ranges(&mut vm, WRITE_ZEROES, &[wrong]), status);
            assert_eq!(ranges(&mut vm, DISCARD, &[wrong]), status);
        }
        assert_eq!(ranges(&mut vm, DISCARD, &[(0, 1, 1)]), UNSUPPORTED);
        assert_eq!(ranges(&mut vm, DISCARD, &[(0, 0, 0); 17]), ERROR);
        assert_eq!(ask(&mut vm, DISCARD, 0, &[Piece::Read(slot(1), 15)]).0, ERROR);
    }
    assert!(fs::read(&base).expect("a file") == content, "the base is as it was");
    assert!(fs::read(&own).expect("a file") != content, "the disk is not");
}

#[test]
fn what_can_not_be_is_refused_and_counted() {
    let place = Place::new("refused");
    let (base, content) = base(&place);
    let socket = place.path("socket");
    let served =
        Served::new(block(&base, &Writes::Overlay(place.path("overlay"))), std::slice::from_ref(&socket));
    let mut vm = vm(&socket);
    let sector = Piece::Write(slot(1), 512);
    let given = Piece::Read(slot(1), 512);
    let end = MEMORY as u64;
    for (kind, first, data, status) in [
        (IN, SECTORS, vec![sector], ERROR),
        (IN, SECTORS - 1, vec![sector, sector], ERROR),
        (IN, u64::MAX, vec![sector], ERROR),
        (IN, 0, vec![Piece::Write(slot(1), 511)], ERROR),
        (IN, 0, vec![sector, Piece::Write(slot(1), 1)], ERROR),
        (IN, 0, vec![Piece::Write(slot(1), u32::MAX - 511)], ERROR),
        (IN, 0, vec![Piece::Write(end - 511, 512)], ERROR),
        (IN, 0, vec![Piece::Write(u64::MAX - 100, 512)], ERROR),
        (OUT, SECTORS, vec![given], ERROR),
        (OUT, 0, vec![Piece::Read(slot(1), 513)], ERROR),
        (OUT, 0, vec![Piece::Read(end, 512)], ERROR),
        (OUT, 0, vec![sector, given], ERROR),
        (3, 0, vec![], UNSUPPORTED),
        (14, 0, vec![given], UNSUPPORTED),
        (u32::MAX, 0, vec![], UNSUPPORTED),
    ] {
        assert_eq!(ask(&mut vm, kind, first, &data), (status, 1), "{kind} {first}");
    }
    // Without a place for the status, and without a whole header.
    for pieces in [vec![Piece::Read(slot(0), 16)], vec![Piece::Read(slot(0), 16), given]] {
        vm.offer(0, &pieces);
        vm.kick(0);
        assert_eq!(vm.wait(0).1, 0);
    }
    vm.offer(0, &[Piece::Read(slot(0), 15), Piece::Write(slot(0) + 16, 1)]);
    vm.kick(0);
    assert_eq!(vm.wait(0).1, 1);
    // A circle, whose status would be good otherwise.
    let head = put(&mut vm, 0, FLUSH, 0, &[]);
    vm.wait_after_kick(0);
    assert_eq!(status(&vm, 0), OK);
    vm.set_descriptor(0, (head + 1) % RING_SIZE, slot(0) + 16, 1, 3, (head + 1) % RING_SIZE);
    vm.offer_head(0, head);
    vm.wait_after_kick(0);
    assert_eq!(status(&vm, 0), ERROR);
    assert_eq!(read(&mut vm, 5, 1), content[5 * SECTOR..6 * SECTOR]);
    drop(vm);
    assert_eq!(served.end().counts.refused, 15 + 2 + 1 + 1);
}

#[test]
fn whatever_a_guest_asks_its_disk_serves_on() {
    let place = Place::new("requests");
    let (base, content) = base(&place);
    let sockets = [place.path("bad"), place.path("good")];
    let served = sockets.each_ref().map(|socket| {
        Served::new(
            block(&base, &Writes::Overlay(socket.with_extension("overlay"))),
            std::slice::from_ref(socket),
        )
    });
    let mut good = vm(&sockets[1]);
    let mut fuzz = Fuzz::start("whatever_a_guest_asks_its_disk_serves_on", 3);
    while fuzz.goes_on() {
        let mut bad = vm(&sockets[0]);
        for _ in 0..40 {
            let places = [slot(0), slot(1), slot(2), MEMORY as u64 - 256, u64::MAX - 8, 0];
            let lengths = [16, 1, 512, 4096, 15, 513, u32::MAX, 1 << 21, 0];
            let kinds = [IN, OUT, FLUSH, GET_ID, DISCARD, WRITE_ZEROES, 99];
            let firsts = [0, 1, SECTORS - 1, SECTORS, u64::MAX, 4064];
            let mut header = vec![0; 16];
            header[..4].copy_from_slice(&kinds[fuzz.dice.index(7)].to_le_bytes());
            header[8..16].copy_from_slice(&firsts[fuzz.dice.index(6)].to_le_bytes());
            if fuzz.dice.below(4) == 0 {
                fuzz.mutate(&mut header);
            }
            header.resize(64, 0);
            bad.memory.write_slice(&header, GuestAddress(slot(0))).expect("memory");
            bad.memory.write_slice(&header, GuestAddress(slot(1))).expect("memory");
            let mut pieces = vec![Piece::Read(slot(0), 16)];
            for _ in 0..fuzz.dice.below(5) {
                let (at, length) = (places[fuzz.dice.index(6)], lengths[fuzz.dice.index(9)]);
                let is_read = fuzz.dice.below(2) == 0;
                pieces.push(if is_read { Piece::Read(at, length) } else { Piece::Write(at, length) });
            }
            pieces.push(Piece::Write(slot(3), 1));
            if fuzz.dice.below(6) == 0 {
                pieces.remove(fuzz.dice.index(pieces.len()));
            }
            bad.offer(0, &pieces);
            bad.kick_anyway(0);
            // Its ring may be among what was written, so that nothing comes back. When this is answered, the kick was heard.
            bad.front.get_features().expect("the engine has done nothing");
        }
        assert_eq!(read(&mut good, 4060, 8), content[4060 * SECTOR..4068 * SECTOR]);
    }
    drop(good);
    let [bad, good] = served.map(Served::end);
    assert_eq!((good.counts.refused, good.counts.failed), (0, 0));
    assert!(bad.counts.refused > 0);
    assert!(fs::read(&base).expect("a file") == content, "the base is as it was");
}

#[test]
fn what_only_one_may_have_only_one_has() {
    let place = Place::new("exclusive");
    let (base, _) = base(&place);
    let overlay = Writes::Overlay(place.path("overlay"));
    let first = Disk::open(&base, &overlay).expect("nobody has it");
    let refused = Disk::open(&base, &overlay).expect_err("it has one already");
    assert!(matches!(&refused, OpenError::InUse(path) if *path == place.path("overlay")), "{refused}");
    let shared = Disk::open(&base, &Writes::Refused).expect("many may read it");
    let refused = Disk::open(&base, &Writes::Exclusive).expect_err("others read it");
    assert!(matches!(&refused, OpenError::InUse(path) if *path == base), "{refused}");
    drop((first, shared));
    // A process that another test starts has it too, for a moment.
    let mut exclusive = None;
    wait_until("nobody has it", || {
        exclusive = Disk::open(&base, &Writes::Exclusive).ok();
        exclusive.is_some()
    });
    for writes in [&Writes::Exclusive, &overlay, &Writes::Refused, &Writes::Temporary] {
        let refused = Disk::open(&base, writes).expect_err("one has it");
        assert!(matches!(&refused, OpenError::InUse(path) if *path == base), "{refused}");
    }
    let mut second = start(&place.path("socket"), &base, &["--exclusive"]);
    let mut said = String::new();
    second.0.stderr.take().expect("a pipe").read_to_string(&mut said).expect("words");
    assert!(!second.0.wait().expect("it ends").success());
    assert!(said.contains("is in use by another virtual machine"), "{said}");
}

#[test]
fn what_is_no_disk_is_refused() {
    let place = Place::new("odd");
    let odd = place.path("odd");
    for bytes in [0, 511, 513] {
        fs::write(&odd, vec![0; bytes]).expect("a file");
        let refused = Disk::open(&odd, &Writes::Temporary).expect_err("it has no whole sectors");
        assert!(matches!(refused, OpenError::Length(..)), "{refused}");
    }
    let refused = Disk::open(&place.path("nothing"), &Writes::Refused).expect_err("it is not there");
    assert!(matches!(refused, OpenError::File(..)), "{refused}");
}

/// A process that serves a disk. It is killed when the test has no more use for it.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(socket: &Path, base: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_comb-vm-disk"));
    command.arg("--socket").arg(socket).arg("--base").arg(base).args(arguments);
    Process(command.stderr(Stdio::piped()).spawn().expect("it starts"))
}

/// A sector that says what it is, so that one which is half written is known.
fn sector(first: u64, version: u64) -> Vec<u8> {
    [first << 32 | version; SECTOR / 8].map(u64::to_le_bytes).as_flattened().to_vec()
}

/// Writes to the sectors of a disk again and again, eight requests at a time, while the process that serves it is killed at random times.
fn writes_while_it_is_killed(name: &str, arguments: &[&str], is_kept: bool) {
    const ROUNDS: u64 = 12;
    const REQUESTS: u64 = 8;
    const PLACES: u64 = 300;
    /// So far apart that they are in several leaves of the map.
    const APART: u64 = 33;
    let place = Place::new(name);
    let (base, content) = base(&place);
    let socket = place.path("socket");
    let overlay = place.path("overlay");
    let overlay = overlay.to_str().expect("a path");
    let arguments: Vec<_> =
        arguments.iter().map(|argument| if *argument == "OVERLAY" { overlay } else { argument }).collect();
    let mut process = start(&socket, &base, &arguments);
    let mut vm = vm(&socket);
    let mut dice = Dice::new(7);
    let mut versions = vec![0; PLACES as usize];
    let mut version = 0;
    for _ in 0..ROUNDS {
        for _ in 0..dice.below(60) {
            batch(&mut vm, &mut dice, &mut versions, &mut version);
            served(&mut vm);
        }
        // It is killed with requests on their way: some are done, some are not, and perhaps one is half done.
        batch(&mut vm, &mut dice, &mut versions, &mut version);
        let enough = dice.below(REQUESTS as u32 + 1);
        wait_until("some are done", || u32::from(vm.done(0)) >= enough);
        process.kill();
        process = start(&socket, &base, &arguments);
        vm.reconnect(&socket);
        served(&mut vm);
        for (at, version) in (0..).zip(&versions) {
            let found = read(&mut vm, at * APART, 1);
            let first = at as usize * APART as usize * SECTOR;
            let expected =
                if *version == 0 { content[first..first + SECTOR].to_vec() } else { sector(at, *version) };
            assert!(found == expected, "sector {at} of version {version}");
        }
    }
    // The guest is gone, and a new one comes.
    drop(vm);
    process.kill();
    let _process = start(&socket, &base, &arguments);
    let mut vm = self::vm(&socket);
    for (at, version) in (0..).zip(&versions) {
        let first = at as usize * APART as usize * SECTOR;
        let is_there = *version != 0 && is_kept;
        let expected = if is_there { sector(at, *version) } else { content[first..first + SECTOR].to_vec() };
        assert!(
            read(&mut vm, at * APART, 1) == expected,
            "sector {at} of version {version}, for a new guest"
        );
    }
    return assert!(arguments[0] == "--exclusive" || fs::read(&base).expect("a file") == content);

    fn served(vm: &mut Engine) {
        for number in 0..REQUESTS {
            vm.wait(0);
            assert_eq!(status(vm, number), OK);
        }
    }

    fn batch(vm: &mut Engine, dice: &mut Dice, versions: &mut [u64], version: &mut u64) {
        for number in 0..REQUESTS {
            if dice.below(8) == 0 {
                put(vm, number, FLUSH, 0, &[]);
                continue;
            }
            let at = u64::from(dice.below(PLACES as u32));
            *version += 1;
            versions[at as usize] = *version;
            vm.memory.write_slice(&sector(at, *version), GuestAddress(slot(number) + 4096)).expect("memory");
            put(vm, number, OUT, at * APART, &[Piece::Read(slot(number) + 4096, SECTOR as u32)]);
        }
        vm.kick(0);
    }
}

#[test]
fn an_overlay_outlives_the_processes_that_serve_it() {
    writes_while_it_is_killed("killed-overlay", &["--overlay", "OVERLAY"], true);
}

#[test]
fn a_temporary_overlay_outlives_the_processes_that_serve_it_and_not_its_guest() {
    writes_while_it_is_killed("killed-temporary", &["--temporary"], false);
}

#[test]
fn an_exclusive_disk_outlives_the_processes_that_serve_it() {
    writes_while_it_is_killed("killed-exclusive", &["--exclusive"], true);
}

#[test]
fn what_an_engine_has_not_kept_is_not_taken() {
    let place = Place::new("kept");
    let (base, _) = base(&place);
    let socket = place.path("socket");
    let _served = Served::new(block(&base, &Writes::Temporary), std::slice::from_ref(&socket));
    let mut engine = Engine::connect(&socket, MEMORY, 1);
    let lie = File::open(&base).expect("a file");
    engine.keep(&lie);
    engine.wait_until_gone();
    let mut vm = vm(&socket);
    assert_eq!(read(&mut vm, 3, 1).len(), SECTOR);
}
