//! What members do for a joiner, and the one of them that sponsors it. (§7.7.1)
//!
//! Between the first broadcast of phase four and the second, members count the joiner as one that is missing: see
//! [`super::regroup`]. A regroup in between ends the join.

use comb_types::{NodeId, Time};

use super::gup::{Change, JoinLock, UpdateId};
use super::join::{Answer, CONFIGURATION_PARTS, Request};
use super::node_set::NodeSet;
use super::rpc::CallId;
use super::timing::ENABLE;
use super::{Event, Mscs, rpc};
use crate::wire::PeerError;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Phase 2; the joiner's call is answered when the update is complete.
    Locking { id: UpdateId, call: CallId },
    /// Phase 3, which is the joiner's.
    Enabling,
    /// Phase 4, step 1.
    Identifying { left: NodeSet },
    /// Step 2.
    Configuring,
    /// Step 3.
    Awaiting { has_heartbeat: bool },
    /// Step 4.
    Announcing { left: NodeSet },
    /// Step 5.
    Inserting,
}

#[derive(Debug)]
pub(super) struct Sponsorship {
    joiner: NodeId,
    step: Step,
    /// When the sponsor gives it up.
    deadline: Option<Time>,
}

impl Sponsorship {
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.deadline
    }
}

/// A joiner's call that is answered when a call back to it is.
#[derive(Debug)]
pub(super) struct CallBack {
    joiner: NodeId,
    interface: u8,
    call: CallId,
}

impl Mscs {
    /// A call that a member receives. No answer now may mean one later, or that there is nothing to say.
    pub(super) fn called_as_member(
        &mut self,
        now: Time,
        from: NodeId,
        call: CallId,
        request: &Request,
    ) -> Result<Option<Answer>, PeerError> {
        let lock = self.gup.replica().join_lock;
        let joins = lock.is_some_and(|lock| lock.joiner == from);
        let is_operational = self.gup.replica().operational.contains(self.me);
        match request {
            // A node that is not operational itself is like one that is down: it accepts no binding.
            Request::Connect if !is_operational => Ok(None),
            Request::Connect => {
                let address_holder = self.members().first().unwrap_or(self.me);
                Ok(Some(Answer::Running { address_holder }))
            }
            Request::Begin => Ok(self.begin(from, call)),
            Request::Configuration(part) => Ok(Some(self.configuration(from, *part))),
            Request::Interface(_) | Request::SecurityContext | Request::Petition if !joins => {
                Ok(Some(Answer::Refused))
            }
            Request::Interface(interface) => {
                self.call_backs.push(CallBack { joiner: from, interface: *interface, call });
                let fails_at = Some(now.saturating_add(ENABLE));
                self.call(now, from, rpc::Request::Join(Request::InterfaceBack(*interface)), fails_at);
                Ok(None)
            }
            Request::SecurityContext => Ok(Some(Answer::Done)),
            Request::Petition => Ok(Some(self.petition(now, from))),
            Request::Identify { joiner } | Request::Alive { joiner } => {
                if lock != Some(JoinLock { joiner: *joiner, sponsor: from }) {
                    return Err(PeerError::new(from, "brings in a node without the lock"));
                }
                match request {
                    Request::Identify { .. } => self.regroup.announce(*joiner),
                    _ => self.add(now, *joiner),
                }
                Ok(Some(Answer::Done))
            }
            Request::DatabaseVersion => Ok(Some(Answer::Version(self.gup.replica().applied))),
            Request::DatabaseChanges => Ok(Some(Answer::Database(self.gup.replica().clone()))),
            Request::InterfaceBack(_) => Ok(None),
            Request::Configure { .. } | Request::Inserted { .. } => {
                Err(PeerError::new(from, "takes a member for a joiner"))
            }
        }
    }

    /// Phase 2. One join at a time, and nobody joins who is a member: its former life has to be regrouped away first.
    fn begin(&mut self, joiner: NodeId, call: CallId) -> Option<Answer> {
        let is_busy = self.sponsorship.is_some() || self.gup.replica().join_lock.is_some();
        if is_busy || self.members().contains(joiner) {
            return Some(Answer::Refused);
        }
        let id = self.gup.submit(Change::LockJoin { joiner, sponsor: self.me });
        self.sponsorship = Some(Sponsorship { joiner, step: Step::Locking { id, call }, deadline: None });
        None
    }

    /// An update of this node's is complete.
    pub(super) fn sponsor_completed(&mut self, now: Time, completed: UpdateId) {
        let Some(Sponsorship { joiner, step: Step::Locking { id, call }, .. }) = self.sponsorship else {
            return;
        };
        if id != completed {
            return;
        }
        let is_ours = self.gup.replica().join_lock == Some(JoinLock { joiner, sponsor: self.me });
        let answer = if is_ours {
            let deadline = Some(now.saturating_add(ENABLE));
            self.sponsorship = Some(Sponsorship { joiner, step: Step::Enabling, deadline });
            Answer::Done
        } else {
            self.sponsorship = None;
            Answer::Refused
        };
        self.answer(joiner, call, rpc::Answer::Join(answer));
    }

    /// Phase 3.
    fn configuration(&self, joiner: NodeId, part: u8) -> Answer {
        let sponsorship = self.sponsorship.as_ref();
        let is_ours = sponsorship.is_some_and(|it| it.joiner == joiner && it.step == Step::Enabling);
        if !is_ours || part >= CONFIGURATION_PARTS {
            return Answer::Refused;
        }
        Answer::Configuration { members: self.members(), interfaces: self.interfaces }
    }

    /// Phase 4.
    fn petition(&mut self, now: Time, joiner: NodeId) -> Answer {
        match &mut self.sponsorship {
            Some(it) if it.joiner == joiner && it.step == Step::Enabling => {
                it.deadline = None;
                self.regroup.announce(joiner);
                let left = self.members().without(NodeSet::of(self.me));
                self.identify(now, joiner, left);
                Answer::Done
            }
            _ => Answer::Refused,
        }
    }

    fn sponsor_call(&mut self, now: Time, to: NodeId, step: Step, request: Request) {
        let is_to_joiner = matches!(step, Step::Configuring | Step::Inserting);
        // Members are waited for as long as they are members. (§7.7.1: "not aborted because of a time-out")
        let fails_at = is_to_joiner.then(|| now.saturating_add(ENABLE));
        if let Some(sponsorship) = &mut self.sponsorship {
            sponsorship.step = step;
        }
        self.call(now, to, rpc::Request::Join(request), fails_at);
    }

    fn identify(&mut self, now: Time, joiner: NodeId, left: NodeSet) {
        match left.first() {
            Some(node) => {
                self.sponsor_call(now, node, Step::Identifying { left }, Request::Identify { joiner });
            }
            None => {
                let request = Request::Configure { epoch: self.epoch, members: self.members() };
                self.sponsor_call(now, joiner, Step::Configuring, request);
            }
        }
    }

    fn announce(&mut self, now: Time, joiner: NodeId, left: NodeSet) {
        match left.first() {
            Some(node) => {
                self.sponsor_call(now, node, Step::Announcing { left }, Request::Alive { joiner });
            }
            None => {
                let replica = self.gup.replica();
                let request = Request::Inserted {
                    epoch: self.epoch,
                    members: self.members(),
                    tie_breaker: self.regroup.tie_breaker(),
                    operational: replica.operational,
                    locker: replica.locker,
                };
                self.sponsor_call(now, joiner, Step::Inserting, request);
            }
        }
    }

    /// An answer to a call that this node made as a member.
    pub(super) fn member_answered(&mut self, now: Time, from: NodeId, request: &Request, answer: &Answer) {
        if let Request::InterfaceBack(interface) = request {
            let is_it = |it: &CallBack| it.joiner == from && it.interface == *interface;
            if let Some(place) = self.call_backs.iter().position(is_it) {
                let call = self.call_backs.remove(place).call;
                self.answer(from, call, rpc::Answer::Join(Answer::Done));
            }
            return;
        }
        if let (Request::Configure { .. } | Request::Inserted { .. }, Answer::Refused) = (request, answer) {
            return self.abort_join(now);
        }
        let (Some(sponsorship), Answer::Done) = (&mut self.sponsorship, answer) else { return };
        let joiner = sponsorship.joiner;
        match (request, sponsorship.step) {
            (Request::Identify { .. }, Step::Identifying { left }) => {
                self.identify(now, joiner, left.without(NodeSet::of(from)));
            }
            (Request::Configure { .. }, Step::Configuring) => {
                sponsorship.step = Step::Awaiting { has_heartbeat: false };
                sponsorship.deadline = Some(now.saturating_add(ENABLE));
            }
            (Request::Alive { .. }, Step::Announcing { left }) => {
                self.announce(now, joiner, left.without(NodeSet::of(from)));
            }
            // The rest is the joiner's: it gives the lock back when it is operational.
            (Request::Inserted { .. }, Step::Inserting) => self.sponsorship = None,
            _ => {}
        }
    }

    pub(super) fn member_call_failed(&mut self, now: Time, to: NodeId, request: &Request) {
        match request {
            Request::InterfaceBack(_) => self.call_backs.retain(|it| it.joiner != to),
            Request::Configure { .. } | Request::Inserted { .. } => self.abort_join(now),
            _ => {}
        }
    }

    /// ClusNet has a heartbeat of a node that is no member.
    pub(super) fn heard_stranger(&mut self, from: NodeId) {
        if let Some(Sponsorship { joiner, step: Step::Awaiting { has_heartbeat }, .. }) =
            &mut self.sponsorship
        {
            *has_heartbeat |= *joiner == from;
        }
    }

    /// ClusNet's check: only now does the sponsor learn of the heartbeat. (§7.7.1, phase 4, step 3)
    pub(super) fn check_joiner(&mut self, now: Time) {
        if let Some(Sponsorship { joiner, step: Step::Awaiting { has_heartbeat: true }, deadline }) =
            &mut self.sponsorship
        {
            *deadline = None;
            let joiner = *joiner;
            let left = self.members().without(NodeSet::of(self.me));
            self.add(now, joiner);
            self.announce(now, joiner, left);
        }
    }

    fn add(&mut self, now: Time, joiner: NodeId) {
        self.regroup.add(joiner);
        self.gup.add_member(joiner);
        self.watch_others(now);
        self.events.push_back(Event::Added(joiner));
    }

    /// The sponsor's timer.
    pub(super) fn sponsor_timeout(&mut self, now: Time) {
        let deadline = self.sponsorship.as_ref().and_then(|sponsorship| sponsorship.deadline);
        if deadline.is_some_and(|deadline| now >= deadline) {
            self.abort_join(now);
        }
    }

    fn abort_join(&mut self, now: Time) {
        let Some(Sponsorship { joiner, .. }) = self.sponsorship.take() else { return };
        self.calls.cancel(|call| call.to == joiner);
        self.gup.submit(Change::AbortJoin { joiner });
        // Who is a member already leaves by a regroup.
        self.regroup.suspect(now, joiner);
        self.events.push_back(Event::JoinAborted(joiner));
    }

    /// A membership was installed, which ends the calls between members.
    pub(super) fn sponsor_follows_membership(&mut self, now: Time) {
        let members = self.members();
        self.call_backs.retain(|it| !members.contains(it.joiner));
        match &self.sponsorship {
            None | Some(Sponsorship { step: Step::Locking { .. } | Step::Enabling, .. }) => {}
            Some(sponsorship) if members.contains(sponsorship.joiner) => self.sponsorship = None,
            Some(_) => self.abort_join(now),
        }
    }
}
