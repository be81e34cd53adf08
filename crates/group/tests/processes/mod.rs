//! Members as processes, which say on their output what happens to them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
/// Says to a process what it is.
const TOLD: &str = "COMB_TEST_MEMBER";

/// What this process is told to be; nothing, if it is the test itself.
pub(crate) fn told() -> Option<String> {
    std::env::var(TOLD).ok()
}

/// A process, killed when it is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
}

impl Process {
    /// Runs the test `member_process` of this program, which does as it is told, and says lines that begin with a colon.
    pub(crate) fn start(told: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "member_process", "--nocapture", "--test-threads=1"])
            .env(TOLD, told)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (tell, lines) = mpsc::channel();
        let out = child.stdout.take().expect("it was piped");
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The last line of a process that was killed may be a part of one.
                let Some(line) = line.strip_prefix(':') else { continue };
                if tell.send(line.to_owned()).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Until something is so of the lines that processes say.
pub(crate) fn until(processes: &[Process], mut so: impl FnMut(usize, &str) -> bool) {
    let deadline = Instant::now() + SOON;
    let mut heard = Vec::new();
    loop {
        for (own, process) in processes.iter().enumerate() {
            while let Ok(line) = process.lines.try_recv() {
                heard.push(format!("{own}: {line}"));
                if so(own, &line) {
                    return;
                }
            }
        }
        let last = heard.len().saturating_sub(40);
        assert!(Instant::now() < deadline, "it never comes to be so: {:#?}", &heard[last..]);
        std::thread::sleep(Duration::from_millis(1));
    }
}
