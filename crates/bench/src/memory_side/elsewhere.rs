//! What lives with component 0 and component 1 asks for, beside messages between the same two processes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use comb_net::{Agent, EndpointOptions, Geometry};
use comb_region::task::Description;
use comb_region::{Array, Guard, Placement, Task, Terms};

use super::{Outcome, PAGE, WORDS, fill, in_no_order, load, say, store, sum_of};

/// Misses of component 1, by copies, while component 0 waits and answers.
pub(super) fn misses(task: &Task) -> Outcome {
    const PAGES: usize = 4096;
    let terms = Terms { placement: Placement::At(0), ..Terms::default() };
    let words = Array::<u64>::together(task, PAGES * WORDS, &terms)?;
    let fresh = Array::<u64>::together(task, PAGES * WORDS, &terms)?;
    if task.rank() == 0 {
        fill(words.as_ptr(), PAGES * WORDS, 1);
        fill(fresh.as_ptr(), PAGES * WORDS, 1);
    }
    task.barrier();
    let timed = |access: &dyn Fn(usize)| in_no_order(PAGES, |page| access(page * WORDS));
    if task.rank() == 1 {
        let all = [
            ("read miss", timed(&|index| _ = black_box(words.get(index)))),
            ("upgrade", timed(&|index| words.set(index, 7))),
            ("write miss", timed(&|index| fresh.set(index, 7))),
        ];
        for (name, each) in all {
            say(task, 1, &format!("{name}, median"), "ns", each[PAGES / 2] as f64);
            say(task, 1, &format!("{name}, 99th of a hundred"), "ns", each[PAGES / 100 * 99] as f64);
        }
    }
    task.barrier();
    object_misses(task)?;
    round_trips(task)?;
    task.barrier();
    Ok(())
}

/// The same of objects that are guarded alone.
fn object_misses(task: &Task) -> Outcome {
    const OBJECTS: usize = 4096;
    let terms =
        Terms { guard: Guard::Mmu, block_bytes: 128, placement: Placement::At(0), ..Terms::default() };
    let memory = task.allocate_together((OBJECTS * 128) as u64, &terms)?;
    let place = |index: usize| task.object(memory, index * 1237 % OBJECTS).expect("so many").cast::<u64>();
    let places: Vec<*mut u64> = (0..OBJECTS).map(place).collect();
    if task.rank() == 0 {
        places.iter().for_each(|&place| store(place, 0, 1));
    }
    task.barrier();
    if task.rank() == 1 {
        let mut each: Vec<u64> = Vec::with_capacity(OBJECTS);
        for &place in &places {
            let started = Instant::now();
            black_box(load(place, 0));
            each.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        each.sort_unstable();
        say(task, 1, "read miss of an object, median", "ns", each[OBJECTS / 2] as f64);
    }
    task.barrier();
    Ok(())
}

/// The same two processes, over an endpoint of their own.
struct Raw {
    endpoint: comb_net::Endpoint,
    channel: comb_net::ChannelKey,
}

impl Raw {
    fn meet(task: &Task, geometry: Geometry) -> Result<Self, Box<dyn std::error::Error>> {
        const SOON: Duration = Duration::from_secs(20);
        let description = Description::from_environment()?;
        let name = |rank: u32| format!("{}-raw{rank}", description.name);
        let agent = Agent::connect(&description.agent, &name(task.rank()))?;
        let options = EndpointOptions { geometry, events: true, ..EndpointOptions::default() };
        let mut endpoint = agent.endpoint_with("raw", options)?;
        task.barrier();
        let channel = if task.rank() == 1 {
            let host = &description.components[0].host;
            let here = format!("{}/raw", name(0));
            endpoint.open(&if description.is_here(0) { here } else { format!("{host}:{here}") })?
        } else {
            endpoint.accept(SOON).ok_or("nobody opens a channel")?
        };
        Ok(Self { endpoint, channel })
    }

    fn send(&mut self, message: &[u8]) -> Outcome {
        Ok(self.endpoint.send_within(self.channel, 0, &[message], Duration::from_secs(20))?)
    }

    /// Spins.
    fn receive(&mut self, buffer: &mut [u8]) -> Outcome {
        while self.endpoint.receive(buffer)?.is_none() {}
        Ok(())
    }
}

/// A question of 32 bytes and a page in answer, without any memory behind it.
fn round_trips(task: &Task) -> Outcome {
    const TIMES: usize = 20_000;
    let mut raw = Raw::meet(task, Geometry { slots: 256, payload_bytes: 256 << 10 })?;
    let (question, page, mut buffer) = ([0; 32], vec![0; PAGE], vec![0; PAGE]);
    let mut each: Vec<u64> = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        if task.rank() == 1 {
            let started = Instant::now();
            raw.send(&question)?;
            raw.receive(&mut buffer)?;
            each.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        } else {
            raw.receive(&mut buffer)?;
            raw.send(&page)?;
        }
    }
    each.sort_unstable();
    if let Some(median) = each.get(TIMES / 2) {
        say(task, 1, "raw round trip of a page", "ns", *median as f64);
    }
    Ok(())
}

/// One reads what the other has, from begin to end; beside a stream of messages of the same length.
pub(super) fn bulk(task: &Task) -> Outcome {
    const BYTES: usize = 64 << 20;
    for block_bytes in [4096_u32, 65536] {
        let terms = Terms { placement: Placement::At(0), block_bytes, ..Terms::default() };
        let words = Array::<u64>::together(task, BYTES / 8, &terms)?;
        // The first time the reader has no page frames for it yet; the second time their alias is new.
        for (with, how) in [(1, "reading"), (2, "reading a second time"), (3, "reading again")] {
            if task.rank() == 0 {
                fill(words.as_ptr(), BYTES / 8, with);
            }
            task.barrier();
            if task.rank() == 1 {
                let started = Instant::now();
                black_box(sum_of(words.as_ptr(), BYTES / 8));
                let rate = BYTES as f64 / started.elapsed().as_secs_f64() / 1e6;
                say(task, 1, &format!("sequential {how}, blocks of {block_bytes}"), "MB/s", rate);
            }
            task.barrier();
        }
    }
    let mut raw = Raw::meet(task, Geometry { slots: 256, payload_bytes: 256 << 10 })?;
    for bytes in [PAGE, 60 << 10] {
        let (message, mut buffer) = (vec![1_u8; bytes], vec![0_u8; bytes]);
        let times = BYTES / bytes;
        let started = Instant::now();
        for _ in 0..times {
            if task.rank() == 0 { raw.send(&message)? } else { raw.receive(&mut buffer)? }
        }
        let rate = (times * bytes) as f64 / started.elapsed().as_secs_f64() / 1e6;
        say(task, 1, &format!("stream of messages of {bytes}"), "MB/s", rate);
        // Both begin the next together.
        if task.rank() == 0 { raw.receive(&mut buffer[..8])? } else { raw.send(&[0; 8])? }
    }
    // The same as reading does: from memory that is no cache's, into such memory, which is then read.
    let (bytes, mut memory) = (60 << 10, vec![1_u8; BYTES]);
    let times = BYTES / bytes;
    let started = Instant::now();
    for content in memory.chunks_exact_mut(bytes) {
        if task.rank() == 0 {
            raw.send(content)?;
        } else {
            raw.receive(content)?;
            let words = content.as_chunks::<8>().0.iter();
            black_box(words.fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word))));
        }
    }
    let rate = (times * bytes) as f64 / started.elapsed().as_secs_f64() / 1e6;
    say(task, 1, &format!("stream of messages of {bytes}, memory to memory"), "MB/s", rate);
    task.barrier();
    Ok(())
}
