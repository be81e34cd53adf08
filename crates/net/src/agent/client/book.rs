//! The watcher's book: which channels there are, and with whose end each of them ends.
//!
//! A process is known here by a number of our own, which is never given again. Its pid would not do: as soon as a dead
//! process is reaped the kernel can give its pid to the next one, and that can open a channel to us before we come to
//! look at the descriptor of the dead. One entry for both, and the death of the first would end the channels of the second.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use comb_types::{ChannelId, EndpointId};
use rustix::event::epoll;

use crate::agent::credentials::has_ended;
use crate::agent::protocol::WindowTerms;
use crate::endpoint::EndpointShared;
use crate::life::{Cause, Life};
use crate::window::IncomingWindow;

/// What the watcher watches, and for whom.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) endpoints: BTreeMap<EndpointId, Arc<EndpointShared>>,
    /// Two records for a channel between two endpoints of this process.
    channels: BTreeMap<ChannelId, Vec<Record>>,
    processes: BTreeMap<ProcessNumber, PeerProcess>,
    next_process: ProcessNumber,
}

/// Our own, and the token of its events.
type ProcessNumber = u64;

#[derive(Debug)]
struct Record {
    life: Arc<Life>,
    endpoint: Arc<EndpointShared>,
    /// `None`: on another host, where nobody here sees its end.
    process: Option<ProcessNumber>,
}

impl Record {
    fn end(&self, cause: Cause) {
        self.life.end(cause);
        self.endpoint.raise_news();
    }
}

/// One descriptor a process, however many channels lead to it.
#[derive(Debug)]
struct PeerProcess {
    pid: u32,
    descriptor: OwnedFd,
    channels: BTreeSet<ChannelId>,
}

impl Book {
    /// From now on the end of that process is the end of the channel.
    pub(super) fn watch(
        &mut self,
        epoll: &OwnedFd,
        channel: ChannelId,
        endpoint: &Arc<EndpointShared>,
        peer: String,
        (pid, descriptor): (u32, OwnedFd),
    ) -> Result<Arc<Life>, String> {
        let known = self.same_process(pid, &descriptor);
        let other_end = self.channels.get(&channel).map(Vec::as_slice);
        if other_end.is_some_and(|ends| ends.len() != 1 || known.is_none() || ends[0].process != known) {
            return Err(format!("{channel} is in use here already"));
        }
        let process = match known {
            Some(process) => process,
            None => self.add_process(epoll, pid, descriptor)?,
        };
        self.processes.get_mut(&process).expect("just found or added").channels.insert(channel);
        Ok(self.record(channel, endpoint, peer, Some(process)))
    }

    /// Nobody here sees the end of that process; what the agent says of it is the end of the channel.
    pub(super) fn watch_elsewhere(
        &mut self,
        channel: ChannelId,
        endpoint: &Arc<EndpointShared>,
        peer: String,
    ) -> Result<Arc<Life>, String> {
        if self.channels.contains_key(&channel) {
            return Err(format!("{channel} is in use here already"));
        }
        Ok(self.record(channel, endpoint, peer, None))
    }

    fn record(
        &mut self,
        channel: ChannelId,
        endpoint: &Arc<EndpointShared>,
        peer: String,
        process: Option<ProcessNumber>,
    ) -> Arc<Life> {
        let life = Arc::new(Life::new(peer));
        let record = Record { life: Arc::clone(&life), endpoint: Arc::clone(endpoint), process };
        self.channels.entry(channel).or_default().push(record);
        life
    }

    /// The process, if it is one that we watch already: two that have the same pid and both live are one. What has ended
    /// is not compared; it gets an entry of its own, and its end is told at once.
    fn same_process(&self, pid: u32, descriptor: &OwnedFd) -> Option<ProcessNumber> {
        if has_ended(descriptor) {
            return None;
        }
        let mut known = self.processes.iter();
        let found = known.find(|(_, known)| known.pid == pid && !has_ended(&known.descriptor));
        found.map(|(&process, _)| process)
    }

    fn add_process(
        &mut self,
        epoll: &OwnedFd,
        pid: u32,
        descriptor: OwnedFd,
    ) -> Result<ProcessNumber, String> {
        let process = self.next_process;
        epoll::add(epoll, &descriptor, epoll::EventData::new_u64(process), epoll::EventFlags::IN)
            .map_err(|error| format!("cannot watch the peer's process: {error}"))?;
        self.next_process += 1;
        self.processes.insert(process, PeerProcess { pid, descriptor, channels: BTreeSet::new() });
        Ok(process)
    }

    /// An event of a process's descriptor: it has ended, or was ours to watch when the event came.
    pub(super) fn process_ended(&mut self, epoll: &OwnedFd, process: ProcessNumber) {
        let Some(ended) = self.processes.remove(&process) else { return };
        let _ = epoll::delete(epoll, &ended.descriptor);
        for channel in ended.channels {
            for record in self.channels.remove(&channel).unwrap_or_default() {
                record.end(Cause::Exited(ended.pid));
            }
        }
    }

    /// The agent says it of a dying process only when that has ended: then its end is what is to be told.
    pub(super) fn peer_gone(
        &mut self,
        epoll: &OwnedFd,
        channel: ChannelId,
        reason: &str,
        last_word: Option<u128>,
    ) {
        for record in self.channels.remove(&channel).unwrap_or_default() {
            let process = record.process.and_then(|process| self.processes.get(&process));
            let ended = process.filter(|process| has_ended(&process.descriptor));
            // What a process on this host left, its peers see for themselves.
            if let (Some(word), None) = (last_word, record.process) {
                record.life.leave_word(word);
            }
            record
                .end(ended.map_or_else(|| Cause::Left(reason.to_owned()), |ended| Cause::Exited(ended.pid)));
            self.release(epoll, channel, record.process);
        }
    }

    /// That end of the channel is no longer watched.
    pub(super) fn forget(&mut self, epoll: &OwnedFd, channel: ChannelId, life: &Arc<Life>) {
        let Some(ends) = self.channels.get_mut(&channel) else { return };
        let Some(at) = ends.iter().position(|record| Arc::ptr_eq(&record.life, life)) else { return };
        let forgotten = ends.swap_remove(at);
        if ends.is_empty() {
            self.channels.remove(&channel);
            self.release(epoll, channel, forgotten.process);
        }
    }

    /// The channel no longer needs the process; the last one that does so ends its watch.
    fn release(&mut self, epoll: &OwnedFd, channel: ChannelId, process: Option<ProcessNumber>) {
        let Some(process) = process else { return };
        let Some(watched) = self.processes.get_mut(&process) else { return };
        watched.channels.remove(&channel);
        if watched.channels.is_empty() {
            let _ = epoll::delete(epoll, &watched.descriptor);
            self.processes.remove(&process);
        }
    }

    /// By identity: while an agent is coming back an endpoint's number may just be changing.
    pub(super) fn has_endpoint(&self, endpoint: &Arc<EndpointShared>) -> bool {
        self.endpoints.values().any(|known| Arc::ptr_eq(known, endpoint))
    }

    pub(super) fn has_channel(&self, channel: ChannelId) -> bool {
        self.channels.contains_key(&channel)
    }

    /// What an agent that came back is to be told of an endpoint's channels: number and peer. Of channels to other hosts
    /// it knows nothing, and neither does the other host's agent any more.
    pub(super) fn channels_of(&self, endpoint: &Arc<EndpointShared>) -> Vec<(ChannelId, String)> {
        let records =
            self.channels.iter().flat_map(|(&channel, ends)| ends.iter().map(move |end| (channel, end)));
        let here = records.filter(|(_, end)| end.process.is_some() && Arc::ptr_eq(&end.endpoint, endpoint));
        here.map(|(channel, end)| (channel, end.life.peer().to_owned())).collect()
    }

    /// A window that a peer shares with one of our endpoints.
    pub(super) fn push_window(&self, terms: WindowTerms, memory: OwnedFd) {
        let mut records = self.channels.get(&terms.channel).into_iter().flatten();
        if let Some(record) = records.find(|record| record.endpoint.id() == terms.endpoint) {
            record.life.push_window(IncomingWindow { terms, memory });
            record.endpoint.raise_news();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::EndpointOptions;
    use rustix::event::{PollFd, PollFlags};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::process::{Child, Command};

    /// A process, killed and reaped at the end.
    struct Peer(Child);

    impl Peer {
        fn start() -> Self {
            Self(Command::new("sleep").arg("600").spawn().unwrap())
        }

        fn descriptor(&self) -> OwnedFd {
            pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()).unwrap()
        }
    }

    impl Drop for Peer {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn scene() -> (Book, OwnedFd, Arc<EndpointShared>) {
        let (endpoint, _bell) = EndpointShared::create("desk", EndpointOptions::default()).unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        (Book::default(), epoll, Arc::new(endpoint))
    }

    /// The tokens of all events that are there.
    fn events(epoll: &OwnedFd) -> Vec<u64> {
        let mut space = [std::mem::MaybeUninit::uninit(); 8];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let (events, _) = epoll::wait(epoll, &mut space, Some(&at_once)).unwrap();
        events.iter().map(|event| event.data.u64()).collect()
    }

    /// Kills a process; its descriptor says so afterwards, and nobody has looked at it yet.
    fn kill(peer: Peer, descriptor: &OwnedFd) {
        drop(peer);
        rustix::event::poll(&mut [PollFd::new(descriptor, PollFlags::IN)], None).unwrap();
    }

    const PID: u32 = 4242;

    /// A process died; before the watcher looked at its descriptor the next one got its pid, and opened a channel. That
    /// was put under the entry of the dead, and ended with it, though its peer lived.
    #[test]
    fn a_death_ends_no_channel_of_the_next_process_with_that_pid() {
        let (mut book, epoll, endpoint) = scene();
        let (dying, living) = (Peer::start(), Peer::start());
        let descriptor = dying.descriptor();
        let copy = descriptor.try_clone().unwrap();
        let one = book.watch(&epoll, ChannelId(1), &endpoint, "old/desk".into(), (PID, descriptor)).unwrap();
        kill(dying, &copy);
        let came = events(&epoll);
        let two = book
            .watch(&epoll, ChannelId(2), &endpoint, "new/desk".into(), (PID, living.descriptor()))
            .unwrap();
        for process in came {
            book.process_ended(&epoll, process);
        }
        assert_eq!(one.cause(), Some(Cause::Exited(PID)));
        assert!(!two.has_ended(), "its peer lives");
        // What the agent says of it is its leaving, whatever became of the other.
        book.peer_gone(&epoll, ChannelId(2), "new closed the channel", Some(5));
        assert_eq!(two.cause(), Some(Cause::Left("new closed the channel".into())));
        assert_eq!(two.last_word(), None, "it is on this host, and lives");
        assert!(book.processes.is_empty() && book.channels.is_empty());
    }

    #[test]
    fn channels_to_one_process_share_its_descriptor_and_end_together() {
        let (mut book, epoll, endpoint) = scene();
        let peer = Peer::start();
        let copy = peer.descriptor();
        let mut watch = |channel| {
            book.watch(&epoll, ChannelId(channel), &endpoint, "bob/desk".into(), (PID, peer.descriptor()))
        };
        let lives: Vec<_> = (1..=3).map(|channel| watch(channel).unwrap()).collect();
        assert_eq!(book.processes.len(), 1);
        book.forget(&epoll, ChannelId(3), &lives[2]);
        kill(peer, &copy);
        for process in events(&epoll) {
            book.process_ended(&epoll, process);
        }
        let causes: Vec<_> = lives.iter().map(|life| life.cause()).collect();
        assert_eq!(causes, [Some(Cause::Exited(PID)), Some(Cause::Exited(PID)), None]);
        assert!(book.processes.is_empty() && book.channels.is_empty() && events(&epoll).is_empty());
    }

    #[test]
    fn a_process_is_watched_for_as_long_as_a_channel_leads_to_it() {
        let (mut book, epoll, endpoint) = scene();
        let peer = Peer::start();
        let copy = peer.descriptor();
        // Both ends of a channel within one process, and no third.
        let mut watch =
            || book.watch(&epoll, ChannelId(1), &endpoint, "bob/desk".into(), (PID, peer.descriptor()));
        let ends = [watch().unwrap(), watch().unwrap()];
        assert!(watch().is_err(), "a channel has two ends");
        let elsewhere = book.watch_elsewhere(ChannelId(1), &endpoint, "beta:dora/desk".into());
        assert!(elsewhere.is_err(), "the number is taken");
        book.forget(&epoll, ChannelId(1), &ends[0]);
        assert_eq!(book.processes.len(), 1);
        book.forget(&epoll, ChannelId(1), &ends[1]);
        assert!(book.processes.is_empty() && book.channels.is_empty());
        kill(peer, &copy);
        assert!(events(&epoll).is_empty(), "nobody waits for it any more");
    }

    #[test]
    fn nobody_but_its_peers_process_gets_an_end_of_a_channel() {
        let (mut book, epoll, endpoint) = scene();
        let (one, other) = (Peer::start(), Peer::start());
        let mut watch = |pid, peer: &Peer| {
            book.watch(&epoll, ChannelId(1), &endpoint, "bob/desk".into(), (pid, peer.descriptor()))
        };
        watch(PID, &one).unwrap();
        assert!(watch(PID + 1, &other).is_err());
        let elsewhere = book.watch_elsewhere(ChannelId(2), &endpoint, "beta:dora/desk".into()).unwrap();
        assert_eq!(book.channels_of(&endpoint), [(ChannelId(1), "bob/desk".to_owned())]);
        book.peer_gone(&epoll, ChannelId(2), "dora left", Some(5));
        assert_eq!(elsewhere.cause(), Some(Cause::Left("dora left".into())));
        assert_eq!(elsewhere.last_word(), Some(5));
    }
}
