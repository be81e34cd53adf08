//! A program that is alone in a machine, beside the same one in an ordinary guest on the same host (Disco §4.4 and §5.4, Figure 8).

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use comb_guest::wire::{Become, Command, Ended};
use comb_vm::attached::Devices;
use comb_vm::engine::Engine;
use comb_vm::hardware::{Backing, Hardware, Root, Under};
use comb_vm::image::{Image, Images, Recipe};

use super::{LIMIT, Outcome, Place, beside, kernel, row};
use crate::figure::{Curve, Drawing, Figure};
use crate::items::{NO_NUMBER, item};
use crate::net::median;
use crate::report::{Goal, Row};
use crate::reproduce::{Item, ReproduceError};

/// What is run, and on which input: each takes seconds on processors that are translated.
const PROGRAMS: [(&str, &str); 2] = [("radix", "medium"), ("ocean", "medium")];

/// Of each machine; a program has one or two threads.
const PROCESSORS: u32 = 2;
const MEMORY_BYTES: u64 = 320 << 20;

/// Of each program, number of threads and kind of machine, by turns.
const ROUNDS: usize = 3;

/// What one run took.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Took {
    seconds: f64,
    user_s: f64,
    kernel_s: f64,
    faults: f64,
}

/// One program, with so many threads, in both kinds of machine: medians.
#[derive(Clone, Debug)]
struct Pair {
    program: &'static str,
    threads: u32,
    ordinary: Took,
    alone: Took,
}

impl Took {
    /// As the program says it at its end.
    fn of(said: &str) -> Option<Self> {
        let line = said.lines().find_map(|line| line.strip_prefix("took: "))?;
        let mut numbers = line.split(", ").map(|part| part.split(' ').next()?.parse::<f64>().ok());
        let mut next = || numbers.next()?;
        Some(Self { seconds: next()? / 1e6, user_s: next()? / 1e6, kernel_s: next()? / 1e6, faults: next()? })
    }

    fn median(all: &[Self]) -> Self {
        let of =
            |part: fn(&Self) -> f64| median(&all.iter().map(part).collect::<Vec<_>>()).unwrap_or(f64::NAN);
        Self {
            seconds: of(|took| took.seconds),
            user_s: of(|took| took.user_s),
            kernel_s: of(|took| took.kernel_s),
            faults: of(|took| took.faults),
        }
    }
}

const NO_LIBRARY: &str =
    "libcomb_library_os.a is not beside this program: `cargo build --release -p comb-library-os` builds it";

fn library() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("libcomb_library_os.a");
    beside.exists().then_some(beside)
}

/// Builds the programs, each linked with the library operating system: what it is elsewhere, too.
fn build(into: &Path) -> Outcome<PathBuf> {
    let library = library().ok_or(NO_LIBRARY)?;
    let built = into.join("alone");
    let mut make = Process::new("make");
    make.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps"));
    make.arg(format!("BUILD={}", built.display())).arg(format!("LIBRARY_OS={}", library.display()));
    make.args(PROGRAMS.map(|(name, _)| built.join(name)));
    let made = make.stdin(Stdio::null()).output()?;
    if !made.status.success() {
        return Err(format!("make -C apps: {}", String::from_utf8_lossy(&made.stderr)).into());
    }
    Ok(built)
}

fn start(image: &Image) -> Outcome<Engine> {
    let hardware = Hardware { memory_bytes: MEMORY_BYTES, processors: PROCESSORS, ..Hardware::default() };
    let root = Root::Memory(image.directory.join("root"));
    let backing = Backing { ram: None, root, under: Under::Private, devices: Devices::default() };
    let mut engine = Engine::start(&hardware, image, &backing, false, None)?;
    engine.become_who(Become { name: image.name.to_string(), ..Become::default() }, LIMIT)?;
    Ok(engine)
}

/// Runs a program: what it says, of its results and of what it took.
fn run(engine: &mut Engine, words: &str) -> Outcome<String> {
    let arguments = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let command = Command { arguments, environment: vec![b"COMB_USAGE=1".to_vec()], ..Command::default() };
    match engine.run(command, LIMIT)? {
        (said, Ended::Exited(0)) => Ok(String::from_utf8_lossy(&said).into_owned()),
        (said, how) => Err(format!("{words}: {how:?}: {}", String::from_utf8_lossy(&said)).into()),
    }
}

fn measure(place: &Path, say: &dyn Fn(&str)) -> Outcome<Vec<Pair>> {
    say("building programs that can be alone");
    let built = build(place)?;
    let images = Images::at(place.join("alone-images"));
    let with = place.join("programs");
    std::fs::create_dir_all(with.join("bin"))?;
    for (name, _) in PROGRAMS {
        std::fs::copy(built.join(name), with.join("bin").join(name))?;
    }
    let agent = std::env::current_exe()?.with_file_name("comb-guest");
    let usual = Recipe { agent, with: Some(with), kernel: kernel(), ..Recipe::default() };
    let ordinary = images.build(&"ordinary".parse()?, &usual, say)?;
    let mut pairs = Vec::new();
    for (program, size) in PROGRAMS {
        let recipe = Recipe { program: Some(built.join(program)), kernel: kernel(), ..Recipe::default() };
        let alone = images.build(&program.parse()?, &recipe, say)?;
        let mut engines = [start(&ordinary)?, start(&alone)?];
        for threads in [1, PROCESSORS] {
            for engine in &mut engines {
                let said = run(engine, &format!("{program} -p {threads} -s small --check"))?;
                if !said.contains(&format!("{program}: ok")) {
                    return Err(format!("{program} computes something else: {said}").into());
                }
            }
            let mut took = [Vec::new(), Vec::new()];
            for round in 1..=ROUNDS {
                say(&format!(
                    "{program} by {threads}, alone and in an ordinary guest, round {round} of {ROUNDS}"
                ));
                for (engine, took) in engines.iter_mut().zip(&mut took) {
                    let said = run(engine, &format!("{program} -p {threads} -s {size}"))?;
                    took.push(
                        Took::of(&said)
                            .ok_or_else(|| format!("{program} does not say what it took: {said}"))?,
                    );
                }
            }
            let [ordinary, alone] = took.map(|took| Took::median(&took));
            pairs.push(Pair { program, threads, ordinary, alone });
        }
    }
    Ok(pairs)
}

pub(super) fn rows(place: &Path, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let peer = "ordinary guest";
    if library().is_none() {
        let nothing = row("radix alone in a machine, by an ordinary guest", None, "s");
        return Ok(vec![Row { goal: Goal::AtMost(1.0), note: NO_LIBRARY.to_owned(), ..nothing }]);
    }
    let of = |pair: Pair| {
        let Pair { program, threads, ordinary, alone } = pair;
        let many = if threads == 1 { "1 thread" } else { "2 threads" };
        let time = beside(
            &format!("{program} alone in a machine, {many}"),
            alone.seconds,
            "s",
            peer,
            ordinary.seconds,
            1.0,
        );
        let kernel = beside("… of that in the kernel", alone.kernel_s, "s", peer, ordinary.kernel_s, 0.5);
        let faults = Row {
            peer: peer.to_owned(),
            theirs: Some(ordinary.faults),
            goal: Goal::None,
            ..row("… page faults", Some(alone.faults), "")
        };
        [time, kernel, faults]
    };
    Ok(measure(place, say)?.into_iter().flat_map(of).collect())
}

/// Figure 8, of the program that it has beside a compilation, and of one more.
pub(crate) fn figure_8(say: &dyn Fn(&str)) -> Result<(Vec<Item>, Vec<Drawing>), ReproduceError> {
    let place = Place(std::env::temp_dir().join(format!("comb-bench-figure-8-{}", std::process::id())));
    let pairs = std::fs::create_dir_all(&place.0).map_err(Into::into).and_then(|()| measure(&place.0, say));
    let pairs = pairs.map_err(|error| ReproduceError::Nothing(error.to_string()))?;
    Ok((items(&pairs), drawings(&pairs)))
}

fn items(pairs: &[Pair]) -> Vec<Item> {
    let mut items = Vec::new();
    for pair in pairs.iter().filter(|pair| pair.threads == PROCESSORS) {
        let Pair { program, ordinary, alone, .. } = pair;
        // The paper has no ocean in this figure.
        let is_theirs = *program == "radix";
        let of = |what: &str, paper: f64, unit| {
            item("disco", &format!("Figure 8, {program}, {what}"), is_theirs.then_some(paper), unit)
        };
        let note = if is_theirs { NO_NUMBER } else { "not in the paper's figure" };
        let time = item("disco", &format!("Figure 8, {program}, alone beside an ordinary guest"), None, "s");
        items.push(time.shorter(Some(alone.seconds), Some(ordinary.seconds), note));
        let part = ordinary.kernel_s / (ordinary.kernel_s + ordinary.user_s);
        items.push(
            of("part of it in the ordinary guest's kernel", 0.5, "")
                .ours(Some(part))
                .note("\"one half of its time\"; eight processors"),
        );
        let times = ordinary.kernel_s / alone.kernel_s;
        items.push(
            of("time in the ordinary guest's kernel by that alone", 10.0, "×")
                .ours(Some(times))
                .note("\"an order of magnitude\""),
        );
        let faults = of("page faults alone by those in the ordinary guest", 1.0, "")
            .ours(Some(alone.faults / ordinary.faults));
        items.push(faults.note("the paper's has as many; here memory is there before the program begins"));
    }
    items
}

fn drawings(pairs: &[Pair]) -> Vec<Drawing> {
    let curve = |program: &str, label, of: fn(&Pair) -> f64| {
        let points = pairs.iter().filter(|pair| pair.program == program);
        Curve { label, points: points.map(|pair| (f64::from(pair.threads), of(pair))).collect() }
    };
    let curves = vec![
        curve("radix", "radix, ordinary guest", |pair| pair.ordinary.seconds),
        curve("radix", "radix, alone", |pair| pair.alone.seconds),
        curve("ocean", "ocean, ordinary guest", |pair| pair.ordinary.seconds),
        curve("ocean", "ocean, alone", |pair| pair.alone.seconds),
    ];
    let figure = Figure {
        name: "disco-figure-8",
        title: "Programs alone in a machine and in an ordinary guest (Disco, Figure 8)",
        x: "threads",
        y: "seconds",
    };
    vec![figure.of(curves)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_took_is_read_and_compared() {
        let said = "radix: medium input\ntook: 2000000 us, 3000000 us as a program, 500000 us in the kernel, 120 page faults\n";
        let ordinary = Took::of(said).unwrap();
        assert_eq!(ordinary, Took { seconds: 2.0, user_s: 3.0, kernel_s: 0.5, faults: 120.0 });
        assert_eq!(Took::of("took: much"), None);
        let alone = Took { seconds: 1.0, kernel_s: 0.1, faults: 12.0, ..ordinary };
        let items = items(&[Pair { program: "radix", threads: PROCESSORS, ordinary, alone }]);
        let values: Vec<_> = items.iter().map(|item| item.measured.unwrap()).collect();
        assert_eq!(values, [1.0, 0.5 / 3.5, 5.0, 0.1]);
    }
}
