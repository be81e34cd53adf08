//! One claim, figure or row of a paper, with what was measured for it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Words that a note begins with, of what nothing here measures yet.
pub(crate) const PENDING: &str = "pending";
const NOT_MEASURED: &str = "not measured";
/// The same, of what no machine of today can have: the paper's own is the number.
const HISTORY: &str = "history";

/// One claim, figure or row of a paper.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) paper: Cow<'static, str>,
    pub(crate) item: String,
    /// None where the text gives none.
    pub(crate) paper_value: Option<f64>,
    /// None while nothing here measures it.
    pub(crate) measured: Option<f64>,
    /// The classic way, in the same run.
    pub(crate) baseline: Option<f64>,
    pub(crate) unit: Cow<'static, str>,
    pub(crate) command: String,
    pub(crate) note: String,
}

/// What a reader is told of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Measured,
    /// A number of its time, for which there is nothing to measure here.
    History,
    /// Not measured: nothing here does it yet, or the run did not come so far.
    Pending,
}

impl Item {
    pub(crate) fn state(&self) -> State {
        match self.measured {
            Some(_) => State::Measured,
            None if self.note.starts_with(HISTORY) => State::History,
            None => State::Pending,
        }
    }

    /// Whether a run is not going to measure it either.
    pub(crate) fn is_waiting(&self) -> bool {
        self.measured.is_none() && (self.note.starts_with(PENDING) || self.note.starts_with(NOT_MEASURED))
    }
}

/// How many there are of each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) items: usize,
    pub(crate) measured: usize,
    pub(crate) history: usize,
    pub(crate) pending: usize,
}

impl Counts {
    pub(crate) fn of(items: &[Item]) -> Self {
        let count = |state| items.iter().filter(|item| item.state() == state).count();
        Self {
            items: items.len(),
            measured: count(State::Measured),
            history: count(State::History),
            pending: count(State::Pending),
        }
    }
}

/// Three digits that count, or two behind the point.
pub(crate) fn readable(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        v if v >= 0.01 => format!("{value:.4}"),
        v if v >= 0.001 => format!("{value:.5}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::item;

    #[test]
    fn what_has_no_number_is_pending_or_history() {
        let plain = item("unet", "a row", 1.0, "µs");
        assert_eq!(plain.state(), State::Pending, "the run did not come so far");
        assert!(!plain.is_waiting(), "the next may");
        let measured = plain.clone().ours(Some(0.0)).pending("nothing");
        assert!(measured.state() == State::Measured && !measured.is_waiting());
        let history = plain.clone().note("history: a machine of 1995");
        assert!(history.state() == State::History && !history.is_waiting());
        assert!(plain.clone().pending("a program").is_waiting());
        assert!(plain.clone().note("not measured apart: it is in the whole").is_waiting());
        let all = [plain, measured, history];
        assert_eq!(Counts::of(&all), Counts { items: 3, measured: 1, history: 1, pending: 1 });
    }

    #[test]
    fn small_numbers_are_not_nothing() {
        let shown = [0.0, 31_115.4, 65.0, 0.5, 0.052_25, 0.001_234_5, 0.000_001_234].map(readable);
        assert_eq!(shown, ["0", "31115", "65.0", "0.50", "0.0522", "0.00123", "1.23e-6"]);
    }

    #[test]
    fn an_item_has_the_agreed_fields() {
        let json = serde_json::to_value(item("unet", "a row", 1.0, "µs")).unwrap();
        let mut fields: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut agreed = ["paper", "item", "paper_value", "measured", "baseline", "unit", "command", "note"];
        agreed.sort_unstable();
        fields.sort_unstable();
        assert_eq!(fields, agreed);
    }
}
