//! An agent as a protocol: who connects when, what is sent, and when recording is suspended. No clock, no socket, no thread.

use std::collections::VecDeque;
use std::time::Duration;

use comb_types::Dice;

use super::buffer::Buffer;
use super::refusal::{PeerFault, Refusal};
use super::wire::{Hello, Incoming, MAGIC, MOST_NAME_BYTES, Message, Open};
use super::{AgentLimits, HEARTBEAT_INTERVAL, SILENCE_LIMIT, VERSION};
use crate::trace_file::{SuspensionCause, kind};

/// How long it waits before it connects again: at first, and at most.
const SHORTEST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A collector that was restarted reads the file before it says how far it goes: gigabytes, at the speed of a disk.
const OPENING_LIMIT: Duration = Duration::from_secs(120);

/// Of the buffer, so much may be used before recording is suspended. The rest is for what the source has already seen.
const SUSPENSION_MARK: (usize, usize) = (3, 4);

/// What the driver has to do, or may tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// Begin a recording: call [`Agent::begin`], and attach the source.
    Record,
    /// End the recording in order, and detach the source.
    Suspend(SuspensionCause),
    /// Drop the recording: it will be heard by nobody. So many of its events may not be on the collector's disk.
    Abandon { undelivered: u64 },
    /// The collector took the agent.
    Connected,
    /// It is gone, or the connection to it. `None` if the connection just ended.
    Disconnected(Option<PeerFault>),
    /// The collector said why it takes nothing.
    Refused(Refusal),
    /// A recording is on the collector's disk, all of it.
    Delivered { recording: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Down {
        retry_at: Duration,
    },
    Connecting,
    /// Hello was said.
    Greeting,
    /// The recording was named.
    Opening,
    /// There is no recording.
    Idle,
    /// Frames are sent.
    Open,
}

/// What comes of a frame that is put into the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Put {
    Taken,
    /// There is no room, or nobody will ever want it.
    Refused,
}

pub(super) struct Agent {
    limits: AgentLimits,
    machine: String,
    dice: Dice,
    link: Link,
    attempts: u32,
    incoming: Incoming,
    outgoing: VecDeque<Vec<u8>>,
    buffer: Option<Buffer>,
    /// The collector's limit.
    most_frame_bytes: u64,
    heard: Duration,
    said: Duration,
    /// Since when frames cannot be sent.
    lost: Option<Duration>,
    is_suspending: bool,
    is_stopping: bool,
    last_refusal: Option<Refusal>,
    events: VecDeque<Event>,
}

impl Agent {
    pub(super) fn new(machine: &str, limits: AgentLimits, dice: Dice) -> Self {
        let mut name = machine.to_owned();
        name.truncate(name.floor_char_boundary(MOST_NAME_BYTES));
        Self {
            limits,
            machine: name,
            dice,
            link: Link::Down { retry_at: Duration::ZERO },
            attempts: 0,
            incoming: Incoming::default(),
            outgoing: VecDeque::new(),
            buffer: None,
            most_frame_bytes: u64::MAX,
            heard: Duration::ZERO,
            said: Duration::ZERO,
            lost: None,
            is_suspending: false,
            is_stopping: false,
            last_refusal: None,
            events: VecDeque::new(),
        }
    }

    /// Whether the driver should connect now. It then calls [`Self::connected`] or [`Self::disconnected`].
    pub(super) fn poll_connect(&mut self, now: Duration) -> bool {
        let is_due = matches!(self.link, Link::Down { retry_at } if retry_at <= now) && !self.is_done();
        if is_due {
            self.link = Link::Connecting;
        }
        is_due
    }

    /// Whether a connection is wanted. If not, the driver drops the one that it has.
    pub(super) const fn is_linked(&self) -> bool {
        !matches!(self.link, Link::Down { .. } | Link::Connecting)
    }

    /// There is a connection.
    pub(super) fn connected(&mut self, now: Duration) {
        assert_eq!(self.link, Link::Connecting, "the driver connects when it is told to");
        self.incoming = Incoming::default();
        let hello = Hello { lowest: VERSION, highest: VERSION, machine: self.machine.clone() };
        self.outgoing = [MAGIC.to_vec(), Message::Hello(hello).bytes()].into();
        (self.heard, self.said) = (now, now);
        self.link = Link::Greeting;
    }

    /// The connection is gone, or could not be made.
    pub(super) fn disconnected(&mut self, now: Duration) {
        if !matches!(self.link, Link::Down { .. }) {
            self.hang_up(now, None);
        }
    }

    fn hang_up(&mut self, now: Duration, fault: Option<PeerFault>) {
        // Who has nothing left to say hangs up of its own accord.
        if self.link != Link::Connecting && !self.is_done() {
            self.events.push_back(Event::Disconnected(fault));
        }
        // Twice as long each time; the same for all who lost the same collector would bring them back at the same time.
        let longest = LONGEST_RETRY.min(SHORTEST_RETRY * 2_u32.pow(self.attempts.min(10)));
        self.attempts += 1;
        self.link = Link::Down { retry_at: now + self.dice.between(longest / 2..longest) };
        self.outgoing.clear();
        self.incoming = Incoming::default();
        if self.buffer.is_some() && self.lost.is_none() {
            self.lost = Some(now);
        }
    }

    /// Bytes came.
    pub(super) fn received(&mut self, now: Duration, bytes: &[u8]) {
        if !self.is_linked() {
            return;
        }
        self.heard = now;
        self.incoming.add(bytes);
        while self.is_linked() {
            let handled = match self.incoming.next() {
                Ok(None) => return,
                Ok(Some(message)) => self.handle(now, message),
                Err(fault) => Err(fault),
            };
            if let Err(fault) = handled {
                self.hang_up(now, Some(fault));
            }
        }
    }

    fn handle(&mut self, now: Duration, message: Message) -> Result<(), PeerFault> {
        match (message, self.link) {
            (Message::Welcome { version: VERSION, most_frame_bytes }, Link::Greeting) => {
                self.most_frame_bytes = most_frame_bytes;
                self.events.push_back(Event::Connected);
                self.go_on();
            }
            (Message::Opened { frames }, Link::Opening) => {
                let resumed = self.buffer.as_mut().ok_or(PeerFault::Turn)?.resume(frames);
                // It will say the same next time.
                resumed.inspect_err(|_| self.give_up())?;
                self.link = Link::Open;
                self.lost = None;
                self.pass_on_if_delivered();
            }
            (Message::Acknowledged { frames }, Link::Open) => {
                self.buffer.as_mut().ok_or(PeerFault::Turn)?.acknowledge(frames)?;
                // Only now: a collector that takes connections, and no frames, is not to be asked ten times a second.
                (self.last_refusal, self.attempts) = (None, 0);
                self.pass_on_if_delivered();
            }
            (Message::Refused(refusal), _) => {
                self.events.push_back(Event::Refused(refusal));
                self.last_refusal = Some(refusal);
                if refusal.is_final() {
                    self.give_up();
                } else if refusal == Refusal::Full {
                    self.suspend(SuspensionCause::Full);
                }
                self.hang_up(now, None);
            }
            (Message::Alive, Link::Idle | Link::Opening | Link::Open) => {}
            _ => return Err(PeerFault::Turn),
        }
        Ok(())
    }

    /// What comes next, where no recording is being sent.
    fn go_on(&mut self) {
        match &self.buffer {
            Some(buffer) => {
                let Buffer { recording, began_wall_ns, .. } = *buffer;
                let open = Open { recording, began_wall_ns, acknowledged: buffer.acknowledged() };
                self.outgoing.push_back(Message::Open(open).bytes());
                self.link = Link::Opening;
            }
            None => {
                self.link = Link::Idle;
                if !self.is_stopping {
                    self.events.push_back(Event::Record);
                }
            }
        }
    }

    fn pass_on_if_delivered(&mut self) {
        if let Some(buffer) = self.buffer.take_if(|buffer| buffer.is_delivered()) {
            self.events.push_back(Event::Delivered { recording: buffer.recording });
            self.is_suspending = false;
            self.go_on();
        }
    }

    fn suspend(&mut self, cause: SuspensionCause) {
        if !self.is_suspending && self.buffer.as_ref().is_some_and(|buffer| !buffer.is_ended()) {
            self.is_suspending = true;
            self.events.push_back(Event::Suspend(cause));
        }
    }

    fn give_up(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.is_suspending = false;
            self.lost = None;
            self.events.push_back(Event::Abandon { undelivered: buffer.events() });
        }
    }

    /// A recording begins, as [`Event::Record`] asked for.
    pub(super) fn begin(&mut self, now: Duration, recording: u64, began_wall_ns: u64) {
        assert!(self.buffer.is_none(), "there is one recording at a time");
        self.buffer = Some(Buffer::new(recording, began_wall_ns));
        match self.link {
            Link::Idle => self.go_on(),
            _ => self.lost = Some(now),
        }
    }

    /// What was begun cannot even begin: as if it had never been asked for. It is asked for again, later.
    pub(super) fn disown(&mut self, now: Duration) {
        if self.buffer.take().is_some() {
            (self.is_suspending, self.lost) = (false, None);
            self.disconnected(now);
        }
    }

    /// The next frame of a recording.
    pub(super) fn put(&mut self, recording: u64, frame: &[u8]) -> Put {
        let limit = self.limits.buffer_bytes;
        let most_frame_bytes = self.most_frame_bytes;
        let Some(buffer) = self.buffer.as_mut().filter(|buffer| buffer.recording == recording) else {
            return Put::Refused;
        };
        assert!(!buffer.is_ended(), "nothing follows the end");
        // The end always finds room: it is short, and without it nobody knows that the recording ended in order.
        let has_room = buffer.bytes() + frame.len() <= limit && frame.len() as u64 <= most_frame_bytes;
        if !has_room && frame[0] != kind::END {
            self.suspend(self.cause_of_delay());
            return Put::Refused;
        }
        buffer.push(frame.to_vec());
        if buffer.bytes() > limit / SUSPENSION_MARK.1 * SUSPENSION_MARK.0 {
            self.suspend(self.cause_of_delay());
        }
        Put::Taken
    }

    fn cause_of_delay(&self) -> SuspensionCause {
        match (self.link, self.last_refusal) {
            (Link::Open, _) => SuspensionCause::Slow,
            (_, Some(Refusal::Full)) => SuspensionCause::Full,
            _ => SuspensionCause::Unreachable,
        }
    }

    /// No recording begins any more. What is in the buffer is still sent.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Whether it was stopped, and all has been delivered.
    pub(super) const fn is_done(&self) -> bool {
        self.is_stopping && self.buffer.is_none()
    }

    /// What is to be sent next.
    pub(super) fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        if !self.is_linked() {
            return None;
        }
        let frames = self.buffer.as_mut().filter(|_| self.link == Link::Open);
        let message = self.outgoing.pop_front().or_else(|| frames?.transmit())?;
        self.said = now;
        Some(message)
    }

    /// To be called when time has passed: at [`Self::next_timeout`], or more often.
    pub(super) fn tick(&mut self, now: Duration) {
        if self.is_linked() {
            let limit = if self.link == Link::Opening { OPENING_LIMIT } else { SILENCE_LIMIT };
            if now >= self.heard + limit {
                self.hang_up(now, Some(PeerFault::Silent));
            } else if now >= self.said + HEARTBEAT_INTERVAL && self.outgoing.is_empty() {
                self.outgoing.push_back(Message::Alive.bytes());
            }
        }
        if self.lost.is_some_and(|lost| now >= lost + self.limits.patience) {
            self.suspend(self.cause_of_delay());
        }
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn next_timeout(&self) -> Duration {
        let link = match self.link {
            Link::Down { retry_at } => retry_at,
            Link::Connecting => Duration::MAX,
            Link::Opening => (self.heard + OPENING_LIMIT).min(self.said + HEARTBEAT_INTERVAL),
            _ => (self.heard + SILENCE_LIMIT).min(self.said + HEARTBEAT_INTERVAL),
        };
        let lost = self.lost.filter(|_| !self.is_suspending);
        link.min(lost.map_or(Duration::MAX, |lost| lost + self.limits.patience))
    }

    /// What has happened, and what is to be done.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        loop {
            // While the driver was about to begin, the connection may have been lost and made again, and asked a second time.
            let is_moot = self.buffer.is_some() || self.is_stopping;
            match self.events.pop_front() {
                Some(Event::Record) if is_moot => {}
                event => return event,
            }
        }
    }

    /// How many events are not known to be on the collector's disk.
    pub(super) fn undelivered(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::events)
    }
}

#[cfg(test)]
mod tests;
