//! One slow receiver, three sources: two as greedy as they can be, one that says something now and then.
//!
//! `cargo run -p comb-congestion --example greedy_sources`
//!
//! The receiver's queues stay short, the greedy sources get equal parts, and the quiet one does not wait
//! behind them. Then the receiver dies without a word, and its sources are free again after one lease.

use comb_congestion::Flow;
use comb_congestion::quench::{Marks, Quencher, QuencherInput, Source, SourceInput};
use comb_congestion::share::Share;
use comb_types::Time;
use std::time::Duration;

const TICK: Duration = Duration::from_micros(1);
const LEASE: Duration = Duration::from_micros(500);
const MESSAGE_BYTES: u32 = 100;
const NAMES: [&str; 3] = ["greedy", "greedy too", "quiet"];

fn main() {
    let flows = [Flow(0), Flow(1), Flow(2)];
    let mut sources = NAMES.map(|_| Source::new(LEASE));
    // Messages and signals arrive in the tick after the one in which they were sent.
    let mut quencher = Quencher::new(Marks::for_path(4 * MESSAGE_BYTES), LEASE);
    let mut share = Share::new(MESSAGE_BYTES);
    for flow in flows {
        quencher.open(flow);
        share.open(flow);
    }

    let (mut served, mut longest_bytes, mut signals) = ([0; 3], [0; 3], [0; 3]);
    let mut now = Time::ZERO;
    for tick in 0..9_000 {
        now = now.saturating_add(TICK);
        for flow in flows {
            let source = &mut sources[flow.0 as usize];
            source.handle(now, SourceInput::Timeout).expect("a timeout is no signal");
            let wants_to_send = flow != Flow(2) || tick % 50 == 0;
            if wants_to_send && source.may_send(now) {
                let arrived = QuencherInput::Arrived { flow, bytes: MESSAGE_BYTES };
                quencher.handle(now, arrived).expect("no signal is ever lost here");
                share.ready(flow);
            }
            let longest = &mut longest_bytes[flow.0 as usize];
            *longest = quencher.queued_bytes(flow).max(*longest);
        }
        // The receiver needs three ticks for a message; each greedy source alone sends three times as much.
        if tick % 3 == 0
            && let Some(flow) = share.next()
        {
            let left = QuencherInput::Served { flow, bytes: MESSAGE_BYTES };
            quencher.handle(now, left).expect("serving cannot overrun");
            share.served(flow, MESSAGE_BYTES, quencher.queued_bytes(flow) > 0);
            served[flow.0 as usize] += 1;
        }
        quencher.handle(now, QuencherInput::Timeout).expect("a timeout cannot overrun");
        while let Some(transmit) = quencher.poll_transmit() {
            let flow = transmit.flow.0 as usize;
            signals[flow] += 1;
            sources[flow]
                .handle(now, SourceInput::Signal(transmit.signal))
                .expect("the lease is the agreed one");
        }
    }
    for (flow, name) in NAMES.iter().enumerate() {
        println!(
            "{name:>10}: {:4} messages served, queue at most {:4} bytes, {:3} signals",
            served[flow], longest_bytes[flow], signals[flow]
        );
    }

    drop(quencher);
    for (source, name) in sources.iter().zip(NAMES) {
        match source.next_timeout() {
            Some(free_at) => println!("receiver dead: {name} goes on after {:?}", free_at.since(now)),
            None => println!("receiver dead: {name} never stood still"),
        }
    }
}
