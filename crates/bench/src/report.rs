//! What a benchmark says: one row a claim, as a table for people or a JSON object a line for programs.

use std::fmt;
use std::io::IsTerminal;

use serde::Serialize;

/// Whether somebody looks at standard error who wants to know how far a measurement is, and nobody parses it.
pub(crate) fn shows_progress(json: bool) -> bool {
    !json && std::io::stderr().is_terminal()
}

/// What a claim's ratio has to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Measured for the record.
    None,
}

impl Goal {
    fn is_met_by(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(ratio <= limit),
            Self::AtLeast(limit) => Some(ratio >= limit),
            Self::None => None,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
            Self::None => f.write_str("–"),
        }
    }
}

/// A claim and what was measured for it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) claim: String,
    pub(crate) ours: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) peer: String,
    pub(crate) theirs: Option<f64>,
    /// Ours by theirs or theirs by ours, as the goal wants it.
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: Goal,
    /// Why something is missing.
    pub(crate) note: String,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    claim: &'a str,
    ours: Option<f64>,
    unit: &'a str,
    peer: &'a str,
    theirs: Option<f64>,
    ratio: Option<f64>,
    goal: String,
    met: Option<bool>,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
}

impl Row {
    /// `None` where there is no goal. What was not measured is not met.
    pub(crate) fn met(&self) -> Option<bool> {
        match (self.goal, self.ratio) {
            (Goal::None, _) => None,
            (goal, Some(ratio)) => goal.is_met_by(ratio),
            (_, None) => Some(false),
        }
    }

    pub(crate) fn json(&self) -> String {
        let row = JsonRow {
            claim: &self.claim,
            ours: self.ours,
            unit: self.unit,
            peer: &self.peer,
            theirs: self.theirs,
            ratio: self.ratio,
            goal: self.goal.to_string(),
            met: self.met(),
            note: &self.note,
        };
        serde_json::to_string(&row).expect("plain data")
    }
}

/// Prints the rows, in the order given; rows that were lost or not measured stand among the others.
pub(crate) fn print(rows: &[Row], json: bool) {
    if json {
        for row in rows {
            println!("{}", row.json());
        }
        return;
    }
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), readable);
    let width = rows.iter().map(|row| row.claim.chars().count()).max().unwrap_or(0);
    println!(
        "{:width$}  {:>10} {:>8}  {:<20} {:>10}  {:>7} {:>7}",
        "claim", "ours", "", "peer", "theirs", "ratio", "goal"
    );
    for row in rows {
        let met = match row.met() {
            Some(true) => "met",
            Some(false) if row.ratio.is_none() => "not measured",
            Some(false) => "NOT MET",
            None => "",
        };
        let ratio = row.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        println!(
            "{:width$}  {:>10} {:>8}  {:<20} {:>10}  {:>7} {:>7}  {met}{}{}",
            row.claim,
            number(row.ours),
            row.unit,
            row.peer,
            number(row.theirs),
            ratio,
            row.goal.to_string(),
            if row.note.is_empty() { "" } else { "  " },
            row.note,
        );
    }
    let with_goal: Vec<bool> = rows.iter().filter_map(Row::met).collect();
    let met = with_goal.iter().filter(|met| **met).count();
    println!("\n{met} of {} claims met", with_goal.len());
}

/// Three digits that count.
fn readable(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.2} G", value / 1e9),
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(goal: Goal, ratio: Option<f64>) -> Row {
        Row {
            claim: "round trip".into(),
            ours: Some(480.0),
            unit: "ns",
            peer: "bare".into(),
            theirs: Some(400.0),
            ratio,
            goal,
            note: String::new(),
        }
    }

    #[test]
    fn a_claim_without_a_measurement_is_not_met() {
        assert_eq!(row(Goal::AtMost(1.2), Some(1.2)).met(), Some(true));
        assert_eq!(row(Goal::AtMost(1.2), Some(1.21)).met(), Some(false));
        assert_eq!(row(Goal::AtLeast(1.2), Some(1.19)).met(), Some(false));
        assert_eq!(row(Goal::AtLeast(1.2), None).met(), Some(false));
        assert_eq!(row(Goal::None, Some(3.0)).met(), None);
    }

    #[test]
    fn the_json_row_has_the_agreed_fields() {
        let json: serde_json::Value =
            serde_json::from_str(&row(Goal::AtMost(1.2), Some(1.2)).json()).unwrap();
        for field in ["claim", "ours", "unit", "peer", "theirs", "ratio", "goal", "met"] {
            assert!(json.get(field).is_some(), "{field}");
        }
    }
}
