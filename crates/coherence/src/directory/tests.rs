use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn cells(numbers: &[u32]) -> Cells {
    numbers.iter().map(|&number| CellId(number)).collect()
}

/// What a directory must say, each set at its full length.
#[derive(Default)]
struct Plain(BTreeMap<Block, (bool, Cells)>);

impl Plain {
    /// Who holds a block is named, and nobody is taken for a reader who may write.
    fn assert_covered_by(&self, directory: &Directory, lost: &[Block]) {
        for (&block, (is_exclusive, cells)) in &self.0 {
            let said = match directory.holding(block) {
                Holding::Exclusive(said) if *is_exclusive => said,
                Holding::Shared(said) if !is_exclusive => said,
                other => panic!("{block}: {other:?}"),
            };
            assert!(cells.iter().all(|cell| said.contains(cell)), "{block}: {said:?} lack some of {cells:?}");
        }
        lost.iter().for_each(|&block| assert_eq!(directory.holding(block), Holding::Lost));
    }
}

#[test]
fn what_was_said_of_a_block_is_said_of_no_other() {
    let mut directory = Directory::default();
    let (last, next) = (Block(EXTENT_BLOCKS as u64 - 1), Block(EXTENT_BLOCKS as u64));
    directory.set(last, Holding::Shared(&cells(&[1, 70])));
    directory.set(next, Holding::Exclusive(&cells(&[2])));
    assert_eq!(directory.holding(last), Holding::Shared(&cells(&[1, 70])));
    assert_eq!(directory.holding(next), Holding::Exclusive(&cells(&[2])));
    assert_eq!(directory.holding(Block(0)), Holding::Home);
    directory.set(last, Holding::Home);
    directory.set(next, Holding::Shared(&Cells::NONE));
    assert_eq!(directory, Directory::default(), "nothing is kept of what is at home");
}

#[test]
fn of_a_dead_cell_only_what_nobody_else_has_is_lost() {
    let mut directory = Directory::default();
    let before = [
        (Holding::Shared(&cells(&[1])), Holding::Home),
        (Holding::Shared(&cells(&[1, 2])), Holding::Shared(&cells(&[2]))),
        (Holding::Exclusive(&cells(&[1])), Holding::Lost),
        (Holding::Exclusive(&cells(&[2])), Holding::Exclusive(&cells(&[2]))),
        // One of the two has it: whether it was the dead is found out by asking the other.
        (Holding::Exclusive(&cells(&[1, 2])), Holding::Exclusive(&cells(&[2]))),
        (Holding::Lost, Holding::Lost),
    ];
    (0..).zip(&before).for_each(|(block, (holding, _))| directory.set(Block(block), *holding));
    let mut lost = Vec::new();
    directory.forget(CellId(1), |block| lost.push(block));
    assert_eq!(lost, [Block(2)]);
    (0..).zip(&before).for_each(|(block, (_, after))| assert_eq!(directory.holding(Block(block)), *after));
}

#[test]
fn a_set_that_nobody_has_any_more_makes_room() {
    let mut directory = Directory::default();
    for round in 0..10 {
        for block in 0..READERS as u64 {
            let set = cells(&[round, u32::try_from(block).unwrap() + 100]);
            directory.set(Block(block), Holding::Shared(&set));
            assert_eq!(directory.holding(Block(block)), Holding::Shared(&set), "not widened");
        }
    }
}

/// Every block of an extent in the hands of others, of a hundred cells.
#[test]
fn a_hundred_cells_cost_no_more_than_a_byte_and_a_half_a_block() {
    let (mut directory, mut plain) = (Directory::default(), Plain::default());
    let mut dice = comb_types::Dice::new(1);
    for block in (0..EXTENT_BLOCKS as u64).map(Block) {
        let is_exclusive = dice.below(2) == 0;
        let count = if is_exclusive { 1 } else { 1 + dice.below(20) };
        let set: Cells = (0..count).map(|_| CellId(dice.below(100))).collect();
        directory.set(block, if is_exclusive { Holding::Exclusive(&set) } else { Holding::Shared(&set) });
        plain.0.insert(block, (is_exclusive, set));
    }
    plain.assert_covered_by(&directory, &[]);
    let bytes = directory.heap_bytes();
    assert!(bytes * 2 <= EXTENT_BLOCKS * 3, "{bytes} bytes");
}

proptest! {
    /// More sets than a table has entries.
    #[test]
    fn nobody_who_holds_a_block_is_forgotten(
        steps in prop::collection::vec((0..40_u64, 0..8_u8, prop::collection::vec(0..90_u32, 1..5)), 0..3000),
    ) {
        let (mut directory, mut plain, mut lost) = (Directory::default(), Plain::default(), Vec::new());
        for (block, what, numbers) in steps {
            // Far apart, so that there are several extents, and near.
            let block = Block(block * 1009);
            lost.retain(|other| *other != block);
            plain.0.remove(&block);
            match what {
                0 => directory.set(block, Holding::Home),
                1 => {
                    directory.set(block, Holding::Lost);
                    lost.push(block);
                }
                2 => {
                    let dead = CellId(numbers[0]);
                    directory.set(block, Holding::Home);
                    let mut now_lost = Vec::new();
                    directory.forget(dead, |block| now_lost.push(block));
                    plain.0.retain(|&block, (is_exclusive, cells)| {
                        cells.remove(dead);
                        if cells.is_empty() && *is_exclusive {
                            // Unless its set was widened: then it is found out by asking.
                            let is_lost = directory.holding(block) == Holding::Lost;
                            assert_eq!(is_lost, now_lost.contains(&block));
                            if is_lost {
                                lost.push(block);
                            }
                        }
                        !cells.is_empty()
                    });
                }
                _ => {
                    let is_exclusive = what < 5;
                    let set = cells(if is_exclusive { &numbers[..1] } else { &numbers });
                    let holding = if is_exclusive { Holding::Exclusive(&set) } else { Holding::Shared(&set) };
                    directory.set(block, holding);
                    plain.0.insert(block, (is_exclusive, set));
                }
            }
        }
        plain.assert_covered_by(&directory, &lost);
    }
}
