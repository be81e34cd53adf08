//! Threads, signals, children, registers: what else a stopped call might harm.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "each is a system call as a C program makes it, on memory of the test's own or deliberately on none"
)]
#![expect(clippy::cast_possible_truncation, reason = "system calls' own types, of one machine")]

use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use comb_memory::syscalls::{self, CoverError, Hooks};

use super::calls::*;
use super::guarded::*;

#[test]
fn a_bare_instruction_is_covered_and_loses_no_register() {
    alone("a_bare_instruction_is_covered_and_loses_no_register", || {
        let [from, to] = pipe();
        put(to, b"bare");
        let into = missing(PAGE);
        let (result, kept): (isize, [u64; 8]);
        let (mut r8, mut r9, mut r10, mut r12, mut r15, mut rdx) =
            (8_u64, 9_u64, 10_u64, 12_u64, 15_u64, PAGE as u64);
        let (mut low, mut high) = (0x1111_u64, 0x2222_u64);
        unsafe {
            std::arch::asm!(
                "movq xmm0, {low}",
                "movq xmm1, {high}",
                "syscall",
                "movq {low}, xmm0",
                "movq {high}, xmm1",
                low = inout(reg) low, high = inout(reg) high,
                inlateout("rax") libc::SYS_read as isize => result,
                in("rdi") from as usize, in("rsi") into,
                inout("rdx") rdx,
                inout("r8") r8, inout("r9") r9, inout("r10") r10, inout("r12") r12, inout("r15") r15,
                out("rcx") _, out("r11") _, out("xmm0") _, out("xmm1") _,
            );
        }
        kept = [r8, r9, r10, r12, r15, rdx, low, high];
        assert_eq!(result, 4);
        assert_eq!(content(into, 4), b"bare");
        assert_eq!(kept, [8, 9, 10, 12, 15, PAGE as u64, 0x1111, 0x2222]);
    });
}

#[test]
fn calls_on_private_memory_are_not_stopped() {
    alone("calls_on_private_memory_are_not_stopped", || {
        let [from, to] = pipe();
        let mut bytes = [0_u8; 8];
        unsafe {
            // Who is stopped now dies.
            let signals = 1_u64 << (libc::SIGSYS - 1);
            let change = |how: i32| {
                syscalls::raw(
                    libc::SYS_rt_sigprocmask,
                    [how as usize, &raw const signals as usize, 0, 8, 0, 0],
                )
            };
            assert_eq!(change(libc::SIG_BLOCK), 0);
            put(to, b"private");
            assert_eq!(libc::read(from, bytes.as_mut_ptr().cast(), 8), 7);
            let file = libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY);
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(file, &raw mut stat), 0);
            libc::close(file);
            assert_eq!(change(libc::SIG_UNBLOCK), 0);
        }
    });
}

extern "C" fn reads(_: i32) {
    read_into_missing();
    INTERRUPTIONS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn who_blocks_all_signals_is_served_all_the_same() {
    alone("who_blocks_all_signals_is_served_all_the_same", || unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, null_mut()), 0);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, null(), &raw mut now), 0);
        assert_eq!(libc::sigismember(&raw const now, libc::SIGTERM), 1);
        for signal in [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS] {
            assert_eq!(libc::sigismember(&raw const now, signal), 0);
        }
        read_into_missing();
        std::thread::spawn(read_into_missing).join().unwrap();
        assert_eq!(libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const all, null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = reads as *const () as usize;
        action.sa_mask = all;
        let mut before: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, &raw mut before), 0);
        assert_eq!(before.sa_sigaction, action.sa_sigaction);
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
        assert_eq!(INTERRUPTIONS.load(Ordering::Relaxed), 1);
        assert_eq!(
            (libc::sigaction(libc::SIGKILL, &raw const action, null_mut()), error()),
            (-1, libc::EINVAL)
        );
    });
}

fn started_programs_live() {
    let output = Command::new("/bin/sh")
        .args(["-c", "echo from a shell; cat /proc/self/maps | wc -l"])
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"from a shell"), "{output:?}");
    assert_eq!(unsafe { libc::system(c"true".as_ptr()) }, 0);
    // Vectors and messages, which are stopped unseen in this process; and addresses that are shared only here.
    let program = "import socket,os,mmap\na,b=socket.socketpair()\na.sendmsg([b'x',b'yz'])\nassert b.recvmsg(9)[0]==b'xyz'\n\
                       r,w=os.pipe()\nassert os.writev(w,[b'1',b'2'])==2\nimport ctypes\nc=ctypes.CDLL(None,use_errno=True)\n\
                       c.read.argtypes=[ctypes.c_int,ctypes.c_void_p,ctypes.c_size_t]\n\
                       assert c.read(r,0x100000000000,1)==-1 and ctypes.get_errno()==14\nprint('lives')";
    if let Ok(output) = Command::new("python3").args(["-c", program]).output() {
        assert!(output.status.success() && output.stdout == b"lives\n", "{output:?}");
    }
}

#[test]
fn where_addresses_are_no_secret_started_programs_live_and_arrays_are_not_covered() {
    let name = "where_addresses_are_no_secret_started_programs_live_and_arrays_are_not_covered";
    alone_uncovered(name, libc::ADDR_NO_RANDOMIZE, || {
        assert!(!syscalls::cover(Hooks::default()).unwrap().vectored);
        read_into_missing();
        started_programs_live();
    });
}

#[test]
fn a_thread_that_blocks_all_signals_from_before_is_an_error() {
    alone_uncovered("a_thread_that_blocks_all_signals_from_before_is_an_error", 0, || {
        let (told, tell) = std::sync::mpsc::channel();
        let (_held, hold) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let signals = u64::MAX;
            unsafe {
                syscalls::raw(libc::SYS_rt_sigprocmask, [0, &raw const signals as usize, 0, 8, 0, 0]);
                told.send(libc::gettid()).unwrap();
            }
            hold.recv()
        });
        let thread = tell.recv().unwrap();
        match syscalls::cover(Hooks::default()) {
            Err(CoverError::Blocked(found)) => assert_eq!(found, thread.to_string()),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn programs_that_this_one_starts_live() {
    alone("programs_that_this_one_starts_live", || {
        let at = missing(PAGE);
        unsafe { at.write(1) };
        started_programs_live();
        // A path and its arguments in shared memory. (Not by posix_spawn: its child has no handlers.)
        let path = holding(b"/bin/true\0");
        let arguments = holding_value([path.cast::<libc::c_char>(), null_mut()]);
        let child = unsafe { libc::fork() };
        if child == 0 {
            unsafe {
                libc::execv(path.cast(), arguments.cast());
                libc::_exit(1);
            }
        }
        let status = missing(4).cast::<i32>();
        assert_eq!(unsafe { libc::waitpid(child, status, 0) }, child);
        assert_eq!(value(status), 0);
    });
}

#[test]
fn a_child_by_fork_is_covered_too() {
    alone("a_child_by_fork_is_covered_too", || {
        let [from, to] = pipe();
        let text = holding(b"from the child");
        let child = unsafe { libc::fork() };
        if child == 0 {
            let written = unsafe { libc::write(to, text.cast(), 14) };
            unsafe { libc::_exit(if written == 14 { 0 } else { 1 }) };
        }
        let mut status = 0;
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, got(from).as_slice()), (0, b"from the child".as_slice()));
    });
}

#[test]
fn threads_from_before_and_after_are_covered() {
    if std::env::var("COMB_SYSCALLS_CASE").is_err() {
        alone("threads_from_before_and_after_are_covered", || ());
        return;
    }
    // Here before `alone` covers anything.
    let (go, went) = std::sync::mpsc::channel::<()>();
    let read = || {
        let [from, to] = pipe();
        put(to, b"a thread's");
        let into = missing(PAGE);
        assert_eq!(unsafe { libc::read(from, into.cast(), PAGE) }, 10);
        assert_eq!(content(into, 10), b"a thread's");
    };
    let before = std::thread::spawn(move || {
        went.recv().unwrap();
        read();
    });
    alone("threads_from_before_and_after_are_covered", || ());
    go.send(()).unwrap();
    before.join().unwrap();
    std::thread::spawn(read).join().unwrap();
    // Once more is no error, and changes nothing.
    syscalls::cover(Hooks::default()).unwrap();
    read();
}

static INTERRUPTIONS: AtomicUsize = AtomicUsize::new(0);

static TO_WRITE_TO: AtomicUsize = AtomicUsize::new(0);

/// Also makes a call on shared memory, in the midst of the one that it interrupts.
extern "C" fn interrupt(_: i32) {
    let text = holding(b"interrupted");
    // Faults are served on the signal stack; this may be on it, too.
    let above = std::hint::black_box([7_u8; 3000]);
    unsafe { libc::write(TO_WRITE_TO.load(Ordering::Relaxed) as i32, text.cast(), 11) };
    assert_eq!(above, [7; 3000]);
    INTERRUPTIONS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn interruptions_are_the_programs_to_see_if_it_wants() {
    alone("interruptions_are_the_programs_to_see_if_it_wants", || {
        let [from, to] = pipe();
        let [noted, note] = pipe();
        TO_WRITE_TO.store(note as usize, Ordering::Relaxed);
        let me = unsafe { libc::pthread_self() } as usize;
        let memory = vec![0_u8; 1 << 16];
        let stack = libc::stack_t { ss_sp: memory.as_ptr() as *mut _, ss_flags: 0, ss_size: memory.len() };
        assert_eq!(unsafe { libc::sigaltstack(&raw const stack, null_mut()) }, 0);
        for (flags, expected) in [
            (0, (-1, libc::EINTR)),
            (libc::SA_RESTART | libc::SA_ONSTACK, (5, 0)),
            (libc::SA_RESTART, (5, 0)),
        ] {
            let into = missing(PAGE);
            INTERRUPTIONS.store(0, Ordering::Relaxed);
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = interrupt as *const () as usize;
                action.sa_flags = flags;
                libc::sigaction(libc::SIGUSR1, &raw const action, null_mut());
            }
            let is_over = AtomicBool::new(false);
            let found = std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Often, for one that comes before the read interrupts nothing.
                    for round in 0.. {
                        unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1) };
                        std::thread::sleep(std::time::Duration::from_millis(5));
                        if round == 20 {
                            put(to, b"bytes");
                        }
                        if is_over.load(Ordering::Acquire) || round >= 20 {
                            break;
                        }
                    }
                });
                let count = unsafe { libc::read(from, into.cast(), PAGE) };
                let found = (count, if count < 0 { error() } else { 0 });
                is_over.store(true, Ordering::Release);
                found
            });
            assert_eq!(found, expected);
            assert!(INTERRUPTIONS.load(Ordering::Relaxed) > 0);
            assert!(got(noted).starts_with(b"interruptedi") || found.0 < 0);
            if found.0 > 0 {
                assert_eq!(content(into, 5), b"bytes");
            }
        }
    });
}

#[test]
fn a_mask_and_a_signal_stack_given_in_shared_memory_last() {
    alone("a_mask_and_a_signal_stack_given_in_shared_memory_last", || unsafe {
        let set = holding_value(1_u64 << (libc::SIGUSR2 - 1));
        let old = missing(8).cast::<u64>();
        let mask = |how: i32, new: *const u64, old: *mut u64| {
            libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, 8)
        };
        assert_eq!(mask(libc::SIG_BLOCK, set, null_mut()), 0);
        assert_eq!(mask(libc::SIG_BLOCK, null(), old), 0);
        assert_eq!(value(old) & value(set), value(set));
        let mut now = 0;
        assert_eq!(mask(libc::SIG_UNBLOCK, set, null_mut()), 0);
        assert_eq!(mask(libc::SIG_BLOCK, null(), &raw mut now), 0);
        assert_eq!(now & value(set), 0);
        let memory = Box::leak(vec![0_u8; 65536].into_boxed_slice());
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: 65536 };
        assert_eq!(libc::sigaltstack(holding_value(stack), null_mut()), 0);
        let old = missing(24).cast::<libc::stack_t>();
        assert_eq!(libc::sigaltstack(null(), old), 0);
        assert_eq!(value(old).ss_sp, stack.ss_sp);
    });
}

static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn programs_own(_: i32, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
    SEEN.store(unsafe { (*information).si_errno } as usize, Ordering::Relaxed);
}

#[test]
fn a_program_with_a_filter_and_a_handler_of_its_own() {
    alone("a_program_with_a_filter_and_a_handler_of_its_own", || unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = programs_own as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let mut before: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, &raw mut before), 0);
        assert_eq!(before.sa_sigaction, libc::SIG_DFL);
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, &raw mut before), 0);
        assert_eq!(before.sa_sigaction, action.sa_sigaction);
        let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let filter = [
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, libc::SYS_getppid as u32),
            instruction(0x06, 0, 0, 0x0003_0000 | 77),
            instruction(0x06, 0, 0, 0x7fff_0000),
        ];
        let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
        libc::getppid();
        assert_eq!(SEEN.load(Ordering::Relaxed), 77);
        let [from, to] = pipe();
        put(to, b"ours");
        let into = missing(4);
        assert_eq!(libc::read(from, into.cast(), 4), 4);
        assert_eq!(content(into, 4), b"ours");
        assert_eq!(SEEN.load(Ordering::Relaxed), 77);
        // Whoever sets actions for all signals there are does not take ours away.
        for signal in (1..32).filter(|&signal| signal != libc::SIGSEGV) {
            libc::sigaction(signal, &raw const action, null_mut());
        }
        put(to, b"kept");
        take_away(into as usize, 4);
        protect(into as usize, 4, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(libc::read(from, into.cast(), 4), 4);
        assert_eq!(content(into, 4), b"kept");
    });
}
