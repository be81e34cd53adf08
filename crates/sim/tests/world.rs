//! What the world promises, with a program that is as small as possible: it asks its neighbour every 10 ms, counts answers, and
//! keeps the count on its disk.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{
    Actor, Boot, Checker, DiskConditions, DiskError, Effects, Fault, Input, Link, NodeId, NodeTruth, Time,
    Truth, Weather, World,
};

const EVERY: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Asker {
    peer: NodeId,
    next: Time,
    answers: u64,
    /// Local times of the timeouts.
    called_at: Vec<Time>,
}

#[derive(Clone, Debug)]
enum Command {
    Halt,
    Keep,
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Started { answers_before: u64 },
    Answer(u64),
    Kept,
    Full,
}

fn asker(nodes: u32) -> impl FnMut(Boot<'_>) -> Asker {
    move |boot| Asker {
        peer: NodeId((boot.node.0 + 1) % nodes),
        next: boot.now.saturating_add(EVERY),
        answers: boot.disk.read("answers").map_or(0, |bytes| bytes.len() as u64),
        called_at: Vec::new(),
    }
}

impl Actor for Asker {
    type Command = Command;
    type Event = Told;

    fn handle(&mut self, input: Input<'_, Command>, effects: &mut Effects<'_, Told>) {
        match input {
            Input::Started => effects.tell(Told::Started { answers_before: self.answers }),
            Input::Timeout => {
                self.called_at.push(effects.now());
                self.next = effects.now().saturating_add(EVERY);
                effects.send(self.peer, b"ask".to_vec());
            }
            Input::Message { from, bytes: b"ask" } => effects.send(from, b"answer".to_vec()),
            Input::Message { .. } => {
                self.answers += 1;
                effects.tell(Told::Answer(self.answers));
            }
            Input::Command(Command::Halt) => effects.halt(),
            Input::Command(Command::Keep) => match effects.disk().append("answers", &[1; 10]) {
                Ok(()) => drop(effects.disk().sync()),
                Err(DiskError::Full) => effects.tell(Told::Full),
                Err(other) => panic!("{other}"),
            },
            Input::Synced { outcome, .. } => {
                assert_eq!(outcome, Ok(()));
                effects.tell(Told::Kept);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
}

type Seen = Rc<RefCell<Vec<(Time, NodeId, String)>>>;

/// Writes down everything that is told.
struct Scribe(Seen);

impl Checker<Asker> for Scribe {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Told) -> Result<(), String> {
        self.0.borrow_mut().push((truth.now, node, format!("{event:?}")));
        Ok(())
    }
}

fn world(seed: u64, nodes: u32) -> World<Asker> {
    let mut world = World::new(seed, asker(nodes));
    world.add_nodes(nodes);
    (0..nodes).map(NodeId).for_each(|node| world.start(node));
    world
}

fn answers(world: &World<Asker>, node: u32) -> u64 {
    world.actor(NodeId(node)).expect("up").answers
}

/// A run in a storm, to its end, with all that was told.
fn storm(seed: u64) -> (u64, Vec<(Time, NodeId, String)>) {
    let seen = Seen::default();
    let mut world = world(seed, 5);
    world.check(Scribe(seen.clone()));
    let until = Time::from_millis(20_000);
    let faults = Weather::storm(5, Time::from_millis(100), until).roll(world.dice());
    world.schedule(faults);
    world.network_mut().default = Link {
        lost_per_million: 100_000,
        doubled_per_million: 50_000,
        late_per_million: 50_000,
        ..Link::default()
    };
    world.run_until(until.saturating_add(SECOND)).unwrap();
    (world.trace_hash(), seen.take())
}

#[test]
fn a_seed_is_a_run_and_another_seed_another_run() {
    for seed in 0..20 {
        let (hash, seen) = storm(seed);
        assert_eq!((hash, seen), storm(seed), "seed {seed}");
        assert_ne!(hash, storm(seed + 1000).0);
    }
}

#[test]
fn after_the_weather_everybody_is_up_and_hears_everybody() {
    for seed in 0..20 {
        let (_, seen) = storm(seed);
        let late = Time::from_millis(20_500);
        for node in (0..5).map(NodeId) {
            let hears =
                seen.iter().any(|(at, who, what)| *at > late && *who == node && what.starts_with("Answer"));
            assert!(hears, "seed {seed}: {node} has no answer any more");
        }
    }
}

#[test]
fn a_quiet_world_answers_every_question() {
    let mut world = world(1, 2);
    world.run_for(SECOND).unwrap();
    assert!((99..=100).contains(&answers(&world, 0)), "{}", answers(&world, 0));
    let traffic = world.traffic(NodeId(0));
    assert_eq!(traffic.lost, 0);
    assert!(traffic.sent >= 198 && traffic.received >= 198);
}

#[test]
fn losses_are_as_frequent_as_said() {
    let mut world = world(2, 2);
    world.network_mut().default.lost_per_million = 500_000;
    world.run_for(20 * SECOND).unwrap();
    // Question and answer must both arrive.
    assert!((400..600).contains(&answers(&world, 0)), "{}", answers(&world, 0));
}

#[test]
fn a_cut_is_one_way_and_heals() {
    let mut world = world(3, 3);
    // 0 asks 1 and 1 answers 0: only the answers are cut.
    world.at(Time::ZERO, Fault::Cut { from: NodeId(1), to: NodeId(0) });
    world.run_for(SECOND).unwrap();
    assert_eq!(answers(&world, 0), 0);
    assert!(answers(&world, 1) > 90 && answers(&world, 2) > 90);
    world.at(world.now(), Fault::Heal);
    world.run_for(SECOND).unwrap();
    assert!(answers(&world, 0) > 90);
}

#[test]
fn a_partition_separates_its_sides_alone() {
    let mut world = world(4, 4);
    world.at(Time::ZERO, Fault::Partition(vec![vec![NodeId(0), NodeId(1)], vec![NodeId(2), NodeId(3)]]));
    world.run_for(SECOND).unwrap();
    assert!(answers(&world, 0) > 90 && answers(&world, 2) > 90);
    assert_eq!((answers(&world, 1), answers(&world, 3)), (0, 0));
}

#[test]
fn what_is_clogged_comes_late_and_is_not_lost() {
    let mut world = world(5, 2);
    world.at(Time::ZERO, Fault::Clog(NodeId(1)));
    world.run_for(SECOND).unwrap();
    assert_eq!(answers(&world, 0), 0);
    world.at(world.now(), Fault::Unclog(NodeId(1)));
    world.run_for(Duration::from_millis(5)).unwrap();
    assert!(answers(&world, 0) >= 98, "{}", answers(&world, 0));
}

#[test]
fn who_is_paused_handles_everything_afterwards() {
    let mut world = world(6, 2);
    world.at(Time::ZERO, Fault::Pause { node: NodeId(1), lasting: SECOND });
    world.run_for(SECOND - Duration::from_millis(1)).unwrap();
    assert_eq!(answers(&world, 0), 0);
    assert!(world.truth().node(NodeId(1)).is_paused);
    world.run_for(Duration::from_millis(6)).unwrap();
    assert!(answers(&world, 0) >= 98);
    assert!(!world.truth().node(NodeId(1)).is_paused);
    // It did not notice the time: timeouts that it missed are not made up for.
    assert!(world.actor(NodeId(1)).expect("up").called_at.len() <= 2);
}

#[test]
fn a_short_pause_does_not_end_a_long_one_and_a_crash_ends_both() {
    let mut world = world(12, 2);
    let pause = |millis| Fault::Pause { node: NodeId(1), lasting: Duration::from_millis(millis) };
    world.at(Time::from_millis(1), pause(300));
    world.at(Time::from_millis(2), pause(1000));
    world.at(Time::from_millis(3), pause(100));
    world.run_until(Time::from_millis(600)).unwrap();
    assert!(world.truth().node(NodeId(1)).is_paused);
    assert_eq!(answers(&world, 0), 0);
    world.at(world.now(), Fault::Crash(NodeId(1)));
    world.start(NodeId(1));
    world.run_for(Duration::from_millis(200)).unwrap();
    // What had waited for the former life has gone with it.
    assert!((15..=21).contains(&answers(&world, 0)), "{}", answers(&world, 0));
}

#[test]
fn more_than_a_buffer_holds_is_lost() {
    let mut world = world(13, 2);
    world.at(Time::ZERO, Fault::Pause { node: NodeId(1), lasting: 60 * SECOND });
    world.run_for(61 * SECOND).unwrap();
    assert!((4096..4300).contains(&answers(&world, 0)), "{}", answers(&world, 0));
    assert!(world.traffic(NodeId(1)).lost > 1000);
}

#[test]
fn what_was_clogged_comes_when_all_is_healed() {
    let mut world = world(14, 2);
    world.at(Time::ZERO, Fault::Clog(NodeId(1)));
    world.at(Time::from_millis(1000), Fault::Heal);
    world.run_until(Time::from_millis(1005)).unwrap();
    assert!(answers(&world, 0) >= 98, "{}", answers(&world, 0));
}

#[test]
fn who_is_up_is_not_started_and_a_crash_undoes_what_was_not_kept() {
    let mut undone = 0;
    for seed in 0..30 {
        let seen = Seen::default();
        let mut world = world(seed, 1);
        world.check(Scribe(seen.clone()));
        let at = Time::from_micros;
        world.at(at(400_000), Fault::Start(NodeId(0)));
        world.command_at(at(500_000), NodeId(0), Command::Keep);
        world.at(at(500_100), Fault::Crash(NodeId(0)));
        world.at(at(500_150), Fault::Start(NodeId(0)));
        world.run_until(at(600_000)).unwrap();
        assert_eq!(world.truth().node(NodeId(0)).incarnation.0, 2);
        let told: Vec<_> = seen.take().into_iter().map(|(_, _, what)| what).collect();
        assert!(!told.contains(&"Kept".to_owned()), "that was asked for in another life");
        undone += u32::from(told.iter().filter(|what| *what == "Started { answers_before: 0 }").count() == 2);
    }
    assert!(undone > 0);
}

#[test]
fn who_stutters_runs_half_of_the_time_until_it_is_steady() {
    let mut world = world(7, 2);
    let half = Duration::from_millis(500);
    world.at(Time::ZERO, Fault::Stutter { node: NodeId(0), runs: half, stands: half });
    world.run_for(10 * SECOND).unwrap();
    assert!((480..=520).contains(&answers(&world, 0)), "{}", answers(&world, 0));
    world.at(world.now(), Fault::Steady(NodeId(0)));
    world.run_for(SECOND).unwrap();
    let before = answers(&world, 0);
    world.run_for(SECOND).unwrap();
    assert!(answers(&world, 0) - before >= 98);
}

#[test]
fn who_is_slow_handles_one_input_after_the_other() {
    let mut world = world(8, 2);
    world.at(Time::ZERO, Fault::Slow { node: NodeId(0), each_input: Duration::from_millis(5) });
    world.run_for(SECOND).unwrap();
    // 200 inputs a second, where 300 come: a third of them answers.
    assert!((40..=70).contains(&answers(&world, 0)), "{}", answers(&world, 0));
}

#[test]
fn a_restarted_node_is_another_life_with_the_disk_of_the_last() {
    let seen = Seen::default();
    let mut world = world(9, 2);
    world.check(Scribe(seen.clone()));
    let at = Time::from_millis;
    world.command_at(at(500), NodeId(1), Command::Keep);
    world.at(at(600), Fault::Crash(NodeId(1)));
    world.run_until(at(700)).unwrap();
    let truth = world.truth().node(NodeId(1));
    assert_eq!(truth, NodeTruth { is_up: false, since: at(600), ..truth });
    let before = answers(&world, 0);
    world.run_until(at(1000)).unwrap();
    assert_eq!(answers(&world, 0), before, "the dead do not answer");
    world.start(NodeId(1));
    world.run_until(at(1500)).unwrap();
    assert!(world.truth().is_dead(NodeId(1), truth.incarnation));
    assert!(answers(&world, 0) > before);
    let told = seen.take();
    assert!(told.iter().any(|(at, _, what)| *at == Time::from_micros(500_200) && what == "Kept"));
    assert!(told.iter().any(|(_, _, what)| what == "Started { answers_before: 10 }"), "{told:?}");
}

#[test]
fn a_node_that_halts_is_down() {
    let mut world = world(10, 2);
    world.command_at(Time::from_millis(100), NodeId(0), Command::Halt);
    world.run_for(SECOND).unwrap();
    assert!(!world.truth().node(NodeId(0)).is_up);
    assert!(world.actor(NodeId(0)).is_none());
    assert_eq!(world.truth().up().collect::<Vec<_>>(), [NodeId(1)]);
}

#[test]
fn a_full_disk_is_told_to_its_node() {
    let seen = Seen::default();
    let mut world = world(11, 2);
    world.check(Scribe(seen.clone()));
    let conditions = DiskConditions { capacity_bytes: 15, ..DiskConditions::default() };
    world.at(Time::ZERO, Fault::Disk { node: NodeId(0), conditions });
    world.command_at(Time::from_millis(1), NodeId(0), Command::Keep);
    world.command_at(Time::from_millis(2), NodeId(0), Command::Keep);
    world.run_for(Duration::from_millis(5)).unwrap();
    let told: Vec<_> = seen.take().into_iter().map(|(_, _, what)| what).collect();
    assert_eq!(told.iter().filter(|what| *what == "Kept").count(), 1);
    assert_eq!(told.iter().filter(|what| *what == "Full").count(), 1);
}

#[test]
fn a_fast_clock_asks_more_often_and_a_jump_skips_time() {
    let mut world = world(12, 2);
    world.at(Time::ZERO, Fault::Drift { node: NodeId(0), ppm: 100_000 });
    world.run_for(10 * SECOND).unwrap();
    assert!((1095..=1101).contains(&answers(&world, 0)), "{}", answers(&world, 0));
    let before = world.actor(NodeId(1)).expect("up").called_at.clone();
    world.at(world.now(), Fault::ClockJump { node: NodeId(1), forwards: true, by: SECOND });
    world.run_for(Duration::from_millis(9)).unwrap();
    let after = &world.actor(NodeId(1)).expect("up").called_at[before.len()..];
    assert_eq!(after.len(), 1);
    assert!(after[0].since(before[before.len() - 1]) >= SECOND);
}

/// Says that nobody may have more than so many answers.
struct AtMost(u64);

impl Checker<Asker> for AtMost {
    fn saw(&mut self, _: &Truth<'_>, _: NodeId, event: &Told) -> Result<(), String> {
        match event {
            Told::Answer(count) if *count > self.0 => Err(format!("{count} answers are too many")),
            _ => Ok(()),
        }
    }

    fn end(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        if truth.up().count() == 2 { Err("both are still up".to_owned()) } else { Ok(()) }
    }
}

#[test]
fn a_broken_rule_ends_the_run_and_names_the_seed_the_node_and_the_time() {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let mut world = world(13, 2);
    world.check(AtMost(5));
    let log = lines.clone();
    world.watch(move |line| log.borrow_mut().push(line.to_string()));
    let failure = world.run_for(SECOND).expect_err("the sixth answer");
    assert_eq!((failure.seed, failure.rule.as_str()), (13, "6 answers are too many"));
    assert!(failure.to_string().starts_with("seed 13, at 0.06"), "{failure}");
    assert!(failure.node.is_some());
    let lines = lines.take();
    assert!(lines.last().expect("a log").ends_with("RULE BROKEN: 6 answers are too many"));
    assert!(lines.iter().any(|line| line.contains("<- 0: 6 bytes")), "{lines:?}");
    assert_eq!(world.end().expect_err("asked at the end").rule, "both are still up");
}

#[test]
fn it_can_be_run_until_something_is_so() {
    let mut world = world(14, 2);
    assert_eq!(
        world.run_while_not(SECOND, |world| world.actor(NodeId(0)).is_some_and(|actor| actor.answers == 7)),
        Ok(true)
    );
    assert_eq!(answers(&world, 0), 7);
    assert_eq!(world.run_while_not(SECOND, |_| false), Ok(false));
    assert_eq!(world.now().as_nanos() / 1_000_000_000, 1);
}
