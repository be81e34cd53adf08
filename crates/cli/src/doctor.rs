//! `comb doctor`: what this machine can do, and what to do about what it cannot.

use std::process::ExitCode;

use clap::Args;
use comb_host::cgroup::{self, Cgroup};
use comb_net::mechanism::{Mechanism, Probe};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::Output;
use crate::table;
use needs::Needs;

mod machines;
mod needs;
mod user;

/// Older kernels lack what Comb has no way without.
const OLDEST_KERNEL: (u32, u32) = (6, 1);
/// Channels need descriptors and shared memory.
const FEW_DESCRIPTORS: u64 = 4096;

#[derive(Debug, Args)]
pub(crate) struct Doctor {}

#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    state: State,
    detail: String,
    /// What becomes worse without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    /// What the user can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As it should be.
    Good,
    /// By `COMB_WITHOUT`; its fallback is used.
    SwitchedOff,
    /// Not there; its fallback is used.
    Missing,
    /// Comb does not work well, or not at all.
    Bad,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::SwitchedOff => "off",
            Self::Missing => "missing",
            Self::Bad => "bad",
        }
    }
}

impl Finding {
    fn new(what: &str, state: State, detail: impl Into<String>) -> Self {
        Self { what: what.to_owned(), state, detail: detail.into(), lost: None, advice: None }
    }

    fn lost(self, what: impl Into<String>) -> Self {
        Self { lost: Some(what.into()), ..self }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

impl Doctor {
    #[expect(clippy::unused_self, reason = "like all commands")]
    pub(crate) fn run(self, output: Output) -> Outcome {
        let mut findings = vec![kernel(), user::user(), cores()];
        findings.extend(Mechanism::ALL.into_iter().filter(|&one| one != Mechanism::Cgroups).map(mechanism));
        findings.extend([cgroups(), user::kernel_faults(), user::ebpf(), user::fuse()]);
        findings.extend([user::network_namespaces(), descriptors(), locked_memory()]);
        findings.extend([machines::engine(), machines::images()]);
        let bad = findings.iter().any(|finding| finding.state == State::Bad);
        output.show(&findings, || text(&findings, output))?;
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn text(findings: &[Finding], output: Output) -> String {
    let mut rows = vec![["WHAT", "STATE", "DETAIL"].map(String::from).to_vec()];
    rows.extend(
        findings.iter().map(|finding| {
            vec![finding.what.clone(), finding.state.word().to_owned(), finding.detail.clone()]
        }),
    );
    let mut text =
        table::painted(&rows, output, |column, text| table::state_colour(text).filter(|_| column == 1));
    let lost: Vec<String> = findings
        .iter()
        .filter_map(|finding| Some(format!("  {}: {}\n", finding.what, finding.lost.as_ref()?)))
        .collect();
    if !lost.is_empty() {
        text.push_str("\nWhat is lost without:\n");
        text.extend(lost);
    }
    let advice: Vec<String> = findings
        .iter()
        .filter_map(|finding| Some(format!("  {}: {}\n", finding.what, finding.advice.as_ref()?)))
        .collect();
    if advice.is_empty() {
        text.push_str("\nNothing to do.\n");
    } else {
        text.push_str("\nWhat you can do:\n");
        text.extend(advice);
    }
    text
}

fn kernel() -> Finding {
    let release = release();
    let (major, minor) = OLDEST_KERNEL;
    match version(&release) {
        Some(found) if found < OLDEST_KERNEL => {
            Finding::new("kernel", State::Bad, format!("Linux {release}"))
                .advise(format!("Comb needs Linux {major}.{minor} or newer"))
        }
        _ => Finding::new("kernel", State::Good, format!("Linux {release}, at least {major}.{minor}")),
    }
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn cores() -> Finding {
    match std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
        1 => Finding::new("cores", State::Good, "1: waiting never spins"),
        count => Finding::new("cores", State::Good, count.to_string()),
    }
}

fn mechanism(mechanism: Mechanism) -> Finding {
    let (name, fallback, needs) = (mechanism.name(), mechanism.fallback(), Needs::of(mechanism));
    if mechanism.is_switched_off() {
        let detail = format!("switched off by COMB_WITHOUT; instead: {fallback}");
        return Finding::new(name, State::SwitchedOff, detail).lost(needs.lost);
    }
    if is_available(mechanism) {
        return Finding::new(name, State::Good, "in use");
    }
    let (major, minor) = needs.kernel;
    let is_old = version(&release()).is_some_and(|found| found < needs.kernel);
    let (why, advice) = if is_old {
        ("not in this kernel", format!("Linux {major}.{minor} or newer"))
    } else {
        let advice = match needs.privilege {
            "none" => needs.remedy.to_owned(),
            privilege => format!("it needs {privilege}; {}", needs.remedy),
        };
        ("not in this kernel, or not for this user", advice)
    };
    Finding::new(name, State::Missing, format!("{why}; instead: {fallback}")).lost(needs.lost).advise(advice)
}

/// Each is looked for by the crate that uses it.
fn is_available(mechanism: Mechanism) -> bool {
    match mechanism {
        Mechanism::Landlock => comb_region::launch::can_confine(),
        Mechanism::Bpf => comb_trace::kernel::is_permitted(),
        Mechanism::BpfCast => comb_trace::kernel::has_cast(),
        Mechanism::PagemapScan => comb_kernel::space::tells_what_was_modified(),
        _ => comb_memory::mechanism::is_available(mechanism).unwrap_or_else(|| mechanism.is_available()),
    }
}

fn cgroups() -> Finding {
    let without = |why: String| {
        Finding::new("cgroups", State::Missing, format!("{why}; instead: {}", Mechanism::Cgroups.fallback()))
            .lost(Needs::of(Mechanism::Cgroups).lost)
            .advise(Needs::of(Mechanism::Cgroups).remedy)
    };
    if Mechanism::Cgroups.is_switched_off() {
        return mechanism(Mechanism::Cgroups);
    }
    let Some(own) = cgroup::own() else { return without("cgroup v2 is not mounted".into()) };
    // What counts is whether it works, and permissions alone do not tell.
    match Cgroup::create(&own, &format!("comb-doctor-{}", std::process::id())) {
        Err(error) => without(format!("{} cannot be written ({error})", own.display())),
        Ok(tried) => {
            let kills = tried.path().join("cgroup.kill").exists();
            tried.remove();
            let how = if kills { "a cell is killed at once" } else { "no cgroup.kill: process by process" };
            Finding::new("cgroups", State::Good, format!("v2 in {}; {how}", own.display()))
        }
    }
}

fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let detail = format!("{}, can be raised to {}", number(limit.current), number(limit.maximum));
    if hard < FEW_DESCRIPTORS {
        Finding::new("descriptors", State::Bad, detail).advise(format!(
            "raise the hard limit to {FEW_DESCRIPTORS} or more: ulimit -Hn, /etc/security/limits.conf"
        ))
    } else {
        Finding::new("descriptors", State::Good, detail)
    }
}

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock);
    let detail = match limit.current {
        None => "unlimited".to_owned(),
        Some(bytes) => table::bytes(bytes),
    };
    Finding::new("locked memory", State::Good, detail)
}

fn number(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_sorts_have_a_version() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn advice_comes_after_the_table() {
        let findings = [Finding::new("kernel", State::Bad, "Linux 5.10").advise("update")];
        let output = Output::of(&crate::output::Options::default());
        assert_eq!(
            text(&findings, output),
            "WHAT    STATE  DETAIL\nkernel  bad    Linux 5.10\n\nWhat you can do:\n  kernel: update\n"
        );
    }
}
