//! A program that does known things, seen by the library and by strace: the two agree, but where the library says that it cannot know.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use comb_trace::Operation;

use super::LARGE_CELLS;
use crate::watched::{Folder, preload, watch};

/// What `operations.c` does with files in its folder, as it stands there: how often, and how many bytes. Of streams it is what the C
/// library makes of it: blocks of 4096 bytes.
const DONE: [(&str, (u64, u64)); 23] = [
    ("access", (1, 0)),
    ("allocate", (1, 0)),
    ("change-directory", (2, 0)),
    ("close", (13, 0)),
    ("delete", (4, 0)),
    ("duplicate", (5, 0)),
    ("link", (2, 0)),
    ("list", (1, 0)),
    ("lock", (2, 0)),
    ("make-directory", (1, 0)),
    ("map", (1, 0)),
    ("open", (9, 0)),
    ("read", (4 + 8 + 2 + 2, 2_100 + 30_000 + 1_808 + 16_384 + 100)),
    ("read-link", (1, 0)),
    ("remove-directory", (1, 0)),
    ("rename", (1, 0)),
    ("seek", (4, 0)),
    ("set-attributes", (1, 0)),
    ("status", (5, 0)),
    ("sync", (2, 0)),
    ("transfer", (2, 4_000)),
    ("truncate", (2, 0)),
    ("write", (6 + 8 + 2 + 4, 4_100 + 30_000 + 55 + 52)),
];

/// In which the library differs from the kernel: the C library looks at each file that it makes a stream or a directory of, asks twice
/// what is in a directory, the second time for the end, and takes back what it has read ahead.
const DIFFERENT: [&str; 3] = ["status", "list", "seek"];

#[test]
fn known_operations_are_seen_as_they_are_done() {
    let Some(preload) = preload(LARGE_CELLS) else { return };
    let folder = Folder::new("operations");
    let mut command = Command::new(folder.compiled("operations"));
    command.current_dir(&folder.0);
    let seen = watch(preload, command, true);
    assert!(seen.status().success(), "{:?}", seen.output);
    assert_eq!((seen.counters.lost, seen.counters.recorded), (0, seen.events.len() as u64));
    assert_eq!(seen.of_folder(&folder.0), BTreeMap::from(DONE));
    let of_turns = seen.operations().filter(|(operation, event, _)| {
        *operation == Operation::Write
            && seen.names.get(&event.file).is_some_and(|path| path.ends_with("/turns"))
    });
    let places: Vec<_> = of_turns.map(|(_, event, _)| (event.offset, event.result, event.size)).collect();
    assert_eq!(places, [(0, 50, 50), (10, 5, 50)]);
    // Whether by the one who opened it, by a child, by one that was lent the memory, or by the program that this one became.
    let shared = seen.operations().filter(|(operation, event, _)| {
        let is_used =
            matches!(operation, Operation::Open | Operation::Write | Operation::Duplicate | Operation::Close);
        is_used && seen.names.get(&event.file).is_some_and(|path| path.ends_with("/shared"))
    });
    let handles: Vec<u64> = shared.map(|(_, event, _)| event.handle).collect();
    assert_eq!(handles.len(), 1 + 4 + 2 + 3);
    assert!(handles.iter().all(|handle| *handle == handles[0]), "{handles:x?}");
}

#[test]
fn strace_sees_the_same() {
    let folder = Folder::new("strace");
    let program = folder.compiled("operations");
    let log = folder.0.join("log");
    let traced = Command::new("strace")
        .args(["-f", "-y", "-o"])
        .arg(&log)
        .arg(&program)
        .current_dir(&folder.0)
        .output();
    match traced {
        Ok(output) if output.status.success() => {}
        other => {
            eprintln!("not tested: strace cannot be used: {other:?}");
            return;
        }
    }
    let log = std::fs::read_to_string(log).unwrap();
    let mut there = of_strace(&log, &folder.0);
    let mut expected = BTreeMap::from(DONE);
    for name in DIFFERENT {
        let (by_kernel, by_library) = (there.remove(name).unwrap(), expected.remove(name).unwrap());
        assert!(by_kernel.0 > by_library.0, "{name}: {by_kernel:?}");
    }
    // `fread` of a large block reads most of it past the buffer, and then fills that: the library tells both as one.
    expected.get_mut("read").unwrap().0 += 1;
    assert_eq!(there, expected);
}

/// What strace says of a folder's files: those in it, and what is named without a slash in front.
fn of_strace(log: &str, folder: &Path) -> BTreeMap<&'static str, (u64, u64)> {
    let within = format!("<{}", folder.display());
    let mut counted = BTreeMap::<_, (u64, u64)>::new();
    for line in whole_lines(log) {
        let Some((call, rest)) = line.split_once('(') else { continue };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { continue };
        let names: Vec<&str> = arguments.split('"').skip(1).step_by(2).collect();
        let is_data = matches!(call, "read" | "write" | "pread64" | "pwrite64");
        let is_named = !is_data && names.iter().any(|name| !name.starts_with('/') && !name.is_empty());
        // An argument, not what the call returned. The folder itself is where the program is.
        let of_descriptor = arguments.match_indices(&within).any(|(at, _)| {
            let before = &arguments[..at];
            !before.ends_with("AT_FDCWD")
        });
        let bytes: u64 =
            result.split(|byte: char| !byte.is_ascii_digit()).next().unwrap().parse().unwrap_or(0);
        let Some((operation, factor)) = operation(call, arguments) else { continue };
        // The last look at a stream finds its end, and gives nothing.
        if !(is_named || of_descriptor) || operation == "read" && bytes == 0 {
            continue;
        }
        let (count, sum) = counted.entry(operation).or_default();
        *count += factor;
        if matches!(operation, "read" | "write" | "transfer") {
            *sum += bytes * factor;
        }
    }
    counted
}

/// What each process called, in one line: strace cuts a call in two if another process comes in between.
fn whole_lines(log: &str) -> Vec<String> {
    let mut cut = BTreeMap::new();
    let mut whole = Vec::new();
    for line in log.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some((start, _)) = call.split_once(" <unfinished ...>") {
            cut.insert(process, start.to_owned());
        } else if let Some((_, end)) = call.split_once(" resumed>") {
            whole.extend(cut.remove(process).map(|start| start + end));
        } else {
            whole.push(call.to_owned());
        }
    }
    whole
}

/// The operation, and how many records it makes.
fn operation(call: &str, arguments: &str) -> Option<(&'static str, u64)> {
    Some(match call {
        "open" | "openat" => ("open", 1),
        "close" => ("close", 1),
        "read" | "readv" | "pread64" | "preadv" => ("read", 1),
        "write" | "writev" | "pwrite64" | "pwritev" => ("write", 1),
        "sendfile" => ("transfer", 2),
        "mmap" => ("map", 1),
        "lseek" => ("seek", 1),
        "getdents64" => ("list", 1),
        "stat" | "lstat" | "fstat" | "newfstatat" | "statx" => ("status", 1),
        "access" | "faccessat" | "faccessat2" => ("access", 1),
        "readlink" | "readlinkat" => ("read-link", 1),
        "chmod" | "fchmodat" => ("set-attributes", 1),
        "rename" | "renameat" | "renameat2" => ("rename", 1),
        "unlink" | "unlinkat" => ("delete", 1),
        "link" | "linkat" | "symlink" | "symlinkat" => ("link", 1),
        "mkdir" => ("make-directory", 1),
        "rmdir" => ("remove-directory", 1),
        "truncate" | "ftruncate" => ("truncate", 1),
        "fallocate" => ("allocate", 1),
        "flock" => ("lock", 1),
        "fcntl" if arguments.contains("F_DUPFD") => ("duplicate", 1),
        "fcntl" if arguments.contains("F_SETLK") => ("lock", 1),
        "fsync" | "fdatasync" => ("sync", 1),
        "dup" | "dup2" => ("duplicate", 1),
        "chdir" => ("change-directory", 1),
        _ => return None,
    })
}
