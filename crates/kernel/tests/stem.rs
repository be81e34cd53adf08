//! The process that those of spaces are copies of: programs do not reach it, spaces go on without it, and it ends with its supervisor.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use comb_kernel::frames::{Frame, Frames};
use comb_kernel::host::Rights;
use comb_kernel::space::{Bell, Common, Space};
use comb_kernel::thread::{Area, Registers, Stop};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, pidfd_send_signal,
    setrlimit,
};

const CODE_PAGE: u64 = 0x400;

/// A program that makes one call after the other, and its thread.
struct World {
    bell: Bell,
    space: Space,
}

impl World {
    fn new(common: &Common) -> Self {
        let frames = Frames::new(1).unwrap();
        // 1: syscall; jmp 1b
        frames.write(Frame(0), 0, &[0x0f, 5, 0xeb, 0xfc]);
        let bell = Bell::new().unwrap();
        let mut space = Space::new(common, &bell).unwrap();
        space.map(&frames, CODE_PAGE, Frame(0), 1, Rights { write: false, execute: true }).unwrap();
        space.add_thread(0, &Registers { rip: CODE_PAGE << 12, ..Registers::default() }, 0, 0).unwrap();
        let world = Self { bell, space };
        assert_eq!(world.stopped(), Stop::Begins);
        world
    }

    fn area(&self) -> Area<'_> {
        Area::of(&self.space, 0)
    }

    fn stopped(&self) -> Stop {
        for _ in 0..500 {
            if self.area().is_stopped() {
                return self.area().stop().expect("it says why");
            }
            self.bell.listen(0, Some(Duration::from_millis(20)), |_| {});
        }
        panic!("it does not stop");
    }

    fn goes_on(&self) -> bool {
        self.area().resume();
        self.stopped() == Stop::Call { is_foreign: false }
    }
}

fn process(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).unwrap()
}

/// Waits for the end of a process.
fn ends(process: BorrowedFd<'_>) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    poll(&mut ends, Some(&rustix::time::Timespec { tv_sec: 30, tv_nsec: 0 })) == Ok(1)
}

fn is_there(number: u32) -> bool {
    // One that nobody has waited for yet is there in name only.
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, state)| !state.starts_with(" Z") && !state.starts_with(" X"))
}

const CHILD: &str = "COMB_STEM_TEST";

/// One of these tests, in a process of its own.
fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    command
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn spaces_are_loaded_and_go_on_though_the_stem_is_killed() {
    let common = Common::new().unwrap();
    assert_eq!(common.stem(), None);
    let mut worlds = vec![World::new(&common)];
    for signal in [Signal::KILL, Signal::KILL, Signal::KILL, Signal::STOP] {
        let stem = common.stem().unwrap();
        worlds.push(World::new(&common));
        assert_eq!(common.stem(), Some(stem), "it is the same as long as it lives");
        kill_process(process(stem), signal).unwrap();
        worlds.push(World::new(&common));
        assert_ne!(common.stem(), Some(stem), "{signal:?}");
    }
    assert!(worlds.iter().all(World::goes_on));
    drop(common);
    assert!(worlds.iter().all(World::goes_on));
}

#[test]
fn what_a_thread_loads_does_not_end_with_another() {
    let common = &Common::new().unwrap();
    let (leave, may_leave) = std::sync::mpsc::channel();
    let (give, given) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            give.send(World::new(common)).unwrap();
            may_leave.recv().unwrap();
        });
        let of_the_other = given.recv().unwrap();
        let own = World::new(common);
        leave.send(()).unwrap();
        other.join().unwrap();
        assert!(ends(of_the_other.space.descriptor()), "it is its thread's");
        assert!(own.goes_on());
    });
}

#[test]
fn threads_that_load_at_once_have_spaces_of_their_own() {
    let common = Common::new().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let worlds: Vec<World> = (0..8).map(|_| World::new(&common)).collect();
                assert!(worlds.iter().all(World::goes_on));
            });
        }
    });
    // The last one's stem has ended with it.
    assert!(World::new(&common).goes_on());
}

/// Which of the host's files a process has in its memory, by what the host says of them.
fn files(process: u32) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let fields = |line: &str| line.split_ascii_whitespace().skip(3).map(String::from).collect::<Vec<_>>();
    maps.lines().map(fields).filter(|fields| fields[1] != "0").map(|fields| fields[1..].join(" ")).collect()
}

#[test]
fn a_space_has_nothing_of_the_stems_but_what_nobody_writes() {
    let common = Common::new().unwrap();
    let worlds = [World::new(&common), World::new(&common)];
    let [stem, one, other] =
        [common.stem().unwrap(), worlds[0].space.process(), worlds[1].space.process()].map(files);
    let own = |all: &BTreeSet<String>, name: &str| all.iter().any(|file| file.contains(name));
    assert!(own(&stem, "comb-orders") && own(&one, "comb-orders") && own(&one, "comb-areas"), "{one:?}");
    for shared in [stem.intersection(&one), stem.intersection(&other), one.intersection(&other)] {
        let shared: Vec<&String> = shared.collect();
        let is_everybodys = |file: &&String| file.contains("comb-stub") || file.contains("comb-version");
        assert!(shared.len() == 2 && shared.iter().all(is_everybodys), "{shared:?}");
    }
}

/// What programs jump to is the stub's own code, which can do more in the mapper's place and in the stem's.
#[test]
fn no_program_reaches_the_stem_from_anywhere_in_the_stub() {
    const STUB: u64 = 0x7000_0000_0000;
    let common = Common::new().unwrap();
    let world = World::new(&common);
    let stem = common.stem().unwrap();
    let memory = std::fs::File::open(format!("/proc/{}/mem", world.space.process())).unwrap();
    let mut code = [0; 4096];
    memory.read_exact_at(&mut code, STUB).unwrap();
    let places = (0..).zip(code.windows(2)).filter(|(_, bytes)| *bytes == [0x0f, 5]).map(|(at, _)| STUB + at);
    let places: Vec<u64> = places.collect();
    assert!(places.len() > 10, "the stub makes calls");
    let signal = libc::SIGKILL as u64;
    let calls = [
        (libc::SYS_kill, [stem.into(), signal, 0]),
        (libc::SYS_tgkill, [stem.into(), stem.into(), signal]),
        (libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, 0, 0]),
        (libc::SYS_getppid, [0; 3]),
        (libc::SYS_ioctl, [0, 0xc020_aa00, 0]),
        (libc::SYS_clone, [(libc::CLONE_PARENT | libc::CLONE_FILES) as u64, 0, 0]),
        (libc::SYS_process_vm_writev, [stem.into(), 0, 0]),
        (libc::SYS_ptrace, [libc::PTRACE_ATTACH.into(), stem.into(), 0]),
    ];
    for rip in places {
        for (number, [rdi, rsi, rdx]) in calls {
            let rax = number.cast_unsigned();
            let registers = Registers { rip, rax, rdi, rsi, rdx, ..Registers::default() };
            world.area().set_registers(&registers).unwrap();
            assert!(world.goes_on(), "{number} at {rip:x}");
        }
    }
    assert!(is_there(stem));
    let threads = std::fs::read_dir(format!("/proc/{}/task", world.space.process())).unwrap();
    let own = |path: std::path::PathBuf| std::fs::read_dir(path.join("fd")).unwrap().count();
    let mut descriptors: Vec<usize> = threads.map(|thread| own(thread.unwrap().path())).collect();
    descriptors.sort_unstable();
    assert!(descriptors.len() == 2 && descriptors[0] == 0, "a program's thread has none: {descriptors:?}");
}

#[test]
fn the_stem_and_all_spaces_end_with_their_supervisor() {
    if is_child() {
        let common = Common::new().unwrap();
        let worlds = [World::new(&common), World::new(&common)];
        let [one, other] = worlds.each_ref().map(|world| world.space.process());
        println!("\nprocesses {} {one} {other}", common.stem().unwrap());
        loop {
            std::thread::park();
        }
    }
    let mut supervisor =
        child("the_stem_and_all_spaces_end_with_their_supervisor").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(supervisor.stdout.take().unwrap()).lines();
    let told = lines.map(Result::unwrap).find(|line| line.starts_with("processes ")).expect("it says which");
    let numbers: Vec<u32> = told.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 3);
    let open = |number: &u32| pidfd_open(process(*number), PidfdFlags::empty()).unwrap();
    let processes: Vec<_> = numbers.iter().map(open).collect();
    assert!(numbers.iter().all(|number| is_there(*number)));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let ended: Vec<bool> = processes.iter().map(|process| ends(process.as_fd())).collect();
    // What has not must not outlive this.
    for process in processes {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    assert_eq!(ended, [true; 3]);
}

/// What a mapper opens counts by the limits that it has from the stem.
#[test]
fn who_may_have_more_descriptors_than_when_the_stem_was_made_loads_more_spaces() {
    if !is_child() {
        let name = "who_may_have_more_descriptors_than_when_the_stem_was_made_loads_more_spaces";
        assert!(child(name).status().unwrap().success());
        return;
    }
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limits }).unwrap();
    let common = Common::new().unwrap();
    let first = World::new(&common);
    let stem = common.stem();
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..limits }).unwrap();
    let many: Vec<OwnedFd> = (0..100).map(|_| first.space.areas().try_clone_to_owned().unwrap()).collect();
    let worlds = [first, World::new(&common), World::new(&common)];
    assert!(worlds.iter().all(World::goes_on) && common.stem() != stem && many.len() == 100);
}
