//! Steps of a task: one heading each, their seconds, and a table at the end.

use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// How a step ended. A reason is one line for the table; what went wrong in detail was printed before.
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

/// Runs a command to its end.
pub(crate) fn run(mut command: Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(format!("{} could not be started: {error}", program(&command))),
    }
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
