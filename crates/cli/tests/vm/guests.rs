//! Guests that hang, and what time it is in them.

use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// What the time is in a guest is what it is here.
#[track_caller]
fn has_the_time(place: &Place, machine: &str) {
    let before = now();
    let within: u64 = place.within(machine, "date +%s").parse().unwrap();
    assert!((before - 2..=now() + 2).contains(&within), "{within} is not {before}");
}

#[test]
fn a_machine_that_goes_on_has_the_right_time() {
    let Some(state) = state() else { return };
    let place = Place::new("time", state);
    // The template's own time is long ago.
    place.says(&["vm", "clone", "small", "--as", "first"]);
    let image = fs::read_dir(state.join("comb/images/small")).unwrap();
    let templates =
        image.filter_map(|entry| entry.unwrap().path().join("state").metadata().ok()?.modified().ok());
    let made = templates.max().unwrap();
    while made.elapsed().unwrap_or_default() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(100));
    }
    place.says(&["vm", "clone", "small", "--as", "second"]);
    has_the_time(&place, "second");
    // So is that of a machine that was saved long ago, as it believes.
    place.within("first", "date -s @1000000000");
    place.says(&["vm", "snapshot", "first", "old"]);
    place.says(&["vm", "restore", "old", "--as", "third"]);
    place.says(&["vm", "snapshots", "--remove", "old"]);
    has_the_time(&place, "third");
    let first: u64 = place.within("first", "date +%s").parse().unwrap();
    assert!(first < 1_000_100_000, "{first}: nobody has set that one's");
}

#[test]
fn a_guest_that_answers_nothing_hangs_and_is_replaced() {
    let Some(state) = state() else { return };
    let place = Place::new("hangs", state);
    place.says(&["vm", "clone", "small", "--as", "stands"]);
    place.says(&["vm", "clone", "small", "--as", "silent", "--restart"]);
    place.says(&["vm", "clone", "small", "--as", "bystander"]);
    let stands = place.await_machine("stands", |machine| machine["state"] == "up");
    signal(&stands["engine"], Signal::STOP);
    // One in which the agent is stopped, which it cannot be told from.
    let (said, _) = place.fails(&["vm", "exec", "silent", "--", "sh", "-c", "kill -STOP $PPID"]);
    assert!(said.contains("silent: the machine has ended"), "{said}");
    place.await_machine("silent", |machine| machine["replaced"] == 1 && machine["state"] == "up");
    assert_eq!(place.within("silent", "hostname"), "silent");
    // Without --restart it is there for as long as its user wants.
    place.await_machine("stands", |machine| machine["state"] == "hung" && machine["replaced"] == 0);
    let (said, _) = place.fails(&["vm", "exec", "stands", "--", "true"]);
    assert!(said.contains("the guest does not answer: it is hung"), "{said}");
    signal(&stands["engine"], Signal::CONT);
    place.await_machine("stands", |machine| machine["state"] == "up");
    assert_eq!(place.within("stands", "hostname"), "stands");
    let bystander = place.await_machine("bystander", |machine| machine["state"] == "up");
    assert_eq!(bystander["replaced"], 0);
}
