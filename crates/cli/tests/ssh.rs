//! Tasks on hosts that are reached by ssh and have nothing of Comb: it comes along, with the program's files, and leaves nothing but a copy of itself.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use comb_region::task::Description;
use comb_region::{Array, Task, Terms};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

#[path = "ssh/sshd.rs"]
mod sshd;

use sshd::{Hosts, entries, wait, write};

const ENDLESS: &str = "#!/bin/sh\necho $$\nwhile :; do sleep 0.01; done\n";

macro_rules! hosts {
    ($name:expr, $hosts:expr) => {
        match Hosts::start($name, $hosts) {
            Ok(hosts) => hosts,
            Err(reason) => return println!("skipped: {reason}"),
        }
    };
}

/// Not a test, but the program of one: it is what a launched test binary runs.
#[test]
fn component() {
    if Description::from_environment().is_err() {
        return;
    }
    let task = Task::join().expect("the launcher is there");
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    let squares = Array::<u64>::together(&task, 1000, &Terms::default()).expect("allocated");
    (rank..1000).step_by(count).for_each(|index| squares.set(index, (index * index) as u64));
    task.barrier();
    assert!((0..1000).all(|index| squares.get(index) == (index * index) as u64));
    task.barrier();
    println!("\nshared by {count}");
}

/// What ssh says of each connection that has ended: the bytes that it sent.
fn sent(errors: &str) -> Vec<u64> {
    let said = errors.lines().filter_map(|line| line.strip_prefix("Transferred: sent "));
    said.map(|line| line.split(',').next().unwrap().parse().unwrap()).collect()
}

fn hello() -> Vec<String> {
    let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    ["--", &program, "--exact", "component", "--nocapture"].map(str::to_owned).to_vec()
}

/// Waits until a file is there.
fn appears(path: &Path) {
    wait(|| path.exists(), || format!("there is no {}", path.display()));
}

/// A task that goes on, after so many components have said something.
fn start(hosts: &Hosts, on: &[&str], arguments: &[&str]) -> Child {
    let mut child =
        hosts.command(on, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.take(on.len()).count(), on.len());
    child
}

/// The processes with such a command line, without those that clean up behind them.
fn named(hosts: &Hosts, is_one: impl Fn(&str) -> bool) -> Vec<u32> {
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let has = |pid: &u32| is_one(&String::from_utf8_lossy(&line(pid)).replace('\0', " "));
    let is_guard =
        |pid: &u32| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"comb-guard\n");
    hosts.processes().into_iter().filter(|pid| has(pid) && !is_guard(pid)).collect()
}

/// One of them may go because of another before it is its turn.
fn kill(signal: Signal, pids: &[u32]) {
    let kill = |pid: u32| kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal);
    let outcomes: Vec<_> = pids.iter().copied().map(kill).collect();
    assert!(outcomes.contains(&Ok(())), "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(()) | Err(Errno::SRCH))), "{outcomes:?}");
}

#[test]
fn hosts_without_comb_run_a_task_and_get_it_once() {
    let names = ["a", "b", "c", "d"];
    let hosts = hosts!("once", &names);
    let program = hello();
    let arguments: Vec<&str> = program.iter().map(String::as_str).collect();
    let (said, errors) = hosts.ok(&names, &arguments);
    assert_eq!(said.matches("shared by 4\n").count(), 4, "{said}");
    let (cold, copies) = (sent(&errors), names.map(|name| hosts.copies(name)));
    assert!(copies.iter().all(|copies| copies.len() == 1), "{copies:?}");
    let mode = copies[0][0].parent().unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let (said, errors) = hosts.ok(&names, &arguments);
    assert_eq!(said.matches("shared by 4\n").count(), 4, "{said}");
    let warm = sent(&errors);
    let comb = std::fs::metadata(copies[0][0].join("comb")).unwrap().len();
    assert!(cold.len() == 4 && warm.len() == 4, "{errors}");
    assert!(
        cold.iter().all(|&bytes| bytes > comb / 10) && warm.iter().all(|&bytes| bytes < comb / 100),
        "{cold:?}, {warm:?}"
    );
    // Programs find the library that came with it, if there is one, and it can be loaded.
    let (said, errors) = hosts
        .ok(&["a"], &["sh", "-c", "echo $COMB_LIBRARY; LD_PRELOAD=$COMB_LIBRARY exec cat /proc/self/maps"]);
    let library = copies[0][0].join("libcomb.so");
    let has_library = hosts.root.join("private/libcomb.so").exists();
    assert_eq!(said.starts_with(&format!("{}\n", library.display())), has_library, "{said}{errors}");
    assert_eq!(said.matches(library.to_str().unwrap()).count() > 1, has_library, "{said}{errors}");
    println!("comb has {comb} bytes there; sent at first {cold:?}, then {warm:?}");
}

#[test]
fn who_cannot_log_in_is_told_so() {
    let hosts = hosts!("login", &["a"]);
    for (name, said_by_ssh) in [("nowhere", "nowhere.invalid"), ("stranger", "Permission denied")] {
        let said = hosts.fails(&["a", name], &["true"], 1);
        assert!(said.contains(said_by_ssh), "{said}");
        let ours = format!("comb: host {name}: `ssh ");
        assert!(said.contains(&ours) && said.contains("(status 255): can you log in there"), "{said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
    command.args(["run", "--hosts", "a=127.0.0.1", "--shell", "env PATH=/nowhere", "true"]);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("host a: ") && said.contains("there is no `sh`"), "{said}");
}

#[test]
fn a_shell_may_greet_but_not_without_end() {
    let hosts = hosts!("noise", &["a"]);
    write(&hosts.host("a").join("noise"), &"welcome \x1b[1m to a\ncomb-part 4 comb-\n".repeat(500), 0o644);
    for _ in 0..2 {
        let (said, _) = hosts.ok(&["a"], &["--", "echo", "hello"]);
        assert_eq!(said, "hello\n");
    }
    hosts.on_entry("a", "yes on and on");
    let said = hosts.fails(&["a"], &["true"], 1);
    assert!(said.contains("says \"on and on\" and goes on"), "{said}");
}

#[test]
fn statuses_pass_through() {
    let hosts = hosts!("status", &["a", "b"]);
    let script = "case $COMB_TASK in *'\"rank\":1,'*) exit 7;; *) exec sleep 1000;; esac";
    let said = hosts.fails(&["a", "b"], &["sh", "-c", script], 7);
    assert!(said.contains("component 1 (pid ") && said.contains("failed with status 7"), "{said}");
    let umask = Command::new("sh").args(["-c", "umask"]).output().unwrap().stdout;
    let (said, _) = hosts.ok(&["a"], &["sh", "-c", "umask; env | grep -c ^comb_; true"]);
    let expected = format!("{}0\n", String::from_utf8(umask).unwrap());
    assert_eq!(said, expected, "a program finds nothing of how comb came there");
}

#[test]
fn a_program_that_is_not_there_is_sent_along() {
    let hosts = hosts!("send", &["a", "b"]);
    for host in ["a", "b"] {
        hosts.on_entry(host, &format!("mount -t tmpfs none {}/work", hosts.root.display()));
    }
    let work = hosts.root.join("work");
    write(
        &work.join("program"),
        "#!/bin/sh\ncat data/numbers data/link extra; pwd; ls -l program | cut -c 1-10\n",
        0o750,
    );
    std::fs::create_dir(work.join("data")).unwrap();
    write(&work.join("data/numbers"), "12\n", 0o640);
    symlink("numbers", work.join("data/link")).unwrap();
    write(&hosts.root.join("extra"), "extra\n", 0o600);

    let said = hosts.fails(&["a", "b"], &["./program"], 1);
    assert!(said.contains("comb: host a: ") && said.contains("work/./program is not there"), "{said}");
    assert!(said.contains("sent along with --send"), "{said}");
    let (said, _) = hosts.ok(&["a", "b"], &["--send=data", "--send=../extra", "--label", "./program"]);
    for (rank, host) in ["a", "b"].iter().enumerate() {
        let lines: Vec<_> =
            said.lines().filter_map(|line| line.strip_prefix(&format!("[{rank}] "))).collect();
        assert_eq!(lines[..3], ["12", "12", "extra"], "{said}");
        assert!(lines[3].starts_with(hosts.host(host).join("tmp").to_str().unwrap()), "{said}");
        assert_eq!(lines[4], "-rwxr-x---");
    }
    let said = hosts.fails(&["a"], &["--send=no-such", "./program"], 1);
    assert!(said.contains("cannot send") && said.contains("no-such"), "{said}");
    // The program alone, from a directory that is not there.
    let hidden = hosts.root.join("private/hidden");
    write(&hidden, "#!/bin/sh\necho found\n", 0o755);
    let (said, _) = hosts.ok(&["a"], &["--send", "--", hidden.to_str().unwrap()]);
    assert_eq!(said, "found\n");
    // No room for it.
    hosts.on_entry("a", "for d in $TMPDIR /var/tmp /dev/shm; do mount -t tmpfs -o size=64k none $d; done");
    write(&work.join("large"), &"x".repeat(1 << 20), 0o644);
    let said = hosts.fails(&["a"], &["--send=large", "./program"], 1);
    assert!(said.contains("host a: cannot keep the files that are sent (large: No space left"), "{said}");
}

/// All that may be in the way of a copy.
#[test]
fn where_no_copy_can_be_kept_comb_comes_each_time_and_where_it_cannot_come_that_is_said() {
    let hosts = hosts!("places", &["a"]);
    let home = "mount -t tmpfs -o size=256k none $HOME";
    for (script, why) in [
        (home, " KB free and comb takes "),
        ("mount -t tmpfs -o noexec none $HOME", "(noexec)"),
        ("mount --bind $HOME $HOME; mount -o remount,bind,ro $HOME", "cannot be made"),
        ("mkdir -p $HOME/.cache; ln -s $HOME $HOME/.cache/comb", "is not yours alone"),
        ("unset HOME", "there is no HOME"),
    ] {
        hosts.on_entry("a", script);
        let (said, errors) = hosts.ok(&["a"], &["--", "echo", "hello"]);
        assert!(
            said == "hello\n" && errors.contains("comb: host a: comb is brought there each time"),
            "{errors}"
        );
        assert!(errors.contains(why), "{script}: {errors}");
        std::fs::remove_dir_all(hosts.host("a").join("home/.cache")).ok();
    }
    let shim = |name: &str, script: &str| {
        entries(&hosts.host("a").join("bin")).iter().for_each(|shim| std::fs::remove_file(shim).unwrap());
        write(&hosts.host("a").join("bin").join(name), &format!("#!/bin/sh\n{script}\n"), 0o755);
    };
    let cannot = |words: &[&str]| {
        let said = hosts.fails(&["a"], &["true"], 1);
        let line = said.lines().find(|line| line.starts_with("comb: host a: ")).unwrap_or_default();
        assert!(words.iter().all(|words| line.contains(words)), "{said}");
        assert!(hosts.copies("a").is_empty());
    };
    hosts.on_entry(
        "a",
        &format!("{home}; for d in $TMPDIR /var/tmp /dev/shm; do mount -t tmpfs -o size=64k none $d; done"),
    );
    cannot(&["there is no place for comb", " KB free and comb takes ", "Make room"]);
    hosts.on_entry("a", "");
    shim("uname", "echo Linux vax");
    cannot(&["it is Linux vax, and this comb is for Linux", "--comb"]);
    shim("gzip", "head -c 100000");
    cannot(&["did not arrive as it was sent", " 100000 of the "]);
    shim("sha256sum", "exec false");
    cannot(&["did not arrive as it was sent"]);
    // Whole, and yet it does not run.
    shim("chmod", "exec /bin/chmod 600 \"$2\"");
    cannot(&["(noexec)"]);
    // No gzip.
    let tools = "sh unshare cat ls id chmod mkdir df head sha256sum rm ln mv uname stat wc touch true echo";
    std::fs::remove_file(hosts.host("a").join("bin/chmod")).unwrap();
    hosts.on_entry(
        "a",
        &format!("mkdir $0/few; for t in {tools}; do for d in /bin /usr/bin; do [ ! -x $d/$t ] || ln -sf $d/$t $0/few; done; done; PATH=$0/few"),
    );
    let (said, errors) = hosts.ok(&["a"], &["--", "echo", "hello"]);
    let comb = std::fs::metadata(hosts.copies("a")[0].join("comb")).unwrap().len();
    assert!(said == "hello\n" && sent(&errors)[0] > comb, "{errors}");
}

/// A program that was sent, and comb itself, in places where it is not kept: whichever end goes, all goes.
#[test]
fn whatever_ends_it_nothing_is_left_there() {
    let hosts = hosts!("ends", &["a", "b"]);
    write(&hosts.root.join("work/endless"), ENDLESS, 0o755);
    let both = ["a", "b"];
    hosts.on_entry("b", "unset HOME");
    let begin = || start(&hosts, &both, &["--send", "--", "./endless"]);

    let mut launcher = begin();
    kill(Signal::INT, &[launcher.id()]);
    assert_eq!(launcher.wait().unwrap().code(), Some(130));
    hosts.assert_gone();

    let mut launcher = begin();
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    hosts.assert_gone();

    let launcher = begin();
    kill(Signal::KILL, &named(&hosts, |line| line.starts_with("ssh -F")));
    let output = launcher.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("does not answer any more"), "{said}");
    hosts.assert_gone();

    // The part itself: whom it leaves cleans up.
    let launcher = begin();
    kill(Signal::KILL, &named(&hosts, |line| line.contains(" run-part")));
    assert_eq!(launcher.wait_with_output().unwrap().status.code(), Some(1));
    hosts.assert_gone();
}

/// The connection breaks, or somebody presses Ctrl-C, while comb is on its way.
#[test]
fn half_a_comb_is_never_run_nor_kept() {
    let hosts = hosts!("half", &["a"]);
    let (asked, go) = (hosts.host("a").join("asked"), hosts.host("a").join("go"));
    let shim = "#!/bin/sh\n: >$HOME/../asked\nwhile [ ! -e $HOME/../go ]; do sleep 0.01; done\nexec cat\n";
    write(&hosts.host("a").join("bin/gzip"), shim, 0o755);
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut launcher = hosts.command(&["a"], &["true"]).stderr(Stdio::null()).spawn().unwrap();
        appears(&asked);
        match signal {
            Signal::KILL => kill(signal, &named(&hosts, |line| line.starts_with("ssh -F"))),
            _ => kill(signal, &[launcher.id()]),
        }
        let status = launcher.wait().unwrap().code();
        assert_eq!(
            status,
            Some(match signal {
                Signal::INT => 130,
                Signal::TERM => 143,
                _ => 1,
            })
        );
        std::fs::write(&go, "").unwrap();
        hosts.assert_gone();
        assert!(hosts.copies("a").is_empty());
        std::fs::remove_file(&asked).unwrap();
        std::fs::remove_file(&go).unwrap();
    }
}
