//! Pages of processes that use them together, put where they had better live among the nodes of a machine's memory: by the policy that regions have, and by the calls that Linux has
//! for it. (Disco §4.2.3)
//!
//! Each node has a process, which uses pages as it is told. What a process misses is what it has no right to: rights are taken away before each round, and what it accesses then is
//! counted, once to load and once to store. That is no count of what its cache misses, but one of the same kind: who uses a page, and how. When all have
//! stopped, the policy is asked. A page that migrates is moved (`move_pages`); one that is replicated is mapped by its readers as a copy in memory of their own node (`mbind`), at
//! the address that it has. A store finds no right to a page that has replicas; it waits until they are gone.

mod calls;
mod process;
mod shared;

use std::io;
use std::time::{Duration, Instant};

use comb_coherence::CellId;
use comb_coherence::placement::{Move, Page, Policy};

use self::calls::Node;
use self::process::Process;
use self::shared::Shared;

/// How many pages there are: some for each way to use them.
pub const PAGES: usize = 20;

/// How a page is used in a round: the nodes that load a word of it, and those that store one of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Use {
    /// A bit for each node.
    pub loads: u8,
    /// The same.
    pub stores: u8,
}

/// A page, after some rounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Where it lives by the policy.
    pub home: u32,
    /// Who has a copy to read, by the policy: a bit for each node.
    pub replicas: u8,
    /// Where it is as each node's process has it mapped, by what Linux says; none: that process has not touched it since.
    pub seen: Vec<Option<u32>>,
    /// What the policy has said of it.
    pub decided: Vec<Move>,
}

impl Settled {
    /// Whether each sees it where the policy has it: in its own node where it has a replica, else at home.
    pub fn is_as_decided(&self) -> bool {
        (0..).zip(&self.seen).all(|(node, seen)| {
            let there = if self.replicas & 1 << node == 0 { self.home } else { node };
            seen.is_none_or(|seen| seen == there)
        })
    }
}

/// Nobody waits so long for a process of ours.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Processes on all nodes with pages in common, which begin on the first.
pub struct Pages {
    shared: &'static Shared,
    processes: Vec<Process>,
    nodes: Vec<Node>,
    policy: Policy,
    pages: Vec<(Page, Vec<Move>)>,
    round: u32,
}

impl Pages {
    /// As many pages as there is room for.
    pub fn new(policy: Policy) -> io::Result<Self> {
        let nodes = calls::nodes()?;
        if nodes.len() < 2 || nodes.len() > shared::NODES {
            let count = nodes.len();
            return Err(io::Error::other(format!(
                "its memory has {count} nodes, and 2 to {} are needed",
                shared::NODES
            )));
        }
        let shared = Shared::new()?;
        // Who touches a page first decides where it is.
        calls::run_on(&nodes[0])?;
        (0..PAGES).for_each(|page| shared.set_word(page, 0, 1));
        let begun = (0..).zip(&nodes).map(|(number, node)| Process::begin(shared, number, node));
        let processes = begun.collect::<io::Result<Vec<_>>>()?;
        let pages = vec![(Page::new(CellId(0)), Vec::new()); PAGES];
        Ok(Self { shared, processes, nodes, policy, pages, round: 0 })
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Has each page used once as is said of it, and then does what the policy says.
    pub fn round(&mut self, uses: &[Use; PAGES]) -> io::Result<()> {
        self.round += 1;
        self.shared.tell(uses);
        self.shared.begin(self.round);
        let until = Instant::now() + LIMIT;
        for process in &mut self.processes {
            while self.shared.done(process.number()) < self.round {
                process.is_alive()?;
                if Instant::now() > until {
                    return Err(io::Error::other("a process does not come to its end"));
                }
                calls::let_others();
            }
        }
        for index in 0..PAGES {
            self.decide(index)?;
        }
        Ok(())
    }

    fn decide(&mut self, index: usize) -> io::Result<()> {
        let (page, decided) = &mut self.pages[index];
        for node in 0..self.nodes.len() {
            let (loads, stores) = self.shared.take_misses(index, node);
            let cell = CellId(u32::try_from(node).expect("there are few"));
            (0..loads).for_each(|_| page.missed(cell, false));
            (0..stores).for_each(|_| page.missed(cell, true));
        }
        let now = page.decide(&self.policy);
        match &now {
            Move::Stay => return Ok(()),
            Move::Migrate(to) => {
                // Nobody uses it now. Copies would be of what is elsewhere, so they go.
                self.shared.set_replicas(index, 0);
                calls::move_page(self.shared.page(index), self.nodes[to.0 as usize].number)?;
            }
            Move::Replicate(readers) => {
                let bits = readers.iter().fold(0, |bits, cell| bits | 1_u8 << cell.0);
                self.shared.set_replicas(index, self.shared.replicas(index) | bits);
            }
        }
        decided.push(now);
        Ok(())
    }

    /// What became of each page.
    pub fn settled(&self) -> Vec<Settled> {
        let all = self.pages.iter().enumerate();
        all.map(|(index, (page, decided))| Settled {
            home: page.home.0,
            replicas: self.shared.replicas(index),
            seen: (0..self.nodes.len())
                .map(|node| self.shared.seen(index, node))
                .map(|seen| {
                    let found = self.nodes.iter().position(|node| Some(node.number) == seen);
                    found.and_then(|node| u32::try_from(node).ok())
                })
                .collect(),
            decided: decided.clone(),
        })
        .collect()
    }

    /// The word of a page that a node's process stores into, which is how often it has.
    pub fn word(&self, page: usize, node: usize) -> u64 {
        self.shared.word(page, node + 1)
    }

    /// What a process has loaded that was stored before and not there: nothing, if copies go when they must.
    pub fn stale(&self) -> u32 {
        self.shared.stale()
    }
}

/// What processes of a guest do with pages in every way that the policy tells apart, for people to see: each line says what was used how, and where it is. An error: it is not where
/// the policy says.
pub fn show(out: &mut dyn io::Write) -> io::Result<()> {
    let policy = Policy::default();
    let mut pages = Pages::new(policy)?;
    let all = u8::try_from((1_u32 << pages.nodes()) - 1).expect("no more nodes than bits");
    let kinds = [
        ("used by the second node alone", Use { loads: 2, stores: 2 }),
        ("used by its own node alone", Use { loads: 1, stores: 1 }),
        ("read by all", Use { loads: all, stores: 0 }),
        ("written by all", Use { loads: all, stores: all }),
        ("not used", Use::default()),
    ];
    let uses: [Use; PAGES] = std::array::from_fn(|page| kinds[page % kinds.len()].1);
    for _ in 0..=policy.hot_misses {
        pages.round(&uses)?;
    }
    let mut wrong = Vec::new();
    tell(out, &pages, &kinds, "after as many rounds as make a page hot", &mut wrong)?;
    // Now the second node stores into what all have read.
    let written = uses.map(|of| if of == kinds[2].1 { Use { loads: all, stores: 2 } } else { of });
    pages.round(&written)?;
    tell(out, &pages, &kinds, "after a store into what all had read", &mut wrong)?;
    let copies =
        pages.settled().iter().zip(&written).filter(|(one, of)| of.stores != 0 && one.replicas != 0).count();
    if copies > 0 || pages.stale() > 0 {
        wrong.push(format!("{copies} pages with copies that are old, {} old words read", pages.stale()));
    }
    if wrong.is_empty() { Ok(()) } else { Err(io::Error::other(wrong.join("; "))) }
}

fn tell(
    out: &mut dyn io::Write,
    pages: &Pages,
    kinds: &[(&str, Use)],
    when: &str,
    wrong: &mut Vec<String>,
) -> io::Result<()> {
    writeln!(out, "{when}:")?;
    let settled = pages.settled();
    for (kind, (used, _)) in kinds.iter().enumerate() {
        let of_kind: Vec<&Settled> = settled.iter().skip(kind).step_by(kinds.len()).collect();
        let right = of_kind.iter().filter(|page| page.is_as_decided()).count();
        let one = of_kind[0];
        let copies: Vec<u32> = (0..8).filter(|node| one.replicas & 1 << node != 0).collect();
        writeln!(
            out,
            "  {used}: lives in node {}, copies in {copies:?}; {right} of {} are there",
            one.home,
            of_kind.len()
        )?;
        if right < of_kind.len() {
            wrong.push(format!("what is {used} is not where it is to be: {of_kind:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_decided_where_everybody_sees_it_there() {
        let page = |home, replicas, seen: &[Option<u32>]| Settled {
            home,
            replicas,
            seen: seen.to_vec(),
            decided: Vec::new(),
        };
        assert!(page(1, 0, &[Some(1), Some(1)]).is_as_decided());
        assert!(!page(1, 0, &[Some(1), Some(0)]).is_as_decided());
        assert!(page(0, 0b100, &[Some(0), None, Some(2)]).is_as_decided());
        assert!(!page(0, 0b100, &[Some(0), Some(0), Some(0)]).is_as_decided());
    }

    #[test]
    fn where_memory_has_one_node_it_is_said() {
        if calls::nodes().is_ok_and(|nodes| nodes.len() == 1) {
            let said = Pages::new(Policy::default()).err().expect("there is nothing to decide").to_string();
            assert!(said.contains("its memory has 1 nodes"), "{said}");
        }
    }
}
