//! A mesh when peers are not there, read slowly, end, or are given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_group::{Arrivals, Mesh, Names, NodeId};
use comb_net::{EndpointOptions, InProcess};

const SOON: Duration = Duration::from_secs(10);

fn mesh(agent: &InProcess, node: u32) -> Mesh {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let agent = agent.connect(&names.process(NodeId(node))).expect("an agent");
    Mesh::join(&agent, NodeId(node), names, EndpointOptions::default()).expect("an endpoint")
}

fn send(mesh: &mut Mesh, to: u32, number: u32) {
    mesh.send(NodeId(to), &Arc::from(number.to_le_bytes()));
}

/// What has come, and how many peers have ended.
fn poll(mesh: &mut Mesh) -> (Vec<u32>, usize) {
    let mut arrivals = Arrivals::default();
    mesh.poll(&mut arrivals);
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("a number"));
    (arrivals.messages().map(|(_, bytes)| number(bytes)).collect(), arrivals.ended().len())
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Node 0 and node 1, with a channel that node 0 has opened.
fn connected(agent: &InProcess) -> (Mesh, Mesh) {
    let (mut own, mut other) = (mesh(agent, 0), mesh(agent, 1));
    send(&mut own, 1, 0);
    until("no channel", || {
        poll(&mut own);
        !poll(&mut other).0.is_empty()
    });
    (own, other)
}

#[test]
fn what_is_sent_to_nobody_is_lost_and_never_comes_later() {
    let agent = InProcess::start();
    let mut own = mesh(&agent, 0);
    for lost in 1..=2 {
        // The second time nobody is asked, for a while.
        send(&mut own, 1, lost);
        until("it waits for ever", || {
            poll(&mut own);
            own.lost() == u64::from(lost)
        });
    }
    let mut other = mesh(&agent, 1);
    until("nothing comes", || {
        send(&mut own, 1, 9);
        poll(&mut own);
        let come = poll(&mut other).0;
        assert!(come.iter().all(|&number| number == 9), "{come:?}");
        !come.is_empty()
    });
}

#[test]
fn who_could_not_be_reached_is_not_asked_for_at_once_again() {
    let agent = InProcess::start();
    let mut own = mesh(&agent, 0);
    until("it asks every time", || {
        send(&mut own, 1, 0);
        let lost = own.lost();
        until("it waits for ever", || {
            poll(&mut own);
            own.lost() > lost
        });
        let lost = own.lost();
        send(&mut own, 1, 0);
        own.lost() > lost
    });
}

#[test]
fn what_finds_room_goes_behind_what_found_none() {
    let agent = InProcess::start();
    let (mut own, mut other) = connected(&agent);
    (0..200).for_each(|number| send(&mut own, 1, number));
    let (mut sent, mut come) = (200, Vec::new());
    until("some never come", || {
        come.append(&mut poll(&mut other).0);
        // There is room now, and it is others' turn.
        if sent < 210 {
            send(&mut own, 1, sent);
            sent += 1;
        }
        poll(&mut own);
        come.len() == 210
    });
    assert!(come.iter().copied().eq(0..210), "{come:?}");
}

#[test]
fn the_order_stays_if_both_open_a_channel() {
    let agent = InProcess::start();
    let mut meshes = [mesh(&agent, 0), mesh(&agent, 1)];
    let (mut sent, mut come) = ([0; 2], [Vec::new(), Vec::new()]);
    until("some never come", || {
        for own in 0..2 {
            // So that much lies unread in all channels.
            for _ in 0..5 {
                if sent[own] < 100 {
                    send(&mut meshes[own], [1, 0][own], sent[own]);
                    sent[own] += 1;
                }
                come[own].append(&mut poll(&mut meshes[own]).0);
            }
        }
        come.iter().all(|come| come.len() == 100)
    });
    assert!(come.iter().all(|come| come.iter().copied().eq(0..100)), "{come:?}");
}

#[test]
fn an_end_that_a_send_finds_is_told_once() {
    let agent = InProcess::start();
    let (mut own, other) = connected(&agent);
    drop(other);
    until("it is never lost", || {
        send(&mut own, 1, 0);
        own.lost() > 0
    });
    let mut ends = 0;
    until("it is not told", || {
        ends += poll(&mut own).1;
        ends > 0
    });
    (0..100).for_each(|_| ends += poll(&mut own).1);
    assert_eq!(ends, 1);
}

#[test]
fn what_waits_for_one_that_ends_is_lost_and_its_next_life_does_not_get_it() {
    let agent = InProcess::start();
    let (mut own, other) = connected(&agent);
    (0..200).for_each(|number| send(&mut own, 1, number));
    drop(other);
    until("its end is not told", || poll(&mut own).1 == 1);
    assert!(own.lost() > 10, "a ring has fewer slots");
    let mut other = mesh(&agent, 1);
    until("nothing comes", || {
        send(&mut own, 1, 999);
        poll(&mut own);
        let come = poll(&mut other).0;
        assert!(come.iter().all(|&number| number == 999), "{come:?}");
        !come.is_empty()
    });
}

#[test]
fn what_can_never_go_is_lost_and_holds_up_nothing() {
    let agent = InProcess::start();
    let (mut own, mut other) = connected(&agent);
    own.send(NodeId(1), &vec![0; 1 << 26].into());
    send(&mut own, 1, 7);
    until("nothing comes", || {
        poll(&mut own);
        poll(&mut other).0 == [7]
    });
    assert_eq!(own.lost(), 1);
}

#[test]
fn who_is_given_up_hears_of_it_and_may_be_turned_to_anew() {
    let agent = InProcess::start();
    let (mut own, mut other) = connected(&agent);
    own.drop_peer(NodeId(1));
    until("it hears nothing", || poll(&mut other).1 == 1);
    send(&mut own, 1, 7);
    until("nothing comes", || {
        poll(&mut own);
        poll(&mut other).0 == [7]
    });
    drop(other);
    until("its end is not told", || poll(&mut own).1 == 1);
}
