//! Calls with typed arguments, on top of active messages: a call is a request, its result the reply.
//!
//! Arguments and results travel as [`postcard`] bytes. What encodes to at most 40 bytes makes the whole call fit into one
//! slot each way; larger values go through the payload area, up to the channel's limit.
//!
//! An [`Rpc`] is client and server at once, on the thread that polls it: while a call waits, calls of others are
//! served. A method may not call: it has no way to, which keeps two callers of each other from waiting in a circle.

use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::active::{ActiveError, ActiveMessages, Request};
use crate::agent::RequestError;
use crate::channel::ChannelKey;
use crate::endpoint::{ChannelEnded, Endpoint};

/// The handler of calls, and the reply handler of results.
const HANDLER: u16 = 0;

/// What is left of a slot after the first word and the call's own word.
const SMALL_BYTES: usize = crate::ring::INLINE_BYTES - 16;

/// Polls between two looks at the clock.
const POLLS_BEFORE_WAIT: u32 = 256;

/// Why a call has no result. Only with [`RpcError::TooLong`], [`RpcError::Unencodable`], [`RpcError::NotSent`],
/// [`RpcError::NoMethod`] and [`RpcError::Arguments`] is it certain that the method did not run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RpcError {
    /// The peer has no method of that number.
    #[error("{peer} has no method {method}")]
    NoMethod {
        /// Whom we asked.
        peer: String,
        /// For what.
        method: u16,
    },
    /// The peer's method takes something else.
    #[error("{peer} cannot read the arguments of method {method}: are both sides of one version?")]
    Arguments {
        /// Whom we asked.
        peer: String,
        /// For what.
        method: u16,
    },
    /// The method failed, and said so.
    #[error("method {method} of {peer} failed: {reason}")]
    Failed {
        /// Whom we asked.
        peer: String,
        /// For what.
        method: u16,
        /// In its words.
        reason: String,
    },
    /// The method panicked. The peer lives; what the method had done is as it is.
    #[error("method {method} of {peer} panicked: {reason}")]
    Panicked {
        /// Whom we asked.
        peer: String,
        /// For what.
        method: u16,
        /// The panic's message.
        reason: String,
    },
    /// The method's result can not be sent on this channel.
    #[error("the result of method {method} of {peer} is longer than the channel takes")]
    ResultTooLong {
        /// Whom we asked.
        peer: String,
        /// For what.
        method: u16,
    },
    /// The peer answered with bytes that are no such result: its fault, or that of two versions.
    #[error("{peer} answered method {method} with {bytes} bytes that are no {expected}")]
    Result {
        /// Who.
        peer: String,
        /// To what.
        method: u16,
        /// How many.
        bytes: usize,
        /// The type that was expected.
        expected: &'static str,
    },
    /// No answer within the limit. A late one is dropped.
    #[error("{peer} has not answered method {method} within {limit:?}")]
    Late {
        /// Whom we asked.
        peer: String,
        /// For what.
        method: u16,
        /// How long we waited.
        limit: Duration,
    },
    /// The arguments can never be sent on this channel.
    #[error("arguments of {bytes} bytes are longer than this channel's limit of {limit}")]
    TooLong {
        /// Their length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The arguments' type cannot be encoded: ours.
    #[error("a {0} cannot be encoded")]
    Unencodable(&'static str),
    /// The channel ended while we waited.
    #[error(transparent)]
    Ended(#[from] ChannelEnded),
    /// Not sent.
    #[error("not sent: {0}")]
    NotSent(ActiveError),
}

/// What a result's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Done,
    NoMethod,
    Arguments,
    Failed,
    Panicked,
    TooLong,
}

impl Status {
    fn of(number: u64) -> Option<Self> {
        use Status::{Arguments, Done, Failed, NoMethod, Panicked, TooLong};
        let all = [Done, NoMethod, Arguments, Failed, Panicked, TooLong];
        all.get(usize::try_from(number).ok()?).copied()
    }
}

/// Encodes small values on the stack's terms, in a buffer that never grows, and others in one that is kept.
#[derive(Debug)]
struct Encoder {
    small: [u8; SMALL_BYTES],
    large: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { small: [0; SMALL_BYTES], large: Vec::new() }
    }
}

impl Encoder {
    #[inline]
    fn encode<T: Serialize>(&mut self, value: &T) -> Result<&[u8], postcard::Error> {
        // Both borrows would have to live until the return; so the small one's length is taken out.
        match postcard::to_slice(value, &mut self.small).map(|bytes| bytes.len()) {
            Ok(bytes) => Ok(&self.small[..bytes]),
            Err(postcard::Error::SerializeBufferFull) => {
                self.large = postcard::to_extend(value, self.emptied())?;
                Ok(&self.large)
            }
            Err(error) => Err(error),
        }
    }

    fn text(&mut self, text: &str) -> &[u8] {
        self.large = self.emptied();
        self.large.extend_from_slice(text.as_bytes());
        &self.large
    }

    fn emptied(&mut self) -> Vec<u8> {
        let mut large = std::mem::take(&mut self.large);
        large.clear();
        large
    }
}

type Method = Box<dyn FnMut(&[u8], &mut Encoder) -> Outcome + Send>;

/// What a method left in the encoder.
enum Outcome {
    Small(usize),
    Large,
    Not(Status),
}

/// What active messages carry for us.
struct Calls {
    methods: Vec<Option<Method>>,
    results: Encoder,
    /// Whose answer is waited for, and to which call. Another peer that owes us an answer may send this one's number.
    waiting: Option<(ChannelKey, u32)>,
    answer: Option<Status>,
    answer_bytes: Vec<u8>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Rpc {
    active: ActiveMessages<Calls>,
    arguments: Encoder,
    last_call: u32,
}

impl Rpc {
    /// Takes an endpoint over.
    pub fn new(endpoint: Endpoint) -> Self {
        let calls = Calls {
            methods: Vec::new(),
            results: Encoder::default(),
            waiting: None,
            answer: None,
            answer_bytes: Vec::new(),
        };
        let mut active = ActiveMessages::new(endpoint, calls);
        active.on_request(HANDLER, serve);
        active.on_reply(HANDLER, |calls, reply| {
            let [word] = *reply.arguments else { return };
            let (status, call) = (word >> 32, word & u64::from(u32::MAX));
            if calls.waiting.map(|(server, call)| (server, u64::from(call))) != Some((reply.from, call)) {
                // Of a call that was given up.
                return;
            }
            calls.waiting = None;
            // A status that means nothing is a result that means nothing: the caller names the peer.
            calls.answer = Some(Status::of(status).unwrap_or(Status::Done));
            calls.answer_bytes.clear();
            calls.answer_bytes.extend_from_slice(reply.payload);
        });
        Self { active, arguments: Encoder::default(), last_call: 0 }
    }

    /// What calls of method `number` run.
    ///
    /// A panic in it is caught and told to the caller, in programs that unwind; with `panic = "abort"` it ends this
    /// process, and the caller sees the channel end.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn register<Arguments: DeserializeOwned, Return: Serialize>(
        &mut self,
        number: u16,
        mut method: impl FnMut(Arguments) -> Return + Send + 'static,
    ) {
        self.register_fallible(number, move |arguments| Ok::<_, std::convert::Infallible>(method(arguments)));
    }

    /// As [`Rpc::register`], for a method that can fail; the caller gets its words as [`RpcError::Failed`].
    ///
    /// # Panics
    /// If the number is taken.
    pub fn register_fallible<Arguments: DeserializeOwned, Return: Serialize, Error: std::fmt::Display>(
        &mut self,
        number: u16,
        mut method: impl FnMut(Arguments) -> Result<Return, Error> + Send + 'static,
    ) {
        let methods = &mut self.active.state_mut().methods;
        let index = usize::from(number);
        if methods.len() <= index {
            methods.resize_with(index + 1, || None);
        }
        assert!(methods[index].is_none(), "method {number} is taken");
        methods[index] = Some(Box::new(move |bytes, results| {
            let Ok(arguments) = postcard::from_bytes(bytes) else { return Outcome::Not(Status::Arguments) };
            // What the method shares with the rest of the program is the program's to keep whole.
            let status = match catch_unwind(AssertUnwindSafe(|| method(arguments))) {
                Ok(Ok(value)) => match results.encode(&value) {
                    Ok(bytes) if bytes.len() <= SMALL_BYTES => return Outcome::Small(bytes.len()),
                    Ok(_) => return Outcome::Large,
                    Err(_) => {
                        results.text(&format!("a {} cannot be encoded", type_name::<Return>()));
                        Status::Failed
                    }
                },
                Ok(Err(error)) => {
                    results.text(&error.to_string());
                    Status::Failed
                }
                Err(panic) => {
                    let text = panic.downcast_ref::<&str>().copied();
                    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                    results.text(text.unwrap_or("it did not say why"));
                    Status::Panicked
                }
            };
            Outcome::Not(status)
        }));
    }

    /// Opens a channel to `process/endpoint`.
    pub fn open(&mut self, to: &str) -> Result<ChannelKey, RequestError> {
        self.active.open(to)
    }

    /// Waits for a peer to open a channel to us. Clients that are not waited for are served just as well.
    pub fn accept(&mut self, limit: Duration) -> Option<ChannelKey> {
        self.active.accept(limit)
    }

    /// Closes a channel.
    pub fn close(&mut self, channel: ChannelKey) {
        self.active.close(channel);
    }

    /// The endpoint underneath, to look at.
    pub fn endpoint(&self) -> &Endpoint {
        self.active.endpoint()
    }

    /// Serves what has come, and says how many messages that were. `Err`: one channel ended, which is said once.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, ChannelEnded> {
        self.active.poll()
    }

    /// As [`Rpc::poll`], but waits for a first message.
    pub fn poll_within(&mut self, limit: Duration) -> Result<usize, ChannelEnded> {
        self.active.poll_within(limit)
    }

    /// Calls method `number` of the peer and waits for its result. Serves others meanwhile.
    #[inline]
    pub fn call<Arguments: Serialize, Return: DeserializeOwned>(
        &mut self,
        channel: ChannelKey,
        number: u16,
        arguments: &Arguments,
        limit: Duration,
    ) -> Result<Return, RpcError> {
        let bytes = match self.arguments.encode(arguments) {
            Ok(bytes) => bytes,
            Err(_) => return Err(RpcError::Unencodable(type_name::<Arguments>())),
        };
        self.last_call = self.last_call.wrapping_add(1);
        let word = u64::from(self.last_call) | u64::from(number) << 32;
        let calls = self.active.state_mut();
        calls.waiting = Some((channel, self.last_call));
        calls.answer = None;
        match self.active.request(channel, HANDLER, &[word], bytes) {
            Ok(()) => {}
            Err(ActiveError::TooLong { bytes, limit }) => return Err(RpcError::TooLong { bytes, limit }),
            Err(ActiveError::Ended(ended)) => return Err(ended.into()),
            Err(error) => return Err(RpcError::NotSent(error)),
        }
        let status = self.wait_for_answer(channel, number, limit)?;
        let calls = self.active.state();
        if status == Status::Done
            && let Ok(value) = postcard::from_bytes(&calls.answer_bytes)
        {
            return Ok(value);
        }
        Err(self.failed(channel, number, status, type_name::<Return>()))
    }

    #[inline]
    fn wait_for_answer(
        &mut self,
        channel: ChannelKey,
        number: u16,
        limit: Duration,
    ) -> Result<Status, RpcError> {
        let mut until = None;
        loop {
            for _ in 0..POLLS_BEFORE_WAIT {
                self.active.poll_for(channel)?;
                if let Some(status) = self.active.state_mut().answer.take() {
                    return Ok(status);
                }
            }
            let now = Instant::now();
            let until = *until.get_or_insert(now + limit);
            let Some(left) = until.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                self.active.state_mut().waiting = None;
                return Err(RpcError::Late { peer: self.peer(channel), method: number, limit });
            };
            self.active.rest(left);
        }
    }

    fn peer(&self, channel: ChannelKey) -> String {
        self.endpoint().peer(channel).unwrap_or("a peer that left").to_owned()
    }

    #[cold]
    fn failed(&self, channel: ChannelKey, method: u16, status: Status, expected: &'static str) -> RpcError {
        let peer = self.peer(channel);
        let bytes = &self.active.state().answer_bytes;
        let reason = || String::from_utf8_lossy(bytes).into_owned();
        match status {
            Status::Done => RpcError::Result { peer, method, bytes: bytes.len(), expected },
            Status::NoMethod => RpcError::NoMethod { peer, method },
            Status::Arguments => RpcError::Arguments { peer, method },
            Status::Failed => RpcError::Failed { peer, method, reason: reason() },
            Status::Panicked => RpcError::Panicked { peer, method, reason: reason() },
            Status::TooLong => RpcError::ResultTooLong { peer, method },
        }
    }
}

/// Runs one call. A request that is no call gets an answer that says so: its sender may be of a later version.
#[inline]
fn serve(calls: &mut Calls, request: Request<'_>) {
    let Some(&word) = request.arguments().first() else { return };
    let (call, number) = (word & u64::from(u32::MAX), word >> 32);
    let method = usize::try_from(number).ok().and_then(|index| calls.methods.get_mut(index)?.as_mut());
    let outcome =
        method.map_or(Outcome::Not(Status::NoMethod), |method| method(request.payload(), &mut calls.results));
    let (status, bytes) = match outcome {
        Outcome::Small(bytes) => (Status::Done, &calls.results.small[..bytes]),
        Outcome::Large => (Status::Done, &calls.results.large[..]),
        Outcome::Not(status @ (Status::Failed | Status::Panicked)) => (status, &calls.results.large[..]),
        Outcome::Not(status) => (status, &[][..]),
    };
    let answer = |status: Status| [call | (status as u64) << 32];
    let mut request = request;
    if request.try_reply(HANDLER, &answer(status), bytes).is_err() {
        // The caller is told in any case; nothing stays unanswered until its limit.
        let _ = request.reply(HANDLER, &answer(Status::TooLong), &[]);
    }
}
