//! What the home of imported frames can rely on, whatever the importer does. This process is both.

use std::os::fd::{AsFd, OwnedFd};

use comb_memory::{
    Block, Exports, Fault, Grain, HEAP_START, Layout, Memory, MemoryOptions, Reason, Verdict,
    careful_copy_from, careful_copy_to, pointer,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::isolation::passes;

const PAGE: u64 = 4096;
/// Some extents, and a part of one.
const PAGES: u64 = 3 * 512 + 100;
/// Not where the frames begin.
const OFFSET: u64 = 7 << 30;

struct Scene {
    memory: Memory,
    layout: Layout,
    exports: Exports,
}

fn stopped(_: Fault) -> Verdict {
    Verdict::Lost(Reason::Other("stopped"))
}

fn itself() -> OwnedFd {
    pidfd_open(getpid(), PidfdFlags::empty()).expect("this process lives")
}

impl Scene {
    fn outside() -> Self {
        comb_memory::install(stopped).expect("the only one");
        let memory = Memory::reserve(MemoryOptions::default()).expect("a heap");
        let layout = Layout::new(OFFSET, PAGES * PAGE, 4096, Grain::Pages).expect("a layout");
        let exports = Exports::create(layout.frame_bytes()).expect("frames");
        Self { memory, layout, exports }
    }

    fn come_in(&mut self) {
        let guard = self.memory.import(&self.layout, self.exports.file()).expect("mapped");
        let address = self.layout.address(Block(0));
        self.exports.admit(1, guard, address, itself()).expect("guarded");
        self.memory.open_import(&self.layout, true).expect("opened");
    }

    fn new() -> Self {
        let mut scene = Self::outside();
        scene.come_in();
        scene
    }

    fn place(&self, page: u64) -> *mut u8 {
        pointer((HEAP_START as u64) + OFFSET + page * PAGE + 8)
    }

    /// What a load finds, if it is not stopped.
    fn load(&self, page: u64) -> Option<u8> {
        let mut byte = [0];
        careful_copy_from(self.place(page), &mut byte).ok().map(|()| byte[0])
    }

    /// Whether a store is not stopped.
    fn stores(&self, page: u64) -> bool {
        careful_copy_to(&[99], self.place(page)).is_ok()
    }

    fn show(&mut self, page: u64) {
        self.exports.show(1, range(page)).unwrap();
    }

    fn put(&mut self, page: u64, byte: u8) {
        self.exports.copy_in(page * PAGE + 8, &[byte]);
    }
}

fn range(page: u64) -> std::ops::Range<u64> {
    page * PAGE..(page + 1) * PAGE
}

#[test]
fn nothing_is_loaded_that_was_not_shown_and_nothing_stored_that_was_not_granted() {
    passes("imports::nothing_is_loaded_that_was_not_shown_and_nothing_stored_that_was_not_granted", || {
        let mut scene = Scene::new();
        for page in [0, 5, 511, 512, PAGES - 1] {
            assert!(scene.load(page).is_none() && !scene.stores(page), "never touched");
            scene.show(page);
            assert_eq!((scene.load(page), scene.stores(page)), (Some(0), false), "page {page}");
        }
        // With a frame, and never shown.
        scene.put(100, 3);
        assert!(scene.load(100).is_none() && !scene.stores(100));
        // Who is shown a page is shown its neighbours with frames, and those it asks for without.
        (96..114).for_each(|page| scene.put(page, 3));
        scene.exports.show(1, range(109).start..range(130).end).unwrap();
        let seen: Vec<u64> = (90..140).filter(|&page| scene.load(page).is_some()).collect();
        assert_eq!(seen, (96..131).collect::<Vec<_>>());
        assert!((90..140).all(|page| !scene.stores(page)));
    });
}

#[test]
fn a_grant_is_of_its_pages_and_ends_when_it_is_revoked() {
    passes("imports::a_grant_is_of_its_pages_and_ends_when_it_is_revoked", || {
        let mut scene = Scene::new();
        for page in [3, 700, PAGES - 1] {
            scene.put(page - 1, 1);
            scene.show(page - 1);
            scene.exports.grant(1, range(page)).unwrap();
            assert!(scene.stores(page) && !scene.stores(page - 1), "page {page}");
            if page % 2 == 0 {
                // Two pages at once, of which one was never touched.
                scene.exports.grant(1, range(page).start + PAGE..range(page).end + 2 * PAGE).unwrap();
                assert!(scene.stores(page + 1) && scene.stores(page + 2) && !scene.stores(page + 3));
            }
            scene.exports.revoke(&range(page));
            assert_eq!((scene.load(page), scene.stores(page)), (Some(99), false));
        }
        assert!(scene.stores(701) && scene.exports.grants() == 1);
        scene.exports.revoke(&(0..PAGES * PAGE));
        assert!(!scene.stores(701) && !scene.stores(702) && scene.exports.grants() == 0);
    });
}

#[test]
fn what_is_taken_nobody_sees_and_comes_back_protected() {
    passes("imports::what_is_taken_nobody_sees_and_comes_back_protected", || {
        let mut scene = Scene::new();
        for (page, was_granted) in [(1, false), (2, true), (PAGES - 1, true)] {
            scene.put(page, 7);
            scene.show(page);
            if was_granted {
                scene.exports.grant(1, range(page)).unwrap();
                assert!(scene.stores(page));
            }
            let content = if was_granted { 99 } else { 7 };
            scene.exports.take(&range(page)).unwrap();
            assert!(scene.load(page).is_none() && !scene.stores(page));
            let mut kept = [0];
            scene.exports.copy_out(page * PAGE + 8, &mut kept);
            assert_eq!(kept, [content]);
            // What came meanwhile from who had it.
            scene.put(page, content + 1);
            assert!(scene.load(page).is_none());
            scene.exports.put_back(&range(page));
            assert!(!scene.stores(page) && scene.load(page).is_none(), "a hole that was filled again");
            scene.show(page);
            assert!(!scene.stores(page));
            assert_eq!(scene.load(page), Some(content + 1));
            assert_eq!(scene.exports.aside_bytes(), 0);
        }
    });
}

#[test]
fn an_importer_cannot_lose_its_marks() {
    passes("imports::an_importer_cannot_lose_its_marks", || {
        let mut scene = Scene::new();
        (0..20).for_each(|page| scene.put(page, 1));
        scene.exports.show(1, 0..20 * PAGE).unwrap();
        assert_eq!((0..20).map(|page| scene.load(page)).collect::<Vec<_>>(), vec![Some(1); 20]);
        let whole = usize::try_from(PAGES * PAGE).unwrap();
        // SAFETY: its entries go; nothing of Rust's is there.
        let dropped =
            unsafe { libc::madvise(scene.place(0).wrapping_sub(8).cast(), whole, libc::MADV_DONTNEED) };
        assert_eq!(dropped, 0);
        assert!((0..20).all(|page| !scene.stores(page)));
        scene.exports.grant(1, range(5)).unwrap();
        scene.show(4);
        assert!(scene.stores(5) && !scene.stores(4) && scene.load(4) == Some(1));
        // It unmaps a page, and puts other memory there: what lies behind is guarded all the same.
        let first = scene.place(0).wrapping_sub(8);
        let cover = |page: usize| {
            let (place, protection) = (first.wrapping_add(page * 4096).cast(), libc::PROT_READ);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: as above.
            unsafe { libc::mmap(place, 4096, protection, flags, -1, 0) }
        };
        scene.exports.grant(1, range(10).start..range(12).end).unwrap();
        assert!(scene.stores(10) && scene.stores(12));
        assert_ne!(cover(11), libc::MAP_FAILED);
        scene.exports.revoke(&(0..PAGES * PAGE));
        assert!(!scene.stores(10) && !scene.stores(12));
    });
}

#[test]
fn who_comes_late_and_who_was_dismissed_stores_nothing() {
    passes("imports::who_comes_late_and_who_was_dismissed_stores_nothing", || {
        let mut scene = Scene::outside();
        for page in [0, 512, PAGES - 1] {
            scene.put(page, 4);
        }
        scene.come_in();
        for page in [0, 512, PAGES - 1] {
            assert!(!scene.stores(page) && scene.load(page).is_none());
            scene.show(page);
            assert!(!scene.stores(page) && scene.load(page) == Some(4));
        }
        scene.exports.grant(1, range(512)).unwrap();
        assert!(scene.stores(512));
        scene.exports.dismiss(1);
        assert!(!scene.stores(512) && scene.exports.grants() == 0);
        scene.exports.grant(1, range(512)).unwrap();
        assert!(!scene.stores(512), "it gets nothing any more");
        assert_eq!(scene.exports.importers(), 1, "its process lives, and could store");
    });
}

#[test]
fn what_guards_nothing_is_refused() {
    passes("imports::what_guards_nothing_is_refused", || {
        let mut scene = Scene::outside();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let address = scene.layout.address(Block(0));
        assert!(scene.exports.admit(1, event, address, itself()).is_err());
        let guard = scene.memory.import(&scene.layout, scene.exports.file()).unwrap();
        assert!(scene.exports.admit(1, guard, address + (1 << 30), itself()).is_err(), "of other memory");
        assert_eq!(scene.exports.importers(), 0);
        // Frames that could be cut short, or are too few.
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, PAGES * PAGE).unwrap();
        let layout = Layout::new(8 << 30, PAGES * PAGE, 4096, Grain::Pages).unwrap();
        assert!(scene.memory.import(&layout, file.as_fd()).is_err());
        let short = Exports::create(PAGE).unwrap();
        assert!(scene.memory.import(&layout, short.file()).is_err());
    });
}

#[test]
fn what_is_forsaken_stops_whoever_touches_it() {
    passes("imports::what_is_forsaken_stops_whoever_touches_it", || {
        let mut scene = Scene::new();
        scene.put(3, 1);
        scene.show(3);
        scene.exports.grant(1, range(4)).unwrap();
        assert!(scene.load(3) == Some(1) && scene.stores(4));
        scene.memory.forsake(&scene.layout).unwrap();
        assert!(
            (0..PAGES).step_by(7).chain(3..5).all(|page| scene.load(page).is_none() && !scene.stores(page))
        );
    });
}
