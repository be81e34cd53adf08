//! What runs while a fault is injected: many small programs, as a parallel make runs them, and one that spans several cells. (Hive Table 7.1)

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comb_cell::clock::monotonic_ns;

use super::content;
use super::own::{CELLS, Comb};
use super::program::{BEGUN, WRONG};
use super::programs::{Ended, LIMIT, Program, run_to_end};
use crate::failure::Failure;

/// One small program.
#[derive(Clone, Debug)]
pub(super) struct Small {
    pub(super) cell: u32,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// Why it did not do what it should.
    pub(super) failed: Option<String>,
    pub(super) hung: bool,
}

/// Runs one, and compares what it says with what is right.
pub(super) fn run_small(comb: &Comb, cell: u32, seed: u64) -> Small {
    let began_ns = monotonic_ns();
    let mut command = comb.program(1, &[cell], &["compute", &seed.to_string()]);
    let ended = run_to_end(&mut command, LIMIT);
    let right = format!("{:016x}", content::computed(seed));
    let failed = match (&ended.status, ended.lines.first()) {
        (Some(0), Some(line)) if *line == right => None,
        (Some(0), line) => Some(format!("{WRONG}: {line:?} instead of {right}")),
        _ => Some(ended.describe()),
    };
    Small { cell, began_ns, ended_ns: monotonic_ns(), failed, hung: ended.hung() }
}

/// Small programs one after the other, on one cell after the other, until this is told to end.
pub(super) struct Lane {
    is_over: Arc<AtomicBool>,
    done: Arc<Mutex<Vec<Small>>>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    pub(super) fn start(comb: &Arc<Comb>, seed: u64) -> Self {
        let (is_over, done) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Small>>>::default());
        let (over, all, comb) = (Arc::clone(&is_over), Arc::clone(&done), Arc::clone(comb));
        let run = move || {
            for (turn, cell) in (0_u64..).zip(CELLS.cycle()) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let small = run_small(&comb, cell, seed.wrapping_add(turn));
                let failed = small.failed.is_some();
                all.lock().unwrap_or_else(PoisonError::into_inner).push(small);
                if failed {
                    // Its cell is down, or there is no agent.
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        };
        Self { is_over, done, thread: Some(std::thread::spawn(run)) }
    }

    pub(super) fn end(mut self) -> Vec<Small> {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where a spanning task is, and what it uses.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// Where its components run.
    pub(super) cells: Vec<u32>,
    /// Where the region lives that they share; where that is a child of lives; and where that one's parent does.
    pub(super) home: u32,
    pub(super) parent: u32,
    pub(super) grandparent: u32,
}

impl Spread {
    /// It ends with any of these.
    pub(super) fn ends_with(&self, cell: u32) -> bool {
        self.home == cell || self.cells.contains(&cell)
    }

    /// It may.
    pub(super) fn depends_on(&self, cell: u32) -> bool {
        self.ends_with(cell) || self.parent == cell || self.grandparent == cell
    }
}

/// The task.
pub(super) struct Spanning {
    program: Program,
    regions: [String; 2],
    seed: u64,
    components: usize,
}

/// What became of it.
pub(super) enum Span {
    /// It went on to its end, and all was right.
    Whole,
    Failed(Ended),
    /// What it computed is not what it should be.
    Wrong(String),
    Hung(Ended),
}

impl Spanning {
    pub(super) fn start(comb: &Comb, spread: &Spread, number: u64, pause: Duration) -> Result<Self, Failure> {
        let regions = [format!("child-{number}"), format!("grandchild-{number}")];
        comb.create(spread.parent, &regions[0], Some(&Comb::region(spread.grandparent)))?;
        comb.create(spread.home, &regions[1], Some(&regions[0]))?;
        let (seed, pause) = (comb.seed_of(spread.grandparent), pause.as_micros().to_string());
        let what = ["span", &regions[1], &seed.to_string(), &pause];
        let components = spread.cells.len();
        let mut program = Program::start(&mut comb.program(components, &spread.cells, &what))?;
        if !program.says(BEGUN, LIMIT) {
            program.tell_to_end();
            let ended = program.end(Duration::ZERO);
            return Err(Failure::new(format!("the spanning task did not begin: {}", ended.describe())));
        }
        Ok(Self { program, regions, seed, components })
    }

    pub(super) fn is_over(&mut self) -> bool {
        self.program.is_over()
    }

    /// Waits for an end that must come.
    pub(super) fn fails_within(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if self.is_over() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    pub(super) fn end(mut self, comb: &Comb) -> Span {
        self.program.tell_to_end();
        let ended = self.program.end(LIMIT);
        for region in self.regions.iter().rev() {
            comb.remove(region);
        }
        if ended.said.contains(WRONG) {
            return Span::Wrong(ended.describe());
        }
        if ended.hung() {
            return Span::Hung(ended);
        }
        if ended.status != Some(0) {
            return Span::Failed(ended);
        }
        let said = ended.lines.last().and_then(|line| line.split_once(' '));
        let said = said.and_then(|(rounds, all)| Some((rounds.parse::<usize>().ok()?, all.to_owned())));
        match said {
            Some((rounds, all))
                if all == format!("{:016x}", content::spanned(self.seed, self.components, rounds)) =>
            {
                Span::Whole
            }
            said => Span::Wrong(format!("it says {said:?}, which is not so")),
        }
    }
}
