//! A network whose clients belong to kernels, and whose quotas a manager looks after.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use comb_kernel::objects::Tag;

use super::{Network, Wire};
use crate::resources;

/// What a manager has of a network: whose each port is. The driver, who has the rest, goes on beside it.
#[derive(Debug)]
pub struct Ports<W> {
    network: Rc<RefCell<Network<W>>>,
    kernels: BTreeMap<Tag, Vec<u32>>,
}

impl<W: Wire> Ports<W> {
    /// Of a network, whose clients are nobody's yet.
    pub fn new(network: Rc<RefCell<Network<W>>>) -> Self {
        Self { network, kernels: BTreeMap::new() }
    }

    /// What is sent and received at a port is a kernel's from now on.
    pub fn belongs(&mut self, port: u32, kernel: Tag) {
        self.kernels.values_mut().for_each(|ports| ports.retain(|other| *other != port));
        self.kernels.entry(kernel).or_default().push(port);
    }

    fn hold(&mut self, kernel: Tag, is_held: bool) {
        let mut network = self.network.borrow_mut();
        for port in self.kernels.get(&kernel).into_iter().flatten() {
            if let Some(client) = network.clients.get_mut(port) {
                client.is_held = is_held;
            }
        }
    }
}

impl<W: Wire> resources::Network for Ports<W> {
    fn used(&mut self, kernel: Tag) -> u64 {
        let network = self.network.borrow();
        let ports = self.kernels.get(&kernel).into_iter().flatten();
        ports.filter_map(|port| Some(network.counts(*port)?.bytes)).sum()
    }

    fn disconnect(&mut self, kernel: Tag) {
        self.hold(kernel, true);
    }

    fn connect(&mut self, kernel: Tag) {
        self.hold(kernel, false);
    }
}
