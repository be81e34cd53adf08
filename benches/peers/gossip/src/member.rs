//! What the two libraries have in common here: addresses, and what a node tells of the others.

use std::net::{Ipv4Addr, SocketAddrV4};

use comb_sim::{Actor, NodeId};

/// The port of memberlist, which both libraries descend from in spirit; any would do.
const PORT: u16 = 7946;

/// What a node says of another. It says so when it changes its mind, and not again before it does.
#[derive(Clone, Copy, Debug)]
pub enum View {
    Up(NodeId),
    Down(NodeId),
}

/// A node of a library.
pub trait Member: Actor<Command = (), Event = View> {
    /// Whom the library itself lists as up, this node left out: what its [`View`]s must add up to.
    fn listed(&self) -> Vec<NodeId>;

    /// What the library complained of. An agent logs that and goes on; here it would be a mistake of this program.
    fn errors(&self) -> u64;
}

/// A node's address, as long on the wire as one of a private network is.
pub fn address(node: NodeId) -> SocketAddrV4 {
    let [_, high, middle, low] = node.0.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, high, middle, low), PORT)
}

/// The node that has this address.
pub fn node(address: SocketAddrV4) -> NodeId {
    let [_, high, middle, low] = address.ip().octets();
    NodeId(u32::from_be_bytes([0, high, middle, low]))
}
