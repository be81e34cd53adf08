//! Several hosts make one comb, by the real command: each is a network namespace with directories of its own.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use comb_host::federation::words::{
    self, Answered, CellState, CellWord, Greeting, LONGEST_WORD, PROTOCOL, Reception, Word,
};
use comb_net::hosts::{HostKey, KnownHosts, PublicKey, SecureStream, Terms};

#[path = "../../net/tests/transports/namespaces.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod namespaces;
mod program;
mod room;

use room::{Host, Room};

#[test]
fn hosts_join_one_after_the_other_and_all_see_all_cells() {
    let Some(room) = Room::of("join", 8) else { return };
    let hosts = &room.hosts;
    hosts[0].ok(&["up", "-n", "1"]);
    for count in 2..=hosts.len() {
        // Whoever belongs to it can let others in; the numbers come from the first all the same.
        let token = hosts[count / 2 - 1].token();
        let said = hosts[count - 1].join(&token, 1);
        assert!(said.contains(&format!("in a comb of {count} hosts")), "{said}");
        if [2, 4, 8].contains(&count) {
            room.all_up(&(0..count).collect::<Vec<_>>());
        }
    }
    let cells = hosts[7].cells();
    let numbers: Vec<(u64, &str)> = cells.iter().map(|(&number, cell)| (number, &*cell.host)).collect();
    let names: Vec<&str> = hosts.iter().map(|host| &*host.name).collect();
    assert_eq!(numbers, (1..).zip(names).collect::<Vec<_>>());
    let shown = hosts[2].ok(&["ps"]);
    assert!(shown.contains("HOST") && shown.contains("theta"), "{shown}");
    assert_eq!(hosts[5].ok(&["host", "ls"]).lines().count(), 9);
}

/// A command concerns a cell wherever it is, and what comes of it is what it would be there.
#[test]
fn cells_of_other_hosts_are_killed_and_come_back() {
    let Some(room) = Room::joined("kill", 2, 2) else { return };
    let [alpha, beta] = [&room.hosts[0], &room.hosts[1]];
    let before = alpha.lives();
    let said = alpha.ok(&["cell", "kill", "4"]);
    assert!(said.starts_with("cell 4 (process ") && said.contains("1 of 1 peer noticed"), "{said}");
    room.wait_for("its next life", || (beta.lives()[&4] > before[&4]).then_some(()));
    room.all_up(&[0, 1]);
    alpha.ok(&["cell", "kill", "3", "--hold"]);
    room.wait_for("its end", || (alpha.cells()[&3].state != "up").then_some(()));
    assert!(alpha.fails(&["cell", "kill", "3"]).contains("host beta: cell 3 is not running"));
    alpha.ok(&["cell", "start", "3"]);
    room.all_up(&[0, 1]);
    assert!(alpha.fails(&["cell", "kill", "9"]).contains("there is no cell 9"));
    let after = alpha.lives();
    assert_eq!((after[&1], after[&2]), (before[&1], before[&2]), "nobody else was touched");
}

fn is_listening(host: &Host) -> bool {
    let sockets = host.namespace.run("cat", &["/proc/net/tcp"]).unwrap();
    // The dashboard is for this host alone, at 127.0.0.1.
    let mut listening = sockets.lines().skip(1).filter(|line| line.split_whitespace().nth(3) == Some("0A"));
    listening
        .any(|line| line.split_whitespace().nth(1).is_some_and(|address| !address.starts_with("0100007F:")))
}

#[test]
fn a_token_lets_in_once_and_for_a_while_and_to_the_right_host() {
    let Some(room) = Room::of("token", 3) else { return };
    let [alpha, beta, gamma] = [&room.hosts[0], &room.hosts[1], &room.hosts[2]];
    assert!(beta.fails(&["join"]).contains("a token is needed"));
    assert!(beta.fails(&["join", "--token", "comb-1:x"]).contains("that is no token"));
    alpha.ok(&["up", "-n", "1"]);
    assert!(!is_listening(alpha), "a comb on one host opens no port");
    let taken = alpha.namespace.within(|| TcpListener::bind("0.0.0.0:7170").unwrap());
    let said = alpha.fails(&["token"]);
    assert!(said.contains("0.0.0.0:7170") && said.contains("--listen"), "{said}");
    drop(taken);

    let token = alpha.token();
    assert!(is_listening(alpha) && token.contains(":10.78.0.1:7170:"), "{token}");
    let other_key = HostKey::generate().public().to_string();
    let parts: Vec<&str> = token.split(':').collect();
    let (key, secret) = (parts[3], parts[4]);
    let wrong_key = token.replace(key, other_key.strip_prefix("ed25519:").unwrap());
    let said = beta.fails(&["join", "--token", &wrong_key]);
    assert!(said.contains("is another host than was to be there"), "{said}");
    let said = beta.fails(&["join", "--token", &token.replace(secret, &"0f".repeat(16))]);
    assert!(said.contains("given no such token"), "{said}");
    let short = alpha.ok(&["token", "--ttl", "1s"]);
    std::thread::sleep(Duration::from_millis(1100));
    let said = beta.fails(&["join", "--token", short.trim()]);
    assert!(said.contains("expired"), "{said}");
    assert!(beta.run(&["ps"]).stdout.is_empty(), "who was not let in has no agent");
    let said = beta.fails(&["join", "--token", &token, "--as", "alpha"]);
    assert!(said.contains("there is a host alpha already"), "{said}");

    beta.join(&token, 1);
    let said = gamma.fails(&["join", "--token", &token]);
    assert!(said.contains("used already"), "{said}");
    let twice = alpha.ok(&["token", "--uses", "2"]);
    gamma.join(twice.trim(), 1);
    room.all_up(&[0, 1, 2]);
    assert!(gamma.fails(&["join", "--token", twice.trim()]).contains("in its comb already"));
    // The secret is nowhere but in the token.
    assert!(!alpha.log().contains(secret) && !beta.log().contains(secret));
}

#[test]
fn a_host_that_is_cut_off_costs_its_own_cells_and_comes_back() {
    let Some(room) = Room::joined("cut", 3, 2) else { return };
    let [alpha, beta, gamma] = [&room.hosts[0], &room.hosts[1], &room.hosts[2]];
    let before = alpha.lives();
    room.plug(2, "down");
    for host in [alpha, beta] {
        room.wait_for("gamma is lost", || (host.sees("gamma")?["condition"] == "lost").then_some(()));
    }
    // The others agree on what happens among them: a cell's end, and its next life.
    alpha.ok(&["cell", "kill", "3"]);
    room.wait_for("another life of cell 3", || (alpha.lives()[&3] > before[&3]).then_some(()));
    room.all_up(&[0, 1]);
    let shown = alpha.ok(&["ps"]);
    assert!(shown.contains("host gamma is lost"), "{shown}");

    room.plug(2, "up");
    room.all_up(&[0, 1, 2]);
    room.wait_for("other lives of gamma's cells", || {
        let lives = beta.lives();
        [5, 6].iter().all(|cell| lives[cell] > before[cell]).then_some(())
    });
    room.all_up(&[0, 1, 2]);
    let after = gamma.lives();
    assert_eq!([1, 2, 4].map(|cell| after[&cell]), [1, 2, 4].map(|cell| before[&cell]), "only its own");
}

#[test]
fn of_two_halves_the_one_with_the_lowest_cell_goes_on() {
    let Some(room) = Room::joined("halves", 4, 1) else { return };
    let before = room.hosts[0].lives();
    room.plug_trunk("down");
    room.wait_for("the others are lost", || {
        ["gamma", "delta"]
            .iter()
            .all(|host| room.hosts[0].sees(host).is_some_and(|seen| seen["condition"] == "lost"))
            .then_some(())
    });
    // Only a part that goes on lets a cell in.
    room.hosts[0].ok(&["cell", "kill", "2"]);
    room.wait_for("another life of cell 2", || {
        let cells = room.hosts[0].cells();
        (cells[&2].is_up() && cells[&2].incarnation > before[&2]).then_some(())
    });
    room.plug_trunk("up");
    room.all_up(&[0, 1, 2, 3]);
    room.wait_for("other lives of the lost", || {
        let lives = room.hosts[3].lives();
        [3, 4].iter().all(|cell| lives[cell] > before[cell]).then_some(())
    });
    room.all_up(&[0, 1, 2, 3]);
    assert_eq!(room.hosts[0].lives()[&1], before[&1]);
}

/// One cell on each of two hosts: neither is more than half, and no kernel knows of both.
#[test]
fn of_two_hosts_with_a_cell_each_the_lower_goes_on() {
    let Some(room) = Room::joined("two", 2, 1) else { return };
    let [alpha, beta] = [&room.hosts[0], &room.hosts[1]];
    let before = alpha.lives();
    room.plug(1, "down");
    room.wait_for("beta is lost", || (alpha.sees("beta")?["condition"] == "lost").then_some(()));
    // Beta's agent gives its cell up only when that has waited in vain for long.
    room.wait_for("beta's cell waits", || (beta.cells()[&2].state.contains("ended")).then_some(()));
    assert!(alpha.cells()[&1].is_up());
    room.plug(1, "up");
    room.all_up(&[0, 1]);
    let after = beta.lives();
    assert_eq!(after[&1], before[&1]);
    assert!(after[&2] > before[&2]);
}

#[test]
fn a_host_that_stands_still_for_a_second_loses_nothing() {
    let Some(room) = Room::joined("slow", 3, 1) else { return };
    let before = room.hosts[0].lives();
    room.hosts[1].signal_all("-STOP");
    std::thread::sleep(Duration::from_secs(1));
    room.hosts[1].signal_all("-CONT");
    // Something that all have to agree on, behind whatever they may have begun meanwhile.
    room.hosts[0].ok(&["cell", "kill", "3"]);
    room.wait_for("another life of cell 3", || (room.hosts[0].lives()[&3] > before[&3]).then_some(()));
    room.all_up(&[0, 1, 2]);
    let after = room.hosts[1].lives();
    assert_eq!((after[&1], after[&2]), (before[&1], before[&2]));
}

/// What a host is called, where others reach it and who may command stand in its configuration.
#[test]
fn what_a_configuration_says_of_hosts_needs_no_flags() {
    let Some(room) = Room::of("configured", 2) else { return };
    let by_its_file = |host: &Host, name: &str, arguments: &[&str]| {
        let file = host.state().join("comb.toml");
        let text = format!(
            "cells = 1\n[hosts]\nname = \"{name}\"\nlisten = \"{}:7999\"\nallow = [4242]\n",
            host.address
        );
        std::fs::create_dir_all(host.state()).unwrap();
        std::fs::write(&file, text).unwrap();
        let output =
            host.namespace.within(|| host.command(arguments).env("COMB_CONFIG", file).output().unwrap());
        assert!(output.status.success(), "comb {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let [alpha, beta] = [&room.hosts[0], &room.hosts[1]];
    by_its_file(alpha, "north", &["up"]);
    let token = by_its_file(alpha, "north", &["token"]);
    assert!(token.contains("10.78.0.1:7999"), "{token}");
    by_its_file(beta, "south", &["join", "--token", token.trim()]);
    let shown = by_its_file(alpha, "north", &["host", "ls"]);
    for expected in ["north", "10.78.0.1:7999", "south", "10.78.0.2:7999"] {
        assert!(shown.contains(expected), "{shown}");
    }
    let numbers: Vec<u64> = alpha.cells().into_keys().collect();
    assert_eq!(numbers, [1, 2], "a cell each, as both files say");
    // A user who is named there commands here, by the agent of another host.
    let elsewhere = |uid: u32| {
        let mut command = beta.command(&["cell", "kill", "1"]);
        command.uid(uid);
        beta.namespace.within(|| command.output().unwrap())
    };
    let (may, may_not) = (elsewhere(4242), elsewhere(4243));
    assert!(may.status.success(), "{may:?}");
    let said = String::from_utf8_lossy(&may_not.stderr);
    assert!(!may_not.status.success() && said.contains("lists who"), "{said}");
}

/// As from another continent.
#[test]
fn a_host_that_is_far_away_comes_in_and_loses_nothing() {
    let Some(mut room) = Room::of("far", 3) else { return };
    let one_way = Duration::from_millis(150);
    room.slow(2, one_way);
    let [alpha, beta, gamma] = [0, 1, 2].map(|host| &room.hosts[host]);
    let asked = Instant::now();
    let nobody_is_there = gamma.namespace.within(|| TcpStream::connect((&*alpha.address, 1))).is_err();
    assert!(nobody_is_there && asked.elapsed() >= 2 * one_way, "{:?}", asked.elapsed());
    alpha.ok(&["up", "-n", "1"]);
    beta.join(&alpha.token(), 1);
    gamma.join(&alpha.token(), 1);
    room.all_up(&[0, 1, 2]);
    // What all have to agree on, of a cell that is near, of one that is far, and asked for from there.
    for (by, cell) in [(alpha, 2), (alpha, 3), (gamma, 2)] {
        let before = alpha.lives();
        by.ok(&["cell", "kill", &cell.to_string()]);
        room.wait_for("its next life", || (gamma.lives()[&cell] > before[&cell]).then_some(()));
        room.all_up(&[0, 1, 2]);
        let after = beta.lives();
        let others = |lives: &BTreeMap<u64, u64>| -> Vec<u64> {
            lives.iter().filter(|&(&one, _)| one != cell).map(|(_, &life)| life).collect()
        };
        assert_eq!(others(&after), others(&before), "nobody else was touched");
    }
}

#[test]
fn a_host_that_was_restarted_is_known_and_comes_in_without_a_token() {
    let Some(room) = Room::joined("reboot", 3, 1) else { return };
    let before = room.hosts[0].lives();
    room.hosts[2].die();
    room.wait_for("gamma is gone", || (room.hosts[0].sees("gamma")?["condition"] != "up").then_some(()));
    assert!(room.hosts[2].fails(&["up"]).contains("`comb join` brings it back"));
    let said = room.hosts[2].ok(&["join"]);
    assert!(said.contains("is back in its comb"), "{said}");
    room.all_up(&[0, 1, 2]);
    let after = room.hosts[0].lives();
    assert!(after[&3] > before[&3], "not a life that it had before, though its runtime directory is gone");
    assert_eq!((after[&1], after[&2]), (before[&1], before[&2]));
}

/// Nobody is left who could let anybody in: the host with the lowest cells begins anew, when all are there.
#[test]
fn a_comb_that_was_down_as_a_whole_comes_back() {
    let Some(room) = Room::joined("down", 3, 1) else { return };
    let before = room.hosts[0].lives();
    room.hosts.iter().for_each(Host::die);
    // Each waits for the others, and says so when it is asked.
    std::thread::scope(|scope| {
        for host in room.hosts.iter().rev() {
            scope.spawn(|| host.run(&["join"]));
        }
    });
    room.all_up(&[0, 1, 2]);
    let after = room.hosts[1].lives();
    assert!(after.iter().all(|(cell, life)| *life > before[cell]), "{after:?}");
}

/// The cells of a host go on without their agent, with those of other hosts as well, and the next one finds everybody again.
#[test]
fn an_agent_that_dies_is_followed_by_another_that_knows_the_others() {
    let Some(room) = Room::joined("agent", 2, 2) else { return };
    let [alpha, beta] = [&room.hosts[0], &room.hosts[1]];
    let before = alpha.lives();
    let agent = beta.status()["agent"]["pid"].as_u64().unwrap().to_string();
    beta.namespace.run("kill", &["-KILL", &agent]).unwrap();
    room.wait_for("beta's agent is missed", || (alpha.sees("beta")?["condition"] != "up").then_some(()));
    let mut next = beta.namespace.within(|| beta.command(&["host"]).spawn().unwrap());
    room.all_up(&[0, 1]);
    assert_eq!(beta.lives(), before, "no cell has noticed more than that");
    alpha.ok(&["cell", "kill", "4"]);
    room.wait_for("another life of cell 4", || (alpha.lives()[&4] > before[&4]).then_some(()));
    room.all_up(&[0, 1]);
    beta.ok(&["down"]);
    next.wait().unwrap();
}

#[test]
fn who_leaves_is_forgotten_and_who_is_put_out_stays_out() {
    let Some(room) = Room::joined("leave", 4, 1) else { return };
    let [alpha, beta, gamma, delta] = [0, 1, 2, 3].map(|host| &room.hosts[host]);
    let before = alpha.lives();
    beta.ok(&["leave"]);
    room.wait_for("beta is forgotten", || {
        [alpha, gamma, delta].iter().all(|host| host.sees("beta").is_none()).then_some(())
    });
    room.all_up(&[0, 2, 3]);
    // Its number is free again, and it may come back as any other.
    beta.join(&gamma.token(), 1);
    room.all_up(&[0, 1, 2, 3]);
    assert_eq!(alpha.cells()[&2].host, "beta");

    assert!(alpha.fails(&["host", "rm", "alpha"]).contains("`comb leave`"));
    assert!(alpha.fails(&["host", "rm", "omega"]).contains("there is no host omega"));
    alpha.ok(&["host", "rm", "delta"]);
    room.wait_for("delta is out", || {
        [alpha, beta, gamma].iter().all(|host| host.sees("delta").is_none()).then_some(())
    });
    // Though its own agent goes on, it is let in nowhere, and its cell is nobody's.
    room.wait_for("delta knows", || {
        let seen = delta.sees("beta")?;
        (seen["condition"] != "up" && seen["trouble"].as_str()?.contains("was put out")).then_some(())
    });
    alpha.ok(&["cell", "kill", "2"]);
    room.all_up(&[0, 1, 2]);
    let after = gamma.lives();
    assert_eq!((after[&1], after[&3], after.contains_key(&4)), (before[&1], before[&3], false));
}

#[test]
fn a_key_is_changed_under_load_and_the_old_one_is_of_no_use() {
    let Some(room) = Room::joined("key", 3, 1) else { return };
    let [alpha, beta, gamma] = [&room.hosts[0], &room.hosts[1], &room.hosts[2]];
    let before = alpha.lives();
    let old = HostKey::load(&beta.state().join("comb/host.key")).unwrap();
    let fingerprint =
        |host: &Host| host.sees("beta").map(|seen| seen["fingerprint"].as_str().unwrap().to_owned());
    assert_eq!(fingerprint(alpha), Some(old.public().to_string()));
    // While cells are killed and come back, and heartbeats go round.
    alpha.ok(&["cell", "kill", "3"]);
    let said = beta.ok(&["host", "rotate-key"]);
    assert!(said.contains("known to 2 other hosts"), "{said}");
    room.wait_for("the new key is known", || {
        let keys = [alpha, gamma].map(fingerprint);
        keys.iter().all(|key| key.as_ref().is_some_and(|key| said.contains(&**key))).then_some(())
    });
    room.all_up(&[0, 1, 2]);
    let after = gamma.lives();
    assert_eq!((after[&1], after[&2]), (before[&1], before[&2]), "no channel has ended");

    let key = HostKey::load(&alpha.state().join("comb/host.key")).unwrap().public();
    let answer: Result<_, String> = beta.namespace.within(|| {
        let mut line = connect(alpha, key, &old)?;
        line.send(&words::opening(&Greeting::Line)).map_err(|error| error.to_string())?;
        let answer = line.receive(Some(Duration::from_secs(10))).map_err(|error| error.to_string())?;
        Ok(words::read_opening::<Reception>(answer.unwrap_or_default()))
    });
    let is_refused = match &answer {
        Err(why) => why.contains("refused"),
        Ok(Ok(Reception::Refused(why))) => why.contains("does not know"),
        Ok(_) => false,
    };
    assert!(is_refused, "the old key opens nothing: {answer:?}");
    gamma.die();
    room.wait_for("gamma is gone", || (beta.sees("gamma")?["condition"] != "up").then_some(()));
    assert!(beta.fails(&["host", "rotate-key"]).contains("gamma cannot be told now"));
    gamma.ok(&["join"]);
    // By its new key it is known to who was away in between, and after its own restart.
    beta.die();
    beta.ok(&["join"]);
    room.all_up(&[0, 1, 2]);
}

/// A session with a host's agent, from wherever this is called, in the name of whose key it is.
fn connect(to: &Host, to_key: PublicKey, key: &HostKey) -> Result<SecureStream, String> {
    let address: SocketAddr = format!("{}:7170", to.address).parse().unwrap();
    let socket = TcpStream::connect(address).map_err(|error| error.to_string())?;
    let known = KnownHosts::of(Path::new("(test)"), [("it", to_key)]);
    SecureStream::connect(socket, key, &known, "it", Terms::default()).map_err(|error| error.to_string())
}

fn cell(number: u32) -> CellWord {
    CellWord {
        cell: number,
        incarnation: 99,
        state: CellState::Ended("killed, says the liar".into()),
        is_member: true,
        pid: 1,
        channels: 0,
        uptime_ms: 0,
        cpu_ms: 0,
        memory_bytes: 0,
        round_trips: 0,
    }
}

/// Gamma's key is in other hands.
#[test]
fn a_host_that_lies_is_cut_off_and_harms_nobody() {
    let Some(room) = Room::joined("liar", 3, 1) else { return };
    let [alpha, beta, gamma] = [&room.hosts[0], &room.hosts[1], &room.hosts[2]];
    let stolen = HostKey::load(&gamma.state().join("comb/host.key")).unwrap();
    let keys = [alpha, beta].map(|host| HostKey::load(&host.state().join("comb/host.key")).unwrap().public());
    gamma.die();
    let before = alpha.lives();
    let hello = |target: usize, opening: &[u8]| -> Option<(SecureStream, Reception)> {
        let host = &room.hosts[target];
        gamma.namespace.within(|| {
            let mut line = connect(host, keys[target], &stolen).ok()?;
            line.send(opening).ok()?;
            let answer = line.receive(Some(Duration::from_secs(10))).ok()??.to_vec();
            words::read_opening(&answer).ok().map(|answer| (line, answer))
        })
    };
    // Another version is told so.
    let said = room.wait_for("an answer", || hello(0, &words::opening_of(PROTOCOL + 2, &Greeting::Line)));
    let expected =
        format!("host gamma runs protocol {}, this one {PROTOCOL}: upgrade this one", PROTOCOL + 2);
    assert_eq!(said.1, Reception::Refused(expected));

    let lies: [(Vec<u8>, &str); 6] = [
        (Word::Cells { counter: 1, cells: vec![cell(1)] }.bytes(), "it speaks of cell 1, which is alpha's"),
        (
            Word::Cells { counter: 1, cells: vec![cell(64)] }.bytes(),
            "it speaks of cell 64, which is nobody's",
        ),
        (b"\xff\xff\xff garbage".to_vec(), "a word that means nothing"),
        (vec![0; LONGEST_WORD + 1], "a word of"),
        (Word::Answer { number: 1, answer: Ok(Answered::Done) }.bytes(), "it answers what it was not asked"),
        (Word::Switched.bytes(), "it changes to a key that it has not told of"),
    ];
    for (number, (lie, why)) in lies.iter().enumerate() {
        let target = number % 2;
        room.wait_for(why, || {
            // Who has just lied is not heard for a while.
            let (mut line, _) = hello(target, &words::opening(&Greeting::Line))?;
            line.send(lie).ok()?;
            while let Ok(Some(_)) = line.receive(Some(Duration::from_secs(10))) {}
            room.hosts[target].log().contains(&format!("cut off host gamma: {why}")).then_some(())
        });
    }
    // What it may say of itself is taken, and nobody's cells have changed.
    room.all_up(&[0, 1]);
    let after = beta.lives();
    assert_eq!((after[&1], after[&2]), (before[&1], before[&2]));
    assert_eq!(alpha.cells()[&1].state, "up");
    let back = gamma.ok(&["join"]);
    assert!(back.contains("is back"), "{back}");
    room.all_up(&[0, 1, 2]);
}

/// Another user finds the agent by its directory's path, and is refused, or not, by name.
#[test]
fn who_is_listed_may_command_and_nobody_else() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let Some(room) = Room::of("access", 1) else { return };
    let host = &room.hosts[0];
    // One that this user can reach, wherever the build is.
    let program = room.scratch.join("comb");
    program::copy(&program);
    for open in [&room.scratch, &host.runtime().parent().unwrap().to_owned()] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let as_nobody = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command
            .args(arguments)
            .env("COMB_RUNTIME_DIR", host.runtime())
            .env("COMB_CONFIG", "/dev/null")
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/");
        host.namespace.within(|| command.output().unwrap())
    };
    host.ok(&["up", "-n", "1"]);
    assert!(!as_nobody(&["ps"]).status.success(), "the directory is closed");
    host.ok(&["down"]);
    host.ok(&["up", "-n", "1", "--allow", "65534"]);
    let said = as_nobody(&["ps"]);
    assert!(said.status.success(), "{said:?}");
    assert!(!as_nobody(&["log"]).status.success(), "what it has to say is for its user");
    let said = as_nobody(&["cell", "kill", "1"]);
    assert!(said.status.success(), "{said:?}");
    host.ok(&["down"]);
    host.ok(&["up", "-n", "1", "--allow", "65533"]);
    let said = as_nobody(&["ps"]);
    let why = String::from_utf8_lossy(&said.stderr);
    assert!(why.contains("belong to user 0, not to you"), "{why}");
}

/// A task of many hosts needs no ssh where these are one comb: their agents start its parts, in cells.
#[test]
fn a_task_runs_on_the_hosts_of_a_comb() {
    let Some(room) = Room::joined("task", 3, 1) else { return };
    let [alpha, beta, gamma] = [&room.hosts[0], &room.hosts[1], &room.hosts[2]];
    let where_it_is = ["--label", "--", "sh", "-c", "ip -o -4 address show dev eth; cat /proc/self/cgroup"];
    let said =
        alpha.ok(&[&["run", "--limit", "120", "--hosts", "alpha,beta,gamma", "-n", "3"][..], &where_it_is]
            .concat());
    for (rank, host) in [alpha, beta, gamma].into_iter().enumerate() {
        let is_there = |line: &&str| line.starts_with(&format!("[{rank}]")) && line.contains(&*host.address);
        assert!(said.lines().any(|line| is_there(&line)), "{rank}: {said}");
    }
    if beta.status()["agent"]["cgroup"].is_string() {
        assert!(said.lines().any(|line| line.starts_with("[1]") && line.contains("/cell-2")), "{said}");
    }
    let status = |code: &str| {
        let output =
            beta.run(&["run", "--limit", "120", "--hosts", "alpha,gamma", "-n", "2", "--", "sh", "-c", code]);
        output.status.code()
    };
    assert_eq!(status("cat; exit 0"), Some(0));
    assert_eq!(status("exit 7"), Some(7));
    // What an agent starts for another host is that alone, and for its own user.
    assert!(beta.fails(&["host", "shell", "alpha", "--", "sh"]).contains("nothing else"));
    assert!(
        beta.fails(&["host", "shell", "omega", "--", "comb", "run-part"]).contains("there is no host omega")
    );
    // The part ends with its launcher, and with its cell.
    let task = ["run", "--hosts", "beta", "-n", "1", "--", "sleep", "1000"];
    let runs = |host: &Host| {
        let programs = host.processes().into_iter().map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")));
        programs.flatten().any(|words| words.starts_with(b"sleep"))
    };
    let mut launcher = alpha.namespace.within(|| alpha.command(&task).spawn().unwrap());
    room.wait_for("the program runs", || runs(beta).then_some(()));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    room.wait_for("nothing is left", || (!runs(beta)).then_some(()));
    let mut launcher = alpha.namespace.within(|| alpha.command(&task).spawn().unwrap());
    room.wait_for("the program runs", || runs(beta).then_some(()));
    alpha.ok(&["cell", "kill", "2"]);
    assert!(!launcher.wait().unwrap().success());
    room.wait_for("nothing is left", || (!runs(beta)).then_some(()));
}
