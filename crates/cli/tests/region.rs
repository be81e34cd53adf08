//! Named regions by the real command: made, listed, saved, made again, lost with their cell, removed.

use std::process::Command;

use comb_region::Task;
use comb_region::named::Attaching;

use self::cells::Comb;

#[expect(dead_code, reason = "other tests need more of it")]
mod cells;

const NAME: &str = "COMB_TEST_REGION";

/// A program that uses a region: counts how often it was run.
#[test]
fn program() {
    let Ok(name) = std::env::var(NAME) else { return };
    let task = Task::join().expect("a task of one");
    let region = match task.attach(&name, &Attaching::default()) {
        Ok(region) => region,
        Err(error) => return println!("\n= {error}"),
    };
    let runs = region.array::<u64>(0, 1).expect("room for one");
    runs.set(0, runs.get(0) + 1);
    println!("\n= run {} in cell {}", runs.get(0), region.cell());
}

impl Comb {
    #[track_caller]
    fn fails(&self, arguments: &[&str], words: &str) {
        let output = self.run(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(words), "{arguments:?}: {text}");
    }

    /// What the program says of a region.
    fn program(&self, name: &str) -> String {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program", "--nocapture", "--test-threads=1"])
            .env("COMB_RUNTIME_DIR", self.directory())
            .env(NAME, name)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|line| line.strip_prefix("= ")).expect("its line").to_owned()
    }

    /// The words of a region's line.
    #[track_caller]
    fn line(&self, name: &str) -> String {
        let listed = self.ok(&["region", "ls"]);
        let line = listed.lines().find(|line| line.starts_with(name)).expect("it is listed");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_region_outlives_programs_and_dies_with_its_cell() {
    let comb = Comb::new("life");
    comb.ok(&["up", "--cells", "2"]);
    assert!(comb.ok(&["region", "ls"]).contains("no regions"));
    assert_eq!(
        comb.ok(&["region", "create", "r", "--size", "1M"]),
        "region r lives in cell 1: 1048576 bytes\n"
    );
    for run in 1..4 {
        assert_eq!(comb.program("r"), format!("run {run} in cell 1"));
    }
    assert_eq!(comb.line("r "), "r 1 1.0 MiB 4.0 KiB 600 nobody whole");
    let saved = comb.scratch.join("saved");
    let saved = saved.to_str().unwrap();
    assert!(comb.ok(&["region", "checkpoint", "r", "--to", saved]).contains("1 page of 4096 bytes"));
    assert!(comb.ok(&["region", "checkpoint", "r", "--to", saved]).contains("0 pages"));
    // In the cell with the fewest.
    assert!(comb.ok(&["region", "create", "s", "--from", saved]).contains("lives in cell 2: 1048576"));
    assert_eq!(comb.program("s"), "run 4 in cell 2");
    comb.ok(&["cell", "kill", "1", "--hold"]);
    assert_eq!(comb.line("r "), "r 1 1.0 MiB - 600 - lost with cell 1");
    assert!(comb.program("r").contains("cell 1 does not answer"));
    assert_eq!(comb.program("s"), "run 5 in cell 2");
    assert!(comb.ok(&["region", "rm", "r"]).contains("was lost with cell 1"));
    comb.ok(&["cell", "start", "1"]);
    assert!(comb.ok(&["region", "create", "r", "--size", "4096", "--cell", "1"]).contains("lives in cell 1"));
    assert_eq!(comb.program("r"), "run 1 in cell 1");
    let object = &comb.list(&["region", "ls"])[0];
    assert_eq!((object["region"]["name"].as_str(), object["state"]["lost"].as_u64()), (Some("r"), Some(0)));
    comb.ok(&["region", "rm", "r"]);
    comb.ok(&["down"]);
    assert!(!comb.directory().exists(), "all of it is gone");
}

#[test]
fn what_cannot_be_done_is_said_with_what_can() {
    let comb = Comb::new("mistakes");
    comb.fails(&["region", "ls"], "comb up");
    comb.fails(&["region", "create", "r", "--size", "1M"], "comb up");
    comb.ok(&["up", "--cells", "1"]);
    comb.fails(&["region", "create", "r"], "--size");
    comb.fails(&["region", "create", "r", "--size", "much"], "such as 512M");
    comb.fails(&["region", "create", "r", "--size", "1M", "--block", "100"], "a power of two");
    comb.fails(&["region", "create", "r", "--size", "1M", "--mode", "777"], "such as 640");
    comb.fails(&["region", "create", "r", "--size", "1M", "--cell", "7"], "there is no cell 7");
    comb.fails(&["region", "create", "a/b", "--size", "1M"], "no name for a region");
    comb.fails(&["region", "create", "r", "--size", "900T"], "at most 3 TiB");
    comb.fails(&["region", "create", "r", "--size", "2T"], "can be made sparse");
    comb.fails(&["region", "create", "r", "--from", "/nonexistent"], "there is no checkpoint");
    comb.fails(&["region", "rm", "r"], "there is no region r");
    comb.fails(&["region", "checkpoint", "r", "--to", "/tmp"], "there is no region r");
    comb.ok(&["region", "create", "r", "--size", "1T", "--sparse"]);
    comb.fails(&["region", "create", "r", "--size", "1M"], "there is a region r already");
    comb.fails(&["region", "checkpoint", "r", "--to", "/proc/x"], "cannot make /proc/x");
    assert!(comb.program("q").contains("there is no region q"));
}
