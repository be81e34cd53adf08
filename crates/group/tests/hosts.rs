//! Groups across hosts, each with an agent of its own: over the loopback, and over a cable that is pulled out.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use comb_group::{Condition, Config, Event, Group, GroupOptions, Level, Names, NodeId};
use comb_net::agent::{Hosts, Limits, SameUser};
use comb_net::{EndpointOptions, InProcess};

#[path = "../../net/tests/transports/namespaces.rs"]
mod namespaces;
#[path = "../../net/tests/room/mod.rs"]
mod room;

use namespaces::{ADDRESSES, CABLE, Namespaces};
use room::Room;

const SOON: Duration = Duration::from_secs(30);
const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];
/// Both know where the other listens before either does.
const PORT: u16 = 7071;

/// Where nodes are: the host of each, by its place in [`NAMES`].
type Plan = &'static [usize];

fn options(plan: Plan, own: u32) -> GroupOptions {
    let here = plan[own as usize];
    let elsewhere = (0..).zip(plan).filter(|(_, host)| **host != here);
    let elsewhere = elsewhere.map(|(node, &host)| (NodeId(node), NAMES[host].to_owned())).collect();
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), elsewhere };
    let mut config = Config::default();
    // All are started at once here.
    config.watching.starting = Duration::from_secs(1);
    // All are in one thread, and a machine that does much else lets it stand still for longer than anybody is waited for otherwise.
    config.watching.ping = Duration::from_millis(300);
    GroupOptions { names, config, endpoint: EndpointOptions::default() }
}

/// Addresses of this machine that no other test has.
fn loopback() -> [String; 3] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, room) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let second = 64 + (process >> 14) % 64;
    [0, 1, 2].map(|host| {
        format!("127.{second}.{}.{}", (process >> 6) % 256, 1 + (process % 64 + room * 3 + host) % 254)
    })
}

fn start(room: &Room, host: usize, addresses: &[String]) -> InProcess {
    let at = |host: usize| SocketAddr::new(addresses[host].parse().expect("an address"), PORT);
    let others: Vec<_> =
        (0..addresses.len()).filter(|&other| other != host).map(|other| (NAMES[other], at(other))).collect();
    let hosts = Hosts { listen: at(host), ..room.host(NAMES[host], &addresses[host], &others) };
    InProcess::among(Box::new(SameUser), Limits::default(), hosts).expect("an agent")
}

struct Program {
    node: u32,
    group: Group,
    state: Vec<u8>,
    view: Vec<u32>,
    conditions: Vec<(u32, Condition)>,
    is_stuck: bool,
    is_excluded: bool,
}

impl Program {
    fn configured(agent: &InProcess, plan: Plan, node: u32) -> Self {
        let options = options(plan, node);
        let agent = agent.connect(&options.names.process(NodeId(node))).expect("an agent");
        let members: Vec<_> = (0..).zip(plan).map(|(node, _)| NodeId(node)).collect();
        let group = Group::configured(&agent, NodeId(node), &members, options).expect("an endpoint");
        let (state, view, conditions) = (Vec::new(), Vec::new(), Vec::new());
        Self { node, group, state, view, conditions, is_stuck: false, is_excluded: false }
    }

    fn turn(&mut self) {
        self.group.poll();
        while let Some(event) = self.group.next_event() {
            match event {
                Event::Delivered(delivery) => self.state.extend_from_slice(&delivery.body),
                Event::WantsState => self.group.give_state(&self.state),
                Event::View(view) => self.view = view.nodes().map(|node| node.0).collect(),
                Event::Condition(change) => self.conditions.push((change.subject.node.0, change.condition)),
                Event::Stuck(_) => self.is_stuck = true,
                Event::Excluded { .. } => self.is_excluded = true,
                _ => {}
            }
        }
        assert_eq!(self.group.next_broken_rule(), None);
    }
}

fn until(programs: &mut [Program], what: &str, mut so: impl FnMut(&[Program]) -> bool) {
    let deadline = Instant::now() + SOON;
    while !so(programs) {
        programs.iter_mut().for_each(Program::turn);
        let seen: Vec<_> =
            programs.iter().map(|it| (it.node, &it.view, it.state.len(), &it.conditions)).collect();
        assert!(Instant::now() < deadline, "{what}: {seen:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn everybody(programs: &mut [Program], view: &[u32]) {
    until(programs, "a view", |programs| programs.iter().all(|program| program.view == view));
}

fn an_update_of_each(programs: &mut [Program]) {
    let all = programs[0].state.len() + programs.len();
    for program in programs.iter_mut() {
        let byte = u8::try_from(program.node).expect("few nodes");
        program.group.submit(Level::Majority, &[byte]).expect("room");
    }
    until(programs, "updates", |programs| programs.iter().all(|program| program.state.len() == all));
    assert!(programs.iter().all(|program| program.state == programs[0].state));
}

#[test]
fn a_group_on_three_hosts_agrees_and_loses_a_process_and_a_host() {
    const PLAN: Plan = &[0, 0, 1, 1, 2, 2];
    let (room, addresses) = (Room::of(&NAMES), loopback());
    let mut agents: Vec<_> = (0..3).map(|host| start(&room, host, &addresses)).collect();
    let mut programs: Vec<_> =
        (0..6).map(|node| Program::configured(&agents[PLAN[node as usize]], PLAN, node)).collect();
    everybody(&mut programs, &[0, 1, 2, 3, 4, 5]);
    an_update_of_each(&mut programs);

    // A process ends, and its agent tells the others.
    drop(programs.remove(3));
    everybody(&mut programs, &[0, 1, 2, 4, 5]);
    let saw_failure = |program: &Program| program.conditions.contains(&(3, Condition::Failed));
    assert!(programs.iter().any(saw_failure));
    an_update_of_each(&mut programs);

    // A host stands still, with its agent and the member that orders updates: nobody tells anything.
    let still: Vec<_> = programs.drain(..2).collect();
    everybody(&mut programs, &[2, 4, 5]);
    drop((still, agents.remove(0)));
    an_update_of_each(&mut programs);
}

#[test]
fn of_two_parts_the_greater_goes_on_and_the_other_learns_of_it_when_the_cable_is_back() {
    const PLAN: Plan = &[0, 1, 0, 1, 0];
    let namespaces = match Namespaces::make() {
        Ok(made) => made,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let room = Room::of(&NAMES[..2]);
    let addresses = ADDRESSES.map(str::to_owned);
    let agents = [0, 1].map(|host| namespaces.within(host, || start(&room, host, &addresses)));
    let mut programs: Vec<_> =
        (0..5).map(|node| Program::configured(&agents[PLAN[node as usize]], PLAN, node)).collect();
    everybody(&mut programs, &[0, 1, 2, 3, 4]);
    an_update_of_each(&mut programs);

    let plug = |what| namespaces.ip(0, &["link", "set", CABLE, what]).map(drop).expect("our own cable");
    plug("down");
    until(&mut programs, "two parts", |programs| {
        programs.iter().all(|program| match program.node {
            1 | 3 => program.is_stuck,
            _ => program.view == [0, 2, 4],
        })
    });
    assert!(programs.iter().all(|program| !program.is_excluded));
    let lost = programs[1].group.submit(Level::Majority, b"x");
    assert!(lost.is_ok(), "it may yet be heard");

    plug("up");
    until(&mut programs, "the parts meet", |programs| {
        programs.iter().all(|program| program.is_excluded == matches!(program.node, 1 | 3))
    });
    programs.retain(|program| !program.is_excluded);
    an_update_of_each(&mut programs);
}
