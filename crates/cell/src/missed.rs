//! Lives of other hosts' cells of which nothing is heard any more, neither on a channel to them nor of their hosts' agents.
//!
//! A host that was cut off is back for some hosts before it is for others. Its cells come in again by way of those, while this host's agent
//! still hears nothing of theirs: what it misses are the lives before. So only a life is missed that this cell has heard itself: it has
//! answered, on a channel, what it was asked when it was a member, and that channel has fallen silent. A channel that ends in another way
//! says nothing of its host; one that the life before had opened may be here still, and comes even later than the next life.

use std::collections::{BTreeMap, BTreeSet};

use comb_group::{Member, View};
use comb_net::Cause;

use crate::supervision::CellElsewhere;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Missed<Channel> {
    /// Cells of hosts of whose agents something was heard in this life of this cell, and of those of them of whom nothing is heard now.
    once_heard: BTreeSet<u32>,
    unheard: BTreeSet<u32>,
    /// Cells of hosts that are none of the comb's any more.
    expelled: BTreeSet<u32>,
    /// The members, and since when this cell has known that they are.
    since_ns: BTreeMap<Member, u64>,
    /// Channels that lead to one of them for certain.
    known: BTreeMap<Channel, Member>,
    /// Members whose channel has fallen silent.
    silent: BTreeSet<Member>,
}

impl<Channel: Ord + Copy> Missed<Channel> {
    /// Nobody is, before anybody was heard.
    pub(crate) fn new() -> Self {
        Self {
            once_heard: BTreeSet::new(),
            unheard: BTreeSet::new(),
            expelled: BTreeSet::new(),
            since_ns: BTreeMap::new(),
            known: BTreeMap::new(),
            silent: BTreeSet::new(),
        }
    }

    /// The cells have agreed on who lives.
    pub(crate) fn view(&mut self, view: &View, now_ns: u64) {
        self.since_ns.retain(|member, _| view.members.contains(member));
        for &member in &view.members {
            self.since_ns.entry(member).or_insert(now_ns);
        }
        self.known.retain(|_, member| view.members.contains(member));
        self.silent.retain(|member| view.members.contains(member));
    }

    /// The agent says which hosts it hears. Those cells are heard again that it did not hear before.
    pub(crate) fn hosts(&mut self, cells: &[CellElsewhere]) -> Vec<u32> {
        // Whoever comes in is there before its agent has reached all others: that it has not says nothing of these.
        self.once_heard.extend(cells.iter().filter(|cell| cell.is_host_heard).map(|cell| cell.cell));
        let is_lost = |cell: &&CellElsewhere| !cell.is_host_heard && self.once_heard.contains(&cell.cell);
        let unheard = cells.iter().filter(is_lost).map(|cell| cell.cell).collect();
        let before = std::mem::replace(&mut self.unheard, unheard);
        before.difference(&self.unheard).copied().collect()
    }

    /// These cells are none of the comb's any more, unless they are among those that are.
    pub(crate) fn expel(&mut self, gone: impl Iterator<Item = u32>, is_there: impl Fn(u32) -> bool) {
        self.expelled.extend(gone);
        self.expelled.retain(|cell| !is_there(*cell));
    }

    /// The cells of hosts that are none of the comb's any more.
    pub(crate) fn expelled(&self) -> impl Iterator<Item = u32> {
        self.expelled.iter().copied()
    }

    /// A cell has answered on a channel what it was asked at a time. If it was a member then, it is that life: the one before had ended.
    pub(crate) fn answered(&mut self, cell: u32, channel: Channel, asked_ns: u64) {
        let life = self.since_ns.iter().find(|(member, _)| member.node.0 == cell);
        if let Some((&member, _)) = life.filter(|(_, since_ns)| asked_ns >= **since_ns) {
            self.known.insert(channel, member);
            self.silent.remove(&member);
        }
    }

    /// A channel has ended.
    pub(crate) fn ended(&mut self, channel: Channel, cause: &Cause) {
        if let Some(member) = self.known.remove(&channel)
            && matches!(cause, Cause::Silent(_))
        {
            self.silent.insert(member);
        }
    }

    /// The members that are missed.
    pub(crate) fn lives(&self) -> impl Iterator<Item = Member> {
        let is_missed = |member: &&Member| {
            let cell = member.node.0;
            self.expelled.contains(&cell) || self.unheard.contains(&cell) && self.silent.contains(member)
        };
        self.since_ns.keys().filter(is_missed).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use comb_group::ViewEpoch;
    use comb_types::{Incarnation, NodeId};

    use super::*;

    const SILENT: Cause = Cause::Silent(Duration::from_secs(1));

    fn life(cell: u32, incarnation: u64) -> Member {
        Member { node: NodeId(cell), incarnation: Incarnation(incarnation) }
    }

    fn view(members: &[Member]) -> View {
        View { epoch: ViewEpoch(1), members: members.to_vec(), tie_breaker: members[0].node }
    }

    fn elsewhere(is_host_heard: bool) -> [CellElsewhere; 1] {
        [CellElsewhere { cell: 5, host: "gamma".to_owned(), is_up: is_host_heard, is_host_heard }]
    }

    fn missed(missed: &Missed<u32>) -> Vec<Member> {
        missed.lives().collect()
    }

    /// Cell 4, beside cell 5 of another host that both were heard of; and then of neither.
    fn with_one_missed() -> Missed<u32> {
        let mut four = Missed::new();
        assert!(four.hosts(&elsewhere(true)).is_empty());
        four.view(&view(&[life(4, 1), life(5, 1)]), 10);
        four.answered(5, 0, 11);
        assert!(four.hosts(&elsewhere(false)).is_empty());
        assert_eq!(missed(&four), [], "its channel is there");
        four.ended(0, &SILENT);
        assert_eq!(missed(&four), [life(5, 1)]);
        four
    }

    /// Host gamma was cut off, and its cells were left out. When it was back for host alpha, and not yet for beta, its cells came in again by
    /// way of alpha, and cell 4 on beta told the others that the new lives had failed: it missed them as it had missed the lives before. Nobody else did, so it
    /// was left out itself.
    #[test]
    fn who_comes_in_while_its_host_is_not_heard_is_not_missed() {
        let mut four = with_one_missed();
        four.view(&view(&[life(4, 1)]), 20);
        // The life before opens a channel, and is heard on it, before it knows that it is out.
        four.answered(5, 1, 21);
        four.view(&view(&[life(4, 1), life(5, 2)]), 30);
        four.answered(5, 1, 29);
        assert_eq!(missed(&four), []);
        four.ended(1, &SILENT);
        assert_eq!(missed(&four), [], "that channel led to the life before");
        four.answered(5, 2, 31);
        // One that the life before has asked for comes now, and takes its place.
        four.ended(2, &Cause::Left("its next life has come".to_owned()));
        assert_eq!(missed(&four), [], "a channel that was closed says nothing of its host");
    }

    #[test]
    fn a_host_that_is_lost_again_is_missed_again() {
        let mut four = with_one_missed();
        four.view(&view(&[life(4, 1), life(5, 2)]), 30);
        four.answered(5, 1, 30);
        four.ended(1, &SILENT);
        assert_eq!(missed(&four), [life(5, 2)], "its agent was never heard in between");
        assert_eq!(four.hosts(&elsewhere(true)), [5]);
        assert_eq!(missed(&four), [], "its agent is heard");
        four.answered(5, 2, 40);
        assert!(four.hosts(&elsewhere(false)).is_empty());
        assert_eq!(missed(&four), [], "it has answered since");
        four.ended(2, &SILENT);
        assert_eq!(missed(&four), [life(5, 2)]);
    }

    #[test]
    fn who_begins_misses_nobody_that_it_has_not_heard() {
        let mut four = Missed::new();
        four.view(&view(&[life(4, 2), life(5, 1)]), 10);
        assert!(four.hosts(&elsewhere(false)).is_empty());
        four.answered(5, 0, 11);
        four.ended(0, &SILENT);
        assert_eq!(missed(&four), [], "its own agent has not reached that host yet");
    }

    #[test]
    fn the_cells_of_a_host_that_was_put_out_are_missed_at_once() {
        let mut four = with_one_missed();
        four.answered(5, 1, 12);
        four.expel([5].into_iter(), |_| false);
        assert_eq!((missed(&four), four.expelled().collect::<Vec<_>>()), (vec![life(5, 1)], vec![5]));
        four.expel([].into_iter(), |cell| cell == 5);
        assert_eq!(missed(&four), []);
    }
}
