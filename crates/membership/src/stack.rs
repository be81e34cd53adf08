//! The whole of a member: views and ordered update as one machine, for drivers.
//!
//! What each part has to tell the others is done here; what is left for the driver is [`Event`]. After inputs, poll
//! [`Stack::poll_transmit`] until there is nothing more, and then [`Stack::poll_event`]. Many inputs may come before that: one
//! batch, or one acknowledgement, then stands for all of them.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};

use crate::order::{self, Delivery, Level, Order, Snapshot, SubmitError};
use crate::regroup::{self, Regroup, Strength, Stuck, Timing};
use crate::transmit::{Cast, To};
use crate::view::{Member, View, ViewEpoch};
use crate::wire::{self, PeerError, Protocol};

/// How a member works.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Of ordered update.
    pub order: order::Config,
    /// Of view changes.
    pub regroup: Timing,
}

/// What a member is told.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A message came.
    Message {
        /// Whence, as the network says.
        from: NodeId,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The time of [`Stack::next_timeout`] has come.
    Timeout,
    /// Somebody knows something bad of whoever is the member at this node.
    Suspect(NodeId, Strength),
    /// A node is heard again.
    Heard(NodeId),
    /// The answer to [`Event::Acquire`].
    Acquired {
        /// Which epoch was asked for.
        epoch: ViewEpoch,
        /// Whether this member has it.
        granted: bool,
    },
    /// The answer to [`Event::NeedsSnapshot`].
    Snapshot(Snapshot),
    /// The answer to [`Event::Persist`].
    Persisted {
        /// As there.
        position: u64,
    },
}

/// What a member tells its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Apply this update. All members get the same ones in the same order.
    Delivered(Delivery),
    /// An own update is as far as it was to come.
    Reached {
        /// As [`Stack::submit`] said.
        number: u64,
        /// The level that it was sent for.
        level: Level,
    },
    /// This is the view from now on. All that was delivered before was delivered in the one before.
    View(View),
    /// Everybody has installed the view.
    Settled(View),
    /// The group goes on without this member.
    Excluded {
        /// The first view without it.
        by: ViewEpoch,
    },
    /// This part of the group may not go on; it does by itself when enough members are heard again.
    Stuck(Stuck),
    /// Ask the quorum resource, and answer.
    Acquire {
        /// The epoch to ask for.
        epoch: ViewEpoch,
    },
    /// A member does not keep up; nobody waits for it.
    Lagging(NodeId),
    /// It does again.
    CaughtUp(NodeId),
    /// Get a snapshot from another member: nobody keeps any more what this one lacks.
    NeedsSnapshot {
        /// The first position that it lacks.
        from: u64,
    },
    /// Write this to the log, and answer when it is there.
    Persist {
        /// The last position in it.
        position: u64,
        /// What to write.
        bytes: Vec<u8>,
    },
}

/// One member.
#[derive(Clone, Debug)]
pub struct Stack {
    order: Order,
    regroup: Regroup,
    events: VecDeque<Event>,
    is_out: bool,
}

impl Stack {
    /// A member of a first view that all of its members were configured with.
    pub fn configured(config: Config, me: Member, first: View, now: Time) -> Self {
        let order = Order::founding(config.order, me, first.clone());
        let regroup = Regroup::joining(me, config.regroup, now, first, 0);
        let mut stack = Self { order, regroup, events: VecDeque::new(), is_out: false };
        // There is nothing to be flushed before a first view.
        let _ = stack.regroup.handle(now, regroup::Input::Flushed);
        stack.connect(now);
        stack
    }

    /// Takes an update to be sent, and says its number. [`Event::Reached`] tells when it is as far as `level`.
    pub fn submit(&mut self, now: Time, level: Level, body: &[u8]) -> Result<u64, SubmitError> {
        self.order.submit(now, level, body)
    }

    /// Takes one input. An error names a peer that broke a rule, and nothing has changed.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), PeerError> {
        if self.is_out {
            return Ok(());
        }
        let outcome = match input {
            Input::Message { from, bytes } => self.message(now, from, bytes),
            Input::Timeout => self.timeout(now),
            Input::Suspect(node, strength) => match self.regroup.view().member(node) {
                Some(member) => self.regroup.handle(now, regroup::Input::Suspect(member, strength)),
                None => Ok(()),
            },
            Input::Heard(node) => self.regroup.handle(now, regroup::Input::Heard(node)),
            Input::Acquired { epoch, granted } => {
                self.regroup.handle(now, regroup::Input::Acquired { epoch, granted })
            }
            Input::Snapshot(snapshot) => self.order.handle(now, order::Input::Snapshot(snapshot)),
            Input::Persisted { position } => self.order.handle(now, order::Input::Persisted { position }),
        };
        self.connect(now);
        outcome
    }

    /// The next message to be sent. `To::Others` are those of [`Stack::view`].
    pub fn poll_transmit(&mut self, now: Time) -> Option<Cast> {
        if let Some(transmit) = self.regroup.poll_transmit() {
            return Some(Cast { to: To::One(transmit.to), bytes: transmit.bytes.into() });
        }
        let cast = self.order.poll_transmit();
        if cast.is_none() {
            // What was committed by making the last batch.
            self.connect(now);
        }
        cast
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Stack::handle`] if nothing comes before.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.is_out {
            return None;
        }
        [self.order.next_timeout(), self.regroup.next_timeout()].into_iter().flatten().min()
    }

    /// The view that this member works in.
    pub fn view(&self) -> &View {
        self.order.view()
    }

    /// Ordered update, to look at.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Regroup, to look at.
    pub fn regroup(&self) -> &Regroup {
        &self.regroup
    }

    /// A message in words.
    pub fn describe(from: NodeId, bytes: &[u8]) -> String {
        match wire::protocol(from, bytes) {
            Ok(Protocol::Regroup) => regroup::describe(from, bytes),
            Ok(Protocol::Order) => Order::describe(bytes),
            Ok(other) => alloc::format!("{other:?}, {} bytes", bytes.len()),
            Err(error) => String::from(error.rule),
        }
    }

    fn message(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        match wire::protocol(from, bytes)? {
            Protocol::Order => self.order.handle(now, order::Input::Message { from, bytes }),
            Protocol::Regroup => self.regroup.handle(now, regroup::Input::Message { from, bytes }),
            _ => Err(PeerError::new(from, "a message of a protocol that a member does not speak")),
        }
    }

    fn timeout(&mut self, now: Time) -> Result<(), PeerError> {
        let is_due = |wanted: Option<Time>| wanted.is_some_and(|wanted| wanted <= now);
        if is_due(self.order.next_timeout()) {
            self.order.handle(now, order::Input::Timeout)?;
        }
        if is_due(self.regroup.next_timeout()) {
            self.regroup.handle(now, regroup::Input::Timeout)?;
        }
        Ok(())
    }

    /// Tells each part what the other has to say, until neither has more.
    fn connect(&mut self, now: Time) {
        loop {
            if let Some(event) = self.regroup.poll_event() {
                self.regrouped(now, event);
            } else if let Some(event) = self.order.poll_event() {
                self.ordered(now, event);
            } else {
                return;
            }
        }
    }

    fn regrouped(&mut self, now: Time, event: regroup::Event) {
        let input = match event {
            regroup::Event::Freeze { .. } => order::Input::Freeze,
            regroup::Event::Decided { view, cut, holders } => order::Input::Change { view, cut, holders },
            regroup::Event::Installed(view) => {
                self.events.push_back(Event::View(view.clone()));
                if self.order.view() == &view {
                    return;
                }
                order::Input::Install(view)
            }
            regroup::Event::Settled(view) => return self.events.push_back(Event::Settled(view)),
            regroup::Event::Acquire { epoch } => return self.events.push_back(Event::Acquire { epoch }),
            regroup::Event::Stuck { reason } => return self.events.push_back(Event::Stuck(reason)),
            regroup::Event::Excluded { by } => {
                self.is_out = true;
                return self.events.push_back(Event::Excluded { by });
            }
        };
        let taken = self.order.handle(now, input);
        debug_assert!(taken.is_ok(), "only a peer's message is refused");
    }

    fn ordered(&mut self, now: Time, event: order::Event) {
        let input = match event {
            order::Event::Position(position) => regroup::Input::Position(position),
            order::Event::Flushed => regroup::Input::Flushed,
            order::Event::Delivered(delivery) => return self.events.push_back(Event::Delivered(delivery)),
            order::Event::Reached { number, level } => {
                return self.events.push_back(Event::Reached { number, level });
            }
            order::Event::Lagging { member, .. } => return self.events.push_back(Event::Lagging(member)),
            order::Event::CaughtUp { member } => return self.events.push_back(Event::CaughtUp(member)),
            order::Event::NeedsSnapshot { from } => {
                return self.events.push_back(Event::NeedsSnapshot { from });
            }
            order::Event::Persist { position, bytes } => {
                return self.events.push_back(Event::Persist { position, bytes });
            }
        };
        let taken = self.regroup.handle(now, input);
        debug_assert!(taken.is_ok(), "only a peer's message is refused");
    }
}
