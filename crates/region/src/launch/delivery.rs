//! How far what is sent to other hosts has come.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What takes less needs no telling.
const QUIET: Duration = Duration::from_secs(1);

/// What goes to one host. Threads that send keep it, and the launcher looks.
#[derive(Debug)]
pub(super) struct Delivery {
    sent_bytes: AtomicU64,
    all_bytes: AtomicU64,
    moved: Mutex<Instant>,
    /// Whether comb is at work there.
    is_begun: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Delivery {
    pub(super) fn new() -> Self {
        Self {
            sent_bytes: AtomicU64::new(0),
            all_bytes: AtomicU64::new(0),
            moved: Mutex::new(Instant::now()),
            is_begun: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// So much more is to go there.
    pub(super) fn expect(&self, bytes: u64) {
        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So much has gone.
    pub(super) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When something went there last.
    pub(super) fn moved(&self) -> Instant {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) {
        self.is_begun.store(true, Ordering::Release);
    }

    pub(super) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// It cannot go on, by our own fault.
    pub(super) fn fail(&self, reason: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Tells a terminal of deliveries that take long, in one line that goes again.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) deliveries: Vec<Arc<Delivery>>,
    began: Instant,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { deliveries: Vec::new(), began: Instant::now(), is_shown: false }
    }

    pub(super) fn show(&mut self) {
        if self.began.elapsed() < QUIET || !std::io::stderr().is_terminal() {
            return;
        }
        if let Some(line) = self.line() {
            self.is_shown = true;
            let _ = write!(std::io::stderr(), "\rcomb: {line}\x1b[K");
        }
    }

    /// Nothing where all has gone.
    fn line(&self) -> Option<String> {
        let of = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        let (mut sent, mut all, mut hosts) = (0, 0, 0);
        for delivery in &self.deliveries {
            let (gone, wanted) = (of(&delivery.sent_bytes), of(&delivery.all_bytes));
            (sent, all) = (sent + gone, all + wanted);
            hosts += u32::from(gone < wanted);
        }
        let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
        let plural = if hosts == 1 { "" } else { "s" };
        let text = || format!("sends to {hosts} host{plural}: {} of {} MB", megabytes(sent), megabytes(all));
        (hosts > 0).then(text)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_told_and_what_has_arrived_is_not() {
        let mut progress = Progress::new();
        progress.deliveries = vec![Arc::new(Delivery::new()), Arc::new(Delivery::new())];
        assert_eq!(progress.line(), None);
        progress.deliveries.iter().for_each(|delivery| delivery.expect(4 << 20));
        assert_eq!(progress.line().unwrap(), "sends to 2 hosts: 0 of 8 MB");
        progress.deliveries[0].sent(4 << 20);
        progress.deliveries[1].sent(1 << 20);
        assert_eq!(progress.line().unwrap(), "sends to 1 host: 5 of 8 MB");
        progress.deliveries[1].sent(3 << 20);
        assert_eq!(progress.line(), None);
    }
}
