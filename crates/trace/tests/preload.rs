//! Programs that load the library: what they do is seen, exactly, and they do not notice.

#[path = "preload/watched.rs"]
mod watched;

#[path = "preload/counted.rs"]
mod counted;

#[path = "preload/unnoticed.rs"]
mod unnoticed;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comb_trace::event::flag;
use comb_trace::preload::Preload;
use comb_trace::source::Source;
use comb_trace::{Class, Operation};
use watched::{Folder, preload, watch};

/// More than any of these programs puts into it.
const LARGE_CELLS: usize = 1 << 18;

fn shell(script: &str, folder: &Folder) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(&folder.0);
    command
}

#[test]
fn the_library_is_built_wherever_a_compiler_can() {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let has_compiler = Command::new(compiler).arg("--version").output().is_ok();
    if cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) && has_compiler {
        Preload::new().map(drop).unwrap();
    }
}

#[test]
fn a_running_process_cannot_be_followed_and_the_reason_says_what_can_be_done() {
    let Some(mut preload) = preload(64) else { return };
    let error = preload.follow(std::process::id()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert!(error.to_string().contains("comb trace record -- COMMAND"));
    assert!(preload.lacks().len() > 3);
}

#[test]
fn the_library_is_gone_when_the_recording_has_ended() {
    let Some(mut preload) = preload(64) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", "").stdout(Stdio::piped());
    let output = preload.start(command).unwrap().wait_with_output().unwrap();
    let library = String::from_utf8(output.stdout).unwrap();
    let library = Path::new(library.trim());
    assert!(library.is_file(), "{}", library.display());
    drop(preload);
    assert!(!library.parent().unwrap().exists());
}

#[test]
fn what_is_to_be_loaded_anyway_still_is() {
    let Some(preload) = preload(LARGE_CELLS) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $LD_PRELOAD; env -i /usr/bin/env"]).env("LD_PRELOAD", "libm.so.6");
    let seen = watch(preload, command, true);
    let output = String::from_utf8(seen.output.stdout).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].ends_with("/libcomb_trace.so:libm.so.6"), "{output}");
    assert!(lines[1].starts_with("LD_PRELOAD=/") && lines[1].ends_with("/libcomb_trace.so"), "{output}");
}

#[test]
fn every_record_of_many_threads_arrives() {
    let Some(preload) = preload(LARGE_CELLS) else { return };
    let folder = Folder::new("threads");
    let mut command = Command::new(folder.compiled("readers"));
    std::fs::write(folder.0.join("file"), [7; 4096]).unwrap();
    command.current_dir(&folder.0).args(["file", "8", "20000"]);
    let seen = watch(preload, command, true);
    assert!(seen.status().success());
    assert_eq!((seen.count(Operation::Read), seen.counters.lost), (8 * 20_000, 0));
    let read: i64 = seen
        .operations()
        .filter(|(operation, ..)| *operation == Operation::Read)
        .map(|(_, event, _)| event.result)
        .sum();
    assert_eq!(read, 8 * 20_000 * 64);
    // The process itself, and eight threads that share its descriptors; each ends.
    assert_eq!(seen.count(Operation::ProcessBegins), 9);
    assert_eq!(seen.count(Operation::ProcessEnds), 9);
    for (event, _) in &seen.events {
        let is_first = event.thread == event.process;
        assert!(is_first || event.operation != Operation::Open as u8);
    }
}

#[test]
fn what_finds_no_room_is_counted_to_the_last_record() {
    let folder = Folder::new("full");
    let program = folder.compiled("readers");
    std::fs::write(folder.0.join("file"), [7; 4096]).unwrap();
    let run = |cells, is_read_meanwhile| {
        let mut command = Command::new(&program);
        command.current_dir(&folder.0).args(["file", "4", "20000"]);
        Some(watch(preload(cells)?, command, is_read_meanwhile))
    };
    let (Some(all), Some(unread), Some(read)) = (run(LARGE_CELLS, true), run(256, false), run(256, true))
    else {
        return;
    };
    assert_eq!((all.counters.lost, all.counters.recorded), (0, all.events.len() as u64));
    for some in [unread, read] {
        assert!(some.status().success());
        assert!(some.counters.lost > 0, "256 have room, and there is only one who reads");
        assert_eq!(some.events.len() as u64, some.counters.recorded);
        assert_eq!(some.counters.recorded + some.counters.lost, all.counters.recorded);
    }
}

/// Records of several cells must not reach over the end of what is free into those that nobody has read.
#[test]
fn of_a_full_ring_the_first_records_are_left_as_they_are() {
    let folder = Folder::new("names");
    let program = folder.compiled("names");
    for cells in [16, 64, 512] {
        let Some(preload) = preload(cells) else { return };
        let mut command = Command::new(&program);
        command.arg("2000");
        let seen = watch(preload, command, false);
        assert!(seen.status().success());
        let looks: Vec<_> =
            seen.operations().filter(|(operation, ..)| *operation == Operation::Status).collect();
        assert!(!looks.is_empty() && seen.counters.lost > 0);
        let mut last = None;
        for (_, event, texts) in looks {
            let text = std::str::from_utf8(&texts[0]).unwrap();
            let number: usize = text.split('/').nth(2).unwrap().parse().unwrap();
            let end = text.rsplit('/').next().unwrap();
            assert_eq!(end, "x".repeat(number * 37 % 700), "{number} of {cells}");
            assert_eq!(event.result, -2);
            assert!(last < Some(number));
            last = Some(number);
        }
        // They came first, and lie where the next lap starts.
        for first in [Operation::ProcessBegins, Operation::Name, Operation::Execute] {
            assert_eq!(seen.count(first), 1, "{first} of {cells}");
        }
        // And there was an end.
        assert_eq!(seen.counters.recorded + seen.counters.lost, 2000 + 4);
    }
}

#[test]
fn processes_that_are_killed_while_they_write_stop_nobody_else() {
    let Some(mut preload) = preload(1 << 10) else { return };
    let folder = Folder::new("killed");
    let program = folder.compiled("readers");
    std::fs::write(folder.0.join("file"), [7; 4096]).unwrap();
    let start = |preload: &mut Preload, times: &str| {
        let mut command = Command::new(&program);
        command.current_dir(&folder.0).args(["file", "2", times]).stdout(Stdio::null());
        preload.start(command).unwrap()
    };
    let mut from_killed = 0;
    for _ in 0..20 {
        let mut child = start(&mut preload, "1000000000");
        let mut fetched = 0;
        while fetched < 20_000 {
            fetched += preload.fetch(1 << 10, &mut |_, _| ());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        from_killed += fetched;
    }
    assert!(from_killed >= 20 * 20_000);
    // Whatever they left half done: it goes on.
    let mut child = start(&mut preload, "100");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut reads = 0;
    while reads < 200 {
        let number = child.id();
        preload.fetch(1 << 10, &mut |event, _| {
            reads += u32::from(event.process == number && event.operation == Operation::Read as u8);
        });
        // What it did while the ring stood still was lost: it does it again.
        if reads < 200 && child.try_wait().unwrap().is_some() {
            reads = 0;
            child = start(&mut preload, "100");
        }
        assert!(Instant::now() < deadline, "nothing comes any more");
    }
    child.wait().unwrap();
}

#[test]
fn a_program_that_scribbles_over_the_ring_loses_records_and_harms_nobody() {
    let folder = Folder::new("scribbler");
    let program = folder.compiled("scribbler");
    std::fs::write(folder.0.join("file"), [7; 4096]).unwrap();
    for seed in 1..=12 {
        let Some(preload) = preload(1 << 8) else { return };
        let mut command = Command::new(&program);
        command.current_dir(&folder.0).args(["file", "20000", &seed.to_string()]);
        let seen = watch(preload, command, true);
        assert!(seen.status().success(), "{:?}", seen.output);
        for (event, texts) in &seen.events {
            assert!(Operation::of_number(event.operation).is_some() && texts.len() <= 2);
        }
    }
}

#[test]
fn programs_with_an_environment_of_their_own_are_followed() {
    let Some(preload) = preload(LARGE_CELLS) else { return };
    let folder = Folder::new("environment");
    std::fs::write(folder.0.join("first"), "first").unwrap();
    let script = "env -i /bin/sh -c 'cat first > second; exec env - cat second'";
    let seen = watch(preload, shell(script, &folder), true);
    assert_eq!((&*seen.output.stdout, &*seen.output.stderr), (&b"first"[..], &b""[..]));
    let cat = |name: &str| {
        let reads = seen.operations().filter(|(operation, event, _)| {
            let is_read = match operation {
                Operation::Transfer => event.flags & flag::SECOND == 0,
                other => *other == Operation::Read,
            };
            is_read
                && event.result == 5
                && seen.names.get(&event.file).is_some_and(|path| path.ends_with(name))
        });
        reads.count()
    };
    assert_eq!((cat("/first"), cat("/second")), (1, 1));
    // What the shell opened is what the program wrote to, by the same handle, though it runs in another process.
    let second: Vec<_> = seen
        .operations()
        .filter(|(operation, event, _)| {
            let is_written = match operation {
                Operation::Open => event.argument & 3 != 0,
                Operation::Transfer => event.flags & flag::SECOND != 0,
                other => *other == Operation::Write,
            };
            // The last transfer gives nothing: that is how its end is known.
            is_written
                && event.result > 0
                && seen.names.get(&event.file).is_some_and(|path| path.ends_with("/second"))
        })
        .map(|(operation, event, _)| (operation, event.handle))
        .collect();
    assert_eq!((second.len(), second[0].0, second[0].1), (2, Operation::Open, second[1].1), "{second:?}");
    // Each process begins once, and nobody does anything before.
    let mut begun = std::collections::BTreeSet::new();
    for (event, _) in &seen.events {
        if event.operation == Operation::ProcessBegins as u8 {
            assert!(begun.insert(event.process), "{} has begun before", event.process);
        }
        let class = Operation::of_number(event.operation).unwrap().class();
        assert!(class == Class::Note || begun.contains(&event.process));
    }
    assert_eq!(begun.len(), seen.count(Operation::ProcessEnds));
}
