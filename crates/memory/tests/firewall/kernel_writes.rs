//! Stores by the kernel, on a program's behalf.

use crate::parties::{EMPTY, GRANTED, HIDDEN, Importer, Line, SHOWN, WILD, between, error, from_late_code};

const CLOSED: [u64; 3] = [SHOWN, HIDDEN, EMPTY];

fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

fn one_byte_in_a_pipe() -> i32 {
    let [from, to] = pipe();
    // SAFETY: a byte.
    assert_eq!(unsafe { libc::write(to, [WILD].as_ptr().cast(), 1) }, 1);
    from
}

fn vector(place: *mut u8) -> libc::iovec {
    libc::iovec { iov_base: place.cast(), iov_len: 1 }
}

/// Writes to another process's memory, or its own.
fn written_by_name(place: *mut u8) -> i64 {
    let wild = [WILD];
    let (here, there) = (vector(wild.as_ptr().cast_mut()), vector(place));
    // SAFETY: a byte of ours, and what the kernel lets us write to.
    unsafe { libc::process_vm_writev(libc::getpid(), &raw const here, 1, &raw const there, 1, 0) as i64 }
}

/// Reads a file into memory, later.
fn read_by_aio(place: *mut u8) -> (i32, Option<i64>) {
    let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, &[WILD; 16]).unwrap();
    let mut queue = 0_usize;
    let mut event = [0_u64; 4];
    // An iocb: what it is for, what is done (0: read) and where from, the buffer, its length, the place in the file.
    let descriptor = u64::from(std::os::fd::AsRawFd::as_raw_fd(&file).cast_unsigned());
    let mut order = [7, 0, descriptor << 32, place as u64, 1, 0, 0, 0];
    let mut orders = [order.as_mut_ptr()];
    // SAFETY: structures as the kernel has them.
    unsafe {
        assert_eq!(error(libc::syscall(libc::SYS_io_setup, 8, &raw mut queue)), 0);
        let submitted = error(libc::syscall(libc::SYS_io_submit, queue, 1, orders.as_mut_ptr()));
        if submitted != 0 {
            return (submitted, None);
        }
        let got = libc::syscall(libc::SYS_io_getevents, queue, 1, 1, event.as_mut_ptr(), 0);
        assert_eq!(got, 1);
    }
    (0, Some(event[2].cast_signed()))
}

/// Without a filter: what the kernel does by itself with pages that were not granted.
#[test]
fn no_system_call_writes_where_nothing_was_granted() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        for page in CLOSED {
            let place = importer.place(page);
            let from = one_byte_in_a_pipe();
            // SAFETY: what the kernel lets us write to.
            unsafe {
                assert_eq!(error(libc::read(from, place.cast(), 1) as i64), libc::EFAULT);
                let vector = vector(place);
                assert_eq!(error(libc::readv(from, &raw const vector, 1) as i64), libc::EFAULT);
                // Out of a pipe, into memory.
                assert_eq!(error(libc::vmsplice(from, &raw const vector, 1, 0) as i64), libc::EFAULT);
            }
            assert_eq!(error(written_by_name(place)), libc::EFAULT);
            let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
            assert!(std::os::unix::fs::FileExt::write_at(&memory, &[WILD], place as u64).is_err());
            assert_eq!(read_by_aio(place), (0, Some(-i64::from(libc::EFAULT))));
        }
        assert_eq!(written_by_name(importer.place(GRANTED)), 1);
        importer.is_held();
        importer.has_tried();
    };
    between(
        "kernel_writes::no_system_call_writes_where_nothing_was_granted",
        |home| {
            home.usual();
            home.when_it_has_tried();
            assert_eq!(home.byte(GRANTED), WILD);
        },
        importer,
    );
}

/// Its own child, as a debugger.
#[test]
fn no_debugger_writes_where_nothing_was_granted() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        let places = CLOSED.map(|page| importer.page(page));
        // SAFETY: the child calls the kernel and nothing else.
        unsafe {
            libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
            let parent = libc::gettid();
            let child = libc::fork();
            if child == 0 {
                let nothing = std::ptr::null_mut::<libc::c_void>();
                let attached = libc::ptrace(libc::PTRACE_ATTACH, parent, nothing, nothing) == 0
                    && libc::waitpid(parent, std::ptr::null_mut(), libc::__WALL) == parent;
                let word = usize::from_ne_bytes([WILD; 8]) as *mut libc::c_void;
                let all_failed = places
                    .iter()
                    .all(|place| libc::ptrace(libc::PTRACE_POKEDATA, parent, *place, word) == -1);
                libc::ptrace(libc::PTRACE_DETACH, parent, nothing, nothing);
                libc::_exit(if attached { i32::from(!all_failed) } else { 2 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(libc::WEXITSTATUS(status), 0, "2: it could not attach");
        }
        importer.is_held();
        importer.has_tried();
    };
    between(
        "kernel_writes::no_debugger_writes_where_nothing_was_granted",
        |home| {
            home.usual();
            home.when_it_has_tried();
        },
        importer,
    );
}

/// What a plain call would write is stored by the thread itself, which is stopped like any other.
#[test]
fn a_covered_call_stores_as_its_thread_does() {
    let importer = |line: Line| {
        let importer = Importer::covered(line);
        for page in CLOSED {
            let place = importer.place(page);
            let from = one_byte_in_a_pipe();
            // SAFETY: what the kernel lets us write to.
            unsafe {
                assert_eq!(error(libc::read(from, place.cast(), 1) as i64), libc::EFAULT);
                let vector = vector(place);
                assert_eq!(error(libc::readv(from, &raw const vector, 1) as i64), libc::EFAULT);
                let mut address = std::mem::zeroed::<libc::sockaddr>();
                let mut length = 16_u32;
                let socket = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
                assert_ne!(
                    error(libc::recvfrom(
                        socket,
                        place.cast(),
                        1,
                        libc::MSG_DONTWAIT,
                        &raw mut address,
                        &raw mut length
                    ) as i64),
                    0
                );
                libc::close(socket);
            }
        }
        let from = one_byte_in_a_pipe();
        // SAFETY: as above.
        assert_eq!(unsafe { libc::read(from, importer.place(GRANTED).cast(), 1) }, 1);
        importer.is_held();
        importer.has_tried();
    };
    between(
        "kernel_writes::a_covered_call_stores_as_its_thread_does",
        |home| {
            home.usual();
            home.when_it_has_tried();
            assert_eq!(home.byte(GRANTED), WILD);
        },
        importer,
    );
}

/// Transfers that hold on to pages: what they write comes whenever it comes, also after a revoke.
#[test]
fn no_transfer_holds_on_to_a_page() {
    let importer = |line: Line| {
        let importer = Importer::covered(line);
        for page in [SHOWN, GRANTED] {
            let place = importer.place(page);
            let [from, to] = pipe();
            let vector = vector(place);
            // SAFETY: what the kernel lets us write to.
            unsafe {
                for (end, flags) in [(to, 0), (to, libc::SPLICE_F_GIFT), (from, 0)] {
                    let spliced = libc::vmsplice(end, &raw const vector, 1, flags);
                    assert_eq!(error(spliced as i64), libc::EPERM);
                }
                let mut kept = [0; 1];
                libc::fcntl(from, libc::F_SETFL, libc::O_NONBLOCK);
                assert_eq!(error(libc::read(from, kept.as_mut_ptr().cast(), 1) as i64), libc::EAGAIN);
            }
            assert_eq!(error(written_by_name(place)), libc::EPERM);
            assert_eq!(read_by_aio(place), (libc::EPERM, None));
        }
        importer.has_tried();
    };
    between(
        "kernel_writes::no_transfer_holds_on_to_a_page",
        |home| {
            home.usual();
            home.when_it_has_tried();
            assert_eq!(home.byte(GRANTED), 12, "not even there");
        },
        importer,
    );
}

/// Rings of requests go on writing to what was registered, whatever was revoked since: there are none.
#[test]
fn no_ring_writes_after_a_revoke() {
    let importer = |line: Line| {
        let importer = Importer::covered(line);
        assert!(importer.stores(GRANTED));
        let ring = crate::ring::Ring::with_buffer(importer.page(GRANTED), 4096);
        importer.has_tried();
        importer.line.expect("revoked");
        if let Ok(ring) = &ring {
            ring.read_into_buffer(one_byte_in_a_pipe(), importer.place(GRANTED));
        }
        importer.has_tried();
        // Nor has code that came later one.
        let parameters = [0_u8; 120];
        let late = from_late_code(libc::SYS_io_uring_setup, [8, parameters.as_ptr() as usize, 0, 0, 0, 0]);
        assert_eq!(late, -(libc::ENOSYS as isize));
        for number in [libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
            assert_eq!(from_late_code(number, [1, 1, 0, 0, 0, 0]), -(libc::ENOSYS as isize));
        }
        assert_eq!(ring.err(), Some(libc::ENOSYS));
    };
    between(
        "kernel_writes::no_ring_writes_after_a_revoke",
        |home| {
            home.usual();
            home.when_it_has_tried();
            home.exports.revoke(&crate::parties::range(GRANTED));
            home.put(GRANTED, 12);
            home.importer.say("revoked");
            home.when_it_has_tried();
            assert_eq!(home.byte(GRANTED), 12);
        },
        importer,
    );
}

/// Nor is there one that was there before: its process's calls cannot be covered, which its caller is told.
#[test]
fn who_has_a_ring_already_is_told_so() {
    let importer = |line: Line| {
        let mut private = vec![0_u8; 8192];
        let page = private.as_mut_ptr().wrapping_add(private.as_ptr().align_offset(4096));
        let ring = crate::ring::Ring::with_buffer(page, 4096).expect("nothing is covered yet");
        ring.read_into_buffer(one_byte_in_a_pipe(), page);
        // SAFETY: of the vector.
        assert_eq!(unsafe { page.read_volatile() }, WILD, "rings are used as they are to be");
        let covered = comb_memory::syscalls::cover(comb_memory::syscalls::Hooks::default());
        assert!(matches!(covered, Err(comb_memory::syscalls::CoverError::IoUring)), "{covered:?}");
        line.say("tried");
    };
    between(
        "kernel_writes::who_has_a_ring_already_is_told_so",
        |home| home.importer.expect("tried"),
        importer,
    );
}
