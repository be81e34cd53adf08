//! What the C runtime of compiled programs stands on: a program in C that opens libcomb.so as it does, and uses all of comb_program.h.

#[path = "../../region/tests/hosts/mod.rs"]
mod hosts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use comb_region::launch::{Launch, Outcome, Output};
use comb_region::task::{Share, Spread};

/// For what takes seconds on an idle machine. A program that runs into this has failed.
const LIMIT: Duration = Duration::from_secs(240);

/// This program as a part of a task on another host.
#[test]
fn part() {
    hosts::serve();
}

/// The program, at addresses that are the same in every process. It is not linked with libcomb.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("component-{}", std::process::id()));
        let done = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-no-pie", "-pthread"])
            .arg(here.join("tests/compiled/component.c"))
            .arg("-I")
            .arg(here.join("include"))
            .args(["-ldl", "-o"])
            .arg(&program)
            .output()
            .expect("a compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    })
}

fn launch(status: &str) -> Launch {
    // Components that wait for it must not end each other's tests by their number.
    Launch::new(program())
        .argument(status)
        .argument("alike")
        .spread(Spread::Fill(3))
        .output(Output::Collected)
        .without_input()
        .limit(LIMIT)
}

fn said(outcome: &Outcome) -> String {
    let of = |printed: &comb_region::launch::Printed| {
        [&printed.output[..], &printed.error].map(String::from_utf8_lossy).concat()
    };
    outcome.printed.iter().map(of).collect()
}

#[track_caller]
fn is_well(launch: &Launch, expected: &str) {
    let outcome = launch.start().expect("started").wait();
    assert_eq!(said(&outcome), expected);
    assert!(outcome.is_success(), "{outcome:?}");
}

#[test]
fn by_shared_page_frames() {
    for count in 1..=3 {
        let expected = format!("all is well on {count} components of 1 hosts, which share\n");
        is_well(&launch("0").components(count), &expected);
    }
}

#[test]
fn by_copies() {
    for count in 2..=3 {
        let expected = format!("all is well on {count} components of 1 hosts\n");
        is_well(&launch("0").components(count).share(Share::Copy), &expected);
    }
}

#[test]
fn on_two_hosts() {
    is_well(&hosts::on(launch("0"), &[2, 1]), "all is well on 3 components of 2 hosts\n");
}

/// The others end with component 0, whatever their threads do, and have not failed.
#[test]
fn the_status_is_that_of_component_0() {
    for share in [Share::Auto, Share::Copy] {
        let outcome = launch("7").components(3).share(share).start().expect("started").wait();
        assert_eq!(outcome.status(), 7, "{}", said(&outcome));
        assert_eq!(outcome.failed.map(|failed| failed.rank), Some(0));
    }
}

#[test]
fn components_that_differ_are_told() {
    let launch = Launch::new(program()).argument("0").components(2).output(Output::Collected).without_input();
    let outcome = launch.limit(LIMIT).start().expect("started").wait();
    assert_eq!(outcome.status(), 3);
    assert!(said(&outcome).contains("the components are not alike"), "{}", said(&outcome));
}
