//! A thread of a program on the host, as its area shows it: stopped or not, by what, and in which state.
//!
//! The area is memory that the program can write, too. What is read of it is an allegation, and harms nobody but the program if it is none.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};

use crate::host::{self, Shared};
use crate::space::{Bell, INTERRUPT, Space, SpaceError};
use crate::stub::layout::*;

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
const GENERAL: usize = 40;
const SEGMENTS: usize = 184;
const ERROR_CODE: usize = 192;
const TRAP_NUMBER: usize = 200;
const FAULT_ADDRESS: usize = 216;
const VECTORS: usize = 224;
const MASK: usize = 296;
const FRAME_BYTES: usize = 304;

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

    /// Prepares it for a thread that has not run, which goes on in this state.
    pub(crate) fn prepare(self, registers: &Registers, bell_number: u32, spins: u32) {
        let frame = self.start() + AREA_STACK;
        self.areas.copy_in(frame, &[0; FRAME_BYTES]);
        // Segments are to be as they are said to be, and those of user mode.
        self.areas.copy_in(frame, &6_u64.to_le_bytes());
        self.areas.copy_in(frame + SEGMENTS, &[0x33, 0, 0, 0, 0, 0, 0x2b, 0]);
        let own = AREAS + u64::from(self.number) * AREA_BYTES;
        let alternate = [own + AREA_STACK as u64, 0, AREA_BYTES - AREA_STACK as u64];
        for (index, value) in alternate.into_iter().enumerate() {
            self.long(AREA_ALTERNATE + index * 8).store(value, Release);
        }
        // What the frame says of the stack for signals is what is so.
        for (index, value) in alternate.into_iter().enumerate() {
            self.areas.copy_in(frame + 16 + index * 8, &value.to_le_bytes());
        }
        self.long(AREA_FRAME).store(own + AREA_STACK as u64, Release);
        self.word(AREA_NUMBER).store(bell_number, Release);
        self.word(AREA_SPINS).store(spins, Release);
        self.word(AREA_SIGNAL).store(0, Release);
        self.word(AREA_SLEEPS).store(0, Release);
        self.word(AREA_STATE).store(RUNS, Release);
        self.long(AREA_FS).store(0, Release);
        self.long(AREA_GS).store(0, Release);
        self.set_registers(registers).expect("the frame was just made");
    }

    /// Where its ring is, in every space that has it: the signals of messages, as their receiver's addresses.
    pub fn ring_address(number: u32) -> u64 {
        AREAS + u64::from(number) * AREA_BYTES + AREA_RING as u64
    }

    /// Puts a signal into its ring, and wakes it if it sleeps there. Whether there was room.
    pub(crate) fn signal(self, address: u64) -> bool {
        let ring = self.start() + AREA_RING;
        let tail = self.areas.long(ring + RING_TAIL);
        loop {
            let at = tail.load(Acquire);
            let slot = self
                .areas
                .long(ring + RING_SLOTS + usize::try_from(at % MOST_SIGNALS).expect("it is small") * 8);
            if slot.load(Acquire) != 0 {
                return false;
            }
            if tail.compare_exchange(at, at.wrapping_add(1), SeqCst, SeqCst).is_ok() {
                slot.store(address, SeqCst);
                break;
            }
        }
        let sleeps = self.areas.word(ring + RING_SLEEPS);
        if sleeps.load(SeqCst) != 0 {
            sleeps.store(0, SeqCst);
            host::wake(sleeps);
        }
        true
    }

    /// Gives it to another thread: who was in it is parked, and goes on as that one.
    pub(crate) fn reuse(self, bell_number: u32, spins: u32) {
        self.word(AREA_NUMBER).store(bell_number, Release);
        self.word(AREA_SPINS).store(spins, Release);
        self.word(AREA_SIGNAL).store(0, Release);
        // Signals of who was in it are nobody's.
        self.areas.copy_in(self.start() + AREA_RING, &[0; PAGE]);
    }

    /// Where its state is, in the areas, if it says that of a place where it can be.
    fn frame(self) -> Option<usize> {
        let own = AREAS + u64::from(self.number) * AREA_BYTES;
        let at = usize::try_from(self.long(AREA_FRAME).load(Acquire).checked_sub(own)?).ok()?;
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
        let own = AREAS + u64::from(self.number) * AREA_BYTES;
        let information =
            usize::try_from(self.long(AREA_INFORMATION).load(Acquire).checked_sub(own)?).ok()?;
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
        let frame = self.frame()?;
        let mut bytes = [0; size_of::<Registers>()];
        self.areas.copy_out(frame + GENERAL, &mut bytes);
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().expect("as many as there are registers");
        Some(Registers {
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
        })
    }

    /// Changes them. Nothing: as for [`Self::stop`].
    pub fn set_registers(self, to: &Registers) -> Option<()> {
        let frame = self.frame()?;
        let words = [
            to.r8, to.r9, to.r10, to.r11, to.r12, to.r13, to.r14, to.r15, to.rdi, to.rsi, to.rbp, to.rbx,
            to.rdx, to.rax, to.rcx, to.rsp, to.rip, to.flags,
        ];
        let mut bytes = [0; size_of::<Registers>()];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.areas.copy_in(frame + GENERAL, &bytes);
        Some(())
    }

    /// Answers a call: what it returned is in `rax`.
    #[inline]
    pub fn set_result(self, result: u64) -> Option<()> {
        self.areas.copy_in(self.frame()? + GENERAL + 13 * 8, &result.to_le_bytes());
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
        let frame = self.frame()?;
        let place = self.u64_at(frame + VECTORS);
        if place == 0 {
            return Some(Vec::new());
        }
        let own = AREAS + u64::from(self.number) * AREA_BYTES;
        let at = usize::try_from(place.checked_sub(own)?).ok()?;
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
        let frame = self.frame()?;
        let own = AREAS + u64::from(self.number) * AREA_BYTES;
        if vectors.is_empty() {
            self.areas.copy_in(frame + VECTORS, &[0; 8]);
            return Some(());
        }
        // Below its frame there is nothing, for it is stopped; a frame that was prepared is at the bottom, and has all above it.
        let [below, above] =
            [frame - self.start() - AREA_STACK, usize::try_from(AREA_BYTES).ok()? - (frame - self.start())];
        let at = if below >= vectors.len() + 64 {
            (frame - vectors.len()) & !63
        } else if above >= FRAME_BYTES + vectors.len() + 64 {
            (frame + FRAME_BYTES).next_multiple_of(64)
        } else {
            return None;
        };
        self.areas.copy_in(at, vectors);
        self.areas.copy_in(frame + VECTORS, &(own + (at - self.start()) as u64).to_le_bytes());
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
        Area::of(self, number).prepare(registers, bell_number, spins);
        self.start_thread(number)
    }
}

impl Bell {
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
