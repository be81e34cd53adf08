//! What stops, and what does not.

use std::sync::atomic::Ordering;

use comb_memory::Access::{self, Invalid, ReadOnly, ReadWrite};
use comb_memory::{Control, pointer};

use crate::Kind;
use crate::world::begin;

pub(crate) fn a_load_of_invalid_stops(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    world.fill(33, 4711);
    assert_eq!(world.load(33), 4711);
    assert_eq!(world.stops(), [(33, false)]);
    assert_eq!(world.load(33), 4711);
    assert_eq!(world.stops(), []);
}

pub(crate) fn a_store_to_invalid_stops(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    world.store(33, 4711);
    assert_eq!(world.stops(), [(33, true)]);
    assert_eq!(world.content(33), 4711);
    world.store(33, 4712);
    assert_eq!((world.load(33), world.stops()), (4712, vec![]));
}

pub(crate) fn read_only_stops_stores(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    world.fill(0, 1);
    world.set(0..70, ReadOnly);
    assert_eq!((world.load(0), world.load(69), world.stops()), (1, 0, vec![]));
    world.store(0, 2);
    assert_eq!(world.stops(), [(0, true)]);
    world.store(69, 3);
    assert_eq!(world.stops(), [(69, true)]);
}

pub(crate) fn read_write_stops_nothing(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    world.set(0..70, ReadWrite);
    for block in 0..70 {
        world.store(block, block + 1);
        assert_eq!(world.load(block), block + 1);
    }
    assert_eq!((world.stops(), world.repairs()), (vec![], 0));
}

/// Every right, and one that was never set, and one where a thread has been, in all orders of neighbours.
pub(crate) fn mixed_runs(kind: Kind) {
    const BLOCKS: u64 = 5 * 26;
    let world = begin(kind, BLOCKS * 3, Invalid);
    for (part, target) in [Invalid, ReadOnly, ReadWrite].into_iter().enumerate() {
        let first = part as u64 * BLOCKS;
        for block in first..first + BLOCKS {
            // Neighbours meet in all combinations, since the second number is another in each row.
            match (block % 5 + block / 5) % 5 {
                0 => {}
                1 => world.set(block..block + 1, ReadOnly),
                2 => world.set(block..block + 1, ReadWrite),
                3 => world.store(block, block),
                _ => {
                    world.store(block, block);
                    world.set(block..block + 1, Invalid);
                }
            }
        }
        let contents: Vec<u64> = (first..first + BLOCKS).map(|block| world.content(block)).collect();
        // Not the whole part: what is beside it stays.
        let (before, behind) = (world.access(first), world.access(first + BLOCKS - 1));
        world.set(first + 1..first + BLOCKS - 1, target);
        assert_eq!((world.access(first), world.access(first + BLOCKS - 1)), (before, behind));
        for block in first + 1..first + BLOCKS - 1 {
            assert_eq!(world.access(block), target);
            assert_eq!(world.probe(block), target, "block {block}");
            assert_eq!(world.content(block), contents[usize::try_from(block - first).unwrap()]);
        }
        assert_eq!((world.probe(first), world.probe(first + BLOCKS - 1)), (before, behind));
    }
}

/// Several blocks of minipages have a frame in common, and still a right each.
pub(crate) fn neighbours(kind: Kind) {
    let world = begin(kind, 96, Invalid);
    let right = |block: u64| [Invalid, ReadOnly, ReadWrite][usize::try_from(block * 7 / 3 % 3).unwrap()];
    for block in (0..96).filter(|&block| block != 50) {
        world.set(block..block + 1, right(block));
    }
    for access in [ReadOnly, ReadWrite, Invalid, ReadWrite, ReadOnly, Invalid] {
        world.set(50..51, access);
        for block in (0..96).filter(|&block| block != 50) {
            assert_eq!(world.access(block), right(block), "of block {block}, with block 50 {access:?}");
        }
    }
    for block in 0..96 {
        let expected = if block == 50 { Invalid } else { right(block) };
        assert_eq!(world.probe(block), expected, "block {block}");
    }
}

pub(crate) fn raised_in_steps(kind: Kind) {
    let world = begin(kind, 40, Invalid);
    let all = [Invalid, ReadOnly, ReadWrite];
    let mut value = 0;
    for from in all {
        for to in all {
            for next in all {
                for block in [0, 17, 39] {
                    for access in [from, to, next] {
                        world.set(block..block + 1, access);
                        world.set(block..block + 1, access);
                    }
                    assert_eq!(world.probe(block), next, "{from:?}, {to:?}, {next:?}");
                    value += 1;
                    world.store(block, value);
                    assert_eq!(world.content(block), value);
                }
            }
        }
    }
}

/// The processor says whether it would have stored, and is asked about each way to do so.
pub(crate) fn instructions(kind: Kind) {
    let world = begin(kind, 40, Invalid);
    let word = world.word(3);
    let stops = |what: &dyn Fn()| {
        world.set(3..4, Invalid);
        world.stops();
        what();
        let invalid = world.stops();
        world.set(3..4, ReadOnly);
        what();
        (invalid, world.stops())
    };
    let is_store = (vec![(3, true)], vec![(3, true)]);
    let is_load = (vec![(3, false)], vec![]);
    assert_eq!(stops(&|| _ = word.fetch_add(1, Ordering::SeqCst)), is_store);
    assert_eq!(stops(&|| _ = word.swap(1, Ordering::SeqCst)), is_store);
    // What it expects is not there: the processor would have stored what it found.
    assert_eq!(
        stops(&|| assert!(word.compare_exchange(77, 78, Ordering::SeqCst, Ordering::SeqCst).is_err())),
        is_store
    );
    assert_eq!(stops(&|| _ = word.load(Ordering::SeqCst)), is_load);
    let mut private = [0_u8; 100];
    let (here, there) = (private.as_mut_ptr(), world.place(3));
    // SAFETY: a hundred bytes each.
    assert_eq!(stops(&|| unsafe { string_move(there, here, 100) }), is_store);
    // SAFETY: as above.
    assert_eq!(stops(&|| unsafe { string_move(here, there, 100) }), is_load);
    // SAFETY: as above.
    assert_eq!(stops(&|| unsafe { there.write(1) }), is_store);
}

unsafe fn string_move(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") bytes => _, inout("rsi") from => _, inout("rdi") to => _, options(nostack));
    }
}

/// The kernel may take a page's entry away, as when it swaps the page out: who is stopped then goes on with the same right.
pub(crate) fn dropped(kind: Kind) {
    let world = begin(kind, 10, Invalid);
    for access in [ReadOnly, ReadWrite] {
        world.set(3..4, access);
        let middle = world.layout.block_bytes() / 2;
        let page = world.place(3).wrapping_add(middle);
        let page = page.wrapping_sub(page.addr() % 4096);
        // SAFETY: the block's memory; its content is in the frames.
        assert_eq!(unsafe { libc::madvise(page.cast(), 4096, libc::MADV_DONTNEED) }, 0);
        world.load_byte(3, middle);
        assert_eq!((world.access(3), world.probe(3)), (access, access));
        if access == ReadWrite {
            world.store_byte(3, middle, 1);
            assert_eq!(world.stops(), []);
        }
        world.set(3..4, Invalid);
        world.load_byte(3, middle);
        assert_eq!(world.stops(), [(3, false)]);
    }
}

/// A repair that comes too late leaves an entry behind as it was right before. Here it is made by the kernel's own means.
pub(crate) fn marked(kind: Kind) {
    let world = begin(kind, 10, Invalid);
    world.set(3..4, ReadWrite);
    let page = world.place(3).addr() / 4096 * 4096;
    let protected = if kind.control == Control::Protections {
        // SAFETY: the block's own page of addresses.
        unsafe { libc::mprotect(pointer(page as u64).cast(), 4096, libc::PROT_READ) }
    } else {
        const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
        let is_ours = |number: &i32| {
            std::fs::read_link(format!("/proc/self/fd/{number}"))
                .is_ok_and(|to| to.ends_with("anon_inode:[userfaultfd]"))
        };
        let descriptor = (0..1000).find(is_ours).unwrap();
        let request = [page as u64, 4096, 1];
        // SAFETY: the structure that this request is defined with: where, how much, and that it be protected.
        unsafe { libc::ioctl(descriptor, UFFDIO_WRITEPROTECT, &raw const request) }
    };
    assert_eq!(protected, 0);
    world.store(3, 77);
    assert_eq!((world.content(3), world.stops(), world.repairs()), (77, vec![], 1));
}

pub(crate) fn never_touched(kind: Kind) {
    // What is homed here: nothing was ever set, and nothing asks.
    let world = begin(kind, 4096, ReadWrite);
    for block in 0..2000 {
        assert_eq!(world.access(block), ReadWrite);
        world.store(block, block);
        assert_eq!(world.load(block), block);
    }
    assert_eq!(world.stops(), []);
    if kind.block_bytes == 4096 {
        // Going through memory is ahead of its stops.
        assert!(world.repairs() < 300, "{} stops", world.repairs());
    }
    assert_eq!((world.content(0), world.content(1999), world.content(2000)), (0, 1999, 0));
    // Taken away over both what was touched and what was not; with one change in the middle.
    world.set(1000..1001, ReadOnly);
    world.set(500..3000, Invalid);
    let mut block = 0;
    while block < 4096 {
        let expected = if (500..3000).contains(&block) { Invalid } else { ReadWrite };
        assert_eq!(world.access(block), expected, "block {block}");
        block += 250;
    }
    assert_eq!((world.probe(499), world.probe(500), world.probe(1000)), (ReadWrite, Invalid, Invalid));
    assert_eq!((world.probe(2500), world.probe(2999), world.probe(3000)), (Invalid, Invalid, ReadWrite));
    assert_eq!(world.load(500), 500);
    lowered_before_it_was_touched(world);
}

fn lowered_before_it_was_touched(world: &crate::world::World) {
    world.set(3500..3600, ReadOnly);
    world.set(3510..3520, ReadWrite);
    let expected = |block| -> Access { if (3510..3520).contains(&block) { ReadWrite } else { ReadOnly } };
    for block in 3500..3600 {
        assert_eq!(world.probe(block), expected(block), "block {block}");
    }
}
