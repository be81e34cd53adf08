//! The classic way: heartbeats, regroup, join and global update of MSCS.
//!
//! [`figures`] draws chapter 7's figures, [`ours`] the same of our own protocols; [`load`] says what a call is taken to cost.

use std::time::Duration;

use comb_sim::{Actor, Boot, Failure, Fault, Line, World};

use super::{Options, Report, Scenario, Watch};
use crate::NodeId;
use crate::mscs::timing::CONNECT_TUNED;
use crate::mscs::{Discovery, NodeSet, Phase};
use check::{SameMembers, TotalOrder};
use load::Load;
use node::{Command, Node, Plan};

mod check;
pub mod figures;
pub mod load;
mod node;
pub mod ours;

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "mscs",
    about: "The classic way: heartbeats, regroup, join and global update of MSCS",
    nodes: 2..=64,
    run,
};

/// How many nodes, if nothing is said.
const NODES: u32 = 5;

fn world(seed: u64, nodes: u32, plan: Plan, watch: Watch) -> World<Node> {
    let mut world = World::new(seed, move |boot: Boot<'_>| Node::start(&boot, plan));
    if let Some(mut watch) = watch {
        world.watch(move |line: &Line| watch(line));
    }
    world.add_nodes(nodes);
    world.check(SameMembers::default());
    world.check(TotalOrder::default());
    world
}

fn first(nodes: u32) -> NodeSet {
    (0..nodes).map(NodeId).collect()
}

/// Whether all of these have these members, and no regroup.
fn agree(world: &World<Node>, members: NodeSet) -> bool {
    let mut left = members;
    for (node, actor) in world.actors().filter(|(node, _)| members.contains(*node)) {
        let mscs = &actor.mscs;
        if mscs.members() == members && mscs.phase() == Phase::Regular && mscs.has_joined() {
            left.remove(node);
        }
    }
    left.is_empty()
}

/// Whether all updates are complete and applied everywhere.
fn is_quiet(world: &World<Node>) -> bool {
    let mut applied = world.actors().map(|(_, actor)| actor.mscs.applied());
    let first = applied.next();
    applied.all(|it| Some(it) == first) && world.actors().all(|(_, actor)| !actor.mscs.is_updating())
}

/// Everybody updates, some crash and come back, one stands still, messages are lost: at the end all agree.
fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    let nodes = options.nodes.unwrap_or(NODES).clamp(3, 32);
    let all = first(nodes);
    let discovery = Discovery::AskAll { connect_timeout: CONNECT_TUNED };
    let plan = Plan { members: all, configured: all, discovery, load: Load::Idle };
    let mut world = world(options.seed, nodes, plan, watch);
    world.network_mut().default.lost_per_million = 10_000;
    world.network_mut().default.doubled_per_million = 10_000;
    world.start_all();
    let rounds = if options.soak { 10 } else { 2 };
    let mut outages = Vec::new();
    for _ in 0..rounds {
        outages.push(outage(&mut world, nodes)?);
        let end =
            world.run_while_not(Duration::from_secs(600), |world| agree(world, all) && is_quiet(world))?;
        if !end {
            return Err(unfinished(&world, options.seed, "not all are members again"));
        }
    }
    world.end()?;
    let updates = world.actors().map(|(_, actor)| actor.mscs.applied().0).max().unwrap_or(0);
    let mean = outages.iter().sum::<Duration>().as_secs_f64() / f64::from(rounds);
    Ok(Report::of(&world, vec![("failover", mean, "s"), ("updates", updates as f64, "")]))
}

fn unfinished<A: Actor>(world: &World<A>, seed: u64, rule: &str) -> Failure {
    Failure { seed, at: world.now(), node: None, rule: rule.into() }
}

/// Less than half of the nodes crash, at some moments of a second in which everybody updates, and start again when they have been
/// regrouped away. Returns how long it took until the survivors agreed.
fn outage(world: &mut World<Node>, nodes: u32) -> Result<Duration, Failure> {
    world.run_for(Duration::from_secs(2))?;
    let start = world.now();
    for update in 0..4 * nodes {
        let when = start.saturating_add(world.dice().between(Duration::ZERO..Duration::from_secs(1)));
        world.command_at(when, NodeId(update % nodes), Command::Update(vec![7; 50]));
    }
    let mut survivors = first(nodes);
    for _ in 0..(nodes - 1) / 2 {
        let victim = NodeId(world.dice().below(nodes));
        survivors.remove(victim);
        let when = start.saturating_add(world.dice().between(Duration::ZERO..Duration::from_secs(1)));
        world.at(when, Fault::Crash(victim));
    }
    world.run_for(Duration::from_secs(1))?;
    let since = world.now();
    world.run_while_not(Duration::from_secs(120), |world| agree(world, survivors))?;
    let outage = world.now().since(since);
    for node in first(nodes).without(survivors).iter() {
        world.at(world.now(), Fault::Start(node));
    }
    world.run_for(Duration::from_secs(1))?;
    Ok(outage)
}

#[cfg(test)]
mod tests;
