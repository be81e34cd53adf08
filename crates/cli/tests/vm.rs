//! `comb vm` as its users have it: machines with an ordinary system, which share what they have in common, fail alone and are replaced.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[path = "vm/attached.rs"]
mod attached;
#[path = "vm/files.rs"]
mod files;
#[path = "vm/guest_kernel.rs"]
mod guest_kernel;
#[path = "vm/guests.rs"]
mod guests;
#[path = "vm/images.rs"]
mod images;
#[path = "vm/memory.rs"]
mod memory;

use guest_kernel::{guest_kernel, is_there, place};

/// Nothing that goes well takes as long.
const LIMIT: Duration = Duration::from_secs(240);

/// Directories of machines and images of its own. What still runs at the end is ended.
struct Place {
    directory: PathBuf,
    /// Where images are.
    state: PathBuf,
    /// More of the environment of commands.
    environment: Vec<(&'static str, &'static str)>,
}

impl Place {
    fn new(name: &str, state: &Path) -> Self {
        let directory = std::env::temp_dir().join(format!("comb-vm-{name}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        Self { directory, state: state.to_owned(), environment: Vec::new() }
    }

    fn comb(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command.args(words).stdin(Stdio::null()).env("COMB_CONFIG", "/dev/null");
        command.env("COMB_RUNTIME_DIR", self.directory.join("run")).env("COMB_STATE_DIR", &self.state);
        command.envs(self.environment.iter().copied());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.comb(words).output().unwrap()
    }

    /// What a command says that ends well.
    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Why a command has failed, and its exit status.
    #[track_caller]
    fn fails(&self, words: &[&str]) -> (String, i32) {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        (String::from_utf8(output.stderr).unwrap(), output.status.code().unwrap())
    }

    /// What a program in a machine says.
    #[track_caller]
    fn within(&self, machine: &str, script: &str) -> String {
        self.says(&["vm", "exec", machine, "--", "sh", "-c", script]).trim().to_owned()
    }

    #[track_caller]
    fn machines(&self) -> Vec<Value> {
        serde_json::from_str(&self.says(&["vm", "ls", "--json"])).unwrap()
    }

    /// A machine, once it is as wanted.
    #[track_caller]
    fn await_machine(&self, name: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + LIMIT;
        loop {
            let machines = self.machines();
            if let Some(found) = machines.iter().find(|machine| machine["name"] == name && is_wanted(machine))
            {
                return found.clone();
            }
            assert!(Instant::now() < until, "{machines:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.comb(&["vm", "kill", "--all"]).output();
        let _ = self.comb(&["down"]).output();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// To a process of a machine's.
fn signal(process: &Value, signal: Signal) {
    kill_process(Pid::from_raw(process.as_i64().unwrap().try_into().unwrap()).unwrap(), signal).unwrap();
}

/// What a process has started and not buried.
fn started_by(process: &Value) -> Vec<Value> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.split_whitespace().map(|word| word.parse::<u64>().unwrap().into()).collect()
}

/// A state directory with the image `small`, and with a template of it; nothing where machines cannot be run or made.
fn state() -> Option<&'static Path> {
    static STATE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let state = STATE.get_or_init(|| {
        let kernel = guest_kernel()?;
        let state = place().join("state");
        let _ = fs::remove_dir_all(&state);
        let place = Place::new("image", &state);
        place.says(&["vm", "create", "small", "--from-debian", "--kernel", kernel.to_str().unwrap()]);
        let images = place.says(&["vm", "images", "--json"]);
        let images: Vec<Value> = serde_json::from_str(&images).unwrap();
        assert_eq!((images.len(), &images[0]["name"]), (1, &Value::from("small")));
        Some(state)
    });
    state.as_deref()
}

#[test]
fn clones_run_programs_and_see_nothing_of_each_other() {
    let Some(state) = state() else { return };
    let place = Place::new("clones", state);
    place.says(&["vm", "clone", "small", "-n", "3"]);
    place.says(&["vm", "run", "small", "--as", "cold", "--memory", "192M"]);
    let names: Vec<Value> = place.machines().iter().map(|machine| machine["name"].clone()).collect();
    assert_eq!(names, ["cold", "small-1", "small-2", "small-3"]);
    assert_eq!(place.machines()[0]["is_clone"], false);

    assert_eq!(place.within("small-2", "hostname; uname -s"), "small-2\nLinux");
    let mut child = place
        .comb(&[
            "vm",
            "exec",
            "small-1",
            "-e",
            "COLOUR=green",
            "-C",
            "/tmp",
            "--",
            "sh",
            "-c",
            "cat; echo $COLOUR; pwd; echo bad >&2; exit 7",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let long = "all work and no play\n".repeat(20_000);
    let mut input = child.stdin.take().unwrap();
    let writes = {
        let long = long.clone();
        std::thread::spawn(move || input.write_all(long.as_bytes()).unwrap())
    };
    let output = child.wait_with_output().unwrap();
    writes.join().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap() == long + "green\n/tmp\n");
    assert_eq!(output.stderr, b"bad\n");

    // One copy of a file system is below all, and what each writes to it is its own.
    place.within("small-1", "echo mine > /etc/own; sync");
    assert_eq!(place.within("small-1", "cat /etc/own"), "mine");
    assert_eq!(place.within("small-2", "cat /etc/own || echo nothing"), "nothing");
    let random = |name: &str| place.within(name, "head -c 16 /dev/urandom | od -An -tx1");
    assert_ne!(random("small-1"), random("small-2"));

    let (said, code) = place.fails(&["vm", "exec", "small-1", "--", "/no/such"]);
    assert!(said.contains("small-1: /no/such: No such file") && code == 1, "{said}");
    place.says(&["vm", "stop", "small-1", "cold"]);
    assert_eq!(place.machines().len(), 2);
    place.says(&["vm", "kill", "--all"]);
    assert_eq!(place.machines(), Vec::<Value>::new());
    assert!(!place.directory.join("run-vm").exists());
}

#[test]
fn a_machine_that_fails_is_replaced_and_no_other_is_disturbed() {
    let Some(state) = state() else { return };
    let place = Place::new("fails", state);
    place.says(&["vm", "clone", "small", "--as", "other"]);
    place.says(&["vm", "clone", "small", "--restart", "--as", "phoenix"]);
    let other = place.await_machine("other", |_| true);
    // Its engine is killed.
    let first = place.await_machine("phoenix", |machine| machine["replaced"] == 0);
    signal(&first["engine"], Signal::KILL);
    // So are two that take its place, before they have begun.
    let mut seen = vec![first["engine"].clone()];
    while seen.len() < 3 {
        let next = started_by(&first["monitor"]).into_iter().find(|process| !seen.contains(process));
        if let Some(next) = next {
            signal(&next, Signal::KILL);
            seen.push(next);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    place.await_machine("phoenix", |machine| machine["replaced"] == 1 && machine["state"] == "up");
    assert_eq!(place.within("phoenix", "hostname"), "phoenix");
    // Its kernel gives up.
    let (said, _) = place.fails(&["vm", "exec", "phoenix", "--", "sh", "-c", "echo c > /proc/sysrq-trigger"]);
    assert!(said.contains("phoenix: the machine has ended"), "{said}");
    place.await_machine("phoenix", |machine| machine["replaced"] == 2 && machine["state"] == "up");
    let after = place.await_machine("other", |machine| machine["state"] == "up");
    assert_eq!((&after["engine"], &after["replaced"]), (&other["engine"], &Value::from(0)));
    assert_eq!(place.within("other", "echo there"), "there");
}

#[test]
fn a_machine_goes_on_from_where_it_was_saved() {
    let Some(state) = state() else { return };
    let place = Place::new("saved", state);
    place.says(&["vm", "clone", "small", "--as", "first"]);
    place.within("first", "echo kept | tee /etc/word > /run/word; (while :; do sleep 1; done) > /dev/null 2>&1 & echo $! > /run/loop");
    place.says(&["vm", "snapshot", "first", "before"]);
    let (said, _) = place.fails(&["vm", "snapshot", "first", "before"]);
    assert!(said.contains("there is a snapshot `before` already"), "{said}");
    // It goes on, and what it does now is in no snapshot.
    place.within("first", "echo later > /etc/word; kill $(cat /run/loop)");
    place.says(&["vm", "restore", "before", "--as", "second"]);
    let there = "hostname; cat /etc/word /run/word; kill -0 $(cat /run/loop) && echo runs";
    assert_eq!(place.within("second", there), "second\nkept\nkept\nruns");
    assert_eq!(place.within("first", "cat /etc/word"), "later");
    place.says(&["vm", "snapshots", "--remove", "before"]);
    assert_eq!(place.within("second", "cat /etc/word"), "kept");
    let (said, code) = place.fails(&["vm", "restore", "before"]);
    assert!(said.contains("there is no snapshot `before`") && code == 4, "{said}");
    let (said, _) = place.fails(&["vm", "run", "small", "--memory", "900000G"]);
    assert!(said.contains("is too large for this host, which has "), "{said}");
}

#[test]
fn a_machine_is_the_charge_of_a_cell_and_ends_with_it() {
    let Some(state) = state() else { return };
    let place = Place::new("cells", state);
    place.says(&["up", "--cells", "2"]);
    place.says(&["vm", "clone", "small", "--as", "mortal", "--cells", "1"]);
    place.says(&["vm", "clone", "small", "--as", "moves", "--cells", "all", "--restart"]);
    let cell = place.await_machine("mortal", |_| true)["cell"].clone();
    assert_eq!(cell, 1);
    let tasks = place.says(&["task", "ls"]);
    assert!(tasks.contains("vm mortal") && tasks.contains("vm moves"), "{tasks}");
    let first = place.await_machine("moves", |_| true)["cell"].as_u64().unwrap();
    for cell in [1, first] {
        place.says(&["cell", "kill", &cell.to_string()]);
    }
    place.await_machine("moves", |machine| {
        machine["replaced"].as_u64().unwrap() > 0 && machine["state"] == "up"
    });
    let until = Instant::now() + LIMIT;
    while place.machines().iter().any(|machine| machine["name"] == "mortal") {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    place.says(&["down"]);
    while !place.machines().is_empty() {
        assert!(Instant::now() < until, "{:?}", place.machines());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Its monitor hears of both at once: nothing takes the place of what is to end.
#[test]
fn a_machine_that_is_lost_while_it_is_told_to_end_is_gone() {
    let Some(state) = state() else { return };
    let place = Place::new("told", state);
    place.says(&["up", "--cells", "1"]);
    for _ in 0..5 {
        place.says(&["vm", "clone", "small", "--as", "lost", "--restart"]);
        let shown = place.await_machine("lost", |_| true);
        signal(&shown["monitor"], Signal::STOP);
        signal(&shown["engine"], Signal::KILL);
        place.says(&["task", "kill", &shown["monitor"].to_string()]);
        signal(&shown["monitor"], Signal::CONT);
        let until = Instant::now() + LIMIT;
        while !place.machines().is_empty() {
            assert!(Instant::now() < until, "{:?}", place.machines());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_monitor_that_does_not_answer_is_in_nobodys_way() {
    let Some(state) = state() else { return };
    let place = Place::new("silent", state);
    place.says(&["vm", "clone", "small", "-n", "2"]);
    let shown = place.await_machine("small-1", |_| true);
    signal(&shown["monitor"], Signal::STOP);
    let silent = place.await_machine("small-1", |machine| machine["state"] == "silent");
    assert_eq!(silent.as_object().unwrap().len(), 2);
    place.await_machine("small-2", |machine| machine["state"] == "up");
    let rows = place.says(&["vm", "ls"]);
    let row = rows.lines().find(|line| line.starts_with("small-1")).expect("it is there");
    assert_eq!(row.split_whitespace().nth(2), Some("silent"), "{rows}");
    let (said, _) = place.fails(&["vm", "stop", "small-1"]);
    assert!(said.contains("does not answer: `comb vm kill small-1`"), "{said}");
    place.says(&["vm", "kill", "small-1"]);
    assert_eq!(place.machines().len(), 1);
    assert!(!place.directory.join("run-vm/small-1").exists());
    let engine = format!("/proc/{}/exe", shown["engine"]);
    let until = Instant::now() + LIMIT;
    while fs::read_link(&engine).is_ok() {
        assert!(Instant::now() < until, "its engine runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    place.says(&["vm", "clone", "small", "--as", "small-1"]);
}

/// Processes of a guest whose memory has two nodes: Linux says of each page where it is, as each of them has it mapped.
#[test]
fn pages_are_in_the_node_where_the_policy_has_them() {
    let Some(state) = state() else { return };
    let place = Place::new("nodes", state);
    place.says(&["vm", "clone", "small", "--nodes", "2", "--cpus", "2", "--as", "two"]);
    assert_eq!(place.within("two", "cat /sys/devices/system/node/node*/distance"), "10 30\n30 10");
    assert_eq!(place.within("two", "nproc"), "2");
    let said = place.within("two", "comb-guest nodes");
    let (hot, stored) = said.split_once("after a store into what all had read:").expect("both");
    for (part, line) in [
        (hot, "used by the second node alone: lives in node 1, copies in []; 4 of 4 are there"),
        (hot, "used by its own node alone: lives in node 0, copies in []; 4 of 4 are there"),
        (hot, "read by all: lives in node 0, copies in [1]; 4 of 4 are there"),
        (hot, "written by all: lives in node 0, copies in []; 4 of 4 are there"),
        (stored, "read by all: lives in node 0, copies in []; 4 of 4 are there"),
        (stored, "used by the second node alone: lives in node 1, copies in []; 4 of 4 are there"),
    ] {
        assert!(part.contains(line), "{line}\n{said}");
    }
    place.says(&["vm", "clone", "small", "--as", "one"]);
    let (said, code) = place.fails(&["vm", "exec", "one", "--", "comb-guest", "nodes"]);
    assert!(said.contains("its memory has 1 nodes, and 2 to 8 are needed") && code == 1, "{said}");
}

#[test]
fn machines_have_memory_in_common() {
    let Some(state) = state() else { return };
    let place = Place::new("common", state);
    let turns = place.directory.join("turns");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vm/examples/turns.c");
    let compiled =
        Command::new("cc").args(["-O2", "-static", "-o"]).args([&turns, &source]).status().unwrap();
    assert!(compiled.success());
    let (said, code) = place.fails(&["vm", "clone", "small", "--segment", "both"]);
    assert!(said.contains("no machine has a segment `both`") && code == 4, "{said}");
    // One that continues where a template stood, and one that boots.
    place.says(&["vm", "clone", "small", "--as", "one", "--cpus", "2", "--segment", "both=4M", "--restart"]);
    place.says(&["vm", "run", "small", "--as", "other", "--segment", "both", "--segment", "own=2M"]);
    let (said, _) = place.fails(&["vm", "clone", "small", "--segment", "both=8M"]);
    assert!(said.contains("the segment `both` has 4194304 bytes"), "{said}");
    let put = |machine: &str| {
        let mut puts =
            place.comb(&["vm", "exec", machine, "--", "sh", "-c", "cat > /tmp/turns; chmod +x /tmp/turns"]);
        let input = fs::File::open(&turns).unwrap();
        assert!(puts.stdin(input).status().unwrap().success());
    };
    let take = |machine: &str, segment: &str, own: &str| {
        place.comb(&["vm", "exec", machine, "--", "/tmp/turns", segment, own, "50"])
    };
    for machine in ["one", "other"] {
        put(machine);
    }
    let first = take("one", "/dev/segments/both", "0").stdout(Stdio::piped()).spawn().unwrap();
    let second = take("other", "/dev/segments/both", "1").output().unwrap();
    let first = first.wait_with_output().unwrap();
    assert!(first.status.success() && second.status.success(), "{first:?} {second:?}");
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(
        said.contains("the number is 100\n") && said.ends_with("2000000 additions, 0 were lost\n"),
        "{said}"
    );
    assert_eq!(place.within("other", "ls /dev/segments"), "both\nown");
    let (said, _) = place.fails(&["vm", "snapshot", "one", "moment"]);
    assert!(said.contains("memory in common"), "{said}");
    // Whoever takes its place has what is there.
    signal(&place.await_machine("one", |_| true)["engine"], Signal::KILL);
    place.await_machine("one", |machine| machine["replaced"] == 1 && machine["state"] == "up");
    put("one");
    let first = take("one", "/dev/segments/both", "0").stdout(Stdio::piped()).spawn().unwrap();
    let second = take("other", "/dev/segments/both", "1").output().unwrap();
    assert!(first.wait_with_output().unwrap().status.success());
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(
        said.contains("the number is 200\n") && said.ends_with("4000000 additions, 0 were lost\n"),
        "{said}"
    );
    // It is there to the last.
    let run = place.directory.join("run").to_str().unwrap().replace('/', "-");
    let memory = PathBuf::from(format!("/dev/shm/comb-segments{run}"));
    assert!(memory.join("both").exists());
    place.says(&["vm", "stop", "--all"]);
    let until = Instant::now() + LIMIT;
    while memory.exists() {
        assert!(Instant::now() < until, "{memory:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (said, _) = place.fails(&["vm", "clone", "small", "--segment", "both"]);
    assert!(said.contains("no machine has a segment `both`"), "{said}");
}

#[test]
fn what_cannot_be_run_is_said() {
    let place =
        Place::new("said", &std::env::temp_dir().join(format!("comb-vm-none-{}", std::process::id())));
    let (said, code) = place.fails(&["vm", "clone", "nothing"]);
    assert!(
        said.contains("there is no image `nothing` in /")
            && said.contains("`comb vm create nothing --from-debian`")
            && code == 4,
        "{said}"
    );
    let (said, code) = place.fails(&["vm", "exec", "nobody", "--", "true"]);
    assert!(said.contains("there is no machine `nobody`") && code == 4, "{said}");
    for segment in ["a/b", "seventeen-letters", "both=none", ""] {
        let (said, code) = place.fails(&["vm", "run", "small", "--segment", segment]);
        assert!(said.contains("--segment") && code == 2, "{said}");
    }
    for name in ["../x", "-x", "a b"] {
        let (said, code) = place.fails(&["vm", "run", "--", name]);
        assert!(said.contains("is no name") && code == 2, "{said}");
    }
    let Some(state) = state() else { return };
    let place = Place::new("said-there", state);
    let (said, _) = place.fails(&["vm", "create", "small", "--from-debian"]);
    assert!(said.contains("there is an image `small` already"), "{said}");
    let (said, code) = place.fails(&["vm", "run", "small", "--cells", "1"]);
    assert!(said.contains("`comb up` starts them"), "{said} {code}");
    let without = place.comb(&["vm", "run", "small"]).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8(without.stderr).unwrap();
    assert!(
        said.contains("qemu-system-x86_64 is not installed here (apt install qemu-system-x86)"),
        "{said}"
    );
    place.says(&["vm", "clone", "small", "--as", "twin"]);
    let (said, _) = place.fails(&["vm", "clone", "small", "--as", "twin"]);
    assert!(said.contains("a machine `twin` runs already"), "{said}");
    let (said, code) = place.fails(&["vm", "run", "small", "--as", "tiny", "--memory", "2M"]);
    assert!(said.contains("a guest needs at least 64M") && code == 2, "{said}");
    assert_eq!(place.within("twin", "echo on"), "on");
}

/// How many processes the engines of a monitor have now.
fn engines_of(monitor: &Value) -> usize {
    let place = format!("comb-uml-{monitor}-");
    let entries = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(&place)).count()
}

#[test]
fn user_mode_linux_runs_programs_and_leaves_nothing_behind() {
    let Some(state) = state() else { return };
    if !is_there("linux.uml") {
        eprintln!("user-mode Linux is not here: `make setup-test` brings it");
        return;
    }
    let place = Place::new("user-mode", state);
    let (said, code) = place.fails(&["vm", "run", "small", "--engine", "uml", "--cpus", "2"]);
    assert!(said.contains("neither --cpus") && code == 2, "{said}");
    place.says(&["vm", "run", "small", "--engine", "uml", "--restart", "--as", "light"]);
    let first = place.await_machine("light", |machine| machine["state"] == "up");
    assert_eq!((&first["accelerator"], &first["replaced"]), (&Value::from("uml"), &Value::from(0)));
    assert!(first["host_bytes"].as_u64().unwrap() > 16 << 20, "with what it has started: {first}");
    assert_eq!(place.within("light", "hostname; nproc"), "light\n1");

    // All bytes come as they went, both ways: the line is no terminal.
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = place
        .comb(&["vm", "exec", "light", "--", "sh", "-c", "cat; exit 7"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let writes = {
        let bytes = bytes.clone();
        std::thread::spawn(move || input.write_all(&bytes).unwrap())
    };
    let output = child.wait_with_output().unwrap();
    writes.join().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(output.stdout == bytes, "{} bytes came", output.stdout.len());

    // What it writes is its own, and gone with it; what it cannot do is said.
    assert_eq!(place.within("light", "echo mine > /etc/own; sync; cat /etc/own"), "mine");
    for words in [&["vm", "snapshot", "light", "never"][..], &["vm", "mem", "light", "128M"]] {
        let (said, _) = place.fails(words);
        assert!(said.contains("needs QEMU"), "{words:?}: {said}");
    }

    // Its process is killed, and programs that run in it end with it.
    place.within("light", "(while :; do :; done) > /dev/null 2>&1 & sleep 1000 > /dev/null 2>&1 &");
    signal(&first["engine"], Signal::KILL);
    place.await_machine("light", |machine| machine["replaced"] == 1 && machine["state"] == "up");
    assert_eq!(
        place.within("light", "cat /etc/own || echo nothing; ps | grep -c 'sleep 10[0]0' || true"),
        "nothing\n0"
    );

    // Its kernel gives up.
    place.within("light", "(while :; do :; done) > /dev/null 2>&1 &");
    let (said, _) = place.fails(&["vm", "exec", "light", "--", "sh", "-c", "echo c > /proc/sysrq-trigger"]);
    assert!(said.contains("light: the machine has ended"), "{said}");
    let last = place.await_machine("light", |machine| machine["replaced"] == 2 && machine["state"] == "up");

    // Its monitor is killed.
    place.says(&["vm", "run", "small", "--engine", "uml", "--as", "other"]);
    let other = place.await_machine("other", |machine| machine["state"] == "up");
    assert!(engines_of(&other["monitor"]) > 1 && engines_of(&last["monitor"]) > 1);
    signal(&other["monitor"], Signal::KILL);
    place.says(&["vm", "stop", "light"]);
    let until = Instant::now() + LIMIT;
    while engines_of(&other["monitor"]) + engines_of(&last["monitor"]) > 0 {
        assert!(Instant::now() < until, "something of a machine is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}
