//! One member lies, at random and without end, while the others agree, lose messages, and now and then suspect each other.
//!
//! What it may not be asked to be: the coordinator of a ballot, the sequencer, a holder, or a sponsor. Those are believed. `ALGORITHM.md`
//! says so.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Actor, Boot, Checker, Dice, Effects, Failure, Input as Happening, Truth, World};
use comb_types::{Incarnation, NodeId, Time};

use super::judge::{Judge, Seen};
use super::member::{Command, Event, GroupMember, Words};
use crate::detect::{Condition, Kind, buddy};
use crate::order::{Level, Order};
use crate::stack::Stack;
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{Protocol, protocol};
use crate::{join, order, regroup, snapshot, state};

const BUSY: Duration = Duration::from_secs(8);
const CALM: Duration = Duration::from_secs(30);

/// By then all have heard of all, by gossip. Of a node that nobody knows, whatever is said first is believed.
const ACQUAINTED: Duration = Duration::from_secs(3);

/// Lies for each message that it truly sends or gets.
const LIES: u32 = 2;

struct Node {
    member: GroupMember,
    liar: Option<Dice>,
    nodes: u32,
    last_heard: Vec<u8>,
    began: Time,
}

impl Node {
    fn boot(boot: &mut Boot<'_>, first: &View) -> Self {
        let nodes = u32::try_from(first.members.len()).expect("few");
        let is_liar = boot.node.0 == nodes - 1;
        let liar = is_liar.then(|| Dice::new(boot.seed));
        Self {
            member: GroupMember::boot(boot, first, false, Words::default()),
            liar,
            nodes,
            last_heard: Vec::new(),
            began: boot.now,
        }
    }

    fn lie(&mut self, effects: &mut Effects<'_, Event>) {
        let Some(dice) = &mut self.liar else { return };
        let stack = self.member.stack();
        let (Some(order), Some(regroup)) = (stack.order(), stack.regroup()) else { return };
        let me = stack.me();
        for _ in 0..LIES {
            let knows_all = effects.now().since(self.began) > ACQUAINTED;
            let bytes = match dice.below(if knows_all { 12 } else { 8 }) {
                0 | 1 => regroup::lie(dice, me, regroup.view().epoch, self.nodes),
                2 | 3 => order::lie(dice, order.view().epoch, order.held()),
                4 => join::lie(dice, me, self.nodes),
                5 => snapshot::lie(dice),
                8 | 9 => state::lie(dice, me, self.nodes),
                10 => buddy::lie(dice, me, self.nodes),
                6 => mutated(dice, &self.last_heard),
                _ => (0..dice.below(3000)).map(|_| dice.roll().to_le_bytes()[0]).collect(),
            };
            let to = NodeId(dice.below(self.nodes - 1));
            effects.send(to, bytes);
        }
    }
}

/// A true message of which one bit was turned over.
fn mutated(dice: &mut Dice, message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    if let Some(last) = bytes.len().checked_sub(1) {
        bytes[dice.index(last + 1)] ^= 1 << dice.below(8);
    }
    bytes
}

impl Actor for Node {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Happening<'_, Command>, effects: &mut Effects<'_, Event>) {
        if self.liar.is_some()
            && let Happening::Message { bytes, .. } = &input
            && protocol(NodeId(0), bytes) == Ok(Protocol::Order)
        {
            // Another's words, which it tells as its own.
            self.last_heard = bytes.to_vec();
        }
        self.member.handle(input, effects);
        self.lie(effects);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.member.next_timeout()
    }

    fn describe(message: &[u8]) -> String {
        Stack::describe(NodeId(u32::MAX), message)
    }
}

/// The judge of all runs, to whom the liar is no witness, and by whom nobody else is named.
struct Healthy {
    judge: Judge,
    liar: NodeId,
}

impl Checker<Node> for Healthy {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        match event {
            _ if node == self.liar => Ok(()),
            Event::Refused { from, .. } if *from == self.liar => Ok(()),
            // Of a node that nobody knows, what the first one says is believed.
            Event::Condition(change) if change.subject.node > self.liar => Ok(()),
            Event::Excluded => Err("a healthy member leaves".to_owned()),
            _ => Checker::<GroupMember>::saw(&mut self.judge, truth, node, event),
        }
    }
}

fn run(seed: u64, nodes: u32) -> Result<(), Failure> {
    let liar = NodeId(nodes - 1);
    let founders = (0..nodes).map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) });
    let first = View { epoch: ViewEpoch(1), members: founders.collect(), tie_breaker: NodeId(0) };
    let mut world = World::new(seed, move |mut boot| Node::boot(&mut boot, &first));
    let mut dice = world.dice().fork();
    world.add_nodes(nodes);
    (0..nodes).for_each(|node| world.start(NodeId(node)));
    let seen = Rc::<RefCell<Seen>>::default();
    seen.borrow_mut().may_doubt = true;
    world.check(Healthy { judge: Judge(seen.clone()), liar });
    world.network_mut().default.lost_per_million = 10_000;
    let end = Time::ZERO.saturating_add(BUSY);
    let mut at = Time::from_millis(100);
    while at < end {
        at = at.saturating_add(dice.between(Duration::ZERO..Duration::from_millis(20)));
        let node = NodeId(dice.below(nodes - 1));
        let level = [Level::Ordered, Level::Majority][dice.index(2)];
        let body = dice.roll().to_le_bytes().to_vec();
        world.command_at(at, node, Command::Submit { level, body });
        if dice.below(50) == 0 {
            let (by, of) = (NodeId(dice.below(nodes - 1)), NodeId(dice.below(nodes)));
            world.command_at(at, by, Command::Noticed(of, Kind::IcmpUnreachable));
        }
    }
    world.run_until(end)?;
    let is_over = |world: &World<Node>| {
        let delivered = seen.borrow().delivered();
        world.actors().filter(|(node, _)| *node != liar).all(|(_, node)| {
            let stack = node.member.stack();
            let thinks_well = |of: u32| {
                let life = Member { node: NodeId(of), incarnation: Incarnation(1) };
                stack.condition(life) == Condition::Alive && stack.state().member(NodeId(of)) == Some(life)
            };
            let is_done = |order: &Order| order.outstanding() == 0 && order.delivered() == delivered;
            stack.order().is_some_and(is_done) && (0..nodes - 1).all(thinks_well)
        })
    };
    assert!(
        world.run_while_not(CALM, is_over)?,
        "seed {seed}: the others do not come to an end, or think ill of each other"
    );
    let healthy = || world.actors().filter(|(node, _)| *node != liar);
    let named: BTreeSet<_> = healthy().flat_map(|(_, node)| node.member.stack().refused()).collect();
    assert!(!named.is_empty() && named.iter().all(|(node, count)| *node == liar && *count > 10), "{named:?}");
    for (_, node) in healthy() {
        let view = node.member.stack().view().expect("it is in one");
        assert!((0..nodes - 1).all(|node| view.contains(NodeId(node))), "seed {seed}: {view:?}");
    }
    Ok(())
}

#[test]
fn sim_a_liar_is_named_and_makes_nobody_leave() {
    for seed in 0..40 {
        for nodes in [5, 7] {
            if let Err(failure) = run(seed, nodes) {
                panic!("of {nodes}: {failure}");
            }
        }
    }
}
