//! Calls of objects over a channel. (Cache Kernel §2.2: object-oriented RPC)
//!
//! A request and its reply are a message each: how they begin, programs find at [`REQUEST`] and [`REPLY`]. A caller need not wait for one reply before it makes the next
//! call, as far as the channel has room.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::marshal::{Marshal, understood, written};
use super::{Channel, ChannelError, Message, SendError};

/// The kind of a request: the number of the call (8 bytes), the object's (4), the method's (2), the interface's version (2), and then the arguments.
pub const REQUEST: u32 = 1;
/// The kind of a reply: the number of the call (8 bytes), a [status](Status) (2), for [`Status::OtherVersion`] that version (2) and otherwise 0, and then the result.
pub const REPLY: u32 = 2;

type Request = (u64, u32, (u16, u16));
type Reply = (u64, u16, u16);

/// How a call went, as a reply says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Status {
    /// A result follows.
    Done = 0,
    /// There is no such object.
    NoObject = 1,
    /// It has no such method.
    NoMethod = 2,
    /// The arguments are none of that method's.
    BadArguments = 3,
    /// Its interface is of another version.
    OtherVersion = 4,
    /// The result is longer than the channel's messages.
    TooLong = 5,
}

/// Why a call has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CallError {
    /// The request was not sent.
    #[error(transparent)]
    NotSent(#[from] SendError),
    /// The channel ended before the reply came. Whether the call was made is not known.
    #[error("no reply came: {0}")]
    NoReply(ChannelError),
    /// The reply did not come in time. Whether the call was made, and whether it will be, is not known.
    #[error("no reply came in time")]
    Late,
    /// The call was not made, or its result does not fit.
    #[error("the object's side says: {0:?}")]
    Refused(Status),
    /// Of another version than the caller's.
    #[error("the object's interface is of version {0}")]
    OtherVersion(u16),
    /// What came is no result of this method.
    #[error("the reply can not be understood")]
    NotUnderstood,
}

/// A side that calls.
#[derive(Debug)]
pub struct Caller {
    channel: Channel,
    next: u64,
    /// What calls are waited for, and what has come.
    waiting: BTreeMap<u64, Option<Result<Vec<u8>, CallError>>>,
    limit: Duration,
}

/// A call that was begun.
#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
pub struct Call(u64);

impl Caller {
    /// Over this channel; a call that has no reply after so long is given up.
    pub fn new(channel: Channel, limit: Duration) -> Self {
        Self { channel, next: 1, waiting: BTreeMap::new(), limit }
    }

    /// Begins a call. Also says where the request is in this end's pages.
    pub fn begin(
        &mut self,
        object: u32,
        version: u16,
        method: u16,
        arguments: &impl Marshal,
    ) -> Result<(Call, usize), SendError> {
        let request: Request = (self.next, object, (method, version));
        let mut bytes = written(&request);
        arguments.put(&mut bytes);
        let at = self.channel.send(REQUEST, &bytes)?;
        let call = Call(self.next);
        self.waiting.insert(self.next, None);
        self.next += 1;
        Ok((call, at))
    }

    /// Takes the replies that are there. What a call has returned, if its reply has come.
    pub fn look<T: Marshal>(&mut self, call: Call) -> Option<Result<T, CallError>> {
        let mut ended = None;
        // Not more than can be there: an end that goes on writing keeps nobody here.
        for _ in 0..self.channel.shape().places() {
            match self.channel.receive() {
                Ok(Some(message)) => self.take(&message),
                Ok(None) => break,
                Err(error) => {
                    ended = Some(error);
                    break;
                }
            }
        }
        let came = self.waiting.get_mut(&call.0).and_then(Option::take);
        let result = match (came, ended) {
            (Some(result), _) => result,
            // Who has not opened yet will.
            (None, None | Some(ChannelError::NotOpen)) => return None,
            (None, Some(error)) => Err(CallError::NoReply(error)),
        };
        self.waiting.remove(&call.0);
        Some(result.and_then(|bytes| understood(&bytes).ok_or(CallError::NotUnderstood)))
    }

    /// A reply to a call that nobody waits for is let go.
    fn take(&mut self, message: &Message) {
        let mut bytes = &message.bytes[..];
        let Some((number, status, more)) = Reply::take(&mut bytes).filter(|_| message.kind == REPLY) else {
            return;
        };
        let Some(place) = self.waiting.get_mut(&number) else { return };
        let statuses = [Status::NoObject, Status::NoMethod, Status::BadArguments, Status::TooLong];
        let refused = statuses.into_iter().find(|known| *known as u16 == status);
        *place = Some(match refused {
            Some(refused) => Err(CallError::Refused(refused)),
            None if status == Status::OtherVersion as u16 => Err(CallError::OtherVersion(more)),
            None if status == Status::Done as u16 => Ok(bytes.to_vec()),
            None => Err(CallError::NotUnderstood),
        });
    }

    /// Calls, and waits for the result: what stubs do.
    pub fn call<T: Marshal>(
        &mut self,
        object: u32,
        version: u16,
        method: u16,
        arguments: &impl Marshal,
    ) -> Result<T, CallError> {
        let since = Instant::now();
        let call = loop {
            let seen = self.channel.seen();
            match self.begin(object, version, method, arguments) {
                Ok((call, _)) => break call,
                Err(SendError::Full | SendError::Channel(ChannelError::NotOpen))
                    if since.elapsed() < self.limit =>
                {
                    self.channel.wait(seen, self.limit.saturating_sub(since.elapsed()));
                }
                Err(error) => return Err(error.into()),
            }
        };
        loop {
            let seen = self.channel.seen();
            if let Some(result) = self.look(call) {
                return result;
            }
            if since.elapsed() >= self.limit {
                self.waiting.remove(&call.0);
                return Err(CallError::Late);
            }
            self.channel.wait(seen, self.limit.saturating_sub(since.elapsed()));
        }
    }

    /// The channel.
    pub fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }
}

/// An object, as its side of a channel has it: [`object!`](crate::object) makes one of whatever has its trait.
pub trait Dispatch {
    /// Its interface's version.
    fn version(&self) -> u16;

    /// Calls a method.
    fn dispatch(&mut self, method: u16, arguments: &[u8]) -> Result<Vec<u8>, Status>;
}

/// Objects that can be called, by number.
#[derive(Default)]
pub struct Objects<'a> {
    objects: BTreeMap<u32, Box<dyn Dispatch + 'a>>,
}

impl std::fmt::Debug for Objects<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.objects.keys()).finish()
    }
}

impl<'a> Objects<'a> {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts one there, in the place of what was.
    pub fn put(&mut self, number: u32, object: impl Dispatch + 'a) {
        self.objects.insert(number, Box::new(object));
    }

    /// Takes one away.
    pub fn remove(&mut self, number: u32) {
        self.objects.remove(&number);
    }

    /// Answers the requests that are there, as long as there is room for replies: how many. What is no request is let go.
    pub fn serve(&mut self, channel: &mut Channel) -> Result<usize, ChannelError> {
        let mut served = 0;
        // Not more than can be there: an end that goes on writing keeps nobody here.
        for _ in 0..channel.shape().places() {
            if channel.room()? == 0 {
                break;
            }
            let Some(message) = channel.receive()? else { break };
            let mut arguments = &message.bytes[..];
            let Some((number, object, (method, version))) =
                Request::take(&mut arguments).filter(|_| message.kind == REQUEST)
            else {
                continue;
            };
            let reply = |status: Status, more: u16, result: &[u8]| {
                let head: Reply = (number, status as u16, more);
                [&written(&head)[..], result].concat()
            };
            let bytes = match self.objects.get_mut(&object) {
                None => reply(Status::NoObject, 0, &[]),
                Some(object) if object.version() != version => {
                    reply(Status::OtherVersion, object.version(), &[])
                }
                Some(object) => match object.dispatch(method, arguments) {
                    Ok(result) => reply(Status::Done, 0, &result),
                    Err(status) => reply(status, 0, &[]),
                },
            };
            match channel.send(REPLY, &bytes) {
                Ok(_) => {}
                Err(SendError::TooLong(..)) => {
                    let bytes = reply(Status::TooLong, 0, &[]);
                    channel.send(REPLY, &bytes).map_err(|error| match error {
                        SendError::Channel(error) => error,
                        error => unreachable!("there is room for what is short: {error}"),
                    })?;
                }
                Err(SendError::Channel(error)) => return Err(error),
                Err(SendError::Full) => unreachable!("there was room, which only this end takes"),
            }
            served += 1;
        }
        Ok(served)
    }

    /// Serves until the other end has closed the channel, or this says that it is enough, which is asked at least this often.
    pub fn run(
        &mut self,
        channel: &mut Channel,
        look: Duration,
        mut is_enough: impl FnMut() -> bool,
    ) -> Result<(), ChannelError> {
        while !is_enough() {
            let seen = channel.seen();
            match self.serve(channel) {
                Ok(0) | Err(ChannelError::NotOpen) => channel.wait(seen, look),
                Ok(_) => {}
                Err(ChannelError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Makes of a trait a stub, by which others call an object that has it, and a dispatch, by which they are answered.
///
/// Methods have numbers, which say what they are to the other side; whoever changes what a number means changes the version.
///
/// ```
/// comb_kernels::object! {
///     /// A number that others add to.
///     pub trait Sum, version 1, stub SumStub, dispatch SumDispatch {
///         /// Adds, and says what it is then.
///         0: fn add(&mut self, much: u64) -> u64;
///     }
/// }
/// ```
#[macro_export]
macro_rules! object {
    (
        $(#[$about:meta])*
        $visibility:vis trait $name:ident, version $version:literal, stub $stub:ident, dispatch $dispatch:ident {
            $($(#[$method_about:meta])* $number:literal: fn $method:ident(&mut self $(, $argument:ident: $type:ty)*) -> $result:ty;)*
        }
    ) => {
        $(#[$about])*
        $visibility trait $name {
            $($(#[$method_about])* fn $method(&mut self $(, $argument: $type)*) -> $result;)*
        }

        /// Calls one that is at the other end of a channel.
        #[derive(Debug)]
        $visibility struct $stub<'a> {
            caller: &'a mut $crate::communication::objects::Caller,
            object: u32,
        }

        impl<'a> $stub<'a> {
            /// The object with this number.
            $visibility fn new(caller: &'a mut $crate::communication::objects::Caller, object: u32) -> Self {
                Self { caller, object }
            }

            $($(#[$method_about])*
            $visibility fn $method(
                &mut self $(, $argument: $type)*
            ) -> Result<$result, $crate::communication::objects::CallError> {
                self.caller.call(self.object, $version, $number, &($($argument,)*))
            })*
        }

        /// Answers calls of one.
        #[derive(Debug)]
        $visibility struct $dispatch<T>(pub T);

        impl<T: $name> $crate::communication::objects::Dispatch for $dispatch<T> {
            fn version(&self) -> u16 {
                $version
            }

            fn dispatch(
                &mut self,
                method: u16,
                arguments: &[u8],
            ) -> Result<Vec<u8>, $crate::communication::objects::Status> {
                use $crate::communication::{marshal, objects::Status};
                match method {
                    $($number => {
                        let ($($argument,)*): ($($type,)*) =
                            marshal::understood(arguments).ok_or(Status::BadArguments)?;
                        Ok(marshal::written(&self.0.$method($($argument),*)))
                    })*
                    _ => Err(Status::NoMethod),
                }
            }
        }
    };
}
