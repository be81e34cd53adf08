//! What is done to cells that work: they are hung, drained, restarted one at a time under load, and more are added; and what is told of that.

use serde_json::Value;

#[expect(dead_code, reason = "other tests need more of it")]
mod cells;

use cells::Comb;

/// What has happened, by kind.
fn events(comb: &Comb, kind: &str) -> Vec<Value> {
    let all = comb.ok(&["events", "-o", "json"]);
    let all = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["kind"] == kind).collect()
}

fn up(comb: &Comb) -> Vec<(u64, u64)> {
    let number = |cell: &Value, key: &str| cell[key].as_u64().unwrap();
    let cells = comb.list(&["ps"]);
    let up = cells.iter().filter(|cell| cell["state"] == "up");
    up.map(|cell| (number(cell, "cell"), number(cell, "incarnation"))).collect()
}

/// The steps of the last failure of a cell, and whether it is over.
fn steps(comb: &Comb, cell: u64) -> Vec<String> {
    let failures = comb.list(&["events", "--failures", "--cell", &cell.to_string()]);
    let last = failures.last().cloned().unwrap_or_default();
    let steps = last["steps"].as_array().cloned().unwrap_or_default();
    steps.iter().map(|step| step["step"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_failure_is_told_step_by_step() {
    let comb = Comb::new("steps");
    comb.ok(&["up", "--cells", "4"]);
    comb.ok(&["cell", "kill", "2"]);
    comb.wait_for("the killed cell's return", || {
        steps(&comb, 2).contains(&"reintegrated".to_owned()).then_some(())
    });
    let told = steps(&comb, 2);
    for step in ["end", "hint", "agreement", "barrier 1", "discard", "barrier 2", "resume", "restart"] {
        assert!(told.iter().any(|known| known == step), "{step} in {told:?}");
    }
    let hung = comb.ok(&["cell", "hang", "3"]);
    assert!(
        hung.contains("cell 3") && hung.contains("stopped, so that it hangs; 3 of 3 peers noticed"),
        "{hung}"
    );
    comb.wait_for("the hung cell's return", || {
        steps(&comb, 3).contains(&"reintegrated".to_owned()).then_some(())
    });
    let told = steps(&comb, 3);
    assert!(told.contains(&"alert".to_owned()) && told.contains(&"verdict".to_owned()), "{told:?}");
    let story = comb.ok(&["events", "--failures", "--cell", "3"]);
    assert!(
        story.contains("its tick stands still") && story.contains("most have found it failed"),
        "{story}"
    );
    let people = comb.ok(&["events", "-n", "200", "--cell", "3"]);
    assert!(
        people.lines().all(|line| line.contains("cell 3")) && people.contains("stopped cell 3"),
        "{people}"
    );
    assert_eq!(events(&comb, "cell_struck").len(), 2);
}

#[test]
fn cells_are_restarted_one_at_a_time_under_load_and_more_are_added() {
    let comb = Comb::new("restart");
    comb.ok(&["up", "--cells", "3"]);
    // A task in a cell that is not restarted lives through it all.
    let mut task = comb.command(&["run", "-n", "1", "--cells", "1", "--", "sleep", "1000"]).spawn().unwrap();
    comb.wait_for("the task", || (comb.list(&["task", "ls"]).len() == 1).then_some(()));
    let added = comb.ok(&["cell", "add", "2"]);
    assert!(added.contains("cells 4 to 5 are up"), "{added}");
    assert_eq!(up(&comb), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
    let restarted = comb.ok(&["cell", "restart", "2", "3", "4", "5"]);
    assert_eq!(restarted.lines().count(), 4, "{restarted}");
    assert_eq!(up(&comb), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2)]);
    assert_eq!(task.try_wait().unwrap(), None, "the task lives");
    let ended = events(&comb, "cell_ended");
    assert!(
        ended.iter().all(|event| event["how"] == "ended as it was told, to be started anew"),
        "{ended:?}"
    );
    // What depends on a cell is waited for, and the cell gets no other meanwhile.
    let refused = comb.run(&["cell", "restart", "1", "--wait", "0.2"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(6), "{said}");
    assert!(
        said.contains("cell 1 was not restarted: task") && said.contains("it gets tasks again"),
        "{said}"
    );
    assert_eq!(up(&comb)[0], (1, 1));
    task.kill().unwrap();
    task.wait().unwrap();
    comb.ok(&["cell", "restart", "1", "--wait", "30"]);
    assert_eq!(up(&comb)[0], (1, 2));
}

#[test]
fn a_drained_cell_gets_no_task_until_it_is_started_anew() {
    let comb = Comb::new("drain");
    comb.ok(&["up", "--cells", "2"]);
    let drained = comb.ok(&["cell", "drain", "1"]);
    assert!(drained.contains("cell 1 is drained: nothing depends on it"), "{drained}");
    let cell = |number: usize| comb.list(&["cell", "ls"])[number - 1]["state"].clone();
    assert_eq!((cell(1), cell(2)), (Value::from("drained"), Value::from("up")));
    let mut tasks: Vec<_> =
        (0..3).map(|_| comb.command(&["run", "-n", "1", "--", "sleep", "1000"]).spawn().unwrap()).collect();
    let placed =
        comb.wait_for("the tasks", || Some(comb.list(&["task", "ls"])).filter(|tasks| tasks.len() == 3));
    assert!(placed.iter().all(|task| task["components"][0]["cell"] == 2), "{placed:?}");
    // The last that takes tasks goes on taking them, and what is in a cell is said.
    let refused = comb.run(&["cell", "drain", "2"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is the last that takes tasks"), "{refused:?}");
    comb.ok(&["cell", "drain", "1", "--undo"]);
    let late = comb.run(&["cell", "drain", "2", "--wait", "0.2"]);
    assert_eq!(late.status.code(), Some(6), "{late:?}");
    assert!(String::from_utf8_lossy(&late.stdout).contains("would still be lost with it"), "{late:?}");
    comb.ok(&["cell", "restart", "2"]);
    assert_eq!(cell(2), "up", "a cell that begins anew gets tasks");
    for task in &mut tasks {
        let _ = task.kill();
        let _ = task.wait();
    }
}

#[test]
fn top_shows_all_of_it_where_there_is_no_terminal() {
    let comb = Comb::new("top");
    comb.ok(&["up", "--cells", "2"]);
    comb.ok(&["region", "create", "tally", "--size", "1M"]);
    let page = comb.ok(&["top"]);
    assert!(page.contains("2 of 2 cells up") && page.contains("tally"), "{page}");
    assert!(!page.contains('\x1b'), "{page}");
    let looks = comb.ok(&["top", "-n", "2", "-d", "0.1", "-o", "json"]);
    let last: Value = serde_json::from_str(looks.lines().last().unwrap()).unwrap();
    assert_eq!((looks.lines().count(), &last["regions"][0]["region"]), (2, &Value::from("tally")));
}
