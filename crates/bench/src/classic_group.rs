//! The classic way over the same mesh: MSCS's heartbeats, regroup, join and global update, with its own timers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_group::{Arrivals, Mesh, Names, NodeId};
use comb_membership::mscs::{self, Discovery, Event, Input, Kind, Mscs, NodeSet};
use comb_membership::{Incarnation, Member};
use comb_net::{Agent, EndpointOptions};
use comb_types::Time;

use crate::group_side::{Counts, Happened, Way};

pub(crate) struct ClassicGroup {
    mesh: Mesh,
    mscs: Mscs,
    arrivals: Arrivals,
    started: Instant,
    /// The update that is under way: there is one at a time.
    updates: u64,
    /// Messages that are no heartbeats.
    sent: u64,
}

impl ClassicGroup {
    pub(crate) fn new(
        agent: &Agent,
        own: NodeId,
        members: u32,
        names: Names,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let mesh = Mesh::join(agent, own, names, EndpointOptions::default())?;
        let me = Member { node: own, incarnation: Incarnation(1) };
        let all: NodeSet = (0..members).map(NodeId).collect();
        // Who comes after the first members comes in to them, through the holder of the cluster's address.
        let mscs = if own.0 < members {
            Mscs::member(Time::ZERO, me, all)
        } else {
            let configured = (0..=own.0).map(NodeId).collect();
            Mscs::joining(Time::ZERO, me, configured, Discovery::AskAddressHolder(NodeId(0)))
        };
        Ok(Self { mesh, mscs, arrivals: Arrivals::default(), started: Instant::now(), updates: 0, sent: 0 })
    }

    fn now(&self) -> Time {
        Time::ZERO.saturating_add(self.started.elapsed())
    }

    fn send(&mut self) {
        while let Some(transmit) = self.mscs.poll_transmit() {
            self.sent += u64::from(mscs::kind(&transmit.bytes) != Some(Kind::Heartbeat));
            let bytes: Arc<[u8]> = transmit.bytes.into();
            self.mesh.send(transmit.to, &bytes);
        }
    }
}

impl Way for ClassicGroup {
    /// The first members have no moment at which all are known to be there; their heartbeats are slow enough to wait for all to
    /// start.
    fn is_whole(&self) -> bool {
        self.mscs.has_joined() && self.started.elapsed() > Duration::from_millis(500)
    }

    fn counts(&self) -> Counts {
        Counts { messages: self.sent, calls: self.mscs.calls_made() }
    }

    fn submit(&mut self, body: &[u8]) -> Option<u64> {
        if self.mscs.is_updating() {
            return None;
        }
        self.updates += 1;
        self.mscs.handle(self.now(), Input::Update(body)).ok()?;
        self.send();
        Some(self.updates)
    }

    fn poll(&mut self, happened: &mut Vec<Happened>) {
        self.mesh.poll(&mut self.arrivals);
        let now = self.now();
        for (from, bytes) in self.arrivals.messages() {
            // A peer that broke a rule would be seen in the numbers.
            let _ = self.mscs.handle(now, Input::Message { from, bytes });
        }
        if self.mscs.next_timeout().is_some_and(|due| due <= now) {
            let _ = self.mscs.handle(now, Input::Timeout);
        }
        self.send();
        while let Some(event) = self.mscs.poll_event() {
            match event {
                Event::Applied { .. } => happened.push(Happened::Delivered),
                Event::Completed(_) => happened.push(Happened::Reached(self.updates)),
                Event::Installed { members, .. } => happened.push(Happened::View(members.len() as usize)),
                Event::Added(_) => happened.push(Happened::View(self.mscs.members().len() as usize)),
                _ => {}
            }
        }
    }

    fn wait(&mut self, limit: Duration) {
        let until = self.mscs.next_timeout().map_or(limit, |due| due.since(self.now()));
        self.mesh.wait(until.min(limit));
    }
}
