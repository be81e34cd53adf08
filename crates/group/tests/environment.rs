//! Members that learn from their environment alone who is gone: nobody pings anybody, and nobody ends.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use comb_group::environment::{Confidence, Environment, Icmp, Kind, Links, Notice, Notices};
use comb_group::{Condition, Config, Event, Group, GroupError, GroupOptions, Level, Names, NodeId};
use comb_membership::Time;
use comb_net::{EndpointOptions, InProcess};

#[path = "../../net/tests/transports/namespaces.rs"]
mod namespaces;

use namespaces::{CABLE, Namespaces};

const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(1000);

fn options() -> GroupOptions {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let mut config = Config::default();
    (config.watching.ping, config.watching.gossip) = (LONG, LONG);
    GroupOptions { names, config, endpoint: EndpointOptions::default() }
}

/// A member, and what it was told.
struct Program {
    group: Group,
    view: Vec<u32>,
    views: usize,
    delivered: usize,
    conditions: Vec<(u32, Condition)>,
}

impl Program {
    fn configured(agent: &InProcess, own: u32, environment: impl Environment + Send + 'static) -> Self {
        let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
        let members = [0, 1, 2].map(NodeId);
        let group = Group::configured(&agent, NodeId(own), &members, options()).expect("an endpoint");
        let group = group.with_environment(environment);
        Self { group, view: Vec::new(), views: 0, delivered: 0, conditions: Vec::new() }
    }

    fn turn(&mut self) {
        self.group.poll();
        while let Some(event) = self.group.next_event() {
            match event {
                Event::View(view) => {
                    self.view = view.nodes().map(|node| node.0).collect();
                    self.views += 1;
                }
                Event::Delivered(_) => self.delivered += 1,
                Event::WantsState => self.group.give_state(&[]),
                Event::Condition(change) => self.conditions.push((change.subject.node.0, change.condition)),
                _ => {}
            }
        }
        assert_eq!(self.group.next_broken_rule(), None);
    }
}

fn until(programs: &mut [Program], mut so: impl FnMut(&[Program]) -> bool) {
    let deadline = Instant::now() + SOON;
    while !so(programs) {
        programs.iter_mut().for_each(Program::turn);
        let seen: Vec<_> = programs.iter().map(|it| (&it.view, it.views, &it.conditions)).collect();
        assert!(Instant::now() < deadline, "it never comes to be so: {seen:?}");
        // As event loops do: what a plug-in waits for must wake its member.
        let idle = programs.iter().map(|program| program.group.nothing_is_due_for()).min();
        std::thread::sleep(idle.unwrap_or_default().min(Duration::from_millis(5)));
    }
}

fn all_are_in(programs: &[Program]) -> bool {
    programs.iter().all(|program| program.view == [0, 1, 2])
}

/// Each member has a port that is open for as long as it lives, and all others watch it.
fn with_ports(refused: Confidence) -> (Vec<Program>, Vec<UdpSocket>, InProcess) {
    let agent = InProcess::start();
    let ports: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> = ports.iter().map(|it| it.local_addr().expect("bound")).collect();
    let program = |own| {
        let mut icmp = Icmp::new();
        for (node, &address) in (0..).zip(&addresses).filter(|(node, _)| *node != own) {
            icmp.watch_port(address, refused, [NodeId(node)]).expect("a socket");
        }
        Program::configured(&agent, own, icmp)
    };
    let mut programs: Vec<_> = (0..3).map(program).collect();
    until(&mut programs, all_are_in);
    (programs, ports, agent)
}

#[test]
fn who_stands_still_and_whose_port_is_refused_is_left_out() {
    for (per_mille, condition) in [(990, Condition::Failed), (400, Condition::Suspected)] {
        let (mut programs, mut ports, _agent) = with_ports(Confidence::per_mille(per_mille));
        let still = programs.pop();
        drop(ports.pop());
        until(&mut programs, |programs| programs.iter().all(|program| program.view == [0, 1]));
        assert!(programs.iter().any(|program| program.conditions.contains(&(2, condition))));
        drop(still);
    }
}

/// Its port is closed, and it lives: whoever is not sure of what that means costs a view, and no member.
#[test]
fn who_lives_stays_though_its_port_is_refused() {
    let (mut programs, mut ports, _agent) = with_ports(Kind::IcmpUnreachable.usual_confidence());
    drop(ports.pop());
    until(&mut programs, |programs| {
        let is_doubted = |program: &Program| program.conditions.contains(&(2, Condition::Suspected));
        programs.iter().any(is_doubted) && programs.iter().all(|program| program.views >= 2)
    });
    assert!(all_are_in(&programs));
    programs[2].group.submit(Level::All, b"x").expect("room");
    until(&mut programs, |programs| programs.iter().all(|program| program.delivered == 1));
    assert!(all_are_in(&programs));
}

/// The link to it goes down in a network of its own; the members are elsewhere, and it stands still.
#[test]
fn who_stands_still_and_whose_link_is_down_is_left_out() {
    let namespaces = match Namespaces::make() {
        Ok(made) => made,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let links = |own: u32| {
        let mut links = namespaces.within(0, Links::new).expect("the kernel answers");
        links.watch(CABLE, [2].into_iter().filter(|node| *node != own).map(NodeId));
        links
    };
    let agent = InProcess::start();
    let mut programs: Vec<_> = (0..3).map(|own| Program::configured(&agent, own, links(own))).collect();
    until(&mut programs, all_are_in);
    let still = programs.pop();
    namespaces.ip(1, &["link", "set", CABLE, "down"]).expect("our own cable");
    until(&mut programs, |programs| programs.iter().all(|program| program.view == [0, 1]));
    drop(still);
}

/// What the kernel says of a cable, as it is pulled out, put in and taken away.
#[test]
fn a_link_that_goes_down_and_up_is_seen_to() {
    let namespaces = match Namespaces::make() {
        Ok(made) => made,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let mut links = namespaces.within(0, Links::new).expect("the kernel answers");
    links.watch(CABLE, [NodeId(7)]);
    let (node, kind) = (NodeId(7), Kind::LinkDown);
    let down = Notice::Seen { node, kind, confidence: kind.usual_confidence() };
    let started = Instant::now();
    let mut next = || loop {
        let now = Time::ZERO.saturating_add(started.elapsed());
        match links.poll_notice(now) {
            Some(notice) => break notice,
            None => assert!(now < Time::ZERO.saturating_add(SOON), "it never says so"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let ip = |end, what: &[&str]| drop(namespaces.ip(end, what).expect("our own cable"));
    // The cable is up when it has been seen to be, and not before.
    ip(1, &["link", "set", CABLE, "down"]);
    assert_eq!(next(), down);
    ip(1, &["link", "set", CABLE, "up"]);
    while next() != (Notice::Over { node, kind }) {}
    ip(1, &["link", "delete", CABLE]);
    assert_eq!(next(), down);
}

/// A host to which the next router knows no way.
#[test]
fn a_host_that_cannot_be_reached_is_seen_to_be_so() {
    let namespaces = match Namespaces::make() {
        Ok(made) => made,
        Err(reason) => return println!("skipped: {reason}"),
    };
    // The other end is the router, and refuses.
    namespaces.ip(0, &["route", "add", "10.78.0.0/24", "via", "10.77.0.2"]).expect("our own network");
    namespaces.ip(1, &["route", "add", "unreachable", "10.78.0.0/24"]).expect("our own network");
    namespaces.within(1, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).expect("our own network");
    let mut icmp = Icmp::new();
    namespaces.within(0, || {
        icmp.watch_host("10.78.0.9:9".parse().expect("an address"), [NodeId(3)]).expect("a socket");
        let started = Instant::now();
        loop {
            let now = Time::ZERO.saturating_add(started.elapsed());
            if let Some(notice) = icmp.poll_notice(now) {
                let confidence = Kind::IcmpUnreachable.usual_confidence();
                let expected = Notice::Seen { node: NodeId(3), kind: Kind::IcmpUnreachable, confidence };
                return assert_eq!(notice, expected);
            }
            assert!(started.elapsed() < SOON, "nothing says that it is so");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn a_power_supply_that_runs_low_and_comes_back_is_told_and_costs_nobody() {
    /// A device that another thread hears.
    struct Shared(std::sync::Arc<std::sync::Mutex<Notices>>);

    impl Environment for Shared {
        fn poll_notice(&mut self, now: Time) -> Option<Notice> {
            self.0.lock().expect("nobody panics").poll_notice(now)
        }
    }
    let agent = InProcess::start();
    let device = std::sync::Arc::default();
    let supply =
        |own| if own == 0 { Shared(std::sync::Arc::clone(&device)) } else { Shared(Default::default()) };
    let mut programs: Vec<_> = (0..3).map(|own| Program::configured(&agent, own, supply(own))).collect();
    until(&mut programs, all_are_in);
    let power = |confidence| {
        device.lock().expect("nobody panics").set(NodeId(2), Kind::PowerFailure, confidence);
    };
    power(Some(Kind::PowerFailure.usual_confidence()));
    until(&mut programs, |programs| programs[0].conditions.contains(&(2, Condition::Suspected)));
    power(None);
    until(&mut programs, |programs| programs[0].conditions.last() == Some(&(2, Condition::Alive)));
    assert!(all_are_in(&programs));
}

#[test]
fn who_would_watch_as_nobody_can_is_told_so() {
    let agent = InProcess::start();
    let agent = agent.connect("member-0").expect("an agent");
    let mut options = options();
    options.config.watching.buddies_that_agree = 4;
    let refused = Group::joining(&agent, NodeId(0), &[NodeId(1)], options).expect_err("three watch");
    assert!(matches!(refused, GroupError::Watching(_)) && refused.to_string().contains("Watching::buddies"));
}
