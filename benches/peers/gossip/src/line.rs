//! The lines that the program prints: one JSON object for each number.

use std::fmt::Write;

/// What this program was built with.
const LOCK: &str = include_str!("../Cargo.lock");

/// The version of a library, as the lock file names it.
fn version(library: &str) -> &'static str {
    let entry = format!("name = \"{library}\"\nversion = \"");
    LOCK.split_once(&entry).and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown")
}

/// What every line of a run says.
pub struct Line {
    pub peer: &'static str,
    pub setting: &'static str,
    pub nodes: u32,
    pub loss_percent: u32,
    pub scenario: &'static str,
    pub seed: u64,
}

impl Line {
    /// A number.
    pub fn value(&self, what: &str, value: f64, details: &[(&str, f64)]) {
        // Six digits after the point are below anything that is measured here.
        self.print(what, &format!("{}", (value * 1e6).round() / 1e6), details, None);
    }

    /// No number, and why.
    pub fn missing(&self, what: &str, reason: &str, details: &[(&str, f64)]) {
        self.print(what, "null", details, Some(reason));
    }

    fn print(&self, what: &str, value: &str, details: &[(&str, f64)], missing: Option<&str>) {
        let Self { peer, setting, nodes, loss_percent, scenario, seed } = self;
        let version = version(peer);
        let mut line = format!(
            r#"{{"peer":"{peer}","version":"{version}","setting":"{setting}","nodes":{nodes},"loss":{loss_percent},"scenario":"{scenario}","seed":{seed},"what":"{what}","value":{value}"#
        );
        for (name, detail) in details {
            write!(line, r#","{name}":{}"#, (detail * 1e3).round() / 1e3).expect("a string takes it");
        }
        if let Some(reason) = missing {
            write!(line, r#","missing":"{reason}""#).expect("a string takes it");
        }
        println!("{line}}}");
    }
}
