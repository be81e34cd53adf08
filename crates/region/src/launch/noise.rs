//! What is said before somebody says what is waited for: start-up files of shells greet whoever logs in.

use std::io::{BufRead, Error, Read, Result};

/// More than any greeting. What goes on longer is not going to come to the point.
const MOST_BYTES: usize = 64 << 10;
/// Of what somebody else says, as much as goes into an error.
const QUOTED_CHARACTERS: usize = 80;
/// A line of somebody whom we do not trust.
const LONGEST_LINE_BYTES: u64 = 4096;

/// Reads until just behind `mark`. An error says what came instead.
pub(super) fn skip_to(from: &mut impl BufRead, mark: &[u8]) -> Result<()> {
    let mut noise = Vec::new();
    while noise.len() < MOST_BYTES {
        let (rest, ends) = (from.fill_buf()?, noise.len());
        let Some(&byte) = rest.first() else {
            let said = match quote(&noise[..ends]) {
                said if said.is_empty() => String::new(),
                said => format!(", and says {said:?} instead"),
            };
            return Err(Error::other(format!("ended before it answered{said}")));
        };
        noise.push(byte);
        from.consume(1);
        if noise.ends_with(mark) {
            return Ok(());
        }
    }
    let said = quote(&noise);
    Err(Error::other(format!(
        "says {said:?} and goes on: do start-up files of the shell there print so much?"
    )))
}

/// The rest of a line, for people: nothing in it does anything to a terminal.
pub(super) fn line(from: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    from.take(LONGEST_LINE_BYTES).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') => Ok(printable(&line)),
        _ => Err(Error::other("says a line that does not end")),
    }
}

fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The first line with something in it.
fn quote(bytes: &[u8]) -> String {
    let lines = bytes.split(|&byte| byte == b'\n').map(printable);
    let first = lines.map(|line| line.trim().to_owned()).find(|line| !line.is_empty());
    first.unwrap_or_default().chars().take(QUOTED_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_before_is_skipped_and_what_comes_instead_is_told() {
        let mut from = &b"\x1b[1mwelcome\nto comb-comb-7 need it\nrest"[..];
        skip_to(&mut from, b"comb-7 ").unwrap();
        assert_eq!((line(&mut from).unwrap(), from), ("need it".to_owned(), &b"rest"[..]));
        let said = |text: &[u8]| skip_to(&mut &text[..], b"comb-7 ").unwrap_err().to_string();
        assert_eq!(said(b""), "ended before it answered");
        assert_eq!(said(b"\r\n\x1b]2;x\x07 no\n"), "ended before it answered, and says \"]2;x  no\" instead");
        assert!(said(&[b'x'; MOST_BYTES + 1]).contains("goes on"));
        assert!(line(&mut &[b'x'; 5000][..]).is_err() && line(&mut &b"x"[..]).is_err());
    }
}
