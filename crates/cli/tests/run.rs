//! Tasks by the real command: on this host, on others, failing, interrupted, killed, and gone without a trace.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use comb_region::task::Description;
use comb_region::{Array, Lock, Sharing, Task, Terms};

#[path = "../../region/examples/hello_task.rs"]
mod hello_task;
#[path = "../../net/tests/transports/namespaces.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod namespaces;

use namespaces::{ADDRESSES, CABLE, Namespace};

/// For what takes milliseconds on an idle machine. A test that runs into this has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// Two hosts that are this one.
const BOTH_HERE: [&str; 4] = ["--hosts", "a=127.0.0.2,b=127.0.0.3", "--shell", "env"];

/// A component's shell script: what each rank does.
const ENDLESS: &str = "echo $$; while :; do sleep 0.01; done";

/// The processes of one test, which have its directory in their environment.
struct Scene {
    directory: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("comb-run-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let scene = Self { directory };
        std::fs::create_dir(scene.runtime()).unwrap();
        scene
    }

    /// Where launchers make their directories.
    fn runtime(&self) -> PathBuf {
        self.directory.join("runtime")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command.arg("run");
        // What hangs is to fail.
        if !arguments.contains(&"--limit") {
            command.args(["--limit", "300"]);
        }
        command.args(arguments).env("XDG_RUNTIME_DIR", self.runtime());
        // Passed on to other hosts, as all that begins so.
        command.env("COMB_TEST_SCENE", &self.directory).env_remove("COMB_WITHOUT").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        self.assert_gone();
        output
    }

    /// What a task that is to succeed wrote.
    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a task that is to fail with that status said of it: one line.
    #[track_caller]
    fn fails(&self, arguments: &[&str], status: i32) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.starts_with("comb: ") && text.lines().count() == 1, "{text}");
        text
    }

    /// A task that goes on, after so many components have said their process numbers.
    fn start(&self, arguments: &[&str], components: usize) -> (Child, Vec<u32>) {
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines.take(components).map(|line| line.unwrap().trim().parse().unwrap()).collect())
    }

    /// Processes of this test. One that is dead and not reaped has no environment.
    fn processes(&self) -> Vec<u32> {
        let mark = format!("COMB_TEST_SCENE={}\0", self.directory.display()).into_bytes();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark)
        };
        pids.filter(ours).collect()
    }

    #[track_caller]
    fn assert_no_process(&self) {
        let started = Instant::now();
        while !self.processes().is_empty() {
            assert!(started.elapsed() < LIMIT, "left: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Neither process nor file.
    #[track_caller]
    fn assert_gone(&self) {
        self.assert_no_process();
        let left: Vec<_> = std::fs::read_dir(self.runtime()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal("-KILL", pid);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn signal(signal: &str, pid: u32) {
    let _ = Command::new("kill").args([signal, &pid.to_string()]).status();
}

/// Arguments of a shell script with a different part for one rank.
fn script(rank: u32, of_it: &str, of_others: &str) -> String {
    format!("case $COMB_TASK in *'\"rank\":{rank},'*) {of_it};; *) {of_others};; esac")
}

/// Not a test, but the program of some: it is what a launched test binary runs.
#[test]
fn component() {
    if Description::from_environment().is_ok() {
        // The tests' harness may have begun a line.
        println!();
        if std::env::var_os(SHARES_MEMORY).is_some() { share_memory() } else { hello_task::main().unwrap() }
    }
}

/// Set for components that share memory. Passed on to other hosts, as all that begins so.
const SHARES_MEMORY: &str = "COMB_TEST_SHARES_MEMORY";

/// Each stores into a part of its own, round after round, and into one number by turns; all find all of it.
fn share_memory() {
    const EACH: usize = 3000;
    let task = Task::join().expect("the launcher is there");
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    for sharing in [Sharing::Stache, Sharing::Migratory, Sharing::Release, Sharing::Update] {
        for block_bytes in [4096, 65536] {
            let terms = Terms { sharing, block_bytes, ..Terms::default() };
            let numbers = Array::<u64>::together(&task, EACH * count + 1, &terms).expect("allocated");
            let lock = Lock::new(&task, 1);
            for round in 1..4_u64 {
                (0..EACH).for_each(|index| numbers.set(rank * EACH + index, round << 32 | index as u64));
                let held = lock.write();
                numbers.set(EACH * count, numbers.get(EACH * count) + 1);
                drop(held);
                task.barrier();
                for index in 0..EACH * count {
                    assert_eq!(numbers.get(index), round << 32 | (index % EACH) as u64, "{terms:?}, {index}");
                }
                assert_eq!(numbers.get(EACH * count), round * count as u64, "{terms:?}");
                task.barrier();
            }
        }
    }
    println!("shared");
}

#[track_caller]
fn all_share_memory(scene: &Scene, options: &[&str], count: usize) {
    let program = hello();
    let arguments: Vec<&str> = options.iter().copied().chain(program.iter().map(String::as_str)).collect();
    let output = scene.command(&arguments).env(SHARES_MEMORY, "1").output().unwrap();
    scene.assert_gone();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.matches("shared\n").count() == count, "{output:?}");
}

/// What `comb run` is to run so that each component says hello to all others.
fn hello() -> Vec<String> {
    let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    [&program, "--exact", "component", "--nocapture"].map(str::to_owned).to_vec()
}

#[track_caller]
fn all_say_hello(scene: &Scene, options: &[&str], count: u32) {
    let hello = hello();
    let arguments: Vec<&str> = options.iter().copied().chain(hello.iter().map(String::as_str)).collect();
    let said = scene.ok(&arguments);
    for (rank, from) in (0..count).flat_map(|rank| (0..count).map(move |from| (rank, from))) {
        let line = format!("[{rank}] {rank}: hello {rank}, from {from}\n");
        assert_eq!(said.contains(&line), rank != from, "{rank}, {from}: {said}");
    }
}

#[test]
fn four_components_exchange_messages() {
    let scene = Scene::new("hello");
    all_say_hello(&scene, &["-n", "4", "--label", "--"], 4);
    all_say_hello(&scene, &["-n4", "--share=copy", "--bind", "--label", "--"], 4);
}

#[test]
fn components_of_one_host_and_of_two_share_memory() {
    let scene = Scene::new("memory");
    all_share_memory(&scene, &["-n", "3", "--"], 3);
    all_share_memory(&scene, &["-n", "3", "--share", "copy", "--"], 3);
    all_share_memory(&scene, &[&BOTH_HERE[..], &["-n", "3", "--"]].concat(), 3);
}

#[test]
fn components_of_two_hosts_exchange_messages() {
    let scene = Scene::new("two-hosts");
    all_say_hello(&scene, &[&BOTH_HERE[..], &["-n", "4", "--label", "--"]].concat(), 4);
    all_say_hello(&scene, &["--hosts", "a=127.0.0.2:2,b=127.0.0.3:1", "--shell", "env", "--label", "--"], 3);
}

#[test]
fn components_of_two_namespaces_exchange_messages_over_a_cable() {
    let cable = match Cable::make() {
        Ok(made) => made,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let scene = Scene::new("cable");
    // Found by the host's name, as with `ip netns`, but without leaving names in the system.
    let names = scene.directory.join("hosts");
    std::fs::create_dir(&names).unwrap();
    for (end, host) in cable.ends.iter().zip(["alpha", "beta"]) {
        std::os::unix::fs::symlink(end.path(), names.join(host)).unwrap();
    }
    let shell = format!("nsenter --net={}/{{host}}", names.display());
    let hosts = format!("alpha={},beta={}", ADDRESSES[0], ADDRESSES[1]);
    let before = cable.received_bytes();
    all_say_hello(&scene, &["--hosts", &hosts, "--shell", &shell, "-n", "4", "--label", "--"], 4);
    all_share_memory(&scene, &["--hosts", &hosts, "--shell", &shell, "-n", "2", "--"], 2);
    assert!(cable.received_bytes() > before + 1000, "by the cable, not beside it");
}

/// Two network namespaces with a cable between.
struct Cable {
    ends: [Namespace; 2],
}

impl Cable {
    fn make() -> Result<Self, String> {
        let ends = [Namespace::make()?, Namespace::make()?];
        let other = ["type", "veth", "peer", "name", CABLE, "netns", &ends[1].path()];
        ends[0].ip(&[&["link", "add", CABLE], &other[..]].concat())?;
        for (end, address) in ends.iter().zip(ADDRESSES) {
            end.ip(&["address", "add", &format!("{address}/24"), "dev", CABLE])?;
            end.ip(&["link", "set", CABLE, "up"])?;
        }
        Ok(Self { ends })
    }

    fn received_bytes(&self) -> u64 {
        let devices = self.ends[0].run("cat", &["/proc/net/dev"]).unwrap();
        let cable = devices.lines().find_map(|line| line.trim().strip_prefix(CABLE)?.strip_prefix(':'));
        cable.unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }
}

#[test]
fn the_exit_status_is_that_of_the_first_that_failed() {
    let scene = Scene::new("status");
    assert_eq!(scene.ok(&["-n", "3", "--", "true"]), "");
    let fails = script(1, "exit 7", "exec sleep 1000");
    let said = scene.fails(&["-n", "3", "sh", "-c", &fails], 7);
    assert!(
        said.contains("component 1 (pid ") && said.contains("failed with status 7; the task ends with it"),
        "{said}"
    );
    let said = scene.fails(&[&BOTH_HERE[..], &["-n", "2", "sh", "-c", &fails]].concat(), 7);
    assert!(said.contains("component 1 (pid "), "{said}");
}

#[test]
fn a_task_that_is_not_over_within_its_limit_is_ended() {
    let scene = Scene::new("late");
    for hosts in [&[][..], &BOTH_HERE] {
        let said = scene.fails(&[hosts, &["-n", "2", "--limit", "0.2", "sleep", "1000"]].concat(), 124);
        assert_eq!(said, "comb: the task was not over after 200ms (--limit) and was told to end\n");
    }
}

#[test]
fn a_component_that_is_killed_ends_all_others() {
    let scene = Scene::new("killed");
    let killed = script(2, "kill -9 $$", "trap '' TERM; while :; do sleep 0.01; done");
    for hosts in [&[][..], &BOTH_HERE] {
        let said = scene.fails(&[hosts, &["-n", "4", "sh", "-c", &killed]].concat(), 137);
        assert!(said.contains("component 2 (pid "), "{said}");
        assert!(said.ends_with("was killed by signal 9 (SIGKILL); the task ends with it\n"), "{said}");
    }
}

/// Neither the components nor what they have started: here each is a shell that waits for a process of its own.
#[test]
fn a_launcher_that_is_killed_leaves_nothing() {
    let nested = format!("sh -c '{ENDLESS}'; true");
    for hosts in [&[][..], &BOTH_HERE] {
        let scene = Scene::new(if hosts.is_empty() { "launcher" } else { "launcher-hosts" });
        let (mut launcher, inner) = scene.start(&[hosts, &["-n", "4", "sh", "-c", &nested]].concat(), 4);
        let running = scene.processes();
        assert!(inner.iter().all(|pid| running.contains(pid)), "{inner:?} of {running:?}");
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        scene.assert_gone();
    }
}

/// The first host's part dies: its components with it, and the task.
#[test]
fn a_host_that_is_lost_is_the_tasks_failure() {
    let scene = Scene::new("lost");
    let endless = [&BOTH_HERE[..], &["-n", "2", "sh", "-c", ENDLESS]].concat();
    let mut command = scene.command(&endless);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let first: u32 = lines.take(2).map(|line| line.unwrap().parse().unwrap()).next().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    let part = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap();
    signal("-KILL", part);
    let output = launcher.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is lost: host ") && said.contains("does not answer any more"), "{said}");
    scene.assert_gone();
}

#[test]
fn interrupted_by_ctrl_c_the_components_are_told_and_the_second_time_killed() {
    for hosts in [&[][..], &BOTH_HERE] {
        let scene = Scene::new(if hosts.is_empty() { "interrupted" } else { "interrupted-hosts" });
        let (mut launcher, _) = scene.start(&[hosts, &["-n", "2", "sh", "-c", ENDLESS]].concat(), 2);
        signal("-INT", launcher.id());
        assert_eq!(launcher.wait().unwrap().code(), Some(130));
        scene.assert_gone();

        let deaf = format!("trap '' INT; {ENDLESS}");
        let (mut launcher, _) = scene.start(&[hosts, &["-n", "2", "sh", "-c", &deaf]].concat(), 2);
        let started = Instant::now();
        // Two that come at once are taken for one.
        while launcher.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < LIMIT);
            signal("-INT", launcher.id());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(launcher.wait().unwrap().code(), Some(130));
        scene.assert_gone();
    }
}

#[test]
fn told_to_end_a_task_ends_within_the_limit() {
    let scene = Scene::new("told");
    let deaf = format!("trap '' TERM; {ENDLESS}");
    let (mut launcher, _) = scene.start(&["-n", "2", "sh", "-c", &deaf], 2);
    signal("-TERM", launcher.id());
    assert_eq!(launcher.wait().unwrap().code(), Some(143));
    scene.assert_gone();
}

/// A host that does not answer holds up nobody who wants to end.
#[test]
fn told_to_end_before_all_hosts_have_answered_it_ends() {
    let scene = Scene::new("early");
    // One answers; the other is as silent as a host that is off.
    let shell = format!(
        "sh -c 'test {{host}} = a && exec \"$@\"; : > {}/asked; exec sleep 1000' sh",
        scene.directory.display()
    );
    let hosts = ["--hosts", "a=127.0.0.2,b=127.0.0.3", "--shell", &shell, "true"];
    let mut launcher = scene.command(&hosts).spawn().unwrap();
    let started = Instant::now();
    while !scene.directory.join("asked").exists() {
        assert!(started.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    signal("-TERM", launcher.id());
    assert_eq!(launcher.wait().unwrap().code(), Some(143));
    scene.assert_gone();
}

#[test]
fn lines_have_labels_and_errors_stay_errors() {
    let scene = Scene::new("labels");
    let output = scene.run(&["-n", "2", "--label", "sh", "-c", "echo one; printf two; echo bad >&2"]);
    let sorted = |bytes: Vec<u8>| {
        let mut lines: Vec<String> = String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(output.stdout), ["[0] one", "[0] two", "[1] one", "[1] two"]);
    assert_eq!(sorted(output.stderr), ["[0] bad", "[1] bad"]);
}

#[test]
fn standard_input_is_read_by_component_0_alone() {
    for hosts in [&[][..], &BOTH_HERE] {
        let scene = Scene::new(if hosts.is_empty() { "input" } else { "input-hosts" });
        let mut command = scene.command(&[hosts, &["-n", "3", "--label", "sh", "-c", "wc -c"]].concat());
        let mut launcher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // More than pipes hold.
        launcher.stdin.take().unwrap().write_all(&vec![b'x'; 1_000_000]).unwrap();
        let output = launcher.wait_with_output().unwrap();
        let mut lines: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["[0] 1000000", "[1] 0", "[2] 0"]);
        // Whoever reads nothing does not hold up the task, nor its writer.
        let mut command = scene.command(&[hosts, &["-n", "2", "true"]].concat());
        let mut launcher = command.stdin(Stdio::piped()).spawn().unwrap();
        let input = launcher.stdin.take().unwrap();
        assert!(launcher.wait().unwrap().success());
        drop(input);
    }
}

#[test]
fn what_cannot_be_run_is_said_before_anything_starts() {
    let scene = Scene::new("cannot");
    let in_path = "there is no program no-such-program in PATH";
    for (arguments, words) in [
        (&["-n", "2", "no-such-program"][..], in_path),
        (&["-n", "2", "./no-such-program"], "cannot run"),
        (&["-n", "2", "/etc/passwd"], "cannot be executed"),
        (&["--", "true"], "how many components?"),
        (&["-n", "1", "--directory", "/no/such", "true"], "no directory /no/such"),
        (&["-n", "1", "--bind=1000", "true"], "no core 1000"),
        (&["-n", "3", "--hosts", "a=127.0.0.2:2", "true"], "hosts that are to get 2"),
        (&["--hosts", "no-such-host.invalid", "true"], "--hosts no-such-host.invalid=ADDRESS"),
        (
            &["--hosts", "a=127.0.0.2,b=192.0.2.1", "--shell", "env", "true"],
            "host b: cannot listen on 192.0.2.1",
        ),
        (&["--hosts", "a=127.0.0.2", "--shell", "false", "true"], "host a: `false "),
        (&["--hosts", "a=127.0.0.2", "--shell", "echo hello {host}", "true"], "says \"hello a sh\""),
        (&["--hosts", "a=127.0.0.2", "--shell", "no-such-shell", "true"], "host a: cannot run no-such-shell"),
        (&["--hosts", "a=127.0.0.2", "--shell", "'", "true"], "a quote is open"),
        (&["--hosts", "a=127.0.0.2", "--shell", "env", "no-such-program"], in_path),
    ] {
        let status = if words.starts_with("how many") { 2 } else { 1 };
        let said = scene.fails(arguments, status);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

/// The usage is told, and exit status 2 with it, as by all commands.
#[test]
fn arguments_that_make_no_sense_are_refused() {
    let scene = Scene::new("arguments");
    for (arguments, words) in [
        (&["-n", "0", "true"][..], "0 is not in 1..=1024"),
        (&["-n", "2"], "PROGRAM"),
        (&["-n", "2", "--restore", "true"], "--checkpoint"),
        (&["-n", "2", "--memory", "much", "true"], "512M"),
        (&["-n", "2", "--copies", "much", "true"], "512M"),
        (&["-n", "2", "--env", "COMB_TASK=x", "true"], "COMB_TASK"),
        (&["-n", "2", "--hosts", "a=b", "true"], "NAME=ADDRESS:COUNT"),
    ] {
        let output = scene.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn options_arrive() {
    let scene = Scene::new("options");
    let options = [
        "-n",
        "1",
        "--memory",
        "2G",
        "--copies",
        "64M",
        "--checkpoint",
        "/c",
        "--restore",
        "--env",
        "COLOUR=red",
        "--directory",
        "/usr",
    ];
    let said = scene.ok(&[&options[..], &["sh", "-c", "echo $COMB_TASK; pwd; echo $COLOUR"]].concat());
    let lines: Vec<&str> = said.lines().collect();
    let task = Description::parse(lines[0]).unwrap();
    assert_eq!((task.memory_bytes, task.copies_bytes), (2 << 30, 64 << 20));
    assert!(task.checkpoint.is_some_and(|c| c.restores && c.directory.ends_with("c")));
    assert_eq!(lines[1..], ["/usr", "red"]);
    // On other hosts, what is inherited here is passed on.
    let here = std::env::current_dir().unwrap();
    let said = scene.ok(&[&BOTH_HERE[..], &["sh", "-c", "pwd; echo $COMB_TEST_SCENE"]].concat());
    let expected = format!("{}\n{}\n", here.display(), scene.directory.display());
    assert_eq!(said.len(), 2 * expected.len(), "{said}");
}
