//! What the layers cost over the raw endpoint: puts, active messages, typed calls, a thousand channels, a virtual
//! interface. All take turns in short blocks within one pair of processes, so that their ratios hold whatever else the
//! machine does.

use std::time::{Duration, Instant};

use comb_net::active::ActiveMessages;
use comb_net::rpc::Rpc;
use comb_net::via::Interfaces;
use comb_net::{Access, Agent, ChannelKey, Endpoint, EndpointOptions, Geometry, RemoteWindow, Window};
use serde_json::{Value, json};

use crate::bare::Bare;
use crate::net::median;
use crate::via_way::ViaWay;
use crate::workload::Way;

const BLOCKS: u64 = 12;
const ROUNDS: u64 = 2000;
const BATCH: u64 = 100;
const SOON: Duration = Duration::from_secs(10);
pub(crate) const MANY: usize = 1000;
/// Other lengths of the raw endpoint's round trip, besides 8.
const LONGER_BYTES: [usize; 3] = [32, 56, 1024];
/// Other lengths of the virtual interface's.
const LONGER_VIA_BYTES: [usize; 1] = [1024];
const HANDLER: u16 = 0;
const STOP: u16 = 1;

/// Small rings: a thousand channels are to fit in the cache as far as they can.
fn many_options() -> EndpointOptions {
    EndpointOptions { geometry: Geometry { slots: 8, payload_bytes: 0 }, ..EndpointOptions::default() }
}

/// The asker's side of every layer.
pub(crate) struct Asking<'a> {
    bare: &'a Bare,
    raw: (Endpoint, ChannelKey),
    active: (ActiveMessages<u64>, ChannelKey),
    calls: (Rpc, ChannelKey),
    many: (Endpoint, Vec<ChannelKey>),
    /// Theirs, that we put into, and ours, that they put into.
    windows: (RemoteWindow, Window),
    via: ViaWay,
}

impl<'a> Asking<'a> {
    /// Meets the other side, layer by layer.
    pub(crate) fn meet(agent: &Agent, bare: &'a Bare) -> Result<Self, Box<dyn std::error::Error>> {
        let accept =
            |endpoint: &mut Endpoint| endpoint.accept(SOON).ok_or("the answering process did not come");
        let via = agent.endpoint("via")?;
        let mut raw = agent.endpoint("raw")?;
        let mut active = ActiveMessages::new(agent.endpoint("active")?, 0_u64);
        let mut calls = Rpc::new(agent.endpoint("calls")?);
        let mut many = agent.endpoint_with("many", many_options())?;
        let raw_channel = accept(&mut raw)?;
        active.on_reply(HANDLER, |last: &mut u64, reply| *last = reply.arguments[0]);
        let active_channel = active.accept(SOON).ok_or("no active messages")?;
        let calls_channel = calls.accept(SOON).ok_or("no calls")?;
        let mut keys = Vec::new();
        while keys.len() < MANY {
            keys.push(accept(&mut many)?);
        }
        let ours = raw.make_window(raw_channel, 4096, Access::Put)?;
        let theirs = raw.window(raw_channel, SOON)?;
        Ok(Self {
            bare,
            raw: (raw, raw_channel),
            active: (active, active_channel),
            calls: (calls, calls_channel),
            many: (many, keys),
            windows: (theirs, ours),
            via: ViaWay::meet(Interfaces::new(via), None)?,
        })
    }

    /// Runs all blocks; a JSON line a layer.
    pub(crate) fn run(&mut self) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
        let mut times: [Vec<f64>; 7] = Default::default();
        let mut longer: [Vec<f64>; LONGER_BYTES.len()] = Default::default();
        let mut longer_via: [Vec<f64>; LONGER_VIA_BYTES.len()] = Default::default();
        let mut buffer = [0; 1024];
        for block in 0..BLOCKS {
            let base = block * ROUNDS;
            let rounds = base + 1..=base + ROUNDS;
            times[0].extend(batches(rounds.clone(), |round| self.bare.ping(round)));
            let (endpoint, channel) = &mut self.raw;
            let mut ping = |round, message: &[u8]| {
                endpoint.send(*channel, 0, message).expect("room");
                while endpoint.receive(&mut buffer).expect("a live peer").is_none() {}
                assert_eq!(number_in(&buffer), round);
            };
            times[1].extend(batches(rounds.clone(), |round| ping(round, &round.to_le_bytes())));
            let mut message = [7; 1024];
            for (times, bytes) in longer.iter_mut().zip(LONGER_BYTES) {
                times.extend(batches(rounds.clone(), |round| {
                    message[..8].copy_from_slice(&round.to_le_bytes());
                    ping(round, &message[..bytes]);
                }));
            }
            let (theirs, ours) = &self.windows;
            times[2].extend(batches(rounds.clone(), |round| {
                endpoint.put(theirs, 0, &round.to_le_bytes()).expect("a live window");
                while ours.word(0).expect("our window") != round {
                    std::hint::spin_loop();
                }
            }));
            let (active, channel) = &mut self.active;
            times[3].extend(batches(rounds.clone(), |round| {
                active.request(*channel, HANDLER, &[round], &[]).expect("a live peer");
                while *active.state() != round {
                    active.poll().expect("a live peer");
                }
            }));
            active.request(*channel, STOP, &[], &[])?;
            let (calls, channel) = &mut self.calls;
            times[4].extend(batches(rounds.clone(), |_| {
                calls.call::<_, ()>(*channel, HANDLER, &(), SOON).expect("a live peer");
            }));
            calls.call::<_, ()>(*channel, STOP, &(), SOON)?;
            let (many, keys) = &mut self.many;
            let mut place = 1_usize;
            times[5].extend(batches(rounds.clone(), |round| {
                // A channel that nobody can guess from the last.
                place = (place * 421 + 1) % MANY;
                many.send(keys[place], 0, &round.to_le_bytes()).expect("room");
                while many.receive(&mut buffer).expect("a live peer").is_none() {}
                assert_eq!(number_in(&buffer), round);
            }));
            let mut ping_via = |bytes| {
                batches(rounds.clone(), |round| {
                    self.via.send(bytes, round);
                    assert_eq!(self.via.receive(bytes), round);
                })
            };
            times[6].extend(ping_via(8));
            for (times, bytes) in longer_via.iter_mut().zip(LONGER_VIA_BYTES) {
                times.extend(ping_via(bytes));
            }
        }
        let median = |times: &Vec<f64>| median(times).expect("some batches");
        let medians = times.each_ref().map(median);
        let line = |name: &str, bytes: usize, ns: f64| json!({"peer": "layers", "test": name, "bytes": bytes, "median_ns": ns, "bare_ns": medians[0]});
        let names = ["bare", "raw", "put", "active", "call", "thousand", "via"];
        let layers = names.iter().zip(medians).map(|(name, ns)| line(name, 8, ns));
        let longer = LONGER_BYTES.iter().zip(longer.each_ref().map(median));
        let longer_via = LONGER_VIA_BYTES.iter().zip(longer_via.each_ref().map(median));
        Ok(layers
            .chain(longer.map(|(&bytes, ns)| line("raw", bytes, ns)))
            .chain(longer_via.map(|(&bytes, ns)| line("via", bytes, ns)))
            .collect())
    }
}

/// What the bare ping-pong checks as well, so that it can be compared: that this is the message that was waited for.
#[inline]
fn number_in(message: &[u8]) -> u64 {
    u64::from_le_bytes(*message.first_chunk().expect("eight bytes and more"))
}

fn batches(rounds: std::ops::RangeInclusive<u64>, mut once: impl FnMut(u64)) -> Vec<f64> {
    let mut taken = Vec::with_capacity(usize::try_from(ROUNDS / BATCH).expect("small"));
    let mut start = Instant::now();
    for round in rounds {
        once(round);
        if round.is_multiple_of(BATCH) {
            taken.push(start.elapsed().as_secs_f64() * 1e9 / BATCH as f64);
            start = Instant::now();
        }
    }
    taken
}

/// The answerer's side of every layer.
pub(crate) fn answer(
    agent: &Agent,
    bare: &Bare,
    ready: impl FnOnce() -> Result<(), rustix::io::Errno>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut raw = agent.endpoint("raw")?;
    let channel = raw.open("asker/raw")?;
    let mut active = ActiveMessages::new(agent.endpoint("active")?, false);
    active.on_request(HANDLER, |_: &mut bool, request| {
        let number = request.arguments()[0];
        request.reply(HANDLER, &[number], &[]).expect("one word fits");
    });
    active.on_request(STOP, |stop: &mut bool, _| *stop = true);
    active.open("asker/active")?;
    let mut calls = Rpc::new(agent.endpoint("calls")?);
    calls.register(HANDLER, |()| ());
    let stopped = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = std::sync::Arc::clone(&stopped);
    calls.register(STOP, move |()| stop.store(true, std::sync::atomic::Ordering::Relaxed));
    calls.open("asker/calls")?;
    let mut many = agent.endpoint_with("many", many_options())?;
    for _ in 0..MANY {
        many.open("asker/many")?;
    }
    let ours = raw.make_window(channel, 4096, Access::Put)?;
    let theirs = raw.window(channel, SOON)?;
    let mut via = ViaWay::meet(Interfaces::new(agent.endpoint("via")?), Some("asker/via"))?;
    ready()?;
    let mut buffer = [0; 1024];
    for block in 0..BLOCKS {
        let rounds = block * ROUNDS + 1..=(block + 1) * ROUNDS;
        for round in rounds.clone() {
            bare.pong(round);
        }
        for round in rounds.clone() {
            while raw.receive(&mut buffer)?.is_none() {}
            assert_eq!(number_in(&buffer), round);
            raw.send(channel, 0, &round.to_le_bytes())?;
        }
        for bytes in LONGER_BYTES {
            for round in rounds.clone() {
                while raw.receive(&mut buffer)?.is_none() {}
                assert_eq!(number_in(&buffer), round);
                raw.send(channel, 0, &buffer[..bytes])?;
            }
        }
        for round in rounds.clone() {
            while ours.word(0)? != round {
                std::hint::spin_loop();
            }
            raw.put(&theirs, 0, &round.to_le_bytes())?;
        }
        while !std::mem::take(active.state_mut()) {
            active.poll()?;
        }
        while !stopped.swap(false, std::sync::atomic::Ordering::Relaxed) {
            calls.poll()?;
        }
        for round in rounds.clone() {
            let received = loop {
                if let Some(received) = many.receive(&mut buffer)? {
                    break received;
                }
            };
            assert_eq!(number_in(&buffer), round);
            many.send(received.channel, 0, &round.to_le_bytes())?;
        }
        for bytes in [8].into_iter().chain(LONGER_VIA_BYTES) {
            for _ in rounds.clone() {
                let round = via.receive(bytes);
                via.send(bytes, round);
            }
        }
    }
    Ok(())
}
