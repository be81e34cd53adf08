//! How much there may be, and what it costs.

use comb_memory::Access::{Invalid, ReadOnly, ReadWrite};
use comb_memory::{Block, Control, Grain, MemoryError};

use crate::Kind;
use crate::isolation::passes;
use crate::world::begin;

const GIBIBYTE: u64 = 1 << 30;
const PAGE: u64 = 4096;

fn page_tables_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Guards a tebibyte, touches a gibibyte of it in pieces of 4 MB, and says what that costs beside the content: tables of the kernel's
/// and ours.
fn a_tebibyte(grain: Grain, block_bytes: u32, is_home: bool) -> u64 {
    let kind = Kind { control: Control::Userfaultfd, grain, block_bytes };
    let blocks = 1024 * GIBIBYTE / u64::from(block_bytes);
    let before = page_tables_bytes();
    let world = begin(kind, blocks, if is_home { ReadWrite } else { Invalid });
    assert!(
        page_tables_bytes() - before + world.memory.metadata_bytes() as u64 <= 1 << 20,
        "untouched, it costs"
    );
    let stride = blocks / 256;
    for piece in 0..256 {
        let first = piece * stride;
        let count = (4 << 20) / u64::from(block_bytes);
        if is_home {
            for page in 0..(4 << 20) / PAGE {
                world.store(first + page * PAGE / u64::from(block_bytes), page);
            }
        } else {
            world.fill(first, piece);
            world.set(first..first + count, ReadOnly);
            assert_eq!(world.load(first), piece);
        }
    }
    page_tables_bytes() - before + world.memory.metadata_bytes() as u64
}

const LARGEST_COST: u64 = 30 << 20;

#[test]
fn a_tebibyte_of_which_a_gibibyte_is_touched_costs_little() {
    passes("sizes::a_tebibyte_of_which_a_gibibyte_is_touched_costs_little", || {
        let cost = a_tebibyte(Grain::Pages, 4096, false);
        println!("a gibibyte of copies among a tebibyte: {} KB beside the content", cost / 1024);
        assert!(cost <= LARGEST_COST, "{cost}");
    });
}

#[test]
fn a_tebibyte_of_which_a_gibibyte_is_touched_costs_little_at_home() {
    passes("sizes::a_tebibyte_of_which_a_gibibyte_is_touched_costs_little_at_home", || {
        let cost = a_tebibyte(Grain::Pages, 4096, true);
        println!("a gibibyte at home among a tebibyte: {} KB beside the content", cost / 1024);
        assert!(cost <= LARGEST_COST, "{cost}");
    });
}

#[test]
fn rights_as_mixed_as_can_be_need_no_mappings_with_userfaultfd() {
    passes("sizes::rights_as_mixed_as_can_be_need_no_mappings_with_userfaultfd", || {
        let kind = Kind { control: Control::Userfaultfd, grain: Grain::Pages, block_bytes: 4096 };
        let world = begin(kind, 200_000, Invalid);
        for block in (0..200_000).step_by(2) {
            world.set(block..block + 1, ReadOnly);
        }
        assert_eq!((world.probe(199_998), world.probe(199_999)), (ReadOnly, Invalid));
    });
}

/// What cannot be mapped is an error that says what to do, and nothing that was there is broken.
#[test]
fn protections_end_with_an_error_that_says_what_to_do() {
    passes("sizes::protections_end_with_an_error_that_says_what_to_do", || {
        let most: u64 =
            std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
        let kind = Kind { control: Control::Protections, grain: Grain::Pages, block_bytes: 4096 };
        let blocks = most + 1000;
        let world = begin(kind, blocks, Invalid);
        let refused = (0..blocks).step_by(2).find_map(|block| {
            Some((block, world.memory.set(&world.layout, block..block + 1, ReadOnly).err()?))
        });
        let (block, error) = refused.expect("there is a limit");
        assert!(matches!(error, MemoryError::NoMoreMappings(_)), "{error}");
        assert!(error.to_string().contains("vm.max_map_count"), "{error}");
        assert_eq!(world.access(block), Invalid);
        // Taking a right away from the middle of what has it needs a mapping as well; it is refused, and the right stays.
        assert_eq!(world.access(block - 2), ReadOnly);
        assert_eq!(world.load(block - 2), 0);
        // What needs no mapping more works: neighbours become alike.
        world.set(0..block - 1, Invalid);
        world.set(block..block + 1, ReadOnly);
        world.memory.fill(&world.layout, Block(block), &[1; 24]);
        assert_eq!(world.load(block), u64::from_ne_bytes([1; 8]));
    });
}
