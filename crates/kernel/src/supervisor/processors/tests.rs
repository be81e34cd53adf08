use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};

use super::*;
use crate::frames::Frame;
use crate::objects::{
    Access, Groups, KernelDescriptor, KernelLoad, Locks, Mapping, Sizes, SpaceLoad, Tag, ThreadLoad,
};
use crate::shares::HIGHEST_USUAL_PRIORITY;
use crate::supervisor::State;
use crate::thread::Registers;

const SIZES: Sizes = Sizes { kernels: 8, spaces: 8, threads: 16, mappings: 64, writebacks: 64, seed: 1 };
const FOREVER: &[u8] = &[0xeb, 0xfe];
const CODE_PAGE: u64 = 0x400;
const LONG: Duration = Duration::from_secs(60);

struct World {
    supervisor: Supervisor,
    first: KernelId,
}

impl World {
    fn new() -> Self {
        let (supervisor, first) = Supervisor::new(SIZES, 2).unwrap();
        supervisor.frames().write(Frame(0), 0, FOREVER);
        Self { supervisor, first }
    }

    fn kernel(&mut self, share: u8, maximum_priority: u8) -> KernelId {
        let processor_shares = vec![share; count()];
        let groups = Groups::new(256, Access::ReadWrite);
        let descriptor =
            KernelDescriptor { groups, processor_shares, maximum_priority, locks: Locks::default() };
        let load = KernelLoad { tag: Tag(share.into()), descriptor, locked: false, waiting: VecDeque::new() };
        self.supervisor.load_kernel(self.first, load).unwrap()
    }

    /// A thread that computes for ever, on one processor with all others.
    fn computing(&mut self, kernel: KernelId, priority: u8) -> Result<ThreadId, CallError> {
        let supervisor = &mut self.supervisor;
        let space = supervisor.load_space(kernel, SpaceLoad { tag: Tag(1), locked: false })?;
        let code = Mapping { executable: true, ..Mapping::read(space, CODE_PAGE, 0) };
        supervisor.load_mappings(kernel, &code, 1)?;
        let registers = Registers { rip: CODE_PAGE << 12, ..Registers::default() };
        let state = State { registers, ..State::default() };
        let load = ThreadLoad { tag: Tag(2), space, priority, locked: false };
        let thread = supervisor.load_thread(kernel, load, &state, 0)?;
        supervisor.keep_on(kernel, thread, Some(first_processor()))?;
        supervisor.area(kernel, thread)?.resume();
        Ok(thread)
    }

    fn all_used(&self, kernel: KernelId) -> Duration {
        self.supervisor.used(kernel).iter().sum()
    }

    fn run_until(&mut self, mut is_enough: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !is_enough(self) {
            assert!(since.elapsed() < LONG, "it does not happen");
            std::thread::sleep(Duration::from_millis(1));
            self.supervisor.look_after_shares();
        }
    }

    /// Policy, nice value and real-time priority, as the host has them.
    fn on_the_host(&self, thread: ThreadId) -> [i32; 3] {
        let runner = self.supervisor.machine.threads[usize::from(thread.slot())].unwrap();
        let place = self.supervisor.machine.spaces[usize::from(runner.space)].as_ref().unwrap();
        let thread = place.threads[runner.area as usize].number;
        let text =
            std::fs::read_to_string(format!("/proc/{}/task/{thread}/stat", place.space.process())).unwrap();
        let fields: Vec<i32> = text
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        // What is said of weights counts for usual threads only.
        let nice = if fields[38] == libc::SCHED_OTHER { fields[16] } else { 0 };
        [fields[38], nice, fields[37]]
    }
}

fn first_processor() -> u32 {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).find(|processor| set.is_set(*processor as usize)).unwrap()
}

/// Whether this user may have threads that the host prefers.
fn may_have_real_time() -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let text = |thread| std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    std::thread::spawn(move || {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_ne!(own, thread);
        Class::RealTime { priority: 1 }.apply(thread);
        text(thread).rsplit_once(')').unwrap().1.split_whitespace().nth(38) == Some("2")
    })
    .join()
    .unwrap()
}

#[test]
fn beside_another_a_kernel_has_its_share_of_a_processor() {
    // Who looks after shares has to be in time.
    Class::SUPERVISOR.apply(0);
    let mut world = World::new();
    let (limited, other) = (world.kernel(5, 40), world.kernel(99, 40));
    let began = Instant::now();
    world.computing(limited, USUAL_PRIORITY).unwrap();
    world.computing(other, USUAL_PRIORITY).unwrap();
    world.run_until(|world| world.all_used(other) > Duration::from_secs(2));
    // Without limits it would be as much as the other has. Where this may not outrank others it is not always in time.
    let (has, most) = (world.all_used(limited), began.elapsed() / 20);
    assert!(has < most * 3 / 2 + Duration::from_millis(100) && has > Duration::ZERO, "{has:?} of {most:?}");
}

#[test]
fn who_is_demoted_is_idle_on_the_host_and_comes_back() {
    let mut world = World::new();
    let limited = world.kernel(1, 40);
    let thread = world.computing(limited, USUAL_PRIORITY).unwrap();
    let idle = [libc::SCHED_IDLE, 0, 0];
    assert_eq!(world.on_the_host(thread), [libc::SCHED_OTHER, 0, 0]);
    world.run_until(|world| world.on_the_host(thread) == idle);
    // It goes on, as long as there is anything left, and is promoted once it has stopped for a while.
    world.supervisor.interrupt(limited, thread).unwrap();
    let has_stopped = |world: &World| world.supervisor.area(limited, thread).unwrap().is_stopped();
    world.run_until(|world| has_stopped(world) && world.on_the_host(thread) != idle);
    world.supervisor.area(limited, thread).unwrap().resume();
    world.run_until(|world| world.on_the_host(thread) == idle);
    // A greater grant counts at once.
    world.supervisor.set_processor_shares(world.first, limited, &[]).unwrap();
    assert_ne!(world.on_the_host(thread), idle);
}

#[test]
fn priorities_are_the_hosts_own() {
    let mut world = World::new();
    let kernel = world.kernel(100, 60);
    let thread = world.computing(kernel, 5).unwrap();
    assert_eq!(world.on_the_host(thread), [libc::SCHED_OTHER, 15, 0]);
    let refused = world.computing(kernel, 61).unwrap_err();
    assert_eq!(refused.to_string(), "priority 61 is above 60, the highest that this kernel has");
    if !may_have_real_time() {
        return;
    }
    world.supervisor.set_priority(kernel, thread, HIGHEST_USUAL_PRIORITY + 7).unwrap();
    assert_eq!(world.on_the_host(thread), [libc::SCHED_RR, 0, 7]);
    world.supervisor.set_maximum_priority(world.first, kernel, 30).unwrap();
    assert_eq!(world.on_the_host(thread), [libc::SCHED_OTHER, -10, 0]);
    world.supervisor.set_priority(kernel, thread, 0).unwrap();
    assert_eq!(world.on_the_host(thread), [libc::SCHED_IDLE, 0, 0]);
}

#[test]
fn threads_of_one_real_time_priority_take_turns() {
    if !may_have_real_time() {
        return;
    }
    let mut world = World::new();
    let kernels = [world.kernel(99, 50), world.kernel(99, 50)];
    let threads = kernels.map(|kernel| world.computing(kernel, 50).unwrap());
    // Each is charged twice what it uses, so it runs out of share, too: before that both have had slices.
    world
        .run_until(|world| kernels.iter().all(|kernel| world.all_used(*kernel) > Duration::from_millis(150)));
    for (kernel, thread) in kernels.into_iter().zip(threads) {
        world.supervisor.unload_thread(kernel, thread).unwrap();
    }
}

/// A process that is ended with the test.
struct Shell(Child);

impl Shell {
    fn descriptor(&self) -> OwnedFd {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()).unwrap()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_kernel_can_have_its_own_process_preferred_up_to_its_highest() {
    let mut world = World::new();
    let kernel = world.kernel(100, 30);
    assert_eq!(world.supervisor.set_own_priority(kernel, 5), Err(CallError::NoProcess));
    let no_process = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(world.supervisor.charge_process(kernel, no_process.as_fd()), Err(CallError::NoProcess));
    let shell = Shell(Command::new("sleep").arg("60").spawn().unwrap());
    world.supervisor.charge_process(kernel, shell.descriptor().as_fd()).unwrap();
    let nice = |shell: &Shell| {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", shell.0.id())).unwrap();
        text.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().to_owned()
    };
    world.supervisor.set_own_priority(kernel, 5).unwrap();
    assert_eq!(nice(&shell), "15");
    let refused = Refused::Priority { asked: 31, maximum: 30 };
    assert_eq!(world.supervisor.set_own_priority(kernel, 31), Err(refused.into()));
    world.supervisor.set_maximum_priority(world.first, kernel, 2).unwrap();
    assert_eq!(nice(&shell), "18");
}

#[test]
fn a_kernels_own_process_is_charged_and_demoted() {
    let mut world = World::new();
    let kernel = world.kernel(1, 40);
    let shell = Shell(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    world.supervisor.charge_process(kernel, shell.descriptor().as_fd()).unwrap();
    let policy = |shell: &Shell| {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", shell.0.id())).unwrap();
        text.rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap().to_owned()
    };
    world.run_until(|_| policy(&shell) == libc::SCHED_IDLE.to_string());
    assert!(world.all_used(kernel) > Duration::ZERO);
    // It cannot ask itself out of that.
    world.supervisor.set_own_priority(kernel, 30).unwrap();
    assert_eq!(policy(&shell), libc::SCHED_IDLE.to_string());
    // A greater grant counts at once, though nobody is limited any more.
    world.supervisor.set_processor_shares(world.first, kernel, &[]).unwrap();
    assert_eq!(policy(&shell), libc::SCHED_OTHER.to_string());
    // It is not looked at any more once the kernel has gone.
    world.supervisor.unload_kernel(world.first, kernel).unwrap();
    assert!(world.supervisor.machine.processes.is_empty());
}
