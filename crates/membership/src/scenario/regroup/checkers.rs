//! What must never be, and what must be in the end.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use comb_sim::{Checker, Truth};
use comb_types::{Incarnation, NodeId};

use super::actor::{Node, Told};
use crate::quorum::{Basis, judge};
use crate::regroup::Event;
use crate::view::{View, ViewEpoch};

/// What the nodes have told, of the group that is there now.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Each view that was decided, with its cut, by epoch.
    pub(super) views: BTreeMap<ViewEpoch, (View, Option<u64>)>,
    /// Where each life was last.
    last: BTreeMap<(NodeId, Incarnation), ViewEpoch>,
    /// What each life that has installed a view held then.
    installed: BTreeMap<ViewEpoch, Rc<[u64]>>,
    committed: Rc<[u64]>,
    committed_in: Option<ViewEpoch>,
    /// Lives that were told that they are out.
    pub(super) excluded: BTreeSet<(NodeId, Incarnation)>,
    /// How often a part was stuck.
    pub(super) stuck: u64,
    /// How often a member was accused.
    pub(super) accused: u64,
}

/// Shared with the scenario, which asks it what there is.
pub(super) type Shared = Rc<RefCell<History>>;

/// Holds the rules.
pub(super) struct Rules(pub(super) Shared);

impl Checker<Node> for Rules {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Told) -> Result<(), String> {
        let life = (node, truth.node(node).incarnation);
        let mut history = self.0.borrow_mut();
        match event {
            Told::Founded(view) => history.founded(life, view),
            Told::Joined(view) => history.decided(life, view, None),
            Told::Regroup(Event::Decided { view, cut, .. }) => history.decided(life, view, Some(*cut)),
            Told::Regroup(Event::Excluded { by }) => history.out(life, *by),
            Told::Regroup(Event::Stuck { .. }) => {
                history.stuck += 1;
                Ok(())
            }
            Told::Installed { view, entries } => history.install(view, entries),
            Told::Committed { epoch, entries } => history.commit(*epoch, entries),
            Told::Accused(error) => {
                history.accused += 1;
                Err(format!("everybody keeps the rules here, but: {error}"))
            }
            Told::Regroup(_) => Ok(()),
        }
    }
}

type Life = (NodeId, Incarnation);

impl History {
    fn founded(&mut self, life: Life, view: &View) -> Result<(), String> {
        if !self.views.is_empty() {
            return Err("a second group was founded".to_owned());
        }
        self.decided(life, view, Some(0))
    }

    /// One successor for each view, and every member sees them in order.
    fn decided(&mut self, life: Life, view: &View, cut: Option<u64>) -> Result<(), String> {
        let known = self.views.entry(view.epoch).or_insert_with(|| (view.clone(), cut));
        if known.0 != *view {
            return Err(format!("two of {}: {:?} and {:?}", view.epoch, known.0, view));
        }
        if let (Some(known), Some(cut)) = (known.1, cut)
            && known != cut
        {
            return Err(format!("two cuts for {}: {known} and {cut}", view.epoch));
        }
        known.1 = known.1.or(cut);
        if self.committed_in < Some(view.epoch) && cut.is_some_and(|cut| cut < self.committed.len() as u64) {
            return Err(format!("{} forgets what was committed", view.epoch));
        }
        if self.excluded.contains(&life) {
            return Err("it is out, and goes on".to_owned());
        }
        match self.last.insert(life, view.epoch) {
            Some(last) if last.0 + 1 != view.epoch.0 => Err(format!("{} follows on {last}", view.epoch)),
            _ => Ok(()),
        }
    }

    fn out(&mut self, life: Life, by: ViewEpoch) -> Result<(), String> {
        self.excluded.insert(life);
        match self.views.get(&by) {
            Some((view, _)) if view.member(life.0).is_some_and(|member| member.incarnation == life.1) => {
                Err(format!("it takes itself for excluded from {by}, and is in it"))
            }
            Some(_) => Ok(()),
            None => Err(format!("it is out by {by}, which nobody has decided")),
        }
    }

    /// Who installs a view holds the same as all others, and everything that was committed before.
    fn install(&mut self, view: &View, entries: &Rc<[u64]>) -> Result<(), String> {
        let known = self.installed.entry(view.epoch).or_insert_with(|| entries.clone());
        if known != entries {
            return Err(format!("members install {} with different entries", view.epoch));
        }
        if self.committed_in < Some(view.epoch) && !entries.starts_with(&self.committed) {
            return Err(format!("{} begins without what was committed", view.epoch));
        }
        Ok(())
    }

    /// Nothing is committed in a view that has ended, beyond its end.
    fn commit(&mut self, epoch: ViewEpoch, entries: &Rc<[u64]>) -> Result<(), String> {
        let after = self.views.range(ViewEpoch(epoch.0 + 1)..).next();
        if let Some((_, (view, Some(cut)))) = after
            && *cut < entries.len() as u64
        {
            return Err(format!(
                "{} entries are committed in {epoch}, but {} cut at {cut}",
                entries.len(),
                view.epoch
            ));
        }
        if entries.len() > self.committed.len() {
            if !entries.starts_with(&self.committed) {
                return Err("what is committed contradicts what was".to_owned());
            }
            (self.committed, self.committed_in) = (entries.clone(), Some(epoch));
        }
        Ok(())
    }

    /// A coordinator knows that this was decided, and is not in it.
    pub(super) fn knows(&mut self, view: &View) {
        self.views.entry(view.epoch).or_insert_with(|| (view.clone(), None));
    }

    /// Whether enough members live for the group to go on by itself: a quorum of the last view, and, if nobody has installed it, of the
    /// one before.
    pub(super) fn can_go_on(&self, truth: &Truth<'_>) -> bool {
        let Some((epoch, (last, _))) = self.views.last_key_value() else { return false };
        let has_quorum = |view: &View| {
            let lives = |node: &NodeId| {
                view.member(*node).is_some_and(|member| {
                    let life = (*node, member.incarnation);
                    !truth.is_dead(life.0, life.1) && !self.excluded.contains(&life)
                })
            };
            judge(view, &view.nodes().filter(lives).collect(), &Basis::default()).is_quorum()
        };
        let before = || self.views.get(&ViewEpoch(epoch.0.saturating_sub(1)));
        let is_installed = self.installed.contains_key(epoch);
        has_quorum(last) && (is_installed || before().is_none_or(|(before, _)| has_quorum(before)))
    }
}
