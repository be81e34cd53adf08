//! The real machine under every order of messages, loss, doubling, crashes and timeouts, as far as the bounds reach.
//!
//! A message that was sent may be delivered at any time, again and again, or never: so what is on its way only grows, and a
//! crash is nothing but silence, but for what a proof of death allows. Timers are due at all times: which one fires when is the
//! model's choice.

use std::collections::{BTreeMap, BTreeSet};
use std::string::{String, ToString};
use std::time::Duration;
use std::vec::Vec;

use comb_types::{NodeId, Time};
use stateright::{Model, Property};

use super::message::Message;
use super::tests::{first_view, member};
use super::*;
use crate::exhaustive::look_at_all;
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
    /// Of these one crashes, or, [`Crash::AnyTime`], all do.
    mortal: &'static [u32],
    crash: Crash,
    /// These neither say nor hear anything, from the start; with [`Crash::AnyTime`] all know that they are dead.
    silent: &'static [u32],
    /// Up to where each holds the updates.
    positions: [u64; 5],
    /// Whether to go on after the decision, into the cleanup.
    with_cleanup: bool,
}

/// When a member crashes, and what others hear of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    /// Before it has agreed to a later view. Others may then get a proof of that, early or late.
    Proven,
    /// Whenever it comes. Others may then read, early or late, what it had agreed to.
    AnyTime,
    /// In the cleanup of the second view. Others are told that it has failed.
    InCleanup,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    machines: Vec<Option<Regroup>>,
    /// Up to where each holds the updates, or held when it crashed.
    held: Vec<u64>,
    /// What those that have crashed had agreed to.
    words: BTreeMap<NodeId, ViewEpoch>,
    /// Who is asked to reach a cut that is proposed, or to flush to one that was decided.
    reaches: BTreeMap<NodeId, u64>,
    flushes: BTreeSet<NodeId>,
    network: BTreeSet<Letter>,
    timeouts: u32,
    resource: ResourceInMemory,
    /// What any member ever took for the successor of a view.
    successors: BTreeSet<(ViewEpoch, Vec<NodeId>, NodeId, u64)>,
    has_settled: bool,
    /// In a view without one that crashed in the cleanup of the one before.
    has_settled_after_all: bool,
    has_accused: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Letter {
    epoch: ViewEpoch,
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Action {
    Deliver(Letter),
    Timeout(NodeId),
    Crash(NodeId),
    /// A member has everything up to the cut that is proposed.
    Reach(NodeId),
    /// A member has everything up to the cut that was decided.
    Flush(NodeId),
    /// A member hears that one has crashed.
    Tell {
        at: NodeId,
        whom: NodeId,
    },
}

impl Bounds {
    fn start(&self) -> State {
        let view = first_view(self.members);
        let machines = view.members.iter().map(|&me| {
            let mut machine = Regroup::joining(me, AT_ONCE, Time::ZERO, view.clone(), 0);
            machine.stage = Stage::Settled;
            machine.resend_at = None;
            Some(machine).filter(|_| !self.silent.contains(&me.node.0))
        });
        State {
            machines: machines.collect(),
            held: self.positions[..self.members as usize].to_vec(),
            words: BTreeMap::new(),
            reaches: BTreeMap::new(),
            flushes: BTreeSet::new(),
            network: BTreeSet::new(),
            timeouts: 0,
            resource: ResourceInMemory::default(),
            successors: BTreeSet::new(),
            has_settled: false,
            has_settled_after_all: false,
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
                    state.network.insert(Letter { epoch: message.epoch, from: node, to, bytes });
                }
            }
            let Some(event) = machine.poll_event() else { break };
            let answer = match event {
                Event::Freeze { .. } => Input::Position(state.held[index]),
                Event::Reach { cut, .. } => {
                    if self.crash == Crash::InCleanup {
                        state.reaches.insert(node, cut);
                        continue;
                    }
                    state.held[index] = cut.max(state.held[index]);
                    Input::Position(state.held[index])
                }
                Event::Acquire { epoch, .. } => {
                    Input::Acquired { epoch, granted: state.resource.try_acquire(epoch, member(node.0)) }
                }
                Event::Decided { cut, .. } if self.crash == Crash::InCleanup => {
                    state.held[index] = cut.min(state.held[index]);
                    state.reaches.remove(&node);
                    state.flushes.insert(node);
                    continue;
                }
                Event::Decided { .. } => Input::Flushed,
                Event::Settled(view) => {
                    state.has_settled |= view.epoch > ViewEpoch(1);
                    state.has_settled_after_all |= view.epoch > ViewEpoch(2);
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
        if self.crash == Crash::InCleanup {
            // What is about a view that is over for all who live never comes, lest there be too many states.
            let least = state.machines.iter().flatten().map(|machine| machine.view.epoch).min();
            state.network.retain(|letter| Some(letter.epoch) >= least);
        }
    }
}

impl Bounds {
    fn check(self) {
        look_at_all(self, LIMIT);
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let from = |suspicions: &&[(u32, u32)]| {
            let mut state = self.start();
            let dead = self.silent.iter().filter(|_| self.crash == Crash::AnyTime);
            for (&whom, at) in dead.flat_map(|whom| (0..self.members).map(move |at| (whom, at))) {
                self.drive(&mut state, NodeId(at), Input::Suspect(member(whom), Strength::Fenced));
            }
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
        let has_begun = self.crash != Crash::InCleanup || state.machines.iter().any(Option::is_none);
        if state.timeouts < self.timeouts && has_begun {
            actions.extend(nodes().filter(lives).map(Action::Timeout));
        }
        for mortal in self.mortal.iter().copied().map(NodeId) {
            if lives(&mortal) {
                let one_has = self.crash != Crash::AnyTime && !state.words.is_empty();
                actions.extend((!one_has).then_some(Action::Crash(mortal)));
            } else {
                actions.extend(nodes().filter(lives).map(|at| Action::Tell { at, whom: mortal }));
            }
        }
        actions.extend(state.reaches.keys().copied().filter(lives).map(Action::Reach));
        actions.extend(state.flushes.iter().copied().filter(lives).map(Action::Flush));
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
                let machine = state.machines[node.0 as usize].take()?;
                let has_agreed = machine.agreed() > ViewEpoch(1);
                let is_in_cleanup = machine.view.epoch == ViewEpoch(2) && machine.stage < Stage::Settled;
                let may_crash = match self.crash {
                    // What the contract of a proof asks for.
                    Crash::Proven => !has_agreed,
                    Crash::AnyTime => true,
                    Crash::InCleanup => is_in_cleanup,
                };
                if !may_crash {
                    return None;
                }
                state.words.insert(node, machine.agreed());
            }
            Action::Tell { at, whom } => {
                let view = state.machines[at.0 as usize].as_ref()?.view.epoch;
                let strength = match self.crash {
                    Crash::InCleanup => Strength::Failed,
                    _ if state.words[&whom] <= view => Strength::Fenced,
                    _ => Strength::Ended,
                };
                self.drive(&mut state, at, Input::Suspect(member(whom.0), strength));
            }
            Action::Reach(node) => {
                let (index, cut) = (node.0 as usize, state.reaches.remove(&node)?);
                if state.held[index] < cut && !can_fetch(&state, cut) {
                    return None;
                }
                state.held[index] = cut.max(state.held[index]);
                let position = state.held[index];
                self.drive(&mut state, node, Input::Position(position));
            }
            Action::Flush(node) => {
                let index = node.0 as usize;
                let cut = state.machines[index].as_ref()?.base;
                if state.held[index] < cut && !can_fetch(&state, cut) {
                    return None;
                }
                state.held[index] = cut;
                state.flushes.remove(&node);
                self.drive(&mut state, node, Input::Flushed);
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
            Property::always("one that lives holds the cut of the last view", |_, state: &State| {
                let last = state.successors.iter().next_back();
                last.is_none_or(|(_, _, _, cut)| can_fetch(state, *cut))
            }),
            Property::sometimes("a view ends", |_, state: &State| !state.successors.is_empty()),
        ];
        if self.crash == Crash::InCleanup {
            let settles = |_: &Self, state: &State| state.has_settled_after_all;
            properties
                .push(Property::sometimes("those that are left come to a view without the dead", settles));
            let is_only_holder = |model: &Self, state: &State| {
                let died = |index: usize| state.machines[index].is_none();
                let most = state.held.iter().max();
                (0..model.members as usize).any(|index| died(index) && most == Some(&state.held[index]))
            };
            properties.push(Property::sometimes("one dies that holds as much as any", is_only_holder));
        }
        if self.crash == Crash::AnyTime {
            let goes_on = |_: &Self, state: &State| {
                let all = state.machines.len();
                let living: Vec<_> = state.machines.iter().flatten().collect();
                let may_be_late = state.words.values().any(|agreed| *agreed > ViewEpoch(1));
                let are_without_the_dead = |machine: &&Regroup| {
                    let nodes: Vec<_> = machine.view.nodes().collect();
                    machine.view.epoch > ViewEpoch(1)
                        && nodes.iter().all(|node| !state.words.contains_key(node))
                };
                2 * living.len() <= all && may_be_late && living.iter().all(are_without_the_dead)
            };
            properties.push(Property::sometimes("few go on without one that had agreed", goes_on));
        }
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
        let last = if self.crash == Crash::InCleanup { ViewEpoch(3) } else { ViewEpoch(2) };
        state.machines.iter().flatten().all(|machine| machine.view.epoch <= last)
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

/// Whether somebody who lives holds everything up to the cut.
fn can_fetch(state: &State, cut: u64) -> bool {
    let lives = |(machine, held): (&Option<Regroup>, &u64)| machine.is_some() && *held >= cut;
    state.machines.iter().zip(&state.held).any(lives)
}

const THREE: Bounds = Bounds {
    members: 3,
    suspicions: &[&[(0, 2), (1, 0)]],
    strength: Strength::Failed,
    timeouts: 1,
    mortal: &[],
    positions: [3, 5, 4, 0, 0],
    crash: Crash::Proven,
    silent: &[],
    with_cleanup: false,
};

const DYING: Bounds = Bounds {
    suspicions: &[&[(0, 2)]],
    strength: Strength::Suspected,
    crash: Crash::InCleanup,
    with_cleanup: true,
    ..THREE
};

/// Of four one is dead, as all know.
const FOUR: Bounds =
    Bounds { members: 4, timeouts: 0, positions: [5; 5], crash: Crash::AnyTime, silent: &[3], ..THREE };

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

/// The tie-breaker dies, and may have agreed to a view without the first that died. The two that are left, which are no quorum, go on.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_the_tie_breaker_dies_after_another() {
    let suspicions: &[&[(u32, u32)]] = &[&[]];
    Bounds { suspicions, mortal: &[0], ..FOUR }.check();
}

/// Half of four with the tie-breaker may have gone on without the one that is left, and dies: that one must not go on without it.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_half_that_may_have_decided_dies() {
    let suspicions: &[&[(u32, u32)]] = &[&[(0, 2)]];
    Bounds { suspicions, mortal: &[0, 1], ..FOUR }.check();
}

/// From the suspicion to the settled view.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_the_whole_way() {
    Bounds { suspicions: &[&[(0, 2), (1, 2)]], timeouts: 0, with_cleanup: true, ..THREE }.check();
}

/// The leader of the cleanup, or one that it waits for, dies in it. The second time nobody waits for the third member's
/// promise.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_a_member_dies_in_the_cleanup() {
    Bounds { timeouts: 0, mortal: &[0, 1], ..DYING }.check();
    Bounds { timeouts: 0, strength: Strength::Failed, mortal: &[1], ..DYING }.check();
}

/// Two of three go on; one of them dies in the cleanup, and the other, which loses its patience, needs the quorum resource.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_one_of_two_that_are_left_dies_in_the_cleanup() {
    Bounds { strength: Strength::Failed, silent: &[2], timeouts: 2, mortal: &[0, 1], ..DYING }.check();
}

/// Two are silent, and two of the others lead at once.
#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation")]
fn model_five_members_of_which_two_are_silent() {
    let suspicions: &[&[(u32, u32)]] = &[&[(0, 3), (0, 4)]];
    Bounds { members: 5, suspicions, timeouts: 1, silent: &[3, 4], ..THREE }.check();
}
