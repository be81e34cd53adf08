//! What pieces of shared memory are called that have no name in the source: after the line that has allocated them.

use std::collections::BTreeMap;

use comb_region::report::Part;

use super::names::Naming;

/// Libc's functions as a compiled program calls them.
const WRAPPED: &str = "comb_lib_";

/// By where they begin.
#[derive(Default)]
pub(super) struct Allocations(BTreeMap<u64, Known>);

struct Known {
    bytes: u64,
    creator: u32,
    callers: Vec<u64>,
    name: String,
}

impl Allocations {
    pub(super) fn of<'a>(parts: impl Iterator<Item = &'a Part>) -> Self {
        let mut known = BTreeMap::new();
        for allocation in parts.flat_map(|part| &part.allocations) {
            // Who has made it knows more than the others.
            if !allocation.callers.is_empty() || !known.contains_key(&allocation.start) {
                let Some(end) = allocation.start.checked_add(allocation.bytes.max(1)) else { continue };
                let fresh = Known {
                    bytes: end - allocation.start,
                    creator: allocation.creator,
                    callers: allocation.callers.clone(),
                    name: String::new(),
                };
                known.insert(allocation.start, fresh);
            }
        }
        Self(known)
    }

    pub(super) fn name(&mut self, names: &mut impl Naming) {
        for (start, known) in &mut self.0 {
            // A return address is behind the call.
            let calls: Vec<u64> = known.callers.iter().map(|&caller| caller.saturating_sub(1)).collect();
            let is_wrapped = |call: &u64| names.place(known.creator, *call).function.starts_with(WRAPPED);
            // What malloc shares out in pieces has its name from the first of them.
            let (from, words) = match calls.iter().position(is_wrapped) {
                Some(from) => (from + 1, format!("malloc'ed memory at {start:#x}, first for")),
                None => (0, "memory allocated at".to_owned()),
            };
            known.name = match calls[from..].iter().find(|&&call| !names.is_ours(known.creator, call)) {
                Some(&call) => format!("{words} {}", names.place(known.creator, call)),
                None => format!("memory at {start:#x}"),
            };
        }
    }

    pub(super) fn name_of(&self, address: u64) -> Option<(String, u64)> {
        let (start, known) = self.0.range(..=address).next_back()?;
        (address - start < known.bytes).then(|| (known.name.clone(), address - start))
    }
}

#[cfg(test)]
mod tests {
    use comb_region::report::AllocationPart;

    use super::super::names::Place;
    use super::*;

    struct Callers;

    impl Naming for Callers {
        fn place(&mut self, _: u32, instruction: u64) -> Place {
            let function = if instruction == 40 { "comb_lib_malloc" } else { "main" };
            Place { line: format!("a.c:{instruction}"), function: function.to_owned() }
        }

        fn variable(&mut self, address: u64) -> (String, u64) {
            (String::new(), address)
        }

        fn is_ours(&mut self, _: u32, instruction: u64) -> bool {
            instruction < 10
        }
    }

    #[test]
    fn an_allocation_is_named_after_who_asked_comb_for_it() {
        let allocation = |start: u64, callers: &[u64]| AllocationPart {
            start,
            bytes: 100,
            block_bytes: 4096,
            creator: 0,
            callers: callers.to_vec(),
        };
        let parts = [
            Part {
                allocations: vec![
                    allocation(1000, &[5, 21, 31]),
                    allocation(2000, &[]),
                    allocation(3000, &[5, 21, 41, 51]),
                ],
                ..Part::default()
            },
            Part { allocations: vec![allocation(1000, &[])], ..Part::default() },
        ];
        let mut allocations = Allocations::of(parts.iter());
        allocations.name(&mut Callers);
        assert_eq!(allocations.name_of(1099), Some(("memory allocated at a.c:20 (main)".to_owned(), 99)));
        assert_eq!(allocations.name_of(1100), None);
        assert_eq!(allocations.name_of(2000).unwrap().0, "memory at 0x7d0");
        assert_eq!(
            allocations.name_of(3000).unwrap().0,
            "malloc'ed memory at 0xbb8, first for a.c:50 (main)"
        );
    }
}
