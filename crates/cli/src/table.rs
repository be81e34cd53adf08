//! Columns, as `ps` and `docker ps` show them: two blanks apart, as wide as needed, no lines.

use std::fmt::Write;

/// Rows of equally many columns; the first is the heading.
pub(crate) fn format(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
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
    fn bytes_have_two_digits() {
        assert_eq!(
            [0, 1023, 1024, 3_400_000, 64 << 30].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "3.2 MiB", "64 GiB"]
        );
    }
}
