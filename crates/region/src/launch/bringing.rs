//! Bringing comb to a host: what the launcher and `bootstrap.sh` there say to each other.
//!
//! ```text
//! launcher                                  sh, on the other host
//!     ───── the script ──────────────────────▶
//!     ◀──── comb-NONCE need comb gzip ───────────   finds no comb of this build, and has a place for it
//!     ───── length, and so many bytes ───────▶
//!     ◀──── comb-NONCE need libcomb.so gzip ─────
//!     ───── length, and so many bytes ───────▶
//!     ◀──── comb-NONCE kept ─────────────────────   or own, or placed, or cannot: and becomes comb, which says its greeting
//! ```

use std::io::{BufRead, Result, Write};

use super::delivery::Delivery;
use super::luggage::{Item, Luggage, nonce};
use super::noise;

/// Written at once, so that what has gone is known.
const CHUNK_BYTES: usize = 64 << 10;
/// What may be asked for: each once.
const MOST_WORDS: usize = 3;
/// Of what a host says of itself, as much as goes into an error.
const LONGEST_REASON: usize = 600;

/// How it went.
#[derive(Debug)]
pub(super) enum Brought {
    /// Comb begins there.
    Begins,
    /// So it does, but the next time it has to be brought again: why.
    BeginsOnce(String),
    /// It cannot: why, and what to do.
    Cannot(String),
}

/// Until comb is about to begin on the host. An error is one of the connection.
pub(super) fn bring(
    luggage: &Luggage,
    input: &mut impl Write,
    output: &mut impl BufRead,
    delivery: &Delivery,
) -> Result<Brought> {
    let nonce = nonce();
    // Whoever has ended has said why, or says nothing.
    let _ = input.write_all(&luggage.script(&nonce)).and_then(|()| input.flush());
    let mark = format!("comb-{nonce} ");
    for _ in 0..MOST_WORDS {
        noise::skip_to(output, mark.as_bytes())?;
        let said = noise::line(output)?;
        let (word, rest) = said.split_once(' ').unwrap_or((&said, ""));
        match (word, rest) {
            ("own" | "kept", "") => return Ok(Brought::Begins),
            ("placed", why) => return Ok(Brought::BeginsOnce(cut(why))),
            ("cannot", why) => return Ok(Brought::Cannot(advice(why, luggage))),
            ("need", "comb gzip") => send(luggage.comb.packed(), input, delivery),
            ("need", "comb raw") => send(&luggage.comb.bytes, input, delivery),
            ("need", what) => match (&luggage.library, what) {
                (Some(library), "libcomb.so gzip") => send(library.packed(), input, delivery),
                (Some(Item { bytes, .. }), "libcomb.so raw") => send(bytes, input, delivery),
                _ => break,
            },
            _ => break,
        }
    }
    Ok(Brought::Cannot("says what was not asked: is its `sh` a POSIX shell?".to_owned()))
}

/// Where this fails, the script says why next.
fn send(bytes: &[u8], input: &mut impl Write, delivery: &Delivery) {
    delivery.expect(bytes.len() as u64);
    let all = || {
        input.write_all(format!("{}\n", bytes.len()).as_bytes())?;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            input.write_all(chunk)?;
            delivery.sent(chunk.len());
        }
        input.flush()
    };
    let _: Result<()> = { all }();
}

/// What the script cannot do, for people.
fn advice(why: &str, luggage: &Luggage) -> String {
    let (word, rest) = why.split_once(' ').unwrap_or((why, ""));
    let rest = cut(rest);
    let elsewhere = "install comb there, and say with --comb where";
    match word {
        "machine" => format!(
            "it is {rest}, and this comb is for Linux {}: {elsewhere} is one that is built for it",
            std::env::consts::ARCH
        ),
        "tool" => format!(
            "it has no `{rest}`, which it takes to bring comb there: install that (coreutils); or {elsewhere}"
        ),
        "place" => format!(
            "there is no place for comb, which takes {} MB: {rest}. Make room, or name a directory with TMPDIR there; or {elsewhere}",
            megabytes(luggage)
        ),
        "keep" => format!(
            "comb did not arrive as it was sent: {rest}. Is the disk there full? Make room; or {elsewhere}"
        ),
        "run" => format!(
            "the comb that was brought there does not run (status {rest}): {elsewhere} is one that is built for it"
        ),
        _ => format!("it cannot take comb: {}", cut(why)),
    }
}

fn megabytes(luggage: &Luggage) -> usize {
    let library = luggage.library.as_ref().map_or(0, |library| library.bytes.len());
    (luggage.comb.bytes.len() + library).div_ceil(1 << 20)
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_REASON).collect()
}
