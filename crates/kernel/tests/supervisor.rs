//! Kernels over a supervisor with small tables: what they load goes and comes back, and programs do not notice.
#![expect(unsafe_code, reason = "frames are written by address")]

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::client::Client;
use comb_kernel::objects::{
    Mapping, Refused, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad, Writeback,
};
use comb_kernel::server::Server;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::{CallError, Interrupted, State, Supervisor};
use comb_kernel::thread::{Registers, Stop, Touch};

const CODE_PAGE: u64 = 0x400;
const SIZES: Sizes = Sizes { kernels: 4, spaces: 8, threads: 4, mappings: 64, writebacks: 1024, seed: 1 };

struct World {
    calls: Box<dyn Calls>,
    server: Option<JoinHandle<()>>,
}

/// A kernel beside its supervisor, and one in its process.
fn both_ways(sizes: Sizes, test: fn(&mut World)) {
    let (supervisor, kernel) = Supervisor::new(sizes, 4).unwrap();
    test(&mut World { calls: Box::new(Direct::new(supervisor, kernel)), server: None });
    let (told, tells) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (supervisor, kernel) = Supervisor::new(sizes, 4).unwrap();
        let mut server = Server::new(supervisor);
        told.send(server.open(kernel).unwrap()).unwrap();
        server.run(0);
    });
    let client = Client::new(tells.recv().unwrap(), 0).unwrap();
    test(&mut World { calls: Box::new(client), server: Some(server) });
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // A server whose last kernel is gone ends.
            let (supervisor, kernel) = Supervisor::new(SIZES, 1).unwrap();
            self.calls = Box::new(Direct::new(supervisor, kernel));
            server.join().unwrap();
        }
    }
}

impl World {
    fn write(&self, frame: usize, content: &[u8]) {
        assert!(content.len() <= 4096 && self.calls.may_write(0));
        // SAFETY: a frame that this kernel has been granted.
        unsafe { self.calls.memory().as_ptr().add(frame * 4096).copy_from(content.as_ptr(), content.len()) };
    }

    fn space(&mut self, tag: u64) -> SpaceId {
        self.calls.load_space(SpaceLoad { tag: Tag(tag), locked: false }).unwrap()
    }

    fn map(&mut self, space: SpaceId, page: u64, frame: u64, is_code: bool) {
        let mapping =
            Mapping { writable: !is_code, executable: is_code, ..Mapping::read(space, page, frame) };
        self.calls.load_mappings(&mapping, 1).unwrap();
    }

    fn thread(&mut self, space: SpaceId, tag: u64, state: &State) -> ThreadId {
        let load = ThreadLoad { tag: Tag(tag), space, priority: USUAL_PRIORITY, locked: false };
        self.calls.load_thread(load, state, 0).unwrap()
    }

    fn word(&self, frame: usize) -> u64 {
        let mut word = [0; 8];
        // SAFETY: as above.
        unsafe { self.calls.memory().as_ptr().add(frame * 4096).copy_to(word.as_mut_ptr(), word.len()) };
        u64::from_le_bytes(word)
    }

    fn next(&self, thread: ThreadId) -> Stop {
        let area = self.calls.area(thread).unwrap();
        area.resume();
        for _ in 0..500 {
            if area.is_stopped() {
                return area.stop().unwrap();
            }
            self.calls.bell().listen(0, Some(Duration::from_millis(20)), |_| {});
        }
        panic!("it does not stop");
    }
}

#[test]
fn threads_that_are_replaced_come_back_where_they_were() {
    both_ways(SIZES, |world| {
        let space = world.space(1);
        // 1: inc rbx; mov eax, ebx; syscall; jmp 1b
        world.write(0, &[0x48, 0xff, 0xc3, 0x89, 0xd8, 0x0f, 5, 0xeb, 0xf7]);
        world.map(space, CODE_PAGE, 0, true);
        let start = |tag: u64| State {
            registers: Registers { rip: CODE_PAGE << 12, rbx: tag * 1000, ..Registers::default() },
            ..State::default()
        };
        let mut states: BTreeMap<u64, State> = (0..10).map(|tag| (tag, start(tag))).collect();
        let mut loaded: BTreeMap<u64, ThreadId> = BTreeMap::new();
        let mut went = 0;
        for round in 1..=20 {
            for tag in 0..10 {
                if let Some(state) = states.remove(&tag) {
                    let thread = world.thread(space, tag, &state);
                    loaded.insert(tag, thread);
                    while let Some(writeback) = world.calls.take_writeback().unwrap() {
                        let Writeback::Thread { tag, state } = writeback else { panic!("{writeback:?}") };
                        assert_eq!(state.stop, Some(Stop::Call { is_foreign: false }));
                        let stale = loaded.remove(&tag.0).expect("it was loaded");
                        assert!(matches!(world.calls.area(stale), Err(CallError::Refused(_))));
                        states.insert(tag.0, *state);
                        went += 1;
                    }
                }
                assert_eq!(world.next(loaded[&tag]), Stop::Call { is_foreign: false });
                let registers = world.calls.area(loaded[&tag]).unwrap().registers().unwrap();
                assert_eq!(registers.rax, tag * 1000 + round);
            }
        }
        assert!(went > 150, "{went}: ten threads do not fit where four do");
    });
}

/// What a thread has used goes with it, and who has its place of the host's afterwards has not used it.
#[test]
fn what_a_thread_uses_of_the_processors_goes_with_it() {
    both_ways(SIZES, |world| {
        let space = world.space(1);
        // 1: mov rcx, rdi; 2: dec rcx; jnz 2b; syscall; jmp 1b
        world.write(0, &[0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x0f, 5, 0xeb, 0xf4]);
        world.map(space, CODE_PAGE, 0, true);
        let registers = Registers { rip: CODE_PAGE << 12, rdi: 100_000, ..Registers::default() };
        let state = State { registers, used: Some(Duration::ZERO), ..State::default() };
        let much = Duration::from_millis(40);
        let mut thread = world.thread(space, 1, &state);
        let mut used = Duration::ZERO;
        while used < much {
            assert_eq!(world.next(thread), Stop::Call { is_foreign: false });
            let now = world.calls.used(thread).unwrap().expect("its state asked for it");
            assert!(now >= used, "{now:?} after {used:?}");
            used = now;
        }
        for _ in 0..3 {
            world.calls.unload_thread(thread).unwrap();
            assert!(matches!(world.calls.used(thread), Err(CallError::Refused(_))));
            let Ok(Some(Writeback::Thread { state: gone, .. })) = world.calls.take_writeback() else {
                panic!("it was unloaded")
            };
            let kept = gone.used.expect("its state asked for it");
            assert!(kept >= used, "{kept:?} after {used:?}");
            let other = world.thread(space, 2, &state);
            assert!(world.calls.used(other).unwrap().expect("its state asked for it") < much / 2);
            world.calls.unload_thread(other).unwrap();
            world.calls.take_writeback().unwrap();
            thread = world.thread(space, 1, &gone);
            assert_eq!(world.next(thread), Stop::Call { is_foreign: false });
            used = world.calls.used(thread).unwrap().expect("its state asked for it");
            assert!(used >= kept && used < kept + much / 2, "{used:?} after {kept:?}");
        }
        // Who does not ask is not looked at.
        let silent = world.thread(space, 3, &State { registers, ..State::default() });
        assert_eq!(world.calls.used(silent), Ok(None));
    });
}

#[test]
fn mappings_that_are_replaced_are_written_back_with_what_was_modified() {
    both_ways(SIZES, |world| {
        let space = world.space(7);
        // 1: mov [rdi], rsi; mov rdx, [r8]; syscall; jmp 1b
        world.write(0, &[0x48, 0x89, 0x37, 0x49, 0x8b, 0x10, 0x0f, 5, 0xeb, 0xf6]);
        let thread = world.thread(space, 0, &State { registers: Registers::default(), ..State::default() });
        let [mut modified, mut clean] = [0, 0];
        for round in 0..100_u64 {
            let (write, read) = (0x70000 + round * 2, 0x70001 + round * 2);
            let area = world.calls.area(thread).unwrap();
            let registers = Registers {
                rip: CODE_PAGE << 12,
                rdi: write << 12,
                rsi: round,
                r8: read << 12,
                ..Registers::default()
            };
            area.set_registers(&registers).unwrap();
            let mut stop = world.next(thread);
            while let Stop::Fault { address, .. } = stop {
                let page = address >> 12;
                let frame = if page == CODE_PAGE { 0 } else { 128 + (page - 0x70000) % 256 };
                world.map(space, page, frame, page == CODE_PAGE);
                stop = world.next(thread);
            }
            assert_eq!(stop, Stop::Call { is_foreign: false });
            while let Some(writeback) = world.calls.take_writeback().unwrap() {
                let Writeback::Mapping { space, page, modified: is_modified, .. } = writeback else {
                    panic!("{writeback:?}")
                };
                assert_eq!(space, Tag(7));
                if page != CODE_PAGE {
                    assert_eq!(is_modified, page % 2 == 0, "{page:#x}");
                    *(if is_modified { &mut modified } else { &mut clean }) += 1;
                }
            }
        }
        assert!(
            modified > 60 && clean > 60,
            "{modified} {clean}: two hundred do not fit where sixty-four do"
        );
    });
}

#[test]
fn a_space_goes_with_all_that_is_in_it() {
    both_ways(Sizes { spaces: 2, ..SIZES }, |world| {
        let spaces: Vec<SpaceId> = (0..3)
            .map(|tag| {
                let space = world.space(tag);
                world.map(space, CODE_PAGE, 0, true);
                world.thread(space, 10 + tag, &State::default());
                space
            })
            .collect();
        let mut told = Vec::new();
        while let Some(writeback) = world.calls.take_writeback().unwrap() {
            told.push(match writeback {
                Writeback::Mapping { space, page, .. } => format!("page {page:#x} of {}", space.0),
                Writeback::Thread { tag, state } => format!("thread {} {:?}", tag.0, state.stop),
                Writeback::Space { tag } => format!("space {}", tag.0),
                Writeback::Kernel { .. } => "kernel".to_owned(),
            });
        }
        assert_eq!(told, ["thread 10 Some(Begins)", "page 0x400 of 0", "space 0"]);
        let stale = world.calls.unload_space(spaces[0]);
        assert!(matches!(stale, Err(CallError::Refused(_))), "{stale:?}");
        world.calls.unload_space(spaces[2]).unwrap();
    });
}

#[test]
fn rights_change_in_place() {
    both_ways(SIZES, |world| {
        let space = world.space(7);
        // 1: mov [rdi], rsi; syscall; jmp 1b
        world.write(0, &[0x48, 0x89, 0x37, 0x0f, 5, 0xeb, 0xf9]);
        world.map(space, CODE_PAGE, 0, true);
        let data = 0x70000;
        for page in 0..20 {
            world.map(space, data + page, 128 + page, false);
        }
        let registers =
            Registers { rip: CODE_PAGE << 12, rdi: (data + 3) << 12, rsi: 7, ..Registers::default() };
        let thread = world.thread(space, 0, &State { registers, ..State::default() });
        assert_eq!(world.next(thread), Stop::Call { is_foreign: false });
        world.calls.forbid_writes(space, 0, 1 << 35).unwrap();
        let fault = Stop::Fault { address: (data + 3) << 12, touch: comb_kernel::thread::Touch::Write };
        assert_eq!(world.next(thread), fault);
        world.map(space, data + 3, 128 + 3, false);
        assert_eq!(world.next(thread), Stop::Call { is_foreign: false });
        // The neighbours are as they were, and nothing was written back.
        let area = world.calls.area(thread).unwrap();
        let mut registers = area.registers().unwrap();
        registers.rdi = (data + 4) << 12;
        area.set_registers(&registers).unwrap();
        let fault = Stop::Fault { address: (data + 4) << 12, touch: comb_kernel::thread::Touch::Write };
        assert_eq!(world.next(thread), fault);
        assert_eq!(world.calls.take_writeback().unwrap(), None);
        // What was modified before is not forgotten.
        world.calls.unload_mappings(space, data, 20).unwrap();
        let mut modified = Vec::new();
        while let Some(writeback) = world.calls.take_writeback().unwrap() {
            let Writeback::Mapping { page, modified: true, .. } = writeback else { continue };
            modified.push(page);
        }
        assert_eq!(modified, [data + 3]);
    });
}

#[test]
fn what_is_about_to_be_stored_to_counts_as_modified() {
    both_ways(SIZES, |world| {
        let space = world.space(7);
        for (page, stored) in [(0x70000, true), (0x70001, false)] {
            let mapping = Mapping { writable: true, stored, ..Mapping::read(space, page, 128 + page % 2) };
            world.calls.load_mappings(&mapping, 1).unwrap();
        }
        world.calls.unload_mappings(space, 0x70000, 2).unwrap();
        let mut told = Vec::new();
        while let Some(writeback) = world.calls.take_writeback().unwrap() {
            let Writeback::Mapping { page, modified, .. } = writeback else { panic!("{writeback:?}") };
            told.push((page, modified));
        }
        told.sort_unstable();
        assert_eq!(told, [(0x70000, true), (0x70001, false)]);
    });
}

#[test]
fn a_page_is_a_copy_from_its_first_store_on() {
    both_ways(SIZES, |world| {
        let space = world.space(1);
        // mov rax, [rdi]; mov [rdi], rbx; mov rdx, [rdi]; syscall
        world.write(0, &[0x48, 0x8b, 0x07, 0x48, 0x89, 0x1f, 0x48, 0x8b, 0x17, 0x0f, 5]);
        world.map(space, CODE_PAGE, 0, true);
        let page = 0x70000;
        for (frame, value) in [(20, 41_u64), (21, 42), (22, 43)] {
            world.write(frame, &value.to_le_bytes());
        }
        // Three neighbours, of three neighbours.
        let copies = Mapping { writable: true, copy_of: Some(20), ..Mapping::read(space, page, 40) };
        world.calls.load_mappings(&copies, 3).unwrap();
        // Again, with what they have: they are not stored to for that.
        world.calls.load_mappings(&copies, 3).unwrap();
        while world.calls.take_writeback().unwrap().is_some() {}
        let address = (page + 1) << 12;
        let registers = Registers { rip: CODE_PAGE << 12, rdi: address, rbx: 77, ..Registers::default() };
        let thread = world.thread(space, 0, &State { registers, ..State::default() });
        assert_eq!(world.next(thread), Stop::Fault { address, touch: Touch::Write });
        world.calls.make_copy(space, page + 1).unwrap();
        assert_eq!(world.next(thread), Stop::Call { is_foreign: false });
        let registers = world.calls.area(thread).unwrap().registers().unwrap();
        assert_eq!((registers.rax, registers.rdx), (42, 77));
        assert_eq!((world.word(21), world.word(41), world.word(40)), (42, 77, 0));
        // It is one, and is not made again.
        world.calls.make_copy(space, page + 1).unwrap();
        assert_eq!(world.word(41), 77);
        // Of those that were not stored to, nothing was modified.
        world.calls.unload_mappings(space, page, 2).unwrap();
        world.calls.unload_mappings(space, page + 2, 1).unwrap();
        let mut gone = Vec::new();
        while let Some(writeback) = world.calls.take_writeback().unwrap() {
            if let Writeback::Mapping { page, frame, modified, .. } = writeback {
                gone.push((page, frame, modified));
            }
        }
        gone.sort_unstable();
        assert_eq!(gone, [(page, 40, false), (page + 1, 41, true), (page + 2, 42, false)]);
        let refused = world.calls.make_copy(space, page);
        assert!(matches!(refused, Err(CallError::Refused(Refused::NotMapped { .. }))), "{refused:?}");
    });
}

#[test]
fn a_state_that_no_thread_can_have_is_refused() {
    both_ways(SIZES, |world| {
        let space = world.space(1);
        let load = ThreadLoad { tag: Tag(0), space, priority: 0, locked: false };
        let interrupted = Some(Interrupted { vectors: vec![0; 20_000], ..Interrupted::default() });
        for state in [
            State { vectors: vec![0; 20_000], ..State::default() },
            State { signals: vec![1], ..State::default() },
            State { interrupted, ..State::default() },
        ] {
            assert_eq!(world.calls.load_thread(load, &state, 0), Err(CallError::BadState));
        }
        // The space has not noticed.
        world.calls.load_thread(load, &State::default(), 0).unwrap();
    });
}
