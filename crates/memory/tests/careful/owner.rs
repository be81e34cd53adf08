//! What the owner may rely on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use comb_memory::{CarefulError, Far, Full, PublishError, Published, careful};
use comb_types::CellId;

use crate::structures::{CELL, INCARNATION, Node, Page, Words, peer, published};

const NODE: Node = Node { next: Far::NONE, number: 5 };

fn panics(what: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err()
}

#[test]
fn what_cannot_be_as_long_is_refused() {
    for bytes in [0, 1, 4096, (1 << 36) + 1, u64::MAX] {
        let refused = Published::create(CELL, INCARNATION, bytes).unwrap_err();
        assert!(matches!(refused, PublishError::Length { bytes: asked } if asked == bytes));
    }
    // Memory is taken as it is used.
    let large = Published::create(CELL, INCARNATION, 1 << 36).unwrap();
    let node = large.allocate(NODE).unwrap();
    assert_eq!(careful(&peer(&large), |c| c.read(node)), Ok(NODE));
}

#[test]
fn room_that_is_used_up_is_an_error_and_comes_back() {
    let published = Published::create(CELL, INCARNATION, 8192).unwrap();
    let peer = peer(&published);
    let mut held: Vec<_> = std::iter::from_fn(|| published.allocate(NODE).ok()).collect();
    assert_eq!(held.len(), 4096 / 48);
    assert_eq!(published.allocate(NODE), Err(Full { bytes: 24 }));
    assert_eq!(published.allocate_array(&[NODE; 1000]), Err(Full { bytes: 24_000 }));
    let freed = held.swap_remove(7);
    published.free(freed);
    let again = published.allocate(Node { number: 6, ..NODE }).unwrap();
    assert_eq!(again, freed);
    careful(&peer, |c| {
        assert!(held.iter().all(|&far| c.read(far) == Ok(NODE)));
        assert_eq!(c.read(again).map(|node| node.number), Ok(6));
    });
}

#[test]
fn what_is_not_its_own_the_owner_does_not_touch() {
    let published = published();
    let node = published.allocate(NODE).unwrap();
    let freed = published.allocate(NODE).unwrap();
    published.free(freed);
    assert!(panics(|| published.free(freed)), "freed twice");
    assert!(panics(|| published.update(freed, |_| ())));
    assert!(
        panics(|| assert!(published.get(Far::<Page>::alleged(CELL, node.offset())).0.is_empty())),
        "another type"
    );
    assert!(panics(|| published.free(Far::<Node>::alleged(CellId(4), node.offset()))), "another cell's");
    assert!(panics(|| published.free(Far::<Node>::alleged(CELL, node.offset() + 16))));
    assert!(panics(|| published.update_element(node, 1, |_| ())), "there is one");
    assert!(panics(|| published.free(Far::<Node>::NONE)));
    // None of that has done anything.
    assert_eq!(published.get(node), NODE);
    assert_eq!(careful(&peer(&published), |c| c.read(node)), Ok(NODE));
}

#[test]
fn a_change_that_panics_is_none() {
    let published = published();
    let node = published.allocate(NODE).unwrap();
    assert!(panics(|| published.update(node, |node| {
        node.number = 7;
        panic!("as a change may");
    })));
    assert_eq!(careful(&peer(&published), |c| c.read(node)), Ok(NODE));
    published.update(node, |node| node.number = 8);
    assert_eq!(careful(&peer(&published), |c| c.read(node)).map(|node| node.number), Ok(8));
}

#[test]
fn elements_that_are_no_words_keep_their_neighbours() {
    let published = published();
    let pages = published.allocate_array(&[Page([1; 3]); 20]).unwrap();
    for element in 0..20 {
        published.update_element(pages, element, |page| *page = Page([2; 3]));
        let read = careful(&peer(&published), |c| c.array(pages, 20)).unwrap();
        for (at, page) in read.into_iter().enumerate() {
            assert_eq!(page, Page([if at <= element { 2 } else { 1 }; 3]));
            assert_eq!(published.get_element(pages, at), page);
        }
    }
}

#[test]
fn pointers_are_plain_data() {
    let far = Far::<Words<1>>::alleged(CELL, 4112);
    assert_eq!((far.cell(), far.offset(), far.is_none()), (CELL, 4112, false));
    assert_eq!(format!("{far:?}"), "0x1010 of cell 3");
    assert!(Far::<Node>::default().is_none() && Far::<Node>::NONE.is_none());
    assert_ne!(far, Far::alleged(CellId(4), 4112));
    let mut bytes = [0xff; 16];
    bytes[..8].copy_from_slice(&4112_u64.to_le_bytes());
    bytes[8..12].copy_from_slice(&3_u32.to_le_bytes());
    assert_eq!(zerocopy::FromBytes::read_from_bytes(&bytes), Ok(far), "padding says nothing");
    let refused = careful(&peer(&published()), |c| c.read(Far::<Node>::NONE));
    assert!(matches!(refused, Err(CarefulError::OtherCell { .. } | CarefulError::OutOfRange { .. })));
}
