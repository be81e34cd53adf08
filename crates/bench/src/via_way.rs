//! A virtual interface as a way: one descriptor a message, out of and into registered memory.

use std::time::Duration;

use comb_net::Access;
use comb_net::via::{Descriptor, InterfaceKey, InterfaceOptions, Interfaces, MemoryHandle, Side, Span, Tag};

use crate::workload::{Way, read_payload, write_payload};

const SOON: Duration = Duration::from_secs(10);
const SLOT_BYTES: usize = 8 << 10;
/// More than come in at once: a message that found no descriptor would break the connection.
const SLOTS: usize = 32;

pub(crate) struct ViaWay {
    pub(crate) via: Interfaces,
    pub(crate) tag: Tag,
    interface: InterfaceKey,
    /// The first slot is sent from, the others are received into, in turn.
    memory: MemoryHandle,
    next: usize,
    /// What the peer writes into, and the number of what we write into.
    inbox: MemoryHandle,
    theirs: u32,
}

impl ViaWay {
    /// Connects to `to`, or accepts.
    pub(crate) fn meet(mut via: Interfaces, to: Option<&str>) -> Result<Self, Box<dyn std::error::Error>> {
        let tag = via.new_tag();
        let interface = via.new_interface(InterfaceOptions::new(tag));
        let memory = via.register(vec![0; SLOT_BYTES * (SLOTS + 1)], tag);
        for slot in 1..=SLOTS {
            let span = Span { memory, offset: slot * SLOT_BYTES, bytes: SLOT_BYTES };
            via.post_receive(interface, Descriptor::receive(&[span]))?;
        }
        match to {
            Some(to) => via.connect(interface, to, SOON)?,
            None => drop(via.accept(interface, SOON)?),
        }
        let inbox = via.register_window(interface, 4096, Access::Put)?;
        let number = via.window_number(inbox).ok_or("a window without a number")?;
        let span = Span { memory, offset: 0, bytes: 8 };
        via.post_send(interface, Descriptor::send(&[span]).with_immediate(number))?;
        via.done_within(interface, Side::Send, SOON).ok_or("not sent")?;
        let told = via.done_within(interface, Side::Receive, SOON).ok_or("no window was named")?;
        let theirs = told.immediate.ok_or("no window was named")?;
        via.take_window(interface, theirs, SOON)?;
        let mut way = Self { via, tag, interface, memory, next: 1, inbox, theirs };
        way.renew();
        Ok(way)
    }

    /// Posts the slot that was received into again.
    fn renew(&mut self) {
        let span = Span { memory: self.memory, offset: self.next * SLOT_BYTES, bytes: SLOT_BYTES };
        self.via.post_receive(self.interface, Descriptor::receive(&[span])).expect("just taken out");
        self.next = self.next % SLOTS + 1;
    }

    fn work(&mut self, descriptor: Descriptor) {
        self.via.post_send(self.interface, descriptor).expect("a connected interface");
        loop {
            if let Some(done) = self.via.take_done(self.interface, Side::Send) {
                done.outcome.expect("a live peer");
                return;
            }
            self.via.progress();
        }
    }

    /// Writes a word into the peer's inbox.
    pub(crate) fn rdma_write(&mut self, word: u64) {
        self.via.write(self.memory, 0, &word.to_le_bytes()).expect("registered");
        let span = Span { memory: self.memory, offset: 0, bytes: 8 };
        self.work(Descriptor::rdma_write(&[span], self.theirs, 0));
    }

    /// Spins until that word stands in our inbox.
    pub(crate) fn await_written(&self, word: u64) {
        let mut bytes = [0; 8];
        while u64::from_le_bytes(bytes) != word {
            self.via.read(self.inbox, 0, &mut bytes).expect("registered");
            std::hint::spin_loop();
        }
    }

    /// Reads from the peer's inbox.
    pub(crate) fn rdma_read(&mut self, bytes: usize) {
        let span = Span { memory: self.memory, offset: 0, bytes };
        self.work(Descriptor::rdma_read(&[span], self.theirs, 0));
    }
}

impl Way for ViaWay {
    fn send(&mut self, bytes: usize, first: u64) {
        let memory = self.via.memory_mut(self.memory).expect("registered");
        write_payload(&mut memory[..bytes], first);
        self.work(Descriptor::send(&[Span { memory: self.memory, offset: 0, bytes }]));
    }

    fn receive(&mut self, bytes: usize) -> u64 {
        let done = loop {
            if let Some(done) = self.via.take_done(self.interface, Side::Receive) {
                break done;
            }
            self.via.progress();
        };
        assert_eq!(done.outcome.expect("a live peer"), bytes);
        let offset = self.next * SLOT_BYTES;
        let memory = self.via.memory(self.memory).expect("registered");
        let first = read_payload(&memory[offset..offset + bytes]);
        self.renew();
        first
    }
}
