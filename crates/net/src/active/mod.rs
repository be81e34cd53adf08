//! Active messages: a message names the handler that is called when it comes, with up to four words of arguments and
//! a payload. (Thesis §2.5; Generic Active Messages 1.1)
//!
//! A *request* calls a request handler at the peer, which may answer with one *reply*; a reply handler answers nothing.
//! At most [`ActiveOptions::window`] requests to one peer are outstanding; both ends set the same window. A request that
//! got no reply is acknowledged, together with others and on top of other messages where possible. A channel whose
//! transport can lose gets retransmission ("go back N") underneath.
//!
//! Nothing runs by itself: handlers are called by [`ActiveMessages::poll`], and by whatever sends a request, a block or a
//! get: while it waits for the window, which keeps two sides that flood each other moving, and before every eighth one
//! ([`REQUESTS_BETWEEN_POLLS`]), so that who only sends, always within its windows, still serves its peers. The thesis's
//! library polls before every request; a look costs as much as a tenth of a round trip, and one in eight does as well.
//! Who decides alone when handlers run uses [`ActiveMessages::try_request`].
//!
//! What comes from a peer is checked: a handler number that nobody registered, a malformed message, or an answer to
//! nothing ends that channel with [`crate::Breach`], and no other.

mod bulk;
mod handlers;
mod peers;
mod wire;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::bulk::{Getting, Region};
use self::handlers::{CompletionHandler, ReplyHandler, RequestHandler, Table};
use self::peers::{Peers, count};
use self::wire::{Head, Message};
use crate::agent::RequestError;
use crate::channel::ChannelKey;
use crate::endpoint::{ChannelEnded, Delivery, Endpoint, PostError};
use crate::opening::Opening;
use crate::payload::{Inline, Payload};
use crate::ring::{Breach, CONTENT_WORDS};
use crate::shm::Small;

pub use self::bulk::{Access, Store};
pub use self::handlers::{Reply, Request, Stored};
pub use self::wire::ARGUMENTS;

/// Messages handled by one poll at most, so that a flood does not keep the caller for ever.
const POLL_MESSAGES: usize = 64;

/// Requests, or fragments of blocks and gets, that are sent without a poll before one.
pub const REQUESTS_BETWEEN_POLLS: u32 = 8;

/// Empty polls before a waiting call sleeps: an answer of a peer that is at work comes within this.
const POLLS_BEFORE_SLEEP: u32 = 256;

/// How active messages are to be. Both ends of a channel must agree on the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveOptions {
    /// Requests to one peer that may be outstanding. The endpoint's geometry has at least four times as many slots.
    pub window: u32,
    /// How long a call waits for a peer that completes nothing.
    pub patience: Duration,
}

impl Default for ActiveOptions {
    fn default() -> Self {
        Self { window: 16, patience: Duration::from_secs(10) }
    }
}

/// Why a request was not sent, or a block not got. What was sent before of a block stays sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ActiveError {
    /// The peer has not completed enough requests yet, within the patience of the caller.
    #[error("the peer has not completed enough requests yet")]
    Busy,
    /// No such channel, or no longer.
    #[error("there is no such channel on this endpoint (any more)")]
    NoChannel,
    /// The message can never be sent here.
    #[error("a message of {bytes} bytes is longer than this channel's limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The channel has ended.
    #[error(transparent)]
    Ended(#[from] ChannelEnded),
    /// The operating system refused.
    #[error("the network refused the message: {0}")]
    System(rustix::io::Errno),
}

impl From<PostError> for ActiveError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Full(_) => Self::Busy,
            PostError::NoChannel => Self::NoChannel,
            PostError::ReservedKind(_) => unreachable!("active messages post their own kinds"),
            PostError::TooLong { bytes, limit } => Self::TooLong { bytes, limit },
            PostError::Ended(ended) => Self::Ended(ended),
            PostError::System(error) => Self::System(error),
        }
    }
}

/// A message taken from its ring, by value where it is small.
#[derive(Clone, Copy)]
struct Taken<'a> {
    channel: ChannelKey,
    kind: u8,
    bytes: usize,
    /// Its first words; what lies behind its end is undefined.
    words: &'a [u64; CONTENT_WORDS],
}

/// A request or a reply of arguments and nothing else, as nearly all are, by value.
#[derive(Clone, Copy)]
struct Plain {
    channel: ChannelKey,
    kind: u8,
    number: u16,
    arguments: u8,
    words: [u64; ARGUMENTS],
}

impl Plain {
    /// `None`: something else, or malformed; [`ActiveMessages::dispatch`] finds out what.
    #[inline]
    fn read(channel: ChannelKey, kind: u8, inline: Inline<'_>) -> Option<Self> {
        let [head, words @ ..] = inline.first_words::<{ 1 + ARGUMENTS }>();
        let (number, arguments) = Head::unpack_plain(head)?;
        let is_plain =
            matches!(kind, wire::REQUEST | wire::REPLY) && inline.len() == 8 + usize::from(arguments) * 8;
        is_plain.then_some(Self { channel, kind, number, arguments, words })
    }
}

/// What one look found.
enum Step {
    /// A message of so many bytes, which was handled.
    Handled(usize),
    Nothing,
    /// A channel's end, which was noted.
    Ended,
}

/// See the [module](self). `S` is the program's own state, which every handler gets.
pub struct ActiveMessages<S = ()> {
    peers: Peers,
    state: S,
    requests: Table<Option<RequestHandler<S>>>,
    replies: Table<Option<ReplyHandler<S>>>,
    regions: Table<Option<Region<S>>>,
    getting: Getting,
    /// Blocks whose arrival is to be told.
    storing: VecDeque<(Store, CompletionHandler<S>)>,
    /// Requests since the last poll.
    unpolled: u32,
    /// A longer message's private copy.
    long: Vec<u8>,
    patience: Duration,
}

impl<S: std::fmt::Debug> std::fmt::Debug for ActiveMessages<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveMessages")
            .field("peers", &self.peers)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<S> ActiveMessages<S> {
    /// Takes an endpoint over. Register handlers before the first poll.
    pub fn new(endpoint: Endpoint, state: S) -> Self {
        Self::with(endpoint, state, ActiveOptions::default())
    }

    /// As [`ActiveMessages::new`].
    ///
    /// # Panics
    /// If the window is 0, or the endpoint's rings have fewer than four slots for each message of it.
    pub fn with(mut endpoint: Endpoint, state: S, options: ActiveOptions) -> Self {
        let slots = endpoint.shared.options().geometry.slots;
        let window = options.window;
        assert!(window > 0 && window.saturating_mul(4) <= slots, "a window of {window} with {slots} slots");
        endpoint.make_reliable();
        Self {
            peers: Peers::new(endpoint, window),
            state,
            requests: Table::default(),
            replies: Table::default(),
            regions: Table::default(),
            getting: Getting::default(),
            storing: VecDeque::new(),
            unpolled: 0,
            long: Vec::new(),
            patience: options.patience,
        }
    }

    /// The state that handlers get.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The state that handlers get.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// The endpoint underneath, to look at.
    pub fn endpoint(&self) -> &Endpoint {
        &self.peers.endpoint
    }

    /// As [`Endpoint::arm`], for event loops, which poll once a millisecond while [`ActiveMessages::owes`].
    pub fn arm(&mut self) -> bool {
        self.peers.endpoint.arm()
    }

    /// As [`Endpoint::disarm`].
    pub fn disarm(&mut self) {
        self.peers.endpoint.disarm();
    }

    /// Whether something could not be said yet for want of room, of which nobody will tell that it is there again.
    pub fn owes(&self) -> bool {
        self.peers.is_unsettled()
    }

    /// Opens a channel to `process/endpoint`.
    pub fn open(&mut self, to: &str) -> Result<ChannelKey, RequestError> {
        let opened = self.peers.endpoint.open(to);
        self.peers.endpoint.make_reliable();
        opened
    }

    /// As [`Endpoint::begin_opening`], for who cannot wait.
    pub fn begin_opening(&mut self, to: &str) -> Result<Opening, RequestError> {
        self.peers.endpoint.begin_opening(to)
    }

    /// As [`Endpoint::finish_opening`], without a wait.
    pub fn finish_opening(&mut self, opening: &mut Opening) -> Option<Result<ChannelKey, RequestError>> {
        let opened = self.peers.endpoint.finish_opening(opening, Duration::ZERO)?;
        self.peers.endpoint.make_reliable();
        Some(opened)
    }

    /// Waits for a peer to open a channel to us. Peers that are not waited for are served just as well.
    pub fn accept(&mut self, limit: Duration) -> Option<ChannelKey> {
        let accepted = self.peers.endpoint.accept(limit);
        self.peers.endpoint.make_reliable();
        accepted
    }

    /// Closes a channel.
    pub fn close(&mut self, channel: ChannelKey) {
        self.peers.settle();
        self.peers.endpoint.close(channel);
    }

    /// What requests of that number call.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn on_request(&mut self, number: u16, handler: impl FnMut(&mut S, Request<'_>) + Send + 'static) {
        self.requests.set(number, Box::new(handler));
    }

    /// What replies of that number call.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn on_reply(&mut self, number: u16, handler: impl FnMut(&mut S, Reply<'_>) + Send + 'static) {
        self.replies.set(number, Box::new(handler));
    }

    /// Requests to that peer which it has not completed.
    pub fn outstanding(&mut self, channel: ChannelKey) -> u32 {
        self.peers.book(channel).map_or(0, |book| book.outstanding)
    }

    /// Sends a request. Polls first now and then ([`REQUESTS_BETWEEN_POLLS`]), and while the window or the ring is full:
    /// handlers may run.
    ///
    /// # Panics
    /// With more than four arguments.
    #[inline]
    pub fn request(
        &mut self,
        channel: ChannelKey,
        handler: u16,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), ActiveError> {
        let head = Head { number: handler, arguments: count(arguments), ..Head::default() };
        let in_time = self.unpolled < REQUESTS_BETWEEN_POLLS;
        if payload.is_empty() && in_time && self.peers.request_small(channel, head, arguments) {
            self.unpolled += 1;
            return Ok(());
        }
        self.post_request(channel, Message { kind: wire::REQUEST, head, words: arguments, data: payload })
    }

    /// Sends a request if that can be done at once; [`ActiveError::Busy`] if not. Runs no handler.
    ///
    /// # Panics
    /// With more than four arguments.
    #[inline]
    pub fn try_request(
        &mut self,
        channel: ChannelKey,
        handler: u16,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), ActiveError> {
        let head = Head { number: handler, arguments: count(arguments), ..Head::default() };
        let message = Message { kind: wire::REQUEST, head, words: arguments, data: payload };
        match self.peers.request(channel, message) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ActiveError::Busy),
            Err(error) => Err(error.into()),
        }
    }

    #[inline(never)]
    fn post_request(&mut self, channel: ChannelKey, message: Message<'_>) -> Result<(), ActiveError> {
        if self.unpolled >= REQUESTS_BETWEEN_POLLS {
            self.poll_for(channel)?;
        }
        self.unpolled += 1;
        match self.peers.request(channel, message) {
            Ok(true) => Ok(()),
            Ok(false) | Err(PostError::Full(_)) => self.post_slowly(channel, message),
            Err(error) => Err(error.into()),
        }
    }

    #[cold]
    fn post_slowly(&mut self, channel: ChannelKey, message: Message<'_>) -> Result<(), ActiveError> {
        let mut outcome = Ok(false);
        let mut full = false;
        self.poll_until(channel, |this| {
            outcome = this.peers.request(channel, message);
            let wait = matches!(outcome, Ok(false) | Err(PostError::Full(_)));
            full = wait && outcome.is_err();
            if full {
                this.peers.endpoint.wait_for_room_or_message(channel, Duration::from_millis(1));
            }
            !wait
        })?;
        Ok(outcome.map(drop)?)
    }

    /// Polls until `done`, for as long as the channel lives and the patience lasts.
    fn poll_until(
        &mut self,
        channel: ChannelKey,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), ActiveError> {
        let until = Instant::now() + self.patience;
        let mut rounds = 0_u32;
        while !done(self) {
            rounds += 1;
            self.poll_for(channel)?;
            if self.peers.endpoint.channel(channel).is_none() {
                return Err(ActiveError::NoChannel);
            }
            if rounds > POLLS_BEFORE_SLEEP {
                let Some(left) = until.checked_duration_since(Instant::now()) else {
                    return Err(ActiveError::Busy);
                };
                self.rest(left);
                rounds = POLLS_BEFORE_SLEEP / 2;
            }
        }
        Ok(())
    }

    /// Sends bytes as a peer does that is out of its mind: of any kind, to whoever is there. What finds no room is lost. For those who inject faults
    /// (Hive §7.4).
    #[cfg(feature = "faults")]
    pub fn send_garbage(&mut self, channel: ChannelKey, kind: u8, bytes: &[u8]) {
        if let Err(PostError::Ended(ended)) = self.peers.endpoint.post(channel, kind, bytes) {
            self.peers.ended.push_back(ended);
        }
    }

    // ── receiving ──

    /// Handles every message that has come, and says how many. `Err`: one channel ended, which is said once; the
    /// others are polled again by the next call.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, ChannelEnded> {
        self.extract(usize::MAX)
    }

    /// As [`ActiveMessages::poll`], but waits for a first message.
    pub fn poll_within(&mut self, limit: Duration) -> Result<usize, ChannelEnded> {
        let until = Instant::now() + limit;
        loop {
            let messages = self.poll()?;
            if messages > 0 {
                return Ok(messages);
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { return Ok(0) };
            self.rest(left);
        }
    }

    /// Handles messages of at most `most_bytes` in all, or one if the first is longer; the rest waits in the rings,
    /// where it holds its senders back. For programs that say themselves when handlers run, and for how long.
    /// (Illinois Fast Messages; thesis §3.3.1)
    #[inline]
    pub fn extract(&mut self, most_bytes: usize) -> Result<usize, ChannelEnded> {
        let messages = if self.peers.ended.is_empty() { self.poll_bytes(most_bytes) } else { 0 };
        if messages > 0 || self.peers.ended.is_empty() {
            return Ok(messages);
        }
        self.peers.ended.pop_front().map_or(Ok(0), Err)
    }

    /// Handles what has come, and says how many messages. Ends are noted.
    fn poll_bytes(&mut self, most_bytes: usize) -> usize {
        let mut messages = 0;
        let mut bytes = 0;
        self.unpolled = 0;
        while messages < POLL_MESSAGES && bytes < most_bytes {
            match self.step() {
                Step::Handled(taken) => {
                    bytes += taken;
                    messages += 1;
                    if !self.peers.endpoint.has_more() {
                        break;
                    }
                }
                Step::Nothing => {
                    if messages == 0 {
                        self.peers.when_idle();
                    }
                    break;
                }
                Step::Ended => break,
            }
        }
        if self.peers.is_unsettled() {
            self.peers.settle();
        }
        if !self.storing.is_empty() {
            self.complete_stores();
        }
        messages
    }

    /// As [`ActiveMessages::poll`], for who waits for one peer: only its end is told, those of others later.
    #[inline]
    pub(crate) fn poll_for(&mut self, channel: ChannelKey) -> Result<usize, ChannelEnded> {
        let messages = self.poll_bytes(usize::MAX);
        if self.peers.ended.is_empty() {
            return Ok(messages);
        }
        let ours = self.peers.ended.iter().position(|ended| ended.channel == channel);
        ours.and_then(|ours| self.peers.ended.remove(ours)).map_or(Ok(messages), Err)
    }

    /// Sleeps until something comes. What waits for room is tried again soon.
    pub(crate) fn rest(&mut self, limit: Duration) {
        let limit = if self.peers.is_unsettled() { limit.min(Duration::from_millis(1)) } else { limit };
        self.peers.endpoint.wait(limit);
    }

    /// Handles one message.
    #[inline(always)]
    fn step(&mut self) -> Step {
        match self.peers.endpoint.take_small(Plain::read) {
            Small::Came(Plain { channel, kind, number, arguments, words }) => {
                let bytes = 8 + usize::from(arguments) * 8;
                let arguments = &words[..usize::from(arguments)];
                let outcome = if kind == wire::REQUEST {
                    self.requested(channel, number, arguments, &[])
                } else {
                    self.replied(channel, number, arguments, &[])
                };
                self.handled(channel, bytes, outcome)
            }
            Small::Nothing => Step::Nothing,
            Small::Unclear => self.step_otherwise(),
        }
    }

    #[inline(never)]
    fn step_otherwise(&mut self) -> Step {
        let mut words = [0; CONTENT_WORDS];
        let mut taken = None;
        let mut long = std::mem::take(&mut self.long);
        let came = self.peers.endpoint.take_one(&mut |Delivery { channel, kind, payload }: Delivery<'_>| {
            words = match payload {
                Payload::Inline(inline) => inline.words(),
                longer => copy_out(&longer, &mut long),
            };
            taken = Some((channel, kind, payload.len()));
        });
        let step = match (came, taken) {
            (Err(ended), _) => {
                self.peers.ended.push_back(ended);
                Step::Ended
            }
            (Ok(_), None) => Step::Nothing,
            (Ok(_), Some((channel, kind, bytes))) => {
                let outcome = self.dispatch(Taken { channel, kind, bytes, words: &words }, &long);
                self.handled(channel, bytes, outcome)
            }
        };
        self.long = long;
        step
    }

    #[inline(always)]
    fn handled(&mut self, channel: ChannelKey, bytes: usize, outcome: Result<(), Breach>) -> Step {
        match outcome {
            Ok(()) => Step::Handled(bytes),
            Err(breach) => {
                self.peers.cut_off(channel, breach);
                Step::Ended
            }
        }
    }

    #[inline(always)]
    fn requested(
        &mut self,
        from: ChannelKey,
        number: u16,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), Breach> {
        self.peers.may_request(from)?;
        let handler = self.requests.get(number);
        let handler = handler.ok_or(Breach::Form("a request for a handler that is not registered"))?;
        let mut replied = false;
        let peers = &mut self.peers;
        handler(&mut self.state, Request { peers, from, arguments, payload, replied: &mut replied });
        if !replied {
            self.peers.owe(from);
        }
        Ok(())
    }

    #[inline(always)]
    fn replied(
        &mut self,
        from: ChannelKey,
        number: u16,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), Breach> {
        self.peers.completed(from, 1)?;
        let handler = self.replies.get(number);
        let handler = handler.ok_or(Breach::Form("a reply for a handler that is not registered"))?;
        handler(&mut self.state, Reply { from, arguments, payload });
        Ok(())
    }

    fn dispatch(&mut self, taken: Taken<'_>, long: &[u8]) -> Result<(), Breach> {
        if taken.bytes < 8 {
            return Err(Breach::Form("an active message is shorter than its first word"));
        }
        let head = Head::unpack(taken.words[0])?;
        let channel = taken.channel;
        if head.completes > 0 {
            self.peers.completed(channel, u32::from(head.completes))?;
        }
        let before_payload = 8 + usize::from(head.arguments) * 8;
        if taken.bytes < before_payload {
            return Err(Breach::Form("an active message is shorter than its arguments"));
        }
        let in_words: [[u8; 8]; CONTENT_WORDS];
        let content: &[u8] = if taken.bytes > CONTENT_WORDS * 8 {
            long
        } else if taken.bytes > before_payload {
            in_words = taken.words.map(u64::to_le_bytes);
            &in_words.as_flattened()[..taken.bytes]
        } else {
            &[]
        };
        let payload = content.get(before_payload..).unwrap_or(&[]);
        let arguments = &taken.words[1..=usize::from(head.arguments)];
        match taken.kind {
            wire::REQUEST => self.requested(channel, head.number, arguments, payload)?,
            wire::REPLY => self.replied(channel, head.number, arguments, payload)?,
            wire::ACKNOWLEDGEMENT => {}
            wire::STORE => {
                self.peers.may_request(channel)?;
                bulk::stored(&mut self.regions, &mut self.state, head, taken, content)?;
                self.peers.owe(channel);
            }
            wire::GET => {
                self.peers.may_request(channel)?;
                bulk::asked(&mut self.regions, &mut self.peers, head, taken)?;
            }
            wire::GOT => {
                self.peers.completed(channel, 1)?;
                bulk::got(&mut self.getting, taken, content)?;
            }
            other => return Err(Breach::Kind(other)),
        }
        Ok(())
    }
}

/// Copies a message that is not in its slot, and reads its first words from the copy: what was checked is what is used.
#[cold]
fn copy_out(payload: &Payload<'_>, long: &mut Vec<u8>) -> [u64; CONTENT_WORDS] {
    long.resize(payload.len(), 0);
    payload.copy_to(long);
    let mut words = [0; CONTENT_WORDS];
    let mut first = [0; CONTENT_WORDS * 8];
    let bytes = long.len().min(first.len());
    first[..bytes].copy_from_slice(&long[..bytes]);
    for (word, chunk) in words.iter_mut().zip(first.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}
