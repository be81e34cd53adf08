//! All that one node of a farm hears, so that one elsewhere can be made to hear the same: a process of its own, of which can be
//! seen what the view of a large farm costs it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Actor, Boot, Effects, Failure, Input, World};
use comb_types::{Incarnation, NodeId, Time};

use super::{Command, Event, Gossiper, all_acquainted};
use crate::detect::lookout;
use crate::state::State;
use crate::view::Member;

/// What it hears after all are acquainted, for so long: what it takes in only then is in its view as well.
const AFTER: Duration = Duration::from_secs(30);
/// By then they are, or never will be.
const ACQUAINTED: Duration = Duration::from_secs(300);

/// One thing that a node hears.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Heard {
    /// It begins.
    Start {
        /// Its number and its life.
        node: u32,
        /// See `node`.
        incarnation: u64,
        /// For its dice.
        seed: u64,
        /// When, by its own clock.
        at_ns: u64,
    },
    /// A message comes.
    Message {
        /// When.
        at_ns: u64,
        /// Whence.
        from: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The time that it waited for has come.
    Timeout {
        /// When.
        at_ns: u64,
    },
}

/// Who is told what the listener hears.
type Tell = Rc<RefCell<dyn FnMut(Heard)>>;

/// A node of the farm. What it hears is told, if it is the listener.
struct Overheard {
    gossiper: Gossiper,
    tell: Option<Tell>,
}

impl Actor for Overheard {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Input<'_, Command>, effects: &mut Effects<'_, Event>) {
        if let Some(tell) = &self.tell {
            let at_ns = effects.now().as_nanos();
            let heard = match &input {
                Input::Message { from, bytes } => {
                    Heard::Message { at_ns, from: from.0, bytes: bytes.to_vec() }
                }
                _ => Heard::Timeout { at_ns },
            };
            (tell.borrow_mut())(heard);
        }
        self.gossiper.handle(input, effects);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.gossiper.next_timeout()
    }
}

/// Runs a farm of so many nodes until all know all, and half a minute more. Tells all that the last node hears; in its zone nodes
/// watch each other closely, too.
pub fn listen(seed: u64, nodes: u32, tell: impl FnMut(Heard) + 'static) -> Result<(), Failure> {
    let tell: Tell = Rc::new(RefCell::new(tell));
    let listener = nodes - 1;
    let mut world = World::new(seed, move |boot: Boot<'_>| {
        // Closely watched are those of the listener's zone alone: pings of all others cost time and are not heard there.
        let is_near = boot.node.0 / 64 == listener / 64;
        let tell = (boot.node.0 == listener).then(|| Rc::clone(&tell));
        if let Some(tell) = &tell {
            let (node, incarnation) = (boot.node.0, boot.incarnation.0);
            let start = Heard::Start { node, incarnation, seed: boot.seed, at_ns: boot.now.as_nanos() };
            (tell.borrow_mut())(start);
        }
        Overheard { gossiper: Gossiper::new(&boot, is_near), tell }
    });
    world.add_nodes(nodes);
    world.start_all();
    let all =
        |world: &World<Overheard>| all_acquainted(world.actors().map(|(_, node)| &node.gossiper), nodes);
    while !all(&world) {
        world.run_for(Duration::from_secs(1))?;
        if world.now().since(Time::ZERO) > ACQUAINTED {
            let rule = "the nodes do not come to know each other".to_owned();
            return Err(Failure { seed, at: world.now(), node: None, rule });
        }
    }
    world.run_for(AFTER)
}

/// A node by itself, which hears what another one heard and does what that did.
pub struct Hearer {
    gossiper: Gossiper,
    /// Messages that it would have sent.
    sent: u64,
}

impl Hearer {
    /// None if that is no beginning.
    pub fn start(heard: &Heard) -> Option<Self> {
        let &Heard::Start { node, incarnation, seed, at_ns } = heard else { return None };
        let me = Member { node: NodeId(node), incarnation: Incarnation(incarnation) };
        let gossiper = Gossiper::of(me, seed, Time::from_nanos(at_ns), true);
        Some(Self { gossiper, sent: 0 })
    }

    /// Takes what was heard next.
    pub fn hear(&mut self, heard: &Heard) {
        let (at_ns, input) = match heard {
            Heard::Start { .. } => return,
            Heard::Message { at_ns, from, bytes } => {
                (at_ns, lookout::Input::Message { from: NodeId(*from), bytes })
            }
            Heard::Timeout { at_ns } => (at_ns, lookout::Input::Timeout),
        };
        let now = Time::from_nanos(*at_ns);
        self.gossiper.feed(now, input);
        self.gossiper.poll(now, |_| {});
        while self.gossiper.lookout.poll_transmit().is_some() {
            self.sent += 1;
        }
    }

    /// Its state service.
    pub fn state(&self) -> &State {
        self.gossiper.state()
    }

    /// How many messages it would have sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}
