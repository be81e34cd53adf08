//! The demonstration, as programs see it.

use std::process::Command;

use serde_json::Value;

#[test]
fn everything_that_is_to_live_does_and_nothing_is_left() {
    let scratch = std::env::temp_dir().join(format!("comb-test-demo-{}", std::process::id()));
    std::fs::create_dir(&scratch).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_comb"));
    demo.args(["demo", "--headless", "--json"]).env("TMPDIR", &scratch).env("COMB_CONFIG", "/dev/null");
    let ended = demo.output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = events.last().unwrap_or_else(|| panic!("{ended:?}", ended = ended.stderr));
    assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(
        (&summary["event"], &summary["survivors_correct"]),
        (&Value::from("summary"), &Value::from(true))
    );
    assert_eq!(summary["service"]["missing"], 0);
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    for name in [
        "up",
        "service",
        "programs",
        "killed",
        "failure",
        "replica_back",
        "program",
        "service_checked",
        "down",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let failure = events.iter().find(|event| event["event"] == "failure").unwrap();
    let steps: Vec<&str> =
        failure["steps"].as_array().unwrap().iter().filter_map(|step| step["step"].as_str()).collect();
    assert!(steps.contains(&"agreement") && steps.contains(&"reintegrated"), "{steps:?}");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left");
    std::fs::remove_dir(&scratch).unwrap();
}
