//! System calls that are given shared memory, in components that have copies of it: each case runs in components of this very program.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]

mod hosts;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use comb_region::launch::{Launch, Outcome, Output};
use comb_region::task::Share;
use comb_region::{Combine, Guard, Placement, Task, Terms};

/// Which case a component is to run.
const CASE: &str = "COMB_TEST_CASE";

/// What the components of a case do, by its name.
type Case = (&'static str, fn(&Task));

const CASES: &[Case] = &[
    ("pipes", pipes),
    ("checked_pipes", checked_pipes),
    ("uncovered", uncovered),
    ("datagrams", datagrams),
    ("checked_datagrams", checked_datagrams),
    ("streams", streams),
    ("bad_addresses", bad_addresses),
    ("dies_in_the_heap", dies_in_the_heap),
    ("dies_elsewhere", dies_elsewhere),
    ("mutexes", mutexes),
    ("wakes", wakes),
    ("waits_end", waits_end),
    ("refused", refused),
    ("masks", masks),
];

#[test]
fn part() {
    hosts::serve();
}

#[test]
fn component() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (_, run) = CASES.iter().find(|(name, _)| *name == case).expect("a case");
    let task = Task::join().expect("the launcher is there");
    run(&task);
    task.barrier();
}

fn prepare(case: &str, components: u32) -> Launch {
    Launch::new(std::env::current_exe().unwrap())
        .arguments(["--exact", "component", "--nocapture", "--test-threads=1"])
        .environment(CASE, case)
        .components(components)
        .share(Share::Copy)
        .output(Output::Collected)
        .without_input()
        .limit(Duration::from_secs(300))
}

fn launch(case: &str, components: u32, covers: bool) -> Outcome {
    let launch = prepare(case, components);
    let launch = if covers { launch } else { launch.environment("COMB_COVER", "0") };
    launch.start().expect("started").wait()
}

/// What was said on standard error, of a case that has passed.
fn said_in(case: &str, components: u32, covers: bool) -> String {
    said_by(&launch(case, components, covers), case)
}

fn said_by(outcome: &Outcome, case: &str) -> String {
    let all: String = outcome
        .printed
        .iter()
        .map(|of| [&of.output[..], &of.error].map(String::from_utf8_lossy).concat())
        .collect();
    assert!(outcome.is_success(), "{case} with {}:\n{all}", outcome.printed.len());
    outcome.printed.iter().map(|of| String::from_utf8_lossy(&of.error).into_owned()).collect()
}

fn passes(case: &str) {
    for components in [2, 3] {
        said_in(case, components, true);
    }
    let by_protections = prepare(case, 2).environment("COMB_WITHOUT", "userfaultfd");
    said_by(&by_protections.start().expect("started").wait(), case);
    let on_hosts = hosts::on(prepare(case, 1).share(Share::Auto), &[2, 2]);
    said_by(&on_hosts.start().expect("started").wait(), case);
}

/// Memory that lives with component 0: all others have no right to any of it at first.
fn elsewhere(task: &Task, bytes: usize) -> *mut u8 {
    elsewhere_by(task, bytes, (Guard::Page, 4096))
}

fn elsewhere_by(task: &Task, bytes: usize, (guard, block_bytes): (Guard, u32)) -> *mut u8 {
    let terms = Terms { guard, block_bytes, placement: Placement::At(0), ..Terms::default() };
    task.allocate_together(bytes as u64, &terms).expect("allocated")
}

/// Where a program's own code looks for its rights, the kernel has to be kept from what is not there all the more: nothing stops it.
const CHECKED: [(Guard, u32); 3] = [(Guard::Check, 128), (Guard::Check, 4096), (Guard::Hybrid, 4096)];

fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn pair(kind: c_int) -> [c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    ends
}

/// Bytes that tell one number from the next.
#[expect(clippy::cast_possible_truncation, reason = "any byte will do")]
fn pattern(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index as u32).wrapping_mul(31).wrapping_add(number * 7) as u8).collect()
}

// ── read and write ──

/// One after the other, each writes what the one before has read into the memory, and reads something else into it.
fn pipes(task: &Task) {
    pipes_by(task, (Guard::Page, 4096));
}

fn checked_pipes(task: &Task) {
    CHECKED.into_iter().for_each(|kind| pipes_by(task, kind));
}

fn pipes_by(task: &Task, kind: (Guard, u32)) {
    const BYTES: usize = 3 * 4096 + 100;
    let memory = elsewhere_by(task, BYTES + 50, kind);
    // Not at the start of a page.
    let memory = memory.wrapping_add(50);
    for turn in 0..3 * task.count() {
        if turn % task.count() == task.rank() {
            let expected = if turn == 0 { vec![0; BYTES] } else { pattern(turn, BYTES) };
            let mut ends = [0; 2];
            let mut found = vec![1_u8; BYTES];
            let next = pattern(turn + 1, BYTES);
            // SAFETY: all memory is as long as is said.
            unsafe {
                assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
                assert_eq!(libc::write(ends[1], memory.cast(), BYTES), BYTES as isize, "{}", error());
                assert_eq!(libc::read(ends[0], found.as_mut_ptr().cast(), BYTES), BYTES as isize);
                assert_eq!(libc::write(ends[1], next.as_ptr().cast(), BYTES), BYTES as isize);
                assert_eq!(libc::read(ends[0], memory.cast(), BYTES), BYTES as isize, "{}", error());
                ends.into_iter().for_each(|end| assert_eq!(libc::close(end), 0));
            }
            assert_eq!(found, expected, "turn {turn}");
        }
        task.barrier();
    }
}

#[test]
fn read_and_write_fetch_what_is_elsewhere() {
    passes("pipes");
}

#[test]
fn read_and_write_fetch_what_only_the_programs_code_looks_for() {
    passes("checked_pipes");
}

/// What the other cases are good for.
fn uncovered(task: &Task) {
    let memory = elsewhere(task, 4096);
    task.barrier();
    if task.rank() == 1 {
        let ends = pair(libc::SOCK_DGRAM);
        // SAFETY: the kernel is asked to write where this process has no right to.
        unsafe {
            assert_eq!(libc::send(ends[0], c"lost".as_ptr().cast(), 4, 0), 4);
            assert_eq!(libc::recv(ends[1], memory.cast(), 4, 0), -1);
        }
        assert_eq!(error(), libc::EFAULT);
    }
}

#[test]
fn without_cover_the_kernel_says_that_the_address_is_bad() {
    assert!(!said_in("uncovered", 2, false).contains("comb:"), "asked for, and so no warning");
}

fn datagrams(task: &Task) {
    datagrams_by(task, (Guard::Page, 4096));
}

fn checked_datagrams(task: &Task) {
    CHECKED.into_iter().for_each(|kind| datagrams_by(task, kind));
}

fn datagrams_by(task: &Task, kind: (Guard, u32)) {
    const COUNT: u32 = 40;
    const BYTES: usize = 1000;
    let memory = elsewhere_by(task, COUNT as usize * BYTES, kind);
    task.barrier();
    if task.rank() == 1 {
        let ends = pair(libc::SOCK_DGRAM);
        for number in 0..COUNT {
            let at = memory.wrapping_add(number as usize * BYTES);
            let content = pattern(number, BYTES);
            let half = BYTES / 2;
            // SAFETY: all memory is as long as is said.
            unsafe {
                assert_eq!(libc::send(ends[0], content.as_ptr().cast(), BYTES, 0), BYTES as isize);
                let mut parts = [(0, half), (half, BYTES - half)].map(|(from, bytes)| libc::iovec {
                    iov_base: at.wrapping_add(from).cast(),
                    iov_len: bytes,
                });
                let mut header: libc::msghdr = std::mem::zeroed();
                header.msg_iov = parts.as_mut_ptr();
                header.msg_iovlen = 2;
                let came = match number % 3 {
                    0 => libc::recv(ends[1], at.cast(), BYTES, 0),
                    1 => libc::recvmsg(ends[1], &raw mut header, 0),
                    _ => libc::readv(ends[1], parts.as_ptr(), 2),
                };
                assert_eq!(came, BYTES as isize, "datagram {number}: {}", error());
            }
        }
    }
    task.barrier();
    for number in 0..COUNT {
        let at = memory.wrapping_add(number as usize * BYTES);
        let mut found = [0; BYTES];
        comb_memory::careful_copy_from(at, &mut found).expect("it is there");
        assert_eq!(found[..], pattern(number, BYTES), "datagram {number}");
    }
    task.barrier();
}

#[test]
fn a_datagram_that_is_received_into_memory_elsewhere_is_not_lost() {
    passes("datagrams");
}

#[test]
fn a_datagram_that_is_received_into_memory_that_nothing_stops_is_not_lost() {
    passes("checked_datagrams");
}

/// As C programs do it: libc makes the system calls.
fn streams(task: &Task) {
    const BYTES: usize = 300_000;
    let memory = elsewhere(task, BYTES);
    if task.rank() == 0 {
        // SAFETY: within the allocation.
        unsafe { memory.copy_from_nonoverlapping(pattern(3, BYTES).as_ptr(), BYTES) };
    }
    task.barrier();
    if task.rank() == 1 {
        // SAFETY: a stream of this thread's, and memory that is as long as is said.
        unsafe {
            let file = libc::tmpfile();
            assert!(!file.is_null());
            assert_eq!(libc::fwrite(memory.cast(), 1, BYTES, file), BYTES);
            assert_eq!(libc::fflush(file), 0);
            libc::memset(memory.cast(), 0, BYTES);
            libc::rewind(file);
            assert_eq!(libc::fread(memory.cast(), 1, BYTES, file), BYTES);
            libc::fclose(file);
        }
    }
    task.barrier();
    // SAFETY: within the allocation; nobody stores.
    assert!(unsafe { std::slice::from_raw_parts(memory, BYTES) } == pattern(3, BYTES));
}

#[test]
fn streams_of_libc_write_and_read_shared_memory() {
    passes("streams");
}

/// Nobody dies of an address that is given to a system call, be it in the heap, outside, or none at all.
fn bad_addresses(task: &Task) {
    let memory = elsewhere(task, 4096);
    let in_heap = memory.wrapping_add(1 << 40);
    let ends = pair(libc::SOCK_STREAM);
    for bad in [in_heap, 8 as *mut u8, (1_u64 << 60) as *mut u8] {
        let part = libc::iovec { iov_base: bad.cast(), iov_len: 10 };
        // SAFETY: what the kernel cannot read it says.
        unsafe {
            for written in [
                libc::write(ends[0], bad.cast(), 10),
                libc::writev(ends[0], &raw const part, 1),
                libc::writev(ends[0], bad.cast(), 1),
            ] {
                assert_eq!((written, error()), (-1, libc::EFAULT), "{bad:p}");
            }
        }
    }
    assert_eq!(futex(in_heap.cast(), libc::FUTEX_WAKE, 1, None, 0), Err(libc::EFAULT));
}

#[test]
fn a_bad_address_is_an_error_and_no_death() {
    let said = said_in("bad_addresses", 2, true);
    assert!(!said.contains("comb:"), "the program hears of it by the call: {said}");
}

/// What the program itself does with such an address is another matter.
fn dies_in_the_heap(task: &Task) {
    let memory = elsewhere(task, 4096);
    if task.rank() == 1 {
        // SAFETY: ends the process.
        unsafe { memory.wrapping_add(1 << 40).write_volatile(1) };
    }
}

fn dies_elsewhere(task: &Task) {
    if task.rank() == 1 {
        // SAFETY: ends the process.
        unsafe { (8 as *mut u8).write_volatile(1) };
    }
}

/// A handler that hands the signal on runs on a small stack. Made there, a system call that was stopped overflowed it, for ever.
#[test]
fn a_store_to_a_bad_address_still_ends_the_process() {
    assert!(!launch("dies_elsewhere", 2, true).is_success());
    let outcome = launch("dies_in_the_heap", 2, true);
    assert!(!outcome.is_success());
    let said = String::from_utf8_lossy(&outcome.printed[1].error).into_owned();
    assert!(said.contains("where nothing is allocated"), "{said}");
}

// ── futex ──

fn futex(
    word: *const u32,
    operation: c_int,
    value: u32,
    limit: Option<libc::timespec>,
    bits: u32,
) -> Result<libc::c_long, c_int> {
    let limit = limit.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: the kernel, or who stands in for it, checks the word.
    let done = unsafe { libc::syscall(libc::SYS_futex, word, operation, value, limit, null::<u32>(), bits) };
    if done < 0 { Err(error()) } else { Ok(done) }
}

fn word(memory: *mut u8, index: usize) -> &'static AtomicU32 {
    // SAFETY: within an allocation that stays, aligned, and only used as an atomic.
    unsafe { &*memory.cast::<AtomicU32>().add(index) }
}

/// Mutex and condition of POSIX, between processes that have no page frame in common.
fn mutexes(task: &Task) {
    const ROUNDS: u32 = 60;
    const COUNTS: u32 = 200;
    let memory = elsewhere(task, 8192);
    let mutex = memory.cast::<libc::pthread_mutex_t>();
    let condition = memory.wrapping_add(256).cast::<libc::pthread_cond_t>();
    let turn = memory.wrapping_add(512).cast::<u32>();
    let counter = memory.wrapping_add(4096).cast::<u32>();
    if task.rank() == 0 {
        // SAFETY: memory for both, which nobody uses yet.
        unsafe {
            let mut of_mutex: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut of_mutex);
            libc::pthread_mutexattr_setpshared(&raw mut of_mutex, libc::PTHREAD_PROCESS_SHARED);
            assert_eq!(libc::pthread_mutex_init(mutex, &raw const of_mutex), 0);
            let mut of_condition: libc::pthread_condattr_t = std::mem::zeroed();
            libc::pthread_condattr_init(&raw mut of_condition);
            libc::pthread_condattr_setpshared(&raw mut of_condition, libc::PTHREAD_PROCESS_SHARED);
            assert_eq!(libc::pthread_cond_init(condition, &raw const of_condition), 0);
        }
    }
    task.barrier();
    // SAFETY: shared words are touched with the mutex held.
    unsafe {
        for _ in 0..COUNTS {
            assert_eq!(libc::pthread_mutex_lock(mutex), 0);
            counter.write_volatile(counter.read_volatile() + 1);
            assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
        }
        for round in 0..ROUNDS {
            assert_eq!(libc::pthread_mutex_lock(mutex), 0);
            while turn.read_volatile() != round * task.count() + task.rank() {
                assert_eq!(libc::pthread_cond_wait(condition, mutex), 0);
            }
            turn.write_volatile(turn.read_volatile() + 1);
            assert_eq!(libc::pthread_cond_broadcast(condition), 0);
            assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
        }
    }
    task.barrier();
    // SAFETY: nobody stores any more.
    unsafe {
        assert_eq!(counter.read_volatile(), COUNTS * task.count());
        assert_eq!(turn.read_volatile(), ROUNDS * task.count());
    }
}

#[test]
fn mutexes_and_conditions_work_between_components() {
    passes("mutexes");
}

/// All but one sleep, and are woken as they were asked for; the words are kept by each component in turn.
fn wakes(task: &Task) {
    let others = task.count() - 1;
    for placement in [Placement::At(0), Placement::At(1), Placement::FirstTouch, Placement::RoundRobin] {
        let memory =
            task.allocate_together(4096, &Terms { placement, ..Terms::default() }).expect("allocated");
        for round in 0..task.count() {
            let waker = round;
            let value = word(memory, round as usize);
            if task.rank() == waker {
                assert_eq!(futex(value.as_ptr(), libc::FUTEX_WAKE, 1, None, 0), Ok(0), "nobody sleeps yet");
            }
            task.barrier();
            let woken = if task.rank() == waker {
                // Each is woken once, whenever it has gone to sleep.
                let mut woken = 0;
                while woken < others {
                    let most = if round % 2 == 0 { 1 } else { u32::MAX >> 1 };
                    let wake = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
                    assert_eq!(futex(value.as_ptr(), wake, most, None, 0b100), Ok(0), "not their bits");
                    woken += u32::try_from(futex(value.as_ptr(), wake, most, None, 0b10).unwrap()).unwrap();
                    std::thread::yield_now();
                }
                0
            } else {
                assert_eq!(futex(value.as_ptr(), libc::FUTEX_WAIT_BITSET, 0, None, 0b11), Ok(0));
                1
            };
            assert_eq!(task.reduce(Combine::Sum, &[woken]), [u64::from(others)], "{placement:?} {round}");
        }
    }
}

#[test]
fn who_sleeps_at_a_word_is_woken_from_another_component() {
    passes("wakes");
}

static IS_OVER: AtomicBool = AtomicBool::new(false);

extern "C" fn nothing(_: c_int) {}

/// Other ends of a wait: another value, a limit, a signal. None leaves a sleeper behind.
fn waits_end(task: &Task) {
    let memory = elsewhere(task, 4096);
    let value = word(memory, task.rank() as usize);
    value.store(5, Ordering::SeqCst);
    let limit = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let wait = |operation, expected, limit, bits| futex(value.as_ptr(), operation, expected, limit, bits);
    assert_eq!(wait(libc::FUTEX_WAIT, 4, None, 0), Err(libc::EAGAIN));
    assert_eq!(wait(libc::FUTEX_WAIT, 5, Some(limit), 0), Err(libc::ETIMEDOUT));
    let past = libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME;
    assert_eq!(wait(past, 5, Some(limit), 1), Err(libc::ETIMEDOUT), "1970");
    assert_eq!(wait(libc::FUTEX_WAIT_BITSET, 5, None, 0), Err(libc::EINVAL), "no bits");
    let bad = libc::timespec { tv_sec: 0, tv_nsec: -1 };
    assert_eq!(wait(libc::FUTEX_WAIT, 5, Some(bad), 0), Err(libc::EINVAL));
    let between = value.as_ptr().wrapping_byte_add(2);
    assert_eq!(futex(between, libc::FUTEX_WAKE, 1, None, 0), Err(libc::EINVAL));
    // SAFETY: a handler that does nothing, and a thread that is there until it has been joined.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
        let waiter = libc::pthread_self();
        let signals = std::thread::spawn(move || {
            while !IS_OVER.load(Ordering::Relaxed) {
                libc::pthread_kill(waiter, libc::SIGUSR1);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let ended = wait(libc::FUTEX_WAIT, 5, None, 0);
        IS_OVER.store(true, Ordering::Relaxed);
        signals.join().unwrap();
        assert_eq!(ended, Err(libc::EINTR));
    }
    assert_eq!(wait(libc::FUTEX_WAKE, 99, None, 0), Ok(0));
}

#[test]
fn waits_end_as_the_kernels_do_and_leave_nobody_behind() {
    passes("waits_end");
}

// ── refused ──

fn refused(task: &Task) {
    let memory = elsewhere(task, 4096);
    let word = word(memory, 0);
    assert_eq!(futex(word.as_ptr(), libc::FUTEX_LOCK_PI, 0, None, 0), Err(libc::ENOSYS));
    assert_eq!(futex(word.as_ptr(), libc::FUTEX_CMP_REQUEUE, 0, None, 0), Err(libc::ENOSYS));
    let mut parameters = [0_u64; 32];
    // SAFETY: room for what the kernel writes.
    let ring =
        unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr().cast::<c_void>()) };
    assert_eq!((ring, error()), (-1, libc::ENOSYS));
}

#[test]
fn what_is_not_covered_fails_with_a_message() {
    let said = said_in("refused", 2, true);
    for words in ["io_uring_setup) is refused", "futex operation 6 on shared memory"] {
        assert_eq!(said.matches(words).count(), 2, "once a component: {said}");
    }
}

/// The thread that attends takes no signal of the program's.
fn masks(_: &Task) {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let attending = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
        threads.filter(|thread| read(thread.join("comm")).trim() == "comb-memory").collect::<Vec<_>>()
    };
    // It gives itself its name, once it has got a core.
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while attending().is_empty() && std::time::Instant::now() < limit {
        std::thread::yield_now();
    }
    let masks: Vec<u64> = attending()
        .into_iter()
        .map(|thread| {
            let status = read(thread.join("status"));
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap()
        })
        .collect();
    assert_eq!(masks.len(), 1);
    let is_blocked = |signal: c_int| masks[0] >> (signal - 1) & 1 == 1;
    assert!([libc::SIGUSR1, libc::SIGINT, libc::SIGALRM].into_iter().all(is_blocked));
    assert!(![libc::SIGBUS, libc::SIGSEGV, libc::SIGSYS].into_iter().any(is_blocked));
}

#[test]
fn the_thread_that_attends_runs_no_handlers() {
    passes("masks");
}
