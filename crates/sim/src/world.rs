//! The world: nodes, what is under way between them, and the order in which everything happens.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use comb_types::{Dice, Incarnation, NodeId, Time};

use crate::actor::{Actor, Boot, Effects, Input};
use crate::checker::{Checker, Failure};
use crate::clock::Clock;
use crate::disk::{Disk, PendingSync};
use crate::fault::Fault;
use crate::log::Line;
use crate::network::{Fate, Network};
use crate::schedule::Schedule;
use crate::trace::{TraceHash, Traffic};
use crate::truth::{NodeTruth, Truth};

/// Messages that wait for a node that stands still. What comes then is lost, as it is when a socket's buffer is full.
const MOST_WAITING: usize = 4096;

type Message = Rc<[u8]>;
type Watch = Box<dyn FnMut(&Line)>;
type Program<A> = Box<dyn FnMut(Boot<'_>) -> A>;

/// Something that will happen.
#[derive(Debug)]
enum Happening<C> {
    /// An input comes to a node.
    Input {
        node: NodeId,
        arrival: Arrival<C>,
    },
    /// A node's timeout may be due.
    Timer(NodeId),
    /// A node that stood still, or was busy, goes on.
    Ready(NodeId),
    /// A stuttering node stands still.
    Stand(NodeId),
    /// A pause is over, unless a longer one has come.
    Resume(NodeId),
    Fault(Fault),
}

#[derive(Debug)]
enum Arrival<C> {
    Message {
        from: NodeId,
        message: Message,
    },
    Command(C),
    /// A timeout was due while the node stood still.
    Timeout,
    /// In the life that asked for it.
    Synced {
        incarnation: Incarnation,
        sync: PendingSync,
    },
}

#[derive(Debug)]
struct Node<A: Actor> {
    /// None while it is down.
    actor: Option<A>,
    clock: Clock,
    disk: Disk,
    /// The earliest timer that is in the schedule.
    timer: Option<Time>,
    /// It handles nothing before.
    free_at: Time,
    waiting: VecDeque<Arrival<A::Command>>,
    each_input: Duration,
    stutter: Option<(Duration, Duration)>,
    traffic: Traffic,
}

/// Nodes that run one program, and everything between them.
pub struct World<A: Actor> {
    seed: u64,
    now: Time,
    dice: Dice,
    program: Program<A>,
    nodes: Vec<Node<A>>,
    truth: Vec<NodeTruth>,
    network: Network,
    held: Vec<(NodeId, NodeId, Message)>,
    schedule: Schedule<Happening<A::Command>>,
    checkers: Vec<Box<dyn Checker<A>>>,
    hash: TraceHash,
    watch: Option<Watch>,
    steps: u64,
    /// Of the node that handles an input; here only so that they are not made anew for every input.
    sends: Vec<(NodeId, Vec<u8>)>,
    events: Vec<A::Event>,
}

impl<A: Actor> World<A> {
    /// An empty world. `program` makes the actor of a node that starts.
    pub fn new(seed: u64, program: impl FnMut(Boot<'_>) -> A + 'static) -> Self {
        Self {
            seed,
            now: Time::ZERO,
            dice: Dice::new(seed),
            program: Box::new(program),
            nodes: Vec::new(),
            truth: Vec::new(),
            network: Network::default(),
            held: Vec::new(),
            schedule: Schedule::default(),
            checkers: Vec::new(),
            hash: TraceHash::default(),
            watch: None,
            steps: 0,
            sends: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Adds so many nodes, which are down. Their numbers follow those that there are. Start them by [`World::start`] or
    /// [`World::start_all`].
    pub fn add_nodes(&mut self, count: u32) {
        for _ in 0..count {
            // Clocks of different nodes have nothing to do with each other.
            let local = Time::from_millis(self.dice.below(1_000_000).into());
            self.nodes.push(Node {
                actor: None,
                clock: Clock::starting_at(local),
                disk: Disk::new(self.dice.fork()),
                timer: None,
                free_at: self.now,
                waiting: VecDeque::new(),
                each_input: Duration::ZERO,
                stutter: None,
                traffic: Traffic::default(),
            });
            self.truth.push(NodeTruth {
                is_up: false,
                incarnation: Incarnation(0),
                since: self.now,
                is_paused: false,
            });
        }
    }

    /// Starts a node now.
    pub fn start(&mut self, node: NodeId) {
        self.at(self.now, Fault::Start(node));
    }

    /// Starts all nodes that are down, within a second.
    pub fn start_all(&mut self) {
        for node in (0..).map(NodeId).take(self.nodes.len()) {
            let when = self.dice.between(Duration::ZERO..Duration::from_secs(1));
            self.at(self.now.saturating_add(when), Fault::Start(node));
        }
    }

    /// Lets something go wrong at a time.
    pub fn at(&mut self, time: Time, fault: Fault) {
        self.schedule.push(time.max(self.now), Happening::Fault(fault));
    }

    /// Lets everything of a weather go wrong.
    pub fn schedule(&mut self, faults: impl IntoIterator<Item = (Time, Fault)>) {
        faults.into_iter().for_each(|(time, fault)| self.at(time, fault));
    }

    /// Tells a node something at a time. A node that is down does not hear it.
    pub fn command_at(&mut self, time: Time, node: NodeId, command: A::Command) {
        let arrival = Arrival::Command(command);
        self.schedule.push(time.max(self.now), Happening::Input { node, arrival });
    }

    /// Tells a node something now.
    pub fn command(&mut self, node: NodeId, command: A::Command) {
        self.command_at(self.now, node, command);
    }

    /// Adds a checker, which sees what is told from now on.
    pub fn check(&mut self, checker: impl Checker<A> + 'static) {
        self.checkers.push(Box::new(checker));
    }

    /// Hands over every line of the log from now on.
    pub fn watch(&mut self, watch: impl FnMut(&Line) + 'static) {
        self.watch = Some(Box::new(watch));
    }

    /// The network, to be set up.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Dice for what a scenario rolls itself. Part of the run: another roll makes another run.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What is so.
    pub fn truth(&self) -> Truth<'_> {
        Truth { now: self.now, nodes: &self.truth, network: &self.network }
    }

    /// The actor of a node, unless that is down.
    pub fn actor(&self, node: NodeId) -> Option<&A> {
        self.nodes[node.0 as usize].actor.as_ref()
    }

    /// The actors of all nodes that are up.
    pub fn actors(&self) -> impl Iterator<Item = (NodeId, &A)> {
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        nodes.filter_map(|(number, node)| Some((number, node.actor.as_ref()?)))
    }

    /// What a node has sent and received in all its lives.
    pub fn traffic(&self, node: NodeId) -> Traffic {
        self.nodes[node.0 as usize].traffic
    }

    /// A number that two runs share if they did the same.
    pub fn trace_hash(&self) -> u64 {
        self.hash.value()
    }

    /// Inputs handled so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs until nothing is left to happen before `time`.
    pub fn run_until(&mut self, time: Time) -> Result<(), Failure> {
        while self.schedule.next_time().is_some_and(|next| next <= time) {
            self.step()?;
        }
        self.now = self.now.max(time);
        Ok(())
    }

    /// Runs for so long.
    pub fn run_for(&mut self, span: Duration) -> Result<(), Failure> {
        self.run_until(self.now.saturating_add(span))
    }

    /// Runs until something is so, and says whether it came to be before `limit` was over.
    pub fn run_while_not(
        &mut self,
        limit: Duration,
        mut so: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Failure> {
        let end = self.now.saturating_add(limit);
        loop {
            if so(self) {
                return Ok(true);
            }
            if self.schedule.next_time().is_none_or(|next| next > end) {
                self.now = self.now.max(end);
                return Ok(false);
            }
            self.step()?;
        }
    }

    /// Asks the checkers whether all that had to happen has.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.ask(None, |checker, truth| checker.end(truth))
    }

    /// One thing happens.
    fn step(&mut self) -> Result<(), Failure> {
        let Some((at, happening)) = self.schedule.pop() else { return Ok(()) };
        self.now = at;
        match happening {
            Happening::Input { node, arrival } => self.arrive(node, arrival),
            Happening::Timer(node) => self.timer(node),
            Happening::Ready(node) => self.ready(node),
            Happening::Stand(node) => {
                self.stand(node);
                Ok(())
            }
            Happening::Resume(node) => {
                self.truth[node.0 as usize].is_paused = self.now < self.nodes[node.0 as usize].free_at;
                Ok(())
            }
            Happening::Fault(fault) => self.fault(fault),
        }
    }

    fn arrive(&mut self, node: NodeId, arrival: Arrival<A::Command>) -> Result<(), Failure> {
        let now = self.now;
        let there = self.node(node);
        if there.actor.is_none() {
            if let Arrival::Message { .. } = arrival {
                there.traffic.lost += 1;
            }
            return Ok(());
        }
        if now >= there.free_at && there.waiting.is_empty() {
            return self.handle(node, arrival);
        }
        if there.waiting.len() == MOST_WAITING && matches!(arrival, Arrival::Message { .. }) {
            there.traffic.lost += 1;
            return Ok(());
        }
        there.waiting.push_back(arrival);
        if there.waiting.len() == 1 {
            let free_at = there.free_at;
            self.schedule.push(free_at, Happening::Ready(node));
        }
        Ok(())
    }

    /// A node that may go on handles what waits for it.
    fn ready(&mut self, node: NodeId) -> Result<(), Failure> {
        loop {
            let now = self.now;
            let there = self.node(node);
            if there.waiting.is_empty() {
                return Ok(());
            }
            if now < there.free_at {
                let free_at = there.free_at;
                self.schedule.push(free_at, Happening::Ready(node));
                return Ok(());
            }
            if let Some(arrival) = there.waiting.pop_front() {
                self.handle(node, arrival)?;
            }
        }
    }

    fn timer(&mut self, node: NodeId) -> Result<(), Failure> {
        let now = self.now;
        let there = self.node(node);
        if there.timer != Some(now) {
            return Ok(());
        }
        there.timer = None;
        self.arrive(node, Arrival::Timeout)
    }

    /// A timeout was due. It may no longer be: the node may have handled something else since, or its clock jumped.
    fn timeout(&mut self, node: NodeId) -> Result<(), Failure> {
        let now = self.now;
        let there = self.node(node);
        let wanted = there.actor.as_ref().and_then(Actor::next_timeout);
        let is_due = wanted.is_some_and(|wanted| there.clock.reaches(wanted, now) <= now);
        if !is_due {
            self.follow_timeout(node);
            return Ok(());
        }
        self.hash.word(1);
        self.input(node, Input::Timeout)
    }

    fn handle(&mut self, node: NodeId, arrival: Arrival<A::Command>) -> Result<(), Failure> {
        match arrival {
            Arrival::Message { from, message } => {
                self.node(node).traffic.receive(message.len());
                self.hash.word(2 | u64::from(from.0) << 8);
                self.hash.bytes(&message);
                if self.watch.is_some() {
                    self.log(Some(node), format!("<- {}: {}", from.0, A::describe(&message)));
                }
                self.input(node, Input::Message { from, bytes: &message })
            }
            Arrival::Command(command) => {
                self.hash.word(3);
                self.input(node, Input::Command(command))
            }
            Arrival::Timeout => self.timeout(node),
            Arrival::Synced { incarnation, sync } => {
                if self.truth[node.0 as usize].incarnation != incarnation {
                    return Ok(());
                }
                self.hash.word(4);
                self.node(node).disk.synced(sync);
                self.input(node, Input::Synced { ticket: sync.ticket, outcome: Ok(()) })
            }
        }
    }

    /// Lets a node that is up and free handle one input, and does what it wants done.
    fn input(&mut self, node: NodeId, input: Input<'_, A::Command>) -> Result<(), Failure> {
        self.steps += 1;
        self.hash.time(self.now);
        self.hash.word(node.0.into());
        let there = &mut self.nodes[node.0 as usize];
        there.free_at = self.now.saturating_add(there.each_input);
        let Some(actor) = &mut there.actor else { return Ok(()) };
        let mut effects = Effects {
            now: there.clock.shows(self.now),
            disk: &mut there.disk,
            sends: &mut self.sends,
            events: &mut self.events,
            halted: false,
        };
        actor.handle(input, &mut effects);
        let halted = effects.halted;
        self.send_all(node);
        self.sync_all(node);
        let told = self.tell_all(node);
        if halted {
            self.log(Some(node), "halts");
            self.stop(node);
        } else {
            self.follow_timeout(node);
        }
        told
    }

    fn send_all(&mut self, from: NodeId) {
        let mut sends = std::mem::take(&mut self.sends);
        for (to, message) in sends.drain(..) {
            self.node(from).traffic.send(message.len());
            if to.0 as usize >= self.nodes.len() {
                self.node(from).traffic.lost += 1;
                continue;
            }
            self.transmit(from, to, message.into());
        }
        self.sends = sends;
    }

    fn transmit(&mut self, from: NodeId, to: NodeId, mut message: Message) {
        match self.network.fate(from, to, message.len(), self.now, &mut self.dice) {
            Fate::Arrives { at, garbled } => {
                if let Some((byte, mask)) = garbled {
                    let mut bytes = message.to_vec();
                    bytes[byte] ^= mask;
                    message = bytes.into();
                }
                for at in at.into_iter().flatten() {
                    let arrival = Arrival::Message { from, message: message.clone() };
                    self.schedule.push(at, Happening::Input { node: to, arrival });
                }
            }
            Fate::Held => self.held.push((from, to, message)),
            Fate::Lost => {
                self.node(from).traffic.lost += 1;
                if self.watch.is_some() {
                    self.log(Some(from), format!("-> {}: lost: {}", to.0, A::describe(&message)));
                }
            }
            Fate::TooLong => {
                self.node(from).traffic.too_long += 1;
                self.log(Some(from), format!("-> {}: too long: {} bytes", to.0, message.len()));
            }
        }
    }

    fn sync_all(&mut self, node: NodeId) {
        let incarnation = self.truth[node.0 as usize].incarnation;
        let there = self.node(node);
        let time = there.disk.conditions.sync_time;
        for sync in there.disk.take_syncs() {
            let arrival = Arrival::Synced { incarnation, sync };
            self.schedule.push(self.now.saturating_add(time), Happening::Input { node, arrival });
        }
    }

    fn tell_all(&mut self, node: NodeId) -> Result<(), Failure> {
        let mut events = std::mem::take(&mut self.events);
        let mut outcome = Ok(());
        for event in events.drain(..) {
            if self.watch.is_some() {
                self.log(Some(node), format!("{event:?}"));
            }
            if outcome.is_ok() {
                outcome = self.ask(Some(node), |checker, truth| checker.saw(truth, node, &event));
            }
        }
        self.events = events;
        outcome
    }

    fn ask(
        &mut self,
        node: Option<NodeId>,
        mut question: impl FnMut(&mut dyn Checker<A>, &Truth<'_>) -> Result<(), String>,
    ) -> Result<(), Failure> {
        let truth = Truth { now: self.now, nodes: &self.truth, network: &self.network };
        for checker in &mut self.checkers {
            if let Err(rule) = question(checker.as_mut(), &truth) {
                let failure = Failure { seed: self.seed, at: self.now, node, rule };
                self.log(node, format!("RULE BROKEN: {}", failure.rule));
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Sees to it that the node is called when it wants to be.
    fn follow_timeout(&mut self, node: NodeId) {
        let now = self.now;
        let there = self.node(node);
        let Some(wanted) = there.actor.as_ref().and_then(Actor::next_timeout) else { return };
        let due = there.clock.reaches(wanted, now);
        if there.timer.is_none_or(|set| due < set) {
            self.set_timer(node, due);
        }
    }

    fn set_timer(&mut self, node: NodeId, at: Time) {
        self.node(node).timer = Some(at);
        self.schedule.push(at, Happening::Timer(node));
    }

    fn fault(&mut self, fault: Fault) -> Result<(), Failure> {
        if self.watch.is_some() {
            self.log(None, format!("{fault:?}"));
        }
        self.ask(None, |checker, truth| checker.fault(truth, &fault))?;
        let now = self.now;
        match fault {
            Fault::Start(node) => return self.boot(node),
            Fault::Crash(node) => self.stop(node),
            Fault::Pause { node, lasting } => self.pause(node, lasting),
            Fault::Stutter { node, runs, stands } => {
                self.node(node).stutter = Some((runs, stands));
                self.schedule.push(now.saturating_add(runs), Happening::Stand(node));
            }
            Fault::Slow { node, each_input } => self.node(node).each_input = each_input,
            Fault::Steady(node) => {
                let there = self.node(node);
                there.stutter = None;
                there.each_input = Duration::ZERO;
                there.free_at = now;
                self.truth[node.0 as usize].is_paused = false;
                self.schedule.push(now, Happening::Ready(node));
            }
            Fault::Partition(sides) => self.network.partition(&sides),
            Fault::Cut { from, to } => self.network.cut(from, to),
            Fault::Flap { from, to, up, down } => self.network.flap(from, to, up, down, now),
            Fault::Clog(node) => self.network.clog(node),
            Fault::Unclog(node) => {
                self.network.unclog(node);
                self.release();
            }
            Fault::Heal => {
                self.network.heal();
                self.release();
            }
            Fault::Links(link) => self.network.default = link,
            Fault::Drift { node, ppm } => {
                self.node(node).clock.drift(now, ppm);
                self.reset_timer(node);
            }
            Fault::ClockJump { node, forwards, by } => {
                self.node(node).clock.jump(now, forwards, by);
                self.reset_timer(node);
            }
            Fault::Disk { node, conditions } => self.node(node).disk.conditions = conditions,
        }
        Ok(())
    }

    fn boot(&mut self, node: NodeId) -> Result<(), Failure> {
        let now = self.now;
        let truth = &mut self.truth[node.0 as usize];
        if truth.is_up {
            return Ok(());
        }
        let incarnation = Incarnation(truth.incarnation.0 + 1);
        *truth = NodeTruth { is_up: true, incarnation, since: now, is_paused: false };
        let seed = self.dice.roll();
        let there = &mut self.nodes[node.0 as usize];
        let local = there.clock.shows(now);
        there.actor =
            Some((self.program)(Boot { node, incarnation, now: local, seed, disk: &mut there.disk }));
        there.free_at = now;
        self.hash.word(5);
        self.input(node, Input::Started)
    }

    /// Ends the life of a node.
    fn stop(&mut self, node: NodeId) {
        let now = self.now;
        let truth = &mut self.truth[node.0 as usize];
        if !truth.is_up {
            return;
        }
        *truth = NodeTruth { is_up: false, since: now, is_paused: false, ..*truth };
        let there = self.node(node);
        there.actor = None;
        there.waiting.clear();
        there.timer = None;
        there.disk.crash();
        self.hash.word(6);
        self.hash.word(node.0.into());
    }

    fn pause(&mut self, node: NodeId, lasting: Duration) {
        let until = self.now.saturating_add(lasting);
        let there = self.node(node);
        if there.actor.is_some() && until > there.free_at {
            there.free_at = until;
            self.truth[node.0 as usize].is_paused = true;
            self.schedule.push(until, Happening::Resume(node));
        }
    }

    fn stand(&mut self, node: NodeId) {
        if let Some((runs, stands)) = self.node(node).stutter {
            self.pause(node, stands);
            self.schedule.push(self.now.saturating_add(runs + stands), Happening::Stand(node));
        }
    }

    fn reset_timer(&mut self, node: NodeId) {
        self.node(node).timer = None;
        self.follow_timeout(node);
    }

    /// Sends what was held for nodes that are clogged no more.
    fn release(&mut self) {
        let network = &self.network;
        let freed: Vec<_> = self.held.extract_if(.., |(from, to, _)| !network.holds(*from, *to)).collect();
        for (from, to, message) in freed {
            self.transmit(from, to, message);
        }
    }

    fn node(&mut self, node: NodeId) -> &mut Node<A> {
        &mut self.nodes[node.0 as usize]
    }

    fn log(&mut self, node: Option<NodeId>, what: impl Into<String>) {
        if let Some(watch) = &mut self.watch {
            watch(&Line { at: self.now, node, what: what.into() });
        }
    }
}

/// A run that panics says how to run it again.
impl<A: Actor> Drop for World<A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("The simulated run with seed {} panicked at {:?}.", self.seed, self.now);
        }
    }
}
