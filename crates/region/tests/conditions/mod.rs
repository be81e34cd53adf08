//! Waiting for what comes about, however long that takes on a busy machine.

use std::time::{Duration, Instant};

/// For what takes milliseconds on an idle machine. A test that runs into this has failed.
const LIMIT: Duration = Duration::from_secs(60);

#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
