//! Channels to the other cells, and what goes over them: active messages, among them calls.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use comb_net::active::{ActiveError, ActiveMessages};
use comb_net::{Agent, Cause, ChannelEnded, ChannelKey, EndpointOptions, Opening, RequestError};
use comb_types::CellId;

use crate::calls::{CallError, Desk};
use crate::clock::monotonic_ns;
use crate::supervision::{WIRE, cell_of_address, process_name};

/// Requests: sixteen bytes that come back as they are.
pub(crate) const HEARTBEAT: u16 = 0;
/// What containment has to say; nothing comes back.
pub(crate) const CONTAINMENT: u16 = 1;
/// A call, and its answer if it was served at once.
pub(crate) const CALL: u16 = 2;
/// The answer to a call that was put off.
pub(crate) const COMPLETION: u16 = 3;

/// Of a host that is cut off nobody tells. One that stands still for a second, or is slow to answer, is not taken for that.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_millis(2500);
/// As many cells as a host has, and as many again that are coming while their former lives are going.
const CHANNELS: u32 = 256;
/// A cell's endpoints look so often for what a peer may have kept from them. Each look is a turn of its loop, and at rest there are few others.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// What has happened on the channels.
#[derive(Debug)]
pub enum News {
    /// There is a channel.
    Linked(CellId, ChannelKey),
    /// Once for each life of a cell.
    Ended {
        /// Whose.
        cell: CellId,
        /// Which.
        channel: ChannelKey,
        /// Of the channel.
        address: String,
        /// Why.
        cause: Cause,
        /// When this was seen, on `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
    /// No cell, and therefore closed.
    Stranger(String),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Links {
    own: CellId,
    active: ActiveMessages<Desk>,
    cells: BTreeMap<ChannelKey, (CellId, String)>,
    /// Cells of this host that the agent says can be opened to.
    pub present: BTreeSet<u32>,
    /// Those of other hosts.
    present_elsewhere: BTreeSet<u32>,
    /// On which hosts cells are that are not on this one.
    elsewhere: BTreeMap<u32, String>,
    /// Channels that were asked for.
    opening: BTreeMap<u32, Opening>,
    news: Vec<News>,
}

impl Links {
    /// A cell's endpoint. Calls of others are served from now on, when it is polled.
    pub fn new(agent: &Agent, own: CellId, desk: Desk) -> Result<Self, RequestError> {
        let options = EndpointOptions {
            channels: CHANNELS,
            events: true,
            looks_after: BETWEEN_LOOKS,
            silence_limit_elsewhere: SILENCE_LIMIT,
            ..EndpointOptions::default()
        };
        let mut active = ActiveMessages::new(agent.endpoint_with(WIRE, options)?, desk);
        active.on_request(HEARTBEAT, |_, request| {
            let (beat, length) = words(request.arguments());
            let _ = request.reply(HEARTBEAT, &beat[..length], &[]);
        });
        active.on_reply(HEARTBEAT, |desk, reply| desk.hear_beat(reply.from, reply.arguments));
        active.on_request(CONTAINMENT, |desk, request| desk.hear(request.from(), request.payload()));
        active.on_request(CALL, Desk::serve);
        active.on_reply(CALL, |desk, reply| desk.hear_answer(reply.from, reply.arguments, reply.payload));
        active.on_request(COMPLETION, |desk, request| {
            desk.hear_answer(request.from(), request.arguments(), request.payload());
        });
        Ok(Self {
            own,
            active,
            cells: BTreeMap::new(),
            present: BTreeSet::new(),
            present_elsewhere: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            opening: BTreeMap::new(),
            news: Vec::new(),
        })
    }

    /// Where calls are served.
    pub fn desk(&mut self) -> &mut Desk {
        self.active.state_mut()
    }

    /// Takes in what has come, and sends what is ready.
    pub fn poll(&mut self) {
        self.finish_openings();
        loop {
            let outcome = self.active.poll();
            self.meet_newcomers();
            match outcome {
                Ok(0) => break,
                Ok(_) => {}
                Err(ended) => self.ended(&ended),
            }
        }
        if !self.opening.is_empty() {
            self.finish_openings();
        }
        for (channel, word, result) in self.active.state_mut().completed() {
            if self.cells.contains_key(&channel) {
                let sent = self.active.try_request(channel, COMPLETION, &[word], &result);
                self.see(&sent);
            }
        }
        for (channel, why) in self.active.state_mut().guilty() {
            self.cut(channel, why);
        }
    }

    /// What has happened since the last time.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// On which hosts cells are that are not on this one, and which of them can be opened to. A channel to a cell that is none of that
    /// host's any more is closed.
    pub fn learn_where(&mut self, elsewhere: BTreeMap<u32, String>, present: BTreeSet<u32>) {
        self.elsewhere = elsewhere;
        self.present_elsewhere = present;
        let host_of = |cell| self.elsewhere.get(&cell).map(String::as_str);
        let is_gone = |(_, (cell, address)): &(&ChannelKey, &(CellId, String))| {
            cell_of_address(address, host_of) != Some(cell.0)
        };
        let gone: Vec<ChannelKey> = self.cells.iter().filter(is_gone).map(|(&channel, _)| channel).collect();
        gone.into_iter().for_each(|channel| self.cut(channel, "its host is none of this comb's"));
    }

    /// Whether a cell is on another host.
    pub fn is_elsewhere(&self, cell: CellId) -> bool {
        self.elsewhere.contains_key(&cell.0)
    }

    /// The cell behind a channel.
    pub fn cell(&self, channel: ChannelKey) -> Option<CellId> {
        self.cells.get(&channel).map(|&(cell, _)| cell)
    }

    /// The channel to a cell.
    pub fn channel(&self, cell: CellId) -> Option<ChannelKey> {
        self.cells.iter().find(|(_, (other, _))| *other == cell).map(|(&key, _)| key)
    }

    /// Cells that there is a channel to.
    pub fn linked(&self) -> impl Iterator<Item = CellId> + '_ {
        self.cells.values().map(|&(cell, _)| cell)
    }

    /// How many messages have come from each.
    pub fn received(&self) -> Vec<(u32, u64)> {
        let endpoint = self.active.endpoint();
        let count = |key: &ChannelKey| endpoint.counters(*key).map_or(0, |counters| counters.received);
        self.cells.iter().map(|(key, (cell, _))| (cell.0, count(key))).collect()
    }

    /// Sends, if that can be done at once. What is not sent to a cell that does not read is the least of its troubles.
    pub fn send(&mut self, to: CellId, handler: u16, arguments: &[u64], payload: &[u8]) -> bool {
        let Some(channel) = self.channel(to) else { return false };
        let sent = self.active.try_request(channel, handler, arguments, payload);
        self.see(&sent);
        sent.is_ok()
    }

    /// Calls a procedure of a cell: the call's number. Its answer, or why there is none, is one of [`Links::next_answer`]'s within the limit.
    pub fn call(
        &mut self,
        to: CellId,
        procedure: u16,
        arguments: &[u8],
        limit: Duration,
    ) -> Result<u32, CallError> {
        let channel = self.channel(to).ok_or(CallError::Unreachable)?;
        let (call, words) = self.active.state_mut().begin(channel, procedure, arguments, limit)?;
        let sent = if words.len() == 1 { arguments } else { &[] };
        let sent = self.active.try_request(channel, CALL, &words, sent);
        if sent.is_err() {
            self.active.state_mut().unsent(call);
            self.see(&sent);
        }
        Ok(call)
    }

    /// The next call that is over.
    pub fn next_answer(&mut self) -> Option<(u32, Result<Vec<u8>, CallError>)> {
        self.active.state_mut().next_answer()
    }

    fn see(&mut self, sent: &Result<(), ActiveError>) {
        if let Err(ActiveError::Ended(ended)) = sent {
            let ended = ended.clone();
            self.ended(&ended);
        }
    }

    /// Opens to those of the present that have lower numbers; the others open to us. An agent that is busy is not waited for.
    pub fn open_to_lower(&mut self) {
        let present = [&self.present, &self.present_elsewhere].into_iter();
        let missing: Vec<u32> = present.flat_map(|present| present.range(..self.own.0)).copied().collect();
        for cell in missing {
            let is_known = self.channel(CellId(cell)).is_some() || self.opening.contains_key(&cell);
            // Refused or no agent: tried again at the next beat.
            if !is_known && let Ok(opening) = self.active.begin_opening(&self.address_of(cell)) {
                self.opening.insert(cell, opening);
            }
        }
        self.finish_openings();
    }

    fn address_of(&self, cell: u32) -> String {
        let here = format!("{}/{WIRE}", process_name(cell));
        self.elsewhere.get(&cell).map_or(here.clone(), |host| format!("{host}:{here}"))
    }

    fn finish_openings(&mut self) {
        let mut done = Vec::new();
        for (&cell, opening) in &mut self.opening {
            if let Some(opened) = self.active.finish_opening(opening) {
                done.push((cell, opened.ok()));
            }
        }
        for (cell, opened) in done {
            self.opening.remove(&cell);
            if let Some(key) = opened {
                self.install(key, CellId(cell), self.address_of(cell));
            }
        }
    }

    /// Channels that others opened to us since we looked.
    fn meet_newcomers(&mut self) {
        let endpoint = self.active.endpoint();
        let unknown: Vec<ChannelKey> =
            endpoint.channels().filter(|key| !self.cells.contains_key(key)).collect();
        for key in unknown {
            let _ = self.active.accept(Duration::ZERO);
            let address = self.active.endpoint().peer(key).unwrap_or_default().to_owned();
            let host_of = |cell| self.elsewhere.get(&cell).map(String::as_str);
            match cell_of_address(&address, host_of) {
                Some(cell) => self.install(key, CellId(cell), address),
                None => {
                    self.active.close(key);
                    self.news.push(News::Stranger(address));
                }
            }
        }
    }

    fn install(&mut self, key: ChannelKey, cell: CellId, address: String) {
        // One of another host that opens a channel though there is one has begun anew, and nobody could say so. Its silence would, much
        // later, and be taken for that of this life.
        if self.is_elsewhere(cell)
            && let Some(former) = self.channel(cell)
        {
            self.active.close(former);
            self.forget(former, Cause::Left("its next life has come".to_owned()));
        }
        self.cells.insert(key, (cell, address));
        self.news.push(News::Linked(cell, key));
    }

    fn ended(&mut self, ended: &ChannelEnded) {
        self.forget(ended.channel, ended.cause.clone());
    }

    /// Ends a channel whose peer has said what it may not.
    pub fn cut(&mut self, channel: ChannelKey, why: &'static str) {
        self.active.close(channel);
        self.forget(channel, Cause::Left(format!("{why}, and was cut off")));
    }

    /// Ends all channels: nothing that this cell says is to be believed.
    pub fn cut_all(&mut self) {
        for channel in std::mem::take(&mut self.cells).into_keys() {
            self.active.close(channel);
        }
    }

    fn forget(&mut self, channel: ChannelKey, cause: Cause) {
        if let Some((cell, address)) = self.cells.remove(&channel) {
            self.active.state_mut().forget(channel, &cause);
            self.news.push(News::Ended { cell, channel, address, cause, at_ns: monotonic_ns() });
        }
    }

    /// Sends what no cell in its right mind sends. (Hive §7.4)
    pub(crate) fn send_garbage(&mut self, to: CellId, kind: u8, bytes: &[u8]) {
        if let Some(channel) = self.channel(to) {
            self.active.send_garbage(channel, kind, bytes);
        }
    }

    // ── sleep ──

    /// Readable when something has come, once armed.
    pub fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.active.endpoint().event_descriptor().expect("made with events")
    }

    /// Before a sleep; `false`: something is there already.
    pub fn arm(&mut self) -> bool {
        self.active.arm()
    }

    /// After it.
    pub fn disarm(&mut self) {
        self.active.disarm();
    }
}

/// Arguments, and how many: the borrow of a request ends where it is answered.
fn words(arguments: &[u64]) -> ([u64; 4], usize) {
    let mut words = [0; 4];
    words[..arguments.len()].copy_from_slice(arguments);
    (words, arguments.len())
}
