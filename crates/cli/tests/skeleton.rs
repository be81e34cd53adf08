//! Cells as real processes, by the real command: started, killed, missed, started again, and gone without a trace.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use self::cells::Comb;

mod cells;
#[path = "../../net/tests/standing/mod.rs"]
mod standing;

impl Comb {
    /// Runs a command that is to fail with one line; that line.
    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(1..=6)), "comb {arguments:?}: {text}");
        assert!(text.starts_with("comb: ") && text.lines().count() == 1, "{text}");
        text
    }

    fn agent_pid(&self) -> u64 {
        self.status()["agent"]["pid"].as_u64().unwrap()
    }

    /// Waits until the log has so many lines with that text, and returns them.
    #[track_caller]
    fn logged(&self, text: &str, lines: usize) -> Vec<String> {
        self.wait_for(&format!("{lines} lines with {text:?} in the log"), || {
            let found: Vec<String> =
                self.log().lines().filter(|l| l.contains(text)).map(String::from).collect();
            (found.len() >= lines).then_some(found)
        })
    }

    fn cgroup(&self) -> Option<PathBuf> {
        self.status()["agent"]["cgroup"].as_str().map(PathBuf::from)
    }

    /// An agent by hand, to take over from a dead one.
    fn host(&self) -> Child {
        self.command(&["host"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    #[track_caller]
    fn assert_gone(&self, cgroup: Option<&Path>) {
        self.wait_for("the end of all processes", || self.processes().is_empty().then_some(()));
        assert!(!self.directory().exists());
        assert!(cgroup.is_none_or(|cgroup| !cgroup.exists()), "{cgroup:?} is left");
    }

    /// Processes of this cells, which is in their environment. One that is dead and not reaped has none.
    fn processes(&self) -> Vec<u32> {
        let mark = format!("COMB_RUNTIME_DIR={}\0", self.directory().display()).into_bytes();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark)
        })
        .collect()
    }
}

fn cell(status: &Value, number: usize) -> &Value {
    &status["cells"][number - 1]
}

fn signal(signal: &str, pid: u64) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

fn stop(pid: u64) {
    standing::stop(rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap());
}

fn kill_process(pid: u64) {
    signal("-KILL", pid);
}

/// How often a process gave up its core of itself: grows while it works and sleeps in turn.
fn sleeps(pid: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_cell_dies_and_the_others_carry_on() {
    let cells = Comb::new("carry-on");
    let up = cells.ok(&["up", "--cells", "4"]);
    assert!(up.contains("4 cells are up") && up.contains("6 in all"), "{up}");
    let before = cells.status();
    let cgroup = cells.cgroup();
    for number in 1..=4 {
        assert_eq!(cell(&before, number)["state"], "up");
        assert_eq!(cell(&before, number)["channels"], 3);
        let own = cgroup.as_ref().map(|cgroup| cgroup.join(format!("cell-{number}/cgroup.procs")));
        let own = own.map(|procs| std::fs::read_to_string(procs).unwrap());
        assert!(own.is_none_or(|own| own.trim().parse().ok() == cell(&before, number)["pid"].as_u64()));
    }
    let table = cells.ok(&["ps"]);
    assert_eq!(table.lines().count(), 7, "{table}");

    let killed = cells.ok(&["cell", "kill", "2", "--hold"]);
    let pid = &cell(&before, 2)["pid"];
    assert!(
        killed.contains(&format!("cell 2 (process {pid}) killed; 3 of 3 peers noticed within ")),
        "{killed}"
    );
    let notices = cells.logged("the channel to cell-2/wire ended", 3);
    for number in [1, 3, 4] {
        let own = notices.iter().find(|line| line.contains(&format!(" cell {number}: ")));
        let own = own.unwrap_or_else(|| panic!("cell {number} did not notice: {notices:?}"));
        assert!(own.ends_with(&format!("its process {pid} ended")), "{own}");
        assert!(own.contains(" ms after the kill"), "{own}");
    }
    let after = cells.status();
    assert_eq!(cell(&after, 2)["state"]["ended"], "killed by its agent");
    for number in [1, 3, 4] {
        assert_eq!(cell(&after, number)["channels"], 2);
        assert_eq!(cell(&after, number)["pid"], cell(&before, number)["pid"]);
    }
    assert!(cells.fails(&["cell", "kill", "2"]).contains("`comb cell start 2`"));

    let started = cells.ok(&["cell", "start", "2"]);
    assert!(started.contains("incarnation 2") && started.contains("3 of 3 channels"), "{started}");
    assert!(cells.fails(&["cell", "start", "2"]).contains("running already"));
    let again = cells.status();
    assert_eq!(cell(&again, 2)["incarnation"], 2);
    assert_ne!(cell(&again, 2)["pid"], cell(&before, 2)["pid"]);
    // The new life talks, and is talked to.
    cells.wait_for("heartbeats of the new life", || {
        (cell(&cells.status(), 2)["round_trips"].as_u64()? > 3).then_some(())
    });

    let down = cells.ok(&["down"]);
    assert!(down.contains("ended 4 cells"), "{down}");
    cells.assert_gone(cgroup.as_deref());
    assert!(cells.ok(&["down"]).contains("nothing is running"));
}

#[test]
fn a_cell_killed_by_somebody_else_is_missed_as_well() {
    let cells = Comb::new("somebody");
    cells.ok(&["up", "--cells", "3"]);
    let pid = cell(&cells.status(), 1)["pid"].as_u64().unwrap();
    kill_process(pid);
    let notices = cells.logged("the channel to cell-1/wire ended: ", 2);
    assert!(notices.iter().all(|line| line.ends_with(&format!("its process {pid} ended"))), "{notices:?}");
    cells.logged("killed by signal 9", 1);
    // The others find nothing that speaks against it, and it comes back to them.
    cells.logged("started cell 1", 1);
    cells.wait_for("cell 1 to be back", || {
        let status = cells.status();
        (cell(&status, 1)["incarnation"] == 2 && cell(&status, 1)["channels"] == 2).then_some(())
    });
    assert!(cells.ok(&["log", "-n", "1"]).lines().count() == 1);
}

#[test]
fn cells_go_on_without_their_agent_and_are_handed_back_to_the_next() {
    let cells = Comb::new("agent");
    cells.ok(&["up", "--cells", "4"]);
    let (before, cgroup) = (cells.status(), cells.cgroup());
    let pids: Vec<u64> = (1..=4).map(|number| cell(&before, number)["pid"].as_u64().unwrap()).collect();
    // One is stopped when the agent dies. It was once in the agent's session, and the kernel sent it SIGHUP.
    let agent = cells.agent_pid();
    // The others find that soon, and it would end it.
    stop(agent);
    stop(pids[3]);
    signal("-KILL", agent);
    cells.logged("its agent is away", 3);
    signal("-CONT", pids[3]);
    cells.logged("its agent is away", 4);
    let dead = cells.fails(&["ps"]);
    assert!(dead.contains("is dead") && dead.contains("4 of its cells"), "{dead}");
    let asleep: Vec<u64> = pids.iter().map(|&pid| sleeps(pid)).collect();
    cells.wait_for("life in all cells", || {
        pids.iter().zip(&asleep).all(|(&pid, before)| sleeps(pid) > before + 100).then_some(())
    });

    let mut host = cells.host();
    for line in cells.logged("its agent is back", 4) {
        let (_, beats) = line.split_once("; ").unwrap();
        assert!(!beats.starts_with("0 heartbeats"), "{line}");
    }
    cells.wait_for("all cells to be up", || {
        let status = cells.status_if_any()?;
        (1..=4).all(|n| cell(&status, n)["state"] == "up" && cell(&status, n)["channels"] == 3).then_some(())
    });
    let after = cells.status();
    let pids_after: Vec<u64> = (1..=4).map(|number| cell(&after, number)["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids, pids_after);

    // A watcher that once locked its own book twice, when the agent came back, never saw an end again.
    let killed = cells.ok(&["cell", "kill", "3", "--hold"]);
    assert!(killed.contains("3 of 3 peers noticed"), "{killed}");
    assert!(cells.ok(&["cell", "start", "3"]).contains("3 of 3 channels"));
    assert!(cells.ok(&["down"]).contains("ended 4 cells"));
    host.wait().unwrap();
    cells.assert_gone(cgroup.as_deref());
}

#[test]
fn a_dead_agents_cells_are_cleared_by_down_and_by_up() {
    let cells = Comb::new("cleared");
    cells.ok(&["up", "--cells", "2"]);
    let cgroup = cells.cgroup();
    kill_process(cells.agent_pid());
    let down = cells.ok(&["down"]);
    assert!(down.contains("was dead") && down.contains("2 cells"), "{down}");
    cells.assert_gone(cgroup.as_deref());

    cells.ok(&["up", "--cells", "2"]);
    let cgroup = cells.cgroup();
    kill_process(cells.agent_pid());
    let up = cells.ok(&["up", "--cells", "3"]);
    assert!(up.contains("was dead") && up.contains("3 cells are up"), "{up}");
    assert!(cgroup.is_none_or(|cgroup| !cgroup.exists()));
}

#[test]
fn cells_that_no_agent_comes_back_for_end_by_themselves() {
    let cells = Comb::new("orphans");
    cells.ok(&["up", "--cells", "2"]);
    kill_process(cells.agent_pid());
    cells.logged("ends: its agent has been away", 2);
    cells.wait_for("the end of all cells", || cells.processes().is_empty().then_some(()));
    assert!(cells.fails(&["ps"]).contains("`comb down` clears"));
    cells.ok(&["down"]);
    cells.assert_gone(None);
}

#[test]
fn up_twice_is_an_error_that_names_the_running_one() {
    let cells = Comb::new("twice");
    cells.ok(&["up", "--cells", "1"]);
    let error = cells.fails(&["up"]);
    assert!(error.contains(&cells.agent_pid().to_string()), "{error}");
    assert!(error.contains("comb down") && error.contains(cells.directory().to_str().unwrap()), "{error}");
    assert!(cells.fails(&["cell", "kill", "9"]).contains("there is no cell 9"));
    assert!(cells.ok(&["cell", "kill", "1"]).contains("no peers"));
}

#[test]
fn two_sets_of_cells_do_not_know_each_other() {
    let (one, two) = (Comb::new("one"), Comb::new("two"));
    one.ok(&["up", "--cells", "2"]);
    two.ok(&["up", "--cells", "3"]);
    one.ok(&["cell", "kill", "1"]);
    one.ok(&["down"]);
    one.assert_gone(None);
    let status = two.status();
    assert!((1..=3).all(|number| cell(&status, number)["channels"] == 2), "{status}");
}

fn is_up(cells: &Comb, count: usize) -> Option<()> {
    let status = cells.status_if_any()?;
    (1..=count).all(|number| cell(&status, number)["state"] == "up").then_some(())
}

/// An agent that was told to end by a signal left its cells, its sockets and its cgroups behind.
#[test]
fn an_agent_that_is_told_to_end_by_a_signal_leaves_nothing() {
    for name in ["-TERM", "-INT", "-HUP"] {
        let cells = Comb::new(&format!("signal{name}"));
        // Whoever runs the tests may have it ignore SIGHUP (nohup), and then so does all that it starts.
        let mut host = Command::new("env");
        host.arg("--default-signal").arg(env!("CARGO_BIN_EXE_comb")).args(["host", "--cells", "2"]);
        host.env("COMB_RUNTIME_DIR", cells.directory()).env_remove("COMB_WITHOUT");
        let mut host = host.stdout(Stdio::null()).spawn().unwrap();
        cells.wait_for("both cells to be up", || is_up(&cells, 2));
        let cgroup = cells.cgroup();
        let mut log = std::fs::File::open(cells.directory().join("comb.log")).unwrap();
        signal(name, host.id().into());
        assert_eq!(host.wait().unwrap().code(), Some(0), "{name}");
        cells.assert_gone(cgroup.as_deref());
        let mut told = String::new();
        std::io::Read::read_to_string(&mut log, &mut told).unwrap();
        assert!(told.contains(&format!("was told to end (SIG{})", &name[1..])), "{told}");
        assert_eq!(told.matches("ends, as its agent says").count(), 2, "{told}");
    }
    // One that `comb up` started, with a cell that hears nothing: told twice, the agent does not wait for it.
    let cells = Comb::new("signal-twice");
    cells.ok(&["up", "--cells", "2"]);
    let (cgroup, agent) = (cells.cgroup(), cells.agent_pid());
    stop(cell(&cells.status(), 1)["pid"].as_u64().unwrap());
    signal("-TERM", agent);
    cells.logged("takes everything down", 1);
    signal("-TERM", agent);
    cells.assert_gone(cgroup.as_deref());
}

/// A cell that was started in the moment in which its agent died was in nobody's book. It knocked for ever, held its
/// name, and its successor could not start.
#[test]
fn a_cell_that_no_agent_has_in_its_book_is_told_to_end() {
    let cells = Comb::new("stray");
    cells.ok(&["up", "--cells", "2"]);
    let cgroup = cells.cgroup();
    let stray = cell(&cells.status(), 2)["pid"].as_u64().unwrap();
    kill_process(cells.agent_pid());
    cells.logged("its agent is away", 2);
    let path = cells.directory().join("agent.json");
    let mut state: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["cells"].as_array_mut().unwrap().pop();
    std::fs::write(&path, state.to_string()).unwrap();
    let mut host = cells.host();
    cells.logged("cell 2: ends, as its agent says", 1);
    cells.wait_for("the stray's end", || (!Path::new(&format!("/proc/{stray}")).exists()).then_some(()));
    cells.wait_for("cell 1 to be up", || is_up(&cells, 1));
    assert!(cells.ok(&["down"]).contains("ended 1 cell"));
    host.wait().unwrap();
    cells.assert_gone(cgroup.as_deref());
}

/// Whoever connected and asked nothing held a place for ever; enough of them, and nobody was answered any more.
#[test]
fn silent_connections_do_not_keep_commands_away() {
    let cells = Comb::new("silent");
    cells.ok(&["up", "--cells", "1"]);
    let connect = |name: &str| {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let address = SocketAddrUnix::new(cells.directory().join(name)).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        socket
    };
    let silent: Vec<_> = (0..100).map(|_| connect("control.sock")).collect();
    let others: Vec<_> = (0..200).map(|_| connect("cells.sock")).collect();
    assert!(cells.fails(&["ps"]).contains("commands are waiting for the agent"));
    cells.wait_for("the silent ones are let go", || is_up(&cells, 1));
    assert!(cells.ok(&["cell", "kill", "1", "--hold"]).contains("no peers"));
    assert!(cells.ok(&["cell", "start", "1"]).contains("is up again"));
    drop((silent, others));
    cells.ok(&["down"]);
    cells.assert_gone(None);
}

#[test]
fn limits_are_the_agents_and_a_wrong_one_is_told_before_anything_starts() {
    let cells = Comb::new("limits");
    let output = cells.run(&["up", "--limits", "chanels=3"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("there is no limit \"chanels\"") && text.contains("connections_per_user"),
        "{text}"
    );
    assert!(!cells.directory().exists());
    // Each cell's endpoint takes more channels than that.
    let refused = cells.fails(&["up", "--cells", "1", "--limits", "channels=3"]);
    assert!(refused.contains("an endpoint takes 1 to 3 channels"), "{refused}");
    cells.assert_gone(None);
    cells.ok(&["up", "--cells", "2", "--limits", "channels=300,memory_bytes=16M"]);
}

#[test]
fn nothing_is_coloured_or_moved_where_nobody_looks_and_wrong_words_get_a_hint() {
    let cells = Comb::new("words");
    for (arguments, words) in [
        (&["pss"][..], "a similar subcommand exists: 'ps'"),
        (&["cell", "kil", "1"], "a similar subcommand exists: 'kill'"),
        (&["up", "--cell", "3"], "a similar argument exists: '--cells'"),
        (&["cell", "kill", "two"], "`comb ps` shows them"),
        (&["cell", "kill"], "<CELL>"),
        (&[], "Usage: comb [OPTIONS] <COMMAND>"),
    ] {
        let output = cells.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(words) && !text.contains('\u{1b}'), "comb {arguments:?}: {text}");
    }
    let shown =
        [&["up", "--cells", "2"][..], &["ps"], &["cell", "kill", "2"], &["log"], &["doctor"], &["down"]];
    for arguments in shown {
        let output = cells.run(arguments);
        let text = [output.stdout, output.stderr].concat();
        assert!(!text.is_empty() && !text.contains(&0x1b) && !text.contains(&b'\r'), "comb {arguments:?}");
    }
}

#[test]
fn in_the_foreground_the_end_of_the_command_is_the_end_of_the_cells() {
    let cells = Comb::new("foreground");
    let mut up =
        cells.command(&["up", "--cells", "2", "--foreground"]).stdout(Stdio::null()).spawn().unwrap();
    cells.wait_for("both cells to be up", || {
        let status = cells.status_if_any()?;
        (1..=2).all(|number| cell(&status, number)["channels"] == 1).then_some(())
    });
    let cgroup = cells.cgroup();
    up.kill().unwrap();
    up.wait().unwrap();
    cells.assert_gone(cgroup.as_deref());
}

#[test]
fn without_newer_mechanisms_all_is_the_same() {
    let cells = Comb::new("without");
    let run = |arguments: &[&str]| {
        let mut command = cells.command(arguments);
        command.env("COMB_WITHOUT", "membarrier,socket_pidfd").output().unwrap()
    };
    assert!(run(&["up", "--cells", "3"]).status.success());
    assert!(cells.ok(&["cell", "kill", "3", "--hold"]).contains("2 of 2 peers noticed"));
    assert!(cells.ok(&["cell", "start", "3"]).contains("2 of 2 channels"));
    let doctor = String::from_utf8(run(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("switched off by COMB_WITHOUT"), "{doctor}");

    let misspelt = cells.command(&["ps"]).env("COMB_WITHOUT", "membarier").output().unwrap();
    let text = String::from_utf8(misspelt.stderr).unwrap();
    assert_eq!(misspelt.status.code(), Some(2));
    assert!(text.contains("membarier") && text.contains("socket_pidfd"), "{text}");
}

#[test]
fn what_cannot_be_is_said_before_anything_starts() {
    let cells = Comb::new("cannot");
    for arguments in
        [&["up", "--cells", "0"][..], &["up", "--cells", "65"], &["cell", "kill", "two"], &["fly"]]
    {
        let output = cells.run(arguments);
        assert_eq!(output.status.code(), Some(2), "comb {arguments:?}: {output:?}");
    }
    for arguments in [&["ps"][..], &["log"], &["cell", "kill", "1"]] {
        assert!(cells.fails(arguments).contains("`comb up`"));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_comb"))
        .args(["up"])
        .env("COMB_RUNTIME_DIR", "/proc/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("COMB_RUNTIME_DIR"));
    assert!(!cells.directory().exists());
    let doctor: Value = serde_json::from_slice(&cells.run(&["doctor", "--json"]).stdout).unwrap();
    assert!(doctor.as_array().unwrap().iter().any(|finding| finding["what"] == "membarrier"));
}
