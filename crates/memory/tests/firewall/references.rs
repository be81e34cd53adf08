//! Second references: what becomes of an importer whose home is no more.

use std::os::fd::AsFd;

use comb_memory::{Exports, KeptGuard, Orphaned};

use crate::parties::{EMPTY, GRANTED, HIDDEN, Importer, Line, PAGE, PAGES, SHOWN, between, range};

/// The home closes what it has, as the kernel does for one that dies. Another process has a second reference to the importer's guard and to the
/// frames: they stay closed, and are emptied; a successor of the home takes both, and lets the importer go on where it has them mapped.
#[test]
fn a_guard_outlives_its_home() {
    let importer = |line: Line| {
        let importer = Importer::come_in(line);
        importer.is_held();
        importer.has_tried();
        importer.line.expect("the home is gone");
        importer.is_held();
        assert_eq!(importer.load(SHOWN), Some(11));
        importer.line.say("held");
        importer.line.expect("its frames are empty");
        for page in [SHOWN, GRANTED, HIDDEN, EMPTY] {
            assert!(!importer.stores(page) && importer.load(page).is_none(), "page {page}");
        }
        importer.line.say("stopped");
        importer.line.expect("there is another");
        assert_eq!((importer.load(SHOWN), importer.stores(SHOWN)), (Some(0), false));
        assert!(importer.stores(GRANTED) && !importer.stores(HIDDEN));
        importer.line.say("goes on");
        importer.stays();
    };
    between(
        "references::a_guard_outlives_its_home",
        |home| {
            let second = home.usual();
            let address = comb_memory::HEAP_START + (7 << 30);
            let kept = KeptGuard::new(second, address);
            let frames = Orphaned::new(home.exports.file().try_clone_to_owned().unwrap()).unwrap();
            home.when_it_has_tried();
            home.exports = Exports::create(PAGES * PAGE).unwrap();
            home.importer.say("the home is gone");
            home.importer.expect("held");
            frames.empty().unwrap();
            assert!(kept.lives());
            assert_eq!(rustix::fs::fstat(&frames).unwrap().st_blocks, 0);
            home.importer.say("its frames are empty");
            home.importer.expect("stopped");
            let guard = kept.as_fd().try_clone_to_owned().unwrap();
            home.exports = Exports::adopt(frames.as_fd().try_clone_to_owned().unwrap()).unwrap();
            let process = home.importer.process();
            home.exports.admit(1, guard, address, process).unwrap();
            home.exports.show(1, range(SHOWN)).unwrap();
            home.exports.grant(1, range(GRANTED)).unwrap();
            home.importer.say("there is another");
            home.importer.expect("goes on");
            assert_eq!([home.byte(SHOWN), home.byte(GRANTED), home.byte(HIDDEN)], [0, 99, 0]);
            home.importer.kill();
            assert!(!kept.lives());
        },
        importer,
    );
}
