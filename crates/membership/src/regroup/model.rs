//! The real machine under every order of messages, loss, doubling, crashes and timeouts, as far as the bounds reach.
//!
//! A message that was sent may be delivered at any time, again and again, or never: so what is on its way only grows, and a
//! crash is nothing but silence, but for what a proof of death allows. Timers are due at all times: which one fires when is the
//! model's choice.

use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::time::{Duration, Instant};
use std::vec::Vec;

use comb_types::{NodeId, Time};
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::message::Message;
use super::tests::{first_view, member};
use super::*;
use crate::quorum::{QuorumResource, ResourceInMemory};

const AT_ONCE: Timing = Timing { resend: Duration::ZERO, activate: Duration::ZERO, patience: Duration::ZERO };

/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(120);

/// A group whose view is settled, and what may go wrong with it.
#[derive(Clone, Debug)]
struct Bounds {
    members: u32,
    /// Who suspects whom at the start; each is a start of its own.
    suspicions: &'static [&'static [(u32, u32)]],
    strength: Strength,
    timeouts: u32,
    /// Members that crash at any time; of these only, others may then get a proof.
    mortal: &'static [u32],
    /// Up to where each holds the updates.
    positions: [u64; 4],
    /// Whether to go on after the decision, into the cleanup.
    with_cleanup: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    machines: Vec<Option<Regroup>>,
    network: BTreeSet<Letter>,
    timeouts: u32,
    resource: ResourceInMemory,
    /// What any member ever took for the successor of a view.
    successors: BTreeSet<(ViewEpoch, Vec<NodeId>, NodeId, u64)>,
    has_settled: bool,
    has_accused: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Letter {
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Action {
    Deliver(Letter),
    Timeout(NodeId),
    Crash(NodeId),
    Prove { at: NodeId, whom: NodeId },
}

impl Bounds {
    fn start(&self) -> State {
        let view = first_view(self.members);
        let machines = view.members.iter().map(|&me| {
            let mut machine = Regroup::joining(me, AT_ONCE, Time::ZERO, view.clone(), 0);
            machine.stage = Stage::Settled;
            machine.resend_at = None;
            Some(machine)
        });
        State {
            machines: machines.collect(),
            network: BTreeSet::new(),
            timeouts: 0,
            resource: ResourceInMemory::default(),
            successors: BTreeSet::new(),
            has_settled: false,
            has_accused: false,
        }
    }

    fn drive(&self, state: &mut State, node: NodeId, input: Input<'_>) {
        let index = node.0 as usize;
        let Some(mut machine) = state.machines[index].take() else { return };
        state.has_accused |= machine.handle(Time::ZERO, input).is_err();
        loop {
            while let Some((to, message)) = machine.out.pop_front() {
                if self.with_cleanup || message.epoch == ViewEpoch(1) {
                    let bytes = wire::encode(Protocol::Regroup, &message);
                    state.network.insert(Letter { from: node, to, bytes });
                }
            }
            let Some(event) = machine.poll_event() else { break };
            let answer = match event {
                Event::Freeze { .. } => Input::Position(self.positions[index]),
                Event::Reach { cut, .. } => Input::Position(cut),
                Event::Acquire { epoch, .. } => {
                    Input::Acquired { epoch, granted: state.resource.try_acquire(epoch, member(node.0)) }
                }
                Event::Decided { .. } => Input::Flushed,
                Event::Settled(view) => {
                    state.has_settled |= view.epoch > ViewEpoch(1);
                    continue;
                }
                Event::Excluded { .. } | Event::Installed(_) | Event::Stuck { .. } => continue,
            };
            machine.handle(Time::ZERO, answer).expect("no peer is involved");
        }
        state.successors.extend(machine.history.iter().map(|decision| {
            let proposal = &decision.proposal;
            (proposal.view.epoch, proposal.view.nodes().collect(), proposal.view.tie_breaker, proposal.cut)
        }));
        state.machines[index] = Some(machine);
    }

    /// Looks at all states within the bounds. A bound that the time cuts short is not one.
    fn check(self) {
        let began = Instant::now();
        let checker = self
            .checker()
            .threads(2)
            .timeout(LIMIT)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let (all, depth) = (checker.unique_state_count(), checker.max_depth());
        std::println!("{all} states, {depth} deep, {:?}", began.elapsed());
        checker.assert_properties();
        assert!(began.elapsed() < LIMIT, "the time was over before all states were seen");
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let from = |suspicions: &&[(u32, u32)]| {
            let mut state = self.start();
            for &(at, whom) in *suspicions {
                self.drive(&mut state, NodeId(at), Input::Suspect(member(whom), self.strength));
            }
            state
        };
        self.suspicions.iter().map(from).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.network.iter().cloned().map(Action::Deliver));
        let nodes = || (0..self.members).map(NodeId);
        let lives = |node: &NodeId| state.machines[node.0 as usize].is_some();
        if state.timeouts < self.timeouts {
            actions.extend(nodes().filter(lives).map(Action::Timeout));
        }
        for mortal in self.mortal.iter().copied().map(NodeId) {
            if lives(&mortal) {
                actions.push(Action::Crash(mortal));
            } else {
                actions.extend(nodes().filter(lives).map(|at| Action::Prove { at, whom: mortal }));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver(letter) => {
                let input = Input::Message { from: letter.from, bytes: &letter.bytes };
                self.drive(&mut state, letter.to, input);
            }
            Action::Timeout(node) => {
                state.machines[node.0 as usize].as_ref().and_then(Regroup::next_timeout)?;
                self.drive(&mut state, node, Input::Timeout);
                if state == *last {
                    return None;
                }
                state.timeouts += 1;
            }
            Action::Crash(node) => {
                // What the contract of a proof asks for: it has not agreed to a later view.
                let machine = state.machines[node.0 as usize].take()?;
                if machine.agreed() > ViewEpoch(1) {
                    return None;
                }
            }
            Action::Prove { at, whom } => {
                self.drive(&mut state, at, Input::Suspect(member(whom.0), Strength::Fenced));
            }
        }
        // What changes nothing is as good as a message that is lost.
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = std::vec![
            Property::always("a view has one successor", |_, state: &State| {
                let epochs: BTreeSet<_> = state.successors.iter().map(|successor| successor.0).collect();
                epochs.len() == state.successors.len()
            }),
            Property::always("who keeps the rules is not accused", |_, state: &State| !state.has_accused),
            Property::sometimes("a view ends", |_, state: &State| !state.successors.is_empty()),
        ];
        if self.timeouts > 0 {
            properties.push(Property::sometimes("under a later ballot", |_, state: &State| {
                let is_late =
                    |machine: &Regroup| machine.history.iter().any(|decision| decision.ballot.number > 1);
                state.machines.iter().flatten().any(is_late)
            }));
        }
        if self.with_cleanup {
            let settles = |_: &Self, state: &State| state.has_settled;
            properties.push(Property::sometimes("a view change completes", settles));
        }
        properties
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.machines.iter().flatten().all(|machine| machine.view.epoch <= ViewEpoch(2))
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Deliver(letter) => {
                let words = wire::decode::<Message>(letter.from, Protocol::Regroup, &letter.bytes)
                    .map_or_else(|error| error.to_string(), |message| message.to_string());
                std::format!("{} -> {}: {words}", letter.from.0, letter.to.0)
            }
            other => std::format!("{other:?}"),
        }
    }
}

const THREE: Bounds = Bounds {
    members: 3,
    suspicions: &[&[(0, 2), (1, 0)]],
    strength: Strength::Failed,
    timeouts: 1,
    mortal: &[],
    positions: [3, 5, 4, 0],
    with_cleanup: false,
};

/// Two coordinators at once. The second start is the one that shows a coordinator that forgets what was accepted before.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_three_members_with_two_coordinators() {
    let suspicions: &[&[(u32, u32)]] = &[&[(0, 2), (1, 0)], &[(0, 2), (2, 0), (2, 1)]];
    Bounds { suspicions, timeouts: 0, ..THREE }.check();
}

/// One coordinator, and any member loses its patience at any time.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_three_members_and_a_takeover() {
    Bounds { suspicions: &[&[(0, 2)]], ..THREE }.check();
}

/// Both ask the quorum resource, or hear each other after all.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_two_members_and_the_quorum_resource() {
    let strength = Strength::Suspected;
    Bounds { members: 2, suspicions: &[&[(0, 1), (1, 0)]], strength, timeouts: 2, ..THREE }.check();
}

/// One coordinator that suspects the first member, which lives.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_four_members() {
    Bounds { members: 4, suspicions: &[&[(1, 0)]], timeouts: 0, ..THREE }.check();
}

/// One dies at any moment, and is then proven dead to one member or the other, early or late.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_a_proof_of_death() {
    Bounds { suspicions: &[&[(0, 1)]], timeouts: 1, mortal: &[2], ..THREE }.check();
}

/// From the suspicion to the settled view.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_the_whole_way() {
    Bounds { suspicions: &[&[(0, 2), (1, 2)]], timeouts: 0, with_cleanup: true, ..THREE }.check();
}
