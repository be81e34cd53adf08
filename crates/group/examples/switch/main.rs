//! A plug-in that hears a switch: SNMP traps (version 2c) that say which port lost its link, and which has one again.
//!
//! ```console
//! $ cargo run -p comb-group --example switch -- 127.0.0.1:16200 127.0.0.1 public 3=1 4=2    # its port 3 carries to node 1
//! $ snmptrap -v 2c -c public 127.0.0.1:16200 '' IF-MIB::linkDown ifIndex i 3
//! ```
//!
//! Whoever can send from the switch's address and knows the community can forge a trap, and packets may be lost: so what it says is
//! no more than a suspicion ([`Kind::LinkDown`] is 80 % sure), which costs a node that answers nothing but a view. A lost trap about
//! a link that is up again is made good by the next, or by the switch's start.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use comb_group::NodeId;
use comb_group::environment::{Environment, Kind, Notice, Notices};
use comb_membership::Time;

#[path = "../three/mod.rs"]
mod three;
mod trap;

use trap::Trap;

const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Of more at once, the rest is read the next time.
const MOST_AT_ONCE: usize = 64;

struct Switch {
    socket: UdpSocket,
    address: IpAddr,
    community: Vec<u8>,
    /// Which node is behind which port.
    ports: BTreeMap<u32, NodeId>,
    notices: Notices,
    next_look: Time,
}

impl Switch {
    fn listen(at: SocketAddr, address: IpAddr, community: &str) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let (ports, notices) = (BTreeMap::new(), Notices::new());
        Ok(Self { socket, address, community: community.into(), ports, notices, next_look: Time::ZERO })
    }

    fn look(&mut self, now: Time) {
        self.next_look = now.saturating_add(BETWEEN_LOOKS);
        let mut packet = [0; 1500];
        for _ in 0..MOST_AT_ONCE {
            let Ok((length, from)) = self.socket.recv_from(&mut packet) else { return };
            if from.ip() == self.address
                && let Some(trap) = trap::read(&packet[..length], &self.community)
            {
                self.heard(trap);
            }
        }
    }

    fn heard(&mut self, trap: Trap) {
        let behind = |port| self.ports.get(&port).copied();
        let over: Vec<NodeId> = match trap {
            Trap::LinkDown(port) => {
                if let Some(node) = behind(port) {
                    self.notices.seen(node, Kind::LinkDown, Kind::LinkDown.usual_confidence());
                }
                return;
            }
            Trap::LinkUp(port) => behind(port).into_iter().collect(),
            Trap::Start => self.ports.values().copied().collect(),
        };
        over.into_iter().for_each(|node| self.notices.over(node, Kind::LinkDown));
    }
}

impl Environment for Switch {
    fn poll_notice(&mut self, now: Time) -> Option<Notice> {
        if now >= self.next_look {
            self.look(now);
        }
        self.notices.poll_notice(now)
    }

    fn next_timeout(&self) -> Option<Time> {
        Some(self.next_look)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: switch LISTEN SWITCH COMMUNITY PORT=NODE…";
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [listen, address, community, ports @ ..] = &arguments[..] else { return Err(usage.into()) };
    let mut switch = Switch::listen(listen.parse()?, address.parse()?, community)?;
    for port in ports {
        let (port, node) = port.split_once('=').ok_or(usage)?;
        switch.ports.insert(port.parse()?, NodeId(node.parse()?));
    }
    three::watch(switch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_the_switch_says_is_heard_and_what_others_say_is_not() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let mut switch = Switch::listen((local, 0).into(), local, "public").expect("a port");
        switch.ports = [(3, NodeId(1)), (4, NodeId(2))].into();
        let to = switch.socket.local_addr().expect("it is bound");
        let sender = UdpSocket::bind((local, 0)).expect("a port");
        let started = Instant::now();
        let mut hears = |sender: &UdpSocket, packet: &[u8], notices: usize| {
            sender.send_to(packet, to).expect("it listens");
            let mut said = Vec::new();
            let deadline = Instant::now() + Duration::from_secs(20);
            while said.len() < notices {
                assert!(Instant::now() < deadline, "nothing is heard");
                let now = Time::ZERO.saturating_add(started.elapsed());
                said.extend(std::iter::from_fn(|| switch.poll_notice(now)));
            }
            said
        };
        let (kind, confidence) = (Kind::LinkDown, Kind::LinkDown.usual_confidence());
        let [down, down_too] = [1, 2].map(|node| Notice::Seen { node: NodeId(node), kind, confidence });
        let [up, up_too] = [1, 2].map(|node| Notice::Over { node: NodeId(node), kind });
        // A port of nobody's, a stranger's packet, and what is no trap: nothing is said before the next.
        let stranger = UdpSocket::bind("127.0.0.2:0").expect("the loopback has many addresses");
        hears(&stranger, &trap::tests::link(3, 4), 0);
        hears(&sender, &trap::tests::link(3, 99), 0);
        hears(&sender, b"no trap", 0);
        assert_eq!(hears(&sender, &trap::tests::link(3, 3), 1), [down]);
        assert_eq!(hears(&sender, &trap::tests::link(4, 3), 1), [up]);
        assert_eq!(hears(&sender, &trap::tests::link(3, 3), 1), [down]);
        assert_eq!(hears(&sender, &trap::tests::link(3, 4), 1), [down_too]);
        assert_eq!(hears(&sender, &trap::tests::link(1, 0), 2), [up, up_too]);
    }
}
