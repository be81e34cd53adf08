//! Figure 9 of Disco: what migration and replication of pages save where memory has nodes. Programs run in a machine whose translator records what misses the caches of its processors
//! ([`comb_vm::misses`]); that is replayed with homes by turns, as IRIX had them, with the policy that regions have ([`comb_coherence::placement`]), and with memory that is as near to all.
//!
//! Times are those of a model, by the paper's latencies. Each processor is a node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Instant;

use comb_coherence::CellId;
use comb_coherence::placement::{Miss, Policy, Replayed, replay};
use comb_guest::wire::{Become, Command, ToGuest};
use comb_vm::engine::Engine;
use comb_vm::hardware::{Accelerator, Hardware};
use comb_vm::image::{Image, Images, Recipe};
use comb_vm::misses::{Recorded, Watcher};
use comb_vm::template::Template;

use super::{LIMIT, Outcome, Place, kernel, row};
use crate::cc::programs::apps_folder;
use crate::figure::{Curve, Drawing, Figure};
use crate::items::{NO_NUMBER, item};
use crate::report::{Goal, Row};
use crate::reproduce::{Item, ReproduceError};

/// What a run costs, in nanoseconds.
struct Costs {
    /// Processors that execute one instruction in each cycle, at twice the clock rate of an R10000 of 200 MHz. (Disco §5.1; the text does not give that rate)
    instruction: f64,
    local: f64,
    remote: f64,
    /// To move a page or to replicate it: its 32 lines are loaded from the other node and stored in this one, and all processors are interrupted to forget where it was. (Neither is in the text)
    page_move: f64,
    /// To take replicas away.
    collapse: f64,
}

const INTERRUPTS_NS: f64 = 20_000.0;
const COSTS: Costs = Costs {
    instruction: 2.5,
    local: 300.0,
    remote: 900.0,
    page_move: 32.0 * (900.0 + 300.0) + INTERRUPTS_NS,
    collapse: INTERRUPTS_NS,
};

/// What is recorded.
struct Workload {
    name: &'static str,
    processors: u32,
    cache_kb: u32,
    /// For a shell in the guest.
    script: &'static str,
    programs: &'static [&'static str],
    /// The paper's: by how much migration and replication shorten it, and how much longer it takes then than with uniform memory; in percent.
    paper: [f64; 2],
    figure: Figure,
}

const X: &str = "1: homes by turns, 2: migration and replication, 3: uniform memory";
const Y: &str = "% of the time with homes by turns";

const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "engineering",
        processors: 8,
        cache_kb: 1024,
        script: "for i in 1 2 3 4 5 6; do barnes -p 1 -s medium & mp3d -p 1 -s medium & done; wait",
        programs: &["barnes", "mp3d"],
        paper: [33.0, 40.0],
        figure: Figure {
            name: "disco-figure-9-engineering",
            title: "Twelve programs on eight nodes (Disco, Figure 9)",
            x: X,
            y: Y,
        },
    },
    Workload {
        name: "raytrace",
        processors: 16,
        cache_kb: 256,
        script: "raytrace -p 16 -s medium",
        programs: &["raytrace"],
        paper: [38.0, 26.0],
        figure: Figure {
            name: "disco-figure-9-raytrace",
            title: "One program of 16 threads on 16 nodes (Disco, Figure 9)",
            x: X,
            y: Y,
        },
    },
];

/// Room for so many misses.
const MOST_MISSES: usize = 4_000_000;
/// So much of the time is not counted: programs set up, caches fill, and the policy, which is at work in it, has not seen anything yet. (The paper's run from a steady state on)
const SET_UP: f64 = 0.5;
const MEMORY_BYTES: u64 = 768 << 20;

/// A bar: what the processors do together, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Bar {
    instructions: f64,
    local: f64,
    remote: f64,
    moves: f64,
    local_percent: f64,
}

impl Bar {
    fn of(instructions: f64, replayed: &Replayed) -> Self {
        let of = |count: u64, each: f64| count as f64 * each;
        let moved = replayed.migrations + replayed.replications;
        Self {
            instructions: instructions * COSTS.instruction,
            local: of(replayed.local, COSTS.local),
            remote: of(replayed.remote, COSTS.remote),
            moves: of(moved, COSTS.page_move) + of(replayed.collapses, COSTS.collapse),
            local_percent: of(replayed.local, 100.0) / of((replayed.local + replayed.remote).max(1), 1.0),
        }
    }

    fn total(&self) -> f64 {
        self.instructions + self.local + self.remote + self.moves
    }
}

/// What is known of a workload.
pub(crate) struct Measured {
    workload: &'static Workload,
    by_turns: Bar,
    /// Where each page lives with who missed it first.
    first_touch: Bar,
    moved: Bar,
    uniform: Bar,
    replayed: Replayed,
    misses: usize,
}

/// What was replayed, without what a part from the beginning on comes to.
fn behind(all: &Replayed, before: &Replayed) -> Replayed {
    Replayed {
        remote: all.remote - before.remote,
        local: all.local - before.local,
        migrations: all.migrations - before.migrations,
        replications: all.replications - before.replications,
        collapses: all.collapses - before.collapses,
    }
}

impl Measured {
    fn of(workload: &'static Workload, recorded: &Recorded) -> Self {
        let all = recorded.misses.iter();
        let misses: Vec<Miss> = all
            .map(|miss| Miss { page: miss.page, by: CellId(miss.processor), is_store: miss.is_store })
            .collect();
        let set_up = recorded.before(SET_UP);
        let instructions: u64 = recorded.instructions.iter().sum();
        let instructions = instructions as f64 * (1.0 - SET_UP);
        let replayed = |policy: &Policy, home_of: &dyn Fn(u64) -> CellId| {
            let of = |misses: &[Miss]| replay(policy, home_of, misses.iter().copied());
            behind(&of(&misses), &of(&misses[..set_up]))
        };
        let nodes = u64::from(workload.processors);
        let by_turns = |page: u64| CellId(u32::try_from(page % nodes).expect("few nodes"));
        let stay = Policy { most_moves: 0, ..Policy::default() };
        let mut first = BTreeMap::new();
        for miss in &misses {
            first.entry(miss.page).or_insert(miss.by);
        }
        let bar = |replayed: &Replayed| Bar::of(instructions, replayed);
        let moved = replayed(&Policy::default(), &by_turns);
        let counted = misses.len() - set_up;
        Self {
            workload,
            by_turns: bar(&replayed(&stay, &by_turns)),
            first_touch: bar(&replayed(&stay, &|page| first[&page])),
            moved: bar(&moved),
            uniform: bar(&Replayed { local: counted as u64, ..Replayed::default() }),
            replayed: moved,
            misses: counted,
        }
    }

    /// By how much moving shortens it, and how much longer it takes then than it would with uniform memory; in percent.
    fn compared(&self) -> [f64; 2] {
        let [before, after, least] = [self.by_turns, self.moved, self.uniform].map(|bar| bar.total());
        [(1.0 - after / before) * 100.0, (after / least - 1.0) * 100.0]
    }

    fn items(&self) -> Vec<Item> {
        let named = |what: &str| format!("Figure 9, {}, {what}", self.workload.name);
        let [faster, slower] = self.compared();
        let [paper_faster, paper_slower] = self.workload.paper;
        let Replayed { migrations, replications, collapses, .. } = self.replayed;
        let recorded = format!(
            "a model by the paper's latencies, of {} misses recorded of `{}` on {} processors with {} KB of cache each",
            self.misses, self.workload.script, self.workload.processors, self.workload.cache_kb
        );
        let first = (1.0 - self.first_touch.total() / self.by_turns.total()) * 100.0;
        let part = |bar: &Bar, part: f64| Some(part / bar.total() * 100.0);
        let row = |what: &str, unit| item("disco", &named(what), None, unit);
        vec![
            item("disco", &named("faster by migration and replication"), paper_faster, "%")
                .ours(Some(faster))
                .note(format!("{recorded}; a page that lives with who touches it first: {first:.1}")),
            item("disco", &named("slower than with uniform memory"), paper_slower, "%").ours(Some(slower)),
            row("misses that are local", "%")
                .ours(Some(self.moved.local_percent))
                .classic(Some(self.by_turns.local_percent))
                .note(format!("{NO_NUMBER}; the classic way: homes by turns")),
            row("time for moves and replicas", "%").ours(part(&self.moved, self.moved.moves)).note(format!(
                "{NO_NUMBER}; {migrations} pages migrated, {replications} replicated, {collapses} times replicas were taken away"
            )),
            row("time in remote misses", "%")
                .ours(part(&self.moved, self.moved.remote))
                .classic(part(&self.by_turns, self.by_turns.remote))
                .note(format!("{NO_NUMBER}; the classic way: homes by turns")),
        ]
    }

    fn drawing(&self) -> Drawing {
        let all = self.by_turns.total() / 100.0;
        let bars = [(1.0, self.by_turns), (2.0, self.moved), (3.0, self.uniform)];
        let curve = |label, of: fn(&Bar) -> f64| {
            let points = bars.iter().map(|(at, bar)| (*at, of(bar) / all));
            Curve { label, points: points.filter(|(_, part)| *part > 0.0).collect() }
        };
        self.workload.figure.of(vec![
            curve("all", Bar::total),
            curve("instructions", |bar| bar.instructions),
            curve("local misses", |bar| bar.local),
            curve("remote misses", |bar| bar.remote),
            curve("moves and replicas", |bar| bar.moves),
            curve("% of misses that are local", |bar| bar.local_percent).of_itself(all),
        ])
    }

    fn row(&self) -> Row {
        let [faster, slower] = self.compared();
        let claim = format!("nodes of memory: {}, by homes in turns", self.workload.name);
        let ratio = self.moved.total() / self.by_turns.total();
        let note = format!(
            "{faster:.0}% faster, and {slower:.0}% slower than with uniform memory; {:.0}% of misses are local, {:.0}% before",
            self.moved.local_percent, self.by_turns.local_percent
        );
        Row {
            ratio: Some(ratio),
            goal: Goal::AtMost(1.0),
            peer: "homes by turns".to_owned(),
            theirs: Some(self.by_turns.total() / 1e9),
            note,
            ..row(&claim, Some(self.moved.total() / 1e9), "s")
        }
    }
}

impl Curve {
    /// Its values are no parts of the time.
    fn of_itself(mut self, all: f64) -> Self {
        self.points.iter_mut().for_each(|(_, value)| *value *= all);
        self
    }
}

/// The programs, linked with nothing that an image has not.
fn build_programs(into: &Path) -> Outcome<()> {
    let apps = apps_folder()?;
    let wanted: Vec<PathBuf> =
        WORKLOADS.iter().flat_map(|workload| workload.programs).map(|name| into.join(name)).collect();
    let built = into.display();
    let made = Program::new("make")
        .args(["-s", "-C"])
        .arg(apps)
        .args(["CC=cc", "CFLAGS=-O2 -static", &format!("BUILD={built}")])
        .args(wanted)
        .output()?;
    if made.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&made.stderr).into()) }
}

fn image(place: &Path, say: &dyn Fn(&str)) -> Outcome<Image> {
    let (built, with) = (place.join("programs"), place.join("with"));
    std::fs::create_dir_all(with.join("bin"))?;
    build_programs(&built)?;
    for name in WORKLOADS.iter().flat_map(|workload| workload.programs) {
        std::fs::copy(built.join(name), with.join("bin").join(name))?;
    }
    let agent = std::env::current_exe()?.with_file_name("comb-guest");
    let recipe = Recipe { agent, with: Some(with), room_mb: 16, kernel: kernel(), ..Recipe::default() };
    Ok(Images::at(place.join("images")).build(&"nodes".parse()?, &recipe, say)?)
}

/// Runs a workload until there is no room for more misses, or it ends.
fn record(workload: &Workload, image: &Image, place: &Path, say: &dyn Fn(&str)) -> Outcome<Recorded> {
    let usual = Hardware {
        memory_bytes: MEMORY_BYTES,
        processors: workload.processors,
        // What nobody translates nobody sees.
        accelerator: Accelerator::Tcg,
        ..Hardware::default()
    };
    let template = Template::of(image, &usual, &mut |line| say(line))?;
    let own = place.join(workload.name);
    std::fs::create_dir_all(&own)?;
    let watcher = Watcher::new(&own, workload.cache_kb, MOST_MISSES)?;
    let hardware = Hardware { watcher: Some(watcher.option()), ..usual };
    let mut engine = Engine::start(&hardware, image, &template.backing(), true, None)?;
    engine.take_up(&template.state(), true)?;
    engine.become_who(Become { name: "watched".to_owned(), ..Become::default() }, LIMIT)?;
    let arguments = ["sh", "-c", workload.script].map(|word| word.as_bytes().to_vec()).to_vec();
    watcher.begin()?;
    engine.say(&ToGuest::Exec { exec: 0, command: Command { arguments, ..Command::default() } })?;
    let since = Instant::now();
    while !watcher.is_full()? && since.elapsed() < LIMIT {
        say(&format!("{}: recording, {:.0} s", workload.name, since.elapsed().as_secs_f64()));
        let said = engine.hear(Instant::now() + std::time::Duration::from_millis(100))?;
        if let Some(comb_guest::wire::FromGuest::Ended { how, .. }) = said {
            if how == comb_guest::wire::Ended::Exited(0) {
                break;
            }
            return Err(format!("{}: {how:?}", workload.script).into());
        }
    }
    watcher.end()?;
    drop(engine);
    Ok(watcher.recorded()?)
}

fn measure(say: &dyn Fn(&str)) -> Outcome<Vec<Measured>> {
    let place = Place(std::env::temp_dir().join(format!("comb-bench-nodes-{}", std::process::id())));
    let image = image(&place.0, say)?;
    let all = WORKLOADS.iter().map(|workload| {
        let recorded = record(workload, &image, &place.0, say)?;
        Ok(Measured::of(workload, &recorded))
    });
    all.collect()
}

/// For `comb bench vm`.
pub(super) fn rows(say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    Ok(measure(say)?.iter().map(Measured::row).collect())
}

/// For `comb reproduce disco`.
pub(crate) fn figure_9() -> Result<(Vec<Item>, Vec<Drawing>), ReproduceError> {
    let measured = measure(&|_| ()).map_err(|error| ReproduceError::Nothing(error.to_string()))?;
    let items = measured.iter().flat_map(Measured::items).collect();
    Ok((items, measured.iter().map(Measured::drawing).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a page that one node alone misses, and one that all read: both end where they are used.
    fn recorded(times: u64) -> Recorded {
        let miss = |at, page, processor, is_store| comb_vm::misses::Miss { at, page, processor, is_store };
        let misses = (0..times).flat_map(|at| {
            let read = (0..8).map(move |by| miss(at, 16, by, false));
            read.chain([miss(at, 17, 5, true)])
        });
        Recorded { misses: misses.collect(), instructions: vec![times; 8] }
    }

    #[test]
    fn a_bar_is_what_its_misses_cost() {
        let measured = Measured::of(&WORKLOADS[0], &recorded(4000));
        assert_eq!(measured.misses, 9 * 2000, "one half is set-up");
        let Bar { instructions, local, remote, moves, .. } = measured.by_turns;
        assert_eq!((instructions, moves), (8.0 * 2000.0 * 2.5, 0.0));
        // The page that all read lives with one of them, and page 17 with one that never misses it.
        assert_eq!((local, remote), (2000.0 * 300.0, 8.0 * 2000.0 * 900.0));
        assert_eq!(measured.uniform.local, 9.0 * 2000.0 * 300.0);
        // Both went where they are used while nothing was counted.
        assert_eq!(measured.moved, measured.uniform);
        assert_eq!(measured.first_touch.local, 2.0 * 2000.0 * 300.0);
        let [faster, slower] = measured.compared();
        assert!(faster > 50.0 && slower.abs() < 1e-9, "{faster} {slower}");
    }

    #[test]
    fn moves_cost_what_they_cost() {
        let replayed = Replayed { remote: 1, local: 3, migrations: 1, replications: 2, collapses: 4 };
        let bar = Bar::of(10.0, &replayed);
        assert_eq!((bar.instructions, bar.local, bar.remote), (25.0, 900.0, 900.0));
        assert_eq!((bar.moves, bar.local_percent), (3.0 * 58_400.0 + 4.0 * 20_000.0, 75.0));
        assert_eq!(bar.total(), 25.0 + 1800.0 + bar.moves);
    }

    #[test]
    fn the_figure_has_what_the_items_say() {
        let measured = Measured::of(&WORKLOADS[1], &recorded(4000));
        let drawing = measured.drawing();
        assert_eq!(drawing.curves[0].points[0], (1.0, 100.0));
        // No moves are drawn where there were none.
        assert!(drawing.curves[4].points.is_empty());
        let local = drawing.curves.last().expect("there are some").points[1].1;
        assert!((local - measured.moved.local_percent).abs() < 1e-6, "{local}");
        assert!(measured.items().iter().all(|item| item.measured.is_some()));
    }
}
