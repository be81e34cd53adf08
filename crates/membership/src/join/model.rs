//! The real machines of joiners and members under every order of messages, loss, doubling, impatience, and the death of the
//! sponsor at any moment, as far as the bounds reach.
//!
//! A message that was sent may be delivered at any time, again and again, or never: so what is on its way only grows, and
//! sending again adds nothing. What `regroup` decides is not at stake here: which of those that were handed on come in, who is
//! left out, and which member hears of it when, is the model's choice.

use std::collections::{BTreeMap, BTreeSet};
use std::string::String;
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use comb_types::{Incarnation, NodeId, Time};
use stateright::{Model, Property};

use super::*;
use crate::exhaustive::look_at_all;
use crate::view::ViewEpoch;

/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(60);

/// A group, those that want in, and what may go wrong.
#[derive(Clone, Debug)]
struct Bounds {
    /// They are the contacts of all.
    members: u32,
    joiners: u32,
    /// Members that crash at any time.
    mortal: &'static [u32],
    /// How often a joiner loses its patience with a sponsor, all in all.
    impatience: u8,
    /// Whether it does so only when the sponsor is dead.
    is_patient: bool,
    /// How often a joiner crashes and comes back, all in all.
    rebirths: u8,
    /// Changes of the view.
    changes: usize,
    /// Whether all joiners have the offer of the first member already.
    has_offers: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    machines: Vec<Option<Join>>,
    network: BTreeSet<Letter>,
    /// The first that all were configured with, and what was decided since.
    views: Vec<Decided>,
    /// Up to which of these each member has heard.
    known: Vec<usize>,
    /// Who was handed on, and by which sponsors.
    wishes: BTreeMap<Member, BTreeSet<NodeId>>,
    /// Lives that a member has seen the end of.
    over: BTreeSet<Member>,
    dead: BTreeSet<NodeId>,
    first_sponsors: BTreeMap<NodeId, NodeId>,
    entries: BTreeSet<Entry>,
    impatience: u8,
    rebirths: u8,
    mistake: Option<&'static str>,
    has_batched: bool,
    has_passed_over: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Letter {
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Decided {
    view: View,
    cut: u64,
    holders: Vec<NodeId>,
}

/// A joiner says that it is in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Entry {
    life: Member,
    /// The number of the view, if it was decided so.
    place: Option<usize>,
    /// Whose word it was.
    told_by: NodeId,
    /// Whose word it awaited at first.
    first_sponsor: Option<NodeId>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Action {
    Deliver(Letter),
    /// The joiner has the snapshot that it was referred to.
    Synchronise(NodeId),
    LosePatience(NodeId),
    /// A sponsor has gathered petitions for long enough.
    HandOn(NodeId),
    Decide {
        admitted: Vec<Member>,
        without: Option<NodeId>,
    },
    /// A member hears of the next view.
    Learn(NodeId),
    Crash(NodeId),
    Rebirth(NodeId),
}

/// A group goes on while a view lasts: what is committed at its beginning, and what the snapshots of its members hold.
fn cut(place: usize) -> u64 {
    10 * place as u64
}

fn snapshot(place: usize) -> Vec<u8> {
    vec![u8::try_from(cut(place) + 5).expect("few views")]
}

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

impl Bounds {
    fn config(&self) -> Config {
        let patience = Duration::from_millis(1);
        let contacts = (0..self.members).map(NodeId).collect();
        Config { contacts, resend: Duration::ZERO, batch: Duration::ZERO, patience, ..Config::default() }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> {
        (0..self.members + self.joiners).map(NodeId)
    }

    fn is_joiner(&self, node: NodeId) -> bool {
        node.0 >= self.members
    }

    /// Gives a machine an input, and does what comes of it. `told_by` is who sent the message that it is, if it is one.
    fn drive(&self, state: &mut State, node: NodeId, input: Input<'_>, told_by: Option<NodeId>) {
        let index = node.0 as usize;
        let Some(mut machine) = state.machines[index].take() else { return };
        if machine.handle(Time::ZERO, input).is_err() {
            state.mistake = Some("one that keeps the rules is accused");
        }
        self.drain(state, &mut machine, told_by);
        state.machines[index] = Some(machine);
    }

    fn drain(&self, state: &mut State, machine: &mut Join, told_by: Option<NodeId>) {
        let me = machine.me;
        while let Some(transmit) = machine.poll_transmit() {
            state.network.insert(Letter { from: me.node, to: transmit.to, bytes: transmit.bytes });
        }
        while let Some(event) = machine.poll_event() {
            match event {
                Event::Synchronise { sponsor, .. } => {
                    state.first_sponsors.entry(me.node).or_insert(sponsor);
                }
                Event::Joined { view, cut, holders } => {
                    let is_late = cut < machine.position;
                    let decided = Decided { view, cut, holders };
                    let place = state.views.iter().position(|other| *other == decided);
                    let lives = machine.since..=me.incarnation;
                    let seat = decided.view.member(me.node);
                    if is_late {
                        state.mistake = Some("the snapshot holds more than the view begins with");
                    } else if !seat.is_some_and(|seat| lives.contains(&seat.incarnation)) {
                        state.mistake = Some("it takes a seat that is not its own");
                    } else if state.entries.iter().any(|entry| entry.life == me) {
                        state.mistake = Some("it comes in twice");
                    }
                    state.known[me.node.0 as usize] = place.unwrap_or_default();
                    let told_by = told_by.expect("a message says so");
                    let first_sponsor = state.first_sponsors.get(&me.node).copied();
                    state.entries.insert(Entry { life: me, place, told_by, first_sponsor });
                }
                Event::Admit(members) => {
                    if members.is_empty() || !members.is_sorted_by(|one, other| one < other) {
                        state.mistake = Some("a batch has a life twice, or none");
                    }
                    if !members.iter().all(|joiner| self.has_asked(state, *joiner)) {
                        state.mistake = Some("one that did not ask is handed on");
                    }
                    state.has_batched |= members.len() > 1;
                    members.into_iter().for_each(|joiner| {
                        state.wishes.entry(joiner).or_default().insert(me.node);
                    });
                }
                Event::Reborn { former } => {
                    let now = state.machines[former.node.0 as usize].as_ref();
                    if now.is_some_and(|now| now.me.incarnation <= former.incarnation) {
                        state.mistake = Some("a life that goes on is said to be over");
                    }
                    state.over.insert(former);
                }
                Event::Founded(_) => state.mistake = Some("a second group"),
            }
        }
    }

    /// Whether this life has petitioned, in any message that there ever was.
    fn has_asked(&self, state: &State, joiner: Member) -> bool {
        let says = |letter: &Letter| {
            let body = wire::decode::<Body>(letter.from, Protocol::Join, &letter.bytes);
            matches!(body, Ok(Body::Petition { member, .. }) if member == joiner)
        };
        self.is_joiner(joiner.node) && state.network.iter().any(says)
    }

    /// What may be decided now: as `regroup` has it, only who has failed is left out, and a node has one seat.
    fn decisions(&self, state: &State, actions: &mut Vec<Action>) {
        let last = &state.views.last().expect("there is a first").view;
        let has_heard = |seat: &Member| state.entries.iter().any(|entry| entry.life.node == seat.node);
        let may_go = |seat: &&Member| {
            state.dead.contains(&seat.node)
                || state.over.contains(seat)
                || (self.is_joiner(seat.node) && !has_heard(seat))
        };
        let leaves = last.members.iter().filter(may_go).map(|seat| Some(seat.node));
        for without in leaves.chain([None]) {
            let is_new = |joiner: &&Member| {
                let seat = last.member(joiner.node);
                seat.is_none() || (without == Some(joiner.node) && seat < Some(**joiner))
            };
            let wishes: Vec<Member> = state.wishes.keys().filter(is_new).copied().collect();
            for choice in 0..1_u32 << wishes.len() {
                let is_chosen = |(place, _): &(usize, &Member)| choice & (1 << place) != 0;
                let chosen: Vec<Member> =
                    wishes.iter().enumerate().filter(is_chosen).map(|(_, joiner)| *joiner).collect();
                let has_one_seat_each = chosen.is_sorted_by(|one, other| one.node < other.node);
                if has_one_seat_each && (without.is_some() || !chosen.is_empty()) {
                    actions.push(Action::Decide { admitted: chosen, without });
                }
            }
        }
    }

    fn decide(&self, state: &mut State, admitted: Vec<Member>, without: Option<NodeId>) -> Option<()> {
        let last = &state.views.last()?.view;
        let mut members: Vec<_> =
            last.members.iter().copied().filter(|seat| Some(seat.node) != without).collect();
        members.extend(admitted);
        members.sort_unstable();
        let is_there = |node: &NodeId| !state.dead.contains(node) && Some(*node) != without;
        let holders: Vec<_> = (0..self.members).map(NodeId).filter(is_there).collect();
        let epoch = ViewEpoch(last.epoch.0 + 1);
        let view = View { epoch, members, tie_breaker: *holders.first()? };
        state.views.push(Decided { view, cut: cut(state.views.len()), holders });
        Some(())
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
        let members: Vec<_> = (0..self.members).map(member).collect();
        let holders: Vec<_> = members.iter().map(|member| member.node).collect();
        let view = View { epoch: ViewEpoch(1), members, tie_breaker: NodeId(0) };
        let machine = |node: NodeId| {
            if self.is_joiner(node) {
                return Some(Join::new(member(node.0), self.config(), Time::ZERO));
            }
            let mut machine = Join::within(member(node.0), self.config(), Time::ZERO, view.clone());
            machine.handle(Time::ZERO, Input::Snapshot(snapshot(0))).expect("no peer is involved");
            Some(machine)
        };
        let mut state = State {
            machines: self.nodes().map(machine).collect(),
            network: BTreeSet::new(),
            views: vec![Decided { view: view.clone(), cut: 0, holders }],
            known: self.nodes().map(|_| 0).collect(),
            wishes: BTreeMap::new(),
            over: BTreeSet::new(),
            dead: BTreeSet::new(),
            first_sponsors: BTreeMap::new(),
            entries: BTreeSet::new(),
            impatience: 0,
            rebirths: 0,
            mistake: None,
            has_batched: false,
            has_passed_over: false,
        };
        for node in self.nodes() {
            let Some(mut machine) = state.machines[node.0 as usize].take() else { continue };
            self.drain(&mut state, &mut machine, None);
            state.machines[node.0 as usize] = Some(machine);
        }
        if self.has_offers {
            let bytes = wire::encode(Protocol::Join, &Body::Offer { snapshot: snapshot(0) });
            for joiner in self.nodes().filter(|node| self.is_joiner(*node)) {
                let input = Input::Message { from: NodeId(0), bytes: &bytes };
                self.drive(&mut state, joiner, input, Some(NodeId(0)));
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.network.iter().cloned().map(Action::Deliver));
        for node in self.nodes() {
            let Some(machine) = &state.machines[node.0 as usize] else { continue };
            match machine.role {
                Role::Synchronising { .. } => actions.push(Action::Synchronise(node)),
                Role::Member { .. } if machine.batch_at.is_some() => actions.push(Action::HandOn(node)),
                _ => {}
            }
            if let Role::Synchronising { sponsor, .. } | Role::Petitioning { sponsor, .. } = machine.role
                && state.impatience < self.impatience
                && (!self.is_patient || state.dead.contains(&sponsor))
            {
                actions.push(Action::LosePatience(node));
            }
            if machine.is_member() && state.known[node.0 as usize] + 1 < state.views.len() {
                actions.push(Action::Learn(node));
            }
            if self.is_joiner(node) && state.rebirths < self.rebirths {
                actions.push(Action::Rebirth(node));
            }
        }
        if state.views.len() <= self.changes {
            self.decisions(state, actions);
        }
        let mortal = self.mortal.iter().copied().map(NodeId);
        actions.extend(mortal.filter(|node| !state.dead.contains(node)).map(Action::Crash));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver(letter) => {
                let input = Input::Message { from: letter.from, bytes: &letter.bytes };
                self.drive(&mut state, letter.to, input, Some(letter.from));
                let body = wire::decode::<Body>(letter.from, Protocol::Join, &letter.bytes);
                if let (Ok(Body::Welcome { cut, .. }), Some(to)) =
                    (body, &state.machines[letter.to.0 as usize])
                {
                    state.has_passed_over |= !to.is_member() && cut < to.position;
                }
            }
            Action::Synchronise(node) => {
                let machine = state.machines[node.0 as usize].as_ref()?;
                let Role::Synchronising { sponsor, .. } = machine.role else { return None };
                let position = u64::from(*machine.offers.get(&sponsor)?.first()?);
                self.drive(&mut state, node, Input::Synchronised { position }, None);
            }
            Action::LosePatience(node) => {
                let machine = state.machines[node.0 as usize].as_mut()?;
                if let Role::Synchronising { until, .. } | Role::Petitioning { until, .. } = &mut machine.role
                {
                    *until = Time::ZERO;
                }
                state.impatience += 1;
                self.drive(&mut state, node, Input::Timeout, None);
            }
            Action::HandOn(node) => self.drive(&mut state, node, Input::Timeout, None),
            Action::Decide { admitted, without } => self.decide(&mut state, admitted, without)?,
            Action::Learn(node) => {
                let index = node.0 as usize;
                let place = state.known[index] + 1;
                let Decided { view, cut, holders } = state.views[place].clone();
                let me = state.machines[index].as_ref()?.me;
                if view.member(node).is_none_or(|seat| state.over.contains(&seat) || seat > me) {
                    // The group has gone on without it: it halts.
                    state.machines[index] = None;
                } else {
                    state.known[index] = place;
                    self.drive(&mut state, node, Input::Decided { view, cut, holders }, None);
                    self.drive(&mut state, node, Input::Snapshot(snapshot(place)), None);
                }
            }
            Action::Crash(node) => {
                state.machines[node.0 as usize] = None;
                state.dead.insert(node);
            }
            Action::Rebirth(node) => {
                let index = node.0 as usize;
                let former = state.machines[index].take()?;
                let me = Member { incarnation: Incarnation(former.me.incarnation.0 + 1), ..former.me };
                // Who has never been in goes on for its former life; who has been in is another.
                let mut machine = if former.is_member() {
                    Join::new(me, self.config(), Time::ZERO)
                } else {
                    Join::again(me, former.since, self.config(), Time::ZERO)
                };
                state.rebirths += 1;
                self.drain(&mut state, &mut machine, None);
                state.machines[index] = Some(machine);
            }
        }
        // What changes nothing is as good as a message that is lost.
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("nobody makes a mistake", |_, state: &State| state.mistake.is_none()),
            Property::always("who is in is in a view that was decided", |_, state: &State| {
                state.entries.iter().all(|entry| entry.place.is_some())
            }),
            Property::sometimes("all who want in are in", |model: &Self, state: &State| {
                let lives: BTreeSet<NodeId> = state.entries.iter().map(|entry| entry.life.node).collect();
                lives.len() == model.joiners as usize
            }),
        ];
        if self.joiners > 1 {
            let batches = |_: &Self, state: &State| {
                let together =
                    |place| state.entries.iter().filter(|entry| entry.place == Some(place)).count();
                state.has_batched && (1..state.views.len()).any(|place| together(place) > 1)
            };
            properties.push(Property::sometimes("two come in by one batch", batches));
        }
        if !self.mortal.is_empty() {
            let replaced = |_: &Self, state: &State| {
                let is_dead =
                    |entry: &&Entry| entry.first_sponsor.is_some_and(|node| state.dead.contains(&node));
                let was_first = |entry: &Entry, node: &NodeId| entry.first_sponsor == Some(*node);
                let others_only = |entry: &Entry| {
                    let handed_on = state.wishes.get(&entry.life);
                    handed_on.is_some_and(|by| !by.iter().any(|node| was_first(entry, node)))
                };
                state.entries.iter().filter(is_dead).any(others_only)
            };
            properties.push(Property::sometimes("another lets it in when its sponsor has died", replaced));
        }
        if self.changes > 1 && self.impatience > 0 {
            properties.push(Property::sometimes("a welcome comes too late", |_, state: &State| {
                state.has_passed_over
            }));
        }
        if self.rebirths > 0 {
            let goes_on = |_: &Self, state: &State| {
                let seat =
                    |entry: &Entry| state.views[entry.place.unwrap_or_default()].view.member(entry.life.node);
                state.entries.iter().any(|entry| seat(entry).is_some_and(|seat| seat < entry.life))
            };
            properties
                .push(Property::sometimes("it takes the seat of a life that had said nothing", goes_on));
            properties.push(Property::sometimes("the end of a life is seen", |_, state: &State| {
                !state.over.is_empty()
            }));
        }
        properties
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Deliver(letter) => {
                let words = describe(letter.from, &letter.bytes);
                std::format!("{} -> {}: {words}", letter.from.0, letter.to.0)
            }
            other => std::format!("{other:?}"),
        }
    }
}

const ONE: Bounds = Bounds {
    members: 2,
    joiners: 1,
    mortal: &[0],
    impatience: 1,
    is_patient: false,
    rebirths: 0,
    changes: 2,
    has_offers: false,
};

#[test]
fn model_one_joins_and_its_sponsor_dies() {
    ONE.check();
}

#[test]
fn model_two_join_at_once() {
    Bounds { joiners: 2, mortal: &[], impatience: 0, changes: 1, ..ONE }.check();
}

#[test]
fn model_two_join_and_a_sponsor_dies() {
    Bounds { joiners: 2, changes: 1, is_patient: true, has_offers: true, ..ONE }.check();
}

#[test]
fn model_a_joiner_crashes_and_comes_back() {
    Bounds { mortal: &[], impatience: 0, rebirths: 1, changes: 1, ..ONE }.check();
}
