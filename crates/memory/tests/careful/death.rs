//! What readers are told of memory that is gone.

use comb_memory::{CarefulError, Far, Peer, careful};

use crate::isolation::passes;
use crate::structures::{CELL, INCARNATION, Node, Words, peer, published};

/// What the host's agent does when the cell is dead.
fn cut_short(published: &comb_memory::Published) {
    rustix::fs::ftruncate(published.descriptor(), 0).unwrap();
}

#[test]
fn a_read_of_memory_that_is_gone_is_an_error() {
    passes("death::a_read_of_memory_that_is_gone_is_an_error", || {
        let published = published();
        let peer = peer(&published);
        let node = published.allocate(Node { next: Far::NONE, number: 1 }).unwrap();
        let pages = published.allocate_array(&[Words([1; 100]); 100]).unwrap();
        careful(&peer, |c| c.read(node)).unwrap();
        cut_short(&published);
        let gone = |offset| CarefulError::BusError { cell: CELL, offset };
        careful(&peer, |c| {
            assert_eq!(c.read(node), Err(gone(node.offset())));
            assert_eq!(c.array(pages, 100), Err(gone(pages.offset())));
            assert_eq!(c.element(pages, 7), Err(gone(pages.offset())));
            assert!(matches!(c.tick(), Err(CarefulError::BusError { cell: CELL, .. })));
            assert!(matches!(c.root::<Node>(), Err(CarefulError::BusError { cell: CELL, .. })));
        });
        assert_eq!(gone(5).cell(), CELL);
        // Nor can it be mapped any more.
        let descriptor = published.reading_descriptor().unwrap();
        assert!(matches!(Peer::map(descriptor, CELL, INCARNATION), Err(CarefulError::BusError { .. })));
    });
}
