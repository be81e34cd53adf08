//! Processes, as `/proc` and process descriptors show them.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// `R`, `S`, `Z` …
    pub state: char,
    /// Processor time used, in clock ticks.
    pub cpu_ticks: u64,
    /// When it started, in clock ticks since boot. With the number it names one process for ever: a number alone is
    /// given again.
    pub start_ticks: u64,
    /// Resident memory, shared included.
    pub resident_pages: u64,
}

/// Reads a line of `/proc/PID/stat`. The name in it is what the program chose: blanks, parentheses, newlines.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(')')?;
    // The first of these is the third of proc(5).
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        cpu_ticks: number(14)?.checked_add(number(15)?)?,
        start_ticks: number(22)?,
        resident_pages: number(24)?,
    })
}

/// Asks the kernel. `None`: there is no such process.
pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

impl Stat {
    /// Processor time used.
    pub fn cpu(&self) -> Duration {
        Duration::from_millis(self.cpu_ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second())
    }

    /// How long it has been running.
    pub fn uptime(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now_ms = u64::try_from(now.tv_sec).unwrap_or(0) * 1000
            + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000;
        let start_ms = self.start_ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second();
        Duration::from_millis(now_ms.saturating_sub(start_ms))
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_pages.saturating_mul(rustix::param::page_size() as u64)
    }
}

/// Opens a process by its number, if it is still the one that started then.
pub fn open(pid: u32, start_ticks: u64) -> Option<OwnedFd> {
    let descriptor = open_number(pid)?;
    // Looked at after it was opened: what the descriptor names cannot change any more.
    let stat = stat(pid)?;
    (stat.start_ticks == start_ticks && stat.state != 'Z').then_some(descriptor)
}

/// Memory that new processes can have.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Opens whatever process has that number.
pub fn open_number(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Kills the process; one that is gone already is as good as killed.
pub fn kill(process: &OwnedFd) {
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
}

/// Asks the process to end.
pub fn tell_to_end(process: &OwnedFd) {
    let _ = rustix::process::pidfd_send_signal(process, Signal::TERM);
}

/// Stops the process, as a debugger does. `false`: it cannot be.
pub fn stop(process: &OwnedFd) -> bool {
    rustix::process::pidfd_send_signal(process, Signal::STOP).is_ok()
}

/// How a process has ended, if it is a child of ours; and nothing is left of it then.
pub fn reap(process: &OwnedFd) -> Option<ExitStatus> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let status =
        waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok()??;
    let raw = status.exit_status().map(|code| code << 8).or(status.terminating_signal())?;
    Some(ExitStatus::from_raw(raw))
}

/// Waits until the process has ended. `false`: it has not, within the limit.
pub fn wait_for_end(process: &OwnedFd, limit: Duration) -> bool {
    let mut waiting = [PollFd::new(process, PollFlags::IN)];
    let limit = limit.try_into().expect("a limit of seconds");
    loop {
        match rustix::event::poll(&mut waiting, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_is_read_whatever_the_program_calls_itself() {
        let rest =
            "S 1 2 3 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 123456 9000000 777 18446744073709551615 1 1";
        for name in ["comb", "a) R 9 9", "new\nline", "(((", ""] {
            let stat = parse_stat(&format!("42 ({name}) {rest}")).unwrap();
            let expected = Stat { state: 'S', cpu_ticks: 300, start_ticks: 123_456, resident_pages: 777 };
            assert_eq!(stat, expected, "{name:?}");
        }
    }

    #[test]
    fn a_cut_line_is_no_process() {
        for text in [
            "",
            "42",
            "42 (comb)",
            "42 (comb) S 1 2 3",
            "42 (comb) S 1 2 3 0 -1 1 1 0 0 0 x 50 0 0 20 0 3 0 1 2 3",
        ] {
            assert_eq!(parse_stat(text), None, "{text:?}");
        }
    }

    #[test]
    fn this_process_is_found_and_an_earlier_one_of_its_number_is_not() {
        let pid = std::process::id();
        let stat = stat(pid).unwrap();
        assert!(stat.resident_bytes() > 0);
        assert!(open(pid, stat.start_ticks).is_some());
        assert!(open(pid, stat.start_ticks + 1).is_none());
    }

    #[test]
    fn a_killed_process_ends() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = open_number(child.id()).unwrap();
        assert!(!wait_for_end(&process, Duration::ZERO));
        kill(&process);
        assert!(wait_for_end(&process, Duration::from_secs(10)));
        child.wait().unwrap();
    }
}
