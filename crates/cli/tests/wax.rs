//! The policy: what it hints is done, a policy that lies can only slow things down, and it ends with every cell and begins anew.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use comb_cell::hints::{Hints, INCARNATION_VARIABLE};
use comb_host::RuntimeDirectory;
use comb_policy::wax::Policy;
use comb_region::Task;
use comb_region::named::{Attaching, Region};

use self::cells::{Comb, LIMIT};
use self::servant::Servant;

mod cells;
mod servant;

/// Where a policy of ours finds what it is to say.
const SCRIPT: &str = "COMB_TEST_SCRIPT";
const PAGE: usize = 4096;

// ── programs ──

/// A policy that says what stands in a file, a hint a line.
#[test]
fn policy() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let incarnation = std::env::var(INCARNATION_VARIABLE).unwrap().parse().unwrap();
    let directory = RuntimeDirectory::from_environment().unwrap();
    let mut policy = Policy::begin(directory.cells_socket(), incarnation).expect("the agent has started us");
    let mut dice = 1_u64;
    while policy.hear(Duration::from_millis(10)) {
        let script = std::fs::read_to_string(&script).unwrap_or_default();
        let mut lines = script.lines();
        match lines.next() {
            Some("noise") => noise(&mut dice, Duration::from_millis(50)),
            Some("flicker") => flicker(&mut policy, &parse(lines), Duration::from_millis(50)),
            Some("halfway") => {
                flicker(&mut policy, &parse(lines), Duration::from_millis(5));
                noise(&mut dice, Duration::from_micros(100));
                std::process::abort();
            }
            Some("stuck") => std::thread::sleep(LIMIT),
            _ => policy.say(parse(script.lines())),
        }
    }
}

fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Hints {
    let mut hints = Hints::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<u64> = words[1..].iter().map(|word| word.parse().unwrap()).collect();
        let few = |number: u64| u32::try_from(number).unwrap();
        match words[0] {
            "prefer" => {
                for cell in 0..=64 {
                    let hint = hints.cells.entry(cell).or_default();
                    hint.prefer = numbers.iter().copied().map(few).collect();
                }
            }
            "give" => hints.cells.entry(few(numbers[0])).or_default().give_back_bytes = numbers[1],
            "waits" => hints.tasks.entry(few(numbers[0])).or_default().waits = true,
            "swap" => hints.tasks.entry(few(numbers[0])).or_default().swap = true,
            "cores" => {
                let cores = numbers[1..].iter().map(|&core| usize::try_from(core).unwrap());
                hints.tasks.entry(few(numbers[0])).or_default().cores = cores.collect();
            }
            _ => panic!("what is {line}?"),
        }
    }
    hints
}

/// As fast as it can: this, and nothing, by turns.
fn flicker(policy: &mut Policy, hints: &Hints, span: Duration) {
    let since = Instant::now();
    while since.elapsed() < span {
        policy.say(hints.clone());
        policy.say(Hints::default());
    }
}

/// Stores anything anywhere into what is published: front words, records, sequences.
fn noise(dice: &mut u64, span: Duration) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let published =
        maps.lines().find(|line| line.contains("comb-published") && line.contains("rw-s")).unwrap();
    let start = u64::from_str_radix(published.split('-').next().unwrap(), 16).unwrap();
    let mut memory = std::fs::File::options().write(true).open("/proc/self/mem").unwrap();
    let since = Instant::now();
    while since.elapsed() < span {
        *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // What is used stands in the first pages.
        let at = (*dice >> 40) % (4 * PAGE as u64) / 8 * 8;
        let small = (*dice >> 17) % 70;
        let word = if *dice >> 63 == 0 { dice.rotate_left(20) } else { small };
        memory.seek(SeekFrom::Start(start + at)).unwrap();
        memory.write_all(&word.to_ne_bytes()).unwrap();
    }
}

/// A program that does what it is told.
#[test]
fn servant() {
    let Some(name) = servant::told() else { return };
    let task = Task::join().expect("a task of one");
    let (mut region, mut own) = (None, Vec::new());
    servant::serve(|words| {
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words[0] {
            "attach" => match task.attach(&name, &Attaching::default()) {
                Ok(attached) => {
                    region = Some(attached);
                    "done".to_owned()
                }
                Err(error) => error.to_string(),
            },
            "store" => {
                word(region.as_ref(), number(1)).set(0, number(2) as u64);
                "done".to_owned()
            }
            "load" => word(region.as_ref(), number(1)).get(0).to_string(),
            "sum" => (0..number(1)).map(|page| word(region.as_ref(), page).get(0)).sum::<u64>().to_string(),
            // Memory of its own, which is the content of a file.
            "map" => {
                own.push(Mapped::of(words[1]));
                own.last().unwrap().sum().to_string()
            }
            "look" => own.last().unwrap().sum().to_string(),
            "spin" => {
                std::thread::spawn(|| {
                    loop {
                        std::hint::spin_loop();
                    }
                });
                "done".to_owned()
            }
            _ => format!("what is {words:?}?"),
        }
    });
}

fn word(region: Option<&Region>, page: usize) -> comb_region::Array<u64> {
    region.expect("attached").array::<u64>((page * PAGE) as u64, 1).expect("within it")
}

struct Mapped {
    start: *const u8,
    bytes: usize,
}

impl Mapped {
    #[expect(unsafe_code, reason = "a private mapping, as programs have them")]
    fn of(path: &str) -> Self {
        let file = std::fs::File::open(path).unwrap();
        let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::PRIVATE);
        // SAFETY: new addresses.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, &file, 0) };
        Self { start: start.unwrap().cast(), bytes }
    }

    #[expect(unsafe_code, reason = "a private mapping, as programs have them")]
    fn sum(&self) -> u64 {
        // SAFETY: mapped for ever, of a file that nobody changes.
        let content = unsafe { std::slice::from_raw_parts(self.start, self.bytes) };
        content.iter().step_by(64).map(|&byte| u64::from(byte)).sum()
    }
}

// ── the stage ──

impl Comb {
    /// With Wax.
    fn with_wax(name: &str, arguments: &[&str]) -> Self {
        Self::new(name).begin(arguments)
    }

    /// With a policy that says what it is told.
    fn scripted(name: &str, arguments: &[&str]) -> Self {
        let mut comb = Self::new(name);
        let program = std::env::current_exe().unwrap();
        let policy = format!("{} --exact policy --nocapture --test-threads=1", program.display());
        comb.variables = vec![("COMB_WAX", policy.into()), (SCRIPT, comb.script().into())];
        comb.begin(arguments)
    }

    fn begin(self, arguments: &[&str]) -> Self {
        self.ok(&[&["up"], arguments].concat());
        self.wait_for("the policy", || self.decisions(1));
        self
    }

    /// What our policy says.
    fn script(&self) -> PathBuf {
        self.scratch.join("script")
    }

    /// From now on this is said.
    fn say(&self, lines: &[String]) {
        let fresh = self.scratch.join("fresh");
        std::fs::write(&fresh, lines.join("\n")).unwrap();
        std::fs::rename(fresh, self.script()).unwrap();
    }

    /// Whether the policy is in that life, and has decided.
    fn decisions(&self, incarnation: u64) -> Option<u64> {
        let wax = self.status()["wax"].clone();
        (wax["incarnation"].as_u64()? >= incarnation)
            .then(|| wax["decisions"].as_u64())
            .flatten()
            .filter(|&count| count > 1)
    }

    fn heeded(&self, cell: usize, what: &str) -> u64 {
        self.status()["cells"][cell - 1]["heeded"][what].as_u64().unwrap_or(0)
    }

    /// Bytes of frames that a region has.
    fn resident(&self, region: &str) -> u64 {
        let objects = self.list(&["region", "ls"]);
        let mut sizes = objects.iter().filter(|object| object["region"]["name"] == region);
        sizes.next().unwrap()["state"]["resident_bytes"].as_u64().unwrap()
    }

    fn servant(&self, region: &str, arguments: &[&str]) -> Component {
        let servant = Servant::begin(self, arguments, region);
        let task = servant.launcher.id();
        let (process, cell) = self.wait_for("the component", || {
            let tasks = self.list(&["task", "ls"]);
            let task = tasks.iter().find(|object| object["task"].as_u64() == Some(task.into()))?;
            let component = &task["components"][0];
            let process = component["process"].as_u64().filter(|&process| process != 0)?;
            Some((process, component["cell"].as_u64()?))
        });
        Component { servant, task, process, cell: usize::try_from(cell).unwrap() }
    }

    /// Kills what is the policy now.
    fn signal_policy(&self, signal: rustix::process::Signal) {
        let pid = self.status()["wax"]["pid"].as_u64().unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// A servant, and what the agent knows of it.
struct Component {
    servant: Servant,
    task: u32,
    process: u64,
    cell: usize,
}

impl Component {
    #[track_caller]
    fn does(&mut self, order: &str) -> String {
        self.servant.does(order)
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.process)).unwrap()
    }

    /// The cores that it may use.
    fn cores(&self) -> String {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }

    fn used_ns(&self) -> u64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process)).unwrap().flatten();
        let used = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
        used.map(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn resident_pages(&self) -> u64 {
        self.proc("statm").split(' ').nth(1).unwrap().parse().unwrap()
    }
}

fn has_cgroups(comb: &Comb) -> bool {
    comb.status()["agent"]["cgroup"].is_string()
}

// ── Hive, Table 3.4: each row ──

#[test]
fn the_page_allocator_takes_memory_where_it_is_hinted() {
    let comb = Comb::scripted("allocator", &["--cells", "4", "--memory", "4M"]);
    comb.say(&["prefer 3 4".to_owned()]);
    comb.wait_for("the hint", || (comb.status()["wax"]["prefer"][0] == 3).then_some(()));
    assert!(comb.ok(&["region", "create", "a", "--size", "1M"]).contains("lives in cell 3"));
    // Components of tasks as well.
    assert_eq!(comb.servant("a", &[]).cell, 3);
    // A home that has no frames left borrows them from there, and not from the next.
    comb.ok(&["region", "create", "full", "--size", "4M", "--cell", "1"]);
    comb.say(&["prefer 4 3".to_owned()]);
    // Cells look at hints each for itself, and at each other's loads now and then.
    comb.wait_for("memory of cell 4", || {
        comb.ok(&["region", "create", "borrowed", "--size", "2M", "--cell", "1"]);
        let listed = comb.list(&["region", "ls"]);
        let borrowed = listed.iter().find(|region| region["region"]["name"] == "borrowed").unwrap();
        let memory_home = borrowed["state"]["memory_home"].as_u64();
        if memory_home != Some(4) {
            comb.ok(&["region", "rm", "borrowed"]);
        }
        (memory_home == Some(4)).then_some(())
    });
    // The hint is gone, and so is what it did.
    comb.say(&[]);
    comb.wait_for("no hint", || comb.status()["wax"]["prefer"].as_array().unwrap().is_empty().then_some(()));
    assert!(comb.ok(&["region", "create", "b", "--size", "1M"]).contains("lives in cell 2"));
}

#[test]
fn the_clock_hand_gives_back_what_is_idle_where_it_is_hinted() {
    let comb = Comb::scripted("hand", &["--cells", "2"]);
    for (name, cell) in [("r", "2"), ("s", "1")] {
        comb.ok(&["region", "create", name, "--size", "1M", "--cell", cell]);
    }
    let (mut user, mut other) = (comb.servant("r", &["--cells", "1"]), comb.servant("s", &["--cells", "1"]));
    for servant in [&mut user, &mut other] {
        assert_eq!(servant.does("attach"), "done");
        assert_eq!(servant.does("store 3 7"), "done");
        assert_eq!(servant.does("sum 256"), "7");
    }
    assert_eq!((comb.resident("r"), comb.resident("s")), (1 << 20, 1 << 20));
    comb.say(&["give 2 10000000".to_owned()]);
    comb.wait_for("frames that are given back", || (comb.resident("r") == PAGE as u64).then_some(()));
    assert_eq!(comb.resident("s"), 1 << 20, "nobody has hinted that");
    comb.wait_for("a word of it", || (comb.heeded(2, "given_back_bytes") == 255 << 12).then_some(()));
    assert_eq!(comb.heeded(1, "given_back_bytes"), 0);
    // Nobody has noticed.
    assert_eq!(user.does("sum 256"), "7");
    assert_eq!(user.does("store 9 1"), "done");
    assert_eq!(user.does("sum 256"), "8");
}

#[test]
fn the_scheduler_has_gangs_take_turns_and_shares_cores_as_it_is_hinted() {
    let comb = Comb::scripted("scheduler", &["--cells", "2"]);
    comb.ok(&["region", "create", "r", "--size", "1M"]);
    let (mut gang, mut plain) = (comb.servant("r", &["--gang"]), comb.servant("r", &[]));
    let mut own = comb.servant("r", &["--cores", "1"]);
    for servant in [&mut gang, &mut plain, &mut own] {
        assert_eq!(servant.does("spin"), "done");
    }
    let everywhere = gang.cores();
    let last = std::thread::available_parallelism().unwrap().get() - 1;
    if last > 0 {
        let others: Vec<String> = (0..last).map(|core| core.to_string()).collect();
        let shared = |task: u32| format!("cores {task} {}", others.join(" "));
        comb.say(&[format!("cores {} {last}", own.task), shared(plain.task), shared(gang.task)]);
        comb.wait_for("a core of its own", || (own.cores() == last.to_string()).then_some(()));
        comb.wait_for("the others to keep away", || {
            (plain.cores() != everywhere && gang.cores() != everywhere).then_some(())
        });
        comb.say(&[]);
        for servant in [&own, &plain, &gang] {
            comb.wait_for("all cores", || (servant.cores() == everywhere).then_some(()));
        }
        comb.wait_for("a word of it", || (comb.heeded(own.cell, "bindings") > 0).then_some(()));
    }
    if !has_cgroups(&comb) {
        return;
    }
    comb.say(&[format!("waits {}", gang.task), format!("waits {}", plain.task)]);
    comb.wait_for("a turn", || (comb.heeded(gang.cell, "waits") > 0).then_some(()));
    let stands_still = |servant: &Component| {
        let before = servant.used_ns();
        std::thread::sleep(Duration::from_millis(100));
        servant.used_ns() == before
    };
    comb.wait_for("it to wait", || stands_still(&gang).then_some(()));
    comb.wait_for("it to go on, though it is hinted to wait", || (!stands_still(&gang)).then_some(()));
    assert!(!stands_still(&plain), "it has not asked for turns");
    comb.say(&[]);
    comb.wait_for("it to run", || (0..10).all(|_| !stands_still(&gang)).then_some(()));
}

#[test]
fn the_swapper_pages_out_who_waits_as_it_is_hinted() {
    let comb = Comb::scripted("swapper", &["--cells", "2"]);
    if !has_cgroups(&comb) || !rustix::process::geteuid().is_root() {
        return;
    }
    // What comes from a file can be paged out without any swap.
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("paged-{}", std::process::id()));
    let content: Vec<u8> = (0..16 << 20).map(|at| u8::try_from(at / 64 % 251).unwrap()).collect();
    std::fs::write(&file, &content).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    let pages = content.len() as u64 / PAGE as u64;
    let mut gang = comb.servant("r", &["--gang"]);
    let sum = gang.does(&format!("map {}", file.display()));
    let before = gang.resident_pages();
    assert!(before > pages);
    comb.say(&[format!("swap {}", gang.task)]);
    comb.wait_for("memory that is paged out", || (gang.resident_pages() < before - pages / 2).then_some(()));
    comb.wait_for("a word of it", || (comb.heeded(gang.cell, "paged_out_bytes") > 0).then_some(()));
    assert_eq!(gang.does("look"), sum, "nothing is lost by it");
    // For a while it is left alone, whatever is hinted.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(gang.resident_pages() > before - pages / 2);
    std::fs::remove_file(file).unwrap();
}

// ── Wax itself ──

#[test]
fn wax_sees_who_has_too_much_and_whose_turn_it_is() {
    let comb = Comb::with_wax("sees", &["--cells", "2", "--memory", "4M"]);
    comb.ok(&["region", "create", "r", "--size", "4M", "--cell", "1"]);
    let mut user = comb.servant("r", &["--cells", "2"]);
    assert_eq!(user.does("attach"), "done");
    assert_eq!(user.does("store 5 7"), "done");
    assert_eq!(user.does("sum 1024"), "7");
    // All of its frames are in use, and most are idle. It gives back down to three quarters, perhaps while more comes: seven eighths may be left.
    comb.wait_for("frames that are given back", || (comb.resident("r") <= 7 << 19).then_some(()));
    assert_eq!(user.does("sum 900"), "7");
    comb.wait_for("another cell to be preferred", || (comb.status()["wax"]["prefer"][0] == 2).then_some(()));
    if !has_cgroups(&comb) {
        return;
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut gangs: Vec<Component> = (0..=cores).map(|_| comb.servant("r", &["--gang"])).collect();
    for gang in &mut gangs {
        assert_eq!(gang.does("spin"), "done");
    }
    comb.wait_for("turns", || (comb.heeded(1, "waits") + comb.heeded(2, "waits") > 3).then_some(()));
    let used: Vec<u64> = gangs.iter().map(Component::used_ns).collect();
    std::thread::sleep(Duration::from_secs(3));
    assert!(gangs.iter().zip(used).all(|(gang, used)| gang.used_ns() > used), "each has its turn");
}

/// It depends on every cell, and nothing depends on it.
#[test]
fn it_ends_with_a_cell_and_begins_anew_behind_the_recovery() {
    let comb = Comb::with_wax("anew", &["--cells", "4"]);
    let shown = comb.ok(&["ps"]);
    assert!(shown.contains("wax: process ") && shown.contains("incarnation 1"), "{shown}");
    for incarnation in 2..4 {
        let before = comb.status()["wax"]["pid"].as_u64().unwrap();
        comb.ok(&["cell", "kill", "2"]);
        comb.wait_for("hints again", || comb.decisions(incarnation));
        assert_ne!(comb.status()["wax"]["pid"].as_u64(), Some(before));
        assert!(!std::path::Path::new(&format!("/proc/{before}")).exists());
    }
    assert!(comb.log().contains("incarnation 1, is gone: it depends on every cell"), "{}", comb.log());
    // Alone it is started again as well, and no cell is the worse for its end.
    comb.signal_policy(rustix::process::Signal::KILL);
    comb.wait_for("hints again", || comb.decisions(4));
    let status = comb.status();
    let lives: Vec<u64> = (0..4).map(|cell| status["cells"][cell]["incarnation"].as_u64().unwrap()).collect();
    assert_eq!(lives, [1, 3, 1, 1], "{}", comb.log());
    comb.ok(&["down"]);
    assert!(!comb.directory().exists());
}

// ── a policy that lies ──

/// Whatever it says: cells live, regions contain what was stored, components run, and a cell's end is recovered from.
#[test]
fn a_policy_that_lies_can_only_slow_things_down() {
    let comb = Comb::scripted("lies", &["--cells", "3", "--memory", "64M"]);
    comb.ok(&["region", "create", "r", "--size", "1M", "--cell", "1"]);
    let mut servants = BTreeMap::from([
        ("gang", comb.servant("r", &["--gang", "--cells", "1"])),
        ("cores", comb.servant("r", &["--cores", "1", "--cells", "3"])),
        ("plain", comb.servant("r", &["--cells", "1"])),
    ]);
    for servant in servants.values_mut() {
        assert_eq!(servant.does("attach"), "done");
    }
    let everywhere = servants["plain"].cores();
    let tasks: Vec<u32> = servants.values().map(|servant| servant.task).collect();
    let every_core: Vec<String> = (0..256).map(|core| core.to_string()).collect();
    let all = |what: &str| tasks.iter().map(|task| format!("{what} {task}")).collect::<Vec<_>>();
    let everything = {
        let cores = tasks.iter().map(|task| format!("cores {task} {}", every_core.join(" ")));
        let give = (1..=3).map(|cell| format!("give {cell} {}", u64::MAX));
        let rest = ["prefer 64 200 3 3 1 77".to_owned(), "waits 4294967295".to_owned()];
        [all("waits"), all("swap"), cores.collect(), give.collect(), rest.to_vec()].concat()
    };
    let with = |mode: &str| [vec![mode.to_owned()], everything.clone()].concat();
    let (mut value, mut pages) = (0, 0);
    for script in [everything.clone(), with("flicker"), with("noise"), with("stuck"), with("halfway")] {
        comb.say(&script);
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            value += 1;
            pages = value % 200;
            for (at, name) in ["gang", "cores", "plain"].into_iter().enumerate() {
                let page = pages + at;
                assert_eq!(servants.get_mut(name).unwrap().does(&format!("store {page} {value}")), "done");
                let other = servants.values_mut().next().unwrap();
                assert_eq!(other.does(&format!("load {page}")), value.to_string(), "{}", script[0]);
            }
            let status = comb.status();
            assert!(
                (0..3).all(|cell| status["cells"][cell]["incarnation"] == 1),
                "{}\n{}",
                script[0],
                comb.log()
            );
        }
        // Noise can be a hint that makes sense; every core of 256 for each of three tasks cannot.
        if script == everything || script[0] == "flicker" {
            assert!(servants.values().all(|servant| servant.cores() == everywhere), "{}", script[0]);
        }
        assert!(comb.ok(&["region", "create", "new", "--size", "1M"]).contains("lives in cell "));
        comb.ok(&["region", "rm", "new"]);
        if script[0] == "stuck" {
            comb.signal_policy(rustix::process::Signal::KILL);
        }
    }
    let log = comb.log();
    assert!(!log.contains("the cells agree"), "{log}");
    // A cell ends, while it goes on like that.
    comb.say(&everything);
    let killed = comb.ok(&["cell", "kill", "2"]);
    assert!(killed.contains("at work again"), "{killed}");
    comb.wait_for("the next life", || {
        let cell = comb.status()["cells"][1].clone();
        (cell["state"] == "up" && cell["incarnation"] == 2).then_some(())
    });
    assert_eq!(servants.get_mut("gang").unwrap().does(&format!("load {pages}")), value.to_string());
}
