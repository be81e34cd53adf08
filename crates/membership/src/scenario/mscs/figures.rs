//! The figures of chapter 7, measured here.
//!
//! Each function is one run of a world of its own. What it returns depends on its parameters alone, so a figure is the same
//! wherever it is drawn; the times are those of the world.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Checker, Failure, Fault, Truth, World};

use super::node::{Command, Node, Plan, Sent};
use super::{Load, agree, first, is_quiet, unfinished, world};
use crate::mscs::timing::CONNECT_TUNED;
use crate::mscs::{Discovery, Event, JoinPhase};
use crate::{NodeId, Time};

/// What a figure is drawn over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// How many nodes, from 2 to 32 in the thesis, 64 at most.
    pub nodes: u32,
    /// What else they do.
    pub load: Load,
    /// Which run.
    pub seed: u64,
}

/// How long the last node takes to join all others. (Figure 7.1)
#[derive(Clone, PartialEq, Debug)]
pub struct Join {
    /// From its start until it and all others know that it is operational; none if it did not come in within the limit.
    pub total: Option<Duration>,
    /// How long each phase of the last attempt took, discovery first.
    pub phases: [Duration; 6],
    /// Attempts that failed, by sponsor's abort or joiner's giving up.
    pub failed: u32,
    /// Calls that all nodes made in all attempts.
    pub calls: u64,
}

/// How a cluster regroups after failures. (Figure 7.2)
#[derive(Clone, PartialEq, Debug)]
pub struct Regroup {
    /// From the first failure until all survivors have installed the membership without the failed.
    pub failover: Duration,
    /// From the first start of regroup until all are regular again.
    pub regroup: Duration,
    /// Regroup messages in all.
    pub messages: u64,
    /// Regroup messages in each 100 ms since the first failure.
    pub over_time: Vec<u64>,
}

/// How long updates take, one after the other, from one node. (Figures 7.4 and 7.5)
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Updates {
    /// Of one update, from its submission until all have it and the lock is free; the mean.
    pub latency: Duration,
    /// The longest.
    pub longest: Duration,
    /// How many complete in a second.
    pub per_second: f64,
}

/// Discovery by the cluster IP address takes one call, so that what is measured is the rest. (§7.7.1, phase 1)
const BY_ADDRESS: Discovery = Discovery::AskAddressHolder(NodeId(0));

/// How it is without the shortcut.
pub const OUT_OF_THE_BOX: Discovery = Discovery::AskAll { connect_timeout: crate::mscs::timing::CONNECT };

/// As tuned.
pub const TUNED: Discovery = Discovery::AskAll { connect_timeout: CONNECT_TUNED };

/// Long enough for a join that collapses under load to have been tried some times.
const JOIN_LIMIT: Duration = Duration::from_secs(600);

/// Notes events with the world's time.
#[derive(Clone, Default)]
struct Notes(Rc<RefCell<Vec<(Time, NodeId, Event)>>>);

impl Checker<Node> for Notes {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        self.0.borrow_mut().push((truth.now, node, event.clone()));
        Ok(())
    }
}

impl Notes {
    /// The first time that something was said.
    fn first(&self, is_it: impl Fn(&Event) -> bool) -> Option<Time> {
        self.0.borrow().iter().find(|(_, _, event)| is_it(event)).map(|(at, _, _)| *at)
    }

    fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.0.borrow().iter().filter(|(_, _, event)| is_it(event)).count()
    }
}

/// A cluster in which the first `running` nodes have been members for some seconds.
fn running(parameters: Parameters) -> Result<(World<Node>, Notes), Failure> {
    running_of(parameters, parameters.nodes, 0, BY_ADDRESS)
}

fn running_of(
    parameters: Parameters,
    running: u32,
    down: u32,
    discovery: Discovery,
) -> Result<(World<Node>, Notes), Failure> {
    let Parameters { nodes, load, seed } = parameters;
    let configured = first(nodes + down);
    let plan = Plan { members: first(running), configured, discovery, load };
    let mut world = world(seed, nodes + down, plan, None);
    for node in first(running).iter() {
        let when = world.dice().between(Duration::ZERO..Duration::from_millis(1200));
        world.at(Time::ZERO.saturating_add(when), Fault::Start(node));
    }
    world.run_for(Duration::from_secs(3))?;
    let notes = Notes::default();
    world.check(notes.clone());
    Ok((world, notes))
}

fn calls_made(world: &World<Node>) -> u64 {
    world.actors().map(|(_, node)| node.mscs.calls_made()).sum()
}

/// Joins the last node, found by the cluster IP address.
pub fn join(parameters: Parameters) -> Result<Join, Failure> {
    join_by(parameters, BY_ADDRESS, 0)
}

/// Joins the last node, which looks for the others in a given way, while so many more are configured and down.
pub fn join_by(parameters: Parameters, discovery: Discovery, down: u32) -> Result<Join, Failure> {
    let all = first(parameters.nodes);
    let (mut world, notes) = running_of(parameters, parameters.nodes - 1, down, discovery)?;
    let before = calls_made(&world);
    let start = world.now();
    world.start(NodeId(parameters.nodes - 1));
    let has_joined = world.run_while_not(JOIN_LIMIT, |world| agree(world, all) && is_quiet(world))?;
    let end = world.now();
    let mut phases = [Duration::ZERO; 6];
    let mut last: Option<(JoinPhase, Time)> = None;
    for (at, _, event) in notes.0.borrow().iter() {
        let next = match event {
            Event::Joining(phase) => Some(*phase),
            Event::Joined => None,
            _ => continue,
        };
        if let Some((phase, since)) = last {
            phases[phase as usize] = at.since(since);
        }
        last = next.map(|phase| (phase, *at));
    }
    Ok(Join {
        total: has_joined.then(|| end.since(start)),
        phases,
        failed: u32::try_from(notes.count(|event| matches!(event, Event::JoinFailed(_)))).unwrap_or(u32::MAX),
        calls: calls_made(&world) - before,
    })
}

fn sent(world: &World<Node>, by_kind: impl Fn(&Sent) -> u64) -> u64 {
    world.actors().map(|(_, node)| by_kind(&node.sent)).sum()
}

/// Lets so many nodes fail, within a second of each other, and watches the others regroup.
pub fn regroup(parameters: Parameters, failures: u32) -> Result<Regroup, Failure> {
    let Parameters { nodes, seed, .. } = parameters;
    let (mut world, notes) = running(parameters)?;
    let start = world.now();
    for victim in nodes - failures..nodes {
        let when = match victim {
            victim if victim == nodes - failures => Duration::ZERO,
            _ => world.dice().between(Duration::ZERO..Duration::from_secs(1)),
        };
        world.at(start.saturating_add(when), Fault::Crash(NodeId(victim)));
    }
    let survivors = first(nodes - failures);
    let mut over_time = Vec::new();
    let mut before = 0;
    let limit = start.saturating_add(Duration::from_secs(300));
    while !agree(&world, survivors) || !is_over(&world, &notes) {
        world.run_for(Duration::from_millis(100))?;
        let messages = sent(&world, |sent| sent.regroup);
        over_time.push(messages - before);
        before = messages;
        if world.now() > limit {
            return Err(unfinished(&world, seed, "the regroup does not end"));
        }
    }
    world.end()?;
    let notes = notes.0.borrow();
    let installs = notes.iter().filter(|(_, _, event)| matches!(event, Event::Installed { .. }));
    let installed = installs.map(|(at, _, _)| *at).max().unwrap_or(start);
    let is_start = |event: &Event| matches!(event, Event::RegroupStarted { .. });
    let started = notes.iter().find(|(_, _, event)| is_start(event)).map_or(start, |(at, _, _)| *at);
    let is_end = |event: &Event| matches!(event, Event::Entered(crate::mscs::Phase::Regular));
    let ended = notes.iter().rev().find(|(_, _, event)| is_end(event)).map_or(start, |(at, _, _)| *at);
    Ok(Regroup {
        failover: installed.since(start),
        regroup: ended.since(started),
        messages: before,
        over_time,
    })
}

/// Whether a regroup has been, and is over.
fn is_over(world: &World<Node>, notes: &Notes) -> bool {
    notes.first(|event| matches!(event, Event::Installed { .. })).is_some()
        && world.actors().all(|(_, node)| node.mscs.phase() == crate::mscs::Phase::Regular)
}

/// One node updates all, so many times, the next when the last is complete. The sender is not the locker if there is another.
pub fn updates(parameters: Parameters, bytes: usize, count: u32) -> Result<Updates, Failure> {
    let Parameters { nodes, seed, .. } = parameters;
    let (mut world, _) = running(parameters)?;
    let sender = NodeId(nodes - 1);
    let start = world.now();
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let submitted = world.now();
        world.command(sender, Command::Update(vec![0x5a; bytes]));
        // The command is not heard yet when the world is asked first.
        world.run_for(Duration::from_nanos(1))?;
        let is_complete =
            |world: &World<Node>| world.actor(sender).is_some_and(|node| !node.mscs.is_updating());
        if !world.run_while_not(Duration::from_secs(3600), is_complete)? {
            return Err(unfinished(&world, seed, "an update does not end"));
        }
        longest = longest.max(world.now().since(submitted));
    }
    let total = world.now().since(start);
    world.end()?;
    Ok(Updates { latency: total / count.max(1), longest, per_second: f64::from(count) / total.as_secs_f64() })
}

/// All nodes update at once, each so many times: how many complete in a second. Whoever has the lock finds the next waiting, so
/// this is a little more than from one sender, and no more: there is one lock. (Figure 7.5)
pub fn contended_updates_per_second(parameters: Parameters, bytes: usize, each: u32) -> Result<f64, Failure> {
    let Parameters { nodes, seed, .. } = parameters;
    let (mut world, _) = running(parameters)?;
    let start = world.now();
    for node in first(nodes).iter() {
        (0..each).for_each(|_| world.command(node, Command::Update(vec![0x5a; bytes])));
    }
    world.run_for(Duration::from_nanos(1))?;
    if !world.run_while_not(Duration::from_secs(36_000), is_quiet)? {
        return Err(unfinished(&world, seed, "the updates do not end"));
    }
    let total = world.now().since(start);
    world.end()?;
    Ok(f64::from(nodes * each) / total.as_secs_f64())
}

/// Heartbeats that all nodes together send in a second. (§7.6.1)
pub fn heartbeats_per_second(parameters: Parameters) -> Result<f64, Failure> {
    let (mut world, _) = running(parameters)?;
    let before = sent(&world, |sent| sent.heartbeats);
    world.run_for(Duration::from_secs(60))?;
    Ok((sent(&world, |sent| sent.heartbeats) - before) as f64 / 60.0)
}
