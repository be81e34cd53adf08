//! A few cells, one of which may say anything to anybody, and every order in which messages and limits may come.
//!
//! What an honest cell says comes to each other in its order. What the liar says comes at once: when it says it, is its choice
//! anyway. One more cell may be dead: it says nothing, and whoever looks at it finds that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use comb_types::{CellId, Time};
use stateright::{Model, Property};

use super::*;
use crate::exhaustive::look_at_all;

/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(60);

/// Honest cells come first, then the liar, if there is one, then the dead.
#[derive(Clone, Debug)]
struct Bounds {
    honest: u32,
    has_liar: bool,
    has_dead: bool,
    /// How often the liar says something, to one or to all.
    lies: u32,
    /// How often an honest cell comes upon the dead.
    hints: u32,
    /// How often a cell's limit is over before everything has come.
    timeouts: u32,
    /// What the liar says of whom.
    says: fn(&Bounds) -> Vec<Message>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    cells: Vec<Cell>,
    network: BTreeMap<(u32, u32), VecDeque<Message>>,
    lies: u32,
    hints: u32,
    timeouts: u32,
    mistake: Option<&'static str>,
    has: Seen,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Cell {
    machine: Alerts,
    now: Time,
    /// Where it has still to look.
    looks: BTreeSet<(CellId, Finding)>,
    condemned: BTreeSet<CellId>,
}

/// What is to happen in some run, lest the model be a toy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Seen {
    /// Against an honest cell, with the liar's vote.
    voted_down: bool,
    /// A verdict on the liar, for slander.
    slanderer_condemned: bool,
    /// A verdict on the dead.
    dead_condemned: bool,
    /// Some have condemned whom others have not.
    differ: bool,
    /// A vote came before its alert.
    early_vote: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Action {
    Deliver(u32, u32),
    Look(u32, CellId, Finding),
    Hint(u32, Finding),
    Limit(u32),
    /// To one, or to all honest cells.
    Lie(Option<u32>, Message),
}

impl Bounds {
    fn liar(&self) -> Option<CellId> {
        self.has_liar.then_some(CellId(self.honest))
    }

    fn dead(&self) -> Option<CellId> {
        self.has_dead.then_some(CellId(self.honest + u32::from(self.has_liar)))
    }

    fn all(&self) -> Vec<CellId> {
        (0..self.honest).map(CellId).chain(self.liar()).chain(self.dead()).collect()
    }

    fn is_honest(&self, cell: CellId) -> bool {
        cell.0 < self.honest
    }

    /// Lets an honest cell do something, and takes what comes of it.
    fn act(&self, state: &mut State, at: u32, act: impl FnOnce(&mut Alerts, Time)) {
        let cell = &mut state.cells[at as usize];
        act(&mut cell.machine, cell.now);
        while let Some((to, message)) = cell.machine.poll_transmit() {
            assert_eq!(to, To::Others);
            if let Message::Raise { suspect, finding } = message {
                let is_right = Some(suspect) == self.dead() && finding != Finding::Slander
                    || Some(suspect) == self.liar() && finding == Finding::Slander;
                if !is_right {
                    state.mistake = Some("an honest cell raises an alert without a reason");
                }
            }
            for other in (0..self.honest).filter(|other| *other != at) {
                state.network.entry((at, other)).or_default().push_back(message);
            }
        }
        while let Some(event) = cell.machine.poll_event() {
            match event {
                Event::Look { suspect, finding, by } => {
                    if suspect.0 == at || by.0 == at || finding == Finding::Slander {
                        state.mistake = Some("a cell is asked what it is not to judge");
                    }
                    if !cell.looks.insert((suspect, finding)) {
                        state.mistake = Some("a cell is asked again before it has answered");
                    }
                }
                Event::Verdict { suspect, finding } => {
                    if self.is_honest(suspect) {
                        state.mistake = Some("an honest cell is condemned");
                    }
                    if !cell.condemned.insert(suspect) {
                        state.mistake = Some("a cell is condemned twice");
                    }
                    state.has.slanderer_condemned |=
                        Some(suspect) == self.liar() && finding == Finding::Slander;
                    state.has.dead_condemned |= Some(suspect) == self.dead();
                }
                Event::VotedDown { suspect, by, .. } => {
                    state.has.voted_down |= self.is_honest(suspect) && Some(by) == self.liar();
                }
            }
        }
    }

    fn hear(&self, state: &mut State, from: CellId, to: u32, message: Message) {
        let machine = &state.cells[to as usize].machine;
        if let Message::Vote { suspect, finding, .. } = message {
            let alert = machine.alerts.get(&Charge { suspect, finding });
            state.has.early_vote |=
                self.is_honest(from) && alert.is_none_or(|alert| alert.raisers.is_empty());
        }
        let mut outcome = Ok(());
        self.act(state, to, |machine, now| outcome = machine.handle(now, from, message));
        if outcome.is_err() && self.is_honest(from) {
            state.mistake = Some("an honest cell is accused");
        }
    }

    fn is_over(&self, state: &State) -> bool {
        state.network.is_empty() && state.cells.iter().all(|cell| cell.looks.is_empty())
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let cell = |number| {
            let mut machine = Alerts::new(CellId(number));
            machine.living(Time::ZERO, &self.all());
            Cell { machine, now: Time::ZERO, looks: BTreeSet::new(), condemned: BTreeSet::new() }
        };
        vec![State {
            cells: (0..self.honest).map(cell).collect(),
            network: BTreeMap::new(),
            lies: 0,
            hints: 0,
            timeouts: 0,
            mistake: None,
            has: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.network.keys().map(|&(from, to)| Action::Deliver(from, to)));
        for (at, cell) in (0..).zip(&state.cells) {
            actions.extend(cell.looks.iter().map(|&(suspect, finding)| Action::Look(at, suspect, finding)));
            if state.hints < self.hints && self.has_dead {
                actions.push(Action::Hint(at, Finding::Silent));
            }
            if state.timeouts < self.timeouts && cell.machine.next_timeout().is_some() {
                actions.push(Action::Limit(at));
            }
        }
        if state.lies < self.lies {
            let to = || (0..self.honest).map(Some).chain([None]);
            actions.extend(
                (self.says)(self)
                    .into_iter()
                    .flat_map(|message| to().map(move |to| Action::Lie(to, message))),
            );
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.mistake.is_some() {
            return None;
        }
        let mut state = last.clone();
        match action {
            Action::Deliver(from, to) => {
                let letters = state.network.get_mut(&(from, to))?;
                let message = letters.pop_front()?;
                if letters.is_empty() {
                    state.network.remove(&(from, to));
                }
                self.hear(&mut state, CellId(from), to, message);
            }
            Action::Look(at, suspect, finding) => {
                state.cells[at as usize].looks.remove(&(suspect, finding));
                let agrees = Some(suspect) == self.dead();
                self.act(&mut state, at, |machine, now| machine.looked(now, suspect, finding, agrees));
            }
            Action::Hint(at, finding) => {
                state.hints += 1;
                let dead = self.dead()?;
                self.act(&mut state, at, |machine, now| machine.hint(now, dead, finding));
            }
            Action::Limit(at) => {
                state.timeouts += 1;
                let cell = &mut state.cells[at as usize];
                cell.now = cell.machine.next_timeout()?;
                // Whoever has not looked by now is too late, and need not any more.
                cell.looks.clear();
                self.act(&mut state, at, Alerts::handle_timeout);
            }
            Action::Lie(to, message) => {
                state.lies += 1;
                let liar = self.liar()?;
                let hearers = (0..self.honest).filter(|hearer| to.is_none_or(|to| to == *hearer));
                hearers.for_each(|hearer| self.hear(&mut state, liar, hearer, message));
            }
        }
        let dead = self.dead();
        let has = |cell: &Cell| dead.is_some_and(|dead| cell.condemned.contains(&dead));
        state.has.differ |= state.cells.iter().any(has) && !state.cells.iter().all(has);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::always(
            "nobody honest is accused, condemned, asked about itself or without a reason to accuse",
            |_, state: &State| state.mistake.is_none(),
        )];
        if self.has_liar && self.lies > 0 {
            properties
                .push(Property::sometimes("a lie is voted down", |_, state: &State| state.has.voted_down));
        }
        // Too few are left to vote a lie down, where one is dead.
        if self.has_liar && self.lies > 1 && !self.has_dead {
            properties.push(Property::sometimes("who lies twice is condemned", |_, state: &State| {
                state.has.slanderer_condemned
            }));
        }
        if self.has_dead {
            properties.push(Property::always(
                "if nothing comes too late, the dead is condemned",
                |model: &Self, state: &State| {
                    let dead = model.dead();
                    let knows = |cell: &Cell| dead.is_some_and(|dead| cell.condemned.contains(&dead));
                    let is_due = model.is_over(state) && state.timeouts == 0 && state.hints > 0;
                    // A liar's vote may be what one cell condemns by and another has not: the next view unites them.
                    let (any, all) = (state.cells.iter().any(knows), state.cells.iter().all(knows));
                    !is_due || all || model.has_liar && any
                },
            ));
            properties.push(Property::sometimes("the dead is condemned", |_, state: &State| {
                state.has.dead_condemned
            }));
            properties.push(Property::sometimes("one knows it earlier than another", |_, state: &State| {
                state.has.differ
            }));
            properties.push(Property::sometimes("a vote comes before its alert", |_, state: &State| {
                state.has.early_vote
            }));
        }
        properties
    }
}

/// That the first honest cell is silent, and nothing else.
fn one_lie(_: &Bounds) -> Vec<Message> {
    vec![Message::Raise { suspect: CellId(0), finding: Finding::Silent }]
}

/// Anything of the first cell, and that the others slander.
fn any_lie_of_one(bounds: &Bounds) -> Vec<Message> {
    let of = |suspect, finding| {
        let votes = [true, false].map(|agrees| Message::Vote { suspect, finding, agrees });
        [Message::Raise { suspect, finding }].into_iter().chain(votes)
    };
    let suspects = [CellId(0)].into_iter().chain(bounds.dead());
    suspects
        .flat_map(|suspect| [Finding::Silent, Finding::Slander].map(|finding| of(suspect, finding)))
        .flatten()
        .collect()
}

fn bounds() -> Bounds {
    Bounds { honest: 3, has_liar: true, has_dead: false, lies: 2, hints: 0, timeouts: 0, says: one_lie }
}

#[test]
fn model_who_lies_twice_is_condemned() {
    look_at_all(bounds(), LIMIT);
}

#[test]
fn model_one_of_three_says_anything() {
    look_at_all(Bounds { honest: 2, lies: 4, timeouts: 1, says: any_lie_of_one, ..bounds() }, LIMIT);
}

#[test]
fn model_one_of_four_says_anything() {
    look_at_all(Bounds { lies: 3, says: any_lie_of_one, ..bounds() }, LIMIT);
}

#[test]
fn model_three_find_out_about_a_dead_one() {
    look_at_all(Bounds { has_liar: false, has_dead: true, lies: 0, hints: 2, ..bounds() }, LIMIT);
}

#[test]
fn model_two_find_out_about_a_dead_one_whatever_a_fourth_says() {
    let bounds = Bounds { honest: 2, has_dead: true, lies: 3, hints: 2, says: any_lie_of_one, ..bounds() };
    look_at_all(bounds, LIMIT);
}

#[test]
fn model_limits_end_before_all_have_answered() {
    look_at_all(
        Bounds { has_liar: false, has_dead: true, lies: 0, hints: 2, timeouts: 2, ..bounds() },
        LIMIT,
    );
}
