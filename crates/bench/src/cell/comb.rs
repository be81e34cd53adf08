//! A comb of this benchmark's own, which ends with it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use comb_host::RuntimeDirectory;
use comb_host::control::{self, CellCondition, CellStatus, Reply, Request, Status};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const UP_LIMIT: Duration = Duration::from_secs(30);
/// A cell that its agent has given up is started by hand after so long.
const PATIENCE: Duration = Duration::from_secs(2);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// An agent and its cells.
pub(crate) struct Comb {
    directory: RuntimeDirectory,
    agent: Child,
    cells: u32,
}

impl Comb {
    pub(crate) fn up(cells: u32) -> Outcome<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comb-bench-cells-{}-{number}", std::process::id()));
        let directory = RuntimeDirectory::at(path)?;
        // Its standard input ends with this process, however that ends.
        let mut agent = Command::new(std::env::current_exe()?)
            .args(["host", "--end-with-stdin", "--cells", &cells.to_string()])
            .env("COMB_RUNTIME_DIR", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ready = agent.stdout.take().ok_or("no pipe")?;
        let comb = Self { directory, agent, cells };
        let mut word = String::new();
        BufReader::new(ready).read_line(&mut word)?;
        match comb.ask(&Request::AwaitUp)? {
            Reply::Up { .. } => Ok(comb),
            other => Err(format!("the cells do not come up: {other:?}").into()),
        }
    }

    pub(super) fn ask(&self, request: &Request) -> Outcome<Reply> {
        Ok(control::ask(&self.directory, request)?)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// `comb` with these arguments, which finds these cells.
    pub(super) fn command(&self, arguments: &[&str]) -> Outcome<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).env("COMB_RUNTIME_DIR", self.directory.path());
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        Ok(command)
    }

    pub(super) fn create_region(&self, name: &str, bytes: &str, cell: u32) -> Outcome<()> {
        let made = self
            .command(&["region", "create", name, "--size", bytes, "--cell", &cell.to_string()])?
            .output()?;
        if made.status.success() { Ok(()) } else { Err(format!("no region {name}").into()) }
    }

    pub(super) fn status(&self) -> Outcome<Status> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            other => Err(format!("{other:?} is no status").into()),
        }
    }

    pub(super) fn cell(&self, number: u32) -> Outcome<CellStatus> {
        let status = self.status()?;
        Ok(status.cells.into_iter().find(|cell| cell.cell == number).ok_or("no such cell")?)
    }

    /// Until all are up and have channels to each other.
    pub(super) fn wait_until_whole(&self) -> Outcome<()> {
        let since = Instant::now();
        let mut started = since;
        while since.elapsed() < UP_LIMIT {
            let cells = self.status()?.cells;
            let is_up =
                |cell: &&CellStatus| cell.state == CellCondition::Up && cell.channels + 1 == self.cells;
            if cells.iter().filter(is_up).count() == cells.len() {
                return Ok(());
            }
            let down = cells.iter().find(|cell| matches!(cell.state, CellCondition::Ended(_)));
            if let Some(down) = down.filter(|_| started.elapsed() > PATIENCE) {
                started = Instant::now();
                let _ = self.ask(&Request::Start { cell: down.cell })?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the cells do not come together again".into())
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.log_file()).unwrap_or_default()
    }
}

impl Drop for Comb {
    fn drop(&mut self) {
        let _ = control::ask_within(&self.directory, &Request::Down, Duration::from_secs(15));
        drop(self.agent.stdin.take());
        let _ = self.agent.wait();
    }
}
