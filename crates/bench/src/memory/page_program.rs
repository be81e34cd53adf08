//! One source, benches/peers/pages, on several implementations of memory.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::program::peers_folder;

/// A name here, and what `pages.sh` is told: the implementation, and its settings.
pub(super) type PageProgram = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// One source on three implementations.
pub(super) const PAGES: &[PageProgram] = &[
    (THREADS, "threads", &[]),
    (STACHE, "comb", &[("COMB_RUN", "--share copy")]),
    (RELEASE, "comb", &[("COMB_RUN", "--share copy"), ("COMB_SHARING", "release")]),
    (BY_BLOCKS, "openmpi-pages", &[("PAGES_HOMES", "block")]),
    (IN_TURN, "openmpi-pages", &[("PAGES_HOMES", "robin")]),
];
pub(crate) const THREADS: &str = "pages, threads";
pub(crate) const STACHE: &str = "pages, ours, stache";
pub(super) const RELEASE: &str = "pages, ours, release";
pub(crate) const BY_BLOCKS: &str = "pages, Open MPI, homes by blocks";
pub(crate) const IN_TURN: &str = "pages, Open MPI, homes in turn";
const PAGES_ITERATIONS: &str = "100";

/// The mean time of an iteration in microseconds, and the checksum; or why there is none.
pub(super) fn page_program(implementation: &str, settings: &[(&str, &str)]) -> Result<(f64, String), String> {
    let folder = peers_folder().ok_or("benches/peers is not here: run from the repository")?;
    let ours = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(folder.join("pages.sh"))
        .args([implementation, "2", "jacobi", "1024", PAGES_ITERATIONS])
        .env("COMB", ours)
        .env("TIME_LIMIT_S", "10")
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    read_page_program(implementation, &output.stdout).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it printed nothing").to_owned();
        format!("{implementation} failed: {said}")
    })?
}

/// The line that it printed. None if it is no such line.
fn read_page_program(implementation: &str, printed: &[u8]) -> Option<Result<(f64, String), String>> {
    let line: Value =
        printed.split(|&byte| byte == b'\n').find_map(|line| serde_json::from_slice(line).ok())?;
    if let Some(reason) = line["missing"].as_str() {
        return Some(Err(format!("{implementation}: {reason}")));
    }
    Some(Ok((line["seconds_each"].as_f64()? * 1e6, line["checksum"].as_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_programs_line_is_read_and_a_missing_one_is_named() {
        let line = br#"{"program":"jacobi","seconds_each":0.000191455,"checksum":"2a2b7e13d4e958a2"}"#;
        let (took, checksum) = read_page_program("threads", line).unwrap().unwrap();
        assert_eq!((took.round(), checksum.as_str()), (191.0, "2a2b7e13d4e958a2"));
        let missing = read_page_program("comb", br#"{"peer":"comb","missing":"not built"}"#).unwrap();
        assert_eq!(missing.unwrap_err(), "comb: not built");
        assert!(read_page_program("comb", b"mpirun: no").is_none());
    }
}
