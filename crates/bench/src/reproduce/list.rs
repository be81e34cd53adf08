//! Which papers there are, and how far each is measured.

use std::time::Duration;

use serde::Serialize;

use super::findings::Findings;
use super::item::Counts;
use super::page;
use super::paper::Paper;

/// For people, or an object a line for programs.
pub(super) fn list(findings: &Findings, json: bool) -> String {
    let rows: Vec<Listed> = Paper::ALL.into_iter().map(|paper| Listed::of(paper, findings)).collect();
    if !json {
        return table(&rows);
    }
    rows.iter().map(|row| serde_json::to_string(row).expect("plain data") + "\n").collect()
}

/// A paper in the list.
#[derive(Serialize)]
struct Listed {
    paper: &'static str,
    title: &'static str,
    items: usize,
    /// Of its last run here.
    measured: usize,
    history: usize,
    /// Of its last run; before one, what nothing measures.
    pending: usize,
    /// As its last run here took; before one about; none while nothing measures it.
    takes_s: Option<u64>,
    /// When its last run came to its end.
    measured_at: Option<String>,
}

impl Listed {
    fn of(paper: Paper, findings: &Findings) -> Self {
        let run = findings.of(paper.name()).and_then(|part| part.run.as_ref());
        let (items, pending) = match run {
            Some(run) => (run.items.clone(), Counts::of(&run.items).pending),
            None => {
                let items = paper.unmeasured();
                let waiting = items.iter().filter(|item| item.is_waiting()).count();
                (items, waiting)
            }
        };
        let counts = Counts::of(&items);
        let took = run.map(|run| Duration::try_from_secs_f64(run.took_s).unwrap_or_default());
        Self {
            paper: paper.name(),
            title: paper.title(),
            items: counts.items,
            measured: counts.measured,
            history: counts.history,
            pending,
            takes_s: took.or(paper.takes()).map(|takes| takes.as_secs()),
            measured_at: run.map(|run| run.measured_at.clone()),
        }
    }
}

fn table(rows: &[Listed]) -> String {
    let line = |paper: &str, items: &str, pending: &str, takes: &str, last: &str, title: &str| {
        format!("{paper:<13} {items:>5} {pending:>8}  {takes:>7}  {last:<17} {title}\n")
    };
    let mut text = line("PAPER", "ITEMS", "PENDING", "TAKES", "LAST RUN", "CLAIMS OF");
    for row in rows {
        let (takes, last) = match (row.takes_s, &row.measured_at) {
            (None, None) => ("–".to_owned(), "–".to_owned()),
            (takes, at) => (
                takes.map_or_else(String::new, |takes| page::about(Duration::from_secs(takes))),
                at.as_deref().map_or_else(|| "never".to_owned(), page::day),
            ),
        };
        text.push_str(&line(
            row.paper,
            &row.items.to_string(),
            &row.pending.to_string(),
            &takes,
            &last,
            row.title,
        ));
    }
    text.push_str(
        "\nPending is what nothing here measures yet, and after a run all that it did not measure. A run takes as long as the last one\n\
         here; before it, about as long as on two cores beside little else.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_is_listed_with_what_is_known_of_it() {
        let rows: Vec<Listed> =
            Paper::ALL.into_iter().map(|paper| Listed::of(paper, &Findings::default())).collect();
        for row in &rows {
            assert!(row.pending + row.history <= row.items && row.measured_at.is_none(), "{}", row.paper);
            if row.takes_s.is_none() {
                assert_eq!(
                    row.pending + row.history,
                    row.items,
                    "{}: what does the rest wait for?",
                    row.paper
                );
            } else {
                assert!(row.pending < row.items, "{}: a run would measure nothing", row.paper);
            }
        }
        let text = table(&rows);
        for paper in Paper::ALL {
            assert!(text.contains(&format!("\n{:<13}", paper.name())), "{text}");
        }
    }
}
