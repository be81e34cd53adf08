//! Many small processes: in cells, by the same command outside of them, and by nothing but fork and exec.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::comb::Comb;
use super::measured::Measured;
use super::role;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PAIRS: usize = 5;
const FULL_PAIRS: usize = 15;
/// Of those that do nothing, and of those that compute.
const EMPTY: usize = 40;
const COMPUTING: usize = 8;
/// Some fifty milliseconds.
const STEPS: u64 = 40_000_000;

/// By samples `empty in cells`, `empty outside`, `empty plain`, and the same of `computing`, in nanoseconds a process; and `… in cells by outside` of each pair.
pub(super) fn measure(measured: &mut Measured, comb: &Comb, full: bool, say: &dyn Fn(&str)) -> Outcome<()> {
    for pair in 1..=if full { FULL_PAIRS } else { PAIRS } {
        for (what, count) in [("empty", EMPTY), ("computing", COMPUTING)] {
            say(&format!("batch of {what} processes, {pair}"));
            let mut totals = [0.0; 3];
            // One of each by turns: what else the machine does is the same for all.
            for turn in 0..count {
                for way in 0..totals.len() {
                    let way = (way + turn) % totals.len();
                    totals[way] += one(comb, what, way)?;
                }
            }
            for (way, name) in ["in cells", "outside", "plain"].into_iter().enumerate() {
                measured.add(format!("{what} {name}"), totals[way] / count as f64);
            }
            measured.add(format!("{what} in cells by outside"), totals[0] / totals[1]);
            measured.add(format!("{what} in cells by plain"), totals[0] / totals[2]);
        }
    }
    Ok(())
}

fn one(comb: &Comb, what: &str, way: usize) -> Outcome<f64> {
    let options = ["-n", "1", "--cells", if way == 0 { "all" } else { "none" }];
    let mut command = match (what, way) {
        ("empty", 2) => Command::new("/bin/true"),
        ("empty", _) => comb.command(&[&["run"], &options[..], &["--", "/bin/true"]].concat())?,
        (_, 2) => role::command(role::COMPUTES)?,
        (_, _) => role::task(role::COMPUTES, &options)?,
    };
    command.env("COMB_RUNTIME_DIR", comb.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let status = command.status()?;
    let took = began.elapsed().as_nanos() as f64;
    if status.success() { Ok(took) } else { Err(format!("{what}: {status}").into()) }
}

#[expect(clippy::unnecessary_wraps, reason = "like all roles")]
pub(super) fn compute() -> Outcome<()> {
    let mut number = 1_u64;
    for _ in 0..STEPS {
        number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    println!("{number}");
    Ok(())
}
