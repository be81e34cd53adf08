//! Columns, as `ps` and `docker ps` show them: two blanks apart, as wide as needed, no lines.

use std::fmt::Write;

use crate::output::{Colour, Output};

/// Rows of equally many columns; the first is the heading.
pub(crate) fn format(rows: &[Vec<String>]) -> String {
    format_with(rows, |_, _| None)
}

/// The same with colours, where there are any: each column's words have that of `colour`.
pub(crate) fn painted(
    rows: &[Vec<String>],
    output: Output,
    colour: impl Fn(usize, &str) -> Option<Colour>,
) -> String {
    format_with(rows, |column, text| if output.has_colours() { colour(column, text) } else { None })
}

/// The colour that is that of a state everywhere.
pub(crate) fn state_colour(state: &str) -> Option<Colour> {
    let first = state.split([' ', ':', ',']).next().unwrap_or_default();
    match first {
        "up" | "whole" | "ok" | "running" => Some(Colour::Green),
        "ended" | "lost" | "dead" | "bad" | "hung" | "silent" => Some(Colour::Red),
        "starting" | "missing" | "stopped" => Some(Colour::Yellow),
        "off" | "-" => Some(Colour::Dim),
        _ if state.contains(" lost") => Some(Colour::Red),
        _ => None,
    }
}

fn format_with(rows: &[Vec<String>], colour: impl Fn(usize, &str) -> Option<Colour>) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (nth, row) in rows.iter().enumerate() {
        // Blanks are written when something comes behind them: no line ends with any.
        let mut blanks = 0;
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if !cell.is_empty() {
                let _ = write!(text, "{:blanks$}", "");
                blanks = 0;
                match colour(column, cell).filter(|_| nth > 0) {
                    Some(colour) => text.push_str(&colour.paint(cell)),
                    None => text.push_str(cell),
                }
            }
            blanks += width - cell.chars().count() + 2;
        }
        text.push('\n');
    }
    text
}

/// Bytes for people, in powers of 1024 as `free -h` has them.
pub(crate) fn bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let mut value = count as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 10.0 && unit != "B" { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest() {
        let rows =
            [["CELL", "STATE"], ["1", "up"], ["12345", "ended"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(format(&rows), "CELL   STATE\n1      up\n12345  ended\n");
    }

    #[test]
    fn colours_take_no_room() {
        let rows = [["STATE", "CELL"], ["up", "1"], ["ended", "2"]].map(|row| row.map(String::from).to_vec());
        let painted = format_with(&rows, |column, text| state_colour(text).filter(|_| column == 0));
        assert_eq!(painted, "STATE  CELL\n\x1b[32mup\x1b[0m     1\n\x1b[31mended\x1b[0m  2\n");
    }

    #[test]
    fn bytes_have_two_digits() {
        assert_eq!(
            [0, 1023, 1024, 3_400_000, 64 << 30].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "3.2 MiB", "64 GiB"]
        );
    }
}
