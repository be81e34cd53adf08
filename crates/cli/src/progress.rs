//! A line that says what is being waited for: on terminals only, gone when it is over.

use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::output::Output;

/// Seconds are shown.
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// The line is there until this is dropped.
pub(crate) struct Progress {
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Says what is done, such as `starting 4 cells`.
    pub(crate) fn begin(output: Output, what: impl Into<String>) -> Self {
        if !output.shows_progress() {
            return Self { shown: None };
        }
        let what = what.into();
        let (over, is_over) = mpsc::channel();
        let show = move || {
            let since = Instant::now();
            let write = |text: &str| {
                let mut error = std::io::stderr().lock();
                let _ = write!(error, "\r\x1b[K{text}").and_then(|()| error.flush());
            };
            loop {
                match since.elapsed().as_secs() {
                    0 => write(&format!("{what} …")),
                    seconds => write(&format!("{what} … {seconds} s")),
                }
                if is_over.recv_timeout(BETWEEN_LINES) != Err(RecvTimeoutError::Timeout) {
                    return write("");
                }
            }
        };
        // Without a thread nothing is shown, and all else goes on.
        let thread = std::thread::Builder::new().name("comb-progress".into()).spawn(show);
        Self { shown: thread.ok().map(|thread| (over, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.shown.take() {
            drop(over);
            let _ = thread.join();
        }
    }
}
