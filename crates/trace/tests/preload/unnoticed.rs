//! Programs say and do the same, whether they are looked at or not.

use std::process::{Command, Output};

use comb_trace::Operation;

use super::{LARGE_CELLS, shell};
use crate::watched::{Folder, preload, watch};

/// What is there for them to work with.
const PREPARATION: &str = r#"
set -e
mkdir sources && cd sources
printf '#include <stdio.h>\nint twice(int);\nint main(void) { int unused; printf("%%d\\n", twice(21)); return 0; }\n' > main.c
printf 'int twice(int number) { return 2 * number; }\n' > twice.c
printf 'all: main.o twice.o\n\tcc -o twice main.o twice.o\n%%.o: %%.c\n\tcc -c -o $@ $<\n' > Makefile
mkdir -p deep/deeper && printf 'some\ntext\n' > deep/deeper/file && ln -s deeper/file deep/link
"#;

/// Each with the program that has to be there. They leave nothing behind that would make the next run differ.
const SCRIPTS: [(&str, &str); 12] = [
    (
        "sh",
        "set -e; for word in one two; do echo $word > word; cat < word; rm word; done; test -e word || echo gone; false; echo never",
    ),
    ("sh", "exec 3> three; echo some >&3; exec 3>&-; cat three nothing; rm three; exit 7"),
    (
        "bash",
        "set -euo pipefail; while read -r line; do echo \"<$line>\"; done < Makefile; cat <(echo inner) | tr a-z A-Z",
    ),
    ("gcc", "gcc -Wall -O1 main.c twice.c -o program && ./program; rm program; gcc -c missing.c"),
    (
        "g++",
        "echo '#include <fstream>\n#include <iostream>\nint main() { std::ofstream(\"written\") << 42; int n; std::ifstream(\"written\") >> n; std::cout << n << std::endl; throw n; }' > stream.cc; g++ stream.cc -o stream && ./stream 2>&1; echo $?; rm -f stream stream.cc written",
    ),
    ("make", "make -j2 | sort; ./twice; rm twice *.o"),
    (
        "git",
        "git init -q repository 2>&1 && cd repository && cp ../main.c . && git add . && git status --short && git -c user.name=a -c user.email=b commit -q -m c 2>&1 && git log --format=%s && git fsck 2>&1; cd ..; rm -rf repository",
    ),
    (
        "python3",
        "python3 -c 'import os, subprocess, json, tempfile; print(sorted(os.listdir(\".\"))); print(subprocess.run([\"cat\", \"deep/link\"], env={}, capture_output=True)); print(os.popen(\"echo popen\").read()); open(\"/nothing\")' 2>&1",
    ),
    (
        "python3",
        "python3 -c 'import threading, os\ndef go(n):\n  for _ in range(200):\n    with open(\"main.c\") as f: f.read()\nall = [threading.Thread(target=go, args=(n,)) for n in range(4)]\n[t.start() for t in all]; [t.join() for t in all]\npid = os.fork()\nif pid == 0: print(\"child\", flush=True); os._exit(3)\nprint(os.waitpid(pid, 0)[1])'",
    ),
    (
        "tar",
        "tar -cf archive main.c deep && tar -tvf archive && tar -xOf archive deep/deeper/file; rm archive",
    ),
    ("find", "find . -name '*.c' -o -type l | sort; find deep -exec ls -d {} + | sort; find nothing"),
    (
        "perl",
        "perl -e 'open(F, \"<\", \"Makefile\"); while (<F>) { print } print `echo from a shell`; exec \"true\"'",
    ),
];

#[test]
fn programs_say_and_return_the_same() {
    let folder = Folder::new("unnoticed");
    assert!(shell(PREPARATION, &folder).status().unwrap().success());
    for (program, script) in SCRIPTS {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("not tested: {program} is not there");
            continue;
        }
        let Some(preload) = preload(LARGE_CELLS) else { return };
        let command = || {
            let mut command = Command::new(if program == "bash" { program } else { "sh" });
            command.args(["-c", script]).current_dir(folder.0.join("sources"));
            command
        };
        let alone: Output = command().output().unwrap();
        let seen = watch(preload, command(), true);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = |output: &Output| (output.status.code(), text(&output.stdout), text(&output.stderr));
        assert_eq!(said(&seen.output), said(&alone), "{script}");
        assert!(seen.count(Operation::Open) > 0, "{script}");
        assert_eq!(seen.counters.lost, 0, "{script}");
    }
}

/// The kernel kills a program in a sandbox that calls anything but what it said that it would: the library must not call it either.
#[test]
fn a_program_in_a_sandbox_lives() {
    let folder = Folder::new("sandbox");
    let program = folder.compiled("sandboxed");
    std::fs::write(folder.0.join("file"), [7; 4096]).unwrap();
    let Some(preload) = preload(LARGE_CELLS) else { return };
    let mut command = Command::new(program);
    command.current_dir(&folder.0).arg("file");
    let seen = watch(preload, command, true);
    assert_eq!(seen.status().code(), Some(64), "{:?}", seen.output);
    assert_eq!(seen.count(Operation::Read), 1, "and not the one in the sandbox");
}
