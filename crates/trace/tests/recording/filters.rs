//! Whom the recorder looks at, and whom it does not.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use comb_trace::history::Ending;
use comb_trace::kernel::{Kernel, KernelError, Options};
use comb_trace::source::Source;
use comb_trace::trace_file::{Head, Listener};
use comb_trace::{Operation, machine};

use crate::loss::{Told, command};
use crate::scene::{self, Recording, Scene, attach, record, run};

fn asks_for(recording: &Recording, path: &str) -> usize {
    recording.count(|seen| seen.path == path.as_bytes())
}

#[test]
fn only_the_program_that_was_started_and_its_descendants_are_seen() {
    let Some(mut kernel) = attach(Options::default()) else { return };
    let script = "test -e /comb-first; (test -e /comb-second; sh -c 'test -e /comb-third'; true) & wait";
    let mut others = Command::new("sh");
    let mut others = others.args(["-c", "while :; do test -e /comb-other; done"]).spawn().unwrap();
    let _ = fs::metadata("/comb-own");
    let (recording, _) = run(&mut kernel, scene::command("sh", &[&"-c", &script]));
    others.kill().unwrap();
    others.wait().unwrap();
    for path in ["/comb-first", "/comb-second", "/comb-third"] {
        assert_eq!(asks_for(&recording, path), 1, "{path}");
    }
    assert_eq!(asks_for(&recording, "/comb-other") + asks_for(&recording, "/comb-own"), 0);
    let mut known: BTreeSet<u32> =
        recording.seen.first().map(|seen| seen.event.process).into_iter().collect();
    for seen in recording.seen.iter().filter(|seen| seen.event.process != 0) {
        if seen.operation == Operation::ProcessBegins {
            assert!(known.contains(&u32::try_from(seen.event.argument).unwrap()), "{seen:?}");
            known.insert(seen.event.process);
        }
        assert!(known.contains(&seen.event.process), "{seen:?}");
    }
    assert_eq!(known.len(), 3, "the first, the one in parentheses, and the last");
}

#[test]
fn whoever_is_followed_is_seen_with_all_threads_and_later_children() {
    let Some(mut kernel) = attach(Options::default()) else { return };
    let scene = Scene::new();
    let program = scene.compile("workers.c");
    let place = scene.place("place");
    let mut told = Told::new(command(&program, "threads", &place).spawn().unwrap());
    let process = told.number();
    let mut recording = Recording::new();
    recording
        .history
        .head(&Head { processes: machine::process(process).into_iter().collect(), ..Head::default() });
    kernel.follow(process).unwrap();
    told.say("");
    told.end();
    recording.fetch(&mut kernel);
    for path in [
        "/comb-thread-0",
        "/comb-thread-1",
        "/comb-thread-2",
        "/comb-thread-3",
        "/comb-thread-7",
        "/comb-child",
    ] {
        assert_eq!(asks_for(&recording, path), 1, "{path}");
    }
    assert_eq!(recording.of(Operation::Read).filter(|seen| seen.event.process == process).count(), 2);
    // That one of its threads has ended does not end the process, nor what it has open.
    recording.history.finish();
    let kept: Vec<_> = recording
        .history
        .chronicler
        .instances
        .iter()
        .filter(|(_, path)| path.ends_with(b"place/kept"))
        .collect();
    let [(instance, _)] = kept[..] else { panic!("one session: {kept:?}") };
    assert_eq!((instance.ending, instance.reads, instance.is_seen_from_its_open), (Ending::Close, 2, false));
    let programs = recording.history.processes.programs();
    assert_eq!(programs.iter().filter(|program| program.process == process).count(), 1);
    assert!(matches!(kernel.follow(process), Err(error) if error.raw_os_error() == Some(libc::ESRCH)));
}

#[test]
fn everybody_is_seen_but_not_the_recorder() {
    let Some(mut kernel) = attach(Options { everybody: true, ..Options::default() }) else { return };
    let _ = fs::metadata("/comb-own");
    let mut other = Command::new("sh");
    let child = other.args(["-c", "test -e /comb-everybody"]).stdout(Stdio::piped()).spawn().unwrap();
    let (recording, _) = record(&mut kernel, child);
    assert_eq!(asks_for(&recording, "/comb-everybody"), 1);
    assert_eq!(asks_for(&recording, "/comb-own"), 0);
    let own = std::process::id();
    assert_eq!(
        recording.count(|seen| seen.event.process == own && seen.operation != Operation::ProcessBegins),
        0
    );
}

#[test]
fn calls_by_the_way_of_32_bit_programs_are_counted_and_nothing_else() {
    let Some(mut kernel) = attach(Options::default()) else { return };
    let scene = Scene::new();
    let program = scene.compile("workers.c");
    let place = scene.place("place");
    let child = kernel.start(command(&program, "foreign", &place)).unwrap();
    let (recording, output) = record(&mut kernel, child);
    if output.status.signal() == Some(libc::SIGSEGV) {
        println!("did not run: this kernel has no 32-bit calls");
        return;
    }
    assert!(output.status.success());
    assert_eq!(recording.counters.foreign, 4);
    assert_eq!(recording.between_marks().len(), 0);
}

/// Set in the process that is nobody's.
const NOBODY: &str = "COMB_TEST_NOBODY";

#[test]
fn nobody_is_told_that_it_is_not_permitted() {
    if std::env::var(NOBODY).is_ok() {
        let error = Kernel::attach(false).err().expect("nobody may not");
        assert!(matches!(error, KernelError::NotPermitted), "{error:?}");
        return;
    }
    if attach(Options::default()).is_none() {
        return;
    }
    // Nobody may not come where the program of this test is, perhaps, but may execute what is opened.
    let program = fs::File::open("/proc/self/exe").unwrap();
    rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&program);
    let mut second = Command::new(format!("/proc/self/fd/{number}"));
    second.args(["--exact", "filters::nobody_is_told_that_it_is_not_permitted"]);
    let output = second.env(NOBODY, "1").current_dir("/").uid(65_534).gid(65_534).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
