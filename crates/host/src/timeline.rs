//! What became of a failure, put together from events: who noticed when, when all had agreed, how long each step took, and when the cell was back.

use std::collections::VecDeque;

use serde::Serialize;

use crate::events::{Event, What};

/// Failures that are remembered, the newest last.
const MOST_FAILURES: usize = 32;
/// Cells that notice something a moment before anybody says that it has happened.
const EARLY_NS: u64 = 5_000_000_000;

/// How far a failure has come. In this order, as a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum Step {
    /// The cell was killed, stopped, or ended.
    #[serde(rename = "end")]
    End,
    /// The first of the others has noticed.
    #[serde(rename = "hint")]
    Hint,
    /// The first has said so to all.
    #[serde(rename = "alert")]
    Alert,
    /// Most have found the same.
    #[serde(rename = "verdict")]
    Verdict,
    /// The last has agreed on who lives.
    #[serde(rename = "agreement")]
    Agreement,
    /// The last has come to the first barrier: the dead have no rights any more.
    #[serde(rename = "barrier 1")]
    FirstBarrier,
    /// The last has thrown away what the dead could have damaged.
    #[serde(rename = "discard")]
    Discard,
    /// The last has come to the second barrier.
    #[serde(rename = "barrier 2")]
    SecondBarrier,
    /// The last has gone on.
    #[serde(rename = "resume")]
    Resume,
    /// Another life of the cell has begun.
    #[serde(rename = "restart")]
    Restart,
    /// It is at work.
    #[serde(rename = "reintegrated")]
    Reintegrated,
}

impl Step {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Hint => "hint",
            Self::Alert => "alert",
            Self::Verdict => "verdict",
            Self::Agreement => "agreement",
            Self::FirstBarrier => "barrier 1",
            Self::Discard => "discard",
            Self::SecondBarrier => "barrier 2",
            Self::Resume => "resume",
            Self::Restart => "restart",
            Self::Reintegrated => "reintegrated",
        }
    }

    /// Whether the first of the cells counts, or the last.
    fn is_of_first(self) -> bool {
        matches!(self, Self::Hint | Self::Alert | Self::Verdict)
    }

    fn detail(self, by: Option<u32>) -> String {
        let who = by.map_or_else(|| "the agent".to_owned(), |by| format!("cell {by}"));
        match self {
            Self::End => "its end began".to_owned(),
            Self::Hint => format!("{who} noticed first"),
            Self::Alert => format!("{who} raised an alert"),
            Self::Verdict => "most have found it failed".to_owned(),
            Self::Agreement => format!("all agree on who lives; {who} was last"),
            Self::FirstBarrier => format!("its rights are taken away everywhere; {who} was last"),
            Self::Discard => format!("what it could have damaged is thrown away; {who} was last"),
            Self::SecondBarrier => format!("all know that; {who} was last"),
            Self::Resume => format!("all are at work again; {who} was last"),
            Self::Restart => "its next life began".to_owned(),
            Self::Reintegrated => "it is one of the cells again".to_owned(),
        }
    }
}

/// One step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reached {
    /// Which.
    pub step: Step,
    /// On `CLOCK_MONOTONIC`.
    #[serde(skip)]
    pub at_ns: u64,
    /// Since the cell's end began, or since the first of the others noticed.
    pub after_ms: f64,
    /// Who did it.
    pub by: Option<u32>,
    /// In words.
    pub detail: String,
}

/// One failure of one cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Failure {
    /// Which cell.
    pub cell: u32,
    /// Which life of it; 0: not known.
    pub incarnation: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How it ended; empty: it has not yet.
    pub cause: String,
    /// Pages that were thrown away, in all cells.
    pub discarded_pages: u64,
    /// What these were of, as far as that is known.
    pub regions: Vec<String>,
    /// In the order in which they were reached.
    pub steps: Vec<Reached>,
    /// When it began, on `CLOCK_MONOTONIC`; and whether that is known, or only when it was noticed first.
    #[serde(skip)]
    since: Option<u64>,
}

impl Failure {
    /// When a step was reached, in milliseconds.
    pub fn after_ms(&self, step: Step) -> Option<f64> {
        self.steps.iter().find(|reached| reached.step == step).map(|reached| reached.after_ms)
    }

    /// Whether the cell is back.
    pub fn is_over(&self) -> bool {
        self.after_ms(Step::Reintegrated).is_some()
    }

    fn begun(cell: u32, incarnation: u64, event: &Event) -> Self {
        Self {
            cell,
            incarnation,
            at_ms: event.at_ms,
            cause: String::new(),
            discarded_pages: 0,
            regions: Vec::new(),
            steps: Vec::new(),
            since: None,
        }
    }

    fn reach(&mut self, step: Step, at_ns: u64, by: Option<u32>) {
        let reached = Reached { step, at_ns, after_ms: 0.0, by, detail: step.detail(by) };
        match self.steps.iter_mut().find(|known| known.step == step) {
            Some(known) if step.is_of_first() == (at_ns < known.at_ns) => *known = reached,
            Some(_) => {}
            None => self.steps.push(reached),
        }
        // A clock that all cells of a host share.
        let first = self.steps.iter().map(|reached| reached.at_ns).min();
        let since = self.since.or(first).unwrap_or(at_ns);
        for reached in &mut self.steps {
            #[expect(clippy::cast_precision_loss, reason = "some seconds in nanoseconds")]
            let after = (reached.at_ns.saturating_sub(since)) as f64 / 1e6;
            reached.after_ms = (after * 1000.0).round() / 1000.0;
        }
        self.steps.sort_by_key(|reached| (reached.at_ns, reached.step));
    }

    fn ends_at(&mut self, at_ns: u64) {
        if self.since.is_none() {
            self.since = Some(at_ns);
            self.reach(Step::End, at_ns, None);
        }
    }
}

/// The last failures.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    all: VecDeque<Failure>,
}

impl Failures {
    /// The newest last.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Failure> {
        self.all.iter()
    }

    /// The one of this cell that is not over, or the last of it.
    pub fn of(&self, cell: u32) -> Option<&Failure> {
        self.all.iter().rev().find(|failure| failure.cell == cell)
    }

    /// Takes an event. `true`: something about a failure has changed.
    pub fn take(&mut self, event: &Event) -> bool {
        match &event.what {
            What::CellStruck { cell, incarnation, struck_ns, .. } => {
                self.open(*cell, *incarnation, event).ends_at(*struck_ns);
            }
            What::CellCondemned { cell, incarnation } => {
                self.open(*cell, *incarnation, event).reach(Step::Verdict, event.at_ns, None);
            }
            What::CellNoticed { cell, by, noticed_ns } => {
                // Channels of a cell that ends in good order, or is back already, end as well.
                let Some(failure) = self.under_way(*cell, *noticed_ns) else { return false };
                failure.reach(Step::Hint, *noticed_ns, Some(*by));
            }
            What::CellEnded { cell, incarnation, planned: true, .. } => {
                // Whoever was quick has taken it for one.
                self.all.retain(|known| (known.cell, known.incarnation) != (*cell, *incarnation));
            }
            What::CellEnded { cell, incarnation, killed_ns, how, .. } => {
                let failure = self.open(*cell, *incarnation, event);
                failure.cause.clone_from(how);
                if failure.since.is_none() && failure.after_ms(Step::Verdict).is_none() {
                    let noticed = failure.steps.iter().map(|reached| reached.at_ns).min();
                    failure.ends_at(killed_ns.or(noticed).unwrap_or(event.at_ns).min(event.at_ns));
                }
            }
            What::CellRecovered { by, recovered } => {
                let mut is_known = false;
                for dead in &recovered.dead {
                    let Some(failure) = self.under_way(*dead, recovered.resumed_ns) else { continue };
                    is_known = true;
                    let steps = recovered.steps;
                    let reached = [
                        (Step::Hint, steps.hint_ns),
                        (Step::Alert, steps.alert_ns),
                        (Step::Verdict, steps.verdict_ns),
                        (Step::Agreement, Some(recovered.entered_ns)),
                        (Step::FirstBarrier, steps.first_barrier_ns),
                        (Step::Discard, steps.discarded_ns),
                        (Step::SecondBarrier, steps.second_barrier_ns),
                        (Step::Resume, Some(recovered.resumed_ns)),
                    ];
                    for (step, at_ns) in reached {
                        let since = failure.since.unwrap_or(0);
                        if let Some(at_ns) = at_ns.filter(|&at_ns| at_ns >= since) {
                            failure.reach(step, at_ns, Some(*by));
                        }
                    }
                    failure.discarded_pages += recovered.discarded_pages;
                    for region in &recovered.regions {
                        if !failure.regions.contains(region) {
                            failure.regions.push(region.clone());
                        }
                    }
                }
                return is_known;
            }
            What::CellStarted { cell, incarnation, .. } => {
                let Some(failure) = self.ended(*cell, *incarnation) else { return false };
                failure.reach(Step::Restart, event.at_ns, None);
            }
            What::CellUp { cell, incarnation } => {
                let Some(failure) = self.ended(*cell, *incarnation) else { return false };
                failure.reach(Step::Reintegrated, event.at_ns, None);
            }
            _ => return false,
        }
        true
    }

    fn open(&mut self, cell: u32, incarnation: u64, event: &Event) -> &mut Failure {
        let is_it = |known: &Failure| known.cell == cell && known.incarnation == incarnation;
        if let Some(at) = self.all.iter().rposition(is_it) {
            return &mut self.all[at];
        }
        if self.all.len() >= MOST_FAILURES {
            self.all.pop_front();
        }
        self.all.push_back(Failure::begun(cell, incarnation, event));
        self.all.back_mut().expect("just put there")
    }

    /// The failure of a cell to which something belongs that happened then.
    fn under_way(&mut self, cell: u32, at_ns: u64) -> Option<&mut Failure> {
        let last = self.all.iter_mut().rev().find(|failure| failure.cell == cell)?;
        let began = last.since.or_else(|| last.steps.first().map(|reached| reached.at_ns))?;
        let up = last.steps.iter().find(|reached| reached.step == Step::Reintegrated);
        let is_before = up.is_none_or(|reached| at_ns <= reached.at_ns);
        (at_ns.saturating_add(EARLY_NS) >= began && is_before).then_some(last)
    }

    /// The failure that a life of a cell comes after.
    fn ended(&mut self, cell: u32, incarnation: u64) -> Option<&mut Failure> {
        let last = self.all.iter_mut().rev().find(|failure| failure.cell == cell)?;
        (last.incarnation < incarnation && !last.is_over()).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use comb_cell::supervision::{Recovered, Steps};

    use super::*;

    fn at(at_ns: u64, what: What) -> Event {
        Event { seq: at_ns, at_ms: 5, at_ns, what, text: String::new() }
    }

    fn recovered(by: u32, entered_ns: u64, steps: Steps) -> What {
        let resumed_ns = entered_ns + 900_000;
        let recovered = Recovered {
            dead: vec![2],
            entered_ns,
            resumed_ns,
            discarded_pages: 3,
            steps,
            ..Recovered::default()
        };
        What::CellRecovered { by, recovered }
    }

    fn take_all(events: impl IntoIterator<Item = Event>) -> Failures {
        let mut failures = Failures::default();
        for event in events {
            failures.take(&event);
        }
        failures
    }

    #[test]
    fn a_kill_is_told_from_its_first_moment_until_the_cell_is_back() {
        let m = 1_000_000;
        let steps = |first| Steps { first_barrier_ns: Some(first), ..Steps::default() };
        let killed_ns = Some(100 * m);
        let failures = take_all([
            at(100 * m + 7, What::CellStruck { cell: 2, incarnation: 1, hangs: false, struck_ns: 100 * m }),
            at(101 * m, What::CellNoticed { cell: 2, by: 3, noticed_ns: 100 * m + 700_000 }),
            at(102 * m, What::CellNoticed { cell: 2, by: 1, noticed_ns: 100 * m + 400_000 }),
            at(103 * m, recovered(1, 101 * m, steps(102 * m))),
            at(
                104 * m,
                What::CellEnded {
                    cell: 2,
                    incarnation: 1,
                    pid: 7,
                    killed_ns,
                    how: "killed".to_owned(),
                    planned: false,
                },
            ),
            at(105 * m, recovered(3, 102 * m, steps(103 * m))),
            at(106 * m, What::CellStarted { cell: 2, incarnation: 2, pid: 8 }),
            at(150 * m, What::CellUp { cell: 2, incarnation: 2 }),
        ]);
        let failure = failures.of(2).unwrap();
        let told: Vec<(Step, f64, Option<u32>)> =
            failure.steps.iter().map(|reached| (reached.step, reached.after_ms, reached.by)).collect();
        let expected = [
            (Step::End, 0.0, None),
            (Step::Hint, 0.4, Some(1)),
            (Step::Agreement, 2.0, Some(3)),
            (Step::Resume, 2.9, Some(3)),
            (Step::FirstBarrier, 3.0, Some(3)),
            (Step::Restart, 6.0, None),
            (Step::Reintegrated, 50.0, None),
        ];
        assert_eq!(told, expected);
        assert_eq!((failure.discarded_pages, failure.cause.as_str(), failure.is_over()), (6, "killed", true));
        assert_eq!(failures.all().count(), 1);
    }

    #[test]
    fn a_hang_is_told_with_its_alert_and_the_verdict() {
        let m = 1_000_000;
        let steps = Steps {
            hint_ns: Some(12 * m),
            alert_ns: Some(13 * m),
            verdict_ns: Some(14 * m),
            ..Steps::default()
        };
        let failures = take_all([
            at(2 * m + 7, What::CellStruck { cell: 2, incarnation: 4, hangs: true, struck_ns: 2 * m }),
            at(15 * m, What::CellCondemned { cell: 2, incarnation: 4 }),
            at(18 * m, recovered(1, 16 * m, steps)),
        ]);
        let failure = failures.of(2).unwrap();
        for (step, after) in
            [(Step::Hint, 10.0), (Step::Alert, 11.0), (Step::Verdict, 12.0), (Step::Agreement, 14.0)]
        {
            assert_eq!(failure.after_ms(step), Some(after), "{step:?}");
        }
        assert!(!failure.is_over());
    }

    #[test]
    fn what_comes_late_of_a_failure_that_is_over_changes_nothing_of_the_next() {
        let mut failures = take_all([
            at(100, What::CellStruck { cell: 2, incarnation: 1, hangs: false, struck_ns: 100 }),
            at(200, What::CellStarted { cell: 2, incarnation: 2, pid: 8 }),
            at(300, What::CellUp { cell: 2, incarnation: 2 }),
        ]);
        assert!(!failures.take(&at(900, What::CellNoticed { cell: 2, by: 1, noticed_ns: 800 })));
        assert!(!failures.take(&at(900, What::CellUp { cell: 2, incarnation: 2 })));
        assert!(
            failures
                .take(&at(1000, What::CellStruck { cell: 2, incarnation: 2, hangs: false, struck_ns: 1000 }))
        );
        assert_eq!(failures.all().count(), 2);
    }

    #[test]
    fn a_cell_that_ends_as_it_was_told_has_not_failed() {
        let ended = What::CellEnded {
            cell: 2,
            incarnation: 1,
            pid: 7,
            killed_ns: None,
            how: "ended as it was told".to_owned(),
            planned: true,
        };
        let failures = take_all([
            at(90, What::CellNoticed { cell: 2, by: 1, noticed_ns: 80 }),
            at(95, recovered(1, 90, Steps::default())),
            at(100, ended),
            at(200, What::CellStarted { cell: 2, incarnation: 2, pid: 8 }),
            at(300, What::CellUp { cell: 2, incarnation: 2 }),
        ]);
        assert_eq!(failures.all().count(), 0);
    }

    #[test]
    fn few_are_remembered() {
        let struck = |incarnation| {
            at(incarnation, What::CellStruck { cell: 2, incarnation, hangs: false, struck_ns: incarnation })
        };
        let failures = take_all((1..100).map(struck));
        assert_eq!(failures.all().count(), MOST_FAILURES);
        assert_eq!(failures.of(2).unwrap().incarnation, 99);
    }
}
