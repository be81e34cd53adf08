//! The report as a page of its own: nothing is fetched from anywhere.

use std::fmt::Write;

use super::plot::{escaped, svg};
use super::{Axis, Distribution, Figure, Report, Scale, Series, Style, Table, Value};

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1c1c1c;--dim:#666;--grid:#e4e4e4;--c0:#0b6e99;--c1:#c2410c;--c2:#3f7d20;--c3:#7c3aed;\
--c4:#a16207}
@media(prefers-color-scheme:dark){:root{--paper:#161616;--ink:#e8e8e8;--dim:#9a9a9a;--grid:#333;--c0:#5cb8e0;--c1:#f59b6c;--c2:#8fce6a;\
--c3:#b79bf7;--c4:#e0c060}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{margin-top:2.5rem;font-size:1.25rem}h3{font-size:1rem;margin:.2rem 0}
p.note,figcaption,.dim{color:var(--dim);font-size:.875rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.875rem}
th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--grid);vertical-align:top}
td.number,th.number{text-align:right;white-space:nowrap}td.range{white-space:nowrap}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(30rem,100%),1fr));gap:2rem}
figure{margin:0}svg{width:100%;height:auto;font:11px system-ui,sans-serif;fill:var(--dim)}
.grid{stroke:var(--grid)}.axis{fill:var(--ink);font-size:12px}.line{fill:none;stroke-width:2}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}
.dots{stroke:none}.dots.s0{fill:var(--c0)}.dots.s1{fill:var(--c1)}.dots.s2{fill:var(--c2)}.dots.s3{fill:var(--c3)}.dots.s4{fill:var(--c4)}
.key{display:flex;flex-wrap:wrap;gap:.25rem 1rem;font-size:.875rem;margin:.25rem 0}
.key i{display:inline-block;width:1rem;height:.25rem;vertical-align:middle;margin-right:.35rem}
.k0{background:var(--c0)}.k1{background:var(--c1)}.k2{background:var(--c2)}.k3{background:var(--c3)}.k4{background:var(--c4)}
nav a{margin-right:1rem}a{color:var(--c0)}";

/// A number as people read it.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if size >= 1e15 {
        format!("{value:.2e}")
    } else if size >= 100.0 {
        grouped(value.round())
    } else if size >= 0.01 {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.1e}")
    }
}

/// Thousands apart.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("−{text}") } else { text }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

fn range(value: &Value) -> String {
    match (value.least, value.most) {
        (Some(least), Some(most)) => format!("{} – {}", number(least), number(most)),
        _ => String::new(),
    }
}

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let about = &report.about;
    let mut text = String::new();
    let _ = write!(
        text,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>How files were used</title><style>{STYLE}</style></head><body><h1>How files were used</h1>"
    );
    let _ = write!(
        text,
        "<p>{} operations in {} sessions over {} s. {} events were lost.</p>",
        grouped_u64(about.operations),
        grouped_u64(about.sessions),
        number(about.seconds),
        grouped_u64(about.lost)
    );
    if about.lost > 0 {
        text.push_str("<p><b>Events were lost:</b> counts are too low, and some sessions seem longer than they were.</p>");
    }
    if let Some(suspended) = about.suspended() {
        let _ = write!(text, "<p><b>There are gaps:</b> {}.</p>", escaped(&suspended));
    }
    text.push_str("<ul>");
    for machine in &about.machines {
        let _ = write!(
            text,
            "<li><b>{}</b>, Linux {}, by {}",
            escaped(&machine.name),
            escaped(&machine.kernel),
            escaped(&machine.mechanism)
        );
        if !machine.command.is_empty() {
            let _ = write!(text, ": <code>{}</code>", escaped(&machine.command));
        }
        if !machine.lacks.is_empty() {
            let _ = write!(text, "<br><b>Incomplete.</b> Not seen: {}", escaped(&machine.lacks));
        }
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let step_seconds = machine.clock_step_ns as f64 / 1e9;
        if step_seconds.abs() > 1.0 {
            let _ = write!(
                text,
                "<br>Its clock was set by {step_seconds:.0} s meanwhile; times here go on as they went at first."
            );
        }
        text.push_str("</li>");
    }
    text.push_str("</ul><nav><a href=\"#tables\">Tables</a><a href=\"#figures\">Figures</a><a href=\"#distributions\">Distributions</a>");
    if report.by.is_some() {
        text.push_str("<a href=\"#groups\">Groups</a>");
    }
    text.push_str("</nav>");
    groups(&mut text, report);
    text.push_str("<h2 id=\"tables\">Tables</h2>");
    report.tables.iter().for_each(|one| table(&mut text, one));
    text.push_str("<h2 id=\"figures\">Figures</h2><div class=\"figures\">");
    report.figures.iter().for_each(|one| figure(&mut text, one));
    text.push_str("</div>");
    distributions(&mut text, &report.distributions);
    text.push_str("</body></html>\n");
    text
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn grouped_u64(value: u64) -> String {
    grouped(value as f64)
}

fn table(text: &mut String, table: &Table) {
    let _ = write!(
        text,
        "<h3>Table {}. {}</h3><p class=\"note\">{}</p>",
        table.number,
        escaped(table.title),
        escaped(&table.note)
    );
    text.push_str("<div class=\"wide\"><table><tr><th></th><th class=\"number\">here</th><th>range</th><th></th><th class=\"number\">NT</th><th class=\"number\">Sprite</th><th class=\"number\">BSD</th><th></th></tr>");
    for row in &table.rows {
        let known = |known: &Option<String>| escaped(known.as_deref().unwrap_or("–"));
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"range\">{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"dim\">{}</td></tr>",
            escaped(&row.what),
            shown(row.here.value),
            range(&row.here),
            row.unit,
            known(&row.nt),
            known(&row.sprite),
            known(&row.bsd),
            escaped(&row.note)
        );
    }
    text.push_str("</table></div>");
}

fn figure(text: &mut String, figure: &Figure) {
    let _ = write!(
        text,
        "<figure id=\"figure-{}\"><h3>Figure {}. {}</h3>",
        figure.number,
        figure.number,
        escaped(figure.title)
    );
    if figure.series.len() > 1 {
        key(text, figure.series.iter().map(|series| series.name.as_str()));
    }
    text.push_str(&svg(figure));
    let _ = write!(
        text,
        "<figcaption>{} <a href=\"figure-{}.csv\">data</a></figcaption></figure>",
        escaped(&figure.note),
        figure.number
    );
}

fn key<'a>(text: &mut String, names: impl Iterator<Item = &'a str>) {
    text.push_str("<div class=\"key\">");
    for (nth, name) in names.enumerate() {
        let _ = write!(text, "<span><i class=\"k{}\"></i>{}</span>", nth % 5, escaped(name));
    }
    text.push_str("</div>");
}

fn distributions(text: &mut String, distributions: &[Distribution]) {
    text.push_str("<h2 id=\"distributions\">Distributions</h2><p class=\"note\">Heavy-tailed: so much of it lies far out that its variance is infinite \
        (P[X&gt;x] ~ x<sup>−α</sup>, α &lt; 2). Then means and deviations say little, and are here only to show it.</p>");
    text.push_str("<div class=\"wide\"><table><tr><th></th><th class=\"number\">values</th><th class=\"number\">mean</th><th class=\"number\">50 %</th><th class=\"number\">90 %</th><th class=\"number\">99 %</th><th class=\"number\">most</th><th></th><th>verdict</th><th>α (Hill)</th><th class=\"number\">α (line)</th></tr>");
    for one in distributions {
        let hill = one.hill_alpha.map_or_else(
            || "–".to_owned(),
            |[alpha, low, high]| format!("{alpha:.2} ({low:.2} – {high:.2})"),
        );
        let _ = write!(
            text,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td><td><b>{}</b><br><span class=\"dim\">{}</span></td><td class=\"range\">{hill}</td><td class=\"number\">{}</td></tr>",
            escaped(one.what),
            grouped_u64(one.values),
            number(one.mean),
            number(one.percentile_50),
            number(one.percentile_90),
            number(one.percentile_99),
            number(one.most),
            one.unit,
            escaped(&one.verdict),
            escaped(&one.reason),
            shown(one.line_alpha)
        );
    }
    text.push_str("</table></div><h3>Hill plots</h3><p class=\"note\">The exponent by how much of the tail is taken. A tail with a power law has a level \
        stretch; who reads a value off a slope finds whatever they like.</p><div class=\"figures\">");
    for one in distributions {
        let figure = Figure {
            number: "",
            title: one.what,
            note: String::new(),
            x: Axis { label: "values taken from the tail", scale: Scale::Log },
            y: Axis { label: "α", scale: Scale::Linear },
            series: vec![Series {
                name: one.what.to_owned(),
                style: Style::Line,
                points: one.hill_plot.clone(),
            }],
        };
        let _ = write!(text, "<figure><h3>{}</h3>{}</figure>", escaped(one.what), svg(&figure));
    }
    text.push_str("</div>");
}

fn groups(text: &mut String, report: &Report) {
    let Some(by) = report.by else { return };
    let _ = write!(text, "<h2 id=\"groups\">By {by}</h2><div class=\"wide\"><table><tr><th>{by}</th>");
    for head in [
        "operations",
        "failed",
        "sessions",
        "with data",
        "read (KB)",
        "written (KB)",
        "whole file (%)",
        "jumps (%)",
        "open, 50 % (ms)",
        "open, 90 % (ms)",
    ] {
        let _ = write!(text, "<th class=\"number\">{head}</th>");
    }
    text.push_str("</tr>");
    for group in &report.groups {
        let _ = write!(text, "<tr><td>{}</td>", escaped(&group.name));
        let counts = [
            group.operations,
            group.errors,
            group.sessions,
            group.data_sessions,
            group.read_bytes / 1024,
            group.written_bytes / 1024,
        ];
        for count in counts {
            let _ = write!(text, "<td class=\"number\">{}</td>", grouped_u64(count));
        }
        let percent = |share: Option<f64>| share.map(|share| share * 100.0);
        for value in
            [percent(group.whole_file_share), percent(group.random_share), group.open_ms_50, group.open_ms_90]
        {
            let _ = write!(text, "<td class=\"number\">{}</td>", shown(value));
        }
        text.push_str("</tr>");
    }
    text.push_str("</table></div>");
}
