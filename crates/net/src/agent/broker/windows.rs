//! What the broker decides about windows.

use std::os::fd::{AsFd, OwnedFd};

use super::{Broker, ClientId, Outcome, Outgoing, Refusal, exactly};
use crate::agent::protocol::{Reply, WindowTerms};
use crate::segment::{Segment, Writers};
use crate::shm::WINDOWS;

impl Broker {
    pub(super) fn share_window(
        &mut self,
        client: ClientId,
        request: u32,
        window: WindowTerms,
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        self.may_open_window(client, &window)?;
        let entry = &self.channels[&window.channel];
        if entry.pending.is_some() {
            return Err("the peer has not taken the channel yet".into());
        }
        // Told apart by endpoint, because both ends can be one process's.
        let peer = entry.ends.iter().find(|(_, endpoint)| *endpoint != window.endpoint);
        let &(to, endpoint) =
            peer.ok_or("the channel has no other endpoint: it leads to itself, or is not restored yet")?;
        let memory = self.take_window(client, window, descriptors)?;
        let shared = Reply::WindowShared { window: WindowTerms { endpoint, ..window } };
        let taken = Reply::WindowTaken { request };
        Ok(vec![
            Outgoing { to, reply: shared, descriptors: vec![memory] },
            Outgoing { to: client, reply: taken, descriptors: Vec::new() },
        ])
    }

    /// The peer's mapping may live on. What it still writes there is charged to it by its own cgroup, so the owner's
    /// account ends here. A window whose channel is gone was settled with the channel.
    pub(super) fn withdraw_window(&mut self, client: ClientId, window: &WindowTerms) {
        let Some(entry) = self.channels.get_mut(&window.channel) else { return };
        let Some(at) = entry.windows.iter().position(|open| *open == (client, *window)) else { return };
        entry.windows.swap_remove(at);
        self.discharge(client, window.bytes);
    }

    /// A window that was handed over by the agent before: the peer has it, and it counts again.
    pub(super) fn restore_window(
        &mut self,
        client: ClientId,
        request: u32,
        window: WindowTerms,
        descriptors: Vec<OwnedFd>,
    ) -> Outcome {
        self.may_open_window(client, &window)?;
        self.take_window(client, window, descriptors)?;
        let reply = Reply::WindowTaken { request };
        Ok(vec![Outgoing { to: client, reply, descriptors: Vec::new() }])
    }

    fn may_open_window(&self, client: ClientId, window: &WindowTerms) -> Result<(), Refusal> {
        self.own_endpoint(client, window.endpoint)?;
        self.end_of(client, window.channel)?;
        if self.channels[&window.channel].remote.is_some() {
            return Err("a window cannot be shared with another host".into());
        }
        if window.number as usize >= WINDOWS {
            return Err(format!("a side has at most {WINDOWS} windows on a channel").into());
        }
        let entry = &self.channels[&window.channel];
        let same = |(_, open): &(ClientId, WindowTerms)| {
            (open.endpoint, open.number) == (window.endpoint, window.number)
        };
        if entry.windows.iter().any(same) {
            return Err(format!("window {} of this channel is open already", window.number).into());
        }
        Ok(())
    }

    /// Looks at a window's memory, and counts it.
    fn take_window(
        &mut self,
        client: ClientId,
        window: WindowTerms,
        descriptors: Vec<OwnedFd>,
    ) -> Result<OwnedFd, Refusal> {
        let [memory] = exactly(descriptors)?;
        let writers = if window.writable { Writers::Both } else { Writers::Maker };
        Segment::inspect(memory.as_fd(), window.bytes, writers)?;
        self.charge(client, window.bytes)?;
        self.channels.get_mut(&window.channel).expect("checked by end_of").windows.push((client, window));
        Ok(memory)
    }
}
