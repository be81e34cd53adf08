//! The classic way: heartbeats, regroup, join and global update of MSCS.

use std::collections::BTreeMap;
use std::time::Duration;

use comb_sim::{Actor, Boot, Checker, Effects, Failure, Fault, Input as SimInput, Line, Truth, World};

use super::{Options, Report, Scenario, Watch};
use crate::mscs::{self, Event, Input, Mscs, NodeSet, Phase};
use crate::view::ViewEpoch;
use crate::{NodeId, Time};

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "mscs",
    about: "The classic way: heartbeats, regroup, join and global update of MSCS",
    run,
};

/// A node: the machine.
struct Node {
    mscs: Mscs,
}

#[derive(Clone, Debug)]
enum Command {
    OwnQuorumResource,
}

impl Node {
    fn feed(&mut self, input: Input<'_>, effects: &mut Effects<'_, Event>) {
        let outcome = self.mscs.handle(effects.now(), input);
        debug_assert!(outcome.is_ok(), "nobody lies here: {outcome:?}");
        while let Some(transmit) = self.mscs.poll_transmit() {
            effects.send(transmit.to, transmit.bytes);
        }
        while let Some(event) = self.mscs.poll_event() {
            if let Event::Halted(_) = event {
                effects.halt();
            }
            effects.tell(event);
        }
    }
}

impl Actor for Node {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: SimInput<'_, Command>, effects: &mut Effects<'_, Event>) {
        match input {
            SimInput::Message { from, bytes } => self.feed(Input::Message { from, bytes }, effects),
            SimInput::Command(Command::OwnQuorumResource) => {
                self.feed(Input::QuorumResource(true), effects);
            }
            SimInput::Started | SimInput::Timeout | SimInput::Synced { .. } => {
                self.feed(Input::Timeout, effects);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.mscs.next_timeout()
    }

    fn describe(message: &[u8]) -> String {
        mscs::describe(message).unwrap_or_else(|| format!("{} bytes", message.len()))
    }
}

/// All that install the members of one epoch install the same.
#[derive(Default)]
struct SameMembers {
    installed: BTreeMap<ViewEpoch, NodeSet>,
}

impl Checker<Node> for SameMembers {
    fn saw(&mut self, _truth: &Truth<'_>, _node: NodeId, event: &Event) -> Result<(), String> {
        let Event::Installed { epoch, members, .. } = event else { return Ok(()) };
        let first = *self.installed.entry(*epoch).or_insert(*members);
        if first == *members { Ok(()) } else { Err(format!("{epoch}: {members:?} and not {first:?}")) }
    }
}

fn cluster(seed: u64, nodes: u32, watch: Watch) -> World<Node> {
    let members: NodeSet = (0..nodes).map(NodeId).collect();
    let mut world =
        World::new(seed, move |boot: Boot<'_>| Node { mscs: Mscs::member(boot.now, boot.node, members) });
    if let Some(mut watch) = watch {
        world.watch(move |line: &Line| watch(line));
    }
    world.add_nodes(nodes);
    world.check(SameMembers::default());
    world.start_all();
    world
}

fn agreed(world: &World<Node>, members: NodeSet) -> bool {
    world
        .actors()
        .filter(|(node, _)| members.contains(*node))
        .all(|(_, actor)| actor.mscs.members() == members && actor.mscs.phase() == Phase::Regular)
}

fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    let nodes = options.nodes.unwrap_or(5);
    let mut world = cluster(options.seed, nodes, watch);
    world.run_for(Duration::from_secs(5))?;
    let victim = NodeId(nodes - 1);
    world.at(world.now(), Fault::Crash(victim));
    let left = (0..nodes - 1).map(NodeId).collect();
    let since = world.now();
    let done = world.run_while_not(Duration::from_secs(60), |world| agreed(world, left))?;
    assert!(done, "seed {}: no agreement", options.seed);
    Ok(Report {
        trace_hash: world.trace_hash(),
        virtual_time: world.now().since(Time::ZERO),
        steps: world.steps(),
        figures: vec![("failover", world.now().since(since).as_secs_f64(), "s")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sim_one_crash() {
        for seed in 0..3 {
            for nodes in [3, 5, 32] {
                let report = run(Options { seed, nodes: Some(nodes), soak: false }, None).unwrap();
                println!("{nodes}: {report:?}");
            }
        }
    }
}
