//! What every node says of itself, spread by gossip. (Galaxy §8.5.1)
//!
//! Each node has entries that it alone writes, and a version, which it raises whenever it gossips. Digests say who has heard of
//! which version of whom; answers bring what is newer. A version that no longer rises is a failure, which is told by the same
//! gossip. A zone is as many nodes as a digest lists. When there are more nodes than that, a node gossips so with its own zone,
//! and keeps of every other zone only how its nodes stand.
//!
//! | module | what |
//! |---|---|
//! | `message` | what is sent, and what of it is impossible |
//! | `entries` | keys and values of one node, tombstones, deltas |
//! | `standing` | who is alive and who has failed, in a form in which any two nodes come to agree |
//! | `near` | what is known of each node of our zone |
//! | `receive` | what a message changes |
//! | `hearsay` | what no peer is believed alone |
//! | `spread` | what is sent to whom, and how often |
//! | `distance` | who is near |
//! | `doubt` | from a version that does not rise to a failure |
//! | `beat` | the same for zones as a whole |

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{Dice, Incarnation, NodeId, Time};

use crate::detect::staleness::Staleness;
use crate::transmit::Transmit;
use crate::view::Member;
use crate::wire::PeerError;

mod beat;
mod distance;
mod doubt;
mod entries;
mod hearsay;
#[cfg(test)]
mod lies;
#[cfg(test)]
pub(crate) use lies::lie;
mod message;
mod near;
mod receive;
mod spread;
mod standing;
#[cfg(test)]
mod tests;

pub use distance::Distance;
use hearsay::Hearsay;
use message::News;
use near::Near;
use spread::{Pace, Rumour};
use standing::{Standing, Zones};

/// How one node gossips. All nodes of a farm need the same zones and the same limit on node numbers; all else may differ.
#[derive(Clone, Debug)]
pub struct Config {
    /// This life of this node.
    pub me: Member,
    /// Whom to ask first. They need not be alive, and the node itself may be among them.
    pub contacts: Vec<NodeId>,
    /// For the dice.
    pub seed: u64,
    /// From one round to the next.
    pub interval: Duration,
    /// Digests to the own zone in a round, when nothing is lost.
    pub fan_out: u32,
    /// And when so much is lost that it would take more.
    pub most_fan_out: u32,
    /// What rounds may cost, whatever is lost. Failures and changes, which are rare, come on top.
    pub most_bytes_per_second: u32,
    /// Nodes of a zone: those whose numbers divided by this are the same. At most 64.
    pub zone_size: u32,
    /// No node has this number or a greater one. What a peer says of such nodes costs no memory.
    pub most_nodes: u32,
    /// Of all gaps between two rises of a version, how many may be so long that they raise a suspicion.
    pub false_suspicions_per_billion: u32,
    /// How many nodes must suspect one, besides each of them for itself, before it has failed: so many or, in a small zone,
    /// most of those that are not suspected.
    pub quorum: usize,
    /// The longest that a threshold may grow to.
    pub longest_silence: Duration,
    /// After how many versions a tombstone is forgotten. A reader that was away for longer starts anew.
    pub tombstone_versions: u32,
    /// Whether whoever hears first how a node stands tells others at once. Not where something faster has told them: then all hear
    /// of it in the next rounds.
    pub is_urgent: bool,
    /// Gossip goes more often to near nodes.
    pub distance: Distance,
}

impl Config {
    /// For nodes on different hosts.
    pub fn new(me: Member, contacts: Vec<NodeId>, seed: u64) -> Self {
        Self {
            me,
            contacts,
            seed,
            interval: Duration::from_secs(1),
            fan_out: 2,
            most_fan_out: 8,
            most_bytes_per_second: 4500,
            zone_size: 64,
            most_nodes: 1 << 16,
            false_suspicions_per_billion: 1000,
            quorum: 8,
            longest_silence: Duration::from_secs(30),
            tombstone_versions: 3600,
            is_urgent: true,
            distance: Distance::default(),
        }
    }
}

/// What comes in.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A message.
    Message {
        /// Whence, as the transport says.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The time that [`State::next_timeout`] said has come, or an earlier or a later one.
    Timeout,
}

/// What is to be known outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A life of a node of which nothing was known.
    Joined(Member),
    /// Nodes of another zone, all in their first life. The first has the number `first`, and the others follow by bits.
    ZoneJoined {
        /// The number of the node that bit 0 stands for.
        first: NodeId,
        /// Which.
        nodes: u64,
    },
    /// Nothing was heard of it for longer than is likely.
    Suspected(Member),
    /// We hear nobody at all, and have not heard of this one for so long that we act as if it had failed. Others may know better,
    /// and are told nothing: it is the one word that a detector of another kind must not make a failure of.
    Lost(Member),
    /// A suspected one was heard of after all, or we hear somebody again.
    Cleared(Member),
    /// It has failed: so it was found here, or so others say.
    Failed(Member),
    /// It had not: it says so itself.
    Refuted(Member),
    /// It was ended, and this life of it cannot come back. If it is we, we have to stop.
    Fenced(Member),
    /// An entry of a node of our zone is so now; none if it was removed.
    Entry {
        /// Whose.
        owner: Member,
        /// Its key.
        key: String,
        /// What it is now.
        value: Option<Vec<u8>>,
    },
}

/// Why an entry was not written. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// At most 64 bytes.
    #[error("the key is too long")]
    KeyTooLong,
    /// At most 1024 bytes.
    #[error("the value is too long")]
    ValueTooLong,
}

/// The state service of one node.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    dice: Dice,
    /// Ourselves and all that our digests may list, in the order of their numbers.
    near: Vec<Near>,
    /// How often a place in `near` came to mean another node.
    moves: u32,
    zones: Zones,
    /// Whether other zones are only known by how their nodes stand.
    is_layered: bool,
    /// Whether whoever we heard last knows something else of how nodes stand.
    is_unsettled: bool,
    staleness: Staleness,
    /// Of the beats of other zones; none while there are none.
    zone_staleness: Option<Staleness>,
    /// The gap after which a node is suspected, as of the last round.
    threshold: Duration,
    pace: Pace,
    rumours: Vec<Rumour>,
    /// Failures of near nodes that others tell and that our own clock does not bear out yet.
    alleged: Vec<News>,
    /// What one peer alone says, and is not believed alone.
    hearsay: Vec<Hearsay>,
    /// Of these, only these are believed that one has failed: see [`State::set_jurors`].
    jurors: Vec<NodeId>,
    /// Near nodes that we take for failed only because we hear nobody.
    concluded_alone: Vec<Member>,
    next_round: Time,
    /// When something that is already doubted may have to be decided.
    next_check: Time,
    /// When anybody was heard last.
    heard_at: Time,
    refused: u64,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

impl State {
    /// A node that knows nobody yet. Its first round is due at once.
    pub fn new(config: Config, now: Time) -> Self {
        assert!(config.me.node.0 < config.most_nodes, "our own number is beyond the limit");
        assert!(config.me.incarnation.0 > 0, "the first incarnation is 1");
        let mut dice = Dice::new(config.seed);
        let first_round = now.saturating_add(dice.between(Duration::ZERO..config.interval / 8));
        let mut zones = Zones::new(config.zone_size);
        zones.raise(config.me.node, Standing::alive(config.me.incarnation));
        Self {
            near: alloc::vec![Near::new(config.me, now)],
            moves: 0,
            zones,
            is_layered: false,
            is_unsettled: false,
            staleness: Staleness::new(config.interval, config.false_suspicions_per_billion),
            zone_staleness: None,
            threshold: config.longest_silence,
            pace: Pace::default(),
            rumours: Vec::new(),
            alleged: Vec::new(),
            hearsay: Vec::new(),
            jurors: Vec::new(),
            concluded_alone: Vec::new(),
            next_round: first_round,
            next_check: Time::MAX,
            heard_at: now,
            refused: 0,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            dice,
            config,
        }
    }

    /// Feeds one input. Call again at [`State::next_timeout`] even if nothing arrived. An error names the peer that sent what it
    /// may not; nothing else has changed.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        self.notice_pause(now);
        match input {
            Input::Message { from, bytes } => {
                let received = self.receive(now, from, bytes);
                self.refused += u64::from(received.is_err());
                return received;
            }
            Input::Timeout if now >= self.next_round => self.round(now),
            Input::Timeout if now >= self.next_check => self.judge(now),
            Input::Timeout => {}
        }
        Ok(())
    }

    /// The next message to be sent. Ask until there is none.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next thing to be known. Ask until there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`State::handle`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        Some(self.next_round.min(self.next_check))
    }

    /// Writes an entry of this node, or removes it, and begins to spread that.
    pub fn write(&mut self, now: Time, key: &str, value: Option<Vec<u8>>) -> Result<(), WriteError> {
        if key.len() > entries::LONGEST_KEY {
            return Err(WriteError::KeyTooLong);
        }
        if value.as_ref().is_some_and(|value| value.len() > entries::LONGEST_VALUE) {
            return Err(WriteError::ValueTooLong);
        }
        let me = self.me();
        let before = me.entries.want();
        me.raise(now);
        me.entries.write(me.version, key, value);
        me.hash = me.entries.hash();
        self.push_change(before);
        Ok(())
    }

    /// An entry of a node of our zone.
    pub fn read(&self, owner: NodeId, key: &str) -> Option<&[u8]> {
        self.find(owner).ok().and_then(|place| self.near[place].entries.get(key))
    }

    /// All entries of a node of our zone.
    pub fn entries(&self, owner: NodeId) -> impl Iterator<Item = (&str, &[u8])> {
        self.find(owner).into_iter().flat_map(|place| self.near[place].entries.iter())
    }

    /// Takes a life of a node for failed because other detectors agree on it, and tells all nodes.
    pub fn fail(&mut self, now: Time, member: Member) {
        self.raise_life(now, member, Standing::failed);
    }

    /// The members of a group watch each other. What others say of their failures is not heard: who was cut off from them has taken
    /// them all for failed, and says so to the first that it meets.
    pub fn set_jurors(&mut self, members: &[Member]) {
        self.jurors.clear();
        self.jurors.extend(members.iter().map(|member| member.node));
    }

    /// A life of a node was ended for certain, and cannot come back. Tells all nodes.
    pub fn fence(&mut self, now: Time, member: Member) {
        self.raise_life(now, member, Standing::fenced);
    }

    /// The life of a node that is alive, as far as is known.
    pub fn member(&self, node: NodeId) -> Option<Member> {
        let standing = self.zones.get(node).filter(|standing| !standing.is_failed())?;
        let member = Member { node, incarnation: standing.incarnation };
        (!self.concluded_alone.contains(&member)).then_some(member)
    }

    /// The members of our zone that are alive, we among them, in the order of their numbers.
    pub fn zone_members(&self) -> impl Iterator<Item = Member> {
        self.near.iter().filter(|near| !near.is_failed).map(|near| near.member)
    }

    /// When the version of a node of our zone was last seen to rise, by our own clock, less what we stood still.
    pub fn heard_of(&self, node: NodeId) -> Option<Time> {
        Some(self.near[self.find(node).ok()?].risen_at)
    }

    /// How many nodes are alive, as far as is known; we are one.
    pub fn alive(&self) -> u32 {
        self.zones.alive() - u32::try_from(self.concluded_alone.len()).unwrap_or(0)
    }

    /// Whether there are so many that other zones are known in summary only.
    pub fn is_layered(&self) -> bool {
        self.is_layered
    }

    /// After what silence a node is suspected now.
    pub fn threshold(&self) -> Duration {
        self.threshold
    }

    /// Messages that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// About how much memory all this takes.
    pub fn memory_bytes(&self) -> usize {
        let near = self.near.capacity() * size_of::<Near>();
        let held = self.near.iter().map(Near::memory_bytes).sum::<usize>();
        let queues = self.transmits.capacity() * size_of::<Transmit>()
            + self.events.capacity() * size_of::<Event>()
            + self.rumours.capacity() * size_of::<Rumour>();
        size_of::<Self>() + near + held + queues + self.zones.bytes() + 2 * Staleness::MEMORY_BYTES
    }

    fn find(&self, node: NodeId) -> Result<usize, usize> {
        self.near.binary_search_by_key(&node, |near| near.member.node)
    }

    fn me(&mut self) -> &mut Near {
        let place = self.find(self.config.me.node).expect("we are always in our own zone");
        &mut self.near[place]
    }

    /// Whether our digests list it.
    fn is_near(&self, node: NodeId) -> bool {
        !self.is_layered || self.zones.zone_of(node) == self.zones.zone_of(self.config.me.node)
    }

    /// A node that stood still itself has heard nobody meanwhile, and may conclude nothing from it. What it was late by shows how
    /// long it stood.
    fn notice_pause(&mut self, now: Time) {
        let due = self.next_round.min(self.next_check);
        let late = now.since(due);
        if late > self.config.interval / 2 {
            for near in &mut self.near {
                near.stand_still(late);
            }
            for zone in self.zones.iter_mut() {
                zone.risen_at = zone.risen_at.saturating_add(late);
            }
            self.heard_at = self.heard_at.saturating_add(late);
            self.next_round = self.next_round.saturating_add(late);
            self.next_check = self.next_check.saturating_add(late);
        }
    }

    /// Something new about how a node stands, if it is new. Tells it, and everybody.
    fn raise(&mut self, now: Time, node: NodeId, standing: Standing) {
        if node == self.config.me.node {
            return self.hear_of_ourselves(now, standing);
        }
        let Some(before) = self.zones.raise(node, standing) else { return };
        let member = Member { node, incarnation: standing.incarnation };
        let is_new_life = before.is_none_or(|before| before.incarnation < standing.incarnation);
        if self.is_near(node) {
            self.keep_near(now, member, standing);
        }
        if is_new_life {
            self.events.push_back(Event::Joined(member));
        }
        if standing.is_fenced() {
            self.events.push_back(Event::Fenced(member));
        } else if standing.is_failed() {
            self.events.push_back(Event::Failed(member));
        } else if !is_new_life {
            self.events.push_back(Event::Refuted(member));
        }
        // That a node of a young farm joined is in every digest anyway. All else is worth a message of its own.
        self.rumour(News { node, standing }, before.is_some() && self.config.is_urgent);
        self.choose_layers();
    }

    fn raise_life(&mut self, now: Time, member: Member, change: fn(Standing) -> Standing) {
        let known = self.zones.get(member.node).unwrap_or(Standing::alive(member.incarnation));
        if known.incarnation <= member.incarnation {
            let known = known.max(Standing::alive(member.incarnation));
            self.raise(now, member.node, change(known));
        }
    }

    /// Others say of us what may not be so.
    fn hear_of_ourselves(&mut self, now: Time, standing: Standing) {
        let me = self.config.me;
        if standing.incarnation != me.incarnation
            || self.zones.get(me.node).is_some_and(|own| own >= standing)
        {
            return;
        }
        let refuted = standing.refuted();
        self.zones.raise(me.node, refuted);
        if refuted.is_fenced() {
            self.events.push_back(Event::Fenced(me));
        }
        self.me().raise(now);
        self.rumour(News { node: me.node, standing: refuted }, true);
    }

    /// A node of our zone stands otherwise, or is new.
    fn keep_near(&mut self, now: Time, member: Member, standing: Standing) {
        match self.find(member.node) {
            Ok(place) => {
                let near = &mut self.near[place];
                if near.member.incarnation < member.incarnation {
                    near.forget_entries(&mut self.events);
                    *near = Near::new(member, now);
                }
                let near = &mut self.near[place];
                if near.is_failed && !standing.is_failed() {
                    near.risen_at = now;
                }
                near.is_failed = standing.is_failed();
                near.doubt = None;
            }
            Err(place) => {
                self.moves = self.moves.wrapping_add(1);
                let is_failed = standing.is_failed();
                self.near.insert(place, Near { is_failed, ..Near::new(member, now) });
            }
        }
    }

    /// More nodes than a digest lists fall into zones. A quarter fewer, and they are one again: so that the one that comes and
    /// goes does not change everything each time.
    fn choose_layers(&mut self) {
        let (alive, zone) = (self.zones.alive(), self.config.zone_size);
        if !self.is_layered && alive > zone {
            self.is_layered = true;
            self.moves = self.moves.wrapping_add(1);
            let own_zone = self.zones.zone_of(self.config.me.node);
            let zones = &self.zones;
            self.near.retain(|near| zones.zone_of(near.member.node) == own_zone);
        } else if self.is_layered && alive <= zone / 4 * 3 {
            self.is_layered = false;
            let everybody = self.zones.everybody();
            for (node, standing) in everybody {
                if self.find(node).is_err() {
                    let member = Member { node, incarnation: standing.incarnation };
                    self.keep_near(self.heard_at, member, standing);
                }
            }
        }
    }
}

/// A message in words, for a log.
#[cfg(feature = "scenarios")]
pub fn describe(bytes: &[u8]) -> String {
    use crate::wire::{Protocol, decode};
    let message = decode::<message::Message>(NodeId(0), Protocol::State, bytes);
    message.map_or_else(|error| alloc::format!("{error}"), |message| alloc::format!("{message:?}"))
}

/// A node by number and life.
fn life(node: NodeId, incarnation: Incarnation) -> Member {
    Member { node, incarnation }
}
