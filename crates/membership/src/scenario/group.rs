//! Whole members in bad weather: they come in, agree, leave, and come back, and all that was promised is kept.
//!
//! They find out by themselves who is gone. In every other run the kernel tells them of deaths besides, as it does of processes of one
//! machine.

mod disk_log;
mod judge;
#[cfg(test)]
mod liar;
mod member;
pub mod silence;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Dice, DiskConditions, Failure, Fault, Weather, World};
use comb_types::{Incarnation, NodeId, Time};

use self::judge::{Judge, Seen};
use self::member::{Command, GroupMember, Words};
use super::{Options, Report, Scenario, Watch};
use crate::detect::Kind;
use crate::order::{self, Level};
use crate::quorum::{Basis, judge};
use crate::regroup::Regroup;
use crate::view::{Member, View, ViewEpoch};

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "group",
    about: "Whole members come in, agree, leave and come back, and all that was promised is kept",
    nodes: 1..=64,
    run,
};

/// The same with logs: they come back as they were, one or all of them.
pub const WITH_LOGS: Scenario = Scenario {
    name: "restart",
    about: "Whole members with logs on bad disks lose power, one or all at once, and go on where they were",
    nodes: 1..=64,
    run: run_with_logs,
};

/// How often the world is looked at from outside.
const LOOK: Duration = Duration::from_millis(20);
/// How late the kernel may speak, and whoever starts again what has halted.
const LATEST: Duration = Duration::from_millis(200);
/// So long after the last fault everybody is in one view, and everything has come to its end.
const SETTLE: Duration = Duration::from_secs(30);
/// From one crash to the next: time for the group to go on without the dead, or to have it back.
const BETWEEN_CRASHES: Duration = Duration::from_secs(2);

struct Stage {
    world: World<GroupMember>,
    seen: Rc<RefCell<Seen>>,
    dice: Dice,
    nodes: u32,
    /// Whether deaths are told by the kernel.
    has_kernel: bool,
    /// Of whose deaths it has told, and whom.
    dead: BTreeSet<NodeId>,
    told: BTreeSet<(Member, Member)>,
    words: Words,
    /// Wrong words, in a million looks.
    whims_per_million: u32,
    halted: u32,
    /// Each view that anybody knew of.
    decided: BTreeMap<ViewEpoch, View>,
}

impl Stage {
    fn new(seed: u64, nodes: u32, has_log: bool) -> Self {
        let founders = (0..nodes).map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) });
        let first = View { epoch: ViewEpoch(1), members: founders.collect(), tie_breaker: NodeId(0) };
        let words = Words::default();
        let mut world = {
            let words = words.clone();
            World::new(seed, move |mut boot| GroupMember::boot(&mut boot, &first, has_log, words.clone()))
        };
        let dice = world.dice().fork();
        world.add_nodes(nodes);
        (0..nodes).for_each(|node| world.start(NodeId(node)));
        let seen = Rc::<RefCell<Seen>>::default();
        world.check(Judge(seen.clone()));
        let has_kernel = seed.is_multiple_of(2);
        Self {
            world,
            seen,
            dice,
            nodes,
            has_kernel,
            dead: BTreeSet::new(),
            told: BTreeSet::new(),
            words,
            whims_per_million: 0,
            halted: 0,
            decided: BTreeMap::new(),
        }
    }

    fn load(&mut self, from: Time, until: Time, every: Duration) {
        let mut at = from;
        while at < until {
            at = at.saturating_add(self.dice.between(Duration::ZERO..2 * every));
            let node = NodeId(self.dice.below(self.nodes));
            let level = [Level::Ordered, Level::Majority, Level::Majority, Level::All][self.dice.index(4)];
            let body = self.dice.roll().to_le_bytes().to_vec();
            self.world.command_at(at, node, Command::Submit { level, body });
        }
    }

    /// One node at a time; where the kernel tells of deaths, now and then many.
    fn crashes(&mut self, from: Time, until: Time) {
        let mut at = from;
        loop {
            at = at.saturating_add(BETWEEN_CRASHES + self.dice.between(Duration::ZERO..BETWEEN_CRASHES));
            if at >= until {
                return;
            }
            let first = self.dice.below(self.nodes);
            let are_many = self.has_kernel && self.dice.below(4) == 0;
            let count = if are_many { 1 + self.dice.below(self.nodes) } else { 1 };
            for node in (first..).take(count as usize).map(|node| NodeId(node % self.nodes)) {
                let back = at.saturating_add(self.dice.between(Duration::ZERO..BETWEEN_CRASHES));
                self.world.at(at, Fault::Crash(node));
                self.world.at(back, Fault::Start(node));
            }
        }
    }

    /// Everybody at once; and some disks are slow, or full for a while, or spoil what they hold.
    fn outages(&mut self, from: Time, until: Time, disk: DiskConditions) {
        let mut at = from;
        loop {
            at = at.saturating_add(self.dice.between(Duration::ZERO..3 * BETWEEN_CRASHES));
            if at >= until {
                break;
            }
            for node in (0..self.nodes).map(NodeId) {
                let back = self.dice.between(Duration::ZERO..BETWEEN_CRASHES / 2);
                self.world.at(at, Fault::Crash(node));
                self.world.at(at.saturating_add(back).min(until), Fault::Start(node));
            }
        }
        for node in (0..self.nodes).map(NodeId) {
            let sync_time = self.dice.between(Duration::from_micros(100)..Duration::from_millis(4));
            let conditions = DiskConditions { sync_time, ..disk };
            self.world.at(Time::from_millis(50), Fault::Disk { node, conditions });
            let full = from.saturating_add(self.dice.between(Duration::ZERO..until.since(from)));
            if self.dice.below(3) == 0 {
                let capacity_bytes = 2000 + self.dice.index(4000);
                let conditions = DiskConditions { capacity_bytes, ..conditions };
                self.world.at(full, Fault::Disk { node, conditions });
                let room = full.saturating_add(BETWEEN_CRASHES).min(until);
                self.world.at(room, Fault::Disk { node, conditions: DiskConditions::default() });
            }
            self.world.at(until, Fault::Disk { node, conditions: DiskConditions::default() });
        }
    }

    /// Whether those who remember that they are in the newest view that anybody knows are a quorum of it.
    fn is_remembered(&self) -> bool {
        let regroups = || self.world.actors().filter_map(|(_, actor)| actor.stack().regroup());
        let Some(newest) = regroups().map(Regroup::view).max_by_key(|view| view.epoch) else { return false };
        let seats = regroups().map(Regroup::seat).filter(|seat| newest.members.contains(seat));
        judge(newest, &seats.map(|seat| seat.node).collect(), &Basis::default()).is_quorum()
    }

    fn run_until(&mut self, end: Time) -> Result<(), Failure> {
        while self.world.now() < end {
            self.world.run_for(LOOK)?;
            self.look_at_views();
            self.restart_halted();
            self.notice();
        }
        Ok(())
    }

    /// Who was excluded has halted: somebody starts it again.
    fn restart_halted(&mut self) {
        let halted = std::mem::take(&mut self.seen.borrow_mut().halted);
        self.halted += u32::try_from(halted.len()).unwrap_or(u32::MAX);
        for node in halted {
            let at = self.world.now().saturating_add(self.dice.between(Duration::ZERO..LATEST));
            self.world.at(at, Fault::Start(node));
        }
    }

    /// The kernel's word, where nodes are processes of one machine: who sees a death is told of it, sooner or later. And wrong
    /// words, for which there is no reason at all.
    fn notice(&mut self) {
        let now = self.world.now();
        for subject in (0..self.nodes).map(NodeId) {
            let died = !self.world.truth().node(subject).is_up;
            let is_news = died && self.dead.insert(subject);
            if !died {
                self.dead.remove(&subject);
            }
            let life = |node: NodeId, incarnation| Member { node, incarnation };
            let ended = life(subject, self.world.truth().node(subject).incarnation);
            let agreed = self.words.borrow().get(&ended).map_or(ViewEpoch(0), |&epoch| epoch);
            for observer in (0..self.nodes).map(NodeId).filter(|&observer| observer != subject) {
                if is_news && self.has_kernel && self.world.truth().network.connects(subject, observer, now) {
                    let at = now.saturating_add(self.dice.between(Duration::ZERO..LATEST));
                    self.world.command_at(at, observer, Command::Ended { life: ended, agreed });
                    self.told.insert((life(observer, self.world.truth().node(observer).incarnation), ended));
                }
                if self.dice.happens(self.whims_per_million) {
                    self.world.command(observer, Command::Noticed(subject, Kind::IcmpUnreachable));
                }
            }
        }
    }

    /// Whether a quorum is left of the newest view that was decided, and, if nobody has installed it, of the one before. If not, nothing
    /// more need be agreed.
    fn may_go_on(&self) -> bool {
        let (seen, words) = (self.seen.borrow(), self.words.borrow());
        let Some(newest) = self.decided.values().next_back() else { return false };
        let truth = self.world.truth();
        let is_left = |member: &&Member| !truth.is_dead(member.node, member.incarnation);
        let has_quorum = |view: &View| {
            let left: Vec<_> = view.members.iter().filter(is_left).copied().collect();
            // The fenced: all that are left have installed this view, and were told of the end of each.
            let are_in = left.iter().all(|&member| seen.installed(member) == view.epoch);
            let is_fenced = |ended: &&Member| {
                let is_told = left.iter().all(|&member| self.told.contains(&(member, **ended)));
                are_in && is_told && words.get(*ended) <= Some(&view.epoch)
            };
            let fenced = view.members.iter().filter(is_fenced).map(|member| member.node).collect();
            let left = left.iter().map(|member| member.node).collect();
            judge(view, &left, &Basis { fenced, resource: false }).is_quorum()
        };
        let before = || self.decided.get(&ViewEpoch(newest.epoch.0 - 1));
        // If nobody is left who knows the one before, then none of those is who have agreed on its end, and they were a quorum.
        has_quorum(newest) && (seen.is_installed(newest.epoch) || before().is_some_and(has_quorum))
    }

    fn look_at_views(&mut self) {
        let regroups = self.world.actors().filter_map(|(_, actor)| actor.stack().regroup());
        let views = regroups.flat_map(Regroup::decided_views);
        self.decided.extend(views.map(|view| (view.epoch, view.clone())));
    }

    fn report(&self, busy: Duration) -> Report {
        let seen = self.seen.borrow();
        let sent: u64 = (0..self.nodes).map(|node| self.world.traffic(NodeId(node)).sent).sum();
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let figures = vec![
            ("updates delivered", seen.delivered() as f64, ""),
            ("updates a second", seen.delivered() as f64 / busy.as_secs_f64(), "/s"),
            ("messages for each update", sent as f64 / seen.delivered().max(1) as f64, ""),
            ("views", seen.views() as f64, ""),
            ("states handed over", seen.restored as f64, ""),
            ("members that were excluded and came back", f64::from(self.halted), ""),
            ("lives that went on from a log", seen.resumed as f64, ""),
            ("views of those that were left by the fenced", seen.remainders as f64, ""),
            ("updates lost with the fenced", seen.lost as f64, ""),
            ("logs that were spoiled", seen.forgot as f64, ""),
            ("groups that lost their quorum", f64::from(u8::from(!seen.must_settle)), ""),
        ];
        Report::of(&self.world, figures)
    }
}

/// Whether members have logs, and how many synchronisations in a million their disks only pretend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Logs {
    None,
    On { lost_syncs_per_million: u32 },
}

fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    storm(options, watch, Logs::None)
}

fn run_with_logs(options: Options, watch: Watch) -> Result<Report, Failure> {
    storm(options, watch, Logs::On { lost_syncs_per_million: 0 })
}

fn storm(options: Options, watch: Watch, logs: Logs) -> Result<Report, Failure> {
    let has_log = logs != Logs::None;
    let nodes = options.nodes.unwrap_or(5).max(1);
    let busy = Duration::from_secs(if options.soak { 120 } else { 10 });
    let mut stage = Stage::new(options.seed, nodes, has_log);
    stage.seen.borrow_mut().may_doubt = true;
    stage.seen.borrow_mut().may_fence = stage.has_kernel && !has_log;
    if let Some(watch) = watch {
        stage.world.watch(watch);
    }
    let (start, end) = (Time::from_millis(100), Time::ZERO.saturating_add(busy));
    let link = &mut stage.world.network_mut().default;
    (link.lost_per_million, link.doubled_per_million, link.late_per_million) = (20_000, 20_000, 20_000);
    // What is longer than the members say that their messages are is lost, and with it the run.
    link.longest_bytes = order::Config::default().longest_message;
    stage.load(start, end, Duration::from_millis(5));
    // One run in four with logs has disks that forget; there a group may lose its quorum.
    let has_rot = has_log && options.seed.is_multiple_of(4);
    let mut weather = Weather::storm(nodes, start, end);
    (weather.longest, weather.backwards) = (Duration::from_secs(2), true);
    if let Logs::On { lost_syncs_per_million } = logs {
        let rot_per_million = if has_rot { 50_000 } else { 0 };
        let disk = DiskConditions { rot_per_million, lost_syncs_per_million, ..DiskConditions::default() };
        stage.outages(start, end, disk);
    } else {
        // Crashes are rolled apart: a group whose members are all gone has nothing to go on from.
        stage.crashes(start, end);
        (weather.crashes, weather.mass_restarts) = (false, false);
    }
    let faults = weather.roll(&mut stage.dice);
    stage.world.schedule(faults);
    stage.whims_per_million = 300;
    stage.run_until(end)?;
    stage.whims_per_million = 0;
    stage.run_until(end.saturating_add(SETTLE))?;
    let must_settle = match has_log {
        true => !has_rot || stage.is_remembered(),
        false => stage.may_go_on(),
    };
    stage.seen.borrow_mut().must_settle = must_settle;
    stage.world.end()?;
    Ok(stage.report(busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seed: u64) -> Options {
        Options { seed, nodes: None, soak: false }
    }

    #[test]
    fn sim_whole_members_keep_what_was_promised_in_any_weather() {
        // The first forty, and those that broke a rule once.
        for seed in (1..=40).chain([300_134, 1_000_982, 2_000_973]) {
            if let Err(failure) = run(options(seed), None) {
                panic!("{failure}\nagain: comb sim group --seed {seed} --watch");
            }
        }
    }

    #[test]
    fn sim_groups_whose_members_all_lose_power_go_on_from_their_logs() {
        let (mut resumed, mut forgot, mut stuck) = (0.0, 0.0, 0.0);
        for seed in 1..=200 {
            let nodes = [None, Some(3), Some(2), Some(4), Some(1)][usize::try_from(seed % 5).expect("small")];
            let report = run_with_logs(Options { nodes, ..options(seed) }, None).unwrap_or_else(|failure| {
                panic!("{failure}\nagain: comb sim restart --seed {seed} --watch, with {nodes:?} nodes")
            });
            let figure =
                |name: &str| report.figures.iter().find(|figure| figure.0 == name).expect("a figure").1;
            resumed += figure("lives that went on from a log");
            forgot += figure("logs that were spoiled");
            stuck += figure("groups that lost their quorum");
        }
        // What was not seen was not tested.
        assert!(resumed > 2000.0 && forgot > 20.0, "{resumed} resumed, {forgot} forgot");
        assert!(stuck < 40.0, "{stuck} stuck");
    }

    /// A disk that loses what it said to have kept breaks what a log promises, and nothing in the group can know. This is what it
    /// looks like: some runs end well; in others what was promised is lost, which only the judge sees; and in some a member finds that
    /// what it has delivered is in no later view, and stops by an assertion.
    #[test]
    fn sim_a_disk_that_pretends_to_have_kept_something_loses_what_was_promised() {
        let logs = Logs::On { lost_syncs_per_million: 200_000 };
        let run = |seed| std::panic::catch_unwind(|| storm(options(seed), None, logs).is_ok());
        let outcomes: Vec<_> = (1..=40).map(run).collect();
        let count = |is: fn(&std::thread::Result<bool>) -> bool| outcomes.iter().filter(|it| is(it)).count();
        let well = count(|outcome| matches!(outcome, Ok(true)));
        let lost = count(|outcome| matches!(outcome, Ok(false)));
        assert!(well > 0 && lost > 0, "of 40, {well} ended well, and {lost} lost something");
    }

    #[test]
    fn sim_a_seed_is_a_run_of_whole_members() {
        for seed in 1..=3 {
            assert_eq!(run(options(seed), None), run(options(seed), None));
        }
    }

    #[test]
    fn sim_groups_of_three_and_of_nine() {
        for seed in 1..=5 {
            for nodes in [3, 9] {
                let outcome = run(Options { nodes: Some(nodes), ..options(seed) }, None);
                assert!(outcome.is_ok(), "{nodes} nodes: {outcome:?}");
            }
        }
    }
}
