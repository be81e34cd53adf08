//! A component that says hello to all others, and to the world what they answered.
//! Run: `cargo build --example hello_task -p comb-region` and `comb run -n 4 -- target/debug/examples/hello_task`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comb_net::{Agent, Endpoint, EndpointOptions};
use comb_region::task::Description;

const LIMIT: Duration = Duration::from_secs(30);
const ENDPOINT: &str = "hello";
const HELLO: u8 = 0;
const GOODBYE: u8 = 1;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let task = Description::from_environment()?;
    let count = u32::try_from(task.components.len())?;
    let agent = Agent::connect(&task.agent, &task.process(task.rank))?;
    let options = EndpointOptions { channels: count, events: true, ..EndpointOptions::default() };
    let mut endpoint = agent.endpoint_with(ENDPOINT, options)?;

    // Each opens a channel to those before it, and is found by those after it.
    let deadline = Instant::now() + LIMIT;
    let mut channels = BTreeMap::new();
    for rank in 0..task.rank {
        channels.insert(rank, open(&mut endpoint, &task.address(rank, ENDPOINT), deadline)?);
    }
    while channels.len() + 1 < count as usize {
        let left = deadline.saturating_duration_since(Instant::now());
        let channel = endpoint.accept(left).ok_or("not all components have started")?;
        let from = endpoint.peer(channel).unwrap_or_default();
        let rank = (task.rank + 1..count).find(|&rank| task.address(rank, ENDPOINT) == from);
        channels.insert(rank.ok_or("a stranger has come")?, channel);
    }

    for (rank, channel) in &channels {
        endpoint.send(*channel, HELLO, format!("hello {rank}, from {}", task.rank).as_bytes())?;
    }
    let mut buffer = [0; 100];
    let (mut hellos, mut goodbyes, mut says_goodbye) = (0, 0, false);
    while hellos < channels.len() || goodbyes < channels.len() {
        match endpoint.receive_within(&mut buffer, LIMIT) {
            Ok(Some(got)) if got.kind == HELLO => {
                println!("{}: {}", task.rank, String::from_utf8_lossy(&buffer[..got.bytes]));
                hellos += 1;
            }
            Ok(Some(_)) => goodbyes += 1,
            Ok(None) => return Err("not all others have said hello and goodbye".into()),
            // It has said goodbye before, or does not count.
            Err(_ended) => {}
        }
        // Nobody leaves before all have heard everything: to the others that is the end of a channel.
        if hellos == channels.len() && !std::mem::replace(&mut says_goodbye, true) {
            channels.values().try_for_each(|channel| endpoint.send(*channel, GOODBYE, b""))?;
        }
    }
    Ok(())
}

/// The other component may not have come so far.
fn open(
    endpoint: &mut Endpoint,
    address: &str,
    deadline: Instant,
) -> Result<comb_net::ChannelKey, comb_net::RequestError> {
    loop {
        match endpoint.open(address) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            outcome => return outcome,
        }
    }
}
