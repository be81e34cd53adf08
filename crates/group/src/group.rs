//! A member of a group, in the thread of the program that has it: views and ordered updates over a mesh.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comb_membership::circles::{CircleError, Circles, Terms};
use comb_membership::detect::{Kind, Notice};
use comb_membership::order::{Level, SubmitError};
use comb_membership::stack::{Config, Event, Input, Stack, WatchingError};
use comb_membership::state::WriteError;
use comb_membership::wire::{self, Protocol};
use comb_membership::{Incarnation, Member, PeerError, To, View, ViewEpoch};
use comb_net::{Agent, Cause, Endpoint, EndpointOptions};
use comb_types::{NodeId, Time};

use crate::environment::{Environment, PlugIns};
use crate::log::{Log, LogError, Work, Writer};
use crate::mesh::{Arrivals, End, Mesh, MeshError, Names};
use crate::quorum::{Asker, Quorum, QuorumError};

/// How long a group's member sleeps at most: nothing is due for longer, and nobody wakes it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Broken rules that are kept for who looks: a peer that lies does not fill memory. All are counted, see [`Stack::refused`].
const MOST_BROKEN: usize = 64;

/// Among plug-ins, that are counted from 1 on.
const THE_PROGRAM: u32 = u32::MAX;

/// Nobody wakes a member when its disk is done. (A disk needs ten times as long, memory a tenth of it.)
const WHILE_WRITING: Duration = Duration::from_micros(100);

/// Nor when the quorum resource has answered.
const WHILE_ASKING: Duration = Duration::from_millis(5);

/// In a view of so many, each has a channel to each, on whatever host: who has one is told for certain that the other has ended. In a larger one,
/// only within the host. A channel to another host is a socket to be looked at: with 24 of them 32 members agree on a quarter to a third less.
const FEW: usize = 32;

/// Of members that were configured: whoever comes later has a greater one.
const FIRST_LIFE: Incarnation = Incarnation(1);

/// Greater than that of any life before, unless the clock was set back by more than the time between.
fn this_life() -> Incarnation {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Incarnation(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).max(FIRST_LIFE.0 + 1))
}

/// What a member is made with.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// How nodes are called.
    pub names: Names,
    /// How the protocols work. All members have the same, but for the times.
    pub config: Config,
    /// Of the endpoint.
    pub endpoint: EndpointOptions,
}

impl GroupOptions {
    /// The dice of different members must differ.
    fn check(&mut self, own: NodeId) -> Result<(), GroupError> {
        let watching = &mut self.config.watching;
        watching.check()?;
        if own.0 >= watching.most_nodes {
            return Err(GroupError::TooGreat { own, most: watching.most_nodes });
        }
        watching.seed = watching.seed.wrapping_add(this_life().0 ^ (u64::from(own.0) << 32));
        Ok(())
    }
}

/// Why there is no member. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The members that were given do not know the one that was to be made.
    #[error("{0} is not among the members that the group is configured with")]
    NotAMember(NodeId),
    /// Numbers of nodes have a limit.
    #[error("{own} is no number of a node: they end before {most} (Watching::most_nodes)")]
    TooGreat {
        /// What was asked for.
        own: NodeId,
        /// The limit.
        most: u32,
    },
    /// Nobody can watch others as the options say.
    #[error(transparent)]
    Watching(#[from] WatchingError),
    /// The network refused.
    #[error(transparent)]
    Mesh(#[from] MeshError),
}

/// How a member with an empty log comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning<'a> {
    /// As one of the first members, which are these. Only when the group is new: a first member whose log was lost would not
    /// know what it has promised.
    Configured(&'a [NodeId]),
    /// To a running group, by way of these.
    Joining(&'a [NodeId]),
}

/// Why a member could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// It cannot be a member.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Its log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What the log holds is no member's, or not this one's.
    #[error("the log of {node} cannot be gone on from: {source}")]
    Records {
        /// Whose it should be.
        node: NodeId,
        /// Why not.
        source: comb_membership::order::LogError,
    },
}

/// One member of a group. Nothing happens but in its calls: call [`Group::poll`] often, and [`Group::wait`] when there
/// is nothing else to do.
#[derive(Debug)]
pub struct Group {
    own: NodeId,
    mesh: Mesh,
    stack: Stack,
    arrivals: Arrivals,
    started: Instant,
    /// What peers have sent that they may not, since the last look.
    broken: VecDeque<PeerError>,
    events: VecDeque<Event>,
    writer: Option<Writer>,
    asker: Option<Asker>,
    plug_ins: PlugIns,
    /// Why it has halted.
    failure: Option<LogError>,
    /// The epoch that it has left word of last.
    left: Option<ViewEpoch>,
    /// Messages that it has sent, but for its detectors'.
    sent: u64,
}

impl Group {
    /// A member of a group whose first members are all configured. It works when more than half of
    /// them are there; who is not when the time for starting is over (`Watching::starting`) is left out, and has to join.
    pub fn configured(
        agent: &Agent,
        own: NodeId,
        members: &[NodeId],
        mut options: GroupOptions,
    ) -> Result<Self, GroupError> {
        options.check(own)?;
        options.config.order.has_log = false;
        let stack = Self::first_stack(own, members, &options)?;
        Self::new(agent, own, stack, options, None)
    }

    fn first_stack(own: NodeId, members: &[NodeId], options: &GroupOptions) -> Result<Stack, GroupError> {
        if !members.contains(&own) {
            return Err(GroupError::NotAMember(own));
        }
        let mut members: Vec<Member> =
            members.iter().map(|&node| Member { node, incarnation: FIRST_LIFE }).collect();
        members.sort_unstable();
        members.dedup();
        let me = Member { node: own, incarnation: FIRST_LIFE };
        let first = View { epoch: ViewEpoch(1), tie_breaker: members[0].node, members };
        Ok(Stack::configured(options.config.clone(), me, first, Time::ZERO))
    }

    /// A node that comes in to a running group, by way of the `contacts` that are in it. Its first event is [`Event::Restore`],
    /// with the state that another member's program gave.
    pub fn joining(
        agent: &Agent,
        own: NodeId,
        contacts: &[NodeId],
        mut options: GroupOptions,
    ) -> Result<Self, GroupError> {
        options.check(own)?;
        options.config.order.has_log = false;
        options.config.join.contacts = contacts.to_vec();
        let me = Member { node: own, incarnation: this_life() };
        let stack = Stack::joining(options.config.clone(), me, Time::ZERO);
        Self::new(agent, own, stack, options, None)
    }

    /// A member that goes on from its log: alone, by coming in to the group that went on without it; or, if all were down, with
    /// those that come back, when they are enough. Its first event is [`Event::Restore`], with the state that its program gave
    /// last ([`Event::WantsState`] asks for it now and then) or the empty state, and then come the updates that followed.
    /// With an empty log it begins as `beginning` says.
    ///
    /// The log is written in a thread of its own. If it fails, the member halts: see [`Group::failure`].
    pub fn resuming(
        agent: &Agent,
        own: NodeId,
        beginning: Beginning<'_>,
        mut log: impl Log + 'static,
        mut options: GroupOptions,
    ) -> Result<Self, ResumeError> {
        options.check(own)?;
        options.config.order.has_log = true;
        let records = log.read()?;
        let stack = match beginning {
            Beginning::Configured(members) if records.is_empty() => {
                Self::first_stack(own, members, &options)?
            }
            Beginning::Configured(others) | Beginning::Joining(others) => {
                options.config.join.contacts = others.to_vec();
                let me = Member { node: own, incarnation: this_life() };
                let records = records.iter().map(|record| &record[..]);
                Stack::resuming(options.config.clone(), me, Time::ZERO, records)
                    .map_err(|source| ResumeError::Records { node: own, source })?
            }
        };
        let writer = Writer::start(Box::new(log));
        Ok(Self::new(agent, own, stack, options, Some(writer))?)
    }

    /// With a quorum resource, which is asked in a thread of its own. Without one, [`Event::Acquire`] asks the program.
    #[must_use]
    pub fn with_quorum(mut self, quorum: impl Quorum + 'static) -> Self {
        self.asker = Some(Asker::start(Box::new(quorum)));
        self
    }

    /// With one more plug-in of the environment, which is polled when the member is. What it says of a node counts as evidence, as
    /// sure as it is: see [`crate::environment`].
    #[must_use]
    pub fn with_environment(mut self, environment: impl Environment + Send + 'static) -> Self {
        self.plug_ins.add(Box::new(environment));
        self
    }

    /// Why this member has halted, if its log has failed: what it said it would keep it may not keep. It has left its peers, and does
    /// nothing any more. Start it again when the disk is well.
    pub fn failure(&self) -> Option<&LogError> {
        self.failure.as_ref()
    }

    /// How many messages this member has sent so far, but for those of its detectors, which are sent whatever happens.
    pub fn messages_sent(&self) -> u64 {
        self.sent
    }

    /// Why the quorum resource could not be asked, while that is so. It is asked again.
    pub fn quorum_error(&self) -> Option<&QuorumError> {
        self.asker.as_ref().and_then(Asker::error)
    }

    fn new(
        agent: &Agent,
        own: NodeId,
        stack: Stack,
        options: GroupOptions,
        writer: Option<Writer>,
    ) -> Result<Self, GroupError> {
        let mut group = Self {
            own,
            mesh: Mesh::join(agent, own, options.names, options.endpoint)?,
            stack,
            arrivals: Arrivals::default(),
            started: Instant::now(),
            broken: VecDeque::new(),
            events: VecDeque::new(),
            writer,
            asker: None,
            plug_ins: PlugIns::default(),
            failure: None,
            left: None,
            sent: 0,
        };
        group.mesh.introduce(group.stack.me().incarnation);
        // Of a view that was configured no event tells.
        if let Some(view) = group.stack.view().cloned() {
            group.reach(&view);
        }
        group.send();
        Ok(group)
    }

    /// The answer to [`Event::WantsState`]: the program's state, as of all events before that one. Who comes in, or lacks too
    /// much, starts from it.
    pub fn give_state(&mut self, state: &[u8]) {
        self.tell(Input::State(state));
        self.send();
    }

    /// The answer to [`Event::Acquire`]: what the quorum resource says, in the name of the seat.
    pub fn acquired(&mut self, epoch: ViewEpoch, granted: bool) {
        self.tell(Input::Acquired { epoch, granted });
        self.send();
    }

    /// The kernel says that this life of a member has ended, by other channels than the group's.
    pub fn exited(&mut self, life: Member) {
        self.tell(Input::Exited(life));
        self.send();
    }

    /// From now on nodes are on these other hosts, by the names that this host's agent has for them; all others are on this one. The
    /// endpoint was made with [`EndpointOptions::events`], or there were such nodes from the beginning.
    pub fn learn_where(&mut self, elsewhere: BTreeMap<NodeId, String>) {
        self.mesh.learn_where(elsewhere);
        if let Some(view) = self.stack.view().cloned() {
            self.reach(&view);
        }
    }

    /// The program itself has something to say of a node, as a plug-in of the environment would.
    pub fn told(&mut self, notice: Notice) {
        self.tell(Input::Environment { plug_in: THE_PROGRAM, notice });
        self.send();
    }

    fn tell(&mut self, input: Input<'_>) {
        let told = self.stack.handle(self.now(), input);
        debug_assert!(told.is_ok(), "only a peer's message is refused");
    }

    /// Says something of this node to all others, or takes it back. They hear of it in a second or two ([`Event::Entry`]), whatever
    /// becomes of views; each sees what it is then, and may miss what was between.
    pub fn write(&mut self, key: &str, value: Option<Vec<u8>>) -> Result<(), WriteError> {
        let written = self.stack.write(self.now(), key, value);
        self.send();
        written
    }

    /// What a node says of itself.
    pub fn read(&self, owner: NodeId, key: &str) -> Option<&[u8]> {
        self.stack.state().read(owner, key)
    }

    /// Sends an update. [`Event::Reached`] tells when it is as far as `level`.
    pub fn submit(&mut self, level: Level, body: &[u8]) -> Result<u64, SubmitError> {
        if self.failure.is_some() {
            return Err(SubmitError::Out);
        }
        self.stack.submit(self.now(), level, body)
    }

    /// Wants to belong to a circle, a lightweight group on this one, which is founded on these terms if it is not there. It does
    /// when [`crate::circles::Event::Changed`] says so. See [`crate::circles`].
    pub fn join_circle(&mut self, name: &str, terms: Terms) -> Result<(), CircleError> {
        self.is_working()?;
        self.stack.join_circle(self.now(), name, terms)
    }

    /// Wants to leave a circle. It has when [`crate::circles::Event::Changed`] says so.
    pub fn leave_circle(&mut self, name: &str) -> Result<(), CircleError> {
        self.is_working()?;
        self.stack.leave_circle(self.now(), name)
    }

    /// Says something in a circle, on its terms: to all in it (`printers`, say), to the one at a node (`printers/3`), or to the whole
    /// group (`everyone`). The number is that of the update where the circle is atomic, and [`Event::Reached`] tells of it.
    pub fn say(&mut self, address: &str, body: &[u8]) -> Result<u64, CircleError> {
        self.is_working()?;
        self.stack.say(self.now(), address, body)
    }

    fn is_working(&self) -> Result<(), CircleError> {
        if self.failure.is_some() { Err(CircleError::Out) } else { Ok(()) }
    }

    /// The circles, to look at.
    pub fn circles(&self) -> &Circles {
        self.stack.circles()
    }

    /// Takes in what has come, does what is due, and sends. Call [`Group::next_event`] until there is none.
    pub fn poll(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.mesh.poll(&mut self.arrivals);
        let now = self.now();
        for (from, bytes) in self.arrivals.messages() {
            if let Err(error) = self.stack.handle(now, Input::Message { from, bytes }) {
                if self.broken.len() == MOST_BROKEN {
                    self.broken.pop_front();
                }
                self.broken.push_back(error);
            }
        }
        for &End { node, ref cause, last_word, life } in self.arrivals.ended() {
            let input = match (last_word.map(from_word), cause) {
                (Some((incarnation, agreed)), _) => {
                    Input::Ended { life: Member { node, incarnation }, agreed }
                }
                (None, _) if !is_of_member(&self.stack, node, life) => continue,
                // It may live all the same: the detectors will say.
                (None, Cause::Silent(_) | Cause::Breach(_)) => Input::Noticed(node, Kind::LinkDown),
                (None, Cause::Exited(_) | Cause::Left(_)) => Input::Noticed(node, Kind::ProcessExit),
            };
            let _ = self.stack.handle(now, input);
        }
        for (plug_in, notice) in self.plug_ins.poll(now) {
            let _ = self.stack.handle(now, Input::Environment { plug_in, notice });
        }
        if self.stack.next_timeout().is_some_and(|due| due <= now) {
            let _ = self.stack.handle(now, Input::Timeout);
        }
        self.send();
        self.hear_threads();
    }

    /// The next thing that has happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next rule that a peer has broken: what it sent was not used. The last few are kept. How often each peer has broken one,
    /// [`Stack::refused`] counts: see [`Group::stack`].
    pub fn next_broken_rule(&mut self) -> Option<PeerError> {
        self.broken.pop_front()
    }

    /// Waits until something comes or is due, at most `limit`.
    pub fn wait(&mut self, limit: Duration) {
        self.mesh.wait(self.nothing_is_due_for().min(limit));
    }

    /// How long an event loop may wait if nothing comes: then call [`Group::poll`].
    pub fn nothing_is_due_for(&self) -> Duration {
        let due = [self.stack.next_timeout(), self.plug_ins.next_timeout()].into_iter().flatten().min();
        let due = due.map_or(LONGEST_SLEEP, |due| due.since(self.now()));
        let outside = match () {
            () if self.writer.as_ref().is_some_and(Writer::is_busy) => WHILE_WRITING,
            () if self.asker.as_ref().is_some_and(Asker::is_busy) => WHILE_ASKING,
            () => LONGEST_SLEEP,
        };
        due.min(outside).min(self.mesh.nothing_is_due_for())
    }

    /// What an event loop waits for: [`Endpoint::arm`] before, [`Endpoint::disarm`] and [`Group::poll`] after. What comes to it
    /// is the group's: do not receive from it.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        self.mesh.endpoint()
    }

    /// The view that this member works in; none before the first.
    pub fn view(&self) -> Option<&View> {
        self.stack.view()
    }

    /// The members of the view to which there is no channel (yet): the kernel would not tell of their ends.
    pub fn unreached(&self) -> impl Iterator<Item = NodeId> {
        let others = self.view().into_iter().flat_map(View::nodes).filter(|&node| node != self.own);
        others.filter(|&node| !self.mesh.reaches(node))
    }

    /// The machine, to look at.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    fn now(&self) -> Time {
        Time::ZERO.saturating_add(self.started.elapsed())
    }

    /// What the disk and the quorum resource have to say.
    fn hear_threads(&mut self) {
        match self.writer.as_mut().map_or(Ok(None), Writer::written) {
            Ok(None) => {}
            Ok(Some(number)) => {
                self.tell(Input::Persisted { number });
                self.send();
            }
            Err(failure) => return self.halt(failure),
        }
        while let Some((epoch, granted)) = self.asker.as_mut().and_then(Asker::answered) {
            self.acquired(epoch, granted);
        }
    }

    /// Nobody is to count on this member any more.
    fn halt(&mut self, failure: LogError) {
        self.failure = Some(failure);
        self.events.clear();
        let view = self.stack.regroup().map(|regroup| regroup.view().clone());
        view.iter().flat_map(View::nodes).for_each(|node| self.mesh.drop_peer(node));
    }

    /// What the log and the quorum resource are to do is for their threads, and the rest for the program.
    /// Whether there is a new view: then there may be more to be sent.
    fn sort_events(&mut self) -> bool {
        let (mut work, mut has_view) = (Vec::new(), false);
        while let Some(event) = self.stack.poll_event() {
            match (event, &mut self.asker) {
                (Event::Persist { number, bytes: record }, _) => work.push(Work::Append { number, record }),
                (Event::Replace { number, records }, _) => work.push(Work::Replace { number, records }),
                (Event::Acquire { epoch, seat }, Some(asker)) => asker.ask(epoch, seat),
                (event, _) => {
                    if let Event::View(view) = &event {
                        has_view = true;
                        self.reach(view);
                    }
                    self.events.push_back(event);
                }
            }
        }
        if let Some(writer) = &mut self.writer {
            writer.write(work);
        }
        has_view
    }

    /// Whoever has a channel to a member hears of its end from the kernel. One of the two opens it.
    fn reach(&mut self, view: &View) {
        let others = view.nodes().filter(|&node| node < self.own);
        self.mesh.reach(others, view.members.len() <= FEW);
    }

    /// Before anybody can know that it has agreed to a view, a member leaves word that it has.
    fn leave_word(&mut self) {
        let agreed = self.stack.agreed();
        if self.left != Some(agreed) {
            self.left = Some(agreed);
            self.mesh.leave_word(to_word(self.stack.me().incarnation, agreed));
        }
    }

    fn send(&mut self) {
        self.transmit();
        while self.sort_events() {
            self.transmit();
        }
    }

    fn transmit(&mut self) {
        self.leave_word();
        let now = self.now();
        while let Some(cast) = self.stack.poll_transmit(now) {
            let is_detectors =
                matches!(wire::protocol(self.own, &cast.bytes), Ok(Protocol::State | Protocol::Detect));
            // A ping that waits behind a thousand updates asks how long the queue is, and not whether its reader lives.
            let send = if is_detectors { Mesh::send_urgently } else { Mesh::send };
            let mut send = |node| {
                send(&mut self.mesh, node, &cast.bytes);
                self.sent += u64::from(!is_detectors);
            };
            match cast.to {
                To::One(node) => send(node),
                To::Others => {
                    let Some(order) = self.stack.order() else { continue };
                    let nodes: Vec<_> = order.view().nodes().collect();
                    // Each message that wakes somebody takes some microseconds, and who is woken wants a core.
                    let first =
                        order.last_sender().and_then(|node| nodes.binary_search(&node).ok()).unwrap_or(0);
                    let in_turn = nodes[first..].iter().chain(&nodes[..first]);
                    in_turn.copied().filter(|&node| node != self.own).for_each(send);
                }
            }
        }
    }
}

/// Whether what has happened to a channel concerns the member. The life that it led to may be over, and the next one a member already: whoever
/// blamed that for it would be alone with it, and be left out itself.
fn is_of_member(stack: &Stack, node: NodeId, life: Option<Incarnation>) -> bool {
    let member = stack.regroup().and_then(|regroup| regroup.view().member(node));
    // A life may go on in the seat of one before.
    member.zip(life).is_some_and(|(member, life)| member.incarnation <= life)
}

/// What a member leaves for those who outlive it: which life it was, and the epoch of the last view that it had agreed to.
fn to_word(life: Incarnation, agreed: ViewEpoch) -> u128 {
    u128::from(life.0) << 64 | u128::from(agreed.0)
}

fn from_word(word: u128) -> (Incarnation, ViewEpoch) {
    #[expect(clippy::cast_possible_truncation, reason = "one half after the other")]
    let [agreed, life] = [word as u64, (word >> 64) as u64];
    (Incarnation(life), ViewEpoch(agreed))
}

#[cfg(test)]
mod tests;
