//! A process for each case.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the case that this process is for.
const CASE: &str = "COMB_MEMORY_CASE";

/// Far longer than any case takes: one that hangs is to fail.
const LONGEST_CASE: Duration = Duration::from_secs(120);

/// The test of this name passes in a process of its own.
pub(crate) fn passes(name: &str, case: impl FnOnce()) {
    let Some(ended) = elsewhere(name, case) else { return };
    let (code, text) = (ended.code, &ended.text);
    assert!(code == Ok(0) && text.contains("1 passed"), "{name} ended with {code:?}:\n{text}");
}

/// The test of this name ends its process by a signal, and says this before.
pub(crate) fn dies(name: &str, signal: i32, last_words: &str, case: impl FnOnce()) {
    dies_saying(name, signal, &[last_words], case);
}

pub(crate) fn dies_saying(name: &str, signal: i32, last_words: &[&str], case: impl FnOnce()) {
    let Some(ended) = elsewhere(name, case) else { return };
    let text = &ended.text;
    assert_eq!(ended.code, Err(signal), "{name}:\n{text}");
    for words in last_words {
        assert!(text.contains(words), "{name} has not said {words:?}:\n{text}");
    }
}

struct Ended {
    /// The exit status, or the signal.
    code: Result<i32, i32>,
    text: String,
}

/// In a process for this case, does it, and gives none; elsewhere starts such a process, and says how it ended.
fn elsewhere(name: &str, case: impl FnOnce()) -> Option<Ended> {
    if std::env::var(CASE).is_ok_and(|wanted| wanted == name) {
        case();
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(CASE, name)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    end_after(&mut child, Instant::now() + LONGEST_CASE);
    let output = child.wait_with_output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let code = output.status.code().ok_or_else(|| output.status.signal().unwrap_or(0));
    Some(Ended { code, text })
}

/// What a case prints fits into its pipes, or it would not end.
fn end_after(child: &mut Child, limit: Instant) {
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > limit {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
