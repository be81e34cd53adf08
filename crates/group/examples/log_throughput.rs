//! What a log costs: ordered updates of 64 bytes among so many processes, without a log and with one in a folder.
//!
//! ```console
//! $ cargo run --release -p comb-group --features redb --example log_throughput -- 4 /dev/shm/a-folder
//! ```

use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use comb_group::{Beginning, Config, Event, Group, GroupOptions, Level, LogRedb, Names, NodeId};
use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, EndpointOptions};

const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(4);
const UPDATE_BYTES: usize = 64;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["member", folder, own, count, has_log, outstanding] => {
            member(Path::new(folder), own.parse()?, count.parse()?, *has_log == "true", outstanding.parse()?)
        }
        [count, folder] => {
            for outstanding in [256, 1] {
                for has_log in [false, true] {
                    measure(count.parse()?, Path::new(folder), has_log, outstanding)?;
                }
            }
            Ok(())
        }
        _ => Err("how many processes, and a folder for their logs?".into()),
    }
}

/// All send, with so many outstanding each; or, if that is one, the last alone sends.
fn measure(count: u32, folder: &Path, has_log: bool, outstanding: usize) -> Outcome<()> {
    std::fs::create_dir(folder)?;
    let _server = Server::bind(&folder.join("agent"), Box::new(SameUser), Limits::default())?;
    let start = |own: u32| -> Outcome<Child> {
        let sends = if outstanding > 1 || own == count - 1 { outstanding } else { 0 };
        let told = [own.to_string(), count.to_string(), has_log.to_string(), sends.to_string()];
        let mut command = Command::new(std::env::current_exe()?);
        Ok(command.arg("member").arg(folder).args(told).stdout(Stdio::piped()).spawn()?)
    };
    let mut children = (0..count).map(start).collect::<Outcome<Vec<_>>>()?;
    let (mut rates, mut latency) = (Vec::new(), None);
    for child in &mut children {
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().ok_or("it was piped")?).read_line(&mut line)?;
        let mut words = line.split_whitespace();
        rates.push(words.next().ok_or("a rate")?.parse::<f64>()?);
        latency = words.next().map(str::to_owned).or(latency);
    }
    for child in &mut children {
        // It may have ended.
        let _ = child.kill();
        child.wait()?;
    }
    std::fs::remove_dir_all(folder)?;
    rates.sort_by(f64::total_cmp);
    let (rate, latency) = (rates[rates.len() / 2], latency.unwrap_or_default());
    println!("{count} processes, log {has_log}, {outstanding} outstanding: {rate:.0}/s, p50 {latency} ms");
    Ok(())
}

fn member(folder: &Path, own: u32, count: u32, has_log: bool, outstanding: usize) -> Outcome<()> {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let agent = Agent::connect(&folder.join("agent"), &names.process(NodeId(own)))?;
    let mut config = Config::default();
    config.order.longest_message = 8 << 10;
    config.order.tell_after = Duration::from_millis(1);
    let options = GroupOptions { names, config, endpoint: EndpointOptions::default() };
    let members: Vec<_> = (0..count).map(NodeId).collect();
    let mut group = if has_log {
        let log = LogRedb::open(&folder.join(format!("log-{own}")))?;
        Group::resuming(&agent, NodeId(own), Beginning::Configured(&members), log, options)?
    } else {
        Group::configured(&agent, NodeId(own), &members, options)?
    };
    let (mut open, mut latencies, mut delivered) = (std::collections::VecDeque::new(), Vec::new(), 0_u32);
    let mut settled = None::<Instant>;
    loop {
        group.poll();
        let elapsed = settled.map_or(Duration::ZERO, |at| at.elapsed());
        let is_measured = elapsed >= WARM_UP;
        while let Some(event) = group.next_event() {
            match event {
                Event::Delivered(_) if is_measured => delivered += 1,
                Event::Reached { .. } => {
                    let sent: Option<Instant> = open.pop_front();
                    latencies.extend(sent.filter(|_| is_measured).map(|sent| sent.elapsed()));
                }
                Event::Settled(_) => settled = settled.or(Some(Instant::now())),
                Event::WantsState => group.give_state(b""),
                _ => {}
            }
        }
        if elapsed >= WARM_UP + MEASURED {
            latencies.sort_unstable();
            let p50 = latencies
                .get(latencies.len() / 2)
                .map_or(String::new(), |p50| format!("{:.2}", p50.as_secs_f64() * 1e3));
            println!("{} {p50}", f64::from(delivered) / (elapsed - WARM_UP).as_secs_f64());
            // The others are still measured with this one's acknowledgements.
            std::thread::sleep(Duration::from_secs(1));
            return Ok(());
        }
        while settled.is_some() && open.len() < outstanding {
            if group.submit(Level::Majority, &[7; UPDATE_BYTES]).is_err() {
                break;
            }
            open.push_back(Instant::now());
        }
        group.wait(Duration::from_millis(5));
    }
}
