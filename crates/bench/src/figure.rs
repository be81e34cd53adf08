//! Figures as the papers draw them: one line a way, over a logarithmic axis, as SVG and as PNG.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

/// One line of a figure.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) label: &'static str,
    /// By rising x; both positive.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What stands around the lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// The files' name without its end.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
}

impl Figure {
    /// With lines alone.
    pub(crate) fn of(self, curves: Vec<Curve>) -> Drawing {
        Drawing { figure: self, curves, marks: Vec::new() }
    }
}

/// What a paper's text says, where it says it of a point; in words alone where it does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// x, and from which y to which.
    pub(crate) at: Option<(f64, (f64, f64))>,
    pub(crate) says: &'static str,
}

/// A figure with all that is in it.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    pub(crate) figure: Figure,
    pub(crate) curves: Vec<Curve>,
    pub(crate) marks: Vec<Mark>,
}

/// A figure that was not drawn.
#[derive(Debug, thiserror::Error)]
#[error("a figure cannot be drawn: {0}")]
pub struct FigureError(String);

const SIZE: (u32, u32) = (1200, 560);
/// The legend is to the right of this.
const PLOT_WIDTH: u32 = 880;
const LEGEND_LETTERS: usize = 40;
const LEGEND_LINE: i32 = 19;
/// As many as the fullest figure has lines.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x5a, 0xa6),
    RGBColor(0xc2, 0x3b, 0x22),
    RGBColor(0x2e, 0x8b, 0x57),
    RGBColor(0x8a, 0x4f, 0xbf),
    RGBColor(0xd9, 0x8e, 0x04),
    RGBColor(0x44, 0x44, 0x44),
    RGBColor(0x1b, 0xa1, 0xb8),
    RGBColor(0xd1, 0x3f, 0x8d),
];

impl Drawing {
    /// Draws into `folder`, and says what it wrote: nothing where there is nothing to draw.
    pub(crate) fn draw(&self, folder: &Path) -> Result<Vec<PathBuf>, FigureError> {
        let Some(range) = Range::of(&self.curves, &self.marks) else { return Ok(Vec::new()) };
        let failed = |error: &dyn std::fmt::Display| FigureError(error.to_string());
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        // The only font that the bitmap can be written with: no system's fonts are looked for.
        let font = epaint_default_fonts::UBUNTU_LIGHT;
        let _ = plotters::style::register_font("sans-serif", FontStyle::Normal, font);
        let name = self.figure.name;
        let [svg, png] = ["svg", "png"].map(|end| folder.join(format!("{name}.{end}")));
        // Whoever is interrupted leaves the figure of before, and no half of one.
        let [new_svg, new_png] = ["svg", "png"].map(|end| folder.join(format!("{name}.new.{end}")));
        self.draw_on(&SVGBackend::new(&new_svg, SIZE).into_drawing_area(), range)
            .map_err(|error| failed(&error))?;
        self.draw_on(&BitMapBackend::new(&new_png, SIZE).into_drawing_area(), range)
            .map_err(|error| failed(&error))?;
        for (new, file) in [(&new_svg, &svg), (&new_png, &png)] {
            std::fs::rename(new, file).map_err(|error| failed(&error))?;
        }
        Ok(vec![svg, png])
    }

    fn draw_on<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        range: Range,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(PLOT_WIDTH);
        let mut chart = ChartBuilder::on(&plot)
            .caption(self.figure.title, ("sans-serif", 22))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(
                (range.x.0..range.x.1).log_scale().base(2.0),
                (range.y.0..range.y.1).log_scale(),
            )?;
        let number = |value: &f64| plain(*value);
        chart
            .configure_mesh()
            .x_desc(self.figure.x)
            .y_desc(self.figure.y)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .label_style(("sans-serif", 15))
            .light_line_style(RGBColor(0xf0, 0xf0, 0xf0))
            .draw()?;
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let points = curve.points.iter().copied();
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?;
        }
        for (letter, mark) in self.lettered() {
            let Some((x, (low, high))) = mark.at else { continue };
            chart.draw_series([PathElement::new([(x, low), (x, high)], BLACK.stroke_width(2))])?;
            let ends = [low, high].map(|y| Cross::new((x, y), 4, BLACK.stroke_width(2)));
            chart.draw_series(ends)?;
            let beside = EmptyElement::at((x, high)) + Text::new(letter, (7, -8), ("sans-serif", 17));
            chart.draw_series([beside])?;
        }
        self.draw_legend(&legend)?;
        area.present()
    }

    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let mut y = 60;
        let mut write = |text: &str| -> Result<i32, DrawingAreaErrorKind<B::ErrorType>> {
            let begin = y;
            for line in lines(text, LEGEND_LETTERS) {
                area.draw(&Text::new(line, (32, y), ("sans-serif", 15)))?;
                y += LEGEND_LINE;
            }
            y += 4;
            Ok(begin)
        };
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let middle = write(curve.label)? + 8;
            area.draw(&PathElement::new([(4, middle), (26, middle)], colour.stroke_width(3)))?;
        }
        if !self.marks.is_empty() {
            write("")?;
            write("The thesis says:")?;
        }
        for (letter, mark) in self.lettered() {
            let begin = write(mark.says)?;
            let sign = if mark.at.is_some() { letter } else { "–".to_owned() };
            area.draw(&Text::new(sign, (10, begin), ("sans-serif", 15)))?;
        }
        Ok(())
    }

    /// Marks at points have letters, by which the legend speaks of them.
    fn lettered(&self) -> impl Iterator<Item = (String, &Mark)> {
        let mut letters = 'A'..='Z';
        self.marks.iter().map(move |mark| {
            let letter = if mark.at.is_some() { letters.next() } else { None };
            (letter.map(String::from).unwrap_or_default(), mark)
        })
    }
}

/// Words in lines of so many letters at most, unless a word is longer.
pub(crate) fn lines(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if last == 0 => line.push_str(word),
            Some(line) if last + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Of both axes, with room around.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range {
    x: (f64, f64),
    y: (f64, f64),
}

impl Range {
    fn of(curves: &[Curve], marks: &[Mark]) -> Option<Self> {
        if curves.iter().all(|curve| curve.points.is_empty()) {
            return None;
        }
        let marked = || {
            let at = marks.iter().filter_map(|mark| mark.at);
            at.flat_map(|(x, (low, high))| [(x, low), (x, high)])
        };
        let points = || curves.iter().flat_map(|curve| curve.points.iter().copied()).chain(marked());
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(None, |ends: Option<(f64, f64)>, value| {
                Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
            })
        };
        let (x, y) = (ends(&mut points().map(|(x, _)| x))?, ends(&mut points().map(|(_, y)| y))?);
        Some(Self { x: (x.0 / 1.2, x.1 * 1.2), y: (y.0 / 1.5, y.1 * 1.6) })
    }
}

fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(name: &'static str, points: Vec<(f64, f64)>) -> Drawing {
        let figure = Figure { name, title: "One", x: "bytes", y: "µs" };
        let marks = vec![
            Mark { at: Some((8.0, (1.0, 2.0))), says: "from one to two" },
            Mark { at: None, says: "in words" },
        ];
        Drawing { figure, curves: vec![Curve { label: "a way", points }], marks }
    }

    #[test]
    fn a_figure_without_points_of_its_own_is_not_drawn() {
        assert!(drawing("none", Vec::new()).draw(Path::new("/nonexistent")).unwrap().is_empty());
    }

    #[test]
    fn a_figure_is_an_svg_and_a_png() {
        let folder = std::env::temp_dir().join(format!("comb-figure-{}", std::process::id()));
        let files = drawing("one", vec![(4.0, 0.2), (1024.0, 3.0)]).draw(&folder).unwrap();
        let svg = std::fs::read_to_string(&files[0]).unwrap();
        for said in ["a way", "bytes", "from one to two", "in words", "\nA\n"] {
            assert!(svg.contains(said), "{said}");
        }
        assert!(!svg.contains("\nB\n"), "what is said in words alone has no letter");
        assert!(std::fs::read(&files[1]).unwrap().starts_with(b"\x89PNG"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_legend_is_broken_between_words() {
        assert_eq!(lines("one two three", 7), ["one two", "three"]);
        assert_eq!(lines("incomprehensible", 7), ["incomprehensible"]);
    }
}
