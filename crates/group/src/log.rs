//! A member's log, and the thread that writes it: so that a slow disk never keeps the group's thread from its messages.

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

/// Where a member keeps what it must not forget. What records hold is the group's business.
///
/// Nothing is asked to be cut off: a later record says where earlier ones end.
pub trait Log: Send {
    /// All records, in their order, from the last [`Log::replace`] on. What a crash has torn is not among them; a record that was
    /// kept once and is spoiled is an error.
    fn read(&mut self) -> Result<Vec<Vec<u8>>, LogError>;
    /// Adds a record behind the others. It survives a crash when [`Log::sync`] has ended.
    fn append(&mut self, record: &[u8]) -> Result<(), LogError>;
    /// Puts records in the place of all there are. Until [`Log::sync`] has ended, a crash leaves the ones or the others.
    fn replace(&mut self, records: &[Vec<u8>]) -> Result<(), LogError>;
    /// Returns when everything before will survive a crash.
    fn sync(&mut self) -> Result<(), LogError>;
}

/// Why a log cannot be used. What was said to be kept may be there all the same.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk has no room: make some, and start the member again.
    #[error("the log {path}: the disk is full")]
    Full {
        /// Which log.
        path: PathBuf,
    },
    /// The disk, or the system, refused.
    #[error("the log {path}: {source}")]
    Storage {
        /// Which log.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The log's own code has panicked: its message says where.
    #[error("the log's code has panicked")]
    Panicked,
    /// What was written is there no more.
    #[error(
        "the log {path} is spoiled: {what}. What this node has promised is forgotten: remove the log, and let it join"
    )]
    Spoiled {
        /// Which log.
        path: PathBuf,
        /// Where, or how that was seen.
        what: String,
    },
}

/// One thing to write.
#[derive(Debug)]
pub(crate) enum Work {
    Append { number: u64, record: Vec<u8> },
    Replace { number: u64, records: Vec<Vec<u8>> },
}

/// The group's end of its writing thread.
pub(crate) struct Writer {
    work: Sender<Vec<Work>>,
    written: Receiver<Result<u64, LogError>>,
    asked: u64,
    answered: u64,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer at {} of {}", self.answered, self.asked)
    }
}

impl Writer {
    /// Begins to write to a log.
    pub(crate) fn start(log: Box<dyn Log>) -> Self {
        let (work, to_write) = mpsc::channel();
        let (answer, written) = mpsc::channel();
        // It ends when the group does, or with an error.
        std::thread::spawn(move || write(log, &to_write, &answer));
        Self { work, written, asked: 0, answered: 0 }
    }

    pub(crate) fn write(&mut self, work: Vec<Work>) {
        if let Some(Work::Append { number, .. } | Work::Replace { number, .. }) = work.last() {
            self.asked = *number;
            // A thread that has ended said why.
            let _ = self.work.send(work);
        }
    }

    /// Up to which number everything is on the disk, if that is news.
    pub(crate) fn written(&mut self) -> Result<Option<u64>, LogError> {
        let before = self.answered;
        loop {
            match self.written.try_recv() {
                Ok(answer) => self.answered = answer?,
                Err(TryRecvError::Disconnected) if self.is_busy() => return Err(LogError::Panicked),
                Err(_) => break,
            }
        }
        Ok((self.answered > before).then_some(self.answered))
    }

    /// Whether something is on its way to the disk.
    pub(crate) fn is_busy(&self) -> bool {
        self.answered < self.asked
    }
}

/// Writes what waits, all of it with one synchronisation.
fn write(mut log: Box<dyn Log>, work: &Receiver<Vec<Work>>, answer: &Sender<Result<u64, LogError>>) {
    while let Ok(first) = work.recv() {
        let outcome = write_batch(log.as_mut(), first, work);
        let has_failed = outcome.is_err();
        if answer.send(outcome).is_err() || has_failed {
            return;
        }
    }
}

fn write_batch(log: &mut dyn Log, first: Vec<Work>, work: &Receiver<Vec<Work>>) -> Result<u64, LogError> {
    let (mut batch, mut last) = (first, 0);
    loop {
        for work in batch {
            last = match work {
                Work::Append { number, record } => log.append(&record).map(|()| number)?,
                Work::Replace { number, records } => log.replace(&records).map(|()| number)?,
            };
        }
        batch = match work.try_recv() {
            Ok(next) => next,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        };
    }
    log.sync()?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const SOON: Duration = Duration::from_secs(20);

    /// Fails at one record, and would take those behind it. Says what it has.
    struct Gap(Sender<Vec<u8>>);

    impl Log for Gap {
        fn read(&mut self) -> Result<Vec<Vec<u8>>, LogError> {
            Ok(Vec::new())
        }

        fn append(&mut self, record: &[u8]) -> Result<(), LogError> {
            if record == b"bad" {
                return Err(LogError::Full { path: "gap".into() });
            }
            assert_ne!(record, b"panic", "as it was asked to");
            self.0.send(record.to_vec()).map_err(|_| LogError::Full { path: "gap".into() })
        }

        fn replace(&mut self, _: &[Vec<u8>]) -> Result<(), LogError> {
            Ok(())
        }

        fn sync(&mut self) -> Result<(), LogError> {
            Ok(())
        }
    }

    fn append(writer: &mut Writer, number: u64, record: &[u8]) {
        writer.write(vec![Work::Append { number, record: record.to_vec() }]);
    }

    fn until<T>(mut so: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(found) = so() {
                return found;
            }
            assert!(Instant::now() < deadline, "it never comes to be so");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn it_is_busy_until_all_is_written_and_says_each_number_once() {
        let (tell, _told) = mpsc::channel();
        let mut writer = Writer::start(Box::new(Gap(tell)));
        assert!(!writer.is_busy());
        append(&mut writer, 7, b"good");
        assert!(writer.is_busy(), "it was not asked how far it is");
        assert_eq!(until(|| writer.written().expect("a good log")), 7);
        assert!(!writer.is_busy());
        assert!(matches!(writer.written(), Ok(None)), "no news");
    }

    #[test]
    fn a_log_whose_code_panics_is_a_failure_and_not_one_that_takes_for_ever() {
        let (tell, _told) = mpsc::channel();
        let mut writer = Writer::start(Box::new(Gap(tell)));
        append(&mut writer, 1, b"panic");
        assert!(matches!(until(|| writer.written().err()), LogError::Panicked));
    }

    #[test]
    fn nothing_is_written_behind_a_gap() {
        let (tell, told) = mpsc::channel();
        let mut writer = Writer::start(Box::new(Gap(tell)));
        append(&mut writer, 1, b"good");
        append(&mut writer, 2, b"bad");
        until(|| writer.written().err());
        append(&mut writer, 3, b"behind");
        // Its thread has ended, or else nobody ever does away with the log.
        let mut written = Vec::new();
        let end = loop {
            match told.recv_timeout(SOON) {
                Ok(record) => written.push(record),
                Err(end) => break end,
            }
        };
        assert_eq!((end, &written[..]), (mpsc::RecvTimeoutError::Disconnected, &[b"good".to_vec()][..]));
    }
}
