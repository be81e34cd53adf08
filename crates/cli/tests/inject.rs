//! Cells that fail as they are told: a small campaign by the real command, and what it has found.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use comb_cell::faults::Fault;
use comb_host::control::{self, CellCondition, Reply, Request, Status};
use comb_host::{RuntimeDirectory, process};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// A directory of a test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-inj-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn comb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command.args(arguments).env("TMPDIR", &self.0).env("COMB_RUNTIME_DIR", self.0.join("run"));
        command.env_remove("COMB_WITHOUT").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.comb(arguments).output().unwrap()
    }

    fn directory(&self) -> RuntimeDirectory {
        RuntimeDirectory::at(self.0.join("run")).unwrap()
    }

    /// What is in it, but for logs of what was not contained.
    fn left(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.run(&["down"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < LIMIT, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Half of all kinds, among them those that have found most.
#[test]
fn a_small_campaign_is_contained_and_leaves_nothing() {
    let place = Place::new("small");
    let kinds = "node-creation,node-search,pointer-map,pointer-tree,wild-region,wild-shown,lies,hung-loops,agent,in-recovery";
    let output = place.run(&["inject", "--json", "--count", "10", "--seed", "3000", "--only", kinds]);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let logs = || -> String {
        let logs = place
            .left()
            .into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    };
    assert!(output.status.success(), "{said}{complained}{}", logs());
    let verdicts: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(verdicts.len(), 10, "{said}");
    for (verdict, kind) in verdicts.iter().zip(kinds.split(',')) {
        assert_eq!(
            (&verdict["kind"], &verdict["contained"]),
            (&Value::from(kind), &Value::from(true)),
            "{verdict}"
        );
        assert!(verdict["workload"] == "P" || verdict["workload"] == "R", "{verdict}");
    }
    for ends in [0, 1, 2, 3, 7, 9] {
        let (noticed, again) = (&verdicts[ends]["detected_ms"], &verdicts[ends]["recovered_ms"]);
        assert!(noticed.as_f64() <= again.as_f64() && noticed.is_number(), "{}", verdicts[ends]);
    }
    assert!(
        verdicts[8]["detected_ms"].is_null(),
        "cells do not notice that their agent is another one: {}",
        verdicts[8]
    );
    assert_eq!(place.left(), Vec::<PathBuf>::new());
}

/// All programs that were started there.
fn processes(directory: &Path) -> Vec<u32> {
    let state = std::fs::read_to_string(directory.join("agent.json")).unwrap_or_default();
    let state: Value = serde_json::from_str(&state).unwrap_or_default();
    let cells = state["cells"].as_array().cloned().unwrap_or_default();
    let pids = cells.iter().map(|cell| &cell["process"]["pid"]).chain([&state["agent"]["pid"]]);
    pids.filter_map(|pid| u32::try_from(pid.as_u64()?).ok()).collect()
}

fn interrupt(campaign: &Child, signal: Signal) {
    kill_process(Pid::from_child(campaign), signal).unwrap();
}

/// However a campaign ends, its cells end with it.
#[test]
fn nothing_is_left_of_a_campaign_that_is_interrupted() {
    for (signal, status) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let place = Place::new(if status.is_some() { "told" } else { "killed" });
        let mut campaign = place.comb(&["inject", "--count", "1000", "--json"]);
        let mut campaign = campaign.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let directory = place.0.join(format!("comb-inject-{}", campaign.id()));
        let all = wait_for("its cells", || Some(processes(&directory)).filter(|all| all.len() == 5));
        interrupt(&campaign, signal);
        assert_eq!(campaign.wait().unwrap().code(), status);
        wait_for("their end", || {
            all.iter().all(|&pid| process::stat(pid).is_none_or(|stat| stat.state == 'Z')).then_some(())
        });
        let end = Instant::now() + LIMIT;
        while directory.exists() {
            let left =
                std::fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
            let left: Vec<_> = left.collect();
            let log = std::fs::read_to_string(directory.join("comb.log")).unwrap_or_default();
            assert!(Instant::now() < end, "{signal:?} left {left:?}\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// No cell fails because somebody asks its agent.
#[test]
fn an_agent_that_was_not_started_for_it_has_no_cell_fail() {
    let place = Place::new("refused");
    assert!(place.run(&["up", "--cells", "2"]).status.success());
    for request in [Request::Inject { cell: 1, fault: Fault::Loops }, Request::Observe] {
        match control::ask(&place.directory(), &request) {
            Ok(Reply::Refused(why)) => assert!(why.contains("only `comb inject` does that"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let status = status(&place).unwrap();
    assert!(status.cells.iter().all(|cell| cell.state == CellCondition::Up && cell.incarnation == 1));
}

fn status(place: &Place) -> Option<Status> {
    match control::ask(&place.directory(), &Request::Status) {
        Ok(Reply::Status(status)) => Some(status),
        _ => None,
    }
}

/// A cell died while no agent was there. The recovery master said that it can be started again, to nobody: it stayed down for ever.
#[test]
fn a_cell_that_ended_while_no_agent_was_there_is_started_by_the_next() {
    let place = Place::new("nobody");
    assert!(place.run(&["up", "--cells", "3"]).status.success());
    let before = status(&place).unwrap();
    let kill = |pid: u32| {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    };
    kill(before.agent.pid);
    kill(before.cells[1].pid);
    wait_for("its end", || {
        process::stat(before.cells[1].pid).is_none_or(|stat| stat.state == 'Z').then_some(())
    });
    let mut next = place.comb(&["host"]).stdout(Stdio::null()).spawn().unwrap();
    wait_for("its next life", || {
        let cells = status(&place)?.cells;
        (cells[1].incarnation == 2 && cells.iter().all(|cell| cell.channels == 2)).then_some(())
    });
    assert!(place.run(&["down"]).status.success());
    next.wait().unwrap();
}
