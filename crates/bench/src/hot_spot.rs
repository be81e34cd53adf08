//! Eight processes that send as fast as they can into one endpoint, and a flow that has nothing to do with them.
//!
//! **Shares.** The receiver has a core, the senders have the other. It counts what it takes from each channel, from a
//! moment at which all have sent to a moment at which all still do. So that the counts tell of our service and not of
//! the kernel's scheduler, it works [`PACE`] for each message: then every ring is full again before its turn comes. How
//! often one was found empty nevertheless is said beside the shares. A receiver that only counts is measured too, for
//! the record: it waits for the senders, only one of which runs at a time, and the shares say whom the kernel lets run.
//! For the record as well, one of the eight sends 4 KB and the others 64 bytes.
//!
//! **The uninvolved flow.** A process has two flows: one into a hot spot, one to a process that reads all. The hot spot
//! reads one turn every few milliseconds; seven others hang in it, asleep until there is room, in all blocks alike, so
//! that the load of the machine is the same. In every other block the process also offers the hot spot a message with
//! each turn of the second flow; nearly all are refused, or nothing is said about it. Compared is the rate of the
//! second flow in neighbouring blocks: what it loses by the congestion of a flow of the same endpoint. What a machine
//! with fewer cores than processes loses to the scheduler is not in it.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, ChannelKey, Endpoint, PostError};
use serde_json::{Value, json};

use crate::net::median;
use crate::room::{Companion, Room};
use crate::side::pin;

const SENDERS: usize = 8;
/// The last of them: it receives when the others have sent enough.
const HOT: &str = "sender-7";
const BYSTANDER: &str = "bystander";
const RECEIVER_CPU: usize = 0;
const SENDERS_CPU: usize = 1;
const SOON: Duration = Duration::from_secs(10);
const SHORT: usize = 64;
const LONG: usize = 4096;

/// What the receiver works for each message. Eight senders on one core that sleep while their rings are full, and are
/// woken, come to about a hundred thousand messages a second: this asks for half of that.
const PACE: Duration = Duration::from_micros(20);
const SETTLING: Duration = Duration::from_millis(30);

/// How the eight are received.
struct Case {
    /// The endpoint of the receiver, and the name of the test.
    name: &'static str,
    pace: Duration,
    /// What the first of them sends.
    first_bytes: usize,
    measured: Duration,
}

const CASES: [Case; 3] = [
    Case { name: "even", pace: PACE, first_bytes: SHORT, measured: Duration::from_millis(500) },
    Case { name: "unpaced", pace: Duration::ZERO, first_bytes: SHORT, measured: Duration::from_millis(200) },
    Case { name: "unequal", pace: PACE, first_bytes: LONG, measured: Duration::from_millis(200) },
];

/// Of the uninvolved flow.
const PAIRS_OF_BLOCKS: usize = 20;
const BLOCK: Duration = Duration::from_millis(10);
/// Messages between two offers to the hot spot: as many as a receiver takes from a channel in its turn.
const TURN: u32 = 16;
const HOT_SPOT_SLEEPS: Duration = Duration::from_millis(5);
/// A hot spot that takes more than that of what it is offered is none.
const REFUSED_AT_LEAST: f64 = 0.9;

/// The receiver of the eight, and later the process with two flows. Prints JSON lines.
pub(crate) fn ask() -> Result<(), Box<dyn std::error::Error>> {
    let room = Room::create()?;
    let _server = Server::bind(&room.agent(), Box::new(SameUser), Limits::default())?;
    let agent = Agent::connect(&room.agent(), "receiver")?;
    let mut endpoints = Vec::new();
    for case in &CASES {
        endpoints.push((case, agent.endpoint(case.name)?));
    }
    let names = (0..SENDERS).map(|number| format!("sender-{number}")).chain([BYSTANDER.to_owned()]);
    let start = |name: String| Companion::start("hot_spot", &[room.path().as_os_str(), OsStr::new(&name)]);
    let companions = names.map(start).collect::<Result<Vec<_>, _>>()?;
    pin(RECEIVER_CPU)?;
    for (case, endpoint) in endpoints {
        for line in shares(case, endpoint)? {
            println!("{line}");
        }
    }
    if let Some(line) = uninvolved(&agent)? {
        println!("{line}");
    }
    companions.into_iter().try_for_each(Companion::finish)
}

/// One of the eight, or the bystander.
pub(crate) fn answer(room: &Path, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::connect(&room.join("agent"), name)?;
    // Each has one, so that it is there when the others ask for that of `HOT`.
    let mut own = agent.endpoint("own")?;
    if name == BYSTANDER {
        pin(SENDERS_CPU)?;
        own.accept(SOON).ok_or("nobody came")?;
        return read_all(own, Duration::ZERO);
    }
    let mut endpoint = agent.endpoint("out")?;
    pin(SENDERS_CPU)?;
    for case in &CASES {
        let bytes = if name == "sender-0" { case.first_bytes } else { SHORT };
        send_until_closed(&mut endpoint, &format!("receiver/{}", case.name), bytes)?;
    }
    if name == HOT {
        for _ in 0..SENDERS {
            own.accept(SOON).ok_or("nobody came")?;
        }
        return read_all(own, HOT_SPOT_SLEEPS);
    }
    send_until_closed(&mut endpoint, &format!("{HOT}/own"), SHORT)
}

fn send_until_closed(
    endpoint: &mut Endpoint,
    to: &str,
    bytes: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let channel = endpoint.open(to)?;
    let message = vec![7; bytes];
    loop {
        match endpoint.send_within(channel, 0, &[&message], SOON) {
            Ok(()) => {}
            Err(PostError::Ended(_) | PostError::NoChannel) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes a turn of every channel, sleeps, and so on until the first of them ends.
fn read_all(mut endpoint: Endpoint, sleeps: Duration) -> Result<(), Box<dyn std::error::Error>> {
    while endpoint.poll(|_| {}).is_ok() {
        if !sleeps.is_zero() {
            std::thread::sleep(sleeps);
        }
    }
    Ok(())
}

// ── shares ──

/// What was taken from the channels, each at its place.
#[derive(Clone, Debug, Default)]
struct Counts {
    messages: Vec<u64>,
    bytes: Vec<u64>,
    /// Turns of all channels, and those that brought nothing.
    turns: u64,
    empty_turns: u64,
    /// Of the receiver's core, while it had it.
    processor_time: Duration,
}

/// What this thread has had of a core so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn shares(case: &Case, mut endpoint: Endpoint) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let mut channels = Vec::new();
    while channels.len() < SENDERS {
        channels.push(endpoint.accept(SOON).ok_or("a sender did not come")?);
    }
    let first = channels.iter().position(|channel| endpoint.peer(*channel) == Some("sender-0/out"));
    let first = first.ok_or("the first sender did not come")?;
    let deadline = Instant::now() + SOON;
    let mut come = take_for(&mut endpoint, &channels, case.pace, SETTLING)?;
    while come.messages.contains(&0) {
        if Instant::now() > deadline {
            return Err("a sender never sent".into());
        }
        let more = take_for(&mut endpoint, &channels, case.pace, SETTLING)?;
        come.messages.iter_mut().zip(more.messages).for_each(|(all, more)| *all += more);
    }
    let counts = take_for(&mut endpoint, &channels, case.pace, case.measured)?;
    Ok(case.lines(&counts, first))
}

/// Polls for that long. What closes a channel meanwhile spoils the measurement.
fn take_for(
    endpoint: &mut Endpoint,
    channels: &[ChannelKey],
    pace: Duration,
    limit: Duration,
) -> Result<Counts, comb_net::ChannelEnded> {
    let mut counts = Counts { messages: vec![0; SENDERS], bytes: vec![0; SENDERS], ..Counts::default() };
    let (started, processor) = (Instant::now(), processor_time());
    while started.elapsed() < limit {
        let mut came = [false; SENDERS];
        endpoint.poll(|delivery| {
            let work = (!pace.is_zero()).then(Instant::now);
            let place = channels.iter().position(|channel| *channel == delivery.channel);
            let place = place.expect("no other channel was accepted");
            counts.messages[place] += 1;
            counts.bytes[place] += delivery.payload.len() as u64;
            came[place] = true;
            while work.is_some_and(|begun| begun.elapsed() < pace) {
                std::hint::spin_loop();
            }
        })?;
        counts.turns += SENDERS as u64;
        counts.empty_turns += came.iter().filter(|came| !**came).count() as u64;
    }
    counts.processor_time = processor_time() - processor;
    Ok(counts)
}

impl Case {
    fn lines(&self, counts: &Counts, first: usize) -> Vec<Value> {
        let a_second = |count: f64| count / self.measured.as_secs_f64();
        let line = |test: &str, bytes: usize, value: f64, beside: f64| json!({"peer": "hot_spot", "test": test, "bytes": bytes, "value": value, "beside": beside});
        let empty =
            line(&format!("{}_empty", self.name), SHORT, counts.empty_turns as f64, counts.turns as f64);
        let rate = |count: &u64| a_second(*count as f64);
        if self.first_bytes == SHORT {
            let (least, most) = (counts.messages.iter().min(), counts.messages.iter().max());
            let (least, most) = (least.map_or(0.0, rate), most.map_or(0.0, rate));
            let mut lines = vec![line(self.name, SHORT, least, most), empty];
            if !self.pace.is_zero() {
                // By the time that it had the core: what other programs took of it is not the senders' doing.
                let all = counts.messages.iter().sum::<u64>() as f64 / counts.processor_time.as_secs_f64();
                lines.push(line(&format!("{}_all", self.name), SHORT, all, 1.0 / self.pace.as_secs_f64()));
            }
            return lines;
        }
        let others = |of: &[u64]| -> f64 {
            let others = of.iter().enumerate().filter(|(place, _)| *place != first);
            median(&others.map(|(_, count)| rate(count)).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let (messages, bytes) = (&counts.messages, &counts.bytes);
        vec![
            line(self.name, LONG, rate(&messages[first]), others(messages)),
            line(&format!("{}_bytes", self.name), LONG, rate(&bytes[first]), others(bytes)),
            empty,
        ]
    }
}

// ── the uninvolved flow ──

/// The two flows of one endpoint.
struct Flows {
    endpoint: Endpoint,
    hot: ChannelKey,
    free: ChannelKey,
    offered: u64,
    refused: u64,
}

/// `None` where there was no hot spot: then nothing was measured.
fn uninvolved(agent: &Agent) -> Result<Option<Value>, Box<dyn std::error::Error>> {
    let mut endpoint = agent.endpoint("flows")?;
    let (hot, free) = (endpoint.open(&format!("{HOT}/own"))?, endpoint.open(&format!("{BYSTANDER}/own"))?);
    let mut flows = Flows { endpoint, hot, free, offered: 0, refused: 0 };
    // The hot spot fills.
    flows.block(true)?;
    (flows.offered, flows.refused) = (0, 0);
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS_OF_BLOCKS {
        // By turns the one and the other comes first: a drift of the machine's speed favours neither.
        let crowded_first = pair % 2 == 0;
        let (one, other) = (flows.block(crowded_first)?, flows.block(!crowded_first)?);
        let (crowded, alone) = if crowded_first { (one, other) } else { (other, one) };
        rates.push(crowded);
        ratios.push(crowded / alone);
    }
    let refused = flows.refused as f64 / flows.offered as f64;
    let (rate, ratio) = median(&rates).zip(median(&ratios)).ok_or("no blocks")?;
    let line = json!({"peer": "hot_spot", "test": "uninvolved", "bytes": SHORT,
        "value": rate, "beside": rate / ratio});
    Ok((refused >= REFUSED_AT_LEAST).then_some(line))
}

impl Flows {
    /// Messages a second over the free flow.
    fn block(&mut self, crowded: bool) -> Result<f64, Box<dyn std::error::Error>> {
        let message = [7; SHORT];
        let mut sent = 0;
        let started = Instant::now();
        while started.elapsed() < BLOCK {
            if crowded {
                self.offered += 1;
                match self.endpoint.send(self.hot, 0, &message) {
                    Ok(()) => {}
                    Err(PostError::Full(_)) => self.refused += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            for _ in 0..TURN {
                while let Err(error) = self.endpoint.send(self.free, 0, &message) {
                    if !matches!(error, PostError::Full(_)) {
                        return Err(error.into());
                    }
                    std::hint::spin_loop();
                }
            }
            sent += TURN;
            // As every program does now and then: ends and signals of the network are seen there.
            self.endpoint.poll(|_| {})?;
        }
        Ok(f64::from(sent) / started.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(messages: [u64; SENDERS], first_bytes: u64) -> Counts {
        let bytes = messages
            .iter()
            .enumerate()
            .map(|(place, count)| count * if place == 0 { first_bytes } else { SHORT as u64 });
        Counts {
            bytes: bytes.collect(),
            messages: messages.to_vec(),
            turns: 80,
            empty_turns: 8,
            ..Counts::default()
        }
    }

    fn ratio(lines: &[Value], test: &str) -> f64 {
        let line = lines.iter().find(|line| line["test"] == test).expect("a line of that test");
        line["value"].as_f64().unwrap() / line["beside"].as_f64().unwrap()
    }

    #[test]
    fn the_least_served_stands_beside_the_most_served() {
        let lines = CASES[0].lines(&counts([100, 80, 100, 90, 100, 100, 100, 95], SHORT as u64), 0);
        assert!((ratio(&lines, "even") - 0.8).abs() < 1e-9);
        assert!((ratio(&lines, "even_empty") - 0.1).abs() < 1e-9);
    }

    #[test]
    fn who_sends_more_bytes_stands_beside_the_others() {
        let lines = CASES[2].lines(&counts([50, 99, 100, 100, 100, 100, 100, 101], LONG as u64), 0);
        assert!((ratio(&lines, "unequal") - 0.5).abs() < 1e-9);
        assert!((ratio(&lines, "unequal_bytes") - 32.0).abs() < 1e-9);
    }
}
