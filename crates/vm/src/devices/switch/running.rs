//! A switch with its sockets.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::control::{Command, Control, NewPort};
use super::gateway::{Gateway, Outside};
use super::subnet::{Counters, PortError};
use super::{CONTROL, GATEWAY, Switch};
use crate::devices::backend::{Backend, socket_at};

/// Why there is no switch, or no such port.
#[derive(thiserror::Error, Debug)]
pub enum SwitchError {
    /// The port can not be.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A socket or a file fails.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
}

/// What a switch is to be.
#[derive(Default, Debug)]
pub struct Options {
    /// Where its sockets are.
    pub directory: PathBuf,
    /// Its ports at first.
    pub ports: Vec<NewPort>,
    /// What its gateway is, if it has one.
    pub gateway: Option<Outside>,
}

/// Is a switch, until it fails.
pub fn serve(options: &Options) -> Result<Infallible, SwitchError> {
    let mut running = Running::new(&options.directory)?;
    options.ports.iter().try_for_each(|port| running.add_port(port))?;
    if let Some(outside) = &options.gateway {
        running.add_gateway(outside)?;
    }
    loop {
        running.turn().map_err(|error| SwitchError::Io(options.directory.clone(), error))?;
    }
}

/// A switch that can be reached: each port by `NAME.socket` in its directory, and the switch itself by `control`.
pub struct Running {
    backend: Backend<Switch>,
    control: Control,
    directory: PathBuf,
}

impl Running {
    /// A switch without ports, in this directory, which is made if there is none.
    pub fn new(directory: &Path) -> Result<Self, SwitchError> {
        let path = directory.join("control");
        let of = |error| SwitchError::Io(path.clone(), error);
        std::fs::create_dir_all(directory).map_err(|error| SwitchError::Io(directory.to_owned(), error))?;
        let mut backend = Backend::new(Switch::new()).map_err(of)?;
        let socket = socket_at(&path).map_err(of)?;
        backend.watch(&socket, CONTROL).map_err(of)?;
        Ok(Self { backend, control: Control::new(socket), directory: directory.to_owned() })
    }

    /// One more port.
    pub fn add_port(&mut self, port: &NewPort) -> Result<(), SwitchError> {
        let subnet = &mut self.backend.device.subnet;
        let id = subnet.add(&port.name, Some(port.address))?;
        let path = self.directory.join(format!("{}.socket", port.name));
        if let Err(error) = self.backend.listen(&path) {
            self.backend.device.subnet.forget_last();
            return Err(SwitchError::Io(path, error));
        }
        self.backend.device.sockets.push(id);
        Ok(())
    }

    /// The way to the outside.
    pub fn add_gateway(&mut self, outside: &Outside) -> Result<(), SwitchError> {
        let of = |error| SwitchError::Io(outside.path(), error);
        let gateway = Gateway::open(outside).map_err(of)?;
        let id = self.backend.device.subnet.add("gateway", None)?;
        self.backend.watch_both_ways(&gateway, GATEWAY).map_err(of)?;
        self.backend.device.gateway = Some((id, gateway));
        Ok(())
    }

    /// What became of each port's frames.
    pub fn counters(&self) -> impl Iterator<Item = (&str, Counters)> {
        self.backend.device.subnet.ports().iter().map(|port| (port.name.as_str(), port.counters))
    }

    /// Waits for news, and serves each that has some once.
    pub fn turn(&mut self) -> io::Result<()> {
        self.backend.turn(None)?;
        if std::mem::take(&mut self.backend.device.is_asked) {
            self.control.accept(|stream| self.backend.watch(stream, CONTROL));
            for (mut stream, command) in self.control.take_asked() {
                // It has room for an answer, or nobody is there.
                let _ = writeln!(stream, "{}", self.answer(command));
            }
        }
        Ok(())
    }

    fn answer(&mut self, command: Result<Command, String>) -> String {
        match command {
            Ok(Command::Port(port)) => match self.add_port(&port) {
                Ok(()) => "ok".to_owned(),
                Err(error) => error.to_string(),
            },
            Ok(Command::Counters) => {
                let named = self.counters().map(|(name, counters)| (name.to_owned(), json!(counters)));
                Value::from_iter(named).to_string()
            }
            Err(error) => error,
        }
    }
}
