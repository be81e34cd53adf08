//! What the host's kernel lets pass of a space's system calls. All others become signals.

use std::ops::Range;

use libc::{sock_filter as Instruction, sock_fprog};

use super::layout::CONSTANTS;

/// Where the two filters are described.
pub(crate) const MAPPER_PROGRAM: u64 = CONSTANTS;
pub(crate) const THREAD_PROGRAM: u64 = CONSTANTS + 16;
/// And where they are.
const MAPPER_FILTER: u64 = CONSTANTS + 64;
const THREAD_FILTER: u64 = CONSTANTS + 2048;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const TRAP: u32 = 0x0003_0000;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const INSTRUCTION: u32 = 8;
const ARGUMENTS: u32 = 16;
const X86_64: u32 = 0xc000_003e;

/// What mappers are told to do, and what makes a mapper or a thread of a program out of a new one.
const OF_MAPPER: &[libc::c_long] = &[
    libc::SYS_futex,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_clone,
    libc::SYS_prctl,
    libc::SYS_getppid,
    libc::SYS_userfaultfd,
    libc::SYS_ioctl,
    libc::SYS_sigaltstack,
    libc::SYS_close_range,
    libc::SYS_seccomp,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What waiting, going on and ending take.
const OF_THREADS: &[libc::c_long] = &[libc::SYS_futex, libc::SYS_rt_sigreturn, libc::SYS_exit];

const fn instruction(code: u16, value: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k: value }
}

/// Lets pass what has one of these numbers and comes from there.
fn filter(numbers: &[libc::c_long], from: Range<u64>) -> Vec<Instruction> {
    let half = |half: u64| u32::try_from(half).expect("half of an address");
    let [upper, lower] = [half(from.start >> 32), half(from.start & 0xffff_ffff)];
    let length = half(from.end - from.start);
    // What comes after a call's instruction is where it says that it comes from.
    let checks = [
        (instruction(LOAD, ARCHITECTURE), None),
        (instruction(IF_EQUAL, X86_64), Some(true)),
        (instruction(LOAD, INSTRUCTION + 4), None),
        (instruction(IF_EQUAL, upper), Some(true)),
        (instruction(LOAD, INSTRUCTION), None),
        (instruction(IF_AT_LEAST, lower), Some(true)),
        (instruction(IF_AT_LEAST, lower + length + 1), Some(false)),
        (instruction(LOAD, NUMBER), None),
    ];
    let mut program: Vec<Instruction> = Vec::new();
    // The last but one traps, the last allows.
    let end = checks.len() + numbers.len();
    for (mut instruction, is_to_hold) in checks {
        let to_trap = u8::try_from(end - program.len() - 1).expect("a short filter");
        match is_to_hold {
            Some(true) => instruction.jf = to_trap,
            Some(false) => instruction.jt = to_trap,
            None => {}
        }
        program.push(instruction);
    }
    for &number in numbers {
        let to_allow = u8::try_from(end - program.len()).expect("a short filter");
        let number = u32::try_from(number).expect("system calls have small numbers");
        program.push(Instruction { jt: to_allow, ..instruction(IF_EQUAL, number) });
    }
    program.push(instruction(RETURN, TRAP));
    program.push(instruction(RETURN, ALLOW));
    program
}

/// Of futexes, programs' threads wait and wake, and nothing else.
fn filter_of_threads(from: Range<u64>) -> Vec<Instruction> {
    let mut program = filter(OF_THREADS, from);
    let allow = program.pop().expect("it ends with that");
    let trap = program.pop().expect("and before that with the other");
    // The first of the numbers is a futex's: looked at further.
    let futex = program.len() - OF_THREADS.len();
    let further = u8::try_from(program.len() + 2 - futex - 1).expect("a short filter");
    program[futex].jt = further;
    program.extend([trap, allow, instruction(LOAD, ARGUMENTS + 8)]);
    program.push(Instruction { jt: 0, jf: 1, ..instruction(IF_AT_LEAST, 2) });
    program.extend([trap, allow]);
    program
}

fn bytes_of(program: &[Instruction]) -> Vec<u8> {
    program
        .iter()
        .flat_map(|one| {
            let [low, high] = one.code.to_le_bytes();
            let [a, b, c, d] = one.k.to_le_bytes();
            [low, high, one.jt, one.jf, a, b, c, d]
        })
        .collect()
}

/// The page that the code reads: the two filters, described as the host's kernel wants them.
pub(super) fn constants(own: Range<u64>, threads: Range<u64>) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut put = |address: u64, bytes: &[u8]| {
        let at = usize::try_from(address - CONSTANTS).expect("within the page");
        page[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let both = [
        (MAPPER_PROGRAM, MAPPER_FILTER, filter(OF_MAPPER, own)),
        (THREAD_PROGRAM, THREAD_FILTER, filter_of_threads(threads)),
    ];
    for (description, place, program) in both {
        const _: () = assert!(size_of::<sock_fprog>() == 16);
        put(description, &(program.len() as u64).to_le_bytes());
        put(description + 8, &place.to_le_bytes());
        put(place, &bytes_of(&program));
    }
    page
}
