//! What blocks contain, whatever happens to their rights.

use comb_memory::Access::{Invalid, ReadOnly, ReadWrite};
use comb_memory::{Block, MemoryError};

use crate::Kind;
use crate::world::begin;

pub(crate) fn filled(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    for block in 0..70 {
        world.fill(block, block * 3);
    }
    world.set(0..35, ReadOnly);
    world.set(35..70, ReadWrite);
    for block in 0..70 {
        assert_eq!(world.load(block), block * 3);
        // SAFETY: the block's second byte.
        assert_eq!(unsafe { world.place(block).add(1).read_volatile() }, 0xee);
    }
    // Taken, filled with something newer, and given again.
    world.set_all(Invalid);
    for block in 0..70 {
        world.fill(block, block * 5);
    }
    world.set_all(ReadOnly);
    assert!((0..70).all(|block| world.load(block) == block * 5));
    assert_eq!(world.stops(), []);
}

pub(crate) fn stored(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    world.set_all(ReadWrite);
    for block in 0..70 {
        world.store(block, block + 100);
    }
    assert!((0..70).all(|block| world.content(block) == block + 100));
    for access in [ReadOnly, Invalid, ReadOnly, ReadWrite] {
        world.set_all(access);
        for block in 0..70 {
            assert_eq!(world.content(block), block + 100);
            if access != Invalid {
                assert_eq!(world.load(block), block + 100);
            }
        }
    }
    let content = world.memory.content(&world.layout, Block(69)).wrapping_add(16).cast::<u64>();
    // SAFETY: within the block, aligned, and nobody stores now.
    assert_eq!(unsafe { content.read_volatile() }, 169);
}

/// Filled and allowed at once: into a new frame, into one that is there, into a run of both.
pub(crate) fn delivered(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    let content = |value: u64| {
        let mut content = vec![0xdd; world.layout.block_bytes()];
        content[16..24].copy_from_slice(&value.to_ne_bytes());
        content
    };
    // One page, or one minipage, in the middle of what is not there yet.
    let part = world.layout.block_bytes() / 2;
    world.memory.patch(&world.layout, Block(35), part, &[1, 2, 3]);
    for (round, access) in [ReadOnly, ReadWrite, ReadWrite, ReadOnly].into_iter().enumerate() {
        for block in [0, 1, 35, 36, 69] {
            let value = block + 1000 * round as u64;
            world.memory.deliver(&world.layout, Block(block), &content(value), access).unwrap();
            assert_eq!(world.access(block), access);
            assert_eq!((world.load(block), world.content(block)), (value, value));
            // SAFETY: the block's bytes.
            let bytes = [part + 1, content(0).len() - 1]
                .map(|at| unsafe { world.place(block).add(at).read_volatile() });
            assert_eq!(bytes, [0xdd; 2]);
            assert_eq!(world.stops(), []);
            assert_eq!(world.probe(block), access, "block {block} in round {round}");
        }
        world.set_all(Invalid);
        if round == 1 {
            world.memory.discard(&world.layout, 0..70).unwrap();
        }
    }
}

pub(crate) fn patched(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    for block in 30..40 {
        world.fill(block, 7);
    }
    world.memory.patch(&world.layout, Block(35), 21, &[9, 9]);
    world.set_all(ReadOnly);
    for block in 30..40 {
        let expected = if block == 35 { [7, 0, 0, 0, 0, 9, 9, 0] } else { [7, 0, 0, 0, 0, 0, 0, 0] };
        assert_eq!(world.load(block).to_ne_bytes(), expected, "block {block}");
        // SAFETY: the bytes around the word.
        let around = unsafe { (world.place(block).add(15).read(), world.place(block).add(24).read()) };
        assert_eq!(around, (0xee, 0xee));
    }
}

pub(crate) fn discarded(kind: Kind) {
    let world = begin(kind, 256, Invalid);
    let used = || rustix::fs::fstat(world.memory.frames()).unwrap().st_blocks * 512;
    for block in 0..256 {
        world.fill(block, 1);
    }
    world.set_all(ReadWrite);
    let refused = world.memory.discard(&world.layout, 10..20).unwrap_err();
    assert!(matches!(refused, MemoryError::InUse(Block(10))), "{refused}");
    world.set_all(Invalid);
    let before = used();
    world.memory.discard(&world.layout, 0..256).unwrap();
    assert_eq!(used(), 0, "of {before}");
    for block in 0..64 {
        world.fill(block, 2);
    }
    for block in 0..128 {
        assert_eq!(world.load(block), if block < 64 { 2 } else { 0 }, "block {block}");
    }
    // Of minipages, what has a frame in common with others stays.
    world.set_all(Invalid);
    for block in 0..256 {
        world.fill(block, 3);
    }
    world.memory.discard(&world.layout, 3..33).unwrap();
    for block in 0..256 {
        let shares = kind.block_bytes < 4096 && (kind.block_bytes == 128 || block == 3);
        let is_gone = (3..33).contains(&block) && !shares && !(kind.block_bytes == 2048 && block == 32);
        assert_eq!(world.load(block), if is_gone { 0 } else { 3 }, "block {block}");
    }
}

pub(crate) fn begun_again(kind: Kind) {
    let world = begin(kind, 70, ReadWrite);
    for block in 0..70 {
        world.store(block, 1);
    }
    world.set(0..35, Invalid);
    world.memory.unmap(&world.layout, false).unwrap();
    world.memory.guard(&world.layout, ReadOnly).unwrap();
    for block in 0..70 {
        assert_eq!(world.access(block), ReadOnly);
        assert_eq!(
            (world.load(block), world.probe(block)),
            (1, ReadOnly),
            "block {block}: its frame was kept"
        );
    }
    world.memory.unmap(&world.layout, true).unwrap();
    world.memory.guard(&world.layout, Invalid).unwrap();
    for block in 0..70 {
        assert_eq!(world.access(block), Invalid);
        assert_eq!((world.probe(block), world.load(block)), (Invalid, 0), "block {block}: its frame is new");
    }
    world.memory.unmap(&world.layout, true).unwrap();
    world.memory.map(&world.layout).unwrap();
    world.repairs();
    for block in 0..70 {
        assert_eq!(world.access(block), ReadWrite);
        world.store(block, block);
        assert_eq!(world.content(block), block);
    }
    assert_eq!((world.stops(), world.repairs()), (vec![], 0), "nothing guards it");
}

pub(crate) fn library(kind: Kind) {
    let world = begin(kind, 70, Invalid);
    let bytes = world.layout.block_bytes() - 100;
    for block in [0, 1, 33, 69] {
        let place = world.place(block).cast::<libc::c_char>();
        let text = vec![b'x'; bytes - 1];
        world.memory.fill(&world.layout, Block(block), &text);
        world.memory.patch(&world.layout, Block(block), bytes - 1, &[0]);
        // SAFETY: as many bytes as the block has, of any value.
        unsafe {
            assert_eq!(libc::strlen(place), bytes - 1);
            let mut here = vec![0_u8; bytes];
            libc::memcpy(here.as_mut_ptr().cast(), place.cast(), bytes);
            assert_eq!(here[..bytes - 1], text);
            libc::memset(place.cast(), 1, bytes);
            world.set(block..block + 1, Invalid);
            libc::memmove(place.add(1).cast(), here.as_ptr().cast(), bytes - 1);
            assert_eq!((place.read(), place.add(1).read()), (1, libc::c_char::try_from(b'x').unwrap()));
        }
        assert_eq!(world.stops(), [(block, false), (block, true), (block, true)]);
    }
}
