//! Hosts and ports of which the network says that they cannot be reached.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use comb_membership::detect::environment::{Environment, Notice, Notices};
use comb_membership::detect::{Confidence, Kind};
use comb_types::{NodeId, Time};
use rustix::net::{RecvFlags, recv};

/// From one packet to the next. Routers send few errors more often than that.
const BETWEEN_PROBES: Duration = Duration::from_secs(1);

/// Errors come when they come.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Who sends more than this at once wastes its own time.
const MOST_AT_ONCE: usize = 64;

/// When there was no error for so long, all is well. (A host that does not answer to its address makes one every three seconds.)
const WELL_AFTER: Duration = Duration::from_secs(5);

/// Sends an empty UDP packet to each address that it watches, once a second, and hears what ICMP says: a refused port, or a host or a
/// network that cannot be reached. (Galaxy §8.4, §8.5.1)
///
/// Who listens at the address gets the packets, and must not mind them. Silence says nothing: that is for other detectors.
#[derive(Debug, Default)]
pub struct Icmp {
    hosts: Vec<Host>,
    notices: Notices,
    next_probe: Time,
    next_look: Time,
}

#[derive(Debug)]
struct Host {
    address: SocketAddr,
    socket: UdpSocket,
    /// Not where there is no way to the address yet.
    is_connected: bool,
    nodes: Vec<NodeId>,
    /// What a refusal says; none if it says that the host is there.
    refused: Option<Confidence>,
    /// When there was an error last.
    failed_at: Option<Time>,
}

/// What came of the packets so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Nothing,
    Refused,
    Unreachable,
}

impl Icmp {
    /// It watches nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Watches the host of these nodes. At a port of it where nobody listens, a refusal shows that it is there.
    pub fn watch_host(
        &mut self,
        address: SocketAddr,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> io::Result<()> {
        self.watch(address, None, nodes)
    }

    /// Watches a port that is open for as long as these nodes live. That it is refused speaks against them, so surely.
    pub fn watch_port(
        &mut self,
        address: SocketAddr,
        refused: Confidence,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> io::Result<()> {
        self.watch(address, Some(refused), nodes)
    }

    fn watch(
        &mut self,
        address: SocketAddr,
        refused: Option<Confidence>,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> io::Result<()> {
        let socket = match address {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
        };
        socket.set_nonblocking(true)?;
        comb_net::icmp::hear_unreachable(&socket)?;
        let nodes = nodes.into_iter().collect();
        self.hosts.push(Host { address, socket, is_connected: false, nodes, refused, failed_at: None });
        Ok(())
    }

    fn look(&mut self, now: Time) {
        let is_due = now >= self.next_probe;
        if is_due {
            self.next_probe = now.saturating_add(BETWEEN_PROBES);
        }
        self.next_look = now.saturating_add(BETWEEN_LOOKS);
        for host in &mut self.hosts {
            let mut said = host.hear();
            if is_due && said == Said::Nothing {
                said = host.probe();
            }
            host.judge(now, said, &mut self.notices);
        }
    }
}

impl Host {
    /// What came since the last time.
    fn hear(&self) -> Said {
        let error = self.socket.take_error();
        let mut nothing = [0; 1];
        // The packets that came back, and whatever else came: nobody wants it.
        for kind in [RecvFlags::ERRQUEUE, RecvFlags::empty()] {
            let mut thrown_away = 0;
            while thrown_away < MOST_AT_ONCE
                && recv(&self.socket, &mut nothing, kind | RecvFlags::DONTWAIT).is_ok()
            {
                thrown_away += 1;
            }
        }
        error.ok().flatten().map_or(Said::Nothing, |error| said(&error))
    }

    fn probe(&mut self) -> Said {
        let connected = if self.is_connected { Ok(()) } else { self.socket.connect(self.address) };
        self.is_connected = connected.is_ok();
        match connected.and_then(|()| self.socket.send(&[])) {
            Ok(_) => Said::Nothing,
            Err(error) => said(&error),
        }
    }

    fn judge(&mut self, now: Time, said: Said, notices: &mut Notices) {
        let is_well = match (said, self.refused) {
            (Said::Refused, None) => true,
            (Said::Nothing, _) => self.failed_at.is_some_and(|at| now.since(at) >= WELL_AFTER),
            _ => false,
        };
        let confidence = match (said, self.refused) {
            (Said::Refused, Some(refused)) => Some(refused),
            (Said::Unreachable, _) => Some(Kind::IcmpUnreachable.usual_confidence()),
            _ => None,
        };
        if confidence.is_some() {
            self.failed_at = Some(now);
        } else if is_well {
            self.failed_at = None;
        } else {
            return;
        }
        self.nodes.iter().for_each(|&node| notices.set(node, Kind::IcmpUnreachable, confidence));
    }
}

fn said(error: &io::Error) -> Said {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Said::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => {
            Said::Unreachable
        }
        // Our own troubles.
        _ => Said::Nothing,
    }
}

impl Environment for Icmp {
    fn poll_notice(&mut self, now: Time) -> Option<Notice> {
        if now >= self.next_look {
            self.look(now);
        }
        self.notices.poll_notice(now)
    }

    fn next_timeout(&self) -> Option<Time> {
        let look = (!self.hosts.is_empty()).then_some(self.next_look);
        [look, self.notices.next_timeout()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SURE: Confidence = Confidence::per_mille(700);

    fn seen(node: u32, confidence: Confidence) -> Notice {
        Notice::Seen { node: NodeId(node), kind: Kind::IcmpUnreachable, confidence }
    }

    /// What it says in so many steps from a time on, each as late as it asks for; without what it says again.
    fn run(icmp: &mut Icmp, now: &mut Time, lasting: Duration) -> Vec<Notice> {
        let end = now.saturating_add(lasting);
        let mut said = Vec::new();
        while let Some(due) = icmp.next_timeout().filter(|due| *due <= end) {
            *now = due.max(*now);
            said.extend(std::iter::from_fn(|| icmp.poll_notice(*now)));
        }
        *now = end;
        said.dedup();
        said
    }

    #[test]
    fn a_refused_port_speaks_against_those_who_had_it_until_it_is_open_for_a_while() {
        let open = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = open.local_addr().expect("it is bound");
        let mut icmp = Icmp::new();
        icmp.watch_port(address, SURE, [NodeId(1), NodeId(2)]).expect("a socket");
        let mut now = Time::ZERO;
        assert_eq!(run(&mut icmp, &mut now, Duration::from_secs(20)), []);
        drop(open);
        let said = run(&mut icmp, &mut now, Duration::from_secs(3));
        assert_eq!(said, [seen(1, SURE), seen(2, SURE)]);
        let open = UdpSocket::bind(address).expect("the same port");
        let over = |node| Notice::Over { node: NodeId(node), kind: Kind::IcmpUnreachable };
        assert!(!run(&mut icmp, &mut now, Duration::from_secs(3)).contains(&over(1)), "one may be lost");
        assert!(run(&mut icmp, &mut now, Duration::from_secs(5)).ends_with(&[over(1), over(2)]));
        drop(open);
    }

    #[test]
    fn where_nobody_listens_a_refusal_shows_that_the_host_is_there() {
        let address = UdpSocket::bind("[::1]:0").and_then(|free| free.local_addr());
        // Not every machine has IPv6.
        let address = address.unwrap_or_else(|_| "127.0.0.1:9".parse().expect("an address"));
        let mut icmp = Icmp::new();
        icmp.watch_host(address, [NodeId(1)]).expect("a socket");
        assert_eq!(run(&mut icmp, &mut Time::ZERO.clone(), Duration::from_secs(20)), []);
        let host = &mut icmp.hosts[0];
        let mut notices = Notices::new();
        let mut judge = |second: u64, said| {
            let now = Time::from_millis(second * 1000);
            host.judge(now, said, &mut notices);
            notices.poll_notice(now)
        };
        assert_eq!(judge(30, Said::Unreachable), Some(seen(1, Kind::IcmpUnreachable.usual_confidence())));
        assert_eq!(judge(31, Said::Nothing), None);
        assert_eq!(
            judge(32, Said::Refused),
            Some(Notice::Over { node: NodeId(1), kind: Kind::IcmpUnreachable })
        );
    }

    #[test]
    fn errors_are_told_apart() {
        let of = |error: rustix::io::Errno| said(&error.into());
        assert_eq!(of(rustix::io::Errno::CONNREFUSED), Said::Refused);
        assert_eq!(of(rustix::io::Errno::HOSTUNREACH), Said::Unreachable);
        assert_eq!(of(rustix::io::Errno::NETUNREACH), Said::Unreachable);
        assert_eq!(of(rustix::io::Errno::NOBUFS), Said::Nothing);
    }
}
