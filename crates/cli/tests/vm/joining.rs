//! A machine is a host of the comb: its programs share memory with those of other hosts, and its end is that of a host.

use std::path::{Path, PathBuf};
use std::process::Command;

use comb_region::{Array, Task, Terms};

use super::guest_kernel::guest_kernel;
use super::room::Room;

const SQUARES: usize = 1000;

/// What is run in the host and in the machine, which have the array together.
#[test]
fn component() {
    let Ok(task) = Task::join() else { return };
    let squares = Array::<u64>::together(&task, SQUARES, &Terms::default()).unwrap();
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    for index in (rank..SQUARES).step_by(count) {
        squares.set(index, (index * index) as u64);
    }
    task.barrier();
    let sum: u64 = (0..SQUARES).map(|index| squares.get(index)).sum();
    let name = rustix::system::uname();
    println!("{rank} of {count} in {}: {sum}", name.nodename().to_string_lossy());
}

/// A program without what only debuggers read.
fn stripped(program: &Path, into: &Path) -> PathBuf {
    let stripped = into.join(program.file_name().unwrap());
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(program).status();
    assert!(done.expect("strip, of binutils").success());
    stripped
}

#[test]
fn a_machine_is_a_host_of_the_comb() {
    let (Some(kernel), Some(room)) = (guest_kernel(), Room::of("guest", 1)) else { return };
    let host = &room.hosts[0];
    let comb = stripped(Path::new(env!("CARGO_BIN_EXE_comb")), &room.scratch);
    let program = stripped(&std::env::current_exe().unwrap(), &room.scratch);
    let [kernel, comb, program] = [&kernel, &comb, &program].map(|path| path.to_str().unwrap());
    let create = ["vm", "create", "worker", "--from-debian", "--kernel", kernel, "--bring"];
    let said = host.fails(&[&create[..], &["/nowhere/comb"]].concat());
    assert!(said.contains("/nowhere/comb: there is no such program"), "{said}");
    host.ok(&[&create[..], &[comb, "--bring", program]].concat());
    host.namespace.ip(&["tuntap", "add", "dev", "comb0", "mode", "tap"]).unwrap();
    host.ok(&["up", "-n", "1"]);
    host.ok(&["vm", "run", "worker", "--as", "guest", "--memory", "512M", "--net", "lab:tap=comb0"]);
    let machines: serde_json::Value = serde_json::from_str(&host.ok(&["vm", "ls", "--json"])).unwrap();
    let network = machines[0]["address"].as_str().unwrap().rsplit_once('.').unwrap().0;
    let own = format!("{network}.1");
    host.namespace.ip(&["address", "add", &format!("{own}/24"), "dev", "comb0"]).unwrap();
    host.namespace.ip(&["link", "set", "comb0", "up"]).unwrap();
    let token = host.ok(&["token", "--as", "alpha", "--address", &own]);
    host.ok(&["vm", "exec", "guest", "--", "comb", "join", "--token", token.trim(), "-n", "1"]);
    room.wait_for("the machine's cell", || {
        let cells = host.cells();
        (cells.len() == 2 && cells[&2].host == "guest" && cells.values().all(|cell| cell.is_up()))
            .then_some(())
    });
    let component = [program, "--exact", "joining::component", "--nocapture"];
    let task = ["run", "--limit", "120", "--directory", "/", "--hosts", "alpha,guest", "-n", "2", "--"];
    let said = host.ok(&[&task[..], &component].concat());
    let sum: usize = (0..SQUARES).map(|index| index * index).sum();
    let own_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for line in [format!("0 of 2 in {own_name}: {sum}"), format!("1 of 2 in guest: {sum}")] {
        assert!(said.lines().any(|said| said.ends_with(&line)), "{line:?}: {said}");
    }
    // The machine's end is that of a host: its cell is lost, and the other goes on.
    host.ok(&["vm", "kill", "guest"]);
    room.wait_for("the machine to be lost", || {
        host.sees("guest").filter(|guest| guest["condition"] == "lost")
    });
    let cells = host.cells();
    assert!(cells[&1].is_up() && cells[&1].incarnation == 1, "{cells:?}");
    let alone = ["run", "--limit", "120", "-n", "1", "--"];
    assert!(host.ok(&[&alone[..], &component].concat()).contains("0 of 1 in "));
}
