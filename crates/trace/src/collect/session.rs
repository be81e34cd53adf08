//! A collector as a protocol, towards one agent: what it takes, what it says. No clock, no socket, no disk.

use std::collections::VecDeque;
use std::time::Duration;

use super::order::Order;
use super::refusal::{PeerFault, Refusal};
use super::wire::{Hello, Incoming, MAGIC, MOST_NAME_BYTES, Message, Open};
use super::{HEARTBEAT_INTERVAL, SILENCE_LIMIT, SYNC_INTERVAL, VERSION};

/// So much may wait to be said. All that is said is short, so who has this much waiting does not read.
const MOST_OUTGOING: usize = 256;

/// What the driver has to do, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Look for a recording, or make it, and call [`Session::opened`].
    Open { machine: String, open: Open },
    /// Write a frame behind those before it.
    Write(Vec<u8>),
    /// Bring to the disk what was written, and call [`Session::synced`].
    Sync,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Greeting,
    /// No recording is being sent.
    Idle,
    /// The driver looks for it.
    Opening,
    Open,
    Ended,
}

pub(super) struct Session {
    state: State,
    most_frame_bytes: usize,
    /// Why no agent is taken, if none is.
    admission: Result<(), Refusal>,
    machine: String,
    incoming: Incoming,
    outgoing: VecDeque<Vec<u8>>,
    order: Order,
    acknowledged: u64,
    sync_at: Option<Duration>,
    began: Duration,
    heard: Duration,
    said: Duration,
    actions: VecDeque<Action>,
}

impl Session {
    pub(super) fn new(now: Duration, most_frame_bytes: usize, admission: Result<(), Refusal>) -> Self {
        Self {
            state: State::Greeting,
            most_frame_bytes,
            admission,
            machine: String::new(),
            incoming: Incoming::default(),
            outgoing: [MAGIC.to_vec()].into(),
            order: Order::default(),
            acknowledged: 0,
            sync_at: None,
            began: now,
            heard: now,
            said: now,
            actions: VecDeque::new(),
        }
    }

    /// Whether the agent was taken, and not sent away since.
    pub(super) fn is_admitted(&self) -> bool {
        !matches!(self.state, State::Greeting | State::Ended)
    }

    /// The name that the agent gave its machine.
    pub(super) fn machine(&self) -> &str {
        &self.machine
    }

    /// Bytes came. After an error, what is still to be said should be said, and the connection ended.
    pub(super) fn received(&mut self, now: Duration, bytes: &[u8]) -> Result<(), Refusal> {
        self.heard = now;
        self.incoming.add(bytes);
        self.go_on(now)
    }

    /// Handles messages up to one that the driver has to answer first.
    fn go_on(&mut self, now: Duration) -> Result<(), Refusal> {
        while !matches!(self.state, State::Opening | State::Ended) {
            let message = match self.incoming.next() {
                Ok(None) => break,
                Ok(Some(message)) => self.handle(now, message),
                Err(fault) => Err(Refusal::Fault(fault)),
            };
            if let Err(refusal) = message {
                return Err(self.refuse(refusal));
            }
        }
        Ok(())
    }

    fn handle(&mut self, now: Duration, message: Message) -> Result<(), Refusal> {
        match (message, self.state) {
            (Message::Hello(hello), State::Greeting) => self.greet(hello)?,
            (Message::Open(open), State::Idle) => {
                self.state = State::Opening;
                self.actions.push_back(Action::Open { machine: self.machine.clone(), open });
            }
            (Message::Frame { sequence, frame }, State::Open) => self.take(now, sequence, frame)?,
            (Message::Alive, State::Idle | State::Open) => {}
            _ => return Err(Refusal::Fault(PeerFault::Turn)),
        }
        Ok(())
    }

    fn greet(&mut self, hello: Hello) -> Result<(), Refusal> {
        if !(hello.lowest..=hello.highest).contains(&VERSION) {
            return Err(Refusal::Version { lowest: VERSION, highest: VERSION });
        }
        if hello.machine.len() > MOST_NAME_BYTES {
            return Err(Refusal::Fault(PeerFault::Size));
        }
        self.admission?;
        self.machine = hello.machine;
        self.say(&Message::Welcome { version: VERSION, most_frame_bytes: self.most_frame_bytes as u64 });
        self.state = State::Idle;
        Ok(())
    }

    fn take(&mut self, now: Duration, sequence: u64, frame: Vec<u8>) -> Result<(), Refusal> {
        let expected = self.order.frames();
        if sequence < expected {
            return Ok(()); // It is here already.
        }
        if sequence > expected {
            return Err(Refusal::Fault(PeerFault::Gap));
        }
        self.order.take(&frame).map_err(Refusal::Fault)?;
        self.actions.push_back(Action::Write(frame));
        // The agent waits for nothing else, when all has been sent.
        let sync_at = if self.order.is_ended() { now } else { now + SYNC_INTERVAL };
        self.sync_at = Some(self.sync_at.map_or(sync_at, |before| before.min(sync_at)));
        Ok(())
    }

    /// The recording is there as far as this says, or not to be had.
    pub(super) fn opened(&mut self, now: Duration, found: Result<Order, Refusal>) -> Result<(), Refusal> {
        assert_eq!(self.state, State::Opening, "the driver was asked");
        self.order = found.map_err(|refusal| self.refuse(refusal))?;
        self.acknowledged = self.order.frames();
        self.say(&Message::Opened { frames: self.acknowledged });
        self.heard = now;
        self.state = State::Open;
        self.incoming.most_frame_bytes = self.most_frame_bytes;
        self.close_if_ended();
        self.go_on(now)
    }

    /// All that was to be written is on the disk.
    pub(super) fn synced(&mut self) {
        if self.state == State::Open && self.acknowledged < self.order.frames() {
            self.acknowledged = self.order.frames();
            self.say(&Message::Acknowledged { frames: self.acknowledged });
            self.close_if_ended();
        }
    }

    fn close_if_ended(&mut self) {
        if self.order.is_ended() && self.acknowledged == self.order.frames() {
            self.state = State::Idle;
            self.incoming.most_frame_bytes = 0;
        }
    }

    /// Tells the agent why no more is taken, and takes no more.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Refusal {
        self.say(&Message::Refused(refusal));
        self.state = State::Ended;
        self.actions.clear();
        refusal
    }

    fn say(&mut self, message: &Message) {
        self.outgoing.push_back(message.bytes());
    }

    /// What is to be said next.
    pub(super) fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let message = self.outgoing.pop_front()?;
        self.said = now;
        Some(message)
    }

    /// What the driver is to do next.
    pub(super) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// To be called as time passes, ten times a second or so.
    pub(super) fn tick(&mut self, now: Duration) -> Result<(), Refusal> {
        if self.state == State::Ended {
            return Ok(());
        }
        let is_late = self.state == State::Greeting && now >= self.began + SILENCE_LIMIT;
        if is_late || now >= self.heard + SILENCE_LIMIT {
            return Err(self.refuse(Refusal::Fault(PeerFault::Silent)));
        }
        if self.outgoing.len() > MOST_OUTGOING {
            return Err(self.refuse(Refusal::Fault(PeerFault::Deaf)));
        }
        if now >= self.said + HEARTBEAT_INTERVAL && matches!(self.state, State::Idle | State::Open) {
            self.say(&Message::Alive);
            self.said = now;
        }
        if self.sync_at.is_some_and(|at| at <= now) {
            self.sync_at = None;
            self.actions.push_back(Action::Sync);
        }
        Ok(())
    }
}
