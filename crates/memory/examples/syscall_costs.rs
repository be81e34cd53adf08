//! What covered system calls cost: those that are not stopped, before and after, and those that are. Compare within one
//! run: `cargo run --release -p comb-memory --example syscall_costs`
#![expect(unsafe_code, reason = "system calls on raw memory are what is measured")]

use std::time::Instant;

use comb_memory::syscalls::{self, Hooks, SHARED};

const ROUNDS: u32 = 20_000;
const REPEATS: usize = 9;

fn main() {
    let shared = shared_memory();
    let calls = Calls::new(shared);
    let quiet: Vec<f64> = calls.all().iter().map(|(_, call)| nanoseconds(call.as_ref())).collect();
    let coverage = syscalls::cover(Hooks::default()).expect("system calls can be covered here");
    println!("arrays of buffers and messages covered: {}", coverage.vectored);
    println!("{:44} {:>8} {:>8} {:>8}", "nanoseconds a call", "before", "after", "more");
    for ((name, call), before) in calls.all().iter().zip(quiet) {
        let after = nanoseconds(call.as_ref());
        println!("{name:44} {before:8.0} {after:8.0} {:8.0}", after - before);
    }
}

/// Present and free to use: what is measured is the call, not the fault.
fn shared_memory() -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_POPULATE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that is nobody's.
    let at = unsafe { libc::mmap(SHARED.start as *mut _, 2 << 20, protection, flags, -1, 0) };
    assert_eq!(at as usize, SHARED.start);
    at.cast()
}

type Named<'a> = (&'static str, Box<dyn Fn() + 'a>);

struct Calls {
    file: i32,
    sockets: [i32; 2],
    private: *mut u8,
    shared: *mut u8,
}

impl Calls {
    fn new(shared: *mut u8) -> Self {
        let mut sockets = [0; 2];
        // SAFETY: plain calls on what is there.
        let file = unsafe {
            libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, sockets.as_mut_ptr());
            libc::memfd_create(c"file".as_ptr(), 0)
        };
        let private = Box::leak(vec![1_u8; 1 << 20].into_boxed_slice()).as_mut_ptr();
        // SAFETY: as above.
        unsafe { libc::pwrite(file, private.cast(), 1 << 20, 0) };
        Self { file, sockets, private, shared }
    }

    fn all(&self) -> Vec<Named<'_>> {
        vec![
            ("getppid: no address", Box::new(|| self.ask())),
            ("pread of 8 B, private", Box::new(|| self.read(self.private, 8))),
            ("pread of 8 B, shared", Box::new(|| self.read(self.shared, 8))),
            ("pread of 4 KB, private", Box::new(|| self.read(self.private, 4096))),
            ("pread of 4 KB, shared", Box::new(|| self.read(self.shared, 4096))),
            ("pread of 64 KB, private", Box::new(|| self.read(self.private, 65536))),
            ("pread of 64 KB, shared", Box::new(|| self.read(self.shared, 65536))),
            ("pread of 1 MB, private", Box::new(|| self.read(self.private, 1 << 20))),
            ("pread of 1 MB, shared", Box::new(|| self.read(self.shared, 1 << 20))),
            ("preadv of one 8 B buffer, private", Box::new(|| self.read_vector(self.private))),
            ("preadv of one 8 B buffer, shared", Box::new(|| self.read_vector(self.shared))),
            ("sendmsg and recvmsg of 64 B, private", Box::new(|| self.message(self.private))),
            ("sendmsg and recvmsg of 64 B, shared", Box::new(|| self.message(self.shared))),
            ("the same by send and recv, private", Box::new(|| self.datagram(self.private))),
        ]
    }

    fn ask(&self) {
        // SAFETY: asks.
        unsafe { libc::getppid() };
    }

    fn read(&self, into: *mut u8, bytes: usize) {
        // SAFETY: as much as there is.
        let count = unsafe { libc::pread(self.file, into.cast(), bytes, 0) };
        assert_eq!(count.cast_unsigned(), bytes);
    }

    fn read_vector(&self, into: *mut u8) {
        let buffer = libc::iovec { iov_base: into.cast(), iov_len: 8 };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::preadv(self.file, &raw const buffer, 1, 0) }, 8);
    }

    fn message(&self, at: *mut u8) {
        let mut buffer = libc::iovec { iov_base: at.cast(), iov_len: 64 };
        // SAFETY: a message without address and control data, and 64 bytes that are there.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut buffer;
            message.msg_iovlen = 1;
            assert_eq!(libc::sendmsg(self.sockets[0], &raw const message, 0), 64);
            assert_eq!(libc::recvmsg(self.sockets[1], &raw mut message, 0), 64);
        }
    }

    fn datagram(&self, at: *mut u8) {
        // SAFETY: as above.
        unsafe {
            assert_eq!(libc::send(self.sockets[0], at.cast(), 64, 0), 64);
            assert_eq!(libc::recv(self.sockets[1], at.cast(), 64, 0), 64);
        }
    }
}

/// Of the quickest of some runs, for others use this machine, too.
fn nanoseconds(call: &dyn Fn()) -> f64 {
    let run = |rounds: u32| {
        let start = Instant::now();
        for _ in 0..rounds {
            call();
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
    };
    let rounds = if run(100) > 20_000.0 { ROUNDS / 20 } else { ROUNDS };
    (0..REPEATS).map(|_| run(rounds)).fold(f64::INFINITY, f64::min)
}
