//! `comb bench product`: how long people wait for the command and the page, measured as they meet them: whole processes, from the call to the end.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::net::median;
use crate::report::{Goal, Row, print, shows_progress};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const NOTES: &str = "\
Medians of whole processes, from the call to the end, in turns. `comb run` of an empty program is `comb run -n 4 -- true` beside `true`. The first picture is a browser's, \
new each time, from the beginning of navigation until every cell is drawn; it needs node, chromium and the repository (scripts/setup-test.sh). What is not measured: other \
machines, and pages over a network.";

const CELLS: u32 = 4;
const ROUNDS: usize = 9;
const ROUNDS_OF_UP: usize = 5;
/// So long nobody looks at the page, and it costs what it costs.
const REST: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// What the tests of the page have beside them.
const BROWSER: &str = "crates/dashboard/tests/browser";

/// A comb of its own.
struct Place {
    scratch: PathBuf,
}

impl Place {
    fn new() -> Outcome<Self> {
        let scratch = std::env::temp_dir().join(format!("comb-bench-product-{}", std::process::id()));
        std::fs::create_dir(&scratch)?;
        Ok(Self { scratch })
    }

    fn comb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments).stdin(Stdio::null());
        command.env("COMB_RUNTIME_DIR", self.scratch.join("run")).env("COMB_CONFIG", "/dev/null");
        command
    }

    fn ok(&self, arguments: &[&str]) -> Outcome<Output> {
        succeed(&mut self.comb(arguments))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.comb(&["down"]).output();
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

fn succeed(command: &mut Command) -> Outcome<Output> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(output)
}

/// From the call to the end, in ms.
fn timed(command: &mut Command) -> Outcome<f64> {
    let began = Instant::now();
    succeed(command)?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Measures, and prints a row a claim.
pub fn run(full: bool, json: bool) -> Outcome<()> {
    let rounds = if full { 4 * ROUNDS } else { ROUNDS };
    let say = |what: &str| {
        if shows_progress(json) {
            eprint!("\r{what:60}");
        }
    };
    let place = Place::new()?;
    let mut rows = Vec::new();
    say("comb up");
    let mut ups = Vec::new();
    for round in 0..ROUNDS_OF_UP {
        if round > 0 {
            place.ok(&["down"])?;
        }
        ups.push(timed(&mut place.comb(&["up", "--cells", &CELLS.to_string()]))?);
    }
    rows.push(limit("comb up, four cells ready", median(&ups), "ms", 500.0));
    say("comb run and comb ps");
    let (mut runs, mut bare, mut lists) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        runs.push(timed(&mut place.comb(&["run", "-n", &CELLS.to_string(), "--", "true"]))?);
        bare.push(timed(&mut Command::new("true"))?);
        lists.push(timed(&mut place.comb(&["ps"]))?);
    }
    let more = median(&runs).zip(median(&bare)).map(|(run, bare)| run - bare);
    rows.push(limit("comb run of an empty program on four cells, more than alone", more, "ms", 50.0));
    rows.push(limit("comb ps", median(&lists), "ms", 20.0));
    say("the page");
    let url = String::from_utf8(place.ok(&["dashboard"])?.stdout)?.trim().to_owned();
    let address = url.strip_prefix("http://").and_then(|url| url.split('/').next()).ok_or("no address")?;
    rows.push(limit("the page, all of it as it is sent", Some(bytes_of_page(address)?), "bytes", 150_000.0));
    say("the first picture");
    let mut picture = limit("the first picture of the page", None, "ms", 300.0);
    match first_pictures(&url, rounds) {
        Ok(times) => picture = limit("the first picture of the page", median(&times), "ms", 300.0),
        Err(why) => picture.note = why.to_string(),
    }
    rows.push(picture);
    say("the page at rest");
    rows.push(record("processor time of the page's process while nobody looks", cpu_at_rest(&place)?, "%"));
    say("comb demo");
    place.ok(&["down"])?;
    let demo = place.ok(&["demo", "--headless", "--json"])?;
    let last = String::from_utf8(demo.stdout)?;
    let summary: Value = serde_json::from_str(last.lines().last().unwrap_or_default())?;
    rows.push(limit("comb demo, all of it", summary["took_s"].as_f64(), "s", 50.0));
    for (claim, value) in [
        ("… from the kill until all have agreed", &summary["agreed_ms"]),
        ("… until all are at work again", &summary["resumed_ms"]),
        ("… until the cell is back", &summary["back_ms"]),
        ("… longest pause of the key-value service", &summary["service"]["gap_ms"]),
    ] {
        rows.push(record(claim, value.as_f64(), "ms"));
    }
    say("");
    if shows_progress(json) {
        eprint!("\r");
    }
    print(&rows, json);
    if !json {
        println!("{NOTES}");
    }
    Ok(())
}

/// What is to be at most so much.
fn limit(claim: &str, ours: Option<f64>, unit: &'static str, most: f64) -> Row {
    Row {
        claim: claim.to_owned(),
        ours,
        unit,
        peer: "what it may be".to_owned(),
        theirs: Some(most),
        ratio: ours.map(|ours| ours / most),
        goal: Goal::AtMost(1.0),
        note: String::new(),
    }
}

fn record(claim: &str, ours: Option<f64>, unit: &'static str) -> Row {
    let (peer, note) = (String::new(), String::new());
    Row { claim: claim.to_owned(), ours, unit, peer, theirs: None, ratio: None, goal: Goal::None, note }
}

/// An answer, with its head.
fn get(address: &str, path: &str) -> Outcome<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        return Err(format!("{path} is not there").into());
    }
    Ok(answer)
}

/// The page, and whatever it and its files name.
#[expect(clippy::cast_precision_loss, reason = "some thousands")]
fn bytes_of_page(address: &str) -> Outcome<f64> {
    let (mut known, mut left, mut bytes) = (BTreeSet::new(), vec!["/".to_owned()], 0);
    while let Some(path) = left.pop() {
        let answer = get(address, &path)?;
        bytes += answer.len();
        let text = String::from_utf8_lossy(&answer).into_owned();
        for name in text.split(['"', '\'']) {
            let name = name.trim_start_matches("./").trim_start_matches('/');
            let is_file = [".js", ".css"].iter().any(|end| name.ends_with(end));
            if is_file && !name.contains([' ', '\n', '/']) && known.insert(name.to_owned()) {
                left.push(format!("/{name}"));
            }
        }
    }
    Ok(bytes as f64)
}

/// As a browser sees it that has never been there.
fn first_pictures(url: &str, rounds: usize) -> Outcome<Vec<f64>> {
    if !Path::new(BROWSER).join("node_modules").exists() {
        return Err(
            format!("not measured: {BROWSER} and what scripts/setup-test.sh installs are not here").into()
        );
    }
    let mut node = Command::new("node");
    node.args(["first-picture.mjs", url, &rounds.to_string(), &CELLS.to_string()]).current_dir(BROWSER);
    let said = succeed(&mut node).map_err(|error| format!("not measured: {error}"))?;
    Ok(serde_json::from_slice(&said.stdout)?)
}

/// Of the process that serves it, in percent of one core.
fn cpu_at_rest(place: &Place) -> Outcome<Option<f64>> {
    let hosts: Value = serde_json::from_slice(&place.ok(&["host", "ls", "-o", "json"])?.stdout)?;
    let agent = hosts[0]["agent"]["pid"].as_u64().ok_or("no agent")?;
    let children = std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"))?;
    let page = children.split_whitespace().find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("dashboard"))
    });
    let Some(page) = page else { return Ok(None) };
    let ticks = || -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{page}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    let before = ticks();
    std::thread::sleep(REST);
    #[expect(clippy::cast_precision_loss, reason = "some ticks")]
    let used = before.zip(ticks()).map(|(before, after)| (after - before) as f64);
    // The kernel counts in steps of 10 ms.
    Ok(used.map(|ticks| ticks * 0.01 / REST.as_secs_f64() * 100.0))
}
