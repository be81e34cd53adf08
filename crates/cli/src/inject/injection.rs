//! One injection: what runs, what fails, and whether that stayed where it was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_bench::verdict::{Verdict, Workload};
use comb_cell::clock::monotonic_ns;
use comb_cell::faults::{Astray, BadWay, Fault};
use comb_cell::supervision::Recovered;
use comb_host::control::{CellCondition, Status};
use comb_types::Dice;
use rustix::process::{Pid, Signal, kill_process};

use super::kind::{Fate, Kind};
use super::load::{Lane, Small, Span, Spanning, Spread, run_small};
use super::own::{BETWEEN_LOOKS, CELLS, Comb, is_whole};
use super::program::BEGUN;
use super::programs::{LIMIT, Program};
use crate::failure::Failure;

/// All cells are at work again within this, whatever has happened.
const AGAIN_LIMIT: Duration = Duration::from_secs(20);
/// A corrupt cell is found within this. Hive's slowest took 0.8 s.
const NOTICE_LIMIT: Duration = Duration::from_secs(5);
/// Where nothing has to come of a fault: what has not come of it by then will not.
const QUIET: Duration = Duration::from_millis(150);
/// A task that has lost a component is told to end, and killed two seconds later.
const FAIL_LIMIT: Duration = Duration::from_secs(8);

/// What is to happen, all of it from the seed.
struct Plan {
    kind: Kind,
    workload: Workload,
    /// Those that fail, in this order.
    victims: Vec<u32>,
    spread: Spread,
    pause: Duration,
    /// After the workloads have begun.
    delay: Duration,
    dice: Dice,
}

impl Plan {
    fn of(kind: Kind, seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ (kind as u64) << 48);
        let workload = match kind {
            // Whoever looks for pages is the spanning task.
            Kind::NodeSearch => Workload::R,
            _ if dice.happens(500_000) => Workload::R,
            _ => Workload::P,
        };
        let mut cells: Vec<u32> = CELLS.collect();
        let mut victims = vec![cells.swap_remove(dice.index(cells.len()))];
        match kind {
            Kind::TwoAtOnce | Kind::InRecovery => victims.push(cells.swap_remove(dice.index(cells.len()))),
            // The living one with the lowest number.
            Kind::Master => {
                let master = cells.iter().copied().min().expect("three");
                cells.retain(|&cell| cell != master);
                victims.push(master);
            }
            _ => {}
        }
        let is_about_tree = matches!(kind, Kind::NodeSearch | Kind::PointerTree);
        let spread = spread(&mut dice, workload, &victims, &cells, is_about_tree);
        let pause = if kind == Kind::NodeSearch { 200..400 } else { 1500..3000 };
        let pause = Duration::from_micros(
            pause.start + u64::from(dice.below(u32::try_from(pause.end - pause.start).expect("short"))),
        );
        let delay = dice.between(Duration::ZERO..Duration::from_millis(80));
        Self { kind, workload, victims, spread, pause, delay, dice }
    }
}

/// Where the spanning task is: among the cells that do not fail, or together with one that does.
fn spread(
    dice: &mut Dice,
    workload: Workload,
    victims: &[u32],
    others: &[u32],
    is_about_tree: bool,
) -> Spread {
    let all: Vec<u32> = CELLS.collect();
    let candidates = if workload == Workload::P { others } else { &all };
    let mut left = candidates.to_vec();
    let count = 2 + dice.index(3);
    let mut cells: Vec<u32> = (0..count)
        .map_while(|_| (!left.is_empty()).then(|| left.swap_remove(dice.index(left.len()))))
        .collect();
    let mut any = || candidates[dice.index(candidates.len())];
    let mut spread = Spread { cells: Vec::new(), home: any(), parent: any(), grandparent: any() };
    let victim = victims[0];
    if workload == Workload::R && is_about_tree {
        // The cell has a node that others look at.
        if dice.happens(500_000) {
            spread.parent = victim;
        } else {
            spread.grandparent = victim;
        }
        spread.home = others[dice.index(others.len())];
    } else if workload == Workload::R && !cells.contains(&victim) {
        cells[0] = victim;
    }
    spread.cells = cells;
    spread
}

/// What has happened so far.
#[derive(Default)]
struct Course {
    /// When the first cell failed.
    at_ns: u64,
    /// There was no agent meanwhile.
    without_agent: bool,
    /// Cells that may have ended by it.
    blamed: BTreeSet<u32>,
    /// Cells that must have.
    doomed: BTreeSet<u32>,
    whys: Vec<String>,
}

impl Course {
    fn wrong(&mut self, why: impl Into<String>) {
        self.whys.push(why.into());
    }
}

/// Injects a fault, looks at what comes of it, and says so. `number`: no other injection into this comb has it.
pub(super) fn inject(comb: &Arc<Comb>, kind: Kind, seed: u64, number: u64) -> Verdict {
    let mut plan = Plan::of(kind, seed);
    let begins = comb.log().len();
    let mut course = Course::default();
    let measured = go_through(comb, &mut plan, number, &mut course);
    let (detected_ns, recovered_ns, discarded_pages) = measured.unwrap_or_else(|failure| {
        course.wrong(failure.to_string());
        (None, None, 0)
    });
    let contained = course.whys.is_empty();
    let log = (!contained).then(|| keep_log(comb, kind, seed, begins)).flatten();
    Verdict {
        kind: kind.name(),
        workload: plan.workload,
        cell: plan.victims[0],
        seed,
        contained,
        detected_ms: detected_ns.map(millis),
        recovered_ms: recovered_ns.map(millis),
        discarded_pages,
        why: (!contained).then(|| course.whys.join("; ")),
        log,
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits behind the point")]
fn millis(nanos: u64) -> f64 {
    (nanos / 1000) as f64 / 1000.0
}

fn keep_log(comb: &Comb, kind: Kind, seed: u64, begins: usize) -> Option<String> {
    let path = std::env::temp_dir().join(format!("comb-inject-{}-{seed}.log", kind.name()));
    std::fs::write(&path, comb.log().get(begins..)?).ok()?;
    Some(path.display().to_string())
}

type Measured = (Option<u64>, Option<u64>, u64);

fn go_through(
    comb: &Arc<Comb>,
    plan: &mut Plan,
    number: u64,
    course: &mut Course,
) -> Result<Measured, Failure> {
    let extra = needs_a_node(plan);
    if let Some(elsewhere) = extra {
        comb.create(elsewhere, &format!("extra-{number}"), Some(&Comb::region(plan.victims[0])))?;
    }
    let before = comb.status()?;
    let mut spanning = Spanning::start(comb, &plan.spread, number, plan.pause)?;
    let lane = Lane::start(comb, plan.dice.roll());
    std::thread::sleep(plan.delay);
    let struck = strike(comb, plan, &before, course);
    let settled = struck.and_then(|()| settle(comb, plan, &before, course));
    let smalls = lane.end();
    let measured = settled.map(|(after, seen)| {
        let died = died(&before, &after);
        judge_cells(plan, &died, course);
        judge_spanning(&mut spanning, plan, &died, course);
        judge_smalls(&smalls, &died, course);
        let measured = measure(&seen, &died, course);
        // What a cell has that is out of its mind cannot be read even while it lives.
        let mut harmful = died;
        if matches!(plan.kind, Kind::PointerMap | Kind::PointerTree | Kind::WildShown) {
            harmful.extend(&plan.victims);
        }
        (measured, harmful.iter().any(|&cell| plan.spread.depends_on(cell)))
    });
    let may_fail = measured.as_ref().map_or(true, |(_, may_fail)| *may_fail);
    judge_end(spanning.end(comb), may_fail, course);
    if extra.is_some() {
        comb.remove(&format!("extra-{number}"));
    }
    let (measured, _) = measured?;
    check(comb, plan, course);
    if plan.kind == Kind::WildShown && !measured_an_end(&measured) {
        end_the_mad(comb, plan.victims[0])?;
    }
    Ok(measured)
}

fn measured_an_end(&(detected, ..): &Measured) -> bool {
    detected.is_some()
}

/// Where it stored nobody has looked yet: whoever does finds it corrupt, and that is this injection's doing and not the next one's.
fn end_the_mad(comb: &Comb, cell: u32) -> Result<(), Failure> {
    let before = comb.status()?;
    comb.kill(&before, cell);
    let since = Instant::now();
    while since.elapsed() < AGAIN_LIMIT {
        let now = comb.status()?;
        if is_whole(&now) && died(&before, &now).contains(&cell) {
            return Ok(());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(Failure::new(format!("cell {cell} was ended, and is not there again")))
}

/// In whose cell the child is to be that makes the failing one have a node, if the spanning task does not.
fn needs_a_node(plan: &Plan) -> Option<u32> {
    let is_there = [plan.spread.parent, plan.spread.grandparent].contains(&plan.victims[0]);
    let other = CELLS.into_iter().find(|&cell| cell != plan.victims[0]);
    other.filter(|_| plan.kind == Kind::PointerTree && !is_there)
}

// ── failing ──

fn strike(comb: &Arc<Comb>, plan: &mut Plan, before: &Status, course: &mut Course) -> Result<(), Failure> {
    let victim = plan.victims[0];
    let fate = plan.kind.fate();
    if fate == Fate::Ends {
        course.doomed.extend(&plan.victims);
    }
    if fate != Fate::Lives {
        course.blamed.extend(&plan.victims);
    }
    let dice = &mut plan.dice;
    let fault = match plan.kind {
        Kind::NodeCreation => return fail_in_creation(comb, victim, before, dice, course),
        Kind::NodeSearch | Kind::NodeRandom => {
            course.at_ns = comb.kill(before, victim);
            return Ok(());
        }
        Kind::TwoAtOnce => {
            course.at_ns = comb.kill(before, victim);
            comb.kill(before, plan.victims[1]);
            return Ok(());
        }
        Kind::InRecovery | Kind::Master => {
            let longest = if plan.kind == Kind::Master { 40 } else { 5 };
            let after = dice.between(Duration::ZERO..Duration::from_millis(longest));
            course.at_ns = comb.kill(before, victim);
            std::thread::sleep(after);
            comb.kill(before, plan.victims[1]);
            return Ok(());
        }
        Kind::WildRegion => return store_wildly(comb, victim, before, dice, course),
        Kind::HungStopped => {
            course.at_ns = monotonic_ns();
            signal(before, victim, Signal::STOP);
            return Ok(());
        }
        Kind::Slow => {
            slow_down(before, victim, dice, course);
            return Ok(());
        }
        Kind::Agent => return change_agents(comb, dice, course),
        Kind::PointerMap => Fault::AddressMap { astray: astray(dice, victim), seed: dice.roll() },
        Kind::PointerTree => Fault::CopyOnWriteTree { astray: astray(dice, victim), seed: dice.roll() },
        Kind::WildShown => Fault::WildStores { count: 1 + dice.below(200), seed: dice.roll() },
        Kind::BadRequests => bad(BadWay::Handlers, dice),
        Kind::BadAnswers => bad(BadWay::Answers, dice),
        Kind::BadWire => bad(BadWay::Wire, dice),
        Kind::BadGroup => bad(BadWay::Group, dice),
        Kind::Lies => Fault::Lies { count: 1 + dice.below(60), seed: dice.roll() },
        Kind::HungLoops => Fault::Loops,
        Kind::HungSleeps => Fault::Sleeps,
        Kind::LateAlarm => Fault::LateAlarm,
        Kind::Memory => Fault::Exhausts { bytes: u64::from(16 + dice.below(48)) << 20 },
    };
    course.at_ns = comb.inject(victim, fault)?;
    Ok(())
}

fn bad(way: BadWay, dice: &mut Dice) -> Fault {
    Fault::BadMessages { way, count: 1 + dice.below(40), seed: dice.roll() }
}

fn astray(dice: &mut Dice, victim: u32) -> Astray {
    let other = 1 + (victim + dice.below(3)) % 4;
    [Astray::SameCell, Astray::OtherCell(other), Astray::OneWordOff, Astray::ToItself][dice.index(4)]
}

/// Processes are being made in it.
fn fail_in_creation(
    comb: &Comb,
    victim: u32,
    before: &Status,
    dice: &mut Dice,
    course: &mut Course,
) -> Result<(), Failure> {
    let after = dice.between(Duration::ZERO..Duration::from_millis(60));
    let start = |seed: u64| Program::start(&mut comb.program(2, &[victim], &["compute", &seed.to_string()]));
    let programs: Vec<Program> = (0..3).map(start).collect::<Result<_, _>>()?;
    std::thread::sleep(after);
    course.at_ns = comb.kill(before, victim);
    for mut program in programs {
        program.tell_to_end();
        let ended = program.end(LIMIT);
        if ended.hung() {
            course.wrong(format!("a program that was made in cell {victim} hangs: {}", ended.describe()));
        }
    }
    Ok(())
}

/// A process of the cell stores to another cell's region. One that has a right to that is lost with its cell; one that has not is stopped.
fn store_wildly(
    comb: &Comb,
    victim: u32,
    before: &Status,
    dice: &mut Dice,
    course: &mut Course,
) -> Result<(), Failure> {
    let home = 1 + (victim + dice.below(3)) % 4;
    let has_right = dice.happens(700_000);
    let (region, seed, pages) =
        (Comb::region(home), dice.roll().to_string(), (1 + dice.below(100)).to_string());
    let mut what = vec!["wild", &region, &seed, &pages];
    if !has_right {
        what.push("--without-right");
    }
    let mut program = Program::start(&mut comb.program(1, &[victim], &what))?;
    course.at_ns = monotonic_ns();
    if !has_right {
        course.doomed.clear();
        course.blamed.clear();
        program.tell_to_end();
        let ended = program.end(LIMIT);
        if ended.status == Some(0) || ended.hung() || ended.lines.iter().any(|line| line == BEGUN) {
            course.wrong(format!("a store without a right was not stopped: {}", ended.describe()));
        }
        return Ok(());
    }
    if !program.says(BEGUN, LIMIT) {
        program.tell_to_end();
        return Err(Failure::new(format!("nothing was stored: {}", program.end(Duration::ZERO).describe())));
    }
    std::thread::sleep(dice.between(Duration::ZERO..Duration::from_millis(30)));
    course.at_ns = comb.kill(before, victim);
    program.tell_to_end();
    program.end(LIMIT);
    Ok(())
}

fn signal(status: &Status, cell: u32, signal: Signal) {
    let pid = status.cells.iter().find(|known| known.cell == cell).map_or(0, |known| known.pid);
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn slow_down(status: &Status, victim: u32, dice: &mut Dice, course: &mut Course) {
    let most = Duration::from_millis(u64::from(2 + dice.below(8)));
    course.at_ns = monotonic_ns();
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        signal(status, victim, Signal::STOP);
        std::thread::sleep(dice.between(Duration::ZERO..most));
        signal(status, victim, Signal::CONT);
        std::thread::sleep(dice.between(Duration::ZERO..Duration::from_millis(8)));
    }
}

fn change_agents(comb: &Arc<Comb>, dice: &mut Dice, course: &mut Course) -> Result<(), Failure> {
    let away = dice.between(Duration::ZERO..Duration::from_millis(400));
    course.without_agent = true;
    course.at_ns = monotonic_ns();
    comb.kill_agent();
    std::thread::sleep(away);
    comb.start_agent()
}

// ── what comes of it ──

/// Waits until everything is well again.
fn settle(
    comb: &Comb,
    plan: &Plan,
    before: &Status,
    course: &mut Course,
) -> Result<(Status, Vec<(u32, Recovered)>), Failure> {
    let since = Instant::now();
    loop {
        let (status, seen) = (comb.status()?, comb.recoveries()?);
        let died = died(before, &status);
        let unnoticed = course.doomed.difference(&died).next().copied();
        if let Some(cell) = unnoticed.filter(|_| since.elapsed() > NOTICE_LIMIT) {
            course.wrong(format!("nobody has noticed within {NOTICE_LIMIT:?} that cell {cell} has failed"));
            // Lest it spoils what comes next.
            comb.kill(&status, cell);
        }
        let is_quiet = plan.kind.fate() == Fate::Ends || since.elapsed() > QUIET;
        let silent = silent(&seen, &died, course);
        if unnoticed.is_none() && is_quiet && is_whole(&status) && silent.is_empty() {
            return Ok((status, seen));
        }
        if since.elapsed() > AGAIN_LIMIT {
            let down =
                status.cells.iter().filter(|cell| cell.state != CellCondition::Up || cell.channels != 3);
            let down: Vec<String> = down
                .map(|cell| format!("cell {} is {:?} with {} channels", cell.cell, cell.state, cell.channels))
                .collect();
            for (by, cell) in silent {
                course.wrong(format!(
                    "cell {by} has not said that it has recovered from the end of cell {cell}"
                ));
            }
            return Err(Failure::new(format!(
                "not at work again within {AGAIN_LIMIT:?}: {}",
                down.join(", ")
            )));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Cells that have begun anew since.
fn died(before: &Status, after: &Status) -> BTreeSet<u32> {
    let lives = |cell: u32, status: &Status| {
        status.cells.iter().find(|known| known.cell == cell).map(|known| known.incarnation)
    };
    let is_up = |cell: u32| {
        after.cells.iter().any(|known| {
            known.cell == cell && matches!(known.state, CellCondition::Up | CellCondition::Starting)
        })
    };
    CELLS.filter(|&cell| lives(cell, before) != lives(cell, after) || !is_up(cell)).collect()
}

/// Which cells that live have not said that they have recovered from the end of which others.
fn silent(seen: &[(u32, Recovered)], died: &BTreeSet<u32>, course: &Course) -> Vec<(u32, u32)> {
    let living = CELLS.filter(|cell| !died.contains(cell));
    let says = |by: u32, cell: u32| {
        seen.iter()
            .any(|(who, what)| *who == by && what.resumed_ns > course.at_ns && what.dead.contains(&cell))
    };
    living
        .flat_map(|by| died.iter().map(move |&cell| (by, cell)))
        .filter(|&(by, cell)| !says(by, cell))
        .collect()
}

fn measure(seen: &[(u32, Recovered)], died: &BTreeSet<u32>, course: &Course) -> Measured {
    let theirs = || {
        seen.iter().filter(|(by, what)| {
            !died.contains(by)
                && what.resumed_ns > course.at_ns
                && what.dead.iter().any(|cell| died.contains(cell))
        })
    };
    let entered = theirs().map(|(_, what)| what.entered_ns.saturating_sub(course.at_ns)).max();
    let resumed = theirs().map(|(_, what)| what.resumed_ns - course.at_ns).max();
    (entered, resumed, theirs().map(|(_, what)| what.discarded_pages).sum())
}

fn judge_cells(plan: &Plan, died: &BTreeSet<u32>, course: &mut Course) {
    for &cell in died.difference(&course.blamed.clone()) {
        let who: Vec<String> = plan.victims.iter().map(u32::to_string).collect();
        course.wrong(format!(
            "cell {cell} has ended, and nothing was wrong but with cell {}",
            who.join(" and ")
        ));
    }
}

fn judge_spanning(spanning: &mut Spanning, plan: &Plan, died: &BTreeSet<u32>, course: &mut Course) {
    let spread = &plan.spread;
    if let Some(cell) = died.iter().find(|&&cell| spread.ends_with(cell)) {
        if !spanning.fails_within(FAIL_LIMIT) {
            course.wrong(format!(
                "the spanning task goes on without cell {cell}, which it depends on ({spread:?})"
            ));
        }
    } else if !died.iter().any(|&cell| spread.depends_on(cell)) && spanning.is_over() {
        course.wrong(format!("the spanning task has ended, and depends on no cell that has ({spread:?})"));
    }
}

fn judge_end(ended: Span, may_fail: bool, course: &mut Course) {
    match ended {
        Span::Whole => {}
        Span::Failed(ended) if !may_fail => {
            course.wrong(format!("the spanning task failed: {}", ended.describe()));
        }
        Span::Failed(ended) => {
            // Kept for those who read why something else went wrong.
            if !course.whys.is_empty() {
                course.wrong(format!("(the spanning task: {})", ended.describe()));
            }
        }
        Span::Wrong(why) => course.wrong(format!("the spanning task: {why}")),
        Span::Hung(ended) => course.wrong(format!("the spanning task {}", ended.describe())),
    }
}

fn judge_smalls(smalls: &[Small], died: &BTreeSet<u32>, course: &mut Course) {
    for small in smalls {
        let Some(why) = &small.failed else { continue };
        let is_excused = died.contains(&small.cell) && small.ended_ns >= course.at_ns || course.without_agent;
        if !is_excused || small.hung || why.contains(super::program::WRONG) {
            let took = Duration::from_nanos(small.ended_ns - small.began_ns);
            course.wrong(format!(
                "a program in cell {} that had nothing to do with it, after {took:?}: {why}",
                small.cell
            ));
        }
    }
}

/// All is as it should be: small programs run everywhere, and every cell's region contains what it should.
fn check(comb: &Arc<Comb>, plan: &mut Plan, course: &mut Course) {
    let seed = plan.dice.roll();
    let reader = 1 + plan.dice.below(4);
    let mut what = vec!["check".to_owned()];
    what.extend(CELLS.flat_map(|cell| [Comb::region(cell), comb.seed_of(cell).to_string()]));
    let what: Vec<&str> = what.iter().map(String::as_str).collect();
    let (smalls, read) = std::thread::scope(|scope| {
        let smalls = scope
            .spawn(|| CELLS.map(|cell| run_small(comb, cell, seed ^ u64::from(cell))).collect::<Vec<_>>());
        let read = comb.run(reader, &what);
        (smalls.join().unwrap_or_default(), read)
    });
    if read.status != Some(0) {
        course.wrong(format!("regions, read in cell {reader}: {}", read.describe()));
    }
    for small in smalls {
        if let Some(why) = small.failed {
            course.wrong(format!("afterwards, a program in cell {}: {why}", small.cell));
        }
    }
}
