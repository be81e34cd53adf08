//! What a member reads from its log, and what it says before it is there.

use comb_types::{Incarnation, NodeId};

use super::super::{Config, Input};
use super::*;
use crate::detect::Kind;
use crate::order::{Delivery, Level};
use crate::view::ViewEpoch;
use alloc::vec::Vec;

fn member(node: u32, life: u64) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(life) }
}

fn config() -> Config {
    let mut config = Config::default();
    config.order.has_log = true;
    config
}

fn configured(nodes: u32) -> Stack {
    let members = (0..nodes).map(|node| member(node, 1)).collect();
    let first = View { epoch: ViewEpoch(1), members, tie_breaker: NodeId(0) };
    Stack::configured(config(), member(0, 1), first, Time::ZERO)
}

/// All that it has to write, until it has nothing more to do if that is on the disk.
fn records(stack: &mut Stack, life: &mut Vec<Vec<u8>>, events: &mut Vec<Event>) {
    loop {
        while stack.poll_transmit(Time::ZERO).is_some() {}
        let Some(event) = stack.poll_event() else { return };
        let number = match event {
            Event::Persist { number, bytes } => {
                life.push(bytes);
                number
            }
            Event::Replace { number, records } => {
                *life = records;
                number
            }
            other => {
                events.push(other);
                continue;
            }
        };
        stack.handle(Time::ZERO, Input::Persisted { number }).expect("our own disk");
    }
}

fn resuming(life: u64, log: &[Vec<u8>]) -> Stack {
    Stack::resuming(config(), member(0, life), Time::ZERO, log.iter().map(Vec::as_slice)).expect("a good log")
}

#[test]
fn nobody_hears_of_what_is_not_on_the_disk() {
    let mut stack = configured(2);
    stack.handle(Time::ZERO, Input::Noticed(NodeId(1), Kind::ProcessExit)).expect("our own");
    assert_eq!(stack.poll_transmit(Time::ZERO), None);
    let events: Vec<_> = core::iter::from_fn(|| stack.poll_event()).collect();
    let numbers = events.iter().filter_map(|event| match event {
        Event::Persist { number, .. } => Some(*number),
        _ => None,
    });
    let last = numbers.max().expect("a memory");
    stack.handle(Time::ZERO, Input::Persisted { number: last - 1 }).expect("our own");
    assert_eq!(stack.poll_transmit(Time::ZERO), None, "the promise is not there");
    stack.handle(Time::ZERO, Input::Persisted { number: last }).expect("our own");
    assert!(stack.poll_transmit(Time::ZERO).is_some());
}

#[test]
fn one_alone_goes_on_from_its_log_life_after_life() {
    let (mut log, mut events) = (Vec::new(), Vec::new());
    let mut stack = configured(1);
    records(&mut stack, &mut log, &mut events);
    for life in 1..5_u8 {
        stack.submit(Time::ZERO, Level::Majority, &[life]).expect("it is in");
        records(&mut stack, &mut log, &mut events);
        let bodies: Vec<_> = events
            .drain(..)
            .filter_map(|event| match event {
                Event::Delivered(delivery) => Some(delivery.body[0]),
                _ => None,
            })
            .collect();
        assert_eq!(bodies, (1..=life).collect::<Vec<_>>());
        stack = resuming(u64::from(life) + 1, &log);
        records(&mut stack, &mut log, &mut events);
        assert_eq!(stack.view().map(|view| view.epoch), Some(ViewEpoch(u64::from(life) + 1)));
    }
}

#[test]
fn a_life_is_later_than_that_in_its_log_whatever_its_clock_says() {
    let (mut log, mut events) = (Vec::new(), Vec::new());
    records(&mut configured(1), &mut log, &mut events);
    let mut stack = resuming(1, &log);
    assert_eq!(stack.me(), member(0, 2));
    records(&mut stack, &mut log, &mut events);
    stack.submit(Time::ZERO, Level::Majority, b"x").expect("it is in");
    records(&mut stack, &mut log, &mut events);
    assert_eq!(last_delivered(&events).map(|update| update.sender), Some(member(0, 2)));
}

#[test]
fn a_log_of_another_node_or_of_something_else_is_refused() {
    let (mut log, mut events) = (Vec::new(), Vec::new());
    records(&mut configured(2), &mut log, &mut events);
    let read = |node, record: &[u8]| {
        let outcome = Stack::resuming(config(), member(node, 2), Time::ZERO, [&log[0][..], record]);
        outcome.map(|_| ()).unwrap_err()
    };
    assert_eq!(read(1, &log[0]), order::LogError::OfAnother { node: NodeId(0) });
    assert_eq!(read(0, &[9, 9]), order::LogError::Unreadable);
    assert_eq!(read(0, &[]), order::LogError::Unreadable);
}

/// A log that is longer than is wanted is replaced by a snapshot, and that is as good.
#[test]
fn a_log_does_not_grow_for_ever() {
    let (mut log, mut events) = (Vec::new(), Vec::new());
    let mut stack = configured(1);
    stack.config.log.most_bytes = 500;
    for update in 0..100_u8 {
        stack.submit(Time::ZERO, Level::Majority, &[update]).expect("room");
        records(&mut stack, &mut log, &mut events);
        // The state as of all that came before the question.
        if let Some(question) = events.iter().position(|event| *event == Event::WantsState) {
            let state = last_delivered(&events[..question]).expect("it was asked after many").body.to_vec();
            events.drain(..=question);
            stack.handle(Time::ZERO, Input::State(&state)).expect("our own");
            records(&mut stack, &mut log, &mut events);
        }
    }
    assert!(log.iter().map(Vec::len).sum::<usize>() < 1000, "{} records", log.len());
    let mut again = resuming(2, &log);
    let Some(Event::Restore { position, state }) = again.poll_event() else { panic!("the state first") };
    assert_eq!(u64::from(state[0]) + 1, position);
    events.clear();
    records(&mut again, &mut log, &mut events);
    assert_eq!(last_delivered(&events).map_or(position, |last| last.position), 100);
}

fn last_delivered(events: &[Event]) -> Option<&Delivery> {
    events.iter().rev().find_map(|event| match event {
        Event::Delivered(delivery) => Some(delivery),
        _ => None,
    })
}

fn second_view(stack: &Stack) -> View {
    View { epoch: ViewEpoch(2), ..stack.view().expect("it is in one").clone() }
}

/// The decision of a view is on the disk before anybody counts on it.
#[test]
fn who_has_all_up_to_the_cut_says_so_when_the_cut_is_on_the_disk() {
    let mut stack = configured(2);
    let decided = |cut| {
        let (view, holders) = (second_view(&configured(2)), alloc::vec![NodeId(1)]);
        regroup::Event::Decided { view, cut, holders }
    };
    stack.regrouped(Time::ZERO, decided(0));
    stack.connect(Time::ZERO);
    let number = stack.writing.number;
    assert!(stack.writing.is_flushed && number > 0);
    stack.handle(Time::ZERO, Input::Persisted { number: number - 1 }).expect("our own");
    assert!(stack.writing.is_flushed, "the cut is not there");
    let mut lacks_some = stack.clone();
    stack.handle(Time::ZERO, Input::Persisted { number }).expect("our own");
    assert!(!stack.writing.is_flushed);
    // Another cut, up to which it has not everything.
    lacks_some.regrouped(Time::ZERO, decided(5));
    assert!(!lacks_some.writing.is_flushed);
}

/// What three members had agreed on up to `cut` when their second view was decided. The first of them had more.
fn log_of_two_views(cut: u64) -> Vec<Vec<u8>> {
    let mut stack = configured(3);
    let (mut log, mut events) = (Vec::new(), Vec::new());
    for update in 0..3 {
        stack.submit(Time::ZERO, Level::Majority, &[update]).expect("room");
        // Before it is known whether the others hold it.
        records(&mut stack, &mut log, &mut events);
    }
    let timing = config().regroup;
    let second = Regroup::joining(member(0, 1), timing, Time::ZERO, second_view(&stack), cut);
    log.push(Record::Memory(second.memory()).write());
    log
}

#[test]
fn what_lay_behind_a_cut_is_not_there_any_more() {
    let held = |log: &[Vec<u8>]| resuming(2, log).order().map(Order::held);
    let log = log_of_two_views(0);
    assert_eq!(held(&log[..log.len() - 1]), Some(1), "that which went out");
    assert_eq!(held(&log), Some(0));
    assert_eq!(held(&log_of_two_views(1)), Some(1));
}

#[test]
fn what_is_lacking_up_to_a_cut_is_fetched_by_who_comes_back() {
    let mut stack = resuming(2, &log_of_two_views(5));
    let is_fetch = |cast: &crate::Cast| Stack::describe(NodeId(0), &cast.bytes).contains("lack");
    let number = stack.writing.number;
    stack.handle(Time::ZERO, Input::Persisted { number }).expect("our own");
    let casts: Vec<_> = core::iter::from_fn(|| stack.poll_transmit(Time::ZERO)).collect();
    let words: Vec<_> = casts.iter().map(|cast| Stack::describe(NodeId(0), &cast.bytes)).collect();
    assert!(casts.iter().any(is_fetch), "{words:?}");
}

#[test]
fn a_life_that_is_in_no_view_sends_no_updates() {
    let mut stack = resuming(2, &log_of_two_views(1));
    assert!(stack.is_back());
    assert_eq!(stack.submit(Time::ZERO, Level::Majority, b"x"), Err(order::SubmitError::Out));
}

#[test]
fn a_joiner_writes_that_it_asks_to_be_let_in_and_only_once() {
    let given = || order::Snapshot { position: 7, ..order::Snapshot::default() };
    let joiner = |life, log: &[Vec<u8>]| resuming(life, log);
    let (mut log, mut events) = (Vec::new(), Vec::new());
    let mut first = joiner(3, &log);
    first.taken(Time::ZERO, given());
    assert!(!first.writing.under_way.is_empty());
    records(&mut first, &mut log, &mut events);
    assert_eq!(log.len(), 1);
    let mut second = joiner(5, &log);
    assert_eq!(second.join.since(), Incarnation(3), "it speaks for the life before it");
    for stack in [&mut first, &mut second] {
        stack.taken(Time::ZERO, given());
        assert!(stack.writing.under_way.is_empty());
    }
}

/// Puts a member out, and then into another group, as if it had joined that.
fn join_another(stack: &mut Stack) {
    stack.join_anew(Time::ZERO);
    stack.inside = configured(1).inside;
}

#[test]
fn what_was_asked_and_written_before_a_member_joins_anew_is_of_no_use_to_it() {
    let mut stack = configured(1);
    stack.is_giving = true;
    stack.ask_for_state();
    stack.submit(Time::ZERO, Level::Majority, b"x").expect("room");
    assert_eq!(stack.poll_transmit(Time::ZERO), None);
    let is_update = |(_, written): &(u64, Written)| matches!(written, Written::Updates(_));
    assert!(stack.writing.under_way.iter().any(is_update));
    (stack.writing.is_flushed, stack.decided) = (true, alloc::vec![second_view(&stack)]);
    join_another(&mut stack);
    assert!(!stack.writing.is_flushed && stack.decided.is_empty());
    stack.is_giving = true;
    stack.ask_for_state();
    stack.handle(Time::ZERO, Input::State(b"former")).expect("our own");
    assert!(stack.unfinished.is_some(), "that was the answer to another question");
    stack.handle(Time::ZERO, Input::State(b"present")).expect("our own");
    assert!(stack.unfinished.is_none());
    // Its present life has written none of these updates.
    stack.handle(Time::ZERO, Input::Persisted { number: stack.writing.number }).expect("our own");
}

/// Submits until the state is asked for, and then so many more. What is then in the log, and how much was submitted.
fn submit_while_the_state_is_made(stack: &mut Stack, more: u8) -> (Vec<Vec<u8>>, u8) {
    let (mut log, mut events, mut count) = (Vec::new(), Vec::new(), 0);
    let mut submit = |stack: &mut Stack, log: &mut Vec<Vec<u8>>, events: &mut Vec<Event>| {
        stack.submit(Time::ZERO, Level::Majority, &[count]).expect("room");
        records(stack, log, events);
        count += 1;
    };
    while !events.contains(&Event::WantsState) {
        submit(stack, &mut log, &mut events);
    }
    (0..more).for_each(|_| submit(stack, &mut log, &mut events));
    stack.handle(Time::ZERO, Input::State(&[])).expect("our own");
    records(stack, &mut log, &mut events);
    (log, count)
}

#[test]
fn updates_that_come_while_the_state_is_made_stay_in_the_log() {
    for (more, history_most, is_replaced) in [(0, 100, true), (10, 100, true), (10, 4, false)] {
        let mut stack = configured(1);
        stack.config.log.most_bytes = 500;
        let order = order::Config { history_most, ..config().order };
        stack.inside.as_mut().expect("it is in").order = {
            let view = stack.view().expect("it is in one").clone();
            Order::founding(order, member(0, 1), view)
        };
        let (mut log, count) = submit_while_the_state_is_made(&mut stack, more);
        assert_eq!(log.iter().map(Vec::len).sum::<usize>() < 500, is_replaced, "{more}, {history_most}");
        let mut again = resuming(2, &log);
        let mut events = Vec::new();
        for _ in 0..3 {
            stack.submit(Time::ZERO, Level::Majority, b"x").expect("room");
            records(&mut stack, &mut Vec::new(), &mut events);
        }
        assert!(!is_replaced || stack.order().map(Order::kept) <= Some(1), "nobody needs them any more");
        records(&mut again, &mut log, &mut events);
        assert_eq!(again.order().map(Order::delivered), Some(u64::from(count)));
    }
}

/// To replace the log costs as much as the state is long: so much is written in between.
#[test]
fn a_long_state_is_asked_for_more_seldom() {
    let mut questions = [0; 2];
    for (questions, bytes) in questions.iter_mut().zip([10, 5000]) {
        let (mut log, mut events) = (Vec::new(), Vec::new());
        let mut stack = configured(1);
        stack.config.log.most_bytes = 500;
        for update in 0..200_u8 {
            stack.submit(Time::ZERO, Level::Majority, &[update]).expect("room");
            records(&mut stack, &mut log, &mut events);
            if events.contains(&Event::WantsState) {
                events.clear();
                *questions += 1;
                stack.handle(Time::ZERO, Input::State(&alloc::vec![0; bytes])).expect("our own");
            }
        }
    }
    assert!(questions[0] > 2 * questions[1] && questions[1] > 0, "{questions:?}");
}
