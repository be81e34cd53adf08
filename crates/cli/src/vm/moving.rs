//! `comb vm migrate` and `comb vm send`: what goes to other hosts of the comb, and what comes from there.

use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use comb_host::RuntimeDirectory;
use comb_host::federation::passage;
use comb_host::state_directory::StateDirectory;
use comb_vm::control::{Answer, Ask, Machines};
use comb_vm::moving::arriving::{self, Places};
use comb_vm::moving::record::Records;
use comb_vm::moving::{MoveError, Moved, Offer, Passage, Talk, VERSION, Way, What, Word, files};
use comb_vm::names::Name;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::monitor::{At, Begin, monitor};
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::table;

/// The other host reads what it has of the image before it answers, and writes what it gets.
const SEND_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// Its name
    machine: Name,
    /// Where to, as `comb host ls` lists it
    #[arg(required_unless_present = "keep")]
    host: Option<String>,
    /// Have it go on here, where it stands still because the other host does not say whether it has it. Only if that host is gone for good
    #[arg(long, conflicts_with = "host")]
    keep: bool,
}

#[derive(Debug, Args)]
pub(super) struct Send {
    /// As `comb vm snapshots` lists it
    snapshot: Name,
    /// Where to, as `comb host ls` lists it
    host: String,
}

/// To an agent's program on another host.
struct Abroad(passage::Passage);

impl Passage for Abroad {
    fn read(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        self.0.read(buffer, limit)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write(bytes)
    }
}

/// From another host, by the agent that has started this.
struct Pipes;

impl Passage for Pipes {
    fn read(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        let until = Instant::now() + limit;
        let input = rustix::stdio::stdin();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Err(ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(rustix::io::read(input, buffer)?),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

pub(super) fn way_to(host: &str) -> Way {
    let (files, host) = (StateDirectory::from_environment(), host.to_owned());
    Box::new(move || Ok(Box::new(Abroad(passage::Passage::open(&files, &host)?))))
}

/// Leaves the agent that has started this, by a process that its end does not concern.
pub(super) fn go_apart() -> Outcome {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(["vm-monitor", "--receives", "--apart"]).process_group(0).stderr(Stdio::null());
    command.spawn()?;
    Ok(ExitCode::SUCCESS)
}

/// Does what another host wants; a machine that comes is looked after until its end.
pub(super) fn receive(directory: &RuntimeDirectory) -> Outcome {
    let files = StateDirectory::from_environment();
    files.create().map_err(Failure::new)?;
    let places = Places {
        images: super::images(),
        snapshots: super::snapshots(),
        records: Records::at(files.path().join("moves")),
        machines: super::machines(directory),
    };
    let heard = arriving::hear(Talk::new(Box::new(Pipes)), &places)
        .map_err(|error| Failure::new(error.to_string()))?;
    let Some(mut arrival) = heard else { return Ok(ExitCode::SUCCESS) };
    let (machine, image) = (&arrival.machine, arrival.image.clone());
    let begin = Begin {
        name: machine.name.clone(),
        image: image.name.to_string(),
        hardware: machine.hardware.clone(),
        at: At::Arriving { is_clone: machine.is_clone },
        is_replaced: machine.is_replaced,
        is_outside: machine.is_outside,
        cells: None,
        files: Vec::new(),
        segments: Vec::new(),
        reads: None,
        cores: 0,
        all_bytes: None,
    };
    let ended = monitor(directory, &begin, image, Some(&mut arrival));
    if let Err(failure) = &ended {
        // If it has come, nobody hears that any more.
        arrival.refuse(&failure.to_string());
    }
    ended.map(|()| ExitCode::SUCCESS)
}

impl Migrate {
    pub(super) fn run(self, machines: &Machines, output: Output) -> Outcome {
        let name = self.machine;
        let mut line = machines.reach(&name)?;
        let Some(host) = self.host else {
            line.ask(&Ask::Keep)?;
            output.tell(&json!({ "name": name.as_str() }), format!("{name} goes on here"))?;
            return Ok(ExitCode::SUCCESS);
        };
        line.say(&Ask::Migrate { host: host.clone() })?;
        let mut shown = Some(Progress::begin(output, format!("moving {name} to {host}")));
        loop {
            match line.hear(None)? {
                Some(Answer::Told(what)) => {
                    drop(shown.take());
                    output.warn(what);
                }
                Some(Answer::Moved(moved)) => {
                    drop(shown);
                    tell(&name, &moved, output)?;
                    return Ok(ExitCode::SUCCESS);
                }
                Some(Answer::Refused(why)) => return Err(Failure::of(Kind::Refused, why)),
                _ => {}
            }
        }
    }
}

fn tell(name: &Name, moved: &Moved, output: Output) -> Result<(), Failure> {
    let Moved { host, still_us, took_us, bytes, image_bytes, root_bytes } = moved;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let [still, took] = [still_us, took_us].map(|&us| us as f64 / 1e6);
    let said = format!(
        "{name} is on {host}, after {took:.2} s, of which it stood still for {still:.2} s; {} went over",
        table::bytes(*bytes)
    );
    let object = json!({
        "name": name.as_str(),
        "host": host,
        "still_us": still_us,
        "took_us": took_us,
        "bytes": bytes,
        "image_bytes": image_bytes,
        "root_bytes": root_bytes,
    });
    output.tell(&object, said)?;
    Ok(())
}

impl Send {
    pub(super) fn run(self, output: Output) -> Outcome {
        let (name, host) = (self.snapshot, self.host);
        let snapshot = super::snapshots().open(&name)?;
        let image = super::images().open(&snapshot.of.image.parse()?)?;
        let shown = Progress::begin(output, format!("sending {name} to {host}"));
        let said = |error: MoveError| Failure::new(format!("{host}: {error}"));
        let passage = way_to(&host)().map_err(Failure::new)?;
        let mut talk = Talk::new(passage);
        let digest = files::digest(&image).map_err(said)?;
        let what = What::Snapshot { name: name.to_string(), of: snapshot.of.clone() };
        talk.offer(&Offer { version: VERSION, what, image: image.name.to_string(), digest }).map_err(said)?;
        if talk.word(SEND_LIMIT).map_err(said)? == (Word::Wants { image: true }) {
            files::send(&mut talk, &image.directory, &files::OF_IMAGE).map_err(said)?;
        }
        talk.expect(&Word::Waits, SEND_LIMIT).map_err(said)?;
        files::send(&mut talk, snapshot.directory(), &files::OF_SNAPSHOT).map_err(said)?;
        talk.expect(&Word::Runs, SEND_LIMIT).map_err(said)?;
        drop(shown);
        let said = format!(
            "{name} is on {host} as well: `comb vm restore {name}` there has a machine go on from it"
        );
        output.tell(&json!({ "name": name.as_str(), "host": host, "bytes": snapshot.bytes() }), said)?;
        Ok(ExitCode::SUCCESS)
    }
}
