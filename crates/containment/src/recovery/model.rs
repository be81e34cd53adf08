//! Three cells in recovery, and every order in which messages, views, the drivers' work, deaths and rebirths may come.
//!
//! What one cell says to another comes in its order; ways do not wait for each other. Views are agreed, and each cell hears of them in
//! its time, all of them or some. What a cell said comes late, too, when others know that it is dead.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use comb_types::{CellId, Incarnation};
use stateright::{Model, Property};

use super::*;
use crate::exhaustive::look_at_all;

/// A check that takes longer than this has bounds that are too wide.
const LIMIT: Duration = Duration::from_secs(60);

type Life = (CellId, Incarnation);

#[derive(Clone, Debug)]
struct Bounds {
    cells: u32,
    /// Of these lives may end.
    deaths: u32,
    /// And so many begin anew.
    rebirths: u32,
    /// Whether cells may hear of a view without having heard of the one before.
    skips: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    cells: BTreeMap<Life, Cell>,
    /// From one life to another.
    network: BTreeMap<(Life, Life), VecDeque<Message>>,
    /// By epoch, from 1.
    views: Vec<BTreeSet<Life>>,
    deaths: u32,
    rebirths: u32,
    /// What was done, whoever has died since.
    cut_off: BTreeSet<(Life, u64)>,
    discarded: BTreeSet<(Life, u64)>,
    masters: BTreeMap<u64, Life>,
    mistake: Option<&'static str>,
    has: Seen,
}

/// One life, and what its driver has still to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Cell {
    machine: Recovery,
    work: VecDeque<(u64, Step)>,
    /// The last view that it has heard of.
    heard: u64,
    /// Who was in any view that it has heard of, itself left out.
    met: BTreeSet<Life>,
    /// From whose death it has recovered.
    buried: BTreeSet<Life>,
}

/// What is to happen in some run, lest the model be a toy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Seen {
    is_one_resumed_alone: bool,
    discards_while_another_waits: bool,
    /// A cell was told of a barrier in a view that it had not heard of.
    was_early: bool,
    /// Dead of two views in one round.
    began_again: bool,
    has_both_lives: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Action {
    Deliver(Life, Life),
    Work(Life),
    Hear(Life, u64),
    Die(Life),
    /// A view without the dead, and with this one anew.
    Agree(Option<CellId>),
}

impl Bounds {
    fn act(&self, state: &mut State, life: Life, act: impl FnOnce(&mut Recovery)) {
        let Some(cell) = state.cells.get_mut(&life) else { return };
        act(&mut cell.machine);
        let others: Vec<Life> = cell.machine.living.iter().map(|(&cell, &life)| (cell, life)).collect();
        while let Some((to, message)) = cell.machine.poll_transmit() {
            assert_eq!(to, To::Others);
            for &other in others.iter().filter(|other| **other != life) {
                state.network.entry((life, other)).or_default().push_back(message);
            }
        }
        let lives = state.cells.keys().copied().collect::<BTreeSet<_>>();
        state.network.retain(|(_, to), letters| lives.contains(to) && !letters.is_empty());
        while let Some(event) = state.cells.get_mut(&life).and_then(|cell| cell.machine.poll_event()) {
            self.happen(state, life, event);
        }
    }

    fn happen(&self, state: &mut State, life: Life, event: Event) {
        let all = |done: &BTreeSet<(Life, u64)>, views: &[BTreeSet<Life>], epoch: u64| {
            let members = &views[usize::try_from(epoch).expect("few") - 1];
            members.iter().all(|&member| done.contains(&(member, epoch)))
        };
        let cell = state.cells.get_mut(&life).expect("it acts");
        match event {
            Event::CutOff { epoch, dead } => {
                cell.work.push_back((epoch, Step::CutOff));
                let mut fallen =
                    state.views.iter().filter(|view| dead.iter().any(|dead| view.contains(dead)));
                let last = fallen.next_back().map(|view| dead.iter().all(|dead| view.contains(dead)));
                state.has.began_again |= last == Some(false);
                let current = &state.views[usize::try_from(epoch).expect("few") - 1];
                state.has.has_both_lives |=
                    dead.iter().any(|(dead, _)| current.iter().any(|(cell, _)| cell == dead));
            }
            Event::Discard { epoch, .. } => {
                cell.work.push_back((epoch, Step::Discard));
                if !all(&state.cut_off, &state.views, epoch) {
                    state.mistake = Some("one discards before all have cut off");
                }
                state.has.discards_while_another_waits |= state
                    .cells
                    .values()
                    .any(|other| other.machine.epoch == epoch && other.machine.phase == Phase::AtFirst);
            }
            Event::Resumed { epoch, dead, master } => {
                cell.buried.extend(dead);
                if !all(&state.discarded, &state.views, epoch) || !all(&state.cut_off, &state.views, epoch) {
                    state.mistake = Some("one resumes before all have discarded");
                }
                if master && state.masters.insert(epoch, life).is_some_and(|other| other != life) {
                    state.mistake = Some("two look after the same dead");
                }
                let others = state.cells.values().filter(|other| other.machine.epoch == epoch);
                state.has.is_one_resumed_alone |=
                    others.clone().any(|other| other.machine.phase == Phase::AtSecond);
            }
        }
    }

    fn is_over(&self, state: &State) -> bool {
        let last = state.views.len() as u64;
        state.network.is_empty()
            && state.views.last().is_some_and(|view| view.iter().all(|life| state.cells.contains_key(life)))
            && state.cells.values().all(|cell| cell.work.is_empty() && cell.heard == last)
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let lives: BTreeSet<Life> = (0..self.cells).map(|cell| (CellId(cell), Incarnation(1))).collect();
        vec![State {
            cells: lives.iter().map(|&life| (life, Cell::new(life))).collect(),
            network: BTreeMap::new(),
            views: vec![lives],
            deaths: 0,
            rebirths: 0,
            cut_off: BTreeSet::new(),
            discarded: BTreeSet::new(),
            masters: BTreeMap::new(),
            mistake: None,
            has: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.network.keys().map(|&(from, to)| Action::Deliver(from, to)));
        let last = state.views.len() as u64;
        for (&life, cell) in &state.cells {
            if !cell.work.is_empty() {
                actions.push(Action::Work(life));
            }
            let is_in = |epoch: &u64| state.views[usize::try_from(*epoch).expect("few") - 1].contains(&life);
            let mut next = (cell.heard + 1..=last).filter(is_in);
            actions.extend(next.next().map(|epoch| Action::Hear(life, epoch)));
            if self.skips {
                actions.extend(next.map(|epoch| Action::Hear(life, epoch)));
            }
            if state.deaths < self.deaths && state.cells.len() > 1 {
                actions.push(Action::Die(life));
            }
        }
        let view = &state.views[state.views.len() - 1];
        let dead = || view.iter().filter(|life| !state.cells.contains_key(life));
        if dead().next().is_some() {
            actions.push(Action::Agree(None));
            if state.rebirths < self.rebirths {
                actions.extend(dead().map(|&(cell, _)| Action::Agree(Some(cell))));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if last.mistake.is_some() {
            return None;
        }
        let mut state = last.clone();
        match action {
            Action::Deliver(from, to) => {
                let message = state.network.get_mut(&(from, to))?.pop_front()?;
                let Message::Reached { epoch, .. } = message;
                state.has.was_early |= epoch > state.cells[&to].machine.epoch;
                let mut outcome = Ok(());
                self.act(&mut state, to, |machine| outcome = machine.handle(from.0, message));
                if outcome.is_err() {
                    state.mistake = Some("an honest cell is accused");
                }
            }
            Action::Work(life) => {
                let (epoch, step) = state.cells.get_mut(&life)?.work.pop_front()?;
                let done = if step == Step::CutOff { &mut state.cut_off } else { &mut state.discarded };
                done.insert((life, epoch));
                self.act(&mut state, life, |machine| machine.done(epoch, step));
            }
            Action::Hear(life, epoch) => {
                let view = state.views[usize::try_from(epoch).ok()? - 1].clone();
                let cell = state.cells.get_mut(&life)?;
                cell.heard = epoch;
                cell.met.extend(view.iter().copied().filter(|other| *other != life));
                let living: Vec<Life> = view.into_iter().collect();
                self.act(&mut state, life, |machine| machine.view(epoch, &living));
            }
            Action::Die(life) => {
                state.cells.remove(&life)?;
                state.deaths += 1;
                state.network.retain(|(_, to), _| *to != life);
            }
            Action::Agree(reborn) => {
                let mut view = state.views[state.views.len() - 1].clone();
                let anew = reborn.and_then(|cell| view.iter().find(|life| life.0 == cell));
                let anew = anew.map(|&(cell, Incarnation(life))| (cell, Incarnation(life + 1)));
                view.retain(|life| state.cells.contains_key(life));
                if let Some(life) = anew {
                    state.rebirths += 1;
                    view.insert(life);
                    let heard = state.views.len() as u64;
                    state.cells.insert(life, Cell { heard, ..Cell::new(life) });
                }
                state.views.push(view);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                "nobody goes past a barrier before all, nobody is accused",
                |_, state: &State| state.mistake.is_none(),
            ),
            Property::always("nobody waits for ever", |model: &Self, state: &State| {
                let waits =
                    |cell: &Cell| cell.machine.is_recovering() || !cell.machine.held_up_by().1.is_empty();
                !model.is_over(state) || !state.cells.values().any(waits)
            }),
            Property::always(
                "each has recovered from all who died, and from nobody else",
                |model: &Self, state: &State| {
                    let has = |cell: &Cell| {
                        let dead = cell.met.iter().filter(|life| !state.cells.contains_key(life));
                        cell.buried == dead.copied().collect()
                    };
                    !model.is_over(state) || state.cells.values().all(has)
                },
            ),
            Property::sometimes("one discards while another waits", |_, state: &State| {
                state.has.discards_while_another_waits
            }),
            Property::sometimes("one has resumed, and another not yet", |_, state: &State| {
                state.has.is_one_resumed_alone
            }),
            Property::sometimes("all is over, and all who could die have", |model: &Self, state: &State| {
                model.is_over(state) && state.deaths == model.deaths
            }),
        ];
        if self.deaths > 0 {
            properties.push(Property::sometimes(
                "a barrier is reached in a view not yet heard of",
                |_, state: &State| state.has.was_early,
            ));
        }
        if self.deaths > 1 {
            properties.push(Property::sometimes(
                "a round begins again with the dead of two views",
                |_, state: &State| state.has.began_again,
            ));
        }
        if self.rebirths > 0 {
            properties.push(Property::sometimes("a cell is dead and lives", |_, state: &State| {
                state.has.has_both_lives
            }));
        }
        properties
    }
}

impl Cell {
    fn new(life: Life) -> Self {
        Self {
            machine: Recovery::new(life.0),
            work: VecDeque::new(),
            heard: 0,
            met: BTreeSet::new(),
            buried: BTreeSet::new(),
        }
    }
}

fn bounds() -> Bounds {
    Bounds { cells: 3, deaths: 0, rebirths: 0, skips: false }
}

#[test]
fn model_three_cells_begin() {
    look_at_all(bounds(), LIMIT);
}

#[test]
fn model_one_dies_at_any_point() {
    look_at_all(Bounds { deaths: 1, ..bounds() }, LIMIT);
}

#[test]
fn model_another_dies_in_recovery() {
    look_at_all(Bounds { deaths: 2, skips: true, ..bounds() }, LIMIT);
}

#[test]
fn model_one_dies_and_lives_again() {
    look_at_all(Bounds { deaths: 1, rebirths: 1, skips: true, ..bounds() }, LIMIT);
}

#[test]
fn model_one_of_two_dies_again_and_again() {
    look_at_all(Bounds { cells: 2, deaths: 2, rebirths: 2, skips: true }, LIMIT);
}
