//! The experiment "switch port contention" (thesis §4.6.3 and §4.7) on the shipped state machines: seven
//! links each carry one stream to a port of its own and one to a port that all seven compete for.
//!
//! Measured there, in MBytes/sec of 112: with source quench the competing streams get 15 each and the seven
//! others go on at 98; with the link-level control that it replaced, all fourteen run at a seventh.

use comb_congestion::Flow;
use comb_congestion::quench::{Marks, Quencher, QuencherInput, Signal, Source, SourceInput};
use comb_congestion::share::Share;
use comb_types::Time;
use std::collections::VecDeque;
use std::time::Duration;

const LINKS: u32 = 7;
const FLOWS: u32 = 2 * LINKS;
const MESSAGE_BYTES: u32 = 64;
/// A link carries one message in a tick.
const TICK: Duration = Duration::from_micros(1);
const DELAY_TICKS: u32 = 10;
const LEASE: Duration = Duration::from_micros(300);

/// Flow `link` competes for the hot port; flow `LINKS + link` has its own.
fn link_of(flow: Flow) -> usize {
    (flow.0 % LINKS) as usize
}

fn is_hot(flow: Flow) -> bool {
    flow.0 < LINKS
}

fn flows() -> impl Iterator<Item = Flow> {
    (0..FLOWS).map(Flow)
}

#[derive(Clone, Copy, PartialEq)]
enum Control {
    /// A signal stops the flow that it names.
    PerFlow,
    /// A signal stops the link that the flow comes from: what this crate refuses to do, as a counterexample.
    PerLink,
}

struct Fabric {
    control: Control,
    now: Time,
    sources: Vec<Source>,
    /// Whose turn it is on each link.
    link_turns: Vec<Share>,
    on_links: VecDeque<Vec<Flow>>,
    quencher: Quencher,
    hot_port_turns: Share,
    signals: VecDeque<Vec<(Flow, Signal)>>,
    delivered: Vec<u64>,
    dropped: u64,
    longest_queue_bytes: u32,
}

impl Fabric {
    fn new(control: Control) -> Fabric {
        let round_trip_bytes = MESSAGE_BYTES * (2 * DELAY_TICKS + 2);
        let mut quencher = Quencher::new(Marks::for_path(round_trip_bytes), LEASE);
        let mut hot_port_turns = Share::new(MESSAGE_BYTES);
        flows().for_each(|flow| quencher.open(flow));
        flows().filter(|flow| is_hot(*flow)).for_each(|flow| hot_port_turns.open(flow));
        let mut link_turns: Vec<Share> = (0..LINKS).map(|_| Share::new(MESSAGE_BYTES)).collect();
        flows().for_each(|flow| link_turns[link_of(flow)].open(flow));
        Fabric {
            control,
            now: Time::ZERO,
            sources: vec![Source::new(LEASE); FLOWS as usize],
            link_turns,
            on_links: vec![Vec::new(); DELAY_TICKS as usize].into(),
            quencher,
            hot_port_turns,
            signals: vec![Vec::new(); DELAY_TICKS as usize].into(),
            delivered: vec![0; FLOWS as usize],
            dropped: 0,
            longest_queue_bytes: 0,
        }
    }

    fn tick(&mut self) {
        self.now = self.now.saturating_add(TICK);
        self.hear_signals();
        self.send();
        self.receive();
        self.serve();
        if self.quencher.next_timeout().is_some_and(|due| due <= self.now) {
            self.quencher.handle(self.now, QuencherInput::Timeout).unwrap();
        }
        let signals = std::iter::from_fn(|| self.quencher.poll_transmit());
        let signals = signals.map(|transmit| (transmit.flow, transmit.signal)).collect();
        self.signals.push_back(signals);
    }

    fn hear_signals(&mut self) {
        for (flow, signal) in self.signals.pop_front().unwrap() {
            self.sources[flow.0 as usize].handle(self.now, SourceInput::Signal(signal)).unwrap();
        }
        for source in &mut self.sources {
            source.handle(self.now, SourceInput::Timeout).unwrap();
        }
    }

    fn may_send(&self, flow: Flow) -> bool {
        let alone = |flow: Flow| self.sources[flow.0 as usize].may_send(self.now);
        match self.control {
            Control::PerFlow => alone(flow),
            Control::PerLink => flows().filter(|other| link_of(*other) == link_of(flow)).all(alone),
        }
    }

    /// Every source is as greedy as it may be.
    fn send(&mut self) {
        let mut sent = Vec::new();
        for flow in flows() {
            if self.may_send(flow) {
                self.link_turns[link_of(flow)].ready(flow);
            }
        }
        for link in 0..self.link_turns.len() {
            while let Some(flow) = self.link_turns[link].next() {
                let may_send = self.may_send(flow);
                self.link_turns[link].served(flow, if may_send { MESSAGE_BYTES } else { 0 }, may_send);
                if may_send {
                    sent.push(flow);
                    break;
                }
            }
        }
        self.on_links.push_back(sent);
    }

    fn receive(&mut self) {
        for flow in self.on_links.pop_front().unwrap() {
            let arrived = QuencherInput::Arrived { flow, bytes: MESSAGE_BYTES };
            match self.quencher.handle(self.now, arrived) {
                Ok(()) if is_hot(flow) => self.hot_port_turns.ready(flow),
                Ok(()) => {}
                Err(_) => self.dropped += 1,
            }
            self.longest_queue_bytes = self.longest_queue_bytes.max(self.quencher.queued_bytes(flow));
        }
    }

    /// Each port puts out one message.
    fn serve(&mut self) {
        if let Some(flow) = self.hot_port_turns.next() {
            self.deliver(flow);
            let more = self.quencher.queued_bytes(flow) > 0;
            self.hot_port_turns.served(flow, MESSAGE_BYTES, more);
        }
        for flow in flows().filter(|flow| !is_hot(*flow)) {
            if self.quencher.queued_bytes(flow) > 0 {
                self.deliver(flow);
            }
        }
    }

    fn deliver(&mut self, flow: Flow) {
        self.quencher.handle(self.now, QuencherInput::Served { flow, bytes: MESSAGE_BYTES }).unwrap();
        self.delivered[flow.0 as usize] += 1;
    }
}

/// Shares of a link's speed after the start has passed: of the competing flows, and of the others.
fn run(control: Control) -> (Vec<f64>, Vec<f64>, Fabric) {
    const START_TICKS: u32 = 2_000;
    const TICKS: u32 = 50_000;
    let mut fabric = Fabric::new(control);
    (0..START_TICKS).for_each(|_| fabric.tick());
    fabric.delivered.fill(0);
    (0..TICKS).for_each(|_| fabric.tick());
    let share = |flow: Flow| fabric.delivered[flow.0 as usize] as f64 / f64::from(TICKS);
    let hot = flows().filter(|flow| is_hot(*flow)).map(share).collect();
    let others = flows().filter(|flow| !is_hot(*flow)).map(share).collect();
    (hot, others, fabric)
}

fn least(shares: &[f64]) -> f64 {
    shares.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(shares: &[f64]) -> f64 {
    shares.iter().copied().fold(0.0, f64::max)
}

#[test]
fn a_hot_port_harms_nobody_but_its_own_flows() {
    let (hot, others, fabric) = run(Control::PerFlow);
    println!("competing {hot:.3?} others {others:.3?} longest queue {} bytes", fabric.longest_queue_bytes);
    assert_eq!(fabric.dropped, 0);
    assert!(hot.iter().sum::<f64>() > 0.99, "the hot port is used in full: {hot:?}");
    assert!(least(&hot) >= 0.8 * most(&hot), "competing flows get equal parts: {hot:?}");
    // 98 of 112 there; a link's other seventh is the competing flow's. A little less here for bursts.
    assert!(least(&others) > 0.84, "flows to other ports get the rest of their link: {others:?}");
}

/// The same fabric with the one thing changed that the crate leaves out. It shows that the test above can
/// fail, and why no signal names a link. (§4.7: 15% of the throughput)
#[test]
fn pausing_links_instead_stops_the_innocent() {
    let (hot, others, _) = run(Control::PerLink);
    println!("competing {hot:.3?} others {others:.3?}");
    assert!(most(&others) < 0.2, "{others:?}");
}

/// More flows than a port ever sees at once, and one receiver: the share of the unluckiest.
#[test]
fn hundreds_of_greedy_flows_share_equally() {
    const GREEDY: u32 = 300;
    let mut share = Share::new(2048);
    (0..GREEDY).for_each(|number| share.open(Flow(number)));
    (0..GREEDY).for_each(|number| share.ready(Flow(number)));
    let mut served_bytes = vec![0u64; GREEDY as usize];
    for message in 0..200_000u32 {
        let flow = share.next().unwrap();
        // Each flow has a size of its own: some send little at a time, some much.
        let bytes = 64 + (flow.0 * 37 + message % 5) % 1900;
        served_bytes[flow.0 as usize] += u64::from(bytes);
        share.served(flow, bytes, true);
    }
    let (least, most) = (served_bytes.iter().min().unwrap(), served_bytes.iter().max().unwrap());
    println!("least {least} most {most}");
    assert!(least * 10 >= most * 8);
}
