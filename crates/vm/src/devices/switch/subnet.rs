//! Who is on the virtual subnet, where a frame of theirs goes, and how much of the switch each has. (Disco §4.2.6)

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// Destination, source and type: what every frame begins with.
pub const ETHERNET_HEADER: usize = 14;
/// The longest packet that IP knows, with an Ethernet header and a tag of a virtual LAN. The subnet has no smaller limit.
pub const LONGEST_FRAME: usize = ETHERNET_HEADER + 4 + 65535;

/// What a port may use up before it is others' turn: about what copying so many bytes takes.
pub const TURN: i64 = 256 << 10;
/// What a frame costs besides its bytes, for each port that it goes to.
pub const FRAME_COST: i64 = 2048;
/// What a descriptor costs that has to be looked at.
pub const DESCRIPTOR_COST: i64 = 128;
/// Who sends what is refused is passed over for so long as others have something to send: they keep all but a thirtieth of the switch.
pub const REFUSAL_COST: i64 = 31 * TURN;

/// What goes to everybody takes everybody's time: a port may send a thousand such frames a second, and as many as are sent in the other time at once. To find
/// each other, guests need a few.
const BETWEEN_GROUP_FRAMES: Duration = Duration::from_millis(1);
const MOST_AHEAD: Duration = Duration::from_millis(250);

/// A link-level address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address(pub [u8; 6]);

/// What is not the address of one device.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{0:?} is not the address of a device, as 52:54:00:12:34:56 is")]
pub struct NotAnAddress(String);

impl Address {
    /// Whether it means many devices.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it means the bridge itself: such frames are never passed on. (IEEE 802.1D, table 7-10)
    fn is_of_bridges(self) -> bool {
        self.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && self.0[5] < 16
    }
}

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let wrong = || NotAnAddress(text.to_owned());
        let mut address = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut address {
            let part =
                parts.next().filter(|part| part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        let address = Address(address);
        if parts.next().is_some() || address.is_group() || address == Address([0; 6]) {
            return Err(wrong());
        }
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Which port: its place in the order of their coming.
pub type PortId = usize;

/// What became of a port's frames.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Counters {
    /// Frames that it sent and that were let through.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that it got.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames of its that were refused, as they said to be from somebody else.
    pub forged: u64,
    /// Frames of its that were refused, as they are none: too short, too long, or with a header that does not fit them.
    pub malformed: u64,
    /// Frames of its that were for everybody, and too many.
    pub excess: u64,
    /// Frames of its for which there is nobody.
    pub unknown: u64,
    /// Frames for it that were lost, as it had no buffers, or it does not take such frames and they can not be cut.
    pub lost: u64,
    /// How often a ring of its was stopped, as its guest had damaged it.
    pub damaged: u64,
    /// Engines that were sent away for what they said.
    pub sent_away: u64,
}

/// One port: for a device with one address, or the gateway, through which all others are reached.
#[derive(Debug)]
pub struct Port {
    /// What people call it; nothing: it is nobody's.
    pub name: String,
    /// The address that it may use; the gateway has none, and may use all that no port has.
    pub address: Option<Address>,
    /// What became of its frames.
    pub counters: Counters,
    credit: i64,
    /// As if its frames for everybody had come one by one, the next comes then.
    paid_until: Duration,
}

/// Where a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To one port.
    One(PortId),
    /// To all ports but the sender's.
    All,
    /// To nobody: nobody has this address.
    Nowhere,
}

/// Why a frame is not let through.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It says to be from a device that is not at this port.
    #[error("the sender's address is another's")]
    Forged,
    /// It is no frame.
    #[error("this is no frame")]
    Malformed,
}

/// Why there is no such port.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum PortError {
    /// The name is not one for a file.
    #[error("a port's name is of letters, digits, '-' and '_', and at most 64 long: {0:?}")]
    Name(String),
    /// Another port has this name.
    #[error("there is a port {0} already")]
    NameTaken(String),
    /// Another port has this address.
    #[error("the port {1} has the address {0} already")]
    AddressTaken(Address, String),
    /// There is a gateway.
    #[error("there is a gateway already")]
    GatewayTaken,
}

/// All ports.
#[derive(Default, Debug)]
pub struct Subnet {
    ports: Vec<Port>,
    by_address: HashMap<Address, PortId>,
    gateway: Option<PortId>,
}

impl Subnet {
    /// One more port, with an address, or the gateway.
    pub fn add(&mut self, name: &str, address: Option<Address>) -> Result<PortId, PortError> {
        self.check(name)?;
        let id = self.ports.len();
        match address {
            Some(address) => {
                if let Some(&other) = self.by_address.get(&address) {
                    return Err(PortError::AddressTaken(address, self.ports[other].name.clone()));
                }
                self.by_address.insert(address, id);
            }
            None if self.gateway.is_some() => return Err(PortError::GatewayTaken),
            None => self.gateway = Some(id),
        }
        let name = name.to_owned();
        self.ports.push(Port {
            name,
            address,
            counters: Counters::default(),
            credit: 0,
            paid_until: Duration::ZERO,
        });
        Ok(id)
    }

    fn check(&self, name: &str) -> Result<(), PortError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            return Err(PortError::Name(name.to_owned()));
        }
        if self.ports.iter().any(|port| port.name == name) {
            return Err(PortError::NameTaken(name.to_owned()));
        }
        Ok(())
    }

    /// Nobody's port any more, until it is another's: its address stays.
    pub fn free(&mut self, port: PortId) {
        self.ports[port].name.clear();
    }

    /// A port that is nobody's, this one or any, is somebody else's from now on, if there is one.
    pub fn take(&mut self, name: &str, wanted: Option<PortId>) -> Result<Option<PortId>, PortError> {
        self.check(name)?;
        let is_free = |id: &PortId| self.ports.get(*id).is_some_and(|port| port.name.is_empty());
        let free = match wanted {
            Some(wanted) => Some(wanted).filter(is_free),
            None => (0..self.ports.len()).find(is_free),
        };
        if let Some(port) = free.map(|free| &mut self.ports[free]) {
            name.clone_into(&mut port.name);
            port.counters = Counters::default();
        }
        Ok(free)
    }

    /// The port that was added last is none after all.
    pub fn forget_last(&mut self) {
        if let Some(port) = self.ports.pop() {
            self.by_address.retain(|_, id| *id < self.ports.len());
            self.gateway = self.gateway.filter(|_| port.address.is_some());
        }
    }

    /// The gateway.
    pub fn gateway(&self) -> Option<PortId> {
        self.gateway
    }

    /// All ports, in the order of their coming.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// What became of a port's frames, to be counted on.
    pub fn counters(&mut self, port: PortId) -> &mut Counters {
        &mut self.ports[port].counters
    }

    /// Where a frame of this length goes which begins like this and came in at this port.
    pub fn way(&self, from: PortId, head: &[u8], length: usize) -> Result<Way, Refused> {
        if length > LONGEST_FRAME {
            return Err(Refused::Malformed);
        }
        let [to, source] = addresses(head).ok_or(Refused::Malformed)?;
        let its_own = match self.ports[from].address {
            Some(address) => source == address,
            None => !source.is_group() && !self.by_address.contains_key(&source),
        };
        if !its_own {
            return Err(Refused::Forged);
        }
        Ok(if to.is_of_bridges() {
            Way::Nowhere
        } else if to.is_group() {
            Way::All
        } else {
            let port = self.by_address.get(&to).copied().or(self.gateway);
            port.filter(|&port| port != from).map_or(Way::Nowhere, Way::One)
        })
    }

    /// A frame that came in at this port is not let through. Behind the gateway are many, who do not answer for each other.
    pub fn refuse(&mut self, port: PortId, why: Refused) {
        let port = &mut self.ports[port];
        *match why {
            Refused::Forged => &mut port.counters.forged,
            Refused::Malformed => &mut port.counters.malformed,
        } += 1;
        port.credit -= if port.address.is_some() { REFUSAL_COST } else { FRAME_COST };
    }

    /// It is this port's turn. What it used up beyond its last turn is taken off, if others wait; what it left of it is not added.
    pub fn begin_turn(&mut self, port: PortId, others_wait: bool) {
        let credit = &mut self.ports[port].credit;
        *credit = if others_wait { (*credit + TURN).min(TURN) } else { TURN };
    }

    /// Whether this port may send a frame to everybody now, which is so long after the switch began; if so, it has.
    pub fn may_reach_all(&mut self, port: PortId, now: Duration) -> bool {
        let paid_until = &mut self.ports[port].paid_until;
        let from = now.max(*paid_until);
        let may = from - now <= MOST_AHEAD;
        if may {
            *paid_until = from + BETWEEN_GROUP_FRAMES;
        }
        may
    }

    /// Whether its turn goes on.
    pub fn has_turn(&self, port: PortId) -> bool {
        self.ports[port].credit > 0
    }

    /// Something was done for it that costs so much.
    pub fn charge(&mut self, port: PortId, cost: i64) {
        self.ports[port].credit -= cost;
    }
}

fn addresses(head: &[u8]) -> Option<[Address; 2]> {
    let header = head.get(..ETHERNET_HEADER)?;
    let at = |from: usize| Address(std::array::from_fn(|i| header[from + i]));
    Some([at(0), at(6)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(last: u8) -> Address {
        Address([0x52, 0x54, 0, 0, 0, last])
    }

    fn frame(to: Address, source: Address) -> Vec<u8> {
        [&to.0[..], &source.0, &[8, 0], &[7; 46]].concat()
    }

    fn subnet(ports: u8, gateway: bool) -> Subnet {
        let mut subnet = Subnet::default();
        for port in 0..ports {
            subnet.add(&format!("port{port}"), Some(address(port))).expect("a new name");
        }
        if gateway {
            subnet.add("outside", None).expect("the only gateway");
        }
        subnet
    }

    #[test]
    fn an_address_is_read_as_it_is_written() {
        assert_eq!("52:54:00:00:00:Ab".parse(), Ok(address(0xab)));
        assert_eq!(address(0xab).to_string(), "52:54:00:00:00:ab");
        let wrong = ["", "52:54:00:00:00", "52:54:00:00:00:00:00", "5:254:00:00:00:00", "52:54:00:00:00:+1"];
        for text in wrong.into_iter().chain(["53:54:00:00:00:00", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"]) {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_that_was_left_is_another_s() {
        let mut subnet = subnet(2, true);
        assert_eq!(subnet.take("new", None), Ok(None));
        subnet.counters(1).sent = 7;
        subnet.free(1);
        assert_eq!(subnet.take("port0", None), Err(PortError::NameTaken("port0".into())));
        assert_eq!(subnet.take("new", Some(0)), Ok(None));
        assert_eq!(subnet.take("new", Some(1)), Ok(Some(1)));
        assert_eq!(subnet.ports()[1].counters, Counters::default());
        assert_eq!(subnet.ports()[1].address, Some(address(1)));
        assert_eq!(subnet.add("new", Some(address(9))), Err(PortError::NameTaken("new".into())));
    }

    #[test]
    fn names_and_addresses_are_one_port_s() {
        let mut subnet = subnet(2, true);
        assert_eq!(subnet.add("port1", Some(address(9))), Err(PortError::NameTaken("port1".into())));
        assert_eq!(
            subnet.add("b", Some(address(1))),
            Err(PortError::AddressTaken(address(1), "port1".into()))
        );
        assert_eq!(subnet.add("b", None), Err(PortError::GatewayTaken));
        for name in ["", "../b", "b\n", &"b".repeat(65)] {
            assert_eq!(subnet.add(name, Some(address(9))), Err(PortError::Name(name.into())));
        }
        assert_eq!(subnet.add("b", Some(address(9))), Ok(3));
    }

    #[test]
    fn a_frame_goes_where_its_address_is() {
        let subnet = subnet(3, false);
        let way = |to, source, from| {
            let frame = frame(to, source);
            subnet.way(from, &frame, frame.len())
        };
        assert_eq!(way(address(2), address(0), 0), Ok(Way::One(2)));
        assert_eq!(way(Address([0xff; 6]), address(0), 0), Ok(Way::All));
        assert_eq!(way(Address([0x33, 0x33, 0, 0, 0, 1]), address(0), 0), Ok(Way::All));
        assert_eq!(way(Address([1, 0x80, 0xc2, 0, 0, 15]), address(0), 0), Ok(Way::Nowhere));
        assert_eq!(way(address(0), address(0), 0), Ok(Way::Nowhere));
        assert_eq!(way(address(9), address(0), 0), Ok(Way::Nowhere));
        assert_eq!(way(address(2), address(1), 0), Err(Refused::Forged));
    }

    #[test]
    fn the_gateway_stands_for_all_others_and_for_no_port() {
        let subnet = subnet(2, true);
        let way = |to, source, from| {
            let frame = frame(to, source);
            subnet.way(from, &frame, frame.len())
        };
        assert_eq!(way(address(9), address(0), 0), Ok(Way::One(2)));
        assert_eq!(way(address(1), address(9), 2), Ok(Way::One(1)));
        assert_eq!(way(address(8), address(9), 2), Ok(Way::Nowhere));
        assert_eq!(way(address(1), address(0), 2), Err(Refused::Forged));
        assert_eq!(way(address(1), Address([0xff; 6]), 2), Err(Refused::Forged));
    }

    #[test]
    fn a_frame_has_a_header_and_an_end() {
        let subnet = subnet(2, false);
        let frame = frame(address(1), address(0));
        assert_eq!(subnet.way(0, &frame[..13], 13), Err(Refused::Malformed));
        assert_eq!(subnet.way(0, &frame[..14], 14), Ok(Way::One(1)));
        assert_eq!(subnet.way(0, &frame, LONGEST_FRAME), Ok(Way::One(1)));
        assert_eq!(subnet.way(0, &frame, LONGEST_FRAME + 1), Err(Refused::Malformed));
    }

    #[test]
    fn who_is_refused_again_and_again_leaves_nearly_all_turns_to_others() {
        let mut subnet = subnet(2, true);
        let mut served = [0; 3];
        for _ in 0..3200 {
            for (port, served) in served.iter_mut().enumerate() {
                subnet.begin_turn(port, true);
                while subnet.has_turn(port) {
                    match port {
                        1 => subnet.charge(port, TURN),
                        _ => subnet.refuse(port, Refused::Forged),
                    }
                    *served += 1;
                }
            }
        }
        assert!(served[0] <= 3200 / 30, "{served:?}");
        assert_eq!(served[1], 3200);
        assert_eq!(served[2], 3200 * TURN / FRAME_COST);
        assert_eq!(subnet.counters(0).forged as i64, served[0]);
    }

    #[test]
    fn who_is_alone_owes_nobody() {
        let mut subnet = subnet(2, false);
        subnet.begin_turn(0, true);
        subnet.refuse(0, Refused::Malformed);
        subnet.begin_turn(0, true);
        assert!(!subnet.has_turn(0));
        subnet.begin_turn(0, false);
        assert!(subnet.has_turn(0));
    }

    #[test]
    fn a_port_reaches_all_often_for_a_moment_and_a_thousand_times_a_second() {
        let mut subnet = subnet(2, false);
        let mut count = |port, from, seconds: u64| {
            let times = (0..seconds * 10_000).map(|tenth| Duration::from_micros(tenth * 100) + from);
            times.filter(|now| subnet.may_reach_all(port, *now)).count()
        };
        assert_eq!(count(0, Duration::ZERO, 10), 10_250);
        assert_eq!(count(0, Duration::from_secs(10), 1), 1000);
        assert_eq!(count(1, Duration::from_secs(10), 1), 1250);
        assert_eq!(count(0, Duration::from_secs(20), 1), 1250);
    }

    proptest! {
        #[test]
        fn a_frame_goes_to_others_than_its_sender_and_never_from_somebody_else(
            ports in 1..6u8, gateway: bool, from in 0..6usize, to in 0..8u8, group: bool, source in 0..8u8,
        ) {
            let subnet = subnet(ports, gateway);
            let from = from % subnet.ports().len();
            let to = if group { Address([0xff; 6]) } else { address(to) };
            let frame = frame(to, address(source));
            let its_own = match subnet.ports()[from].address {
                Some(address) => address.0[5] == source,
                None => source >= ports,
            };
            let way = subnet.way(from, &frame, frame.len());
            prop_assert_eq!(way.is_ok(), its_own);
            if let Ok(Way::One(port)) = way {
                prop_assert!(port != from);
                prop_assert!(subnet.ports()[port].address.is_none_or(|address| address == to));
                prop_assert_eq!(subnet.ports()[port].address.is_none(), to.0[5] >= ports);
            }
            prop_assert_eq!(way == Ok(Way::All), group && its_own);
        }

        #[test]
        fn ports_that_always_have_something_to_send_are_served_alike(
            costs in proptest::collection::vec(1..3 * TURN, 2..6), rounds in 50..200i64,
        ) {
            let mut subnet = subnet(u8::try_from(costs.len()).expect("few"), false);
            let mut served = vec![0; costs.len()];
            for _ in 0..rounds {
                for (port, &cost) in costs.iter().enumerate() {
                    subnet.begin_turn(port, true);
                    while subnet.has_turn(port) {
                        subnet.charge(port, cost);
                        served[port] += cost;
                    }
                }
            }
            for (served, cost) in served.iter().zip(&costs) {
                prop_assert!(*served <= rounds * TURN + cost, "{served} of {rounds} turns");
                // What is left of a turn by frames that are small for it is less than one of them.
                prop_assert!(*served >= rounds * TURN - TURN, "{served} of {rounds} turns");
            }
        }
    }
}
