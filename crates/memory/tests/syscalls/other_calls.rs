//! Calls that move no streams of bytes: names, structures, waiting, mappings, and what is not known.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "each is a system call as a C program makes it, on memory of the test's own or deliberately on none"
)]
#![expect(clippy::cast_possible_truncation, reason = "system calls' own types, of one machine")]

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use comb_memory::syscalls::{FutexCall, Hooks};

use super::calls::*;
use super::guarded::*;

static WOKEN: AtomicU32 = AtomicU32::new(0);

fn answer(call: FutexCall) -> isize {
    WOKEN.fetch_add(call.value, Ordering::Relaxed);
    let is_wait = call.operation & 0x7f == libc::FUTEX_WAIT;
    if is_wait { -(call.timeout.unwrap().1 as isize) } else { call.value2 as isize + call.address2 as isize }
}

#[test]
fn a_futex_on_a_shared_word_goes_to_the_hook() {
    let hooks = Hooks { futex: Some(answer) };
    alone_with("a_futex_on_a_shared_word_goes_to_the_hook", hooks, || {
        let word = missing(4);
        let time = holding_value([3_i64, libc::ETIMEDOUT as i64]);
        let futex = |operation: i32, value: u32, time: usize, second: usize| unsafe {
            libc::syscall(libc::SYS_futex, word, operation, value, time, second, 0)
        };
        assert_eq!(futex(libc::FUTEX_WAIT, 5, time as usize, 0), -1);
        assert_eq!(error(), libc::ETIMEDOUT);
        assert_eq!(futex(libc::FUTEX_REQUEUE, 6, 40, 2), 42);
        assert_eq!(WOKEN.load(Ordering::Relaxed), 11);
        assert_eq!(futex(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 100, 0, 0), 0);
        assert_eq!(WOKEN.load(Ordering::Relaxed), 111);
        // A private word is nobody's business.
        let private = AtomicU32::new(0);
        let woken =
            unsafe { libc::syscall(libc::SYS_futex, &raw const private, libc::FUTEX_WAKE, 1, 0, 0, 0) };
        assert_eq!((woken, WOKEN.load(Ordering::Relaxed)), (0, 111));
    });
}

#[test]
fn a_futex_without_a_hook_waits_and_wakes_here() {
    alone("a_futex_without_a_hook_waits_and_wakes_here", || {
        let word: &AtomicU32 = unsafe { &*missing(4).cast() };
        let futex = |operation: i32, value: u32, time: usize| unsafe {
            libc::syscall(libc::SYS_futex, word, operation, value, time, 0, 0)
        };
        let time = holding_value([0_i64, 1_000_000]);
        assert_eq!((futex(libc::FUTEX_WAIT, 0, time as usize), error()), (-1, libc::ETIMEDOUT));
        take_away(word.as_ptr() as usize, 4);
        assert_eq!((futex(libc::FUTEX_WAIT, 1, 0), error()), (-1, libc::EAGAIN));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    futex(libc::FUTEX_WAIT, 0, 0);
                }
            });
            // Until it sleeps there, whatever became of the rights.
            while futex(libc::FUTEX_WAKE, 1, 0) == 0 {
                take_away(word.as_ptr() as usize, 4);
                std::thread::yield_now();
            }
            word.store(1, Ordering::Release);
            futex(libc::FUTEX_WAKE, 1, 0);
            waiter.join().unwrap();
        });
    });
}

#[test]
fn rings_are_refused_with_a_message() {
    let said = alone("rings_are_refused_with_a_message", || {
        let mut parameters = [0_u8; 120];
        for _ in 0..3 {
            let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) };
            assert_eq!((ring, error()), (-1, libc::ENOSYS));
        }
    });
    let Some(said) = said else { return };
    assert_eq!(said.matches("(io_uring_setup)").count(), 1, "said once: {said}");
}

#[test]
fn a_call_that_nobody_knows_is_made_with_its_pages_there() {
    let said = alone("a_call_that_nobody_knows_is_made_with_its_pages_there", || {
        let [from, to] = pipe();
        put(to, b"hello");
        let count = missing(4).cast::<i32>();
        assert_eq!(unsafe { libc::ioctl(from, libc::FIONREAD, count) }, 0);
        assert_eq!(value(count), 5);
        // Where no memory is there is nothing to be done, and it is said.
        for _ in 0..2 {
            assert_eq!((unsafe { libc::ioctl(from, libc::FIONREAD, wild()) }, error()), (-1, libc::EFAULT));
        }
        // No call at all, with a number that only looks like an address.
        assert_eq!((unsafe { libc::syscall(499, wild(), 0, 0, 0, 0, 0) }, error()), (-1, libc::ENOSYS));
        // No address, though it looks like one.
        let stored = file();
        assert_eq!(unsafe { libc::lseek(stored, wild() as i64, libc::SEEK_SET) }, wild() as i64);
        let mut byte = 0_u8;
        assert_eq!(unsafe { libc::pread(stored, (&raw mut byte).cast(), 1, wild() as i64) }, 0);
    });
    let Some(said) = said else { return };
    let address = format!("{:#x}", wild() as usize);
    assert!(said.contains("system call 16 (ioctl)") && said.contains(&address), "{said}");
    assert_eq!(said.matches("(ioctl)").count(), 1, "said once: {said}");
}

#[test]
fn mappings_of_shared_memory_are_not_the_programs_to_change() {
    let said = alone("mappings_of_shared_memory_are_not_the_programs_to_change", || {
        let at = holding(b"still here").cast::<libc::c_void>();
        let refused = |result: i64| assert_eq!((result, error()), (-1, libc::EPERM));
        let fixed = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let array = [buffer(at.cast(), 10)];
        let [_, to] = pipe();
        unsafe {
            refused(i64::from(libc::munmap(at, PAGE)));
            refused(i64::from(libc::mprotect(at, PAGE, libc::PROT_READ | libc::PROT_WRITE)));
            refused(i64::from(libc::madvise(at, PAGE, libc::MADV_REMOVE)));
            refused(libc::mmap(at, PAGE, libc::PROT_READ, fixed, -1, 0) as i64);
            refused(libc::mremap(at, PAGE, PAGE, libc::MREMAP_MAYMOVE) as i64);
            refused(libc::vmsplice(to, array.as_ptr(), 1, 0) as i64);
            let process = libc::getpid();
            refused(libc::process_vm_readv(process, array.as_ptr(), 1, array.as_ptr(), 1, 0) as i64);
            refused(libc::syscall(libc::SYS_userfaultfd, 0));
            // A wish is none that harms.
            let wish = libc::mmap(at, PAGE, libc::PROT_READ, fixed & !libc::MAP_FIXED, -1, 0);
            assert!(wish != libc::MAP_FAILED && wish != at);
            // And what is private stays the program's.
            assert_eq!(libc::mprotect(wish, PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
            assert_eq!(libc::munmap(wish, PAGE), 0);
        }
        assert_eq!(faults(), 0);
        assert_eq!(content(at.cast(), 10), b"still here");
    });
    let Some(said) = said else { return };
    for name in
        ["munmap", "mprotect", "madvise", "mmap", "mremap", "vmsplice", "process_vm_readv", "userfaultfd"]
    {
        assert_eq!(said.matches(&format!("({name})")).count(), 1, "{name}: {said}");
    }
}

#[test]
fn names_and_small_structures() {
    alone("names_and_small_structures", || unsafe {
        let status = text("/proc/self/status");
        let file = libc::open(status, libc::O_RDONLY);
        assert!(file >= 0);
        let stat = missing(144).cast::<libc::stat>();
        assert_eq!(libc::fstat(file, stat), 0);
        assert_eq!(value(stat).st_mode & libc::S_IFMT, libc::S_IFREG);
        take_away(stat as usize, 144);
        assert_eq!(libc::stat(text("/"), stat), 0);
        assert_eq!(value(stat).st_mode & libc::S_IFMT, libc::S_IFDIR);
        assert_eq!((libc::access(text(&"x/".repeat(3000)), 0), error()), (-1, libc::ENAMETOOLONG));
        // A string that crosses into another page, and one that ends where memory does.
        let long = missing(2 * PAGE).add(PAGE - 3).cast::<libc::c_char>();
        libc::strcpy(long, c"/proc/self".as_ptr());
        take_away(long as usize, 2 * PAGE);
        assert_eq!(libc::access(long, 0), 0);
        let end = last_page().add(PAGE - 2).cast::<libc::c_char>();
        libc::strcpy(end, c"/".as_ptr());
        take_away(end as usize, PAGE);
        assert_eq!(libc::access(end, 0), 0);
        let name = missing(100).cast::<libc::c_char>();
        assert_eq!(libc::readlink(c"/proc/self/fd/0".as_ptr(), name, 0), -1);
        assert!(libc::readlink(text("/proc/self/exe"), name, 100) > 5);
        assert_eq!(value(name.cast::<u8>()), b'/');
        take_away(name as usize, 100);
        assert!(!libc::getcwd(name, 100).is_null());
        assert_eq!(value(name.cast::<u8>()), b'/');

        let ends = missing(8).cast::<[i32; 2]>();
        assert_eq!(libc::pipe(ends.cast()), 0);
        let [from, to] = value(ends);
        put(to, b"x");
        let poll = holding_value([libc::pollfd { fd: from, events: libc::POLLIN, revents: 0 }; 2]);
        assert_eq!(libc::poll(poll.cast(), 2, 0), 2);
        assert_eq!(value(poll).map(|poll| poll.revents), [libc::POLLIN; 2]);
        let set = missing(128).cast::<libc::fd_set>();
        libc::FD_SET(from, set);
        take_away(set as usize, 128);
        let time = holding_value([0_i64, 0]);
        assert_eq!(libc::select(from + 1, set, null_mut(), null_mut(), time.cast()), 1);
        let wanted = holding_value(libc::epoll_event { events: libc::EPOLLIN as u32, u64: 77 });
        let epoll = libc::epoll_create1(0);
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, from, wanted), 0);
        let events = missing(40).cast::<libc::epoll_event>();
        assert_eq!(libc::epoll_wait(epoll, events, 3, 0), 1);
        assert_eq!({ value(events).u64 }, 77);

        let time = holding_value([0_i64, 1000]);
        assert_eq!(libc::nanosleep(time.cast(), null_mut()), 0);
        let now = missing(16).cast::<libc::timespec>();
        assert_eq!(libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, now), 0);
        assert!(value(now).tv_sec > 1_000_000_000);
        // By the vdso, that is: by plain stores.
        take_away(now as usize, 16);
        assert_eq!(libc::clock_gettime(libc::CLOCK_REALTIME, now), 0);
        assert_eq!(libc::getrandom(missing(64).cast(), 64, 0), 64);
        let option = missing(4).cast::<i32>();
        let length = holding_value(4_u32);
        let [socket, _] = sockets(libc::SOCK_DGRAM);
        assert_eq!(libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_TYPE, option.cast(), length), 0);
        assert_eq!((value(option), value(length)), (libc::SOCK_DGRAM, 4));
        let names = missing(4096).cast::<u8>();
        let root = libc::open(c"/".as_ptr(), libc::O_RDONLY);
        assert!(libc::syscall(libc::SYS_getdents64, root, names, 4096) > 40);
        // What is not written keeps its value.
        let child = holding_value(1234_i32);
        assert_eq!((libc::syscall(libc::SYS_wait4, -1, child, libc::WNOHANG, 0), value(child)), (-1, 1234));
        let mut system: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut system);
        let shared = missing(size_of::<libc::utsname>()).cast::<libc::utsname>();
        assert_eq!(libc::uname(shared), 0);
        assert_eq!(CStr::from_ptr(value(shared).release.as_ptr()), CStr::from_ptr(system.release.as_ptr()));
    });
}

#[test]
fn addresses_of_sockets() {
    alone("addresses_of_sockets", || unsafe {
        let listener = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let mut any: libc::sockaddr_in = std::mem::zeroed();
        any.sin_family = libc::AF_INET as u16;
        any.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(libc::bind(listener, holding_value(any).cast(), 16), 0);
        assert_eq!(libc::listen(listener, 1), 0);
        let name = missing(128).cast::<libc::sockaddr_in>();
        let length = holding_value(128_u32);
        assert_eq!(libc::getsockname(listener, name.cast(), length), 0);
        assert_eq!(value(length), 16);
        let client = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        take_away(name as usize, 16);
        assert_eq!(libc::connect(client, name.cast(), 16), 0);
        let peer = missing(128).cast::<libc::sockaddr_in>();
        // The length may be private, and smaller than the address.
        let mut short = 4_u32;
        let server = libc::accept(listener, peer.cast(), &raw mut short);
        assert!(server >= 0);
        assert_eq!(short, 16);
        assert_eq!(content(peer.cast(), 16)[8..], [0; 8], "no more than there was room for");
        // As one write of two.
        assert_eq!(libc::send(client, text("tcp").cast(), 3, 0), 3);
        let into = missing(8);
        assert_eq!(libc::recvfrom(server, into.cast(), 8, 0, null_mut(), null_mut()), 3);
        assert_eq!(content(into, 3), b"tcp");
    });
}
