//! More than half of a group is killed at once. Where the kernel says so of each, the others go on.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use comb_group::{Condition, Config, Event, Group, GroupOptions, Level, Names, NodeId};
use comb_net::agent::{Hosts, Limits, SameUser, Server};
use comb_net::{Agent, EndpointOptions};
use rustix::process::{Pid, Signal, kill_process};

#[path = "../../net/tests/addresses/mod.rs"]
mod addresses;
mod processes;
#[path = "../../net/tests/room/mod.rs"]
mod room;
#[path = "../../net/tests/standing/mod.rs"]
mod standing;

use processes::{Process, until};
use room::Room;

const HOSTS: [&str; 2] = ["alpha", "beta"];

/// Which host a member is on: all on the first, or all but two on the second.
fn host_of(node: u32, hosts: usize) -> usize {
    usize::from(hosts == 2 && node >= 2)
}

fn run_member(agents: &Path, own: u32, members: u32, hosts: usize) {
    let here = host_of(own, hosts);
    let elsewhere = (0..members).filter(|&node| host_of(node, hosts) != here);
    let elsewhere = elsewhere.map(|node| (NodeId(node), HOSTS[host_of(node, hosts)].to_owned())).collect();
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), elsewhere };
    let agent = Agent::connect(&agents.join(HOSTS[here]), &names.process(NodeId(own))).expect("an agent");
    let options = GroupOptions { names, config: Config::default(), endpoint: EndpointOptions::default() };
    let members: Vec<_> = (0..members).map(NodeId).collect();
    let mut group = Group::configured(&agent, NodeId(own), &members, options).expect("an endpoint");
    let (mut out, mut is_linked) = (std::io::stdout(), false);
    loop {
        group.poll();
        if !is_linked && group.unreached().next().is_none() {
            is_linked = true;
            let _ = writeln!(out, "\n:linked");
        }
        while let Some(event) = group.next_event() {
            let line = match event {
                Event::Settled(view) => {
                    let body = [u8::try_from(own).expect("few")];
                    group.submit(Level::Majority, &body).expect("room");
                    format!("view {:?}", view.nodes().map(|node| node.0).collect::<Vec<_>>())
                }
                Event::Delivered(delivery) => format!("has {}", delivery.body[0]),
                Event::Condition(change) if change.condition == Condition::Fenced => {
                    format!("fenced {}", change.subject.node.0)
                }
                Event::Stuck(reason) => format!("stuck {reason:?}"),
                Event::WantsState => {
                    group.give_state(b"");
                    continue;
                }
                _ => continue,
            };
            if writeln!(out, "\n:{line}").is_err() {
                return;
            }
        }
        group.wait(Duration::from_millis(5));
    }
}

/// No test, but what the processes of the other tests run.
#[test]
fn member_process() {
    let Some(told) = processes::told() else { return };
    let words: Vec<_> = told.split(' ').collect();
    let [agents, own, members, hosts] = words[..] else { panic!("told {told}") };
    let number = |word: &str| word.parse().expect("a number");
    run_member(Path::new(agents), number(own), number(members), usize::from(hosts == "2") + 1);
}

/// Agents, and members with channels to each other.
struct Scene {
    processes: Vec<Process>,
    _agents: Vec<Server>,
    folder: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Scene {
    fn of(members: u32, hosts: usize) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("comb-fenced-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let bind = |host: usize, among| {
            Server::bind_with(&folder.join(HOSTS[host]), Box::new(SameUser), Limits::default(), among)
                .expect("an agent")
        };
        let agents = if hosts == 1 {
            vec![bind(0, None)]
        } else {
            let room = Room::of(&HOSTS);
            // Each is told where the other listens.
            let listen = addresses::own();
            let beta = bind(1, Some(room.host("beta", "127.0.0.1", &[("alpha", listen)])));
            let door = beta.door().expect("it listens");
            let alpha = Hosts { listen, ..room.host("alpha", "127.0.0.1", &[("beta", door)]) };
            vec![bind(0, Some(alpha)), beta]
        };
        let told = |own| format!("{} {own} {members} {hosts}", folder.display());
        let processes: Vec<_> = (0..members).map(|own| Process::start(&told(own))).collect();
        let scene = Self { processes, _agents: agents, folder };
        let whole = format!("view {:?}", (0..members).collect::<Vec<_>>());
        let mut lacking = members * 2;
        until(&scene.processes, |_, line| {
            lacking -= u32::from(line == "linked" || line == whole);
            lacking == 0
        });
        scene
    }

    /// Until both of the first two have said all of these.
    fn until_both_say(&self, wanted: &[String]) {
        let mut lacking = [wanted.to_vec(), wanted.to_vec()];
        until(&self.processes[..2], |own, line| {
            lacking[own].retain(|wanted| !line.starts_with(wanted.as_str()));
            lacking.iter().all(Vec::is_empty)
        });
    }

    fn all_but_two(&self) -> impl Iterator<Item = Pid> {
        self.processes[2..].iter().map(|process| Pid::from_child(&process.child))
    }

    fn stop(&self) {
        self.all_but_two().for_each(standing::stop);
    }

    fn signal(&self, signal: Signal) {
        self.all_but_two().for_each(|process| kill_process(process, signal).expect("our own"));
    }
}

fn two_go_on(members: u32, hosts: usize) {
    let scene = Scene::of(members, hosts);
    // Whoever is killed as the last must not have agreed with others meanwhile on what to do without the first.
    scene.stop();
    scene.signal(Signal::KILL);
    let fenced = (2..members).map(|node| format!("fenced {node}"));
    let then = ["view [0, 1]", "has 0", "has 1"].map(str::to_owned);
    scene.until_both_say(&fenced.chain(then).collect::<Vec<_>>());
}

#[test]
fn two_of_five_go_on_when_the_kernel_says_that_the_others_have_ended() {
    two_go_on(5, 1);
    two_go_on(5, 2);
}

/// Each has a channel to each, though they would find no reason to talk.
#[test]
fn two_of_twelve_go_on_when_another_hosts_agent_says_that_the_others_have_ended() {
    two_go_on(12, 2);
}

#[test]
fn two_of_five_wait_when_the_others_only_stand_still() {
    let scene = Scene::of(5, 1);
    scene.stop();
    scene.until_both_say(&["stuck NoQuorum".to_owned()]);
    scene.signal(Signal::CONT);
    // Whoever answers too late is left out, but none of those who were there all the time.
    scene.until_both_say(&["view [0, 1, ".to_owned()]);
}
