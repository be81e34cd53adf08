//! `comb bench membership`: who is up and what was agreed, beside peers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use comb_net::agent::{Limits, SameUser, Server};
use serde_json::Value;

use crate::group_side::{Task, monotonic_ns};
use crate::room::Room;

const MEMBERS: u32 = 32;

/// The processes of one group.
struct Members {
    members: Vec<Member>,
    _server: Server,
    _room: Room,
}

struct Member {
    process: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Member {
    fn tell(&mut self, task: &Task) -> std::io::Result<()> {
        writeln!(self.tell, "{}", serde_json::to_string(task).expect("plain data"))
    }

    fn hear(&mut self) -> Result<Value, Box<dyn std::error::Error>> {
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Members {
    fn start(count: u32) -> Result<Self, Box<dyn std::error::Error>> {
        let room = Room::create()?;
        let server = Server::bind(&room.agent(), Box::new(SameUser), Limits::default())?;
        let mut members = Vec::new();
        for number in 0..count {
            let mut process = Command::new(std::env::current_exe()?)
                .args(["bench-side", "group", "--answer"])
                .arg(room.path())
                .arg(format!("{number} of {count}"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (tell, hear) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
            members.push(Member { process, tell, hear: BufReader::new(hear) });
        }
        let mut members = Self { members, _server: server, _room: room };
        members.hear()?;
        Ok(members)
    }

    fn tell(&mut self, task: &Task) -> std::io::Result<()> {
        self.members.iter_mut().try_for_each(|member| member.tell(task))
    }

    fn hear(&mut self) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
        self.members.iter_mut().map(Member::hear).collect()
    }

    fn load(&mut self, senders: usize, outstanding: usize) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
        for (number, member) in self.members.iter_mut().enumerate() {
            // The last ones send: the first is the sequencer.
            let sends = number + senders >= MEMBERS as usize;
            member.tell(&Task::Load {
                seconds: 2.0,
                bytes: 64,
                outstanding: if sends { outstanding } else { 0 },
            })?;
        }
        self.hear()
    }
}

/// Runs the benchmark and prints its table.
pub fn run(_full: bool, _json: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut members = Members::start(MEMBERS)?;
    for (senders, outstanding) in [(32, 256), (1, 1), (32, 1)] {
        let heard = members.load(senders, outstanding)?;
        let last = heard.last().expect("members");
        println!("{senders} senders, {outstanding} outstanding: {last}");
        println!("   sequencer {}", heard[0]);
    }
    members.tell(&Task::AwaitView)?;
    members.hear()?;
    std::thread::sleep(Duration::from_millis(100));
    let at = monotonic_ns();
    let mut killed = members.members.remove(5);
    killed.process.kill()?;
    let views = members.hear()?;
    let times: Vec<f64> =
        views.iter().filter_map(|view| Some((view["view_ns"].as_u64()? - at) as f64 / 1e6)).collect();
    println!("view after kill: {times:?} ms");
    members.tell(&Task::Delay { milliseconds: 3.0 })?;
    let heard = members.load(32, 256)?;
    println!("3 ms: {}", heard[3]);
    members.tell(&Task::End)?;
    Ok(())
}
