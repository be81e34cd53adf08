//! Circles of members that are processes of their own, and of members in one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use comb_group::circles::{CircleError, Event as Circle, Flow, Reliability, Terms};
use comb_group::{Config, Event, Group, GroupOptions, Names, NodeId};
use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, EndpointOptions, InProcess};

mod processes;
use processes::Process;

const SOON: Duration = Duration::from_secs(60);
const NODES: u32 = 4;
/// Each has two members.
const CIRCLES: u32 = 2000;

fn options() -> GroupOptions {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let mut config = Config::default();
    config.watching.starting = Duration::from_secs(30);
    GroupOptions { names, config, endpoint: EndpointOptions::default() }
}

fn members(circle: u32) -> BTreeSet<u32> {
    let first = circle % NODES;
    [first, (first + 1 + circle / NODES % (NODES - 1)) % NODES].into()
}

/// Not a test, but where the processes of the others begin: `AGENT NODE`.
#[test]
fn member_process() {
    let Some(told) = processes::told() else { return };
    let (agent, own) = told.split_once(' ').expect("two words");
    let own: u32 = own.parse().expect("a number");
    let agent = Agent::connect(agent.as_ref(), &options().names.process(NodeId(own))).expect("an agent");
    let all: Vec<_> = (0..NODES).map(NodeId).collect();
    let mut group = Group::configured(&agent, NodeId(own), &all, options()).expect("an endpoint");
    let mut to_join: Vec<_> = (0..CIRCLES).filter(|&circle| members(circle).contains(&own)).collect();
    let (mine, mut whole, mut notices) = (to_join.len(), BTreeSet::new(), BTreeMap::<_, u32>::new());
    loop {
        group.poll();
        while let Some(&circle) = to_join.last() {
            match group.join_circle(&format!("circle {circle}"), Terms::lossy()) {
                Ok(()) => drop(to_join.pop()),
                Err(CircleError::Full | CircleError::Out) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some(event) = group.next_event() {
            match event {
                Event::WantsState => group.give_state(b""),
                Event::Circle(Circle::Changed { circle, members, .. }) if members.len() == 2 => {
                    whole.insert(circle);
                    if whole.len() == mine {
                        println!("\n:whole");
                    }
                }
                Event::Circle(Circle::Changed { circle, members, .. }) if whole.len() == mine => {
                    assert_eq!(members, [group.stack().me()], "{circle}");
                    *notices.entry(circle).or_default() += 1;
                }
                Event::Circle(Circle::Told { circle, from, body, .. }) => {
                    println!("\n:heard {circle}: {} from {}", String::from_utf8_lossy(&body), from.node.0);
                }
                Event::View(view) if view.members.len() < NODES as usize => {
                    println!("\n:view of {}", view.members.len());
                }
                _ => {}
            }
        }
        // Those that it has with the dead, each once; and the others are as they were.
        let with_the_dead = (0..CIRCLES).filter(|&circle| members(circle) == [own, NODES - 1].into()).count();
        if own != NODES - 1 && notices.len() == with_the_dead {
            println!("\n:told {} times of {}", notices.values().sum::<u32>(), notices.len());
            notices.insert("no more".to_owned(), 1);
        }
        // Again and again: what is said in such a circle comes or does not.
        if notices.len() > with_the_dead {
            let other = (own + 1) % (NODES - 1);
            let ours = (0..CIRCLES).find(|&circle| members(circle) == [own, other].into()).expect("one");
            group.say(&format!("circle {ours}/{other}"), b"still here").expect("it is whole");
        }
        group.wait(Duration::from_millis(10));
    }
}

#[test]
fn of_thousands_of_circles_each_is_told_of_a_death_that_concerns_it_and_works_on() {
    let folder = std::env::temp_dir().join(format!("comb-circles-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let agent = folder.join("agent");
    let server = Server::bind(&agent, Box::new(SameUser), Limits::default()).expect("an agent");
    let mut processes: Vec<_> =
        (0..NODES).map(|own| Process::start(&format!("{} {own}", agent.display()))).collect();
    let mut whole = BTreeSet::new();
    processes::until(&processes, |own, line| {
        assert!(!line.starts_with("view"), "{own}: {line}");
        whole.extend((line == "whole").then_some(own));
        whole.len() == NODES as usize
    });
    processes[NODES as usize - 1].kill();
    let (mut told, mut heard) = (BTreeSet::new(), BTreeSet::new());
    processes::until(&processes, |own, line| {
        if let Some((times, of)) = line.strip_prefix("told ").and_then(|told| told.split_once(" times of ")) {
            assert_eq!(times, of, "each once");
            let own = u32::try_from(own).expect("few");
            let shared = (0..CIRCLES).filter(|&circle| members(circle) == [own, NODES - 1].into());
            assert_eq!(of.parse(), Ok(shared.count()));
            told.insert(own);
        }
        heard.extend(line.contains("still here").then_some(own));
        told.len() == 3 && heard.len() == 3
    });
    drop((processes, server));
    let _ = std::fs::remove_dir_all(&folder);
}

fn member(agent: &InProcess, own: u32, first: Option<u32>) -> Group {
    let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
    let nodes: Vec<_> = (0..first.unwrap_or(own)).map(NodeId).collect();
    match first {
        Some(_) => Group::configured(&agent, NodeId(own), &nodes, options()).expect("an endpoint"),
        None => Group::joining(&agent, NodeId(own), &nodes, options()).expect("an endpoint"),
    }
}

/// Lets all of them do what is to be done, and hears what they are told of circles.
fn turn(groups: &mut [Group], told: &mut Vec<Vec<Circle>>) {
    told.resize(groups.len(), Vec::new());
    for (group, told) in groups.iter_mut().zip(told.iter_mut()) {
        group.poll();
        while let Some(event) = group.next_event() {
            match event {
                Event::WantsState => group.give_state(b"the program's"),
                Event::Restore { state, .. } => assert_eq!(state, b"the program's"),
                Event::Circle(event) => told.push(event),
                _ => {}
            }
        }
        assert_eq!(group.next_broken_rule(), None);
    }
}

fn until(groups: &mut [Group], told: &mut Vec<Vec<Circle>>, so: impl Fn(&[Vec<Circle>]) -> bool) {
    let deadline = Instant::now() + SOON;
    while !so(told) {
        turn(groups, told);
        assert!(Instant::now() < deadline, "it never comes to be so: {told:#?}");
    }
}

fn has_heard(told: &[Circle], name: &str, words: &[&[u8]]) -> bool {
    let heard = told.iter().filter_map(|event| match event {
        Circle::Told { circle, body, .. } if circle == name => Some(&body[..]),
        _ => None,
    });
    heard.eq(words.iter().copied())
}

#[test]
fn circles_of_every_kind_carry_what_is_said_also_to_who_comes_later() {
    let agent = InProcess::start();
    let mut groups: Vec<_> = (0..3).map(|own| member(&agent, own, Some(3))).collect();
    let kinds = [("agreed", Terms::default()), ("gossip", Terms::epidemic()), ("lossy", Terms::lossy())];
    for group in &mut groups {
        for (name, terms) in kinds {
            group.join_circle(name, terms).expect("room");
        }
    }
    let mut told = Vec::new();
    let is_in = |told: &[Circle], name: &str, count: usize| {
        told.iter().any(|event| {
            matches!(event, Circle::Changed { circle, members, .. }
            if circle == name && members.len() == count)
        })
    };
    let all_in = |count: usize| {
        move |told: &[Vec<Circle>]| {
            told.iter().all(|told| kinds.iter().all(|(name, _)| is_in(told, name, count)))
        }
    };
    turn(&mut groups, &mut told);
    until(&mut groups, &mut told, all_in(3));
    groups.push(member(&agent, 3, None));
    let deadline = Instant::now() + SOON;
    while groups[3].circles().len() < 3 {
        turn(&mut groups, &mut told);
        assert!(Instant::now() < deadline, "it does not come in");
    }
    for (name, terms) in kinds {
        assert_eq!(groups[3].say(name, b"too early"), Err(CircleError::NotAMember));
        groups[3].join_circle(name, terms).expect("room");
    }
    until(&mut groups, &mut told, all_in(4));
    for (name, _) in kinds {
        groups[3].say(name, b"to all").expect("it is in");
        groups[3].say(&format!("{name}/1"), b"to you").expect("it is in");
    }
    until(&mut groups, &mut told, |told| {
        kinds.iter().all(|(name, _)| {
            [0, 2, 3].iter().all(|&own| has_heard(&told[own], name, &[b"to all"]))
                && has_heard(&told[1], name, &[b"to all", b"to you"])
        })
    });
    let wrong = Terms { flow: Flow { outstanding: 1, per_second: None }, ..Terms::lossy() };
    assert_eq!(
        groups[0].circles().terms("gossip").map(|terms| terms.reliability),
        Some(Reliability::Epidemic)
    );
    groups[0].leave_circle("lossy").expect("room");
    groups[0].join_circle("lossy", wrong).expect("room");
    until(&mut groups, &mut told, |told| {
        told[0].iter().any(|event| matches!(event, Circle::Refused { circle, .. } if circle == "lossy"))
    });
}
