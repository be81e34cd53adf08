//! What commands print, for people and for programs.

use std::process::{Command, Stdio};

use serde_json::Value;

mod cells;

use cells::Comb;

/// What a command writes on a terminal, standard output and standard error together.
fn on_a_terminal(command: &Command) -> String {
    let words: Vec<String> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--command", &words.join(" "), "/dev/null"]).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    String::from_utf8(script.output().expect("script, of bsdutils").stdout).unwrap()
}

#[test]
fn every_command_speaks_json() {
    let comb = Comb::new("json");
    let object = |arguments: &[&str]| -> Value {
        let said = comb.ok(&[arguments, &["-o", "json"]].concat());
        assert_eq!(said.lines().count(), 1, "{said}");
        serde_json::from_str(&said).unwrap()
    };
    let up = object(&["up", "--cells", "2"]);
    assert_eq!((up["cells"].as_u64(), up["channels"].as_u64()), (Some(2), Some(1)));
    let cells = comb.list(&["ps"]);
    let numbers: Vec<u64> = cells.iter().map(|cell| cell["cell"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(comb.status()["agent"]["pid"], up["agent"]);
    let hosts = comb.list(&["host", "ls"]);
    assert_eq!(hosts[0]["agent"]["pid"], up["agent"]);
    assert_eq!(hosts[0]["cells"].as_array().unwrap().len(), 2);
    assert!(hosts[0]["host"].is_string() && hosts[0].get("wax").is_some());

    assert_eq!(object(&["region", "create", "tally", "--size", "1M", "--cell", "1"])["name"], "tally");
    assert_eq!(object(&["region", "fork", "tally", "child"])["name"], "child");
    let saved = comb.scratch.join("saved");
    let checkpoint = object(&["region", "checkpoint", "tally", "--to", saved.to_str().unwrap()]);
    assert_eq!((checkpoint["region"].as_str(), checkpoint["pages"].is_u64()), (Some("tally"), true));
    assert_eq!(object(&["region", "restore", "again", "--from", saved.to_str().unwrap()])["name"], "again");
    let names: Vec<Value> =
        comb.list(&["region", "ls"]).iter().map(|of| of["region"]["name"].clone()).collect();
    assert_eq!(names, ["again", "child", "tally"]);
    assert_eq!(object(&["region", "rm", "again"]), serde_json::json!({ "region": "again", "users": 0 }));

    let mut task = comb.command(&["run", "-n", "1", "--", "sleep", "1000"]).spawn().unwrap();
    let number =
        comb.wait_for("the task", || comb.list(&["task", "ls"]).first().map(|task| task["task"].clone()));
    assert_eq!(number.as_u64(), Some(task.id().into()));
    let shown: Value =
        serde_json::from_str(&comb.ok(&["task", "show", &number.to_string(), "--json"])).unwrap();
    assert_eq!(shown["program"][0], "sleep");
    assert_eq!(object(&["task", "kill", &number.to_string()])["task"], number);
    task.wait().unwrap();

    assert_eq!(object(&["cell", "kill", "2", "--hold"])["cell"], 2);
    assert_eq!(object(&["cell", "start", "2"])["incarnation"], 2);
    let log = comb.ok(&["log", "-o", "json"]);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["who"] == "agent" && line["time"].is_string()), "{log}");
    let down = object(&["down"]);
    assert_eq!((down["was"].as_str(), down["ended"].as_u64()), (Some("running"), Some(2)));
    assert_eq!(object(&["down"])["was"], "not_there");
}

#[test]
fn what_needs_no_cells_speaks_json_as_well() {
    let comb = Comb::new("json-alone");
    assert!(comb.list(&["doctor"]).iter().all(|finding| finding["state"].is_string()));
    assert!(comb.list(&["sim"]).iter().any(|scenario| scenario["scenario"] == "regroup"));
    let run: Value = serde_json::from_str(&comb.ok(&["--json", "sim", "regroup"])).unwrap();
    assert_eq!(run["ok"], true);
    let version: Value = serde_json::from_str(&comb.ok(&["version", "-o", "json"])).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["protocols"]["channels"].is_u64() && version["target"].as_str().unwrap().contains('-'));
    let script: Value = serde_json::from_str(&comb.ok(&["completion", "fish", "-o", "json"])).unwrap();
    assert!(script["script"].as_str().unwrap().contains("complete"));
}

/// What is behind the program's name is the program's, whatever it looks like.
#[test]
fn options_of_run_end_at_the_program() {
    let comb = Comb::new("options");
    let said = comb.ok(&["run", "-n", "1", "echo", "-o", "json", "--name", "x", "--json"]);
    assert_eq!(said, "-o json --name x --json\n");
    let said = comb.ok(&["-o", "json", "run", "-n", "1", "--", "echo", "--color", "never"]);
    assert_eq!(said, "--color never\n", "its standard output is the program's");
    let failed = comb.run(&["run", "-o", "json", "-n", "1", "--", "sh", "-c", "exit 7"]);
    assert_eq!(failed.status.code(), Some(7));
    let told: Value = serde_json::from_slice(&failed.stderr).unwrap();
    assert!(told["warning"].as_str().unwrap().contains("failed with status 7"), "{told}");
}

#[test]
fn colours_and_progress_are_for_terminals() {
    let comb = Comb::new("colours");
    let terminal = |arguments: &[&str], variable: &str| {
        let mut command = comb.command(arguments);
        command.env_remove("NO_COLOR").env(variable, "1");
        on_a_terminal(&command)
    };
    const GREEN_UP: &str = "\u{1b}[32mup\u{1b}[0m";
    let up = terminal(&["up", "--cells", "1"], "COMB_TEST_NOTHING");
    assert!(up.contains("starting 1 cell …") && up.contains("\r\u{1b}[K1 cell is up"), "{up:?}");
    assert!(terminal(&["ps"], "COMB_TEST_NOTHING").contains(GREEN_UP));
    assert!(!terminal(&["ps"], "NO_COLOR").contains('\u{1b}'));
    assert!(!terminal(&["ps", "--color", "never"], "COMB_TEST_NOTHING").contains('\u{1b}'));
    assert!(!terminal(&["ps", "--json"], "COMB_TEST_NOTHING").contains('\u{1b}'));
    assert!(
        terminal(&["cell", "kill", "9"], "COMB_TEST_NOTHING")
            .starts_with("\u{1b}[31mcomb:\u{1b}[0m there is")
    );
    assert!(!comb.ok(&["ps"]).contains('\u{1b}'));
    assert!(comb.ok(&["ps", "--color", "always"]).contains(GREEN_UP));
    assert!(!comb.ok(&["ps", "--color", "always", "-o", "json"]).contains('\u{1b}'));
}

#[test]
fn shells_and_man_know_all_commands() {
    let comb = Comb::new("shells");
    for shell in ["bash", "zsh", "fish"] {
        let script = comb.ok(&["completion", shell]);
        let there = ["checkpoint", "doctor", "completion"].iter().all(|word| script.contains(word));
        assert!(there && !script.contains("bench-side") && !script.contains("incarnation"), "{shell}");
    }
    let script = comb.scratch.join("comb.bash");
    std::fs::write(&script, comb.ok(&["completion", "bash"])).unwrap();
    let bash = Command::new("bash").arg("-n").arg(&script).status();
    assert!(bash.unwrap().success(), "bash reads it");
    let pages = comb.scratch.join("man/man1");
    comb.ok(&["man", pages.to_str().unwrap()]);
    for page in ["comb.1", "comb-up.1", "comb-region-checkpoint.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".TH") && text.contains("SYNOPSIS"), "{page}: {text}");
    }
    assert!(!pages.join("comb-wax.1").exists(), "that is nobody's command");
    let cannot = comb.run(&["man", "/dev/null/pages"]);
    assert!(String::from_utf8(cannot.stderr).unwrap().contains("cannot write pages to /dev/null/pages"));
}
