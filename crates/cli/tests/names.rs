//! Several combs of one user, beside each other, by their names.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

#[expect(dead_code, reason = "other tests need more of it")]
mod cells;

use cells::Comb;

/// Combs whose directories are all in one of the test's own.
struct Combs(Comb);

impl Combs {
    fn new(name: &str) -> Self {
        Self(Comb::new(name))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command
            .env_remove("COMB_RUNTIME_DIR")
            .env_remove("COMB_NAME")
            .env("XDG_RUNTIME_DIR", &self.0.scratch);
        command
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn cells(&self, arguments: &[&str]) -> Vec<Value> {
        serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.0.scratch.join(name)
    }
}

impl Drop for Combs {
    fn drop(&mut self) {
        let _ = self.command(&["down", "--all"]).output();
    }
}

#[test]
fn one_is_taken_down_and_the_others_go_on() {
    let combs = Combs::new("names");
    combs.ok(&["up", "--cells", "1"]);
    combs.ok(&["--name", "b", "up", "--cells", "2"]);
    let mut third = combs.command(&["up", "--cells", "1"]);
    assert!(third.env("COMB_NAME", "c").output().unwrap().status.success());
    assert_eq!((combs.cells(&["ps"]).len(), combs.cells(&["ps", "--name", "b"]).len()), (1, 2));
    assert!(["comb", "comb-b", "comb-c"].iter().all(|name| combs.directory(name).is_dir()));

    let all = combs.cells(&["ps", "--all"]);
    let of: Vec<(Option<&str>, Option<u64>)> =
        all.iter().map(|cell| (cell["comb"].as_str(), cell["cell"].as_u64())).collect();
    assert_eq!(of, [(None, Some(1)), (Some("b"), Some(1)), (Some("b"), Some(2)), (Some("c"), Some(1))]);
    assert_eq!(combs.ok(&["ps", "--all"]).lines().filter(|line| line.starts_with("b ")).count(), 2);

    let first = combs.cells(&["ps"])[0]["pid"].clone();
    combs.ok(&["--name", "b", "down"]);
    assert!(!combs.directory("comb-b").exists(), "nothing is left of it");
    let cell = &combs.cells(&["ps"])[0];
    assert_eq!((&cell["pid"], cell["state"].as_str()), (&first, Some("up")));
    let none = combs.command(&["--name", "b", "ps"]).output().unwrap();
    assert_eq!(none.status.code(), Some(3));
    assert!(String::from_utf8(none.stderr).unwrap().contains("comb-b"));

    combs.ok(&["down", "--all"]);
    assert!(["comb", "comb-c"].iter().all(|name| !combs.directory(name).exists()));
    assert!(combs.ok(&["down", "--all"]).contains("nothing is running"));
}

/// A program finds the comb that it runs in, and whoever is told of another finds that.
#[test]
fn programs_find_the_comb_that_they_run_in() {
    let combs = Combs::new("names-run");
    combs.ok(&["--name", "b", "up", "--cells", "1"]);
    let comb = env!("CARGO_BIN_EXE_comb");
    let show = ["--name", "b", "run", "-n", "1", "--", "sh", "-c"];
    let inside = combs.ok(&[&show[..], &["echo $COMB_RUNTIME_DIR; \"$0\" ps -o json", comb]].concat());
    let (directory, cells) = inside.split_once('\n').unwrap();
    assert_eq!(directory, combs.directory("comb-b").to_str().unwrap());
    assert_eq!(serde_json::from_str::<Value>(cells).unwrap()[0]["cell"], 1);
    let inside = combs.ok(&[&show[..], &["\"$0\" --name other ps 2>&1; true", comb]].concat());
    assert!(inside.contains("comb-other"), "{inside}");
    // A directory in the environment is stronger than a name there, and weaker than a flag.
    let elsewhere = combs.directory("elsewhere");
    let mut ps = combs.command(&["ps"]);
    let output = ps.env("COMB_RUNTIME_DIR", &elsewhere).env("COMB_NAME", "b").output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("elsewhere"));
    let mut ps = combs.command(&["ps", "--name", "b"]);
    assert!(ps.env("COMB_RUNTIME_DIR", &elsewhere).output().unwrap().status.success());
}

/// One whose agent was killed hides no other, and is cleared with them.
#[test]
fn a_dead_one_hides_no_other() {
    let combs = Combs::new("names-dead");
    combs.ok(&["--name", "a", "up", "--cells", "1"]);
    combs.ok(&["--name", "b", "up", "--cells", "1"]);
    let hosts = combs.cells(&["--name", "a", "host", "ls"]);
    let agent = i32::try_from(hosts[0]["agent"]["pid"].as_i64().unwrap()).unwrap();
    let agent = rustix::process::Pid::from_raw(agent).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
    let told = combs.0.wait_for("its death", || {
        let output = combs.command(&["ps", "--all"]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().contains("b "));
        told.contains("is dead").then_some(told)
    });
    assert!(told.contains("comb-a"), "{told}");
    combs.ok(&["down", "--all"]);
    assert!(!combs.directory("comb-a").exists() && !combs.directory("comb-b").exists());
}
