//! What can be asked of a switch while it runs: a line each, by a socket of its own.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::addresses::MOST_MACHINES;
use super::subnet::Address;

/// Who asks and has not finished a line; the one that has waited longest is sent away for one more.
const MOST_ASKING: usize = 16;
const LONGEST_LINE: usize = 256;

/// A port to be made: `NAME=MAC`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPort {
    /// What people call it.
    pub name: String,
    /// The address that it may use.
    pub address: Address,
}

impl FromStr for NewPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=MAC"))?;
        let address = address.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name: name.to_owned(), address })
    }
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// `port NAME=MAC`: one more port.
    Port(NewPort),
    /// `counters`: what became of each port's frames.
    Counters,
    /// `join NAME (memory|stream) (inside|nat|tap=DEVICE) (NUMBER|any)`: a port for as long as the line stands by which this is asked.
    Join(Join),
}

/// A machine comes to the subnet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// What it is called.
    pub name: String,
    /// Its engine shows its memory, and comes to a socket for that; or it sends a stream of frames.
    pub shows_memory: bool,
    /// Where it wants a way to.
    pub way: WayOut,
    /// The port that it had before.
    pub number: Option<u8>,
}

/// What a machine wants to reach besides the subnet.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum WayOut {
    /// Nothing.
    #[default]
    Inside,
    /// What this host's user reaches.
    Nat,
    /// The host's network, by a TAP device of this name.
    Tap(String),
}

impl FromStr for WayOut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let may_be = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        match (text, text.strip_prefix("tap=")) {
            ("inside", _) => Ok(WayOut::Inside),
            ("nat", _) => Ok(WayOut::Nat),
            (_, Some(device)) if (1..16).contains(&device.len()) && device.chars().all(may_be) => {
                Ok(WayOut::Tap(device.to_owned()))
            }
            _ => Err(format!(
                "{text:?} is no way out: say inside, nat, or tap=DEVICE with up to 15 letters and digits"
            )),
        }
    }
}

impl fmt::Display for WayOut {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WayOut::Inside => to.write_str("inside"),
            WayOut::Nat => to.write_str("nat"),
            WayOut::Tap(device) => write!(to, "tap={device}"),
        }
    }
}

/// What a machine that has joined is told first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// Which port it has.
    pub number: u8,
    /// Where its engine finds that.
    pub socket: PathBuf,
    /// Its link-level address.
    pub mac: [u8; 6],
    /// Its address, in a network of 256.
    pub address: Ipv4Addr,
    /// By which all others are reached, and who knows their names.
    pub outside: Option<[Ipv4Addr; 2]>,
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        match line.trim().split_once(' ') {
            Some(("port", port)) => Ok(Command::Port(port.parse()?)),
            Some(("join", machine)) => match *machine.split(' ').collect::<Vec<_>>() {
                [name, by @ ("memory" | "stream"), way, number] if number == "any" || is_number(number) => {
                    Ok(Command::Join(Join {
                        name: name.to_owned(),
                        shows_memory: by == "memory",
                        way: way.parse()?,
                        number: number.parse().ok(),
                    }))
                }
                _ => Err(format!(
                    "{machine:?} is not NAME (memory|stream) (inside|nat|tap=DEVICE) (NUMBER|any)"
                )),
            },
            None if line.trim() == "counters" => Ok(Command::Counters),
            _ => Err(format!("{:?} is neither \"port NAME=MAC\", \"join …\" nor \"counters\"", line.trim())),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u8>().is_ok_and(|number| usize::from(number) < MOST_MACHINES)
}

/// The socket, and who asks by it.
pub(super) struct Control {
    socket: UnixListener,
    asking: VecDeque<(UnixStream, Vec<u8>)>,
}

impl Control {
    pub(super) fn new(socket: UnixListener) -> Self {
        Self { socket, asking: VecDeque::new() }
    }

    /// Lets in who has come; `watch` has it said when they say something.
    pub(super) fn accept(&mut self, mut watch: impl FnMut(&UnixStream) -> io::Result<()>) {
        while let Ok((stream, _)) = self.socket.accept() {
            if stream.set_nonblocking(true).and_then(|()| watch(&stream)).is_ok() {
                self.asking.truncate(MOST_ASKING - 1);
                self.asking.push_front((stream, Vec::new()));
            }
        }
    }

    /// Takes what was asked by now, each with who is to be answered.
    pub(super) fn take_asked(&mut self) -> Vec<(UnixStream, Result<Command, String>)> {
        let mut asked = Vec::new();
        for (mut stream, mut line) in std::mem::take(&mut self.asking) {
            let mut bytes = [0; LONGEST_LINE];
            let count = match stream.read(&mut bytes) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.asking.push_back((stream, line));
                    continue;
                }
                Err(_) => 0,
            };
            line.extend_from_slice(&bytes[..count]);
            if line.contains(&b'\n') || line.len() >= LONGEST_LINE {
                let line = String::from_utf8_lossy(&line);
                asked.push((stream, line.lines().next().unwrap_or_default().parse()));
            } else if count > 0 {
                self.asking.push_back((stream, line));
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_says_what_one_is() {
        let address = Address([0x52, 0x54, 0, 0, 0, 1]);
        let port = NewPort { name: "a".into(), address };
        assert_eq!("port a=52:54:00:00:00:01\n".parse(), Ok(Command::Port(port)));
        assert_eq!("counters".parse(), Ok(Command::Counters));
        for way in [WayOut::Inside, WayOut::Nat, WayOut::Tap("tap-7".into())] {
            let join = Join { name: "a".into(), shows_memory: false, way: way.clone(), number: Some(7) };
            assert_eq!(format!("join a stream {way} 7").parse(), Ok(Command::Join(join)));
        }
        let ways = ["out any", "tap= any", "tap=a/b 1", "tap=a,b any", "nat 252", "nat -1"];
        assert!(ways.iter().all(|way| format!("join a stream {way}").parse::<Command>().is_err()));
        assert!("join a stream nat any".parse::<Command>().is_ok());
        for line in ["", "port", "port a", "port a=1", "counters now", "counter", "join a", "join a by nat"] {
            let said = line.parse::<Command>().expect_err(line);
            assert!(said.contains("is not") || said.contains("is neither"), "{said}");
        }
    }
}
