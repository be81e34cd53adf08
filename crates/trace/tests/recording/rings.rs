//! What is asked of io_uring, against what the program itself says of it.

use comb_trace::event::flag;
use comb_trace::kernel::Options;

use crate::calls::compare;
use crate::scene::{Scene, attach, command, run};

fn check(way: &str) {
    let Some(mut kernel) = attach(Options::default()) else { return };
    let scene = Scene::new();
    let program = scene.compile("rings.c");
    let place = scene.place("place");
    let (recording, lines) = run(&mut kernel, command(program, &[&way, &place]));
    if lines.starts_with("no io_uring") {
        println!("did not run: {lines}");
        return;
    }
    assert!(lines.lines().count() > 30);
    let rings = recording.between_marks().into_iter().filter(|seen| seen.event.flags & flag::IO_URING != 0);
    compare(&lines, &rings.collect::<Vec<_>>());
    assert_eq!(recording.counters.lost, 0);
}

#[test]
fn what_a_ring_is_asked_for_is_recorded() {
    check("plain");
}

/// A thread of the kernel's takes the requests, and the program makes no calls.
#[test]
fn what_a_ring_takes_by_itself_is_recorded() {
    check("polled");
}
