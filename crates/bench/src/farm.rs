//! What a farm costs: the world in which it is simulated, as a process of its own; and one real node of it, also a process of its
//! own, which hears all that a node of the simulated farm hears and holds the same view.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use comb_membership::scenario::gossip::{self, Heard, Hearer, Measured, Trial};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::idle::held_bytes;
use crate::membership::Outcome;

/// The sides of this module.
pub(crate) const WORLD: &str = "farm";
pub(crate) const VIEW: &str = "farm_view";
const HEARER: &str = "farm_hearer";

/// A farm of [`Trial::quiet`] in a process of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Farm {
    nodes: u32,
    pub(crate) measured: Measured,
    pub(crate) real_s: f64,
    /// The most that the whole process ever held, by the nodes in it.
    pub(crate) resident_bytes_a_node: f64,
}

/// A node's view of a farm in a process of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct View {
    nodes: u32,
    /// What the process holds, less what it holds with a farm of one.
    pub(crate) bytes: f64,
    /// What the state service says that it holds itself, less the same.
    counted_bytes: usize,
}

/// What the hearing process says in the end.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    alive: u32,
    held_bytes: u64,
    counted_bytes: usize,
}

/// Runs a side of this module in another process.
pub(crate) fn elsewhere<T: DeserializeOwned>(side: &str, nodes: u32) -> Outcome<T> {
    let program = std::env::current_exe()?;
    let run = Command::new(program).args(["bench-side", side, "--nodes", &nodes.to_string()]).output()?;
    if !run.status.success() {
        return Err(format!("{side}: {}", String::from_utf8_lossy(&run.stderr).trim_end()).into());
    }
    Ok(serde_json::from_slice(&run.stdout)?)
}

/// Two virtual minutes of so many nodes, here.
pub(crate) fn world(nodes: u32) -> Outcome<Farm> {
    let began = Instant::now();
    let measured = gossip::measure(Trial::quiet(1, nodes), None, None)?;
    let real_s = began.elapsed().as_secs_f64();
    let most = most_resident_bytes(&std::fs::read_to_string("/proc/self/status")?);
    let most = most.ok_or("the kernel does not say what this process held")?;
    Ok(Farm { nodes, measured, real_s, resident_bytes_a_node: most as f64 / f64::from(nodes) })
}

/// What one process holds that knows so many nodes.
pub(crate) fn view(nodes: u32) -> Outcome<View> {
    let (alone, among) = (hearer_of(1)?, hearer_of(nodes)?);
    if among.alive != nodes {
        return Err(format!("it knows {} of {nodes} nodes", among.alive).into());
    }
    let bytes = among.held_bytes.saturating_sub(alone.held_bytes);
    let counted_bytes = among.counted_bytes.saturating_sub(alone.counted_bytes);
    Ok(View { nodes, bytes: bytes as f64, counted_bytes })
}

/// The process that hears, and what it is told through.
struct Teller {
    hearer: Child,
    tell: BufWriter<ChildStdin>,
    failed: Option<std::io::Error>,
}

impl Teller {
    fn start() -> Outcome<Self> {
        let mut hearer = Command::new(std::env::current_exe()?);
        let hearer = hearer.args(["bench-side", HEARER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut hearer = hearer.spawn()?;
        let tell = BufWriter::new(hearer.stdin.take().expect("piped"));
        Ok(Self { hearer, tell, failed: None })
    }

    fn tell(&mut self, heard: &Heard) {
        let line = serde_json::to_string(heard).expect("plain data");
        let told = writeln!(self.tell, "{line}");
        self.failed = self.failed.take().or(told.err());
    }

    fn finish(self) -> Outcome<Held> {
        let Self { hearer, tell, failed } = self;
        // Closed, so that it knows that this was all.
        let told = tell.into_inner().map(drop).map_err(std::io::IntoInnerError::into_error);
        let said = hearer.wait_with_output()?;
        if let Some(error) = failed.or(told.err()) {
            return Err(error.into());
        }
        Ok(serde_json::from_slice(&said.stdout)?)
    }
}

fn hearer_of(nodes: u32) -> Outcome<Held> {
    let teller = Rc::new(RefCell::new(Teller::start()?));
    let told = Rc::clone(&teller);
    gossip::listen(1, nodes, move |heard| told.borrow_mut().tell(&heard))?;
    let teller = Rc::into_inner(teller).ok_or("the world is over, and tells on")?;
    teller.into_inner().finish()
}

/// The hearing process: takes what it is told, a line each, and says what it holds then.
pub(crate) fn hear() -> Outcome<()> {
    give_back_what_is_free();
    let mut hearer: Option<Hearer> = None;
    for line in BufReader::new(std::io::stdin()).lines() {
        let heard: Heard = serde_json::from_str(&line?)?;
        match &mut hearer {
            Some(hearer) => hearer.hear(&heard),
            none => *none = Hearer::start(&heard),
        }
    }
    let hearer = hearer.ok_or("it was told of no beginning")?;
    let (alive, counted_bytes) = (hearer.state().alive(), hearer.state().memory_bytes());
    let held = Held { alive, held_bytes: held_bytes()?, counted_bytes };
    println!("{}", serde_json::to_string(&held)?);
    Ok(())
}

/// What the command line's reader has freed would else hold part of a farm, and nobody would see it.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a call of the C library's that no crate of ours wraps")]
fn give_back_what_is_free() {
    // SAFETY: has no preconditions.
    unsafe { libc::malloc_trim(0) };
}

/// musl gives back what is free by itself, and knows no such call.
#[cfg(not(target_env = "gnu"))]
fn give_back_what_is_free() {}

/// Runs the side of that name here, if it is one of these.
pub(crate) fn side(name: &str, nodes: u32) -> Option<Outcome<()>> {
    let said = match name {
        WORLD => world(nodes).and_then(|farm| Ok(serde_json::to_string(&farm)?)),
        VIEW => view(nodes).and_then(|view| Ok(serde_json::to_string(&view)?)),
        HEARER => return Some(hear()),
        _ => return None,
    };
    Some(said.map(|line| println!("{line}")))
}

fn most_resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_was_resident_is_found() {
        let status = "VmPeak:\t  9000 kB\nVmHWM:\t  700 kB\nVmRSS:\t  500 kB\n";
        assert_eq!(most_resident_bytes(status), Some(700 * 1024));
        assert_eq!(most_resident_bytes("VmRSS:\t  500 kB\n"), None);
    }
}
