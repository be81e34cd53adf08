//! A machine without a processor: programs are lists of steps, each thread runs one at a time, and memory is what is in the frames.

#![expect(unsafe_code, reason = "programs of the fake machine reach memory as a processor does, by frames")]

use crate::machine::{Access, Event, Frame, Machine, PAGE_BYTES, Registers, Rights};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What a program does next.
pub(crate) enum Step {
    /// Makes a call.
    Call(i64, [u64; 6]),
    /// Stores bytes.
    Store(u64, Vec<u8>),
    /// Loads bytes, which the program is then given.
    Load(u64, usize),
    /// Runs code at an address.
    Jump(u64),
}

/// What a program is given before it says its next step: its registers, and what its last step loaded.
pub(crate) struct View<'a> {
    pub(crate) registers: &'a mut Registers,
    pub(crate) loaded: Vec<u8>,
}

/// Code: called for each step of a thread. `at` is where the thread is, which it may change.
pub(crate) type Code = Rc<dyn Fn(u64, &mut View<'_>) -> Step>;

struct FakeThread {
    space: u32,
    registers: Registers,
    running: bool,
    interrupted: bool,
    /// The step that faulted and is tried again.
    step: Option<Step>,
    loaded: Vec<u8>,
    steps: u32,
}

/// How long a step takes.
const STEP: Duration = Duration::from_millis(1);

/// The machine.
pub(crate) struct Fake {
    memory: Vec<[u8; PAGE_BYTES as usize]>,
    left: VecDeque<Range<u32>>,
    spaces: BTreeMap<u32, BTreeMap<u64, (Frame, Rights)>>,
    threads: BTreeMap<u32, FakeThread>,
    last: u32,
    turn: u32,
    /// The code, by the page that it is at.
    code: Option<Code>,
    /// How many faults there were, for tests of what is mapped around them.
    pub(crate) faults: u64,
}

impl Fake {
    pub(crate) fn new(frames: u32) -> Fake {
        // What is in new frames is not defined: not zeroes, so that a forgotten clearing is seen.
        let memory = vec![[0xa5; PAGE_BYTES as usize]; frames as usize];
        let left = (0..frames / 128).map(|group| group * 128..(group + 1) * 128).collect();
        Fake {
            memory,
            left,
            spaces: BTreeMap::new(),
            threads: BTreeMap::new(),
            last: 0,
            turn: 0,
            code: None,
            faults: 0,
        }
    }

    pub(crate) fn with_code(frames: u32, code: Code) -> Fake {
        Fake { code: Some(code), ..Fake::new(frames) }
    }

    /// What a thread of the space would find at an address.
    fn translate(&self, space: u32, address: u64, access: Access) -> Result<usize, (u64, Access)> {
        match self.spaces[&space].get(&(address / PAGE_BYTES)) {
            Some((frame, rights)) if rights.permits(access) => {
                Ok(frame.0 as usize * PAGE_BYTES as usize + (address % PAGE_BYTES) as usize)
            }
            _ => Err((address, access)),
        }
    }

    fn byte(&mut self, at: usize) -> &mut u8 {
        &mut self.memory[at / PAGE_BYTES as usize][at % PAGE_BYTES as usize]
    }

    /// Loads a byte or stores one, if that needs no fault.
    pub(crate) fn touch(&mut self, space: u32, address: u64, store: Option<u8>) -> Option<u8> {
        let access = if store.is_some() { Access::Write } else { Access::Read };
        let at = self.translate(space, address, access).ok()?;
        if let Some(byte) = store {
            *self.byte(at) = byte;
        }
        Some(*self.byte(at))
    }

    /// Whether all spaces and threads have gone.
    pub(crate) fn is_empty(&self) -> bool {
        self.spaces.is_empty() && self.threads.is_empty()
    }

    /// Runs one step of a thread.
    fn step(&mut self, id: u32) -> Option<Event<u32>> {
        let thread = self.threads.get_mut(&id).expect("a running thread");
        if std::mem::take(&mut thread.interrupted) {
            thread.running = false;
            return Some(Event::Interrupted { thread: id });
        }
        thread.steps += 1;
        let space = thread.space;
        let rip = thread.registers.rip;
        let (mut registers, loaded, pending) =
            (thread.registers, std::mem::take(&mut thread.loaded), thread.step.take());
        let fault = |fake: &mut Fake, step: Option<Step>, (address, access): (u64, Access)| {
            let thread = fake.threads.get_mut(&id).expect("a running thread");
            (thread.step, thread.running) = (step, false);
            fake.faults += 1;
            Some(Event::Fault { thread: id, address, access })
        };
        let step = match pending {
            Some(step) => step,
            None => {
                if let Err(missing) = self.translate(space, rip, Access::Execute) {
                    self.threads.get_mut(&id).expect("a running thread").loaded = loaded;
                    return fault(self, None, missing);
                }
                let code = Rc::clone(self.code.as_ref().expect("a machine with code"));
                code(rip, &mut View { registers: &mut registers, loaded })
            }
        };
        self.threads.get_mut(&id).expect("a running thread").registers = registers;
        match step {
            Step::Call(number, arguments) => {
                let thread = self.threads.get_mut(&id).expect("a running thread");
                thread.running = false;
                let registers = &mut thread.registers;
                registers.rax = number as u64;
                [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
                    arguments;
                registers.rip += 2;
                Some(Event::Call { thread: id })
            }
            Step::Store(address, bytes) => {
                for index in 0..bytes.len() {
                    match self.translate(space, address + index as u64, Access::Write) {
                        Ok(at) => *self.byte(at) = bytes[index],
                        Err(missing) => return fault(self, Some(Step::Store(address, bytes)), missing),
                    }
                }
                self.threads.get_mut(&id).expect("a running thread").registers.rip += 2;
                None
            }
            Step::Load(address, count) => {
                let mut loaded = Vec::new();
                for index in 0..count as u64 {
                    match self.translate(space, address + index, Access::Read) {
                        Ok(at) => loaded.push(*self.byte(at)),
                        Err(missing) => return fault(self, Some(Step::Load(address, count)), missing),
                    }
                }
                let thread = self.threads.get_mut(&id).expect("a running thread");
                thread.registers.rip += 2;
                thread.loaded = loaded;
                None
            }
            Step::Jump(to) => {
                self.threads.get_mut(&id).expect("a running thread").registers.rip = to;
                None
            }
        }
    }
}

impl Machine for Fake {
    type Space = u32;
    type Thread = u32;

    fn addresses(&self) -> Range<u64> {
        0x1_0000..0x1000_0000
    }

    fn memory(&self) -> NonNull<u8> {
        // SAFETY: a vector's buffer is never null, and this one is never made longer.
        unsafe { NonNull::new_unchecked(self.memory.as_ptr().cast_mut().cast()) }
    }

    fn grant(&mut self) -> Option<Range<u32>> {
        self.left.pop_front()
    }

    fn load_space(&mut self) -> Option<u32> {
        self.last += 1;
        self.spaces.insert(self.last, BTreeMap::new());
        Some(self.last)
    }

    fn end_space(&mut self, space: u32) {
        assert!(self.threads.values().all(|thread| thread.space != space), "a space ends after its threads");
        assert!(self.spaces.remove(&space).is_some(), "a space ends once");
    }

    fn map(&mut self, space: u32, page: u64, frame: Frame, count: u64, rights: Rights) {
        let table = self.spaces.get_mut(&space).expect("a loaded space");
        for index in 0..count {
            table.insert(page + index, (Frame(frame.0 + index as u32), rights));
        }
    }

    fn forbid_writes(&mut self, space: u32, page: u64, count: u64, left: Rights) {
        let table = self.spaces.get_mut(&space).expect("a loaded space");
        for (_, (_, rights)) in table.range_mut(page..page + count) {
            assert_eq!(rights.execute, left.execute, "only the right to store is taken");
            *rights = left;
        }
    }

    fn unmap(&mut self, space: u32, page: u64, count: u64) {
        let table = self.spaces.get_mut(&space).expect("a loaded space");
        let gone: BTreeSet<u64> = table.range(page..page + count).map(|(&page, _)| page).collect();
        table.retain(|page, _| !gone.contains(page));
    }

    fn load_thread(&mut self, space: u32, registers: &Registers) -> Option<u32> {
        self.last += 1;
        let thread = FakeThread {
            space,
            registers: *registers,
            running: false,
            interrupted: false,
            step: None,
            loaded: Vec::new(),
            steps: 0,
        };
        self.threads.insert(self.last, thread);
        Some(self.last)
    }

    fn fork_thread(&mut self, of: u32, space: u32) -> Option<u32> {
        let registers = self.threads[&of].registers;
        self.load_thread(space, &registers)
    }

    fn registers(&mut self, thread: u32) -> &mut Registers {
        let thread = self.threads.get_mut(&thread).expect("a loaded thread");
        assert!(!thread.running, "registers are of stopped threads");
        &mut thread.registers
    }

    fn vector_state(&mut self, _: u32) -> Vec<u8> {
        Vec::new()
    }

    fn set_vector_state(&mut self, _: u32, _: &[u8]) -> bool {
        true
    }

    fn resume(&mut self, thread: u32) {
        let thread = self.threads.get_mut(&thread).expect("a loaded thread");
        assert!(!thread.running, "only a stopped thread is resumed");
        thread.running = true;
    }

    fn interrupt(&mut self, thread: u32) {
        let thread = self.threads.get_mut(&thread).expect("a loaded thread");
        thread.interrupted = thread.running;
    }

    fn end_thread(&mut self, thread: u32) {
        assert!(self.threads.remove(&thread).is_some(), "a thread ends once");
    }

    fn used(&mut self, thread: u32) -> Duration {
        STEP * self.threads[&thread].steps
    }

    fn next_event(&mut self, until: Option<Instant>, descriptors: &mut [libc::pollfd]) -> Event<u32> {
        loop {
            // One step for each thread in turn, so that all orders of a few steps come up.
            let next = self
                .threads
                .range(self.turn + 1..)
                .chain(self.threads.range(..=self.turn))
                .find(|(_, thread)| thread.running);
            if let Some((&id, _)) = next {
                self.turn = id;
                if let Some(event) = self.step(id) {
                    return event;
                }
                continue;
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Event::Timeout;
            }
            crate::host::poll_now(descriptors).expect("descriptors that are open");
            if descriptors.iter().any(|polled| polled.revents != 0) {
                return Event::Ready;
            }
            assert!(until.is_some() || !descriptors.is_empty(), "nothing runs, and nothing will ever come");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
