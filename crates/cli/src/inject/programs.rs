//! Programs that this command starts, each with a limit: what hangs is a result, and not the end of the campaign.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use comb_host::process;

/// No program here takes so long, on a machine however busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// How a program ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// Its exit status, or 128 and its signal; none: it hung, and was killed.
    pub(crate) status: Option<i32>,
    /// Lines of its standard output.
    pub(crate) lines: Vec<String>,
    /// What it said on standard error.
    pub(crate) said: String,
}

impl Ended {
    pub(crate) fn hung(&self) -> bool {
        self.status.is_none()
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        let how = self
            .status
            .map_or("hung and was killed".to_owned(), |status| format!("ended with status {status}"));
        format!("{how}: {}", self.said.trim().replace('\n', "; "))
    }
}

/// A program at work.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    heard: Vec<String>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (says, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| says.send(line)));
        let (complains, errors) = mpsc::channel();
        let mut bad = child.stderr.take().expect("piped");
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = bad.read_to_end(&mut text);
            let _ = complains.send(String::from_utf8_lossy(&text).into_owned());
        });
        let input = child.stdin.take();
        Ok(Self { child, input, lines, errors, heard: Vec::new() })
    }

    /// Waits for a line. `false`: it has ended, or says nothing.
    pub(crate) fn says(&mut self, wanted: &str, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let is_it = line == wanted;
            self.heard.push(line);
            if is_it {
                return true;
            }
        }
        false
    }

    /// The next line that it says. `None`: it has ended, or says nothing.
    pub(crate) fn line(&mut self, limit: Duration) -> Option<String> {
        let line = self.lines.recv_timeout(limit).ok()?;
        self.heard.push(line.clone());
        Some(line)
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Its standard input ends.
    pub(crate) fn tell_to_end(&mut self) {
        self.input = None;
    }

    /// Waits for its end; whoever does not end is killed.
    pub(crate) fn end(mut self, limit: Duration) -> Ended {
        let in_time = self.is_over()
            || process::open_number(self.child.id())
                .is_none_or(|process| process::wait_for_end(&process, limit));
        if !in_time {
            let _ = self.child.kill();
        }
        let status = self.child.wait().ok().filter(|_| in_time);
        let status =
            status.and_then(|status| status.code().or_else(|| status.signal().map(|signal| 128 + signal)));
        // Its components may have the other ends for a moment longer.
        let said = self.errors.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        self.heard.extend(std::iter::from_fn(|| self.lines.recv_timeout(Duration::from_millis(200)).ok()));
        Ended { status, lines: std::mem::take(&mut self.heard), said }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// From its beginning to its end.
pub(crate) fn run_to_end(command: &mut Command, limit: Duration) -> Ended {
    match Program::start(command) {
        Ok(mut program) => {
            program.tell_to_end();
            program.end(limit)
        }
        Err(error) => Ended { status: Some(-1), lines: Vec::new(), said: error.to_string() },
    }
}
