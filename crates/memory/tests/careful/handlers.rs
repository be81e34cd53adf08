//! Who handles which fault: those of careful reads, the heap's, the program's own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use comb_memory::{
    Access, CarefulError, Far, Fault, Grain, Layout, Memory, MemoryOptions, Peer, Published, Source, Verdict,
    careful, install, pointer,
};

use crate::death::cut_short;
use crate::isolation::{dies, passes};
use crate::structures::{CELL, Words, peer, published};

/// A cell that is dead, and a structure that it had.
fn dead() -> (Published, Peer, Far<Words<4>>) {
    let published = published();
    let peer = peer(&published);
    let far = published.allocate(Words([1; 4])).unwrap();
    cut_short(&published);
    (published, peer, far)
}

fn expect_bus_error(peer: &Peer, far: Far<Words<4>>) {
    let gone = CarefulError::BusError { cell: CELL, offset: far.offset() };
    assert_eq!(careful(peer, |c| c.read(far)), Err(gone));
}

static HEAP: OnceLock<(Memory, Layout)> = OnceLock::new();
static SERVED: AtomicUsize = AtomicUsize::new(0);

fn serve(fault: Fault) -> Verdict {
    SERVED.fetch_add(1, Ordering::Relaxed);
    let Some((memory, layout)) = HEAP.get() else { return Verdict::NotOurs };
    let Some(block) = layout.block_at(fault.address) else { return Verdict::NotOurs };
    memory.set(layout, block.0..block.0 + 1, Access::ReadWrite).unwrap();
    Verdict::Retry
}

fn begin_heap() {
    let memory = Memory::reserve(MemoryOptions::default()).unwrap();
    let layout = Layout::new(0, 1 << 20, 4096, Grain::Pages).unwrap();
    memory.guard(&layout, Access::Invalid).unwrap();
    assert!(HEAP.set((memory, layout)).is_ok());
    install(serve).unwrap();
}

/// Stores to a block that was not touched before.
fn expect_service(block: u64) {
    let layout = &HEAP.get().unwrap().1;
    let before = SERVED.load(Ordering::Relaxed);
    // SAFETY: shared memory, there as long as the process.
    unsafe { pointer(layout.address(comb_memory::Block(block)) as u64).write_volatile(1) };
    assert!(SERVED.load(Ordering::Relaxed) > before);
}

#[test]
fn a_heap_may_come_after_careful_reads() {
    passes("handlers::a_heap_may_come_after_careful_reads", || {
        let (_published, peer, far) = dead();
        expect_bus_error(&peer, far);
        begin_heap();
        for block in 0..10 {
            expect_service(block);
            expect_bus_error(&peer, far);
        }
        let (_published, another, far) = dead();
        expect_bus_error(&another, far);
    });
}

#[test]
fn a_heap_may_come_before_careful_reads() {
    passes("handlers::a_heap_may_come_before_careful_reads", || {
        begin_heap();
        let (_published, peer, far) = dead();
        for block in 0..10 {
            expect_service(block);
            expect_bus_error(&peer, far);
        }
    });
}

#[test]
fn what_is_read_may_go_to_memory_that_is_not_here() {
    passes("handlers::what_is_read_may_go_to_memory_that_is_not_here", || {
        begin_heap();
        let published = published();
        let peer = peer(&published);
        let far = published.allocate(Words([7; 4])).unwrap();
        let place = pointer(HEAP.get().unwrap().1.address(comb_memory::Block(3)) as u64);
        // SAFETY: the test's own memory, as soon as somebody touches it.
        let into = unsafe { std::slice::from_raw_parts_mut(place, 32) };
        peer.copy(far.offset(), into).unwrap();
        assert_eq!((into[0], into[24]), (7, 7));
        assert!(SERVED.load(Ordering::Relaxed) > 0);
    });
}

static OWN: AtomicUsize = AtomicUsize::new(0);

/// As a database has it, for files that others shorten.
extern "C" fn on_own_fault(_: libc::c_int, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
    OWN.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel's structure; the page is the test's.
    unsafe {
        let page = ((*information).si_addr().addr() & !4095) as *mut libc::c_void;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(page, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
    }
}

fn handle_own_faults() {
    // SAFETY: the handler does only what may be done in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_own_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

#[test]
fn a_programs_own_handler_keeps_its_own_faults() {
    passes("handlers::a_programs_own_handler_keeps_its_own_faults", || {
        handle_own_faults();
        let (published, peer, far) = dead();
        expect_bus_error(&peer, far);
        assert_eq!(OWN.load(Ordering::Relaxed), 0);
        // The owner stores to what is no more: no careful read.
        published.tick();
        assert_eq!(OWN.load(Ordering::Relaxed), 1);
        begin_heap();
        expect_service(1);
        expect_bus_error(&peer, far);
        published.update(far, |words| words.0[0] = 1);
        assert_eq!(OWN.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn any_other_bus_error_ends_the_process() {
    dies("handlers::any_other_bus_error_ends_the_process", libc::SIGBUS, "", || {
        let (published, peer, far) = dead();
        expect_bus_error(&peer, far);
        published.tick();
    });
}

#[test]
fn any_other_bad_address_ends_the_process() {
    dies("handlers::any_other_bad_address_ends_the_process", libc::SIGSEGV, "", || {
        let (_published, peer, far) = dead();
        expect_bus_error(&peer, far);
        // SAFETY: none; that is what happens to those who have none.
        unsafe { std::hint::black_box(pointer(64).read_volatile()) };
    });
}

#[test]
fn a_stack_that_overflows_ends_the_process_as_ever() {
    #[expect(unconditional_recursion, reason = "until there is no stack left")]
    fn deeper(depth: u64) -> u64 {
        let room = std::hint::black_box([depth; 100]);
        deeper(room[7] + 1) + room[3]
    }
    let name = "handlers::a_stack_that_overflows_ends_the_process_as_ever";
    dies(name, libc::SIGABRT, "has overflowed its stack", || {
        let (_published, peer, far) = dead();
        expect_bus_error(&peer, far);
        std::hint::black_box(deeper(0));
    });
}

/// What is bad on the reader's own side is no sign that the other cell is dead.
#[test]
fn a_copy_to_where_nothing_can_be_stored_ends_the_process() {
    dies("handlers::a_copy_to_where_nothing_can_be_stored_ends_the_process", libc::SIGSEGV, "", || {
        let published = published();
        let peer = peer(&published);
        // SAFETY: a new mapping, whose slice is as bad as the test wants it.
        let into = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0);
            std::slice::from_raw_parts_mut(page.cast::<u8>(), 64)
        };
        let copied = peer.copy(4096, into);
        unreachable!("{copied:?}");
    });
}

#[test]
fn a_child_by_fork_reads_on() {
    passes("handlers::a_child_by_fork_reads_on", || {
        let (_published, peer, far) = dead();
        begin_heap();
        // SAFETY: the child does what a handler may do, and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let is_told = matches!(careful(&peer, |c| c.read(far)), Err(CarefulError::BusError { .. }));
                libc::_exit(if is_told { 7 } else { 1 });
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    });
}

static FROM_HANDLER: OnceLock<(Published, Peer, Far<Words<4>>)> = OnceLock::new();
static TOLD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_timer(_: libc::c_int) {
    let Some((_, peer, far)) = FROM_HANDLER.get() else { return };
    if matches!(careful(peer, |c| c.read(*far)), Err(CarefulError::BusError { .. })) {
        TOLD.fetch_add(1, Ordering::Relaxed);
    }
}

/// As a cell's clock does it: a read in the middle of another.
#[test]
fn a_signals_handler_reads_too() {
    passes("handlers::a_signals_handler_reads_too", || {
        assert!(FROM_HANDLER.set(dead()).is_ok());
        let (alive, (_published, gone, lost)) = (published(), dead());
        let peer = peer(&alive);
        let far = alive.allocate(Words([3; 4])).unwrap();
        // SAFETY: the handler reads, and counts.
        unsafe {
            libc::signal(libc::SIGALRM, on_timer as *const () as usize);
            let each = libc::timeval { tv_sec: 0, tv_usec: 200 };
            let timer = libc::itimerval { it_interval: each, it_value: each };
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
        while TOLD.load(Ordering::Relaxed) < 500 {
            assert_eq!(careful(&peer, |c| c.read(far)), Ok(Words([3; 4])));
            expect_bus_error(&gone, lost);
        }
    });
}
