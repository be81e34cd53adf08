//! What the launcher has started on another host to start components there.

use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc;

use comb_net::agent::Hosts;
use comb_net::hosts::{HostKey, KnownHosts};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketType};

use super::conversation::{self, FromPart, GREETING, Neighbour, ToPart};
use super::copies::Copy;
use super::crew::{Crew, Plan};
use super::sent::Unpacking;
use super::tree::Tree;
use super::{EVENTS, LaunchError};

/// What a part hears.
enum Word {
    Said(ToPart),
    /// The launcher is gone, or somebody wants this process to end.
    Over,
}

/// Serves a launcher at the other end of `input` and `output` until it hangs up, or until `end` is readable. Then no component is left,
/// and nothing else of the task on this host. `copy` is this program's own file, if it was brought here.
pub fn serve_part(
    input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
    end: Option<BorrowedFd<'static>>,
    copy: Option<&Copy>,
) -> std::io::Result<()> {
    let own = copy.map(Copy::settle_in).transpose()?.flatten();
    output.write_all(GREETING)?;
    output.flush()?;
    let (sender, words) = mpsc::channel();
    let told = sender.clone();
    std::thread::Builder::new().name("comb-part-ear".into()).spawn(move || {
        let mut input = BufReader::new(input);
        while let Ok(Some(message)) = conversation::read(&mut input) {
            let _ = told.send(Word::Said(message));
        }
        let _ = told.send(Word::Over);
    })?;
    if let Some(end) = end {
        std::thread::Builder::new().name("comb-part-end".into()).spawn(move || {
            while rustix::event::poll(&mut [PollFd::from_borrowed_fd(end, PollFlags::IN)], None).is_err() {}
            let _ = sender.send(Word::Over);
        })?;
    }
    match serve(&words, &mut output, own)? {
        Some(crew) => run(crew, &words, output),
        None => Ok(()),
    }
}

/// Up to the start. Nothing: it does not come to that.
fn serve(
    words: &mpsc::Receiver<Word>,
    output: &mut impl Write,
    own: Option<Tree>,
) -> std::io::Result<Option<Crew>> {
    let mut unpacking = None;
    let (address, plan) = loop {
        match words.recv() {
            Ok(Word::Said(ToPart::Sent(sent))) => {
                let unpacking = match &mut unpacking {
                    Some(unpacking) => unpacking,
                    none => match Unpacking::begin() {
                        Ok(begun) => none.insert(begun),
                        Err(error) => return refuse(words, output, &error),
                    },
                };
                if let Err(error) = unpacking.take(sent) {
                    return refuse(words, output, &error);
                }
            }
            Ok(Word::Said(ToPart::Gather { address, plan })) => break (address, *plan),
            _ => return Ok(None),
        }
    };
    let key = HostKey::generate();
    let gathered = unpacking.map(Unpacking::end).transpose().and_then(|files| {
        let mut crew = gather(plan, files.as_ref())?;
        crew.keep(own.into_iter().chain(files));
        Ok((crew, Door::reserve(address)?))
    });
    let (mut crew, door) = match gathered {
        Ok(gathered) => gathered,
        Err(error) => return refuse(words, output, &error),
    };
    conversation::write(output, &FromPart::Gathered { key: key.public().to_string(), door: door.address })?;

    let Ok(Word::Said(ToPart::Settle { host, hosts })) = words.recv() else { return Ok(None) };
    let settled = among(host, key, door.address, hosts).and_then(|hosts| crew.settle(Some(hosts)));
    // The agent has it now.
    drop(door);
    if let Err(error) = settled {
        return refuse(words, output, &error);
    }
    conversation::write(output, &FromPart::Settled)?;
    Ok(matches!(words.recv(), Ok(Word::Said(ToPart::Start))).then_some(crew))
}

/// Puts what was sent in its place, and says of what was not that it could be.
fn gather(mut plan: Plan, files: Option<&Tree>) -> Result<Crew, LaunchError> {
    if let Some(files) = files {
        if plan.is_sent {
            plan.program = files.inside().join(&plan.program).into_os_string();
        }
        plan.directory = Some(files.inside().into_os_string());
    }
    Crew::gather(plan).map_err(|error| match error {
        LaunchError::NoProgram { program, source }
            if files.is_none() && source.kind() == ErrorKind::NotFound =>
        {
            LaunchError::NotShared(program)
        }
        LaunchError::NoDirectory(directory) if files.is_none() => LaunchError::NotShared(directory),
        error => error,
    })
}

/// Says why, and waits until the launcher has read it: what it has not read is lost with some shells.
fn refuse(
    words: &mpsc::Receiver<Word>,
    output: &mut impl Write,
    error: &LaunchError,
) -> std::io::Result<Option<Crew>> {
    conversation::write(output, &FromPart::Refused(error.to_string()))?;
    while !matches!(words.recv(), Ok(Word::Over) | Err(_)) {}
    Ok(None)
}

fn run(
    crew: Crew,
    words: &mpsc::Receiver<Word>,
    mut output: impl Write + Send + 'static,
) -> std::io::Result<()> {
    let (sender, events) = mpsc::sync_channel(EVENTS);
    let watched = crew.start(sender).map_err(std::io::Error::other)?;
    std::thread::Builder::new().name("comb-part-mouth".into()).spawn(move || {
        for event in events {
            if conversation::write(&mut output, &FromPart::Event(event)).is_err() {
                return;
            }
        }
    })?;
    // The agent stays when all components have ended: other hosts' components may still be told of it.
    while let Ok(Word::Said(message)) = words.recv() {
        if let ToPart::Order(order) = message {
            watched.order(order);
        }
    }
    Ok(())
}

/// A TCP port that is ours before the agent listens there: all hosts are told of all ports first.
struct Door {
    address: SocketAddr,
    /// Bound and not listening: the agent may bind the same, and nobody else gets it.
    _bound: OwnedFd,
}

impl Door {
    fn reserve(address: IpAddr) -> Result<Self, LaunchError> {
        let reserve = || {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let flags = rustix::net::SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            // As the agent's listener does: only with both can they be on one port.
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &SocketAddr::new(address, 0))?;
            let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
            Ok(Self { address: bound, _bound: socket })
        };
        reserve().map_err(|error: rustix::io::Errno| LaunchError::Door { address, source: error.into() })
    }
}

fn among(
    name: String,
    key: HostKey,
    listen: SocketAddr,
    hosts: Vec<Neighbour>,
) -> Result<Hosts, LaunchError> {
    let file: String = hosts.iter().map(|host| format!("{} = {}\n", host.name, host.key)).collect();
    let known = KnownHosts::parse(&file, Path::new("the launcher's list of hosts"));
    let known = known.map_err(|error| LaunchError::Deal(error.to_string()))?;
    let others = hosts.into_iter().filter(|host| host.name != name);
    let addresses: BTreeMap<_, _> = others.map(|host| (host.name, host.door)).collect();
    Ok(Hosts { name, key, known, listen, addresses, plain: false, af_xdp: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What [`Door`] relies on of the kernel.
    #[test]
    fn a_reserved_port_is_the_agents_and_nobody_elses() {
        let ours = Door::reserve("127.0.0.1".parse().unwrap()).unwrap();
        // Nobody who does not say that it may be in use.
        let stranger = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(rustix::net::bind(&stranger, &ours.address), Err(rustix::io::Errno::ADDRINUSE));
        let listener = std::net::TcpListener::bind(ours.address).unwrap();
        drop(ours);
        std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    }
}
