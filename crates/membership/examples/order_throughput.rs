//! How much processor time ordered update needs: 32 machines in one thread, whose messages are handed over directly.
//!
//! `cargo run --release -p comb-membership --example order_throughput [members] [outstanding] [update bytes] [message bytes]`
//!
//! There is no network here: this is the least that all members together can need for an update, and what the sequencer, which
//! is the busiest, needs of that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_membership::order::{Config, Event, Input, Level, Order};
use comb_membership::{Incarnation, Member, NodeId, Time, To, View, ViewEpoch};

/// So long is measured, after as long again to warm up.
const SPAN: Duration = Duration::from_secs(2);

/// What is under way to one member.
type Inbox = VecDeque<(NodeId, Arc<[u8]>)>;

struct Bench {
    orders: Vec<Order>,
    inboxes: Vec<Inbox>,
    body: Vec<u8>,
    delivered: u64,
    messages: u64,
    message_bytes: u64,
    sequencer_time: Duration,
    start: Instant,
}

impl Bench {
    fn new(members: u32, outstanding: usize, update_bytes: usize, message_bytes: usize) -> Self {
        let config =
            Config { outstanding_most: outstanding, longest_message: message_bytes, ..Config::default() };
        let life = |node| Member { node: NodeId(node), incarnation: Incarnation(1) };
        let view =
            View { epoch: ViewEpoch(1), members: (0..members).map(life).collect(), tie_breaker: NodeId(0) };
        let order = |node| Order::founding(config.clone(), life(node), view.clone());
        Self {
            orders: (0..members).map(order).collect(),
            inboxes: (0..members).map(|_| Inbox::new()).collect(),
            body: vec![7; update_bytes],
            delivered: 0,
            messages: 0,
            message_bytes: 0,
            sequencer_time: Duration::ZERO,
            start: Instant::now(),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO.saturating_add(self.start.elapsed())
    }

    /// One member handles all that has come, submits what it may, and sends.
    fn turn(&mut self, place: usize) {
        let begin = Instant::now();
        let now = self.now();
        let order = &mut self.orders[place];
        for (from, bytes) in std::mem::take(&mut self.inboxes[place]) {
            order.handle(now, Input::Message { from, bytes: &bytes }).expect("honest members break no rule");
        }
        if order.next_timeout().is_some_and(|at| at <= now) {
            order.handle(now, Input::Timeout).expect("a timeout breaks no rule");
        }
        while order.submit(now, Level::Majority, &self.body).is_ok() {}
        let me = NodeId(u32::try_from(place).expect("few members"));
        while let Some(cast) = order.poll_transmit() {
            let to: Vec<NodeId> = match cast.to {
                To::One(node) => vec![node],
                To::Others => order.view().nodes().filter(|&node| node != me).collect(),
            };
            self.messages += to.len() as u64;
            self.message_bytes += (to.len() * cast.bytes.len()) as u64;
            for node in to {
                self.inboxes[node.0 as usize].push_back((me, cast.bytes.clone()));
            }
        }
        while let Some(event) = order.poll_event() {
            if let Event::Delivered(_) = event {
                self.delivered += u64::from(place == 0);
            }
        }
        if place == 0 {
            self.sequencer_time += begin.elapsed();
        }
    }

    fn run(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < SPAN {
            (0..self.orders.len()).for_each(|place| self.turn(place));
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let members = u32::try_from(arguments.next().unwrap_or(32)).expect("few members");
    let outstanding = arguments.next().unwrap_or(16);
    let update_bytes = arguments.next().unwrap_or(64);
    let message_bytes = arguments.next().unwrap_or(1400);
    let mut bench = Bench::new(members, outstanding, update_bytes, message_bytes);
    bench.run();
    (bench.delivered, bench.messages, bench.message_bytes, bench.sequencer_time) = (0, 0, 0, Duration::ZERO);
    let begin = Instant::now();
    bench.run();
    let seconds = begin.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (updates, messages, bytes) =
        (bench.delivered as f64, bench.messages as f64, bench.message_bytes as f64);
    println!(
        "{members} members, {outstanding} outstanding each, {update_bytes} B updates, {message_bytes} B messages"
    );
    println!("{:>12.0} updates/s in one thread", updates / seconds);
    println!("{:>12.2} us for an update, all members together", seconds * 1e6 / updates);
    println!("{:>12.2} us for an update, the sequencer", bench.sequencer_time.as_secs_f64() * 1e6 / updates);
    println!("{:>12.2} messages for an update, {:.0} B in the mean", messages / updates, bytes / messages);
    println!("{:>12} batches", bench.orders[0].counts().batches);
}
