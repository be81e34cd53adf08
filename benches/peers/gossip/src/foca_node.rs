//! A node that runs foca. foca does no IO and has no clock: its `Runtime` is filled from and emptied into the world.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::net::SocketAddrV4;
use std::num::{NonZeroU8, NonZeroU32, NonZeroUsize};
use std::time::Duration;

use comb_sim::{Actor, Boot, Dice, Effects, Input, NodeId, Time};
use foca::{Config, Foca, Identity, NoCustomBroadcast, Notification, PostcardCodec, Runtime, Timer};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use crate::member::{self, Member, View};

/// How long a node that is no member of anything waits before it asks again.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// A member that was declared down comes back at once under its next life, as in foca's example of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identified {
    address: SocketAddrV4,
    life: u64,
}

impl Identified {
    fn of(node: NodeId) -> Self {
        // The example's lives begin with the seconds since 1970, which are five bytes on the wire.
        Self { address: member::address(node), life: 1_700_000_000 }
    }

    fn node(&self) -> NodeId {
        member::node(self.address)
    }
}

impl Identity for Identified {
    type Addr = SocketAddrV4;

    fn renew(&self) -> Option<Self> {
        Some(Self { life: self.life + 1, ..self.clone() })
    }

    fn addr(&self) -> SocketAddrV4 {
        self.address
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.life > adversary.life
    }
}

/// What foca itself recommends for a local network of this size.
pub fn default_settings(nodes: u32) -> Config {
    Config::new_lan(NonZeroU32::new(nodes).expect("a world has nodes"))
}

/// SWIM as in the paper: no gossip but on probes, and no word to those who were declared down.
pub fn simple_settings(_nodes: u32) -> Config {
    Config::simple()
}

/// The default settings, changed for a network that loses much. What costs little is raised freely: a quarter of lost
/// messages fails one probe in seven at three indirect probes, and one in thirty at ten. What remains has to be refuted in
/// time, so suspicion lasts three times as long and is spread to twice as many, twice as often told.
pub fn tuned_settings(nodes: u32) -> Config {
    let mut config = default_settings(nodes);
    config.num_indirect_probes = NonZeroUsize::new(10).expect("not 0");
    config.suspect_to_down_after *= 3;
    config.max_transmissions = config.max_transmissions.saturating_mul(NonZeroU8::new(2).expect("not 0"));
    if let Some(gossip) = &mut config.periodic_gossip {
        gossip.num_members = NonZeroUsize::new(6).expect("not 0");
    }
    config
}

/// A timer that foca wants back at a time. Of those due together foca wants its own order.
struct Pending {
    due: Time,
    timer: Timer<Identified>,
    number: u64,
}

impl Ord for Pending {
    /// The heap yields its greatest: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .due
            .cmp(&self.due)
            .then_with(|| other.timer.cmp(&self.timer))
            .then_with(|| other.number.cmp(&self.number))
    }
}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pending {}

/// What a node waits for.
#[derive(Default)]
struct Timers {
    pending: BinaryHeap<Pending>,
    /// How many were asked for: those alike go in that order.
    number: u64,
    /// When to ask again to be let in. foca does so once for a new identity and then waits to hear from somebody, which under
    /// heavy loss may be never; an agent that left it at that would be the one to blame.
    announce: Option<Time>,
}

impl Timers {
    fn pop(&mut self, now: Time) -> Option<Timer<Identified>> {
        self.pending.peek().filter(|first| first.due <= now)?;
        self.pending.pop().map(|first| first.timer)
    }
}

/// Hands what foca wants to the world.
struct Outside<'a, 'b> {
    effects: &'a mut Effects<'b, View>,
    timers: &'a mut Timers,
}

impl Runtime<Identified> for Outside<'_, '_> {
    fn notify(&mut self, notification: Notification<'_, Identified>) {
        match notification {
            Notification::MemberUp(member) => self.effects.tell(View::Up(member.node())),
            Notification::MemberDown(member) => self.effects.tell(View::Down(member.node())),
            Notification::Active => self.timers.announce = None,
            Notification::Idle | Notification::Defunct | Notification::Rejoin(_) => {
                self.timers.announce = Some(self.effects.now().saturating_add(ANNOUNCE_INTERVAL));
            }
            Notification::Rename(..) => {}
        }
    }

    fn send_to(&mut self, to: Identified, data: &[u8]) {
        self.effects.send(to.node(), data.to_vec());
    }

    fn submit_after(&mut self, timer: Timer<Identified>, after: Duration) {
        let due = self.effects.now().saturating_add(after);
        self.timers.number += 1;
        self.timers.pending.push(Pending { due, timer, number: self.timers.number });
    }
}

pub struct FocaNode {
    node: NodeId,
    foca: Foca<Identified, PostcardCodec, SmallRng, NoCustomBroadcast>,
    timers: Timers,
    dice: Dice,
    errors: u64,
}

impl FocaNode {
    pub fn new(boot: &Boot<'_>, config: Config) -> Self {
        let mut dice = Dice::new(boot.seed);
        let rng = SmallRng::seed_from_u64(dice.roll());
        Self {
            node: boot.node,
            foca: Foca::new(Identified::of(boot.node), config, rng, PostcardCodec),
            timers: Timers::default(),
            dice,
            errors: 0,
        }
    }

    /// Asks one that it knows, or the first node, to be let in.
    fn announce(&mut self, effects: &mut Effects<'_, View>) -> Result<(), foca::Error> {
        let known: Vec<_> = self.foca.iter_members().map(|member| member.id().clone()).collect();
        if known.is_empty() && self.node == NodeId(0) {
            return Ok(());
        }
        self.timers.announce = Some(effects.now().saturating_add(ANNOUNCE_INTERVAL));
        let to = if known.is_empty() {
            Identified::of(NodeId(0))
        } else {
            known[self.dice.index(known.len())].clone()
        };
        self.foca.announce(to, Outside { effects, timers: &mut self.timers })
    }

    fn timeout(&mut self, effects: &mut Effects<'_, View>) -> Result<(), foca::Error> {
        let now = effects.now();
        if self.timers.announce.is_some_and(|due| due <= now) {
            self.timers.announce = None;
            self.announce(effects)?;
        }
        while let Some(timer) = self.timers.pop(now) {
            self.foca.handle_timer(timer, Outside { effects, timers: &mut self.timers })?;
        }
        Ok(())
    }
}

impl Actor for FocaNode {
    type Command = ();
    type Event = View;

    fn handle(&mut self, input: Input<'_, ()>, effects: &mut Effects<'_, View>) {
        let outcome = match input {
            Input::Started => self.announce(effects),
            Input::Message { bytes, .. } => {
                self.foca.handle_data(bytes, Outside { effects, timers: &mut self.timers })
            }
            Input::Timeout => self.timeout(effects),
            _ => Ok(()),
        };
        self.errors += u64::from(outcome.is_err());
    }

    fn next_timeout(&self) -> Option<Time> {
        let first = self.timers.pending.peek().map(|first| first.due);
        first.into_iter().chain(self.timers.announce).min()
    }
}

impl Member for FocaNode {
    fn listed(&self) -> Vec<NodeId> {
        self.foca.iter_members().map(|member| member.id().node()).collect()
    }

    fn errors(&self) -> u64 {
        self.errors
    }
}
