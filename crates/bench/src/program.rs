//! The measured programs: ours and the peers', each a process of its own that prints a JSON line a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A line that a program printed.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) peer: String,
    pub(crate) test: String,
    pub(crate) bytes: u64,
    pub(crate) value: f64,
    pub(crate) version: String,
    /// The bare round trip beside which it was taken, if the program took one itself.
    pub(crate) bare_ns: Option<f64>,
    /// What the value is compared with, if the program measured that itself. How near the cores are hardly matters then.
    pub(crate) beside: Option<f64>,
}

/// Why a program has no numbers.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) peer: String,
    pub(crate) reason: String,
}

/// How programs are run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Priority {
    /// So that whatever else the machine does does not stand between two halves of a round trip.
    RealTime,
    /// Before whatever else the machine does, but shared fairly among more processes than there are cores. A kernel that
    /// groups processes by session (autogroup) heeds it only among those of our own.
    Favoured,
    /// For ways through the kernel: its own threads have to run as well, on the cores where ours spin.
    Ordinary,
}

impl Priority {
    /// What pairs of processes are run with, theirs and ours alike: at real-time priority where that is allowed.
    pub(crate) fn highest_allowed() -> Self {
        let tried = Command::new("chrt").args(["-f", "1", "true"]).stderr(Stdio::null()).status();
        if tried.is_ok_and(|status| status.success()) { Self::RealTime } else { Self::Ordinary }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::RealTime => "real-time priority",
            Self::Favoured => "niceness -20",
            Self::Ordinary => "ordinary priority",
        }
    }

    fn command(self, program: &Path) -> Command {
        let prefix: &[&str] = match self {
            Self::RealTime => &["chrt", "-f", "1"],
            // Who may not be favoured is run all the same.
            Self::Favoured => &["nice", "-n", "-20"],
            Self::Ordinary => return Command::new(program),
        };
        let mut command = Command::new(prefix[0]);
        command.args(&prefix[1..]).arg(program);
        command
    }

    /// Runs one of our own sides, and kills both its processes when they take longer: a side that lost the other would
    /// spin for ever, at a priority that nothing gets past.
    pub(crate) fn ours(self, name: &str, limit_s: u32) -> Result<Vec<Sample>, Missing> {
        let missing = |reason: String| Missing { peer: name.to_owned(), reason };
        let program = std::env::current_exe().map_err(|error| missing(error.to_string()))?;
        let mut command = self.command(Path::new("timeout"));
        command.args(["-s", "KILL", &limit_s.to_string()]).arg(program).args(["bench-side", name]);
        run(command, name)
    }

    /// Runs a peer.
    pub(crate) fn peer(self, name: &str) -> Result<Vec<Sample>, Missing> {
        let missing = |reason: &str| Missing { peer: name.to_owned(), reason: reason.to_owned() };
        let folder =
            peers_folder().ok_or_else(|| missing("benches/peers is not here: run from the repository"))?;
        let mut command = self.command(&folder.join("run.sh"));
        command.arg(name);
        run(command, name)
    }
}

pub(crate) fn peers_folder() -> Option<PathBuf> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers");
    let here = PathBuf::from("benches/peers");
    [here, built_from].into_iter().find(|folder| folder.join("run.sh").is_file())
}

fn run(mut command: Command, name: &str) -> Result<Vec<Sample>, Missing> {
    let missing = |reason: String| Missing { peer: name.to_owned(), reason };
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| missing(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if let Some(reason) = lines.iter().find_map(|line| line["missing"].as_str()) {
        return Err(missing(reason.to_owned()));
    }
    let samples: Vec<Sample> = lines.iter().filter_map(sample).collect();
    if !output.status.success() || samples.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it printed nothing").to_owned();
        return Err(missing(format!("it failed: {said}")));
    }
    Ok(samples)
}

fn sample(line: &Value) -> Option<Sample> {
    let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let test = text("test");
    let value = match test.as_str() {
        "rate" => &line["per_second"],
        "bandwidth" => &line["bytes_per_second"],
        _ => line.get("value").unwrap_or(&line["median_ns"]),
    };
    Some(Sample {
        peer: line["peer"].as_str()?.to_owned(),
        bytes: line["bytes"].as_u64()?,
        value: value.as_f64()?,
        version: text("version"),
        bare_ns: line["bare_ns"].as_f64(),
        beside: line["beside"].as_f64(),
        test,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_line_is_read() {
        let line = r#"{"peer":"ucx","version":"1.13.1","test":"rate","bytes":64,"per_second":5e6}"#;
        let sample = sample(&serde_json::from_str(line).unwrap()).unwrap();
        assert_eq!((sample.peer.as_str(), sample.bytes, sample.value), ("ucx", 64, 5e6));
        assert!(super::sample(&serde_json::json!({"peer": "ucx", "missing": "not built"})).is_none());
    }
}
