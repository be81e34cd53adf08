//! A figure within the page: an SVG that takes its colours from the page, so that it follows light and dark; what its lines
//! are called, and its numbers for whoever does not see it.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::item::readable;
use super::markup::{Escaped, Prose};
use crate::figure::Drawing;

/// A figure as data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Plot {
    /// Of its files, without their ends.
    pub(crate) name: String,
    title: String,
    x: String,
    y: String,
    lines: Vec<Line>,
    marks: Vec<Said>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Line {
    label: String,
    points: Vec<(f64, f64)>,
}

/// What the paper's text says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Said {
    /// x, and from which y to which.
    at: Option<(f64, (f64, f64))>,
    says: String,
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 466.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 254.0;
/// Labels of two ticks do not touch each other.
const APART: f64 = 30.0;
/// As many as the page has colours.
const LOOKS: usize = 8;

/// A logarithmic axis: between which values, and where these are.
#[derive(Clone, Copy)]
struct Axis {
    values: (f64, f64),
    places: (f64, f64),
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, room: f64, places: (f64, f64)) -> Option<Self> {
        let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
            Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (low, high) = ends?;
        Some(Self { values: (low / room, high * room), places })
    }

    fn place(self, value: f64) -> f64 {
        let (low, high) = self.values;
        let part = (value / low).ln() / (high / low).ln();
        self.places.0 + part * (self.places.1 - self.places.0)
    }

    /// Those that have room, in the order given.
    fn apart(self, ticks: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut found: Vec<f64> = Vec::new();
        for tick in ticks.filter(|tick| (self.values.0..=self.values.1).contains(tick)) {
            if found.iter().all(|other| (self.place(*other) - self.place(tick)).abs() >= APART) {
                found.push(tick);
            }
        }
        found
    }

    /// Powers of ten; where these are too few, what is between them as well.
    fn decades(self) -> Vec<f64> {
        let powers = || (-9..=15).map(|power| 10_f64.powi(power));
        let found = self.apart(powers());
        if found.len() > 2 {
            return found;
        }
        self.apart([1.0, 2.0, 5.0].into_iter().flat_map(move |by| powers().map(move |power| by * power)))
    }

    /// The values themselves where they are few, else powers of two.
    fn twos(self, values: &BTreeSet<u64>) -> Vec<f64> {
        if values.len() <= LOOKS {
            return self.apart(values.iter().map(|bits| f64::from_bits(*bits)));
        }
        self.apart((0..64).map(|power| 2_f64.powi(power)))
    }
}

impl Plot {
    /// None where there is nothing to draw.
    pub(crate) fn of(drawing: &Drawing) -> Option<Self> {
        let is_drawn = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && *x > 0.0 && *y > 0.0;
        let lines = drawing.curves.iter().map(|curve| Line {
            label: curve.label.to_owned(),
            points: curve.points.iter().copied().filter(is_drawn).collect(),
        });
        let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
        let marks = drawing.marks.iter().map(|mark| Said { at: mark.at, says: mark.says.to_owned() });
        let figure = &drawing.figure;
        let [name, title, x, y] = [figure.name, figure.title, figure.x, figure.y].map(str::to_owned);
        (!lines.is_empty()).then(|| Self { name, title, x, y, lines, marks: marks.collect() })
    }

    /// As it stands in the page.
    pub(super) fn write(&self, page: &mut String) {
        page.push_str("<figure>\n");
        let _ = writeln!(page, "<figcaption>{}</figcaption>", Escaped(&self.title));
        self.draw(page);
        self.legend(page);
        self.numbers(page);
        let name = Escaped(&self.name);
        let _ = writeln!(
            page,
            "<p class=\"files\">As a file: <a href=\"./{name}.png\">PNG</a>, <a href=\"./{name}.svg\">SVG</a></p>"
        );
        page.push_str("</figure>\n");
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let marked = self.marks.iter().filter_map(|mark| mark.at);
        let marked = marked.flat_map(|(x, (low, high))| [(x, low), (x, high)]);
        self.lines.iter().flat_map(|line| line.points.iter().copied()).chain(marked)
    }

    fn draw(&self, page: &mut String) {
        let x = Axis::of(self.points().map(|point| point.0), 1.15, (LEFT, RIGHT));
        let y = Axis::of(self.points().map(|point| point.1), 1.4, (BOTTOM, TOP));
        let (Some(x), Some(y)) = (x, y) else { return };
        let _ = writeln!(
            page,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            Escaped(&self.in_words())
        );
        for tick in y.decades() {
            let at = y.place(tick);
            let _ = writeln!(
                page,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/><text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                short(tick)
            );
        }
        let values: BTreeSet<u64> =
            self.lines.iter().flat_map(|line| &line.points).map(|point| point.0.to_bits()).collect();
        for tick in x.twos(&values) {
            let at = x.place(tick);
            let _ = writeln!(
                page,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/><text class=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                BOTTOM + 16.0,
                short(tick)
            );
        }
        let _ = writeln!(page, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>");
        let _ = writeln!(page, "<text x=\"4\" y=\"16\">{}</text>", Escaped(&self.y));
        for (row, words) in crate::figure::lines(&self.x, 66).iter().enumerate() {
            let _ = writeln!(
                page,
                "<text class=\"end\" x=\"{RIGHT}\" y=\"{:.1}\">{}</text>",
                BOTTOM + 31.0 + 13.0 * row as f64,
                Escaped(words)
            );
        }
        for (look, line) in self.lines.iter().enumerate() {
            let look = look % LOOKS;
            let places: Vec<(f64, f64)> =
                line.points.iter().map(|&(at, value)| (x.place(at), y.place(value))).collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let _ = writeln!(page, "<path class=\"line c{look}\" d=\"M{}\"/>", path.join("L"));
            for (x, y) in places {
                let _ = writeln!(page, "<path class=\"dot c{look}\" d=\"{}\"/>", dot(look, x, y));
            }
        }
        for (letter, said) in self.lettered() {
            let (Some((at, (low, high))), Some(letter)) = (said.at, letter) else { continue };
            let (at, low, high) = (x.place(at), y.place(low), y.place(high));
            let _ = writeln!(
                page,
                "<path class=\"mark\" d=\"M{at:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h10M{:.1} {high:.1}h10\"/>\
                 <text class=\"letter end\" x=\"{:.1}\" y=\"{:.1}\">{letter}</text>",
                at - 5.0,
                at - 5.0,
                at - 7.0,
                high - 4.0
            );
        }
        page.push_str("</svg>\n");
    }

    /// What the picture shows, for whoever does not see it.
    fn in_words(&self) -> String {
        let mut words = format!("{}. {} by {}, both axes logarithmic.", self.title, self.y, self.x);
        for line in &self.lines {
            let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else { continue };
            let _ = write!(words, " {}: {} at {}", line.label, readable(first.1), short(first.0));
            if line.points.len() > 1 {
                let _ = write!(words, ", {} at {}", readable(last.1), short(last.0));
            }
            words.push('.');
        }
        words
    }

    fn legend(&self, page: &mut String) {
        page.push_str("<ul class=\"legend\">\n");
        for (look, line) in self.lines.iter().enumerate() {
            let look = look % LOOKS;
            let _ = writeln!(
                page,
                "<li><svg viewBox=\"0 0 26 12\" aria-hidden=\"true\"><path class=\"line c{look}\" d=\"M0 6H26\"/>\
                 <path class=\"dot c{look}\" d=\"{}\"/></svg>{}</li>",
                dot(look, 13.0, 6.0),
                Escaped(&line.label)
            );
        }
        page.push_str("</ul>\n");
        if self.marks.is_empty() {
            return;
        }
        page.push_str("<p class=\"said\">The paper says (history):</p>\n<ul class=\"legend\">\n");
        for (letter, said) in self.lettered() {
            let letter = letter.map_or_else(|| "–".to_owned(), String::from);
            let _ = writeln!(page, "<li><b>{letter}</b> {}</li>", Prose(&said.says));
        }
        page.push_str("</ul>\n");
    }

    /// Marks at points have letters, by which the legend speaks of them.
    fn lettered(&self) -> impl Iterator<Item = (Option<char>, &Said)> {
        let mut letters = 'A'..='Z';
        self.marks.iter().map(move |said| (said.at.and_then(|_| letters.next()), said))
    }

    fn numbers(&self, page: &mut String) {
        let all: BTreeSet<u64> =
            self.lines.iter().flat_map(|line| &line.points).map(|point| point.0.to_bits()).collect();
        page.push_str(
            "<details><summary>The numbers</summary>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" ",
        );
        let _ = writeln!(page, "aria-label=\"Numbers: {}\"><table>", Escaped(&self.title));
        let _ = writeln!(page, "<caption>{}</caption>", Escaped(&self.y));
        let _ = write!(page, "<thead><tr><th scope=\"col\">{}</th>", Escaped(&self.x));
        for line in &self.lines {
            let _ = write!(page, "<th scope=\"col\">{}</th>", Escaped(&line.label));
        }
        page.push_str("</tr></thead>\n<tbody>\n");
        // The bits of positive numbers have the order of the numbers.
        for at in all.into_iter().map(f64::from_bits) {
            let _ = write!(page, "<tr><th scope=\"row\">{}</th>", short(at));
            for line in &self.lines {
                let value = line.points.iter().find(|point| point.0 == at);
                let value = value.map_or_else(|| "–".to_owned(), |point| readable(point.1));
                let _ = write!(page, "<td>{value}</td>");
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody></table></div></details>\n");
    }
}

/// A sign of its own for each line, so that colours are not all that tells them apart.
fn dot(look: usize, x: f64, y: f64) -> String {
    let at = format!("M{x:.1} {y:.1}");
    let shape = match look {
        0 => "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
        1 => "m-3.2-3.2h6.4v6.4h-6.4z",
        2 => "m0-4.2l4 7h-8z",
        3 => "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
        4 => "m0 4.2l4-7h-8z",
        5 => "m-4-1.2h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8z",
        6 => "m-4.5-2.2h9v4.4h-9z",
        _ => "m-2.2-4.5h4.4v9h-4.4z",
    };
    at + shape
}

/// A number at an axis.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", plain(v / 1e6)),
        v if v >= 1e4 && v % 1000.0 == 0.0 => format!("{} k", plain(v / 1e3)),
        v => plain(v),
    }
}

/// No more digits than it has, as far as three behind the point.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "0" && value > 0.0 { format!("{value:e}") } else { text.to_owned() }
}

#[cfg(test)]
impl Plot {
    pub(super) fn example() -> Self {
        let line =
            |label: &str, points: &[(f64, f64)]| Line { label: label.to_owned(), points: points.to_vec() };
        let said = |at, says: &str| Said { at, says: says.to_owned() };
        Self {
            name: "one".to_owned(),
            title: "Waits <at most>".to_owned(),
            x: "nodes".to_owned(),
            y: "seconds".to_owned(),
            lines: vec![
                line("ours", &[(2.0, 0.25), (32.0, 0.5)]),
                line("classic & slow", &[(2.0, 4.0), (8.0, 1e6)]),
            ],
            marks: vec![said(Some((32.0, (3.0, 4.0))), "three to four"), said(None, "in words")],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Curve, Figure, Mark};

    fn drawn(plot: &Plot) -> String {
        let mut page = String::new();
        plot.write(&mut page);
        page
    }

    #[test]
    fn a_plot_is_drawn_named_and_told_in_words() {
        let page = drawn(&Plot::example());
        for said in [
            "role=\"img\" aria-label=\"Waits &lt;at most&gt;. seconds by nodes",
            "ours: 0.25 at 2, 0.50 at 32.",
            "classic &amp; slow",
            "<b>A</b> three to four",
            "<b>–</b> in words",
            "<th scope=\"row\">8</th><td>–</td><td>1000000</td>",
        ] {
            assert!(page.contains(said), "{said}\n{page}");
        }
        assert!(!page.contains("<at most>"));
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }

    /// A colour that is written down here would be wrong in the dark.
    #[test]
    fn a_plot_has_the_pages_colours() {
        let page = drawn(&Plot::example());
        assert!(!page.contains('#') && !page.contains("style="), "{page}");
        assert!(!page.contains("fill=") && !page.contains("stroke="), "{page}");
    }

    #[test]
    fn points_that_no_logarithm_has_are_left_out() {
        let figure = Figure { name: "one", title: "One", x: "bytes", y: "µs" };
        let points = vec![(1.0, 0.0), (2.0, f64::INFINITY), (4.0, 2.0)];
        let curves = vec![Curve { label: "a way", points }, Curve { label: "none", points: Vec::new() }];
        let marks = vec![Mark { at: None, says: "in words" }];
        let plot = Plot::of(&Drawing { figure, curves, marks }).unwrap();
        assert_eq!(plot.lines.len(), 1);
        assert_eq!(plot.lines[0].points, [(4.0, 2.0)]);
        assert!(!drawn(&plot).contains("NaN"), "one point has no width");
        let nothing = Drawing { figure, curves: Vec::new(), marks: Vec::new() };
        assert_eq!(Plot::of(&nothing), None);
    }

    #[test]
    fn numbers_at_axes_are_short() {
        let shown = [0.05, 0.5, 1.0, 12.0, 1024.0, 65_536.0, 10_000.0, 2e6].map(short);
        assert_eq!(shown, ["0.05", "0.5", "1", "12", "1024", "65536", "10 k", "2 M"]);
    }
}
