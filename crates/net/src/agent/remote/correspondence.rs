//! What agents tell each other once channels are open: that one has ended.
//!
//! The TLS session of a question stays open if there is none to that host yet. Each line has a thread, which sleeps until
//! either side has news. A line that breaks ends no channel: then a peer's death is noticed by its silence, as without
//! agents, until the next question makes a new line.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use comb_types::ChannelId;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

use super::super::broker::{Elsewhere, Farewell};
use super::super::protocol;
use super::super::server::{Command, Outbox};
use crate::hosts::{SecureStream, StreamError};

/// Two hosts that ask each other in the same moment have two lines; more are leftovers of a host that was cut off.
const MOST_LINES_TO_A_HOST: usize = 4;
/// What is kept for a host while there is no line to it. Of what is lost its channels' silence tells.
const MOST_UNSENT: usize = 1024;
/// Longer reasons are not for people.
const LONGEST_REASON: usize = 1000;

// A host that is cut off says nothing: the kernel asks it after this, so often, and then the line is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_PROBES: u32 = 3;

/// What either agent says on a line that stays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum News {
    /// The channel has ended on the speaker's side.
    Ended {
        /// As in frames.
        wire_channel: ChannelId,
        /// The opener gave it its number, so the number alone does not name it.
        opened_by_you: bool,
        /// A sentence for people.
        reason: String,
        /// What the endpoint there left on its board, if its process has ended.
        last_word: Option<u128>,
    },
}

/// The lines that stay, by host. `None`: the agent has ended.
#[derive(Clone, Debug)]
pub(super) struct Correspondence {
    hosts: Arc<Mutex<Option<BTreeMap<String, Correspondent>>>>,
}

#[derive(Debug, Default)]
struct Correspondent {
    lines: VecDeque<Line>,
    unsent: VecDeque<News>,
}

/// A line's thread ends when this is dropped and it was woken.
#[derive(Debug)]
struct Line {
    news: mpsc::Sender<News>,
    wake: Arc<OwnedFd>,
}

impl Drop for Line {
    fn drop(&mut self) {
        // The sender goes first, so that who is woken finds it gone.
        self.news = mpsc::channel().0;
        wake(&self.wake);
    }
}

fn wake(wake: &OwnedFd) {
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

impl Correspondence {
    pub(super) fn new() -> Self {
        Self { hosts: Arc::new(Mutex::new(Some(BTreeMap::new()))) }
    }

    /// Whether there is a line to that host, as far as we know.
    pub(super) fn reaches(&self, host: &str) -> bool {
        self.hosts().as_ref().and_then(|hosts| hosts.get(host)).is_some_and(|host| !host.lines.is_empty())
    }

    /// Tells a host of a channel's end: at once if there is a line, else as soon as there is one.
    pub(super) fn tell(&self, farewell: Farewell) {
        let Farewell { channel: Elsewhere { host, wire_channel, opened_here }, reason, last_word } = farewell;
        let news = News::Ended { wire_channel, opened_by_you: !opened_here, reason, last_word };
        let mut hosts = self.hosts();
        let Some(hosts) = hosts.as_mut() else { return };
        let to = hosts.entry(host).or_default();
        match to.lines.back() {
            Some(line) if line.news.send(news.clone()).is_ok() => wake(&line.wake),
            _ if to.unsent.len() < MOST_UNSENT => to.unsent.push_back(news),
            _ => {}
        }
    }

    /// Serves a line on this thread until it ends.
    pub(super) fn serve(&self, mut stream: SecureStream, outbox: &Outbox) {
        keep_asking(&stream);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let Ok(wake) = rustix::event::eventfd(0, flags).map(Arc::new) else { return };
        let (news, queue) = mpsc::channel();
        let host = stream.peer().to_owned();
        {
            let mut hosts = self.hosts();
            let Some(hosts) = hosts.as_mut() else { return };
            let entry = hosts.entry(host.clone()).or_default();
            for unsent in entry.unsent.drain(..) {
                let _ = news.send(unsent);
            }
            let _ = rustix::io::write(&*wake, &1_u64.to_ne_bytes());
            entry.lines.push_back(Line { news, wake: Arc::clone(&wake) });
            if entry.lines.len() > MOST_LINES_TO_A_HOST {
                entry.lines.pop_front();
            }
        }
        // Why it ended is of no interest: it was cut, or the other agent went away.
        let _ = converse(&mut stream, &wake, &queue, outbox);
        if let Some(entry) = self.hosts().as_mut().and_then(|hosts| hosts.get_mut(&host)) {
            entry.lines.retain(|line| !Arc::ptr_eq(&line.wake, &wake));
        }
        let _ = stream.close();
    }

    /// Ends the lines with a host that is none of the others any more, and keeps nothing for it.
    pub(super) fn forget(&self, host: &str) {
        let gone = self.hosts().as_mut().and_then(|hosts| hosts.remove(host));
        drop(gone);
    }

    /// Ends all lines and lets in no more.
    pub(super) fn end(&self) {
        *self.hosts() = None;
    }

    fn hosts(&self) -> MutexGuard<'_, Option<BTreeMap<String, Correspondent>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_asking(stream: &SecureStream) {
    // Without it the line is found broken when something is said on it.
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES);
}

/// Speaks and listens until one side has enough.
fn converse(
    stream: &mut SecureStream,
    wake: &OwnedFd,
    queue: &mpsc::Receiver<News>,
    outbox: &Outbox,
) -> Result<(), StreamError> {
    loop {
        hear(stream, outbox)?;
        loop {
            match queue.try_recv() {
                Ok(news) => {
                    let Ok(bytes) = protocol::encode(&news) else { continue };
                    stream.send(&bytes)?;
                }
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let mut waiting =
            [PollFd::new(&*stream, PollFlags::IN), PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
        // An interruption only makes it look early.
        let _ = rustix::event::poll(&mut waiting, None);
        let _ = rustix::io::read(wake, &mut [0; 8]);
    }
}

/// Takes what is there. An error: the line has ended.
fn hear(stream: &mut SecureStream, outbox: &Outbox) -> Result<(), StreamError> {
    loop {
        let host = stream.peer().to_owned();
        let bytes = match stream.receive(Some(Duration::ZERO)) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(StreamError::Truncated),
            Err(StreamError::TimedOut) => return Ok(()),
            Err(error) => return Err(error),
        };
        // What we do not understand, a later version says; it is a hint, and so is what we do.
        let Ok(news) = protocol::decode(bytes) else { continue };
        let News::Ended { wire_channel, opened_by_you, reason, last_word } = news;
        let plain = reason.chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect();
        let channel = Elsewhere { host, wire_channel, opened_here: opened_by_you };
        outbox.send(Command::EndedElsewhere(Farewell { channel, reason: plain, last_word }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// News of version 1 as they were recorded. A later version must still read them.
    const ENDED_V1: &[u8] = b"\x01\x00\x4d\x01\x04left\x01\x85\x02";

    #[test]
    fn recorded_news_are_still_read() {
        let news: News = protocol::decode(ENDED_V1).unwrap();
        let (wire_channel, reason) = (ChannelId(77), "left".to_owned());
        assert_eq!(news, News::Ended { wire_channel, opened_by_you: true, reason, last_word: Some(0x105) });
        assert_eq!(protocol::encode(&news).unwrap(), ENDED_V1);
    }
}
