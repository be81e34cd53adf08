//! The same programs under strace and under the recorder: each operation is counted, and there are as many of one as of the other.
//!
//! Left out of both: what is done by descriptors that name no file (pipes, terminals, sockets, devices), for the recorder does not record
//! it, and what no call asks for (page-ins, write-back). Process numbers and the names of temporary files differ from run to run, and no
//! count depends on them. What does depend on the run is kept out by the environment: no random hashes, no caches that are written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use comb_trace::Operation;
use comb_trace::kernel::{Kernel, Options};

use crate::scene::{Scene, attach, command, is_call, run};

type Counts = BTreeMap<Operation, usize>;

/// Of which of a call's arguments it depends whether it is about a file.
enum Of {
    /// The descriptor at this place.
    Descriptor(usize),
    /// A path, which always counts.
    Path,
    /// A directory and a path behind it: if that is empty, the directory itself is meant.
    PathAt(usize),
    /// A descriptor, and another one that it replaces.
    Replacement,
    /// Input and output: each counts for itself.
    Transfer(usize, usize),
    /// No file, or all.
    Whole,
}

fn meaning(call: &str) -> Option<(Operation, Of)> {
    use Of::{Descriptor, Path, PathAt, Replacement, Transfer, Whole};
    Some(match call {
        "open" | "creat" | "openat" | "openat2" => (Operation::Open, Path),
        "close" => (Operation::Close, Descriptor(0)),
        "close_range" => (Operation::Close, Whole),
        "read" | "readv" | "pread64" | "preadv" | "preadv2" => (Operation::Read, Descriptor(0)),
        "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => (Operation::Write, Descriptor(0)),
        "sendfile" => (Operation::Transfer, Transfer(1, 0)),
        "splice" | "copy_file_range" => (Operation::Transfer, Transfer(0, 2)),
        "mmap" => (Operation::Map, Descriptor(4)),
        "lseek" => (Operation::Seek, Descriptor(0)),
        "getdents64" => (Operation::List, Descriptor(0)),
        "fstat" => (Operation::Status, Descriptor(0)),
        "stat" | "lstat" => (Operation::Status, Path),
        "newfstatat" | "statx" => (Operation::Status, PathAt(0)),
        "access" | "faccessat" | "faccessat2" => (Operation::Access, Path),
        "readlink" | "readlinkat" => (Operation::ReadLink, Path),
        "chmod" | "chown" | "lchown" | "utime" | "utimes" | "fchmodat" | "fchownat" => {
            (Operation::SetAttributes, Path)
        }
        "fchmod" | "fchown" => (Operation::SetAttributes, Descriptor(0)),
        "utimensat" => (Operation::SetAttributes, PathAt(0)),
        "getxattr" | "lgetxattr" | "listxattr" | "llistxattr" | "setxattr" | "lsetxattr" | "removexattr"
        | "lremovexattr" => (Operation::Extended, Path),
        "fgetxattr" | "flistxattr" | "fsetxattr" | "fremovexattr" => (Operation::Extended, Descriptor(0)),
        "rename" | "renameat" | "renameat2" => (Operation::Rename, Path),
        "unlink" | "unlinkat" => (Operation::Delete, Path),
        "link" | "linkat" | "symlink" | "symlinkat" => (Operation::Link, Path),
        "mkdir" | "mkdirat" => (Operation::MakeDirectory, Path),
        "rmdir" => (Operation::RemoveDirectory, Path),
        "truncate" => (Operation::Truncate, Path),
        "ftruncate" => (Operation::Truncate, Descriptor(0)),
        "fallocate" => (Operation::Allocate, Descriptor(0)),
        "flock" => (Operation::Lock, Descriptor(0)),
        "fsync" | "fdatasync" | "syncfs" | "sync_file_range" => (Operation::Sync, Descriptor(0)),
        "sync" => (Operation::Sync, Whole),
        "fadvise64" | "readahead" => (Operation::Advise, Descriptor(0)),
        "dup" => (Operation::Duplicate, Descriptor(0)),
        "dup2" | "dup3" => (Operation::Duplicate, Replacement),
        "ioctl" | "fcntl" => (Operation::Control, Descriptor(0)),
        "chdir" | "chroot" => (Operation::ChangeDirectory, Path),
        "fchdir" => (Operation::ChangeDirectory, Descriptor(0)),
        "statfs" => (Operation::FileSystem, Path),
        "fstatfs" => (Operation::FileSystem, Descriptor(0)),
        "execve" | "execveat" => (Operation::Execute, Path),
        _ => return None,
    })
}

/// The arguments of a call: commas in texts and brackets part none.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut in_text, mut is_escaped, mut start) = (0, false, false, 0);
    let mut found = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            '(' | '[' | '{' | '<' => depth += 1,
            ')' if depth == 0 => {
                found.push(text[start..at].trim());
                return found;
            }
            // Of an arrow, half.
            '>' if text[..at].ends_with(['=', '-']) => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Whether a descriptor, as strace shows it with what it names, names a file.
fn names_file(argument: &str) -> bool {
    argument.split_once('<').is_some_and(|(_, name)| name.starts_with('/') && !name.contains("<char "))
}

fn count(counts: &mut Counts, line: &str) {
    let Some((call, rest)) = line.split_once('(') else { return };
    let Some((mut operation, of)) = meaning(call) else { return };
    let arguments = arguments(rest);
    let argument = |number: usize| arguments.get(number).copied().unwrap_or_default();
    if call == "fcntl" {
        match argument(1) {
            "F_DUPFD" | "F_DUPFD_CLOEXEC" => operation = Operation::Duplicate,
            "F_SETLK" | "F_SETLKW" | "F_GETLK" | "F_OFD_SETLK" | "F_OFD_SETLKW" | "F_OFD_GETLK" => {
                operation = Operation::Lock;
            }
            _ => {}
        }
    }
    let times = match of {
        Of::Descriptor(_) if call == "mmap" && argument(3).contains("MAP_ANONYMOUS") => 0,
        Of::Descriptor(number) => usize::from(names_file(argument(number))),
        Of::PathAt(number) if matches!(argument(number + 1), "\"\"" | "NULL") => {
            usize::from(names_file(argument(number)) || argument(number).starts_with("AT_FDCWD"))
        }
        Of::Path | Of::PathAt(_) | Of::Whole => 1,
        Of::Replacement => {
            usize::from(names_file(argument(0)) || (names_file(argument(1)) && !line.contains(" = -1 ")))
        }
        Of::Transfer(input, output) => {
            usize::from(names_file(argument(input))) + usize::from(names_file(argument(output)))
        }
    };
    if times > 0 {
        *counts.entry(operation).or_default() += times;
    }
}

/// What strace wrote: a line for each call, in two pieces where others came between.
fn counts_of(text: &str) -> Counts {
    let mut counts = Counts::new();
    let mut unfinished: BTreeMap<&str, String> = BTreeMap::new();
    for line in text.lines() {
        let (process, line) = line.split_once(' ').unwrap();
        let line = line.trim_start();
        if let Some(begin) = line.strip_suffix("<unfinished ...>") {
            unfinished.insert(process, begin.trim_end().to_owned());
        } else if let Some((_, end)) =
            line.strip_prefix("<... ").and_then(|line| line.split_once(" resumed>"))
        {
            let begin = unfinished.remove(process).unwrap_or_default();
            count(&mut counts, &(begin + end));
        } else if !line.starts_with(['+', '-']) {
            count(&mut counts, line);
        }
    }
    counts
}

fn environment<'a>(command: &'a mut Command, place: &Path) -> &'a mut Command {
    let quiet = [("PYTHONHASHSEED", "0"), ("PYTHONDONTWRITEBYTECODE", "1"), ("GIT_OPTIONAL_LOCKS", "0")];
    command.env_clear().envs(quiet).env("PATH", "/usr/bin:/bin").env("HOME", place).env("LC_ALL", "C");
    command.current_dir(place).stdin(Stdio::null())
}

fn shell(script: &str, place: &Path) {
    let mut command = Command::new("/bin/sh");
    let output = environment(command.args(["-ec", script]), place).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Compares the counts of one program. Whatever has to be there is made before each run.
fn compare(kernel: &mut Kernel, place: &Path, prepare: &str, script: &str) {
    let log = place.parent().unwrap().join("strace.out");
    // Once without looking: what is cached is cached then.
    shell(&format!("{prepare}\n{script}"), place);
    shell(prepare, place);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-yy", "-s", "8", "-o"]).arg(&log).args(["/bin/sh", "-ec", script]);
    // Both the same: what a program asks of its output depends on what that is, and a test's own may be a file.
    let output = environment(&mut strace, place).stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    let wanted = counts_of(&String::from_utf8_lossy(&fs::read(&log).unwrap()));

    shell(prepare, place);
    let mut command = command("/bin/sh", &[&"-ec", &script]);
    environment(&mut command, place).stdout(Stdio::null()).stderr(Stdio::null());
    let (recording, _) = run(kernel, command);
    assert_eq!(recording.counters.lost, 0);
    let mut found = Counts::new();
    for seen in recording.seen.iter().filter(|seen| is_call(seen.operation)) {
        *found.entry(seen.operation).or_default() += 1;
    }
    let total: usize = wanted.values().sum();
    println!("{script}: {total} operations, {} kinds", wanted.len());
    assert!(total > 50, "{script}: strace saw something");
    assert_eq!(found, wanted, "{script}: recorded, and strace's");
}

const SOURCES: &str = "mkdir -p work/one/two
for name in a b c; do
  echo \"#include <stdio.h>
int $name(void) { return printf(\\\"$name\\\"); }\" > work/$name.c
done
echo 'int a(void), b(void), c(void); int main(void) { return a() + b() + c() < 0; }' > work/main.c
echo 'program: a.o b.o c.o main.o
\tcc -o program a.o b.o c.o main.o' > work/Makefile
cp work/*.c work/one; cp work/*.c work/one/two
ln -sf ../main.c work/one/link
touch -d '2 days ago' work/* work/one/* work/one/two/*";

#[test]
fn as_many_operations_as_strace_counts() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("did not run: there is no strace here");
        return;
    }
    let Some(mut kernel) = attach(Options::default()) else { return };
    let scene = Scene::new();
    let place = scene.place("place");
    shell(SOURCES, &place);
    compare(&mut kernel, &place, "rm -f work/*.o work/program", "make -s -C work CFLAGS=-O0");
    compare(
        &mut kernel,
        &place,
        "",
        "find work -newer work/Makefile -o -name '*.c' -ls; du -s work; ls -lR work",
    );
    compare(
        &mut kernel,
        &place,
        "rm -rf a.tar out",
        "mkdir out; tar cf a.tar work; tar xf a.tar -C out; cp -a out/work out/copy; rm -r out/work",
    );
    compare(
        &mut kernel,
        &place,
        "",
        "cat work/*.c | sort | uniq -c > /dev/null; sed -i s/a/b/ out/copy/a.c; wc work/*.c > out/counts",
    );
    if Path::new("/usr/bin/git").exists() {
        shell("cd work; git init -q; git add .; git -c user.name=a -c user.email=a@b commit -qm a", &place);
        compare(&mut kernel, &place, "", "cd work; git status > ../out/status; git log --stat > ../out/log");
    }
    if Path::new("/usr/bin/python3").exists() {
        let program =
            "import json, os, shutil, tempfile; json.dump(os.listdir('work'), open('out/json', 'w'))";
        compare(
            &mut kernel,
            &place,
            "",
            &format!("python3 -c \"{program}; shutil.copytree('work/one', 'out/tree')\"; rm -r out/tree"),
        );
    }
}
