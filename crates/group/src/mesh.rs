//! Datagrams among the nodes of a group, each at most once and in order between two nodes, over channels that are opened when
//! they are first needed.
//!
//! A message may be lost: its receiver is not there, has ended, or reads so slowly that too much waits for it. Who uses this
//! says again what matters. The end of a process is told by the kernel, so it is known within a millisecond and
//! for certain; a node's silence is for others to judge.
//!
//! A channel leads to one life of a node, and the first that is said on it is to which. What its former life has opened may come later
//! than what the next one opens: between hosts, a channel takes its time, and so does the news of its end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_net::{
    Agent, Cause, ChannelEnded, ChannelKey, Endpoint, EndpointOptions, Opening, PostError, RequestError,
};
use comb_types::{Incarnation, NodeId};

/// A peer that could not be reached is not asked for sooner: asking costs a round trip to the agent.
const BETWEEN_OPENINGS: Duration = Duration::from_millis(50);
/// Two nodes may open a channel to each other at once. One that comes so much later comes from a peer that knows nothing of the one
/// before: its host, or its program, has begun anew, and nobody could say so.
const LATE: Duration = Duration::from_secs(1);
/// Messages that wait for a channel, or for a slow reader. Of more than that the last is lost.
const MOST_UNSENT: usize = 256;
/// A look at what has come takes so many turns, or until nothing is left: all that a usual ring holds. What a look leaves waits until all
/// that it has brought is answered, which may be long.
const TURNS: usize = 4;
/// And takes no further turn with so many bytes.
const ENOUGH_BYTES: usize = 4 << 20;
/// Of the messages, which are all of one kind.
const KIND: u8 = 0;
/// Of what a node says first on a channel: which life of it speaks there.
const INTRODUCTION: u8 = 1;

/// How nodes are found by name: `{process}{number}/{endpoint}`, on another host `{host}:{process}{number}/{endpoint}`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// What the names of the processes start with.
    pub process: String,
    /// The endpoint that each of them has for this group.
    pub endpoint: String,
    /// On which other hosts nodes are, by the names that this host's agent has for them. All others are on this one.
    pub elsewhere: BTreeMap<NodeId, String>,
}

impl Names {
    /// The process of a node, as it is to connect to its agent.
    pub fn process(&self, node: NodeId) -> String {
        format!("{}{}", self.process, node.0)
    }

    fn address(&self, node: NodeId) -> String {
        let here = format!("{}/{}", self.process(node), self.endpoint);
        self.elsewhere.get(&node).map_or(here.clone(), |host| format!("{host}:{here}"))
    }

    /// Which node has this address. The agent vouches for addresses, so nobody can pass for another.
    fn node(&self, address: &str) -> Option<NodeId> {
        let here = address.split_once(':').map_or(address, |(_, here)| here);
        let (process, _) = here.split_once('/')?;
        let node = NodeId(process.strip_prefix(&self.process)?.parse().ok()?);
        (self.address(node) == address).then_some(node)
    }
}

/// Why there is no mesh.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// The agent refused the endpoint.
    #[error("the agent refused the group's endpoint: {0}")]
    Endpoint(RequestError),
}

type Unsent = VecDeque<Arc<[u8]>>;

/// One peer.
#[derive(Debug, Default)]
struct Peer {
    /// Where messages to it go.
    channel: Option<ChannelKey>,
    /// Since when that is so.
    since: Option<Instant>,
    /// One that was asked for.
    opening: Option<Opening>,
    /// In order, behind what is in the channel.
    unsent: Unsent,
    failed_opening: Option<Instant>,
}

impl Peer {
    /// Whether its channel has been there for so long that another one is none that was opened at the same time.
    fn is_settled(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > LATE)
    }
}

/// A node whose last channel has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Which.
    pub node: NodeId,
    /// Why.
    pub cause: Cause,
    /// What its process left by [`Mesh::leave_word`], if that has ended.
    pub last_word: Option<u128>,
    /// To which of its lives the channel led, if it has said so.
    pub life: Option<Incarnation>,
}

/// What has come.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// All bytes, one message behind the other: fewer allocations than messages.
    bytes: Vec<u8>,
    messages: Vec<(NodeId, std::ops::Range<usize>)>,
    ended: Vec<End>,
}

impl Arrivals {
    /// The messages, in order for each sender.
    pub fn messages(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        self.messages.iter().map(|(from, range)| (*from, &self.bytes[range.clone()]))
    }

    /// Whose last channel has ended.
    pub fn ended(&self) -> &[End] {
        &self.ended
    }

    /// Whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.ended.is_empty()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
        self.ended.clear();
    }
}

/// One node's end of the mesh.
#[derive(Debug)]
pub struct Mesh {
    endpoint: Endpoint,
    own: NodeId,
    names: Names,
    peers: BTreeMap<NodeId, Peer>,
    nodes: BTreeMap<ChannelKey, NodeId>,
    /// This node's, once it is known; and to which lives of others channels lead that have said so.
    life: Option<Incarnation>,
    lives: BTreeMap<ChannelKey, Incarnation>,
    /// Peers whose channel was asked for.
    opening: BTreeSet<NodeId>,
    /// Peers with something unsent for which there was no room.
    waiting: BTreeSet<NodeId>,
    /// Nodes to which there is to be a channel, and is none.
    wanted: BTreeSet<NodeId>,
    /// Ends that a send has found.
    ended: Vec<End>,
    /// Messages that were given up.
    lost: u64,
}

impl Mesh {
    /// Joins the mesh as `own`. `agent` is connected under [`Names::process`].
    pub fn join(
        agent: &Agent,
        own: NodeId,
        names: Names,
        mut options: EndpointOptions,
    ) -> Result<Self, MeshError> {
        // Channels to other hosts are waited for by events. Who learns of such hosts later has asked for them itself.
        options.events |= !names.elsewhere.is_empty();
        // A member sleeps until it is told something, and a whole group wakes for each update.
        options.sleeps_often = true;
        let endpoint = agent.endpoint_with(&names.endpoint, options).map_err(MeshError::Endpoint)?;
        Ok(Self {
            endpoint,
            own,
            names,
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            life: None,
            lives: BTreeMap::new(),
            opening: BTreeSet::new(),
            waiting: BTreeSet::new(),
            wanted: BTreeSet::new(),
            ended: Vec::new(),
            lost: 0,
        })
    }

    /// Messages that were given up so far: no channel, or too much that waits.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The endpoint, for event loops.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// From now on says on each channel, before anything else, which life of this node speaks.
    pub fn introduce(&mut self, life: Incarnation) {
        self.life = Some(life);
    }

    /// Leaves a word for the others: they find it in [`End`] when this process has ended.
    pub fn leave_word(&self, word: u128) {
        self.endpoint.leave_word(word);
    }

    /// From now on nodes are on these other hosts, and all others on this one. A node that is elsewhere than it was is another: what led
    /// to the former is given up.
    pub fn learn_where(&mut self, elsewhere: BTreeMap<NodeId, String>) {
        let before = std::mem::replace(&mut self.names.elsewhere, elsewhere);
        let nodes: BTreeSet<NodeId> = before.keys().chain(self.names.elsewhere.keys()).copied().collect();
        for node in nodes {
            if before.get(&node) != self.names.elsewhere.get(&node) {
                self.drop_peer(node);
            }
        }
    }

    /// From now on has a channel to each of these as soon as it can, or to those of them that are on this host: so their ends will be
    /// told.
    pub fn reach(&mut self, nodes: impl Iterator<Item = NodeId>, on_other_hosts: bool) {
        let is_meant = |node: &NodeId| on_other_hosts || !self.names.elsewhere.contains_key(node);
        self.wanted = nodes.filter(|node| is_meant(node) && !self.reaches(*node)).collect();
    }

    /// Whether there is a channel to a node.
    pub fn reaches(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.channel.is_some())
    }

    /// Sends a message, or loses it.
    pub fn send(&mut self, to: NodeId, message: &Arc<[u8]>) {
        self.send_or_keep(to, message, Unsent::push_back);
    }

    /// As [`Mesh::send`], but before all that waits for room: for what says how things are now, wherever it stands among the others.
    pub fn send_urgently(&mut self, to: NodeId, message: &Arc<[u8]>) {
        self.send_or_keep(to, message, Unsent::push_front);
    }

    fn send_or_keep(&mut self, to: NodeId, message: &Arc<[u8]>, keep: fn(&mut Unsent, Arc<[u8]>)) {
        if to == self.own {
            debug_assert!(false, "a machine does not send to itself");
            return;
        }
        if self.peers.entry(to).or_default().channel.is_none() {
            self.open(to);
        }
        // While others were sent to, which takes long if they are many, its reader may have made room.
        self.send_waiting_to(to);
        let peer = self.peers.entry(to).or_default();
        let has_channel = peer.channel.is_some();
        if !has_channel && peer.opening.is_none() {
            self.lost += 1;
            return;
        }
        if has_channel && peer.unsent.is_empty() && self.post(to, message) {
            return;
        }
        let unsent = &mut self.peers.entry(to).or_default().unsent;
        keep(unsent, message.clone());
        if unsent.len() > MOST_UNSENT {
            unsent.pop_back();
            self.lost += 1;
        }
        if has_channel {
            self.waiting.insert(to);
        }
    }

    /// Takes in what has come, sends what found no room before, and says what is new in `arrivals`.
    pub fn poll(&mut self, arrivals: &mut Arrivals) {
        arrivals.clear();
        self.accept();
        self.finish_openings();
        self.reach_on();
        let mut turns = 0;
        while turns < TURNS && arrivals.bytes.len() < ENOUGH_BYTES {
            let (nodes, names) = (&mut self.nodes, &self.names);
            let (mut strangers, mut introductions) = (Vec::new(), Vec::new());
            let polled = self.endpoint.poll(|delivery| {
                if delivery.kind == INTRODUCTION {
                    let mut life = [0; size_of::<u64>()];
                    if delivery.payload.len() == life.len() {
                        delivery.payload.copy_to(&mut life);
                        introductions.push((delivery.channel, Incarnation(u64::from_le_bytes(life))));
                    }
                    return;
                }
                let start = arrivals.bytes.len();
                arrivals.bytes.resize(start + delivery.payload.len(), 0);
                delivery.payload.copy_to(&mut arrivals.bytes[start..]);
                match nodes.get(&delivery.channel) {
                    Some(&node) => arrivals.messages.push((node, start..arrivals.bytes.len())),
                    None => strangers.push((delivery.channel, start..arrivals.bytes.len())),
                }
            });
            // Of channels that came since we looked.
            for (channel, range) in strangers {
                let node = self.endpoint.peer(channel).and_then(|address| names.node(address));
                arrivals.messages.extend(node.map(|node| (node, range)));
            }
            for (channel, life) in introductions {
                self.introduced(channel, life);
            }
            match polled {
                Ok(0) => break,
                Ok(_) => turns += 1,
                Err(ended) => arrivals.ended.extend(self.forget(ended)),
            }
        }
        self.send_waiting();
        arrivals.ended.append(&mut self.ended);
    }

    /// Waits until something comes, at most `limit`.
    pub fn wait(&mut self, limit: Duration) {
        self.endpoint.wait(limit.min(self.nothing_is_due_for()));
    }

    /// How long a wait may be. Nothing rings when a slow reader has made room.
    pub(crate) fn nothing_is_due_for(&self) -> Duration {
        if self.waiting.is_empty() { Duration::MAX } else { Duration::from_millis(1) }
    }

    /// Gives a peer up: its channels are closed, and what waits for it is lost.
    pub fn drop_peer(&mut self, node: NodeId) {
        let channels: Vec<_> =
            self.nodes.iter().filter(|(_, peer)| **peer == node).map(|(&channel, _)| channel).collect();
        for channel in channels {
            self.close(channel);
        }
        self.peers.remove(&node);
        self.opening.remove(&node);
        self.waiting.remove(&node);
        self.wanted.remove(&node);
    }

    /// Channels that peers have opened. Whoever is no node of this group is shown out.
    fn accept(&mut self) {
        while let Some(channel) = self.endpoint.accept(Duration::ZERO) {
            let node = self.endpoint.peer(channel).and_then(|address| self.names.node(address));
            match node {
                Some(node) if node != self.own => {
                    self.give_up_former(node);
                    self.install(node, channel);
                }
                _ => self.close(channel),
            }
        }
    }

    /// A peer has opened a channel. If there was one for long that has not said to which life it leads, it led to one that is over; by
    /// itself it would end only when its silence has lasted long enough.
    fn give_up_former(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get(&node) else { return };
        if let Some(former) =
            peer.channel.filter(|former| peer.is_settled() && !self.lives.contains_key(former))
        {
            self.give_up(node, former);
        }
    }

    /// What waits for the life that the channel of a node led to is lost.
    fn give_up(&mut self, node: NodeId, former: ChannelKey) {
        let peer = self.peers.entry(node).or_default();
        peer.channel = None;
        self.lost += peer.unsent.len() as u64;
        peer.unsent.clear();
        self.close(former);
    }

    fn close(&mut self, channel: ChannelKey) {
        self.endpoint.close(channel);
        self.nodes.remove(&channel);
        self.lives.remove(&channel);
    }

    fn install(&mut self, node: NodeId, channel: ChannelKey) {
        self.nodes.insert(channel, node);
        self.wanted.remove(&node);
        self.supersede(node, channel);
        let peer = self.peers.entry(node).or_default();
        // The first stays: messages of one sender are in order only within a channel.
        if peer.channel.is_none() {
            (peer.channel, peer.since) = (Some(channel), Some(Instant::now()));
        }
        if !peer.unsent.is_empty() {
            self.waiting.insert(node);
        }
        if let Some(Incarnation(life)) = self.life
            && let Err(PostError::Ended(ended)) =
                self.endpoint.send(channel, INTRODUCTION, &life.to_le_bytes())
        {
            let end = self.forget(ended);
            self.ended.extend(end);
        }
    }

    /// A channel says to which life of its node it leads. What is said later to another life is not believed.
    fn introduced(&mut self, channel: ChannelKey, life: Incarnation) {
        self.lives.entry(channel).or_insert(life);
        if let Some(&node) = self.nodes.get(&channel) {
            self.supersede(node, channel);
        }
    }

    /// A life that is over is not spoken to any more when there is a channel to a later one; nor is the same life on a channel that was there
    /// for long, which it has lost.
    fn supersede(&mut self, node: NodeId, channel: ChannelKey) {
        let Some(&life) = self.lives.get(&channel) else { return };
        let Some(peer) = self.peers.get(&node) else { return };
        let Some(former) = peer.channel.filter(|former| *former != channel) else { return };
        let is_former = |before: &Incarnation| *before < life || *before == life && peer.is_settled();
        if self.lives.get(&former).is_some_and(is_former) {
            self.give_up(node, former);
            let peer = self.peers.entry(node).or_default();
            (peer.channel, peer.since) = (Some(channel), Some(Instant::now()));
        }
    }

    /// Asks for a channel. Another host, or a peer whose watcher has no core, may take long to answer, and who waited for it
    /// would be silent itself.
    fn open(&mut self, to: NodeId) {
        let now = Instant::now();
        let peer = self.peers.entry(to).or_default();
        let was_refused = peer.failed_opening.is_some_and(|last| now.duration_since(last) < BETWEEN_OPENINGS);
        if was_refused || peer.opening.is_some() {
            return;
        }
        match self.endpoint.begin_opening(&self.names.address(to)) {
            Ok(opening) => {
                peer.opening = Some(opening);
                self.opening.insert(to);
            }
            Err(_) => peer.failed_opening = Some(now),
        }
    }

    /// One after the other: who comes in would hold up all that others say to it.
    fn reach_on(&mut self) {
        for node in self.wanted.clone() {
            if !self.opening.is_empty() {
                return;
            }
            self.open(node);
        }
    }

    fn finish_openings(&mut self) {
        for node in std::mem::take(&mut self.opening) {
            let Some(peer) = self.peers.get_mut(&node) else { continue };
            let Some(opening) = &mut peer.opening else { continue };
            match self.endpoint.finish_opening(opening, Duration::ZERO) {
                None => drop(self.opening.insert(node)),
                Some(Ok(channel)) => {
                    peer.opening = None;
                    self.install(node, channel);
                }
                Some(Err(_)) => {
                    peer.opening = None;
                    peer.failed_opening = Some(Instant::now());
                    if peer.channel.is_none() {
                        self.lost += peer.unsent.len() as u64;
                        peer.unsent.clear();
                    }
                }
            }
        }
    }

    /// Whether the message went, or will never go: what cannot for another reason than want of room is lost.
    fn post(&mut self, to: NodeId, message: &Arc<[u8]>) -> bool {
        let Some(channel) = self.peers.get(&to).and_then(|peer| peer.channel) else { return true };
        match self.endpoint.send(channel, KIND, message) {
            Ok(()) => true,
            Err(PostError::Full(_)) => false,
            Err(error) => {
                self.lost += 1;
                if let PostError::Ended(ended) = error {
                    let end = self.forget(ended);
                    self.ended.extend(end);
                }
                true
            }
        }
    }

    fn send_waiting(&mut self) {
        for node in self.waiting.clone() {
            self.send_waiting_to(node);
        }
    }

    fn send_waiting_to(&mut self, node: NodeId) {
        if !self.waiting.remove(&node) {
            return;
        }
        while let Some(message) = self.peers.get_mut(&node).and_then(|peer| peer.unsent.pop_front()) {
            if !self.post(node, &message) {
                self.peers.entry(node).or_default().unsent.push_front(message);
                self.waiting.insert(node);
                return;
            }
        }
    }

    /// A channel has ended. If it was the last to its node, says so. One that only gave the channel up may have done so for another that
    /// we have asked for: if that does not come either, its silence will tell.
    fn forget(&mut self, ended: ChannelEnded) -> Option<End> {
        let ChannelEnded { channel, cause, last_word, .. } = ended;
        let life = self.lives.remove(&channel);
        let node = self.nodes.remove(&channel)?;
        let other = self.nodes.iter().find(|(_, peer)| **peer == node).map(|(&channel, _)| channel);
        let peer = self.peers.get_mut(&node)?;
        if peer.channel == Some(channel) {
            self.lost += peer.unsent.len() as u64;
            peer.unsent.clear();
            (peer.channel, peer.since) = (other, Some(Instant::now()));
        }
        let is_certain = matches!(cause, Cause::Exited(_)) || last_word.is_some();
        let may_come = peer.opening.is_some() && !is_certain;
        (other.is_none() && !may_come).then_some(End { node, cause, last_word, life })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_net::InProcess;

    const SOON: Duration = Duration::from_secs(10);

    fn names() -> Names {
        Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() }
    }

    fn mesh(agent: &InProcess, node: u32) -> Mesh {
        let agent = agent.connect(&names().process(NodeId(node))).expect("an agent");
        Mesh::join(&agent, NodeId(node), names(), EndpointOptions::default()).expect("an endpoint")
    }

    /// Polls until something is so.
    fn until(mesh: &mut Mesh, mut so: impl FnMut(&Arrivals) -> bool) {
        let (deadline, mut arrivals) = (Instant::now() + SOON, Arrivals::default());
        loop {
            mesh.poll(&mut arrivals);
            if so(&arrivals) {
                return;
            }
            assert!(Instant::now() < deadline, "nothing came");
            mesh.wait(Duration::from_millis(10));
        }
    }

    fn message(text: &str) -> Arc<[u8]> {
        text.as_bytes().into()
    }

    #[test]
    fn an_address_is_a_nodes_and_no_other_is() {
        let names = names();
        assert_eq!(names.node("member-7/group"), Some(NodeId(7)));
        for other in [
            "member-07/group",
            "member-/group",
            "member-7/other",
            "other-7/group",
            "member-7",
            "member-+7/group",
        ] {
            assert_eq!(names.node(other), None, "{other}");
        }
        let beta = |node: u32| (NodeId(node), "beta".to_owned());
        let names = Names { elsewhere: [beta(7), beta(8)].into(), ..names };
        assert_eq!(names.node("beta:member-7/group"), Some(NodeId(7)));
        assert_eq!(names.node("member-6/group"), Some(NodeId(6)));
        for other in ["member-7/group", "gamma:member-7/group", "beta:member-6/group", ":member-6/group"] {
            assert_eq!(names.node(other), None, "{other}");
        }
    }

    #[test]
    fn everybody_hears_everybody_whoever_speaks_first() {
        let agent = InProcess::start();
        let mut meshes: Vec<_> = (0..3).map(|node| mesh(&agent, node)).collect();
        for from in 0..3_u32 {
            for to in (0..3).filter(|&to| to != from) {
                meshes[from as usize].send(NodeId(to), &message(&format!("{from} to {to}")));
            }
        }
        let mut heard: Vec<BTreeSet<_>> = vec![BTreeSet::new(); 3];
        let (deadline, mut arrivals) = (Instant::now() + SOON, Arrivals::default());
        while heard.iter().any(|heard| heard.len() < 2) {
            for (to, mesh) in meshes.iter_mut().enumerate() {
                mesh.poll(&mut arrivals);
                for (from, bytes) in arrivals.messages() {
                    assert_eq!(bytes, format!("{} to {to}", from.0).as_bytes());
                    heard[to].insert(from);
                }
            }
            assert!(Instant::now() < deadline, "nothing came");
        }
    }

    #[test]
    fn who_reads_slowly_gets_what_found_no_room_later_and_in_order() {
        let agent = InProcess::start();
        let (mut sender, mut reader) = (mesh(&agent, 0), mesh(&agent, 1));
        let sent = 200_u32;
        for number in 0..sent {
            sender.send(NodeId(1), &Arc::from(number.to_le_bytes()));
        }
        let (deadline, mut arrivals) = (Instant::now() + SOON, Arrivals::default());
        while sender.nodes.is_empty() {
            sender.poll(&mut arrivals);
            assert!(Instant::now() < deadline, "no channel");
        }
        assert!(sender.waiting.contains(&NodeId(1)), "a ring has fewer slots");
        let mut next = 0_u32;
        until(&mut reader, |come| {
            for (_, bytes) in come.messages() {
                assert_eq!(bytes, next.to_le_bytes());
                next += 1;
            }
            sender.poll(&mut arrivals);
            next == sent
        });
        assert_eq!(sender.lost(), 0);
    }

    /// A hub that sends much to many at once takes long for one round of it. What it asks of one that reads meanwhile must not wait for all
    /// that has gathered: it would take the time of the queue for silence.
    #[test]
    fn who_reads_while_others_are_sent_to_is_sent_on_and_what_is_urgent_comes_first() {
        let agent = InProcess::start();
        let (mut sender, mut reader) = (mesh(&agent, 0), mesh(&agent, 1));
        let mut arrivals = Arrivals::default();
        sender.send(NodeId(1), &message("first"));
        until(&mut reader, |come| {
            sender.poll(&mut arrivals);
            !come.is_empty()
        });
        let unsent = |sender: &Mesh| sender.peers[&NodeId(1)].unsent.len();
        while unsent(&sender) < 10 {
            sender.send(NodeId(1), &message("later"));
        }
        sender.send_urgently(NodeId(1), &message("urgent"));
        assert_eq!(unsent(&sender), 11);
        reader.poll(&mut arrivals);
        let in_ring = arrivals.messages().count();
        assert!(arrivals.messages().all(|(_, bytes)| bytes == b"later"));
        assert!(in_ring > 16, "a look takes all that is there: {in_ring}");
        sender.send(NodeId(1), &message("last"));
        assert_eq!(unsent(&sender), 0, "there was room");
        reader.poll(&mut arrivals);
        let words: Vec<_> = arrivals.messages().map(|(_, bytes)| bytes).collect();
        assert_eq!((words[0], words[11], words.len()), (&b"urgent"[..], &b"last"[..], 12));
        // Of what is too much, other messages are lost.
        while sender.lost() == 0 {
            sender.send(NodeId(1), &message("later"));
        }
        sender.send_urgently(NodeId(1), &message("urgent"));
        assert_eq!((unsent(&sender), sender.lost()), (MOST_UNSENT, 2));
        assert_eq!(&sender.peers[&NodeId(1)].unsent[0][..], b"urgent");
    }

    #[test]
    fn what_nobody_takes_is_lost_and_counted() {
        let agent = InProcess::start();
        let mut sender = mesh(&agent, 0);
        sender.send(NodeId(1), &message("nobody"));
        let (deadline, mut arrivals) = (Instant::now() + SOON, Arrivals::default());
        while sender.lost() == 0 {
            sender.poll(&mut arrivals);
            assert!(Instant::now() < deadline, "it was not lost");
        }
        let _reader = mesh(&agent, 2);
        for _ in 0..1000 {
            sender.send(NodeId(2), &message("too much"));
        }
        assert!((600..750).contains(&sender.lost()), "{}", sender.lost());
    }

    #[test]
    fn the_end_of_a_node_is_told_once_and_it_can_come_back() {
        let agent = InProcess::start();
        let (mut own, mut other) = (mesh(&agent, 0), mesh(&agent, 1));
        // Both ways at once: there may be two channels.
        own.send(NodeId(1), &message("a"));
        other.send(NodeId(0), &message("b"));
        let (mut arrivals, mut has_heard) = (Arrivals::default(), [false; 2]);
        until(&mut other, |come| {
            own.poll(&mut arrivals);
            has_heard = [has_heard[0] || !arrivals.is_empty(), has_heard[1] || !come.is_empty()];
            has_heard == [true; 2]
        });
        drop(other);
        let mut ends = 0;
        until(&mut own, |arrivals| {
            ends += arrivals.ended().len();
            ends == 1
        });
        let mut other = mesh(&agent, 1);
        own.send(NodeId(1), &message("again"));
        let mut arrivals = Arrivals::default();
        until(&mut other, |come| {
            own.poll(&mut arrivals);
            come.messages().any(|(_, bytes)| bytes == b"again")
        });
    }

    /// A host that died and was back within seconds was answered on the channel to its life before, until that channel's silence had
    /// lasted for its limit.
    #[test]
    fn who_opens_a_channel_anew_is_answered_there() {
        let agent = InProcess::start();
        let mut own = mesh(&agent, 0);
        let other = agent.connect(&names().process(NodeId(1))).expect("an agent");
        let mut other = other.endpoint("group").expect("an endpoint");
        let mut open = |own: &mut Mesh, text: &[u8]| {
            let channel = other.open("member-0/group").expect("a channel");
            other.send(channel, KIND, text).expect("room");
            until(own, |come| come.messages().any(|(_, bytes)| bytes == text));
            channel
        };
        let former = open(&mut own, b"once");
        std::thread::sleep(LATE + Duration::from_millis(1));
        let channel = open(&mut own, b"anew");
        own.send(NodeId(1), &message("answer"));
        let (deadline, mut answered, mut has_ended) = (Instant::now() + SOON, None, false);
        while answered.is_none() || !has_ended {
            match other.poll(|delivery| answered = Some(delivery.channel)) {
                Ok(_) => {}
                Err(ended) => has_ended |= ended.channel == former,
            }
            assert!(Instant::now() < deadline, "no answer");
        }
        assert_eq!(answered, Some(channel));
    }

    /// A host that was cut off is back, and with it what its life before has asked for: a channel that leads to nobody any more, later than
    /// the next life's.
    #[test]
    fn a_channel_of_a_life_that_is_over_takes_nobodys_place_however_late_it_comes() {
        let agent = InProcess::start();
        let mut own = mesh(&agent, 0);
        own.introduce(Incarnation(7));
        let other = agent.connect(&names().process(NodeId(1))).expect("an agent");
        let mut other = other.endpoint("group").expect("an endpoint");
        let mut open = |own: &mut Mesh, life: u64| {
            let channel = other.open("member-0/group").expect("a channel");
            other.send(channel, INTRODUCTION, &life.to_le_bytes()).expect("room");
            let text = life.to_string();
            other.send(channel, KIND, text.as_bytes()).expect("room");
            until(own, |come| come.messages().any(|(_, bytes)| bytes == text.as_bytes()));
            let (mut introduction, mut answered) = (None, None);
            own.send(NodeId(1), &message("answer"));
            let deadline = Instant::now() + SOON;
            while introduction.is_none() || answered.is_none() {
                // That a channel was closed is told here.
                let _ = other.poll(|delivery| match delivery.kind {
                    INTRODUCTION => introduction = Some((delivery.channel, delivery.payload.len())),
                    _ => answered = Some(delivery.channel),
                });
                assert!(Instant::now() < deadline, "no answer");
            }
            assert_eq!(introduction, Some((channel, 8)), "on each channel it says who it is");
            (channel, answered.expect("just seen"))
        };
        let (second, answered) = open(&mut own, 2);
        assert_eq!(answered, second);
        std::thread::sleep(LATE + Duration::from_millis(1));
        let (_, answered) = open(&mut own, 1);
        assert_eq!(answered, second);
        let (third, answered) = open(&mut own, 3);
        assert_eq!(answered, third, "at once, and not only when the one before is old");
        let (_, answered) = open(&mut own, 3);
        assert_eq!(answered, third, "both may have opened one at once");
        std::thread::sleep(LATE + Duration::from_millis(1));
        let (fifth, answered) = open(&mut own, 3);
        assert_eq!(answered, fifth, "that life has lost the one before");
    }

    #[test]
    fn a_stranger_is_shown_out() {
        let agent = InProcess::start();
        let mut own = mesh(&agent, 0);
        let mut stranger = agent.connect("stranger").expect("an agent").endpoint("out").expect("an endpoint");
        let channel = stranger.open("member-0/group").expect("a channel");
        stranger.send(channel, 0, b"let me in").expect("room");
        let mut arrivals = Arrivals::default();
        let deadline = Instant::now() + SOON;
        while stranger.poll(|_| {}).is_ok() {
            own.poll(&mut arrivals);
            assert!(arrivals.is_empty());
            assert!(Instant::now() < deadline, "the channel was not closed");
        }
    }
}
