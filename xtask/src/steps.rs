//! Steps of a task: one heading each, their seconds, and a table at the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How a step ended. Of a reason, the first line is for the table; more may follow, each indented. What went wrong in detail was printed before.
pub(crate) enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// The steps so far.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<(String, Outcome, Duration)>,
}

impl Report {
    /// Prints the heading, does the work, and remembers how it ended.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Outcome) {
        say(&format!("\n=== {name}"));
        let start = Instant::now();
        let outcome = work();
        self.steps.push((name.to_owned(), outcome, start.elapsed()));
    }

    /// A step that is one command; what it prints is shown as it comes.
    pub(crate) fn run(&mut self, name: &str, command: Command) {
        self.step(name, || run(command));
    }

    /// Prints the table and says how the whole task ended.
    pub(crate) fn finish(self) -> ExitCode {
        let width = self.steps.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        say(&format!("\n{:width$}  {:>7}  result", "step", "seconds"));
        let mut failed = false;
        for (name, outcome, duration) in &self.steps {
            let result = match outcome {
                Outcome::Passed => "ok".to_owned(),
                Outcome::Skipped(reason) => format!("skipped: {reason}"),
                Outcome::Failed(reason) => {
                    failed = true;
                    format!("FAILED: {reason}")
                }
            };
            say(&format!("{name:width$}  {:>7.1}  {result}", duration.as_secs_f64()));
        }
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Runs a command to its end. What it prints is shown as it comes; of what failed, the lines that say so come again in the reason.
pub(crate) fn run(command: Command) -> Outcome {
    run_showing(command, std::io::stdout())
}

fn run_showing(mut command: Command, to: impl Write) -> Outcome {
    let not_started =
        |error, command| Outcome::Failed(format!("{} could not be started: {error}", program(command)));
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return not_started(error, &command),
    };
    let failures = child.stdout.take().map(|from| show(from, to)).unwrap_or_default();
    match child.wait() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(
            [status.to_string()].into_iter().chain(failures).collect::<Vec<_>>().join("\n    "),
        ),
        Err(error) => not_started(error, &command),
    }
}

/// Hands on what comes, as it comes, until the end of it. Gives back the lines that tell of a failure, with those behind a panic's: they say why.
fn show(from: impl Read, mut to: impl Write) -> Vec<String> {
    const MOST: usize = 60;
    const MOST_REASONS: usize = 8;
    let mut failures = Vec::new();
    let mut lines = BufReader::new(from);
    let (mut line, mut reasons, mut is_trace) = (Vec::new(), 0, false);
    while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            std::process::exit(1);
        }
        let text = String::from_utf8_lossy(&line);
        let is_panic = text.contains("' panicked at ") || text.contains(") panicked at ");
        // Where it was called from says less than what was printed after that, which an empty line ends.
        let is_note = text.starts_with("note: ");
        is_trace = (is_trace || text.starts_with("stack backtrace:")) && !is_note;
        if text.trim().is_empty() {
            reasons = 0;
        }
        let is_reason = reasons > 0 && !is_trace && !is_note;
        if (is_panic || is_reason || text.contains("FAILED")) && failures.len() < MOST {
            failures.push(text.trim_end().to_owned());
        }
        if is_panic {
            reasons = MOST_REASONS;
        } else if is_reason {
            reasons -= 1;
        }
        line.clear();
    }
    failures
}

/// The standard output of a command that must succeed; its errors are shown as they come.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("{} could not be started: {error}", program(&command)))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(output.status.to_string())
    }
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Prints a line at once, so that it stands before what another process prints next. Ends the program when nobody reads.
pub(crate) fn say(line: &str) {
    let mut output = std::io::stdout();
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        std::process::exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_said_again_in_the_reason() {
        let panic = ["thread 'bad' (7) panicked at src/a.rs:1:2:", "not equal", "left: 1", "right: 2"];
        let trace = "stack backtrace:\n   0: main\n             at src/a.rs:1";
        let long = "thread 'long' (8) panicked at src/b.rs:3:4:";
        let log: Vec<String> = (0..20).map(|line| format!("line {line}")).collect();
        let text = format!(
            "test good ... ok\ntest bad ... FAILED\n{}\n{trace}\nnote: more\nstate\n\nmore\n{long}\nshort\n\nmore\n{long}\n{}\n",
            panic.join("\n"),
            log.join("\n")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &format!("printf '%s' \"{text}\"; exit 3")]);
        // Not to where these tests' own failures are read of.
        let mut shown = Vec::new();
        let Outcome::Failed(reason) = run_showing(command, &mut shown) else { panic!("it failed") };
        let mut expected = vec!["exit status: 3", "test bad ... FAILED"];
        expected.extend(panic);
        expected.extend(["state", long, "short", long]);
        expected.extend(log[..8].iter().map(String::as_str));
        assert_eq!(reason.lines().map(str::trim).collect::<Vec<_>>(), expected);
        assert_eq!(shown, text.as_bytes());
        assert!(matches!(run(Command::new("true")), Outcome::Passed));
        assert!(matches!(run(Command::new("/no/such/program")), Outcome::Failed(_)));
    }
}
