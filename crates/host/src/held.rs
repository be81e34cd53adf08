//! Descriptors that an agent before this one kept for its cells, and that are held until the cells have handed over their own once more: nothing that is
//! guarded opens in between, whatever becomes of the cells.
//!
//! They come in one of two ways. An agent that makes room for another program, in its own process, leaves them open and says which they are. And a
//! service manager that was given them (sd_notify(3), `FDSTORE`) hands them to the next agent when one was killed.
#![expect(unsafe_code, reason = "takes descriptors by their numbers")]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::FdFlags;

/// What says which they are, between two programs of one process.
pub(crate) const VARIABLE: &str = "COMB_HELD_DESCRIPTORS";
/// By then every cell has seen that its agent is another, or has ended for want of one.
const HOLD: Duration = Duration::from_secs(15);
/// A service manager's begin with this one.
const FIRST_OF_MANAGER: RawFd = 3;
/// More than an agent ever keeps.
const MOST: usize = 65_536;

/// What a number stands for in this process, if it is of a kind that agents keep.
fn is_kept(number: RawFd) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
    let target = target.to_string_lossy().into_owned();
    target.starts_with("/memfd:") || target == "anon_inode:[userfaultfd]"
}

/// Leaves open what this agent keeps, for the program that it becomes: their numbers, in words.
pub(crate) fn pass_on() -> String {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let numbers: Vec<RawFd> = numbers.filter(|&number| number > 2 && is_kept(number)).collect();
    let mut words = Vec::new();
    for number in numbers {
        // SAFETY: it was open a moment ago, and nobody closes what is kept while the one thread of the agent is here; it is borrowed for this call alone.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_setfd(descriptor, FdFlags::empty()).is_ok() {
            words.push(number.to_string());
        }
    }
    words.join(",")
}

/// Closed again with the next program that is started, as all others are.
pub(crate) fn take_back(words: &str) {
    for number in numbers(words) {
        // SAFETY: as in `pass_on`, whose numbers these are.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
}

fn numbers(words: &str) -> Vec<RawFd> {
    words.split(',').filter_map(|word| word.parse().ok()).filter(|&number| number > 2).take(MOST).collect()
}

/// A service manager's, if this process is meant.
fn of_manager(pid: Option<String>, count: Option<String>) -> Vec<RawFd> {
    let is_ours = pid.and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    let count: RawFd = count.filter(|_| is_ours).and_then(|count| count.parse().ok()).unwrap_or(0);
    (FIRST_OF_MANAGER..FIRST_OF_MANAGER.saturating_add(count)).take(MOST).collect()
}

/// Takes what there is, before this process has opened anything, and holds it for a while.
pub(crate) fn hold() {
    let variable = |name: &str| std::env::var(name).ok();
    let mut all = numbers(&variable(VARIABLE).unwrap_or_default());
    all.extend(of_manager(variable("LISTEN_PID"), variable("LISTEN_FDS")));
    all.sort_unstable();
    all.dedup();
    let held: Vec<OwnedFd> = all
        .into_iter()
        .filter(|&number| is_kept(number))
        .map(|number| {
            // SAFETY: it is open, and of a kind that nothing in this process has made: this is the first that is done in it. So it is nobody's.
            let held = unsafe { OwnedFd::from_raw_fd(number) };
            let _ = rustix::io::fcntl_setfd(&held, FdFlags::CLOEXEC);
            held
        })
        .collect();
    if held.is_empty() {
        return;
    }
    // Without a thread they are held for ever, which harms nobody but takes memory.
    let let_go = move || {
        std::thread::sleep(HOLD);
        drop(held);
    };
    let _ = std::thread::Builder::new().name("comb-holds".to_owned()).spawn(let_go);
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn only_what_agents_keep_is_passed_on() {
        let kept = rustix::fs::memfd_create("comb-held", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        let words = pass_on();
        let passed = numbers(&words);
        assert!(passed.contains(&kept.as_raw_fd()) && !passed.contains(&other.as_raw_fd()), "{words}");
        assert!(rustix::io::fcntl_getfd(&kept).unwrap().is_empty());
        take_back(&words);
        assert_eq!(rustix::io::fcntl_getfd(&kept).unwrap(), FdFlags::CLOEXEC);
    }

    #[test]
    fn a_managers_are_taken_by_whom_they_are_for() {
        let own = std::process::id().to_string();
        assert_eq!(of_manager(Some(own.clone()), Some("2".to_owned())), [3, 4]);
        assert!(of_manager(Some("1".to_owned()), Some("2".to_owned())).is_empty());
        assert!(of_manager(None, Some("2".to_owned())).is_empty());
        assert!(of_manager(Some(own), Some("many".to_owned())).is_empty());
        assert!(numbers("0,1,2,x,,-4").is_empty(), "what is everybody's is nobody's");
    }
}
