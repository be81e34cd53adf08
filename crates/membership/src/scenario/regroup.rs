//! A group agrees on who is left after failures and partitions.
//!
//! Five nodes form a group; one crashes, and comes back; then a storm of crashes, pauses, partitions and clocks that run wrong.
//! When it is over, everybody that is up must be in one view again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Failure, Fault, Link, NodeId, Weather, World};
use comb_types::Incarnation;

use super::{Options, Report, Scenario, Watch};
use crate::quorum::ResourceInMemory;
use crate::regroup::Strength;
use actor::{Command, Node};
use checkers::{Rules, Shared};

mod actor;
mod checkers;
mod copies;
#[cfg(test)]
mod tests;

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "regroup",
    about: "A group agrees on who is left after failures and partitions",
    nodes: 1..=64,
    run,
};

/// How long it may take until all are in one view when nothing is wrong any more. Ballots may have backed off to eight seconds.
const CALM: Duration = Duration::from_secs(30);

/// A world with its rules.
struct Run {
    world: World<Node>,
    history: Shared,
    resource: Rc<RefCell<ResourceInMemory>>,
    nodes: u32,
    interventions: u32,
}

impl Run {
    fn new(seed: u64, nodes: u32, watch: Watch) -> Self {
        let resource = Rc::new(RefCell::new(ResourceInMemory::default()));
        let asked = resource.clone();
        let mut world = World::new(seed, move |boot| {
            // A group is founded once, by the first life of one node. Later, only people may.
            let may_found = boot.node == NodeId(0) && boot.incarnation == Incarnation(1);
            Node::new(&boot, nodes, may_found, asked.clone())
        });
        if let Some(watch) = watch {
            world.watch(watch);
        }
        let history = Shared::default();
        world.check(Rules(history.clone()));
        world.add_nodes(nodes);
        Self { world, history, resource, nodes, interventions: 0 }
    }

    /// Whether all that are up are settled in one view, which has no others.
    fn is_whole(world: &World<Node>) -> bool {
        let mut views = world.actors().map(|(_, node)| node.view().filter(|_| node.is_settled()));
        let Some(Some((view, _))) = views.next() else { return false };
        views.all(|other| other.is_some_and(|(other, _)| other == view))
            && view.nodes().eq(world.truth().up())
    }

    fn become_whole(&mut self, limit: Duration) -> Result<bool, Failure> {
        self.world.run_while_not(limit, Self::is_whole)
    }

    /// All start, and form a group.
    fn form(&mut self) -> Result<(), Failure> {
        self.world.start_all();
        self.world.run_for(Duration::from_secs(1))?;
        if !self.become_whole(CALM)? {
            return Err(self.failure("the group did not form"));
        }
        Ok(())
    }

    fn failure(&self, rule: &str) -> Failure {
        Failure { seed: 0, at: self.world.now(), node: None, rule: rule.to_owned() }
    }

    fn regroup_messages(&self) -> u64 {
        self.world.actors().map(|(_, node)| node.regroup_sent).sum()
    }

    /// One member crashes, and the detectors of all others say so: how long until the rest has settled, and with how many
    /// messages.
    fn crash(&mut self, node: NodeId) -> Result<(Duration, u64), Failure> {
        let now = self.world.now();
        let before = self.regroup_messages() - self.world.actor(node).map_or(0, |node| node.regroup_sent);
        self.world.at(now, Fault::Crash(node));
        for other in (0..self.nodes).map(NodeId).filter(|other| *other != node) {
            self.world.command(other, Command::Suspect(node, Strength::Failed));
        }
        self.world.run_until(now)?;
        if !self.become_whole(CALM)? {
            return Err(self.failure("the others did not regroup"));
        }
        Ok((self.world.now().since(now), self.regroup_messages() - before))
    }

    /// A node starts: how long until it is settled with the others.
    fn join(&mut self, node: NodeId) -> Result<Duration, Failure> {
        let now = self.world.now();
        self.world.start(node);
        self.world.run_until(now)?;
        if !self.become_whole(CALM)? {
            return Err(self.failure("a node did not come in"));
        }
        Ok(self.world.now().since(now))
    }

    /// All kinds of weather for so long.
    fn storm(&mut self, lasting: Duration) -> Result<(), Failure> {
        let now = self.world.now();
        let mut weather = Weather::storm(self.nodes, now, now.saturating_add(lasting));
        // A group whose members all crash is a group no more.
        (weather.mass_restarts, weather.backwards) = (false, true);
        let mut dice = self.world.dice().fork();
        // Some storms leave a quorum alive and some do not.
        weather.every = dice.between(Duration::from_millis(300)..Duration::from_millis(2000));
        self.world.schedule(weather.roll(&mut dice));
        let link = Link {
            lost_per_million: 20_000,
            doubled_per_million: 10_000,
            late_per_million: 10_000,
            ..Link::default()
        };
        self.world.at(now, Fault::Links(link));
        self.world.at(now.saturating_add(lasting), Fault::Links(Link::default()));
        while self.world.now() < now.saturating_add(lasting) {
            self.world.run_for(Duration::from_secs(1))?;
            self.restart_the_excluded();
        }
        Ok(())
    }

    /// What a supervisor does with a node that halted.
    fn restart_the_excluded(&mut self) {
        let truth = self.world.truth();
        let history = self.history.borrow();
        let halted = (0..self.nodes).map(NodeId).filter(|node| {
            let truth = truth.node(*node);
            !truth.is_up && history.excluded.contains(&(*node, truth.incarnation))
        });
        let halted: Vec<_> = halted.collect();
        drop(history);
        halted.into_iter().for_each(|node| self.world.start(node));
    }

    /// The weather is over: all must come together, by themselves if a quorum lives, or else when people restart the group.
    fn calm(&mut self) -> Result<(), Failure> {
        let end = self.world.now().saturating_add(CALM);
        let can_go_on = self.can_go_on();
        while self.world.now() < end {
            if self.become_whole(Duration::from_millis(500))? {
                return Ok(());
            }
            self.restart_the_excluded();
        }
        // A decision that was on its way may have shown only now that its holders are dead.
        if can_go_on && self.can_go_on() {
            return Err(self.failure("a quorum lives, and the group does not come together"));
        }
        self.intervene()
    }

    fn can_go_on(&self) -> bool {
        let mut history = self.history.borrow_mut();
        for (_, node) in self.world.actors() {
            node.decided_views().for_each(|view| history.knows(view));
        }
        history.can_go_on(&self.world.truth())
    }

    /// People restart all nodes, and say who founds the group anew.
    fn intervene(&mut self) -> Result<(), Failure> {
        self.interventions += 1;
        let now = self.world.now();
        (0..self.nodes).for_each(|node| self.world.at(now, Fault::Crash(NodeId(node))));
        self.world.run_until(now)?;
        *self.history.borrow_mut() = checkers::History::default();
        *self.resource.borrow_mut() = ResourceInMemory::default();
        (0..self.nodes).for_each(|node| self.world.start(NodeId(node)));
        self.world.run_for(Duration::from_secs(1))?;
        self.world.command(NodeId(0), Command::Found);
        self.world.run_for(Duration::from_secs(1))?;
        if !self.become_whole(CALM)? {
            return Err(self.failure("the group did not come together after a restart"));
        }
        Ok(())
    }
}

fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    let named = |failure: Failure| Failure { seed: options.seed, ..failure };
    go(options, watch).map_err(named)
}

fn go(options: Options, watch: Watch) -> Result<Report, Failure> {
    let nodes = options.nodes.unwrap_or(5);
    let mut run = Run::new(options.seed, nodes, watch);
    run.form()?;
    let mut figures = Vec::new();
    if nodes > 1 {
        let last = NodeId(nodes - 1);
        let (time, messages) = run.crash(last)?;
        figures.push(("from a crash to settled", millis(time), "ms"));
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        figures.push((
            "messages of that regroup per member",
            messages as f64 / f64::from(nodes - 1),
            "messages",
        ));
        figures.push(("from a start to settled", millis(run.join(last)?), "ms"));
    }
    let storms = if options.soak { 10 } else { 1 };
    for _ in 0..storms {
        run.storm(Duration::from_secs(20))?;
        run.calm()?;
    }
    run.world.end()?;
    let history = run.history.borrow();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    figures.extend([
        ("views", history.views.len() as f64, "views"),
        ("parts that were stuck", history.stuck as f64, "times"),
        ("restarts by people", f64::from(run.interventions), "times"),
    ]);
    Ok(Report::of(&run.world, figures))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
