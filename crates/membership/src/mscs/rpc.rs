//! Serial calls over datagrams: each is answered once, however often its datagrams get lost or come twice.
//!
//! A call to a member has no time-out of its own: "The implementation enforces no time bound on the execution of an RPC"
//! (§7.8). It ends with its answer or with its peer's membership. A call to a node that is no member fails at a time.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use comb_types::{NodeId, Time};
use serde::{Deserialize, Serialize};

use super::node_set::NodeSet;
use super::timing::RPC_AGAIN;
use super::{gup, join};

/// Names a call of one node, for all of its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct CallId {
    pub(super) life: u64,
    pub(super) number: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Gup(gup::Request),
    Join(join::Request),
}

impl Request {
    /// Whether it goes from member to member, within one epoch.
    pub(super) fn is_between_members(&self) -> bool {
        match self {
            Self::Gup(_) => true,
            Self::Join(request) => request.is_between_members(),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Gup(gup::Request::Lock(update)) => format!("lock for {update}"),
            Self::Gup(gup::Request::Apply { sequence, update }) => {
                format!("update {sequence}: {update}")
            }
            Self::Gup(gup::Request::Unlock { sequence }) => format!("unlock after update {sequence}"),
            Self::Join(request) => format!("join: {request:?}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Gup(gup::Answer),
    Join(join::Answer),
}

impl Answer {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Gup(gup::Answer::Granted { sequence }) => format!("lock granted for update {sequence}"),
            Self::Gup(gup::Answer::Done) => String::from("done"),
            Self::Join(answer) => format!("join: {answer:?}"),
        }
    }
}

/// A call that is not answered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) to: NodeId,
    pub(super) epoch: u64,
    pub(super) request: Request,
    again_at: Time,
    fails_at: Option<Time>,
}

/// What a callee makes of a request.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Reception {
    New,
    /// It is being dealt with.
    Busy,
    /// It was dealt with.
    Again(Answer),
}

/// Answers that are kept for each caller. A caller has one call under way as a sender, one as a sponsor or joiner, and those of a
/// discovery; of its former ones only a late double can ask.
const KEPT_ANSWERS: usize = 16;

#[derive(Debug)]
pub(super) struct Calls {
    life: u64,
    number: u64,
    pending: BTreeMap<u64, Pending>,
    served: BTreeMap<NodeId, VecDeque<(CallId, Option<Answer>)>>,
}

impl Calls {
    pub(super) fn new(life: u64) -> Self {
        Self { life, number: 0, pending: BTreeMap::new(), served: BTreeMap::new() }
    }

    /// How many were made.
    pub(super) fn made(&self) -> u64 {
        self.number
    }

    pub(super) fn call(
        &mut self,
        now: Time,
        to: NodeId,
        epoch: u64,
        request: Request,
        fails_at: Option<Time>,
    ) -> CallId {
        self.number += 1;
        let again_at = now.saturating_add(RPC_AGAIN);
        self.pending.insert(self.number, Pending { to, epoch, request, again_at, fails_at });
        CallId { life: self.life, number: self.number }
    }

    /// The request that this is the answer to; none if it comes twice or too late.
    pub(super) fn answered(&mut self, from: NodeId, call: CallId, answer: &Answer) -> Option<Request> {
        let pending = self.pending.get(&call.number)?;
        let fits = matches!(
            (&pending.request, answer),
            (Request::Gup(_), Answer::Gup(_)) | (Request::Join(_), Answer::Join(_))
        );
        if call.life != self.life || pending.to != from || !fits {
            return None;
        }
        self.pending.remove(&call.number).map(|pending| pending.request)
    }

    /// Calls whose end does not matter any more.
    pub(super) fn cancel(&mut self, is_moot: impl Fn(&Pending) -> bool) {
        self.pending.retain(|_, pending| !is_moot(pending));
    }

    pub(super) fn receive(&mut self, from: NodeId, call: CallId) -> Reception {
        let served = self.served.entry(from).or_default();
        match served.iter().find(|(known, _)| *known == call) {
            Some((_, Some(answer))) => Reception::Again(answer.clone()),
            Some((_, None)) => Reception::Busy,
            None => {
                if served.len() == KEPT_ANSWERS {
                    served.pop_front();
                }
                served.push_back((call, None));
                Reception::New
            }
        }
    }

    /// A request that came and was not dealt with, so that it can be when it comes again.
    pub(super) fn forget(&mut self, from: NodeId, call: CallId) {
        if let Some(served) = self.served.get_mut(&from) {
            served.retain(|(known, _)| *known != call);
        }
    }

    pub(super) fn keep_answer(&mut self, to: NodeId, call: CallId, answer: &Answer) {
        let served = self.served.entry(to).or_default();
        if let Some((_, kept)) = served.iter_mut().find(|(known, _)| *known == call) {
            *kept = Some(answer.clone());
        }
    }

    /// Calls to send again, and calls that have failed.
    pub(super) fn timeout(&mut self, now: Time) -> (Vec<(CallId, Pending)>, Vec<Pending>) {
        let has_failed = |pending: &Pending| pending.fails_at.is_some_and(|time| now >= time);
        let failed = self.pending.extract_if(.., |_, pending| has_failed(pending));
        let failed = failed.map(|(_, pending)| pending).collect();
        let mut again = Vec::new();
        for (number, pending) in self.pending.iter_mut().filter(|(_, pending)| now >= pending.again_at) {
            pending.again_at = now.saturating_add(RPC_AGAIN);
            again.push((CallId { life: self.life, number: *number }, pending.clone()));
        }
        (again, failed)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let times = self.pending.values().map(|it| it.fails_at.map_or(it.again_at, |t| t.min(it.again_at)));
        times.min()
    }

    /// Answers to nodes that are gone need not be kept.
    pub(super) fn forget_callers(&mut self, removed: NodeSet) {
        self.served.retain(|caller, _| !removed.contains(*caller));
    }
}
