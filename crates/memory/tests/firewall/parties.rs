//! A home, which is the test, and an importer, which is the same test in a process of its own: what they say to each other, and what each can do.

use std::io::{IoSlice, IoSliceMut, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use comb_memory::syscalls::{self, Hooks};
use comb_memory::{
    Block, Exports, Fault, Grain, Layout, Memory, MemoryOptions, Reason, Verdict, careful_copy_from,
    careful_copy_to, pointer,
};
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Which case this process is the importer of, and by which descriptor it talks.
const CASE: &str = "COMB_FIREWALL_CASE";
const LINE: &str = "COMB_FIREWALL_LINE";

/// Far longer than anything here takes: what hangs is to fail.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

pub(crate) const PAGE: u64 = 4096;
pub(crate) const PAGES: u64 = 600;
const OFFSET: u64 = 7 << 30;

/// Of the usual pages: shown, granted, never shown though it has content, and never touched.
pub(crate) const SHOWN: u64 = 1;
pub(crate) const GRANTED: u64 = 2;
pub(crate) const HIDDEN: u64 = 3;
pub(crate) const EMPTY: u64 = 4;
/// What a wild store leaves.
pub(crate) const WILD: u8 = 99;

/// In the test's own process `home` is done, and in another one `importer`.
pub(crate) fn between(name: &str, home: impl FnOnce(&mut Home), importer: impl FnOnce(Line)) {
    if std::env::var(CASE).is_ok_and(|case| case == name) {
        let line: RawFd = std::env::var(LINE).unwrap().parse().unwrap();
        // SAFETY: opened for this process by the one that started it.
        return importer(Line(unsafe { OwnedFd::from_raw_fd(line) }));
    }
    let importer = Other::start(name);
    let exports = Exports::create(PAGES * PAGE).expect("frames");
    let mut scene = Home { exports, importer, content: vec![0; 8] };
    home(&mut scene);
    scene.importer.ends_well(name);
}

/// One end of what they talk by.
pub(crate) struct Line(OwnedFd);

impl Line {
    pub(crate) fn say(&self, words: &str) {
        self.hand(words, &[]);
    }

    pub(crate) fn hand(&self, words: &str, descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let parts = [IoSlice::new(words.as_bytes())];
        rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL)
            .expect("the other listens");
    }

    #[track_caller]
    pub(crate) fn hear(&self) -> (String, Vec<OwnedFd>) {
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = rustix::net::recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let length = received.expect("the other says something").bytes;
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(handed) = message {
                descriptors.extend(handed);
            }
        }
        (String::from_utf8_lossy(&bytes[..length]).into_owned(), descriptors)
    }

    /// Words, or that nobody is there any more.
    pub(crate) fn has_something(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let mut waiting = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut waiting, Some(&Timespec::default())) == Ok(1)
    }

    #[track_caller]
    pub(crate) fn expect(&self, words: &str) {
        assert_eq!(self.hear().0, words);
    }
}

/// The importer's process, as its home has it.
pub(crate) struct Other {
    line: Line,
    pub(crate) child: Child,
    said: std::fs::File,
    /// It is to end so.
    ends_by: i32,
}

impl std::ops::Deref for Other {
    type Target = Line;
    fn deref(&self) -> &Line {
        &self.line
    }
}

impl Other {
    fn start(name: &str) -> Self {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(LONGEST_SILENCE)).unwrap();
        rustix::net::sockopt::set_socket_timeout(&theirs, Timeout::Recv, Some(LONGEST_SILENCE)).unwrap();
        let said = rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let said = std::fs::File::from(said);
        let inherited = theirs.as_raw_fd();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", name, "--nocapture", "--test-threads", "1"])
            .env(CASE, name)
            .env(LINE, inherited.to_string())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said.try_clone().unwrap());
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let line = BorrowedFd::borrow_raw(inherited);
                Ok(rustix::io::fcntl_setfd(line, rustix::io::FdFlags::empty())?)
            });
        }
        let child = command.spawn().unwrap();
        Self { line: Line(ours), child, said, ends_by: 0 }
    }

    /// Kills it, and returns when it is no more.
    pub(crate) fn kill(&mut self) {
        self.ends_by = libc::SIGKILL;
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Somebody else is to kill it.
    pub(crate) fn is_to_be_killed(&mut self) {
        self.ends_by = libc::SIGKILL;
    }

    pub(crate) fn process(&self) -> OwnedFd {
        pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).expect("not reaped yet")
    }

    fn said(&mut self) -> String {
        let mut text = String::new();
        self.said.rewind().unwrap();
        self.said.read_to_string(&mut text).unwrap();
        text
    }

    fn ends_well(&mut self, name: &str) {
        let limit = Instant::now() + LONGEST_SILENCE;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > limit {
                self.child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = self.child.wait().unwrap();
        let ended = (status.code(), status.signal().unwrap_or(0));
        let said = self.said();
        if self.ends_by == 0 {
            assert!(status.success() && said.contains("1 passed"), "{name}: {status}\n{said}");
        } else {
            assert_eq!(ended.1, self.ends_by, "{name}: {status}\n{said}");
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the importer said:\n{}", self.said());
        }
    }
}

pub(crate) struct Home {
    pub(crate) exports: Exports,
    pub(crate) importer: Other,
    /// What the first pages are to contain.
    content: Vec<u8>,
}

pub(crate) fn range(page: u64) -> std::ops::Range<u64> {
    page * PAGE..(page + 1) * PAGE
}

impl Home {
    /// Lets the importer in. What there is of its guard besides.
    pub(crate) fn let_in(&mut self) -> OwnedFd {
        self.importer.hand("frames", &[self.exports.file()]);
        let (address, mut handed) = self.importer.hear();
        let guard = handed.pop().expect("its guard");
        let second = guard.try_clone().unwrap();
        let process = self.importer.process();
        self.exports.admit(1, guard, address.parse().unwrap(), process).expect("guarded");
        self.importer.say("in");
        self.importer.expect("open");
        second
    }

    /// With pages as they are named above.
    pub(crate) fn usual(&mut self) -> OwnedFd {
        let second = self.let_in();
        for page in [0, SHOWN, GRANTED, HIDDEN, 5, 6, 7] {
            self.put(page, u8::try_from(page).unwrap() + 10);
        }
        self.exports.show(1, range(SHOWN).start..range(GRANTED).end).unwrap();
        // What lies around was shown as well, as it has frames: hidden again.
        for page in [HIDDEN, 5, 6, 7] {
            self.exports.take(&range(page)).unwrap();
            self.exports.put_back(&range(page));
        }
        self.exports.grant(1, range(GRANTED)).unwrap();
        self.importer.say("begin");
        second
    }

    pub(crate) fn put(&mut self, page: u64, byte: u8) {
        self.exports.copy_in(page * PAGE + 8, &[byte]);
        self.content[usize::try_from(page).unwrap()] = byte;
    }

    pub(crate) fn byte(&mut self, page: u64) -> u8 {
        let mut byte = [0];
        self.exports.copy_out(page * PAGE + 8, &mut byte);
        byte[0]
    }

    /// Nobody has stored where it was not granted, and nothing is gone.
    #[track_caller]
    pub(crate) fn is_as_it_was(&mut self) {
        for page in (0..8).filter(|&page| page != GRANTED) {
            let expected = self.content[usize::try_from(page).unwrap()];
            assert_eq!(self.byte(page), expected, "page {page}");
        }
    }

    #[track_caller]
    pub(crate) fn when_it_has_tried(&mut self) {
        self.importer.expect("tried");
        self.is_as_it_was();
    }
}

/// The importer's own side.
pub(crate) struct Importer {
    _memory: Memory,
    pub(crate) layout: Layout,
    pub(crate) line: Line,
    /// As an importer has it that did not close it.
    pub(crate) frames: Option<OwnedFd>,
    pub(crate) guard: Option<OwnedFd>,
}

fn stopped(_: Fault) -> Verdict {
    Verdict::Lost(Reason::Other("stopped"))
}

impl Importer {
    /// Comes in, and returns when the home has shown the usual pages.
    pub(crate) fn come_in(line: Line) -> Self {
        comb_memory::install(stopped).expect("the only one");
        let memory = Memory::reserve(MemoryOptions::default()).expect("a heap");
        let layout = Layout::new(OFFSET, PAGES * PAGE, 4096, Grain::Pages).expect("a layout");
        let (words, mut handed) = line.hear();
        assert_eq!(words, "frames");
        let frames = handed.pop().expect("frames");
        let guard = memory.import(&layout, frames.as_fd()).expect("mapped");
        line.hand(&layout.address(Block(0)).to_string(), &[guard.as_fd()]);
        line.expect("in");
        memory.open_import(&layout, true).expect("opened");
        line.say("open");
        line.expect("begin");
        Self { _memory: memory, layout, line, frames: Some(frames), guard: Some(guard) }
    }

    /// The same, with its system calls covered, and no descriptor left.
    pub(crate) fn covered(line: Line) -> Self {
        syscalls::cover(Hooks::default()).expect("covered");
        let importer = Self::come_in(line);
        Self { frames: None, guard: None, ..importer }
    }

    pub(crate) fn page(&self, page: u64) -> *mut u8 {
        pointer(self.layout.address(Block(page)) as u64)
    }

    pub(crate) fn place(&self, page: u64) -> *mut u8 {
        self.page(page).wrapping_add(8)
    }

    /// Whether a store is not stopped.
    pub(crate) fn stores(&self, page: u64) -> bool {
        careful_copy_to(&[WILD], self.place(page)).is_ok()
    }

    pub(crate) fn load(&self, page: u64) -> Option<u8> {
        let mut byte = [0];
        careful_copy_from(self.place(page), &mut byte).ok().map(|()| byte[0])
    }

    /// It stores what was granted and nothing else, however often it tries.
    #[track_caller]
    pub(crate) fn is_held(&self) {
        for page in [SHOWN, HIDDEN, EMPTY, 5] {
            assert!(!self.stores(page), "page {page}");
        }
        assert!(self.stores(GRANTED));
    }

    pub(crate) fn has_tried(&self) {
        self.line.say("tried");
    }

    /// Stays until it is killed.
    pub(crate) fn stays(&self) {
        // Its home may not come to that.
        std::thread::sleep(LONGEST_SILENCE);
    }
}

/// A store as a program makes it, by a process that has the same memory and may die of it: by which signal it does.
pub(crate) fn store_at(address: usize) -> Option<i32> {
    extern "C" fn store(address: *mut libc::c_void) -> i32 {
        // SAFETY: whatever comes of it comes to this process, and to the frames behind that address.
        unsafe { address.cast::<u8>().write_volatile(WILD) };
        0
    }
    let mut stack = vec![0_u8; 256 << 10];
    let top = stack.as_mut_ptr().wrapping_add(stack.len() - 64);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a stack of its own, and this thread waits.
    let child = unsafe { libc::clone(store, top.cast(), flags, address as *mut libc::c_void) };
    assert!(child > 0);
    how_it_ended(child)
}

/// The signal that a child has died of.
pub(crate) fn how_it_ended(child: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

/// The error number of a system call's result, 0 if there is none.
pub(crate) fn error(result: impl Into<i64>) -> i32 {
    if result.into() == -1 { std::io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
}

/// A system call from code that came after system calls were covered, that no file contains, and that is far from all other.
pub(crate) fn from_late_code(number: libc::c_long, arguments: [usize; 6]) -> isize {
    const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];
    const FAR: usize = 0x0500_0000_0000;
    static PLACE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let code = *PLACE.get_or_init(|| {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: new memory, which gets `syscall; ret`.
        unsafe {
            let code = libc::mmap(FAR as *mut _, 4096, protection, flags, -1, 0);
            assert_eq!(code as usize, FAR);
            code.cast::<[u8; 3]>().write(CODE);
        }
        FAR
    });
    let result: isize;
    // SAFETY: what stands there changes what is named here and nothing else.
    unsafe {
        std::arch::asm!(
            "call {code}",
            code = in(reg) code,
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

pub(crate) const NOT_PERMITTED: isize = -(libc::EPERM as isize);
