//! Shared memory as these tests have it: pages that nobody may touch at first, and a handler that lets them. Each test runs in a process
//! of its own, for the heap, the handlers and the filter are a process's.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]
#![expect(clippy::cast_possible_truncation, reason = "registers, of one machine")]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use comb_memory::syscalls::{self, Hooks, SHARED, raw};

/// The test's name, in the process that runs it.
const CASE: &str = "COMB_SYSCALLS_CASE";
pub(crate) const PAGE: usize = 4096;
/// All that there is of shared memory. What lies behind is no memory at all.
const AREA: usize = SHARED.start + 0x7_0000_0000;
const AREA_BYTES: usize = 256 << 20;

/// How often a thread was stopped and served.
static FAULTS: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static ALIAS: OnceLock<usize> = OnceLock::new();

/// Runs a test in a process of its own. Gives back, to the process that was asked, what it said on standard error.
pub(crate) fn alone(name: &str, body: fn()) -> Option<String> {
    alone_with(name, Hooks::default(), body)
}

pub(crate) fn alone_with(name: &str, hooks: Hooks, body: fn()) -> Option<String> {
    if is_case(name) {
        make_area();
        syscalls::cover(hooks).unwrap();
        body();
        return None;
    }
    Some(run(name, 0))
}

/// As [`alone`], with nothing covered yet, and with a personality of the process.
pub(crate) fn alone_uncovered(name: &str, personality: i32, body: fn()) {
    if is_case(name) {
        make_area();
        body();
    } else {
        run(name, personality);
    }
}

fn is_case(name: &str) -> bool {
    // SAFETY: ends the process if it hangs.
    std::env::var(CASE).is_ok_and(|case| case == name) && unsafe { libc::alarm(120) } == 0
}

fn run(name: &str, personality: i32) -> String {
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args([name, "--nocapture", "--test-threads=1"]).env(CASE, name);
    if personality != 0 {
        // SAFETY: one system call that touches no memory.
        unsafe {
            run.pre_exec(move || {
                libc::personality(personality as libc::c_ulong);
                Ok(())
            });
        }
    }
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut errors = String::new();
    // What a test prints fits in a pipe.
    run.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    run.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let status = run.wait().unwrap();
    assert!(status.success() && said.contains("1 passed"), "{name}: {status}\n{said}\n{errors}");
    errors
}

fn make_area() {
    // SAFETY: a new mapping in addresses that are nobody's, and one elsewhere of the same pages.
    let alias = unsafe {
        let frames = libc::memfd_create(c"frames".as_ptr(), 0);
        assert_eq!(libc::ftruncate(frames, AREA_BYTES as libc::off_t), 0);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
        let area = libc::mmap(AREA as *mut _, AREA_BYTES, libc::PROT_NONE, flags, frames, 0);
        assert_eq!(area as usize, AREA);
        libc::mmap(
            std::ptr::null_mut(),
            AREA_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            frames,
            0,
        )
    };
    assert_ne!(alias, libc::MAP_FAILED);
    ALIAS.set(alias as usize).unwrap();
    // SAFETY: the handler is one for SA_SIGINFO.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = serve as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Gives the least right that lets the thread go on.
extern "C" fn serve(_: i32, information: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // A protocol's stack, about.
    let stack = std::hint::black_box([1_u8; 2048]);
    // SAFETY: the kernel gives both to a handler.
    let (address, registers) =
        unsafe { ((*information).si_addr() as usize, &mut (*context).uc_mcontext.gregs) };
    let register = |index: i32| usize::try_from(index).unwrap();
    if (AREA..AREA + AREA_BYTES).contains(&address) {
        FAULTS.fetch_add(usize::from(stack[17]), Ordering::Relaxed);
        let is_store = registers[register(libc::REG_ERR)] & 2 != 0;
        let protection = libc::PROT_READ | if is_store { libc::PROT_WRITE } else { 0 };
        protect(address / PAGE * PAGE, PAGE, protection);
    } else if let Some(landing) = syscalls::landing(registers[register(libc::REG_RIP)] as usize) {
        registers[register(libc::REG_RIP)] = landing as i64;
    } else {
        // SAFETY: the default action, which ends the process when the instruction is tried again.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}

pub(crate) fn protect(address: usize, bytes: usize, protection: i32) {
    // SAFETY: pages of the area, which only tests use.
    let done = unsafe { raw(libc::SYS_mprotect, [address, bytes, protection as usize, 0, 0, 0]) };
    assert_eq!(done, 0);
}

/// Takes every right away.
pub(crate) fn take_away(address: usize, bytes: usize) {
    protect(address / PAGE * PAGE, bytes.next_multiple_of(PAGE), libc::PROT_NONE);
}

/// Fresh shared memory that nobody may touch, at the start of a page.
pub(crate) fn missing(bytes: usize) -> *mut u8 {
    let start = TAKEN.fetch_add(bytes.next_multiple_of(PAGE) + PAGE, Ordering::Relaxed);
    assert!(start + bytes <= AREA_BYTES);
    (AREA + start) as *mut u8
}

/// Shared memory with this in it, that nobody may touch.
pub(crate) fn holding(content: &[u8]) -> *mut u8 {
    let at = missing(content.len());
    // SAFETY: the other mapping of pages that were just taken.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), alias(at), content.len()) };
    at
}

/// A value in shared memory that nobody may touch.
pub(crate) fn holding_value<T>(value: T) -> *mut T {
    let at = missing(size_of::<T>());
    // SAFETY: as above, and aligned.
    unsafe { alias(at).cast::<T>().write(value) };
    at.cast()
}

/// What is there, whatever the rights.
pub(crate) fn content(at: *const u8, bytes: usize) -> Vec<u8> {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(alias(at.cast_mut()), bytes).to_vec() }
}

pub(crate) fn value<T: Copy>(at: *const T) -> T {
    // SAFETY: as above.
    unsafe { alias(at.cast_mut().cast()).cast::<T>().read() }
}

fn alias(at: *mut u8) -> *mut u8 {
    (at as usize - AREA + ALIAS.get().unwrap()) as *mut u8
}

pub(crate) fn faults() -> usize {
    FAULTS.load(Ordering::Relaxed)
}

/// A shared address where nothing is.
pub(crate) fn wild() -> *mut u8 {
    (AREA + AREA_BYTES + 0x1234) as *mut u8
}

/// The last shared page: no memory follows.
pub(crate) fn last_page() -> *mut u8 {
    (AREA + AREA_BYTES - PAGE) as *mut u8
}

pub(crate) fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}
