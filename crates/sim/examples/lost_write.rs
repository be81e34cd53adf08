//! A store with a backup, and the fault that its author overlooked. The first node takes writes, passes each on to the second, and
//! says "kept" when it has *sent* it. A checker knows what was promised; the world loses messages and kills nodes.
//!
//! ```console
//! $ cargo run -p comb-sim --example lost_write            # finds a seed that breaks the promise
//! $ cargo run -p comb-sim --example lost_write -- fixed   # says "kept" when the backup has answered: no seed does
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use comb_sim::{Actor, Checker, Effects, Failure, Fault, Input, NodeId, Time, Truth, World};

const STORE: NodeId = NodeId(0);
const BACKUP: NodeId = NodeId(1);

struct Store {
    is_fixed: bool,
    values: BTreeSet<u8>,
}

#[derive(Debug)]
enum Event {
    /// The user was told that this value will never be lost.
    Kept(u8),
    /// The backup is asked what it has.
    Has(BTreeSet<u8>),
}

#[derive(Clone)]
enum Command {
    Write(u8),
    Show,
}

impl Actor for Store {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Input<'_, Command>, effects: &mut Effects<'_, Event>) {
        match input {
            Input::Command(Command::Write(value)) => {
                self.values.insert(value);
                effects.send(BACKUP, vec![value]);
                if !self.is_fixed {
                    effects.tell(Event::Kept(value));
                }
            }
            Input::Command(Command::Show) => effects.tell(Event::Has(self.values.clone())),
            // The backup answers with what it got; the store hears that.
            Input::Message { from: STORE, bytes } => {
                self.values.extend(bytes);
                effects.send(STORE, bytes.to_vec());
            }
            Input::Message { bytes, .. } if self.is_fixed => {
                bytes.iter().for_each(|&value| effects.tell(Event::Kept(value)));
            }
            _ => {}
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn describe(message: &[u8]) -> String {
        format!("value {}", message[0])
    }
}

/// What was kept is with the backup when the store is gone.
#[derive(Default)]
struct NothingIsLost {
    kept: BTreeSet<u8>,
}

impl Checker<Store> for NothingIsLost {
    fn saw(&mut self, _: &Truth<'_>, _: NodeId, event: &Event) -> Result<(), String> {
        match event {
            Event::Kept(value) => drop(self.kept.insert(*value)),
            Event::Has(values) => {
                if let Some(lost) = self.kept.difference(values).next() {
                    return Err(format!("value {lost} was kept, and is lost"));
                }
            }
        }
        Ok(())
    }
}

fn run(seed: u64, is_fixed: bool, watch: bool) -> Result<(), Failure> {
    let mut world = World::new(seed, move |_| Store { is_fixed, values: BTreeSet::new() });
    world.add_nodes(2);
    world.network_mut().default.lost_per_million = 10_000;
    world.check(NothingIsLost::default());
    if watch {
        world.watch(|line| println!("{line}"));
    }
    world.start(STORE);
    world.start(BACKUP);
    for value in 0..20 {
        let at = Time::from_millis(world.dice().below(100).into());
        world.command_at(at, STORE, Command::Write(value));
    }
    let crash = world.dice().between(Duration::ZERO..Duration::from_millis(120));
    world.at(Time::ZERO.saturating_add(crash), Fault::Crash(STORE));
    world.command_at(Time::from_millis(200), BACKUP, Command::Show);
    world.run_for(Duration::from_secs(1))
}

fn main() {
    let is_fixed = std::env::args().nth(1).is_some_and(|word| word == "fixed");
    match (0..10_000).find_map(|seed| run(seed, is_fixed, false).err()) {
        None => println!("10000 seeds, and no promise broken"),
        Some(failure) => {
            println!("{failure}\n\nThe same run again:\n");
            let again = run(failure.seed, is_fixed, true).expect_err("a seed is a run");
            assert_eq!(again, failure);
        }
    }
}
