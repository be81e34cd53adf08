//! Each rule of the protocol, broken alone: which error that is.

use std::cell::{Cell, RefCell};

use comb_memory::careful::{Gone, READS};
use comb_memory::{CarefulError, Far, Published, Remote, Source, careful, careful_within};
use comb_types::CellId;

use crate::structures::{
    BYTES, CELL, INCARNATION, Node, Page, Words, image, map_forged, peer, published, put, word,
};

const NODE: Node = Node { next: Far::NONE, number: 5 };

/// Of a forged segment.
const EPOCH: u64 = 64;

#[test]
fn a_pointer_to_another_cell_is_not_followed() {
    let published = published();
    let (peer, far) = (peer(&published), published.allocate(NODE).unwrap());
    let found = CellId(9);
    let elsewhere = Far::alleged(found, far.offset());
    careful(&peer, |c| {
        assert_eq!(c.read::<Node>(elsewhere), Err(CarefulError::OtherCell { cell: CELL, found }));
        assert_eq!(c.array::<Node>(elsewhere, 1), Err(CarefulError::OtherCell { cell: CELL, found }));
        assert_eq!(c.element::<Node>(elsewhere, 0), Err(CarefulError::OtherCell { cell: CELL, found }));
        // Whose memory it is comes first.
        let worse = Far::<Node>::alleged(found, u64::MAX);
        assert_eq!(c.read(worse), Err(CarefulError::OtherCell { cell: CELL, found }));
    });
}

#[test]
fn a_pointer_that_is_not_aligned_is_not_followed() {
    let published = published();
    let (peer, far) = (peer(&published), published.allocate(NODE).unwrap());
    for wrong in [1, 4, 8, 15] {
        let offset = far.offset() + wrong;
        let misaligned = Far::<Node>::alleged(CELL, offset);
        careful(&peer, |c| {
            assert_eq!(c.read(misaligned), Err(CarefulError::Misaligned { cell: CELL, offset }));
            assert_eq!(c.array(misaligned, 1), Err(CarefulError::Misaligned { cell: CELL, offset }));
            assert_eq!(c.element(misaligned, 0), Err(CarefulError::Misaligned { cell: CELL, offset }));
        });
    }
    // Alignment comes before range.
    let offset = BYTES + 8;
    let read = careful(&peer, |c| c.read(Far::<Node>::alleged(CELL, offset)));
    assert_eq!(read, Err(CarefulError::Misaligned { cell: CELL, offset }));
}

#[test]
fn a_pointer_out_of_range_is_not_followed() {
    let published = published();
    let peer = peer(&published);
    let bytes = size_of::<Node>() as u64;
    for offset in [0, 16, 144, 272, 4080, 4096, BYTES - 16, BYTES, BYTES + 16, 1 << 40, u64::MAX - 15] {
        let far = Far::<Node>::alleged(CELL, offset);
        let range = |bytes| CarefulError::OutOfRange { cell: CELL, offset, bytes };
        careful(&peer, |c| {
            assert_eq!(c.read(far), Err(range(bytes)), "at {offset:#x}");
            assert_eq!(c.element(far, 0), Err(range(bytes)));
            assert_eq!(c.element(far, 3), Err(range(4 * bytes)));
            if !(4096..=BYTES).contains(&offset) {
                assert_eq!(c.array(far, 10), Err(range(0)));
            }
        });
    }
    let far = published.allocate(NODE).unwrap();
    let read = careful(&peer, |c| c.element(far, usize::MAX));
    assert!(matches!(read, Err(CarefulError::OutOfRange { cell: CELL, bytes: u64::MAX, .. })));
    // The last that is within.
    let last = Far::<Node>::alleged(CELL, (BYTES - bytes) / 16 * 16);
    assert!(matches!(careful(&peer, |c| c.read(last)), Err(CarefulError::WrongTag { found: 0, .. })));
}

#[test]
fn an_array_that_says_it_leads_out_of_range_is_not_followed() {
    let published = published();
    let far = published.allocate_array(&[Words([1; 2]); 4]).unwrap();
    let mut content = image(&published);
    let tag_word = word(&content, far.offset() - 16);
    assert_eq!(tag_word & 0xffff_ffff, 64);
    let long = (1 << 30) - 16;
    put(&mut content, far.offset() - 16, tag_word - 64 + long);
    let peer = map_forged(&content).unwrap();
    careful(&peer, |c| {
        let range = CarefulError::OutOfRange { cell: CELL, offset: far.offset(), bytes: long };
        assert_eq!(c.array(far, usize::MAX), Err(range));
        let length =
            CarefulError::WrongLength { cell: CELL, offset: far.offset(), bytes: long, wanted: 4, each: 16 };
        assert_eq!(c.array(far, 4), Err(length));
        assert!(matches!(c.read(far), Err(CarefulError::WrongTag { .. })));
    });
    // Nor one whose last element is cut in two.
    put(&mut content, far.offset() - 16, tag_word - 8);
    let peer = map_forged(&content).unwrap();
    assert!(matches!(careful(&peer, |c| c.array(far, 9)), Err(CarefulError::WrongLength { bytes: 56, .. })));
    assert!(matches!(
        careful(&peer, |c| c.element(far, 3)),
        Err(CarefulError::WrongLength { bytes: 56, .. })
    ));
    assert_eq!(careful(&peer, |c| c.element(far, 2)), Ok(Words([1; 2])));
}

#[test]
fn the_tag_says_what_is_there() {
    let published = published();
    let peer = peer(&published);
    let node = published.allocate(NODE).unwrap();
    let pages = published.allocate_array(&[Page([1; 3]); 8]).unwrap();
    let is_wrong = |read| matches!(read, Err(CarefulError::WrongTag { cell: CELL, .. }));
    careful(&peer, |c| {
        // Another type; the same, of another size; an array.
        assert!(is_wrong(c.read(Far::<Words<3>>::alleged(CELL, node.offset())).map(drop)));
        assert!(is_wrong(c.read(Far::<Words<32>>::alleged(CELL, node.offset())).map(drop)));
        assert!(is_wrong(c.array(Far::<Page>::alleged(CELL, node.offset()), 9).map(drop)));
        assert!(is_wrong(c.element(Far::<Page>::alleged(CELL, node.offset()), 0).map(drop)));
        assert!(is_wrong(c.read(pages).map(drop)));
        assert_eq!(c.array(node, 1), Ok(vec![NODE]), "a structure is an array of one");
        // Where there never was anything.
        assert!(is_wrong(c.read(Far::<Node>::alleged(CELL, BYTES / 2)).map(drop)));
    });
    let sizes = published.allocate(Words([1; 2])).unwrap();
    let read = careful(&peer, |c| c.read(Far::<Words<1>>::alleged(CELL, sizes.offset())));
    assert!(is_wrong(read.map(drop)), "a type whose fields are others");
}

#[test]
fn what_was_freed_is_not_there() {
    let published = published();
    let peer = peer(&published);
    let node = published.allocate(NODE).unwrap();
    let pages = published.allocate_array(&[Page([1; 3]); 8]).unwrap();
    published.free(node);
    published.free(pages);
    careful(&peer, |c| {
        let freed = |read| matches!(read, Err(CarefulError::WrongTag { cell: CELL, found: 0, .. }));
        assert!(freed(c.read(node).map(drop)));
        assert!(freed(c.array(pages, 8).map(drop)));
        assert!(freed(c.element(pages, 1).map(drop)));
    });
    // Something else is there now.
    let words = published.allocate(Words([1; 3])).unwrap();
    assert_eq!(words.offset(), node.offset());
    careful(&peer, |c| {
        assert!(matches!(c.read(node), Err(CarefulError::WrongTag { .. })));
        assert_eq!(c.read(words), Ok(Words([1; 3])));
    });
}

#[test]
fn an_array_is_no_longer_than_the_reader_takes() {
    let published = published();
    let peer = peer(&published);
    let pages = published.allocate_array(&[Page([1; 3]); 8]).unwrap();
    let offset = pages.offset();
    let length = |wanted| CarefulError::WrongLength { cell: CELL, offset, bytes: 24, wanted, each: 3 };
    careful(&peer, |c| {
        assert_eq!(c.array(pages, 7), Err(length(7)));
        assert_eq!(c.element(pages, 8), Err(length(8)));
        assert_eq!(c.element(pages, 7), Ok(Page([1; 3])));
    });
}

#[test]
fn what_is_left_half_changed_is_unstable() {
    let published = published();
    let small = published.allocate(NODE).unwrap();
    let large = published.allocate(Words([1; 100])).unwrap();
    let mut content = image(&published);
    for offset in [small.offset(), large.offset()] {
        let sequence = word(&content, offset - 8);
        put(&mut content, offset - 8, sequence | 1);
    }
    let peer = map_forged(&content).unwrap();
    let unstable = |offset| {
        let version = word(&content, offset - 8);
        CarefulError::Unstable { cell: CELL, offset, version }
    };
    careful(&peer, |c| {
        assert_eq!(c.read(small), Err(unstable(small.offset())));
        assert_eq!(c.read(large), Err(unstable(large.offset())));
        assert_eq!(c.array(large, 1), Err(unstable(large.offset())));
        assert_eq!(c.element(large, 0), Err(unstable(large.offset())));
    });
    // Another structure's tag is found before that.
    let read = careful(&peer, |c| c.read(Far::<Words<3>>::alleged(CELL, small.offset())));
    assert!(matches!(read, Err(CarefulError::WrongTag { .. })));
    // And each try counts.
    let limit = 20;
    let read = careful_within(&peer, limit, |c| c.read(small));
    assert_eq!(read, Err(CarefulError::TooMany { cell: CELL, limit }));
}

#[test]
fn nothing_counts_of_a_cell_that_has_cut_itself_off() {
    let published = published();
    let peer = peer(&published);
    let node = published.allocate(NODE).unwrap();
    let large = published.allocate_array(&[Words([1; 100]); 2]).unwrap();
    careful(&peer, |c| {
        assert_eq!(c.read(node), Ok(NODE));
        published.cut_off();
        let cut_off = CarefulError::CutOff { cell: CELL };
        assert_eq!(c.read(node), Err(cut_off));
        assert_eq!(c.array(large, 2), Err(cut_off));
        assert_eq!(c.element(large, 0), Err(cut_off));
        assert_eq!(c.tick(), Err(cut_off));
        assert_eq!(c.root::<Node>(), Err(cut_off));
        // Twice is once.
        published.cut_off();
        assert_eq!(c.read(node), Err(cut_off));
        // What is not in order says so first.
        assert!(matches!(
            c.read(Far::<Words<3>>::alleged(CELL, node.offset())),
            Err(CarefulError::WrongTag { .. })
        ));
    });
}

#[test]
fn a_cell_that_leaves_is_cut_off() {
    let published = published();
    let peer = peer(&published);
    drop(published);
    assert_eq!(careful(&peer, |c| c.tick()), Err(CarefulError::CutOff { cell: CELL }));
}

#[test]
fn the_epoch_word_is_of_one_life() {
    let content = image(&published());
    for epoch in [0, word(&content, EPOCH) | 1, word(&content, EPOCH) + 2, u64::MAX] {
        let mut content = content.clone();
        put(&mut content, EPOCH, epoch);
        assert!(matches!(map_forged(&content), Err(CarefulError::CutOff { cell: CELL })), "{epoch:#x}");
    }
}

#[test]
fn pointers_in_a_circle_end_a_section() {
    let published = published();
    let peer = peer(&published);
    let node = published.allocate(NODE).unwrap();
    published.update(node, |itself| itself.next = node);
    let follow = |c: &comb_memory::Careful<'_>, reads: &mut u32| -> Result<(), CarefulError> {
        let mut next = node;
        loop {
            next = c.read(next)?.next;
            *reads += 1;
        }
    };
    for limit in [0, 1, 7, READS] {
        let mut reads = 0;
        let ended = careful_within(&peer, limit, |c| follow(c, &mut reads));
        assert_eq!((ended, reads), (Err(CarefulError::TooMany { cell: CELL, limit }), limit));
    }
    let mut reads = 0;
    careful(&peer, |c| follow(c, &mut reads)).unwrap_err();
    assert_eq!(reads, READS);
    // All that reads counts.
    careful_within(&peer, 5, |c| {
        c.tick().unwrap();
        c.root::<Node>().unwrap();
        c.element(node, 0).unwrap();
        c.array(node, 1).unwrap();
        let too_many = CarefulError::TooMany { cell: CELL, limit: 5 };
        assert_eq!((c.tick(), c.element(node, 0)), (Err(too_many), Err(too_many)));
        assert_eq!((c.array(node, 1), c.root::<Node>()), (Err(too_many), Err(too_many)));
        assert!(matches!(c.read(node), Err(CarefulError::TooMany { .. })));
    });
}

/// A cell on another host: each get sees what the one before has left, after `meanwhile` has changed that.
fn far_away<'a>(
    published: &'a Published,
    meanwhile: impl Fn(u32, u64) + 'a,
) -> Remote<impl Fn(u64, &mut [u8]) -> Result<(), Gone> + 'a> {
    let gets = Cell::new(0);
    let got = Remote::new(CELL, INCARNATION, move |offset, into: &mut [u8]| {
        let count = gets.replace(gets.get() + 1);
        meanwhile(count, offset);
        let read = rustix::io::pread(published.descriptor(), &mut *into, offset);
        if read == Ok(into.len()) { Ok(()) } else { Err(Gone::Unreachable("no such bytes")) }
    });
    got.unwrap()
}

#[test]
fn another_hosts_structures_are_read_by_the_same_protocol() {
    let published = published();
    let node = published.allocate(NODE).unwrap();
    let pages = published.allocate_array(&[Page([1; 3]); 8]).unwrap();
    published.set_root(node);
    published.tick();
    let remote = far_away(&published, |_, _| ());
    careful(&remote, |c| {
        assert_eq!(c.root::<Node>(), Ok(node));
        assert_eq!(c.read(node), Ok(NODE));
        assert_eq!(c.array(pages, 8), Ok(vec![Page([1; 3]); 8]));
        assert_eq!(c.element(pages, 3), Ok(Page([1; 3])));
        assert_eq!(c.tick(), Ok(1));
        assert!(matches!(c.read(Far::<Node>::alleged(CELL, BYTES)), Err(CarefulError::OutOfRange { .. })));
        published.free(node);
        assert!(matches!(c.read(node), Err(CarefulError::WrongTag { cell: CELL, found: 0, .. })));
        rustix::fs::ftruncate(published.descriptor(), 0).unwrap();
        let (why, offset) = ("no such bytes", pages.offset());
        assert_eq!(c.array(pages, 8), Err(CarefulError::Unreachable { cell: CELL, offset, why }));
    });
}

/// A cell on another host that does something in front of each get of one careful read.
#[test]
fn a_change_between_any_two_gets_is_noticed() {
    let old = Words([1; 20]);
    for at in 0..5 {
        let published = published();
        let far = published.allocate(old).unwrap();
        let first = Cell::new(None::<u32>);
        let order = RefCell::new(Vec::new());
        let remote = far_away(&published, |count, offset| {
            let Some(first) = first.get() else { return };
            order.borrow_mut().push(offset);
            if count == first + at {
                published.update(far, |words| *words = Words([2; 20]));
            }
        });
        let gets_of_opening = 5 + 5;
        first.set(Some(gets_of_opening));
        let read = careful(&remote, |c| c.read(far)).unwrap();
        // Whole, and what it was before only if nothing of the new was copied.
        assert_eq!(read, if at < 4 { Words([2; 20]) } else { old }, "changed in front of get {at}");
        let once = [far.offset() - 8, far.offset() - 16, far.offset(), far.offset() - 8, EPOCH];
        let (order, tries) = (order.borrow().clone(), if (1..4).contains(&at) { 2 } else { 1 });
        assert_eq!(order, once.repeat(tries), "changed in front of get {at}");
    }
}

#[test]
fn a_cell_that_cuts_itself_off_between_two_gets_is_noticed() {
    for at in 0..5 {
        let published = published();
        let far = published.allocate(NODE).unwrap();
        let remote = far_away(&published, |count, _| {
            if count == 10 + at {
                published.cut_off();
            }
        });
        assert_eq!(careful(&remote, |c| c.read(far)), Err(CarefulError::CutOff { cell: CELL }));
    }
}

#[test]
fn another_hosts_cell_is_looked_at_before_it_is_read() {
    let published = published();
    let get = |offset: u64, into: &mut [u8]| {
        rustix::io::pread(published.descriptor(), into, offset).map(drop).map_err(|_| Gone::BusError)
    };
    assert!(Remote::new(CELL, INCARNATION, get).is_ok());
    let other = Remote::new(CellId(9), INCARNATION, get);
    assert!(matches!(other, Err(CarefulError::NotIts { cell: CellId(9), found: 3 })));
    published.cut_off();
    assert!(matches!(Remote::new(CELL, INCARNATION, get), Err(CarefulError::CutOff { .. })));
    // What says that it is too long, or not whole pages.
    for bytes in [0, 4096, BYTES + 8, 1 << 40] {
        let mut content = image(&self::published());
        put(&mut content, 40, bytes);
        let get = |offset: u64, into: &mut [u8]| {
            let from = usize::try_from(offset).unwrap();
            into.copy_from_slice(&content[from..from + into.len()]);
            Ok(())
        };
        let refused = Remote::new(CELL, INCARNATION, get);
        assert!(matches!(refused, Err(CarefulError::NotPublished { cell: CELL, .. })), "{bytes}");
    }
}

#[test]
fn the_owner_and_its_peers_answer_for_other_hosts() {
    fn expect_all(source: &impl Source, node: Far<Node>, pages: Far<Page>) {
        let remote =
            Remote::new(CELL, INCARNATION, |offset, into: &mut [u8]| source.copy(offset, into)).unwrap();
        careful(&remote, |c| {
            assert_eq!(c.read(node), Ok(NODE));
            assert_eq!(c.array(pages, 9), Ok(vec![Page([1, 2, 3]); 9]));
            assert_eq!(c.element(pages, 8), Ok(Page([1, 2, 3])));
            assert_eq!(c.tick(), Ok(1));
        });
        careful(source, |c| assert_eq!((c.read(node), c.tick()), (Ok(NODE), Ok(1))));
        // Whatever they are asked for.
        let mut into = [0; 16];
        for offset in [BYTES - 15, BYTES, u64::MAX] {
            assert!(matches!(source.copy(offset, &mut into), Err(Gone::Unreachable(_))));
            assert!(matches!(source.copy(offset, &mut into[..0]), Ok(()) | Err(Gone::Unreachable(_))));
        }
        for offset in [0, 3, BYTES - 16] {
            assert_eq!(source.copy(offset, &mut into), Ok(()));
        }
    }
    let published = published();
    let peer = peer(&published);
    let node = published.allocate(NODE).unwrap();
    let pages = published.allocate_array(&[Page([1, 2, 3]); 9]).unwrap();
    published.tick();
    expect_all(&published, node, pages);
    expect_all(&peer, node, pages);
    let mut into = [0; 8];
    for record in [0, 8, BYTES - 7, u64::MAX] {
        assert!(matches!(peer.take(record, 0, &mut into), Err(Gone::Unreachable(_))));
        assert!(matches!(peer.take_if(record, &mut into, 0), Err(Gone::Unreachable(_))));
    }
    assert!(matches!(peer.take(4112, u64::MAX, &mut into), Err(Gone::Unreachable(_))));
}

#[test]
fn errors_name_the_cell_and_the_rule() {
    let told = |error: CarefulError| (error.cell(), error.to_string());
    assert_eq!(
        told(CarefulError::WrongTag { cell: CELL, offset: 4112, expected: 0x4e6f_6465, bytes: 24, found: 0 }),
        (
            CELL,
            "cell 3 has no structure with tag 0x4e6f6465 and of 24 bytes at 0x1010, but 0x0000000000000000"
                .to_owned()
        )
    );
    assert_eq!(
        told(CarefulError::BusError { cell: CELL, offset: 4112 }),
        (CELL, "bus error at 0x1010 of cell 3".to_owned())
    );
    assert_eq!(
        told(CarefulError::OtherCell { cell: CELL, found: CellId(9) }),
        (CELL, "a pointer leads from cell 3 to cell 9".to_owned())
    );
}
