//! What the broker believes processes that outlived the agent before: their word for which channels they have, of which
//! each end has to say the same; and nothing about the memory of windows, which is looked at again.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use comb_types::ChannelId;

use super::{Broker, Channel, ClientId, Outcome, Outgoing, Refusal};
use crate::agent::policy::reached;
use crate::agent::protocol::Reply;
use crate::shm::{Geometry, GeometryError};

/// An endpoint, as its process says that it is.
pub(super) struct Restored<'a> {
    pub(super) name: String,
    pub(super) bell_channels: u32,
    /// Number, and the peer's `process/endpoint`.
    pub(super) channels: &'a [(ChannelId, String)],
    /// Of the ring that it has for each.
    pub(super) geometry: Geometry,
}

impl Broker {
    /// An endpoint of a process that outlived the agent before. All of it or nothing.
    pub(super) fn restore_endpoint(
        &mut self,
        client: ClientId,
        request: u32,
        restored: Restored<'_>,
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        let Restored { name, bell_channels, channels, geometry } = restored;
        let process = self.identity(client).ok_or("not connected")?.name;
        let own = format!("{process}/{name}");
        let mut ends_here = BTreeMap::new();
        for (channel, peer) in channels {
            self.may_restore(*channel, &own, peer)?;
            let ends: &mut u32 = ends_here.entry(*channel).or_default();
            *ends += 1;
            if *ends > 1 + u32::from(*peer == own) {
                return Err(format!("{channel} is named more often than it has ends").into());
            }
        }
        let held = self.clients[&client].channels as usize + channels.len();
        if held > self.limits.channels as usize {
            let limit = format!("this process's limit of {} channels", self.limits.channels);
            return Err(reached(&limit, "channels").into());
        }
        let ring_bytes = geometry.check().map_err(|error: GeometryError| error)?.segment_bytes() as u64;
        let rings_bytes = ring_bytes * channels.len() as u64;
        self.charge(client, rings_bytes)?;
        let known = self.endpoints.iter().filter(|(_, e)| e.owner == client && e.name == name && e.restored);
        let endpoint = match known.map(|(&endpoint, _)| endpoint).next() {
            Some(endpoint) => endpoint,
            None => self
                .insert_endpoint(client, name, bell_channels, descriptors)
                .inspect_err(|_| self.discharge(client, rings_bytes))?,
        };
        self.endpoints.get_mut(&endpoint).expect("just found or made").restored = true;
        for (channel, peer) in channels {
            let fresh = || Channel {
                ends: Vec::new(),
                pending: None,
                charged_bytes: Vec::new(),
                windows: Vec::new(),
                remote: None,
                half: Some((own.clone(), peer.clone())),
            };
            let entry = self.channels.entry(*channel).or_insert_with(fresh);
            entry.ends.push((client, endpoint));
            entry.charged_bytes.push((client, ring_bytes));
            if entry.ends.len() == 2 {
                entry.half = None;
            }
        }
        let added = u32::try_from(channels.len()).expect("within the limit");
        self.clients.get_mut(&client).expect("identified above").channels += added;
        let reply = Reply::EndpointCreated { request, endpoint };
        Ok(vec![Outgoing { to: client, reply, descriptors: Vec::new() }])
    }

    /// A channel's number is easy to guess. Only who the other end names may claim what that one has restored, and
    /// nobody what was made here.
    fn may_restore(&self, channel: ChannelId, own: &str, peer: &str) -> Result<(), Refusal> {
        match self.channels.get(&channel).map(|entry| &entry.half) {
            None => Ok(()),
            Some(Some((restorer, named))) if own == named && peer == restorer => Ok(()),
            Some(_) => Err(format!("{channel} is not this endpoint's to restore").into()),
        }
    }
}
