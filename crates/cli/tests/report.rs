//! `comb run --report` of programs in C: it names the line, the memory and the way in which components fight for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What hangs is to fail.
const LIMIT_S: &str = "300";

/// Beside this test is the library that was built with it.
const LIBRARIES_VARIABLE: &str = "LD_LIBRARY_PATH";

fn libraries() -> String {
    std::env::current_exe().unwrap().parent().unwrap().display().to_string()
}

/// Each component has a number of its own; all of them are in one block.
const APART: &str = r"
#include <comb.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    volatile unsigned long *numbers;
    int round;
    if (comb_init() != 0) return 1;
    numbers = (volatile unsigned long *)comb_alloc_together(4096, NULL); /* allocated */
    for (round = 0; round < 100; round++) {
        numbers[comb_rank() * 8]++; /* fights */
        comb_barrier();
    }
    if (count > 1 && comb_rank() == 0) exit(atoi(arguments[1]));
    return 0;
}
";

/// All count in one number.
const TOGETHER: &str = r#"
#include <comb.h>
#include <stdio.h>

static void count_up(unsigned long *number) {
    *number += 1; /* fights */
}

int main(void) {
    unsigned long *number;
    int round;
    if (comb_init() != 0) return 1;
    number = (unsigned long *)comb_alloc_together(sizeof *number, NULL); /* allocated */
    for (round = 0; round < 100; round++) {
        comb_lock(1);
        count_up(number);
        comb_unlock(1);
        comb_barrier();
    }
    if (comb_rank() == 0) printf("%lu\n", *number);
    return 0;
}
"#;

/// A program, and where it is.
struct Scene {
    directory: PathBuf,
    program: PathBuf,
    text: &'static str,
}

impl Scene {
    fn new(name: &str, text: &'static str, options: &[&str]) -> Self {
        let directory = std::env::temp_dir().join(format!("comb-report-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let (source, program) = (directory.join("fight.c"), directory.join("fight"));
        std::fs::write(&source, text).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include");
        let libraries = libraries();
        let done = Command::new("cc")
            .args(["-g", "-O0"])
            .args(options)
            .arg(&source)
            .arg("-I")
            .arg(include)
            .args(["-L", &libraries, "-lcomb", &format!("-Wl,-rpath,{libraries}"), "-o"])
            .arg(&program)
            .output()
            .expect("a compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Self { directory, program, text }
    }

    fn run(&self, options: &[&str], arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_comb"))
            .args(["run", "--limit", LIMIT_S])
            .args(options)
            .arg("--")
            .arg(&self.program)
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &self.directory)
            .env(LIBRARIES_VARIABLE, libraries())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What a task that succeeds says on standard error.
    #[track_caller]
    fn report(&self, options: &[&str]) -> String {
        let output = self.run(options, &[]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Where a comment stands in the program, as reports say it.
    fn line(&self, comment: &str) -> String {
        let line = self.text.lines().position(|line| line.contains(comment)).unwrap() + 1;
        format!("fight.c:{line}")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[track_caller]
fn says(report: &str, words: &[&str]) {
    for words in words {
        assert!(report.contains(words), "{words:?} is not in\n{report}");
    }
}

const COPIES: [&str; 4] = ["-n", "2", "--share", "copy"];

#[test]
fn false_sharing_is_found_and_named_wherever_the_program_was_linked_to() {
    for (name, options) in [("fixed", &["-no-pie"][..]), ("anywhere", &["-fPIE", "-pie"])] {
        let scene = Scene::new(name, APART, options);
        let report = scene.report(&[&COPIES[..], &["--report"]].concat());
        let (fights, allocated) = (scene.line("fights"), scene.line("allocated"));
        says(
            &report,
            &[
                "false sharing: each stores to words of its own, in one block",
                "memory allocated at ",
                &format!("{allocated} (main)"),
                "a block of 4096 bytes",
                "component 0 stores to bytes 0 to 7",
                "component 1 stores to bytes 64 to 71",
                &format!("{fights} (main)"),
                "align it to 4096 bytes",
            ],
        );
    }
}

#[test]
fn a_number_that_all_change_passes_from_hand_to_hand() {
    let scene = Scene::new("together", TOGETHER, &[]);
    let file = scene.directory.join("report.json");
    let output = scene.run(&[&COPIES[..], &[&format!("--report={}", file.display())]].concat(), &[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(output.stdout, b"200\n", "what the program says is its own");
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let shared = &report["sharing"][0];
    assert_eq!(shared["pattern"], "hand_to_hand", "{report:#}");
    let fights = scene.line("fights");
    for party in shared["parties"].as_array().unwrap() {
        assert_eq!(party["place"]["function"], "count_up", "{report:#}");
        assert!(party["place"]["line"].as_str().unwrap().ends_with(&fights), "{report:#}");
    }
    let missed = |line: &Value| {
        ["reads", "writes", "upgrades"].iter().filter_map(|kind| line[kind].as_u64()).sum::<u64>()
    };
    let line = report["lines"].as_array().unwrap().iter().max_by_key(|line| missed(line)).unwrap();
    assert!(line["place"]["line"].as_str().unwrap().ends_with(&fights), "{report:#}");
    // Hardly anybody has it twice in a row.
    assert!(missed(line) >= 100, "{report:#}");
    assert!(!report["verdict"]["sentence"].as_str().unwrap().is_empty());
}

/// Parts come back by the conversation with the other hosts.
#[test]
fn components_of_other_hosts_are_in_the_report() {
    let scene = Scene::new("hosts", APART, &[]);
    let hosts = ["--hosts", "a=127.0.0.2,b=127.0.0.3", "--shell", "env", "--report"];
    let libraries = format!("{LIBRARIES_VARIABLE}={}", libraries());
    let report = scene.report(&[&hosts[..], &["--env", &libraries]].concat());
    says(&report, &["component 0 stores to bytes 0 to 7", "component 1 stores to bytes 64 to 71"]);
}

#[test]
fn a_report_that_cannot_be_written_is_told_of_before_anything_runs() {
    let scene = Scene::new("nowhere", TOGETHER, &[]);
    let output = scene.run(&[&COPIES[..], &["--report=/nonexistent/report"]].concat(), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(said.contains("/nonexistent/report"), "{said}");
}

/// Nobody asks for anything where page frames are shared: the report says so, and no more.
#[test]
fn a_task_that_shares_page_frames_has_nothing_to_tell() {
    let scene = Scene::new("imports", APART, &[]);
    let report = scene.report(&["-n", "2", "--report"]);
    says(&report, &["share page frames", "comb run --share copy --report"]);
    assert_eq!(report.lines().count(), 2, "{report}");
}

#[test]
fn what_a_component_that_fails_has_recorded_is_not_lost() {
    let scene = Scene::new("fails", APART, &[]);
    let output = scene.run(&[&COPIES[..], &["--report"]].concat(), &["3"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report = String::from_utf8(output.stderr).unwrap();
    says(&report, &["failed with status 3", &format!("{} (main)", scene.line("fights"))]);
}

#[test]
fn a_program_that_joins_no_task_is_told_so() {
    let scene = Scene::new("stranger", "int main(void) {\n    return 0;\n}\n", &[]);
    let report = scene.report(&["-n", "2", "--report"]);
    says(&report, &["does the program join the task"]);
}
