//! Hosts of a test's own: network namespaces on two switches with a cable between, each with directories for an agent.

mod slow;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::slow::SlowCable;
use crate::namespaces::Namespace;

/// For what takes seconds on an idle machine. A test that runs into this has failed.
const LIMIT: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Between the two switches.
const TRUNK: &str = "trunk";

/// One host.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) namespace: Namespace,
    scratch: PathBuf,
    /// Its cable, as its switch calls it.
    cable: String,
}

/// All of them.
pub(crate) struct Room {
    slow: Vec<SlowCable>,
    switches: Namespace,
    pub(crate) hosts: Vec<Host>,
    pub(crate) scratch: PathBuf,
}

/// A cell, as a host shows it: its host, the host's condition, its own state and its life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) host: String,
    pub(crate) condition: String,
    pub(crate) state: String,
    pub(crate) incarnation: u64,
    pub(crate) channels: u64,
}

impl Cell {
    pub(crate) fn is_up(&self) -> bool {
        self.state == "up" && ["here", "up"].contains(&&*self.condition)
    }
}

impl Host {
    pub(crate) fn runtime(&self) -> PathBuf {
        self.scratch.join("run")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.scratch.join("state")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command.args(arguments).env("COMB_RUNTIME_DIR", self.runtime()).env("COMB_STATE_DIR", self.state());
        command
            .env("COMB_CONFIG", "/dev/null")
            .env_remove("COMB_WITHOUT")
            .env_remove("COMB_NAME")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.namespace.within(|| self.command(arguments).output().unwrap())
    }

    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}: comb {arguments:?}: {output:?}\n{}", self.name, self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command that is to fail says.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{}: comb {arguments:?}: {output:?}", self.name);
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.runtime().join("comb.log")).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> Value {
        let hosts = self.run(&["host", "ls", "-o", "json"]).stdout;
        serde_json::from_slice::<Value>(&hosts).map(|mut hosts| hosts[0].take()).unwrap_or_default()
    }

    /// All cells that this host knows of.
    pub(crate) fn cells(&self) -> BTreeMap<u64, Cell> {
        let status = self.status();
        let hosts = status["hosts"].as_array().cloned().unwrap_or_default();
        let cells = hosts.iter().flat_map(|host| {
            host["cells"].as_array().cloned().unwrap_or_default().into_iter().map(move |cell| {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let shown = Cell {
                    host: text(&host["name"]),
                    condition: text(&host["condition"]),
                    state: text(&cell["state"]),
                    incarnation: cell["incarnation"].as_u64().unwrap_or(0),
                    channels: cell["channels"].as_u64().unwrap_or(0),
                };
                (cell["cell"].as_u64().unwrap_or(0), shown)
            })
        });
        cells.collect()
    }

    /// How this host sees another.
    pub(crate) fn sees(&self, name: &str) -> Option<Value> {
        let status = self.status();
        status["hosts"].as_array()?.iter().find(|host| host["name"] == name).cloned()
    }

    pub(crate) fn lives(&self) -> BTreeMap<u64, u64> {
        self.cells().into_iter().map(|(number, cell)| (number, cell.incarnation)).collect()
    }

    #[track_caller]
    pub(crate) fn token(&self) -> String {
        self.ok(&["token", "--as", &self.name]).trim().to_owned()
    }

    #[track_caller]
    pub(crate) fn join(&self, token: &str, cells: u32) -> String {
        self.ok(&["join", "--token", token, "--as", &self.name, "-n", &cells.to_string()])
    }

    /// All processes that this host's agent has started, and it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("COMB_RUNTIME_DIR={}\0", self.runtime().display()).into_bytes();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark)
        };
        pids.filter(ours).collect()
    }

    pub(crate) fn signal_all(&self, signal: &str) {
        let pids: Vec<String> = self.processes().iter().map(u32::to_string).collect();
        let _ = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
    }

    /// The machine loses its power: nothing is left but what is on its disk.
    pub(crate) fn die(&self) {
        while !self.processes().is_empty() {
            self.signal_all("-KILL");
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = std::fs::remove_dir_all(self.runtime());
    }
}

impl Room {
    /// So many hosts; the first half of them on one switch. None, and said so: this machine does not let us.
    pub(crate) fn of(test: &str, hosts: usize) -> Option<Self> {
        Self::make(test, hosts).map_err(|why| println!("skipped: {why}")).ok()
    }

    fn make(test: &str, count: usize) -> Result<Self, String> {
        let scratch = std::env::temp_dir().join(format!("comb-hosts-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir(&scratch).map_err(|error| error.to_string())?;
        let mut room = Self { slow: Vec::new(), switches: Namespace::make()?, hosts: Vec::new(), scratch };
        let switch = |arguments: &[&str]| room.switches.ip(arguments).map(drop);
        for name in ["left", "right"] {
            switch(&["link", "add", name, "type", "bridge"])?;
            switch(&["link", "set", name, "up"])?;
        }
        switch(&["link", "add", TRUNK, "type", "veth", "peer", "name", "other"])?;
        for (end, name) in [(TRUNK, "left"), ("other", "right")] {
            switch(&["link", "set", end, "master", name])?;
            switch(&["link", "set", end, "up"])?;
        }
        for index in 0..count {
            let namespace = Namespace::make()?;
            let (cable, address) = (format!("h{index}"), format!("10.78.0.{}", index + 1));
            let path = namespace.path();
            room.switches
                .ip(&["link", "add", &cable, "type", "veth", "peer", "name", "eth", "netns", &path])?;
            room.switches.ip(&["link", "set", &cable, "master", side(index, count)])?;
            room.switches.ip(&["link", "set", &cable, "up"])?;
            namespace.ip(&["address", "add", &format!("{address}/24"), "dev", "eth"])?;
            namespace.ip(&["link", "set", "eth", "up"])?;
            let name =
                ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"][index].to_owned();
            let scratch = room.scratch.join(&cable);
            std::fs::create_dir(&scratch).map_err(|error| error.to_string())?;
            room.hosts.push(Host { name, address, namespace, scratch, cable });
        }
        Ok(room)
    }

    /// So many hosts, all in one comb, with so many cells each.
    pub(crate) fn joined(test: &str, hosts: usize, cells: u32) -> Option<Self> {
        let room = Self::of(test, hosts)?;
        room.hosts[0].ok(&["up", "-n", &cells.to_string()]);
        for host in &room.hosts[1..] {
            host.join(&room.hosts[0].token(), cells);
        }
        room.all_up(&(0..hosts).collect::<Vec<_>>());
        Some(room)
    }

    /// Pulls a host's cable out, or puts it in.
    pub(crate) fn plug(&self, host: usize, what: &str) {
        self.switches.ip(&["link", "set", &self.hosts[host].cable, what]).unwrap();
    }

    /// From now on all that comes from a host or goes to it is under way for so long.
    pub(crate) fn slow(&mut self, host: usize, delay: Duration) {
        let cable = &self.hosts[host].cable;
        let (near, far) = (format!("{cable}near"), format!("{cable}far"));
        for arguments in [
            &["link", "add", &near, "type", "veth", "peer", "name", &far][..],
            &["link", "set", &near, "master", side(host, self.hosts.len())],
            &["link", "set", &near, "up"],
            &["link", "set", &far, "up"],
            &["link", "set", cable, "nomaster"],
        ] {
            self.switches.ip(arguments).unwrap();
        }
        let cable = self.switches.within(|| SlowCable::between([cable, &far], delay)).unwrap();
        self.slow.push(cable);
    }

    /// Pulls the cable between the halves out, or puts it in.
    pub(crate) fn plug_trunk(&self, what: &str) {
        self.switches.ip(&["link", "set", TRUNK, what]).unwrap();
    }

    /// Waits until each of these hosts sees all cells of these up, with a channel between any two.
    #[track_caller]
    pub(crate) fn all_up(&self, hosts: &[usize]) {
        self.wait_for("all cells up", || {
            let names: Vec<&str> = hosts.iter().map(|&host| &*self.hosts[host].name).collect();
            let is_all = |host: &usize| {
                let cells = self.hosts[*host].cells();
                let ours: Vec<&Cell> = cells.values().filter(|cell| names.contains(&&*cell.host)).collect();
                let hosts_seen = names.iter().all(|name| ours.iter().any(|cell| cell.host == *name));
                hosts_seen && ours.iter().all(|cell| cell.is_up() && cell.channels + 1 >= ours.len() as u64)
            };
            hosts.iter().all(is_all).then_some(())
        });
    }

    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if since.elapsed() > LIMIT {
                let logs: Vec<String> = self
                    .hosts
                    .iter()
                    .map(|host| {
                        let ps = host.run(&["ps"]);
                        let ps = String::from_utf8_lossy(&ps.stdout).into_owned();
                        format!("── {}\n{ps}{}", host.name, host.log())
                    })
                    .collect();
                panic!("waited for {what}:\n{}", logs.join("\n"));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// The switch of one host of so many.
fn side(host: usize, count: usize) -> &'static str {
    if 2 * host < count { "left" } else { "right" }
}

impl Drop for Room {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.hosts.iter().for_each(|host| eprintln!("── {}\n{}", host.name, host.log()));
        }
        self.hosts.iter().for_each(Host::die);
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}
