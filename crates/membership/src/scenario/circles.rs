//! Circles of all kinds in bad weather: all members are told the same of them, nobody else is, and what is said comes as the terms
//! of its circle have it.

mod judge;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Actor, Boot, Dice, Effects, Failure, Fault, Input as Happening, Weather, World};
use comb_types::{Incarnation, NodeId, Time};

use self::judge::{Judge, Seen};
use super::one_order::hash;
use super::{Options, Report, Scenario, Watch};
use crate::circles::{self, Circles, EVERYONE, Flow, Ordering, Reliability, Terms};
use crate::join;
use crate::order::Level;
use crate::quorum::{Basis, judge as judge_quorum};
use crate::regroup::Regroup;
use crate::stack::{self, Config, Input, Stack};
use crate::transmit::To;
use crate::view::{Member, View, ViewEpoch};

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "circles",
    about: "Lightweight groups of all kinds: the same changes for all their members, and messages on their terms",
    nodes: 1..=32,
    run,
};

/// From one crash to the next.
const BETWEEN_CRASHES: Duration = Duration::from_secs(4);
/// So long after the last fault everybody is in one view, and says its last words.
const SETTLE: Duration = Duration::from_secs(30);
const LAST_WORDS: Duration = Duration::from_secs(10);
/// One of each kind, and two of one.
const NAMES: [&str; 6] = ["agreed", "ordered", "gossip", "gossip in order", "lossy", "lossy in order"];

fn terms(name: &str) -> Terms {
    let flow = Flow { outstanding: 64, per_second: None };
    match name {
        "agreed" => Terms { flow, ..Terms::default() },
        "ordered" => Terms { flow, ..Terms::atomic(Level::Ordered) },
        "gossip" => Terms { flow, ordering: Ordering::None, ..Terms::epidemic() },
        "gossip in order" => Terms { flow, ..Terms::epidemic() },
        "lossy" => Terms { flow, ..Terms::lossy() },
        _ => Terms { flow, ordering: Ordering::Fifo, ..Terms::lossy() },
    }
}

#[derive(Clone, Debug)]
enum Command {
    Join(&'static str),
    Leave(&'static str),
    Say {
        address: String,
        body: u64,
    },
    /// In each circle that it belongs to.
    SayLastWords,
}

/// What a node tells the checkers.
#[derive(Clone, Debug)]
enum Event {
    Said { me: Member, circle: String, reliability: Reliability, hash: u64, to: Option<NodeId> },
    View { me: Member, view: View },
    Restored { me: Member },
    Circle { me: Member, event: circles::Event },
    Refused { from: NodeId, rule: &'static str },
}

struct CircleMember {
    me: Member,
    stack: Stack,
    last_word: u64,
}

impl CircleMember {
    fn boot(boot: &mut Boot<'_>, first: &View) -> Self {
        let me = Member { node: boot.node, incarnation: boot.incarnation };
        let join = join::Config { contacts: first.nodes().collect(), ..join::Config::default() };
        let mut config = Config { join, needs_quorum: true, ..Config::default() };
        (config.watching.seed, config.watching.starting) = (boot.seed, Duration::ZERO);
        config.order.history_most = 64;
        let stack = match first.members.contains(&me) {
            true => Stack::configured(config, me, first.clone(), boot.now),
            false => Stack::joining(config, me, boot.now),
        };
        Self { me, stack, last_word: boot.seed }
    }

    fn say(&mut self, address: &str, body: u64, effects: &mut Effects<'_, Event>) {
        let (name, to) = address.split_once('/').map_or((address, None), |(name, to)| (name, Some(to)));
        let reliability = self.stack.circles().terms(name).map(|terms| terms.reliability);
        if self.stack.say(effects.now(), address, &body.to_le_bytes()).is_ok()
            && let Some(reliability) = reliability
        {
            let to = to.and_then(|to| to.parse().ok()).map(NodeId);
            let (me, circle, hash) = (self.me, name.to_owned(), hash(&body.to_le_bytes()[..]));
            effects.tell(Event::Said { me, circle, reliability, hash, to });
        }
    }

    fn obey(&mut self, command: Command, effects: &mut Effects<'_, Event>) {
        let now = effects.now();
        match command {
            Command::Join(name) => drop(self.stack.join_circle(now, name, terms(name))),
            Command::Leave(name) => drop(self.stack.leave_circle(now, name)),
            Command::Say { address, body } => self.say(&address, body, effects),
            Command::SayLastWords => {
                let is_mine =
                    |name: &&str| self.stack.circles().members(name).any(|member| member == self.me);
                let names = self.stack.circles().names().chain([EVERYONE]);
                let mine: Vec<_> = names.filter(is_mine).map(str::to_owned).collect();
                for name in mine {
                    self.last_word = self.last_word.wrapping_add(1);
                    self.say(&name, self.last_word, effects);
                }
            }
        }
    }

    fn feed(&mut self, input: Input<'_>, effects: &mut Effects<'_, Event>) {
        if let Err(error) = self.stack.handle(effects.now(), input) {
            effects.tell(Event::Refused { from: error.from, rule: error.rule });
        }
    }

    fn happened(&mut self, event: stack::Event, effects: &mut Effects<'_, Event>) {
        let me = self.me;
        match event {
            stack::Event::Circle(event) => effects.tell(Event::Circle { me, event }),
            stack::Event::View(view) => effects.tell(Event::View { me, view }),
            stack::Event::Restore { .. } => effects.tell(Event::Restored { me }),
            stack::Event::WantsState => self.feed(Input::State(b"state"), effects),
            stack::Event::Acquire { epoch, .. } => {
                self.feed(Input::Acquired { epoch, granted: false }, effects);
            }
            stack::Event::Excluded { .. } => effects.halt(),
            _ => {}
        }
    }
}

impl Actor for CircleMember {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Happening<'_, Command>, effects: &mut Effects<'_, Event>) {
        match input {
            Happening::Message { from, bytes } => self.feed(Input::Message { from, bytes }, effects),
            Happening::Command(command) => self.obey(command, effects),
            _ => self.feed(Input::Timeout, effects),
        }
        loop {
            let mut is_done = true;
            while let Some(cast) = self.stack.poll_transmit(effects.now()) {
                is_done = false;
                let others = self.stack.view().into_iter().flat_map(View::nodes);
                match cast.to {
                    To::One(to) => effects.send(to, cast.bytes.to_vec()),
                    To::Others => others
                        .filter(|&to| to != self.me.node)
                        .for_each(|to| effects.send(to, cast.bytes.to_vec())),
                }
            }
            while let Some(event) = self.stack.poll_event() {
                is_done = false;
                self.happened(event, effects);
            }
            if is_done {
                return;
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.stack.next_timeout()
    }

    fn describe(message: &[u8]) -> String {
        Stack::describe(NodeId(u32::MAX), message)
    }
}

/// Who joins, leaves and says what.
fn load(world: &mut World<CircleMember>, dice: &mut Dice, nodes: u32, (from, until): (Time, Time)) {
    let mut at = from;
    while at < until {
        at = at.saturating_add(dice.between(Duration::ZERO..Duration::from_millis(10)));
        let name = NAMES[dice.index(NAMES.len())];
        let command = match dice.below(20) {
            0..=2 => Command::Join(name),
            3 => Command::Leave(name),
            4 => Command::Say { address: EVERYONE.to_owned(), body: dice.roll() },
            5..=7 => Command::Say { address: format!("{name}/{}", dice.below(nodes)), body: dice.roll() },
            _ => Command::Say { address: name.to_owned(), body: dice.roll() },
        };
        world.command_at(at, NodeId(dice.below(nodes)), command);
    }
}

fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    let nodes = options.nodes.unwrap_or(5).max(1);
    let busy = Duration::from_secs(if options.soak { 120 } else { 10 });
    let founders = (0..nodes).map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) });
    let first = View { epoch: ViewEpoch(1), members: founders.collect(), tie_breaker: NodeId(0) };
    let mut world = World::new(options.seed, move |mut boot| CircleMember::boot(&mut boot, &first));
    let mut dice = world.dice().fork();
    if let Some(watch) = watch {
        world.watch(watch);
    }
    world.add_nodes(nodes);
    (0..nodes).for_each(|node| world.start(NodeId(node)));
    let seen = Rc::<RefCell<Seen>>::default();
    world.check(Judge(seen.clone()));
    let link = &mut world.network_mut().default;
    (link.lost_per_million, link.doubled_per_million, link.late_per_million) = (20_000, 20_000, 20_000);
    let (start, end) = (Time::from_millis(100), Time::ZERO.saturating_add(busy));
    load(&mut world, &mut dice, nodes, (start, end));
    let mut weather = Weather::storm(nodes, start, end);
    weather.longest = Duration::from_secs(2);
    // Crashes are rolled apart: a group whose members are all gone has nothing to go on from.
    (weather.crashes, weather.mass_restarts) = (false, false);
    let faults = weather.roll(&mut dice);
    world.schedule(faults);
    let mut at = start.saturating_add(dice.between(Duration::ZERO..BETWEEN_CRASHES));
    while at < end && nodes > 2 {
        let node = NodeId(dice.below(nodes));
        world.at(at, Fault::Crash(node));
        world.at(at.saturating_add(dice.between(Duration::ZERO..BETWEEN_CRASHES / 2)), Fault::Start(node));
        at = at.saturating_add(BETWEEN_CRASHES);
    }
    let until_quiet = end.saturating_add(SETTLE);
    let mut decided = BTreeMap::new();
    while world.now() < until_quiet {
        world.run_for(Duration::from_millis(100))?;
        let regroups = world.actors().filter_map(|(_, actor)| actor.stack.regroup());
        let views = regroups.flat_map(Regroup::decided_views);
        decided.extend(views.map(|view| (view.epoch, view.clone())));
        // Who was excluded has halted: somebody starts it again.
        let has_halted = |node: &NodeId| world.now() > end && !world.truth().node(*node).is_up;
        let halted: Vec<_> = (0..nodes).map(NodeId).filter(has_halted).collect();
        halted.into_iter().for_each(|node| world.start(node));
    }
    let is_whole = is_whole(&world, nodes, &decided).map_err(|rule| broken(&world, options.seed, rule))?;
    if is_whole {
        seen.borrow_mut().must_be_heard = true;
        (0..nodes).for_each(|node| world.command(NodeId(node), Command::SayLastWords));
        world.run_for(LAST_WORDS)?;
        agree(&world).map_err(|rule| broken(&world, options.seed, rule))?;
    }
    world.end()?;
    let seen = seen.borrow();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let figures = vec![
        ("words heard, atomic", seen.heard_atomic as f64, ""),
        ("words heard, by gossip", seen.heard_gossip as f64, ""),
        ("words heard, lossy", seen.heard_lossy as f64, ""),
        ("words missed by gossip", seen.missed as f64, ""),
        ("changes told", seen.changes as f64, ""),
        ("states handed over", seen.restored as f64, ""),
        ("groups that lost their quorum", f64::from(u8::from(!is_whole)), ""),
    ];
    Ok(Report::of(&world, figures))
}

/// Whether all are in one view. They are, unless a group has lost a quorum of its newest view with those that crashed, or, if nobody
/// has installed that, of the one before.
fn is_whole(
    world: &World<CircleMember>,
    nodes: u32,
    decided: &BTreeMap<ViewEpoch, View>,
) -> Result<bool, String> {
    let installed: BTreeSet<_> =
        world.actors().map(|(_, actor)| actor.stack.view().map(|view| view.epoch)).collect();
    let all = world.actors().count() == nodes as usize && installed.len() == 1;
    let Some(newest) = decided.values().next_back() else { return Ok(false) };
    let has_quorum = |view: &View| {
        let is_left = |member: &&Member| !world.truth().is_dead(member.node, member.incarnation);
        let left = view.members.iter().filter(is_left).map(|member| member.node).collect();
        judge_quorum(view, &left, &Basis::default()).is_quorum()
    };
    let before = || decided.get(&ViewEpoch(newest.epoch.0 - 1)).is_some_and(has_quorum);
    let may_agree = has_quorum(newest) && (installed.contains(&Some(newest.epoch)) || before());
    match all || !may_agree {
        true => Ok(all),
        false => Err(format!("they could agree, and have not: {installed:?}")),
    }
}

fn broken(world: &World<CircleMember>, seed: u64, rule: String) -> Failure {
    Failure { seed, at: world.now(), node: None, rule }
}

/// At the end all have the same circles.
fn agree(world: &World<CircleMember>) -> Result<(), String> {
    let table = |circles: &Circles| -> Vec<_> {
        let names = circles.names().map(str::to_owned);
        names.map(|name| (circles.terms(&name), circles.members(&name).collect::<Vec<_>>(), name)).collect()
    };
    let mut tables = world.actors().map(|(node, actor)| (node, table(actor.stack.circles())));
    let Some((_, first)) = tables.next() else { return Ok(()) };
    match tables.find(|(_, table)| *table != first) {
        Some((node, table)) => Err(format!("{node} has the circles {table:?}, and others {first:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seed: u64) -> Options {
        Options { seed, nodes: None, soak: false }
    }

    #[test]
    fn sim_circles_of_all_kinds_keep_their_terms_in_any_weather() {
        let mut figures = std::collections::BTreeMap::<_, f64>::new();
        for seed in 1..=60 {
            let nodes = [None, Some(3), Some(9), Some(2)][usize::try_from(seed % 4).expect("small")];
            let report = run(Options { nodes, ..options(seed) }, None).unwrap_or_else(|failure| {
                panic!("{failure}\nagain: comb sim circles --seed {seed} --watch, with {nodes:?} nodes")
            });
            for (name, value, _) in report.figures {
                *figures.entry(name).or_default() += value;
            }
        }
        // What was not seen was not tested.
        for (name, least) in [
            ("words heard, atomic", 10_000.0),
            ("words heard, by gossip", 10_000.0),
            ("words heard, lossy", 10_000.0),
            ("changes told", 2000.0),
            ("states handed over", 50.0),
        ] {
            assert!(figures[name] > least, "{name}: {figures:?}");
        }
        assert!(figures["groups that lost their quorum"] < 10.0, "{figures:?}");
    }

    #[test]
    fn sim_a_seed_is_a_run_of_circles() {
        for seed in 1..=3 {
            assert_eq!(run(options(seed), None), run(options(seed), None));
        }
    }
}
