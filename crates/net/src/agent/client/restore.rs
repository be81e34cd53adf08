//! An agent that came back knows nothing: what a process hands back to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use comb_types::{ChannelId, EndpointId};
use rustix::event::epoll;

use super::{SOCKET, Shared, hello, limit_waiting, lock};
use crate::agent::protocol::{self, ProtocolError, Reply, Request, WindowTerms};
use crate::agent::server::connect_socket;
use crate::endpoint::EndpointShared;

/// What an agent that came back was told.
#[derive(Default)]
struct Restored {
    channels: Vec<ChannelId>,
    windows: Vec<(Arc<EndpointShared>, WindowTerms)>,
}

impl Shared {
    /// Knocks once; on an open door, hands back what we hold.
    pub(super) fn reconnect(&self) {
        let Some(path) = &self.path else { return };
        let Ok(socket) = connect_socket(path) else { return };
        if limit_waiting(&socket).is_err() || hello(&socket, &self.name).is_err() {
            return;
        }
        let (mut meanwhile, mut restored) = (Vec::new(), Restored::default());
        // A copy of the list: the book must not be locked while we wait for the agent.
        let endpoints: Vec<_> = lock(&self.book).endpoints.values().cloned().collect();
        for endpoint in &endpoints {
            match self.restore(&socket, endpoint, &mut restored, &mut meanwhile) {
                Ok(id) => endpoint.set_id(id),
                // The agent knows better: its limits are smaller now, or another process has a channel's number. What
                // is open goes on; nobody can open more to this endpoint.
                Err(ProtocolError::Refused) => {}
                // It is away again, or does not speak with us: knock again later.
                Err(_) => return,
            }
        }
        {
            let mut book = lock(&self.book);
            // Endpoints that were closed meanwhile stay closed.
            let known = std::mem::take(&mut book.endpoints).into_values();
            book.endpoints = known.map(|endpoint| (endpoint.id(), endpoint)).collect();
        }
        let data = epoll::EventData::new_u64(SOCKET);
        if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_err() {
            return;
        }
        *lock(&self.socket) = Some(Arc::new(socket));
        // From here on who closes something tells the agent so, and finds it. What was closed after the agent was told of
        // it, and before that, it is told now: looked for afterwards, or what is closed in between is told by nobody.
        for endpoint in endpoints {
            if !lock(&self.book).has_endpoint(&endpoint) {
                self.tell(&Request::CloseEndpoint { endpoint: endpoint.id() }, &[]);
            }
        }
        for (reply, descriptors) in meanwhile {
            self.take(reply, descriptors);
        }
        for channel in restored.channels {
            if !lock(&self.book).has_channel(channel) {
                self.tell(&Request::CloseChannel { channel }, &[]);
            }
        }
        // And windows that were withdrawn meanwhile.
        for (endpoint, window) in restored.windows {
            if !endpoint.windows().has(&window) {
                self.tell(&Request::WithdrawWindow { window }, &[]);
            }
        }
    }

    /// Asks an agent that has just come back. What else it says, an offer to an endpoint that was just restored for
    /// example, is kept for later.
    fn ask_returned(
        &self,
        socket: &OwnedFd,
        request: impl FnOnce(u32) -> Request,
        descriptor: BorrowedFd<'_>,
        meanwhile: &mut Vec<(Reply, Vec<OwnedFd>)>,
    ) -> Result<Reply, ProtocolError> {
        let number = {
            let mut waiting = lock(&self.waiting);
            waiting.next = waiting.next.wrapping_add(1);
            waiting.next
        };
        protocol::send(socket, &request(number), &[descriptor])?;
        loop {
            let (reply, descriptors) = protocol::receive::<Reply>(socket)?;
            match reply {
                Reply::EndpointCreated { request, .. } | Reply::WindowTaken { request }
                    if request == number =>
                {
                    return Ok(reply);
                }
                Reply::Refused { request: Some(request), .. } if request == number => {
                    return Err(ProtocolError::Refused);
                }
                other => meanwhile.push((other, descriptors)),
            }
        }
    }

    /// Tells the agent of one endpoint, its channels, in as many messages as they need, and its windows.
    fn restore(
        &self,
        socket: &OwnedFd,
        endpoint: &Arc<EndpointShared>,
        restored: &mut Restored,
        meanwhile: &mut Vec<(Reply, Vec<OwnedFd>)>,
    ) -> Result<EndpointId, ProtocolError> {
        let channels = lock(&self.book).channels_of(endpoint);
        restored.channels.extend(channels.iter().map(|&(channel, _)| channel));
        let mut left = channels.as_slice();
        let id = loop {
            let (now, later) = left.split_at(left.len().min(protocol::MOST_RESTORED));
            left = later;
            let request = |request| Request::RestoreEndpoint {
                request,
                name: endpoint.name().to_owned(),
                bell_channels: endpoint.options().channels,
                channels: now.to_vec(),
                geometry: endpoint.options().geometry,
            };
            let reply = self.ask_returned(socket, request, endpoint.bell_descriptor(), meanwhile)?;
            let Reply::EndpointCreated { endpoint: id, .. } = reply else {
                return Err(ProtocolError::Refused);
            };
            if left.is_empty() {
                break id;
            }
        };
        for (terms, memory) in endpoint.windows().all() {
            let window = WindowTerms { endpoint: id, ..terms };
            restored.windows.push((Arc::clone(endpoint), window));
            let request = |request| Request::RestoreWindow { request, window };
            match self.ask_returned(socket, request, memory.as_fd(), meanwhile) {
                // One that the agent does not want on its book is still the peer's to use.
                Ok(_) | Err(ProtocolError::Refused) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(id)
    }
}
