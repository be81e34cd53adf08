//! Files that machines have in common: how often the host has them, and what machines take that share them or have none in common (Disco §5.3, Figure 7).

use std::path::{Path, PathBuf};
use std::time::Instant;

use comb_guest::packing::pack;
use comb_guest::wire::{Command, Ended};
use comb_vm::engine::Engine;
use comb_vm::files::edition::Writing;
use comb_vm::files::machine::Use;
use comb_vm::files::shelf::{Shelf, Shelves};
use comb_vm::hardware::Root;
use comb_vm::template::Template;

use super::{DATA_MB, LIMIT, Outcome, World, at_most, row, within};
use crate::figure::{Curve, Drawing, Figure};
use crate::items::item;
use crate::report::Row;
use crate::reproduce::{Item, ReproduceError};

const COUNTS: [usize; 4] = [1, 2, 4, 8];
const GUESTS: usize = 8;

/// In so many files is what a workload reads, so that so many machines can have a part each.
const PARTS: usize = 8;

/// Memory of a kind in megabytes: what machines would need that have nothing in common, and what they need.
#[derive(Clone, Copy, Default, Debug)]
struct Both {
    alone: f64,
    really: f64,
}

/// What machines take, by what it is for.
#[derive(Clone, Copy, Default, Debug)]
struct Footprint {
    /// What a guest has written: its kernel's data and its programs'.
    data: Both,
    /// What it has as the template had it, and its root: its kernel's text, and programs.
    text: Both,
    /// Files of the workload.
    files: Both,
    /// The engines themselves.
    engines: Both,
}

impl Footprint {
    fn kinds(&self) -> [Both; 4] {
        [self.data, self.text, self.files, self.engines]
    }

    fn all(&self) -> Both {
        self.kinds().iter().fold(Both::default(), |sum, kind| Both {
            alone: sum.alone + kind.alone,
            really: sum.really + kind.really,
        })
    }
}

/// What a process has mapped of a file, in kilobytes.
#[derive(Clone, Copy, Default, Debug)]
struct Mapped {
    resident: f64,
    part: f64,
    own: f64,
}

/// What a process has of all its memory, and of files whose names end so.
fn mapped(process: u32, ends: &[PathBuf]) -> Outcome<(Mapped, Vec<Mapped>)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps"))?;
    let (mut all, mut found) = (Mapped::default(), vec![Mapped::default(); ends.len()]);
    let mut at = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first.contains('-') && !first.ends_with(':') {
            at = ends.iter().position(|end| line.ends_with(end.to_string_lossy().as_ref()));
            continue;
        }
        let Some(kb) = words.next().and_then(|word| word.parse::<f64>().ok()) else { continue };
        let mut sums: Vec<&mut Mapped> = vec![&mut all];
        sums.extend(at.map(|at| &mut found[at]));
        for sum in sums {
            match first {
                "Rss:" => sum.resident += kb,
                "Pss:" => sum.part += kb,
                "Anonymous:" => sum.own += kb,
                _ => {}
            }
        }
    }
    Ok((all, found))
}

/// What these take, whose memory and root lie over a template's files.
fn footprint(engines: &[Engine], template: &Template, shelves: &[Shelf]) -> Outcome<Footprint> {
    let backing = template.backing();
    let Root::Memory(root) = backing.root else { return Err("a template's root is in memory".into()) };
    let mut ends = vec![backing.ram.ok_or("a template has memory")?, root];
    ends.extend(shelves.iter().map(Shelf::device));
    let mut sum = Footprint::default();
    let add = |both: &mut Both, alone_kb: f64, really_kb: f64| {
        both.alone += alone_kb / 1024.0;
        both.really += really_kb / 1024.0;
    };
    for engine in engines {
        let (all, found) = mapped(engine.process(), &ends)?;
        let mut rest = (all.resident, all.part);
        for (number, of) in found.iter().enumerate() {
            rest = (rest.0 - of.resident, rest.1 - of.part);
            if number < 2 {
                add(&mut sum.data, of.own, of.own);
                add(&mut sum.text, of.resident - of.own, of.part - of.own);
            } else {
                add(&mut sum.files, of.resident, of.part);
            }
        }
        add(&mut sum.engines, rest.0, rest.1);
    }
    Ok(sum)
}

/// A place with files for machines, and what is made of them.
struct Workload<'a> {
    world: &'a World,
    template: Template,
    shelves: Shelves,
}

impl<'a> Workload<'a> {
    fn new(world: &'a World, say: &dyn Fn(&str)) -> Outcome<Self> {
        let data = std::fs::read(world.place.0.join("with/data"))?;
        for (part, bytes) in data.chunks(data.len().div_ceil(PARTS)).enumerate() {
            let directory = world.place.0.join(format!("part-{part}"));
            std::fs::create_dir_all(&directory)?;
            std::fs::write(directory.join(format!("data-{part}")), bytes)?;
        }
        let (template, shelves) = (world.template(say)?, Shelves::at(world.place.0.join("files")));
        Ok(Self { world, template, shelves })
    }

    /// A shelf with these parts.
    fn shelf(&self, name: &str, parts: std::ops::Range<usize>) -> Outcome<Shelf> {
        let directory = self.world.place.0.join(format!("of-{name}"));
        std::fs::create_dir_all(&directory)?;
        for part in parts {
            let file = self.world.place.0.join(format!("part-{part}/data-{part}"));
            let link = directory.join(format!("data-{part}"));
            if !link.exists() {
                std::fs::hard_link(file, link)?;
            }
        }
        let shelf = self.shelves.open_or_make(&name.parse()?, (DATA_MB + 64) << 20, 100)?;
        self.bring_out(&shelf, &directory, 0)?;
        Ok(shelf)
    }

    fn bring_out(&self, shelf: &Shelf, directory: &Path, kept: u32) -> Outcome<u32> {
        let mut writing = Writing::begin(shelf, kept)?;
        pack(directory, None, |said| writing.take(said.clone()).map_err(std::io::Error::other))?;
        Ok(writing.bring_out()?.slot)
    }

    /// A clone that has a shelf.
    fn clone_with(&self, shelf: &Shelf, is_writer: bool) -> Outcome<(Engine, Use)> {
        let mut engine = self.world.clone_of(&self.template, "reads")?;
        let of = Use { shelf: shelf.clone(), is_writer };
        of.plug(&mut engine)?;
        let slot = shelf.record()?.current.ok_or("nothing is brought out")?;
        ends_well(&mut engine, of.show(slot, false))?;
        Ok((engine, of))
    }
}

fn ends_well(engine: &mut Engine, command: Command) -> Outcome<()> {
    match engine.run(command, LIMIT)? {
        (_, Ended::Exited(0)) => Ok(()),
        (said, how) => Err(format!("{how:?}: {}", String::from_utf8_lossy(&said)).into()),
    }
}

fn read(engine: &mut Engine, shelf: &Shelf, parts: std::ops::Range<usize>) -> Outcome<()> {
    let files: Vec<String> = parts.map(|part| format!("/files/{}/data-{part}", shelf.name)).collect();
    within(engine, &format!("cat {} > /dev/null", files.join(" "))).map(drop)
}

/// How often the host has what so many guests read: what is mapped of it, each page once, and what guests have more in memory of their own.
fn copies(workload: &Workload<'_>, shelf: &Shelf, count: usize) -> Outcome<f64> {
    let begin = |_| workload.clone_with(shelf, false).map(|(engine, _)| engine);
    let mut engines = (0..count).map(begin).collect::<Outcome<Vec<_>>>()?;
    let cached = |engines: &mut [Engine]| -> Outcome<f64> {
        let says = "sed -n 's/^Cached: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo";
        engines.iter_mut().try_fold(0.0, |sum, engine| Ok(sum + within(engine, says)?.parse::<f64>()?))
    };
    let before = cached(&mut engines)?;
    for engine in &mut engines {
        read(engine, shelf, 0..PARTS)?;
    }
    let more = cached(&mut engines)? - before;
    let shelves = [shelf.clone()];
    let taken = footprint(&engines, &workload.template, &shelves)?;
    #[expect(clippy::cast_precision_loss, reason = "a number of megabytes")]
    let data = DATA_MB as f64;
    Ok((taken.files.really + more / 1024.0) / data)
}

/// The workload split over so many machines, each with its part to itself.
fn with_own(workload: &Workload<'_>, count: usize) -> Outcome<Footprint> {
    let parts = |number: usize| number * PARTS / count..(number + 1) * PARTS / count;
    let (mut engines, mut shelves) = (Vec::new(), Vec::new());
    for number in 0..count {
        let shelf = workload.shelf(&format!("own-{count}-{number}"), parts(number))?;
        let (mut engine, _) = workload.clone_with(&shelf, false)?;
        read(&mut engine, &shelf, parts(number))?;
        engines.push(engine);
        shelves.push(shelf);
    }
    footprint(&engines, &workload.template, &shelves)
}

/// The same, and one of the machines serves all files to the others.
fn with_server(workload: &Workload<'_>) -> Outcome<Footprint> {
    let shelf = workload.shelf("served", 0..PARTS)?;
    let mut engines = Vec::new();
    for number in 0..GUESTS {
        let is_server = number == 0;
        let (mut engine, _) = workload.clone_with(&shelf, is_server)?;
        let parts = if is_server { 0..PARTS } else { number..number + 1 };
        read(&mut engine, &shelf, parts)?;
        engines.push(engine);
    }
    footprint(&engines, &workload.template, &[shelf])
}

/// How long it takes until all of these see what has changed, in seconds.
fn seen_after(workload: &Workload<'_>, shelf: &Shelf) -> Outcome<f64> {
    let begin = |_| workload.clone_with(shelf, false);
    let mut machines = (0..GUESTS).map(begin).collect::<Outcome<Vec<_>>>()?;
    let directory = workload.world.place.0.join(format!("of-{}", shelf.name));
    std::fs::write(directory.join("word"), "changed")?;
    let since = Instant::now();
    let before = shelf.record()?.current.map_or(0, |slot| 1 << slot);
    let slot = workload.bring_out(shelf, &directory, before)?;
    for (engine, of) in &mut machines {
        ends_well(engine, of.show(slot, false))?;
    }
    let took = since.elapsed().as_secs_f64();
    for (engine, of) in &mut machines {
        if within(engine, &format!("cat /files/{}/word", of.shelf.name))? != "changed" {
            return Err("a guest does not see what has changed".into());
        }
    }
    Ok(took)
}

pub(super) fn rows(world: &World, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let workload = Workload::new(world, say)?;
    let shelf = workload.shelf("common", 0..PARTS)?;
    let mut rows = Vec::new();
    for count in COUNTS {
        say(&format!("{count} clones read files in common"));
        let claim = format!("copies on the host of files in common, {count} clones that read them");
        rows.push(at_most(&claim, copies(&workload, &shelf, count)?, "", 1.1));
    }
    say("a server and its clients");
    let (own, served) = (with_own(&workload, GUESTS)?, with_server(&workload)?);
    let ratio = served.files.really / own.files.really;
    let note = format!(
        "{:.0} MB beside {:.0}; without sharing {:.0}",
        served.files.really, own.files.really, served.files.alone
    );
    let claim =
        format!("files of {GUESTS} machines in memory, one a server, by those with files of their own");
    rows.push(Row { note, ..at_most(&claim, ratio, "", 1.1) });
    say("what changes is seen");
    let took = seen_after(&workload, &shelf)?;
    rows.push(row(
        &format!("until {GUESTS} machines see a change in {DATA_MB} MB of files"),
        Some(took),
        "s",
    ));
    Ok(rows)
}

/// Figure 7: what machines take, without sharing and with it. The paper draws bars; here each kind of memory is a line.
pub(crate) fn figure_7() -> Result<(Vec<Item>, Vec<Drawing>), ReproduceError> {
    figure().map_err(|error| ReproduceError::Nothing(error.to_string()))
}

fn figure() -> Outcome<(Vec<Item>, Vec<Drawing>)> {
    let world = World::new(&|_| ())?;
    let workload = Workload::new(&world, &|_| ())?;
    let mut own = Vec::new();
    for count in COUNTS {
        own.push((count.to_string(), with_own(&workload, count)?));
    }
    let mut all: Vec<(String, Footprint)> = own;
    all.push((format!("{GUESTS}, files by a server"), with_server(&workload)?));
    Ok((items(&all), vec![drawing(&all)]))
}

const KINDS: [&str; 4] = ["kernels' and programs' data", "kernels' text and programs", "files", "engines"];

const LINUX: &str = "Linux has the place of IRIX, and its guests are clones of a template";

fn items(all: &[(String, Footprint)]) -> Vec<Item> {
    let of = |name: &str, value: Option<f64>| item("disco", name, value, "MB");
    let eight = all.iter().find(|(name, _)| *name == GUESTS.to_string()).map(|(_, found)| found.data.really);
    let private = of("Figure 7, eight machines, memory of IRIX's private data, less than", Some(20.0));
    let mut items = vec![private.ours(eight).note(LINUX)];
    for (name, found) in all {
        let kinds = found.kinds();
        let parts = KINDS.iter().zip(&kinds).map(|(kind, both)| format!("{kind} {:.0}", both.really));
        let both = found.all();
        let note = format!(
            "without sharing {:.0}; {}; beside it: without sharing. The bars have no numbers in the text",
            both.alone,
            parts.collect::<Vec<_>>().join(", ")
        );
        let row = of(&format!("Figure 7, memory of machines: {name}"), None);
        items.push(row.ours(Some(both.really)).classic(Some(both.alone)).note(note));
    }
    items
}

/// By the number of machines; those with a server stand at the next power of two.
fn drawing(all: &[(String, Footprint)]) -> Drawing {
    let line = |label, value: &dyn Fn(&Footprint) -> f64| {
        let points =
            (0_u32..).zip(all).map(|(at, (_, found))| (f64::from(1_u32 << at), value(found).max(0.1)));
        Curve { label, points: points.collect() }
    };
    let figure = Figure {
        name: "disco-figure-7",
        title: "Memory of machines (Disco, Figure 7)",
        x: "machines; 16: eight, files by a server",
        y: "MB",
    };
    figure.of(vec![
        line("V: without sharing", &|found| found.all().alone),
        line("M: really", &|found| found.all().really),
        line("V: files", &|found| found.files.alone),
        line("M: files", &|found| found.files.really),
        line("V: text and programs", &|found| found.text.alone),
        line("M: text and programs", &|found| found.text.really),
        line("data", &|found| found.data.really),
        line("engines", &|found| found.engines.really),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_each_configuration_and_says_what_would_be_without_sharing() {
        let both = |alone, really| Both { alone, really };
        let found = Footprint {
            data: both(10.0, 10.0),
            text: both(80.0, 20.0),
            files: both(300.0, 150.0),
            engines: both(40.0, 30.0),
        };
        let all: Vec<_> = ["1", "8", "8, files by a server"].map(|name| (name.to_owned(), found)).to_vec();
        let items = items(&all);
        assert_eq!((items.len(), items[0].measured, items[0].paper_value), (4, Some(10.0), Some(20.0)));
        assert_eq!((items[3].measured, items[3].baseline), (Some(210.0), Some(430.0)));
        assert!(items[3].note.contains("files 150") && items[3].item.ends_with("8, files by a server"));
        let drawing = drawing(&all);
        assert_eq!(drawing.curves[0].points, [(1.0, 430.0), (2.0, 430.0), (4.0, 430.0)]);
        assert_eq!(drawing.curves[3].points[2], (4.0, 150.0));
    }

    #[test]
    fn what_a_process_has_mapped_of_a_file_is_found() {
        let own = std::env::current_exe().unwrap();
        let (all, found) = mapped(std::process::id(), &[own, "/no/such".into()]).unwrap();
        assert!(found[0].resident > 0.0 && found[0].resident < all.resident && found[0].part > 0.0);
        assert_eq!(found[1].resident, 0.0);
    }
}
