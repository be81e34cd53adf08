//! The measured processes. `comb bench-side NAME` is the one that asks; it starts the one that answers, runs its tests
//! and prints a JSON line for each, exactly as the peers' programs do. Both pin themselves to a core.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, EndpointOptions, Geometry};
use serde_json::{Value, json};

use crate::bare::Bare;
use crate::cell::role;
use crate::endpoint_way::EndpointWay;
use crate::room::{Companion, Room};
use crate::workload::{Answerer, Asker, MEASURED, RoundTrip, Way};
use crate::{
    classic_side, curves, farm, group_side, hot_spot, idle, layers, memory_side, transports, write_gap,
};

const ASKER_CPU: usize = 0;
const ANSWERER_CPU: usize = 1;
const BARE_ROUNDS: u64 = 20_000;
const SOON: Duration = Duration::from_secs(10);

/// Lengths of round trips.
const ROUND_TRIP_BYTES: [usize; 7] = [8, 32, 56, 64, 256, 1024, 4096];
/// Lengths of streams.
const STREAM_BYTES: [usize; 5] = [8, 56, 64, 1024, 4096];

/// The sides that are a pair of processes.
const PAIRS: [&str; 7] = ["bare", "comb", "trapping", "stream", "layers", "curves", "idle"];

/// Of a farm, where nobody says how many.
const NODES: u32 = 10_000;

/// Runs the asking side. Prints JSON lines.
pub fn ask(name: &str, nodes: Option<u32>) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(outcome) = farm::side(name, nodes.unwrap_or(NODES)) {
        return outcome;
    }
    match name {
        "loopback" | "veth" => {
            for line in transports::run(name) {
                println!("{line}");
            }
            return Ok(());
        }
        "hot_spot" => return hot_spot::ask(),
        "memory" => return memory_side::run(),
        "cell" => return role::run(),
        // Parts of `comb bench membership --full` alone.
        "write_gap" | "write_gap_hosts" => {
            let compare = if name == "write_gap" { write_gap::compare } else { write_gap::compare_hosts };
            for gap in compare(true) {
                println!("{}", serde_json::to_string(&gap)?);
            }
            return Ok(());
        }
        // For tests: these only must not fail.
        "classic" => {
            println!("{}", classic_side::run(nodes.unwrap_or(5))?);
            return Ok(());
        }
        "faults_of_hosts" => return write_gap::go_through_each().map_err(|error| error as _),
        pair if PAIRS.contains(&pair) => {}
        _ => {
            return Err(format!(
                "{name:?} is no side: {}, loopback, veth, hot_spot, memory, cell, write_gap, write_gap_hosts, faults_of_hosts, classic, {}, {}",
                PAIRS.join(", "),
                farm::WORLD,
                farm::VIEW,
            )
            .into());
        }
    }
    let room = Room::create()?;
    let _server = Server::bind(&room.agent(), Box::new(SameUser), Limits::default())?;
    let (bare, memory) = Bare::create()?;
    let memory = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    let answerer = Companion::start(name, &[room.path().as_os_str(), memory.as_ref()])?;
    Asking { room: &room, bare }.run(name)?;
    answerer.finish()
}

/// Runs the answering side: what it is told depends on the side that asks.
pub fn answer(name: &str, room: &Path, told: &Path) -> Result<(), Box<dyn std::error::Error>> {
    if name == "group" {
        return group_side::run(room, told.to_str().ok_or("a name that is no text")?);
    }
    if name == "replica" {
        return write_gap::run_replica(room, told.to_str().ok_or("a name that is no text")?);
    }
    if name == "host_agent" {
        return write_gap::run_host_agent(room, told.to_str().ok_or("a name that is no text")?);
    }
    if name == "hot_spot" {
        return hot_spot::answer(room, told.to_str().ok_or("a name that is no text")?);
    }
    answer_pair(name, room, told)
}

fn answer_pair(name: &str, room: &Path, memory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let bare = Bare::map(std::fs::File::options().read(true).write(true).open(memory)?)?;
    let agent = Agent::connect(&room.join("agent"), "answerer")?;
    if name == "layers" {
        return layers::answer(&agent, &bare, || pin(ANSWERER_CPU));
    }
    if name == "idle" {
        return idle::answer(&agent);
    }
    if name == "curves" {
        let mut side = curves::Side::meet(&agent, &bare, room, false)?;
        pin(ANSWERER_CPU)?;
        return side.answer();
    }
    let mut endpoint = agent.endpoint_with("bench", options(name))?;
    let channel = endpoint.open("asker/bench")?;
    pin(ANSWERER_CPU)?;
    let mut way = EndpointWay::new(endpoint, channel);
    way.wait_for_the_other_side();
    for test in tests(name) {
        for round in 1..=BARE_ROUNDS {
            bare.pong(round);
        }
        match test {
            Test::Bare => {}
            Test::RoundTrip(bytes) => Answerer(&mut way).round_trip(bytes),
            Test::Stream(bytes) => Answerer(&mut way).stream(bytes),
        }
        // The asker resets the bare words while we wait here.
        way.receive(8);
    }
    Ok(())
}

fn options(name: &str) -> EndpointOptions {
    let geometry = if name == "stream" { Geometry::STREAM } else { Geometry::default() };
    EndpointOptions { geometry, trap_wild_stores: name == "trapping", ..EndpointOptions::default() }
}

#[derive(Clone, Copy)]
enum Test {
    Bare,
    RoundTrip(usize),
    Stream(usize),
}

fn tests(name: &str) -> Vec<Test> {
    match name {
        "bare" => vec![Test::Bare; 3],
        "trapping" => {
            vec![Test::RoundTrip(8), Test::RoundTrip(56), Test::RoundTrip(1024), Test::RoundTrip(4096)]
        }
        "stream" => vec![Test::Stream(1024), Test::Stream(4096)],
        _ => {
            ROUND_TRIP_BYTES.map(Test::RoundTrip).into_iter().chain(STREAM_BYTES.map(Test::Stream)).collect()
        }
    }
}

struct Asking<'a> {
    room: &'a Room,
    bare: Bare,
}

impl Asking<'_> {
    fn run(&self, name: &str) -> Result<(), Box<dyn std::error::Error>> {
        let agent = Agent::connect(&self.room.agent(), "asker")?;
        if name == "idle" {
            for line in idle::ask(&agent)? {
                println!("{line}");
            }
            return Ok(());
        }
        if name == "layers" {
            let mut asking = layers::Asking::meet(&agent, &self.bare)?;
            pin(ASKER_CPU)?;
            for line in asking.run()? {
                println!("{line}");
            }
            return Ok(());
        }
        if name == "curves" {
            let mut side = curves::Side::meet(&agent, &self.bare, self.room.path(), true)?;
            pin(ASKER_CPU)?;
            return side.ask(|line| println!("{line}"));
        }
        let mut endpoint = agent.endpoint_with("bench", options(name))?;
        let channel = endpoint.accept(SOON).ok_or("the answering process did not come")?;
        pin(ASKER_CPU)?;
        let mut way = EndpointWay::new(endpoint, channel);
        way.wait_for_the_other_side();
        for test in tests(name) {
            let bare_ns = self.bare_round_trip();
            let mut asker = Asker(&mut way, MEASURED);
            let line = match test {
                Test::Bare => round_trip_line("bare", 8, bare_ns),
                Test::RoundTrip(bytes) => round_trip_line(name, bytes, asker.round_trip(bytes)),
                Test::Stream(bytes) => {
                    let rate = asker.messages_per_second(bytes);
                    json!({"peer": name, "test": "rate", "bytes": bytes, "per_second": rate,
                        "bytes_per_second": rate * bytes as f64})
                }
            };
            println!("{}", with_bare(line, bare_ns));
            self.bare.reset();
            way.send(8, 0);
        }
        Ok(())
    }

    fn bare_round_trip(&self) -> RoundTrip {
        const BATCH: u64 = 100;
        let batches = (0..BARE_ROUNDS / BATCH)
            .map(|batch| {
                let start = std::time::Instant::now();
                for round in 1..=BATCH {
                    self.bare.ping(batch * BATCH + round);
                }
                start.elapsed().as_secs_f64() * 1e9 / BATCH as f64
            })
            .collect();
        RoundTrip::of(batches)
    }
}

fn round_trip_line(peer: &str, bytes: usize, measured: RoundTrip) -> Value {
    json!({"peer": peer, "test": "round_trip", "bytes": bytes,
        "median_ns": measured.median_ns, "p10_ns": measured.p10_ns})
}

fn with_bare(mut line: Value, bare: RoundTrip) -> Value {
    line["bare_ns"] = json!(bare.median_ns);
    line
}

pub(crate) fn pin(cpu: usize) -> Result<(), rustix::io::Errno> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}
