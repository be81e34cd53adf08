//! Upcalls on a thread of their own, and a critical section that they do not interrupt.
//! Run: `cargo run --release -p comb-net --example upcalls`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use comb_net::InProcess;
use comb_net::upcall::Upcalls;

const MESSAGES: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = InProcess::start();
    let mut sender = agent.connect("sender")?.endpoint("out")?;
    let receiver = agent.connect("receiver")?.endpoint("in")?;
    let channel = sender.open("receiver/in")?;

    let sum = Arc::new(AtomicU64::new(0));
    let (done, all_came) = mpsc::channel();
    let mut upcalls = Upcalls::new(receiver);
    let (total, mut count, mut calls) = (Arc::clone(&sum), 0, 0);
    upcalls.on_non_empty(move |endpoint| {
        calls += 1;
        let mut buffer = [0; 8];
        // One upcall consumes all that is pending.
        while let Ok(Some(_)) = endpoint.receive(&mut buffer) {
            total.fetch_add(u64::from_le_bytes(buffer), Ordering::Relaxed);
            count += 1;
        }
        if count == MESSAGES {
            let _ = done.send(calls);
        }
    });
    upcalls.on_almost_full(|_| println!("almost full: senders will soon be held back"));
    let thread = upcalls.spawn()?;
    let gate = thread.gate();

    for number in 1..=MESSAGES {
        sender.send_within(channel, 0, &[&number.to_le_bytes()], Duration::from_secs(10))?;
        if number % 250 == 0 {
            let _critical = gate.disable();
            let before = sum.load(Ordering::Relaxed);
            std::thread::yield_now();
            assert_eq!(before, sum.load(Ordering::Relaxed), "no upcall runs in here");
        }
    }
    let calls: u64 = all_came.recv_timeout(Duration::from_secs(10))?;
    println!("{MESSAGES} messages in {calls} upcalls, sum {}", sum.load(Ordering::Relaxed));
    thread.stop();
    Ok(())
}
