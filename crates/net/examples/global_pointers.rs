//! Four components sort a million numbers by sampling, as the Split-C programs of the thesis do (§2.6): each sends
//! every number to the component of its range by stores, waits for what comes to it, and sorts that.
//! Run: `cargo run --release -p comb-net --example global_pointers`

use std::time::{Duration, Instant};

use comb_net::InProcess;
use comb_net::global::{GlobalError, GlobalMemory};

const SOON: Duration = Duration::from_secs(20);
const COMPONENTS: u32 = 4;
const EACH: usize = 250_000;
const RANGE: u64 = u64::MAX / COMPONENTS as u64 + 1;

fn sort(mut memory: GlobalMemory) -> Result<(), GlobalError> {
    let (me, all) = (memory.component(), COMPONENTS as usize);
    // Every component has a place for what each other sends it, and a count of it.
    let place = EACH * 8;
    let keys = memory.make(place * all, SOON)?;
    let counts = memory.make(all * 8, SOON)?;

    let started = Instant::now();
    let mut ranges: Vec<Vec<u8>> = vec![Vec::new(); COMPONENTS as usize];
    let mut number = u64::from(me) + 1;
    for _ in 0..EACH {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ranges[(number / RANGE) as usize].extend(number.to_le_bytes());
    }
    for (component, range) in (0..COMPONENTS).zip(&ranges) {
        let to = memory.pointer(component, keys, (place * me as usize) as u64)?;
        memory.store(to, range)?;
        let count = memory.pointer(component, counts, u64::from(me) * 8)?;
        memory.store(count, &(range.len() as u64).to_le_bytes())?;
    }

    memory.await_stored(counts, all as u64 * 8, SOON)?;
    let (mut bytes, mut mine) = ([0; 8], Vec::new());
    for from in 0..all {
        memory.get(memory.pointer(me, counts, from as u64 * 8)?, &mut bytes)?;
        let mut block = vec![0; usize::from_le_bytes(bytes)];
        memory.get(memory.pointer(me, keys, (place * from) as u64)?, &mut block)?;
        mine.extend(block.as_chunks::<8>().0.iter().map(|key| u64::from_le_bytes(*key)));
    }
    mine.sort_unstable();
    memory.barrier(SOON)?;
    println!("component {me}: {} numbers in {:?}", mine.len(), started.elapsed());

    // My smallest number goes to my left neighbour, who checks that it is above its largest.
    if me > 0 {
        let to = memory.pointer(me - 1, counts, 0)?;
        memory.put(to, &mine[0].to_le_bytes())?;
    }
    memory.barrier(SOON)?;
    if me + 1 < COMPONENTS {
        memory.get(memory.pointer(me, counts, 0)?, &mut bytes)?;
        assert!(mine.last() <= Some(&u64::from_le_bytes(bytes)), "sorted across components");
    }
    memory.barrier(SOON)
}

fn main() {
    let agent = InProcess::start();
    let addresses = ["c0/main", "c1/main", "c2/main", "c3/main"];
    std::thread::scope(|scope| {
        for address in addresses {
            let agent = &agent;
            scope.spawn(move || {
                let process = agent.connect(address.trim_end_matches("/main")).expect("a name of its own");
                let endpoint = process.endpoint("main").expect("within its limits");
                GlobalMemory::join(endpoint, &addresses, SOON).and_then(sort).expect("sorted");
            });
        }
    });
    println!("a million numbers are in order over four components");
}
