//! What others see of a machine that fails, and how soon another is in its place.

use std::time::{Duration, Instant};

use comb_guest::wire::{FromGuest, ToGuest};
use comb_vm::control::{Machines, State};
use comb_vm::engine::Engine;
use comb_vm::monitor::{Beginning, End, Order, Seat, Told, User, run};
use comb_vm::subnets::Subnets;

use super::{LIMIT, Outcome, World, at_most};
use crate::net::median;
use crate::report::Row;

const SURVIVORS: usize = 3;
const BETWEEN_PINGS: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;

/// The longest that a guest took to answer, of questions for so long, in milliseconds.
fn longest_ms(engines: &mut [Engine], window: Duration, number: &mut u64) -> Outcome<f64> {
    let since = Instant::now();
    let mut longest = 0.0_f64;
    while since.elapsed() < window {
        *number += 1;
        let asked = Instant::now();
        for engine in &mut *engines {
            engine.say(&ToGuest::Ping { number: *number })?;
        }
        for engine in &mut *engines {
            loop {
                match engine.hear(Instant::now() + LIMIT)? {
                    Some(FromGuest::Pong { number: answered, .. }) if answered == *number => break,
                    Some(_) => {}
                    None => return Err("a guest does not answer".into()),
                }
            }
            longest = longest.max(asked.elapsed().as_secs_f64() * 1e3);
        }
        std::thread::sleep(BETWEEN_PINGS);
    }
    Ok(longest)
}

/// Kills engines, and hears of what takes their place.
struct Killer {
    left: usize,
    engine: u32,
    killed: Option<Instant>,
    took_ms: Vec<f64>,
    machines: Machines,
    name: comb_vm::names::Name,
}

impl User for Killer {
    fn seat(&mut self, _replaced: u32) -> Result<Option<Seat>, String> {
        Ok(None)
    }

    fn tell(&mut self, told: Told) {
        match told {
            Told::Engine(process) => self.engine = process,
            Told::Begun => {
                self.took_ms.extend(self.killed.map(|killed| killed.elapsed().as_secs_f64() * 1e3));
                let Some(left) = self.left.checked_sub(1) else {
                    let (machines, name) = (self.machines.clone(), self.name.clone());
                    // By another: this one is what serves it.
                    std::thread::spawn(move || {
                        let _ = machines.reach(&name).and_then(|mut line| {
                            assert_eq!(line.show()?.state, State::Up);
                            line.ask(&comb_vm::control::Ask::Kill)
                        });
                    });
                    return;
                };
                self.left = left;
                self.killed = Some(Instant::now());
                kill(self.engine);
            }
            Told::Replaced(_) => {}
        }
    }
}

fn kill(process: u32) {
    let number = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(number) = number {
        let _ = rustix::process::kill_process(number, rustix::process::Signal::KILL);
    }
}

pub(super) fn rows(world: &World, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let template = world.template(say)?;
    let clone = |number: usize| world.clone_of(&template, &format!("survivor-{number}"));
    let mut survivors = (0..SURVIVORS).map(clone).collect::<Outcome<Vec<_>>>()?;
    let mut number = 0;
    longest_ms(&mut survivors, WINDOW, &mut number)?;
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        say(&format!("killing one of {}, round {round} of {ROUNDS}", SURVIVORS + 1));
        let victim = clone(SURVIVORS)?;
        let mut with = [longest_ms(&mut survivors, WINDOW, &mut number)?, 0.0];
        kill(victim.process());
        with[1] = longest_ms(&mut survivors, WINDOW, &mut number)?;
        ratios.push(with[1] / with[0]);
    }
    drop(survivors);
    say("replacing");
    let subnets = Subnets::at(world.place.0.join("nets"), std::env::current_exe()?);
    let (image, beginning) = (world.image.clone(), Beginning::Template(template));
    let order = Order {
        is_replaced: true,
        ..Order::new("phoenix".parse()?, image, beginning, world.hardware.clone(), subnets)
    };
    let machines = Machines::at(world.place.0.join("run"));
    let mut killer = Killer {
        left: ROUNDS,
        engine: 0,
        killed: None,
        took_ms: Vec::new(),
        machines: machines.clone(),
        name: order.name.clone(),
    };
    let end = run(&machines, &order, &mut killer)?;
    if end != End::Killed || killer.took_ms.len() != ROUNDS {
        return Err(format!("{end:?} after {} replacements", killer.took_ms.len()).into());
    }
    let gap = at_most(
        "the longest gap in survivors' answers after a kill, by that before",
        median(&ratios).unwrap_or(f64::NAN),
        "",
        1.5,
    );
    let took_s = median(&killer.took_ms).unwrap_or(f64::NAN) / 1e3;
    Ok(vec![gap, at_most("from a machine's death until another is at work in its place", took_s, "s", 1.0)])
}
