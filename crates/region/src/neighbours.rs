//! Components of one host in a task of several hosts. They share page frames, and one of them, the *lead*, has rights and copies for all: to
//! every protocol a host is one. The others are its guests: what it has not shown them they ask it for ([`Kind::Want`](crate::wire::Kind)).
//!
//! Memory that is guarded by objects is each component's own: several of them share a page frame, and page tables know no less.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use comb_memory::{Guard, Layout, Lent, Memory, MemoryError};
use comb_net::agent::{credentials, protocol};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::task::{Description, Share};

/// Where guests hand over their guards, beside the agent's socket.
pub(crate) const SOCKET: &str = "lead.sock";
/// For what takes milliseconds: all have come when it begins.
const LIMIT: Duration = Duration::from_secs(60);

/// What a component is among those of its host.
#[derive(Debug)]
pub(crate) enum Role {
    /// It has the rights, for itself and for those to whom its memory is lent. There may be none.
    Lead(Lent),
    /// It maps the frames of another.
    Guest(Guest),
}

/// What a guest has of its lead.
#[derive(Debug)]
pub(crate) struct Guest {
    frames: OwnedFd,
    guard: Guard,
}

/// Who leads whom, and what this component is.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// By rank, the same in all components.
    pub(crate) leads: Arc<[u32]>,
    pub(crate) role: Role,
}

/// Who leads whom, if any are to be led: where the hosts are several and one has several components that may share.
pub(crate) fn leads(description: &Description) -> Option<Arc<[u32]>> {
    let hosts = || description.components.iter().map(|component| &component.host);
    let lead = |host| hosts().position(|other| other == host).expect("its own at least");
    let leads: Vec<u32> = hosts().map(lead).map(|rank| u32::try_from(rank).expect("checked")).collect();
    let are_several = leads.iter().any(|&lead| lead != leads[0]);
    let are_led = (0..).zip(&leads).any(|(rank, &lead)| rank != lead);
    (are_several && are_led && description.share == Share::Auto).then(|| leads.into())
}

/// On its way to be [`Neighbours`].
pub(crate) struct Meeting {
    description: Description,
    leads: Arc<[u32]>,
    /// Of a lead with guests.
    door: Option<OwnedFd>,
}

impl Meeting {
    /// Before this component says that it is there: who finds it there finds its door.
    pub(crate) fn begin(description: &Description) -> Option<Self> {
        let leads = leads(description)?;
        let rank = description.rank;
        let has_guests = leads.iter().filter(|&&lead| lead == rank).count() > 1;
        let door = has_guests.then(|| listen(&place(description)).ok()).flatten();
        Some(Self { description: description.clone(), leads, door })
    }

    /// Whether this component has the frames of its host.
    pub(crate) fn leads(&self) -> bool {
        self.leads[self.description.rank as usize] == self.description.rank
    }

    /// Guards change hands. An error: this host cannot, and all have copies.
    pub(crate) fn hand_over(self, frames: Option<OwnedFd>) -> Result<Neighbours, Errno> {
        let Self { description, leads, door } = self;
        let rank = description.rank;
        let lead = leads[rank as usize];
        let role = if lead == rank {
            let guests = leads.iter().filter(|&&of| of == rank).count() - 1;
            Role::Lead(receive(guests, door.as_ref(), |of| leads.get(of as usize) == Some(&rank))?)
        } else {
            // Its lead waits for it, be it to hear that it has none.
            let guard = Guard::new().ok();
            give(&place(&description), rank, guard.as_ref())?;
            Role::Guest(Guest { frames: frames.ok_or(Errno::BADF)?, guard: guard.ok_or(Errno::NOTSUP)? })
        };
        Ok(Neighbours { leads, role })
    }
}

fn place(description: &Description) -> PathBuf {
    description.agent.with_file_name(SOCKET)
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn listen(place: &std::path::Path) -> Result<OwnedFd, Errno> {
    let door = socket()?;
    rustix::net::bind(&door, &SocketAddrUnix::new(place)?)?;
    rustix::net::listen(&door, 64)?;
    Ok(door)
}

fn give(place: &std::path::Path, rank: u32, guard: Option<&Guard>) -> Result<(), Errno> {
    let lead = socket()?;
    rustix::net::connect(&lead, &SocketAddrUnix::new(place)?)?;
    rustix::net::sockopt::set_socket_timeout(&lead, Timeout::Recv, Some(LIMIT))?;
    let guard = guard.map(AsFd::as_fd);
    protocol::send(&lead, &rank, guard.as_slice()).map_err(|_| Errno::PROTO)?;
    protocol::receive::<()>(&lead).map(drop).map_err(|_| Errno::PROTO)
}

fn receive(guests: usize, door: Option<&OwnedFd>, is_ours: impl Fn(u32) -> bool) -> Result<Lent, Errno> {
    let mut lent = Lent::default();
    if guests == 0 {
        return Ok(lent);
    }
    let door = door.ok_or(Errno::NOTCONN)?;
    // Of a socket that listens, it is the limit to wait for somebody.
    rustix::net::sockopt::set_socket_timeout(door, Timeout::Recv, Some(LIMIT))?;
    for _ in 0..guests {
        let guest = rustix::net::accept_with(door, SocketFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_timeout(&guest, Timeout::Recv, Some(LIMIT))?;
        let who = credentials::of_peer(&guest)?;
        let (rank, mut guard) = protocol::receive::<u32>(&guest).map_err(|_| Errno::PROTO)?;
        let guard = guard.pop().ok_or(Errno::BADF)?;
        if who.uid != rustix::process::getuid().as_raw() || !is_ours(rank) || lent.has(rank) {
            return Err(Errno::PERM);
        }
        lent.admit(rank, guard, who.process);
        protocol::send(&guest, &(), &[]).map_err(|_| Errno::PROTO)?;
    }
    Ok(lent)
}

impl Guest {
    /// Maps an allocation's frames. Until the lead has shown them, each touch is stopped.
    pub(crate) fn map(&self, memory: &Memory, layout: &Layout) -> Result<(), MemoryError> {
        memory.import_under(&self.guard, layout, self.frames.as_fd(), layout.offset())?;
        memory.open_import(layout, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Component, DESCRIPTION_VERSION};

    fn led(hosts: &str, share: Share) -> Option<Vec<u32>> {
        let description = Description {
            version: DESCRIPTION_VERSION,
            name: "run-7".into(),
            rank: 0,
            agent: "/tmp/agent.sock".into(),
            components: hosts.chars().map(|host| Component { host: host.to_string() }).collect(),
            share,
            frames: None,
            memory_bytes: 0,
            copies_bytes: 0,
            spread: crate::task::Spread::default(),
            checkpoint: None,
            report: None,
        };
        leads(&description).map(|leads| leads.to_vec())
    }

    #[test]
    fn the_first_component_of_each_host_leads_its_others() {
        assert_eq!(led("aabb", Share::Auto), Some(vec![0, 0, 2, 2]));
        assert_eq!(led("abba", Share::Auto), Some(vec![0, 1, 1, 0]));
        assert_eq!(led("aab", Share::Auto), Some(vec![0, 0, 2]));
        for (hosts, share) in
            [("aabb", Share::Copy), ("aaa", Share::Auto), ("ab", Share::Auto), ("a", Share::Auto)]
        {
            assert_eq!(led(hosts, share), None, "{hosts}: nobody has to");
        }
    }
}
