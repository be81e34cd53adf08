//! Traces that are made up, and one that is recorded, replayed in directories that are really there.

mod fio;
mod made_trace;
mod recorded;
#[path = "../../src/temporary_folder.rs"]
mod temporary_folder;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use comb_trace::event::{Event, Identity, flag};
use comb_trace::replay::{Fill, MOST_WORKERS, Pace, Plan, PrepareError, Sandbox, Summary, replay};
use comb_trace::{Operation, trace_file};
use made_trace::{CREATE, CUT, EXCLUSIVE, MadeTrace, READ_WRITE, file, none};
use temporary_folder::TemporaryFolder;

fn plan(trace: &[u8]) -> Plan {
    let plan = Plan::read(trace, MOST_WORKERS).unwrap();
    assert!(plan.fault().is_none());
    plan
}

fn replayed(plan: &Plan, at: &Path) -> (Summary, Sandbox) {
    let sandbox = Sandbox::prepare(at, plan, Fill::Holes).unwrap();
    assert_eq!(sandbox.unprepared(), 0);
    let summary = replay(plan, &sandbox, Pace::AsFastAsPossible);
    (summary, sandbox)
}

/// All below a directory: directories end with a slash, files tell their length.
fn tree(at: &Path) -> Vec<String> {
    fn below(root: &Path, at: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let status = fs::symlink_metadata(&path).unwrap();
            if status.is_dir() {
                found.push(format!("{name}/"));
                below(root, &path, found);
            } else if status.is_symlink() {
                found.push(format!("{name}>"));
            } else {
                found.push(format!("{name}={}", status.len()));
            }
        }
    }
    let mut found = Vec::new();
    below(at, at, &mut found);
    found.sort();
    found
}

/// A day in two processes: one writes a file and renames it, the other reads one that was there, and deletes it.
fn two_processes() -> MadeTrace {
    let mut trace = MadeTrace::new();
    trace.paths(Operation::Status, &["/data"], 0, 0);
    trace.paths(Operation::MakeDirectory, &["/data/new"], 0o755, 0);
    trace.name(file(1), "/data/new/draft");
    let draft = trace.open(file(1), 3, CREATE | EXCLUSIVE | READ_WRITE, 0, true);
    trace.write(draft, 0, 10);
    trace.by(2).name(file(2), "/data/old");
    let old = trace.open(file(2), 4, 0, 5000, false);
    trace.read(old, 0, 4096, 5000);
    trace.by(1).write(draft, 10, 20);
    trace.close(draft);
    trace.paths(Operation::Rename, &["/data/new/draft", "/data/final"], 0, 0);
    trace.by(2).read(old, 4096, 4096, 5000);
    trace.read(old, 5000, 4096, 5000);
    trace.close(old);
    trace.paths(Operation::Delete, &["/data/old"], 0, 0);
    // What is there by now has no name told: it is the file that was renamed.
    let again = trace.open(file(1), 4, READ_WRITE, 30, false);
    let cut = Event { asked: 12, size: 12, ..none() };
    trace.on(Operation::Truncate, again, cut);
    trace.close(again);
    trace.paths(Operation::Status, &["/data/old"], 0, -2);
    trace.paths(Operation::Link, &["/data/final", "/data/second"], 0, 0);
    trace.paths(Operation::Link, &["/data/soft"], 0, 0);
    trace
}

#[test]
fn a_trace_leaves_the_tree_that_it_left_then() {
    let folder = TemporaryFolder::new();
    let plan = plan(&two_processes().finish());
    assert_eq!((plan.threads(), plan.prior_files(), plan.room_bytes()), (2, 2, 30));
    let (summary, _) = replayed(&plan, folder.path());
    assert_eq!(summary.first_differences, []);
    assert_eq!((summary.differences, summary.written_bytes, summary.read_bytes), (0, 30, 5000));
    let expected = ["data/", "data/final=12", "data/new/", "data/second=12", "data/soft>"];
    assert_eq!(tree(folder.path()), expected);
    let counts: Vec<_> =
        [Operation::Open, Operation::Close, Operation::Read, Operation::Write, Operation::Link]
            .map(|operation| summary.done[&operation].count)
            .to_vec();
    assert_eq!(counts, [3, 3, 3, 2, 2]);
}

#[test]
fn what_comes_out_differently_is_counted_and_named() {
    let mut trace = MadeTrace::new();
    trace.name(file(1), "/a");
    let open = trace.open(file(1), 3, 0, 5, false);
    // The trace says that there was more than the file's length: the replay finds less.
    trace.on(Operation::Read, open, Event { asked: 10, result: 10, size: 5, ..none() });
    trace.paths(Operation::Access, &["/a"], 0, -13);
    trace.paths(Operation::Access, &["/b"], 0, -2);
    let folder = TemporaryFolder::new();
    let (summary, _) = replayed(&plan(&trace.finish()), folder.path());
    let told: Vec<_> = summary
        .first_differences
        .iter()
        .map(|difference| {
            (difference.operation, difference.recorded, difference.replayed, &difference.path[..])
        })
        .collect();
    assert_eq!(
        told,
        [(Operation::Read, Ok(10), Ok(5), &b"a"[..]), (Operation::Access, Err(13), Ok(0), &b"a"[..])]
    );
    assert_eq!(summary.differences, 2);
}

/// A file's life from hand to hand: each of several processes does what only works after the one before.
fn from_hand_to_hand(processes: u32, rounds: u32) -> MadeTrace {
    let mut trace = MadeTrace::new();
    for round in 0..rounds {
        let of = file(100 + u64::from(round));
        let (first, second) = (1 + (round * 5 + 1) % processes, 1 + (round * 7 + 3) % processes);
        trace.by(first).name(of, "/spool/job");
        let made = trace.open(of, 3, CREATE | EXCLUSIVE | READ_WRITE, 0, true);
        trace.write(made, 0, 100);
        trace.close(made);
        trace.by(second);
        let read = trace.open(of, 3, 0, 100, false);
        trace.read(read, 0, 200, 100);
        trace.paths(Operation::Rename, &["/spool/job", "/spool/done"], 0, 0);
        trace.by(1 + round % processes).paths(Operation::Status, &["/spool/job"], 0, -2);
        trace.paths(Operation::Delete, &["/spool/done"], 0, 0);
        trace.by(second).close(read);
    }
    trace
}

#[test]
fn what_several_threads_do_with_one_file_is_done_in_its_order_however_many_replay_it() {
    for most_workers in [1, 2, 3, 64] {
        let folder = TemporaryFolder::new();
        let plan = Plan::read(from_hand_to_hand(8, 300).finish().as_slice(), most_workers).unwrap();
        assert_eq!(plan.threads(), usize::from(most_workers).min(8));
        let (summary, _) = replayed(&plan, folder.path());
        assert_eq!(summary.first_differences, [], "{most_workers} workers");
        assert_eq!((summary.written_bytes, summary.read_bytes), (30_000, 30_000));
        assert_eq!(tree(folder.path()), ["spool/"]);
    }
}

#[test]
fn nothing_is_done_before_its_time() {
    let mut trace = MadeTrace::new();
    trace.paths(Operation::Status, &["/a"], 0, 0);
    trace.pause(60_000_000);
    trace.paths(Operation::Status, &["/a"], 0, 0);
    let folder = TemporaryFolder::new();
    let plan = plan(&trace.finish());
    let sandbox = Sandbox::prepare(folder.path(), &plan, Fill::Holes).unwrap();
    let summary = replay(&plan, &sandbox, Pace::Timed { speed: 2.0 });
    assert!(summary.elapsed.as_millis() >= 30, "{:?}", summary.elapsed);
    assert_eq!((summary.differences, summary.recorded.as_millis()), (0, 60));
}

#[test]
fn no_path_of_a_trace_leads_out_of_the_sandbox() {
    let outside = TemporaryFolder::new();
    fs::write(outside.path().join("victim"), "as it was").unwrap();
    let victim = outside.path().join("victim").display().to_string();
    let mut trace = MadeTrace::new();
    let upwards = format!("../../../../../../../../../../../..{victim}");
    for path in [victim.clone(), upwards.clone(), format!("/a/..{upwards}"), format!("/./{victim}/../victim")]
    {
        trace.name(file(7), "/base");
        let given = [(file(7), path.as_bytes())];
        trace.add(Operation::Truncate, none(), &given);
        trace.add(Operation::Delete, none(), &given);
        trace.add(Operation::MakeDirectory, none(), &[(file(7), format!("{path}.made").as_bytes())]);
        trace.paths(Operation::Rename, &[&path, "/stolen"], 0, 0);
        trace.paths(Operation::Link, &[&path, "/linked"], 0, 0);
    }
    // Names that no kernel tells.
    let parts = ["..\0..\0..\0", &format!("{upwards}\0"), &format!("{victim}\0..\0"), "a/../../..\0/\0"];
    for (inode, parts) in (10..).zip(parts) {
        trace.add(
            Operation::Name,
            Event { file: file(inode), ..none() },
            &[(Identity::default(), parts.as_bytes())],
        );
        let open = trace.open(file(inode), 3, READ_WRITE | CUT, 0, false);
        trace.write(open, 0, 3);
        trace.close(open);
    }
    // A link is made, and used as if it led out.
    trace.paths(Operation::Link, &["/out"], 0, 0);
    trace.paths(Operation::Delete, &[&format!("/out{victim}")], 0, 0);
    // No system call takes these.
    trace.paths(Operation::Delete, &["/a\0b", &"x".repeat(300)], 0, 0);
    trace.paths(Operation::MakeDirectory, &[&"y/".repeat(2000)], 0, 0);
    let folder = TemporaryFolder::new();
    let at = folder.path().join("sandbox");
    let plan = plan(&trace.finish());
    let sandbox = Sandbox::prepare(&at, &plan, Fill::Holes).unwrap();
    let summary = replay(&plan, &sandbox, Pace::AsFastAsPossible);
    assert!(summary.done[&Operation::Delete].count > 4);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
    assert_eq!(tree(outside.path()), ["victim=9"]);
    assert!(tree(folder.path()).iter().all(|name| name.starts_with("sandbox/")));
}

#[test]
fn a_link_that_somebody_puts_into_the_sandbox_is_not_followed() {
    let outside = TemporaryFolder::new();
    fs::write(outside.path().join("file"), "as it was").unwrap();
    let mut trace = MadeTrace::new();
    for folder in ["d", "e"] {
        let (path, number) = (format!("/{folder}/file"), u64::from(folder.as_bytes()[0]));
        trace.name(file(number), &path);
        let open = trace.open(file(number), 3, READ_WRITE | CUT, 0, false);
        trace.write(open, 0, 3);
        trace.close(open);
        trace.paths(Operation::Truncate, &[&path], 0, 0);
        trace.paths(Operation::SetAttributes, &[&path], 0, 0);
        trace.paths(Operation::MakeDirectory, &[&format!("/{folder}/made")], 0, 0);
        trace.paths(Operation::Link, &[&path, &format!("/{folder}/second")], 0, 0);
        trace.paths(Operation::Delete, &[&path], 0, 0);
    }
    let folder = TemporaryFolder::new();
    let plan = plan(&trace.finish());
    let sandbox = Sandbox::prepare(folder.path(), &plan, Fill::Holes).unwrap();
    // The directory, and in the other one the file.
    fs::remove_dir_all(folder.path().join("d")).unwrap();
    symlink(outside.path(), folder.path().join("d")).unwrap();
    fs::remove_file(folder.path().join("e/file")).unwrap();
    symlink(outside.path().join("file"), folder.path().join("e/file")).unwrap();
    let summary = replay(&plan, &sandbox, Pace::AsFastAsPossible);
    assert!(summary.differences >= 8, "{:?}", summary.first_differences);
    sandbox.clean(&plan);
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "as it was");
    assert_eq!(tree(outside.path()), ["file=9"]);
}

#[test]
fn only_what_a_replay_made_is_removed() {
    let folder = TemporaryFolder::new();
    let at = folder.path().join("sandbox");
    let plan = plan(&two_processes().finish());
    let (_, sandbox) = replayed(&plan, &at);
    fs::write(at.join("data/new/somebody's"), "").unwrap();
    assert_eq!(sandbox.clean(&plan), 2, "the directories above what is somebody's");
    assert_eq!(tree(&at), ["data/", "data/new/", "data/new/somebody's=0"]);
    fs::remove_dir_all(&at).unwrap();
    let (_, sandbox) = replayed(&plan, &at);
    assert_eq!(sandbox.clean(&plan), 0);
    assert!(!at.exists(), "it was made for the replay");
}

#[test]
fn a_directory_that_is_in_use_and_a_disk_that_is_too_small_are_refused() {
    let folder = TemporaryFolder::new();
    let mut trace = MadeTrace::new();
    trace.name(file(1), "/large");
    let open = trace.open(file(1), 3, CREATE | READ_WRITE, 0, true);
    trace.on(Operation::Allocate, open, Event { asked: 1 << 60, size: 1 << 60, ..none() });
    let large = plan(&trace.finish());
    let error = Sandbox::prepare(folder.path(), &large, Fill::Holes).err().unwrap();
    assert!(matches!(error, PrepareError::NoRoom { needed_bytes, .. } if needed_bytes == 1 << 60), "{error}");
    fs::write(folder.path().join("somebody's"), "").unwrap();
    let small = plan(&two_processes().finish());
    let error = Sandbox::prepare(folder.path(), &small, Fill::Holes).err().unwrap();
    assert!(matches!(error, PrepareError::NotEmpty { .. }), "{error}");
}

#[test]
fn a_trace_that_was_cut_off_is_replayed_up_to_there() {
    let whole = two_processes().finish();
    let plan = Plan::read(&whole[..whole.len() - 3], MOST_WORKERS).unwrap();
    assert!(matches!(plan.fault(), Some(trace_file::TraceFileError::Cut { .. })));
    let folder = TemporaryFolder::new();
    assert_eq!(replayed(&plan, folder.path()).0.differences, 0);
}

#[test]
fn a_file_that_was_open_before_is_opened_before_its_first_use() {
    let mut trace = MadeTrace::new();
    trace.name(file(1), "/log");
    // Never opened in the trace, and written to in its middle, at places that are given.
    let mut made = MadeTrace::new();
    let log = made.open(file(1), 5, READ_WRITE, 400, false);
    let event = Event { offset: 100, asked: 50, result: 50, size: 400, flags: flag::POSITIONAL, ..none() };
    trace.on(Operation::Write, log, event);
    trace.read(log, 350, 100, 400);
    // Where it was by then, a program asks.
    trace.on(
        Operation::Seek,
        log,
        Event { argument: 0, asked: 1, result: 400, offset: 400, size: 400, ..none() },
    );
    trace.close(log);
    // Somebody else still holds it.
    trace.on(
        Operation::Seek,
        log,
        Event { argument: 5, asked: 1, result: 17, offset: 17, size: 400, ..none() },
    );
    // And one that nobody named.
    let unnamed = made.open(file(2), 6, READ_WRITE, 70, false);
    trace.read(unnamed, 0, 100, 70);
    let folder = TemporaryFolder::new();
    let (summary, _) = replayed(&plan(&trace.finish()), folder.path());
    assert_eq!(summary.first_differences, []);
    assert_eq!((summary.written_bytes, summary.read_bytes), (50, 120));
    assert_eq!(tree(folder.path()), [".unnamed/", ".unnamed/1-2-1=70", "log=400"]);
}

#[test]
fn files_that_were_there_are_filled_if_that_is_wanted() {
    let folder = TemporaryFolder::new();
    let plan = plan(&two_processes().finish());
    let _sandbox = Sandbox::prepare(folder.path(), &plan, Fill::Bytes).unwrap();
    let old = fs::read(folder.path().join("data/old")).unwrap();
    assert_eq!((old.len(), old.iter().filter(|&&byte| byte == 0).count() < 100), (5000, true));
}
