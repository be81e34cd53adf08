//! Chapter 7's figures of our own protocols, in the classic way's world: the same nodes, the same network, and the same wait for
//! the processor before each message that is not the kernel's. ([`super::load`])
//!
//! What our own detectors send is counted apart, as the classic way's heartbeats are, and waits as all does: they are no kernel's.

use std::time::Duration;

use comb_sim::{Actor, Boot, Effects, Failure, Fault, Input as Happening, World};

use super::figures::{Parameters, Updates};
use super::load::Load;
use super::unfinished;
use crate::detect::Kind;
use crate::mscs::timing::{ACTIVATE_LEAST, ENABLE, REGROUP_TICK, SUSPICION};
use crate::order::{Level, Order};
use crate::regroup::{Regroup, Stage};
use crate::stack::{Config, Event, Input, Stack};
use crate::transmit::To;
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{self, Protocol};
use crate::{Dice, Incarnation, NodeId, Time};

/// What a change of the view cost. (Figures 7.1 and 7.2)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// From the joiner's start, or the failure, until all have installed the view and know that all have; none if that
    /// view did not come within the limit.
    pub total: Option<Duration>,
    /// All messages that all nodes sent meanwhile, but for the detectors'.
    pub messages: u64,
    /// The longest chain of messages of which each was sent after the one before had come. A call makes two.
    pub in_turn: u64,
    /// How often the last node sent something since.
    pub rounds: u32,
}

/// How long our protocols wait for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timers {
    /// As they come: for members that answer within half a second.
    Own,
    /// As long as the classic way, for members that it lets be as slow.
    Classic,
}

impl Timers {
    fn config(self) -> Config {
        let mut config = Config::default();
        // The thesis has updates of 2 KB.
        config.order.longest_message = 8 << 10;
        if self == Self::Classic {
            (config.regroup.resend, config.join.resend) = (REGROUP_TICK, REGROUP_TICK);
            (config.regroup.activate, config.regroup.patience) = (ACTIVATE_LEAST, ACTIVATE_LEAST);
            config.join.patience = ENABLE;
            // Four pings without an answer make a suspicion, and so long is the silence that the classic way bears.
            (config.watching.ping, config.watching.gossip) = (SUSPICION / 4, SUSPICION / 2);
        }
        config
    }
}

/// Who notices a failure at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Witnesses {
    /// Nobody: the detectors have to.
    Nobody,
    /// One survivor. The others wait for the failed one until their timers end, or their detectors have seen it.
    One,
    /// All, as when a process dies to which each has a channel.
    All,
}

/// As long as the classic way has.
const LIMIT: Duration = Duration::from_secs(600);

/// Joins the last node; it asks all others for a sponsor at once. (Figure 7.1)
pub fn join(parameters: Parameters, timers: Timers) -> Result<Change, Failure> {
    let all = parameters.nodes;
    let mut world = running(parameters, timers, all - 1)?;
    change(&mut world, all, |world, now| world.at(now, Fault::Start(NodeId(all - 1))))
}

/// Lets the last nodes fail, so many of them, at once. (Figure 7.2)
pub fn regroup(
    parameters: Parameters,
    timers: Timers,
    failures: u32,
    witnesses: Witnesses,
) -> Result<Change, Failure> {
    let survivors = parameters.nodes - failures;
    let mut world = running(parameters, timers, parameters.nodes)?;
    change(&mut world, survivors, |world, now| {
        for victim in (survivors..parameters.nodes).map(NodeId) {
            let witness = world.dice().below(survivors);
            world.at(now, Fault::Crash(victim));
            let is_witness = |node: &u32| match witnesses {
                Witnesses::Nobody => false,
                Witnesses::One => *node == witness,
                Witnesses::All => true,
            };
            for node in (0..survivors).filter(is_witness) {
                world.command(NodeId(node), Command::Notice(victim));
            }
        }
    })
}

/// One node updates all, so many times, the next when the last is as far as `level`. The sender is not the sequencer if there is
/// another. (Figures 7.4 and 7.5)
pub fn updates(
    parameters: Parameters,
    timers: Timers,
    level: Level,
    bytes: usize,
    count: u32,
) -> Result<Updates, Failure> {
    let mut world = running(parameters, timers, parameters.nodes)?;
    let sender = NodeId(parameters.nodes - 1);
    let start = world.now();
    let mut longest = Duration::ZERO;
    for update in 1..=u64::from(count) {
        let submitted = world.now();
        world.command(sender, Command::Submit { level, bytes });
        let reached = |world: &World<Node>| world.actor(sender).is_some_and(|node| node.reached == update);
        if !world.run_while_not(LIMIT, reached)? {
            return Err(unfinished(&world, parameters.seed, "an update does not end"));
        }
        longest = longest.max(world.now().since(submitted));
    }
    let total = world.now().since(start);
    Ok(Updates { latency: total / count.max(1), longest, per_second: f64::from(count) / total.as_secs_f64() })
}

/// All nodes update at once, each so many times: how many everybody has in a second. (Figure 7.5)
pub fn contended_updates_per_second(
    parameters: Parameters,
    timers: Timers,
    bytes: usize,
    each: u32,
) -> Result<f64, Failure> {
    let mut world = running(parameters, timers, parameters.nodes)?;
    let (start, all) = (world.now(), parameters.nodes * each);
    for node in (0..parameters.nodes).map(NodeId) {
        (0..each).for_each(|_| world.command(node, Command::Submit { level: Level::Majority, bytes }));
    }
    let has_all = |node: &Node| node.stack.order().map(Order::delivered) >= Some(u64::from(all));
    if !world.run_while_not(LIMIT, |world| world.actors().all(|(_, node)| has_all(node)))? {
        return Err(unfinished(&world, parameters.seed, "the updates do not end"));
    }
    Ok(f64::from(all) / world.now().since(start).as_secs_f64())
}

/// A world of `nodes`, of which the first `running` have been members for some seconds.
fn running(parameters: Parameters, timers: Timers, running: u32) -> Result<World<Node>, Failure> {
    let Parameters { nodes, load, seed } = parameters;
    let members = (0..running).map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) });
    let first = View { epoch: ViewEpoch(1), members: members.collect(), tie_breaker: NodeId(0) };
    let mut world = World::new(seed, move |boot: Boot<'_>| Node::start(&boot, timers.config(), &first, load));
    world.add_nodes(nodes);
    (0..running).for_each(|node| world.start(NodeId(node)));
    let is_settled = |world: &World<Node>| agree(world, running);
    if !world.run_while_not(LIMIT, is_settled)? {
        return Err(unfinished(&world, seed, "not all are members"));
    }
    // Members of a first view may be silent for some seconds longer than others.
    world.run_for(timers.config().watching.starting + Duration::from_secs(3))?;
    Ok(world)
}

/// Whether the first so many nodes are all members, nobody else is, and they know it.
fn agree(world: &World<Node>, members: u32) -> bool {
    let is_so = |regroup: &Regroup| {
        regroup.stage() == Stage::Settled && regroup.view().nodes().eq((0..members).map(NodeId))
    };
    let agreeing = world.actors().filter(|(_, node)| node.stack.regroup().is_some_and(is_so));
    agreeing.count() == members as usize
}

fn change(
    world: &mut World<Node>,
    members: u32,
    cause: impl FnOnce(&mut World<Node>, Time),
) -> Result<Change, Failure> {
    let start = world.now();
    for node in 0..members {
        world.command(NodeId(node), Command::Count);
    }
    cause(world, start);
    // Commands are heard, and a node starts, only when the world goes on.
    world.run_for(Duration::from_nanos(1))?;
    let is_in = world.run_while_not(LIMIT, |world| agree(world, members))?;
    let in_turn = world.actors().map(|(_, node)| u64::from(node.chain)).max().unwrap_or(0);
    let rounds = world.actor(NodeId(members - 1)).map_or(0, |node| node.rounds);
    let messages = world.actors().map(|(_, node)| node.sent).sum();
    let total = is_in.then(|| world.now().since(start));
    Ok(Change { total, messages, in_turn, rounds })
}

#[derive(Clone, Debug)]
enum Command {
    Submit {
        level: Level,
        bytes: usize,
    },
    Notice(NodeId),
    /// Chains of messages begin here.
    Count,
}

/// A member, and the wait for the processor before it.
struct Node {
    me: Member,
    stack: Stack,
    load: Load,
    dice: Dice,
    waiting: Vec<(NodeId, Vec<u8>)>,
    wakes_at: Option<Time>,
    /// Own updates that are as far as they were to come.
    reached: u64,
    /// The longest chain of messages that ends here, but for the detectors'. Each message says the one that ends with it, before
    /// its bytes.
    chain: u16,
    /// Messages, and how often there were any.
    sent: u64,
    rounds: u32,
}

impl Node {
    fn start(boot: &Boot<'_>, mut config: Config, first: &View, load: Load) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        config.join.contacts = first.nodes().collect();
        config.watching.seed = boot.seed;
        let stack = if first.members.contains(&me) {
            Stack::configured(config, me, first.clone(), boot.now)
        } else {
            Stack::joining(config, me, boot.now)
        };
        let dice = Dice::new(boot.seed);
        Self {
            me,
            stack,
            load,
            dice,
            waiting: Vec::new(),
            wakes_at: None,
            reached: 0,
            chain: 0,
            sent: 0,
            rounds: 0,
        }
    }

    fn feed(&mut self, now: Time, input: Input<'_>) {
        let fed = self.stack.handle(now, input);
        assert!(fed.is_ok(), "nobody lies here: {fed:?}");
    }

    /// All that came since the last time is handled together.
    fn wake_up(&mut self, now: Time) {
        if self.wakes_at.is_some_and(|time| now >= time) {
            self.wakes_at = None;
            for (from, bytes) in std::mem::take(&mut self.waiting) {
                let Some((chain, bytes)) = bytes.split_first_chunk() else { continue };
                self.chain = self.chain.max(u16::from_le_bytes(*chain));
                self.feed(now, Input::Message { from, bytes });
            }
        }
    }

    fn poll(&mut self, effects: &mut Effects<'_, ()>) {
        let before = self.sent;
        loop {
            let mut is_done = true;
            while let Some(cast) = self.stack.poll_transmit(effects.now()) {
                is_done = false;
                let is_counted = !is_watching(self.me.node, &cast.bytes);
                let chain = if is_counted { self.chain.saturating_add(1) } else { 0 };
                let bytes = [&chain.to_le_bytes(), &cast.bytes[..]].concat();
                let to: Vec<_> = match cast.to {
                    To::One(to) => vec![to],
                    To::Others => self.stack.view().into_iter().flat_map(View::nodes).collect(),
                };
                for to in to.into_iter().filter(|&to| to != self.me.node) {
                    self.sent += u64::from(is_counted);
                    effects.send(to, bytes.clone());
                }
            }
            while let Some(event) = self.stack.poll_event() {
                is_done = false;
                match event {
                    Event::Reached { .. } => self.reached += 1,
                    Event::WantsState => self.feed(effects.now(), Input::State(b"")),
                    Event::Acquire { epoch, .. } => {
                        self.feed(effects.now(), Input::Acquired { epoch, granted: false });
                    }
                    Event::Excluded { .. } => effects.halt(),
                    _ => {}
                }
            }
            if is_done {
                self.rounds += u32::from(self.sent > before);
                return;
            }
        }
    }
}

/// Whether this is a detector's, which come at all times.
fn is_watching(from: NodeId, bytes: &[u8]) -> bool {
    matches!(wire::protocol(from, bytes), Ok(Protocol::Detect | Protocol::State))
}

impl Actor for Node {
    type Command = Command;
    type Event = ();

    fn handle(&mut self, input: Happening<'_, Command>, effects: &mut Effects<'_, ()>) {
        let now = effects.now();
        self.wake_up(now);
        match input {
            Happening::Message { from, bytes } => {
                self.waiting.push((from, bytes.to_vec()));
                if self.wakes_at.is_none() {
                    self.wakes_at =
                        Some(now.saturating_add(self.load.wake_up(&mut self.dice, None, bytes.len())));
                }
            }
            Happening::Command(Command::Submit { level, bytes }) => {
                let submitted = self.stack.submit(now, level, &vec![0x5a; bytes]);
                assert!(submitted.is_ok(), "there is room: {submitted:?}");
            }
            Happening::Command(Command::Notice(node)) => {
                self.feed(now, Input::Noticed(node, Kind::ProcessExit));
            }
            Happening::Command(Command::Count) => (self.chain, self.sent, self.rounds) = (0, 0, 0),
            Happening::Started | Happening::Timeout | Happening::Synced { .. } => {
                self.feed(now, Input::Timeout);
            }
        }
        self.poll(effects);
    }

    fn next_timeout(&self) -> Option<Time> {
        [self.stack.next_timeout(), self.wakes_at].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures;
    use super::*;

    fn idle(nodes: u32) -> Parameters {
        Parameters { nodes, load: Load::Idle, seed: 1 }
    }

    #[test]
    fn sim_however_many_there_are_a_joiner_speaks_five_times() {
        for nodes in [2, 8, 32] {
            let join = join(idle(nodes), Timers::Own).expect("no rule is broken");
            assert!(join.total.is_some(), "{nodes} nodes: not all are in");
            assert_eq!(join.rounds, 5, "hello, state, petition, flushed, installed");
            assert!((2 * u64::from(join.rounds)..=20).contains(&join.in_turn), "{nodes} nodes: {join:?}");
        }
    }

    /// With its own timers it takes members for failed that stand still for longer than half a second.
    #[test]
    fn sim_a_loaded_cluster_of_32_lets_everybody_in_if_it_is_as_patient_as_the_classic_one() {
        let join = |seed, timers| {
            let loaded = Parameters { nodes: 32, load: Load::Loaded, seed };
            join(loaded, timers).expect("no rule is broken").total
        };
        assert!((1..=4).all(|seed| join(seed, Timers::Classic).is_some()));
        assert!(join(1, Timers::Own).is_none(), "this load shows nothing");
    }

    #[test]
    fn sim_a_regroup_waits_for_no_timer_if_all_notice_a_failure() {
        let own = Timers::Own;
        let total = |witnesses| regroup(idle(32), own, 1, witnesses).expect("no rule is broken").total;
        let (all, one) = (total(Witnesses::All), total(Witnesses::One));
        let timer = own.config().regroup.activate;
        assert!(all.is_some_and(|all| all < timer), "{all:?}");
        let nobody = total(Witnesses::Nobody);
        assert!(one > all && nobody > all, "who was not told cannot know as soon: {one:?}, {nobody:?}");
        let messages = |witnesses| regroup(idle(32), own, 1, witnesses).expect("no rule is broken").messages;
        let classic = figures::regroup(idle(32), 1).expect("no rule is broken").messages;
        assert!(10 * messages(Witnesses::All) < classic, "about ten messages a member");
    }

    #[test]
    fn sim_an_update_goes_to_all_at_once() {
        let updates = |nodes| {
            updates(idle(nodes), Timers::Own, Level::Majority, 50, 10).expect("no rule is broken").latency
        };
        let (few, many) = (updates(4), updates(32));
        assert!(many < 2 * few, "{few:?} with 4, {many:?} with 32");
        let together = |nodes| {
            contended_updates_per_second(idle(nodes), Timers::Own, 50, 10).expect("no rule is broken")
        };
        let (few, many) = (together(4), together(32));
        assert!(many > few, "{few}/s of 4, {many}/s of 32");
    }
}
