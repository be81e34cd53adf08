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
        let number = lock(&self.waiting).fresh_number();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::client::Agent;
    use crate::agent::listener::Listener;
    use crate::agent::policy::Identity;
    use rustix::event::{PollFd, PollFlags};
    use rustix::net::SocketFlags;

    /// Lets in the process that knocks. Nothing is waited for longer than for an agent.
    fn let_in(listener: &OwnedFd) -> OwnedFd {
        rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], None).unwrap();
        let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC).unwrap();
        limit_waiting(&socket).unwrap();
        let (hello, _) = protocol::receive::<Request>(&socket).unwrap();
        assert_eq!(hello, Request::Hello { name: "alice".into() });
        socket
    }

    fn welcome(socket: &OwnedFd) {
        let you = Identity { name: "alice".into(), pid: 1, uid: 0 };
        protocol::send(socket, &Reply::Welcome { you }, &[]).unwrap();
    }

    /// An endpoint was closed after the watcher had looked which were closed, and before it could tell the agent: nobody
    /// did, and the agent kept the endpoint and its name.
    #[test]
    fn an_endpoint_that_is_closed_while_the_agent_comes_back_is_told_of() {
        let path = std::env::temp_dir().join(format!("comb-restore-{}", std::process::id()));
        let listener = Listener::bind(&path).unwrap();
        let (agent, endpoint) = std::thread::scope(|scope| {
            let first_agent = scope.spawn(|| {
                let socket = let_in(&listener);
                welcome(&socket);
                let (asked, _) = protocol::receive::<Request>(&socket).unwrap();
                let Request::CreateEndpoint { request, .. } = asked else { panic!("{asked:?}") };
                let created = Reply::EndpointCreated { request, endpoint: EndpointId(7) };
                protocol::send(&socket, &created, &[]).unwrap();
                socket
            });
            let agent = Agent::connect(&path, "alice").unwrap();
            let endpoint = agent.endpoint("desk").unwrap();
            drop(first_agent.join().unwrap());
            (agent, endpoint)
        });
        let socket = let_in(&listener);
        // The watcher waits for our welcome. It goes as far as to where it would have a connection again.
        let shared = agent.shared();
        let connection = lock(&shared.socket);
        welcome(&socket);
        let (asked, _) = protocol::receive::<Request>(&socket).unwrap();
        let Request::RestoreEndpoint { request, .. } = asked else { panic!("{asked:?}") };
        let back = EndpointId(8);
        protocol::send(&socket, &Reply::EndpointCreated { request, endpoint: back }, &[]).unwrap();
        while !lock(&shared.book).endpoints.contains_key(&back) {
            std::thread::yield_now();
        }
        // As its drop does, which has nobody to tell now.
        lock(&shared.book).endpoints.clear();
        drop(connection);
        let (told, _) = protocol::receive::<Request>(&socket).expect("it is told of");
        assert_eq!(told, Request::CloseEndpoint { endpoint: back });
        drop((endpoint, agent));
        std::fs::remove_file(path).unwrap();
    }
}
