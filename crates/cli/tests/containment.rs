//! Failures that stay where they are: by the real command, with real processes in the cells.

use std::process::Stdio;
use std::time::{Duration, Instant};

use comb_region::Task;
use comb_region::named::{Attaching, Region};
use rustix::process::Signal;
use serde_json::Value;

use self::cells::Comb;
use self::servant::Servant;

mod cells;
mod servant;

const PAGE: usize = 4096;

/// A program that does to a region what it is told, line by line.
#[test]
fn servant() {
    let Some(name) = servant::told() else { return };
    let task = Task::join().expect("a task of one");
    let mut region = None;
    servant::serve(|words| match *words {
        ["attach"] => match task.attach(&name, &Attaching::default()) {
            Ok(attached) => {
                region = Some(attached);
                "done".to_owned()
            }
            Err(error) => error.to_string(),
        },
        ["leave"] => {
            region = None;
            "done".to_owned()
        }
        ["store", page, value] => store(region.as_ref(), page.parse().unwrap(), value.parse().unwrap()),
        ["fill", from, to, value] => {
            let pages = from.parse::<usize>().unwrap()..to.parse().unwrap();
            let answers = pages.map(|page| store(region.as_ref(), page, value.parse().unwrap()));
            answers.into_iter().find(|answer| answer != "done").unwrap_or_else(|| "done".to_owned())
        }
        ["load", page] => load(region.as_ref(), page.parse().unwrap()),
        ["cell"] => std::fs::read_to_string("/proc/self/cgroup").unwrap().replace('\n', " "),
        _ => format!("what is {words:?}?"),
    });
}

fn numbers(region: Option<&Region>, page: usize) -> comb_region::Array<u64> {
    region.expect("attached").array::<u64>((page * PAGE) as u64, 1).expect("within it")
}

fn store(region: Option<&Region>, page: usize, value: u64) -> String {
    match numbers(region, page).write(0, &[value]) {
        Ok(()) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn load(region: Option<&Region>, page: usize) -> String {
    let mut value = [0];
    match numbers(region, page).read(0, &mut value) {
        Ok(()) => value[0].to_string(),
        Err(error) => error.to_string(),
    }
}

impl Comb {
    fn up(name: &str, cells: u32) -> Self {
        Self::up_with(name, &["--cells", &cells.to_string()])
    }

    fn up_with(name: &str, options: &[&str]) -> Self {
        let comb = Self::new(name);
        comb.ok(&[&["up"], options].concat());
        comb
    }

    fn cell(&self, cell: usize) -> Value {
        self.status()["cells"][cell - 1].clone()
    }

    /// Waits for the next life of a cell.
    #[track_caller]
    fn wait_for_life(&self, cell: usize, incarnation: u64) {
        self.wait_for("another life of the cell", || {
            let status = self.status();
            let (cells, cell) = (&status["cells"], &status["cells"][cell - 1]);
            let others = cells.as_array().map_or(0, |cells| cells.len() - 1);
            (cell["state"] == "up" && cell["incarnation"] == incarnation && cell["channels"] == others)
                .then_some(())
        });
    }

    /// To a cell's supervisor.
    fn signal(&self, cell: usize, signal: Signal) {
        let pid = self.cell(cell)["pid"].as_u64().unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// A servant in that cell, which has to do with that region.
    fn servant(&self, cell: u32, region: &str) -> Servant {
        Servant::begin(self, &["--cells", &cell.to_string()], region)
    }
}

/// What a dead cell's process could store to is discarded, and nothing else; who had the region open is told, and who opens it then reads what is stable.
#[test]
fn what_a_dead_cell_could_store_to_is_discarded_and_nothing_else() {
    let comb = Comb::up("discard", 4);
    comb.ok(&["region", "create", "r", "--size", "1M", "--cell", "1"]);
    let (mut victim, mut survivor) = (comb.servant(2, "r"), comb.servant(3, "r"));
    assert!(victim.does("cell").contains("/cell-2"));
    for servant in [&mut victim, &mut survivor] {
        assert_eq!(servant.does("attach"), "done");
    }
    // Pages 0 to 9 are saved.
    for page in 0..10 {
        assert_eq!(survivor.does(&format!("store {page} {}", 100 + page)), "done");
    }
    let saved = comb.scratch.join("saved");
    comb.ok(&["region", "checkpoint", "r", "--to", saved.to_str().unwrap()]);
    // The survivor has stored to page 20 since, the victim to pages 3 and 30.
    assert_eq!(survivor.does("store 20 7"), "done");
    assert_eq!(victim.does("store 3 7"), "done");
    assert_eq!(victim.does("store 30 7"), "done");
    assert_eq!(survivor.does("load 30"), "7");
    let killed = comb.ok(&["cell", "kill", "2"]);
    assert!(killed.contains("at work again") && killed.contains("2 pages discarded"), "{killed}");
    let told = survivor.does("load 5");
    assert!(told.contains("discarded"), "{told}");
    assert_eq!(survivor.does("leave"), "done");
    // Opened after it: what the victim could have damaged is stable again, the rest is as it was.
    let mut late = comb.servant(4, "r");
    for servant in [&mut survivor, &mut late] {
        assert_eq!(servant.does("attach"), "done");
        for (page, value) in [(3, 103), (30, 0), (5, 105), (20, 7)] {
            assert_eq!(servant.does(&format!("load {page}")), value.to_string(), "page {page}");
        }
    }
    assert_eq!(late.does("store 3 8"), "done");
    comb.wait_for_life(2, 2);
    assert!(comb.log().contains("2 pages of r discarded"), "{}", comb.log());
}

/// That takes its home a while, in which the others watch over it.
#[test]
fn a_home_with_much_to_discard_is_not_taken_for_one_that_hangs() {
    let comb = Comb::up("discards-much", 4);
    comb.ok(&["region", "create", "r", "--size", "128M", "--cell", "1"]);
    let mut victim = comb.servant(2, "r");
    assert_eq!(victim.does("attach"), "done");
    assert_eq!(victim.does("fill 0 32768 7"), "done");
    let killed = comb.ok(&["cell", "kill", "2"]);
    assert!(killed.contains("at work again") && killed.contains("32768 pages discarded"), "{killed}");
    comb.wait_for_life(2, 2);
    assert_eq!(comb.cell(1)["incarnation"], 1, "{}", comb.log());
}

/// What runs in a cell can kill and change its own processes, and neither its supervisor nor those of others, whoever its user is.
#[test]
fn what_runs_in_a_cell_reaches_for_no_other() {
    let comb = Comb::up("reaching", 2);
    let supervisors: Vec<String> = [1, 2].map(|cell| comb.cell(cell)["pid"].to_string()).into();
    let reach = "for pid in $0 $1; do kill -9 $pid 2>/dev/null && echo killed; \
                 (dd if=/dev/zero of=/proc/$pid/mem bs=1 count=1 seek=4096) 2>&1 | grep -c denied; done; sleep 100 & kill -9 $! && echo its own";
    let run = |options: &[&str]| {
        let program = ["--cells", "2", "--", "sh", "-c", reach, &supervisors[0], &supervisors[1]];
        comb.ok(&[&["run", "-n", "1"], options, &program[..]].concat())
    };
    if !comb.ok(&["doctor"]).lines().any(|line| line.starts_with("landlock") && line.contains("in use")) {
        return println!("skipped: this kernel cannot confine");
    }
    assert_eq!(run(&[]), "1\n1\nits own\n");
    // Who asks for it reaches further, and takes its cell with it.
    let program =
        ["run", "-n", "1", "--cells", "2", "--unconfined", "--", "sh", "-c", "kill -9 $0", &supervisors[1]];
    comb.run(&program);
    comb.wait_for("the cell's next life", || (comb.cell(2)["incarnation"] == 2).then_some(()));
    assert_eq!(comb.cell(1)["incarnation"], 1);
}

/// A process that ends by itself, or is killed alone, has failed for itself: what it stored stays.
#[test]
fn a_task_that_fails_alone_takes_nothing_with_it() {
    let comb = Comb::up("alone", 4);
    comb.ok(&["region", "create", "r", "--size", "1M", "--cell", "1"]);
    let (mut victim, mut survivor) = (comb.servant(2, "r"), comb.servant(3, "r"));
    for servant in [&mut victim, &mut survivor] {
        assert_eq!(servant.does("attach"), "done");
    }
    assert_eq!(victim.does("store 3 7"), "done");
    drop(victim);
    comb.wait_for("the end of the task", || (survivor.does("load 3") == "7").then_some(()));
    assert!(comb.ok(&["cell", "kill", "4"]).contains("0 pages discarded"));
    assert_eq!(survivor.does("load 3"), "7");
}

/// A home that dies takes its regions with it. The next life of its cell has those again that have a checkpoint; who had them open is told.
#[test]
fn what_lived_in_a_dead_cell_is_what_it_was_at_its_last_checkpoint() {
    let comb = Comb::up("home", 4);
    for name in ["saved", "unsaved"] {
        comb.ok(&["region", "create", name, "--size", "1M", "--cell", "2"]);
    }
    let mut user = comb.servant(3, "saved");
    assert_eq!(user.does("attach"), "done");
    assert_eq!(user.does("store 3 7"), "done");
    let saved = comb.scratch.join("saved");
    comb.ok(&["region", "checkpoint", "saved", "--to", saved.to_str().unwrap()]);
    assert_eq!(user.does("store 3 8"), "done");
    comb.ok(&["cell", "kill", "2"]);
    let told = user.does("load 3");
    assert!(told.contains("its home, cell 2, is gone") || told.contains("cell 2"), "{told}");
    comb.wait_for_life(2, 2);
    assert_eq!(user.does("leave"), "done");
    comb.wait_for("the region", || (user.does("attach") == "done").then_some(()));
    assert_eq!(user.does("load 3"), "7");
    let listed = comb.ok(&["region", "ls"]);
    assert!(!listed.contains("unsaved"), "{listed}");
    comb.ok(&["region", "create", "unsaved", "--size", "1M"]);
}

/// Processes of a cell end with its supervisor, those of others do not.
#[test]
fn a_cell_ends_as_a_whole_and_no_other_with_it() {
    let comb = Comb::up("whole", 4);
    comb.ok(&["region", "create", "r", "--size", "1M", "--cell", "1"]);
    let mut servants: Vec<Servant> = (1..=4).map(|cell| comb.servant(cell, "r")).collect();
    for servant in &mut servants {
        assert_eq!(servant.does("attach"), "done");
    }
    let tasks = comb.ok(&["task", "ls"]);
    assert_eq!(tasks.lines().count(), 5, "{tasks}");
    comb.signal(4, Signal::KILL);
    let mut victim = servants.pop().unwrap();
    let status = victim.launcher.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 9));
    comb.wait_for_life(4, 2);
    for servant in &mut servants {
        assert_eq!(servant.does("load 5"), "0");
    }
    assert_eq!(comb.ok(&["task", "ls"]).lines().count(), 4);
}

/// A program began another one in a session of its own: without cgroups that outlived its cell, and `comb down`.
#[test]
fn what_a_task_leaves_behind_belongs_to_its_cell_with_cgroups_and_without() {
    for without in ["", "cgroups"] {
        let mut comb = Comb::new(&format!("left-{without}"));
        comb.variables.push(("COMB_WITHOUT", without.into()));
        comb.ok(&["up", "--cells", "2"]);
        let begin = |cell: &str| {
            let number = comb.scratch.join(cell);
            let script = r#"setsid -f sh -c 'echo $$ > $0.new; mv $0.new $0; exec sleep 1000' $0 > /dev/null 2>&1 < /dev/null
                while [ ! -e $0 ]; do sleep 0.01; done"#;
            let number = number.to_str().unwrap();
            comb.ok(&["run", "-n", "1", "--cells", cell, "--", "sh", "-c", script, number]);
            std::fs::read_to_string(number).unwrap().trim().parse::<u32>().unwrap()
        };
        let lives = |pid: u32| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
        };
        let (of_1, of_2) = (begin("1"), begin("2"));
        assert!(lives(of_1) && lives(of_2), "what a task leaves lives on in its cell");
        comb.ok(&["cell", "kill", "1"]);
        comb.wait_for("its end with its cell", || (!lives(of_1)).then_some(()));
        assert!(lives(of_2), "without {without:?}: it is in another cell");
        comb.ok(&["down"]);
        comb.wait_for("its end", || (!lives(of_2)).then_some(()));
    }
}

/// A cell that is stopped, or whose loop does not come round, has failed as one that is gone.
#[test]
fn a_cell_that_hangs_is_found_and_ended_by_the_others() {
    let comb = Comb::up("hang", 4);
    for life in 2..4 {
        comb.signal(3, Signal::STOP);
        comb.wait_for_life(3, life);
    }
    let log = comb.log();
    assert!(log.contains("the cells agree that cell 3 has failed: its tick stands still"), "{log}");
    assert!(
        !log.contains("cell 1 (process") && !log.contains("cell 2 (process"),
        "others have suffered: {log}"
    );
}

/// Half of two is no majority, and the one that is left goes on: the kernel has told it that the other is dead.
#[test]
fn of_two_cells_the_one_that_is_left_goes_on() {
    let comb = Comb::up("two", 2);
    comb.ok(&["region", "create", "r", "--size", "1M", "--cell", "2"]);
    let mut servant = comb.servant(2, "r");
    assert_eq!((servant.does("attach"), servant.does("store 3 7")), ("done".to_owned(), "done".to_owned()));
    for life in 2..4 {
        comb.signal(1, Signal::KILL);
        comb.wait_for_life(1, life);
        assert_eq!((servant.does("load 3"), &comb.cell(2)["incarnation"]), ("7".to_owned(), &1.into()));
    }
    comb.signal(2, Signal::KILL);
    comb.wait_for_life(2, 2);
    assert_eq!(comb.cell(1)["incarnation"], 3);
}

/// The first of two has begun anew and is not let in yet when the second dies or hangs: nobody is left who could tell either how the cells
/// went on.
#[test]
fn whenever_the_second_of_two_fails_both_are_there_again() {
    let ways = [Signal::KILL, Signal::STOP].map(|signal| [0, 2, 5, 20].map(|delay| (signal, delay)));
    std::thread::scope(|scope| {
        for (signal, milliseconds) in ways.into_iter().flatten() {
            scope.spawn(move || {
                let comb = Comb::up(&format!("stranded-{}-{milliseconds}", signal.as_raw()), 2);
                comb.signal(1, Signal::KILL);
                let second = comb.cell(2)["pid"].as_u64().unwrap();
                let since = Instant::now();
                // By looking all the time: the delays count from then.
                while !comb.log().contains("starts cell 1 again") {
                    assert!(since.elapsed() < Duration::from_secs(60), "{}", comb.log());
                }
                std::thread::sleep(Duration::from_millis(milliseconds));
                let second = rustix::process::Pid::from_raw(i32::try_from(second).unwrap()).unwrap();
                rustix::process::kill_process(second, signal).unwrap();
                comb.wait_for("both cells", || {
                    let both = [comb.cell(1), comb.cell(2)];
                    let are_there = both.iter().all(|cell| cell["state"] == "up" && cell["channels"] == 1);
                    (are_there && both[1]["incarnation"] != 1).then_some(())
                });
                // Not just for a moment.
                comb.ok(&["region", "create", "r", "--size", "1M", "--cell", "2"]);
                comb.ok(&["run", "-n", "2", "--cells", "1,2", "--", "true"]);
            });
        }
    });
}

/// A child has what its parent had when it was forked, wherever both live; neither sees what the other stores since. What a child has not got yet is lost with the
/// cell that has it, and nothing else is. (Hive §5.3)
#[test]
fn children_of_regions_find_their_pages_in_other_cells() {
    find_their_pages(&Comb::up("fork", 4));
}

/// What was lost with another cell was zeros to who had copies.
#[test]
fn they_find_them_where_processes_have_copies() {
    let mut comb = Comb::new("fork-copies");
    comb.variables.push(("COMB_WITHOUT", "userfaultfd".into()));
    comb.ok(&["up", "--cells", "4"]);
    find_their_pages(&comb);
}

fn find_their_pages(comb: &Comb) {
    comb.ok(&["region", "create", "parent", "--size", "1M", "--cell", "1"]);
    let mut one = comb.servant(3, "parent");
    assert_eq!(one.does("attach"), "done");
    for page in 0..10 {
        assert_eq!(one.does(&format!("store {page} {}", 100 + page)), "done");
    }
    comb.ok(&["region", "fork", "parent", "child", "--cell", "2"]);
    assert_eq!(one.does("store 3 7"), "done");
    let mut two = comb.servant(4, "child");
    assert_eq!(two.does("attach"), "done");
    for (page, value) in [(3, "103"), (4, "104"), (200, "0")] {
        assert_eq!(two.does(&format!("load {page}")), value, "page {page}");
    }
    assert_eq!(two.does("store 5 8"), "done");
    assert_eq!((one.does("load 5"), one.does("load 3")), ("105".to_owned(), "7".to_owned()));
    // A child of the child: some of its pages are in its parent's cell, some in that one's parent's.
    comb.ok(&["region", "fork", "child", "grandchild", "--cell", "3"]);
    assert_eq!(two.does("store 5 9"), "done");
    assert_eq!(one.does("store 6 9"), "done");
    let mut three = comb.servant(4, "grandchild");
    assert_eq!(three.does("attach"), "done");
    for (page, value) in [(5, "8"), (6, "106"), (3, "103")] {
        assert_eq!(three.does(&format!("load {page}")), value, "page {page}");
    }
    let task = comb.wait_for("a task that depends on all", || {
        let tasks = comb.list(&["task", "ls"]);
        tasks.into_iter().find(|task| task["depends"].as_array().unwrap().len() == 4)
    });
    assert!(task["depends"][0]["why"][0].as_str().unwrap().contains("has not got yet"), "{task}");
    assert!(comb.run(&["region", "rm", "parent"]).stderr.starts_with(b"comb: "), "it has children");
    // The cell at the top dies.
    comb.ok(&["cell", "kill", "1", "--hold"]);
    let told = two.does("load 8");
    assert!(told.contains("is lost"), "{told}");
    assert_eq!(two.does("load 4"), "104");
    assert_eq!((three.does("load 6"), three.does("load 5")), ("106".to_owned(), "8".to_owned()));
    assert_eq!(two.does("store 4 11"), "done");
    drop((two, three));
    let log = comb.log();
    assert!(!log.contains("found it failed"), "a dead cell's orphans accuse nobody: {log}");
}

/// Whoever is forked again and again does not get slower and slower, and children that are gone leave nothing.
#[test]
fn a_region_is_forked_a_hundred_times() {
    let comb = Comb::up("forks", 4);
    comb.ok(&["region", "create", "r0", "--size", "1M", "--cell", "1"]);
    let mut servant = comb.servant(4, "r0");
    assert_eq!(servant.does("attach"), "done");
    let mut parent = "r0".to_owned();
    for turn in 0..100 {
        assert_eq!(servant.does(&format!("store {} {turn}", turn % 20)), "done");
        let (child, cell) = (format!("r{}", turn + 1), (turn % 4 + 1).to_string());
        comb.ok(&["region", "fork", &parent, &child, "--cell", &cell]);
        if turn % 2 == 1 {
            // The line goes on from the child.
            servant = comb.servant(4, &child);
            assert_eq!(servant.does("attach"), "done");
            parent = child;
        }
    }
    let mut last = comb.servant(2, "r100");
    assert_eq!(last.does("attach"), "done");
    for page in 0..20 {
        assert_eq!(last.does(&format!("load {page}")), (80 + page).to_string(), "page {page}");
    }
    for turn in (1..=100).rev() {
        comb.ok(&["region", "rm", &format!("r{turn}"), "--force"]);
    }
    let listed = comb.list(&["region", "ls"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let nodes = &listed[0];
    assert_eq!(nodes["state"]["nodes"], 0, "{nodes}");
}

/// A region that lives in one cell may have its page frames of another. It depends on both: when the memory home dies, what is stable is found in frames of
/// somebody else; when the data home dies, the frames are free again. (Hive §5.4)
#[test]
fn page_frames_are_borrowed_and_come_back() {
    let comb = Comb::up("loans", 4);
    comb.ok(&["region", "create", "r", "--size", "8M", "--cell", "1", "--memory-of", "2"]);
    let mut user = comb.servant(3, "r");
    assert_eq!(user.does("attach"), "done");
    assert_eq!(user.does("store 3 7"), "done");
    comb.wait_for("what the task depends on", || comb.ok(&["task", "ls"]).contains("1,2,3").then_some(()));
    let saved = comb.scratch.join("saved");
    comb.ok(&["region", "checkpoint", "r", "--to", saved.to_str().unwrap()]);
    assert_eq!(user.does("store 4 8"), "done");
    let killed = comb.ok(&["cell", "kill", "2"]);
    assert!(killed.contains("2 pages discarded"), "{killed}");
    assert!(user.does("load 3").contains("discarded"));
    assert_eq!(user.does("leave"), "done");
    comb.wait_for("the region", || (user.does("attach") == "done").then_some(()));
    assert_eq!((user.does("load 3"), user.does("load 4")), ("7".to_owned(), "0".to_owned()));
    comb.wait_for_life(2, 2);
    let listed = &comb.list(&["region", "ls"])[0];
    assert!(listed["state"]["memory_home"].is_null(), "{listed}");
}

#[test]
fn who_has_too_little_memory_borrows_from_who_has_some() {
    let comb = Comb::up_with("budget", &["--cells", "3", "--memory", "16M"]);
    comb.ok(&["region", "create", "a", "--size", "12M", "--cell", "1"]);
    comb.ok(&["region", "create", "b", "--size", "12M", "--cell", "1"]);
    let home_of = |name: &str| {
        let all = comb.list(&["region", "ls"]);
        let found = all.iter().find(|region| region["region"]["name"] == name).unwrap();
        found["state"]["memory_home"].clone()
    };
    assert!(home_of("a").is_null());
    let lender = home_of("b").as_u64().expect("another cell");
    comb.ok(&["region", "create", "c", "--size", "12M", "--cell", "1"]);
    assert!(home_of("c").as_u64().is_some_and(|other| other != lender));
    let refused = comb.run(&["region", "create", "d", "--size", "12M", "--cell", "1"]);
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("not left in any acceptable cell"), "{refused}");
    // The borrower gives one back, and dies with the other.
    comb.ok(&["region", "rm", "b"]);
    comb.ok(&["region", "create", "b", "--size", "12M", "--cell", "1"]);
    comb.ok(&["cell", "kill", "1", "--hold"]);
    for cell in ["2", "3"] {
        comb.ok(&["region", "create", &format!("own{cell}"), "--size", "16M", "--cell", cell]);
        assert!(home_of(&format!("own{cell}")).is_null(), "what was on loan has come back");
    }
}

/// A program that waits for its cell's end, and does not notice that of another: it is run again for the first, which ends it, and for the second, for which
/// it fails, and the third time it has what it needs.
#[test]
fn a_task_that_is_to_run_again_does_so_for_its_cell_and_for_one_that_it_uses() {
    let comb = Comb::up("again", 3);
    let lives = comb.scratch.join("lives");
    let script = r#"echo >> $0; case $(wc -l < $0) in
        1) echo in its cell; exec sleep 100;;
        2) echo beside another; while [ -d /proc/$1 ]; do sleep 0.01; done; exit 3;;
        *) echo whole;; esac"#;
    let other = comb.cell(3)["pid"].to_string();
    let lives = lives.to_str().unwrap();
    let program = ["run", "-n", "1", "--cells", "1,2", "--restart", "--", "sh", "-c", script, lives, &other];
    let task = comb.command(&program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_in_life = |life| (std::fs::read_to_string(lives).ok()?.len() == life).then_some(());
    comb.wait_for("its first life", || is_in_life(1));
    let task_now = &comb.list(&["task", "ls"])[0];
    let first = task_now["components"][0]["cell"].to_string();
    comb.ok(&["cell", "kill", &first]);
    comb.wait_for("its second life", || is_in_life(2));
    comb.ok(&["cell", "kill", "3"]);
    let ended = task.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "in its cell\nbeside another\nwhole\n");
    assert!(said.contains(&format!("was lost with cell {first}; the task ends with it")), "{said}");
    assert!(said.contains("failed with status 3 when cell 3 was lost; the task ends with it"), "{said}");
    assert_eq!(said.matches("runs it again from the start").count(), 2, "{said}");
}

/// There is nowhere else to go: it waits for its cell.
#[test]
fn a_task_of_one_cell_runs_again_in_the_next_life_of_that() {
    let comb = Comb::up("one-cell", 2);
    let lives = comb.scratch.join("lives");
    let script = "if [ -e $0 ]; then echo whole; else touch $0; exec sleep 100; fi";
    let program =
        ["run", "-n", "1", "--cells", "1", "--restart", "--", "sh", "-c", script, lives.to_str().unwrap()];
    let task = comb.command(&program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    comb.wait_for("its first life", || lives.exists().then_some(()));
    comb.ok(&["cell", "kill", "1"]);
    let ended = task.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "whole\n", "{ended:?}");
    // Whoever does not ask for it has the end of its program in no time, and learns what the agent knows.
}
