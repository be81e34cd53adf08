//! The fast transport between machines: frames go between the network driver and our own memory, past the kernel's
//! protocols. (AF_XDP; the role that the U-Net interface plays in the thesis, chapter 2.)
//!
//! A program of a dozen instructions on the interface hands the datagrams of our port to this socket and lets all others
//! pass to the kernel. What goes over the wire is the same UDP datagram as [`crate::udp`] sends, so the two ends of a
//! channel may differ: one that cannot do this uses UDP and the other does not notice.
//!
//! Receiving is a look at a ring in shared memory: no system call. Sending is one system call in copy mode, which is what
//! virtual interfaces have; a driver that polls by itself says so in the ring's flags, and then it is none.
//!
//! **Limits.** IPv4; the peer on the same link (its hardware address is asked of the kernel); one channel for each
//! interface queue, because a queue has one owner; root, or CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW. UDP's checksum is
//! neither made nor checked: sealed frames carry a better proof. Everything goes with the last descriptor, however the
//! process ends: the program is attached by a BPF link, which the kernel takes off when its owner is gone.

mod interface;
mod memory;
mod program;

use std::net::SocketAddrV4;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use xdpilone::{DeviceQueue, IfInfo, RingRx, RingTx, Socket, SocketConfig, Umem, User, xdp::XdpDesc};

use crate::datagram::{Datagrams, Session, Wire};
use crate::mechanism::{Mechanism, Probe};
use crate::seal::{HEADER_BYTES, TAG_BYTES};
use crate::transport::Transport;
use crate::udp::UdpTransport;
use interface::Interface;
use memory::Memory;
use program::Program;

/// Ethernet, IPv4 without options, UDP.
const NETWORK_HEADER_BYTES: usize = 14 + 20 + 8;

/// One Ethernet packet of the usual size, without the kernel's help to cut a longer one.
const LONGEST_MESSAGE: usize = 1500 - 20 - 8 - HEADER_BYTES - TAG_BYTES;

/// A chunk takes one packet, and 256 bytes that the kernel keeps free before it.
const CHUNK_BYTES: u32 = 2048;
/// Chunks that wait for packets: what may come while the endpoint looks elsewhere.
const RECEIVE_CHUNKS: u32 = 256;
/// Chunks on their way out.
const SEND_CHUNKS: u32 = 64;

/// Packets on our port that are not the peer's, looked at in one go.
const STRAYS_A_LOOK: usize = 64;

/// How long to wait for what may still come.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// A queue whose owner is gone looks taken for a while.
    queue: Duration,
    /// A neighbour that was never asked says its hardware address after a while. The kernel asks again after a second,
    /// which a link that has just come up needs.
    neighbour: Duration,
}

impl Patience {
    const USUAL: Self = Self { queue: Duration::from_millis(250), neighbour: Duration::from_millis(2500) };
    /// For a thread that others wait for.
    const NONE: Self = Self { queue: Duration::ZERO, neighbour: Duration::ZERO };
}

/// The Ethernet interface of this thread's network namespace that has the address.
pub(crate) fn interface_with(address: std::net::IpAddr) -> Option<String> {
    match address {
        std::net::IpAddr::V4(address) => Interface::of(address).map(|interface| interface.name),
        std::net::IpAddr::V6(_) => None,
    }
}

/// Where in the kernel the program looks at packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Attach {
    /// When they have come to the protocols. Every interface can do this; and on a virtual cable, where a packet is a
    /// buffer of the kernel's from the start, it is the faster way (0.5 × UDP's round trip here, where the driver's
    /// way, which moves each packet to a page first, takes 0.64 ×).
    #[default]
    Generic,
    /// In the driver, before there is a buffer: for network cards.
    Driver,
}

/// Why there is no such transport here. UDP is there instead.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The kernel has none, or it was switched off by `COMB_WITHOUT`.
    #[error("AF_XDP is not available")]
    Unavailable,
    /// The socket is not connected over IPv4.
    #[error("AF_XDP needs a connected IPv4 UDP socket")]
    NotIpv4,
    /// No Ethernet interface has this address: the loopback, or a tunnel.
    #[error("no Ethernet interface has the address {0}")]
    NoInterface(std::net::Ipv4Addr),
    /// The peer's hardware address is not known: it is not on this link, or not there.
    #[error("{0} does not answer on {1}")]
    NoNeighbour(std::net::Ipv4Addr, String),
    /// One of the steps was refused, mostly for want of privilege or because the queue has an owner already.
    #[error("{step}: {error}")]
    System {
        /// Which step.
        step: &'static str,
        /// Why.
        error: Errno,
    },
}

fn step(step: &'static str) -> impl Fn(Errno) -> XdpError {
    move |error| XdpError::System { step, error }
}

fn xdp_step(step: &'static str) -> impl Fn(xdpilone::Errno) -> XdpError {
    move |error| XdpError::System { step, error: Errno::from_raw_os_error(error.get_raw()) }
}

/// One end of a channel over AF_XDP.
pub type XdpTransport = Datagrams<XdpWire>;

impl XdpTransport {
    /// A channel over a wire that was opened for it.
    pub fn new(wire: XdpWire, mut session: Session) -> Self {
        session.longest_message = session.longest_message.min(LONGEST_MESSAGE);
        Self::over(wire, session)
    }
}

/// The fastest way over a connected UDP socket: AF_XDP where it can be had at once, else UDP. Frames that are longer than
/// a packet go over UDP, because the other end may, and both must have the same limit.
pub fn fastest(socket: OwnedFd, session: Session) -> Result<Box<dyn Transport>, Errno> {
    let wire = match session.longest_message <= LONGEST_MESSAGE {
        true => XdpWire::open_with(&socket, Attach::default(), Patience::NONE),
        false => Err(XdpError::Unavailable),
    };
    match wire {
        Ok(wire) => Ok(Box::new(XdpTransport::new(wire, session))),
        Err(_) => Ok(Box::new(UdpTransport::new(socket, session)?)),
    }
}

/// A queue of a network interface, its rings, and the memory that packets stand in.
pub struct XdpWire {
    // First, so that no packet is sent our way when the rest goes.
    _program: Program,
    rx: RingRx,
    tx: RingTx,
    device: DeviceQueue,
    /// Holds the port in the kernel: nobody else gets it, and nobody is told that it is closed.
    _port: OwnedFd,
    /// The same socket as the rings', for whoever waits.
    descriptor: OwnedFd,
    headers: Headers,
    /// Chunks that nothing is in.
    free: Vec<u64>,
    /// The chunk that was fetched, and where in it the frame stands.
    held: Option<(u64, std::ops::Range<usize>)>,
    strays: u64,
    // Last: the kernel holds on to the pages until the sockets are closed.
    _umem: Umem,
    memory: Memory,
}

impl std::fmt::Debug for XdpWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpWire").field("headers", &self.headers).finish_non_exhaustive()
    }
}

impl XdpWire {
    /// Takes queue 0 of the interface that `socket`, a connected UDP socket, sends through.
    pub fn open(socket: &OwnedFd) -> Result<Self, XdpError> {
        Self::open_at(socket, Attach::default())
    }

    /// The same, with a say in where the program is.
    pub fn open_at(socket: &OwnedFd, attach: Attach) -> Result<Self, XdpError> {
        Self::open_with(socket, attach, Patience::USUAL)
    }

    fn open_with(socket: &OwnedFd, attach: Attach, patience: Patience) -> Result<Self, XdpError> {
        if !Mechanism::AfXdp.is_available() {
            return Err(XdpError::Unavailable);
        }
        let (local, peer) = addresses(socket)?;
        let interface = Interface::of(*local.ip()).ok_or(XdpError::NoInterface(*local.ip()))?;
        let neighbour = interface::neighbour(*peer.ip(), &interface.name, patience.neighbour)
            .ok_or_else(|| XdpError::NoNeighbour(*peer.ip(), interface.name.clone()))?;
        let memory = Memory::map(CHUNK_BYTES as usize * (RECEIVE_CHUNKS + SEND_CHUNKS) as usize)
            .map_err(step("memory for packets"))?;
        let umem = memory.register().map_err(xdp_step("registering memory for packets"))?;

        let mut info = IfInfo::invalid();
        info.from_ifindex(interface.index).map_err(xdp_step("the interface"))?;
        info.set_queue(0);
        let xsk = Socket::with_shared(&info, &umem).map_err(xdp_step("the socket"))?;
        let mut device = umem.fq_cq(&xsk).map_err(xdp_step("the queue's rings"))?;
        let config = SocketConfig {
            rx_size: NonZeroU32::new(RECEIVE_CHUNKS),
            tx_size: NonZeroU32::new(SEND_CHUNKS),
            bind_flags: SocketConfig::XDP_BIND_NEED_WAKEUP | SocketConfig::XDP_BIND_COPY,
        };
        let user = umem.rx_tx(&xsk, &config).map_err(xdp_step("the socket's rings"))?;
        let rx = user.map_rx().map_err(xdp_step("the receive ring"))?;
        let tx = user.map_tx().map_err(xdp_step("the send ring"))?;
        bind(&umem, &user, patience.queue)?;

        let chunk = |number: u32| u64::from(number) * u64::from(CHUNK_BYTES);
        let mut fill = device.fill(RECEIVE_CHUNKS);
        fill.insert((0..RECEIVE_CHUNKS).map(chunk));
        fill.commit();
        drop(fill);
        let descriptor = memory::descriptor_of(&rx).map_err(step("the socket's descriptor"))?;
        let program = Program::attach(interface.index, local.port(), descriptor.as_fd(), attach)
            .map_err(|(what, error)| XdpError::System { step: what, error })?;
        Ok(Self {
            _program: program,
            rx,
            tx,
            device,
            _port: socket.try_clone().map_err(|_| step("the port")(Errno::MFILE))?,
            descriptor,
            headers: Headers::new(interface.address, neighbour, local, peer),
            free: (RECEIVE_CHUNKS..RECEIVE_CHUNKS + SEND_CHUNKS).map(chunk).collect(),
            held: None,
            strays: 0,
            _umem: umem,
            memory,
        })
    }

    /// Takes back the chunks that have been sent.
    #[inline]
    fn reap(&mut self) {
        let mut sent = self.device.complete(SEND_CHUNKS);
        while let Some(chunk) = sent.read() {
            self.free.push(chunk);
        }
        sent.release();
    }

    /// Gives the fetched chunk back for the next packet.
    #[inline]
    fn give_back(&mut self) {
        if let Some((chunk, _)) = self.held.take() {
            let mut fill = self.device.fill(1);
            fill.insert_once(chunk);
            fill.commit();
        }
    }
}

impl Wire for XdpWire {
    #[inline]
    fn space(&mut self) -> Option<&mut [u8]> {
        self.reap();
        let chunk = *self.free.last()?;
        let room = NETWORK_HEADER_BYTES..CHUNK_BYTES as usize;
        Some(&mut self.memory.chunk(chunk)[room])
    }

    #[inline]
    fn transmit(&mut self, bytes: usize) -> Result<(), Errno> {
        let Some(&chunk) = self.free.last() else { return Err(Errno::AGAIN) };
        self.headers.write(bytes, self.memory.chunk(chunk));
        let len = u32::try_from(NETWORK_HEADER_BYTES + bytes).expect("at most a chunk");
        let mut writer = self.tx.transmit(1);
        if !writer.insert_once(XdpDesc { addr: chunk, len, options: 0 }) {
            return Err(Errno::AGAIN);
        }
        writer.commit();
        drop(writer);
        self.free.pop();
        if self.tx.needs_wakeup() {
            // What the driver cannot take now stays in the ring for the next call.
            self.tx.wake();
        }
        Ok(())
    }

    #[inline]
    fn fetch(&mut self) -> bool {
        self.give_back();
        for _ in 0..STRAYS_A_LOOK {
            let mut reader = self.rx.receive(1);
            let Some(packet) = reader.read() else { return false };
            reader.release();
            drop(reader);
            let chunk = packet.addr - packet.addr % u64::from(CHUNK_BYTES);
            let start = usize::try_from(packet.addr - chunk).expect("within a chunk");
            let end = (start + packet.len as usize).min(CHUNK_BYTES as usize);
            let frame = self.headers.frame_in(&self.memory.chunk(chunk)[start..end]);
            self.held = Some((chunk, frame.map_or(0..0, |frame| start + frame.start..start + frame.end)));
            if self.held.as_ref().is_some_and(|(_, range)| !range.is_empty()) {
                return true;
            }
            self.strays += 1;
            self.give_back();
        }
        false
    }

    #[inline]
    fn frame(&mut self) -> &mut [u8] {
        match &self.held {
            Some((chunk, range)) => &mut self.memory.chunk(*chunk)[range.clone()],
            None => &mut [],
        }
    }

    fn strays(&self) -> u64 {
        self.strays
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }
}

/// The kernel gives a queue back some time after its last owner has closed it, so "busy" is not believed at once.
fn bind(umem: &Umem, user: &User, limit: Duration) -> Result<(), XdpError> {
    let started = Instant::now();
    loop {
        match umem.bind(user) {
            Err(error) if error.get_raw() == libc::EBUSY && started.elapsed() < limit => {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome.map_err(xdp_step("binding to the interface's queue")),
        }
    }
}

fn addresses(socket: &OwnedFd) -> Result<(SocketAddrV4, SocketAddrV4), XdpError> {
    let local = rustix::net::getsockname(socket).ok();
    let peer = rustix::net::getpeername(socket).ok().flatten();
    let v4 = |address: Option<rustix::net::SocketAddrAny>| SocketAddrV4::try_from(address?).ok();
    v4(local).zip(v4(peer)).ok_or(XdpError::NotIpv4)
}

/// What stands before every frame of a channel; only lengths change.
#[derive(Debug)]
struct Headers {
    bytes: [u8; NETWORK_HEADER_BYTES],
    /// The sum over the IPv4 header without its length and checksum.
    sum: u32,
    local: SocketAddrV4,
    peer: SocketAddrV4,
}

const IP: usize = 14;
const UDP: usize = 34;

impl Headers {
    fn new(from: [u8; 6], to: [u8; 6], local: SocketAddrV4, peer: SocketAddrV4) -> Self {
        let mut bytes = [0; NETWORK_HEADER_BYTES];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        bytes[12..IP].copy_from_slice(&[0x08, 0x00]);
        // Version and length, service, (length), identity, "don't fragment", hops, protocol, (checksum).
        bytes[IP..IP + 12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        bytes[IP + 12..IP + 16].copy_from_slice(&local.ip().octets());
        bytes[IP + 16..UDP].copy_from_slice(&peer.ip().octets());
        bytes[UDP..UDP + 2].copy_from_slice(&local.port().to_be_bytes());
        bytes[UDP + 2..UDP + 4].copy_from_slice(&peer.port().to_be_bytes());
        let sum =
            bytes[IP..UDP].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        Self { bytes, sum, local, peer }
    }

    #[inline]
    fn write(&self, frame_bytes: usize, into: &mut [u8]) {
        let udp_bytes = u16::try_from(frame_bytes + 8).expect("at most a chunk");
        let ip_bytes = udp_bytes + 20;
        into[..NETWORK_HEADER_BYTES].copy_from_slice(&self.bytes);
        into[IP + 2..IP + 4].copy_from_slice(&ip_bytes.to_be_bytes());
        into[UDP + 4..UDP + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        let sum = self.sum + u32::from(ip_bytes);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from(sum).expect("folded");
        into[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Where the frame stands in a packet of the peer; `None` if it is somebody else's, or no whole datagram.
    #[inline]
    fn frame_in(&self, packet: &[u8]) -> Option<std::ops::Range<usize>> {
        let header = packet.first_chunk::<NETWORK_HEADER_BYTES>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let ours = header[IP + 12..IP + 16] == self.peer.ip().octets()
            && header[IP + 16..UDP] == self.local.ip().octets()
            && word(UDP) == self.peer.port()
            && word(UDP + 2) == self.local.port();
        let bytes = usize::from(word(UDP + 4)).checked_sub(8)?;
        let whole = usize::from(word(IP + 2)) == bytes + 28 && NETWORK_HEADER_BYTES + bytes <= packet.len();
        (ours && whole).then_some(NETWORK_HEADER_BYTES..NETWORK_HEADER_BYTES + bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::runs_again_without;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn ends() -> (Headers, Headers) {
        let address = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, last), port);
        let (a, b) = (address(1, 4000), address(2, 5000));
        (Headers::new([1; 6], [2; 6], a, b), Headers::new([2; 6], [1; 6], b, a))
    }

    /// It is not even looked for an interface then.
    #[test]
    fn without_af_xdp_it_is_udp() {
        let bind = || crate::udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let ((a, _), (_b, at_b)) = (bind(), bind());
        crate::udp::connect(&a, at_b).unwrap();
        let opened = XdpWire::open(&a).map(drop);
        let again = runs_again_without(Mechanism::AfXdp, "xdp::tests::without_af_xdp_it_is_udp");
        if again && Mechanism::AfXdp.is_available() {
            assert!(matches!(opened, Err(XdpError::NoInterface(_))), "the loopback has none");
        } else {
            assert!(matches!(opened, Err(XdpError::Unavailable)));
        }
    }

    fn packet(from: &Headers, frame_bytes: usize) -> Vec<u8> {
        let mut packet = vec![7; NETWORK_HEADER_BYTES + frame_bytes];
        from.write(frame_bytes, &mut packet);
        packet
    }

    #[test]
    fn headers_are_what_routers_and_the_peer_expect() {
        let (a, b) = ends();
        for bytes in [0, 1, 16, 1000, 1472] {
            let packet = packet(&a, bytes);
            assert_eq!(packet[..14], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0]);
            // RFC 1071: the sum over a right header is all ones.
            let sum =
                packet[14..34].chunks(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]]))).sum::<u32>();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{bytes} bytes");
            let frame = b.frame_in(&packet).expect("addressed to it");
            assert_eq!((frame.len(), frame.end), (bytes, packet.len()));
            assert_eq!(a.frame_in(&packet), None, "its own packet is not for it");
        }
    }

    #[test]
    fn short_packets_are_padded_on_the_way_and_cut_ones_refused() {
        let (a, b) = ends();
        let mut padded = packet(&a, 3);
        padded.resize(60, 0);
        assert_eq!(b.frame_in(&padded).map(|frame| frame.len()), Some(3));
        let whole = packet(&a, 100);
        for bytes in 0..whole.len() {
            assert_eq!(b.frame_in(&whole[..bytes]), None);
        }
    }

    proptest! {
        #[test]
        fn no_packet_does_harm(packet in prop::collection::vec(any::<u8>(), 0..200), lengths in any::<(u16, u16)>()) {
            let (a, b) = ends();
            let _ = b.frame_in(&packet);
            // The same with addresses that pass, so that the lengths are looked at.
            let mut close = packet;
            if close.len() >= NETWORK_HEADER_BYTES {
                a.write(0, &mut close);
                close[16..18].copy_from_slice(&lengths.0.to_be_bytes());
                close[38..40].copy_from_slice(&lengths.1.to_be_bytes());
                if let Some(frame) = b.frame_in(&close) {
                    prop_assert!(frame.end <= close.len() && frame.start <= frame.end);
                }
            }
        }
    }
}
