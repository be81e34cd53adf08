//! Processes that stand still.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Stops a process, and waits until it stands: the kernel stops its other threads only when one has taken the signal,
/// which takes as long as that one waits for a core.
#[track_caller]
pub(crate) fn stop(process: Pid) {
    kill_process(process, Signal::STOP).expect("it lives");
    let threads = format!("/proc/{}/task", process.as_raw_pid());
    let stands = || {
        std::fs::read_dir(&threads).expect("it lives").all(|thread| {
            let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat")));
            // A thread that has just ended has no file any more.
            stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T')))
        })
    };
    let started = Instant::now();
    while !stands() {
        assert!(started.elapsed() < Duration::from_secs(60), "{process:?} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}
