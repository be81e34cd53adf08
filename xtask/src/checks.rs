//! What is checked without running anything of ours.

use std::path::Path;

use crate::steps::{Outcome, Report, output, run, say};
use crate::tidy::{File, findings};
use crate::workspace::{OTHER_TARGET, cargo, command, files, protocol_packages, root};

/// Everything that `cargo xtask check` stands for.
pub(crate) fn check(report: &mut Report) {
    report.run("format", cargo(["fmt", "--all", "--check"]));
    report.run("lints", cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    feature_sets(report);
    let mut documentation = cargo(["doc", "--workspace", "--no-deps"]);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    report.run("documentation", documentation);
    other_processor(report);
    kernel_recorder(report);
    tidy(report);
}

/// Sets of features beside the default ones. Each is somebody's build.
const FEATURE_SETS: &[(&str, &str)] = &[
    ("comb-net", ""),
    ("comb-net", "hosts"),
    ("comb-net", "tokio"),
    ("comb-net", "tokio,xdp"),
    ("comb-group", "etcd"),
    ("comb-group", "tokio"),
    ("comb-group", "redb"),
    ("comb-dashboard", "otlp"),
];

fn feature_sets(report: &mut Report) {
    for (package, set) in FEATURE_SETS {
        let name = if set.is_empty() { "no features" } else { set };
        let mut lints = cargo(["clippy", "-p", package, "--all-targets", "--no-default-features"]);
        lints.args(["--features", set, "--", "-D", "warnings"]);
        report.run(&format!("lints, {package} with {name}"), lints);
    }
}

fn other_processor(report: &mut Report) {
    report.step(&format!("protocols for {OTHER_TARGET}"), || {
        let mut library = command("rustc");
        library.args(["--print", "target-libdir", "--target", OTHER_TARGET]);
        match output(library) {
            Err(mistake) => Outcome::Failed(mistake),
            Ok(path) if !Path::new(path.trim()).exists() => {
                Outcome::Skipped(format!("no standard library for it: rustup target add {OTHER_TARGET}"))
            }
            Ok(_) => run(cargo(["check", "--target", OTHER_TARGET].into_iter().chain(protocol_packages()))),
        }
    });
}

/// The compiler that made the recorder's program for the kernel: another one makes other bytes of the same source.
const KERNEL_COMPILER: &str = "clang-19";

/// Compiles the program that is loaded into the kernel anew: it stands in the repository as an object, which nobody reads.
fn kernel_recorder(report: &mut Report) {
    report.step("recorder for the kernel", || {
        let mut version = command(KERNEL_COMPILER);
        if version.arg("--version").output().is_err() {
            return Outcome::Skipped(format!(
                "no {KERNEL_COMPILER} here, which is what it was compiled with"
            ));
        }
        let mut check = command("make");
        check.args(["--no-print-directory", "-C", "crates/trace/bpf", "check"]);
        run(check)
    });
}

/// The house rules, over every file of the repository.
pub(crate) fn tidy(report: &mut Report) {
    report.step("house rules", || match read_files() {
        Err(mistake) => Outcome::Failed(mistake),
        Ok(files) => {
            let findings = findings(&files);
            for finding in &findings {
                say(&finding.to_string());
            }
            match findings.len() {
                0 => Outcome::Passed,
                1 => Outcome::Failed("1 finding".to_owned()),
                n => Outcome::Failed(format!("{n} findings")),
            }
        }
    });
}

fn read_files() -> Result<Vec<File>, String> {
    let read = |path: String| {
        let bytes = std::fs::read(root().join(&path)).map_err(|error| format!("{path}: {error}"))?;
        Ok(File { path, text: String::from_utf8(bytes).ok() })
    };
    files()?.into_iter().map(read).collect()
}

/// Has every shell script read, but not run, by the shell that its first line names.
pub(crate) fn shell_scripts(report: &mut Report) {
    report.step("shell scripts' syntax", || {
        let files = match read_files() {
            Err(mistake) => return Outcome::Failed(mistake),
            Ok(files) => files,
        };
        let mut wrong = Vec::new();
        for file in &files {
            let Some(shell) = shell(file) else { continue };
            say(&format!("{shell} -n {}", file.path));
            let mut syntax = command(shell);
            syntax.args(["-n", &file.path]);
            if let Outcome::Failed(_) = run(syntax) {
                wrong.push(file.path.as_str());
            }
        }
        if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed(wrong.join(", ")) }
    });
}

/// The shell that reads this file; a script without a first line for it is sourced by our scripts, and they are bash's.
fn shell(file: &File) -> Option<&'static str> {
    let first = file.text.as_ref()?.lines().next().unwrap_or_default();
    match first.strip_prefix("#!").map(|line| line.trim().rsplit(['/', ' ']).next()) {
        Some(Some("bash")) => Some("bash"),
        Some(Some("sh")) => Some("sh"),
        _ => file.path.ends_with(".sh").then_some("bash"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell_of(path: &str, text: &str) -> Option<&'static str> {
        shell(&File { path: path.to_owned(), text: Some(text.to_owned()) })
    }

    #[test]
    fn a_script_is_known_by_its_first_line_or_its_name() {
        assert_eq!(shell_of(".ci/run", "#!/usr/bin/env bash\nset -e\n"), Some("bash"));
        assert_eq!(shell_of("x", "#!/bin/sh\n"), Some("sh"));
        assert_eq!(shell_of("scripts/rust.sh", "# sourced\n"), Some("bash"));
        assert_eq!(shell_of("x.py", "#!/usr/bin/env python3\n"), None);
        assert_eq!(shell_of("README.md", "# Comb\n"), None);
    }
}
