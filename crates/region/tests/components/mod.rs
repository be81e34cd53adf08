//! Components of a task, each a process of the test program itself, which runs one of its cases there.

use comb_region::Task;
use comb_region::launch::{Launch, Outcome, Output, Printed};
use comb_region::task::Share;

/// Which case a component is to run.
const CASE: &str = "COMB_TEST_CASE";

/// What the components of a case do, by its name.
pub(crate) type Case = (&'static str, fn(&Task));

/// To be called by a test named `component`: in a component it runs the case, in the test program itself nothing.
pub(crate) fn run(cases: &[Case]) {
    let Ok(case) = std::env::var(CASE) else { return };
    let (_, run) = cases.iter().find(|(name, _)| *name == case).expect("a case");
    let task = Task::join().expect("the launcher is there");
    run(&task);
}

/// A case in so many components, to be run.
pub(crate) fn prepared(case: &str, count: u32, share: Share) -> Launch {
    Launch::new(std::env::current_exe().unwrap())
        .arguments(["--exact", "component", "--nocapture", "--test-threads=1"])
        .environment(CASE, case)
        .components(count)
        .share(share)
        .output(Output::Collected)
        .without_input()
}

pub(crate) fn launch(case: &str, count: u32, share: Share) -> Outcome {
    prepared(case, count, share).start().expect("started").wait()
}

/// All that the components have said.
pub(crate) fn said(outcome: &Outcome) -> String {
    let text = |of: &Printed| [&of.output[..], &of.error].map(String::from_utf8_lossy).concat();
    outcome.printed.iter().map(text).collect()
}

/// The case ends well in all of them.
pub(crate) fn pass(case: &str, count: u32, share: Share) {
    let outcome = launch(case, count, share);
    assert!(outcome.is_success(), "{case} with {count}, {share:?}:\n{}", said(&outcome));
}
