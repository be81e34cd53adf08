//! What crosses from a kernel's process to its supervisor's, and back.
//!
//! A kernel has a *counter*: memory that both write. It puts a request there and says so in the first word; the supervisor copies it out once,
//! checks the copy, and puts the answer in its place. Nothing that is there is ever believed, and a kernel that breaks the rules waits for ever.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::host::Shared;
use crate::objects::{
    Access, KernelDescriptor, KernelId, Mapping, Refused, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad,
    Writeback,
};
use crate::space::SpaceError;
use crate::supervisor::{CallError, State};

/// How long a counter is. A thread's state with all vector registers of any processor fits.
pub(crate) const COUNTER_BYTES: usize = 0x1_0000;
const CONTENT: usize = 64;

// Within a counter: whose turn it is, how long the content is, and who sleeps.
pub(crate) const TURN: usize = 0;
const LENGTH: usize = 4;
pub(crate) const SUPERVISOR_SLEEPS: usize = 8;
pub(crate) const KERNEL_SLEEPS: usize = 12;
/// How many writebacks wait for the kernel: it need not ask for none.
pub(crate) const WAITING: usize = 16;
/// How many times it was told by the socket of page groups.
pub(crate) const TOLD: usize = 20;
/// Whether the kernel is not loaded any more: nobody looks here again.
pub(crate) const CLOSED: usize = 24;

// Whose turn it is.
pub(crate) const ASKED: u32 = 1;
pub(crate) const ANSWERED: u32 = 2;

/// What a kernel asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    LoadSpace(SpaceLoad),
    LoadThread {
        load: ThreadLoad,
        state: Box<State>,
        spins: u32,
    },
    LoadMappings {
        first: Mapping,
        count: u32,
    },
    MakeCopy {
        space: SpaceId,
        page: u64,
    },
    ForbidWrites {
        space: SpaceId,
        page: u64,
        pages: u64,
    },
    UnloadMappings {
        space: SpaceId,
        page: u64,
        pages: u64,
    },
    UnloadThread(ThreadId),
    UnloadSpace(SpaceId),
    Interrupt(ThreadId),
    Signal {
        space: SpaceId,
        address: u64,
    },
    Redirect {
        space: SpaceId,
        page: u64,
        thread: ThreadId,
    },
    KeepOn {
        thread: ThreadId,
        processor: Option<u32>,
    },
    Used(ThreadId),
    SetPriority {
        thread: ThreadId,
        priority: u8,
    },
    SetOwnPriority(u8),
    TakeWriteback,
    /// Only the first kernel can.
    OfFirst(OfFirst),
}

/// What the first kernel asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum OfFirst {
    /// With all that was handed over for it.
    LoadKernel {
        tag: Tag,
        descriptor: KernelDescriptor,
        locked: bool,
        /// So many were handed over.
        waiting: u32,
    },
    /// The next kernel that is loaded has yet to hear of this.
    HandOver(Gone),
    UnloadKernel(KernelId),
    SetAccess {
        kernel: KernelId,
        groups: Range<u64>,
        access: Access,
    },
    SetProcessorShares {
        kernel: KernelId,
        shares: Vec<u8>,
    },
    SetMaximumPriority {
        kernel: KernelId,
        maximum: u8,
    },
    /// Its descriptor was sent before.
    ChargeProcess(KernelId),
    ClearGroups(Vec<u32>),
    PutAway {
        name: Tag,
        groups: Vec<u32>,
    },
    PutBack {
        name: Tag,
        groups: Vec<u32>,
    },
    ForgetAway(Tag),
}

/// What it is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    /// Its areas come by the socket.
    Space(SpaceId),
    /// In this area of its space.
    Thread {
        thread: ThreadId,
        area: u32,
    },
    Count(u32),
    Used(Option<Duration>),
    /// Its own end of its counter comes by the socket.
    Kernel(KernelId),
    Writeback(Option<Gone>),
    Failed(Failure),
    /// What was asked was no request.
    NotUnderstood,
}

/// As [`CallError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    Refused(Refused),
    SpaceGone,
    BadAddress,
    Host(i32),
    Crowded,
    BadState,
    NoProcess,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refused) => Self::Refused(refused),
            CallError::Space(SpaceError::Gone) => Self::SpaceGone,
            CallError::Space(SpaceError::BadAddress) => Self::BadAddress,
            CallError::Space(SpaceError::Host { error, .. }) => Self::Host(error.raw_os_error()),
            CallError::Crowded => Self::Crowded,
            CallError::BadState => Self::BadState,
            CallError::NoProcess => Self::NoProcess,
            CallError::NoSupervisor | CallError::Reloaded => Self::SpaceGone,
        }
    }
}

/// As a [`Writeback`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Gone {
    Mapping {
        space: Tag,
        page: u64,
        frame: u64,
        modified: bool,
        referenced: bool,
    },
    Thread {
        tag: Tag,
        state: Box<State>,
    },
    Space {
        tag: Tag,
    },
    /// What it has not heard does not fit in one answer: so many come next.
    Kernel {
        tag: Tag,
        descriptor: KernelDescriptor,
        waiting: u32,
    },
}

impl Gone {
    /// And what a kernel has not heard.
    pub(crate) fn of(writeback: Writeback<Box<State>>) -> (Self, VecDeque<Writeback<Box<State>>>) {
        let gone = match writeback {
            Writeback::Mapping { space, page, frame, modified, referenced } => {
                Self::Mapping { space, page, frame, modified, referenced }
            }
            Writeback::Thread { tag, state } => Self::Thread { tag, state },
            Writeback::Space { tag } => Self::Space { tag },
            Writeback::Kernel { tag, descriptor, waiting } => {
                let count = u32::try_from(waiting.len()).expect("tables are not that large");
                return (Self::Kernel { tag, descriptor, waiting: count }, waiting);
            }
        };
        (gone, VecDeque::new())
    }
}

impl From<Gone> for Writeback<Box<State>> {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Mapping { space, page, frame, modified, referenced } => {
                Self::Mapping { space, page, frame, modified, referenced }
            }
            Gone::Thread { tag, state } => Self::Thread { tag, state },
            Gone::Space { tag } => Self::Space { tag },
            Gone::Kernel { tag, descriptor, .. } => {
                Self::Kernel { tag, descriptor, waiting: VecDeque::new() }
            }
        }
    }
}

/// Puts something there. It is always less than what there is room for, unless a state's vectors are made up: then nothing is put.
pub(crate) fn put<T: Serialize>(counter: &Shared, content: &T) -> Option<()> {
    let bytes = postcard::to_stdvec(content).ok()?;
    if bytes.len() > COUNTER_BYTES - CONTENT {
        return None;
    }
    counter.copy_in(CONTENT, &bytes);
    counter
        .word(LENGTH)
        .store(u32::try_from(bytes.len()).expect("it is small"), std::sync::atomic::Ordering::Release);
    Some(())
}

/// Copies out what is there, and then looks at the copy.
pub(crate) fn take<T: for<'a> Deserialize<'a>>(counter: &Shared) -> Option<T> {
    let length = counter.word(LENGTH).load(std::sync::atomic::Ordering::Acquire) as usize;
    if length > COUNTER_BYTES - CONTENT {
        return None;
    }
    let mut bytes = vec![0; length];
    counter.copy_out(CONTENT, &mut bytes);
    understood(&bytes)
}

/// What some bytes say, if it is all that they say.
pub(crate) fn understood<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    let (content, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(content)
}

/// Neighbouring page groups, as a word that goes by the socket: a kernel has them from now on, if their memory comes along; or else, not any more.
pub(crate) fn word_of_groups(first: u32, count: usize) -> u64 {
    u64::from(u16::try_from(count).expect("a few")) << 32 | u64::from(first)
}

/// Which page groups a word means, if it means any.
pub(crate) fn groups_of_word(word: u64) -> Option<Range<u32>> {
    let first = u32::try_from(word & u64::from(u32::MAX)).ok()?;
    let end = first.checked_add(u16::try_from(word >> 32).ok()?.into())?;
    Some(first..end)
}

/// So many descriptors go in one message.
pub(crate) const MOST_DESCRIPTORS: usize = 64;

/// Sends descriptors, and a word that says what they are.
pub(crate) fn send_descriptors(
    socket: &UnixStream,
    word: u64,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "at most so many");
    let bytes = word.to_le_bytes();
    // A kernel that does not take what it is sent must not stop its supervisor.
    sendmsg(
        socket,
        &[std::io::IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Receives what was sent so, and waits for it.
pub(crate) fn receive_descriptors(socket: &UnixStream) -> Result<(u64, Vec<OwnedFd>), Errno> {
    receive(socket, RecvFlags::WAITALL)
}

/// Receives what was sent so, if it is there.
pub(crate) fn receive_now(socket: &UnixStream) -> Result<(u64, Vec<OwnedFd>), Errno> {
    receive(socket, RecvFlags::DONTWAIT)
}

fn receive(socket: &UnixStream, flags: RecvFlags) -> Result<(u64, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 8];
    let mut buffers = [std::io::IoSliceMut::new(&mut bytes)];
    let message = recvmsg(socket.as_fd(), &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC | flags)?;
    if message.bytes != 8 {
        return Err(Errno::PIPE);
    }
    let mut descriptors = Vec::new();
    for received in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = received {
            descriptors.extend(rights);
        }
    }
    Ok((u64::from_le_bytes(bytes), descriptors))
}
