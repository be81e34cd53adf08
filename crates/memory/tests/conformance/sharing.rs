//! What other processes have of it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use comb_memory::Access::Invalid;
use comb_memory::{Control, Grain, Layout, Memory, MemoryError, MemoryOptions, large, pointer};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::Kind;
use crate::isolation::passes;
use crate::world::begin;

pub(crate) fn forked(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    world.store(3, 1);
    world.stops();
    let (mut said, words) = std::io::pipe().unwrap();
    // SAFETY: the child does only what may be done between fork and exec.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: descriptors of its own.
        unsafe { libc::dup2(words.as_raw_fd(), 2) };
        // Its own copy of the handler must not serve it.
        world.word(3).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // SAFETY: has no preconditions.
        unsafe { libc::_exit(0) };
    }
    drop(words);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut said, &mut text).unwrap();
    assert!(text.contains("in a child by fork, which has none of the shared memory"), "{text}");
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:#x}");
    assert_eq!((world.load(3), world.stops()), (1, vec![]));
    world.set(3..4, Invalid);
    assert_eq!((world.load(3), world.stops()), (1, vec![(3, false)]));
}

/// Frames that were filled as large ones are as all others: zero, and seen by who maps them.
#[test]
fn much_memory_has_large_frames_that_are_like_others() {
    passes("sharing::much_memory_has_large_frames_that_are_like_others", || {
        let memory = Memory::reserve(MemoryOptions::default()).unwrap();
        // It begins and ends between large frames.
        let (offset, bytes) = (1 << 20, large::LEAST_BYTES + (2 << 20));
        let layout = Layout::new(offset, bytes, 4096, Grain::Pages).unwrap();
        memory.map(&layout).unwrap();
        let addresses = layout.start()..layout.start() + usize::try_from(bytes).unwrap();
        let filled = large::fill(addresses.clone());
        // A kernel that makes none says so.
        assert!(filled == 0 || filled == usize::try_from(large::LEAST_BYTES).unwrap(), "{filled} bytes");
        let taken = || rustix::fs::fstat(memory.frames()).unwrap().st_blocks.cast_unsigned() * 512;
        assert!(taken() >= filled as u64);
        for address in addresses.step_by(4096) {
            let word = pointer(address as u64);
            // SAFETY: mapped just now, and nobody else's.
            unsafe {
                assert_eq!(word.read_volatile(), 0);
                word.write_volatile(1);
            }
        }
        assert_eq!(taken(), bytes, "each page has one frame");
        let mut seen = [0];
        assert_eq!(rustix::io::pread(memory.frames(), &mut seen, offset + (9 << 20)).unwrap(), 1);
        assert_eq!(seen, [1]);
        memory.unmap(&layout, true).unwrap();
        assert_eq!(taken(), 0, "and gives it back");
    });
}

/// Which descriptor the second process takes the frames from.
const FRAMES: &str = "COMB_MEMORY_FRAMES";

#[test]
fn processes_that_share_frames_share_memory() {
    let name = "sharing::processes_that_share_frames_share_memory";
    if let Ok(number) = std::env::var(FRAMES) {
        // The second process: it has the frames by their descriptor, and unguarded memory.
        // SAFETY: inherited, and nobody else's.
        let frames = unsafe { OwnedFd::from_raw_fd(number.parse().unwrap()) };
        let memory =
            Memory::reserve(MemoryOptions { frames: Some(frames), ..MemoryOptions::default() }).unwrap();
        let layout = Layout::new(1 << 20, 1 << 20, 4096, Grain::Pages).unwrap();
        memory.map(&layout).unwrap();
        let place = pointer(layout.address(comb_memory::Block(9)) as u64);
        // SAFETY: mapped just now.
        unsafe {
            assert_eq!(place.read_volatile(), 1);
            place.write_volatile(2);
        }
        return;
    }
    passes(name, || {
        let memory = Memory::reserve(MemoryOptions::default()).unwrap();
        let layout = Layout::new(1 << 20, 1 << 20, 4096, Grain::Pages).unwrap();
        memory.map(&layout).unwrap();
        let place = pointer(layout.address(comb_memory::Block(9)) as u64);
        // SAFETY: mapped just now.
        unsafe { place.write_volatile(1) };
        let frames = memory.frames().as_raw_fd();
        let mut second = Command::new(std::env::current_exe().unwrap());
        second.args(["--exact", name]).env(FRAMES, frames.to_string());
        // SAFETY: one system call on a descriptor that is there.
        unsafe {
            second.pre_exec(move || match libc::fcntl(frames, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        assert!(second.status().unwrap().success());
        // SAFETY: as above.
        assert_eq!(unsafe { place.read_volatile() }, 2);
    });
}

#[test]
fn what_is_no_frames_file_is_refused() {
    passes("sharing::what_is_no_frames_file_is_refused", || {
        let all = SealFlags::SHRINK | SealFlags::GROW;
        let with = |bytes: u64, seals| {
            let file = rustix::fs::memfd_create("trial", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&file, bytes).unwrap();
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            file
        };
        let ordinary = std::fs::File::open("/proc/self/exe").unwrap().into();
        for (frames, what) in [
            (ordinary, "no memory"),
            (with(1 << 40, SealFlags::GROW), "its maker could cut it short"),
            (with(1 << 40, all | SealFlags::FUTURE_WRITE), "nobody else can store"),
            (with(0, all), "nothing"),
            (with(5000, all), "no whole pages"),
            (with(1 << 46, all), "more than a heap"),
        ] {
            let refused = Memory::reserve(MemoryOptions { frames: Some(frames), ..MemoryOptions::default() });
            assert!(matches!(refused, Err(MemoryError::NotFrames)), "{what}: {refused:?}");
        }
        // Each refusal left the addresses free.
        let short = MemoryOptions { frames: Some(with(1 << 30, all)), ..MemoryOptions::default() };
        let memory = Memory::reserve(short).unwrap();
        let layout = Layout::new((1 << 30) - 4096, 8192, 4096, Grain::Pages).unwrap();
        assert!(matches!(memory.guard(&layout, Invalid), Err(MemoryError::BeyondFrames)));
        assert!(matches!(memory.map(&layout), Err(MemoryError::BeyondFrames)));
    });
}

/// Set in the process that does without.
const WITHOUT: &str = "COMB_WITHOUT";

#[test]
fn without_userfaultfd_there_are_protections() {
    if std::env::var(WITHOUT).is_err() {
        for names in ["userfaultfd", "userfaultfd_continue_wp", "all"] {
            let mut second = Command::new(std::env::current_exe().unwrap());
            second.args(["--exact", "sharing::without_userfaultfd_there_are_protections"]);
            let output = second.env(WITHOUT, names).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        return;
    }
    let asked = MemoryOptions { control: Control::Userfaultfd, ..MemoryOptions::default() };
    let refused = Memory::reserve(asked).unwrap_err().to_string();
    assert!(refused.contains("switched off by COMB_WITHOUT"), "{refused}");
    let memory = Memory::reserve(MemoryOptions::default()).unwrap();
    assert_eq!(memory.control(), Control::Protections);
}

#[test]
fn a_process_has_one_heap() {
    passes("sharing::a_process_has_one_heap", || {
        let first = Memory::reserve(MemoryOptions::default()).unwrap();
        let second = Memory::reserve(MemoryOptions::default());
        assert!(matches!(second, Err(MemoryError::Occupied { .. })), "{second:?}");
        drop(first);
        Memory::reserve(MemoryOptions { control: Control::Protections, ..MemoryOptions::default() }).unwrap();
    });
}
