//! foca and chitchat in Comb's simulated world, as opponents in Comb's membership benchmark.

mod chitchat_node;
mod foca_node;
mod ledger;
mod line;
mod member;
mod scenario;

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chitchat_node::{ChitchatNode, Codec, Settings};
use comb_sim::Boot;
use foca::Config;
use foca_node::FocaNode;
use line::Line;
use member::Member;
use scenario::Subject;

const USAGE: &str = "\
usage: gossip-peers LIBRARY NODES LOSS_PERCENT SCENARIO SEED SECONDS [REAL_SECONDS]
  LIBRARY       foca or chitchat, in all settings; or in one: foca:default, foca:simple, foca:tuned, chitchat:default,
                chitchat:tuned
  SCENARIO      crash, steady, stutter, or all
  SECONDS       of virtual time in which false failures and bytes are counted
  REAL_SECONDS  after which each scenario of a setting ends, as far as it came (45 by default)";

type Named<T> = (&'static str, T);

struct Request {
    library: String,
    setting: Option<String>,
    nodes: u32,
    loss_percent: u32,
    scenario: String,
    seed: u64,
    virtual_time: Duration,
    real_time: Duration,
}

impl Request {
    fn from_words(words: &[String]) -> Option<Self> {
        let [library, nodes, loss_percent, scenario, seed, seconds, rest @ ..] = words else { return None };
        let (library, setting) = match library.split_once(':') {
            Some((library, setting)) => (library, Some(setting.to_owned())),
            None => (library.as_str(), None),
        };
        let real_seconds = match rest {
            [] => 45,
            [seconds] => seconds.parse().ok()?,
            _ => return None,
        };
        let request = Self {
            library: library.to_owned(),
            setting,
            nodes: nodes.parse().ok().filter(|&nodes| nodes >= 8)?,
            loss_percent: loss_percent.parse().ok().filter(|&percent| percent < 100)?,
            scenario: scenario.clone(),
            seed: seed.parse().ok()?,
            virtual_time: Duration::from_secs(seconds.parse().ok()?),
            real_time: Duration::from_secs(real_seconds),
        };
        Some(request)
    }

    fn wants(&self, setting: &str) -> bool {
        self.setting.as_ref().is_none_or(|wanted| wanted == setting)
    }

    /// Runs the scenarios that are asked for, and says whether there are such.
    fn run<A, P>(&self, peer: &'static str, setting: &'static str, program: P) -> bool
    where
        A: Member,
        P: Fn(&Boot<'_>) -> A + Clone + 'static,
    {
        if !self.wants(setting) {
            return false;
        }
        let mut ran = false;
        let scenarios: [Named<fn(&Subject<P>)>; 3] =
            [("crash", Subject::crash), ("steady", Subject::steady), ("stutter", Subject::stutter)];
        for (scenario, play) in scenarios {
            if self.scenario != scenario && self.scenario != "all" {
                continue;
            }
            let started = Instant::now();
            let line = Line {
                peer,
                setting,
                nodes: self.nodes,
                loss_percent: self.loss_percent,
                scenario,
                seed: self.seed,
            };
            let subject = Subject {
                line,
                program: program.clone(),
                virtual_time: self.virtual_time,
                deadline: started + self.real_time,
            };
            play(&subject);
            subject.line.value("real_seconds", started.elapsed().as_secs_f64(), &[]);
            ran = true;
        }
        ran
    }
}

fn run_foca(request: &Request) -> bool {
    let nodes = request.nodes;
    let settings: [Named<fn(u32) -> Config>; 3] = [
        ("default", foca_node::default_settings),
        ("simple", foca_node::simple_settings),
        ("tuned", foca_node::tuned_settings),
    ];
    let mut ran = false;
    for (setting, config) in settings {
        ran |= request.run("foca", setting, move |boot| FocaNode::new(boot, config(nodes)));
    }
    ran
}

fn run_chitchat(request: &Request) -> bool {
    let codec = Arc::new(Mutex::new(Codec::new().expect("two sockets on loopback")));
    let settings: [Named<fn() -> Settings>; 2] =
        [("default", chitchat_node::default_settings), ("tuned", chitchat_node::tuned_settings)];
    let mut ran = false;
    for (setting, make) in settings {
        let codec = Arc::clone(&codec);
        ran |=
            request.run("chitchat", setting, move |boot| ChitchatNode::new(boot, make(), Arc::clone(&codec)));
    }
    ran
}

fn main() -> ExitCode {
    let words: Vec<_> = env::args().skip(1).collect();
    let ran = Request::from_words(&words).is_some_and(|request| match request.library.as_str() {
        "foca" => run_foca(&request),
        "chitchat" => run_chitchat(&request),
        _ => false,
    });
    if !ran {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
