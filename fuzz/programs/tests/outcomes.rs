//! The programs have one outcome: by either compiler, at any optimisation, and the sanitizers find nothing in them.

use comb_fuzz_programs::Calls;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Longer than any program takes on a busy machine. They take some milliseconds.
const LIMIT_SECONDS: &str = "60";

/// A directory of this test's own, gone after it.
struct Workshop(PathBuf);

impl Workshop {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-fuzz-programs-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory for programs");
        Self(path)
    }

    /// What this text prints when this compiler has made a program of it.
    fn outcome(&self, text: &str, compiler: &[&str]) -> Result<String, String> {
        let (source, program) = (self.0.join("program.c"), self.0.join("program"));
        fs::write(&source, text).expect("the source");
        let mut compile = Command::new(compiler[0]);
        compile.args(&compiler[1..]).args(["-w", "-std=gnu11", "-pthread", "-o"]).args([&program, &source]);
        let compiled = compile.output().map_err(|error| format!("{}: {error}", compiler[0]))?;
        checked("compile", &compiled)?;
        let ran = Command::new("timeout").arg(LIMIT_SECONDS).arg(&program).output().expect("timeout");
        checked("run", &ran)
    }

    fn has(&self, compiler: &[&str]) -> bool {
        self.outcome("int main(void) { return 0; }", compiler).is_ok()
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn checked(what: &str, output: &Output) -> Result<String, String> {
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{what}: {}: {said}", output.status))
    }
}

fn program(seed: u64) -> String {
    comb_fuzz_programs::program(seed, Calls::Library)
}

/// All that the programs of these seeds say. One can be looked at: `cargo run -p comb-fuzz-programs -- --seed N`.
fn all_agree(workshop: &Workshop, seeds: std::ops::Range<u64>, compilers: &[&[&str]]) -> HashSet<String> {
    let mut outcomes = HashSet::new();
    for seed in seeds {
        // One in four is bare.
        let calls = if seed % 4 == 3 { Calls::Bare } else { Calls::Library };
        let text = comb_fuzz_programs::program(seed, calls);
        let mut found: Option<String> = None;
        for compiler in compilers {
            let outcome = workshop
                .outcome(&text, compiler)
                .unwrap_or_else(|error| panic!("seed {seed}, {compiler:?}: {error}"));
            let expected = found.get_or_insert_with(|| outcome.clone());
            assert_eq!(*expected, outcome, "seed {seed}: {:?} and {compiler:?}", compilers[0]);
        }
        outcomes.extend(found);
    }
    outcomes
}

/// Those of the compilers that this machine has, and there must be one.
fn present<'a>(workshop: &Workshop, compilers: &[&'a [&'a str]]) -> Vec<&'a [&'a str]> {
    let present: Vec<_> = compilers.iter().copied().filter(|compiler| workshop.has(compiler)).collect();
    for missing in compilers.iter().filter(|compiler| !present.contains(compiler)) {
        eprintln!("not on this machine: {missing:?}");
    }
    present
}

#[test]
fn the_same_seed_gives_the_same_program() {
    for seed in 0..200 {
        assert_eq!(program(seed), program(seed));
        assert_ne!(program(seed), program(seed + 1));
    }
}

#[test]
fn bare_programs_call_next_to_nothing() {
    const LIBRARY: [&str; 7] =
        ["pthread_mutex", "pthread_barrier", "pthread_cond", "qsort(", "strlen(", "memcmp(", "setjmp("];
    let library: String = (0..100).map(program).collect();
    let bare: String = (0..100).map(|seed| comb_fuzz_programs::program(seed, Calls::Bare)).collect();
    for function in LIBRARY {
        assert!(library.contains(function), "{function}");
        assert!(!bare.contains(function), "{function}");
    }
}

#[test]
fn compilers_agree() {
    let workshop = Workshop::new("agree");
    let compilers = present(&workshop, &[&["cc", "-O0"], &["cc", "-O2"], &["clang-19", "-O2"]]);
    assert!(compilers.len() >= 2, "no compiler to compare");
    let outcomes = all_agree(&workshop, 0..12, &compilers);
    assert_eq!(outcomes.len(), 12, "two programs say the same: they say nothing of their memory");
}

/// One run shows one interleaving. Threads that are delayed here and there show others.
#[test]
fn interleavings_agree() {
    let workshop = Workshop::new("interleavings");
    let delayed = |text: &str| {
        text.replace(
            "barrier_wait();\n",
            "barrier_wait();\nnanosleep(&(struct timespec){0, (int)(hash % 1000) * 1000}, NULL);\n",
        )
        .replace("#include <string.h>\n", "#include <string.h>\n#include <time.h>\n")
    };
    for seed in 40..43 {
        let text = program(seed);
        let plain = workshop.outcome(&text, &["cc", "-O1"]);
        for _ in 0..3 {
            assert_eq!(workshop.outcome(&delayed(&text), &["cc", "-O1"]), plain, "seed {seed}");
        }
        assert!(plain.is_ok(), "seed {seed}: {plain:?}");
    }
}

/// Threads that see wrong values after a while print something else.
#[test]
fn wrong_values_are_seen() {
    const MIX: &str = "static uint64_t mix(uint64_t hash, uint64_t value) {\n";
    let workshop = Workshop::new("wrong");
    for seed in 50..53 {
        let text = program(seed);
        let mistake = "static _Atomic unsigned calls;\nvalue ^= ++calls > 10;\n";
        let wrong = text.replacen(MIX, &format!("{MIX}{mistake}"), 1);
        let outcomes =
            [&text, &wrong].map(|text| workshop.outcome(text, &["cc", "-O1"]).expect("an outcome"));
        assert_ne!(outcomes[0], outcomes[1], "seed {seed}");
    }
}

#[test]
fn sanitizers_find_nothing() {
    let workshop = Workshop::new("sanitizers");
    let compiler = if Path::new("/usr/bin/clang-19").exists() { "clang-19" } else { "cc" };
    let plain = [compiler, "-O1"];
    let threads = [compiler, "-O1", "-fsanitize=thread"];
    let addresses = [compiler, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
    let compilers = present(&workshop, &[&plain, &threads, &addresses]);
    all_agree(&workshop, 60..64, &compilers);
}
