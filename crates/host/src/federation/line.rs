//! The line to the agent of another host: one TLS session, one thread, asleep unless somebody has something to say. The agent's own
//! thread only hears what has come, by a queue, and never waits for a network.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use comb_net::hosts::{SecureStream, StreamError};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::time::Timespec;

use super::words::{Lie, Word};
use super::{Event, Queue};

/// From one sign of life to the next, on a line on which nothing else is said.
const BETWEEN_BEATS: Duration = Duration::from_millis(500);
/// A host of which so long nothing comes is lost. One that stands still for a second is not.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// What a host is told and has not read. One that reads nothing for so long is as good as gone.
const MOST_UNSENT: usize = 1024;

/// The agent's end of a line. The line ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: u64,
    /// Whether this host has connected to the other.
    pub(crate) was_dialled: bool,
    words: Option<SyncSender<Vec<u8>>>,
    wake: Arc<OwnedFd>,
}

impl Line {
    /// Says a word, sooner or later. `false`: the other end does not read, and the line is of no use.
    pub(crate) fn say(&self, word: &Word) -> bool {
        let said = self.words.as_ref().is_some_and(|words| words.try_send(word.bytes()).is_ok());
        wake(&self.wake);
        said
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The sender goes first, so that who is woken finds it gone.
        self.words = None;
        wake(&self.wake);
    }
}

fn wake(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

/// How a line has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// The other end said farewell: its agent has ended.
    Farewell,
    /// It was cut: the other agent died, or the network says so.
    Cut(String),
    /// Nothing comes any more.
    Silent,
    /// The other host said what it may not.
    Lied(Lie),
    /// We have hung up ourselves.
    Dropped,
}

/// Serves a line on this thread until it ends.
pub(super) fn serve(mut stream: SecureStream, host: &str, was_dialled: bool, queue: &Queue) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let Ok(wake) = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return };
    let wake = Arc::new(wake);
    let (words, unsent) = mpsc::sync_channel(MOST_UNSENT);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let line = Line { number, was_dialled, words: Some(words), wake: Arc::clone(&wake) };
    let (host, key) = (host.to_owned(), stream.peer_key());
    queue.tell(Event::Opened { host: host.clone(), key, line });
    let heard = |word| queue.tell(Event::Heard { host: host.clone(), line: number, word });
    let how = converse(&mut stream, &wake, &unsent, heard);
    // An agent that ends waits for the news of the end: by then the other one has heard that it was meant.
    if matches!(how, How::Dropped | How::Lied(_) | How::Farewell) {
        let _ = stream.close();
    }
    queue.tell(Event::Closed { host, line: number, how });
}

fn converse(
    stream: &mut SecureStream,
    wake: &OwnedFd,
    unsent: &Receiver<Vec<u8>>,
    mut heard: impl FnMut(Word),
) -> How {
    let cut = |error: StreamError| How::Cut(error.to_string());
    let (mut looked, mut since_sent, mut since_heard) = (Instant::now(), Duration::ZERO, Duration::ZERO);
    loop {
        match hear(stream, &mut heard) {
            Ok(0) => {}
            Ok(_) => since_heard = Duration::ZERO,
            Err(how) => return how,
        }
        // What was said before it was dropped is said.
        let is_dropped = loop {
            match unsent.try_recv() {
                Ok(bytes) => {
                    since_sent = Duration::ZERO;
                    if let Err(error) = stream.send(&bytes) {
                        return cut(error);
                    }
                }
                Err(TryRecvError::Empty) => break false,
                Err(TryRecvError::Disconnected) => break true,
            }
        };
        if is_dropped {
            return How::Dropped;
        }
        if since_heard >= SILENCE_LIMIT {
            return How::Silent;
        }
        if since_sent >= BETWEEN_BEATS {
            since_sent = Duration::ZERO;
            if let Err(error) = stream.send(&Word::Beat.bytes()) {
                return cut(error);
            }
        }
        let limit = (BETWEEN_BEATS - since_sent.min(BETWEEN_BEATS)).min(SILENCE_LIMIT - since_heard);
        let limit =
            Timespec { tv_sec: 0, tv_nsec: i64::from(limit.max(Duration::from_millis(1)).subsec_nanos()) };
        let mut waiting =
            [PollFd::new(&*stream, PollFlags::IN), PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
        // An interruption only makes it look early.
        let _ = rustix::event::poll(&mut waiting, Some(&limit));
        let _ = rustix::io::read(wake, &mut [0; 8]);
        let gap = looked.elapsed();
        looked = Instant::now();
        since_sent += gap;
        // Who stood still itself has not been listening, and does not blame the other for that time.
        since_heard += gap.min(BETWEEN_BEATS);
    }
}

/// Takes what is there: how many words. An error: the line has ended.
fn hear(stream: &mut SecureStream, heard: &mut impl FnMut(Word)) -> Result<usize, How> {
    // Bounded, so that who talks without end does not keep us from answering.
    for count in 0..64 {
        let bytes = match stream.receive(Some(Duration::ZERO)) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(How::Farewell),
            Err(StreamError::TimedOut) => return Ok(count),
            Err(error @ (StreamError::TooLong { .. } | StreamError::WrongVersion { .. })) => {
                return Err(How::Lied(error.to_string()));
            }
            Err(error) => return Err(How::Cut(error.to_string())),
        };
        heard(Word::read(bytes).map_err(How::Lied)?);
    }
    Ok(64)
}
