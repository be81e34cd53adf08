//! Named regions with real processes: a home or two, and hands that load and store as they are told.
#![expect(unsafe_code, reason = "atomic operations on shared memory")]

mod conditions;
#[path = "../../net/tests/standing/mod.rs"]
mod standing;

use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use comb_net::Agent;
use comb_net::agent::Limits;
use comb_net::agent::policy::SameUser;
use comb_net::agent::server::Server;
use comb_region::Array;
use comb_region::Task;
use comb_region::named::home::{Home, HomeOptions};
use comb_region::named::keeper::{self, Reference};
use comb_region::named::{
    Ask, Attaching, Entry, Keeper, KeptReferences, Mode, Region, RemoteKeeper, Status, Wanted,
};
use comb_region::task::Share;
use conditions::wait_until;
use rustix::process::{Pid, Signal};

const ROLE: &str = "COMB_TEST_ROLE";
const DIRECTORY: &str = "COMB_TEST_DIRECTORY";
/// Numbers in a page.
const PAGE: usize = 512;

/// The other processes of a test.
#[test]
fn process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("of the test"));
    let number = |cell: &str| cell.parse().expect("a number");
    match role.split_once('-') {
        Some(("home", cell)) => be_a_home(&directory, number(cell), false),
        Some(("kept", cell)) => be_a_home(&directory, number(cell), true),
        _ => be_a_hand(&directory),
    }
}

/// And which thread of the process does what it is told.
fn say_ready() {
    println!("= {}", rustix::thread::gettid().as_raw_pid());
}

fn be_a_home(directory: &Path, cell: u32, is_kept: bool) {
    let agent = Agent::connect(&directory.join("agent.sock"), &format!("cell-{cell}")).expect("an agent");
    let keeper = is_kept.then(|| Arc::new(RemoteKeeper::new(directory, cell, 1)) as Arc<dyn Keeper>);
    let options = HomeOptions {
        cell,
        incarnation: 1,
        runtime: directory.to_owned(),
        keeper,
        published: None,
        others: None,
        most_bytes: None,
    };
    let _home = Home::begin(&agent, options).expect("a home");
    say_ready();
    // Until the test ends it, or is gone.
    let _ = std::io::stdin().lines().next();
}

/// Does what each line of its input says, and answers with a line.
fn be_a_hand(directory: &Path) {
    let task = Task::join().expect("a task of one");
    let mut region: Option<Region> = None;
    say_ready();
    for line in std::io::stdin().lines() {
        let line = line.expect("the test lives");
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().expect("a number");
        let array = |region: &Option<Region>| -> Array<u64> {
            let region = region.as_ref().expect("attached");
            region.array(0, usize::try_from(region.bytes() / 8).unwrap()).expect("all of it")
        };
        let answer = match words[0] {
            "attach" => {
                let only_to_read = words.contains(&"reading");
                let share = if words.contains(&"copies") { Share::Copy } else { Share::Auto };
                let attaching = Attaching { only_to_read, share, runtime: Some(directory.to_owned()) };
                match task.attach(words[1], &attaching) {
                    Ok(attached) => {
                        let way = if attached.imports() { "imports" } else { "copies" };
                        region = Some(attached);
                        way.to_owned()
                    }
                    Err(error) => format!("error: {error}"),
                }
            }
            "get" => {
                let mut value = [0];
                match array(&region).read(number(1), &mut value) {
                    Ok(()) => value[0].to_string(),
                    Err(lost) => format!("lost: {}", lost.reason),
                }
            }
            "set" => match array(&region).write(number(1), &[number(2) as u64]) {
                Ok(()) => "done".to_owned(),
                Err(lost) => format!("lost: {}", lost.reason),
            },
            // As a program does it: whoever may not, dies.
            "poke" => {
                let place = array(&region).as_ptr().wrapping_add(number(1));
                // SAFETY: within the region.
                unsafe { place.write_volatile(number(2) as u64) };
                "done".to_owned()
            }
            // What of others' frames and of guards this process has open.
            "descriptors" => {
                let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
                let found: Vec<String> = open.filter_map(|entry| what_guards(&entry.path())).collect();
                found.join(" ")
            }
            // As plain loads and stores.
            "add" => {
                let place = array(&region).as_ptr().wrapping_add(number(1));
                // SAFETY: within the region, aligned, and all who store there do it so.
                let word = unsafe { AtomicU64::from_ptr(place) };
                (0..number(2)).for_each(|_| _ = word.fetch_add(1, Ordering::SeqCst));
                "done".to_owned()
            }
            // Two numbers far apart: the first is ahead of the second by one at most, at any moment.
            "march" => {
                let array = array(&region);
                let first = array.get(0);
                for value in first + 1..=first + number(1) as u64 {
                    array.set(0, value);
                    array.set(40 * PAGE, value);
                }
                "done".to_owned()
            }
            // Page after page, again and again: behind, no page is more than one ahead.
            "sweep" => {
                let array = array(&region);
                for round in 1..=number(1) as u64 {
                    (0..array.len()).step_by(PAGE).for_each(|index| array.set(index, round));
                }
                "done".to_owned()
            }
            "falls" => {
                let array = array(&region);
                let values: Vec<u64> = (0..array.len()).step_by(PAGE).map(|index| array.get(index)).collect();
                let is_one_moment =
                    values.is_sorted_by(|one, next| one >= next) && values[0] <= values[values.len() - 1] + 1;
                if is_one_moment { "one moment".to_owned() } else { format!("{values:?}") }
            }
            "fill" => {
                let array = array(&region);
                (0..array.len()).step_by(PAGE).for_each(|index| array.set(index, number(1) as u64));
                "done".to_owned()
            }
            "sum" => {
                let array = array(&region);
                (0..array.len()).map(|index| array.get(index)).sum::<u64>().to_string()
            }
            "sleep" | "wake" => {
                let word = array(&region).as_ptr().wrapping_add(number(1)).cast::<u32>();
                let minute = libc::timespec { tv_sec: 60, tv_nsec: 0 };
                let (operation, value) =
                    if words[0] == "sleep" { (libc::FUTEX_WAIT, number(2)) } else { (libc::FUTEX_WAKE, 1) };
                // SAFETY: a word of the region, and a time.
                let done =
                    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, &raw const minute) };
                if done < 0 { std::io::Error::last_os_error().to_string() } else { done.to_string() }
            }
            "leave" => {
                region = None;
                "done".to_owned()
            }
            other => panic!("{other}?"),
        };
        println!("= {answer}");
    }
}

/// Frames that nobody else can open, and what can change their guard.
fn what_guards(descriptor: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let target = std::fs::read_link(descriptor).ok()?.to_string_lossy().into_owned();
    let mode = std::fs::metadata(descriptor).ok()?.mode() & 0o777;
    let is_such = target.contains("comb-frames") && mode == 0 || target.contains("userfaultfd");
    is_such.then_some(target.replace(' ', ""))
}

/// A process of the test. It ends with it.
struct Process {
    child: Child,
    /// What it said on standard error.
    said: std::fs::File,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What the kernel says of the thread that does what it is told.
    thread: PathBuf,
}

impl Process {
    fn start(role: &str, directory: &Path) -> Self {
        Self::start_without("", role, directory)
    }

    /// On a kernel that lacks something.
    fn start_without(mechanism: &str, role: &str, directory: &Path) -> Self {
        Self::start_with(["COMB_WITHOUT", mechanism], role, directory)
    }

    fn start_with([variable, value]: [&str; 2], role: &str, directory: &Path) -> Self {
        let said = rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let said = std::fs::File::from(said);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process", "--nocapture", "--test-threads=1"])
            .env(variable, value)
            .env(ROLE, role)
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said.try_clone().unwrap())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Self { child, said, input, output, thread: PathBuf::new() };
        process.thread = format!("/proc/{}/task/{}", process.child.id(), process.hear()).into();
        process
    }

    /// Does what it is told and dies of it: its last words.
    fn dies(mut self, words: &str) -> String {
        use std::os::unix::process::ExitStatusExt;
        self.tell(words);
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{words}");
        self.errors()
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        self.said.rewind().unwrap();
        self.said.read_to_string(&mut text).unwrap();
        text
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.input, "{words}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let bytes = self.output.read_line(&mut line).unwrap();
            assert!(bytes > 0, "it has ended: {:?}\n{}", self.child.wait(), self.errors());
            // The test's own harness writes too.
            if let Some(answer) = line.split_once("= ").map(|(_, answer)| answer.trim_end()) {
                return answer.to_owned();
            }
        }
    }

    fn ask(&mut self, words: &str) -> String {
        self.tell(words);
        self.hear()
    }

    #[track_caller]
    fn does(&mut self, words: &str, answer: &str) {
        assert_eq!(self.ask(words), answer, "{words}");
    }

    #[track_caller]
    fn loses(&mut self, words: &str, why: &str) {
        let answer = self.ask(words);
        assert!(answer.starts_with("lost: ") && answer.contains(why), "{words}: {answer}");
    }

    /// Returns when it sleeps until somebody else wakes it, or some content comes.
    #[track_caller]
    fn wait_until_it_sleeps(&self) {
        let futex = format!("{} ", libc::SYS_futex);
        wait_until("it sleeps", || {
            std::fs::read_to_string(self.thread.join("syscall")).unwrap().starts_with(&futex)
        });
    }

    /// How often it has gone to sleep in its life.
    fn sleeps(&self) -> u64 {
        let status = std::fs::read_to_string(self.thread.join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    fn stand_still(&self) {
        standing::stop(Pid::from_child(&self.child));
    }

    fn go_on(&self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent, and a directory.
struct Scene {
    directory: PathBuf,
    _agent: Server,
}

impl Scene {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("comb-named-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let agent =
            Server::bind(&directory.join("agent.sock"), Box::new(SameUser), Limits::default()).unwrap();
        Self { directory, _agent: agent }
    }

    /// With a home, cell 1, and a region of so many pages in it.
    fn with_region(pages: u64) -> (Self, Process) {
        let scene = Self::new();
        let home = scene.home(1);
        scene.create(pages);
        (scene, home)
    }

    /// One that hands second references to this process, see [`Keeping`].
    fn kept_home(&self, cell: u32) -> Process {
        Process::start(&format!("kept-{cell}"), &self.directory)
    }

    fn home(&self, cell: u32) -> Process {
        Process::start(&format!("home-{cell}"), &self.directory)
    }

    fn hand(&self) -> Process {
        Process::start("hand", &self.directory)
    }

    /// A hand that has attached `r`.
    fn hand_with(&self, way: &str) -> Process {
        let mut hand = self.hand();
        hand.does(&format!("attach r {way}"), way);
        hand
    }

    fn door(&self, cell: u32) -> Ask {
        Ask::at(&self.directory, cell).unwrap()
    }

    /// A region `r` of so many pages, in cell 1.
    fn create(&self, pages: u64) -> Entry {
        self.door(1).create(&wanted("r", pages * 4096)).unwrap()
    }

    /// Saves `r`. How many pages were written.
    #[track_caller]
    fn save(&self) -> u64 {
        self.door(1).save("r", &self.saved()).unwrap().1
    }

    fn saved(&self) -> PathBuf {
        self.directory.join("saved")
    }

    /// Has a hand look at a region that is made from what was saved, and that is gone afterwards.
    fn look_at_saved(&self, look: impl FnOnce(&mut Process)) {
        let then = Wanted { from: Some(self.saved()), bytes: None, ..wanted("then", 0) };
        self.door(1).create(&then).unwrap();
        let mut hand = self.hand();
        hand.does("attach then imports", "imports");
        look(&mut hand);
        hand.does("leave", "done");
        self.door(1).remove("then", false).unwrap();
    }

    fn status(&self, cell: u32) -> Vec<Status> {
        self.door(cell).report().unwrap()
    }

    fn refuses(&self, cell: u32, wanted: &Wanted, words: &str) {
        let error = self.door(cell).create(wanted).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn wanted(name: &str, bytes: u64) -> Wanted {
    Wanted {
        name: name.to_owned(),
        bytes: Some(bytes),
        block_bytes: 4096,
        migratory: false,
        mode: Mode::default(),
        sparse: false,
        from: None,
        parent: None,
        memory_home: None,
    }
}

/// A keeper, as a host's agent is one.
struct Keeping {
    references: Arc<Mutex<KeptReferences>>,
    connections: Arc<Mutex<Vec<std::os::fd::OwnedFd>>>,
    path: PathBuf,
}

impl Keeping {
    fn begin(directory: &Path) -> Self {
        let path = keeper::socket(directory);
        let listener = comb_net::agent::listener::Listener::bind(&path).unwrap();
        rustix::io::ioctl_fionbio(&listener, false).unwrap();
        let keeping = Self { references: Arc::default(), connections: Arc::default(), path };
        let (references, connections) = (Arc::clone(&keeping.references), Arc::clone(&keeping.connections));
        // Until it has let in one more: of one test there are no others.
        std::thread::spawn(move || {
            while let Ok(home) = rustix::net::accept(&listener) {
                connections.lock().unwrap().push(home.try_clone().unwrap());
                let references = Arc::clone(&references);
                std::thread::spawn(move || {
                    keeper::references::serve(&home, &references, |_, _, incarnation| incarnation > 0);
                });
            }
        });
        keeping
    }

    fn count(&self) -> (usize, usize) {
        let mut references = self.references.lock().unwrap();
        references.tidy();
        references.count()
    }

    /// Dies: what it had is closed.
    fn end(self) {
        std::fs::remove_file(&self.path).unwrap();
        *self.references.lock().unwrap() = KeptReferences::default();
        for home in self.connections.lock().unwrap().iter() {
            let _ = rustix::net::shutdown(home, rustix::net::Shutdown::Both);
        }
    }
}

const BOTH_WAYS: [[&str; 2]; 4] =
    [["imports", "imports"], ["imports", "copies"], ["copies", "imports"], ["copies", "copies"]];

#[test]
fn what_one_process_stores_all_load_whatever_way_they_came() {
    for (block_bytes, migratory) in [(4096, false), (65536, false), (4096, true)] {
        let scene = Scene::new();
        let _home = scene.home(1);
        let region = Wanted { block_bytes, migratory, ..wanted("r", 5 << 20) };
        scene.door(1).create(&region).unwrap();
        for [one, other] in BOTH_WAYS {
            let (mut one, mut other) = (scene.hand_with(one), scene.hand_with(other));
            for index in [0, 7, PAGE, 513 * PAGE, 5 * (1 << 17) - 1] {
                let before: usize = one.ask(&format!("get {index}")).parse().unwrap();
                one.does(&format!("set {index} {}", before + 1), "done");
                other.does(&format!("get {index}"), &(before + 1).to_string());
                one.does(&format!("set {index} {}", before + 7), "done");
                other.does(&format!("get {index}"), &(before + 7).to_string());
                other.does(&format!("set {index} {}", before + 2), "done");
                one.does(&format!("get {index}"), &(before + 2).to_string());
            }
            // What it alone had goes home when it leaves, and is there for those who come later.
            one.does("set 9 1234", "done");
            one.does("leave", "done");
            other.does("get 9", "1234");
            other.does("leave", "done");
        }
        let mut late = scene.hand_with("imports");
        late.does(&format!("get {}", 5 * (1 << 17) - 1), "8");
    }
}

#[test]
fn atomic_operations_of_all_count() {
    for ways in [&["imports", "imports"][..], &["imports", "copies"], &["copies", "copies", "imports"]] {
        let (scene, _home) = Scene::with_region(3);
        let mut hands: Vec<Process> = ways.iter().map(|way| scene.hand_with(way)).collect();
        let each = 3000;
        hands.iter_mut().for_each(|hand| hand.tell(&format!("add {} {each}", PAGE + 3)));
        hands.iter_mut().for_each(|hand| assert_eq!(hand.hear(), "done"));
        for hand in &mut hands {
            hand.does(&format!("get {}", PAGE + 3), &(each * ways.len()).to_string());
        }
    }
}

#[test]
fn where_nobody_can_guard_imports_there_are_copies() {
    let (scene, _home) = Scene::with_region(600);
    let mut importer = scene.hand_with("imports");
    let mut copier = Process::start_without("userfaultfd", "hand", &scene.directory);
    copier.does("attach r", "copies");
    importer.does("fill 3", "done");
    copier.does(&format!("get {}", 599 * PAGE), "3");
    copier.does(&format!("set {} 4", 7 * PAGE), "done");
    importer.does(&format!("get {}", 7 * PAGE), "4");
    importer.tell("add 1 2000");
    copier.does("add 1 2000", "done");
    assert_eq!(importer.hear(), "done");
    copier.does("get 1", "4000");
    scene.door(1).remove("r", true).unwrap();
    wait_until("it has heard", || copier.ask("get 0").contains("was removed"));
    copier.loses("set 0 1", "was removed");
}

#[test]
fn importers_sleep_and_wake_each_other() {
    let (scene, _home) = Scene::with_region(3);
    let (mut sleeper, mut waker) = (scene.hand_with("imports"), scene.hand_with("imports"));
    waker.does("set 5 7", "done");
    assert!(sleeper.ask("sleep 5 6").contains("temporarily unavailable"), "it is not what it was to be");
    sleeper.tell("sleep 5 7");
    wait_until("one was woken", || waker.ask("wake 5") == "1");
    assert_eq!(sleeper.hear(), "0");
    // Longer than a nap.
    sleeper.tell("sleep 5 7");
    sleeper.wait_until_it_sleeps();
    let before = sleeper.sleeps();
    wait_until("it has slept again", || sleeper.sleeps() > before);
    wait_until("one was woken", || waker.ask("wake 5") == "1");
    assert_eq!(sleeper.hear(), "0");
    // Nobody else has a copy's frame.
    let mut copier = scene.hand_with("copies");
    assert!(copier.ask("wake 5").contains("not implemented"));
    // Who sleeps in what is lost finds out.
    sleeper.tell("sleep 5 7");
    sleeper.wait_until_it_sleeps();
    scene.door(1).remove("r", true).unwrap();
    let answer = sleeper.hear();
    assert!(answer.contains("Bad address") || answer.contains("not implemented"), "{answer}");
}

#[test]
fn who_only_reads_stores_nothing_and_who_may_not_is_told() {
    let (scene, _home) = Scene::with_region(3);
    let mut writer = scene.hand_with("imports");
    for way in ["imports", "copies"] {
        let mut reader = scene.hand();
        reader.does(&format!("attach r {way} reading"), way);
        writer.does("set 0 5", "done");
        reader.does("get 0", "5");
        reader.loses("set 0 6", "for reading only");
        writer.does("get 0", "5");
    }
    // Root may do everything.
    if rustix::process::geteuid().is_root() {
        return;
    }
    scene.door(1).create(&Wanted { mode: Mode(0o400), ..wanted("sealed", 4096) }).unwrap();
    let mut hand = scene.hand();
    let refused = hand.ask("attach sealed imports");
    assert!(refused.contains("may not store"), "{refused}");
    hand.does("attach sealed imports reading", "imports");
}

#[test]
fn who_dies_of_a_store_says_to_what_and_by_which_instruction() {
    let (scene, _home) = Scene::with_region(3);
    let mut writer = scene.hand_with("imports");
    writer.does("set 513 5", "done");
    let told = |said: &str, why: &str| {
        let (process, stopped) = (std::env::current_exe().unwrap(), format!("was stopped: {why}\n"));
        for words in [
            "comb: a store to 0x",
            &stopped,
            "comb:   there is region r of cell 1, byte 4104 (page 1)\n",
            "comb:   by thread ",
            &format!("({}+0x", process.display()),
        ] {
            assert!(said.contains(words), "{words}:\n{said}");
        }
    };
    for way in ["imports", "copies"] {
        let mut reader = scene.hand();
        reader.does(&format!("attach r {way} reading"), way);
        reader.does("get 513", "5");
        told(&reader.dies("poke 513 6"), "the region is attached for reading only");
        writer.does("get 513", "5");
    }
    // What is granted to it, and is lost then.
    scene.door(1).remove("r", true).unwrap();
    wait_until("it has heard", || writer.ask("get 0").contains("was removed"));
    told(&writer.dies("poke 513 6"), "the region was removed");
}

#[test]
fn an_importer_has_nothing_open_that_could_undo_its_guard() {
    let (scene, _home) = Scene::with_region(3);
    scene.door(1).create(&wanted("second", 4096)).unwrap();
    let mut hand = scene.hand_with("imports");
    let before = hand.ask("descriptors");
    assert!(!before.contains("comb-frames") && before.contains("userfaultfd"), "{before}");
    // Its own memory's is there, to which nothing can be said, and there is no more of them.
    hand.does("attach second imports", "imports");
    hand.does("descriptors", &before);
    hand.does("set 0 1", "done");
}

#[test]
fn whose_system_calls_are_not_covered_has_copies() {
    let (scene, _home) = Scene::with_region(3);
    let mut importer = scene.hand_with("imports");
    let mut hand = Process::start_with(["COMB_COVER", "0"], "hand", &scene.directory);
    hand.does("attach r", "copies");
    importer.does("set 0 7", "done");
    hand.does("get 0", "7");
}

#[test]
fn what_a_dead_home_leaves_is_emptied_and_guarded_until_its_importers_have_ended() {
    let scene = Scene::new();
    let keeping = Keeping::begin(&scene.directory);
    let home = scene.kept_home(1);
    let entry = scene.create(300);
    let mut hands = [scene.hand_with("imports"), scene.hand_with("imports"), scene.hand_with("copies")];
    hands[0].does("fill 3", "done");
    hands[1].does("get 0", "3");
    assert_eq!(keeping.count(), (1, 2), "who has copies guards itself");
    // None of them hears of it yet.
    hands.iter().for_each(Process::stand_still);
    home.kill();
    assert_eq!(keeping.count(), (1, 2));
    let ending = keeping.references.lock().unwrap().cell_ends(1);
    ending.finish(&keeping.references);
    // What a successor gets.
    let successor = RemoteKeeper::new(&scene.directory, 1, 2);
    let taken = successor.take().unwrap();
    let region = entry.allocation.offset;
    let references: Vec<Reference> = taken.iter().map(|(reference, _)| *reference).collect();
    let address = comb_memory::HEAP_START as u64 + region;
    let guard = |importer| Reference::Guard { region, importer, address };
    assert_eq!(references, [Reference::Frames { region }, guard(1), guard(2)]);
    assert_eq!(rustix::fs::fstat(&taken[0].1[0]).unwrap().st_blocks, 0, "emptied");
    hands.iter().for_each(Process::go_on);
    for hand in &mut hands[..2] {
        hand.loses("get 0", "died, where it was homed");
        hand.loses("set 1 1", "died, where it was homed");
    }
    assert_eq!(keeping.count(), (1, 2), "whatever they have heard");
    let [first, second, _third] = hands;
    first.kill();
    wait_until("one has ended", || keeping.count() == (1, 1));
    // A new life of the cell makes the same region anew; who had the old one is kept as it was.
    let _again = scene.kept_home(1);
    scene.create(300);
    let mut hand = scene.hand_with("imports");
    hand.does("get 0", "0");
    assert_eq!(keeping.count(), (2, 2));
    second.kill();
    wait_until("the other has, too", || keeping.count() == (1, 1));
    drop(taken);
}

#[test]
fn a_keeper_that_begins_anew_is_told_everything_again() {
    let scene = Scene::new();
    let keeping = Keeping::begin(&scene.directory);
    let _home = scene.kept_home(1);
    scene.create(3);
    let mut hand = scene.hand_with("imports");
    hand.does("set 0 5", "done");
    keeping.end();
    // Without one nobody else is let in.
    let mut other = scene.hand();
    let refused = other.ask("attach r");
    assert!(refused.contains("keep a second reference"), "{refused}");
    hand.does("set 0 6", "done");
    let keeping = Keeping::begin(&scene.directory);
    wait_until("all is handed over", || keeping.count() == (1, 1));
    other.does("attach r", "imports");
    assert_eq!(keeping.count(), (1, 2));
    other.does("get 0", "6");
    // What is removed is kept until nobody can store to it.
    hand.does("leave", "done");
    scene.door(1).remove("r", true).unwrap();
    wait_until("it has heard", || other.ask("get 0").contains("was removed"));
    assert_eq!(keeping.count(), (1, 2));
    hand.kill();
    other.kill();
    wait_until("nobody is left", || keeping.count() == (0, 0));
}

#[test]
fn a_region_goes_with_its_cell_and_nobody_waits_for_it() {
    let scene = Scene::new();
    let (doomed, _safe) = (scene.home(1), scene.home(2));
    scene.create(300);
    scene.door(2).create(&wanted("safe", 40960)).unwrap();
    let mut hands = [scene.hand_with("imports"), scene.hand_with("copies"), scene.hand_with("imports")];
    hands[0].does("set 0 5", "done");
    hands[1].does(&format!("set {PAGE} 6"), "done");
    hands[2].does("get 0", "5");
    // One waits for an answer that does not come.
    doomed.stand_still();
    hands[0].tell(&format!("get {}", 200 * PAGE));
    hands[1].tell(&format!("set {} 1", 201 * PAGE));
    hands[..2].iter().for_each(Process::wait_until_it_sleeps);
    doomed.kill();
    for hand in &mut hands[..2] {
        let answer = hand.hear();
        assert!(answer.contains("died, where it was homed"), "{answer}");
    }
    for hand in &mut hands {
        // As soon as it has heard of the death: what was here before, what was not, and stores.
        wait_until("it has heard", || hand.ask("get 0").starts_with("lost: "));
        for words in ["get 0", "set 0 9", &format!("get {PAGE}"), &format!("set {} 1", 299 * PAGE)] {
            hand.loses(words, "died, where it was homed");
        }
        hand.does("leave", "done");
        // The rest of the process is as it was.
        hand.does("attach safe", "imports");
        hand.does("add 0 1", "done");
    }
    hands[0].does("get 0", "3");
    // A new life of the cell begins with nothing.
    let _again = scene.home(1);
    let gone = hands[0].ask("attach r");
    assert!(gone.contains("there is no region r"), "{gone}");
    scene.create(1);
    hands[0].does("attach r", "imports");
    hands[0].does("get 0", "0");
}

#[test]
fn what_a_dead_process_alone_had_is_lost_and_nothing_else() {
    let (scene, _home) = Scene::with_region(50);
    let (mut importer, mut copier) = (scene.hand_with("imports"), scene.hand_with("copies"));
    let mut doomed = scene.hand_with("copies");
    importer.does("fill 3", "done");
    doomed.does(&format!("set {} 4", 7 * PAGE), "done");
    doomed.does(&format!("get {}", 8 * PAGE), "3");
    importer.tell("get 0");
    doomed.kill();
    importer.hear();
    wait_until("its home has noticed", || scene.status(1)[0].lost == 1);
    for hand in [&mut importer, &mut copier] {
        hand.loses(&format!("get {}", 7 * PAGE), "nobody has what was stored there last");
        hand.loses(&format!("set {} 1", 7 * PAGE + 1), "nobody has what was stored there last");
        hand.does(&format!("get {}", 9 * PAGE), "3");
        hand.does(&format!("set {} 5", 8 * PAGE), "done");
    }
    let status = &scene.status(1)[0];
    assert_eq!((status.importers, status.copiers, status.lost), (1, 1, 1));
    // An importer has nothing alone.
    importer.does("set 0 6", "done");
    importer.kill();
    copier.does("get 0", "6");
}

#[test]
fn a_checkpoint_is_of_one_moment_and_holds_what_has_changed() {
    let scene = Scene::new();
    let _home = scene.home(1);
    for way in ["imports", "copies"] {
        scene.create(50);
        let mut hand = scene.hand_with(way);
        hand.does("fill 3", "done");
        assert_eq!(scene.save(), 50, "all of it");
        hand.does("set 0 0", "done");
        hand.does(&format!("set {} 0", 40 * PAGE), "done");
        assert_eq!(scene.save(), 2, "what was stored to");
        assert_eq!(scene.save(), 0, "nothing");
        hand.tell("march 30000");
        for turn in 0..20 {
            let pages = scene.save();
            // Every few times a file holds all.
            assert!(pages <= 2 || pages == 50, "{pages}");
            scene.look_at_saved(|look| {
                let [first, second] =
                    [0, 40 * PAGE].map(|at| look.ask(&format!("get {at}")).parse::<u64>().unwrap());
                assert!(second <= first && first <= second + 1, "{turn}: {first} {second}");
                look.does(&format!("get {}", 7 * PAGE), "3");
            });
        }
        assert_eq!(hand.hear(), "done");
        hand.does("get 0", "30000");
        hand.does("leave", "done");
        scene.door(1).remove("r", false).unwrap();
    }
}

#[test]
fn a_checkpoint_is_of_one_moment_though_programs_go_on_meanwhile() {
    let scene = Scene::new();
    let _home = scene.home(1);
    for way in ["imports", "copies"] {
        scene.create(1500);
        let mut hand = scene.hand_with(way);
        hand.tell("sweep 40");
        for _ in 0..10 {
            scene.save();
            scene.look_at_saved(|look| look.does("falls", "one moment"));
        }
        assert_eq!(hand.hear(), "done");
        hand.does("leave", "done");
        scene.door(1).remove("r", false).unwrap();
    }
}

#[test]
fn a_process_that_does_not_give_back_is_not_waited_for_without_end() {
    let (scene, _home) = Scene::with_region(3);
    let (mut holder, mut other) = (scene.hand_with("copies"), scene.hand_with("imports"));
    let mut third = scene.hand_with("imports");
    holder.does("set 0 1", "done");
    holder.stand_still();
    third.tell("get 0");
    let error = scene.door(1).save("r", &scene.saved()).unwrap_err().to_string();
    assert!(error.contains("does not give them back"), "{error}");
    // The rest goes on, before it does and after.
    other.does(&format!("set {PAGE} 2"), "done");
    other.tell("get 1");
    wait_until("both have asked", || scene.status(1)[0].waiting == 2);
    holder.go_on();
    assert_eq!((other.hear(), third.hear()), ("0".to_owned(), "1".to_owned()));
    scene.save();
}

#[test]
fn a_region_in_use_is_removed_only_by_force_and_then_it_is_lost() {
    let (scene, _home) = Scene::with_region(3);
    let mut hands = [scene.hand_with("imports"), scene.hand_with("copies")];
    hands[0].does("set 0 1", "done");
    hands[1].does("get 0", "1");
    let error = scene.door(1).remove("r", false).unwrap_err().to_string();
    assert!(error.contains("in use by process"), "{error}");
    assert_eq!(scene.door(1).remove("r", true).unwrap(), 2);
    for hand in &mut hands {
        wait_until("it has heard", || hand.ask("get 0").contains("was removed"));
        hand.loses(&format!("set {PAGE} 1"), "was removed");
        hand.does("leave", "done");
    }
    scene.create(3);
    hands[0].does("attach r", "imports");
    hands[0].does("get 0", "0");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason_and_what_is_not_touched_costs_nothing() {
    let (scene, _home) = Scene::with_region(1);
    scene.refuses(1, &wanted("r", 4096), "there is a region r already");
    scene.refuses(1, &wanted("../r", 4096), "no name for a region");
    scene.refuses(1, &wanted("large", 1 << 40), "can be made sparse");
    scene.refuses(1, &wanted("none", 0), "a byte at least");
    scene.refuses(1, &Wanted { block_bytes: 5000, ..wanted("odd", 4096) }, "power of two");
    scene.refuses(1, &Wanted { from: Some("/nonexistent".into()), ..wanted("new", 4096) }, "no checkpoint");
    scene.door(1).create(&Wanted { sparse: true, ..wanted("sparse", 1 << 40) }).unwrap();
    let mut hand = scene.hand();
    let missing = hand.ask("attach missing");
    assert!(missing.contains("there is no region missing"), "{missing}");
    let mut other = scene.hand();
    for (hand, way) in [(&mut hand, "imports"), (&mut other, "copies")] {
        hand.does(&format!("attach sparse {way}"), way);
        hand.does(&format!("add {} 3", (1_u64 << 37) - 1), "done");
    }
    hand.does(&format!("get {}", (1_u64 << 37) - 1), "6");
    let status = scene.status(1).into_iter().find(|status| status.name == "sparse").unwrap();
    assert!(status.resident_bytes <= 1 << 20, "{status:?}");
}
