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
    assert_eq!(resuming(1, &log).me(), member(0, 2));
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
