//! The program on the interface: our port's datagrams to the socket, everything else to the kernel. Instructions by hand
//! and three kinds of system call; nothing is compiled and nothing is left behind.
#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::Attach;

/// An attached program. The kernel detaches it when the link's descriptor is closed, by us or by our end.
#[derive(Debug)]
pub(super) struct Program {
    _link: OwnedFd,
    _program: OwnedFd,
    _sockets: OwnedFd,
}

/// Which step failed, and why.
type Failure = (&'static str, Errno);

// linux/bpf.h
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const FUNC_REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
// linux/if_link.h
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_DRIVER: u32 = 1 << 2;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

impl Program {
    /// From now on datagrams to `port` that come in by queue 0 go to `socket`.
    pub(super) fn attach(
        interface: u32,
        port: u16,
        socket: BorrowedFd<'_>,
        attach: Attach,
    ) -> Result<Self, Failure> {
        let name_step = |step| move |error| (step, error);
        let map = MapCreate { map_type: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: 1 };
        let sockets = descriptor(bpf(MAP_CREATE, &map)).map_err(name_step("a map of sockets"))?;
        let (key, value) = (0_u32, socket.as_raw_fd());
        let update = MapUpdate {
            map: number(&sockets),
            padding: 0,
            key: std::ptr::from_ref(&key) as u64,
            value: std::ptr::from_ref(&value) as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE_ELEM, &update).map_err(name_step("the socket into the map"))?;

        let instructions = instructions(port, sockets.as_raw_fd());
        let load = ProgLoad {
            prog_type: PROG_TYPE_XDP,
            instructions: u32::try_from(instructions.len()).expect("a few"),
            program: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: *b"comb_port\0\0\0\0\0\0\0",
            interface: 0,
            expected_attach_type: ATTACH_TYPE_XDP,
        };
        let program = descriptor(bpf(PROG_LOAD, &load)).map_err(name_step("loading the program"))?;
        let link = LinkCreate {
            program: number(&program),
            interface,
            attach_type: ATTACH_TYPE_XDP,
            flags: match attach {
                Attach::Generic => FLAG_GENERIC,
                Attach::Driver => FLAG_DRIVER,
            },
        };
        let link = descriptor(bpf(LINK_CREATE, &link)).map_err(name_step("attaching to the interface"))?;
        Ok(Self { _link: link, _program: program, _sockets: sockets })
    }
}

fn number(descriptor: &OwnedFd) -> u32 {
    u32::try_from(descriptor.as_raw_fd()).expect("descriptors are not negative")
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> Result<RawFd, Errno> {
    // SAFETY: `attributes` is the structure that `command` takes, whole and of the length that we say; the addresses in
    // it are of values that outlive the call. The kernel keeps nothing of it.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    RawFd::try_from(result).map_err(|_| Errno::OVERFLOW)
}

fn descriptor(result: Result<RawFd, Errno>) -> Result<OwnedFd, Errno> {
    // SAFETY: the commands that make something return a new descriptor, which nobody else has.
    result.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One instruction: operation, registers, jump or memory offset, constant.
fn op(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let [o0, o1] = offset.to_le_bytes();
    let [c0, c1, c2, c3] = constant.to_le_bytes();
    u64::from_ne_bytes([code, to | from << 4, o0, o1, c0, c1, c2, c3])
}

// Operation codes: class, size, mode.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_MAP: u8 = 0x18;
const MOVE: u8 = 0xbf;
const SET: u8 = 0xb7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const UNLESS_EQUAL: u8 = 0x55;
const IF_GREATER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The constant of `LOAD_MAP` is a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;

/// As the CPU loads two bytes that stand in network order.
fn network(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// Offsets within a packet: Ethernet, IPv4 without options, UDP.
fn instructions(port: u16, sockets: RawFd) -> Vec<u64> {
    let start = vec![
        op(LOAD_WORD, 2, 1, 0, 0),  // r2 = the packet
        op(LOAD_WORD, 3, 1, 4, 0),  // r3 = its end
        op(LOAD_WORD, 6, 1, 16, 0), // r6 = the queue that it came by
        op(MOVE, 4, 2, 0, 0),
        op(ADD, 4, 0, 0, 42),
    ];
    // What must hold for a packet to be ours; each check jumps to the end if it does not.
    let checks: &[&[u64]] = &[
        &[op(IF_GREATER, 4, 3, 0, 0)],
        &[op(LOAD_HALF, 5, 2, 12, 0), op(UNLESS_EQUAL, 5, 0, 0, network(0x0800))],
        &[op(LOAD_BYTE, 5, 2, 14, 0), op(UNLESS_EQUAL, 5, 0, 0, 0x45)],
        // More fragments, or an offset: no part of a datagram is a datagram.
        &[op(LOAD_HALF, 5, 2, 20, 0), op(AND, 5, 0, 0, network(0x3fff)), op(UNLESS_EQUAL, 5, 0, 0, 0)],
        &[op(LOAD_BYTE, 5, 2, 23, 0), op(UNLESS_EQUAL, 5, 0, 0, 17)],
        &[op(LOAD_HALF, 5, 2, 36, 0), op(UNLESS_EQUAL, 5, 0, 0, network(port))],
        &[op(UNLESS_EQUAL, 6, 0, 0, 0)],
    ];
    // redirect_map(sockets, queue, pass if there is none)
    let redirect = vec![
        op(LOAD_MAP, 1, MAP_DESCRIPTOR, 0, sockets),
        op(0, 0, 0, 0, 0), // the upper half of the constant
        op(MOVE, 2, 6, 0, 0),
        op(SET, 3, 0, 0, XDP_PASS),
        op(CALL, 0, 0, 0, FUNC_REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
    ];
    let pass = vec![op(SET, 0, 0, 0, XDP_PASS), op(EXIT, 0, 0, 0, 0)];

    let pass_at = start.len() + checks.iter().map(|check| check.len()).sum::<usize>() + redirect.len();
    let mut all = start;
    for check in checks {
        let (jump, before) = check.split_last().expect("each check ends with its jump");
        all.extend(before);
        let distance = i64::try_from(pass_at - all.len() - 1).expect("a few");
        all.push(jump | u64::from_le_bytes((distance << 16).to_le_bytes()));
    }
    all.extend(redirect);
    all.extend(pass);
    all
}
