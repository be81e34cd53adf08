//! A thread of a program on the host, as its area shows it: stopped or not, by what, and in which state.
//!
//! The area is memory that the program can write, too. What is read of it is an allegation, and harms nobody but the program if it is none.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};

use crate::host::{self, Shared};
use crate::space::{Bell, INTERRUPT, Space, SpaceError};
use crate::stub::layout::*;
use crate::supervisor::{Interrupted, State};

mod signals;

/// General registers, in the order in which the host's signal frames have them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[repr(C)]
#[expect(missing_docs, reason = "the processor's own names")]
pub struct Registers {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub flags: u64,
}

/// How a fault touched memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Touch {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction was to be run.
    Execute,
}

/// Why a thread is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Stop {
    /// A system call: its number is in `rax`, and `rip` is behind it. The number of the 32-bit kind is none of this kind.
    Call {
        /// Whether it came by the way of 32-bit programs.
        is_foreign: bool,
    },
    /// A touch of memory that is not there, or not for this.
    Fault {
        /// Where.
        address: u64,
        /// How.
        touch: Touch,
    },
    /// Any other exception, as a signal of the host.
    Exception {
        /// Which.
        signal: i32,
        /// Its code.
        code: i32,
        /// Where, if that is known.
        address: u64,
    },
    /// The supervisor stopped it.
    Interrupted,
    /// It has not run yet.
    Begins,
}

/// Where a state is in a signal frame, from the address that the area names.
const SEGMENTS: usize = 184;
const ERROR_CODE: usize = 192;
const TRAP_NUMBER: usize = 200;
const FAULT_ADDRESS: usize = 216;
const VECTORS: usize = 224;
const MASK: usize = 296;

const PAGE_FAULT: u64 = 14;
const STORE: u64 = 2;
const INSTRUCTION: u64 = 16;
const X86_64: u32 = 0xc000_003e;

/// Of the vector state in a frame: where its own length is written, if it has one.
const VECTOR_BYTES_AT: usize = 468;
const VECTOR_MAGIC_AT: usize = 464;
const VECTOR_MAGIC: u32 = 0x4650_5853;
const LEGACY_BYTES: usize = 512;

/// A thread's area.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    areas: &'a Shared,
    number: u32,
}

impl<'a> Area<'a> {
    /// One of a space.
    pub fn of(space: &'a Space, number: u32) -> Self {
        Self::within(&space.areas, number)
    }

    /// One of these areas of a space.
    pub(crate) fn within(areas: &'a Shared, number: u32) -> Self {
        assert!(u64::from(number) < MOST_THREADS, "an area of the space");
        Self { areas, number }
    }

    fn start(self) -> usize {
        self.number as usize * usize::try_from(AREA_BYTES).expect("it is small")
    }

    fn word(self, offset: usize) -> &'a std::sync::atomic::AtomicU32 {
        self.areas.word(self.start() + offset)
    }

    fn long(self, offset: usize) -> &'a std::sync::atomic::AtomicU64 {
        self.areas.long(self.start() + offset)
    }

    /// Prepares it for a thread that has not run.
    pub(crate) fn prepare(self, bell_number: u32, spins: u32) {
        let alternate = self.stack(AREA_OUTER);
        for (index, value) in alternate.into_iter().enumerate() {
            self.long(AREA_ALTERNATE + index * 8).store(value, Release);
        }
        self.word(AREA_SLEEPS).store(0, Release);
        self.word(AREA_STATE).store(RUNS, Release);
        self.give(bell_number, spins);
    }

    /// Where a thread stops, as the host's kernel is told: what begins there.
    fn stack(self, at: usize) -> [u64; 3] {
        [self.own() + at as u64, 0, AREA_STACK_BYTES as u64]
    }

    /// Where it is in its space.
    fn own(self) -> u64 {
        AREAS + u64::from(self.number) * AREA_BYTES
    }

    /// Gives it to a thread. If another was in it, that one is parked, and goes on as the new one.
    pub(crate) fn give(self, bell_number: u32, spins: u32) {
        self.word(AREA_NUMBER).store(bell_number, Release);
        self.word(AREA_SPINS).store(spins, Release);
        self.word(AREA_SIGNAL).store(0, Release);
    }

    /// Whether there is room for a state, and it has a ring if any.
    pub(crate) fn can_have(state: &State) -> bool {
        let all = std::iter::once(&state.vectors)
            .chain(state.interrupted.as_ref().map(|interrupted| &interrupted.vectors));
        all.into_iter().all(|vectors| FRAME_BYTES + vectors.len() + 64 <= AREA_STACK_BYTES)
            && (state.signals.is_empty() || state.signals.len() as u64 == 2 + MOST_SIGNALS)
    }

    /// Writes a state at the beginning of a stack. Nothing: there is no room for it.
    fn make_frame(self, at: usize, registers: &Registers, vectors: &[u8]) -> Option<()> {
        let frame = self.start() + at;
        self.areas.copy_in(frame, &[0; FRAME_BYTES]);
        // Segments are to be as they are said to be, and those of user mode.
        self.areas.copy_in(frame, &6_u64.to_le_bytes());
        self.areas.copy_in(frame + SEGMENTS, &[0x33, 0, 0, 0, 0, 0, 0x2b, 0]);
        // It stops on this stack again.
        for (index, value) in self.stack(at).into_iter().enumerate() {
            self.areas.copy_in(frame + FRAME_STACK + index * 8, &value.to_le_bytes());
        }
        self.set_registers_at(frame, registers);
        self.set_vectors_at(frame, vectors)
    }

    /// Gives its thread, which is stopped, a state in which it goes on. Nothing: it is none that it can have.
    pub(crate) fn set_state(self, state: &State) -> Option<()> {
        let mut at = AREA_OUTER;
        if let Some(interrupted) = &state.interrupted {
            self.make_frame(AREA_OUTER, &interrupted.registers, &interrupted.vectors)?;
            self.long(AREA_INTERRUPTED).store(self.own() + AREA_OUTER as u64, Release);
            at = AREA_STACK;
        }
        self.word(AREA_IN_FUNCTION).store(state.interrupted.is_some().into(), Release);
        self.long(AREA_FUNCTION).store(state.signal_function, Release);
        self.make_frame(at, &state.registers, &state.vectors)?;
        self.long(AREA_FRAME).store(self.own() + at as u64, Release);
        self.set_segments(state.segments);
        self.set_signals(&state.signals)
    }

    /// The state in which it is stopped. Nothing: it does not say so in a way that can be.
    pub(crate) fn state(self) -> Option<State> {
        let is_in_function = self.word(AREA_IN_FUNCTION).load(Acquire) != 0;
        let interrupted = if is_in_function {
            let frame = self.frame_at(AREA_INTERRUPTED)?;
            let (registers, vectors) = (self.registers_at(frame), self.vectors_at(frame)?);
            Some(Interrupted { registers, vectors })
        } else {
            None
        };
        Some(State {
            registers: self.registers()?,
            segments: self.segments(),
            vectors: self.vectors()?,
            stop: Some(self.stop()?),
            signal_function: self.long(AREA_FUNCTION).load(Acquire),
            signals: self.signals(),
            interrupted,
            used: None,
        })
    }

    /// Where its state is, in the areas, if it says that of a place where it can be.
    fn frame(self) -> Option<usize> {
        self.frame_at(AREA_FRAME)
    }

    fn frame_at(self, named: usize) -> Option<usize> {
        let at = usize::try_from(self.long(named).load(Acquire).checked_sub(self.own())?).ok()?;
        let is_within = at >= AREA_STACK && at + FRAME_BYTES <= usize::try_from(AREA_BYTES).ok()?;
        (is_within && at.is_multiple_of(8)).then_some(self.start() + at)
    }

    /// Whether it is stopped.
    pub fn is_stopped(self) -> bool {
        self.word(AREA_STATE).load(Acquire) == STOPPED
    }

    fn number_at<const N: usize>(self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.areas.copy_out(at, &mut bytes);
        bytes
    }

    fn u64_at(self, at: usize) -> u64 {
        u64::from_le_bytes(self.number_at(at))
    }

    fn i32_at(self, at: usize) -> i32 {
        i32::from_le_bytes(self.number_at(at))
    }

    /// Why it is stopped. Nothing: it does not say so in a way that can be.
    pub fn stop(self) -> Option<Stop> {
        let frame = self.frame()?;
        let signal = self.word(AREA_SIGNAL).load(Acquire).cast_signed();
        if signal == 0 {
            return Some(Stop::Begins);
        }
        if signal == INTERRUPT {
            return Some(Stop::Interrupted);
        }
        let information =
            usize::try_from(self.long(AREA_INFORMATION).load(Acquire).checked_sub(self.own())?).ok()?;
        if information + 128 > usize::try_from(AREA_BYTES).ok()? {
            return None;
        }
        let information = self.start() + information;
        let code = self.i32_at(information + 8);
        if signal == libc::SIGSYS && code == 1 {
            return Some(Stop::Call { is_foreign: self.i32_at(information + 28).cast_unsigned() != X86_64 });
        }
        let is_of_memory = signal == libc::SIGSEGV || signal == libc::SIGBUS;
        if is_of_memory && self.u64_at(frame + TRAP_NUMBER) == PAGE_FAULT {
            let error = self.u64_at(frame + ERROR_CODE);
            let touch = if error & INSTRUCTION != 0 {
                Touch::Execute
            } else if error & STORE != 0 {
                Touch::Write
            } else {
                Touch::Read
            };
            return Some(Stop::Fault { address: self.u64_at(frame + FAULT_ADDRESS), touch });
        }
        Some(Stop::Exception { signal, code, address: self.u64_at(information + 16) })
    }

    /// Its general registers.
    pub fn registers(self) -> Option<Registers> {
        Some(self.registers_at(self.frame()?))
    }

    fn registers_at(self, frame: usize) -> Registers {
        let mut bytes = [0; size_of::<Registers>()];
        self.areas.copy_out(frame + FRAME_GENERAL, &mut bytes);
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().expect("as many as there are registers");
        Registers {
            r8: next(),
            r9: next(),
            r10: next(),
            r11: next(),
            r12: next(),
            r13: next(),
            r14: next(),
            r15: next(),
            rdi: next(),
            rsi: next(),
            rbp: next(),
            rbx: next(),
            rdx: next(),
            rax: next(),
            rcx: next(),
            rsp: next(),
            rip: next(),
            flags: next(),
        }
    }

    /// Changes them. Nothing: as for [`Self::stop`].
    pub fn set_registers(self, to: &Registers) -> Option<()> {
        self.set_registers_at(self.frame()?, to);
        Some(())
    }

    fn set_registers_at(self, frame: usize, to: &Registers) {
        let words = [
            to.r8, to.r9, to.r10, to.r11, to.r12, to.r13, to.r14, to.r15, to.rdi, to.rsi, to.rbp, to.rbx,
            to.rdx, to.rax, to.rcx, to.rsp, to.rip, to.flags,
        ];
        let mut bytes = [0; size_of::<Registers>()];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.areas.copy_in(frame + FRAME_GENERAL, &bytes);
    }

    /// Answers a call: what it returned is in `rax`.
    #[inline]
    pub fn set_result(self, result: u64) -> Option<()> {
        self.areas.copy_in(self.frame()? + FRAME_GENERAL + 13 * 8, &result.to_le_bytes());
        Some(())
    }

    /// The bases of its two segments: where a program's thread has its own variables.
    pub fn segments(self) -> [u64; 2] {
        [self.long(AREA_FS).load(Acquire), self.long(AREA_GS).load(Acquire)]
    }

    /// Changes them. An address that is none of user mode would kill the space.
    pub fn set_segments(self, [fs, gs]: [u64; 2]) {
        self.long(AREA_FS).store(fs, Release);
        self.long(AREA_GS).store(gs, Release);
    }

    /// Its vector registers and what else the processor keeps, as in a signal frame. Empty: as they were when it began.
    pub fn vectors(self) -> Option<Vec<u8>> {
        self.vectors_at(self.frame()?)
    }

    fn vectors_at(self, frame: usize) -> Option<Vec<u8>> {
        let place = self.u64_at(frame + VECTORS);
        if place == 0 {
            return Some(Vec::new());
        }
        let at = usize::try_from(place.checked_sub(self.own())?).ok()?;
        let room = usize::try_from(AREA_BYTES).ok()?.checked_sub(at)?;
        if at < AREA_STACK || room < LEGACY_BYTES {
            return None;
        }
        let at = self.start() + at;
        let is_long = self.i32_at(at + VECTOR_MAGIC_AT).cast_unsigned() == VECTOR_MAGIC;
        let bytes =
            if is_long { self.i32_at(at + VECTOR_BYTES_AT).cast_unsigned() as usize } else { LEGACY_BYTES };
        if bytes > room {
            return None;
        }
        let mut vectors = vec![0; bytes];
        self.areas.copy_out(at, &mut vectors);
        Some(vectors)
    }

    /// Gives it those that another has had.
    pub fn set_vectors(self, vectors: &[u8]) -> Option<()> {
        self.set_vectors_at(self.frame()?, vectors)
    }

    fn set_vectors_at(self, frame: usize, vectors: &[u8]) -> Option<()> {
        if vectors.is_empty() {
            self.areas.copy_in(frame + VECTORS, &[0; 8]);
            return Some(());
        }
        // Below its frame there is nothing, for it is stopped; a frame that was prepared is at the bottom of its stack, and has all above it.
        let at = frame - self.start();
        let stack = if at >= AREA_OUTER { AREA_OUTER } else { AREA_STACK };
        let [below, above] = [at - stack, (stack + AREA_STACK_BYTES).checked_sub(at)?];
        let at = if below >= vectors.len() + 64 {
            (frame - vectors.len()) & !63
        } else if above >= FRAME_BYTES + vectors.len() + 64 {
            (frame + FRAME_BYTES).next_multiple_of(64)
        } else {
            return None;
        };
        self.areas.copy_in(at, vectors);
        self.areas.copy_in(frame + VECTORS, &(self.own() + (at - self.start()) as u64).to_le_bytes());
        let flags = self.u64_at(frame);
        self.areas.copy_in(frame, &(flags | 1).to_le_bytes());
        Some(())
    }

    /// Lets it go on.
    #[inline]
    pub fn resume(self) {
        self.word(AREA_STATE).store(GOES_ON, SeqCst);
        if self.word(AREA_SLEEPS).load(SeqCst) != 0 {
            host::wake(self.word(AREA_STATE));
        }
    }

    /// Ends it: it stops being a thread of the host.
    pub fn end(self) {
        self.word(AREA_STATE).store(ENDS, SeqCst);
        host::wake(self.word(AREA_STATE));
    }
}

const _: () = assert!(MASK + 8 == FRAME_BYTES);

impl Space {
    /// Loads a thread into an area: it is stopped, and goes on in this state.
    pub fn add_thread(
        &mut self,
        number: u32,
        registers: &Registers,
        bell_number: u32,
        spins: u32,
    ) -> Result<u32, SpaceError> {
        let area = Area::of(self, number);
        area.prepare(bell_number, spins);
        area.set_state(&State { registers: *registers, ..State::default() }).expect("registers have room");
        self.start_thread(number)
    }
}

/// Rings for a kernel from another of its threads of the host.
#[derive(Clone, Debug)]
pub struct Ringer(Arc<Shared>);

impl Ringer {
    /// As the thread does that has this number.
    pub fn ring(&self, number: u32) {
        let number = number % MOST_RINGERS;
        self.0.long(BELL_RUNG + number as usize / 64 * 8).fetch_or(1 << (number % 64), SeqCst);
        let sleeps = self.0.word(BELL_SLEEPS);
        if sleeps.swap(0, SeqCst) != 0 {
            host::wake(sleeps);
        }
    }
}

impl Bell {
    /// Rings it, too.
    pub fn ringer(&self) -> Ringer {
        Ringer(self.page.clone())
    }

    /// Waits until somebody rings, and not longer than this. Takes the numbers of those who have.
    pub fn listen(&self, spins: u32, limit: Option<std::time::Duration>, mut each: impl FnMut(u32)) -> bool {
        if self.take(&mut each) {
            return true;
        }
        for _ in 0..spins {
            std::hint::spin_loop();
            if self.take(&mut each) {
                return true;
            }
        }
        let sleeps = self.page.word(BELL_SLEEPS);
        sleeps.swap(1, SeqCst);
        if self.take(&mut each) {
            sleeps.swap(0, AcqRel);
            return true;
        }
        host::wait(sleeps, 1, limit);
        sleeps.swap(0, AcqRel);
        self.take(&mut each)
    }

    #[inline]
    fn take(&self, each: &mut impl FnMut(u32)) -> bool {
        const WORDS: usize = MOST_RINGERS as usize / 64;
        let mut any = false;
        for index in 0..WORDS {
            let word = self.page.long(BELL_RUNG + index * 8);
            if word.load(Acquire) == 0 {
                continue;
            }
            let mut rung = word.swap(0, SeqCst);
            any = true;
            while rung != 0 {
                each(u32::try_from(index * 64).expect("few") + rung.trailing_zeros());
                rung &= rung - 1;
            }
        }
        any
    }
}

/// Threads that can ring for one kernel.
pub const MOST_RINGERS: u32 = 1024;
