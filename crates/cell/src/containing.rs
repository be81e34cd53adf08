//! What a cell does about failures: hints become alerts, alerts are voted on, and after each view the double barrier is gone through. The
//! protocols are [`comb_containment`]'s; this drives them for real.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use comb_containment::To;
use comb_containment::alerts::{self, Alerts, Finding};
use comb_containment::recovery::{self, Recovery, Step};
use comb_membership::View;
use comb_region::named::home::{Discarded, Home, Suspect};
use comb_types::{CellId, Incarnation, Time};
use serde::{Deserialize, Serialize};

use crate::clock::monotonic_ns;
use crate::shown::Others;
use crate::supervision::{self, Recovered, Report, Steps};
use crate::watch::{self, BETWEEN_LOOKS, Sight, Suspicion, TICK};

/// A home is at work for microseconds, and so long are blocks on their way home.
const BETWEEN_STEPS: Duration = Duration::from_micros(200);
/// From one walk through all that the watched cell shows to the next: what is corrupt there is not so for longer.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(25);
/// A barrier is passed within some milliseconds. What was said to a cell that there was no channel to is said again after this.
const BETWEEN_REPEATS: Duration = Duration::from_millis(20);
/// A cell that stood still and went on may do so again: whoever was voted down for it waits for longer than any pause is, so long.
const DOUBT: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// A hint that is older belongs to something else: it has led to no alert, or to none that was believed.
const OLDEST_HINT_NS: u64 = 5_000_000_000;
/// A look that has not come to an end by then finds nothing.
const LONGEST_LOOK: Duration = Duration::from_millis(15);

/// What cells say to each other about failures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Alert(alerts::Message),
    Recovery(recovery::Message),
}

/// A suspicion that is being looked into, for a vote.
#[derive(Debug)]
struct Look {
    suspect: CellId,
    finding: Finding,
    suspicion: Option<Suspicion>,
    since: Instant,
    next: Instant,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Containing {
    own: CellId,
    started: Instant,
    /// As the group counts.
    living: Vec<(CellId, Incarnation)>,
    /// Those of them whose memory this one can look at. Whoever is on another host is the network's and the agents' to miss.
    elsewhere: BTreeSet<CellId>,
    /// By which life of theirs, as the group counts, the living were first seen, and in which as they show. What a cell shows that begins again may come
    /// here earlier than the view without its life before.
    shown: BTreeMap<CellId, (Incarnation, Incarnation)>,
    /// Whose memory is not to be looked at any more, and in which life.
    gone: Vec<(CellId, Incarnation)>,
    alerts: Alerts,
    recovery: Recovery,
    /// The cell that this one watches, when it is looked at next, and what is suspicious.
    watched: Option<CellId>,
    next_watch: Instant,
    next_sweep: Instant,
    suspicion: Option<Suspicion>,
    /// Who is to be asked whether it is there.
    asked: Vec<CellId>,
    /// Of whom this cell was wrong when it said that it hangs, and when that was.
    doubt: Option<(CellId, Instant)>,
    /// On whom there was a verdict in this view.
    condemned: Vec<CellId>,
    looks: Vec<Look>,
    entered_ns: Option<u64>,
    next_repeat: Instant,
    /// The step of recovery that is being taken, and since when.
    under_way: Option<(Instant, recovery::Event)>,
    /// What fencing and discarding have taken so far.
    fenced: Duration,
    discarded: Discarded,
    /// When what came, since the last recovery was over.
    steps: Steps,
    reports: Vec<Report>,
}

impl Containing {
    pub(crate) fn new(own: CellId) -> Self {
        Self {
            own,
            started: Instant::now(),
            living: Vec::new(),
            elsewhere: BTreeSet::new(),
            shown: BTreeMap::new(),
            gone: Vec::new(),
            alerts: Alerts::new(own),
            recovery: Recovery::new(own),
            watched: None,
            next_watch: Instant::now(),
            next_sweep: Instant::now(),
            suspicion: None,
            asked: Vec::new(),
            doubt: None,
            condemned: Vec::new(),
            looks: Vec::new(),
            entered_ns: None,
            next_repeat: Instant::now(),
            under_way: None,
            fenced: Duration::ZERO,
            discarded: Discarded::default(),
            steps: Steps::default(),
            reports: Vec::new(),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO.saturating_add(self.started.elapsed())
    }

    /// The cells have agreed on who lives.
    pub(crate) fn view(&mut self, view: &View) {
        let living: Vec<(CellId, Incarnation)> =
            view.members.iter().map(|member| (CellId(member.node.0), member.incarnation)).collect();
        // As what a life of it shows that is over.
        let stays = |cell: &CellId| living.iter().find(|(other, _)| other == cell).map(|&(_, life)| life);
        let life_then = |cell| self.living.iter().find(|&&(other, _)| other == cell).map(|&(_, life)| life);
        self.doubt = self.doubt.filter(|(of, _)| stays(of) == life_then(*of));
        let shown = std::mem::take(&mut self.shown);
        let (kept, gone) = shown.into_iter().partition(|(cell, (life, _))| stays(cell) == Some(*life));
        self.shown = kept;
        self.gone.extend(gone.into_iter().map(|(cell, (_, shows))| (cell, shows)));
        self.recovery.view(view.epoch.0, &living);
        self.living = living;
        let here: Vec<CellId> = self.living_here().collect();
        self.alerts.living(self.now(), &here);
        if self.recovery.has_dead() {
            self.entered_ns.get_or_insert_with(monotonic_ns);
        }
        // Steps begin anew, but what is over is over.
        self.under_way =
            self.under_way.take().filter(|(_, event)| matches!(event, recovery::Event::Resumed { .. }));
        self.condemned.clear();
        self.choose_watched();
        self.looks.retain(|look| self.living.iter().any(|&(cell, _)| cell == look.suspect));
    }

    /// These cells are on other hosts. They have no part in the watch and the votes of this one's, and all in its barriers.
    pub(crate) fn learn_where(&mut self, elsewhere: BTreeSet<CellId>) {
        self.elsewhere = elsewhere;
        let here: Vec<CellId> = self.living_here().collect();
        self.alerts.living(self.now(), &here);
        self.choose_watched();
    }

    fn living_here(&self) -> impl Iterator<Item = CellId> + '_ {
        self.living.iter().map(|&(cell, _)| cell).filter(|cell| !self.elsewhere.contains(cell))
    }

    /// Whether a cell is gone, and what it could have damaged is not dealt with yet.
    pub(crate) fn is_recovering(&self) -> bool {
        self.entered_ns.is_some()
    }

    /// This cell's place in the ring of the living, and how many these are.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.living_here().filter(|&cell| cell < self.own).count(), self.living_here().count())
    }

    /// The next in the ring of those on whom there is no verdict.
    fn choose_watched(&mut self) {
        let sound: Vec<CellId> = self.living_here().filter(|cell| !self.condemned.contains(cell)).collect();
        self.watched = watch::watched_by(self.own, &sound);
        self.suspicion = None;
    }

    /// What another cell says of failures. `Err`: it cannot be, in words.
    pub(crate) fn hear(&mut self, from: CellId, message: &[u8]) -> Result<(), String> {
        let message = postcard::from_bytes(message).map_err(|_| "says what means nothing".to_owned())?;
        match message {
            // Who does not live in our view may live in the next, and have heard of it first.
            Message::Alert(alert) => match self.alerts.handle(self.now(), from, alert) {
                Err(alerts::PeerError::NotLiving(_)) => Ok(()),
                handled => handled.map_err(|error| error.to_string()),
            },
            Message::Recovery(reached) => {
                self.recovery.handle(from, reached).map_err(|error| error.to_string())
            }
        }
    }

    /// Calls to these had no answer in time.
    pub(crate) fn late(&mut self, cells: &[CellId]) {
        for &cell in cells {
            self.hint(cell, Finding::Late);
        }
    }

    /// Something speaks for a failure.
    pub(crate) fn hint(&mut self, suspect: CellId, finding: Finding) {
        self.noticed(monotonic_ns());
        self.alerts.hint(self.now(), suspect, finding);
        self.steps.alert_ns.get_or_insert_with(monotonic_ns);
    }

    /// A channel to another cell has ended, which may have failed.
    pub(crate) fn noticed(&mut self, at_ns: u64) {
        self.steps.hint_ns.get_or_insert(at_ns);
    }

    /// When [`Containing::work`] has something to do, if [`Containing::watch`] is called with each tick.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let looks = self.looks.iter().map(|look| look.next);
        let alerts = self.alerts.next_timeout();
        let alerts = alerts.map(|due| self.started + Duration::from_nanos(due.as_nanos()));
        // A cell that moves when it should is looked at with each tick.
        let watch = self.suspicion.is_some().then_some(self.next_watch);
        let step = self.under_way.as_ref().map(|_| Instant::now() + BETWEEN_STEPS);
        let step = step.into_iter().chain(self.recovery.is_recovering().then_some(self.next_repeat));
        looks.chain(alerts).chain(watch).chain(step).min()
    }

    /// Does what is due.
    pub(crate) fn work(&mut self, others: &Others, home: &Home, moves: &mut dyn FnMut()) {
        for (cell, life) in std::mem::take(&mut self.gone) {
            if others.life(cell) == Some(life) {
                others.forget(cell);
            }
        }
        for &(cell, life) in &self.living {
            if let Some(shows) = others.life(cell) {
                self.shown.entry(cell).or_insert((life, shows));
            }
        }
        let now = Instant::now();
        if now >= self.next_watch {
            self.watch(others);
        }
        for Suspect { cell, is_gone } in home.take_guilty() {
            let cell = CellId(cell);
            if let Some(finding) = others.moved(cell).and_then(|(_, moved)| moved.err()) {
                self.hint(cell, finding);
            } else if !is_gone {
                // Or what its pointers lead to is. Who finds nothing where the others will look either says nothing.
                let suspects = [cell].into_iter().chain(others.seen());
                if let Some(corrupt) =
                    suspects.into_iter().find(|&cell| others.is_corrupt(cell) == Some(true))
                {
                    self.hint(corrupt, Finding::Corrupt);
                }
            }
        }
        if self.alerts.next_timeout().is_some_and(|due| due <= self.now()) {
            self.alerts.handle_timeout(self.now());
        }
        self.take_alerts(others);
        self.go_on_looking(others, now);
        if now >= self.next_repeat {
            self.next_repeat = now + BETWEEN_REPEATS;
            self.recovery.repeat();
        }
        self.recover(home, moves);
    }

    /// Looks at the cell that is this one's to watch. `false`: something is suspicious, and there is work.
    pub(crate) fn watch(&mut self, others: &Others) -> bool {
        let now = Instant::now();
        self.next_watch = now + TICK;
        let Some(cell) = self.watched else { return true };
        match self.look_at(cell, others, now) {
            Ok(()) => self.suspicion.is_none(),
            Err(finding) => {
                self.hint(cell, finding);
                false
            }
        }
    }

    fn look_at(&mut self, cell: CellId, others: &Others, now: Instant) -> Result<(), Finding> {
        // One that has shown nothing yet is membership's to miss.
        let Some((process, tick)) = others.moved(cell) else { return Ok(()) };
        let tick = tick?;
        if now >= self.next_sweep {
            self.next_sweep = now + BETWEEN_SWEEPS;
            if others.is_corrupt(cell) == Some(true) {
                return Err(Finding::Corrupt);
            }
        }
        self.suspicion = self.suspicion.take().or_else(|| Suspicion::of(process, tick));
        let Some(suspicion) = &mut self.suspicion else { return Ok(()) };
        let is_in_doubt = self.doubt.is_some_and(|(of, since)| of == cell && since.elapsed() < DOUBT);
        match suspicion.look(tick) {
            Sight::Moves => self.suspicion = None,
            sight @ (Sight::Unclear | Sight::Anew | Sight::Asleep) => {
                self.next_watch = Instant::now() + suspicion.next_in();
                self.asked.extend((sight == Sight::Asleep).then_some(cell));
            }
            // It may go on in a moment, as it did before.
            Sight::Hangs if is_in_doubt && suspicion.lasts() < LONGEST_PAUSE => {}
            Sight::Hangs => {
                self.suspicion = None;
                return Err(Finding::Silent);
            }
        }
        Ok(())
    }

    fn take_alerts(&mut self, others: &Others) {
        while let Some(event) = self.alerts.poll_event() {
            match event {
                alerts::Event::Look { suspect, finding, .. } => {
                    self.steps.alert_ns.get_or_insert_with(monotonic_ns);
                    let now = Instant::now();
                    let look = Look { suspect, finding, suspicion: None, since: now, next: now };
                    self.looks.push(look);
                    self.go_on_looking(others, now);
                }
                alerts::Event::Verdict { suspect, finding } => {
                    self.steps.verdict_ns.get_or_insert_with(monotonic_ns);
                    // Until all have agreed on that, somebody has to look at who comes behind it.
                    self.condemned.push(suspect);
                    self.choose_watched();
                    let incarnation = others.life(suspect).map_or(0, |life| life.0);
                    self.reports.push(Report::Failed {
                        cell: suspect.0,
                        incarnation,
                        finding: finding.to_string(),
                    });
                }
                alerts::Event::VotedDown { suspect, finding, by } => {
                    // There is no failure, as far as most know; but for one that is agreed on already.
                    if self.steps.verdict_ns.is_none() {
                        self.steps = Steps::default();
                    }
                    if finding == Finding::Silent && by == self.own {
                        self.doubt = Some((suspect, Instant::now()));
                    }
                }
            }
        }
    }

    /// This cell looks for itself: what others say is not enough.
    fn go_on_looking(&mut self, others: &Others, now: Instant) {
        let mut seen = Vec::new();
        self.looks.retain_mut(|look| {
            if now < look.next {
                return true;
            }
            let found = look.found(others, &mut self.asked);
            match found {
                Some(agrees) => seen.push((look.suspect, look.finding, agrees)),
                // It has seen it neither move nor hang: it does not vote.
                None if now.duration_since(look.since) >= LONGEST_LOOK => {}
                None => {
                    look.next = now + BETWEEN_LOOKS;
                    return true;
                }
            }
            false
        });
        let now = self.now();
        for (suspect, finding, agrees) in seen {
            self.alerts.looked(now, suspect, finding, agrees);
        }
    }

    fn recover(&mut self, home: &Home, moves: &mut dyn FnMut()) {
        // What was under way is done first, unless a view has begun everything anew.
        while self.step(home, moves) {
            match self.recovery.poll_event() {
                Some(event) => {
                    let now_ns = Some(monotonic_ns());
                    match event {
                        recovery::Event::CutOff { .. } => {}
                        recovery::Event::Discard { .. } => self.steps.first_barrier_ns = now_ns,
                        recovery::Event::Resumed { .. } => self.steps.second_barrier_ns = now_ns,
                    }
                    self.under_way = Some((Instant::now(), event));
                }
                None => return,
            }
        }
    }

    /// Takes the step that is under way. `false`: the home is not so far; once more soon.
    fn step(&mut self, home: &Home, moves: &mut dyn FnMut()) -> bool {
        let Some((began, event)) = &self.under_way else { return true };
        let (began, is_fencing) = (*began, !matches!(event, recovery::Event::Resumed { .. }));
        let done = match event {
            recovery::Event::CutOff { epoch, dead } => {
                let done = home.cut_off(&numbers(dead));
                done.map(|()| {
                    self.steps.cut_off_ns = Some(monotonic_ns());
                    self.recovery.done(*epoch, Step::CutOff);
                })
            }
            recovery::Event::Discard { epoch, dead } => {
                home.discard(&numbers(dead), moves).map(|discarded| {
                    self.discarded.pages += discarded.pages;
                    self.discarded.regions.extend(discarded.regions);
                    self.steps.discarded_ns = Some(monotonic_ns());
                    self.recovery.done(*epoch, Step::Discard);
                })
            }
            recovery::Event::Resumed { epoch, dead, master } => {
                let (epoch, dead, master) = (*epoch, numbers(dead), *master);
                home.resume().map(|()| self.resumed(epoch, dead, master))
            }
        };
        if done.is_some() {
            self.under_way = None;
            if is_fencing {
                self.fenced += began.elapsed();
            }
        }
        done.is_some()
    }

    fn resumed(&mut self, epoch: u64, dead: Vec<u32>, is_master: bool) {
        let discarded = std::mem::take(&mut self.discarded);
        let fenced_ns = u64::try_from(std::mem::take(&mut self.fenced).as_nanos()).unwrap_or(u64::MAX);
        let entered_ns = self.entered_ns.take().unwrap_or_else(monotonic_ns);
        let steps = std::mem::take(&mut self.steps).from(entered_ns.saturating_sub(OLDEST_HINT_NS));
        if dead.is_empty() {
            return;
        }
        if is_master {
            self.reports.extend(dead.iter().map(|&cell| Report::Restart { cell }));
        }
        self.reports.push(Report::Recovered(Recovered {
            epoch,
            dead,
            entered_ns,
            resumed_ns: monotonic_ns(),
            fenced_ns,
            discarded_pages: discarded.pages,
            regions: discarded.regions,
            steps,
        }));
    }

    /// What is to be said to another cell, or to all.
    pub(crate) fn transmits(&mut self) -> Vec<(Option<CellId>, Vec<u8>)> {
        let mut messages = Vec::new();
        let pack = |message: &Message| postcard::to_allocvec(message).expect("plain data");
        let whom = |to| match to {
            To::One(cell) => Some(cell),
            To::Others => None,
        };
        while let Some((to, message)) = self.alerts.poll_transmit() {
            messages.push((whom(to), pack(&Message::Alert(message))));
        }
        while let Some((to, message)) = self.recovery.poll_transmit() {
            messages.push((whom(to), pack(&Message::Recovery(message))));
        }
        messages
    }

    /// Who is to be asked whether it is there: it would wake.
    pub(crate) fn asked(&mut self) -> Vec<CellId> {
        std::mem::take(&mut self.asked)
    }

    /// What the agent is to know.
    pub(crate) fn reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }
}

impl Look {
    /// Whether the finding is right; `None`: not known yet. Whom to ask whether it is there is added to `asked`.
    fn found(&mut self, others: &Others, asked: &mut Vec<CellId>) -> Option<bool> {
        let Some((process, tick)) = others.moved(self.suspect) else { return Some(false) };
        let tick = match (tick, self.finding) {
            // Whatever was found, this is worse.
            (Err(Finding::Gone | Finding::Leaving), _) => return Some(true),
            (Err(found), finding) => return Some(found == finding),
            (Ok(_), Finding::Gone | Finding::Leaving) => return Some(false),
            (Ok(_), Finding::Corrupt) => return others.is_corrupt(self.suspect),
            (Ok(tick), _) => tick,
        };
        self.suspicion = self.suspicion.take().or_else(|| Some(Suspicion::of(process, tick)?.as_alleged()));
        let Some(suspicion) = &mut self.suspicion else { return Some(false) };
        match suspicion.look(tick) {
            Sight::Moves => Some(false),
            Sight::Unclear | Sight::Anew => None,
            Sight::Asleep => {
                asked.push(self.suspect);
                None
            }
            Sight::Hangs => Some(true),
        }
    }
}

fn numbers(lives: &[(CellId, Incarnation)]) -> Vec<u32> {
    lives.iter().map(|(cell, _)| cell.0).collect()
}

/// A report that belongs in the log, as people read it.
pub(crate) fn sentence(report: &Report) -> Option<String> {
    Some(match report {
        Report::Failed { cell, finding, .. } => {
            format!("the cells agree that cell {cell} has failed: {finding}")
        }
        Report::Recovered(recovered) => supervision::sentence(recovered),
        _ => return None,
    })
}
