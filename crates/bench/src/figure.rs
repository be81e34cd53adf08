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

/// A figure that was not drawn.
#[derive(Debug, thiserror::Error)]
#[error("a figure cannot be drawn: {0}")]
pub struct FigureError(String);

const SIZE: (u32, u32) = (900, 560);
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x1f, 0x5a, 0xa6),
    RGBColor(0xc2, 0x3b, 0x22),
    RGBColor(0x2e, 0x8b, 0x57),
    RGBColor(0x8a, 0x4f, 0xbf),
    RGBColor(0xd9, 0x8e, 0x04),
    RGBColor(0x44, 0x44, 0x44),
    RGBColor(0x1b, 0xa1, 0xb8),
];

impl Figure {
    /// Draws into `folder`, and says what it wrote: nothing where there is nothing to draw.
    pub(crate) fn draw(&self, folder: &Path, curves: &[Curve]) -> Result<Vec<PathBuf>, FigureError> {
        let Some(range) = Range::of(curves) else { return Ok(Vec::new()) };
        let failed = |error: &dyn std::fmt::Display| FigureError(error.to_string());
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        // The only font that the bitmap can be written with: no system's fonts are looked for.
        let font = epaint_default_fonts::UBUNTU_LIGHT;
        let _ = plotters::style::register_font("sans-serif", FontStyle::Normal, font);
        let (svg, png) =
            (folder.join(format!("{}.svg", self.name)), folder.join(format!("{}.png", self.name)));
        self.draw_on(&SVGBackend::new(&svg, SIZE).into_drawing_area(), curves, range)
            .map_err(|error| failed(&error))?;
        self.draw_on(&BitMapBackend::new(&png, SIZE).into_drawing_area(), curves, range)
            .map_err(|error| failed(&error))?;
        Ok(vec![svg, png])
    }

    fn draw_on<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        curves: &[Curve],
        range: Range,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 22))
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
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .label_style(("sans-serif", 15))
            .light_line_style(RGBColor(0xf0, 0xf0, 0xf0))
            .draw()?;
        for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)).point_size(3);
            let colour = *colour;
            chart
                .draw_series(line)?
                .label(curve.label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(0xaa, 0xaa, 0xaa))
            .label_font(("sans-serif", 15))
            .draw()?;
        area.present()
    }
}

/// Of both axes, with room around.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range {
    x: (f64, f64),
    y: (f64, f64),
}

impl Range {
    fn of(curves: &[Curve]) -> Option<Self> {
        let points = || curves.iter().flat_map(|curve| curve.points.iter().copied());
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(None, |ends: Option<(f64, f64)>, value| {
                Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
            })
        };
        let (x, y) = (ends(&mut points().map(|(x, _)| x))?, ends(&mut points().map(|(_, y)| y))?);
        Some(Self { x: (x.0 / 1.2, x.1 * 1.2), y: (y.0 / 1.5, y.1 * 8.0) })
    }
}

fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_without_points_is_not_drawn() {
        let figure = Figure { name: "none", title: "", x: "", y: "" };
        let curves = [Curve { label: "a", points: Vec::new() }];
        assert!(figure.draw(Path::new("/nonexistent"), &curves).unwrap().is_empty());
    }

    #[test]
    fn a_figure_is_an_svg_and_a_png() {
        let folder = std::env::temp_dir().join(format!("comb-figure-{}", std::process::id()));
        let figure = Figure { name: "one", title: "One", x: "bytes", y: "µs" };
        let curves = [Curve { label: "a way", points: vec![(4.0, 0.2), (1024.0, 3.0)] }];
        let files = figure.draw(&folder, &curves).unwrap();
        let svg = std::fs::read_to_string(&files[0]).unwrap();
        assert!(svg.contains("a way") && svg.contains("bytes"));
        assert!(std::fs::read(&files[1]).unwrap().starts_with(b"\x89PNG"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
