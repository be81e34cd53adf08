//! Hosts of one machine: a network namespace each, and two cables from each to a switch in one more. By one of them hosts talk
//! among themselves, by the other with clients, who are at the switch.
//!
//! Nobody is told when a cable is cut: the switch forwards nothing from or to it, and both of its ends stay up. (One that is
//! taken out of the switch may still be heard by clients: its end is a device of theirs then.)

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;

use super::Outcome;
use crate::namespaces::Namespace;

/// What the two networks are called, at the switch and at the hosts.
const AMONG_HOSTS: &str = "hosts";
const TO_CLIENTS: &str = "clients";
/// With the third byte of their addresses.
const NETWORKS: [(&str, u8); 2] = [(AMONG_HOSTS, 1), (TO_CLIENTS, 2)];
/// The last byte of the clients' address.
const SWITCH: u8 = 254;
/// States of a switch's port, as bridges have them.
const CUT: &str = "0";
const FORWARDING: &str = "3";

pub(super) struct Network {
    switch: Arc<Namespace>,
    hosts: Vec<Namespace>,
}

impl Network {
    pub(super) fn make(hosts: usize) -> Outcome<Self> {
        let switch =
            Namespace::make().map_err(|reason| format!("needs root or user namespaces: {reason}"))?;
        for (name, _) in NETWORKS {
            switch.ip(&["link", "add", name, "type", "bridge"])?;
            switch.ip(&["link", "set", name, "up"])?;
        }
        // The network of the hosts is theirs alone.
        switch.ip(&["address", "add", &format!("{}/24", address(2, SWITCH)), "dev", TO_CLIENTS])?;
        let mut network = Self { switch: Arc::new(switch), hosts: Vec::new() };
        for host in 0..hosts {
            let made = network.boot(host)?;
            network.hosts.push(made);
        }
        Ok(network)
    }

    /// Where a host talks with the other hosts.
    pub(super) fn among_hosts(host: usize) -> IpAddr {
        address(1, end(host))
    }

    /// Where a host talks with clients.
    pub(super) fn to_clients(host: usize) -> IpAddr {
        address(2, end(host))
    }

    /// Where clients are.
    pub(super) fn switch(&self) -> Arc<Namespace> {
        Arc::clone(&self.switch)
    }

    /// What is run on a host. It takes the process over: a child of ours is the program itself. And it does not outlive us,
    /// however we end.
    pub(super) fn command(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.hosts[host].path()));
        command.args(["setpriv", "--pdeathsig", "KILL"]).arg(program);
        command
    }

    /// From now on a host and the others do not hear each other. Clients still reach it.
    pub(super) fn cut_off(&self, host: usize) -> Outcome<()> {
        self.set(AMONG_HOSTS, host, CUT)
    }

    /// As if it had not been cut off.
    pub(super) fn put_back(&self, host: usize) -> Outcome<()> {
        self.set(AMONG_HOSTS, host, FORWARDING)
    }

    /// From now on nobody hears it.
    pub(super) fn silence(&self, host: usize) -> Outcome<()> {
        self.cut_off(host)?;
        self.set(TO_CLIENTS, host, CUT)
    }

    fn set(&self, network: &str, host: usize, state: &str) -> Outcome<()> {
        self.switch.run("bridge", &["link", "set", "dev", &cable(network, host), "state", state])?;
        Ok(())
    }

    /// A host starts anew: its kernel knows nothing of what was before. All of its processes have ended.
    pub(super) fn start_anew(&mut self, host: usize) -> Outcome<()> {
        for (name, _) in NETWORKS {
            self.switch.ip(&["link", "delete", &cable(name, host)])?;
        }
        self.hosts[host] = self.boot(host)?;
        Ok(())
    }

    fn boot(&self, host: usize) -> Outcome<Namespace> {
        let made = Namespace::make()?;
        for (name, network) in NETWORKS {
            let (cable, address) = (cable(name, host), format!("{}/24", address(network, end(host))));
            // The same card as before.
            let card = format!("02:00:00:00:{network:02x}:{:02x}", end(host));
            let other = ["peer", "name", name, "address", &card, "netns", &made.path()];
            self.switch.ip(&[&["link", "add", &cable, "type", "veth"], &other[..]].concat())?;
            made.ip(&["address", "add", &address, "dev", name])?;
            made.ip(&["link", "set", name, "up"])?;
            self.switch.ip(&["link", "set", &cable, "master", name, "up"])?;
        }
        Ok(made)
    }
}

fn address(network: u8, end: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, network, end).into()
}

fn end(host: usize) -> u8 {
    u8::try_from(host + 1).expect("few hosts")
}

/// Its name at the switch.
fn cable(network: &str, host: usize) -> String {
    format!("{network}-{host}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    const A_WHILE: Duration = Duration::from_millis(300);

    /// Whether the last of three hosts is reached, by another and by a client.
    fn reached(network: &Network, ports: [u16; 2]) -> [bool; 2] {
        let reaches =
            |address, port| TcpStream::connect_timeout(&SocketAddr::new(address, port), A_WHILE).is_ok();
        [
            network.hosts[0].within(|| reaches(Network::among_hosts(2), ports[0])),
            network.switch.within(|| reaches(Network::to_clients(2), ports[1])),
        ]
    }

    #[test]
    fn who_is_cut_off_is_reached_by_clients_only_and_who_is_silent_by_nobody_until_it_starts_anew() {
        let mut network = match Network::make(3) {
            Ok(made) => made,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let serve = |network: &Network| {
            [Network::among_hosts(2), Network::to_clients(2)].map(|address| {
                let bind = || TcpListener::bind((address, 0)).expect("an address of this host");
                network.hosts[2].within(bind)
            })
        };
        let ports = |listeners: &[TcpListener; 2]| {
            [0, 1].map(|number| listeners[number].local_addr().expect("bound").port())
        };
        let listeners = serve(&network);
        assert_eq!(reached(&network, ports(&listeners)), [true, true]);
        network.cut_off(2).expect("a cable");
        assert_eq!(reached(&network, ports(&listeners)), [false, true]);
        network.put_back(2).expect("a cable");
        assert_eq!(reached(&network, ports(&listeners)), [true, true]);
        let to_client = listeners[1].local_addr().expect("bound");
        let mut client = network.switch.within(|| TcpStream::connect(to_client).expect("a cable"));
        client.set_read_timeout(Some(A_WHILE)).expect("no zero");
        network.silence(2).expect("cables");
        // What its kernel says of it when it has ended.
        drop(listeners[1].accept().expect("the client"));
        let heard = client.read(&mut [0]).expect_err("its last word is not heard");
        assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(reached(&network, ports(&listeners)), [false, false]);
        network.start_anew(2).expect("a host");
        assert_eq!(reached(&network, ports(&listeners)), [false, false], "these were in the one before");
        let listeners = serve(&network);
        assert_eq!(reached(&network, ports(&listeners)), [true, true]);
    }
}
