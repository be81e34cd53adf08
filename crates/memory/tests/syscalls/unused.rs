//! Arguments that a call does not use, or that are no addresses in it. Registers hold what was there before, and that can look like an address
//! of shared memory: it is not touched, and no call fails for it.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "each is a system call as a C program makes it, on memory of the test's own or deliberately on none"
)]
#![expect(clippy::cast_possible_truncation, reason = "system calls' own types, of one machine")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use super::calls::*;
use super::guarded::*;

/// The call succeeds, and touches nothing, whether there is memory or not.
#[track_caller]
fn leaves_alone(call: impl Fn(*mut u8) -> i64) {
    for elsewhere in [missing(8), wild()] {
        let before = faults();
        let result = call(elsewhere);
        assert!(result >= 0, "{elsewhere:?}: {result}, {}", std::io::Error::last_os_error());
        assert_eq!(faults(), before, "{elsewhere:?}");
    }
}

#[test]
fn what_a_futex_does_not_use_is_left_alone() {
    alone("what_a_futex_does_not_use_is_left_alone", || {
        let private = AtomicU32::new(0);
        for operation in [libc::FUTEX_WAKE, libc::FUTEX_WAKE_BITSET] {
            leaves_alone(|elsewhere| unsafe {
                libc::syscall(libc::SYS_futex, &raw const private, operation, 1, elsewhere, elsewhere, 1)
            });
        }
    });
}

#[test]
fn what_fcntl_does_not_use_is_left_alone() {
    alone("what_fcntl_does_not_use_is_left_alone", || {
        let file = file();
        for command in [libc::F_GETFD, libc::F_GETFL, libc::F_GET_SEALS, libc::F_GETOWN] {
            leaves_alone(|elsewhere| unsafe { libc::fcntl(file, command, elsewhere).into() });
        }
        // What it does use is there.
        let lock = holding_value(libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: 0,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        });
        assert_eq!(unsafe { libc::fcntl(file, libc::F_SETLK, lock) }, 0);
    });
}

#[test]
fn what_ioctl_does_not_use_is_left_alone() {
    alone("what_ioctl_does_not_use_is_left_alone", || {
        let file = file();
        for request in [libc::FIOCLEX, libc::FIONCLEX] {
            leaves_alone(|elsewhere| unsafe { libc::ioctl(file, request, elsewhere).into() });
        }
    });
}

#[test]
fn what_prctl_does_not_use_is_left_alone() {
    alone("what_prctl_does_not_use_is_left_alone", || {
        leaves_alone(|elsewhere| unsafe {
            // As libc makes it, which looks for more arguments than it is given.
            libc::prctl(libc::PR_GET_TIMERSLACK, elsewhere, elsewhere, elsewhere, elsewhere).into()
        });
        let name = missing(16);
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_NAME, name) }, 0);
        assert_ne!(value(name), 0);
    });
}

#[test]
fn an_address_that_arch_prctl_only_notes_is_left_alone() {
    alone("an_address_that_arch_prctl_only_notes_is_left_alone", || {
        const SET_GS: i32 = 0x1001;
        const GET_GS: i32 = 0x1004;
        leaves_alone(|elsewhere| unsafe { libc::syscall(libc::SYS_arch_prctl, SET_GS, elsewhere) });
        let noted = missing(8).cast::<usize>();
        assert_eq!(unsafe { libc::syscall(libc::SYS_arch_prctl, GET_GS, noted) }, 0);
        assert_eq!(value(noted), wild() as usize);
    });
}

#[test]
fn without_room_for_a_name_its_length_is_left_alone() {
    alone("without_room_for_a_name_its_length_is_left_alone", || {
        let [from, to] = sockets(libc::SOCK_DGRAM);
        leaves_alone(|elsewhere| unsafe {
            put(to, b"message");
            let mut bytes = [0_u8; 8];
            let into = bytes.as_mut_ptr().cast();
            libc::recvfrom(from, into, 8, 0, null_mut(), elsewhere.cast()) as i64
        });
        let listener = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
        let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        name.sun_family = libc::AF_UNIX as u16;
        // The kernel finds a name.
        assert_eq!(unsafe { libc::bind(listener, (&raw const name).cast(), 2) }, 0);
        let mut length = size_of::<libc::sockaddr_un>() as u32;
        unsafe {
            assert_eq!(libc::getsockname(listener, (&raw mut name).cast(), &raw mut length), 0);
            assert_eq!(libc::listen(listener, 8), 0);
        }
        let connect = || unsafe {
            let client = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            assert_eq!(libc::connect(client, (&raw const name).cast(), length), 0);
        };
        leaves_alone(|elsewhere| {
            connect();
            unsafe { libc::accept(listener, null_mut(), elsewhere.cast()).into() }
        });
        leaves_alone(|elsewhere| {
            connect();
            unsafe { libc::accept4(listener, null_mut(), elsewhere.cast(), 0).into() }
        });
    });
}

#[test]
fn an_event_that_epoll_does_not_look_at_is_left_alone() {
    alone("an_event_that_epoll_does_not_look_at_is_left_alone", || {
        let epoll = unsafe { libc::epoll_create1(0) };
        let [from, _] = pipe();
        let event = libc::epoll_event { events: 0, u64: 0 };
        leaves_alone(|elsewhere| unsafe {
            assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, from, (&raw const event).cast_mut()), 0);
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, from, elsewhere.cast()).into()
        });
    });
}

#[test]
fn what_is_left_of_a_sleep_up_to_a_moment_is_nowhere() {
    alone("what_is_left_of_a_sleep_up_to_a_moment_is_nowhere", || {
        let past = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
        leaves_alone(|elsewhere| unsafe {
            libc::syscall(libc::SYS_clock_nanosleep, clock, flags, &raw const past, elsewhere)
        });
    });
}

#[test]
fn a_mapping_that_moves_nowhere_in_particular_moves() {
    alone("a_mapping_that_moves_nowhere_in_particular_moves", || unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = libc::mmap(missing(PAGE).cast(), PAGE, libc::PROT_READ, flags, -1, 0);
        assert_ne!(mapped, libc::MAP_FAILED, "a wish");
        leaves_alone(|elsewhere| libc::syscall(libc::SYS_mremap, mapped, PAGE, PAGE, 0, elsewhere));
    });
}

static CHILD: AtomicU32 = AtomicU32::new(0);

extern "C" fn child(_: *mut libc::c_void) -> i32 {
    CHILD.fetch_add(1, Ordering::SeqCst);
    0
}

/// On a stack of its own, and in our memory.
#[test]
fn what_a_clone_does_not_use_is_left_alone() {
    alone("what_a_clone_does_not_use_is_left_alone", || {
        let mut stack = vec![0_u128; 4096];
        let top = stack.as_mut_ptr_range().end.cast();
        for memory in [libc::CLONE_VM | libc::CLONE_VFORK, 0] {
            leaves_alone(|elsewhere| unsafe {
                let flags = memory | libc::SIGCHLD;
                let process =
                    libc::clone(child, top, flags, null_mut(), elsewhere, null_mut::<u8>(), elsewhere);
                let mut status = 0;
                assert_eq!((libc::waitpid(process, &raw mut status, 0), status), (process, 0));
                process.into()
            });
        }
        assert_eq!(CHILD.load(Ordering::SeqCst), 2, "those in our memory");
        let refused = unsafe {
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
            libc::clone(child, top, flags, null_mut(), missing(4), null_mut::<u8>(), null_mut::<u8>())
        };
        assert_eq!((refused, error()), (-1, libc::EPERM));
    });
}

/// libc's `syscall` has six arguments for the kernel, however many it is given.
#[test]
fn calls_without_addresses_look_at_none() {
    alone("calls_without_addresses_look_at_none", || {
        leaves_alone(|elsewhere| unsafe {
            let ask = 0xffff_ffff_u64;
            libc::syscall(libc::SYS_personality, ask, elsewhere, elsewhere, elsewhere, elsewhere, elsewhere)
        });
        leaves_alone(|elsewhere| unsafe {
            libc::syscall(libc::SYS_ioprio_get, 1, 0, elsewhere, elsewhere, elsewhere, elsewhere)
        });
    });
}
