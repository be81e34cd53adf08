//! Tables, figures and verdicts as CSV.

use super::{Report, Value};

/// A field: in quotation marks where it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn line(fields: &[String]) -> String {
    let mut line = fields.join(",");
    line.push('\n');
    line
}

fn words(words: &[&str]) -> String {
    line(&words.iter().map(|word| field(word)).collect::<Vec<_>>())
}

/// All files: their names and contents.
pub(super) fn files(report: &Report) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for table in &report.tables {
        let mut text = words(&["what", "unit", "value", "least", "most", "nt", "sprite", "bsd", "note"]);
        for row in &table.rows {
            let Value { value, least, most } = row.here;
            let known = |known: &Option<String>| field(known.as_deref().unwrap_or_default());
            text.push_str(&line(&[
                field(&row.what),
                field(row.unit),
                number(value),
                number(least),
                number(most),
                known(&row.nt),
                known(&row.sprite),
                known(&row.bsd),
                field(&row.note),
            ]));
        }
        files.push((format!("table-{}.csv", table.number), text));
    }
    for figure in &report.figures {
        let mut text = words(&["series", figure.x.label, figure.y.label]);
        for series in &figure.series {
            for (x, y) in &series.points {
                text.push_str(&line(&[field(&series.name), x.to_string(), y.to_string()]));
            }
        }
        files.push((format!("figure-{}.csv", figure.number), text));
    }
    let mut text = words(&[
        "what",
        "unit",
        "values",
        "mean",
        "p50",
        "p90",
        "p99",
        "most",
        "verdict",
        "hill_alpha",
        "hill_low",
        "hill_high",
        "line_alpha",
        "normal_r2",
        "pareto_r2",
        "reason",
    ]);
    for one in &report.distributions {
        let hill = |place: usize| number(one.hill_alpha.map(|alpha| alpha[place]));
        text.push_str(&line(&[
            field(one.what),
            field(one.unit),
            one.values.to_string(),
            one.mean.to_string(),
            one.percentile_50.to_string(),
            one.percentile_90.to_string(),
            one.percentile_99.to_string(),
            one.most.to_string(),
            field(&one.verdict),
            hill(0),
            hill(1),
            hill(2),
            number(one.line_alpha),
            number(one.normal_straightness),
            number(one.pareto_straightness),
            field(&one.reason),
        ]));
    }
    files.push(("distributions.csv".to_owned(), text));
    if let Some(by) = report.by {
        let mut text = words(&[
            by,
            "operations",
            "errors",
            "sessions",
            "data_sessions",
            "read_bytes",
            "written_bytes",
            "whole_file_share",
            "random_share",
            "open_ms_50",
            "open_ms_90",
        ]);
        for group in &report.groups {
            text.push_str(&line(&[
                field(&group.name),
                group.operations.to_string(),
                group.errors.to_string(),
                group.sessions.to_string(),
                group.data_sessions.to_string(),
                group.read_bytes.to_string(),
                group.written_bytes.to_string(),
                number(group.whole_file_share),
                number(group.random_share),
                number(group.open_ms_50),
                number(group.open_ms_90),
            ]));
        }
        files.push((format!("by-{by}.csv"), text));
    }
    files
}
