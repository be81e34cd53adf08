//! Members that cannot hear each other, and what the quorum resource makes of it.

use std::path::PathBuf;
use std::sync::mpsc;

use comb_membership::regroup::{Regroup, Stage};
use comb_net::InProcess;

use super::*;
use crate::quorum_file::QuorumFile;

const SOON: Duration = Duration::from_secs(20);

fn options() -> GroupOptions {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    GroupOptions { names, config: Config::default(), endpoint: EndpointOptions::default() }
}

fn configured(agent: &InProcess, own: u32, count: u32) -> Group {
    let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
    let members: Vec<_> = (0..count).map(NodeId).collect();
    Group::configured(&agent, NodeId(own), &members, options()).expect("an endpoint")
}

/// Tells members what a detector would.
fn lose(group: &mut Group, lost: &[u32]) {
    lost.iter().for_each(|&node| group.tell(Input::Noticed(NodeId(node), Kind::ProcessExit)));
    group.send();
}

fn is_stuck(group: &mut Group) -> bool {
    std::iter::from_fn(|| group.next_event()).any(|event| matches!(event, Event::Stuck(_)))
}

fn nodes(group: &Group) -> Vec<u32> {
    group.stack.regroup().into_iter().flat_map(|regroup| regroup.view().nodes()).map(|node| node.0).collect()
}

fn until(groups: &mut [Group], mut so: impl FnMut(&mut [Group]) -> bool) {
    let deadline = Instant::now() + SOON;
    while !so(groups) {
        groups.iter_mut().for_each(Group::poll);
        groups[0].wait(Duration::from_millis(1));
        assert!(Instant::now() < deadline, "it never comes to be so");
    }
}

fn settled(groups: &mut [Group]) -> bool {
    let stage = |group: &Group| group.stack.regroup().map(Regroup::stage);
    groups.iter().all(|group| stage(group) == Some(Stage::Settled))
}

/// A path that is free, and whose file goes with the test.
struct Path(PathBuf);

impl Path {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("comb-group-{name}-{}", std::process::id())))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn of_two_that_lose_each_other_one_is_granted_the_quorum_file() {
    let (agents, path) = ([InProcess::start(), InProcess::start()], Path::new("two"));
    let with_file =
        |own: u32| configured(&agents[own as usize], own, 2).with_quorum(QuorumFile::new(&path.0));
    let mut groups = [with_file(0), with_file(1)];
    lose(&mut groups[0], &[1]);
    lose(&mut groups[1], &[0]);
    let mut stuck = [false; 2];
    until(&mut groups, |groups| {
        for (group, stuck) in groups.iter_mut().zip(&mut stuck) {
            *stuck |= is_stuck(group);
        }
        let alone = [nodes(&groups[0]) == [0], nodes(&groups[1]) == [1]];
        alone != stuck && alone[0] != alone[1] && stuck[0] != stuck[1]
    });
}

#[test]
fn of_four_that_fall_into_halves_that_with_the_tie_breaker_goes_on() {
    let agents = [InProcess::start(), InProcess::start()];
    let mut groups: Vec<_> = (0..4).map(|own| configured(&agents[own as usize / 2], own, 4)).collect();
    for (own, group) in groups.iter_mut().enumerate() {
        lose(group, if own < 2 { &[2, 3] } else { &[0, 1] });
    }
    let mut stuck = [false; 4];
    until(&mut groups, |groups| {
        for (group, stuck) in groups.iter_mut().zip(&mut stuck) {
            *stuck |= is_stuck(group);
        }
        nodes(&groups[0]) == [0, 1] && nodes(&groups[1]) == [0, 1] && (stuck[2] || stuck[3])
    });
    assert_eq!([nodes(&groups[2]).len(), nodes(&groups[3]).len()], [4; 2]);
}

/// Answers when it is told to; by itself only after so long that no test waits for it.
struct Slow(mpsc::Receiver<()>);

impl Quorum for Slow {
    fn acquire(&mut self, _: ViewEpoch, _: Member) -> Result<bool, QuorumError> {
        self.0.recv_timeout(2 * SOON)?;
        Ok(true)
    }
}

#[test]
fn a_slow_resource_keeps_nobody_from_anything() {
    let agent = InProcess::start();
    let (answer, slow) = mpsc::channel();
    let mut groups = vec![configured(&agent, 0, 2).with_quorum(Slow(slow)), configured(&agent, 1, 2)];
    until(&mut groups, settled);
    drop(groups.pop());
    let started = Instant::now();
    until(&mut groups, |groups| groups[0].asker.as_ref().is_some_and(Asker::is_busy));
    (0..100).for_each(|_| groups[0].poll());
    assert!(started.elapsed() < SOON, "it waited for the resource");
    assert_eq!(nodes(&groups[0]), [0, 1]);
    answer.send(()).expect("it waits");
    until(&mut groups, |groups| nodes(&groups[0]) == [0]);
}

/// A resource that cannot be asked at first.
struct Flaky(u32);

impl Quorum for Flaky {
    fn acquire(&mut self, _: ViewEpoch, _: Member) -> Result<bool, QuorumError> {
        self.0 += 1;
        if self.0 < 3 { Err("out of order".into()) } else { Ok(true) }
    }
}

#[test]
fn a_resource_that_cannot_be_asked_is_asked_again() {
    let agent = InProcess::start();
    let mut groups = vec![configured(&agent, 0, 2).with_quorum(Flaky(0)), configured(&agent, 1, 2)];
    until(&mut groups, settled);
    drop(groups.pop());
    until(&mut groups, |groups| groups[0].quorum_error().is_some());
    assert_eq!(groups[0].quorum_error().map(ToString::to_string).as_deref(), Some("out of order"));
    until(&mut groups, |groups| nodes(&groups[0]) == [0]);
    assert!(groups[0].quorum_error().is_none());
}

/// A log that is full after some records.
struct SmallLog(usize);

impl Log for SmallLog {
    fn read(&mut self) -> Result<Vec<Vec<u8>>, LogError> {
        Ok(Vec::new())
    }

    fn append(&mut self, _: &[u8]) -> Result<(), LogError> {
        self.0 = self.0.checked_sub(1).ok_or(LogError::Full { path: "small".into() })?;
        Ok(())
    }

    fn replace(&mut self, records: &[Vec<u8>]) -> Result<(), LogError> {
        records.iter().try_for_each(|record| self.append(record))
    }

    fn sync(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}

#[test]
fn a_member_whose_disk_is_full_halts_and_the_others_go_on() {
    let agent = InProcess::start();
    let members: Vec<_> = (0..3).map(NodeId).collect();
    let member = |own: u32| {
        let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
        let log = SmallLog(if own == 1 { 20 } else { usize::MAX });
        let beginning = Beginning::Configured(&members);
        Group::resuming(&agent, NodeId(own), beginning, log, options()).expect("an endpoint")
    };
    let mut groups: Vec<_> = (0..3).map(member).collect();
    until(&mut groups, settled);
    until(&mut groups, |groups| {
        let _ = groups[2].submit(Level::Majority, b"more");
        groups[1].failure().is_some()
    });
    assert!(matches!(groups[1].failure(), Some(LogError::Full { .. })));
    assert_eq!(groups[1].submit(Level::Majority, b"more"), Err(SubmitError::Out));
    (0..10).for_each(|_| groups[1].poll());
    assert_eq!(groups[1].next_event(), None, "it says nothing any more");
    until(&mut groups, |groups| nodes(&groups[0]) == [0, 2] && nodes(&groups[2]) == [0, 2]);
}

#[test]
fn the_dice_of_members_differ_and_their_numbers_end() {
    let checked = |own| {
        let mut options = options();
        options.config.watching.most_nodes = 3;
        options.check(NodeId(own)).map(|()| options.config.watching.seed)
    };
    let seeds = [0, 1, 2].map(|own| checked(own).expect("a number of a node"));
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && seeds[0] != seeds[2], "{seeds:?}");
    assert!(matches!(checked(3), Err(GroupError::TooGreat { most: 3, .. })));
}

#[test]
fn the_first_view_is_the_same_however_its_members_are_named() {
    let first = |members: &[u32]| {
        let members: Vec<_> = members.iter().map(|&node| NodeId(node)).collect();
        let stack = Group::first_stack(NodeId(1), &members, &options()).expect("a member");
        stack.view().cloned()
    };
    assert_eq!(first(&[2, 0, 1, 0]), first(&[0, 1, 2]));
}

/// Members without logs wait for no disk, whatever they are told.
#[test]
fn who_has_no_log_waits_for_none() {
    let agent = InProcess::start();
    let mut options = options();
    options.config.order.has_log = true;
    let connect = |own| agent.connect(&options.names.process(NodeId(own))).expect("an agent");
    let first = Group::configured(&connect(0), NodeId(0), &[NodeId(0)], options.clone()).expect("a member");
    let second = Group::joining(&connect(1), NodeId(1), &[NodeId(0)], options.clone()).expect("a node");
    let (mut groups, mut delivered) = ([first, second], [0; 2]);
    let mut is_submitted = false;
    until(&mut groups, |groups| {
        is_submitted |= nodes(&groups[1]) == [0, 1] && groups[1].submit(Level::All, b"x").is_ok();
        for (group, delivered) in groups.iter_mut().zip(&mut delivered) {
            while let Some(event) = group.next_event() {
                match event {
                    Event::WantsState => group.give_state(&[]),
                    Event::Delivered(_) => *delivered += 1,
                    _ => {}
                }
            }
        }
        delivered.iter().all(|delivered| *delivered > 0)
    });
    assert!(is_submitted);
}

#[test]
fn of_many_broken_rules_the_last_few_are_kept_and_all_are_counted() {
    let agent = InProcess::start();
    let mut groups = [configured(&agent, 0, 2)];
    let names = options().names;
    let liar = agent.connect(&names.process(NodeId(1))).expect("an agent");
    let mut liar = Mesh::join(&liar, NodeId(1), names, EndpointOptions::default()).expect("an endpoint");
    let mut arrivals = Arrivals::default();
    let refused = |groups: &[Group]| groups[0].stack().refused().map(|(_, times)| times).sum::<u64>();
    until(&mut groups, |groups| {
        liar.send(NodeId(0), &b"no message".as_slice().into());
        liar.poll(&mut arrivals);
        refused(groups) > 2 * MOST_BROKEN as u64
    });
    assert_eq!(std::iter::from_fn(|| groups[0].next_broken_rule()).count(), MOST_BROKEN);
}

/// The life before of a node closes its channel when it learns that it is out. That may be heard when the next life is a member already.
#[test]
fn the_end_of_a_channel_concerns_the_life_that_it_led_to() {
    let condition_after_the_end_of = |life: Option<u64>| {
        let agent = InProcess::start();
        let mut groups = [configured(&agent, 0, 2)];
        let names = options().names;
        let other = agent.connect(&names.process(NodeId(1))).expect("an agent");
        let mut other =
            Mesh::join(&other, NodeId(1), names, EndpointOptions::default()).expect("an endpoint");
        life.into_iter().for_each(|life| other.introduce(Incarnation(life)));
        let mut arrivals = Arrivals::default();
        until(&mut groups, |groups| {
            other.send(NodeId(0), &b"no message".as_slice().into());
            other.poll(&mut arrivals);
            groups[0].stack().refused().count() > 0
        });
        other.drop_peer(NodeId(0));
        other.poll(&mut arrivals);
        until(&mut groups, |groups| !groups[0].mesh.reaches(NodeId(1)));
        groups[0].stack().condition(Member { node: NodeId(1), incarnation: FIRST_LIFE })
    };
    use comb_membership::detect::Condition::{Alive, Failed};
    let lives = [Some(FIRST_LIFE.0 - 1), Some(FIRST_LIFE.0), Some(FIRST_LIFE.0 + 1), None];
    assert_eq!(lives.map(condition_after_the_end_of), [Alive, Failed, Failed, Alive]);
}

/// A device that is to be looked at soon.
struct Due(Time);

impl Environment for Due {
    fn poll_notice(&mut self, _now: Time) -> Option<comb_membership::detect::Notice> {
        None
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.0)
    }
}

#[test]
fn a_plug_in_is_polled_when_it_is_due() {
    let agent = InProcess::start();
    let mut options = options();
    (options.config.watching.ping, options.config.watching.gossip) =
        (Duration::from_secs(100_000), Duration::from_secs(100_000));
    let agent = agent.connect(&options.names.process(NodeId(0))).expect("an agent");
    let mut group = Group::configured(&agent, NodeId(0), &[NodeId(0)], options).expect("an endpoint");
    group.poll();
    let soon = group.now().saturating_add(Duration::from_millis(20));
    let mut group = group.with_environment(Due(Time::MAX)).with_environment(Due(soon));
    group.poll();
    assert!(group.nothing_is_due_for() <= Duration::from_millis(20));
}
