//! Groups of members in one process, each with an endpoint of its own.

use std::time::{Duration, Instant};

use comb_group::{Config, Event, Group, GroupOptions, Level, Names, NodeId};
use comb_net::{EndpointOptions, InProcess};

const SOON: Duration = Duration::from_secs(20);

/// A member, and a program whose state is all that it was told.
struct Program {
    group: Group,
    state: Vec<u8>,
    views: Vec<Vec<u32>>,
    is_excluded: bool,
}

fn options() -> GroupOptions {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let mut config = Config::default();
    // All are started at once here.
    config.watching.starting = Duration::from_secs(1);
    GroupOptions { names, config, endpoint: EndpointOptions::default() }
}

impl Program {
    fn new(group: Group) -> Self {
        Self { group, state: Vec::new(), views: Vec::new(), is_excluded: false }
    }

    fn configured(agent: &InProcess, own: u32, count: u32) -> Self {
        let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
        let members: Vec<_> = (0..count).map(NodeId).collect();
        Self::new(Group::configured(&agent, NodeId(own), &members, options()).expect("an endpoint"))
    }

    fn joining(agent: &InProcess, own: u32, contacts: u32) -> Self {
        let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
        let contacts: Vec<_> = (0..contacts).map(NodeId).collect();
        Self::new(Group::joining(&agent, NodeId(own), &contacts, options()).expect("an endpoint"))
    }

    fn turn(&mut self) {
        self.group.poll();
        while let Some(event) = self.group.next_event() {
            match event {
                Event::Delivered(delivery) => self.state.extend_from_slice(&delivery.body),
                Event::Restore { state, .. } => self.state = state,
                Event::WantsState => self.group.give_state(&self.state),
                Event::View(view) => self.views.push(view.nodes().map(|node| node.0).collect()),
                Event::Excluded { .. } => self.is_excluded = true,
                _ => {}
            }
        }
        assert_eq!(self.group.next_broken_rule(), None);
    }

    fn submit(&mut self, byte: u8) {
        self.group.submit(Level::Majority, &[byte]).expect("room");
    }

    fn view(&self) -> &[u32] {
        self.views.last().map_or(&[], Vec::as_slice)
    }
}

fn until(programs: &mut [Program], mut so: impl FnMut(&[Program]) -> bool) {
    let deadline = Instant::now() + SOON;
    while !so(programs) {
        programs.iter_mut().for_each(Program::turn);
        assert!(Instant::now() < deadline, "it never comes to be so");
    }
}

#[test]
fn everybody_gets_everything_in_one_order() {
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..4).map(|own| Program::configured(&agent, own, 4)).collect();
    for round in 0..25 {
        for own in 0..4 {
            programs[usize::from(own)].submit(round * 4 + own);
        }
    }
    until(&mut programs, |programs| programs.iter().all(|program| program.state.len() == 100));
    for program in &programs {
        assert_eq!(program.state, programs[0].state);
    }
}

#[test]
fn a_group_goes_on_without_its_sequencer_and_keeps_what_it_had() {
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..4).map(|own| Program::configured(&agent, own, 4)).collect();
    (1..4).for_each(|own| programs[own].submit(7));
    until(&mut programs, |programs| programs.iter().all(|program| program.state.len() == 3));
    drop(programs.remove(0));
    (0..3).for_each(|own| programs[own].submit(8));
    until(&mut programs, |programs| programs.iter().all(|program| program.state.len() == 6));
    for program in &programs {
        assert_eq!((program.view(), &program.state[..]), (&[1, 2, 3][..], &[7, 7, 7, 8, 8, 8][..]));
    }
}

#[test]
fn a_node_comes_in_with_the_state_and_comes_back_when_it_has_died() {
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..3).map(|own| Program::configured(&agent, own, 3)).collect();
    programs[1].submit(1);
    until(&mut programs, |programs| programs.iter().all(|program| program.state == [1]));
    for life in 0..3 {
        programs.push(Program::joining(&agent, 3, 3));
        until(&mut programs, |programs| programs.iter().all(|program| program.view() == [0, 1, 2, 3]));
        assert_eq!(programs[3].state, programs[0].state, "life {life}");
        programs[3].submit(2);
        let all = programs[0].state.len() + 1;
        until(&mut programs, |programs| programs.iter().all(|program| program.state.len() == all));
        drop(programs.pop());
        until(&mut programs, |programs| programs.iter().all(|program| program.view() == [0, 1, 2]));
    }
    assert_eq!(programs[0].state, [1, 2, 2, 2]);
}

#[test]
fn half_of_a_group_of_two_asks_for_the_quorum_resource() {
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..2).map(|own| Program::configured(&agent, own, 2)).collect();
    until(&mut programs, |programs| programs.iter().all(|program| program.view() == [0, 1]));
    drop(programs.remove(0));
    let group = &mut programs[0].group;
    let deadline = Instant::now() + SOON;
    let epoch = loop {
        group.poll();
        if let Some(Event::Acquire { epoch, .. }) = group.next_event() {
            break epoch;
        }
        assert!(Instant::now() < deadline, "it never asks");
    };
    group.acquired(epoch, true);
    until(&mut programs, |programs| programs[0].view() == [1]);
}

#[test]
fn who_says_nothing_is_left_behind_and_learns_of_it_when_it_speaks_again() {
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..4).map(|own| Program::configured(&agent, own, 4)).collect();
    until(&mut programs, |programs| programs.iter().all(|program| program.view() == [0, 1, 2, 3]));
    // It neither ends nor closes anything: only the silence tells. The first orders updates, the last does not.
    for (silent, left) in [(0, &[1, 2, 3][..]), (3, &[1, 2])] {
        let mut sleeper = programs.remove(if silent == 0 { 0 } else { 2 });
        until(&mut programs, |programs| programs.iter().all(|program| program.view() == left));
        let deadline = Instant::now() + SOON;
        while !sleeper.is_excluded {
            sleeper.turn();
            programs.iter_mut().for_each(Program::turn);
            assert!(Instant::now() < deadline, "it never learns of it");
        }
    }
}

#[test]
fn what_a_node_says_of_itself_is_known_to_all() {
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..3).map(|own| Program::configured(&agent, own, 3)).collect();
    programs[1].group.write("role", Some(b"home".to_vec())).expect("short");
    let all_read = |value: Option<&[u8]>, programs: &[Program]| {
        programs.iter().all(|program| program.group.read(NodeId(1), "role") == value)
    };
    until(&mut programs, |programs| all_read(Some(b"home"), programs));
    programs[1].group.write("role", None).expect("short");
    until(&mut programs, |programs| all_read(None, programs));
}

#[test]
fn what_cannot_be_a_member_is_told_so() {
    let agent = InProcess::start();
    let agent = agent.connect("member-7").expect("an agent");
    let members = [NodeId(0), NodeId(1)];
    let error = Group::configured(&agent, NodeId(7), &members, options()).expect_err("it is none of them");
    assert_eq!(error.to_string(), "node 7 is not among the members that the group is configured with");
    let error = Group::joining(&agent, NodeId(1 << 20), &members, options()).expect_err("too great");
    assert!(error.to_string().contains("Watching::most_nodes"), "{error}");
}

#[test]
fn a_group_works_without_those_who_never_start_and_leaves_them_out() {
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..2).map(|own| Program::configured(&agent, own, 3)).collect();
    programs[1].submit(7);
    until(&mut programs, |programs| programs.iter().all(|program| program.state == [7]));
    until(&mut programs, |programs| programs.iter().all(|program| program.view() == [0, 1]));
}
