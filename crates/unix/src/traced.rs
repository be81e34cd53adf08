//! A machine without a cache kernel: each space is a process whose calls and faults all come here by ptrace. Calls take several times as long, and it needs nothing of
//! the host but that.
#![expect(unsafe_code, reason = "a machine made of stub processes, by ptrace")]
#![expect(clippy::cast_possible_truncation, reason = "numbers of the host are as wide as it says")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use comb_kernel::scheduling::used_by;

use crate::machine::{Access, Event, Frame, Machine, PAGE_BYTES, Registers, Rights};

/// Where each stub has the one page of its own, with nothing but a `syscall` instruction.
const STUB: u64 = 0x7ff8_0000_0000;
const TOP: u64 = 0x7fff_ffff_f000;
const GRANT: u32 = 4096;

/// Where the C library has told the host's kernel of each thread, from the thread's pointer on. Not all C libraries do.
fn sequences_offset() -> Option<i64> {
    // SAFETY: looks a symbol up, which is a number where there is one.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        (!offset.is_null()).then(|| *offset as i64)
    }
}

#[derive(Debug)]
struct Thread {
    space: i32,
    registers: Registers,
    running: bool,
}

/// All spaces and threads. To be used by the thread that made it: the host lets no other one trace.
#[derive(Debug)]
pub struct Traced {
    memory: NonNull<u8>,
    descriptor: i32,
    /// How many frames there are.
    frames: u32,
    is_exhausted: bool,
    granted: u32,
    spaces: BTreeMap<i32, BTreeMap<u64, Rights>>,
    threads: BTreeMap<i32, Thread>,
    traps: u64,
}

fn ptrace(request: u32, pid: i32, address: usize, data: usize) -> i64 {
    // SAFETY: all pointers that are passed are to values that outlive the call.
    unsafe { libc::ptrace(request, pid, address, data) }
}

fn wait(pid: i32, flags: i32) -> (i32, i32) {
    let mut status = 0;
    // SAFETY: `status` is as large as the host writes.
    let found = unsafe { libc::waitpid(pid, &raw mut status, flags | libc::__WALL | libc::__WNOTHREAD) };
    (found, status)
}

fn get(pid: i32) -> libc::user_regs_struct {
    // SAFETY: a structure of integers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    assert_eq!(
        ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers as usize),
        0,
        "a stopped thread has registers"
    );
    registers
}

fn set(pid: i32, registers: &libc::user_regs_struct) {
    assert_eq!(
        ptrace(libc::PTRACE_SETREGS, pid, 0, std::ptr::from_ref(registers) as usize),
        0,
        "registers are sound"
    );
}

/// Makes a stub's first thread do a call. `at` is where there is a `syscall` instruction.
fn inject(pid: i32, at: u64, number: i64, arguments: [u64; 6]) -> i64 {
    let mut registers = get(pid);
    registers.rip = at;
    registers.rax = number as u64;
    registers.orig_rax = u64::MAX;
    [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
    set(pid, &registers);
    loop {
        assert_eq!(ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0), 0);
        let (found, status) = wait(pid, 0);
        assert!(found == pid && libc::WIFSTOPPED(status), "a stub stays until it is ended: {status:x}");
        if status >> 8 == libc::SIGTRAP {
            return get(pid).rax as i64;
        }
    }
}

fn done(result: i64) {
    assert!(result >= 0, "a stub's own calls succeed: {result}");
}

impl Traced {
    /// One with this much memory for all programs.
    pub fn new(bytes: u64) -> std::io::Result<Self> {
        let frames = u32::try_from(bytes.div_ceil(PAGE_BYTES).max(u64::from(GRANT)));
        let frames = frames.map_err(|_| std::io::Error::from_raw_os_error(libc::ENOMEM))?;
        let bytes = u64::from(frames) * PAGE_BYTES;
        let failed = |_| std::io::Error::last_os_error();
        // SAFETY: a new file.
        let descriptor = unsafe { libc::memfd_create(c"comb-frames".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(failed(()));
        }
        // The stub's code is behind all frames.
        let stub = PAGE_BYTES as i64;
        // SAFETY: a mapping of that file at a place that the host chooses, and bytes that live.
        let memory = unsafe {
            if libc::ftruncate(descriptor, bytes as i64 + stub) != 0
                || libc::pwrite(descriptor, [0x0f_u8, 5].as_ptr().cast(), 2, bytes as i64) != 2
            {
                return Err(failed(()));
            }
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes as usize, rights, libc::MAP_SHARED, descriptor, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(failed(()));
        }
        let memory = NonNull::new(memory.cast()).expect("mapped");
        let (spaces, threads) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { memory, descriptor, frames, is_exhausted: false, granted: 0, spaces, threads, traps: 0 })
    }

    /// How often a program was stopped.
    pub fn traps(&self) -> u64 {
        self.traps
    }

    /// Whether programs wanted more memory than there is.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    fn bytes(&self) -> u64 {
        u64::from(self.frames) * PAGE_BYTES
    }

    fn push(&self, id: i32) {
        let from = &self.threads[&id].registers;
        let mut to = get(id);
        (to.r15, to.r14, to.r13, to.r12) = (from.r15, from.r14, from.r13, from.r12);
        (to.rbp, to.rbx, to.r11, to.r10) = (from.rbp, from.rbx, from.r11, from.r10);
        (to.r9, to.r8, to.rax, to.rcx) = (from.r9, from.r8, from.rax, from.rcx);
        (to.rdx, to.rsi, to.rdi, to.rip) = (from.rdx, from.rsi, from.rdi, from.rip);
        (to.eflags, to.rsp, to.fs_base, to.gs_base) =
            (from.rflags | 0x202, from.rsp, from.fs_base, from.gs_base);
        to.orig_rax = u64::MAX;
        set(id, &to);
    }

    fn pull(&mut self, id: i32) -> libc::user_regs_struct {
        let from = get(id);
        let thread = self.threads.get_mut(&id).expect("a known thread");
        thread.running = false;
        thread.registers = Registers {
            r15: from.r15,
            r14: from.r14,
            r13: from.r13,
            r12: from.r12,
            rbp: from.rbp,
            rbx: from.rbx,
            r11: from.r11,
            r10: from.r10,
            r9: from.r9,
            r8: from.r8,
            rax: from.rax,
            rcx: from.rcx,
            rdx: from.rdx,
            rsi: from.rsi,
            rdi: from.rdi,
            rip: from.rip,
            rflags: from.eflags,
            rsp: from.rsp,
            fs_base: from.fs_base,
            gs_base: from.gs_base,
        };
        from
    }

    fn event(&mut self, id: i32, status: i32) -> Option<Event<i32>> {
        assert!(libc::WIFSTOPPED(status), "a thread ends only when it is told to: {status:x}");
        let registers = self.pull(id);
        self.traps += 1;
        let signal = status >> 8 & 0xff;
        if signal == libc::SIGTRAP | 0x80 {
            self.threads.get_mut(&id).expect("a known thread").registers.rax = registers.orig_rax;
            return Some(Event::Call { thread: id });
        }
        if signal == libc::SIGSTOP {
            return Some(Event::Interrupted { thread: id });
        }
        // SAFETY: a structure of integers; the host fills it in.
        let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
        assert_eq!(ptrace(libc::PTRACE_GETSIGINFO, id, 0, &raw mut information as usize), 0);
        // SAFETY: the signals that come here carry an address.
        let address = unsafe { information.si_addr() } as u64;
        if signal == libc::SIGSEGV && information.si_code != libc::SI_KERNEL {
            let table = &self.spaces[&self.threads[&id].space];
            let rights = table.get(&(address / PAGE_BYTES)).copied().unwrap_or(Rights::NONE);
            let fetched = (registers.rip..registers.rip + 15).contains(&address);
            // The host does not say what kind of access it was. It says whether anything was mapped at that moment, which may have
            // changed since: where nothing was, reading comes first, and a store faults once more.
            const NOTHING_MAPPED: i32 = 1;
            let access = match (information.si_code == NOTHING_MAPPED, fetched && !rights.execute) {
                (_, true) => Access::Execute,
                (true, _) => Access::Read,
                _ => Access::Write,
            };
            return Some(Event::Fault { thread: id, address, access });
        }
        Some(Event::Exception { thread: id, signal, code: information.si_code, address })
    }
}

impl Machine for Traced {
    type Space = i32;
    type Thread = i32;

    fn addresses(&self) -> Range<u64> {
        0x1_0000..0x7ff0_0000_0000
    }

    fn memory(&self) -> NonNull<u8> {
        self.memory
    }

    fn grant(&mut self) -> Option<Range<u32>> {
        let first = self.granted;
        let end = first.saturating_add(GRANT).min(self.frames);
        // A rest that is no multiple of 16 is nobody's.
        let end = end - end % 16;
        self.is_exhausted |= first >= end;
        self.granted = end.max(first);
        (first < end).then_some(first..end)
    }

    fn load_space(&mut self) -> Option<i32> {
        // SAFETY: the child calls nothing that allocates or locks.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            // SAFETY: as above.
            unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::getpid(), libc::SIGSTOP);
                libc::_exit(1);
            }
        }
        if pid < 0 {
            return None;
        }
        let (found, status) = wait(pid, 0);
        assert!(found == pid && libc::WIFSTOPPED(status));
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE;
        assert_eq!(ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as usize), 0);
        let own = get(pid).rip - 2;
        let rights = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
        let file = self.descriptor as u64;
        done(inject(pid, own, libc::SYS_mmap, [STUB, PAGE_BYTES, rights, flags, file, self.bytes()]));
        // The host's kernel writes to the area that the C library registered for restartable sequences, which is about to go.
        if let Some(offset) = sequences_offset() {
            let area = get(pid).fs_base.wrapping_add_signed(offset);
            inject(pid, STUB, libc::SYS_rseq, [area, 32, 1, 0x5305_3053, 0, 0]);
        }
        done(inject(pid, STUB, libc::SYS_munmap, [0, STUB, 0, 0, 0, 0]));
        done(inject(pid, STUB, libc::SYS_munmap, [STUB + PAGE_BYTES, TOP - STUB - PAGE_BYTES, 0, 0, 0, 0]));
        let frames = self.descriptor as u64;
        done(inject(pid, STUB, libc::SYS_close_range, [0, frames - 1, 0, 0, 0, 0]));
        done(inject(pid, STUB, libc::SYS_close_range, [frames + 1, u64::from(u32::MAX), 0, 0, 0, 0]));
        self.spaces.insert(pid, BTreeMap::new());
        Some(pid)
    }

    fn end_space(&mut self, space: i32) {
        self.spaces.remove(&space);
        // SAFETY: no memory is involved.
        unsafe { libc::kill(space, libc::SIGKILL) };
        while !matches!(wait(space, 0), (found, status) if found != space || libc::WIFSIGNALED(status)) {}
    }

    fn map(&mut self, space: i32, page: u64, frame: Frame, count: u64, rights: Rights) {
        let mut bits = libc::PROT_READ;
        if rights.write {
            bits |= libc::PROT_WRITE;
        }
        if rights.execute {
            bits |= libc::PROT_EXEC;
        }
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
        let offset = u64::from(frame.0) * PAGE_BYTES;
        let arguments =
            [page * PAGE_BYTES, count * PAGE_BYTES, bits as u64, flags, self.descriptor as u64, offset];
        done(inject(space, STUB, libc::SYS_mmap, arguments));
        let table = self.spaces.get_mut(&space).expect("a loaded space");
        table.extend((page..page + count).map(|page| (page, Rights { read: true, ..rights })));
    }

    fn forbid_writes(&mut self, space: i32, page: u64, count: u64, _: Rights) {
        // They are mapped again when they are touched.
        self.unmap(space, page, count);
    }

    fn unmap(&mut self, space: i32, page: u64, count: u64) {
        let table = self.spaces.get_mut(&space).expect("a loaded space");
        if table.range(page..page + count).next().is_none() {
            return;
        }
        let mut rest = table.split_off(&page);
        table.append(&mut rest.split_off(&(page + count)));
        done(inject(space, STUB, libc::SYS_munmap, [page * PAGE_BYTES, count * PAGE_BYTES, 0, 0, 0, 0]));
    }

    fn load_thread(&mut self, space: i32, registers: &Registers) -> Option<i32> {
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let id = inject(space, STUB, libc::SYS_clone, [flags as u64, 0, 0, 0, 0, 0]) as i32;
        assert!(id > 0, "a stub can have threads");
        let (found, status) = wait(id, 0);
        assert!(found == id && libc::WIFSTOPPED(status));
        self.threads.insert(id, Thread { space, registers: *registers, running: false });
        Some(id)
    }

    fn fork_thread(&mut self, of: i32, space: i32) -> Option<i32> {
        let registers = self.threads[&of].registers;
        let image = self.vector_state(of);
        let id = self.load_thread(space, &registers)?;
        assert!(self.set_vector_state(id, &image));
        Some(id)
    }

    fn registers(&mut self, thread: i32) -> &mut Registers {
        let thread = self.threads.get_mut(&thread).expect("a loaded thread");
        assert!(!thread.running, "registers are of stopped threads");
        &mut thread.registers
    }

    fn vector_state(&mut self, thread: i32) -> Vec<u8> {
        let mut image = vec![0u8; 16384];
        let mut vector = libc::iovec { iov_base: image.as_mut_ptr().cast(), iov_len: image.len() };
        assert_eq!(ptrace(libc::PTRACE_GETREGSET, thread, 0x202, &raw mut vector as usize), 0);
        let bytes = vector.iov_len;
        image.truncate(bytes);
        let features: [u8; 8] = image[464..472].try_into().expect("eight bytes");
        image[464..468].copy_from_slice(&0x4650_5853u32.to_le_bytes());
        image[468..472].copy_from_slice(&(bytes as u32 + 4).to_le_bytes());
        image[472..480].copy_from_slice(&features);
        image[480..484].copy_from_slice(&(bytes as u32).to_le_bytes());
        image.extend_from_slice(&0x4650_5845u32.to_le_bytes());
        image
    }

    fn set_vector_state(&mut self, thread: i32, image: &[u8]) -> bool {
        let mut image = image[..image.len() - 4].to_vec();
        image[464..512].fill(0);
        let mut vector = libc::iovec { iov_base: image.as_mut_ptr().cast(), iov_len: image.len() };
        ptrace(libc::PTRACE_SETREGSET, thread, 0x202, &raw mut vector as usize) == 0
    }

    fn resume(&mut self, thread: i32) {
        self.push(thread);
        let known = self.threads.get_mut(&thread).expect("a loaded thread");
        assert!(!known.running, "only a stopped thread is resumed");
        known.running = true;
        assert_eq!(ptrace(libc::PTRACE_SYSEMU, thread, 0, 0), 0);
    }

    fn interrupt(&mut self, thread: i32) {
        let known = &self.threads[&thread];
        if known.running {
            // SAFETY: no memory is involved.
            unsafe { libc::syscall(libc::SYS_tgkill, known.space, thread, libc::SIGSTOP) };
        }
    }

    fn end_thread(&mut self, thread: i32) {
        let known = self.threads.remove(&thread).expect("a thread ends once");
        if known.running {
            // SAFETY: no memory is involved.
            unsafe { libc::syscall(libc::SYS_tgkill, known.space, thread, libc::SIGSTOP) };
            wait(thread, 0);
        }
        loop {
            let mut registers = get(thread);
            (registers.rip, registers.rax, registers.rdi, registers.orig_rax) =
                (STUB, libc::SYS_exit as u64, 0, u64::MAX);
            set(thread, &registers);
            ptrace(libc::PTRACE_CONT, thread, 0, 0);
            if !matches!(wait(thread, 0), (found, status) if found == thread && libc::WIFSTOPPED(status)) {
                return;
            }
        }
    }

    fn used(&mut self, thread: i32) -> Duration {
        let process = self.threads[&thread].space;
        used_by(process as u32, thread as u32).unwrap_or_default()
    }

    fn next_event(&mut self, until: Option<Instant>, descriptors: &mut [libc::pollfd]) -> Event<i32> {
        for turn in 0u64.. {
            let (id, status) = wait(-1, libc::WNOHANG);
            if id > 0
                && self.threads.contains_key(&id)
                && let Some(event) = self.event(id, status)
            {
                return event;
            }
            if turn % 16 == 15 {
                // SAFETY: the host writes to as many entries as there are.
                unsafe { libc::poll(descriptors.as_mut_ptr(), descriptors.len() as u64, 0) };
                if descriptors.iter().any(|polled| polled.revents != 0) {
                    return Event::Ready;
                }
                if until.is_some_and(|until| until <= Instant::now()) {
                    return Event::Timeout;
                }
            }
            if turn > 400 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        unreachable!("the loop has no end")
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        for &space in self.spaces.keys() {
            // SAFETY: no memory is involved.
            unsafe { libc::kill(space, libc::SIGKILL) };
        }
        // SAFETY: nobody else has the mapping or the descriptor.
        unsafe {
            libc::munmap(self.memory.as_ptr().cast(), self.bytes() as usize);
            libc::close(self.descriptor);
        }
    }
}
