//! `comb host`: the agent, and the hosts of the comb. `comb up` runs the agent; by hand it takes over the cells of one that died.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use comb_cell::clock::span;
use comb_host::control::{Reply, Request};
use comb_host::federation::words::CellState;
use comb_host::federation::{self, HostCondition, HostStatus, shell};
use comb_host::state_directory::StateDirectory;
use comb_host::{MOST_CELLS, RuntimeDirectory, daemon};
use comb_net::agent::Limits;

use comb_region::launch;

use crate::failure::{Failure, Outcome};
use crate::{agent, table};

/// What the agent writes to standard output when it can be asked.
pub(crate) const READY: &str = "ready";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Host {
    #[command(subcommand)]
    command: Option<HostCommand>,
    #[command(flatten)]
    agent: Agent,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    /// List the hosts of the comb
    Ls {
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Put a host out that is gone for good, or not to be trusted
    Rm {
        /// Its name, as `comb host ls` shows it
        name: String,
    },
    #[command(hide = true)]
    Shell {
        /// Where.
        name: String,
        /// What: a part of a task, and nothing else.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Have this host prove itself by a new key
    RotateKey {
        /// Though hosts that are away do not hear of it, and have to be joined anew
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
struct Agent {
    /// How many cells to start, if there are none to take over.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_CELLS)))]
    cells: u32,
    /// Take everything down when standard input ends.
    #[arg(long)]
    end_with_stdin: bool,
    /// What its processes may hold.
    #[arg(long)]
    limits: Option<Limits>,
    /// Bytes of page frames that each cell may have.
    #[arg(long)]
    memory: Option<u64>,
    /// Have cells fail when they are told to.
    #[arg(long, hide = true)]
    faults: bool,
    /// Who may command besides this user and root.
    #[arg(long, default_value = "")]
    allow: String,
}

impl Host {
    pub(crate) fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        match self.command {
            None => self.agent.run(),
            Some(HostCommand::Ls { json }) => list(&directory, json),
            Some(HostCommand::Shell { name, words }) => run_there(&name, &words),
            Some(HostCommand::Rm { name }) => remove(&directory, &name),
            Some(HostCommand::RotateKey { force }) => rotate_key(&directory, force),
        }
    }
}

fn list(directory: &RuntimeDirectory, json: bool) -> Outcome {
    let Reply::Status(status) = agent::ask(directory, &Request::Status)? else {
        return Err(agent::unexpected());
    };
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&status.hosts)?)?;
    } else if status.hosts.is_empty() {
        writeln!(out, "these cells are on this host alone: `comb token` lets others in")?;
    } else {
        write!(out, "{}", text(&status.hosts))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(hosts: &[HostStatus]) -> String {
    let heading = ["HOST", "ADDRESS", "STATE", "SINCE", "CELLS", "UP", "KEY"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    rows.extend(hosts.iter().map(|host| {
        let is_seen = matches!(host.condition, HostCondition::Here | HostCondition::Up);
        let up = host.cells.iter().filter(|cell| cell.state == CellState::Up).count();
        let last = host.first + host.count - 1;
        let key = host.fingerprint.strip_prefix("ed25519:").unwrap_or(&host.fingerprint);
        vec![
            host.name.clone(),
            host.address.clone(),
            host.condition.to_string(),
            span(host.for_ms.saturating_mul(1_000_000)),
            if host.count == 1 { host.first.to_string() } else { format!("{}-{last}", host.first) },
            if is_seen { up.to_string() } else { "-".to_owned() },
            key.get(..16).unwrap_or(key).to_owned(),
        ]
    }));
    let troubles =
        hosts.iter().filter_map(|host| Some(format!("{}: {}\n", host.name, host.trouble.as_ref()?)));
    table::format(&rows) + &troubles.collect::<String>()
}

/// What `comb run` has for a shell where its hosts are those of this comb.
fn run_there(name: &str, words: &[String]) -> Outcome {
    if words.last().is_none_or(|word| word != shell::PART) {
        return Err(Failure::new(format!(
            "an agent starts parts of tasks, `comb {}`, and nothing else",
            shell::PART
        )));
    }
    let status = shell::run(&StateDirectory::from_environment(), name).map_err(Failure::new)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}

/// The shell and the addresses of hosts that are all of this comb, where nothing else was said.
pub(crate) fn within_comb(hosts: &[launch::Host], shell: &str) -> Option<(Vec<launch::Host>, String)> {
    if shell != launch::DEFAULT_SHELL || hosts.is_empty() {
        return None;
    }
    let saved = federation::saved(&StateDirectory::from_environment()).ok()??;
    let own = std::env::current_exe().ok()?;
    let of = |host: &launch::Host| {
        let member = saved.members.iter().find(|member| member.name == host.name)?;
        Some(launch::Host { address: host.address.or(Some(member.address.ip())), ..host.clone() })
    };
    let hosts: Option<Vec<launch::Host>> = hosts.iter().map(of).collect();
    Some((hosts?, format!("{} host shell {{host}} --", own.to_str()?)))
}

fn remove(directory: &RuntimeDirectory, name: &str) -> Outcome {
    match agent::ask(directory, &Request::RemoveHost { name: name.to_owned() })? {
        Reply::HostRemoved { told } => {
            let told =
                if told == 1 { "1 other host was".to_owned() } else { format!("{told} other hosts were") };
            println!("host {name} is out, and its key is not accepted any more; {told} told");
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(agent::unexpected()),
    }
}

fn rotate_key(directory: &RuntimeDirectory, force: bool) -> Outcome {
    match agent::ask(directory, &Request::RotateKey { force })? {
        Reply::KeyRotated { fingerprint, told, missed } => {
            println!("this host's key is {fingerprint} from now on; known to {told} other hosts");
            if !missed.is_empty() {
                println!(
                    "not to {}: each has to put this host out (`comb host rm`) and let it in anew",
                    missed.join(", ")
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(agent::unexpected()),
    }
}

impl Agent {
    fn run(self) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let Self { cells, end_with_stdin, limits, memory, faults, allow } = self;
        let limits = limits.unwrap_or_default();
        let options =
            daemon::Options { directory, cells, end_with_stdin, limits, memory_bytes: memory, faults, allow };
        daemon::run(&options, || {
            // It may be gone by now; standard input tells of that.
            let _ = writeln!(std::io::stdout(), "{READY}");
            // Whoever waited for that word must not wait for more.
            if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
                let _ = rustix::stdio::dup2_stdout(nowhere);
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
