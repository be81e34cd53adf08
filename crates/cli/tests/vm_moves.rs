//! Machines move between hosts while they run, and whatever fails on the way, each goes on at exactly one place; and a machine can be a host itself.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use comb_vm::control::Machines;
use comb_vm::engine::Engine;
use comb_vm::hardware::{Accelerator, Hardware};
use comb_vm::image::Images;
use comb_vm::monitor::{Beginning, Order, Seat, Told, User, run};
use comb_vm::moving::arriving::{self, Arrival, Places};
use comb_vm::moving::record::Records;
use comb_vm::moving::{MoveError, Passage, Rest, Show, Talk, Way};
use comb_vm::snapshot::Snapshots;
use comb_vm::subnets::Subnets;
use serde_json::Value;

#[path = "../../net/tests/transports/namespaces.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod namespaces;
#[expect(dead_code, reason = "other tests need more of it")]
mod room;

#[path = "vm/guest_kernel.rs"]
mod guest_kernel;
#[path = "vm/joining.rs"]
mod joining;

use guest_kernel::{guest_kernel, place};
use room::{Host, Room};

/// Nothing that goes well takes as long.
const LIMIT: Duration = Duration::from_secs(240);

/// A directory with the image `small`; nothing where machines cannot be run or made.
fn images() -> Option<&'static Path> {
    static IMAGES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| {
        let kernel = guest_kernel()?;
        let state = place().join("state-of-moves");
        let _ = fs::remove_dir_all(&state);
        let mut create =
            comb(&state.join("run"), &state, &["vm", "create", "small", "--from-debian", "--kernel"]);
        let output = create.arg(kernel).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(state.join("comb/images"))
    });
    images.as_deref()
}

fn comb(runtime: &Path, state: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
    command.args(words).stdin(Stdio::null()).env("COMB_CONFIG", "/dev/null");
    command.env("COMB_RUNTIME_DIR", runtime).env("COMB_STATE_DIR", state);
    command
}

#[track_caller]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a line again and again to its root, and counts in memory; beside that lies what never changes.
const WRITER: &str = "head -c 6000000 /dev/urandom > /etc/blob; cp /etc/blob /run/blob; md5sum < /etc/blob > /run/sum; \
    (i=0; while :; do i=$((i+1)); echo $i $((i*i%10007)) >> /etc/log; echo $i > /run/next; mv /run/next /run/count; usleep 20000; done) > /dev/null 2>&1 < /dev/null &";

/// What it has written is there, and right; and how far it is.
const CHECK: &str = "for f in /etc/blob /run/blob; do [ \"$(md5sum < $f)\" = \"$(cat /run/sum)\" ] || echo $f is damaged; done; \
    echo 3 > /proc/sys/vm/drop_caches; cat /run/count; cat /etc/log";

/// Whether a writer's log has every line once, and goes as far as it has counted: so far.
#[track_caller]
fn checked(said: &str) -> u64 {
    assert!(!said.contains("damaged"), "{said}");
    let (count, log) = said.split_once('\n').unwrap();
    let count: u64 = count.trim().parse().unwrap();
    // The last may have been half written when it was read.
    let lines: Vec<&str> = log.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    for (number, line) in (1_u64..).zip(&lines) {
        assert_eq!(line.trim_end(), format!("{number} {}", number * number % 10007));
    }
    assert!(lines.len() as u64 + 1 >= count, "{} lines, and it had counted to {count}", lines.len());
    count
}

/// The commands of one host.
trait Commands {
    fn command(&self, words: &[&str]) -> Command;

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn refuses(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    #[track_caller]
    fn within(&self, machine: &str, script: &str) -> String {
        self.says(&["vm", "exec", machine, "--", "sh", "-c", script]).trim().to_owned()
    }

    fn machines(&self) -> Vec<Value> {
        serde_json::from_str(&self.says(&["vm", "ls", "--json"])).unwrap()
    }

    #[track_caller]
    fn await_machine(&self, name: &str, state: &str) -> Value {
        wait_for(state, || {
            self.machines().into_iter().find(|machine| machine["name"] == name && machine["state"] == state)
        })
    }

    /// A writer goes on: from where it was, to where it is after that.
    #[track_caller]
    fn await_progress(&self, machine: &str, from: u64) -> u64 {
        wait_for("a writer", || Some(checked(&self.within(machine, CHECK))).filter(|count| *count > from + 5))
    }
}

impl Commands for Host {
    fn command(&self, words: &[&str]) -> Command {
        Host::command(self, words)
    }

    fn output(&self, words: &[&str]) -> Output {
        self.run(words)
    }
}

fn begin(host: &Host, words: &[&str]) -> Child {
    let mut command = Host::command(host, words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    host.namespace.within(|| command.spawn().unwrap())
}

/// Hosts in one comb; the first has the image.
fn joined(test: &str, images: &Path) -> Option<Room> {
    let room = Room::joined(test, 2, 1)?;
    let there = room.hosts[0].state().join("comb/images");
    fs::create_dir_all(&there).unwrap();
    let copied = Command::new("cp").arg("-a").arg(images.join("small")).arg(&there).status().unwrap();
    assert!(copied.success());
    Some(room)
}

#[test]
fn a_machine_moves_to_another_host_and_back_and_misses_nothing() {
    let Some(images) = images() else { return };
    let Some(room) = joined("vm-moves", images) else { return };
    let [alpha, beta] = [&room.hosts[0], &room.hosts[1]];
    alpha.says(&["vm", "clone", "small", "--as", "mover"]);
    alpha.within("mover", WRITER);
    let mut at = alpha.await_progress("mover", 0);
    let session =
        begin(alpha, &["vm", "exec", "mover", "--", "sh", "-c", "echo $$ > /run/session; exec sleep 1000"]);
    wait_for("a session", || {
        alpha
            .output(&["vm", "exec", "mover", "--", "test", "-s", "/run/session"])
            .status
            .success()
            .then_some(())
    });

    let moved: Value =
        serde_json::from_str(&alpha.says(&["vm", "migrate", "mover", "beta", "--json"])).unwrap();
    eprintln!("{moved}");
    assert_eq!((&moved["name"], &moved["host"]), (&Value::from("mover"), &Value::from("beta")));
    // Beta had no such image.
    let image_bytes = moved["image_bytes"].as_u64().unwrap();
    assert!(image_bytes > 10 << 20, "{moved}");
    assert!(moved["root_bytes"].as_u64().unwrap() >= 6_000_000, "{moved}");
    assert!(moved["still_us"].as_u64().unwrap() <= moved["took_us"].as_u64().unwrap(), "{moved}");
    assert_eq!(beta.says(&["vm", "images", "--json"]).matches("\"small\"").count(), 1);
    // It can be asked there as soon as it has moved.
    assert_eq!(beta.within("mover", "hostname"), "mover");

    // It is beta's, and nothing of it is here.
    let session = session.wait_with_output().unwrap();
    let said = String::from_utf8(session.stderr).unwrap();
    assert!(said.contains("the machine has moved to beta"), "{said}");
    assert_eq!(alpha.machines(), Vec::<Value>::new());
    wait_for("its directory to go", || (!alpha.runtime().with_file_name("run-vm").exists()).then_some(()));
    let shown = beta.await_machine("mover", "up");
    assert_eq!(shown["cell"], 2, "{shown}");
    assert!(beta.says(&["task", "ls"]).contains("vm mover"));
    at = beta.await_progress("mover", at);
    wait_for("what had a line to alpha to end", || {
        let gone = "kill -0 $(cat /run/session) 2> /dev/null || echo gone";
        (beta.within("mover", gone) == "gone").then_some(())
    });
    assert_eq!(fs::read_dir(beta.state().join("comb/moves")).unwrap().count(), 0);

    // And back.
    let moved: Value =
        serde_json::from_str(&beta.says(&["vm", "migrate", "mover", "alpha", "--json"])).unwrap();
    assert_eq!(moved["image_bytes"], 0, "{moved}");
    assert_eq!(beta.machines(), Vec::<Value>::new());
    at = alpha.await_progress("mover", at);

    // What is saved goes to another host as well.
    alpha.says(&["vm", "snapshot", "mover", "saved"]);
    alpha.says(&["vm", "send", "saved", "beta"]);
    let said = alpha.refuses(&["vm", "send", "saved", "beta"]);
    assert!(said.contains("beta: there is a snapshot `saved` already"), "{said}");
    beta.says(&["vm", "restore", "saved", "--as", "second"]);
    beta.await_progress("second", at);
    alpha.await_progress("mover", at);

    // A machine of that name is there: this one stays.
    alpha.says(&["vm", "restore", "saved", "--as", "second", "--cells", "none"]);
    let said = alpha.refuses(&["vm", "migrate", "second", "beta"]);
    assert!(said.contains("second goes on here: beta: a machine `second` runs already"), "{said}");
    alpha.await_progress("second", at);
    alpha.says(&["vm", "run", "small", "--as", "wired", "--net", "lab", "--cells", "none"]);
    let said = alpha.refuses(&["vm", "migrate", "wired", "beta"]);
    assert!(said.contains("it has disks or a network, which stay on this host"), "{said}");
    for (host, why) in [("gamma", "there is no host gamma"), ("alpha", "alpha is this host")] {
        let said = alpha.refuses(&["vm", "migrate", "mover", host]);
        assert!(said.contains(why), "{said}");
    }
    let said = alpha.refuses(&["vm", "migrate", "mover", "--keep"]);
    assert!(said.contains("it is here, and nobody else may have it"), "{said}");
    for host in [alpha, beta] {
        host.says(&["vm", "kill", "--all"]);
    }
}

/// The engines that a host's agent, or somebody on it, has started.
fn engines(host: &Host) -> Vec<u32> {
    let is_engine = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(b"qemu-system")
    };
    host.processes().into_iter().filter(is_engine).collect()
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

#[test]
fn a_machine_goes_on_where_it_was_when_the_other_host_or_the_way_fails() {
    let Some(images) = images() else { return };
    let Some(mut room) = joined("vm-moves-not", images) else { return };
    // So that everything is in the midst of it for some time.
    room.slow(1, Duration::from_millis(100));
    let [alpha, beta] = [&room.hosts[0], &room.hosts[1]];
    alpha.says(&["vm", "run", "small", "--as", "mover", "--cells", "none"]);
    alpha.within("mover", WRITER);
    let mut at = alpha.await_progress("mover", 0);
    let memory_kb = |engine: u32| {
        let status = fs::read_to_string(format!("/proc/{engine}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // An engine that has some of the memory.
    let arriving = || {
        let engine = wait_for("an engine there", || engines(beta).first().copied());
        let first = memory_kb(engine).unwrap();
        wait_for("memory to come", || memory_kb(engine).filter(|now| *now > first + (8 << 10)));
        engine
    };
    let fails = |child: Child, why: &str| {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("mover goes on here: "), "{said}");
        assert!(said.contains(why), "{said}");
        wait_for("nothing to be left there", || engines(beta).is_empty().then_some(()));
        assert_eq!(beta.machines(), Vec::<Value>::new());
    };
    // The engine there is killed, and then what looks after it.
    let moves = begin(alpha, &["vm", "migrate", "mover", "beta"]);
    kill(arriving());
    fails(moves, "beta: ");
    at = alpha.await_progress("mover", at);
    let moves = begin(alpha, &["vm", "migrate", "mover", "beta"]);
    let engine = arriving();
    let status = fs::read_to_string(format!("/proc/{engine}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap();
    kill(parent);
    fails(moves, "the way to beta is lost");
    at = alpha.await_progress("mover", at);
    // The cable is pulled out.
    let moves = begin(alpha, &["vm", "migrate", "mover", "beta"]);
    arriving();
    room.plug(1, "down");
    fails(moves, "the way to beta is lost");
    room.plug(1, "up");
    at = alpha.await_progress("mover", at);
    room.all_up(&[0, 1]);
    // Where it comes from, all of it is killed: the half is dropped.
    let moves = begin(alpha, &["vm", "migrate", "mover", "beta"]);
    arriving();
    let monitor = alpha.machines()[0]["monitor"].as_u64().unwrap();
    assert!(at > 0);
    kill(u32::try_from(monitor).unwrap());
    assert!(!moves.wait_with_output().unwrap().status.success());
    wait_for("nothing to be left", || (engines(beta).is_empty() && engines(alpha).is_empty()).then_some(()));
    assert_eq!(beta.machines(), Vec::<Value>::new());
}

// ── every way in which the handover may fail, with a way that loses what it is told to ──

/// What is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loses {
    Nothing,
    /// All after so many bytes.
    After(usize),
    /// That nothing more comes.
    Last,
    /// That it is given.
    Run,
    /// That it was taken.
    Runs,
}

/// As they are said.
const LAST: &[u8] = &[0, 1, 0, 0, 0, 7];
const RUN: &[u8] = &[0, 1, 0, 0, 0, 9];

struct Line {
    stream: UnixStream,
    loses: Loses,
    written: usize,
    is_deaf: bool,
    looks: Option<Looks>,
}

impl Line {
    fn new(stream: UnixStream, loses: Loses) -> Self {
        Self { stream, loses, written: 0, is_deaf: false, looks: None }
    }
}

/// Compares the memory of both engines when a machine is given away: it runs at neither then.
#[derive(Clone, Default)]
struct Looks {
    here: Arc<AtomicU32>,
    there: Arc<AtomicU32>,
    /// Each time, the pages that differed.
    differ: Arc<Mutex<Vec<Vec<usize>>>>,
}

impl Looks {
    const PAGE: usize = 4096;

    fn look(&self) {
        let [here, there] = [&self.here, &self.there].map(|engine| memory(engine.load(Ordering::Relaxed)));
        let pages = here.chunks(Self::PAGE).zip(there.chunks(Self::PAGE)).enumerate();
        // What a guest has given back is nothing here.
        let differ = pages.filter(|(_, (here, there))| here != there && here.iter().any(|&byte| byte != 0));
        self.differ.lock().unwrap().push(differ.map(|(number, _)| number).collect());
    }
}

/// All of an engine's machine's.
fn memory(engine: u32) -> Vec<u8> {
    let bytes = Hardware::default().memory_bytes;
    let maps = fs::read_to_string(format!("/proc/{engine}/maps")).unwrap();
    let begin = maps.lines().find_map(|line| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        let [begin, end] = [begin, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        (end - begin == bytes).then_some(begin)
    });
    let mut memory = vec![0; usize::try_from(bytes).unwrap()];
    let file = fs::File::open(format!("/proc/{engine}/mem")).unwrap();
    file.read_exact_at(&mut memory, begin.unwrap()).unwrap();
    memory
}

impl Passage for Line {
    fn read(&mut self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        if self.is_deaf {
            // What was said there is said before this end is closed.
            let _ = self.stream.set_read_timeout(Some(LIMIT)).and_then(|()| self.stream.read(&mut [0; 6]));
            return Err(ErrorKind::ConnectionReset.into());
        }
        self.stream.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
        self.stream.read(buffer).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        if bytes == RUN
            && let Some(looks) = &self.looks
        {
            looks.look();
        }
        let is_cut = match self.loses {
            Loses::After(most) => self.written > most,
            Loses::Last => bytes == LAST,
            Loses::Run => bytes == RUN,
            Loses::Runs | Loses::Nothing => false,
        };
        if is_cut {
            self.stream.shutdown(Shutdown::Both)?;
            // It went, as far as this end can tell.
            return Ok(());
        }
        self.is_deaf |= self.loses == Loses::Runs && bytes == RUN;
        self.stream.write_all(bytes)
    }
}

/// A host without an agent: machines that are run by threads of this test.
#[derive(Clone)]
struct House {
    directory: PathBuf,
    images: PathBuf,
}

impl House {
    fn machines_there(&self) -> Machines {
        Machines::at(self.directory.join("run-vm"))
    }

    fn subnets(&self) -> Subnets {
        Subnets::at(self.directory.join("run-nets"), env!("CARGO_BIN_EXE_comb").into())
    }

    fn records(&self) -> usize {
        fs::read_dir(self.directory.join("moves")).into_iter().flatten().count()
    }

    /// What an agent does when somebody comes.
    fn receive(&self, stream: UnixStream, way: &WayThere) {
        let (house, way) = (self.clone(), way.clone());
        std::thread::spawn(move || {
            let places = Places {
                images: Images::at(house.images.clone()),
                snapshots: Snapshots::at(house.directory.join("snapshots")),
                records: Records::at(house.directory.join("moves")),
                machines: house.machines_there(),
            };
            let line = Line::new(stream, Loses::Nothing);
            let Ok(Some(mut arrival)) = arriving::hear(Talk::new(Box::new(line)), &places) else { return };
            let (name, image) = (arrival.machine.name.parse().unwrap(), arrival.image.clone());
            let beginning = Beginning::Arriving(Box::new(Beginning::Boot));
            let order = Order {
                is_replaced: arrival.machine.is_replaced,
                ..Order::new(name, image, beginning, arrival.machine.hardware.clone(), house.subnets())
            };
            let mut owner = Owner { way, arrival: Some(&mut arrival) };
            if let Err(error) = run(&house.machines_there(), &order, &mut owner) {
                arrival.refuse(&error.to_string());
            }
        });
    }
}

impl Commands for House {
    fn command(&self, words: &[&str]) -> Command {
        comb(&self.directory.join("run"), &self.directory, words)
    }
}

/// From one house to the other.
#[derive(Clone)]
struct WayThere {
    to: House,
    /// What the next line loses; those after it lose nothing.
    loses: Arc<Mutex<Loses>>,
    /// Whether there are any after it.
    is_open: Arc<AtomicBool>,
    is_used: Arc<AtomicBool>,
    looks: Looks,
}

struct Owner<'a> {
    way: WayThere,
    arrival: Option<&'a mut Arrival>,
}

impl User for Owner<'_> {
    fn seat(&mut self, _replaced: u32) -> Result<Option<Seat>, String> {
        Ok(None)
    }

    fn tell(&mut self, _told: Told) {}

    fn way_to(&mut self, _host: &str) -> Way {
        let way = self.way.clone();
        way.is_used.store(false, Ordering::Relaxed);
        Box::new(move || {
            if way.is_used.swap(true, Ordering::Relaxed) && !way.is_open.load(Ordering::Relaxed) {
                return Err("it is dark there".into());
            }
            let (stream, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
            let loses = std::mem::replace(&mut *way.loses.lock().unwrap(), Loses::Nothing);
            way.to.receive(theirs, &way);
            Ok(Box::new(Line { looks: Some(way.looks.clone()), ..Line::new(stream, loses) }))
        })
    }

    fn receive(&mut self, engine: &mut Engine, root: &Path, show: Show<'_>) -> Result<Rest, MoveError> {
        self.way.looks.there.store(engine.process(), Ordering::Relaxed);
        self.arrival.take().expect("it comes once").take_up(engine, root, show)
    }
}

/// Nobody there can be asked whether a machine was taken, and who moves it waits for that.
#[track_caller]
fn await_unsure(here: &House, moves: &mut Child) {
    wait_for("unsure", || {
        if moves.try_wait().unwrap().is_some() {
            let mut said = String::new();
            moves.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("it has ended: {said}");
        }
        here.machines().into_iter().find(|machine| machine["name"] == "mover" && machine["state"] == "unsure")
    });
}

#[test]
fn whatever_is_lost_at_the_handover_one_goes_on_and_no_two() {
    let Some(images) = images() else { return };
    let directory = std::env::temp_dir().join(format!("comb-vm-handover-{}", std::process::id()));
    let [here, there] = ["here", "there"].map(|name| {
        fs::create_dir_all(directory.join(name)).unwrap();
        House { directory: directory.join(name), images: images.to_owned() }
    });
    let way = WayThere {
        to: there.clone(),
        loses: Arc::new(Mutex::new(Loses::Nothing)),
        is_open: Arc::default(),
        is_used: Arc::default(),
        looks: Looks::default(),
    };
    let image = Images::at(images.to_owned()).open(&"small".parse().unwrap()).unwrap();
    let hardware = Hardware { accelerator: Accelerator::of_host(), ..Hardware::default() };
    let order = Order {
        // If it fails, another takes its place; but never of one that may be elsewhere.
        is_replaced: true,
        ..Order::new("mover".parse().unwrap(), image, Beginning::Boot, hardware, here.subnets())
    };
    let owned = way.clone();
    let machines = here.machines_there();
    std::thread::spawn(move || run(&machines, &order, &mut Owner { way: owned, arrival: None }));
    wait_for("a machine", || here.machines_there().reach(&"mover".parse().unwrap()).ok());
    let engine = here.await_machine("mover", "up")["engine"].as_u64().unwrap();
    way.looks.here.store(u32::try_from(engine).unwrap(), Ordering::Relaxed);
    here.within("mover", WRITER);
    let mut at = here.await_progress("mover", 0);
    let moves = |loses: Loses, is_open: bool| {
        *way.loses.lock().unwrap() = loses;
        way.is_open.store(is_open, Ordering::Relaxed);
        let mut command = here.command(&["vm", "migrate", "mover", "there"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let goes_on = |child: Child, why: &str, from: u64| {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("mover goes on here: ") && said.contains(why), "{said}");
        wait_for("nothing to be left there", || there.machines_there().names().is_empty().then_some(()));
        here.await_progress("mover", from)
    };
    for loses in [Loses::After(100_000), Loses::After(20_000_000), Loses::Last] {
        at = goes_on(moves(loses, true), "the way to there is lost", at);
    }
    // It was given, as its old home knows, and has not come.
    at = goes_on(moves(Loses::Run, true), "there has not got it", at);
    // The same, and nobody can be asked.
    let mut child = moves(Loses::Run, false);
    await_unsure(&here, &mut child);
    let said = here.refuses(&["vm", "exec", "mover", "--", "true"]);
    assert!(said.contains("unsure"), "{said}");
    wait_for("nothing to be left there", || there.machines_there().names().is_empty().then_some(()));
    here.says(&["vm", "migrate", "mover", "--keep"]);
    at = goes_on(child, "it was kept", at);
    // It was taken, and its old home does not hear that.
    let records = there.records();
    let mut child = moves(Loses::Runs, false);
    await_unsure(&here, &mut child);
    there.await_machine("mover", "up");
    at = there.await_progress("mover", at);
    assert_eq!(there.records(), records + 1);
    // If it ends there, that was it: it does not come back.
    there.says(&["vm", "kill", "mover"]);
    here.await_machine("mover", "unsure");
    assert!(at > 0);
    way.is_open.store(true, Ordering::Relaxed);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("does not say whether it has mover"),
        "{output:?}"
    );
    wait_for("nothing to be left here", || here.machines_there().names().is_empty().then_some(()));
    assert!(there.machines_there().names().is_empty());
    // Each time that it was given away, whatever became of that.
    assert_eq!(*way.looks.differ.lock().unwrap(), [[0_usize; 0]; 3]);
    wait_for("its record to go", || (there.records() == records).then_some(()));
    fs::remove_dir_all(directory).unwrap();
}
