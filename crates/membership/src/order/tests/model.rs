//! The very machine, with every order in which three members' messages may come, while one of them is left behind by a view
//! change.
//!
//! The member that is left behind does not crash: it goes on in its view and knows of nothing. A crash is one of the things
//! that it may do, namely nothing more. So is a lost message one that never comes.
//!
//! In some models one of the others dies before the change is decided, perhaps as the only one that holds the cut: then the two that are
//! left begin again, without it. Nothing is decided before all have reached the cut ([`Input::Reach`]).

use stateright::{Checker, Model, Property};

use super::cluster::{member, view};
use super::*;

const NODES: usize = 3;

/// What one member has delivered, by position: the view, the sender, its number.
type Delivered = Vec<(u64, u32, u64)>;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Way {
    Normal,
    Frozen(u64),
    /// All up to this cut is held, which may be agreed now.
    Reached(u64),
    Changing {
        is_flushed: bool,
    },
    Installed,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    orders: Vec<Order>,
    now: Vec<Time>,
    /// In no order.
    under_way: Vec<(u32, u32, Vec<u8>)>,
    ways: [Way; NODES],
    delivered: [Delivered; NODES],
    /// Own updates that a member was told that a majority has.
    promised: Vec<(u32, u64)>,
    timeouts_left: u8,
    doubles_left: u8,
    dead: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Die(u32),
    Reach(u32),
    Arrive { index: usize, comes_again: bool },
    Timeout(u32),
    Freeze(u32),
    Change(u32),
    Install(u32),
}

struct ViewChange {
    /// Nobody, where all go on in the next view.
    left_behind: Option<u32>,
    /// Who may die. Then the other goes on with the one that was to be left behind.
    mortal: Option<u32>,
    /// Who sends one update each.
    senders: &'static [u32],
    timeouts: u8,
    doubles: u8,
}

impl State {
    fn poll(&mut self, node: u32) {
        let order = &mut self.orders[node as usize];
        while let Some(cast) = order.poll_transmit() {
            let to: Vec<u32> = match cast.to {
                To::One(to) => vec![to.0],
                To::Others => order.view().nodes().map(|to| to.0).filter(|&to| to != node).collect(),
            };
            self.under_way.extend(to.into_iter().map(|to| (node, to, cast.bytes.to_vec())));
        }
        self.under_way.sort_unstable();
        while let Some(event) = order.poll_event() {
            match event {
                Event::Delivered(delivery) => {
                    let delivered = &mut self.delivered[node as usize];
                    assert_eq!(delivery.position, delivered.len() as u64 + 1);
                    delivered.push((delivery.epoch.0, delivery.sender.node.0, delivery.number));
                }
                Event::Reached { number, level: Level::Majority } => self.promised.push((node, number)),
                Event::Position(held) => {
                    let way = &mut self.ways[node as usize];
                    *way = if matches!(way, Way::Frozen(_)) { Way::Reached(held) } else { Way::Frozen(held) };
                }
                Event::Flushed => self.ways[node as usize] = Way::Changing { is_flushed: true },
                _ => {}
            }
        }
    }

    fn input(&mut self, node: u32, input: Input<'_>) {
        let now = self.now[node as usize];
        self.orders[node as usize].handle(now, input).expect("honest members break no rule");
        self.poll(node);
    }
}

impl ViewChange {
    fn survivors(&self, state: &State) -> impl Iterator<Item = u32> + use<> {
        let missing = state.dead.or(self.left_behind);
        (0..3).filter(move |&node| Some(node) != missing)
    }

    fn next_view(&self, state: &State) -> View {
        view(2, &self.survivors(state).collect::<Vec<_>>())
    }

    /// The cut and its holders, when all survivors have told their positions: with the one that is silent, those who hold it are more
    /// than half. Whoever has heard of the change is not frozen any more, but holds what it held or the cut itself.
    fn agreed(&self, state: &State) -> Option<(u64, Vec<NodeId>)> {
        if self.survivors(state).any(|node| state.ways[node as usize] == Way::Normal) {
            return None;
        }
        let held = |node: u32| match state.ways[node as usize] {
            Way::Frozen(held) => (node, held),
            _ => (node, state.orders[node as usize].held()),
        };
        let mut positions: Vec<_> = self.survivors(state).map(held).collect();
        positions.sort_by_key(|(_, held)| core::cmp::Reverse(*held));
        let silent = NODES - positions.len();
        let cut = positions[NODES / 2 - silent].1;
        let holders = positions.iter().filter(|(_, held)| *held >= cut).map(|(node, _)| NodeId(*node));
        Some((cut, holders.collect()))
    }

    /// Whether all survivors have reached the cut, so that it may be decided; at once where nobody dies.
    fn may_decide(&self, state: &State, cut: u64) -> bool {
        let has_reached = |node: u32| match state.ways[node as usize] {
            Way::Reached(held) => held >= cut,
            Way::Changing { .. } | Way::Installed => true,
            Way::Normal | Way::Frozen(_) => self.mortal.is_none(),
        };
        self.survivors(state).all(has_reached)
    }
}

/// Whether one is how the other begins.
fn agree(one: &Delivered, other: &Delivered) -> bool {
    one.iter().zip(other).all(|(a, b)| a == b)
}

impl Model for ViewChange {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let founders = view(1, &[0, 1, 2]);
        let order = |node| Order::founding(Config::default(), member(node), founders.clone());
        let mut state = State {
            orders: (0..3).map(order).collect(),
            now: vec![Time::ZERO; NODES],
            under_way: Vec::new(),
            ways: [Way::Normal; NODES],
            delivered: Default::default(),
            promised: Vec::new(),
            timeouts_left: self.timeouts,
            doubles_left: self.doubles,
            dead: None,
        };
        for &node in self.senders {
            state.orders[node as usize].submit(Time::ZERO, Level::Majority, b"x").unwrap();
            state.poll(node);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for index in 0..state.under_way.len() {
            // Two that are the same are one choice.
            let is_double = index > 0 && state.under_way[index] == state.under_way[index - 1];
            if is_double || Some(state.under_way[index].1) == state.dead {
                continue;
            }
            actions.push(Action::Arrive { index, comes_again: false });
            if state.doubles_left > 0 {
                actions.push(Action::Arrive { index, comes_again: true });
            }
        }
        let is_waiting = |node: u32| state.orders[node as usize].next_timeout().is_some();
        if state.timeouts_left > 0 {
            let living = (0..3).filter(|&node| Some(node) != state.dead);
            actions.extend(living.filter(|&node| is_waiting(node)).map(Action::Timeout));
        }
        let agreed = self.agreed(state);
        let flushed = |way: Way| matches!(way, Way::Changing { is_flushed: true } | Way::Installed);
        let all_flushed = self.survivors(state).all(|node| flushed(state.ways[node as usize]));
        let is_decided = state.ways.iter().any(|way| matches!(way, Way::Changing { .. } | Way::Installed));
        let may_decide = agreed.as_ref().is_some_and(|(cut, _)| self.may_decide(state, *cut));
        if !is_decided && state.dead.is_none() {
            actions.extend(self.mortal.map(Action::Die));
        }
        for node in self.survivors(state) {
            match state.ways[node as usize] {
                Way::Normal => actions.push(Action::Freeze(node)),
                Way::Frozen(_) | Way::Reached(_) if may_decide => actions.push(Action::Change(node)),
                Way::Frozen(_) if agreed.is_some() => actions.push(Action::Reach(node)),
                Way::Changing { .. } if all_flushed => actions.push(Action::Install(node)),
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Arrive { index, comes_again } => {
                let (from, to, bytes) = state.under_way[index].clone();
                if comes_again {
                    state.doubles_left -= 1;
                } else {
                    state.under_way.remove(index);
                }
                state.input(to, Input::Message { from: NodeId(from), bytes: &bytes });
            }
            Action::Timeout(node) => {
                state.timeouts_left -= 1;
                let at = state.orders[node as usize].next_timeout()?;
                state.now[node as usize] = at;
                state.input(node, Input::Timeout);
            }
            Action::Die(node) => {
                state.dead = Some(node);
                // Those that are left begin again, with what they hold.
                for (way, order) in state.ways.iter_mut().zip(&state.orders) {
                    if let Way::Reached(_) = way {
                        *way = Way::Frozen(order.held());
                    }
                }
            }
            Action::Freeze(node) => state.input(node, Input::Freeze),
            Action::Reach(node) => {
                let (cut, holders) = self.agreed(last)?;
                state.input(node, Input::Reach { cut, holders });
            }
            Action::Change(node) => {
                let (cut, holders) = self.agreed(last)?;
                state.ways[node as usize] = Way::Changing { is_flushed: false };
                state.input(node, Input::Change { view: self.next_view(last), cut, holders });
            }
            Action::Install(node) => {
                state.ways[node as usize] = Way::Installed;
                state.input(node, Input::Install(self.next_view(last)));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn installed(state: &State) -> impl Iterator<Item = &Delivered> {
            let ways = state.ways.iter().zip(&state.delivered);
            ways.filter(|(way, _)| **way == Way::Installed).map(|(_, delivered)| delivered)
        }
        vec![
            Property::always("there is one order", |_, state: &State| {
                let [a, b, c] = &state.delivered;
                agree(a, b) && agree(b, c) && agree(a, c)
            }),
            Property::always("each update happens once", |_, state: &State| {
                let is_double = |delivered: &Delivered, place: usize| {
                    let (_, sender, number) = delivered[place];
                    delivered[..place].iter().any(|&(_, other, again)| (other, again) == (sender, number))
                };
                state.delivered.iter().all(|all| (0..all.len()).all(|place| !is_double(all, place)))
            }),
            Property::always(
                "the next view has all that anybody has delivered before",
                |_, state: &State| {
                    let before =
                        |delivered: &Delivered| delivered.iter().take_while(|update| update.0 == 1).count();
                    let most = state.delivered.iter().map(before).max().unwrap_or(0);
                    installed(state).all(|delivered| before(delivered) >= most)
                },
            ),
            Property::always("what was promised is in the next view", |_, state: &State| {
                let has = |delivered: &Delivered, promise: &(u32, u64)| {
                    delivered.iter().any(|(_, sender, number)| (*sender, *number) == *promise)
                };
                let all_old = |delivered: &Delivered| delivered.iter().all(|update| update.0 == 1);
                let mut old = installed(state).filter(|delivered| all_old(delivered));
                let is_promised_of_old = |promise: &&(u32, u64)| {
                    state
                        .delivered
                        .iter()
                        .flatten()
                        .any(|update| update.0 == 1 && (update.1, update.2) == **promise)
                };
                old.all(|delivered| {
                    state.promised.iter().filter(is_promised_of_old).all(|promise| has(delivered, promise))
                })
            }),
            Property::sometimes("an update is delivered in the first view", |_, state: &State| {
                state.delivered.iter().flatten().any(|update| update.0 == 1)
            }),
            Property::sometimes(
                "who is left behind delivers more than another has",
                |model: &Self, state: &State| {
                    // Where all reach the cut first, they have it all by then.
                    let Some(left_behind) = model.left_behind.filter(|_| model.mortal.is_none()) else {
                        return true;
                    };
                    let left_behind = &state.delivered[left_behind as usize];
                    let has_less = |node: u32| state.delivered[node as usize].len() < left_behind.len();
                    let is_changing = state.ways.contains(&Way::Changing { is_flushed: false });
                    model.survivors(state).any(has_less) && is_changing
                },
            ),
            Property::sometimes("an update is fetched from the only holder", |_, state: &State| {
                state.orders.iter().any(|order| order.counts().fetched > 0)
                    && installed(state).any(|delivered| !delivered.is_empty())
            }),
            Property::sometimes(
                "those that are left have what the dead had delivered",
                |model: &Self, state: &State| {
                    let has_what_it_had = |dead: u32| {
                        let delivered = &state.delivered[dead as usize];
                        !delivered.is_empty() && installed(state).any(|other| other.len() >= delivered.len())
                    };
                    // Where nobody dies, there is nothing to be seen.
                    model.mortal.is_none() || state.dead.is_some_and(has_what_it_had)
                },
            ),
            Property::sometimes(
                "an update is sent again and delivered in the second view",
                |_, state: &State| state.delivered.iter().flatten().any(|update| update.0 == 2),
            ),
        ]
    }
}

fn explore(model: ViewChange) -> usize {
    let checker = model.checker().spawn_dfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn model_the_sequencer_is_left_behind() {
    let states =
        explore(ViewChange { left_behind: Some(0), mortal: None, senders: &[1, 2], timeouts: 0, doubles: 0 });
    assert!(states > 100_000, "{states}");
}

#[test]
fn model_the_sequencer_is_left_behind_and_messages_come_twice_or_are_sent_again() {
    explore(ViewChange { left_behind: Some(0), mortal: None, senders: &[1], timeouts: 0, doubles: 1 });
    explore(ViewChange { left_behind: Some(0), mortal: None, senders: &[1], timeouts: 1, doubles: 0 });
}

#[test]
fn model_a_member_is_left_behind() {
    let states =
        explore(ViewChange { left_behind: Some(2), mortal: None, senders: &[0, 1], timeouts: 0, doubles: 0 });
    assert!(states > 50_000, "{states}");
}

#[test]
fn model_a_member_is_left_behind_and_messages_come_twice_or_are_sent_again() {
    explore(ViewChange { left_behind: Some(2), mortal: None, senders: &[1], timeouts: 0, doubles: 1 });
    explore(ViewChange { left_behind: Some(2), mortal: None, senders: &[1], timeouts: 1, doubles: 0 });
}

/// What one alone holds is nothing that was committed: it is thrown away, and its sender sends it again.
#[test]
fn model_all_go_on() {
    let all_go_on =
        |senders| ViewChange { left_behind: None, mortal: None, senders, timeouts: 0, doubles: 0 };
    explore(all_go_on(&[0]));
    explore(all_go_on(&[1]));
    assert!(explore(all_go_on(&[0, 1])) > 10_000);
}

/// The one that dies may be the only one that holds an update, or the only one that was told that it is committed.
#[test]
fn model_a_member_dies_before_the_change_is_decided() {
    for (left_behind, mortal) in [(0, 1), (2, 0), (2, 1)] {
        let left_behind = Some(left_behind);
        explore(ViewChange { left_behind, mortal: Some(mortal), senders: &[1], timeouts: 0, doubles: 0 });
    }
}
