//! Updates arrive everywhere in one order, whatever fails.

mod judge;
mod oracle;
mod replica;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Dice, Failure, Weather, World};
use comb_types::{Incarnation, NodeId, Time};

use self::judge::{Judge, Seen};
use self::oracle::{Listener, Oracle};
use self::replica::{Command, Replica};
use super::{Options, Report, Scenario, Watch};
use crate::order::{Config, Level};
use crate::view::{Member, View, ViewEpoch};

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "order",
    about: "Updates arrive everywhere in one order, whatever fails",
    nodes: 1..=64,
    run,
};

/// How often the oracle looks.
const LOOK: Duration = Duration::from_millis(5);

/// So long after the last fault everything must have come to its end.
const SETTLE: Duration = Duration::from_secs(20);

/// A world with its checkers, and what stands in for `regroup`.
struct Stage {
    world: World<Replica>,
    oracle: Oracle,
    seen: Rc<RefCell<Seen>>,
    must_settle: Rc<RefCell<bool>>,
    dice: Dice,
    nodes: u32,
}

impl Stage {
    fn new(seed: u64, nodes: u32, config: &Config) -> Self {
        let founders = (0..nodes).map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) });
        let first = View { epoch: ViewEpoch(1), members: founders.collect(), tie_breaker: NodeId(0) };
        let (founded, config) = (first.clone(), config.clone());
        let mut world = World::new(seed, move |mut boot| Replica::boot(&mut boot, &config, &founded));
        let mut dice = world.dice().fork();
        world.add_nodes(nodes);
        (0..nodes).for_each(|node| world.start(NodeId(node)));
        let oracle = Oracle::new(first, dice.fork());
        let (seen, must_settle) = (Rc::<RefCell<Seen>>::default(), Rc::new(RefCell::new(true)));
        world.check(Listener(oracle.answers.clone()));
        world.check(Judge { seen: seen.clone(), must_settle: must_settle.clone() });
        Self { world, oracle, seen, must_settle, dice, nodes }
    }

    /// Somebody submits something every so often, in the mean.
    fn load(&mut self, from: Time, until: Time, every: Duration) {
        let mut at = from;
        while at < until {
            at = at.saturating_add(self.dice.between(Duration::ZERO..2 * every));
            let node = NodeId(self.dice.below(self.nodes));
            let level = [Level::Ordered, Level::Majority, Level::Majority, Level::All][self.dice.index(4)];
            let most = if self.dice.below(20) == 0 { 1200 } else { 80 };
            let body = (0..8 + self.dice.below(most)).map(|_| self.dice.roll().to_le_bytes()[0]).collect();
            self.world.command_at(at, node, Command::Submit { level, body });
        }
    }

    fn run_until(&mut self, end: Time) -> Result<(), Failure> {
        while self.world.now() < end {
            self.world.run_for(LOOK)?;
            self.oracle.look(&mut self.world);
        }
        Ok(())
    }

    /// Nothing goes wrong any more: all that was begun comes to its end, unless too many are dead.
    fn settle(&mut self) -> Result<(), Failure> {
        self.oracle.whims_per_million = 0;
        self.run_until(self.world.now().saturating_add(SETTLE))?;
        *self.must_settle.borrow_mut() = !self.is_stuck();
        self.world.end()
    }

    fn is_stuck(&self) -> bool {
        !self.oracle.is_quiet() && self.oracle.is_stuck(&self.world.truth())
    }

    fn report(&self, busy: Duration) -> Report {
        let mut seen = self.seen.borrow_mut();
        seen.latencies.sort_unstable();
        let percentile = |part: usize| {
            let index = (seen.latencies.len() * part / 100).min(seen.latencies.len().saturating_sub(1));
            seen.latencies.get(index).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        let sent: u64 = (0..self.nodes).map(|node| self.world.traffic(NodeId(node)).sent).sum();
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let figures = vec![
            ("updates submitted", seen.submitted() as f64, ""),
            ("updates delivered", seen.delivered() as f64, ""),
            ("updates", seen.delivered() as f64 / busy.as_secs_f64(), "/s"),
            ("latency of a majority, median", percentile(50), "ms"),
            ("latency of a majority, 99 of 100", percentile(99), "ms"),
            ("messages for each update", sent as f64 / seen.delivered().max(1) as f64, ""),
            ("changes of the view", self.oracle.changes as f64, ""),
            ("members that fell behind", seen.lagging as f64, ""),
            ("members that caught up", seen.caught_up as f64, ""),
            ("snapshots handed over", seen.snapshots as f64, ""),
            ("groups that lost their quorum", f64::from(u8::from(self.is_stuck())), ""),
        ];
        Report::of(&self.world, figures)
    }
}

/// A small history, so that some must be given snapshots; and short times, so that much happens.
fn hurried() -> Config {
    Config { history_most: 64, window_most: 64, lag_after: Duration::from_millis(200), ..Config::default() }
}

fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    let nodes = options.nodes.unwrap_or(5).max(1);
    let busy = Duration::from_secs(if options.soak { 60 } else { 5 });
    let mut stage = Stage::new(options.seed, nodes, &hurried());
    if let Some(watch) = watch {
        stage.world.watch(watch);
    }
    let (start, end) = (Time::from_millis(100), Time::ZERO.saturating_add(busy));
    let link = &mut stage.world.network_mut().default;
    (link.lost_per_million, link.doubled_per_million, link.late_per_million) = (20_000, 20_000, 20_000);
    link.longest_bytes = hurried().longest_message;
    stage.load(start, end, Duration::from_millis(2));
    let mut weather = Weather::storm(nodes, start, end);
    // Who loses all its members at once is back by its log, or not at all.
    (weather.mass_restarts, weather.longest) = (false, Duration::from_secs(1));
    weather.backwards = true;
    let faults = weather.roll(&mut stage.dice);
    stage.world.schedule(faults);
    stage.oracle.comes_back = Some(Duration::from_millis(100));
    stage.oracle.whims_per_million = 3000;
    stage.run_until(end)?;
    stage.settle()?;
    Ok(stage.report(busy))
}
