//! `comb token`: what lets another host in.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comb_host::RuntimeDirectory;
use comb_host::control::{Reply, Request};

use serde_json::json;

use crate::agent;
use crate::config::Config;
use crate::failure::Outcome;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// How long it counts: a number with s, m, h or d
    #[arg(long, default_value = "1h", value_parser = span)]
    ttl: Duration,
    /// How many hosts it lets in
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    uses: u32,
    /// Where this host listens for others, the first time: ADDRESS, or ADDRESS:PORT [default: 0.0.0.0:7170]
    #[arg(long, value_parser = listen)]
    listen: Option<SocketAddr>,
    /// By which address others reach this host [default: the first of this machine]
    #[arg(long)]
    address: Option<IpAddr>,
    /// What this host is to be called, the first time [default: the machine's name]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
}

/// A span of time, as people write it.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: say a number with s, m, h or d behind it, such as 30m");
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(seconds).filter(|&span| span > 0).map(Duration::from_secs).ok_or_else(wrong)
}

/// Where an agent is to listen: with the usual port if none is said.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    address(text, comb_host::federation::DEFAULT_PORT)
}

/// An address, with this port if none is said.
pub(crate) fn address(text: &str, usual_port: u16) -> Result<SocketAddr, String> {
    let with_port = text.parse::<SocketAddr>().ok();
    let usual = || Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, usual_port));
    with_port.or_else(usual).ok_or_else(|| format!("{text:?} is no address: say ADDRESS or ADDRESS:PORT"))
}

impl Token {
    pub(crate) fn run(self, output: Output, config: &Config) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        let Self { ttl, uses, listen, address, name } = self;
        let listen = listen.or(Some(config.hosts.listen));
        let name = name.or_else(|| config.hosts.name.clone());
        let request = Request::Token { ttl_s: ttl.as_secs(), uses, listen, address, name };
        let Reply::Token { token, host } = agent::ask(&directory, &request)? else {
            return Err(agent::unexpected());
        };
        let object = json!({ "token": token, "host": host, "uses": uses, "ttl_s": ttl.as_secs() });
        output.tell(&object, &token)?;
        if output.is_json() {
            return Ok(ExitCode::SUCCESS);
        }
        let often = if uses == 1 { "once".to_owned() } else { format!("{uses} times") };
        eprintln!(
            "On the other host: comb join --token {token}\n\
             It lets a host come to this one, {host}, {often} within {ttl:?}. Whoever has it can come in: hand it over as a password."
        );
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h", 3600), ("2d", 172_800)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "5", "h", "0s", "5x", "-1h", "99999999999999999999d", "9999999999999999999d"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_may_be_left_out() {
        assert_eq!(listen("10.0.0.1"), Ok("10.0.0.1:7170".parse().unwrap()));
        assert_eq!(listen("10.0.0.1:99"), Ok("10.0.0.1:99".parse().unwrap()));
        assert_eq!(listen("::1"), Ok("[::1]:7170".parse().unwrap()));
        assert!(listen("here").is_err());
    }
}
