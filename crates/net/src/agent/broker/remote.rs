//! Channels to other hosts: the broker keeps the book; who carries the questions over is the server's business.

use std::os::fd::OwnedFd;

use comb_types::{ChannelId, EndpointId};

use super::{Broker, Channel, ClientId, Outcome, Outgoing, Parting, Refusal, check_name};
use crate::agent::policy::Identity;
use crate::agent::protocol::{RemoteSession, Reply};

/// A channel to another host.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) stage: Stage,
    pub(super) elsewhere: Elsewhere,
}

/// How both hosts' agents call a channel between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// The other host.
    pub host: String,
    /// As in frames: the opener's agent numbered it.
    pub wire_channel: ChannelId,
    /// Whether that is this agent.
    pub opened_here: bool,
}

/// A channel's end, as agents tell each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Farewell {
    /// Which channel.
    pub channel: Elsewhere,
    /// A sentence for people.
    pub reason: String,
    /// What the endpoint left on its board, if its process has ended.
    pub last_word: Option<u128>,
}

/// How far a channel to another host has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The other host has been asked, for this request of our client.
    Asked(u32),
    /// Our client has been asked.
    Offered,
    /// Both have it.
    Open,
}

impl Channel {
    fn set_stage(&mut self, stage: Stage) {
        if let Some(remote) = &mut self.remote {
            remote.stage = stage;
        }
    }
}

/// A channel that another host is to be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Its number here.
    pub channel: ChannelId,
    /// Which host.
    pub host: String,
    /// `process/endpoint` there.
    pub to: String,
    /// Who opens it.
    pub from: Identity,
    /// The opener's endpoint.
    pub from_endpoint: String,
    /// Of both sides.
    pub silence_limit_ms: u32,
}

/// What our client said to a channel from another host.
pub type Verdict = (ChannelId, Result<(), String>);

impl Broker {
    pub(super) fn open_remote(
        &mut self,
        client: ClientId,
        request: u32,
        endpoint: EndpointId,
        address: &str,
        silence_limit_ms: u32,
    ) -> Outcome {
        self.own_endpoint(client, endpoint)?;
        let parts = address.split_once(':').filter(|(host, to)| !host.is_empty() && to.contains('/'));
        let (host, to) =
            parts.ok_or_else(|| format!("{address:?} is no address: say host:process/endpoint"))?;
        let from = self.identity(client).ok_or("not connected")?;
        self.policy.may_leave(&from, host, to).map_err(Refusal)?;
        self.has_place(client, "this process's")?;
        let channel = self.new_remote(client, endpoint, Stage::Asked(request), |number| Elsewhere {
            host: host.to_owned(),
            wire_channel: number,
            opened_here: true,
        });
        self.departures.push(Departure {
            channel,
            host: host.to_owned(),
            to: to.to_owned(),
            from,
            from_endpoint: self.endpoints[&endpoint].name.clone(),
            silence_limit_ms,
        });
        Ok(Vec::new())
    }

    /// The hosts that are to be asked since the last call.
    pub fn take_departures(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departures)
    }

    /// What became of a departure: the line to the other host, or why there is none. A client that has left meanwhile
    /// gets nothing, the line is closed, and the other host is told.
    pub fn arrived(
        &mut self,
        channel: ChannelId,
        outcome: Result<(RemoteSession, OwnedFd), String>,
    ) -> Vec<Outgoing> {
        if let Some(orphan) = self.orphans.remove(&channel)
            && outcome.is_ok()
        {
            self.farewells.push(orphan);
        }
        let Some(entry) = self.channels.get_mut(&channel) else { return Vec::new() };
        let Some(Remote { stage: Stage::Asked(request), .. }) = entry.remote else { return Vec::new() };
        let to = entry.ends[0].0;
        match outcome {
            Ok((session, socket)) => {
                entry.set_stage(Stage::Open);
                let reply = Reply::RemoteOpened { request, channel, session };
                vec![Outgoing { to, reply, descriptors: vec![socket] }]
            }
            Err(reason) => {
                // The other host knows.
                entry.remote = None;
                self.remove_channel(channel, &|_| false, "".into(), &mut Vec::new());
                let reply = Reply::Refused { request: Some(request), reason };
                vec![Outgoing { to, reply, descriptors: Vec::new() }]
            }
        }
    }

    /// A process on another host opens a channel to `to`, says the agent of `host`. What our process says to it comes
    /// as a verdict.
    pub fn offer_remote(
        &mut self,
        host: &str,
        from: &Identity,
        from_endpoint: &str,
        to: &str,
        line: (RemoteSession, OwnedFd),
    ) -> Result<(ChannelId, Vec<Outgoing>), String> {
        let offered = || -> Result<_, Refusal> {
            check_name(&from.name)?;
            check_name(from_endpoint)?;
            let (target, endpoint, name) = self.find(to)?;
            let peer = self.identity(target).ok_or("not connected")?;
            self.policy.may_enter(host, from, &peer, name).map_err(Refusal)?;
            self.has_place(target, "the peer's")?;
            Ok((target, endpoint))
        };
        let (target, endpoint) = offered().map_err(|Refusal(reason)| reason)?;
        let (session, socket) = line;
        let channel = self.new_remote(target, endpoint, Stage::Offered, |_| Elsewhere {
            host: host.to_owned(),
            wire_channel: session.wire_channel,
            opened_here: false,
        });
        let from = format!("{host}:{}/{from_endpoint}", from.name);
        let reply = Reply::RemoteOffer { channel, endpoint, from, session };
        Ok((channel, vec![Outgoing { to: target, reply, descriptors: vec![socket] }]))
    }

    /// The verdicts since the last call.
    pub fn take_verdicts(&mut self) -> Vec<Verdict> {
        std::mem::take(&mut self.verdicts)
    }

    pub(super) fn accept_remote(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        self.end_of(client, channel)?;
        let entry = self.channels.get_mut(&channel).expect("checked by end_of");
        if !matches!(entry.remote, Some(Remote { stage: Stage::Offered, .. })) {
            return Err("the channel was not offered by another host".into());
        }
        entry.set_stage(Stage::Open);
        self.verdicts.push((channel, Ok(())));
        Ok(Vec::new())
    }

    pub(super) fn refuse_remote(&mut self, client: ClientId, channel: ChannelId, reason: &str) -> Outcome {
        self.end_of(client, channel)?;
        let Refusal(reason) = reason.into();
        let reason = format!("{} refused: {reason}", self.full_name(client));
        // The verdict is given where the offer is removed.
        self.remove_channel(channel, &|_| false, reason[..].into(), &mut Vec::new());
        Ok(Vec::new())
    }

    /// What other hosts are to be told since the last call.
    pub fn take_farewells(&mut self) -> Vec<Farewell> {
        std::mem::take(&mut self.farewells)
    }

    /// Another host's agent says that a channel has ended there: its process left, or is done with it. Only channels
    /// to that host can be meant.
    pub fn ended_elsewhere(&mut self, farewell: &Farewell) -> Vec<Outgoing> {
        let &Farewell { channel: ref elsewhere, ref reason, last_word } = farewell;
        let is_meant = |entry: &Channel| entry.remote.as_ref().is_some_and(|r| r.elsewhere == *elsewhere);
        let Some((&channel, entry)) = self.channels.iter_mut().find(|(_, entry)| is_meant(entry)) else {
            return Vec::new();
        };
        let reason = format!("host {}: {reason}", elsewhere.host);
        let mut out = Vec::new();
        match entry.remote.as_ref().map(|remote| remote.stage) {
            // The line that the answer comes on is slower.
            Some(Stage::Asked(_)) => return self.arrived(channel, Err(reason)),
            Some(Stage::Offered) => {}
            // No answer is due: it is the answer.
            Some(Stage::Open) | None => entry.remote = None,
        }
        self.remove_channel(channel, &|_| true, Parting { reason: &reason, last_word }, &mut out);
        out
    }

    fn new_remote(
        &mut self,
        client: ClientId,
        endpoint: EndpointId,
        stage: Stage,
        elsewhere: impl FnOnce(ChannelId) -> Elsewhere,
    ) -> ChannelId {
        let channel = ChannelId(self.fresh_number());
        let elsewhere = elsewhere(channel);
        self.clients.get_mut(&client).expect("it owns the endpoint").channels += 1;
        self.channels.insert(
            channel,
            Channel {
                ends: vec![(client, endpoint)],
                pending: None,
                charged_bytes: Vec::new(),
                windows: Vec::new(),
                half: None,
                remote: Some(Remote { stage, elsewhere }),
            },
        );
        channel
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ALICE, BOB, Book, book};
    use super::*;
    use crate::agent::protocol::{Framing, Request};

    fn line(wire_channel: ChannelId) -> (RemoteSession, OwnedFd) {
        let session = RemoteSession {
            wire_channel,
            version: 1,
            suite: 0,
            connector: true,
            send_secret: [1; 32],
            receive_secret: [2; 32],
            framing: Framing { longest_frame: 1400, longest_message: 65536, window: 128 },
            af_xdp: false,
            silence_limit_ms: 1000,
        };
        // Any descriptor does for the socket: the broker only hands it on.
        (session, rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap())
    }

    impl Book {
        /// Alice asked for a channel to beta.
        fn asked(&mut self) -> ChannelId {
            let (endpoint, to) = (self.endpoints[0], "beta:dora/desk".to_owned());
            let ask = Request::OpenRemote { request: 9, endpoint, to, silence_limit_ms: 1000 };
            assert!(self.ask(ALICE, ask, Vec::new()).is_empty());
            self.broker.take_departures()[0].channel
        }

        fn opened_to_beta(&mut self) -> ChannelId {
            let channel = self.asked();
            let out = self.broker.arrived(channel, Ok(line(channel)));
            assert!(matches!(out[0].reply, Reply::RemoteOpened { request: 9, .. }), "{out:?}");
            channel
        }

        /// Dora of beta asks for a channel to Bob.
        fn offered_by_beta(&mut self, wire_channel: ChannelId) -> ChannelId {
            let dora = Identity { name: "dora".into(), pid: 5, uid: 1000 };
            let offered = self.broker.offer_remote("beta", &dora, "desk", "bob/desk", line(wire_channel));
            let (channel, out) = offered.unwrap();
            assert!(matches!(out[0].reply, Reply::RemoteOffer { .. }), "{out:?}");
            channel
        }

        fn hear(&mut self, channel: Elsewhere) -> Vec<(ClientId, Reply)> {
            let farewell = Farewell { channel, reason: "dora left".into(), last_word: Some(9) };
            let out = self.broker.ended_elsewhere(&farewell);
            out.into_iter().map(|out| (out.to, out.reply)).collect()
        }
    }

    fn at_beta(wire_channel: ChannelId, opened_here: bool) -> Elsewhere {
        Elsewhere { host: "beta".into(), wire_channel, opened_here }
    }

    #[test]
    fn the_other_host_is_told_of_every_end_here() {
        let mut book = book();
        let by_us = book.opened_to_beta();
        let wire = ChannelId(77);
        let by_them = book.offered_by_beta(wire);
        assert!(book.ask(BOB, Request::AcceptRemote { channel: by_them }, Vec::new()).is_empty());
        assert_eq!(book.broker.take_verdicts(), [(by_them, Ok(()))]);
        assert_eq!(book.broker.take_farewells(), []);

        book.broker.disconnect(ALICE);
        let reason = "alice (process 101) left".to_owned();
        assert_eq!(
            book.broker.take_farewells(),
            [Farewell { channel: at_beta(by_us, true), reason, last_word: None }]
        );
        book.ask(BOB, Request::CloseChannel { channel: by_them }, Vec::new());
        let reason = "bob (process 102) closed the channel".to_owned();
        assert_eq!(
            book.broker.take_farewells(),
            [Farewell { channel: at_beta(wire, false), reason, last_word: None }]
        );
    }

    #[test]
    fn an_opener_that_leaves_too_early_is_told_of_when_the_other_host_has_answered() {
        for answered in [true, false] {
            let mut book = book();
            let channel = book.asked();
            book.broker.disconnect(ALICE);
            assert_eq!(book.broker.take_farewells(), [], "it may not have heard of the channel");
            let outcome = if answered { Ok(line(channel)) } else { Err("refused".to_owned()) };
            assert!(book.broker.arrived(channel, outcome).is_empty(), "nobody is there");
            let reason = "alice (process 101) left".to_owned();
            let farewell = Farewell { channel: at_beta(channel, true), reason, last_word: None };
            assert_eq!(book.broker.take_farewells(), if answered { vec![farewell] } else { vec![] });
        }
    }

    #[test]
    fn a_host_ends_its_own_channels_only_and_each_once() {
        let mut book = book();
        let idle = book.charges();
        let channel = book.opened_to_beta();
        let stranger = Elsewhere { host: "gamma".into(), ..at_beta(channel, true) };
        for wrong in [stranger, at_beta(channel, false), at_beta(ChannelId(channel.0 + 1), true)] {
            assert_eq!(book.hear(wrong), []);
        }
        let reason = "host beta: dora left".to_owned();
        assert_eq!(
            book.hear(at_beta(channel, true)),
            [(ALICE, Reply::PeerGone { channel, reason, last_word: Some(9) })]
        );
        assert_eq!(book.hear(at_beta(channel, true)), []);
        assert_eq!(book.charges(), idle);
        assert_eq!(book.broker.take_farewells(), [], "it knows");
    }

    #[test]
    fn an_end_that_overtakes_the_answer_is_the_answer() {
        let mut book = book();
        let channel = book.asked();
        let [(ALICE, Reply::Refused { request: Some(9), reason })] = &book.hear(at_beta(channel, true))[..]
        else {
            panic!("alice waits for ever");
        };
        assert_eq!(reason, "host beta: dora left");
        assert!(book.broker.arrived(channel, Ok(line(channel))).is_empty(), "it came too late");

        let wire = ChannelId(77);
        let offered = book.offered_by_beta(wire);
        let out = book.hear(at_beta(wire, false));
        assert!(matches!(out[..], [(BOB, Reply::PeerGone { channel, .. })] if channel == offered), "{out:?}");
        assert!(matches!(book.broker.take_verdicts()[..], [(channel, Err(_))] if channel == offered));
    }
}
