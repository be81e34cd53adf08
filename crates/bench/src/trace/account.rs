//! What comb takes of a load, counted: no difference between two runs, and so nothing of what else changes between them.

use std::fs::{self, File};
use std::process::Command;

use comb_trace::kernel::count_time_taken;
use serde::Deserialize;

use super::{Load, Outcome, Place, Row, limit, time};
use crate::net::median;

/// What `comb trace record` says at its end.
#[derive(Deserialize)]
struct Said {
    seconds_in_kernel: Option<f64>,
}

/// The share of a load's processor time that its recorder takes more, and that its programs in the kernel do by the kernel's account.
pub(super) fn row(place: &Place, load: &Load, rounds: usize, say: &dyn Fn(&str)) -> Outcome<Row> {
    let mut row = limit(format!("{}: more processor time, by comb, as counted", load.name), None, "%", 2.0);
    let _counting = match count_time_taken() {
        Ok(counting) => counting,
        Err(error) => {
            row.note = format!("this kernel does not count it: {error}");
            return Ok(row);
        }
    };
    let whole: Vec<String> = load.pieces.iter().map(|piece| piece.join(" ")).collect();
    let whole = whole.join(" && ");
    let mut shares = Vec::new();
    let mut notes = Vec::new();
    for round in 1..=rounds {
        say(&format!("{}: counted, round {round} of {rounds}", load.name));
        let to = place.fresh()?;
        let path = to.join("said");
        let mut command = Command::new("/proc/self/exe");
        command.args(["trace", "record", "--json", "--mechanism", "kernel", "--to"]).arg(&to).arg("--");
        let took = time(command.args(["sh", "-c", &whole]).stderr(File::create(&path)?))?;
        let said = fs::read_to_string(&path)?;
        fs::remove_dir_all(&to)?;
        let said: Said = serde_json::from_str(said.lines().last().unwrap_or_default())?;
        let in_kernel = said.seconds_in_kernel.ok_or("the kernel has counted nothing")?;
        let alone = took.others - in_kernel;
        shares.push((took.own + in_kernel) / alone * 100.0);
        notes.push(format!("{:.0} and {:.0} ms of {alone:.1} s", took.own * 1e3, in_kernel * 1e3));
    }
    row.ours = median(&shares);
    row.ratio = row.ours.map(|ours| ours / 2.0);
    row.note = format!("itself and in the kernel: {}", notes.join("; "));
    Ok(row)
}
