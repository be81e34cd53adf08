//! Bytes in and out: files, pipes, sockets, messages.
#![expect(unsafe_code, reason = "system calls on raw memory are what is tested")]
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "each is a system call as a C program makes it, on memory of the test's own or deliberately on none"
)]
#![expect(clippy::cast_possible_truncation, reason = "system calls' own types, of one machine")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use super::calls::*;
use super::guarded::*;

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
        assert_eq!(
            unsafe { libc::pread(stored, back.as_mut_ptr().cast(), back.len(), 3) },
            5 * PAGE as isize
        );
        assert_eq!(back, sent);
    });
}

#[test]
fn arrays_of_buffers_mix_private_and_shared() {
    alone("arrays_of_buffers_mix_private_and_shared", || {
        let sent = pattern(PAGE + 20);
        let mut private = sent[..10].to_vec();
        let shared = holding(&sent[10..PAGE + 10]);
        let mut tail = sent[PAGE + 10..].to_vec();
        let gather = [buffer(private.as_mut_ptr(), 10), buffer(shared, PAGE), buffer(tail.as_mut_ptr(), 10)];
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
        let (a, b) = (
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
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
            fails(
                libc::recv(from, at.cast(), bytes, 0),
                if bytes == 1 << 47 { libc::ENOTSOCK } else { libc::EFAULT },
            );
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
    });
}
