//! Who sees whom as down, beside what is so.
//!
//! **A false failure** is counted whenever one node, up and not stuttering, says of another that it is down, having held it
//! for up before, while that other one runs and does not stutter: one for each observer, each subject and each time. A node
//! that all of `n - 1` others declare down once is `n - 1` false failures, and so is a single one that a single other
//! declares down `n - 1` times.

use std::cell::RefCell;
use std::rc::Rc;

use comb_sim::{Actor, Checker, Fault, NodeId, Time, Truth};

use crate::member::View;

/// What was counted since [`Ledger::begin`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub false_failures: u64,
    /// Of nodes that run well, said by ones that stutter.
    pub false_failures_by_stuttering: u64,
    /// Of nodes that stutter, said by any. Whether that is false is a matter of taste: they do answer, late.
    pub failures_of_stuttering: u64,
}

pub struct Ledger {
    nodes: usize,
    /// Whether the observer (row) holds the subject (column) for up.
    up: Vec<bool>,
    /// Whether it ever did.
    known: Vec<bool>,
    stuttering: Vec<bool>,
    /// How many hold this node for up.
    holders: Vec<usize>,
    pairs_up: usize,
    counts: Counts,
    was_failed: Vec<bool>,
    /// Pairs of healthy nodes, one of which wrongly holds the other for down.
    wrong_pairs: usize,
    wrong_pair_seconds: f64,
    wrong_since: Time,
    began: Time,
    last_down: Vec<Option<Time>>,
    first_down: Vec<Option<Time>>,
}

impl Ledger {
    pub fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Self {
            nodes,
            up: vec![false; nodes * nodes],
            known: vec![false; nodes * nodes],
            stuttering: vec![false; nodes],
            holders: vec![0; nodes],
            pairs_up: 0,
            counts: Counts::default(),
            was_failed: vec![false; nodes],
            wrong_pairs: 0,
            wrong_pair_seconds: 0.0,
            wrong_since: Time::ZERO,
            began: Time::ZERO,
            last_down: vec![None; nodes],
            first_down: vec![None; nodes],
        }
    }

    /// Counts anew from now on.
    pub fn begin(&mut self, now: Time) {
        self.counts = Counts::default();
        self.was_failed.fill(false);
        self.wrong_pair_seconds = 0.0;
        self.wrong_since = now;
        self.began = now;
        self.last_down.fill(None);
        self.first_down.fill(None);
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Healthy nodes that were declared down by a healthy one at least once.
    pub fn falsely_failed_nodes(&self) -> usize {
        self.was_failed.iter().filter(|&&failed| failed).count()
    }

    /// How much of the time a healthy node held another for down, in the mean of all pairs of healthy nodes.
    pub fn wrongly_down_share(&self, now: Time) -> f64 {
        let healthy = self.stuttering.iter().filter(|&&stutters| !stutters).count();
        let pairs = (healthy * healthy.saturating_sub(1)).max(1);
        let wrong =
            self.wrong_pair_seconds + self.wrong_pairs as f64 * now.since(self.wrong_since).as_secs_f64();
        wrong / (pairs as f64 * now.since(self.began).as_secs_f64().max(1e-9))
    }

    /// Of how many pairs one does not hold the other for up.
    pub fn unknown_pairs(&self) -> usize {
        self.nodes * (self.nodes - 1) - self.pairs_up
    }

    pub fn is_complete(&self) -> bool {
        self.unknown_pairs() == 0
    }

    /// How many live nodes hold this one for up.
    pub fn holders(&self, node: NodeId) -> usize {
        self.holders[node.0 as usize]
    }

    /// Whom this node holds for up.
    pub fn held_up_by(&self, node: NodeId) -> Vec<NodeId> {
        let row = node.0 as usize * self.nodes..(node.0 as usize + 1) * self.nodes;
        (0..).map(NodeId).zip(&self.up[row]).filter(|(_, up)| **up).map(|(subject, _)| subject).collect()
    }

    /// When the first and the last node so far said that this one is down.
    pub fn said_down(&self, node: NodeId) -> (Option<Time>, Option<Time>) {
        (self.first_down[node.0 as usize], self.last_down[node.0 as usize])
    }

    fn is_wrong(&self, truth: &Truth<'_>, observer: usize, subject: usize) -> bool {
        let pair = observer * self.nodes + subject;
        observer != subject
            && self.known[pair]
            && !self.up[pair]
            && !self.stuttering[observer]
            && !self.stuttering[subject]
            && truth.nodes[observer].is_up
            && truth.nodes[subject].is_up
    }

    fn note_wrong(&mut self, now: Time, more: usize, fewer: usize) {
        self.wrong_pair_seconds += self.wrong_pairs as f64 * now.since(self.wrong_since).as_secs_f64();
        self.wrong_since = now;
        self.wrong_pairs = self.wrong_pairs + more - fewer;
    }

    fn says(&mut self, truth: &Truth<'_>, observer: usize, subject: usize, is_up: bool) {
        let pair = observer * self.nodes + subject;
        if observer == subject || self.up[pair] == is_up {
            return;
        }
        let was_wrong = self.is_wrong(truth, observer, subject);
        self.up[pair] = is_up;
        self.known[pair] = true;
        let is_wrong = self.is_wrong(truth, observer, subject);
        self.note_wrong(truth.now, usize::from(is_wrong && !was_wrong), usize::from(was_wrong && !is_wrong));
        if is_up {
            self.holders[subject] += 1;
            self.pairs_up += 1;
            return;
        }
        self.holders[subject] -= 1;
        self.pairs_up -= 1;
        self.first_down[subject].get_or_insert(truth.now);
        self.last_down[subject] = Some(truth.now);
        if truth.nodes[subject].is_up {
            self.count(observer, subject);
        }
    }

    fn count(&mut self, observer: usize, subject: usize) {
        let counts = &mut self.counts;
        match (self.stuttering[observer], self.stuttering[subject]) {
            (_, true) => counts.failures_of_stuttering += 1,
            (true, false) => counts.false_failures_by_stuttering += 1,
            (false, false) => {
                counts.false_failures += 1;
                self.was_failed[subject] = true;
            }
        }
    }

    /// What this node and others say of each other was a mistake until now, and is none from now on.
    fn forgives(&mut self, truth: &Truth<'_>, node: usize) {
        let wrong = (0..self.nodes)
            .flat_map(|other| [(other, node), (node, other)])
            .filter(|&(observer, subject)| self.is_wrong(truth, observer, subject))
            .count();
        self.note_wrong(truth.now, 0, wrong);
    }

    /// A node that crashes holds nobody for up any more.
    fn crashes(&mut self, truth: &Truth<'_>, node: usize) {
        self.forgives(truth, node);
        self.first_down[node] = None;
        self.last_down[node] = None;
        for subject in 0..self.nodes {
            let pair = node * self.nodes + subject;
            if std::mem::take(&mut self.up[pair]) {
                self.holders[subject] -= 1;
                self.pairs_up -= 1;
            }
            self.known[pair] = false;
        }
    }
}

/// A ledger that a world keeps, and its scenario reads.
#[derive(Clone)]
pub struct SharedLedger(pub Rc<RefCell<Ledger>>);

impl<A: Actor<Event = View>> Checker<A> for SharedLedger {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &View) -> Result<(), String> {
        let (subject, is_up) = match event {
            View::Up(subject) => (subject, true),
            View::Down(subject) => (subject, false),
        };
        self.0.borrow_mut().says(truth, node.0 as usize, subject.0 as usize, is_up);
        Ok(())
    }

    fn fault(&mut self, truth: &Truth<'_>, fault: &Fault) -> Result<(), String> {
        let mut ledger = self.0.borrow_mut();
        match fault {
            Fault::Crash(node) => ledger.crashes(truth, node.0 as usize),
            Fault::Stutter { node, .. } => {
                ledger.forgives(truth, node.0 as usize);
                ledger.stuttering[node.0 as usize] = true;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_sim::{Boot, Effects, Input, World};
    use std::time::Duration;

    /// Says what it is told to.
    struct Parrot;

    impl Actor for Parrot {
        type Command = View;
        type Event = View;

        fn handle(&mut self, input: Input<'_, View>, effects: &mut Effects<'_, View>) {
            if let Input::Command(view) = input {
                effects.tell(view);
            }
        }

        fn next_timeout(&self) -> Option<Time> {
            None
        }
    }

    /// Three nodes that know each other at one second.
    fn three() -> (World<Parrot>, SharedLedger) {
        let mut world = World::new(1, |_: Boot<'_>| Parrot);
        let ledger = SharedLedger(Rc::new(RefCell::new(Ledger::new(3))));
        world.check(ledger.clone());
        world.add_nodes(3);
        world.start_all();
        for pair in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
            world.command_at(Time::from_millis(1000), NodeId(pair.0), View::Up(NodeId(pair.1)));
        }
        world.run_until(Time::from_millis(1000)).unwrap();
        assert!(ledger.0.borrow().is_complete());
        ledger.0.borrow_mut().begin(world.now());
        (world, ledger)
    }

    #[test]
    fn a_false_failure_counts_for_each_observer_and_each_time_and_for_as_long_as_it_lasts() {
        let (mut world, ledger) = three();
        let at = |seconds: u64| Time::from_millis(seconds * 1000);
        world.command_at(at(2), NodeId(0), View::Down(NodeId(1)));
        world.command_at(at(3), NodeId(0), View::Down(NodeId(1)));
        world.command_at(at(4), NodeId(0), View::Up(NodeId(1)));
        world.command_at(at(5), NodeId(0), View::Down(NodeId(1)));
        world.command_at(at(5), NodeId(2), View::Down(NodeId(1)));
        world.command_at(at(6), NodeId(0), View::Up(NodeId(1)));
        world.run_until(at(11)).unwrap();
        let ledger = ledger.0.borrow();
        assert_eq!(ledger.counts().false_failures, 3, "saying it again is no new failure");
        assert_eq!(ledger.falsely_failed_nodes(), 1);
        // Two seconds, one and six, of ten seconds of six pairs.
        assert!((ledger.wrongly_down_share(world.now()) - 9.0 / 60.0).abs() < 1e-9);
        assert_eq!(ledger.held_up_by(NodeId(2)), [NodeId(0)]);
    }

    #[test]
    fn what_is_said_of_the_dead_and_the_stuttering_is_not_false() {
        let (mut world, ledger) = three();
        let half = Duration::from_millis(10);
        world.at(world.now(), Fault::Stutter { node: NodeId(2), runs: half, stands: half });
        world.command_at(Time::from_millis(2000), NodeId(0), View::Down(NodeId(2)));
        world.command_at(Time::from_millis(2000), NodeId(2), View::Down(NodeId(1)));
        world.at(Time::from_millis(3000), Fault::Crash(NodeId(1)));
        world.command_at(Time::from_millis(4000), NodeId(0), View::Down(NodeId(1)));
        world.run_until(Time::from_millis(5000)).unwrap();
        let ledger = ledger.0.borrow();
        let counts = ledger.counts();
        assert_eq!(
            (counts.false_failures, counts.failures_of_stuttering, counts.false_failures_by_stuttering),
            (0, 1, 1)
        );
        assert_eq!(ledger.wrongly_down_share(world.now()), 0.0);
        assert_eq!(ledger.holders(NodeId(1)), 0);
        assert_eq!(ledger.said_down(NodeId(1)).1, Some(Time::from_millis(4000)));
    }
}
