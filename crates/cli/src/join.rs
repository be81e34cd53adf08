//! `comb join`: this host's cells are of the same comb as those of others.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comb_cell::clock::span;
use comb_host::control::{self, Reply, Request, WantedJoin};
use comb_host::federation::{self, DEFAULT_PORT};
use comb_host::remains::{self, Found};
use comb_host::state_directory::StateDirectory;
use comb_host::{MOST_CELLS, RuntimeDirectory};

use serde_json::json;

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::up::{self, Up};
use crate::{agent, down};

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The host to come to, if it is to be found elsewhere than the token says: NAME or ADDRESS, with :PORT if need be
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// What `comb token` printed there. A host that belongs to the comb already needs none
    #[arg(long)]
    token: Option<String>,
    /// How many cells this host brings [default: 4]
    #[arg(long, short = 'n', value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CELLS)))]
    cells: Option<u32>,
    /// What this host is to be called [default: the machine's name]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// By which address others reach this host [default: the one that it comes from]
    #[arg(long)]
    address: Option<IpAddr>,
    /// Where this host listens for others: ADDRESS, or ADDRESS:PORT [default: 0.0.0.0:7170]
    #[arg(long, value_parser = crate::token::listen)]
    listen: Option<SocketAddr>,
    /// As `comb up --limits`
    #[arg(long, value_parser = up::known_limits)]
    limits: Option<String>,
    /// As `comb up --memory`
    #[arg(long, value_name = "BYTES", value_parser = crate::run::memory)]
    memory: Option<u64>,
    /// As `comb up --allow`
    #[arg(long, value_name = "USER,…", value_parser = up::known_access)]
    allow: Option<String>,
}

impl Join {
    pub(crate) fn run(self, output: Output, config: &Config) -> Outcome {
        let started = Instant::now();
        let directory = RuntimeDirectory::from_environment()?;
        let is_member =
            federation::saved(&StateDirectory::from_environment()).map_err(Failure::new)?.is_some();
        if !is_member && self.token.is_none() {
            return Err(Failure::new(
                "a token is needed: `comb token` on a host of the comb prints one, `comb join --token …` takes it",
            ));
        }
        let address = self.host.as_deref().map(resolve).transpose()?;
        let was_running = match remains::look(&directory)? {
            Found::Agent => true,
            Found::Remains(_) => {
                output.warn(down::describe(&remains::clear(&directory)?, &directory));
                false
            }
            Found::Nothing => false,
        };
        if was_running && is_member {
            return Err(Failure::new(format!(
                "this host is in its comb already (in {directory}): `comb host ls` shows it"
            )));
        }
        if !was_running {
            directory.create()?;
            Up::for_joining(self.limits.clone(), self.memory, self.allow.clone())
                .start_agent(&directory, config)?;
        }
        let outcome = self.come_in(&directory, (address, is_member), started, output, config);
        if outcome.is_err() && !was_running && !is_member {
            // Half a host is of no use to anybody. One that is known is waited for.
            let _ = control::ask_within(&directory, &Request::Down, Duration::from_secs(15));
        }
        outcome
    }

    fn come_in(
        self,
        directory: &RuntimeDirectory,
        (address, is_member): (Option<SocketAddr>, bool),
        started: Instant,
        output: Output,
        config: &Config,
    ) -> Outcome {
        let came = if let Some(token) = self.token.filter(|_| !is_member) {
            let (cells, own_address) = (self.cells.unwrap_or(config.cells), self.address);
            let name = self.name.or_else(|| config.hosts.name.clone());
            let listen = self.listen.or(Some(config.hosts.listen));
            let wanted = WantedJoin { token, address, cells, name, listen, own_address };
            let Reply::Joined { name, by, first, count, hosts } =
                agent::ask(directory, &Request::Join(wanted))?
            else {
                return Err(agent::unexpected());
            };
            let last = first + count - 1;
            format!("is {name} in a comb of {hosts} hosts, let in by {by}, with cells {first} to {last}")
        } else {
            "is back in its comb".to_owned()
        };
        match agent::ask(directory, &Request::AwaitUp) {
            Ok(Reply::Up { .. }) => {
                let took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let text = format!(
                    "this host {came}; all are up after {}\n\
                     `comb ps` shows all cells, `comb host ls` the hosts, `comb leave` leaves them",
                    span(took_ns)
                );
                output.tell(&json!({ "joined": came, "took_ns": took_ns }), text)?;
                Ok(ExitCode::SUCCESS)
            }
            refused => {
                let failure = refused.err().unwrap_or_else(agent::unexpected);
                Err(Failure::new(format!("this host {came}, but: {failure}")))
            }
        }
    }
}

fn resolve(host: &str) -> Result<SocketAddr, Failure> {
    let found = match host.to_socket_addrs() {
        Ok(found) => Ok(found.collect::<Vec<_>>()),
        Err(_) => (host, DEFAULT_PORT).to_socket_addrs().map(Iterator::collect),
    };
    let found: Vec<SocketAddr> = found.map_err(|error| Failure::new(format!("{host}: {error}")))?;
    found.first().copied().ok_or_else(|| Failure::new(format!("{host} has no address")))
}
