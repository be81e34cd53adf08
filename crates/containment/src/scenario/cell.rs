//! A cell: its alerts, its recovery, a channel to each other cell, and pages that it grants to others.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use comb_sim::channel::{Channel, HEAD};
use comb_sim::{Actor, Boot, Dice, Effects, Input, NodeId, Time};
use comb_types::{CellId, Incarnation};
use serde::{Deserialize, Serialize};

use super::Life;
use super::machine::{Machine, PAGES};
use crate::alerts::{self, Alerts, Finding};
use crate::recovery::{self, Recovery, Step};

/// A tick, and a look around.
const TICK: Duration = Duration::from_millis(1);
/// A tick that has not moved for so many looks is a hint.
const LOOKS_BEFORE_HINT: u32 = 5;
/// Whoever is asked to look at a tick looks twice, so far apart.
const LOOKS_APART: Duration = Duration::from_millis(4);
/// What was sent and not acknowledged is sent again after so long.
const AGAIN: Duration = Duration::from_millis(2);
/// The longest that a step of recovery takes.
const STEP: Duration = Duration::from_millis(3);
/// The lives between which a frame goes.
const LIVES: usize = 16;

#[derive(Clone, Debug)]
pub(super) enum Command {
    View(u64, Vec<Life>),
    /// Its structures turn to nonsense, and it stores nonsense.
    BecomeCorrupt,
    /// It says anything of anybody from now on, and stores nonsense.
    Lie,
}

/// What a cell tells the checkers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Verdict(CellId, Finding),
    VotedDown,
    /// Of recovery, with its view's epoch.
    Begins(u64),
    HasCutOff(u64),
    Discards(u64),
    /// With the number of pages.
    HasDiscarded(u64, u64),
    Resumed {
        epoch: u64,
        dead: Vec<Life>,
        is_master: bool,
    },
    LoadedWild(Life),
    Accused(CellId, String),
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
enum Said {
    Alerts(alerts::Message),
    Recovery(recovery::Message),
}

pub(super) struct Cell {
    own: Life,
    cells: u32,
    machine: Rc<RefCell<Machine>>,
    alerts: Alerts,
    recovery: Recovery,
    epoch: u64,
    living: BTreeMap<CellId, Incarnation>,
    /// Lives that were in a view, and are in none any more.
    dead: BTreeSet<Life>,
    channels: BTreeMap<Life, Channel>,
    /// What each one's tick was, and for how many looks.
    ticks: BTreeMap<CellId, (u64, u32)>,
    /// Answers to give: when, of whom, and what its tick was.
    looks: Vec<(Time, CellId, Finding, Option<u64>)>,
    /// Steps of recovery that are under way.
    work: Vec<(Time, u64, Step)>,
    /// What those could store to of whom there were rights to revoke: to be discarded.
    doubtful: BTreeSet<u64>,
    is_held_up: bool,
    lies: bool,
    is_corrupt: bool,
    dice: Dice,
    ticks_at: Time,
    again_at: Time,
}

impl Cell {
    pub(super) fn boot(boot: &Boot<'_>, cells: u32, machine: &Rc<RefCell<Machine>>) -> Self {
        let own = (CellId(boot.node.0), boot.incarnation);
        machine.borrow_mut().starts(own.0);
        Self {
            own,
            cells,
            machine: Rc::clone(machine),
            alerts: Alerts::new(own.0),
            recovery: Recovery::new(own.0),
            epoch: 0,
            living: BTreeMap::new(),
            dead: BTreeSet::new(),
            channels: BTreeMap::new(),
            ticks: BTreeMap::new(),
            looks: Vec::new(),
            work: Vec::new(),
            doubtful: BTreeSet::new(),
            is_held_up: true,
            lies: false,
            is_corrupt: false,
            dice: Dice::new(boot.seed),
            ticks_at: boot.now,
            again_at: boot.now,
        }
    }

    /// The last view, and whether its round is under way.
    pub(super) fn recovers(&self) -> (u64, bool) {
        (self.epoch, self.recovery.is_recovering())
    }

    fn view(&mut self, now: Time, epoch: u64, members: &[Life], effects: &mut Effects<'_, Event>) {
        if epoch <= self.epoch {
            return;
        }
        let living: BTreeMap<_, _> = members.iter().copied().collect();
        let reborn =
            |(cell, life): &(&CellId, &Incarnation)| living.get(*cell).is_some_and(|other| other != *life);
        let reborn: Vec<CellId> = self.living.iter().filter(reborn).map(|(&cell, _)| cell).collect();
        let gone = self.living.iter().filter(|(cell, life)| living.get(cell) != Some(life));
        self.dead.extend(gone.map(|(&cell, &life)| (cell, life)));
        self.channels.retain(|life, _| !self.dead.contains(life));
        (self.epoch, self.living) = (epoch, living);
        self.ticks.retain(|cell, _| self.living.contains_key(cell) && !reborn.contains(cell));
        self.alerts.living(now, &self.living.keys().copied().collect::<Vec<_>>());
        reborn.into_iter().for_each(|cell| self.alerts.reborn(now, cell));
        effects.tell(Event::Begins(epoch));
        self.recovery.view(epoch, members);
    }

    fn hear(&mut self, from: NodeId, frame: &[u8], effects: &mut Effects<'_, Event>) {
        let number = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().expect("eight"));
        let peer = (CellId(from.0), Incarnation(number(0)));
        if Incarnation(number(8)) != self.own.1 || self.dead.contains(&peer) {
            return;
        }
        for message in self.channels.entry(peer).or_default().take(&frame[LIVES..]) {
            let said = postcard::from_bytes(&message).expect("written by a cell");
            let outcome = match said {
                // Who has a later view, or is in one, is right to speak.
                Said::Alerts(said) => match self.alerts.handle(effects.now(), peer.0, said) {
                    Err(alerts::PeerError::NotLiving(_)) => Ok(()),
                    outcome => outcome.map_err(|error| error.to_string()),
                },
                Said::Recovery(said) => self.recovery.handle(peer.0, said).map_err(|error| error.to_string()),
            };
            if let Err(error) = outcome {
                effects.tell(Event::Accused(peer.0, error));
            }
        }
    }

    fn others(&self) -> Vec<Life> {
        self.living.iter().map(|(&cell, &life)| (cell, life)).filter(|life| *life != self.own).collect()
    }

    fn say(&mut self, to: &[Life], said: Said, effects: &mut Effects<'_, Event>) {
        for &peer in to {
            let message = postcard::to_allocvec(&said).expect("our own can be written");
            let frame = self.channels.entry(peer).or_default().send(message);
            self.send(peer, &frame, effects);
        }
    }

    fn send(&self, peer: Life, frame: &[u8], effects: &mut Effects<'_, Event>) {
        let frame = [&self.own.1.0.to_le_bytes()[..], &peer.1.0.to_le_bytes(), frame].concat();
        effects.send(NodeId(peer.0.0), frame);
    }

    /// Looks around, as a cell does at each tick of its clock.
    fn tick(&mut self, now: Time) {
        self.machine.borrow_mut().ticks(self.own.0);
        for (cell, _) in self.others() {
            let machine = self.machine.borrow();
            let tick = machine.tick(cell);
            let finding = match tick {
                None => Some(Finding::Gone),
                Some(tick) => {
                    let last = self.ticks.entry(cell).or_insert((tick, 0));
                    *last = if last.0 == tick { (tick, last.1 + 1) } else { (tick, 0) };
                    // Not everybody reads everything at each tick.
                    let is_corrupt = machine.is_corrupt(cell) && self.dice.below(8) == 0;
                    let is_silent = last.1 >= LOOKS_BEFORE_HINT;
                    is_corrupt.then_some(Finding::Corrupt).or(is_silent.then_some(Finding::Silent))
                }
            };
            drop(machine);
            if let Some(finding) = finding
                && !self.lies
            {
                self.alerts.hint(now, cell, finding);
            }
        }
    }

    /// Grants a page of its own, and loads one of another.
    fn share(&mut self, effects: &mut Effects<'_, Event>) {
        let others = self.others();
        if self.is_held_up || others.is_empty() {
            return;
        }
        let ((holder, _), (home, _)) =
            (others[self.dice.index(others.len())], others[self.dice.index(others.len())]);
        let mut page = || u64::from(self.dice.below(u32::try_from(PAGES).expect("few")));
        let (granted, loaded) = (page(), page());
        let mut machine = self.machine.borrow_mut();
        // Who is known to be dead has no number any more by which it could be given anything.
        machine.firewall(self.own.0).grant(holder.0, granted..granted + 1);
        if let Some(by) = machine.loads(home, loaded) {
            effects.tell(Event::LoadedWild(by));
        }
    }

    /// What a cell does that has gone wrong.
    fn go_wrong(&mut self, effects: &mut Effects<'_, Event>) {
        self.machine.borrow_mut().stores_wildly(self.own);
        let others = self.others();
        if !self.lies || others.is_empty() || self.dice.below(3) != 0 {
            return;
        }
        let suspect = CellId(self.dice.below(self.cells));
        let findings = [Finding::Silent, Finding::Gone, Finding::Late, Finding::Corrupt, Finding::Slander];
        let finding = findings[self.dice.index(findings.len())];
        let lie = match self.dice.below(3) {
            0 => alerts::Message::Vote { suspect, finding, agrees: self.dice.below(2) == 0 },
            _ => alerts::Message::Raise { suspect, finding },
        };
        let to = if self.dice.below(3) == 0 { vec![others[self.dice.index(others.len())]] } else { others };
        self.say(&to, Said::Alerts(lie), effects);
    }

    /// What it finds of another, now that it is asked.
    fn looks(&self, cell: CellId, finding: Finding, tick_before: Option<u64>) -> bool {
        let machine = self.machine.borrow();
        match finding {
            Finding::Silent => machine.tick(cell) == tick_before,
            Finding::Gone => machine.is_gone(cell),
            Finding::Corrupt => machine.is_corrupt(cell),
            Finding::Late | Finding::Leaving | Finding::Slander => false,
        }
    }

    fn work(&mut self, now: Time, effects: &mut Effects<'_, Event>) {
        let due = self.looks.iter().filter(|(at, ..)| *at <= now).copied().collect::<Vec<_>>();
        self.looks.retain(|(at, ..)| *at > now);
        for (_, cell, finding, tick_before) in due {
            let agrees = self.looks(cell, finding, tick_before);
            self.alerts.looked(now, cell, finding, agrees);
        }
        let due = self.work.iter().filter(|(at, ..)| *at <= now).copied().collect::<Vec<_>>();
        self.work.retain(|(at, ..)| *at > now);
        for (_, epoch, step) in due {
            match step {
                Step::CutOff => effects.tell(Event::HasCutOff(epoch)),
                Step::Discard => {
                    let mut machine = self.machine.borrow_mut();
                    let doubtful = std::mem::take(&mut self.doubtful);
                    doubtful.iter().for_each(|&page| machine.discards(self.own.0, page));
                    effects.tell(Event::HasDiscarded(epoch, doubtful.len() as u64));
                }
            }
            self.recovery.done(epoch, step);
        }
    }

    /// Takes what the machines want, until they want nothing.
    fn go_on(&mut self, now: Time, effects: &mut Effects<'_, Event>) {
        while let Some((_, message)) = self.alerts.poll_transmit() {
            // A liar has its own words.
            if !self.lies {
                self.say(&self.others(), Said::Alerts(message), effects);
            }
        }
        while let Some((_, message)) = self.recovery.poll_transmit() {
            self.say(&self.others(), Said::Recovery(message), effects);
        }
        while let Some(event) = self.alerts.poll_event() {
            match event {
                alerts::Event::Look { suspect, finding, .. } => {
                    let tick = self.machine.borrow().tick(suspect);
                    let waits = if finding == Finding::Silent { LOOKS_APART } else { Duration::ZERO };
                    self.looks.push((now.saturating_add(waits), suspect, finding, tick));
                }
                alerts::Event::Verdict { suspect, finding } => effects.tell(Event::Verdict(suspect, finding)),
                alerts::Event::VotedDown { .. } => effects.tell(Event::VotedDown),
            }
        }
        while let Some(event) = self.recovery.poll_event() {
            let at = now.saturating_add(self.dice.between(Duration::ZERO..STEP));
            match event {
                recovery::Event::CutOff { epoch, dead } => {
                    self.is_held_up = true;
                    for (cell, _) in dead {
                        let taken = self.machine.borrow_mut().firewall(self.own.0).revoke_all_of(cell.0);
                        self.doubtful.extend(taken.into_iter().flatten());
                    }
                    self.work.push((at, epoch, Step::CutOff));
                }
                recovery::Event::Discard { epoch, .. } => {
                    effects.tell(Event::Discards(epoch));
                    self.work.push((at, epoch, Step::Discard));
                }
                recovery::Event::Resumed { epoch, dead, master } => {
                    self.is_held_up = false;
                    effects.tell(Event::Resumed { epoch, dead, is_master: master });
                }
            }
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.machine.borrow_mut().ends(self.own.0);
    }
}

impl Actor for Cell {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, input: Input<'_, Command>, effects: &mut Effects<'_, Event>) {
        let now = effects.now();
        match input {
            Input::Message { from, bytes } => self.hear(from, bytes, effects),
            Input::Command(Command::View(epoch, members)) => self.view(now, epoch, &members, effects),
            Input::Command(Command::BecomeCorrupt) => {
                self.is_corrupt = true;
                self.machine.borrow_mut().becomes_corrupt(self.own.0);
            }
            Input::Command(Command::Lie) => self.lies = true,
            Input::Started | Input::Timeout | Input::Synced { .. } => {}
        }
        self.alerts.handle_timeout(now);
        if now >= self.ticks_at {
            self.ticks_at = now.saturating_add(TICK);
            self.tick(now);
            self.share(effects);
            if self.lies || self.is_corrupt {
                self.go_wrong(effects);
            }
        }
        self.work(now, effects);
        self.go_on(now, effects);
        for (peer, frame) in self.again(now) {
            self.send(peer, &frame, effects);
        }
    }

    fn describe(frame: &[u8]) -> String {
        let number = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().expect("eight"));
        match frame[LIVES + HEAD..].split_first() {
            None => format!("all taken up to {}", number(LIVES + 8)),
            Some(_) => match postcard::from_bytes::<Said>(&frame[LIVES + HEAD..]) {
                Ok(said) => format!("{}: {said:?}", number(LIVES)),
                Err(error) => error.to_string(),
            },
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let looks = self.looks.iter().map(|(at, ..)| *at);
        let work = self.work.iter().map(|(at, ..)| *at);
        [Some(self.ticks_at), self.alerts.next_timeout()].into_iter().flatten().chain(looks).chain(work).min()
    }
}

impl Cell {
    /// Frames that are owed, and those that may have been lost.
    fn again(&mut self, now: Time) -> Vec<(Life, Vec<u8>)> {
        let is_due = now >= self.again_at;
        if is_due {
            self.again_at = now.saturating_add(AGAIN);
        }
        let mut frames = Vec::new();
        for (&peer, channel) in &mut self.channels {
            frames.extend(channel.acknowledgement().map(|frame| (peer, frame)));
            if is_due {
                frames.extend(channel.again().into_iter().map(|frame| (peer, frame)));
            }
        }
        frames
    }
}
