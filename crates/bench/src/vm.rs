//! `comb bench vm`: many machines of one image, beside plain QEMU with a disk for each (Disco §5.3).

mod attached;
mod density;
pub(crate) mod engines;
mod failing;
pub(crate) mod files;
mod memory;
mod moving;
pub(crate) mod numa;
pub(crate) mod splash;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use comb_guest::wire::{Become, Command, Ended};
use comb_vm::attached::Devices;
use comb_vm::control::proportional_bytes;
use comb_vm::engine::Engine;
use comb_vm::hardware::{Accelerator, Backing, Hardware, Root, Under};
use comb_vm::image::{Image, Images, Recipe};
use comb_vm::template::Template;

use crate::net::median;
use crate::report::{Goal, Row, print, shows_progress};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A guest has begun by then, and a program in it has ended.
const LIMIT: Duration = Duration::from_secs(300);

/// What guests read.
const DATA_MB: u64 = 150;

const NOTES: &str = "\
Guests are Debian's kernel for clouds with busybox. Memory is what the host has for engines: their own, and of what they share each its part (Pss); for plain QEMU the host's copies of \
its disks are not counted. Where the engine is tcg, processors are translated, which takes several times as long: ratios between machines of one engine are \
what is measured here. Not measured: guests other than Linux, processors and hosts that have more than one node.";

/// A folder of its own, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(what: &str) -> Self {
        Self(std::env::temp_dir().join(format!("comb-bench-{what}-{}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An image with a file that guests read, and hardware for it.
struct World {
    image: Image,
    hardware: Hardware,
    place: Place,
}

impl World {
    fn new(say: &dyn Fn(&str)) -> Outcome<Self> {
        let place = Place::new("vm");
        let with = place.0.join("with");
        std::fs::create_dir_all(&with)?;
        // What is no block of zeroes, and no block twice.
        let mut word = 1_u64;
        let data: Vec<u8> = (0..DATA_MB << 17)
            .flat_map(|_| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                word.to_le_bytes()
            })
            .collect();
        std::fs::write(with.join("data"), data)?;
        attached::make_load(&with)?;
        let recipe =
            Recipe { agent: agent()?, with: Some(with), room_mb: 64, kernel: kernel(), ..Recipe::default() };
        let image = Images::at(place.0.join("images")).build(&"bench".parse()?, &recipe, say)?;
        let hardware = Hardware { accelerator: Accelerator::of_host(), ..Hardware::default() };
        Ok(Self { image, hardware, place })
    }

    fn own_root(&self) -> PathBuf {
        self.image.directory.join("root")
    }

    /// A machine that boots, from memory over the image.
    fn boot(&self, hardware: &Hardware, name: &str) -> Outcome<Engine> {
        let backing = Backing {
            ram: None,
            root: Root::Memory(self.own_root()),
            under: Under::Private,
            devices: Devices::default(),
        };
        self.begin(hardware, &backing, name)
    }

    fn begin(&self, hardware: &Hardware, backing: &Backing, name: &str) -> Outcome<Engine> {
        let mut engine = Engine::start(hardware, &self.image, backing, false, None)?;
        engine.become_who(Become { name: name.to_owned(), ..Become::default() }, LIMIT)?;
        Ok(engine)
    }

    fn template(&self, say: &dyn Fn(&str)) -> Outcome<Template> {
        Ok(Template::of(&self.image, &self.hardware, &mut |line| say(line))?)
    }

    fn clone_of(&self, template: &Template, name: &str) -> Outcome<Engine> {
        let mut engine = Engine::start(&self.hardware, &self.image, &template.backing(), true, None)?;
        engine.take_up(&template.state(), true)?;
        engine.become_who(Become { name: name.to_owned(), ..Become::default() }, LIMIT)?;
        Ok(engine)
    }
}

/// The agent's program, which goes into images.
fn agent() -> Outcome<PathBuf> {
    let agent = std::env::current_exe()?.with_file_name("comb-guest");
    if agent.exists() {
        return Ok(agent);
    }
    let how = "`cargo build --release -p comb-cli --bins` builds it";
    Err(format!("{} is not there: {how}", agent.display()).into())
}

/// A kernel's package that was fetched for tests; none: it is fetched now.
fn kernel() -> Option<PathBuf> {
    let entries = std::fs::read_dir(Path::new("target/vm")).ok()?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|kind| kind == "deb"))
}

/// What a line of a shell says in a guest.
fn within(engine: &mut Engine, script: &str) -> Outcome<String> {
    let arguments = ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
    match engine.run(Command { arguments, ..Command::default() }, LIMIT)? {
        (said, Ended::Exited(0)) => Ok(String::from_utf8_lossy(&said).trim().to_owned()),
        (said, how) => Err(format!("{script}: {how:?}: {}", String::from_utf8_lossy(&said)).into()),
    }
}

/// What the host has for these, in megabytes.
fn memory_mb(engines: &[Engine]) -> f64 {
    let bytes: u64 = engines.iter().filter_map(|engine| proportional_bytes(engine.process())).sum();
    #[expect(clippy::cast_precision_loss, reason = "a number of megabytes")]
    let mb = bytes as f64 / f64::from(1 << 20);
    mb
}

fn row(claim: &str, ours: Option<f64>, unit: &'static str) -> Row {
    Row {
        claim: claim.to_owned(),
        ours,
        unit,
        peer: "–".to_owned(),
        theirs: None,
        ratio: None,
        goal: Goal::None,
        note: String::new(),
    }
}

/// Ours by theirs is to be at most so much.
fn beside(claim: &str, ours: f64, unit: &'static str, peer: &str, theirs: f64, most: f64) -> Row {
    Row {
        peer: peer.to_owned(),
        theirs: Some(theirs),
        ratio: Some(ours / theirs),
        goal: Goal::AtMost(most),
        ..row(claim, Some(ours), unit)
    }
}

/// Ours is to be at most so much.
fn at_most(claim: &str, ours: f64, unit: &'static str, most: f64) -> Row {
    Row { ratio: Some(ours), goal: Goal::AtMost(most), ..row(claim, Some(ours), unit) }
}

/// What can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What eight machines of one image take that read the same.
    Density,
    /// From nothing until the first word.
    Starting,
    /// What others see of a machine that is killed, and what takes its place.
    Failing,
    /// Reads of disks.
    Disks,
    /// What goes from machine to machine, and what is left of it beside a flood.
    Networks,
    /// Files that machines have in common.
    Files,
    /// Machines that move to another host.
    Moving,
    /// What engines cost.
    Engines,
    /// Pages that move between the nodes of a machine's memory; in full, or when it is asked for.
    Nodes,
    /// Memory that moves between machines.
    Memory,
    /// Programs that are alone in a machine.
    Programs,
}

const PARTS: [Part; 11] = [
    Part::Density,
    Part::Starting,
    Part::Failing,
    Part::Disks,
    Part::Networks,
    Part::Files,
    Part::Moving,
    Part::Engines,
    Part::Nodes,
    Part::Memory,
    Part::Programs,
];

impl Part {
    fn rows(self, world: &World, full: bool, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
        let rounds = |few, many| if full { many } else { few };
        match self {
            Self::Density => density::rows(world, say),
            Self::Starting => starting(world, rounds(7, 21), say),
            Self::Failing => failing::rows(world, say),
            Self::Disks => attached::disk_rows(world, rounds(5, 9), say),
            Self::Networks => attached::network_rows(world, rounds(5, 9), say),
            Self::Files => files::rows(world, say),
            Self::Moving => moving::rows(world, say),
            Self::Engines => Ok(engines::rows(rounds(3, 7), say)),
            Self::Nodes => numa::rows(say),
            Self::Memory => memory::rows(world, say),
            Self::Programs => splash::rows(&world.place.0, say),
        }
    }
}

/// Measures, and prints: a part that fails is missing, and a row says why; the others are measured all the same.
pub fn run(only: Option<Part>, full: bool, json: bool) -> Outcome<()> {
    let say = |what: &str| {
        if shows_progress(json) {
            eprint!("\r{what:70}");
        }
    };
    let world = World::new(&say)?;
    let mut rows = Vec::new();
    let is_wanted = |part: Part| only.map_or(full || part != Part::Nodes, |only| only == part);
    for part in PARTS.into_iter().filter(|part| is_wanted(*part)) {
        rows.extend(part.rows(&world, full, &say).unwrap_or_else(|why| {
            let claim = format!("what was to be measured of {}", format!("{part:?}").to_lowercase());
            vec![Row { goal: Goal::AtLeast(1.0), note: why.to_string(), ..row(&claim, None, "") }]
        }));
    }
    say("");
    if shows_progress(json) {
        eprint!("\r");
    }
    print(&rows, json);
    if !json {
        println!("\nThe engine is {}. {NOTES}", world.hardware.accelerator.as_str());
    }
    Ok(())
}

/// From nothing until a program of the guest's has said a word.
fn starting(world: &World, count: usize, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let template = world.template(say)?;
    let [mut booted, mut cloned] = [const { Vec::new() }; 2];
    for round in 1..=count {
        say(&format!("beginning, round {round} of {count}"));
        let since = Instant::now();
        within(&mut world.boot(&world.hardware, "boots")?, "echo there")?;
        booted.push(since.elapsed().as_secs_f64());
        let since = Instant::now();
        within(&mut world.clone_of(&template, "continues")?, "echo there")?;
        cloned.push(since.elapsed().as_secs_f64());
    }
    let (booted, cloned) = (median(&booted).unwrap_or(0.0), median(&cloned).unwrap_or(0.0));
    let mut rows = vec![beside("a clone, until its first word", cloned, "s", "a boot", booted, 0.2)];
    say("50 clones");
    let since = Instant::now();
    let mut engines = Vec::new();
    for number in 0..50 {
        engines.push(world.clone_of(&template, &format!("clone-{number}"))?);
    }
    let took = since.elapsed().as_secs_f64();
    let said = engines.iter_mut().map(|engine| within(engine, "hostname")).collect::<Outcome<Vec<_>>>()?;
    let right = (0..).zip(&said).filter(|(number, said)| **said == format!("clone-{number}")).count();
    let note = format!("one after the other in {took:.1} s; {:.0} MB together", memory_mb(&engines));
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let right = right as f64;
    let all = Row {
        ratio: Some(right),
        goal: Goal::AtLeast(50.0),
        ..row("of 50 clones at once answer", Some(right), "")
    };
    rows.push(Row { note, ..all });
    Ok(rows)
}
