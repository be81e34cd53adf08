//! Segments, with programs of a few instructions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use comb_kernel::objects::{Sizes, Tag};
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::thread::{Registers, Touch};
use comb_kernels::memory::{
    Anonymous, Backing, BackingError, Clock, FaultError, File, Paged, Pages, Piece, Replacement, Resources,
    Rights, Segments, Step,
};
use comb_kernels::processing::{Answer, Driver, End, Handler, Processors, RoundRobin, Stopped};
use proptest::prelude::*;
use rustix::io::Errno;

const PAGE: u64 = 4096;
const CODE: u64 = 0x400;
const LIST: u64 = 0x500;
const DATA: u64 = 0x1000;
const WRITE: Rights = Rights { write: true, execute: false };

/// Stores `cl` at each address of a list that `rsi` points to, and increments it; at the list's end it makes call 60.
const TOUCHES: &[u8] = &[
    0x48, 0x8b, 0x06, // mov rax, [rsi]
    0x48, 0x85, 0xc0, // test rax, rax
    0x74, 0x0a, // jz +10
    0x88, 0x08, // mov [rax], cl
    0xfe, 0xc1, // inc cl
    0x48, 0x83, 0xc6, 0x08, // add rsi, 8
    0xeb, 0xee, // jmp -18
    0xb8, 60, 0, 0, 0, // mov eax, 60
    0x0f, 0x05, // syscall
];

/// Pages in memory, of which it is told what was read and written, and which may fail.
#[derive(Debug)]
struct Kept {
    pages: u64,
    content: Mutex<BTreeMap<u64, Vec<u8>>>,
    read: Mutex<Vec<Range<u64>>>,
    fails_to_read: AtomicBool,
    fails_to_write: AtomicBool,
}

impl Kept {
    fn new(pages: u64) -> Arc<Self> {
        Arc::new(Self {
            pages,
            content: Mutex::default(),
            read: Mutex::default(),
            fails_to_read: AtomicBool::new(false),
            fails_to_write: AtomicBool::new(false),
        })
    }

    fn check(&self, fails: &AtomicBool, page: u64, action: &'static str) -> Result<(), BackingError> {
        if fails.load(SeqCst) {
            return Err(BackingError::Host { name: "it".to_owned(), page, action, error: Errno::IO });
        }
        Ok(())
    }

    /// How often a page was read.
    fn reads_of(&self, page: u64) -> usize {
        self.read.lock().expect("nobody panics").iter().filter(|range| range.contains(&page)).count()
    }

    fn first_bytes(&self) -> BTreeMap<u64, u8> {
        self.content.lock().expect("nobody panics").iter().map(|(page, bytes)| (*page, bytes[0])).collect()
    }
}

impl Backing for Kept {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(&self, first: u64, into: &[Piece]) -> Result<(), BackingError> {
        self.check(&self.fails_to_read, first, "read")?;
        let content = self.content.lock().expect("nobody panics");
        let mut page = first;
        for piece in into {
            for offset in (0..piece.len()).step_by(4096) {
                piece.fill(offset, content.get(&page).unwrap_or(&vec![0; 4096]));
                page += 1;
            }
        }
        self.read.lock().expect("nobody panics").push(first..page);
        Ok(())
    }

    fn write(&self, first: u64, from: &[Piece]) -> Result<(), BackingError> {
        self.check(&self.fails_to_write, first, "written")?;
        let mut content = self.content.lock().expect("nobody panics");
        let mut page = first;
        for piece in from {
            for offset in (0..piece.len()).step_by(4096) {
                let mut bytes = vec![0; 4096];
                piece.copy_out(offset, &mut bytes);
                content.insert(page, bytes);
                page += 1;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BackingError> {
        Ok(())
    }
}

/// Evicts sixteen pages after the other, whoever uses them.
#[derive(Debug, Default)]
struct InTurn(u64);

impl Replacement for InTurn {
    fn make_room(&mut self, _: &Range<u64>, _: bool, pages: &Pages) -> Step {
        let turns = pages.count().div_ceil(16);
        for _ in 0..turns {
            let range = self.0..self.0 + 16;
            self.0 = if range.end < pages.count() { range.end } else { 0 };
            if range.clone().any(|page| pages.is_here(page)) {
                return Step::Evict(range);
            }
        }
        Step::Nothing
    }
}

/// Ends a program at its first call, and syncs before that if it is to.
struct Ends {
    syncs: bool,
}

impl Handler for Ends {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        if self.syncs
            && let Err(error) = stopped.segments.sync(stopped.resources, DATA * PAGE, PAGE)
        {
            return Answer::Ends(End::Fault { at: stopped.registers.rip, error });
        }
        Answer::Ends(End::Exit(0))
    }
}

fn resources(groups: u32) -> Resources {
    Resources::alone(Sizes::default(), groups).expect("memory")
}

fn anonymous(bytes: Vec<u8>) -> Box<Paged> {
    let pages = (bytes.len() as u64).div_ceil(PAGE);
    let backing = Anonymous::new(pages, bytes, &std::env::temp_dir()).expect("a file");
    Box::new(Paged::new(Arc::new(backing), Box::new(Clock::default()), 64))
}

/// Touches pages of a segment in this order, and more: how it ends.
fn touch(segment: Paged, rights: Rights, pages: impl IntoIterator<Item = u64>, syncs: bool) -> End {
    let mut driver = Driver::new(resources(8), Box::new(RoundRobin::default()), Processors::Own);
    let space = driver.add_space();
    let (segments, _) = driver.space(space).expect("just added");
    let code = Rights { write: false, execute: true };
    segments.add(CODE, code, anonymous(TOUCHES.to_vec())).expect("there is room");
    let addresses = pages.into_iter().map(|page| (DATA + page) * PAGE).chain([0]);
    let list = addresses.flat_map(u64::to_le_bytes).collect();
    segments.add(LIST, Rights { write: false, execute: false }, anonymous(list)).expect("there is room");
    segments.add(DATA, rights, Box::new(segment)).expect("there is room");
    let registers =
        Registers { rip: CODE * PAGE, rsi: LIST * PAGE, rcx: 1, rdi: DATA * PAGE, ..Registers::default() };
    driver.add_thread(space, registers, USUAL_PRIORITY);
    driver.run(&mut Ends { syncs }).expect("it runs").remove(&space).expect("it has ended")
}

fn paged(backing: &Arc<Kept>, policy: impl Replacement + 'static, most: u32) -> Paged {
    Paged::new(backing.clone(), Box::new(policy), most)
}

/// Of 32 groups of pages, for 16 of which there are frames, one is used all the time. The clock sees by refaults which one that is.
#[test]
fn what_is_used_again_stays_because_it_faults_again() {
    let order = || (0..310).flat_map(|turn| [0, (1 + turn % 31) * 16]);
    let reads_of_hot = |policy: Box<dyn Replacement>| {
        let kept = Kept::new(32 * 16);
        let segment = Paged::new(kept.clone(), policy, 16 * 16);
        assert!(matches!(touch(segment, WRITE, order(), false), End::Exit(0)));
        kept.reads_of(0)
    };
    let clock = reads_of_hot(Box::<Clock>::default());
    let in_turn = reads_of_hot(Box::<InTurn>::default());
    // Not never: when all that is there was used since the hand came by, what the hand is at goes.
    assert!(clock * 3 <= in_turn, "{clock} and {in_turn}");
}

#[test]
fn what_was_modified_is_kept_and_nothing_else() {
    let kept = Kept::new(128);
    let pages: Vec<u64> = (0..128).step_by(2).collect();
    assert!(matches!(touch(paged(&kept, Clock::default(), 32), WRITE, pages.clone(), true), End::Exit(0)));
    let expected: BTreeMap<u64, u8> = pages.into_iter().zip(1..).collect();
    assert_eq!(kept.first_bytes(), expected);
}

#[test]
fn a_touch_outside_of_all_segments_ends_the_program_and_says_where() {
    let end = touch(paged(&Kept::new(16), Clock::default(), 16), WRITE, [3, 16], false);
    let address = (DATA + 16) * PAGE;
    assert!(
        matches!(end, End::Fault { error: FaultError::Outside { address: at, touch: Touch::Write }, .. } if at == address),
        "{end}"
    );
    assert_eq!(end.to_string(), "at 0x400008: a Write of 0x1010000, where no segment is");
}

#[test]
fn a_store_that_is_forbidden_ends_the_program() {
    let rights = Rights { write: false, execute: false };
    let end = touch(paged(&Kept::new(16), Clock::default(), 16), rights, [3], false);
    let is_so = matches!(end, End::Fault { error: FaultError::Forbidden { touch: Touch::Write, .. }, .. });
    assert!(is_so, "{end}");
}

#[test]
fn what_cannot_be_read_ends_the_program_that_needs_it() {
    let kept = Kept::new(64);
    kept.fails_to_read.store(true, SeqCst);
    let end = touch(paged(&kept, Clock::default(), 32), WRITE, [20], false);
    assert!(
        end.to_string().ends_with("it, from page 16 on, cannot be read: Input/output error (os error 5)"),
        "{end}"
    );
}

#[test]
fn what_cannot_be_written_ends_the_program_whose_pages_have_to_go() {
    let kept = Kept::new(64);
    kept.fails_to_write.store(true, SeqCst);
    let end = touch(paged(&kept, Clock::default(), 32), WRITE, 0..64, false);
    assert!(end.to_string().contains("from page 0 on, cannot be written"), "{end}");
    let end = touch(paged(&kept, Clock::default(), 64), WRITE, 0..64, true);
    assert!(end.to_string().contains("cannot be written"), "{end}");
    assert!(kept.first_bytes().is_empty());
}

/// What could not be written is in its frame as before, and is written when that can be.
#[test]
fn what_could_not_be_written_is_not_lost() {
    let (kept, mut resources) = (Kept::new(64), resources(4));
    let mut segments = Segments::new(Tag(1));
    segments.add(DATA, WRITE, Box::new(paged(&kept, Clock::default(), 32))).expect("there is room");
    let at = |page: u64| (DATA + page) * PAGE;
    for page in 0..32 {
        segments.write(&mut resources, at(page), &[7]).expect("there is room");
    }
    kept.fails_to_write.store(true, SeqCst);
    let mut byte = [0];
    assert!(segments.read(&mut resources, at(40), &mut byte).is_err());
    assert!(segments.sync(&mut resources, at(0), PAGE).is_err());
    kept.fails_to_write.store(false, SeqCst);
    segments.sync(&mut resources, at(0), PAGE).expect("it can be written again");
    assert_eq!(kept.first_bytes(), (0..32).map(|page| (page, 7)).collect());
    segments.read(&mut resources, at(40), &mut byte).expect("there is room again");
    let free = resources.pool.free();
    assert!(segments.remove(&mut resources, DATA).expect("it can be removed"));
    assert_eq!((resources.pool.free(), free), (4 * 128, 4 * 128 - 32));
}

/// What a space had is its kernel's again, even if the space has gone by itself.
#[test]
fn frames_come_back_from_a_space_that_is_not_there() {
    let mut resources = resources(1);
    let mut segments = Segments::new(Tag(1));
    segments.add(DATA, WRITE, Box::new(paged(&Kept::new(64), Clock::default(), 32))).expect("there is room");
    segments.fault(&mut resources, DATA * PAGE, Touch::Read).expect("it is there");
    assert_eq!(resources.pool.free(), 128 - 16);
    let space = segments.space(&mut resources).expect("it is loaded");
    resources.calls().unload_space(space).expect("it is loaded");
    segments.end(&mut resources).expect("it has ended");
    assert_eq!(resources.pool.free(), 128);
}

#[test]
fn a_file_keeps_its_length_and_what_is_behind_its_end_is_zeros() {
    let path = std::env::temp_dir().join(format!("comb-kernels-length-{}", std::process::id()));
    std::fs::write(&path, [5; 5000]).expect("a file");
    let mut resources = resources(1);
    let mut segments = Segments::new(Tag(1));
    let file = File::open(&path, true).expect("it is there");
    let segment = Paged::new(Arc::new(file), Box::new(Clock::default()), 2);
    segments.add(DATA, WRITE, Box::new(segment)).expect("there is room");
    let mut bytes = [1; 200];
    segments.read(&mut resources, DATA * PAGE + 4900, &mut bytes).expect("two pages");
    assert_eq!((bytes[..100] == [5; 100], bytes[100..] == [0; 100]), (true, true));
    for at in [0, 4999, 5000] {
        segments.write(&mut resources, DATA * PAGE + at, &[7]).expect("two pages");
    }
    segments.sync(&mut resources, DATA * PAGE, 1).expect("it can be written");
    let kept = std::fs::read(&path).expect("a file");
    std::fs::remove_file(&path).expect("it was made");
    assert_eq!((kept.len(), kept[0], kept[1], kept[4998], kept[4999]), (5000, 7, 5, 5, 7));
}

#[derive(Debug)]
struct Stubborn;

impl Replacement for Stubborn {
    fn make_room(&mut self, _: &Range<u64>, _: bool, _: &Pages) -> Step {
        Step::Nothing
    }
}

#[derive(Debug)]
struct Futile;

impl Replacement for Futile {
    fn make_room(&mut self, _: &Range<u64>, _: bool, pages: &Pages) -> Step {
        Step::Unload(0..pages.count())
    }
}

#[test]
fn a_policy_that_gives_nothing_up_ends_its_program_and_not_its_kernel() {
    let policies: [Box<dyn Replacement>; 2] = [Box::new(Stubborn), Box::new(Futile)];
    for policy in policies {
        let segment = Paged::new(Kept::new(64), policy, 32);
        let end = touch(segment, WRITE, [0, 16, 32], false);
        let is_so = matches!(end, End::Fault { error: FaultError::NoFrame { page: 32, most: 32 }, .. });
        assert!(is_so, "{end}");
    }
}

#[test]
fn segments_do_not_overlap() {
    let mut segments = Segments::new(Tag(1));
    let segment = |pages| Box::new(paged(&Kept::new(pages), Clock::default(), 1));
    segments.add(100, WRITE, segment(10)).expect("there is room");
    for (first, pages) in [(100, 1), (109, 5), (95, 6), (90, 100), (u64::MAX, 5), (300, 0)] {
        assert!(segments.add(first, WRITE, segment(pages)).is_err(), "{first}");
    }
    segments.add(110, WRITE, segment(10)).expect("there is room");
    segments.add(90, WRITE, segment(10)).expect("there is room");
    assert_eq!(segments.find_room(85, 5, 1), 85);
    assert_eq!(segments.find_room(85, 6, 1), 120);
    assert_eq!(segments.find_room(85, 6, 128), 128);
}

#[derive(Clone, Debug)]
enum Doing {
    Write(u64, u8),
    Read(u64),
    Sync,
    Again,
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        8 => (0..200_u64, any::<u8>()).prop_map(|(page, byte)| Doing::Write(page, byte)),
        8 => (0..200_u64).prop_map(Doing::Read),
        1 => Just(Doing::Sync),
        1 => Just(Doing::Again),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is done to a segment without a file, it has what was written to it, in a fifth of the frames that it would need.
    #[test]
    fn pages_are_what_was_written(doings in proptest::collection::vec(doing(), 1..200), fifo in any::<bool>()) {
        let mut resources = resources(1);
        let backing: Arc<dyn Backing> =
            Arc::new(Anonymous::new(200, vec![9; 5000], &std::env::temp_dir()).expect("a file"));
        let segment = || {
            let policy: Box<dyn Replacement> =
                if fifo { Box::new(InTurn::default()) } else { Box::new(Clock::default()) };
            Box::new(Paged::new(backing.clone(), policy, 40))
        };
        let mut segments = Segments::new(Tag(1));
        segments.add(DATA, WRITE, segment()).expect("there is room");
        let mut expected: BTreeMap<u64, u8> = [(0, 9), (1, 9)].into();
        for doing in doings {
            match doing {
                Doing::Write(page, byte) => {
                    segments.write(&mut resources, (DATA + page) * PAGE + 7, &[byte]).expect("it can");
                    expected.insert(page, byte);
                }
                Doing::Read(page) => {
                    let mut byte = [0];
                    segments.read(&mut resources, (DATA + page) * PAGE + 7, &mut byte).expect("it can");
                    prop_assert_eq!(byte[0], expected.get(&page).copied().unwrap_or(0));
                }
                Doing::Sync => segments.sync(&mut resources, DATA * PAGE, PAGE).expect("it can"),
                Doing::Again => {
                    segments.sync(&mut resources, DATA * PAGE, PAGE).expect("it can");
                    segments.remove(&mut resources, DATA).expect("it can");
                    prop_assert_eq!(resources.pool.free(), 128);
                    segments.add(DATA, WRITE, segment()).expect("there is room");
                }
            }
        }
        segments.end(&mut resources).expect("it can");
        prop_assert_eq!(resources.pool.free(), 128);
    }
}
