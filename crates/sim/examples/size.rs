//! How large a world may be: so many nodes, each of which tells a random other one something of 500 bytes every second, for two
//! minutes of virtual time.

use std::time::{Duration, Instant};

use comb_sim::{Actor, Dice, Effects, Input, NodeId, Time, World};

const MESSAGE_BYTES: usize = 500;
const INTERVAL: Duration = Duration::from_secs(1);
const VIRTUAL: Duration = Duration::from_secs(120);

struct Talker {
    nodes: u32,
    dice: Dice,
    next: Time,
}

impl Actor for Talker {
    type Command = ();
    type Event = ();

    fn handle(&mut self, input: Input<'_, ()>, effects: &mut Effects<'_, ()>) {
        match input {
            Input::Timeout => {
                self.next = self.next.saturating_add(INTERVAL);
                effects.send(NodeId(self.dice.below(self.nodes)), vec![0; MESSAGE_BYTES]);
            }
            Input::Message { from, bytes } if bytes[0] == 0 => effects.send(from, vec![1; MESSAGE_BYTES]),
            _ => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
}

fn main() {
    let nodes = std::env::args().nth(1).map_or(10_000, |word| word.parse().expect("a number of nodes"));
    let started = Instant::now();
    let mut world = World::new(1, move |boot| {
        let mut dice = Dice::new(boot.seed);
        let next = boot.now.saturating_add(dice.between(Duration::ZERO..INTERVAL));
        Talker { nodes, dice, next }
    });
    world.add_nodes(nodes);
    world.start_all();
    world.run_for(VIRTUAL).expect("no checkers");
    let real = started.elapsed();
    println!(
        "{nodes} nodes, {} s of virtual time, {} inputs: {:.1} s, {:.0} ns an input",
        VIRTUAL.as_secs(),
        world.steps(),
        real.as_secs_f64(),
        real.as_secs_f64() * 1e9 / world.steps() as f64,
    );
}
