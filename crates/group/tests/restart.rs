//! Groups whose members all die, and come back with their logs.
#![cfg(feature = "redb")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use comb_group::{
    Beginning, Config, Event, Group, GroupOptions, Level, Log, LogError, LogRedb, Names, NodeId, QuorumFile,
};
use comb_net::agent::{Limits, SameUser, Server};
use comb_net::{Agent, EndpointOptions};

mod processes;

use processes::{Process, until};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comb-restart-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> GroupOptions {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let mut config = Config::default();
    // So that it is replaced many times.
    config.log.most_bytes = 20_000;
    GroupOptions { names, config, endpoint: EndpointOptions::default() }
}

/// On a disk so slow that much is under way to it whenever the process is killed.
struct SlowLog(LogRedb);

impl Log for SlowLog {
    fn read(&mut self) -> Result<Vec<Vec<u8>>, LogError> {
        self.0.read()
    }

    fn append(&mut self, record: &[u8]) -> Result<(), LogError> {
        self.0.append(record)
    }

    fn replace(&mut self, records: &[Vec<u8>]) -> Result<(), LogError> {
        self.0.replace(records)
    }

    fn sync(&mut self) -> Result<(), LogError> {
        std::thread::sleep(Duration::from_millis(10));
        self.0.sync()
    }
}

/// A member of `count` in the folder; with a load, it submits all the time. It says on its output what it was promised, what
/// it applies, and who is in its view.
fn run_member(folder: &Path, own: u32, count: u32, has_load: bool, has_quorum: bool) {
    let agent =
        Agent::connect(&folder.join("agent"), &options().names.process(NodeId(own))).expect("an agent");
    let log = SlowLog(LogRedb::open(&folder.join(format!("log-{own}"))).expect("a log"));
    let members: Vec<_> = (0..count).map(NodeId).collect();
    let mut group = Group::resuming(&agent, NodeId(own), Beginning::Configured(&members), log, options())
        .expect("a member");
    if has_quorum {
        group = group.with_quorum(QuorumFile::new(&folder.join("quorum")));
    }
    let life = std::process::id();
    let (mut state, mut number, mut out) = (String::new(), 0_u64, std::io::stdout());
    let mut bodies = std::collections::BTreeMap::new();
    loop {
        group.poll();
        while let Some(event) = group.next_event() {
            let line = match event {
                Event::Delivered(delivery) => {
                    let body = String::from_utf8_lossy(&delivery.body).into_owned();
                    state = format!("{state} {body}");
                    format!("has {body}")
                }
                Event::Restore { state: restored, .. } => {
                    state = String::from_utf8_lossy(&restored).into_owned();
                    format!("starts from {state}")
                }
                Event::WantsState => {
                    group.give_state(state.as_bytes());
                    continue;
                }
                Event::Reached { number, .. } => match bodies.remove(&number) {
                    Some(body) => format!("promised {body}"),
                    None => continue,
                },
                Event::Settled(view) => {
                    let nodes: Vec<_> = view.nodes().map(|node| node.0.to_string()).collect();
                    format!("view {}", nodes.join(","))
                }
                Event::Stuck(reason) => format!("stuck {reason:?}"),
                _ => continue,
            };
            if writeln!(out, "\n:{line}").is_err() {
                return;
            }
        }
        let body = format!("{own}-{life}-{number}");
        if has_load && let Ok(submitted) = group.submit(Level::Majority, body.as_bytes()) {
            bodies.insert(submitted, body);
            number += 1;
        }
        group.wait(Duration::from_millis(1));
    }
}

/// No test, but what the processes of the other tests run.
#[test]
fn member_process() {
    let Some(told) = processes::told() else { return };
    let words: Vec<_> = told.split(' ').collect();
    let [folder, own, count, has_load, has_quorum] = words[..] else { panic!("told {told}") };
    let number = |word: &str| word.parse().expect("a number");
    run_member(Path::new(folder), number(own), number(count), has_load == "true", has_quorum == "true");
}

fn start(folder: &Folder, own: u32, count: u32, has_load: bool, has_quorum: bool) -> Process {
    Process::start(&format!("{} {own} {count} {has_load} {has_quorum}", folder.0.display()))
}

/// All members are killed at once in the middle of load, again and again. Whatever any of them was promised, all have in the end,
/// once and in one order.
#[test]
fn a_group_that_is_killed_whole_again_and_again_keeps_what_it_promised() {
    const MEMBERS: u32 = 4;
    let folder = Folder::new();
    let _server =
        Server::bind(&folder.file("agent"), Box::new(SameUser), Limits::default()).expect("an agent");
    let mut promised = BTreeSet::new();
    for round in 1..=4_usize {
        let mut processes: Vec<_> =
            (0..MEMBERS).map(|own| start(&folder, own, MEMBERS, true, false)).collect();
        until(&processes, |_, line| {
            promised.extend(line.strip_prefix("promised ").map(str::to_owned));
            promised.len() > 1000 * round
        });
        processes.iter_mut().for_each(Process::kill);
        // What they said before they were killed counts.
        for process in &processes {
            let lines = process.lines.iter();
            promised.extend(lines.filter_map(|line| line.strip_prefix("promised ").map(str::to_owned)));
        }
    }
    let processes: Vec<_> = (0..MEMBERS).map(|own| start(&folder, own, MEMBERS, false, false)).collect();
    let mut has = vec![Vec::<String>::new(); MEMBERS as usize];
    let mut lacking = vec![promised.clone(); MEMBERS as usize];
    until(&processes, |own, line| {
        let state = line.strip_prefix("starts from ");
        if state.is_some() {
            // Who came late enough to be left out has joined, and starts once more.
            has[own].clear();
            lacking[own].clone_from(&promised);
        }
        for update in state.or(line.strip_prefix("has ")).into_iter().flat_map(str::split_whitespace) {
            lacking[own].remove(update);
            has[own].push(update.to_owned());
        }
        lacking.iter().all(BTreeSet::is_empty)
    });
    let shortest = has.iter().map(Vec::len).min().expect("members");
    for (own, updates) in has.iter().enumerate() {
        assert_eq!(updates[..shortest], has[0][..shortest], "member {own}");
        assert_eq!(
            updates.iter().collect::<BTreeSet<_>>().len(),
            updates.len(),
            "member {own} has one twice"
        );
    }
}

/// Two of three go on; the third comes back with its log, and has what it missed. A group of which too few come back says so.
#[test]
fn who_comes_back_alone_joins_and_too_few_wait() {
    let folder = Folder::new();
    let _server =
        Server::bind(&folder.file("agent"), Box::new(SameUser), Limits::default()).expect("an agent");
    let start = |own| start(&folder, own, 3, false, false);
    let mut processes: Vec<_> = (0..3).map(start).collect();
    until(&processes, |own, line| own == 0 && line == "view 0,1,2");
    processes[2].kill();
    until(&processes, |own, line| own == 0 && line == "view 0,1");
    processes[2] = start(2);
    until(&processes, |own, line| own == 2 && line == "view 0,1,2");
    processes.iter_mut().for_each(Process::kill);
    processes[0] = start(0);
    until(&processes, |own, line| own == 0 && line.starts_with("stuck NoQuorum"));
    processes[1] = start(1);
    until(&processes, |own, line| own == 0 && line.starts_with("view ") && line.contains("0,1"));
}

/// One of two is killed: the other asks the file, and goes on. Killed as well, it goes on again; and the first, which
/// was left out, comes in when the other is there, and not before.
#[test]
fn the_other_one_of_two_goes_on_by_the_quorum_file() {
    let folder = Folder::new();
    let _server =
        Server::bind(&folder.file("agent"), Box::new(SameUser), Limits::default()).expect("an agent");
    let start = |own| start(&folder, own, 2, false, true);
    let mut processes: Vec<_> = (0..2).map(start).collect();
    until(&processes, |own, line| own == 1 && line == "view 0,1");
    processes[0].kill();
    until(&processes, |own, line| own == 1 && line == "view 1");
    processes[1].kill();
    processes[0] = start(0);
    until(&processes, |own, line| own == 0 && line == "stuck ResourceTaken");
    processes[1] = start(1);
    until(&processes, |own, line| own == 1 && line == "view 0,1");
}

fn log_with(path: &Path, records: &[&[u8]]) -> LogRedb {
    let mut log = LogRedb::open(path).expect("a log");
    log.read().expect("whole");
    for record in records {
        log.append(record).expect("room");
        log.sync().expect("a disk");
    }
    log
}

#[test]
fn a_log_is_read_as_it_was_written_and_replaced_as_a_whole() {
    let folder = Folder::new();
    let path = folder.file("log");
    let mut log = log_with(&path, &[b"one", b"", b"three"]);
    log.append(b"never synchronised").expect("room");
    drop(log);
    let mut log = LogRedb::open(&path).expect("a log");
    assert_eq!(log.read().expect("whole"), [&b"one"[..], b"", b"three"]);
    log.append(b"replaced before it is synchronised").expect("room");
    log.replace(&[b"snapshot".to_vec(), b"rest".to_vec()]).expect("room");
    log.append(b"behind").expect("room");
    log.sync().expect("a disk");
    log.append(b"later").expect("room");
    log.sync().expect("a disk");
    drop(log);
    let mut log = LogRedb::open(&path).expect("a log");
    assert_eq!(log.read().expect("whole"), [&b"snapshot"[..], b"rest", b"behind", b"later"]);
    log.replace(&[]).expect("room");
    log.sync().expect("a disk");
    drop(log);
    let mut log = LogRedb::open(&path).expect("a log");
    assert_eq!(log.read().expect("whole"), [] as [Vec<u8>; 0]);
}

#[test]
fn what_another_life_writes_comes_behind_what_was_there() {
    let folder = Folder::new();
    let path = folder.file("log");
    drop(log_with(&path, &[b"one", b"two"]));
    drop(log_with(&path, &[b"three"]));
    let mut log = LogRedb::open(&path).expect("a log");
    assert_eq!(log.read().expect("whole"), [&b"one"[..], b"two", b"three"]);
}

/// What redb finds nothing wrong with, because it was written by its rules.
#[test]
fn a_record_that_another_program_has_changed_or_removed_is_found_missing() {
    type Records<'a> = redb::Table<'a, u64, &'static [u8]>;
    const RECORDS: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("comb log 1");
    let folder = Folder::new();
    let change = |name: &str, change: &dyn Fn(&mut Records<'_>)| {
        let path = folder.file(name);
        drop(log_with(&path, &[b"one", b"two", b"three"]));
        let database = redb::Database::open(&path).expect("a database");
        let transaction = database.begin_write().expect("a transaction");
        change(&mut transaction.open_table(RECORDS).expect("its table"));
        transaction.commit().expect("a disk");
        drop(database);
        LogRedb::open(&path).and_then(|mut log| log.read()).expect_err("it is spoiled").to_string()
    };
    let changed = change("changed", &|table| drop(table.insert(1, &b"12345678owt"[..]).expect("room")));
    assert!(changed.contains("record 1 is not what was written"), "{changed}");
    let removed = change("removed", &|table| drop(table.remove(1).expect("it is there")));
    assert!(removed.contains("a record is missing before 2"), "{removed}");
}

/// One bit turned over anywhere in the file: the log is as it was, or it is refused; it never reads as another. Where redb's own
/// tables are spoiled it panics now and then instead of saying so, which no other code can help.
#[test]
fn a_spoiled_log_is_refused_with_its_reason_or_whole() {
    let folder = Folder::new();
    let path = folder.file("log");
    let record = [7; 3000];
    drop(log_with(&path, &[&record[..]; 30]));
    let good = std::fs::read(&path).expect("a file");
    let (mut refused, mut whole) = (0, 0);
    for turn in 0..150 {
        let mut bytes = good.clone();
        let at = good.len() * turn / 150 + turn % 7;
        bytes[at] ^= 1 << (turn % 8);
        std::fs::write(&path, &bytes).expect("a disk");
        let read = std::panic::catch_unwind(|| LogRedb::open(&path).and_then(|mut log| log.read()));
        match read.unwrap_or_else(|_| {
            Err(LogError::Spoiled { path: path.clone(), what: "redb panicked".to_owned() })
        }) {
            Ok(records) => {
                assert!(records.len() == 30 && records.iter().all(|read| *read == record), "byte {at}");
                whole += 1;
            }
            Err(LogError::Spoiled { .. } | LogError::Storage { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    // What was not seen was not tested.
    assert!(refused > 5 && whole > 5, "{refused} refused, {whole} whole");
}

#[test]
fn a_log_of_something_else_is_refused() {
    let folder = Folder::new();
    let path = folder.file("log");
    std::fs::write(&path, b"my shopping list").expect("a disk");
    let error = LogRedb::open(&path).expect_err("no log");
    assert!(error.to_string().contains(path.to_str().expect("a plain path")), "{error}");
}
