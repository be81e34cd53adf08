//! A figure as a drawing.

use std::fmt::Write;

use super::{Axis, Figure, Scale, Series, Style};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// Where a value stands on an axis, from 0 to 1.
struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Range {
    fn of(axis: &Axis, values: impl Iterator<Item = f64>) -> Option<Self> {
        let usable =
            values.filter(|value| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0));
        let (low, high) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return None;
        }
        Some(match axis.scale {
            // Whole decades, at least one.
            Scale::Log => {
                let (low, high) = (low.log10().floor(), high.log10().ceil());
                Self { low, high: high.max(low + 1.0), scale: Scale::Log }
            }
            Scale::Linear => {
                let low = low.min(0.0);
                let high = if axis.label.contains('%') { 100.0 } else { high };
                Self { low, high: if high > low { high } else { low + 1.0 }, scale: Scale::Linear }
            }
        })
    }

    fn place(&self, value: f64) -> Option<f64> {
        let value = match self.scale {
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => value.log10(),
            Scale::Linear => value,
        };
        Some(((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }

    /// Where lines are, and what is written there.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Log => {
                let step = ((self.high - self.low) / 8.0).ceil().max(1.0);
                let mut ticks = Vec::new();
                let mut at = self.low;
                while at <= self.high + 1e-9 {
                    ticks.push((10_f64.powf(at), short(10_f64.powf(at))));
                    at += step;
                }
                ticks
            }
            Scale::Linear => {
                let step = round_step((self.high - self.low) / 5.0);
                let mut at = (self.low / step).ceil() * step;
                let mut ticks = Vec::new();
                while at <= self.high + step * 1e-9 {
                    ticks.push((at, short(at)));
                    at += step;
                }
                ticks
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least as large.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|round| *round >= step * 0.999)
        .unwrap_or(step)
}

/// As few letters as say it.
fn short(value: f64) -> String {
    const LETTERS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    if value == 0.0 {
        return "0".to_owned();
    }
    for (size, letter) in LETTERS {
        if value.abs() >= size {
            return format!("{}{letter}", rounded(value / size));
        }
    }
    if value.abs() < 1e-3 { format!("{value:.0e}") } else { rounded(value) }
}

fn rounded(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text that is no markup.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// The figure as SVG, to stand in a page whose style gives classes `s0` to `s4` their colours.
pub(super) fn svg(figure: &Figure) -> String {
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let ranges = Range::of(&figure.x, all().map(|point| point.0))
        .zip(Range::of(&figure.y, all().map(|point| point.1)));
    let mut text =
        format!(r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#, escaped(figure.title));
    let Some((x, y)) = ranges else {
        text.push_str(r#"<text class="none" x="320" y="170" text-anchor="middle">nothing of this was recorded</text></svg>"#);
        return text;
    };
    let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let to_x = |place: f64| LEFT + place * wide;
    let to_y = |place: f64| TOP + (1.0 - place) * high;
    for (value, label) in x.ticks() {
        if let Some(at) = x.place(value).map(to_x) {
            let bottom = TOP + high;
            let _ = write!(
                text,
                r#"<line class="grid" x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{bottom}"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
                bottom + 16.0
            );
        }
    }
    for (value, label) in y.ticks() {
        if let Some(at) = y.place(value).map(to_y) {
            let _ = write!(
                text,
                r#"<line class="grid" x1="{LEFT}" y1="{at:.1}" x2="{:.1}" y2="{at:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#,
                LEFT + wide,
                LEFT - 6.0,
                at + 4.0
            );
        }
    }
    let _ = write!(
        text,
        r#"<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
        LEFT + wide / 2.0,
        HEIGHT - 8.0,
        escaped(figure.x.label)
    );
    let _ = write!(
        text,
        r#"<text class="axis" transform="translate(14 {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        TOP + high / 2.0,
        escaped(figure.y.label)
    );
    for (nth, series) in figure.series.iter().enumerate() {
        let points = series
            .points
            .iter()
            .filter_map(|&(at_x, at_y)| Some((to_x(x.place(at_x)?), to_y(y.place(at_y)?))));
        draw(&mut text, nth % 5, series, &points.collect::<Vec<_>>());
    }
    text.push_str("</svg>");
    text
}

fn draw(text: &mut String, class: usize, series: &Series, points: &[(f64, f64)]) {
    let name = escaped(&series.name);
    if series.style == Style::Points {
        let _ = write!(text, r#"<g class="dots s{class}"><title>{name}</title>"#);
        for (x, y) in points {
            let _ = write!(text, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2"/>"#);
        }
        text.push_str("</g>");
        return;
    }
    let mut path = String::new();
    let mut last: Option<f64> = None;
    for &(x, y) in points {
        match last {
            None => {
                let _ = write!(path, "M{x:.1} {y:.1}");
            }
            // What is counted stays as it is until the next value.
            Some(_) if series.style == Style::Steps => {
                let _ = write!(path, "H{x:.1}V{y:.1}");
            }
            Some(_) => {
                let _ = write!(path, "L{x:.1} {y:.1}");
            }
        }
        last = Some(y);
    }
    let _ = write!(text, r#"<path class="line s{class}" d="{path}"><title>{name}</title></path>"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(points: Vec<(f64, f64)>, scale: Scale) -> Figure {
        Figure {
            number: "9.1",
            title: "a <title>",
            note: String::new(),
            x: Axis { label: "x", scale },
            y: Axis { label: "y (%)", scale: Scale::Linear },
            series: vec![Series { name: "a & b".to_owned(), style: Style::Steps, points }],
        }
    }

    #[test]
    fn drawings_have_their_points_and_no_foreign_markup() {
        let text = svg(&figure(vec![(1.0, 0.0), (10.0, 50.0), (1000.0, 100.0)], Scale::Log));
        assert!(text.contains("a &lt;title&gt;") && text.contains("a &amp; b"));
        assert!(text.contains("M64.0 294.0H249.3V153.0H620.0V12.0"), "{text}");
    }

    #[test]
    fn nothing_and_nonsense_can_be_drawn() {
        assert!(svg(&figure(Vec::new(), Scale::Log)).contains("nothing of this"));
        assert!(svg(&figure(vec![(0.0, 1.0), (-1.0, f64::NAN)], Scale::Log)).contains("nothing of this"));
        assert!(svg(&figure(vec![(5.0, 5.0)], Scale::Linear)).contains("M"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.25, 1.0, 1500.0, 1e6, 2.5e9].map(short), ["0", "0.25", "1", "1.5k", "1M", "2.5G"]);
        assert_eq!(short(1e-6), "1e-6");
    }
}
