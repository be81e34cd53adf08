//! A newer comb takes an older one's place while programs run: the agent first, then one cell after the other.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use comb_host::RuntimeDirectory;
use comb_host::control::{self, Request};
use serde_json::Value;

mod cells;
mod program;

use cells::{Comb, LIMIT};

/// Of each cell: its process and which life of it that is.
fn lives(comb: &Comb) -> Vec<(u64, u64)> {
    let number = |cell: &Value, key: &str| cell[key].as_u64().unwrap();
    comb.list(&["ps"]).iter().map(|cell| (number(cell, "pid"), number(cell, "incarnation"))).collect()
}

fn agent(comb: &Comb) -> u64 {
    comb.status()["agent"]["pid"].as_u64().unwrap()
}

/// A program that uses a region of cell 1 all the time; and another region there.
fn load(comb: &Comb) -> Child {
    let on_cell_1 = ["run", "-n", "1", "--cells", "1", "--", "/proc/self/exe", "inject-program"];
    for region in ["busy", "kept"] {
        comb.ok(&["region", "create", region, "--size", "4M", "--cell", "1"]);
        comb.ok(&[&on_cell_1[..], &["fill", region, "7"]].concat());
    }
    let mut program = comb.command(&[&on_cell_1[..], &["span", "busy", "7", "100"]].concat());
    let child = program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    comb.wait_for("the program", || (comb.list(&["task", "ls"]).len() == 1).then_some(()));
    child
}

fn end(mut program: Child) {
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success(), "the program has found everything as it stored it");
}

#[test]
fn an_agent_becomes_another_program_and_cells_and_programs_live_on() {
    let comb = Comb::new("succession");
    comb.ok(&["up", "--cells", "3"]);
    let program = load(&comb);
    let (before, pid) = (lives(&comb), agent(&comb));
    let newer = newer(&comb);
    let took_over = Command::new(&newer)
        .args(["host", "restart"])
        .env("COMB_RUNTIME_DIR", comb.directory())
        .output()
        .unwrap();
    assert!(took_over.status.success(), "{took_over:?}");
    assert!(String::from_utf8_lossy(&took_over.stdout).contains("has taken over 3 cells"), "{took_over:?}");
    assert_eq!((agent(&comb), lives(&comb)), (pid, before.clone()), "the same process, and the same cells");
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(), newer);
    comb.wait_for("the task in the book of the next agent", || {
        (comb.list(&["task", "ls"]).len() == 1).then_some(())
    });
    // Cells are the newer program's one after the other; the one that the task depends on comes when that is over.
    comb.ok(&["cell", "restart", "2", "3"]);
    let after = lives(&comb);
    assert_eq!((after[0], after[1].1, after[2].1), (before[0], 2, 2));
    let exe = |pid: u64| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!((exe(after[1].0), exe(after[2].0)), (newer.clone(), newer));
    end(program);
    let saved = comb.scratch.join("saved");
    comb.ok(&["cell", "restart", "1", "--wait", "30", "--save", saved.to_str().unwrap()]);
    // Its regions are there again, with what was in them.
    let are_back =
        || comb.list(&["region", "ls"]).iter().all(|region| !region["state"].is_null()).then_some(());
    comb.wait_for("the regions", are_back);
    comb.ok(&[
        "run",
        "-n",
        "1",
        "--cells",
        "2",
        "--",
        "/proc/self/exe",
        "inject-program",
        "check",
        "kept",
        "7",
    ]);
    // One that this very process had started, as another program, is told of as its own child, and nothing is left of it.
    let agent = agent(&comb);
    let children = std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
    let is_dead = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.rsplit(')').next().unwrap().trim().starts_with('Z'))
    };
    assert!(!children.split_whitespace().any(is_dead), "{children}");
    assert!(comb.log().contains("ended as it was told, to be started anew"), "{}", comb.log());
}

/// The same program elsewhere.
fn newer(comb: &Comb) -> PathBuf {
    let newer = comb.scratch.join("comb-newer");
    program::copy(&newer);
    newer
}

#[test]
fn what_cannot_be_the_next_agent_is_refused_and_nothing_changes() {
    let comb = Comb::new("no-heir");
    comb.ok(&["up", "--cells", "2"]);
    let before = lives(&comb);
    let (missing, broken, other) =
        (comb.scratch.join("missing"), comb.scratch.join("broken"), "/bin/true".into());
    std::fs::write(&broken, "no program").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // A comb of another time: what it says of itself is all that is known of it.
    let far = comb.scratch.join("far");
    std::fs::write(&far, "#!/bin/sh\necho '{\"protocols\":{\"channels\":9,\"state\":1}}'\n").unwrap();
    std::fs::set_permissions(&far, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let directory = RuntimeDirectory::at(comb.directory()).unwrap();
    for (program, why) in [
        (missing, "No such file"),
        (broken, "Exec format error"),
        (other, "does not say which comb it is"),
        (far, "version 9"),
        (PathBuf::from("comb"), "whole"),
    ] {
        let said = format!("{:?}", control::ask(&directory, &Request::Succeed { program: program.clone() }));
        assert!(said.contains("cannot be the next agent") && said.contains(why), "{program:?}: {said}");
    }
    assert_eq!(lives(&comb), before);
    comb.ok(&["cell", "kill", "1"]);
}

/// A service manager that holds what the agent gives it.
#[test]
fn what_an_agent_keeps_is_held_by_a_service_manager_when_it_is_killed() {
    let mut comb = Comb::new("store");
    let path = comb.scratch.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    comb.variables.push(("NOTIFY_SOCKET", path.into()));
    let host = |before: &str, behind: &str| {
        let line = format!("{before} exec \"$0\" host run --cells 2 --dashboard off {behind}");
        let mut command = Command::new("bash");
        command.args(["-c", &line]).arg(env!("CARGO_BIN_EXE_comb")).env("COMB_RUNTIME_DIR", comb.directory());
        command
            .env("COMB_CONFIG", "/dev/null")
            .envs(comb.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut first = host("", "");
    comb.wait_for("the cells", || comb.status_if_any().filter(|status| status["cells"][1]["state"] == "up"));
    let program = load(&comb);
    // Frames, and the guard of the process that imports them.
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(stored(&socket));
    }
    let kinds: Vec<PathBuf> = held
        .iter()
        .map(|held| std::fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).unwrap())
        .collect();
    assert!(kinds.iter().any(|kind| kind.to_string_lossy().contains("userfaultfd")), "{kinds:?}");
    first.kill().unwrap();
    first.wait().unwrap();
    // One that no cell hands over: whoever has it was given it by the manager.
    held.push(rustix::fs::memfd_create("comb-test-held", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    // The next one gets them, behind the three that everybody has, and holds them until cells have handed over theirs.
    let numbers: Vec<i32> = held
        .iter()
        .map(|held| {
            rustix::io::fcntl_setfd(held, rustix::io::FdFlags::empty()).unwrap();
            held.as_raw_fd()
        })
        .collect();
    let mut second =
        host("LISTEN_PID=$$ LISTEN_FDS=3", &format!("3<&{} 4<&{} 5<&{}", numbers[0], numbers[1], numbers[2]));
    drop(held);
    comb.wait_for("the next agent", || comb.status_if_any());
    let agent = second.id();
    let has = |what: &str| {
        let fds = std::fs::read_dir(format!("/proc/{agent}/fd")).unwrap().flatten();
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|kind| kind.to_string_lossy().contains(what))
    };
    assert!(has("userfaultfd") && has("comb-test-held"), "it holds what it was given");
    // It has taken it: what it starts does not get it.
    let info = std::fs::read_to_string(format!("/proc/{agent}/fdinfo/5")).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim().to_owned();
    assert!(i64::from_str_radix(&flags, 8).unwrap() & 0o2_000_000 != 0, "{info}");
    end(program);
    comb.ok(&["down"]);
    second.wait().unwrap();
}

/// The descriptor that a datagram brings which wants it stored.
fn stored(socket: &UnixDatagram) -> Option<std::os::fd::OwnedFd> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut bytes = [0; 500];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    })
}
