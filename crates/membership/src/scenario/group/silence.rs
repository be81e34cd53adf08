//! A group between hosts when all is well but for some that die: nobody is told of a death but by silence.

use std::time::Duration;

use comb_sim::{Failure, Fault};
use comb_types::Time;

use super::super::{Options, Report, Scenario, Watch};
use super::{LOOK, Stage};
use crate::regroup::Stage as Progress;

/// See the module.
pub const SCENARIO: Scenario = Scenario {
    name: "silence",
    about: "Members that die without a word are missed soon, and nobody else is",
    nodes: 4..=64,
    run,
};

/// What is to be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Which run.
    pub seed: u64,
    /// How many members.
    pub members: u32,
    /// Messages that are lost, in a million.
    pub lost_per_million: u32,
    /// An update is submitted so often, by one or the other.
    pub every: Duration,
    /// How long all is well.
    pub lasting: Duration,
    /// Members that die after that, one after the other.
    pub deaths: u32,
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// How often a member that was up was doubted by another.
    pub false_doubts: u64,
    /// From each death until all others had the view without the dead: the worst.
    pub last_view: Duration,
    /// And the mean.
    pub mean_view: Duration,
    /// Updates that were delivered.
    pub updates: u64,
}

/// A view that takes longer never comes.
const NEVER: Duration = Duration::from_secs(60);

/// Runs it. A failure is a rule that was broken, or a view that never came.
pub fn measure(trial: Trial) -> Result<Measured, Failure> {
    play(trial, None).map(|(_, measured)| measured)
}

fn run(options: Options, watch: Watch) -> Result<Report, Failure> {
    let members = options.nodes.unwrap_or(9);
    let lasting = Duration::from_secs(if options.soak { 3600 } else { 30 });
    let deaths = members.div_ceil(2) / 2;
    let every = Duration::from_millis(20);
    let trial = Trial { seed: options.seed, members, lost_per_million: 0, every, lasting, deaths };
    let (stage, measured) = play(trial, watch)?;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let figures = vec![
        ("members", f64::from(members), ""),
        ("from a death to the view of all others, mean", measured.mean_view.as_secs_f64() * 1e3, "ms"),
        ("the longest", measured.last_view.as_secs_f64() * 1e3, "ms"),
        ("members that were doubted and lived", measured.false_doubts as f64, ""),
        ("updates delivered", measured.updates as f64, ""),
    ];
    Ok(Report::of(&stage.world, figures))
}

fn play(trial: Trial, watch: Watch) -> Result<(Stage, Measured), Failure> {
    let mut stage = Stage::new(trial.seed, trial.members, false);
    if let Some(watch) = watch {
        stage.world.watch(watch);
    }
    stage.seen.borrow_mut().may_doubt = trial.lost_per_million > 0;
    stage.has_kernel = false;
    stage.world.network_mut().default.lost_per_million = trial.lost_per_million;
    let well_until = Time::ZERO.saturating_add(trial.lasting);
    // Load is laid in bit by bit: an hour of it at once would fill the memory.
    while stage.world.now() < well_until {
        let now = stage.world.now();
        let next = now.saturating_add(Duration::from_secs(10)).min(well_until);
        stage.load(now, next, trial.every);
        stage.run_until(next)?;
    }
    let mut views = Vec::new();
    for death in 0..trial.deaths {
        // Now one that orders updates, now one that does not.
        let living: Vec<_> = stage.world.truth().up().collect();
        let dead = living[if death % 2 == 0 { 0 } else { stage.dice.index(living.len()) }];
        let at = stage.world.now();
        stage.world.at(at, Fault::Crash(dead));
        let goes_on_without = |stage: &Stage| {
            stage.world.actors().all(|(_, actor)| {
                let regroup = actor.stack().regroup();
                regroup.is_some_and(|regroup| {
                    !regroup.view().contains(dead) && regroup.stage() >= Progress::Installed
                })
            })
        };
        stage.world.run_for(Duration::from_nanos(1))?;
        while !goes_on_without(&stage) && stage.world.now().since(at) < NEVER {
            stage.world.run_for(LOOK / 20)?;
        }
        let took = stage.world.now().since(at);
        if took >= NEVER {
            let rule = "nobody minds that it is silent".to_owned();
            return Err(Failure { seed: trial.seed, at, node: Some(dead), rule });
        }
        views.push(took);
        stage.world.run_for(Duration::from_secs(5))?;
    }
    let last_view = views.iter().copied().max().unwrap_or_default();
    let mean_view = views.iter().sum::<Duration>() / trial.deaths.max(1);
    let (updates, false_doubts) = (stage.seen.borrow().delivered(), stage.seen.borrow().doubted);
    Ok((stage, Measured { false_doubts, last_view, mean_view, updates }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(seed: u64) -> Trial {
        let (every, lasting) = (Duration::from_millis(20), Duration::from_secs(60));
        Trial { seed, members: 9, lost_per_million: 0, every, lasting, deaths: 3 }
    }

    #[test]
    fn sim_who_falls_silent_is_out_soon_and_nobody_else_is_doubted() {
        for seed in 1..=5 {
            let measured = measure(trial(seed)).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(measured.last_view < Duration::from_secs(2), "seed {seed}: {measured:?}");
            assert!(measured.mean_view > Duration::from_millis(300), "nobody can know: {measured:?}");
        }
    }

    #[test]
    fn sim_loss_makes_the_members_patient_and_not_suspicious() {
        for seed in 1..=3 {
            let lossy = Trial { lost_per_million: 50_000, ..trial(seed) };
            let measured = measure(lossy).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(measured.last_view < Duration::from_secs(5), "seed {seed}: {measured:?}");
        }
    }
}
