//! One of the processes of a measured group. It does what it is told on its standard input, a line a task, and answers each with a
//! line of JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use comb_group::{Event, Group, GroupOptions, Level, Names, NodeId};
use comb_net::{Agent, EndpointOptions};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How often standard input is looked at while nothing comes from the group.
const IDLE_SLEEP: Duration = Duration::from_millis(5);

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Submit updates of so many bytes, with so many outstanding at most, and count what is delivered.
    Load {
        seconds: f64,
        bytes: usize,
        outstanding: usize,
    },
    /// Say when the next view is installed, by the clock of all processes.
    AwaitView,
    /// From now on, wait so long before each look at what has come.
    Delay {
        milliseconds: f64,
    },
    End,
}

/// How the processes of the measured group are called.
pub(crate) fn names() -> Names {
    Names { process: "member-".to_owned(), endpoint: "group".to_owned() }
}

struct Side {
    group: Group,
    tasks: Receiver<Task>,
    delay: Duration,
}

/// Runs member `number` of `count` until it is told to end.
pub(crate) fn run(room: &Path, told: &str) -> Result<(), Box<dyn std::error::Error>> {
    let (number, count) = told.split_once(" of ").ok_or("which member of how many?")?;
    let (number, count): (u32, u32) = (number.parse()?, count.parse()?);
    let own = NodeId(number);
    let agent = Agent::connect(&room.join("agent"), &names().process(own))?;
    let members: Vec<_> = (0..count).map(NodeId).collect();
    let options = GroupOptions { names: names(), config: config(), endpoint: EndpointOptions::default() };
    let (tell, tasks) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(task) = serde_json::from_str(&line) else { return };
            if tell.send(task).is_err() {
                return;
            }
        }
    });
    // Everybody's endpoint is there before anybody speaks.
    let group = Group::configured(&agent, own, &members, options)?;
    Side { group, tasks, delay: Duration::ZERO }.run()
}

/// Channels within a machine take longer messages than a network's packets.
fn config() -> comb_group::Config {
    let mut config = comb_group::Config::default();
    config.order.longest_message = 8 << 10;
    config
}

impl Side {
    fn run(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        while !self.group_is_whole() {
            self.turn(IDLE_SLEEP, |_| {});
        }
        say(&json!({ "ready": true }))?;
        loop {
            match self.tasks.try_recv() {
                Ok(Task::Load { seconds, bytes, outstanding }) => self.load(seconds, bytes, outstanding)?,
                Ok(Task::AwaitView) => self.await_view()?,
                Ok(Task::Delay { milliseconds }) => self.delay = Duration::from_secs_f64(milliseconds / 1e3),
                Ok(Task::End) | Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                Err(mpsc::TryRecvError::Empty) => self.turn(IDLE_SLEEP, |_| {}),
            }
        }
    }

    /// Whether all have installed the first view.
    fn group_is_whole(&self) -> bool {
        self.group.stack().regroup().is_some_and(|regroup| regroup.stage() == comb_group::Stage::Settled)
    }

    /// Looks once at what has come; waits for something if nothing has.
    fn turn(&mut self, limit: Duration, mut each: impl FnMut(Event)) {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        self.group.poll();
        let mut came = false;
        while let Some(event) = self.group.next_event() {
            came = true;
            each(event);
        }
        if !came {
            self.group.wait(limit);
        }
    }

    fn load(
        &mut self,
        seconds: f64,
        bytes: usize,
        outstanding: usize,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let (body, limit) = (vec![7; bytes], Duration::from_secs_f64(seconds));
        let started = Instant::now();
        let mut sent: BTreeMap<u64, Instant> = BTreeMap::new();
        let (mut latencies, mut delivered) = (Vec::new(), 0_u64);
        while started.elapsed() < limit {
            while sent.len() < outstanding
                && let Ok(number) = self.group.submit(Level::Majority, &body)
            {
                sent.insert(number, Instant::now());
            }
            self.turn(IDLE_SLEEP, |event| match event {
                Event::Delivered(_) => delivered += 1,
                Event::Reached { number, .. } => {
                    latencies.extend(sent.remove(&number).map(|at| at.elapsed().as_secs_f64() * 1e6));
                }
                _ => {}
            });
        }
        let seconds = started.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        let percentile = |part: usize| latencies.get(latencies.len() * part / 100);
        say(&json!({
            "delivered_per_second": delivered as f64 / seconds,
            "own_per_second": latencies.len() as f64 / seconds,
            "p50_us": percentile(50),
            "p99_us": percentile(99),
            "broken_rules": std::iter::from_fn(|| self.group.next_broken_rule()).count(),
            "refused": format!("{:?}", self.group.stack().order().map(|order| order.counts())),
        }))
    }

    fn await_view(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let before = self.group.view().map(|view| view.epoch);
        let mut at = None;
        say(&json!({ "waits": true }))?;
        while at.is_none() {
            self.turn(IDLE_SLEEP, |event| {
                if let Event::View(view) = event
                    && Some(view.epoch) > before
                {
                    at = Some(monotonic_ns());
                }
            });
        }
        say(&json!({ "view_ns": at }))
    }
}

/// The clock that all processes of a machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(time).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn say(line: &serde_json::Value) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
