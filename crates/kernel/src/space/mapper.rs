//! A process that makes the host's calls that it is ordered to, one after the other, and nothing else: that of a space, and the stem.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Release, SeqCst};
use std::time::Duration;

use rustix::fs::tell;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::{SpaceError, host_error};
use crate::host::{self, Shared};
use crate::scheduling::Class;
use crate::stub::layout::*;

/// A mapper that does not do in this time what takes microseconds has been harmed by its own space, or starved.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file's position is not negative.
const MOST_SEQUENCES: u32 = 0x7fff_ffff;

/// What a mapper is told, and where it reports.
#[derive(Debug)]
pub(super) struct Orders {
    /// Orders, hints, and translations.
    pub(super) control: Shared,
    /// The same, whose position is what the mapper reports.
    pub(super) file: OwnedFd,
    sequence: u32,
}

impl Orders {
    pub(super) fn new() -> Result<Self, SpaceError> {
        let file = host::memory(c"comb-orders", 3 * PAGE_BYTES).map_err(host_error("give memory"))?;
        let control = Shared::map(file.as_fd(), 3 * PAGE).map_err(host_error("map memory"))?;
        let report = u32::try_from(file.as_raw_fd()).expect("descriptors are not negative");
        control.word(ORDERS_REPORT).store(report, Release);
        Ok(Self { control, file, sequence: 0 })
    }

    /// Writes down calls, each with what it is to return behind its arguments.
    fn write(&self, calls: &[[u64; 8]]) {
        assert!(calls.len() <= MOST_ORDERS, "as many as there is room for");
        for (index, call) in calls.iter().enumerate() {
            for (word, value) in call.iter().enumerate() {
                self.control.long(ORDERS_CALLS + index * ORDER_BYTES + word * 8).store(*value, Release);
            }
        }
        self.control.word(ORDERS_COUNT).store(u32::try_from(calls.len()).expect("a few"), Release);
    }

    /// The first are none, and there before anybody waits for them: that they are done shows that a mapper is there.
    pub(super) fn begin_first(&mut self) {
        self.begin(1);
    }

    /// The number of the next ones. None are number 0: that is what was reported before any.
    fn next(&self) -> u32 {
        self.sequence % MOST_SEQUENCES + 1
    }

    fn begin(&mut self, sequence: u32) {
        self.sequence = sequence;
        self.control.word(ORDERS_SEQUENCE).store(sequence, SeqCst);
    }

    /// They are what another mapper is told next: its copy goes on with these when it has them in their place.
    pub(super) fn continue_from(&mut self, other: &Mapper, calls: &[[u64; 8]]) {
        self.write(calls);
        self.begin(other.orders.next());
    }
}

/// One that is there, and ends when this does.
#[derive(Debug)]
pub(super) struct Mapper {
    process: OwnedFd,
    pid: Pid,
    pub(super) orders: Orders,
    is_harmed: bool,
    /// On which it runs: that of the supervisor, who sleeps while it works. To wake somebody on another processor takes five times as long.
    pub(super) processor: usize,
}

impl Mapper {
    /// A child of this process that has just begun to follow these.
    pub(super) fn of(pid: Pid, orders: Orders) -> Result<Self, SpaceError> {
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| {
            let _ = kill_process(pid, Signal::KILL);
            wait_for(&WaitId::Pid(pid));
            host_error("give a process's descriptor")(error)
        })?;
        Ok(Self { process, pid, orders, is_harmed: false, processor: usize::MAX })
    }

    /// Its process's number on the host.
    pub(super) fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Has it make these calls, one after the other, each of which is to return what stands behind its arguments. What it reports, no program
    /// of the space can: the lower half of the last result.
    pub(super) fn order(&mut self, action: &'static str, calls: &[[u64; 8]]) -> Result<u32, SpaceError> {
        self.follow();
        self.orders.write(calls);
        self.orders.begin(self.orders.next());
        host::wake(self.orders.control.word(ORDERS_SEQUENCE));
        self.finish(action)
    }

    /// Waits until it has done what it was told.
    pub(super) fn finish(&self, action: &'static str) -> Result<u32, SpaceError> {
        let result = self.wait_for_report()?;
        // No error is as low as an address of a page.
        match i32::try_from(result.wrapping_neg()) {
            Ok(error @ 1..4096) => Err(SpaceError::Host { action, error: Errno::from_raw_os_error(error) }),
            _ => Ok(result),
        }
    }

    /// Has it where the supervisor is.
    fn follow(&mut self) {
        let processor = sched_getcpu();
        if processor != self.processor {
            let mut set = CpuSet::new();
            set.set(processor);
            // Where this is not permitted, it takes longer.
            let _ = sched_setaffinity(Some(self.pid), &set);
            self.processor = processor;
        }
    }

    /// Waits until it has reported of its orders: the lower half of the last result. The word that is waited at is a hint, which programs of the space can write
    /// as well.
    fn wait_for_report(&self) -> Result<u32, SpaceError> {
        let Orders { control, file, sequence } = &self.orders;
        let (done, awaited) = (control.word(4096 + RESULTS_DONE), control.word(ORDERS_AWAITED));
        let since = std::time::Instant::now();
        loop {
            awaited.swap(1, SeqCst);
            let seen = done.load(SeqCst);
            let report = tell(file).map_err(host_error("tell a position"))?;
            if report >> 32 == u64::from(*sequence) {
                awaited.swap(0, AcqRel);
                return Ok(u32::try_from(report & 0xffff_ffff).expect("half of it"));
            }
            if !host::wait(done, seen, Some(Duration::from_millis(20))) {
                if self.has_ended() {
                    return Err(SpaceError::Gone);
                }
                // Others do not let it have a processor. It runs nothing but orders.
                Class::STOPPING.apply(self.number());
            }
            if since.elapsed() > PATIENCE {
                return Err(SpaceError::Gone);
            }
        }
    }

    /// Whether its process has ended.
    pub(super) fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut ends = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut ends, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0)
    }

    /// Ends it: who uses it has found that it does not do what it is told.
    pub(super) fn end(&mut self) {
        self.is_harmed = true;
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// The same, and waits until it has.
    pub(super) fn end_now(&mut self) {
        self.end();
        wait_for(&WaitId::PidFd(self.process.as_fd()));
    }

    /// Ends when it does.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Drop for Mapper {
    /// Nothing of a space is visible any more: that its process has ended can be heard of later, but for one that harmed itself.
    fn drop(&mut self) {
        if self.is_harmed {
            self.end_now();
        } else {
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            bury();
            if let Ok(mut dying) = DYING.lock() {
                dying.extend(self.process.try_clone());
            }
        }
    }
}

fn wait_for(process: &WaitId<'_>) {
    while let Err(Errno::INTR) = waitid(process.clone(), WaitIdOptions::EXITED) {}
}

/// Processes that are ending.
static DYING: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Waits for those that have ended.
fn bury() {
    if let Ok(mut dying) = DYING.lock() {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        dying.retain(|process| matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None)));
    }
}
