//! `comb demo`: four cells with programs in them; one is killed; the others carry on, what was lost is started again, and every result is checked.

mod programs;
mod service;
mod stage;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comb_host::control::{Killed, Reply, Request};
use comb_host::timeline::Step;
use serde_json::{Value, json};

pub(crate) use self::programs::DemoProgram;
use self::service::{Client, lacking};
use self::stage::{Replica, Stage};
use crate::failure::{Failure, Outcome};
use crate::inject::programs::{Ended, Program};
use crate::output::{Colour, Output};
use crate::{agent, table};

/// How many, and which of them dies.
const CELLS: u32 = 4;
const VICTIM: u32 = 2;
const SMALL_A_CELL: u64 = 3;
/// Replicas of the service run in cells 1, 2 and 3.
const REPLICAS: u32 = 3;
/// Until there are some checkpoints, and clients have written for a while.
const BEFORE_THE_KILL: Duration = Duration::from_millis(1500);
/// Nothing here takes so long on a machine however busy.
const LIMIT: Duration = Duration::from_secs(30);
const HEAT_STEPS: &str = "400";
const HEAT_PACE_MS: &str = "5";

const ABOUT: &str = "\
It makes a comb of its own in a temporary directory, meets no other that runs, and leaves nothing behind. With --json, one event a line; the
last is a summary: `survivors_correct` says whether everything that was to live has lived, and found what it should.";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Demo {
    /// Do not wait at the end until somebody has looked at the dashboard
    #[arg(long)]
    headless: bool,
    /// Open the dashboard in a browser
    #[arg(long, conflicts_with = "headless")]
    open: bool,
}

/// What is told of it, to people or to programs.
struct Telling {
    output: Output,
    since: Instant,
}

impl Telling {
    /// What comes next, and why.
    fn chapter(&self, text: &str) {
        if !self.output.is_json() {
            let line = format!("\n# {text}");
            let line = if self.output.has_colours() { Colour::Yellow.paint(&line) } else { line };
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }

    fn event(&self, name: &str, mut object: Value, text: &str) -> Result<(), Failure> {
        if self.output.is_json() {
            let at_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            object["event"] = json!(name);
            object["at_ms"] = json!(at_ms);
            object["text"] = json!(text);
            self.output.line(&object)?;
        } else {
            writeln!(std::io::stdout(), "{}", text.trim_end())?;
        }
        Ok(())
    }
}

impl Demo {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let telling = Telling { output, since: Instant::now() };
        let stage = Stage::open()?;
        let summary = self.play(&telling, &stage)?;
        let is_good = summary["survivors_correct"] == json!(true);
        telling.event("summary", summary.clone(), &table_of(&summary))?;
        if !is_good && !output.is_json() {
            return Err(Failure::new("not everything has come out as it should: see above"));
        }
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn play(&self, telling: &Telling, stage: &Stage) -> Result<Value, Failure> {
        telling.chapter("Four cells, each one a unit of failure.");
        let up = stage.up(CELLS)?;
        let url = stage.dashboard();
        let text = format!("{CELLS} cells are up after {:.0} ms\nthe dashboard is at {url}", millis(up));
        telling.event("up", json!({ "cells": CELLS, "took_ms": round(up), "dashboard": url }), &text)?;
        if self.open {
            crate::dashboard::open(&stage.directory, &url)?;
        }

        telling.chapter("A service with three replicas in cells 1, 2 and 3, and two clients who write to it all the time.");
        let mut replicas = stage.replicas(REPLICAS)?;
        let addresses = stage.addresses(&replicas);
        // One is at a replica that lives, one at the one that dies.
        let clients = [("anna", 0), ("bert", 1)];
        let clients = clients.map(|(name, at)| Client::start(name, &addresses, at));
        let [anna, bert] = clients;
        let clients = [anna?, bert?];
        telling.event("service", json!({ "replicas": REPLICAS, "clients": 2 }), "it serves")?;

        telling.chapter("A parallel program across all four cells, which writes checkpoints; and a dozen small ones beside it.");
        let mut heat = stage.heat(HEAT_STEPS, HEAT_PACE_MS)?;
        let small = stage.small(CELLS, SMALL_A_CELL)?;
        stage.await_checkpoint(LIMIT)?;
        std::thread::sleep(BEFORE_THE_KILL);
        let tasks = stage.tasks()?;
        telling.event("programs", json!({ "tasks": tasks }), &format!("{tasks} tasks run on the cells"))?;

        telling.chapter(&format!("Cell {VICTIM} dies, without a word to the others."));
        let killed_at = Instant::now();
        let killed = stage.kill(VICTIM)?;
        let text = crate::cell::sentence(&killed, "killed");
        telling.event(
            "killed",
            json!({ "cell": VICTIM, "peers": killed.peers, "noticed": killed.noticed.len() }),
            &text,
        )?;
        let fault = stage.await_back(VICTIM, LIMIT)?;
        let story = crate::events::story(&fault);
        telling.event("failure", serde_json::to_value(&fault)?, &story)?;

        telling.chapter(
            "The replica that was in it comes back, in the same cell, and is told what it has missed.",
        );
        stage.come_back(&mut replicas, VICTIM - 1, &addresses)?;
        telling.event("replica_back", json!({ "replica": VICTIM - 1 }), "it serves again")?;

        telling.chapter("The parallel program was lost with the cell, and goes on from its last checkpoint.");
        let ended = heat.take().expect("just started").end(LIMIT);
        let heat = heat_of(&ended);
        telling.event("program", heat.clone(), ended.lines.join("\n").as_str())?;

        let small = judge_small(small);
        let text = format!(
            "of the dozen small programs {} lived, {} of them with the right result; {} were lost with cell {VICTIM}",
            small["lived"], small["right"], small["lost"]
        );
        telling.event("small_programs", small.clone(), &text)?;

        let service = judge_service(clients, &replicas, killed_at)?;
        let text = format!(
            "the service acknowledged {} writes; its longest pause was {} ms for a client at a replica that lived, {} ms for the one \
             whose replica died (as a rule {} ms from write to write); no replica lacks any of them: {}",
            service["writes"],
            service["gap_ms"],
            service["gap_ms_at_the_dead"],
            service["usual_ms"],
            service["complete"]
        );
        telling.event("service_checked", service.clone(), &text)?;
        if !self.headless && std::io::stdout().is_terminal() && !telling.output.is_json() {
            println!("\nThe dashboard is at {url}\nPress Enter, and everything is taken down.");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        telling.chapter("Enough.");
        drop(replicas);
        let left = stage.down()?;
        telling.event(
            "down",
            json!({ "left_behind": left }),
            &format!("ended everything; {left} processes or files are left"),
        )?;

        let lives = |step: Step| fault.after_ms(step);
        let count = |of: &str| small[of].as_u64().unwrap_or(0);
        let is_right = heat["right"] == json!(true)
            && count("right") == count("lived")
            // On a slow machine some are over before the kill, those of the victim's cell among them.
            && count("lived") + count("lost") == u64::from(CELLS) * SMALL_A_CELL
            && service["complete"] == json!(true)
            && left == 0;
        Ok(json!({
            "survivors_correct": is_right,
            "cells": CELLS,
            "killed_cell": VICTIM,
            "noticed_ms": noticed_ms(&killed),
            "agreed_ms": lives(Step::Agreement),
            "resumed_ms": lives(Step::Resume),
            "back_ms": lives(Step::Reintegrated),
            "discarded_pages": fault.discarded_pages,
            "program": heat,
            "small_programs": small,
            "service": service,
            "left_behind": left,
            "took_s": (telling.since.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        }))
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn round(span: Duration) -> f64 {
    (millis(span) * 10.0).round() / 10.0
}

fn noticed_ms(killed: &Killed) -> Option<f64> {
    let (_, slowest) = killed.noticed.last()?;
    Some(round(Duration::from_nanos(*slowest)))
}

fn heat_of(ended: &Ended) -> Value {
    let is_right = ended.lines.iter().any(|line| line.ends_with("the rod is as it should be"));
    let goes_on =
        ended.lines.iter().find_map(|line| line.strip_prefix("goes on behind step ")?.parse::<u64>().ok());
    let is_right = is_right && ended.status == Some(0);
    json!({ "right": is_right, "went_on_behind_step": goes_on, "status": ended.status })
}

/// Who was to live and has, and whose result is right.
fn judge_small(programs: BTreeMap<(u32, u64), Program>) -> Value {
    let (mut lived, mut right, mut lost) = (0, 0, 0);
    for ((cell, number), program) in programs {
        let ended = program.end(LIMIT);
        let expected = programs::result(stage::seed(cell, number)).to_string();
        if ended.status == Some(0) {
            lived += 1;
            right += u64::from(ended.lines == [expected]);
        } else if cell == VICTIM {
            lost += 1;
        }
    }
    json!({ "lived": lived, "right": right, "lost": lost })
}

fn judge_service(clients: [Client; 2], replicas: &[Replica], killed_at: Instant) -> Result<Value, Failure> {
    let [(anna, at_one), (bert, at_other)] = clients.map(Client::end);
    let mut missing = 0;
    for replica in replicas {
        for (name, seen) in [(anna, &at_one), (bert, &at_other)] {
            missing += lacking(replica.address, name, seen.written)?;
        }
    }
    let is_complete = missing == 0 && at_one.written > 0 && at_other.written > 0;
    Ok(json!({
        "writes": at_one.written + at_other.written,
        "usual_ms": round(at_one.usual(killed_at)),
        "gap_ms": round(at_one.longest_gap(killed_at)),
        "gap_ms_at_the_dead": round(at_other.longest_gap(killed_at)),
        "missing": missing,
        "complete": is_complete,
    }))
}

/// The summary, for people.
fn table_of(summary: &Value) -> String {
    let ms = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    let rows = [
        ("the others noticed", ms(&summary["noticed_ms"])),
        ("all had agreed", ms(&summary["agreed_ms"])),
        ("all were at work again", ms(&summary["resumed_ms"])),
        ("the cell was back", ms(&summary["back_ms"])),
        ("longest pause of the service", ms(&summary["service"]["gap_ms"])),
        ("the same at the replica that died", ms(&summary["service"]["gap_ms_at_the_dead"])),
        (
            "writes acknowledged, and lost",
            format!("{}, {}", summary["service"]["writes"], summary["service"]["missing"]),
        ),
        ("small programs that lived, and were right", {
            format!("{}, {}", summary["small_programs"]["lived"], summary["small_programs"]["right"])
        }),
        ("small programs lost with the cell", summary["small_programs"]["lost"].to_string()),
        ("the parallel program's result", {
            if summary["program"]["right"] == json!(true) { "right".to_owned() } else { "WRONG".to_owned() }
        }),
        ("all that lives is right", summary["survivors_correct"].to_string()),
        ("it took", format!("{} s", summary["took_s"])),
    ];
    let rows: Vec<Vec<String>> = std::iter::once(["AFTER THE KILL", ""].map(String::from).to_vec())
        .chain(rows.into_iter().map(|(what, value)| vec![what.to_owned(), value]))
        .collect();
    format!("\n{}", table::format(&rows))
}

/// The path of a checkpoint that is there.
fn has_checkpoint(directory: &Path) -> bool {
    directory.join("current").exists()
}

/// Asks an agent that is there.
fn ask(directory: &comb_host::RuntimeDirectory, request: &Request) -> Result<Reply, Failure> {
    agent::ask(directory, request)
}
