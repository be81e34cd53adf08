//! `comb top`: the cells, the tasks and the last failure, again and again, in a terminal. Where there is none, once.

use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use comb_dashboard::snapshot::Snapshot;
use comb_dashboard::{Looker, look};
use comb_host::RuntimeDirectory;
use rustix::event::{PollFd, PollFlags};
use rustix::termios::{LocalModes, OptionalActions, Termios};

use crate::failure::Outcome;
use crate::output::{Colour, Output};
use crate::{agent, table};

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Seconds from one look to the next
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = crate::run::limit)]
    delay: Duration,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "COUNT")]
    looks: Option<u64>,
}

pub(crate) const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal, as it was before, when this is dropped.
pub(crate) struct Screen {
    before: Option<Termios>,
}

impl Screen {
    pub(crate) fn begin() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = rustix::termios::tcgetattr(&stdin).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        }
        write!(std::io::stdout(), "{BEGIN}")?;
        Ok(Self { before })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write!(std::io::stdout(), "{END}");
        let _ = std::io::stdout().flush();
        if let Some(before) = &self.before {
            let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

impl Top {
    pub(crate) fn run(self, output: Output) -> Outcome {
        let directory = RuntimeDirectory::from_environment()?;
        agent::status(&directory)?;
        if !std::io::stdout().is_terminal() && self.looks.is_none() {
            let seen = look(&directory);
            output.show(&seen, || text(&seen, output, None))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut looker = Looker::new(directory);
        let is_page = std::io::stdout().is_terminal() && !output.is_json();
        let screen = if is_page { Some(Screen::begin()?) } else { None };
        let mut looks = 0;
        loop {
            let seen = looker.look();
            looks += 1;
            if output.is_json() {
                output.line(&seen)?;
            } else {
                let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
                let rows = size.map(|size| usize::from(size.ws_row)).filter(|_| is_page);
                let clear = if is_page { HOME_AND_CLEAR } else { "" };
                let page = text(&seen, output, rows);
                write!(std::io::stdout(), "{clear}{page}")?;
                std::io::stdout().flush()?;
            }
            let is_last = self.looks.is_some_and(|most| looks >= most);
            if is_last || !wait(self.delay, screen.is_some())? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// Waits; `false`: somebody has typed q.
pub(crate) fn wait(delay: Duration, listens: bool) -> std::io::Result<bool> {
    if !listens {
        std::thread::sleep(delay);
        return Ok(true);
    }
    let (stdin, until) = (std::io::stdin(), Instant::now() + delay);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let limit = left.try_into().expect("some seconds");
        let borrowed = stdin.as_fd();
        let mut waiting = [PollFd::new(&borrowed, PollFlags::IN)];
        match rustix::event::poll(&mut waiting, Some(&limit)) {
            Ok(0) => return Ok(true),
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        let mut key = [0];
        if stdin.lock().read(&mut key)? == 0 || key[0] == b'q' {
            return Ok(false);
        }
    }
}

/// What fits on the page.
fn text(seen: &Snapshot, output: Output, rows: Option<usize>) -> String {
    let count = |state: &str| seen.cells.iter().filter(|cell| cell.state == state).count();
    let (up, all) = (count("up"), seen.cells.len());
    let host = seen.hosts.iter().find(|host| host.is_this);
    let host = host.map(|host| {
        let free = table::bytes(host.free_bytes);
        format!("; {}: load {:.2} on {} cores, {free} free", host.host, host.load, host.cores)
    });
    let keys = if rows.is_some() { "   q: quit" } else { "" };
    let mut text = format!("{}: {up} of {all} cells up{}{keys}\n\n", seen.comb, host.unwrap_or_default());
    if let Some(trouble) = &seen.trouble {
        text += &format!("{trouble}\n");
    }
    text += &cells(seen, output);
    if !seen.tasks.is_empty() {
        text += "\n";
        text += &tasks(seen);
    }
    if !seen.regions.is_empty() {
        text += "\n";
        text += &regions(seen);
    }
    if let Some(failure) = seen.failures.first() {
        let story = crate::events::story(failure);
        let story = if output.has_colours() { Colour::Yellow.paint(story.trim_end()) + "\n" } else { story };
        text += &format!("\nthe last failure: {story}");
    }
    match rows {
        // The last line is the cursor's.
        Some(rows) => text.lines().take(rows.saturating_sub(1)).map(|line| format!("{line}\n")).collect(),
        None => text,
    }
}

fn cells(seen: &Snapshot, output: Output) -> String {
    let heading =
        ["CELL", "STATE", "LIFE", "CPU", "OWN", "IMPORTED", "LOANED", "TASKS", "MESSAGES/S", "ROUND TRIP"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    for cell in &seen.cells {
        let messages = seen
            .edges
            .iter()
            .filter(|edge| edge.to == cell.cell)
            .fold(0.0, |sum, edge| sum + edge.messages_per_s);
        let bytes = table::bytes;
        rows.push(vec![
            cell.cell.to_string(),
            if cell.why.is_empty() { cell.state.to_owned() } else { format!("{}: {}", cell.state, cell.why) },
            cell.incarnation.to_string(),
            cell.cpu_share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            bytes(cell.memory.own_bytes),
            bytes(cell.memory.imported_bytes),
            bytes(cell.memory.loaned_bytes),
            cell.tasks.len().to_string(),
            format!("{messages:.1}"),
            comb_cell::clock::span(cell.last_round_trip_ns),
        ]);
    }
    table::painted(&rows, output, |column, text| table::state_colour(text).filter(|_| column == 1))
}

fn tasks(seen: &Snapshot) -> String {
    let mut rows =
        vec![["TASK", "COMPONENTS", "DEPENDS ON CELLS", "RESTARTS", "PROGRAM"].map(String::from).to_vec()];
    for task in &seen.tasks {
        let cells: Vec<String> = task.depends_on.iter().map(|on| on.cell.to_string()).collect();
        rows.push(vec![
            task.task.to_string(),
            task.components.to_string(),
            cells.join(","),
            task.restarts.to_string(),
            task.program.clone(),
        ]);
    }
    table::format(&rows)
}

fn regions(seen: &Snapshot) -> String {
    let mut rows =
        vec![["REGION", "CELL", "LENGTH", "MEMORY", "MISSES/S", "LOST"].map(String::from).to_vec()];
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for region in &seen.regions {
        rows.push(vec![
            region.region.clone(),
            region.cell.to_string(),
            table::bytes(region.bytes),
            or(region.resident_bytes.map(table::bytes)),
            or(region.misses_per_s.map(|rate| format!("{rate:.1}"))),
            or(region.lost_blocks.map(|lost| lost.to_string())),
        ]);
    }
    table::format(&rows)
}
