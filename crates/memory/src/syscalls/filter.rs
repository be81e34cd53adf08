//! The filter, as instructions of the kernel's little machine.
//!
//! Calls without addresses are let through by their number alone, which the kernel remembers in a bitmap. Of the others, the upper
//! halves of those arguments are looked at that are addresses. Only what is found there is then asked where it comes from: code
//! of this process, as it was mapped when the filter was made, is stopped; a program that this one started has its code elsewhere, has
//! no handler, and must not be.

use std::ops::Range;

use libc::sock_filter as Instruction;

use super::futex;
use super::ranges::Code;
use super::table::{self, Look};

/// Comes with the signal, and tells our stops from those of a program's own filter.
pub(super) const OURS: u16 = 0xc0b;

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const SUBTRACT: u16 = 0x14;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const STOP: u32 = 0x0003_0000 | OURS as u32;
const REFUSE: u32 = 0x0005_0000 | libc::ENOSYS as u32;
const FORBID: u32 = 0x0005_0000 | libc::EPERM as u32;

/// What imported memory must not be told, whoever says it: that children have it too, without its guard; and that its frames are given back, which
/// are another's. Nobody here says either.
pub(super) const FORBIDDEN_ADVICE: [u32; 2] =
    [libc::MADV_DOFORK.cast_unsigned(), libc::MADV_REMOVE.cast_unsigned()];

/// Of requests to devices, the second byte says to which kind. This is userfaultfd's.
const KIND_OF_REQUEST: u32 = 0xff00;
const USERFAULTFD_REQUEST: u32 = 0xaa00;

/// Where things stand in what the machine sees.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const INSTRUCTION: u32 = 8;
const ARGUMENTS: u32 = 16;
const UPPER: u32 = 4;

/// How many instructions look at one argument.
const LOOK_LENGTH: u8 = 4;

const X86_64: u32 = 0xc000_003e;
/// Calls of the 32-bit ABI in 64-bit programs.
const X32: u32 = 0x4000_0000;

/// Whether a request to a device is one to a userfaultfd.
#[expect(clippy::cast_possible_truncation, reason = "requests are 32 bits")]
pub(super) fn is_userfaultfds(request: usize) -> bool {
    request as u32 & KIND_OF_REQUEST == USERFAULTFD_REQUEST
}

/// What is done at the end of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Look(Look),
    /// Stop if it comes from this process's code.
    Covered,
    /// The same, of code whose address no other process has.
    OwnCovered,
    RefuseRing,
    /// Stop it if it comes from this process's code, and refuse it otherwise: code that came later, or that no file contains, is not known to be ours.
    Forbid,
}

/// A place to jump to, known later.
type Hole = (usize, Then);

struct Program {
    code: Vec<Instruction>,
    holes: Vec<Hole>,
}

/// The filter of a process with this code.
pub(super) fn program(shared: &Range<usize>, code: &[Code]) -> Vec<Instruction> {
    let runs = runs();
    let mut program = Program { code: Vec::new(), holes: Vec::new() };
    program.emit(LOAD, ARCHITECTURE);
    program.branch(IF_EQUAL, X86_64, 4, 0);
    // Programs of 32 bits have the same number for it, and addresses that cannot be shared.
    program.emit(LOAD, NUMBER);
    program.branch(IF_EQUAL, number(libc::SYS_io_uring_setup), 0, 1);
    program.emit(RETURN, REFUSE);
    program.emit(RETURN, ALLOW);
    program.emit(LOAD, NUMBER);
    program.choose(&runs);
    let mut looks: Vec<Look> = runs.iter().map(|&(_, look)| look).collect();
    looks.sort_by_key(|look| format!("{look:?}"));
    looks.dedup();
    for look in looks {
        program.land(Then::Look(look));
        program.look(look, shared);
    }
    for (then, otherwise) in [
        (Then::Covered, ALLOW),
        (Then::OwnCovered, ALLOW),
        (Then::RefuseRing, REFUSE),
        (Then::Forbid, FORBID),
    ] {
        program.land(then);
        if then == Then::Forbid {
            program.comes_from_us();
        }
        let covers = |code: &&Code| then != Then::OwnCovered || code.is_own;
        program.comes_from(code.iter().filter(covers));
        program.emit(RETURN, otherwise);
    }
    debug_assert!(program.holes.is_empty());
    program.code
}

/// From which number on how is looked.
fn runs() -> Vec<(u32, Look)> {
    let mut runs: Vec<(u32, Look)> = Vec::new();
    let ring = X32 | number(libc::SYS_io_uring_setup);
    let known =
        (0..number(table::NUMBERS as libc::c_long)).map(|number| (number, table::look(number as usize)));
    let others = [
        (number(table::NUMBERS as libc::c_long), table::UNKNOWN),
        (ring, Look::Ring),
        (ring + 1, table::UNKNOWN),
    ];
    for (number, look) in known.chain(others) {
        if runs.last().is_none_or(|&(_, last)| last != look) {
            runs.push((number, look));
        }
    }
    runs
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of system calls are small"
)]
const fn number(number: libc::c_long) -> u32 {
    number as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
const fn halves(address: usize) -> (u32, u32) {
    ((address >> 32) as u32, address as u32)
}

impl Program {
    fn emit(&mut self, code: u16, k: u32) {
        self.branch(code, k, 0, 0);
    }

    fn branch(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.code.push(Instruction { code, jt, jf, k });
    }

    fn jump_to(&mut self, then: Then) {
        self.holes.push((self.code.len(), then));
        self.emit(JUMP, 0);
    }

    /// What comes next is what jumps to `then` meant.
    fn land(&mut self, then: Then) {
        let here = self.code.len();
        let (meant, others) = self.holes.iter().partition(|(_, hole)| *hole == then);
        self.holes = others;
        let meant: Vec<Hole> = meant;
        for (from, _) in meant {
            self.code[from].k = distance(from, here);
        }
    }

    /// Halves the runs until one is left. The number is in the machine's register.
    fn choose(&mut self, runs: &[(u32, Look)]) {
        let [(_, look)] = runs else {
            let (lower, upper) = runs.split_at(runs.len() / 2);
            self.branch(IF_AT_LEAST, upper[0].0, 0, 1);
            let from = self.code.len();
            self.emit(JUMP, 0);
            self.choose(lower);
            self.code[from].k = distance(from, self.code.len());
            return self.choose(upper);
        };
        self.jump_to(Then::Look(*look));
    }

    fn look(&mut self, look: Look, shared: &Range<usize>) {
        match look {
            Look::Always => self.jump_to(Then::OwnCovered),
            Look::Ring => self.jump_to(Then::RefuseRing),
            Look::SignalAction | Look::SignalMask => {
                if look == Look::SignalMask {
                    // What unblocks signals does no harm.
                    self.emit(LOAD, ARGUMENTS);
                    self.branch(IF_EQUAL, libc::SIG_UNBLOCK.cast_unsigned(), 5, 0);
                }
                // Two halves that are zero: a question.
                self.emit(LOAD, ARGUMENTS + 8);
                self.branch(IF_EQUAL, 0, 0, 2);
                self.emit(LOAD, ARGUMENTS + 8 + UPPER);
                self.branch(IF_EQUAL, 0, 1, 0);
                self.jump_to(Then::OwnCovered);
                self.look_at_arguments(0b110, shared);
            }
            Look::Arguments(mask) => self.look_at_arguments(mask, shared),
            Look::Advice => {
                self.emit(LOAD, ARGUMENTS + 8 * 2);
                self.branch(IF_EQUAL, FORBIDDEN_ADVICE[0], 1, 0);
                self.branch(IF_EQUAL, FORBIDDEN_ADVICE[1], 0, 7);
                // What begins before shared memory may reach into it, if it is long.
                self.emit(LOAD, ARGUMENTS + UPPER);
                self.branch(IF_AT_LEAST, halves(shared.end).0, 4, 0);
                self.branch(IF_AT_LEAST, halves(shared.start).0, 2, 0);
                self.emit(LOAD, ARGUMENTS + 8 + UPPER);
                self.branch(IF_EQUAL, 0, 1, 0);
                self.jump_to(Then::Forbid);
                self.emit(RETURN, ALLOW);
                self.look_at_arguments(0b1, shared);
            }
            Look::AdviceVector => {
                self.emit(LOAD, ARGUMENTS + 8 * 3);
                self.branch(IF_EQUAL, FORBIDDEN_ADVICE[0], 1, 0);
                self.branch(IF_EQUAL, FORBIDDEN_ADVICE[1], 0, 1);
                self.jump_to(Then::Forbid);
                self.jump_to(Then::OwnCovered);
            }
            Look::Moved(mask) => {
                let (first, end) = (halves(shared.start).0, halves(shared.end).0);
                self.emit(LOAD, ARGUMENTS + UPPER);
                self.emit(SUBTRACT, first);
                self.branch(IF_AT_LEAST, end - first, 1, 0);
                self.jump_to(Then::Forbid);
                self.look_at_arguments(mask, shared);
            }
            Look::Control => {
                self.emit(LOAD, ARGUMENTS + 8);
                self.emit(AND, KIND_OF_REQUEST);
                self.branch(IF_EQUAL, USERFAULTFD_REQUEST, 0, 1);
                self.jump_to(Then::OwnCovered);
                self.look_at_arguments(0b100, shared);
            }
            Look::Futex => {
                self.look_at(0, shared);
                for (argument, operations) in [(3, futex::WAITS), (4, futex::HAS_SECOND_WORD)] {
                    self.emit(LOAD, ARGUMENTS + 8);
                    self.emit(AND, futex::OPERATION.cast_unsigned());
                    for (more, operation) in (0..5).rev().zip(operations) {
                        self.branch(
                            IF_EQUAL,
                            operation.cast_unsigned(),
                            more,
                            if more == 0 { LOOK_LENGTH } else { 0 },
                        );
                    }
                    self.look_at(argument, shared);
                }
                self.emit(RETURN, ALLOW);
            }
        }
    }

    fn look_at_arguments(&mut self, mask: u8, shared: &Range<usize>) {
        for argument in (0..6).filter(|argument| mask >> argument & 1 == 1) {
            self.look_at(argument, shared);
        }
        self.emit(RETURN, ALLOW);
    }

    /// `LOOK_LENGTH` instructions.
    fn look_at(&mut self, argument: u32, shared: &Range<usize>) {
        let (first, end) = (halves(shared.start).0, halves(shared.end).0);
        self.emit(LOAD, ARGUMENTS + 8 * argument + UPPER);
        self.emit(SUBTRACT, first);
        self.branch(IF_AT_LEAST, end - first, 1, 0);
        self.jump_to(Then::Covered);
    }

    /// Lets through what this crate does itself.
    fn comes_from_us(&mut self) {
        let stub = super::stub::PAGE;
        let ((upper, lower), end) = (halves(stub), halves(stub + super::stub::PAGE_BYTES).1);
        self.emit(LOAD, INSTRUCTION + UPPER);
        self.branch(IF_EQUAL, upper, 0, 4);
        self.emit(LOAD, INSTRUCTION);
        self.branch(IF_AT_LEAST, lower, 0, 2);
        self.branch(IF_AT_LEAST, end, 1, 0);
        self.emit(RETURN, ALLOW);
    }

    /// Stops what comes from that code.
    fn comes_from<'a>(&mut self, code: impl Iterator<Item = &'a Code>) {
        for code in code {
            // The machine compares 32 bits at a time.
            let last = code.range.end - 1;
            for upper in halves(code.range.start).0..=halves(last).0 {
                let is_first = upper == halves(code.range.start).0;
                let is_last = upper == halves(last).0;
                self.emit(LOAD, INSTRUCTION + UPPER);
                self.branch(IF_EQUAL, upper, 0, 4);
                self.emit(LOAD, INSTRUCTION);
                self.branch(IF_AT_LEAST, if is_first { halves(code.range.start).1 } else { 0 }, 0, 2);
                self.branch(IF_GREATER, if is_last { halves(last).1 } else { u32::MAX }, 1, 0);
                self.emit(RETURN, STOP);
            }
        }
    }
}

fn distance(from: usize, to: usize) -> u32 {
    u32::try_from(to - from - 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::SHARED;

    /// What the kernel would do.
    fn run(
        program: &[Instruction],
        architecture: u32,
        number: u32,
        instruction: usize,
        arguments: [usize; 6],
    ) -> u32 {
        let mut words = vec![number, architecture, halves(instruction).1, halves(instruction).0];
        for argument in arguments {
            words.extend([halves(argument).1, halves(argument).0]);
        }
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            let jump = |is_so: bool| usize::from(if is_so { jt } else { jf });
            at += 1;
            match code {
                LOAD => a = words[k as usize / 4],
                SUBTRACT => a = a.wrapping_sub(k),
                AND => a &= k,
                JUMP => at += k as usize,
                IF_EQUAL => at += jump(a == k),
                IF_GREATER => at += jump(a > k),
                IF_AT_LEAST => at += jump(a >= k),
                RETURN => return k,
                _ => panic!("no such instruction: {code:#x}"),
            }
        }
    }

    const PRIVATE: usize = 0x7fff_1234_5678;
    const HERE: usize = 0x7f00_ffff_fff0;
    const FIXED: usize = 0x40_1000;
    const ELSEWHERE: usize = 0x7f33_0000_0000;

    fn code() -> [Code; 2] {
        // The second one spans two borders of 4 GiB.
        [
            Code { range: 0x40_0000..0x50_0000, is_own: false },
            Code { range: 0x7f00_f000_0000..0x7f02_0000_1000, is_own: true },
        ]
    }

    fn verdict(number: libc::c_long, instruction: usize, arguments: [usize; 6]) -> u32 {
        run(&program(&SHARED, &code()), X86_64, super::number(number), instruction, arguments)
    }

    #[test]
    fn only_shared_addresses_of_covered_code_are_stopped() {
        let read = |instruction, address| {
            verdict(libc::SYS_read, instruction, [SHARED.start, address, SHARED.start, 0, 0, 0])
        };
        assert_eq!(read(HERE, PRIVATE), ALLOW, "descriptor and length are no addresses");
        assert_eq!(read(HERE, SHARED.start - 1), ALLOW);
        assert_eq!(read(HERE, SHARED.start), STOP);
        assert_eq!(read(HERE, SHARED.end - 1), STOP);
        assert_eq!(read(HERE, SHARED.end), ALLOW);
        assert_eq!(read(FIXED, SHARED.start), STOP);
        assert_eq!(read(ELSEWHERE, SHARED.start), ALLOW, "a started program's, or our own");
    }

    #[test]
    fn the_borders_of_code_are_exact() {
        for (instruction, expected) in [
            (0x7f00_efff_ffff, ALLOW),
            (0x7f00_f000_0000, STOP),
            (0x7f00_ffff_ffff, STOP),
            (0x7f01_0000_0000, STOP),
            (0x7f01_ffff_ffff, STOP),
            (0x7f02_0000_0fff, STOP),
            (0x7f02_0000_1000, ALLOW),
            (0x4f_ffff, STOP),
            (0x50_0000, ALLOW),
        ] {
            let found = verdict(libc::SYS_write, instruction, [1, SHARED.start + 5, 1, 0, 0, 0]);
            assert_eq!(found, expected, "{instruction:#x}");
        }
    }

    #[test]
    fn arrays_of_buffers_are_stopped_unseen_but_only_where_no_started_program_can_be() {
        assert_eq!(verdict(libc::SYS_writev, HERE, [1, PRIVATE, 2, 0, 0, 0]), STOP);
        assert_eq!(verdict(libc::SYS_writev, FIXED, [1, PRIVATE, 2, 0, 0, 0]), ALLOW);
        assert_eq!(verdict(libc::SYS_writev, ELSEWHERE, [1, PRIVATE, 2, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn rings_are_refused_everywhere() {
        let ring = libc::SYS_io_uring_setup;
        for ring in [ring, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
            assert_eq!(verdict(ring, HERE, [8, PRIVATE, 0, 0, 0, 0]), STOP, "for a message");
            assert_eq!(verdict(ring, ELSEWHERE, [8, PRIVATE, 0, 0, 0, 0]), REFUSE);
        }
        assert_eq!(verdict(ring | libc::c_long::from(X32), ELSEWHERE, [0; 6]), REFUSE);
        let of_32_bits = |number| run(&program(&SHARED, &code()), 0x4000_0003, number, 0, [0; 6]);
        assert_eq!(of_32_bits(425), REFUSE);
        assert_eq!(of_32_bits(3), ALLOW);
    }

    #[test]
    fn what_undoes_a_guard_is_refused_wherever_it_comes_from() {
        let stub = super::super::stub::PAGE + 2;
        for (advice, elsewhere) in
            [(libc::MADV_DOFORK, FORBID), (libc::MADV_REMOVE, FORBID), (libc::MADV_DONTNEED, ALLOW)]
        {
            let advise = |instruction, address, bytes| {
                verdict(libc::SYS_madvise, instruction, [address, bytes, advice as usize, 0, 0, 0])
            };
            for address in [SHARED.start, SHARED.end - 1] {
                assert_eq!(advise(HERE, address, 1), STOP, "with a message");
                assert_eq!(advise(ELSEWHERE, address, 1), elsewhere);
                assert_eq!(advise(stub, address, 1), ALLOW);
            }
            assert_eq!(advise(ELSEWHERE, SHARED.start - 4096, 1 << 32), elsewhere, "reaches into it");
            assert_eq!(advise(ELSEWHERE, SHARED.start - 4096, 4096), ALLOW);
            assert_eq!(advise(HERE, SHARED.end, 1 << 40), ALLOW);
            let vector = [1, PRIVATE, 1, advice as usize, 0, 0];
            assert_eq!(verdict(libc::SYS_process_madvise, ELSEWHERE, vector), elsewhere);
            assert_eq!(verdict(libc::SYS_process_madvise, HERE, vector), STOP);
        }
        for number in [libc::SYS_mremap, libc::SYS_remap_file_pages] {
            let moves = |instruction, from| verdict(number, instruction, [from, 4096, 4096, 3, PRIVATE, 0]);
            assert_eq!([moves(HERE, SHARED.start), moves(ELSEWHERE, SHARED.start)], [STOP, FORBID]);
            assert_eq!([moves(stub, SHARED.start), moves(HERE, PRIVATE)], [ALLOW, ALLOW]);
        }
        let requests =
            |instruction, request| verdict(libc::SYS_ioctl, instruction, [5, request, PRIVATE, 0, 0, 0]);
        assert_eq!([requests(HERE, 0xc018_aa06), requests(stub, 0xc018_aa06)], [STOP, ALLOW]);
        assert_eq!([requests(ELSEWHERE, 0xc018_aa06), requests(HERE, 0x5401)], [ALLOW, ALLOW]);
    }

    #[test]
    fn what_may_block_our_signals_is_stopped() {
        let action = |new, old| verdict(libc::SYS_rt_sigaction, HERE, [10, new, old, 8, 0, 0]);
        assert_eq!(action(PRIVATE, 0), STOP);
        assert_eq!(action(1 << 40, 1 << 40), STOP, "both halves count");
        assert_eq!(action(1, 0), STOP, "both halves count");
        assert_eq!(action(0, PRIVATE), ALLOW);
        assert_eq!(action(0, SHARED.start), STOP);
        assert_eq!(verdict(libc::SYS_rt_sigaction, ELSEWHERE, [31, PRIVATE, 0, 8, 0, 0]), ALLOW);
        let mask =
            |how: i32, new, old| verdict(libc::SYS_rt_sigprocmask, HERE, [how as usize, new, old, 8, 0, 0]);
        assert_eq!(mask(libc::SIG_BLOCK, PRIVATE, 0), STOP);
        assert_eq!(mask(libc::SIG_SETMASK, PRIVATE, 0), STOP);
        assert_eq!(mask(libc::SIG_UNBLOCK, PRIVATE, 0), ALLOW);
        assert_eq!(mask(libc::SIG_UNBLOCK, SHARED.start, 0), STOP);
        assert_eq!(mask(libc::SIG_BLOCK, 0, PRIVATE), ALLOW);
        assert_eq!(verdict(libc::SYS_rt_sigprocmask, FIXED, [0, PRIVATE, 0, 8, 0, 0]), ALLOW);
    }

    #[test]
    fn of_a_futex_only_what_its_operation_takes_for_an_address_counts() {
        let futex = |operation: i32, shared: usize| {
            let mut arguments = [PRIVATE, operation as usize, 1, PRIVATE, PRIVATE, PRIVATE];
            arguments[shared] = SHARED.start | 0xffff_ffff;
            verdict(libc::SYS_futex, HERE, arguments)
        };
        for flags in [0, libc::FUTEX_PRIVATE_FLAG, libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME] {
            for operation in 0..16 {
                let operation = operation | flags;
                let expected = |is_address: bool| if is_address { STOP } else { ALLOW };
                assert_eq!(futex(operation, 0), STOP);
                assert_eq!(futex(operation, 3), expected(futex::waits(operation)), "{operation}");
                assert_eq!(futex(operation, 4), expected(futex::has_second_word(operation)), "{operation}");
                assert_eq!(futex(operation, 5), ALLOW, "a number");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_looked_at_whole() {
        for argument in 0..6 {
            let mut arguments = [PRIVATE; 6];
            arguments[argument] = SHARED.start;
            assert_eq!(verdict(499, HERE, arguments), STOP);
            assert_eq!(verdict(70_000, HERE, arguments), STOP);
            assert_eq!(verdict(libc::SYS_close, HERE, arguments), ALLOW);
        }
        assert_eq!(verdict(499, HERE, [PRIVATE; 6]), ALLOW);
    }

    #[test]
    fn every_jump_stays_inside_and_the_kernel_takes_the_length() {
        let program = program(&SHARED, &code());
        assert!(program.len() < 4096);
        for (at, instruction) in program.iter().enumerate() {
            let farthest = match instruction.code {
                JUMP => instruction.k as usize,
                _ => usize::from(instruction.jt.max(instruction.jf)),
            };
            assert!(at + 1 + farthest < program.len() || instruction.code == RETURN, "{at}");
        }
    }
}
