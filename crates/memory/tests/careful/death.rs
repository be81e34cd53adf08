//! What readers are told of memory that is gone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use comb_memory::{CarefulError, Far, Peer, careful};

use crate::isolation::passes;
use crate::structures::{CELL, INCARNATION, Node, Words, peer, published};

/// What the host's agent does when the cell is dead.
pub(crate) fn cut_short(published: &comb_memory::Published) {
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

#[test]
fn memory_may_go_while_threads_read() {
    passes("death::memory_may_go_while_threads_read", || {
        for _ in 0..50 {
            let published = published();
            let peer = peer(&published);
            let small = published.allocate(Words([1; 5])).unwrap();
            let large = published.allocate_array(&[Words([1; 100]); 100]).unwrap();
            let reads = AtomicUsize::new(0);
            thread::scope(|scope| {
                let reader = || {
                    let mut last = None;
                    while last.is_none() {
                        last = careful(&peer, |c| {
                            assert_eq!(c.read(small)?, Words([1; 5]));
                            assert!(c.array(large, 100)?.into_iter().all(|words| words == Words([1; 100])));
                            c.tick().map(drop)
                        })
                        .err();
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    last
                };
                let readers: Vec<_> = (0..3).map(|_| scope.spawn(reader)).collect();
                while reads.load(Ordering::Relaxed) < 10 {
                    thread::yield_now();
                }
                cut_short(&published);
                for reader in readers {
                    let last = reader.join().unwrap();
                    assert!(matches!(last, Some(CarefulError::BusError { cell: CELL, .. })), "{last:?}");
                }
            });
        }
    });
}

#[test]
fn a_section_in_a_section_ends_by_itself() {
    passes("death::a_section_in_a_section_ends_by_itself", || {
        let (alive, dead) = (published(), published());
        let (living, gone) = (peer(&alive), peer(&dead));
        let far = alive.allocate(Words([1; 5])).unwrap();
        dead.allocate(Words([1; 5])).unwrap();
        cut_short(&dead);
        careful(&living, |c| {
            for _ in 0..100 {
                assert_eq!(c.read(far), Ok(Words([1; 5])));
                let inner = careful(&gone, |inner| {
                    assert_eq!(c.read(far), Ok(Words([1; 5])));
                    inner.read(far)
                });
                assert_eq!(inner, Err(CarefulError::BusError { cell: CELL, offset: far.offset() }));
            }
        });
    });
}
