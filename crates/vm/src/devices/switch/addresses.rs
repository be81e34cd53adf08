//! Which addresses machines on a subnet have: each port its own, for whoever is there.

use std::net::Ipv4Addr;

use super::subnet::Address;

/// So many machines a subnet has at most: what is left of a byte without the gateway, the resolver, and the two that mean no machine.
pub const MOST_MACHINES: usize = 252;

/// The addresses of a subnet: `10.A.B.0/24`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network([u8; 2]);

impl Network {
    /// Of the subnet of this name: always the same, and mostly not another's. (Two that have the same do not disturb each other.)
    pub fn of(name: &str) -> Self {
        let [a, b, ..] = crc32fast::hash(name.as_bytes()).to_be_bytes();
        Self([a, b])
    }

    fn at(self, last: u8) -> Ipv4Addr {
        let [a, b] = self.0;
        Ipv4Addr::new(10, a, b, last)
    }

    /// The network's own.
    pub fn base(self) -> Ipv4Addr {
        self.at(0)
    }

    /// Of the way to the outside, if there is one.
    pub fn gateway(self) -> Ipv4Addr {
        self.at(1)
    }

    /// Of what knows the names of machines outside, if there is a way to them.
    pub fn resolver(self) -> Ipv4Addr {
        self.at(254)
    }

    /// Of the machine at this port, of [`MOST_MACHINES`].
    pub fn address(self, port: u8) -> Ipv4Addr {
        self.at(port + 2)
    }

    /// The link-level address of the machine at this port.
    pub fn link_address(self, port: u8) -> Address {
        let [a, b] = self.0;
        Address([0x52, 0x54, 0, a, b, port])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_machine_has_the_gateway_s_address() {
        let network = Network::of("lab");
        let mut all: Vec<Ipv4Addr> =
            (0..u8::try_from(MOST_MACHINES).unwrap()).map(|port| network.address(port)).collect();
        all.extend([network.base(), network.gateway(), network.resolver(), network.at(255)]);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 256);
    }
}
