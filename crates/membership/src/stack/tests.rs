//! Whole members whose network delivers everything at once.

use std::collections::BTreeMap;
use std::time::Duration;
use std::vec;
use std::vec::Vec;

use comb_types::Incarnation;

use super::*;
use crate::circles::Terms;

mod environment;
mod recorded;
mod watching;

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

struct Group {
    now: Time,
    stacks: BTreeMap<u32, Stack>,
    events: BTreeMap<u32, Vec<Event>>,
    /// Messages of gossip, from whom to whom.
    gossip: BTreeMap<(u32, u32), u32>,
}

impl Group {
    fn configured(count: u32, config: &Config) -> Self {
        Self::of((0..count).map(member).collect(), config)
    }

    fn of(members: Vec<Member>, config: &Config) -> Self {
        let now = Time::from_millis(1);
        let first = View { epoch: ViewEpoch(1), tie_breaker: NodeId(0), members };
        let stack = |&own: &Member| (own.node.0, Stack::configured(config.clone(), own, first.clone(), now));
        let stacks = first.members.iter().map(stack).collect();
        let mut group = Self { now, stacks, events: BTreeMap::new(), gossip: BTreeMap::new() };
        group.deliver();
        group
    }

    fn input(&mut self, node: u32, input: Input<'_>) {
        let now = self.now;
        self.stacks.get_mut(&node).expect("it is there").handle(now, input).expect("all are honest");
        self.deliver();
    }

    /// Carries messages until there are none, and takes the events. A program's state is nothing.
    fn deliver(&mut self) {
        loop {
            let mut under_way = Vec::new();
            for (&from, stack) in &mut self.stacks {
                while let Some(cast) = stack.poll_transmit(self.now) {
                    let to: Vec<_> = match cast.to {
                        To::One(to) => vec![to],
                        To::Others => stack.view().expect("it has others").nodes().collect(),
                    };
                    let to = to.into_iter().filter(|to| to.0 != from);
                    under_way.extend(to.map(|to| (from, to, cast.bytes.clone())));
                }
                while let Some(event) = stack.poll_event() {
                    if event == Event::WantsState {
                        stack.handle(self.now, Input::State(b"state")).expect("our own input");
                    }
                    self.events.entry(from).or_default().push(event);
                }
            }
            if under_way.is_empty() && self.stacks.values().all(|stack| stack.events.is_empty()) {
                return;
            }
            for (from, to, bytes) in under_way {
                if wire::protocol(NodeId(from), &bytes) == Ok(Protocol::State) {
                    *self.gossip.entry((from, to.0)).or_default() += 1;
                }
                if let Some(stack) = self.stacks.get_mut(&to.0) {
                    let message = Input::Message { from: NodeId(from), bytes: &bytes };
                    stack.handle(self.now, message).expect("all are honest");
                }
            }
        }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now.saturating_add(span);
        while let Some(due) =
            self.stacks.values().filter_map(Stack::next_timeout).min().filter(|due| *due <= end)
        {
            self.now = self.now.max(due);
            let nodes: Vec<_> = self.stacks.keys().copied().collect();
            nodes.into_iter().for_each(|node| self.input(node, Input::Timeout));
        }
        self.now = end;
    }

    fn told(&self, node: u32, what: impl Fn(&Event) -> bool) -> bool {
        self.events.get(&node).into_iter().flatten().any(what)
    }
}

#[test]
fn whom_the_others_leave_out_is_told_so_and_does_nothing_more() {
    let mut group = Group::configured(3, &Config::default());
    let mut left = group.stacks.remove(&2).expect("it is there");
    for node in [0, 1] {
        group.input(node, Input::Noticed(NodeId(2), Kind::ProcessExit));
    }
    group.stacks.insert(2, left.clone());
    group.now = group.now.saturating_add(Duration::from_secs(10));
    group.input(2, Input::Noticed(NodeId(0), Kind::LinkDown));
    group.pass(Duration::from_secs(5));
    assert!(group.told(2, |event| matches!(event, Event::Excluded { .. })));
    left = group.stacks.remove(&2).expect("it is there");
    assert_eq!(left.submit(group.now, Level::Majority, b"x"), Err(SubmitError::Out));
    assert_eq!(left.next_timeout(), None);
    left.handle(group.now, Input::Noticed(NodeId(1), Kind::ProcessExit)).expect("own");
    assert_eq!((left.poll_transmit(group.now), left.poll_event()), (None, None));
}

/// A member that had no processor for a while heard of the end of another's former life when the next was in the view already. It said that this had ended, and was left
/// out by all others for that.
/// It has taken the others for failed, and says so to the first that it meets again, who has heard nothing of them for a while either.
#[test]
fn whom_the_others_left_out_is_not_believed_that_one_of_them_has_failed() {
    let mut group = Group::configured(4, &Config::default());
    group.pass(Duration::from_secs(5));
    let mut left = group.stacks.remove(&3).expect("it is there");
    for node in 0..3 {
        group.input(node, Input::Noticed(NodeId(3), Kind::ProcessExit));
    }
    assert_eq!(group.stacks[&0].view().map(|view| view.members.len()), Some(3));
    let failed = Evidence::new(member(1), Kind::ProcessExit, DRIVER);
    left.tell_lookout(group.now, lookout::Input::Evidence(failed));
    let zero = group.stacks.get_mut(&0).expect("it is there");
    let mut told = 0;
    for _ in 0..100 {
        group.now = group.now.saturating_add(Duration::from_millis(50));
        zero.handle(group.now, Input::Timeout).expect("our own input");
        left.handle(group.now, Input::Timeout).expect("our own input");
        while let Some(cast) = left.poll_transmit(group.now) {
            if wire::protocol(NodeId(3), &cast.bytes) == Ok(Protocol::State) {
                let message = Input::Message { from: NodeId(3), bytes: &cast.bytes };
                zero.handle(group.now, message).expect("it is honest");
                told += 1;
            }
        }
        while zero.poll_transmit(group.now).is_some() {}
        while let Some(event) = zero.poll_event() {
            let is_failure =
                |change: &Change| change.subject == member(1) && change.condition >= Condition::Failed;
            assert!(!matches!(&event, Event::Condition(change) if is_failure(change)), "{event:?}");
        }
    }
    assert!(told > 0 && left.condition(member(1)) >= Condition::Failed, "it has said so");
}

#[test]
fn the_end_of_a_former_life_says_nothing_of_the_next() {
    let life = |incarnation| Member { incarnation: Incarnation(incarnation), ..member(2) };
    let left_when_it_ends = |incarnation| {
        let mut group = Group::of(vec![member(0), member(1), life(2)], &Config::default());
        group.input(0, Input::Exited(life(incarnation)));
        group.pass(Duration::from_secs(2));
        [0, 1].map(|node| group.stacks[&node].view().map_or(0, |view| view.members.len()))
    };
    assert_eq!(left_when_it_ends(1), [3, 3]);
    assert_eq!(left_when_it_ends(2), [2, 2]);
}

#[test]
fn one_alone_delivers_what_it_submits_when_it_is_polled() {
    let mut group = Group::configured(1, &Config::default());
    let stack = group.stacks.get_mut(&0).expect("it is there");
    stack.submit(group.now, Level::Majority, b"x").expect("room");
    assert_eq!(stack.poll_transmit(group.now), None);
    let told: Vec<_> = core::iter::from_fn(|| stack.poll_event()).collect();
    assert!(told.iter().any(|event| matches!(event, Event::Delivered(_))), "{told:?}");
}

#[test]
fn a_founder_and_configured_members_hear_that_their_view_has_settled() {
    let is_settled = |event: &Event| matches!(event, Event::Settled(_));
    let is_view = |event: &Event| matches!(event, Event::View(_));
    let group = Group::configured(3, &Config::default());
    assert!((0..3).all(|node| group.told(node, is_settled) && group.told(node, is_view)));
    let join = join::Config { contacts: vec![NodeId(0)], may_found: true, ..join::Config::default() };
    let stack = Stack::joining(Config { join, ..Config::default() }, member(0), Time::ZERO);
    let (events, gossip) = (BTreeMap::new(), BTreeMap::new());
    let mut group = Group { now: Time::ZERO, stacks: [(0, stack)].into(), events, gossip };
    group.pass(Duration::from_secs(5));
    assert!(group.told(0, is_view) && group.told(0, is_settled));
}

#[test]
fn a_part_that_may_not_go_on_says_so() {
    let mut group = Group::configured(3, &Config::default());
    group.stacks.retain(|node, _| *node == 0);
    for node in [1, 2] {
        group.input(0, Input::Noticed(NodeId(node), Kind::ProcessExit));
    }
    group.pass(Duration::from_secs(2));
    assert!(group.told(0, |event| matches!(event, Event::Stuck(Stuck::NoQuorum { here: 1, members: 3 }))));
}

#[test]
fn a_member_that_does_not_keep_up_is_named() {
    let config = Config::default();
    let mut group = Group::configured(3, &config);
    let silent = group.stacks.remove(&2).expect("it is there");
    let now = group.now;
    group.stacks.get_mut(&0).expect("it is there").submit(now, Level::Majority, b"x").expect("room");
    group.deliver();
    group.pass(config.order.lag_after * 3);
    assert!(group.told(0, |event| *event == Event::Lagging(NodeId(2))));
    assert!(!group.told(0, |event| *event == Event::CaughtUp(NodeId(2))));
    group.stacks.insert(2, silent);
    group.pass(config.order.lag_after * 3);
    assert!(group.told(0, |event| *event == Event::CaughtUp(NodeId(2))));
}

/// Nobody but itself says that its former life is over.
#[test]
fn who_comes_back_takes_the_place_of_its_former_life() {
    let join = join::Config { contacts: (0..3).map(NodeId).collect(), ..join::Config::default() };
    let config = Config { join, ..Config::default() };
    let mut group = Group::configured(3, &config);
    let second = Member { incarnation: Incarnation(2), ..member(2) };
    group.stacks.insert(2, Stack::joining(config, second, group.now));
    group.pass(Duration::from_secs(10));
    let view = group.stacks[&0].view().expect("it is in one");
    assert_eq!(view.member(NodeId(2)), Some(second));
    assert_eq!(group.stacks[&2].view(), Some(view));
    let epoch = view.epoch;
    // The kernel's word about the former life comes late, and says nothing of this one.
    group.input(0, Input::Ended { life: member(2), agreed: ViewEpoch(1) });
    group.pass(Duration::from_secs(2));
    assert_eq!(group.stacks[&0].view().map(|view| view.epoch), Some(epoch));
    assert_eq!(group.stacks[&0].condition(second), Condition::Alive);
    assert_eq!(group.stacks[&2].lookout.watched().count(), 2);
    let is_written = |event: &Event| matches!(event, Event::Persist { .. } | Event::Replace { .. });
    assert!((0..3).all(|node| !group.told(node, is_written)), "nobody has a log");
}

#[test]
fn broken_rules_are_counted_by_peer_and_a_state_that_cannot_be_is_one() {
    let mut group = Group::configured(3, &Config::default());
    let now = group.now;
    let stack = group.stacks.get_mut(&0).expect("it is there");
    for (from, times) in [(1, 2), (2, 1)] {
        for _ in 0..times {
            let from = NodeId(from);
            assert!(stack.handle(now, Input::Message { from, bytes: b"no message" }).is_err());
        }
    }
    assert_eq!(stack.refused().collect::<Vec<_>>(), [(NodeId(1), 2), (NodeId(2), 1)]);
    let liar = NodeId(2);
    for position in [u64::MAX, u64::MAX / 2 + 1] {
        let bytes = postcard::to_allocvec(&order::Snapshot { position, ..order::Snapshot::default() });
        stack.handed_over(
            now,
            snapshot::Event::Taken { from: liar, bytes: bytes.expect("it can be written") },
        );
    }
    assert_eq!(stack.refused().last(), Some((liar, 3)));
    assert_eq!(stack.poll_event(), None, "it is not restored");
}

#[test]
fn who_is_no_member_any_more_gets_no_answers() {
    let mut group = Group::configured(3, &Config::default());
    let ping = wire::encode(Protocol::Detect, &(0_u32, member(0)));
    let answers = |group: &mut Group, from| {
        let now = group.now;
        let stack = group.stacks.get_mut(&0).expect("it is there");
        stack.handle(now, Input::Message { from: NodeId(from), bytes: &ping }).expect("honest");
        let casts: Vec<_> = core::iter::from_fn(|| stack.poll_transmit(now)).collect();
        casts.iter().filter(|cast| cast.to == To::One(NodeId(from))).count()
    };
    assert_eq!([answers(&mut group, 1), answers(&mut group, 2)], [1, 1]);
    let member_of_none = Stack::joining(Config::default(), member(0), group.now);
    let of_some = group.stacks.insert(0, member_of_none).expect("it is there");
    assert_eq!(answers(&mut group, 1), 0, "it is in no view");
    group.stacks.insert(0, of_some);
    group.stacks.remove(&2);
    for node in [0, 1] {
        group.input(node, Input::Noticed(NodeId(2), Kind::ProcessExit));
    }
    assert!(group.stacks[&0].view().is_some_and(|view| !view.contains(NodeId(2))));
    assert_eq!([answers(&mut group, 1), answers(&mut group, 2)], [1, 0]);
}

#[test]
fn who_is_in_the_view_that_follows_a_doubt_is_doubted_no_more() {
    let mut group = Group::configured(3, &Config::default());
    group.now = Time::from_millis(5000);
    group.input(0, Input::Noticed(NodeId(1), Kind::LinkDown));
    let view = group.stacks[&0].view().expect("it is in one");
    assert_eq!((view.epoch, view.members.len()), (ViewEpoch(2), 3), "it has answered");
    assert_eq!(group.stacks[&0].condition(member(1)), Condition::Alive);
}

/// The first two of five hear of the end of each of the others, one after the other, and what each had agreed to.
fn left_of_five(config: &Config, agreed: [u64; 3]) -> Group {
    let mut group = Group::configured(5, config);
    group.stacks.retain(|node, _| *node < 2);
    for (ended, agreed) in (2..).zip(agreed) {
        for node in [0, 1] {
            let agreed = ViewEpoch(agreed);
            group.input(node, Input::Ended { life: member(ended), agreed });
        }
    }
    group.pass(Duration::from_secs(5));
    group
}

#[test]
fn those_that_are_left_go_on_without_the_fenced() {
    let group = left_of_five(&Config::default(), [1; 3]);
    for node in [0, 1] {
        let view = group.stacks[&node].view().expect("it is in one");
        assert_eq!((view.epoch, view.members.clone()), (ViewEpoch(2), vec![member(0), member(1)]));
        let fenced = Change { subject: member(4), condition: Condition::Fenced };
        assert!(group.told(node, |event| *event == Event::Condition(fenced)));
    }
}

#[test]
fn those_that_are_left_wait_where_nothing_may_be_lost() {
    let group = left_of_five(&Config { needs_quorum: true, ..Config::default() }, [1; 3]);
    assert!(group.told(0, |event| matches!(event, Event::Stuck(Stuck::NoQuorum { here: 2, members: 5 }))));
    assert_eq!(group.stacks[&0].view().map(|view| view.members.len()), Some(5));
}

#[test]
fn who_had_agreed_to_a_later_view_still_counts() {
    let mut group = left_of_five(&Config::default(), [2; 3]);
    let is_stuck = |event: &Event| matches!(event, Event::Stuck(Stuck::NoQuorum { here: 2, members: 5 }));
    assert!(group.told(0, is_stuck));
    assert_eq!(group.stacks[&0].view().map(|view| view.epoch), Some(ViewEpoch(1)));
    // That it had not is heard later.
    for ended in 2..5 {
        for node in [0, 1] {
            group.input(node, Input::Ended { life: member(ended), agreed: ViewEpoch(1) });
        }
    }
    group.pass(Duration::from_secs(5));
    assert_eq!(group.stacks[&0].view().map(|view| view.members.len()), Some(2));
}

#[test]
fn those_that_are_left_go_on_if_too_few_of_the_dead_had_agreed_to_a_later_view() {
    let group = left_of_five(&Config::default(), [2, 1, 2]);
    for node in [0, 1] {
        let view = group.stacks[&node].view().expect("it is in one");
        assert_eq!((view.epoch, view.members.clone()), (ViewEpoch(2), vec![member(0), member(1)]));
    }
}

/// It has the promise of another, and a quorum of promises never comes.
#[test]
fn who_has_promised_and_died_is_not_there_any_more() {
    let mut group = Group::configured(5, &Config::default());
    group.stacks.retain(|node, _| *node < 2);
    for silent in 2..5 {
        (0..2).for_each(|node| group.input(node, Input::Noticed(NodeId(silent), Kind::LinkDown)));
    }
    group.pass(Duration::from_secs(5));
    assert!(group.told(0, |event| matches!(event, Event::Stuck(_))));
    group.stacks.remove(&1);
    for ended in 1..5 {
        group.input(0, Input::Ended { life: member(ended), agreed: ViewEpoch(1) });
    }
    group.pass(Duration::from_secs(5));
    assert_eq!(group.stacks[&0].view().map(|view| view.members.clone()), Some(vec![member(0)]));
}

/// The kernel's word comes piece by piece, and late.
#[test]
fn one_that_is_left_alone_goes_on_when_the_last_proof_has_come() {
    let mut group = Group::configured(3, &Config::default());
    group.stacks.retain(|node, _| *node == 0);
    for ended in [1, 2] {
        group.input(0, Input::Noticed(NodeId(ended), Kind::ProcessExit));
    }
    group.pass(Duration::from_secs(3));
    assert!(group.told(0, |event| matches!(event, Event::Stuck(_))));
    for ended in [1, 2] {
        group.input(0, Input::Ended { life: member(ended), agreed: ViewEpoch(1) });
    }
    group.pass(Duration::from_secs(1));
    assert_eq!(group.stacks[&0].view().map(|view| view.members.clone()), Some(vec![member(0)]));
}

#[test]
fn the_least_watches_all_and_the_others_a_few_and_nobody_those_who_have_left() {
    let mut group = Group::configured(8, &Config::default());
    let watched = |group: &Group, node: u32| group.stacks[&node].lookout.watched().count();
    assert_eq!([watched(&group, 0), watched(&group, 7)], [7, 3]);
    group.stacks.remove(&3);
    group.input(0, Input::Noticed(NodeId(3), Kind::ProcessExit));
    group.pass(Duration::from_secs(1));
    assert_eq!([watched(&group, 0), watched(&group, 7)], [6, 3]);
}

#[test]
fn who_is_left_out_after_a_doubt_stays_doubted() {
    let mut group = Group::configured(3, &Config::default());
    group.stacks.remove(&2);
    (0..2).for_each(|node| group.input(node, Input::Noticed(NodeId(2), Kind::LinkDown)));
    let end = group.now.saturating_add(Duration::from_secs(20));
    while group.stacks[&0].view().is_some_and(|view| view.contains(NodeId(2))) {
        group.pass(Duration::from_millis(1));
        assert!(group.now < end, "it is never left out");
    }
    assert_ne!(group.stacks[&0].condition(member(2)), Condition::Alive);
}

#[test]
fn the_driver_hears_what_detectors_make_of_a_node_and_what_nodes_say_of_themselves() {
    let mut group = Group::configured(3, &Config::default());
    group.input(0, Input::Noticed(NodeId(1), Kind::LinkDown));
    let is_doubted = |event: &Event| matches!(event, Event::Condition(it) if it.subject == member(1));
    assert!(group.told(0, is_doubted));
    let now = group.now;
    let writer = group.stacks.get_mut(&1).expect("it is there");
    writer.write(now, "role", Some(b"home".to_vec())).expect("short");
    group.pass(Duration::from_secs(5));
    let entry = Event::Entry { owner: member(1), key: "role".into(), value: Some(b"home".to_vec()) };
    assert!(group.told(0, |event| *event == entry));
}

/// What each part is to do in time is due when it says, whatever the others wait for.
#[test]
fn what_any_part_waits_for_is_due_and_is_done() {
    let mut config = Config::default();
    let long = Duration::from_secs(1000);
    (config.watching.ping, config.watching.gossip) = (long, long);
    config.join.contacts = vec![NodeId(1)];
    let does = |mut stack: Stack, part: &dyn Fn(&Stack) -> Option<Time>| {
        while stack.poll_transmit(Time::ZERO).is_some() {}
        let due = part(&stack).expect("it waits for something");
        assert!(due < Time::from_millis(100_000) && stack.next_timeout() == Some(due), "{due:?}");
        stack.handle(due, Input::Timeout).expect("our own");
        assert!(stack.poll_transmit(due).is_some(), "nothing is done");
        assert_ne!(part(&stack), Some(due));
    };
    does(Stack::joining(config.clone(), member(0), Time::ZERO), &|stack| stack.join.next_timeout());
    let members: Vec<_> = (0..3).map(member).collect();
    let first = View { epoch: ViewEpoch(1), tie_breaker: NodeId(0), members };
    let stack = Stack::configured(config, member(1), first, Time::ZERO);
    let mut lacks = stack.clone();
    lacks.snapshots.take(Time::ZERO, NodeId(2));
    does(lacks, &|stack| stack.snapshots.next_timeout());
    let mut sends = stack.clone();
    sends.submit(Time::ZERO, Level::Majority, b"x").expect("room");
    does(sends, &|stack| stack.order().and_then(Order::next_timeout));
    let mut doubts = stack;
    doubts.handle(Time::ZERO, Input::Noticed(NodeId(2), Kind::ProcessExit)).expect("our own");
    does(doubts, &|stack| stack.regroup().and_then(Regroup::next_timeout));
}

#[test]
fn a_snapshot_is_asked_of_holders_first_and_of_the_next_when_one_gives_nothing() {
    let mut group = Group::configured(4, &Config::default());
    let now = group.now;
    let stack = group.stacks.get_mut(&0).expect("it is there");
    stack.holders = vec![NodeId(2), NodeId(0)];
    // What another gave before counts for none.
    stack.handed_over(now, snapshot::Event::Progress);
    let mut asks = |gives: bool| {
        if gives {
            stack.handed_over(now, snapshot::Event::Progress);
        }
        stack.look_for_snapshot(now);
        stack.snapshots.giver().map(|giver| giver.0)
    };
    let givers = [false, true, false, false, true, false].map(&mut asks);
    assert_eq!(givers, [Some(2), Some(2), Some(1), Some(3), Some(3), Some(2)]);
    let mut alone = Group::configured(1, &Config::default());
    let alone = alone.stacks.get_mut(&0).expect("it is there");
    alone.look_for_snapshot(now);
    assert_eq!(alone.snapshots.giver(), None);
}

fn second_view(group: &Group) -> View {
    View { epoch: ViewEpoch(2), ..group.stacks[&0].view().expect("it is in one").clone() }
}

/// A view may let in a life of which a later one has been given the state.
#[test]
fn a_joiner_begins_with_the_state_that_it_was_given_unless_that_is_from_beyond_the_cut() {
    let group = Group::configured(3, &Config::default());
    for (cut, restored) in [(4, 0), (5, 5), (6, 5)] {
        let mut joiner = Stack::joining(Config::default(), member(2), Time::ZERO);
        joiner.taken(Time::ZERO, order::Snapshot { position: 5, ..order::Snapshot::default() });
        let (view, holders) = (second_view(&group), vec![NodeId(1)]);
        joiner.joined(Time::ZERO, join::Event::Joined { view, cut, holders });
        let begins = joiner.poll_event();
        assert!(
            matches!(begins, Some(Event::Restore { position, .. }) if position == restored),
            "{begins:?}"
        );
        assert_eq!((joiner.holders, joiner.given), (vec![NodeId(1)], None));
    }
}

#[test]
fn a_program_hears_of_a_view_that_let_it_in_and_ended_before_it_was_installed() {
    let group = Group::configured(3, &Config::default());
    let mut joiner = Stack::joining(Config::default(), member(2), Time::ZERO);
    let first = second_view(&group);
    let second = View { epoch: ViewEpoch(3), ..first.clone() };
    let holders = vec![NodeId(1)];
    joiner.joined(Time::ZERO, join::Event::Joined { view: first.clone(), cut: 0, holders: Vec::new() });
    let decided = regroup::Event::Decided { view: second.clone(), cut: 0, holders: holders.clone() };
    joiner.regrouped(Time::ZERO, decided);
    assert_eq!(joiner.holders, holders);
    joiner.installed(Time::ZERO, second.clone());
    let views: Vec<_> = core::iter::from_fn(|| joiner.poll_event())
        .filter_map(|event| if let Event::View(view) = event { Some(view) } else { None })
        .collect();
    assert_eq!(views, [first, second]);
}

#[test]
fn what_was_delivered_before_a_state_was_taken_is_told_before_it() {
    let mut group = Group::configured(1, &Config::default());
    let now = group.now;
    let stack = group.stacks.get_mut(&0).expect("it is there");
    let order = &mut stack.inside.as_mut().expect("it is in").order;
    order.submit(now, Level::Majority, &[Purpose::Program as u8]).expect("room");
    assert_eq!(order.poll_transmit(), None);
    stack.taken(now, order::Snapshot { position: 1, ..order::Snapshot::default() });
    assert_eq!(stack.poll_event(), None, "it has all of that");
    stack.taken(now, order::Snapshot { position: 9, ..order::Snapshot::default() });
    let told: Vec<_> = core::iter::from_fn(|| stack.poll_event()).collect();
    let places = told.iter().map(|event| match event {
        Event::Delivered(update) => update.position,
        Event::Restore { position, .. } => *position,
        _ => 0,
    });
    assert_eq!(places.filter(|place| *place > 0).collect::<Vec<_>>(), [1, 9]);
}

#[test]
fn a_state_from_beyond_the_cut_is_not_the_programs() {
    let mut group = Group::configured(3, &Config::default());
    let (view, now) = (second_view(&group), group.now);
    let stack = group.stacks.get_mut(&0).expect("it is there");
    stack.tell_order(now, order::Input::Freeze);
    stack.tell_order(now, order::Input::Change { view, cut: 5, holders: vec![NodeId(1)] });
    for (position, is_taken) in [(6, false), (5, true)] {
        stack.taken(now, order::Snapshot { position, ..order::Snapshot::default() });
        let is_restored = |event: Event| matches!(event, Event::Restore { .. });
        assert_eq!(core::iter::from_fn(|| stack.poll_event()).any(is_restored), is_taken);
    }
}

/// The first byte of an update says for whom it is.
#[test]
fn an_update_for_nobody_is_told_to_nobody_and_counted_as_its_senders() {
    let mut group = Group::configured(3, &Config::default());
    for body in [&b""[..], b"\x07", b"\x01 no update of circles"] {
        let order =
            &mut group.stacks.get_mut(&1).expect("it is there").inside.as_mut().expect("it is in").order;
        order.submit(group.now, Level::Majority, body).expect("room");
    }
    let now = group.now;
    group.stacks.get_mut(&1).expect("it is there").submit(now, Level::Majority, b"good").expect("room");
    group.deliver();
    for node in 0..3 {
        let told = group.events[&node].iter().filter_map(|event| match event {
            Event::Delivered(update) => Some(update.body.to_vec()),
            _ => None,
        });
        assert_eq!(told.collect::<Vec<_>>(), [b"good"]);
        assert_eq!(group.stacks[&node].refused().collect::<Vec<_>>(), [(NodeId(1), 3)]);
    }
}

#[test]
fn who_comes_in_has_the_circles_and_the_programs_state_as_of_one_position() {
    let mut group = Group::configured(2, &Config::default());
    let now = group.now;
    let stack = |group: &mut Group, node: u32| group.stacks.remove(&node).expect("it is there");
    let mut first = stack(&mut group, 0);
    first.join_circle(now, "red", Terms::lossy()).expect("room");
    group.stacks.insert(0, first);
    group.deliver();
    // The program is asked, and before it answers the table is another.
    let mut first = stack(&mut group, 0);
    first.is_giving = true;
    first.connect(now);
    assert_eq!(first.poll_event(), Some(Event::WantsState));
    first.join_circle(now, "blue", Terms::lossy()).expect("room");
    group.stacks.insert(0, first);
    group.deliver();
    let mut first = stack(&mut group, 0);
    assert_eq!(first.circles().len(), 2);
    let position = first.unfinished.as_ref().expect("it was asked for").position;
    let state = Circles::with_table(&first.circles_then, b"the program's");
    let mut joiner = Stack::joining(Config::default(), member(7), now);
    joiner.events.push_back(Event::Restore { position, state });
    let restored = Event::Restore { position, state: b"the program's".to_vec() };
    assert_eq!(joiner.poll_event(), Some(restored));
    assert_eq!(joiner.circles().names().collect::<Vec<_>>(), ["red"]);
    first.handle(now, Input::State(b"the program's")).expect("our own input");
    assert!(first.unfinished.is_none());
}

/// While a view changes, updates gather at their senders, and there may be no room for one more.
#[test]
fn who_has_left_a_circle_is_told_as_soon_as_there_is_room_for_it() {
    let mut group = Group::configured(3, &Config::default());
    for node in [1, 2] {
        let now = group.now;
        group.stacks.get_mut(&node).unwrap().join_circle(now, "red", Terms::default()).unwrap();
        group.deliver();
    }
    group.stacks.remove(&2);
    let now = group.now;
    let first = group.stacks.get_mut(&0).unwrap();
    first.handle(now, Input::Noticed(NodeId(2), Kind::ProcessExit)).unwrap();
    while first.submit(now, Level::Majority, b"much").is_ok() {}
    group.input(1, Input::Noticed(NodeId(2), Kind::ProcessExit));
    group.pass(Duration::from_secs(1));
    for node in 0..2 {
        assert!(group.stacks[&node].circles().members("red").eq([member(1)]));
    }
}
