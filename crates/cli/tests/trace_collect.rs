//! `comb trace collect` and `comb trace agent` as their users have them: several hosts' agents and a collector, on the loopback of one
//! machine. Who is recorded makes numbered files, so that what arrived can be counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use comb_host::federation::members::{Key, Member, Roster, Saved};
use comb_host::state_directory::StateDirectory;
use comb_net::hosts::HostKey;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// For what takes moments on an idle machine. A test that runs into this has failed.
const LIMIT: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A comb of hosts, none of which has an agent or a cell: only their keys, and who knows whom.
struct Room {
    scratch: PathBuf,
    keys: BTreeMap<&'static str, HostKey>,
}

impl Room {
    /// Nothing, where agents cannot see anything.
    fn of(name: &str, hosts: &[&'static str]) -> Option<Self> {
        if let Err(reason) = comb_trace::kernel::Kernel::attach(false) {
            println!("skipped: {reason}");
            return None;
        }
        Some(Self::without_recording(name, hosts))
    }

    fn without_recording(name: &str, hosts: &[&'static str]) -> Self {
        let scratch = std::env::temp_dir().join(format!("comb-collect-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir(&scratch).unwrap();
        let keys = hosts.iter().map(|&host| (host, HostKey::generate())).collect();
        let room = Self { scratch, keys };
        for &host in hosts {
            room.state(host).create().unwrap();
            room.keys[host].save(&room.state(host).key_file()).unwrap();
            room.knows(host, hosts);
        }
        room
    }

    fn state(&self, host: &str) -> StateDirectory {
        StateDirectory::at(&self.scratch.join(host), "comb")
    }

    fn member(&self, host: &str, key: &HostKey) -> Member {
        let first = 1 + self.keys.keys().position(|&known| known == host).unwrap();
        Member {
            name: host.to_owned(),
            key: Key(key.public()),
            next_key: None,
            address: "127.0.0.1:7170".parse().unwrap(),
            first: u32::try_from(first).unwrap(),
            count: 1,
            since_s: 0,
        }
    }

    /// From now on a host knows these, itself among them.
    fn knows(&self, host: &str, others: &[&'static str]) {
        let members: Vec<Member> =
            others.iter().map(|&other| self.member(other, &self.keys[other])).collect();
        self.believes(host, members);
    }

    fn believes(&self, host: &str, members: Vec<Member>) {
        let mut roster = Roster::of(self.member(host, &self.keys[host]));
        members.into_iter().for_each(|member| {
            roster.add(member).unwrap();
        });
        let listen = "127.0.0.1:7170".parse().unwrap();
        Saved::of(&roster, listen, BTreeMap::new()).write(&self.state(host).hosts_file()).unwrap();
    }

    fn comb(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command
            .arg("trace")
            .args(arguments)
            .current_dir(&self.scratch)
            .stdin(Stdio::null())
            .env("COMB_STATE_DIR", self.scratch.join(host))
            .env("COMB_RUNTIME_DIR", self.scratch.join("run"))
            .env("COMB_CONFIG", "/dev/null")
            .env_remove("COMB_NAME")
            .env_remove("COMB_WITHOUT");
        command
    }

    /// Makes a report: what it warns of.
    #[track_caller]
    fn report(&self) -> String {
        let output = self.comb("alpha", &["report", "week", "--by", "machine"]).output().unwrap();
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{warned}");
        warned
    }

    #[track_caller]
    fn fails(&self, host: &str, arguments: &[&str]) -> (i32, String) {
        let output = self.comb(host, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or_else(|| panic!("{said}")), said)
    }

    /// A collector on alpha, and its port.
    fn collector(&self, port: u16, more: &[&str]) -> (Running, u16) {
        let address = format!("127.0.0.1:{port}");
        let words = ["collect", "week", "--listen", &address, "-o", "json"];
        let mut collector = Running::start(self.comb("alpha", &[&words, more].concat()));
        let listening = collector.until("listening", |_| true);
        let (_, port) = listening["address"].as_str().unwrap().rsplit_once(':').unwrap();
        (collector, port.parse().unwrap())
    }

    fn agent(&self, host: &str, port: u16, worker: &Worker, more: &[&str]) -> Running {
        let place = format!("alpha:{port}");
        let process = worker.child.id().to_string();
        let words = ["agent", &place, "-p", &process, "-o", "json"];
        Running::start(self.comb(host, &[&words, more].concat()))
    }

    fn worker(&self, name: &str) -> Worker {
        Worker::start(self.scratch.join(format!("made-by-{name}")))
    }

    /// How often each number of a worker's is in what was collected, and what was said besides. Nothing, if it cannot be read.
    fn shown(&self, place: &str, worker: &Worker) -> Result<(BTreeMap<u64, u64>, String), String> {
        let path = format!("{}/", worker.folder.display());
        let words = ["show", place, "--path", &path, "--operations", "open", "-o", "json"];
        let output = self.comb("alpha", &words).output().unwrap();
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(warned);
        }
        let mut found = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let open: Value = serde_json::from_str(line).unwrap();
            let number = open["path"].as_str().unwrap().rsplit_once('/').unwrap().1.parse().unwrap();
            *found.entry(number).or_default() += 1;
        }
        Ok((found, warned))
    }

    #[track_caller]
    fn arrived(&self, place: &str, worker: &Worker) -> (BTreeMap<u64, u64>, String) {
        self.shown(place, worker).unwrap()
    }

    #[track_caller]
    fn wait_until_arrived(&self, worker: &Worker, number: u64) {
        let since = Instant::now();
        // At first there is no file, or nothing in it.
        while !self.shown("week", worker).is_ok_and(|(found, _)| found.contains_key(&number)) {
            assert!(since.elapsed() < LIMIT, "{number} does not arrive");
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

fn once(numbers: impl IntoIterator<Item = u64>) -> BTreeMap<u64, u64> {
    numbers.into_iter().map(|number| (number, 1)).collect()
}

/// Who is recorded: a shell that makes a file when it is told to.
struct Worker {
    child: Child,
    folder: PathBuf,
    orders: ChildStdin,
    done: BufReader<ChildStdout>,
}

impl Worker {
    fn start(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", r#"while read name; do : > "$name"; echo; done"#]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, done) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, folder, orders, done }
    }

    /// Makes these files; they are there when this returns.
    fn makes(&mut self, numbers: Range<u64>) {
        for number in numbers {
            writeln!(self.orders, "{}/{number}", self.folder.display()).unwrap();
            self.done.read_line(&mut String::new()).unwrap();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that says what happens, a JSON object a line.
struct Running {
    child: Child,
    events: Receiver<Value>,
    heard: Vec<Value>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { child, events, heard: Vec::new() }
    }

    /// Waits for the next event of that name that is meant.
    #[track_caller]
    fn until(&mut self, name: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LIMIT;
        while let Ok(event) = self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.heard.push(event.clone());
            if event["event"] == name && is_meant(&event) {
                return event;
            }
        }
        let said = self.child.try_wait().unwrap().map(|_| self.errors());
        panic!("waited for {name:?}: {:?} {said:?}", self.heard);
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    }

    fn errors(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    /// Waits for its end: its status and what it said of errors.
    fn ended(mut self) -> (Option<i32>, String) {
        let said = self.errors();
        (self.child.wait().unwrap().code(), said)
    }

    fn killed(self) {
        self.signal(Signal::KILL);
        self.ended();
    }

    #[track_caller]
    fn ends_well(mut self, signal: Signal) -> Value {
        self.signal(signal);
        let last = self.until("ended", |_| true);
        let (status, said) = self.ended();
        assert!(status == Some(0) && said.is_empty(), "{status:?} {said}");
        last
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_three_hosts_record_comes_together() {
    let Some(room) = Room::of("three", &["alpha", "beta", "delta", "gamma"]) else { return };
    let (mut collector, port) = room.collector(0, &[]);
    let hosts = ["beta", "delta", "gamma"];
    let mut workers = hosts.map(|host| room.worker(host));
    let mut agents = [0, 1, 2].map(|nth| room.agent(hosts[nth], port, &workers[nth], &["--patience", "10m"]));
    for (agent, worker) in agents.iter_mut().zip(&mut workers) {
        agent.until("recording", |_| true);
        worker.makes(0..50);
    }
    let mut recordings = BTreeSet::new();
    for ((agent, worker), host) in agents.into_iter().zip(&workers).zip(hosts) {
        assert_eq!(agent.ends_well(Signal::TERM)["delivered"], 1);
        let delivered = collector.until("delivered", |event| event["host"] == host);
        let recording = delivered["recording"].as_str().unwrap().to_owned();
        assert_eq!(room.arrived(&recording, worker), (once(0..50), String::new()), "{host}");
        recordings.insert(recording);
        collector.until("left", |event| event["host"] == host);
    }
    assert_eq!(recordings.len(), 3);
    let connected = |host: &str| {
        collector.heard.iter().any(|event| event["event"] == "connected" && event["host"] == host)
    };
    assert!(hosts.into_iter().all(connected), "{:?}", collector.heard);
    let last = collector.ends_well(Signal::TERM);
    assert_eq!([&last["hosts"], &last["recordings"], &last["whole"]], [3, 3, 3].map(Value::from).each_ref());
    let warned = room.report();
    assert!(warned.is_empty(), "{warned}");
}

/// What was acknowledged is on the disk, and what was not is sent again: each event is there once.
#[test]
fn a_collector_that_is_killed_costs_no_event() {
    let Some(room) = Room::of("killed", &["alpha", "beta"]) else { return };
    let (mut collector, port) = room.collector(0, &[]);
    let mut worker = room.worker("beta");
    let mut agent = room.agent("beta", port, &worker, &["--patience", "10m"]);
    agent.until("recording", |_| true);
    for round in 0..3 {
        let first = round * 30;
        worker.makes(first..first + 10);
        room.wait_until_arrived(&worker, first + 9);
        // Some of these are on their way.
        worker.makes(first + 10..first + 20);
        collector.killed();
        worker.makes(first + 20..first + 30);
        let (arrived, warned) = room.arrived("week", &worker);
        assert_eq!(arrived, once(0..arrived.len() as u64), "up to the cut");
        assert!(arrived.len() as u64 >= first + 10 && warned.contains("cut off"), "{warned}");
        collector = room.collector(port, &[]).0;
        collector.until("connected", |event| event["host"] == "beta");
    }
    agent.ends_well(Signal::TERM);
    let last = collector.ends_well(Signal::TERM);
    assert_eq!([&last["recordings"], &last["whole"]], [1, 1].map(Value::from).each_ref());
    assert_eq!(room.arrived("week", &worker), (once(0..90), String::new()));
    let warned = room.report();
    assert!(warned.is_empty(), "{warned}");
}

#[test]
fn what_an_agent_sent_before_it_was_killed_can_be_read() {
    let Some(room) = Room::of("cut", &["alpha", "beta"]) else { return };
    let (mut collector, port) = room.collector(0, &[]);
    let mut worker = room.worker("beta");
    let mut agent = room.agent("beta", port, &worker, &[]);
    agent.until("recording", |_| true);
    worker.makes(0..20);
    room.wait_until_arrived(&worker, 19);
    agent.killed();
    let left = collector.until("left", |_| true);
    assert!(left["why"].as_str().is_some_and(|why| !why.is_empty()), "a death is no farewell: {left}");
    let (arrived, warned) = room.arrived("week", &worker);
    assert_eq!(arrived, once(0..20));
    assert!(warned.contains("cut off"), "{warned}");
    let warned = room.report();
    assert!(warned.contains("what came before is good"), "{warned}");
    let last = collector.ends_well(Signal::TERM);
    assert_eq!([&last["recordings"], &last["whole"]], [1, 0].map(Value::from).each_ref());
}

#[test]
fn without_a_collector_recording_is_suspended_and_the_gap_is_told() {
    let Some(room) = Room::of("gap", &["alpha", "beta"]) else { return };
    let mut worker = room.worker("beta");
    let (mut collector, port) = room.collector(0, &[]);
    let mut agent = room.agent("beta", port, &worker, &["--patience", "1s"]);
    agent.until("recording", |_| true);
    worker.makes(0..10);
    collector.until("recording", |_| true);
    collector.ends_well(Signal::TERM);
    let suspended = agent.until("suspended", |_| true);
    assert_eq!(suspended["why"], "the collector could not be reached");
    worker.makes(10..20);
    let (collector, _) = room.collector(port, &[]);
    agent.until("delivered", |_| true);
    agent.until("recording", |_| true);
    worker.makes(20..30);
    let last = agent.ends_well(Signal::TERM);
    assert_eq!([&last["delivered"], &last["undelivered"]], [2, 0].map(Value::from).each_ref());
    collector.ends_well(Signal::TERM);

    let (arrived, warned) = room.arrived("week", &worker);
    assert_eq!(arrived, once((0..10).chain(20..30)));
    assert!(
        warned.contains("nothing was recorded for") && warned.contains("could not be reached"),
        "{warned}"
    );
    let warned = room.report();
    assert!(warned.contains("recording was suspended for"), "{warned}");
    let read = |name: &str| fs::read_to_string(room.scratch.join("week/report").join(name)).unwrap();
    assert!(read("index.html").contains("There are gaps"));
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    let machines = report["about"]["machines"].as_array().unwrap();
    let gaps: Vec<&Value> =
        machines.iter().map(|machine| &machine["suspension"]).filter(|gap| !gap.is_null()).collect();
    assert!(machines.len() == 2 && gaps.len() == 1, "{machines:?}");
    assert_eq!((&gaps[0]["cause"], &gaps[0]["undelivered"]), (&suspended["why"], &Value::from(0)));
    assert!(gaps[0]["seconds"].as_f64().unwrap() > 0.0, "{gaps:?}");
}

#[test]
fn what_is_not_delivered_in_the_end_is_said() {
    let Some(room) = Room::of("lost", &["alpha", "beta"]) else { return };
    let (collector, port) = room.collector(0, &[]);
    let mut worker = room.worker("beta");
    let mut agent = room.agent("beta", port, &worker, &[]);
    agent.until("recording", |_| true);
    collector.killed();
    worker.makes(0..10);
    agent.signal(Signal::TERM);
    assert!(agent.until("ended", |_| true)["undelivered"].as_u64().unwrap() >= 10);
    let (status, said) = agent.ended();
    assert!(status == Some(1) && said.contains("may not be on alpha's disk"), "{status:?} {said}");
}

/// Whoever does not prove that it is a host of the comb costs nobody else anything.
#[test]
fn only_hosts_that_are_known_get_in() {
    let Some(room) = Room::of("unknown", &["alpha", "beta", "gamma"]) else { return };
    room.knows("alpha", &["alpha", "beta"]);
    let (mut collector, port) = room.collector(0, &[]);
    let silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    collector.until("refused", |event| event["host"].is_null());

    let mut worker = room.worker("gamma");
    let mut agent = room.agent("gamma", port, &worker, &[]);
    let key = room.keys["gamma"].public().to_string();
    let refused = |event: &Value| {
        let why = event["why"].as_str().unwrap();
        why.contains(&key) && why.contains("`comb token`")
    };
    agent.until("unreachable", refused);
    collector.until("refused", refused);
    // Who is known has come in meanwhile.
    let others = room.worker("beta");
    let mut beta = room.agent("beta", port, &others, &[]);
    beta.until("recording", |_| true);
    beta.ends_well(Signal::TERM);
    // And who is known from now on comes in without anybody being started again.
    room.knows("alpha", &["alpha", "beta", "gamma"]);
    agent.until("recording", |_| true);
    worker.makes(0..10);
    agent.ends_well(Signal::TERM);
    assert_eq!(room.arrived("week", &worker).0, once(0..10));

    // The other way round: somebody else than alpha is where alpha is to be.
    let impostor = HostKey::generate();
    room.believes("gamma", vec![room.member("alpha", &impostor)]);
    let mut agent = room.agent("gamma", port, &worker, &[]);
    let another = |event: &Value| event["why"].as_str().unwrap().contains("is another host than alpha");
    agent.until("unreachable", another);
    agent.signal(Signal::TERM);
    let (status, said) = agent.ended();
    assert!(status == Some(6) && said.contains("nothing was recorded"), "{status:?} {said}");
    drop(silent);
    collector.ends_well(Signal::TERM);
}

#[test]
fn a_collector_takes_no_more_than_it_may() {
    let Some(room) = Room::of("full", &["alpha", "beta"]) else { return };
    let (collector, port) = room.collector(0, &["--most-bytes", "8K"]);
    let mut worker = room.worker("beta");
    let mut agent = room.agent("beta", port, &worker, &[]);
    agent.until("recording", |_| true);
    let no_room = |event: &Value| event["why"] == "the collector has no room";
    // Until it has had enough.
    let mut last = 0;
    while collector.events.try_recv().map_or(true, |event| event["event"] != "refused" || !no_room(&event)) {
        assert!(last < 1_000_000, "it takes all");
        worker.makes(last..last + 100);
        last += 100;
    }
    agent.until("suspended", |event| event["why"] == "the collector had no room");
    let taken: u64 = fs::read_dir(room.scratch.join("week"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(taken <= 8 << 10, "{taken}");
}

#[test]
fn wrong_words_are_said() {
    let room = Room::without_recording("words", &["alpha", "beta"]);
    fs::create_dir(room.scratch.join("nobody")).unwrap();
    let wrong: [(&str, &[&str], i32, &str); 10] = [
        ("alpha", &["collect"], 2, "<DIR>"),
        ("alpha", &["collect", "week", "--listen", "here"], 2, "ADDRESS:PORT"),
        ("alpha", &["collect", "week", "--most-bytes", "much"], 2, "such as 512M"),
        ("alpha", &["collect", "week", "--most-agents", "0"], 2, "1..=4096"),
        ("nobody", &["collect", "week"], 1, "`comb token`, `comb join`"),
        ("alpha", &["agent"], 2, "<COLLECTOR>"),
        ("alpha", &["agent", "alpha:here"], 2, "HOST:PORT"),
        ("beta", &["agent", "alpha", "--buffer", "1K"], 2, "at least 4M"),
        ("nobody", &["agent", "alpha"], 1, "`comb token`, `comb join`"),
        ("beta", &["agent", "alfa"], 4, "`comb host ls` shows them"),
    ];
    for (host, arguments, code, words) in wrong {
        let (status, said) = room.fails(host, arguments);
        assert!(status == code && said.contains(words), "{arguments:?}: {status} {said}");
    }
    let output = room.comb("beta", &["agent", "alpha"]).env("COMB_WITHOUT", "bpf").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("COMB_WITHOUT"), "{said}");

    let (collector, port) = room.collector(0, &[]);
    let (status, said) = room.fails("alpha", &["collect", "week", "--listen", "127.0.0.1:0"]);
    assert!(status == 5 && said.contains("another collector writes there"), "{status} {said}");
    let (status, said) = room.fails("alpha", &["collect", "other", "--listen", &format!("127.0.0.1:{port}")]);
    assert!(status == 1 && said.contains("somebody else listens there"), "{status} {said}");
    collector.ends_well(Signal::TERM);
}
