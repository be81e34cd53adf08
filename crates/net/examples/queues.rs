//! U-Net's queues: compose in the segment, push a descriptor, let the queues be serviced, look at the flag.
//! Run: `cargo run --release -p comb-net --example queues`

use std::time::Duration;

use comb_net::InProcess;
use comb_net::queues::{Buffer, Queues, QueuesOptions, SendDescriptor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = InProcess::start();
    let mut here = Queues::new(agent.connect("here")?.endpoint("desk")?, QueuesOptions::default());
    let mut there = Queues::new(agent.connect("there")?.endpoint("desk")?, QueuesOptions::default());
    let channel = here.open("there/desk")?;

    // Two free buffers for what is too long for a descriptor.
    for offset in [0, 2048] {
        there.push_free(Buffer { offset, length: 2048 })?;
    }

    // One message, gathered from two places of the segment.
    here.segment()[..6].copy_from_slice(b"hello ");
    here.segment()[1000..4000].fill(b'!');
    let parts = vec![Buffer { offset: 0, length: 6 }, Buffer { offset: 1000, length: 3000 }];
    let ticket = here.push(SendDescriptor { channel, kind: 0, parts })?;
    println!("pushed:    injected = {}, {:?}", here.is_injected(ticket), here.send_state(ticket));
    here.service()?;
    println!("serviced:  injected = {}, the segment can be used again", here.is_injected(ticket));

    if there.wait(Duration::from_secs(10))? {
        let received = there.pop().expect("waited for");
        let message = there.read(&received);
        println!("received:  {} bytes in {:?}", message.len(), received.content);
        there.release(received);
    }
    println!("the state: {:?}", there.state());
    Ok(())
}
