//! A switch with its sockets.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::addresses::{MOST_MACHINES, Network};
use super::control::{Command, Control, Join, Joined, NewPort, WayOut};
use super::gateway::stream::Stream;
use super::gateway::{Gateway, Outside};
use super::subnet::{Counters, PortError, PortId};
use super::{CONTROL, OTHERWISE, Switch};
use crate::devices::backend::{Backend, socket_at};

/// By which a switch is asked, in its directory.
pub const CONTROL_SOCKET: &str = "control";

/// How often it is looked whether the way to the outside is there, and machines.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// A subnet without machines ends after so long: another may be on its way.
const ALONE_FOR: Duration = Duration::from_secs(5);

/// Why there is no switch, or no such port.
#[derive(thiserror::Error, Debug)]
pub enum SwitchError {
    /// The port can not be.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A socket or a file fails.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
    /// It has ports alone.
    #[error("this switch is no subnet that machines join")]
    NoSubnet,
    /// It has as many machines as there are addresses.
    #[error("this subnet has {MOST_MACHINES} machines already")]
    Full,
    /// Somebody else has come to it.
    #[error("that port is another machine's")]
    Taken,
    /// It has another way.
    #[error("the way out of this subnet is {0}: all machines on it have the same one, or none")]
    OtherWay(WayOut),
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
    /// The name of its subnet, which machines join and leave; it ends when none is left.
    pub subnet: Option<String>,
}

/// Is a switch, until it fails, or until it has been alone for long.
pub fn serve(options: &Options) -> Result<(), SwitchError> {
    let mut running = Running::new(&options.directory)?;
    running.network = options.subnet.as_deref().map(Network::of);
    options.ports.iter().try_for_each(|port| running.add_port(port))?;
    if let Some(outside) = &options.gateway {
        running.add_gateway(outside)?;
    }
    while options.subnet.is_none() || running.alone_since.elapsed() < ALONE_FOR {
        running.turn().map_err(|error| SwitchError::Io(options.directory.clone(), error))?;
    }
    Ok(())
}

/// A machine that has joined, for as long as its line stands.
struct Machine {
    line: UnixStream,
    port: PortId,
    /// By which its engine comes, once, if it shows no memory.
    comes: Option<UnixListener>,
}

/// A switch that can be reached: each port by `NAME.socket` in its directory, and the switch itself by `control`.
pub struct Running {
    backend: Backend<Switch>,
    control: Control,
    directory: PathBuf,
    /// Whose machines join it.
    network: Option<Network>,
    machines: Vec<Machine>,
    alone_since: Instant,
    outside: Option<(WayOut, Outside)>,
    looked: Instant,
}

impl Running {
    /// A switch without ports, in this directory, which is made if there is none.
    pub fn new(directory: &Path) -> Result<Self, SwitchError> {
        let path = directory.join(CONTROL_SOCKET);
        let of = |error| SwitchError::Io(path.clone(), error);
        std::fs::create_dir_all(directory).map_err(|error| SwitchError::Io(directory.to_owned(), error))?;
        let mut backend = Backend::new(Switch::new()).map_err(of)?;
        let socket = socket_at(&path).map_err(of)?;
        backend.watch(&socket, CONTROL).map_err(of)?;
        let (control, directory, now) = (Control::new(socket), directory.to_owned(), Instant::now());
        let (network, machines, outside) = (None, Vec::new(), None);
        Ok(Self { backend, control, directory, network, machines, alone_since: now, outside, looked: now })
    }

    /// One more port.
    pub fn add_port(&mut self, port: &NewPort) -> Result<(), SwitchError> {
        let path = self.directory.join(format!("{}.socket", port.name));
        self.port_at(port, &path).map(drop)
    }

    fn port_at(&mut self, port: &NewPort, path: &Path) -> Result<PortId, SwitchError> {
        let subnet = &mut self.backend.device.subnet;
        let id = subnet.add(&port.name, Some(port.address))?;
        if let Err(error) = self.backend.listen(path) {
            self.backend.device.subnet.forget_last();
            return Err(SwitchError::Io(path.to_owned(), error));
        }
        self.backend.device.sockets.push(id);
        Ok(id)
    }

    /// The way to the outside.
    pub fn add_gateway(&mut self, outside: &Outside) -> Result<(), SwitchError> {
        let gateway = Gateway::open(outside).map_err(|error| SwitchError::Io(outside.path(), error))?;
        let id = self.backend.device.subnet.add("gateway", None)?;
        self.put(id, gateway)?;
        let way = match outside {
            Outside::Tap(device) => WayOut::Tap(device.clone()),
            Outside::Nat(_) | Outside::Stream(_) => WayOut::Nat,
        };
        self.outside = Some((way, outside.clone()));
        Ok(())
    }

    /// Something is at a port that no front-end comes to.
    fn put(&mut self, port: PortId, what: Gateway) -> Result<(), SwitchError> {
        let name = OTHERWISE + u32::try_from(port).expect("ports are few");
        let watched = self.backend.watch_both_ways(&what, name);
        watched.map_err(|error| SwitchError::Io(self.directory.clone(), error))?;
        self.backend.device.otherwise.insert(port, what);
        Ok(())
    }

    /// What became of each port's frames.
    pub fn counters(&self) -> impl Iterator<Item = (&str, Counters)> {
        let ports = self.backend.device.subnet.ports().iter();
        ports.filter(|port| !port.name.is_empty()).map(|port| (port.name.as_str(), port.counters))
    }

    /// Waits for news, and serves each that has some once.
    pub fn turn(&mut self) -> io::Result<()> {
        self.backend.turn(Some(BETWEEN_LOOKS))?;
        if std::mem::take(&mut self.backend.device.is_asked) {
            self.control.accept(|stream| self.backend.watch(stream, CONTROL));
            self.let_go();
            self.let_in();
            for (stream, command) in self.control.take_asked() {
                self.answer(stream, command);
            }
        }
        if !self.machines.is_empty() {
            self.alone_since = Instant::now();
        }
        if self.looked.elapsed() >= BETWEEN_LOOKS {
            self.looked = Instant::now();
            self.look_outside();
        }
        Ok(())
    }

    /// What is outside may have ended, and be there again.
    fn look_outside(&mut self) {
        let (Some((_, outside)), Some(port)) = (&self.outside, self.backend.device.subnet.gateway()) else {
            return;
        };
        let is_open = self.backend.device.otherwise.get_mut(&port).is_some_and(Gateway::is_open);
        if !is_open && let Ok(gateway) = Gateway::open(outside) {
            let _ = self.put(port, gateway);
        }
    }

    /// Those whose lines have ended have left.
    fn let_go(&mut self) {
        let mut left = Vec::new();
        self.machines.retain(|machine| {
            let mut line = &machine.line;
            let is_here =
                matches!(line.read(&mut [0; 64]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            if !is_here {
                left.push(machine.port);
            }
            is_here
        });
        for &port in &left {
            let device = &mut self.backend.device;
            device.subnet.free(port);
            device.otherwise.remove(&port);
            if let Some(front_end) = device.here.get(&port).copied() {
                self.backend.send_away(front_end);
            }
        }
        if !left.is_empty() {
            self.tell_names();
        }
    }

    /// Engines that show no memory have come.
    fn let_in(&mut self) {
        let mut came = Vec::new();
        for machine in &self.machines {
            if let Some(Ok((stream, _))) = machine.comes.as_ref().map(UnixListener::accept) {
                came.push((machine.port, stream));
            }
        }
        for (port, stream) in came {
            let _ = Stream::new(stream).map(|stream| self.put(port, Gateway::Stream(stream)));
        }
    }

    fn answer(&mut self, mut stream: UnixStream, command: Result<Command, String>) {
        let said = match command {
            Ok(Command::Port(port)) => match self.add_port(&port) {
                Ok(()) => "ok".to_owned(),
                Err(error) => error.to_string(),
            },
            Ok(Command::Counters) => {
                let named = self.counters().map(|(name, counters)| (name.to_owned(), json!(counters)));
                Value::from_iter(named).to_string()
            }
            Ok(Command::Join(join)) => match self.join(&join) {
                Ok((joined, port, comes)) => {
                    let _ = writeln!(stream, "{}", json!(joined));
                    self.machines.push(Machine { line: stream, port, comes });
                    self.tell_names();
                    return;
                }
                Err(error) => error.to_string(),
            },
            Err(error) => error,
        };
        // It has room for an answer, or nobody is there.
        let _ = writeln!(stream, "{said}");
    }

    fn join(&mut self, join: &Join) -> Result<(Joined, PortId, Option<UnixListener>), SwitchError> {
        let network = self.network.ok_or(SwitchError::NoSubnet)?;
        match (&join.way, &self.outside) {
            (WayOut::Inside, _) => {}
            (wanted, Some((way, _))) if wanted == way => {}
            (_, Some((way, _))) => return Err(SwitchError::OtherWay(way.clone())),
            (WayOut::Nat, None) => self.add_gateway(&Outside::Nat(network))?,
            (WayOut::Tap(device), None) => self.add_gateway(&Outside::Tap(device.clone()))?,
        }
        // A switch that was started anew has no ports yet, and whoever was there has one of this number.
        while join.number.is_some_and(|number| self.backend.device.sockets.len() <= number.into()) {
            let port = self.one_more("to-be-taken", network)?;
            self.backend.device.subnet.free(port);
        }
        let wanted = join.number.and_then(|number| self.backend.device.sockets.get(usize::from(number)));
        let port = match self.backend.device.subnet.take(&join.name, wanted.copied())? {
            Some(port) => port,
            None if join.number.is_some() => return Err(SwitchError::Taken),
            None => self.one_more(&join.name, network)?,
        };
        let number = self.number(port).ok_or(SwitchError::Full)?;
        let (mut socket, mut comes) = (self.directory.join(format!("{number}.socket")), None);
        if !join.shows_memory {
            socket.set_extension("stream");
            let of = |error| SwitchError::Io(socket.clone(), error);
            let _ = std::fs::remove_file(&socket);
            let listener = socket_at(&socket).map_err(of)?;
            self.backend.watch(&listener, CONTROL).map_err(of)?;
            comes = Some(listener);
        }
        // By a TAP device addresses are the host's affair, and these are as good as others.
        let has_way = join.way != WayOut::Inside;
        let outside = has_way.then(|| [network.gateway(), network.resolver()]);
        let (mac, address) = (network.link_address(number).0, network.address(number));
        Ok((Joined { number, socket, mac, address, outside }, port, comes))
    }

    /// Which of the ports is this one that machines have.
    fn number(&self, port: PortId) -> Option<u8> {
        let at = self.backend.device.sockets.iter().position(|id| *id == port)?;
        u8::try_from(at).ok()
    }

    /// One more port for machines that join.
    fn one_more(&mut self, name: &str, network: Network) -> Result<PortId, SwitchError> {
        let machines = self.backend.device.sockets.len();
        let number = u8::try_from(machines).ok().filter(|_| machines < MOST_MACHINES);
        let number = number.ok_or(SwitchError::Full)?;
        let port = NewPort { name: name.to_owned(), address: network.link_address(number) };
        self.port_at(&port, &self.directory.join(format!("{number}.socket")))
    }

    /// Tells all who there is.
    fn tell_names(&mut self) {
        let ports = self.backend.device.subnet.ports();
        let named = self.machines.iter().filter_map(|machine| {
            let address = self.network?.address(self.number(machine.port)?);
            Some((&ports[machine.port].name, address))
        });
        let line = json!(named.collect::<Vec<_>>());
        for machine in &mut self.machines {
            // Whoever does not read for so long that there is no room is told by the next one, if at all.
            let _ = write!(machine.line, "\n{line}\n");
        }
    }
}
