//! Configuration by the real command: what counts more, what is wrong, and what cannot be read.

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

#[expect(dead_code, reason = "other tests need more of it")]
mod cells;
mod program;

use cells::Comb;

fn file(comb: &Comb, text: &str) -> PathBuf {
    let path = comb.scratch.join("config.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_flag_counts_more_than_the_environment_and_that_more_than_the_file() {
    let comb = Comb::new("config");
    let path = file(&comb, "cells = 1\nwithout = ['membarrier']\n[limits]\nchannels = 777\n");
    let path = path.to_str().unwrap();
    comb.ok(&["--config", path, "up"]);
    assert_eq!(comb.list(&["ps"]).len(), 1, "the file's");
    let doctor = comb.ok(&["--config", path, "doctor"]);
    let line = doctor.lines().find(|line| line.starts_with("membarrier ")).unwrap();
    assert!(line.contains("off"), "{line}");
    comb.ok(&["down"]);
    let up = |arguments: &[&str]| {
        let mut command = comb.command(&[&["up", "--config", path], arguments].concat());
        let output: Output = command.env("COMB_CELLS", "2").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let count = comb.list(&["ps"]).len();
        comb.ok(&["down"]);
        count
    };
    assert_eq!((up(&[]), up(&["--cells", "3"])), (2, 3));
}

#[test]
fn what_is_in_effect_is_shown_with_where_it_is_from() {
    let comb = Comb::new("config-show");
    let path = file(&comb, "cells = 3\n[dashboard]\nenabled = false\n");
    let mut show = comb.command(&["config", "show", "-o", "json", "--name", "b"]);
    show.env("COMB_CONFIG", &path).env("COMB_METRICS", "127.0.0.1:9100");
    let shown: Value = serde_json::from_slice(&show.output().unwrap().stdout).unwrap();
    let of = |key: &str| (shown[key]["value"].clone(), shown[key]["source"].as_str().unwrap().to_owned());
    assert_eq!(of("cells"), (3.into(), "file".to_owned()));
    assert_eq!(of("dashboard.enabled"), (false.into(), "file".to_owned()));
    assert_eq!(of("metrics.listen"), ("127.0.0.1:9100".into(), "environment".to_owned()));
    assert_eq!(of("name"), ("b".into(), "flag".to_owned()));
    assert_eq!(of("hosts.listen"), ("0.0.0.0:7170".into(), "default".to_owned()));
    assert_eq!(shown["cells"]["where"].as_str().unwrap(), format!("{}:1", path.display()));
    // What is shown as a file is right.
    let shown = comb.ok(&["config", "show"]);
    assert!(shown.contains("cells = 4") && shown.contains("[dashboard]"), "{shown}");
    let again = comb.scratch.join("again.toml");
    std::fs::write(&again, shown).unwrap();
    assert!(comb.ok(&["config", "check", again.to_str().unwrap()]).contains("is right"));
}

#[test]
fn a_wrong_file_stops_every_command_that_goes_by_it() {
    let comb = Comb::new("config-wrong");
    let path = file(&comb, "# mine\ncels = 3\n");
    let path = path.to_str().unwrap();
    let commands: [&[&str]; 4] = [&["up"], &["ps"], &["config", "show"], &["config", "check"]];
    for arguments in commands {
        let output = comb.run(&[&["--config", path], arguments].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.starts_with(&format!("comb: {path}:2:1: there is no key cels; did you mean cells?")),
            "{said}"
        );
        assert!(said.contains("2 | cels = 3\n  | ^^^^\n"), "{said}");
    }
    for arguments in [&["version"][..], &["completion", "bash"]] {
        comb.ok(&[&["--config", path], arguments].concat());
    }
    assert!(!comb.directory().exists(), "nothing was started");
}

#[test]
fn a_file_that_cannot_be_read_is_said() {
    let comb = Comb::new("config-unreadable");
    let check = |path: &str, code: i32, words: &str| {
        let output = comb.run(&["--config", path, "ps"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{path}: {said}");
    };
    check("/no/such/file", 2, "cannot read the configuration in /no/such/file: No such file");
    check("/", 2, "Is a directory");
    let bytes = comb.scratch.join("bytes.toml");
    std::fs::write(&bytes, [0xff, 0xfe, 0]).unwrap();
    check(bytes.to_str().unwrap(), 2, "UTF-8");
    let mut of_environment = comb.command(&["ps"]);
    let output = of_environment.env("COMB_CONFIG", "/no/such/file").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    if rustix::process::geteuid().is_root() {
        use std::os::unix::{fs::PermissionsExt, process::CommandExt};
        let path = file(&comb, "");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let copy = comb.scratch.join("comb");
        program::copy(&copy);
        let mut ps = std::process::Command::new(copy);
        let output =
            ps.arg("ps").env("COMB_CONFIG", &path).uid(12345).gid(12345).current_dir("/").output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        assert!(text(&output.stderr).contains("Permission denied"));
    }
}

#[test]
fn the_users_own_file_is_found_and_its_name_counts() {
    let comb = Comb::new("config-home");
    std::fs::create_dir_all(comb.scratch.join(".config/comb")).unwrap();
    std::fs::write(comb.scratch.join(".config/comb/config.toml"), "name = 'mine'\n").unwrap();
    let mut ps = comb.command(&["ps"]);
    ps.env_remove("COMB_CONFIG")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("COMB_RUNTIME_DIR")
        .env_remove("COMB_NAME");
    let output = ps.env("HOME", &comb.scratch).env("XDG_RUNTIME_DIR", &comb.scratch).output().unwrap();
    let expected = comb.scratch.join("comb-mine");
    assert!(text(&output.stderr).contains(expected.to_str().unwrap()), "{output:?}");
}

#[test]
fn the_reference_has_every_key_and_variable() {
    let comb = Comb::new("config-told");
    let shown: Value = serde_json::from_str(&comb.ok(&["config", "show", "-o", "json"])).unwrap();
    let reference = include_str!("../../../docs/configuration.md");
    for key in shown.as_object().unwrap().keys() {
        assert!(reference.contains(&format!("| `{key}` |")), "docs/configuration.md has no {key}");
    }
    for variable in
        ["COMB_CELLS", "COMB_LIMITS", "COMB_DASHBOARD_LISTEN", "COMB_HOSTS_ALLOW", "COMB_RUN_SHELL"]
    {
        assert!(reference.contains(variable), "{variable}");
    }
}
