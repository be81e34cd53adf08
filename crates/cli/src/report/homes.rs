//! Where blocks live, and who misses them.

use std::collections::BTreeMap;

use comb_region::report::Part;
use serde::Serialize;

use super::names::Naming;

/// Of a block's misses, in percent: by as many the block is one component's.
const MOST_OF_ALL: u64 = 75;
/// Once is what anything costs that is used elsewhere than where it began.
const LEAST_MISSES: u64 = 4;

/// Memory that lives with one component and is used by another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Misplaced {
    pub(crate) variable: String,
    pub(crate) home: u32,
    pub(crate) user: u32,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) misses: u64,
    pub(crate) waited_ns: u64,
}

/// What one component holds for the others, and moves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Traffic {
    pub(crate) rank: u32,
    pub(crate) misses: u64,
    pub(crate) waited_ns: u64,
    pub(crate) synchronised_ns: u64,
    /// Misses of all components at blocks that live here.
    pub(crate) served: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// Blocks that had better live elsewhere, the costliest first.
pub(crate) fn misplaced(parts: &[&Part], names: &mut impl Naming) -> Vec<Misplaced> {
    let mut blocks: BTreeMap<u64, BTreeMap<u32, (u64, u64)>> = BTreeMap::new();
    let mut homes: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    for part in parts {
        for block in &part.blocks {
            let of = blocks.entry(block.start).or_default().entry(part.rank).or_default();
            *of = (of.0 + block.misses(), of.1 + block.waited_ns);
            if let Some(home) = block.home {
                let known = homes.entry(block.start).or_insert((home, block.bytes));
                // Who says that it lives with it knows best.
                if home == part.rank {
                    known.0 = home;
                }
            }
        }
    }
    let mut found: BTreeMap<(String, u32, u32), Misplaced> = BTreeMap::new();
    for (start, users) in blocks {
        let Some(&(home, bytes)) = homes.get(&start) else { continue };
        let all: u64 = users.values().map(|(misses, _)| misses).sum();
        let Some((&user, &(misses, waited_ns))) = users.iter().max_by_key(|(_, (misses, _))| *misses) else {
            continue;
        };
        if user == home || misses < LEAST_MISSES || misses * 100 < all * MOST_OF_ALL {
            continue;
        }
        let (variable, _) = names.variable(start);
        let fresh = Misplaced {
            variable: variable.clone(),
            home,
            user,
            blocks: 0,
            bytes: 0,
            misses: 0,
            waited_ns: 0,
        };
        let of = found.entry((variable, home, user)).or_insert(fresh);
        of.blocks += 1;
        of.bytes += u64::from(bytes);
        of.misses += misses;
        of.waited_ns += waited_ns;
    }
    let mut found: Vec<Misplaced> = found.into_values().collect();
    found.sort_by_key(|misplaced| std::cmp::Reverse(misplaced.waited_ns));
    found
}

pub(crate) fn traffic(parts: &[&Part]) -> Vec<Traffic> {
    let served = |rank: u32| -> u64 {
        let blocks = parts.iter().flat_map(|part| &part.blocks);
        blocks.filter(|block| block.home == Some(rank)).map(comb_region::report::BlockPart::misses).sum()
    };
    let of = |part: &&Part| Traffic {
        rank: part.rank,
        misses: part.sites.iter().map(|site| site.count).sum(),
        waited_ns: part.sites.iter().map(|site| site.waited_ns).sum(),
        synchronised_ns: part.synchronised_ns,
        served: served(part.rank),
        bytes_in: part.bytes_in,
        bytes_out: part.bytes_out,
    };
    parts.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Plain, block, part};
    use super::*;

    #[test]
    fn memory_that_one_other_component_uses_is_misplaced() {
        let home = Part { blocks: vec![block(0x5000, &[], &[0], 100, 9)], ..part(0) };
        // Its own page, one that the home uses as well, and one that it has missed twice.
        let user = Part {
            blocks: vec![
                block(0x4000, &[1], &[], 100, 9),
                block(0x5000, &[1], &[], 100, 9),
                block(0x6000, &[1], &[], 100, 2),
            ],
            ..part(2)
        };
        let found = misplaced(&[&home, &user], &mut Plain);
        let [misplaced] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&misplaced.variable[..], misplaced.home, misplaced.user), ("v4", 0, 2));
        assert_eq!((misplaced.blocks, misplaced.bytes, misplaced.misses), (1, 4096, 9));
        assert_eq!(traffic(&[&home, &user]).iter().map(|of| of.served).collect::<Vec<_>>(), [29, 0]);
    }
}
