//! `comb sim`: the protocols in a seeded world.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use comb_membership::scenario::gossip;
use comb_sim::scenario::{self, Options, Report, Scenario, Watch};
use comb_sim::{Failure as Broken, Line};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::suggest::did_you_mean;
use crate::table;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  comb sim                                   what can be simulated
  comb sim regroup --seed 7 --watch          a group loses a member, message by message
  comb sim all --seeds 1000                  a thousand runs of each, each with its own faults
  comb sim gossip --soak --nodes 64 --loss 75 an hour in which three messages of four are lost

A run depends on its seed alone: the same seed gives the same trace. A failing run says the command that repeats it.")]
pub(crate) struct Sim {
    /// What to simulate, or `all`; without it, a list
    scenario: Option<String>,
    /// The run, or the first of several
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs, each with the next seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// How many nodes, instead of the scenario's own number
    #[arg(long)]
    nodes: Option<u32>,
    /// Show every message and event of the run
    #[arg(long, conflicts_with = "seeds")]
    watch: bool,
    /// Of each scenario, repeat the first run that fails, and show every message and event of it
    #[arg(long, conflicts_with = "watch")]
    show_failures: bool,
    /// Of a hundred messages so many are lost (gossip)
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..100))]
    loss: Option<u32>,
    /// The long form: hours of virtual time
    #[arg(long)]
    soak: bool,
}

/// How one run ended, and how long it took in real time.
struct Ended {
    scenario: &'static str,
    seed: u64,
    outcome: Result<Report, Broken>,
    real_seconds: f64,
}

impl Sim {
    pub(crate) fn run(self, output: Output) -> Outcome {
        name_runs_that_panic();
        let Some(name) = &self.scenario else { return list(output) };
        if output.is_json() && (self.show_failures || self.watch) {
            return Err(Failure::usage("--watch and --show-failures are for people: leave -o json out"));
        }
        let chosen: Vec<&'static Scenario> =
            all().filter(|scenario| name == "all" || scenario.name == name).collect();
        if chosen.is_empty() {
            return Err(Failure::usage(unknown(name)));
        }
        self.check_nodes(&chosen)?;
        if let Some(other) = chosen.iter().find(|scenario| scenario.name != gossip::SCENARIO.name)
            && self.loss.is_some()
        {
            return Err(Failure::usage(format!("--loss is of gossip: {} rolls its own", other.name)));
        }
        if self.watch {
            let [scenario] = chosen[..] else {
                return Err(Failure::usage("--watch shows one scenario: name it"));
            };
            let ended = self.run_one(scenario, self.seed, Some(Box::new(show)));
            return self.finish(std::slice::from_ref(&ended), output);
        }
        self.run_all(&chosen, output)
    }

    fn check_nodes(&self, chosen: &[&Scenario]) -> Result<(), Failure> {
        let Some(nodes) = self.nodes else { return Ok(()) };
        match chosen.iter().find(|scenario| !scenario.nodes.contains(&nodes)) {
            None => Ok(()),
            Some(scenario) => {
                let (least, most) = (scenario.nodes.start(), scenario.nodes.end());
                Err(Failure::usage(format!("{} takes {least} to {most} nodes, not {nodes}", scenario.name)))
            }
        }
    }

    fn options(&self, seed: u64) -> Options {
        Options { seed, nodes: self.nodes, soak: self.soak }
    }

    /// Beyond the last number there is 0 again.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..self.seeds).map(move |more| first.wrapping_add(more))
    }

    fn run_all(&self, chosen: &[&'static Scenario], output: Output) -> Outcome {
        let runs: Vec<(&'static Scenario, u64)> =
            chosen.iter().flat_map(|&scenario| self.seeds().map(move |seed| (scenario, seed))).collect();
        let run = |&(scenario, seed): &(&'static Scenario, u64)| self.run_one(scenario, seed, None);
        let mut ended = scenario::on_all_cores(&runs, run, |done| progress(done, runs.len()));
        ended.sort_by_key(|end| (end.scenario, end.seed));
        self.finish(&ended, output)
    }

    fn run_one(&self, scenario: &'static Scenario, seed: u64, watch: Watch) -> Ended {
        let started = Instant::now();
        let options = self.options(seed);
        RUNNING.set(format!("this was {} with {options:?}", scenario.name));
        let outcome = match self.loss {
            None => (scenario.run)(options, watch),
            Some(percent) => gossip::run_losing(options, Some(percent * 10_000), watch),
        };
        Ended { scenario: scenario.name, seed, outcome, real_seconds: started.elapsed().as_secs_f64() }
    }

    /// Repeats the first run of each scenario that failed, for its log.
    fn show_first_failures(&self, ended: &[Ended]) {
        for scenario in all() {
            let fails = |end: &&Ended| end.scenario == scenario.name && end.outcome.is_err();
            if let Some(end) = ended.iter().find(fails) {
                println!("\n{}, seed {}:", end.scenario, end.seed);
                self.run_one(scenario, end.seed, Some(Box::new(show)));
            }
        }
    }

    fn finish(&self, ended: &[Ended], output: Output) -> Outcome {
        if self.show_failures {
            self.show_first_failures(ended);
        }
        let mut out = std::io::stdout().lock();
        if output.is_json() {
            for end in ended {
                writeln!(out, "{}", self.object(end))?;
            }
        } else {
            write!(out, "{}", summary(ended))?;
        }
        let mut failed = false;
        for end in ended {
            if let Err(failure) = &end.outcome {
                failed = true;
                output.warn(format_args!("{}: {failure}\n  again: {}", end.scenario, self.again(end)));
            }
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The command that repeats a run and shows it.
    fn again(&self, end: &Ended) -> String {
        let nodes = self.nodes.map_or(String::new(), |nodes| format!(" --nodes {nodes}"));
        let soak = if self.soak { " --soak" } else { "" };
        let loss = self.loss.map_or(String::new(), |percent| format!(" --loss {percent}"));
        format!("comb sim {} --seed {}{nodes}{soak}{loss} --watch", end.scenario, end.seed)
    }

    fn object(&self, end: &Ended) -> serde_json::Value {
        let mut object =
            json!({ "scenario": end.scenario, "seed": end.seed, "real_seconds": end.real_seconds });
        let fields = match &end.outcome {
            Ok(report) => {
                let figures: Vec<_> = report
                    .figures
                    .iter()
                    .map(|(what, value, unit)| json!({ "what": what, "value": value, "unit": unit }))
                    .collect();
                json!({
                    "ok": true,
                    "trace": format!("{:016x}", report.trace_hash),
                    "virtual_seconds": report.virtual_time.as_secs_f64(),
                    "steps": report.steps,
                    "figures": figures,
                })
            }
            Err(failure) => json!({ "ok": false, "rule": failure.rule, "again": self.again(end) }),
        };
        if let (Some(object), serde_json::Value::Object(fields)) = (object.as_object_mut(), fields) {
            object.extend(fields);
        }
        object
    }
}

/// A line of a run's log. Whoever reads it may have seen enough.
fn show(line: &Line) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(1);
    }
}

thread_local! {
    /// What this thread runs: an assertion that fails ends the program, and it is to be known where.
    static RUNNING: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Says of a run that panics how to run it again.
fn name_runs_that_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        RUNNING.with_borrow(|again| eprintln!("comb: {again}"));
    }));
}

/// All there are.
fn all() -> impl Iterator<Item = &'static Scenario> {
    let of_memory = comb_coherence::scenario::ALL.iter().chain(comb_containment::scenario::ALL);
    comb_membership::scenario::ALL.iter().chain(of_memory)
}

fn list(output: Output) -> Outcome {
    let mut rows = vec![["SCENARIO", "SHOWS"].map(String::from).to_vec()];
    rows.extend(all().map(|scenario| vec![scenario.name.to_owned(), scenario.about.to_owned()]));
    let objects: Vec<serde_json::Value> =
        all().map(|scenario| json!({ "scenario": scenario.name, "shows": scenario.about })).collect();
    output.show(&objects, || {
        format!("{}\ncomb sim NAME --watch shows a run; see comb sim --help.\n", table::format(&rows))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = all().map(|scenario| scenario.name).collect();
    let meant = did_you_mean(name, names.iter().copied().chain(["all"]));
    let meant = if meant.is_empty() { "." } else { meant.as_str() };
    format!("there is no scenario {name}{meant} There are {}, and all", names.join(", "))
}

/// On a terminal, how far it is.
fn progress(done: usize, all: usize) {
    let mut error = std::io::stderr();
    if all > 1 && error.is_terminal() {
        let _ = write!(error, "\r{done} of {all} runs");
        if done == all {
            let _ = write!(error, "\r{:30}\r", "");
        }
    }
}

fn summary(ended: &[Ended]) -> String {
    let mut text = String::new();
    for scenario in all().map(|scenario| scenario.name) {
        let runs: Vec<&Ended> = ended.iter().filter(|end| end.scenario == scenario).collect();
        let good: Vec<&Report> = runs.iter().filter_map(|end| end.outcome.as_ref().ok()).collect();
        match (&runs[..], &good[..]) {
            ([], _) => {}
            ([run], [report]) => text.push_str(&one_run(run, report)),
            _ => text.push_str(&several_runs(scenario, &runs, &good)),
        }
    }
    text
}

fn one_run(run: &Ended, report: &Report) -> String {
    let mut text = format!(
        "{}, seed {}: {:.1} s of virtual time in {:.2} s, {} steps, trace {:016x}\n",
        run.scenario,
        run.seed,
        report.virtual_time.as_secs_f64(),
        run.real_seconds,
        report.steps,
        report.trace_hash,
    );
    for (what, value, unit) in &report.figures {
        text.push_str(format!("  {what}: {} {unit}", number(*value)).trim_end());
        text.push('\n');
    }
    text
}

fn several_runs(scenario: &str, runs: &[&Ended], good: &[&Report]) -> String {
    let virtual_seconds = good.iter().fold(0.0, |sum, report| sum + report.virtual_time.as_secs_f64());
    let real_seconds: f64 = runs.iter().map(|end| end.real_seconds).sum();
    let mut text = format!(
        "{scenario}: {} of {} runs without a broken rule; {virtual_seconds:.0} s of virtual time in {real_seconds:.1} s\n",
        good.len(),
        runs.len(),
    );
    let Some(first) = good.first() else { return text };
    for (index, (what, _, unit)) in first.figures.iter().enumerate() {
        let mut values: Vec<f64> =
            good.iter().filter_map(|report| Some(report.figures.get(index)?.1)).collect();
        values.sort_by(f64::total_cmp);
        let (least, middle, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        let spread = format!("{} ({} to {})", number(middle), number(least), number(most));
        text.push_str(format!("  {what}: {spread} {unit}").trim_end());
        text.push('\n');
    }
    text
}

/// Three digits or more, none that say nothing.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_no_more_than_they_know() {
        let texts = [3.0, 1234.5, 2.71, 0.012_34, 0.0].map(number);
        assert_eq!(texts, ["3", "1234", "2.71", "0.0123", "0"]);
    }

    #[test]
    fn an_unknown_scenario_is_answered_with_those_that_there_are() {
        let text = unknown("reggroup");
        assert!(text.contains("regroup, ") && text.contains("gossip"), "{text}");
        assert!(text.contains("did you mean regroup?"), "{text}");
    }
}
