//! Agents and collectors over real streams, in real directories, and killed for real. What is recorded comes from a source whose events are
//! numbered through all recordings of a machine: each must be in its files once, in order, however often what was torn down.

#[path = "collect/hostile.rs"]
mod hostile;
#[path = "collect/known.rs"]
mod known;
#[path = "collect/scripted.rs"]
mod scripted;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use comb_trace::collect::{AgentEvent, AgentLimits, Collector, Farewell, Limits, Stream, run_agent};
use comb_trace::privacy::Privacy;
use comb_trace::trace_file::SuspensionCause;

use known::{Folder, Read, begin, read_all};

/// Nothing here takes so long, unless it never comes.
const FOREVER: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < FOREVER, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An agent in a thread. Its source goes on with the number that `made` has.
struct Running {
    made: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    suspensions: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<Farewell>,
}

impl Running {
    fn start<S: Stream>(
        connect: impl FnMut() -> std::io::Result<S> + Send + 'static,
        events_a_look: usize,
        limits: AgentLimits,
    ) -> Self {
        let [made, suspensions] = std::array::from_fn(|_| Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (its_made, its_stop, its_suspensions) =
            (Arc::clone(&made), Arc::clone(&stop), Arc::clone(&suspensions));
        let thread = std::thread::spawn(move || {
            let told = |event| {
                if let AgentEvent::Suspended(_) = event {
                    its_suspensions.fetch_add(1, Ordering::Relaxed);
                }
            };
            let begin = || Ok(begin(&its_made, events_a_look));
            run_agent(connect, begin, &Privacy::none(), limits, &its_stop, told).unwrap()
        });
        Self { made, stop, suspensions, thread }
    }

    fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    fn makes(&self, more: u64) {
        let before = self.made();
        wait_until("events", || self.made() >= before + more);
    }

    fn suspensions(&self) -> u64 {
        self.suspensions.load(Ordering::Relaxed)
    }

    /// Ends it, and returns how many events it made.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let farewell = self.thread.join().unwrap();
        assert_eq!(farewell.undelivered, 0);
        self.made.load(Ordering::Relaxed)
    }
}

/// All of what one machine recorded, from 0 on.
fn assert_whole(read: &[Read], events: u64) {
    let all: Vec<u64> = read.iter().flat_map(|read| read.numbers.iter().copied()).collect();
    let expected: Vec<u64> = (0..events).collect();
    let first_wrong = all.iter().zip(&expected).position(|(is, should)| is != should);
    assert_eq!((all.len(), first_wrong), (expected.len(), None));
}

fn patient() -> AgentLimits {
    AgentLimits { patience: FOREVER, farewell: FOREVER, ..AgentLimits::default() }
}

#[test]
fn several_agents_send_to_one_collector() {
    let folder = Folder::new();
    let collector = Arc::new(Collector::new(folder.path(), Limits::default()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Arc::clone(&collector);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let collector = Arc::clone(&serving);
            std::thread::spawn(move || collector.serve(stream.unwrap(), "one of them", |_| {}).unwrap());
        }
    });
    assert!(Collector::new(folder.path(), Limits::default()).is_err(), "two in one directory");
    let agents: Vec<_> = (0..3)
        .map(|number| Running::start(move || TcpStream::connect(address), 100 + number, patient()))
        .collect();
    agents.iter().for_each(|agent| agent.makes(5_000));
    let mut made: Vec<u64> = agents.into_iter().map(Running::end).collect();
    let mut found: Vec<u64> = Vec::new();
    for read in read_all(folder.path()) {
        assert!(read.fault.is_none(), "{:?}", read.fault);
        let count = read.numbers.len() as u64;
        assert_whole(&[read], count);
        found.push(count);
    }
    made.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, made);
}

/// This test's program again, as one of the two processes.
fn process(test: &str, folder: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args([test, "--exact", "--ignored"]).env("COMB_COLLECT_TEST", folder);
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

#[test]
#[ignore = "is a process of other tests"]
fn process_of_a_collector() {
    let Some(folder) = std::env::var_os("COMB_COLLECT_TEST").map(PathBuf::from) else { return };
    let collector = Collector::new(&folder, Limits::default()).unwrap();
    let _ = fs::remove_file(socket(&folder));
    let listener = UnixListener::bind(socket(&folder)).unwrap();
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            scope.spawn(|| collector.serve(stream.unwrap(), "the agent", |_| {}));
        }
    });
}

#[test]
#[ignore = "is a process of other tests"]
fn process_of_an_agent() {
    let Some(folder) = std::env::var_os("COMB_COLLECT_TEST").map(PathBuf::from) else { return };
    let made = Arc::new(AtomicU64::new(0));
    let connect = || UnixStream::connect(socket(&folder));
    let begin = || Ok(begin(&made, 100));
    run_agent(connect, begin, &Privacy::none(), patient(), &AtomicBool::new(false), |_| {}).unwrap();
}

#[test]
fn a_collector_that_is_killed_and_started_again_goes_on_with_the_same_file() {
    let folder = Folder::new();
    let path = folder.path().to_path_buf();
    // It is there before its collector, and waits.
    let agent = Running::start(move || UnixStream::connect(socket(&path)), 50, patient());
    for _ in 0..4 {
        let mut collector = process("process_of_a_collector", folder.path());
        let before = bytes_of(folder.path());
        wait_until("the file grows", || bytes_of(folder.path()) > before + 1000);
        collector.kill().unwrap();
        collector.wait().unwrap();
    }
    let mut collector = process("process_of_a_collector", folder.path());
    let made = agent.end();
    collector.kill().unwrap();
    collector.wait().unwrap();
    let read = read_all(folder.path());
    assert_eq!(read.len(), 1);
    assert!(read[0].fault.is_none() && read[0].head.suspension.is_none(), "{:?}", read[0].fault);
    assert_whole(&read, made);
}

#[test]
fn an_agent_that_is_killed_leaves_a_file_that_is_good_up_to_the_cut() {
    let folder = Folder::new();
    let mut collector = process("process_of_a_collector", folder.path());
    let mut agent = process("process_of_an_agent", folder.path());
    wait_until("the file grows", || bytes_of(folder.path()) > 2000);
    agent.kill().unwrap();
    agent.wait().unwrap();
    collector.kill().unwrap();
    collector.wait().unwrap();
    let read = read_all(folder.path());
    assert_eq!(read.len(), 1);
    assert!(read[0].fault.as_ref().unwrap().leaves_good_part());
    assert_whole(&read, read[0].numbers.len() as u64);
    assert!(!read[0].numbers.is_empty());
}

fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let traces = entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "trace"));
    traces.map(|entry| entry.metadata().unwrap().len()).sum()
}

#[test]
fn a_loss_that_lasts_suspends_and_the_next_recording_says_so() {
    let folder = Folder::new();
    let path = folder.path().to_path_buf();
    let limits = AgentLimits { patience: Duration::from_millis(10), ..patient() };
    let agent = Running::start(move || UnixStream::connect(socket(&path)), 50, limits);
    let mut collector = process("process_of_a_collector", folder.path());
    wait_until("the file grows", || bytes_of(folder.path()) > 2000);
    collector.kill().unwrap();
    collector.wait().unwrap();
    wait_until("a suspension", || agent.suspensions() > 0);
    // From here on nobody looks.
    let made = agent.made();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(agent.made(), made);
    let mut collector = process("process_of_a_collector", folder.path());
    agent.makes(100);
    let made = agent.end();
    collector.kill().unwrap();
    collector.wait().unwrap();
    let read = read_all(folder.path());
    assert_eq!(read.len(), 2);
    assert!(read.iter().all(|read| read.fault.is_none()));
    assert_whole(&read, made);
    let suspension = read[1].head.suspension.unwrap();
    assert_eq!((suspension.cause, suspension.undelivered), (SuspensionCause::Unreachable, 0));
    assert!(read[1].path.to_string_lossy().len() > 16);
    assert!(read[0].path.to_string_lossy().contains(&format!("{:016x}", suspension.after)));
    assert!(suspension.from.wall_ns < read[1].head.began.wall_ns);
    assert!(read[1].head.lacks.last().unwrap().contains("suspended: the collector could not be reached"));
}

/// A file system of two megabytes, where that is permitted.
struct SmallDisk(Folder);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = Folder::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(folder.path()).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_suspends_until_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("not tried: no file system may be mounted here");
        return;
    };
    let folder = disk.0.path();
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; 1_900_000]).unwrap();
    let path = folder.to_path_buf();
    let agent = Running::start(move || UnixStream::connect(socket(&path)), 2000, patient());
    let mut collector = process("process_of_a_collector", folder);
    wait_until("a suspension", || agent.suspensions() > 0);
    fs::remove_file(&ballast).unwrap();
    agent.makes(100);
    let made = agent.end();
    collector.kill().unwrap();
    collector.wait().unwrap();
    let read = read_all(folder);
    assert!(read.len() >= 2, "{}", read.len());
    assert!(read.iter().all(|read| read.fault.is_none()), "each ended in order");
    assert_whole(&read, made);
    assert_eq!(read[1].head.suspension.unwrap().cause, SuspensionCause::Full);
}
