//! What is checked by running our own code.

use crate::steps::{Outcome, Report, output, run, say};
use crate::workspace::{cargo, command, protocol_packages, root, target_directory};

/// How long one fuzz test mutates its input, unless told otherwise.
pub(crate) const FUZZ_SECONDS: u64 = 20;

/// And among all that is checked, where as much time goes to many other things.
pub(crate) const FUZZ_SECONDS_OF_ALL: u64 = 10;

/// How long it does so among the other tests: long enough to see that it works. The fuzz step has the time.
const FUZZ_SECONDS_AMONG_TESTS: u64 = 1;

/// What has to run many times, but is built once for that: as fast as a release, near enough, and built in half the time.
const SIMULATION: &str = "--profile=simulation";

/// The variable by which a fuzz test learns its time.
const FUZZ_SECONDS_VARIABLE: &str = "COMB_FUZZ_SECONDS";

/// What is behind features that no other crate asks for.
const OPTIONAL: &str = "comb-group/etcd,comb-group/redb,comb-group/tokio,comb-dashboard/otlp,comb-cli/otlp";

/// A cargo command about all crates, with all that can be left out: what one of them has built, the next finds. A part of the workspace would be built with
/// other features, and so anew.
fn of_all(task: &str) -> std::process::Command {
    cargo([task, "--workspace", "--features", OPTIONAL])
}

/// Every crate's unit, integration and documentation tests.
pub(crate) fn workspace_tests(report: &mut Report) {
    let mut tests = of_all("test");
    tests.arg("--no-fail-fast");
    tests.env(FUZZ_SECONDS_VARIABLE, FUZZ_SECONDS_AMONG_TESTS.to_string());
    report.run("tests", tests);
}

/// comb-net's tests once more, on the ways that older kernels leave it: the same programs.
pub(crate) fn fallbacks(report: &mut Report) {
    report.step("comb-net without newer mechanisms", || {
        let mut build = of_all("test");
        build.args(["--no-run", "--message-format=json"]);
        let programs = match output(build) {
            Err(mistake) => return Outcome::Failed(mistake),
            Ok(messages) => test_programs(&messages, "comb-net"),
        };
        if programs.is_empty() {
            return Outcome::Failed("comb-net has no tests: nothing was checked".to_owned());
        }
        let failures: Vec<String> = programs.iter().filter_map(|program| without(program)).collect();
        if failures.is_empty() { Outcome::Passed } else { Outcome::Failed(failures.join("\n    ")) }
    });
}

/// Runs a program of comb-net's tests without newer mechanisms; why it failed, if it has.
fn without(program: &str) -> Option<String> {
    let mut tests = command(program);
    tests.current_dir(root().join("crates/net"));
    tests.env(FUZZ_SECONDS_VARIABLE, FUZZ_SECONDS_AMONG_TESTS.to_string()).env("COMB_WITHOUT", "all");
    match run(tests) {
        Outcome::Failed(why) => Some(format!("{program}: {why}")),
        _ => None,
    }
}

/// Of cargo's messages: the programs that are tests of a package.
fn test_programs(messages: &str, package: &str) -> Vec<String> {
    let of_it = format!("#{package}@");
    let programs = messages.lines().filter(|line| line.contains(&of_it)).filter_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    });
    // Examples are elsewhere.
    programs.filter(|program| program.contains("/deps/")).collect()
}

/// comb-net's tests with as little of it as can be built.
pub(crate) fn least_features(report: &mut Report) {
    let tests = ["--lib", "--test", "channels"];
    let mut tests = cargo(["test", "-p", "comb-net", "--no-default-features"].into_iter().chain(tests));
    tests.env(FUZZ_SECONDS_VARIABLE, FUZZ_SECONDS_AMONG_TESTS.to_string());
    report.run("comb-net with no features", tests);
}

/// What has a Makefile of its own: C programs, and the compiler that puts checks into them.
const MADE: &[(&str, &str)] = &[
    ("programs of apps", "apps"),
    ("macros of SPLASH programs", "cc/parmacs"),
    ("OpenMP", "cc/openmp"),
    ("library under a thief", "cc/library"),
    ("compiled programs", "cc"),
];

/// Their checks, each a step.
pub(crate) fn compiled(report: &mut Report) {
    let mut build = of_all("build");
    // With what the tests alone need, they were built.
    build.args(["--lib", "--bins", "--tests"]);
    report.run("combcc and what it stands on", build);
    for (name, folder) in MADE {
        let mut check = command("make");
        check.args(["--no-print-directory", "-C", folder, "check"]);
        report.run(name, check);
    }
    random_programs(report);
}

/// Random programs by combcc, on three components with copies, beside the same by another compiler.
fn random_programs(report: &mut Report) {
    let built = target_directory().join("debug");
    for access in ["check", "hybrid", "page", "mmu"] {
        let mut compare = command("fuzz/programs/compare.sh");
        compare.args(["0", "4"]).arg(built.join("combcc")).args([&format!("--access={access}"), "-O2"]);
        compare.env("RUN", format!("{} run -n 3 --share copy --", built.join("comb").display()));
        report.run(&format!("random programs, {access}"), compare);
    }
}

/// The dashboard's page in a browser, in front of a server that plays a comb.
pub(crate) fn page(report: &mut Report) {
    let tests = "crates/dashboard/tests/browser";
    report.step("page in a browser", || {
        if !std::path::Path::new(tests).join("node_modules").exists() {
            return Outcome::Skipped("no browser or node: scripts/setup-test.sh installs them".to_owned());
        }
        let mut page = command("npm");
        page.args(["test", "--silent"]).current_dir(tests);
        run(page)
    });
}

/// What answers `comb trace sql`, which is no member of the workspace: its engine takes longer to build than all of it, once, for release. Beside a
/// comb's build: they share the folder, and so a user's.
pub(crate) fn sql(report: &mut Report) {
    let task = |words: &[&str]| {
        let mut task = cargo(words.iter().copied());
        task.args(["--manifest-path", "crates/trace-sql/Cargo.toml"]);
        task
    };
    let built = |words: &[&str]| {
        let mut task = task(words);
        task.args(["--release", "--locked", "--target-dir"]).arg(target_directory());
        task
    };
    report.run("format of comb-trace-sql", task(&["fmt", "--check"]));
    report.run("comb-trace-sql", built(&["test", "--no-fail-fast"]));
    let mut lints = built(&["clippy", "--all-targets"]);
    lints.args(["--", "-D", "warnings"]);
    report.run("lints of comb-trace-sql", lints);
}

/// sqlite3, zlib and others by the compiler: ten minutes, and a network.
pub(crate) fn packages(report: &mut Report) {
    let mut build = command("make");
    build.args(["--no-print-directory", "-C", "cc", "all"]);
    report.run("compiler", build);
    report.run("packages by the compiler", command("cc/tests/packages.sh"));
}

/// The static archive and the Debian package, made and tried as users would: what they need is fetched, and the tools to make them.
pub(crate) fn packaging(report: &mut Report) {
    for (name, script) in [
        ("what packages are made with", "scripts/setup-dist.sh"),
        ("Debian package", "scripts/deb.sh"),
        ("static archive", "scripts/dist.sh"),
        ("static archive, unpacked and used", "packaging/test-dist.sh"),
        ("Debian package, by its rules", "packaging/lint.sh"),
        ("Debian package, installed and used", "packaging/test-deb.sh"),
    ] {
        report.run(name, command(script));
    }
}

/// How long tasks load and store by chance, unless told otherwise.
pub(crate) const STRESS_SECONDS: u64 = 60;
/// And in a soak.
pub(crate) const SOAK_HOURS: u64 = 4;

/// The time in `stress [--seconds N]`.
pub(crate) fn stress_arguments(arguments: &[&str]) -> Result<u64, String> {
    number(arguments, "--seconds", STRESS_SECONDS).ok_or_else(|| "stress takes [--seconds N]".to_owned())
}

/// The seconds of stress in `soak [--hours N]`.
pub(crate) fn soak_arguments(arguments: &[&str]) -> Result<u64, String> {
    let hours = number(arguments, "--hours", SOAK_HOURS).and_then(|hours| hours.checked_mul(3600));
    hours.ok_or_else(|| "soak takes [--hours N]".to_owned())
}

/// What stands behind the option, if it is there; more than nothing.
fn number(arguments: &[&str], option: &str, otherwise: u64) -> Option<u64> {
    match arguments {
        [] => Some(otherwise),
        [name, number] if *name == option => number.parse().ok().filter(|&number| number > 0),
        _ => None,
    }
}

/// Tasks whose components load and store by chance, and what they find judged by one order: so many seconds in all.
pub(crate) fn stress(report: &mut Report, seconds: u64) {
    // One after the other, so that the time is what was asked for.
    let mut tests = of_all("test");
    tests.args(["--test", "stress", "--no-fail-fast", "--", "--test-threads=1"]);
    tests.env("COMB_STRESS_SECONDS", seconds.to_string());
    report.run("stress", tests);
}

/// Simulations of the protocol crates.
pub(crate) fn simulations(report: &mut Report) {
    report.step("simulations", || protocol_suite("sim_", &[]));
}

/// Storms of each scenario that are rolled among the tests: about a minute and a half on two cores.
const STORMS: &[(&str, &str)] = &[
    ("regroup", "8000"),
    ("mscs", "8000"),
    ("group", "4000"),
    ("restart", "1000"),
    ("order", "4000"),
    ("silence", "200"),
    ("gossip", "100"),
    ("coherence", "2000"),
    ("containment", "1000"),
];

/// Apart from the seeds that the tests have.
const FIRST_STORM: &str = "100000";

/// Thousands of seeds, on all cores.
pub(crate) fn storms(report: &mut Report) {
    let storms = STORMS.iter().map(|(name, seeds)| format!("{name}={seeds}"));
    let mut run =
        cargo(["run", SIMULATION, "-p", "comb-containment", "--example", "storms", "--", FIRST_STORM]);
    run.args(storms);
    report.run("storms", run);
}

/// Seeds of a soak, unless told otherwise.
const SOAK_SEEDS: &str = "10000";
const FIRST_SEED: &str = "1";

/// What `sim` is asked for, as `comb sim` wants it, one call after the other.
pub(crate) fn sim_arguments<'a>(arguments: &[&'a str]) -> Result<Vec<Vec<&'a str>>, String> {
    let (mut name, mut seed, mut seeds, mut nodes, mut loss, mut soaks) =
        (None, None, None, None, None, false);
    let mut rest = arguments.iter().copied();
    while let Some(argument) = rest.next() {
        let number = match argument {
            "--soak" => {
                soaks = true;
                continue;
            }
            "--seed" => &mut seed,
            "--seeds" => &mut seeds,
            "--nodes" => &mut nodes,
            "--loss" => &mut loss,
            option if option.starts_with('-') => return Err(format!("sim has no option {option}")),
            text if name.is_none() => {
                name = Some(text);
                continue;
            }
            more => return Err(format!("sim takes one scenario at a time, not {more} as well")),
        };
        let value = rest.next().filter(|text| text.parse::<u64>().is_ok());
        *number = Some(value.ok_or_else(|| format!("{argument} needs a number"))?);
    }
    match (name, seed) {
        // One run and all that happens in it.
        (Some(name), Some(seed)) if seeds.is_none() => {
            let numbers = [("--seed", Some(seed)), ("--nodes", nodes), ("--loss", loss)];
            let numbers = numbers.into_iter().filter_map(|(option, value)| Some([option, value?])).flatten();
            let soak = soaks.then_some("--soak");
            Ok(vec![[name].into_iter().chain(numbers).chain(soak).chain(["--watch"]).collect()])
        }
        (None, seed) if soaks && nodes.is_none() && loss.is_none() => {
            Ok(soak(seed.unwrap_or(FIRST_SEED), seeds.unwrap_or(SOAK_SEEDS)))
        }
        // Which of them has failed is not said: what happens in those is shown.
        (None, Some(seed)) if !soaks && seeds.is_none() && nodes.is_none() && loss.is_none() => {
            Ok(vec![vec!["all", "--seed", seed, "--show-failures"]])
        }
        _ => Err("sim takes nothing; --seed N; --seed N NAME [--nodes N] [--soak] [--loss PERCENT]; or --soak [--seed N] \
                  [--seeds N]"
            .to_owned()),
    }
}

/// A thousand nodes for an hour, of which a quarter of the messages is lost; a farm for an hour that loses three of four; a group
/// under load for an hour in which nobody may be doubted; and many storms.
fn soak<'a>(seed: &'a str, seeds: &'a str) -> Vec<Vec<&'a str>> {
    let calls: [&[&str]; 4] = [
        &["gossip", "--soak", "--seeds", "10"],
        &["gossip", "--soak", "--nodes", "64", "--loss", "75", "--seeds", "5"],
        &["silence", "--soak", "--nodes", "32", "--seeds", "5"],
        &["all", "--seeds", seeds],
    ];
    calls.map(|call| [call, &["--seed", seed]].concat()).to_vec()
}

/// `comb sim`, from source.
pub(crate) fn sim(report: &mut Report, calls: &[Vec<&str>]) {
    for arguments in calls {
        let mut sim = cargo(["run", SIMULATION, "-p", "comb-cli", "--", "sim"]);
        sim.args(arguments);
        report.run(&format!("sim {}", arguments.join(" ")), sim);
    }
}

/// Model checks of the protocol crates.
pub(crate) fn model_checks(report: &mut Report) {
    // Each uses all cores by itself, and has a limit.
    report.step("model checks", || protocol_suite("model_", &["--test-threads=1"]));
}

/// The tests of the protocol crates whose own name begins so. There may be none: then it says that.
fn protocol_suite(prefix: &str, options: &[&str]) -> Outcome {
    let tests = || cargo(["test", SIMULATION, "--lib", "--tests"].into_iter().chain(protocol_packages()));
    let mut list = tests();
    list.args(["--", "--list", prefix]);
    let names = match output(list) {
        Err(mistake) => return Outcome::Failed(mistake),
        Ok(listing) => test_names(&listing, prefix),
    };
    if names.is_empty() {
        say(&format!("No protocol crate has a test named {prefix}… yet."));
        return Outcome::Skipped(format!("no protocol crate has a test named {prefix}… yet"));
    }
    let mut chosen = tests();
    chosen.args(["--no-fail-fast", "--", "--exact"]).args(options).args(&names);
    run(chosen)
}

/// The full names in a test program's `--list` whose last part begins with the prefix.
fn test_names(listing: &str, prefix: &str) -> Vec<String> {
    let tests = listing.lines().filter_map(|line| line.strip_suffix(": test"));
    tests
        .filter(|name| name.rsplit("::").next().is_some_and(|own| own.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

/// Every interleaving of the atomic operations in comb-net's protocols. The flag changes every crate's build, so it has a
/// target directory of its own.
pub(crate) fn loom(report: &mut Report) {
    report.step("loom", || {
        let tests = || {
            let mut tests =
                cargo(["test", "-p", "comb-net", SIMULATION, "--no-default-features", "--test", "loom"]);
            tests.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target_directory().join("loom"));
            tests
        };
        net_suite("loom_", &tests)
    });
}

/// Undefined behaviour in what comb-net does with shared memory, as far as an interpreter can see it.
pub(crate) fn miri(report: &mut Report) {
    report.step("miri", || {
        let miri = |arguments: &[&str]| {
            let mut miri = command("rustup");
            miri.args(["run", "nightly", "cargo", "miri"]).args(arguments);
            miri
        };
        if !miri(&["--version"]).output().is_ok_and(|output| output.status.success()) {
            let install = "rustup toolchain install nightly --component miri --component rust-src";
            say(&format!("miri is missing. It comes with nightly Rust: {install}"));
            return Outcome::Failed("miri is missing".to_owned());
        }
        let tests = || {
            // Without the features that bring cryptography in: it is others', and long to build.
            let mut tests = miri(&["test", "-p", "comb-net", "--lib", "--no-default-features"]);
            // A ring's addresses come from pointers, never from integers: then miri can judge every access.
            tests.env(
                "MIRIFLAGS",
                std::env::var("MIRIFLAGS").unwrap_or("-Zmiri-strict-provenance".to_owned()),
            );
            tests
        };
        net_suite("miri_", &tests)
    });
}

/// Runs the tests whose own name begins so; that there are none is a failure, for then nothing was checked.
fn net_suite(prefix: &str, tests: &dyn Fn() -> std::process::Command) -> Outcome {
    let mut list = tests();
    list.args(["--", "--list", prefix]);
    match output(list) {
        Err(mistake) => Outcome::Failed(mistake),
        Ok(listing) if test_names(&listing, prefix).is_empty() => {
            Outcome::Failed(format!("comb-net has no test named {prefix}…: nothing was checked"))
        }
        Ok(_) => {
            let mut all = tests();
            all.args(["--", prefix]);
            run(all)
        }
    }
}

/// The time and the name in `fuzz [--seconds N] [NAME]`.
pub(crate) fn fuzz_arguments<'a>(arguments: &[&'a str]) -> Result<(u64, Option<&'a str>), String> {
    let (seconds, rest) = match arguments {
        ["--seconds", seconds, rest @ ..] => {
            let seconds =
                seconds.parse().map_err(|_| format!("--seconds: not a number of seconds: {seconds}"))?;
            (seconds, rest)
        }
        rest => (FUZZ_SECONDS, rest),
    };
    match rest {
        [] => Ok((seconds, None)),
        [name] if !name.starts_with('-') => Ok((seconds, Some(name))),
        _ => Err("fuzz takes [--seconds N] [NAME]".to_owned()),
    }
}

/// Mutates what a peer may write, for a bounded time. Nothing is captured: a test that hangs or aborts has by then
/// shown its seed.
pub(crate) fn fuzz(report: &mut Report, seconds: u64, name: Option<&str>) {
    let mut tests = of_all("test");
    tests.args(["--test", "fuzz", "--no-fail-fast", "--", "--nocapture"]).args(name);
    tests.env(FUZZ_SECONDS_VARIABLE, seconds.to_string());
    report.run("fuzz", tests);
}

/// `comb bench`, from source.
pub(crate) fn bench(report: &mut Report, arguments: &[&str]) {
    let mut bench = cargo(["run", "--release", "-p", "comb-cli", "--", "bench"]);
    bench.args(arguments);
    report.run("bench", bench);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tests_own_name_counts() {
        let listing = "sim_ring::tests::other: test\nring::tests::sim_loss: test\nsim_join: test\nresim_x: test\n\
                       sim_bench: benchmark\n\n3 tests, 1 benchmark\n";
        assert_eq!(test_names(listing, "sim_"), ["ring::tests::sim_loss", "sim_join"]);
    }

    #[test]
    fn tests_are_found_among_what_cargo_has_built() {
        let message = |package: &str, executable: &str| {
            format!(
                "{{\"package_id\":\"path+file:///c/{package}#comb-{package}@0.1.0\",\"executable\":{executable},\"fresh\":true}}\n"
            )
        };
        let messages = message("net", "null")
            + &message("net", "\"/t/debug/deps/rpc-4d\"")
            + &message("net", "\"/t/debug/examples/rpc\"")
            + &message("network", "\"/t/debug/deps/other-1\"");
        assert_eq!(test_programs(&messages, "comb-net"), ["/t/debug/deps/rpc-4d"]);
        assert!(test_programs(&messages, "comb-none").is_empty());
    }

    #[test]
    fn sim_understands_its_arguments() {
        let words = |arguments: &str| {
            let arguments: Vec<_> = arguments.split(' ').collect();
            let calls = sim_arguments(&arguments);
            calls.map(|calls| calls.iter().map(|call| call.join(" ")).collect::<Vec<_>>())
        };
        let one = |call: &str| Ok(vec![call.to_owned()]);
        assert_eq!(words("--seed 7"), one("all --seed 7 --show-failures"));
        assert_eq!(words("--seed 7 order"), one("order --seed 7 --watch"));
        assert_eq!(words("order --seed 7"), words("--seed 7 order"));
        assert_eq!(
            words("--soak --seed 7 gossip --loss 75 --nodes 64"),
            one("gossip --seed 7 --nodes 64 --loss 75 --soak --watch")
        );
        assert_eq!(words("--soak"), words("--soak --seeds 10000 --seed 1"));
        let soak = words("--soak --seed 1000000").unwrap();
        assert!(soak.iter().all(|call| call.ends_with("--seed 1000000")), "{soak:?}");
        assert!(soak.contains(&"all --seeds 10000 --seed 1000000".to_owned()), "{soak:?}");
        let hour = "silence --soak --nodes 32 --seeds";
        assert!(soak.iter().any(|call| call.starts_with(hour)), "an hour under load: {soak:?}");
        for mistake in [
            "--seed",
            "--seed x",
            "--seed --soak",
            "--soak order",
            "order",
            "order regroup --seed 7",
            "--seed 7 --nodes 3",
            "order --seed 7 --seeds 3",
            "--watch",
        ] {
            assert!(words(mistake).is_err(), "{mistake}");
        }
    }

    #[test]
    fn stress_and_soak_understand_their_arguments() {
        assert_eq!((stress_arguments(&[]), soak_arguments(&[])), (Ok(60), Ok(4 * 3600)));
        assert_eq!(stress_arguments(&["--seconds", "7"]), Ok(7));
        assert_eq!(soak_arguments(&["--hours", "12"]), Ok(12 * 3600));
        for mistake in [&["--seconds"][..], &["--seconds", "0"], &["7"], &["--seconds", "7", "8"]] {
            assert!(stress_arguments(mistake).is_err() && soak_arguments(mistake).is_err(), "{mistake:?}");
        }
        assert!(soak_arguments(&["--hours", "18446744073709551615"]).is_err());
    }

    #[test]
    fn fuzz_understands_its_arguments() {
        assert_eq!(fuzz_arguments(&[]), Ok((FUZZ_SECONDS, None)));
        assert_eq!(fuzz_arguments(&["ring"]), Ok((FUZZ_SECONDS, Some("ring"))));
        assert_eq!(fuzz_arguments(&["--seconds", "3", "ring"]), Ok((3, Some("ring"))));
        for mistake in [&["--seconds", "long"][..], &["--seconds"], &["a", "b"], &["--second", "3"]] {
            assert!(fuzz_arguments(mistake).is_err(), "{mistake:?}");
        }
    }
}
