//! A monitor's part in what is attached to its machine: the processes that serve its disks, and its place on a subnet, both of which may end and be there again.

use std::path::Path;
use std::time::{Duration, Instant};

use comb_guest::wire::{Network, ToGuest};

use super::{Beginning, MonitorError, Order};
use crate::attached::{Devices, DiskServer, SubnetOf};
use crate::devices::switch::control::Joined;
use crate::engine::Engine;
use crate::names::Name;
use crate::subnets::{Membership, Wish};

/// A switch has begun by then.
const JOIN_LIMIT: Duration = Duration::from_secs(20);

/// How often a place is looked for that was lost, and for how long each time: the machine's monitor has more to do, and one that waits is heard by nobody.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
const AGAIN_LIMIT: Duration = Duration::from_millis(500);

/// What is attached to a machine that runs.
pub(super) struct Attachments {
    disks: Vec<DiskServer>,
    devices: Devices,
    place: Option<Place>,
}

/// A place on a subnet.
struct Place {
    subnet: Name,
    of: SubnetOf,
    shows_memory: bool,
    joined: Joined,
    /// None: the switch has gone.
    membership: Option<Membership>,
    /// A device by which it is reached is to be attached to the machine.
    is_to_be_attached: bool,
    tried: Instant,
}

impl Attachments {
    /// For a machine whose directory is this; of those that have been before it, in its place, the last had this port.
    pub(super) fn begin(
        order: &Order,
        directory: &Path,
        cgroup: Option<&Path>,
        number: Option<u8>,
    ) -> Result<Self, MonitorError> {
        let attached = &order.hardware.attached;
        let (mut disks, mut devices) = (Vec::new(), Devices::default());
        for (number, disk) in attached.disks.iter().enumerate() {
            let socket = directory.join(format!("disk-{number}.socket"));
            let _ = std::fs::remove_file(&socket);
            disks.push(DiskServer::start(order.subnets.program(), disk, &socket, cgroup)?);
            devices.disks.push(socket);
        }
        // A clone's memory lies over its template's, which it may not show as its own.
        let shows_memory = matches!(order.beginning, Beginning::Boot);
        let mut place = None;
        if let Some(of) = &attached.subnet {
            let subnet: Name = of.name.parse().map_err(|error| MonitorError::NoSeat(format!("{error}")))?;
            let wish = Wish { machine: &order.name, shows_memory, way: &of.way, number };
            let membership = order.subnets.join(&subnet, wish, JOIN_LIMIT)?;
            let joined = membership.joined.clone();
            if shows_memory {
                devices.port = Some((joined.socket.clone(), joined.mac));
            }
            let (of, tried, membership) = (of.clone(), Instant::now(), Some(membership));
            let is_to_be_attached = !shows_memory;
            place = Some(Place { subnet, of, shows_memory, joined, membership, is_to_be_attached, tried });
        }
        Ok(Self { disks, devices, place })
    }

    /// Those that the machine has from its beginning.
    pub(super) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Its port.
    pub(super) fn number(&self) -> Option<u8> {
        self.place.as_ref().map(|place| place.joined.number)
    }

    /// What the guest is told of its place.
    pub(super) fn network(&self) -> Option<Network> {
        self.place.as_ref().map(Place::network)
    }

    /// Processes that serve its disks, and how often one was started again.
    pub(super) fn servers(&self) -> (Vec<u32>, u32) {
        (
            self.disks.iter().map(DiskServer::process).collect(),
            self.disks.iter().map(|disk| disk.restarts).sum(),
        )
    }

    /// Attaches what a machine has not had from its beginning.
    pub(super) fn attach(&mut self, engine: &mut Engine) -> Result<(), MonitorError> {
        if let Some(place) = self.place.as_mut().filter(|place| place.is_to_be_attached) {
            engine.attach(&place.joined)?;
            place.is_to_be_attached = false;
        }
        Ok(())
    }

    /// Looks after all of it, and says what the guest is to be told.
    pub(super) fn look(&mut self, order: &Order, engine: &mut Engine) -> Vec<ToGuest> {
        self.disks.iter_mut().for_each(DiskServer::look);
        self.place.as_mut().map_or_else(Vec::new, |place| place.look(order, engine))
    }
}

impl Place {
    fn network(&self) -> Network {
        let Joined { mac, address, outside, .. } = &self.joined;
        let outside = outside.map(|outside| outside.map(|address| address.octets()));
        Network { mac: *mac, address: address.octets(), outside }
    }

    fn look(&mut self, order: &Order, engine: &mut Engine) -> Vec<ToGuest> {
        let mut tells = Vec::new();
        match self.membership.as_mut().map(Membership::hear) {
            Some(Ok(Some(names))) => {
                let names = names.into_iter().map(|(name, address)| (name, address.octets()));
                tells.push(ToGuest::Names(names.collect()));
            }
            Some(Ok(None)) => {}
            Some(Err(_)) => self.membership = None,
            None if self.tried.elapsed() >= BETWEEN_TRIES => {
                self.tried = Instant::now();
                let number = Some(self.joined.number);
                let Self { shows_memory, of: SubnetOf { way, .. }, .. } = &*self;
                let wish = Wish { machine: &order.name, shows_memory: *shows_memory, way, number };
                if let Ok(membership) = order.subnets.join(&self.subnet, wish, AGAIN_LIMIT) {
                    self.membership = Some(membership);
                    // An engine that shows its memory comes again by itself.
                    self.is_to_be_attached = !self.shows_memory;
                }
            }
            None => {}
        }
        if self.is_to_be_attached && self.tried.elapsed() >= BETWEEN_TRIES {
            self.tried = Instant::now();
            engine.detach();
            if engine.attach(&self.joined).is_ok() {
                self.is_to_be_attached = false;
                tells.push(ToGuest::Network(self.network()));
            }
        }
        tells
    }
}
