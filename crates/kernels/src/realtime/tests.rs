use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use comb_kernel::calls::Direct;
use comb_kernel::client::Client;
use comb_kernel::objects::{Access, Groups, KernelDescriptor, KernelLoad, Locks, Refused, Sizes};
use comb_kernel::programs;
use comb_kernel::server::Server;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::Supervisor;

use super::*;

const TASK: Task<'_> =
    Task { program: programs::WORKS, priority: USUAL_PRIORITY, locked: true, frame: 128, processor: None };
const SMALL: Sizes = Sizes { kernels: 4, spaces: 8, threads: 8, mappings: 64, writebacks: 1024, seed: 1 };

fn alone(task: &Task<'_>) -> Result<Realtime<Direct>, Failure> {
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 2).unwrap();
    Realtime::new(Direct::new(supervisor, kernel), task)
}

#[test]
fn work_is_done_once_in_each_period() {
    let mut realtime = alone(&TASK).unwrap();
    let kept = realtime.run(1000, Duration::from_millis(1), 50).unwrap();
    assert_eq!(kept.took.len(), 50);
    assert_eq!(kept.missed, kept.took.iter().filter(|took| **took > Duration::from_millis(1)).count());
    assert!(kept.latest() >= kept.took[0]);
    // The word that it counts down is nothing when it says that it has done.
    // SAFETY: a frame of this kernel's; its program is stopped.
    let word =
        unsafe { realtime.calls.memory().as_ptr().add(129 * PAGE_BYTES).cast::<u64>().read_volatile() };
    assert_eq!(word, 0);
    // More work takes longer.
    let little = (0..20).map(|_| realtime.once(1000).unwrap()).min().unwrap();
    let much = (0..20).map(|_| realtime.once(1_000_000).unwrap()).min().unwrap();
    assert!(much > little * 2, "{little:?}, {much:?}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let said = |task: Task<'_>| alone(&task).unwrap_err().to_string();
    assert_eq!(
        said(Task { frame: 256, ..TASK }),
        "frame 256 is not granted, and two are needed from there on"
    );
    assert_eq!(
        said(Task { frame: 255, ..TASK }),
        "frame 255 is not granted, and two are needed from there on"
    );
    assert_eq!(
        said(Task { program: &[0x90; 4097], ..TASK }),
        "a program of 4097 bytes is longer than a page"
    );
    // Its first instruction is none.
    let mut realtime = alone(&Task { program: &[0x0f, 0x0b], ..TASK }).unwrap();
    assert!(matches!(realtime.once(1), Err(Failure::Ended(Some(Stop::Exception { .. })))));
}

/// Another kernel loads more than there is room for, again and again, until it is told to stop.
fn crowd(mut calls: Client, told: &std::sync::mpsc::Receiver<()>, loaded: &AtomicU64) {
    while told.try_recv().is_err() {
        let space = calls.load_space(SpaceLoad { tag: Tag(1), locked: false });
        if let Ok(space) = space {
            let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked: false };
            loaded.fetch_add(calls.load_thread(load, &State::default(), 0).is_ok().into(), Relaxed);
            let _ = calls.load_mappings(&Mapping::read(space, 0x1000, 0), 64);
        }
        while let Ok(Some(_)) = calls.take_writeback() {}
    }
}

#[test]
fn what_is_locked_stays_while_others_fill_the_tables() {
    let (tells_ends, ends) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (mut supervisor, first) = Supervisor::new(SMALL, 2).unwrap();
        let locks = Locks { kernels: 0, spaces: 1, threads: 1, mappings: 2 };
        let mut kernel = |locks| {
            let groups = Groups::new(256, Access::ReadWrite);
            let (processor_shares, maximum_priority) = (Vec::new(), USUAL_PRIORITY);
            let descriptor = KernelDescriptor { groups, processor_shares, maximum_priority, locks };
            let load = KernelLoad {
                tag: Tag(7),
                descriptor,
                locked: locks != Locks::default(),
                waiting: VecDeque::new(),
            };
            supervisor.load_kernel(first, load).unwrap()
        };
        let kernels = [kernel(locks), kernel(Locks::default()), kernel(Locks::default())];
        let mut server = Server::new(supervisor);
        tells_ends.send(kernels.map(|kernel| server.open(kernel).unwrap())).unwrap();
        server.run(0);
    });
    let [own, without_locks, crowding] = ends.recv().unwrap().map(|end| Client::new(end, 0).unwrap());
    let refused = Realtime::new(without_locks, &TASK).err();
    assert_eq!(refused, Some(Failure::Call(CallError::Refused(Refused::LockLimit))));
    let mut realtime = Realtime::new(own, &TASK).unwrap();
    let loaded = Arc::new(AtomicU64::new(0));
    let (stop, stops) = std::sync::mpsc::channel();
    let counts = Arc::clone(&loaded);
    let crowd = std::thread::spawn(move || crowd(crowding, &stops, &counts));
    // As many as there is room for, many times over.
    let since = Instant::now();
    while loaded.load(Relaxed) < 10 * u64::from(SMALL.threads) {
        realtime.run(1000, Duration::from_millis(1), 10).unwrap();
        assert!(since.elapsed() < Duration::from_secs(60), "others load nothing");
    }
    assert_eq!(realtime.calls.take_writeback(), Ok(None));
    stop.send(()).unwrap();
    crowd.join().unwrap();
    drop(realtime);
    server.join().unwrap();
}
