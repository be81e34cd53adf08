//! How do thousands of small groups live on one, each with the promises that it wants? (Galaxy §8.5, §8.8)
//!
//! A *circle* is a lightweight group: a name, the members of the base group that belong to it, and the [`Terms`] on which they talk.
//! Circles have no detectors, no quorums and no view changes of their own. Which there are is a table that all members of the base
//! group have, and that changes by its ordered updates alone: so all have the same one at the same position. (Of who has left the base group
//! the first member of the next view tells, by an update too. Were it done with the view, who comes in later, and is not told of
//! that view, would have another table.)
//!
//! What is said in a circle travels as its terms want it: through the base group's order, by the base group's [`crate::multicast`], or
//! straight from member to member. One name space has it all: `printers` is everybody in that circle, `printers/3` the one of them
//! at node 3, and [`EVERYONE`] the base group itself.
//!
//! The machine stands between ordered update and the program: it is told, in their order, of the same events as the program.

mod message;
mod recovery;
mod table;
mod terms;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{Dice, NodeId, Time};

use crate::multicast::{self, Multicast};
use crate::order::{Delivery, Level};
use crate::transmit::{Cast, To};
use crate::view::{Member, View};
use crate::wire::{PeerError, Protocol, decode_borrowed, encode};
pub use message::describe;
use message::{Carried, Message};
use recovery::{Held, Recovery};
use table::{BASE, CircleId, Said, Table, Update, told};
pub use terms::{
    CircleError, EVERYONE, Event, Flow, LONGEST_NAME, MOST_CIRCLES, Ordering, Refusal, Reliability, Terms,
};
use terms::{is_name, parse};

/// The most that is added to what is said.
const MOST_OVERHEAD_BYTES: usize = 48;

/// How it works.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// Of what spreads by gossip. All members have the same.
    pub multicast: multicast::Config,
}

/// What happened that nobody was told of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// Updates that their sender may not send.
    pub refused: u64,
    /// Messages of those who are no members of the base group, or not yet, or not any more.
    pub strangers: u64,
    /// Messages that gossip had given up.
    pub given_up: u64,
    /// Those of them that were got from others.
    pub recovered: u64,
    /// What was overtaken, or came twice, in lossy circles in order.
    pub overtaken: u64,
}

/// What this member says in a circle.
#[derive(Clone, Debug, Default)]
struct Own {
    /// Under way: numbers of updates, or of multicast messages.
    open: VecDeque<u64>,
    /// When all that was said is within what may be said in a second.
    paid: Option<Time>,
}

/// What is to be done so that something is said.
#[derive(Debug)]
pub(crate) enum Way {
    /// It is under way.
    Sent(u64),
    /// This is to be submitted, and [`Circles::submitted`] be told of its number.
    Submit { level: Level, update: Vec<u8>, ticket: Ticket },
}

/// In which circle something is said, and until when that is paid for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(CircleId, Option<Time>);

/// The circles, as one member of the base group has them.
#[derive(Clone, Debug)]
pub struct Circles {
    config: Config,
    me: Member,
    dice: Dice,
    table: Table,
    /// Whether this member is to tell the circles who has left the base group.
    is_to_tell: bool,
    /// Everything up to this was told.
    position: u64,
    view: Option<View>,
    now: Time,
    own: BTreeMap<CircleId, Own>,
    /// What this member has said in lossy circles, all together: whoever leaves one and comes back goes on counting.
    lossy: u64,
    /// In which circle an own update says something.
    submitted: BTreeMap<u64, CircleId>,
    /// Since when this member belongs to a circle.
    since: BTreeMap<CircleId, u64>,
    /// Of lossy circles in order: the last that was heard of each.
    heard: BTreeMap<(CircleId, Member), u64>,
    multicast: Option<Multicast>,
    /// What came by gossip and is not told yet.
    held: BTreeMap<(Member, u64), Held>,
    recovery: Recovery,
    transmits: VecDeque<Cast>,
    events: VecDeque<Event>,
    counts: Counts,
}

impl Circles {
    pub(crate) fn new(config: Config, me: Member, dice: Dice) -> Self {
        Self {
            config,
            me,
            dice,
            table: Table::default(),
            is_to_tell: false,
            position: 0,
            view: None,
            now: Time::ZERO,
            own: BTreeMap::new(),
            lossy: 0,
            submitted: BTreeMap::new(),
            since: BTreeMap::new(),
            heard: BTreeMap::new(),
            multicast: None,
            held: BTreeMap::new(),
            recovery: Recovery::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// It is now.
    pub(crate) fn at(&mut self, now: Time) {
        self.now = now;
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The members of a circle, by node; nobody if there is none of that name.
    pub fn members(&self, circle: &str) -> impl Iterator<Item = Member> + use<'_> {
        let base =
            self.view.as_ref().filter(|_| circle == EVERYONE).into_iter().flat_map(|view| &view.members);
        let circle = self.table.find(circle).and_then(|id| self.table.get(id));
        base.chain(circle.into_iter().flat_map(|circle| &circle.members)).copied()
    }

    /// The terms of a circle, if there is one of that name.
    pub fn terms(&self, circle: &str) -> Option<Terms> {
        if circle == EVERYONE {
            return Some(Terms::default());
        }
        Some(self.table.get(self.table.find(circle)?)?.terms)
    }

    /// The names of all circles, but [`EVERYONE`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|(_, circle)| &circle.name[..])
    }

    /// How many there are, without [`EVERYONE`].
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none but [`EVERYONE`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened that nobody was told of.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The update that founds a circle, or lets this member in.
    pub(crate) fn join(name: &str, terms: Terms) -> Result<Vec<u8>, CircleError> {
        match () {
            () if !is_name(name) => Err(CircleError::Name),
            () if !terms.is_sound() => Err(CircleError::Terms),
            () => Ok(encode(Protocol::Circles, &Update::Join { name, terms })),
        }
    }

    /// The update by which this member leaves a circle.
    pub(crate) fn leave(name: &str) -> Result<Vec<u8>, CircleError> {
        if !is_name(name) {
            return Err(CircleError::Name);
        }
        Ok(encode(Protocol::Circles, &Update::Leave { name }))
    }

    /// Says something to a circle, or to one member of it.
    pub(crate) fn say(&mut self, address: &str, body: &[u8]) -> Result<Way, CircleError> {
        let (name, to) = parse(address)?;
        let is_base = name == EVERYONE;
        let id = if is_base { Some(BASE) } else { self.table.find(name) }.ok_or(CircleError::NotAMember)?;
        let mut is_member = false;
        let mut meant = Vec::new();
        for member in self.members(name) {
            is_member |= member == self.me;
            if to.is_none_or(|to| to == member.node) {
                meant.push(member.node);
            }
        }
        match to {
            _ if !is_member => return Err(CircleError::NotAMember),
            Some(to) if meant.is_empty() => return Err(CircleError::Nobody(to)),
            _ => {}
        }
        let terms = self.terms(name).ok_or(CircleError::NotAMember)?;
        let paid = self.pay(id, terms.flow)?;
        let way = match terms.reliability {
            Reliability::Atomic(level) => {
                let update = encode(Protocol::Circles, &Update::Say { circle: id, to, body });
                Way::Submit { level, update, ticket: Ticket(id, paid) }
            }
            Reliability::Epidemic => {
                let carried = Carried { circle: id, to, since: self.position, body };
                let bytes = postcard::to_allocvec(&carried).expect("our own messages can be written");
                let multicast = self.multicast.as_mut().ok_or(CircleError::Out)?;
                let number = multicast.send(self.now, &bytes)?;
                self.recovery.keep(self.me, number, bytes);
                self.own.entry(id).or_default().open.push_back(number);
                Way::Sent(number)
            }
            Reliability::Lossy => {
                if body.len() + MOST_OVERHEAD_BYTES > self.config.multicast.longest_message {
                    return Err(CircleError::TooLong);
                }
                let number = self.lossy + 1;
                let said = Message::Say { circle: id, number, is_to_one: to.is_some(), body };
                let bytes: Arc<[u8]> = encode(Protocol::Circles, &said).into();
                let cast = |node| Cast { to: To::One(node), bytes: bytes.clone() };
                let others = meant.iter().copied().filter(|&node| node != self.me.node);
                self.transmits.extend(others.map(cast));
                self.lossy = number;
                Way::Sent(number)
            }
        };
        if let Way::Sent(_) = way {
            self.own.entry(id).or_default().paid = paid;
            // Who is in a circle hears itself, as in the base group.
            if meant.contains(&self.me.node) {
                self.events.push_back(told(name, self.me, to.is_some(), None, body));
            }
        }
        Ok(way)
    }

    /// Whether the circle's terms let this member say one thing more, and when that will be within its rate.
    fn pay(&mut self, id: CircleId, flow: Flow) -> Result<Option<Time>, CircleError> {
        let now = self.now;
        let own = self.own.entry(id).or_default();
        if let Some(multicast) = &self.multicast {
            // Updates are told of by number when they are as far as they were to come.
            own.open.retain(|number| self.submitted.get(number) == Some(&id) || multicast.is_open(*number));
        }
        if own.open.len() >= flow.outstanding as usize {
            return Err(CircleError::Full);
        }
        let Some(per_second) = flow.per_second else { return Ok(None) };
        let one = Duration::from_secs(1) / per_second;
        let before = own.paid.filter(|paid| *paid > now).unwrap_or(now);
        let at_once = one * (per_second / 10);
        if before.since(now) > at_once {
            return Err(CircleError::TooFast(before.since(now).saturating_sub(at_once)));
        }
        Ok(Some(before.saturating_add(one)))
    }

    /// What was to be submitted has this number.
    pub(crate) fn submitted(&mut self, Ticket(id, paid): Ticket, number: u64) {
        self.submitted.insert(number, id);
        let own = self.own.entry(id).or_default();
        own.open.push_back(number);
        own.paid = paid;
    }

    /// An own update is as far as it was to come.
    pub(crate) fn reached(&mut self, number: u64) {
        if let Some(id) = self.submitted.remove(&number)
            && let Some(own) = self.own.get_mut(&id)
        {
            own.open.retain(|open| *open != number);
        }
    }

    /// The order of all has come to this position, with something of the program's.
    pub(crate) fn passed(&mut self, position: u64) {
        self.position = position;
        self.release();
    }

    /// The order of all has delivered this, of ours. The error is of an update that its sender may not send; every member says it.
    pub(crate) fn delivered(&mut self, delivery: &Delivery, update: &[u8]) -> Result<(), PeerError> {
        self.position = delivery.position;
        let had_epidemic = self.table.has_epidemic;
        let applied = self.apply(delivery, update);
        self.counts.refused += u64::from(applied.is_err());
        applied?;
        if self.table.has_epidemic && !had_epidemic {
            self.gossip(true);
        }
        self.release();
        Ok(())
    }

    fn apply(&mut self, delivery: &Delivery, update: &[u8]) -> Result<(), PeerError> {
        let &Delivery { position, epoch, sender: from, .. } = delivery;
        let update = decode_borrowed(from.node, Protocol::Circles, update)?;
        let said = Said { from, position, epoch, update };
        self.table.apply(self.me, &said, &mut self.events)?;
        match said.update {
            Update::Join { name, .. } if from == self.me => {
                let id = self.table.find(name).filter(|id| self.is_in(*id));
                self.since.extend(id.filter(|id| !self.since.contains_key(id)).map(|id| (id, position)));
            }
            Update::Leave { .. } | Update::Base { .. } => self.forget_gone(),
            _ => {}
        }
        Ok(())
    }

    fn is_in(&self, id: CircleId) -> bool {
        self.table.name_if_heard(id, self.me, self.me).is_some()
    }

    /// The base group has another view, and everything of the one before was delivered.
    pub(crate) fn follow(&mut self, view: &View) {
        self.view = Some(view.clone());
        // Once it has told of this view, or if somebody else is to, nothing more is to be told of an earlier one.
        self.is_to_tell = view.members.first() == Some(&self.me) && self.table.has_others_than(&view.members);
        if !view.members.contains(&self.me) {
            self.multicast = None;
        } else if let Some(multicast) = &mut self.multicast {
            let told = multicast.handle(self.now, multicast::Input::Members(view.clone()));
            debug_assert!(told.is_ok(), "only a peer's message is refused");
        } else if self.table.has_epidemic {
            self.gossip(false);
        }
        self.heard.retain(|(_, member), _| view.members.contains(member));
        self.take_from_multicast();
    }

    /// The update that tells the circles who has left the base group, if that is for this member to do. It is, until
    /// [`Self::has_told`].
    pub(crate) fn to_tell(&self) -> Option<Vec<u8>> {
        let view = self.view.as_ref().filter(|_| self.is_to_tell)?;
        let update = Update::Base { epoch: view.epoch, members: view.members.clone() };
        Some(encode(Protocol::Circles, &update))
    }

    pub(crate) fn has_told(&mut self) {
        self.is_to_tell = false;
    }

    /// From now on there is gossip: for all members at once, or for this one, which has come to others that have said much already.
    fn gossip(&mut self, is_founded: bool) {
        let Some(view) = self.view.clone().filter(|view| view.members.contains(&self.me)) else { return };
        let (config, dice) = (self.config.multicast.clone(), self.dice.fork());
        let mut multicast = match is_founded {
            true => Multicast::new(config, self.me, view, dice),
            false => Multicast::joining(config, self.me, view, dice),
        };
        // From now on it holds its rounds.
        let told = multicast.handle(self.now, multicast::Input::Timeout);
        debug_assert!(told.is_ok(), "only a peer's message is refused");
        self.multicast = Some(multicast);
    }

    /// Nothing is kept for circles that are no more.
    fn forget_gone(&mut self) {
        let (table, me) = (&self.table, self.me);
        let is_mine = |id: &CircleId| table.name_if_heard(*id, me, me).is_some();
        self.own.retain(|id, _| is_mine(id));
        self.since.retain(|id, _| is_mine(id));
        self.heard.retain(|(id, _), _| table.get(*id).is_some());
        let own = &self.own;
        self.submitted.retain(|_, id| own.contains_key(id));
    }

    /// The table, for a snapshot as of everything that was told, and behind it the program's state.
    pub(crate) fn with_table(table: &[u8], state: &[u8]) -> Vec<u8> {
        postcard::to_allocvec(&(table, state)).expect("our own snapshot can be written")
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.table.write()
    }

    /// Whether this can be what [`Self::with_table`] made.
    pub(crate) fn is_sound(snapshot: &[u8]) -> bool {
        split(snapshot).is_some()
    }

    /// The state of a snapshot; the table is this one from now on.
    pub(crate) fn restore(&mut self, position: u64, snapshot: &[u8]) -> Vec<u8> {
        let (table, state) = split(snapshot).unwrap_or_default();
        self.table = table;
        self.position = position;
        if self.table.has_epidemic && self.multicast.is_none() {
            self.gossip(false);
        }
        self.forget_gone();
        for id in self.table.iter().map(|(id, _)| id).filter(|id| self.is_in(*id)).collect::<Vec<_>>() {
            self.since.entry(id).or_insert(position);
        }
        let changes = self.table.iter().filter_map(|(id, _)| self.table.change(id, self.me, position, false));
        self.events.extend(changes);
        self.release();
        state.to_vec()
    }

    /// A message of [`Protocol::Circles`] or [`Protocol::Multicast`].
    pub(crate) fn message(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), PeerError> {
        let sender = self.view.as_ref().and_then(|view| view.member(from));
        let Some(sender) = sender.filter(|sender| *sender != self.me) else {
            // Either of us may not have been told yet of a view.
            self.counts.strangers += 1;
            return Ok(());
        };
        if crate::wire::protocol(from, bytes)? == Protocol::Multicast {
            // Who is not told yet that there is gossip will hear of it again.
            let Some(multicast) = &mut self.multicast else { return Ok(()) };
            let outcome = multicast.handle(self.now, multicast::Input::Message { from, bytes });
            self.take_from_multicast();
            return outcome;
        }
        match message::read(from, bytes)? {
            Message::Say { circle, number, is_to_one, body } => {
                self.heard(sender, circle, number, is_to_one, body)
            }
            Message::Recover { sender, first, last } => {
                if first > last {
                    return Err(PeerError::new(from, "a request that asks for nothing"));
                }
                self.transmits.extend(self.recovery.answer(from, sender, first, last));
                Ok(())
            }
            Message::Recovered { sender, number, body } => {
                if self.recovery.lacks(sender, number) {
                    // What cannot be read leaves it lacked.
                    self.came(sender, number, body).map_err(|error| PeerError { from, ..error })?;
                    self.recovery.has_come(sender, number);
                    self.counts.recovered += 1;
                    self.release();
                }
                Ok(())
            }
            Message::NoMore { sender, first, last } => {
                self.recovery.has_no_more(self.now, from, sender, first, last);
                self.go_on_recovering();
                Ok(())
            }
        }
    }

    /// In a lossy circle.
    fn heard(
        &mut self,
        from: Member,
        id: CircleId,
        number: u64,
        is_to_one: bool,
        body: &[u8],
    ) -> Result<(), PeerError> {
        // It may be founded already, and this member not be told; and who has left may not know it.
        let Some(circle) = self.table.get(id) else { return Ok(()) };
        if circle.terms.reliability != Reliability::Lossy {
            return Err(PeerError::new(from.node, "a message that is not on its circle's terms"));
        }
        let Some(name) = self.table.name_if_heard(id, from, self.me) else { return Ok(()) };
        if circle.terms.ordering == Ordering::Fifo {
            let last = self.heard.entry((id, from)).or_default();
            if number <= *last {
                self.counts.overtaken += 1;
                return Ok(());
            }
            *last = number;
        }
        self.events.push_back(told(name, from, is_to_one, None, body));
        Ok(())
    }

    fn take_from_multicast(&mut self) {
        while let Some(event) = self.multicast.as_mut().and_then(Multicast::poll_event) {
            match event {
                multicast::Event::Delivered { from, number, body } => {
                    let came = self.came(from, number, &body);
                    self.counts.refused += u64::from(came.is_err());
                }
                multicast::Event::Missed { from, first, last } => {
                    self.counts.given_up =
                        self.counts.given_up.saturating_add((last - first).saturating_add(1));
                    self.events.extend(self.recovery.begin(self.now, from, first, last));
                }
            }
        }
        self.go_on_recovering();
        self.release();
    }

    /// Asks the next for what is lacked, or gives it up.
    fn go_on_recovering(&mut self) {
        let Some(view) = &self.view else { return };
        let others: Vec<_> = view.nodes().filter(|&node| node != self.me.node).collect();
        let (transmits, missed) = self.recovery.go_on(self.now, &others, &mut self.dice);
        self.transmits.extend(transmits);
        let is_news = !missed.is_empty();
        self.events.extend(missed);
        if is_news {
            self.release();
        }
    }

    /// A message came by gossip, or for one that gossip had given up.
    fn came(&mut self, from: Member, number: u64, bytes: &[u8]) -> Result<(), PeerError> {
        let Ok((carried, [])) = postcard::take_from_bytes::<Carried<'_>>(bytes) else {
            return Err(PeerError::new(from.node, "a message that cannot be read"));
        };
        let Carried { circle, to, since, body } = carried;
        self.recovery.keep(from, number, bytes.to_vec());
        self.held.insert((from, number), Held { circle, to, since, body: body.to_vec() });
        Ok(())
    }

    /// Tells what came by gossip, as soon as it is known who is in its circle, and what was before it.
    fn release(&mut self) {
        let ready = self.held.iter().filter(|(name, held)| self.is_ready(**name, held));
        let ready: Vec<_> = ready.map(|(&name, _)| name).collect();
        for (from, number) in ready {
            let Some(Held { circle, to, since, body }) = self.held.remove(&(from, number)) else { continue };
            let is_epidemic = |circle: &table::Circle| circle.terms.reliability == Reliability::Epidemic;
            // What was said before this member was in the circle was not said to it.
            let is_meant = self.since.get(&circle).is_some_and(|joined| *joined <= since)
                && to.is_none_or(|to| to == self.me.node)
                && self.table.get(circle).is_some_and(is_epidemic);
            let name = self.table.name_if_heard(circle, from, self.me).filter(|_| is_meant);
            self.events.extend(name.map(|name| told(name, from, to.is_some(), None, &body)));
        }
        while self.held.len() > recovery::MOST_HELD
            && let Some(((from, number), _)) = self.held.pop_first()
        {
            self.events.push_back(Event::Missed { from, first: number, last: number });
        }
    }

    fn is_ready(&self, (from, number): (Member, u64), held: &Held) -> bool {
        if held.since > self.position {
            return false;
        }
        let is_fifo = |circle: &table::Circle| circle.terms.ordering == Ordering::Fifo;
        if !self.table.get(held.circle).is_some_and(is_fifo) {
            return true;
        }
        let next = self.multicast.as_ref().and_then(|multicast| multicast.expects(from));
        number < next.unwrap_or(u64::MAX)
            && self.recovery.first_lacked(from).is_none_or(|first| number < first)
    }

    /// The time has come that [`Self::next_timeout`] said.
    pub(crate) fn timeout(&mut self) {
        if let Some(multicast) = &mut self.multicast
            && multicast.next_timeout().is_some_and(|at| at <= self.now)
        {
            let told = multicast.handle(self.now, multicast::Input::Timeout);
            debug_assert!(told.is_ok(), "only a peer's message is refused");
            self.take_from_multicast();
        }
        self.go_on_recovering();
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let multicast = self.multicast.as_ref().and_then(Multicast::next_timeout);
        [multicast, self.recovery.next_timeout()].into_iter().flatten().min()
    }

    /// The next message to be sent. `To::Others` are those of the base group's view.
    pub(crate) fn poll_transmit(&mut self) -> Option<Cast> {
        self.transmits.pop_front().or_else(|| self.multicast.as_mut().and_then(Multicast::poll_transmit))
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// The table and the program's state. Nothing is no circles and no state.
fn split(snapshot: &[u8]) -> Option<(Table, &[u8])> {
    if snapshot.is_empty() {
        return Some(Default::default());
    }
    let ((table, state), rest): ((&[u8], &[u8]), _) = postcard::take_from_bytes(snapshot).ok()?;
    let table = Table::read(table)?;
    rest.is_empty().then_some((table, state))
}
