//! Descriptors: another userfaultfd, the importer's own that it has kept, and the frames'.

use std::os::fd::AsRawFd;

use crate::parties::{GRANTED, Importer, Line, PAGE, PAGES, between, error};

const API: libc::Ioctl = 0xc018_aa3f;
const REGISTER: libc::Ioctl = 0xc020_aa00;
const UNREGISTER: libc::Ioctl = 0x8010_aa01;
const WRITEPROTECT: libc::Ioctl = 0xc018_aa06;
const CONTINUE: libc::Ioctl = 0xc020_aa07;
const ALL_MODES: u64 = 7;

const BYTES: u64 = PAGES * PAGE;

fn ask(descriptor: i32, request: libc::Ioctl, mut argument: [u64; 4]) -> i32 {
    // SAFETY: at least as long as any of these structures.
    error(i64::from(unsafe { libc::ioctl(descriptor, request, argument.as_mut_ptr()) }))
}

/// One that is older than the import cannot take its memory over, but whatever userfaultfd a process has changes marks everywhere in its memory (Linux
/// 6.18 does not ask whose they are): so it is asked nothing.
#[test]
fn a_userfaultfd_from_before_changes_nothing() {
    let importer = |line: Line| {
        // SAFETY: makes a descriptor.
        let own = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) };
        let own = i32::try_from(own).unwrap();
        assert!(own >= 0 && ask(own, API, [0xaa, 1, 0, 0]) == 0);
        let importer = Importer::come_in(line);
        let start = importer.page(0) as u64;
        assert_eq!(ask(own, REGISTER, [start, BYTES, ALL_MODES, 0]), libc::EBUSY);
        importer.is_held();
        comb_memory::syscalls::cover(comb_memory::syscalls::Hooks::default()).expect("covered");
        for (request, argument) in [
            (WRITEPROTECT, [start, BYTES, 0, 0]),
            (CONTINUE, [start + 3 * PAGE, PAGE, 0, 0]),
            (UNREGISTER, [start, BYTES, 0, 0]),
        ] {
            assert_eq!(ask(own, request, argument), libc::EPERM);
            importer.is_held();
        }
        importer.has_tried();
    };
    between(
        "descriptors::a_userfaultfd_from_before_changes_nothing",
        |home| {
            home.usual();
            home.when_it_has_tried();
        },
        importer,
    );
}

#[test]
fn nobody_has_a_userfaultfd_of_its_own() {
    let importer = |line: Line| {
        let importer = Importer::covered(line);
        // SAFETY: makes a descriptor.
        assert_eq!(error(unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) }), libc::EPERM);
        importer.is_held();
        importer.has_tried();
    };
    between(
        "descriptors::nobody_has_a_userfaultfd_of_its_own",
        |home| {
            home.usual();
            home.when_it_has_tried();
        },
        importer,
    );
}

/// A guard that was not closed, and any other userfaultfd that this process has, such as its own memory's.
#[test]
fn a_guard_that_was_kept_is_of_no_use() {
    let importer = |line: Line| {
        comb_memory::syscalls::cover(comb_memory::syscalls::Hooks::default()).expect("covered");
        let importer = Importer::come_in(line);
        let start = importer.page(0) as u64;
        let guards: Vec<i32> = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter(|entry| {
                std::fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("anon_inode:[userfaultfd]"))
            })
            .map(|entry| entry.file_name().to_string_lossy().parse().unwrap())
            .collect();
        assert!(guards.contains(&importer.guard.as_ref().unwrap().as_raw_fd()));
        for guard in guards {
            assert_eq!(ask(guard, WRITEPROTECT, [start, BYTES, 0, 0]), libc::EPERM);
            assert_eq!(ask(guard, CONTINUE, [start + 3 * PAGE, PAGE, 0, 0]), libc::EPERM);
            assert_eq!(ask(guard, REGISTER, [start, BYTES, 1, 0]), libc::EPERM);
            assert_eq!(ask(guard, UNREGISTER, [start, BYTES, 0, 0]), libc::EPERM);
        }
        importer.is_held();
        importer.has_tried();
    };
    between(
        "descriptors::a_guard_that_was_kept_is_of_no_use",
        |home| {
            home.usual();
            home.when_it_has_tried();
        },
        importer,
    );
}

/// Frames are opened once more by no name that the kernel has for them, nor are they changed by their descriptor so that their home suffers.
#[test]
fn frames_have_no_other_way_in() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        let frames = importer.frames.as_ref().unwrap();
        assert!(
            rustix::fs::ftruncate(frames, 4096).is_err() && rustix::fs::ftruncate(frames, 1 << 40).is_err()
        );
        for seal in [rustix::fs::SealFlags::FUTURE_WRITE, rustix::fs::SealFlags::WRITE] {
            assert!(rustix::fs::fcntl_add_seals(frames, seal).is_err());
        }
        let mapped = importer.page(0) as usize;
        let names = [
            format!("/proc/self/fd/{}", frames.as_raw_fd()),
            format!("/proc/self/map_files/{mapped:x}-{:x}", mapped + 600 * 4096),
        ];
        assert!(names.iter().all(|name| std::fs::symlink_metadata(name).is_ok()), "they are there");
        lose_capabilities();
        for name in &names {
            for writable in [true, false] {
                let opened = std::fs::OpenOptions::new().read(true).write(writable).open(name);
                let error = opened.expect_err(name);
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
            }
        }
        importer.is_held();
        importer.has_tried();
    };
    between(
        "descriptors::frames_have_no_other_way_in",
        |home| {
            home.usual();
            home.when_it_has_tried();
            home.exports.take(&crate::parties::range(GRANTED)).expect("nobody has sealed it");
        },
        importer,
    );
}

/// As a program that root has not started.
fn lose_capabilities() {
    let (header, nothing) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: the kernel's structures.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), nothing.as_ptr()) }, 0);
}
