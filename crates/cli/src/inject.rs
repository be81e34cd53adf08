//! `comb inject`: cells are made to fail in every way there is, and the others have to carry on. (Hive §7.4)

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use comb_bench::verdict::Verdict;
use comb_host::signals;
use rustix::event::{PollFd, PollFlags};

use self::kind::Kind;
use self::own::Comb;
pub(crate) use self::program::InjectProgram;
use crate::failure::Outcome;
use crate::output::Output;
use crate::table;

mod content;
mod injection;
mod kind;
mod load;
mod own;
mod program;
pub(crate) mod programs;

/// Of each kind, with --full: more than 500 in all.
const FULL: u64 = 25;

const EXAMPLES: &str = "\
It starts four cells of its own, in a directory of its own, and touches no others. While small programs run in all of them, and one
that spans several, a cell is made to fail. Then all cells must be at work again; no other cell and no program may have failed that did not
depend on it; what the others keep must be what it was; and whatever runs afterwards must be right.

Examples:
  comb inject                              one of each kind and a few more, in less than a minute
  comb inject --full                       more than 500, in a quarter of an hour
  comb inject --only lies --count 50       fifty of one kind
  comb inject --only lies --seed 7 --count 1
                                           one of them again, as its line says it";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inject {
    /// How many faults
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// As many as it takes to believe it
    #[arg(long, conflicts_with = "count")]
    full: bool,
    /// The first fault, from which the others follow [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Only faults of these kinds, in turn
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
}

impl Inject {
    pub(crate) fn run(self, output: Output) -> Outcome {
        clear_at_the_end()?;
        let outcome = self.campaign(output);
        own::stay_if_over();
        outcome
    }

    fn campaign(&self, output: Output) -> Outcome {
        let kinds = if self.only.is_empty() { Kind::all() } else { &self.only };
        let count = if self.full { FULL * kinds.len() as u64 } else { self.count };
        let seed = self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::from(now.subsec_micros()) << 16 | now.as_secs() & 0xffff
        });
        let mut verdicts = Vec::new();
        let mut comb = None;
        for (number, kind) in (0..count).zip(kinds.iter().copied().cycle()) {
            self.tell_progress(number, count, kind);
            let present = match comb.take() {
                Some(present) => present,
                None => Arc::new(Comb::start(seed)?),
            };
            let verdict = injection::inject(&present, kind, seed.wrapping_add(number), number);
            own::stay_if_over();
            self.tell(&verdict, output)?;
            if verdict.contained {
                comb = Some(present);
            }
            verdicts.push(verdict);
        }
        drop(comb);
        self.tell_progress_ends();
        if !output.is_json() {
            print!("{}", self.table(&verdicts));
        }
        let all = verdicts.iter().all(|verdict| verdict.contained);
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn tell(&self, verdict: &Verdict, output: Output) -> std::io::Result<()> {
        if output.is_json() {
            output.line(verdict)?;
        }
        if let Some(why) = &verdict.why {
            self.tell_progress_ends();
            let Verdict { kind, seed, .. } = verdict;
            output.warn(format_args!("not contained: {kind} (--only {kind} --seed {seed} --count 1): {why}"));
        }
        Ok(())
    }

    fn tell_progress(&self, number: u64, count: u64, kind: Kind) {
        if std::io::stderr().is_terminal() {
            let (group, row) = kind.title();
            eprint!("\r\x1b[K{} of {count}: {} {row}", number + 1, group.to_lowercase());
        }
    }

    fn tell_progress_ends(&self) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }

    fn table(&self, verdicts: &[Verdict]) -> String {
        let heading = [
            "FAULT",
            "",
            "TESTS",
            "CONTAINED",
            "NOTICED AVG",
            "MAX",
            "AT WORK AVG",
            "MAX",
            "PAGES",
            "HIVE: TESTS",
            "AVG",
            "MAX",
        ];
        let mut rows = vec![heading.map(String::from).to_vec()];
        let mut last = "";
        for &kind in Kind::all() {
            let name = kind.name();
            let of: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.kind == name).collect();
            if of.is_empty() {
                continue;
            }
            let (group, title) = kind.title();
            let contained = of.iter().filter(|verdict| verdict.contained).count();
            let [noticed, noticed_longest] = span(of.iter().filter_map(|verdict| verdict.detected_ms));
            let [again, again_longest] = span(of.iter().filter_map(|verdict| verdict.recovered_ms));
            let pages: u64 = of.iter().map(|verdict| verdict.discarded_pages).sum();
            let history = kind.history().map_or([const { String::new() }; 3], |history| {
                [history.tests, history.average_ms, history.longest_ms].map(|number| number.to_string())
            });
            let mut row = vec![
                if group == last { String::new() } else { group.to_owned() },
                title.to_owned(),
                of.len().to_string(),
                contained.to_string(),
                noticed,
                noticed_longest,
                again,
                again_longest,
                pages.to_string(),
            ];
            row.extend(history);
            rows.push(row);
            last = group;
        }
        let contained = verdicts.iter().filter(|verdict| verdict.contained).count();
        format!(
            "{}\nMilliseconds from the fault until the last cell had entered recovery, and until it was at work again; `-`: nothing came of it. \
             Hive's are of 1995,\non a simulated machine with an oracle for the agreement (Table 7.4).\n\n{contained} of {} contained\n",
            table::format(&rows),
            verdicts.len()
        )
    }
}

/// The average, and the longest.
fn span(all: impl Iterator<Item = f64>) -> [String; 2] {
    let all: Vec<f64> = all.collect();
    if all.is_empty() {
        return ["-", "-"].map(str::to_owned);
    }
    #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
    let average = all.iter().sum::<f64>() / all.len() as f64;
    [average, all.iter().copied().fold(0.0, f64::max)].map(|ms| format!("{ms:.1}"))
}

/// However this ends, nothing of it is left.
fn clear_at_the_end() -> std::io::Result<()> {
    let told = signals::catch()?;
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        usual(what);
        own::clear_for_good();
    }));
    let wait = move || loop {
        if rustix::event::poll(&mut [PollFd::new(told, PollFlags::IN)], None).is_ok()
            && let Some(signal) = signals::take()
        {
            own::clear_for_good();
            std::process::exit(128 + signal.as_raw());
        }
    };
    std::thread::Builder::new().name("comb-signals".into()).spawn(wait).map(drop)
}
