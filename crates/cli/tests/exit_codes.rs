//! What scripts tell failures apart by: numbers, kinds and sentences, and what was meant by a misspelt name.

use std::os::unix::fs::{DirBuilderExt, chown};
use std::process::{Command, Output};

use serde_json::Value;

mod cells;
mod program;

use cells::Comb;

/// The sentence, after a look at number and kind.
#[track_caller]
fn failure(output: &Output, code: i32, kind: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let object: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((object["code"].as_i64(), object["kind"].as_str()), (Some(code.into()), Some(kind)), "{said}");
    assert!(output.stdout.is_empty());
    object["error"].as_str().unwrap().to_owned()
}

fn fails(comb: &Comb, arguments: &[&str], code: i32, kind: &str) -> String {
    failure(&comb.run(&[&["-o", "json"], arguments].concat()), code, kind)
}

#[test]
fn nobody_there_is_3_and_wrong_words_are_2() {
    let comb = Comb::new("codes");
    let running: [&[&str]; 8] = [
        &["ps"],
        &["log"],
        &["host", "ls"],
        &["cell", "kill", "1"],
        &["region", "ls"],
        &["region", "rm", "x"],
        &["task", "ls"],
        &["run", "-n", "1", "--cells", "1", "--", "true"],
    ];
    for arguments in running {
        assert!(fails(&comb, arguments, 3, "not_running").contains("`comb up`"), "{arguments:?}");
    }
    let usage: [(&[&str], &str); 8] = [
        (&["psx"], "similar subcommand exists: 'ps'"),
        (&["up", "--cels", "3"], "similar argument exists: '--cells'"),
        (&["up", "--cells", "65"], "65"),
        (&["cell", "kill", "two"], "`comb ps` shows them"),
        (&["reproduce", "hiv"], "similar value exists: 'hive'"),
        (&["sim", "regrup"], "did you mean regroup?"),
        (&["run", "--", "true"], "how many components?"),
        (&["--name", "a/b", "ps"], "no name for a comb"),
    ];
    for (arguments, words) in usage {
        let said = fails(&comb, arguments, 2, "usage");
        assert!(said.contains(words) && !said.contains('\n'), "{arguments:?}: {said}");
    }
    let misspelt = comb.command(&["ps", "-o", "json"]).env("COMB_WITHOUT", "landlok").output().unwrap();
    assert!(failure(&misspelt, 2, "usage").contains("did you mean landlock?"));
}

#[test]
fn what_is_not_there_is_4_and_what_is_refused_5() {
    let comb = Comb::new("codes-there");
    comb.ok(&["up", "--cells", "2"]);
    comb.ok(&["region", "create", "tally", "--size", "4096"]);
    let missing: [(&[&str], &str); 9] = [
        (&["cell", "kill", "9"], "numbered from 1 to 2"),
        (&["cell", "start", "3"], "numbered from 1 to 2"),
        (&["region", "rm", "taly"], "there is no region taly; did you mean tally?"),
        (&["region", "checkpoint", "taly", "--to", "/tmp/x"], "did you mean tally?"),
        (&["region", "fork", "tallly", "child"], "did you mean tally?"),
        (&["region", "create", "new", "--size", "1", "--cell", "7"], "numbered from 1 to 2"),
        (&["task", "show", "4"], "there is no task 4, nor any other"),
        (&["task", "kill", "4"], "there is no task 4"),
        (&["run", "-n", "1", "--cells", "1,9", "--", "true"], "there is no cell 9"),
    ];
    for (arguments, words) in missing {
        let said = fails(&comb, arguments, 4, "not_found");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert!(fails(&comb, &["up"], 5, "refused").contains("is running in"));
    assert!(fails(&comb, &["cell", "start", "1"], 5, "refused").contains("running already"));
    assert!(
        fails(&comb, &["region", "create", "tally", "--size", "1"], 5, "refused").contains("tally already")
    );

    let mut task = comb.command(&["run", "-n", "1", "--", "sleep", "1000"]).spawn().unwrap();
    comb.wait_for("the task", || (!comb.list(&["task", "ls"]).is_empty()).then_some(()));
    let said = fails(&comb, &["task", "show", "4"], 4, "not_found");
    assert!(said.ends_with(&format!("the only one is {}", task.id())), "{said}");
    comb.ok(&["task", "kill", &task.id().to_string()]);
    task.wait().unwrap();

    // An agent that is stopped answers nobody.
    let agent = i32::try_from(comb.status()["agent"]["pid"].as_i64().unwrap()).unwrap();
    let agent = rustix::process::Pid::from_raw(agent).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::STOP).unwrap();
    assert!(fails(&comb, &["ps"], 6, "no_answer").contains("is it stopped?"));
    rustix::process::kill_process(agent, rustix::process::Signal::CONT).unwrap();
    comb.ok(&["down"]);
}

#[test]
fn the_exit_status_of_a_task_is_its_own() {
    let comb = Comb::new("codes-run");
    assert_eq!(comb.run(&["run", "-n", "1", "--", "sh", "-c", "exit 6"]).status.code(), Some(6));
    let late = comb.run(&["run", "-n", "1", "--limit", "0.1", "--", "sleep", "1000"]);
    assert_eq!(late.status.code(), Some(124));
}

#[test]
fn help_and_the_reference_have_all_numbers() {
    let comb = Comb::new("codes-told");
    let help = comb.ok(&["help"]);
    let reference = include_str!("../../../docs/commands.md");
    for (code, words) in [(3, "no comb is running here"), (4, "no such cell"), (6, "no answer in time")] {
        assert!(help.contains(&format!("{code}  {words}")), "{help}");
        assert!(reference.contains(&format!("| {code} |")), "{code}");
    }
    // Each command has a line.
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut count = 0;
    for command in commands.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help") {
        assert!(reference.contains(&format!("`comb {command}")), "docs/commands.md has no comb {command}");
        count += 1;
    }
    assert!(count > 15, "{help}");
}

#[test]
fn a_runtime_directory_of_somebody_else_or_open_to_all_is_refused() {
    let comb = Comb::new("codes-foreign");
    let directory = comb.directory();
    std::fs::DirBuilder::new().mode(0o777).create(&directory).unwrap();
    assert!(Command::new("chmod").arg("755").arg(&directory).status().unwrap().success());
    assert!(fails(&comb, &["up"], 5, "refused").contains("chmod 700"));
    if rustix::process::geteuid().is_root() {
        chown(&directory, Some(12345), None).unwrap();
        assert!(fails(&comb, &["up"], 5, "refused").contains("belongs to user 12345"));
        assert!(fails(&comb, &["ps"], 5, "refused").contains("belongs to user 12345"));
    }
    std::fs::remove_dir(&directory).unwrap();
    std::fs::write(&directory, "a file").unwrap();
    assert!(fails(&comb, &["up"], 2, "usage").contains("is not a directory"));
}

/// Another user's programs run as somebody else, where we may become that.
#[test]
fn a_directory_that_may_not_be_written_is_5() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can become somebody else");
        return;
    }
    use std::os::unix::process::CommandExt;
    let comb = Comb::new("codes-denied");
    let closed = comb.scratch.join("closed");
    std::fs::DirBuilder::new().mode(0o755).create(&closed).unwrap();
    // Where it is built may be closed to others.
    let copy = comb.scratch.join("comb");
    program::copy(&copy);
    let mut up = Command::new(&copy);
    up.args(["up", "-o", "json"]).env("COMB_RUNTIME_DIR", closed.join("run")).env("COMB_CONFIG", "/dev/null");
    let said = failure(&up.uid(12345).gid(12345).current_dir("/").output().unwrap(), 5, "refused");
    assert!(said.contains("COMB_RUNTIME_DIR") && said.contains("Permission denied"), "{said}");
}

/// A disk without room is told of; what has begun is taken back.
#[test]
fn a_full_disk_is_said_and_nothing_is_left() {
    let comb = Comb::new("codes-full");
    let disk = comb.scratch.join("disk");
    std::fs::create_dir(&disk).unwrap();
    // Of a namespace of its own: it goes with its last process.
    let script = "mount -t tmpfs -o size=4k,nr_inodes=3 none \"$0\" || exit 99; cd /; \
                  COMB_RUNTIME_DIR=\"$0/run\" timeout 60 \"$1\" up --cells 2 -o json; status=$?; \
                  [ ! -e \"$0/run\" ] || exit 98; exit $status";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_comb"))
        .env("COMB_CONFIG", "/dev/null")
        .env_remove("COMB_WITHOUT")
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(99) && rustix::process::geteuid().is_root() => output,
        _ => return eprintln!("left out: no file system can be mounted here"),
    };
    let said = failure(&output, 1, "failed");
    assert!(said.contains("No space left on device"), "{said}");
}
