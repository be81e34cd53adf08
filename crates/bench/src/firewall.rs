//! What the firewall of named regions costs: a right to store to a page of another cell's memory, and taking it away again (Hive, section 4.2).
//!
//! The importer is a process of its own, which loads from the pages all the time, on another core if there is one: a revoke has to reach it there.
#![expect(unsafe_code, reason = "a descriptor that is inherited")]

use std::hint::black_box;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use comb_memory::{
    Block, Exports, Fault, Grain, Layout, Memory, MemoryOptions, Reason, Verdict, careful_copy_from,
};
use comb_net::agent::protocol;
use comb_region::Task;
use comb_region::named::Attaching;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cell_region::{Cell, STORED};
use crate::memory_side::in_no_order;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What the importer's process is to do, and by which descriptor it talks to its home.
const ROLE: &str = "COMB_BENCH_FIREWALL";

const PAGE: u64 = 4096;
const PAGES: u64 = 1000;
/// Each is measured so often; the median counts.
const TIMES: usize = 101;

/// One figure, in nanoseconds, beside what it was to be.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What was measured.
    pub test: &'static str,
    /// How long it takes.
    pub nanoseconds: f64,
    /// As planned.
    pub goal_nanoseconds: f64,
}

/// Measures. The program that calls this calls [`be_an_importer`] first thing, for it is started once more.
pub fn rows() -> Outcome<Vec<Row>> {
    let row = |test, nanoseconds, goal_us: f64| Row { test, nanoseconds, goal_nanoseconds: goal_us * 1e3 };
    let mut home = Direct::begin()?;
    let mut rows = vec![
        row("grant, by the home", home.grant()?, 3.0),
        row("revoke 1 page", home.revoke(1)?, 20.0),
        row("revoke 1000 contiguous pages", home.revoke(PAGES)?, 300.0),
        row("revoke 1000 pages that do not touch", home.revoke_apart()?, f64::NAN),
        row("take 1 page away, with its content", home.take()?, f64::NAN),
    ];
    drop(home);
    rows.insert(
        1,
        row("grant, from the store that is stopped to the next instruction", first_store()?, 10.0),
    );
    Ok(rows)
}

/// In a process that [`rows`] has started, does what it is for, and says so.
pub fn be_an_importer() -> Outcome<bool> {
    match std::env::var(ROLE).ok().as_deref() {
        None => Ok(false),
        Some("stores") => store_first().map(|()| true),
        Some(line) => load_for_ever(line.parse()?),
    }
}

/// A home without a supervisor, and its importer.
struct Direct {
    exports: Exports,
    importer: Child,
    _line: OwnedFd,
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.importer.kill();
        let _ = self.importer.wait();
    }
}

fn range(pages: std::ops::Range<u64>) -> std::ops::Range<u64> {
    pages.start * PAGE..pages.end * PAGE
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}

impl Direct {
    fn begin() -> Outcome<Self> {
        let (line, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let inherited = theirs.as_raw_fd();
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, inherited.to_string()).stdin(Stdio::null());
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                Ok(rustix::io::fcntl_setfd(BorrowedFd::borrow_raw(inherited), rustix::io::FdFlags::empty())?)
            });
        }
        let importer = command.spawn()?;
        let mut exports = Exports::create(PAGES * PAGE)?;
        protocol::send(&line, &(), &[exports.file()])?;
        let (address, mut handed) = protocol::receive::<u64>(&line)?;
        let guard = handed.pop().ok_or("no guard")?;
        let process = pidfd_open(Pid::from_child(&importer), PidfdFlags::empty())?;
        exports.admit(1, guard, usize::try_from(address)?, process)?;
        protocol::send(&line, &(), &[])?;
        for page in 0..PAGES {
            exports.copy_in(page * PAGE, &[1]);
        }
        exports.show(1, range(0..PAGES))?;
        // It has them all by now.
        std::thread::sleep(Duration::from_millis(100));
        Ok(Self { exports, importer, _line: line })
    }

    fn grant_all(&mut self) -> Outcome<()> {
        (0..PAGES).try_for_each(|page| self.exports.grant(1, range(page..page + 1)))?;
        Ok(())
    }

    fn grant(&mut self) -> Outcome<f64> {
        let mut times = Vec::new();
        for page in 0..PAGES {
            let since = Instant::now();
            self.exports.grant(1, range(page..page + 1))?;
            times.push(since.elapsed());
        }
        self.exports.revoke(&range(0..PAGES));
        Ok(median(times))
    }

    fn revoke(&mut self, pages: u64) -> Outcome<f64> {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            self.grant_all()?;
            let since = Instant::now();
            self.exports.revoke(&range(0..pages));
            times.push(since.elapsed());
        }
        self.exports.revoke(&range(0..PAGES));
        Ok(median(times))
    }

    /// Every second one was granted: as many system calls.
    fn revoke_apart(&mut self) -> Outcome<f64> {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            (0..PAGES).step_by(2).try_for_each(|page| self.exports.grant(1, range(page..page + 1)))?;
            let since = Instant::now();
            self.exports.revoke(&range(0..PAGES));
            times.push(2 * since.elapsed());
        }
        Ok(median(times))
    }

    fn take(&mut self) -> Outcome<f64> {
        let mut times = Vec::new();
        for page in 0..PAGES {
            self.exports.grant(1, range(page..page + 1))?;
            let since = Instant::now();
            self.exports.take(&range(page..page + 1))?;
            times.push(since.elapsed());
            self.exports.put_back(&range(page..page + 1));
        }
        self.exports.show(1, range(0..PAGES))?;
        Ok(median(times))
    }
}

fn stopped(_: Fault) -> Verdict {
    Verdict::Lost(Reason::Other("it is away for a moment"))
}

fn load_for_ever(line: i32) -> Outcome<bool> {
    // SAFETY: opened for this process by the one that started it.
    let line = unsafe { OwnedFd::from_raw_fd(line) };
    comb_memory::install(stopped)?;
    let memory = Memory::reserve(MemoryOptions::default())?;
    let layout = Layout::new(7 << 30, PAGES * PAGE, 4096, Grain::Pages)?;
    let ((), mut handed) = protocol::receive(&line)?;
    let guard = memory.import(&layout, handed.pop().ok_or("no frames")?.as_fd())?;
    protocol::send(&line, &(layout.address(Block(0)) as u64), &[guard.as_fd()])?;
    drop(guard);
    let _: ((), _) = protocol::receive(&line)?;
    memory.open_import(&layout, true)?;
    let mut byte = [0];
    loop {
        for page in 0..PAGES {
            let _ = careful_copy_from(comb_memory::pointer(layout.address(Block(page)) as u64), &mut byte);
            black_box(byte);
        }
    }
}

/// By way of a home as cells have it: a question, and its answer.
fn first_store() -> Outcome<f64> {
    let cell = Cell::begin()?;
    let run = Command::new(std::env::current_exe()?)
        .env(ROLE, "stores")
        .env("COMB_RUNTIME_DIR", cell.directory())
        .stderr(Stdio::inherit())
        .output()?;
    Ok(String::from_utf8(run.stdout)?.trim().parse()?)
}

fn store_first() -> Outcome<()> {
    let task = Task::join()?;
    let region = task.attach(STORED, &Attaching::default())?;
    let words = usize::try_from(PAGE / 8)?;
    let pages = usize::try_from(region.bytes() / PAGE)?;
    let array = region.array::<u64>(0, pages * words).ok_or("too small")?;
    // Shown before: this is about the right alone.
    (0..pages).for_each(|page| _ = black_box(array.get(page * words)));
    let each = in_no_order(pages, |page| array.set(page * words, 1));
    println!("{}", each[pages / 2]);
    Ok(())
}
