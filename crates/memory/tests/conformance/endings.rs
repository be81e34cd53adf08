//! What becomes of who touches what is lost, or what is nobody's.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use comb_memory::Access::{Invalid, ReadWrite};
use comb_memory::{
    Control, Fault, Grain, HEAP_START, Reason, careful_copy_from, careful_copy_to, pointer, set_loss_hook,
};

use crate::Kind;
use crate::isolation::{dies, dies_saying, passes};
use crate::world::{Policy, begin};

const KIND: Kind = Kind { control: Control::Userfaultfd, grain: Grain::Pages, block_bytes: 4096 };
const PROTECTED: Kind = Kind { control: Control::Protections, ..KIND };

pub(crate) fn careful(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    let bytes = world.layout.block_bytes() - 100;
    world.fill(3, 5);
    // Served as any other.
    let mut here = vec![0; bytes];
    careful_copy_from(world.place(3), &mut here).unwrap();
    assert_eq!((here[16], here[bytes - 1]), (5, 0xee));
    assert_eq!(world.stops(), [(3, false)]);
    careful_copy_to(&[1, 2, 3], world.place(4).wrapping_add(5)).unwrap();
    assert_eq!(world.stops(), [(4, true)]);
    // SAFETY: the block's bytes.
    assert_eq!(unsafe { world.place(4).add(4).cast::<[u8; 5]>().read() }, [0, 1, 2, 3, 0]);

    world.policy(Policy::Lose);
    let reason = Reason::Other("the test wants it so");
    for length in [1, 7, 8, 9, 16, bytes] {
        let place = world.place(50);
        let lost = careful_copy_from(place, &mut here[..length]).unwrap_err();
        assert_eq!((lost.address, lost.reason), (place.addr(), reason));
        let lost = careful_copy_to(&here[..length], place).unwrap_err();
        assert_eq!((lost.address, lost.reason), (place.addr(), reason));
    }
    // What is not lost is copied as before, of any length and alignment.
    for (from, length) in [(0, 0), (0, 1), (0, 8), (3, 8), (8, 16), (1, 24), (0, 25)] {
        let mut copied = vec![0; length];
        careful_copy_from(world.place(3).wrapping_add(from), &mut copied).unwrap();
        let mut content = vec![0; from + length];
        world.memory.copy_out(&world.layout, comb_memory::Block(3), &mut content);
        assert_eq!(copied, content[from..]);
    }
    if kind.grain == Grain::Pages {
        // Up to where it is lost.
        let end = kind.block_bytes as usize;
        let mut across = vec![0; 64];
        world.policy(Policy::Grant);
        world.set(5..6, Invalid);
        world.store(4, 0);
        world.policy(Policy::Lose);
        for from in [end - 16, end - 13] {
            let lost = careful_copy_from(world.place(4).wrapping_add(from), &mut across).unwrap_err();
            assert_eq!(lost.address, world.place(5).addr());
        }
    }
}

macro_rules! deaths {
    ($($name:ident: $signal:expr, $last_words:expr, $case:expr;)*) => { $(
        #[test]
        fn $name() {
            dies(concat!("endings::", stringify!($name)), $signal, $last_words, $case);
        }
    )* };
}

deaths! {
    a_load_of_what_is_lost_ends_the_process: libc::SIGBUS,
        "is lost: the test wants it so", || {
        let world = begin(KIND, 10, Invalid);
        world.policy(Policy::Lose);
        world.load(3);
    };
    a_load_of_what_is_lost_ends_the_process_under_protections: libc::SIGBUS,
        "is lost: the test wants it so", || {
        let world = begin(PROTECTED, 10, Invalid);
        world.policy(Policy::Lose);
        world.load(3);
    };
    a_store_that_is_stopped_ends_the_process: libc::SIGBUS,
        "was stopped: the test wants it so\ncomb:   by thread ", || {
        let world = begin(KIND, 10, Invalid);
        world.policy(Policy::Lose);
        world.store(3, 1);
    };
    a_wild_address_in_the_heap_ends_the_process: libc::SIGSEGV,
        "comb: load from 0x100000123456, where nothing is allocated in the shared heap", || {
        begin(KIND, 10, Invalid);
        wild_load(HEAP_START + 0x12_3456);
    };
    a_wild_address_in_the_heap_ends_the_process_under_protections: libc::SIGSEGV,
        "where nothing is allocated in the shared heap", || {
        begin(PROTECTED, 10, Invalid);
        wild_load(HEAP_START + 0x12_3456);
    };
    a_freed_address_ends_the_process: libc::SIGSEGV, "where nothing is allocated", || {
        let world = begin(KIND, 10, ReadWrite);
        world.store(3, 1);
        world.memory.unmap(&world.layout, true).unwrap();
        // Whoever serves faults has forgotten the allocation too; this one has not, and the kernel knows better.
        wild_load(HEAP_START + 0x12_3456);
    };
    a_null_pointer_ends_the_process_as_ever: libc::SIGSEGV, "", || {
        begin(KIND, 10, Invalid);
        wild_load(8);
    };
    a_stack_that_overflows_ends_the_process_as_ever: libc::SIGABRT, "has overflowed its stack", || {
        begin(KIND, 10, Invalid);
        std::hint::black_box(deeper(0));
    };
    a_signal_that_somebody_sends_ends_the_process_as_ever: libc::SIGBUS, "", || {
        begin(KIND, 10, Invalid);
        // Twice: the handler that Rust's own library has installed lets the first one pass.
        // SAFETY: has no preconditions.
        unsafe { (libc::raise(libc::SIGBUS), libc::raise(libc::SIGBUS)) };
        unreachable!("it was not for us");
    };
}

#[expect(unconditional_recursion, reason = "until there is no stack left")]
fn deeper(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 100]);
    deeper(room[7] + 1) + room[3]
}

fn wild_load(address: usize) {
    // SAFETY: none; that is what happens to those who have none.
    unsafe { std::hint::black_box(pointer(address as u64).read_volatile()) };
}

/// Which page, of what, and by which instruction of which thread.
#[test]
fn the_last_words_say_where_and_whence() {
    // Where the instruction is in its file does not depend on where that is mapped.
    let in_file = |instruction: usize| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let found = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let is_it = (number(start)..number(end)).contains(&instruction);
            is_it.then(|| instruction - number(start) + number(rest.split(' ').nth(1).unwrap()))
        });
        found.unwrap()
    };
    let program = std::env::current_exe().unwrap();
    let instruction = format!(" ({}+{:#x})\n", program.display(), in_file(wild_store as *const () as usize));
    let place = "was stopped: the test wants it so\ncomb:   there is a place of mine, byte 4104 (page 1)\n";
    dies_saying(
        "endings::the_last_words_say_where_and_whence",
        libc::SIGBUS,
        &[place, "comb:   by thread ", " (wild one) of process ", &instruction],
        || {
            let world = begin(KIND, 10, Invalid);
            world.policy(Policy::Lose);
            let start = world.place(2) as usize;
            let _place = comb_memory::name_place(start..start + 8192, "a place of mine");
            let _ = rustix::thread::set_name(c"wild one");
            wild_store(world.place(3).wrapping_add(8));
        },
    );
}

/// By its first instruction.
#[unsafe(naked)]
extern "C" fn wild_store(_place: *mut u8) {
    std::arch::naked_asm!("mov byte ptr [rdi], 1", "ret");
}

#[test]
fn the_hook_for_losses_has_the_last_word() {
    dies(
        "endings::the_hook_for_losses_has_the_last_word",
        libc::SIGABRT,
        "the hook says: the test wants it so",
        || {
            fn hook(fault: Fault, reason: Reason) {
                eprintln!("the hook says: {reason}");
                assert!(!fault.is_store);
                std::process::abort();
            }
            let world = begin(KIND, 10, Invalid);
            assert!(set_loss_hook(hook) && !set_loss_hook(hook));
            world.policy(Policy::Lose);
            world.load(3);
        },
    );
}

static CHAINED: AtomicUsize = AtomicUsize::new(0);
/// Whether the signals were blocked in the handler that the kernel would have blocked.
static IS_AS_EVER: AtomicBool = AtomicBool::new(false);

/// A garbage collector's barrier, say.
extern "C" fn on_own_fault(
    _signal: libc::c_int,
    information: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    CHAINED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: only asks.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        let is_blocked = |signal| libc::sigismember(&raw const mask, signal) == 1;
        IS_AS_EVER.store(is_blocked(libc::SIGSEGV) && !is_blocked(libc::SIGUSR1), Ordering::Relaxed);
    }
    // SAFETY: the kernel's structure; the page is the test's.
    unsafe { libc::mprotect((*information).si_addr(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
}

/// The set of signals that are blocked, in the kernel's word.
pub(crate) fn blocked() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn a_programs_own_handler_goes_on_with_its_own_memory() {
    passes("endings::a_programs_own_handler_goes_on_with_its_own_memory", || {
        // SAFETY: the handler does only what may be done in one; the mapping is new.
        let page = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_own_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let world = begin(PROTECTED, 10, Invalid);
        world.store(3, 1);
        let before = blocked();
        // SAFETY: the mapping, as soon as the handler has opened it.
        unsafe { page.cast::<u8>().write_volatile(1) };
        assert_eq!(CHAINED.load(Ordering::Relaxed), 1);
        assert!(IS_AS_EVER.load(Ordering::Relaxed));
        world.store(4, 1);
        assert_eq!((CHAINED.load(Ordering::Relaxed), world.stops()), (1, vec![(3, true), (4, true)]));
        assert_eq!(blocked(), before);
    });
}
