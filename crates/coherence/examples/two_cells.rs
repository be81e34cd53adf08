//! Two cells load and store one block, under each protocol: who asks whom for what, and what is found.
//!
//! `cargo run -p comb-coherence --example two_cells`
//!
//! All that a protocol needs of the world is [`Tempest`]. Here it is two arrays and a queue of letters; in a cell it is the MMU and the
//! network.

use std::collections::VecDeque;

use comb_coherence::release::Release;
use comb_coherence::stache::Stache;
use comb_coherence::{Access, Block, CellId, Content, Loss, Message, Protocol, Tempest};

/// Homed in cell 0.
const BLOCK: Block = Block(0);
const BYTES: usize = 8;

/// A cell's memory, and what it has said.
struct Memory {
    me: CellId,
    access: Access,
    content: [u8; BYTES],
    letters: VecDeque<(u8, u64, Vec<u8>)>,
}

impl Tempest for Memory {
    fn me(&self) -> CellId {
        self.me
    }

    fn home_of(&self, _: Block) -> CellId {
        CellId(0)
    }

    fn blocks(&self) -> u64 {
        1
    }

    fn block_bytes(&self) -> usize {
        BYTES
    }

    fn access(&self, _: Block) -> Access {
        self.access
    }

    fn set_access(&mut self, _: Block, access: Access) {
        println!("    {} is {access:?}", self.me);
        self.access = access;
    }

    fn fill(&mut self, _: Block, content: &[u8]) {
        self.content.copy_from_slice(content);
    }

    fn copy_out(&self, _: Block, into: &mut [u8]) {
        into.copy_from_slice(&self.content);
    }

    fn patch(&mut self, _: Block, offset: usize, bytes: &[u8]) {
        self.content[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn send(&mut self, _: CellId, kind: u8, _: Block, word: u64, content: Content<'_>) {
        let content = match content {
            Content::None => Vec::new(),
            Content::Block => self.content.to_vec(),
            Content::Bytes(bytes) => bytes.to_vec(),
        };
        self.letters.push_back((kind, word, content));
    }

    fn resume(&mut self, _: Block) {}

    fn synced(&mut self) {
        println!("    {} has synchronised", self.me);
    }

    fn lose(&mut self, _: Block, loss: Loss) {
        println!("    {} is told: {loss}", self.me);
    }
}

struct Cells<P>([(P, Memory); 2]);

impl<P: Protocol> Cells<P> {
    fn new(protocol: impl Fn() -> P) -> Self {
        let memory = |number, access| {
            (protocol(), Memory { me: CellId(number), access, content: [0; BYTES], letters: VecDeque::new() })
        };
        Self([memory(0, Access::ReadWrite), memory(1, Access::Invalid)])
    }

    /// Until nothing is on its way.
    fn deliver(&mut self) {
        while let Some(from) = (0..2).find(|&from| !self.0[from].1.letters.is_empty()) {
            let (kind, word, content) = self.0[from].1.letters.pop_front().expect("it has one");
            let (protocol, memory) = &mut self.0[1 - from];
            let message = Message { kind, block: BLOCK, word, content: &content };
            println!("    cell {from} → {}: {}, {} bytes", memory.me, protocol.describe(kind), content.len());
            let from = CellId(u32::try_from(from).expect("two"));
            protocol.on_message(memory, from, message).expect("both are honest");
        }
    }

    fn load(&mut self, cell: usize) {
        println!("  cell {cell} loads");
        if !self.0[cell].1.access.may_load() {
            let (protocol, memory) = &mut self.0[cell];
            protocol.on_read_fault(memory, BLOCK);
            self.deliver();
        }
        println!("    and finds {}", self.0[cell].1.content[0]);
    }

    fn store(&mut self, cell: usize, value: u8) {
        println!("  cell {cell} stores {value}");
        while !self.0[cell].1.access.may_store() {
            let (protocol, memory) = &mut self.0[cell];
            protocol.on_write_fault(memory, BLOCK);
            self.deliver();
        }
        self.0[cell].1.content[0] = value;
    }

    fn sync(&mut self, cell: usize) {
        println!("  cell {cell} synchronises");
        let (protocol, memory) = &mut self.0[cell];
        protocol.on_sync(memory);
        self.deliver();
    }
}

fn show<P: Protocol>(name: &str, protocol: impl Fn() -> P) {
    println!("\n{name}");
    let mut cells = Cells::new(protocol);
    cells.load(1);
    cells.store(0, 7);
    cells.load(1);
    cells.sync(0);
    cells.load(1);
    cells.store(1, 8);
    cells.sync(1);
    cells.load(0);
}

fn main() {
    show("Stache: one writer or many readers", Stache::new);
    show("migratory: one holder, who may write", Stache::migratory);
    show("release, invalidating: many writers; copies are dropped at synchronisation", Release::invalidating);
    show("release, updating: many writers; copies are changed at synchronisation", Release::updating);
}
