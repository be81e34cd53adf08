//! A manager, its supervisor, and kernels in processes of their own, which are this file's programs.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use comb_kernel::calls::First;
use comb_kernel::client::Client;
use comb_kernel::objects::{FRAMES_IN_GROUP, Locks, Refused, Sizes, Tag};
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::CallError;
use comb_kernels::resources::{
    Allotment, Capacity, Free, Manager, ManagerError, Network, NoNetwork, Overcommitted, own_line,
};

#[path = "resources/peers.rs"]
mod peers;
#[path = "resources/programs.rs"]
mod programs;

/// What a kernel is to do stands behind it. To the tests' harness it is one more name of a test, which there is not.
const KIND: &str = "kernel=";
const SIZES: Sizes = Sizes { kernels: 8, spaces: 16, threads: 32, mappings: 512, writebacks: 256, seed: 5 };
const GROUPS: u32 = 16;
/// The first group is the manager's own.
const CAPACITY: u32 = 8;
/// Who waits for longer waits for nothing.
const LIMIT: Duration = Duration::from_secs(60);

/// A kernel: what its manager has started.
#[test]
fn program() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(kind) = arguments.iter().find_map(|argument| argument.strip_prefix(KIND)) else { return };
    let line = own_line().unwrap();
    if kind == "supervises" {
        return programs::supervise(&line, SIZES, GROUPS);
    }
    let client = Client::by_line(line, 0).unwrap();
    match kind {
        "counts" => programs::count(client, false),
        "is steady" => programs::count(client, true),
        "takes all" => programs::take_all(client),
        "leaves" => {}
        "gives up" => {
            drop(client);
            std::thread::sleep(LIMIT);
        }
        other => panic!("{other}"),
    }
}

/// Of this test, as a kernel of that kind.
fn arguments(kind: &str) -> Vec<String> {
    let kind = format!("{KIND}{kind}");
    ["--exact", "program", "--nocapture", "--test-threads=1", &kind].map(str::to_owned).into()
}

fn kernel(kind: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments(kind)).stdout(Stdio::null());
    command
}

fn allotment(groups: u32) -> Allotment {
    let processor_shares = vec![10, 10];
    Allotment { groups, processor_shares, maximum_priority: USUAL_PRIORITY, ..Allotment::default() }
}

struct Cell {
    manager: Option<Manager<Client>>,
    supervisor: Child,
    directory: std::path::PathBuf,
}

impl Cell {
    fn new(name: &str) -> Self {
        Self::with_network(name, Box::new(NoNetwork))
    }

    fn with_network(name: &str, network: Box<dyn Network>) -> Self {
        let (line, other) = UnixStream::pair().unwrap();
        let supervisor = kernel("supervises").stdin(OwnedFd::from(other)).spawn().unwrap();
        let client = Client::by_line(line, 0).unwrap();
        let capacity = Capacity {
            groups: 1..1 + CAPACITY,
            processor_shares: vec![100, 100],
            maximum_priority: USUAL_PRIORITY,
            network: 1_000_000,
            kernels: SIZES.kernels - 1,
        };
        let directory = std::env::temp_dir().join(format!("comb-manager-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let manager = Manager::new(client, capacity, directory.clone(), network);
        Self { manager: Some(manager), supervisor, directory }
    }

    fn manager(&mut self) -> &mut Manager<Client> {
        self.manager.as_mut().unwrap()
    }

    fn start(&mut self, kind: &str, groups: u32) -> Tag {
        self.manager().start(kind, kernel(kind), &allotment(groups)).unwrap()
    }

    /// A word that a kernel has written for whoever looks: in the last frame of its first group.
    fn word(&mut self, kernel: Tag, word: usize) -> u64 {
        let manager = self.manager();
        let group = manager.book().groups(kernel)[0];
        let mut bytes = [0; 8];
        manager.calls().read(programs::told(group), word * 8, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Waits until something is so, while all kernels go on.
    #[track_caller]
    fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            let ended = self.manager().look_after().unwrap();
            assert_eq!(ended, [], "no kernel has found anything wrong");
            assert!(since.elapsed() < LIMIT, "it does not go on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    fn wait_for_count(&mut self, kernel: Tag, more: u64) {
        let before = self.word(kernel, programs::COUNT);
        self.wait(|cell| cell.word(kernel, programs::COUNT) >= before + more);
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        drop(self.manager.take());
        let _ = std::fs::remove_dir(&self.directory);
        if std::thread::panicking() {
            let _ = self.supervisor.kill();
        }
        let status = self.supervisor.wait().unwrap();
        assert!(std::thread::panicking() || status.success(), "the supervisor has ended: {status}");
    }
}

fn free(groups: u32, kernels: u32) -> Free {
    Free { groups, processor_shares: vec![100, 100], network: 1_000_000, kernels }
}

#[test]
fn a_kernel_that_is_swapped_out_goes_on_where_it_was_in_other_memory() {
    let mut cell = Cell::new("swap");
    let counts = cell.start("counts", 3);
    assert_eq!(cell.manager().book().groups(counts), [1, 2, 3]);
    cell.wait_for_count(counts, 100);

    cell.manager().swap_out(counts).unwrap();
    assert_eq!(cell.manager().book().free(), free(CAPACITY, SIZES.kernels - 1));
    let again = cell.manager().swap_out(counts);
    assert!(matches!(again, Err(ManagerError::SwappedOut(_))), "{again:?}");
    let mut page = [1; 4096];
    for frame in FRAMES_IN_GROUP..4 * FRAMES_IN_GROUP {
        cell.manager().calls().read(frame, 0, &mut page);
        assert!(page.iter().all(|byte| *byte == 0), "the host has its memory again");
    }
    let files = std::fs::read_dir(&cell.directory).unwrap().count();
    assert_eq!(files, 1);

    // Others use what it had, and there is not enough left for it.
    let [other, one_more] = [cell.start("counts", 4), cell.start("counts", 2)];
    assert_eq!(cell.manager().book().groups(other), [1, 2, 3, 4]);
    cell.wait_for_count(other, 100);
    let refused = cell.manager().swap_in(counts);
    assert!(
        matches!(refused, Err(ManagerError::Overcommitted(Overcommitted::Groups { asked: 3, free: 2 }))),
        "{refused:?}"
    );
    cell.manager().end(one_more).unwrap();
    cell.manager().swap_in(counts).unwrap();
    assert_eq!(cell.manager().book().groups(counts), [5, 6, 7]);
    cell.wait(|cell| cell.word(counts, programs::RELOADS) == 1);
    let before = cell.word(counts, programs::COUNT);
    assert!(before >= 100, "{before}: it counts from where it was");
    cell.wait_for_count(counts, 100);
    cell.wait_for_count(other, 100);

    // And once more elsewhere.
    cell.manager().swap_out(counts).unwrap();
    let one_more = cell.start("counts", 1);
    cell.manager().swap_in(counts).unwrap();
    assert_eq!(cell.manager().book().groups(counts), [6, 7, 8]);
    cell.wait_for_count(counts, 100);
    cell.manager().end(one_more).unwrap();

    // Wherever they are when they are stopped, they go on there.
    for round in 1..11 {
        for kernel in [counts, other] {
            let before = cell.word(kernel, programs::COUNT);
            cell.manager().swap_out(kernel).unwrap();
            cell.manager().swap_in(kernel).unwrap();
            let reloads = if kernel == counts { 2 + round } else { round };
            cell.wait(|cell| cell.word(kernel, programs::RELOADS) == reloads);
            cell.wait_for_count(kernel, 1 + round);
            assert!(cell.word(kernel, programs::COUNT) > before);
        }
    }
    // Even one that has not begun yet.
    let late = cell.start("counts", 1);
    cell.manager().swap_out(late).unwrap();
    cell.manager().swap_in(late).unwrap();
    cell.wait_for_count(late, 10);
    // One that is out can be ended, too.
    cell.manager().swap_out(counts).unwrap();
    cell.manager().end(counts).unwrap();
    assert_eq!(std::fs::read_dir(&cell.directory).unwrap().count(), 0);
    cell.wait_for_count(other, 10);
}

#[test]
fn grants_change_while_a_kernel_runs() {
    let mut cell = Cell::new("grants");
    let kernel = cell.start("counts", 2);
    cell.wait(|cell| cell.word(kernel, programs::GROUPS) == 2);
    cell.manager().grant(kernel, 3).unwrap();
    cell.wait(|cell| cell.word(kernel, programs::GROUPS) == 5);
    cell.manager().take(kernel, 2).unwrap();
    cell.wait(|cell| cell.word(kernel, programs::GROUPS) == 3);
    cell.wait_for_count(kernel, 10);
    assert_eq!(cell.manager().book().free().groups, CAPACITY - 3);
    let refused = cell.manager().grant(kernel, CAPACITY);
    assert!(matches!(
        refused,
        Err(ManagerError::Overcommitted(Overcommitted::Groups { asked: CAPACITY, free: 5 }))
    ));
    cell.manager().set_processor_shares(kernel, &[40, 40]).unwrap();
    cell.manager().set_maximum_priority(kernel, 20).unwrap();
    cell.manager().set_network(kernel, 400_000).unwrap();
    let refused = cell.manager().set_maximum_priority(kernel, 21);
    assert!(matches!(refused, Err(ManagerError::Overcommitted(Overcommitted::Priority { .. }))));
    let too_much = Allotment { processor_shares: vec![61], ..Allotment::default() };
    let refused = cell.manager().start("counts", self::kernel("counts"), &too_much);
    assert!(matches!(
        refused,
        Err(ManagerError::Overcommitted(Overcommitted::Processor { processor: 0, asked: 61, free: 60 }))
    ));
    let before = cell.manager().book().free();
    let locks = Locks { spaces: SIZES.spaces, ..Locks::default() };
    let refused =
        cell.manager().start("counts", self::kernel("counts"), &Allotment { locks, ..allotment(1) });
    assert!(matches!(refused, Err(ManagerError::Call(CallError::Refused(Refused::TooManyLocks)))));
    assert_eq!(cell.manager().book().free(), before);
    cell.wait_for_count(kernel, 10);
}

#[test]
fn what_a_kernel_had_is_given_back_when_it_ends() {
    let mut cell = Cell::new("ends");
    let all = cell.manager().book().free();
    for (kind, has_succeeded) in [("leaves", true), ("gives up", false), ("unheard of", false)] {
        let kernel = cell.start(kind, 3);
        let since = Instant::now();
        let ended = loop {
            assert!(since.elapsed() < LIMIT, "{kind}: it is not heard of");
            if let Some(ended) = cell.manager().look_after().unwrap().pop() {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((ended.kernel, ended.name.as_str()), (kernel, kind));
        assert_eq!(ended.status.success(), has_succeeded, "{kind}: {:?}", ended.status);
        assert_eq!(cell.manager().book().free(), all);
        assert_eq!(cell.manager().running(), []);
        assert!(matches!(cell.manager().end(kernel), Err(ManagerError::NoKernel(_))));
    }
    let missing = Command::new("/there/is/no/such/program");
    let refused = cell.manager().start("missing", missing, &allotment(1));
    assert!(matches!(refused, Err(ManagerError::Host { .. })), "{refused:?}");
    assert_eq!(cell.manager().book().free(), all);
}

#[test]
fn a_kernel_that_takes_all_it_can_displaces_nothing_that_is_locked_and_stops_nobody() {
    let mut cell = Cell::new("rogue");
    let steady = Allotment {
        groups: 1,
        processor_shares: vec![50, 50],
        maximum_priority: USUAL_PRIORITY,
        locks: Locks { kernels: 0, spaces: 1, threads: 1, mappings: 4 },
        locked: true,
        ..Allotment::default()
    };
    let steady = cell.manager().start("is steady", kernel("is steady"), &steady).unwrap();
    cell.wait_for_count(steady, 10);
    let free = cell.manager().book().free();
    let rogue = Allotment {
        groups: CAPACITY - 1,
        processor_shares: vec![20, 20],
        maximum_priority: USUAL_PRIORITY,
        ..Allotment::default()
    };
    let rogue = cell.manager().start("takes all", kernel("takes all"), &rogue).unwrap();
    for _ in 0..3 {
        // The one goes on while the other does its worst.
        cell.wait_for_count(rogue, 10);
        cell.wait_for_count(steady, 50);
    }
    cell.wait(|cell| cell.word(rogue, programs::DISPLACED) > 0);
    cell.wait_for_count(steady, 50);
    // Whatever it does, it can be stopped and be gone on with.
    for _ in 0..3 {
        let before = cell.word(rogue, programs::COUNT);
        cell.manager().swap_out(rogue).unwrap();
        assert_eq!(cell.manager().book().free(), free);
        cell.wait_for_count(steady, 50);
        cell.manager().swap_in(rogue).unwrap();
        assert!(cell.word(rogue, programs::COUNT) >= before);
        cell.wait_for_count(rogue, 20);
    }
    let ended = cell.manager().end(rogue).unwrap();
    assert!(!ended.status.success());
    assert_eq!(cell.manager().book().free(), free);
    cell.wait_for_count(steady, 100);
    assert_eq!(cell.word(steady, programs::RELOADS), 0);
}

/// What a network has been told, and what it says that kernels have used.
#[derive(Clone, Default)]
struct Told {
    used: Rc<RefCell<u64>>,
    words: Rc<RefCell<Vec<(&'static str, Tag)>>>,
}

impl Network for Told {
    fn used(&mut self, _: Tag) -> u64 {
        *self.used.borrow()
    }

    fn disconnect(&mut self, kernel: Tag) {
        self.words.borrow_mut().push(("off", kernel));
    }

    fn connect(&mut self, kernel: Tag) {
        self.words.borrow_mut().push(("on", kernel));
    }
}

#[test]
fn who_uses_more_of_the_network_than_it_has_is_cut_off_and_nobody_else() {
    let told = Told::default();
    let mut cell = Cell::with_network("network", Box::new(told.clone()));
    let mut start = |network| {
        let allotment = Allotment { groups: 1, network, ..Allotment::default() };
        cell.manager().start("counts", kernel("counts"), &allotment).unwrap()
    };
    let [little, much] = [start(1000), start(900_000)];
    let second = Duration::from_secs(1);
    *told.used.borrow_mut() = 5000;
    cell.manager().look_at_network(second);
    assert_eq!(*told.words.borrow(), [("off", little)]);
    cell.manager().set_network(little, 4000).unwrap();
    cell.manager().look_at_network(second);
    assert_eq!(*told.words.borrow(), [("off", little), ("on", little)]);
    *told.used.borrow_mut() = 5_000_000;
    cell.manager().look_at_network(second);
    assert_eq!(told.words.borrow()[2..], [("off", little), ("off", much)]);
    let refused = cell.manager().set_network(much, 996_001);
    assert!(matches!(
        refused,
        Err(ManagerError::Overcommitted(Overcommitted::Network { asked: 996_001, free: 996_000 }))
    ));
}
