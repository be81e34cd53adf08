//! How long a machine stands still that moves: between two homes on this host, by the way that machines go between hosts, without the network.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use comb_guest::wire;
use comb_vm::control::{Answer, Ask, Line, Machines, Shown, State};
use comb_vm::engine::Engine;
use comb_vm::image::Images;
use comb_vm::monitor::{Beginning, Order, Seat, Told, User, run};
use comb_vm::moving::arriving::{self, Arrival, Places};
use comb_vm::moving::record::Records;
use comb_vm::moving::{MoveError, Moved, Passage, Rest, Show, Talk, Way};
use comb_vm::names::Name;
use comb_vm::snapshot::Snapshots;
use comb_vm::subnets::Subnets;

use super::{LIMIT, Outcome, World, row};
use crate::net::median;
use crate::report::Row;

const ROUNDS: usize = 5;

/// What changes four megabytes of memory and a little of the root, again and again.
const BUSY: &str = "(while :; do head -c 4000000 /dev/urandom > /run/busy; cat /run/busy | head -c 100000 > /etc/busy; usleep 100000; done) > /dev/null 2>&1 < /dev/null &";

/// From one home to the other.
struct Pipe(UnixStream);

impl Passage for Pipe {
    fn read(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        self.0.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        self.0.read(buffer).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

/// Where machines are.
#[derive(Clone)]
struct Homes {
    images: Images,
    subnets: Subnets,
    directories: [std::path::PathBuf; 2],
}

impl Homes {
    fn machines(&self, home: usize) -> Machines {
        Machines::at(self.directories[home].join("run"))
    }

    fn receive(&self, home: usize, stream: UnixStream) {
        let directory = &self.directories[home];
        let places = Places {
            images: self.images.clone(),
            snapshots: Snapshots::at(directory.join("snapshots")),
            records: Records::at(directory.join("moves")),
            machines: self.machines(home),
        };
        let homes = self.clone();
        std::thread::spawn(move || {
            let Ok(Some(mut arrival)) = arriving::hear(Talk::new(Box::new(Pipe(stream))), &places) else {
                return;
            };
            let Ok(name) = arrival.machine.name.parse() else { return };
            let (image, hardware) = (arrival.image.clone(), arrival.machine.hardware.clone());
            let beginning = Beginning::Arriving(Box::new(Beginning::Boot));
            let order = Order::new(name, image, beginning, hardware, homes.subnets.clone());
            let mut owner = Owner { homes: homes.clone(), home, arrival: Some(&mut arrival) };
            if let Err(error) = run(&homes.machines(home), &order, &mut owner) {
                arrival.refuse(&error.to_string());
            }
        });
    }
}

struct Owner<'a> {
    homes: Homes,
    home: usize,
    arrival: Option<&'a mut Arrival>,
}

impl User for Owner<'_> {
    fn seat(&mut self, _replaced: u32) -> Result<Option<Seat>, String> {
        Ok(None)
    }

    fn tell(&mut self, _told: Told) {}

    fn way_to(&mut self, _host: &str) -> Way {
        let (homes, other) = (self.homes.clone(), 1 - self.home);
        Box::new(move || {
            let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
            homes.receive(other, theirs);
            Ok(Box::new(Pipe(ours)))
        })
    }

    fn receive(&mut self, engine: &mut Engine, root: &Path, show: Show<'_>) -> Result<Rest, MoveError> {
        let arrival = self.arrival.take().ok_or_else(|| MoveError::Here("nothing comes".into()))?;
        arrival.take_up(engine, root, show)
    }
}

/// A machine that is at work at a home.
fn at_work(homes: &Homes, home: usize, name: &Name) -> Outcome<Line> {
    let until = Instant::now() + LIMIT;
    loop {
        if let Ok(mut line) = homes.machines(home).reach(name)
            && matches!(line.show(), Ok(Shown { state: State::Up, .. }))
        {
            return Ok(line);
        }
        if Instant::now() > until {
            return Err(format!("{name} is not at work").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn begin_within(line: &mut Line, script: &str) -> Outcome<()> {
    let arguments = ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
    line.say(&Ask::Exec(wire::Command { arguments, ..wire::Command::default() }))?;
    line.say(&Ask::Input(Vec::new()))?;
    while !matches!(line.hear(Some(LIMIT))?.ok_or("a program does not end")?, Answer::Ended(_)) {}
    Ok(())
}

/// There and back, again and again.
fn moves(homes: &Homes, name: &Name, home: &mut usize) -> Outcome<Vec<Moved>> {
    let mut all = Vec::new();
    while all.len() < ROUNDS {
        let mut line = at_work(homes, *home, name)?;
        line.say(&Ask::Migrate { host: "the other home".to_owned() })?;
        loop {
            match line.hear(Some(LIMIT))?.ok_or("it does not move")? {
                Answer::Moved(moved) => break all.push(moved),
                Answer::Refused(why) => return Err(why.into()),
                _ => {}
            }
        }
        *home = 1 - *home;
    }
    Ok(all)
}

pub(super) fn rows(world: &World, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let directories = ["one", "other"].map(|name| world.place.0.join(name));
    for directory in &directories {
        std::fs::create_dir_all(directory)?;
    }
    let subnets = Subnets::at(world.place.0.join("nets"), std::env::current_exe()?);
    let homes = Homes { subnets, images: Images::at(world.place.0.join("images")), directories };
    let (image, hardware) = (world.image.clone(), world.hardware.clone());
    let beginning = Beginning::Template(world.template(say)?);
    let order = Order::new("mover".parse()?, image, beginning, hardware, homes.subnets.clone());
    let (name, mut home) = (order.name.clone(), 0);
    let first = homes.clone();
    std::thread::spawn(move || {
        let mut owner = Owner { homes: first.clone(), home: 0, arrival: None };
        let _ = run(&first.machines(0), &order, &mut owner);
    });
    let mut rows = Vec::new();
    for (what, script) in [("idle", ":"), ("that writes", BUSY)] {
        say(&format!("moving a machine {what}"));
        begin_within(&mut at_work(&homes, home, &name)?, script)?;
        let moved = moves(&homes, &name, &mut home)?;
        #[expect(clippy::cast_precision_loss, reason = "a number of microseconds, or of bytes")]
        let of = |what: fn(&Moved) -> u64| {
            median(&moved.iter().map(|moved| what(moved) as f64).collect::<Vec<_>>())
        };
        let megabytes = of(|moved| moved.bytes).unwrap_or(f64::NAN) / f64::from(1 << 20);
        let note = format!(
            "{megabytes:.0} MB went over in {:.2} s",
            of(|moved| moved.took_us).unwrap_or(f64::NAN) / 1e6
        );
        let still_ms = of(|moved| moved.still_us).map(|still| still / 1e3);
        let claim = format!("a machine {what} that moves to another home stands still for");
        rows.push(Row { note, ..row(&claim, still_ms, "ms") });
    }
    let _ = at_work(&homes, home, &name)?.ask(&Ask::Kill);
    Ok(rows)
}
