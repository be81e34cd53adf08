//! System calls on memory whose pages are missing, each test in a process of its own.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]

#[path = "guarded/mod.rs"]
mod guarded;

use std::ffi::{CStr, CString};
use std::io::Write;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use comb_memory::syscalls::{self, FutexCall, Hooks};
use guarded::{
    PAGE, alone, alone_with, content, error, faults, holding, holding_value, last_page, missing, protect, take_away,
    value, wild,
};

fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

fn sockets(kind: i32) -> [i32; 2] {
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    ends
}

fn file() -> i32 {
    let file = unsafe { libc::memfd_create(c"file".as_ptr(), 0) };
    assert!(file >= 0);
    file
}

fn put(descriptor: i32, bytes: &[u8]) {
    assert_eq!(unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) }, bytes.len() as isize);
}

fn got(descriptor: i32) -> Vec<u8> {
    let mut bytes = vec![0; 65536];
    let count = unsafe { libc::read(descriptor, bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(count.try_into().unwrap());
    bytes
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 256) as u8).collect()
}

#[test]
fn a_datagram_received_into_a_missing_page_is_not_lost() {
    alone("a_datagram_received_into_a_missing_page_is_not_lost", || {
        let [a, b] = sockets(libc::SOCK_DGRAM);
        let sent = pattern(3 * PAGE);
        put(a, &sent);
        let into = missing(4 * PAGE);
        let at = unsafe { into.add(100) };
        assert_eq!(unsafe { libc::recv(b, at.cast(), 3 * PAGE, 0) }, 3 * PAGE as isize);
        assert_eq!(content(at, 3 * PAGE), sent);
        assert!(faults() >= 4);
        // One that is longer than its place says so and gives what fits.
        put(a, &sent);
        take_away(into as usize, PAGE);
        assert_eq!(unsafe { libc::recv(b, into.cast(), 10, libc::MSG_TRUNC) }, 3 * PAGE as isize);
        assert_eq!(content(into, 10), sent[..10]);
        assert_eq!(content(unsafe { into.add(10) }, 90), [0; 90], "nothing past what was asked for");
    });
}

#[test]
fn read_fills_missing_pages_from_files_pipes_and_sockets() {
    alone("read_fills_missing_pages_from_files_pipes_and_sockets", || {
        let sent = pattern(5 * PAGE);
        let stored = file();
        put(stored, &sent);
        let [from_pipe, to_pipe] = pipe();
        put(to_pipe, &sent);
        let [from_socket, to_socket] = sockets(libc::SOCK_STREAM);
        put(to_socket, &sent);
        unsafe { libc::lseek(stored, 0, libc::SEEK_SET) };
        for descriptor in [stored, from_pipe, from_socket] {
            let into = missing(5 * PAGE);
            assert_eq!(unsafe { libc::read(descriptor, into.cast(), 5 * PAGE) }, 5 * PAGE as isize);
            assert_eq!(content(into, 5 * PAGE), sent);
        }
        let into = missing(PAGE);
        assert_eq!(unsafe { libc::pread(stored, into.cast(), 100, 1000) }, 100);
        assert_eq!(content(into, 100), sent[1000..1100]);
        assert_eq!(unsafe { libc::read(stored, into.cast(), PAGE) }, 0, "the end of the file");
    });
}

#[test]
fn a_partial_read_touches_no_more_than_came() {
    alone("a_partial_read_touches_no_more_than_came", || {
        let [from, to] = pipe();
        put(to, b"hello");
        let into = missing(8 * PAGE);
        assert_eq!(unsafe { libc::read(from, into.cast(), 8 * PAGE) }, 5);
        assert_eq!(content(into, 8), b"hello\0\0\0");
        assert_eq!(faults(), 1);
    });
}

#[test]
fn write_takes_from_missing_pages() {
    alone("write_takes_from_missing_pages", || {
        let sent = pattern(5 * PAGE);
        let from = holding(&sent);
        let [a, b] = sockets(libc::SOCK_DGRAM);
        let [end, pipe] = pipe();
        for (descriptor, other) in [(a, b), (pipe, end)] {
            take_away(from as usize, 5 * PAGE);
            assert_eq!(unsafe { libc::write(descriptor, from.cast(), 5 * PAGE) }, 5 * PAGE as isize);
            assert_eq!(got(other), sent);
        }
        take_away(from as usize, 5 * PAGE);
        assert_eq!(unsafe { libc::send(a, from.cast(), 77, 0) }, 77);
        assert_eq!(got(b), sent[..77]);
        let stored = file();
        take_away(from as usize, 5 * PAGE);
        assert_eq!(unsafe { libc::pwrite(stored, from.cast(), 5 * PAGE, 3) }, 5 * PAGE as isize);
        let mut back = vec![0; 5 * PAGE];
        assert_eq!(unsafe { libc::pread(stored, back.as_mut_ptr().cast(), back.len(), 3) }, 5 * PAGE as isize);
        assert_eq!(back, sent);
    });
}

fn buffer(at: *mut u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast(), iov_len: bytes }
}

#[test]
fn arrays_of_buffers_mix_private_and_shared() {
    alone("arrays_of_buffers_mix_private_and_shared", || {
        let sent = pattern(PAGE + 20);
        let mut private = sent[..10].to_vec();
        let shared = holding(&sent[10..PAGE + 10]);
        let mut tail = sent[PAGE + 10..].to_vec();
        let gather =
            [buffer(private.as_mut_ptr(), 10), buffer(shared, PAGE), buffer(tail.as_mut_ptr(), 10)];
        let [from, to] = pipe();
        let stored = file();
        let whole = sent.len() as isize;
        assert_eq!(unsafe { libc::writev(to, gather.as_ptr(), 3) }, whole);
        take_away(shared as usize, PAGE);
        // The array itself in shared memory, too.
        let array = holding_value(gather);
        assert_eq!(unsafe { libc::pwritev(stored, array.cast(), 3, 0) }, whole);

        let first = missing(PAGE);
        let mut middle = [0; 30];
        let last = missing(2 * PAGE);
        let scatter = [buffer(first, 5), buffer(middle.as_mut_ptr(), 30), buffer(last, 2 * PAGE)];
        let check = |middle: &[u8; 30]| {
            let mut all = content(first, 5);
            all.extend(middle);
            all.extend(content(last, PAGE + 20 - 35));
            assert!(all == sent);
            assert_eq!(content(unsafe { last.add(PAGE + 20 - 35) }, 10), [0; 10]);
        };
        assert_eq!(unsafe { libc::readv(from, scatter.as_ptr(), 3) }, whole);
        check(&middle);
        for at in [first, last] {
            unsafe { at.write_bytes(0, PAGE) };
            take_away(at as usize, PAGE);
        }
        middle.fill(0);
        let array = holding_value(scatter);
        assert_eq!(unsafe { libc::preadv(stored, array.cast(), 3, 0) }, whole);
        check(&middle);
        // All private: as ever.
        let private = [buffer(tail.as_mut_ptr(), 10)];
        assert_eq!(unsafe { libc::writev(to, private.as_ptr(), 1) }, 10);
        assert_eq!(got(from), tail);
    });
}

#[test]
fn messages_carry_descriptors_and_addresses_wherever_their_parts_lie() {
    alone("messages_carry_descriptors_and_addresses_wherever_their_parts_lie", || {
        let [a, b] = sockets(libc::SOCK_DGRAM);
        let [from, to] = pipe();
        let rights = libc::cmsghdr {
            cmsg_len: unsafe { libc::CMSG_LEN(4) } as usize,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        let control = holding_value((rights, from, 0_i32));
        let text = holding(b"with a descriptor");
        let array = holding_value([buffer(text, 17)]);
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = array.cast();
        message.msg_iovlen = 1;
        message.msg_control = control.cast();
        message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as usize;
        let sent = holding_value(message);
        assert_eq!(unsafe { libc::sendmsg(a, sent, 0) }, 17);

        let text = missing(10);
        let array = holding_value([buffer(text, 10)]);
        let control = missing(200);
        message.msg_iov = array.cast();
        message.msg_control = control.cast();
        message.msg_controllen = 200;
        let received = holding_value(message);
        assert_eq!(unsafe { libc::recvmsg(b, received, 0) }, 10);
        assert_eq!(content(text, 10), b"with a des");
        let message = value(received);
        assert_eq!(message.msg_controllen, unsafe { libc::CMSG_SPACE(4) } as usize);
        assert_eq!(message.msg_flags & libc::MSG_TRUNC, libc::MSG_TRUNC);
        let (rights, descriptor, _) = value(control.cast::<(libc::cmsghdr, i32, i32)>());
        assert_eq!((rights.cmsg_level, rights.cmsg_type), (libc::SOL_SOCKET, libc::SCM_RIGHTS));
        put(to, b"through the pipe");
        assert_eq!(got(descriptor), b"through the pipe");
    });
}

#[test]
fn many_messages_at_once_and_the_addresses_they_came_from() {
    alone("many_messages_at_once_and_the_addresses_they_came_from", || {
        let (a, b) = (std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        use std::os::fd::AsRawFd;
        let port = |socket: &std::net::UdpSocket| socket.local_addr().unwrap().port();
        let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        address.sin_family = libc::AF_INET as u16;
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        address.sin_port = port(&b).to_be();
        let mut private = *b"private";
        let mut many: [libc::mmsghdr; 3] = unsafe { std::mem::zeroed() };
        let texts = [holding(b"one"), private.as_mut_ptr(), holding(b"three")];
        let arrays = [3, 7, 5].map(|bytes| [buffer(null_mut(), bytes)]);
        let mut arrays = arrays;
        for (index, one) in many.iter_mut().enumerate() {
            arrays[index][0].iov_base = texts[index].cast();
            one.msg_hdr.msg_iov = arrays[index].as_mut_ptr();
            one.msg_hdr.msg_iovlen = 1;
            one.msg_hdr.msg_name = holding_value(address).cast();
            one.msg_hdr.msg_namelen = size_of_val(&address) as u32;
        }
        assert_eq!(unsafe { libc::sendmmsg(a.as_raw_fd(), many.as_mut_ptr(), 3, 0) }, 3);
        assert_eq!(many.map(|one| one.msg_len), [3, 7, 5]);

        let into = [missing(10), missing(10), missing(10), missing(10)];
        let names = [missing(16), missing(16), missing(16), missing(16)];
        let mut arrays = into.map(|at| [buffer(at, 10)]);
        let mut many: [libc::mmsghdr; 4] = unsafe { std::mem::zeroed() };
        for (index, one) in many.iter_mut().enumerate() {
            one.msg_hdr.msg_iov = arrays[index].as_mut_ptr();
            one.msg_hdr.msg_iovlen = 1;
            one.msg_hdr.msg_name = names[index].cast();
            one.msg_hdr.msg_namelen = 16;
        }
        let shared = holding_value(many);
        let flags = libc::MSG_WAITFORONE;
        assert_eq!(unsafe { libc::recvmmsg(b.as_raw_fd(), shared.cast(), 4, flags, null_mut()) }, 3);
        let many = value(shared);
        assert_eq!(many.map(|one| one.msg_len), [3, 7, 5, 0]);
        for (at, text) in into.iter().zip(["one", "private", "three"]) {
            assert_eq!(content(*at, text.len()), text.as_bytes());
        }
        assert_eq!(value(names[2].cast::<libc::sockaddr_in>()).sin_port, port(&a).to_be());
        assert_eq!(many[0].msg_hdr.msg_namelen, 16);
    });
}

#[test]
fn stdio_writes_from_and_reads_into_shared_memory() {
    alone("stdio_writes_from_and_reads_into_shared_memory", || {
        let sent = pattern(1 << 20);
        let from = holding(&sent);
        let into = missing(1 << 20);
        unsafe {
            let stream = libc::fdopen(file(), c"w+".as_ptr());
            assert_eq!(libc::fwrite(from.cast(), 1, sent.len(), stream), sent.len());
            assert_eq!(libc::fflush(stream), 0);
            libc::rewind(stream);
            assert_eq!(libc::fread(into.cast(), 1, sent.len(), stream), sent.len());
            libc::fclose(stream);
        }
        assert!(content(into, 1 << 20) == sent);
    });
}

#[test]
fn a_bare_instruction_is_covered_and_loses_no_register() {
    alone("a_bare_instruction_is_covered_and_loses_no_register", || {
        let [from, to] = pipe();
        put(to, b"bare");
        let into = missing(PAGE);
        let (result, kept): (isize, [u64; 8]);
        let (mut r8, mut r9, mut r10, mut r12, mut r15, mut rdx) = (8_u64, 9_u64, 10_u64, 12_u64, 15_u64, PAGE as u64);
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
        let woken = unsafe { libc::syscall(libc::SYS_futex, &raw const private, libc::FUTEX_WAKE, 1, 0, 0, 0) };
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
    let address = format!("{:#x}", guarded::wild() as usize);
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
    for name in ["munmap", "mprotect", "madvise", "mmap", "mremap", "vmsplice", "process_vm_readv", "userfaultfd"] {
        assert_eq!(said.matches(&format!("({name})")).count(), 1, "{name}: {said}");
    }
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
                syscalls::raw(libc::SYS_rt_sigprocmask, [how as usize, &raw const signals as usize, 0, 8, 0, 0])
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
}

fn read_into_missing() {
    let [from, to] = pipe();
    put(to, b"read");
    let into = missing(PAGE);
    assert_eq!(unsafe { libc::read(from, into.cast(), PAGE) }, 4);
    assert_eq!(content(into, 4), b"read");
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
        assert_eq!(INTERRUPTIONS.load(Ordering::Relaxed), 3);
        assert_eq!((libc::sigaction(libc::SIGKILL, &raw const action, null_mut()), error()), (-1, libc::EINVAL));
    });
}

#[test]
fn programs_that_this_one_starts_live() {
    alone("programs_that_this_one_starts_live", || {
        let at = missing(PAGE);
        unsafe { at.write(1) };
        let output = Command::new("/bin/sh").args(["-c", "echo from a shell; cat /proc/self/maps | wc -l"]).output().unwrap();
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
        for (flags, expected) in [(0, (-1, libc::EINTR)), (libc::SA_RESTART | libc::SA_ONSTACK, (5, 0)), (libc::SA_RESTART, (5, 0))] {
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
fn transfers_of_many_megabytes() {
    alone("transfers_of_many_megabytes", || {
        const BYTES: usize = 80 << 20;
        let sent = pattern(BYTES);
        let from = holding(&sent);
        let stored = file();
        assert_eq!(unsafe { libc::write(stored, from.cast(), BYTES) }, BYTES as isize, "a file takes all");
        let into = missing(BYTES);
        assert_eq!(unsafe { libc::pread(stored, into.cast(), BYTES, 0) }, BYTES as isize);
        assert!(content(into, BYTES) == sent);
        take_away(from as usize, BYTES);
        // A stream takes and gives what it can.
        let [a, b] = sockets(libc::SOCK_STREAM);
        let sum = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut sum, mut at) = (0, 0);
                let into = missing(BYTES);
                while at < BYTES {
                    let count = unsafe { libc::recv(b, into.add(at).cast(), BYTES - at, 0) };
                    assert!(count > 0);
                    at += count as usize;
                    sum += count as usize;
                }
                assert!(content(into, BYTES) == pattern(BYTES));
                sum
            });
            let mut at = 0;
            while at < BYTES {
                let count = unsafe { libc::send(a, from.add(at).cast(), BYTES - at, 0) };
                assert!(count > 0);
                at += count as usize;
            }
            reader.join().unwrap()
        });
        assert_eq!(sum, BYTES);
    });
}

#[test]
fn bad_addresses_and_lengths_are_errors_and_lose_nothing() {
    alone("bad_addresses_and_lengths_are_errors_and_lose_nothing", || unsafe {
        let [from, to] = pipe();
        put(to, b"kept");
        let at = missing(PAGE);
        let fails = |result: isize, with: i32| assert_eq!((result, error()), (-1, with));
        for bytes in [usize::MAX, usize::MAX - 5, isize::MAX as usize, 1 << 47] {
            fails(libc::read(from, at.cast(), bytes), libc::EFAULT);
            fails(libc::write(to, at.cast(), bytes), libc::EFAULT);
            fails(libc::recv(from, at.cast(), bytes, 0), if bytes == 1 << 47 { libc::ENOTSOCK } else { libc::EFAULT });
        }
        let address = wild();
        fails(libc::read(from, address.cast(), 10), libc::EFAULT);
        fails(libc::write(to, address.cast(), 10), libc::EFAULT);
        fails(libc::fstat(from, address.cast()) as isize, libc::EFAULT);
        fails(libc::open(address.cast(), 0) as isize, libc::EFAULT);
        fails(libc::readv(from, [buffer(address, 10)].as_ptr(), 1), libc::EFAULT);
        fails(libc::readv(from, address.cast(), 1), libc::EFAULT);
        // Bad private ones, which our handler looks at before the kernel does.
        fails(libc::syscall(libc::SYS_readv, from, 16, 1) as isize, libc::EFAULT);
        fails(libc::syscall(libc::SYS_sendmsg, from, 16, 0) as isize, libc::EFAULT);
        fails(libc::syscall(libc::SYS_readv, from, [buffer(at, 10)].as_ptr(), 5000) as isize, libc::EINVAL);
        fails(libc::readv(from, [buffer(at, usize::MAX), buffer(at, usize::MAX)].as_ptr(), 2), libc::EINVAL);
        fails(libc::getsockname(from, at.cast(), wild().cast()) as isize, libc::EFAULT);
        assert_eq!(got(from), b"kept", "no failed read took anything");
        // Over the end of all memory: as much as there is.
        let end = last_page().add(PAGE - 6);
        libc::memcpy(end.cast(), c"ending".as_ptr().cast(), 6);
        take_away(last_page() as usize, PAGE);
        assert_eq!(libc::write(to, end.cast(), 100), 6);
        assert_eq!(got(from), b"ending");
        // Of two good pages asked for as nothing, nothing.
        assert_eq!(libc::read(from, at.cast(), 0), 0);
        assert_eq!(content(at, PAGE), [0; PAGE]);
    });
}

fn text(text: &str) -> *mut libc::c_char {
    let text = CString::new(text).unwrap();
    holding(text.as_bytes_with_nul()).cast()
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

#[test]
fn a_mask_and_a_signal_stack_given_in_shared_memory_last() {
    alone("a_mask_and_a_signal_stack_given_in_shared_memory_last", || unsafe {
        let set = holding_value(1_u64 << (libc::SIGUSR2 - 1));
        let old = missing(8).cast::<u64>();
        let mask = |how: i32, new: *const u64, old: *mut u64| libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, 8);
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

#[test]
fn rights_that_others_take_away_all_the_time_lose_nothing() {
    alone("rights_that_others_take_away_all_the_time_lose_nothing", || {
        const BYTES: usize = 3 * PAGE;
        let is_over = AtomicBool::new(false);
        let areas: Vec<usize> = (0..6).map(|_| missing(BYTES) as usize).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for (index, area) in areas.iter().enumerate() {
                        let protection = if index % 2 == 0 { libc::PROT_NONE } else { libc::PROT_READ };
                        protect(*area, BYTES, protection);
                    }
                }
            });
            let workers = (0..3_usize).map(|worker| {
                let areas = (areas[worker], areas[worker + 3]);
                scope.spawn(move || {
                    let (from, into) = (areas.0 as *mut u8, areas.1 as *mut u8);
                    let [a, b] = sockets(libc::SOCK_DGRAM);
                    for round in 0..400_u32 {
                        let sent: Vec<u8> = (0..BYTES).map(|i| (i as u32 * 7 + round) as u8).collect();
                        unsafe {
                            std::ptr::copy_nonoverlapping(sent.as_ptr(), from, BYTES);
                            assert_eq!(libc::send(a, from.cast(), BYTES, 0), BYTES as isize);
                            let array = [buffer(into, 100), buffer(into.add(100), BYTES - 100)];
                            assert_eq!(libc::readv(b, array.as_ptr(), 2), BYTES as isize);
                        }
                        assert!(content(into, BYTES) == sent, "round {round}");
                    }
                })
            });
            let workers: Vec<_> = workers.collect();
            for worker in workers {
                worker.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let _ = std::io::stdout().flush();
    });
}
