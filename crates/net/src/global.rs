//! Global pointers: what a language like Split-C needs of the network. (Thesis §2.6)
//!
//! N components run one program. Each opens windows to all the others, and a [`GlobalPointer`] names a byte in any of
//! them. A get or a put through it is a copy, without the owner's doing; split-phase ones return at once and are done
//! after [`GlobalMemory::sync`]; a store tells its target how much came; a barrier separates phases.
//!
//! The components fail together: unlike other windows, each of these is one memory that all of them may write. Between
//! strangers, use a window each.

mod barrier;
mod pointer;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::barrier::Barrier;
pub use self::pointer::GlobalPointer;
use crate::agent::RequestError;
use crate::channel::ChannelKey;
use crate::endpoint::{Delivery, Endpoint, PostError};
use crate::kinds;
use crate::window::{Access, AccessError, RemoteWindow, Window, WindowError};

/// Stores are not announced by a message: whoever waits for them looks for itself, this often at least.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Looks with other threads let through between them, before the waiter sleeps.
const LOOKS_BEFORE_SLEEP: u32 = 200;
/// Components are processes that start in any order: how often one knocks at another that is not there yet.
const KNOCK_INTERVAL: Duration = Duration::from_millis(2);

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum GlobalError {
    /// Ours: the list of components does not hold our own address, or holds one twice.
    #[error("the list of components must hold each once, and ours ({0}) too")]
    List(String),
    /// Ours: a pointer to a component, or into a window, that the program does not have.
    #[error("{0:?} points to no component, or into no window, of this program")]
    Nowhere(GlobalPointer),
    /// Ours: the pointer is older than the window it names, which was withdrawn since.
    #[error("{pointer:?} is stale: that window now has epoch {now}")]
    Stale {
        /// The pointer.
        pointer: GlobalPointer,
        /// The window's epoch.
        now: u64,
    },
    /// The memory was not accessible.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A window was not made, or not handed over.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A channel was not made.
    #[error("cannot reach component {component}: {source}")]
    Unreachable {
        /// Which.
        component: u32,
        /// Why.
        source: RequestError,
    },
    /// A message was not sent.
    #[error("component {component} was not told: {source}")]
    Post {
        /// Which.
        component: u32,
        /// Why.
        source: PostError,
    },
    /// It did not happen in time.
    #[error("{what}: not within {limit:?}")]
    TimedOut {
        /// What we waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// A component is gone, or was cut off, that we wait for.
    #[error("component {component} is lost: {reason}")]
    Lost {
        /// Which.
        component: u32,
        /// A sentence for people.
        reason: String,
    },
}

/// Names a split-phase get.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fetch(u64);

/// One window of each component. The words before the data count the bytes that each component stored there, one
/// writer a word.
#[derive(Debug)]
struct Space {
    own: Window,
    remote: Vec<Option<RemoteWindow>>,
    /// What we stored, by target.
    stored: Vec<u64>,
    /// Bytes stored to us that were waited for already.
    awaited: u64,
}

/// What a component says of a window of its.
#[derive(Clone, Copy, Debug)]
struct Announced {
    number: u32,
    epoch: u64,
}

/// A program's memory, as one of its components holds it.
#[derive(Debug)]
pub struct GlobalMemory {
    // Before the endpoint, so that windows are withdrawn before their channels close.
    spaces: Vec<Space>,
    endpoint: Endpoint,
    me: u32,
    channels: Vec<Option<ChannelKey>>,
    inbox: Inbox,
    gets: Vec<(Fetch, GlobalPointer, usize)>,
    fetched: BTreeMap<Fetch, Vec<u8>>,
    next_fetch: u64,
}

/// What came from the other components.
#[derive(Debug)]
struct Inbox {
    components: Vec<Option<ChannelKey>>,
    announced: Vec<Vec<Announced>>,
    barrier: Barrier,
    lost: BTreeMap<u32, String>,
}

impl GlobalMemory {
    /// Connects the components, `process/endpoint` each, in the same order for all; ours among them. Waits until all are
    /// there.
    pub fn join(endpoint: Endpoint, components: &[&str], limit: Duration) -> Result<Self, GlobalError> {
        let address = endpoint.address();
        let mut sorted = components.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let me = components.iter().position(|component| *component == address);
        let count = u32::try_from(components.len()).ok();
        let (Some(me), Some(count), true) = (me, count, sorted.len() == components.len()) else {
            return Err(GlobalError::List(address));
        };
        let none = vec![None; components.len()];
        let mut this = Self {
            spaces: Vec::new(),
            endpoint,
            me: u32::try_from(me).expect("below the count"),
            channels: none.clone(),
            inbox: Inbox {
                components: none,
                announced: vec![Vec::new(); components.len()],
                barrier: Barrier::new(u32::try_from(me).expect("below the count"), count),
                lost: BTreeMap::new(),
            },
            gets: Vec::new(),
            fetched: BTreeMap::new(),
            next_fetch: 0,
        };
        let until = Instant::now() + limit;
        for (component, to) in components.iter().enumerate().take(me) {
            this.channels[component] = Some(this.knock(component, to, until)?);
        }
        while let Some(missing) = (me + 1..components.len()).find(|&other| this.channels[other].is_none()) {
            let left = until.saturating_duration_since(Instant::now());
            let Some(channel) = this.endpoint.accept(left) else {
                let what = format!("component {missing} ({}) did not come", components[missing]);
                return Err(GlobalError::TimedOut { what, limit });
            };
            let from = this.endpoint.peer(channel);
            let from = from.and_then(|from| components.iter().position(|component| *component == from));
            match from.filter(|&from| from > me && this.channels[from].is_none()) {
                Some(from) => this.channels[from] = Some(channel),
                // A stranger, or a second channel of one that is there.
                None => this.endpoint.close(channel),
            }
        }
        this.inbox.components.clone_from(&this.channels);
        this.barrier(until.saturating_duration_since(Instant::now()))?;
        Ok(this)
    }

    fn knock(&mut self, component: usize, to: &str, until: Instant) -> Result<ChannelKey, GlobalError> {
        loop {
            match self.endpoint.open(to) {
                Ok(channel) => return Ok(channel),
                Err(RequestError::Refused(_)) if Instant::now() < until => {
                    std::thread::sleep(KNOCK_INTERVAL);
                }
                Err(source) => {
                    let component = u32::try_from(component).expect("below the count");
                    return Err(GlobalError::Unreachable { component, source });
                }
            }
        }
    }

    /// Our own number.
    pub fn component(&self) -> u32 {
        self.me
    }

    /// How many components there are.
    pub fn components(&self) -> u32 {
        u32::try_from(self.channels.len()).expect("counted when we joined")
    }

    /// Makes one more window of zeros in every component; all call this in the same order, each with its own size.
    /// Returns the window's index, which is the same everywhere.
    pub fn make(&mut self, bytes: usize, limit: Duration) -> Result<u32, GlobalError> {
        let until = Instant::now() + limit;
        let index = u32::try_from(self.spaces.len()).expect("fewer than 4 G windows");
        let whole = self.data_start().saturating_add(bytes);
        let mut own = self.endpoint.unopened_window(whole, Access::Put)?;
        for component in 0..self.channels.len() {
            let Some(channel) = self.channels[component] else { continue };
            self.endpoint.extend_window(&mut own, channel)?;
            let number = own.number_on(channel).expect("just opened");
            let words = [u64::from(index), u64::from(number), own.epoch()];
            self.tell(component, kinds::GLOBAL_WINDOW, words, until)?;
        }
        let mut remote = Vec::new();
        for component in 0..self.channels.len() {
            let Some(channel) = self.channels[component] else {
                remote.push(None);
                continue;
            };
            let what = || format!("component {component} made no window {index}");
            let left = until.saturating_duration_since(Instant::now());
            self.wait_for(left, limit, what, &[component], |this| {
                this.inbox.announced[component].len() > index as usize
            })?;
            let Announced { number, epoch } = self.inbox.announced[component][index as usize];
            let left = until.saturating_duration_since(Instant::now());
            let window = self.endpoint.window_numbered(channel, number, left)?;
            if window.epoch() != epoch || window.len() < self.data_start() || window.access() != Access::Put {
                return Err(self.cut_off(component, "the window that it shared is not the one it told of"));
            }
            remote.push(Some(window));
        }
        let stored = vec![0; self.channels.len()];
        self.spaces.push(Space { own, remote, stored, awaited: 0 });
        Ok(index)
    }

    /// Data starts on a cache line of its own, behind the counters.
    fn data_start(&self) -> usize {
        (self.channels.len() * 8).next_multiple_of(64)
    }

    /// A pointer to a byte of a component's window.
    pub fn pointer(&self, component: u32, window: u32, offset: u64) -> Result<GlobalPointer, GlobalError> {
        let pointer = GlobalPointer { component, window, epoch: 0, offset };
        let epoch = self.epoch_of(pointer).ok_or(GlobalError::Nowhere(pointer))?;
        Ok(GlobalPointer { epoch, ..pointer })
    }

    /// A pointer to an element of an array that is spread over the components, one element after the other: Split-C's
    /// spread arrays.
    pub fn spread(&self, window: u32, index: u64, element_bytes: u64) -> Result<GlobalPointer, GlobalError> {
        let components = u64::from(self.components());
        let component = u32::try_from(index % components).expect("below the count");
        self.pointer(component, window, (index / components).saturating_mul(element_bytes))
    }

    fn epoch_of(&self, pointer: GlobalPointer) -> Option<u64> {
        let space = self.spaces.get(pointer.window as usize)?;
        if pointer.component == self.me {
            return Some(space.own.epoch());
        }
        space.remote.get(pointer.component as usize)?.as_ref().map(RemoteWindow::epoch)
    }

    /// The offset within the window that a pointer and a length name, counters included.
    fn locate(&self, pointer: GlobalPointer, bytes: usize) -> Result<usize, GlobalError> {
        let now = self.epoch_of(pointer).ok_or(GlobalError::Nowhere(pointer))?;
        if now != pointer.epoch {
            return Err(GlobalError::Stale { pointer, now });
        }
        let space = &self.spaces[pointer.window as usize];
        let whole = match &space.remote[pointer.component as usize] {
            None => space.own.len(),
            Some(remote) => remote.len(),
        };
        let window_bytes = whole - self.data_start();
        let offset = usize::try_from(pointer.offset).unwrap_or(usize::MAX);
        match offset.checked_add(bytes) {
            Some(end) if end <= window_bytes => Ok(self.data_start() + offset),
            _ => Err(AccessError::Range { window: pointer.window, offset, bytes, window_bytes }.into()),
        }
    }

    // ── blocking ──

    /// Copies out. Eight bytes at a multiple of eight are read at once. After an error `into` may hold anything.
    pub fn get(&mut self, from: GlobalPointer, into: &mut [u8]) -> Result<(), GlobalError> {
        let offset = self.locate(from, into.len())?;
        let space = &self.spaces[from.window as usize];
        match &space.remote[from.component as usize] {
            None => space.own.read(offset, into)?,
            Some(remote) => self.endpoint.get(remote, offset, into)?,
        }
        Ok(())
    }

    /// Copies in. Eight bytes at a multiple of eight are one store, seen after all that was put there before.
    pub fn put(&mut self, to: GlobalPointer, bytes: &[u8]) -> Result<(), GlobalError> {
        let offset = self.locate(to, bytes.len())?;
        self.put_at(to, offset, bytes)
    }

    fn put_at(&mut self, to: GlobalPointer, offset: usize, bytes: &[u8]) -> Result<(), GlobalError> {
        let space = &self.spaces[to.window as usize];
        match &space.remote[to.component as usize] {
            None => space.own.write(offset, bytes)?,
            Some(remote) => self.endpoint.put(remote, offset, bytes)?,
        }
        Ok(())
    }

    // ── split-phase ──

    /// Begins a put. It is done after [`GlobalMemory::sync`].
    pub fn start_put(&mut self, to: GlobalPointer, bytes: &[u8]) -> Result<(), GlobalError> {
        // A copy into shared memory is over at once. Callers may not count on it: elsewhere it is a message.
        self.put(to, bytes)
    }

    /// Begins a get. [`GlobalMemory::take`] has the bytes after [`GlobalMemory::sync`].
    pub fn start_get(&mut self, from: GlobalPointer, bytes: usize) -> Result<Fetch, GlobalError> {
        self.locate(from, bytes)?;
        let fetch = Fetch(self.next_fetch);
        self.next_fetch += 1;
        self.gets.push((fetch, from, bytes));
        Ok(fetch)
    }

    /// Completes all split-phase operations that were begun. The first error is returned; the rest is done nevertheless.
    pub fn sync(&mut self) -> Result<(), GlobalError> {
        let mut outcome = Ok(());
        for (fetch, from, bytes) in std::mem::take(&mut self.gets) {
            let mut content = vec![0; bytes];
            match self.get(from, &mut content) {
                Ok(()) => {
                    self.fetched.insert(fetch, content);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// The bytes of a get that was completed, once.
    pub fn take(&mut self, fetch: Fetch) -> Option<Vec<u8>> {
        self.fetched.remove(&fetch)
    }

    // ── store and signal ──

    /// Puts, and adds to the target's count of bytes stored to it: [`GlobalMemory::await_stored`].
    pub fn store(&mut self, to: GlobalPointer, bytes: &[u8]) -> Result<(), GlobalError> {
        self.put(to, bytes)?;
        let count = &mut self.spaces[to.window as usize].stored[to.component as usize];
        *count = count.wrapping_add(bytes.len() as u64);
        // The count is one word with one writer, and is seen after the bytes.
        let count = count.to_le_bytes();
        self.put_at(to, self.me as usize * 8, &count)
    }

    /// The bytes that all components say they stored into our window, less those waited for already. Somebody who
    /// counts wrong makes this wrong: an allegation, like all that stands in a window.
    pub fn stored(&self, window: u32) -> u64 {
        let Some(space) = self.spaces.get(window as usize) else { return 0 };
        let counts =
            (0..self.channels.len()).map(|from| space.own.word(from * 8).expect("counters come first"));
        counts.fold(0, u64::wrapping_add).wrapping_sub(space.awaited)
    }

    /// Waits until so many bytes were stored into our window, beyond those waited for before.
    pub fn await_stored(&mut self, window: u32, bytes: u64, limit: Duration) -> Result<(), GlobalError> {
        let all: Vec<usize> = (0..self.channels.len()).filter(|&other| other != self.me as usize).collect();
        let what = || format!("{bytes} bytes stored into window {window}");
        self.wait_for(limit, limit, what, &all, |this| this.stored(window) >= bytes)?;
        if let Some(space) = self.spaces.get_mut(window as usize) {
            space.awaited = space.awaited.wrapping_add(bytes);
        }
        Ok(())
    }

    // ── barrier ──

    /// Waits until all components have come here; what they put before is then visible. Completes split-phase operations
    /// first.
    pub fn barrier(&mut self, limit: Duration) -> Result<(), GlobalError> {
        self.sync()?;
        let until = Instant::now() + limit;
        let number = self.inbox.barrier.enter();
        for round in 0..self.inbox.barrier.rounds() {
            let (to, from) = (self.inbox.barrier.to(round), self.inbox.barrier.from(round));
            self.tell(to as usize, kinds::GLOBAL_BARRIER, [number, u64::from(round), 0], until)?;
            let left = until.saturating_duration_since(Instant::now());
            let what = || format!("component {from} did not come to barrier {number}");
            self.wait_for(left, limit, what, &[from as usize], |this| {
                this.inbox.barrier.has_arrived(round, number)
            })?;
        }
        Ok(())
    }

    // ── messages ──

    fn tell(
        &mut self,
        component: usize,
        kind: u8,
        words: [u64; 3],
        until: Instant,
    ) -> Result<(), GlobalError> {
        let mut content = [0; 24];
        for (chunk, word) in content.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        let Some(channel) = self.channels[component] else { return Ok(()) };
        loop {
            let failed = |source| {
                let component = u32::try_from(component).expect("below the count");
                GlobalError::Post { component, source }
            };
            match self.endpoint.post(channel, kind, &content) {
                Ok(()) => return Ok(()),
                // Two that tell each other must read meanwhile.
                Err(PostError::Full(_)) if Instant::now() < until => {
                    self.progress();
                    std::thread::yield_now();
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn progress(&mut self) {
        let Self { endpoint, inbox, channels, .. } = self;
        let mut guilty = Vec::new();
        let ended = endpoint.poll(|delivery| {
            if let Err(rule) = inbox.deliver(&delivery) {
                guilty.push((delivery.channel, rule));
            }
        });
        let ended = ended.err().map(|ended| (ended.channel, ended.to_string()));
        let broken = guilty.into_iter().map(|(channel, rule)| (channel, format!("it was cut off: {rule}")));
        for (channel, reason) in ended.into_iter().chain(broken) {
            endpoint.close(channel);
            if let Some(component) = channels.iter().position(|other| *other == Some(channel)) {
                inbox.lost.entry(u32::try_from(component).expect("below the count")).or_insert(reason);
            }
        }
    }

    fn cut_off(&mut self, component: usize, rule: &str) -> GlobalError {
        if let Some(channel) = self.channels[component] {
            self.endpoint.close(channel);
        }
        let component = u32::try_from(component).expect("below the count");
        let reason = format!("it was cut off: {rule}");
        self.inbox.lost.insert(component, reason.clone());
        GlobalError::Lost { component, reason }
    }

    /// Waits until `ready`; fails when the time is over, or when all `others`, on whom it depends, are lost.
    fn wait_for(
        &mut self,
        left: Duration,
        limit: Duration,
        what: impl Fn() -> String,
        others: &[usize],
        mut ready: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), GlobalError> {
        let until = Instant::now() + left;
        let mut looks = 0;
        loop {
            self.progress();
            if ready(self) {
                return Ok(());
            }
            let of =
                |other: &usize| u32::try_from(*other).ok().and_then(|id| self.inbox.lost.get_key_value(&id));
            let mut lost = others.iter().map(of);
            if let Some(Some((&component, reason))) = lost.next()
                && lost.all(|other| other.is_some())
            {
                return Err(GlobalError::Lost { component, reason: reason.clone() });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(GlobalError::TimedOut { what: what(), limit });
            }
            looks += 1;
            if looks < LOOKS_BEFORE_SLEEP {
                std::thread::yield_now();
            } else {
                self.endpoint.wait(left.min(LOOK_INTERVAL));
            }
        }
    }
}

impl Inbox {
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<(), &'static str> {
        let from = self.components.iter().position(|channel| *channel == Some(delivery.channel));
        // A stranger's; its channel is closed where it is seen.
        let Some(from) = from else { return Err("it is no component of this program") };
        if delivery.payload.len() != 24 {
            return Err("a message that no component sends");
        }
        let mut content = [0; 24];
        delivery.payload.copy_to(&mut content);
        let (words, _) = content.as_chunks::<8>();
        let [first, second, third] = [0, 1, 2].map(|index| u64::from_le_bytes(words[index]));
        match delivery.kind {
            kinds::GLOBAL_WINDOW => {
                let announced = &mut self.announced[from];
                if first != announced.len() as u64 {
                    return Err("its windows are out of order");
                }
                let number = u32::try_from(second).map_err(|_| "a window number out of range")?;
                announced.push(Announced { number, epoch: third });
                Ok(())
            }
            kinds::GLOBAL_BARRIER => {
                self.barrier.arrive(u32::try_from(from).expect("below the count"), first, second)
            }
            _ => Err("a message that no component sends"),
        }
    }
}
