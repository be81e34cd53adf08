//! A lock that node 0 lends for a second at a time. Three versions of whoever borrows it: the first counts the second from the answer, the second from its
//! question, the third lets go a little earlier still. A checker that knows the truth says whether the lock is ever held twice.
//!
//! ```console
//! $ cargo run -p comb-sim --example lease -- first
//! $ cargo run -p comb-sim --example lease -- second           # and: second drift, third drift
//! ```

use std::time::Duration;

use comb_sim::{Actor, Checker, Effects, Failure, Fault, Input, NodeId, Time, Truth, World};

const LENDER: NodeId = NodeId(0);
const LEASE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
struct Version {
    counts_from_the_question: bool,
    lets_go_earlier_by: Duration,
}

struct Node {
    me: NodeId,
    version: Version,
    /// By its own clock: until when the lender has lent the lock, or a borrower may use it.
    until: Option<Time>,
}

#[derive(Debug)]
enum Event {
    Took,
    LetGo,
}

impl Actor for Node {
    type Command = ();
    type Event = Event;

    fn handle(&mut self, input: Input<'_, ()>, effects: &mut Effects<'_, Event>) {
        let now = effects.now();
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
            if self.me != LENDER {
                effects.tell(Event::LetGo);
            }
        }
        match input {
            // A question says when it was asked, by the clock of who asks; an answer says it back.
            Input::Command(()) => effects.send(LENDER, now.as_nanos().to_le_bytes().to_vec()),
            Input::Message { from, bytes } if self.me == LENDER && self.until.is_none() => {
                self.until = Some(now.saturating_add(LEASE));
                effects.send(from, bytes.to_vec());
            }
            Input::Message { bytes, .. } if self.me != LENDER && self.until.is_none() => {
                let asked = Time::from_nanos(u64::from_le_bytes(bytes.try_into().expect("ours")));
                let from = if self.version.counts_from_the_question { asked } else { now };
                self.until = Some(from.saturating_add(LEASE - self.version.lets_go_earlier_by));
                effects.tell(Event::Took);
            }
            _ => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.until
    }

    fn describe(_: &[u8]) -> String {
        "the lock".to_owned()
    }
}

/// Nobody takes the lock while another has it.
#[derive(Default)]
struct OneAtATime {
    holder: Option<NodeId>,
}

impl Checker<Node> for OneAtATime {
    fn saw(&mut self, _: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        match (event, self.holder) {
            (Event::Took, Some(other)) => {
                return Err(format!("node {} takes the lock, and node {} has it", node.0, other.0));
            }
            (Event::Took, None) => self.holder = Some(node),
            (Event::LetGo, _) => self.holder = None,
        }
        Ok(())
    }
}

fn run(seed: u64, version: Version, drift: bool, watch: bool) -> Result<(), Failure> {
    let mut world = World::new(seed, move |boot| Node { me: boot.node, version, until: None });
    world.add_nodes(4);
    world.network_mut().default.jitter = Duration::from_millis(5);
    world.check(OneAtATime::default());
    if watch {
        world.watch(|line| println!("{line}"));
    }
    for node in (0..4).map(NodeId).filter(|_| drift) {
        // A clock that is wrong by up to a hundredth: ten times worse than any that you have.
        let ppm = i32::try_from(world.dice().below(20_000)).expect("small") - 10_000;
        world.at(Time::ZERO, Fault::Drift { node, ppm });
    }
    world.start_all();
    for _ in 0..100 {
        let at = Time::from_millis(world.dice().below(10_000).into());
        let node = NodeId(1 + world.dice().below(3));
        world.command_at(at, node, ());
    }
    world.run_for(Duration::from_secs(12))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is = |wanted: &str| words.iter().any(|word| word == wanted);
    let earlier = Duration::from_millis(if is("third") { 20 } else { 0 });
    let version = Version { counts_from_the_question: !is("first"), lets_go_earlier_by: earlier };
    match (0..1000).find_map(|seed| run(seed, version, is("drift"), false).err()) {
        None => println!("1000 seeds, and the lock was never held twice"),
        Some(failure) => {
            println!("{failure}\n\nThe same run again:\n");
            let again = run(failure.seed, version, is("drift"), true);
            assert_eq!(again, Err(failure), "a seed is a run");
        }
    }
}
