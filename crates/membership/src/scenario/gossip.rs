//! News of every node reaches every node, and failures are seen.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Actor, Boot, Checker, Effects, Failure, Fault, Truth, World};
use comb_types::{NodeId, Time};

use super::{Options, Report, Scenario, Watch};
use crate::detect::buddy;
use crate::detect::lookout::{self, Event, Lookout};
use crate::detect::{Condition, Evidence};
use crate::state::{self, State};
use crate::view::Member;

mod heard;

pub use heard::{Heard, Hearer, listen};

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "gossip",
    about: "News of every node reaches every node, and failures are seen",
    nodes: 2..=20_000,
    run,
};

/// What is to be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Which run.
    pub seed: u64,
    /// How many nodes.
    pub nodes: u32,
    /// Messages that are lost, in a million.
    pub lost_per_million: u32,
    /// Every other node runs so long and stands so long, by turns.
    pub stutter: Option<(Duration, Duration)>,
    /// How long, from the start of the nodes on.
    pub lasting: Duration,
    /// Nodes that crash, one after the other, when all know each other.
    pub crashes: u32,
    /// Whether all nodes of the last zone crash at once as well.
    pub zone_crashes: bool,
    /// Whether few nodes watch each closely, besides gossip.
    pub buddies: bool,
}

impl Trial {
    /// Two virtual minutes of a network that loses nothing.
    pub fn quiet(seed: u64, nodes: u32) -> Self {
        let lasting = Duration::from_secs(120);
        Self {
            seed,
            nodes,
            lost_per_million: 0,
            stutter: None,
            lasting,
            crashes: 3,
            zone_crashes: false,
            buddies: false,
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// The same for two runs that did the same.
    pub trace_hash: u64,
    /// Inputs handled.
    pub steps: u64,
    /// Until all nodes knew all; none if they never did.
    pub acquainted: Option<Duration>,
    /// From a crash until the first observer had learnt of it, the worst of all crashes; none if nobody ever learnt of one of
    /// them, or there was none.
    pub first_learns: Option<Duration>,
    /// Until the last had; none if one never did.
    pub last_learns: Option<Duration>,
    /// Crashes of which not all nodes learnt.
    pub missed: u32,
    /// Healthy nodes that some node took for failed.
    pub false_failures: u32,
    /// And those suspected by one, which costs little.
    pub false_suspicions: u32,
    /// Bytes a second that a node sent, in the mean.
    pub mean_bytes: f64,
    /// And the one that sent most.
    pub most_bytes: f64,
    /// Of a node's protocol state, in the mean.
    pub memory_bytes: f64,
    /// The mean of the silence after which a node is suspected.
    pub threshold: Duration,
}

/// A node with a lookout that watches its zone.
pub struct Gossiper {
    lookout: Lookout,
    ring_changes: bool,
}

/// What a scenario tells a node.
#[derive(Clone, Debug)]
pub enum Command {
    /// An entry is to be so; none if it is to go.
    Write(&'static str, Option<Vec<u8>>),
    /// Something outside of the protocols was seen.
    Evidence(Evidence),
}

impl Gossiper {
    /// A node of a farm in which each knows the first of all, the first of its zone, and its neighbours.
    pub fn new(boot: &Boot<'_>, buddies: bool) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        Self::of(me, boot.seed, boot.now, buddies)
    }

    fn of(me: Member, seed: u64, now: Time, buddies: bool) -> Self {
        let node = me.node.0;
        let contacts = [0, node / 64 * 64, node.saturating_sub(1), node + 1];
        let state = state::Config::new(me, contacts.map(NodeId).to_vec(), seed);
        let buddy = buddies.then(|| buddy::Config::new(me, seed ^ 1));
        Self { lookout: Lookout::new(state, buddy, now), ring_changes: true }
    }

    /// Its state service.
    pub fn state(&self) -> &State {
        self.lookout.state()
    }

    /// What it makes of a life of a node.
    pub fn condition(&self, member: Member) -> Condition {
        self.lookout.condition(member)
    }

    fn feed(&mut self, now: Time, input: lookout::Input<'_>) {
        // What is refused is counted by the machine; here all peers are honest, but messages may be garbled on their way.
        let _ = self.lookout.handle(now, input);
    }

    /// Tells what there is to be known since the last input; what there is to be sent can be asked for then.
    fn poll(&mut self, now: Time, mut tell: impl FnMut(Event)) {
        loop {
            while let Some(event) = self.lookout.poll_event(now) {
                if let Event::State(event) = &event {
                    self.ring_changes |= changes_zone(event);
                }
                tell(event);
            }
            if !std::mem::take(&mut self.ring_changes) {
                break;
            }
            let members: Vec<_> = self.state().zone_members().collect();
            let input = lookout::Input::Members { members: &members, hub: None, grace: Duration::ZERO };
            self.feed(now, input);
        }
    }
}

impl Actor for Gossiper {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: comb_sim::Input<'_, Command>, effects: &mut Effects<'_, Event>) {
        let now = effects.now();
        match input {
            comb_sim::Input::Message { from, bytes } => {
                self.feed(now, lookout::Input::Message { from, bytes });
            }
            comb_sim::Input::Command(Command::Write(key, value)) => {
                self.lookout.write(now, key, value).expect("scenarios write what is allowed");
            }
            comb_sim::Input::Command(Command::Evidence(evidence)) => {
                self.feed(now, lookout::Input::Evidence(evidence));
            }
            _ => self.feed(now, lookout::Input::Timeout),
        }
        self.poll(now, |event| effects.tell(event));
        while let Some(transmit) = self.lookout.poll_transmit() {
            effects.send(transmit.to, transmit.bytes);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.lookout.next_timeout()
    }

    fn describe(message: &[u8]) -> String {
        state::describe(message)
    }
}

/// Whether others are alive in our zone since then, or may be.
fn changes_zone(event: &state::Event) -> bool {
    !matches!(
        event,
        state::Event::Suspected(_)
            | state::Event::Cleared(_)
            | state::Event::ZoneJoined { .. }
            | state::Event::Entry { .. }
    )
}

/// What the checkers saw.
#[derive(Debug, Default)]
pub struct Tally {
    false_failures: BTreeSet<Member>,
    false_suspicions: u32,
    /// Of each crash: when it was, and when each node learnt of it.
    crashes: BTreeMap<Member, (Time, Vec<Option<Time>>)>,
}

/// Nobody takes a healthy node for failed. Healthy is one that is up, neither stands still now and then nor is slow, and is
/// connected to the one that says so.
struct Accuracy {
    tally: Rc<RefCell<Tally>>,
    unwell: BTreeSet<NodeId>,
    /// Whether to go on, and only count.
    counts: bool,
}

impl Accuracy {
    fn is_healthy(&self, truth: &Truth<'_>, observer: NodeId, member: Member) -> bool {
        let (node, now) = (member.node, truth.now);
        (node.0 as usize) < truth.nodes.len()
            && !truth.is_dead(node, member.incarnation)
            && !self.unwell.contains(&node)
            && truth.network.connects(node, observer, now)
            && truth.network.connects(observer, node, now)
    }
}

impl Checker<Gossiper> for Accuracy {
    fn saw(&mut self, truth: &Truth<'_>, observer: NodeId, event: &Event) -> Result<(), String> {
        let condition = match event {
            Event::State(state::Event::Suspected(member)) => (*member, Condition::Suspected),
            Event::State(state::Event::Failed(member) | state::Event::Fenced(member)) => {
                (*member, Condition::Failed)
            }
            Event::Condition(change) if change.condition >= Condition::Failed => {
                (change.subject, change.condition)
            }
            _ => return Ok(()),
        };
        match condition {
            (member, Condition::Suspected) if self.is_healthy(truth, observer, member) => {
                self.tally.borrow_mut().false_suspicions += 1;
                Ok(())
            }
            (member, Condition::Failed | Condition::Fenced) if self.is_healthy(truth, observer, member) => {
                self.tally.borrow_mut().false_failures.insert(member);
                if self.counts { Ok(()) } else { Err(format!("{member:?} is healthy and taken for failed")) }
            }
            _ => Ok(()),
        }
    }

    fn fault(&mut self, _: &Truth<'_>, fault: &Fault) -> Result<(), String> {
        match *fault {
            Fault::Stutter { node, .. } | Fault::Slow { node, .. } | Fault::Pause { node, .. } => {
                self.unwell.insert(node);
            }
            Fault::Steady(node) => drop(self.unwell.remove(&node)),
            _ => {}
        }
        Ok(())
    }
}

/// Every node learns of every crash in time.
struct Completeness {
    tally: Rc<RefCell<Tally>>,
    limit: Duration,
    counts: bool,
}

impl Checker<Gossiper> for Completeness {
    fn saw(&mut self, truth: &Truth<'_>, observer: NodeId, event: &Event) -> Result<(), String> {
        if let Event::State(
            state::Event::Failed(member) | state::Event::Fenced(member) | state::Event::Lost(member),
        ) = event
            && let Some((_, learnt)) = self.tally.borrow_mut().crashes.get_mut(member)
        {
            learnt[observer.0 as usize].get_or_insert(truth.now);
        }
        Ok(())
    }

    fn fault(&mut self, truth: &Truth<'_>, fault: &Fault) -> Result<(), String> {
        if let Fault::Crash(node) = *fault
            && truth.node(node).is_up
        {
            let member = Member { node, incarnation: truth.node(node).incarnation };
            let unknown = vec![None; truth.nodes.len()];
            self.tally.borrow_mut().crashes.insert(member, (truth.now, unknown));
        }
        Ok(())
    }

    fn end(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        let tally = self.tally.borrow();
        for (member, (at, learnt)) in &tally.crashes {
            for node in truth.up().filter(|&node| truth.node(node).since <= *at) {
                let late = learnt[node.0 as usize].is_none_or(|time| time.since(*at) > self.limit);
                if late && !self.counts {
                    return Err(format!(
                        "{node} learnt of the crash of {member:?} at {at:?}: {:?}",
                        learnt[node.0 as usize]
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The nodes of a trial, about to start, and what the checkers will see. A false failure, or a crash that is not learnt of
/// within `limit`, ends the run; without a limit both are only counted.
pub fn farm(trial: Trial, limit: Option<Duration>) -> (World<Gossiper>, Rc<RefCell<Tally>>) {
    let mut world = World::new(trial.seed, move |boot| Gossiper::new(&boot, trial.buddies));
    let tally = Rc::new(RefCell::new(Tally::default()));
    let (accuracy, completeness) = (Rc::clone(&tally), Rc::clone(&tally));
    world.check(Accuracy { tally: accuracy, unwell: BTreeSet::new(), counts: limit.is_none() });
    let longest = limit.unwrap_or(trial.lasting);
    world.check(Completeness { tally: completeness, limit: longest, counts: limit.is_none() });
    world.add_nodes(trial.nodes);
    let link = &mut world.network_mut().default;
    // One packet of an Ethernet: what is longer is lost.
    (link.lost_per_million, link.longest_bytes) = (trial.lost_per_million, 1400);
    world.start_all();
    if let Some((runs, stands)) = trial.stutter {
        for node in (1..trial.nodes).step_by(2).map(NodeId) {
            let phase = world.dice().between(Duration::ZERO..runs + stands);
            world.at(Time::from_millis(1000).saturating_add(phase), Fault::Stutter { node, runs, stands });
        }
    }
    (world, tally)
}

/// Whether every node knows all others.
fn all_acquainted<'a>(actors: impl Iterator<Item = &'a Gossiper>, nodes: u32) -> bool {
    let mut up = 0;
    let mut actors = actors.inspect(|_| up += 1);
    actors.all(|actor| actor.state().alive() == nodes) && up == nodes
}

/// Runs a trial: half of it undisturbed, then with crashes. For `limit`, see [`farm`].
pub fn measure(trial: Trial, limit: Option<Duration>, watch: Watch) -> Result<Measured, Failure> {
    let (mut world, tally) = farm(trial, limit);
    if let Some(watch) = watch {
        world.watch(watch);
    }
    let (nodes, half) = (trial.nodes, trial.lasting / 2);
    let mut acquainted = None;
    while world.now() < Time::ZERO.saturating_add(half) {
        world.run_for(Duration::from_secs(1))?;
        if acquainted.is_none() && all_acquainted(world.actors().map(|(_, actor)| actor), nodes) {
            acquainted = Some(world.now().since(Time::ZERO));
        }
    }
    let sent = |world: &World<Gossiper>, node| world.traffic(NodeId(node)).sent_bytes;
    let before: Vec<u64> = (0..nodes).map(|node| sent(&world, node)).collect();
    for crash in 0..trial.crashes {
        let node = NodeId(world.dice().below(nodes));
        let at = half + half * crash / (2 * trial.crashes);
        world.at(Time::ZERO.saturating_add(at), Fault::Crash(node));
    }
    if trial.zone_crashes {
        for node in ((nodes - 1) / 64 * 64..nodes).map(NodeId) {
            world.at(Time::ZERO.saturating_add(half), Fault::Crash(node));
        }
    }
    world.run_until(Time::ZERO.saturating_add(trial.lasting))?;
    world.end()?;
    let rates: Vec<f64> = (0..nodes)
        .map(|node| (sent(&world, node) - before[node as usize]) as f64 / half.as_secs_f64())
        .collect();
    let mean = |figure: &dyn Fn(&State) -> f64| {
        world.actors().map(|(_, actor)| figure(actor.state())).sum::<f64>() / world.actors().count() as f64
    };
    let tally = tally.borrow();
    let times: Vec<_> = tally
        .crashes
        .values()
        .map(|(at, learnt)| {
            let observers: Vec<_> = world.truth().up().map(|node| learnt[node.0 as usize]).collect();
            learning(*at, &observers)
        })
        .collect();
    let missed = times.iter().filter(|times| times.1.is_none()).count();
    let worst =
        |times: Vec<Option<Duration>>| times.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max();
    Ok(Measured {
        trace_hash: world.trace_hash(),
        steps: world.steps(),
        acquainted,
        first_learns: worst(times.iter().map(|times| times.0).collect()),
        last_learns: worst(times.iter().map(|times| times.1).collect()),
        missed: u32::try_from(missed).unwrap_or(u32::MAX),
        false_failures: u32::try_from(tally.false_failures.len()).unwrap_or(u32::MAX),
        false_suspicions: tally.false_suspicions,
        mean_bytes: rates.iter().sum::<f64>() / f64::from(nodes),
        most_bytes: rates.iter().copied().fold(0.0, f64::max),
        memory_bytes: mean(&|state| state.memory_bytes() as f64),
        threshold: Duration::try_from_secs_f64(mean(&|state| state.threshold().as_secs_f64()))
            .unwrap_or_default(),
    })
}

/// How long the first, and how long the last observer took to learn of a crash. One who never did is no observer who was quick:
/// then there was no last.
fn learning(crash: Time, learnt: &[Option<Time>]) -> (Option<Duration>, Option<Duration>) {
    let took = || learnt.iter().map(|time| Some(time.as_ref()?.since(crash)));
    (took().flatten().min(), took().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max()))
}

fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    run_losing(options, None, watch)
}

/// Runs the scenario in a network that loses so many messages in a million, from the start on.
pub fn run_losing(options: Options, lost_per_million: Option<u32>, watch: Watch) -> Result<Report, Failure> {
    let mut trial = Trial::quiet(options.seed, options.nodes.unwrap_or(if options.soak { 1000 } else { 64 }));
    if options.soak {
        trial = Trial { lost_per_million: 250_000, lasting: Duration::from_secs(3600), ..trial };
    }
    trial.lost_per_million = lost_per_million.unwrap_or(trial.lost_per_million);
    let limit = if trial.lost_per_million > 0 { 30 } else { 12 };
    let measured = measure(trial, Some(Duration::from_secs(limit)), watch)?;
    // With a limit a crash that somebody missed has ended the run.
    let seconds = |span: Option<Duration>| span.unwrap_or_default().as_secs_f64();
    Ok(Report {
        trace_hash: measured.trace_hash,
        virtual_time: trial.lasting,
        steps: measured.steps,
        figures: vec![
            ("nodes", trial.nodes.into(), ""),
            ("first observer learns of a crash", seconds(measured.first_learns), "s"),
            ("last observer learns of a crash", seconds(measured.last_learns), "s"),
            ("false failures", measured.false_failures.into(), ""),
            ("false suspicions of single nodes", measured.false_suspicions.into(), ""),
            ("sent by a node, mean", measured.mean_bytes, "B/s"),
            ("sent by a node, most", measured.most_bytes, "B/s"),
            ("memory of a node", measured.memory_bytes, "B"),
            ("silence before a suspicion", measured.threshold.as_secs_f64(), "s"),
        ],
    })
}

#[cfg(test)]
mod tests;
