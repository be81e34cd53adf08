//! Blocks that several components want: who stores to which words of them, and what is to be done about it.

use std::collections::{BTreeMap, BTreeSet};

use comb_region::report::{BlockPart, Part};
use serde::Serialize;

use super::names::{Naming, Place};

/// Once or twice is no fight.
const LEAST_MISSES: u64 = 8;

/// How components share a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pattern {
    /// Each stores to words of its own: only the block is the same.
    FalseSharing,
    /// One stores, and others load what is beside it.
    FalseReading,
    /// Several store to the same words.
    HandToHand,
    /// One stores, and others load that.
    Published,
    /// Several store, each to words of its own, and load what others have stored.
    Exchanged,
}

impl Pattern {
    /// For people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::FalseSharing => "false sharing: each stores to words of its own, in one block",
            Self::FalseReading => {
                "false sharing: one stores, the others load what lies beside that in its block"
            }
            Self::HandToHand => "true sharing: several store to the same words",
            Self::Published => "true sharing: one stores, the others load that",
            Self::Exchanged => {
                "true sharing: each stores to words of its own, and loads what others have stored"
            }
        }
    }
}

/// Blocks that are shared in the same way, by the same lines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Shared {
    pub(crate) pattern: Pattern,
    /// What is there, as far as misses have told: variables, with the bytes from their beginnings.
    pub(crate) variables: Vec<String>,
    pub(crate) blocks: u64,
    pub(crate) block_bytes: u32,
    pub(crate) misses: u64,
    pub(crate) waited_ns: u64,
    /// Misses of the block that is wanted most.
    pub(crate) most_misses: u64,
    /// Who misses it where: component, line, whether it stores.
    pub(crate) parties: Vec<Party>,
    pub(crate) advice: String,
}

/// One component's most frequent line at a block.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Party {
    pub(crate) rank: u32,
    pub(crate) place: Place,
    pub(crate) is_store: bool,
    /// Which bytes of the first such block, as `first to last`.
    pub(crate) bytes: String,
}

/// What is alike of blocks that are told of together.
type Key = (Pattern, Vec<String>, Vec<(u32, Place, bool)>);

/// What several components fight for, the costliest first.
pub(crate) fn sharing(parts: &[&Part], names: &mut impl Naming) -> Vec<Shared> {
    let mut blocks: BTreeMap<u64, Vec<(u32, &BlockPart)>> = BTreeMap::new();
    for part in parts {
        for block in part.blocks.iter().filter(|block| block.misses() > 0) {
            blocks.entry(block.start).or_default().push((part.rank, block));
        }
    }
    let mut found: BTreeMap<Key, Shared> = BTreeMap::new();
    for holders in blocks.values() {
        let misses: u64 = holders.iter().map(|(_, block)| block.misses()).sum();
        let Some(pattern) = pattern(holders).filter(|_| misses >= LEAST_MISSES) else { continue };
        let parties: Vec<Party> =
            holders.iter().filter_map(|(rank, block)| party(*rank, block, names)).collect();
        let variables = variables(holders, names);
        let whole: BTreeSet<&str> = variables.iter().map(|(name, _)| &name[..]).collect();
        let key = (
            pattern,
            whole.iter().map(|&name| name.to_owned()).collect(),
            parties.iter().map(|party| (party.rank, party.place.clone(), party.is_store)).collect(),
        );
        let waited_ns: u64 = holders.iter().map(|(_, block)| block.waited_ns).sum();
        let bytes = holders[0].1.bytes;
        let shared = found.entry(key).or_insert_with(|| Shared {
            pattern,
            variables: variables.iter().map(|(name, offset)| at(name, *offset)).collect(),
            blocks: 0,
            block_bytes: bytes,
            misses: 0,
            waited_ns: 0,
            most_misses: 0,
            parties,
            advice: advice(pattern, whole.len(), bytes),
        });
        shared.blocks += 1;
        shared.misses += misses;
        shared.waited_ns += waited_ns;
        shared.most_misses = shared.most_misses.max(misses);
    }
    let mut found: Vec<Shared> = found.into_values().collect();
    found.sort_by_key(|shared| std::cmp::Reverse(shared.waited_ns));
    found
}

/// How a block is shared, as far as misses tell. A word that a component has while it has the block is seen only if it was the one that
/// missed.
fn pattern(holders: &[(u32, &BlockPart)]) -> Option<Pattern> {
    let words = |units: Vec<u32>| units.into_iter().collect::<BTreeSet<u32>>();
    let stored: Vec<BTreeSet<u32>> = holders.iter().map(|(_, block)| words(block.stored_words())).collect();
    let loaded: Vec<BTreeSet<u32>> = holders.iter().map(|(_, block)| words(block.loaded_words())).collect();
    let writers: Vec<usize> = (0..holders.len()).filter(|&index| !stored[index].is_empty()).collect();
    let meets = |writer: usize, of: &[BTreeSet<u32>]| {
        (0..holders.len()).any(|other| other != writer && !of[other].is_disjoint(&stored[writer]))
    };
    match &writers[..] {
        _ if holders.len() < 2 => None,
        [] => None,
        [writer] => Some(if meets(*writer, &loaded) { Pattern::Published } else { Pattern::FalseReading }),
        _ if writers.iter().any(|&writer| meets(writer, &stored)) => Some(Pattern::HandToHand),
        _ if loads_count(holders) && writers.iter().any(|&writer| meets(writer, &loaded)) => {
            Some(Pattern::Exchanged)
        }
        _ => Some(Pattern::FalseSharing),
    }
}

/// Whether so many of the misses are loads that these may be why the block travels: who looks at the result once, in the end, is not the reason.
fn loads_count(holders: &[(u32, &BlockPart)]) -> bool {
    let touches = || holders.iter().flat_map(|(_, block)| &block.touches);
    let of = |is_store: bool| -> u64 {
        touches().filter(|touch| touch.is_store == is_store).map(|touch| touch.count).sum()
    };
    of(false) * 8 >= of(true)
}

fn party(rank: u32, block: &BlockPart, names: &mut impl Naming) -> Option<Party> {
    let stores = block.writes + block.upgrades > 0;
    // Who stores is known by its stores: what it loads there it loads to store.
    let touches = block.touches.iter().filter(|touch| touch.is_store == stores);
    let touch = touches.max_by_key(|touch| touch.count)?;
    let words = if stores { block.stored_words() } else { block.loaded_words() };
    let (first, last) = (words.first().copied().unwrap_or(0), words.last().copied().unwrap_or(0));
    let unit = block.unit_bytes();
    let bytes = format!("{} to {}", first * unit, (last + 1) * unit - 1);
    Some(Party { rank, place: names.place(rank, touch.instruction), is_store: stores, bytes })
}

/// What the words are that were missed.
fn variables(holders: &[(u32, &BlockPart)], names: &mut impl Naming) -> Vec<(String, u64)> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (_, block) in holders {
        let unit = u64::from(block.unit_bytes());
        for word in block.stored_words().into_iter().chain(block.loaded_words()) {
            let (name, offset) = names.variable(block.start + u64::from(word) * unit);
            let first = found.entry(name).or_insert(offset);
            *first = offset.min(*first);
        }
    }
    found.into_iter().collect()
}

fn at(name: &str, offset: u64) -> String {
    if offset == 0 { name.to_owned() } else { format!("{name}+{offset}") }
}

fn advice(pattern: Pattern, variables: usize, block_bytes: u32) -> String {
    match pattern {
        Pattern::FalseSharing | Pattern::FalseReading if variables > 1 => {
            format!("give each of these variables a block of its own: align it to {block_bytes} bytes")
        }
        Pattern::FalseSharing | Pattern::FalseReading => {
            format!(
                "give each component's part blocks of its own: pad or align it to {block_bytes} bytes, or share it by smaller blocks"
            )
        }
        Pattern::HandToHand | Pattern::Published | Pattern::Exchanged if variables > 1 => format!(
            "several variables are in it: align each to {block_bytes} bytes, and look again which of them is wanted by several"
        ),
        Pattern::HandToHand => {
            "let each component work on a copy of its own and combine them at the end".to_owned()
        }
        Pattern::Published | Pattern::Exchanged => {
            "publish more at a time and less often; push it to who reads it, or have each reader keep a copy"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use comb_region::report::Touch;

    use super::super::scene::{Plain, block, part};
    use super::*;

    fn found(blocks: &[BlockPart]) -> Vec<Shared> {
        let parts: Vec<Part> = (0..)
            .zip(blocks)
            .map(|(rank, block)| Part { blocks: vec![block.clone()], ..part(rank) })
            .collect();
        sharing(&parts.iter().collect::<Vec<_>>(), &mut Plain)
    }

    #[test]
    fn who_stores_to_words_of_its_own_shares_falsely() {
        let shared = found(&[block(0x2000, &[], &[0, 1], 100, 20), block(0x2000, &[2], &[2], 250, 20)]);
        let [shared] = &shared[..] else { panic!("{shared:?}") };
        assert_eq!((shared.pattern, shared.blocks, shared.misses), (Pattern::FalseSharing, 1, 40));
        assert_eq!(shared.variables, ["v2"]);
        let parties: Vec<_> = shared
            .parties
            .iter()
            .map(|party| (party.rank, &party.place.line[..], &party.bytes[..]))
            .collect();
        assert_eq!(parties, [(0, "a.c:1", "0 to 15"), (1, "a.c:2", "16 to 23")]);
        assert!(shared.advice.contains("4096 bytes"), "{}", shared.advice);
    }

    #[test]
    fn patterns_are_told_apart() {
        let of = |first: (&[u32], &[u32]), second: (&[u32], &[u32])| {
            let blocks =
                [block(0x2000, first.0, first.1, 100, 20), block(0x2000, second.0, second.1, 200, 20)];
            found(&blocks).first().map(|shared| shared.pattern)
        };
        assert_eq!(of((&[3], &[3]), (&[3], &[3])), Some(Pattern::HandToHand));
        assert_eq!(of((&[], &[3]), (&[3], &[])), Some(Pattern::Published));
        assert_eq!(of((&[], &[3]), (&[4], &[])), Some(Pattern::FalseReading));
        assert_eq!(of((&[], &[3]), (&[], &[4])), Some(Pattern::FalseSharing));
        assert_eq!(of((&[3], &[]), (&[3], &[])), None, "all may read");
    }

    /// Threads count in words of their own, in one block; main() reads all of them, once. That was told as true sharing.
    #[test]
    fn who_reads_once_what_others_store_all_the_time_is_not_the_reason() {
        let pattern = |loads: u64| {
            let mut second = block(0x2000, &[3], &[4], 200, 2000);
            second.touches.push(Touch { instruction: 300, is_store: false, offset: 24, count: loads });
            let blocks = [block(0x2000, &[], &[3], 100, 2000), second];
            found(&blocks).first().map(|shared| shared.pattern)
        };
        assert_eq!(pattern(1), Some(Pattern::FalseSharing));
        assert_eq!(pattern(1000), Some(Pattern::Exchanged));
    }

    #[test]
    fn what_was_missed_once_or_by_one_is_no_fight() {
        assert_eq!(found(&[block(0x2000, &[], &[0], 100, 2), block(0x2000, &[], &[1], 200, 2)]), []);
        assert_eq!(found(&[block(0x2000, &[], &[0], 100, 200)]), []);
    }

    #[test]
    fn blocks_of_one_array_are_told_of_together() {
        struct Array;
        impl Naming for Array {
            fn place(&mut self, rank: u32, instruction: u64) -> Place {
                Plain.place(rank, instruction)
            }
            fn variable(&mut self, address: u64) -> (String, u64) {
                ("array".to_owned(), address - 0x2000)
            }
            fn is_ours(&mut self, _: u32, _: u64) -> bool {
                false
            }
        }
        let of = |rank, word| Part {
            blocks: (2..5).map(|page| block(page << 12, &[], &[word], 100, 20)).collect(),
            ..part(rank)
        };
        let shared = sharing(&[&of(0, 0), &of(1, 9)], &mut Array);
        let [shared] = &shared[..] else { panic!("{shared:?}") };
        assert_eq!((shared.blocks, shared.misses, shared.most_misses), (3, 120, 40));
        assert_eq!(shared.variables, ["array"]);
    }
}
