//! Tasks of one host, started by the library: components find each other, fail together, and leave nothing.

mod conditions;

use std::path::{Path, PathBuf};
use std::time::Duration;

use comb_region::launch::{Binding, End, How, Launch, LaunchError, Outcome, Output};
use comb_region::task::{Description, Share};
use conditions::wait_until;

#[path = "../examples/hello_task.rs"]
mod hello_task;

fn shell(script: &str) -> Launch {
    Launch::new("sh").arguments(["-c", script]).output(Output::Collected).without_input()
}

fn run(launch: &Launch) -> Outcome {
    launch.start().unwrap().wait()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Not a test, but the program of some: it is what a launched test binary runs.
#[test]
fn component() {
    if Description::from_environment().is_ok() {
        // The tests' harness may have begun a line.
        println!();
        hello_task::main().unwrap();
    }
}

fn hello() -> Launch {
    let program = std::env::current_exe().unwrap();
    Launch::new(program).arguments(["--exact", "component", "--nocapture"]).output(Output::Collected)
}

#[test]
fn all_components_exchange_messages() {
    for share in [Share::Auto, Share::Copy] {
        let outcome = run(&hello().components(4).share(share));
        let errors: Vec<_> = outcome.printed.iter().map(|printed| text(&printed.error)).collect();
        assert!(outcome.is_success(), "{:?}: {errors:?}", outcome.failed);
        for (rank, printed) in outcome.printed.iter().enumerate() {
            for from in (0..4).filter(|from| *from != rank) {
                let line = format!("{rank}: hello {rank}, from {from}\n");
                assert!(text(&printed.output).contains(&line), "{outcome:?}");
            }
        }
    }
    assert!(run(&hello()).is_success(), "one alone");
}

/// Who does not hear is killed, and who has much to say does not put the limit off.
#[test]
fn a_task_that_is_not_over_within_its_limit_is_ended_and_says_so() {
    let limit = Duration::from_millis(200);
    for script in ["trap '' TERM; while :; do sleep 0.01; done", "yes"] {
        let outcome = run(&shell(script).components(2).limit(limit));
        assert_eq!(
            (outcome.late, outcome.status(), outcome.is_success()),
            (Some(limit), 124, false),
            "{script}"
        );
    }
    // Told to end, they end as if that had been asked of them.
    let outcome = run(&shell("trap 'exit 0' TERM; while :; do sleep 0.01; done").limit(limit));
    assert_eq!((&outcome.failed, outcome.is_success(), outcome.status()), (&None, false, 124));
    for limit in [Duration::from_secs(600), Duration::MAX] {
        let outcome = run(&shell("exit 3").limit(limit));
        assert_eq!((outcome.late, outcome.status()), (None, 3));
    }
}

#[test]
fn frames_are_shared_by_components_of_one_host_unless_they_are_to_copy() {
    let frames = |launch: Launch| -> Vec<Option<(i32, String)>> {
        let outcome = run(&launch);
        let of = |printed: &[u8]| {
            let frames = Description::parse(text(printed).lines().next()?).unwrap().frames?;
            Some((frames, text(printed).to_owned()))
        };
        outcome.printed.iter().map(|printed| of(&printed.output)).collect()
    };
    // What each finds under that number: its size, and which file it is.
    let script = r#"echo "$COMB_TASK"
        number=${COMB_TASK#*'"frames":'}; number=${number%%,*}
        [ "$number" = null ] || stat -L -c '%s %d %i' /proc/self/fd/$number"#;
    let shared = frames(shell(script).components(2));
    let of = |rank: usize| {
        let (number, text) = shared[rank].as_ref().expect("has frames");
        assert!(*number > 2);
        text.lines().nth(1).expect("it is open").to_owned()
    };
    assert!(of(0).starts_with(&format!("{} ", comb_memory::HEAP_BYTES)));
    assert_eq!(of(0), of(1));
    assert_eq!(frames(shell(script).components(2).share(Share::Copy)), [None, None]);
    assert_eq!(frames(shell(script)), [None]);
}

#[test]
fn components_are_told_what_the_launcher_was() {
    let launch = shell("echo \"$COMB_TASK\"; pwd; echo \"$COLOUR\"").components(3);
    let launch = launch.memory_bytes(4096).checkpoint("/tmp/checkpoints", true).directory("/usr");
    let outcome = run(&launch.environment("COLOUR", "red"));
    assert!(outcome.is_success());
    for (rank, printed) in (0..).zip(&outcome.printed) {
        let lines: Vec<&str> = text(&printed.output).lines().collect();
        let description = Description::parse(lines[0]).unwrap();
        assert_eq!((description.rank, description.components.len()), (rank, 3));
        assert_eq!(description.memory_bytes, 4096);
        let checkpoint = description.checkpoint.unwrap();
        assert_eq!(
            (checkpoint.directory.as_path(), checkpoint.restores),
            (Path::new("/tmp/checkpoints"), true)
        );
        assert_eq!(lines[1..], ["/usr", "red"]);
        assert!(!description.agent.parent().unwrap().exists(), "the agent's directory goes with the task");
    }
}

/// One fails, and the others are told to end; who does not hear is killed.
#[test]
fn the_first_failure_ends_all_and_is_the_tasks() {
    let ready = std::env::temp_dir().join(format!("comb-launch-ready-{}", std::process::id()));
    let script = r#"
        case "$COMB_TASK" in
            *'"rank":2'*) while ! [ -e "$READY" ]; do sleep 0.01; done; exit 7;;
            *'"rank":1'*) trap 'echo told; exit 0' TERM; : > "$READY"; while :; do sleep 0.01; done;;
            *) trap '' TERM; while :; do sleep 0.01; done;;
        esac"#;
    let outcome = run(&shell(script).components(4).environment("READY", &ready));
    std::fs::remove_file(ready).unwrap();
    let End { rank, how, .. } = outcome.failed.clone().unwrap();
    assert_eq!((rank, how, outcome.status()), (2, How::Exited(7), 7));
    assert_eq!(text(&outcome.printed[1].output), "told\n");
}

#[test]
fn a_component_that_is_killed_ends_the_task_with_that_signal() {
    let outcome =
        run(&shell(r#"case "$COMB_TASK" in *'"rank":1'*) kill -9 $$;; esac; exec sleep 1000"#).components(3));
    let failed = outcome.failed.clone().unwrap();
    assert_eq!((failed.rank, &failed.how, outcome.status()), (1, &How::Killed(9), 137));
    assert_eq!(
        failed.to_string(),
        format!("component 1 (pid {}) was killed by signal 9 (SIGKILL)", failed.process)
    );
}

/// A component's own children are in its group: they end with it.
#[test]
fn what_components_started_ends_with_them() {
    let outcome = run(&shell("sleep 1000 >/dev/null 2>&1 & echo $!").components(2));
    assert!(outcome.is_success());
    for printed in &outcome.printed {
        let child = PathBuf::from(format!("/proc/{}/stat", text(&printed.output).trim()));
        // One that nobody reaps stays, dead.
        let is_gone = || std::fs::read_to_string(&child).map_or(true, |stat| stat.contains(") Z "));
        wait_until("the end of a component's child", is_gone);
    }
}

#[test]
fn a_task_that_is_dropped_or_interrupted_is_ended() {
    let endless = shell("trap 'exit 3' INT; echo $$; while :; do sleep 0.01; done").components(2);
    let running = endless.start().unwrap();
    let control = running.control();
    let interrupter = std::thread::spawn(move || {
        // Before its trap is set, a signal is its end as well.
        control.interrupt(2);
    });
    let outcome = running.wait();
    interrupter.join().unwrap();
    assert_eq!((outcome.interrupted, outcome.status()), (Some(2), 130), "{outcome:?}");

    let deaf = shell("trap '' INT TERM; while :; do sleep 0.01; done").components(2).start().unwrap();
    let control = deaf.control();
    control.interrupt(2);
    control.interrupt(2);
    assert_eq!(deaf.wait().interrupted, Some(2), "the second time they are killed");

    let scratch = std::env::temp_dir().join(format!("comb-launch-{}", std::process::id()));
    let script = format!("echo $$ > {}; exec sleep 1000", scratch.display());
    let running = shell(&script).start().unwrap();
    let pid = || std::fs::read_to_string(&scratch).ok().filter(|text| text.ends_with('\n'));
    wait_until("the component's word", || pid().is_some());
    let process = format!("/proc/{}", pid().unwrap().trim());
    assert!(Path::new(&process).exists());
    drop(running);
    assert!(!Path::new(&process).exists());
    std::fs::remove_file(scratch).unwrap();
}

#[test]
fn all_that_a_component_wrote_is_there() {
    let line = "0123456789012345678901234567890123456789";
    let script = format!("i=0; while [ $i -lt 20000 ]; do echo {line}; i=$((i+1)); done; echo last >&2");
    let outcome = run(&shell(&script).components(2));
    for printed in &outcome.printed {
        assert_eq!(printed.output.len(), 20_000 * 41);
        assert_eq!(text(&printed.error), "last\n");
    }
}

/// Then no output is taken while the components run, and what is left in their pipes when they end is taken at their end.
#[test]
fn what_was_written_while_nobody_waited_is_there_too() {
    // More than a launcher keeps for whoever waits, one by one; and then what a pipe holds.
    let script = r#"i=0; while [ $i -lt 400 ]; do echo line >&2; sleep 0.001; i=$((i+1)); done; printf %060000d 0; : > "$DONE""#;
    let done = std::env::temp_dir().join(format!("comb-launch-done-{}", std::process::id()));
    let running = shell(script).environment("DONE", &done).start().unwrap();
    wait_until("the component's last act", || done.exists());
    std::fs::remove_file(done).unwrap();
    let outcome = running.wait();
    assert_eq!((outcome.printed[0].error.len(), outcome.printed[0].output.len()), (2000, 60_000));
}

#[test]
fn components_are_bound_in_turn() {
    let outcome = run(&shell("grep Cpus_allowed_list /proc/self/status").components(3).bind(Binding::All));
    let cores: Vec<&str> = outcome
        .printed
        .iter()
        .map(|printed| text(&printed.output).rsplit_once('\t').unwrap().1.trim())
        .collect();
    let all = std::thread::available_parallelism().unwrap().get();
    assert!(cores.iter().all(|core| core.parse::<u32>().is_ok()), "{cores:?}");
    assert_eq!(cores[0] == cores[1], all == 1, "{cores:?}");
}

#[test]
fn what_cannot_be_started_says_why_before_anything_runs() {
    let fails = |launch: Launch| launch.start().map(drop).unwrap_err();
    assert!(matches!(fails(Launch::new("/no/such")), LaunchError::NoProgram { .. }));
    assert!(matches!(fails(Launch::new("no-such-program")), LaunchError::NotInPath { .. }));
    assert!(matches!(fails(Launch::new("sh").components(0)), LaunchError::Count(0)));
    assert!(matches!(fails(Launch::new("sh").components(5000)), LaunchError::Count(5000)));
    assert!(matches!(fails(Launch::new("sh").directory("/no/such")), LaunchError::NoDirectory(_)));
    assert!(matches!(fails(Launch::new("sh").bind(Binding::Cores(vec![1000]))), LaunchError::Cores(_)));
}
