//! The dashboard of a real comb: who may see and act, what is told, and that it lives as long as the comb does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use serde_json::Value;

mod cells;

use cells::{Comb, LIMIT};

/// Its address, and the token of that.
fn place(comb: &Comb, options: &[&str]) -> (String, String) {
    let said = comb.ok(&[&["dashboard"], options].concat());
    let (address, token) = said.trim().split_once("/#token=").expect("an address with a token");
    (address.strip_prefix("http://").expect("plain").to_owned(), token.to_owned())
}

/// A whole request, and its status and content.
fn ask(address: &str, line: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, content) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), content.to_owned())
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn who_has_the_address_sees_and_acts_and_nobody_else() {
    let comb = Comb::new("page");
    let up = comb.ok(&["up", "--cells", "3"]);
    let (address, token) = place(&comb, &[]);
    assert!(up.contains(&format!("dashboard: http://{address}/#token={token}")), "{up}");
    assert_eq!(ask(&address, "GET /", "").0, 200);
    assert_eq!(ask(&address, "GET /api/state", "").0, 401);
    let (status, state) = ask(&address, "GET /api/state", &bearer(&token));
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(status, 200);
    assert_eq!((state["cells"].as_array().unwrap().len(), &state["may_act"]), (3, &Value::from(true)));
    assert_eq!(state["cells"][1]["state"], "up");

    let (_, view) = place(&comb, &["--view-only"]);
    let kill = "POST /api/cells/2/kill";
    assert_eq!(ask(&address, kill, &bearer(&view)).0, 403);
    assert_eq!(ask(&address, kill, "").0, 401);
    assert_eq!(ask(&address, kill, &(bearer(&token) + "Origin: http://evil.example\r\n")).0, 403);
    let lives =
        |comb: &Comb| comb.list(&["ps"]).iter().map(|cell| cell["incarnation"].as_u64()).collect::<Vec<_>>();
    assert_eq!(lives(&comb), [Some(1); 3], "nothing was done");
    let (status, done) = ask(&address, kill, &bearer(&token));
    assert!(status == 200 && done.contains("cell 2: 2 of 2 noticed"), "{status}: {done}");
    comb.wait_for("another life of cell 2", || (lives(&comb) == [Some(1), Some(2), Some(1)]).then_some(()));
    let (_, metrics) = ask(&address, "GET /metrics", &bearer(&view));
    assert!(
        metrics.contains("\ncomb_agent_up 1\n") && metrics.contains("comb_cell_incarnation{cell=\"2\""),
        "{metrics}"
    );
    // What others could read says nothing, and the file with the token is the user's alone.
    let mode = std::os::unix::fs::MetadataExt::mode(
        &std::fs::metadata(comb.directory().join("dashboard.json")).unwrap(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let (status, refused) = ask(&address, "POST /api/cells/9/kill", &bearer(&token));
    assert!(status == 409 && refused.contains("there is no cell 9"), "{status}: {refused}");
}

#[test]
fn it_is_where_it_was_when_its_process_or_the_agent_is_another() {
    let comb = Comb::new("stays");
    comb.ok(&["up", "--cells", "2"]);
    let (address, token) = place(&comb, &[]);
    let state = || ask(&address, "GET /api/state", &bearer(&token)).0;
    assert_eq!(state(), 200);
    let page = || {
        let agent = comb.status()["agent"]["pid"].as_u64().unwrap();
        let children =
            std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap_or_default();
        let is_page = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.contains("dashboard"))
        };
        children.split_whitespace().find(is_page).map(str::to_owned)
    };
    let before = comb.wait_for("the page's process", page);
    assert!(Command::new("kill").args(["-9", &before]).status().unwrap().success());
    comb.wait_for("another process", || page().filter(|now| *now != before));
    assert_eq!(state(), 200);
    let agent = comb.status()["agent"]["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &agent]).status().unwrap().success());
    let mut next = comb.command(&["host"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    comb.wait_for("the next agent", || comb.status_if_any());
    let answers = || TcpStream::connect(&address).ok().map(drop);
    comb.wait_for("the page at its old place", answers);
    assert_eq!(state(), 200);
    comb.ok(&["down"]);
    next.wait().unwrap();
    assert!(TcpStream::connect(&address).is_err(), "it ends with the comb");
    assert!(!comb.directory().exists());
}

#[test]
fn a_port_that_is_taken_is_told_before_anything_starts_and_off_is_off() {
    let comb = Comb::new("taken");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = comb.run(&["up", "--cells", "1", "--dashboard", &address]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(&address) && said.contains("in use"), "{said}");
    assert!(!comb.directory().exists(), "nothing is left");
    comb.ok(&["up", "--cells", "1", "--dashboard", "off", "--metrics", "off"]);
    let none = comb.run(&["dashboard"]);
    assert_eq!(none.status.code(), Some(4), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("without a dashboard"), "{none:?}");
}

/// Of what the tests of the page themselves look at, once in front of a comb.
#[test]
fn a_browser_shows_a_failure_while_it_happens() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboard/tests/browser");
    let has = |program: &str| {
        Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success())
    };
    if !has("node") || !has("/usr/bin/chromium") || !std::path::Path::new(tests).join("node_modules").exists()
    {
        eprintln!("skipped: there is no node or chromium here, which scripts/setup-test.sh installs");
        return;
    }
    let comb = Comb::new("browser");
    comb.ok(&["up", "--cells", "4"]);
    let url = comb.ok(&["dashboard"]);
    let mut test = Command::new("node");
    test.args(["--test", "live.test.mjs"]).current_dir(tests).env("COMB_DASHBOARD_URL", url.trim());
    test.env("COMB_BIN", env!("CARGO_BIN_EXE_comb")).env("COMB_RUNTIME_DIR", comb.directory());
    let ended = test.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && said.contains("\n# pass 1\n"), "{said}\n{}", comb.log());
}
