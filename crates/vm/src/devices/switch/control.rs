//! What can be asked of a switch while it runs: a line each, by a socket of its own.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::str::FromStr;

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
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        match line.trim().split_once(' ') {
            Some(("port", port)) => Ok(Command::Port(port.parse()?)),
            None if line.trim() == "counters" => Ok(Command::Counters),
            _ => Err(format!("{:?} is neither \"port NAME=MAC\" nor \"counters\"", line.trim())),
        }
    }
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
        for line in ["", "port", "port a", "port a=1", "counters now", "counter"] {
            let said = line.parse::<Command>().expect_err(line);
            assert!(said.contains("is not") || said.contains("is neither"), "{said}");
        }
    }
}
