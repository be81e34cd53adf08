//! A program in a cell that does what it is told, line by line: the test `servant` of whoever includes this.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::cells::Comb;

/// Says to it which region it has to do with.
const TOLD: &str = "COMB_TEST_SERVANT";

/// The region that this process has to do with; nothing, if it is the test itself.
pub(crate) fn told() -> Option<String> {
    std::env::var(TOLD).ok()
}

/// What this process does: says of each order what came of it.
pub(crate) fn serve(mut does: impl FnMut(&[&str]) -> String) {
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let words: Vec<&str> = order.split_whitespace().collect();
        println!("\n= {}", does(&words));
        std::io::stdout().flush().unwrap();
    }
}

/// Who has it started.
pub(crate) struct Servant {
    /// The command that has.
    pub(crate) launcher: Child,
    asks: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Servant {
    /// By `comb run` with these arguments.
    pub(crate) fn begin(comb: &Comb, arguments: &[&str], region: &str) -> Self {
        let mut command = comb.command(&["run", "-n", "1"]);
        command.args(arguments).arg("--").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "servant", "--nocapture", "--test-threads=1"]).env(TOLD, region);
        let mut launcher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (asks, says) = (launcher.stdin.take().unwrap(), launcher.stdout.take().unwrap());
        Self { launcher, asks, says: BufReader::new(says) }
    }

    /// What it says to an order.
    #[track_caller]
    pub(crate) fn does(&mut self, order: &str) -> String {
        writeln!(self.asks, "{order}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "it has ended instead of: {order}");
            if let Some(said) = line.strip_prefix("= ") {
                return said.trim().to_owned();
            }
        }
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}
