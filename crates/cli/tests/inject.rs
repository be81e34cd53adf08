//! Cells that fail as they are told: a small campaign by the real command, and what it has found.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use comb_cell::faults::Fault;
use comb_host::control::{self, CellCondition, ControlError, Reply, Request, Status};
use comb_host::{RuntimeDirectory, process};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use self::cells::Comb;

#[expect(dead_code, reason = "other tests need more of it")]
mod cells;

impl Comb {
    /// Whoever makes directories makes them in this one.
    fn enclosing(name: &str) -> Self {
        let mut comb = Self::new(name);
        comb.variables = vec![("TMPDIR", comb.scratch.clone().into())];
        comb
    }

    fn ask(&self, request: &Request) -> Result<Reply, ControlError> {
        control::ask(&RuntimeDirectory::at(self.directory()).unwrap(), request)
    }

    fn agent_status(&self) -> Option<Status> {
        match self.ask(&Request::Status) {
            Ok(Reply::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// What is in it: logs of what was not contained, and nothing else.
    fn left(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.scratch).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

/// Half of all kinds, among them those that have found most.
#[test]
fn a_small_campaign_is_contained_and_leaves_nothing() {
    let comb = Comb::enclosing("small");
    let kinds = "node-creation,node-search,pointer-map,pointer-tree,wild-region,wild-shown,lies,hung-loops,agent,in-recovery";
    let output = comb.run(&["inject", "--json", "--count", "10", "--seed", "3000", "--only", kinds]);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let logs = || -> String {
        let logs = comb
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
    assert_eq!(comb.left(), Vec::<PathBuf>::new());
}

/// Without cgroups what a process had stored was not discarded with its cell, and without userfaultfd what was lost was zeros.
#[test]
fn what_the_kernel_does_not_do_is_contained_as_well() {
    let mut comb = Comb::enclosing("without");
    comb.variables.push(("COMB_WITHOUT", "all".into()));
    let kinds = "wild-region,pointer-tree,node-search,node-creation,hung-sleeps,late-alarm";
    let output = comb.run(&["inject", "--json", "--count", "12", "--seed", "7800", "--only", kinds]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches(r#""contained":true"#).count(), 12, "{said}");
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
    for (signal, status) in [(Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let comb = Comb::enclosing(if status.is_some() { "told" } else { "killed" });
        let mut campaign = comb.command(&["inject", "--count", "1000", "--json"]);
        let mut campaign =
            campaign.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let directory = comb.scratch.join(format!("comb-inject-{}", campaign.id()));
        let all = comb.wait_for("its cells", || Some(processes(&directory)).filter(|all| all.len() == 5));
        interrupt(&campaign, signal);
        assert_eq!(campaign.wait().unwrap().code(), status);
        comb.wait_for("their end", || {
            all.iter().all(|&pid| process::stat(pid).is_none_or(|stat| stat.state == 'Z')).then_some(())
        });
        comb.wait_for("an empty directory", || (!directory.exists()).then_some(()));
    }
}

/// No cell fails because somebody asks its agent.
#[test]
fn an_agent_that_was_not_started_for_it_has_no_cell_fail() {
    let comb = Comb::new("refused");
    comb.ok(&["up", "--cells", "2"]);
    for request in [Request::Inject { cell: 1, fault: Fault::Loops }, Request::Observe] {
        match comb.ask(&request) {
            Ok(Reply::Refused(why)) => assert!(why.contains("only `comb inject` does that"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let status = comb.agent_status().unwrap();
    assert!(status.cells.iter().all(|cell| cell.state == CellCondition::Up && cell.incarnation == 1));
}

/// A cell died while no agent was there. The recovery master said that it can be started again, to nobody: it stayed down for ever.
#[test]
fn a_cell_that_ended_while_no_agent_was_there_is_started_by_the_next() {
    let comb = Comb::new("nobody");
    comb.ok(&["up", "--cells", "3"]);
    let before = comb.agent_status().unwrap();
    let kill = |pid: u32| {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    };
    kill(before.agent.pid);
    kill(before.cells[1].pid);
    comb.wait_for("its end", || {
        process::stat(before.cells[1].pid).is_none_or(|stat| stat.state == 'Z').then_some(())
    });
    let mut next = comb.command(&["host"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    comb.wait_for("its next life", || {
        let cells = comb.agent_status()?.cells;
        (cells[1].incarnation == 2 && cells.iter().all(|cell| cell.channels == 2)).then_some(())
    });
    comb.ok(&["down"]);
    next.wait().unwrap();
}
