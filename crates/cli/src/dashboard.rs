//! `comb dashboard`: where the page is; and the process that serves it, which the agent keeps running.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use comb_dashboard::Options;
use comb_host::RuntimeDirectory;
use comb_host::dashboard::Place;
use rustix::net::sockopt;
use serde_json::json;

use crate::agent;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;

const ABOUT: &str = "\
Whoever knows the address that is printed sees everything, and may kill, hang, drain and restart cells; nobody else sees anything, also not
other users of this machine. It is the same until `comb down`. From another machine: ssh -L PORT:127.0.0.1:PORT, and the same address.

Examples:
  comb dashboard                 print the address
  comb dashboard --open          and open it in a browser
  comb dashboard --view-only     an address for those who are only to look";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Dashboard {
    /// Open it in a browser
    #[arg(long)]
    open: bool,
    /// An address by which nothing can be done
    #[arg(long)]
    view_only: bool,
    /// Be the process that serves it, for the agent of that process number: its sockets are standard input and output
    #[arg(long, hide = true, value_name = "PID")]
    serve: Option<u32>,
}

impl Dashboard {
    /// Whether the agent has started this.
    pub(crate) fn is_part(&self) -> bool {
        self.serve.is_some()
    }

    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        if let Some(agent) = self.serve {
            return serve(directory, agent);
        }
        // An agent that is not there is told of by who knows what to do.
        agent::status(&directory)?;
        let Some(place) = Place::find(&directory) else {
            let text = format!(
                "the comb in {directory} was started without a dashboard: `comb down`, then `comb up --dashboard 127.0.0.1:0`"
            );
            return Err(Failure::of(Kind::NotFound, text));
        };
        let url = place.url(!self.view_only);
        output.tell(&json!({ "url": url, "address": place.address, "metrics": place.metrics }), &url)?;
        if self.open {
            open(&directory, &url)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// In a browser. By a file that leads there and that nobody else may read: arguments are seen by all.
pub(crate) fn open(directory: &RuntimeDirectory, url: &str) -> Result<(), Failure> {
    let path = directory.path().join("dashboard.html");
    let _ = std::fs::remove_file(&path);
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    write!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Comb</title>")?;
    let mut opener = Command::new("xdg-open");
    let started = opener.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match started {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::new("no browser can be opened from here (xdg-open): open the address by hand")),
    }
}

/// The agent hands the sockets over where others have their input and output.
fn serve(directory: RuntimeDirectory, agent: u32) -> Outcome {
    // Whoever takes over from the agent starts another one.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // One that was killed before this was said kills nobody.
    if rustix::process::getppid().is_none_or(|parent| parent.as_raw_nonzero().get().unsigned_abs() != agent) {
        return Ok(ExitCode::SUCCESS);
    }
    let _ = rustix::thread::set_name(c"comb-dashboard");
    let listener = |descriptor: std::os::fd::BorrowedFd<'_>| {
        sockopt::socket_acceptconn(descriptor).ok().filter(|accepts| *accepts)?;
        Some(TcpListener::from(descriptor.try_clone_to_owned().ok()?))
    };
    let page = listener(std::io::stdin().as_fd());
    let page =
        page.ok_or_else(|| Failure::usage("the agent starts this: `comb dashboard` says where it is"))?;
    let place =
        Place::find(&directory).ok_or_else(|| Failure::new("the agent has not said what the token is"))?;
    let metrics = listener(std::io::stdout().as_fd());
    let Place { token, view_token, .. } = place;
    comb_dashboard::run(Options { directory, listener: page, metrics, token, view_token })?;
    Ok(ExitCode::SUCCESS)
}

/// Where something listens, if it does, as the user says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl Listen {
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "off" | "none" | "false" => Ok(Self(None)),
            address => address
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| "say ADDRESS:PORT, such as 127.0.0.1:7070; port 0 is any that is free; or off"),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("off"),
        }
    }
}
