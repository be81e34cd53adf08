//! What is done to a world of one library's nodes, and what is measured.
//!
//! Everything happens in virtual time. The nodes join a perfect network within a second, through the first of them; when each
//! knows all others the network becomes what it is to be, and stays so for `SETTLE` before anything is counted.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use comb_sim::{Boot, Fault, Link, NodeId, World};

use crate::ledger::{Ledger, SharedLedger};
use crate::line::Line;
use crate::member::Member;

/// After this the scenario goes on with those who have joined, and says how many have.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
const SETTLE: Duration = Duration::from_secs(10);
/// A crash that has not been seen by all after this is reported as not seen.
const DETECTION_LIMIT: Duration = Duration::from_secs(120);
const CRASHES: u32 = 3;
/// How long a stuttering node runs, and then stands still: below the libraries' timeouts, and about as long.
const STUTTERS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];
/// The world is run in steps of this, between which the real time is looked at.
const STEP: Duration = Duration::from_secs(1);

/// One library, with one setting, in one network.
pub struct Subject<P> {
    pub line: Line,
    pub program: P,
    pub virtual_time: Duration,
    /// Real time that all of it may take; then it stops, and its lines say how far it came.
    pub deadline: Instant,
}

struct Scene<A: Member> {
    world: World<A>,
    ledger: Rc<RefCell<Ledger>>,
}

impl<A, P> Subject<P>
where
    A: Member,
    P: Fn(&Boot<'_>) -> A + Clone + 'static,
{
    pub fn crash(&self) {
        let Some(mut scene) = self.joined() else { return };
        for trial in 1..=CRASHES {
            self.one_crash(&mut scene, trial);
        }
        self.end(&scene);
    }

    fn one_crash(&self, Scene { world, ledger }: &mut Scene<A>, trial: u32) {
        let trial = f64::from(trial);
        // Not the first node: the others would have to do without the one through which they joined.
        let victim = loop {
            let victim = NodeId(1 + world.dice().below(self.line.nodes - 1));
            if world.truth().node(victim).is_up {
                break victim;
            }
        };
        let crashed = world.now();
        ledger.borrow_mut().begin(crashed);
        world.at(crashed, Fault::Crash(victim));
        let mut seen = false;
        while !seen && world.now().since(crashed) < DETECTION_LIMIT {
            if Instant::now() > self.deadline {
                return self.line.missing("detection_seconds", "real time is over", &[("trial", trial)]);
            }
            let is_seen = |_: &World<A>| ledger.borrow().holders(victim) == 0;
            // The crash itself is the first thing that happens.
            seen = world.run_while_not(STEP, is_seen).expect("the ledger breaks no rule");
        }
        let (first, last) = ledger.borrow().said_down(victim);
        let since = |time: Option<comb_sim::Time>| time.map_or(0.0, |time| time.since(crashed).as_secs_f64());
        let details = [("trial", trial), ("first_seconds", since(first))];
        if seen {
            self.line.value("detection_seconds", since(last), &details);
        } else {
            let reason = format!(
                "{} nodes hold it for up {} s later",
                ledger.borrow().holders(victim),
                DETECTION_LIMIT.as_secs()
            );
            self.line.missing("detection_seconds", &reason, &details);
        }
        world.run_for(SETTLE).expect("the ledger breaks no rule");
    }

    pub fn steady(&self) {
        let Some(mut scene) = self.joined() else { return };
        self.count(&mut scene, &[]);
        self.end(&scene);
    }

    pub fn stutter(&self) {
        for stands in STUTTERS {
            let Some(mut scene) = self.joined() else { return };
            let now = scene.world.now();
            // Not in step with each other.
            for node in (0..self.line.nodes).filter(|node| node % 2 == 1).map(NodeId) {
                let begins = now.saturating_add(scene.world.dice().between(Duration::ZERO..2 * stands));
                scene.world.at(begins, Fault::Stutter { node, runs: stands, stands });
            }
            scene.world.run_for(2 * stands).expect("the ledger breaks no rule");
            self.count(&mut scene, &[("stutter_ms", stands.as_secs_f64() * 1e3)]);
            self.end(&scene);
        }
    }

    /// A world whose nodes know each other, on the network that is asked for.
    fn joined(&self) -> Option<Scene<A>> {
        let program = self.program.clone();
        let mut world = World::new(self.line.seed, move |boot| program(&boot));
        let ledger = Rc::new(RefCell::new(Ledger::new(self.line.nodes)));
        world.check(SharedLedger(Rc::clone(&ledger)));
        world.add_nodes(self.line.nodes);
        world.start(NodeId(0));
        world.run_for(Duration::from_millis(10)).expect("the ledger breaks no rule");
        world.start_all();
        let mut complete = false;
        while !complete && world.now().as_nanos() < JOIN_LIMIT.as_nanos() as u64 {
            if Instant::now() > self.deadline {
                self.line.missing("joined_seconds", "real time is over", &[]);
                return None;
            }
            let is_complete = |_: &World<A>| ledger.borrow().is_complete();
            complete = world.run_while_not(STEP, is_complete).expect("the ledger breaks no rule");
        }
        let unknown = ledger.borrow().unknown_pairs() as f64;
        if complete {
            self.line.value("joined_seconds", world.now().as_nanos() as f64 / 1e9, &[]);
        } else {
            self.line.missing("joined_seconds", "not all know all", &[("unknown_pairs", unknown)]);
        }
        let lost_per_million = self.line.loss_percent * 10_000;
        world.at(world.now(), Fault::Links(Link { lost_per_million, ..Link::default() }));
        world.run_for(SETTLE).expect("the ledger breaks no rule");
        Some(Scene { world, ledger })
    }

    /// What was counted is worth nothing if the libraries see it otherwise, or were driven wrongly.
    fn end(&self, Scene { world, ledger }: &Scene<A>) {
        let ledger = ledger.borrow();
        for (node, actor) in world.actors() {
            let mut listed = actor.listed();
            listed.sort();
            assert_eq!(listed, ledger.held_up_by(node), "whom node {} lists as up", node.0);
        }
        let errors: u64 = world.actors().map(|(_, actor)| actor.errors()).sum();
        if errors > 0 {
            self.line.value("errors", errors as f64, &[]);
        }
    }

    /// Counts for as long as was asked, or real time allows.
    fn count(&self, Scene { world, ledger }: &mut Scene<A>, details: &[(&str, f64)]) {
        let began = world.now();
        ledger.borrow_mut().begin(began);
        let nodes = || (0..self.line.nodes).map(NodeId);
        let before: Vec<_> = nodes().map(|node| world.traffic(node)).collect();
        while world.now().since(began) < self.virtual_time && Instant::now() < self.deadline {
            world.run_for(STEP).expect("the ledger breaks no rule");
        }
        let seconds = world.now().since(began).as_secs_f64();
        let mut details = details.to_vec();
        details.push(("seconds", seconds));
        if seconds == 0.0 {
            return self.line.missing("false_failures", "real time is over", &details);
        }
        let ledger = ledger.borrow();
        let counts = ledger.counts();
        let value = |what: &str, value: f64| self.line.value(what, value, &details);
        value("false_failures", counts.false_failures as f64);
        value("falsely_failed_nodes", ledger.falsely_failed_nodes() as f64);
        value("wrongly_down_share", ledger.wrongly_down_share(world.now()));
        if details.len() > 1 {
            value("false_failures_by_stuttering", counts.false_failures_by_stuttering as f64);
            value("failures_of_stuttering", counts.failures_of_stuttering as f64);
        }
        let sent: Vec<_> = nodes().zip(&before).map(|(node, before)| (world.traffic(node), before)).collect();
        let bytes = sent.iter().map(|(now, before)| (now.sent_bytes - before.sent_bytes) as f64 / seconds);
        let messages = sent.iter().map(|(now, before)| (now.sent - before.sent) as f64 / seconds);
        let mean = |total: f64| total / f64::from(self.line.nodes);
        value("bytes_per_second_mean", mean(bytes.clone().sum()));
        value("bytes_per_second_most", bytes.fold(0.0, f64::max));
        value("messages_per_second_mean", mean(messages.sum()));
    }
}
