//! The log of a group that shall come back when all of it was down.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use comb_types::NodeId;

use super::history::{Held, History};
use super::message::{Copied, append, read_copied};
use super::{Config, Event, Order, Phase, Snapshot};
use crate::view::{Member, View, ViewEpoch};

/// Why a log cannot be gone on from. Records in it that were torn must have been cut off before, by their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogError {
    /// It is no record.
    #[error("a record cannot be read")]
    Unreadable,
    /// Some between are missing.
    #[error("records are missing before position {first}")]
    Gap {
        /// Where the record begins.
        first: u64,
    },
    /// It was written by another node.
    #[error("the log was written by {node}")]
    OfAnother {
        /// By which.
        node: NodeId,
    },
}

/// What is on its way to the disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Persisting {
    persisted: u64,
    /// The last position of each record, and whether it still counts: what it holds may have been dropped since.
    under_way: VecDeque<(u64, bool)>,
    /// Where the snapshot ends that this life began with, if records followed it: only a holder may trust those.
    trusted: Option<u64>,
    /// What the records hold of a member that is no holder. What is fetched and is the same is on the disk already; were it
    /// written again from the start, another crash before the end would lose what this member had acknowledged.
    former: Option<History>,
}

impl Persisting {
    pub(super) fn new(position: u64) -> Self {
        Self { persisted: position, under_way: VecDeque::new(), trusted: None, former: None }
    }

    /// How much of what is held may be acknowledged.
    pub(super) fn limit(&self, config: &Config, held: u64) -> u64 {
        if config.has_log { held.min(self.persisted) } else { held }
    }

    /// Nothing is held beyond `position`.
    pub(super) fn truncate(&mut self, position: u64) {
        self.persisted = self.persisted.min(position);
        for (last, counts) in &mut self.under_way {
            *counts &= *last <= position;
        }
    }

    /// Nothing counts but a snapshot, that everything up to `position` is in.
    fn restart(&mut self, position: u64) {
        self.under_way.iter_mut().for_each(|(_, counts)| *counts = false);
        self.persisted = position;
    }

    /// All that was to be fetched has been.
    pub(super) fn forget_former(&mut self) {
        self.former = None;
    }

    /// The next record is on the disk.
    fn ended(&mut self) {
        if let Some((last, true)) = self.under_way.pop_front() {
            self.persisted = self.persisted.max(last);
        }
    }
}

impl Order {
    /// A member whose group was down as a whole, or which was alone: with the state of its last snapshot, and the records that
    /// followed it.
    ///
    /// Restarted members tell by [`Order::last_epoch`] and the answer to [`super::Input::Freeze`] how far they were. The
    /// cut of their first view is the highest position *of the highest last epoch* among a quorum, and the holders are
    /// those who have both; all others fetch what follows their snapshot, for what they hold may have been dropped by a
    /// view that they missed.
    pub fn restored<'a>(
        config: Config,
        me: Member,
        snapshot: Snapshot,
        records: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, LogError> {
        let start = snapshot.position;
        let mut order = Self::joining(config, me, snapshot);
        for record in records {
            order.replay(record)?;
        }
        order.persisting.trusted = Some(start);
        Ok(order)
    }

    /// The next record of the log that a member goes on from, which has the state of the snapshot before it. If all cuts are
    /// replayed as well, what it holds is as good as before.
    pub(crate) fn replay(&mut self, record: &[u8]) -> Result<(), LogError> {
        let (first, entries) = read_record(record)?;
        if first > self.history.held() + 1 {
            return Err(LogError::Gap { first });
        }
        self.history.truncate((first - 1).max(self.delivered));
        for (position, entry) in (first..).zip(entries) {
            if position > self.delivered {
                self.history.push(entry);
            }
        }
        self.persisting = Persisting::new(self.history.held());
        Ok(())
    }

    /// The life that goes on from the log, and the view that was decided last for it.
    pub(crate) fn go_on_as(&mut self, me: Member, latest: View) {
        (self.me, self.latest) = (me, latest);
    }

    /// A view ended at `cut`, says the log.
    pub(crate) fn replay_cut(&mut self, cut: u64) {
        self.history.truncate(cut.max(self.delivered));
        self.persisting = Persisting::new(self.history.held());
    }

    /// A record of all that is held behind a position; none if nothing is, or if some of it is not kept any more.
    pub(crate) fn record_behind(&self, position: u64) -> Option<Vec<u8>> {
        let is_kept = self.history.first() <= position + 1 && position < self.history.held();
        is_kept.then(|| self.record(position + 1))
    }

    /// Keeps all that follows a position that was delivered, as far as the history reaches.
    pub(crate) fn keep_behind(&mut self, position: Option<u64>) {
        self.kept_behind = position;
    }

    /// Whether all that is held behind a position is kept.
    pub(crate) fn keeps_all_behind(&self, position: u64) -> bool {
        self.history.first() <= position + 1
    }

    /// Whether updates are acknowledged in a view that is installed.
    pub(crate) fn is_at_work(&self) -> bool {
        matches!(self.phase, Phase::Normal)
    }

    /// The view of the last update that is held; 0 if none is kept.
    pub fn last_epoch(&self) -> ViewEpoch {
        self.history.get(self.history.held()).map_or(ViewEpoch(0), |held| held.epoch)
    }

    /// The first change of a restored member: what it holds is as good as the holders say.
    pub(super) fn trust_log(&mut self, is_holder: bool) {
        if let Some(start) = self.persisting.trusted.take()
            && !is_holder
        {
            self.persisting.former = Some(core::mem::replace(&mut self.history, History::after(start)));
            self.persisting.restart(start);
        }
    }

    /// Everything from `first` on is new: to the disk with it.
    pub(super) fn persist_from(&mut self, first: u64) {
        let last = self.history.held();
        let first = self.skip_former(first);
        if !self.config.has_log || first > last {
            return;
        }
        let bytes = self.record(first);
        self.persisting.under_way.push_back((last, true));
        self.events.push_back(Event::Persist { position: last, bytes });
    }

    /// Everything from `first` on.
    fn record(&self, first: u64) -> Vec<u8> {
        let mut bytes = append(Vec::new(), &first);
        for position in first..=self.history.held() {
            if let Some(held) = self.history.get(position) {
                let (epoch, sender, number) = (held.epoch, held.sender, held.number);
                bytes = append(bytes, &Copied { epoch, sender, number, body: &held.body });
            }
        }
        bytes
    }

    /// A snapshot has taken the place of everything up to `position`, and more. What was on the disk says nothing any more, and
    /// stays until the snapshot is there.
    pub(super) fn persist_snapshot(&mut self, position: u64) {
        let persisted = self.persisting.persisted;
        self.persisting.restart(if self.config.has_log { persisted } else { position });
        if self.config.has_log {
            self.persisting.under_way.push_back((position, true));
            self.events.push_back(Event::PersistSnapshot { position });
        }
    }

    /// Where what is held begins to differ from what the records of the former life hold.
    fn skip_former(&mut self, mut first: u64) -> u64 {
        let Some(former) = &self.persisting.former else { return first };
        while former.get(first).is_some_and(|before| self.history.get(first) == Some(before)) {
            self.persisting.persisted = first;
            first += 1;
        }
        if first <= self.history.held() {
            self.persisting.former = None;
        }
        first
    }

    pub(super) fn persisted(&mut self, position: u64) {
        let expected = self.persisting.under_way.front().map(|&(last, _)| last);
        assert_eq!(expected, Some(position), "records are written in their order");
        self.persisting.ended();
        match self.phase {
            Phase::Normal if self.sequencer.is_some() => self.advance(),
            Phase::Normal => self.is_ack_due = true,
            Phase::Changing(_) | Phase::Frozen => self.check_cuts(),
            Phase::Joining | Phase::Out => {}
        }
    }
}

fn read_record(record: &[u8]) -> Result<(u64, Vec<Held>), LogError> {
    let (first, entries) = postcard::take_from_bytes::<u64>(record).map_err(|_| LogError::Unreadable)?;
    let start = record.len() - entries.len();
    // Nobody is to blame for what is on our own disk, and no name is told.
    let nobody = NodeId(u32::MAX);
    let entries = read_copied(nobody, &record.into(), start).map_err(|_| LogError::Unreadable)?;
    if first == 0 || first.checked_add(entries.len() as u64).is_none() {
        return Err(LogError::Unreadable);
    }
    Ok((first, entries))
}
