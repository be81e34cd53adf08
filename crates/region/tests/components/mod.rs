//! Components of a task, each a process of the test program itself, which runs one of its cases there.

use std::time::Duration;

use comb_region::Task;
use comb_region::launch::{Launch, Outcome, Output, Printed};
use comb_region::task::Share;

/// Which case a component is to run.
const CASE: &str = "COMB_TEST_CASE";

/// For what takes seconds on an idle machine. A case that runs into this has failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Tasks of `stress.rs`: three cases, each in five settings, and one of them with little room.
const STRESSES: f64 = 16.0;

/// How long a task goes on that only time ends.
pub(crate) fn stress_time() -> Duration {
    let seconds = std::env::var("COMB_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(7.0);
    Duration::from_secs_f64(seconds / STRESSES)
}

/// What the components of a case do, by its name.
pub(crate) type Case = (&'static str, fn(&Task));

/// To be called by a test named `component`: in a component it runs the case, in the test program itself nothing.
pub(crate) fn run(cases: &[Case]) {
    let Ok(case) = std::env::var(CASE) else { return };
    let (_, run) = cases.iter().find(|(name, _)| *name == case).expect("a case");
    let task = Task::join().expect("the launcher is there");
    run(&task);
}

/// What runs a case in so many components.
pub(crate) fn prepare(case: &str, count: u32, share: Share) -> Launch {
    Launch::new(std::env::current_exe().unwrap())
        .arguments(["--exact", "component", "--nocapture", "--test-threads=1"])
        .environment(CASE, case)
        .components(count)
        .share(share)
        .output(Output::Collected)
        .without_input()
        .limit(LIMIT + 2 * stress_time())
}

/// All that the components have said.
pub(crate) fn said(outcome: &Outcome) -> String {
    let text = |of: &Printed| [&of.output[..], &of.error].map(String::from_utf8_lossy).concat();
    outcome.printed.iter().map(text).collect()
}

/// It ends well in all of them.
#[track_caller]
pub(crate) fn succeeds(launch: &Launch, what: &str) {
    let outcome = launch.start().expect("started").wait();
    assert_eq!(outcome.late, None, "{what} is not over:\n{}", said(&outcome));
    assert!(outcome.is_success(), "{what}: {:?}\n{}", outcome.failed, said(&outcome));
}

/// The case ends well in all of them.
#[track_caller]
pub(crate) fn pass(case: &str, count: u32, share: Share) {
    succeeds(&prepare(case, count, share), &format!("{case} with {count}, {share:?}"));
}

/// And where the kernel refuses userfaultfd: rights are protections of mappings.
#[track_caller]
pub(crate) fn pass_by_protections(case: &str, count: u32) {
    let launch = prepare(case, count, Share::Copy).environment("COMB_WITHOUT", "userfaultfd");
    succeeds(&launch, &format!("{case} with {count}, by protections"));
}
