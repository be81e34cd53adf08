//! What the firewall of named regions costs: a right to store to a page of another cell's memory, and taking it away again (Hive, section 4.2).
//!
//! The importer is a process of its own, which loads from the pages all the time, on another core if there is one: a revoke has to reach it there.
#![expect(unsafe_code, reason = "a descriptor that is inherited")]

use std::hint::black_box;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::{Duration, Instant};

use comb_memory::{
    Block, Exports, Fault, Grain, Layout, Memory, MemoryOptions, Reason, Verdict, careful_copy_from,
    careful_copy_to,
};
use comb_net::agent::protocol;
use comb_region::Task;
use comb_region::named::Attaching;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::measured::Measured;
use super::role;
use crate::cell_region::{Cell, STORED};
use crate::memory_side::in_no_order;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PAGE: u64 = 4096;
const PAGES: u64 = 1000;
/// Each is measured so often.
const TIMES: usize = 101;
/// Revokes after which it is looked for late stores.
const TRIALS: usize = 10_000;
const FULL_TRIALS: usize = 1_000_000;
/// A store that was under way when a revoke began has long landed then.
const LONGEST_UNDER_WAY: Duration = Duration::from_micros(20);
/// An importer that stores all the time has had a core by then.
const CORE_LIMIT: Duration = Duration::from_secs(10);

/// Importers whose first touches are measured.
const IMPORTERS: usize = 5;
/// What a first touch brings.
const PAGES_AROUND: u64 = 16;

/// By samples `grant`, `revoke 1`, `revoke 1000`, `revoke apart`, `take`, `first store`, in nanoseconds; `trials` and `late stores` are counts.
pub(super) fn measure(measured: &mut Measured, full: bool) -> Outcome<()> {
    let mut home = Direct::begin(role::LOADS)?;
    measured.extend("grant", home.grant()?);
    measured.extend("revoke 1", home.revoke(1)?);
    measured.extend("revoke 1000", home.revoke(PAGES)?);
    measured.extend("revoke apart", home.revoke_apart()?);
    measured.extend("take", home.take()?);
    drop(home);
    measured.extend("first store", first_store()?);
    let trials = if full { FULL_TRIALS } else { TRIALS };
    let late = Direct::begin(role::STORES)?.late_stores(trials)?;
    measured.add("trials", trials as f64);
    measured.add("late stores", late as f64);
    Ok(())
}

/// A home without a supervisor, and its importer.
struct Direct {
    exports: Exports,
    importer: Child,
    line: OwnedFd,
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

fn nanoseconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|time| time.as_nanos() as f64).collect()
}

impl Direct {
    /// With an importer that loads, or stores, all the time.
    fn begin(does: &str) -> Outcome<Self> {
        let mut home = Self::that_shows_nothing(does)?;
        home.exports.show(1, range(0..PAGES))?;
        // It has them all by now.
        std::thread::sleep(Duration::from_millis(100));
        Ok(home)
    }

    fn that_shows_nothing(does: &str) -> Outcome<Self> {
        let (line, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let inherited = theirs.as_raw_fd();
        let mut command = role::command(&format!("{does} {inherited}"))?;
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
        Ok(Self { exports, importer, line })
    }

    /// What each touch took until the importer was let go on without an entry, and then what it takes to make the entries.
    fn first_touches(&mut self) -> Outcome<[Vec<f64>; 2]> {
        let (stopped, _): (Vec<u64>, _) = protocol::receive(&self.line)?;
        let mut shown = Vec::new();
        for page in (0..PAGES).step_by(usize::try_from(PAGES_AROUND)?) {
            let since = Instant::now();
            self.exports.show(1, range(page..page + 1))?;
            shown.push(since.elapsed());
        }
        Ok([stopped.into_iter().map(|time| time as f64).collect(), nanoseconds(&shown)])
    }

    fn grant_all(&mut self) -> Outcome<()> {
        (0..PAGES).try_for_each(|page| self.exports.grant(1, range(page..page + 1)))?;
        Ok(())
    }

    fn grant(&mut self) -> Outcome<Vec<f64>> {
        let mut times = Vec::new();
        for page in 0..PAGES {
            let since = Instant::now();
            self.exports.grant(1, range(page..page + 1))?;
            times.push(since.elapsed());
        }
        self.exports.revoke(&range(0..PAGES));
        Ok(nanoseconds(&times))
    }

    fn revoke(&mut self, pages: u64) -> Outcome<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            self.grant_all()?;
            let since = Instant::now();
            self.exports.revoke(&range(0..pages));
            times.push(since.elapsed());
        }
        self.exports.revoke(&range(0..PAGES));
        Ok(nanoseconds(&times))
    }

    /// Every second one was granted: as many system calls.
    fn revoke_apart(&mut self) -> Outcome<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            (0..PAGES).step_by(2).try_for_each(|page| self.exports.grant(1, range(page..page + 1)))?;
            let since = Instant::now();
            self.exports.revoke(&range(0..PAGES));
            times.push(2 * since.elapsed());
        }
        Ok(nanoseconds(&times))
    }

    /// Grants, lets the importer store, revokes, and looks whether the page still changes then.
    fn late_stores(&mut self, trials: usize) -> Outcome<usize> {
        let mut late = 0;
        for _ in 0..trials {
            let before = self.first_word();
            self.exports.grant(1, range(0..1))?;
            let since = Instant::now();
            while self.first_word() == before {
                if since.elapsed() > CORE_LIMIT {
                    return Err("the importer does not store what it may".into());
                }
                std::hint::spin_loop();
            }
            self.exports.revoke(&range(0..1));
            let revoked = Instant::now();
            let after = self.first_word();
            let mut is_late = false;
            while !is_late && revoked.elapsed() < LONGEST_UNDER_WAY {
                is_late = self.first_word() != after;
            }
            late += usize::from(is_late);
        }
        Ok(late)
    }

    fn first_word(&mut self) -> u64 {
        let mut word = [0; 8];
        self.exports.copy_out(0, &mut word);
        u64::from_le_bytes(word)
    }

    fn take(&mut self) -> Outcome<Vec<f64>> {
        let mut times = Vec::new();
        for page in 0..PAGES {
            self.exports.grant(1, range(page..page + 1))?;
            let since = Instant::now();
            self.exports.take(&range(page..page + 1))?;
            times.push(since.elapsed());
            self.exports.put_back(&range(page..page + 1));
        }
        self.exports.show(1, range(0..PAGES))?;
        Ok(nanoseconds(&times))
    }
}

/// Two parts of a fault that hits in another cell, by samples `stopped` and `shown`, in nanoseconds: the kernel stops a thread, which goes on; a home makes
/// the entries of 64 KB.
pub(super) fn parts_of_a_fault(measured: &mut Measured) -> Outcome<()> {
    for _ in 0..IMPORTERS {
        let [stopped, shown] = Direct::that_shows_nothing(role::IS_STOPPED)?.first_touches()?;
        measured.extend("stopped", stopped);
        measured.extend("shown", shown);
    }
    Ok(())
}

/// The importer's side of [`parts_of_a_fault`].
pub(super) fn be_stopped(line: i32) -> Outcome<()> {
    let (layout, line) = import_by(line)?;
    let pieces = usize::try_from(PAGES / PAGES_AROUND)?;
    let each = in_no_order(pieces, |piece| {
        let page = Block(piece as u64 * PAGES_AROUND);
        let touched = careful_copy_from(comb_memory::pointer(layout.address(page) as u64), &mut [0]);
        assert!(touched.is_err(), "nothing was shown");
    });
    protocol::send(&line, &each, &[])?;
    // Its home has entries made in it meanwhile, and ends it.
    let _ = protocol::receive::<()>(&line);
    Ok(())
}

fn stopped(_: Fault) -> Verdict {
    Verdict::Lost(Reason::Other("it is away for a moment"))
}

/// The importer's side of [`Direct`], which is given by `line`.
fn import(line: i32) -> Outcome<Layout> {
    let (layout, line) = import_by(line)?;
    std::mem::forget(line);
    Ok(layout)
}

fn import_by(line: i32) -> Outcome<(Layout, OwnedFd)> {
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
    // For as long as this process lives.
    std::mem::forget(memory);
    Ok((layout, line))
}

pub(super) fn load_for_ever(line: i32) -> Outcome<()> {
    let layout = import(line)?;
    let mut byte = [0];
    loop {
        for page in 0..PAGES {
            let _ = careful_copy_from(comb_memory::pointer(layout.address(Block(page)) as u64), &mut byte);
            black_box(byte);
        }
    }
}

/// Into the first page, another number each time.
pub(super) fn store_for_ever(line: i32) -> Outcome<()> {
    let layout = import(line)?;
    let first = comb_memory::pointer(layout.address(Block(0)) as u64);
    for number in 1_u64.. {
        let _ = careful_copy_to(&number.to_le_bytes(), first);
    }
    Ok(())
}

/// By way of a home as cells have it: a question, and its answer.
fn first_store() -> Outcome<Vec<f64>> {
    let cell = Cell::begin()?;
    let run = role::command(role::STORES_FIRST)?.env("COMB_RUNTIME_DIR", cell.directory()).output()?;
    role::numbers(&run)
}

pub(super) fn store_first() -> Outcome<()> {
    let task = Task::join()?;
    let region = task.attach(STORED, &Attaching::default())?;
    let words = usize::try_from(PAGE / 8)?;
    let pages = usize::try_from(region.bytes() / PAGE)?;
    let array = region.array::<u64>(0, pages * words).ok_or("too small")?;
    // Shown before: this is about the right alone.
    (0..pages).for_each(|page| _ = black_box(array.get(page * words)));
    let each = in_no_order(pages, |page| array.set(page * words, 1));
    each.iter().for_each(|nanoseconds| println!("{nanoseconds}"));
    Ok(())
}
