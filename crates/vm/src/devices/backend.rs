//! The device's side of vhost-user: front-ends come by Unix sockets, bring their guests' memory and rings, and go.
//!
//! One process serves one device, with as many front-ends as come, in one thread. An engine that says what it may not loses its connection, and nothing else
//! happens. A guest that writes what can not be into a ring has that ring stand still. Neither can make the process wait: messages are taken when they are
//! there as a whole, kicks are never read, and whoever has more to be done than a turn gets in line again.

mod connection;
mod ring;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

pub use connection::{Connection, Fault};
pub use ring::{Chain, Memory, Ring};

use connection::Line;

/// A front-end, as long as it is here. Numbers of those that have gone are given again.
pub type Port = u32;

/// What a front-end is offered.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The features of the device, by their bits; those of rings and of the transport are added.
    pub features: u64,
    /// How many rings it has.
    pub rings: u16,
    /// What a ring holds at most: a power of two.
    pub ring_size: u16,
    /// What the driver reads of the device's configuration.
    pub configuration: Vec<u8>,
    /// What the engine keeps for the device.
    pub keepsake: Option<Arc<Keepsake>>,
}

/// A file that an engine has as long as it has its guest, and gives back when it comes again ([`Device::kept`]): so what is in it outlives the device's process,
/// and not the guest.
#[derive(Debug)]
pub struct Keepsake {
    /// The file.
    pub file: File,
    /// Whole pages of it, in which the engine may write.
    pub scratch: Range<u64>,
}

/// Whether a device has done what there was to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It has, and is called when there is news.
    Done,
    /// It has not, and is called again when the others have had their turn.
    Again,
    /// It has, and looks for more before it is told, as soon as everybody else has done what there was.
    Soon,
}

/// A device.
pub trait Device {
    /// A front-end has come by this socket, by its number in the order of [`Backend::listen`]. `None` turns it away.
    fn connected(&mut self, port: Port, socket: usize) -> Option<Offer>;

    /// There may be news on a ring: it was kicked, or it has started. What is taken from a ring is put back before the end of the turn, in the order in which
    /// it was taken: so a device that is killed and started again goes on at what has not been put back.
    fn serve(&mut self, ports: &mut Ports, port: Port, ring: usize) -> Turn;

    /// A descriptor of the device's own can be read ([`Backend::watch`]).
    fn ready(&mut self, _ports: &mut Ports, _name: u32) -> Turn {
        Turn::Done
    }

    /// The engine says that it has got this file from the device, before any ring starts. That may be a lie.
    fn kept(&mut self, _port: Port, _file: File) -> io::Result<()> {
        Ok(())
    }

    /// A front-end has gone, or is sent away for what it said.
    fn disconnected(&mut self, port: Port, why: Result<(), Fault>);
}

/// The front-ends that are here.
#[derive(Default)]
pub struct Ports {
    lines: Vec<Option<Line>>,
    waiting: usize,
}

impl Ports {
    /// What is known of a front-end.
    pub fn get(&mut self, port: Port) -> Option<&mut Connection> {
        Some(&mut self.lines.get_mut(port as usize)?.as_mut()?.connection)
    }

    /// Whether anybody waits for a turn besides who has it.
    pub fn others_wait(&self) -> bool {
        self.waiting > 0
    }

    /// A ring of a front-end.
    pub fn ring(&mut self, port: Port, ring: usize) -> Option<&mut Ring> {
        self.get(port)?.rings.get_mut(ring)
    }
}

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Socket(u32),
    Messages(Port),
    Ring(Port, u16),
    Own(u32),
}

impl Token {
    fn number(self) -> EventData {
        let (kind, which, ring) = match self {
            Token::Socket(which) => (0, which, 0),
            Token::Messages(port) => (1, port, 0),
            Token::Ring(port, ring) => (2, port, ring),
            Token::Own(name) => (3, name, 0),
        };
        EventData::new_u64(kind << 48 | u64::from(ring) << 32 | u64::from(which))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts that `number` put together")]
    fn of(data: EventData) -> Self {
        let (number, which) = (data.u64(), data.u64() as u32);
        match number >> 48 {
            0 => Token::Socket(which),
            1 => Token::Messages(which),
            2 => Token::Ring(which, (number >> 32) as u16),
            _ => Token::Own(which),
        }
    }
}

/// A device, and what it hears.
pub struct Backend<D> {
    /// The device.
    pub device: D,
    epoll: Arc<OwnedFd>,
    sockets: Vec<UnixListener>,
    ports: Ports,
    again: VecDeque<Token>,
    /// Somebody in line has something to be done now.
    is_urgent: bool,
}

impl<D: Device> Backend<D> {
    /// Without front-ends yet.
    pub fn new(device: D) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let (ports, again) = (Ports::default(), VecDeque::new());
        Ok(Self { device, epoll, sockets: Vec::new(), ports, again, is_urgent: false })
    }

    /// Front-ends may come by this path.
    pub fn listen(&mut self, path: &Path) -> io::Result<()> {
        let socket = socket_at(path)?;
        let token = Token::Socket(self.sockets.len().try_into().map_err(io::Error::other)?);
        epoll::add(&self.epoll, &socket, token.number(), EventFlags::IN | EventFlags::ET)?;
        self.sockets.push(socket);
        Ok(())
    }

    /// Calls [`Device::ready`] with this name as long as the descriptor can be read. It is watched until it is closed everywhere.
    pub fn watch(&mut self, descriptor: impl AsFd, name: u32) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, Token::Own(name).number(), EventFlags::IN)?)
    }

    /// Calls [`Device::ready`] with this name whenever there is more that can be read from the descriptor, or room again to write to it.
    pub fn watch_both_ways(&mut self, descriptor: impl AsFd, name: u32) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        Ok(epoll::add(&self.epoll, descriptor, Token::Own(name).number(), flags)?)
    }

    /// Serves for ever.
    pub fn run(&mut self) -> io::Result<Infallible> {
        loop {
            self.turn(None)?;
        }
    }

    /// Waits for news, so long at most, and serves each that has some once.
    pub fn turn(&mut self, longest: Option<Duration>) -> io::Result<()> {
        if !self.again.is_empty() && !self.is_urgent {
            std::thread::yield_now();
        }
        let longest = if self.again.is_empty() { longest } else { Some(Duration::ZERO) };
        let longest =
            longest.map(|longest| Timespec::try_from(longest).map_err(io::Error::other)).transpose()?;
        let mut events =
            [const { epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 64];
        let count = match epoll::wait(&self.epoll, &mut events, longest.as_ref()) {
            Err(rustix::io::Errno::INTR) => 0,
            count => count?,
        };
        for event in &events[..count] {
            let data = event.data;
            self.line_up(Token::of(data));
        }
        self.is_urgent = false;
        // Who comes again is let in after it was heard that it had gone.
        self.again.make_contiguous().sort_by_key(|token| matches!(token, Token::Socket(_)));
        for _ in 0..self.again.len() {
            if let Some(token) = self.again.pop_front() {
                self.ports.waiting = self.again.len();
                self.serve(token);
            }
        }
        Ok(())
    }

    /// Whoever has something to be done is in line once, however often it says so.
    fn line_up(&mut self, token: Token) {
        self.is_urgent = true;
        if !self.again.contains(&token) {
            self.again.push_back(token);
        }
    }

    fn serve(&mut self, token: Token) {
        let turn = match token {
            Token::Socket(socket) => {
                self.accept(socket as usize);
                Turn::Done
            }
            Token::Messages(port) => self.hear(port),
            Token::Ring(port, ring) => match self.ports.ring(port, ring.into()) {
                Some(running) if running.is_running() => {
                    self.device.serve(&mut self.ports, port, ring.into())
                }
                _ => Turn::Done,
            },
            Token::Own(name) => self.device.ready(&mut self.ports, name),
        };
        match turn {
            Turn::Done => {}
            Turn::Again => self.line_up(token),
            Turn::Soon => self.again.push_back(token),
        }
    }

    fn accept(&mut self, socket: usize) {
        while let Ok((stream, _)) = self.sockets[socket].accept() {
            let free = self.ports.lines.iter().position(Option::is_none).unwrap_or(self.ports.lines.len());
            let Ok(port) = Port::try_from(free) else { return };
            let Some(offer) = self.device.connected(port, socket) else { continue };
            let line = Line::new(stream, Connection::new(port, &self.epoll, offer)).and_then(|line| {
                let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
                epoll::add(&self.epoll, line.socket(), Token::Messages(port).number(), flags)?;
                Ok(line)
            });
            match line {
                Ok(line) if free == self.ports.lines.len() => self.ports.lines.push(Some(line)),
                Ok(line) => self.ports.lines[free] = Some(line),
                Err(error) => self.device.disconnected(port, Err(error.into())),
            }
        }
    }

    /// Takes what a front-end says.
    fn hear(&mut self, port: Port) -> Turn {
        let Some(line) = self.ports.lines.get_mut(port as usize).and_then(Option::as_mut) else {
            return Turn::Done;
        };
        let mut heard = line.hear();
        if let Some(file) = line.connection.take_kept() {
            heard = heard.and_then(|turn| self.device.kept(port, file).map(|()| turn).map_err(Fault::Kept));
        }
        for ring in line.connection.take_news() {
            self.line_up(Token::Ring(port, ring));
        }
        match heard {
            Ok(Some(turn)) => return turn,
            Ok(None) => self.part(port, Ok(())),
            Err(fault) => self.part(port, Err(fault)),
        }
        Turn::Done
    }

    /// Has a front-end go, if it is here.
    pub fn send_away(&mut self, port: Port) {
        if self.ports.get(port).is_some() {
            self.part(port, Ok(()));
        }
    }

    fn part(&mut self, port: Port, why: Result<(), Fault>) {
        self.ports.lines[port as usize] = None;
        self.device.disconnected(port, why);
    }
}

/// A socket at this path. One that a process which was killed has left there is replaced.
pub fn socket_at(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    let socket = UnixListener::bind(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_went() {
        for token in [
            Token::Socket(7),
            Token::Messages(u32::MAX),
            Token::Ring(u32::MAX, u16::MAX),
            Token::Ring(0, 1),
            Token::Own(u32::MAX),
        ] {
            assert_eq!(Token::of(token.number()), token);
        }
    }
}
