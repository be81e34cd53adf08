//! Knows who has failed, and what each cell has done.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::{Checker, Fault, NodeId, Time, Truth};
use comb_types::CellId;

use super::Life;
use super::cell::{Cell, Event};
use super::machine::Machine;
use crate::alerts::Finding;

/// Who has stood still for so long may be condemned for it: its tick is looked at twice in it.
const MAY_BE_CONDEMNED_AFTER: Duration = Duration::from_millis(4);
/// And so long after it has moved again: until then votes are under way.
const AND_UNTIL: Duration = Duration::from_millis(60);

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What the oracle decided, by epoch.
    pub(super) views: BTreeMap<u64, BTreeSet<Life>>,
    /// For the oracle: on whom there is a verdict of an honest cell.
    pub(super) condemned: BTreeSet<Life>,
    /// For the oracle: whom a master looks after.
    pub(super) to_restart: BTreeSet<Life>,
    pub(super) liars: BTreeSet<Life>,
    /// Who has failed for good, and when.
    pub(super) failures: BTreeMap<Life, Time>,
    /// Who stood still for a time, and until when that can be held against it.
    paused: BTreeMap<Life, Time>,
    verdicts: BTreeMap<Life, Finding>,
    took: Duration,
    voted_down: u64,
    rounds: u64,
    begun_again: u64,
    discarded: u64,
    wild_loads: u64,
}

impl Seen {
    pub(super) fn fails(&mut self, life: Life, now: Time) {
        self.failures.entry(life).or_insert(now);
    }

    pub(super) fn has_failed(&self, life: Life) -> bool {
        self.failures.contains_key(&life)
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn figures(&self) -> Vec<(&'static str, f64, &'static str)> {
        let verdicts = |is_such: &dyn Fn(Finding) -> bool| {
            self.verdicts.values().filter(|finding| is_such(**finding)).count() as f64
        };
        let found = self.verdicts.keys().filter(|life| self.failures.contains_key(life)).count();
        let mean = self.took.as_secs_f64() * 1000.0 / (found.max(1) as f64);
        vec![
            (
                "verdicts on cells whose tick stood still, or that were gone",
                verdicts(&|finding| matches!(finding, Finding::Silent | Finding::Gone)),
                "",
            ),
            ("verdicts on corrupt cells", verdicts(&|finding| finding == Finding::Corrupt), ""),
            ("verdicts on liars", verdicts(&|finding| finding == Finding::Slander), ""),
            ("from failure to verdict, in the mean", mean, "ms"),
            ("alerts voted down", self.voted_down as f64, ""),
            ("rounds of recovery", self.rounds as f64, ""),
            ("of these begun again before they were over", self.begun_again as f64, ""),
            ("pages discarded", self.discarded as f64, ""),
            ("loads of what a failed cell stored, before it was found out", self.wild_loads as f64, ""),
        ]
    }
}

/// What must never be.
pub(super) struct Judge {
    seen: Rc<RefCell<Seen>>,
    machine: Rc<RefCell<Machine>>,
    cut_off: BTreeSet<(Life, u64)>,
    discarded: BTreeSet<(Life, u64)>,
    /// From whose death each life has recovered, itself.
    buried: BTreeMap<Life, BTreeSet<Life>>,
    /// The round in which each is.
    rounds: BTreeMap<Life, u64>,
}

impl Judge {
    pub(super) fn new(seen: &Rc<RefCell<Seen>>, machine: &Rc<RefCell<Machine>>) -> Self {
        Self {
            seen: Rc::clone(seen),
            machine: Rc::clone(machine),
            cut_off: BTreeSet::new(),
            discarded: BTreeSet::new(),
            buried: BTreeMap::new(),
            rounds: BTreeMap::new(),
        }
    }

    fn verdict(&self, truth: &Truth<'_>, cell: CellId, finding: Finding) -> Result<(), String> {
        let mut seen = self.seen.borrow_mut();
        let node = truth.node(NodeId(cell.0));
        let life = (cell, node.incarnation);
        let is_in = seen.views.values().next_back().is_some_and(|view| view.contains(&life));
        if !is_in {
            // Its former life, which has left the last view.
            return Ok(());
        }
        let was_paused = seen.paused.get(&life).is_some_and(|until| truth.now <= *until);
        if !seen.has_failed(life) && !was_paused && node.is_up {
            return Err(format!("{cell} is condemned ({finding}), and is well"));
        }
        if finding == Finding::Slander && !seen.liars.contains(&life) {
            return Err(format!("{cell} is condemned for slander, and has never lied"));
        }
        if let std::collections::btree_map::Entry::Vacant(first) = seen.verdicts.entry(life) {
            first.insert(finding);
            if let Some(&at) = seen.failures.get(&life) {
                seen.took += truth.now.since(at);
            }
        }
        seen.condemned.insert(life);
        Ok(())
    }

    /// Whether all who are in a view have done something.
    fn have_all(&self, done: &BTreeSet<(Life, u64)>, epoch: u64) -> bool {
        self.seen.borrow().views[&epoch].iter().all(|&member| done.contains(&(member, epoch)))
    }

    fn resumed(&mut self, life: Life, epoch: u64, dead: &[Life], is_master: bool) -> Result<(), String> {
        if !self.have_all(&self.cut_off, epoch) || !self.have_all(&self.discarded, epoch) {
            return Err(format!("it goes on from view {epoch} before all have cut off and discarded"));
        }
        let buried = self.buried.entry(life).or_default();
        buried.extend(dead);
        if let Some((cell, _)) = self.machine.borrow().wild(life.0).intersection(buried).next() {
            return Err(format!("it goes on, and keeps what {cell} has stored"));
        }
        let mut seen = self.seen.borrow_mut();
        if is_master {
            // Views of which it has not heard may have had lives of which it has not heard: it looks after all places.
            let members = seen.views[&epoch].clone();
            let all: BTreeSet<Life> = seen.views.values().flatten().copied().collect();
            seen.to_restart.extend(all.difference(&members));
        }
        Ok(())
    }
}

impl Checker<Cell> for Judge {
    fn saw(&mut self, truth: &Truth<'_>, node: NodeId, event: &Event) -> Result<(), String> {
        let life = (CellId(node.0), truth.node(node).incarnation);
        let is_liar = self.seen.borrow().liars.contains(&life);
        match event {
            Event::Verdict(..) if is_liar => {}
            Event::Verdict(cell, finding) => self.verdict(truth, *cell, *finding)?,
            Event::VotedDown => self.seen.borrow_mut().voted_down += 1,
            Event::Begins(epoch) => {
                let mut seen = self.seen.borrow_mut();
                seen.rounds += 1;
                seen.begun_again += u64::from(self.rounds.insert(life, *epoch).is_some());
            }
            Event::HasCutOff(epoch) => drop(self.cut_off.insert((life, *epoch))),
            Event::Discards(epoch) => {
                if !self.have_all(&self.cut_off, *epoch) {
                    return Err(format!("it discards in view {epoch} before all have cut off"));
                }
            }
            Event::HasDiscarded(epoch, pages) => {
                self.seen.borrow_mut().discarded += pages;
                self.discarded.insert((life, *epoch));
            }
            Event::Resumed { epoch, dead, is_master } => {
                self.rounds.remove(&life);
                self.resumed(life, *epoch, dead, *is_master)?;
            }
            Event::LoadedWild(by) => {
                self.seen.borrow_mut().wild_loads += 1;
                if self.buried.get(&life).is_some_and(|buried| buried.contains(by)) {
                    return Err(format!("it loads what {} stored, whose death is recovered from", by.0));
                }
            }
            Event::Accused(peer, error) => {
                let accused = (*peer, truth.node(NodeId(peer.0)).incarnation);
                if !is_liar && !self.seen.borrow().liars.contains(&accused) {
                    return Err(format!("{peer} is accused, and is honest: {error}"));
                }
            }
        }
        Ok(())
    }

    fn fault(&mut self, truth: &Truth<'_>, fault: &Fault) -> Result<(), String> {
        let mut seen = self.seen.borrow_mut();
        let life = |node: &NodeId| -> Life { (CellId(node.0), truth.node(*node).incarnation) };
        match fault {
            Fault::Crash(node) => seen.fails(life(node), truth.now),
            Fault::Pause { node, lasting } if *lasting >= MAY_BE_CONDEMNED_AFTER => {
                let until = truth.now.saturating_add(*lasting).saturating_add(AND_UNTIL);
                seen.paused.insert(life(node), until);
            }
            _ => {}
        }
        Ok(())
    }
}
